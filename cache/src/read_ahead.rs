//! Reading on: who reads a file in order, and has said nothing, is taken to go on.
//!
//! A handle whose second read begins where its first ended, or whose first is a long one at the beginning of the file, and has to wait, gets a stream of its own, which
//! discloses what comes next: four times what it has read in order so far, each time that half of that has been
//! read; so what is fetched in vain is bounded by what was not. The policy treats it as any other: what is disclosed and not read costs the stream its credit. A handle that
//! ceases to read in order gives it up.
//!
//! A read that hits costs two atomics here, whatever it does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foretell_policy::{Segment, StreamId};

/// What is disclosed, in multiples of what was read in order, and bytes of it at least.
const TIMES: u64 = 4;
const FIRST_MIN_BYTES: u64 = 128 << 10;

/// Reads out of order that had to wait, after which it is given up.
const STRAYS_MAX: u32 = 8;

/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// What a handle is taken to read next.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) stream: Option<StreamId>,
    /// Where it began to read in order.
    from: u64,
    /// End of what has been disclosed.
    to: u64,
    /// Bytes disclosed last.
    window_bytes: u64,
    strays: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Where the last read ended.
    end: AtomicU64,
    /// Where a read has to end for more to be disclosed.
    due: AtomicU64,
    plan: Mutex<Plan>,
}

impl Default for ReadAhead {
    fn default() -> Self {
        // Not 0: a first read is not the next one of anything, but for a long one.
        ReadAhead { end: AtomicU64::new(NEVER), due: AtomicU64::new(NEVER), plan: Mutex::default() }
    }
}

impl ReadAhead {
    /// A read from `start` to `end`. Says whether it goes on where the last one ended; a long one at the beginning goes on
    /// from nothing.
    pub(crate) fn note(&self, start: u64, end: u64) -> bool {
        let last = self.end.swap(end, Ordering::Relaxed);
        last == start || (last == NEVER && start == 0 && end >= FIRST_MIN_BYTES)
    }

    /// Whether more is to be disclosed, after a read in order up to `end`.
    pub(crate) fn is_due(&self, end: u64) -> bool {
        end >= self.due.load(Ordering::Relaxed)
    }

    pub(crate) fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a read in order, from `start` to `end`, of a file of `size` bytes: what is to be disclosed, at most
    /// `most` bytes of it.
    pub(crate) fn go_on(
        &self,
        plan: &mut Plan,
        (start, end): (u64, u64),
        size: u64,
        most: u64,
    ) -> Option<Segment> {
        plan.strays = 0;
        let is_new = plan.stream.is_none() || end > plan.to || start + plan.window_bytes < plan.to;
        if is_new {
            (plan.from, plan.to) = (start, end);
            plan.window_bytes = FIRST_MIN_BYTES;
        } else if end < self.due.load(Ordering::Relaxed) {
            return None; // Another thread was here.
        }
        let in_order = end.saturating_sub(plan.from);
        plan.window_bytes = plan.window_bytes.max(in_order.saturating_mul(TIMES)).min(most.max(1));
        let (from, to) = (plan.to, (end + plan.window_bytes).min(size));
        plan.to = to.max(from);
        self.due
            .store(if to < size { end + plan.window_bytes / 2 } else { NEVER }, Ordering::Relaxed);
        // A file may have become shorter than what was disclosed of it.
        let length_bytes = to.checked_sub(from).filter(|&length| length > 0)?;
        Some(Segment { offset_bytes: from, length_bytes })
    }

    /// A read out of order had to wait. Returns a stream that is to be closed.
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
        self.due.store(NEVER, Ordering::Relaxed);
        let stream = plan.stream;
        *plan = Plan::default();
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u64 = 64 << 10;

    fn reads(ahead: &ReadAhead, from: u64, count: u64, size: u64) -> Vec<(u64, u64)> {
        let mut disclosed = Vec::new();
        for turn in 0..count {
            let (start, end) = (from + turn * READ, from + (turn + 1) * READ);
            if ahead.note(start, end) && (ahead.plan().stream.is_none() || ahead.is_due(end)) {
                let mut plan = ahead.plan();
                if let Some(segment) = ahead.go_on(&mut plan, (start, end), size, 8 << 20) {
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
        let disclosed = reads(&ahead, 0, size / READ, size);
        assert_eq!(disclosed[0], (2 * READ, 4 * READ));
        for pair in disclosed.windows(2) {
            assert_eq!(pair[0].0 + pair[0].1, pair[1].0);
        }
        let (offset, length) = disclosed[disclosed.len() - 1];
        assert_eq!(offset + length, size);
        assert!(disclosed.iter().any(|&(_, length)| length >= 4 << 20), "{disclosed:?}");
        assert!(disclosed.len() < 40);
    }

    #[test]
    fn nothing_is_disclosed_of_a_file_that_has_become_shorter() {
        let ahead = ReadAhead::default();
        assert!(!reads(&ahead, 0, 8, 100 << 20).is_empty());
        assert_eq!(reads(&ahead, 8 * READ, 20, 9 * READ), []);
    }

    #[test]
    fn one_read_is_no_order_and_strays_end_it() {
        let ahead = ReadAhead::default();
        assert_eq!(reads(&ahead, 0, 1, 1 << 30), []);
        assert!(!ReadAhead::default().note(5, 5 + FIRST_MIN_BYTES));
        assert!(ReadAhead::default().note(0, FIRST_MIN_BYTES), "a long one at the beginning");
        assert_eq!(reads(&ahead, 50 * READ, 1, 1 << 30), []);
        assert_eq!(reads(&ahead, 51 * READ, 1, 1 << 30).len(), 1);
        let closed: Vec<_> = (0..STRAYS_MAX).filter_map(|_| ahead.stray()).collect();
        assert_eq!(closed, [StreamId(1)]);
        assert_eq!(ahead.stray(), None);
    }
}
