//! The index of next uses: when a stream will read a block next, in O(log) time and a few words per segment.
//!
//! A segment is cut into as few pieces as possible, each aligned to a power of eight blocks. So a block lies in at most one
//! kind of piece per level, and one lookup per level finds all segments that contain it. A file of any length is a few dozen
//! pieces; a single block is one. Each piece has a chain: the segments that it is part of, ordered by position. Repeated passes
//! are not stored. Their positions are computed.
//!
//! Segments are added ahead of the cursor, up to a number of pieces. They leave in the same order when the cursor has passed
//! their last pass. So each chain is a queue, and one queue of nodes holds all chains. The entry that says where a chain begins
//! also has the position of its first piece, so a next use takes no second load.
//!
//! Chains are found by hash. A file whose single blocks lie close together (a data set read in shuffled order) has a table of
//! all blocks from its first to its last. A table takes one load instead of two or three.
//!
//! Cost: 16 bytes per piece, about 50 per distinct piece and about 200 per file. A table takes 16 bytes per block, at most four
//! blocks per piece when it is made and at most 64 later. A segment of n blocks has at most 14 log₈ n pieces, or one if n is 1.

mod chains;

use self::chains::{Chain, Chains, Entered, FileUses, Key, LEVEL_BITS, LEVELS_MAX, NEVER, Node};
use crate::blocks::DeviceIndex;
use crate::hint::{Block, FileId};
use crate::streams::stream::places::Places;
use crate::tables::line::{load_line, load_lines};

/// Segments of a chain that one search visits. If a repeated hint names one block many times, all its segments are in the
/// chain, past or not. A search that stops here may return a later use than the next one.
/// Unit: segments. Reason: bound.
const CHAIN_TRIED_MAX: usize = 256;

/// A file that entered or left the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileChange {
    Came(FileId, DeviceIndex),
    Went(FileId),
}

/// The index of one stream; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct NextUse {
    chains: Chains,
    files: FileUses,
    /// The first segment that is not in the index yet, and the first that has not left it, as hint ordinal and segment number.
    added: (u64, usize),
    left: (u64, usize),
    segments: usize,
    pieces: usize,
    /// The file asked for last and its segment, if it has only one.
    asked: Option<(FileId, Entered)>,
    /// No segment leaves before the cursor's base reaches this position.
    next_leave: u64,
    /// Whether a chain had more segments than one search visits.
    #[cfg(any(test, debug_assertions))]
    gave_up: bool,
}

impl NextUse {
    pub(crate) fn new() -> Self {
        NextUse::default()
    }

    /// Whether a search may have returned a later use than the next one.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Whether everything placed has been added.
    pub(crate) fn is_complete(&self, places: &Places) -> bool {
        self.added.0 >= places.ordinals().end
    }

    /// The first placed segment that has not been added.
    pub(crate) fn added(&self) -> (u64, usize) {
        self.added
    }

    /// The measure of its size: its pieces, or its segments if there are more of those (empty segments have no pieces).
    pub(crate) fn load(&self) -> usize {
        self.pieces.max(self.segments)
    }

    /// Whether everything placed has been added and the load permits another segment.
    pub(crate) fn has_room(&self, places: &Places, load_max: usize) -> bool {
        self.is_complete(places) && self.load() < load_max
    }

    /// The position of the first segment that has not been added, or `u64::MAX` if all have.
    pub(crate) fn end(&self, places: &Places, block_bytes: u64) -> u64 {
        let (ordinal, segment) = self.added;
        match places.get(ordinal) {
            Some(placed) if segment < placed.segment_count() => {
                placed.start + placed.segment(segment, block_bytes).0
            }
            _ => u64::MAX,
        }
    }

    /// Whether `file` is known to be in the index without a lookup.
    #[inline]
    pub(crate) fn surely_has(&self, file: FileId) -> bool {
        self.files.last.is_some_and(|(last, _)| last == file)
            || self.asked.is_some_and(|(asked, _)| asked == file)
    }

    /// All files in the index, as changes that remove them.
    pub(crate) fn all_go(&self) -> impl Iterator<Item = FileChange> {
        self.files.ids().map(FileChange::Went)
    }

    /// Adds the next placed segments while the load is below `load_max` and `work` is left. Each segment and each piece costs
    /// one unit of work.
    pub(crate) fn extend(
        &mut self,
        places: &Places,
        block_bytes: u64,
        load_max: usize,
        work: &mut usize,
        mut changed: impl FnMut(FileChange),
    ) {
        let (mut ordinal, mut segment) = self.added;
        while self.load() < load_max && *work > 0 {
            let Some(placed) = places.get(ordinal) else { break };
            if segment >= placed.segment_count() {
                (ordinal, segment) = (ordinal + 1, 0);
                continue;
            }
            let comes = || changed(FileChange::Came(placed.file, placed.device));
            let file = self.files.get_or_add(placed.file, comes);
            let (offset, first, blocks) = placed.segment(segment, block_bytes);
            let (position, number) = (placed.start + offset, ordinal as u32);
            self.asked = None;
            file.segments += 1;
            file.last = Entered { first_block: first, blocks, position, ordinal: number };
            self.segments += 1;
            let before = self.pieces;
            for_each_piece(first, first + blocks, |level, block| {
                self.pieces += 1;
                let key = Key::new(placed.file, level, block);
                self.chains.push(file, key, block, position + (block - first), number);
            });
            *work = work.saturating_sub(1 + self.pieces - before);
            segment += 1;
        }
        self.added = (ordinal, segment);
    }

    /// Removes the segments whose last pass lies before `base`, and retires hints whose segments have all left.
    pub(crate) fn retire(
        &mut self,
        places: &mut Places,
        block_bytes: u64,
        base: u64,
        mut changed: impl FnMut(FileChange),
    ) {
        if base < self.next_leave {
            return;
        }
        self.next_leave = 0;
        self.asked = None;
        while let Some(placed) = places.first() {
            let ordinal = places.ordinals().start;
            let last_pass = placed.end() - placed.pass_blocks;
            if self.left.0 != ordinal {
                self.left = (ordinal, 0);
            }
            let mut segment = self.left.1;
            while segment < placed.segment_count() {
                let (offset, first, blocks) = placed.segment(segment, block_bytes);
                if last_pass + offset + blocks > base {
                    self.left.1 = segment;
                    // A segment that was not added in time is never added.
                    self.added = self.added.max((ordinal, segment));
                    self.next_leave = last_pass + offset + blocks;
                    return;
                }
                if (ordinal, segment) < self.added {
                    let file = self.files.get_mut(placed.file).expect("a segment's file is known");
                    for_each_piece(first, first + blocks, |level, block| {
                        self.pieces -= 1;
                        self.chains.pop(file, Key::new(placed.file, level, block), block);
                    });
                    self.segments -= 1;
                    file.segments -= 1;
                    if file.segments == 0 {
                        self.files.remove(placed.file);
                        changed(FileChange::Went(placed.file));
                    }
                }
                segment += 1;
            }
            self.left = (ordinal + 1, 0);
            self.added = self.added.max((ordinal + 1, 0));
            places.retire_first();
        }
    }

    /// The first position, at or after `from`, at which `block` will be read.
    #[inline]
    pub(crate) fn find(&mut self, places: &Places, block: Block, from: u64) -> Option<u64> {
        if let Some((file, only)) = self.asked
            && file == block.file
        {
            return self.in_segment(places, only, block.index, from);
        }
        let place = self.files.turn_to(block.file)?;
        let file = &self.files.uses[place];
        if file.segments == 1 {
            let only = file.last;
            self.asked = Some((block.file, only));
            return self.in_segment(places, only, block.index, from);
        }
        if file.levels == 1 {
            // A single block; usually the first segment of its chain is the next use.
            let chain = self.chains.of(file, Key::new(block.file, 0, block.index));
            if chain.position == NEVER {
                return None;
            }
            if chain.position >= from {
                return Some(chain.position);
            }
        }
        self.find_in_chains(places, place, block, from)
    }

    /// As [`find`](Self::find), for a file of several segments, by its place.
    #[inline(never)]
    fn find_in_chains(
        &mut self,
        places: &Places,
        place: usize,
        block: Block,
        from: u64,
    ) -> Option<u64> {
        let file = &self.files.uses[place];
        let mut levels = file.levels;
        let mut best: Option<u64> = None;
        while levels != 0 {
            let level = levels.trailing_zeros();
            levels &= levels - 1;
            let Chain { position, first, .. } =
                self.chains.of(file, Key::new(block.file, level, block.index));
            let into = block.index & ((1 << (LEVEL_BITS * level)) - 1);
            let (mut position, mut number) = (position, first);
            let mut left = CHAIN_TRIED_MAX;
            // Segments later in the chain begin later still.
            while position != NEVER && best.is_none_or(|best| best > position + into) {
                if left == 0 {
                    #[cfg(any(test, debug_assertions))]
                    {
                        self.gave_up = true;
                    }
                    break;
                }
                left -= 1;
                if position + into >= from {
                    best = Some(position + into);
                    break;
                }
                let node = self.chains.node(number);
                let found = self.in_a_pass(places, node.ordinal, position + into, from);
                best = match (best, found) {
                    (Some(best), Some(found)) => Some(best.min(found)),
                    (best, found) => best.or(found),
                };
                (position, number) = (node.next_position, node.next);
            }
        }
        best
    }

    /// The first position at or after `from` at which a segment accesses a block.
    fn in_segment(&self, places: &Places, segment: Entered, block: u64, from: u64) -> Option<u64> {
        let into = block.checked_sub(segment.first_block).filter(|&into| into < segment.blocks)?;
        self.in_a_pass(places, segment.ordinal, segment.position + into, from)
    }

    /// The first position at or after `from` of an access that a hint makes at `position` in its first pass.
    fn in_a_pass(&self, places: &Places, ordinal: u32, position: u64, from: u64) -> Option<u64> {
        if position >= from {
            return Some(position);
        }
        let first = places.ordinals().start;
        let hint = places.get(first + u64::from(ordinal.wrapping_sub(first as u32)))?;
        if hint.passes == 1 {
            return None; // The usual case; it saves a slow division.
        }
        let passes = (from - position).div_ceil(hint.pass_blocks);
        (passes < hint.passes).then(|| position + passes * hint.pass_blocks)
    }

    /// Loads the table entry of a single block, if there is a table, into the processor's caches.
    pub(crate) fn load_chain(&self, block: Block) {
        self.files.get(block.file).into_iter().for_each(|file| file.table.load(block.index));
    }

    /// Loads the piece that will leave next, and the file that was asked for last.
    pub(crate) fn load_parts(&self) {
        self.chains.nodes.front().into_iter().for_each(load_line);
        let last = self.files.last.and_then(|(_, place)| self.files.uses.get(place as usize));
        last.into_iter().for_each(load_lines);
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chains.by_piece.allocation_size()
            + self.chains.nodes.capacity() * size_of::<Node>()
            + self.files.memory_bytes()
    }
}

/// Cuts blocks `first..end` into aligned pieces.
#[inline]
fn for_each_piece(first: u64, end: u64, mut each: impl FnMut(u32, u64)) {
    if end - first == 1 {
        return each(0, first);
    }
    let mut block = first;
    while block < end {
        let aligned = (block.trailing_zeros() / LEVEL_BITS).min(LEVELS_MAX - 1);
        let fits = (end - block).ilog2() / LEVEL_BITS;
        let level = aligned.min(fits);
        each(level, block);
        block += 1 << (LEVEL_BITS * level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{Extent, Plan, Segment};
    use crate::tables::shrinking::SMALL_BYTES;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_few_and_cover() {
        for (first, end) in [(0, 1), (5, 6), (0, 1 << 27), (7, 9), (3, 1000), (511, 513)] {
            let (mut next, mut pieces) = (first, 0);
            for_each_piece(first, end, |level, block| {
                assert_eq!((block, block % (1 << (3 * level))), (next, 0));
                next += 1 << (3 * level);
                pieces += 1;
            });
            assert_eq!(next, end);
            assert!(pieces <= 14 * (1 + (end - first).ilog2() / 3), "{first}..{end}: {pieces}");
        }
    }

    #[test]
    fn a_table_is_not_made_anew_for_each_block_that_follows_it() {
        const PIECES: usize = 64;
        let (mut places, mut index) = (Places::new(1), NextUse::new());
        let segments: Vec<Segment> =
            (0..1000).map(|block| Segment { offset_bytes: 2 * block, length_bytes: 1 }).collect();
        let plan = Plan { extent: Extent::Segments(segments.into()), ..Plan::WHOLE };
        places.place(&plan, DeviceIndex(0), FileId(1), 2000);
        for base in 0..1000 {
            index.retire(&mut places, 1, base, |_| ());
            index.extend(&places, 1, PIECES, &mut usize::MAX.clone(), |_| ());
            let block = Block { file: FileId(1), index: 2 * base };
            assert_eq!(index.find(&places, block, base), Some(base));
        }
        assert!(index.chains.tabulated <= 16 * PIECES, "{} chains", index.chains.tabulated);
    }

    #[test]
    fn what_a_table_takes_over_leaves_no_room_behind() {
        let (mut places, mut index) = (Places::new(1), NextUse::new());
        let blocks: Vec<u64> = (0..4000).map(|number| number * 1601 % 4000).collect(); // All of them, far apart.
        let segments = blocks.iter().map(|&offset_bytes| Segment { offset_bytes, length_bytes: 1 });
        let plan = Plan { extent: Extent::Segments(segments.collect()), ..Plan::WHOLE };
        places.place(&plan, DeviceIndex(0), FileId(1), 4000);
        index.extend(&places, 1, usize::MAX, &mut usize::MAX.clone(), |_| ());
        assert!(index.chains.tabulated >= 4000, "{} chains", index.chains.tabulated);
        assert!(index.chains.by_piece.allocation_size() <= SMALL_BYTES);
        for (position, &block) in (0..).zip(&blocks) {
            let block = Block { file: FileId(1), index: block };
            assert_eq!(index.find(&places, block, 0), Some(position));
        }
    }

    type Ranges = Vec<(u64, u64)>;

    fn hints() -> impl Strategy<Value = Vec<(u64, Ranges, u32)>> {
        let ranges = prop::collection::vec((0u64..90, 0u64..40), 0..5);
        prop::collection::vec((0u64..3, ranges, 1u32..4), 1..8)
    }

    proptest! {
        /// The index agrees with a list of all accesses, wherever the cursor stands.
        #[test]
        fn it_agrees_with_a_list_of_all_accesses(
            hints in hints(), steps in prop::collection::vec((0u64..3, 0u64..14, 0u64..9), 1..40)
        ) {
            let (mut places, mut index) = (Places::new(10), NextUse::new());
            index.chains.gone = u32::MAX - 5; // Node numbers wrap around during the test.
            let mut work = usize::MAX;
            let mut files: Vec<FileId> = Vec::new();
            for (file, ranges, repeats) in hints {
                let segment = |(offset_bytes, length_bytes)| Segment { offset_bytes, length_bytes };
                let extent = match ranges.is_empty() {
                    true => Extent::WholeFile,
                    false => Extent::Segments(ranges.into_iter().map(segment).collect()),
                };
                let plan = Plan { extent, repeats, ..Plan::WHOLE };
                places.place(&plan, DeviceIndex(0), FileId(file), 120);
            }
            let all: Vec<Block> = (0..places.end())
                .map(|at| places.run_at(at).unwrap().block_at(at).unwrap())
                .collect();
            let mut note = |change| match change {
                FileChange::Came(file, _) => files.push(file),
                FileChange::Went(file) => files.retain(|&other| other != file),
            };
            index.extend(&places, 10, usize::MAX, &mut work, &mut note);
            let mut base = 0;
            for (file, block, ahead) in steps {
                let block = Block { file: FileId(file), index: block };
                let from = base + ahead;
                let expected =
                    (from..all.len() as u64).find(|&position| all[position as usize] == block);
                prop_assert_eq!(index.find(&places, block, from), expected, "{:?} {}", block, from);
                base += ahead / 2;
                index.retire(&mut places, 10, base, &mut note);
            }
            index.retire(&mut places, 10, u64::MAX / 2, &mut note);
            prop_assert!(files.is_empty() && index.chains.by_piece.is_empty() && index.load() == 0);
        }
    }
}
