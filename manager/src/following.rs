//! Whether programs that are executed again and again are worth following.
//!
//! To follow a program, the library is loaded into it and introduces it, which costs the program some 0.3 ms
//! ([`FOLLOWED_NS`]; `scripts/bench-starts` measures it). That is nothing for a program that waits for storage or runs long,
//! and a tenth of one that runs for a few milliseconds and finds its files in memory. A shell script or a build may start
//! thousands of these. So a run in which programs hardly wait tells its processes to skip most executions of what they execute
//! again and again (`skips_repeated`). What a process executes for the first few times is followed always, so a file that is
//! executed once is, and one in [eight] of the others, so it is noticed if they begin to wait.
//!
//! What following a program can be worth is estimated from the programs that have ended: for how long they waited, of which
//! later runs may be spared about half, and what was read ahead for them and used in time. It is a mean in which each program
//! counts a sixteenth of what is new. The mean begins high, so some twenty programs that do not wait are followed before others
//! are skipped.
//!
//! [eight]: ../../preload/src/environment.c
//!
//! Pure. Cost: O(1) an ended program.

use std::ops::RangeInclusive;

use foretell_policy::Nanos;

/// What it costs a program to be followed: from 0.15 ms (one that opens nothing) to 0.4 ms.
const FOLLOWED_NS: f64 = 300_000.0;

/// Programs are skipped below, and followed again above, so many times that cost. Half of what is waited for is taken to be
/// avoidable, so at twice the cost it is paid back. The two differ, so that the decision does not change with each program.
const WORTH: RangeInclusive<f64> = 2.0 * FOLLOWED_NS..=3.0 * FOLLOWED_NS;

/// Where the mean begins.
const BEGIN_NS: f64 = 8.0 * FOLLOWED_NS;

/// The most that one program counts. A long wait keeps some twenty programs followed, which costs them a part of it.
const MOST_NS: f64 = 64.0 * FOLLOWED_NS;

/// A program that has said nothing for so long after its execution counts as one that opens nothing.
const SILENT: Nanos = Nanos(50_000_000);

/// What a program was spared that used a block, or a name, which was read ahead: four times the shortest call that counts as
/// waiting.
const SPARED_NS: f64 = 4.0 * foretell_protocol::STALL_THRESHOLD_NS as f64;

/// The share of the newest program in the mean.
const NEWEST: f64 = 1.0 / 16.0;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Following {
    /// What following a program is worth, in the mean.
    worth_ns: f64,
    /// Used blocks and names so far.
    used: u64,
    /// Programs that were followed and have said nothing: these have opened and read nothing.
    silent: u64,
    /// When programs were counted, and how many had been executed then.
    counted: (Nanos, u64),
    skips: bool,
}

impl Following {
    pub(crate) fn new() -> Self {
        Following {
            worth_ns: BEGIN_NS,
            used: 0,
            silent: 0,
            counted: (Nanos::ZERO, 0),
            skips: false,
        }
    }

    /// A program has ended. `waited_ns`: for how long its calls waited. `used`: blocks and names that were read ahead and used
    /// in time, by all programs since the start.
    pub(crate) fn ended(&mut self, waited_ns: u64, used: u64) {
        let spared_ns = used.saturating_sub(self.used) as f64 * SPARED_NS;
        self.used = self.used.max(used);
        let worth_ns = (waited_ns as f64 + spared_ns).min(MOST_NS);
        self.worth_ns += (worth_ns - self.worth_ns) * NEWEST;
        if !WORTH.contains(&self.worth_ns) {
            self.skips = self.worth_ns < *WORTH.start();
        }
    }

    /// So many programs have been executed with the library since the start, and so many have introduced themselves, by `now`.
    pub(crate) fn executed(&mut self, followed: u64, introduced: u64, now: Nanos) {
        let (counted_at, before) = self.counted;
        if now.saturating_sub(counted_at) < SILENT {
            return;
        }
        self.counted = (now, followed);
        let silent = before.saturating_sub(introduced);
        // Beyond these the mean does not change.
        let new = silent.saturating_sub(self.silent).min(256);
        self.silent = self.silent.max(silent);
        (0..new).for_each(|_| self.ended(0, self.used));
    }

    /// Whether most executions of what is executed again and again are to be skipped.
    pub(crate) fn skips(&self) -> bool {
        self.skips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(programs: impl IntoIterator<Item = (u64, u64)>) -> Following {
        let (mut following, mut used) = (Following::new(), 0);
        for (waited_ns, more) in programs {
            used += more;
            following.ended(waited_ns, used);
        }
        following
    }

    #[test]
    fn programs_that_do_not_wait_are_skipped_after_some_twenty() {
        assert!(!after([(0, 0); 16]).skips());
        assert!(after([(0, 0); 32]).skips());
    }

    #[test]
    fn programs_that_wait_or_use_what_was_read_ahead_are_followed() {
        assert!(!after([(1_000_000, 0); 1000]).skips());
        assert!(!after([(0, 4); 1000]).skips());
        assert!(after([(100_000, 1); 1000]).skips());
    }

    #[test]
    fn a_long_wait_has_some_programs_followed() {
        let mut following = after([(0, 0); 100]);
        following.ended(3_600_000_000_000, 0);
        assert!(!following.skips());
        (0..32).for_each(|_| following.ended(0, 0));
        assert!(following.skips());
    }

    #[test]
    fn one_program_of_five_that_waits_long_is_enough() {
        let each = |at: usize| if at.is_multiple_of(5) { (100_000_000, 0) } else { (0, 0) };
        assert!(!after((0..1000).map(each)).skips());
    }

    #[test]
    fn programs_that_say_nothing_count_as_not_waiting() {
        let ms = |at: u64| Nanos(at * 1_000_000);
        let mut following = Following::new();
        (0..400).for_each(|at| following.executed(at, at.min(1), ms(at)));
        assert!(following.skips());

        // Sixty-four at a time introduce themselves after a moment, and wait.
        let mut following = Following::new();
        for at in 0..1000 {
            following.executed(64 * (at + 1), 64 * at, ms(10 * at));
            following.executed(64 * (at + 1), 64 * (at + 1), ms(10 * at + 5));
            (0..64).for_each(|_| following.ended(1_000_000, 0));
        }
        assert!(!following.skips());
    }
}
