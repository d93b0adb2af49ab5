//! The LRU estimator: what recency says of a block (TIP 1995, sections 4.3 and 5.2).
//!
//! An LRU estimator is a queue of blocks in the order of their last reads. *Ghosts* continue the queue: they are the places of
//! blocks that have left, and show what a larger cache would have hit. Hits are counted by their depth. The value of a buffer
//! is the slope of the hit ratio at the queue's present length ([`HitCurve`]), times the mean cost of fetching a block of the
//! queue. All blocks of the queue have this value; the oldest is picked.
//!
//! There are two such queues, which `queues.rs` makes one estimator of the list:
//! * *recent* holds blocks that were read without hints, as in the paper;
//! * *consumed* holds blocks that were read as hinted and are not hinted again. They are usually worth nothing, and a scan of
//!   them must not push out the first queue. If programs do read them again, the queue's own hits show it.
//!
//! A block is in one of the two queues at most. An unhinted read moves it from the consumed queue to the recent one.

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
    /// Absent where no policy asks for values.
    curve: Option<HitCurve>,
    /// Blocks of each device.
    of_device: Vec<usize>,
    /// Picks until the next blocks are loaded.
    loaded_picks: usize,
    loads_picks: bool,
}

/// Blocks that are loaded into the processor's caches at a time, before they are picked.
/// Unit: blocks. Reason: measured (policy-speed).
const LOADED_PICKS: usize = 16;
/// Capacity from which blocks are loaded ahead. The tables of a smaller cache fit the processor's caches.
/// Unit: blocks. Reason: measured (policy-speed).
const LOADED_FROM_BLOCKS: usize = 1 << 14;

impl LruEstimator {
    /// An empty queue. It keeps ghosts and counts hits where the policy asks for values.
    pub(super) fn new(queue: Queue, setting: &Setting) -> Self {
        let Setting { rules, memory, capacity_blocks } = *setting;
        let curve = rules.replacement == Replacement::MinMax && memory == Memory::Owned;
        let stack = Stack::new(capacity_blocks, curve);
        let curve = curve.then(|| HitCurve::new(&stack.segment_ends()));
        let loads_picks = capacity_blocks >= LOADED_FROM_BLOCKS;
        LruEstimator { queue, stack, curve, of_device: Vec::new(), loaded_picks: 0, loads_picks }
    }

    /// Counts an access that this queue might have served.
    #[inline]
    pub(super) fn access(&mut self) {
        if let Some(curve) = &mut self.curve {
            curve.access();
        }
    }

    /// The access hit a block of this queue: counts the hit and puts the block on top.
    #[inline(always)] // Every hit without hints passes here.
    pub(super) fn hit_again(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if let Some(curve) = &mut self.curve {
            curve.hit(self.stack.segment_of(stamp));
        }
        self.renew(scene, slot, stamp);
    }

    /// Puts a block of this queue on top without counting a hit.
    #[inline(always)] // Every hit without hints passes here.
    pub(super) fn renew(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if !self.stack.is_top(stamp) {
            let blocks = &mut *scene.blocks;
            let stamp = self.stack.renew(slot, stamp, |moved, stamp| blocks[moved].restamp(stamp));
            blocks[slot].restamp(stamp);
        }
    }

    /// The access hit a block of this queue: counts the hit and takes the block out.
    pub(super) fn hit(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        let Some(stamp) = self.stamp(scene.blocks, slot) else { return };
        self.leaves(scene, slot);
        match &mut self.curve {
            Some(curve) => curve.hit(self.stack.take(stamp)),
            None => self.stack.remove(stamp),
        }
    }

    /// The access was to a block that is not in this queue. If its ghost is, counts the hit of a larger cache.
    pub(super) fn find_ghost(&mut self, block: Block) {
        if let Some(curve) = &mut self.curve
            && let Some(found) = self.stack.take_ghost(block)
        {
            curve.hit_ghost(found);
        }
    }

    /// Puts a block on top. It must not be in the other queue, and must not have a named ghost here.
    #[inline]
    pub(super) fn put(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        match scene.blocks[slot].queue() {
            Some((_, stamp)) => self.stack.remove(stamp),
            None => *self.blocks_of(scene.blocks[slot].device()) += 1,
        }
        let blocks = &mut *scene.blocks;
        let stamp = self.stack.push(slot, |moved, stamp| blocks[moved].restamp(stamp));
        blocks[slot].set_queue(Some((self.queue, stamp)));
    }

    /// Drops the block's ghost, if it has a name.
    pub(super) fn forget_ghost(&mut self, block: Block) {
        if self.curve.is_some() {
            self.stack.take_ghost(block);
        }
    }

    /// Takes a block out without leaving a ghost.
    pub(super) fn take(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
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

    #[inline(always)] // Every miss passes here.
    fn leaves(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        scene.blocks[slot].set_queue(None);
        *self.blocks_of(scene.blocks[slot].device()) -= 1;
    }

    fn stamp(&self, blocks: &BlockTable, slot: SlotId) -> Option<Stamp> {
        let (queue, stamp) = blocks[slot].queue()?;
        (queue == self.queue).then_some(stamp)
    }

    /// Blocks of the queue.
    pub(super) fn len(&self) -> usize {
        self.stack.residents()
    }

    /// The length of the queue if each of its buffers is worth less than `worth`, even if streams gave up their prefetched
    /// blocks; otherwise 0. `worth` is in ns for each access to this queue.
    pub(super) fn idle(&mut self, scene: &Scene<'_>, worth: f64) -> usize {
        let residents = self.stack.residents();
        if residents > 0 && self.value_beyond_reach(scene) < worth { residents } else { 0 }
    }

    /// The value of a buffer of the queue, and so of each of its blocks.
    fn value(&mut self, scene: &Scene<'_>) -> f64 {
        if scene.rules.replacement != Replacement::MinMax {
            return 0.0;
        }
        let slope = self.curve.as_mut().map_or(0.0, |curve| curve.slope(self.stack.residents()));
        if slope > 0.0 { slope * self.miss_ns(scene) } else { 0.0 }
    }

    /// The mean cost of fetching a block of the queue.
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
    pub(super) fn has_ghosts(&self) -> bool {
        self.stack.has_named_ghosts()
    }

    /// Loads the ghosts of blocks with these hashes, or the places where they would be.
    pub(super) fn load_ghosts(&self, hashes: impl Iterator<Item = u64>) {
        hashes.for_each(|hash| self.stack.load_ghost(hash));
    }

    /// Loads the word that says whether a block's entry is live.
    pub(super) fn load_entry(&self, stamp: Stamp) {
        self.stack.load_entry(stamp);
    }

    /// Loads the blocks that will be picked next. With a million blocks a victim would cost twice as much without.
    #[inline(never)]
    fn load_picks(&mut self, scene: &Scene<'_>) {
        self.loaded_picks = LOADED_PICKS;
        // The table entries and ghosts of the next picks, and the slots of the picks after them.
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

    /// The block at `stamp` leaves the queue; its ghost stays.
    #[inline(always)] // Every miss passes here.
    fn demote(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        if self.curve.is_some() {
            self.stack.demote(stamp, scene.blocks[slot].block());
        } else {
            self.stack.remove(stamp);
        }
        self.leaves(scene, slot);
    }

    #[inline(never)] // Rare: a block that leaves has usually been picked by its queue.
    fn demote_unpicked(&mut self, scene: &mut Scene<'_>, slot: SlotId, stamp: Stamp) {
        self.demote(scene, slot, stamp);
    }
}

impl Estimator for LruEstimator {
    /// Eq. 4 at the queue's length.
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64> {
        (self.stack.residents() > 0).then(|| self.value(scene))
    }

    #[inline(always)] // Every miss passes here.
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

    #[inline]
    fn takes_over(&self) -> bool {
        false
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

    #[inline]
    fn set_reach(&mut self, buffers: usize) {
        if let Some(curve) = &mut self.curve {
            curve.set_reach(buffers);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::buffers::estimators::conformance::{
        Change, FILE_BLOCKS, SEVERAL, Step, Tested, World, any_rules, check_listed, devices, steps,
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
                2 => {
                    self.access();
                    self.find_ghost(Block { index: FILE_BLOCKS, ..block });
                }
                // A hinted read puts a block on top and counts no access.
                3 if !tracked || self.queue == Queue::Recent => {
                    self.forget_ghost(block);
                    self.put(scene, slot);
                    change.came.push(slot);
                }
                _ if tracked && self.queue == Queue::Recent => {
                    self.access();
                    let (_, stamp) = scene.blocks[slot].queue().expect("it is tracked");
                    self.hit_again(scene, slot, stamp);
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

    fn recent(setting: &Setting) -> LruEstimator {
        LruEstimator::new(Queue::Recent, setting)
    }

    fn consumed(setting: &Setting) -> LruEstimator {
        LruEstimator::new(Queue::Consumed, setting)
    }

    proptest! {
        #[test]
        fn lru_of_the_recent(rules in any_rules(), devices in devices(), steps in steps()) {
            check_listed(World::new(rules, devices), recent, &steps);
        }

        #[test]
        fn lru_of_the_consumed(rules in any_rules(), devices in devices(), steps in steps()) {
            check_listed(World::new(rules, devices), consumed, &steps);
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
        check_listed(world, recent, &steps);
    }

    /// The value of a queue after these hits, each told in one call or in two.
    fn worth_after(reads: &[usize], in_one: bool) -> f64 {
        let mut world = World::new(Rules::FORETELL, 1);
        let mut lru = recent(&world.setting());
        for slot in world.slots.clone() {
            lru.put(&mut world.scene(), slot);
        }
        for &read in reads {
            let slot = world.slots[read];
            lru.access();
            if in_one {
                let (_, stamp) = world.scene().blocks[slot].queue().expect("it was put there");
                lru.hit_again(&mut world.scene(), slot, stamp);
            } else {
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
