//! The positions at which a stream will read blocks that are in memory, and that it tracks.
//!
//! An ordered set of numbers, 64 of which share a word: positions that follow one another, as they mostly
//! do, take an eighth of a byte each, and whole runs of them are passed in one step. What lies at a
//! position is found through the stream's places and the table of blocks, where it is needed: when a
//! block is let go, not when one is read.

use std::collections::BTreeMap;

/// Positions of a word.
const WORD: u64 = u64::BITS as u64;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    /// Words that are not zero, by the position of their first bit, in words.
    words: BTreeMap<u64, u64>,
}

/// The word that `position` lies in, and its bit there.
fn place(position: u64) -> (u64, u64) {
    (position / WORD, 1 << (position % WORD))
}

fn last_of(word: u64, bits: u64) -> u64 {
    word * WORD + u64::from(bits.ilog2())
}

impl Tracked {
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.words.values().map(|bits| bits.count_ones() as usize).sum()
    }

    pub(crate) fn contains(&self, position: u64) -> bool {
        let (word, bit) = place(position);
        self.words.get(&word).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn insert(&mut self, position: u64) {
        let (word, bit) = place(position);
        *self.words.entry(word).or_default() |= bit;
    }

    pub(crate) fn remove(&mut self, position: u64) {
        let (word, bit) = place(position);
        if let Some(bits) = self.words.get_mut(&word) {
            *bits &= !bit;
            if *bits == 0 {
                self.words.remove(&word);
            }
        }
    }

    /// The last use.
    pub(crate) fn last(&self) -> Option<u64> {
        self.words.last_key_value().map(|(&word, &bits)| last_of(word, bits))
    }

    /// The last use before `position`.
    pub(crate) fn last_before(&self, position: u64) -> Option<u64> {
        let (word, bit) = place(position);
        let within = self.words.get(&word).map_or(0, |bits| bits & (bit - 1));
        if within != 0 {
            return Some(last_of(word, within));
        }
        let before = self.words.range(..word).next_back();
        before.map(|(&word, &bits)| last_of(word, bits))
    }

    /// Takes out the first use, if it is before `position`.
    pub(crate) fn pop_before(&mut self, position: u64) -> Option<u64> {
        let mut first = self.words.first_entry()?;
        let at = *first.key() * WORD + u64::from(first.get().trailing_zeros());
        if at >= position {
            return None;
        }
        let rest = first.get() & (first.get() - 1);
        if rest == 0 {
            first.remove();
        } else {
            *first.get_mut() = rest;
        }
        Some(at)
    }

    /// Takes all out, in order.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = u64> + use<> {
        let mut all = Tracked { words: std::mem::take(&mut self.words) };
        std::iter::from_fn(move || all.pop_before(u64::MAX))
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        /// What a B-tree takes for an entry of 16 bytes, filled by two thirds.
        const ENTRY_BYTES: usize = 24;
        self.words.len() * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_an_ordered_set(changes in prop::collection::vec((0u8..3, 0u64..300), 1..300)) {
            let mut tracked = Tracked::default();
            let mut model = BTreeSet::new();
            for (kind, position) in changes {
                match kind {
                    0 => {
                        model.insert(position);
                        tracked.insert(position);
                    }
                    1 => {
                        model.remove(&position);
                        tracked.remove(position);
                    }
                    _ => {
                        let first = model.first().copied().filter(|&first| first < position);
                        first.map(|first| model.remove(&first));
                        prop_assert_eq!(tracked.pop_before(position), first);
                    }
                }
                prop_assert_eq!(tracked.contains(position), model.contains(&position));
                prop_assert_eq!(tracked.last(), model.last().copied());
                let before = model.range(..position).next_back().copied();
                prop_assert_eq!(tracked.last_before(position), before);
                prop_assert_eq!(tracked.len(), model.len());
            }
            prop_assert!(tracked.take_all().eq(model));
        }
    }
}
