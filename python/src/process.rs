//! What belongs to one process.
//!
//! A child that was forked has the memory of its parent, and not its threads: whoever waits for one of them waits for
//! ever, and a lock that one of them held is never given up. So the child must touch nothing of it, not even to destroy it.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

/// How many forks lie between this process and the one that began. A process's number would do, but each look at it is a call of
/// the kernel, which takes a tenth of a short read.
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

fn forks() -> u32 {
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        // SAFETY: what is called in a child adds to an atomic, and does nothing else.
        let failed = unsafe { pthread_atfork(None, None, Some(forked)) };
        assert_eq!(failed, 0, "there is no memory");
    });
    FORKS.load(Ordering::Relaxed)
}

/// Something that is used, and destroyed, in the process that has made it alone.
pub(crate) struct OfProcess<T: Send> {
    forks: u32,
    value: ManuallyDrop<T>,
}

impl<T: Send> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        OfProcess { forks: forks(), value: ManuallyDrop::new(value) }
    }

    /// `None` in a child.
    pub(crate) fn get(&self) -> Option<&T> {
        (self.forks == forks()).then_some(&self.value)
    }
}

impl<T: Send> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.forks != forks() {
            return;
        }
        // SAFETY: it is not used again.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        // It may wait, for threads that end or for the engine. If the interpreter is ending, so is all the rest.
        let mut value = Some(value);
        if Python::try_attach(|py| py.detach(|| drop(value.take()))).is_none() {
            std::mem::forget(value);
        }
    }
}
