//! Prefetching and caching in units of one read: the model in which the off-line algorithms are stated and
//! their bounds proven (Cao, Felten, Karlin and Li, SIGMETRICS 1995; Kimbrel and Karlin, FOCS 1996).
//!
//! A program reads the blocks of a known sequence, in order. Time passes in whole units.
//!
//! * **Reading.** If its next block is in a buffer at time `t`, the program reads it until `t + 1`, and the
//!   block stays for that unit. Otherwise the program stalls until the block arrives.
//! * **Fetching.** A fetch that starts at `t` takes `fetch_units` (F): its block can be read from `t + F` on.
//!   Each block lies on one disk, and a disk does one fetch at a time. The order of a disk's fetches does not
//!   change how long they take.
//! * **Buffers.** There are `capacity_blocks` buffers, empty at first. A fetch holds a buffer from its start:
//!   an empty one, or that of a block evicted at that moment.
//! * **Order within one time:** arrivals come first, then starts of fetches, then the read.
//!
//! The *elapsed* time is the end of the last read. The part above one unit a read is *stall*.
//!
//! Not here: processor time of a fetch, clusters, and computation of varying length between reads. A stretch of
//! computation is a number of reads of one block.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Stands for the next read of a block that is not read again.
pub(super) const NEVER: usize = usize::MAX;

/// A sequence of reads, the disks of its blocks, and the number of buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    reads: Vec<usize>,
    disk_of: Vec<usize>,
    disks: usize,
    capacity_blocks: usize,
    fetch_units: u64,
}

impl Problem {
    /// Numbers the blocks in the order of their first reads; `disk_of` gives the disk of a block.
    ///
    /// # Panics
    /// If there is no buffer, or a fetch takes no time.
    pub fn new<B: Copy + Eq + Hash>(
        reads: &[B],
        disk_of: impl Fn(B) -> usize,
        capacity_blocks: usize,
        fetch_units: u64,
    ) -> Self {
        assert!(
            capacity_blocks > 0 && fetch_units > 0,
            "there must be buffers, and fetches must take time"
        );
        let mut numbers: HashMap<B, usize> = HashMap::new();
        let mut disks = Vec::new();
        let number = |&block| {
            *numbers.entry(block).or_insert_with(|| {
                disks.push(disk_of(block));
                disks.len() - 1
            })
        };
        let reads = reads.iter().map(number).collect();
        let count = disks.iter().max().map_or(1, |&last| last + 1);
        Problem { reads, disk_of: disks, disks: count, capacity_blocks, fetch_units }
    }

    /// The blocks read, by number.
    pub fn reads(&self) -> &[usize] {
        &self.reads
    }

    /// The number of distinct blocks.
    pub fn blocks(&self) -> usize {
        self.disk_of.len()
    }

    /// The disk of a block.
    pub fn disk_of(&self, block: usize) -> usize {
        self.disk_of[block]
    }

    /// The number of disks.
    pub fn disks(&self) -> usize {
        self.disks
    }

    /// The number of buffers.
    pub fn capacity_blocks(&self) -> usize {
        self.capacity_blocks
    }

    /// Units that a fetch takes.
    pub fn fetch_units(&self) -> u64 {
        self.fetch_units
    }

    /// The same blocks, read in reverse order.
    pub(super) fn reversed(&self) -> Self {
        Problem { reads: self.reads.iter().rev().copied().collect(), ..self.clone() }
    }
}

/// One fetch of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Its start, in units.
    pub start: u64,
    /// The block that it fetches.
    pub block: usize,
    /// The block whose buffer it takes; `None` for an empty buffer.
    pub evicts: Option<usize>,
}

/// An algorithm's solution of a [`Problem`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Fetches, in the order of their starts.
    pub fetches: Vec<Fetch>,
    /// The end of the last read, in units.
    pub elapsed: u64,
    /// Units in which the program waited.
    pub stall: u64,
}

/// The state of a run through a problem: time, reads, the places of blocks, and their next reads.
pub(super) struct Progress<'a> {
    problem: &'a Problem,
    pub(super) now: u64,
    /// The position of the next read.
    pub(super) cursor: usize,
    /// For each read, the next read of the same block.
    next_reads: Vec<usize>,
    /// For each block, its next read.
    next: Vec<usize>,
    /// For each disk, the blocks in buffers, ordered by their next reads.
    cached: Vec<BTreeSet<(usize, usize)>>,
    /// For each disk, the blocks that are still to be read and neither in a buffer nor in flight, ordered by
    /// their next reads.
    missing: Vec<BTreeSet<(usize, usize)>>,
    /// For each disk, the end of its fetch, and the block that arrives then.
    busy: Vec<Option<(u64, Option<usize>)>>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        let mut next = vec![NEVER; problem.blocks()];
        let mut next_reads = vec![NEVER; problem.reads.len()];
        for (position, &block) in problem.reads.iter().enumerate().rev() {
            next_reads[position] = std::mem::replace(&mut next[block], position);
        }
        let none = vec![BTreeSet::new(); problem.disks];
        let (cached, mut missing) = (none.clone(), none);
        for (block, &at) in next.iter().enumerate() {
            missing[problem.disk_of[block]].insert((at, block));
        }
        let busy = vec![None; problem.disks];
        Progress { problem, now: 0, cursor: 0, next_reads, next, cached, missing, busy }
    }

    pub(super) fn is_over(&self) -> bool {
        self.cursor == self.problem.reads.len()
    }

    /// The position of the block's next read.
    pub(super) fn next_read(&self, block: usize) -> usize {
        self.next[block]
    }

    /// Puts a block into a buffer.
    pub(super) fn put(&mut self, block: usize) {
        let entry = (self.next[block], block);
        self.missing[self.problem.disk_of[block]].remove(&entry);
        self.cached[self.problem.disk_of[block]].insert(entry);
    }

    /// Evicts a block.
    pub(super) fn evict(&mut self, block: usize) {
        let entry = (self.next[block], block);
        self.cached[self.problem.disk_of[block]].remove(&entry);
        if entry.0 != NEVER {
            self.missing[self.problem.disk_of[block]].insert(entry);
        }
    }

    pub(super) fn is_idle(&self, disk: usize) -> bool {
        self.busy[disk].is_none()
    }

    /// Makes `disk` busy for the time of a fetch; then `block` arrives, if there is one.
    pub(super) fn start(&mut self, disk: usize, block: Option<usize>) {
        if let Some(block) = block {
            let entry = (self.next[block], block);
            self.missing[self.problem.disk_of[block]].remove(&entry);
        }
        self.busy[disk] = Some((self.now + self.problem.fetch_units, block));
    }

    /// Ends the fetches that are due now, and returns their blocks.
    pub(super) fn take_arrivals(&mut self) -> Vec<Option<usize>> {
        let mut arrivals = Vec::new();
        for disk in 0..self.busy.len() {
            if let Some((end, block)) = self.busy[disk].filter(|&(end, _)| end <= self.now) {
                debug_assert_eq!(end, self.now, "time has been stepped over");
                self.busy[disk] = None;
                arrivals.push(block);
                block.into_iter().for_each(|block| self.put(block));
            }
        }
        arrivals
    }

    /// The first missing block of `disk`, with its next read before it.
    pub(super) fn first_missing(&self, disk: usize) -> Option<(usize, usize)> {
        self.missing[disk].first().copied()
    }

    /// The resident block of `disk` whose next read is last, with that read before it.
    pub(super) fn last_cached(&self, disk: usize) -> Option<(usize, usize)> {
        self.cached[disk].last().copied()
    }

    /// Reads the next block if it is in a buffer; otherwise, or after the last read, waits for an arrival.
    /// Returns false if there was nothing to do.
    pub(super) fn advance(&mut self) -> bool {
        if let Some(&block) = self.problem.reads.get(self.cursor) {
            let disk = self.problem.disk_of[block];
            if self.cached[disk].remove(&(self.cursor, block)) {
                self.next[block] = self.next_reads[self.cursor];
                self.cached[disk].insert((self.next[block], block));
                self.cursor += 1;
                self.now += 1;
                return true;
            }
        }
        let ends = self.busy.iter().flatten().map(|&(end, _)| end);
        let next = ends.min();
        self.now = next.unwrap_or(self.now);
        next.is_some()
    }

    /// The schedule of these fetches, after the last read.
    pub(super) fn finish(self, fetches: Vec<Fetch>) -> Schedule {
        let stall = self.now - self.problem.reads.len() as u64;
        Schedule { fetches, elapsed: self.now, stall }
    }
}
