//! The second tier: a part of a local disk, for blocks of stores that are far away.
//!
//! It is a back end around another one ([`Tier::over`]). A block that came from afar is written to the disk behind everybody's
//! back, and read from there when it is wanted again. To the policy it is a device of its own, with a queue and a fetch time of
//! its own (`Object::is_near`).
//!
//! * **A. Near.** All bytes of a block come from its slot; their check is right: they are served.
//! * **B. Not right.** They cannot be read, or the check is wrong: the block is forgotten here and fetched from afar.
//!   Who asked sees neither. So the tier never is the reason of an error, nor of a wrong byte.
//! * **C. Far.** What comes from afar is copied and put in a queue of [`STAGED_MAX_BYTES`] for one thread to write; if the
//!   queue is full, or the disk is, it is not. No read ever waits for a write.
//! * **D. Trouble.** After a write, or several reads in a row, that failed, the disk is left alone for a second, and twice as
//!   long each time that it goes on, up to a minute. If the disk is full, slots that have room already are used on. Who wishes
//!   to hear of it is told ([`Tier::on_trouble`]).
//!
//! By module: [`format`](self) of what lies on disk and why it survives a crash (`format`); which block has which slot
//! (`index`, `clock`); the files (`disk`); what goes there (`writer`) and what comes from there (`reader`);
//! how a request is divided between near and far (`backend`);
//! what people are told (`trouble`).
//!
//! Locks: one around index and queue, held for lookups of a request's blocks and never while anything waits; one around the
//! jobs of readers. Neither is taken under the other.

mod backend;
mod clock;
mod disk;
mod format;
mod index;
mod memory;
mod reader;
mod share;
#[cfg(test)]
mod tests;
mod trouble;
mod writer;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backend::Backend;

pub use backend::TieredBackend;
use clock::Slot;
use disk::{Disk, Files, NoFiles};
use format::{ENTRY_BYTES, Entry, FileKey, HEADER_BYTES, Header, Key};
use index::Index;
use reader::Jobs;
use trouble::Teller;
pub use trouble::TierTrouble;
use writer::Staged;

/// Bytes that wait to be written, at most.
pub const STAGED_MAX_BYTES: usize = 32 << 20;

/// Threads that read: an SSD wants as many requests at once.
const READERS: usize = 16;

/// Bytes of the index that are read at a time.
const LOADED_BYTES: usize = 1 << 20;

/// How long a folder may be in use by one who is about to go: with requests under way, or just killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Reads in a row that fail before the disk is left alone.
const FAILURES: u32 = 8;

/// How the second tier is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// A folder on a local disk, for this tier alone; it is made if it is not there. Whoever can write there is trusted.
    pub folder: PathBuf,
    /// Bytes of disk, the index included, at most.
    pub budget_bytes: u64,
    /// Bytes of a block: those of the cache ([`CacheOptions`](crate::CacheOptions)), since only whole blocks are kept.
    pub block_bytes: usize,
    /// Whether what is there is used, and what is put there stays. If not, the tier begins empty, what others have left in
    /// the folder is deleted, and nothing stays, however the process ends.
    pub keep: bool,
}

/// A tier could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// Blocks are a power of two from 4 KiB to 16 MiB.
    #[error("a block of {0} bytes: it must be a power of two from 4096 to 16777216")]
    BlockBytes(usize),
    /// Not one block fits into the budget.
    #[error(
        "a budget of {budget_bytes} bytes of disk does not hold one block of {block_bytes} and its index"
    )]
    Budget {
        /// Bytes of disk.
        budget_bytes: u64,
        /// Bytes of a block.
        block_bytes: usize,
    },
    /// Another one has the folder.
    #[error("{folder} is in use as a second tier; choose another folder for this one")]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The files cannot be opened.
    #[error("cannot keep blocks in {folder}: {cause}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// No threads.
    #[error("cannot start the threads of the second tier: {0}")]
    Threads(io::Error),
}

/// What a tier has done since it was opened, in blocks unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TierStats {
    /// There now.
    pub held_blocks: u64,
    /// Bytes of disk that they take, the index apart.
    pub held_bytes: u64,
    /// Found when it was opened.
    pub found_blocks: u64,
    /// Read from it, and right.
    pub hit_blocks: u64,
    /// Fetched from afar, since they were not there or could not be had from there.
    pub missed_blocks: u64,
    /// Written.
    pub written_blocks: u64,
    /// Not written, since the disk was slow, full, or left alone.
    pub dropped_blocks: u64,
    /// Not written, since what they would have replaced is used more.
    pub declined_blocks: u64,
    /// There, and not what had been written.
    pub corrupt_blocks: u64,
    /// Reads of the disk that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
}

#[derive(Debug, Default)]
struct Counts {
    hit: AtomicU64,
    missed: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    declined: AtomicU64,
    corrupt: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
}

fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// How long the disk is left alone after trouble.
#[derive(Clone, Copy, Debug)]
struct Patience {
    first: Duration,
    most: Duration,
}

const PATIENCE: Patience =
    Patience { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// D. Whether something should be tried.
#[derive(Debug)]
struct Pause {
    until: Option<Instant>,
    next: Duration,
    patience: Patience,
}

impl Pause {
    fn new(patience: Patience) -> Self {
        Pause { until: None, next: patience.first, patience }
    }

    fn is_over(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    /// Something failed. What was under way when it began says nothing new. Says whether all was well before.
    fn begin(&mut self) -> bool {
        if !self.is_over() {
            return false;
        }
        let was_well = self.until.is_none();
        self.until = Some(Instant::now() + self.next);
        self.next = (self.next * 2).min(self.patience.most);
        was_well
    }

    fn went_well(&mut self) {
        if self.until.is_some() && self.is_over() {
            *self = Pause::new(self.patience);
        }
    }
}

struct State {
    index: Index,
    queue: std::collections::VecDeque<Staged>,
    /// Bytes in the queue, and being written.
    staged_bytes: usize,
    /// More room on the disk; writes at all; reads.
    growth: Pause,
    writes: Pause,
    reads: Pause,
    failures: u32,
    is_closed: bool,
}

struct Shared {
    disk: Box<dyn Disk>,
    block_bytes: usize,
    seed: u64,
    keep: bool,
    found: usize,
    state: Mutex<State>,
    is_more: Condvar,
    is_written: Condvar,
    jobs: Jobs,
    counts: Counts,
    teller: Teller,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is on the disk is taken over if it is of this kind and `options` say so.
    fn load(
        disk: Box<dyn Disk>,
        slots: Slot,
        (block_bytes, keep): (usize, bool),
        patience: Patience,
    ) -> Self {
        let counts = Counts::default();
        let mut index = Index::new(slots);
        let mut bytes = vec![0; HEADER_BYTES];
        // What cannot be read is not there.
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
            // Without a header what is written now is lost at the end, and nothing else.
            count(&counts.write_errors, 1);
        }
        let found = index.blocks();
        let state = State {
            index,
            queue: std::collections::VecDeque::new(),
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
            jobs: Jobs::default(),
            counts,
            teller: Teller::default(),
        }
    }

    /// Whether the block will be read from here, as far as can be told.
    fn has(&self, key: Key) -> bool {
        let state = self.lock();
        state.reads.is_over() && state.index.has(key)
    }

    /// Where the blocks of a file from `first` on are, as many as are told of; the ones that are here are taken to be used.
    fn find(&self, file: &FileKey, first: u64, blocks: usize) -> Vec<Option<(Slot, Entry)>> {
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

/// A part of a local disk that holds blocks of remote stores; see the [module](self). Several stores may share it.
pub struct Tier {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Tier {
    /// Opens the tier in a folder. If 100 GiB are kept there that takes some 0.1 s with blocks of 64 KiB, and 1.5 s with
    /// blocks of 8 KiB.
    ///
    /// # Errors
    /// If the options make no sense, another tier has the folder, or no files can be made there.
    pub fn open(options: &TierOptions) -> Result<Arc<Self>, TierError> {
        let &TierOptions { budget_bytes, block_bytes, keep, .. } = options;
        if !block_bytes.is_power_of_two() || !(4096..=16 << 20).contains(&block_bytes) {
            return Err(TierError::BlockBytes(block_bytes));
        }
        let slots = budget_bytes.saturating_sub(HEADER_BYTES as u64)
            / (block_bytes as u64 + ENTRY_BYTES as u64);
        if slots == 0 {
            return Err(TierError::Budget { budget_bytes, block_bytes });
        }
        let slots = Slot::try_from(slots).unwrap_or(Slot::MAX);
        let folder = || options.folder.clone();
        let begun = Instant::now();
        let files = loop {
            match Files::open(&options.folder, keep) {
                Err(NoFiles::InUse) if begun.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(LOCK_PATIENCE / 50);
                }
                other => break other,
            }
        };
        let files = files.map_err(|cause| match cause {
            NoFiles::InUse => TierError::InUse { folder: folder() },
            NoFiles::Io(cause) => TierError::Folder { folder: folder(), cause },
        })?;
        let tier = Tier::start(Box::new(files), slots, (block_bytes, keep), PATIENCE);
        tier.map_err(TierError::Threads)
    }

    fn start(
        disk: Box<dyn Disk>,
        slots: Slot,
        kind: (usize, bool),
        patience: Patience,
    ) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared::load(disk, slots, kind, patience));
        let mut tier = Tier { shared, threads: Vec::new() };
        for number in 0..=READERS {
            let shared = Arc::clone(&tier.shared);
            let thread = std::thread::Builder::new().name("foretell-tier".to_owned());
            let thread = thread.spawn(move || match number {
                0 => shared.write_behind(),
                _ => shared.serve(),
            })?;
            tier.threads.push(thread);
        }
        Ok(Arc::new(tier))
    }

    /// `remote`, with its blocks kept here. `address` tells the store from others, and is the same whenever it is opened. For a
    /// tier that is kept, so must be its versions: the same bytes if it is the same, for ever.
    pub fn over(self: &Arc<Self>, address: &str, remote: Arc<dyn Backend>) -> TieredBackend {
        TieredBackend::new(Arc::clone(self), address, remote)
    }

    /// What it has done so far.
    pub fn stats(&self) -> TierStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.shared.counts;
        let held_blocks = self.shared.lock().index.blocks() as u64;
        TierStats {
            held_blocks,
            held_bytes: held_blocks * self.shared.block_bytes as u64,
            found_blocks: self.shared.found as u64,
            hit_blocks: of(&counts.hit),
            missed_blocks: of(&counts.missed),
            written_blocks: of(&counts.written),
            dropped_blocks: of(&counts.dropped),
            declined_blocks: of(&counts.declined),
            corrupt_blocks: of(&counts.corrupt),
            read_errors: of(&counts.read_errors),
            write_errors: of(&counts.write_errors),
        }
    }

    /// From now on `tell` is called with what goes wrong with the disk, a few times at most; in whatever thread, which must
    /// not wait there. There is one such listener: later ones are not called.
    pub fn on_trouble(&self, tell: impl Fn(&TierTrouble) + Send + Sync + 'static) {
        self.shared.teller.is(Box::new(tell));
    }

    /// Waits until all that was to be written is, or has been given up.
    pub fn settle(&self) {
        let mut state = self.shared.lock();
        while state.staged_bytes > 0 {
            state = self.shared.is_written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.is_more.notify_all();
        self.shared.jobs.close();
        for thread in self.threads.drain(..) {
            // One of them may be who drops this.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
