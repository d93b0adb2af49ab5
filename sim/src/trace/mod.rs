//! Recordings of reads: which reader reads which blocks, in which order.
//!
//! A [`Trace`] iterates over the reads of one file in one of the [formats](Format). It holds one line or record
//! at a time, and decompresses gzip and zstd. A read is in whole blocks: every block that holds one of its
//! bytes.
//!
//! Each format has its own file, with its `Decoder` and its constant of [`Format`]. A new format needs that
//! file, its `mod` here and an entry in [`Format::ALL`]. Recordings of whole programs also have names and the time between
//! reads. They are a [`recording`], which [`mod@strace`], [`dxt`] and [`recorded`] read, and not a `Trace`.
//!
//! What may fail: the file cannot be read, is empty, or is malformed. The iterator then gives one
//! [`TraceError`], whose message is one line, and ends. All reads before the error are given first.

mod blocks;
pub mod dxt;
mod error;
mod foreign;
mod foretell;
mod input;
pub mod opens;
mod oracle_general;
mod reads;
pub mod recorded;
pub mod recorded_opens;
pub mod recording;
pub mod strace;
mod vscsi;
mod zstd;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use foretell_policy::{Block, FileId, Nanos, ReaderId};

pub use error::{Fault, Place, TraceError};
pub use foreign::Foreign;
use input::{Input, Stop};
pub use reads::Reads;

/// One read of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRead {
    /// When it began, in the recording's own time; 0 if that was not recorded.
    pub time: Nanos,
    /// The program that read.
    pub reader: ReaderId,
    /// The file that it read.
    pub file: FileId,
    /// The first block.
    pub first_block: u64,
    /// The number of blocks: at least 1, and none beyond block 2^64−1.
    pub blocks: u64,
}

impl TraceRead {
    /// The blocks, in ascending order.
    pub fn blocks(self) -> impl Iterator<Item = Block> {
        let TraceRead { file, first_block, blocks, .. } = self;
        (0..blocks).map(move |i| Block { file, index: first_block + i })
    }

    /// The first byte and the number of bytes, if blocks have `block_bytes`; `None` if they end beyond byte
    /// 2^63.
    pub fn bytes(self, block_bytes: u64) -> Option<(u64, u64)> {
        let offset_bytes = self.first_block.checked_mul(block_bytes)?;
        let length_bytes = self.blocks.checked_mul(block_bytes)?;
        end_of(offset_bytes, length_bytes).map(|_| (offset_bytes, length_bytes))
    }
}

/// Formats that only `foretell sim replay` reads; they have no [`Format`].
const OF_REPLAY: [&str; 3] = ["strace", "dxt", "record"];

/// A file format of recordings. Each has its own file, which describes it.
#[derive(Clone, Copy)]
pub struct Format {
    name: &'static str,
    about: &'static str,
    /// What the places of errors count: lines or records.
    place: fn(u64) -> Place,
    has_own_blocks: bool,
    has_files: bool,
    /// Makes a decoder for blocks of the given size in bytes.
    decoder: fn(u64) -> Box<dyn Decoder>,
    /// Whether a file with this beginning is a recording in the format. Asked in the order of [`Format::ALL`],
    /// if another format was given and decoding failed.
    is_of: fn(&[u8]) -> bool,
    /// What the user is told then.
    foreign: Foreign,
    /// See [`examples`](Format::examples).
    examples: fn() -> Vec<Vec<u8>>,
}

impl Format {
    /// All formats, in the order in which help texts list them.
    pub const ALL: &'static [Format] =
        &[Format::BLOCKS, Format::VSCSI, Format::ORACLE_GENERAL, Format::FORETELL];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Describes the format in help texts: a phrase of one or more lines.
    pub fn about(self) -> &'static str {
        self.about
    }

    /// Whether the format numbers blocks itself, without saying how large they are.
    pub fn has_own_blocks(self) -> bool {
        self.has_own_blocks
    }

    /// Whether the format distinguishes files.
    pub fn has_files(self) -> bool {
        self.has_files
    }

    /// The names of all formats, separated by commas.
    pub fn names() -> String {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name).collect();
        names.join(", ")
    }

    /// Well-formed recordings with reads, one for each version of the format. Tests read and damage them.
    pub fn examples(self) -> Vec<Vec<u8>> {
        (self.examples)()
    }
}

/// Formats are equal if their names are.
impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = |format: &&Format| format.name() == text;
        Format::ALL.iter().find(wanted).copied().ok_or_else(|| {
            if OF_REPLAY.contains(&text) {
                return format!("only `foretell sim replay --format {text}` reads {text}");
            }
            format!("unknown format {text:?}; known are {}", Format::names())
        })
    }
}

/// Turns the lines or records of a recording into reads.
///
/// The caller passes the same `input` each time, starting at its beginning, and does not call again after an
/// error or the end. The decoder takes no more input than it needs for the next read of at least one byte. So
/// an error's place is the line or record that was begun last.
trait Decoder {
    fn next_read(&mut self, input: &mut Input) -> Result<Option<TraceRead>, Stop>;
}

/// The reads of a recording; see the [module](self).
pub struct Trace {
    path: PathBuf,
    format: Format,
    input: Input,
    decoder: Box<dyn Decoder>,
    is_over: bool,
}

impl Trace {
    /// Opens the recording in the file `path`, with blocks of `block_bytes`, which is at least 1.
    ///
    /// # Errors
    /// [`TraceError::Open`]: the file cannot be opened or read.
    pub fn open(path: &Path, format: Format, block_bytes: u64) -> Result<Self, TraceError> {
        let file = File::open(path);
        let file = file.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        Trace::of(file, path, format, block_bytes)
    }

    /// Reads the recording from `bytes`; errors name it `path`.
    ///
    /// # Errors
    /// [`TraceError::Open`]: its beginning cannot be read.
    pub fn of(
        bytes: impl Read + 'static,
        path: &Path,
        format: Format,
        block_bytes: u64,
    ) -> Result<Self, TraceError> {
        assert!(block_bytes > 0, "a block has a size");
        let path = path.to_owned();
        match Input::new(bytes, format.name()) {
            Ok(input) => {
                let decoder = (format.decoder)(block_bytes);
                Ok(Trace { path, format, input, decoder, is_over: false })
            }
            Err(source) => Err(TraceError::Open { path, source }),
        }
    }

    /// The line or record that was begun last, whether or not it was a read.
    pub fn place(&self) -> Place {
        (self.format.place)(self.input.taken())
    }

    /// The error that says that the last read is impossible, because of `fault`.
    pub fn malformed(&mut self, fault: Fault) -> TraceError {
        self.input.error(fault.into(), &self.path, self.place())
    }

    /// The error that says that the recording has more than `most` reads.
    pub(crate) fn too_long(&self, most: u64) -> TraceError {
        TraceError::TooLong { path: self.path.clone(), most }
    }

    /// All reads, in order. Each takes 16 bytes, and a read that continues the one before takes none. At most
    /// 2^28 are held, which take 4 GiB.
    ///
    /// # Errors
    /// Those of the iterator, and [`TraceError::TooLong`] beyond that limit.
    pub fn into_reads(mut self) -> Result<Reads, TraceError> {
        self.reads_of_at_most(READS_MAX)
    }

    fn reads_of_at_most(&mut self, most: usize) -> Result<Reads, TraceError> {
        let mut reads = Reads::default();
        while let Some(read) = self.next() {
            let TraceRead { file, first_block, blocks, .. } = read?;
            reads.push(file, first_block, blocks);
            if reads.runs_held() > most {
                return Err(self.too_long(most as u64));
            }
        }
        Ok(reads)
    }
}

impl Iterator for Trace {
    type Item = Result<TraceRead, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.decoder.next_read(&mut self.input);
        self.is_over = !matches!(next, Ok(Some(_)));
        if matches!(next, Ok(None)) && self.input.taken() == 0 {
            return Some(Err(TraceError::Empty { path: self.path.clone() }));
        }
        next.map_err(|stop| self.input.error(stop, &self.path, self.place())).transpose()
    }
}

/// Bytes of the largest file or device: Linux counts them in a signed 64-bit number.
const END_BYTES_MAX: u64 = 1 << 63;
/// Reads held at once: 4 GiB of memory.
const READS_MAX: usize = 1 << 28;
/// Bytes of the longest read: the most that one call of Linux reads (`MAX_RW_COUNT`), rounded up to 2 GiB.
const READ_BYTES_MAX: u64 = 2 << 30;

/// Whether one read can have these bytes.
fn check_read(offset_bytes: u64, length_bytes: u64) -> Result<(), Fault> {
    if length_bytes > READ_BYTES_MAX {
        return Err(Fault::LongRead { length_bytes, bytes_max: READ_BYTES_MAX });
    }
    end_of(offset_bytes, length_bytes).map(|_| ()).ok_or(Fault::Beyond)
}

/// The end of a range; `None` if it is beyond the last byte that Linux can address.
fn end_of(offset_bytes: u64, length_bytes: u64) -> Option<u64> {
    offset_bytes.checked_add(length_bytes).filter(|&end| end <= END_BYTES_MAX)
}

/// The first block of a range, and its number of blocks; `None` if the range ends beyond byte 2^63.
pub(crate) fn touched(
    offset_bytes: u64,
    length_bytes: u64,
    block_bytes: u64,
) -> Option<(u64, u64)> {
    let end = end_of(offset_bytes, length_bytes)?;
    let first = offset_bytes / block_bytes;
    let blocks = if length_bytes == 0 { 0 } else { (end - 1) / block_bytes - first + 1 };
    Some((first, blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_every_block_it_has_a_byte_in() {
        let table = [
            ((0, 8192), Some((0, 1))),
            ((0, 8193), Some((0, 2))),
            ((8191, 2), Some((0, 2))),
            ((8192, 1), Some((1, 1))),
            ((5, 0), Some((0, 0))),
            ((1 << 63, 0), Some(((1 << 63) / 8192, 0))),
            (((1 << 63) - 1, 1), Some(((1 << 63) / 8192 - 1, 1))),
            ((1 << 63, 1), None),
            ((u64::MAX, 1), None),
        ];
        for ((offset, length), blocks) in table {
            assert_eq!(touched(offset, length, 8192), blocks, "{offset}+{length}");
        }
        assert_eq!(touched(0, 1 << 63, 1), Some((0, 1 << 63)));
    }

    #[test]
    fn a_recording_of_more_reads_than_are_held_is_refused() {
        let trace = || {
            let text: String = (0..20).map(|at| format!("{}\n", at * 2)).collect();
            Trace::of(std::io::Cursor::new(text), Path::new("t"), Format::BLOCKS, 512)
        };
        let held = trace().expect("memory").reads_of_at_most(20).expect("so many are held");
        assert_eq!(held.len(), 20);
        let error = trace().expect("memory").reads_of_at_most(19).expect_err("one more");
        assert_eq!(error.to_string(), "t: has more than 19 reads; take a part of it");
    }

    #[test]
    fn formats_are_known_by_name() {
        for &format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
            let same = Format::ALL.iter().filter(|other| **other == format);
            assert_eq!(same.count(), 1, "two formats are named {format}");
            assert!(!OF_REPLAY.contains(&format.name()), "{format}");
        }
        let error = "strace".parse::<Format>().expect_err("of replay alone");
        assert_eq!(error, "only `foretell sim replay --format strace` reads strace");
        let error = "csv".parse::<Format>().expect_err("unknown");
        let (said, known) = error.split_once("; known are ").expect("what is known");
        assert_eq!(said, r#"unknown format "csv""#);
        let listed: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        assert_eq!(known.split(", ").collect::<Vec<_>>(), listed);
        assert!(known.starts_with("blocks, vscsi, oracle-general, foretell"), "{known}");
    }
}
