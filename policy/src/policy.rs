//! The policy: which blocks to prefetch, in which order, and when to stop.
//!
//! This is the policy of the first TIP prototype (TIP 1994, section 2), here called TIP-1:
//!
//! * **A. Hint order.** Hints are worked off in the order in which they were given, over all
//!   streams. A block is fetched once however many hints name it.
//! * **B. Lazy resolution.** A hint is looked up only when its turn comes. The driver does the
//!   lookup as a fetch of its own kind, so that metadata is prefetched like data, in parallel; at
//!   most `resolved_max` files of a device are looked up and not yet worked off.
//! * **C. A ceiling** on blocks prefetched (or on their way) and not read. A read of such a block
//!   makes room for the next.
//! * **D. Device slots.** At most `outstanding_max` fetches are under way at one device, and no more than
//!   are found to be good for it (`depth.rs`).
//!
//! Where it differs from the paper: it gives up on blocks that a stream's reader has left far behind
//! (case **E**, `skip_window_blocks`), so that a program that reads one block in ten of what it
//! disclosed does not fill the ceiling with the other nine for ever; and a demand read that overtakes
//! the prefetcher moves it on (case **F**), where the prototype would have fetched the block again
//! after its eviction. And since looking is not free on a machine whose cache belongs to somebody else,
//! it looks less often where nothing is to be done (case **G**): after [`DOZE_AFTER`] reads in a row
//! that found everything in memory, it passes over all but one in [`DOZE_STRIDE`] hints, until a fetch
//! or a stalled program says that there is something to do again.
//!
//! Last, a stream must earn its depth (case **H**): its blocks pending are bounded by a window of its own
//! that grows by a block for each one read and shrinks by one for each given up, so that a program that
//! reads a page of each file that it names does not have all of them fetched.
//!
//! Drivers call [`Policy::next_fetch`] whenever a device may have a free slot: after every hint,
//! read and completion. The policy never reads a clock, starts no fetch by itself, and cannot fail:
//! a driver that breaks the protocol (completes a fetch twice) trips an assertion.
//!
//! Not here: caching (what to evict is the kernel's business in this form), the order in which a
//! disk serves what it was given ([`crate::queue`]), and everything with a file descriptor.
//!
//! Cost: a hint is O(log n) in the hints waiting; a read or a fetched block is O(1) plus O(log u) in
//! the unread blocks; memory is one entry a waiting hint and one a block in flight or unread.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::contract::{Access, Config, Counts, Fetch, Outcome, Work};
use crate::costs::{Cost, Costs};
use crate::depth::DepthControl;
use crate::entry::{Entry, Resolution};
use crate::hint::{Block, DeviceId, FetchId, FileId, Hint, NameId, ReaderId, StreamId};
use crate::time::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    /// On its way, not asked for yet.
    InFlight,
    /// Arrived, not read yet.
    Unread,
}

#[derive(Clone, Copy, Debug)]
struct BlockEntry {
    state: BlockState,
    stream: StreamId,
    /// Place in the order in which blocks were handed out, over all streams.
    sequence: u64,
    /// The entry and the pass that asked for it.
    asked_by: (Ticket, u32),
    /// The fetch that brings it.
    fetch: FetchId,
}

/// Place of a hint in the order of arrival, over all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Ticket(u64);

#[derive(Debug, Default)]
struct Stream {
    tickets: BTreeSet<Ticket>,
    /// Its blocks in flight or unread, in the order in which they were handed out.
    pending: BTreeMap<u64, Block>,
    /// H: blocks read less blocks given up.
    balance: i64,
}

impl Stream {
    /// H: how many blocks may be pending.
    fn window_blocks(&self) -> u64 {
        WINDOW_FIRST.saturating_add_signed(self.balance).max(WINDOW_MIN)
    }
}

#[derive(Debug, Default)]
struct Device {
    outstanding: usize,
    /// Entries looked up, or being looked up, and not worked off.
    looked_up: usize,
    depth: DepthControl,
    /// Reads in a row that found everything in memory.
    cached_run: u32,
    /// Hints not looked up, in order.
    unresolved: BTreeSet<Ticket>,
    /// Hints looked up that have blocks left to fetch, in order.
    ready: BTreeSet<Ticket>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    device: DeviceId,
    started: Nanos,
    work: FlightWork,
}

#[derive(Clone, Copy, Debug)]
enum FlightWork {
    Resolve(Ticket),
    Read {
        file: FileId,
        first_block: u64,
        blocks: u64,
        first_sequence: u64,
        /// Blocks that were read without a stall before the fetch completed: they had arrived, or had
        /// been in memory all along, which the outcome will tell.
        read_early: u64,
    },
}

/// The policy object; see the [module](self).
#[derive(Debug)]
pub struct Policy {
    config: Config,
    entries: BTreeMap<Ticket, Entry>,
    streams: HashMap<StreamId, Stream>,
    devices: HashMap<DeviceId, Device>,
    blocks: HashMap<Block, BlockEntry>,
    /// Ready entries of a file, to find those that a demand read overtakes.
    ready_of_file: HashMap<FileId, Vec<Ticket>>,
    flights: HashMap<FetchId, Flight>,
    costs: Costs,
    counts: Counts,
    next_ticket: u64,
    next_stream: u64,
    next_fetch: u64,
    next_sequence: u64,
    dropped_names: Vec<NameId>,
}

/// A stream's window at first and at least, in blocks (case H).
const WINDOW_FIRST: u64 = 1024;
const WINDOW_MIN: u64 = 32;

/// Reads in a row that found everything in memory, after which hints are passed over.
pub const DOZE_AFTER: u32 = 32;

/// Of so many hints one is looked at while the others are passed over.
pub const DOZE_STRIDE: usize = 8;

/// How many entries that wait for their own earlier pass to be read are passed over in one call.
const BLOCKED_ENTRIES_MAX: usize = 16;

impl Policy {
    /// A policy that has been told nothing.
    ///
    /// # Panics
    /// If `block_bytes`, `ceiling_blocks`, `cluster_blocks_max`, `outstanding_max` or `resolved_max`
    /// is zero.
    pub fn new(config: Config) -> Self {
        assert!(config.block_bytes > 0 && config.ceiling_blocks > 0, "no blocks: {config:?}");
        assert!(config.cluster_blocks_max > 0 && config.outstanding_max > 0, "no I/O: {config:?}");
        assert!(config.resolved_max > 0, "no lookups: {config:?}");
        Policy {
            config,
            entries: BTreeMap::new(),
            streams: HashMap::new(),
            devices: HashMap::new(),
            blocks: HashMap::new(),
            ready_of_file: HashMap::new(),
            flights: HashMap::new(),
            costs: Costs::default(),
            counts: Counts::default(),
            next_ticket: 0,
            next_stream: 0,
            next_fetch: 0,
            next_sequence: 0,
            dropped_names: Vec::new(),
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What has become of hints and prefetches so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The costs observed so far.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Blocks in flight or unread: never above the ceiling.
    pub fn pending_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Names that will never be asked for, since the last call: their hints were cancelled or passed
    /// over. Every other name is asked for exactly once.
    pub fn take_dropped_names(&mut self) -> Vec<NameId> {
        std::mem::take(&mut self.dropped_names)
    }

    /// Hints that are not worked off.
    pub fn waiting_hints(&self) -> usize {
        self.entries.len()
    }

    /// Whether blocks of `file` are still to be fetched, so that its driver should keep it open.
    pub fn wants(&self, file: FileId) -> bool {
        self.ready_of_file.contains_key(&file)
    }

    /// Whether nothing is left to fetch and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.flights.is_empty()
    }

    /// A new stream.
    pub fn open_stream(&mut self, _now: Nanos) -> StreamId {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(id, Stream::default());
        id
    }

    /// Appends `hint` to `stream`. A hint for a stream that is closed is dropped.
    pub fn hint(&mut self, _now: Nanos, stream: StreamId, hint: Hint) {
        let Some(owner) = self.streams.get_mut(&stream) else { return };
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.counts.hints += 1;
        owner.tickets.insert(ticket);
        self.devices.entry(hint.device).or_default().unresolved.insert(ticket);
        self.entries.insert(ticket, Entry::new(stream, hint));
    }

    /// Forgets the hints of `stream` that are not worked off. Blocks already prefetched and unread
    /// count as wasted; fetches under way complete unnoticed.
    pub fn cancel(&mut self, _now: Nanos, stream: StreamId) {
        let Some(owner) = self.streams.get_mut(&stream) else { return };
        let tickets = std::mem::take(&mut owner.tickets);
        let pending = std::mem::take(&mut owner.pending);
        for ticket in tickets {
            self.remove_entry(ticket);
        }
        for block in pending.into_values() {
            match self.blocks.remove(&block).map(|known| known.state) {
                Some(BlockState::Unread) => self.counts.wasted += 1,
                Some(BlockState::InFlight) => self.counts.unfinished += 1,
                None => {}
            }
        }
        self.check();
    }

    /// Ends `stream`: [`cancel`](Self::cancel), and no more hints are taken.
    pub fn close(&mut self, now: Nanos, stream: StreamId) {
        self.cancel(now, stream);
        self.streams.remove(&stream);
    }

    /// Closes every stream.
    pub fn close_all(&mut self, now: Nanos) {
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in streams {
            self.close(now, stream);
        }
    }

    /// A program has read `block`. `stalled` says whether the call had to wait: a block that the
    /// driver has not yet reported, but for which nobody waited, had arrived.
    pub fn read(&mut self, _now: Nanos, _reader: ReaderId, block: Block, stalled: bool) -> Access {
        let Some(known) = self.blocks.remove(&block) else {
            if stalled {
                self.devices.values_mut().for_each(|device| device.cached_run = 0);
            }
            self.overtaken(block);
            return Access::Miss;
        };
        if let Some(stream) = self.streams.get_mut(&known.stream) {
            stream.pending.remove(&known.sequence);
            stream.balance += 1;
        }
        self.give_up_skipped(known.stream, known.sequence);
        self.check();
        match (known.state, stalled) {
            (BlockState::Unread, _) => self.counts.useful += 1,
            (BlockState::InFlight, true) => {
                self.counts.late += 1;
                return Access::InFlight;
            }
            (BlockState::InFlight, false) => self.read_early(known.fetch),
        }
        Access::Hit
    }

    fn read_early(&mut self, fetch: FetchId) {
        let flight = self.flights.get_mut(&fetch).expect("a block in flight has a flight");
        if let FlightWork::Read { read_early, .. } = &mut flight.work {
            *read_early += 1;
        }
    }

    /// The next thing `device` should do, or `None` if it has enough to do, nothing is left, or the
    /// ceiling is reached.
    pub fn next_fetch(&mut self, now: Nanos, device: DeviceId) -> Option<Fetch> {
        let slots = self.devices.get(&device)?;
        if slots.outstanding >= self.config.outstanding_max.min(slots.depth.depth()) {
            return None;
        }
        // A: data of an earlier hint before the lookup of a later one. Every ready entry is earlier
        // than every unresolved one, since lookups are asked for in order.
        self.next_read(now, device).or_else(|| self.next_resolve(now, device))
    }

    /// `fetch` has ended.
    ///
    /// # Panics
    /// If the fetch is not under way, or the outcome is not one for its kind of work.
    pub fn completed(&mut self, now: Nanos, fetch: FetchId, outcome: Outcome) {
        let flight = self.flights.remove(&fetch).expect("a fetch completes once");
        let device = self.devices.get_mut(&flight.device).expect("a device with a fetch is known");
        device.outstanding -= 1;
        match outcome {
            Outcome::AlreadyCached => device.cached_run += 1,
            Outcome::Fetched => device.cached_run = 0,
            _ => {}
        }
        device.depth.completed(now, flight.started, outcome == Outcome::Fetched);
        match (flight.work, outcome) {
            (FlightWork::Resolve(ticket), Outcome::Resolved { file, size_bytes }) => {
                self.resolved(flight.device, ticket, file, size_bytes);
            }
            (FlightWork::Resolve(ticket), outcome @ (Outcome::Refused | Outcome::Void)) => {
                match outcome {
                    Outcome::Void => self.counts.hints_void += 1,
                    _ => self.counts.hints_refused += 1,
                }
                self.device(flight.device).looked_up -= 1;
                self.remove_entry(ticket);
            }
            (
                FlightWork::Read { file, first_block, blocks, first_sequence, read_early },
                outcome,
            ) => {
                self.count_read_early(read_early, outcome);
                for offset in 0..blocks {
                    let block = Block { file, index: first_block + offset };
                    self.block_completed(block, first_sequence + offset, offset, outcome);
                }
            }
            (FlightWork::Resolve(_), _) => panic!("{outcome:?} is no outcome of a lookup"),
        }
        self.check();
    }

    /// Takes in a measured cost.
    pub fn observe(&mut self, device: DeviceId, cost: Cost, sample: Nanos) {
        self.costs.observe(device, cost, sample);
    }

    fn start(&mut self, now: Nanos, device: DeviceId, work: FlightWork) -> FetchId {
        let id = FetchId(self.next_fetch);
        self.next_fetch += 1;
        self.flights.insert(id, Flight { device, started: now, work });
        self.devices.entry(device).or_default().outstanding += 1;
        id
    }

    /// B: the first name not looked up.
    fn next_resolve(&mut self, now: Nanos, device: DeviceId) -> Option<Fetch> {
        let slots = self.devices.get(&device)?;
        if slots.looked_up >= self.config.resolved_max {
            return None;
        }
        if slots.cached_run >= DOZE_AFTER {
            self.pass_over(device);
        }
        let ticket = self.devices.get_mut(&device)?.unresolved.pop_first()?;
        let entry = self.entries.get_mut(&ticket).expect("an unresolved ticket has an entry");
        entry.resolution = Resolution::InFlight;
        let name = entry.hint.name;
        self.device(device).looked_up += 1;
        let id = self.start(now, device, FlightWork::Resolve(ticket));
        Some(Fetch { id, device, work: Work::Resolve { name } })
    }

    /// G: leaves the next hints of `device` out, but for the last of all.
    fn pass_over(&mut self, device: DeviceId) {
        for _ in 1..DOZE_STRIDE {
            let unresolved = &self.devices[&device].unresolved;
            let Some(&ticket) = unresolved.first().filter(|_| unresolved.len() > 1) else { return };
            self.counts.hints_passed_over += 1;
            self.remove_entry(ticket);
        }
    }

    /// The device of a hint.
    fn device(&mut self, device: DeviceId) -> &mut Device {
        self.devices.entry(device).or_default()
    }

    fn resolved(&mut self, device: DeviceId, ticket: Ticket, file: FileId, size_bytes: u64) {
        self.counts.hints_resolved += 1;
        let Some(entry) = self.entries.get_mut(&ticket) else {
            self.device(device).looked_up -= 1; // Cancelled while the lookup was under way.
            return;
        };
        entry.resolution = Resolution::File { file, size_bytes };
        self.counts.refused += entry.blocks_beyond_end(self.config.block_bytes);
        if entry.span(self.config.block_bytes).is_none() {
            self.remove_entry(ticket);
            return;
        }
        let device = entry.hint.device;
        self.ready_of_file.entry(file).or_default().push(ticket);
        self.devices.entry(device).or_default().ready.insert(ticket);
    }

    /// A, C: the first cluster of the first ready entry that has one to fetch.
    fn next_read(&mut self, now: Nanos, device: DeviceId) -> Option<Fetch> {
        let mut after = None;
        for _ in 0..BLOCKED_ENTRIES_MAX {
            if self.pending_blocks() >= self.config.ceiling_blocks {
                return None;
            }
            let ready = &self.devices.get(&device)?.ready;
            let ticket = match after {
                None => *ready.first()?,
                Some(ticket) => *ready.range(next_ticket_after(ticket)..).next()?,
            };
            if let Some(fetch) = self.cluster(now, device, ticket) {
                return Some(fetch);
            }
            // Worked off, and gone by now, or blocked by its own earlier pass.
            after = Some(ticket);
        }
        None
    }

    fn cluster(&mut self, now: Nanos, device: DeviceId, ticket: Ticket) -> Option<Fetch> {
        let room = self.config.ceiling_blocks - self.pending_blocks();
        let entry = self.entries.get_mut(&ticket).expect("a ready ticket has an entry");
        let stream = &self.streams[&entry.stream];
        let room_of_stream = stream.window_blocks().saturating_sub(stream.pending.len() as u64);
        if room_of_stream == 0 {
            return None;
        }
        let blocks_max = room.min(room_of_stream).min(self.config.cluster_blocks_max);
        let (span, first) = loop {
            let Some(span) = entry.span(self.config.block_bytes) else {
                self.remove_entry(ticket);
                return None;
            };
            let first = (span.first..span.end).find(|&index| {
                let known = self.blocks.get(&Block { file: span.file, index });
                known.is_none_or(|known| {
                    known.asked_by.0 == ticket && known.asked_by.1 < entry.pass()
                })
            });
            match first {
                Some(first) => break (span, first),
                None => entry.advance_to(span.end),
            }
        };
        if self.blocks.contains_key(&Block { file: span.file, index: first }) {
            entry.advance_to(first);
            return None; // The earlier pass has not been read yet; ask again later.
        }
        let end = (first + 1..span.end.min(first.saturating_add(blocks_max)))
            .find(|&index| self.blocks.contains_key(&Block { file: span.file, index }))
            .unwrap_or(span.end.min(first.saturating_add(blocks_max)));
        let (stream, asked_by) = (entry.stream, (ticket, entry.pass()));
        entry.advance_to(end);
        if entry.span(self.config.block_bytes).is_none() {
            self.remove_entry(ticket);
        }
        let first_sequence = self.next_sequence;
        let blocks = end - first;
        self.next_sequence += blocks;
        self.counts.prefetched += blocks;
        let file = span.file;
        let work =
            FlightWork::Read { file, first_block: first, blocks, first_sequence, read_early: 0 };
        let id = self.start(now, device, work);
        for offset in 0..blocks {
            let block = Block { file, index: first + offset };
            let sequence = first_sequence + offset;
            let state = BlockState::InFlight;
            let entry = BlockEntry { state, stream, sequence, asked_by, fetch: id };
            self.blocks.insert(block, entry);
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.pending.insert(sequence, block);
            }
        }
        self.check();
        let work = Work::Read { file, first_block: first, blocks };
        Some(Fetch { id, device, work })
    }

    fn count_read_early(&mut self, blocks: u64, outcome: Outcome) {
        match outcome {
            Outcome::AlreadyCached => {
                self.counts.prefetched -= blocks;
                self.counts.already_cached += blocks;
            }
            Outcome::Refused => self.counts.refused += blocks,
            _ => self.counts.useful += blocks,
        }
    }

    fn block_completed(&mut self, block: Block, sequence: u64, offset: u64, outcome: Outcome) {
        let in_flight = |known: &&mut BlockEntry| known.sequence == sequence;
        let Some(known) = self.blocks.get_mut(&block).filter(in_flight) else {
            return; // Read or given up while it was on its way; counted then.
        };
        let counter = match outcome {
            Outcome::Fetched => {
                known.state = BlockState::Unread;
                return;
            }
            Outcome::Short { blocks } if offset < blocks => {
                known.state = BlockState::Unread;
                return;
            }
            Outcome::AlreadyCached => {
                self.counts.prefetched -= 1;
                &mut self.counts.already_cached
            }
            Outcome::Short { .. } | Outcome::Refused => &mut self.counts.refused,
            Outcome::Resolved { .. } | Outcome::Void => {
                panic!("{outcome:?} is no outcome of a read")
            }
        };
        *counter += 1;
        let stream = known.stream;
        self.blocks.remove(&block);
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.pending.remove(&sequence);
        }
    }

    /// E: gives up what the reader of `stream` has left far behind.
    fn give_up_skipped(&mut self, stream: StreamId, read_sequence: u64) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        let window_blocks = self.config.skip_window_blocks.min(stream.window_blocks() / 2);
        let keep_from = read_sequence.saturating_sub(window_blocks);
        while let Some(first) = stream.pending.first_entry() {
            if *first.key() >= keep_from {
                break;
            }
            let block = first.remove();
            stream.balance -= 1;
            if self.blocks.remove(&block).is_some() {
                self.counts.wasted += 1;
            }
        }
    }

    /// F: moves the entries that were about to fetch `block` past it.
    fn overtaken(&mut self, block: Block) {
        let Some(tickets) = self.ready_of_file.get(&block.file) else { return };
        let mut done = Vec::new();
        for &ticket in tickets {
            let entry = self.entries.get_mut(&ticket).expect("a ready ticket has an entry");
            let before = entry.span(self.config.block_bytes).map(|span| span.first);
            entry.overtaken_at(block, self.config.block_bytes);
            let after = entry.span(self.config.block_bytes).map(|span| span.first);
            if before != after {
                self.counts.overtaken += 1;
            }
            if after.is_none() {
                done.push(ticket);
            }
        }
        for ticket in done {
            self.remove_entry(ticket);
        }
    }

    /// Takes an entry out of every index. A lookup under way stays counted until it completes.
    fn remove_entry(&mut self, ticket: Ticket) {
        let Some(entry) = self.entries.remove(&ticket) else { return };
        if let Some(stream) = self.streams.get_mut(&entry.stream) {
            stream.tickets.remove(&ticket);
        }
        let device = self.devices.entry(entry.hint.device).or_default();
        device.unresolved.remove(&ticket);
        device.ready.remove(&ticket);
        let file = match entry.resolution {
            Resolution::File { file, .. } => file,
            Resolution::Pending => return self.dropped_names.push(entry.hint.name),
            Resolution::InFlight => return,
        };
        device.looked_up -= 1;
        if let Some(tickets) = self.ready_of_file.get_mut(&file) {
            tickets.retain(|&other| other != ticket);
            if tickets.is_empty() {
                self.ready_of_file.remove(&file);
            }
        }
    }

    /// The invariants that are cheap enough for every call in debug builds.
    fn check(&self) {
        debug_assert!(self.pending_blocks() <= self.config.ceiling_blocks, "over the ceiling");
    }
}

fn next_ticket_after(ticket: Ticket) -> Ticket {
    Ticket(ticket.0 + 1)
}

#[cfg(test)]
mod tests;
