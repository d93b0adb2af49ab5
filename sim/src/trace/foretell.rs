//! `foretell`: this project's text format, one read a line.
//!
//! ```text
//! # foretell trace 1
//! # time_ns reader file offset_bytes length_bytes
//! 0 1 7 0 4096
//! 125000 1 7 4096 4096
//! ```
//!
//! The first line is exactly `# foretell trace 1`. After it, blank lines and lines that begin with `#` are
//! skipped. Each other line is one read: five whole numbers, separated by spaces or tabs.
//!
//! | field | meaning |
//! |---|---|
//! | `time_ns` | when the read began, in nanoseconds from any origin |
//! | `reader` | the program that read: any number, the same for the same program |
//! | `file` | the file that was read: any number, the same for the same file |
//! | `offset_bytes` | the first byte |
//! | `length_bytes` | the number of bytes, at most 2 GiB; a read of 0 bytes is skipped |
//!
//! The order of the lines is the order of the reads. Each line ends with a newline. If the last one does not,
//! the file is cut off, and is refused.

use foretell_policy::{FileId, Nanos, ReaderId};

use super::error::{Fault, Place, quoted};
use super::foreign::{Foreign, first_line};
use super::input::{Input, Stop, number};
use super::{Decoder, Format, TraceRead, check_read, touched};

/// The first line.
const HEADER: &str = "# foretell trace 1";
/// The fields of a line, in this order.
const FIELDS: [&str; 5] = ["time_ns", "reader", "file", "offset_bytes", "length_bytes"];
/// Describes each field in messages.
const FIELD_WANTED: [&str; 5] = [
    "a time_ns (a whole number from 0 on)",
    "a reader (a whole number from 0 on)",
    "a file (a whole number from 0 on)",
    "an offset_bytes (a whole number from 0 on)",
    "a length_bytes (a whole number from 0 on)",
];

impl Format {
    /// See `sim/src/trace/foretell.rs`.
    pub const FORETELL: Format = Format {
        name: "foretell",
        about: "the line `# foretell trace 1`, then one read a line, in five whole numbers:\n\
                time_ns reader file offset_bytes length_bytes. The lines are in the order of the\n\
                reads; times and readers are ignored here. Lines that begin with # are comments.",
        place: Place::Line,
        has_own_blocks: false,
        has_files: true,
        decoder: |block_bytes| Box::new(Foretell { block_bytes }),
        is_of: |prefix| first_line(prefix) == HEADER.as_bytes(),
        foreign: Foreign {
            what: "a recording of foretell's own",
            way_out: "--format foretell reads it",
        },
        examples: || {
            vec![format!("{HEADER}\n# A comment.\n0 1 7 0 4096\n9 1 7 4096 4096\n").into()]
        },
    };
}

/// See the [module](self).
struct Foretell {
    block_bytes: u64,
}

impl Decoder for Foretell {
    fn next_read(&mut self, input: &mut Input) -> Result<Option<TraceRead>, Stop> {
        if input.taken() == 0 {
            let first = input.line()?.unwrap_or_default();
            if first != HEADER.as_bytes() {
                return Err(Fault::Header { found: quoted(first), wanted: HEADER }.into());
            }
        }
        while let Some(line) = input.line()? {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let [time, reader, file, offset_bytes, length_bytes] = fields(line)?;
            input.check_line_end()?;
            check_read(offset_bytes, length_bytes)?;
            let touched = touched(offset_bytes, length_bytes, self.block_bytes);
            let (first_block, blocks) = touched.ok_or(Fault::Beyond)?;
            let (time, reader, file) = (Nanos(time), ReaderId(reader), FileId(file));
            if blocks > 0 {
                return Ok(Some(TraceRead { time, reader, file, first_block, blocks }));
            }
        }
        Ok(None)
    }
}

fn fields(line: &[u8]) -> Result<[u64; FIELDS.len()], Fault> {
    let words = || line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let found = words().count();
    if found != FIELDS.len() {
        return Err(Fault::Fields { found, wanted: &FIELDS });
    }
    let mut values = [0; FIELDS.len()];
    for ((value, word), wanted) in values.iter_mut().zip(words()).zip(FIELD_WANTED) {
        *value = number(word, wanted)?;
    }
    Ok(values)
}
