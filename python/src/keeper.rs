//! Memory of reads in flight.
//!
//! Data in flight may still be written into the memory of a read that was given up, so the memory is kept until then: the
//! buffer stays exported, the `bytes` stay alive. The thread that then drops it must not wait for the interpreter. It puts it
//! into a list ([`LEFT`]), and the next read releases it.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The Python object that keeps memory alive.
pub(crate) enum Owner {
    Buffer(#[expect(dead_code, reason = "held for its release alone")] PyUntypedBuffer),
    Bytes(Py<PyBytes>),
}

/// A list of the owners of given-up reads, the last first. Lock-free, because a fork could leave a lock taken.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(std::ptr::null_mut());

struct Left {
    #[expect(dead_code, reason = "held for its release alone")]
    owner: Owner,
    next: *mut Left,
}

/// Leaves the owner to the next read. Any thread may call it, without the interpreter.
fn leave(owner: Owner) {
    let next = LEFT.load(Ordering::Relaxed);
    let left = Box::into_raw(Box::new(Left { owner, next }));
    let mut known = next;
    while let Err(now) =
        LEFT.compare_exchange_weak(known, left, Ordering::Release, Ordering::Relaxed)
    {
        known = now;
        // SAFETY: the entry belongs to this thread until the exchange succeeds.
        unsafe { (*left).next = now };
    }
}

/// Keeps the memory of a read in flight.
pub(crate) struct Keeper(Mutex<Option<Owner>>);

impl Keeper {
    pub(crate) fn new(owner: Owner) -> Self {
        Keeper(Mutex::new(Some(owner)))
    }

    /// The result of a completed read of `count` bytes: the bytes object, or the count for a buffer.
    pub(crate) fn result(&self, py: Python<'_>, count: usize) -> PyResult<Py<PyAny>> {
        match self.take().expect("nobody else takes it") {
            Owner::Bytes(bytes) => Ok(bytes.into_any()),
            Owner::Buffer(_) => Ok(count.into_pyobject(py)?.into_any().unbind()),
        }
    }

    /// Releases the memory of a completed read.
    pub(crate) fn release(&self, _: Python<'_>) {
        drop(self.take());
    }

    /// Takes the memory of a completed read.
    pub(crate) fn take(&self) -> Option<Owner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(owner) = self.take() {
            leave(owner);
        }
    }
}

/// Releases the owners of given-up reads that have completed.
pub(crate) fn release_left(_: Python<'_>) {
    let mut left = LEFT.swap(std::ptr::null_mut(), Ordering::Acquire);
    while !left.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and only the thread that swapped it out has it.
        left = unsafe { Box::from_raw(left) }.next;
    }
}
