//! The blocks in memory or in flight: one [slot](Slot) each, found by block.
//!
//! Slots lie in a slab. Queues, sets and fetches refer to a slot by its 32-bit handle. A slot takes 32 bytes. The table of
//! handles takes 20 to 40 bytes more for each slot, and 20 when memory is full.

use super::handles::Handles;
use super::ids::{SlotId, Stamp, StreamIndex};
use super::slot::{Claim, Queue, Slot};
use crate::hint::Block;
use crate::tables::hash::{NEIGHBOURS, hash_block};
use crate::tables::line::load_line;

/// All slots; see the [module](self).
#[derive(Debug)]
pub(crate) struct BlockTable {
    slots: Vec<Slot>,
    /// The first free slot, or [`NONE_FREE`]. Free slots link to the next one.
    free: u64,
    handles: Handles,
    most: usize,
    /// The blocks that were loaded last, in order, and the index of the one that is expected to be searched for next.
    loaded: Vec<Loaded>,
    expected: usize,
    /// A block that was searched for and not found, if none was inserted since.
    absent: Option<Block>,
}

/// A block that was loaded, and its slot at that time.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    block: Block,
    hash: u64,
    slot: SlotId,
}

/// Blocks that are loaded together.
/// Unit: blocks. Reason: bound.
pub(crate) const LOADED_MAX: usize = 64;

/// The end of the list of free slots.
/// Unit: slot. Reason: layout.
const NONE_FREE: u64 = u64::MAX;

/// Stands for no slot.
/// Unit: slot. Reason: layout.
pub(crate) const NO_SLOT: SlotId = SlotId(u32::MAX);

/// The first allocation has room for this many slots.
/// Unit: entries. Reason: bound.
const SLOTS_MIN: usize = 64;

impl Default for BlockTable {
    fn default() -> Self {
        BlockTable::new(usize::MAX)
    }
}

impl BlockTable {
    /// An empty table for at most `most` blocks.
    pub(crate) fn new(most: usize) -> Self {
        let loaded = Vec::with_capacity(LOADED_MAX);
        BlockTable {
            slots: Vec::new(),
            free: NONE_FREE,
            handles: Handles::with_most(most),
            most,
            loaded,
            expected: 0,
            absent: None,
        }
    }

    /// Number of blocks in memory or in flight.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    #[inline]
    pub(crate) fn find(&self, block: Block) -> Option<SlotId> {
        self.find_hashed(block, hash_block(block))
    }

    #[inline]
    fn find_hashed(&self, block: Block, hash: u64) -> Option<SlotId> {
        let slots = &self.slots;
        let same = |handle: u32| slots[handle as usize].block() == block;
        self.handles.find(hash, same).map(SlotId)
    }

    /// Whether `slot`, which may be free by now, holds the block with this claim.
    pub(crate) fn is_claimed(&self, slot: SlotId, claim: Claim) -> bool {
        let known = self.slots.get(slot.0 as usize);
        known.is_some_and(|known| !known.is_free() && known.claim() == Some(claim))
    }

    /// Whether a block has a slot, judged by its hash alone, so that no slot has to be loaded. With n slots, the answer for a
    /// block without a slot is wrong with a probability of n/2³².
    #[inline]
    pub(crate) fn seems_to_have(&self, block: Block) -> bool {
        self.handles.find(hash_block(block), |_| true).is_some()
    }

    /// Whether a block has a slot. It is fast if the block was just searched for and not found.
    pub(crate) fn has(&self, block: Block) -> bool {
        self.absent != Some(block) && self.find(block).is_some()
    }

    /// Loads the slots of the first [`LOADED_MAX`] of these blocks, and the table lines that lead to them, into the processor's
    /// caches. The loads do not wait for one another. The slots are kept for [`find_loaded`](BlockTable::find_loaded).
    #[inline]
    pub(crate) fn load(&mut self, blocks: impl Iterator<Item = Block>) {
        self.loaded.clear();
        self.expected = 0;
        let handles = &self.handles;
        self.loaded.extend(blocks.take(LOADED_MAX).map(|block| {
            let hash = hash_block(block);
            handles.load(hash);
            Loaded { block, hash, slot: NO_SLOT }
        }));
        // A processor cannot predict which blocks are present, so no branch depends on it: an absent block loads the last slot.
        // Slots are compared with their blocks when they are used.
        let Some(last) = self.slots.len().checked_sub(1) else { return };
        for loaded in &mut self.loaded {
            loaded.slot = SlotId(self.handles.guess(loaded.hash, last as u32));
            if let Some(slot) = self.slots.get(loaded.slot.0 as usize) {
                load_line(slot);
            }
        }
    }

    /// Whether some loaded blocks have not been asked for.
    #[inline]
    pub(crate) fn has_loaded(&self) -> bool {
        self.expected < self.loaded.len()
    }

    /// The hashes of the blocks that were loaded last.
    pub(crate) fn loaded_hashes(&self) -> impl Iterator<Item = u64> {
        self.loaded.iter().map(|loaded| loaded.hash)
    }

    /// The queue of each loaded block, and its place there. For a block without a slot it may give those of another block.
    pub(crate) fn loaded_places(&self) -> impl Iterator<Item = (Queue, Stamp)> {
        self.loaded.iter().filter_map(|loaded| self.slots.get(loaded.slot.0 as usize)?.queue())
    }

    /// The stream that claims a loaded block: the one `ahead` places after the block that is expected next. For a block without
    /// a slot it may return the stream that claims the last slot.
    #[inline]
    pub(crate) fn stream_of_loaded(&self, ahead: usize) -> Option<StreamIndex> {
        let loaded = self.loaded.get(self.expected + ahead)?;
        Some(self.slots.get(loaded.slot.0 as usize)?.claim()?.stream)
    }

    /// Loads a slot that will soon be used into the processor's caches.
    #[inline]
    pub(crate) fn load_slot(&self, slot: SlotId) {
        load_line(&self.slots[slot.0 as usize]);
    }

    /// Loads the table line that leads to the block with this hash, if it is present.
    #[inline]
    pub(crate) fn load_home(&self, hash: u64) {
        self.handles.load(hash);
    }

    /// Loads the table line for the blocks after `block`, if they have another one than `block` itself.
    #[inline]
    pub(crate) fn load_next_home(&self, block: Block) {
        let next = Block { index: block.index.wrapping_add(NEIGHBOURS), ..block };
        self.load_home(hash_block(next));
    }

    /// As [`find`](BlockTable::find), and faster for blocks that are searched for in the order in which they were loaded.
    #[inline(always)] // Part of every read, in two places.
    pub(crate) fn find_loaded(&mut self, block: Block) -> Option<SlotId> {
        while let Some(&Loaded { block: loaded, hash, slot }) = self.loaded.get(self.expected) {
            self.expected += 1;
            if loaded != block {
                continue; // The expected block was skipped, or `block` was not loaded.
            }
            return match self.slots.get(slot.0 as usize) {
                Some(known) if known.block() == block && !known.is_free() => Some(slot),
                // The block had no slot when it was loaded, or has another one now. It may have got one since.
                _ => self.find_or_note(block, hash),
            };
        }
        self.find_or_note(block, hash_block(block))
    }

    #[inline(never)] // The rarer part where blocks are loaded.
    fn find_or_note(&mut self, block: Block, hash: u64) -> Option<SlotId> {
        let slot = self.find_hashed(block, hash);
        if slot.is_none() {
            self.absent = Some(block);
        }
        slot
    }

    /// # Panics
    /// If the block has a slot already (debug builds).
    #[inline(always)] // Part of every miss.
    pub(crate) fn insert(&mut self, slot: Slot) -> SlotId {
        debug_assert!(self.find(slot.block()).is_none(), "{slot:?} twice");
        self.absent = None;
        let hash = hash_block(slot.block());
        let handle = if self.free == NONE_FREE {
            if self.slots.len() == self.slots.capacity() {
                self.grow();
            }
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2³² blocks")
        } else {
            let handle = self.free as u32;
            let place = &mut self.slots[handle as usize];
            self.free = place.next_free();
            *place = slot;
            handle
        };
        self.handles.insert(hash, handle);
        SlotId(handle)
    }

    pub(crate) fn remove(&mut self, id: SlotId) {
        let hash = hash_block(self[id].block());
        let removed = self.handles.remove(hash, |handle| handle == id.0);
        removed.expect("a slot in use is in the table");
        let slot = &mut self.slots[id.0 as usize];
        slot.set_free(std::mem::replace(&mut self.free, u64::from(id.0)));
    }

    /// Makes room for more slots: twice as many, up to `most`.
    #[cold]
    fn grow(&mut self) {
        let slots = self.slots.len();
        let more = slots.max(SLOTS_MIN).min(self.most.saturating_sub(slots)).max(1);
        self.slots.reserve_exact(more);
    }

    /// Bytes that the table takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.handles.memory_bytes()
    }

    #[cfg(any(test, debug_assertions))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        self.handles.iter().map(|handle| (SlotId(handle), &self.slots[handle as usize]))
    }
}

impl std::ops::Index<SlotId> for BlockTable {
    type Output = Slot;
    fn index(&self, id: SlotId) -> &Slot {
        &self.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<SlotId> for BlockTable {
    fn index_mut(&mut self, id: SlotId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::ids::DeviceIndex;
    use crate::hint::FileId;

    fn block(index: u64) -> Block {
        Block { file: FileId(7), index }
    }

    /// Loads these blocks, calls `meanwhile`, and checks that each block is found as by a search.
    fn found_as_searched(
        table: &mut BlockTable,
        indices: impl Iterator<Item = u64> + Clone,
        meanwhile: impl FnOnce(&mut BlockTable),
    ) {
        table.load(indices.clone().map(block));
        meanwhile(table);
        for index in indices {
            let searched = table.find(block(index));
            assert_eq!(table.find_loaded(block(index)), searched, "{index}");
            assert_eq!(
                searched.is_some_and(|slot| table[slot].block() == block(index)),
                searched.is_some()
            );
        }
    }

    #[test]
    fn blocks_that_are_there_or_not_are_found_as_they_are_then() {
        let insert = |table: &mut BlockTable, index| {
            table.insert(Slot::in_flight(block(index), DeviceIndex(0), false))
        };
        let mut table = BlockTable::new(1000);
        found_as_searched(&mut table, 0..3, |_| ()); // An empty table, and fewer blocks than are loaded together.
        let slots: Vec<SlotId> = (0..1000).map(|index| insert(&mut table, index)).collect();
        for first in (0..1100).step_by(50) {
            found_as_searched(&mut table, first..first + LOADED_MAX as u64 + 10, |_| ());
        }
        // Some or all of them leave. Others take their slots, or they return with other slots.
        found_as_searched(&mut table, 0..50, |table| {
            slots[..50].iter().for_each(|&slot| table.remove(slot))
        });
        found_as_searched(&mut table, 0..100, |_| ());
        found_as_searched(&mut table, 50..100, |table| {
            slots[50..100].iter().for_each(|&slot| table.remove(slot));
            (2000..2025).for_each(|index| _ = insert(table, index));
            (50..75).for_each(|index| _ = insert(table, index));
        });
        // The last slot, which stands in for absent blocks, is free.
        let last = *slots.last().expect("there are some");
        table.remove(last);
        found_as_searched(&mut table, 970..1030, |_| ());
        assert_eq!(table.len(), 1000 - 50 - 1);
    }

    #[test]
    fn what_was_not_there_is_looked_for_again_once_it_may_be() {
        let mut table = BlockTable::new(10);
        assert_eq!((table.find_loaded(block(3)), table.has(block(3))), (None, false));
        let slot = table.insert(Slot::in_flight(block(3), DeviceIndex(0), false));
        assert_eq!((table.has(block(3)), table.find_loaded(block(3))), (true, Some(slot)));
    }
}
