//! How many fetches a device may have in flight while names are looked up.
//!
//! A deep queue lets an array work with all its disks, a disk sort its requests, and a server hide its latency. It hurts in one
//! case: on a single disk where each file lies behind its inode, in the order of the list. Lookups that run ahead of the data
//! make the arm pass over everything twice. There, two fetches at a time are best: one file's data beside the next lookup.
//! A device does not say which case it is. The order of its completions does:
//!
//! * **A.** *Sample*: begin with a few lookups at a time. If they complete out of order, or all together, the device serves
//!   several at once or sorts them: go deep (C). If they complete one after another in the order in which they began, go
//!   shallow (B). A sample is a small part of the names, so that it costs little where lookups should not have run ahead.
//! * **B.** *Shallow*: two fetches at a time, which is best on one disk in order. If the data of the sample complete out of
//!   order after all, or if completions become rarer than in the sample, go deep.
//! * **C.** *Deep*: the queue is not bounded here, once a fetch has brought data that was not in memory. Until then the bound
//!   is [`DEPTH_FIRST`], since where everything is cached a deep queue is only work.
//!
//! A device that was idle for a second is sampled again: the next files may lie differently.
//!
//! The papers fix the depth (five prefetches in flight for each disk, TIP 1995, section 5). Behind a page cache the
//! number of disks is not known. `docs/internals/policy.md` shows what this is worth beside fixed depths.
//!
//! Not here: how many requests a device serves at once, as measured over a longer time (`Load` in `device.rs`); and overdue
//! lookups, which do not count against the depth.
//!
//! Limits: an answer is for the whole list, unless the device rests; a list whose files further on lie differently is not
//! sampled again. Completions are counted, not bytes: files of many clusters on one disk may be taken for a device that goes
//! deep.
//!
//! Cost: O([`SAMPLE_MAX`]) a completion while it samples, then O(1).

#[cfg(test)]
mod tests;

use crate::time::Nanos;

/// Fewest lookups of a sample: fewer are too often in order by chance.
/// Unit: fetches. Reason: measured (test table_of_depths).
const SAMPLE_MIN: usize = 8;

/// Most lookups of a sample: more would show little more.
/// Unit: fetches. Reason: measured (test table_of_depths).
pub(crate) const SAMPLE_MAX: usize = 16;

/// Fewest fetches of data whose order counts. All but the last of the smallest sample begin before its end.
/// Unit: fetches. Reason: measured (test table_of_depths).
const FOUND_MIN: usize = SAMPLE_MIN - 1;

/// A sample is at most this part of the names, as a divisor, but at least [`SAMPLE_MIN`].
/// Unit: ratio. Reason: measured (test table_of_depths).
const SAMPLE_DIVISOR: usize = 24;

/// Depth until data was fetched (C), and for at most [`SAMPLE_MIN`] names.
/// Unit: fetches. Reason: judgement.
pub(crate) const DEPTH_FIRST: usize = 32;

/// Depth where lookups must not run ahead (B).
/// Unit: fetches. Reason: measured (test table_of_depths).
const DEPTH_SHALLOW: usize = 2;

/// Fetches complete in order if fewer than this share of their pairs are inverted. In a random order it is half of them, and
/// less than this in one of 30 orders of eight, and one of 300 orders of 16.
/// Unit: ratio. Reason: measured (test table_of_depths).
const IN_ORDER: f64 = 0.25;

/// Completions in order have come together, as from a server with latency, if one took as long as this many more after it. The
/// arm of a disk gets anywhere in the time of about ten.
/// Unit: ratio. Reason: measured (test table_of_depths).
const TOGETHER: f64 = 24.0;

/// With two fetches at a time, completions are rarer than in the sample if their rate is lower by this factor.
/// Unit: ratio. Reason: judgement.
const RARER: f64 = 1.15;

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
    /// Whether a fetch has brought data (C).
    has_fetched: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// A
    Sample(Sample),
    /// B
    Shallow(Watch),
    /// C
    Deep,
}

/// Completions per second.
type Rate = f64;

/// The first lookups of a device that was idle, all in flight together.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// The most names known at once, whose lookups have begun in it or are to come.
    names: usize,
    /// When the first lookup began.
    since: Nanos,
    /// How many lookups it has begun, and how many of them were answered from memory.
    begun: usize,
    at_hand: usize,
    /// How long each of the other lookups took.
    times: Vec<Nanos>,
    /// Numbers of the lookups in flight.
    in_flight: Vec<u64>,
    /// Pairs of lookups of which the later one completed first.
    inversions: usize,
    /// The order of the data that these lookups found.
    data: Order,
}

/// What may still show that a sample misled (B).
#[derive(Clone, Debug)]
struct Watch {
    /// When the sample ended, and its rate.
    until: Nanos,
    rate: Rate,
    /// The order of the data whose fetches began before.
    data: Order,
    /// Completions since.
    tally: Tally,
}

impl Watch {
    fn after(sample: &Sample, now: Nanos) -> Self {
        let completions = sample.times.len() + sample.data.completed.len();
        let in_sample = Tally { since: sample.since, completions, left_over: 0 };
        let tally =
            Tally::after(sample.times.len().saturating_sub(sample.data.completed.len()), now);
        Watch { until: now, rate: in_sample.rate(now), data: sample.data.clone(), tally }
    }

    /// A fetch of this `number`, which `began` then, has completed. Returns whether it shows that the sample misled.
    fn add(&mut self, now: Nanos, (number, began): (u64, Nanos), purpose: Purpose) -> bool {
        if purpose != Purpose::Lookup && began <= self.until {
            self.data.add(number);
        }
        let size = self.data.completed.len();
        let has_no_order = size >= FOUND_MIN && is_random(self.data.inversions, size);
        // Where lookups ran ahead, fewer of them do not make completions rarer.
        let is_rarer =
            self.tally.add(now) == SAMPLE_MIN && RARER * self.tally.rate(now) < self.rate;
        has_no_order || is_rarer
    }
}

/// The order in which fetches complete.
#[derive(Clone, Debug, Default)]
struct Order {
    /// Numbers of those that have completed.
    completed: Vec<u64>,
    /// Pairs of which the later one completed first.
    inversions: usize,
}

impl Order {
    fn add(&mut self, number: u64) {
        self.inversions += self.completed.iter().filter(|&&earlier| earlier > number).count();
        self.completed.push(number);
    }
}

/// Whether `size` fetches with so many `inversions` complete in no order, by Kendall's rank correlation.
fn is_random(inversions: usize, size: usize) -> bool {
    let pairs = size * size.saturating_sub(1) / 2;
    inversions as f64 >= IN_ORDER * pairs.max(1) as f64
}

/// Completions from a moment on.
#[derive(Clone, Copy, Debug)]
struct Tally {
    since: Nanos,
    completions: usize,
    /// Completions before it begins, of data that a sample has found.
    left_over: usize,
}

impl Tally {
    fn after(left_over: usize, now: Nanos) -> Self {
        Tally { since: now, completions: 0, left_over }
    }

    /// One more completion. Returns how many count.
    fn add(&mut self, now: Nanos) -> usize {
        match self.left_over {
            0 => self.completions += 1,
            _ => (self.left_over, self.since) = (self.left_over - 1, now),
        }
        self.completions
    }

    /// Infinite if all were reported at one time.
    fn rate(self, until: Nanos) -> Rate {
        self.completions as f64 / until.saturating_sub(self.since).as_secs()
    }
}

impl Sample {
    /// Such a number of names is left to look up.
    fn knows(&mut self, names_left: usize) {
        self.names = self.names.max(self.begun + names_left);
    }

    /// How many lookups it is to have, and the most fetches in flight.
    fn size(&self) -> usize {
        match self.names {
            0..=SAMPLE_MIN => DEPTH_FIRST, // They cost little in any order.
            names => (names / SAMPLE_DIVISOR).clamp(SAMPLE_MIN, SAMPLE_MAX),
        }
    }

    /// A lookup has completed after this time.
    fn add_lookup(&mut self, number: u64, took: Nanos) {
        let Some(place) = self.in_flight.iter().position(|&other| other == number) else { return };
        self.in_flight.remove(place);
        if took < WAITED {
            self.at_hand += 1;
        } else {
            self.inversions += self.in_flight.iter().filter(|&&other| other < number).count();
            self.times.push(took);
        }
    }

    /// Whether all of its lookups have completed.
    fn has_ended(&self) -> bool {
        self.times.len() + self.at_hand >= self.size()
    }

    /// Whether a deep queue cannot hurt.
    fn is_deep(&self) -> bool {
        // Lookups that cost nothing, or that are few beside the data, cannot run ahead of it.
        let ended = self.times.len() + self.at_hand;
        let costs_nothing =
            2 * self.at_hand > self.size() || self.data.completed.len() >= ended + SAMPLE_MAX;
        let is_random = is_random(self.inversions, self.size().saturating_sub(self.at_hand));
        costs_nothing || is_random || (self.has_ended() && self.is_together())
    }

    /// Whether the lookups have waited for something else than for one another: the first took as long as many more. The second
    /// shortest time is taken, for one file may have been on the arm's way.
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
        DepthControl { phase: Phase::Sample(Sample::default()), has_fetched: false }
    }
}

impl DepthControl {
    /// Most fetches that may be in flight, overdue lookups aside.
    pub(crate) fn depth(&self) -> usize {
        match &self.phase {
            Phase::Sample(sample) => sample.size(),
            Phase::Shallow(_) => DEPTH_SHALLOW,
            Phase::Deep if self.has_fetched => usize::MAX,
            Phase::Deep => DEPTH_FIRST,
        }
    }

    /// The same for a lookup. A sample is decided before there are more lookups, which would run ahead of the data.
    pub(crate) fn lookup_depth(&self) -> usize {
        match &self.phase {
            Phase::Sample(sample) if sample.begun >= sample.size() => 0,
            _ => self.depth(),
        }
    }

    /// A fetch begins on a device that was idle for this long.
    pub(crate) fn begins_after(&mut self, idle: Nanos) {
        let begins_again = match &self.phase {
            Phase::Sample(sample) => idle > STILL || sample.begun == 0,
            _ => idle > LONG_STILL,
        };
        if begins_again {
            self.phase = Phase::Sample(Sample::default());
        }
    }

    /// A lookup of this `number`, in the order in which fetches begin, begins. `names_left` are to be looked up after it.
    pub(crate) fn lookup_begins(&mut self, now: Nanos, number: u64, names_left: usize) {
        if let Phase::Sample(sample) = &mut self.phase {
            // Lookups that wait one after another, as names trickle in, show nothing.
            if sample.in_flight.is_empty() && !sample.times.is_empty() {
                *sample = Sample::default();
            }
            if sample.begun == 0 {
                sample.since = now;
            }
            sample.begun += 1;
            sample.in_flight.push(number);
            sample.knows(names_left);
        }
    }

    /// A lookup is overdue. It may never complete, and a sample does not wait for it.
    pub(crate) fn lookup_is_overdue(&mut self) {
        if matches!(self.phase, Phase::Sample(_)) {
            self.phase = Phase::Deep;
        }
    }

    /// Nothing has ended for a while. What is in flight may be stuck, and must not hold up the rest.
    pub(crate) fn stands_still(&mut self) {
        self.phase = Phase::Deep;
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
        let took = now.saturating_sub(began);
        match &mut self.phase {
            Phase::Sample(sample) => {
                sample.knows(names_left);
                match purpose {
                    Purpose::Lookup => sample.add_lookup(number, took),
                    Purpose::Data { .. } if took >= WAITED => sample.data.add(number),
                    Purpose::Data { .. } => {}
                }
                if sample.is_deep() {
                    self.phase = Phase::Deep;
                } else if sample.has_ended() {
                    self.phase = Phase::Shallow(Watch::after(sample, now));
                }
            }
            Phase::Shallow(watch) if took >= WAITED => {
                if watch.add(now, (number, began), purpose) {
                    self.phase = Phase::Deep;
                }
            }
            Phase::Shallow(_) | Phase::Deep => {}
        }
    }
}
