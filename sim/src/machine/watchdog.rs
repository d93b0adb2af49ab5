//! Stops a run with a panic if the machine or the policy goes on for ever without a step of any program.
//!
//! The watchdog counts events, and fetches that the policy begins. Both numbers are bounded from one step of a program to the
//! next: a part for each access disclosed so far, and a part for each program, whose read may be tried several times. The
//! bounds are far above what a run needs. An access is fetched once, and rarely again after an eviction. A fetch takes a few
//! requests, or one for each piece of its blocks.
//!
//! Not noticed: a program that waits for ever while another one goes on for ever.

use foretell_policy::{Extent, Hint, Nanos};

/// Events and fetches for each disclosed access, beside its requests, for each program that may want the same processor.
const FOR_ACCESS: u64 = 16;
/// Events for each try of a program's read, beside its requests.
const FOR_TRY: u64 = 64;

/// The events and fetches left until a program's next step.
#[derive(Debug)]
pub(super) struct Watchdog {
    left: u64,
    without_disclosures: u64,
    for_access: u64,
    accesses: u64,
}

impl Watchdog {
    /// For `programs` that try a read `tries_max` times. A block is read in at most `pieces` requests.
    pub(super) fn new(programs: usize, tries_max: u32, pieces: u64) -> Self {
        let programs = programs as u64 + 1;
        let for_try = FOR_TRY.saturating_add(pieces);
        let without_disclosures = for_try.saturating_mul(tries_max.into()).saturating_mul(programs);
        let for_access = FOR_ACCESS.saturating_add(pieces).saturating_mul(programs);
        let left = without_disclosures;
        Watchdog { left, without_disclosures, for_access, accesses: 0 }
    }

    /// A program has taken a step.
    pub(super) fn step(&mut self) {
        let disclosed = self.for_access.saturating_mul(self.accesses);
        self.left = self.without_disclosures.saturating_add(disclosed);
    }

    /// `accesses` were disclosed.
    pub(super) fn disclose(&mut self, accesses: u64) {
        self.accesses = self.accesses.saturating_add(accesses);
        self.left = self.left.saturating_add(self.for_access.saturating_mul(accesses));
    }

    /// Counts an event, or a fetch that the policy begins.
    pub(super) fn count(&mut self, now: Nanos) {
        assert!(self.left > 0, "no end of events or fetches, and no step of a program, at {now}");
        self.left -= 1;
    }
}

/// An upper bound of the accesses that `hint` discloses, if its file has `size_bytes`.
pub(super) fn accesses(hint: &Hint, size_bytes: u64, block_bytes: u64) -> u64 {
    // Ranges may begin within blocks.
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

    fn count(watchdog: &mut Watchdog, times: u64) {
        (0..times).for_each(|_| watchdog.count(Nanos::ZERO));
    }

    #[test]
    fn steps_and_disclosures_allow_more() {
        let mut watchdog = Watchdog::new(1, 3, 2);
        count(&mut watchdog, 6 * (FOR_TRY + 2));
        watchdog.step();
        watchdog.disclose(5);
        count(&mut watchdog, 6 * (FOR_TRY + 2) + 10 * (FOR_ACCESS + 2));
        watchdog.step();
        count(&mut watchdog, 6 * (FOR_TRY + 2) + 10 * (FOR_ACCESS + 2));
    }

    #[test]
    #[should_panic(expected = "no end of events")]
    fn more_is_a_hang() {
        count(&mut Watchdog::new(1, 1, 2), 2 * (FOR_TRY + 2) + 1);
    }

    #[test]
    fn accesses_are_those_of_all_ranges_and_repeats() {
        use foretell_policy::{DeviceId, FileId, Segment, Target};
        let target = Target::File { file: FileId(1), size_bytes: 800 };
        let whole = Hint { repeats: 3, ..Hint::whole_file(target, DeviceId(1)) };
        assert_eq!(accesses(&whole, 800, 100), 3 * 10);
        let segment = |length_bytes| Segment { offset_bytes: 50, length_bytes };
        let segments = Hint::segments(target, DeviceId(1), &[segment(100), segment(u64::MAX)]);
        assert_eq!(accesses(&segments, 800, 100), 3 + 10);
        let extent = Extent::Strided { first: segment(1), stride_bytes: 200, count: u64::MAX };
        assert_eq!(accesses(&Hint { extent, ..segments }, 800, 100), u64::MAX);
    }
}
