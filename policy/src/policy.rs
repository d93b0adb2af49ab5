//! The policy: which blocks to prefetch, which to keep, and which to let go.
//!
//! This is TIP's informed caching and prefetching by cost and benefit (TIP 1995, sections 4 and 5) and,
//! by [`Rules`](crate::rules), its relatives. Buffers move one at a time between three uses: blocks that
//! were read lately, blocks that hints say will be read again, and blocks fetched ahead. The parts, each of which uses only
//! those after it:
//!
//! * this file and `policy/`: the face, and what a read, a hint and the end of a fetch do to the parts;
//! * `prefetcher.rs`: what fetching a block is worth, against the cheapest buffer;
//! * `buffers/`: what a block in memory is worth (the estimators), and which one makes room (the arbiter);
//! * `devices/`: what is under way at a device, how fast it is, and what it costs;
//! * `streams/`: hints, positions, and how far the reader has come;
//! * `blocks/`: the table of blocks in memory or on their way;
//! * `tables/`: hashing, a heap, and containers.
//!
//! Names are looked up lazily (case **L**): the driver does a lookup as a fetch of its own kind, so that
//! metadata is prefetched like data, in parallel; files looked up and not read yet are bounded for each
//! device.
//!
//! Looking is not free where the cache belongs to somebody else (case **G**): after [`DOZE_AFTER`] reads in
//! a row that found everything in memory, all but one in [`DOZE_STRIDE`] hints are passed over, until a
//! fetch or a stalled program says that there is something to do again.
//!
//! Drivers call [`Policy::next_fetch`] whenever a device may have a free slot: after every hint, read and
//! completion. The policy never reads a clock, starts no fetch by itself, and cannot fail: a driver that
//! breaks the protocol (completes a fetch twice) trips an assertion.
//!
//! Not here: the order in which a disk serves what it was given ([`crate::devices::queue`]), and everything with
//! a file descriptor.

mod events;
mod lookups;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::blocks::{DeviceIndex, LOADED_MAX, Queue, SlotId, StreamIndex};
use crate::buffers::arbiter::{Arbiter, Need};
use crate::contract::{Access, Config, Counts, Fetch, Memory, Outcome, Reason, Work};
use crate::decisions::Decision;
use crate::devices::costs::Cost;
use crate::devices::depth::Purpose;
use crate::devices::device::Device;
use crate::devices::flights::{Demand, FlightWork, Flights};
use crate::hint::{
    Block, DeviceId, FetchId, FileId, Hint, HinterId, NameId, ReaderId, StreamId, Target,
};
use crate::prefetcher::{self, Prefetcher};
use crate::rules::Prefetch;
use crate::streams::stream::{Fit, Limits, Stream, Waiting};
use crate::tables::hash::Mix;
use crate::time::Nanos;

/// Reads in a row that found everything in memory, after which hints are passed over.
pub const DOZE_AFTER: u32 = 32;

/// Of so many hints one is looked at while the others are passed over.
pub const DOZE_STRIDE: usize = 8;

/// Blocks that one call of [`Policy::prepare`] looks at.
pub const PREPARED_MAX: usize = LOADED_MAX;

/// Readers whose streams are known, at least, before some are forgotten.
const READERS_MIN: usize = 1024;

/// How far from its place a read may be, as a divisor of the capacity, and its bounds.
const WINDOW_DIVISOR: u64 = 4;
const WINDOW_BLOCKS: std::ops::RangeInclusive<u64> = 64..=65_536;

/// Accesses placed ahead of a stream's front, in capacities, and at least.
const PLACED_CAPACITIES: u64 = 16;
const PLACED_MIN: u64 = 1 << 20;

/// What a driver hears when it asks what a device should do; see [`Policy::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This. There may be more.
    Fetch(Fetch),
    /// Nothing yet, but the policy has not looked at everything: ask again, before waiting for an event.
    More,
    /// Nothing, until an event or time changes that.
    Nothing,
}

/// The policy object; see the [module](self).
#[derive(Debug)]
pub struct Policy {
    config: Config,
    arbiter: Arbiter,
    prefetcher: Prefetcher,
    /// All but those that the arbiter counts.
    counts: Counts,
    devices: Vec<Device>,
    device_ids: HashMap<DeviceId, DeviceIndex, Mix>,
    stream_ids: HashMap<StreamId, StreamIndex, Mix>,
    flights: Flights,
    /// The stream that a reader's last hinted read was one of.
    last_stream: HashMap<ReaderId, StreamIndex, Mix>,
    /// From so many readers on, some are forgotten.
    readers_max: usize,
    /// The read that found nothing, for the demand that follows.
    missed: Option<(Block, Demand)>,
    /// The streams whose placing was broken off.
    unplaced: VecDeque<StreamIndex>,
    next_ticket: u64,
    next_stream: u64,
    dropped_names: Vec<NameId>,
    /// Scratch space of single calls.
    untracked: Vec<SlotId>,
    settled: Vec<StreamIndex>,
    waiting_done: Vec<Waiting>,
    #[cfg(debug_assertions)]
    checks: u64,
}

impl Policy {
    /// A policy that has been told nothing.
    ///
    /// # Panics
    /// If `block_bytes`, `capacity_blocks`, `cluster_blocks_max`, `outstanding_max` or `resolved_max`
    /// is zero. Calls that name a device panic where they have named 65,536 others; those that bring a block where 2³¹ − 1 are
    /// in memory.
    pub fn new(config: Config) -> Self {
        assert!(config.block_bytes > 0 && config.capacity_blocks > 0, "no blocks: {config:?}");
        assert!(config.cluster_blocks_max > 0 && config.outstanding_max > 0, "no I/O: {config:?}");
        assert!(config.resolved_max > 0, "no lookups: {config:?}");
        Policy {
            arbiter: Arbiter::new(&config),
            prefetcher: Prefetcher::new(&config),
            counts: Counts::default(),
            config,
            devices: Vec::new(),
            device_ids: HashMap::with_hasher(Mix),
            stream_ids: HashMap::with_hasher(Mix),
            flights: Flights::default(),
            last_stream: HashMap::with_hasher(Mix),
            readers_max: READERS_MIN,
            missed: None,
            unplaced: VecDeque::new(),
            next_ticket: 0,
            next_stream: 0,
            dropped_names: Vec::new(),
            untracked: Vec::new(),
            settled: Vec::new(),
            waiting_done: Vec::new(),
            #[cfg(debug_assertions)]
            checks: 0,
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What has become of hints and prefetches so far.
    pub fn counts(&self) -> Counts {
        Counts { wasted: self.arbiter.wasted(), ..self.counts }
    }

    /// Blocks prefetched, or being prefetched, and unread.
    pub fn pending_blocks(&self) -> u64 {
        self.arbiter.unread()
    }

    /// Blocks in memory or on their way: never above the capacity.
    #[inline]
    pub fn held_blocks(&self) -> u64 {
        self.arbiter.blocks().len() as u64
    }

    /// Why `block` is in memory; `None` if it is not, or is on its way.
    pub fn reason(&self, block: Block) -> Option<Reason> {
        let known = &self.arbiter.blocks()[self.arbiter.blocks().find(block)?];
        if known.is_in_flight() {
            return None;
        }
        match (known.claim(), known.queue()) {
            (Some(_), _) => Some(Reason::Expected),
            (None, Some((Queue::Recent, _))) => Some(Reason::Recent),
            (None, Some((Queue::Consumed, _))) => Some(Reason::Consumed),
            (None, None) => None,
        }
    }

    /// Bytes that the policy itself takes for what it keeps account of.
    pub fn memory_bytes(&self) -> usize {
        self.arbiter.memory_bytes()
    }

    /// Takes the last decisions out of the log, in order, and how many more there were since the last
    /// call than [`Config::decisions_max`]; none if that is 0, and nothing is logged.
    pub fn take_decisions(&mut self) -> (Vec<Decision>, u64) {
        self.arbiter.take_decisions()
    }

    /// Names that will never be asked for, since the last call: their hints were cancelled or passed
    /// over. Every other name is asked for exactly once. To be asked now and then: they are kept until then.
    pub fn take_dropped_names(&mut self) -> Vec<NameId> {
        std::mem::take(&mut self.dropped_names)
    }

    /// The next block that has left memory, and that the driver is to forget. To be drained before the
    /// buffers of a new fetch are used.
    #[inline]
    pub fn next_eviction(&mut self) -> Option<Block> {
        self.arbiter.next_evicted()
    }

    /// Hints that are not past.
    pub fn waiting_hints(&self) -> usize {
        self.arbiter.streams().iter().map(Stream::hints).sum()
    }

    /// Hints of `hinter` that have not come near enough to be expanded: what a driver may bound.
    pub fn waiting_hints_by(&self, hinter: HinterId) -> usize {
        self.arbiter.streams().hinters().waiting(hinter)
    }

    /// Bytes that the hints of `hinter` take, and those of all: what a driver may bound that others can disclose to. Segments
    /// that hints have in common are counted for each; those that are past are not. The queues that hints lie in are counted
    /// with their free room: a hint more may double that of its hinter, and no more. What finds the next use of a block is not
    /// in it: some 80 bytes for each piece of a segment, of which there are half a million, or four for each block of memory, and
    /// where others have them all 512 for each stream.
    pub fn hint_bytes(&self, hinter: HinterId) -> (usize, usize) {
        self.arbiter.streams().hinters().hint_bytes(hinter)
    }

    /// Whether all hints of `stream` are past, and nothing that was fetched for it is unread.
    pub fn is_past(&self, stream: StreamId) -> bool {
        let known = self.stream_ids.get(&stream);
        let stream = known.and_then(|&index| self.arbiter.streams().get(index));
        stream.is_none_or(|stream| stream.hints() == 0 && stream.unread == 0)
    }

    /// Whether `stream` should be supplied with more hints, if there are any: what it has disclosed is
    /// less than the policy would look at.
    pub fn wants_hints(&self, stream: StreamId) -> bool {
        let known = self.stream_ids.get(&stream);
        let stream = known.and_then(|&index| self.arbiter.streams().get(index));
        stream.is_some_and(|stream| {
            stream.waiting_hints() < self.config.resolved_max
                && stream.ahead() < self.config.capacity_blocks.saturating_mul(2)
        })
    }

    /// Whether a hint is about `file`, so that its driver should keep it open.
    pub fn wants(&self, file: FileId) -> bool {
        self.arbiter.streams().files().is_wanted(file)
    }

    /// Files that ceased to be wanted since the last call; [`wants`](Self::wants) says whether one has
    /// come to be wanted again. To be asked now and then: they are kept until then.
    pub fn take_released_files(&mut self) -> Vec<FileId> {
        self.arbiter.streams_mut().files_mut().take_released()
    }

    /// Whether nothing is left to fetch and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.arbiter.streams().iter().all(Stream::is_worked_off)
    }

    /// A new stream, on the record of `hinter`. With a `reader`, only that one's reads are taken for it.
    ///
    /// # Panics
    /// If 2²⁵ − 1 streams are open.
    pub fn open_stream(
        &mut self,
        _now: Nanos,
        hinter: HinterId,
        reader: Option<ReaderId>,
    ) -> StreamId {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        let capacity = self.config.capacity_blocks;
        let window =
            (capacity / WINDOW_DIVISOR).clamp(*WINDOW_BLOCKS.start(), *WINDOW_BLOCKS.end());
        let limits = Limits {
            block_bytes: self.config.block_bytes,
            window,
            placed_max: capacity.saturating_mul(PLACED_CAPACITIES).max(PLACED_MIN),
        };
        let index = self.arbiter.add_stream(Stream::new(id, hinter, reader, limits));
        self.stream_ids.insert(id, index);
        id
    }

    /// Appends `hint` to `stream`. A hint for a stream that is closed is dropped.
    pub fn hint(&mut self, now: Nanos, stream: StreamId, hint: Hint) {
        let Some(&index) = self.stream_ids.get(&stream) else {
            if let Target::Name(name) = hint.target {
                self.dropped_names.push(name);
            }
            return;
        };
        self.counts.hints += 1;
        prefetcher::note_hint(&mut self.arbiter, now, index);
        self.add_hint(index, hint);
    }

    /// Forgets the hints of `stream`. Blocks prefetched for it and unread count as wasted, those on
    /// their way as unfinished; other streams may take over what is in memory.
    pub fn cancel(&mut self, now: Nanos, stream: StreamId) {
        let Some(&index) = self.stream_ids.get(&stream) else { return };
        let mut untracked = std::mem::take(&mut self.untracked);
        let mut waiting = Vec::new();
        let (stream, blocks, changed) = self.arbiter.stream_and_names(index);
        stream.cancel(blocks, changed, |hint| waiting.push(hint), &mut untracked);
        let hinter = stream.hinter;
        self.arbiter.streams_mut().touch_resolved(index);
        self.arbiter.streams_mut().note_load(index);
        for hint in waiting {
            self.drop_waiting(hinter, &hint);
        }
        for device in &mut self.devices {
            device.unresolved.forget(index);
            device.candidates.set(index.0, None);
            device.first_waits.take_if(|first| first.stream == index);
        }
        self.forget_under_way(index);
        for slot in untracked.drain(..) {
            self.arbiter.abandon(now, slot);
        }
        self.untracked = untracked;
        self.check();
    }

    /// Ends `stream`: [`cancel`](Self::cancel), and no more hints are taken.
    pub fn close(&mut self, now: Nanos, stream: StreamId) {
        self.cancel(now, stream);
        if let Some(index) = self.stream_ids.remove(&stream) {
            if self.arbiter.stream(index).placing_is_unfinished() {
                self.unplaced.retain(|&unplaced| unplaced != index);
            }
            let reader = self.arbiter.stream(index).reader;
            let hinter = self.arbiter.stream(index).hinter;
            self.arbiter.remove_stream(index);
            self.tell_few(hinter);
            match reader {
                Some(only) if self.last_stream.get(&only) != Some(&index) => {}
                Some(only) => drop(self.last_stream.remove(&only)),
                None => self.last_stream.retain(|_, last| *last != index),
            }
        }
        if self.stream_ids.is_empty() {
            self.unplaced.clear();
        }
    }

    /// Closes every stream.
    pub fn close_all(&mut self, now: Nanos) {
        let mut streams: Vec<StreamId> = self.stream_ids.keys().copied().collect();
        streams.sort_unstable();
        for stream in streams {
            self.close(now, stream);
        }
    }

    /// The blocks that [`read`](Self::read) will be told of next, of which the first [`PREPARED_MAX`] are
    /// looked at: brings what is kept of them near the processor, for all of them at once instead of for one
    /// after the other. It changes nothing; a driver that has several reads to tell of saves half of its
    /// time by it when memory holds a million blocks, on x86-64.
    pub fn prepare(&mut self, blocks: impl IntoIterator<Item = Block>) {
        self.arbiter.load(blocks.into_iter());
    }

    /// A program has read `block`. `stalled` says, where the memory is the kernel's, whether the call had
    /// to wait: a block that the driver has not yet reported, but for which nobody waited, had arrived.
    pub fn read(&mut self, now: Nanos, reader: ReaderId, block: Block, stalled: bool) -> Access {
        self.missed = None;
        match self.stream_ids.is_empty() {
            true => self.read_without_streams(block, stalled),
            false => self.read_among_streams(now, reader, block, stalled),
        }
    }

    /// The same where nothing is disclosed. Apart, so that a read among streams does not save registers for it.
    #[inline(never)]
    fn read_without_streams(&mut self, block: Block, stalled: bool) -> Access {
        let slot = self.arbiter.find_loaded(block);
        let access = self.read_unhinted(block, slot, stalled);
        self.note_stall(access, stalled);
        self.check();
        access
    }

    /// The same where there are streams, one of which may have disclosed it.
    #[inline(never)]
    fn read_among_streams(
        &mut self,
        now: Nanos,
        reader: ReaderId,
        block: Block,
        stalled: bool,
    ) -> Access {
        let slot = self.arbiter.find_loaded(block);
        if self.arbiter.blocks().has_loaded() {
            self.arbiter.load_next_streams();
        }
        let matched = match self.goes_on(reader, block, slot) {
            Some(index) => Some((index, Fit::At(self.arbiter.stream(index).cursor.front()))),
            None => self.find_match(reader, block, slot),
        };
        let access = match matched {
            Some((index, Fit::At(position))) => {
                self.read_hinted(now, reader, (index, position), (block, slot), stalled)
            }
            Some((_, Fit::Again)) => self.read_again(slot, stalled),
            None => self.read_unhinted(block, slot, stalled),
        };
        self.note_stall(access, stalled);
        self.check();
        access
    }

    /// G: a program that had to wait.
    fn note_stall(&mut self, access: Access, stalled: bool) {
        if access == Access::Miss && stalled {
            self.devices.iter_mut().for_each(|device| device.cached_run = 0);
        }
    }

    /// The block that was just read, and was not there, or whose fetch has ended without it since, is to be
    /// fetched from `device` for the reader that waits. Returns the fetch; `None` if no buffer can be had because all are in flight: then
    /// the block is read and not kept; or if the block has come since. Only where the memory is [`Memory::Owned`].
    pub fn demand(&mut self, now: Nanos, device: DeviceId, block: Block) -> Option<Fetch> {
        let demand = match self.missed.take() {
            Some((missed, demand)) if missed == block => demand,
            _ => Demand::Unhinted,
        };
        if self.arbiter.blocks().has(block) {
            return None;
        }
        let need = Need { block, by: None, worth: f64::INFINITY, spares_unread: false };
        self.arbiter.make_room(now, need).ok()?;
        let device = self.device(device);
        let slot = self.arbiter.begin(block, device, None);
        if let Demand::Hinted(claim) = demand {
            self.arbiter.accessed(Some(slot), Some(claim.stream));
            self.linger(slot, claim);
        }
        let mut slots = self.flights.room_for_slots();
        slots.push(slot);
        let work = FlightWork::Read { slots, demand: Some(demand) };
        let id = self.start(now, device, work);
        let work = Work::Read { file: block.file, first_block: block.index, blocks: 1 };
        self.check();
        Some(Fetch { id, device: self.devices[usize::from(device.0)].id, work })
    }

    /// What `device` should do next ahead of its programs, if anything is worth it and the device has not enough to do.
    ///
    /// Works until that is known. A driver that others wait for calls [`next`](Self::next) instead.
    pub fn next_fetch(&mut self, now: Nanos, device: DeviceId) -> Option<Fetch> {
        loop {
            match self.next(now, device) {
                Next::Fetch(fetch) => return Some(fetch),
                Next::More => {}
                Next::Nothing => return None,
            }
        }
    }

    /// [`next_fetch`](Self::next_fetch) in bounded steps: a call places some thousand segments of what was disclosed, and
    /// looks through some ten thousand positions.
    #[inline]
    pub fn next(&mut self, now: Nanos, device: DeviceId) -> Next {
        // Nothing is disclosed, or what is makes no difference.
        if self.stream_ids.is_empty() || self.arbiter.rules().prefetch == Prefetch::Never {
            return Next::Nothing;
        }
        let Some(index) = self.known_device(device) else { return Next::Nothing };
        let at_device = &mut self.devices[usize::from(index.0)];
        at_device.find_overdue(now);
        let is_deep = self.config.tries_depths && at_device.working_on() >= at_device.depth.depth();
        if is_deep || at_device.outstanding >= self.config.outstanding_max {
            return Next::Nothing;
        }
        // What is left to be placed is placed here, since there may be no other event: a part of it in each call.
        let is_more = !self.unplaced.is_empty() && self.place_more(); // Mostly without a call.
        if is_more || self.may_have_something_for(index) {
            return self.look_for_fetch(now, index, is_more);
        }
        debug_assert_eq!(
            self.look_for_fetch(now, index, false),
            Next::Nothing,
            "there was nothing to find"
        );
        Next::Nothing
    }

    /// `is_more`: something may be left to be placed.
    #[inline(never)] // The rarer part of what is asked with every event.
    fn look_for_fetch(&mut self, now: Nanos, index: DeviceIndex, is_more: bool) -> Next {
        // Data before lookups: what is looked up lies behind everything that is placed.
        let read = self.next_read(now, index);
        if read.is_none() && is_more {
            return Next::More;
        }
        // Nothing else is to be done: what comes after a lookup that takes its time.
        let read = read.or_else(|| {
            let passed = self.pass_slow_lookups(now);
            if passed { self.next_read(now, index) } else { None }
        });
        let fetch = read.or_else(|| self.next_lookup(now, index));
        fetch.map_or(Next::Nothing, Next::Fetch)
    }

    /// Whether it is worth while to look for something that `device` should do, when nothing is left to be placed: most
    /// often there is not, and that is soon seen.
    #[inline(always)] // With every event.
    fn may_have_something_for(&self, device: DeviceIndex) -> bool {
        let at_device = &self.devices[usize::from(device.0)];
        self.arbiter.streams().has_stale_candidates()
            || self.prefetcher.search_is_unfinished()
            || self.arbiter.streams().has_parked()
            || at_device.candidates.first().is_some()
            || at_device.unresolved.len() > 0
            || self.devices.iter().any(Device::has_lookups)
    }

    /// `fetch` has ended.
    ///
    /// # Panics
    /// If the fetch is not under way, or the outcome is not one for its kind of work.
    pub fn completed(&mut self, now: Nanos, fetch: FetchId, outcome: Outcome) {
        let flight = self.flights.remove(fetch).expect("a fetch completes once");
        let device = &mut self.devices[usize::from(flight.device.0)];
        let purpose = match &flight.work {
            FlightWork::Resolve { .. } => Some(Purpose::Lookup),
            FlightWork::Read { demand: Some(_), .. } => None,
            FlightWork::Read { .. } => Some(Purpose::Data { fetched: outcome == Outcome::Fetched }),
        };
        if let Some(purpose) = purpose.filter(|_| self.config.tries_depths) {
            let names_left = device.unresolved.len();
            device.depth.completed(now, (fetch.0, flight.started), purpose, names_left);
        }
        match outcome {
            Outcome::AlreadyCached => device.cached_run = device.cached_run.saturating_add(1),
            Outcome::Fetched => device.cached_run = 0,
            _ => {}
        }
        match flight.work {
            FlightWork::Resolve { stream, index, number } => {
                device.lookup_ended(now, fetch, now.saturating_sub(flight.started));
                self.looked_up(flight.device, (stream, index, number), outcome);
            }
            FlightWork::Read { slots, demand } => {
                device.outstanding -= usize::from(demand.is_none());
                device.read_ended(now);
                if outcome == Outcome::Fetched {
                    let begun = (flight.started, flight.outstanding);
                    let seen = device.completed(now, begun, slots.len() as u64);
                    if let Some((ns, requests)) = seen.block_ns {
                        self.arbiter.costs_mut().observe_block(
                            flight.device,
                            ns,
                            requests,
                            seen.was_full,
                        );
                    }
                    if let Some(ns) = seen.took_ns.filter(|_| self.config.memory != Memory::Owned) {
                        // The driver cannot tell the device's time from that of its queue.
                        let took = Nanos(ns as u64);
                        self.arbiter.costs_mut().observe_disk(flight.device, took);
                    }
                }
                self.blocks_completed(now, slots, demand, outcome);
            }
        }
        self.check();
    }

    /// The last read of `reader`, which [`read`](Self::read) was told of, has ended, and the program waited for it for so
    /// long: for the device, or for another's fetch. To be told of every read that waited, before the reader's next one;
    /// a driver that does not gets no answer to a device that cannot keep up.
    pub fn waited(&mut self, reader: ReaderId, waited: Nanos) {
        if let Some(&index) = self.last_stream.get(&reader) {
            self.arbiter.stream(index).pace.waited(reader, waited);
        }
    }

    /// From now on `block`, if it is in memory or on its way, would be fetched from `device`: a copy of it has come to lie
    /// there, or has gone from there. It is worth what that device takes, and when it leaves memory, the next use of it that
    /// a stream has looked at is one of that device; uses further ahead are where their hints have said.
    pub fn moved(&mut self, block: Block, device: DeviceId) {
        let device = self.device(device);
        self.arbiter.moved(block, device);
        self.check();
    }

    /// Takes in a measured cost. `T_hit` and `T_driver` are the machine's, whatever the `device`; `T_disk` is
    /// the device's. Where the memory is the kernel's, `T_disk` is found from the fetches themselves.
    #[inline]
    pub fn observe(&mut self, device: DeviceId, cost: Cost, sample: Nanos) {
        match cost {
            Cost::Hit => self.arbiter.costs_mut().observe_hit(sample),
            Cost::Driver => self.arbiter.costs_mut().observe_driver(sample),
            Cost::Disk => {
                let device = self.device(device);
                self.arbiter.costs_mut().observe_disk(device, sample);
            }
        }
    }
}
