//! How many fetches a device is given at once.
//!
//! A deeper queue is usually better: an array uses all its disks, and a disk sorts its queue. The exception is a single disk on
//! which each file lies beside its inode. There, lookups that run ahead of the data make the arm pass over everything twice.
//! Two fetches at a time are best: one file's data beside the next one's lookup. A device does not say which kind it is, but
//! its rate of completions can be measured:
//!
//! * **A.** *Sample*: begin with [`DEPTH_SAMPLE`] at a time. By Little's law, the rate of completions times the time of a fetch
//!   without a queue is the number of requests served at once ([`Sample::servers`]). With [`MANY`] or more it is no single
//!   disk, and the depth is unlimited (C). That time is known only if the device was idle before, and it may include the arm's
//!   way to the first files. So the number is not believed if fetches end one after another in the order in which they began,
//!   as for files in order on one disk. It is believed after all if nearly all of them end together.
//! * **B.** *Probe*: fetch the data of the names that the sample looked up, at the same depth, and count it with the sample.
//!   This includes what lookups that ran ahead have cost. Then fetch lookups and data at [`DEPTH_SHALLOW`] for [`PROBE`]
//!   fetches. The probe is lost at once if its rate is far below the one before, as with many disks of which two work.
//! * **C.** If the probe was not clearly faster, the depth is unlimited. Until a fetch has brought a block that was not in
//!   memory it stays at [`DEPTH_SAMPLE`]: where everything is cached, a deep queue is useless work.
//! * **D.** If the probe was clearly faster, stay shallow, and after some completions begin with A again. The fetches may have
//!   changed by then, and the very first ones may have been slower than others. Each time, D lasts twice as long.
//!
//! A device that is idle for a moment shows nothing of its rate. Then A begins again, also out of B. After a longer pause it
//! begins again out of D too, since the next fetches may be another program's.
//!
//! An overdue lookup (`device.rs`) does not count against the depth. It may never end, and a probe ends by completions alone.
//!
//! The papers fix the depth (five prefetches outstanding per disk, TIP 1995, section 3.1). Behind a page cache the number of
//! disks is unknown. This module only guards the order of lookups and data. The cost-benefit comparison of eq. 6 is made
//! elsewhere.
//!
//! *Not* `Load` of `device.rs`, which also says how many requests a device serves at once. `Load` looks at data alone and needs
//! much of it. Here lookups come first, and the first moments decide.
//!
//! Cost: O(1) per completion and a few words per device; in a sample [`SAMPLE`] times, sorted a few times. Where the number of
//! names left matters, O(streams) per completion.

#[cfg(test)]
mod tests;

use crate::time::Nanos;

/// Depth of a sample (A), and of C until a fetch brought something.
/// Unit: requests. Reason: judgement.
pub(crate) const DEPTH_SAMPLE: usize = 32;

/// Depth while probing (B), and if that was faster (D).
/// Unit: requests. Reason: judgement.
const DEPTH_SHALLOW: usize = 2;

/// Fetches of a sample.
/// Unit: requests. Reason: judgement.
const SAMPLE: usize = 32;
/// Fetches after which a sample may end early.
/// Unit: requests. Reason: judgement.
const SAMPLE_LEAST: usize = 16;
/// First fetches of a sample that do not count for the rate that a probe is compared with. One may have been answered from
/// memory, and the next includes the arm's way to the files.
/// Unit: requests. Reason: judgement.
const SAMPLE_FIRST: usize = 2;

/// A device that serves this many requests at once needs a deep queue (A). One disk seems to serve two to four: its first
/// fetches include the arm's way, and the second or third of them a turn of the queue.
/// Unit: requests. Reason: judgement.
const MANY: f64 = 6.0;

/// Share of a sample's fetches that must begin after the one that ended before them, for the sample to count as in order. In
/// random order it is half.
/// Unit: ratio. Reason: judgement.
const IN_ORDER: f64 = 0.75;

/// Share of a sample's fetches that must seem to be served at once, for them to count as ending together.
/// Unit: ratio. Reason: judgement.
const TOGETHER: f64 = 0.75;

/// Fetches of a probe.
/// Unit: requests. Reason: judgement.
const PROBE: usize = 18;
/// First fetches of a probe that do not count for its rate.
/// Unit: requests. Reason: judgement.
const PROBE_FIRST: usize = 2;

/// Fetches of data after a sample that may count as left over from it. Any more are the program's usual load and begin the
/// probe.
/// Unit: requests. Reason: judgement.
const LEFT_MOST: usize = 256;

/// A probe is lost early if its rate is below this part of the rate before it.
/// Unit: ratio. Reason: judgement.
const HOPELESS: f64 = 0.6;
/// Fetches after the first few from which on a probe may be lost early.
/// Unit: requests. Reason: judgement.
const HOPELESS_AFTER: usize = 4;

/// A rate higher by this factor is clearly faster.
/// Unit: ratio. Reason: judgement.
const WIN: f64 = 1.15;

/// Fetches of a probe that did not wait for the device, after which it is fast enough for any depth.
/// Unit: requests. Reason: judgement.
const AT_HAND_MOST: usize = 64;

/// Completions to stay shallow before the next sample (D), the first time.
/// Unit: requests. Reason: judgement.
const SHALLOW_SPAN: usize = 256;
/// The same at most.
/// Unit: requests. Reason: judgement.
const SHALLOW_SPAN_MAX: usize = 2048;

/// Another sample is not worth while if fewer names than this, but some, are left to look up (D).
/// Unit: hints. Reason: judgement.
const NAMES_LEAST: usize = 128;

/// A device that was idle for longer has stood still. Between a completion and the next fetch less time passes.
/// Unit: ns. Reason: judgement.
const STILL: Nanos = Nanos(1_000_000);

/// After a longer idle time nothing known of the device counts any more, unless its queue is deep.
/// Unit: ns. Reason: judgement.
const LONG_STILL: Nanos = Nanos(1_000_000_000);

/// A fetch that took less time did not wait for the device.
/// Unit: ns. Reason: judgement.
const WAITED: Nanos = Nanos(100_000);

/// The purpose of a completed fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Lookup,
    /// Data. `fetched` says whether the fetch brought it or it was in memory.
    Data {
        fetched: bool,
    },
}

/// The depth of one device; see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct DepthControl {
    phase: Phase,
    /// Whether a fetch has brought data that was not in memory (C).
    has_fetched: bool,
    /// Completions for which it will stay shallow when a probe is next won (D).
    span: usize,
}

#[derive(Clone, Debug)]
enum Phase {
    /// A
    Sample(Sample),
    /// B
    Probe(Probe),
    /// D
    Shallow { left: usize },
    /// C
    Deep,
}

/// Completions since a moment.
#[derive(Clone, Copy, Debug)]
struct Tally {
    since: Nanos,
    completions: usize,
}

impl Tally {
    fn from(since: Nanos) -> Self {
        Tally { since, completions: 0 }
    }

    /// Completions per second; infinite if all were reported at one time.
    fn rate(self, until: Nanos) -> f64 {
        self.completions as f64 / until.saturating_sub(self.since).as_secs()
    }
}

/// The completed fetches of a sample, without those that did not wait for the device.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// When the earliest of them began.
    began: Option<Nanos>,
    /// The time that each took.
    times: Vec<Nanos>,
    /// Completions after the first few.
    tally: Option<Tally>,
    /// Number of the last one, in the order in which fetches begin; and how many have a higher number than the one that ended
    /// before them.
    last: u64,
    in_order: usize,
    /// Whether the device was idle before.
    is_from_idle: bool,
}

impl Sample {
    fn of_idle_device() -> Self {
        Sample { is_from_idle: true, ..Sample::default() }
    }

    /// Adds a completed fetch that waited. Returns the next phase once that is clear.
    fn add(&mut self, now: Nanos, started: Nanos, number: u64) -> Option<Phase> {
        self.in_order += usize::from(number > self.last);
        self.last = number;
        let began = self.began.map_or(started, |began| began.min(started));
        self.began = Some(began);
        self.times.push(now.saturating_sub(started));
        let Some(tally) = &mut self.tally else {
            self.tally = (self.times.len() >= SAMPLE_FIRST).then(|| Tally::from(now));
            return None;
        };
        tally.completions += 1;
        let tally = *tally;
        let all = Tally { since: began, completions: self.times.len() };
        match all.completions {
            0..SAMPLE_LEAST => None,
            _ if self.are_many(all.rate(now)) => Some(Phase::Deep),
            SAMPLE_LEAST..SAMPLE => None,
            _ => {
                // If shallow was faster before, it is left only if it is clearly slower now.
                let wins_by = if self.is_from_idle { WIN } else { 1.0 / WIN };
                Some(Phase::Probe(Probe::after(tally, now, wins_by)))
            }
        }
    }

    /// Whether the device serves many requests at once.
    fn are_many(&self, rate: f64) -> bool {
        let (servers, completions) = (self.servers(rate), self.times.len() as f64);
        let is_in_order = self.in_order as f64 >= IN_ORDER * completions;
        servers >= MANY && (!is_in_order || servers >= TOGETHER * completions)
    }

    /// Requests that the device serves at once; 0 if unknown. The time of a fetch without a queue is among the shortest, but
    /// fetches answered from memory are shorter, and one on the arm's way may be. So it is the second shortest of the times
    /// that are at least a 16th of the median: if one server takes 32 fetches in turn, the median is 16 services.
    fn servers(&self, rate: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        let least = Nanos(times[times.len() / 2].0 / (DEPTH_SAMPLE as u64 / 2));
        let unqueued = times.into_iter().filter(|&time| time >= least).nth(1);
        unqueued.filter(|_| self.is_from_idle).map_or(0.0, |unqueued| unqueued.as_secs() * rate)
    }
}

/// The completed fetches of a probe, and those before it.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// When the sample ended, and the factor by which the probe has to be faster.
    since: Nanos,
    wins_by: f64,
    /// The sample with the data that it looked up; how many of these completed after the sample, and when the last one did.
    before: Tally,
    left: usize,
    before_until: Nanos,
    /// Whether the probe's own fetches have begun to complete; how many have, and those after the first few.
    is_open: bool,
    completions: usize,
    own: Option<Tally>,
    /// Fetches that did not wait for the device.
    at_hand: usize,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Won,
    Lost,
}

impl Probe {
    fn after(sample: Tally, now: Nanos, wins_by: f64) -> Self {
        Probe {
            since: now,
            wins_by,
            before: sample,
            left: 0,
            before_until: now,
            is_open: false,
            completions: 0,
            own: None,
            at_hand: 0,
        }
    }

    /// Adds a completed fetch. Returns the verdict once that is clear. `is_data` is set for data while names are left to look
    /// up.
    fn add(&mut self, now: Nanos, started: Nanos, is_data: bool) -> Option<Verdict> {
        // The probe begins with a lookup that was begun after the sample.
        let is_left = started <= self.since || (is_data && self.left < LEFT_MOST);
        self.is_open |= !is_left;
        if now.saturating_sub(started) < WAITED {
            self.at_hand += 1;
            return (self.at_hand >= AT_HAND_MOST).then_some(Verdict::Lost);
        }
        if !self.is_open {
            self.left += 1;
            self.before.completions += 1;
            self.before_until = now;
            return None;
        }
        self.completions += 1;
        let Some(own) = &mut self.own else {
            self.own = (self.completions >= PROBE_FIRST).then(|| Tally::from(now));
            return None;
        };
        own.completions += 1;
        let (before, rate) = (self.before.rate(self.before_until), own.rate(now));
        if own.completions >= HOPELESS_AFTER && rate < HOPELESS * before {
            return Some(Verdict::Lost);
        }
        (self.completions >= PROBE).then_some(match rate > self.wins_by * before {
            true => Verdict::Won,
            false => Verdict::Lost,
        })
    }
}

impl Default for DepthControl {
    fn default() -> Self {
        let phase = Phase::Sample(Sample::of_idle_device());
        DepthControl { phase, has_fetched: false, span: SHALLOW_SPAN }
    }
}

impl DepthControl {
    /// The most fetches that may be in flight, without overdue lookups.
    pub(crate) fn depth(&self) -> usize {
        match &self.phase {
            Phase::Sample(_) => DEPTH_SAMPLE,
            Phase::Probe(probe) if !probe.is_open => DEPTH_SAMPLE,
            Phase::Probe(_) | Phase::Shallow { .. } => DEPTH_SHALLOW,
            Phase::Deep if self.has_fetched => usize::MAX,
            Phase::Deep => DEPTH_SAMPLE,
        }
    }

    /// The same if the next one is a lookup.
    pub(crate) fn lookup_depth(&self) -> usize {
        match &self.phase {
            Phase::Probe(_) => DEPTH_SHALLOW,
            _ => self.depth(),
        }
    }

    /// A fetch begins on a device that was idle for this long.
    pub(crate) fn begins_after(&mut self, idle: Nanos) {
        let begins_again = match self.phase {
            Phase::Sample(_) | Phase::Probe(_) => idle > STILL,
            Phase::Shallow { .. } => idle > LONG_STILL,
            Phase::Deep => false,
        };
        if begins_again {
            self.phase = Phase::Sample(Sample::of_idle_device());
        }
    }

    /// Records a completed fetch: its `number` in the order in which fetches begin, and when it began. `names_left` is how many
    /// names are left to look up.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        (number, started): (u64, Nanos),
        purpose: Purpose,
        names_left: usize,
    ) {
        self.has_fetched |= purpose == (Purpose::Data { fetched: true });
        let waited = now.saturating_sub(started) >= WAITED;
        let next = match &mut self.phase {
            Phase::Sample(sample) if waited => sample.add(now, started, number),
            Phase::Probe(probe) => {
                let is_data = purpose != Purpose::Lookup && names_left > 0;
                probe.add(now, started, is_data).map(|verdict| match verdict {
                    Verdict::Won => Phase::Shallow { left: self.span },
                    Verdict::Lost => Phase::Deep,
                })
            }
            // It stays shallow until enough names are left for another sample and probe, or none.
            Phase::Shallow { left: 0 } => {
                let is_enough = !(1..NAMES_LEAST).contains(&names_left);
                is_enough.then(|| Phase::Sample(Sample::default()))
            }
            Phase::Shallow { left } => {
                *left -= 1;
                None
            }
            Phase::Sample(_) | Phase::Deep => None,
        };
        let Some(next) = next else { return };
        if matches!(next, Phase::Shallow { .. }) {
            self.span = (2 * self.span).min(SHALLOW_SPAN_MAX);
        }
        self.phase = next;
    }
}
