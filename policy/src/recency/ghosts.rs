//! The headers of blocks whose data has gone.
//!
//! A ghost is the hash of a block and the place of its entry in the log, found by block or by number. The
//! number is what the log's entry holds. Two blocks with the same 64 bits of hash would be one ghost, whose hit
//! would be counted for the wrong block: with ten million ghosts one search in 10¹² is mistaken, and what hangs on
//! it is one count in a statistic.
//!
//! Memory: 12 bytes a named ghost and 20 to 40 in the table; its share of the log, like a resident's, is another
//! 4 to 10.

use super::Stamp;
use crate::handles::Handles;
use crate::line::load_line;

/// Ends the list of free numbers.
const NONE: u32 = u32::MAX;

/// What is kept of a block.
#[derive(Clone, Copy, Debug)]
struct Ghost {
    /// The halves of its hash: together they would have to be aligned to eight bytes, and take four more.
    hash: [u32; 2],
    /// Where its entry lies; of a free number, the next free one.
    stamp: u32,
}

impl Ghost {
    fn new(hash: u64, stamp: Stamp) -> Self {
        Ghost { hash: [hash as u32, (hash >> 32) as u32], stamp: stamp.0 }
    }

    fn hash(self) -> u64 {
        u64::from(self.hash[1]) << 32 | u64::from(self.hash[0])
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ghosts {
    /// By number.
    ghosts: Vec<Ghost>,
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
        self.ghosts.capacity() * size_of::<Ghost>() + self.table.memory_bytes()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds the ghost of a block with this hash, which has none, and returns its number.
    pub(super) fn insert(&mut self, hash: u64, stamp: Stamp) -> u32 {
        let ghost = Ghost::new(hash, stamp);
        let number = self.free;
        let number = if number == NONE {
            self.ghosts.push(ghost);
            (self.ghosts.len() - 1) as u32
        } else {
            let place = &mut self.ghosts[number as usize];
            self.free = std::mem::replace(place, ghost).stamp;
            number
        };
        debug_assert!(self.find(ghost.hash()).is_none(), "{ghost:?} is there already");
        self.table.insert(ghost.hash(), number);
        number
    }

    /// Removes the ghost of the block with this hash and says where its entry lies.
    pub(super) fn take(&mut self, hash: u64) -> Option<Stamp> {
        let ghosts = &self.ghosts;
        let number = self.table.remove(hash, |number| ghosts[number as usize].hash() == hash)?;
        Some(self.release(number))
    }

    /// Removes the ghost of this number.
    pub(super) fn remove(&mut self, number: u32) {
        let hash = self.ghosts[number as usize].hash();
        let removed = self.table.remove(hash, |other| other == number);
        removed.expect("a ghost in the stack is in the table");
        self.release(number);
    }

    /// Loads the ghost with this hash, or the place where it would be, into the processor's caches.
    #[inline]
    pub(super) fn load(&self, hash: u64) {
        self.table.load(hash);
    }

    /// Loads the header of this number.
    #[inline]
    pub(super) fn load_header(&self, number: u32) {
        load_line(&self.ghosts[number as usize]);
    }

    /// The hash of the ghost of this number.
    #[inline]
    pub(super) fn hash_of(&self, number: u32) -> u64 {
        self.ghosts[number as usize].hash()
    }

    /// Notes that the entry of this number has moved.
    pub(super) fn moved(&mut self, number: u32, stamp: Stamp) {
        self.ghosts[number as usize].stamp = stamp.0;
    }

    /// Where the entry of this number lies, if it is the ghost of the block with this hash.
    #[cfg(test)]
    pub(super) fn stamp_of(&self, number: u32, hash: u64) -> Option<Stamp> {
        let ghost = self.ghosts[number as usize];
        (ghost.hash() == hash).then_some(Stamp(ghost.stamp))
    }

    fn find(&self, hash: u64) -> Option<u32> {
        self.table.find(hash, |number| self.ghosts[number as usize].hash() == hash)
    }

    fn release(&mut self, number: u32) -> Stamp {
        let place = &mut self.ghosts[number as usize].stamp;
        let stamp = Stamp(std::mem::replace(place, self.free));
        self.free = number;
        stamp
    }
}
