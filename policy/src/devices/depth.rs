//! How many fetches a device is given at once.
//!
//! Deeper is mostly better: an array works with all its disks, a disk sorts its queue. Not on a single
//! disk on which each file lies beside its inode: there lookups that run ahead of the data make the arm
//! pass over everything twice, and two fetches at a time, one file's data beside the next one's lookup,
//! are the best. What a device is like cannot be asked, but its rate of completions can be measured:
//!
//! * **A.** *Sample*: begin with [`DEPTH_SAMPLE`] at a time. By Little's law the rate of completions times the time of a fetch without a
//!   queue is how many the device works on at once ([`Sample::servers`]). With [`MANY`] or more it is no single disk, and the queue may
//!   be as deep as it likes (C). That time is known only if the device had nothing to do before, and the way of the arm to the first of them may
//!   be in it: so many are not believed if they end one after another in the order in which they began, as files do that lie so on one
//!   disk, unless nearly all of them end together.
//! * **B.** *Probe*: fetch the data of what the sample has looked up, as deep as it was, and count it with the sample: what
//!   lookups that ran ahead have cost shows in it. Then fetch at [`DEPTH_SHALLOW`], lookups and data, for [`PROBE`] fetches. It is lost at
//!   once if it is nowhere near the rate before, as of many disks of which two work.
//! * **C.** If the probe was not clearly faster, the queue may be as deep as it likes; but not before a fetch brought something
//!   that was not in memory: where everything is cached, a deep queue is work for nothing.
//! * **D.** If it was, stay shallow, and after a while begin with A again: the fetches may be of another kind by then, and the
//!   first of all may have been slower than others. Each time it is for twice as long.
//!
//! A device that stands still for a moment says nothing of its rate: then A begins again, also out of B; and if it does for longer,
//! out of D too, since what comes next may be another program's.
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
//! Cost: O(1) a completion, a few words a device, and in a sample [`SAMPLE`] times, sorted a few times; and O(streams)
//! a completion where it matters how many names are left.

#[cfg(test)]
mod tests;

use crate::time::Nanos;

/// Depth of a sample (A), and until a fetch brought something (C).
pub(crate) const DEPTH_SAMPLE: usize = 32;

/// Depth while probing (B), and if that was faster (D).
const DEPTH_SHALLOW: usize = 2;

/// Fetches of a sample, and those after which it may end early. The first few do not count for the rate that a probe is compared with: one may
/// be an answer that the device had at hand, and the next has the arm's way there in it.
const SAMPLE: usize = 32;
const SAMPLE_LEAST: usize = 16;
const SAMPLE_FIRST: usize = 2;

/// A device that works on so many at once needs a deep queue (A). One disk seems to work on two to four: its first fetches have the
/// arm's way there in them, and the second or third of them a turn of the queue.
const MANY: f64 = 6.0;

/// Of fetches that end in no order half began after the one that ended before them. Those of which so large a part did are in order.
const IN_ORDER: f64 = 0.75;

/// Those of which a device seems to have worked on so large a part at once have ended together.
const TOGETHER: f64 = 0.75;

/// Fetches of a probe; the first few do not count.
const PROBE: usize = 18;
const PROBE_FIRST: usize = 2;

/// Fetches of data in a row, before a probe, after which they are what there is, and not what the sample has left.
const LEFT_MOST: usize = 256;

/// A probe whose rate is below this part of that before it, after so many fetches and those first ones, is lost.
const HOPELESS: f64 = 0.6;
const HOPELESS_AFTER: usize = 4;

/// What is faster by this factor is clearly faster.
const WIN: f64 = 1.15;

/// Fetches in a probe that did not wait for the device, after which it is fast enough for any depth.
const AT_HAND_MOST: usize = 64;

/// Completions to stay shallow before the next sample (D): at first, and at most.
const SHALLOW_SPAN: usize = 256;
const SHALLOW_SPAN_MAX: usize = 2048;

/// With fewer names left to be looked up, and not none, another sample is not worth while (D).
const NAMES_LEAST: usize = 128;

/// A device that had nothing to do for longer has stood still. Less passes between a completion and the next fetch.
const STILL: Nanos = Nanos(1_000_000);

/// One that had nothing to do for longer is as good as new.
const LONG_STILL: Nanos = Nanos(1_000_000_000);

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
#[derive(Clone, Debug)]
pub(crate) struct DepthControl {
    phase: Phase,
    /// Whether a fetch has brought something (C).
    has_fetched: bool,
    /// For how many completions it stays shallow when next a probe is won (D).
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

/// Completions from a moment on.
#[derive(Clone, Copy, Debug)]
struct Tally {
    since: Nanos,
    completions: usize,
}

impl Tally {
    fn from(since: Nanos) -> Self {
        Tally { since, completions: 0 }
    }

    /// Completions a second; endless if all were heard of at one time.
    fn rate(self, until: Nanos) -> f64 {
        self.completions as f64 / until.saturating_sub(self.since).as_secs()
    }
}

/// Fetches of a sample that have completed and waited for the device.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// When the first of them began.
    began: Option<Nanos>,
    /// What each took.
    times: Vec<Nanos>,
    /// Those after the first few.
    tally: Option<Tally>,
    /// Place of the last one in the order in which fetches begin, and how many began after the one that ended before them.
    last: u64,
    in_order: usize,
    /// Whether the device had nothing to do before.
    is_from_idle: bool,
}

impl Sample {
    fn of_idle_device() -> Self {
        Sample { is_from_idle: true, ..Sample::default() }
    }

    /// A fetch that waited has completed. Returns what follows on the sample, once that is clear.
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
                // Shallow was faster before: it is left only if it is clearly slower.
                let wins_by = if self.is_from_idle { WIN } else { 1.0 / WIN };
                Some(Phase::Probe(Probe::after(tally, now, wins_by)))
            }
        }
    }

    /// Whether the device works on many at once.
    fn are_many(&self, rate: f64) -> bool {
        let (servers, completions) = (self.servers(rate), self.times.len() as f64);
        let is_in_order = self.in_order as f64 >= IN_ORDER * completions;
        servers >= MANY && (!is_in_order || servers >= TOGETHER * completions)
    }

    /// How many the device works on at once; 0 if that cannot be told. The time of a fetch without a queue is among the shortest:
    /// those that were in memory all the same are shorter, and what lay on the arm's way may be. So it is
    /// the shortest but one of those that are no less than a 16th of the median: of 32 fetches that one server does one after another
    /// the median takes 16 services.
    fn servers(&self, rate: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        let least = Nanos(times[times.len() / 2].0 / (DEPTH_SAMPLE as u64 / 2));
        let unqueued = times.into_iter().filter(|&time| time >= least).nth(1);
        unqueued.filter(|_| self.is_from_idle).map_or(0.0, |unqueued| unqueued.as_secs() * rate)
    }
}

/// Fetches of a probe that have completed, and those before it.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// When the sample ended, and by which factor it has to be faster than what was before.
    since: Nanos,
    wins_by: f64,
    /// The sample, and the data of what was looked up in it; how much came after the sample, and when the last of it did.
    before: Tally,
    left: usize,
    before_until: Nanos,
    /// Whether all of that has come; the probe's own fetches, and those after the first few.
    is_open: bool,
    completions: usize,
    own: Option<Tally>,
    /// Those that did not wait for the device.
    at_hand: usize,
}

/// How a probe went.
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

    /// A fetch has completed. Returns how it went, once that is clear. `is_data` while names are left.
    fn add(&mut self, now: Nanos, started: Nanos, is_data: bool) -> Option<Verdict> {
        // A lookup that began later begins the probe.
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
    /// Most fetches that may be under way, overdue lookups aside.
    pub(crate) fn depth(&self) -> usize {
        match &self.phase {
            Phase::Sample(_) => DEPTH_SAMPLE,
            Phase::Probe(probe) if !probe.is_open => DEPTH_SAMPLE,
            Phase::Probe(_) | Phase::Shallow { .. } => DEPTH_SHALLOW,
            Phase::Deep if self.has_fetched => usize::MAX,
            Phase::Deep => DEPTH_SAMPLE,
        }
    }

    /// The same for one that is a lookup.
    pub(crate) fn lookup_depth(&self) -> usize {
        match &self.phase {
            Phase::Probe(_) => DEPTH_SHALLOW,
            _ => self.depth(),
        }
    }

    /// A fetch begins on a device that has had nothing to do for so long.
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

    /// The fetch of this `number`, in the order in which they begin, which began at `started`, has completed; `names_left` is
    /// how many there still are to be looked up.
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
            // To stay so until there is enough for another sample and probe, or nothing but data.
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
