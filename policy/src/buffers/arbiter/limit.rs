//! How many blocks may be in memory or in flight, and who goes if that becomes less.

use super::Arbiter;
use crate::time::Nanos;

impl Arbiter {
    /// See [`Policy::set_limit`](crate::Policy::set_limit).
    pub(crate) fn set_limit(&mut self, blocks: u64) {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        self.limit_blocks = blocks.min(self.capacity_blocks);
    }

    /// See [`Policy::limit_blocks`](crate::Policy::limit_blocks).
    pub(crate) fn limit_blocks(&self) -> u64 {
        self.limit_blocks as u64
    }

    /// See [`Policy::shed`](crate::Policy::shed).
    pub(crate) fn shed(&mut self, now: Nanos) {
        while self.blocks.len() > self.limit_blocks {
            let Some((of, cost)) = self.least() else { return };
            let Some(slot) = self.pick(of) else { return };
            if let Some(named) = self.unsaved(slot, of, cost) {
                self.leave(now, slot, (of.stream(), named), (cost, f64::INFINITY));
            }
        }
    }
}
