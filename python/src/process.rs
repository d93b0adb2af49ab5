//! What belongs to one process.
//!
//! A child that was forked has the memory of its parent, and not its threads: whoever waits for one of them waits for
//! ever, and a lock that one of them held is never given up. So the child must touch nothing of it, not even to destroy it.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;

/// Something that is used, and destroyed, in the process that has made it alone.
pub(crate) struct OfProcess<T: Send> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T: Send> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        OfProcess { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// `None` in a child.
    pub(crate) fn get(&self) -> Option<&T> {
        (self.process == std::process::id()).then_some(&self.value)
    }
}

impl<T: Send> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
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
