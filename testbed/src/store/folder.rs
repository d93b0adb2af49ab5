//! Buckets and objects in terms of folders and files.
//!
//! A bucket is a folder, an object a regular file below it, its key the file's path from there. What
//! cannot be both is not there: keys with empty parts, `.` or `..`, names that are not UTF-8.
//! Symbolic links are followed for reading; nothing is written through one to somewhere outside.
//!
//! An object's ETag is made of its file's inode, length and time of modification: it costs nothing,
//! is the same in every process, and changes with every PUT here, which makes a new file with a time of
//! its own. Whoever changes a file in place twice within one tick of the kernel's clock can have the same ETag
//! for both.

use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use s3s::path::check_bucket_name;
use s3s::{S3Error, S3Result, s3_error};
use tempfile::NamedTempFile;

use super::error::StoreError;

/// What the names of uploads under way begin with; they are no objects.
pub(super) const UPLOAD_PREFIX: &str = ".foretell-upload-";

/// The folder that is served.
pub(super) struct Folder {
    root: PathBuf,
    /// The folder itself is the bucket of this name.
    only: Option<String>,
    last_put: Mutex<SystemTime>,
}

/// An object that was opened, or looked at.
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
    /// The folder at `path`, with its sub-folders as buckets or itself as the bucket `only`.
    pub(super) fn open(path: &Path, only: Option<&str>) -> Result<Self, StoreError> {
        let wrong = |source| StoreError::Folder { path: path.to_owned(), source };
        let root = path.canonicalize().map_err(wrong)?;
        fs::read_dir(&root).map_err(wrong)?;
        let folder = Folder {
            root,
            only: only.map(str::to_owned),
            last_put: Mutex::new(SystemTime::UNIX_EPOCH),
        };
        if folder.buckets().map_err(wrong)?.is_empty() {
            return Err(StoreError::NoBucket { path: path.to_owned() });
        }
        Ok(folder)
    }

    /// The names of all buckets, sorted.
    pub(super) fn buckets(&self) -> io::Result<Vec<String>> {
        if let Some(only) = &self.only {
            return Ok(vec![only.clone()]);
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if check_bucket_name(&name) && entry.path().is_dir() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The folder of a bucket that is there.
    pub(super) fn bucket(&self, bucket: &str) -> S3Result<PathBuf> {
        let path = self.bucket_path(bucket).filter(|path| path.is_dir());
        path.ok_or_else(|| s3_error!(NoSuchBucket, "there is no bucket {bucket}"))
    }

    fn bucket_path(&self, bucket: &str) -> Option<PathBuf> {
        match &self.only {
            Some(only) => (only == bucket).then(|| self.root.clone()),
            None => check_bucket_name(bucket).then(|| self.root.join(bucket)),
        }
    }

    /// Makes a bucket.
    pub(super) fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        match (self.bucket(bucket), &self.only) {
            (Ok(_), _) => Err(s3_error!(BucketAlreadyOwnedByYou)),
            (Err(_), Some(only)) => Err(s3_error!(AccessDenied, "{only} is the only bucket here")),
            (Err(_), None) => fs::create_dir(self.root.join(bucket)).map_err(denied),
        }
    }

    /// Opens an object.
    pub(super) fn object(&self, bucket: &str, key: &str) -> S3Result<Found<File>> {
        let open = |path: PathBuf| {
            // Not to wait for whoever writes into a pipe.
            let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
            let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
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

    /// Begins an object, whose content goes into a file beside the others until it is complete.
    pub(super) fn upload(&self, bucket: &str) -> S3Result<NamedTempFile> {
        let folder = self.bucket(bucket)?;
        let mut builder = tempfile::Builder::new();
        // Less what the umask takes.
        builder.prefix(UPLOAD_PREFIX).permissions(fs::Permissions::from_mode(0o666));
        builder.tempfile_in(folder).map_err(denied)
    }

    /// Gives an upload the object's name, in place of what had it. Returns the ETag.
    pub(super) fn finish(
        &self,
        mut upload: NamedTempFile,
        bucket: &str,
        key: &str,
    ) -> S3Result<String> {
        let folder = self.bucket(bucket)?;
        let wrong = || s3_error!(InvalidArgument, "{key:?} cannot be the path of a file");
        let path = below(&folder, key).ok_or_else(wrong)?;
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(denied)?;
        self.assert_within(parent, &folder)?;
        upload.flush().map_err(denied)?;
        upload
            .as_file()
            .set_times(FileTimes::new().set_modified(self.put_time()))
            .map_err(denied)?;
        let metadata = upload.as_file().metadata().map_err(denied)?;
        upload.persist(&path).map_err(|error| denied(error.error))?;
        Ok(Found::new((), &metadata).etag)
    }

    /// Now, or a moment after the last time that was given out.
    fn put_time(&self) -> SystemTime {
        let mut last = self.last_put.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *last = SystemTime::now().max(*last + Duration::from_nanos(1));
        *last
    }

    /// Removes an object, if it is there, and the folders that are empty without it.
    pub(super) fn delete(&self, bucket: &str, key: &str) -> S3Result<()> {
        let folder = self.bucket(bucket)?;
        let Some(path) = below(&folder, key).filter(|path| path.is_file()) else { return Ok(()) };
        self.assert_within(path.parent().unwrap_or(&folder), &folder)?;
        match fs::remove_file(&path) {
            Err(error) if !is_absence(&error) => return Err(denied(error)),
            _ => {}
        }
        for parent in path.ancestors().skip(1).take_while(|parent| *parent != folder) {
            if fs::remove_dir(parent).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn assert_within(&self, path: &Path, folder: &Path) -> S3Result<()> {
        let (path, folder) = (path.canonicalize(), folder.canonicalize());
        match (path.map_err(denied)?, folder.map_err(denied)?) {
            (path, folder) if path.starts_with(&folder) => Ok(()),
            (path, _) => Err(s3_error!(AccessDenied, "{} is not in the bucket", path.display())),
        }
    }
}

/// The path of the object `key`, if it can have one.
fn below(folder: &Path, key: &str) -> Option<PathBuf> {
    let good = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    let good = key.split('/').all(good) && !key.starts_with(UPLOAD_PREFIX);
    good.then(|| folder.join(key))
}

/// Whether there is no such file, whatever the reason.
fn is_absence(error: &io::Error) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::InvalidFilename];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENXIO)
}

/// What the system did not do, as S3 says it.
pub(super) fn denied(error: io::Error) -> S3Error {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            s3_error!(error, AccessDenied, "{message}")
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            let what = "a file cannot lie below another, nor be a folder";
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
