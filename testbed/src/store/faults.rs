//! Draws the fate of each request: how long it waits, and which fault it meets.
//!
//! A fate depends only on the seed and on the request's number in order of arrival. So the same requests in the same
//! order meet the same fates. Requests that arrive at the same time may change places, and their fates with them.

use std::time::Duration;

use foretell_sim::random::{SplitMix64, hash};

use super::error::StoreError;
use super::first_byte::FirstByte;

/// Faults on purpose: shares of all requests, from 0 to 1. A request has at most one fault, so the three add up to at
/// most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Answered with 503 `SlowDown`.
    pub fail_503: f64,
    /// The connection is reset: in half of these cases before the first byte, in the others within the body.
    pub reset: f64,
    /// The body is cut short, and the connection ends. Answers without a body are unaffected.
    pub truncate: f64,
}

impl Faults {
    /// Checks the shares.
    ///
    /// # Errors
    /// [`StoreError::Option`] for the first one out of its range.
    pub fn validate(&self) -> Result<(), StoreError> {
        let shares =
            [("fail-503", self.fail_503), ("reset", self.reset), ("truncate", self.truncate)];
        let mut sum = 0.0;
        for (option, share) in shares {
            sum += share;
            // NaN is in no range.
            if !(0.0..=1.0).contains(&share) || sum > 1.0 {
                let wanted = "from 0 to 1, and at most 1 for all faults together";
                return Err(StoreError::Option { option, value: share.to_string(), wanted });
            }
        }
        Ok(())
    }
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    /// Normally.
    Good,
    /// With 503.
    Refused,
    /// The connection is reset before the answer.
    ResetBefore,
    /// The connection is reset after this share of the body, from 0 to 1.
    ResetWithin(f64),
    /// The body ends after this share of it, from 0 to 1.
    Truncated(f64),
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fate {
    pub(crate) wait: Duration,
    pub(crate) ending: Ending,
}

/// Draws the fate of request number `request`.
pub(crate) fn draw(seed: u64, request: u64, waits: &FirstByte, faults: &Faults) -> Fate {
    let mut random = SplitMix64::new(hash(&[seed, request]));
    // Always draws the same numbers in the same order, so that other faults leave the waits as they are.
    let (which_wait, which_ending, part) = (random.unit(), random.unit(), random.unit());
    let deviation = if waits.sigma > 0.0 { random.normal() } else { 0.0 };
    Fate { wait: wait(waits, which_wait, deviation), ending: ending(faults, which_ending, part) }
}

fn wait(waits: &FirstByte, mut which: f64, deviation: f64) -> Duration {
    for tail in &waits.tail {
        if which < tail.share {
            return tail.wait;
        }
        which -= tail.share;
    }
    waits.usual.mul_f64((waits.sigma * deviation).exp())
}

fn ending(faults: &Faults, which: f64, part: f64) -> Ending {
    let reset_from = faults.fail_503;
    let truncate_from = reset_from + faults.reset;
    if which < reset_from {
        Ending::Refused
    } else if which < truncate_from {
        if part < 0.5 { Ending::ResetBefore } else { Ending::ResetWithin(2.0 * part - 1.0) }
    } else if which < truncate_from + faults.truncate {
        Ending::Truncated(part)
    } else {
        Ending::Good
    }
}

#[cfg(test)]
mod tests {
    use super::super::first_byte::Tail;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn fates(seed: u64, waits: &FirstByte, faults: &Faults) -> Vec<Fate> {
        (0..100_000).map(|request| draw(seed, request, waits, faults)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_fates_and_another_others() {
        let waits = FirstByte { sigma: 0.5, ..FirstByte::fixed(30 * MS) };
        let faults = Faults { fail_503: 0.1, reset: 0.1, truncate: 0.1 };
        assert_eq!(fates(7, &waits, &faults), fates(7, &waits, &faults));
        assert_ne!(fates(7, &waits, &faults), fates(8, &waits, &faults));
    }

    #[test]
    fn shares_are_what_was_asked_for() {
        let faults = Faults { fail_503: 0.02, reset: 0.1, truncate: 0.05 };
        let fates = fates(1, &FirstByte::fixed(30 * MS), &faults);
        let share = |is: fn(&Ending) -> bool| {
            fates.iter().filter(|fate| is(&fate.ending)).count() as f64 / fates.len() as f64
        };
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 0.004, "{found}");
        near(share(|ending| *ending == Ending::Refused), 0.02);
        near(share(|ending| *ending == Ending::ResetBefore), 0.05);
        near(share(|ending| matches!(ending, Ending::ResetWithin(_))), 0.05);
        near(share(|ending| matches!(ending, Ending::Truncated(_))), 0.05);
        near(share(|ending| *ending == Ending::Good), 0.83);
        for fate in &fates {
            if let Ending::ResetWithin(part) | Ending::Truncated(part) = fate.ending {
                assert!((0.0..1.0).contains(&part));
            }
        }
    }

    #[test]
    fn other_faults_leave_the_waits_as_they_are() {
        let waits = FirstByte { sigma: 0.5, ..FirstByte::fixed(30 * MS) };
        let all = Faults { fail_503: 0.3, reset: 0.3, truncate: 0.4 };
        let without = fates(3, &waits, &Faults::default());
        for (a, b) in without.iter().zip(fates(3, &waits, &all)) {
            assert_eq!(a.wait, b.wait);
        }
    }

    #[test]
    fn waits_have_their_median_and_their_tail() {
        let tail =
            vec![Tail { share: 0.01, wait: 500 * MS }, Tail { share: 0.001, wait: 5000 * MS }];
        let fixed = FirstByte { tail, ..FirstByte::fixed(30 * MS) };
        let fates_fixed = fates(1, &fixed, &Faults::default());
        let count = |wait| fates_fixed.iter().filter(|fate| fate.wait == wait).count();
        assert!((900..1100).contains(&count(500 * MS)), "{}", count(500 * MS));
        assert!((70..130).contains(&count(5000 * MS)), "{}", count(5000 * MS));
        assert_eq!(count(30 * MS) + count(500 * MS) + count(5000 * MS), fates_fixed.len());

        let spread = FirstByte { sigma: 0.5, ..FirstByte::fixed(30 * MS) };
        let mut waits: Vec<_> =
            fates(1, &spread, &Faults::default()).iter().map(|fate| fate.wait).collect();
        waits.sort();
        let at = |share: f64| waits[(waits.len() as f64 * share) as usize].as_secs_f64() * 1e3;
        assert!((29.5..30.5).contains(&at(0.5)), "{}", at(0.5));
        // The median times e to the 0.5 × 2.326.
        assert!((93.0..99.0).contains(&at(0.99)), "{}", at(0.99));
    }
}
