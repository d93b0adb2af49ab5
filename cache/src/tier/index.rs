//! The index in memory: which block is in which slot.
//!
//! A block is *there* (it can be read) or *coming* (it is being written, and its slot is reserved for it).
//!
//! Cost: 17 bytes for each slot that was used, 5 to 11 more in the table, and 16 in the index on disk. That is about
//! 0.3 % of a block of 8 KiB in memory, and 0.2 % on disk.

use std::collections::HashSet;

use foretell_policy::hash::Mix;
use hashbrown::HashTable;

use super::clock::{Clock, Place, Slot};
use super::format::{Entry, Key};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Index {
    table: HashTable<Slot>,
    /// Entries of the slots that were ever used; `None` for a slot without a block.
    entries: Vec<Option<Packed>>,
    clock: Clock,
    coming: HashSet<Key, Mix>,
}

/// An entry. Since its key is not 0, an `Option` of it takes no more memory.
#[derive(Clone, Copy, Debug)]
struct Packed {
    key: std::num::NonZeroU64,
    check: u64,
}

impl Packed {
    fn new(entry: Entry) -> Option<Self> {
        let key = std::num::NonZeroU64::new(entry.key.bits())?;
        Some(Packed { key, check: entry.check })
    }
}

/// The hash for the table: keys are hashes already.
fn hash_of(entries: &[Option<Packed>], slot: Slot) -> u64 {
    entries[slot as usize].map_or(0, |packed| packed.key.get())
}

impl Index {
    pub(crate) fn new(slots: Slot) -> Self {
        let (table, entries, coming) = (HashTable::new(), Vec::new(), HashSet::default());
        Index { table, entries, clock: Clock::new(slots), coming }
    }

    /// Adds the entries found on disk, slot by slot. If two slots have the same key, the first one counts.
    pub(crate) fn load(&mut self, entries: impl Iterator<Item = Option<Entry>>) {
        for entry in entries {
            let slot = self.entries.len() as Slot;
            let packed = entry.and_then(Packed::new);
            self.entries.push(packed);
            let is_there = packed.is_some_and(|packed| {
                let (entries, hash) = (&self.entries, packed.key.get());
                let is_it = |&other: &Slot| hash_of(entries, other) == hash;
                match self.table.entry(hash, is_it, |&other| hash_of(entries, other)) {
                    hashbrown::hash_table::Entry::Occupied(_) => false,
                    hashbrown::hash_table::Entry::Vacant(vacant) => {
                        vacant.insert(slot);
                        true
                    }
                }
            });
            if !is_there {
                self.entries[slot as usize] = None;
            }
            self.clock.found(is_there);
        }
    }

    /// Ends [loading](Index::load).
    pub(crate) fn is_loaded(&mut self) {
        self.clock.are_found();
    }

    /// Number of blocks that are there.
    pub(crate) fn blocks(&self) -> usize {
        self.table.len()
    }

    fn slot_of(&self, key: Key) -> Option<Slot> {
        let is_it = |&slot: &Slot| hash_of(&self.entries, slot) == key.bits();
        self.table.find(key.bits(), is_it).copied()
    }

    /// Whether a block is there or coming.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.slot_of(key).is_some() || self.coming.contains(&key)
    }

    /// The slot of a block that is there, and the check of its bytes.
    pub(crate) fn find(&self, key: Key) -> Option<(Slot, u64)> {
        let slot = self.slot_of(key)?;
        Some((slot, self.entries[slot as usize]?.check))
    }

    /// Counts a use of the block in a slot.
    pub(crate) fn is_used(&mut self, slot: Slot) {
        self.clock.is_used(slot);
    }

    /// Gives a slot to a block that the tier neither has nor is writing (*coming*); `None` if the block is declined. From then
    /// on the block is coming, and the slot's old block is forgotten.
    pub(crate) fn admit(&mut self, key: Key, may_grow: bool) -> Option<Place> {
        debug_assert!(!self.has(key));
        let place = self.clock.place(may_grow)?;
        let (Place::New(slot) | Place::Free(slot) | Place::Victim(slot)) = place;
        if slot as usize >= self.entries.len() {
            self.entries.resize(slot as usize + 1, None);
        }
        self.take_out(slot);
        self.coming.insert(key);
        Some(place)
    }

    /// Notes that a coming block is there.
    pub(crate) fn has_come(&mut self, slot: Slot, entry: Entry) {
        self.coming.remove(&entry.key);
        self.entries[slot as usize] = Packed::new(entry);
        self.clock.is_there(slot);
        let entries = &self.entries;
        self.table.insert_unique(entry.key.bits(), slot, |&slot| hash_of(entries, slot));
    }

    /// Notes that a coming block will not come. `is_backed` tells whether its slot has room on the disk.
    pub(crate) fn will_not_come(&mut self, slot: Slot, key: Key, is_backed: bool) {
        self.coming.remove(&key);
        self.clock.is_free(slot, is_backed);
    }

    /// Forgets the block of a slot, if it is still this one. Returns whether it was.
    pub(crate) fn forget(&mut self, slot: Slot, entry: Entry) -> bool {
        let is_there = self.find(entry.key) == Some((slot, entry.check));
        if is_there {
            self.take_out(slot);
            self.clock.is_free(slot, true);
        }
        is_there
    }

    fn take_out(&mut self, slot: Slot) {
        if let Some(packed) = self.entries[slot as usize] {
            let found = self.table.find_entry(packed.key.get(), |&other| other == slot);
            if let Ok(found) = found {
                found.remove();
            }
            self.entries[slot as usize] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::format::FileKey;
    use super::*;

    #[test]
    fn it_agrees_with_a_plain_map_whatever_happens() {
        let file = FileKey::new(1, "", "", b"", 0);
        let mut index = Index::new(50);
        index.load((0..10u64).map(|slot| {
            let key = file.block(slot / 2); // Two slots of one key each.
            (slot % 3 > 0).then_some(Entry { key, check: slot })
        }));
        assert!(size_of::<Option<Packed>>() == 16);
        let mut there: HashMap<u64, (Slot, u64)> = HashMap::new();
        for block in 0..200u64 {
            there.extend(index.find(file.block(block)).map(|found| (block, found)));
        }
        assert_eq!(there.len(), 5);
        let mut coming: Vec<(u64, Slot)> = Vec::new();
        let mut seed = 1u64;
        for step in 0..50_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (seed >> 33) % 200;
            let key = file.block(block);
            match (seed >> 60) % 8 {
                0..4 if !index.has(key) => {
                    let place = index.admit(key, step % 5 > 0);
                    if let Some(Place::New(slot) | Place::Free(slot) | Place::Victim(slot)) = place
                    {
                        there.retain(|_, &mut (other, _)| other != slot);
                        assert!(coming.iter().all(|&(_, other)| other != slot));
                        coming.push((block, slot));
                    }
                }
                4 | 5 if !coming.is_empty() => {
                    let (block, slot) = coming.swap_remove(step as usize % coming.len());
                    let entry = Entry { key: file.block(block), check: step };
                    if seed >> 59 & 1 == 0 {
                        index.has_come(slot, entry);
                        there.insert(block, (slot, step));
                    } else {
                        index.will_not_come(slot, entry.key, step % 2 == 0);
                    }
                }
                6 => {
                    if let Some((slot, check)) = index.find(key) {
                        assert!(!index.forget(slot, Entry { key, check: check + 1 }));
                        assert!(index.forget(slot, Entry { key, check }));
                        there.remove(&block);
                    }
                }
                _ => {
                    let found = index.find(key);
                    found.into_iter().for_each(|(slot, _)| index.is_used(slot));
                }
            }
            assert_eq!(index.find(key), there.get(&block).copied());
            let is_coming = coming.iter().any(|&(other, _)| other == block);
            assert_eq!(index.has(key), is_coming || there.contains_key(&block));
            assert_eq!(index.blocks(), there.len());
            assert!(there.len() + coming.len() <= 50);
        }
    }
}
