//! A set of positions of a stream: of tracked blocks, of missing blocks, or of reads out of order.
//!
//! The set is ordered and has one bit for each number, 64 to a word. Consecutive positions, the usual case, take an eighth of a
//! byte each, and runs of them are skipped a word at a time. The set does not store the block at a position. When a block is to
//! be released, the stream's places and the block table tell which one lies at the position; reads do not need to know.
//!
//! Words near the first one lie in a row and are found without a search. Words added further away lie in an ordered map. As the
//! row moves on, one word may have bits in both.
//!
//! Cost: O(1) near the first position. Further away O(log n), and 24 bytes per word. A set that is read at random fills its
//! words over time: about 0.4 bytes per block, or 50 MB per terabyte.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Range, RangeInclusive};

use crate::tables::line::load_line;

/// Positions per word.
/// Unit: bits. Reason: layout.
const WORD: u64 = u64::BITS as u64;

/// Words in the row at most: 8 KiB.
/// Unit: words. Reason: bound.
const ROW_MAX: u64 = 1024;

/// See the [module](self).
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct PositionSet {
    /// Its first and last words are not zero.
    row: VecDeque<u64>,
    /// Number of its first word.
    row_start: u64,
    far: Far,
}

/// The words outside the row that are not zero, by number. Usually there are none; then it takes little room among the data
/// that each read looks at.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
#[expect(clippy::box_collection, reason = "a third of the room for those that have none")]
struct Far(Option<Box<BTreeMap<u64, u64>>>);

impl Far {
    #[cfg(any(test, debug_assertions))]
    fn words(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.range(0..=u64::MAX)
    }

    fn range(&self, words: RangeInclusive<u64>) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let range = self.0.as_ref().map(|far| far.range(words));
        range.into_iter().flatten().map(|(&word, &bits)| (word, bits))
    }

    fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |far| far.len())
    }

    fn bits(&self, word: u64) -> u64 {
        self.0.as_ref().map_or(0, |far| far.get(&word).copied().unwrap_or(0))
    }

    fn first(&self) -> Option<(u64, u64)> {
        self.0.as_ref()?.first_key_value().map(|(&word, &bits)| (word, bits))
    }

    fn last(&self) -> Option<(u64, u64)> {
        self.0.as_ref()?.last_key_value().map(|(&word, &bits)| (word, bits))
    }

    fn set(&mut self, word: u64, bits: u64) {
        *self.0.get_or_insert_default().entry(word).or_default() |= bits;
    }

    fn clear(&mut self, word: u64, bits: u64) {
        let Some(far) = &mut self.0 else { return };
        if let Some(known) = far.get_mut(&word) {
            *known &= !bits;
            if *known == 0 {
                far.remove(&word);
            }
        }
        if far.is_empty() {
            self.0 = None;
        }
    }
}

/// The word that contains `position`, and its bit there.
fn place(position: u64) -> (u64, u64) {
    (position / WORD, 1 << (position % WORD))
}

fn first_of(word: u64, bits: u64) -> u64 {
    word * WORD + u64::from(bits.trailing_zeros())
}

fn last_of(word: u64, bits: u64) -> u64 {
    word * WORD + u64::from(bits.ilog2())
}

impl PositionSet {
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        let far = self.far.words().map(|(_, bits)| bits);
        self.row.iter().copied().chain(far).map(|bits| bits.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.row.is_empty() && self.far.is_empty()
    }

    fn in_row(&self, word: u64) -> Option<usize> {
        let index = word.wrapping_sub(self.row_start);
        (index < self.row.len() as u64).then_some(index as usize)
    }

    fn bits(&self, word: u64) -> u64 {
        let near = self.in_row(word).map_or(0, |index| self.row[index]);
        near | self.far.bits(word)
    }

    pub(crate) fn contains(&self, position: u64) -> bool {
        let (word, bit) = place(position);
        self.bits(word) & bit != 0
    }

    /// The first position at or after `position` that is not in the set, or `end`.
    pub(crate) fn next_absent(&self, position: u64, end: u64) -> u64 {
        let (mut word, bit) = place(position);
        let mut absent = !self.bits(word) & !(bit - 1);
        while absent == 0 && (word + 1) * WORD < end {
            word += 1;
            absent = !self.bits(word);
        }
        (word * WORD + u64::from(absent.trailing_zeros())).min(end)
    }

    /// The first position at or after `position`.
    pub(crate) fn next(&self, position: u64) -> Option<u64> {
        let (word, bit) = place(position);
        let within = self.bits(word) & !(bit - 1);
        if within != 0 {
            return Some(first_of(word, within));
        }
        let after = (word + 1).saturating_sub(self.row_start).min(self.row.len() as u64);
        let near = (after..).zip(self.row.range(after as usize..)).find(|&(_, &bits)| bits != 0);
        let near = near.map(|(index, &bits)| first_of(self.row_start + index, bits));
        let far = self.far.range(word + 1..=u64::MAX).next();
        let far = far.map(|(word, bits)| first_of(word, bits));
        near.into_iter().chain(far).min()
    }

    /// Adds a position that is not in the set.
    #[inline]
    pub(crate) fn insert(&mut self, position: u64) {
        debug_assert!(!self.contains(position), "{position} twice");
        let (word, bit) = place(position);
        match self.in_row(word) {
            Some(index) => self.row[index] |= bit,
            None => self.insert_beyond(word, bit),
        }
    }

    #[inline(never)] // One call in 64.
    fn insert_beyond(&mut self, word: u64, bit: u64) {
        if self.row.is_empty() {
            self.row_start = word;
            self.row.push_back(bit);
            return;
        }
        let end = self.row_start + self.row.len() as u64;
        if word >= end && word - self.row_start < ROW_MAX {
            self.row.resize((word - self.row_start) as usize, 0);
            self.row.push_back(bit);
        } else if word < self.row_start && end - word <= ROW_MAX {
            (word + 1..self.row_start).for_each(|_| self.row.push_front(0));
            self.row.push_front(bit);
            self.row_start = word;
        } else {
            self.far.set(word, bit);
        }
    }

    pub(crate) fn remove(&mut self, position: u64) {
        let (word, bit) = place(position);
        self.clear(word, bit);
    }

    /// Clears `bits` of a word.
    #[inline]
    fn clear(&mut self, word: u64, bits: u64) {
        if let Some(index) = self.in_row(word) {
            self.row[index] &= !bits;
            if self.row[index] == 0 {
                self.trim();
            }
        }
        if !self.far.is_empty() {
            self.far.clear(word, bits);
        }
    }

    /// Removes all positions before `position`. Returns how many there were.
    pub(crate) fn remove_before(&mut self, position: u64) -> u64 {
        let (word, bit) = place(position);
        let mut removed = 0;
        while let Some(first) =
            self.first().map(|first| first / WORD).filter(|&first| first <= word)
        {
            let mask = if first < word { u64::MAX } else { bit - 1 };
            let bits = self.bits(first) & mask;
            if bits == 0 {
                break;
            }
            removed += u64::from(bits.count_ones());
            self.clear(first, bits);
        }
        removed
    }

    /// Number of positions in `range`.
    pub(crate) fn count(&self, range: Range<u64>) -> u64 {
        if range.is_empty() || self.is_empty() {
            return 0;
        }
        let ((start, first), (end, last)) = (place(range.start), place(range.end));
        let within = |word: u64| {
            let from = if word == start { !(first - 1) } else { u64::MAX };
            from & if word == end { last - 1 } else { u64::MAX }
        };
        let count = |word: u64, bits: u64| u64::from((bits & within(word)).count_ones());
        let of_row = |word: u64| word.saturating_sub(self.row_start).min(self.row.len() as u64);
        let near: u64 = (of_row(start)..of_row(end + 1))
            .map(|index| count(self.row_start + index, self.row[index as usize]))
            .sum();
        near + self.far.range(start..=end).map(|(word, bits)| count(word, bits)).sum::<u64>()
    }

    #[inline(never)] // One call in 64.
    fn trim(&mut self) {
        while self.row.front() == Some(&0) {
            self.row.pop_front();
            self.row_start += 1;
        }
        while self.row.back() == Some(&0) {
            self.row.pop_back();
        }
    }

    /// Loads the lines that probably hold the first and the last position into the processor's caches.
    pub(crate) fn load_ends(&self) {
        self.row.front().into_iter().chain(self.row.back()).for_each(load_line);
    }

    /// The last position.
    #[inline]
    pub(crate) fn last(&self) -> Option<u64> {
        let near = self.row.back().map(|&bits| {
            let word = self.row_start + self.row.len() as u64 - 1;
            last_of(word, bits)
        });
        if self.far.is_empty() {
            return near;
        }
        let far = self.far.last().map(|(word, bits)| last_of(word, bits));
        near.max(far)
    }

    /// The last position before `position`.
    pub(crate) fn last_before(&self, position: u64) -> Option<u64> {
        let (word, bit) = place(position);
        let within = self.bits(word) & (bit - 1);
        if within != 0 {
            return Some(last_of(word, within));
        }
        let before = word.saturating_sub(self.row_start).min(self.row.len() as u64) as usize;
        let near = self.row.range(..before).rposition(|&bits| bits != 0).map(|index| {
            let word = self.row_start + index as u64;
            last_of(word, self.row[index])
        });
        let far = word.checked_sub(1).and_then(|last| self.far.range(0..=last).next_back());
        let far = far.map(|(word, bits)| last_of(word, bits));
        near.max(far)
    }

    /// The first position.
    pub(crate) fn first(&self) -> Option<u64> {
        let near = self.row.front().map(|&bits| first_of(self.row_start, bits));
        let far = self.far.first().map(|(word, bits)| first_of(word, bits));
        near.into_iter().chain(far).min()
    }

    /// Removes the first position, if it is before `position`.
    pub(crate) fn pop_before(&mut self, position: u64) -> Option<u64> {
        let first = self.first().filter(|&first| first < position)?;
        self.remove(first);
        Some(first)
    }

    /// Removes all positions, in order.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = u64> + use<> {
        let mut all = std::mem::take(self);
        std::iter::from_fn(move || all.pop_before(u64::MAX))
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        /// Bytes of a B-tree per entry of 16 bytes, two thirds full.
        /// Unit: bytes. Reason: layout.
        const ENTRY_BYTES: usize = 24;
        self.row.capacity() * size_of::<u64>() + self.far.len() * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_an_ordered_set(
            changes in prop::collection::vec((0u8..8, 0u64..300, 0u64..3), 1..300)
        ) {
            let mut set = PositionSet::default();
            let mut model = BTreeSet::new();
            for (kind, position, far) in changes {
                let position = position + far * ROW_MAX * WORD;
                match kind {
                    0..5 if !model.insert(position) => {}
                    0..5 => set.insert(position),
                    5 => {
                        model.remove(&position);
                        set.remove(position);
                    }
                    6 => {
                        let after = model.split_off(&position);
                        prop_assert_eq!(set.remove_before(position), model.len() as u64);
                        model = after;
                    }
                    _ => {
                        let first = model.first().copied().filter(|&first| first < position);
                        first.map(|first| model.remove(&first));
                        prop_assert_eq!(set.pop_before(position), first);
                    }
                }
                prop_assert_eq!(set.contains(position), model.contains(&position));
                let end = position + 100;
                let absent = (position..end).find(|at| !model.contains(at)).unwrap_or(end);
                prop_assert_eq!(set.next_absent(position, end), absent);
                prop_assert_eq!(set.next(position), model.range(position..).next().copied());
                let (from, to) = (position / 2, position + 70);
                prop_assert_eq!(set.count(from..to), model.range(from..to).count() as u64);
                prop_assert_eq!(set.last(), model.last().copied());
                let before = model.range(..position).next_back().copied();
                prop_assert_eq!(set.last_before(position), before);
                prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
            }
            prop_assert!(set.take_all().eq(model));
        }
    }
}
