//! Recordings of reads: who read which blocks, in which order.
//!
//! A [`Trace`] is an iterator over the reads of a file in one of the [formats](Format), which holds one
//! line or record at a time. Files compressed with gzip or zstd are read as they are. A read is in whole
//! blocks: it has every block that one of its bytes lies in.
//!
//! Each format has a file of its own: its `Decoder` and its entry, a constant of [`Format`]. To add one, write that
//! file and add the constant to [`Format::ALL`]. Recordings of whole programs, with the names they resolve and the time between their reads, are no `Trace` but a
//! [`recording`], by [`mod@strace`] or [`dxt`].
//!
//! What may fail: the file cannot be read, or is not what it should be. Either is a [`TraceError`] of
//! one line, and the last thing that the iterator gives. What is read before is given before. An empty file is one.

mod blocks;
pub mod dxt;
mod error;
mod foreign;
mod foretell;
mod input;
mod oracle_general;
mod reads;
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
    /// When it began, from an origin of the recording's own; 0 where that was not recorded.
    pub time: Nanos,
    /// Who read.
    pub reader: ReaderId,
    /// What was read.
    pub file: FileId,
    /// The first block.
    pub first_block: u64,
    /// How many blocks; at least 1, and none beyond block 2^64−1.
    pub blocks: u64,
}

impl TraceRead {
    /// The blocks, in ascending order.
    pub fn blocks(self) -> impl Iterator<Item = Block> {
        let TraceRead { file, first_block, blocks, .. } = self;
        (0..blocks).map(move |i| Block { file, index: first_block + i })
    }

    /// The first byte and the number of bytes, in blocks of `block_bytes`; `None` if they end beyond byte 2^63.
    pub fn bytes(self, block_bytes: u64) -> Option<(u64, u64)> {
        let offset_bytes = self.first_block.checked_mul(block_bytes)?;
        let length_bytes = self.blocks.checked_mul(block_bytes)?;
        end_of(offset_bytes, length_bytes).map(|_| (offset_bytes, length_bytes))
    }
}

/// Formats that have no [`Format`]: `foretell sim replay` reads them alone.
const OF_REPLAY: [&str; 2] = ["strace", "dxt"];

/// A way of writing recordings. Each format is described in its own file, as an associated constant.
#[derive(Clone, Copy)]
pub struct Format {
    name: &'static str,
    about: &'static str,
    /// The unit in which errors count: a line or a record.
    place: fn(u64) -> Place,
    has_own_blocks: bool,
    has_files: bool,
    /// Makes a decoder for blocks of that many bytes.
    decoder: fn(u64) -> Box<dyn Decoder>,
}

impl Format {
    /// All formats, in the order in which help texts list them.
    pub const ALL: [Format; 4] =
        [Format::BLOCKS, Format::VSCSI, Format::ORACLE_GENERAL, Format::FORETELL];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// What a recording of this format holds, for help texts: a phrase, in one or more lines.
    pub fn about(self) -> &'static str {
        self.about
    }

    /// Whether the recording counts in blocks of its own, whose size it does not state.
    pub fn has_own_blocks(self) -> bool {
        self.has_own_blocks
    }

    /// Whether the recording tells files apart.
    pub fn has_files(self) -> bool {
        self.has_files
    }

    /// The names of all formats, separated by commas.
    pub fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }
}

/// Formats are told apart by their names.
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

/// Makes reads of a recording's lines or records.
///
/// The caller guarantees that `input` is the same each time, from its beginning on, and that it does
/// not call again after an error or the end. The decoder takes no more than it needs for the next read
/// of at least one byte, so that the place of an error is that of the last line or record begun.
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
    /// The recording in the file `path`, in blocks of `block_bytes`, which is at least 1.
    ///
    /// # Errors
    /// [`TraceError::Open`]: the file cannot be opened or read.
    pub fn open(path: &Path, format: Format, block_bytes: u64) -> Result<Self, TraceError> {
        let file = File::open(path);
        let file = file.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        Trace::of(file, path, format, block_bytes)
    }

    /// The recording that `bytes` are; errors call it `path`.
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

    /// The line or record begun last, whether it was a read or not.
    pub fn place(&self) -> Place {
        (self.format.place)(self.input.taken())
    }

    /// That the read given last cannot be, because of `fault`.
    pub fn malformed(&mut self, fault: Fault) -> TraceError {
        self.input.error(fault.into(), &self.path, self.place())
    }

    /// That it has more than `most` reads.
    pub(crate) fn too_long(&self, most: u64) -> TraceError {
        TraceError::TooLong { path: self.path.clone(), most }
    }

    /// What is read, in order; it takes 16 bytes for each read, and neighbours that are read one after another are one. There
    /// are 2^28 at most, which take 4 GiB.
    ///
    /// # Errors
    /// As for the iterator, and if there are more.
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

/// Most bytes of a file or a device: Linux counts them with a sign.
const END_BYTES_MAX: u64 = 1 << 63;
/// Reads that are held at a time.
const READS_MAX: usize = 1 << 28;
/// Most bytes of one read: what one call of Linux may read (`MAX_RW_COUNT`), rounded up to 2 GiB.
const READ_BYTES_MAX: u64 = 2 << 30;

/// Whether these may be the bytes of one read.
fn check_read(offset_bytes: u64, length_bytes: u64) -> Result<(), Fault> {
    if length_bytes > READ_BYTES_MAX {
        return Err(Fault::LongRead { length_bytes, bytes_max: READ_BYTES_MAX });
    }
    end_of(offset_bytes, length_bytes).map(|_| ()).ok_or(Fault::Beyond)
}

/// Where a range ends; `None` if that is beyond the last byte that Linux can name.
fn end_of(offset_bytes: u64, length_bytes: u64) -> Option<u64> {
    offset_bytes.checked_add(length_bytes).filter(|&end| end <= END_BYTES_MAX)
}

/// The first block and the number of blocks that hold bytes of a range; `None` if it ends beyond byte 2^63.
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
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "strace".parse::<Format>().expect_err("of replay alone");
        assert_eq!(error, "only `foretell sim replay --format strace` reads strace");
        let error = "csv".parse::<Format>().expect_err("unknown");
        assert_eq!(
            error,
            r#"unknown format "csv"; known are blocks, vscsi, oracle-general, foretell"#
        );
    }
}
