//! The prefetcher: which block to fetch next, and whether it is worth a buffer (TIP 1995, sections 5.3
//! and 5.4).
//!
//! * **A. Candidates.** For each device, a stream has at most one candidate: its first block that is missing and near enough.
//!   Streams are ranked by the candidate's benefit, normalised by their share of accesses.
//! * **B. Decision.** The best candidate is fetched if its benefit is above the cost of the cheapest buffer. If it is not,
//!   nothing is fetched.
//! * **C. Cluster.** The next blocks of the file join the fetch if keeping them in memory would pay.
//! * **D. Allowance.** A stream has a bounded number of unread blocks, which grows with each one read and
//!   shrinks with each fetched in vain. A stream that never reads its blocks keeps its initial allowance. That of a stream
//!   of guesses is small, and grows by several blocks with each one read until it is as large as that of others.
//!   A driver may bound it further ([`Policy::limit_ahead`](crate::Policy::limit_ahead)), or say that the reader leaves out
//!   parts ([`Policy::expect_gaps`](crate::Policy::expect_gaps)).
//! * **E. Beyond the horizon** a block is fetched if its device cannot keep up, and only while the device is not busy: a
//!   request waiting in its queue holds a buffer that other streams want. A fetch into a buffer that no stream values may wait
//!   there, since a disk sorts a longer queue better and more disks of an array are at work.
//! * **F. Quiet.** The search includes positions that come near enough with the next few reads. If it finds nothing, the
//!   stream is searched again after those reads, when it loses a block, or when it discloses more.
//! * **G. Runs.** A device that keeps up on average may be too slow for a run of missing blocks. The run begins beyond the
//!   horizon, as soon as one of its blocks would otherwise come too late ([`crate::streams::latest_start`]). Its blocks are
//!   valued like fetches from a device that cannot keep up. Once they are in memory they are valued lower, so two streams could
//!   evict each other's blocks for ever, or one stream its own. Therefore a stream that has lost an unread block evicts no
//!   unread block for a run before it reads again.
//! * **H. Disclosing.** A fetch that would only wait in the queue of a busy device begins when its stream has read, or has
//!   disclosed nothing for as long as a fetch takes: the disk sorts the queue better when it has all requests. Until then the
//!   device begins no fetch of less benefit, and the stream is searched again only if the reasons of this answer change. A
//!   stream that never stops disclosing and never reads delays others for the time of [`DISCLOSING_MAX`] fetches. When such a
//!   stream pauses for longer than a fetch takes, the excess reduces the time that it has used up.
//!
//! The rules ([`crate::rules`]) decide which positions are near enough, and what a candidate is worth.

use crate::blocks::{Claim, DeviceIndex, SlotId, StreamIndex};
use crate::buffers::arbiter::{Arbiter, Need, NoRoom};
use crate::buffers::estimators::hint;
use crate::buffers::values::{Terms, nearness, rounded_up};
use crate::contract::{Config, Memory};
use crate::decisions::{Decision, DecisionKind};
use crate::devices::costs::Costs;
use crate::devices::device::{Device, Waits};
use crate::hint::Block;
use crate::rules::{Prefetch, Rules};
use crate::streams::latest_start::{LatestStart, is_certain};
use crate::streams::stream::Stream;
use crate::streams::stream::cursor::Distance;
use crate::tables::hash::NEIGHBOURS;
use crate::time::Nanos;

/// D: unread blocks that a stream may have at first.
/// Unit: blocks. Reason: judgement.
const ALLOWANCE_FIRST: u64 = 1024;

/// D: unread blocks that a stream of guesses may have before its first read: the program may look at its files and read none.
/// Unit: blocks. Reason: measured (1 MiB; `md5sum` of small files and `cat` of a large one take as long as with
/// [`ALLOWANCE_FIRST`], on 8 disks as slow as a network).
const GUESS_FIRST: u64 = 128;

/// D: unread blocks that each read of a stream of guesses adds, up to [`ALLOWANCE_FIRST`].
/// Unit: blocks. Reason: judgement (a program that reads one block of each file earns no more than a file's blocks with it).
const GUESS_GROWTH: u64 = 8;

/// D: unread blocks that a stream with an accuracy of a half or more may always have.
/// Unit: blocks. Reason: judgement.
const ALLOWANCE_MIN: f64 = 32.0;

/// D: a stream with gaps keeps its first allowance down to this accuracy: 15 blocks are then fetched in vain for each read one.
/// Unit: ratio. Reason: bound.
const GAPS_ACCURACY_MIN: f64 = 0.0625;

/// A: where the horizon bounds the search, it is cut to twice the blocks of memory, or to this if that is more. The search
/// notes missing blocks of all devices on its way.
/// Unit: accesses. Reason: judgement.
const REACH_MIN: u64 = 1 << 16;

/// F: positions beyond the reach that a search includes.
/// Unit: accesses. Reason: judgement.
const SCAN_AHEAD: u64 = 16;

/// H: a stream that discloses and does not read delays others for at most the time of this many fetches.
/// Unit: fetches. Reason: judgement.
const DISCLOSING_MAX: u64 = 64;

/// G: positions from the first missing one on that are searched for a run.
/// Unit: accesses. Reason: bound.
const RUN_MAX: u64 = 16_384;

/// TIP-1 uses this share of the buffers, as a divisor, for unread blocks: 512 of 1,536.
/// Unit: ratio. Reason: paper (TIP 1994, section 2).
const UNREAD_DIVISOR: usize = 3;

/// Benefit of every fetch of TIP-1, which does not compare values: above any cost. Earlier streams get slightly more.
/// Unit: ns. Reason: layout.
const IN_HINT_ORDER: f64 = 1e15;

/// Whether the access at `position` is beyond the horizon.
fn is_beyond(terms: &Terms, front: u64, position: u64) -> bool {
    position >= front.saturating_add(terms.horizon() as u64)
}

/// H: a stream without a hint for this time has stopped disclosing blocks of `device`.
fn pause(costs: &Costs, device: DeviceIndex) -> Nanos {
    Nanos(costs.at(device).disk_ns as u64)
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Prefetcher {
    /// Blocks that may be in memory or in flight.
    limit_blocks: u64,
    cluster_blocks_max: u64,
    memory: Memory,
    /// Whether a search stopped at its bound: a stream has more positions to look at.
    search_is_unfinished: bool,
    /// Empty lists, kept for their room: streams asked for their candidates, and blocks in memory that a search finds.
    asked: Vec<StreamIndex>,
    come_upon: Vec<(SlotId, u64)>,
}

/// A block to prefetch, its stream and position, and its normalised benefit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) claim: Claim,
    pub(crate) block: Block,
    pub(crate) benefit: f64,
}

/// The first block that a stream wants from a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) wanted: Wanted,
    /// E: the block's use is beyond the horizon.
    pub(crate) is_early: bool,
    /// E: the device cannot keep up.
    pub(crate) is_late: bool,
    /// E, G: the device cannot keep up on the whole, or not with the run that the block begins.
    pub(crate) is_needed: bool,
    /// The benefit of fetching the block while the device is busy.
    pub(crate) spare_benefit: f64,
    /// G: the block is beyond the horizon, and valued higher because it begins a run. Forestall never does that, since it
    /// values candidates and blocks in memory by distance alone.
    pub(crate) begins_run: bool,
    /// The reader's position from which on its use is within the horizon.
    pub(crate) near_from: u64,
}

impl Prefetcher {
    pub(crate) fn new(config: &Config) -> Self {
        Prefetcher {
            limit_blocks: config.capacity_blocks,
            cluster_blocks_max: config.cluster_blocks_max,
            memory: config.memory,
            search_is_unfinished: false,
            asked: Vec::new(),
            come_upon: Vec::new(),
        }
    }

    /// From now on at most so many blocks are in memory or in flight.
    pub(crate) fn set_limit(&mut self, blocks: u64) {
        self.limit_blocks = blocks;
    }

    /// Whether a search stopped at its bound, so that the next call may find more.
    #[inline]
    pub(crate) fn search_is_unfinished(&self) -> bool {
        self.search_is_unfinished
    }

    /// [`search_is_unfinished`](Self::search_is_unfinished), and resets it.
    pub(crate) fn take_unfinished_search(&mut self) -> bool {
        std::mem::take(&mut self.search_is_unfinished)
    }

    /// D: the number of unread blocks that `stream` may have.
    #[inline]
    pub(crate) fn allowance(&self, stream: &Stream) -> u64 {
        self.earned(stream).min(stream.unread_max)
    }

    fn earned(&self, stream: &Stream) -> u64 {
        let accuracy = stream.cursor.accuracy();
        let mut first = ALLOWANCE_FIRST.min(self.limit_blocks / 2);
        if stream.is_guess {
            first = first.min(GUESS_FIRST + GUESS_GROWTH.saturating_mul(stream.cursor.reads()));
        }
        if stream.has_gaps && accuracy >= GAPS_ACCURACY_MIN {
            return first.saturating_add_signed(stream.balance.max(0));
        }
        if accuracy == 1.0 {
            return first.saturating_add_signed(stream.balance).max(ALLOWANCE_MIN as u64);
        }
        let first = (first as f64 * accuracy) as u64;
        let least = ALLOWANCE_MIN * (2.0 * accuracy).min(1.0);
        first.saturating_add_signed(stream.balance).max(rounded_up(least))
    }

    /// D: a bound of unread blocks, for the first block of a cluster or for its others.
    ///
    /// A cluster that is begun may exceed the bound. Otherwise, once a stream is at the bound, each read would begin a fetch of
    /// one block.
    fn with_cluster(bound: u64, in_cluster: bool, cluster_blocks_max: u64) -> u64 {
        match in_cluster {
            true => bound + cluster_blocks_max.min(bound / 2),
            false => bound,
        }
    }

    /// C: most blocks of a fetch for `stream`.
    fn cluster_blocks_max(&self, stream: &Stream) -> u64 {
        stream.cluster_blocks_max.unwrap_or(self.cluster_blocks_max)
    }

    /// D: whether `stream` may have one more unread block, as the first of a cluster or as one of its others.
    fn may_claim(&self, arbiter: &Arbiter, stream: &Stream, in_cluster: bool) -> bool {
        let has_room = self.has_room_for_unread(arbiter, in_cluster);
        let cluster = self.cluster_blocks_max(stream);
        let is_earned =
            || stream.unread < Self::with_cluster(self.allowance(stream), in_cluster, cluster);
        has_room && (!arbiter.rules().accuracy || is_earned())
    }

    /// D: whether all streams together may have one more unread block.
    fn has_room_for_unread(&self, arbiter: &Arbiter, in_cluster: bool) -> bool {
        if arbiter.rules().prefetch != Prefetch::HintOrder {
            return true;
        }
        let most = match self.memory {
            Memory::Owned => {
                let bound = (self.limit_blocks / UNREAD_DIVISOR as u64).max(1);
                Self::with_cluster(bound, in_cluster, self.cluster_blocks_max)
            }
            Memory::Kernel { .. } => self.limit_blocks,
        };
        // If all blocks that can be evicted are unread, one more prefetched block would evict one of them, which would then be
        // missing. Blocks in flight cannot be evicted.
        let cannot_go = (arbiter.blocks().len() - arbiter.queued()) as u64;
        arbiter.unread() < most.min(self.limit_blocks.saturating_sub(cannot_go))
    }

    /// How far ahead of its reader a stream is searched for `device`.
    fn reach(&self, arbiter: &Arbiter, terms: &Terms) -> u64 {
        let everything = self.limit_blocks.saturating_mul(2);
        // The horizon is infinite if a hit costs nothing.
        let horizon = rounded_up(terms.horizon().min(1e15)).min(everything.max(REACH_MIN));
        match arbiter.rules().prefetch {
            Prefetch::Never => 0,
            Prefetch::HintOrder | Prefetch::Aggressive | Prefetch::Forestall => everything,
            Prefetch::FixedHorizon => horizon,
            Prefetch::Benefit if terms.overloaded() || terms.spares() => everything,
            Prefetch::Benefit => horizon,
        }
    }

    /// A: the candidate of stream `index` for `device`.
    pub(crate) fn candidate(
        &mut self,
        arbiter: &mut Arbiter,
        index: StreamIndex,
        device: DeviceIndex,
    ) -> Option<Candidate> {
        let stream = arbiter.streams().get(index)?;
        let front = stream.cursor.front();
        let part = stream.devices.iter().find(|part| part.device == device)?;
        if front < part.quiet_until {
            return None;
        }
        let terms = hint::terms(stream, arbiter.costs(), arbiter.rules(), device);
        let limit = front.saturating_add(self.reach(arbiter, &terms));
        let mut found = std::mem::take(&mut self.come_upon);
        let (stream, blocks, _) = arbiter.stream_and_blocks(index)?;
        let beyond = limit.saturating_add(SCAN_AHEAD);
        let position = stream.first_missing(blocks, device, beyond, |slot, at| {
            found.push((slot, at));
        });
        let near = position.filter(|&position| position < limit);
        if near.is_none() && !stream.scan_is_unfinished {
            // Nothing, or nothing yet: F.
            let until_near = position.map_or(SCAN_AHEAD, |position| position + 1 - limit);
            stream.of_device(device).quiet_until = front.saturating_add(until_near.min(SCAN_AHEAD));
        }
        let is_beyond = near.is_some_and(|position| is_beyond(&terms, front, position));
        let must_begin = near.filter(|_| is_beyond).is_some_and(|position| {
            let reach = (position, limit);
            self.must_begin(arbiter, (index, device), reach, &terms, &mut found)
        });
        for (slot, position) in found.drain(..) {
            let known = &arbiter.blocks()[slot];
            let block = known.block();
            match known.claim() {
                None if !known.is_in_flight() => {
                    let position = arbiter.stream(index).first_use_ahead(block, position);
                    arbiter.claim(slot, Claim { stream: index, position });
                }
                // The stream reads the block sooner than its claim says.
                Some(claim) if claim.stream == index && claim.position > position => {
                    arbiter.reclaim(slot, Claim { stream: index, position });
                }
                _ => continue,
            }
            arbiter.stream(index).come_upon_behind(block);
        }
        self.come_upon = found;
        let position = near?;
        let stream = arbiter.streams().get(index)?;
        let (block, _) = stream.block_at(position)?;
        let is_late = terms.overloaded();
        let terms = match arbiter.rules().prefetch {
            Prefetch::Benefit if must_begin => terms.behind(&arbiter.costs().at(device)),
            Prefetch::Forestall if is_beyond && !must_begin => return None,
            _ => terms,
        };
        let benefit = Self::benefit(arbiter.rules(), stream, position, &terms)?;
        let benefit = match arbiter.rules().prefetch {
            Prefetch::HintOrder => IN_HINT_ORDER - stream.id.0 as f64,
            _ => arbiter.normalised(index, benefit),
        };
        let is_early = (terms.overloaded() || terms.spares()) && is_beyond;
        let spare_benefit = match is_early {
            true => {
                let value = terms.spare_benefit(stream.distance(position));
                arbiter.normalised(index, value * stream.cursor.accuracy())
            }
            false => benefit,
        };
        let (claim, is_needed) = (Claim { stream: index, position }, terms.overloaded());
        let near_from = (position + 1).saturating_sub(terms.horizon() as u64);
        let wanted = Wanted { claim, block, benefit };
        Some(Candidate {
            wanted,
            is_early,
            is_late,
            is_needed,
            spare_benefit,
            begins_run: must_begin && arbiter.rules().prefetch == Prefetch::Benefit,
            near_from,
        })
    }

    /// G, and Forestall: whether fetches must begin at `position`, beyond the horizon, so that no block before `limit` comes
    /// too late. Adds blocks in memory that the search passes to `found`.
    fn must_begin(
        &self,
        arbiter: &mut Arbiter,
        (index, device): (StreamIndex, DeviceIndex),
        (position, limit): (u64, u64),
        terms: &Terms,
        found: &mut Vec<(SlotId, u64)>,
    ) -> bool {
        let prices = arbiter.costs().at(device);
        let streams_in_use = arbiter.streams().in_use();
        let is_forestall = arbiter.rules().prefetch == Prefetch::Forestall;
        let runs = arbiter.rules().runs;
        let Some((stream, blocks, _)) = arbiter.stream_and_blocks(index) else { return false };
        let gap_ns = stream.pace.gap_ns().unwrap_or(prices.hit_ns).max(prices.hit_ns);
        let front = stream.cursor.front();
        if is_forestall {
            stream.note_missing(blocks, limit, |slot, at| found.push((slot, at)));
            // The time at a busy device, as soon as it has been measured.
            let fetch_ns = if prices.block_ns > 0.0 { prices.block_ns } else { prices.disk_ns };
            let missing = stream.missing_from(device, position);
            return is_certain(front, missing, fetch_ns / gap_ns);
        }
        let in_order = matches!(stream.distance(position), Distance::Ahead(_));
        if !runs || terms.overloaded() || !in_order || prices.full_ns <= gap_ns {
            return false;
        }
        if stream.of_device(device).start.is_old(front) {
            let share = self.limit_blocks.saturating_mul(2) / streams_in_use;
            let most = share.clamp(1, RUN_MAX);
            let end = limit.min(position.saturating_add(most));
            stream.note_missing(blocks, end, |slot, at| found.push((slot, at)));
            let missing = stream.missing_from(device, position).take_while(|&at| at < end);
            let start = LatestStart::find(front, missing, prices.full_ns / gap_ns);
            stream.of_device(device).start = start;
        }
        stream.of_device(device).start.is_past(front)
    }

    /// The benefit of fetching the block at `position` for its stream.
    fn benefit(rules: &Rules, stream: &Stream, position: u64, terms: &Terms) -> Option<f64> {
        let distance = stream.distance(position);
        let value = match rules.prefetch {
            Prefetch::Never => return None,
            Prefetch::Benefit => terms.prefetch_benefit(distance),
            _ => nearness(distance),
        };
        let value = if rules.accuracy { value * stream.cursor.accuracy() } else { value };
        (value > 0.0).then_some(value)
    }

    /// Asks the streams that have changed for their candidates. Returns the last one found for `device`.
    pub(crate) fn refresh_candidates(
        &mut self,
        arbiter: &mut Arbiter,
        devices: &mut [Device],
        device: DeviceIndex,
    ) -> Option<Candidate> {
        let mut last = None;
        // The next call asks streams that change meanwhile.
        let empty = std::mem::take(&mut self.asked);
        let mut stale = arbiter.streams_mut().take_stale_candidates(empty);
        while let Some(index) = stale.pop() {
            let Some(stream) = arbiter.streams_mut().ask_for_candidate(index) else { continue };
            for part in 0..stream.devices.len() {
                let Some(stream) = arbiter.streams().get(index) else { break };
                let at = stream.devices[part].device;
                let candidate = self.candidate(arbiter, index, at);
                let key = candidate.map(|candidate| candidate.wanted.benefit);
                let at_device = &mut devices[usize::from(at.0)];
                at_device.candidates.set(index.0, key);
                at_device.first_waits.take_if(|first| first.stream == index);
                if arbiter.stream(index).scan_is_unfinished {
                    self.search_goes_on(arbiter, index);
                }
                if at == device {
                    last = candidate.or(last);
                }
            }
        }
        self.asked = stale;
        last
    }

    /// Wakes a parked stream if there is room for one more unread block. Call it when the streams that were asked want nothing
    /// more from this device. Returns whether it woke one.
    pub(crate) fn goes_on_with_parked(&self, arbiter: &mut Arbiter) -> bool {
        let goes_on = arbiter.streams().has_parked() && self.has_room_for_unread(arbiter, false);
        if goes_on {
            arbiter.streams_mut().wake_parked();
        }
        goes_on
    }

    /// The next call continues the search in stream `index`.
    fn search_goes_on(&mut self, arbiter: &mut Arbiter, index: StreamIndex) {
        self.search_is_unfinished = true;
        arbiter.streams_mut().touch_candidate(index);
    }

    /// B, C: takes buffers for the next cluster of `device`. Returns its first block; `slots`, empty before, gets the slots.
    pub(crate) fn next_cluster(
        &mut self,
        now: Nanos,
        arbiter: &mut Arbiter,
        devices: &mut [Device],
        device: DeviceIndex,
        slots: &mut Vec<SlotId>,
    ) -> Option<Block> {
        let fresh = self.refresh_candidates(arbiter, devices, device);
        let at_device = &mut devices[usize::from(device.0)];
        let is_busy = at_device.is_busy();
        let (candidates, waits) = (&mut at_device.candidates, &mut at_device.first_waits);
        loop {
            let (stream, key) = candidates.first()?;
            let index = StreamIndex(stream);
            if let Some(first) = *waits {
                let is_same = first.stream == index
                    && (first.was_busy, first.costs) == (is_busy, arbiter.costs().changes())
                    && !arbiter.blocks().seems_to_have(first.block);
                if is_same && is_disclosing(arbiter, now, index, device) {
                    return None; // H
                }
                *waits = None;
            }
            // Costs and blocks in memory may have changed without marking the stream as changed.
            let candidate = match fresh {
                Some(fresh)
                    if (fresh.wanted.claim.stream, fresh.wanted.benefit) == (index, key) =>
                {
                    Some(fresh)
                }
                _ if arbiter.streams().get(index).is_none() => None,
                _ => self.candidate(arbiter, index, device),
            };
            candidates.set(stream, candidate.map(|candidate| candidate.wanted.benefit));
            let Some(candidate) = candidate else {
                if arbiter.streams().get(index).is_some_and(|s| s.scan_is_unfinished) {
                    self.search_goes_on(arbiter, index);
                }
                continue;
            };
            let wanted = candidate.wanted;
            if wanted.benefit < key && candidates.second_key() > Some(wanted.benefit) {
                continue; // Another candidate is better now.
            }
            let allowed = arbiter
                .streams()
                .get(index)
                .is_some_and(|stream| self.may_claim(arbiter, stream, false));
            if !allowed {
                note(arbiter, now, DecisionKind::Unearned, wanted, (wanted.benefit, 0.0));
                candidates.set(stream, None); // The stream has no candidate until it reads or loses a block.
                if arbiter.rules().prefetch == Prefetch::HintOrder {
                    arbiter.streams_mut().park(index); // TIP-1's bound is for all streams together.
                }
                continue;
            }
            let may_wait = candidate.is_early && (is_busy || !candidate.is_late);
            if may_wait && is_disclosing(arbiter, now, index, device) {
                let (block, costs) = (wanted.block, arbiter.costs().changes());
                *waits = Some(Waits { stream: index, block, was_busy: is_busy, costs });
                return None;
            }
            let mut worth = wanted.benefit;
            if candidate.is_early && (is_busy || !candidate.is_needed) {
                // E: it would only wait in the queue.
                worth = candidate.spare_benefit;
                let is_roomy = arbiter.is_roomy(worth);
                if !is_roomy && candidate.is_needed {
                    return None; // No candidate until the device has fewer requests.
                }
                if !is_roomy {
                    // F: search again after the next few reads, or when it is near enough.
                    let stream = arbiter.stream(index);
                    let front = stream.cursor.front();
                    let until = candidate.near_from.clamp(front + 1, front + SCAN_AHEAD);
                    stream.of_device(device).quiet_until = until;
                    candidates.set(index.0, None);
                    continue;
                }
            }
            // G: the evicted block would be part of a run as well, and be worth as much as this one as soon as it is missing.
            let spares_unread = candidate.begins_run && arbiter.stream(index).has_lost_unread;
            let need = Need { block: wanted.block, by: Some(index), worth, spares_unread };
            let cost = match arbiter.make_room(now, need) {
                Ok(cost) => cost,
                Err(NoRoom::TooDear(cost)) => {
                    note(arbiter, now, DecisionKind::Refuse, wanted, (worth, cost));
                    return None;
                }
                Err(NoRoom::Unread) => {
                    note(arbiter, now, DecisionKind::Refuse, wanted, (worth, worth));
                    let stream = arbiter.stream(index);
                    let front = stream.cursor.front();
                    stream.of_device(device).quiet_until = front + 1;
                    candidates.set(index.0, None);
                    continue;
                }
            };
            self.take_cluster(now, arbiter, device, (wanted, cost, spares_unread), slots);
            arbiter.streams_mut().touch_candidate(index);
            return Some(wanted.block);
        }
    }

    fn take_cluster(
        &mut self,
        now: Nanos,
        arbiter: &mut Arbiter,
        device: DeviceIndex,
        (first, cost, spares_unread): (Wanted, f64, bool),
        slots: &mut Vec<SlotId>,
    ) {
        let index = first.claim.stream;
        let stream = &arbiter.streams()[index];
        let blocks_max = self.cluster_blocks_max(stream);
        let terms = hint::terms(stream, arbiter.costs(), arbiter.rules(), device);
        let (mut kind, mut wanted, mut cost) = (DecisionKind::Prefetch, first, cost);
        for blocks in 1.. {
            // The only call, so that it is inlined.
            slots.push(take(arbiter, now, kind, device, (wanted, cost)));
            if blocks >= blocks_max {
                break;
            }
            let block = Block { index: first.block.index + blocks, ..first.block };
            if blocks % NEIGHBOURS == 1 {
                arbiter.blocks().load_next_home(block);
            }
            let next = self.neighbour(arbiter, &terms, first.claim, blocks, block);
            let Some(next) = next else { break };
            let need = Need { block, by: Some(index), worth: next.benefit, spares_unread };
            let Ok(next_cost) = arbiter.make_room(now, need) else { break };
            (kind, wanted, cost) = (DecisionKind::Cluster, next, next_cost);
        }
    }

    /// C: the block `offset` after the first of a cluster, if it is missing, keeping it has a value, and its stream will read
    /// it within as many accesses as memory has blocks.
    fn neighbour(
        &mut self,
        arbiter: &mut Arbiter,
        terms: &Terms,
        first: Claim,
        offset: u64,
        block: Block,
    ) -> Option<Wanted> {
        if arbiter.blocks().seems_to_have(block) {
            return None;
        }
        let index = first.stream;
        if !self.may_claim(arbiter, arbiter.streams().get(index)?, true) {
            return None;
        }
        let stream = arbiter.stream(index);
        let in_a_row = first.position + offset;
        let is_in_a_row = stream.reads_at(in_a_row, block) && stream.cursor.expects(in_a_row);
        let position = if is_in_a_row { in_a_row } else { stream.next_use(block)? };
        // Further ahead it would probably be evicted before it is read.
        let reach = self.limit_blocks;
        if matches!(stream.distance(position), Distance::Ahead(far) if far > reach) {
            return None;
        }
        let stream = arbiter.streams().get(index)?;
        let value = hint::value_at(stream, arbiter.rules(), terms, position);
        let benefit = match arbiter.rules().prefetch {
            Prefetch::HintOrder => IN_HINT_ORDER,
            _ => arbiter.normalised(index, value),
        };
        let claim = Claim { stream: index, position };
        Some(Wanted { claim, block, benefit })
    }
}

/// H: whether more hints are likely to follow at once. Fetches that wait for them get larger clusters and a better order.
fn is_disclosing(arbiter: &Arbiter, now: Nanos, index: StreamIndex, device: DeviceIndex) -> bool {
    let stream = arbiter.streams().get(index);
    let Some((stream, hinted_at)) = stream.and_then(|stream| Some((stream, stream.hinted_at?)))
    else {
        return false;
    };
    let pause = pause(arbiter.costs(), device);
    let part = stream.devices.iter().find(|part| part.device == device);
    let discloses_for = part.map_or(Nanos::ZERO, |part| part.discloses_for);
    now.saturating_sub(hinted_at) < pause
        && discloses_for < Nanos(pause.0.saturating_mul(DISCLOSING_MAX))
}

/// H: a hint of stream `index` has come.
pub(crate) fn note_hint(arbiter: &mut Arbiter, now: Nanos, index: StreamIndex) {
    let Some((stream, _, costs)) = arbiter.stream_and_blocks(index) else { return };
    let gap = stream.hinted_at.replace(now).map(|before| now.saturating_sub(before));
    for part in &mut stream.devices {
        let pause = pause(costs, part.device);
        part.discloses_for = gap.map_or(Nanos::ZERO, |gap| {
            let rest = gap.saturating_sub(pause);
            (part.discloses_for + gap.min(pause)).saturating_sub(rest)
        });
    }
}

/// Gives the wanted block a buffer. There must be room.
fn take(
    arbiter: &mut Arbiter,
    now: Nanos,
    kind: DecisionKind,
    device: DeviceIndex,
    (wanted, cost): (Wanted, f64),
) -> SlotId {
    note(arbiter, now, kind, wanted, (wanted.benefit, cost));
    let Claim { stream, position } = wanted.claim;
    let (known, blocks, _) = arbiter.stream_and_blocks(stream).expect("a stream in use");
    known.taken(blocks, device, position);
    arbiter.begin(wanted.block, device, Some(wanted.claim))
}

#[inline]
fn note(arbiter: &mut Arbiter, at: Nanos, kind: DecisionKind, wanted: Wanted, values: (f64, f64)) {
    if arbiter.logs_decisions() {
        put_down(arbiter, at, kind, wanted, values);
    }
}

#[cold]
fn put_down(
    arbiter: &mut Arbiter,
    at: Nanos,
    kind: DecisionKind,
    wanted: Wanted,
    (value, against): (f64, f64),
) {
    let (block, stream) = (wanted.block, Some(arbiter.stream(wanted.claim.stream).id));
    let (value_ns, against_ns) = (arbiter.as_share(value), arbiter.as_share(against));
    arbiter.log_decision(Decision { at, kind, block, stream, value_ns, against_ns });
}
