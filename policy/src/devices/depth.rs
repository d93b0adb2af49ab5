//! How many fetches a device may have in flight while names are looked up.
//!
//! A deep queue lets an array work with all its disks, a disk sort its requests, and a server hide its latency. It hurts in one
//! case: on a single disk where each file lies behind its inode, in the order of the list. Lookups that run ahead of the data
//! make the arm pass over everything twice. There, two fetches at a time are best: one file's data beside the next lookup.
//! A device does not say which case it is. The order of its completions does:
//!
//! * **A.** *Sample*: begin with a few lookups at a time. If they complete out of order, or all together, the device serves several at
//!   once or sorts them: go deep (C). If they complete one after another in the order in which they began, go shallow (B). A sample is at
//!   most a part of the names, or [`SAMPLE_MIN`], so that it costs little where it should not have been taken.
//! * **B.** *Shallow*: two fetches at a time. While many names are left, *trials* repeat at growing intervals: a short
//!   time of more lookups at once. If its rate of completions is clearly higher, go deep.
//! * **C.** *Deep*: the queue is not bounded here, once a fetch has brought something that was not in memory. Until then
//!   the bound is [`DEPTH_FIRST`], since where everything is cached a deep queue is only work.
//!
//! A device that had nothing to do for a second is sampled again: the next files may lie differently.
//!
//! The papers fix the depth (five prefetches in flight for each disk, TIP 1995, section 5). Behind a page cache the
//! number of disks is not known. `docs/internals/policy.md` shows what this is worth beside fixed depths.
//!
//! Not here: how many requests a device serves at once, as measured over a longer time (`Load` in `device.rs`); and overdue lookups,
//! which do not count against the depth.
//!
//! Cost: O(1) a completion; a sample keeps [`SAMPLE_MAX`] entries and sorts them once.

#[cfg(test)]
mod tests;

use crate::time::Nanos;

/// Fewest lookups of a sample: fewer are too often in order by chance.
/// Unit: fetches. Reason: measured (test table_of_depths).
const SAMPLE_MIN: usize = 8;

/// Most lookups of a sample or a trial: more would show little more.
/// Unit: fetches. Reason: measured (test table_of_depths).
pub(crate) const SAMPLE_MAX: usize = 16;

/// Depth until something was fetched (C), and for a few names.
/// Unit: fetches. Reason: judgement.
pub(crate) const DEPTH_FIRST: usize = 32;

/// A sample is at most this part of the names, as a divisor: on a disk that suffers from it, it costs about as much of the time.
/// Unit: ratio. Reason: measured (test table_of_depths).
const SAMPLE_DIVISOR: usize = 24;

/// Depth where lookups must not run ahead (B).
/// Unit: fetches. Reason: measured (test table_of_depths).
const DEPTH_SHALLOW: usize = 2;

/// Completions are in order if their inversions are fewer than the mean of a random order by so many standard deviations. One
/// random order in 140 is.
/// Unit: standard deviations. Reason: measured (test table_of_depths).
const IN_ORDER: f64 = 2.5;

/// Completions in order have come together, as from a server with latency, if one took as long as so many more after it. The arm of
/// a disk gets anywhere in the time of about ten.
/// Unit: ratio. Reason: measured (test table_of_depths).
const TOGETHER: f64 = 24.0;

/// A trial is at most this part of the names that are left, as a divisor (B).
/// Unit: ratio. Reason: measured (test table_of_depths).
const TRIAL_DIVISOR: usize = 32;

/// With fewer names left, a trial costs more than it can bring (B).
/// Unit: names. Reason: measured (test table_of_depths).
const TRIAL_NAMES_MIN: usize = 128;

/// Completions from the sample to the first trial. Each trial that is lost doubles them (B).
/// Unit: fetches. Reason: measured (test table_of_depths).
const SPAN: usize = 512;

/// Most completions from one trial to the next (B).
/// Unit: fetches. Reason: judgement.
const SPAN_MAX: usize = 2048;

/// A trial is won if its rate is higher by this factor.
/// Unit: ratio. Reason: judgement.
const WIN: f64 = 1.15;

/// A device that had nothing to do for longer stood still. Less passes between a completion and the next fetch.
/// Unit: ns. Reason: judgement.
const STILL: Nanos = Nanos(1_000_000);

/// A device that had nothing to do for longer is sampled again.
/// Unit: ns. Reason: judgement.
const LONG_STILL: Nanos = Nanos(1_000_000_000);

/// A fetch that took less did not wait for a device.
/// Unit: ns. Reason: judgement.
const WAITED: Nanos = Nanos(100_000);

/// What a fetch that has completed was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The lookup of a name.
    Lookup,
    /// Data, which was fetched or was in memory.
    Data { fetched: bool },
}

/// The depth of one device; see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct DepthControl {
    phase: Phase,
    /// Whether a fetch has brought something (C).
    has_fetched: bool,
    /// Completions until the next trial, when one has been lost (B).
    span: usize,
}

#[derive(Clone, Debug)]
enum Phase {
    /// A
    Sample(Sample),
    /// B, between trials
    Shallow(Tally),
    /// B
    Trial(Trial),
    /// C
    Deep,
}

/// The first lookups of a device that had nothing to do, all of them in flight together.
#[derive(Clone, Debug)]
struct Sample {
    /// How many there are to be.
    size: usize,
    /// Their numbers in the order in which they began, and whether they have completed.
    begun: Vec<(u64, bool)>,
    /// When the first began.
    since: Nanos,
    /// How long those took that have completed and waited for the device.
    times: Vec<Nanos>,
    /// Pairs of them of which the later one has completed first.
    inversions: usize,
    /// Lookups that were answered from memory.
    at_hand: usize,
    /// Fetches of data that have completed.
    data: usize,
}

/// Completions from a moment on.
#[derive(Clone, Copy, Debug)]
struct Tally {
    since: Nanos,
    completions: usize,
}

/// A time of more lookups at once.
#[derive(Clone, Copy, Debug)]
struct Trial {
    size: usize,
    tally: Tally,
    /// Completions a second before it.
    rate_before: f64,
}

impl Tally {
    fn from(since: Nanos) -> Self {
        Tally { since, completions: 0 }
    }

    /// Completions a second; infinite if all were reported at one time.
    fn rate(self, until: Nanos) -> f64 {
        self.completions as f64 / until.saturating_sub(self.since).as_secs()
    }
}

impl Sample {
    /// For a device that has nothing to do, and `names` to be looked up.
    fn of(names: usize) -> Self {
        let size = match names {
            0..=SAMPLE_MIN => DEPTH_FIRST, // They cost little in any order.
            _ => (names / SAMPLE_DIVISOR).clamp(SAMPLE_MIN, SAMPLE_MAX),
        };
        let (begun, times, since) = (Vec::new(), Vec::new(), Nanos::ZERO);
        Sample { size, begun, since, times, inversions: 0, at_hand: 0, data: 0 }
    }

    fn begins(&mut self, now: Nanos, number: u64) {
        if self.begun.is_empty() {
            self.since = now;
        }
        if self.begun.len() < self.size {
            self.begun.push((number, false));
        }
    }

    /// A lookup has completed.
    fn add(&mut self, now: Nanos, number: u64, began: Nanos) {
        let Some(place) = self.begun.iter().position(|&(begun, _)| begun == number) else { return };
        self.begun[place].1 = true;
        let took = now.saturating_sub(began);
        if took < WAITED {
            self.at_hand += 1;
            return;
        }
        self.inversions += self.begun[..place].iter().filter(|(_, has_ended)| !has_ended).count();
        self.times.push(took);
    }

    /// What follows, once that is clear.
    fn verdict(&self, now: Nanos) -> Option<Phase> {
        let ended = self.times.len() + self.at_hand;
        // Lookups cost nothing, or there are none: they cannot run ahead of the data.
        let costs_nothing = 2 * self.at_hand > self.size || self.data >= ended + self.size;
        if costs_nothing || self.is_out_of_order() {
            return Some(Phase::Deep);
        }
        (ended == self.size).then(|| match self.is_together() {
            true => Phase::Deep,
            false => Phase::Shallow(Tally::from(now)),
        })
    }

    /// Whether lookups complete in no order: by Kendall's rank correlation, there are about as many inversions as in random order. Of n
    /// there, they are n (n - 1) / 4 on average, with a variance of n (n - 1) (2 n + 5) / 72.
    fn is_out_of_order(&self) -> bool {
        let n = self.size as f64;
        let (mean, variance) = (n * (n - 1.0) / 4.0, n * (n - 1.0) * (2.0 * n + 5.0) / 72.0);
        self.inversions as f64 > mean - IN_ORDER * variance.sqrt()
    }

    /// Whether they have waited for something else than for one another: the first took as long as many more. The shortest time but
    /// one is taken, for one may have been on the arm's way.
    fn is_together(&self) -> bool {
        let mut times = self.times.clone();
        times.sort_unstable();
        let [_, second, .., last] = times[..] else { return true };
        let each_ns = (last.0 - second.0) as f64 / (times.len() - 2) as f64;
        second.0 as f64 >= TOGETHER * each_ns
    }
}

impl Default for DepthControl {
    fn default() -> Self {
        DepthControl { phase: Phase::Sample(Sample::of(0)), has_fetched: false, span: SPAN }
    }
}

impl DepthControl {
    /// Most fetches that may be in flight, overdue lookups aside.
    pub(crate) fn depth(&self) -> usize {
        match &self.phase {
            Phase::Sample(sample) => sample.size,
            Phase::Trial(trial) => trial.size,
            Phase::Shallow(_) => DEPTH_SHALLOW,
            Phase::Deep if self.has_fetched => usize::MAX,
            Phase::Deep => DEPTH_FIRST,
        }
    }

    /// The same for a lookup. A sample is decided before there are more lookups, which would run ahead of the data.
    pub(crate) fn lookup_depth(&self) -> usize {
        match &self.phase {
            Phase::Sample(sample) if sample.begun.len() == sample.size => 0,
            _ => self.depth(),
        }
    }

    /// A fetch begins on a device that has had nothing to do for `idle`, with `names` to be looked up there.
    pub(crate) fn begins_after(&mut self, idle: Nanos, names: usize) {
        let begins_again = match &self.phase {
            Phase::Sample(sample) => idle > STILL || sample.begun.is_empty(),
            Phase::Shallow(_) | Phase::Trial(_) | Phase::Deep => idle > LONG_STILL,
        };
        if begins_again {
            self.phase = Phase::Sample(Sample::of(names));
        }
    }

    /// A lookup of this `number`, in the order in which fetches begin, begins.
    pub(crate) fn lookup_begins(&mut self, now: Nanos, number: u64) {
        if let Phase::Sample(sample) = &mut self.phase {
            sample.begins(now, number);
        }
    }

    /// A lookup is overdue. It may never complete, and a sample does not wait for it.
    pub(crate) fn lookup_is_overdue(&mut self) {
        if matches!(self.phase, Phase::Sample(_)) {
            self.phase = Phase::Deep;
        }
    }

    /// The fetch of this `number`, in the order in which fetches begin, began at `began` and has completed.
    /// `names_left` are still to be looked up.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        (number, began): (u64, Nanos),
        purpose: Purpose,
        names_left: usize,
    ) {
        self.has_fetched |= purpose == (Purpose::Data { fetched: true });
        let waited = now.saturating_sub(began) >= WAITED;
        match &mut self.phase {
            Phase::Sample(sample) => {
                match purpose {
                    Purpose::Lookup => sample.add(now, number, began),
                    Purpose::Data { .. } => sample.data += 1,
                }
                if let Some(next) = sample.verdict(now) {
                    self.phase = next;
                }
            }
            Phase::Shallow(tally) if waited => {
                tally.completions += 1;
                if tally.completions >= self.span && names_left >= TRIAL_NAMES_MIN {
                    let size = (names_left / TRIAL_DIVISOR).clamp(SAMPLE_MIN, SAMPLE_MAX);
                    let rate_before = tally.rate(now);
                    self.phase = Phase::Trial(Trial { size, tally: Tally::from(now), rate_before });
                }
            }
            // Each name of the trial is looked up and read once.
            Phase::Trial(trial) if waited => {
                trial.tally.completions += 1;
                if trial.tally.completions >= 2 * trial.size {
                    let is_won = trial.tally.rate(now) > WIN * trial.rate_before;
                    self.span = (2 * self.span).min(SPAN_MAX);
                    self.phase =
                        if is_won { Phase::Deep } else { Phase::Shallow(Tally::from(now)) };
                }
            }
            Phase::Shallow(_) | Phase::Trial(_) | Phase::Deep => {}
        }
    }
}
