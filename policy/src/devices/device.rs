//! One device: the fetches and lookups in flight there, the streams with a block to fetch from it, and its measured speed.
//!
//! The speed is a rate over a span, because a single interval says nothing. The manager polls for ended fetches and learns of
//! several together. Their completions seem microseconds apart, or simultaneous, and then nothing comes for milliseconds. So
//! the policy measures the rate over a *span* in which the device was always busy:
//!
//! * **A.** A span begins and ends with a completion that opens a batch, so that it contains whole batches. A completion opens
//!   a batch if it comes at least half a mean interval after the one before. Without batches nearly every completion does.
//! * B. A span has at least [`SPAN_COMPLETIONS`] completions, and more only if batches are larger. So the rate of a device with
//!   little to do is known after a few completions.
//! * C. A span lasts at least a part ([`SPAN_DIVISOR`]) of the time that its last request took. In the first batch, only this
//!   rule tells a fast device from a slow one whose completions were reported together: those requests waited in a queue behind
//!   each other, so the last of them took long.
//! * **D.** A device that was idle begins a new span.
//!
//! The end of a request is also reported late, since the report waits until other requests of its batch have ended. The
//! interval in which a random moment lies is, on average, the sum of the squares of the intervals divided by their sum. This
//! less the mean interval is the delay of the first request of a batch. It is 0 where completions come evenly.

use std::collections::BTreeMap;

use crate::blocks::StreamIndex;
use crate::devices::costs::Mean;
use crate::devices::depth::DepthControl;
use crate::hint::{Block, DeviceId, FetchId, StreamId};
use crate::streams::unresolved::Unresolved;
use crate::tables::heap::IndexedHeap;
use crate::time::Nanos;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    /// Prefetches and lookups in flight.
    pub(crate) outstanding: usize,
    /// Lookups in flight that are not *overdue* ([`LOOKUP_PATIENCE`]). They are in the order in which they began, since fetches
    /// are numbered in that order.
    lookups: BTreeMap<FetchId, Queued>,
    /// Number of lookups in flight that are overdue.
    overdue: usize,
    /// The most reads and lookups in flight at once, without overdue ones, since a lookup last began as the only one.
    most_under_way: usize,
    /// Overdue lookups whose streams have not been told.
    untold: Vec<Lookup>,
    pub(crate) depth: DepthControl,
    /// Reads in a row that found all their blocks in memory.
    pub(crate) cached_run: u32,
    /// Hints that are not looked up yet.
    pub(crate) unresolved: Unresolved,
    /// Streams with a block to fetch from the device, by the benefit of fetching it.
    pub(crate) candidates: IndexedHeap,
    /// The best candidate when it was last asked, if it waits for its stream to disclose more and was not asked again.
    pub(crate) first_waits: Option<Waits>,
    load: Load,
    /// Moving average of the time of a lookup, including the device's queue.
    lookup_ns: Mean,
    /// Reads and lookups that have ended.
    ended: u64,
    /// When the last one ended, or when one began on the idle device after that.
    turned: Nanos,
}

/// A candidate that waits, and the state on which that was decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Waits {
    pub(crate) stream: StreamIndex,
    pub(crate) block: Block,
    /// Whether the device was busy at that time, and how often costs had changed until then.
    pub(crate) was_busy: bool,
    pub(crate) costs: u64,
}

/// The lookup of a stream's hint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    pub(crate) began: Nanos,
    pub(crate) stream: StreamId,
    pub(crate) index: StreamIndex,
    /// The hint's number in its stream.
    pub(crate) number: u64,
}

/// A lookup in flight.
#[derive(Clone, Copy, Debug)]
struct Queued {
    lookup: Lookup,
    /// Reads and lookups of the device that had ended when this lookup began.
    ended: u64,
}

/// How many requests at once a device can use, measured from its completions.
///
/// By Little's law, a device that completes requests at a rate r, each taking a time t without a queue, serves r t of them at
/// once. Further requests wait. r is the best recent rate and t the shortest recent time; see the [module](self) for how they
/// are measured.
#[derive(Debug, Default)]
struct Load {
    /// Reads in flight.
    reads: usize,
    last_completion: Nanos,
    span: Option<Span>,
    /// Moving average of the interval between completions while busy.
    interval_ns: Mean,
    /// The shortest recent interval, and the shortest recent time of a request.
    best_interval_ns: Option<f64>,
    best_took_ns: Option<f64>,
}

/// A time in which a device was busy, from one completion to another.
#[derive(Clone, Copy, Debug)]
struct Span {
    began: Nanos,
    /// Completions after the one with which the span began.
    completions: u32,
    blocks: u64,
    /// Sum of the squares of the intervals, in ns².
    squares_ns2: f64,
    /// The shortest time of a request, as reported.
    least_took_ns: f64,
    /// The fewest reads in flight at a completion.
    least_reads: usize,
}

/// A lookup may take this long. After that, and if [`find_overdue`](Device::find_overdue)'s other conditions hold, it is
/// *overdue*: hints after it go ahead.
/// Unit: ns. Reason: judgement.
const LOOKUP_PATIENCE: Nanos = Nanos(250_000_000);
/// A lookup may also take this many times the moving average of recent lookups, if that is longer.
/// Unit: ratio. Reason: judgement.
const LOOKUP_MEANS: f64 = 4.0;

/// A device that has ended nothing for this long may be stuck. Until then it may be serving other programs, which the policy
/// does not see.
/// Unit: ns. Reason: judgement.
const STILL_PATIENCE: Nanos = Nanos(1_000_000_000);

/// In a long queue all lookups are slow. At a device that completes other requests, a lookup is therefore overdue only when
/// other requests have ended since it began: this many times the most that were in flight at once. An arm serves the requests
/// that lie on its way and may pass twice before it comes to the lookup, and newer requests may lie on its way too.
/// Unit: ratio. Reason: judgement.
const LOOKUP_TURNS: u64 = 2;

/// Least number of completions of a span: one interval more or less then makes little difference to the rate.
/// Unit: requests. Reason: judgement.
const SPAN_COMPLETIONS: u32 = 16;

/// A span lasts at least the time of its last request divided by this. The requests of a batch took longer than the manager
/// takes to report them all.
/// Unit: ratio. Reason: judgement.
const SPAN_DIVISOR: u64 = 8;

/// Best values grow by this factor with each completion, so that old ones are forgotten.
/// Unit: ratio. Reason: judgement.
const FORGET: f64 = 1.0001;

/// Requests that each server should have to choose from.
/// Unit: requests. Reason: paper (TIP 1995, section 3.1).
const REQUESTS_PER_SERVER: f64 = 5.0;

/// A device with this many requests for each one that it serves at once is full.
/// Unit: ratio. Reason: judgement.
const FULL_PER_SERVER: f64 = 2.0;

/// What a completed read shows of the speed of its device, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observation {
    /// The time of one more block over the requests of a span, and the number of these requests.
    pub(crate) block_ns: Option<(f64, u32)>,
    /// Whether the device always had more requests than it serves at once. More would not have been faster.
    pub(crate) was_full: bool,
    /// The time of the request without its wait for others, if known.
    pub(crate) took_ns: Option<f64>,
}

impl Span {
    fn begin(now: Nanos, took_ns: f64) -> Self {
        let least_took_ns = took_ns;
        let least_reads = usize::MAX;
        Span { began: now, completions: 0, blocks: 0, squares_ns2: 0.0, least_took_ns, least_reads }
    }

    /// Adds a completion, `interval` after the one before. Returns whether the span ends with it.
    fn add(&mut self, now: Nanos, interval: Nanos, took: Nanos, blocks: u64) -> bool {
        self.completions += 1;
        self.blocks += blocks.max(1);
        self.squares_ns2 += (interval.0 as f64).powi(2);
        self.least_took_ns = self.least_took_ns.min(took.0 as f64);
        let length = now.saturating_sub(self.began);
        let opens_batch = interval.0 as f64 * 2.0 * f64::from(self.completions) >= length.0 as f64;
        self.completions >= SPAN_COMPLETIONS
            && opens_batch
            && length.0.saturating_mul(SPAN_DIVISOR) >= took.0
    }
}

impl Load {
    fn servers(&self) -> Option<f64> {
        Some((self.best_took_ns? / self.best_interval_ns?).max(1.0))
    }

    fn read_begun(&mut self, now: Nanos) {
        if self.reads == 0 && now > self.last_completion {
            self.span = None; // The device was idle.
        }
        self.reads += 1;
    }

    fn completed(&mut self, now: Nanos, flight: (Nanos, usize), blocks: u64) -> Observation {
        let (started, outstanding) = flight;
        let last = std::mem::replace(&mut self.last_completion, now);
        let (interval, took) = (now.saturating_sub(last), now.saturating_sub(started));
        if took == Nanos::ZERO {
            return Observation { block_ns: None, was_full: false, took_ns: None }; // The driver has no clock.
        }
        let took_ns = took.0 as f64;
        let (mut block_ns, mut was_full) = (None, false);
        match &mut self.span {
            None => self.span = Some(Span::begin(now, took_ns)),
            Some(span) => {
                span.least_reads = span.least_reads.min(self.reads);
                if span.add(now, interval, took, blocks) {
                    let span = std::mem::replace(span, Span::begin(now, took_ns));
                    let length_ns = now.saturating_sub(span.began).0 as f64;
                    self.learn(&span, length_ns);
                    block_ns = Some((length_ns / span.blocks as f64, span.completions));
                    let servers = self.servers().unwrap_or(1.0);
                    was_full = span.least_reads as f64 >= FULL_PER_SERVER * servers;
                }
            }
        }
        let share = match (self.servers(), outstanding) {
            (_, 0 | 1) => Some(1.0),
            (servers, _) => servers.map(|servers| (servers / outstanding as f64).min(1.0)),
        };
        Observation { block_ns, was_full, took_ns: share.map(|share| took_ns * share) }
    }

    fn learn(&mut self, span: &Span, length_ns: f64) {
        let interval_ns = length_ns / f64::from(span.completions);
        // If the last n completions were reported together, the first of them ended n - 1 intervals earlier.
        let unheard_ns = span.squares_ns2 / length_ns - interval_ns;
        let least_ns = (span.least_took_ns - unheard_ns).max(interval_ns);
        let forget = FORGET.powi(span.completions as i32);
        let best_ns = self.best_took_ns.map_or(least_ns, |best| (best * forget).min(least_ns));
        self.best_took_ns = Some(best_ns);
        self.interval_ns.add_mean_of(interval_ns, span.completions);
        let mean_ns = self.interval_ns.or(interval_ns);
        let best_ns = self.best_interval_ns.map_or(mean_ns, |best| (best * forget).min(mean_ns));
        self.best_interval_ns = Some(best_ns);
    }
}

impl Device {
    pub(crate) fn new(id: DeviceId) -> Self {
        Device {
            id,
            outstanding: 0,
            lookups: BTreeMap::new(),
            overdue: 0,
            most_under_way: 0,
            untold: Vec::new(),
            depth: DepthControl::default(),
            cached_run: 0,
            unresolved: Unresolved::default(),
            candidates: IndexedHeap::default(),
            first_waits: None,
            load: Load::default(),
            lookup_ns: Mean::default(),
            ended: 0,
            turned: Nanos::ZERO,
        }
    }

    /// A read begins.
    pub(crate) fn read_begun(&mut self, now: Nanos) {
        self.begins(now);
        self.load.read_begun(now);
        self.most_under_way = self.most_under_way.max(self.under_way());
    }

    fn begins(&mut self, now: Nanos) {
        if self.under_way() == 0 && self.overdue == 0 {
            self.depth.begins_after(now.saturating_sub(self.turned));
            self.turned = now;
        }
    }

    /// A read has ended, whatever its outcome.
    pub(crate) fn read_ended(&mut self, now: Nanos) {
        self.load.reads -= 1;
        self.has_ended(now);
    }

    fn has_ended(&mut self, now: Nanos) {
        self.ended += 1;
        self.turned = now;
    }

    /// Records a completed read of `blocks` blocks. `flight` is when it began, and how many requests were in flight then,
    /// itself included.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        flight: (Nanos, usize),
        blocks: u64,
    ) -> Observation {
        self.load.completed(now, flight, blocks)
    }

    /// A lookup begins.
    pub(crate) fn lookup_begun(&mut self, fetch: FetchId, lookup: Lookup) {
        self.begins(lookup.began);
        self.depth.lookup_begins(lookup.began, fetch.0, self.unresolved.len());
        self.outstanding += 1;
        if self.lookups.is_empty() {
            self.most_under_way = 0;
        }
        self.lookups.insert(fetch, Queued { lookup, ended: self.ended });
        self.most_under_way = self.most_under_way.max(self.under_way());
    }

    /// A lookup has ended after `took`.
    pub(crate) fn lookup_ended(&mut self, now: Nanos, fetch: FetchId, took: Nanos) {
        self.has_ended(now);
        if self.lookups.remove(&fetch).is_none() {
            self.overdue -= 1;
        }
        self.outstanding -= 1;
        self.lookup_ns.add(took.0 as f64);
    }

    /// Reads and lookups in flight that are not overdue.
    fn under_way(&self) -> usize {
        self.load.reads + self.lookups.len()
    }

    /// Lookups in flight, overdue or not.
    pub(crate) fn names_under_way(&self) -> usize {
        self.lookups.len() + self.overdue
    }

    /// Whether a lookup in flight may become overdue, or one is overdue and its stream was not told.
    pub(crate) fn has_lookups(&self) -> bool {
        !self.lookups.is_empty() || !self.untold.is_empty()
    }

    /// Finds the lookups that have become overdue by now. They stay overdue even if lookups take longer later, because other
    /// hints have gone ahead.
    #[inline]
    pub(crate) fn find_overdue(&mut self, now: Nanos) {
        if !self.lookups.is_empty() {
            self.find_overdue_lookups(now);
        } else if self.load.reads > 0 && self.stands_still(now) {
            self.depth.stands_still();
        }
    }

    /// Whether nothing has ended for a while, though something is in flight.
    #[inline]
    fn stands_still(&self, now: Nanos) -> bool {
        now.saturating_sub(self.turned) >= STILL_PATIENCE
    }

    #[inline(never)] // The rare case.
    fn find_overdue_lookups(&mut self, now: Nanos) {
        let patience = self.lookup_patience();
        let stands_still = self.stands_still(now);
        let turns = LOOKUP_TURNS * self.most_under_way as u64;
        if stands_still {
            self.depth.stands_still();
        }
        let ended = self.ended;
        let has_had_its_turn = |queued: &Queued| ended - queued.ended >= turns;
        while let Some(first) = self.lookups.first_entry()
            && now.saturating_sub(first.get().lookup.began) > patience
            && (stands_still || has_had_its_turn(first.get()))
        {
            self.overdue += 1;
            self.depth.lookup_is_overdue();
            self.untold.push(first.remove().lookup);
        }
    }

    /// The lookups that became overdue since the last call.
    pub(crate) fn take_overdue(&mut self) -> Vec<Lookup> {
        std::mem::take(&mut self.untold)
    }

    /// Prefetches and lookups that the device is presumably working on. Overdue lookups are not counted: they may wait for
    /// something else for ever.
    pub(crate) fn working_on(&self) -> usize {
        self.outstanding - self.overdue
    }

    /// How long a lookup may take before later hints go ahead of it.
    fn lookup_patience(&self) -> Nanos {
        LOOKUP_PATIENCE.max(Nanos((LOOKUP_MEANS * self.lookup_ns.or(0.0)) as u64))
    }

    /// How many requests it serves at once, if known.
    pub(crate) fn served_at_once(&self) -> Option<f64> {
        self.load.servers()
    }

    /// Whether the device has enough requests to run at full speed.
    pub(crate) fn is_busy(&self) -> bool {
        self.working_on() as f64 >= REQUESTS_PER_SERVER * self.load.servers().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::devices::depth::DEPTH_FIRST;

    fn lookup(began: Nanos, number: u64) -> Lookup {
        Lookup { began, stream: StreamId(0), index: StreamIndex(0), number }
    }

    fn look_up(device: &mut Device, took: Nanos) {
        device.lookup_begun(FetchId(0), lookup(Nanos::ZERO, 0));
        device.lookup_ended(Nanos::ZERO, FetchId(0), took);
    }

    #[test]
    fn lookups_become_overdue_in_the_order_of_their_start_and_stay_so() {
        let mut device = Device::new(DeviceId(0));
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        for (number, began) in [(0, 0), (1, 500), (2, 800), (3, 900)] {
            device.lookup_begun(FetchId(number), lookup(ms(began), number));
        }
        let overdue = |device: &mut Device, now: Nanos| -> Vec<u64> {
            device.find_overdue(now);
            device.take_overdue().iter().map(|lookup| lookup.number).collect()
        };
        assert!(overdue(&mut device, ms(999)).is_empty(), "others may be served");
        assert_eq!(overdue(&mut device, ms(1_000)), [0, 1]);
        assert!(overdue(&mut device, ms(1_000)).is_empty(), "they were told of");
        assert_eq!((device.names_under_way(), device.working_on()), (4, 2));
        // Lookups now take 200 ms, so 800 ms are allowed.
        device.lookup_ended(ms(1_010), FetchId(2), ms(200));
        assert!(overdue(&mut device, ms(2_009)).is_empty());
        assert_eq!((device.names_under_way(), device.working_on()), (3, 1));
        assert_eq!(overdue(&mut device, ms(2_010)), [3]);
        for number in [0, 1, 3] {
            device.lookup_ended(ms(2_010), FetchId(number), ms(200));
        }
        assert_eq!((device.names_under_way(), device.working_on()), (0, 0));
    }

    #[test]
    fn a_device_that_rested_stands_still_only_after_it_was_asked() {
        let mut device = Device::new(DeviceId(0));
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        device.lookup_begun(FetchId(0), lookup(ms(10_000), 0));
        device.find_overdue(ms(10_999));
        assert!(device.take_overdue().is_empty());
        device.find_overdue(ms(11_000));
        assert_eq!(device.take_overdue().len(), 1);
        // It is not idle, so it is not sampled again.
        device.lookup_begun(FetchId(1), lookup(ms(11_000), 1));
        assert_eq!(device.depth.lookup_depth(), DEPTH_FIRST);
    }

    #[test]
    fn reads_that_never_end_hold_up_nothing_else() {
        let mut device = Device::new(DeviceId(0));
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        (0..2).for_each(|_| device.read_begun(ms(5)));
        device.find_overdue(ms(1_004));
        let sampled = format!("{:?}", device.depth);
        device.find_overdue(ms(1_005));
        assert!(sampled.contains("Sample") && format!("{:?}", device.depth).contains("Deep"));
    }

    #[test]
    fn in_a_long_queue_that_moves_a_lookup_gets_its_turn() {
        let mut device = Device::new(DeviceId(0));
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        // A hundred at once. One ends every 10 ms, the last ones first.
        for number in 0..100 {
            device.lookup_begun(FetchId(number), lookup(Nanos::ZERO, number));
        }
        for number in (60..100).rev() {
            let now = ms(10 * (100 - number));
            device.find_overdue(now);
            assert!(device.take_overdue().is_empty(), "{now}");
            device.lookup_ended(now, FetchId(number), now);
        }
        // Nothing else ends.
        device.find_overdue(ms(600));
        assert!(device.take_overdue().is_empty());
        device.find_overdue(ms(2_000));
        assert_eq!(device.take_overdue().len(), 60);
        // A queue that serves newer requests first may do so for its whole length.
        let mut device = Device::new(DeviceId(0));
        device.lookup_begun(FetchId(0), lookup(Nanos::ZERO, 0));
        (0..100).for_each(|_| device.read_begun(ms(1)));
        for number in 1..=100 {
            device.read_ended(ms(10 * number));
            device.find_overdue(ms(10 * number));
            assert!(device.take_overdue().is_empty(), "{number}");
        }
        // Other requests are served one at a time, and the lookup is not.
        let mut device = Device::new(DeviceId(0));
        device.lookup_begun(FetchId(0), lookup(Nanos::ZERO, 0));
        for number in 1..200 {
            let now = ms(100 * number);
            device.find_overdue(now);
            if !device.take_overdue().is_empty() {
                assert_eq!(number, 2 * LOOKUP_TURNS + 1);
                return;
            }
            device.lookup_begun(FetchId(number), lookup(now, number));
            device.lookup_ended(now, FetchId(number), ms(10));
        }
        panic!("it is never overdue");
    }

    #[test]
    fn a_lookup_is_slow_if_it_takes_much_longer_than_others() {
        let mut device = Device::new(DeviceId(0));
        assert_eq!(device.lookup_patience(), LOOKUP_PATIENCE);
        for took_ms in [1, 2000] {
            for _ in 0..200 {
                look_up(&mut device, Nanos(took_ms * 1_000_000));
            }
            let patience = device.lookup_patience();
            assert!(patience >= LOOKUP_PATIENCE, "{patience}");
            assert!((Nanos(3 * took_ms * 1_000_000)..=Nanos(8_000_000_000)).contains(&patience));
        }
        // One stuck lookup changes little.
        look_up(&mut device, Nanos(3_600_000_000_000));
        assert!(device.lookup_patience() < Nanos(10_000_000_000));
    }

    const SERVICE: u64 = 10_000_000;

    /// A device that serves `servers` requests at once, each of 4 blocks in 10 ms, with `depth` requests in flight from its
    /// first use.
    struct Busy {
        servers: u64,
        depth: u64,
        /// Completions reported together, and the time between them.
        batch: u64,
        gap_ns: u64,
    }

    /// The measured `T_disk`, time of a block, and share of spans in which the device was full.
    fn observe(busy: &Busy, load: &mut Load) -> (f64, f64, f64) {
        let &Busy { servers, depth, batch, gap_ns } = busy;
        let first = load.last_completion.0 + 7 * SERVICE;
        let ends = |number: u64| {
            first + number / servers * SERVICE + SERVICE + number % servers * (SERVICE / servers)
        };
        let (mut took_ns, mut block_ns) = (Mean::default(), Mean::default());
        let (mut spans, mut full) = (0u32, 0u32);
        let mut queue: VecDeque<u64> = (0..depth).map(|_| first).collect();
        (0..depth).for_each(|_| load.read_begun(Nanos(first)));
        for number in (0..2048).step_by(batch as usize) {
            let mut now = ends(number + batch - 1);
            for _ in 0..batch {
                let begun = queue.pop_front().expect("more are under way than end together");
                load.reads -= 1;
                let seen = load.completed(Nanos(now), (Nanos(begun), depth as usize), 4);
                if let Some((sample_ns, of)) = seen.block_ns {
                    block_ns.add_mean_of(sample_ns, of);
                    spans += 1;
                    full += u32::from(seen.was_full);
                }
                if let Some(sample_ns) = seen.took_ns {
                    took_ns.add(sample_ns);
                }
                now += gap_ns;
            }
            // New requests take their places. The queue is as deep as permitted.
            for _ in 0..batch {
                queue.push_back(now);
                load.read_begun(Nanos(now));
            }
        }
        (0..depth).for_each(|_| load.reads -= 1);
        (took_ns.or(0.0), block_ns.or(0.0), f64::from(full) / f64::from(spans.max(1)))
    }

    fn assert_known(busy: &Busy, load: &mut Load) {
        let (took_ns, block_ns, _) = observe(busy, load);
        let &Busy { servers, depth, batch, gap_ns } = busy;
        let case = format!("{servers} servers, {depth} deep, {batch} together {gap_ns} ns apart");
        let block_share = block_ns * 4.0 * servers as f64 / SERVICE as f64;
        assert!((1.0 / 1.5..=1.5).contains(&block_share), "{case}: {block_ns} ns a block");
        let (found, expected) = (load.servers().expect("it was busy"), servers as f64);
        assert!((0.7 * expected..=1.5 * expected).contains(&found), "{case}: found {found}");
        assert!((5e6..25e6).contains(&took_ns), "{case}: T_disk {took_ns} ns");
    }

    #[test]
    fn what_works_at_once_is_told_from_what_waits_however_completions_are_heard_of() {
        for (servers, depth) in [(1, 50), (2, 100), (4, 64), (15, 200), (8, 1000)] {
            for batch in [1, 2, 4, 8, 32] {
                for gap_ns in [0, 1_000, 20_000] {
                    let mut load = Load::default();
                    assert_known(&Busy { servers, depth, batch, gap_ns }, &mut load);
                    let device = Device { load, outstanding: 1000, ..Device::new(DeviceId(0)) };
                    assert!(device.is_busy());
                }
            }
        }
    }

    #[test]
    fn a_device_with_one_request_at_a_time_serves_one() {
        let mut load = Load::default();
        let (took_ns, _, _) =
            observe(&Busy { servers: 1, depth: 1, batch: 1, gap_ns: 0 }, &mut load);
        assert_eq!(took_ns, SERVICE as f64);
        assert!(load.servers().is_none_or(|servers| servers == 1.0));
    }

    #[test]
    fn a_device_is_full_with_more_requests_than_it_serves_at_once() {
        for servers in [1, 2, 4, 15] {
            for (depth, is_full) in [(servers, false), (5 * servers, true)] {
                let busy = Busy { servers, depth, batch: 1, gap_ns: 0 };
                let (_, _, share) = observe(&busy, &mut Load::default());
                let case = format!("{servers} servers, {depth} deep: {share}");
                assert!(if is_full { share > 0.8 } else { share < 0.2 }, "{case}");
            }
        }
    }

    #[test]
    fn what_is_heard_of_at_one_instant_says_nothing_of_the_rate() {
        let mut load = Load::default();
        (0..100).for_each(|_| load.read_begun(Nanos(1)));
        for _ in 0..100 {
            let seen = load.completed(Nanos(2), (Nanos(1), 100), 1);
            assert_eq!(seen, Observation { block_ns: None, was_full: false, took_ns: None });
        }
    }

    #[test]
    fn time_in_which_a_device_stood_still_is_not_counted() {
        let (mut load, mut now) = (Load::default(), Nanos::ZERO);
        for _ in 0..100 {
            // Forty requests at once, 1 ms each, and then nothing for a second.
            now += Nanos(1_000_000_000);
            let begun = now;
            (0..40).for_each(|_| load.read_begun(begun));
            for _ in 0..40 {
                now += Nanos(1_000_000);
                load.reads -= 1;
                if let Some((block_ns, _)) = load.completed(now, (begun, 40), 1).block_ns {
                    assert_eq!(block_ns, 1e6);
                }
            }
        }
        assert_eq!(load.interval_ns.or(0.0), 1e6);
    }
}
