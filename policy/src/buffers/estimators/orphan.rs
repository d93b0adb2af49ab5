//! The orphan estimator: blocks without a use that cannot leave yet (TIP 1995, section 5.1).
//!
//! A block in flight is bound to its fetch. If its stream is cancelled meanwhile, the buffer becomes free when the data
//! arrives. Orphans are never picked. When their data arrives, the other estimators are offered them like any picked block.

use super::{Estimator, Scene, Setting};
use crate::blocks::{BlockTable, DeviceIndex, SlotId};
use crate::tables::hash::Mix;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct OrphanEstimator {
    slots: hashbrown::HashSet<SlotId, Mix>,
}

impl OrphanEstimator {
    pub(crate) fn new(_setting: &Setting) -> Self {
        OrphanEstimator::default()
    }

    /// Tracks a block in flight that has lost its claim.
    pub(crate) fn adopt(&mut self, slot: SlotId) {
        self.slots.insert(slot);
    }

    /// Stops tracking a block, and says whether it was tracked.
    #[inline]
    fn release(&mut self, slot: SlotId) -> bool {
        // Most often there is no orphan.
        !self.slots.is_empty() && self.slots.remove(&slot)
    }
}

impl Estimator for OrphanEstimator {
    fn declare(&mut self, _scene: &Scene<'_>) -> Option<f64> {
        None
    }

    fn pick(&mut self, _scene: &mut Scene<'_>) -> Option<SlotId> {
        None
    }

    fn offer(&mut self, _scene: &mut Scene<'_>, slot: SlotId, _floor: f64) -> bool {
        self.slots.contains(&slot)
    }

    #[inline]
    fn forget(&mut self, _scene: &mut Scene<'_>, slot: SlotId) {
        self.release(slot);
    }

    fn moved(&mut self, _scene: &Scene<'_>, _slot: SlotId, _before: DeviceIndex) {}

    #[inline]
    fn tracks(&self, _blocks: &BlockTable, slot: SlotId) -> bool {
        !self.slots.is_empty() && self.slots.contains(&slot)
    }

    #[inline]
    fn takes_over(&self) -> bool {
        false
    }

    #[inline]
    fn arrived(&mut self, _scene: &mut Scene<'_>, slot: SlotId) {
        self.release(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::estimators::conformance::{Change, Tested};

    impl Tested for OrphanEstimator {
        const PICKABLE: bool = false;

        fn event(&mut self, _scene: &mut Scene<'_>, slot: SlotId, kind: u8) -> Change {
            let mut change = Change::default();
            if kind.is_multiple_of(2) {
                self.adopt(slot);
                change.came.push(slot);
            } else {
                change.went.extend(self.release(slot).then_some(slot));
            }
            change
        }
    }
}
