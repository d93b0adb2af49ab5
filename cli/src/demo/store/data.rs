//! The data of the demo's store: one large object, and many small text objects. The bytes are the same each time.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The large object.
pub(super) const OBJECT: &str = "samples.bin";
pub(super) const OBJECT_BYTES: u64 = 256 << 20;

/// Number of ranges read, and bytes of each: the most that the kernel fetches for one call of `posix_fadvise`.
pub(super) const RANGES: usize = 64;
pub(super) const RANGE_BYTES: usize = 128 << 10;

/// The small objects: their folder, their number, and the range of their sizes.
pub(super) const NOTES: &str = "notes";
pub(super) const NOTES_COUNT: usize = 200;
const NOTE_BYTES: std::ops::Range<u64> = 2 << 10..32 << 10;

/// The string that is searched for; one object in so many has it.
pub(super) const NEEDLE: &str = "zq-foretell-demo-needle-qz";
const NEEDLE_EVERY: usize = 20;

/// Words of the small objects.
const WORDS: [&str; 16] = [
    "the", "store", "is", "far", "away", "and", "each", "answer", "takes", "its", "time", "so",
    "ask", "for", "many", "once",
];

/// Bytes written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Steele, Lea and Flood's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The data, in the folder that will be the bucket.
pub(super) struct Data {
    pub(super) folder: PathBuf,
    /// Bytes of all small objects.
    pub(super) notes_bytes: u64,
    /// Where the ranges begin, in the order in which they are read.
    pub(super) offsets: Vec<u64>,
}

impl Data {
    /// Makes the data in `folder`, which is empty. `go_on` is called now and then, and can stop it.
    ///
    /// # Errors
    /// The folder cannot be written, usually because the disk is full, or `go_on` says no.
    pub(super) fn make(
        folder: &Path,
        go_on: impl Fn() -> Result<(), String>,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| {
            let folder = folder.display();
            format!("cannot make the demo's data in {folder}: {error}; set TMPDIR to another place")
        };
        let mut random = Random(1);
        let mut object = File::create(folder.join(OBJECT)).map_err(failed)?;
        let mut piece = vec![0; PIECE_BYTES];
        for _ in 0..OBJECT_BYTES / PIECE_BYTES as u64 {
            go_on()?;
            for word in piece.as_chunks_mut::<8>().0 {
                *word = random.next().to_le_bytes();
            }
            object.write_all(&piece).map_err(failed)?;
        }
        fs::create_dir(folder.join(NOTES)).map_err(failed)?;
        let mut notes_bytes = 0;
        for number in 0..NOTES_COUNT {
            let note = note(&mut random, number % NEEDLE_EVERY == 0);
            notes_bytes += note.len() as u64;
            let path = folder.join(NOTES).join(format!("{number:03}.txt"));
            fs::write(path, note).map_err(failed)?;
        }
        Ok(Data { folder: folder.to_owned(), notes_bytes, offsets: offsets(&mut random) })
    }
}

/// Lines of words.
fn note(random: &mut Random, has_needle: bool) -> String {
    let bytes = NOTE_BYTES.start + random.below(NOTE_BYTES.end - NOTE_BYTES.start);
    let mut text = String::new();
    while (text.len() as u64) < bytes {
        for _ in 0..12 {
            text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
            text.push(' ');
        }
        text.push('\n');
    }
    if has_needle {
        text.push_str(NEEDLE);
        text.push('\n');
    }
    text
}

/// Offsets of [`RANGES`] distinct pieces of the large object, in random order.
fn offsets(random: &mut Random) -> Vec<u64> {
    let mut pieces: Vec<u64> = (0..OBJECT_BYTES / RANGE_BYTES as u64).collect();
    for place in 0..RANGES {
        let other = place as u64 + random.below((pieces.len() - place) as u64);
        pieces.swap(place, other as usize);
    }
    pieces.iter().take(RANGES).map(|piece| piece * RANGE_BYTES as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_each_time() {
        let make = || {
            let folder = tempfile::tempdir().expect("a folder");
            let data = Data::make(folder.path(), || Ok(())).expect("there is room");
            let one = fs::read(folder.path().join(NOTES).join("000.txt")).expect("it is there");
            let length = folder.path().join(OBJECT).metadata().expect("it is there").len();
            (data.offsets, data.notes_bytes, one, length)
        };
        let (offsets, notes_bytes, one, length) = make();
        assert_eq!((&offsets, notes_bytes, &one), (&make().0, make().1, &make().2));
        assert_eq!(length, OBJECT_BYTES);
        let mut sorted = offsets.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), RANGES, "each once");
        assert!(offsets.iter().all(|offset| offset + RANGE_BYTES as u64 <= OBJECT_BYTES));
        assert!(String::from_utf8(one).expect("text").ends_with(&format!("{NEEDLE}\n")));
    }

    #[test]
    fn without_room_or_patience_it_is_said_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let absent = folder.path().join("absent");
        let error = Data::make(&absent, || Ok(())).err().expect("there is no folder");
        assert!(error.contains("absent") && error.contains("TMPDIR"), "{error}");
        let stopped = Data::make(folder.path(), || Err("enough".into())).err();
        assert_eq!(stopped.as_deref(), Some("enough"));
    }
}
