//! Where table, headers and data of a [slab](crate::slab) are in its memory.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::AtomicU64;

use foretell_policy::Block;
use foretell_policy::hash::Mix;

use crate::frame::Header;
use crate::mapping::HUGE_PAGE;
use crate::slab::Frame;

/// Data of little memory begins at a multiple of this: bytes of the largest pages of any machine.
const PAGE: usize = 64 << 10;

/// Adjacent blocks of a file with adjacent homes in the table, in one cache line: 2 to this power.
const NEIGHBOURS_BITS: u32 = 3;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) frames: Frame,
    pub(crate) block_bytes: usize,
    /// Number of entries of the table, a power of two, minus one.
    pub(crate) mask: usize,
    pub(crate) headers_at: usize,
    pub(crate) data_at: usize,
    pub(crate) mapped_bytes: usize,
}

impl Geometry {
    /// The geometry of so many frames; `None` if they do not fit into the address space.
    pub(crate) fn new(frames: Frame, block_bytes: usize) -> Option<Self> {
        let entries = (frames as usize * 2).next_power_of_two();
        let headers_at = (entries * size_of::<AtomicU64>()).next_multiple_of(64);
        let headers_end = headers_at + frames as usize * size_of::<Header>();
        let data_bytes = (frames as usize).checked_mul(block_bytes)?;
        let unit = if data_bytes < HUGE_PAGE { PAGE } else { HUGE_PAGE };
        let data_at = headers_end.next_multiple_of(unit);
        let mapped_bytes = data_bytes.checked_add(data_at)?;
        isize::try_from(mapped_bytes).ok()?;
        Some(Geometry { frames, block_bytes, mask: entries - 1, headers_at, data_at, mapped_bytes })
    }

    /// The tag of a block's entry in the table. Its lowest bits are the block's home there.
    pub(crate) fn tag_of(block: Block) -> u32 {
        let mut hasher = Mix.build_hasher();
        hasher.write_u64(block.file.0);
        hasher.write_u64(block.index >> NEIGHBOURS_BITS);
        let neighbours = (1 << NEIGHBOURS_BITS) - 1;
        (hasher.finish() >> 32) as u32 & !neighbours | block.index as u32 & neighbours
    }
}
