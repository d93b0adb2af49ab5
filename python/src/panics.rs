//! Panics become exceptions with a message of one line; nothing is printed on standard error.
//!
//! A panic is a fault of foretell. In a call it is caught ([`guarded`](crate::errors::guarded)) and becomes a
//! `foretell.Error`. In a thread of a back end the request fails as lost, and its error has the panic's message ([`last`]).

use std::panic::set_hook;
use std::sync::{Mutex, TryLockError};

/// Message and place of this process's last panic.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the message of a panic instead of printing it.
pub(crate) fn install() {
    set_hook(Box::new(|panic| {
        let said = panic.payload_as_str().unwrap_or("it does not say why");
        let place = panic.location().map_or_else(String::new, |location| {
            let file = location.file().rsplit('/').next().unwrap_or_default();
            format!(" ({file}:{})", location.line())
        });
        // Does not wait for the lock: a fork may have left it taken.
        match LAST.try_lock() {
            Ok(mut last) => *last = Some(format!("{said}{place}")),
            Err(TryLockError::Poisoned(last)) => {
                *last.into_inner() = Some(format!("{said}{place}"))
            }
            Err(TryLockError::WouldBlock) => {}
        }
    }));
}

/// The message of the last panic, if there was one.
pub(crate) fn last() -> Option<String> {
    match LAST.try_lock() {
        Ok(last) => last.clone(),
        Err(TryLockError::Poisoned(last)) => last.into_inner().clone(),
        Err(TryLockError::WouldBlock) => None,
    }
}
