//! What the policy knows of a device: its slots, its lookups, and who has something for it to fetch.

use std::collections::{BTreeMap, VecDeque};

use crate::blocks::StreamIndex;
use crate::costs::Mean;
use crate::depth::DepthControl;
use crate::heap::IndexedHeap;
use crate::hint::DeviceId;
use crate::time::Nanos;

/// Place of a hint in the order of arrival, over all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    /// Prefetches and lookups under way.
    pub(crate) outstanding: usize,
    /// Names being looked up.
    pub(crate) looked_up: usize,
    pub(crate) depth: DepthControl,
    /// Reads in a row that found everything in memory.
    pub(crate) cached_run: u32,
    /// Hints not looked up, of each stream in order, by their numbers there.
    pub(crate) unresolved: BTreeMap<StreamIndex, VecDeque<(Ticket, u64)>>,
    /// Streams with a block to fetch from it, by the benefit of fetching it.
    pub(crate) candidates: IndexedHeap,
    load: Load,
    /// Time of a lookup, that in the device's queue included.
    lookup_ns: Mean,
}

/// How much at once a device can do with profit, found from what it does.
///
/// By Little's law a device that completes requests at a rate r, each of which takes a time t when there
/// is no queue, works on r t of them at once; what is given to it beyond that waits. Both are measured:
/// r as the best rate of late, t as the shortest time of late.
#[derive(Debug, Default)]
struct Load {
    last_completion: Nanos,
    /// Mean interval of completions while busy, ns.
    interval_ns: Option<f64>,
    /// The shortest interval of late, and the shortest time of a request.
    best_interval_ns: Option<f64>,
    best_took_ns: Option<f64>,
}

/// A lookup that takes longer than this, and than so many lookups of late, does not hold up what is hinted
/// after it. In a long queue all of them take their time.
const LOOKUP_PATIENCE: Nanos = Nanos(250_000_000);
const LOOKUP_MEANS: f64 = 4.0;

/// Weight of a new interval in the mean.
const INTERVAL_WEIGHT: f64 = 1.0 / 16.0;

/// What was best is forgotten by so much a completion.
const FORGET: f64 = 1.0001;

/// Requests that a disk should have to choose from (TIP 1995, section 3: five outstanding at each).
const REQUESTS_PER_SERVER: f64 = 5.0;

/// What a completed read says of its device, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observation {
    /// The time of one block more, if the device was busy.
    pub(crate) block_ns: Option<f64>,
    /// The time of the request without what it waited for others.
    pub(crate) took_ns: Option<f64>,
}

impl Load {
    fn servers(&self) -> f64 {
        match (self.best_took_ns, self.best_interval_ns) {
            (Some(took_ns), Some(interval_ns)) => (took_ns / interval_ns).max(1.0),
            _ => 1.0,
        }
    }

    fn completed(&mut self, now: Nanos, flight: (Nanos, usize), blocks: u64) -> Observation {
        let (started, outstanding) = flight;
        let last = std::mem::replace(&mut self.last_completion, now);
        let busy = last > Nanos::ZERO && started <= last;
        let interval_ns = now.saturating_sub(last).0 as f64;
        let took_ns = now.saturating_sub(started).0 as f64;
        if took_ns == 0.0 {
            return Observation { block_ns: None, took_ns: None }; // By a driver without a clock.
        }
        let best_took_ns = self.best_took_ns.map_or(took_ns, |best| (best * FORGET).min(took_ns));
        self.best_took_ns = Some(best_took_ns);
        if busy {
            let mean = self.interval_ns.get_or_insert(interval_ns);
            *mean += INTERVAL_WEIGHT * (interval_ns - *mean);
            let mean = mean.max(1.0);
            let best = self.best_interval_ns.map_or(mean, |best| (best * FORGET).min(mean));
            self.best_interval_ns = Some(best);
        }
        let share = (self.servers() / outstanding.max(1) as f64).min(1.0);
        let block_ns = busy.then(|| interval_ns / blocks.max(1) as f64);
        Observation { block_ns, took_ns: Some(took_ns * share) }
    }
}

impl Device {
    pub(crate) fn new(id: DeviceId) -> Self {
        Device {
            id,
            outstanding: 0,
            looked_up: 0,
            depth: DepthControl::default(),
            cached_run: 0,
            unresolved: BTreeMap::new(),
            candidates: IndexedHeap::default(),
            load: Load::default(),
            lookup_ns: Mean::default(),
        }
    }

    /// The earliest hint not looked up of the streams that are `allowed`.
    pub(crate) fn first_unresolved(
        &self,
        mut allowed: impl FnMut(StreamIndex) -> bool,
    ) -> Option<StreamIndex> {
        let firsts = self.unresolved.iter().filter(|&(&stream, _)| allowed(stream));
        let firsts = firsts.filter_map(|(&stream, hints)| Some((hints.front()?.0, stream)));
        firsts.min_by_key(|&(ticket, _)| ticket).map(|(_, stream)| stream)
    }

    /// Takes the first hint not looked up of `stream`.
    pub(crate) fn take_unresolved(&mut self, stream: StreamIndex) -> Option<u64> {
        let hints = self.unresolved.get_mut(&stream)?;
        let (_, number) = hints.pop_front()?;
        if hints.is_empty() {
            self.unresolved.remove(&stream);
        }
        Some(number)
    }

    /// A read of `blocks` blocks has completed; `flight` is when it was begun, and how many were under
    /// way with it then.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        flight: (Nanos, usize),
        blocks: u64,
    ) -> Observation {
        self.load.completed(now, flight, blocks)
    }

    /// A lookup has taken `took`.
    pub(crate) fn looked_up(&mut self, took: Nanos) {
        self.looked_up -= 1;
        self.lookup_ns.add(took.0 as f64);
    }

    /// How long a lookup may take before others go before it.
    pub(crate) fn lookup_patience(&self) -> Nanos {
        LOOKUP_PATIENCE.max(Nanos((LOOKUP_MEANS * self.lookup_ns.or(0.0)) as u64))
    }

    /// Whether it has as much to do as makes it go as fast as it can.
    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding as f64 >= REQUESTS_PER_SERVER * self.load.servers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_is_slow_if_it_takes_much_longer_than_others() {
        let mut device = Device::new(DeviceId(0));
        assert_eq!(device.lookup_patience(), LOOKUP_PATIENCE);
        for took_ms in [1, 2000] {
            for _ in 0..200 {
                device.looked_up += 1;
                device.looked_up(Nanos(took_ms * 1_000_000));
            }
            let patience = device.lookup_patience();
            assert!(patience >= LOOKUP_PATIENCE, "{patience}");
            assert!((Nanos(3 * took_ms * 1_000_000)..=Nanos(8_000_000_000)).contains(&patience));
        }
        // One that was stuck changes little.
        device.looked_up += 1;
        device.looked_up(Nanos(3_600_000_000_000));
        assert!(device.lookup_patience() < Nanos(10_000_000_000));
    }

    /// A device that works on `servers` requests at once, 10 ms each, `depth` of them under way.
    fn observe(servers: u64, depth: u64) -> (Load, Observation) {
        const SERVICE: u64 = 10_000_000;
        let (mut load, mut last) = (Load::default(), None);
        let begins = |number: u64| number / servers * SERVICE;
        for number in 0..2000u64 {
            // The queue is as deep as it may be: a request is begun when that of `depth` before ends.
            let begun = number.checked_sub(depth).map_or(0, |before| begins(before) + SERVICE);
            let end = begins(number) + SERVICE + number % servers * (SERVICE / servers);
            last = Some(load.completed(Nanos(end), (Nanos(begun), depth as usize), 4));
        }
        (load, last.expect("some have completed"))
    }

    #[test]
    fn what_works_at_once_is_told_from_what_waits() {
        for (servers, depth) in [(1, 1), (1, 50), (4, 64), (15, 200)] {
            let (load, observation) = observe(servers, depth);
            let found = load.servers();
            let expected = servers as f64;
            assert!((0.7 * expected..=1.5 * expected).contains(&found), "{servers}: {found}");
            let took_ms = observation.took_ns.expect("it has taken time") / 1e6;
            assert!((5.0..25.0).contains(&took_ms), "{servers} {depth}: {took_ms}");
        }
    }
}
