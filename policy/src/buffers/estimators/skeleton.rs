//! An estimator to copy: what the number of reads says of a block.
//!
//! It is no part of the policy: it is compiled and checked with the tests. It values each block by the
//! share of all accesses that were to it, as if the future were like the past and had no order. A real
//! one would forget (see `buffers/rates.rs`) and bound its memory; this one shows what every estimator has:
//!
//! * **A. State of its own.** What it knows of blocks, tracked or not; and those tracked, in the order of
//!   their values, so that the least is found without looking at the others. Devices have different
//!   costs, which move, while the order of blocks *of one device* does not: one ordered set for each.
//! * **B. A value in the currency**: ns of execution time for each buffer and access. Here: the chance
//!   that an access is to this block, times what that access would take longer without it.
//! * **C. Events.** What it learns from, called by the arbiter (`buffers/arbiter.rs`).
//! * **D. The duties** of [`Estimator`].
//!
//! Cost: O(log n) an event; O(d) to declare, d being devices.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::{Estimator, Scene};
use crate::blocks::{DeviceIndex, SlotId};
use crate::hint::Block;
use crate::tables::hash::Mix;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct FrequencyEstimator {
    accesses: u64,
    /// Reads of each block, whether it is tracked or not.
    reads: HashMap<Block, u64, Mix>,
    /// Blocks tracked by their reads, for each device.
    tracked: Vec<BTreeSet<(u64, SlotId)>>,
}

impl FrequencyEstimator {
    /// C: a block in memory is read. From now on it is tracked.
    pub(crate) fn read(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        self.forget(scene, slot);
        self.missed(scene.blocks[slot].block());
        self.track(scene, slot);
    }

    /// C: a block that is not in memory is read.
    pub(crate) fn missed(&mut self, block: Block) {
        self.accesses += 1;
        *self.reads.entry(block).or_default() += 1;
    }

    fn reads_of(&self, scene: &Scene<'_>, slot: SlotId) -> u64 {
        self.reads.get(&scene.blocks[slot].block()).copied().unwrap_or(0)
    }

    /// B.
    fn value(&self, scene: &Scene<'_>, device: DeviceIndex, reads: u64) -> f64 {
        let prices = scene.costs.at(device);
        reads as f64 / self.accesses.max(1) as f64 * (prices.driver_ns + prices.disk_ns)
    }

    fn track(&mut self, scene: &Scene<'_>, slot: SlotId) {
        let entry = (self.reads_of(scene, slot), slot);
        let device = usize::from(scene.blocks[slot].device().0);
        if self.tracked.len() <= device {
            self.tracked.resize(device + 1, BTreeSet::new());
        }
        self.tracked[device].insert(entry);
    }

    /// The least valuable block: of the first of each device, the one that is worth least.
    fn least(&self, scene: &Scene<'_>) -> Option<(f64, SlotId)> {
        let firsts = self.tracked.iter().enumerate().filter_map(|(device, tracked)| {
            let &(reads, slot) = tracked.first()?;
            Some((self.value(scene, DeviceIndex(device as u16), reads), slot))
        });
        firsts.min_by(|one, other| one.0.total_cmp(&other.0))
    }
}

/// D.
impl Estimator for FrequencyEstimator {
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64> {
        self.least(scene).map(|(value, _)| value)
    }

    fn pick(&mut self, scene: &mut Scene<'_>) -> Option<SlotId> {
        let (_, slot) = self.least(scene)?;
        self.forget(scene, slot);
        Some(slot)
    }

    /// Track it or lose it: whoever says yes has a reason of its own, and tracks the block.
    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool {
        let reads = self.reads_of(scene, slot);
        let device = scene.blocks[slot].device();
        let worth_it = reads > 0 && self.value(scene, device, reads) > floor;
        if worth_it {
            self.track(scene, slot);
        }
        worth_it
    }

    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        let entry = (self.reads_of(scene, slot), slot);
        if let Some(tracked) = self.tracked.get_mut(usize::from(scene.blocks[slot].device().0)) {
            tracked.remove(&entry);
        }
    }

    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
        let entry = (self.reads_of(scene, slot), slot);
        let old = self.tracked.get_mut(usize::from(before.0));
        if old.is_some_and(|tracked| tracked.remove(&entry)) {
            self.track(scene, slot);
        }
    }

    fn tracks(&self, scene: &Scene<'_>, slot: SlotId) -> bool {
        let tracked = self.tracked.get(usize::from(scene.blocks[slot].device().0));
        tracked.is_some_and(|tracked| tracked.contains(&(self.reads_of(scene, slot), slot)))
    }
}
