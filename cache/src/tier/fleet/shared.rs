//! What the threads of a shared tier have in common: queues of blocks to ask for and to put, leases, and counts.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::trouble::Teller;
use super::FleetTrouble;
use super::address::Address;
use super::away::Trouble;
use super::block::Block;
use super::counts::Counts;
use super::format::{Checks, FileId, Token};
use super::orders::Orders;
use super::server::{Known, Node, Probed};

/// Bytes that wait to be put, at most. More are not put.
const STAGED_MAX_BYTES: usize = 64 << 20;
/// Bytes that one exchange asks for, or puts, at most; one block at least.
const BATCH_BYTES: usize = 2 << 20;
/// Blocks of one exchange, at most.
const BATCH_BLOCKS: usize = 128;
/// Leases that are extended or given back in one exchange, at most.
const LEASES_MAX: usize = 1024;
/// A lease is extended when this part of it has passed.
const EXTENDED_AFTER: u32 = 3;
/// How long closing the tier goes on to put what has come.
const END_PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// A block that has come from the origin, to be put.
pub(super) struct Put {
    pub(super) file: FileId,
    pub(super) index: u64,
    pub(super) key: String,
    /// Not sealed yet.
    pub(super) value: Vec<u8>,
    pub(super) _staged: Staged,
}

/// Bytes that wait to be put, those that are on their way to the server among them.
#[derive(Default)]
struct Staging {
    bytes: Mutex<usize>,
    is_settled: Condvar,
}

/// A part of these bytes, until it is dropped: whatever becomes of a put, they are counted once.
pub(super) struct Staged {
    staging: Arc<Staging>,
    bytes: usize,
}

impl Staging {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        *self.staging.lock() -= self.bytes;
        self.staging.is_settled.notify_all();
    }
}

/// What a thread takes on at a time.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) claims: Vec<Block>,
    pub(super) puts: Vec<Put>,
    /// Leases to give back.
    pub(super) released: Vec<String>,
    /// Leases of blocks that have come and are not put.
    pub(super) unkept: Vec<String>,
    /// Leases to extend.
    pub(super) extended: Vec<String>,
    /// F. Blocks to delete.
    pub(super) deleted: Vec<String>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.claims.is_empty()
            && self.puts.is_empty()
            && self.released.is_empty()
            && self.unkept.is_empty()
            && self.extended.is_empty()
            && self.deleted.is_empty()
    }
}

/// The next work of a thread.
pub(super) enum Next {
    /// An exchange with the server.
    Exchange(Batch),
    /// E. To be fetched from the origin.
    Straight(Vec<Block>),
    /// E. To find out whether these nodes of a cluster are back, or the server, if there are none of these.
    Probe(Vec<Node>),
    /// F. To publish what is disclosed here, and to learn what is elsewhere.
    Orders,
}

struct State {
    demand: VecDeque<Block>,
    ahead: VecDeque<Block>,
    /// C. By when they are to be asked for again.
    waiting: BTreeMap<(Instant, u64), Block>,
    next_wait: u64,
    puts: VecDeque<Put>,
    /// Whether puts and leases go with the next blocks that programs wait for.
    is_puts_turn: bool,
    /// Leases of this node, and when they were got or extended.
    held: HashMap<String, Instant>,
    released: Vec<String>,
    unkept: Vec<String>,
    look_at_held: Instant,
    /// F. Blocks to delete.
    deleted: Vec<String>,
    /// F. When orders are to be published, if there are any.
    orders_due: Option<Instant>,
    /// E. With all nodes.
    trouble: Trouble,
    /// E. With some.
    nodes: HashMap<Node, Trouble>,
    known: Arc<Known>,
    is_closed: bool,
    closed_at: Option<Instant>,
    /// The last failure, for a listener that comes later.
    failure: Option<String>,
}

/// See the [module](self).
pub(super) struct Shared {
    pub(super) address: Arc<Address>,
    pub(super) block_bytes: usize,
    pub(super) checks: Checks,
    pub(super) token: Token,
    pub(super) counts: Counts,
    pub(super) teller: Teller<FleetTrouble>,
    orders: Mutex<Orders>,
    state: Mutex<State>,
    staging: Arc<Staging>,
    is_more: Condvar,
    is_away: AtomicBool,
}

impl Shared {
    pub(super) fn new(address: Address, block_bytes: usize) -> Self {
        // `RandomState` takes its keys from the system's random numbers.
        let [one, other] = [(); 2].map(|()| RandomState::new().hash_one(std::process::id()));
        let mut token = [0; 16];
        token[..8].copy_from_slice(&one.to_le_bytes());
        token[8..].copy_from_slice(&other.to_le_bytes());
        let state = State {
            demand: VecDeque::new(),
            ahead: VecDeque::new(),
            waiting: BTreeMap::new(),
            next_wait: 0,
            puts: VecDeque::new(),
            is_puts_turn: false,
            held: HashMap::new(),
            released: Vec::new(),
            unkept: Vec::new(),
            look_at_held: Instant::now(),
            deleted: Vec::new(),
            orders_due: None,
            trouble: Trouble::new(),
            nodes: HashMap::new(),
            known: Arc::default(),
            is_closed: false,
            closed_at: None,
            failure: None,
        };
        Shared {
            orders: Mutex::new(Orders::new(&token)),
            checks: Checks::new(address.secret.as_deref()),
            address: Arc::new(address),
            block_bytes,
            token,
            counts: Counts::default(),
            teller: Teller::default(),
            state: Mutex::new(state),
            staging: Arc::default(),
            is_more: Condvar::new(),
            is_away: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// F. What is disclosed on all machines. Not to be locked together with the state.
    pub(super) fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// F. There may be something to publish.
    pub(super) fn wakes_for_orders(&self) {
        let pause = self.orders().pause();
        let mut state = self.lock();
        if state.orders_due.is_none() {
            state.orders_due = Some(Instant::now() + pause);
            drop(state);
            self.is_more.notify_one();
        }
    }

    /// F. Deletes blocks, in the background.
    pub(super) fn delete(&self, keys: Vec<String>) {
        if !keys.is_empty() {
            self.lock().deleted.extend(keys);
            self.is_more.notify_one();
        }
    }

    /// E. Whether the server is left alone, or all nodes of the cluster are.
    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Blocks that came from the origin without a detour.
    pub(super) fn count_missed(&self, blocks: usize) {
        count(&self.counts.missed, blocks);
    }

    /// Queues blocks to be asked for. They are handed back if the tier is closed or its server is away.
    pub(super) fn ask(&self, blocks: Vec<Block>, is_demand: bool) -> Result<(), Vec<Block>> {
        let mut state = self.lock();
        if state.is_closed || self.is_away() {
            return Err(blocks);
        }
        match is_demand {
            true => state.demand.extend(blocks),
            false => state.ahead.extend(blocks),
        }
        drop(state);
        self.is_more.notify_one();
        Ok(())
    }

    /// C. Queues a block to be asked for again, the later the longer it has been waited for.
    pub(super) fn wait(&self, block: Block, pause: Duration) {
        let mut state = self.lock();
        state.next_wait += 1;
        let number = state.next_wait;
        state.waiting.insert((Instant::now() + pause, number), block);
        drop(state);
        self.is_more.notify_one();
    }

    /// Takes room for so many more bytes that wait to be put, if there is any.
    pub(super) fn stage(&self, bytes: usize) -> Option<Staged> {
        if self.lock().is_closed || self.is_away() {
            return None;
        }
        let mut staged = self.staging.lock();
        if *staged + bytes > STAGED_MAX_BYTES {
            return None;
        }
        *staged += bytes;
        Some(Staged { staging: Arc::clone(&self.staging), bytes })
    }

    pub(super) fn put(&self, put: Put) {
        self.lock().puts.push_back(put);
        self.is_more.notify_one();
    }

    /// Notes that this node has a lease now. Returns whether it had it before.
    pub(super) fn note_lease(&self, key: String) -> bool {
        let had = self.lock().held.insert(key, Instant::now()).is_some();
        count(&self.counts.leases, usize::from(!had));
        had
    }

    /// Whether this node has a lease.
    pub(super) fn holds(&self, key: &str) -> bool {
        self.lock().held.contains_key(key)
    }

    /// Gives leases back, in the background.
    pub(super) fn release(&self, keys: impl Iterator<Item = String>) {
        let mut state = self.lock();
        for key in keys {
            if state.held.remove(&key).is_some() {
                state.released.push(key);
            }
        }
        drop(state);
        self.is_more.notify_one();
    }

    /// F. Gives leases of blocks back that have come, and are not put. Nodes that wait for them need not get a lease each.
    pub(super) fn release_unkept(&self, keys: impl Iterator<Item = String>) {
        let mut state = self.lock();
        for key in keys {
            state.held.remove(&key);
            state.unkept.push(key);
        }
        drop(state);
        self.is_more.notify_one();
    }

    /// Forgets leases: the keys have their values, or the leases are lost.
    pub(super) fn forget_leases<'a>(&self, keys: impl Iterator<Item = &'a str>) {
        let mut state = self.lock();
        for key in keys {
            state.held.remove(key);
        }
    }

    /// A thread has panicked. What it was about to do for leases and probes is not done.
    pub(super) fn recover(&self) {
        let mut state = self.lock();
        state.give_leases_back();
        state.trouble.is_probing = false;
        state.nodes.values_mut().for_each(|node| node.is_probing = false);
        drop(state);
        self.is_more.notify_all();
    }

    /// E. The server has failed, or all nodes have: it is left alone for a while.
    pub(super) fn note_failure(&self, why: String) {
        count(&self.counts.server_errors, 1);
        let mut state = self.lock();
        state.trouble.begin();
        state.nodes.values_mut().for_each(|node| node.is_probing = false);
        self.is_away.store(true, Ordering::Relaxed);
        state.failure = Some(why.clone());
        drop(state);
        self.is_more.notify_all();
        self.teller.tell(&FleetTrouble::Away { shown: self.address.shown.clone(), why });
    }

    /// E. A node has failed: it is left alone for a while. Blocks of other nodes are shared as before.
    pub(super) fn note_node_failure(&self, node: Node, why: String, all: &[Node]) {
        let mut state = self.lock();
        state.nodes.entry(node).or_insert_with(Trouble::new).begin();
        state.renew_known();
        let is_away = |node: &Node| state.nodes.get(node).is_some_and(|trouble| trouble.is_away);
        if all.iter().all(is_away) {
            drop(state);
            return self.note_failure(why);
        }
        state.failure = Some(why.clone());
        drop(state);
        count(&self.counts.server_errors, 1);
        self.is_more.notify_all();
        self.teller.tell(&FleetTrouble::Away { shown: self.address.shown.clone(), why });
    }

    /// E. A probe has found a server, or nodes.
    pub(super) fn note_back(&self, Probed { answered, gone }: Probed) {
        if answered.is_empty() && gone.is_empty() {
            return;
        }
        self.orders().publish_anew();
        let mut state = self.lock();
        for node in answered {
            if let Some(trouble) = state.nodes.get_mut(&node) {
                trouble.note_back();
            }
        }
        state.nodes.retain(|node, _| !gone.contains(node));
        if state.trouble.is_away {
            state.trouble.note_back();
            self.is_away.store(false, Ordering::Relaxed);
        }
        state.renew_known();
        if state.known.away.is_empty() {
            state.failure = None;
        }
        state.orders_due = Some(Instant::now());
        drop(state);
        self.is_more.notify_all();
    }

    /// E. An exchange went well.
    pub(super) fn note_success(&self) {
        let (now, mut state) = (Instant::now(), self.lock());
        state.trouble.note_success(now);
        state.nodes.values_mut().for_each(|trouble| trouble.note_success(now));
    }

    /// E. Which nodes are left alone.
    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.lock().known)
    }

    /// Tells a listener of what happened before it came.
    pub(super) fn tell_again(&self) {
        let failure = self.lock().failure.clone();
        if let Some(why) = failure {
            self.teller.tell(&FleetTrouble::Away { shown: self.address.shown.clone(), why });
        }
    }

    /// D. A value failed its check.
    pub(super) fn note_refusal(&self) {
        let so_far = self.counts.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let shown = self.address.shown.clone();
        self.teller.tell(&FleetTrouble::Refused { shown, so_far });
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        (state.is_closed, state.closed_at) = (true, Some(Instant::now()));
        drop(state);
        self.is_more.notify_all();
    }

    pub(super) fn settle(&self) {
        let mut staged = self.staging.lock();
        while *staged > 0 {
            let waited = self.staging.is_settled.wait(staged);
            staged = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the next work; `None` if there will be no more.
    pub(super) fn next(&self) -> Option<Next> {
        let mut state = self.lock();
        loop {
            let next = match self.is_away() {
                true => self.next_while_away(&mut state),
                false => self.next_exchange(&mut state),
            };
            if let Some(next) = next {
                // What came at once woke one thread, but may be work for several.
                if state.has_more() {
                    self.is_more.notify_one();
                }
                return Some(next);
            }
            if state.is_closed {
                return None;
            }
            state = self.wait_for_more(state);
        }
    }

    /// E. Work that needs no server, and the next probe.
    fn next_while_away(&self, state: &mut State) -> Option<Next> {
        let blocks = state.all_blocks();
        if !blocks.is_empty() {
            return Some(Next::Straight(blocks));
        }
        count(&self.counts.dropped, state.forget());
        if state.is_closed || !state.trouble.is_due() {
            return None;
        }
        state.trouble.is_probing = true;
        Some(Next::Probe(Vec::new()))
    }

    fn next_exchange(&self, state: &mut State) -> Option<Next> {
        if state.is_closed {
            let blocks = state.all_blocks();
            if !blocks.is_empty() {
                return Some(Next::Straight(blocks));
            }
            // Other nodes are not to wait for the deadlines of what is still being fetched here.
            state.give_leases_back();
            if state.closed_at.is_some_and(|at| at.elapsed() > END_PATIENCE) {
                count(&self.counts.dropped, state.forget());
            }
        } else {
            let due = state.nodes_due();
            if !due.is_empty() {
                return Some(Next::Probe(due));
            }
            if state.orders_due.is_some_and(|due| Instant::now() >= due) {
                state.orders_due = None;
                return Some(Next::Orders);
            }
        }
        let batch = state.batch(self.block_bytes, self.address.lease);
        (!batch.is_empty()).then_some(Next::Exchange(batch))
    }

    fn wait_for_more<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let until = match self.is_away() {
            // The probe's end is told.
            true if state.trouble.is_probing => None,
            true => state.trouble.pause.until,
            false => state.next_event(self.address.lease),
        };
        let Some(until) = until else {
            return self.is_more.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        // A bit longer than that: a pause is over after its end.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(100);
        self.is_more.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl State {
    /// All blocks that are to be asked for.
    fn all_blocks(&mut self) -> Vec<Block> {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        self.demand.drain(..).chain(self.ahead.drain(..)).chain(waiting).collect()
    }

    /// Gives up puts and leases. Returns the number of blocks that are not put.
    fn forget(&mut self) -> usize {
        self.held.clear();
        self.released.clear();
        self.unkept.clear();
        self.deleted.clear();
        std::mem::take(&mut self.puts).len()
    }

    /// Gives leases back, except those of blocks that are queued to be put.
    fn give_leases_back(&mut self) {
        let puts: HashSet<&str> = self.puts.iter().map(|put| put.key.as_str()).collect();
        let held = std::mem::take(&mut self.held);
        let (kept, given) = held.into_iter().partition(|(key, _)| puts.contains(key.as_str()));
        self.held = kept;
        self.released.extend(HashMap::into_keys(given));
    }

    /// E. Nodes that are to be probed now.
    fn nodes_due(&mut self) -> Vec<Node> {
        let due = self.nodes.iter_mut().filter(|(_, trouble)| trouble.is_due());
        due.map(|(node, trouble)| {
            trouble.is_probing = true;
            node.clone()
        })
        .collect()
    }

    /// E. Has the threads know which nodes are left alone, if that has changed.
    fn renew_known(&mut self) {
        let away = self.nodes.iter().filter(|(_, trouble)| trouble.is_away);
        let away: HashSet<Node> = away.map(|(node, _)| node.clone()).collect();
        if away != self.known.away {
            self.known = Arc::new(Known { away, version: self.known.version + 1 });
        }
    }

    /// Whether there is work for another thread now. Blocks that are due again wake one by themselves.
    fn has_more(&self) -> bool {
        !(self.demand.is_empty()
            && self.ahead.is_empty()
            && self.puts.is_empty()
            && self.released.is_empty()
            && self.unkept.is_empty()
            && self.deleted.is_empty())
    }

    /// The next work, in this order: blocks that programs wait for; puts and leases, for which others wait; blocks that are
    /// due again; blocks ahead of programs.
    ///
    /// The replies of an exchange come all at once. So blocks that programs wait for go alone, but every other time: puts and
    /// leases are not to starve.
    fn batch(&mut self, block_bytes: usize, lease: Duration) -> Batch {
        let now = Instant::now();
        let most = (BATCH_BYTES / block_bytes).clamp(1, BATCH_BLOCKS);
        let mut batch = Batch::default();
        while batch.claims.len() < most
            && let Some(block) = self.demand.pop_front()
        {
            batch.claims.push(block);
        }
        self.is_puts_turn = !batch.claims.is_empty() && !self.is_puts_turn;
        if self.is_puts_turn {
            return batch;
        }
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some(put) = self.puts.pop_front()
        {
            bytes += put.value.len();
            batch.puts.push(put);
        }
        let released = self.released.len().min(LEASES_MAX);
        batch.released = self.released.drain(..released).collect();
        let unkept = self.unkept.len().min(LEASES_MAX);
        batch.unkept = self.unkept.drain(..unkept).collect();
        let deleted = self.deleted.len().min(LEASES_MAX);
        batch.deleted = self.deleted.drain(..deleted).collect();
        if now >= self.look_at_held && !self.held.is_empty() {
            let is_due = |at: &Instant| now.duration_since(*at) > lease / EXTENDED_AFTER;
            let due = self.held.iter_mut().filter(|(_, at)| is_due(at)).take(LEASES_MAX);
            batch.extended = due
                .map(|(key, at)| {
                    *at = now;
                    key.clone()
                })
                .collect();
            // If these are as many as there may be, there are more.
            if batch.extended.len() < LEASES_MAX {
                self.look_at_held = now + lease / (2 * EXTENDED_AFTER);
            }
        }
        while batch.claims.len() < most
            && let Some(first) = self.waiting.first_entry()
            && first.key().0 <= now
        {
            batch.claims.push(first.remove());
        }
        while batch.claims.len() < most
            && let Some(block) = self.ahead.pop_front()
        {
            batch.claims.push(block);
        }
        batch
    }

    /// When there will be something to do if nothing comes.
    fn next_event(&self, lease: Duration) -> Option<Instant> {
        let due = self.waiting.first_key_value().map(|((due, _), _)| *due);
        let look = self.look_at_held.max(Instant::now() + lease / (8 * EXTENDED_AFTER));
        let look = (!self.held.is_empty()).then_some(look);
        let away = self.nodes.values().filter(|node| node.is_away && !node.is_probing);
        let probe = away.filter_map(|node| node.pause.until).min();
        [due, look, probe, self.orders_due].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
