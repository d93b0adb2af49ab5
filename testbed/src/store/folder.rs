//! Buckets and objects as folders and files.
//!
//! A bucket is a folder. An object is a regular file below it, and its key is the file's path from there. Keys with
//! empty parts, `.` or `..` do not exist here, and neither do files whose names are not UTF-8. Nothing outside of the
//! folder is read or written ([`beneath`](foretell_cache::backend::beneath)). Reads follow links that stay below it;
//! nothing is written through links.
//!
//! An object's ETag is made from its file's inode, length and modification time. It costs nothing and is the same in
//! every process. Every PUT here changes it, as it makes a new file with a time of its own. A program that changes a
//! file in place twice within one tick of the kernel's clock can leave the ETag the same.

use std::ffi::OsStr;
use std::fs::{File, FileTimes, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use foretell_cache::backend::beneath::{Beneath, Links, REFUSED, open_entry, stat_entry};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use s3s::path::check_bucket_name;
use s3s::{S3Error, S3Result, s3_error};

use super::error::StoreError;

/// The prefix of the files of unfinished uploads. They are no objects.
pub(super) const UPLOAD_PREFIX: &str = ".foretell-upload-";

/// The folder that is served.
pub(super) struct Folder {
    tree: Beneath,
    /// The folder itself is the bucket of this name.
    only: Option<String>,
    last_put: Mutex<SystemTime>,
    uploads: AtomicU64,
}

/// Entries of a folder of buckets that are not served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Sub-folders whose names cannot be buckets'.
    pub folders: usize,
    /// Files, and what else is no folder: they are in no bucket.
    pub others: usize,
}

/// An unfinished object: a file in its bucket without an object's name. Dropping it removes the file.
pub(super) struct Upload {
    bucket: OwnedFd,
    name: String,
    file: File,
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // A finished upload has another name by now.
        let _ = rustix::fs::unlinkat(&self.bucket, &self.name, AtFlags::empty());
    }
}

/// An object that was opened, or its attributes read.
pub(super) struct Found<F> {
    pub(super) file: F,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
    pub(super) etag: String,
}

impl<F> Found<F> {
    pub(super) fn new(file: F, metadata: &Metadata) -> Self {
        let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
        let since_epoch = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Found {
            file,
            bytes: metadata.len(),
            modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            etag: format!("{:x}-{since_epoch:x}-{:x}", metadata.ino(), metadata.len()),
        }
    }
}

impl Folder {
    /// Opens the folder at `path`. Its sub-folders are the buckets, or it is itself the bucket `only`.
    pub(super) fn open(path: &Path, only: Option<&str>) -> Result<Self, StoreError> {
        let wrong = |source| StoreError::Folder { path: path.to_owned(), source };
        let folder = Folder {
            tree: Beneath::new(path).map_err(|error| wrong(error.into()))?,
            only: only.map(str::to_owned),
            last_put: Mutex::new(SystemTime::UNIX_EPOCH),
            uploads: AtomicU64::new(0),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let readable = folder.tree.open(Path::new(""), flags, Links::Shown);
        readable.map_err(|error| wrong(error.into()))?;
        if folder.buckets().map_err(wrong)?.is_empty() {
            return Err(StoreError::NoBucket { path: path.to_owned() });
        }
        Ok(folder)
    }

    /// The folder itself, which holds buckets and keys.
    pub(super) fn tree(&self) -> &Beneath {
        &self.tree
    }

    /// The names of all buckets, sorted.
    pub(super) fn buckets(&self) -> io::Result<Vec<String>> {
        self.entries().map(|(buckets, _)| buckets)
    }

    /// The names of all buckets, sorted, and what else is in the folder.
    pub(super) fn entries(&self) -> io::Result<(Vec<String>, LeftOut)> {
        let mut left_out = LeftOut::default();
        if let Some(only) = &self.only {
            return Ok((vec![only.clone()], left_out));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = self.tree.open(Path::new(""), flags, Links::Shown)?;
        let mut names = Vec::new();
        for entry in Dir::new(root)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let bucket = name.to_str().ok().filter(|name| check_bucket_name(name));
            match (self.is_folder(Path::new(OsStr::from_bytes(name.to_bytes()))), bucket) {
                (true, Some(name)) => names.push(name.to_owned()),
                (true, None) => left_out.folders += 1,
                (false, _) => left_out.others += 1,
            }
        }
        names.sort();
        Ok((names, left_out))
    }

    fn is_folder(&self, path: &Path) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.tree.open(path, flags, Links::Followed).is_ok()
    }

    /// The path of a bucket that exists.
    pub(super) fn bucket(&self, bucket: &str) -> S3Result<PathBuf> {
        let path = self.bucket_path(bucket).filter(|path| self.is_folder(path));
        path.ok_or_else(|| s3_error!(NoSuchBucket, "there is no bucket {bucket}"))
    }

    fn bucket_path(&self, bucket: &str) -> Option<PathBuf> {
        match &self.only {
            Some(only) => (only == bucket).then(PathBuf::new),
            None => check_bucket_name(bucket).then(|| bucket.into()),
        }
    }

    /// The folder of a bucket, for writing. It must not be a link.
    fn bucket_to_write(&self, bucket: &str) -> S3Result<OwnedFd> {
        let path = self.bucket(bucket)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.tree.open(&path, flags, Links::Shown).map_err(|error| denied(error.into()))
    }

    /// Makes a bucket.
    pub(super) fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        match (self.bucket(bucket), &self.only) {
            (Ok(_), _) => Err(s3_error!(BucketAlreadyOwnedByYou)),
            (Err(_), Some(only)) => Err(s3_error!(AccessDenied, "{only} is the only bucket here")),
            (Err(_), None) => {
                let made = rustix::fs::mkdirat(self.tree.root(), bucket, FOLDER_MODE);
                made.map_err(|error| denied(error.into()))
            }
        }
    }

    /// Opens an object.
    pub(super) fn object(&self, bucket: &str, key: &str) -> S3Result<Found<File>> {
        let open = |path: PathBuf| {
            // So that a pipe does not make it wait.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = File::from(self.tree.open(&path, flags, Links::Followed)?);
            let metadata = file.metadata()?;
            Ok((file, metadata))
        };
        let path = self.bucket_path(bucket).and_then(|folder| below(&folder, key));
        match path.map(open) {
            Some(Ok((file, metadata))) if metadata.is_file() => Ok(Found::new(file, &metadata)),
            Some(Err(error)) if !is_absence(&error) => Err(denied(error)),
            _ => Err(self.missing(bucket, key)),
        }
    }

    fn missing(&self, bucket: &str, key: &str) -> S3Error {
        let missing = |_| s3_error!(NoSuchKey, "there is no object {key} in {bucket}");
        self.bucket(bucket).map_or_else(|error| error, missing)
    }

    /// Begins an object. Its content goes into a file beside the others until it is complete.
    pub(super) fn upload(&self, bucket: &str) -> S3Result<Upload> {
        let bucket = self.bucket_to_write(bucket)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let number = self.uploads.fetch_add(1, Ordering::Relaxed);
            let name = format!("{UPLOAD_PREFIX}{}-{number}", std::process::id());
            // The umask is taken from this.
            match rustix::fs::openat(&bucket, &name, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => return Ok(Upload { bucket, name, file: file.into() }),
                Err(Errno::EXIST) => {} // Left by a process that was killed.
                Err(error) => return Err(denied(error.into())),
            }
        }
    }

    /// Gives an upload the object's name, replacing an earlier object. Returns the ETag.
    pub(super) fn finish(&self, mut upload: Upload, key: &str) -> S3Result<String> {
        let wrong = || s3_error!(InvalidArgument, "{key:?} cannot be the path of a file");
        let path = below(Path::new(""), key).ok_or_else(wrong)?;
        let put = |upload: &mut Upload| {
            let (parents, name) = parents(&upload.bucket, &path, IfAbsent::Make)?;
            upload.flush()?;
            upload.file.set_times(FileTimes::new().set_modified(self.put_time()))?;
            let metadata = upload.file.metadata()?;
            let folder = parents.last().unwrap_or(&upload.bucket);
            rustix::fs::renameat(&upload.bucket, &upload.name, folder, name)?;
            Ok(Found::new((), &metadata).etag)
        };
        put(&mut upload).map_err(denied)
    }

    /// Now, or just after the last time that was given out.
    fn put_time(&self) -> SystemTime {
        let mut last = self.last_put.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *last = SystemTime::now().max(*last + Duration::from_nanos(1));
        *last
    }

    /// Removes an object, if it exists, and folders that become empty.
    pub(super) fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        let bucket = self.bucket_to_write(bucket)?;
        let Some(path) = below(Path::new(""), key) else { return Ok(()) };
        match remove(&bucket, &path) {
            Err(error)
                if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Err(denied(error))
            }
            _ => Ok(()),
        }
    }
}

/// The mode of new folders, from which the umask is taken.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

/// What to do about missing folders.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfAbsent {
    Make,
    Fail,
}

/// The folders between a bucket and an object, none of them a link, and the object's own name.
fn parents<'a>(
    bucket: &OwnedFd,
    path: &'a Path,
    if_absent: IfAbsent,
) -> io::Result<(Vec<OwnedFd>, &'a OsStr)> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let mut folders: Vec<OwnedFd> = Vec::new();
    for part in path.parent().unwrap_or(Path::new("")) {
        let folder = folders.last().unwrap_or(bucket);
        if if_absent == IfAbsent::Make {
            match rustix::fs::mkdirat(folder, part, FOLDER_MODE) {
                Err(Errno::EXIST) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (found, stat) = open_entry(folder, part)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => folders.push(found),
            FileType::Symlink => return Err(Errno::LOOP.into()),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok((folders, name))
}

fn remove(bucket: &OwnedFd, path: &Path) -> io::Result<()> {
    let (folders, name) = parents(bucket, path, IfAbsent::Fail)?;
    let folder = folders.last().unwrap_or(bucket);
    let stat = stat_entry(folder, name)?;
    if !matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Symlink) {
        return Ok(()); // It is no object.
    }
    rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    let names: Vec<&OsStr> = path.parent().unwrap_or(Path::new("")).iter().collect();
    for (depth, name) in names.iter().enumerate().rev() {
        let above = depth.checked_sub(1).map_or(bucket, |above| &folders[above]);
        if rustix::fs::unlinkat(above.as_fd(), *name, AtFlags::REMOVEDIR).is_err() {
            break;
        }
    }
    Ok(())
}

/// The path of the object `key`, or `None` if it cannot have one.
fn below(folder: &Path, key: &str) -> Option<PathBuf> {
    let good = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    let good = key.split('/').all(good) && !key.starts_with(UPLOAD_PREFIX);
    good.then(|| folder.join(key))
}

/// Whether the error means that there is no such file. A path that leads outside counts as missing.
fn is_absence(error: &io::Error) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::InvalidFilename];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENXIO) || leads_away(error)
}

/// Whether the error means that a path leads out of the folder, in a circle, or into a mount of foretell.
fn leads_away(error: &io::Error) -> bool {
    let away = [Errno::XDEV, Errno::LOOP, REFUSED].map(|error| Some(error.raw_os_error()));
    away.contains(&error.raw_os_error())
}

/// The system's error as an error of S3.
pub(super) fn denied(error: io::Error) -> S3Error {
    let message = error.to_string();
    match error.kind() {
        _ if leads_away(&error) => {
            s3_error!(error, AccessDenied, "nothing is written through a link: {message}")
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            s3_error!(error, AccessDenied, "{message}")
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            let what = "a file cannot lie below another file or be a folder";
            s3_error!(error, InvalidArgument, "{message}: {what}")
        }
        ErrorKind::InvalidFilename => s3_error!(error, KeyTooLongError, "{message}"),
        _ => s3_error!(error, InternalError, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_below_their_bucket() {
        let folder = Path::new("/data/bucket");
        for key in ["a", "a/b c/d", "..a/b..", "ä"] {
            assert_eq!(below(folder, key), Some(folder.join(key)));
        }
        for key in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", "a\0b"] {
            assert_eq!(below(folder, key), None, "{key:?}");
        }
        assert_eq!(below(folder, ".foretell-upload-x"), None);
    }

    #[test]
    fn every_put_has_a_time_of_its_own() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(temporary.path(), Some("bucket")).expect("opens");
        let times: Vec<_> = (0..1000).map(|_| folder.put_time()).collect();
        assert!(times.is_sorted_by(|a, b| a < b));
    }
}
