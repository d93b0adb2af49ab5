//! The table of named ghosts: headers of blocks that have left memory.
//!
//! A ghost is 32 bits of its block's hash and the place of its entry in the log. It is found by block or by number. The log's
//! entry holds the number, which says where in the table the ghost lies. Most ghosts end as the oldest one, and dropping it
//! needs no search. The table consists of [lines](crate::tables::walk). Each line counts the ghosts that lie in another line
//! because it was full; a search ends where this count is 0.
//!
//! Of two blocks with the same 32 bits, one may take the other's ghost. A hit is then counted for the wrong one, and the other
//! ghost stays until it is the oldest. With a million ghosts this happens in one search of 4,000, and changes one count of a
//! statistic.
//!
//! Memory: with at most g ghosts at once, the table has 5/2 g to 5 g places of 8 bytes, and 4 bytes for each eight places: 21
//! to 42 bytes a ghost. Each ghost's entry in the log takes another 4 to 10 bytes, like a resident's. Growth passes through the
//! whole table and the ghosts' entries in the log.

use super::entry::NUMBER_MAX;
use crate::blocks::Stamp;
use crate::tables::line::load_line;
use crate::tables::walk::{LINE, Walks, first, places, tag_of};

/// The tag of a place without a ghost.
/// Unit: bits. Reason: layout.
const NONE: u32 = 0;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line {
    tags: [u32; LINE],
    /// Where the ghosts' entries lie in the log.
    stamps: [u32; LINE],
}

impl Line {
    /// A line without ghosts. Unit: bits. Reason: layout.
    const NEW: Line = Line { tags: [NONE; LINE], stamps: [0; LINE] };

    #[inline]
    fn find(&self, tag: u32) -> Option<usize> {
        first(places(&self.tags, |other| other == tag))
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ghosts {
    lines: Vec<Line>,
    /// For each line, the ghosts that lie in another line because it was full.
    passed: Vec<u32>,
    walks: Walks,
    len: usize,
    most: usize,
}

/// The part of a hash that is kept.
#[inline]
fn tag(hash: u64) -> u32 {
    tag_of(hash).max(NONE + 1)
}

fn number_of(line: usize, place: usize) -> u32 {
    (line * LINE + place) as u32
}

/// The line of a number, and the place there.
#[inline]
fn place_of(number: u32) -> (usize, usize) {
    (number as usize / LINE, number as usize % LINE)
}

impl Ghosts {
    /// An empty table for at most `most` ghosts.
    pub(super) fn new(most: usize) -> Self {
        let (lines, passed) = (Vec::new(), Vec::new());
        Ghosts { lines, passed, walks: Walks::default(), len: 0, most }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.passed.capacity() * size_of::<u32>()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds the ghost of a block with this hash, and returns its number. If the table grows, the numbers of other ghosts
    /// change: `renumbered` is called with the place of each one's entry in the log and its new number.
    #[inline]
    pub(super) fn insert(
        &mut self,
        hash: u64,
        stamp: Stamp,
        renumbered: impl FnMut(Stamp, u32),
    ) -> u32 {
        if !self.walks.have_room_for(self.len + 1) {
            self.grow(renumbered);
        }
        self.len += 1;
        self.put(tag(hash), stamp)
    }

    /// Removes the ghost of the block with this hash, and returns where its entry lies.
    pub(super) fn take(&mut self, hash: u64) -> Option<Stamp> {
        let number = self.find(tag(hash))?;
        let (line, place) = place_of(number);
        let stamp = Stamp(self.lines[line].stamps[place]);
        self.remove(number);
        Some(stamp)
    }

    /// Removes the ghost of this number.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        let (line, place) = place_of(number);
        let tag = std::mem::replace(&mut self.lines[line].tags[place], NONE);
        debug_assert!(tag != NONE, "there is no ghost {number}");
        self.len -= 1;
        let mut passed = self.walks.home(tag);
        while passed != line {
            self.passed[passed] -= 1;
            passed = self.walks.after(passed, tag);
        }
    }

    /// Loads the ghost with this hash, or the place where it would be, into the processor's caches.
    #[inline]
    pub(super) fn load(&self, hash: u64) {
        self.lines.get(self.walks.home(tag(hash))).into_iter().for_each(load_line);
    }

    /// Loads the ghost of this number.
    #[inline]
    pub(super) fn load_numbered(&self, number: u32) {
        load_line(&self.lines[place_of(number).0]);
    }

    /// The entry of the ghost with this number has moved.
    #[inline]
    pub(super) fn moved(&mut self, number: u32, stamp: Stamp) {
        let (line, place) = place_of(number);
        self.lines[line].stamps[place] = stamp.0;
    }

    /// Where the entry of the ghost with this number lies, if the ghost has this hash.
    #[cfg(test)]
    pub(super) fn stamp_of(&self, number: u32, hash: u64) -> Option<Stamp> {
        let (line, place) = place_of(number);
        let line = &self.lines[line];
        (line.tags[place] == tag(hash)).then_some(Stamp(line.stamps[place]))
    }

    /// The number of the ghost with this tag.
    #[inline]
    fn find(&self, tag: u32) -> Option<u32> {
        let mut index = self.walks.home(tag);
        for _ in 0..self.lines.len() {
            if let Some(place) = self.lines[index].find(tag) {
                return Some(number_of(index, place));
            }
            if self.passed[index] == 0 {
                return None;
            }
            index = self.walks.after(index, tag);
        }
        None
    }

    fn put(&mut self, tag: u32, stamp: Stamp) -> u32 {
        let mut index = self.walks.home(tag);
        loop {
            let line = &mut self.lines[index];
            if let Some(place) = line.find(NONE) {
                (line.tags[place], line.stamps[place]) = (tag, stamp.0);
                let number = number_of(index, place);
                debug_assert!(number < NUMBER_MAX, "more ghosts than their entries can tell apart");
                return number;
            }
            self.passed[index] += 1;
            index = self.walks.after(index, tag);
        }
    }

    #[cold]
    fn grow(&mut self, mut renumbered: impl FnMut(Stamp, u32)) {
        self.walks = self.walks.grown(self.len + 1, self.most);
        let lines = self.walks.lines();
        self.passed = vec![0; lines];
        for line in std::mem::replace(&mut self.lines, vec![Line::NEW; lines]) {
            for (tag, stamp) in line.tags.into_iter().zip(line.stamps) {
                if tag != NONE {
                    let number = self.put(tag, Stamp(stamp));
                    renumbered(Stamp(stamp), number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hashes with few homes, so that lines are full and walks cross. All tags differ.
        #[test]
        fn they_are_those_of_a_map(
            most in 1usize..200,
            homes in 1u64..20,
            changes in prop::collection::vec((0..4, any::<u32>()), 1..600),
        ) {
            let mut ghosts = Ghosts::new(most);
            // The place of each ghost's entry by hash, and the number in each entry by place.
            let mut model: BTreeMap<u64, Stamp> = BTreeMap::new();
            let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
            let hash_of = |drawn: u64| {
                (drawn % homes * (u64::from(u32::MAX) / homes) + drawn / homes % 64 + 1) << 32
            };
            for (time, (change, drawn)) in (0u32..).zip(changes) {
                let hash = hash_of(u64::from(drawn));
                match change {
                    0 | 1 if !model.contains_key(&hash) => {
                        if model.len() < most {
                            let number = ghosts.insert(hash, Stamp(time), |stamp, number| {
                                numbers.insert(stamp.0, number);
                            });
                            numbers.insert(time, number);
                            model.insert(hash, Stamp(time));
                        }
                    }
                    2 => prop_assert_eq!(ghosts.take(hash), model.remove(&hash)),
                    _ => {
                        if let Some((&hash, &stamp)) = model.range(hash..).next() {
                            if drawn % 2 == 0 {
                                ghosts.remove(numbers[&stamp.0]);
                                model.remove(&hash);
                            } else {
                                ghosts.moved(numbers[&stamp.0], Stamp(time));
                                numbers.insert(time, numbers[&stamp.0]);
                                model.insert(hash, Stamp(time));
                            }
                        }
                    }
                }
                prop_assert_eq!(ghosts.len(), model.len());
            }
            for (&hash, &stamp) in &model {
                prop_assert_eq!(ghosts.stamp_of(numbers[&stamp.0], hash), Some(stamp));
                prop_assert_eq!(ghosts.take(hash), Some(stamp));
            }
            prop_assert!(ghosts.passed.iter().all(|&passed| passed == 0), "counted, and gone");
        }
    }

    #[test]
    fn the_hash_of_nothing_is_told_from_nothing() {
        let mut ghosts = Ghosts::new(4);
        assert_eq!(ghosts.take(0), None);
        let number = ghosts.insert(0, Stamp(7), |_, _| ());
        assert_eq!((ghosts.stamp_of(number, 0), ghosts.take(0)), (Some(Stamp(7)), Some(Stamp(7))));
        assert_eq!(ghosts.len(), 0);
    }
}
