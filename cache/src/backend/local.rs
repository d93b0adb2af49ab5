//! Local files: a folder, its names and versions, and what reads them.
//!
//! The version is inode, size, mtime and ctime, as they are at `open`; whoever reads compares them again when
//! the bytes are there, so that what is served as a version was that version's until then.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::blocking::Threads;
use super::direct::{Direct, can_decline_to_wait};
use super::uring::Ring;
use super::{
    Backend, BackendError, Entry, FileInfo, Found, Listing, Object, Opened, Request, Whole,
};

/// Requests at once, unless somebody says how many: what keeps a solid-state disk busy, and no disk too long.
const DEPTH: usize = 32;

/// A folder, and what reads its files.
pub struct LocalBackend {
    root: PathBuf,
    readers: Arc<Readers>,
    depth: usize,
}

impl fmt::Debug for LocalBackend {
    /// Says what reads, and why not a ring.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads_by = match self.without_ring() {
            None => "io_uring".to_owned(),
            Some(why) => format!("threads ({why})"),
        };
        f.debug_struct("LocalBackend")
            .field("root", &self.root)
            .field("reads_by", &reads_by)
            .finish()
    }
}

impl LocalBackend {
    /// The files below `root`, read by io_uring where that can be had, and else by threads; so many requests at once.
    ///
    /// # Errors
    /// That `root` is not a folder.
    pub fn new(root: impl Into<PathBuf>, depth: Option<usize>) -> io::Result<Self> {
        Self::with(root.into(), depth.unwrap_or(DEPTH), || Some(Ring::new()))
    }

    /// The files below `root`, read by so many threads.
    ///
    /// # Errors
    /// That `root` is not a folder.
    pub fn blocking(root: impl Into<PathBuf>, threads: usize) -> io::Result<Self> {
        Self::with(root.into(), threads, || None)
    }

    fn with(
        root: PathBuf,
        depth: usize,
        ring: impl FnOnce() -> Option<io::Result<Ring>>,
    ) -> io::Result<Self> {
        if !std::fs::metadata(&root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let depth = depth.max(1);
        let readers = Arc::new(Readers { ring: ring(), threads: Threads::new(depth) });
        Ok(LocalBackend { root, readers, depth })
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
        if let Some(Ok(ring)) = &self.readers.ring {
            ring.close();
        }
        self.readers.threads.close();
    }
}

/// What reads files.
struct Readers {
    /// Or why there is none; `None` if it was not asked for.
    ring: Option<io::Result<Ring>>,
    threads: Threads,
}

/// How a file is read.
enum Way {
    /// By the ring, and past the page cache if that can be done.
    Ring(Option<Direct>),
    Threads,
}

/// What makes a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity([u64; 7]);

impl Identity {
    fn of(found: &Metadata) -> Self {
        Identity([
            found.dev(),
            found.ino(),
            found.size(),
            found.mtime() as u64,
            found.mtime_nsec() as u64,
            found.ctime() as u64,
            found.ctime_nsec() as u64,
        ])
    }

    fn size_bytes(&self) -> u64 {
        self.0[2]
    }

    /// As a store's own name of a version.
    fn tag(&self) -> Arc<str> {
        let words: Vec<String> = self.0.iter().map(|word| format!("{word:x}")).collect();
        words.join(".").into()
    }
}

/// One version of a file, open.
pub(super) struct LocalFile {
    pub(super) file: File,
    identity: Identity,
    readers: Arc<Readers>,
    /// Found out with the first read.
    way: OnceLock<Way>,
}

impl LocalFile {
    /// Whether it still is the version that was opened. May wait where the file system is on another machine.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        match Identity::of(&self.file.metadata()?) == self.identity {
            true => Ok(()),
            false => Err(BackendError::Changed),
        }
    }

    /// How it is read past the page cache.
    pub(super) fn direct(&self) -> Option<&Direct> {
        match self.way() {
            Way::Ring(direct) => direct.as_ref(),
            Way::Threads => None,
        }
    }

    fn way(&self) -> &Way {
        self.way.get_or_init(|| match can_decline_to_wait(&self.file, self.identity.size_bytes()) {
            true => Way::Ring(Direct::of(&self.file)),
            false => Way::Threads,
        })
    }

    /// What is left of the request.
    pub(super) fn read_by_thread(self: Arc<Self>, request: Request) {
        let readers = Arc::clone(&self.readers);
        readers.threads.start(self, request);
    }
}

impl Object for LocalFile {
    fn start(self: Arc<Self>, request: Request) {
        let readers = Arc::clone(&self.readers);
        match &readers.ring {
            Some(Ok(ring)) if matches!(self.way(), Way::Ring(_)) => ring.start(self, request),
            _ => self.read_by_thread(request),
        }
    }
}

impl LocalBackend {
    /// Where the file at `path` is: names lead nowhere but down; links may.
    fn place(&self, path: &str) -> Result<PathBuf, BackendError> {
        let path = Path::new(path);
        match path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            true => Ok(self.root.join(path)),
            false => Err(BackendError::NotFound),
        }
    }

    fn open_path(&self, path: &str) -> Result<File, BackendError> {
        let path = self.place(path)?;
        // It does not wait for a writer if it is a pipe.
        let flags =
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
        let mode = rustix::fs::Mode::empty();
        let file = rustix::fs::open(path, flags, mode).map_err(io::Error::from)?;
        Ok(File::from(file))
    }

    fn opened(&self, file: File, metadata: &Metadata) -> Result<Opened, BackendError> {
        let object = self.local_file(file, metadata)?;
        let words = object.identity.0.iter();
        let version: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        let size_bytes = metadata.len();
        Ok(Opened { version: version.into(), size_bytes, object: Arc::new(object) })
    }

    fn local_file(&self, file: File, metadata: &Metadata) -> Result<LocalFile, BackendError> {
        if metadata.is_dir() {
            return Err(io::Error::from(Errno::ISDIR).into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file").into());
        }
        let (identity, readers) = (Identity::of(metadata), Arc::clone(&self.readers));
        Ok(LocalFile { file, identity, readers, way: OnceLock::new() })
    }
}

fn info(metadata: &Metadata) -> FileInfo {
    FileInfo {
        size_bytes: metadata.len(),
        modified: metadata.modified().ok(),
        tag: Some(Identity::of(metadata).tag()),
    }
}

fn found(path: &Path) -> io::Result<Option<Found>> {
    let metadata = std::fs::metadata(path)?;
    Ok(if metadata.is_dir() {
        Some(Found::Folder)
    } else if metadata.is_file() {
        Some(Found::File(info(&metadata)))
    } else {
        None
    })
}

impl Backend for LocalBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        let file = self.open_path(path)?;
        let metadata = file.metadata()?;
        self.opened(file, &metadata)
    }

    /// A file is opened by its name, so it may be another by now: that is told at once.
    fn open_found(&self, path: &str, wanted: &FileInfo) -> Result<Opened, BackendError> {
        let file = self.open_path(path)?;
        let metadata = file.metadata()?;
        match info(&metadata) == *wanted {
            true => self.opened(file, &metadata),
            false => Err(BackendError::Changed),
        }
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        found(&self.place(path)?)?.ok_or(BackendError::NotFound)
    }

    /// Links that lead nowhere, what is neither file nor folder, and names that are not UTF-8 are left out.
    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.place(path)?)? {
            let entry = entry?;
            if let (Ok(name), Ok(Some(found))) =
                (entry.file_name().into_string(), found(&entry.path()))
            {
                entries.push(Entry { name, found });
            }
        }
        Ok(Box::new(Whole::new(entries)))
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

#[cfg(test)]
mod tests;
