//! C. Writes blocks of the remote store to the disk, in the background.
//!
//! Blocks are copied before their request ends, since the request's memory is used for something else afterwards. One thread
//! writes them. While the tier fills up, blocks that were fetched together get adjacent slots and are written in one call.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::buffer::{Buffer, UNIT};

use super::clock::{Place, Slot};
use super::format::{ENTRY_BYTES, Entry, FileKey, HEADER_BYTES};
use super::memory::Pieces;
use super::shared::{STAGED_MAX_BYTES, Shared, State, count};
use super::staged::{Staged, StagedBlock};
use super::trouble::TierTrouble;

/// Bytes to take out of the queue at a time.
const BATCH_BYTES: usize = 1 << 20;

/// How long closing the tier continues to write the queue, if blocks are kept.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// A block that is ready to be written: its bytes are whole units.
struct Ready<'a> {
    slot: Slot,
    is_new: bool,
    entry: Entry,
    units: &'a [u8],
}

/// Whether the disk is full or a quota is used up.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Shared {
    /// Bytes of the queue's budget that `blocks` blocks take.
    fn staged_bytes(&self, blocks: usize) -> usize {
        blocks * self.block_bytes
    }

    /// Queues copies of the whole blocks in `pieces`, which hold the bytes from `start` on of a file of `size_bytes`.
    /// Blocks that the tier has, or that it has no room for, are left out.
    pub(super) fn offer(
        &self,
        file: &FileKey,
        (size_bytes, start): (u64, u64),
        pieces: &Pieces,
        length: usize,
    ) {
        let block_bytes = self.block_bytes as u64;
        let end = start + length as u64;
        let whole = (start.div_ceil(block_bytes)..)
            .map(|index| (index, index * block_bytes))
            .map(|(index, from)| (index, from, size_bytes.min(from + block_bytes)))
            .take_while(|&(_, from, to)| from < to && to <= end);
        let mut blocks = Vec::new();
        let mut state = self.lock();
        for (index, from, to) in whole {
            let key = file.block(index);
            if state.index.has(key) {
                continue;
            }
            let is_full = state.staged_bytes + self.block_bytes > STAGED_MAX_BYTES;
            if is_full || state.is_closed || !state.writes.is_over() {
                count(&self.counts.dropped, 1);
                continue;
            }
            let may_grow = state.growth.is_over();
            let Some(place) = state.index.admit(key, may_grow) else {
                count(if may_grow { &self.counts.declined } else { &self.counts.dropped }, 1);
                continue;
            };
            state.staged_bytes += self.staged_bytes(1);
            blocks.push(StagedBlock { index, key, place, length: (to - from) as usize });
        }
        drop(state);
        if blocks.is_empty() {
            return;
        }
        let mut buffer = Buffer::new(blocks.len() * self.block_bytes);
        for (block, bytes) in blocks.iter().zip(buffer.bytes_mut().chunks_mut(self.block_bytes)) {
            let at = (block.index * block_bytes - start) as usize;
            pieces.get(at, &mut bytes[..block.length]);
        }
        self.lock().queue.push_back(Staged { file: *file, blocks, buffer });
        self.is_more.notify_all();
    }

    /// Writes out the queue until the tier is closed.
    pub(super) fn write_behind(&self) {
        let mut closed_at = None;
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.is_closed {
                state = self.is_more.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_closed {
                let closed_at = *closed_at.get_or_insert_with(Instant::now);
                if state.queue.is_empty() || !self.keep || closed_at.elapsed() > END_PATIENCE {
                    return self.give_up(&mut state);
                }
            }
            let mut batch = Vec::new();
            let mut blocks = 0;
            while let Some(staged) = state.queue.pop_front() {
                blocks += staged.blocks.len();
                batch.push(staged);
                if self.staged_bytes(blocks) >= BATCH_BYTES {
                    break;
                }
            }
            drop(state);
            // After a panic the rest of the batch is not kept.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                foretell_fault::point("foretell-tier");
                self.write(&batch);
            }));
            drop(batch);
            self.lock().staged_bytes -= self.staged_bytes(blocks);
            self.is_written.notify_all();
        }
    }

    fn give_up(&self, state: &mut State) {
        let left: usize = state.queue.drain(..).map(|staged| staged.blocks.len()).sum();
        count(&self.counts.dropped, left);
        state.staged_bytes = 0;
        self.is_written.notify_all();
    }

    fn write(&self, batch: &[Staged]) {
        let ready: Vec<Ready<'_>> = batch
            .iter()
            .flat_map(|staged| {
                let bytes = staged.buffer.bytes().chunks(self.block_bytes);
                staged.blocks.iter().zip(bytes).map(|(block, bytes)| {
                    let check = staged.file.check(block.index, &bytes[..block.length]);
                    Ready {
                        slot: block.slot(),
                        is_new: matches!(block.place, Place::New(_)),
                        entry: Entry { key: block.key, check },
                        units: &bytes[..block.length.next_multiple_of(UNIT)],
                    }
                })
            })
            .collect();
        // Adjacent slots, all but the last of them full.
        let goes_on = |one: &Ready<'_>, next: &Ready<'_>| {
            one.slot + 1 == next.slot && one.units.len() == self.block_bytes
        };
        for run in ready.chunk_by(goes_on) {
            // D. Blocks that waited when trouble began are not written.
            let is_left_alone = !self.lock().writes.is_over();
            match is_left_alone {
                true => self.lose(run, false),
                false => {
                    self.write_run(run);
                }
            }
        }
    }

    /// Writes a run. Returns whether any of it is there.
    fn write_run(&self, run: &[Ready<'_>]) -> bool {
        let units: Vec<&[u8]> = run.iter().map(|block| block.units).collect();
        let first = u64::from(run[0].slot);
        let result = self.disk.write_data(&units, first * self.block_bytes as u64);
        let mut state = self.lock();
        match result {
            Ok(()) => {
                state.writes.went_well();
                if run.iter().any(|block| block.is_new) {
                    state.growth.went_well();
                }
                for block in run {
                    state.index.has_come(block.slot, block.entry);
                }
                drop(state);
                count(&self.counts.written, run.len());
                let entries: Vec<u8> =
                    run.iter().flat_map(|block| block.entry.to_bytes()).collect();
                let at = HEADER_BYTES as u64 + first * ENTRY_BYTES as u64;
                if let Err(error) = self.disk.write_index(&entries, at) {
                    // The blocks are there until the tier is closed, but will not be found again.
                    count(&self.counts.write_errors, 1);
                    let trouble =
                        if is_full(&error) { TierTrouble::Full } else { TierTrouble::Write };
                    self.teller.tell(&trouble(error));
                }
                true
            }
            Err(error) => {
                // D.
                let is_full = is_full(&error);
                if is_full && run.len() > 1 {
                    // There may be room for a part of the run.
                    drop(state);
                    let (one, other) = run.split_at(run.len() / 2);
                    let is_any = self.write_run(one);
                    if is_any {
                        self.write_run(other);
                    } else {
                        self.lose(other, true);
                    }
                    return is_any;
                }
                let is_first_full = is_full && state.growth.begin();
                let is_refused = !is_full || run.iter().any(|block| !block.is_new);
                let is_first_refused = is_refused && state.writes.begin();
                drop(state);
                count(&self.counts.write_errors, 1);
                if is_full && (is_first_full || is_first_refused) {
                    self.teller.tell(&TierTrouble::Full(error));
                } else if is_first_refused {
                    self.teller.tell(&TierTrouble::Write(error));
                }
                self.lose(run, is_full);
                false
            }
        }
    }

    fn lose(&self, run: &[Ready<'_>], is_full: bool) {
        let mut state = self.lock();
        for block in run {
            let is_backed = !is_full && !block.is_new;
            state.index.will_not_come(block.slot, block.entry.key, is_backed);
        }
        drop(state);
        count(&self.counts.dropped, run.len());
    }
}
