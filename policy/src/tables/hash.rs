//! A fast hash for block and file numbers.
//!
//! The hash folds 64 × 64 → 128 bit multiplications: one for a block, otherwise one per word. It spreads runs of numbers
//! evenly. It resists accidents, not attackers. Drivers may use it for their own tables by block or file.

use std::hash::{BuildHasher, Hasher};

use crate::hint::Block;

/// The first of two constants that the hash multiplies by and mixes in.
/// Unit: bits. Reason: layout.
const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
/// The second of the two constants.
/// Unit: bits. Reason: layout.
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;

fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

/// Bits of a block index that tell apart neighbours with adjacent hashes.
/// Unit: bits. Reason: layout.
const NEIGHBOURS_BITS: u32 = 2;
/// Aligned neighbouring blocks with adjacent hashes.
/// Unit: blocks. Reason: layout.
pub(crate) const NEIGHBOURS: u64 = 1 << NEIGHBOURS_BITS;
/// Place in the hash of the bits that tell neighbours apart: the lowest of the upper half.
/// Unit: bits. Reason: layout.
const NEIGHBOURS_SHIFT: u32 = 32;

/// The hash of a block. The hashes of four aligned blocks of a file differ only in the lowest two bits of the upper half.
pub(crate) fn hash_block(block: Block) -> u64 {
    let group = block.index >> NEIGHBOURS_BITS;
    let hash = fold(block.file.0 ^ FIRST, group.rotate_left(32) ^ SECOND);
    let neighbours = NEIGHBOURS - 1;
    let mine = block.index & neighbours;
    hash & !(neighbours << NEIGHBOURS_SHIFT) | mine << NEIGHBOURS_SHIFT
}

/// A hash of the same kind for any key that writes words, as a [`BuildHasher`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix;

impl BuildHasher for Mix {
    type Hasher = Mixer;
    fn build_hasher(&self) -> Mixer {
        Mixer(SECOND)
    }
}

/// See [`Mix`].
#[derive(Clone, Copy, Debug)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = fold(self.0.rotate_left(29) ^ word, FIRST);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
}
