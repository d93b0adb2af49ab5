//! A request that is divided into shares: the last share to end completes it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::backend::{BackendError, Request};

/// A request and the number of its shares that have not ended.
pub(super) struct Joint {
    /// Taken at the end. If the last share is dropped, the request is dropped with it and fails.
    request: Mutex<Option<Request>>,
    is_demand: bool,
    length: usize,
    left: AtomicUsize,
    /// The error of the first share that failed.
    error: Mutex<Option<BackendError>>,
}

impl Joint {
    /// Divides `request`: it ends with the last of `shares` shares.
    pub(super) fn new(request: Request, shares: usize) -> Self {
        Joint {
            is_demand: request.is_demand(),
            length: request.length(),
            request: Mutex::new(Some(request)),
            left: AtomicUsize::new(shares),
            error: Mutex::new(None),
        }
    }

    /// Whether a program waits for it.
    pub(super) fn is_demand(&self) -> bool {
        self.is_demand
    }

    /// Makes so many more shares. The caller has one that has not ended.
    pub(super) fn add(&self, shares: usize) {
        self.left.fetch_add(shares, Ordering::AcqRel);
    }

    /// Ends one share.
    pub(super) fn ended(&self, result: Result<(), BackendError>) {
        if let Err(cause) = result {
            let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            error.get_or_insert(cause);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut request) = request else { return };
        match error {
            Some(cause) => request.complete(Err(cause)),
            None => {
                request.advance(self.length);
                request.complete(Ok(()));
            }
        }
    }
}
