//! An estimator to copy: what the number of reads says of a block.
//!
//! The skeleton is compiled with the tests and is no part of the policy. It values each block by the share of all accesses that
//! were to it. A real estimator would let old accesses decay (as `buffers/rates.rs` does) and bound its memory. The skeleton
//! shows the five parts of every estimator:
//!
//! * **A. State of its own.** What it knows of blocks, tracked or not, and the tracked ones in the order of their values. Costs
//!   differ between devices and change, while the order of blocks *of one device* stays: one ordered set for each device finds
//!   the least valuable block quickly.
//! * **B. A value in the currency**: ns of execution time for each buffer and access. Here, the chance that an access is to the
//!   block, times the time that its absence would add.
//! * **C. Events** from which it learns: methods of the trait.
//! * **D. The duties** of [`Estimator`].
//! * **E. Its test**: the events of its own that the suite cannot know.
//!
//! Cost: O(log n) an event; O(d) to declare, with d devices.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::conformance::{Change, FILE_BLOCKS, FILES, Tested};
use super::{Estimator, Scene, Setting};
use crate::blocks::{BlockTable, DeviceIndex, SlotId};
use crate::hint::{Block, FileId};
use crate::tables::hash::Mix;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct FrequencyEstimator {
    /// Whether it takes in events. Unless a test switches it on, it tracks nothing and the policy decides as without it.
    pub(crate) learns: bool,
    accesses: u64,
    /// Reads of each block, whether it is tracked or not.
    reads: HashMap<Block, u64, Mix>,
    /// Blocks tracked by their reads, for each device.
    tracked: Vec<BTreeSet<(u64, SlotId)>>,
}

impl FrequencyEstimator {
    pub(crate) fn new(_setting: &Setting) -> Self {
        FrequencyEstimator::default()
    }

    fn count(&mut self, block: Block) {
        self.accesses += 1;
        *self.reads.entry(block).or_default() += 1;
    }

    fn reads_of(&self, blocks: &BlockTable, slot: SlotId) -> u64 {
        self.reads.get(&blocks[slot].block()).copied().unwrap_or(0)
    }

    /// B.
    fn value(&self, scene: &Scene<'_>, device: DeviceIndex, reads: u64) -> f64 {
        let prices = scene.costs.at(device);
        reads as f64 / self.accesses.max(1) as f64 * (prices.driver_ns + prices.disk_ns)
    }

    fn track(&mut self, scene: &Scene<'_>, slot: SlotId) {
        let entry = (self.reads_of(scene.blocks, slot), slot);
        let device = usize::from(scene.blocks[slot].device().0);
        if self.tracked.len() <= device {
            self.tracked.resize(device + 1, BTreeSet::new());
        }
        self.tracked[device].insert(entry);
    }

    /// The least valuable of the first blocks of all devices.
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

    /// Track it or lose it: an estimator that says yes tracks the block from then on.
    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool {
        let reads = self.reads_of(scene.blocks, slot);
        let device = scene.blocks[slot].device();
        let worth_it = reads > 0 && self.value(scene, device, reads) > floor;
        if worth_it {
            self.track(scene, slot);
        }
        worth_it
    }

    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        let entry = (self.reads_of(scene.blocks, slot), slot);
        if let Some(tracked) = self.tracked.get_mut(usize::from(scene.blocks[slot].device().0)) {
            tracked.remove(&entry);
        }
    }

    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
        let entry = (self.reads_of(scene.blocks, slot), slot);
        let old = self.tracked.get_mut(usize::from(before.0));
        if old.is_some_and(|tracked| tracked.remove(&entry)) {
            self.track(scene, slot);
        }
    }

    fn tracks(&self, blocks: &BlockTable, slot: SlotId) -> bool {
        let tracked = self.tracked.get(usize::from(blocks[slot].device().0));
        tracked.is_some_and(|tracked| tracked.contains(&(self.reads_of(blocks, slot), slot)))
    }

    fn memory_bytes(&self) -> usize {
        let tracked: usize = self.tracked.iter().map(BTreeSet::len).sum();
        self.reads.allocation_size() + tracked * size_of::<(u64, SlotId)>()
    }

    /// C: a block that is read is tracked from then on.
    fn read(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if self.learns {
            self.forget(scene, slot);
            self.count(scene.blocks[slot].block());
            self.track(scene, slot);
        }
    }

    /// C.
    fn missed(&mut self, block: Block) {
        if self.learns {
            self.count(block);
        }
    }
}

/// E.
impl Tested for FrequencyEstimator {
    fn begin(&mut self) {
        self.learns = true;
    }

    fn event(&mut self, scene: &mut Scene<'_>, slot: SlotId, kind: u8) -> Change {
        let mut change = Change::default();
        if kind.is_multiple_of(4) {
            let absent = Block { file: FileId(u64::from(kind) / 4 % FILES), index: FILE_BLOCKS };
            self.missed(absent);
        } else {
            self.read(scene, slot);
            change.came.push(slot);
        }
        change
    }
}
