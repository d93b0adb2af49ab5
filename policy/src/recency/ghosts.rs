//! The headers of blocks whose data has gone.
//!
//! A ghost is a block and the place of its entry in the log, found by block or by number. The number
//! is what the log's entry holds. Memory: 24 bytes a ghost and 12 to 24 in the table, which holds
//! numbers only and compares blocks through them; its share of the log, like a
//! resident's, is another 10 to 20.

use std::hint::black_box;

use super::Stamp;
use crate::handles::Handles;
use crate::hash::hash_block;
use crate::hint::Block;

/// Ends the list of free numbers.
const NONE: u32 = u32::MAX;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ghosts {
    /// The block of each number, and where its entry lies; of a free number, the next free one.
    ghosts: Vec<(Block, u32)>,
    /// The first free number.
    free: u32,
    /// The numbers in use, by block.
    table: Handles,
}

impl Ghosts {
    /// None yet, and at most `most`.
    pub(super) fn new(most: usize) -> Self {
        Ghosts { ghosts: Vec::new(), free: NONE, table: Handles::with_most(most) }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.ghosts.capacity() * size_of::<(Block, u32)>() + self.table.memory_bytes()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds the ghost of `block`, which has none, and returns its number.
    pub(super) fn insert(&mut self, block: Block, stamp: Stamp) -> u32 {
        let number = self.free;
        let number = if number == NONE {
            self.ghosts.push((block, stamp.0));
            (self.ghosts.len() - 1) as u32
        } else {
            let place = &mut self.ghosts[number as usize];
            self.free = place.1;
            *place = (block, stamp.0);
            number
        };
        let ghosts = &self.ghosts;
        let hash = hash_block(block);
        debug_assert!(
            self.table.find(hash, |other| ghosts[other as usize].0 == block).is_none(),
            "{block:?} has a ghost already"
        );
        self.table.insert(hash, number);
        number
    }

    /// Removes the ghost of `block` and says where its entry lies.
    pub(super) fn take(&mut self, block: Block) -> Option<Stamp> {
        let ghosts = &self.ghosts;
        let same = |number: u32| ghosts[number as usize].0 == block;
        let number = self.table.remove(hash_block(block), same)?;
        Some(self.release(number))
    }

    /// Removes the ghost of this number.
    pub(super) fn remove(&mut self, number: u32) {
        let hash = hash_block(self.ghosts[number as usize].0);
        let removed = self.table.remove(hash, |other| other == number);
        removed.expect("a ghost in the stack is in the table");
        self.release(number);
    }

    /// Loads the ghost of `block`, or the place where it would be, into the processor's caches.
    #[inline]
    pub(super) fn load(&self, block: Block) {
        black_box(self.table.load(hash_block(block)));
    }

    /// The same for the ghost of this number.
    #[inline]
    pub(super) fn load_number(&self, number: u32) {
        self.load(self.ghosts[number as usize].0);
    }

    /// Notes that the entry of this number has moved.
    pub(super) fn moved(&mut self, number: u32, stamp: Stamp) {
        self.ghosts[number as usize].1 = stamp.0;
    }

    /// What is known of this number.
    #[cfg(test)]
    pub(super) fn entry(&self, number: u32) -> (Block, Stamp) {
        (self.ghosts[number as usize].0, Stamp(self.ghosts[number as usize].1))
    }

    fn release(&mut self, number: u32) -> Stamp {
        let place = &mut self.ghosts[number as usize].1;
        let stamp = Stamp(std::mem::replace(place, self.free));
        self.free = number;
        stamp
    }
}
