//! C. Blocks from the remote store that wait to be written.

use crate::buffer::Buffer;

use super::clock::{Place, Slot};
use super::format::{FileKey, Key};

/// A block in the queue.
#[derive(Clone, Copy)]
pub(super) struct StagedBlock {
    pub(super) index: u64,
    pub(super) key: Key,
    pub(super) place: Place,
    pub(super) length: usize,
}

impl StagedBlock {
    pub(super) fn slot(&self) -> Slot {
        let (Place::New(slot) | Place::Free(slot) | Place::Victim(slot)) = self.place;
        slot
    }
}

/// Blocks of one file that arrived together.
pub(super) struct Staged {
    pub(super) file: FileKey,
    pub(super) blocks: Vec<StagedBlock>,
    /// Their bytes, each block at a multiple of the block size.
    pub(super) buffer: Buffer,
}
