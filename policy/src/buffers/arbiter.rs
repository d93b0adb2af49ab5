//! The arbiter: which block makes room (TIP 1995, sections 4.7 and 5.1).
//!
//! Estimators declare the value of their least valuable block; the arbiter multiplies it by the
//! estimator's share of all accesses and ranks them.
//!
//! * **A. Pick.** When a buffer is needed, the lowest one picks its least valuable block, and declares the
//!   next. If even that block is worth more than what the buffer is wanted for, nothing is done.
//! * **B. Track it or lose it.** The block is offered to the others that might know it: the stream that
//!   claims it, the recency queue that it lies in, and the streams that name its file. Whoever values it
//!   more than its picker did keeps it, and the search goes on.
//! * **C.** Otherwise it leaves, and the streams that name it note that it is missing.
//!
//! Values are asked for again only of those that may have become less (they are *stale*), when somebody needs
//! to know. What has become more shows when it is the least.
//!
//! Invariants: blocks in memory and in flight are never more than the capacity; every block in memory is
//! tracked by at least one estimator; a claim leads to a stream that knows of it.
//!
//! Cost: O(log s + log n) a victim, with s streams and n blocks, for each estimator that is offered it;
//! at most [`OFFERS_MAX`] streams are.

use std::collections::VecDeque;

use crate::blocks::{
    BlockTable, Claim, DeviceIndex, Queue, STREAMS_MAX, Slot, SlotId, StreamIndex,
};
use crate::buffers::allocation::Allocation;
use crate::buffers::estimators::hint::HintEstimator;
use crate::buffers::estimators::lru::LruEstimator;
use crate::buffers::estimators::orphan::OrphanEstimator;
use crate::buffers::estimators::{Estimator, Scene};
use crate::buffers::rates::Rates;
use crate::contract::{Config, Counts, Memory};
use crate::decisions::{Decision, DecisionKind, DecisionLog};
use crate::devices::costs::Costs;
use crate::hint::{Block, FileId, HinterId};
use crate::rules::{Replacement, Rules};
use crate::streams::files::Files;
use crate::streams::hinters::{Hinters, Shown};
use crate::streams::shares::{Shares, Whose};
use crate::streams::stream::Stream;
use crate::streams::stream::index::FileChange;
use crate::tables::heap::IndexedHeap;
use crate::tables::line::load_lines;
use crate::time::Nanos;

/// Streams that a picked block is offered to.
const OFFERS_MAX: usize = 16;

/// A stream's block that is worth less than this part of a hit out of reach goes before what would keep the
/// queue from it: that of a stream which has stopped reading, not of one that is in competition.
const BEYOND_REACH_DIVISOR: f64 = 16.0;

/// With fewer blocks, what says of a queue's entries whether they are live is near the processor anyway.
const PLACES_LOADED_FROM_BLOCKS: usize = 1 << 18;

/// Streams that are told that a block has left: others come upon it when they read it.
const TOLD_MAX: usize = 256;

/// Blocks of use that a stream has before its hinter's record is told of them, at most: to find it takes a cache miss.
const UNRECORDED_MAX: u32 = 64;

/// Whose accesses are counted: those without hints, and each stream's.
const UNHINTED: u32 = 0;

/// Whose least valuable block it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// The queue of what was read without hints.
    Recent,
    /// That of what was read as hinted.
    Consumed,
    Stream(StreamIndex),
}

impl Member {
    fn stream(self) -> Option<StreamIndex> {
        match self {
            Member::Stream(index) => Some(index),
            Member::Recent | Member::Consumed => None,
        }
    }
}

/// What is known of the streams that name a file: to look for them is a cache miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Unknown,
    ByNobody,
    ByOne(StreamIndex),
}

/// Accesses after which a share is worth half, at least; in a large cache it is a turnover of it.
const HALF_LIFE_MIN: f64 = 1024.0;

/// The share that a new stream is taken to have, until it shows its own.
const SHARE_FIRST: f64 = 0.2;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Arbiter {
    pub(crate) blocks: BlockTable,
    pub(crate) costs: Costs,
    pub(crate) rules: Rules,
    pub(crate) streams: Vec<Option<Stream>>,
    pub(crate) counts: Counts,
    pub(crate) log: DecisionLog,
    /// Blocks that have left, for the driver to be told.
    pub(crate) evicted: VecDeque<Block>,
    /// Blocks prefetched or on their way, and unread.
    pub(crate) unread: u64,
    /// Streams that the prefetcher has to ask again.
    pub(crate) stale_candidates: Vec<StreamIndex>,
    /// A stream has more to look at than the prefetcher did.
    pub(crate) search_is_unfinished: bool,
    /// Empty, with room for them.
    pub(crate) stale_spare: Vec<StreamIndex>,
    /// Streams that would have more unread blocks if others had fewer.
    pub(crate) parked: Vec<StreamIndex>,
    memory: Memory,
    capacity_blocks: usize,
    recent: LruEstimator,
    consumed: LruEstimator,
    orphans: OrphanEstimator,
    rates: Rates,
    /// Only of [`Replacement::LruSp`].
    allocation: Option<Allocation>,
    /// Streams by their declared values, lowest first (keys are negative).
    ranking: IndexedHeap,
    stale_values: Vec<StreamIndex>,
    /// Who may have how many hints looked up, and the streams of which it may not be known what they have.
    pub(crate) shares: Shares,
    stale_resolved: Vec<StreamIndex>,
    /// Which streams name a file.
    pub(crate) files: Files,
    /// Where the offers begin, so that all streams have their turn.
    offers_from: usize,
    #[cfg(any(test, debug_assertions))]
    checked: usize,
    #[cfg(any(test, debug_assertions))]
    least_checked: usize,
    /// Whether a block has left that more streams name than are told. It is not known which were not, so that what
    /// streams seek is not checked any more then.
    #[cfg(any(test, debug_assertions))]
    left_untold: bool,
    freed: Vec<StreamIndex>,
    /// Scratch space of the prefetcher.
    pub(crate) come_upon: Vec<(SlotId, u64)>,
    pub(crate) hinters: Hinters,
    /// Streams that have shown something since a stream was opened last.
    pub(crate) stale_shown: Vec<StreamIndex>,
    /// Streams that were asked what they have shown.
    #[cfg(test)]
    pub(crate) asked_shown: usize,
}

/// What a buffer is needed for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) block: Block,
    /// The stream that will read it; `None` for what somebody waits for.
    pub(crate) by: Option<StreamIndex>,
    /// What it is worth, normalised.
    pub(crate) worth: f64,
    /// Whether no block is to go for it that is unread.
    pub(crate) spares_unread: bool,
}

/// Why no buffer was had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoRoom {
    /// The cheapest costs this much, normalised; infinite if there is none.
    TooDear(f64),
    /// The cheapest is one with an unread block, and those are spared.
    Unread,
}

/// The number under which a stream's accesses are counted.
fn share_of(stream: StreamIndex) -> u32 {
    UNHINTED + 1 + stream.0
}

impl Arbiter {
    pub(crate) fn new(config: &Config) -> Self {
        let capacity_blocks = usize::try_from(config.capacity_blocks).unwrap_or(usize::MAX);
        let mut rules = config.rules;
        rules.spare_buffers &= config.memory == Memory::Owned; // The kernel's may be of use to others.
        let values = rules.replacement == Replacement::MinMax && config.memory == Memory::Owned;
        Arbiter {
            blocks: BlockTable::new(capacity_blocks),
            costs: Costs::new(config.costs, &rules),
            rules,
            streams: Vec::new(),
            counts: Counts::default(),
            log: DecisionLog::new(config.decisions_max),
            evicted: VecDeque::new(),
            unread: 0,
            stale_candidates: Vec::new(),
            search_is_unfinished: false,
            stale_spare: Vec::new(),
            parked: Vec::new(),
            memory: config.memory,
            capacity_blocks,
            recent: LruEstimator::new(Queue::Recent, capacity_blocks, values),
            consumed: LruEstimator::new(Queue::Consumed, capacity_blocks, values),
            orphans: OrphanEstimator::default(),
            allocation: (rules.replacement == Replacement::LruSp).then(Allocation::default),
            rates: Rates::new((capacity_blocks as f64).max(HALF_LIFE_MIN)),
            ranking: IndexedHeap::default(),
            stale_values: Vec::new(),
            shares: Shares::new(config.resolved_max),
            stale_resolved: Vec::new(),
            files: Files::default(),
            offers_from: 0,
            #[cfg(any(test, debug_assertions))]
            checked: 0,
            #[cfg(any(test, debug_assertions))]
            least_checked: 0,
            #[cfg(any(test, debug_assertions))]
            left_untold: false,
            freed: Vec::new(),
            come_upon: Vec::new(),
            hinters: Hinters::default(),
            stale_shown: Vec::new(),
            #[cfg(test)]
            asked_shown: 0,
        }
    }

    fn scene(&mut self) -> (Scene<'_>, &mut LruEstimator, &mut LruEstimator) {
        let scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        (scene, &mut self.recent, &mut self.consumed)
    }

    /// The stream of an index that is known to be in use.
    pub(crate) fn stream(&mut self, index: StreamIndex) -> &mut Stream {
        self.streams[index.0 as usize].as_mut().expect("a stream in use")
    }

    /// Takes in a new stream.
    pub(crate) fn add_stream(&mut self, stream: Stream) -> StreamIndex {
        let index = self.freed.pop().unwrap_or_else(|| {
            self.streams.push(None);
            let index = (self.streams.len() - 1) as u64;
            assert!(index < u64::from(STREAMS_MAX), "at most {STREAMS_MAX} streams at once");
            StreamIndex(index as u32)
        });
        self.renew_shown();
        let trust = self.hinters.opened(stream.hinter, stream.id, index);
        self.streams[index.0 as usize] = Some(stream);
        self.stream(index).cursor.set_accuracy(trust);
        // Squared, so that who opens stream after stream soon gets nothing by it.
        self.rates.introduce(share_of(index), SHARE_FIRST * trust * trust);
        index
    }

    /// What streams have shown is in the records of their hinters from now on.
    fn renew_shown(&mut self) {
        for index in self.stale_shown.drain(..) {
            let Some(stream) = self.streams[index.0 as usize].as_mut() else { continue };
            stream.shown_is_stale = false;
            let now = stream.shows();
            let before = std::mem::replace(&mut stream.shown, now);
            self.hinters.shows(stream.hinter, before, now);
            #[cfg(test)]
            {
                self.asked_shown += 1;
            }
        }
    }

    /// What a stream has shown may be something else: what it has read, or what is fetched for it and unread.
    #[inline]
    pub(crate) fn touch_shown(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams[index.0 as usize].as_mut() else { return };
        if !std::mem::replace(&mut stream.shown_is_stale, true) {
            self.stale_shown.push(index);
        }
    }

    /// A block that was prefetched for a stream, or is on its way, is read; it is [marked](Self::mark_read) so next.
    #[inline]
    pub(crate) fn note_true(&mut self, index: StreamIndex) {
        let stream = self.stream(index);
        stream.unrecorded += 1;
        if stream.unrecorded == UNRECORDED_MAX {
            self.record_useful(index);
        }
    }

    /// What the stream has been of use goes into the record of its hinter.
    fn record_useful(&mut self, index: StreamIndex) {
        let stream = self.stream(index);
        let (hinter, blocks) = (stream.hinter, std::mem::take(&mut stream.unrecorded));
        self.hinters.note_useful(hinter, blocks);
    }

    /// A block that was prefetched for `stream`, if one is known, has gone unread.
    fn note_wasted(&mut self, stream: Option<StreamIndex>) {
        self.counts.wasted += 1;
        if let Some(stream) = stream {
            self.touch_shown(stream);
            self.touch_resolved(stream);
            let stream = self.stream(stream);
            stream.balance -= 1;
            let hinter = stream.hinter;
            self.hinters.note_wasted(hinter);
        }
    }

    /// A block that was prefetched and is unread is given up by the stream that claims it.
    pub(crate) fn waste(&mut self, now: Nanos, slot: SlotId) {
        let known = &self.blocks[slot];
        let (block, stream) = (known.block(), known.claim().map(|claim| claim.stream));
        self.note_wasted(stream);
        if self.log.is_on() {
            let stream = stream.map(|stream| self.stream(stream).id);
            let (at, kind, value_ns, against_ns) = (now, DecisionKind::Waste, 0.0, 0.0);
            self.log.push(Decision { at, kind, block, stream, value_ns, against_ns });
        }
    }

    /// A stream may have more or fewer hints that were looked up than is known of it, or another standing.
    #[inline]
    pub(crate) fn touch_resolved(&mut self, index: StreamIndex) {
        if !std::mem::replace(&mut self.stream(index).resolved_is_stale, true) {
            self.stale_resolved.push(index);
        }
    }

    /// The next stream of which that is so. What it and its hinter have is known from now on; devices are to be told.
    pub(crate) fn renew_resolved(&mut self) -> Option<(StreamIndex, Whose)> {
        loop {
            let index = self.stale_resolved.pop()?;
            let Some(stream) = self.streams[index.0 as usize].as_mut() else { continue };
            stream.resolved_is_stale = false;
            let now = (stream.resolved_ahead(), stream.standing(&self.shares));
            let before = (stream.resolved_noted, stream.standing_noted);
            if now != before {
                (stream.resolved_noted, stream.standing_noted) = now;
                self.hinters.note_resolved(stream.hinter, before.0, now.0);
                return Some((index, self.whose(index)));
            }
        }
    }

    /// What a stream and its hinter have that was looked up, as far as it is known.
    pub(crate) fn whose(&self, index: StreamIndex) -> Whose {
        let stream = self.streams[index.0 as usize].as_ref().expect("a stream in use");
        let (hinter, standing) = (stream.hinter, stream.standing_noted);
        Whose { hinter, standing, hinter_has_few: self.hinter_has_few(hinter) }
    }

    /// Whether a hinter has few hints that were looked up, as far as it is known.
    pub(crate) fn hinter_has_few(&self, hinter: HinterId) -> bool {
        self.shares.is_few(self.hinters.resolved(hinter))
    }

    /// Forgets a stream that has been cancelled. Its hinter may have few by that, of which devices are to be told.
    pub(crate) fn remove_stream(&mut self, index: StreamIndex) {
        self.record_useful(index);
        let stream = self.stream(index);
        let (hinter, id, shown) = (stream.hinter, stream.id, stream.shown);
        let resolved = stream.resolved_noted;
        if stream.is_parked {
            self.parked.retain(|&parked| parked != index);
        }
        self.hinters.shows(hinter, shown, Shown::default());
        self.hinters.note_resolved(hinter, resolved, 0);
        self.hinters.closed(hinter, id);
        self.streams[index.0 as usize] = None;
        self.rates.forget(share_of(index));
        self.ranking.set(index.0, None);
        self.freed.push(index);
        // Where nothing is let go, or prefetched, nobody asks for long.
        for stale in [&mut self.stale_values, &mut self.stale_candidates, &mut self.stale_resolved]
        {
            if stale.len() > 2 * self.streams.len() {
                let mut seen = vec![false; self.streams.len()];
                stale.retain(|&StreamIndex(index)| {
                    let index = index as usize;
                    self.streams[index].is_some() && !std::mem::replace(&mut seen[index], true)
                });
            }
        }
    }

    /// What `index` says has changed: it will be asked again before it counts.
    pub(crate) fn touch(&mut self, index: StreamIndex) {
        self.touch_value(index);
        self.touch_candidate(index);
    }

    /// What `index` declares may be less than it was. What is more by now shows when it comes to be the least.
    pub(crate) fn touch_value(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams[index.0 as usize].as_mut() else { return };
        stream.ranked_at = None;
        if !std::mem::replace(&mut stream.value_is_stale, true) {
            self.stale_values.push(index);
        }
    }

    /// What `index` would have fetched may be something else.
    #[inline]
    pub(crate) fn touch_candidate(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams[index.0 as usize].as_mut() else { return };
        // Who is quiet has no candidate.
        if !stream.candidate_is_stale && !stream.is_quiet() {
            stream.candidate_is_stale = true;
            self.stale_candidates.push(index);
        }
    }

    /// A stream, the blocks, and a place to note which files it names from now on.
    pub(crate) fn stream_and_names(
        &mut self,
        index: StreamIndex,
    ) -> (&mut Stream, &BlockTable, impl FnMut(FileChange)) {
        let stream = self.streams[index.0 as usize].as_mut().expect("a stream in use");
        let files = &mut self.files;
        (stream, &self.blocks, move |change| files.note(index, change))
    }

    /// The streams that name `file`.
    pub(crate) fn named_by(&self, file: FileId) -> &[StreamIndex] {
        self.files.named_by(file)
    }

    /// Whether the stream is known to be the only one that names `file`. Others are not looked for: with many files that would
    /// be a cache miss.
    #[inline]
    fn is_alone(&self, index: StreamIndex, file: FileId) -> bool {
        let stream = self.streams[index.0 as usize].as_ref();
        let alone =
            !self.files.shares(index) && stream.is_some_and(|stream| stream.surely_names(file));
        debug_assert!(!alone || self.named_by(file) == [index], "{index:?} is not alone");
        alone
    }

    /// A value of a stream, normalised by its share (eq. 8).
    pub(crate) fn normalised(&self, stream: StreamIndex, value: f64) -> f64 {
        value * self.rates.count(share_of(stream))
    }

    /// A normalised value as ns for each access of anybody.
    pub(crate) fn as_share(&self, normalised: f64) -> f64 {
        normalised / self.rates.total()
    }

    /// The block, if it is in memory, is fetched or read for a stream or without one.
    #[inline]
    pub(crate) fn accessed(&mut self, slot: Option<SlotId>, by: Option<StreamIndex>) {
        if self.allocation.is_some() {
            self.accessed_by_owner(slot, by);
        }
    }

    #[cold]
    fn accessed_by_owner(&mut self, slot: Option<SlotId>, by: Option<StreamIndex>) {
        let Some(slot) = slot else { return };
        let owner = by.map(|index| self.stream(index).hinter);
        self.allocation.as_mut().expect("it is there").touch(slot, owner);
    }

    /// Counts an access of a stream, or of the unhinted.
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
        for index in 0..self.streams.len() {
            self.touch(StreamIndex(index as u32));
        }
    }

    /// What a stream declares, normalised: into the ranking with it.
    fn rank(&mut self, index: StreamIndex) -> Option<f64> {
        let stream = self.streams[index.0 as usize].as_mut()?;
        let scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        stream.ranked_at = Some(self.costs.changes());
        stream.ranked_pace = (stream.pace.pace_ns(), stream.pace.is_late());
        let value = HintEstimator { index, stream }.declare(&scene);
        let value = value.map(|value| value * self.rates.count(share_of(index)));
        self.ranking.set(index.0, value.map(|value| -value));
        value
    }

    /// The member with the globally least valuable block, and what that is worth, normalised.
    ///
    /// A queue may be worth little only because others hold prefetched blocks, which puts the hits that it
    /// could have out of reach. If one of those is worth next to nothing beside such a hit, it goes first.
    fn least(&mut self) -> Option<(Member, f64)> {
        let (queue, bound) = self.least_of_queues();
        if queue.is_some() && bound == 0.0 {
            return queue; // Nothing is worth less.
        }
        match (queue, self.least_of_streams()) {
            (Some(_), Some((index, value))) if value < bound => {
                Some((Member::Stream(index), value))
            }
            (None, Some((index, value))) => Some((Member::Stream(index), value)),
            _ => queue,
        }
    }

    /// The queue whose buffers are worth least, what they are worth, and what a stream's block must be worth
    /// to stay in its place.
    fn least_of_queues(&mut self) -> (Option<(Member, f64)>, f64) {
        let reach = self.capacity_blocks.saturating_sub(self.unread as usize);
        let unhinted = self.rates.count(UNHINTED);
        let is_lru = self.rules.replacement == Replacement::Lru;
        let (scene, recent, consumed) = self.scene();
        if is_lru {
            // All that has arrived lies there, and is worth the same.
            return (recent.declare(&scene).map(|_| (Member::Recent, 0.0)), 0.0);
        }
        recent.set_reach(reach);
        consumed.set_reach(reach);
        let from_recent = recent.declare(&scene).map(|value| (Member::Recent, value * unhinted));
        let from_consumed =
            consumed.declare(&scene).map(|value| (Member::Consumed, value * unhinted));
        let least = match (from_recent, from_consumed) {
            (Some(recent), Some(consumed)) if consumed.1 < recent.1 => Some(consumed),
            (recent, consumed) => recent.or(consumed),
        };
        let beyond = match least {
            Some((Member::Recent, _)) => recent.value_beyond_reach(&scene) * unhinted,
            Some((Member::Consumed, _)) => consumed.value_beyond_reach(&scene) * unhinted,
            _ => 0.0,
        };
        (least, least.map_or(0.0, |(_, value)| value.max(beyond / BEYOND_REACH_DIVISOR)))
    }

    fn least_of_streams(&mut self) -> Option<(StreamIndex, f64)> {
        while let Some(index) = self.stale_values.pop() {
            if let Some(stream) = self.streams[index.0 as usize].as_mut() {
                stream.value_is_stale = false;
                self.rank(index);
            }
        }
        loop {
            let (stream, key) = self.ranking.first()?;
            let index = StreamIndex(stream);
            // What it tracks, or what that costs, may have changed without its being touched.
            let ranked_at = self.streams[stream as usize].as_ref().and_then(|s| s.ranked_at);
            if ranked_at == Some(self.costs.changes()) || self.rank(index) == Some(-key) {
                #[cfg(any(test, debug_assertions))]
                self.check_least(index, -key);
                return Some((index, -key));
            }
        }
    }

    /// That `first` declares the least, and no stream declares less, where costs do not move. A pace may have, a little, since
    /// its stream was asked.
    #[cfg(any(test, debug_assertions))]
    fn check_least(&mut self, first: StreamIndex, least: f64) {
        const ALWAYS_CHECKED: usize = 16;
        self.least_checked += 1;
        let is_due = self.streams.len() <= ALWAYS_CHECKED || self.least_checked.is_multiple_of(8);
        if !is_due || !self.costs.are_fixed() {
            return;
        }
        let scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        let counts_pace = self.rules.own_pace || self.rules.overload;
        for (index, stream) in (0..).zip(&self.streams) {
            let kept_pace = |stream: &&Stream| {
                stream.ranked_pace == (stream.pace.pace_ns(), stream.pace.is_late())
            };
            let stream = stream.as_ref().filter(|stream| !counts_pace || kept_pace(stream));
            let declared = stream.and_then(|stream| stream.least(&scene));
            let share = self.rates.count(share_of(StreamIndex(index)));
            let value = declared.map_or(f64::INFINITY, |(_, _, value)| value * share);
            assert!(first.0 != index || value == least, "stream {index}: {value}, not {least}");
            assert!(value >= least, "stream {index} is worth less than the least: {value} {least}");
        }
    }

    /// Whether what would be picked is unread.
    #[cold]
    fn would_waste(&mut self, of: Member) -> bool {
        let Member::Stream(index) = of else { return false };
        let scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        let stream = self.streams[index.0 as usize].as_ref();
        let slot = stream.and_then(|stream| stream.least_slot(&scene));
        slot.is_some_and(|slot| self.blocks[slot].is_unread())
    }

    fn pick(&mut self, of: Member) -> Option<SlotId> {
        let (mut scene, recent, consumed) = self.scene();
        let queue = match of {
            Member::Recent => recent,
            Member::Consumed => consumed,
            Member::Stream(index) => return self.pick_of_stream(index),
        };
        queue.pick(&mut scene)
    }

    fn pick_of_stream(&mut self, index: StreamIndex) -> Option<SlotId> {
        let stream = self.streams[index.0 as usize].as_mut()?;
        let mut scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        let slot = HintEstimator { index, stream }.pick(&mut scene)?;
        if self.blocks[slot].is_unread() {
            self.touch_shown(index);
        }
        Some(slot)
    }

    /// Whether a quarter of all buffers are free, or hold what was read as hinted, is not hinted again, and is worth
    /// less than `worth`, normalised.
    ///
    /// With fewer, who takes one has somebody else take one that is worth more. What was read without hints
    /// is not counted: that it is worth nothing shows only when it was not read again for long.
    pub(crate) fn is_roomy(&mut self, worth: f64) -> bool {
        let free = self.capacity_blocks.saturating_sub(self.blocks.len());
        let quarter = self.capacity_blocks / 4;
        let own = self.rates.own(UNHINTED, worth);
        let (scene, _, consumed) = self.scene();
        free >= quarter || free + consumed.idle(&scene, own) >= quarter
    }

    /// Makes sure that there is room for what is needed.
    ///
    /// Returns what the buffer costs.
    pub(crate) fn make_room(&mut self, now: Nanos, need: Need) -> Result<f64, NoRoom> {
        if self.allocation.is_some() {
            return self.make_room_by_owners(now, need);
        }
        let Need { worth, .. } = need;
        let mut paid = 0.0;
        while self.blocks.len() >= self.capacity_blocks {
            let (of, cost) = self.least().ok_or(NoRoom::TooDear(f64::INFINITY))?;
            if cost >= worth {
                return Err(NoRoom::TooDear(cost));
            }
            if need.spares_unread && self.would_waste(of) {
                return Err(NoRoom::Unread);
            }
            let slot = self.pick(of).expect("who declares a value has a block");
            if let Some(named) = self.unsaved(slot, of, cost) {
                self.leave(now, slot, (of.stream(), named), (cost, worth));
                paid = cost;
            }
        }
        Ok(paid)
    }

    /// The same where blocks have owners, who choose: see [`allocation`](crate::buffers::allocation). Who takes a buffer of its own,
    /// or one with what another has prefetched and not read, wants it for something that is worth more: two would take
    /// them from each other for ever.
    fn make_room_by_owners(&mut self, now: Nanos, need: Need) -> Result<f64, NoRoom> {
        let asking = need.by.map(|index| self.stream(index).hinter);
        let mut paid = 0.0;
        while self.blocks.len() >= self.capacity_blocks {
            let (blocks, allocation) = (&self.blocks, &self.allocation);
            let can_go = |slot: SlotId| !blocks[slot].is_in_flight();
            let allocation = allocation.as_ref().expect("blocks have owners");
            let candidate = allocation.candidate(need.block, can_go);
            let candidate = candidate.ok_or(NoRoom::TooDear(f64::INFINITY))?;
            let owner = allocation.owner(candidate);
            let (given_up, picker, cost) = self.choice_of(owner, candidate);
            let is_own = owner.is_some() && owner == asking;
            if (is_own || self.blocks[given_up].is_unread()) && cost >= need.worth {
                return Err(NoRoom::TooDear(cost));
            }
            if given_up != candidate {
                let block = self.blocks[given_up].block();
                let allocation = self.allocation.as_mut().expect("blocks have owners");
                allocation.swap(given_up, block, candidate);
            }
            self.leave(now, given_up, (picker, Named::Unknown), (cost, need.worth));
            paid = cost;
        }
        self.allocation.as_mut().expect("blocks have owners").admitted(need.block);
        Ok(paid)
    }

    /// What `owner` gives up when it is asked for `candidate`, for which of its streams, and what that costs it.
    fn choice_of(
        &mut self,
        owner: Option<HinterId>,
        candidate: SlotId,
    ) -> (SlotId, Option<StreamIndex>, f64) {
        let useless = (candidate, None, 0.0);
        let (Some(owner), Some(allocation)) = (owner, &self.allocation) else { return useless };
        let claim = self.blocks[candidate].claim();
        let claimed = claim.and_then(|claim| self.streams[claim.stream.0 as usize].as_ref());
        if claimed.is_none_or(|stream| stream.hinter != owner) {
            return useless;
        }
        let is_idle = |slot: SlotId| {
            let known = &self.blocks[slot];
            !known.is_in_flight()
                && known.claim().is_none()
                && allocation.owner(slot) == Some(owner)
        };
        if let Some(slot) = allocation.blocks().find(|&slot| is_idle(slot)) {
            return (slot, None, 0.0);
        }
        let scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        let furthest = self.hinters.streams(owner).filter_map(|index| {
            let stream = self.streams[index.0 as usize].as_ref()?;
            let (_, position, value) = stream.least(&scene)?;
            let slot = stream.slot_at(scene.blocks, position)?;
            Some((slot, Some(index), value * self.rates.count(share_of(index))))
        });
        furthest.min_by(|one, other| one.2.total_cmp(&other.2)).unwrap_or(useless)
    }

    /// B: who names the file of the block, as far as that has been found out, unless somebody but `picker` values the block
    /// above `floor`, normalised.
    fn unsaved(&mut self, slot: SlotId, picker: Member, floor: f64) -> Option<Named> {
        if self.rules.replacement == Replacement::Lru {
            return Some(Named::Unknown);
        }
        let claim = self.blocks[slot].claim();
        if claim.is_some_and(|claim| self.stream_saves(claim.stream, slot, floor)) {
            return None;
        }
        if self.blocks[slot].is_queued() {
            let local = self.rates.own(UNHINTED, floor);
            let (mut scene, recent, consumed) = self.scene();
            if recent.offer(&mut scene, slot, local) || consumed.offer(&mut scene, slot, local) {
                return None;
            }
        }
        let Some(claim) = claim else {
            return self.unwanted_by_others(slot, picker.stream(), floor);
        };
        // Another stream may read it sooner than the one that claims it.
        let file = self.blocks[slot].block().file;
        if self.is_alone(claim.stream, file) {
            return Some(Named::ByOne(claim.stream));
        }
        if self.named_by(file).len() < 2 {
            return Some(Named::Unknown);
        }
        self.unclaim(slot);
        let unwanted = self.unwanted_by_others(slot, Some(claim.stream), floor);
        if unwanted.is_none() {
            let device = self.blocks[slot].device();
            self.stream(claim.stream).lost(device, claim.position);
        } else {
            self.claim(slot, claim);
        }
        unwanted
    }

    fn stream_saves(&mut self, index: StreamIndex, slot: SlotId, floor: f64) -> bool {
        let floor = self.rates.own(share_of(index), floor);
        let Some(stream) = self.streams[index.0 as usize].as_mut() else { return false };
        let mut scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        let saved = HintEstimator { index, stream }.offer(&mut scene, slot, floor);
        if saved {
            if self.blocks[slot].is_unread() {
                self.touch_shown(index);
            }
            self.touch(index);
        }
        saved
    }

    /// Streams that are open, 1 at least.
    pub(crate) fn streams_in_use(&self) -> u64 {
        (self.streams.len() - self.freed.len()).max(1) as u64
    }

    /// Offers a block that no stream claims to the streams that name its file. Who they are, as far as that has been found
    /// out, if none of them wants it.
    #[inline(always)] // Mostly nobody names it, and that is soon seen.
    fn unwanted_by_others(
        &mut self,
        slot: SlotId,
        asked: Option<StreamIndex>,
        floor: f64,
    ) -> Option<Named> {
        self.offers_from = self.offers_from.wrapping_add(1);
        let file = self.blocks[slot].block().file;
        if let Some(alone) = asked.filter(|&asked| self.is_alone(asked, file)) {
            return Some(Named::ByOne(alone));
        }
        match self.named_by(file) {
            [] => Some(Named::ByNobody),
            &[only] if asked == Some(only) => Some(Named::ByOne(only)),
            _ => (!self.offered_to_others(slot, asked, floor)).then_some(Named::Unknown),
        }
    }

    #[inline(never)] // The rare part.
    fn offered_to_others(&mut self, slot: SlotId, asked: Option<StreamIndex>, floor: f64) -> bool {
        let file = self.blocks[slot].block().file;
        let named = self.named_by(file).len();
        (0..named.min(OFFERS_MAX)).any(|turn| {
            let index = self.named_by(file)[(self.offers_from + turn) % named];
            asked != Some(index) && self.stream_saves(index, slot, floor)
        })
    }

    /// C: the block leaves memory, to make room for something of worth.
    #[inline(always)] // On the way of every miss.
    fn leave(
        &mut self,
        now: Nanos,
        slot: SlotId,
        (picker, named): (Option<StreamIndex>, Named),
        (cost, worth): (f64, f64),
    ) {
        let known = &self.blocks[slot];
        let (block, claim) = (known.block(), known.claim());
        let owner = claim.map(|claim| claim.stream).or(picker);
        let kind = match known.is_unread() {
            true => DecisionKind::EvictUnread,
            false => DecisionKind::Evict,
        };
        if kind == DecisionKind::EvictUnread {
            self.note_wasted(owner);
            if let Some(owner) = owner {
                self.stream(owner).has_lost_unread = true;
            }
        }
        if self.log.is_on() {
            let owner = owner.map(|stream| self.stream(stream).id);
            let (value_ns, against_ns) = (self.as_share(cost), self.as_share(worth));
            self.log.push(Decision { at: now, kind, block, stream: owner, value_ns, against_ns });
        }
        self.evicted.push_back(block);
        self.take_out(slot, named);
    }

    /// Takes the block out of the table, and tells whoever tracks or names it.
    pub(crate) fn remove(&mut self, slot: SlotId) {
        self.take_out(slot, Named::Unknown);
    }

    /// The same; its file is `named` so, if that is known.
    fn take_out(&mut self, slot: SlotId, named: Named) {
        self.mark_read(slot);
        let (block, device) = (self.blocks[slot].block(), self.blocks[slot].device());
        let claim = self.blocks[slot].claim();
        if self.blocks[slot].is_queued() {
            self.leaves_queue(slot); // Seldom: its queue has picked it.
        }
        self.orphans.release(slot);
        if let Some(allocation) = &mut self.allocation {
            allocation.remove(slot);
        }
        if let Some(claim) = claim {
            self.unclaim(slot);
            let stream = self.stream(claim.stream);
            // The access that it is claimed for may be going on, or over.
            let is_over = !stream.cursor.expects(claim.position);
            let next = if is_over { stream.next_use(block) } else { Some(claim.position) };
            next.into_iter().for_each(|position| stream.lost(device, position));
            self.touch_candidate(claim.stream);
        }
        let (named, first) = match named {
            Named::ByNobody => (0, None),
            Named::ByOne(one) => (1, Some(one)),
            Named::Unknown => {
                let named = self.named_by(block.file);
                (named.len(), named.first().copied())
            }
        };
        #[cfg(any(test, debug_assertions))]
        {
            self.left_untold |= named > TOLD_MAX;
        }
        for turn in 0..named.min(TOLD_MAX) {
            let first = first.filter(|_| turn == 0); // Mostly it is the only one.
            let index = first.unwrap_or_else(|| self.named_by(block.file)[turn]);
            if claim.is_none_or(|claim| claim.stream != index)
                && let Some(position) = self.stream(index).use_of_leaving(block)
            {
                self.stream(index).lost(device, position);
                self.touch_candidate(index);
            }
        }
        self.blocks.remove(slot);
    }

    #[inline(never)] // The rare part.
    fn leaves_queue(&mut self, slot: SlotId) {
        let (mut scene, recent, consumed) = self.scene();
        recent.forget(&mut scene, slot);
        consumed.forget(&mut scene, slot);
    }

    /// A block whose fetch begins, for the stream that will read it.
    #[inline(always)] // On the way of every miss.
    pub(crate) fn begin(
        &mut self,
        block: Block,
        device: DeviceIndex,
        prefetched_for: Option<Claim>,
    ) -> SlotId {
        let mut known = Slot::in_flight(block, device, prefetched_for.is_some());
        if let Some(claim) = prefetched_for {
            self.stream(claim.stream).put_claim(&mut known, claim);
            self.touch_shown(claim.stream);
            self.unread += 1;
        }
        let slot = self.blocks.insert(known);
        self.accessed(Some(slot), prefetched_for.map(|claim| claim.stream));
        slot
    }

    /// The block is read, or given up: it is unread no more.
    #[inline(always)] // Mostly it is read already, and that is soon seen.
    pub(crate) fn mark_read(&mut self, slot: SlotId) {
        if self.blocks[slot].is_unread() {
            self.mark_unread_read(slot);
        }
    }

    #[inline(never)] // The rarer part, with several callers.
    fn mark_unread_read(&mut self, slot: SlotId) {
        self.blocks[slot].read();
        self.unread -= 1;
        if let Some(Claim { stream: index, .. }) = self.blocks[slot].claim() {
            self.stream(index).unread -= 1;
            self.touch_shown(index);
            self.touch_candidate(index);
        }
        self.wake_parked();
    }

    /// Blocks in the queues: where replacement is by recency, all that have arrived.
    pub(crate) fn queued(&self) -> usize {
        self.recent.len() + self.consumed.len()
    }

    /// A stream that waits for others to have fewer unread blocks is asked again.
    pub(crate) fn wake_parked(&mut self) {
        if let Some(parked) = self.parked.pop() {
            if let Some(stream) = self.streams[parked.0 as usize].as_mut() {
                stream.is_parked = false;
            }
            self.touch_candidate(parked);
        }
    }

    /// Takes the claim off a block, whether it is tracked or still in flight.
    pub(crate) fn unclaim(&mut self, slot: SlotId) {
        let Some(claim) = self.blocks[slot].claim() else { return };
        let Some(stream) = self.streams[claim.stream.0 as usize].as_mut() else { return };
        let mut scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        stream.untrack(&mut scene, slot, claim.position);
        if self.blocks[slot].is_unread() {
            self.touch_shown(claim.stream);
        }
        self.touch_candidate(claim.stream);
    }

    /// Claims a block for `claim`; it is tracked when, and as soon as, it is in memory.
    pub(crate) fn claim(&mut self, slot: SlotId, claim: Claim) {
        if self.blocks[slot].is_unread() {
            self.touch_shown(claim.stream);
        }
        let Some(stream) = self.streams[claim.stream.0 as usize].as_mut() else { return };
        let known = &mut self.blocks[slot];
        if known.is_in_flight() {
            return stream.put_claim(known, claim);
        }
        let mut scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
        if stream.track(&mut scene, claim.stream, slot, claim.position) {
            self.touch_value(claim.stream);
        }
        self.touch_candidate(claim.stream);
    }

    /// The stream that claims a block will read it at another position, that of `claim`.
    pub(crate) fn reclaim(&mut self, slot: SlotId, claim: Claim) {
        let Some(stream) = self.streams[claim.stream.0 as usize].as_mut() else { return };
        if stream.retrack(slot, &mut self.blocks[slot], claim) {
            self.touch_value(claim.stream);
        }
        self.touch_candidate(claim.stream);
    }

    /// The block would be fetched from another device, if it were not here.
    pub(crate) fn moved(&mut self, block: Block, device: DeviceIndex) {
        let Some(slot) = self.blocks.find(block) else { return };
        let before = self.blocks[slot].moves_to(device);
        if before == device {
            return;
        }
        let claim = self.blocks[slot].claim();
        let (scene, recent, consumed) = self.scene();
        recent.moved(&scene, slot, before);
        consumed.moved(&scene, slot, before);
        if let Some(Claim { stream: index, .. }) = claim
            && let Some(stream) = self.streams[index.0 as usize].as_mut()
        {
            let scene = Scene { blocks: &mut self.blocks, costs: &self.costs, rules: &self.rules };
            HintEstimator { stream, index }.moved(&scene, slot, before);
            self.touch(index);
        }
    }

    /// A block in flight that no stream claims any more.
    pub(crate) fn orphan(&mut self, slot: SlotId) {
        self.orphans.adopt(slot);
    }

    /// An unhinted read of a block in memory: it goes on top of the recent.
    #[inline(always)] // On the way of every hit.
    pub(crate) fn read_recent(&mut self, slot: SlotId) {
        let (mut scene, recent, consumed) = self.scene();
        recent.access();
        consumed.access();
        match scene.blocks[slot].queue() {
            Some((Queue::Recent, stamp)) => recent.hit_again(&mut scene, slot, stamp),
            _ => self.join_recent(slot),
        }
    }

    /// The same for one that is not among them.
    #[inline(never)]
    fn join_recent(&mut self, slot: SlotId) {
        let (mut scene, recent, consumed) = self.scene();
        let block = scene.blocks[slot].block();
        recent.missed(block);
        match scene.blocks[slot].queue() {
            Some(_) => consumed.hit(&mut scene, slot),
            None => consumed.missed(block),
        }
        recent.put(&mut scene, slot);
    }

    /// A hinted read of a block in memory, which may have been read so before and be kept for that too.
    pub(crate) fn read_consumed(&mut self, slot: SlotId) {
        if let Some((Queue::Consumed, stamp)) = self.blocks[slot].queue() {
            let (mut scene, _, consumed) = self.scene();
            consumed.renew(&mut scene, slot, stamp);
        }
    }

    /// An unhinted read of a block that is not in memory.
    pub(crate) fn missed_recent(&mut self, block: Block) {
        for queue in [&mut self.recent, &mut self.consumed] {
            queue.access();
            queue.missed(block);
        }
    }

    /// Loads what is kept of `blocks`, which are about to be read, into the processor's caches.
    pub(crate) fn load(&mut self, blocks: impl Iterator<Item = Block>) {
        self.blocks.load(blocks);
        for queue in [&self.recent, &self.consumed] {
            if queue.has_ghosts() {
                queue.load_ghosts(self.blocks.loaded_hashes());
            }
        }
        if self.capacity_blocks < PLACES_LOADED_FROM_BLOCKS {
            return;
        }
        for (queue, stamp) in self.blocks.loaded_places() {
            match queue {
                Queue::Recent => self.recent.load_entry(stamp),
                Queue::Consumed => self.consumed.load_entry(stamp),
            }
        }
    }

    /// Loads what is kept of the streams of the next three blocks that will be read, step by step: the streams, what they lead
    /// to, and what that leads to.
    #[inline]
    pub(crate) fn load_next_streams(&self) {
        let stream = |ahead| {
            let index = self.blocks.stream_of_loaded(ahead)?;
            self.streams.get(index.0 as usize)
        };
        stream(2).into_iter().for_each(load_lines);
        if let Some(Some(stream)) = stream(1) {
            stream.load_parts();
            stream.current.into_iter().for_each(|current| self.blocks.load_slot(current.slot));
        }
        stream(0).into_iter().flatten().for_each(|stream| stream.load_segments(&self.blocks));
    }

    /// Puts a block in memory into one of the queues, on top.
    pub(crate) fn enqueue(&mut self, slot: SlotId, queue: Queue) {
        let (mut scene, recent, consumed) = self.scene();
        match queue {
            Queue::Recent => {
                consumed.take(&mut scene, slot);
                recent.forget_ghost(scene.blocks[slot].block());
                recent.put(&mut scene, slot);
            }
            Queue::Consumed => {
                if !scene.blocks[slot].is_queued() {
                    consumed.forget_ghost(scene.blocks[slot].block());
                    consumed.put(&mut scene, slot);
                }
            }
        }
    }

    /// The data of a block has arrived.
    pub(crate) fn arrived(&mut self, now: Nanos, slot: SlotId, was_read_unhinted: bool) {
        self.blocks[slot].arrived();
        self.orphans.release(slot);
        if let Some(claim) = self.blocks[slot].claim() {
            if self.stream(claim.stream).expects(claim.position) {
                let stream = self.streams[claim.stream.0 as usize].as_mut().expect("it claims");
                if stream.track_arrived((slot, &self.blocks[slot]), claim.position) {
                    self.touch_value(claim.stream);
                }
                self.touch_candidate(claim.stream);
            } else {
                if self.blocks[slot].is_unread() {
                    self.waste(now, slot);
                }
                self.mark_read(slot);
                self.unclaim(slot);
            }
        }
        if was_read_unhinted || self.rules.replacement == Replacement::Lru {
            return self.enqueue(slot, Queue::Recent);
        }
        self.settle(slot, None);
    }

    /// A block in memory that may have no reason to be there: finds one, or lets it go. The stream that is
    /// `asked` has been, in vain.
    #[inline(always)] // Mostly it has a reason to be there, and that is soon seen.
    pub(crate) fn settle(&mut self, slot: SlotId, asked: Option<StreamIndex>) {
        let known = &self.blocks[slot];
        if !known.is_in_flight() && known.claim().is_none() && !known.is_queued() {
            self.settle_idle(slot, asked);
        }
    }

    #[inline(never)] // The rarer part, with several callers.
    fn settle_idle(&mut self, slot: SlotId, asked: Option<StreamIndex>) {
        let keeps = self.memory != Memory::Kernel { keeps: false }
            && self.rules.replacement != Replacement::Lru;
        if keeps && self.unwanted_by_others(slot, asked, -1.0).is_none() {
            return;
        }
        match self.memory {
            Memory::Owned => self.enqueue(slot, Queue::Consumed),
            Memory::Kernel { .. } => self.remove(slot), // It is the kernel's.
        }
    }

    /// Bytes of what is kept for blocks in memory and placed hints; what is kept of each file, name, program and
    /// fetch is not in it.
    pub(crate) fn memory_bytes(&self) -> usize {
        let streams = self.streams.iter().flatten().map(Stream::memory_bytes);
        self.blocks.memory_bytes()
            + self.recent.memory_bytes()
            + self.consumed.memory_bytes()
            + streams.sum::<usize>()
    }

    /// How many streams are noted as to be asked, now or later.
    #[cfg(test)]
    pub(crate) fn noted_as_stale(&self) -> usize {
        let stale = [&self.stale_values, &self.stale_candidates, &self.stale_resolved];
        stale.map(Vec::len).iter().sum::<usize>() + self.parked.len()
    }

    /// That records have what streams have shown, and have that was looked up, of one hinter at a time.
    #[cfg(any(test, debug_assertions))]
    fn check_shown(&self) {
        let streams = || self.streams.iter().flatten();
        for stream in streams().filter(|stream| !stream.shown_is_stale) {
            assert_eq!(stream.shown, stream.shows(), "{:?} has shown something else", stream.id);
        }
        for stream in streams().filter(|stream| !stream.resolved_is_stale) {
            let noted = (stream.resolved_noted, stream.standing_noted);
            let now = (stream.resolved_ahead(), stream.standing(&self.shares));
            assert_eq!(noted, now, "{:?} has something else", stream.id);
        }
        let turn = self.checked % self.streams.len().max(1);
        let Some(Some(Stream { hinter, .. })) = self.streams.get(turn) else { return };
        let shown = streams().filter(|stream| stream.hinter == *hinter).map(|stream| stream.shown);
        let sum = shown.fold((0, 0), |(unproven, unrecorded), shown| {
            (unproven + shown.unproven, unrecorded + u64::from(shown.unrecorded))
        });
        assert_eq!(self.hinters.shown(*hinter), sum, "{hinter:?} has shown something else");
        let of_hinter = streams().filter(|stream| stream.hinter == *hinter);
        let resolved: u64 = of_hinter.map(|stream| stream.resolved_noted).sum();
        assert_eq!(self.hinters.resolved(*hinter), resolved, "{hinter:?} has something else");
    }

    /// That every block in memory is tracked, and the numbers agree.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check_all(&mut self) {
        // One of the streams is enough of work for one time.
        self.checked += 1;
        let noted: usize =
            self.streams.iter().flatten().map(|stream| stream.hint_bytes_noted).sum();
        assert_eq!(self.hinters.hint_bytes(HinterId(0)).1, noted, "bytes of all hints");
        self.check_shown();
        let turn = self.checked % self.streams.len().max(1);
        self.files.check_shared(StreamIndex(turn as u32));
        if let Some(Some(stream)) = self.streams.get_mut(turn) {
            let index = StreamIndex(turn as u32);
            for (is_stale, noted) in [
                (stream.value_is_stale, &self.stale_values),
                (stream.candidate_is_stale, &self.stale_candidates),
                (stream.resolved_is_stale, &self.stale_resolved),
            ] {
                assert!(!is_stale || noted.contains(&index), "{index:?} is never asked");
            }
            if !self.left_untold {
                stream.check(&self.blocks);
            }
        }
        assert!(self.blocks.len() <= self.capacity_blocks, "over capacity");
        let (mut tracked, mut unread) = (0, 0);
        for (slot, known) in self.blocks.iter() {
            unread += u64::from(known.is_unread());
            let claim = known.claim();
            if let Some(claim) = claim {
                let stream = self.streams[claim.stream.0 as usize].as_ref();
                let stream = stream.expect("a claim leads to a stream");
                let part = stream.devices.iter().find(|part| part.device == known.device());
                let is_tracked = part.is_some_and(|part| part.tracked.contains(claim.position));
                assert_eq!(is_tracked, !known.is_in_flight(), "{known:?}");
                let at = stream.slot_at(&self.blocks, claim.position);
                assert!(!is_tracked || at == Some(slot), "{known:?} {at:?}");
                tracked += usize::from(is_tracked);
            }
            let reason = claim.is_some() || known.queue().is_some();
            assert!(reason || known.is_in_flight(), "nobody tracks {known:?}");
        }
        let streams = self.streams.iter().flatten();
        let by_streams: usize =
            streams.flat_map(|stream| &stream.devices).map(|part| part.tracked.len()).sum();
        assert_eq!((tracked, unread), (by_streams, self.unread));
    }
}
