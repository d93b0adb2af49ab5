//! How many fetches a device is given at once.
//!
//! Deeper is mostly better: an array works with all its disks, a disk sorts its queue. Not on a single
//! disk on which each file lies beside its inode: there lookups that run ahead of the data make the arm
//! pass over everything twice, and two fetches at a time, one file's data beside the next one's lookup,
//! are the best. What a device is like cannot be asked, but its rate of completions can be measured:
//!
//! * **A.** Begin with [`DEPTH_FIRST`] until a fetch brought something that was not in memory: where
//!   everything is cached, a deep queue is work for nothing.
//! * **B.** Go on with [`DEPTH_TRIAL`] for as many completions, and note the rate.
//! * **C.** *Probe*: let the queue drain and do [`PROBE`] fetches at [`DEPTH_SHALLOW`]. Give up as soon as
//!   the rate is hopeless, so that an array loses no more than a few service times.
//! * **D.** If the probe was clearly faster, stay shallow, and after a while begin with B again: the
//!   fetches may be of another kind by then. If it was not, the queue may be as deep as it likes.
//!
//! A lookup that is overdue (`device.rs`) is not counted against the depth: it may never end, and a probe
//! ends by completions alone.
//!
//! The papers fix the depth (five prefetches outstanding for each disk, TIP 1995, section 5); behind a
//! page cache the number of disks is not known. This is a safeguard for the order of lookups and data,
//! not the cost-benefit of eq. 6.
//!
//! Cost: O(1) a completion, a few words a device.

use crate::time::Nanos;

/// Depth before anything was brought (A).
pub(crate) const DEPTH_FIRST: usize = 32;

/// Depth while the rate of a deep queue is measured (B): 15 disks with more than five each.
const DEPTH_TRIAL: usize = 128;

/// Depth while probing (C).
const DEPTH_SHALLOW: usize = 2;

/// Fetches of a probe. The first few, which have the arm's way there in them, do not count.
const PROBE: usize = 24;
const PROBE_FIRST: usize = 4;

/// A probe must be faster by this factor to win; below the other one it is hopeless.
const WIN: f64 = 1.15;
const HOPELESS: f64 = 0.5;

/// Completions to stay shallow before the next trial (D).
const SHALLOW_SPAN: usize = 2048;

/// A fetch that took less did not wait for a device.
const WAITED: Nanos = Nanos(100_000);

/// The depth of one device; see the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct DepthControl {
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// A
    #[default]
    First,
    /// B
    Trial { began: Option<Nanos>, completions: usize },
    /// C: entered at `since`, with fetches under way that have to drain.
    Probe { deep_rate: f64, since: Nanos, sample: Sample },
    /// D, probe won.
    Shallow { left: usize },
    /// D, probe lost.
    Deep,
}

/// Fetches of a probe that have completed.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    completions: usize,
    /// When the last of the first few completed.
    settled: Option<Nanos>,
}

impl Sample {
    fn add(mut self, now: Nanos) -> Self {
        self.completions += 1;
        if self.completions == PROBE_FIRST {
            self.settled = Some(now);
        }
        self
    }

    /// Whether the probe was won, once that is clear.
    fn verdict(&self, now: Nanos, deep_rate: f64) -> Option<bool> {
        let settled = self.settled?;
        let rate = rate(self.completions - PROBE_FIRST, settled, now)?;
        if self.completions >= PROBE {
            return Some(rate > WIN * deep_rate);
        }
        (rate < HOPELESS * deep_rate).then_some(false)
    }
}

impl DepthControl {
    /// Most fetches that may be under way, overdue lookups aside.
    pub(crate) fn depth(&self) -> usize {
        match self.phase {
            Phase::First => DEPTH_FIRST,
            Phase::Trial { .. } => DEPTH_TRIAL,
            Phase::Probe { .. } | Phase::Shallow { .. } => DEPTH_SHALLOW,
            Phase::Deep => usize::MAX,
        }
    }

    /// A fetch that began at `started` has completed; `fetched` if it brought data.
    pub(crate) fn completed(&mut self, now: Nanos, started: Nanos, fetched: bool) {
        if fetched && matches!(self.phase, Phase::First) {
            self.phase = Phase::Trial { began: None, completions: 0 };
        }
        if now.saturating_sub(started) < WAITED {
            return;
        }
        self.phase = match self.phase {
            Phase::Trial { began, completions } => trial(now, began, completions),
            Phase::Probe { since, .. } if started < since => self.phase, // From before: draining.
            Phase::Probe { deep_rate, since, sample } => {
                let sample = sample.add(now);
                match sample.verdict(now, deep_rate) {
                    Some(true) => Phase::Shallow { left: SHALLOW_SPAN },
                    Some(false) => Phase::Deep,
                    None => Phase::Probe { deep_rate, since, sample },
                }
            }
            Phase::Shallow { left: 0 } => Phase::Trial { began: None, completions: 0 },
            Phase::Shallow { left } => Phase::Shallow { left: left - 1 },
            Phase::First | Phase::Deep => self.phase,
        };
    }
}

fn trial(now: Nanos, began: Option<Nanos>, completions: usize) -> Phase {
    let began = began.unwrap_or(now);
    match rate(completions, began, now) {
        Some(deep_rate) if completions >= DEPTH_TRIAL => {
            Phase::Probe { deep_rate, since: now, sample: Sample::default() }
        }
        _ => Phase::Trial { began: Some(began), completions: completions + 1 },
    }
}

/// Completions a second since `began`; `None` without any.
fn rate(completions: usize, began: Nanos, now: Nanos) -> Option<f64> {
    (completions > 0 && now > began).then(|| completions as f64 / (now - began).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const SERVICE: u64 = 10_000_000;

    /// Serves `fetches` fetches by a device that takes `service(depth)` for each and works on
    /// `servers` at once. Returns the elapsed time and the control at the end.
    fn drive(
        fetches: usize,
        servers: usize,
        service: impl Fn(usize) -> u64,
    ) -> (Nanos, DepthControl) {
        let mut control = DepthControl::default();
        let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
        let mut flights: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
        let (mut now, mut begun) = (0, 0);
        for _ in 0..fetches {
            while begun < fetches && flights.len() < control.depth() {
                let Reverse(at) = free.pop().expect("a server");
                let end = at.max(now) + service(flights.len() + 1);
                free.push(Reverse(end));
                flights.push(Reverse((end, now)));
                begun += 1;
            }
            let Reverse((end, started)) = flights.pop().expect("one is under way");
            now = end;
            control.completed(Nanos(end), Nanos(started), true);
        }
        (Nanos(now), control)
    }

    #[test]
    fn an_array_loses_no_more_than_a_few_service_times() {
        let jitter = |depth: usize| SERVICE + (depth as u64 * 7_919) % 1_000_000;
        let (elapsed, control) = drive(4000, 100, jitter);
        assert_eq!(control.depth(), usize::MAX);
        // At full depth from the first to the last it would be 40 to 44 service times.
        assert!(elapsed < Nanos(55 * SERVICE), "{elapsed}");
    }

    #[test]
    fn a_device_that_sorts_its_queue_gets_a_deep_one() {
        let (_, control) = drive(3000, 1, |depth| SERVICE - 500_000 * u64::from(depth.ilog2()));
        assert_eq!(control.depth(), usize::MAX);
    }

    #[test]
    fn a_device_that_suffers_from_depth_is_spared() {
        let service = |depth: usize| if depth <= 2 { SERVICE } else { 2 * SERVICE };
        let (elapsed, control) = drive(2000, 1, service);
        assert_eq!(control.depth(), DEPTH_SHALLOW);
        // The trial and what it left in the queue are slow: some 300 fetches.
        assert!(elapsed < Nanos(2400 * SERVICE), "{elapsed}");
    }

    #[test]
    fn where_nothing_is_fetched_the_queue_stays_short() {
        let mut control = DepthControl::default();
        for index in 1..1000 {
            control.completed(Nanos(index * SERVICE), Nanos((index - 1) * SERVICE), false);
        }
        assert_eq!(control.depth(), DEPTH_FIRST);
    }

    #[test]
    fn answers_from_memory_say_nothing_of_the_device() {
        let mut control = DepthControl::default();
        for index in 1..1000 {
            control.completed(Nanos(index * 1000), Nanos(index * 1000 - 500), true);
        }
        assert_eq!(control.depth(), DEPTH_TRIAL);
    }
}
