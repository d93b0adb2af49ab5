//! Requests of the [engine](super) and the blocks they bring: state without behaviour. The letters are the engine's cases.

use std::sync::Arc;

use foretell_policy::{Block, FetchId, Nanos};

use crate::backend::{Object, Part};
use crate::read::Read;
use crate::slab::{Frame, Pinned};

/// Names one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(super) u64);

/// A request to be started.
pub(crate) struct Start {
    pub(crate) id: RequestId,
    pub(crate) object: Arc<dyn Object>,
    pub(crate) offset_bytes: u64,
    pub(crate) is_demand: bool,
    /// Memory that belongs to the request until it is [completed](super::Engine::completed).
    pub(crate) parts: Vec<Part>,
}

/// A block to be copied to a read that waits for it.
pub(crate) struct Delivery {
    pub(crate) read: Arc<Read>,
    pub(crate) block: Block,
    pub(crate) pinned: Pinned,
}

/// Work for the caller.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) start: Vec<Start>,
    pub(crate) copy: Vec<Delivery>,
    /// Reads with one block each that is settled without a copy.
    pub(crate) settled: Vec<Arc<Read>>,
}

impl Todo {
    pub(crate) fn is_empty(&self) -> bool {
        self.start.is_empty() && self.copy.is_empty() && self.settled.is_empty()
    }
}

/// Where the blocks of a file come from.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) device: usize,
    pub(super) object: Arc<dyn Object>,
    pub(super) size_bytes: u64,
}

/// A request that has not ended.
pub(super) struct Pending {
    /// The policy's fetches that it serves, in order, each with its number of blocks. None in case C, and for absent blocks
    /// (F).
    pub(super) fetches: Vec<(FetchId, u64)>,
    pub(super) first: Block,
    pub(super) blocks: u64,
    pub(super) source: Source,
    /// The device that the policy named: the file's, or that of its near blocks.
    pub(super) device: usize,
    /// The device that all of its blocks belong to when it starts; none if they belong to both.
    pub(super) served_by: Option<usize>,
    pub(super) is_demand: bool,
    /// Empty while it waits for frames.
    pub(super) frames: Vec<Frame>,
    /// C: it needs no frames.
    pub(super) passes_by: bool,
    pub(super) began: Nanos,
    /// Its bytes, and the bytes in flight at its device when it began, these included.
    pub(super) bytes: u64,
    pub(super) under_way_bytes: u64,
    pub(super) deliveries: Vec<(Arc<Read>, Block)>,
}

/// A block to be fetched on demand.
pub(super) struct Wanted {
    pub(super) block: Block,
    pub(super) by: By,
    pub(super) device: usize,
}

/// How a block is fetched on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By a fetch of the policy.
    Fetch(FetchId),
    /// F: it was absent, so the policy has a buffer for it.
    Refetch,
    /// C: there is no buffer.
    NoBuffer,
}

/// The request that will bring a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) request: RequestId,
    /// F: its bytes may be old.
    pub(super) is_outdated: bool,
}

/// What to do with a block whose request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Publish,
    /// It has changed since its request began.
    Outdated,
    /// The policy has evicted it meanwhile.
    LetGo,
}
