//! Values that belong to one process.
//!
//! A forked child has the memory of its parent, but not its threads. A wait for one of these threads never ends, and a lock
//! that one of them held is never released. So the child must not touch a value that has threads or locks, not even to drop it.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks from the first process to this one. The pid would do too, but reading it is a system call, which takes a
/// tenth of a short read.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Number of forks from the process that asked first to this one.
///
/// # Panics
/// If there is no memory at the first call.
pub fn forks() -> u32 {
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        // SAFETY: the function that runs in a child only adds to an atomic.
        let failed = unsafe { pthread_atfork(None, None, Some(forked)) };
        assert_eq!(failed, 0, "there is no memory");
    });
    FORKS.load(Ordering::Relaxed)
}

/// A value that is used and dropped only in the process that made it.
#[derive(Debug)]
pub struct OfProcess<T> {
    forks: u32,
    value: ManuallyDrop<T>,
}

impl<T> OfProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> Self {
        OfProcess { forks: forks(), value: ManuallyDrop::new(value) }
    }

    /// The value; `None` in a child.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        (self.forks == forks()).then_some(&self.value)
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.forks == forks() {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
