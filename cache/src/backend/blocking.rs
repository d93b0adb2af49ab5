//! Local files, read by threads that wait.
//!
//! The version is inode, size, mtime and ctime, as they are at `open`; a read compares them again after it
//! has the bytes, so that what is served as a version was that version's until then. Files that change while they are
//! open ([`open_changing`](BlockingBackend::open_changing)) are read as they are.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::io::Errno;

use super::{
    Backend, BackendError, Entry, FileInfo, Found, Listing, Object, Opened, Request, Whole,
};

/// Pieces of memory of one `preadv`: the system's limit.
const PIECES_MAX: usize = 1024;

#[derive(Default)]
struct Queue {
    demand: VecDeque<(Arc<LocalFile>, Request)>,
    ahead: VecDeque<(Arc<LocalFile>, Request)>,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    is_more: Condvar,
}

/// A folder, and threads that read its files.
pub struct BlockingBackend {
    root: PathBuf,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for BlockingBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockingBackend").field("root", &self.root).finish_non_exhaustive()
    }
}

impl BlockingBackend {
    /// The files below `root`, read by so many threads.
    ///
    /// # Errors
    /// That `root` is not a folder, or no thread can be made.
    pub fn new(root: impl Into<PathBuf>, threads: usize) -> io::Result<Self> {
        let root = root.into();
        if !std::fs::metadata(&root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let mut backend = BlockingBackend { root, shared: Arc::default(), threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&backend.shared);
            let name = "foretell-read".to_owned();
            let thread = std::thread::Builder::new().name(name).spawn(move || shared.serve())?;
            backend.threads.push(thread);
        }
        Ok(backend)
    }
}

impl Drop for BlockingBackend {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.is_more.notify_all();
        for thread in self.threads.drain(..) {
            // One of them may be who drops this. Requests that it has not begun fail as lost.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        let left = {
            let mut queue = self.shared.lock(); // It stays closed.
            (std::mem::take(&mut queue.demand), std::mem::take(&mut queue.ahead))
        };
        drop(left);
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let mut queue = self.lock();
            let (file, mut request) = loop {
                if queue.is_closed {
                    return;
                }
                if let Some(next) = queue.demand.pop_front() {
                    break next;
                }
                if let Some(next) = queue.ahead.pop_front() {
                    break next;
                }
                queue = self.is_more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            let result = file.read(&mut request);
            request.complete(result);
        }
    }
}

/// What makes a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity([u64; 7]);

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

    /// As a store's own name of a version.
    fn tag(&self) -> Arc<str> {
        let words: Vec<String> = self.0.iter().map(|word| format!("{word:x}")).collect();
        words.join(".").into()
    }
}

struct LocalFile {
    file: File,
    /// None if it is of no one version.
    identity: Option<Identity>,
    shared: Arc<Shared>,
}

impl LocalFile {
    fn read(&self, request: &mut Request) -> Result<(), BackendError> {
        while request.filled() < request.length() {
            let at = request.offset_bytes() + request.filled() as u64;
            let mut left = request.unfilled();
            let read = match left.as_mut_slice() {
                [only] => self.file.read_at(only, at),
                several => {
                    let pieces = several.iter_mut().take(PIECES_MAX);
                    let mut pieces: Vec<IoSliceMut> =
                        pieces.map(|piece| IoSliceMut::new(piece)).collect();
                    rustix::io::preadv(&self.file, &mut pieces, at).map_err(io::Error::from)
                }
            };
            match read {
                Ok(0) => break, // Shorter than it was.
                Ok(count) => request.advance(count),
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.identity {
            Some(identity) if identity != Identity::of(&self.file.metadata()?) => {
                Err(BackendError::Changed)
            }
            _ => Ok(()),
        }
    }
}

impl BlockingBackend {
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

    /// A file that is open, and whose bytes may change while it is: whoever opens it says when ([`File::changed`](crate::File::changed)). Its
    /// version is what it is now; reads are made of what there is, and fail as [`Changed`](BackendError::Changed) if there is less than
    /// was told.
    pub fn open_changing(&self, file: File, version: Arc<[u8]>, size_bytes: u64) -> Opened {
        let object = LocalFile { file, identity: None, shared: Arc::clone(&self.shared) };
        Opened { version, size_bytes, object: Arc::new(object) }
    }

    fn opened(&self, file: File, metadata: &Metadata) -> Result<Opened, BackendError> {
        if metadata.is_dir() {
            return Err(io::Error::from(Errno::ISDIR).into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file").into());
        }
        let identity = Identity::of(metadata);
        let version: Vec<u8> = identity.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let identity = Some(identity);
        let object = LocalFile { file, identity, shared: Arc::clone(&self.shared) };
        let size_bytes = metadata.len();
        Ok(Opened { version: version.into(), size_bytes, object: Arc::new(object) })
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

impl Backend for BlockingBackend {
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
        self.threads.len()
    }
}

impl Object for LocalFile {
    fn start(self: Arc<Self>, request: Request) {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.lock();
        if queue.is_closed {
            drop(queue);
            return drop(request);
        }
        match request.is_demand() {
            true => queue.demand.push_back((self, request)),
            false => queue.ahead.push_back((self, request)),
        }
        drop(queue);
        shared.is_more.notify_one();
    }
}
