//! A back end with a tier in front of it: what of a request is near, what is far, and when it has ended.
//!
//! A request is divided into *shares*, near and far by turns. Each has its part of the request's memory until it ends, and
//! the last one ends the request. A share that turns out not to be near (B) is fetched from afar before it ends.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::StatVfs;

use crate::backend::{Backend, BackendError, FileInfo, Found, Listing, Object, Opened, Request};

use super::format::FileKey;
use super::memory::Pieces;
use super::reader::{Job, Near};
use super::{READERS, Shared, Tier, count};

/// A store whose blocks are kept in a [`Tier`].
pub struct TieredBackend {
    tier: Arc<Tier>,
    address: Arc<str>,
    remote: Arc<dyn Backend>,
}

impl fmt::Debug for TieredBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredBackend").field("address", &self.address).finish_non_exhaustive()
    }
}

impl TieredBackend {
    pub(super) fn new(tier: Arc<Tier>, address: &str, remote: Arc<dyn Backend>) -> Self {
        TieredBackend { tier, address: address.into(), remote }
    }

    fn tiered(&self, path: &str, opened: Opened) -> Opened {
        let Opened { version, size_bytes, object: remote } = opened;
        let seed = self.tier.shared.seed;
        let key = FileKey::new(seed, &self.address, path, &version, size_bytes);
        let shared = Arc::clone(&self.tier.shared);
        let object = TieredObject { shared, key, size_bytes, remote };
        Opened { version, size_bytes, object: Arc::new(object) }
    }
}

impl Backend for TieredBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        Ok(self.tiered(path, self.remote.open(path)?))
    }

    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        Ok(self.tiered(path, self.remote.open_found(path, file)?))
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        self.remote.find(path)
    }

    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        self.remote.list(path)
    }

    fn read_link(&self, path: &str, link: &FileInfo) -> Result<PathBuf, BackendError> {
        self.remote.read_link(path, link)
    }

    fn space(&self) -> Result<Option<StatVfs>, BackendError> {
        self.remote.space()
    }

    fn lists_all_of_files(&self) -> bool {
        self.remote.lists_all_of_files()
    }

    fn depth(&self) -> usize {
        self.remote.depth()
    }

    fn near_depth(&self) -> Option<usize> {
        Some(READERS)
    }
}

/// It does not keep the tier's threads: it may go under a lock that they wait for.
struct TieredObject {
    shared: Arc<Shared>,
    key: FileKey,
    size_bytes: u64,
    remote: Arc<dyn Object>,
}

/// Bytes of a request, from byte `at` on, that come from one side; near if there are blocks.
struct Range {
    at: usize,
    length: usize,
    near: Vec<Near>,
}

impl TieredObject {
    fn divide(&self, start: u64, length: usize) -> Vec<Range> {
        let block_bytes = self.shared.block_bytes as u64;
        let end = start + length as u64;
        let (first, blocks) =
            (start / block_bytes, end.div_ceil(block_bytes) - start / block_bytes);
        let found = self.shared.find(&self.key, first, blocks as usize);
        let mut ranges: Vec<Range> = Vec::new();
        for (index, found) in (first..).zip(found) {
            let block_start = index * block_bytes;
            let block_end = self.size_bytes.min(block_start + block_bytes);
            let (from, to) = (start.max(block_start), end.min(block_end));
            let at = (from - start) as usize;
            match ranges.last_mut() {
                Some(last) if last.near.is_empty() != found.is_some() => {}
                _ => ranges.push(Range { at, length: 0, near: Vec::new() }),
            }
            let range = ranges.last_mut().expect("there is one now");
            let wanted = (to - from) as usize;
            if let Some((slot, entry)) = found {
                range.near.push(Near {
                    index,
                    slot,
                    entry,
                    length: (block_end - block_start) as usize,
                    from: (from - block_start) as usize,
                    wanted,
                    at: at - range.at,
                });
            }
            range.length += wanted;
        }
        ranges
    }
}

impl Object for TieredObject {
    fn start(self: Arc<Self>, request: Request) {
        let (start, length) = (request.offset_bytes(), request.length());
        let ranges = self.divide(start, length);
        // SAFETY: the memory is the request's until it ends, which it does after its shares; those are disjoint.
        let all = unsafe { Pieces::new(request.parts()) };
        let joint = Arc::new(Joint {
            is_demand: request.is_demand(),
            length,
            request: Mutex::new(Some(request)),
            left: AtomicUsize::new(ranges.len()),
            error: Mutex::new(None),
        });
        for Range { at, length, near } in ranges {
            // SAFETY: as above.
            let pieces = unsafe { Pieces::new(all.slice(at, length)) };
            let share = Share {
                joint: Arc::clone(&joint),
                object: Arc::clone(&self),
                start: start + at as u64,
                length,
                pieces,
            };
            match near.is_empty() {
                true => share.fetch(),
                false => {
                    if let Err(Job { share, .. }) =
                        self.shared.jobs.put(Job { share, blocks: near })
                    {
                        share.fetch();
                    }
                }
            }
        }
    }

    fn is_near(&self, offset_bytes: u64) -> bool {
        let index = offset_bytes / self.shared.block_bytes as u64;
        self.shared.has(self.key.block(index))
    }
}

/// A request, and what of it has not ended.
struct Joint {
    /// If nobody ends it, it goes with the last share, and fails.
    request: Mutex<Option<Request>>,
    is_demand: bool,
    length: usize,
    left: AtomicUsize,
    /// The first one's.
    error: Mutex<Option<BackendError>>,
}

impl Joint {
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
    joint: Arc<Joint>,
    object: Arc<TieredObject>,
    start: u64,
    length: usize,
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
    fn fetch(self) {
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
            drop((object, filled)); // Who ends the last request may open the folder anew.
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
