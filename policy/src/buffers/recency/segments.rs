//! The segments of the stack: contiguous ranges of depth (TIP 1995, figure 9).
//!
//! The paper tags each buffer with its segment and changes the tag when the buffer moves to the next one. Here a segment is the
//! range of the log between two *floors*. A floor moves, and the buffers that change their segment by it are not touched. The
//! floor of a segment is a position at or below all of its entries and above all deeper ones; where dead entries lie between,
//! any of their positions will do.
//!
//! * A. An entry is pushed or removed: it is counted in its segment. No floor moves.
//! * B. A segment is asked for: if a turn is due, floors move until the segments above them have the right number of live
//!   entries. A turn is due after 2^`pace` changes. It moves the first four floors and, like the carries of a binary counter,
//!   the fifth in every second turn, the sixth in every fourth, and so on. Where the segments are equal (the last 32), all
//!   their floors move together. Each segment before those is as large as all segments above it. So a segment is right to
//!   within a quarter of itself, and in large stacks, except for the first four, to within a sixteenth. The bitmap is passed 64
//!   entries at a time, so that many changes cost hardly more than one. In a small stack all floors move at every change, and
//!   segments are exact.
//!
//! Cost, with s segments: O(1) a push, O(log s) a removal or question. A turn moves about seven floors on average, and one turn
//! in sixteen moves all floors. In stacks of 1,024 to 8,191 entries that are asked after every second change, a turn moves ten
//! to thirteen, and one in four or eight moves all.

use super::log::{Log, Position};

/// Equal segments up to the limit of the stack.
/// Unit: segments. Reason: judgement.
const EQUAL: usize = 32;
/// How often the first of the equal segments is halved again, to tell small depths apart.
/// Unit: halvings. Reason: judgement.
const HALVINGS: u32 = 6;
/// Changes from one turn to the next, as a part of the smallest segment.
/// Unit: ratio. Reason: judgement.
const CHANGES_DIVISOR: usize = 4;
/// Segments whose floors move at every turn. With fewer, the segments after them would be wrong by more than a quarter in
/// stacks whose smallest segments have one entry.
/// Unit: segments. Reason: bound.
const ALWAYS: usize = 4;
/// Limit from which the segments of a stack are inexact. In a smaller stack, exact ones are cheap.
/// Unit: entries. Reason: judgement.
const INEXACT_FROM: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Segment {
    /// See the [module](self).
    floor: Position,
    /// Entries that it holds.
    entries: usize,
    /// Entries that it should hold in a full stack.
    room: usize,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Segments {
    /// From the top of the stack down, without the last one. That one holds all deeper entries, and has no floor.
    segments: Vec<Segment>,
    /// The index of the first of the equal segments (lengths that rounding makes shorter left out).
    halved: usize,
    /// Whether all floors move with every change.
    is_exact: bool,
    /// Pushes and removals so far; `seen` is their number when floors last moved. The next turn is 2^`pace` of them later.
    changes: u64,
    seen: u64,
    pace: u32,
    /// The deepest segment that has had a removal, or taken over entries from the one above, since its floor moved.
    deepest: usize,
    /// Floors above the gap of the compaction under way; see [`Segments::lift`].
    lifted: usize,
}

/// The depths at which the segments of a stack of `limit` entries end: the last entry of a segment is
/// the one at this depth, counted from 1. At most 38; a small stack has fewer.
fn ends(limit: usize) -> Vec<usize> {
    let equal = (1..=EQUAL as u64).map(|i| (limit as u64 * i / EQUAL as u64) as usize);
    let halved = (1..=HALVINGS).map(|i| (limit / EQUAL) >> i);
    let mut ends: Vec<usize> = equal.chain(halved).filter(|&end| end > 0).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

impl Segments {
    /// The segments of an empty stack of `limit` entries; without `boundaries`, one for all.
    pub(super) fn new(limit: usize, boundaries: bool) -> Self {
        let ends = if boundaries { ends(limit) } else { vec![limit] };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let segments: Vec<Segment> = starts
            .zip(&ends[..ends.len() - 1])
            .map(|(start, end)| Segment { floor: 0, entries: 0, room: end - start })
            .collect();
        let halved = segments.partition_point(|segment| segment.room < limit / EQUAL);
        let smallest = segments.first().map_or(0, |segment| segment.room);
        let pace = (smallest / CHANGES_DIVISOR + 1).ilog2();
        let is_exact = limit < INEXACT_FROM;
        Segments { segments, halved, is_exact, changes: 0, seen: 0, pace, deepest: 0, lifted: 0 }
    }

    /// The segment of a position; 0 is the newest. After [`settle`](Segments::settle) it is right to within a quarter of a
    /// segment.
    #[inline]
    pub(super) fn find(&self, position: Position) -> usize {
        // Until the first question all entries are in the first segment.
        if self.segments.first().is_none_or(|first| first.floor <= position) {
            return 0;
        }
        self.segments.partition_point(|segment| segment.floor > position)
    }

    /// An entry was appended to the log (case A).
    #[inline]
    pub(super) fn pushed(&mut self) {
        if let Some(first) = self.segments.first_mut() {
            first.entries += 1;
            self.changes += 1;
        }
    }

    /// The entry at `position` is removed (case A).
    #[inline]
    pub(super) fn removed(&mut self, position: Position) {
        let Some(last) = self.segments.last() else { return };
        // Most often the oldest entry is dropped.
        let is_deepest = last.floor > position;
        let index = if is_deepest { self.segments.len() } else { self.find(position) };
        if let Some(segment) = self.segments.get_mut(index) {
            segment.entries -= 1;
        }
        self.changes += 1;
        self.deepest = self.deepest.max(index);
    }

    /// Moves the floors if a turn is due (case B), before [`find`](Segments::find). `live` is the number of entries.
    #[inline]
    pub(super) fn settle(&mut self, log: &Log, live: usize) {
        if (self.changes - self.seen) >> self.pace > 0 {
            self.move_floors(log, live);
        }
    }

    /// The number of segments whose floors move in this turn.
    fn due(&self) -> usize {
        // The highest digit of the turn's number that counting has changed.
        let digit = ((self.changes ^ self.seen) >> self.pace).checked_ilog2().unwrap_or(0);
        let due = ALWAYS + digit as usize;
        if self.is_exact || due > self.halved { self.segments.len() } else { due }
    }

    fn move_floors(&mut self, log: &Log, live: usize) {
        let due = self.due();
        // Numbers of live entries: down to the floor where it lies, down to where it should lie, and down to where the floor
        // above should lie.
        let (mut found, mut wanted, mut above) = (0, 0, 0);
        for (index, segment) in self.segments[..due].iter_mut().enumerate() {
            found += segment.entries;
            wanted = live.min(wanted + segment.room);
            if found < wanted {
                segment.floor = log.below(segment.floor, wanted - found);
            } else if found > wanted {
                segment.floor = log.above(segment.floor, found - wanted);
            }
            segment.entries = wanted - above;
            above = wanted;
            if found == wanted && index >= self.deepest {
                break; // The floors below are right too.
            }
        }
        if let Some(next) = self.segments.get_mut(due)
            && found != wanted
        {
            // The next segment has at least as many entries as are taken from it, since it lacks a quarter of them at most.
            // Floors below it do not move yet.
            next.entries = next.entries + found - wanted;
            self.deepest = self.deepest.max(due);
        } else if self.deepest < due || due == self.segments.len() {
            self.deepest = 0;
        }
        self.seen = self.changes;
        self.lifted = 0;
    }

    /// Checks, for a stack that has just been asked, that its floors are within their bounds.
    #[cfg(test)]
    pub(super) fn check(&self, log: &Log, live: usize) {
        let mut positions: Vec<Position> = Vec::new();
        while let Some(position) = log.next_live(positions.last().map_or(0, |last| last + 1)) {
            positions.push(position);
        }
        assert_eq!(positions.len(), live);
        let (mut above, mut counted, mut wanted) = (Position::MAX, 0, 0);
        let unseen = (self.changes - self.seen) as usize;
        for (index, segment) in self.segments.iter().enumerate() {
            assert!(segment.floor <= above, "{index}: floors fall");
            above = segment.floor;
            counted += segment.entries;
            let found = live - positions.partition_point(|&position| position < segment.floor);
            assert_eq!(found, counted, "{index}: entries down to its floor");
            wanted = live.min(wanted + segment.room);
            let error = found.abs_diff(wanted);
            assert!(error <= segment.room / 4 + unseen, "{index}: {error} of {}", segment.room);
        }
        assert!(!self.is_exact || self.deepest == 0, "all is settled down to {}", self.deepest);
    }

    /// A compaction starts.
    pub(super) fn compaction_starts(&mut self) {
        self.lifted = 0;
    }

    /// The entry at `from` is about to move up, over dead ones, to the position just below `gap_end`. Floors between these two
    /// positions move up too. A compaction goes from the newest entry to the oldest, so that it looks at each floor once.
    #[inline]
    pub(super) fn lift(&mut self, from: Position, gap_end: Position) {
        while let Some(segment) = self.segments.get_mut(self.lifted)
            && segment.floor > from
        {
            segment.floor = gap_end.max(segment.floor);
            self.lifted += 1;
        }
    }

    /// Depths, counted from 1, of the last entry of each segment of a stack of `limit` entries.
    pub(super) fn ends(&self, limit: usize) -> Vec<usize> {
        let mut end = 0;
        let floors = self.segments.iter().map(|segment| {
            end += segment.room;
            end
        });
        floors.chain([limit]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_segments_and_a_finer_first_one() {
        let ends = Segments::new(1 << 20, true).ends(1 << 20);
        assert_eq!(ends.len(), 38);
        assert_eq!(ends[..8], [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]);
        assert_eq!(ends[37], 1 << 20);
    }

    #[test]
    fn small_stacks_have_fewer_segments_that_still_reach_the_limit() {
        for limit in 1..200 {
            let ends = Segments::new(limit, true).ends(limit);
            assert!(ends.is_sorted_by(|a, b| a < b), "{ends:?}");
            assert_eq!((ends[0] > 0, ends.last()), (true, Some(&limit)));
            assert_eq!(Segments::new(limit, false).ends(limit), [limit]);
        }
    }
}
