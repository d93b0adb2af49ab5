//! What the threads of a tier share: its index, its queue of blocks to write, and its counts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::clock::Slot;
use super::disk::Disk;
use super::format::{ENTRY_BYTES, Entry, FileKey, HEADER_BYTES, Header, Key};
use super::index::Index;
use super::staged::Staged;
use super::trouble::{Teller, TierTrouble};

/// Bytes that wait to be written, at most. More are not kept.
pub const STAGED_MAX_BYTES: usize = 32 << 20;

/// Bytes of the index that are read at a time.
const LOADED_BYTES: usize = 1 << 20;

/// Failed reads in a row before the disk is left alone.
pub(super) const FAILURES: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hit: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) declined: AtomicU64,
    pub(super) corrupt: AtomicU64,
    pub(super) read_errors: AtomicU64,
    pub(super) write_errors: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// The first and the longest pause after trouble with the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) first: Duration,
    pub(super) most: Duration,
}

pub(super) const PATIENCE: Patience =
    Patience { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// D. A pause after trouble, which doubles while trouble continues.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) until: Option<Instant>,
    pub(super) next: Duration,
    patience: Patience,
}

impl Pause {
    pub(super) fn new(patience: Patience) -> Self {
        Pause { until: None, next: patience.first, patience }
    }

    pub(super) fn is_over(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    /// Begins a pause after a failure. During a pause this does nothing: the operation was begun before it. Returns
    /// whether all was well before.
    pub(super) fn begin(&mut self) -> bool {
        if !self.is_over() {
            return false;
        }
        let was_well = self.until.is_none();
        self.until = Some(Instant::now() + self.next);
        self.next = (self.next * 2).min(self.patience.most);
        was_well
    }

    pub(super) fn went_well(&mut self) {
        if self.until.is_some() && self.is_over() {
            *self = Pause::new(self.patience);
        }
    }
}

pub(super) struct State {
    pub(super) index: Index,
    pub(super) queue: VecDeque<Staged>,
    /// Bytes in the queue and being written.
    pub(super) staged_bytes: usize,
    /// Pauses of three kinds: writes that need more room on the disk, all writes, all reads.
    pub(super) growth: Pause,
    pub(super) writes: Pause,
    pub(super) reads: Pause,
    pub(super) failures: u32,
    pub(super) is_closed: bool,
}

pub(super) struct Shared {
    pub(super) disk: Box<dyn Disk>,
    pub(super) block_bytes: usize,
    pub(super) seed: u64,
    pub(super) keep: bool,
    pub(super) found: usize,
    pub(super) state: Mutex<State>,
    pub(super) is_more: Condvar,
    pub(super) is_written: Condvar,
    pub(super) counts: Counts,
    pub(super) teller: Teller<TierTrouble>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the blocks on the disk if its header has this block size; otherwise begins with an empty disk.
    pub(super) fn load(
        disk: Box<dyn Disk>,
        slots: Slot,
        (block_bytes, keep): (usize, bool),
        patience: Patience,
    ) -> Self {
        let counts = Counts::default();
        let mut index = Index::new(slots);
        let mut bytes = vec![0; HEADER_BYTES];
        // A header that cannot be read counts as absent.
        let length = disk.read_index(&mut bytes, 0).unwrap_or(0);
        let known = Header::from_bytes(&bytes[..length])
            .filter(|header| header.block_bytes == block_bytes as u64);
        let header = known.unwrap_or_else(|| Header::new(block_bytes as u64));
        let cut = match known {
            Some(_) => {
                load_entries(disk.as_ref(), slots, &mut index);
                let index_bytes = HEADER_BYTES as u64 + u64::from(slots) * ENTRY_BYTES as u64;
                disk.cut(index_bytes, u64::from(slots) * block_bytes as u64)
            }
            None => disk.cut(0, 0).and_then(|()| disk.write_index(&header.to_bytes(), 0)),
        };
        if cut.is_err() {
            // Without a header the tier works, but its blocks will not be found again.
            count(&counts.write_errors, 1);
        }
        let found = index.blocks();
        let state = State {
            index,
            queue: VecDeque::new(),
            staged_bytes: 0,
            growth: Pause::new(patience),
            writes: Pause::new(patience),
            reads: Pause::new(patience),
            failures: 0,
            is_closed: false,
        };
        Shared {
            disk,
            block_bytes,
            seed: header.seed,
            keep,
            found,
            state: Mutex::new(state),
            is_more: Condvar::new(),
            is_written: Condvar::new(),
            counts,
            teller: Teller::default(),
        }
    }

    /// Whether the block would be read from the tier now.
    pub(super) fn has(&self, key: Key) -> bool {
        let state = self.lock();
        state.reads.is_over() && state.index.has(key)
    }

    /// Looks up `blocks` blocks of a file, from `first` on. Those that are found count as used.
    pub(super) fn find(
        &self,
        file: &FileKey,
        first: u64,
        blocks: usize,
    ) -> Vec<Option<(Slot, Entry)>> {
        let mut state = self.lock();
        if !state.reads.is_over() {
            return vec![None; blocks];
        }
        let found = (first..).take(blocks).map(|index| {
            let key = file.block(index);
            let (slot, check) = state.index.find(key)?;
            state.index.is_used(slot);
            Some((slot, Entry { key, check }))
        });
        found.collect()
    }
}

fn load_entries(disk: &dyn Disk, slots: Slot, index: &mut Index) {
    let mut bytes = vec![0; LOADED_BYTES];
    let mut left = slots as usize;
    let mut at = HEADER_BYTES as u64;
    while left > 0 {
        let wanted = LOADED_BYTES.min(left * ENTRY_BYTES);
        let length = disk.read_index(&mut bytes[..wanted], at).unwrap_or(0);
        let (entries, _) = bytes[..length].as_chunks::<ENTRY_BYTES>();
        index.load(entries.iter().map(|&bytes| Entry::from_bytes(bytes)));
        if length < wanted {
            break;
        }
        (left, at) = (left - entries.len(), at + length as u64);
    }
    index.is_loaded();
}
