//! What becomes of a panic: an exception of one line, and nothing on standard error.
//!
//! A panic is a fault of foretell. In a call it is caught here ([`guarded`]) and becomes a `foretell.Error`. In a thread of a back end
//! what was asked for fails as lost, and the error of that says what the panic said ([`last`]).

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::{Mutex, TryLockError};

use pyo3::prelude::*;

use crate::errors;

/// What the last panic of this process said, and where.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps what panics of this library say, in place of writing it to standard error.
pub(crate) fn install() {
    set_hook(Box::new(|panic| {
        let said = panic.payload_as_str().unwrap_or("it does not say why");
        let place = panic.location().map_or_else(String::new, |location| {
            let file = location.file().rsplit('/').next().unwrap_or_default();
            format!(" ({file}:{})", location.line())
        });
        // Never waits: a fork may have left it locked.
        match LAST.try_lock() {
            Ok(mut last) => *last = Some(format!("{said}{place}")),
            Err(TryLockError::Poisoned(last)) => {
                *last.into_inner() = Some(format!("{said}{place}"))
            }
            Err(TryLockError::WouldBlock) => {}
        }
    }));
}

/// What the last panic said, if there was one.
pub(crate) fn last() -> Option<String> {
    match LAST.try_lock() {
        Ok(last) => last.clone(),
        Err(TryLockError::Poisoned(last)) => last.into_inner().clone(),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Does something for Python. If it panics, that is an exception.
pub(crate) fn guarded<T>(py: Python<'_>, act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // What `act` has left half done is foretell's own, behind locks that are used again although they are poisoned.
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| Err(errors::of_panic(py)))
}
