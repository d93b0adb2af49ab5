//! Inode numbers that programs of 32 bits can hold: `stat` and `readdir` of such a program fail with EOVERFLOW, or end early, at larger ones.
//!
//! They are given in turn, the same one for the same thing as long as it is mounted, whether the kernel holds it or not. That
//! costs 20 to 40 bytes for each `u64`. Those that come after the first four billion are larger again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use crate::service::FIRST;

/// See the [module](self). `K` tells things apart.
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
