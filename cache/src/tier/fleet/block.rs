//! A block of a request, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::backend::{BackendError, Object, Request};

use super::super::joint::Joint;
use super::super::memory::Pieces;
use super::format::{Checks, FileId, Token};
use super::shared::{Put, Shared};

/// An open file of a store: its origin, and the tier that keeps its blocks.
pub(super) struct Kept {
    pub(super) shared: Arc<Shared>,
    pub(super) id: FileId,
    pub(super) size_bytes: u64,
    pub(super) origin: Arc<dyn Object>,
}

impl Kept {
    fn start_of(&self, index: u64) -> u64 {
        index * self.shared.block_bytes as u64
    }

    /// Bytes of a block: fewer at the end of the file.
    pub(super) fn length_of(&self, index: u64) -> usize {
        let end = self.size_bytes.min(self.start_of(index + 1));
        (end - self.start_of(index)) as usize
    }
}

/// A block that a request wants all or a part of: a share of the request.
pub(super) struct Block {
    pub(super) joint: Arc<Joint>,
    pub(super) object: Arc<Kept>,
    pub(super) index: u64,
    /// What is wanted of it.
    pub(super) from: usize,
    pub(super) length: usize,
    /// The request's memory for that, until the share ends.
    pub(super) pieces: Pieces,
    /// C. Set if it has had to wait for another node.
    pub(super) waits: Option<Waits>,
    /// D. How often its value was none.
    pub(super) refusals: u32,
    /// What goes before the next request for it.
    pub(super) before: Before,
    /// How often its key was there without a value.
    pub(super) blanks: u32,
}

/// C. How long a block has waited, and for which node.
pub(super) struct Waits {
    /// When it began to wait.
    pub(super) begun: Instant,
    /// When it was first seen that the present holder has the lease.
    pub(super) since: Instant,
    /// The present holder; `None` while it is not known.
    pub(super) holder: Option<Token>,
    /// Holders that it has waited for, the present one included.
    pub(super) holders: u32,
    /// Whether a take-over from the present holder was tried.
    pub(super) was_tried: bool,
}

/// What goes before a request for a block.
#[derive(Default)]
pub(super) enum Before {
    #[default]
    Nothing,
    /// D. Its value is deleted.
    Delete,
    /// C. The lease is taken over from this node, if that still has it.
    TakeOver(Token),
}

impl Block {
    pub(super) fn key(&self) -> String {
        self.object.id.key(self.index)
    }

    /// Whether all of it is wanted. Only then it can be put.
    pub(super) fn is_whole(&self) -> bool {
        self.length == self.object.length_of(self.index)
    }

    /// A. The block has these bytes.
    pub(super) fn serve(mut self, bytes: &[u8]) {
        self.pieces.put(0, &bytes[self.from..self.from + self.length]);
        self.joint.ended(Ok(()));
    }

    fn goes_on(&self, next: &Block) -> bool {
        Arc::ptr_eq(&self.joint, &next.joint)
            && self.index + 1 == next.index
            && self.from + self.length == self.object.shared.block_bytes
            && next.from == 0
    }
}

/// B, E. Fetches blocks from the origin, neighbours of a request together. `is_leased`: all are, and they are put when they
/// have come.
pub(super) fn fetch(blocks: Vec<Block>, is_leased: bool) {
    let mut run: Vec<Block> = Vec::new();
    for block in blocks {
        if run.last().is_some_and(|last| !last.goes_on(&block)) {
            fetch_run(std::mem::take(&mut run), is_leased);
        }
        run.push(block);
    }
    if !run.is_empty() {
        fetch_run(run, is_leased);
    }
}

fn fetch_run(run: Vec<Block>, is_leased: bool) {
    assert!(!is_leased || run.iter().all(Block::is_whole), "only whole blocks are put");
    let (joint, object) = (Arc::clone(&run[0].joint), Arc::clone(&run[0].object));
    object.shared.counts.missed.fetch_add(run.len() as u64, Ordering::Relaxed);
    let (first, blocks) = (run[0].index, run.len());
    let start = object.start_of(first) + run[0].from as u64;
    let parts = run.into_iter().flat_map(|block| block.pieces.into_parts()).collect();
    // SAFETY: the blocks' parts are disjoint, and are theirs until they end, which they do in `done`.
    let pieces = unsafe { Pieces::new(parts) };
    // SAFETY: `filled` is used after the request below has ended, and before the blocks do.
    let filled = unsafe { pieces.again() };
    let (is_demand, origin) = (joint.is_demand(), Arc::clone(&object.origin));
    let done = Box::new(move |result: Result<(), BackendError>| {
        let indices = first..first + blocks as u64;
        if result.is_ok() {
            let mut orders = object.shared.orders();
            indices.clone().for_each(|index| orders.note_arrival(&object.id, index));
        }
        if is_leased {
            match &result {
                Ok(()) => put(&object, indices, &filled),
                Err(_) => object.shared.release(indices.map(|index| object.id.key(index))),
            }
        }
        drop((object, filled)); // Before the end: the waiter may then end the tier.
        for _ in 0..blocks {
            joint.ended(result.clone());
        }
    });
    // SAFETY: the parts are the blocks' until they end, which is after `done` has been called.
    let request = unsafe { Request::new(start, is_demand, pieces.into_parts(), done) };
    origin.start(request);
}

/// Queues copies of blocks that have come.
fn put(object: &Kept, indices: std::ops::Range<u64>, filled: &Pieces) {
    let mut at = 0;
    for index in indices {
        let length = object.length_of(index);
        let key = object.id.key(index);
        if let Some(staged) = object.shared.stage(length) {
            let mut value = Checks::unsealed(length);
            let header = value.len();
            value.resize(header + length, 0);
            filled.get(at, &mut value[header..]);
            object.shared.put(Put { file: object.id, index, key, value, _staged: staged });
        } else {
            object.shared.release_unkept([key].into_iter());
            object.shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        at += length;
    }
}
