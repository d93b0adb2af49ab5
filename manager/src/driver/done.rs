//! The way back from device threads to the manager's loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foretell_policy::FetchId;
use rustix::event::{EventfdFlags, eventfd};

use super::file::{Advised, Found};

/// Jobs done that are worth waking the session for, whether or not anybody waits for them.
const BATCH: usize = 64;

/// What came of a job of a device thread.
#[derive(Debug)]
pub(crate) enum Done {
    /// A name was looked up.
    Found { fetch: FetchId, found: std::io::Result<Found> },
    /// The kernel was asked for a range.
    Advised { fetch: FetchId, advised: Advised },
    /// The job's thread failed, or no thread could be started.
    Lost { fetch: FetchId },
}

/// A queue with a descriptor that is readable while something is in it.
#[derive(Debug)]
pub(crate) struct DoneQueue {
    waiting: Mutex<Vec<Done>>,
    bell: OwnedFd,
}

impl DoneQueue {
    pub(crate) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(DoneQueue { waiting: Mutex::default(), bell })
    }

    /// Adds `done`, and rings if that is `urgent` or a batch has come together. Whoever leaves one that
    /// is not urgent behind will push another.
    pub(crate) fn push(&self, done: Done, urgent: bool) {
        let mut waiting = self.lock();
        waiting.push(done);
        if urgent || waiting.len().is_multiple_of(BATCH) {
            drop(waiting);
            self.ring();
        }
    }

    /// Makes the loop look.
    pub(crate) fn ring(&self) {
        // It can only fail if the bell has been rung 2⁶⁴ times without being heard.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Silences the bell. To be called before looking at *anything* that may have rung it: what comes
    /// in later rings again.
    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }

    /// Whether nothing has come in.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Everything that has come in.
    pub(crate) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Done>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for DoneQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
