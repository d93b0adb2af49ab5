//! What a driver and the policy say to each other: the configuration, work and its outcomes, what a read
//! found, and the counts.

use crate::hint::{DeviceId, FetchId, FileId, NameId};

/// What the policy is given to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Most blocks prefetched or being fetched, and unread (TIP 1994: 150 of 400 buffers).
    pub ceiling_blocks: u64,
    /// Most adjacent blocks fetched by one request.
    pub cluster_blocks_max: u64,
    /// Most fetches under way at one device.
    pub outstanding_max: usize,
    /// Most files of a device looked up, or being looked up, and not yet worked off.
    pub resolved_max: usize,
    /// A stream's unread blocks that lie this many fetched blocks behind the one last read are given
    /// up as skipped.
    pub skip_window_blocks: u64,
}

impl Config {
    /// A configuration with a ceiling of `budget_bytes` in blocks of `block_bytes`, and defaults for
    /// the rest.
    pub fn with_budget(block_bytes: u64, budget_bytes: u64) -> Self {
        let ceiling_blocks = (budget_bytes / block_bytes).max(1);
        Config {
            block_bytes,
            ceiling_blocks,
            cluster_blocks_max: (128 * 1024 / block_bytes).max(1),
            outstanding_max: 1024,
            resolved_max: 1024,
            skip_window_blocks: (ceiling_blocks / 2).max(1),
        }
    }
}

/// Something for the driver to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// To name it in [`Policy::completed`](crate::Policy::completed).
    pub id: FetchId,
    /// The device that will do it.
    pub device: DeviceId,
    /// What to do.
    pub work: Work,
}

/// The kinds of [`Fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Look the name up: its metadata comes into memory, and the answer tells file and size.
    Resolve {
        /// The name.
        name: NameId,
    },
    /// Bring blocks `first_block .. first_block + blocks` into memory.
    Read {
        /// The file.
        file: FileId,
        /// Index of the first block.
        first_block: u64,
        /// How many; at least 1, at most [`Config::cluster_blocks_max`].
        blocks: u64,
    },
}

/// How a [`Fetch`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A resolve: the name is this file.
    Resolved {
        /// The file; two names of one file give the same.
        file: FileId,
        /// Its size now.
        size_bytes: u64,
    },
    /// A read: the blocks are in memory now and were not before.
    Fetched,
    /// A read: the first `blocks` blocks are in memory; the rest does not exist any more.
    Short {
        /// Blocks that arrived.
        blocks: u64,
    },
    /// A read: the blocks were in memory already, and no I/O was done.
    AlreadyCached,
    /// A resolve: the hint was a guess, and the name stands for nothing that could be prefetched.
    Void,
    /// The name, or the blocks, cannot be had: not found, not permitted, I/O error, not a file.
    Refused,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Prefetched, and in memory in time.
    Hit,
    /// Prefetched, but still on its way.
    InFlight,
    /// Nothing the policy had a hand in.
    Miss,
}

/// What has become of hints and prefetches; blocks unless said otherwise. Every prefetched block ends
/// as exactly one of useful, late, wasted, unfinished or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hints given.
    pub hints: u64,
    /// Hints whose name was looked up.
    pub hints_resolved: u64,
    /// Hints whose name could not be had.
    pub hints_refused: u64,
    /// Hints that were guesses, and wrong.
    pub hints_void: u64,
    /// Hints passed over because all that was looked at before them was in memory.
    pub hints_passed_over: u64,
    /// Handed out to be fetched.
    pub prefetched: u64,
    /// Read after they had arrived.
    pub useful: u64,
    /// Read while still on their way.
    pub late: u64,
    /// Never read: still unread when their stream ended, or skipped by its reader.
    pub wasted: u64,
    /// Still on their way when their stream ended.
    pub unfinished: u64,
    /// Could not be fetched, or lay beyond the end of the file.
    pub refused: u64,
    /// Found in memory when their turn to be fetched came.
    pub already_cached: u64,
    /// Hinted, but read by the program before they were fetched.
    pub overtaken: u64,
}
