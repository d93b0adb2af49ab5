//! How fast a program reads what it discloses, and whether its device keeps up.
//!
//! * **Gap**: the program's own mean time from one read to the next, measured where neither waits.
//! * **Hurry**: how many times faster than the gap the next reads might come. Each read that waits doubles it; each other read
//!   lets it shrink.
//! * **Late**: whether the program spends much of its time waiting for disclosed blocks. If so, the device cannot keep up,
//!   hurry does not help, and a fetch costs the device's own time for it.
//!
//! Cost: O(1) per read.

use crate::hint::ReaderId;
use crate::time::Nanos;

/// Reads per sample of the gap. Drivers may report several reads at one time.
/// Unit: reads. Reason: judgement.
const SAMPLE_READS: u32 = 16;
/// Weight of a new sample in the gap.
/// Unit: ratio. Reason: judgement.
const GAP_WEIGHT: f64 = 1.0 / 16.0;
/// A read that waits multiplies the hurry by this.
/// Unit: ratio. Reason: judgement.
const HURRY_GROWTH: f64 = 2.0;
/// A read that does not wait reduces the hurry by this part. If one read in about 1,400 waits, the hurry stays as it is.
/// Unit: ratio. Reason: judgement.
const HURRY_DECAY: f64 = 1.0 / 2048.0;
/// The greatest hurry, which is also the first.
/// Unit: ratio. Reason: judgement.
const HURRY_MAX: f64 = 8.0;
/// Weight of a new read in the two means behind [`is_late`](Pace::is_late). It is small: while a stream does not count as late,
/// blocks are evicted that will then be missing for a whole pass, so a short quiet time must not end the lateness.
/// Unit: ratio. Reason: judgement.
const LATE_WEIGHT: f64 = 1.0 / 512.0;
/// A stream is late if it spends more than this share of its time waiting. It is a share of time, not of reads, since only the
/// first block of a cluster is waited for.
/// Unit: ratio. Reason: judgement.
const LATE_SHARE: f64 = 0.1;
/// Longer times count as this. Otherwise one pause or fault would decide for long.
/// Unit: ns. Reason: judgement.
const LONGEST_NS: f64 = 1e9;
/// Shorter means count as zero. They make no difference in a sum, and a mean that shrinks towards zero becomes a denormal
/// number, with which processors are slow.
/// Unit: ns. Reason: bound.
const LEAST_NS: f64 = 1e-3;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    gap_ns: Option<f64>,
    /// When the current sample began, and its reads so far.
    sample: Option<(Nanos, u32)>,
    hurry: f64,
    /// The gap divided by the hurry. It is stored because it is queried several times per read.
    pace_ns: Option<f64>,
    last_read: Option<Nanos>,
    /// The reader that waits for its read.
    waits: Option<ReaderId>,
    /// Time waited since the last read.
    waited: Nanos,
    /// Moving averages of the time from one read to the next, and of the part of it spent waiting.
    spent_ns: f64,
    waited_ns: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            gap_ns: None,
            sample: None,
            hurry: HURRY_MAX,
            pace_ns: None,
            last_read: None,
            waits: None,
            waited: Nanos::ZERO,
            spent_ns: 0.0,
            waited_ns: 0.0,
        }
    }
}

impl Pace {
    /// Records a read at `now`. `hit_ns`, the time of a hit, is the shortest possible time between two reads.
    pub(crate) fn read(&mut self, now: Nanos, by: ReaderId, waits: bool, hit_ns: f64) {
        match &mut self.sample {
            _ if waits => self.sample = None,
            None => self.sample = Some((now, 0)),
            Some((began, reads)) => {
                *reads += 1;
                let span = now.saturating_sub(*began);
                if *reads >= SAMPLE_READS && span > Nanos::ZERO {
                    let sample_ns = span.0 as f64 / f64::from(*reads);
                    let gap_ns = self.gap_ns.get_or_insert(sample_ns);
                    *gap_ns += GAP_WEIGHT * (sample_ns - *gap_ns);
                    self.sample = Some((now, 0));
                }
            }
        }
        if let Some(gap_ns) = self.gap_ns {
            let change = match waits {
                true if self.is_late() => 1.0,
                true => HURRY_GROWTH,
                false => 1.0 - HURRY_DECAY,
            };
            let most = (gap_ns / hit_ns).clamp(1.0, HURRY_MAX);
            self.hurry = (self.hurry.min(most) * change).clamp(1.0, most);
            self.pace_ns = Some(gap_ns / self.hurry);
        }
        if waits {
            self.waits = Some(by);
        } else {
            self.waits.take_if(|waiting| *waiting == by);
        }
        let waited = std::mem::take(&mut self.waited);
        if let Some(last) = self.last_read.replace(now) {
            let (spent_ns, waited_ns) = (now.saturating_sub(last).0 as f64, waited.0 as f64);
            // `waited_ns` may exceed `spent_ns`: drivers may report several reads at one time, and a wait then falls on reads
            // with no time between them.
            let scale = if spent_ns > LONGEST_NS { LONGEST_NS / spent_ns } else { 1.0 };
            let moved = |mean_ns: f64, sample_ns: f64| {
                let sample_ns = (sample_ns * scale).min(LONGEST_NS);
                let mean_ns = mean_ns + LATE_WEIGHT * (sample_ns - mean_ns);
                if mean_ns < LEAST_NS { 0.0 } else { mean_ns }
            };
            self.spent_ns = moved(self.spent_ns, spent_ns);
            self.waited_ns = moved(self.waited_ns, waited_ns);
        }
    }

    /// The read of `reader` ended after it waited this long.
    pub(crate) fn waited(&mut self, reader: ReaderId, waited: Nanos) {
        if self.waits.take_if(|waiting| *waiting == reader).is_some() {
            self.waited += waited;
        }
    }

    /// Whether the device cannot keep up.
    pub(crate) fn is_late(&self) -> bool {
        self.waited_ns > LATE_SHARE * self.spent_ns
    }

    /// The gap, in ns; `None` until a sample is complete.
    pub(crate) fn gap_ns(&self) -> Option<f64> {
        self.gap_ns
    }

    /// The time between reads to plan with, in ns: the gap divided by the hurry.
    pub(crate) fn pace_ns(&self) -> Option<f64> {
        self.pace_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: u64 = 1000;

    const READER: ReaderId = ReaderId(1);

    /// This many reads, of which every `waits_each`-th waits for `wait_ns`.
    fn after(reads: u64, waits_each: u64, wait_ns: u64) -> Pace {
        let mut pace = Pace::default();
        go_on(&mut pace, Nanos::ZERO, reads, |read| match read % waits_each == waits_each - 1 {
            true => wait_ns,
            false => 0,
        });
        pace
    }

    /// This many more reads; `wait_ns` says how long each one waits.
    fn go_on(pace: &mut Pace, mut now: Nanos, reads: u64, wait_ns: impl Fn(u64) -> u64) -> Nanos {
        for read in 0..reads {
            now += Nanos(GAP);
            let wait = Nanos(wait_ns(read));
            pace.read(now, READER, wait > Nanos::ZERO, 1.0);
            now += wait;
            pace.waited(READER, wait);
        }
        now
    }

    #[test]
    fn the_gap_is_the_programs_own() {
        for wait_ns in [0, 50_000] {
            let pace = after(10_000, 100, wait_ns);
            assert!((pace.gap_ns().expect("measured") - GAP as f64).abs() < 1e-6);
        }
        assert_eq!(after(10_000, 1, 10).gap_ns(), None);
    }

    #[test]
    fn late_is_who_spends_time_waiting_however_seldom() {
        // One of the eight blocks of a cluster is waited for, as long as all eight are processed.
        assert!(after(5000, 8, 8 * GAP).is_late());
        assert!(after(5000, 100, 100 * GAP).is_late());
        assert!(!after(5000, 8, GAP / 10).is_late());
        assert!(!after(5000, 10_000, 1).is_late());
        assert!(!Pace::default().is_late());
    }

    #[test]
    fn who_waits_now_and_then_hurries_and_who_does_not_keeps_its_pace() {
        let hurry = |pace: Pace| pace.gap_ns.expect("measured") / pace.pace_ns().expect("measured");
        assert!(hurry(after(20_000, 1000, 10)) > 4.0);
        assert!(hurry(after(20_000, 50_000, 10)) < 1.01);
    }

    #[test]
    fn one_long_time_decides_nothing_for_long() {
        let mut pace = Pace::default();
        let waiting = go_on(&mut pace, Nanos::ZERO, 5000, |_| 10_000_000);
        assert!(pace.is_late());
        // It pauses for an hour.
        let after = go_on(&mut pace, Nanos(waiting.0 + 3_600_000_000_000), 1, |_| 10_000_000);
        assert!(pace.is_late());
        // It waits no more, except once for a disk that spins up.
        let after = go_on(&mut pace, after, 50_000, |_| 0);
        assert!(!pace.is_late());
        go_on(&mut pace, after, 6000, |read| if read == 0 { 100_000_000_000 } else { 0 });
        assert!(!pace.is_late());
    }

    #[test]
    fn what_counts_is_the_wait_of_who_reads_the_stream() {
        let other = ReaderId(2);
        let mut pace = Pace::default();
        pace.read(Nanos(0), READER, true, 1.0);
        pace.read(Nanos(0), other, false, 1.0);
        pace.waited(other, Nanos(1000));
        pace.waited(READER, Nanos(100));
        pace.waited(READER, Nanos(1000));
        pace.read(Nanos(2000), READER, false, 1.0);
        pace.waited(READER, Nanos(1000));
        assert_eq!(pace.waited_ns, LATE_WEIGHT * 100.0);
        assert_eq!(pace.spent_ns, LATE_WEIGHT * 2000.0);
    }
}
