//! A hash table of handles: numbers below 2³¹ that stand for something which the owner of the table keeps
//! elsewhere, and compares.
//!
//! One array, searched from an entry's *home* upwards until an empty place. An entry holds the handle and
//! 32 bits of the hash: enough to know an entry's home when it has to move, and to look at what a
//! handle stands for only when it is the right one. A search therefore costs one cache miss, where tables
//! that keep control bytes apart cost two; with millions of blocks nothing else counts.
//!
//! Removal moves back what would not be found any more, so that nothing has to be tidied up later.
//!
//! Memory: 8 bytes for each of at most 3/2 of the most handles it was made for; less as long as it holds
//! less. Growth copies the table, and looks at nothing else.

/// Places in use are at most this share of all.
const LOAD: (usize, usize) = (2, 3);
const PLACES_MIN: usize = 16;

const EMPTY: u64 = 0;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Handles {
    /// The hash in the upper half, the handle plus one in the lower.
    places: Vec<u64>,
    len: usize,
    most: usize,
}

impl Default for Handles {
    fn default() -> Self {
        Handles::with_most(usize::MAX)
    }
}

fn handle_of(entry: u64) -> u32 {
    entry as u32 - 1
}

/// The part of a hash that is kept.
fn kept(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

impl Handles {
    /// An empty table for at most `most` handles.
    pub(crate) fn with_most(most: usize) -> Self {
        Handles { places: Vec::new(), len: 0, most }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u64>()
    }

    /// The handle with this hash that is the `same`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, same: impl FnMut(u32) -> bool) -> Option<u32> {
        self.place_of(hash, same).map(|place| handle_of(self.places[place]))
    }

    /// Adds a handle that is not in the table.
    pub(crate) fn insert(&mut self, hash: u64, handle: u32) {
        debug_assert!(handle < u32::MAX, "handles are numbered below 2³¹");
        if (self.len + 1) * LOAD.1 > self.places.len() * LOAD.0 {
            self.grow();
        }
        self.put(kept(hash) << 32 | u64::from(handle + 1));
        self.len += 1;
    }

    /// Takes out the handle with this hash that is the `same`.
    pub(crate) fn remove(&mut self, hash: u64, same: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut gap = self.place_of(hash, same)?;
        let handle = handle_of(self.places[gap]);
        let mut place = gap;
        loop {
            place = self.after(place);
            let entry = self.places[place];
            if entry == EMPTY {
                break;
            }
            // Whether its home is at or before the gap.
            if self.steps(self.home(entry >> 32), place) >= self.steps(gap, place) {
                self.places[gap] = entry;
                gap = place;
            }
        }
        self.places[gap] = EMPTY;
        self.len -= 1;
        Some(handle)
    }

    /// All handles, in no order that means anything.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.places.iter().filter(|&&entry| entry != EMPTY).map(|&entry| handle_of(entry))
    }

    #[inline]
    fn place_of(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let kept = kept(hash);
        let mut place = self.home(kept);
        loop {
            let entry = self.places[place];
            if entry == EMPTY {
                return None;
            }
            if entry >> 32 == kept && same(handle_of(entry)) {
                return Some(place);
            }
            place = self.after(place);
        }
    }

    #[inline]
    fn home(&self, kept: u64) -> usize {
        ((u128::from(kept) * self.places.len() as u128) >> 32) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() { 0 } else { place + 1 }
    }

    /// Steps upwards from one place to another.
    fn steps(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.places.len() - from }
    }

    fn put(&mut self, entry: u64) {
        let mut place = self.home(entry >> 32);
        while self.places[place] != EMPTY {
            place = self.after(place);
        }
        self.places[place] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        let at_most = self.most.max(self.len + 1).saturating_mul(LOAD.1) / LOAD.0;
        let places = (self.places.len() * 2).min(at_most + 1).max(PLACES_MIN);
        let old = std::mem::replace(&mut self.places, vec![EMPTY; places]);
        old.into_iter().filter(|&entry| entry != EMPTY).for_each(|entry| self.put(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash_block;
    use crate::hint::{Block, FileId};
    use proptest::prelude::*;

    proptest! {
        /// Few different hashes, so that entries collide, wrap around and are moved back.
        #[test]
        fn it_holds_what_a_set_holds(
            most in 1usize..60, changes in prop::collection::vec((any::<bool>(), 0u32..60), 1..400)
        ) {
            let hash = |handle: u32| u64::from(handle % 7).wrapping_mul(0x1234_5678_9abc_def1);
            let mut handles = Handles::with_most(most);
            let mut model = std::collections::BTreeSet::new();
            for (adds, handle) in changes {
                if !adds {
                    let removed = handles.remove(hash(handle), |other| other == handle);
                    prop_assert_eq!(removed.is_some(), model.remove(&handle));
                } else if model.insert(handle) {
                    handles.insert(hash(handle), handle);
                }
                for handle in 0..60 {
                    let found = handles.find(hash(handle), |other| other == handle);
                    prop_assert_eq!(found.is_some(), model.contains(&handle));
                }
                prop_assert_eq!(handles.len(), model.len());
            }
        }
    }

    #[test]
    fn blocks_in_a_row_lie_near_their_homes_and_memory_is_bounded() {
        let most = 300_000;
        for (files, stride) in [(1, 1), (300, 1), (1, 512), (most, 1), (300, 4096)] {
            let mut handles = Handles::with_most(most as usize);
            let block = |handle: u64| Block {
                file: FileId(handle % files),
                index: handle / files * stride,
            };
            for handle in 0..most {
                handles.insert(hash_block(block(handle)), handle as u32);
            }
            assert!(handles.memory_bytes() <= (most * 8 * 3 / 2 + 16) as usize);
            let mut looked_at = 0;
            for (place, entry) in handles.places.iter().enumerate() {
                if *entry != EMPTY {
                    looked_at += 1 + handles.steps(handles.home(entry >> 32), place);
                }
            }
            let mean = looked_at as f64 / most as f64;
            assert!(mean < 3.0, "{files} files, stride {stride}: {mean} places");
        }
    }
}
