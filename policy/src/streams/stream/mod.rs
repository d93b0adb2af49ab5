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
mod placing;
mod positions;
mod reading;
mod search;
#[cfg(test)]
mod tests;
mod tracking;
mod waiting;

use crate::blocks::{BlockTable, DeviceIndex, POSITION_END, SlotId};
use crate::hint::{Block, HinterId, ReaderId, StreamId};
use crate::streams::hinters::Shown;
use crate::streams::latest_start::LatestStart;
use crate::streams::shares::Standing;
use crate::tables::line::load_lines;
use crate::tables::shrinking::HintQueue;
use crate::time::Nanos;
use cursor::{Cursor, Distance};
use index::{FileChange, NextUse};
use pace::Pace;
use places::{Places, Run};
use positions::PositionSet;
pub(crate) use waiting::{Lookup, Waiting};

/// Positions begin anew where so many have been taken, and all are past.
const ANEW_FROM: u64 = if cfg!(test) { 64 } else { POSITION_END / 2 };

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
    waiting: HintQueue<Waiting>,
    /// Number of the first of them.
    first_waiting: u64,
    /// The hint that was placed last, while not all of it is in the index: its file is still held for it.
    entering: Option<Waiting>,
    /// Hints whose lookups take their time, by number: others have gone before them.
    slow: Vec<(u64, Waiting)>,
    pub(crate) devices: Vec<OfDevice>,
    pub(crate) cursor: Cursor,
    /// Blocks prefetched for it, or on their way, that nobody has read.
    pub(crate) unread: u64,
    /// Of those that were read, as many as its hinter's record does not have yet.
    pub(in crate::streams) unrecorded: u32,
    /// What it has shown by that record, and whether that may be something else by now.
    pub(in crate::streams) shown: Shown,
    pub(in crate::streams) shown_is_stale: bool,
    /// What it has [ahead](Self::resolved_ahead) by its hinter's record, its standing as devices know it, and whether
    /// these may be others by now.
    pub(in crate::streams) resolved_noted: u64,
    pub(in crate::streams) standing_noted: Standing,
    pub(in crate::streams) resolved_is_stale: bool,
    /// Names of its hints being looked up.
    lookups: u64,
    /// Hints whose files are known, and that have no place yet.
    known: u64,
    /// Blocks read as disclosed, less those that were prefetched for nothing.
    pub(crate) balance: i64,
    /// Whether one of those unread was let go since it read.
    pub(crate) has_lost_unread: bool,
    /// Whether it waits to be asked again by the arbiter, and by the prefetcher.
    pub(in crate::streams) value_is_stale: bool,
    pub(in crate::streams) candidate_is_stale: bool,
    /// By how many changes of costs the arbiter has asked, if it has read nothing since and what it tracks is the same.
    pub(in crate::streams) ranked_at: Option<u64>,
    /// What its pace was then, in ns, and whether it was late.
    ranked_pace: (Option<f64>, bool),
    /// Whether it waits for others to have fewer unread blocks.
    pub(in crate::streams) is_parked: bool,
    /// Whether the last search for a missing block was broken off.
    pub(crate) scan_is_unfinished: bool,
    /// Whether placing was broken off, and its load in the policy's account.
    placing_is_unfinished: bool,
    pub(in crate::streams) load_noted: usize,
    /// What waiting hints take beside themselves, with their segments, and what all hints do by the policy's account.
    waiting_bytes_apart: usize,
    pub(in crate::streams) hint_bytes_noted: usize,
    limits: Limits,
    places: Places,
    index: NextUse,
    /// The run around the front, as far as it is known.
    next: Option<Run>,
    /// The block that was read last, who may be reading it still, and its place while it lingers.
    last: Option<Block>,
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
