//! Prefetching and caching in units of a reference: the model in which the off-line algorithms are stated
//! and their bounds proven (Cao, Felten, Karlin and Li, SIGMETRICS 1995; Kimbrel and Karlin, FOCS 1996).
//!
//! A program reads the blocks of a known sequence, in order. Time passes in whole units.
//!
//! * **Reading.** At a time `t` at which its next block is in a buffer, the program reads it until `t + 1`.
//!   Otherwise it stalls until the block arrives. The block has to stay for the whole unit.
//! * **Fetching.** A fetch that starts at `t` takes `fetch_units` (F): its block can be read from `t + F`
//!   on. Each block lies on one disk, and a disk does one fetch at a time. The order in which a disk is
//!   asked for blocks changes nothing in how long they take.
//! * **Buffers.** There are `capacity_blocks` of them, empty at first. A fetch has one from its start: an
//!   empty one, or that of a block that leaves at that moment.
//! * **At one time** arrivals come first, then starts of fetches, then the read.
//!
//! The *elapsed* time is that of the last read's end; what it has more than one unit a read is *stall*.
//!
//! What is not here: processor time of a fetch, clusters, and programs that compute for longer between
//! some reads than between others. A stretch of computation is so many reads of one block.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// The position of the next read of a block that is not read again.
pub(super) const NEVER: usize = usize::MAX;

/// A sequence of reads, the disks its blocks lie on, and the buffers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    reads: Vec<usize>,
    disk_of: Vec<usize>,
    disks: usize,
    capacity_blocks: usize,
    fetch_units: u64,
}

impl Problem {
    /// `disk_of` says which disk a block lies on. Blocks are numbered in the order of their first reads.
    ///
    /// # Panics
    /// Without a buffer, or if a fetch takes no time.
    pub fn new<B: Copy + Eq + Hash>(
        reads: &[B],
        disk_of: impl Fn(B) -> usize,
        capacity_blocks: usize,
        fetch_units: u64,
    ) -> Self {
        assert!(capacity_blocks > 0 && fetch_units > 0, "buffers, and time to fill them");
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

    /// The blocks that are read, by number.
    pub fn reads(&self) -> &[usize] {
        &self.reads
    }

    /// How many different ones there are.
    pub fn blocks(&self) -> usize {
        self.disk_of.len()
    }

    /// The disk of a block.
    pub fn disk_of(&self, block: usize) -> usize {
        self.disk_of[block]
    }

    /// Disks.
    pub fn disks(&self) -> usize {
        self.disks
    }

    /// Buffers.
    pub fn capacity_blocks(&self) -> usize {
        self.capacity_blocks
    }

    /// Units that a fetch takes.
    pub fn fetch_units(&self) -> u64 {
        self.fetch_units
    }

    /// The same blocks read in the opposite order.
    pub(super) fn reversed(&self) -> Self {
        Problem { reads: self.reads.iter().rev().copied().collect(), ..self.clone() }
    }
}

/// One fetch of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// When it starts, units.
    pub start: u64,
    /// What it brings.
    pub block: usize,
    /// Whose buffer it takes; an empty one without.
    pub evicts: Option<usize>,
}

/// What an algorithm does with a [`Problem`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In the order in which they start.
    pub fetches: Vec<Fetch>,
    /// When the last read ends, units.
    pub elapsed: u64,
    /// Of it, units in which the program waited.
    pub stall: u64,
}

/// How far a run through a problem has come: time, reads, what is where, and when it is read next.
pub(super) struct Progress<'a> {
    problem: &'a Problem,
    pub(super) now: u64,
    /// The next read, by position.
    pub(super) cursor: usize,
    /// Of each read, the next one of the same block.
    next_reads: Vec<usize>,
    /// Of each block, the next read.
    next: Vec<usize>,
    /// Blocks in buffers, by next read, of each disk.
    cached: Vec<BTreeSet<(usize, usize)>>,
    /// Blocks neither there nor on their way, and still to be read, likewise.
    missing: Vec<BTreeSet<(usize, usize)>>,
    /// What each disk is doing: until when, and what comes.
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

    /// A block comes into a buffer.
    pub(super) fn put(&mut self, block: usize) {
        let entry = (self.next[block], block);
        self.missing[self.problem.disk_of[block]].remove(&entry);
        self.cached[self.problem.disk_of[block]].insert(entry);
    }

    /// A block leaves its buffer.
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

    /// `disk` is busy from now on, for the time of a fetch; then `block` comes, if there is one.
    pub(super) fn start(&mut self, disk: usize, block: Option<usize>) {
        if let Some(block) = block {
            let entry = (self.next[block], block);
            self.missing[self.problem.disk_of[block]].remove(&entry);
        }
        self.busy[disk] = Some((self.now + self.problem.fetch_units, block));
    }

    /// What has come by now.
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

    /// The first block of `disk` that is to be read and missing, after its next read.
    pub(super) fn first_missing(&self, disk: usize) -> Option<(usize, usize)> {
        self.missing[disk].first().copied()
    }

    /// The block of `disk` that is in a buffer and read last of all, after its next read.
    pub(super) fn last_cached(&self, disk: usize) -> Option<(usize, usize)> {
        self.cached[disk].last().copied()
    }

    /// Reads the next block if it is there, or waits for something to arrive. Without reads left, waits.
    /// Returns whether there was anything to do.
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

    /// The schedule of these fetches, when all is read.
    pub(super) fn finish(self, fetches: Vec<Fetch>) -> Schedule {
        let stall = self.now - self.problem.reads.len() as u64;
        Schedule { fetches, elapsed: self.now, stall }
    }
}
