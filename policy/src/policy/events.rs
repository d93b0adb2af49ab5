//! The effects of hints, reads and completions: finds the stream of a read, moves blocks between their reasons to stay in
//! memory, and begins fetches.

use super::{Policy, READERS_MIN, Work};
use crate::blocks::{Claim, DeviceIndex, Queue, SlotId, StreamIndex};
use crate::contract::{Access, Fetch, Memory, Outcome};
use crate::devices::device::Device;
use crate::devices::flights::{Demand, Flight, FlightWork};
use crate::hint::{Block, DeviceId, FetchId, Hint, HinterId, ReaderId};
use crate::rules::Replacement;
use crate::streams::stream::{Current, Fit, Lookup, Stream, Waiting};
use crate::streams::unresolved::Ticket;
use crate::tables::shrinking::shrink_map;
use crate::time::Nanos;

/// Continuations of a search in one call, each of some thousand positions.
/// Unit: searches. Reason: bound.
const SEARCHES_MAX: u32 = 8;

/// Pieces of segments in the streams' indices of next uses, for each block of memory. A piece takes some 80 bytes.
/// Unit: entries. Reason: bound.
const LOAD_CAPACITIES: u64 = 4;

/// Pieces of segments in all indices together, however small the memory is.
/// Unit: entries. Reason: bound.
const LOAD_LEAST: usize = 1 << 19;

/// A stream may use this share, as a divisor, of the pieces that other streams leave. One stream alone has at least a quarter
/// of a million; many streams have shares of similar size.
/// Unit: ratio. Reason: judgement.
const LOAD_SHARE_DIVISOR: usize = 2;

/// Pieces that a stream may always have.
/// Unit: entries. Reason: bound.
const LOAD_MIN: usize = 512;

/// A stream may leave this share, as a divisor, of [`Config::resolved_max`](crate::Config::resolved_max) names behind its
/// reader.
/// Unit: ratio. Reason: judgement.
const LEFT_OUT_DIVISOR: usize = 4;

impl Policy {
    /// The policy's own number of a known device.
    #[inline]
    pub(super) fn known_device(&self, id: DeviceId) -> Option<DeviceIndex> {
        // Mostly there is one device.
        match self.devices.first() {
            Some(first) if first.id == id => Some(DeviceIndex(0)),
            _ => self.device_ids.get(&id).copied(),
        }
    }

    /// The policy's own number of a device, which is added if it is new.
    #[inline]
    pub(super) fn device(&mut self, id: DeviceId) -> DeviceIndex {
        match self.known_device(id) {
            Some(index) => index,
            None => self.new_device(id),
        }
    }

    #[cold]
    fn new_device(&mut self, id: DeviceId) -> DeviceIndex {
        let devices = &mut self.devices;
        *self.device_ids.entry(id).or_insert_with(|| {
            devices.push(Device::new(id));
            DeviceIndex(u16::try_from(devices.len() - 1).expect("fewer than 65,536 devices"))
        })
    }

    pub(super) fn device_mut(&mut self, device: DeviceIndex) -> &mut Device {
        &mut self.devices[usize::from(device.0)]
    }

    #[inline(always)] // Every miss passes here.
    pub(super) fn start(&mut self, now: Nanos, device: DeviceIndex, work: FlightWork) -> FetchId {
        let at_device = self.device_mut(device);
        let outstanding = at_device.working_on() + 1;
        if let FlightWork::Read { .. } = work {
            at_device.read_begun(now);
        }
        self.flights.insert(Flight { device, started: now, outstanding, work })
    }

    pub(super) fn add_hint(&mut self, index: StreamIndex, hint: Hint) {
        let device = self.device(hint.device);
        let stream = self.arbiter.stream(index);
        stream.of_device(device);
        let number = stream.next_number();
        let waiting = Waiting::new(hint, device);
        let lookup = waiting.lookup();
        stream.wait(waiting);
        let hinter = stream.hinter;
        self.arbiter.streams_mut().hint_waits(hinter);
        match lookup {
            Lookup::Known { file, .. } => {
                self.counts.hints_resolved += 1;
                self.arbiter.streams_mut().files_mut().hold(file, device);
            }
            _ => {
                let ticket = Ticket(self.next_ticket);
                self.next_ticket += 1;
                let of = self.arbiter.streams().hinter_standing(index);
                self.device_mut(device).unresolved.push(index, ticket, number, of);
            }
        }
        self.arbiter.streams_mut().touch_resolved(index);
        self.advance(index);
    }

    /// Places hints of a stream, as many as one call may.
    #[inline(always)] // Mostly all hints are placed, and this check is quick.
    pub(super) fn advance(&mut self, index: StreamIndex) {
        let stream = self.arbiter.stream(index);
        if stream.has_unnoted_load() {
            self.arbiter.streams_mut().note_load(index);
        }
        if !self.arbiter.stream(index).is_placed() {
            self.place(index);
        }
    }

    #[inline(never)] // The rare part of a read.
    fn place(&mut self, index: StreamIndex) {
        if self.arbiter.stream(index).should_begin_anew() {
            self.begin_anew(index);
        }
        let most = self.config.capacity_blocks.saturating_mul(LOAD_CAPACITIES);
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(LOAD_LEAST);
        let of_others = self.arbiter.streams().load_of_others(index);
        let mut placed = std::mem::take(&mut self.waiting_done);
        let (stream, _, changed) = self.arbiter.stream_and_names(index);
        let load_max = (most.saturating_sub(of_others) / LOAD_SHARE_DIVISOR).max(LOAD_MIN);
        let was_unfinished = stream.placing_is_unfinished();
        let beyond_end = stream.advance(load_max, changed, |waiting| placed.push(waiting));
        if stream.placing_is_unfinished() && !was_unfinished {
            self.unplaced.push_back(index);
        }
        let hinter = stream.hinter;
        self.arbiter.streams_mut().touch_resolved(index);
        self.arbiter.streams_mut().note_load(index);
        for waiting in placed.drain(..) {
            self.arbiter.streams_mut().hint_waits_no_more(hinter);
            if let Lookup::Known { file, .. } = waiting.lookup() {
                self.arbiter.streams_mut().files_mut().unhold(file);
            }
        }
        self.waiting_done = placed;
        let source = self.arbiter.stream(index).source;
        let tally = self.arbiter.tally(source);
        tally.refused = tally.refused.saturating_add(beyond_end);
        self.arbiter.streams_mut().touch_candidate(index);
    }

    /// Places more hints of the first stream that has some left, as many as one call may. Returns whether there was one.
    pub(super) fn place_more(&mut self) -> bool {
        while let Some(index) = self.unplaced.pop_front() {
            let stream = self.arbiter.streams_mut().get_mut(index);
            if !stream.is_some_and(Stream::goes_on_placing) {
                continue;
            }
            self.advance(index);
            return true;
        }
        false
    }

    /// A hint of `hinter` that waited for its place is dropped.
    pub(super) fn drop_waiting(&mut self, hinter: HinterId, waiting: &Waiting) {
        self.arbiter.streams_mut().hint_waits_no_more(hinter);
        match waiting.lookup() {
            Lookup::Known { file, .. } => self.arbiter.streams_mut().files_mut().unhold(file),
            Lookup::Pending(name) => self.dropped_names.push(name),
            _ => {}
        }
    }

    /// The next blocks to prefetch from `device`.
    pub(super) fn next_read(&mut self, now: Nanos, device: DeviceIndex) -> Option<Fetch> {
        let mut slots = self.flights.room_for_slots();
        let mut searches = 0;
        let first = loop {
            let (arbiter, devices) = (&mut self.arbiter, &mut self.devices);
            let first = self.prefetcher.next_cluster(now, arbiter, devices, device, &mut slots);
            if first.is_some() {
                break first;
            }
            if self.prefetcher.take_unfinished_search() {
                searches += 1;
                if searches == SEARCHES_MAX {
                    break None;
                }
            } else if !self.prefetcher.goes_on_with_parked(arbiter) {
                break None;
            }
        };
        let Some(first) = first else {
            self.flights.reuse(slots);
            return None;
        };
        let blocks = slots.len() as u64;
        let id = self.start(now, device, FlightWork::Read { slots, demand: None });
        self.device_mut(device).outstanding += 1;
        self.check();
        let work = Work::Read { file: first.file, first_block: first.index, blocks };
        Some(Fetch { id, device: self.device_mut(device).id, work })
    }

    /// A fast path of [`find_match`](Self::find_match): the stream that `reader` read last, if `block` is next in it and is
    /// claimed by it. In that case nothing has to be noted.
    #[inline]
    pub(super) fn goes_on(
        &self,
        reader: ReaderId,
        block: Block,
        slot: Option<SlotId>,
    ) -> Option<StreamIndex> {
        let index = self.arbiter.blocks()[slot?].claim()?.stream;
        let stream = self.arbiter.streams().get(index)?;
        let goes_on = stream.was_read_by(reader) && stream.is_next(block);
        debug_assert!(!goes_on || self.last_stream.get(&reader) == Some(&index));
        goes_on.then_some(index)
    }

    /// Finds the stream that disclosed a read, if any. If the read is the access at one of the stream's positions, the stream
    /// becomes the reader's last stream. The reader has left its former last stream if that was another one, or if no stream
    /// disclosed the read.
    #[inline(never)] // The rarer part.
    pub(super) fn find_match(
        &mut self,
        reader: ReaderId,
        block: Block,
        slot: Option<SlotId>,
    ) -> Option<(StreamIndex, Fit)> {
        let last = self.last_stream.get(&reader).copied();
        let claim = slot.and_then(|slot| self.arbiter.blocks()[slot].claim());
        let claimed = claim.map(|claim| claim.stream);
        let matched = self.arbiter.streams_mut().match_read(reader, last, block, claimed);
        let stays = match matched {
            Some((_, Fit::Again)) => true,
            Some((index, Fit::At(_))) => {
                self.arbiter.stream(index).lingers_with(reader);
                last == Some(index)
            }
            None => false,
        };
        if let Some(before) = last.filter(|_| !stays) {
            self.arbiter.stream(before).is_left_by(reader);
        }
        if let Some((index, _)) = matched.filter(|_| !stays) {
            self.last_stream.insert(reader, index);
            if self.last_stream.len() > self.readers_max {
                self.forget_readers();
            }
        }
        matched
    }

    /// Forgets the last streams of inactive readers. A reader that has a stream of its own, or was the last to read its stream,
    /// is kept. The others are matched anew at their next read.
    #[cold]
    fn forget_readers(&mut self) {
        let streams = self.arbiter.streams();
        self.last_stream.retain(|&reader, index| {
            let stream = streams.get(*index);
            stream.is_some_and(|stream| stream.reader == Some(reader) || stream.was_read_by(reader))
        });
        shrink_map(&mut self.last_stream);
        self.readers_max = (2 * self.last_stream.len()).max(READERS_MIN);
    }

    /// The result of a read. If the block is an unread prefetch, counts it as useful or late.
    #[inline(always)] // Every hinted read passes here.
    pub(super) fn access_of(&mut self, slot: Option<SlotId>, stalled: bool) -> Access {
        let Some(slot) = slot else { return Access::Miss };
        let known = &self.arbiter.blocks()[slot];
        let unread = known.is_unread();
        // Late or not, the hint was right.
        if let Some(claim) = known.claim().filter(|_| unread) {
            self.arbiter.streams_mut().note_true(claim.stream);
        }
        let known = &self.arbiter.blocks()[slot];
        let source = known.source();
        let access = if !known.is_in_flight() {
            self.arbiter.tally(source).useful += u64::from(unread);
            Access::Hit
        } else if self.config.memory == Memory::Owned || stalled {
            self.arbiter.tally(source).late += u64::from(unread);
            Access::InFlight
        } else {
            // The block has arrived, or was cached all along: the completion of its fetch will tell which.
            if unread {
                self.arbiter.read_early(slot);
            }
            Access::Hit
        };
        self.arbiter.mark_read(slot);
        access
    }

    pub(super) fn read_hinted(
        &mut self,
        now: Nanos,
        reader: ReaderId,
        (index, position): (StreamIndex, u64),
        (block, slot): (Block, Option<SlotId>),
        stalled: bool,
    ) -> Access {
        self.arbiter.count_access(Some(index));
        self.arbiter.accessed(slot, Some(index));
        let access = self.access_of(slot, stalled);
        slot.into_iter().for_each(|slot| self.arbiter.read_consumed(slot));
        self.move_on(index);
        let claim = Claim { stream: index, position };
        if let Some(slot) = slot
            && self.arbiter.blocks()[slot].claim() == Some(claim)
        {
            if self.lets_linger() {
                self.arbiter.stream(index).reads(position, slot);
            } else {
                self.arbiter.unclaim(slot);
            }
        }
        let capacity = self.config.capacity_blocks;
        let hit_ns = self.arbiter.costs().hit_ns();
        self.arbiter.streams_mut().touch_shown(index);
        let (stream, blocks, changed) = self.arbiter.stream_and_names(index);
        let mut overtaken = 0;
        if slot.is_none() && !stream.is_before_scan(position) {
            overtaken = 1;
        }
        let waits = match self.config.memory {
            Memory::Owned => access != Access::Hit,
            Memory::Kernel { .. } => stalled,
        };
        stream.note_pace(now, reader, waits, hit_ns);
        let mut behind = (self.prefetcher.allowance(stream) / 2).min(capacity / 2);
        let names_max = (self.config.resolved_max / LEFT_OUT_DIVISOR) as u64;
        if stream.is_behind_by(names_max) && stream.hints_left_out() > names_max {
            behind = 0; // The names left out would block other lookups.
        }
        let may_lose_value =
            stream.read((block, position), behind, blocks, changed, &mut self.untracked);
        self.arbiter.streams_mut().touch_resolved(index);
        if may_lose_value {
            self.arbiter.streams_mut().touch_value(index);
        }
        match slot {
            Some(slot) if self.config.memory == Memory::Owned => {
                self.linger(slot, claim);
                self.arbiter.stream(index).note_later_use(block);
            }
            Some(slot) => self.find_next_use(index, slot),
            None => {
                let stream = self.arbiter.stream(index);
                let (source, next) = (stream.source, stream.next_use(block));
                self.arbiter.tally(source).overtaken += overtaken;
                self.missed = Some((block, Demand::Hinted(claim)));
                if let Some(next) = next {
                    let stream = self.arbiter.stream(index);
                    if let Some((_, device)) = stream.block_at(next) {
                        stream.lost(device, next);
                    }
                }
            }
        }
        if !self.untracked.is_empty() {
            self.abandon_untracked(now);
        }
        self.advance(index);
        self.arbiter.streams_mut().touch_candidate(index);
        access
    }

    #[inline(never)] // Only for readers that skip or go back.
    fn abandon_untracked(&mut self, now: Nanos) {
        let mut untracked = std::mem::take(&mut self.untracked);
        for slot in untracked.drain(..) {
            self.arbiter.abandon(now, slot);
        }
        self.untracked = untracked;
    }

    /// Whether a block stays in memory while it is being read.
    fn lets_linger(&self) -> bool {
        self.config.memory == Memory::Owned && self.arbiter.rules().replacement != Replacement::Lru
    }

    /// Keeps a block in memory until its reader has moved on, since programs read blocks in parts.
    #[inline]
    pub(super) fn linger(&mut self, slot: SlotId, claim: Claim) {
        if !self.lets_linger() {
            return self.find_next_use(claim.stream, slot);
        }
        if self.arbiter.blocks()[slot].claim().is_none() {
            self.arbiter.stream(claim.stream).reads(claim.position, slot);
            self.arbiter.claim(slot, claim);
        }
    }

    /// The reader of a stream moves on to the next block.
    fn move_on(&mut self, index: StreamIndex) {
        let Some(current) = self.arbiter.stream(index).current.take() else { return };
        let (position, slot) = (current.position, current.slot);
        if self.arbiter.blocks()[slot].claim() == Some(Claim { stream: index, position }) {
            let block = self.arbiter.blocks()[slot].block();
            match self.arbiter.stream(index).later_use(&current, block) {
                Some(next) => self.arbiter.reclaim(slot, Claim { stream: index, position: next }),
                None => {
                    self.arbiter.unclaim(slot);
                    self.arbiter.settle(slot, Some(index));
                }
            }
        }
    }

    /// A block in memory or in flight was read as disclosed: finds its next reason to stay.
    fn find_next_use(&mut self, index: StreamIndex, slot: SlotId) {
        let keeps = self.config.memory != Memory::Kernel { keeps: false };
        let lru = self.arbiter.rules().replacement == Replacement::Lru;
        let known = &self.arbiter.blocks()[slot];
        let (block, in_flight) = (known.block(), known.is_in_flight());
        let mut asked = None;
        if keeps && !lru && known.claim().is_none() {
            match self.arbiter.stream(index).next_use(block) {
                Some(position) => self.arbiter.claim(slot, Claim { stream: index, position }),
                None => asked = Some(index),
            }
        }
        if lru && !in_flight {
            self.arbiter.enqueue(slot, Queue::Recent);
        }
        self.arbiter.settle(slot, asked);
    }

    /// One more read of a block that was counted as read before. Only its recency may change.
    pub(super) fn read_again(&mut self, slot: Option<SlotId>, stalled: bool) -> Access {
        let access = self.access_of(slot, stalled);
        if let Some(slot) = slot
            && self.arbiter.rules().replacement == Replacement::Lru
            && !self.arbiter.blocks()[slot].is_in_flight()
        {
            self.arbiter.enqueue(slot, Queue::Recent);
        }
        access
    }

    #[inline(always)] // Every unhinted read passes here.
    pub(super) fn read_unhinted(
        &mut self,
        block: Block,
        slot: Option<SlotId>,
        stalled: bool,
    ) -> Access {
        if let Some(slot) = slot
            && self.config.memory == Memory::Owned
            && self.arbiter.blocks()[slot].is_settled()
        {
            self.arbiter.count_access(None);
            self.arbiter.accessed(Some(slot), None);
            self.arbiter.read_recent(slot);
            return Access::Hit;
        }
        self.read_unsettled(block, slot, stalled)
    }

    /// [`read_unhinted`](Self::read_unhinted) of a block that is absent, in flight, unread, or in the kernel's memory.
    #[inline(never)]
    fn read_unsettled(&mut self, block: Block, slot: Option<SlotId>, stalled: bool) -> Access {
        let access = self.access_of(slot, stalled);
        if self.config.memory != Memory::Owned {
            return access;
        }
        self.arbiter.count_access(None);
        self.arbiter.accessed(slot, None);
        match slot {
            Some(slot) if !self.arbiter.blocks()[slot].is_in_flight() => {
                self.arbiter.read_recent(slot)
            }
            Some(slot) => {
                self.arbiter.joins_recent(slot);
                self.arbiter.missed_recent(block);
            }
            None => {
                self.arbiter.missed_recent(block);
                self.missed = Some((block, Demand::Unhinted));
            }
        }
        access
    }

    /// Fetches in flight for stream `index`, and a demand that may follow its last read, lose their positions.
    pub(super) fn forget_under_way(&mut self, index: StreamIndex) {
        if let Some((_, demand)) = &mut self.missed
            && matches!(demand, Demand::Hinted(claim) if claim.stream == index)
        {
            *demand = Demand::Unhinted;
        }
        for slot in self.claimed_in_flight(index) {
            let known = &self.arbiter.blocks()[slot];
            let (source, unread) = (known.source(), known.is_unread());
            self.arbiter.tally(source).unfinished += u64::from(unread);
            self.arbiter.mark_read(slot);
            self.arbiter.unclaim(slot);
            self.arbiter.orphan(slot);
        }
    }

    /// Restarts the positions of a stream at 0. All of them must be behind its reader.
    #[cold]
    fn begin_anew(&mut self, index: StreamIndex) {
        self.forget_under_way(index);
        // The block being read has no known later use.
        if let Some(Current { position, slot, .. }) = self.arbiter.stream(index).current.take()
            && self.arbiter.blocks()[slot].claim() == Some(Claim { stream: index, position })
        {
            self.arbiter.unclaim(slot);
            self.arbiter.settle(slot, Some(index));
        }
        self.arbiter.stream(index).begin_anew();
        self.arbiter.streams_mut().touch(index);
    }

    /// Blocks in flight that `index` claims.
    fn claimed_in_flight(&self, index: StreamIndex) -> Vec<SlotId> {
        let slots = self.flights.in_order().flat_map(|flight| match &flight.work {
            FlightWork::Read { slots, .. } => &slots[..],
            FlightWork::Resolve { .. } => &[],
        });
        let claims = |&slot: &SlotId| {
            let claim = self.arbiter.blocks()[slot].claim();
            claim.is_some_and(|claim| claim.stream == index)
        };
        slots.copied().filter(claims).collect()
    }

    pub(super) fn blocks_completed(
        &mut self,
        now: Nanos,
        slots: Vec<SlotId>,
        demand: Option<Demand>,
        outcome: Outcome,
    ) {
        if slots.len() > 1 {
            slots.iter().for_each(|&slot| self.arbiter.blocks().load_slot(slot));
        }
        for (offset, &slot) in (0..).zip(&slots) {
            self.block_completed(now, slot, offset, demand, outcome);
        }
        self.flights.reuse(slots);
        if !self.settled.is_empty() {
            self.advance_settled();
        }
    }

    /// Places hints of streams whose blocks turned out not to need a fetch. This comes after all blocks of the fetch: positions
    /// may restart, and blocks of the fetch may be claimed for old positions.
    #[inline(never)] // The rarer part.
    fn advance_settled(&mut self) {
        let mut settled = std::mem::take(&mut self.settled);
        settled.drain(..).for_each(|index| self.advance(index));
        self.settled = settled;
    }

    fn block_completed(
        &mut self,
        now: Nanos,
        slot: SlotId,
        offset: u64,
        demand: Option<Demand>,
        outcome: Outcome,
    ) {
        let known = &self.arbiter.blocks()[slot];
        let (early, uncounted) =
            (known.was_read_early(), known.is_unread() || known.was_read_early());
        let joins_recent = known.does_join_recent() || demand == Some(Demand::Unhinted);
        let source = known.source();
        let tally = self.arbiter.tally(source);
        match outcome {
            Outcome::Fetched => {}
            Outcome::Short { blocks } if offset < blocks => {}
            Outcome::AlreadyCached => {
                tally.prefetched -= u64::from(uncounted);
                tally.already_cached += u64::from(uncounted);
                return self.not_ours(now, slot);
            }
            Outcome::Short { .. } | Outcome::Refused => {
                tally.refused = tally.refused.saturating_add(u64::from(uncounted));
                return self.not_ours(now, slot);
            }
            Outcome::Resolved { .. } | Outcome::Void => {
                panic!("{outcome:?} is no outcome of a read")
            }
        }
        tally.useful += u64::from(early);
        self.arbiter.arrived(now, slot, joins_recent);
    }

    /// The block was cached already, or cannot be fetched: its access needs no buffer.
    #[inline(never)] // The rarer part.
    fn not_ours(&mut self, now: Nanos, slot: SlotId) {
        let claim = self.arbiter.blocks()[slot].claim();
        self.arbiter.mark_read(slot);
        self.arbiter.unclaim(slot);
        if let Some(Claim { stream: index, position }) = claim {
            let (stream, blocks, changed) = self.arbiter.stream_and_names(index);
            let mut untracked = Vec::new();
            stream.settle(position, blocks, changed, &mut untracked);
            for slot in untracked {
                self.arbiter.abandon(now, slot);
            }
            self.arbiter.streams_mut().touch(index);
            self.arbiter.streams_mut().touch_resolved(index);
            if self.settled.last() != Some(&index) {
                self.settled.push(index);
            }
        }
        self.arbiter.remove(slot);
    }

    /// Checks invariants in debug builds: the cheap ones in each call, all of them in some calls.
    pub(super) fn check(&mut self) {
        #[cfg(debug_assertions)]
        {
            let held = self.arbiter.blocks().len() as u64;
            debug_assert!(held <= self.config.capacity_blocks, "over capacity");
            self.checks = self.checks.wrapping_add(1);
            if self.checks.is_multiple_of(64) || held < 64 {
                self.arbiter.check_all();
            }
        }
    }
}
