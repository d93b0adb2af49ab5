//! The parts of the index of next uses: the chains of pieces in one queue of nodes, and for each file its levels in use and the
//! table of its single blocks.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use hashbrown::HashMap;

use crate::hint::FileId;
use crate::tables::hash::Mix;
use crate::tables::line::load_line;
use crate::tables::shrinking::{SMALL_BYTES, shrink_map, shrink_queue};

/// Bits of a block index per level: level l has pieces of 2³ˡ blocks.
/// Unit: bits. Reason: layout.
pub(super) const LEVEL_BITS: u32 = 3;
/// Levels that cover all block indices of 64 bits.
/// Unit: levels. Reason: layout.
pub(super) const LEVELS_MAX: u32 = 21;

/// Single blocks from which on a file may have a table. Whether it gets a table, or a longer one, is checked when the number of
/// its single blocks is a power of two. That number must have grown, or the table must become twice as long. Blocks outside the
/// table are found by hash.
/// Unit: pieces. Reason: judgement.
const TABLE_PIECES_MIN: u32 = if cfg!(test) { 4 } else { 64 };
/// A table has at most this many blocks per single block when it is made.
/// Unit: ratio. Reason: judgement.
const TABLE_SPARSENESS_MAX: u64 = 4;

/// A table of more blocks than this is given up when too few of them are single blocks.
/// Unit: blocks. Reason: judgement.
const TABLE_KEPT_MAX: usize = if cfg!(test) { 4 } else { 256 };
/// Too few means less than one block of the table in this many.
/// Unit: ratio. Reason: judgement.
const TABLE_USED_DIVISOR: usize = if cfg!(test) { 4 } else { 64 };

/// The range of a file's single blocks is recorded only from this many on. Most files have fewer.
/// Unit: pieces. Reason: layout.
const SPAN_PIECES_MIN: u32 = TABLE_PIECES_MIN / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) file: FileId,
    pub(super) piece: u64,
    pub(super) level: u32,
}

impl Key {
    pub(super) fn new(file: FileId, level: u32, block: u64) -> Self {
        Key { file, piece: block >> (LEVEL_BITS * level), level }
    }
}

/// Position of an empty chain, and of the node after a chain's last.
/// Unit: position. Reason: layout.
pub(super) const NEVER: u64 = u64::MAX;

/// The segments that a piece is part of, ordered by position. In a table a chain may be empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// Position of the piece's first block in the first pass of the first segment, or [`NEVER`].
    pub(super) position: u64,
    /// The nodes of the first and the last segment.
    pub(super) first: NodeNumber,
    pub(super) last: NodeNumber,
}

impl Chain {
    pub(super) const EMPTY: Chain =
        Chain { position: NEVER, first: NodeNumber(0), last: NodeNumber(0) };
}

/// The chains of all blocks of a file in a range that starts at `first_block`. Empty if the file has no table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) first_block: u64,
    pub(super) chains: Vec<Chain>,
    /// Single blocks of the file when the table was made.
    pub(super) pieces: u32,
    /// The lowest and the highest single block added since the file had [`SPAN_PIECES_MIN`] of them.
    pub(super) span: Option<(u64, u64)>,
}

impl Table {
    pub(super) fn place(&self, block: u64) -> Option<usize> {
        let place = block.checked_sub(self.first_block)?;
        (place < self.chains.len() as u64).then_some(place as usize)
    }

    pub(super) fn load(&self, block: u64) {
        self.place(block).into_iter().for_each(|place| load_line(&self.chains[place]));
    }
}

/// Number of a node: how many came before it, modulo 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeNumber(u32);

/// A piece of one segment, as a link of its chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// The position of the next node in the chain, as in [`Chain`], and its number.
    pub(super) next_position: u64,
    pub(super) next: NodeNumber,
    /// The hint's ordinal, modulo 2³².
    pub(super) ordinal: u32,
}

/// A segment in the index.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entered {
    pub(super) first_block: u64,
    pub(super) blocks: u64,
    /// Position of its first block in the first pass.
    pub(super) position: u64,
    /// The hint's ordinal, modulo 2³².
    pub(super) ordinal: u32,
}

/// What the index knows of a file. The fields that find a single block's chain come first.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct FileUse {
    pub(super) levels: u32,
    pub(super) segments: u32,
    /// The table of its single blocks, if it has one.
    pub(super) table: Table,
    pub(super) pieces_at: [u32; LEVELS_MAX as usize],
    /// The segment added last, which leaves last.
    pub(super) last: Entered,
}

impl FileUse {
    /// Counts a new piece of `level` that begins at `block`. Returns the blocks that a table should cover, if one should be
    /// made now.
    pub(super) fn adds(&mut self, level: u32, block: u64) -> Option<RangeInclusive<u64>> {
        self.pieces_at[level as usize] += 1;
        self.levels |= 1 << level;
        if level > 0 {
            return None;
        }
        let pieces = self.pieces_at[0];
        if pieces < SPAN_PIECES_MIN {
            return None;
        }
        let table = &mut self.table;
        let (least, greatest) = table.span.unwrap_or((block, block));
        let (least, greatest) = (least.min(block), greatest.max(block));
        table.span = Some((least, greatest));
        let is_due = pieces >= TABLE_PIECES_MIN && pieces.is_power_of_two();
        let fits = || (greatest - least) / TABLE_SPARSENESS_MAX < u64::from(pieces);
        let reaches = || [least, greatest].iter().all(|&end| table.place(end).is_some());
        // Pieces may leave as fast as they come, each beyond the last, so their number alone does not show growth.
        let has_grown = pieces > table.pieces || greatest - least >= 2 * table.chains.len() as u64;
        (is_due && has_grown && fits() && !reaches()).then_some(least..=greatest)
    }

    /// The chain of a single block, if the table covers it.
    pub(super) fn chain(&mut self, level: u32, block: u64) -> Option<&mut Chain> {
        if level > 0 {
            return None;
        }
        let place = self.table.place(block)?;
        Some(&mut self.table.chains[place])
    }

    /// Whether its table is too large for the blocks left in it.
    pub(super) fn has_table_to_spare(&self) -> bool {
        let blocks = self.table.chains.len();
        blocks > TABLE_KEPT_MAX && blocks / TABLE_USED_DIVISOR > self.pieces_at[0] as usize
    }

    /// Counts a piece of `level` that has left.
    pub(super) fn removes(&mut self, level: u32) {
        self.pieces_at[level as usize] -= 1;
        if self.pieces_at[level as usize] == 0 {
            self.levels &= !(1 << level);
            if level == 0 {
                self.table = Table::default();
            }
        }
    }
}

/// All chains of a stream that are not in tables, and the pieces of all segments.
#[derive(Debug, Default)]
pub(super) struct Chains {
    pub(super) by_piece: HashMap<Key, Chain, Mix>,
    /// In the order in which they are added and removed.
    pub(super) nodes: VecDeque<Node>,
    /// Nodes that were removed, modulo 2³².
    pub(super) gone: u32,
    /// Chains of all tables ever made.
    #[cfg(test)]
    pub(super) tabulated: usize,
}

impl Chains {
    /// The chain of the piece that `key` names; empty if there is none.
    pub(super) fn of(&self, file: &FileUse, key: Key) -> Chain {
        if key.level == 0
            && let Some(place) = file.table.place(key.piece)
        {
            return file.table.chains[place];
        }
        self.by_piece.get(&key).copied().unwrap_or(Chain::EMPTY)
    }

    pub(super) fn node(&self, number: NodeNumber) -> &Node {
        &self.nodes[number.0.wrapping_sub(self.gone) as usize]
    }

    pub(super) fn push(
        &mut self,
        file: &mut FileUse,
        key: Key,
        block: u64,
        position: u64,
        ordinal: u32,
    ) {
        if let Some(reach) = file.adds(key.level, block) {
            self.tabulate(file, key.file, reach);
        }
        let number = NodeNumber(self.gone.wrapping_add(self.nodes.len() as u32));
        self.nodes.push_back(Node { next_position: NEVER, next: NodeNumber(0), ordinal });
        let chain = match file.chain(key.level, block) {
            Some(chain) => chain,
            None => self.by_piece.entry(key).or_insert(Chain::EMPTY),
        };
        if chain.position == NEVER {
            (chain.position, chain.first) = (position, number);
        } else {
            let last = &mut self.nodes[chain.last.0.wrapping_sub(self.gone) as usize];
            (last.next_position, last.next) = (position, number);
        }
        chain.last = number;
    }

    /// Removes the oldest node. It is the first of the chain that `key` names.
    pub(super) fn pop(&mut self, file: &mut FileUse, key: Key, block: u64) {
        let Node { next_position, next, .. } = self.nodes.pop_front().expect("it was pushed");
        let number = NodeNumber(self.gone);
        self.gone = self.gone.wrapping_add(1);
        if shrink_queue(&mut self.nodes) {
            shrink_map(&mut self.by_piece); // The map has no more than one entry per node.
        }
        let chain = match file.chain(key.level, block) {
            Some(chain) => chain,
            None if next_position == NEVER => {
                self.by_piece.remove(&key);
                return file.removes(key.level);
            }
            None => self.by_piece.get_mut(&key).expect("what was pushed is there"),
        };
        debug_assert_eq!(chain.first, number, "pieces go in the order in which they came");
        (chain.position, chain.first) = (next_position, next);
        file.removes(key.level);
        if file.has_table_to_spare() {
            self.give_up_table(file, key.file);
        }
    }

    /// Moves what is left in the table of `file` to the hash map.
    pub(super) fn give_up_table(&mut self, file: &mut FileUse, id: FileId) {
        let Table { first_block, chains, span, .. } = std::mem::take(&mut file.table);
        let left = (first_block..).zip(chains).filter(|(_, chain)| chain.position != NEVER);
        self.by_piece.extend(left.map(|(block, chain)| (Key::new(id, 0, block), chain)));
        file.table.span = span;
    }

    /// Makes a table for the single blocks of `file` in `reach`.
    pub(super) fn tabulate(&mut self, file: &mut FileUse, id: FileId, reach: RangeInclusive<u64>) {
        let old = std::mem::take(&mut file.table);
        let first_block = *reach.start();
        let chains = reach.map(|block| match old.place(block) {
            Some(place) => old.chains[place],
            None => self.by_piece.remove(&Key::new(id, 0, block)).unwrap_or(Chain::EMPTY),
        });
        let chains: Vec<Chain> = chains.collect();
        shrink_map(&mut self.by_piece);
        #[cfg(test)]
        {
            self.tabulated += chains.len();
        }
        file.table = Table { first_block, chains, pieces: file.pieces_at[0], span: old.span };
    }
}

/// All files of a stream's index. Most queries are about the same file as the one before and need no lookup.
#[derive(Debug, Default)]
pub(super) struct FileUses {
    /// The place of each file in `uses`.
    pub(super) places: HashMap<FileId, u32, Mix>,
    pub(super) uses: Vec<FileUse>,
    /// Unused places.
    pub(super) free: Vec<u32>,
    pub(super) last: Option<(FileId, u32)>,
}

impl FileUses {
    pub(super) fn place(&self, file: FileId) -> Option<u32> {
        match self.last {
            Some((last, place)) if last == file => Some(place),
            _ => self.places.get(&file).copied(),
        }
    }

    pub(super) fn get(&self, file: FileId) -> Option<&FileUse> {
        self.place(file).map(|place| &self.uses[place as usize])
    }

    /// Makes `file` the one found without a lookup. Returns its place.
    pub(super) fn turn_to(&mut self, file: FileId) -> Option<usize> {
        let place = self.place(file)?;
        self.last = Some((file, place));
        Some(place as usize)
    }

    pub(super) fn get_mut(&mut self, file: FileId) -> Option<&mut FileUse> {
        self.turn_to(file).map(|place| &mut self.uses[place])
    }

    /// The entry of `file`. If it is new, `comes` is called.
    pub(super) fn get_or_add(&mut self, file: FileId, comes: impl FnOnce()) -> &mut FileUse {
        let place = self.place(file).unwrap_or_else(|| {
            comes();
            let place = self.free.pop().unwrap_or_else(|| {
                self.uses.push(FileUse::default());
                u32::try_from(self.uses.len() - 1).expect("fewer than 2³² files")
            });
            self.places.insert(file, place);
            place
        });
        self.last = Some((file, place));
        &mut self.uses[place as usize]
    }

    pub(super) fn remove(&mut self, file: FileId) {
        let Some(place) = self.places.remove(&file) else { return };
        self.last.take_if(|(last, _)| *last == file);
        self.uses[place as usize] = FileUse::default();
        self.free.push(place);
        let (used, room) = (self.places.len(), self.uses.capacity());
        if used == 0 {
            (self.uses, self.free) = (Vec::new(), Vec::new());
        } else if used < room / 4 && room * size_of::<FileUse>() > SMALL_BYTES {
            self.close_ranks();
        }
    }

    /// Compacts `uses` to return the memory of files that have left.
    pub(super) fn close_ranks(&mut self) {
        let mut uses = Vec::with_capacity(2 * self.places.len());
        for place in self.places.values_mut() {
            let new = uses.len() as u32;
            uses.push(std::mem::take(&mut self.uses[*place as usize]));
            *place = new;
        }
        (self.uses, self.free, self.last) = (uses, Vec::new(), None);
        shrink_map(&mut self.places);
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = FileId> {
        self.places.keys().copied()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let tables = self.uses.iter().map(|file| file.table.chains.capacity() * size_of::<Chain>());
        self.places.allocation_size()
            + self.uses.capacity() * size_of::<FileUse>()
            + self.free.capacity() * size_of::<u32>()
            + tables.sum::<usize>()
    }
}
