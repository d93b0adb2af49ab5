//! Read-ahead: a handle that reads a file in order, without hints, is expected to go on.
//!
//! Such a handle gets a stream of its own, which discloses a window ahead of the reads. The stream begins with a read that has
//! to wait and is in order: it continues where the read before it ended, or is a long first read at the beginning of the file.
//! The window moves on as it is read, and is the larger of two:
//!
//! * **A. Earned**: as many bytes as were read in order so far, at least [`FIRST_MIN_BYTES`].
//! * **B. Staked**: four times the bytes that were read in order, or what keeps the device busy
//!   ([`Speed`](crate::speed::Speed)) if that is more. What keeps the device busy counts as [`STAKE_MAX_BYTES`] at most, and
//!   while it is not known; and as at most [`STAKE_TIMES`] the bytes that were read in order. The part of the window beyond A
//!   is taken from the device's [`Credit`], and returned as that part is read. If the program stops, the unread part is lost.
//!   Credit begins at [`CREDIT_MAX_BYTES`]; an eighth of all bytes that are read in order is added, up to that.
//!
//! **Bound.** Whatever programs do, the bytes fetched in vain are at most the sum of three: the bytes that were read in order
//! (or [`FIRST_MIN_BYTES`] for each handle), an eighth of these, and the first credit.
//!
//! The policy treats the stream as any other: unread blocks count against it. A handle that no longer reads in order
//! gives up its stream. So does one whose reader has hinted what comes next: a block that two streams disclose is read once, and
//! would be fetched for the other one again. And while a reader has hints to come, nothing is disclosed right after the end of
//! one: it is the kernel's read-ahead that goes on there.
//!
//! **Order.** The kernel's own read-ahead sends several requests at once, and two may swap. So a read that begins where
//! the read before the last one ended, within [`SLACK_BYTES`] of the last, is in order.
//!
//! Cost: two atomics for a read in order that hits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foretell_policy::{Segment, StreamId};

/// A: least bytes of a window. 128 KiB is the kernel's own read-ahead.
const FIRST_MIN_BYTES: u64 = 128 << 10;

/// B: bytes of a window, in multiples of the bytes that were read in order.
const TIMES: u64 = 4;

/// B: bytes of a window on the device's account, at most. The policy allows a new stream as much, in blocks of 8 KiB.
const STAKE_MAX_BYTES: u64 = 8 << 20;
/// B: and at most this multiple of the bytes that were read in order.
const STAKE_TIMES: u64 = 64;

/// B: credit of a device at first, and at most, in bytes.
const CREDIT_MAX_BYTES: u64 = 16 << 20;
/// B: the credit grows by the bytes that are read in order, divided by this.
const EARNED_DIVISOR: u64 = 8;

/// A window moves on when its length divided by this has been read.
const STEP_DIVISOR: u64 = 8;
/// But not before this many bytes have been read, or half of the window if that is less.
const STEP_MIN_BYTES: u64 = 1 << 20;

/// Greatest distance between the end of the last read and the start of a read that has swapped with it.
const SLACK_BYTES: u64 = 1 << 20;

/// Reads out of order that had to wait, after which the stream is given up.
const STRAYS_MAX: u32 = 8;

/// No offset: nothing is due.
const NEVER: u64 = u64::MAX;

/// B: bytes that may be staked on the sequential readers of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit(u64);

impl Default for Credit {
    fn default() -> Self {
        Credit(CREDIT_MAX_BYTES)
    }
}

impl Credit {
    fn take(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.0);
        self.0 -= taken;
        taken
    }

    fn give(&mut self, bytes: u64) {
        self.0 = (self.0 + bytes).min(CREDIT_MAX_BYTES);
    }
}

/// What a window depends on and the engine knows.
#[derive(Debug)]
pub(crate) struct Guess<'a> {
    /// Bytes that keep the device busy, if known.
    pub(crate) window_bytes: Option<u64>,
    pub(crate) credit: &'a mut Credit,
}

/// What a handle is expected to read next.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) stream: Option<StreamId>,
    /// Where reading in order began.
    from: u64,
    /// End of what has been disclosed.
    to: u64,
    /// Length of the last window, bytes.
    window_bytes: u64,
    /// B: bytes of the window that were taken from the credit.
    staked_bytes: u64,
    /// Bytes read in order for which the credit has had its share.
    credited_bytes: u64,
    strays: u32,
}

impl Plan {
    /// B: notes that the file was read in order up to `end`. Staked bytes that were read, or that A covers by now, go back to
    /// the credit.
    fn settle(&mut self, end: u64, credit: &mut Credit) {
        let in_order = end.saturating_sub(self.from);
        let unread_bytes = self.to.saturating_sub(end).saturating_sub(in_order);
        let back = self.staked_bytes.saturating_sub(unread_bytes);
        self.staked_bytes -= back;
        let earned = in_order.saturating_sub(self.credited_bytes) / EARNED_DIVISOR;
        self.credited_bytes += earned * EARNED_DIVISOR;
        credit.give(back + earned);
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Where the last read ended.
    end: AtomicU64,
    /// End of the read that came just before the latest read that did not continue its predecessor.
    before: AtomicU64,
    /// More is disclosed when a read ends here or later.
    due: AtomicU64,
    plan: Mutex<Plan>,
}

impl Default for ReadAhead {
    fn default() -> Self {
        // Not 0: then a short first read at the beginning would count as in order.
        let [end, before, due] = [NEVER; 3].map(AtomicU64::new);
        ReadAhead { end, before, due, plan: Mutex::default() }
    }
}

impl ReadAhead {
    /// Notes a read from `start` to `end`. Returns whether it is in order: it continues the last one, or is a long first read
    /// at the beginning.
    pub(crate) fn note(&self, start: u64, end: u64) -> bool {
        let last = self.end.swap(end, Ordering::Relaxed);
        if last == start {
            return true;
        }
        let before = self.before.swap(last, Ordering::Relaxed);
        let changes_places = before == start && last.abs_diff(start) <= SLACK_BYTES;
        let is_planned = self.due.load(Ordering::Relaxed) != NEVER;
        changes_places || (start == 0 && end >= FIRST_MIN_BYTES && !is_planned)
    }

    /// Whether more should be disclosed after a read in order up to `end`.
    pub(crate) fn is_due(&self, end: u64) -> bool {
        end >= self.due.load(Ordering::Relaxed)
    }

    pub(crate) fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment to disclose, of at most `most` bytes, after a read in order from `start` to `end` of a file of `size` bytes.
    pub(crate) fn go_on(
        &self,
        plan: &mut Plan,
        (start, end): (u64, u64),
        (size, most): (u64, u64),
        guess: Guess<'_>,
    ) -> Option<Segment> {
        plan.strays = 0;
        let is_new = plan.stream.is_none()
            || start > plan.to + SLACK_BYTES
            || start + plan.window_bytes + SLACK_BYTES < plan.to;
        if is_new {
            // Stakes on the old window are lost.
            let stream = plan.stream;
            *plan = Plan { stream, from: start, to: end, ..Plan::default() };
        } else if end <= plan.to && end < self.due.load(Ordering::Relaxed) {
            return None; // Another thread has moved the window meanwhile.
        }
        plan.to = plan.to.max(end);
        plan.settle(end, guess.credit);
        let in_order = end.saturating_sub(plan.from);
        let most = most.max(1).min(size.saturating_sub(end));
        let earned = FIRST_MIN_BYTES.max(in_order).min(most);
        let busy = guess.window_bytes.unwrap_or(STAKE_MAX_BYTES).min(STAKE_MAX_BYTES);
        // A first read of at most the kernel's own read-ahead is a weak sign.
        let is_likely = start > 0 || end > FIRST_MIN_BYTES;
        let busy = if is_likely { busy.min(in_order.saturating_mul(STAKE_TIMES)) } else { 0 };
        let wanted = in_order.saturating_mul(TIMES).max(busy).min(most);
        let stake = wanted.saturating_sub(earned).saturating_sub(plan.staked_bytes);
        plan.staked_bytes += guess.credit.take(stake);
        plan.window_bytes = (earned + plan.staked_bytes).min(most);
        let (from, to) = (plan.to, end + plan.window_bytes);
        plan.to = to.max(from);
        let step = match is_likely {
            true => {
                (plan.window_bytes / STEP_DIVISOR).max(STEP_MIN_BYTES.min(plan.window_bytes / 2))
            }
            false => 1, // Disclose more at the next read.
        };
        self.due.store(if plan.to < size { end + step } else { NEVER }, Ordering::Relaxed);
        // The file may have become shorter than what was disclosed.
        let length_bytes = to.checked_sub(from).filter(|&length| length > 0)?;
        Some(Segment { offset_bytes: from, length_bytes })
    }

    /// Closes the handle. Returns its stream, if it has one. Staked bytes that were read go back to `credit`.
    pub(crate) fn close(&self, credit: &mut Credit) -> Option<StreamId> {
        let mut plan = self.plan();
        let end = self.end.load(Ordering::Relaxed).min(plan.to);
        if plan.stream.is_some() && end >= plan.from {
            plan.settle(end, credit);
        }
        plan.stream
    }

    /// Notes a read out of order that had to wait. Returns the stream if it is to be closed.
    pub(crate) fn stray(&self) -> Option<StreamId> {
        if self.due.load(Ordering::Relaxed) == NEVER {
            // Nothing is disclosed any more; the stream, if there is one, ends with the handle.
            return None;
        }
        let mut plan = self.plan();
        plan.strays += 1;
        if plan.strays < STRAYS_MAX {
            return None;
        }
        self.end(&mut plan)
    }

    /// Nothing more is disclosed until reads in order begin anew. Returns the stream, which is to be closed.
    pub(crate) fn end(&self, plan: &mut Plan) -> Option<StreamId> {
        self.due.store(NEVER, Ordering::Relaxed);
        std::mem::take(plan).stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = 64 << 10;

    /// `count` reads in order from `from` on; what is disclosed.
    fn reads(ahead: &ReadAhead, (from, count): (u64, u64), size: u64) -> Vec<(u64, u64)> {
        // A device that needs nothing: what is earned alone.
        reads_of(ahead, (from, count), size, (Some(0), &mut Credit::default()))
    }

    fn reads_of(
        ahead: &ReadAhead,
        (from, count): (u64, u64),
        size: u64,
        (window_bytes, credit): (Option<u64>, &mut Credit),
    ) -> Vec<(u64, u64)> {
        let mut disclosed = Vec::new();
        for turn in 0..count {
            let (start, end) = (from + turn * READ, from + (turn + 1) * READ);
            if ahead.note(start, end) && (ahead.plan().stream.is_none() || ahead.is_due(end)) {
                let mut plan = ahead.plan();
                let guess = Guess { window_bytes, credit };
                let bounds = (size, 8 << 20);
                if let Some(segment) = ahead.go_on(&mut plan, (start, end), bounds, guess) {
                    plan.stream = Some(StreamId(1));
                    disclosed.push((segment.offset_bytes, segment.length_bytes));
                }
            }
        }
        disclosed
    }

    #[test]
    fn what_is_disclosed_goes_on_without_a_gap_and_grows() {
        let ahead = ReadAhead::default();
        let size = 100 << 20;
        let disclosed = reads(&ahead, (0, size / READ), size);
        assert_eq!(disclosed[0], (2 * READ, 4 * READ));
        for pair in disclosed.windows(2) {
            assert_eq!(pair[0].0 + pair[0].1, pair[1].0);
        }
        let (offset, length) = disclosed[disclosed.len() - 1];
        assert_eq!(offset + length, size);
        assert!(disclosed.iter().any(|&(_, length)| length >= 4 << 20), "{disclosed:?}");
        assert!(disclosed.len() < 120, "{}", disclosed.len());
    }

    #[test]
    fn nothing_is_disclosed_of_a_file_that_has_become_shorter() {
        let ahead = ReadAhead::default();
        assert!(!reads(&ahead, (0, 8), 100 << 20).is_empty());
        assert_eq!(reads(&ahead, (8 * READ, 20), 9 * READ), []);
    }

    #[test]
    fn what_is_added_to_a_file_that_was_read_to_its_end_is_disclosed_too() {
        let ahead = ReadAhead::default();
        let size = 64 * READ;
        assert!(!reads(&ahead, (0, 64), size).is_empty());
        // It was not there, so it has to be waited for.
        let range = (size, size + READ);
        assert!(ahead.note(range.0, range.1) && !ahead.is_due(range.1));
        let guess = Guess { window_bytes: None, credit: &mut Credit::default() };
        let more = ahead.go_on(&mut ahead.plan(), range, (2 * size, 8 << 20), guess);
        let rest = Segment { offset_bytes: range.1, length_bytes: 2 * size - range.1 };
        assert_eq!(more, Some(rest), "as much as was read so far");
    }

    #[test]
    fn one_read_is_no_order_and_strays_end_it() {
        let ahead = ReadAhead::default();
        assert_eq!(reads(&ahead, (0, 1), 1 << 30), []);
        assert!(!ReadAhead::default().note(5, 5 + FIRST_MIN_BYTES));
        assert!(ReadAhead::default().note(0, FIRST_MIN_BYTES), "a long one at the beginning");
        assert_eq!(reads(&ahead, (50 * READ, 1), 1 << 30), []);
        assert_eq!(reads(&ahead, (51 * READ, 1), 1 << 30).len(), 1);
        let closed: Vec<_> = (0..STRAYS_MAX).filter_map(|_| ahead.stray()).collect();
        assert_eq!(closed, [StreamId(1)]);
        assert_eq!(ahead.stray(), None);
    }

    #[test]
    fn what_a_device_needs_is_staked_and_lost_once() {
        let size = 1 << 30;
        let mut credit = Credit::default();
        let mut stop = |window_bytes| {
            let ahead = ReadAhead::default();
            let disclosed = reads_of(&ahead, (0, 2), size, (window_bytes, &mut credit));
            ahead.close(&mut credit);
            disclosed.iter().map(|&(_, length)| length).sum::<u64>()
        };
        assert_eq!(stop(Some(3 << 20)), 3 << 20, "what is known to be enough");
        assert_eq!(stop(None), STAKE_TIMES * READ, "nothing is known");
        let mut lost = 0;
        for _ in 0..100 {
            lost += stop(None) - FIRST_MIN_BYTES;
        }
        assert!(lost < CREDIT_MAX_BYTES + 100 * READ / EARNED_DIVISOR, "{lost}");
        assert!(stop(None) < FIRST_MIN_BYTES + READ);
    }

    #[test]
    fn a_stake_on_who_reads_on_comes_back() {
        let mut credit = Credit::default();
        for _ in 0..50 {
            // To its end; in part; a short one.
            for (count, size) in [(64, 64 * READ), (400, 1 << 30), (16, 16 * READ)] {
                let ahead = ReadAhead::default();
                reads_of(&ahead, (0, count), size, (None, &mut credit));
                ahead.close(&mut credit);
            }
        }
        assert_eq!(credit.0, CREDIT_MAX_BYTES);
    }

    #[test]
    fn nothing_is_staked_on_a_first_read_as_the_kernel_makes_it() {
        let ahead = ReadAhead::default();
        let go_on = |end: u64| {
            let range = (end - FIRST_MIN_BYTES, end);
            assert!(ahead.note(range.0, range.1));
            let mut plan = ahead.plan();
            plan.stream = plan.stream.or_else(|| (range.0 > 0).then_some(StreamId(1)));
            let (credit, bounds) = (&mut Credit::default(), (1 << 30, 1 << 30));
            let guess = Guess { window_bytes: None, credit };
            ahead.go_on(&mut plan, range, bounds, guess).map(|segment| segment.length_bytes)
        };
        assert_eq!(go_on(FIRST_MIN_BYTES), Some(TIMES * FIRST_MIN_BYTES));
        assert!(go_on(2 * FIRST_MIN_BYTES) > Some(STAKE_MAX_BYTES / 2), "and on the next there is");
    }

    #[test]
    fn reads_that_change_places_are_in_order_and_those_that_leave_gaps_are_not() {
        let ahead = ReadAhead::default();
        let noted = |turn: u64| ahead.note(turn * READ, (turn + 1) * READ);
        assert_eq!(
            [1, 2, 4, 3, 5, 7, 6, 8, 9].map(noted),
            [false, true, false, true, true, false, true, true, true]
        );
        assert_eq!([11, 13, 15, 17, 19].map(noted), [false; 5]);
        // The first two of a file, from its beginning.
        let ahead = ReadAhead::default();
        let noted = |turn: u64| ahead.note(turn * FIRST_MIN_BYTES, (turn + 1) * FIRST_MIN_BYTES);
        assert_eq!([1, 0, 2, 3].map(noted), [false, true, true, true]);
    }
}
