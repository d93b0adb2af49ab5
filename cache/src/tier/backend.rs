//! A back end with a tier in front of it: divides each request into near and far shares.
//!
//! A *share* is a run of near blocks or of far blocks of a request; near and far shares alternate. Each share owns its part of
//! the request's memory until it ends, and the last one ends the request. Blocks of a near share that turn out to be wrong (B)
//! are fetched from the remote store before the share ends.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use foretell_policy::Segment;
use rustix::fs::StatVfs;

use crate::backend::{Backend, BackendError, FileInfo, Found, Listing, Object, Opened, Request};

use super::around::around;
use super::format::FileKey;
use super::joint::Joint;
use super::memory::Pieces;
use super::reader::{Job, Jobs, Near};
use super::share::{Kept, Share};
use super::{READERS, Tier};

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

impl Tier {
    /// A back end that keeps the blocks of `remote` in this tier. `address` must identify the store, and be the same
    /// whenever the store is opened. If the tier is kept, versions must be reliable: two files of the same version have
    /// the same bytes, also years apart.
    pub fn over(self: &Arc<Self>, address: &str, remote: Arc<dyn Backend>) -> TieredBackend {
        TieredBackend { tier: Arc::clone(self), address: address.into(), remote }
    }
}

impl TieredBackend {
    fn tiered(&self, path: &str, opened: Opened) -> Opened {
        let Opened { version, is_exact, size_bytes, object: remote } = opened;
        let seed = self.tier.shared.seed;
        let key = FileKey::new(seed, &self.address, path, &version, size_bytes);
        let shared = Arc::clone(&self.tier.shared);
        let kept = Arc::new(Kept { shared, key, size_bytes, remote });
        let object = TieredObject { kept, jobs: Arc::clone(&self.tier.jobs) };
        Opened { version, is_exact, size_bytes, object: Arc::new(object) }
    }
}

impl Backend for TieredBackend {
    around!(remote, tiered);

    fn gave_up(&self, stream: u64) {
        self.remote.gave_up(stream);
    }

    fn near_depth(&self) -> Option<usize> {
        Some(READERS)
    }
}

/// Adjacent bytes of a request, from byte `at` on, that come from the same side. It is near if there are blocks.
struct Range {
    at: usize,
    length: usize,
    near: Vec<Near>,
}

/// An open file of a tiered store. It holds `Shared` and not the `Tier`: it may be dropped under a lock that the tier's
/// threads wait for, and the last drop of a `Tier` waits for these threads.
struct TieredObject {
    kept: Arc<Kept>,
    jobs: Arc<Jobs>,
}

impl TieredObject {
    fn divide(&self, start: u64, length: usize) -> Vec<Range> {
        let block_bytes = self.kept.shared.block_bytes as u64;
        let end = start + length as u64;
        let (first, blocks) =
            (start / block_bytes, end.div_ceil(block_bytes) - start / block_bytes);
        let found = self.kept.shared.find(&self.kept.key, first, blocks as usize);
        let mut ranges: Vec<Range> = Vec::new();
        for (index, found) in (first..).zip(found) {
            let block_start = index * block_bytes;
            let block_end = self.kept.size_bytes.min(block_start + block_bytes);
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
        // SAFETY: the memory is the request's until it ends, which it does after its shares. The shares are disjoint.
        let all = unsafe { Pieces::new(request.parts()) };
        let joint = Arc::new(Joint::new(request, ranges.len()));
        for Range { at, length, near } in ranges {
            // SAFETY: as above.
            let pieces = unsafe { Pieces::new(all.slice(at, length)) };
            let share = Share {
                joint: Arc::clone(&joint),
                object: Arc::clone(&self.kept),
                start: start + at as u64,
                length,
                pieces,
            };
            match near.is_empty() {
                true => share.fetch(),
                false => {
                    if let Err(Job { share, .. }) = self.jobs.put(Job { share, blocks: near }) {
                        share.fetch();
                    }
                }
            }
        }
    }

    fn disclosed(&self, stream: u64, segments: Option<&[Segment]>) {
        self.kept.remote.disclosed(stream, segments);
    }

    fn is_near(&self, offset_bytes: u64) -> bool {
        let index = offset_bytes / self.kept.shared.block_bytes as u64;
        self.kept.shared.has(self.kept.key.block(index))
    }
}
