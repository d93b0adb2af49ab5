//! How many fetches a device is given at once.
//!
//! Deeper is mostly better: an array works with all its disks, a disk sorts its queue. Not on a single
//! disk on which each file lies beside its inode: there lookups that run ahead of the data make the arm
//! pass over everything twice, and two fetches at a time, one file's data beside the next one's lookup,
//! are the best. What a device is like cannot be asked, but its rate of completions can be measured:
//!
//! * **A.** Begin with [`DEPTH_FIRST`] until a fetch brought something that was not in memory: where
//!   everything is cached, a deep queue is work for nothing.
//! * **B.** *Trial*: go on with it for [`TRIAL`] completions, so that there are lookups and data among them,
//!   and note the rate. By Little's law the rate times the time of a fetch without a queue is how many the
//!   device works on at once ([`Trial::servers`]). With [`MANY`] or more it is no single disk, and the queue may be as
//!   deep as it likes (D). That time is known only if the device had nothing to do before.
//! * **C.** *Probe*: let the queue drain and fetch at [`DEPTH_SHALLOW`]. The lookups of the trial have run ahead, and what
//!   comes first is data alone, which may lose the probe and not win it: what counts are [`PROBE`] fetches from the first lookup
//!   on. It is lost as soon as it lags behind, as many disks do of which two work. A probe costs as much as some 30 fetches,
//!   and mostly is lost: with fewer than [`NAMES_LEAST`] names left B begins again.
//! * **D.** If the probe was clearly faster, stay shallow, and after a while begin with B again: the
//!   fetches may be of another kind by then. If it was not, the queue may be as deep as it likes.
//!
//! A device that stands still says nothing of its rate: then B begins again, also out of C.
//!
//! A lookup that is overdue (`device.rs`) is not counted against the depth: it may never end, and a probe
//! ends by completions alone.
//!
//! The papers fix the depth (five prefetches outstanding for each disk, TIP 1995, section 5); behind a
//! page cache the number of disks is not known. This is a safeguard for the order of lookups and data,
//! not the cost-benefit of eq. 6.
//!
//! *Not* `Load` of `device.rs`, which says how many a device works on at once, too: it knows of data alone, and of
//! much of that before it says so. Here lookups come first, and all is decided in the first moments.
//!
//! Cost: O(1) a completion, a few words a device; in a trial up to 64 times, sorted a few dozen times; and O(streams)
//! a completion where it matters how many names are left.

use crate::time::Nanos;

/// Depth until it is known what the device is like (A, B).
pub(crate) const DEPTH_FIRST: usize = 32;

/// Completions of a trial (B), and those after which it may end early.
const TRIAL: usize = 80;
const TRIAL_LEAST: usize = 16;

/// A device that works on so many at once needs a deep queue (B). One disk seems to work on two to four: its first fetches have the
/// arm's way there in them, and the second or third of them a turn of the queue.
const MANY: f64 = 6.0;

/// Times that are remembered of a trial: of its first fetches.
const TIMES_MAX: usize = 64;

/// A device that had nothing to do for longer has stood still. Less passes between a completion and the next fetch.
const STILL: Nanos = Nanos(1_000_000);

/// Depth while probing (C).
const DEPTH_SHALLOW: usize = 2;

/// Fetches of a probe. The first few, which have the arm's way there in them, do not count.
const PROBE: usize = 24;
const PROBE_FIRST: usize = 4;

/// Fetches of data in a row, in a probe, after which they are what there is, and not what the trial has left.
const DATA_MOST: usize = 256;

/// Names left to be looked up for which it is worth while to probe (C).
const NAMES_LEAST: usize = 128;

/// A probe whose rate is that of the trial by this factor has won.
const WIN: f64 = 1.15;

/// A probe has lost when it is so many fetches behind what this part of the trial's rate would have brought: more than a lost
/// revolution is.
const LAG_MAX: f64 = 8.0;
const HOPELESS: f64 = 0.7;

/// Completions to stay shallow before the next trial (D).
const SHALLOW_SPAN: usize = 2048;

/// A fetch that took less did not wait for a device.
const WAITED: Nanos = Nanos(100_000);

/// What a fetch that has completed was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Lookup,
    /// Of data, which it brought, or was in memory.
    Data {
        fetched: bool,
    },
}

/// The depth of one device; see the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct DepthControl {
    phase: Phase,
    /// Whether a fetch has brought something (A).
    has_fetched: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// A and B
    Trial(Trial),
    /// C: entered at `since`, with fetches under way that have to drain.
    Probe { deep_rate: f64, since: Nanos, sample: Sample },
    /// D, probe won.
    Shallow { left: usize },
    /// D, probe lost, or none needed.
    Deep,
}

impl Default for Phase {
    fn default() -> Self {
        Phase::Trial(Trial::of_idle_device())
    }
}

/// Fetches of a trial that have completed and waited for the device.
#[derive(Clone, Debug, Default)]
struct Trial {
    /// When the first of them began.
    began: Option<Nanos>,
    completions: usize,
    /// What each took, if the device had nothing to do before.
    times: Option<Vec<Nanos>>,
}

/// Fetches of a probe that have completed.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Whether they are of both kinds, as far as both are left.
    counts: bool,
    completions: usize,
    /// When the last of the first few completed.
    settled: Option<Nanos>,
}

impl Sample {
    fn add(&mut self, now: Nanos, counts: bool) {
        if !self.counts && (counts || self.completions >= DATA_MOST) {
            *self = Sample { counts: true, ..Sample::default() };
        }
        self.completions += 1;
        if self.completions == PROBE_FIRST {
            self.settled = Some(now);
        }
    }

    /// Whether the probe was won, once that is clear.
    fn verdict(&self, now: Nanos, deep_rate: f64) -> Option<bool> {
        let settled = self.settled?;
        let counted = self.completions - PROBE_FIRST;
        if self.counts && self.completions >= PROBE {
            return Some(rate(counted, settled, now)? > WIN * deep_rate);
        }
        let expected = HOPELESS * deep_rate * now.saturating_sub(settled).as_secs();
        (expected - counted as f64 >= LAG_MAX).then_some(false)
    }
}

impl DepthControl {
    /// Most fetches that may be under way, overdue lookups aside.
    pub(crate) fn depth(&self) -> usize {
        match self.phase {
            Phase::Trial(_) => DEPTH_FIRST,
            Phase::Probe { .. } | Phase::Shallow { .. } => DEPTH_SHALLOW,
            Phase::Deep => usize::MAX,
        }
    }

    /// A fetch begins on a device that has had nothing to do for so long.
    pub(crate) fn begins_after(&mut self, idle: Nanos) {
        if idle > STILL && matches!(self.phase, Phase::Trial(_) | Phase::Probe { .. }) {
            self.phase = Phase::Trial(Trial::of_idle_device());
        }
    }

    /// A fetch that began at `started` has completed; `names_left` is how many there still are to be looked up.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        started: Nanos,
        purpose: Purpose,
        names_left: impl Fn() -> usize,
    ) {
        self.has_fetched |= purpose == (Purpose::Data { fetched: true });
        let took = now.saturating_sub(started);
        if took < WAITED {
            return;
        }
        let next = match &mut self.phase {
            Phase::Trial(trial) => {
                trial.add(started, took);
                match trial.verdict(now).filter(|_| self.has_fetched) {
                    Some(Phase::Probe { .. }) if names_left() < NAMES_LEAST => {
                        Some(Phase::Trial(Trial::default()))
                    }
                    next => next,
                }
            }
            Phase::Probe { since, .. } if started < *since => None, // From before: draining.
            Phase::Probe { deep_rate, sample, .. } => {
                sample.add(now, purpose == Purpose::Lookup || names_left() == 0);
                let verdict = sample.verdict(now, *deep_rate);
                verdict.map(|is_won| match is_won {
                    true => Phase::Shallow { left: SHALLOW_SPAN },
                    false => Phase::Deep,
                })
            }
            // To stay so until there is enough for another trial and probe.
            Phase::Shallow { left: 0 } => {
                let is_enough = names_left() >= NAMES_LEAST + TRIAL;
                is_enough.then(|| Phase::Trial(Trial::default()))
            }
            Phase::Shallow { left } => {
                *left -= 1;
                None
            }
            Phase::Deep => None,
        };
        if let Some(next) = next {
            self.phase = next;
        }
    }
}

impl Trial {
    fn of_idle_device() -> Self {
        Trial { times: Some(Vec::new()), ..Trial::default() }
    }

    fn add(&mut self, started: Nanos, took: Nanos) {
        self.began = Some(self.began.map_or(started, |began| began.min(started)));
        self.completions += 1;
        if let Some(times) = self.times.as_mut().filter(|times| times.len() < TIMES_MAX) {
            times.push(took);
        }
    }

    /// What follows on it, once that is clear.
    fn verdict(&self, now: Nanos) -> Option<Phase> {
        if self.completions < TRIAL_LEAST {
            return None;
        }
        let rate = rate(self.completions, self.began?, now)?;
        if self.servers(rate).is_some_and(|servers| servers >= MANY) {
            return Some(Phase::Deep);
        }
        let (deep_rate, since, sample) = (rate, now, Sample::default());
        (self.completions >= TRIAL).then_some(Phase::Probe { deep_rate, since, sample })
    }

    /// How many the device works on at once, if that can be told. The time of a fetch without a queue is among the shortest:
    /// those that were in memory all the same are shorter, and what lay on the arm's way may be. So it is
    /// the shortest but one of those that are no less than a 16th of the median: of 32 fetches that one server does one after another
    /// the median takes 16 services.
    fn servers(&self, rate: f64) -> Option<f64> {
        let mut times = self.times.clone()?;
        times.sort_unstable();
        let least = Nanos(times.get(times.len() / 2)?.0 / (DEPTH_FIRST as u64 / 2));
        let unqueued = times.iter().filter(|&&time| time >= least).nth(1)?;
        Some(rate * unqueued.as_secs())
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
    const FETCHED: Purpose = Purpose::Data { fetched: true };

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
            let purpose = if begun % 2 == 0 { Purpose::Lookup } else { FETCHED };
            control.completed(Nanos(end), Nanos(started), purpose, || fetches - begun);
        }
        (Nanos(now), control)
    }

    #[test]
    fn an_array_loses_no_more_than_a_few_service_times() {
        let jitter = |depth: usize| SERVICE + (depth as u64 * 7_919) % 1_000_000;
        let (elapsed, control) = drive(4000, 100, jitter);
        assert_eq!(control.depth(), usize::MAX);
        // At full depth from the first to the last it would be 40 to 44 service times.
        assert!(elapsed < Nanos(46 * SERVICE), "{elapsed}");
    }

    fn servers(times_ms: impl IntoIterator<Item = f64>, rate: f64) -> Option<f64> {
        let times = times_ms.into_iter().map(|ms| Nanos((ms * 1e6) as u64)).collect();
        Trial { times: Some(times), ..Trial::default() }.servers(rate)
    }

    #[test]
    fn what_was_in_memory_after_all_is_no_service() {
        // One server does one after another; of many each takes its time.
        let one = servers((1..=32).map(|turn| 10.0 * f64::from(turn)), 100.0);
        assert!(one.is_some_and(|servers| (1.0..=3.0).contains(&servers)), "{one:?}");
        let many = servers([0.4, 25.0, 18.0, 31.0], 400.0);
        assert!(many.is_some_and(|servers| (servers - 10.0).abs() < 1e-9), "{many:?}");
        assert_eq!(servers([], 400.0), None);
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
        // The trial and what it left in the queue are slow: some 110 fetches.
        assert!(elapsed < Nanos(2130 * SERVICE), "{elapsed}");
    }

    /// The depth after a probe whose first `data` fetches are data of names that were looked up before, each of which takes
    /// `data_ns`, and then lookups and data of half a service each.
    fn probed(data: usize, data_ns: u64, names_left: usize) -> usize {
        let (mut control, mut now) = (DepthControl::default(), 0);
        let mut one = |control: &mut DepthControl, took, purpose, names: usize| {
            now += took;
            control.completed(Nanos(now), Nanos(now - took), purpose, || names);
        };
        while control.depth() == DEPTH_FIRST {
            one(&mut control, SERVICE, FETCHED, NAMES_LEAST);
        }
        assert_eq!(control.depth(), DEPTH_SHALLOW);
        (0..data).for_each(|_| one(&mut control, data_ns, FETCHED, names_left));
        for _ in 0..PROBE {
            one(&mut control, SERVICE / 2, Purpose::Lookup, names_left);
            one(&mut control, SERVICE / 2, FETCHED, names_left);
        }
        control.depth()
    }

    #[test]
    fn data_of_names_looked_up_before_says_nothing_of_both() {
        assert_eq!(probed(PROBE, SERVICE, 1), DEPTH_SHALLOW, "both are twice as fast");
        assert_eq!(probed(PROBE, SERVICE, 0), usize::MAX, "there is nothing but data");
        assert_eq!(probed(DATA_MOST + PROBE, SERVICE, 1), usize::MAX, "nor anything else soon");
        assert_eq!(probed(PROBE, 2 * SERVICE, 1), usize::MAX, "it has lagged behind");
    }

    /// One fetch after another of a device that does `batch` of them, one by one, before anybody hears of it.
    fn one_by_one(
        control: &mut DepthControl,
        fetches: u64,
        batch: u64,
        began: u64,
        names: usize,
    ) -> u64 {
        for fetch in 0..fetches {
            let heard = began + (fetch / batch + 1) * batch * SERVICE + fetch % batch * 10_000;
            let started = heard.saturating_sub(32 * SERVICE).max(began);
            control.completed(Nanos(heard), Nanos(started), FETCHED, || names);
        }
        began + fetches.next_multiple_of(batch) * SERVICE
    }

    #[test]
    fn a_short_list_is_not_probed_and_a_long_one_after_it_is() {
        let mut control = DepthControl::default();
        let end = one_by_one(&mut control, 200, 1, 0, NAMES_LEAST - 1);
        assert_eq!(control.depth(), DEPTH_FIRST);
        one_by_one(&mut control, 200, 1, end, NAMES_LEAST);
        assert_eq!(control.depth(), DEPTH_SHALLOW);
    }

    #[test]
    fn many_heard_of_at_once_are_not_many_servers() {
        // Of twenty nobody can tell them from that: services may be as long.
        for batch in [1, 2, 5] {
            let mut control = DepthControl::default();
            one_by_one(&mut control, TRIAL as u64, batch, 0, 1000);
            assert_eq!(control.depth(), DEPTH_SHALLOW, "{batch}: a probe");
        }
    }

    #[test]
    fn a_device_that_stands_still_is_tried_again() {
        let mut control = DepthControl::default();
        let end = one_by_one(&mut control, TRIAL as u64 - 1, 1, 0, 1000);
        control.begins_after(STILL);
        assert!(matches!(&control.phase, Phase::Trial(trial) if trial.completions > 0));
        control.begins_after(Nanos(SERVICE));
        assert!(matches!(&control.phase, Phase::Trial(trial) if trial.completions == 0));
        let end = one_by_one(&mut control, TRIAL as u64, 1, end + 100 * SERVICE, 1000);
        let Phase::Probe { deep_rate, .. } = control.phase else { panic!("{control:?}") };
        assert!((deep_rate * Nanos(SERVICE).as_secs() - 1.0).abs() < 0.01, "{deep_rate}");
        control.begins_after(Nanos(end));
        assert_eq!(control.depth(), DEPTH_FIRST);
    }

    #[test]
    fn what_stays_shallow_is_tried_again_if_it_is_worth_while() {
        let (mut control, mut now) = (DepthControl::default(), 0);
        let mut one = |control: &mut DepthControl, took, names: usize| {
            now += took;
            control.completed(Nanos(now), Nanos(now - took), FETCHED, || names);
        };
        while control.depth() == DEPTH_FIRST {
            one(&mut control, SERVICE, NAMES_LEAST);
        }
        for _ in 0..DATA_MOST + PROBE + SHALLOW_SPAN + 100 {
            one(&mut control, SERVICE / 2, NAMES_LEAST + TRIAL - 1);
        }
        assert_eq!(control.depth(), DEPTH_SHALLOW);
        one(&mut control, SERVICE / 2, NAMES_LEAST + TRIAL);
        assert_eq!(control.depth(), DEPTH_FIRST);
    }

    #[test]
    fn where_nothing_is_fetched_the_queue_stays_short() {
        let mut control = DepthControl::default();
        for index in 1..1000 {
            let cached = Purpose::Data { fetched: false };
            control
                .completed(Nanos(index * SERVICE), Nanos((index - 1) * SERVICE), cached, || 1000);
        }
        assert_eq!(control.depth(), DEPTH_FIRST);
    }

    #[test]
    fn answers_from_memory_say_nothing_of_the_device() {
        let mut control = DepthControl::default();
        for index in 1..1000 {
            control.completed(Nanos(index * 1000), Nanos(index * 1000 - 500), FETCHED, || 1000);
        }
        assert!(matches!(&control.phase, Phase::Trial(trial) if trial.completions == 0));
    }
}
