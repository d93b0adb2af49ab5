//! The headers of blocks whose data has gone.
//!
//! A ghost is a block and the place of its entry in the log, found by block or by number. The number
//! is what the log's entry holds. Memory: 20 bytes a ghost in two arrays and 6 to 12 in the table,
//! which holds numbers only and compares blocks through them; its share of the log, like a
//! resident's, is another 10 to 20.

use hashbrown::HashTable;

use super::Stamp;
use crate::hash::hash_block;
use crate::hint::Block;

/// Ends the list of free numbers.
const NONE: u32 = u32::MAX;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ghosts {
    /// The block of each number.
    blocks: Vec<Block>,
    /// Where the entry of each number lies; of a free number, the next free one.
    stamps: Vec<u32>,
    /// The first free number.
    free: u32,
    /// The numbers in use, by block.
    table: HashTable<u32>,
}

impl Ghosts {
    pub(super) fn new() -> Self {
        Ghosts { blocks: Vec::new(), stamps: Vec::new(), free: NONE, table: HashTable::new() }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.stamps.capacity() * size_of::<u32>()
            + self.table.allocation_size()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds the ghost of `block`, which has none, and returns its number.
    pub(super) fn insert(&mut self, block: Block, stamp: Stamp) -> u32 {
        let number = self.free;
        let number = if number == NONE {
            self.blocks.push(block);
            self.stamps.push(stamp.0);
            (self.blocks.len() - 1) as u32
        } else {
            self.free = self.stamps[number as usize];
            self.blocks[number as usize] = block;
            self.stamps[number as usize] = stamp.0;
            number
        };
        let blocks = &self.blocks;
        let hash = hash_block(block);
        debug_assert!(
            self.table.find(hash, |&other| blocks[other as usize] == block).is_none(),
            "{block:?} has a ghost already"
        );
        self.table.insert_unique(hash, number, |&other| hash_block(blocks[other as usize]));
        number
    }

    /// Removes the ghost of `block` and says where its entry lies.
    pub(super) fn take(&mut self, block: Block) -> Option<Stamp> {
        let blocks = &self.blocks;
        let found =
            self.table.find_entry(hash_block(block), |&number| blocks[number as usize] == block);
        let (number, _) = found.ok()?.remove();
        Some(self.release(number))
    }

    /// Removes the ghost of this number.
    pub(super) fn remove(&mut self, number: u32) {
        let hash = hash_block(self.blocks[number as usize]);
        match self.table.find_entry(hash, |&other| other == number) {
            Ok(entry) => entry.remove(),
            Err(_) => panic!("ghost {number} is not in the table"),
        };
        self.release(number);
    }

    /// Notes that the entry of this number has moved.
    pub(super) fn moved(&mut self, number: u32, stamp: Stamp) {
        self.stamps[number as usize] = stamp.0;
    }

    /// What is known of this number.
    #[cfg(test)]
    pub(super) fn entry(&self, number: u32) -> (Block, Stamp) {
        (self.blocks[number as usize], Stamp(self.stamps[number as usize]))
    }

    fn release(&mut self, number: u32) -> Stamp {
        let stamp = Stamp(self.stamps[number as usize]);
        self.stamps[number as usize] = self.free;
        self.free = number;
        stamp
    }
}
