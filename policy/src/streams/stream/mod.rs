//! A stream: the ordered hints of one hinter, how far its reader has come, and which of its blocks are in memory.
//!
//! Hints wait until their files are known. Then they are *placed* ([`places`]): each access gets a position, and the accesses
//! enter the index of next uses ([`index`]). The [`cursor`] says which positions are past. The search for blocks to fetch walks the
//! positions once: the *scan* stands at the first position that was not looked at, and missing positions before it are kept for
//! each device.
//!
//! The methods of [`Stream`] lie in files by subject: `placing.rs` (hints and lookups), `reading.rs` (reads and next uses),
//! `search.rs` (blocks to fetch), `tracking.rs` (claims to blocks in memory).
//!
//! Invariant: of a block that the stream names and that is neither in memory nor in flight, the next use is at or after the scan,
//! or kept as missing.

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

/// Positions start again from 0 when so many have been used and all of them are past.
const ANEW_FROM: u64 = if cfg!(test) { 64 } else { POSITION_END / 2 };

/// The limits that a stream is created with.
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

/// The part of a stream that belongs to one device.
#[derive(Debug)]
pub(crate) struct OfDevice {
    pub(crate) device: DeviceIndex,
    /// Blocks in memory that the stream tracks: the positions of their next uses.
    pub(crate) tracked: PositionSet,
    /// Positions before the scan whose blocks are not in memory.
    missing: PositionSet,
    /// The device has nothing to fetch for the stream while the front is before this position, unless the stream loses a
    /// block or discloses more.
    pub(crate) quiet_until: u64,
    /// When the fetches of the missing blocks have to begin.
    pub(crate) start: LatestStart,
    /// For how long the stream has disclosed without a read, less its pauses.
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

/// The block that was read last: it stays in memory until the reader moves on, since programs read blocks in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) position: u64,
    pub(crate) slot: SlotId,
    /// Its next use, and the contents of the index when that was looked up.
    later: Option<u64>,
    added: (u64, usize),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// The program that gives the hints.
    pub(crate) hinter: HinterId,
    /// The only reader of it; `None`: any reader's reads may belong to it.
    pub(crate) reader: Option<ReaderId>,
    waiting: HintQueue<Waiting>,
    /// Number of the first waiting hint.
    first_waiting: u64,
    /// The hint placed last, until all of it is in the index. Its file is still held.
    entering: Option<Waiting>,
    /// Hints with slow lookups, by number. Later hints are placed before them.
    slow: Vec<(u64, Waiting)>,
    /// Its parts by device, in the order in which hints named the devices.
    pub(crate) devices: Vec<OfDevice>,
    pub(crate) cursor: Cursor,
    /// Blocks prefetched for it, or in flight, that are unread.
    pub(crate) unread: u64,
    /// Blocks of use that its hinter's record does not have yet.
    pub(in crate::streams) unrecorded: u32,
    /// Its contribution to that record as noted last, and whether it may have changed since.
    pub(in crate::streams) shown: Shown,
    pub(in crate::streams) shown_is_stale: bool,
    /// Its [looked-up hints](Self::resolved_ahead) and its standing as noted last, and whether they may have changed since.
    pub(in crate::streams) resolved_noted: u64,
    pub(in crate::streams) standing_noted: Standing,
    pub(in crate::streams) resolved_is_stale: bool,
    /// Lookups of its names in flight.
    lookups: u64,
    /// Waiting hints with known files.
    known: u64,
    /// Blocks read as disclosed, less those that were prefetched for nothing.
    pub(crate) balance: i64,
    /// Whether an unread block of it was evicted since its last read.
    pub(crate) has_lost_unread: bool,
    /// Whether the arbiter has to ask for its value again, and the prefetcher for its candidate.
    pub(in crate::streams) value_is_stale: bool,
    pub(in crate::streams) candidate_is_stale: bool,
    /// The number of changes of costs when the arbiter asked for its value; `None` if it has read since or tracks other blocks.
    pub(in crate::streams) ranked_at: Option<u64>,
    /// Its pace then, in ns, and whether it was late.
    ranked_pace: (Option<f64>, bool),
    /// Whether it waits for others to have fewer unread blocks.
    pub(in crate::streams) is_parked: bool,
    /// Whether the last search for a missing block was broken off.
    pub(crate) scan_is_unfinished: bool,
    /// Whether placing was broken off, and the size of its index as noted last.
    placing_is_unfinished: bool,
    pub(in crate::streams) load_noted: usize,
    /// Bytes that waiting hints take apart from themselves, and bytes of all hints as noted last.
    waiting_bytes_apart: usize,
    pub(in crate::streams) hint_bytes_noted: usize,
    limits: Limits,
    places: Places,
    index: NextUse,
    /// The run around the front, as far as it is known.
    next: Option<Run>,
    /// The block that was read last, its reader, and its position and slot while the reader may come back to it.
    last: Option<Block>,
    last_reader: Option<ReaderId>,
    pub(crate) current: Option<Current>,
    /// The slot tracked last with the furthest next use of its device: mostly the next victim, found without a search.
    pub(crate) last_tracked: Option<SlotId>,
    /// The block that it let go last, and the position of its next use.
    let_go: Option<(Block, u64)>,
    /// The first position that was not looked at in search of missing blocks.
    scan: u64,
    /// The search passed over positions from here on, because the reader was further.
    overtaken: u64,
    scan_run: Option<Run>,
    /// When its last hint came, if it has not read since.
    pub(crate) hinted_at: Option<Nanos>,
    pub(crate) pace: Pace,
    /// Whether a search for a next use gave up after too many past uses, so that a later one may be missed.
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
