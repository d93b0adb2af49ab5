//! The face of the cache: caches, their stores, sessions on these, and streams to disclose with.
//!
//! All of them are handles on one [`Shared`], which drives the [engine](crate::engine). Reads are in [`file`](crate::file).

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use foretell_policy::{Extent, Order, ReaderId, Segment, StreamId};

use crate::backend::{Backend, Opened};
use crate::error::{CacheError, OpenError};
use crate::file::File;
use crate::shared::{Identity, Shared};
use crate::slab::{Frame, Slab};
use crate::stats::Stats;

/// The size of a cache and of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of memory for data.
    pub budget_bytes: u64,
    /// Bytes of a block: a power of two. Only whole blocks are fetched: small blocks waste less at the ends of a read and
    /// cost more work for each byte.
    pub block_bytes: usize,
}

impl CacheOptions {
    /// Checks the options without allocating. Returns how many blocks the cache would have.
    ///
    /// # Errors
    /// [`CacheError::BlockBytes`] for a size of blocks that is not allowed, [`CacheError::Budget`] for a budget of less
    /// than a block.
    pub fn check(&self) -> Result<u64, CacheError> {
        let &CacheOptions { budget_bytes, block_bytes } = self;
        if !block_bytes.is_power_of_two() || !(4096..=16 << 20).contains(&block_bytes) {
            return Err(CacheError::BlockBytes(block_bytes));
        }
        match budget_bytes / block_bytes as u64 {
            0 => Err(CacheError::Budget { budget_bytes, block_bytes }),
            frames => Ok(frames),
        }
    }
}

impl Default for CacheOptions {
    /// 256 MiB, in blocks of 16 KiB.
    fn default() -> Self {
        CacheOptions { budget_bytes: 256 << 20, block_bytes: 16 << 10 }
    }
}

/// Bytes of blocks that are given up at a time, since readers wait meanwhile.
const SHRINK_STEP_BYTES: u64 = 8 << 20;

/// Memory is given back so long after its blocks were given up: another process that is copying from it would take it again.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(10);

/// A memory of bounded size that several stores share. A clone is a handle on the same cache.
#[derive(Clone)]
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("frames", &self.shared.slab.frames()).finish_non_exhaustive()
    }
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// If the options are [wrong](CacheOptions::check), or the memory cannot be mapped.
    pub fn new(options: CacheOptions) -> Result<Self, CacheError> {
        Self::with(options, Slab::new)
    }

    /// An empty cache. Other processes can [read its blocks](crate::share).
    ///
    /// # Errors
    /// As [`new`](Cache::new).
    pub fn new_shared(options: CacheOptions) -> Result<Self, CacheError> {
        Self::with(options, |frames, block_bytes| Slab::shared(frames, block_bytes, false))
    }

    /// As [`new_shared`](Cache::new_shared), and it gives memory back when it [shrinks](Cache::shrink). Other processes of the
    /// user could then write to its data, if they set out to do so.
    ///
    /// # Errors
    /// As [`new`](Cache::new).
    pub fn new_shared_that_gives_back(options: CacheOptions) -> Result<Self, CacheError> {
        Self::with(options, |frames, block_bytes| Slab::shared(frames, block_bytes, true))
    }

    /// Uses at most so many bytes from now on, but at least a block: the machine is short of memory.
    ///
    /// * A cache that gives memory back gives up its least valuable blocks, and their memory to the system, a part at a time,
    ///   until `is_over`. What is in flight or being copied stays.
    /// * Another one gives up nothing. It takes no memory that it has not used before.
    pub fn shrink(&self, bytes: u64, is_over: impl Fn() -> bool) {
        let shared = &self.shared;
        let _resizing = shared.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let block_bytes = shared.block_bytes as u64;
        let frames = bytes / block_bytes;
        // Without the engine's lock: no block is in these frames any more.
        let give_back = |runs: Vec<Range<Frame>>| {
            runs.into_iter().for_each(|run| shared.slab.give_back(run));
        };
        shared.is_limited.store(true, Ordering::Relaxed);
        if !shared.slab.gives_back() {
            shared.with_engine(|state, now, todo| state.engine.stop_growth(now, frames, todo));
        }
        let is_due = |(since, _): &(Instant, _)| since.elapsed() >= GIVE_BACK_AFTER;
        let mut evicted = VecDeque::new();
        while shared.slab.gives_back() && !is_over() {
            let most = (SHRINK_STEP_BYTES / block_bytes).max(1);
            let runs =
                shared.with_engine(|state, now, todo| state.engine.shrink(now, frames, most, todo));
            if runs.is_empty() {
                break;
            }
            evicted.push_back((Instant::now(), runs));
            while evicted.front().is_some_and(is_due)
                && let Some((_, runs)) = evicted.pop_front()
            {
                give_back(runs);
            }
        }
        for (since, runs) in evicted {
            std::thread::sleep(GIVE_BACK_AFTER.saturating_sub(since.elapsed()));
            give_back(runs);
        }
        self.note_limit();
    }

    /// Uses so many bytes again, if that is more than now.
    pub fn grow(&self, bytes: u64) {
        let shared = &self.shared;
        let _resizing = shared.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let frames = bytes / shared.block_bytes as u64;
        shared.with_engine(|state, now, todo| state.engine.grow(now, frames, todo));
        self.note_limit();
    }

    fn note_limit(&self) {
        let all = u64::from(self.shared.slab.frames()) * self.shared.block_bytes as u64;
        self.shared.is_limited.store(self.limit_bytes() < all, Ordering::Relaxed);
    }

    /// Bytes that it uses at most at present.
    pub fn limit_bytes(&self) -> u64 {
        let frames = self.shared.with_engine(|state, _, _| state.engine.frames_in_use());
        frames * self.shared.block_bytes as u64
    }

    fn with(
        options: CacheOptions,
        slab: impl FnOnce(Frame, usize) -> std::io::Result<Slab>,
    ) -> Result<Self, CacheError> {
        let CacheOptions { budget_bytes, block_bytes } = options;
        let frames = options.check()?;
        let memory = |cause| CacheError::Memory { budget_bytes, cause };
        let frames = u32::try_from(frames)
            .ok()
            .filter(|&frames| frames < 1 << 31)
            .ok_or_else(|| memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let slab = slab(frames, block_bytes).map_err(memory)?;
        Ok(Cache { shared: Arc::new(Shared::new(slab, block_bytes)) })
    }

    /// Adds a store. To the policy it is a device of its own.
    pub fn attach(&self, backend: Arc<dyn Backend>) -> Store {
        let (depth, near) = (backend.depth(), backend.near_depth());
        let device = self.shared.with_engine(|state, _, _| state.engine.add_device(depth, near));
        Store { shared: Arc::clone(&self.shared), backend, device }
    }

    /// Counts since the cache was made.
    pub fn stats(&self) -> Stats {
        let (engine, policy, held_blocks) = self.shared.with_engine(|state, _, _| {
            let (engine, policy) = state.engine.counts();
            (engine, policy, state.engine.held_blocks())
        });
        Stats {
            hit_blocks: engine.hits,
            joined_blocks: engine.joined,
            demanded_blocks: engine.demanded,
            passed_by_blocks: engine.passed_by,
            held_blocks,
            prefetched_blocks: policy.prefetched,
            useful_blocks: policy.useful,
            late_blocks: policy.late,
            wasted_blocks: policy.wasted,
            requests: engine.requests,
            requests_ahead: engine.requests_ahead,
            requests_failed: engine.failed,
            fetched_bytes: engine.fetched_bytes,
        }
    }
}

/// The files of one back end. A clone is a handle on the same store.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    backend: Arc<dyn Backend>,
    device: usize,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Store {
    /// A session stands for one program. Hints of a session are matched to its own reads only, and its accuracy does not affect
    /// other sessions.
    pub fn session(&self) -> Session {
        Session { store: self.clone(), reader: self.shared.new_reader(), is_kernels: false }
    }
}

/// One program's view of a store: its reads and its hints. A clone stands for the same program.
#[derive(Clone, Debug)]
pub struct Session {
    store: Store,
    reader: ReaderId,
    is_kernels: bool,
}

impl Session {
    /// This session, for a program that reads through the kernel's page cache. Its reads are then the kernel's, which also reads
    /// ahead beyond the ends of hints.
    pub fn through_kernel(self) -> Session {
        Session { is_kernels: true, ..self }
    }

    /// Opens the current version of the file at `path`. Waits for the store's answer.
    ///
    /// # Errors
    /// The back end's error.
    pub fn open(&self, path: &str) -> Result<Arc<File>, OpenError> {
        match self.store.backend.open(path) {
            Ok(opened) => Ok(self.open_found(path, opened)),
            Err(cause) => Err(OpenError { path: path.into(), cause }),
        }
    }

    /// A handle on a file that the store's back end has already opened. The path names it in errors. Two different files at
    /// this path must have two different versions.
    pub fn open_found(&self, path: &str, opened: Opened) -> Arc<File> {
        let store = &self.store;
        let identity =
            Identity { device: store.device, path: path.into(), version: opened.version };
        let (id, size_bytes) = store
            .shared
            .with_engine(|state, _, _| state.open(&identity, opened.size_bytes, opened.object));
        let (shared, backend) = (Arc::clone(&store.shared), Arc::clone(&store.backend));
        Arc::new(File::new(
            shared,
            backend,
            (identity, id, size_bytes),
            (self.reader, self.is_kernels),
        ))
    }

    /// Another handle on an open file of this store, for this program's reads. Both handles see the same bytes, also
    /// after the file has [changed](File::changed).
    pub fn open_again(&self, file: &File) -> Arc<File> {
        Arc::new(file.again((self.reader, self.is_kernels)))
    }

    /// A stream of hints: it discloses what will be read next, in order.
    ///
    /// All streams of a session share one record of accuracy. Fetched blocks that are read count for the session. Fetched
    /// blocks that are given up unread count against it: the stream was dropped or cancelled early, or something else was read.
    /// With a poor record, new streams have less fetched before their first reads and get less memory, until more is read as
    /// disclosed. A stream that is read as disclosed soon gets as much as any other stream.
    ///
    /// A program that often leaves streams early should make a session for each: a new session has no record.
    pub fn stream(&self) -> Stream {
        let shared = Arc::clone(&self.store.shared);
        let reader = self.reader;
        let id = shared.with_engine(|state, now, _| state.engine.open_stream(now, reader));
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let number = STREAMS.fetch_add(1, Ordering::Relaxed);
        Stream { shared, id, reader, number, backends: Mutex::default() }
    }
}

/// Memory that hints take; see [`Stream::hint_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintMemory {
    /// Bytes of all streams of the session.
    pub own_bytes: usize,
    /// Bytes of all sessions of all stores on the cache, and of the cache's own predictions of sequential reads.
    pub all_bytes: usize,
}

/// Discloses what will be read, in order. Dropping it gives up its unread hints. A hinted file stays open until the
/// hints about it are read or given up.
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
    reader: ReaderId,
    /// Of which this process has no other.
    number: u64,
    /// Back ends of the files that the stream has hinted. A back end must outlive these files, which may stay open for the
    /// stream. It is dropped with the stream, and so never in one of its own threads.
    backends: Mutex<Vec<Arc<dyn Backend>>>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Stream {
    /// All of `file` will be read, from the first byte to the last.
    pub fn hint_file(&self, file: &Arc<File>) {
        self.hint(file, None, Order::Given);
    }

    /// These ranges of `file` will be read, in this order.
    pub fn hint_segments(&self, file: &Arc<File>, segments: &[Segment]) {
        self.hint(file, Some(segments), Order::Given);
    }

    /// These ranges of `file` will be read, in any order.
    pub fn hint_set(&self, file: &Arc<File>, segments: &[Segment]) {
        self.hint(file, Some(segments), Order::Any);
    }

    fn hint(&self, file: &Arc<File>, segments: Option<&[Segment]>, order: Order) {
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        if !backends.iter().any(|backend| Arc::ptr_eq(backend, file.backend())) {
            backends.push(Arc::clone(file.backend()));
        }
        drop(backends);
        let extent =
            segments.map_or(Extent::WholeFile, |segments| Extent::Segments(segments.into()));
        let object = self.shared.with_engine(|state, now, todo| {
            let object = state.engine.object_of(file.id);
            state.hold_hinted(file.id, file.identity());
            state.engine.hint(now, self.id, (file.id, extent, order), todo);
            object
        });
        if let Some(object) = object {
            object.disclosed(self.number, segments);
        }
    }

    /// Memory of the hints that are neither read nor given up. The cache does not bound it: a server that takes hints from
    /// clients has to.
    ///
    /// * A hint takes one to two hundred bytes.
    /// * A range takes 16 bytes if all ranges of the hint have the same number of blocks, otherwise 20 (24 in a hint of
    ///   2³² blocks or more).
    /// * One more hint may double the total of a session, since queues grow by doubling.
    /// * A hinted file stays open, once for all streams that hint it: some hundred bytes and what its back end needs.
    ///   These are not in the counts.
    pub fn hint_memory(&self) -> HintMemory {
        let bytes = self.shared.with_engine(|state, _, _| state.engine.hint_bytes(self.reader));
        HintMemory { own_bytes: bytes.0, all_bytes: bytes.1 }
    }

    /// Gives up all unread hints. The stream can disclose more afterwards.
    pub fn cancel(&self) {
        self.shared.with_engine(|state, now, todo| state.engine.cancel(now, self.id, todo));
        self.gave_up();
    }

    /// Tells the back ends that what was disclosed will not be read.
    fn gave_up(&self) {
        let backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        backends.iter().for_each(|backend| backend.gave_up(self.number));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.with_engine(|state, now, todo| state.engine.close_stream(now, self.id, todo));
        self.gave_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryBackend;

    const FILES: usize = 300;

    /// Number of files that are open for hints.
    fn hinted(cache: &Cache) -> usize {
        cache.shared.with_engine(|state, _, _| state.hinted.len())
    }

    #[test]
    fn a_hinted_file_is_open_once_and_until_its_hints_are_past() {
        let files = MemoryBackend::new();
        (0..FILES).for_each(|name| files.put(&name.to_string(), vec![1; 8192]));
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let session = cache.attach(Arc::new(files)).session();
        let streams = [(); 5].map(|()| session.stream());
        for name in 0..FILES {
            let file = session.open(&name.to_string()).unwrap();
            streams.iter().for_each(|stream| stream.hint_file(&file));
            assert_eq!(Arc::strong_count(&file), 1);
        }
        assert_eq!(hinted(&cache), FILES, "they are open, and nobody else has them");
        streams[1..].iter().for_each(Stream::cancel);
        assert_eq!(hinted(&cache), FILES);
        for name in 0..FILES {
            let file = session.open(&name.to_string()).unwrap();
            assert_eq!(file.read_at(&mut [0; 8192], 0).unwrap(), 8192);
        }
        assert_eq!(hinted(&cache), 0, "all is read, and the streams are open");
        let capacity = cache.shared.with_engine(|state, _, _| state.hinted.capacity());
        assert!(capacity < FILES / 10, "{capacity}");
        let file = session.open("0").unwrap();
        streams[0].hint_file(&file);
        assert_eq!(hinted(&cache), 1);
        drop(streams);
        assert_eq!(hinted(&cache), 0);
    }

    #[test]
    fn what_is_read_in_order_keeps_no_file_open() {
        let files = MemoryBackend::new();
        files.put("a", vec![1; 1 << 20]);
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let session = cache.attach(Arc::new(files)).session();
        let (file, stream) = (session.open("a").unwrap(), session.stream());
        stream.hint_segments(&file, &[Segment { offset_bytes: 0, length_bytes: 1 }]);
        let mut buffer = vec![0; 32 << 10];
        for offset in [0, 32 << 10, 64 << 10] {
            file.read_at(&mut buffer, offset).unwrap();
        }
        drop(stream);
        let weak = Arc::downgrade(&cache.shared);
        drop((file, session));
        assert_eq!(hinted(&cache), 0);
        drop(cache);
        assert_eq!(weak.strong_count(), 0, "nothing holds itself");
    }
}
