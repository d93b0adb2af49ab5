//! When the thread looks again.
//!
//! It begins with a short pause, which doubles while nothing changes. Looks may take at most a fixed share of a processor: each
//! is followed by pauses of a multiple of what it cost. While hints are worked off, some processor time may be used in advance
//! ([`CREDIT`]) and is paused for later. So a run of a tenth of a second is followed closely from its start.

use std::time::Duration;

/// The shortest pause. 1 ms: a device answers in no less where prefetching pays.
pub(super) const LEAST: Duration = Duration::from_millis(1);

/// A look costs at most one in this many parts of a processor: 2 %.
const COST_DIVISOR: u32 = 50;

/// Processor time that may be used before it is paused for: some 40 looks at a program with a few open files, while its device
/// and the array's own threads keep the processors busy.
const CREDIT: Duration = Duration::from_millis(4);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Pace {
    first: Duration,
    /// The longest pause while hints are worked off, and otherwise.
    longest: [Duration; 2],
    now: Duration,
    /// Pauses that are still to be made for the processor time of earlier looks.
    owed: Duration,
}

impl Pace {
    /// For walks. A program is found within 2 ms of its start where another one has begun just before.
    pub(super) fn of_walks() -> Self {
        let longest = [Duration::from_millis(20), Duration::from_millis(100)];
        Pace { first: Duration::from_millis(2), longest, now: LEAST, owed: Duration::ZERO }
    }

    /// For samples.
    pub(super) fn of_samples() -> Self {
        let longest = [Duration::from_millis(4), Duration::from_millis(100)];
        Pace { first: LEAST, longest, now: LEAST, owed: Duration::ZERO }
    }

    /// The pause after a look that cost `cost` and found a change or none.
    pub(super) fn pause(
        &mut self,
        is_interested: bool,
        has_changed: bool,
        cost: Duration,
    ) -> Duration {
        let longest = self.longest[usize::from(!is_interested)];
        let pause = match (has_changed, is_interested) {
            (true, true) => self.first,
            (true, false) => self.first.max(longest / 20),
            (false, _) => self.now,
        };
        self.now = (pause * 2).min(longest);
        self.owed += cost * (COST_DIVISOR - 1);
        let credit = if is_interested { CREDIT * (COST_DIVISOR - 1) } else { Duration::ZERO };
        let pause = pause.min(longest).max(self.owed.saturating_sub(credit));
        self.owed = self.owed.saturating_sub(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_until_something_changes() {
        let mut pace = Pace::of_walks();
        let pauses: Vec<u128> =
            (0..7).map(|_| pace.pause(true, false, Duration::ZERO).as_millis()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 20, 20]);
        assert_eq!(pace.pause(true, true, Duration::ZERO), 2 * MS);
        assert_eq!(pace.pause(false, false, Duration::ZERO), 4 * MS);
        let last = (0..9).map(|_| pace.pause(false, false, Duration::ZERO)).last();
        assert_eq!(last, Some(100 * MS));
    }

    #[test]
    fn a_look_takes_a_small_share_of_a_processor() {
        for is_interested in [false, true] {
            let mut pace = Pace::of_samples();
            let cost = 50 * MS;
            let pauses: Duration = (0..100).map(|_| pace.pause(is_interested, true, cost)).sum();
            let advance = if is_interested { CREDIT * 49 } else { Duration::ZERO };
            assert_eq!(pauses + advance, cost * 100 * 49);
        }
    }

    #[test]
    fn the_first_looks_are_made_in_advance_while_hints_are_worked_off() {
        let (cost, mut pace) = (MS / 10, Pace::of_samples());
        let soon = (0..1000).take_while(|_| pace.pause(true, true, cost) == LEAST).count();
        assert!((30..100).contains(&soon), "{soon}");
        assert!(pace.pause(true, true, cost) >= cost * 48, "then each is paused for");
        assert!(Pace::of_samples().pause(false, true, MS) >= MS * 49, "nothing waits for it");
    }
}
