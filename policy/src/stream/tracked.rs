//! The blocks in memory that a stream tracks, by the position of their next use.
//!
//! An ordered map, with one entry apart: the block that is being read (it *lingers*, until its reader has
//! moved on) comes and goes with every read, and would be put into the tree only to be taken out again.

use std::collections::BTreeMap;

use crate::recency::SlotId;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    slots: BTreeMap<u64, SlotId>,
    /// Its position is none of those in `slots`.
    lingering: Option<(u64, SlotId)>,
}

impl Tracked {
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() + usize::from(self.lingering.is_some())
    }

    pub(crate) fn get(&self, position: u64) -> Option<SlotId> {
        match self.lingering {
            Some((at, slot)) if at == position => Some(slot),
            _ if self.slots.is_empty() => None,
            _ => self.slots.get(&position).copied(),
        }
    }

    /// The block that lingers, if its use is at `position`.
    pub(crate) fn lingering(&self, position: u64) -> Option<SlotId> {
        self.lingering.filter(|&(at, _)| at == position).map(|(_, slot)| slot)
    }

    pub(crate) fn insert(&mut self, position: u64, slot: SlotId) {
        debug_assert!(self.lingering.is_none_or(|(at, _)| at != position), "{position} twice");
        self.slots.insert(position, slot);
    }

    /// The same for the block that is being read; the one before, if it still lingers, does so no more.
    pub(crate) fn linger(&mut self, position: u64, slot: SlotId) {
        if let Some((position, slot)) = self.lingering.replace((position, slot)) {
            self.slots.insert(position, slot);
        }
    }

    pub(crate) fn remove(&mut self, position: u64) {
        if self.lingering.take_if(|&mut (at, _)| at == position).is_none() {
            self.slots.remove(&position);
        }
    }

    /// The last use.
    pub(crate) fn last(&self) -> Option<(u64, SlotId)> {
        let last = self.slots.last_key_value().map(|(&position, &slot)| (position, slot));
        match (last, self.lingering) {
            (Some(last), Some(lingering)) if last.0 > lingering.0 => Some(last),
            (last, lingering) => lingering.or(last),
        }
    }

    /// The last use before `position`.
    pub(crate) fn last_before(&self, position: u64) -> Option<(u64, SlotId)> {
        let in_tree = self.slots.range(..position).next_back().map(|(&at, &slot)| (at, slot));
        let lingering = self.lingering.filter(|&(at, _)| at < position);
        in_tree.into_iter().chain(lingering).max_by_key(|&(at, _)| at)
    }

    /// Takes out the first use, if it is before `position`.
    pub(crate) fn pop_before(&mut self, position: u64) -> Option<SlotId> {
        let first = self.slots.first_key_value().map_or(u64::MAX, |(&first, _)| first);
        if let Some((_, slot)) = self.lingering.take_if(|&mut (at, _)| at < first.min(position)) {
            return Some(slot);
        }
        (first < position).then(|| self.slots.pop_first().expect("there is a first").1)
    }

    /// Takes all out, in the order of their uses.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = SlotId> {
        if let Some((position, slot)) = self.lingering.take() {
            self.slots.insert(position, slot);
        }
        std::mem::take(&mut self.slots).into_values()
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        /// What a B-tree takes for an entry of 12 bytes, filled by two thirds.
        const ENTRY_BYTES: usize = 18;
        self.slots.len() * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_an_ordered_map(changes in prop::collection::vec((0u8..4, 0u64..20), 1..200)) {
            let mut tracked = Tracked::default();
            let mut model = BTreeMap::new();
            for (kind, position) in changes {
                let slot = SlotId(position as u32 + 100);
                match kind {
                    0 | 1 if model.contains_key(&position) => {}
                    0 | 1 => {
                        model.insert(position, slot);
                        if kind == 0 {
                            tracked.insert(position, slot);
                        } else {
                            tracked.linger(position, slot);
                        }
                    }
                    2 => {
                        model.remove(&position);
                        tracked.remove(position);
                    }
                    _ => {
                        let first = model.first_entry().filter(|first| *first.key() < position);
                        prop_assert_eq!(tracked.pop_before(position), first.map(|first| first.remove()));
                    }
                }
                prop_assert_eq!(tracked.get(position), model.get(&position).copied());
                prop_assert_eq!(tracked.last(), model.last_key_value().map(|(&at, &slot)| (at, slot)));
                prop_assert_eq!(tracked.len(), model.len());
            }
            prop_assert!(tracked.take_all().eq(model.into_values()));
        }
    }
}
