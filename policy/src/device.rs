//! What the policy knows of a device: its slots, its lookups, and who has something for it to fetch.

use std::collections::{BTreeMap, VecDeque};

use crate::blocks::StreamIndex;
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
    last_completion: Nanos,
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
            last_completion: Nanos::ZERO,
        }
    }

    /// The earliest hint not looked up of the streams that are `allowed`.
    pub(crate) fn first_unresolved(
        &self,
        allowed: impl Fn(StreamIndex) -> bool,
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

    /// A read of `blocks` blocks, begun at `started`, has completed. Returns the time of a block, in ns,
    /// if the device has been busy since the last one.
    pub(crate) fn busy_ns_per_block(
        &mut self,
        now: Nanos,
        started: Nanos,
        blocks: u64,
    ) -> Option<f64> {
        let last = std::mem::replace(&mut self.last_completion, now);
        let busy = last > Nanos::ZERO && started <= last;
        busy.then(|| now.saturating_sub(last).0 as f64 / blocks.max(1) as f64)
    }
}
