//! Values that belong to one process.
//!
//! A forked child has the memory of its parent, but not its threads. A wait for one of these threads never ends, and a lock
//! that one of them held is never released. So the child must not touch a value that has threads or locks, not even to drop it.

use std::mem::ManuallyDrop;

use foretell_family::forks;
use pyo3::prelude::*;

use crate::wait::released;

/// A value that is used and dropped only in the process that made it.
pub(crate) struct OfProcess<T: Send> {
    forks: u32,
    value: ManuallyDrop<T>,
}

impl<T: Send> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        OfProcess { forks: forks(), value: ManuallyDrop::new(value) }
    }

    /// The value; `None` in a child.
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
        // Dropping may wait, for threads or for the engine, so the interpreter is released. If the interpreter is ending, the
        // value is leaked: the process ends anyway.
        let mut value = Some(value);
        if Python::try_attach(|py| released(py, || drop(value.take()))).is_none() {
            std::mem::forget(value);
        }
    }
}
