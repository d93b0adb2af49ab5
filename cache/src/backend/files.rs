//! Files of a folder: their versions, their descriptors, and how they are read.
//!
//! **Versions.** A version is device, inode, size, mtime and ctime at `open`. They are compared again after each read,
//! so bytes are served only if the file was still that version when they had been read.
//!
//! **Descriptors.** More files can be open than the process has descriptors. A [`LocalFile`] keeps an [`OpenFile`]
//! while there are descriptors to spare. When there are none, a second-chance (CLOCK) queue picks files to close: a
//! file that was read since its last turn is passed over once. Reads in flight keep their descriptor. The next read
//! opens the file again, in a thread, since that may block. The file has changed if its name leads to another version
//! by then.
//!
//! **Changing files** ([`open_changing`](super::local::LocalBackend::open_changing)) have no version. They are read through the
//! page cache, and keep the descriptor that they came with. They are counted apart. A caller that has another way can ask first
//! whether there are descriptors for one more ([`Readers::can_hold_more`]).

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use rustix::fs::{OFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::{Resource, getrlimit};

use super::blocking::{self, Blocking, PIECES_MAX, Threads};
use super::direct::{Direct, can_decline_to_wait, is_cached};
use super::reach::Reach;
use super::uring::{Ring, Uring};
use super::{BackendError, Object, Request};

/// Files may be open for one in this many of the process's descriptors. Each may take two.
const DESCRIPTORS_PER_FILE: u64 = 4;

/// Reads may be in flight for one in this many of the process's descriptors, since a file may be closed during its read.
const DESCRIPTORS_PER_READ: u64 = 8;

/// The version of a file: device, inode, size, mtime and ctime (seconds and nanoseconds each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity([u64; 7]);

impl Identity {
    /// Bytes of a version that hold the device's number.
    pub(super) const DEVICE_BYTES: usize = size_of::<u64>();

    pub(super) fn of(found: &Metadata) -> Self {
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

    pub(super) fn of_stat(found: &Stat) -> Self {
        Identity([
            found.st_dev,
            found.st_ino,
            found.st_size as u64,
            found.st_mtime as u64,
            found.st_mtime_nsec,
            found.st_ctime as u64,
            found.st_ctime_nsec,
        ])
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.0[2]
    }

    pub(super) fn modified(&self) -> SystemTime {
        let [_, _, _, seconds, nanoseconds, ..] = self.0;
        let (seconds, after) = (seconds as i64, Duration::from_nanos(nanoseconds));
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let second = match seconds {
            0.. => SystemTime::UNIX_EPOCH + whole,
            _ => SystemTime::UNIX_EPOCH - whole,
        };
        second + after
    }

    pub(super) fn version(&self) -> Arc<[u8]> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The version as text, in the place of an ETag.
    pub(super) fn tag(&self) -> Arc<str> {
        let words: Vec<String> = self.0.iter().map(|word| format!("{word:x}")).collect();
        words.join(".").into()
    }
}

/// The readers of a folder's files, and the descriptors in use.
pub(super) struct Readers {
    /// How far names may lead.
    pub(super) reach: Reach,
    /// The ring, or why there is none; `None` if none was asked for.
    pub(super) ring: Option<io::Result<Ring>>,
    threads: Threads,
    /// Open files that have a version.
    open_files: AtomicUsize,
    open_files_max: usize,
    /// Open files that change.
    changing_files: AtomicUsize,
    /// Reads in flight at once.
    pub(super) depth: usize,
    /// Files that were opened, in the order of their turns. Some have been closed since.
    turns: Mutex<VecDeque<Weak<LocalFile>>>,
}

impl Readers {
    /// Readers with up to `depth` reads in flight, fewer if there are not enough descriptors.
    pub(super) fn new(reach: Reach, ring: Option<io::Result<Ring>>, depth: usize) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let [files_max, reads_max] = [DESCRIPTORS_PER_FILE, DESCRIPTORS_PER_READ]
            .map(|each| (descriptors / each).clamp(1, 1 << 20) as usize);
        let depth = depth.clamp(1, reads_max);
        Readers {
            reach,
            ring,
            threads: Threads::new(depth),
            open_files: AtomicUsize::new(0),
            open_files_max: files_max,
            changing_files: AtomicUsize::new(0),
            depth,
            turns: Mutex::default(),
        }
    }

    /// Ends the threads after their current requests. Requests that wait are dropped.
    pub(super) fn close(&self) {
        if let Some(Ok(ring)) = &self.ring {
            ring.close();
        }
        self.threads.close();
    }

    /// Whether there are descriptors to spare for another changing file.
    pub(super) fn can_hold_more(&self) -> bool {
        self.changing_files.load(Ordering::Relaxed) < self.open_files_max
    }

    /// The count of open files that have a version (`identity`), or of those that change.
    fn count_of(&self, identity: Option<Identity>) -> &AtomicUsize {
        if identity.is_some() { &self.open_files } else { &self.changing_files }
    }

    /// Opens the file at `place`, after closing others if descriptors are short.
    pub(super) fn open(&self, place: &Path) -> Result<(File, Metadata), BackendError> {
        self.make_room();
        // Without NONBLOCK opening a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.reach.open(place, flags)?);
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }

    fn make_room(&self) {
        let mut closed = Vec::new();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut passes_left = turns.len();
        while self.open_files.load(Ordering::Relaxed) - closed.len() >= self.open_files_max
            && let Some(next) = turns.pop_front()
        {
            let Some(file) = next.upgrade() else { continue };
            if passes_left > 0 && file.was_read.swap(false, Ordering::Relaxed) {
                passes_left -= 1;
                turns.push_back(next);
                continue;
            }
            closed.extend(file.open.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        drop(turns);
        drop(closed); // Not under the lock: closing may take a while.
    }

    /// Puts a file that has been opened at the end of the queue of turns.
    fn take_turn(&self, file: &Arc<LocalFile>) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= 2 * self.open_files_max {
            turns.retain(|file| file.strong_count() > 0);
        }
        turns.push_back(Arc::downgrade(file));
    }
}

/// How a file is read.
pub(super) enum Way {
    /// By the ring, and with direct I/O where possible.
    Ring(Option<Direct>),
    Threads,
}

/// One version of a file.
pub(super) struct LocalFile {
    /// The file's path below the folder.
    place: PathBuf,
    identity: Identity,
    readers: Arc<Readers>,
    open: Mutex<Option<Arc<OpenFile>>>,
    was_read: AtomicBool,
}

impl LocalFile {
    /// A file that has just been opened at `place`.
    pub(super) fn opened(
        place: PathBuf,
        file: File,
        metadata: &Metadata,
        readers: &Arc<Readers>,
    ) -> Result<Arc<Self>, BackendError> {
        if metadata.is_dir() {
            return Err(io::Error::from(Errno::ISDIR).into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file").into());
        }
        let identity = Identity::of(metadata);
        let open = OpenFile::new(file, identity, readers);
        let file = Arc::new(LocalFile {
            place,
            identity,
            readers: Arc::clone(readers),
            open: Mutex::new(Some(open)),
            was_read: AtomicBool::new(false),
        });
        readers.take_turn(&file);
        Ok(file)
    }

    pub(super) fn if_open(&self) -> Option<Arc<OpenFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the file again, unless it is open.
    pub(super) fn reopened(self: &Arc<Self>) -> Result<Arc<OpenFile>, BackendError> {
        if let Some(open) = self.if_open() {
            return Ok(open);
        }
        let (file, metadata) = match self.readers.open(&self.place) {
            Err(BackendError::NotFound) => return Err(BackendError::Changed),
            other => other?,
        };
        if Identity::of(&metadata) != self.identity {
            return Err(BackendError::Changed);
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*open {
            return Ok(Arc::clone(open)); // Another read has opened it meanwhile.
        }
        let opened = OpenFile::new(file, self.identity, &self.readers);
        *open = Some(Arc::clone(&opened));
        drop(open);
        self.readers.take_turn(self);
        Ok(opened)
    }
}

impl Object for LocalFile {
    fn start(self: Arc<Self>, request: Request) {
        self.was_read.store(true, Ordering::Relaxed);
        match self.if_open() {
            Some(open) => open.start(request),
            None => {
                let readers = Arc::clone(&self.readers);
                readers.threads.start(self, request);
            }
        }
    }
}

impl Blocking for LocalFile {
    /// Opens the file again, and reads it the way that suits it.
    fn serve(self: Arc<Self>, request: Request) {
        match self.reopened() {
            Ok(file) => file.start(request),
            Err(error) => request.complete(Err(error)),
        }
    }
}

/// One version of a file, or a changing file, with its descriptors.
pub(super) struct OpenFile {
    pub(super) file: File,
    /// `None` if the file changes.
    identity: Option<Identity>,
    size_bytes: u64,
    readers: Arc<Readers>,
    /// Found out at the first read.
    pub(super) way: OnceLock<Way>,
}

impl OpenFile {
    fn new(file: File, identity: Identity, readers: &Arc<Readers>) -> Arc<Self> {
        Self::with(file, Some(identity), identity.size_bytes(), readers)
    }

    /// A file that changes while it is open.
    pub(super) fn changing(file: File, size_bytes: u64, readers: &Arc<Readers>) -> Arc<Self> {
        Self::with(file, None, size_bytes, readers)
    }

    fn with(
        file: File,
        identity: Option<Identity>,
        size_bytes: u64,
        readers: &Arc<Readers>,
    ) -> Arc<Self> {
        readers.count_of(identity).fetch_add(1, Ordering::Relaxed);
        let (readers, way) = (Arc::clone(readers), OnceLock::new());
        Arc::new(OpenFile { file, identity, size_bytes, readers, way })
    }

    /// Reads what is left of the request.
    pub(super) fn start(self: Arc<Self>, mut request: Request) {
        let readers = Arc::clone(&self.readers);
        match &readers.ring {
            Some(Ok(ring)) if matches!(self.way(), Way::Ring(_)) => {
                if request.is_demand() && self.is_read_at_once(&mut request) {
                    let result = self.check();
                    return request.complete(result);
                }
                ring.start(self, request);
            }
            _ => readers.threads.start(self, request),
        }
    }

    /// Copies the request from the page cache if all of it is there, which saves waking the ring's thread. Returns whether the
    /// request is complete.
    fn is_read_at_once(&self, request: &mut Request) -> bool {
        let at = request.offset_bytes() + request.filled() as u64;
        let left = (request.length() - request.filled()) as u64;
        if !is_cached(&self.file, at, left) {
            return false;
        }
        let mut memory = request.unfilled();
        let pieces = memory.iter_mut().take(PIECES_MAX).map(|piece| IoSliceMut::new(piece));
        let mut pieces: Vec<IoSliceMut<'_>> = pieces.collect();
        // Pages may leave the cache meanwhile, or may still be on their way into it.
        match preadv2(&self.file, &mut pieces, at, ReadWriteFlags::NOWAIT) {
            Ok(count) => request.advance(count),
            Err(_) => return false,
        }
        request.filled() == request.length()
    }

    pub(super) fn way(&self) -> &Way {
        self.way.get_or_init(|| match can_decline_to_wait(&self.file, self.size_bytes) {
            // A changing file is written through the page cache, so it is read through it.
            true => Way::Ring(self.identity.and_then(|_| Direct::of(&self.file))),
            false => Way::Threads,
        })
    }
}

impl Object for OpenFile {
    fn start(self: Arc<Self>, request: Request) {
        OpenFile::start(self, request);
    }
}

impl Blocking for OpenFile {
    fn serve(self: Arc<Self>, mut request: Request) {
        let read = blocking::read(&self.file, &mut request);
        let result = read.and_then(|()| self.check());
        request.complete(result);
    }
}

impl Uring for OpenFile {
    fn file(&self) -> &File {
        &self.file
    }

    fn direct(&self) -> Option<&Direct> {
        match self.way() {
            Way::Ring(direct) => direct.as_ref(),
            Way::Threads => None,
        }
    }

    /// This may block where the file system is on another machine.
    fn check(&self) -> Result<(), BackendError> {
        match self.identity {
            Some(identity) if identity != Identity::of(&self.file.metadata()?) => {
                Err(BackendError::Changed)
            }
            _ => Ok(()),
        }
    }

    fn start_thread(self: Arc<Self>, request: Request) {
        let readers = Arc::clone(&self.readers);
        readers.threads.start(self, request);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.readers.count_of(self.identity).fetch_sub(1, Ordering::Relaxed);
    }
}
