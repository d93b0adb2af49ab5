//! The face of the cache, and the driver around its engine: the lock, the clock, and who waits.
//!
//! The way of a read is in the [engine](crate::engine); here is its case A, in which the engine has no part:
//! all blocks are found in frames, copied, and noted. The policy is told of them when a shard of notes is
//! full, when somebody comes to the engine anyway, or at once if one of them had been fetched ahead: then there
//! is room for the next. Who comes with notes and finds the engine locked leaves word ([`Shared::look`]) and
//! goes on; who holds it looks before it goes.
//!
//! What the engine wants done is done after its lock is given up. A back end may complete a request within
//! `start`, and that may start the next: such work is put in a queue of the thread, not on its stack.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use foretell_policy::{Block, Extent, FileId, Nanos, Order, ReaderId, Segment, StreamId};

use crate::backend::{Backend, Request};
use crate::engine::{Engine, Start, Todo};
use crate::error::{CacheError, OpenError, ReadError};
use crate::read::{Keeper, Read};
use crate::read_ahead::ReadAhead;
use crate::records::{Record, Records};
use crate::slab::{Frame, Slab};
use crate::stats::Stats;

/// Bytes of a read that the engine is asked for at a time, and how many such parts are under way: a read of
/// any length keeps a device busy, and the engine's lock is never held for long.
const PART_BYTES: u64 = 1 << 20;
const PARTS: usize = 8;

/// Bytes that a handle that reads in order is taken to read next, at most; and that as a divisor of the budget.
const READ_ON_MAX_BYTES: u64 = 64 << 20;
const READ_ON_DIVISOR: u64 = 4;

/// Closed files whose blocks are still known, for each frame: a file without blocks is not worth remembering.
const CLOSED_PER_FRAME: usize = 1;

/// How a cache is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of memory for data.
    pub budget_bytes: u64,
    /// Bytes of a block: a power of two. What is fetched is a whole number of them, so a smaller one wastes less
    /// at the ends of what is read, and costs more work.
    pub block_bytes: usize,
}

impl Default for CacheOptions {
    /// 256 MiB, in blocks of 8 KiB.
    fn default() -> Self {
        CacheOptions { budget_bytes: 256 << 20, block_bytes: 8 << 10 }
    }
}

/// What a file is known by as long as its blocks may be there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: usize,
    path: Arc<str>,
    version: Arc<[u8]>,
}

/// Files by identity.
#[derive(Default)]
struct Known {
    files: HashMap<Identity, FileId>,
    /// Closed ones, by when they were closed; others may be among them, with another turn.
    closed: VecDeque<(Identity, u64)>,
    turns: HashMap<FileId, u64>,
    next_turn: u64,
}

impl Known {
    fn closed(&mut self, identity: Identity, file: FileId, most: usize) {
        self.next_turn += 1;
        self.turns.insert(file, self.next_turn);
        self.closed.push_back((identity, self.next_turn));
        while self.closed.len() > most {
            let (identity, turn) = self.closed.pop_front().expect("there are some");
            if let Some(&file) = self.files.get(&identity)
                && self.turns.get(&file) == Some(&turn)
            {
                self.turns.remove(&file);
                self.files.remove(&identity);
            }
        }
    }
}

struct State {
    engine: Engine,
    known: Known,
    /// Scratch space.
    records: Vec<Record>,
}

struct Shared {
    slab: Arc<Slab>,
    block_bytes: usize,
    state: Mutex<State>,
    records: Records,
    /// Somebody has noted something that the policy should hear of.
    is_news: AtomicBool,
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
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the engine do something, and does what it wants done.
    fn with_engine<R>(self: &Arc<Self>, act: impl FnOnce(&mut State, Nanos, &mut Todo) -> R) -> R {
        let mut todo = Todo::default();
        let mut state = self.lock();
        let now = self.now();
        self.tell(&mut state, now, &mut todo);
        let result = act(&mut state, now, &mut todo);
        drop(state);
        self.carry_out(todo);
        if self.is_news.load(Ordering::SeqCst) {
            self.look();
        }
        result
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
    fn look(self: &Arc<Self>) {
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
            drop(state);
            self.carry_out(todo);
        }
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
        for delivery in todo.copy {
            let (read, pinned) = (delivery.read, delivery.pinned);
            let start = delivery.block.index * self.block_bytes as u64;
            let (from, to) = read.within(start, start + self.block_bytes as u64);
            let part = read.part(from, to);
            // SAFETY: the read's destination is lent until it has settled, and this part of it is for this block.
            unsafe {
                let (frame, from) = (pinned.frame, (from - start) as usize);
                self.slab.copy_out(frame..frame + 1, from, part.start, part.length);
            };
            is_called |= self.slab.unpin(pinned.frame);
            read.settled();
        }
        for read in todo.settled {
            read.settled();
        }
        if is_called {
            self.look();
        }
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
        if !block_bytes.is_power_of_two() || !(4096..=16 << 20).contains(&block_bytes) {
            return Err(CacheError::BlockBytes(block_bytes));
        }
        let frames = budget_bytes / block_bytes as u64;
        if frames == 0 {
            return Err(CacheError::Budget { budget_bytes, block_bytes });
        }
        let memory = |cause| CacheError::Memory { budget_bytes, cause };
        let frames = u32::try_from(frames)
            .ok()
            .filter(|&frames| frames < 1 << 31)
            .ok_or_else(|| memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let slab = Arc::new(Slab::new(frames, block_bytes).map_err(memory)?);
        let engine = Engine::new(Arc::clone(&slab), block_bytes);
        let state = State { engine, known: Known::default(), records: Vec::new() };
        Ok(Cache {
            shared: Arc::new(Shared {
                slab,
                block_bytes,
                state: Mutex::new(state),
                records: Records::default(),
                is_news: AtomicBool::new(false),
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
        let (engine, policy) = self.shared.with_engine(|state, _, _| state.engine.counts());
        Stats {
            hit_blocks: engine.hits,
            joined_blocks: engine.joined,
            demanded_blocks: engine.demanded,
            passed_by_blocks: engine.passed_by,
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
    /// A program, as far as hints and reads go: what one discloses is not taken for another's reads.
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
        let store = &self.store;
        let path: Arc<str> = path.into();
        let opened = store
            .backend
            .open(&path)
            .map_err(|cause| OpenError { path: Arc::clone(&path), cause })?;
        let identity = Identity { device: store.device, path, version: opened.version };
        let id = store.shared.with_engine(|state, _, _| {
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
                    state.known.turns.remove(&id);
                    id
                }
                None => state.engine.add_file(store.device, opened.size_bytes, opened.object),
            };
            state.known.files.insert(identity.clone(), id);
            id
        });
        Ok(Arc::new(File {
            shared: Arc::clone(&store.shared),
            _backend: Arc::clone(&store.backend),
            identity,
            id,
            size_bytes: opened.size_bytes,
            reader: self.reader,
            ahead: ReadAhead::default(),
        }))
    }

    /// A stream to disclose with: what will be read next, in order.
    pub fn stream(&self) -> Stream {
        let shared = Arc::clone(&self.store.shared);
        let id = shared.with_engine(|state, now, _| state.engine.open_stream(now, self.reader));
        Stream { shared, id, files: Mutex::new(Vec::new()) }
    }
}

/// One version of a file, open.
pub struct File {
    shared: Arc<Shared>,
    /// What reads it is there as long as it is open.
    _backend: Arc<dyn Backend>,
    identity: Identity,
    id: FileId,
    size_bytes: u64,
    reader: ReaderId,
    ahead: ReadAhead,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.identity.path).finish_non_exhaustive()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let identity = self.identity.clone();
        let (id, most) = (self.id, self.shared.slab.frames() as usize * CLOSED_PER_FRAME);
        let stream = self.ahead.plan().stream;
        let object = self.shared.with_engine(|state, now, todo| {
            if let Some(stream) = stream {
                state.engine.close_stream(now, stream, todo);
            }
            let object = state.engine.release(id);
            if object.is_some() {
                state.known.closed(identity, id, most);
            }
            object
        });
        drop(object); // It may take a while, and is not of the engine.
    }
}

/// Memory that a read may go on writing to after nobody waits for it any more.
pub struct Lent {
    start: *mut u8,
    length: usize,
    keeper: Keeper,
}

// SAFETY: whoever makes one promises that the memory is nobody else's, and it is kept in whichever thread.
unsafe impl Send for Lent {}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Lent {
    /// `length` bytes from `start` on, which `keeper` keeps.
    ///
    /// # Safety
    /// Until the read has ended, or, if it is [given up](File::read_lent), until `keeper` is dropped, which may happen in any
    /// thread and must not wait: the memory is valid for writes, and nobody makes a reference to it.
    pub unsafe fn new(start: *mut u8, length: usize, keeper: Arc<dyn Send + Sync>) -> Self {
        Lent { start, length, keeper }
    }
}

/// Where a read goes: borrowed until it is done, or lent for longer.
struct Place {
    start: *mut u8,
    length: usize,
    keeper: Option<Keeper>,
}

/// Waits for all that is under way when it goes: until then the program's memory is lent. Unless that is kept
/// for longer and the program has given up.
struct UnderWay {
    reads: VecDeque<Arc<Read>>,
    is_given_up: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_given_up {
            self.reads.iter().for_each(|read| read.wait());
        }
    }
}

impl File {
    /// What tells the version that was opened from others.
    pub fn version(&self) -> &[u8] {
        &self.identity.version
    }

    /// Its size when it was opened, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads up to `buffer.len()` bytes at `offset_bytes`, and waits for them. Returns how many: fewer only at the
    /// end of the file.
    ///
    /// # Errors
    /// What the back end says of the first block that could not be had.
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, ReadError> {
        let place = Place { start: buffer.as_mut_ptr(), length: buffer.len(), keeper: None };
        // SAFETY: the buffer is borrowed until this returns, which it does when all is done: nothing is given up.
        let done = unsafe { self.read_to(place, offset_bytes, &mut || false) }?;
        Ok(done.expect("it was not given up"))
    }

    /// As [`read_at`](File::read_at), into memory that may be needed for longer than this call: `is_given_up` is asked
    /// some twenty times a second whether to go on waiting. `None` if it was given up; what comes then is still written.
    /// Otherwise nothing is written after it has returned.
    ///
    /// # Errors
    /// As `read_at`.
    pub fn read_lent(
        &self,
        lent: Lent,
        offset_bytes: u64,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        let place = Place { start: lent.start, length: lent.length, keeper: Some(lent.keeper) };
        // SAFETY: whoever made `lent` promised it.
        unsafe { self.read_to(place, offset_bytes, is_given_up) }
    }

    /// # Safety
    /// The place is valid for writes, and nobody else's, until this returns, and longer if there is a keeper: as
    /// long as that lives, if this is given up. Without one it never is.
    unsafe fn read_to(
        &self,
        mut place: Place,
        offset_bytes: u64,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        let left = self.size_bytes.saturating_sub(offset_bytes);
        place.length = place.length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let length = place.length;
        if length == 0 {
            return Ok(Some(0));
        }
        let end = offset_bytes + length as u64;
        let goes_on = self.ahead.note(offset_bytes, end);
        let copied = self.read_present(&place, offset_bytes);
        if copied < length {
            // SAFETY: fewer bytes than there are.
            place.start = unsafe { place.start.add(copied) };
            place.length -= copied;
            let before_waiting = || match goes_on {
                true => self.read_on(offset_bytes, end),
                false => self.stray(),
            };
            let at = offset_bytes + copied as u64;
            if !self.read_missing(&place, at, before_waiting, is_given_up)? {
                return Ok(None);
            }
        } else if goes_on && self.ahead.is_due(end) {
            self.read_on(offset_bytes, end);
        }
        Ok(Some(length))
    }

    /// Discloses what comes after a read in order.
    fn read_on(&self, start: u64, end: u64) {
        let shared = &self.shared;
        let mut plan = self.ahead.plan();
        let budget_bytes = u64::from(shared.slab.frames()) * shared.block_bytes as u64;
        let most = READ_ON_MAX_BYTES.min(budget_bytes / READ_ON_DIVISOR);
        let range = (start, end);
        let Some(segment) = self.ahead.go_on(&mut plan, range, self.size_bytes, most) else {
            return;
        };
        shared.with_engine(|state, now, todo| {
            let stream =
                *plan.stream.get_or_insert_with(|| state.engine.open_stream(now, self.reader));
            let extent = Extent::Segments([segment].into());
            state.engine.hint(now, stream, (self.id, extent, Order::Given), todo);
        });
    }

    fn stray(&self) {
        if let Some(stream) = self.ahead.stray() {
            let shared = &self.shared;
            shared.with_engine(|state, now, todo| state.engine.close_stream(now, stream, todo));
        }
    }

    /// A. Copies what is in frames up to the first block that is not; says how many bytes that were.
    fn read_present(&self, place: &Place, offset_bytes: u64) -> usize {
        let shared = &self.shared;
        let block_bytes = shared.block_bytes as u64;
        let (mut copied, mut is_news) = (0, false);
        let first = offset_bytes / block_bytes;
        let last = (offset_bytes + place.length as u64 - 1) / block_bytes;
        let mut index = first;
        // Pinned, one after the other in memory as in the file, and not copied yet.
        let mut run = 0..0;
        let mut copy = |run: std::ops::Range<Frame>| {
            if run.is_empty() {
                return false;
            }
            let from = ((offset_bytes + copied as u64) % block_bytes) as usize;
            let length = (place.length - copied).min(run.len() * shared.block_bytes - from);
            // SAFETY: all of the run are pinned, by this thread; so many bytes of the place are left.
            unsafe {
                shared.slab.copy_out(run.clone(), from, place.start.add(copied), length);
            }
            copied += length;
            run.fold(false, |is_called, frame| shared.slab.unpin(frame) | is_called)
        };
        while index <= last {
            let Some(pinned) = shared.slab.pin(Block { file: self.id, index }) else { break };
            is_news |= pinned.is_first;
            if pinned.frame == run.end && !run.is_empty() {
                run.end += 1;
            } else {
                is_news |= copy(std::mem::replace(&mut run, pinned.frame..pinned.frame + 1));
            }
            index += 1;
        }
        is_news |= copy(run);
        if index > first {
            let reads = (first..index)
                .map(|index| Record { reader: self.reader, block: Block { file: self.id, index } });
            is_news |= shared.records.note(reads);
        }
        if is_news && copied == place.length {
            shared.look();
        }
        copied
    }

    /// Cases B to E.
    ///
    /// `before_waiting` is called once all that can be asked for has been. Says whether all is there: it was not
    /// given up.
    fn read_missing(
        &self,
        place: &Place,
        offset_bytes: u64,
        before_waiting: impl FnOnce(),
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ReadError> {
        let shared = &self.shared;
        let block_bytes = shared.block_bytes as u64;
        let end = offset_bytes + place.length as u64;
        let mut under_way = UnderWay { reads: VecDeque::new(), is_given_up: false };
        let mut at = offset_bytes;
        let mut before_waiting = Some(before_waiting);
        while at < end || !under_way.reads.is_empty() {
            if at < end && under_way.reads.len() < PARTS {
                let to =
                    end.min((at / PART_BYTES.max(block_bytes) + 1) * PART_BYTES.max(block_bytes));
                // SAFETY: this part of the place is lent to this read alone, and `under_way` waits for it, whatever
                // happens, before the loan of the place ends; or the read keeps it.
                let read = Arc::new(unsafe {
                    let start = place.start.add((at - offset_bytes) as usize);
                    let place = (start, place.keeper.clone());
                    Read::new(place, (at, (to - at) as usize), (self.id, self.reader), shared.now())
                });
                under_way.reads.push_back(Arc::clone(&read));
                shared.with_engine(|state, now, todo| {
                    state.engine.read(now, &read, at / block_bytes, todo);
                });
                read.settled(); // It is begun.
                at = to;
                continue;
            }
            if let Some(act) = before_waiting.take() {
                act();
            }
            let Some(read) = under_way.reads.front() else { break };
            if place.keeper.is_none() {
                read.wait();
            } else if !read.wait_unless(is_given_up) {
                under_way.is_given_up = true;
                return Ok(false);
            }
            if let Some((block, cause)) = read.take_error() {
                let mut reads = under_way.reads.iter();
                if place.keeper.is_some() && !reads.all(|read| read.wait_unless(is_given_up)) {
                    under_way.is_given_up = true;
                    return Ok(false);
                }
                let path = Arc::clone(&self.identity.path);
                let offset_bytes = block.index * block_bytes;
                return Err(ReadError { path, offset_bytes, cause });
            }
            under_way.reads.pop_front();
        }
        Ok(true)
    }
}

/// Discloses what will be read, in order. When it is dropped, what it has disclosed and nobody has read is
/// given up.
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
    /// Files that it has hinted, which stay open for it.
    files: Mutex<Vec<Arc<File>>>,
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
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.last().is_none_or(|last| last.id != file.id) {
            files.push(Arc::clone(file));
        }
        drop(files);
        self.shared.with_engine(|state, now, todo| {
            state.engine.hint(now, self.id, (file.id, extent, order), todo);
        });
    }

    /// Gives up what was disclosed and not read. More may be disclosed.
    pub fn cancel(&self) {
        self.shared.with_engine(|state, now, todo| state.engine.cancel(now, self.id, todo));
        let files = std::mem::take(&mut *self.files.lock().unwrap_or_else(PoisonError::into_inner));
        drop(files);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.with_engine(|state, now, todo| state.engine.close_stream(now, self.id, todo));
    }
}
