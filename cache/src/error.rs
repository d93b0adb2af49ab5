//! Errors of back ends, opens, reads, and of making a cache.

use std::sync::Arc;
use std::time::Duration;

/// Why a back end could not open or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// There is no such file.
    #[error("not found")]
    NotFound,
    /// These credentials do not allow the read.
    #[error("permission denied: {0}")]
    Denied(Arc<str>),
    /// The device is overloaded and asks for fewer requests (429, 503).
    #[error("the device is busy: {0}")]
    Busy(Arc<str>),
    /// The file is no longer the version that was opened, or has become shorter.
    #[error("changed since it was opened")]
    Changed,
    /// No answer in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The request was dropped without an answer.
    #[error("the request was given up")]
    Lost,
    /// Any other error, with its message.
    #[error("{message}")]
    Other {
        /// The error number, for an error of the operating system.
        errno: Option<i32>,
        /// What happened.
        message: Arc<str>,
    },
}

impl From<std::io::Error> for BackendError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => BackendError::NotFound,
            std::io::ErrorKind::PermissionDenied => BackendError::Denied(error.to_string().into()),
            _ => {
                let errno = error.raw_os_error();
                BackendError::Other { errno, message: error.to_string().into() }
            }
        }
    }
}

/// A file could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot open {path}: {cause}")]
pub struct OpenError {
    /// Its path within the store.
    pub path: Arc<str>,
    /// Why.
    pub cause: BackendError,
}

/// A read that a program waited for could not be served.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot read {path} at {offset_bytes}: {cause}")]
pub struct ReadError {
    /// The file's path within the store.
    pub path: Arc<str>,
    /// Where the block that could not be read begins.
    pub offset_bytes: u64,
    /// Why.
    pub cause: BackendError,
}

/// A cache could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Blocks are a power of two from 4 KiB to 16 MiB.
    #[error("a block of {0} bytes: it must be a power of two from 4096 to 16777216")]
    BlockBytes(usize),
    /// Not one block fits into the budget.
    #[error("a budget of {budget_bytes} bytes does not hold one block of {block_bytes}")]
    Budget {
        /// Bytes of memory.
        budget_bytes: u64,
        /// Bytes of a block.
        block_bytes: usize,
    },
    /// The memory could not be allocated.
    #[error("no {budget_bytes} bytes of memory: {cause}")]
    Memory {
        /// Bytes of memory.
        budget_bytes: u64,
        /// Why.
        cause: std::io::Error,
    },
}
