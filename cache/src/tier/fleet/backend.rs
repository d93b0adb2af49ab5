//! A back end with a shared tier in front of it: divides each request into blocks.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use foretell_policy::Segment;
use rustix::fs::StatVfs;

use crate::backend::{Backend, BackendError, FileInfo, Found, Listing, Object, Opened, Request};

use super::super::around::around;
use super::super::joint::Joint;
use super::super::memory::Pieces;
use super::Fleet;
use super::block::{Before, Block, Kept, fetch};
use super::format::Named;

/// A store with a [`Fleet`] in front of it, which keeps its blocks.
pub struct FleetBackend {
    fleet: Arc<Fleet>,
    store: Arc<str>,
    origin: Arc<dyn Backend>,
}

impl fmt::Debug for FleetBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetBackend").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Fleet {
    /// A back end that keeps the blocks of `origin` in this tier. `store` must identify the store, and be the same on all
    /// machines. A file whose version is not [exact](Opened::is_exact) is not
    /// shared: its reads go to `origin`.
    pub fn over(self: &Arc<Self>, store: &str, origin: Arc<dyn Backend>) -> FleetBackend {
        FleetBackend { fleet: Arc::clone(self), store: store.into(), origin }
    }
}

impl FleetBackend {
    fn kept(&self, path: &str, opened: Opened) -> Opened {
        if !opened.is_exact {
            return opened;
        }
        let Opened { version, is_exact, size_bytes, object: origin } = opened;
        let shared = Arc::clone(&self.fleet.shared);
        let named = Named { store: &self.store, path, version: &version };
        let id = shared.checks.file(named, size_bytes, shared.block_bytes);
        let kept = Arc::new(Kept { shared, id, size_bytes, origin });
        Opened { version, is_exact, size_bytes, object: Arc::new(FleetObject(kept)) }
    }
}

impl Backend for FleetBackend {
    around!(origin, kept);

    fn gave_up(&self, stream: u64) {
        self.fleet.shared.orders().note_end(stream);
        self.origin.gave_up(stream);
    }
}

/// An open file of such a store. It holds `Shared`, not the `Fleet`: dropping the last `Fleet` waits for threads.
struct FleetObject(Arc<Kept>);

impl Object for FleetObject {
    fn disclosed(&self, stream: u64, segments: Option<&[Segment]>) {
        let Kept { shared, id, size_bytes, origin } = &*self.0;
        let block_bytes = shared.block_bytes as u64;
        let is_noted =
            shared.orders().note_disclosed(stream, (id, *size_bytes), block_bytes, segments);
        if is_noted {
            shared.wakes_for_orders();
        }
        origin.disclosed(stream, segments);
    }

    fn start(self: Arc<Self>, request: Request) {
        let kept = &self.0;
        if kept.shared.is_away() {
            // E. Without a detour.
            let blocks = request.length().div_ceil(kept.shared.block_bytes);
            kept.shared.count_missed(blocks);
            return Arc::clone(&kept.origin).start(request);
        }
        let block_bytes = kept.shared.block_bytes as u64;
        let (start, end) =
            (request.offset_bytes(), request.offset_bytes() + request.length() as u64);
        let indices = start / block_bytes..end.div_ceil(block_bytes);
        // SAFETY: the memory is the request's until it ends, which it does after its blocks. The blocks are disjoint.
        let all = unsafe { Pieces::new(request.parts()) };
        let joint = Arc::new(Joint::new(request, (indices.end - indices.start) as usize));
        let blocks = indices.map(|index| {
            let (from, to) = (start.max(index * block_bytes), end.min((index + 1) * block_bytes));
            let length = (to - from) as usize;
            Block {
                joint: Arc::clone(&joint),
                object: Arc::clone(kept),
                index,
                from: (from - index * block_bytes) as usize,
                length,
                // SAFETY: as above.
                pieces: unsafe { Pieces::new(all.slice((from - start) as usize, length)) },
                waits: None,
                refusals: 0,
                before: Before::Nothing,
                blanks: 0,
            }
        });
        if let Err(blocks) = kept.shared.ask(blocks.collect(), joint.is_demand()) {
            fetch(blocks, false);
        }
    }
}
