//! Where data comes from: local files, object stores, memory.
//!
//! A back end is two small traits. [`Backend::open`] finds a file and says which version of it there is;
//! [`Object::start`] begins a read of that version. Sizes of requests, how many there are at once, and in
//! what order, are the engine's business.
//!
//! Duties. The caller
//! * asks for ranges within the size that `open` told, never empty;
//! * does not wait for one request before it starts another, but for a bounded number.
//!
//! The back end
//! * does not block in `start` for longer than it takes to hand the request on;
//! * [fills](Request::fill) the request and [completes](Request::complete) it, from whatever thread; one that
//!   is dropped instead fails as [`Lost`](BackendError::Lost);
//! * never completes one as done with bytes of another version;
//! * says [`Busy`](BackendError::Busy) for what should be asked less often, so that it is.
//!
//! What there is besides to open is told by [`Backend::find`] and [`Backend::list`], if a store knows.
//!
//! A new one passes [`conformance`].

pub mod beneath;
mod blocking;
pub mod conformance;
mod direct;
mod files;
pub mod index;
pub mod local;
pub mod memory;
mod names;
#[cfg(feature = "object")]
pub mod object;
mod uring;
mod waiting;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::StatVfs;
use rustix::io::Errno;

pub use crate::error::BackendError;
pub use names::{Entry, FileInfo, Found, LeftOut, Listing, Whole};

/// A store of files: a folder, a bucket.
pub trait Backend: Send + Sync + 'static {
    /// Finds the file at `path`, and waits for the answer.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] where there is no file, and what else the store says.
    fn open(&self, path: &str) -> Result<Opened, BackendError>;

    /// Opens the version of the file at `path` that [`find`](Backend::find) or a listing has told of, without asking the
    /// store once more if it need not be.
    ///
    /// # Errors
    /// As `open`. That the version is no longer there may be noticed only by who reads.
    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        let _ = file;
        self.open(path)
    }

    /// What there is at `path`, and waits for the answer; the store itself, at "", is a folder.
    ///
    /// # Errors
    /// As `open`.
    fn find(&self, path: &str) -> Result<Found, BackendError> {
        if path.is_empty() {
            return Ok(Found::Folder);
        }
        let opened = self.open(path)?;
        let file = FileInfo { size_bytes: opened.size_bytes, modified: None, tag: None };
        Ok(Found::File(file))
    }

    /// What the folder at `path` has; "" is the store itself.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] where there is no folder, `ENOTSUP` where a store cannot list, and what else it says.
    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        let _ = path;
        Err(cannot_list())
    }

    /// Where the link leads of which [`find`](Backend::find) or a listing has told, as it is written there.
    ///
    /// # Errors
    /// [`BackendError::Changed`] if it is another one now, and what else the store says.
    fn read_link(&self, path: &str, link: &FileInfo) -> Result<PathBuf, BackendError> {
        let _ = (path, link);
        Err(BackendError::NotFound)
    }

    /// How large it is, and how much room there is; `None` of a store that does not say.
    ///
    /// # Errors
    /// What the store says.
    fn space(&self) -> Result<Option<StatVfs>, BackendError> {
        Ok(None)
    }

    /// Whether listings say of each file what [`find`](Backend::find) does. If not, files may be [`Found::Unasked`].
    fn lists_all_of_files(&self) -> bool {
        true
    }

    /// Requests ahead of programs that it can make use of at once.
    fn depth(&self) -> usize;

    /// The same for the blocks that are [near](Object::is_near), which count as another device; `None` if there never are
    /// any.
    fn near_depth(&self) -> Option<usize> {
        None
    }
}

/// Of a store that can only be asked for what one knows.
pub(crate) fn cannot_list() -> BackendError {
    let message = "this store cannot tell what it has".into();
    BackendError::Other { errno: Some(Errno::NOTSUP.raw_os_error()), message }
}

/// What [`Backend::open`] found.
#[derive(Clone)]
pub struct Opened {
    /// What tells this version of the file from others: the same bytes if it is the same.
    pub version: Arc<[u8]>,
    /// Its size.
    pub size_bytes: u64,
    /// What reads it.
    pub object: Arc<dyn Object>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

/// One version of a file.
pub trait Object: Send + Sync + 'static {
    /// Begins a read. See the [module](self) for what is owed.
    fn start(self: Arc<Self>, request: Request);

    /// Whether the block at `offset_bytes` will come from a place that is nearer than where the rest comes from. It is asked
    /// often, and under a lock; it may be wrong at times.
    fn is_near(&self, offset_bytes: u64) -> bool {
        let _ = offset_bytes;
        false
    }
}

/// A piece of memory that a request fills: nobody else's until the request has ended.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
}

// SAFETY: the memory is the request's alone until it ends, whichever thread that happens in.
unsafe impl Send for Part {}

type Done = Box<dyn FnOnce(Result<(), BackendError>) + Send>;

/// A read of adjacent bytes into pieces of memory.
#[must_use = "dropped, it fails"]
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
    /// Each part is valid for writes until `done` is called, and used by nobody else.
    pub(crate) unsafe fn new(
        offset_bytes: u64,
        is_demand: bool,
        parts: Vec<Part>,
        done: Done,
    ) -> Self {
        let length = parts.iter().map(|part| part.length).sum();
        Request { offset_bytes, length, is_demand, parts, filled: 0, done: Some(done) }
    }

    /// Its first byte in the file.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether a program waits for it.
    pub fn is_demand(&self) -> bool {
        self.is_demand
    }

    /// Bytes that have been filled in.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The memory, as it lies, once more.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let parts = self.parts.iter();
        parts.map(|part| Part { start: part.start, length: part.length }).collect()
    }

    /// Begins anew: nothing is filled in.
    pub fn restart(&mut self) {
        self.filled = 0;
    }

    /// Takes the next bytes; says how many, which is fewer if they are more than there is room for.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let (mut rest, mut skip) = (bytes, self.filled);
        for part in &self.parts {
            if skip >= part.length {
                skip -= part.length;
                continue;
            }
            let count = rest.len().min(part.length - skip);
            // SAFETY: within the part, which is this request's until it ends; `bytes` is not, since it can be
            // seen from elsewhere.
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

    /// The memory that is left to be filled, as it lies, for calls that read into several pieces. What lies
    /// there is initialised.
    pub fn unfilled(&mut self) -> Vec<&mut [u8]> {
        let mut skip = self.filled;
        let mut left = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            let from = skip.min(part.length);
            skip -= from;
            if from < part.length {
                // SAFETY: the part is this request's until it ends, the borrow ends before, and parts do not
                // overlap. The memory was zero when it was mapped or allocated.
                left.push(unsafe {
                    std::slice::from_raw_parts_mut(part.start.add(from), part.length - from)
                });
            }
        }
        left
    }

    /// The next `count` bytes were written into what [`unfilled`](Request::unfilled) gave.
    ///
    /// # Panics
    /// If that is more than there were.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.length - self.filled, "more than was asked for");
        self.filled += count;
    }

    /// Ends it. All bytes must have been filled in if it is to be a success; if they are not, the file was
    /// shorter than it was when it was opened, and it fails as [`Changed`](BackendError::Changed).
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
