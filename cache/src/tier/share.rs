//! The shares of a request. Each comes from the tier or from the remote store.

use std::sync::Arc;

use crate::backend::{BackendError, Object, Request};

use super::format::FileKey;
use super::joint::Joint;
use super::memory::Pieces;
use super::shared::{Shared, count};

/// An open file of a store: its remote side, and the tier that keeps its blocks.
pub(super) struct Kept {
    pub(super) shared: Arc<Shared>,
    pub(super) key: FileKey,
    pub(super) size_bytes: u64,
    pub(super) remote: Arc<dyn Object>,
}

/// A part of a request; see the [module](self).
pub(super) struct Share {
    pub(super) joint: Arc<Joint>,
    pub(super) object: Arc<Kept>,
    pub(super) start: u64,
    pub(super) length: usize,
    /// Its memory, until the share ends.
    pub(super) pieces: Pieces,
}

impl Share {
    pub(super) fn is_demand(&self) -> bool {
        self.joint.is_demand()
    }

    pub(super) fn key(&self) -> FileKey {
        self.object.key
    }

    /// C. Fetches the whole share from the remote store.
    pub(super) fn fetch(self) {
        let Share { joint, object, start, length, pieces } = self;
        let shared = &object.shared;
        count(&shared.counts.missed, length.div_ceil(shared.block_bytes));
        let (is_demand, remote) = (joint.is_demand(), Arc::clone(&object.remote));
        // SAFETY: `filled` is used after the request below has ended, and before this share ends.
        let filled = unsafe { pieces.again() };
        let done = Box::new(move |result: Result<(), BackendError>| {
            if result.is_ok() {
                let shared = &object.shared;
                shared.offer(&object.key, (object.size_bytes, start), &filled, length);
            }
            drop((object, filled)); // Before the end: the waiter of the last request may then open the folder anew.
            joint.ended(result);
        });
        // SAFETY: the pieces are this share's until it ends, which it does after `done` has been called.
        let request = unsafe { Request::new(start, is_demand, pieces.into_parts(), done) };
        remote.start(request);
    }

    /// Ends the share, except these ranges (first byte and length) of it, which are fetched from the remote store first.
    pub(super) fn end_but_for(self, again: &[(usize, usize)]) {
        self.joint.add(again.len());
        for &(at, length) in again {
            // SAFETY: these are ranges of this share's memory, which nothing else uses any more.
            let pieces = unsafe { Pieces::new(self.pieces.slice(at, length)) };
            let (joint, object) = (Arc::clone(&self.joint), Arc::clone(&self.object));
            Share { joint, object, start: self.start + at as u64, length, pieces }.fetch();
        }
        let Share { joint, object, .. } = self;
        drop(object);
        joint.ended(Ok(()));
    }
}
