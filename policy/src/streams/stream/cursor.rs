//! How far a stream's reader has come, and from that how far away each position is.
//!
//! Programs do not read exactly as they disclose. They skip, go back, and share one list among several threads or processes.
//!
//! * **A. In order.** Every position before the *base* is past. The *front* is where the reader is. While reads come in order
//!   the two are equal.
//! * **B. Within the window.** A read may fit a position up to a window's length ahead of the front, or one that was left out
//!   before it. The first read ahead moves the front there. The front moves back only with the second of two successive reads
//!   behind it. So a reader that reads one file early can come back, and two readers side by side do not pull the front to and
//!   fro. Positions too far behind the front are given up as skipped. After a leap ahead they are kept for some more reads, in
//!   case the reader comes back.
//! * **C. Far ahead.** One read that fits beyond the window may be an accident. When the same reader makes a second one further
//!   on, the cursor jumps there. It does not jump while the front stands where blocks already in memory have moved it: the
//!   reader is still behind. Nor do reads right behind the block that was read last, or right before the next, count: they
//!   are the kernel's read-ahead.
//! * **D. Sets.** In a hint with free order, any of its positions fits. The front is then the start of the set plus the number
//!   of its blocks read. So the distance to an access after the set includes all unread blocks of the set. Threads may read
//!   several sets side by side: these sets are *open*. A set that goes unread while others are read is closed. Its unread
//!   positions are given up like any others behind the front.
//!
//! The stream's *accuracy* is an exponentially weighted moving average: 1 for each position read, 0 for each one given up.
//!
//! Cost: O(1) in order; O(log w) with w positions read out of order and far from the first of them. Their memory is described
//! in [`positions`](super::positions).

use std::ops::Range;

use super::places::Places;
use super::positions::PositionSet;
use crate::hint::{Order, ReaderId};

/// Distance of an access, in accesses of its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distance {
    /// The access is this many accesses ahead; the next access is 1 ahead.
    Ahead(u64),
    /// Any of the next this many accesses, all equally likely.
    AnyOf(u64),
}

/// Weight of a new observation in the accuracy.
/// Unit: ratio. Reason: judgement.
const ACCURACY_WEIGHT: f64 = 1.0 / 256.0;
/// Accuracy of a stream before any observation: its hinter is trusted.
/// Unit: ratio. Reason: judgement.
const ACCURACY_FIRST: f64 = 1.0;

/// If more positions than this are skipped at once, they count as this many. The accuracy is then below 0.02.
/// Unit: positions. Reason: bound.
const SKIPS_COUNTED_MAX: u64 = 1024;

/// D: sets that may be open at a time. Each thread usually has one.
/// Unit: sets. Reason: bound.
const SETS_MAX: usize = 64;

/// D: a set is closed after this many times its usual gap, in reads of other sets.
/// Unit: ratio. Reason: judgement.
const SET_GAPS: u64 = 8;

/// B, D: a divisor of `behind`, the number of positions that may lie behind the front. The quotient is the patience: after that
/// many reads elsewhere, left-out positions are given up (B) and a set is closed (D), and a move of the front by more positions
/// is a leap. `behind` is small for a stream of low accuracy.
/// Unit: ratio. Reason: judgement.
const PATIENCE_DIVISOR: u64 = 8;

/// B: positions kept after a leap, unless the window is longer. Each may take some bytes.
/// Unit: positions. Reason: bound.
const LEFT_OUT_MAX: u64 = 4096;

/// A hint with free order that is being read, or one pass of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    start: u64,
    end: u64,
    read: u64,
    /// When it was opened and when it was read last, counted in reads of the stream; and its own reads since it was opened.
    opened: u64,
    last_read: u64,
    reads: u64,
}

impl Set {
    fn contains(&self, position: u64) -> bool {
        (self.start..self.end).contains(&position)
    }

    /// Mean reads of the stream from one read of the set to the next. For a set that was read less than twice, it is assumed
    /// that all `sets` are read in turn.
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
    /// The furthest position that the front has reached.
    furthest: u64,
    /// Positions at or after the base that were read or settled.
    read_ahead: PositionSet,
    /// The open sets, ordered by position.
    sets: Vec<Set>,
    reads: u64,
    /// A range of positions known to belong to a hint with a given order.
    ordered: Range<u64>,
    far: Option<(ReaderId, u64)>,
    /// B: the position of the last read, if it was behind the front.
    back: Option<u64>,
    /// B: when the front last leapt ahead, in reads of the stream. `None` once left-out positions need no more patience.
    leapt_at: Option<u64>,
    /// Whether anything was ever read as disclosed.
    seen: bool,
    /// Whether settled positions moved the front, so that the reader may be behind it.
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

    /// The first position that is not past.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The position that the next read in order would have.
    pub(crate) fn front(&self) -> u64 {
        self.front
    }

    /// Reads of the stream so far.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Moving average of the share of disclosed accesses that were read, from 0 to 1.
    pub(crate) fn accuracy(&self) -> f64 {
        self.accuracy
    }

    /// Whether a set is open.
    pub(crate) fn in_set(&self) -> bool {
        !self.sets.is_empty()
    }

    /// The positions of each open set. All positions of one set are equally far away.
    pub(crate) fn sets(&self) -> impl Iterator<Item = Range<u64>> {
        self.sets.iter().map(|set| set.start..set.end)
    }

    /// The first position to fetch for. Positions before it were overtaken and are left to demand reads.
    pub(crate) fn fetched_from(&self) -> u64 {
        self.sets.first().map_or(self.front, |set| set.start.min(self.front).max(self.base))
    }

    /// Whether the access at `position` is still to come.
    pub(crate) fn expects(&self, position: u64) -> bool {
        position >= self.base && !self.read_ahead.contains(position)
    }

    /// The first position from `from` on that was not read early.
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

    /// B, C, D: whether a read by `reader` that would fit `position` is accepted as that access.
    pub(crate) fn accepts(
        &mut self,
        places: &Places,
        (reader, is_beside): (ReaderId, bool),
        position: u64,
    ) -> bool {
        let near = position < self.front.saturating_add(self.window)
            || self.sets.last().is_some_and(|set| position < set.end)
            || self.begins_near(places, position);
        if near {
            return true;
        }
        if self.ahead_of_reader || is_beside {
            return false;
        }
        let second = self.far.is_some_and(|(other, at)| other == reader && at < position);
        self.far = (!second).then_some((reader, position));
        second
    }

    /// D: whether `position` lies in a set that begins within the window.
    fn begins_near(&self, places: &Places, position: u64) -> bool {
        places.placed_at(position).is_some_and(|placed| {
            placed.order == Order::Any && placed.start < self.front.saturating_add(self.window)
        })
    }

    /// Records that the access at `position` was made. Left-out positions more than `behind` before the front, or before the
    /// open sets, are given up. Returns the base, before which everything is past.
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

    /// Whether `position` is next in order and no position is left out, read early or in a set. This is the usual case.
    fn is_plainly_next(&self, position: u64) -> bool {
        position == self.front
            && self.front == self.base
            && self.ordered.contains(&position)
            && self.leapt_at.is_none()
            && self.sets.is_empty()
            && self.read_ahead.is_empty()
    }

    /// As [`read`](Self::read), for any position.
    #[inline(never)] // The rarer part.
    fn read_anywhere(&mut self, places: &Places, position: u64, behind: u64) -> u64 {
        // A settled position was counted as read of its set when it was settled.
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
        // Nothing within an open set is skipped.
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

    /// B: a position behind the front was read. Inside sets there is no order to come back to.
    fn read_behind(&mut self, position: u64) {
        let second = self.back.is_some_and(|before| before < position);
        self.back = Some(position);
        if second && self.sets.is_empty() {
            (self.front, self.back) = (position + 1, None);
        }
    }

    /// The access at `position` no longer needs its block. Returns the base.
    ///
    /// Once a reader was seen, the front waits for its reads. Before that, settled positions are the only sign of progress and
    /// move the front.
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

    /// Bytes that it takes outside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.read_ahead.memory_bytes() + self.sets.capacity() * size_of::<Set>()
    }

    /// Whether any read ever fitted.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen
    }

    /// Jumps to `position`. No reader is known to wait for anything before it. Returns the base.
    pub(crate) fn skip_to(&mut self, position: u64) -> u64 {
        self.read_ahead.remove_before(position);
        (self.base, self.front) = (position, position);
        self.furthest = self.furthest.max(position);
        self.sets.clear();
        self.ahead_of_reader = true;
        self.base
    }

    /// Marks the access at `position` as past.
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

    /// Moves the base over past positions, at most to the furthest front.
    fn move_base(&mut self) {
        if self.base < self.furthest && self.read_ahead.contains(self.base) {
            self.base = self.read_ahead.next_absent(self.base, self.furthest);
            self.read_ahead.remove_before(self.base);
        }
    }

    /// D: the first read of a set opens it. If too many are open, the one unread for longest is closed.
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
        // Some of its positions may be settled already.
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

    /// D: closes sets that have gone unread for too long, except the one that contains the front.
    fn leave_sets(&mut self, behind: u64) {
        if self.sets.len() > 1 || self.sets.first().is_some_and(|set| !set.contains(self.front)) {
            let (front, reads, sets) = (self.front, self.reads, self.sets.len());
            let patience =
                |set: &Set| (behind / PATIENCE_DIVISOR).max(SET_GAPS * (set.gap(sets) - 1));
            self.sets.retain(|set| reads - set.last_read <= patience(set) || set.contains(front));
        }
    }

    /// D: closes sets that are past or completely read.
    fn close_sets(&mut self) {
        let base = self.base;
        self.sets.retain(|set| base < set.end && set.read < set.end - set.start);
    }

    /// Gives up all unread positions before `position`; they count as skipped.
    fn give_up_to(&mut self, position: u64) {
        let read = self.read_ahead.remove_before(position);
        let skipped = (position - self.base - read).min(SKIPS_COUNTED_MAX);
        self.accuracy *= (1.0 - ACCURACY_WEIGHT).powi(skipped as i32);
        self.base = position;
        self.move_base();
    }

    /// Sets the accuracy that a new stream starts with.
    pub(crate) fn set_accuracy(&mut self, accuracy: f64) {
        self.accuracy = accuracy;
    }

    /// Restarts at the first position and keeps the accuracy.
    pub(crate) fn restart(&mut self) {
        *self = Cursor { accuracy: self.accuracy, ..Cursor::new(self.window) };
    }

    /// Restarts at the first position when all positions are past. Keeps the accuracy and whether a reader was seen.
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
        let accepted = cursor.accepts(places, (READER, false), position);
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
            // The permitted lag, and the positions that one more read leaves out.
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
            assert!(cursor.accepts(&places, (READER, false), position));
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
        // Positions read early are passed together with the ones before them.
        assert_eq!((cursor.base(), cursor.front(), cursor.accuracy()), (2020, 2020, 1.0));
        // Two positions read in swapped order do not stay behind either.
        [2021, 2020].into_iter().for_each(|position| read(&mut cursor, position));
        assert_eq!((cursor.base(), cursor.front()), (2022, 2022));
        // Two readers at two places: the front stays with the one ahead.
        for (slow, fast) in (2022..2032).zip(2100..) {
            read(&mut cursor, fast);
            read(&mut cursor, slow);
            assert_eq!(cursor.front(), fast + 1);
        }
        // If the reader does not come back, the left-out positions are given up.
        (4000..4000 + 512 / PATIENCE_DIVISOR + 1).for_each(|position| read(&mut cursor, position));
        assert!(cursor.base() > 3500 && cursor.accuracy() < 0.1, "{cursor:?}");
    }

    #[test]
    fn what_needs_no_reading_is_passed_by_the_reader_all_the_same() {
        let (places, mut cursor) = (places(&[(Order::Given, 1000)]), Cursor::new(8));
        // Before a reader is seen, settled positions move the front; afterwards the front waits for the reader.
        for position in 0..10 {
            cursor.settle(position);
        }
        assert_eq!((cursor.base(), cursor.front()), (10, 10));
        assert!(
            !cursor.accepts(&places, (READER, false), 500)
                && !cursor.accepts(&places, (READER, false), 501)
        );
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
        /// The short path for reads in order leaves the cursor as the general path does.
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
