//! The places of a stream's hints: every block access that they disclose has a *position*.
//!
//! Positions count from the stream's first access. A hint whose file is known is *placed*: its accesses get the next positions,
//! which are computed and not stored. A whole file takes one entry, whatever its size and repeat count. A segment takes 20
//! bytes: 16 of its own and the number of blocks up to its end in 4 bytes (8 if that is large). If all segments have equally
//! many blocks, only the 16 bytes are needed. Strides become segments a few thousand at a time. A stride that leaves out no
//! block becomes a single segment.
//!
//! A block shared by two neighbouring segments has one position, because programs read in calls of other sizes than they
//! disclose.
//!
//! Cost: O(1) to place a file, O(s) to place s segments. To find a position among h hints: O(log h + log s), or O(log h) if all
//! segments have equally many blocks. The next position is O(1), as a [`Run`] says how far it extends.

use std::sync::Arc;

use crate::blocks::{DeviceIndex, POSITION_END};
use crate::hint::{Block, Extent, FileId, Order, Plan, Segment};
use crate::tables::line::load_line;
use crate::tables::shrinking::HintQueue;

/// Ranges of a stride that become segments at a time.
/// Unit: segments. Reason: bound.
const STRIDE_CHUNK: u64 = 4096;

/// One hint takes at most the remaining positions divided by this, so that later hints get some even after endless ones. With
/// blocks of 4 KiB the first hint may cover 64 PiB, and one after 250 endless hints 4 GiB. All positions become free again when
/// they are past.
/// Unit: ratio. Reason: bound.
const HINT_SHARE_DIVISOR: u64 = 16;

/// A placed hint.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) file: FileId,
    pub(crate) device: DeviceIndex,
    pub(crate) order: Order,
    /// Position of its first access.
    pub(crate) start: u64,
    /// Accesses of one pass.
    pub(crate) pass_blocks: u64,
    /// Passes, at least 1.
    pub(crate) passes: u64,
    size_bytes: u64,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Whole,
    Segments { segments: Arc<[Segment]>, ends: Ends },
}

/// The number of blocks up to the end of each segment.
#[derive(Debug)]
enum Ends {
    /// One block in each segment: the one that contains its first byte.
    Single,
    /// This many in each.
    Equal(u64),
    Short(Box<[u32]>),
    Long(Box<[u64]>),
}

impl Ends {
    /// Picks the smallest form for `ends`, which is iterated several times.
    fn new(ends: impl ExactSizeIterator<Item = u64> + Clone) -> Self {
        let (first, last) = (ends.clone().next().unwrap_or(0), ends.clone().last().unwrap_or(0));
        if first > 0 && ends.clone().zip(1u64..).all(|(end, count)| end == first * count) {
            Ends::Equal(first)
        } else if u32::try_from(last).is_ok() {
            Ends::Short(ends.map(|end| end as u32).collect())
        } else {
            Ends::Long(ends.collect())
        }
    }

    fn end(&self, segment: usize) -> u64 {
        match self {
            Ends::Single => segment as u64 + 1,
            Ends::Equal(blocks) => (segment as u64 + 1) * blocks,
            Ends::Short(ends) => u64::from(ends[segment]),
            Ends::Long(ends) => ends[segment],
        }
    }

    /// The segment that contains the block at `offset` of a pass.
    fn segment_at(&self, offset: u64) -> usize {
        match self {
            Ends::Single => offset as usize,
            Ends::Equal(blocks) => (offset / blocks) as usize,
            Ends::Short(ends) => ends.partition_point(|&end| u64::from(end) <= offset),
            Ends::Long(ends) => ends.partition_point(|&end| end <= offset),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Ends::Single | Ends::Equal(_) => 0,
            Ends::Short(ends) => size_of_val(&ends[..]),
            Ends::Long(ends) => size_of_val(&ends[..]),
        }
    }
}

/// Accesses to adjacent blocks at adjacent positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) file: FileId,
    pub(crate) device: DeviceIndex,
    pub(crate) first_block: u64,
    pub(crate) first_position: u64,
    pub(crate) blocks: u64,
}

impl Run {
    pub(crate) fn end_position(&self) -> u64 {
        self.first_position + self.blocks
    }

    pub(crate) fn block_at(&self, position: u64) -> Option<Block> {
        let offset = position.checked_sub(self.first_position)?;
        (offset < self.blocks).then(|| Block { file: self.file, index: self.first_block + offset })
    }
}

impl Placed {
    /// Position after its last access.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.pass_blocks * self.passes
    }

    /// Bytes of the file in a block.
    pub(crate) fn bytes_in(&self, block: u64, block_bytes: u64) -> u64 {
        self.size_bytes.saturating_sub(block.saturating_mul(block_bytes)).min(block_bytes)
    }

    /// Bytes that its segments take.
    fn segments_bytes(&self) -> usize {
        match &self.shape {
            Shape::Whole => 0,
            Shape::Segments { segments, ends } => size_of_val(&segments[..]) + ends.memory_bytes(),
        }
    }

    pub(crate) fn segment_count(&self) -> usize {
        match &self.shape {
            Shape::Whole => 1,
            Shape::Segments { segments, .. } => segments.len(),
        }
    }

    /// The blocks of a segment: their offset within the pass, the index of the first block, and their number.
    pub(crate) fn segment(&self, index: usize, block_bytes: u64) -> (u64, u64, u64) {
        match &self.shape {
            Shape::Whole => (0, 0, self.pass_blocks),
            Shape::Segments { segments, ends: Ends::Single } => {
                (index as u64, whole_blocks(segments[index].offset_bytes, block_bytes), 1)
            }
            Shape::Segments { segments, ends } => {
                let offset = if index == 0 { 0 } else { ends.end(index - 1) };
                let blocks = ends.end(index) - offset;
                let (_, end) = span(segments[index], self.size_bytes, block_bytes);
                (offset, end - blocks, blocks)
            }
        }
    }

    /// The run that begins at `position`, which must lie in this hint. It extends to the end of its segment.
    fn run_at(&self, position: u64, block_bytes: u64) -> Run {
        let mut offset = position - self.start;
        if offset >= self.pass_blocks {
            offset %= self.pass_blocks;
        }
        let segment = match &self.shape {
            Shape::Whole => 0,
            Shape::Segments { ends, .. } => ends.segment_at(offset),
        };
        let (segment_offset, first_block, blocks) = self.segment(segment, block_bytes);
        let into = offset - segment_offset;
        Run {
            file: self.file,
            device: self.device,
            first_block: first_block + into,
            first_position: position,
            blocks: blocks - into,
        }
    }
}

/// Whole blocks in this many bytes. Block sizes are usually powers of two, and a shift is about 20 times as fast as a division.
#[inline]
fn whole_blocks(bytes: u64, block_bytes: u64) -> u64 {
    if block_bytes.is_power_of_two() {
        bytes >> block_bytes.trailing_zeros()
    } else {
        bytes / block_bytes
    }
}

/// Blocks that this many bytes occupy, if they start at the beginning of a block.
#[inline]
fn blocks_of(bytes: u64, block_bytes: u64) -> u64 {
    match bytes.checked_sub(1) {
        Some(last) => whole_blocks(last, block_bytes) + 1,
        None => 0,
    }
}

/// The blocks of the existing part of `segment`: the first one, and the one after the last. They are equal if no part exists.
fn span(segment: Segment, size_bytes: u64, block_bytes: u64) -> (u64, u64) {
    let first = whole_blocks(segment.offset_bytes, block_bytes);
    let end_bytes = segment.offset_bytes.saturating_add(segment.length_bytes).min(size_bytes);
    let end =
        if end_bytes > segment.offset_bytes { blocks_of(end_bytes, block_bytes) } else { first };
    (first, end)
}

/// Whether each of `segments` exists, lies in one block, and lies in another block than the segment before it.
fn are_single_blocks(segments: &[Segment], size_bytes: u64, block_bytes: u64) -> bool {
    let mut last = None;
    segments.iter().all(|&Segment { offset_bytes, length_bytes }| {
        let Some(last_byte) = length_bytes.checked_sub(1) else { return false };
        let Some(last_byte) = offset_bytes.checked_add(last_byte) else { return false };
        let block = whole_blocks(offset_bytes, block_bytes);
        last_byte < size_bytes
            && whole_blocks(last_byte, block_bytes) == block
            && last.replace(block) != Some(block)
    })
}

/// Whether the ranges of a stride leave out no block and each has at most two, so that they can be placed as one range. Placed
/// one by one, any number of such ranges might lie in one block and have no access of their own. Empty ranges count as dense
/// for the same reason.
fn is_dense(range: Segment, stride_bytes: u64, size_bytes: u64, block_bytes: u64) -> bool {
    let exists_bytes = range.length_bytes.min(size_bytes.saturating_sub(range.offset_bytes));
    exists_bytes == 0 || stride_bytes.max(exists_bytes) <= block_bytes
}

/// `count` ranges like `first`, a stride apart, as one range.
fn joined(first: Segment, stride_bytes: u64, count: u64) -> Segment {
    if count == 0 || first.length_bytes == 0 {
        return Segment { length_bytes: 0, ..first };
    }
    let to_last = (count - 1).saturating_mul(stride_bytes);
    Segment { length_bytes: first.length_bytes.saturating_add(to_last), ..first }
}

/// The result of placing a hint.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Placing {
    /// Whole blocks, of one pass, that lie beyond the end of the file.
    pub(crate) beyond_end: u64,
    /// The part of the hint that is left to be placed later.
    pub(crate) rest: Option<Extent>,
}

/// A stream's placed hints; see the [module](self).
#[derive(Debug)]
pub(crate) struct Places {
    placed: HintQueue<Placed>,
    /// Ordinal of the first hint in `placed`, counted from the beginning of the stream.
    first_ordinal: u64,
    /// Position after the last placed access.
    end: u64,
    block_bytes: u64,
    /// Bytes that the hints' segments take.
    segments_bytes: usize,
}

impl Places {
    pub(crate) fn new(block_bytes: u64) -> Self {
        Places {
            placed: HintQueue::new(),
            first_ordinal: 0,
            end: 0,
            block_bytes,
            segments_bytes: 0,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.placed.len()
    }

    pub(crate) fn first(&self) -> Option<&Placed> {
        self.placed.front()
    }

    pub(crate) fn get(&self, ordinal: u64) -> Option<&Placed> {
        self.placed.get(usize::try_from(ordinal.checked_sub(self.first_ordinal)?).ok()?)
    }

    pub(crate) fn ordinals(&self) -> std::ops::Range<u64> {
        self.first_ordinal..self.first_ordinal + self.placed.len() as u64
    }

    /// Whether placing `extent` takes several calls. Its passes are then placed one by one.
    pub(crate) fn in_parts(&self, extent: &Extent, size_bytes: u64) -> bool {
        match extent {
            &Extent::Strided { first, stride_bytes, count } => {
                count > STRIDE_CHUNK && !is_dense(first, stride_bytes, size_bytes, self.block_bytes)
            }
            _ => false,
        }
    }

    /// Gives the accesses of `plan` to `file` the next positions.
    pub(crate) fn place(
        &mut self,
        plan: &Plan,
        device: DeviceIndex,
        file: FileId,
        size_bytes: u64,
    ) -> Placing {
        let mut placing = Placing::default();
        let shape = match &plan.extent {
            Extent::WholeFile => Shape::Whole,
            Extent::Segments(segments) => {
                self.shape_of(Arc::clone(segments), size_bytes, &mut placing)
            }
            &Extent::Strided { first, stride_bytes, count }
                if is_dense(first, stride_bytes, size_bytes, self.block_bytes) =>
            {
                let segments = Arc::new([joined(first, stride_bytes, count)]);
                self.shape_of(segments, size_bytes, &mut placing)
            }
            &Extent::Strided { first, stride_bytes, count } => {
                let now = count.min(STRIDE_CHUNK);
                let at = |index: u64| {
                    first.offset_bytes.saturating_add(index.saturating_mul(stride_bytes))
                };
                let segments: Arc<[Segment]> =
                    (0..now).map(|index| Segment { offset_bytes: at(index), ..first }).collect();
                let rest = Segment { offset_bytes: at(now), ..first };
                // A stride that has left the file never comes back into it.
                if count > now && rest.offset_bytes < size_bytes {
                    let (first, count) = (rest, count - now);
                    placing.rest = Some(Extent::Strided { first, stride_bytes, count });
                }
                self.shape_of(segments, size_bytes, &mut placing)
            }
        };
        let most = self.most_of_a_hint();
        let pass_blocks = match &shape {
            Shape::Whole => blocks_of(size_bytes, self.block_bytes).min(most),
            Shape::Segments { segments, ends } => {
                segments.len().checked_sub(1).map_or(0, |last| ends.end(last))
            }
        };
        // A larger repeat count is as good as endless.
        let passes = most.checked_div(pass_blocks).unwrap_or(0);
        let passes = passes.min(u64::from(plan.repeats.max(1)));
        if passes == 0 {
            // Part of a stride has blocks but no positions are left, neither for it nor for the rest.
            placing.rest = None;
            return placing;
        }
        let (order, start) = (plan.order, self.end);
        let placed = Placed { file, device, order, start, pass_blocks, passes, size_bytes, shape };
        self.end = placed.end();
        self.segments_bytes += placed.segments_bytes();
        self.placed.push_back(placed);
        placing
    }

    /// Positions that the next hint may take at most.
    fn most_of_a_hint(&self) -> u64 {
        (POSITION_END - self.end) / HINT_SHARE_DIVISOR
    }

    fn shape_of(&self, segments: Arc<[Segment]>, size_bytes: u64, placing: &mut Placing) -> Shape {
        let block_bytes = self.block_bytes;
        if are_single_blocks(&segments, size_bytes, block_bytes) {
            return Shape::Segments { segments, ends: Ends::Single };
        }
        let file_end = blocks_of(size_bytes, self.block_bytes);
        for &segment in segments.iter() {
            if segment.offset_bytes.checked_add(segment.length_bytes) == Some(u64::MAX) {
                continue; // To the end of the file, wherever that is.
            }
            let (first, _) = span(segment, size_bytes, self.block_bytes);
            let (_, wanted_end) = span(segment, u64::MAX, self.block_bytes);
            let beyond = wanted_end.saturating_sub(first.max(file_end));
            placing.beyond_end = placing.beyond_end.saturating_add(beyond);
        }
        let (mut total, mut last, most) = (0u64, None, self.most_of_a_hint());
        let ends = segments.iter().map(move |&segment| {
            let (first, end) = span(segment, size_bytes, block_bytes);
            if end > first {
                let shared = last == Some(first);
                let blocks = end - first - u64::from(shared);
                // Segments that would take too many positions are left out.
                if blocks <= most && total <= most - blocks {
                    total += blocks;
                    last = Some(end - 1);
                }
            }
            total
        });
        let ends = Ends::new(ends);
        Shape::Segments { segments, ends }
    }

    /// The run that begins at `position`, if that is placed and not retired.
    pub(crate) fn run_at(&self, position: u64) -> Option<Run> {
        let placed = self.placed_at(position)?;
        Some(placed.run_at(position, self.block_bytes))
    }

    /// The hint that contains `position`.
    pub(crate) fn placed_at(&self, position: u64) -> Option<&Placed> {
        let is_in = |placed: &&Placed| (placed.start..placed.end()).contains(&position);
        // The reader is usually in the first hint.
        if let Some(first) = self.placed.front().filter(is_in) {
            return Some(first);
        }
        let after = self.placed.partition_point(|placed| placed.start <= position);
        self.placed.get(after.checked_sub(1)?).filter(is_in)
    }

    /// Loads the segment that contains the access at `position`, if it is one of the first hint's, into the processor's caches.
    #[inline]
    pub(crate) fn load_segment(&self, position: u64) {
        if let Some(Placed { start, shape: Shape::Segments { segments, ends }, .. }) = self.first()
            && let Some(offset) = position.checked_sub(*start)
            && let Ends::Single = ends
        {
            segments.get(offset as usize).into_iter().for_each(load_line);
        }
    }

    /// How many hints end after `position`.
    pub(crate) fn ends_after(&self, position: u64) -> u64 {
        (self.placed.len() - self.placed.partition_point(|placed| placed.end() <= position)) as u64
    }

    /// Drops the first hint.
    pub(crate) fn retire_first(&mut self) {
        if let Some(placed) = self.placed.pop_front() {
            self.first_ordinal += 1;
            self.segments_bytes -= placed.segments_bytes();
        }
    }

    /// Bytes of its hints and their segments, with spare room in the queue unless that is small.
    pub(crate) fn hint_bytes(&self) -> usize {
        self.segments_bytes + self.placed.room_bytes()
    }

    /// Bytes that it takes, including the segments of its hints.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.segments_bytes + self.placed.capacity() * size_of::<Placed>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const FILE: FileId = FileId(7);

    fn blocks(extent: Extent, repeats: u32, size_bytes: u64) -> (Vec<u64>, u64) {
        let mut plan = Plan { extent, repeats, ..Plan::WHOLE };
        let mut places = Places::new(10);
        let mut beyond_end = 0;
        loop {
            let placing = places.place(&plan, DeviceIndex(0), FILE, size_bytes);
            beyond_end += placing.beyond_end;
            match placing.rest {
                Some(rest) => plan.extent = rest,
                None => break,
            }
        }
        let block = |position| {
            places.run_at(position).map(|run| run.block_at(position).expect("its first").index)
        };
        assert_eq!(block(places.end()), None);
        let all: Vec<u64> = (0..places.end().min(20_000)).filter_map(block).collect();
        // Walking run by run gives the same.
        let (mut position, mut walked) = (0, Vec::new());
        while position < places.end().min(20_000) {
            let run = places.run_at(position).expect("placed");
            walked.extend((0..run.blocks).map(|offset| run.first_block + offset));
            position = run.end_position();
        }
        walked.truncate(20_000);
        assert_eq!(all, walked);
        (all, beyond_end)
    }

    fn ranges(list: &[(u64, u64)]) -> Extent {
        let segment = |&(offset_bytes, length_bytes)| Segment { offset_bytes, length_bytes };
        Extent::Segments(list.iter().map(segment).collect())
    }

    #[test]
    fn a_segment_to_the_largest_number_reaches_to_the_end() {
        assert_eq!(blocks(ranges(&[(15, u64::MAX - 15)]), 1, 35), (vec![1, 2, 3], 0));
        assert_eq!(blocks(ranges(&[(15, 100)]), 1, 35), (vec![1, 2, 3], 8));
    }

    #[test]
    fn a_whole_file_is_all_its_blocks() {
        assert_eq!(blocks(Extent::WholeFile, 1, 25).0, [0, 1, 2]);
        assert_eq!(blocks(Extent::WholeFile, 3, 15).0, [0, 1, 0, 1, 0, 1]);
        assert_eq!(blocks(Extent::WholeFile, 0, 5).0, [0]);
        assert_eq!(blocks(Extent::WholeFile, 1, 0).0, [0u64; 0]);
    }

    #[test]
    fn segments_keep_their_order_and_share_the_block_between_them() {
        assert_eq!(blocks(ranges(&[(35, 10), (0, 1), (9, 2)]), 1, 100).0, [3, 4, 0, 1]);
        assert_eq!(blocks(ranges(&[(0, 3), (3, 3), (6, 30)]), 2, 100).0, [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(blocks(ranges(&[(0, 5), (90, 0), (20, 5)]), 1, 100).0, [0, 2]);
        assert_eq!(blocks(ranges(&[]), 5, 100).0, [0u64; 0]);
    }

    #[test]
    fn what_lies_beyond_the_end_is_dropped_and_counted() {
        assert_eq!(blocks(ranges(&[(15, 30)]), 1, 25), (vec![1, 2], 2));
        assert_eq!(blocks(ranges(&[(500, 20)]), u32::MAX, 100), (vec![], 2));
    }

    #[test]
    fn a_stride_ends_where_there_are_no_positions_left() {
        let mut places = Places::new(10);
        let for_ever = Plan { repeats: u32::MAX, ..Plan::WHOLE };
        while places.most_of_a_hint() > 0 {
            places.place(&for_ever, DeviceIndex(0), FILE, 1 << 40);
        }
        let first = Segment { offset_bytes: 0, length_bytes: 20 };
        let extent = Extent::Strided { first, stride_bytes: 0, count: u64::MAX };
        let plan = Plan { extent, ..Plan::WHOLE };
        assert_eq!(places.place(&plan, DeviceIndex(0), FILE, 100), Placing::default());
    }

    #[test]
    fn a_stride_is_its_ranges_and_ends_with_the_file() {
        let first = Segment { offset_bytes: 5, length_bytes: 10 };
        let stride = |stride_bytes, count| Extent::Strided { first, stride_bytes, count };
        assert_eq!(blocks(stride(30, 3), 1, 1000).0, [0, 1, 3, 4, 6, 7]);
        let all = blocks(stride(20, u64::MAX), 1, 200_000).0;
        assert_eq!((all.len(), all[19_999]), (20_000, 19_999));
    }
}
