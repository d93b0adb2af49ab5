//! The blocks that a recording reads, in order, held as runs of neighbours.
//!
//! Memory follows the reads of a recording, not the number of blocks: 16 bytes for each read that does not
//! continue the one before. A read of 2 GiB is one run, whatever the block size, and so is a file that is read
//! in sequence.

use std::collections::HashMap;

use foretell_policy::{Block, FileId};

/// Neighbouring blocks of one file that are read in sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first_block: u64,
    /// An index into [`Reads::files`].
    file: u32,
    blocks: u32,
}

/// Reads in order, held as runs of neighbouring blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    files: Vec<FileId>,
    places: HashMap<FileId, u32>,
    runs: Vec<Run>,
    blocks: u64,
    reads: u64,
}

impl Reads {
    /// Blocks read; a block counts as often as it is read. At most 2^64−1.
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Whether nothing is read.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// The number of runs, which determines the memory.
    pub fn runs_held(&self) -> usize {
        self.runs.len()
    }

    /// Adds a read of `blocks` of `file` from `first_block` on, none of them beyond block 2^64−1.
    pub fn push(&mut self, file: FileId, first_block: u64, blocks: u64) {
        self.reads += 1;
        self.blocks = self.blocks.saturating_add(blocks);
        let files = &mut self.files;
        let file = *self.places.entry(file).or_insert_with(|| {
            files.push(file);
            u32::try_from(files.len() - 1).expect("a recording has fewer than 2^32 files")
        });
        let (mut first_block, mut left) = (first_block, blocks);
        if let Some(last) = self.runs.last_mut()
            && last.file == file
            && last.first_block.checked_add(u64::from(last.blocks)) == Some(first_block)
        {
            let more = left.min(u64::from(u32::MAX - last.blocks));
            last.blocks += more as u32; // Bounded by u32::MAX in the line above.
            (first_block, left) = (first_block.wrapping_add(more), left - more);
        }
        while left > 0 {
            let some = left.min(u64::from(u32::MAX));
            self.runs.push(Run { first_block, file, blocks: some as u32 });
            (first_block, left) = (first_block.wrapping_add(some), left - some);
        }
    }

    /// The runs in order: file, first block, and number of blocks.
    pub fn runs(&self) -> impl Iterator<Item = (FileId, u64, u64)> + Clone {
        self.runs
            .iter()
            .map(|run| (self.files[run.file as usize], run.first_block, u64::from(run.blocks)))
    }

    /// The blocks in order.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + Clone {
        self.runs().flat_map(|(file, first_block, blocks)| {
            (0..blocks).map(move |at| Block { file, index: first_block + at })
        })
    }

    /// The least power of two by which larger blocks are certain to bring these reads down to `most` blocks;
    /// `None` if it is greater than `factor_max`.
    pub fn factor_for(&self, most: u64, factor_max: u64) -> Option<u64> {
        let factors = std::iter::successors(Some(2u64), |factor| factor.checked_mul(2));
        factors.take_while(|&factor| factor <= factor_max).find(|factor| {
            // Each read may begin and end within a block that its neighbours also touch.
            let whole = self.runs.iter().map(|run| u64::from(run.blocks) / factor);
            whole.sum::<u64>().saturating_add(self.reads.saturating_mul(2)) <= most
        })
    }
}

impl FromIterator<Block> for Reads {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Self {
        let mut reads = Reads::default();
        blocks.into_iter().for_each(|block| reads.push(block.file, block.index, 1));
        reads
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_come_out_as_they_went_in(
            pushed in prop::collection::vec((0u64..3, 0u64..20, 1u64..6), 0..50),
        ) {
            let mut reads = Reads::default();
            let mut blocks = Vec::new();
            for (file, first, count) in pushed {
                reads.push(FileId(file), first, count);
                blocks.extend((first..first + count).map(|index| Block { file: FileId(file), index }));
            }
            prop_assert_eq!(reads.len(), blocks.len() as u64);
            prop_assert_eq!(&reads.blocks().collect::<Vec<_>>(), &blocks);
            let one_by_one: Reads = blocks.iter().copied().collect();
            prop_assert_eq!(one_by_one.runs, reads.runs);
        }
    }

    #[test]
    fn the_longest_runs() {
        let mut reads = Reads::default();
        let (long, file) = (u64::from(u32::MAX) + 5, FileId(7));
        reads.push(file, 10, long);
        reads.push(file, 10 + long, 2);
        reads.push(FileId(u64::MAX), u64::MAX, 1);
        assert_eq!(
            reads.runs_held(),
            3,
            "a part of a run of 2^32 blocks, the rest, and another file"
        );
        let runs: Vec<_> = reads.runs().collect();
        assert_eq!(runs[1], (file, 10 + u64::from(u32::MAX), 7));
        assert_eq!(runs[2], (FileId(u64::MAX), u64::MAX, 1));
        assert_eq!(reads.len(), long + 3);
    }

    #[test]
    fn how_much_larger_blocks_have_to_be() {
        let mut reads = Reads::default();
        for _ in 0..4 {
            reads.push(FileId(1), 0, 1000);
        }
        assert_eq!(reads.factor_for(4000, 64), Some(2));
        assert_eq!(reads.factor_for(520, 64), Some(8));
        assert_eq!(reads.factor_for(60, 8), None, "not by blocks so much larger");
        assert_eq!(reads.factor_for(7, 1 << 40), None, "each read has a block at least");
    }
}
