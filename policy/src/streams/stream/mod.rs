//! A stream: the ordered hints of one hinter, how far its reader has come, and which of its blocks are in memory.
//!
//! A hint waits until its file is known. Then it is *placed* ([`places`]): each of its accesses gets a position and enters the
//! index of next uses ([`index`]). The [`cursor`] says which positions are past. The search for blocks to fetch visits each
//! position once. The *scan* is the first position not yet visited. Missing positions before the scan are kept per device.
//!
//! The methods of [`Stream`] lie in files by subject: `placing.rs` (hints and lookups), `reading.rs` (reads and next uses),
//! `search.rs` (blocks to fetch), `tracking.rs` (claims to blocks in memory).
//!
//! Invariant: consider a block that the stream names and that is neither in memory nor in flight. Its next use is at or after
//! the scan, or is kept as missing.

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
use crate::tally::SourceId;
use crate::time::Nanos;
use cursor::{Cursor, Distance};
use index::{FileChange, NextUse};
use pace::Pace;
use places::{Places, Run};
use positions::PositionSet;
pub(crate) use waiting::{Lookup, Waiting};

/// Positions restart from 0 once this many are used and all of them are past.
/// Unit: positions. Reason: bound.
const ANEW_FROM: u64 = if cfg!(test) { 64 } else { POSITION_END / 2 };

/// The limits that a stream is created with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) block_bytes: u64,
    /// How far ahead of the front, or behind it, a read may be and still fit. In accesses.
    pub(crate) window: u64,
    /// Accesses that may be placed ahead of the front.
    pub(crate) placed_max: u64,
}

/// How a read relates to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The read is the access at this position.
    At(u64),
    /// The same reader calls again for the block that it read last.
    Again,
}

/// The part of a stream that belongs to one device.
#[derive(Debug)]
pub(crate) struct OfDevice {
    pub(crate) device: DeviceIndex,
    /// Blocks in memory that the stream tracks: the positions of their next uses.
    pub(crate) tracked: PositionSet,
    /// Positions before the scan whose blocks are not in memory and have to be fetched.
    missing: PositionSet,
    /// Until the front reaches this position, the device has nothing to fetch for the stream. A lost block or a new hint resets
    /// it to 0.
    pub(crate) quiet_until: u64,
    /// The latest start of the fetches of the missing blocks.
    pub(crate) start: LatestStart,
    /// Time for which the stream has disclosed without reading, less its pauses.
    pub(crate) discloses_for: Nanos,
}

impl OfDevice {
    /// Notes that the block at `position` has to be fetched.
    fn misses(&mut self, position: u64) {
        if !self.missing.contains(position) {
            self.missing.insert(position);
        }
        self.quiet_until = 0;
    }
}

/// The block that was read last. It stays in memory until the reader moves on, because programs read blocks in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) position: u64,
    pub(crate) slot: SlotId,
    /// The next use of the current block, and how much the index contained when that was searched for.
    later: Option<u64>,
    added: (u64, usize),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// The program that gives the hints.
    pub(crate) hinter: HinterId,
    /// The only reader whose reads may belong to the stream; `None` if any reader's may.
    pub(crate) reader: Option<ReaderId>,
    /// Whether its hints are guesses: the program may read none of the files.
    pub(crate) is_guess: bool,
    /// What its hints come from.
    pub(crate) source: SourceId,
    /// Most unread blocks that it may have, however well it is read.
    pub(crate) unread_max: u64,
    /// Most blocks of a fetch; `None`: the policy's own.
    pub(crate) cluster_blocks_max: Option<u64>,
    /// Whether its reader is known to leave out parts.
    pub(crate) has_gaps: bool,
    waiting: HintQueue<Waiting>,
    /// Number of the first waiting hint.
    first_waiting: u64,
    /// The hint placed last, until all of it is in the index. Until then the stream still names its file.
    entering: Option<Waiting>,
    /// Hints with slow lookups, by number. Later hints are placed ahead of them.
    slow: Vec<(u64, Waiting)>,
    /// What the stream keeps for each device, in the order in which hints first named the devices.
    pub(crate) devices: Vec<OfDevice>,
    pub(crate) cursor: Cursor,
    /// Unread blocks that were prefetched for it or are in flight for it.
    pub(crate) unread: u64,
    /// Useful blocks that its hinter's record does not include yet.
    pub(in crate::streams) unrecorded: u32,
    /// The stream's last noted contribution to its hinter's record, and whether it may have changed since.
    pub(in crate::streams) shown: Shown,
    pub(in crate::streams) shown_is_stale: bool,
    /// The stream's last noted number of [looked-up hints](Self::resolved_ahead) and standing, and whether they may have
    /// changed since.
    pub(in crate::streams) resolved_noted: u64,
    pub(in crate::streams) standing_noted: Standing,
    pub(in crate::streams) resolved_is_stale: bool,
    /// Lookups of its names in flight.
    lookups: u64,
    /// Waiting hints whose files are known.
    known: u64,
    /// Blocks read as disclosed, less blocks that were prefetched and never read.
    pub(crate) balance: i64,
    /// Whether an unread block of the stream was evicted since its last read.
    pub(crate) has_lost_unread: bool,
    /// Whether the arbiter has to ask for the stream's value again, and whether the prefetcher has to ask for its candidate
    /// again.
    pub(in crate::streams) value_is_stale: bool,
    pub(in crate::streams) candidate_is_stale: bool,
    /// The count of cost changes when the arbiter last asked for its value. `None` if it has read, or tracks other blocks,
    /// since then.
    pub(in crate::streams) ranked_at: Option<u64>,
    /// The stream's pace when the arbiter last asked for its value, in ns, and whether the stream was late.
    ranked_pace: (Option<f64>, bool),
    /// Whether the stream is parked until other streams have fewer unread blocks.
    pub(in crate::streams) is_parked: bool,
    /// Whether the last search for a missing block stopped at its limit of steps.
    pub(crate) scan_is_unfinished: bool,
    /// Whether placing stopped at its limit of work, and the last noted size of its index.
    placing_is_unfinished: bool,
    pub(in crate::streams) load_noted: usize,
    /// Bytes that waiting hints take outside [`Waiting`], and the last noted bytes of all hints.
    waiting_bytes_apart: usize,
    pub(in crate::streams) hint_bytes_noted: usize,
    limits: Limits,
    places: Places,
    index: NextUse,
    /// The run around the front, if it is known.
    next: Option<Run>,
    /// The block that was read last and its reader. `current` has its position and slot while the reader may come back to it.
    last: Option<Block>,
    last_reader: Option<ReaderId>,
    pub(crate) current: Option<Current>,
    /// The slot tracked last with the furthest next use of its device. It is usually the next victim, found without a search.
    pub(crate) last_tracked: Option<SlotId>,
    /// The block that it released last, and the position of that block's next use.
    let_go: Option<(Block, u64)>,
    /// The first position that the search for missing blocks has not visited.
    scan: u64,
    /// The first position that the search passed over because the reader was further; `u64::MAX` if there is none.
    overtaken: u64,
    scan_run: Option<Run>,
    /// When the stream's last hint arrived, if the stream has not read since.
    pub(crate) hinted_at: Option<Nanos>,
    pub(crate) pace: Pace,
    /// Whether a search for a next use gave up after too many past uses. A later use may then be missed.
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
            is_guess: false,
            source: SourceId::default(),
            unread_max: u64::MAX,
            cluster_blocks_max: None,
            has_gaps: false,
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

    /// Accesses that are placed and still to come.
    pub(crate) fn ahead(&self) -> u64 {
        self.places.end().saturating_sub(self.cursor.front())
    }

    /// Its contribution to its hinter's record. Unread blocks fetched for the stream count against the hinter, as far as they
    /// exceed the stream's balance.
    pub(crate) fn shows(&self) -> Shown {
        let unproven = self.unread.saturating_sub(u64::try_from(self.balance).unwrap_or(0));
        Shown { unproven, unrecorded: self.unrecorded }
    }

    /// Whether no device has anything to fetch for it before its front moves on.
    pub(crate) fn is_quiet(&self) -> bool {
        let front = self.cursor.front();
        self.devices.iter().all(|part| front < part.quiet_until)
    }

    /// The part of the stream that belongs to `device`.
    #[inline]
    pub(crate) fn of_device(&mut self, device: DeviceIndex) -> &mut OfDevice {
        // There is usually only one.
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

    /// Drops all hints. Passes the waiting ones to `done`, and the slots that it tracked to `untracked`.
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

    /// The position after the last one in use.
    #[cfg(test)]
    pub(crate) fn placed_end(&self) -> u64 {
        self.places.end()
    }

    /// Whether everything placed is past and more than [`ANEW_FROM`] positions are used, so that positions should restart.
    pub(crate) fn should_begin_anew(&self) -> bool {
        self.places.len() == 0 && self.places.end() > ANEW_FROM
    }

    /// Restarts positions from 0. All positions are past, no block is claimed for any of them, and no hint is placed.
    pub(crate) fn begin_anew(&mut self) {
        self.cursor.begin_anew();
        self.restart();
    }

    /// Drops all positions.
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
        // Most searches are for blocks of this run.
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

    /// Loads into the processor's caches the parts of the stream that a read will look at.
    #[inline]
    pub(crate) fn load_parts(&self) {
        self.devices.first().into_iter().for_each(load_lines);
        self.places.first().into_iter().for_each(load_lines);
        self.index.load_parts();
    }

    /// Loads the data that the parts loaded by [`load_parts`](Self::load_parts) point to. If the prefetcher may ask after the
    /// next read, also loads the table entries for the block at the scan. Where blocks follow each other in longer runs, that
    /// entry is usually cached already.
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

    /// Bytes that it takes. Segments shared between hints are counted once per hint.
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
