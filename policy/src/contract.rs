//! The contract between a driver and the policy: the configuration, work and its outcomes, the result of a read, and the
//! counts.

use crate::hint::{DeviceId, FetchId, FileId, NameId};
use crate::rules::Rules;

/// The owner of the memory that blocks lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The driver's memory. It fetches blocks that are read and not there ([`Policy::demand`](crate::Policy::demand)), and
    /// evicts a block when the policy says so.
    Owned,
    /// The kernel's page cache. Programs read by themselves, and the policy manages only what it prefetched. With `keeps`, the
    /// policy still manages a block after a read if it is disclosed to be read again, so that the policy can say which blocks
    /// to release. Without `keeps`, a block that was read belongs to the kernel.
    Kernel {
        /// Whether the policy keeps managing blocks that will be read again.
        keeps: bool,
    },
}

/// Source of the costs of reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CostSource {
    /// Measured by [`Policy::observe`](crate::Policy::observe). These values apply until then.
    Measured(CostModel),
    /// Always these values, for experiments.
    Fixed(CostModel),
}

/// The terms of TIP 1995, section 4.2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// `T_hit`, ns: reading a block that is in memory.
    pub hit_ns: f64,
    /// `T_driver`, ns: processor time of starting and completing a fetch.
    pub driver_ns: f64,
    /// `T_disk`, ns: from the start of a fetch to its arrival.
    pub disk_ns: f64,
}

impl Default for CostModel {
    /// Costs of a disk on a machine of 2026: 2 µs, 10 µs and 5 ms.
    fn default() -> Self {
        CostModel { hit_ns: 2e3, driver_ns: 1e4, disk_ns: 5e6 }
    }
}

/// The policy's configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The most blocks in memory or in flight that the policy manages.
    pub capacity_blocks: u64,
    /// The most adjacent blocks fetched by one request.
    pub cluster_blocks_max: u64,
    /// The most prefetches in flight at one device.
    pub outstanding_max: usize,
    /// The most files of a device that are looked up, or in lookup, and not past. Files that hints give by number count too: if
    /// a driver discloses many of those along with names, the names wait.
    pub resolved_max: usize,
    /// The rules of prefetching and replacement.
    pub rules: Rules,
    /// The owner of the memory.
    pub memory: Memory,
    /// Whether the policy samples how many prefetches a device may have in flight (`devices/depth.rs`). It is for devices that
    /// may be one disk or many. It does not depend on `memory`.
    pub tries_depths: bool,
    /// Source of the costs.
    pub costs: CostSource,
    /// Number of decisions kept; see [`Policy::take_decisions`](crate::Policy::take_decisions).
    pub decisions_max: usize,
}

impl Config {
    /// The default policy over `budget_bytes` of this memory, in blocks of `block_bytes`. Depths are tried only behind a
    /// kernel's page cache.
    pub fn new(memory: Memory, block_bytes: u64, budget_bytes: u64) -> Self {
        Config {
            block_bytes,
            capacity_blocks: (budget_bytes / block_bytes).max(1),
            cluster_blocks_max: (128 * 1024 / block_bytes).max(1),
            outstanding_max: 1024,
            resolved_max: 1024,
            rules: Rules::FORETELL,
            memory,
            tries_depths: memory != Memory::Owned,
            costs: CostSource::Measured(CostModel::default()),
            decisions_max: 0,
        }
    }
}

/// Work for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Identifies it in [`Policy::completed`](crate::Policy::completed).
    pub id: FetchId,
    /// The device that does the work.
    pub device: DeviceId,
    /// The work.
    pub work: Work,
}

/// The kinds of [`Fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Look up the name. This brings its metadata into memory, and the answer gives file and size.
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
        /// Number of blocks: at least 1, at most [`Config::cluster_blocks_max`], or what is
        /// [set](crate::Policy::set_cluster) for its stream.
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
        /// The file's size now.
        size_bytes: u64,
    },
    /// A read: the blocks are in memory and were not before.
    Fetched,
    /// A read: the first `blocks` blocks are in memory; the others no longer exist.
    Short {
        /// Blocks that arrived.
        blocks: u64,
    },
    /// A read: the blocks were in memory before, and no I/O was done.
    AlreadyCached,
    /// A resolve: the hint was a guess, and the name stands for nothing that can be prefetched.
    Void,
    /// The name or the blocks are not available: not found, not permitted, I/O error, not a file.
    Refused,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The block is in memory.
    Hit,
    /// The block's fetch is in flight.
    InFlight,
    /// Not managed by the policy. A driver that owns the memory fetches the block now:
    /// [`Policy::demand`](crate::Policy::demand).
    Miss,
}

/// What became of hints and prefetches, in blocks unless stated otherwise. Every prefetched block ends as exactly one of
/// useful, late, wasted, unfinished or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hints given.
    pub hints: u64,
    /// Hints whose name was looked up.
    pub hints_resolved: u64,
    /// Hints whose name was not available.
    pub hints_refused: u64,
    /// Hints that were wrong guesses.
    pub hints_void: u64,
    /// Hints skipped because everything visited before them was in memory.
    pub hints_passed_over: u64,
    /// Blocks handed out to be fetched.
    pub prefetched: u64,
    /// Blocks read after they arrived.
    pub useful: u64,
    /// Blocks read while in flight.
    pub late: u64,
    /// Blocks never read: unread when their stream ended, or skipped by its reader.
    pub wasted: u64,
    /// Blocks in flight when their stream ended.
    pub unfinished: u64,
    /// Blocks that could not be fetched, or lay beyond the end of the file.
    pub refused: u64,
    /// Blocks found in memory when their turn to be fetched came.
    pub already_cached: u64,
    /// Hinted blocks that the program read before they were fetched.
    pub overtaken: u64,
    /// Blocks of reads that had to wait, and that were neither fetched ahead nor in flight. A block counts as often as a
    /// program has waited.
    pub waited: u64,
    /// Those of them that no hint had named.
    pub unforeseen: u64,
}

/// Why a block that has arrived stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A stream will read it, or is reading it.
    Expected,
    /// It was read without a hint.
    Recent,
    /// It was read as hinted, and its buffer has not been needed since.
    Consumed,
    /// It was read, and only this estimator of the list keeps it.
    KeptBy(&'static str),
}
