//! What a read does to the two recency queues, and what is loaded ahead of reads.

use super::{Arbiter, PLACES_LOADED_FROM_BLOCKS};
use crate::blocks::{Queue, SlotId};
use crate::buffers::estimators::Estimator;
use crate::hint::Block;

impl Arbiter {
    /// Blocks in the queues: where replacement is by recency, all that have arrived.
    pub(crate) fn queued(&self) -> usize {
        self.recent.len() + self.consumed.len()
    }

    /// An unhinted read of a block in memory: it goes on top of the recent.
    #[inline(always)] // On the way of every hit.
    pub(crate) fn read_recent(&mut self, slot: SlotId) {
        let (mut scene, recent, consumed) = self.scene();
        recent.access();
        consumed.access();
        match scene.blocks[slot].queue() {
            Some((Queue::Recent, stamp)) => recent.hit_again(&mut scene, slot, stamp),
            _ => self.join_recent(slot),
        }
    }

    /// The same for one that is not among them.
    #[inline(never)]
    fn join_recent(&mut self, slot: SlotId) {
        let (mut scene, recent, consumed) = self.scene();
        let block = scene.blocks[slot].block();
        recent.missed(block);
        match scene.blocks[slot].queue() {
            Some(_) => consumed.hit(&mut scene, slot),
            None => consumed.missed(block),
        }
        recent.put(&mut scene, slot);
    }

    /// A hinted read of a block in memory, which may have been read so before and be kept for that too.
    pub(crate) fn read_consumed(&mut self, slot: SlotId) {
        if let Some((Queue::Consumed, stamp)) = self.blocks[slot].queue() {
            let (mut scene, _, consumed) = self.scene();
            consumed.renew(&mut scene, slot, stamp);
        }
    }

    /// An unhinted read of a block that is not in memory.
    pub(crate) fn missed_recent(&mut self, block: Block) {
        for queue in [&mut self.recent, &mut self.consumed] {
            queue.access();
            queue.missed(block);
        }
    }

    /// Puts a block in memory into one of the queues, on top.
    pub(crate) fn enqueue(&mut self, slot: SlotId, queue: Queue) {
        let (mut scene, recent, consumed) = self.scene();
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

    #[inline(never)] // The rare part.
    pub(super) fn leaves_queue(&mut self, slot: SlotId) {
        let (mut scene, recent, consumed) = self.scene();
        recent.forget(&mut scene, slot);
        consumed.forget(&mut scene, slot);
    }

    /// Loads what is kept of `blocks`, which are about to be read, into the processor's caches.
    pub(crate) fn load(&mut self, blocks: impl Iterator<Item = Block>) {
        self.blocks.load(blocks);
        for queue in [&self.recent, &self.consumed] {
            if queue.has_ghosts() {
                queue.load_ghosts(self.blocks.loaded_hashes());
            }
        }
        if self.capacity_blocks < PLACES_LOADED_FROM_BLOCKS {
            return;
        }
        for (queue, stamp) in self.blocks.loaded_places() {
            match queue {
                Queue::Recent => self.recent.load_entry(stamp),
                Queue::Consumed => self.consumed.load_entry(stamp),
            }
        }
    }

    /// Loads what is kept of the streams of the next three blocks that will be read, step by step: the streams, what they lead
    /// to, and what that leads to.
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

    /// A program has read a block in flight and did not have to wait.
    pub(crate) fn read_early(&mut self, slot: SlotId) {
        self.blocks[slot].read_early();
    }

    /// A program has read a block in flight without a hint: it joins the recent blocks when it arrives.
    pub(crate) fn joins_recent(&mut self, slot: SlotId) {
        self.blocks[slot].joins_recent();
    }
}
