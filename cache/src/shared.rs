//! The state that all handles of a cache share, and the driver around its engine: the lock, the clock, and work to be done.
//!
//! [`Shared::with_engine`] is the way to the engine for all calls. It takes the lock, tells the policy which reads have been
//! noted, acts, gives the lock up, and then carries out what the engine wants done (a [`Todo`]). Files released on the way are
//! dropped after the lock is given up, too, since closing one may take a while.
//!
//! Reads of blocks that are in frames do not come here: [`file`](crate::file) notes them in [`Records`]. The policy is told of
//! them when a shard of notes is full, when a thread takes the engine's lock anyway, or at once if one of the blocks had been
//! fetched ahead: reading it makes room for another prefetch. A thread that has news and finds the engine locked sets a flag
//! ([`Shared::look`]) and goes on; the thread that holds the lock checks the flag before it leaves.
//!
//! One call of the engine is bounded. If it leaves a search unfinished, the thread calls again ([`Shared::go_on`]). In between
//! it gives up the lock, and threads that wait for it go first.
//!
//! A back end may complete a request within `start`, and completing it may start the next. Such work is put in a queue of the
//! thread, not on its stack.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use foretell_policy::{FileId, Nanos, ReaderId};

use crate::backend::{Object, Request};
use crate::engine::{Delivery, Engine, Start, Todo};
use crate::read_ahead::ReadAhead;
use crate::records::{Record, Records};
use crate::slab::{Frame, Slab};

/// Closed files to remember, for each frame. A file without a block in a frame is not worth remembering, and a
/// frame has one block.
const CLOSED_PER_FRAME: usize = 1;

/// The table of hinted files shrinks when less than one entry in this many is in use.
const HINTED_USED_DIVISOR: usize = 8;

/// Most times that a thread with an unfinished search lets other threads go first, so that it ends while many others call.
const YIELDS_MAX: usize = 100;

/// The key of a file, which finds its blocks again when it is opened anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) device: usize,
    pub(crate) path: Arc<str>,
    pub(crate) version: Arc<[u8]>,
}

/// Files by identity.
#[derive(Default)]
struct Known {
    files: HashMap<Identity, FileId>,
    /// Closed files by turn, oldest first. A file gets a new turn each time that it is closed.
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

    /// The file is not closed any more.
    fn opened(&mut self, file: FileId) {
        if let Some(turn) = self.turns.remove(&file) {
            self.closed.remove(&turn);
        }
    }
}

/// Objects to be dropped after the engine's lock is given up, since closing one may take a while.
type Objects = Vec<Arc<dyn Object>>;

pub(crate) struct State {
    pub(crate) engine: Engine,
    known: Known,
    /// Files with unread hints. Each is held once, however many streams hint it.
    pub(crate) hinted: HashMap<FileId, Identity>,
    /// Whether a thread is in [`Shared::go_on`].
    is_gone_on_with: bool,
    /// Scratch space of [`Shared::tell`].
    records: Vec<Record>,
}

impl State {
    /// Whether this thread must [go on](Shared::go_on): the engine has left a search unfinished, and no other thread does.
    fn takes_over(&mut self) -> bool {
        let takes_over = self.engine.has_more() && !self.is_gone_on_with;
        self.is_gone_on_with |= takes_over;
        takes_over
    }

    /// Opens a file for one more handle. Returns its number, and its size as the engine keeps it up to date.
    pub(crate) fn open(
        &mut self,
        identity: &Identity,
        size_bytes: u64,
        object: Arc<dyn Object>,
    ) -> (FileId, Arc<AtomicU64>) {
        let known = self.known.files.get(identity).copied();
        let id = match known {
            Some(id) => {
                if !self.engine.hold(id) {
                    self.engine.reopen_file(id, identity.device, size_bytes, object);
                }
                self.known.opened(id);
                id
            }
            None => self.engine.add_file(identity.device, size_bytes, object),
        };
        self.known.files.insert(identity.clone(), id);
        (id, self.engine.size_of(id))
    }

    /// Keeps a file that is about to be hinted open until no hint is about it any more. The caller holds the file.
    pub(crate) fn hold_hinted(&mut self, file: FileId, identity: &Identity) {
        if !self.hinted.contains_key(&file) && self.engine.hold(file) {
            self.hinted.insert(file, identity.clone());
        }
    }

    /// Releases the files that no hint is about any more. At most `most` closed files are remembered.
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

    /// Ends one hold of a file. The last one closes it; at most `most` closed files are remembered.
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
    /// Reads have been noted that the policy should hear of soon.
    is_news: AtomicBool,
    /// Threads that wait for the engine.
    waiting: AtomicUsize,
    /// Held by the thread that takes frames out of use or puts them back.
    pub(crate) resizing: Mutex<()>,
    /// Whether frames are out of use.
    pub(crate) is_limited: AtomicBool,
    clock: Instant,
    next_reader: AtomicU64,
}

/// Work to be done, and the cache that it is for.
type Work = VecDeque<(Arc<Shared>, Todo)>;

thread_local! {
    /// Work that came up while this thread was carrying out other work; `None` while it carries out none.
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
}

impl Shared {
    pub(crate) fn new(slab: Slab, block_bytes: usize) -> Self {
        let slab = Arc::new(slab);
        let engine = Engine::new(Arc::clone(&slab), block_bytes);
        let state = State {
            engine,
            known: Known::default(),
            hinted: HashMap::new(),
            is_gone_on_with: false,
            records: Vec::new(),
        };
        Shared {
            slab,
            block_bytes,
            state: Mutex::new(state),
            records: Records::default(),
            is_news: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            resizing: Mutex::default(),
            is_limited: AtomicBool::new(false),
            clock: Instant::now(),
            next_reader: AtomicU64::new(1),
        }
    }

    /// A reader's number that no other reader of the cache has.
    pub(crate) fn new_reader(&self) -> ReaderId {
        ReaderId(self.next_reader.fetch_add(1, Ordering::Relaxed))
    }

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

    /// Calls `act` with the engine locked, and then carries out what the engine wants done.
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

    /// Gives up the lock of the engine, and carries out what it wants done.
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
            let mut yields = 0;
            while self.waiting.load(Ordering::Relaxed) > 0 && yields < YIELDS_MAX {
                std::thread::yield_now();
                yields += 1;
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

    /// Tells the policy what was noted. If another thread has the engine locked, that thread will do so.
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

    /// Number of closed files to remember.
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
        // Blocks for one read that are adjacent both in the file and in memory are one copy.
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
            // SAFETY: the read's destination is lent until the read has settled, and this part of it is for these blocks.
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

    /// Closes a handle, and the stream of its read-ahead.
    pub(crate) fn close_file(self: &Arc<Self>, identity: Identity, id: FileId, ahead: &ReadAhead) {
        let most = self.closed_max();
        let object = self.with_engine(|state, now, todo| {
            if let Some(stream) = ahead.close(state.engine.guess(id).credit) {
                state.engine.close_stream(now, stream, todo);
            }
            state.release(id, identity, most)
        });
        drop(object); // Not under the engine's lock: it may take a while.
    }

    fn start(self: &Arc<Self>, start: Start) {
        let (shared, id) = (Arc::clone(self), start.id);
        let done = Box::new(move |result| {
            shared.with_engine(|state, now, todo| state.engine.completed(now, id, result, todo));
        });
        // SAFETY: the parts are frames that the engine has reserved for this request, or memory of a read that waits for it,
        // until the engine hears that the request has ended. `done` tells it.
        let request =
            unsafe { Request::new(start.offset_bytes, start.is_demand, start.parts, done) };
        start.object.start(request);
    }
}
