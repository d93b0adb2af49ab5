//! Numbers for files: which files the predictors know, and how their memory stays bounded.
//!
//! A caller names a file by any 64-bit key: a hash of its path, or of device and inode. [`Files`] gives it a [`File`]: a place
//! below the bound, and the place's generation. Predictors keep what they know of a file at its place (`Places`).
//!
//! If all places are taken, the hand of a clock looks for a file that was not opened since the hand passed it last (second
//! chance), and gives its place away, with the next generation. So a [`File`] that a predictor still holds names no file any
//! more, and predictors need not be told. Generations repeat after 256 files; a guess may then name a wrong file, at the cost
//! of a wasted fetch.
//!
//! Cost: one look-up in a hash table for an open; 32 bytes a file and its entry in the table.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bits of a [`File`] that are its place. The others are the place's generation.
const PLACE_BITS: u32 = 24;
/// Most files that can be known at once: 16 million.
pub const FILES_MAX: usize = 1 << PLACE_BITS;

/// A known file: its place, and the place's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File(pub(super) u32);

impl File {
    /// No file: a place beyond all others.
    pub(super) const NONE: File = File(u32::MAX);

    fn new(place: usize, generation: u8) -> Self {
        File(place as u32 | u32::from(generation) << PLACE_BITS)
    }

    /// Its place, below the bound of [`Files`].
    pub fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

/// Scrambles a key (the finaliser of SplitMix64): the keys of a caller may be small numbers.
#[derive(Default)]
pub(super) struct Scramble(u64);

impl Hasher for Scramble {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = scramble(self.0 ^ value);
    }
}

/// A bijection in which every bit of `value` moves all others.
pub(super) fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A file at its place.
#[derive(Clone, Copy, Debug)]
struct Known {
    key: u64,
    size_bytes: u64,
    generation: u8,
    /// Whether it was opened since the hand passed.
    is_recent: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Files {
    places: HashMap<u64, u32, BuildHasherDefault<Scramble>>,
    known: Vec<Known>,
    hand: usize,
    files_max: usize,
}

impl Files {
    /// At most `files_max` files, and at most [`FILES_MAX`] less one.
    pub fn new(files_max: usize) -> Self {
        let files_max = files_max.clamp(1, FILES_MAX - 1);
        Files { places: HashMap::default(), known: Vec::new(), hand: 0, files_max }
    }

    /// The file of `key`, which has now `size_bytes`. It becomes known, and an old one may be forgotten for it.
    pub fn open(&mut self, key: u64, size_bytes: u64) -> File {
        if let Some(&place) = self.places.get(&key) {
            let known = &mut self.known[place as usize];
            (known.size_bytes, known.is_recent) = (size_bytes, true);
            return File::new(place as usize, known.generation);
        }
        let new = Known { key, size_bytes, generation: 0, is_recent: false };
        let place = if self.known.len() < self.files_max {
            self.known.push(new);
            self.known.len() - 1
        } else {
            let place = self.stale();
            let old = &mut self.known[place];
            self.places.remove(&old.key);
            *old = Known { generation: old.generation.wrapping_add(1), ..new };
            place
        };
        self.places.insert(key, place as u32);
        File::new(place, self.known[place].generation)
    }

    /// The place that the clock gives away.
    fn stale(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.known.len();
            if !std::mem::take(&mut self.known[place].is_recent) {
                return place;
            }
        }
    }

    /// The key and the size in bytes of `file`; `None` if it was forgotten.
    pub fn get(&self, file: File) -> Option<(u64, u64)> {
        let known = self.known.get(file.place())?;
        (File::new(file.place(), known.generation) == file).then_some((known.key, known.size_bytes))
    }

    /// The number of known files.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        // An entry has 16 bytes, and a byte of control.
        self.known.capacity() * size_of::<Known>() + self.places.capacity() * 17
    }
}

/// What a predictor knows of each file. What was known of an earlier file at the same place is gone.
#[derive(Debug)]
pub(super) struct Places<T> {
    all: Vec<(File, T)>,
}

impl<T: Default> Places<T> {
    pub(super) fn new() -> Self {
        Places { all: Vec::new() }
    }

    pub(super) fn get(&self, file: File) -> Option<&T> {
        self.all.get(file.place()).filter(|(of, _)| *of == file).map(|(_, known)| known)
    }

    /// What is known of `file`, for changes.
    pub(super) fn known(&mut self, file: File) -> Option<&mut T> {
        self.all.get_mut(file.place()).filter(|(of, _)| *of == file).map(|(_, known)| known)
    }

    /// What is known of `file`, for changes; made if there is nothing.
    pub(super) fn of(&mut self, file: File) -> &mut T {
        let place = file.place();
        if place >= self.all.len() {
            self.all.resize_with(place + 1, || (File::NONE, T::default()));
        }
        let (of, known) = &mut self.all[place];
        if *of != file {
            (*of, *known) = (file, T::default());
        }
        known
    }

    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<(File, T)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_number_until_its_place_is_given_away() {
        let mut files = Files::new(3);
        let [one, two, three] = [10, 20, 30].map(|key| files.open(key, key));
        assert_eq!(files.open(10, 11), one, "opened again");
        assert_eq!(files.get(one), Some((10, 11)));
        // The first was opened again, so the second goes.
        let four = files.open(40, 0);
        assert_eq!((four.place(), files.get(two)), (two.place(), None));
        assert_eq!(
            [one, three, four].map(|file| files.get(file).map(|(key, _)| key)),
            [Some(10), Some(30), Some(40)]
        );
        assert_eq!(files.len(), 3);
        for key in 0..10_000 {
            files.open(key, 1);
        }
        assert_eq!(files.len(), 3);
    }

    #[test]
    fn what_is_known_of_a_forgotten_file_is_gone() {
        let (mut files, mut places) = (Files::new(1), Places::<u32>::new());
        let one = files.open(1, 0);
        *places.of(one) = 7;
        assert_eq!(places.get(one), Some(&7));
        let two = files.open(2, 0);
        assert_eq!(places.get(two), None);
        assert_eq!(*places.of(two), 0);
        assert_eq!(places.known(one), None);
    }
}
