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

use super::{Estimator, Scene, Setting};
use crate::blocks::{BlockTable, DeviceIndex, Queue, SlotId, Stamp};
use crate::buffers::hit_curve::HitCurve;
use crate::buffers::recency::Stack;
use crate::contract::Memory;
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
    /// Of blocks that were read without hints.
    pub(crate) fn recent(setting: &Setting) -> Self {
        LruEstimator::of(Queue::Recent, setting)
    }

    /// Of blocks that were read as hinted.
    pub(crate) fn consumed(setting: &Setting) -> Self {
        LruEstimator::of(Queue::Consumed, setting)
    }

    fn of(queue: Queue, setting: &Setting) -> Self {
        let Setting { rules, memory, capacity_blocks } = *setting;
        let curve = rules.replacement == Replacement::MinMax && memory == Memory::Owned;
        LruEstimator::new(queue, capacity_blocks, curve)
    }

    /// The estimator of `queue` in a cache of `capacity_blocks`; `curve` says whether it keeps ghosts and
    /// counts hits.
    fn new(queue: Queue, capacity_blocks: usize, curve: bool) -> Self {
        let stack = Stack::new(capacity_blocks, curve);
        let curve = curve.then(|| HitCurve::new(&stack.segment_ends()));
        let loads_picks = capacity_blocks >= LOADED_FROM_BLOCKS;
        LruEstimator { queue, stack, curve, of_device: Vec::new(), loaded_picks: 0, loads_picks }
    }

    /// An access that this queue might serve.
    #[inline]
    fn access(&mut self) {
        if let Some(curve) = &mut self.curve {
            curve.access();
        }
    }

    /// The access was to a block of this queue, in memory, whose place was this: it goes on top.
    #[inline(always)] // On the way of every hit.
    fn hit_again(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if let Some(curve) = &mut self.curve {
            curve.hit(self.stack.segment_of(stamp));
        }
        self.renew(scene, slot, stamp);
    }

    /// A block of this queue was read, and this queue has not to do with it: it goes on top.
    #[inline(always)] // On the way of every hit.
    fn renew(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if !self.stack.is_top(stamp) {
            let blocks = &mut *scene.blocks;
            let stamp = self.stack.renew(slot, stamp, |moved, stamp| blocks[moved].restamp(stamp));
            blocks[slot].restamp(stamp);
        }
    }

    /// The access was to a block of this queue, in memory: takes it out.
    fn hit(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        let Some(stamp) = self.stamp(scene.blocks, slot) else { return };
        self.leaves(scene, slot);
        match &mut self.curve {
            Some(curve) => curve.hit(self.stack.take(stamp)),
            None => self.stack.remove(stamp),
        }
    }

    /// The access was to a block that is not in this queue; it may have been once.
    fn find_ghost(&mut self, block: Block) {
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
        if let Some(stamp) = self.stamp(scene.blocks, slot) {
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

    fn stamp(&self, blocks: &BlockTable, slot: SlotId) -> Option<Stamp> {
        let (queue, stamp) = blocks[slot].queue()?;
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

    /// The block, whose place was this, goes; its ghost stays.
    #[inline(always)] // On the way of every miss.
    fn demote(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if self.curve.is_some() {
            self.stack.demote(stamp, scene.blocks[slot].block());
        } else {
            self.stack.remove(stamp);
        }
        self.leaves(scene, slot);
    }

    #[inline(never)] // Seldom: the queue has picked what leaves.
    fn demote_unpicked(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        self.demote(scene, slot, stamp);
    }

    /// An unhinted read of a block that is not in the queue of recent blocks.
    #[inline(never)]
    fn read_elsewhere(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        match scene.blocks[slot].queue() {
            Some(_) if self.queue == Queue::Consumed => self.hit(scene, slot),
            _ => self.find_ghost(scene.blocks[slot].block()),
        }
        if self.queue == Queue::Recent {
            self.put(scene, slot);
        }
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
        if let Some(stamp) = self.stamp(scene.blocks, slot) {
            self.demote(scene, slot, stamp);
        }
        Some(slot)
    }

    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool {
        self.tracks(scene.blocks, slot) && self.value(scene) > floor
    }

    #[inline]
    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if let Some(stamp) = self.stamp(scene.blocks, slot) {
            self.demote_unpicked(scene, slot, stamp);
        }
    }

    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
        if self.tracks(scene.blocks, slot) {
            *self.blocks_of(before) -= 1;
            *self.blocks_of(scene.blocks[slot].device()) += 1;
        }
    }

    #[inline]
    fn tracks(&self, blocks: &BlockTable, slot: SlotId) -> bool {
        self.stamp(blocks, slot).is_some()
    }

    fn value_beyond_reach(&mut self, scene: &Scene<'_>) -> f64 {
        if scene.rules.replacement != Replacement::MinMax {
            return 0.0;
        }
        let residents = self.stack.residents();
        let slope = self.curve.as_mut().map_or(0.0, |curve| curve.slope_beyond_reach(residents));
        if slope > 0.0 { slope * self.miss_ns(scene) } else { 0.0 }
    }

    fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes()
    }

    #[inline(always)] // On the way of every hit.
    fn read(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        self.access();
        match scene.blocks[slot].queue() {
            Some((Queue::Recent, stamp)) => {
                if self.queue == Queue::Recent {
                    self.hit_again(scene, slot, stamp);
                }
            }
            _ => self.read_elsewhere(scene, slot),
        }
    }

    #[inline]
    fn missed(&mut self, block: Block) {
        self.access();
        self.find_ghost(block);
    }

    /// What was read as hinted goes on top of its queue. That is no access that the queue has served.
    #[inline]
    fn read_hinted(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if self.queue == Queue::Consumed
            && let Some(stamp) = self.stamp(scene.blocks, slot)
        {
            self.renew(scene, slot, stamp);
        }
    }

    #[inline]
    fn set_reach(&mut self, buffers: usize) {
        if let Some(curve) = &mut self.curve {
            curve.set_reach(buffers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::estimators::conformance::{
        Change, FILE_BLOCKS, SEVERAL, Step, Tested, World, check_listed,
    };
    use crate::rules::Rules;

    impl Tested for LruEstimator {
        fn event(&mut self, scene: &mut Scene<'_>, slot: SlotId, kind: u8) -> Change {
            let block = scene.blocks[slot].block();
            let tracked = self.tracks(scene.blocks, slot);
            let mut change = Change::default();
            match kind % 8 {
                0 => {
                    self.take(scene, slot);
                    change.went.extend(tracked.then_some(slot));
                }
                1 => self.set_reach(usize::from(kind / 8)),
                2 => self.missed(Block { index: FILE_BLOCKS, ..block }),
                // What is read as hinted goes on top without having been an access to the queue.
                3 if !tracked || self.queue == Queue::Recent => {
                    self.forget_ghost(block);
                    self.put(scene, slot);
                    change.came.push(slot);
                }
                _ if tracked && self.queue == Queue::Recent => {
                    self.read(scene, slot);
                    change.came.push(slot);
                }
                _ => {
                    self.access();
                    if tracked {
                        self.hit(scene, slot);
                    } else {
                        self.find_ghost(block);
                    }
                    self.put(scene, slot);
                    change.came.push(slot);
                }
            }
            change
        }
    }

    /// The oldest block of the queue lies on a dear device, the next ones on cheap ones.
    #[test]
    fn a_queue_of_dear_and_cheap_blocks() {
        let reads = |slot| Step::Event(slot, 4);
        let costs = [Step::Cost(0, 200_000), Step::Cost(1, 1), Step::Cost(2, 1)];
        let reads = [0, 1, 2, 1, 0, 1, 2].map(reads);
        let world = World::new(Rules::FORETELL, SEVERAL);
        let steps = [&costs[..], &reads, &[Step::Pick]].concat();
        check_listed(world, LruEstimator::recent, &steps);
    }

    /// What a queue is worth after these reads of its blocks; they are hits, told of in either way.
    fn worth_after(reads: &[usize], in_one: bool) -> f64 {
        let mut world = World::new(Rules::FORETELL, 1);
        let mut lru = LruEstimator::recent(&world.setting());
        for slot in world.slots.clone() {
            lru.put(&mut world.scene(), slot);
        }
        for &read in reads {
            let slot = world.slots[read];
            if in_one {
                lru.read(&mut world.scene(), slot);
            } else {
                lru.access();
                lru.hit(&mut world.scene(), slot);
                lru.put(&mut world.scene(), slot);
            }
        }
        lru.declare(&world.scene()).expect("there are blocks")
    }

    #[test]
    fn a_hit_counts_whether_it_is_told_in_one_or_in_two() {
        let reads: Vec<usize> = (0..10).flat_map(|_| [0, 3, 3, 7, 11, 2]).collect();
        let worth = worth_after(&reads, true);
        assert_eq!(worth, worth_after(&reads, false));
        assert!(worth > worth_after(&[], true), "{worth}");
    }
}
