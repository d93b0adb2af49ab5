//! A limit below the capacity, which may change: what a driver lends to other policies, or must give back to the machine.

use super::Policy;
use crate::devices::device::Device;
use crate::hint::DeviceId;
use crate::time::Nanos;

impl Policy {
    /// Brings in a block only while fewer than `blocks` are in memory or in flight; at least one, and at most the capacity.
    /// Blocks beyond it stay until others need their room, or [`shed`](Self::shed) lets them go. Takes O(open streams).
    pub fn set_limit(&mut self, blocks: u64) {
        let blocks = blocks.clamp(1, self.config.capacity_blocks);
        if blocks == self.limit_blocks() {
            return;
        }
        self.prefetcher.set_limit(blocks);
        self.arbiter.set_limit(blocks);
        for index in self.arbiter.streams().indices() {
            self.arbiter.streams_mut().touch(index); // How far ahead it is searched follows the limit.
        }
        self.check();
    }

    /// Lookups and fetches that `device` presumably works on for this policy: all in flight but overdue lookups. A driver may
    /// bound them by not calling [`next`](Self::next).
    pub fn in_flight(&self, device: DeviceId) -> usize {
        self.seen(device).map_or(0, Device::working_on)
    }

    /// How many fetches `device` serves at once, if that was measured; further ones wait there.
    pub fn served_at_once(&self, device: DeviceId) -> Option<f64> {
        self.seen(device)?.served_at_once()
    }

    fn seen(&self, device: DeviceId) -> Option<&Device> {
        self.device_ids.get(&device).map(|index| &self.devices[usize::from(index.0)])
    }

    /// The blocks that may be in memory or in flight.
    pub fn limit_blocks(&self) -> u64 {
        self.arbiter.limit_blocks()
    }

    /// Evicts the least valuable blocks until no more than the limit are left, or all that are left are in flight.
    pub fn shed(&mut self, now: Nanos) {
        self.arbiter.shed(now);
        self.check();
    }
}
