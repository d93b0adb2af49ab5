//! The segments of the stack: contiguous ranges of depth (TIP 1995, figure 9).
//!
//! The paper tags each buffer with its segment and changes the tag when the buffer passes on. Here
//! a segment is the range of the log between two *floors*, so that passing on costs nothing at the
//! buffer. The floor of a segment is a position at or below all of its entries and above all deeper
//! ones; several positions will do when dead entries lie between.
//!
//! * A. An entry is pushed or removed: it is counted in the segment that it lies in. No floor moves.
//! * B. A segment is asked for: floors move by as many live entries as their segments and those above have too many
//!   or too few. Not all of them at every change: there is a turn after 2^`pace` changes, and turns are counted in
//!   binary. The first four floors move at every turn, one more for each digit above the lowest that counting has
//!   changed, and all equal ones together. Since each of the others is as large as all before it, a segment is right to within a
//!   quarter of itself, and in large stacks to within a sixteenth, but for the first four. The bitmap is passed 64 entries at a time, so that
//!   many changes cost hardly more than one. A small stack has its turn, of all floors, at every change, and is exact.
//!
//! Cost: O(1) a push, O(log s) a removal or question, with s segments; and about ten floors a turn: all of them in one of
//! sixteen, of stacks of fewer than 8,192 entries in one of four or eight.

use super::log::{Log, Position};

/// Equal segments up to the limit of the stack.
const EQUAL: usize = 32;
/// Halvings of the first of them, so that small depths are told apart.
const HALVINGS: u32 = 6;
/// So much of a segment, as a divisor, may have changed before its floor moves.
const CHANGES_DIVISOR: usize = 4;
/// Segments whose floors move at every turn. With fewer, the next ones would be wrong by more than a quarter where the
/// smallest have one entry.
const ALWAYS: usize = 4;
/// Stacks of fewer entries are exact.
const INEXACT_FROM: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Segment {
    /// See the module.
    floor: Position,
    /// Entries in it.
    entries: usize,
    /// Most entries in it.
    room: usize,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Segments {
    /// From the top of the stack down, without the last one, which takes whatever is deeper: it has
    /// no floor, and room for all.
    segments: Vec<Segment>,
    /// The first of the equal ones, but for what is rounded.
    halved: usize,
    /// Whether all floors move with every change.
    is_exact: bool,
    /// Pushes and removals that there have been, of which `seen` had been when floors last moved. That is done after
    /// 2^`pace` of them.
    changes: u64,
    seen: u64,
    pace: u32,
    /// The deepest segment that has had a removal since its floor was moved, or the entries that one above it had too many.
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

    /// The segment of a position. The newest is 0. Right after [`settle`](Segments::settle), to within a quarter of it.
    #[inline]
    pub(super) fn find(&self, position: Position) -> usize {
        // As long as nobody has asked, all are in the first.
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
        // What is dropped is the oldest.
        let is_deepest = last.floor > position;
        let index = if is_deepest { self.segments.len() } else { self.find(position) };
        if let Some(segment) = self.segments.get_mut(index) {
            segment.entries -= 1;
        }
        self.changes += 1;
        self.deepest = self.deepest.max(index);
    }

    /// Makes [`find`](Segments::find) as right as it is to be (case B). `live` is the number of entries.
    #[inline]
    pub(super) fn settle(&mut self, log: &Log, live: usize) {
        if (self.changes - self.seen) >> self.pace > 0 {
            self.move_floors(log, live);
        }
    }

    /// Segments whose floors are to move after the changes since they last did.
    fn due(&self) -> usize {
        // The highest digit that counting on has changed.
        let digit = ((self.changes ^ self.seen) >> self.pace).checked_ilog2().unwrap_or(0);
        let due = ALWAYS + digit as usize;
        if self.is_exact || due > self.halved { self.segments.len() } else { due }
    }

    fn move_floors(&mut self, log: &Log, live: usize) {
        let due = self.due();
        // Entries down to the floor: as it lies, where it belongs, and where the one above belongs.
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
                break; // So it is with those below.
            }
        }
        if let Some(next) = self.segments.get_mut(due)
            && found != wanted
        {
            // No more are taken from it than it has: it lacks a quarter at most. Those below have not heard of it yet.
            next.entries = next.entries + found - wanted;
            self.deepest = self.deepest.max(due);
        } else if self.deepest < due || due == self.segments.len() {
            self.deepest = 0;
        }
        self.seen = self.changes;
        self.lifted = 0;
    }

    /// Asserts, of a stack that has just been asked, that its floors are where they may be.
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

    /// The entry at `from` is about to move up, over dead ones, to the position just below `gap_end`:
    /// floors between the two go with it. A compaction does this from the newest entry to the
    /// oldest, so that each floor is looked at once.
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
