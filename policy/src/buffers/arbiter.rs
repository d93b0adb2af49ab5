//! The arbiter: which block makes room (TIP 1995, sections 4.7 and 5.1).
//!
//! Each estimator declares the value of its least valuable block. The arbiter multiplies it by the estimator's share of all
//! accesses and ranks the products.
//!
//! * **A. Pick.** When a buffer is needed, the lowest-ranked estimator picks its least valuable block and declares the next
//!   one. If that block is worth more than the use of the buffer, nothing happens.
//! * **B. Track it or lose it.** The arbiter offers the picked block to the other estimators that might know it: the stream
//!   that claims it, the estimators of the list, and the streams that name its file. An estimator that values it more than the
//!   picker does keeps it, and the arbiter picks another block.
//! * **C. Leave.** If no estimator keeps the block, it leaves memory, and the streams that name it note that it is missing.
//!
//! The arbiter asks a stream for its value again only if a buffer is needed and the value may have fallen since (it is
//! *stale*). A value that has risen is noticed only when the stream is about to be picked as the least.
//!
//! Invariants: blocks in memory and in flight never exceed the capacity; at least one estimator tracks every block in memory;
//! the stream of a claim knows the block.
//!
//! Cost: O(log s + log n) a victim for each estimator that is offered it, with s streams and n blocks. At most [`OFFERS_MAX`]
//! streams are offered a block.
//!
//! Not here: the list of estimators (`estimators/mod.rs`), claims and arrivals (`arbiter/claims.rs`), reads
//! (`arbiter/reads.rs`), buffers with owners (`arbiter/owners.rs`), the invariants as assertions (`arbiter/checks.rs`).

/// What estimators see of an arbiter: a borrow of these fields alone, which a method could not give.
macro_rules! scene {
    ($arbiter:expr) => {
        Scene {
            blocks: &mut $arbiter.blocks,
            costs: &$arbiter.costs,
            rates: &$arbiter.rates,
            rules: &$arbiter.rules,
        }
    };
}

#[cfg(any(test, debug_assertions))]
mod checks;
mod claims;
mod limit;
mod owners;
mod reads;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::blocks::{BlockTable, SlotId, StreamIndex};
use crate::buffers::allocation::Allocation;
use crate::buffers::estimators::hint::{self, HintEstimator};
use crate::buffers::estimators::{Estimator, Estimators, Least, Listed, Scene, Setting};
use crate::buffers::rates::{Rates, UNHINTED, share_of};
use crate::contract::{Config, Memory};
use crate::decisions::{Decision, DecisionKind, DecisionLog};
use crate::devices::costs::Costs;
use crate::hint::Block;
use crate::rules::{Replacement, Rules};
use crate::streams::Streams;
use crate::streams::stream::Stream;
use crate::streams::stream::index::FileChange;
use crate::tables::heap::IndexedHeap;
use crate::tally::{SourceId, Tallies, Tally};
use crate::time::Nanos;

/// Streams that a picked block is offered to. More of them may name its file; offers then begin with another one each time.
/// Unit: streams. Reason: bound.
const OFFERS_MAX: usize = 16;

/// Streams that are told that a block has left. The others find out when they look at it again.
/// Unit: streams. Reason: bound.
const TOLD_MAX: usize = 256;

/// Least half-life of a share: a past access counts half after so many accesses. In a cache of more blocks than this, the
/// half-life is one access for each block.
/// Unit: accesses. Reason: judgement.
const HALF_LIFE_MIN: f64 = 1024.0;

/// Share of all accesses assumed for a new stream, until its own is measured. It is less if the hinter left blocks unread.
/// Without it, a stream that begins in a cache full of valuable blocks has 2 blocks fetched before its first read, and with it
/// 63 (`tests/replacement.rs`).
/// Unit: ratio. Reason: judgement.
const SHARE_FIRST: f64 = 0.2;

/// An estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// An estimator of the list.
    Listed(Listed),
    /// A stream of hints.
    Stream(StreamIndex),
}

impl Member {
    fn stream(self) -> Option<StreamIndex> {
        match self {
            Member::Stream(index) => Some(index),
            Member::Listed(_) => None,
        }
    }

    fn listed(self) -> Option<Listed> {
        match self {
            Member::Listed(listed) => Some(listed),
            Member::Stream(_) => None,
        }
    }
}

/// The streams that name a file. They are unknown until they are searched for, which costs a cache miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Unknown,
    ByNobody,
    ByOne(StreamIndex),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Arbiter {
    blocks: BlockTable,
    streams: Streams,
    costs: Costs,
    rules: Rules,
    memory: Memory,
    capacity_blocks: usize,
    /// A block is brought in below so many; at most the capacity.
    limit_blocks: usize,
    /// The estimators of the list.
    estimators: Estimators,
    rates: Rates,
    /// Streams by their declared values, lowest first (keys are negative).
    ranking: IndexedHeap,
    /// Present under [`Replacement::LruSp`].
    allocation: Option<Allocation>,
    /// Prefetched blocks, in memory or in flight, that are unread.
    unread: u64,
    /// What became of prefetched blocks.
    tallies: Tallies,
    /// Blocks that have left; the driver is to be told.
    evicted: VecDeque<Block>,
    log: DecisionLog,
    /// Which stream a block is offered to first, round robin.
    offers_from: usize,
    #[cfg(any(test, debug_assertions))]
    checked: usize,
    #[cfg(any(test, debug_assertions))]
    least_checked: usize,
    /// Whether a block has left that more than [`TOLD_MAX`] streams name. From then on the positions that streams seek are not
    /// checked.
    #[cfg(any(test, debug_assertions))]
    left_untold: bool,
}

/// What a buffer is needed for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) block: Block,
    /// The stream that will read the block; `None` for a demand read.
    pub(crate) by: Option<StreamIndex>,
    /// The value of the buffer's use, normalised.
    pub(crate) worth: f64,
    /// Whether unread blocks must stay.
    pub(crate) spares_unread: bool,
}

/// Why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoRoom {
    /// The cheapest buffer costs this much, normalised; infinite if there is none.
    TooDear(f64),
    /// The cheapest buffer holds an unread block, and those must stay.
    Unread,
}

impl Arbiter {
    pub(crate) fn new(config: &Config) -> Self {
        let capacity_blocks = usize::try_from(config.capacity_blocks).unwrap_or(usize::MAX);
        let mut rules = config.rules;
        rules.spare_buffers &= config.memory == Memory::Owned; // Other programs may use a kernel's spare buffers.
        let setting = Setting { rules, memory: config.memory, capacity_blocks };
        Arbiter {
            blocks: BlockTable::new(capacity_blocks),
            streams: Streams::new(config.resolved_max),
            costs: Costs::new(config.costs, &rules),
            rules,
            memory: config.memory,
            capacity_blocks,
            limit_blocks: capacity_blocks,
            estimators: Estimators::new(&setting),
            rates: Rates::new((capacity_blocks as f64).max(HALF_LIFE_MIN)),
            ranking: IndexedHeap::default(),
            allocation: (rules.replacement == Replacement::LruSp).then(Allocation::default),
            unread: 0,
            tallies: Tallies::default(),
            evicted: VecDeque::new(),
            log: DecisionLog::new(config.decisions_max),
            offers_from: 0,
            #[cfg(any(test, debug_assertions))]
            checked: 0,
            #[cfg(any(test, debug_assertions))]
            least_checked: 0,
            #[cfg(any(test, debug_assertions))]
            left_untold: false,
        }
    }

    /// The blocks in memory or in flight.
    #[inline]
    pub(crate) fn blocks(&self) -> &BlockTable {
        &self.blocks
    }

    /// All streams.
    #[inline]
    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// All streams.
    #[inline]
    pub(crate) fn streams_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// The stream of an index that is known to be in use.
    #[inline]
    pub(crate) fn stream(&mut self, index: StreamIndex) -> &mut Stream {
        &mut self.streams[index]
    }

    /// Costs as measured.
    #[inline]
    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Costs, for new measurements.
    #[inline]
    pub(crate) fn costs_mut(&mut self) -> &mut Costs {
        &mut self.costs
    }

    /// The rules of the policy, without those that its kind of memory rules out.
    #[inline]
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Prefetched blocks, in memory or in flight, that are unread.
    #[inline]
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    /// What became of prefetched blocks, by their sources.
    #[inline]
    pub(crate) fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// As [`tallies`](Self::tallies), for one source and mutable.
    #[inline]
    pub(crate) fn tally(&mut self, source: SourceId) -> &mut Tally {
        self.tallies.of(source)
    }

    /// The next block that has left memory and that the driver has not been told of.
    #[inline]
    pub(crate) fn next_evicted(&mut self) -> Option<Block> {
        self.evicted.pop_front()
    }

    /// Takes the decisions out of the log; see [`DecisionLog::take`].
    pub(crate) fn take_decisions(&mut self) -> (Vec<Decision>, u64) {
        self.log.take()
    }

    /// Whether decisions are logged.
    #[inline]
    pub(crate) fn logs_decisions(&self) -> bool {
        self.log.is_on()
    }

    /// Logs a decision of the prefetcher.
    pub(crate) fn log_decision(&mut self, decision: Decision) {
        self.log.push(decision);
    }

    /// The slot of `block`, which is read now; see [`BlockTable::find_loaded`].
    #[inline(always)] // Every read passes here, from two places.
    pub(crate) fn find_loaded(&mut self, block: Block) -> Option<SlotId> {
        self.blocks.find_loaded(block)
    }

    /// Takes in a new stream.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> StreamIndex {
        let (index, believed) = self.streams.add(stream);
        // Squared: a hinter whose prefetched blocks go unread gains little by opening more streams.
        self.rates.introduce(share_of(index), SHARE_FIRST * believed * believed);
        index
    }

    /// Forgets a stream that has been cancelled; see [`Streams::remove`].
    pub(crate) fn remove_stream(&mut self, index: StreamIndex) {
        self.streams.remove(index);
        self.rates.forget(share_of(index));
        self.ranking.set(index.0, None);
    }

    fn scene(&mut self) -> (Scene<'_>, &mut Estimators) {
        let scene = scene!(self);
        (scene, &mut self.estimators)
    }

    /// A block of `source` that `stream` was to read, if that is known, has left or been given up unread.
    fn note_wasted(&mut self, source: SourceId, stream: Option<StreamIndex>) {
        self.tally(source).wasted += 1;
        if let Some(stream) = stream {
            self.streams.note_wasted(stream);
        }
    }

    /// A stream, if it is open, with the blocks and the costs.
    #[inline]
    pub(crate) fn stream_and_blocks(
        &mut self,
        index: StreamIndex,
    ) -> Option<(&mut Stream, &BlockTable, &Costs)> {
        Some((self.streams.get_mut(index)?, &self.blocks, &self.costs))
    }

    /// A stream, the blocks, and a function that notes which files the stream names from now on.
    #[inline]
    pub(crate) fn stream_and_names(
        &mut self,
        index: StreamIndex,
    ) -> (&mut Stream, &BlockTable, impl FnMut(FileChange)) {
        let (stream, changed) = self.streams.with_names(index);
        (stream, &self.blocks, changed)
    }

    /// A value of a stream, normalised by its share (eq. 8).
    pub(crate) fn normalised(&self, stream: StreamIndex, value: f64) -> f64 {
        value * self.rates.count(share_of(stream))
    }

    /// A normalised value in ns for each access of any program.
    pub(crate) fn as_share(&self, normalised: f64) -> f64 {
        normalised / self.rates.total()
    }

    /// Notes for the owners of buffers that a block is fetched or read, by a stream or without one.
    #[inline]
    pub(crate) fn accessed(&mut self, slot: Option<SlotId>, by: Option<StreamIndex>) {
        if self.allocation.is_some() {
            self.accessed_by_owner(slot, by);
        }
    }

    /// Counts an access of a stream, or one without hints.
    #[inline(always)]
    pub(crate) fn count_access(&mut self, stream: Option<StreamIndex>) {
        if self.rules.replacement != Replacement::Lru
            && self.rates.access(stream.map_or(UNHINTED, share_of))
        {
            self.touch_all();
        }
    }

    #[cold]
    fn touch_all(&mut self) {
        for index in self.streams.indices() {
            self.streams.touch(index);
        }
    }

    /// Ranks a stream by what it declares, normalised.
    fn rank(&mut self, index: StreamIndex) -> Option<f64> {
        let stream = self.streams.get_mut(index)?;
        let scene = scene!(self);
        stream.note_ranked(self.costs.changes());
        let value = HintEstimator { index, stream }.declare(&scene);
        let value = value.map(|value| value * self.rates.count(share_of(index)));
        self.ranking.set(index.0, value.map(|value| -value));
        value
    }

    /// The estimator with the globally least valuable block, and the block's value, normalised.
    fn least(&mut self) -> Option<(Member, f64)> {
        let reach = self.limit_blocks.saturating_sub(self.unread as usize);
        let scene = scene!(self);
        if self.rules.replacement == Replacement::Lru {
            return self.estimators.first(&scene).map(|of| (Member::Listed(of), 0.0));
        }
        let Some(Least { of, value, bound }) = self.estimators.least(&scene, reach) else {
            let (index, value) = self.least_of_streams()?;
            return Some((Member::Stream(index), value));
        };
        if bound > 0.0 // Otherwise nothing is worth less.
            && let Some((index, value)) = self.least_of_streams()
            && value < bound
        {
            return Some((Member::Stream(index), value));
        }
        Some((Member::Listed(of), value))
    }

    fn least_of_streams(&mut self) -> Option<(StreamIndex, f64)> {
        while let Some(index) = self.streams.next_stale_value() {
            self.rank(index);
        }
        loop {
            let (stream, key) = self.ranking.first()?;
            let index = StreamIndex(stream);
            // The blocks that it tracks, or their costs, may have changed since it was ranked.
            let changes = self.costs.changes();
            let is_ranked = self.streams.get(index).is_some_and(|s| s.is_ranked_by(changes));
            if is_ranked || self.rank(index) == Some(-key) {
                #[cfg(any(test, debug_assertions))]
                self.check_least(index, -key);
                return Some((index, -key));
            }
        }
    }

    /// Whether the block that would be picked is unread.
    #[cold]
    fn would_waste(&mut self, of: Member) -> bool {
        let Member::Stream(index) = of else { return false };
        let scene = scene!(self);
        let stream = self.streams.get(index);
        let slot = stream.and_then(|stream| hint::least_slot(stream, &scene));
        slot.is_some_and(|slot| self.blocks[slot].is_unread())
    }

    fn pick(&mut self, of: Member) -> Option<SlotId> {
        let (mut scene, estimators) = self.scene();
        match of {
            Member::Listed(listed) => estimators.pick(listed, &mut scene),
            Member::Stream(index) => self.pick_of_stream(index),
        }
    }

    fn pick_of_stream(&mut self, index: StreamIndex) -> Option<SlotId> {
        let stream = self.streams.get_mut(index)?;
        let mut scene = scene!(self);
        let slot = HintEstimator { index, stream }.pick(&mut scene)?;
        if self.blocks[slot].is_unread() {
            self.streams.touch_shown(index);
        }
        Some(slot)
    }

    /// Whether a quarter of all buffers are free, or hold blocks of the consumed queue that are worth less than `worth`,
    /// normalised.
    ///
    /// This quarter is a reserve: with fewer buffers left, a fetch would force another stream to evict a more valuable block.
    /// Blocks that were read without hints are not counted: only a long time without another read shows that they are worth
    /// nothing.
    pub(crate) fn is_roomy(&mut self, worth: f64) -> bool {
        let free = self.limit_blocks.saturating_sub(self.blocks.len());
        let quarter = self.limit_blocks / 4;
        let own = self.rates.own(UNHINTED, worth);
        let (scene, estimators) = self.scene();
        free >= quarter || free + estimators.queues.idle_consumed(&scene, own) >= quarter
    }

    /// Evicts blocks worth less than `need` until there is room for it. Returns the normalised value of the last block evicted;
    /// 0 if there was room.
    pub(crate) fn make_room(&mut self, now: Nanos, need: Need) -> Result<f64, NoRoom> {
        if self.allocation.is_some() {
            return self.make_room_by_owners(now, need);
        }
        let Need { worth, .. } = need;
        let mut paid = 0.0;
        while self.blocks.len() >= self.limit_blocks {
            let (of, cost) = self.least().ok_or(NoRoom::TooDear(f64::INFINITY))?;
            if cost >= worth {
                return Err(NoRoom::TooDear(cost));
            }
            if need.spares_unread && self.would_waste(of) {
                return Err(NoRoom::Unread);
            }
            let slot = self.pick(of).expect("an estimator that declares a value has a block");
            if let Some(named) = self.unsaved(slot, of, cost) {
                self.leave(now, slot, (of.stream(), named), (cost, worth));
                paid = cost;
            }
        }
        Ok(paid)
    }

    /// B: whether the block may leave. `None` if an estimator other than `picker` values it above `floor`, normalised, and
    /// keeps it. Otherwise the streams that name the block's file, as far as they were searched for.
    fn unsaved(&mut self, slot: SlotId, picker: Member, floor: f64) -> Option<Named> {
        if self.rules.replacement == Replacement::Lru {
            return Some(Named::Unknown);
        }
        let claim = self.blocks[slot].claim();
        if claim.is_some_and(|claim| self.stream_saves(claim.stream, slot, floor)) {
            return None;
        }
        if self.list_saves(slot, picker.listed(), floor) {
            return None;
        }
        let Some(claim) = claim else {
            return self.unwanted_by_others(slot, picker.stream(), floor);
        };
        // Another stream may read it sooner than the one that claims it.
        let file = self.blocks[slot].block().file;
        if self.streams.is_alone(claim.stream, file) {
            return Some(Named::ByOne(claim.stream));
        }
        if self.streams.named_by(file).len() < 2 {
            return Some(Named::Unknown);
        }
        self.unclaim(slot);
        let unwanted = self.unwanted_by_others(slot, Some(claim.stream), floor);
        if unwanted.is_none() {
            let device = self.blocks[slot].device();
            self.streams[claim.stream].lost(device, claim.position);
        } else {
            self.claim(slot, claim);
        }
        unwanted
    }

    /// Offers a block to the estimators of the list, and says whether one other than `picker` keeps it.
    ///
    /// An unread block is not offered: only its stream knows when it is given up, so it would count as unread for ever.
    fn list_saves(&mut self, slot: SlotId, picker: Option<Listed>, floor: f64) -> bool {
        let mut scene = scene!(self);
        !scene.blocks[slot].is_unread() && self.estimators.offer(&mut scene, slot, picker, floor)
    }

    /// The name of an estimator of the list that tracks a block.
    pub(crate) fn kept_by(&self, slot: SlotId) -> Option<&'static str> {
        self.estimators.kept_by(&self.blocks, slot)
    }

    fn stream_saves(&mut self, index: StreamIndex, slot: SlotId, floor: f64) -> bool {
        let floor = self.rates.own(share_of(index), floor);
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let mut scene = scene!(self);
        let saved = HintEstimator { index, stream }.offer(&mut scene, slot, floor);
        if saved {
            if self.blocks[slot].is_unread() {
                self.streams.touch_shown(index);
            }
            self.streams.touch(index);
        }
        saved
    }

    /// Offers a block that no stream claims to the streams that name its file. `None` if one of them keeps it; otherwise these
    /// streams, as far as they were searched for.
    #[inline(always)] // Most often no stream names the file, which is found out here.
    fn unwanted_by_others(
        &mut self,
        slot: SlotId,
        asked: Option<StreamIndex>,
        floor: f64,
    ) -> Option<Named> {
        self.offers_from = self.offers_from.wrapping_add(1);
        let file = self.blocks[slot].block().file;
        if let Some(alone) = asked.filter(|&asked| self.streams.is_alone(asked, file)) {
            return Some(Named::ByOne(alone));
        }
        match self.streams.named_by(file) {
            [] => Some(Named::ByNobody),
            &[only] if asked == Some(only) => Some(Named::ByOne(only)),
            _ => (!self.offered_to_others(slot, asked, floor)).then_some(Named::Unknown),
        }
    }

    #[inline(never)] // The rare part.
    fn offered_to_others(&mut self, slot: SlotId, asked: Option<StreamIndex>, floor: f64) -> bool {
        let file = self.blocks[slot].block().file;
        let named = self.streams.named_by(file).len();
        (0..named.min(OFFERS_MAX)).any(|turn| {
            let index = self.streams.named_by(file)[(self.offers_from + turn) % named];
            asked != Some(index) && self.stream_saves(index, slot, floor)
        })
    }

    /// C: the block leaves memory to make room.
    #[inline(always)] // Every miss passes here.
    fn leave(
        &mut self,
        now: Nanos,
        slot: SlotId,
        (picker, named): (Option<StreamIndex>, Named),
        (cost, worth): (f64, f64),
    ) {
        let known = &self.blocks[slot];
        let (block, claim, source) = (known.block(), known.claim(), known.source());
        let owner = claim.map(|claim| claim.stream).or(picker);
        let kind = match known.is_unread() {
            true => DecisionKind::EvictUnread,
            false => DecisionKind::Evict,
        };
        if kind == DecisionKind::EvictUnread {
            self.note_wasted(source, owner);
            if let Some(owner) = owner {
                self.streams[owner].has_lost_unread = true;
            }
        }
        if self.log.is_on() {
            let owner = owner.map(|stream| self.streams[stream].id);
            let (value_ns, against_ns) = (self.as_share(cost), self.as_share(worth));
            self.log.push(Decision { at: now, kind, block, stream: owner, value_ns, against_ns });
        }
        self.evicted.push_back(block);
        self.take_out(slot, named);
    }

    /// Takes the block out of the table, and tells the estimators that track it and the streams that name it.
    pub(crate) fn remove(&mut self, slot: SlotId) {
        self.take_out(slot, Named::Unknown);
    }

    /// [`remove`](Self::remove) for a block whose file these streams name.
    fn take_out(&mut self, slot: SlotId, named: Named) {
        self.mark_read(slot);
        let (block, device) = (self.blocks[slot].block(), self.blocks[slot].device());
        let claim = self.blocks[slot].claim();
        let (mut scene, estimators) = self.scene();
        estimators.forget(&mut scene, slot);
        if let Some(allocation) = &mut self.allocation {
            allocation.remove(slot);
        }
        if let Some(claim) = claim {
            self.unclaim(slot);
            let stream = &mut self.streams[claim.stream];
            // The access that it is claimed for may be under way, or over.
            let is_over = !stream.cursor.expects(claim.position);
            let next = if is_over { stream.next_use(block) } else { Some(claim.position) };
            next.into_iter().for_each(|position| stream.lost(device, position));
            self.streams.touch_candidate(claim.stream);
        }
        let (named, first) = match named {
            Named::ByNobody => (0, None),
            Named::ByOne(one) => (1, Some(one)),
            Named::Unknown => {
                let named = self.streams.named_by(block.file);
                (named.len(), named.first().copied())
            }
        };
        #[cfg(any(test, debug_assertions))]
        {
            self.left_untold |= named > TOLD_MAX;
        }
        for turn in 0..named.min(TOLD_MAX) {
            let first = first.filter(|_| turn == 0); // Most often the only one.
            let index = first.unwrap_or_else(|| self.streams.named_by(block.file)[turn]);
            if claim.is_none_or(|claim| claim.stream != index)
                && let Some(position) = self.streams[index].use_of_leaving(block)
            {
                self.streams[index].lost(device, position);
                self.streams.touch_candidate(index);
            }
        }
        self.blocks.remove(slot);
    }

    /// Bytes kept for blocks in memory and for placed hints, without those for files, names, programs and fetches.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes() + self.estimators.memory_bytes() + self.streams.memory_bytes()
    }
}
