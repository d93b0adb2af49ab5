//! Inode numbers that all file systems of this crate share: the reserved ones, and those that fit into 32 bits.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// The root of a mount, as FUSE numbers it.
pub(crate) const ROOT: u64 = 1;
/// The folder `.foretell` at the root.
pub(crate) const OWN_FOLDER: u64 = 2;
/// Its file `control`, which takes hints by ioctl.
pub(crate) const CONTROL: u64 = 3;
/// Its file `stats`.
pub(crate) const STATS_FILE: u64 = 4;
/// The least number of anything else. Lower ones are reserved.
pub(crate) const FIRST: u64 = 64;

/// The block size that `stat` reports (`st_blksize`), in bytes.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// Numbers for 32-bit programs. Their `stat` and `readdir` fail with EOVERFLOW, or end early, at larger ones. `K`
/// identifies an inode.
///
/// They are given in turn from [`FIRST`] on. A key keeps its number until the mount ends, whether or not the kernel
/// holds the inode. Cost: 20 to 40 bytes for each key of 8 bytes. After four billion keys, numbers exceed 32 bits.
pub(crate) struct SmallNumbers<K>(Mutex<HashMap<K, u64>>);

impl<K: Eq + Hash> SmallNumbers<K> {
    pub(crate) fn new() -> Self {
        SmallNumbers(Mutex::default())
    }

    pub(crate) fn of(&self, key: K) -> u64 {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = FIRST + given.len() as u64;
        *given.entry(key).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_keeps_a_small_number_of_its_own() {
        let numbers = SmallNumbers::new();
        let first: Vec<u64> = (0..1000u64).map(|key| numbers.of(key << 40)).collect();
        assert!(first.is_sorted_by(|one, next| one < next));
        assert!(first[0] >= FIRST && first[999] < FIRST + 1000);
        assert!((0..1000u64).rev().all(|key| numbers.of(key << 40) == first[key as usize]));
    }
}
