//! One hint on its way through the policy: not looked up, looked up, worked off block by block.
//!
//! An entry holds the hint and a position in it, never the expansion of the hint into blocks, so a
//! hint of a terabyte, read a thousand times, costs the same few words as one of a page.

use crate::hint::{Block, Extent, FileId, Hint, Segment, StreamId};

/// How far the lookup of an entry's name has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Not asked for.
    Pending,
    /// The driver is looking it up.
    InFlight,
    /// Known.
    File { file: FileId, size_bytes: u64 },
}

/// A hint and the position up to which its blocks have been dealt with.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) hint: Hint,
    pub(crate) stream: StreamId,
    pub(crate) resolution: Resolution,
    /// Passes over the extent that are complete.
    pass: u32,
    /// Index of the current segment.
    segment: usize,
    /// Block index within the file, or `None` at the start of a segment.
    block: Option<u64>,
}

/// Blocks `first..end` of a file: what is left of the entry's current segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) file: FileId,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl Entry {
    pub(crate) fn new(stream: StreamId, hint: Hint) -> Self {
        Entry { hint, stream, resolution: Resolution::Pending, pass: 0, segment: 0, block: None }
    }

    /// How many passes are complete.
    pub(crate) fn pass(&self) -> u32 {
        self.pass
    }

    /// What is left of the current segment, moving on over empty ones; `None` when the entry is
    /// worked off (or its name not resolved).
    pub(crate) fn span(&mut self, block_bytes: u64) -> Option<Span> {
        let Resolution::File { file, size_bytes } = self.resolution else { return None };
        let passes = self.hint.repeats.max(1);
        let mut segments_seen = 0;
        while self.pass < passes {
            let Some(segment) = self.current_segment(size_bytes) else {
                // A pass in which nothing was left to read will not find anything the next time.
                if segments_seen >= self.segment_count() {
                    self.pass = passes;
                } else {
                    self.pass += 1;
                }
                self.segment = 0;
                continue;
            };
            let segment_end = segment.offset_bytes.saturating_add(segment.length_bytes);
            let end = segment_end.min(size_bytes).div_ceil(block_bytes);
            let first = self.block.unwrap_or(segment.offset_bytes / block_bytes);
            if segment.length_bytes > 0 && first < end {
                return Some(Span { file, first, end });
            }
            segments_seen += usize::from(self.block.is_none());
            self.segment += 1;
            self.block = None;
        }
        None
    }

    /// Sets the position in the current segment to `block`.
    pub(crate) fn advance_to(&mut self, block: u64) {
        self.block = Some(block);
    }

    /// Whole blocks of the hint that lie beyond the end of the file, for one pass.
    pub(crate) fn blocks_beyond_end(&self, block_bytes: u64) -> u64 {
        let (Resolution::File { size_bytes, .. }, Extent::Segments(segments)) =
            (self.resolution, &self.hint.extent)
        else {
            return 0;
        };
        let file_end = size_bytes.div_ceil(block_bytes);
        segments
            .iter()
            .map(|segment| {
                let first = segment.offset_bytes / block_bytes;
                let end =
                    segment.offset_bytes.saturating_add(segment.length_bytes).div_ceil(block_bytes);
                end.saturating_sub(first.max(file_end))
            })
            .fold(0, u64::saturating_add)
    }

    /// The demand read of `block` overtook the prefetcher: whatever lies before it in the current
    /// segment is past too.
    pub(crate) fn overtaken_at(&mut self, block: Block, block_bytes: u64) {
        match self.span(block_bytes) {
            Some(span)
                if span.file == block.file && (span.first..span.end).contains(&block.index) =>
            {
                self.block = Some(block.index + 1);
            }
            _ => {}
        }
    }

    fn segment_count(&self) -> usize {
        match &self.hint.extent {
            Extent::WholeFile => 1,
            Extent::Segments(segments) => segments.len(),
        }
    }

    fn current_segment(&self, size_bytes: u64) -> Option<Segment> {
        match &self.hint.extent {
            Extent::WholeFile if self.segment == 0 => {
                Some(Segment { offset_bytes: 0, length_bytes: size_bytes })
            }
            Extent::WholeFile => None,
            Extent::Segments(segments) => segments.get(self.segment).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{DeviceId, NameId};

    const FILE: FileId = FileId(7);

    fn entry(extent: Extent, repeats: u32, size_bytes: u64) -> Entry {
        let hint = Hint { name: NameId(1), device: DeviceId(0), extent, repeats };
        let mut entry = Entry::new(StreamId(0), hint);
        entry.resolution = Resolution::File { file: FILE, size_bytes };
        entry
    }

    fn blocks(entry: &mut Entry) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(span) = entry.span(10) {
            all.push(span.first);
            entry.advance_to(span.first + 1);
            assert!(all.len() < 1000, "an entry must end");
        }
        all
    }

    fn ranges(list: &[(u64, u64)]) -> Extent {
        let segment = |&(offset_bytes, length_bytes)| Segment { offset_bytes, length_bytes };
        Extent::Segments(list.iter().map(segment).collect())
    }

    #[test]
    fn a_whole_file_is_all_its_blocks() {
        assert_eq!(blocks(&mut entry(Extent::WholeFile, 1, 25)), [0, 1, 2]);
        assert_eq!(blocks(&mut entry(Extent::WholeFile, 1, 0)), [0u64; 0]);
    }

    #[test]
    fn segments_keep_their_order_and_partial_blocks_count() {
        let extent = ranges(&[(35, 10), (0, 1), (9, 2)]);
        assert_eq!(blocks(&mut entry(extent, 1, 100)), [3, 4, 0, 0, 1]);
    }

    #[test]
    fn repeats_start_over() {
        assert_eq!(blocks(&mut entry(ranges(&[(0, 20)]), 3, 100)), [0, 1, 0, 1, 0, 1]);
        assert_eq!(blocks(&mut entry(Extent::WholeFile, 0, 10)), [0]);
    }

    #[test]
    fn a_hint_with_nothing_to_read_ends_at_once_however_often_repeated() {
        assert_eq!(blocks(&mut entry(ranges(&[(500, 20)]), u32::MAX, 100)), [0u64; 0]);
        assert_eq!(blocks(&mut entry(ranges(&[]), u32::MAX, 100)), [0u64; 0]);
        assert_eq!(blocks(&mut entry(Extent::WholeFile, u32::MAX, 0)), [0u64; 0]);
    }

    #[test]
    fn what_lies_beyond_the_end_is_dropped_and_counted() {
        let mut beyond = entry(ranges(&[(15, 30), (90, u64::MAX)]), 1, 25);
        assert_eq!(blocks(&mut beyond), [1, 2]);
        let mut one = entry(ranges(&[(15, 30)]), 1, 25);
        assert_eq!(one.blocks_beyond_end(10), 2);
        assert_eq!(blocks(&mut one), [1, 2]);
    }

    #[test]
    fn a_demand_read_ahead_of_the_prefetcher_moves_the_entry_on() {
        let mut overtaken = entry(Extent::WholeFile, 1, 100);
        overtaken.overtaken_at(Block { file: FILE, index: 6 }, 10);
        assert_eq!(blocks(&mut overtaken), [7, 8, 9]);
        overtaken.overtaken_at(Block { file: FILE, index: 2 }, 10);
    }
}
