//! Reads: which estimators hear of them, what they do to the two queues, and what is loaded into the processor's caches ahead
//! of them.

use super::{Arbiter, PLACES_LOADED_FROM_BLOCKS};
use crate::blocks::{Queue, SlotId};
use crate::buffers::estimators::Estimators;
use crate::hint::Block;

impl Arbiter {
    /// Blocks in the two queues. Where replacement is by recency alone, all blocks in memory.
    pub(crate) fn queued(&self) -> usize {
        self.estimators.recent.len() + self.estimators.consumed.len()
    }

    /// An unhinted read of a block in memory.
    #[inline(always)] // Every hit without hints passes here.
    pub(crate) fn read_recent(&mut self, slot: SlotId) {
        let (mut scene, estimators) = self.scene();
        estimators.read(&mut scene, slot);
    }

    /// A hinted read of a block in memory or in flight.
    pub(crate) fn read_consumed(&mut self, slot: SlotId) {
        if !self.blocks[slot].is_in_flight() {
            let (mut scene, estimators) = self.scene();
            estimators.read_hinted(&mut scene, slot);
        }
    }

    /// An unhinted read of a block that is not in memory.
    pub(crate) fn missed_recent(&mut self, block: Block) {
        self.estimators.missed(block);
    }

    /// Puts a block in memory on top of a queue. One in either queue does not move to the consumed.
    pub(crate) fn enqueue(&mut self, slot: SlotId, queue: Queue) {
        let (mut scene, estimators) = self.scene();
        let Estimators { recent, consumed, .. } = estimators;
        match queue {
            Queue::Recent => {
                consumed.take(&mut scene, slot);
                recent.forget_ghost(scene.blocks[slot].block());
                recent.put(&mut scene, slot);
            }
            Queue::Consumed => {
                if !scene.blocks[slot].is_queued() {
                    consumed.forget_ghost(scene.blocks[slot].block());
                    consumed.put(&mut scene, slot);
                }
            }
        }
    }

    /// Loads the entries of `blocks`, which are about to be read, into the processor's caches.
    pub(crate) fn load(&mut self, blocks: impl Iterator<Item = Block>) {
        self.blocks.load(blocks);
        let Estimators { recent, consumed, .. } = &self.estimators;
        for queue in [recent, consumed] {
            if queue.has_ghosts() {
                queue.load_ghosts(self.blocks.loaded_hashes());
            }
        }
        if self.capacity_blocks < PLACES_LOADED_FROM_BLOCKS {
            return;
        }
        for (queue, stamp) in self.blocks.loaded_places() {
            match queue {
                Queue::Recent => recent.load_entry(stamp),
                Queue::Consumed => consumed.load_entry(stamp),
            }
        }
    }

    /// Loads the streams of the next three blocks that will be read, one step each: the third's stream, the second's parts,
    /// the first's segments.
    #[inline]
    pub(crate) fn load_next_streams(&self) {
        let at = |ahead| self.blocks.stream_of_loaded(ahead);
        at(2).into_iter().for_each(|index| self.streams.load_lines_of(index));
        if let Some(stream) = at(1).and_then(|index| self.streams.get_any(index)) {
            stream.load_parts();
            stream.current.into_iter().for_each(|current| self.blocks.load_slot(current.slot));
        }
        let next = at(0).and_then(|index| self.streams.get_any(index));
        next.into_iter().for_each(|stream| stream.load_segments(&self.blocks));
    }

    /// A program has read a block in flight without waiting.
    pub(crate) fn read_early(&mut self, slot: SlotId) {
        self.blocks[slot].read_early();
    }

    /// A program has read a block in flight without a hint: it joins the recent blocks when it arrives.
    pub(crate) fn joins_recent(&mut self, slot: SlotId) {
        self.blocks[slot].joins_recent();
    }
}
