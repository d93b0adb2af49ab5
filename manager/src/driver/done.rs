//! Results of device threads, on their way to the session's loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foretell_policy::FetchId;
use rustix::event::{EventfdFlags, eventfd};

use super::backend::Advised;
use super::file::Found;
use crate::walks::listing::Listing;

/// Finished jobs after which the session is woken even if none of them is urgent.
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
    /// A name was looked up ahead, or a folder listed.
    Ahead(Ahead),
}

/// A folder, and its entries if there are any to be had.
pub(crate) type Listed = (Arc<[u8]>, Option<Arc<Listing>>);

/// What came of a lookup ahead of a program.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// The number of the walk that it is for.
    pub(crate) walk: u64,
    /// The folder that was listed; `None` for a lookup.
    pub(crate) listed: Option<Listed>,
    /// `st_dev` of what was looked up, as far as it is known.
    pub(crate) on: Option<u64>,
    /// Whether it has waited for a device.
    pub(crate) waited: bool,
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

    /// Adds `done`, and rings if it is `urgent` or completes a batch. A caller that pushes a job that is not urgent must push
    /// another one later.
    pub(crate) fn push(&self, done: Done, urgent: bool) {
        let mut waiting = self.lock();
        waiting.push(done);
        if urgent || waiting.len().is_multiple_of(BATCH) {
            drop(waiting);
            self.ring();
        }
    }

    /// Wakes the loop.
    pub(crate) fn ring(&self) {
        // It fails only after 2⁶⁴ rings without a read.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Silences the bell. Call it before looking at *anything* that may have rung it: a later event rings again.
    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes all results.
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
