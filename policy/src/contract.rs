//! What a driver and the policy say to each other: the configuration, work and its outcomes, what a read
//! found, and the counts.

use crate::hint::{DeviceId, FetchId, FileId, NameId};
use crate::rules::Rules;

/// The owner of the memory that blocks lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The driver's: it fetches what is read and not there ([`Policy::demand`](crate::Policy::demand)),
    /// and a block leaves when the policy says so.
    Owned,
    /// The kernel's page cache: programs read for themselves. The policy has a hand in what it
    /// prefetched and nothing else. With `keeps`, blocks that are disclosed to be read again stay its
    /// business after they were read, so that it can say which of them to release; without, a block
    /// that was read is the kernel's.
    Kernel {
        /// Whether blocks that will be read again are kept account of.
        keeps: bool,
    },
}

/// Where the costs of reading come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CostSource {
    /// Measured: [`Policy::observe`](crate::Policy::observe), starting from these.
    Measured(CostModel),
    /// These, whatever is observed: for experiments.
    Fixed(CostModel),
}

/// The terms of TIP 1995, section 4.2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// `T_hit`, ns: reading a block that is in memory.
    pub hit_ns: f64,
    /// `T_driver`, ns: processor time of starting a fetch and taking its end.
    pub driver_ns: f64,
    /// `T_disk`, ns: from the start of a fetch to its arrival.
    pub disk_ns: f64,
}

impl Default for CostModel {
    /// What a disk costs on a machine of 2026: 2 µs, 10 µs and 5 ms.
    fn default() -> Self {
        CostModel { hit_ns: 2e3, driver_ns: 1e4, disk_ns: 5e6 }
    }
}

/// What the policy is given to work with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Most blocks in memory or being fetched, as far as the policy has a hand in them.
    pub capacity_blocks: u64,
    /// Most adjacent blocks fetched by one request.
    pub cluster_blocks_max: u64,
    /// Most prefetches under way at one device.
    pub outstanding_max: usize,
    /// Most files of a device looked up, or being looked up, and not yet worked off. Files that hints name by their numbers
    /// count too: a driver that discloses many of those beside names has the names wait.
    pub resolved_max: usize,
    /// Which policy.
    pub rules: Rules,
    /// The owner of the memory.
    pub memory: Memory,
    /// Whether depths are tried: how many prefetches a device is best given at once, where nobody knows whether it is one disk or
    /// many. It does not follow `memory`.
    pub tries_depths: bool,
    /// Where the costs come from.
    pub costs: CostSource,
    /// Decisions remembered; see [`Policy::take_decisions`](crate::Policy::take_decisions).
    pub decisions_max: usize,
}

impl Config {
    /// The default policy over `budget_bytes` of memory of this kind, in blocks of `block_bytes`. Depths are tried behind
    /// a kernel's page cache.
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
    /// In memory.
    Hit,
    /// On its way: its fetch is under way.
    InFlight,
    /// Nothing the policy has a hand in. If the memory is the driver's, it fetches the block now:
    /// [`Policy::demand`](crate::Policy::demand).
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

/// Why a block that has arrived is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A stream will read it, or is reading it.
    Expected,
    /// It was read without a hint.
    Recent,
    /// It was read as hinted, and nobody else has needed its buffer so far.
    Consumed,
}
