//! `blocks`: one block id a line, and nothing else.
//!
//! The traces of the LIRS paper (Jiang and Zhang, SIGMETRICS 2002) are published in this form. An id is a whole
//! number from 0 to 2^63−1; blank lines are skipped. The format has no times and no sizes: all reads are at
//! time 0, and each id is a block of file 0, whatever the block size.

use foretell_policy::{FileId, Nanos, ReaderId};

use super::error::{Fault, Place, quoted};
use super::foreign::{self, Foreign};
use super::input::{Input, Stop, number};
use super::{Decoder, Format, TraceRead};

/// Describes an id in messages.
const BLOCK_ID: &str = "a block id (a whole number from 0 to 2^63-1)";

impl Format {
    /// See `sim/src/trace/blocks.rs`.
    pub const BLOCKS: Format = Format {
        name: "blocks",
        about: "one block id a line",
        place: Place::Line,
        has_own_blocks: true,
        has_files: false,
        decoder: |_| Box::new(Blocks),
        is_of: foreign::is_block_ids,
        foreign: Foreign { what: "block ids", way_out: "--format blocks reads them" },
        examples: || vec![b"3\n1\n3\n".to_vec()],
    };
}

/// See the [module](self).
struct Blocks;

impl Decoder for Blocks {
    fn next_read(&mut self, input: &mut Input) -> Result<Option<TraceRead>, Stop> {
        while let Some(text) = input.line()? {
            if text.is_empty() {
                continue;
            }
            let first_block = number(text, BLOCK_ID)?;
            if first_block > i64::MAX as u64 {
                return Err(Fault::Number { found: quoted(text), wanted: BLOCK_ID }.into());
            }
            let (time, reader, file) = (Nanos::ZERO, ReaderId(0), FileId(0));
            return Ok(Some(TraceRead { time, reader, file, first_block, blocks: 1 }));
        }
        Ok(None)
    }
}
