//! The face of the cache, and the driver around its engine: the lock, the clock, and who waits.
//!
//! The way of a read is in the [engine](crate::engine) and, for what is in frames, in [`file`](crate::file): the engine has
//! no part in that. The policy is told of such reads when a shard of notes is
//! full, when somebody comes to the engine anyway, or at once if one of them had been fetched ahead: then there
//! is room for the next. Who comes with notes and finds the engine locked leaves word ([`Shared::look`]) and
//! goes on; who holds it looks before it goes.
//!
//! What the engine wants done is done after its lock is given up. A back end may complete a request within
//! `start`, and that may start the next: such work is put in a queue of the thread, not on its stack.
//!
//! One call of the engine is bounded. If it leaves a search unfinished, its thread calls again ([`Shared::go_on`]). In between it
//! gives up the lock, and threads that wait for it go first.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use foretell_policy::{Extent, FileId, Nanos, Order, ReaderId, Segment, StreamId};

use crate::backend::{Backend, Object, Opened, Request};
use crate::engine::{Delivery, Engine, Start, Todo};
use crate::error::{CacheError, OpenError};
use crate::file::File;
use crate::read_ahead::ReadAhead;
use crate::records::{Record, Records};
use crate::slab::{Frame, Slab};
use crate::stats::Stats;

/// Closed files whose blocks are still known, for each frame: a file without blocks is not worth remembering.
const CLOSED_PER_FRAME: usize = 1;

/// The table of hinted files gives room back when less than this part of it is in use.
const HINTED_USED_DIVISOR: usize = 8;

/// How a cache is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of memory for data.
    pub budget_bytes: u64,
    /// Bytes of a block: a power of two. What is fetched is a whole number of them, so a smaller one wastes less
    /// at the ends of what is read, and costs more work.
    pub block_bytes: usize,
}

impl CacheOptions {
    /// Whether a cache of at least one block can be made so, if there is the memory. Returns how many blocks it has.
    ///
    /// # Errors
    /// [`CacheError::BlockBytes`] and [`CacheError::Budget`].
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

/// What a file is known by as long as its blocks may be there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: usize,
    pub(crate) path: Arc<str>,
    pub(crate) version: Arc<[u8]>,
}

/// Files by identity.
#[derive(Default)]
struct Known {
    files: HashMap<Identity, FileId>,
    /// Closed ones, by their turns, which are those of their last closing.
    closed: BTreeMap<u64, Identity>,
    turns: HashMap<FileId, u64>,
    next_turn: u64,
}

impl Known {
    fn closed(&mut self, identity: Identity, file: FileId, most: usize) {
        self.opened(file);
        self.next_turn += 1;
        self.turns.insert(file, self.next_turn);
        self.closed.insert(self.next_turn, identity);
        while self.closed.len() > most
            && let Some((_, identity)) = self.closed.pop_first()
        {
            if let Some(file) = self.files.remove(&identity) {
                self.turns.remove(&file);
            }
        }
    }

    /// It is no closed one.
    fn opened(&mut self, file: FileId) {
        if let Some(turn) = self.turns.remove(&file) {
            self.closed.remove(&turn);
        }
    }
}

/// What is done with after the engine's lock is given up, as it may take a while.
type Objects = Vec<Arc<dyn Object>>;

pub(crate) struct State {
    pub(crate) engine: Engine,
    known: Known,
    /// Files that hints are about, each held once, whoever has hinted it and how often.
    hinted: HashMap<FileId, Identity>,
    /// Whether a thread is in [`Shared::go_on`].
    is_gone_on_with: bool,
    /// Scratch space.
    records: Vec<Record>,
}

impl State {
    /// Whether this thread must [go on](Shared::go_on): the engine has left a search unfinished, and no other thread does.
    fn takes_over(&mut self) -> bool {
        let takes_over = self.engine.has_more() && !self.is_gone_on_with;
        self.is_gone_on_with |= takes_over;
        takes_over
    }

    /// `file`, which somebody holds, is about to be hinted: it stays open until hints about it are past.
    fn hold_hinted(&mut self, file: FileId, identity: &Identity) {
        if !self.hinted.contains_key(&file) && self.engine.hold(file) {
            self.hinted.insert(file, identity.clone());
        }
    }

    /// No hint is about these files any more.
    fn release_hinted(&mut self, most: usize) -> Objects {
        let mut objects = Vec::new();
        for file in self.engine.unwanted_files() {
            let Some(identity) = self.hinted.remove(&file) else { continue };
            objects.extend(self.release(file, identity, most));
        }
        if self.hinted.len() < self.hinted.capacity() / HINTED_USED_DIVISOR {
            self.hinted.shrink_to(2 * self.hinted.len());
        }
        objects
    }

    /// Ends a hold of a file; of closed ones `most` are remembered.
    fn release(
        &mut self,
        file: FileId,
        identity: Identity,
        most: usize,
    ) -> Option<Arc<dyn Object>> {
        let object = self.engine.release(file);
        if object.is_some() {
            self.known.closed(identity, file, most);
        }
        object
    }
}

pub(crate) struct Shared {
    pub(crate) slab: Arc<Slab>,
    pub(crate) block_bytes: usize,
    state: Mutex<State>,
    pub(crate) records: Records,
    /// Somebody has noted something that the policy should hear of.
    is_news: AtomicBool,
    /// Threads that wait for the engine.
    waiting: AtomicUsize,
    clock: Instant,
    next_reader: AtomicU64,
}

/// What is to be done, and for which cache.
type Work = VecDeque<(Arc<Shared>, Todo)>;

thread_local! {
    /// Work that came while this thread was at work; none if it is not.
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
}

impl Shared {
    pub(crate) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                state
            }
        }
    }

    /// Has the engine do something, and does what it wants done.
    pub(crate) fn with_engine<R>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut State, Nanos, &mut Todo) -> R,
    ) -> R {
        let mut todo = Todo::default();
        let mut state = self.lock();
        let now = self.now();
        self.tell(&mut state, now, &mut todo);
        let result = act(&mut state, now, &mut todo);
        let goes_on = state.takes_over();
        self.give_up(state, todo);
        if goes_on {
            self.go_on();
        }
        if self.is_news.load(Ordering::SeqCst) {
            self.look();
        }
        result
    }

    /// Gives up the lock of the engine, and carries out the work that it left.
    fn give_up(self: &Arc<Self>, mut state: MutexGuard<'_, State>, todo: Todo) {
        let objects = state.release_hinted(self.closed_max());
        drop(state);
        drop(objects);
        self.carry_out(todo);
    }

    /// Calls the engine until its search is done. Threads that wait for the engine go first.
    #[cold]
    fn go_on(self: &Arc<Self>) {
        let mut has_more = true;
        while has_more {
            while self.waiting.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
            let mut todo = Todo::default();
            let mut state = self.lock();
            let now = self.now();
            self.tell(&mut state, now, &mut todo);
            state.engine.pump(now, &mut todo);
            has_more = state.engine.has_more();
            state.is_gone_on_with = has_more;
            self.give_up(state, todo);
        }
    }

    fn tell(&self, state: &mut State, now: Nanos, todo: &mut Todo) {
        self.is_news.store(false, Ordering::SeqCst);
        let mut records = std::mem::take(&mut state.records);
        self.records.take(&mut records);
        state.engine.recorded(now, &records, todo);
        records.clear();
        state.records = records;
    }

    /// Tells the policy what was noted, unless somebody else is there, who will.
    pub(crate) fn look(self: &Arc<Self>) {
        self.is_news.store(true, Ordering::SeqCst);
        while self.is_news.load(Ordering::SeqCst) {
            let mut todo = Todo::default();
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let now = self.now();
            self.tell(&mut state, now, &mut todo);
            state.engine.pump(now, &mut todo);
            let goes_on = state.takes_over();
            self.give_up(state, todo);
            if goes_on {
                self.go_on();
            }
        }
    }

    /// Closed files that are remembered.
    fn closed_max(&self) -> usize {
        self.slab.frames() as usize * CLOSED_PER_FRAME
    }

    fn carry_out(self: &Arc<Self>, todo: Todo) {
        if todo.is_empty() {
            return;
        }
        let is_at_work = WORK.with_borrow_mut(|work| match work {
            Some(queue) => {
                queue.push_back((Arc::clone(self), todo));
                None
            }
            None => {
                *work = Some(VecDeque::new());
                Some(todo)
            }
        });
        let Some(todo) = is_at_work else { return };
        self.carry_out_now(todo);
        while let Some((shared, todo)) =
            WORK.with_borrow_mut(|work| work.as_mut().and_then(VecDeque::pop_front))
        {
            shared.carry_out_now(todo);
        }
        WORK.with_borrow_mut(|work| *work = None);
    }

    fn carry_out_now(self: &Arc<Self>, todo: Todo) {
        for start in todo.start {
            self.start(start);
        }
        let mut is_called = false;
        // What lies side by side, in the file as in memory, and is for one read, is one copy.
        let goes_on = |one: &Delivery, next: &Delivery| {
            Arc::ptr_eq(&one.read, &next.read)
                && one.block.index + 1 == next.block.index
                && one.pinned.frame + 1 == next.pinned.frame
        };
        for run in todo.copy.chunk_by(goes_on) {
            let (read, frame) = (&run[0].read, run[0].pinned.frame);
            let frames = frame..frame + run.len() as Frame;
            let start = run[0].block.index * self.block_bytes as u64;
            let (from, to) = read.within(start, start + (run.len() * self.block_bytes) as u64);
            let part = read.part(from, to);
            // SAFETY: the read's destination is lent until it has settled, and this part of it is for these blocks.
            unsafe {
                let from = (from - start) as usize;
                self.slab.copy_out(frames.clone(), from, part.start, part.length);
            };
            is_called |= self.slab.unpin_run(frames);
            read.settled(run.len());
        }
        for read in todo.settled {
            read.settled(1);
        }
        if is_called {
            self.look();
        }
    }

    /// A handle is closed, and the stream on which it read on.
    pub(crate) fn close_file(self: &Arc<Self>, identity: Identity, id: FileId, ahead: &ReadAhead) {
        let most = self.closed_max();
        let object = self.with_engine(|state, now, todo| {
            if let Some(stream) = ahead.close(state.engine.guess(id).credit) {
                state.engine.close_stream(now, stream, todo);
            }
            state.release(id, identity, most)
        });
        drop(object); // It may take a while, and is not of the engine.
    }

    fn start(self: &Arc<Self>, start: Start) {
        let (shared, id) = (Arc::clone(self), start.id);
        let done = Box::new(move |result| {
            shared.with_engine(|state, now, todo| state.engine.completed(now, id, result, todo));
        });
        // SAFETY: the parts are frames that the engine has taken for this request, or of a read that waits
        // for it, until it hears that it has ended, which is what `done` does.
        let request =
            unsafe { Request::new(start.offset_bytes, start.is_demand, start.parts, done) };
        start.object.start(request);
    }
}

/// A bounded memory that several stores share. A clone is the same cache.
#[derive(Clone)]
pub struct Cache {
    shared: Arc<Shared>,
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
    /// If the options make no sense, or there is no memory.
    pub fn new(options: CacheOptions) -> Result<Self, CacheError> {
        let CacheOptions { budget_bytes, block_bytes } = options;
        let frames = options.check()?;
        let memory = |cause| CacheError::Memory { budget_bytes, cause };
        let frames = u32::try_from(frames)
            .ok()
            .filter(|&frames| frames < 1 << 31)
            .ok_or_else(|| memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let slab = Arc::new(Slab::new(frames, block_bytes).map_err(memory)?);
        let engine = Engine::new(Arc::clone(&slab), block_bytes);
        let state = State {
            engine,
            known: Known::default(),
            hinted: HashMap::new(),
            is_gone_on_with: false,
            records: Vec::new(),
        };
        Ok(Cache {
            shared: Arc::new(Shared {
                slab,
                block_bytes,
                state: Mutex::new(state),
                records: Records::default(),
                is_news: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                clock: Instant::now(),
                next_reader: AtomicU64::new(1),
            }),
        })
    }

    /// Adds a store, a device of its own to the policy.
    pub fn attach(&self, backend: Arc<dyn Backend>) -> Store {
        let (depth, near) = (backend.depth(), backend.near_depth());
        let device = self.shared.with_engine(|state, _, _| state.engine.add_device(depth, near));
        Store { shared: Arc::clone(&self.shared), backend, device }
    }

    /// What was done so far.
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

/// The files of one back end. A clone is the same store.
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
    /// A program, as far as hints and reads go: what one discloses is not taken for another's reads, nor does it
    /// speak for or against another.
    pub fn session(&self) -> Session {
        let reader = ReaderId(self.shared.next_reader.fetch_add(1, Ordering::Relaxed));
        Session { store: self.clone(), reader }
    }
}

/// One program's view of a store: its reads, and what it says of them beforehand. A clone is the same program.
#[derive(Clone, Debug)]
pub struct Session {
    store: Store,
    reader: ReaderId,
}

impl Session {
    /// Opens the file at `path` as it is now, and waits for the store's answer.
    ///
    /// # Errors
    /// What the back end says.
    pub fn open(&self, path: &str) -> Result<Arc<File>, OpenError> {
        match self.store.backend.open(path) {
            Ok(opened) => Ok(self.open_found(path, opened)),
            Err(cause) => Err(OpenError { path: path.into(), cause }),
        }
    }

    /// A handle on what the store's back end has found already; the path names it in errors, and its version must
    /// be that of no other file at this path.
    pub fn open_found(&self, path: &str, opened: Opened) -> Arc<File> {
        let store = &self.store;
        let identity =
            Identity { device: store.device, path: path.into(), version: opened.version };
        let (id, size_bytes) = store.shared.with_engine(|state, _, _| {
            let known = state.known.files.get(&identity).copied();
            let id = match known {
                Some(id) => {
                    if !state.engine.hold(id) {
                        state.engine.reopen_file(
                            id,
                            store.device,
                            opened.size_bytes,
                            opened.object,
                        );
                    }
                    state.known.opened(id);
                    id
                }
                None => state.engine.add_file(store.device, opened.size_bytes, opened.object),
            };
            state.known.files.insert(identity.clone(), id);
            (id, state.engine.size_of(id))
        });
        let (shared, backend) = (Arc::clone(&store.shared), Arc::clone(&store.backend));
        Arc::new(File::new(shared, backend, (identity, id, size_bytes), self.reader))
    }

    /// Another handle on a file of this store that is open, for this program's reads: the same bytes, whatever has [changed](File::changed).
    pub fn open_again(&self, file: &File) -> Arc<File> {
        Arc::new(file.again(self.reader))
    }

    /// A stream to disclose with: what will be read next, in order.
    ///
    /// All streams of a session have one record. Of what is fetched for a stream, that which is given up unread speaks
    /// against the session (when the stream is dropped or cancelled early, or something else is read), and that which is read
    /// speaks for it; until more is read again, new streams of the session have less fetched before their first reads, and
    /// are given less of memory. A stream that is read as it says soon has as much as any. Who often leaves streams
    /// early, and means it well, makes a session for each: it begins as one of whom nothing is known.
    pub fn stream(&self) -> Stream {
        let shared = Arc::clone(&self.store.shared);
        let reader = self.reader;
        let id = shared.with_engine(|state, now, _| state.engine.open_stream(now, reader));
        Stream { shared, id, reader, backends: Mutex::default() }
    }
}

/// What hints take; see [`Stream::hint_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintMemory {
    /// Of all streams of the session.
    pub own_bytes: usize,
    /// Of all sessions of all stores on the cache, and of what the cache itself takes to be read next.
    pub all_bytes: usize,
}

/// Discloses what will be read, in order. When it is dropped, what it has disclosed and nobody has read is
/// given up. Files stay open for it until what was disclosed of them is read or given up.
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
    reader: ReaderId,
    /// Those of the files that it has hinted: they are there as long as these may be open for it, and end where it ends,
    /// not in one of their own threads.
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
        self.hint(file, Extent::WholeFile, Order::Given);
    }

    /// These ranges of `file` will be read, in this order.
    pub fn hint_segments(&self, file: &Arc<File>, segments: &[Segment]) {
        self.hint(file, Extent::Segments(segments.into()), Order::Given);
    }

    /// These ranges of `file` will be read, in any order.
    pub fn hint_set(&self, file: &Arc<File>, segments: &[Segment]) {
        self.hint(file, Extent::Segments(segments.into()), Order::Any);
    }

    fn hint(&self, file: &Arc<File>, extent: Extent, order: Order) {
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        if !backends.iter().any(|backend| Arc::ptr_eq(backend, file.backend())) {
            backends.push(Arc::clone(file.backend()));
        }
        drop(backends);
        self.shared.with_engine(|state, now, todo| {
            state.hold_hinted(file.id, file.identity());
            state.engine.hint(now, self.id, (file.id, extent, order), todo);
        });
    }

    /// What hints that are not past take: 16 bytes for each range where all of a hint have as many blocks of their own, else 20 (24
    /// in a hint of 2³² blocks or more), and a hundred to two hundred for each hint. To be bounded by who takes them from others.
    /// A hint more may double what a session has, since queues grow so. Beside it a file that is hinted stays open, once
    /// for all who hint it: some hundred bytes, and what its back end needs.
    pub fn hint_memory(&self) -> HintMemory {
        let bytes = self.shared.with_engine(|state, _, _| state.engine.hint_bytes(self.reader));
        HintMemory { own_bytes: bytes.0, all_bytes: bytes.1 }
    }

    /// Gives up what was disclosed and not read. More may be disclosed.
    pub fn cancel(&self) {
        self.shared.with_engine(|state, now, todo| state.engine.cancel(now, self.id, todo));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.with_engine(|state, now, todo| state.engine.close_stream(now, self.id, todo));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryBackend;

    const FILES: usize = 300;

    /// Files that are open for hints.
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
