//! A hash table of handles. A handle is a number below 2³¹ for something that the table's owner keeps elsewhere and compares.
//!
//! The table is an array of [lines](crate::tables::walk). Each line has eight handles and 32 bits of the hash of each. These
//! bits give the home of an entry when the table grows. They also show nearly always whether a handle is the right one before
//! its object is looked at. So a search costs about one cache miss, which is what counts with millions of blocks.
//!
//! * **A. Overflow.** Each line counts the entries that passed it on their walk because it was full. The count takes the bits
//!   that its eight handles leave. A search ends at a line whose count is zero. When an entry leaves, the counts from its home
//!   to its line are reduced, and no other entry has to move. A count at its maximum stays there until the table is empty or
//!   grows. Searches then take longer but stay correct.
//!
//! Memory: 8 bytes per place. There are at most 5/2 places for each handle of the largest number that the table may hold, and
//! fewer while it holds fewer. To grow, the table is copied, and the objects of its handles are not looked at.

use std::hint::select_unpredictable;

use crate::tables::line::load_line;
use crate::tables::walk::{LINE, Walks, first, first_or_any, places, tag_of};

/// The bits of a handle in its word.
/// Unit: bits. Reason: layout.
const HANDLE: u32 = u32::MAX >> 1;
/// Stands for no handle.
/// Unit: handle. Reason: layout.
const EMPTY: u32 = HANDLE;
/// The tag of an empty place. Nearly all entries have another tag, so a search seldom looks at empty places.
/// Unit: bits. Reason: layout.
const NO_TAG: u32 = 0;

/// A: the bit of each handle's word that belongs to the count; the lowest is in the first word.
/// Unit: bits. Reason: layout.
const COUNT: u32 = !HANDLE;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line {
    tags: [u32; LINE],
    /// The top bits are the count of the overflow.
    handles: [u32; LINE],
}

impl Line {
    const NEW: Line = Line { tags: [NO_TAG; LINE], handles: [EMPTY; LINE] };

    #[inline]
    fn handle(&self, place: usize) -> Option<u32> {
        Some(self.handles[place] & HANDLE).filter(|&handle| handle != EMPTY)
    }

    /// The place of the handle with this tag for which `same` is true.
    #[inline]
    fn find(&self, tag: u32, same: &mut impl FnMut(u32) -> bool) -> Option<usize> {
        let mut alike = places(&self.tags, |other| other == tag);
        while let Some(place) = first(alike) {
            if self.handle(place).is_some_and(&mut *same) {
                return Some(place);
            }
            alike &= alike - 1;
        }
        None
    }

    /// An empty place.
    #[inline]
    fn empty(&self) -> Option<usize> {
        first(places(&self.handles, |handle| handle & HANDLE == EMPTY))
    }

    fn set(&mut self, place: usize, handle: u32) {
        self.handles[place] = self.handles[place] & !HANDLE | handle;
    }

    /// A: entries that passed this line because it was full.
    #[cfg(test)]
    fn overflow(&self) -> u32 {
        places(&self.handles, |handle| handle & COUNT != 0) >> 1
    }

    #[inline]
    fn has_overflow(&self) -> bool {
        self.handles.iter().fold(0, |any, &handle| any | handle) & COUNT != 0
    }

    /// A: whether the count is at its maximum.
    fn is_saturated(&self) -> bool {
        self.handles.iter().fold(COUNT, |all, &handle| all & handle) != 0
    }

    /// A: increases the count. Returns whether it is then at its maximum.
    fn count(&mut self) -> bool {
        if !self.is_saturated() {
            // Adds one with carry, bit by bit.
            for handle in &mut self.handles {
                *handle ^= COUNT;
                if *handle & COUNT != 0 {
                    break;
                }
            }
        }
        self.is_saturated()
    }

    /// A: reduces the count, unless it is at its maximum.
    fn uncount(&mut self) {
        if !self.is_saturated() {
            for handle in &mut self.handles {
                *handle ^= COUNT;
                if *handle & COUNT == 0 {
                    break;
                }
            }
        }
    }
}

/// A line, and a place in it.
type Place = (usize, usize);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Handles {
    lines: Vec<Line>,
    walks: Walks,
    len: usize,
    most: usize,
    /// Whether any count is at its maximum.
    is_saturated: bool,
}

impl Default for Handles {
    fn default() -> Self {
        Handles::with_most(usize::MAX)
    }
}

impl Handles {
    /// An empty table for at most `most` handles.
    pub(crate) fn with_most(most: usize) -> Self {
        let walks = Walks::default();
        Handles { lines: Vec::new(), walks, len: 0, most, is_saturated: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }

    /// The handle with this hash for which `same` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, same: impl FnMut(u32) -> bool) -> Option<u32> {
        let (line, place) = self.place_of(tag_of(hash), same)?;
        self.lines[line].handle(place)
    }

    /// The handle that probably has this hash: the first one with the same tag; `none` if there is none. Nothing else is
    /// compared. If no entry has passed the home line of the hash, the search takes no branch: callers ask for many blocks, and
    /// a processor cannot predict which of them are present.
    #[inline]
    pub(crate) fn guess(&self, hash: u64, none: u32) -> u32 {
        let tag = tag_of(hash);
        let home = self.walks.home(tag);
        let Some(line) = self.lines.get(home) else { return none };
        let alike = places(&line.tags, |other| other == tag);
        if (alike == 0) & line.has_overflow() {
            return self.guess_beyond(home, tag).unwrap_or(none);
        }
        let handle = line.handles[first_or_any(alike)] & HANDLE;
        select_unpredictable(alike == 0, none, handle)
    }

    #[cold]
    fn guess_beyond(&self, home: usize, tag: u32) -> Option<u32> {
        let (line, place) = self.place_beyond(home, tag, |_| true)?;
        self.lines[line].handle(place)
    }

    /// Loads the first line of a search for this hash into the processor's caches.
    #[inline]
    pub(crate) fn load(&self, hash: u64) {
        self.lines.get(self.walks.home(tag_of(hash))).into_iter().for_each(load_line);
    }

    /// Adds a handle that is not in the table.
    pub(crate) fn insert(&mut self, hash: u64, handle: u32) {
        assert!(handle < EMPTY, "handles are numbered below 2³¹");
        if !self.walks.have_room_for(self.len + 1) {
            self.grow();
        }
        self.put(tag_of(hash), handle);
        self.len += 1;
    }

    /// Removes the handle with this hash for which `same` is true.
    pub(crate) fn remove(&mut self, hash: u64, same: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag_of(hash);
        let (line, place) = self.place_of(tag, same)?;
        let handle = self.lines[line].handle(place);
        self.lines[line].set(place, EMPTY);
        self.lines[line].tags[place] = NO_TAG;
        self.len -= 1;
        let mut passed = self.walks.home(tag);
        while passed != line {
            self.lines[passed].uncount();
            passed = self.walks.after(passed, tag);
        }
        if self.len == 0 && std::mem::take(&mut self.is_saturated) {
            self.lines.fill(Line::NEW);
        }
        handle
    }

    /// All handles, in arbitrary order.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.lines.iter().flat_map(|line| (0..LINE).filter_map(|place| line.handle(place)))
    }

    /// The place of the handle with this tag for which `same` is true.
    #[inline]
    fn place_of(&self, tag: u32, mut same: impl FnMut(u32) -> bool) -> Option<Place> {
        let home = self.walks.home(tag);
        let line = self.lines.get(home)?;
        // Most handles lie in their home line. For most handles that are not in the table, the home line alone shows it.
        match line.find(tag, &mut same) {
            Some(place) => Some((home, place)),
            None if line.has_overflow() => self.place_beyond(home, tag, same),
            None => None,
        }
    }

    /// As [`place_of`](Self::place_of), for a handle that is not in its home.
    #[inline(never)]
    fn place_beyond(
        &self,
        home: usize,
        tag: u32,
        mut same: impl FnMut(u32) -> bool,
    ) -> Option<Place> {
        let mut index = home;
        for _ in 1..self.lines.len() {
            index = self.walks.after(index, tag);
            let line = &self.lines[index];
            if let Some(place) = line.find(tag, &mut same) {
                return Some((index, place));
            }
            if !line.has_overflow() {
                return None;
            }
        }
        None
    }

    #[inline(always)] // Part of every miss.
    fn put(&mut self, tag: u32, handle: u32) {
        let mut index = self.walks.home(tag);
        let place = loop {
            if let Some(place) = self.lines[index].empty() {
                break place;
            }
            self.is_saturated |= self.lines[index].count();
            index = self.walks.after(index, tag);
        };
        let line = &mut self.lines[index];
        line.tags[place] = tag;
        line.set(place, handle);
    }

    #[cold]
    fn grow(&mut self) {
        self.walks = self.walks.grown(self.len + 1, self.most);
        self.is_saturated = false;
        let old = std::mem::replace(&mut self.lines, vec![Line::NEW; self.walks.lines()]);
        for line in old {
            for place in 0..LINE {
                if let Some(handle) = line.handle(place) {
                    self.put(line.tags[place], handle);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{Block, FileId};
    use crate::tables::hash::hash_block;
    use proptest::prelude::*;

    proptest! {
        /// There are few different hashes, so that entries collide, wrap around and move back.
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
                prop_assert!(!model.is_empty() || handles.lines.iter().all(|line| line.overflow() == 0));
            }
        }
    }

    #[test]
    fn very_many_of_one_home_are_found_and_leave_nothing_behind() {
        let most = 2_000;
        let mut handles = Handles::with_most(most);
        let hash = |handle: u32| 0x1234_5678 << 32 | u64::from(handle);
        for _ in 0..2 {
            (0..1000).for_each(|handle| handles.insert(hash(handle), handle));
            for handle in 0..1000 {
                assert_eq!(handles.find(hash(handle), |other| other == handle), Some(handle));
            }
            for handle in 0..1000 {
                assert_eq!(handles.remove(hash(handle), |other| other == handle), Some(handle));
                assert_eq!(handles.find(hash(handle), |other| other == handle), None);
            }
            assert!(handles.lines.iter().all(|line| !line.has_overflow()));
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
            assert!(handles.memory_bytes() <= (most * 8 * 5 / 2 + 256) as usize);
            let mut looked_at = 0;
            for (index, line) in handles.lines.iter().enumerate() {
                for place in (0..LINE).filter(|&place| line.handle(place).is_some()) {
                    let tag = line.tags[place];
                    let walk = std::iter::successors(Some(handles.walks.home(tag)), |&line| {
                        Some(handles.walks.after(line, tag))
                    });
                    looked_at += 1 + walk.take_while(|&line| line != index).count();
                }
            }
            let mean = looked_at as f64 / most as f64;
            assert!(mean < 1.1, "{files} files, stride {stride}: {mean} lines");
            let hash = |handle: u64| hash_block(block(handle));
            let wrong = |handles: &Handles, of: std::ops::Range<u64>, is_there: bool| {
                let expected = |handle: u64| if is_there { handle as u32 } else { EMPTY - 1 };
                of.filter(|&handle| handles.guess(hash(handle), EMPTY - 1) != expected(handle))
                    .count()
            };
            // Some have the same tags as others.
            let hardly_any = most as usize / 1000;
            assert!(wrong(&handles, 0..most, true) < hardly_any, "{files} files, stride {stride}");
            assert!(wrong(&handles, most..2 * most, false) < hardly_any);
            for handle in 0..most / 2 {
                handles.remove(hash(handle), |other| u64::from(other) == handle);
            }
            assert!(wrong(&handles, 0..most / 2, false) < hardly_any);
            assert!(wrong(&handles, most / 2..most, true) < hardly_any);
        }
    }
}
