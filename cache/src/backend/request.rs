//! One read, as a back end gets it: where in the file, and the memory that it fills.

use std::fmt;
use std::sync::mpsc::{Receiver, channel};

use crate::error::BackendError;

/// A piece of memory that a request fills. Nothing else uses it until the request has ended.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

// SAFETY: only the request uses the memory until it ends, in whichever thread that happens.
unsafe impl Send for Part {}

type Done = Box<dyn FnOnce(Result<(), BackendError>) + Send>;

/// The memory of a request that has ended, and how it ended.
pub(super) type Ended = (Vec<u8>, Result<(), BackendError>);

/// A read of adjacent bytes into pieces of memory.
#[must_use = "a request that is dropped fails"]
pub struct Request {
    offset_bytes: u64,
    length: usize,
    is_demand: bool,
    parts: Vec<Part>,
    filled: usize,
    done: Option<Done>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = self.offset_bytes..self.offset_bytes + self.length as u64;
        f.debug_struct("Request").field("range", &range).finish_non_exhaustive()
    }
}

impl Request {
    /// # Safety
    /// Each part is valid for writes, and nothing else uses it, until `done` is called.
    pub(crate) unsafe fn new(
        offset_bytes: u64,
        is_demand: bool,
        parts: Vec<Part>,
        done: Done,
    ) -> Self {
        let length = parts.iter().map(|part| part.length).sum();
        Request { offset_bytes, length, is_demand, parts, filled: 0, done: Some(done) }
    }

    /// A request that fills `bytes` in pieces of `piece` bytes, and where they arrive when it has ended.
    pub(super) fn into_memory(
        mut bytes: Vec<u8>,
        offset_bytes: u64,
        is_demand: bool,
        piece: usize,
    ) -> (Self, Receiver<Ended>) {
        let (sender, receiver) = channel();
        let (start, length) = (bytes.as_mut_ptr(), bytes.len());
        let parts = (0..length)
            .step_by(piece)
            .map(|from| Part { start: start.wrapping_add(from), length: piece.min(length - from) });
        let parts = parts.collect();
        let done = Box::new(move |result| {
            let _ = sender.send((bytes, result)); // The receiver may have gone.
        });
        // SAFETY: `done` owns the memory, and nothing else uses it until `done` is called.
        let request = unsafe { Request::new(offset_bytes, is_demand, parts, done) };
        (request, receiver)
    }

    /// Offset of its first byte in the file.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Number of bytes to read.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether a program waits for it; otherwise it is a prefetch.
    pub fn is_demand(&self) -> bool {
        self.is_demand
    }

    /// Number of bytes that have been filled in.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The pieces of memory.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let parts = self.parts.iter();
        parts.map(|part| Part { start: part.start, length: part.length }).collect()
    }

    /// Begins anew, with no bytes filled in.
    pub fn restart(&mut self) {
        self.filled = 0;
    }

    /// Fills in the next bytes. Returns how many: fewer than given if there is no room for more.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let (mut rest, mut skip) = (bytes, self.filled);
        for part in &self.parts {
            if skip >= part.length {
                skip -= part.length;
                continue;
            }
            let count = rest.len().min(part.length - skip);
            // SAFETY: the target lies within the part, which only this request uses until it ends, so `bytes` does not
            // overlap it.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), part.start.add(skip), count) };
            (rest, skip) = (&rest[count..], 0);
            if rest.is_empty() {
                break;
            }
        }
        let count = bytes.len() - rest.len();
        self.filled += count;
        count
    }

    /// The memory that is still to be filled, piece by piece, for vectored reads. It is initialised.
    pub fn unfilled(&mut self) -> Vec<&mut [u8]> {
        let mut skip = self.filled;
        let mut left = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            let from = skip.min(part.length);
            skip -= from;
            if from < part.length {
                // SAFETY: only this request uses the part until it ends, the borrow ends before that, and parts do not overlap.
                // The memory was zero when it was mapped or allocated.
                left.push(unsafe {
                    std::slice::from_raw_parts_mut(part.start.add(from), part.length - from)
                });
            }
        }
        left
    }

    /// Notes that the next `count` bytes have been written to the [`unfilled`](Request::unfilled) memory.
    ///
    /// # Panics
    /// If there was less memory than that.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.length - self.filled, "more than was asked for");
        self.filled += count;
    }

    /// Ends the request. If `result` is `Ok` but bytes are missing, the file has become shorter since it was opened:
    /// the request fails as [`Changed`](BackendError::Changed).
    pub fn complete(mut self, result: Result<(), BackendError>) {
        self.end(result);
    }

    fn end(&mut self, result: Result<(), BackendError>) {
        if let Some(done) = self.done.take() {
            let is_short = self.filled < self.length;
            done(result.and(if is_short { Err(BackendError::Changed) } else { Ok(()) }));
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.end(Err(BackendError::Lost));
    }
}
