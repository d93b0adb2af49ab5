//! The two [LRU queues](super::lru) as one estimator: recent, of blocks read without hints, and consumed, of blocks read as
//! hinted.
//!
//! * A. An unhinted read moves a block to the recent.
//! * B. The queue whose buffers are worth less declares its value, and blocks are picked from it. If both are worth the same,
//!   it is the recent queue.
//!
//! The two queues are one estimator because a block is in one of them at most. So a read looks only once for the block's queue.

use super::lru::LruEstimator;
use super::{Estimator, Scene, Setting};
use crate::blocks::{BlockTable, DeviceIndex, Queue, SlotId};
use crate::buffers::rates::UNHINTED;
use crate::hint::Block;
use crate::rules::Replacement;

/// Capacity from which the queues' entries are loaded ahead of reads. The bitmaps of smaller queues fit the processor's caches.
/// Unit: blocks. Reason: measured (policy-speed).
const PLACES_LOADED_FROM_BLOCKS: usize = 1 << 18;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct QueuesEstimator {
    recent: LruEstimator,
    consumed: LruEstimator,
    /// B: the queue that has declared its value, until a block is picked from it.
    least: Option<Queue>,
    loads_places: bool,
}

impl QueuesEstimator {
    pub(crate) fn new(setting: &Setting) -> Self {
        QueuesEstimator {
            recent: LruEstimator::new(Queue::Recent, setting),
            consumed: LruEstimator::new(Queue::Consumed, setting),
            least: None,
            loads_places: setting.capacity_blocks >= PLACES_LOADED_FROM_BLOCKS,
        }
    }

    /// Blocks in the two queues.
    pub(crate) fn len(&self) -> usize {
        self.recent.len() + self.consumed.len()
    }

    /// Buffers of the consumed queue, if each is worth less than `worth`; see [`LruEstimator::idle`].
    pub(crate) fn idle_consumed(&mut self, scene: &Scene<'_>, worth: f64) -> usize {
        self.consumed.idle(scene, worth)
    }

    /// Puts a block in memory on top of a queue. One in either queue does not move to the consumed.
    pub(crate) fn put(&mut self, scene: &mut Scene<'_>, slot: SlotId, queue: Queue) {
        let block = scene.blocks[slot].block();
        match queue {
            Queue::Recent => {
                self.consumed.take(scene, slot);
                self.recent.forget_ghost(block);
                self.recent.put(scene, slot);
            }
            Queue::Consumed => {
                if !scene.blocks[slot].is_queued() {
                    self.consumed.forget_ghost(block);
                    self.consumed.put(scene, slot);
                }
            }
        }
    }

    /// Loads the ghosts and entries of the blocks that `blocks` has loaded into the processor's caches.
    pub(crate) fn load(&self, blocks: &BlockTable) {
        for queue in [&self.recent, &self.consumed] {
            if queue.has_ghosts() {
                queue.load_ghosts(blocks.loaded_hashes());
            }
        }
        if !self.loads_places {
            return;
        }
        for (queue, stamp) in blocks.loaded_places() {
            match queue {
                Queue::Recent => self.recent.load_entry(stamp),
                Queue::Consumed => self.consumed.load_entry(stamp),
            }
        }
    }

    fn queue(&mut self, queue: Queue) -> &mut LruEstimator {
        match queue {
            Queue::Recent => &mut self.recent,
            Queue::Consumed => &mut self.consumed,
        }
    }

    /// The queue of a block.
    fn queue_of(&mut self, scene: &Scene<'_>, slot: SlotId) -> Option<&mut LruEstimator> {
        let (queue, _) = scene.blocks[slot].queue()?;
        Some(self.queue(queue))
    }

    /// B.
    #[inline]
    fn least(&mut self, scene: &Scene<'_>) -> Option<(Queue, f64)> {
        let recent = self.recent.declare(scene);
        if scene.rules.replacement == Replacement::Lru
            && let Some(value) = recent
        {
            return Some((Queue::Recent, value)); // All buffers are worth the same.
        }
        let consumed = self.consumed.declare(scene);
        // Compared as the arbiter compares values, so that rounding makes the same values equal.
        let share = scene.rates.count(UNHINTED);
        match (recent, consumed) {
            (Some(recent), Some(consumed)) if consumed * share < recent * share => {
                Some((Queue::Consumed, consumed))
            }
            (Some(recent), _) => Some((Queue::Recent, recent)),
            (None, consumed) => Some((Queue::Consumed, consumed?)),
        }
    }

    /// A: a block that is not among the recent joins them.
    #[inline(never)]
    fn join_recent(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        let block = scene.blocks[slot].block();
        self.recent.find_ghost(block);
        match scene.blocks[slot].queue() {
            Some(_) => self.consumed.hit(scene, slot),
            None => self.consumed.find_ghost(block),
        }
        self.recent.put(scene, slot);
    }

    #[inline(never)] // Rare: a block that leaves has usually been picked by its queue.
    fn forget_unpicked(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if let Some(queue) = self.queue_of(scene, slot) {
            queue.forget(scene, slot);
        }
    }
}

impl Estimator for QueuesEstimator {
    #[inline]
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64> {
        let least = self.least(scene);
        self.least = least.map(|(queue, _)| queue);
        least.map(|(_, value)| value)
    }

    #[inline(always)] // Every miss passes here.
    fn pick(&mut self, scene: &mut Scene<'_>) -> Option<SlotId> {
        let least = match self.least.take() {
            Some(queue) => queue,
            None => self.least(scene)?.0,
        };
        self.queue(least).pick(scene)
    }

    #[inline]
    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool {
        self.queue_of(scene, slot).is_some_and(|queue| queue.offer(scene, slot, floor))
    }

    #[inline]
    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if scene.blocks[slot].is_queued() {
            self.forget_unpicked(&mut scene.again(), slot);
        }
    }

    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
        if let Some(queue) = self.queue_of(scene, slot) {
            queue.moved(scene, slot, before);
        }
    }

    #[inline]
    fn tracks(&self, blocks: &BlockTable, slot: SlotId) -> bool {
        blocks[slot].is_queued()
    }

    #[inline]
    fn takes_over(&self) -> bool {
        false
    }

    #[inline]
    fn value_beyond_reach(&mut self, scene: &Scene<'_>) -> f64 {
        match self.least {
            Some(least) => self.queue(least).value_beyond_reach(scene),
            None => 0.0,
        }
    }

    fn memory_bytes(&self) -> usize {
        self.recent.memory_bytes() + self.consumed.memory_bytes()
    }

    #[inline(always)] // Every hit without hints passes here.
    fn read(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        self.recent.access();
        self.consumed.access();
        match scene.blocks[slot].queue() {
            Some((Queue::Recent, stamp)) => self.recent.hit_again(scene, slot, stamp),
            _ => self.join_recent(&mut scene.again(), slot),
        }
    }

    #[inline]
    fn missed(&mut self, block: Block) {
        for queue in [&mut self.recent, &mut self.consumed] {
            queue.access();
            queue.find_ghost(block);
        }
    }

    /// A consumed block goes on top of its queue. The queue has not served the access, so no hit is counted.
    #[inline]
    fn read_hinted(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if let Some((Queue::Consumed, stamp)) = scene.blocks[slot].queue() {
            self.consumed.renew(scene, slot, stamp);
        }
    }

    #[inline]
    fn set_reach(&mut self, buffers: usize) {
        self.recent.set_reach(buffers);
        self.consumed.set_reach(buffers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::estimators::conformance::{Change, FILE_BLOCKS, Tested};

    impl Tested for QueuesEstimator {
        fn event(&mut self, scene: &mut Scene<'_>, slot: SlotId, kind: u8) -> Change {
            let mut change = Change::default();
            match kind % 8 {
                0 => self.set_reach(usize::from(kind / 8)),
                1 => {
                    let block = scene.blocks[slot].block();
                    self.missed(Block { index: FILE_BLOCKS, ..block });
                }
                2 => self.read_hinted(scene, slot),
                3 | 4 => {
                    let queue = if kind % 8 == 3 { Queue::Recent } else { Queue::Consumed };
                    self.put(scene, slot, queue);
                    change.came.push(slot);
                }
                _ => {
                    self.read(scene, slot);
                    change.came.push(slot);
                }
            }
            change
        }
    }
}
