//! A, B. Threads that read blocks from their slots and check them.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::buffer::{Buffer, UNIT};

use super::clock::Slot;
use super::format::{Entry, FileKey};
use super::share::Share;
use super::shared::{FAILURES, Shared, count};
use super::trouble::TierTrouble;

/// A block in the tier of which a request wants all or a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) index: u64,
    pub(super) slot: Slot,
    pub(super) entry: Entry,
    /// Bytes of the block.
    pub(super) length: usize,
    /// The bytes that are wanted: the first one, their number, and their place in the share's memory.
    pub(super) from: usize,
    pub(super) wanted: usize,
    pub(super) at: usize,
}

/// Adjacent blocks of a file, for one share of a request.
pub(super) struct Job {
    pub(super) share: Share,
    pub(super) blocks: Vec<Near>,
}

#[derive(Default)]
struct Waiting {
    demand: VecDeque<Job>,
    ahead: VecDeque<Job>,
    is_closed: bool,
}

/// Jobs that wait for a thread. Those of demand requests go first.
#[derive(Default)]
pub(super) struct Jobs {
    waiting: Mutex<Waiting>,
    is_more: Condvar,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job. It is handed back if the threads have ended.
    pub(super) fn put(&self, job: Job) -> Result<(), Job> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return Err(job);
        }
        match job.share.is_demand() {
            true => waiting.demand.push_back(job),
            false => waiting.ahead.push_back(job),
        }
        drop(waiting);
        self.is_more.notify_one();
        Ok(())
    }

    /// Waits for the next job; `None` if there will be no more.
    fn take(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.demand.pop_front() {
                return Some(job);
            }
            if let Some(job) = waiting.ahead.pop_front() {
                return Some(job);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.is_more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.is_more.notify_all();
    }
}

impl Shared {
    pub(super) fn serve(&self, jobs: &Jobs) {
        while let Some(job) = jobs.take() {
            // A panic drops its request, which fails as lost.
            let _ = catch_unwind(AssertUnwindSafe(|| self.read(job)));
        }
    }

    fn read(&self, job: Job) {
        let Job { mut share, blocks } = job;
        let mut wrong = Vec::new();
        // Blocks are read in runs of one call each.
        let mut rest = blocks.as_slice();
        while !rest.is_empty() {
            let count = self.run(&mut share, rest);
            let (run, after) = rest.split_at(count.max(1));
            let is_right = match count {
                0 => vec![self.read_aside(&mut share, &run[0])],
                _ => self.read_run(&mut share, run),
            };
            wrong.extend(
                run.iter().zip(is_right).filter_map(
                    |(block, is_right)| {
                        if is_right { None } else { Some(*block) }
                    },
                ),
            );
            rest = after;
        }
        count(&self.counts.hit, blocks.len() - wrong.len());
        // B.
        let goes_on = |one: &Near, next: &Near| one.index + 1 == next.index;
        let again: Vec<(usize, usize)> = wrong
            .chunk_by(goes_on)
            .map(|run| (run[0].at, run.iter().map(|block| block.wanted).sum()))
            .collect();
        share.end_but_for(&again);
    }

    /// Number of `blocks`, from the first on, that lie in consecutive slots and can be read directly to their destination.
    fn run(&self, share: &mut Share, blocks: &[Near]) -> usize {
        let mut count = 0;
        for (turn, block) in blocks.iter().enumerate() {
            let is_whole = block.wanted == self.block_bytes;
            let is_next = block.slot == blocks[0].slot.wrapping_add(turn as Slot);
            if !is_whole || !is_next || share.pieces.units(block.at, block.wanted).is_none() {
                break;
            }
            count += 1;
        }
        count
    }

    /// Reads a run. Returns for each block whether it is right.
    fn read_run(&self, share: &mut Share, run: &[Near]) -> Vec<bool> {
        let key = share.key();
        let mut memory = share.pieces.several(run.iter().map(|block| (block.at, block.wanted)));
        let mut slices: Vec<IoSliceMut<'_>> =
            memory.iter_mut().map(|units| IoSliceMut::new(units)).collect();
        let at = u64::from(run[0].slot) * self.block_bytes as u64;
        let result = self.disk.read_data(&mut slices, at);
        let length = self.heard(result);
        let ends = (1..).map(|blocks| blocks * self.block_bytes);
        let blocks = run.iter().zip(&memory).zip(ends);
        let is_right = blocks.map(|((block, bytes), end)| {
            let came = length.map(|length| length >= end);
            self.is_right(&key, block, bytes, came)
        });
        is_right.collect()
    }

    /// Reads one block by way of a buffer. Returns whether it is right.
    fn read_aside(&self, share: &mut Share, block: &Near) -> bool {
        let units = block.length.next_multiple_of(UNIT);
        let mut buffer = Buffer::new(units);
        let at = u64::from(block.slot) * self.block_bytes as u64;
        let result = {
            let bytes = &mut buffer.bytes_mut()[..units];
            self.disk.read_data(&mut [IoSliceMut::new(bytes)], at)
        };
        let length = self.heard(result);
        let bytes = &buffer.bytes()[..block.length];
        let came = length.map(|length| length >= block.length);
        let is_right = self.is_right(&share.key(), block, bytes, came);
        if is_right {
            share.pieces.put(block.at, &bytes[block.from..block.from + block.wanted]);
        }
        is_right
    }

    /// D. Notes success or failure of a read. Returns the number of bytes read; `None` if it failed.
    fn heard(&self, result: io::Result<usize>) -> Option<usize> {
        let mut state = self.lock();
        match result {
            Ok(length) => {
                state.failures = 0;
                state.reads.went_well();
                Some(length)
            }
            Err(error) => {
                count(&self.counts.read_errors, 1);
                state.failures += 1;
                let is_too_often = state.failures >= FAILURES;
                if is_too_often {
                    state.failures = 0;
                }
                let is_first = is_too_often && state.reads.begin();
                drop(state);
                if is_first {
                    self.teller.tell(&TierTrouble::Read(error));
                }
                None
            }
        }
    }

    /// Whether the block is what was written. If not, it is forgotten. `came` tells whether all of it was read; `None`
    /// if the read failed.
    fn is_right(&self, key: &FileKey, block: &Near, bytes: &[u8], came: Option<bool>) -> bool {
        if came == Some(true) && key.check(block.index, bytes) == block.entry.check {
            return true;
        }
        // If the slot has another block by now, nothing is wrong.
        if self.lock().index.forget(block.slot, block.entry) && came.is_some() {
            let before = self.counts.corrupt.fetch_add(1, Ordering::Relaxed);
            self.teller.tell(&TierTrouble::Corrupt { so_far: before + 1 });
        }
        false
    }
}
