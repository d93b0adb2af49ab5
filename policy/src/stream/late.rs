//! Hints that have come late: what was disclosed after them was placed before them.
//!
//! A lookup may take its time, for a disk that serves what lies on its arm's way leaves one for last. What was hinted
//! after it does not wait for it, and gets its positions. When it has ended, the hint gets the next ones, far from
//! where it belongs, and its reader comes to it before most of what lies before it. So it is *due* where it was set aside, after
//! others that were set aside and were disclosed before it. How far away it is counts from there; it is looked for when what lies
//! before its turn has been looked for; and who reads it has not passed over what lies before it: the reader is taken to
//! go on where it was.
//!
//! This is so for the first pass, until the front comes to it by itself.
//!
//! Cost: mostly there are none; O(n) a question otherwise, with n of them, [`LATE_MAX`] at most.

use std::ops::Range;

/// Hints of a stream that others have gone before, at most: others wait for their lookups.
pub(super) const LATE_MAX: usize = 64;

/// Where a hint belongs that others have gone before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Its reader comes to it before this position.
    pub(super) due: u64,
    /// Its number in the order of disclosure.
    pub(super) number: u64,
}

/// The first pass of a hint that has come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LateHint {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) turn: Turn,
    /// Positions before it were looked at by the prefetcher.
    pub(super) scan: u64,
}

impl LateHint {
    fn contains(&self, position: u64) -> bool {
        (self.start..self.end).contains(&position)
    }
}

/// All of a stream; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Late {
    /// In the order of disclosure.
    hints: Vec<LateHint>,
    /// The number of the one that was read last, and the position after its last one that was read.
    reading: Option<(u64, u64)>,
}

impl Late {
    /// What was placed at `positions` has this turn.
    pub(super) fn add(&mut self, positions: Range<u64>, turn: Turn) {
        let Range { start, end } = positions;
        let place = self.hints.partition_point(|hint| hint.turn.number < turn.number);
        match self.hints.get_mut(place) {
            // One more part of the same.
            Some(hint) if (hint.turn, hint.end) == (turn, start) => hint.end = end,
            _ => self.hints.insert(place, LateHint { start, end, turn, scan: start }),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.hints.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// Of this place in the order of disclosure.
    pub(super) fn get(&self, place: usize) -> Option<LateHint> {
        self.hints.get(place).copied()
    }

    fn of(&self, position: u64) -> Option<&LateHint> {
        self.hints.iter().find(|hint| hint.contains(position))
    }

    /// Whether `position` is one of them.
    #[inline]
    pub(super) fn contains(&self, position: u64) -> bool {
        !self.is_empty() && self.of(position).is_some()
    }

    /// When the access at `position` is due, as a position, with the front at `front`; its own if it has not come late.
    #[inline]
    pub(super) fn due(&self, position: u64, front: u64) -> u64 {
        if self.is_empty() { position } else { self.due_of_late(position, front) }
    }

    fn due_of_late(&self, position: u64, front: u64) -> u64 {
        let Some(hint) = self.of(position) else { return position };
        let LateHint { start, turn, .. } = *hint;
        let (reading, read_to) = self.reading.unwrap_or((0, 0));
        if self.reading.is_some() && turn.number <= reading {
            let from = if turn.number == reading { read_to } else { start };
            return front + position.saturating_sub(from);
        }
        // After those that come before it.
        let ahead = self.hints.iter().take_while(|other| other.turn.number < turn.number);
        let ahead = ahead.map(|other| match (other.turn.number, self.reading) {
            (number, Some((reading, _))) if number < reading => 0,
            (number, Some((reading, read_to))) if number == reading => other.end - read_to,
            _ => other.end - other.start,
        });
        turn.due.max(front) + ahead.sum::<u64>() + (position - start)
    }

    /// The access at `position`, which is one of them, has been made.
    pub(super) fn read(&mut self, position: u64) {
        let Some(number) = self.of(position).map(|hint| hint.turn.number) else { return };
        let read_to = match self.reading {
            Some((reading, read_to)) if reading == number => read_to.max(position + 1),
            _ => position + 1,
        };
        self.reading = Some((number, read_to));
    }

    /// The front has come to `front`: the ordinary rules hold for what begins there, or before. Returns whether that is news.
    #[inline]
    pub(super) fn front_comes_to(&mut self, front: u64) -> bool {
        let before = self.hints.len();
        if before > 0 {
            self.hints.retain(|hint| hint.start > front);
        }
        self.hints.len() < before
    }

    /// The prefetcher has looked at `position`.
    pub(super) fn scanned(&mut self, position: u64) {
        if let Some(hint) = self.hints.iter_mut().find(|hint| hint.contains(position)) {
            hint.scan = hint.scan.max(position + 1);
        }
    }

    /// Whether it has.
    #[inline]
    pub(super) fn is_before_scan(&self, position: u64) -> bool {
        !self.is_empty() && self.of(position).is_some_and(|hint| position < hint.scan)
    }

    /// Whether `position` is the next one of its hint to be looked at.
    #[inline]
    pub(super) fn is_at_scan(&self, position: u64) -> bool {
        !self.is_empty() && self.of(position).is_some_and(|hint| position == hint.scan)
    }

    /// Where they begin and end.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> {
        self.hints.iter().flat_map(|hint| [hint.start, hint.end])
    }

    pub(super) fn clear(&mut self) {
        *self = Late::default();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.hints.capacity() * size_of::<LateHint>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(hints: &[(Range<u64>, u64, u64)]) -> Late {
        let mut late = Late::default();
        for (positions, due, number) in hints {
            late.add(positions.clone(), Turn { due: *due, number: *number });
        }
        late
    }

    #[test]
    fn they_are_due_in_the_order_of_disclosure_however_they_have_come() {
        let mut late = late(&[(100..110, 40, 7), (200..205, 20, 3), (300..302, 40, 6)]);
        let due = |late: &Late, front| [200, 204, 300, 100, 109].map(|at| late.due(at, front));
        assert_eq!(due(&late, 0), [20, 24, 45, 47, 56]);
        assert_eq!(late.due(50, 0), 50, "it has not come late");
        // The reader is where they belong, and reads the second of them.
        assert_eq!(due(&late, 60), [60, 64, 65, 67, 76]);
        late.read(300);
        assert_eq!(late.due(301, 60), 60);
        assert_eq!([late.due(100, 60), late.due(200, 60)], [61, 60]);
    }

    #[test]
    fn parts_of_one_are_one_and_the_front_ends_them() {
        let turn = Turn { due: 5, number: 1 };
        let mut late = late(&[(10..20, 5, 1), (20..30, 5, 1), (40..50, 6, 2)]);
        assert_eq!(late.get(0), Some(LateHint { start: 10, end: 30, turn, scan: 10 }));
        assert!(late.is_at_scan(10) && !late.is_before_scan(10));
        late.scanned(10);
        assert!(late.is_before_scan(10) && late.is_at_scan(11));
        assert!(!late.front_comes_to(9) && late.len() == 2);
        assert!(late.front_comes_to(10) && !late.contains(15) && late.contains(45));
        assert_eq!(late.due(15, 10), 15);
    }
}
