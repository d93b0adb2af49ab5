//! That a run comes to its end: a machine or a policy that does ever more for the same steps of its programs is
//! stopped with a panic.
//!
//! Each step of a program, and each access that is disclosed, allows so many events and fetches; each event and each
//! fetch that the policy begins is one of them. What is allowed is far more than a run needs: for an access there is
//! a fetch, seldom a second one if the block was evicted unread, a few requests for each, and a few tries of each.

use foretell_policy::{Extent, Hint, Nanos};

/// Events and fetches for each step or access, for each program that may wait for the same processor and each
/// try of a read.
const FOR_EACH: u64 = 64;

/// What a run may still do.
#[derive(Debug)]
pub(super) struct Watchdog {
    left: u64,
    each: u64,
}

impl Watchdog {
    pub(super) fn new(programs: usize, tries_max: u32) -> Self {
        let each = FOR_EACH.saturating_mul(programs as u64 + 1).saturating_mul(tries_max.into());
        Watchdog { left: each, each }
    }

    /// Something more is to be done: so many steps or accesses.
    pub(super) fn allow(&mut self, count: u64) {
        self.left = self.left.saturating_add(self.each.saturating_mul(count));
    }

    /// An event, or a fetch that the policy begins.
    pub(super) fn count(&mut self, now: Nanos) {
        assert!(self.left > 0, "no end: events or fetches without steps of programs, at {now}");
        self.left -= 1;
    }
}

/// Accesses that `hint` discloses, at most, if its file has `size_bytes`.
pub(super) fn accesses(hint: &Hint, size_bytes: u64, block_bytes: u64) -> u64 {
    // Ranges need not begin where blocks do.
    let blocks = |length_bytes: u64| (length_bytes / block_bytes).saturating_add(2);
    let once = match &hint.extent {
        Extent::WholeFile => blocks(size_bytes),
        Extent::Segments(segments) => segments
            .iter()
            .map(|segment| blocks(segment.length_bytes.min(size_bytes)))
            .fold(0, u64::saturating_add),
        Extent::Strided { first, count, .. } => {
            blocks(first.length_bytes.min(size_bytes)).saturating_mul(*count)
        }
    };
    once.saturating_mul(hint.repeats.max(1).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_there() {
        let mut watchdog = Watchdog::new(1, 1);
        watchdog.allow(1);
        for _ in 0..4 * FOR_EACH {
            watchdog.count(Nanos::ZERO);
        }
    }

    #[test]
    #[should_panic(expected = "no end")]
    fn more_is_a_hang() {
        let mut watchdog = Watchdog::new(1, 1);
        for _ in 0..=2 * FOR_EACH {
            watchdog.count(Nanos::ZERO);
        }
    }
}
