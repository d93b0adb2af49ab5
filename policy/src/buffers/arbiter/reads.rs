//! Reads: which estimators hear of them, what they do to the two queues, and what is loaded into the processor's caches ahead
//! of them.

use super::Arbiter;
use crate::blocks::{Queue, SlotId};
use crate::hint::Block;

impl Arbiter {
    /// Blocks in the two queues. Where replacement is by recency alone, all blocks in memory.
    pub(crate) fn queued(&self) -> usize {
        self.estimators.queues.len()
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
        estimators.queues.put(&mut scene, slot, queue);
    }

    /// Loads the entries of `blocks`, which are about to be read, into the processor's caches.
    pub(crate) fn load(&mut self, blocks: impl Iterator<Item = Block>) {
        self.blocks.load(blocks);
        self.estimators.queues.load(&self.blocks);
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
