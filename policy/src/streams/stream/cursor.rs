//! How far a stream's reader has come, and how far away a position therefore is.
//!
//! Programs do not read exactly as they disclose: they skip, go back, and several threads or processes
//! work off one list side by side.
//!
//! * **A. In order.** Everything before the cursor's *base* is past; the *front* is where the reader is. As long as
//!   reads come in order the two are one.
//! * **B. Within the window.** A read that fits a position a window's length ahead of the front, or one
//!   that was left out, is taken for it. The front goes ahead with the first such read, and back with the second
//!   of two in a row: who reads one file before its turn comes back, and two readers side by side do not
//!   pull the front to and fro. What stays too far behind is given up as skipped; after a leap, not before
//!   some more reads have shown that the reader does not come back.
//! * **C. Far ahead.** One read that fits further ahead may be an accident. A second one beyond it by
//!   the same reader is not: the cursor jumps there. Not so where the front was moved by blocks that
//!   turned out to be in memory: their reader comes after, and fits nothing near.
//! * **D. Sets.** In a hint whose order is free, any of its positions fits. The front is then the number
//!   of blocks read, so that what comes after the set is as far away as there is left to read. Threads may
//!   be at several sets side by side: those are *open*. One that nobody reads any more, while others are
//!   read, is left; what it has unread is given up like anything else that lies behind.
//!
//! Positions that were read and positions that were given up make up the stream's *accuracy*, a mean
//! that forgets.
//!
//! Cost: O(1) in order; O(log w) with w positions read out of order and far from the first of them, which
//! take as much memory as [`positions`](super::positions) says.

use std::ops::Range;

use super::places::Places;
use super::positions::PositionSet;
use crate::hint::{Order, ReaderId};

/// How far away an access is, in accesses of its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distance {
    /// So many accesses ahead; the next one is 1.
    Ahead(u64),
    /// Any of the next so many accesses, all alike.
    AnyOf(u64),
}

/// Weight of a new observation in the accuracy, and what a new stream is taken to have shown.
const ACCURACY_WEIGHT: f64 = 1.0 / 256.0;
const ACCURACY_FIRST: f64 = 1.0;

/// More skipped positions at once count as so many.
const SKIPS_COUNTED_MAX: u64 = 1024;

/// D: sets that are open at a time, for as many threads.
const SETS_MAX: usize = 64;

/// D: a set is left when others were read so many times as often in its stead as between its reads before.
const SET_GAPS: u64 = 8;

/// B, D: reads elsewhere after which what was left out is given up, and a set is left, in parts of what may lie
/// behind: few if the stream has not kept its word.
const PATIENCE_DIVISOR: u64 = 8;

/// B: positions left out that are waited for, or as many as the window has: each may take some bytes.
const LEFT_OUT_MAX: u64 = 4096;

/// A hint without order, or one pass of it, that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    start: u64,
    end: u64,
    read: u64,
    /// When it was opened and read last, in reads of the stream; and its reads since.
    opened: u64,
    last_read: u64,
    reads: u64,
}

impl Set {
    fn contains(&self, position: u64) -> bool {
        (self.start..self.end).contains(&position)
    }

    /// Reads of the stream for each of its own; one of `sets` that was read once is taken to have its turn.
    fn gap(&self, sets: usize) -> u64 {
        match self.reads {
            0 | 1 => sets as u64,
            reads => (self.last_read - self.opened).div_ceil(reads - 1),
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Cursor {
    base: u64,
    front: u64,
    /// The furthest that the front has been.
    furthest: u64,
    /// Positions after the base that were read.
    read_ahead: PositionSet,
    /// The open sets, in order.
    sets: Vec<Set>,
    reads: u64,
    /// Positions that are known to be of hints with an order.
    ordered: Range<u64>,
    far: Option<(ReaderId, u64)>,
    /// B: the last read, if it was of something left out behind the front.
    back: Option<u64>,
    /// B: when the front leapt ahead, in reads of the stream.
    leapt_at: Option<u64>,
    /// Whether anything was ever read as disclosed.
    seen: bool,
    /// The front was moved by what needs no reading, and the reader may be behind it.
    ahead_of_reader: bool,
    window: u64,
    accuracy: f64,
}

impl Cursor {
    pub(crate) fn new(window: u64) -> Self {
        Cursor {
            base: 0,
            front: 0,
            furthest: 0,
            read_ahead: PositionSet::default(),
            sets: Vec::new(),
            reads: 0,
            ordered: 0..0,
            far: None,
            back: None,
            leapt_at: None,
            seen: false,
            ahead_of_reader: false,
            window,
            accuracy: ACCURACY_FIRST,
        }
    }

    /// Everything before it is past.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Where the next read in order would be.
    pub(crate) fn front(&self) -> u64 {
        self.front
    }

    /// How many reads it was moved by.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// The share of the disclosed that was read, of late.
    pub(crate) fn accuracy(&self) -> f64 {
        self.accuracy
    }

    /// Whether the reader is within a hint that may be read in any order.
    pub(crate) fn in_set(&self) -> bool {
        !self.sets.is_empty()
    }

    /// The positions of each hint without order that is being read; all of one are equally far away.
    pub(crate) fn sets(&self) -> impl Iterator<Item = Range<u64>> {
        self.sets.iter().map(|set| set.start..set.end)
    }

    /// What lies before it is left to the reader: it has been overtaken.
    pub(crate) fn fetched_from(&self) -> u64 {
        self.sets.first().map_or(self.front, |set| set.start.min(self.front).max(self.base))
    }

    /// Whether the access at `position` is still to come.
    pub(crate) fn expects(&self, position: u64) -> bool {
        position >= self.base && !self.read_ahead.contains(position)
    }

    /// The first position from `from` on that was not read before its turn.
    pub(crate) fn next_expected(&self, from: u64) -> u64 {
        self.read_ahead.next_absent(from, u64::MAX)
    }

    /// How far away `position` is.
    pub(crate) fn distance(&self, position: u64) -> Distance {
        match self.sets.iter().rfind(|set| set.contains(position)) {
            Some(set) => Distance::AnyOf(set.end - set.start - set.read),
            None => Distance::Ahead((position + 1).saturating_sub(self.front).max(1)),
        }
    }

    /// B, C, D: whether a read by `reader` that would fit `position` is to be taken for it.
    pub(crate) fn accepts(&mut self, places: &Places, reader: ReaderId, position: u64) -> bool {
        let near = position < self.front.saturating_add(self.window)
            || self.sets.last().is_some_and(|set| position < set.end)
            || self.begins_near(places, position);
        if near {
            return true;
        }
        if self.ahead_of_reader {
            return false;
        }
        let second = self.far.is_some_and(|(other, at)| other == reader && at < position);
        self.far = (!second).then_some((reader, position));
        second
    }

    /// D: `position` lies in a set that begins within the window.
    fn begins_near(&self, places: &Places, position: u64) -> bool {
        places.placed_at(position).is_some_and(|placed| {
            placed.order == Order::Any && placed.start < self.front.saturating_add(self.window)
        })
    }

    /// The access at `position` has been made. What was left out and lies more than `behind` before
    /// the front, or before the sets that are being read, is given up. Returns the base, before which
    /// everything is past now.
    #[inline]
    pub(crate) fn read(&mut self, places: &Places, position: u64, behind: u64) -> u64 {
        self.count_read();
        if self.is_plainly_next(position) {
            self.front += 1;
            (self.base, self.back) = (self.front, None);
            self.furthest = self.furthest.max(self.front);
            return self.base;
        }
        self.read_anywhere(places, position, behind)
    }

    fn count_read(&mut self) {
        self.accuracy += ACCURACY_WEIGHT * (1.0 - self.accuracy);
        (self.seen, self.ahead_of_reader) = (true, false);
        self.reads += 1;
    }

    /// Whether `position` is the next one in order, and all before it and nothing after it is past: mostly it is so.
    fn is_plainly_next(&self, position: u64) -> bool {
        position == self.front
            && self.front == self.base
            && self.ordered.contains(&position)
            && self.leapt_at.is_none()
            && self.sets.is_empty()
            && self.read_ahead.is_empty()
    }

    /// The same wherever it is.
    #[inline(never)] // The rarer part.
    fn read_anywhere(&mut self, places: &Places, position: u64, behind: u64) -> u64 {
        // What needed nothing any more was counted then.
        let counted = self.read_ahead.contains(position);
        self.enter_set(places, position);
        let front = self.front;
        match self.sets.iter_mut().rfind(|set| set.contains(position)) {
            Some(set) => {
                set.read += u64::from(!counted);
                (set.last_read, set.reads) = (self.reads, set.reads + 1);
                self.front = self.front.max(set.start + set.read);
            }
            None if position + 1 < self.front => self.read_behind(position),
            None => (self.front, self.back) = (position + 1, None),
        }
        self.furthest = self.furthest.max(self.front);
        self.past(position);
        let behind = behind.min(self.window);
        self.leave_sets(behind);
        // Nothing is skipped within a set.
        let first = self.sets.first().map_or(u64::MAX, |set| set.start);
        let kept = match self.sets.last() {
            Some(set) if set.contains(self.front) => set.start.saturating_sub(behind),
            _ => self.front.saturating_sub(behind),
        };
        let kept = kept.min(first);
        let patience = behind / PATIENCE_DIVISOR;
        if self.leapt_at.is_none() && self.front > front.saturating_add(patience) {
            self.leapt_at = Some(self.reads);
        }
        let waits = self.leapt_at.is_some_and(|since| self.reads - since < patience);
        if kept <= self.base || !waits {
            self.leapt_at = None;
        }
        let beyond = behind.saturating_add(self.window.max(LEFT_OUT_MAX));
        let at_once = self.furthest.saturating_sub(beyond);
        let given_up = if waits { kept.min(at_once) } else { kept };
        if given_up > self.base {
            self.give_up_to(given_up);
        }
        self.front = self.front.max(self.base);
        self.close_sets();
        self.base
    }

    /// B: something behind the front was read. Sets have no order to come back to.
    fn read_behind(&mut self, position: u64) {
        let second = self.back.is_some_and(|before| before < position);
        self.back = Some(position);
        if second && self.sets.is_empty() {
            (self.front, self.back) = (position + 1, None);
        }
    }

    /// The access at `position` needs nothing any more. Returns the base.
    ///
    /// A reader that has been seen will come by; for one that has not, this is all that shows.
    pub(crate) fn settle(&mut self, position: u64) -> u64 {
        if !self.expects(position) {
            return self.base;
        }
        if let Some(set) = self.sets.iter_mut().rfind(|set| set.contains(position)) {
            set.read += 1;
            self.front = self.front.max(set.start + set.read);
        } else if !self.seen && position == self.front {
            self.front += 1;
            self.ahead_of_reader = true;
        }
        self.furthest = self.furthest.max(self.front);
        self.past(position);
        while !self.seen && self.read_ahead.contains(self.front) {
            self.front += 1;
            self.furthest = self.furthest.max(self.front);
            self.move_base();
        }
        self.front = self.front.max(self.base);
        self.close_sets();
        self.base
    }

    /// Bytes that it takes beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.read_ahead.memory_bytes() + self.sets.capacity() * size_of::<Set>()
    }

    /// Whether anything was ever read as disclosed.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen
    }

    /// Goes on at `position`, which nobody is known to wait for. Returns the base.
    pub(crate) fn skip_to(&mut self, position: u64) -> u64 {
        self.read_ahead.remove_before(position);
        (self.base, self.front) = (position, position);
        self.furthest = self.furthest.max(position);
        self.sets.clear();
        self.ahead_of_reader = true;
        self.base
    }

    /// Notes that the access at `position` is over.
    fn past(&mut self, position: u64) {
        if position == self.base && position < self.front && self.read_ahead.is_empty() {
            self.base += 1; // A: nothing to remember.
        } else if position >= self.base {
            if !self.read_ahead.contains(position) {
                self.read_ahead.insert(position);
            }
            self.move_base();
        }
    }

    /// The base follows what is past, up to the furthest front.
    fn move_base(&mut self) {
        if self.base < self.furthest && self.read_ahead.contains(self.base) {
            self.base = self.read_ahead.next_absent(self.base, self.furthest);
            self.read_ahead.remove_before(self.base);
        }
    }

    /// D: the first read of a set opens it.
    fn enter_set(&mut self, places: &Places, position: u64) {
        let is_open = self.sets.iter().rev().any(|set| set.contains(position));
        if is_open || self.ordered.contains(&position) {
            return;
        }
        let Some(placed) = places.placed_at(position) else { return };
        if placed.order == Order::Given {
            self.ordered = placed.start..placed.end();
            return;
        }
        let pass = (position - placed.start) / placed.pass_blocks;
        let start = placed.start + pass * placed.pass_blocks;
        let end = start + placed.pass_blocks;
        // Some may need nothing any more.
        let settled = self.read_ahead.count(start..end);
        let read = settled + self.base.saturating_sub(start);
        if self.sets.len() == SETS_MAX {
            let read_last = |&(_, set): &(usize, &Set)| set.last_read;
            let longest_unread = self.sets.iter().enumerate().min_by_key(read_last);
            longest_unread.map(|(index, _)| index).map(|index| self.sets.remove(index));
        }
        let place = self.sets.partition_point(|set| set.start < start);
        let (opened, last_read, reads) = (self.reads, self.reads, 0);
        self.sets.insert(place, Set { start, end, read, opened, last_read, reads });
    }

    /// D: sets that nobody reads any more are left, but for the one that the front lies in.
    fn leave_sets(&mut self, behind: u64) {
        if self.sets.len() > 1 || self.sets.first().is_some_and(|set| !set.contains(self.front)) {
            let (front, reads, sets) = (self.front, self.reads, self.sets.len());
            let patience =
                |set: &Set| (behind / PATIENCE_DIVISOR).max(SET_GAPS * (set.gap(sets) - 1));
            self.sets.retain(|set| reads - set.last_read <= patience(set) || set.contains(front));
        }
    }

    /// D: what is past, or was read to its end, is open no more.
    fn close_sets(&mut self) {
        let base = self.base;
        self.sets.retain(|set| base < set.end && set.read < set.end - set.start);
    }

    /// Everything before `position` that was not read is skipped.
    fn give_up_to(&mut self, position: u64) {
        let read = self.read_ahead.remove_before(position);
        let skipped = (position - self.base - read).min(SKIPS_COUNTED_MAX);
        self.accuracy *= (1.0 - ACCURACY_WEIGHT).powi(skipped as i32);
        self.base = position;
        self.move_base();
    }

    /// What a stream that has shown nothing is taken for.
    pub(crate) fn set_accuracy(&mut self, accuracy: f64) {
        self.accuracy = accuracy;
    }

    /// Starts again at the first position; what was shown is not forgotten.
    pub(crate) fn restart(&mut self) {
        *self = Cursor { accuracy: self.accuracy, ..Cursor::new(self.window) };
    }

    /// All is past, and the positions of what comes begin with the first again.
    pub(crate) fn begin_anew(&mut self) {
        let Cursor { seen, ahead_of_reader, reads, accuracy, .. } = *self;
        *self = Cursor { seen, ahead_of_reader, reads, accuracy, ..Cursor::new(self.window) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::blocks::DeviceIndex;
    use crate::hint::{FileId, Plan};

    const READER: ReaderId = ReaderId(1);

    fn places(orders: &[(Order, u64)]) -> Places {
        let mut places = Places::new(10);
        for &(order, blocks) in orders {
            let plan = Plan { order, ..Plan::WHOLE };
            places.place(&plan, DeviceIndex(0), FileId(1), blocks * 10);
        }
        places
    }

    fn try_read(cursor: &mut Cursor, places: &Places, position: u64) -> bool {
        let accepted = cursor.accepts(places, READER, position);
        if accepted {
            cursor.read(places, position, 8);
        }
        accepted
    }

    #[test]
    fn in_order_base_and_front_are_one() {
        let (places, mut cursor) = (places(&[(Order::Given, 100)]), Cursor::new(8));
        for position in 0..50 {
            assert_eq!(cursor.distance(position), Distance::Ahead(1));
            assert_eq!(cursor.distance(position + 9), Distance::Ahead(10));
            assert!(try_read(&mut cursor, &places, position));
            assert_eq!((cursor.base(), cursor.front()), (position + 1, position + 1));
        }
        assert_eq!(cursor.accuracy(), 1.0);
    }

    #[test]
    fn what_is_left_behind_is_given_up_and_costs_accuracy() {
        let (places, mut cursor) = (places(&[(Order::Given, 1000)]), Cursor::new(8));
        for position in (0..900).step_by(3) {
            assert!(try_read(&mut cursor, &places, position));
            // As much as may lie behind, and what one more read leaves out.
            assert!(cursor.front() - cursor.base() <= 8 + 3);
        }
        assert!(!cursor.expects(100) && cursor.expects(895) && !cursor.expects(897));
        assert!(cursor.accuracy() < 0.6, "{}", cursor.accuracy());
        assert_eq!(cursor.distance(895), Distance::Ahead(1));
    }

    #[test]
    fn who_reads_one_part_before_its_turn_comes_back() {
        let (places, mut cursor) = (places(&[(Order::Given, 10_000)]), Cursor::new(4096));
        let read = |cursor: &mut Cursor, position| {
            assert!(cursor.accepts(&places, READER, position));
            cursor.read(&places, position, 512);
        };
        (0..10).for_each(|position| read(&mut cursor, position));
        (2000..2020).for_each(|position| read(&mut cursor, position));
        assert_eq!((cursor.base(), cursor.front(), cursor.fetched_from()), (10, 2020, 2020));
        read(&mut cursor, 10);
        assert_eq!((cursor.base(), cursor.front()), (11, 2020), "once is no return");
        read(&mut cursor, 11);
        assert_eq!((cursor.base(), cursor.front(), cursor.fetched_from()), (12, 12, 12));
        assert_eq!(cursor.distance(13), Distance::Ahead(2));
        (12..2000).for_each(|position| read(&mut cursor, position));
        // What was read before is passed with what lies before it.
        assert_eq!((cursor.base(), cursor.front(), cursor.accuracy()), (2020, 2020, 1.0));
        // Nor do the last two stay behind that are read the other way round.
        [2021, 2020].into_iter().for_each(|position| read(&mut cursor, position));
        assert_eq!((cursor.base(), cursor.front()), (2022, 2022));
        // Two readers at two places: the front is that of the one ahead.
        for (slow, fast) in (2022..2032).zip(2100..) {
            read(&mut cursor, fast);
            read(&mut cursor, slow);
            assert_eq!(cursor.front(), fast + 1);
        }
        // Who does not come back leaves the rest.
        (4000..4000 + 512 / PATIENCE_DIVISOR + 1).for_each(|position| read(&mut cursor, position));
        assert!(cursor.base() > 3500 && cursor.accuracy() < 0.1, "{cursor:?}");
    }

    #[test]
    fn what_needs_no_reading_is_passed_by_the_reader_all_the_same() {
        let (places, mut cursor) = (places(&[(Order::Given, 1000)]), Cursor::new(8));
        // Before its reader is seen, the front moves by itself; then it waits for the reader.
        for position in 0..10 {
            cursor.settle(position);
        }
        assert_eq!((cursor.base(), cursor.front()), (10, 10));
        assert!(!cursor.accepts(&places, READER, 500) && !cursor.accepts(&places, READER, 501));
        assert!(try_read(&mut cursor, &places, 10));
        for position in (11..40).chain(41..50) {
            cursor.settle(position);
        }
        assert_eq!((cursor.base(), cursor.front()), (11, 11));
        for position in 11..60 {
            assert!(try_read(&mut cursor, &places, position));
            assert_eq!((cursor.base(), cursor.front()), (position + 1, position + 1));
        }
        assert_eq!((cursor.accuracy(), cursor.read_ahead.len()), (1.0, 0));
    }

    #[test]
    fn two_far_reads_in_order_move_the_cursor_one_does_not() {
        let (places, mut cursor) = (places(&[(Order::Given, 10_000)]), Cursor::new(8));
        assert!(!try_read(&mut cursor, &places, 5000));
        assert!(!try_read(&mut cursor, &places, 4999), "backwards is no order");
        assert!(try_read(&mut cursor, &places, 0), "the cursor has not moved");
        assert!(try_read(&mut cursor, &places, 5000));
        assert_eq!(cursor.front(), 5001);
    }

    #[test]
    fn a_set_may_be_read_in_any_order_and_skips_nothing() {
        let hints = [(Order::Given, 4), (Order::Any, 1000), (Order::Given, 10)];
        let (places, mut cursor) = (places(&hints), Cursor::new(8));
        for position in 0..4 {
            assert!(try_read(&mut cursor, &places, position));
        }
        for step in 0..1000 {
            let position = 4 + (step * 387) % 1000; // 387 and 1000 have no common factor.
            assert!(cursor.expects(position));
            assert!(try_read(&mut cursor, &places, position), "{step}");
            assert!(!cursor.expects(position));
            if step < 999 {
                assert_eq!(
                    cursor.distance(1003 - u64::from(position == 1003)),
                    Distance::AnyOf(999 - step)
                );
                assert_eq!(cursor.distance(1004), Distance::Ahead(1000 - step));
            }
        }
        assert_eq!((cursor.base(), cursor.front()), (1004, 1004));
        assert!(try_read(&mut cursor, &places, 1004));
        assert_eq!(cursor.accuracy(), 1.0);
    }

    #[test]
    fn what_needs_nothing_any_more_counts_as_read_of_its_set() {
        let places = places(&[(Order::Given, 2), (Order::Any, 6), (Order::Given, 10)]);
        let mut cursor = Cursor::new(8);
        for position in [0, 2, 3, 6] {
            cursor.settle(position);
        }
        assert!(try_read(&mut cursor, &places, 5));
        assert_eq!(cursor.distance(4), Distance::AnyOf(2));
        assert!(try_read(&mut cursor, &places, 1));
        assert!(try_read(&mut cursor, &places, 4) && try_read(&mut cursor, &places, 7));
        assert_eq!((cursor.base(), cursor.front()), (8, 8));
    }

    proptest! {
        /// The short way of what is plainly next leads where the long one does.
        #[test]
        fn the_short_way_is_the_long_one(
            hints in prop::collection::vec((any::<bool>(), 1u64..20), 1..6),
            steps in prop::collection::vec((0u8..10, 0u64..40, 0u64..20), 1..120),
        ) {
            let orders: Vec<(Order, u64)> = hints
                .into_iter()
                .map(|(given, blocks)| (if given { Order::Given } else { Order::Any }, blocks))
                .collect();
            let places = places(&orders);
            let mut cursor = Cursor::new(16);
            for (what, drawn, behind) in steps {
                let position = match what {
                    0 => drawn,
                    1 => cursor.front().saturating_sub(drawn % 4),
                    2 => cursor.front() + drawn % 4,
                    3 => {
                        cursor.settle(cursor.front() + drawn % 3);
                        continue;
                    }
                    _ => cursor.front(),
                };
                if position < cursor.base() || position >= places.end() {
                    continue;
                }
                let mut other = cursor.clone();
                other.count_read();
                let is_short = other.is_plainly_next(position);
                let base = other.read_anywhere(&places, position, behind);
                prop_assert_eq!(cursor.read(&places, position, behind), base);
                prop_assert_eq!(format!("{cursor:?}"), format!("{other:?}"), "{}", is_short);
                prop_assert!(cursor.front() >= cursor.base());
            }
        }
    }
}
