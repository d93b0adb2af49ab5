//! A stream: the ordered hints of one hinter, how far its reader has come, and which of the blocks that
//! it names are in memory.
//!
//! Hints wait until their files are known, then they are *placed* ([`places`]) and entered into the index
//! of next uses ([`index`]). The [`cursor`] says what is past. Looking for blocks to fetch, the stream
//! walks its positions once: the *scan* stands at the first position that was not looked at; positions
//! before it whose blocks are missing are kept apart for each device.
//!
//! Invariant: of a block that the stream names and that is not in memory or on its way, the next use is
//! at or after the scan, or kept as missing.

pub(crate) mod cursor;
pub(crate) mod index;
mod pace;
pub(crate) mod places;
mod positions;
mod waiting;

#[cfg(any(test, debug_assertions))]
use std::collections::HashSet;

use crate::blocks::{BlockTable, DeviceIndex, POSITION_END, SlotId};
use crate::hint::{Block, Extent, FileId, HinterId, ReaderId, StreamId};
use crate::streams::hinters::Shown;
use crate::streams::latest_start::LatestStart;
use crate::streams::shares::{Shares, Standing};
use crate::tables::hash::{NEIGHBOURS, hash_block};
use crate::tables::line::load_lines;
use crate::tables::shrinking::HintQueue;
use crate::time::Nanos;
use cursor::{Cursor, Distance};
use index::{FileChange, NextUse};
use pace::Pace;
use places::{Places, Run};
use positions::PositionSet;
pub(crate) use waiting::{Lookup, Waiting};

/// Segments, and pieces of them, that one call places and enters into the index: some 0.1 ms of it. A hint is
/// placed as a whole.
const PLACED_AT_ONCE: usize = 4096;

/// Positions that one call looks at in search of a missing block.
const SCAN_STEPS: u32 = 4096;

/// Positions after a block that is fetched among which the next one is looked for, to load what will be asked of it.
const PEEKED: u64 = 64;

/// Ranges of a stride are written out: less of them is placed ahead, by this factor, which leaves what the
/// prefetcher looks through.
const STRIDED_DIVISOR: u64 = 8;

/// A pace that is slower by this part, as a divisor, is another one to the arbiter at once. What changes by less, and what costs
/// have changed, it learns after so many reads.
const PACE_DIVISOR: f64 = 16.0;
const RANKED_READS: u64 = 16;

/// Positions begin anew where so many have been taken, and all are past.
const ANEW_FROM: u64 = if cfg!(test) { 64 } else { POSITION_END / 2 };

/// Runs of uses of a block, made already, that are passed over in search of one still to come.
const USES_TRIED_MAX: usize = 8;

/// What a stream is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) block_bytes: u64,
    /// How far ahead of, and behind, the front a read may fit.
    pub(crate) window: u64,
    /// Accesses placed ahead of the front.
    pub(crate) placed_max: u64,
}

/// What a read means to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The access at this position.
    At(u64),
    /// One more call of the same reader for the block that it has read last.
    Again,
}

/// Positions of one device, and what is there.
#[derive(Debug)]
pub(crate) struct OfDevice {
    pub(crate) device: DeviceIndex,
    /// Blocks in memory that the stream tracks: the positions of their next uses.
    pub(crate) tracked: PositionSet,
    /// Positions before the scan whose blocks are not in memory.
    missing: PositionSet,
    /// Nothing is to be fetched from it as long as the front is before this position, unless a block is
    /// lost or more is disclosed.
    pub(crate) quiet_until: u64,
    /// When what is missing has to be begun.
    pub(crate) start: LatestStart,
    /// For how long the stream has disclosed without a read, pauses counted against it.
    pub(crate) discloses_for: Nanos,
}

impl OfDevice {
    /// The block at `position` is to be fetched.
    fn misses(&mut self, position: u64) {
        if !self.missing.contains(position) {
            self.missing.insert(position);
        }
        self.quiet_until = 0;
    }
}

/// The block that is being read, as far as is known: it stays in memory until its reader has moved on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) position: u64,
    pub(crate) slot: SlotId,
    /// Its next use after this one, and what was in the index when that was found out.
    later: Option<u64>,
    added: (u64, usize),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Whose record its hints count on.
    pub(crate) hinter: HinterId,
    /// Whose reads are taken for it; anybody's if that is not said.
    pub(crate) reader: Option<ReaderId>,
    pub(crate) waiting: HintQueue<Waiting>,
    /// Number of the first of them.
    pub(crate) first_waiting: u64,
    /// The hint that was placed last, while not all of it is in the index: its file is still held for it.
    entering: Option<Waiting>,
    /// Hints whose lookups take their time, by number: others have gone before them.
    slow: Vec<(u64, Waiting)>,
    pub(crate) devices: Vec<OfDevice>,
    pub(crate) cursor: Cursor,
    /// Blocks prefetched for it, or on their way, that nobody has read.
    pub(crate) unread: u64,
    /// Of those that were read, as many as its hinter's record does not have yet.
    pub(crate) unrecorded: u32,
    /// What it has shown by that record, and whether that may be something else by now.
    pub(crate) shown: Shown,
    pub(crate) shown_is_stale: bool,
    /// What it has [ahead](Self::resolved_ahead) by its hinter's record, its standing as devices know it, and whether
    /// these may be others by now.
    pub(crate) resolved_noted: u64,
    pub(crate) standing_noted: Standing,
    pub(crate) resolved_is_stale: bool,
    /// Names of its hints being looked up.
    pub(crate) lookups: u64,
    /// Hints whose files are known, and that have no place yet.
    known: u64,
    /// Blocks read as disclosed, less those that were prefetched for nothing.
    pub(crate) balance: i64,
    /// Whether one of those unread was let go since it read.
    pub(crate) has_lost_unread: bool,
    /// Whether it waits to be asked again by the arbiter, and by the prefetcher.
    pub(crate) value_is_stale: bool,
    pub(crate) candidate_is_stale: bool,
    /// By how many changes of costs the arbiter has asked, if it has read nothing since and what it tracks is the same.
    pub(crate) ranked_at: Option<u64>,
    /// What its pace was then, in ns, and whether it was late.
    pub(crate) ranked_pace: (Option<f64>, bool),
    /// Whether it waits for others to have fewer unread blocks.
    pub(crate) is_parked: bool,
    /// Whether the last search for a missing block was broken off.
    pub(crate) scan_is_unfinished: bool,
    /// Whether placing was broken off, and its load in the policy's account.
    pub(crate) placing_is_unfinished: bool,
    pub(crate) load_noted: usize,
    /// What waiting hints take beside themselves, with their segments, and what all hints do by the policy's account.
    waiting_bytes_apart: usize,
    pub(crate) hint_bytes_noted: usize,
    limits: Limits,
    places: Places,
    index: NextUse,
    /// The run around the front, as far as it is known.
    next: Option<Run>,
    /// The block that was read last, who may be reading it still, and its place while it lingers.
    pub(crate) last: Option<Block>,
    last_reader: Option<ReaderId>,
    pub(crate) current: Option<Current>,
    /// The slot of the block that was the last to be tracked as the one of its device that is read after all others. Mostly it
    /// is the next one to go, and is found without a search.
    pub(crate) last_tracked: Option<SlotId>,
    /// The block that it has let go last, and where it would have read it.
    let_go: Option<(Block, u64)>,
    scan: u64,
    /// Nothing before it was passed over because the reader was further.
    overtaken: u64,
    scan_run: Option<Run>,
    /// When it was given its last hint, if it has not read since.
    pub(crate) hinted_at: Option<Nanos>,
    pub(crate) pace: Pace,
    /// Whether a block had more uses made already than are passed over: a later one may not be sought then.
    #[cfg(any(test, debug_assertions))]
    gave_up_search: bool,
}

impl Stream {
    pub(crate) fn new(
        id: StreamId,
        hinter: HinterId,
        reader: Option<ReaderId>,
        limits: Limits,
    ) -> Self {
        Stream {
            id,
            hinter,
            reader,
            waiting: HintQueue::new(),
            first_waiting: 0,
            entering: None,
            slow: Vec::new(),
            devices: Vec::new(),
            cursor: Cursor::new(limits.window),
            unread: 0,
            unrecorded: 0,
            shown: Shown::default(),
            shown_is_stale: false,
            resolved_noted: 0,
            standing_noted: Standing::OF_NONE,
            resolved_is_stale: false,
            lookups: 0,
            known: 0,
            balance: 0,
            has_lost_unread: false,
            value_is_stale: false,
            candidate_is_stale: false,
            ranked_at: None,
            ranked_pace: (None, false),
            is_parked: false,
            scan_is_unfinished: false,
            placing_is_unfinished: false,
            load_noted: 0,
            waiting_bytes_apart: 0,
            hint_bytes_noted: 0,
            limits,
            places: Places::new(limits.block_bytes),
            index: NextUse::new(),
            next: None,
            last: None,
            last_reader: None,
            current: None,
            last_tracked: None,
            let_go: None,
            scan: 0,
            overtaken: u64::MAX,
            scan_run: None,
            hinted_at: None,
            pace: Pace::default(),
            #[cfg(any(test, debug_assertions))]
            gave_up_search: false,
        }
    }

    /// One hint more.
    pub(crate) fn wait(&mut self, waiting: Waiting) {
        self.known += u64::from(waiting.lookup().is_known());
        self.waiting_bytes_apart += waiting.bytes_apart();
        self.waiting.push_back(waiting);
    }

    /// Bytes that its hints take, those that wait and those that have their places, with the room for more of them if
    /// that is not small. Segments that hints have in common are counted for each.
    pub(crate) fn hint_bytes(&self) -> usize {
        self.waiting_bytes_apart
            + self.waiting.room_bytes()
            + self.slow.len() * size_of::<(u64, Waiting)>()
            + self.places.hint_bytes()
    }

    /// Accesses disclosed, placed, and still to come.
    pub(crate) fn ahead(&self) -> u64 {
        self.places.end().saturating_sub(self.cursor.front())
    }

    /// What speaks for its hinter and against it: against are blocks that were fetched for it and are unread, beyond those
    /// of it that were read.
    pub(crate) fn shows(&self) -> Shown {
        let unproven = self.unread.saturating_sub(u64::try_from(self.balance).unwrap_or(0));
        Shown { unproven, unrecorded: self.unrecorded }
    }

    /// Whether nothing of it is to be fetched from any device before its front has moved on.
    pub(crate) fn is_quiet(&self) -> bool {
        let front = self.cursor.front();
        self.devices.iter().all(|part| front < part.quiet_until)
    }

    /// The part of the stream that belongs to `device`.
    #[inline]
    pub(crate) fn of_device(&mut self, device: DeviceIndex) -> &mut OfDevice {
        // Mostly there is but one.
        if self.devices.first().is_some_and(|first| first.device == device) {
            return &mut self.devices[0];
        }
        self.of_further_device(device)
    }

    #[cold]
    fn of_further_device(&mut self, device: DeviceIndex) -> &mut OfDevice {
        let known = self.devices.iter().position(|part| part.device == device);
        let index = known.unwrap_or_else(|| {
            let (tracked, missing) = (PositionSet::default(), PositionSet::default());
            self.devices.push(OfDevice {
                device,
                tracked,
                missing,
                quiet_until: 0,
                start: LatestStart::default(),
                discloses_for: Nanos::ZERO,
            });
            self.devices.len() - 1
        });
        &mut self.devices[index]
    }

    /// Places what is known and near enough, and enters it into the index while its load is below `load_max`;
    /// as much as one call may do. Returns whole blocks that lie beyond the ends of their files, and hands
    /// out the waiting hints that it is done with.
    pub(crate) fn advance(
        &mut self,
        load_max: usize,
        mut changed: impl FnMut(FileChange),
        mut done: impl FnMut(Waiting),
    ) -> u64 {
        let (mut beyond_end, mut placed) = (0u64, false);
        let mut work = PLACED_AT_ONCE;
        let block_bytes = self.limits.block_bytes;
        // The search for blocks ends where the index does.
        let searched_all = self.scan >= self.index.end(&self.places, block_bytes);
        let added = self.index.added();
        loop {
            // A file is wanted from when its hint waits until it leaves the index: no hint between.
            self.index.extend(&self.places, block_bytes, load_max, &mut work, &mut changed);
            if self.index.is_complete(&self.places) {
                self.entering.take().into_iter().for_each(&mut done);
            }
            if work == 0 || !self.index.has_room(&self.places, load_max) {
                break;
            }
            let ahead = self.ahead();
            let Some(waiting) = self.waiting.front_mut() else { break };
            let most = match waiting.plan().extent {
                Extent::Strided { .. } => self.limits.placed_max / STRIDED_DIVISOR,
                _ => self.limits.placed_max,
            };
            if ahead >= most {
                break;
            }
            let mut rest = None;
            match waiting.lookup() {
                // No work: it would be begun again and again.
                Lookup::Pending(_) | Lookup::InFlight => break,
                Lookup::Overdue => {
                    work -= 1;
                    let slow = self.waiting.pop_front().expect("it is the first");
                    self.slow.push((self.first_waiting, slow));
                    self.first_waiting += 1;
                    continue;
                }
                Lookup::Void => work -= 1,
                Lookup::Known { file, size_bytes } => {
                    let plan = waiting.plan();
                    work = work.saturating_sub(plan.extent.segment_count().max(1));
                    if plan.repeats > 1 && self.places.in_parts(&plan.extent, size_bytes) {
                        waiting.goes_pass_by_pass();
                    }
                    let (plan, device) = (waiting.plan(), waiting.device);
                    let end = self.places.end();
                    let placing = self.places.place(plan, device, file, size_bytes);
                    if self.places.end() > end {
                        waiting.has_placed();
                    }
                    beyond_end = beyond_end.saturating_add(placing.beyond_end);
                    placed = true;
                    rest = placing.rest;
                }
            }
            if let Some(rest) = rest {
                waiting.goes_on_with(rest);
                continue;
            }
            if waiting.begins_next_pass() {
                continue;
            }
            self.first_waiting += 1;
            let first = self.waiting.pop_front().expect("it is the first");
            self.known -= u64::from(first.lookup().is_known());
            self.waiting_bytes_apart -= first.bytes_apart();
            self.entering = Some(first);
        }
        self.placing_is_unfinished = work == 0;
        if placed || (searched_all && self.index.added() > added) {
            self.devices.iter_mut().for_each(|part| part.quiet_until = 0);
        }
        if self.next.is_none() {
            self.next = self.places.run_at(self.cursor.front());
        }
        beyond_end
    }

    /// The lookup of the hint of this number takes its time: it is set aside when its turn to be placed
    /// comes. Returns whether the hint waits for it.
    pub(crate) fn lookup_is_overdue(&mut self, number: u64) -> bool {
        let waiting = self.waiting_of(number).filter(|hint| hint.lookup() == Lookup::InFlight);
        let Some(waiting) = waiting else { return false };
        waiting.set_lookup(Lookup::Overdue);
        true
    }

    fn waiting_of(&mut self, number: u64) -> Option<&mut Waiting> {
        let place = number.checked_sub(self.first_waiting)?;
        self.waiting.get_mut(place as usize)
    }

    /// The lookup of the hint of this number has ended. Returns whether the hint still waits.
    pub(crate) fn set_lookup(&mut self, number: u64, lookup: Lookup) -> bool {
        if let Some(place) = self.slow.iter().position(|&(slow, _)| slow == number) {
            let (_, mut waiting) = self.slow.swap_remove(place);
            waiting.set_lookup(lookup);
            self.known += u64::from(lookup.is_known());
            self.waiting.push_front(waiting);
            self.first_waiting -= 1;
            return true;
        }
        let Some(waiting) = self.waiting_of(number) else { return false };
        waiting.set_lookup(lookup);
        self.known += u64::from(lookup.is_known());
        true
    }

    /// Forgets all hints. Hands out the waiting ones, and the blocks that it tracked.
    pub(crate) fn cancel(
        &mut self,
        blocks: &BlockTable,
        changed: impl FnMut(FileChange),
        done: impl FnMut(Waiting),
        untracked: &mut Vec<SlotId>,
    ) {
        self.untrack_all(blocks, untracked);
        self.first_waiting += self.waiting.len() as u64;
        (self.known, self.waiting_bytes_apart) = (0, 0);
        let slow = std::mem::take(&mut self.slow).into_iter().map(|(_, waiting)| waiting);
        let others = slow.chain(self.entering.take());
        self.waiting.take_all().into_iter().chain(others).for_each(done);
        self.index.all_go().for_each(changed);
        self.cursor.restart();
        self.restart();
        (self.last, self.last_reader) = (None, None);
    }

    /// The position after the last that is taken.
    #[cfg(test)]
    pub(crate) fn placed_end(&self) -> u64 {
        self.places.end()
    }

    /// Whether all that was placed is past, and has taken so many positions that there may be too few for what is to come.
    pub(crate) fn should_begin_anew(&self) -> bool {
        self.places.len() == 0 && self.places.end() > ANEW_FROM
    }

    /// Positions begin anew: all of them are past, nothing is claimed for any, and no hint has a place.
    pub(crate) fn begin_anew(&mut self) {
        self.cursor.begin_anew();
        self.restart();
    }

    /// Forgets all positions.
    fn restart(&mut self) {
        self.places = Places::new(self.limits.block_bytes);
        self.index = NextUse::new();
        (self.scan, self.scan_run, self.next, self.current) = (0, None, None, None);
        (self.overtaken, self.let_go, self.ranked_at) = (u64::MAX, None, None);
        #[cfg(any(test, debug_assertions))]
        {
            self.gave_up_search = false;
        }
        for part in &mut self.devices {
            debug_assert!(part.tracked.is_empty(), "it tracks what has no position");
            part.missing = PositionSet::default();
            part.quiet_until = 0;
            part.start = LatestStart::default();
        }
    }

    /// What a read of `block` by `reader` means here.
    pub(crate) fn fit(&mut self, reader: ReaderId, block: Block) -> Option<Fit> {
        if self.is_next(block) {
            return Some(Fit::At(self.cursor.front()));
        }
        if self.last == Some(block) && self.last_reader == Some(reader) {
            return Some(Fit::Again);
        }
        let position = self.next_use(block)?;
        self.cursor.accepts(&self.places, reader, position).then_some(Fit::At(position))
    }

    /// `reader` reads the block that was read last, in parts perhaps.
    pub(crate) fn lingers_with(&mut self, reader: ReaderId) {
        self.last_reader = Some(reader);
    }

    /// Whether `reader` was the last one, and has read nothing else since.
    pub(crate) fn was_read_by(&self, reader: ReaderId) -> bool {
        self.last_reader == Some(reader)
    }

    /// `reader` reads something else: to come back is another access.
    pub(crate) fn is_left_by(&mut self, reader: ReaderId) {
        self.last_reader = self.last_reader.filter(|&last| last != reader);
    }

    fn next_block(&self) -> Option<Block> {
        self.next?.block_at(self.cursor.front())
    }

    /// Whether `block` is the very next access.
    pub(crate) fn is_next(&self, block: Block) -> bool {
        // In order, it may need nothing any more and still be read.
        self.next_block() == Some(block)
            && (!self.cursor.in_set() || self.cursor.expects(self.cursor.front()))
    }

    /// Position of the first access to `block` that is still to come.
    #[inline]
    pub(crate) fn next_use(&mut self, block: Block) -> Option<u64> {
        self.next_use_from(block, self.cursor.base())
    }

    /// Whether it names `file`, if that is known without looking for it.
    #[inline]
    pub(crate) fn surely_names(&self, file: FileId) -> bool {
        self.index.surely_has(file)
    }

    /// The block in `slot`, which is read at `position`, is the current one.
    pub(crate) fn reads(&mut self, position: u64, slot: SlotId) {
        self.current = Some(Current { position, slot, later: None, added: (0, 0) });
    }

    /// Finds the next use of the current block, which is `block`, while what says so is at hand.
    pub(crate) fn note_later_use(&mut self, block: Block) {
        if self.current.is_some() {
            let (later, added) = (self.next_use(block), self.index.added());
            self.current.as_mut().into_iter().for_each(|current| {
                (current.later, current.added) = (later, added);
            });
        }
    }

    /// The next use of `block`, which was the current one.
    pub(crate) fn later_use(&mut self, current: &Current, block: Block) -> Option<u64> {
        match current.later {
            Some(later) if self.cursor.expects(later) => Some(later),
            None if current.added == self.index.added() => None,
            _ => self.next_use(block),
        }
    }

    /// `block`, which is read at `position`, is offered to others, and leaves memory if they do not want it.
    pub(crate) fn lets_go(&mut self, block: Block, position: u64) {
        self.let_go = Some((block, position));
    }

    /// The next use of `block`, which leaves memory.
    pub(crate) fn use_of_leaving(&mut self, block: Block) -> Option<u64> {
        match self.let_go.take() {
            Some((known, position)) if known == block && self.cursor.expects(position) => {
                Some(position)
            }
            _ => self.next_use(block),
        }
    }

    #[inline]
    fn next_use_from(&mut self, block: Block, from: u64) -> Option<u64> {
        let position = self.index.find(&self.places, block, from)?;
        match self.cursor.expects(position) {
            true => Some(position),
            false => self.next_use_after(block, position),
        }
    }

    /// The same where the use at `position` was made already.
    #[cold]
    fn next_use_after(&mut self, block: Block, mut position: u64) -> Option<u64> {
        for _ in 1..USES_TRIED_MAX {
            // Asked first: how far what was read ahead reaches takes longer to find out, and mostly there is no later use.
            position = self.index.find(&self.places, block, position + 1)?;
            if self.cursor.expects(position) {
                return Some(position);
            }
            position = self.cursor.next_expected(position) - 1;
        }
        #[cfg(any(test, debug_assertions))]
        {
            self.gave_up_search = true;
        }
        None
    }

    /// The access at `position` is being made; what lies more than `behind` before it is given up. Blocks
    /// whose turn has passed with it are no longer tracked, and handed out. Returns whether what is left may be worth less
    /// than when the arbiter asked, unless it is going to ask again.
    pub(crate) fn read(
        &mut self,
        (block, position): (Block, u64),
        behind: u64,
        blocks: &BlockTable,
        changed: impl FnMut(FileChange),
        untracked: &mut Vec<SlotId>,
    ) -> bool {
        let (past, from) = (self.cursor.base(), self.cursor.fetched_from());
        let (front, accuracy) = (self.cursor.front(), self.cursor.accuracy());
        let was_in_set = self.cursor.in_set();
        let base = self.cursor.read(&self.places, position, behind);
        if self.cursor.fetched_from() < from {
            self.look_back();
        }
        self.last = Some(block);
        self.balance += 1;
        self.has_lost_unread = false;
        self.renew_next();
        if base > past + 1 || (base > past && position != past) {
            self.untrack_before(base, blocks, untracked);
            self.look_for_later_uses(base, blocks);
        }
        if base > past {
            self.index.retire(&mut self.places, self.limits.block_bytes, base, changed);
        }
        self.ranked_at = None;
        !self.value_is_stale
            && (was_in_set
                || self.cursor.in_set()
                || self.cursor.front() < front
                || self.cursor.accuracy() < accuracy
                || self.cursor.reads().is_multiple_of(RANKED_READS)
                || self.has_other_pace())
    }

    /// Whether its reads come more slowly than when the arbiter asked, or have come to be late or in time.
    fn has_other_pace(&self) -> bool {
        let (before, was_late) = self.ranked_pace;
        let is_slower = match (before, self.pace.pace_ns()) {
            (Some(before), Some(now)) => now > before + before / PACE_DIVISOR,
            (before, now) => before != now,
        };
        is_slower || was_late != self.pace.is_late()
    }

    /// The reader has come back: what was passed over is looked for again.
    fn look_back(&mut self) {
        if self.overtaken >= self.scan {
            return;
        }
        let from = self.cursor.fetched_from();
        self.scan = self.scan.min(from.max(self.overtaken));
        if from <= self.overtaken {
            self.overtaken = u64::MAX;
        }
        self.devices.iter_mut().for_each(|part| part.quiet_until = 0);
    }

    /// `block` was come upon, and is kept for a use ahead of the reader: one that was overtaken comes before it if the
    /// reader comes back.
    pub(crate) fn come_upon_behind(&mut self, block: Block) {
        let from = self.cursor.fetched_from();
        if self.cursor.base() < from
            && let Some(overtaken) = self.next_use(block).filter(|&position| position < from)
        {
            self.overtaken = self.overtaken.min(overtaken);
        }
    }

    /// Whether more than so many accesses lie between what is past and its reader.
    pub(crate) fn is_behind_by(&self, accesses: u64) -> bool {
        self.cursor.front() - self.cursor.base() > accesses
    }

    /// How many of its hints lie between what is past and its reader.
    pub(crate) fn hints_left_out(&self) -> u64 {
        self.places.len() as u64 - self.places.ends_after(self.cursor.front())
    }

    /// The access at `position` needs nothing any more: its block is in memory, and not the policy's.
    pub(crate) fn settle(
        &mut self,
        position: u64,
        blocks: &BlockTable,
        changed: impl FnMut(FileChange),
        untracked: &mut Vec<SlotId>,
    ) {
        let mut base = self.cursor.settle(position);
        // Without a reader, one pass that found everything in memory says enough of the others.
        let front = self.cursor.front();
        if !self.cursor.is_seen()
            && let Some(hint) = self.places.placed_at(front)
            && front >= hint.start + hint.pass_blocks
        {
            base = self.cursor.skip_to(hint.end());
        }
        self.untrack_before(base, blocks, untracked);
        self.look_for_later_uses(base, blocks);
        self.index.retire(&mut self.places, self.limits.block_bytes, base, changed);
        self.renew_next();
    }

    /// What is missing before `base` is missing no more: the next use of each block is, if it was looked at while
    /// the block was in memory for this one.
    fn look_for_later_uses(&mut self, base: u64, blocks: &BlockTable) {
        for part in 0..self.devices.len() {
            while let Some(position) = self.devices[part].missing.pop_before(base) {
                self.miss_later_use(position, blocks);
            }
        }
    }

    /// The access at `position`, whose block is missing, is left to the reader, or given up.
    fn miss_later_use(&mut self, position: u64, blocks: &BlockTable) {
        let Some((block, device)) = self.block_at(position) else { return };
        let later = self.cursor.base().max(position + 1);
        let from = self.cursor.fetched_from().max(later);
        // Its next use may have been overtaken with it: not to be fetched, unless the reader comes back.
        if later < from
            && let Some(next) = self.next_use_from(block, later).filter(|&next| next < from)
        {
            self.overtaken = self.overtaken.min(next);
        }
        if let Some(next) = self.next_use_from(block, from)
            && next < self.scan
            && blocks.find(block).is_none()
        {
            self.of_device(device).misses(next);
        }
    }

    /// Ceases to track what was to be read before `base`, but for what is being read.
    fn untrack_before(&mut self, base: u64, blocks: &BlockTable, untracked: &mut Vec<SlotId>) {
        self.ranked_at = None;
        for part in 0..self.devices.len() {
            let mut current = None;
            while let Some(position) = self.devices[part].tracked.pop_before(base) {
                if self.current.is_some_and(|current| current.position == position) {
                    current = Some(position);
                    continue;
                }
                untracked.extend(self.slot_at(blocks, position));
            }
            current.into_iter().for_each(|position| self.devices[part].tracked.insert(position));
        }
    }

    fn untrack_all(&mut self, blocks: &BlockTable, untracked: &mut Vec<SlotId>) {
        self.ranked_at = None;
        for part in 0..self.devices.len() {
            let all = self.devices[part].tracked.take_all();
            untracked.extend(all.filter_map(|position| self.slot_at(blocks, position)));
        }
    }

    /// The slot of the block that is read at `position`.
    pub(crate) fn slot_at(&self, blocks: &BlockTable, position: u64) -> Option<SlotId> {
        match self.current {
            Some(current) if current.position == position => Some(current.slot),
            _ => blocks.find(self.block_at(position)?.0),
        }
    }

    fn renew_next(&mut self) {
        let front = self.cursor.front();
        if self.next.is_none_or(|run| !(run.first_position..run.end_position()).contains(&front)) {
            self.next = self.places.run_at(front);
        }
    }

    /// Whether nothing is left to be looked for.
    pub(crate) fn is_worked_off(&self) -> bool {
        self.waiting.is_empty()
            && self.slow.is_empty()
            && self.scan.max(self.cursor.front()) >= self.places.end()
            && self.devices.iter().all(|part| part.missing.is_empty())
    }

    /// Hints ahead of the front that were looked up, or are being.
    pub(crate) fn resolved_ahead(&self) -> u64 {
        self.places.ends_after(self.cursor.front()) + self.known + self.lookups
    }

    /// Its standing by what it has [ahead](Self::resolved_ahead), and by its balance.
    pub(crate) fn standing(&self, shares: &Shares) -> Standing {
        shares.standing(self.resolved_ahead(), self.balance)
    }

    /// How large its index is.
    pub(crate) fn load(&self) -> usize {
        self.index.load()
    }

    /// Whether all hints are placed, and in the index.
    pub(crate) fn is_placed(&self) -> bool {
        self.waiting.is_empty() && self.entering.is_none() && self.index.is_complete(&self.places)
    }

    /// Hints that are not past.
    pub(crate) fn hints(&self) -> usize {
        self.waiting.len() + self.slow.len() + self.places.len()
    }

    /// Whether the access at `position` has been looked for.
    pub(crate) fn is_before_scan(&self, position: u64) -> bool {
        position < self.scan && self.devices.iter().all(|part| !part.missing.contains(position))
    }

    /// Notes when a read came, and whether it had to wait.
    pub(crate) fn note_pace(&mut self, now: Nanos, by: ReaderId, waits: bool, hit_ns: f64) {
        self.hinted_at = None;
        self.pace.read(now, by, waits, hit_ns);
    }

    /// Whether the access at `position` is still to come, or going on.
    pub(crate) fn expects(&self, position: u64) -> bool {
        self.cursor.expects(position)
            || self.current.is_some_and(|current| current.position == position)
    }

    pub(crate) fn distance(&self, position: u64) -> Distance {
        self.cursor.distance(position)
    }

    /// Whether `block` is read at `position`.
    #[inline]
    pub(crate) fn reads_at(&self, position: u64, block: Block) -> bool {
        // Mostly it is searched for blocks there.
        match self.scan_run.and_then(|run| run.block_at(position)) {
            Some(known) => known == block,
            None => self.block_at(position).is_some_and(|(known, _)| known == block),
        }
    }

    /// The block that is read at `position`.
    pub(crate) fn block_at(&self, position: u64) -> Option<(Block, DeviceIndex)> {
        let known = [self.scan_run, self.next].into_iter().flatten();
        for run in known {
            if let Some(block) = run.block_at(position) {
                return Some((block, run.device));
            }
        }
        let run = self.places.run_at(position)?;
        Some((run.block_at(position)?, run.device))
    }

    /// A block whose next use is at `position` has left memory.
    pub(crate) fn lost(&mut self, device: DeviceIndex, position: u64) {
        if position < self.scan && self.cursor.expects(position) {
            self.of_device(device).misses(position);
        }
    }

    /// The fetch for `position` begins.
    pub(crate) fn taken(&mut self, blocks: &BlockTable, device: DeviceIndex, position: u64) {
        if position == self.scan {
            self.scan += 1;
            if self.scan_run.is_some_and(|run| run.end_position() == self.scan) {
                let next = self.next_untracked(device, self.scan, self.scan.saturating_add(PEEKED));
                self.scan_run = self.places.run_at(next);
                let next = self.scan_run.and_then(|run| run.block_at(next));
                next.into_iter().for_each(|next| self.load_missing(next, blocks));
            }
        } else {
            self.of_device(device).missing.remove(position);
        }
        self.of_device(device).start.taken();
    }

    /// Loads what will be asked of a block that is probably missing, and of those after it that may be fetched with it.
    fn load_missing(&self, block: Block, blocks: &BlockTable) {
        let last = Block { index: block.index.saturating_add(NEIGHBOURS - 1), ..block };
        for block in [block, last] {
            blocks.load_home(hash_block(block));
            self.index.load_chain(block);
        }
    }

    /// The first position of `device`, before `limit`, whose block is neither in memory nor on its way.
    /// `resident` is told of blocks that are come upon and not tracked, with their positions.
    pub(crate) fn first_missing(
        &mut self,
        blocks: &BlockTable,
        device: DeviceIndex,
        limit: u64,
        mut resident: impl FnMut(SlotId, u64),
    ) -> Option<u64> {
        self.scan_is_unfinished = false;
        // What is fetched is in the index.
        let limit = limit.min(self.index.end(&self.places, self.limits.block_bytes));
        let from = self.cursor.fetched_from();
        // What lies beyond the scan it will come upon again.
        let scan = self.scan;
        while let Some(position) = self.of_device(device).missing.first().filter(|&at| at < scan) {
            if position >= from
                && self.cursor.expects(position)
                && let Some((block, _)) = self.block_at(position)
            {
                match blocks.find(block) {
                    None => return (position < limit).then_some(position),
                    // Its file may have been hinted twice, from two devices, and it was fetched for the later use.
                    Some(slot) => resident(slot, position),
                }
            }
            self.of_device(device).missing.remove(position);
            if position < from && self.cursor.expects(position) {
                self.overtaken = self.overtaken.min(position);
            }
            self.miss_later_use(position, blocks);
        }
        if self.scan < from {
            self.overtaken = self.overtaken.min(self.scan);
            self.scan = from;
        }
        for _ in 0..SCAN_STEPS {
            if self.scan < limit {
                self.scan = self.next_untracked(device, self.scan, limit);
            }
            let position = self.scan;
            if position >= limit {
                return None;
            }
            let run = match self.scan_run {
                Some(run) if (run.first_position..run.end_position()).contains(&position) => run,
                _ => self.places.run_at(position)?,
            };
            self.scan_run = Some(run);
            if run.device != device {
                let end = run.end_position().min(limit);
                let untracked = self.next_untracked(run.device, position, end);
                if untracked > position {
                    self.scan = untracked;
                    continue;
                }
            }
            if self.cursor.expects(position) {
                let block = run.block_at(position).expect("the run contains it");
                match blocks.find(block) {
                    Some(slot) => resident(slot, position),
                    None if run.device == device => return Some(position),
                    None => self.of_device(run.device).misses(position),
                }
            }
            self.scan += 1;
        }
        self.scan_is_unfinished = true;
        None
    }

    /// Looks for what else is missing before `limit`, of whatever device, as far as one call does.
    pub(crate) fn note_missing(
        &mut self,
        blocks: &BlockTable,
        limit: u64,
        mut resident: impl FnMut(SlotId, u64),
    ) {
        let limit = limit.min(self.index.end(&self.places, self.limits.block_bytes));
        for _ in 0..SCAN_STEPS {
            if self.scan >= limit {
                return;
            }
            let Some((block, device)) = self.block_at(self.scan) else { return };
            if self.cursor.expects(self.scan) {
                match blocks.find(block) {
                    Some(slot) => resident(slot, self.scan),
                    None => {
                        let position = self.scan;
                        self.of_device(device).misses(position);
                    }
                }
            }
            self.scan += 1;
        }
    }

    /// The first position, from `position` to `end`, whose block is not tracked as one of `device`.
    fn next_untracked(&self, device: DeviceIndex, position: u64, end: u64) -> u64 {
        let part = self.devices.iter().find(|part| part.device == device);
        part.map_or(position, |part| part.tracked.next_absent(position, end))
    }

    /// The missing position `first` of `device`, and those after it that were found so far, in order.
    pub(crate) fn missing_from(
        &self,
        device: DeviceIndex,
        first: u64,
    ) -> impl Iterator<Item = u64> {
        let part = self.devices.iter().find(|part| part.device == device);
        let others = part.into_iter().flat_map(move |part| {
            std::iter::successors(part.missing.next(first + 1), |&at| part.missing.next(at + 1))
        });
        std::iter::once(first).chain(others)
    }

    /// The module's invariant, for the next positions. An earlier use that is missing and was overtaken stands for
    /// the next one until it is come upon; and a block may have moved to another device since.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&mut self, blocks: &BlockTable) {
        const CHECKED: u64 = 256;
        let waiting = self.waiting.iter().chain(self.slow.iter().map(|(_, waiting)| waiting));
        let bytes_apart = waiting.map(Waiting::bytes_apart).sum();
        assert_eq!(self.waiting_bytes_apart, bytes_apart, "bytes of hints");
        if self.gave_up_search || self.index.gave_up() {
            return;
        }
        let all = |part: &OfDevice| {
            std::iter::successors(part.missing.first(), |&at| part.missing.next(at + 1))
                .collect::<Vec<u64>>()
        };
        let missing = self.devices.iter().flat_map(all).filter_map(|at| self.block_at(at));
        let missing: HashSet<Block> = missing.map(|(block, _)| block).collect();
        let from = self.cursor.fetched_from();
        for position in from..self.scan.min(from + CHECKED) {
            let Some((block, _)) = self.block_at(position) else { continue };
            let is_due = self.cursor.expects(position)
                && blocks.find(block).is_none()
                && self.next_use_from(block, from) == Some(position);
            assert!(
                !is_due || missing.contains(&block),
                "{block:?} is sought by nobody, {position}"
            );
        }
    }

    /// Loads what the stream leads to and a read will look at.
    #[inline]
    pub(crate) fn load_parts(&self) {
        self.devices.first().into_iter().for_each(load_lines);
        self.places.first().into_iter().for_each(load_lines);
        self.index.load_parts();
    }

    /// Loads what the parts lead to; and what will be asked of the block at the scan, if the prefetcher may ask after the next
    /// read. Of a longer run it mostly is at hand.
    #[inline]
    pub(crate) fn load_segments(&self, blocks: &BlockTable) {
        let front = self.cursor.front() + 1;
        if self.devices.first().is_some_and(|part| part.quiet_until <= front)
            && let Some(run) = self.scan_run.filter(|run| run.end_position() == self.scan + 1)
            && let Some(block) = run.block_at(self.scan)
        {
            self.load_missing(block, blocks);
        }
        self.places.load_segment(self.cursor.front());
        self.next_block().into_iter().for_each(|block| self.index.load_chain(block));
        self.devices.first().into_iter().for_each(|part| part.tracked.load_ends());
    }

    /// Bytes that it takes. Segments that hints have in common are counted for each.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_part = |part: &OfDevice| {
            size_of::<OfDevice>() + part.tracked.memory_bytes() + part.missing.memory_bytes()
        };
        size_of::<Stream>()
            + self.waiting_bytes_apart
            + self.waiting.capacity() * size_of::<Waiting>()
            + self.slow.capacity() * size_of::<(u64, Waiting)>()
            + self.places.memory_bytes()
            + self.index.memory_bytes()
            + self.cursor.memory_bytes()
            + self.devices.iter().map(of_part).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Slot;
    use crate::hint::{DeviceId, Hint, Segment, Target};

    const DISK: DeviceIndex = DeviceIndex(0);
    const READER: ReaderId = ReaderId(1);
    const FILE: FileId = FileId(0);

    fn block(index: u64) -> Block {
        Block { file: FILE, index }
    }

    /// A stream that reads these ranges of blocks, first and length, of one file.
    fn stream_of(ranges: &[(u64, u64)]) -> Stream {
        let limits = Limits { block_bytes: 1, window: 40, placed_max: 1 << 20 };
        let mut stream = Stream::new(StreamId(0), HinterId(0), Some(READER), limits);
        for &(offset_bytes, length_bytes) in ranges {
            let target = Target::File { file: FILE, size_bytes: 1000 };
            let segments = [Segment { offset_bytes, length_bytes }];
            let hint = Hint::segments(target, DeviceId(0), &segments);
            stream.wait(Waiting::new(hint, DISK));
        }
        stream.advance(4096, |_| (), |_| ());
        stream
    }

    fn read(stream: &mut Stream, blocks: &BlockTable, position: u64) {
        let (block, _) = stream.block_at(position).expect("it is placed");
        stream.read((block, position), 20, blocks, |_| (), &mut Vec::new());
        stream.check(blocks);
    }

    #[test]
    fn a_later_use_that_was_overtaken_too_is_sought_when_the_reader_comes_back() {
        // Block 9 is read at 9, and at 24 again.
        let mut stream = stream_of(&[(0, 20), (5, 20)]);
        let mut blocks = BlockTable::new(64);
        let slots: Vec<SlotId> =
            (0..25).map(|index| blocks.insert(Slot::in_flight(block(index), DISK, true))).collect();
        stream.note_missing(&blocks, u64::MAX, |_, _| ());
        blocks.remove(slots[9]);
        stream.lost(DISK, 9);
        // The reader leaps: the first use is given up, the second lies behind the front.
        for position in [30, 31, 32] {
            read(&mut stream, &blocks, position);
        }
        assert_eq!((stream.cursor.base(), stream.cursor.fetched_from()), (13, 33));
        assert_eq!(stream.first_missing(&blocks, DISK, u64::MAX, |_, _| ()), None);
        for position in [20, 21] {
            read(&mut stream, &blocks, position);
        }
        assert_eq!(stream.first_missing(&blocks, DISK, u64::MAX, |_, _| ()), Some(24));
    }

    #[test]
    fn a_use_that_was_overtaken_is_come_upon_again_when_the_reader_comes_back() {
        // Block 9 is read at 9, at 24 and at 40.
        let mut stream = stream_of(&[(0, 20), (5, 20), (9, 1)]);
        let mut blocks = BlockTable::new(64);
        let slots: Vec<SlotId> =
            (0..25).map(|index| blocks.insert(Slot::in_flight(block(index), DISK, true))).collect();
        for position in [30, 31, 32] {
            read(&mut stream, &blocks, position);
        }
        let come_upon = |stream: &mut Stream| {
            let mut found = Vec::new();
            let missing = stream.first_missing(&blocks, DISK, u64::MAX, |slot, at| {
                found.push((slot, at));
            });
            assert_eq!(missing, None);
            found.retain(|&(slot, _)| slot == slots[9]);
            found
        };
        assert_eq!(come_upon(&mut stream), [(slots[9], 40)]);
        stream.come_upon_behind(block(9));
        for position in [20, 21] {
            read(&mut stream, &blocks, position);
        }
        assert_eq!(come_upon(&mut stream), [(slots[9], 24), (slots[9], 40)]);
    }

    #[test]
    fn who_reads_in_order_and_no_more_slowly_has_nothing_that_is_worth_less() {
        let (mut stream, blocks) = (stream_of(&[(0, 30)]), BlockTable::new(64));
        let mut read = |position: u64, ranked_pace: (Option<f64>, bool)| {
            stream.ranked_pace = ranked_pace;
            stream.read((block(position), position), 20, &blocks, |_| (), &mut Vec::new())
        };
        let none = (None, false);
        assert!(!read(0, none));
        assert!(read(1, (None, true)), "it is in time");
        assert!(read(2, (Some(1.0), false)), "nothing is known of its pace any more");
        assert!(!read(10, none));
        // The second read behind its front has that go back.
        assert!(!read(4, none));
        assert!(read(5, none), "all is further away");
    }

    #[test]
    fn who_reads_in_order_is_asked_now_and_then_since_costs_may_have_changed() {
        let (mut stream, blocks) = (stream_of(&[(0, 60)]), BlockTable::new(64));
        let mut read = |position: u64| {
            stream.read((block(position), position), 20, &blocks, |_| (), &mut Vec::new())
        };
        let asked = (0..2 * RANKED_READS).filter(|&position| read(position)).count();
        assert_eq!(asked, 2);
    }

    #[test]
    fn what_was_missing_and_has_come_is_come_upon() {
        let (mut stream, mut blocks) = (stream_of(&[(0, 3), (0, 3)]), BlockTable::new(64));
        stream.note_missing(&blocks, u64::MAX, |_, _| ());
        // Fetched, for its second use perhaps.
        let slot = blocks.insert(Slot::in_flight(block(0), DISK, true));
        let mut found = Vec::new();
        let missing = stream.first_missing(&blocks, DISK, u64::MAX, |slot, at| {
            found.push((slot, at));
        });
        assert_eq!((missing, found), (Some(1), vec![(slot, 0)]));
    }

    #[test]
    fn what_a_search_gave_up_is_forgotten_with_the_hints() {
        let (mut stream, blocks) = (stream_of(&[(0, 1); 10]), BlockTable::new(64));
        stream.gave_up_search = true;
        stream.cancel(&blocks, |_| (), |_| (), &mut Vec::new());
        assert!(!stream.gave_up_search, "it would be checked no more");
    }
}
