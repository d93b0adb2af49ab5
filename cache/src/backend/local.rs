//! Local files: a folder, and its names. What becomes of files when they are open is in `files`.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, Mode, OFlags, StatVfs};
use rustix::io::Errno;

use super::beneath::{self, Beneath, Links};
use super::files::{Identity, LocalFile, OpenFile, Readers};
use super::uring::Ring;
use super::{Backend, BackendError, Entry, FileInfo, Found, Listing, Opened, Whole};

/// Requests at once, unless somebody says how many: what keeps a solid-state disk busy, and no disk too long.
const DEPTH: usize = 32;

/// Where the names of a folder lead.
pub(super) enum Reach {
    /// Wherever links lead: for a program that could open those files itself.
    Anywhere(PathBuf),
    /// Nowhere but below: links are themselves.
    Beneath(Beneath),
}

impl Reach {
    /// Opens what is at `place` below the folder.
    pub(super) fn open(&self, place: &Path, flags: OFlags) -> Result<OwnedFd, BackendError> {
        let opened = match self {
            Reach::Anywhere(root) => {
                rustix::fs::open(root.join(place), flags | OFlags::CLOEXEC, Mode::empty())
            }
            Reach::Beneath(folder) => {
                return folder.open(place, flags, Links::Shown).map_err(of_beneath);
            }
        };
        Ok(opened.map_err(io::Error::from)?)
    }
}

/// An error of a name that is resolved below the folder.
fn of_beneath(error: Errno) -> BackendError {
    match error {
        // It was a folder, or a file, when it was found.
        Errno::LOOP => BackendError::Changed,
        beneath::REFUSED => {
            let message = "a mount of foretell is there, which is not shown in another".into();
            BackendError::Other { errno: Some(Errno::LOOP.raw_os_error()), message }
        }
        error => io::Error::from(error).into(),
    }
}

/// A folder, and what reads its files.
pub struct LocalBackend {
    readers: Arc<Readers>,
}

impl fmt::Debug for LocalBackend {
    /// Says what reads, and why not a ring.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads_by = match self.without_ring() {
            None => "io_uring".to_owned(),
            Some(why) => format!("threads ({why})"),
        };
        let root: &dyn fmt::Debug = match &self.readers.reach {
            Reach::Anywhere(root) => root,
            Reach::Beneath(folder) => folder,
        };
        f.debug_struct("LocalBackend").field("root", &root).field("reads_by", &reads_by).finish()
    }
}

impl LocalBackend {
    /// The files below `root`, read by io_uring where that can be had, and else by threads; so many requests at once,
    /// or as many as there are descriptors for. Links are followed wherever they lead, with the rights of this process.
    ///
    /// # Errors
    /// That `root` is not a folder.
    pub fn new(root: impl Into<PathBuf>, depth: Option<usize>) -> io::Result<Self> {
        let reach = Reach::Anywhere(root.into());
        Self::with(reach, depth.unwrap_or(DEPTH), || Some(Ring::new()))
    }

    /// The same, confined to what lies below `root`: for servers, whose clients have other rights. Links are [shown](Found::Link) as links, and
    /// [mounts of foretell](beneath) are not entered. It is the folder that `root` stands for now, whatever is put in its place.
    ///
    /// # Errors
    /// That `root` is not a folder.
    pub fn beneath(root: &Path, depth: Option<usize>) -> io::Result<Self> {
        let reach = Reach::Beneath(Beneath::new(root)?);
        Self::with(reach, depth.unwrap_or(DEPTH), || Some(Ring::new()))
    }

    /// The files below `root`, read by so many threads.
    ///
    /// # Errors
    /// That `root` is not a folder.
    pub fn blocking(root: impl Into<PathBuf>, threads: usize) -> io::Result<Self> {
        Self::with(Reach::Anywhere(root.into()), threads, || None)
    }

    fn with(
        reach: Reach,
        depth: usize,
        ring: impl FnOnce() -> Option<io::Result<Ring>>,
    ) -> io::Result<Self> {
        if let Reach::Anywhere(root) = &reach
            && !std::fs::metadata(root)?.is_dir()
        {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(LocalBackend { readers: Arc::new(Readers::new(reach, ring(), depth)) })
    }

    /// Why io_uring is not used; `None` if it is. Files on which its reads would wait are read by threads all the same.
    pub fn without_ring(&self) -> Option<String> {
        match &self.readers.ring {
            Some(Ok(_)) => None,
            Some(Err(error)) => Some(error.to_string()),
            None => Some("threads were asked for".to_owned()),
        }
    }
}

impl Drop for LocalBackend {
    /// Requests that have not begun fail as lost; files may be open longer.
    fn drop(&mut self) {
        self.readers.close();
    }
}

impl LocalBackend {
    /// Where the file at `path` is below the folder: names lead nowhere but down.
    fn place<P: AsRef<Path> + ?Sized>(path: &P) -> Result<&Path, BackendError> {
        let path = path.as_ref();
        match path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            true => Ok(path),
            false => Err(BackendError::NotFound),
        }
    }

    /// What there is at a place, if it is shown.
    fn found(&self, place: &Path) -> Result<Option<Found>, BackendError> {
        match &self.readers.reach {
            Reach::Anywhere(root) => Ok(found_at(&root.join(place))?),
            reach @ Reach::Beneath(_) => {
                let (_, metadata) = itself(reach, place)?;
                Ok(found(metadata.mode(), &Identity::of(&metadata)))
            }
        }
    }

    /// As [`open`](Backend::open), of a path that need not be UTF-8.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_path(&self, path: &Path) -> Result<Opened, BackendError> {
        let place = Self::place(path)?;
        let (file, metadata) = self.readers.open(place)?;
        self.opened(place, file, &metadata)
    }

    /// The part of a file's version that is the same on all machines that share the file system: all but the device's number.
    pub fn shared_version(version: &[u8]) -> &[u8] {
        version.get(Identity::DEVICE_BYTES..).unwrap_or(version)
    }

    /// A file that is open, and whose bytes may change while it is: whoever opens it says when
    /// ([`File::changed`](crate::File::changed)). Its version is what it is now; reads are made of what there is, and fail as
    /// [`Changed`](BackendError::Changed) if there is less than was told.
    pub fn open_changing(&self, file: File, version: Arc<[u8]>, size_bytes: u64) -> Opened {
        let object = OpenFile::changing(file, size_bytes, &self.readers);
        Opened { version, size_bytes, object }
    }

    /// Whether there are descriptors to spare for another such file, for somebody who can do without it.
    pub fn can_hold_more(&self) -> bool {
        self.readers.can_hold_more()
    }

    fn opened(
        &self,
        place: &Path,
        file: File,
        metadata: &Metadata,
    ) -> Result<Opened, BackendError> {
        let identity = Identity::of(metadata);
        let object = LocalFile::opened(place.to_owned(), file, metadata, &self.readers)?;
        Ok(Opened { version: identity.version(), size_bytes: metadata.len(), object })
    }
}

fn info(identity: &Identity) -> FileInfo {
    FileInfo {
        size_bytes: identity.size_bytes(),
        modified: Some(identity.modified()),
        tag: Some(identity.tag()),
    }
}

/// What has this mode, if it is shown.
fn found(mode: u32, identity: &Identity) -> Option<Found> {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Some(Found::Folder),
        FileType::RegularFile => Some(Found::File(info(identity))),
        FileType::Symlink => Some(Found::Link(info(identity))),
        _ => None,
    }
}

/// What a path leads to, if it is shown.
fn found_at(path: &Path) -> io::Result<Option<Found>> {
    let metadata = std::fs::metadata(path)?;
    Ok(found(metadata.mode(), &Identity::of(&metadata)))
}

/// What an open folder has by a name, if it is shown.
fn found_entry(folder: &OwnedFd, name: &str, kind: FileType) -> Option<Found> {
    match beneath::stat_entry(folder, name.as_ref()) {
        Ok(stat) => found(stat.st_mode, &Identity::of_stat(&stat)),
        // Whoever looks into it is told.
        Err(beneath::REFUSED) if kind == FileType::Directory => Some(Found::Folder),
        Err(_) => None,
    }
}

/// What is at a place itself, a link if it is one.
fn itself(reach: &Reach, place: &Path) -> Result<(File, Metadata), BackendError> {
    let file = File::from(reach.open(place, OFlags::PATH | OFlags::NOFOLLOW)?);
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

impl Backend for LocalBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        self.open_path(Path::new(path))
    }

    /// A file is opened by its name, so it may be another by now: that is told at once.
    fn open_found(&self, path: &str, wanted: &FileInfo) -> Result<Opened, BackendError> {
        let place = Self::place(path)?;
        let (file, metadata) = self.readers.open(place)?;
        match info(&Identity::of(&metadata)) == *wanted {
            true => self.opened(place, file, &metadata),
            false => Err(BackendError::Changed),
        }
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        self.found(Self::place(path)?)?.ok_or(BackendError::NotFound)
    }

    /// What is neither file, folder nor a link that is shown, links that are followed and lead nowhere, and names that are not
    /// UTF-8 are left out.
    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        let place = Self::place(path)?;
        let folder = self.readers.reach.open(place, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder).map_err(io::Error::from)? {
            let entry = entry.map_err(io::Error::from)?;
            let name = match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => continue,
                Ok(name) => name.to_owned(),
            };
            let found = match &self.readers.reach {
                Reach::Anywhere(root) => found_at(&root.join(place).join(&name)).ok().flatten(),
                Reach::Beneath(_) => found_entry(&folder, &name, entry.file_type()),
            };
            if let Some(found) = found {
                entries.push(Entry { name, found });
            }
        }
        Ok(Box::new(Whole::new(entries)))
    }

    fn read_link(&self, path: &str, link: &FileInfo) -> Result<PathBuf, BackendError> {
        let (file, metadata) = itself(&self.readers.reach, Self::place(path)?)?;
        if !metadata.is_symlink() || info(&Identity::of(&metadata)) != *link {
            return Err(BackendError::Changed);
        }
        let target = rustix::fs::readlinkat(&file, "", Vec::new()).map_err(io::Error::from)?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// That of the file system which the folder lies on.
    fn space(&self) -> Result<Option<StatVfs>, BackendError> {
        let space = match &self.readers.reach {
            Reach::Anywhere(root) => rustix::fs::statvfs(root),
            Reach::Beneath(folder) => rustix::fs::fstatvfs(folder.root()),
        };
        Ok(Some(space.map_err(io::Error::from)?))
    }

    fn depth(&self) -> usize {
        self.readers.depth
    }
}

#[cfg(test)]
mod tests;
