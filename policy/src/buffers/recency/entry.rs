//! The words of the log: a resident's slot, the number of a named ghost, or a ghost without a name.

use crate::blocks::SlotId;

/// Marks an entry as the number of a named ghost; all ones are one without a name.
pub(super) const GHOST: u32 = 1 << 31;
pub(super) const UNNAMED: u32 = u32::MAX;
/// Numbers of named ghosts are below. They go up to five times as many as ever were named at once: one in eight, of the largest stacks.
pub(super) const NUMBER_MAX: u32 = UNNAMED & !GHOST;

/// What an entry of the log is.
pub(super) enum Entry {
    Resident(SlotId),
    /// A named one.
    Ghost(u32),
    Unnamed,
}

impl Entry {
    pub(super) fn decode(entry: u32) -> Self {
        match entry {
            UNNAMED => Entry::Unnamed,
            _ if entry & GHOST == 0 => Entry::Resident(SlotId(entry)),
            _ => Entry::Ghost(entry & !GHOST),
        }
    }
}
