//! How many fetches a device is given at once.
//!
//! Deeper is mostly better: an array works with all its disks, a disk sorts its queue. Not on a single
//! disk on which each file lies beside its inode: there lookups that run ahead of the data make the arm
//! pass over everything twice, and two fetches at a time, one file's data beside the next one's lookup,
//! are the best. What a device is like cannot be asked, but its completions can be looked at:
//!
//! * **A.** *Sample*: begin with [`DEPTH_SAMPLE`] at a time, so that no more lookups than that run ahead. By Little's law the rate of
//!   completions times the time of a fetch without a queue is how many the device works on at once ([`Sample::servers`]). If it seems to work on several,
//!   go on with [`DEPTH_TRIAL`]; and if then it works on many, it is no single disk, and the queue may be as deep as it likes (D).
//! * **B.** *Probe*: fetch the data of what the sample has looked up, as deep as it was, and count it with the sample; then fetch at
//!   [`DEPTH_SHALLOW`]. It is lost at once if it is nowhere near the rate before, as of many disks of which two work.
//! * **C.** *Trial*, if the probe was neither won nor lost at once: fetch at [`DEPTH_TRIAL`] until it is known that this is no slower than
//!   the probe was. The sample may have found at hand what more of them would have to pass over twice.
//! * **D.** If shallow was clearly faster, stay so, and after a while begin with A again: the fetches may be of another kind by
//!   then, and the first of all may have been slower than others. If it was not, the queue may be as deep as it likes; but not before a
//!   fetch brought something that was not in memory: where everything is cached, a deep queue is work for nothing.
//!
//! A device that stands still says nothing of its rate: then A begins again, also out of B and C.
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
//! Cost: O(1) a completion, a few words a device, and in a sample [`SAMPLE`] times, sorted once; and O(streams)
//! a completion where it matters how many names are left.

use crate::time::Nanos;

/// Depth of a sample (A).
pub(crate) const DEPTH_SAMPLE: usize = 8;

/// Depth of a trial (C), until a fetch brought something (D), and where all is answered from memory.
pub(crate) const DEPTH_TRIAL: usize = 32;

/// Depth while probing (B).
const DEPTH_SHALLOW: usize = 2;

/// Fetches of a sample. The first few do not count for its rate: one may be an answer that the device had at hand, and the next
/// has the arm's way there in it.
const SAMPLE: usize = 16;
const SAMPLE_FIRST: usize = 2;

/// Fetches with which a sample goes on if the device seems to work on several.
const SAMPLE_DEEP: usize = 24;

/// A device that seems to work on so many of [`DEPTH_SAMPLE`], and of [`DEPTH_TRIAL`], at once (A). One disk seems to work on two to
/// seven: its first fetch has the arm's way there in it.
const SEVERAL: f64 = 4.0;
const MANY: f64 = 7.0;

/// One that seems to work on so many of [`DEPTH_SAMPLE`], more than there are, has answered them together: it is known at once to work on
/// many.
const TOGETHER: f64 = 12.0;

/// Fetches of a probe; the first few do not count.
const PROBE: usize = 18;
const PROBE_FIRST: usize = 2;

/// Fetches of data in a row, before a probe, after which they are what there is, and not what the sample has left.
const DATA_MOST: usize = 256;

/// A probe whose rate is no more than this part of that before it, after so many fetches, those first ones besides, is lost.
const HOPELESS: f64 = 0.6;
const HOPELESS_AFTER: usize = 4;

/// Fetches of a trial (C).
const TRIAL: usize = 48;

/// What is faster by this factor is clearly faster.
const WIN: f64 = 1.15;

/// Completions to stay shallow before the next sample (D): after the first probe that was won, after each one more for twice as long, and
/// at most; and as many after a trial.
const SHALLOW_SPAN: usize = 128;
const SHALLOW_SPAN_MAX: usize = 2048;

/// Names left to be looked up for which another sample is worth while (D).
const NAMES_LEAST: usize = 128;

/// A device that had nothing to do for longer has stood still. Less passes between a completion and the next fetch.
const STILL: Nanos = Nanos(1_000_000);

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
    /// Whether a fetch has brought something (D).
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
    /// C
    Trial { shallow_rate: f64, tally: Tally },
    /// D
    Shallow { left: usize },
    /// D
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

/// Fetches of a sample that have completed.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// Those that did not wait for the device.
    at_hand: usize,
    /// What each of the first others took.
    times: Vec<Nanos>,
    /// Those after the first few, or since it goes on with more at a time.
    tally: Option<Tally>,
    /// Whether it goes on with more at a time.
    is_deep: bool,
    /// Whether the device had nothing to do before.
    is_from_idle: bool,
}

/// How a probe went.
enum Verdict {
    Won,
    /// At once.
    Lost,
    /// Neither, and its rate.
    Open(f64),
}

impl Sample {
    fn of_idle_device() -> Self {
        Sample { is_from_idle: true, ..Sample::default() }
    }

    /// A fetch that waited has completed. Returns what follows on the sample, once that is clear.
    fn add(&mut self, now: Nanos, took: Nanos) -> Option<Phase> {
        if self.times.len() < DEPTH_SAMPLE {
            self.times.push(took);
        }
        let Some(tally) = &mut self.tally else {
            self.tally = (self.times.len() >= SAMPLE_FIRST).then(|| Tally::from(now));
            return None;
        };
        tally.completions += 1;
        let (tally, rate) = (*tally, tally.rate(now));
        let completions = tally.completions;
        let is_first = completions == DEPTH_SAMPLE - SAMPLE_FIRST;
        match self.is_deep {
            true if completions < SAMPLE_DEEP => None,
            true if self.servers(rate) >= MANY => Some(Phase::Deep),
            false if is_first && self.servers(rate) >= TOGETHER => Some(Phase::Deep),
            false if is_first && self.servers(rate) >= SEVERAL => {
                (self.is_deep, self.tally) = (true, Some(Tally::from(now)));
                None
            }
            false if completions < SAMPLE - SAMPLE_FIRST => None,
            _ => Some(Phase::Probe(Probe::after(tally, now))),
        }
    }

    /// How many the device works on at once; 0 if that cannot be told. What a fetch takes without a queue is the shortest of the first times, but for
    /// answers that were at hand: of fetches that one server does one after another the median takes four services.
    fn servers(&self, rate: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        let least = Nanos(times[times.len() / 2].0 / (DEPTH_SAMPLE as u64 / 2));
        let unqueued = times.into_iter().find(|&time| time >= least).filter(|_| self.is_from_idle);
        unqueued.map_or(0.0, |unqueued| unqueued.as_secs() * rate)
    }
}

/// Fetches of a probe that have completed, and those of the sample before it.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// When the sample ended.
    since: Nanos,
    /// The sample, and the data of what was looked up in it; how much data that was in a row, and when the last of it came.
    before: Tally,
    left: usize,
    before_until: Nanos,
    /// Whether all of that has come; the probe's own fetches, and those after the first few.
    is_open: bool,
    completions: usize,
    own: Option<Tally>,
}

impl Probe {
    fn after(sample: Tally, now: Nanos) -> Self {
        Probe {
            since: now,
            before: sample,
            left: 0,
            before_until: now,
            is_open: false,
            completions: 0,
            own: None,
        }
    }

    fn add(&mut self, now: Nanos, started: Nanos, is_data: bool) -> Option<Verdict> {
        // A lookup that began later begins the probe.
        let is_left = started <= self.since || (is_data && self.left < DATA_MOST);
        if !self.is_open && is_left {
            self.left += 1;
            self.before.completions += 1;
            self.before_until = now;
            return None;
        }
        self.is_open = true;
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
        (self.completions >= PROBE).then_some(match rate > WIN * before {
            true => Verdict::Won,
            false => Verdict::Open(rate),
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
    /// Most fetches that may be under way with one more lookup, overdue ones aside.
    pub(crate) fn lookup_depth(&self) -> usize {
        match &self.phase {
            Phase::Probe(_) => DEPTH_SHALLOW,
            _ => self.depth(),
        }
    }

    /// Most fetches that may be under way, overdue lookups aside.
    pub(crate) fn depth(&self) -> usize {
        match &self.phase {
            Phase::Probe(probe) if !probe.is_open => DEPTH_SAMPLE,
            Phase::Sample(sample) if !sample.is_deep && sample.at_hand < DEPTH_TRIAL => {
                DEPTH_SAMPLE
            }
            Phase::Probe(_) | Phase::Shallow { .. } => DEPTH_SHALLOW,
            Phase::Deep if self.has_fetched => usize::MAX,
            Phase::Sample(_) | Phase::Trial { .. } | Phase::Deep => DEPTH_TRIAL,
        }
    }

    /// A fetch begins on a device that has had nothing to do for so long.
    pub(crate) fn begins_after(&mut self, idle: Nanos) {
        let is_decided = matches!(self.phase, Phase::Shallow { .. } | Phase::Deep);
        if idle > STILL && !is_decided {
            self.phase = Phase::Sample(Sample::of_idle_device());
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
            if let Phase::Sample(sample) = &mut self.phase {
                sample.at_hand += 1;
            }
            return;
        }
        let next = match &mut self.phase {
            Phase::Sample(sample) => sample.add(now, took),
            Phase::Probe(probe) => {
                let is_data = purpose != Purpose::Lookup && names_left() > 0;
                let verdict = probe.add(now, started, is_data);
                verdict.map(|verdict| match verdict {
                    Verdict::Won => {
                        let left = self.span;
                        self.span = (2 * left).min(SHALLOW_SPAN_MAX);
                        Phase::Shallow { left }
                    }
                    Verdict::Lost => Phase::Deep,
                    Verdict::Open(shallow_rate) => {
                        Phase::Trial { shallow_rate, tally: Tally::from(now) }
                    }
                })
            }
            Phase::Trial { shallow_rate, tally } => {
                tally.completions += 1;
                (tally.completions >= TRIAL).then(|| match *shallow_rate > WIN * tally.rate(now) {
                    true => Phase::Shallow { left: SHALLOW_SPAN_MAX },
                    false => Phase::Deep,
                })
            }
            // To stay so until there is enough for another sample and probe.
            Phase::Shallow { left: 0 } => {
                (names_left() >= NAMES_LEAST).then(|| Phase::Sample(Sample::default()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const SERVICE: u64 = 10_000_000;
    const FETCHED: Purpose = Purpose::Data { fetched: true };

    /// How files lie.
    #[derive(Clone, Copy)]
    enum Layout {
        /// One after another, each with its data behind its inode.
        InOrder,
        /// Anywhere.
        Scattered,
    }

    /// One of the disks of an array: it serves one request after another, and what lies behind the last one sooner.
    #[derive(Default)]
    struct Disk {
        queue: VecDeque<Request>,
        under_way: Option<(u64, Request)>,
        at: u64,
        sorts: bool,
    }

    #[derive(Clone, Copy)]
    struct Request {
        file: usize,
        is_lookup: bool,
        place: u64,
        started: u64,
    }

    impl Disk {
        fn serve(&mut self, now: u64) {
            let nearest =
                || (0..self.queue.len()).min_by_key(|&i| self.queue[i].place.abs_diff(self.at));
            let next = if self.sorts { nearest() } else { Some(0) };
            let next = next.filter(|_| self.under_way.is_none());
            let Some(request) = next.and_then(|next| self.queue.remove(next)) else { return };
            // What it has just passed over is at hand; what lies ahead passes by; to all else the arm has to go.
            let (ahead, behind) =
                (request.place.saturating_sub(self.at), self.at.saturating_sub(request.place));
            let takes = match (ahead, behind) {
                (0, 0..16) => SERVICE / 40,
                (1..32, _) => ahead * SERVICE / 8,
                _ => SERVICE / 2 + (ahead + behind).min(1000) * SERVICE / 2000,
            };
            self.at = self.at.max(request.place);
            if behind >= 16 {
                self.at = request.place;
            }
            self.under_way = Some((now + takes, request));
        }
    }

    /// Looks up `files` files and reads a block of each from `disks` disks, no deeper than `control` says, or `fixed`.
    /// Returns what it takes.
    fn read_files(
        files: usize,
        disks: usize,
        layout: Layout,
        sorts: bool,
        fixed: Option<usize>,
    ) -> f64 {
        let mut control = DepthControl::default();
        let mut array: Vec<Disk> =
            (0..disks).map(|_| Disk { at: 50_000, sorts, ..Disk::default() }).collect();
        let mut ready: VecDeque<usize> = VecDeque::new();
        let (mut now, mut looked_for, mut under_way, mut done) = (0, 0, 0, 0);
        while done < files {
            loop {
                let (depth, lookups) =
                    fixed.map_or((control.depth(), control.lookup_depth()), |depth| (depth, depth));
                let next = match ready.front() {
                    Some(&file) if under_way < depth => (file, false),
                    None if under_way < depth.min(lookups) && looked_for < files => {
                        (looked_for, true)
                    }
                    _ => break,
                };
                let (file, is_lookup) = next;
                if is_lookup {
                    looked_for += 1;
                } else {
                    ready.pop_front();
                }
                under_way += 1;
                let (disk, place) = match layout {
                    Layout::InOrder => (file / 8, 2 * file as u64 + u64::from(!is_lookup)),
                    Layout::Scattered => {
                        let drawn =
                            (2 * file + usize::from(is_lookup)).wrapping_mul(0x9E37_79B9) >> 7;
                        (drawn / 7, drawn as u64 % 100_000)
                    }
                };
                let disk = &mut array[disk % disks];
                disk.queue.push_back(Request { file, is_lookup, place, started: now });
                disk.serve(now);
            }
            let ends =
                array.iter().enumerate().filter_map(|(disk, it)| Some((it.under_way?.0, disk)));
            let (end, disk) = ends.min().expect("something is under way");
            let (_, request) = array[disk].under_way.take().expect("it is under way");
            now = end;
            under_way -= 1;
            let purpose = if request.is_lookup { Purpose::Lookup } else { FETCHED };
            if request.is_lookup {
                ready.push_back(request.file);
            } else {
                done += 1;
            }
            let (now, started) = (Nanos(now), Nanos(request.started));
            control.completed(now, started, purpose, || files - looked_for);
            array[disk].serve(end);
        }
        now as f64
    }

    /// What it takes beside the better of two fixed depths.
    fn beside_the_better(files: usize, disks: usize, layout: Layout, sorts: bool) -> f64 {
        let by = |fixed| read_files(files, disks, layout, sorts, fixed);
        by(None) / by(Some(DEPTH_SHALLOW)).min(by(Some(1000)))
    }

    #[test]
    fn files_in_order_on_one_disk_are_read_in_order() {
        let by = |fixed| read_files(150, 1, Layout::InOrder, false, Some(fixed));
        assert!(by(1000) > 1.5 * by(DEPTH_SHALLOW), "the arm passes twice");
        for (files, most) in [(60, 1.5), (150, 1.25), (900, 1.1)] {
            let beside = beside_the_better(files, 1, Layout::InOrder, false);
            assert!(beside < most, "{files}: {beside}");
        }
    }

    #[test]
    fn files_all_over_one_disk_are_sorted() {
        let by = |fixed| read_files(900, 1, Layout::Scattered, true, fixed);
        assert!(by(Some(2)) > 1.2 * by(Some(1000)), "a deep queue helps");
        for (files, most) in [(150, 1.3), (900, 1.1)] {
            let beside = beside_the_better(files, 1, Layout::Scattered, true);
            assert!(beside < most, "{files}: {beside}");
        }
    }

    #[test]
    fn many_disks_have_something_to_do() {
        for (disks, most) in [(2, 1.2), (4, 1.25), (8, 1.35), (15, 1.5), (1000, 3.0)] {
            let beside = beside_the_better(150, disks, Layout::Scattered, true);
            assert!(beside < most, "{disks}: {beside}");
            let beside = beside_the_better(2000, disks, Layout::Scattered, true);
            assert!(beside < 1.2, "{disks}, long: {beside}");
        }
    }

    /// Fetches that complete one after another, each of which has taken `took`, until the depth is another one, `most` at most.
    fn complete(
        control: &mut DepthControl,
        now: &mut u64,
        (took, interval): (u64, u64),
        (most, names): (usize, usize),
    ) -> usize {
        let depth = control.depth();
        for fetch in 0..most {
            *now += interval;
            let purpose = if fetch % 2 == 0 { Purpose::Lookup } else { FETCHED };
            control.completed(Nanos(*now), Nanos(now.saturating_sub(took)), purpose, || names);
            if control.depth() != depth {
                return fetch + 1;
            }
        }
        most
    }

    #[test]
    fn what_is_answered_together_is_known_at_once() {
        let (mut control, mut now) = (DepthControl::default(), SERVICE);
        let fetches = complete(&mut control, &mut now, (SERVICE, 1000), (100, 1000));
        assert_eq!((fetches, control.depth()), (DEPTH_SAMPLE, usize::MAX));
    }

    #[test]
    fn what_was_in_memory_after_all_is_no_service() {
        let servers = |times_ms: [f64; DEPTH_SAMPLE], rate| {
            let times = times_ms.map(|ms| Nanos((ms * 1e6) as u64)).to_vec();
            Sample { times, ..Sample::of_idle_device() }.servers(rate)
        };
        // One server does one after another; of many each takes its time.
        let one = servers([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0].map(|turn| 10.0 * turn), 100.0);
        assert!((1.0..=3.0).contains(&one), "{one}");
        let many = servers([0.4, 25.0, 18.0, 31.0, 20.0, 28.0, 30.0, 19.0], 400.0);
        assert!((many - 18.0 * 0.4).abs() < 1e-9, "{many}");
    }

    #[test]
    fn a_device_that_stands_still_is_sampled_again() {
        let (mut control, mut now) = (DepthControl::default(), 0);
        complete(&mut control, &mut now, (SERVICE, SERVICE), (SAMPLE - 1, 1000));
        control.begins_after(STILL);
        assert!(matches!(&control.phase, Phase::Sample(sample) if sample.tally.is_some()));
        control.begins_after(Nanos(SERVICE));
        assert!(matches!(&control.phase, Phase::Sample(sample) if sample.tally.is_none()));
        now += 100 * SERVICE;
        complete(&mut control, &mut now, (SERVICE, SERVICE), (SAMPLE, 1000));
        let Phase::Probe(probe) = &control.phase else { panic!("{control:?}") };
        assert!((probe.before.rate(Nanos(now)) * Nanos(SERVICE).as_secs() - 1.0).abs() < 1e-9);
        control.begins_after(Nanos(SERVICE));
        assert!(matches!(control.phase, Phase::Sample(_)));
    }

    #[test]
    fn what_stays_shallow_is_sampled_again_each_time_later() {
        let (mut control, mut now) = (DepthControl::default(), 0);
        let sample = |control: &mut DepthControl, now: &mut u64| {
            while !matches!(control.phase, Phase::Probe(_)) {
                complete(control, now, (SERVICE, SERVICE), (1, 1000));
            }
            // What is left of it drains.
            let purpose = Purpose::Lookup;
            control.completed(Nanos(*now + SERVICE), Nanos(*now - SERVICE), purpose, || 1000);
            *now += 2 * SERVICE;
        };
        for span in [128, 256, 512, 1024, 2048, 2048] {
            sample(&mut control, &mut now);
            // A probe that is twice as fast, and what follows on it.
            let fast = (SERVICE, SERVICE / 2);
            let mut fetches = 0;
            while !matches!(control.phase, Phase::Sample(_)) {
                fetches += complete(&mut control, &mut now, fast, (1, 1000));
            }
            assert_eq!(fetches, PROBE + span + 1);
        }
        // Not for a few names.
        sample(&mut control, &mut now);
        complete(&mut control, &mut now, (SERVICE, SERVICE / 2), (9999, NAMES_LEAST - 1));
        assert_eq!(control.depth(), DEPTH_SHALLOW);
    }

    #[test]
    fn where_nothing_is_fetched_the_queue_stays_short() {
        let mut control = DepthControl::default();
        for index in 1..1000 {
            let cached = Purpose::Data { fetched: false };
            let started = Nanos(index * 1000).saturating_sub(Nanos(SERVICE));
            control.completed(Nanos(index * 1000), started, cached, || 1000);
        }
        assert!(control.depth() <= DEPTH_TRIAL, "{control:?}");
    }

    #[test]
    fn answers_from_memory_say_nothing_of_the_device() {
        let mut control = DepthControl::default();
        for index in 1..1000 {
            control.completed(Nanos(index * 1000), Nanos(index * 1000 - 500), FETCHED, || 1000);
        }
        assert!(matches!(&control.phase, Phase::Sample(sample) if sample.times.is_empty()));
        assert_eq!(control.depth(), DEPTH_TRIAL);
    }
}
