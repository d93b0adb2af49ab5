//! Holds hints back where their data is in memory anyway.
//!
//! A check of a file that is in memory costs some 20 µs and gains nothing, and a program that waits for nothing may read faster
//! than the checks are made. So after some fetches and lookups in a row that found all in memory, none is started for a while.
//!
//! * A. A fetch that brought data in ends this: the checks go on without bound.
//! * B. A call of a program that waited ends the pause at once. There may be more data in memory before the place where the
//!   program waits, so the number of checks until the next pause doubles.
//! * C. Some programs cannot be seen waiting. So a pause ends by itself, and the next one is twice as long.

use std::time::{Duration, Instant};

/// Fetches and lookups in a row that found all in memory before the first pause.
const CHECKS_MIN: u32 = 64;

/// The same, at most.
const CHECKS_MAX: u32 = 8192;

/// Bounds of a pause. The longest one costs a program that cannot be seen waiting as much as some reads of a disk.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(40);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Warmth {
    /// Fetches and lookups in a row that found all in memory.
    in_row: u32,
    /// Their number that begins a pause.
    checks: u32,
    pause: Duration,
    paused: Option<Paused>,
    /// A fetch has had to wait since the last pause.
    is_cold: bool,
}

#[derive(Debug)]
struct Paused {
    until: Instant,
    /// Calls of programs that had waited when the pause began; `None` until they are counted.
    stalls: Option<u64>,
}

impl Warmth {
    pub(crate) fn new() -> Self {
        Warmth { in_row: 0, checks: CHECKS_MIN, pause: PAUSE_MIN, paused: None, is_cold: false }
    }

    /// Whether a fetch has had to wait since the last pause.
    pub(crate) fn is_cold(&self) -> bool {
        self.is_cold
    }

    /// A fetch found all its data in memory, or a lookup the inode.
    pub(crate) fn found(&mut self, now: Instant) {
        self.in_row += 1;
        if self.in_row >= self.checks && self.paused.is_none() {
            self.paused = Some(Paused { until: now + self.pause, stalls: None });
            self.is_cold = false;
        }
    }

    /// A: a fetch had to wait for a device.
    pub(crate) fn waited(&mut self) {
        *self = Warmth { is_cold: true, ..Warmth::new() };
    }

    /// The rest of the pause; `None` if fetches may be started. `stalls` counts the calls of programs
    /// that have waited so far; those of programs that have ended may be missing.
    pub(crate) fn rest(&mut self, now: Instant, stalls: impl FnOnce() -> u64) -> Option<Duration> {
        let paused = self.paused.as_mut()?;
        let stalls = stalls();
        let began_with = *paused.stalls.get_or_insert(stalls);
        if stalls > began_with {
            (self.checks, self.pause) = ((self.checks * 2).min(CHECKS_MAX), PAUSE_MIN); // B
        } else if paused.until > now {
            return Some(paused.until - now);
        } else {
            (self.checks, self.pause) = (CHECKS_MIN, (self.pause * 2).min(PAUSE_MAX)); // C
        }
        (self.in_row, self.paused) = (0, None);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it pauses after `found` more fetches.
    fn pauses(warmth: &mut Warmth, now: Instant, found: u32) -> bool {
        (0..found).for_each(|_| warmth.found(now));
        warmth.rest(now, || 0).is_some()
    }

    #[test]
    fn data_in_memory_is_checked_in_bounded_numbers() {
        let (mut warmth, now) = (Warmth::new(), Instant::now());
        assert!(!pauses(&mut warmth, now, CHECKS_MIN - 1));
        assert!(pauses(&mut warmth, now, 1));
        assert_eq!(warmth.rest(now, || 0), Some(PAUSE_MIN));
        // C
        let later = now + PAUSE_MIN;
        assert_eq!(warmth.rest(later, || 0), None);
        assert!(pauses(&mut warmth, later, CHECKS_MIN));
        assert_eq!(warmth.rest(later, || 0), Some(2 * PAUSE_MIN));
    }

    #[test]
    fn a_fetch_that_waits_ends_the_row() {
        let (mut warmth, now) = (Warmth::new(), Instant::now());
        for _ in 0..10 {
            assert!(!pauses(&mut warmth, now, CHECKS_MIN - 1));
            warmth.waited();
        }
    }

    #[test]
    fn a_program_that_waits_ends_the_pause_and_more_is_checked_each_time() {
        let (mut warmth, now) = (Warmth::new(), Instant::now());
        let mut checks = CHECKS_MIN;
        for _ in 0..20 {
            assert!(!pauses(&mut warmth, now, checks - 1));
            assert!(pauses(&mut warmth, now, 1));
            assert_eq!(warmth.rest(now, || 1), None);
            checks = (2 * checks).min(CHECKS_MAX);
        }
        assert_eq!(checks, CHECKS_MAX);
    }
}
