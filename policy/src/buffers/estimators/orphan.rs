//! The orphan estimator: blocks that nobody wants and that cannot be let go yet (TIP 1995, section 5.1).
//!
//! A block in flight is bound to its fetch: if its stream is cancelled on the way, the buffer comes free
//! when the data arrives and not before. Orphans are never picked. When they can be let go, they are
//! offered to the others like any block that was picked, and leave if nobody takes them.

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

    /// Takes in a block that cannot be let go.
    pub(crate) fn adopt(&mut self, slot: SlotId) {
        self.slots.insert(slot);
    }

    /// Hands over a block that can be let go now; whether it was one of these.
    #[inline]
    fn release(&mut self, slot: SlotId) -> bool {
        // Mostly there is none.
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

    #[inline]
    fn offer(&mut self, _scene: &mut Scene<'_>, slot: SlotId, _floor: f64) -> bool {
        !self.slots.is_empty() && self.slots.contains(&slot)
    }

    #[inline]
    fn forget(&mut self, _scene: &mut Scene<'_>, slot: SlotId) {
        self.release(slot);
    }

    fn moved(&mut self, _scene: &Scene<'_>, _slot: SlotId, _before: DeviceIndex) {}

    fn tracks(&self, _blocks: &BlockTable, slot: SlotId) -> bool {
        self.slots.contains(&slot)
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
