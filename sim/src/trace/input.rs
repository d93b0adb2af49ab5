//! The bytes of a recording, decompressed if necessary, as lines or as records of fixed size.
//!
//! The first bytes show the compression, and the name does not matter, so that renamed files and pipes can be
//! read. They also show files that are no recordings (`foreign`).

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::error::{Fault, Place, TraceError};
use super::foreign::{self, PREFIX_BYTES};
use super::zstd::{self, Zstd};

/// The first bytes of a gzip file (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes that suffice to recognise a compression.
const MAGIC_BYTES_MAX: u64 = 4;
/// The byte order mark that a UTF-8 text may begin with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes of the longest line, without its end. A line of numbers is far shorter. The limit keeps a binary file
/// that is taken for a text from being read into memory as a whole.
const LINE_BYTES_MAX: u64 = 4096;

/// Bytes decompressed at most to verify the checksum at the end: some seconds of work.
const SUMMED_BYTES_MAX: u64 = 1 << 30;

/// Why there is no next line or record.
#[derive(Debug)]
pub(super) enum Stop {
    /// The bytes cannot be read.
    Io(io::Error),
    /// The bytes are malformed.
    Fault(Fault),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Io(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

/// See the [module](self).
pub(super) struct Input {
    bytes: Box<dyn BufRead>,
    /// The compression, by name.
    compression: Option<&'static str>,
    /// The first decompressed bytes.
    prefix: Vec<u8>,
    /// The name of the expected format.
    format: &'static str,
    /// Whether the prefix has yet to be checked.
    is_new: bool,
    line: Vec<u8>,
    line_bytes_max: u64,
    has_line_end: bool,
    taken: u64,
}

impl Input {
    /// Reads `bytes` as a recording of `format`.
    pub(super) fn new(bytes: impl Read + 'static, format: &'static str) -> io::Result<Self> {
        Input::with_lines(bytes, format, LINE_BYTES_MAX)
    }

    /// Like [`new`](Self::new), with lines of at most `line_bytes_max` bytes without their end.
    pub(super) fn with_lines(
        mut bytes: impl Read + 'static,
        format: &'static str,
        line_bytes_max: u64,
    ) -> io::Result<Self> {
        let mut magic = Vec::new();
        bytes.by_ref().take(MAGIC_BYTES_MAX).read_to_end(&mut magic)?;
        let is_zstd = magic == zstd::MAGIC;
        let is_gzip = magic.starts_with(&GZIP_MAGIC);
        let whole = BufReader::new(Cursor::new(magic).chain(bytes));
        let (mut plain, compression): (Box<dyn BufRead>, _) = match (is_gzip, is_zstd) {
            (true, _) => (Box::new(BufReader::new(MultiGzDecoder::new(whole))), Some("gzip")),
            (_, true) => (Box::new(BufReader::new(Zstd::new(whole))), Some("zstd")),
            _ => (Box::new(whole), None),
        };
        let mut prefix = Vec::new();
        // An error here is reported where the decoder reaches it.
        let read = plain.by_ref().take(PREFIX_BYTES as u64).read_to_end(&mut prefix);
        let bytes = Cursor::new(prefix.clone()).chain(Failing(read.err())).chain(plain);
        Ok(Input {
            bytes: Box::new(BufReader::new(bytes)),
            compression,
            prefix,
            format,
            is_new: true,
            line: Vec::new(),
            line_bytes_max,
            has_line_end: true,
            taken: 0,
        })
    }

    /// Refuses a file whose beginning shows that it is no recording of any kind.
    fn look(&mut self) -> Result<(), Fault> {
        match std::mem::take(&mut self.is_new) {
            true => foreign::refused(&self.prefix)
                .map_or(Ok(()), |foreign| Err(Fault::Foreign(foreign))),
            false => Ok(()),
        }
    }

    /// The user's error for `stop`, at `place`: the last line or record begun.
    ///
    /// Malformed data may come from damage that decompression has not noticed yet, since the checksum is at the
    /// end. So the rest is decompressed before the format is blamed.
    pub(super) fn error(&mut self, stop: Stop, path: &Path, place: Place) -> TraceError {
        let path = path.to_owned();
        let stop = match stop {
            Stop::Fault(Fault::Foreign(foreign)) => return TraceError::Foreign { path, foreign },
            Stop::Fault(fault) if self.compression.is_some() => {
                let mut rest = self.bytes.by_ref().take(SUMMED_BYTES_MAX);
                io::copy(&mut rest, &mut io::sink()).err().map_or(Stop::Fault(fault), Stop::Io)
            }
            stop => stop,
        };
        match (stop, self.compression) {
            (Stop::Fault(_), _) if self.taken == 0 => TraceError::Empty { path },
            (Stop::Fault(fault), _) => {
                let other = || foreign::recognised(&self.prefix, self.format);
                match Some(()).filter(|()| fault.is_of_other_kinds()).and_then(|()| other()) {
                    Some(foreign) => TraceError::Foreign { path, foreign },
                    None => TraceError::Malformed { path, place, fault },
                }
            }
            (Stop::Io(source), Some(with)) => {
                TraceError::Compression { path, with, after: place, source }
            }
            (Stop::Io(source), None) => TraceError::Read { path, after: place, source },
        }
    }

    /// Lines or records begun so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The next line, without its end and surrounding white space; `None` after the last.
    pub(super) fn line(&mut self) -> Result<Option<&[u8]>, Stop> {
        self.look()?;
        self.line.clear();
        let limit = self.line_bytes_max + 1;
        let read = self.bytes.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        self.taken += 1;
        if self.taken == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
        if read as u64 == limit && self.line.last() != Some(&b'\n') {
            return Err(Fault::LongLine { bytes_max: self.line_bytes_max }.into());
        }
        self.has_line_end = self.line.last() == Some(&b'\n');
        Ok(Some(self.line.trim_ascii()))
    }

    /// Whether the last line taken had an end. Only the last line of a file may lack it.
    pub(super) fn has_line_end(&self) -> bool {
        self.has_line_end
    }

    /// Refuses the line taken last if it has no end, since its last number may have lost digits.
    pub(super) fn check_line_end(&self) -> Result<(), Fault> {
        if self.has_line_end { Ok(()) } else { Err(Fault::NoLineEnd) }
    }

    /// Fills `record`; returns false at the end of the file.
    pub(super) fn record(&mut self, record: &mut [u8]) -> Result<bool, Stop> {
        self.look()?;
        match self.fill(record)? {
            0 => Ok(false),
            found_bytes => {
                self.taken += 1;
                whole(found_bytes, record.len())?;
                Ok(true)
            }
        }
    }

    /// Fills the rest of `record`, of which [`record`](Self::record) gave the first `had_bytes`.
    pub(super) fn rest(&mut self, record: &mut [u8], had_bytes: usize) -> Result<(), Stop> {
        let found_bytes = had_bytes + self.fill(&mut record[had_bytes..])?;
        Ok(whole(found_bytes, record.len())?)
    }

    /// Fills `buffer`, and returns the number of bytes; that is less than its length only at the end of the
    /// file.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.bytes.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

fn whole(found_bytes: usize, record_bytes: usize) -> Result<(), Fault> {
    let is_whole = found_bytes == record_bytes;
    is_whole.then_some(()).ok_or(Fault::CutOff { found_bytes, record_bytes })
}

/// A reader without bytes that fails once, if it holds an error.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Parses `text`, which must be digits only.
pub(super) fn number(text: &[u8], wanted: &'static str) -> Result<u64, Fault> {
    let digits = text.iter().all(u8::is_ascii_digit);
    let text_or_none = std::str::from_utf8(text).ok().filter(|_| digits);
    text_or_none
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Fault::Number { found: super::error::quoted(text), wanted })
}
