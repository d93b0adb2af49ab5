//! One read of a program, from its first miss to its last block.
//!
//! Two counts: `owed` are the blocks that the engine still has to get, under its lock; `left` are the blocks that are
//! not copied yet. The thread that copies or fails the last block wakes the program, or calls its callback.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use foretell_policy::{Block, FileId, Nanos, ReaderId};

use crate::backend::Part;
use crate::error::BackendError;

/// Keeps memory alive that was lent to a read.
pub(crate) type Keeper = Arc<dyn Send + Sync>;

/// The callback of a read, with the first block that could not be read and why, if there is one.
pub(crate) type Then = Box<dyn FnOnce(Option<(Block, BackendError)>) + Send>;

/// How the end of a read is told.
enum Waiter {
    Thread(Thread),
    Call(Mutex<Option<Then>>),
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiter::Thread(thread) => f.debug_tuple("Thread").field(&thread.id()).finish(),
            Waiter::Call(_) => f.write_str("Call"),
        }
    }
}

/// Time after which a waiting read asks again whether it is given up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where the bytes go.
struct Destination {
    start: *mut u8,
    /// Keeps lent memory alive until the read is dropped, after the last write to it.
    _keeper: Option<Keeper>,
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Destination").field(&self.start).finish()
    }
}

// SAFETY: the memory is lent to the read until it is done, and blocks are copied to disjoint parts of it.
unsafe impl Send for Destination {}
// SAFETY: as above.
unsafe impl Sync for Destination {}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Read {
    destination: Destination,
    pub(crate) offset_bytes: u64,
    pub(crate) length: usize,
    pub(crate) file: FileId,
    pub(crate) reader: ReaderId,
    pub(crate) began: Nanos,
    /// Blocks that have not arrived; changed under the engine's lock.
    owed: AtomicUsize,
    /// Blocks that have not been copied, plus one while the read is being begun.
    left: AtomicUsize,
    is_done: AtomicBool,
    error: Mutex<Option<(Block, BackendError)>>,
    waiter: Waiter,
}

impl Read {
    /// A read that calls `then` when it is done. Without it, the current thread has to [wait](Read::wait).
    ///
    /// # Safety
    /// `start` is valid for writes of `length` bytes, and nothing else uses them, until the read is done. With a
    /// keeper, as long as the keeper lives.
    pub(crate) unsafe fn new(
        (start, keeper): (*mut u8, Option<Keeper>),
        (offset_bytes, length): (u64, usize),
        (file, reader): (FileId, ReaderId),
        began: Nanos,
        then: Option<Then>,
    ) -> Self {
        let waiter = match then {
            Some(then) => Waiter::Call(Mutex::new(Some(then))),
            None => Waiter::Thread(std::thread::current()),
        };
        Read {
            destination: Destination { start, _keeper: keeper },
            offset_bytes,
            length,
            file,
            reader,
            began,
            owed: AtomicUsize::new(0),
            left: AtomicUsize::new(1),
            is_done: AtomicBool::new(false),
            error: Mutex::new(None),
            waiter,
        }
    }

    /// The engine owes one more block.
    pub(crate) fn owe(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// The engine owes one block less. Returns whether that was the last.
    pub(crate) fn arrived(&self) -> bool {
        self.owed.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// One more block is to be copied that was not owed.
    pub(crate) fn will_copy(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// The part of the bytes from `start` to `end` of the file that the read wants. It must want some.
    pub(crate) fn within(&self, start: u64, end: u64) -> (u64, u64) {
        let own = (self.offset_bytes, self.offset_bytes + self.length as u64);
        let (start, end) = (start.max(own.0), end.min(own.1));
        assert!(start < end, "bytes that were not asked for");
        (start, end)
    }

    /// The destination of these bytes of the file, which the read wants.
    pub(crate) fn part(&self, start: u64, end: u64) -> Part {
        assert!(self.within(start, end) == (start, end));
        // SAFETY: `start` lies in the range of the read, which is as long as the destination.
        let at = unsafe { self.destination.start.add((start - self.offset_bytes) as usize) };
        Part { start: at, length: (end - start) as usize }
    }

    /// `count` blocks are done. The last one wakes the program or calls back; after that nothing touches the destination.
    pub(crate) fn settled(&self, count: usize) {
        if self.left.fetch_sub(count, Ordering::AcqRel) == count {
            match &self.waiter {
                Waiter::Thread(waiter) => {
                    let waiter = waiter.clone();
                    self.is_done.store(true, Ordering::Release);
                    waiter.unpark();
                }
                Waiter::Call(then) => {
                    self.is_done.store(true, Ordering::Release);
                    let then = then.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let then = then.expect("a read is done once");
                    let error = self.take_error();
                    // The thread that completes reads goes on, whatever becomes of one of them. The panic was reported.
                    let _ = catch_unwind(AssertUnwindSafe(|| then(error)));
                }
            }
        }
    }

    /// A block failed. If several do, the error of the first in the file is kept.
    pub(crate) fn failed(&self, block: Block, cause: BackendError) {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if error.as_ref().is_none_or(|(before, _)| block.index < before.index) {
            *error = Some((block, cause));
        }
    }

    /// Waits until the read is done.
    pub(crate) fn wait(&self) {
        while !self.is_done.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Waits until the read is done, or `is_given_up` returns true; it is called every [`LOOK_EVERY`]. Returns whether
    /// the read is done.
    pub(crate) fn wait_unless(&self, is_given_up: &mut dyn FnMut() -> bool) -> bool {
        while !self.is_done.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK_EVERY);
            if !self.is_done.load(Ordering::Acquire) && is_given_up() {
                return false;
            }
        }
        true
    }

    #[cfg(test)]
    pub(crate) fn is_over(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    pub(crate) fn take_error(&self) -> Option<(Block, BackendError)> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
