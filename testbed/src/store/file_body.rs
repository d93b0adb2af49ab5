//! A range of a file as a response body, read piece by piece as each is due.
//!
//! Data in the page cache is copied at once (`preadv2` with `RWF_NOWAIT`), which is cheaper than handing the read to
//! another thread. Other data is read by the runtime's threads for blocking work, so that a cold file does not hold up
//! other responses. Buffers are reused: a new one of this size would be a mapping of its own, with a page fault for
//! every 4 KiB.

use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};
use s3s::StdError;
use s3s::stream::{ByteStream, RemainingLength};
use tokio::task::JoinHandle;

/// Buffers kept for reuse.
const KEPT_MAX: usize = 64;

/// Bytes from the start of the range that the kernel is asked to read ahead.
const AHEAD_BYTES: u64 = 4 << 20;

/// Buffers of one size.
pub(crate) struct Buffers {
    bytes: usize,
    kept: Mutex<Vec<Box<[u8]>>>,
}

impl Buffers {
    /// Buffers of `bytes` each.
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Buffers { bytes, kept: Mutex::default() })
    }

    fn take(self: &Arc<Self>, used: usize) -> Buffer {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = kept.unwrap_or_else(|| vec![0; self.bytes].into_boxed_slice());
        Buffer { bytes, used, home: Arc::clone(self) }
    }
}

/// A buffer that returns to its pool when it is dropped.
struct Buffer {
    bytes: Box<[u8]>,
    used: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = self.home.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// See the [module](self).
pub(crate) struct FileBody {
    file: Arc<File>,
    left: Range<u64>,
    buffers: Arc<Buffers>,
    reading: Option<JoinHandle<io::Result<Buffer>>>,
}

impl FileBody {
    /// The bytes `range` of `file`, in pieces of the size of `buffers`. The range must not reach beyond the file's end.
    pub(crate) fn new(file: File, range: Range<u64>, buffers: Arc<Buffers>) -> Self {
        let ahead = (range.end - range.start).min(AHEAD_BYTES);
        // Failure is harmless. A length of zero would mean the whole file.
        if let Some(ahead) = std::num::NonZeroU64::new(ahead) {
            let _ = fadvise(&file, range.start, Some(ahead), Advice::WillNeed);
        }
        FileBody { file: Arc::new(file), left: range, buffers, reading: None }
    }

    fn give(&mut self, buffer: Buffer) -> Poll<Option<Result<Bytes, StdError>>> {
        self.left.start += buffer.used as u64;
        Poll::Ready(Some(Ok(Bytes::from_owner(buffer))))
    }
}

/// Fills `buffer` from `done` on. A file that has become shorter is an error, as the head of the answer has given the
/// length.
fn read_rest(file: &File, mut buffer: Buffer, done: usize, at: u64) -> io::Result<Buffer> {
    let used = buffer.used;
    file.read_exact_at(&mut buffer.bytes[done..used], at + done as u64)?;
    Ok(buffer)
}

impl Stream for FileBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(reading) = &mut this.reading {
            let read = std::task::ready!(Pin::new(reading).poll(context));
            this.reading = None;
            return match read.map_err(io::Error::other).flatten() {
                Ok(buffer) => this.give(buffer),
                Err(error) => Poll::Ready(Some(Err(error.into()))),
            };
        }
        let at = this.left.start;
        let length = (this.left.end - at).min(this.buffers.bytes as u64) as usize;
        if length == 0 {
            return Poll::Ready(None);
        }
        let mut buffer = this.buffers.take(length);
        let parts = &mut [IoSliceMut::new(&mut buffer.bytes[..length])];
        let done = match preadv2(&*this.file, parts, at, ReadWriteFlags::NOWAIT) {
            Ok(done) if done == length => return this.give(buffer),
            Ok(0) => {
                return Poll::Ready(Some(Err(io::Error::from(ErrorKind::UnexpectedEof).into())));
            }
            Ok(done) => done,
            // Not in memory, or the file system cannot tell.
            Err(_) => 0,
        };
        let file = Arc::clone(&this.file);
        let read = move || read_rest(&file, buffer, done, at);
        this.reading = Some(tokio::task::spawn_blocking(read));
        Pin::new(this).poll_next(context)
    }
}

impl ByteStream for FileBody {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact((self.left.end - self.left.start) as usize)
    }
}
