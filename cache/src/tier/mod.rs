//! The second tier: blocks of remote stores, kept on a part of a local disk.
//!
//! A store with a tier is a back end around another one ([`Tier::over`]). A block that comes from the remote store is written
//! to the disk in the background, and read from there when it is wanted again. To the policy, near blocks are a device with a
//! queue and a fetch time of its own (`Object::is_near`).
//!
//! * **A. Near.** All bytes of a block are read from its slot and pass the check: they are served.
//! * **B. Not right.** The bytes cannot be read or fail the check: the block is forgotten here and fetched from the
//!   remote store. The reader notices nothing, so the tier never causes an error or a wrong byte.
//! * **C. Far.** A block that comes from the remote store is copied to a queue of [`STAGED_MAX_BYTES`], which one
//!   thread writes out. If the queue or the disk is full, the block is not kept. No read ever waits for a write.
//! * **D. Trouble.** After a failed write, or several failed reads in a row, the disk is left alone for a second. The
//!   pause doubles while the failures continue, up to a minute. If the disk is full, slots that already have room on it
//!   stay in use. A listener is told ([`Tier::on_trouble`]).
//!
//! By module: `format` has the layout on disk and why it survives a crash; `index` and `clock` which block has which
//! slot; `disk` the files; `shared` what all threads use; `staged`, `writer` and `reader` the ways to and from the disk;
//! `around`, `backend` and `share` how a request is divided between near and far; `trouble` the messages.
//!
//! Locks: one for index and queue, held to look up the blocks of a request and never while waiting; one for the jobs of
//! readers. Neither is taken under the other.

mod around;
mod backend;
mod clock;
mod disk;
#[cfg(feature = "fleet")]
pub mod fleet;
mod format;
mod index;
mod joint;
mod memory;
mod reader;
mod share;
mod shared;
mod staged;
#[cfg(test)]
mod tests;
mod tiers;
mod trouble;
mod writer;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use backend::TieredBackend;
use clock::Slot;
use disk::{Disk, Files, NoFiles};
use format::{ENTRY_BYTES, HEADER_BYTES};
use reader::Jobs;
pub use shared::STAGED_MAX_BYTES;
use shared::{PATIENCE, Patience, Shared};
pub use tiers::{Tiers, TiersStats};
pub use trouble::TierTrouble;

/// Threads that read from the disk: as many requests as keep an SSD busy.
const READERS: usize = 16;

/// How long to wait for a folder that another tier still has locked: it may be closing, or its process may have just
/// been killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Where the second tier is, and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// A folder on a local disk, for this tier alone. It is created if necessary. Users who can write to it are trusted.
    pub folder: PathBuf,
    /// Bytes of disk, at most, including the index.
    pub budget_bytes: u64,
    /// Bytes of a block. Use the cache's ([`CacheOptions`](crate::CacheOptions)), since only whole blocks are kept.
    pub block_bytes: usize,
    /// Whether blocks are kept from run to run. If not, an earlier tier in the folder is deleted, the tier begins
    /// empty, and nothing is left on disk however the process ends.
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

/// Counts since the tier was opened, in blocks unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TierStats {
    /// Blocks in the tier now.
    pub held_blocks: u64,
    /// Bytes of disk that they take, without the index.
    pub held_bytes: u64,
    /// Blocks found when the tier was opened.
    pub found_blocks: u64,
    /// Blocks read from the tier that passed the check.
    pub hit_blocks: u64,
    /// Blocks fetched from the remote store, since the tier did not have them or could not read them.
    pub missed_blocks: u64,
    /// Blocks written to the tier.
    pub written_blocks: u64,
    /// Blocks not written, since the disk was slow, full, or left alone.
    pub dropped_blocks: u64,
    /// Blocks not written, since the block in the way is used more.
    pub declined_blocks: u64,
    /// Blocks that were read and failed the check.
    pub corrupt_blocks: u64,
    /// Failed reads from the disk.
    pub read_errors: u64,
    /// Failed writes to the disk.
    pub write_errors: u64,
}

/// Blocks of remote stores on a part of a local disk; see the [module](self). Several stores may share a tier.
pub struct Tier {
    shared: Arc<Shared>,
    jobs: Arc<Jobs>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Tier {
    /// Opens the tier in a folder. With 100 GiB in it, this takes about 0.1 s for blocks of 64 KiB and 1.5 s for blocks
    /// of 8 KiB.
    ///
    /// # Errors
    /// If the options are wrong, another tier uses the folder, or its files cannot be created.
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
        let mut tier = Tier { shared, jobs: Arc::default(), threads: Vec::new() };
        for number in 0..=READERS {
            let (shared, jobs) = (Arc::clone(&tier.shared), Arc::clone(&tier.jobs));
            let thread = std::thread::Builder::new().name("foretell-tier".to_owned());
            let thread = thread.spawn(move || match number {
                0 => shared.write_behind(),
                _ => shared.serve(&jobs),
            })?;
            tier.threads.push(thread);
        }
        Ok(Arc::new(tier))
    }

    /// Counts since the tier was opened.
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

    /// Sets the listener for trouble with the disk. It is called at most once a minute for each kind, in any thread,
    /// and must not wait. Only the first listener is ever called.
    pub fn on_trouble(&self, tell: impl Fn(&TierTrouble) + Send + Sync + 'static) {
        self.shared.teller.set_listener(Box::new(tell));
    }

    /// Waits until all queued blocks have been written or given up.
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
        self.jobs.close();
        for thread in self.threads.drain(..) {
            // The dropping thread may be one of them.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
