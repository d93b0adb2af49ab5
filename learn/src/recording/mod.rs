//! Recordings of runs: every touch of a name, every read and every touched part of a mapped file, with time, process and
//! duration.
//!
//! | module | what it decides |
//! |---|---|
//! | `mod.rs` | what an event is |
//! | [`encoder`] | how events become bytes, in chunks |
//! | [`reader`] | how far bytes can be trusted, and which events they are |
//! | [`replay`] | what a run of the recording tells the next one |
//!
//! ```text
//! file   = "ftrecord" version:u32 chunk*
//! chunk  = "chnk" length:u32 crc:u32 payload
//! payload = (tag ...)*
//! ```
//!
//! The fixed numbers are little-endian, and the CRC-32 is of the payload. Events refer to what came before them, also in
//! earlier chunks, so a recording is read from its beginning. It is valid up to the last whole chunk: a writer that is killed,
//! or a disk that is full, costs what comes behind that. The last event of a run that has ended is [`What::Close`]; a recording
//! without it was stopped early. The first chunk begins with the [`Meta`], and has nothing else.
//!
//! Numbers have 7 bits a byte, the least ones first. Times are in ticks of [`TICK_NS`], and count from the end of the event
//! before. A read has some 5 to 12 bytes: its process, file, offset and length are left out where they follow from the read
//! before.
//!
//! Only what the program did is an event. What the kernel read ahead by itself is none, and neither is what foretell
//! prefetched.

pub mod encoder;
pub mod reader;
pub mod replay;

use std::sync::Arc;

use crate::steps::Acts;

/// What a recording begins with.
pub const MAGIC: &[u8; 8] = b"ftrecord";

/// Raised with every change that an older version would misread. 2 has [`What::Named`].
pub const VERSION: u32 = 2;

/// The oldest version that is read.
pub const VERSION_MIN: u32 = 1;

/// Bytes before the first chunk.
pub const HEADER_BYTES: usize = 12;

/// What a chunk begins with, and the bytes of its header.
const CHUNK_MAGIC: &[u8; 4] = b"chnk";
const CHUNK_HEADER_BYTES: usize = 12;

/// Payload of a chunk. The encoder closes a chunk at [`encoder::CHUNK_BYTES`]; one event is far smaller than the rest.
const CHUNK_MAX_BYTES: usize = 1 << 20;

/// Paths of a recording. Touches of further ones are lost, and of those beyond [`PATHS_MAX_BYTES`] in all.
pub const PATHS_MAX: usize = 1 << 20;
/// See [`PATHS_MAX`].
pub const PATHS_MAX_BYTES: usize = 128 << 20;

/// Bytes of a path or a name: Linux's `PATH_MAX`.
const TEXT_MAX_BYTES: usize = 4096;

/// Words of the command that are kept.
const WORDS_MAX: usize = 64;

/// Nanoseconds of a tick. A read of memory takes several ticks, and a pause of a millisecond two bytes.
pub const TICK_NS: u64 = 100;

/// A path: its place among the paths of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// What a recording is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The first words of the command line.
    pub command: Vec<Arc<[u8]>>,
    /// The folder in which it was run.
    pub folder: Arc<[u8]>,
    /// When it began, in seconds since 1970.
    pub began_s: u64,
}

/// Something that a process did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it began, in nanoseconds since the start of the run.
    pub at_ns: u64,
    /// How long it took, in nanoseconds; 0 if that is not known.
    pub took_ns: u64,
    /// The process's number.
    pub process: u32,
    /// What it did.
    pub what: What,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The process begins a program.
    Begins {
        /// The process that has created it; 0 if that is not known.
        parent: u32,
        /// The program's name.
        name: Arc<[u8]>,
    },
    /// The process has ended.
    Ends,
    /// It named a path.
    Touch {
        /// The path.
        path: PathId,
        /// What it did with it.
        acts: Acts,
    },
    /// A command line of the run, other than its own, names this path or a folder above it. Before the path is first touched.
    Named {
        /// The path.
        path: PathId,
    },
    /// It read a part of a file, or touched it where it is mapped.
    Read {
        /// The file.
        file: PathId,
        /// The first byte.
        offset_bytes: u64,
        /// The number of bytes; 0 for a read at the file's end.
        length_bytes: u64,
        /// How that is known.
        origin: Origin,
    },
    /// The run has ended. Of `process` 0.
    Close {
        /// Events that could not be recorded.
        lost: u64,
    },
}

/// How a read is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// From the program's call.
    Call,
    /// From page tables: the process has touched it where the file is mapped. The time is when that was seen.
    Pages,
    /// From the positions of open files of a program whose calls are not seen. The time is when that was seen.
    Outside,
}

impl Origin {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Call => "call",
            Origin::Pages => "page tables",
            Origin::Outside => "outside",
        }
    }
}

/// Whether this is the path of a file. Others stand for files whose opening was not seen.
pub fn is_named(path: &[u8]) -> bool {
    path.starts_with(b"/")
}

/// An absolute path without `.`, `..` and doubled slashes, as touches have it.
pub fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut plain: Vec<u8> = Vec::with_capacity(path.len());
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => plain.truncate(plain.iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
            name => {
                plain.push(b'/');
                plain.extend_from_slice(name);
            }
        }
    }
    if plain.is_empty() { b"/".to_vec() } else { plain }
}

/// The tags of events: the low 3 bits.
mod tag {
    pub(super) const PATH: u8 = 0;
    pub(super) const BEGINS: u8 = 1;
    pub(super) const ENDS: u8 = 2;
    pub(super) const TOUCH: u8 = 3;
    /// One for each [`Origin`](super::Origin), in order.
    pub(super) const READ: u8 = 4;
    /// The beginning or the end of the recording.
    pub(super) const EDGE: u8 = 7;
    pub(super) const KINDS: u8 = 7;

    /// The process is that of the event before.
    pub(super) const SAME_PROCESS: u8 = 8;
    /// The file is that of the read before.
    pub(super) const SAME_FILE: u8 = 16;
    /// The read begins where the last one of its file ended.
    pub(super) const GOES_ON: u8 = 32;
    /// It is as long as the read before.
    pub(super) const SAME_LENGTH: u8 = 64;
}

/// In place of the acts of a touch: the path is [named](What::Named).
const NAMED: u8 = 128;

/// What is known from earlier events, on both sides.
#[derive(Clone, Debug, Default)]
struct Context {
    /// The end of the last event, in ticks.
    ended: u64,
    process: u32,
    file: u32,
    length_bytes: u64,
    /// Where the last read of each path ended.
    ends: Vec<u64>,
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests;
