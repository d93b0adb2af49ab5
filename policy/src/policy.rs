//! The policy: which blocks to prefetch, which to keep, and which to let go.
//!
//! Informed caching and prefetching by cost and benefit (TIP 1995, sections 4 and 5) and, by
//! [`Rules`](crate::rules), related policies. Each buffer holds a recently read block, a block that hints say will be read
//! again, or a prefetched block. The policy moves buffers between these uses one at a time. Each part uses only the parts
//! after it:
//!
//! * this file and `policy/`: the interface for drivers, and the effects of a read, a hint and the end of a fetch on the parts;
//! * `prefetcher.rs`: the benefit of fetching a block, compared with the cost of the cheapest buffer;
//! * `buffers/`: the value of each block in memory (estimators), and the choice of the block to evict (arbiter);
//! * `devices/`: the fetches in flight at a device, its speed and its costs;
//! * `streams/`: hints, positions and the progress of readers;
//! * `blocks/`: the table of blocks in memory or in flight;
//! * `tables/`: hashing, a heap and containers.
//!
//! * **L. Lookups.** Names are looked up lazily. A lookup is a fetch of its own kind, so metadata is prefetched in parallel
//!   like data. Each device has a bounded number of files that are looked up and not read yet.
//! * **G. Dozing.** Behind a kernel's page cache a fetch may find its blocks cached already, and asking costs time. After
//!   [`DOZE_AFTER`] such fetches in a row the policy looks at one in [`DOZE_STRIDE`] hints and drops the others, until a
//!   fetch brings data or a program stalls. Fetches of files that a program has waited for do not count.
//!
//! Drivers call [`Policy::next`] or [`Policy::next_fetch`] whenever a device may have a free slot: after every hint, read and
//! completion. The policy never reads a clock, starts no fetch by itself, and cannot fail. A driver that breaks the protocol
//! (completes a fetch twice) trips an assertion.
//!
//! One call does a bounded amount of work, apart from these: the segments of a hint are counted all at once, tables double
//! as they fill up, and [`Policy::next_fetch`], [`Policy::cancel`] and [`Policy::close`] work until they are done.
//!
//! Not here: the order in which a disk serves its requests ([`crate::devices::queue`]), and file descriptors.

mod dozing;
mod events;
mod following;
mod limit;
mod lookups;
mod sources;
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
use dozing::WaitedFiles;

/// G: fetches in a row that found everything cached, after which hints are dropped.
/// Unit: requests. Reason: judgement.
pub const DOZE_AFTER: u32 = 32;

/// G: while the policy dozes, it looks at one hint in this many and drops the others.
/// Unit: hints. Reason: judgement.
pub const DOZE_STRIDE: usize = 8;

/// Blocks that one call of [`Policy::prepare`] looks at.
/// Unit: blocks. Reason: bound.
pub const PREPARED_MAX: usize = LOADED_MAX;

/// Readers whose last streams are remembered before the policy forgets inactive readers.
/// Unit: readers. Reason: bound.
const READERS_MIN: usize = 1024;

/// A read matches a stream within this share of the capacity around the expected position.
/// Unit: ratio. Reason: judgement.
const WINDOW_DIVISOR: u64 = 4;

/// Least and greatest size of that window.
/// Unit: blocks. Reason: judgement.
const WINDOW_BLOCKS: std::ops::RangeInclusive<u64> = 64..=65_536;

/// Accesses that a stream places ahead of its reader, in multiples of the capacity.
/// Unit: ratio. Reason: bound.
const PLACED_CAPACITIES: u64 = 16;

/// Accesses that a stream may place ahead of its reader however small the capacity is.
/// Unit: accesses. Reason: bound.
const PLACED_MIN: u64 = 1 << 20;

/// The answer of [`Policy::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The device should do this. Ask again: there may be another fetch.
    Fetch(Fetch),
    /// No fetch was found yet, and the policy has more to look at. Ask again before waiting for an event.
    More,
    /// There is nothing to do until an event, or time, changes that.
    Nothing,
}

/// The policy object; see the [module](self).
#[derive(Debug)]
pub struct Policy {
    config: Config,
    arbiter: Arbiter,
    prefetcher: Prefetcher,
    /// All counts except those of blocks by their sources, which the arbiter keeps.
    counts: Counts,
    /// Sources whose hints are dropped: a bit each.
    silenced: u16,
    devices: Vec<Device>,
    device_ids: HashMap<DeviceId, DeviceIndex, Mix>,
    stream_ids: HashMap<StreamId, StreamIndex, Mix>,
    flights: Flights,
    /// The stream of each reader's last hinted read.
    last_stream: HashMap<ReaderId, StreamIndex, Mix>,
    /// Length of `last_stream` at which inactive readers are forgotten.
    readers_max: usize,
    /// G.
    waited_files: WaitedFiles,
    /// The last read, if it found nothing: a demand may follow.
    missed: Option<(Block, Demand)>,
    /// Streams with hints left to place, round robin.
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
    /// An empty policy.
    ///
    /// # Panics
    /// If `block_bytes`, `capacity_blocks`, `cluster_blocks_max`, `outstanding_max` or `resolved_max`
    /// is zero. A later call panics if it names the 65,537th device, or brings a block when 2³¹ − 1 are in memory.
    pub fn new(config: Config) -> Self {
        assert!(config.block_bytes > 0 && config.capacity_blocks > 0, "no blocks: {config:?}");
        assert!(config.cluster_blocks_max > 0 && config.outstanding_max > 0, "no I/O: {config:?}");
        assert!(config.resolved_max > 0, "no lookups: {config:?}");
        Policy {
            arbiter: Arbiter::new(&config),
            prefetcher: Prefetcher::new(&config),
            counts: Counts::default(),
            silenced: 0,
            config,
            devices: Vec::new(),
            device_ids: HashMap::with_hasher(Mix),
            stream_ids: HashMap::with_hasher(Mix),
            flights: Flights::default(),
            last_stream: HashMap::with_hasher(Mix),
            readers_max: READERS_MIN,
            waited_files: WaitedFiles::new(),
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

    /// The configuration that it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The fates of hints and prefetches so far.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts;
        self.arbiter.tallies().add_to(&mut counts);
        counts
    }

    /// Unread blocks that are prefetched or in flight.
    pub fn pending_blocks(&self) -> u64 {
        self.arbiter.unread()
    }

    /// Blocks in memory or in flight: never more than the capacity.
    #[inline]
    pub fn held_blocks(&self) -> u64 {
        self.arbiter.blocks().len() as u64
    }

    /// Why `block` is in memory; `None` if it is absent or in flight.
    pub fn reason(&self, block: Block) -> Option<Reason> {
        let slot = self.arbiter.blocks().find(block)?;
        let known = &self.arbiter.blocks()[slot];
        if known.is_in_flight() {
            return None;
        }
        match (known.claim(), known.queue()) {
            (Some(_), _) => Some(Reason::Expected),
            (None, Some((Queue::Recent, _))) => Some(Reason::Recent),
            (None, Some((Queue::Consumed, _))) => Some(Reason::Consumed),
            (None, None) => self.arbiter.kept_by(slot).map(Reason::KeptBy),
        }
    }

    /// Bytes of the policy's own tables.
    pub fn memory_bytes(&self) -> usize {
        self.arbiter.memory_bytes()
    }

    /// Takes the last decisions out of the log, in order. Also returns how many older ones, since the last call, were dropped
    /// because the log holds [`Config::decisions_max`]. If that is 0 nothing is logged.
    pub fn take_decisions(&mut self) -> (Vec<Decision>, u64) {
        self.arbiter.take_decisions()
    }

    /// Names whose hints were cancelled or dropped since the last call: the policy will never ask to look them up. It asks for
    /// every other name exactly once. Call it regularly, since the list is kept until then.
    pub fn take_dropped_names(&mut self) -> Vec<NameId> {
        std::mem::take(&mut self.dropped_names)
    }

    /// The next evicted block, which the driver must forget. Drain these before using the buffers of a new fetch.
    #[inline]
    pub fn next_eviction(&mut self) -> Option<Block> {
        self.arbiter.next_evicted()
    }

    /// Hints that are not entirely behind their readers.
    pub fn waiting_hints(&self) -> usize {
        self.arbiter.streams().iter().map(Stream::hints).sum()
    }

    /// Hints of `hinter` that have no positions yet. A driver may bound them.
    pub fn waiting_hints_by(&self, hinter: HinterId) -> usize {
        self.arbiter.streams().hinters().waiting(hinter)
    }

    /// Bytes of the hints of `hinter`, and of all hints, for drivers that bound them.
    ///
    /// Segments that hints share are counted once for each hint. Queues of hints count with their free room, so one more hint
    /// may at most double the bytes of its hinter. Hints behind their readers do not count. The index of next uses does not
    /// count either: it takes some 80 bytes for each piece of a segment, and has at most half a million pieces or four for each
    /// block of memory, plus 512 for each stream beyond that.
    pub fn hint_bytes(&self, hinter: HinterId) -> (usize, usize) {
        self.arbiter.streams().hinters().hint_bytes(hinter)
    }

    /// Whether all hints of `stream` are behind its reader and no block fetched for it is unread.
    pub fn is_past(&self, stream: StreamId) -> bool {
        let known = self.stream_ids.get(&stream);
        let stream = known.and_then(|&index| self.arbiter.streams().get(index));
        stream.is_none_or(|stream| stream.hints() == 0 && stream.unread == 0)
    }

    /// Whether a driver should supply `stream` with more hints: it has disclosed less than the policy would look at.
    pub fn wants_hints(&self, stream: StreamId) -> bool {
        let known = self.stream_ids.get(&stream);
        let stream = known.and_then(|&index| self.arbiter.streams().get(index));
        stream.is_some_and(|stream| {
            stream.waiting_hints() < self.config.resolved_max
                && stream.ahead() < self.config.capacity_blocks.saturating_mul(2)
        })
    }

    /// Whether a hint names `file`, so that the driver should keep it open.
    pub fn wants(&self, file: FileId) -> bool {
        self.arbiter.streams().files().is_wanted(file)
    }

    /// Files that no hint names any more since the last call. A file may be wanted again by now: ask [`wants`](Self::wants).
    /// Call it regularly, since the list is kept until then.
    pub fn take_released_files(&mut self) -> Vec<FileId> {
        self.arbiter.streams_mut().files_mut().take_released()
    }

    /// Whether nothing is left to fetch and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.arbiter.streams().iter().all(Stream::is_worked_off)
    }

    /// Opens a stream, which counts on the record of `hinter`. With a `reader`, only reads of that reader match the stream.
    ///
    /// # Panics
    /// If 2²¹ − 1 streams are open.
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

    /// Notes that the hints of `stream` are guesses: what it discloses may be looked at and not read. Little is fetched for it
    /// before its first read.
    pub fn guesses(&mut self, stream: StreamId) {
        if let Some(&index) = self.stream_ids.get(&stream) {
            self.arbiter.stream(index).is_guess = true;
        }
    }

    /// Appends `hint` to `stream`. A hint for a stream that is closed, or of a source that is silenced, is dropped.
    pub fn hint(&mut self, now: Nanos, stream: StreamId, hint: Hint) {
        let index = self.stream_ids.get(&stream).copied();
        let Some(index) = index.filter(|&index| !self.is_silenced(index)) else {
            if let Target::Name(name) = hint.target {
                self.dropped_names.push(name);
            }
            return;
        };
        self.counts.hints += 1;
        prefetcher::note_hint(&mut self.arbiter, now, index);
        self.add_hint(index, hint);
    }

    /// Forgets the hints of `stream`. Its unread blocks count as wasted if they have arrived and as unfinished if they are in
    /// flight. Other streams may take over blocks in memory.
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

    /// Ends `stream`: [cancels](Self::cancel) its hints, and takes no more.
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

    /// Loads the tables' entries for blocks that [`read`](Self::read) will be called with next, at most [`PREPARED_MAX`], into
    /// the processor's cache, all at once. It changes nothing else. A driver that reports several reads saves half of its time
    /// when memory holds a million blocks, on x86-64.
    pub fn prepare(&mut self, blocks: impl IntoIterator<Item = Block>) {
        self.arbiter.load(blocks.into_iter());
    }

    /// A program has read `block`. Where the memory is the kernel's, `stalled` says whether the call had to wait. If it did
    /// not, a block in flight has arrived, although the driver has not reported that yet.
    pub fn read(&mut self, now: Nanos, reader: ReaderId, block: Block, stalled: bool) -> Access {
        self.missed = None;
        match self.stream_ids.is_empty() {
            true => self.read_without_streams(block, stalled),
            false => self.read_among_streams(now, reader, block, stalled),
        }
    }

    /// [`read`](Self::read) without open streams. Apart, so that [`read_among_streams`](Self::read_among_streams) saves no
    /// registers for it.
    #[inline(never)]
    fn read_without_streams(&mut self, block: Block, stalled: bool) -> Access {
        let slot = self.arbiter.find_loaded(block);
        let access = self.read_unhinted(block, slot, stalled);
        self.note_stall(block, stalled, (access, false));
        self.check();
        access
    }

    /// [`read`](Self::read) with open streams, one of which may have disclosed the block.
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
        self.note_stall(block, stalled, (access, matched.is_some()));
        self.check();
        access
    }

    /// Begins a fetch of `block` from `device` for a reader that waits. The reader's last read missed the block, or waited
    /// for a fetch that ended without it. For [`Memory::Owned`] only.
    ///
    /// Returns `None` if the block has arrived since, or if all buffers are in flight. In the latter case the driver reads the
    /// block without keeping it.
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

    /// The next fetch that `device` should do ahead of its programs. `None` if the device has enough to do, or no fetch is
    /// worth a buffer.
    ///
    /// The call works until the answer is known. Drivers that hold a lock, or have other events to handle, use
    /// [`next`](Self::next).
    pub fn next_fetch(&mut self, now: Nanos, device: DeviceId) -> Option<Fetch> {
        loop {
            match self.next(now, device) {
                Next::Fetch(fetch) => return Some(fetch),
                Next::More => {}
                Next::Nothing => return None,
            }
        }
    }

    /// One bounded step of [`next_fetch`](Self::next_fetch): it places some thousand segments of one stream's hints, and
    /// searches some ten thousand positions.
    #[inline(always)] // Every event passes here.
    pub fn next(&mut self, now: Nanos, device: DeviceId) -> Next {
        // No hints, or rules that never prefetch.
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
        // Hints left to place are placed here, a part in each call: there may be no other event.
        let is_more = !self.unplaced.is_empty() && self.place_more(); // Mostly there is nothing to place.
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

    /// `is_more`: hints may be left to place.
    #[inline(never)] // Rare, while `next` is called with every event.
    fn look_for_fetch(&mut self, now: Nanos, index: DeviceIndex, is_more: bool) -> Next {
        // Data before lookups: the names that are not looked up lie behind everything that is placed.
        let read = self.next_read(now, index);
        if read.is_none() && is_more {
            return Next::More;
        }
        // Nothing else to do: hints behind a slow lookup go before it.
        let read = read.or_else(|| {
            let passed = self.pass_slow_lookups(now);
            if passed { self.next_read(now, index) } else { None }
        });
        let fetch = read.or_else(|| self.next_lookup(now, index));
        fetch.map_or(Next::Nothing, Next::Fetch)
    }

    /// A quick check that is false if [`look_for_fetch`](Self::look_for_fetch) would find nothing, when nothing is left to
    /// place. Mostly it is false.
    #[inline(always)] // Every event passes here.
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
            Outcome::AlreadyCached if self.was_cached_before(&flight.work) => {
                let device = self.device_mut(flight.device);
                device.cached_run = device.cached_run.saturating_add(1);
            }
            Outcome::Fetched => self.device_mut(flight.device).cached_run = 0,
            _ => {}
        }
        let device = &mut self.devices[usize::from(flight.device.0)];
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

    /// The last [`read`](Self::read) of `reader` has ended after waiting for so long: for the device, or for a fetch that was
    /// in flight. Report every read that waited, before the reader's next one. Otherwise the policy does not notice that a
    /// device cannot keep up.
    pub fn waited(&mut self, reader: ReaderId, waited: Nanos) {
        if let Some(&index) = self.last_stream.get(&reader) {
            self.arbiter.stream(index).pace.waited(reader, waited);
        }
    }

    /// From now on `block` would be fetched from `device`, because a copy of it was made there or its copy elsewhere was
    /// removed. The block must be in memory or in flight; otherwise the call has no effect. Its value follows the costs of
    /// `device`. After its eviction, its next use is fetched from `device` if a stream's search has already passed that use.
    /// Later uses are fetched from the devices of their hints.
    pub fn moved(&mut self, block: Block, device: DeviceId) {
        let device = self.device(device);
        self.arbiter.moved(block, device);
        self.check();
    }

    /// Takes in a measured cost. `T_hit` and `T_driver` hold for the machine, whatever the `device`. `T_disk` holds for the
    /// device. Where the memory is the kernel's, the policy measures `T_disk` by the fetches themselves.
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
