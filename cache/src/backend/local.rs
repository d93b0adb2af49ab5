//! Local files: the names of a folder. `files` has the open files.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, OFlags, StatVfs};

use super::beneath::{self, Beneath};
use super::files::{Identity, LocalFile, OpenFile, Readers};
use super::reach::Reach;
use super::uring::Ring;
use super::{Backend, BackendError, Entry, FileInfo, Found, Kind, Listing, Opened, Whole};

/// Local folders. They are not opened by address, since the caller has to decide [how far](LocalBackend::beneath) links
/// may lead.
pub(super) const KIND: Kind = Kind { name: "local", by_address: None, worlds: world::worlds };

/// Default number of requests at once: it keeps a solid-state disk busy, and the queue of any disk short.
const DEPTH: usize = 32;

/// A folder, and the readers of its files.
pub struct LocalBackend {
    readers: Arc<Readers>,
}

impl fmt::Debug for LocalBackend {
    /// Tells whether io_uring or threads read, and why not io_uring.
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
    /// The files below `root`, read by io_uring if it is available, otherwise by threads. At most `depth` requests are
    /// in flight (default 32), fewer if descriptors are short. Links are followed anywhere, with the rights of this
    /// process.
    ///
    /// # Errors
    /// If `root` is not a folder.
    pub fn new(root: impl Into<PathBuf>, depth: Option<usize>) -> io::Result<Self> {
        let reach = Reach::Anywhere(root.into());
        Self::with(reach, depth.unwrap_or(DEPTH), || Some(Ring::new()))
    }

    /// As `new`, but confined to files below `root`: for servers, whose clients have other rights. Links are
    /// [shown](Found::Link) as links, and [mounts of foretell](beneath) are not entered. The back end stays with the
    /// folder that `root` names now, even if another takes its place.
    ///
    /// # Errors
    /// If `root` is not a folder.
    pub fn beneath(root: &Path, depth: Option<usize>) -> io::Result<Self> {
        let reach = Reach::Beneath(Beneath::new(root)?);
        Self::with(reach, depth.unwrap_or(DEPTH), || Some(Ring::new()))
    }

    /// The files below `root`, read by up to `threads` threads.
    ///
    /// # Errors
    /// If `root` is not a folder.
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

    /// Why io_uring is not used; `None` if it is. Even then, threads read files on which its reads would block.
    pub fn without_ring(&self) -> Option<String> {
        match &self.readers.ring {
            Some(Ok(_)) => None,
            Some(Err(error)) => Some(error.to_string()),
            None => Some("threads were asked for".to_owned()),
        }
    }
}

impl Drop for LocalBackend {
    /// Requests that have not begun fail as lost. Files may stay open longer.
    fn drop(&mut self) {
        self.readers.close();
    }
}

impl LocalBackend {
    /// Checks that `path` leads only down from the folder.
    fn place<P: AsRef<Path> + ?Sized>(path: &P) -> Result<&Path, BackendError> {
        let path = path.as_ref();
        match path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            true => Ok(path),
            false => Err(BackendError::NotFound),
        }
    }

    /// What there is at a place; `None` for kinds of files that are not shown.
    fn found(&self, place: &Path) -> Result<Option<Found>, BackendError> {
        match &self.readers.reach {
            Reach::Anywhere(root) => Ok(found_at(&root.join(place))?),
            reach @ Reach::Beneath(_) => {
                let (_, metadata) = itself(reach, place)?;
                Ok(found(metadata.mode(), &Identity::of(&metadata)))
            }
        }
    }

    /// As [`open`](Backend::open), for a path that need not be UTF-8.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_path(&self, path: &Path) -> Result<Opened, BackendError> {
        let place = Self::place(path)?;
        let (file, metadata) = self.readers.open(place)?;
        self.opened(place, file, &metadata)
    }

    /// The part of a file's version that is the same on all machines that share the file system: it lacks the device's number.
    pub fn shared_version(version: &[u8]) -> &[u8] {
        version.get(Identity::DEVICE_BYTES..).unwrap_or(version)
    }

    /// An open file whose bytes may change while it is open. The caller has to report changes
    /// ([`File::changed`](crate::File::changed)). `version` is the version at this time. Reads return the bytes that
    /// are there, and fail as [`Changed`](BackendError::Changed) if the file is shorter than was told.
    pub fn open_changing(&self, file: File, version: Arc<[u8]>, size_bytes: u64) -> Opened {
        let object = OpenFile::changing(file, size_bytes, &self.readers);
        Opened { version, is_exact: false, size_bytes, object }
    }

    /// Whether there are descriptors to spare for another changing file. A caller that has another way should ask.
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
        let (version, size_bytes) = (identity.version(), metadata.len());
        Ok(Opened { version, is_exact: false, size_bytes, object })
    }
}

fn info(identity: &Identity) -> FileInfo {
    FileInfo {
        size_bytes: identity.size_bytes(),
        modified: Some(identity.modified()),
        tag: Some(identity.tag()),
    }
}

/// What a file of this mode is; `None` for kinds that are not shown.
fn found(mode: u32, identity: &Identity) -> Option<Found> {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Some(Found::Folder),
        FileType::RegularFile => Some(Found::File(info(identity))),
        FileType::Symlink => Some(Found::Link(info(identity))),
        _ => None,
    }
}

/// What a path leads to; `None` for kinds that are not shown.
fn found_at(path: &Path) -> io::Result<Option<Found>> {
    let metadata = std::fs::metadata(path)?;
    Ok(found(metadata.mode(), &Identity::of(&metadata)))
}

/// What an open folder has by a name; `None` for kinds that are not shown.
fn found_entry(folder: &OwnedFd, name: &str, kind: FileType) -> Option<Found> {
    match beneath::stat_entry(folder, name.as_ref()) {
        Ok(stat) => found(stat.st_mode, &Identity::of_stat(&stat)),
        // A mount of foretell: opening the folder will fail with the reason.
        Err(beneath::REFUSED) if kind == FileType::Directory => Some(Found::Folder),
        Err(_) => None,
    }
}

/// Opens what is at a place without following a link.
fn itself(reach: &Reach, place: &Path) -> Result<(File, Metadata), BackendError> {
    let file = File::from(reach.open(place, OFlags::PATH | OFlags::NOFOLLOW)?);
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

impl Backend for LocalBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        self.open_path(Path::new(path))
    }

    /// The file is opened by its name, so a change since it was found is noticed at once.
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

    /// Left out are names that are not UTF-8, files of other kinds than regular files, folders and links, and dangling
    /// links if links are followed.
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

    /// The space of the file system that holds the folder.
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
mod world;
