//! Opens of programs without the library, as a seccomp filter's guard sees them: the records, and the pipe that carries them.
//!
//! The guard is a process of the command's own (`foretell run --observe opens`). It writes a record for each open, and never
//! waits for the manager: a record that does not fit is lost and counted. A record is at most [`RECORD_MAX_BYTES`] long, which
//! a pipe takes whole or not at all.
//!
//! A record is a head of 16 bytes (length, kind, thread, microseconds slept, records lost before it) and an absolute path.
//!
//! What may fail: the pipe ends, or carries something else than records. Then nothing more is taken from it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

/// Longest record. 4 KiB is `PIPE_BUF`: a pipe takes so much whole or not at all.
pub const RECORD_MAX_BYTES: usize = 4096;

/// Bytes of the pipe, some ten thousand records. What the kernel allows to every user.
pub const PIPE_BYTES: usize = 1 << 20;

const HEAD_BYTES: usize = 16;

/// Bytes that are taken from the pipe at a time.
const TAKE_BYTES: usize = 64 << 10;

/// An open that a program is about to make. Whether it succeeds is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The thread.
    pub thread: u32,
    /// Whether only a folder is to be opened (`O_DIRECTORY`).
    pub is_folder: bool,
    /// How long the thread has slept since its open before.
    pub slept: Duration,
    /// What it opens, as an absolute path.
    pub path: &'a [u8],
}

/// Appends the record of an open to `record`. `lost` is the number of records lost since the one before. Returns whether it
/// fits.
pub fn encode(opened: &Opened<'_>, lost: u32, record: &mut Vec<u8>) -> bool {
    let bytes = HEAD_BYTES + opened.path.len();
    let Some(length) = u16::try_from(bytes).ok().filter(|_| bytes <= RECORD_MAX_BYTES) else {
        return false;
    };
    let slept_us = u32::try_from(opened.slept.as_micros()).unwrap_or(u32::MAX);
    record.extend_from_slice(&length.to_ne_bytes());
    record.extend_from_slice(&u16::from(opened.is_folder).to_ne_bytes());
    for word in [opened.thread, slept_us, lost] {
        record.extend_from_slice(&word.to_ne_bytes());
    }
    record.extend_from_slice(opened.path);
    true
}

/// The manager's end of the pipe.
#[derive(Debug)]
pub struct Opens {
    pipe: OwnedFd,
    is_over: bool,
    /// Bytes that are read and not taken: less than a record.
    bytes: Vec<u8>,
    lost: u64,
}

impl Opens {
    /// Takes over the reading end of a pipe whose reads do not wait.
    pub fn new(pipe: OwnedFd) -> Self {
        Opens { pipe, is_over: false, bytes: Vec::new(), lost: 0 }
    }

    /// Whether there will be no more records.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Records that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Passes the records of one read to `each`. Returns whether there may be more at once.
    pub(crate) fn take(&mut self, mut each: impl FnMut(Opened<'_>)) -> bool {
        if self.is_over {
            return false;
        }
        let kept = self.bytes.len();
        self.bytes.resize(kept + TAKE_BYTES, 0);
        let read = rustix::io::read(&self.pipe, &mut self.bytes[kept..]);
        self.is_over = match read {
            Ok(count) => count == 0,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
        };
        self.bytes.truncate(kept + read.unwrap_or(0));
        let mut at = 0;
        loop {
            match decode(&self.bytes[at..]) {
                Ok(Some((opened, lost, length))) => {
                    self.lost += u64::from(lost);
                    at += length;
                    each(opened);
                }
                Ok(None) => break,
                Err(_) => {
                    self.is_over = true;
                    break;
                }
            }
        }
        self.bytes.drain(..at);
        read == Ok(TAKE_BYTES) && !self.is_over
    }
}

impl AsFd for Opens {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// The first record, the number of those lost before it, and its length; `None` if it is not complete.
fn decode(bytes: &[u8]) -> io::Result<Option<(Opened<'_>, u32, usize)>> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = usize::from(half(0));
    let Some(path_bytes) = length.checked_sub(HEAD_BYTES).filter(|_| length <= RECORD_MAX_BYTES)
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let Some(path) = rest.get(..path_bytes) else { return Ok(None) };
    let slept = Duration::from_micros(word(8).into());
    let opened = Opened { thread: word(4), is_folder: half(2) == 1, slept, path };
    Ok(Some((opened, word(12), length)))
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn opened(path: &[u8]) -> Opened<'_> {
        Opened { thread: 7, is_folder: true, slept: Duration::from_micros(1234), path }
    }

    #[test]
    fn records_arrive_whole_and_in_order() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let mut opens = Opens::new(reader);
        let long = vec![b'x'; RECORD_MAX_BYTES - HEAD_BYTES];
        let paths: [&[u8]; 3] = [b"/a", b"", &long];
        let mut bytes = Vec::new();
        for path in paths {
            assert!(encode(&opened(path), 2, &mut bytes));
        }
        let mut found = Vec::new();
        // As if the pipe had given them in pieces.
        for piece in bytes.chunks(700) {
            rustix::io::write(&writer, piece).expect("there is room");
            let has_more = opens.take(|one| found.push((one.thread, one.slept, one.path.to_vec())));
            assert!(!has_more && !opens.is_over());
        }
        let expected = paths.map(|path| (7, Duration::from_micros(1234), path.to_vec()));
        assert_eq!(found, expected);
        assert_eq!(opens.lost(), 6);
        drop(writer);
        assert!(!opens.take(|_| ()) && opens.is_over());
    }

    #[test]
    fn what_is_too_long_is_no_record_and_garbage_ends_it() {
        assert!(!encode(&opened(&[b'x'; RECORD_MAX_BYTES]), 0, &mut Vec::new()));
        for garbage in [[0; 40], [1; 40], [0xff; 40]] {
            let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
            let mut opens = Opens::new(reader);
            rustix::io::write(&writer, &garbage).expect("there is room");
            let mut count = 0;
            opens.take(|_| count += 1);
            // One byte of each kind may look like a record that is not complete.
            assert!(count == 0 && (opens.is_over() || garbage[0] == 1), "{garbage:?}");
        }
    }
}
