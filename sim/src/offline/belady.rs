//! Belady's MIN: the fewest misses of a cache that fetches a block when it is read, and not before.
//!
//! On a miss with a full cache, MIN evicts the block whose next read is furthest away, or one that is never
//! read again (Belady, IBM Systems Journal 5(2), 1966; shown optimal by Mattson et al. 1970). Every block that
//! is read enters the cache. A policy that fetches ahead of reads can have fewer misses, but not fewer fetches.
//!
//! O(n log n) time for n reads; 4 bytes for each read, and about 60 for each distinct or resident block. Reads
//! are identified by their position, and resident blocks are ordered by the position of their next read.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Stands for the next read of a block that is not read again.
const NEVER: u32 = u32::MAX;

/// The outcome of MIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Belady {
    /// Reads that find their block.
    pub hits: u64,
    /// Reads that do not.
    pub misses: u64,
}

impl Belady {
    /// Runs `reads`, fewer than 2^32, through a cache of `capacity_blocks`, which is at least 1. The cache is
    /// empty at first.
    pub fn run<B: Eq + Hash>(reads: impl IntoIterator<Item = B>, capacity_blocks: u64) -> Self {
        assert!(capacity_blocks > 0, "a cache has room for a block");
        // Blocks that are read again, by their next reads, and the number of others, which are interchangeable.
        let mut resident: BTreeSet<u32> = BTreeSet::new();
        let mut over = 0u64;
        let mut result = Belady::default();
        for (position, next) in (0..).zip(next_reads(reads)) {
            if resident.remove(&position) {
                result.hits += 1;
            } else {
                result.misses += 1;
                match resident.len() as u64 + over {
                    blocks if blocks < capacity_blocks => {}
                    _ if over > 0 => over -= 1,
                    _ => drop(resident.pop_last()),
                }
            }
            if next == NEVER {
                over += 1;
            } else {
                resident.insert(next);
            }
        }
        result
    }
}

/// For each position, the next position at which the same block is read.
fn next_reads<B: Eq + Hash>(reads: impl IntoIterator<Item = B>) -> Vec<u32> {
    let mut next_reads = Vec::new();
    let mut last_of: HashMap<B, u32> = HashMap::new();
    for block in reads {
        let position = u32::try_from(next_reads.len()).ok().filter(|&position| position != NEVER);
        let position = position.expect("fewer than 2^32 reads");
        next_reads.push(NEVER);
        if let Some(last) = last_of.insert(block, position) {
            next_reads[last as usize] = position;
        }
    }
    next_reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn misses(reads: &[u32], capacity: u64) -> u64 {
        let result = Belady::run(reads, capacity);
        assert_eq!(result.hits + result.misses, reads.len() as u64);
        result.misses
    }

    #[test]
    fn textbook_sequences() {
        // Silberschatz et al., Operating System Concepts, the page-replacement example: 9 faults.
        let silberschatz = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        assert_eq!(misses(&silberschatz, 3), 9);
        // Belady, Nelson and Shedler 1969, the anomaly of FIFO.
        let anomaly = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
        assert_eq!([3, 4].map(|capacity| misses(&anomaly, capacity)), [7, 6]);
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(misses(&[], 1), 0);
        assert_eq!(misses(&[5, 5, 5], 1), 1);
        assert_eq!(misses(&[1, 2, 1, 2], 1), 4);
        assert_eq!(misses(&[1, 2, 1, 2], u64::MAX), 2);
        // A loop of n blocks over n-1 buffers costs n misses, then one in every n-1 reads.
        let endless: Vec<u32> = (0..400).map(|i| i % 5).collect();
        assert_eq!(misses(&endless, 4), 5 + (400 - 5) / 4);
    }

    /// The fewest misses over all choices of victims, found by trying all of them. `resident` and the keys of
    /// `known` are sets of blocks 0 to 15.
    fn fewest_misses(
        reads: &[u32],
        capacity: u32,
        resident: u16,
        known: &mut HashMap<(usize, u16), u64>,
    ) -> u64 {
        let Some((&block, rest)) = reads.split_first() else {
            return 0;
        };
        if let Some(&misses) = known.get(&(reads.len(), resident)) {
            return misses;
        }
        let block = 1 << block;
        let misses = if resident & block != 0 {
            fewest_misses(rest, capacity, resident, known)
        } else if resident.count_ones() < capacity {
            1 + fewest_misses(rest, capacity, resident | block, known)
        } else {
            let victims = (0..16).map(|bit| 1 << bit).filter(|victim| resident & victim != 0);
            let each = victims
                .map(|victim| fewest_misses(rest, capacity, resident & !victim | block, known));
            1 + each.min().expect("a full cache has a victim")
        };
        known.insert((reads.len(), resident), misses);
        misses
    }

    proptest! {
        #[test]
        fn no_choice_of_victims_has_fewer_misses(
            reads in prop::collection::vec(0u32..7, 0..28), capacity in 1u32..6,
        ) {
            let fewest = fewest_misses(&reads, capacity, 0, &mut HashMap::new());
            prop_assert_eq!(misses(&reads, capacity.into()), fewest);
        }

        #[test]
        fn more_room_never_costs(
            reads in prop::collection::vec(0u32..40, 0..300), capacity in 1u64..50,
        ) {
            prop_assert!(misses(&reads, capacity + 1) <= misses(&reads, capacity));
        }
    }
}
