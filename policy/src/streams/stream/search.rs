//! The search for blocks to fetch: the *scan*, and the missing positions before it.
//!
//! The scan is the first position that the search has not visited. Consider a block that the stream names and that is neither
//! in memory nor in flight. Its next use is at or after the scan, or is kept as missing; `Stream::check` asserts this.

#[cfg(any(test, debug_assertions))]
use std::collections::HashMap;

use super::Stream;
#[cfg(any(test, debug_assertions))]
use super::{OfDevice, Waiting};
use crate::blocks::{BlockTable, DeviceIndex, SlotId};
use crate::hint::Block;
use crate::tables::hash::{NEIGHBOURS, hash_block};

/// Positions that one call visits in search of a missing block.
/// Unit: positions. Reason: bound.
const SCAN_STEPS: u32 = 4096;

/// Positions after a fetched block in which the next missing one is looked for, to load its table entries.
/// Unit: positions. Reason: bound.
const PEEKED: u64 = 64;

impl Stream {
    /// Removes missing positions before `base`. The next use of each of their blocks becomes missing instead, if the scan has
    /// passed it. When the scan passed that use, it did not note it as missing, because the block was to be in memory from the
    /// earlier use on.
    pub(super) fn look_for_later_uses(&mut self, base: u64, blocks: &BlockTable) {
        for part in 0..self.devices.len() {
            while let Some(position) = self.devices[part].missing.pop_before(base) {
                self.miss_later_use(position, blocks);
            }
        }
    }

    /// The missing access at `position` is left to a demand read or given up: looks for the block's next use.
    fn miss_later_use(&mut self, position: u64, blocks: &BlockTable) {
        let Some((block, device)) = self.block_at(position) else { return };
        let later = self.cursor.base().max(position + 1);
        let from = self.cursor.fetched_from().max(later);
        // The next use may be overtaken as well. It is not fetched unless the reader comes back.
        if later < from
            && let Some(next) = self.next_use_from(block, later).filter(|&next| next < from)
        {
            self.overtaken = self.overtaken.min(next);
        }
        if let Some(next) = self.next_use_from(block, from)
            && next < self.scan
            && blocks.find(block).is_none()
        {
            self.of_device(device).misses(next);
        }
    }

    /// Whether nothing is left to search.
    pub(crate) fn is_worked_off(&self) -> bool {
        self.waiting.is_empty()
            && self.slow.is_empty()
            && self.scan.max(self.cursor.front()) >= self.places.end()
            && self.devices.iter().all(|part| part.missing.is_empty())
    }

    /// Whether the search has visited `position` and its block is not missing.
    pub(crate) fn is_before_scan(&self, position: u64) -> bool {
        position < self.scan && self.devices.iter().all(|part| !part.missing.contains(position))
    }

    /// A block whose next use is at `position` was evicted.
    pub(crate) fn lost(&mut self, device: DeviceIndex, position: u64) {
        if position < self.scan && self.cursor.expects(position) {
            self.of_device(device).misses(position);
        }
    }

    /// Records that the fetch for `position` begins.
    pub(crate) fn taken(&mut self, blocks: &BlockTable, device: DeviceIndex, position: u64) {
        if position == self.scan {
            self.scan += 1;
            if self.scan_run.is_some_and(|run| run.end_position() == self.scan) {
                let next = self.next_untracked(device, self.scan, self.scan.saturating_add(PEEKED));
                self.scan_run = self.places.run_at(next);
                let next = self.scan_run.and_then(|run| run.block_at(next));
                next.into_iter().for_each(|next| self.load_missing(next, blocks));
            }
        } else {
            self.of_device(device).missing.remove(position);
        }
        self.of_device(device).start.taken();
    }

    /// Loads the table entries of a probably missing block, and of the blocks after it that may be fetched with it, into the
    /// processor's caches.
    pub(super) fn load_missing(&self, block: Block, blocks: &BlockTable) {
        let last = Block { index: block.index.saturating_add(NEIGHBOURS - 1), ..block };
        for block in [block, last] {
            blocks.load_home(hash_block(block));
            self.index.load_chain(block);
        }
    }

    /// The first position of `device` before `limit` whose block is neither in memory nor in flight. Calls `resident` with the
    /// slot and position of each untracked block that the search finds in memory.
    pub(crate) fn first_missing(
        &mut self,
        blocks: &BlockTable,
        device: DeviceIndex,
        limit: u64,
        mut resident: impl FnMut(SlotId, u64),
    ) -> Option<u64> {
        self.scan_is_unfinished = false;
        // Only indexed accesses may be fetched for.
        let limit = limit.min(self.index.end(&self.places, self.limits.block_bytes));
        let from = self.cursor.fetched_from();
        // The scan itself will reach missing positions beyond it.
        let scan = self.scan;
        while let Some(position) = self.of_device(device).missing.first().filter(|&at| at < scan) {
            if position >= from
                && self.cursor.expects(position)
                && let Some((block, _)) = self.block_at(position)
            {
                match blocks.find(block) {
                    None => return (position < limit).then_some(position),
                    // A file may be hinted at two devices, and the block fetched for the later use.
                    Some(slot) => resident(slot, position),
                }
            }
            self.of_device(device).missing.remove(position);
            if position < from && self.cursor.expects(position) {
                self.overtaken = self.overtaken.min(position);
            }
            self.miss_later_use(position, blocks);
        }
        if self.scan < from {
            self.overtaken = self.overtaken.min(self.scan);
            self.scan = from;
        }
        for _ in 0..SCAN_STEPS {
            if self.scan < limit {
                self.scan = self.next_untracked(device, self.scan, limit);
            }
            let position = self.scan;
            if position >= limit {
                return None;
            }
            let run = match self.scan_run {
                Some(run) if (run.first_position..run.end_position()).contains(&position) => run,
                _ => self.places.run_at(position)?,
            };
            self.scan_run = Some(run);
            if run.device != device {
                let end = run.end_position().min(limit);
                let untracked = self.next_untracked(run.device, position, end);
                if untracked > position {
                    self.scan = untracked;
                    continue;
                }
            }
            if self.cursor.expects(position) {
                let block = run.block_at(position).expect("the run contains it");
                match blocks.find(block) {
                    Some(slot) => resident(slot, position),
                    None if run.device == device => return Some(position),
                    None => self.of_device(run.device).misses(position),
                }
            }
            self.scan += 1;
        }
        self.scan_is_unfinished = true;
        None
    }

    /// Continues the scan up to `limit` for all devices, within the limit of one call, and records missing positions.
    pub(crate) fn note_missing(
        &mut self,
        blocks: &BlockTable,
        limit: u64,
        mut resident: impl FnMut(SlotId, u64),
    ) {
        let limit = limit.min(self.index.end(&self.places, self.limits.block_bytes));
        for _ in 0..SCAN_STEPS {
            if self.scan >= limit {
                return;
            }
            let Some((block, device)) = self.block_at(self.scan) else { return };
            if self.cursor.expects(self.scan) {
                match blocks.find(block) {
                    Some(slot) => resident(slot, self.scan),
                    None => {
                        let position = self.scan;
                        self.of_device(device).misses(position);
                    }
                }
            }
            self.scan += 1;
        }
    }

    /// The first position from `position` to `end` whose block is not tracked at `device`.
    fn next_untracked(&self, device: DeviceIndex, position: u64, end: u64) -> u64 {
        let part = self.devices.iter().find(|part| part.device == device);
        part.map_or(position, |part| part.tracked.next_absent(position, end))
    }

    /// The missing position `first` of `device`, then the later ones found so far, in order.
    pub(crate) fn missing_from(
        &self,
        device: DeviceIndex,
        first: u64,
    ) -> impl Iterator<Item = u64> {
        let part = self.devices.iter().find(|part| part.device == device);
        let others = part.into_iter().flat_map(move |part| {
            std::iter::successors(part.missing.next(first + 1), |&at| part.missing.next(at + 1))
        });
        std::iter::once(first).chain(others)
    }

    /// Asserts the module's invariant for the next positions. A block whose overtaken use is noted as missing satisfies it,
    /// even if its next use is not noted until a search reaches that. A later use does not: its fetch would come too late. The
    /// device does not matter, since a block may have moved to another one.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&mut self, blocks: &BlockTable) {
        /// Positions checked by one call.
        /// Unit: positions. Reason: bound.
        const CHECKED: u64 = 256;
        let waiting = self.waiting.iter().chain(self.slow.iter().map(|(_, waiting)| waiting));
        let bytes_apart = waiting.map(Waiting::bytes_apart).sum();
        assert_eq!(self.waiting_bytes_apart, bytes_apart, "bytes of hints");
        if self.gave_up_search || self.index.gave_up() {
            return;
        }
        let all = |part: &OfDevice| {
            std::iter::successors(part.missing.first(), |&at| part.missing.next(at + 1))
                .collect::<Vec<u64>>()
        };
        let mut missing: Vec<u64> = self.devices.iter().flat_map(all).collect();
        missing.sort_unstable_by(|one, other| other.cmp(one)); // The first position of a block replaces later ones.
        let missing = missing.into_iter().filter_map(|at| Some((self.block_at(at)?.0, at)));
        let missing: HashMap<Block, u64> = missing.collect();
        let from = self.cursor.fetched_from();
        for position in from..self.scan.min(from + CHECKED) {
            let Some((block, _)) = self.block_at(position) else { continue };
            let is_due = self.cursor.expects(position)
                && blocks.find(block).is_none()
                && self.next_use_from(block, from) == Some(position);
            assert!(
                !is_due || missing.get(&block).is_some_and(|&at| at <= position),
                "{block:?} is sought by nobody, {position}"
            );
        }
    }
}
