//! The memory of a read that may outlive its caller's interest.

use std::fmt;
use std::sync::Arc;

use crate::read::Keeper;

/// Memory that a read may still write to after its caller has given it up.
pub struct Lent {
    pub(super) start: *mut u8,
    pub(super) length: usize,
    pub(super) keeper: Keeper,
}

// SAFETY: the maker promises that nothing else uses the memory, and that the keeper may be dropped in any thread.
unsafe impl Send for Lent {}
// SAFETY: a shared `Lent` only says where the memory is.
unsafe impl Sync for Lent {}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Lent {
    /// `length` bytes from `start` on, which `keeper` keeps alive.
    ///
    /// # Safety
    /// The memory must be valid for writes, and nothing may make a reference to it, until the read has ended. If the read is
    /// [given up](crate::File::read_lent), that holds until `keeper` is dropped. The drop may happen in any thread and must not
    /// wait.
    pub unsafe fn new(start: *mut u8, length: usize, keeper: Arc<dyn Send + Sync>) -> Self {
        Lent { start, length, keeper }
    }

    /// The same memory, for another try after the first has ended.
    pub(crate) fn again(&self) -> Self {
        Lent { start: self.start, length: self.length, keeper: Arc::clone(&self.keeper) }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

/// A read whose first bytes, possibly none, have been copied from memory; the rest is missing.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Partly {
    pub(crate) offset_bytes: u64,
    pub(crate) length: usize,
    pub(crate) copied: usize,
    pub(crate) goes_on: bool,
}
