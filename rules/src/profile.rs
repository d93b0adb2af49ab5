//! Regions of a file from its recorded reads, as in the 2014 advice paper: contiguous ranges that do not overlap, within which
//! offsets rise; or the whole file as one, where it is read so.
//!
//! A. *Pieces.* Reads of a process that follow each other in the file are one piece.
//! B. *Runs.* A run of a process ends where the next piece begins before the end of the last one.
//! C. *Regions of a run.* Four pieces or more of one length and one distance are a strided region. Other pieces are sequential
//!    regions, joined over gaps of up to 128 KiB: to read a small gap costs less than another request.
//! D. *No overlap.* What an earlier run has is left out of later ones.
//! E. *No order.* If more than a quarter of the pieces begin runs, no order is told. The file is read as a whole if a half of
//!    its span was read, and not ahead at all otherwise.
//!
//! Pure. Memory: [`PIECES_MAX`] pieces of all files.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::{Access, Plan, REGIONS_MAX, Region};

/// Pieces that are kept of all files, 16 bytes each. Reads beyond that do not count.
pub const PIECES_MAX: usize = 1 << 22;

/// C: gaps up to this are read too: what the kernel reads ahead at once by default.
const GAP_MAX_BYTES: u64 = 128 << 10;

/// C: so many pieces make a stride. Fewer may be one by chance.
const STRIDE_MIN: usize = 4;

/// E: fewer pieces tell nothing about their order.
const ORDER_MIN: usize = 8;

/// The reads of several files; see the [module](self).
#[derive(Debug, Default)]
pub struct Reads {
    files: HashMap<u64, File>,
    pieces: usize,
    lost: u64,
}

#[derive(Debug, Default)]
struct File {
    /// By process, in the order of first use.
    readers: Vec<(u32, Vec<Range<u64>>)>,
    /// Where a read found the end.
    size_bytes: Option<u64>,
    read_bytes: u64,
}

impl Reads {
    /// A process has read so many bytes of a file. 0: its end is there.
    pub fn add(&mut self, file: u64, process: u32, offset_bytes: u64, length_bytes: u64) {
        let file = self.files.entry(file).or_default();
        if length_bytes == 0 {
            file.size_bytes = file.size_bytes.max(Some(offset_bytes));
            return;
        }
        let end = offset_bytes.saturating_add(length_bytes);
        file.read_bytes = file.read_bytes.saturating_add(length_bytes);
        let known = file.readers.iter().position(|(other, _)| *other == process);
        let at = known.unwrap_or_else(|| {
            file.readers.push((process, Vec::new()));
            file.readers.len() - 1
        });
        let pieces = &mut file.readers[at].1;
        match pieces.last_mut() {
            Some(last) if (last.start..=last.end).contains(&offset_bytes) => {
                last.end = last.end.max(end);
            }
            _ if self.pieces >= PIECES_MAX => self.lost += 1,
            _ => {
                self.pieces += 1;
                pieces.push(offset_bytes..end);
            }
        }
    }

    /// A file has this size, unless a read has found its end elsewhere.
    pub fn ends_at(&mut self, file: u64, size_bytes: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.size_bytes.get_or_insert(size_bytes);
        }
    }

    /// Whether anything was read of a file.
    pub fn is_read(&self, file: u64) -> bool {
        self.files.get(&file).is_some_and(|file| file.read_bytes > 0)
    }

    /// Bytes of a file that were read, each counted once however often and by how many processes.
    pub fn distinct_bytes(&self, file: u64) -> u64 {
        self.files.get(&file).map_or(0, |file| file.covered().bytes())
    }

    /// Reads that did not fit in memory.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How the file is to be read ahead; `None` if nothing was read.
    pub fn plan(&self, file: u64) -> Option<Plan> {
        let file = self.files.get(&file).filter(|file| file.read_bytes > 0)?;
        let mut regions = file.regions();
        if regions.len() > REGIONS_MAX {
            regions = vec![file.span(Access::Sequential)];
        }
        let end = file.size_bytes.unwrap_or(u64::MAX);
        for region in &mut regions {
            let reaches_end = |length| region.offset_bytes.saturating_add(length) >= end;
            region.length_bytes = region.length_bytes.filter(|&length| !reaches_end(length));
        }
        if regions == [Region::FILE] {
            regions.clear();
        }
        Some(Plan { regions, ..Plan::default() })
    }
}

impl File {
    fn regions(&self) -> Vec<Region> {
        let pieces: usize = self.readers.iter().map(|(_, pieces)| pieces.len()).sum();
        let runs: Vec<&[Range<u64>]> =
            self.readers.iter().flat_map(|(_, pieces)| runs(pieces)).collect();
        if pieces >= ORDER_MIN && (runs.len() - self.readers.len()) * 4 > pieces {
            return vec![self.without_order()]; // E
        }
        let (mut regions, mut covered) = (Vec::new(), Covered::default());
        for run in runs {
            let rest: Vec<Range<u64>> = run.iter().flat_map(|piece| covered.lacks(piece)).collect();
            rest.iter().for_each(|piece| covered.add(piece));
            regions_of(&rest, &mut covered, &mut regions);
        }
        regions
    }

    /// From the first byte that was read to the last one.
    fn span(&self, access: Access) -> Region {
        let pieces = || self.readers.iter().flat_map(|(_, pieces)| pieces);
        let start = pieces().map(|piece| piece.start).min().unwrap_or(0);
        let end = pieces().map(|piece| piece.end).max().unwrap_or(1);
        Region { offset_bytes: start, length_bytes: Some(end - start), access }
    }

    fn covered(&self) -> Covered {
        let mut covered = Covered::default();
        self.readers.iter().flat_map(|(_, pieces)| pieces).for_each(|piece| covered.add(piece));
        covered
    }

    fn without_order(&self) -> Region {
        let span = self.span(Access::Whole);
        match self.covered().bytes() >= span.length_bytes.unwrap_or(0) / 2 {
            true => span,
            false => Region { access: Access::Random, ..Region::FILE },
        }
    }
}

/// B: pieces in parts within which they rise.
fn runs(pieces: &[Range<u64>]) -> impl Iterator<Item = &[Range<u64>]> {
    pieces.chunk_by(|one, next| next.start >= one.end)
}

/// C: adds the regions of pieces that rise.
fn regions_of(pieces: &[Range<u64>], covered: &mut Covered, regions: &mut Vec<Region>) {
    let mut at = 0;
    while at < pieces.len() {
        let strided = stride_at(&pieces[at..]);
        if let Some((count, region)) = strided {
            regions.push(region);
            at += count;
            continue;
        }
        let piece = &pieces[at];
        at += 1;
        let last = regions.last_mut();
        if let Some(Region { offset_bytes, length_bytes: Some(length), access: Access::Sequential }) =
            last
            && *offset_bytes + *length <= piece.start
        {
            let gap = *offset_bytes + *length..piece.start;
            // A gap that an earlier run has read stays its own.
            let free: u64 = covered.lacks(&gap).map(|part| part.end - part.start).sum();
            let gap_bytes = gap.end - gap.start;
            if gap_bytes <= GAP_MAX_BYTES && free == gap_bytes {
                covered.add(&gap);
                *length = piece.end - *offset_bytes;
                continue;
            }
        }
        regions.push(Region {
            offset_bytes: piece.start,
            length_bytes: Some(piece.end - piece.start),
            access: Access::Sequential,
        });
    }
}

/// The strided region that pieces begin with, and how many of them it has. Dense ones are sequential.
fn stride_at(pieces: &[Range<u64>]) -> Option<(usize, Region)> {
    let [first, second, ..] = pieces else { return None };
    let (length, stride) = (first.end - first.start, second.start - first.start);
    let follows = |(at, piece): (usize, &Range<u64>)| {
        let start = (at as u64).checked_mul(stride).and_then(|far| first.start.checked_add(far));
        start == Some(piece.start) && piece.end - piece.start == length
    };
    let count = pieces.iter().enumerate().take_while(|&piece| follows(piece)).count();
    if count < STRIDE_MIN || stride - length <= GAP_MAX_BYTES && stride <= 2 * length {
        return None;
    }
    let access =
        Access::Strided { length_bytes: length, stride_bytes: stride, count: Some(count as u64) };
    Some((count, Region { offset_bytes: first.start, length_bytes: None, access }))
}

/// Ranges that do not overlap.
#[derive(Debug, Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// What of `range` is not covered.
    fn lacks(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let (mut from, mut lacking) = (range.start, Vec::new());
        let before = self.0.range(..range.start).next_back();
        for (&start, &end) in before.into_iter().chain(self.0.range(range.start..range.end)) {
            if start > from {
                lacking.push(from..start);
            }
            from = from.max(end);
        }
        if from < range.end {
            lacking.push(from..range.end);
        }
        lacking.into_iter()
    }

    fn add(&mut self, range: &Range<u64>) {
        for part in self.lacks(range) {
            self.0.insert(part.start, part.end);
        }
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn plan(reads: &[(u64, u64)]) -> Vec<Region> {
        let mut all = Reads::default();
        reads.iter().for_each(|&(offset, length)| all.add(1, 7, offset, length));
        all.plan(1).expect("it was read").regions
    }

    fn part(offset_bytes: u64, length_bytes: u64) -> Region {
        Region { offset_bytes, length_bytes: Some(length_bytes), access: Access::Sequential }
    }

    fn strided(offset_bytes: u64, length_bytes: u64, stride_bytes: u64, count: u64) -> Region {
        let access = Access::Strided { length_bytes, stride_bytes, count: Some(count) };
        Region { offset_bytes, length_bytes: None, access }
    }

    #[test]
    fn a_file_that_is_read_to_its_end_is_one_region() {
        let mut reads: Vec<(u64, u64)> = (0..100).map(|at| (at * 4096, 4096)).collect();
        assert_eq!(plan(&reads), [part(0, 409_600)], "its end is not known");
        reads.push((409_600, 0));
        assert_eq!(plan(&reads), []);
        // A program that asks for the size does not read at the end.
        let mut all = Reads::default();
        all.add(1, 7, 0, 409_600);
        all.ends_at(1, 409_600);
        assert_eq!(all.plan(1).expect("it was read").regions, []);
        all.ends_at(1, 500_000);
        assert_eq!(all.plan(1).expect("it was read").regions, [], "the first size holds");
        let reads = [(0, 4096), (100_000, 4096), (200_000, 4096), (204_096, 0)];
        assert_eq!(plan(&reads), [], "gaps are read too");
    }

    #[test]
    fn regions_begin_where_offsets_fall_and_behind_large_gaps() {
        let reads = [(10 * MIB, MIB), (11 * MIB, MIB), (0, MIB), (5 * MIB, 10)];
        assert_eq!(plan(&reads), [part(10 * MIB, 2 * MIB), part(0, MIB), part(5 * MIB, 10)]);
    }

    #[test]
    fn what_is_read_again_is_no_other_region() {
        let reads = [(0, MIB), (0, MIB), (MIB / 2, MIB)];
        assert_eq!(plan(&reads), [part(0, MIB + MIB / 2)]);
        let reads = [(0, MIB), (9 * MIB, MIB), (0, MIB), (9 * MIB, 2 * MIB)];
        assert_eq!(plan(&reads), [part(0, MIB), part(9 * MIB, 2 * MIB)]);
    }

    #[test]
    fn parts_of_one_length_and_distance_are_a_stride() {
        let parts: Vec<(u64, u64)> = (0..50).map(|at| (at * MIB, 65_536)).collect();
        assert_eq!(plan(&parts), [strided(0, 65_536, MIB, 50)]);
        // A header before, a part of another length behind; and the same columns next to it.
        let mut reads = vec![(0, 512)];
        reads.extend((1..50).map(|at| (at * MIB, 4096)));
        reads.push((50 * MIB, 100));
        reads.extend((1..50).map(|at| (at * MIB + 8192, 4096)));
        let all = [
            part(0, 512),
            strided(MIB, 4096, MIB, 49),
            part(50 * MIB, 100),
            strided(MIB + 8192, 4096, MIB, 49),
        ];
        assert_eq!(plan(&reads), all);
        let dense: Vec<(u64, u64)> = (0..50).map(|at| (at * 3000, 2000)).collect();
        assert_eq!(plan(&dense), [part(0, 49 * 3000 + 2000)]);
    }

    #[test]
    fn without_an_order_a_file_is_read_as_a_whole_or_not_ahead() {
        let shuffled = |length| -> Vec<(u64, u64)> {
            (0..101_u64).map(|at| ((at * 37 % 101) * MIB, length)).collect()
        };
        assert_eq!(plan(&shuffled(MIB)), [Region { access: Access::Whole, ..part(0, 101 * MIB) }]);
        assert_eq!(plan(&shuffled(4096)), [Region { access: Access::Random, ..Region::FILE }]);
    }

    #[test]
    fn processes_have_runs_of_their_own() {
        let mut all = Reads::default();
        for at in 0..10 {
            all.add(1, 1, at * MIB, MIB);
            all.add(1, 2, (100 + at) * MIB, MIB);
        }
        let regions = all.plan(1).expect("it was read").regions;
        assert_eq!(regions, [part(0, 10 * MIB), part(100 * MIB, 10 * MIB)]);
        assert_eq!((all.distinct_bytes(1), all.lost()), (20 * MIB, 0));
        all.add(1, 3, 0, 5 * MIB);
        assert_eq!(all.distinct_bytes(1), 20 * MIB, "a byte counts once");
        assert!(all.plan(2).is_none() && !all.is_read(2));
    }

    #[test]
    fn too_many_regions_are_one() {
        let mut reads = Vec::new();
        for at in 0..=REGIONS_MAX as u64 {
            reads.push((at * at * MIB, 1000 + at));
        }
        assert_eq!(plan(&reads).len(), 1);
    }
}
