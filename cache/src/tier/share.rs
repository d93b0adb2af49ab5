//! A request that is divided: shares of it come from the tier or from afar, and the last one to end completes it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::{BackendError, Object, Request};

use super::format::FileKey;
use super::memory::Pieces;
use super::{Shared, count};

/// It does not keep the tier's threads: it may go under a lock that they wait for.
pub(super) struct TieredObject {
    pub(super) shared: Arc<Shared>,
    pub(super) key: FileKey,
    pub(super) size_bytes: u64,
    pub(super) remote: Arc<dyn Object>,
}

/// A request, and what of it has not ended.
pub(super) struct Joint {
    /// Taken when it ends. A request that is dropped with the last share fails.
    request: Mutex<Option<Request>>,
    is_demand: bool,
    length: usize,
    left: AtomicUsize,
    /// The first one's.
    error: Mutex<Option<BackendError>>,
}

impl Joint {
    /// Of `request`, which ends with the last of `shares` shares.
    pub(super) fn new(request: Request, shares: usize) -> Self {
        Joint {
            is_demand: request.is_demand(),
            length: request.length(),
            request: Mutex::new(Some(request)),
            left: AtomicUsize::new(shares),
            error: Mutex::new(None),
        }
    }

    fn ended(&self, result: Result<(), BackendError>) {
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

/// A part of a request; see the [module](self).
pub(super) struct Share {
    pub(super) joint: Arc<Joint>,
    pub(super) object: Arc<TieredObject>,
    pub(super) start: u64,
    pub(super) length: usize,
    /// Its own until it ends.
    pub(super) pieces: Pieces,
}

impl Share {
    pub(super) fn is_demand(&self) -> bool {
        self.joint.is_demand
    }

    pub(super) fn key(&self) -> FileKey {
        self.object.key
    }

    /// C. From afar, all of it.
    pub(super) fn fetch(self) {
        let Share { joint, object, start, length, pieces } = self;
        let shared = &object.shared;
        count(&shared.counts.missed, length.div_ceil(shared.block_bytes));
        let (is_demand, remote) = (joint.is_demand, Arc::clone(&object.remote));
        // SAFETY: it is looked at when the request below has ended, and this share has not.
        let filled = unsafe { pieces.again() };
        let done = Box::new(move |result: Result<(), BackendError>| {
            if result.is_ok() {
                let shared = &object.shared;
                shared.offer(&object.key, (object.size_bytes, start), &filled, length);
            }
            drop((object, filled)); // Ending the last request may let its waiter open the folder anew.
            joint.ended(result);
        });
        // SAFETY: the pieces are this share's until it ends, which is after `done` was called.
        let request = unsafe { Request::new(start, is_demand, pieces.into_parts(), done) };
        remote.start(request);
    }

    /// All is there but these ranges of it, each its first byte and how many: they are fetched from afar.
    pub(super) fn end_but_for(self, again: &[(usize, usize)]) {
        self.joint.left.fetch_add(again.len(), Ordering::AcqRel);
        for &(at, length) in again {
            // SAFETY: ranges of this share, which nobody else looks at any more.
            let pieces = unsafe { Pieces::new(self.pieces.slice(at, length)) };
            let (joint, object) = (Arc::clone(&self.joint), Arc::clone(&self.object));
            Share { joint, object, start: self.start + at as u64, length, pieces }.fetch();
        }
        let Share { joint, object, .. } = self;
        drop(object);
        joint.ended(Ok(()));
    }
}
