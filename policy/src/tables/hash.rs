//! A fast hash for block and file numbers.
//!
//! Two rounds of a 64 × 64 → 128 bit multiplication, folded. It spreads runs of numbers evenly, and
//! resists accidents, not attackers. Drivers that keep books of their own by block or file have it too.

use std::hash::{BuildHasher, Hasher};

use crate::hint::Block;

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd6e8_feb8_6659_fd93;

fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

/// Neighbours that have hashes next to each other, as a power of two.
const NEIGHBOURS_BITS: u32 = 2;
/// As many blocks have them.
pub(crate) const NEIGHBOURS: u64 = 1 << NEIGHBOURS_BITS;
/// Where the bits that tell them apart lie: the lowest of the upper half.
const NEIGHBOURS_SHIFT: u32 = 32;

/// The hash of a block. Those of four aligned blocks of a file differ in two bits of the middle only, the
/// lowest two of the upper half.
pub(crate) fn hash_block(block: Block) -> u64 {
    let group = block.index >> NEIGHBOURS_BITS;
    let hash = fold(block.file.0 ^ FIRST, group.rotate_left(32) ^ SECOND);
    let neighbours = NEIGHBOURS - 1;
    let mine = block.index & neighbours;
    hash & !(neighbours << NEIGHBOURS_SHIFT) | mine << NEIGHBOURS_SHIFT
}

/// The same for everything that writes words, as a builder of hashers.
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
