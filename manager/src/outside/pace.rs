//! When the thread looks again.
//!
//! It begins with a short pause, which doubles while nothing changes. A look may take at most a fixed share of a processor: the
//! pause after it is at least a multiple of what it cost.

use std::time::Duration;

/// The shortest pause. 1 ms: a device answers in no less where prefetching pays.
pub(super) const LEAST: Duration = Duration::from_millis(1);

/// A look costs at most one in this many parts of a processor: 2 %.
const COST_DIVISOR: u32 = 50;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Pace {
    first: Duration,
    /// The longest pause while hints are worked off, and otherwise.
    longest: [Duration; 2],
    now: Duration,
}

impl Pace {
    /// For walks. A program is found within 2 ms of its start where another one has begun just before.
    pub(super) fn of_walks() -> Self {
        let longest = [Duration::from_millis(20), Duration::from_millis(100)];
        Pace { first: Duration::from_millis(2), longest, now: LEAST }
    }

    /// For samples.
    pub(super) fn of_samples() -> Self {
        let longest = [Duration::from_millis(4), Duration::from_millis(100)];
        Pace { first: LEAST, longest, now: LEAST }
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
        pause.min(longest).max(cost * (COST_DIVISOR - 1))
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
        let mut pace = Pace::of_samples();
        let cost = 50 * MS;
        let pause = pace.pause(true, true, cost);
        assert!(cost * 49 <= pause, "{pause:?}");
    }
}
