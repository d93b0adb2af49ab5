//! Why a recording cannot be read: the file and place, the fault, and the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::foreign::Foreign;

/// Characters of a recording that a message shows at most.
const SHOWN_CHARACTERS_MAX: usize = 40;

/// A place in a recording. Lines and records count from 1; 0 is before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a text.
    Line(u64),
    /// A record of a binary file.
    Record(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(number) => write!(f, "line {number}"),
            Place::Record(number) => write!(f, "record {number}"),
        }
    }
}

/// What is wrong with a line or record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A word is no number.
    #[error("{found} is not {wanted}; is the file of another format?")]
    Number {
        /// The word, quoted and shortened.
        found: String,
        /// Describes the right value.
        wanted: &'static str,
    },
    /// A line has the wrong number of fields.
    #[error("{found} fields, not the {} of `{}`", wanted.len(), wanted.join(" "))]
    Fields {
        /// The number of fields.
        found: usize,
        /// The fields of a line, by name.
        wanted: &'static [&'static str],
    },
    /// The first line is not the header of the format.
    #[error("{found} is not `{wanted}`; is the file of another format?")]
    Header {
        /// The line, quoted and shortened.
        found: String,
        /// The header.
        wanted: &'static str,
    },
    /// A record of a binary file is impossible.
    #[error("not {wanted}; is the file of another format?")]
    Record {
        /// Describes a right record.
        wanted: &'static str,
    },
    /// A line is longer than any line of a recording.
    #[error("longer than {bytes_max} bytes; is the file of another format?")]
    LongLine {
        /// Bytes of the longest line.
        bytes_max: u64,
    },
    /// The file ends within a record.
    #[error("cut off after {found_bytes} of {record_bytes} bytes; get the file again")]
    CutOff {
        /// Bytes that were found.
        found_bytes: usize,
        /// Bytes of a record.
        record_bytes: usize,
    },
    /// The last line does not end with a newline.
    #[error(
        "the last line has no end: the file is cut off; get it again, or end the line if it is whole"
    )]
    NoLineEnd,
    /// A later record has another version than the first.
    #[error("not a vscsi record of version {version} as before; the file is damaged")]
    OtherVersion {
        /// The version of the earlier records.
        version: u8,
    },
    /// The file is of another kind.
    #[error("{}", in_words(.0))]
    Foreign(Foreign),
    /// No line of the file is a line of strace.
    #[error(
        "no line is a call with a time; is the file of another --format? (record with `strace -f -ttt -T -y -o FILE PROGRAM`)"
    )]
    NotStrace,
    /// A call of strace whose line does not say when it began.
    #[error("a call without its time in seconds since 1970; record with the option -ttt of strace")]
    NoTime,
    /// A line of strace has an earlier time than the one before.
    #[error(
        "time runs backwards by {} s; sort the lines by time: `LC_ALL=C sort -s -n -k {column},{column} FILE` \
         (files of `strace -ff`: `strace-log-merge`)",
        *back_ns as f64 / 1e9
    )]
    Backwards {
        /// By how many nanoseconds.
        back_ns: u64,
        /// Which word of the line is the time; the first is 1.
        column: u8,
    },
    /// A line is none of DXT's text.
    #[error(
        "{found} is no line of DXT; make the text with `scripts/dxt-text LOG` or darshan-dxt-parser"
    )]
    NotDxt {
        /// The line, quoted and shortened.
        found: String,
    },
    /// Darshan's text contains no DXT.
    #[error(
        "no DXT in it: run the program with DXT_ENABLE_IO_TRACE=1 (if the parser said that data is incomplete: \
         darshan-dxt-parser --show-incomplete)"
    )]
    NoDxt,
    /// The text is the output of darshan-parser: counters only.
    #[error(
        "the text of darshan-parser, which has no single reads; run darshan-dxt-parser on the log"
    )]
    OfDarshanParser,
    /// DXT's text has a read before the first name of a file.
    #[error("a read before any file's name; the text is cut off at its beginning")]
    NoFile,
    /// DXT's text has a read that ends before it begins.
    #[error("a read that ends before it begins; the file is damaged")]
    EndsBefore,
    /// A read ends beyond the last byte that a file or device can have.
    #[error("a read that ends beyond byte 2^63; the file is damaged, or its blocks are smaller")]
    Beyond,
    /// A read is longer than one call can read.
    #[error("a read of {length_bytes} bytes; one read has at most {bytes_max}")]
    LongRead {
        /// Its length.
        length_bytes: u64,
        /// The longest possible read.
        bytes_max: u64,
    },
}

impl Fault {
    /// Whether the file may be of another kind, which would explain this fault.
    pub(super) fn is_of_other_kinds(&self) -> bool {
        use Fault::{
            CutOff, Fields, Header, LongLine, NoTime, NotDxt, NotStrace, Number, OtherVersion,
            Record,
        };
        matches!(
            self,
            CutOff { .. }
                | Fields { .. }
                | Header { .. }
                | LongLine { .. }
                | NoTime
                | NotDxt { .. }
                | NotStrace
                | Number { .. }
                | OtherVersion { .. }
                | Record { .. }
        )
    }
}

fn in_words(Foreign { what, way_out }: &Foreign) -> String {
    format!("{what}: {way_out}")
}

/// Why a recording cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be opened, or its beginning cannot be read.
    #[error("{}: {source}", path.display())]
    Open {
        /// The recording.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{}: is empty", path.display())]
    Empty {
        /// The recording.
        path: PathBuf,
    },
    /// The recording has more reads than are held at once.
    #[error("{}: has more than {most} reads; take a part of it", path.display())]
    TooLong {
        /// The recording.
        path: PathBuf,
        /// The limit.
        most: u64,
    },
    /// Reading failed after the beginning.
    #[error("{}: after {after}: {source}", path.display())]
    Read {
        /// The recording.
        path: PathBuf,
        /// The last line or record that was read.
        after: Place,
        /// The system's error.
        source: io::Error,
    },
    /// The file is of another kind.
    #[error("{}: {}", path.display(), in_words(foreign))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The kind, and the remedy.
        foreign: Foreign,
    },
    /// A compressed file is damaged or ends too soon.
    #[error("{}: after {after}: the {with} data is damaged or cut off ({source}); get the file again", path.display())]
    Compression {
        /// The recording.
        path: PathBuf,
        /// The compression.
        with: &'static str,
        /// The last line or record that was read.
        after: Place,
        /// The decompressor's error.
        source: io::Error,
    },
    /// The content does not match the format.
    #[error("{}: {place}: {fault}", path.display())]
    Malformed {
        /// The recording.
        path: PathBuf,
        /// The place of the fault.
        place: Place,
        /// The fault.
        fault: Fault,
    },
}

impl TraceError {
    /// Whether the file may be of another format than the one that was named.
    pub fn may_be_of_another_format(&self) -> bool {
        matches!(self, TraceError::Malformed { fault, .. } if fault.is_of_other_kinds())
    }
}

/// `text` in quotes: on one line, and shortened.
pub(super) fn quoted(text: &[u8]) -> String {
    let escaped: String =
        String::from_utf8_lossy(text).chars().flat_map(char::escape_debug).collect();
    match escaped.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("\"{}…\"", &escaped[..end]),
        None => format!("\"{escaped}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_stays_on_a_short_line() {
        assert_eq!(quoted(b"-5"), r#""-5""#);
        assert_eq!(quoted(b"a\nb\0\x1b[2J"), r#""a\nb\0\u{1b}[2J""#);
        assert_eq!(quoted(&[b'x'; 500]).chars().count(), SHOWN_CHARACTERS_MAX + 3);
        assert_eq!(quoted(&[1; 500]).chars().count(), SHOWN_CHARACTERS_MAX + 3);
        assert_eq!(quoted(&[0xff; 3]), "\"\u{fffd}\u{fffd}\u{fffd}\"");
    }
}
