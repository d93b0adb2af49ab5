//! The LRU estimator: what recency says of a block (TIP 1995, sections 4.3 and 5.2).
//!
//! A queue of blocks in the order of their last reads, continued by *ghosts*: places of blocks that have
//! left, which tell what a larger cache would have hit. Hits are counted by the depth at which they
//! occur; the value of a buffer is the slope of the hit ratio at the queue's present length, taken of its
//! least concave majorant, so that a jump is seen from both sides (fig. 6). The buffer is the queue's, not
//! that of one of its blocks: where devices differ, a hit saves what the blocks of the queue cost on
//! average.
//!
//! There are two of them. One holds what was read without hints, as in the paper. The other holds what was
//! read as hinted and is not hinted again: usually such blocks are worth nothing, and a scan of them
//! must not push out the first queue; but if somebody comes back for them, its own hits say so.

use super::{Estimator, Scene};
use crate::blocks::{DeviceIndex, Queue, SlotId, Stamp};
use crate::buffers::hit_curve::HitCurve;
use crate::buffers::recency::Stack;
use crate::hint::Block;
use crate::rules::Replacement;
use crate::tables::hash::hash_block;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct LruEstimator {
    queue: Queue,
    stack: Stack,
    /// Absent where nobody asks for values.
    curve: Option<HitCurve>,
    /// Blocks of each device.
    of_device: Vec<usize>,
    /// Blocks that are loaded and not picked yet, if nothing was read in between.
    loaded_picks: usize,
    loads_picks: bool,
}

/// Blocks that are loaded at a time before they are picked; what is kept of fewer blocks than so many is near the
/// processor anyway.
const LOADED_PICKS: usize = 16;
const LOADED_FROM_BLOCKS: usize = 1 << 14;

impl LruEstimator {
    /// The estimator of `queue` in a cache of `capacity_blocks`; `curve` says whether it keeps ghosts and
    /// counts hits.
    pub(crate) fn new(queue: Queue, capacity_blocks: usize, curve: bool) -> Self {
        let stack = Stack::new(capacity_blocks, curve);
        let curve = curve.then(|| HitCurve::new(&stack.segment_ends()));
        let loads_picks = capacity_blocks >= LOADED_FROM_BLOCKS;
        LruEstimator { queue, stack, curve, of_device: Vec::new(), loaded_picks: 0, loads_picks }
    }

    /// An access that this queue might serve.
    #[inline]
    pub(crate) fn access(&mut self) {
        if let Some(curve) = &mut self.curve {
            curve.access();
        }
    }

    /// Says how many buffers this queue can have at most.
    pub(crate) fn set_reach(&mut self, buffers: usize) {
        if let Some(curve) = &mut self.curve {
            curve.set_reach(buffers);
        }
    }

    /// The access was to a block of this queue, in memory, whose place was this: it goes on top.
    #[inline(always)] // On the way of every hit.
    pub(crate) fn hit_again(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if let Some(curve) = &mut self.curve {
            curve.hit(self.stack.segment_of(stamp));
        }
        self.renew(scene, slot, stamp);
    }

    /// A block of this queue was read, and this queue has not to do with it: it goes on top.
    #[inline(always)] // On the way of every hit.
    pub(crate) fn renew(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if !self.stack.is_top(stamp) {
            let blocks = &mut *scene.blocks;
            let stamp = self.stack.renew(slot, stamp, |moved, stamp| blocks[moved].restamp(stamp));
            blocks[slot].restamp(stamp);
        }
    }

    /// The access was to a block of this queue, in memory: takes it out.
    pub(crate) fn hit(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        let Some(stamp) = self.stamp(scene, slot) else { return };
        self.leaves(scene, slot);
        match &mut self.curve {
            Some(curve) => curve.hit(self.stack.take(stamp)),
            None => self.stack.remove(stamp),
        }
    }

    /// The access was to a block that is not in this queue; it may have been once.
    pub(crate) fn missed(&mut self, block: Block) {
        if let Some(curve) = &mut self.curve
            && let Some(found) = self.stack.take_ghost(block)
        {
            curve.hit_ghost(found);
        }
    }

    /// Puts a block on top, wherever in the queue it was before; it must not be in the other one, and
    /// must have no named ghost here.
    #[inline]
    pub(crate) fn put(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        match scene.blocks[slot].queue() {
            Some((_, stamp)) => self.stack.remove(stamp),
            None => *self.blocks_of(scene.blocks[slot].device()) += 1,
        }
        let blocks = &mut *scene.blocks;
        let stamp = self.stack.push(slot, |moved, stamp| blocks[moved].restamp(stamp));
        blocks[slot].set_queue(Some((self.queue, stamp)));
    }

    /// Forgets that the block was here before, if its ghost has a name.
    pub(crate) fn forget_ghost(&mut self, block: Block) {
        if self.curve.is_some() {
            self.stack.take_ghost(block);
        }
    }

    /// Takes a block out without a trace.
    pub(crate) fn take(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if let Some(stamp) = self.stamp(scene, slot) {
            self.stack.remove(stamp);
            self.leaves(scene, slot);
        }
    }

    fn blocks_of(&mut self, device: DeviceIndex) -> &mut usize {
        let index = usize::from(device.0);
        if self.of_device.len() <= index {
            self.of_device.resize(index + 1, 0);
        }
        &mut self.of_device[index]
    }

    #[inline(always)] // On the way of every miss.
    fn leaves(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        scene.blocks[slot].set_queue(None);
        *self.blocks_of(scene.blocks[slot].device()) -= 1;
    }

    fn stamp(&self, scene: &Scene<'_>, slot: SlotId) -> Option<Stamp> {
        let (queue, stamp) = scene.blocks[slot].queue()?;
        (queue == self.queue).then_some(stamp)
    }

    /// Blocks of the queue.
    pub(crate) fn len(&self) -> usize {
        self.stack.residents()
    }

    /// Buffers of the queue, if one of them would be worth less than `worth` whatever was prefetched, in ns for
    /// each access of its own.
    pub(crate) fn idle(&mut self, scene: &Scene<'_>, worth: f64) -> usize {
        let residents = self.stack.residents();
        if residents > 0 && self.value_beyond_reach(scene) < worth { residents } else { 0 }
    }

    /// What a buffer of the queue is worth, and so each of its blocks.
    fn value(&mut self, scene: &Scene<'_>) -> f64 {
        if scene.rules.replacement != Replacement::MinMax {
            return 0.0;
        }
        let slope = self.curve.as_mut().map_or(0.0, |curve| curve.slope(self.stack.residents()));
        if slope > 0.0 { slope * self.miss_ns(scene) } else { 0.0 }
    }

    /// What a buffer would be worth if those with prefetched blocks gave theirs up.
    #[inline]
    pub(crate) fn value_beyond_reach(&mut self, scene: &Scene<'_>) -> f64 {
        if scene.rules.replacement != Replacement::MinMax {
            return 0.0;
        }
        let residents = self.stack.residents();
        let slope = self.curve.as_mut().map_or(0.0, |curve| curve.slope_beyond_reach(residents));
        if slope > 0.0 { slope * self.miss_ns(scene) } else { 0.0 }
    }

    /// What fetching a block of the queue costs, on average.
    fn miss_ns(&self, scene: &Scene<'_>) -> f64 {
        let costs = self.of_device.iter().enumerate().filter(|&(_, &blocks)| blocks > 0);
        let costs = costs.map(|(device, &blocks)| {
            let prices = scene.costs.at(DeviceIndex(device as u16));
            (blocks as f64, prices.driver_ns + prices.disk_ns)
        });
        let mean = costs.reduce(|(blocks, mean_ns), (more, ns)| {
            (blocks + more, mean_ns + (ns - mean_ns) * more / (blocks + more))
        });
        mean.map_or(0.0, |(_, mean_ns)| mean_ns)
    }

    /// Whether a block that is not in memory may have a ghost.
    pub(crate) fn has_ghosts(&self) -> bool {
        self.stack.has_named_ghosts()
    }

    /// Loads the ghosts of blocks with these hashes, or the places where they would be.
    pub(crate) fn load_ghosts(&self, hashes: impl Iterator<Item = u64>) {
        hashes.for_each(|hash| self.stack.load_ghost(hash));
    }

    /// Loads what is known of a block's place in the queue.
    pub(crate) fn load_entry(&self, stamp: Stamp) {
        self.stack.load_entry(stamp);
    }

    /// Loads what is kept of the blocks that will be picked next. With a million blocks a victim would cost
    /// twice as much without.
    #[inline(never)]
    fn load_picks(&mut self, scene: &Scene<'_>) {
        self.loaded_picks = LOADED_PICKS;
        // What the slots lead to, and the slots of those after them, which will have come by the next time.
        for (number, slot) in (0..).zip(self.stack.deepest(2 * LOADED_PICKS)) {
            if number < LOADED_PICKS {
                let hash = hash_block(scene.blocks[slot].block());
                scene.blocks.load_home(hash);
                self.stack.load_ghost(hash);
            } else {
                scene.blocks.load_slot(slot);
            }
        }
        self.stack.load_deepest_ghosts(LOADED_PICKS);
    }

    /// Bytes that it takes, but for the blocks' slots.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes()
    }
}

impl Estimator for LruEstimator {
    /// Eq. 4 at the queue's length.
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64> {
        (self.stack.residents() > 0).then(|| self.value(scene))
    }

    #[inline(always)] // On the way of every miss.
    fn pick(&mut self, scene: &mut Scene<'_>) -> Option<SlotId> {
        let slot = self.stack.oldest()?;
        if self.loads_picks {
            if self.loaded_picks == 0 {
                self.load_picks(scene);
            }
            self.loaded_picks -= 1;
        }
        self.forget(scene, slot);
        Some(slot)
    }

    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool {
        self.tracks(scene, slot) && self.value(scene) > floor
    }

    /// The block goes, its ghost stays.
    #[inline(always)] // On the way of every miss.
    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        let Some(stamp) = self.stamp(scene, slot) else { return };
        if self.curve.is_some() {
            self.stack.demote(stamp, scene.blocks[slot].block());
        } else {
            self.stack.remove(stamp);
        }
        self.leaves(scene, slot);
    }

    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
        if self.tracks(scene, slot) {
            *self.blocks_of(before) -= 1;
            *self.blocks_of(scene.blocks[slot].device()) += 1;
        }
    }

    fn tracks(&self, scene: &Scene<'_>, slot: SlotId) -> bool {
        self.stamp(scene, slot).is_some()
    }
}
