//! Files of a folder: their versions, their descriptors, and who reads them.
//!
//! The version is inode, size, mtime and ctime, as they are at `open`; whoever reads compares them again when
//! the bytes are there, so that what is served as a version was that version's until then.
//!
//! More files can be open than there are descriptors. A [`LocalFile`] has an [`OpenFile`] as long as the process can spare
//! the descriptors; then those that were not read for longest lose theirs (in turn, and one that was read since
//! its last turn is passed over), reads under way apart. The next read opens the file again, by a thread, since that may wait. It has
//! changed if the name stands for something else by then.
//!
//! Files that change while they are open ([`open_changing`](super::local::LocalBackend::open_changing)) are of no one version: they
//! are read as they are, through the page cache, by the descriptor that they came with, and keep it; so they are counted by themselves, for
//! those who can do without them.

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

use super::blocking::{PIECES_MAX, Threads};
use super::direct::{Direct, can_decline_to_wait, is_cached};
use super::local::Reach;
use super::uring::Ring;
use super::{BackendError, Object, Request};

/// Of the descriptors that the process may have, files are open for one in so many; each may have two.
const DESCRIPTORS_PER_FILE: u64 = 4;

/// One in so many is for a read under way, whose file may have lost its turn meanwhile.
const DESCRIPTORS_PER_READ: u64 = 8;

/// What makes a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity([u64; 7]);

impl Identity {
    /// Bytes of a version that tell the device.
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

    /// As a store's own name of a version.
    pub(super) fn tag(&self) -> Arc<str> {
        let words: Vec<String> = self.0.iter().map(|word| format!("{word:x}")).collect();
        words.join(".").into()
    }
}

/// What reads the files of a folder, and those that are open.
pub(super) struct Readers {
    /// Where names lead.
    pub(super) reach: Reach,
    /// Or why there is none; `None` if it was not asked for.
    pub(super) ring: Option<io::Result<Ring>>,
    threads: Threads,
    /// Of one version, and open.
    open_files: AtomicUsize,
    open_files_max: usize,
    /// Of no one version, and open.
    changing_files: AtomicUsize,
    /// Reads at once.
    pub(super) depth: usize,
    /// Files that were opened, in turn; some have been closed since.
    turns: Mutex<VecDeque<Weak<LocalFile>>>,
}

impl Readers {
    /// Reads `depth` at once, or as many as there are descriptors for.
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

    /// Ends the threads, when they have read what they have begun; the rest is dropped.
    pub(super) fn close(&self) {
        if let Some(Ok(ring)) = &self.ring {
            ring.close();
        }
        self.threads.close();
    }

    /// Whether there are descriptors for another file that cannot lose its own, and that nobody waits for.
    pub(super) fn can_hold_more(&self) -> bool {
        self.changing_files.load(Ordering::Relaxed) < self.open_files_max
    }

    /// The files that are open, of the kind that one with this identity is of.
    fn count_of(&self, identity: Option<Identity>) -> &AtomicUsize {
        if identity.is_some() { &self.open_files } else { &self.changing_files }
    }

    /// Opens what is at `place`, and makes room for that.
    pub(super) fn open(&self, place: &Path) -> Result<(File, Metadata), BackendError> {
        self.make_room();
        // It does not wait for a writer if it is a pipe.
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
        drop(closed); // It may take a while.
    }

    /// It has been opened, and will have its turn.
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
    /// By the ring, and past the page cache if that can be done.
    Ring(Option<Direct>),
    Threads,
}

/// One version of a file.
pub(super) struct LocalFile {
    /// Below the folder.
    place: PathBuf,
    identity: Identity,
    readers: Arc<Readers>,
    open: Mutex<Option<Arc<OpenFile>>>,
    was_read: AtomicBool,
}

impl LocalFile {
    /// What is at `place` is open.
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

    /// Opens it again, unless it is open.
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
            return Ok(Arc::clone(open)); // Another read was faster.
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
                readers.threads.open_and_start(self, request);
            }
        }
    }
}

/// One version of a file, or one that changes, with descriptors.
pub(super) struct OpenFile {
    pub(super) file: File,
    /// None if it is of no one version.
    identity: Option<Identity>,
    size_bytes: u64,
    readers: Arc<Readers>,
    /// Found out with the first read.
    pub(super) way: OnceLock<Way>,
}

impl OpenFile {
    fn new(file: File, identity: Identity, readers: &Arc<Readers>) -> Arc<Self> {
        Self::with(file, Some(identity), identity.size_bytes(), readers)
    }

    /// A file that is of no one version.
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

    /// Copies what the page cache has, if that is all of it: then nobody need be woken to do so.
    fn is_read_at_once(&self, request: &mut Request) -> bool {
        let at = request.offset_bytes() + request.filled() as u64;
        let left = (request.length() - request.filled()) as u64;
        if !is_cached(&self.file, at, left) {
            return false;
        }
        let mut memory = request.unfilled();
        let pieces = memory.iter_mut().take(PIECES_MAX).map(|piece| IoSliceMut::new(piece));
        let mut pieces: Vec<IoSliceMut<'_>> = pieces.collect();
        // It may leave the cache meanwhile, or still be on its way there.
        match preadv2(&self.file, &mut pieces, at, ReadWriteFlags::NOWAIT) {
            Ok(count) => request.advance(count),
            Err(_) => return false,
        }
        request.filled() == request.length()
    }

    /// The same, by a thread.
    pub(super) fn start_thread(self: Arc<Self>, request: Request) {
        let readers = Arc::clone(&self.readers);
        readers.threads.start(self, request);
    }

    /// Whether it still is the version that was opened. May wait where the file system is on another machine.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        match self.identity {
            Some(identity) if identity != Identity::of(&self.file.metadata()?) => {
                Err(BackendError::Changed)
            }
            _ => Ok(()),
        }
    }

    /// How it is read past the page cache.
    pub(super) fn direct(&self) -> Option<&Direct> {
        match self.way() {
            Way::Ring(direct) => direct.as_ref(),
            Way::Threads => None,
        }
    }

    pub(super) fn way(&self) -> &Way {
        self.way.get_or_init(|| match can_decline_to_wait(&self.file, self.size_bytes) {
            // Who writes to a file does that through the page cache.
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

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.readers.count_of(self.identity).fetch_sub(1, Ordering::Relaxed);
    }
}
