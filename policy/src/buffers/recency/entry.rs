//! An entry of the log, in 32 bits: a resident's slot, the number of a named ghost, or a ghost without a name.

use crate::blocks::SlotId;

/// Marks a ghost. The other bits are its number, if it has a name.
/// Unit: bits. Reason: layout.
pub(super) const GHOST: u32 = 1 << 31;
/// A ghost without a name.
/// Unit: bits. Reason: layout.
pub(super) const UNNAMED: u32 = u32::MAX;
/// The numbers of named ghosts are below this. Numbers stay below five times the most ghosts that were ever named at once. The
/// largest stack has 2^30 entries, of which about an eighth are named ghosts at most.
/// Unit: entries. Reason: layout.
pub(super) const NUMBER_MAX: u32 = UNNAMED & !GHOST;

/// What an entry of the log is.
pub(super) enum Entry {
    Resident(SlotId),
    /// The number of a ghost with a name.
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
