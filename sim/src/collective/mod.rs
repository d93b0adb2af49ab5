//! Collective reads: processors that together read one striped file after another, and compute between files.
//!
//! Simulates the time this takes, on modelled disks behind the project's queues. The ways of reading are demand
//! only, informed prefetching of a fixed depth, disk-directed I/O and two-phase I/O. Based on Madhyastha,
//! Gibson and Faloutsos, "Informed Prefetching of Collective Input/Output Requests", 1999 (*the paper* below;
//! the loop is that of its figures 4 and 6). `docs/internals/collective.md` has the design.
//!
//! * [`pattern`]: the blocks of each processor;
//! * [`placement`]: the places of blocks on their disks;
//! * [`machine`]: the events of a run;
//! * [`crossover`]: the least depth that equals a collective call, by simulation;
//! * [`model`]: the paper's formulas;
//! * [`recommend`]: the recommended depth, from these formulas and a few runs.
//!
//! Not here: writes, caches shared by processors, and files that are read in part.

pub mod crossover;
pub mod machine;
pub mod model;
pub mod pattern;
pub mod placement;
pub mod recommend;

use std::fmt;
use std::str::FromStr;

use foretell_policy::Nanos;
use foretell_policy::queue::Order;
use serde::Serialize;
use thiserror::Error;

use crate::SECTOR_BYTES;
use crate::device::DiskParameters;

use pattern::Ownership;

pub use machine::Served;
pub use pattern::Pattern;
pub use placement::{Placement, Places, Placing};

/// Bytes of the paper's MB: its file of 4 MB is 512 blocks of 8 KB, and its disk's 2.11 MB/s are a track of
/// 36,864 bytes in one revolution and a skew of 8 sectors of 72.
pub const MB: f64 = 1_048_576.0;

/// The way a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Each processor requests a block when it needs it.
    Demand,
    /// Each processor has its next blocks fetched ahead.
    Prefetch,
    /// Each disk gets a sorted list of all its blocks (Kotz, 1997).
    DiskDirected,
    /// Processors read contiguous portions, and exchange blocks when all are read (del Rosario, Bordawekar and
    /// Choudhary, 1993).
    TwoPhase,
    /// Like two-phase, but portions are small and taken in turn (after Thakur and Choudhary, 1995).
    TwoPhaseExtended,
}

impl Method {
    /// All methods, in the order in which help texts list them.
    pub const ALL: [Method; 5] = [
        Method::Demand,
        Method::Prefetch,
        Method::DiskDirected,
        Method::TwoPhase,
        Method::TwoPhaseExtended,
    ];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Method::Demand => "demand",
            Method::Prefetch => "prefetch",
            Method::DiskDirected => "disk-directed",
            Method::TwoPhase => "two-phase",
            Method::TwoPhaseExtended => "two-phase-extended",
        }
    }

    /// Whether processors wait for the whole file.
    pub fn is_collective(self) -> bool {
        !matches!(self, Method::Demand | Method::Prefetch)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Method::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| {
            let known = Method::ALL.map(Method::name).join(", ");
            format!("unknown method {text:?}; known are {known}")
        })
    }
}

/// Costs of point-to-point messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Start-up time of each message.
    pub startup: Nanos,
    /// Rate at which a node sends or receives blocks, one after another; infinite if that takes no time.
    pub bytes_per_s: f64,
}

impl Network {
    /// A network that takes no time.
    pub const INSTANT: Network = Network { startup: Nanos::ZERO, bytes_per_s: f64::INFINITY };
    /// The network of the paper's table 3.
    pub const PAPER: Network = Network { startup: Nanos(25), bytes_per_s: 400.0 * MB };

    fn transfer(&self, bytes: u64) -> Nanos {
        Nanos::from_secs(bytes as f64 / self.bytes_per_s)
    }
}

/// A machine, its files, and the way they are read.
#[derive(Clone, Debug)]
pub struct CollectiveSpec {
    /// Number of processors (P).
    pub processors: usize,
    /// Number of disks (D).
    pub disks: usize,
    /// Parameters of each disk.
    pub disk: DiskParameters,
    /// The order of requests that wait at a disk. Disk-directed I/O sorts its own lists.
    pub order: Order,
    /// The network between processors and disks, and among processors.
    pub network: Network,
    /// Blocks of each file (B).
    pub file_blocks: u64,
    /// Sectors of a block.
    pub block_sectors: u64,
    /// Number of files, read one after another.
    pub files: u32,
    /// Whether one more file is read before the files that count and one after them, and time counts from the second barrier to
    /// the last. If not, time counts from the first barrier to the end, and blocks of the first file that are fetched ahead
    /// cost nothing, as in the paper.
    pub steady: bool,
    /// The blocks of each processor.
    pub pattern: Pattern,
    /// The places of blocks on their disks.
    pub placement: Placement,
    /// For the sequential layout: whether each file lies at a random place, the same on all disks, instead of directly behind
    /// the previous file. Then idle disks do not read ahead into the next file.
    pub apart: bool,
    /// How far each disk's rotation is ahead of the disk before, in revolutions; 0 if they rotate in step.
    pub turn: f64,
    /// The way files are read.
    pub method: Method,
    /// Whether a file is read while the one before is computed on.
    pub overlapped: bool,
    /// Blocks that a processor has requested ahead and not yet read, at most (x). Used by `prefetch` only; 0 is
    /// the same as `demand`.
    pub depth: u64,
    /// Computing on one file by a processor that has an equal share of it (B/P blocks); otherwise in
    /// proportion.
    pub compute: Nanos,
    /// Seed of drawn ownerships, places and latencies.
    pub seed: u64,
}

/// Why a machine is impossible.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SpecError {
    /// A number is 0.
    #[error("there must be at least one {0}")]
    None(&'static str),
    /// A file has more blocks than fit on a disk.
    #[error(
        "{blocks} blocks of a file on each disk are more than the {slots} that it has room for; take more disks or a smaller file"
    )]
    TooLarge {
        /// Blocks of one file on a disk.
        blocks: u64,
        /// Places for blocks on a disk.
        slots: u64,
    },
    /// A file has too many blocks; a run holds about 150 bytes for each.
    #[error(
        "{0} blocks in a file are more than 2^26, which take 10 GB of memory; take larger blocks or a smaller file"
    )]
    TooMany(u64),
    /// The aged layout needs blocks of 8 KiB.
    #[error("the aged layout is of blocks of 8 KiB; take those, or another layout")]
    Aged,
    /// A list of owners does not fit the file or the machine.
    #[error(
        "the list of owners has {owners} entries, the largest {largest}; it must have {blocks}, one for each block, from 0 to {last}"
    )]
    Owners {
        /// Entries of the list.
        owners: usize,
        /// The largest entry.
        largest: u32,
        /// Blocks of the file.
        blocks: u64,
        /// The number of the last processor.
        last: usize,
    },
    /// The run would overflow the count of nanoseconds.
    #[error(
        "the processor that computes longest takes {years:.0} years for all files, and no more than {:.0} are counted; take less computing, fewer files or more equal shares",
        COUNTED_NS as f64 / NS_A_YEAR
    )]
    TooLong {
        /// Years of computing on all files.
        years: f64,
    },
}

/// Limit of the computing on all files, in nanoseconds. The rest of the range is for everything else.
const COUNTED_NS: u64 = u64::MAX / 4;

/// Nanoseconds of a year of 365.25 days.
const NS_A_YEAR: f64 = 365.25 * 86_400.0 * 1e9;

impl CollectiveSpec {
    /// The paper's machine (tables 1 and 3): 8 HP 97560, 8 processors, blocks of 8 KB and SSTF. It reads four
    /// files of `file_mb` MB each, one after another, by disk-directed I/O, without computing.
    pub fn paper(file_mb: u64) -> Self {
        CollectiveSpec {
            processors: 8,
            disks: 8,
            disk: DiskParameters::hp97560_stored(),
            order: Order::Sstf,
            network: Network::PAPER,
            file_blocks: file_mb * 128,
            block_sectors: 16,
            files: 4,
            steady: false,
            pattern: Pattern::Interleaved,
            placement: Placement::Sequential,
            apart: false,
            turn: 0.0,
            method: Method::DiskDirected,
            overlapped: false,
            depth: 0,
            compute: Nanos::ZERO,
            seed: 1,
        }
    }

    /// Checks that the machine is possible.
    ///
    /// # Errors
    /// [`SpecError`] says what is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        let counts = [
            (self.processors as u64, "processor"),
            (self.disks as u64, "disk"),
            (self.file_blocks, "block in a file"),
            (self.block_sectors, "sector in a block"),
            (u64::from(self.files), "file"),
        ];
        if let Some((_, what)) = counts.iter().find(|(count, _)| *count == 0) {
            return Err(SpecError::None(what));
        }
        if self.file_blocks > 1 << 26 {
            return Err(SpecError::TooMany(self.file_blocks));
        }
        let blocks = self.file_blocks.div_ceil(self.disks as u64);
        let slots = (self.disk.capacity_sectors() / self.block_sectors).min(u64::from(u32::MAX));
        if blocks > slots {
            return Err(SpecError::TooLarge { blocks, slots });
        }
        if self.placement == Placement::Aged && self.block_sectors != placement::AGED_BLOCK_SECTORS
        {
            return Err(SpecError::Aged);
        }
        if let Pattern::Owners(owners) = &self.pattern {
            let largest = owners.iter().copied().max().unwrap_or(0);
            if owners.len() as u64 != self.file_blocks || largest as usize >= self.processors {
                let (owners, last) = (owners.len(), self.processors - 1);
                let blocks = self.file_blocks;
                return Err(SpecError::Owners { owners, largest, blocks, last });
            }
        }
        if self.compute > Nanos::ZERO {
            let longest = self.compute_ns(self.largest_portion_blocks());
            let all = longest * u128::from(self.files_read());
            if all > u128::from(COUNTED_NS) {
                return Err(SpecError::TooLong { years: all as f64 / NS_A_YEAR });
            }
        }
        Ok(())
    }

    /// What the places of blocks depend on.
    pub fn placing(&self) -> Placing {
        Placing {
            placement: self.placement,
            apart: self.apart,
            disks: self.disks,
            capacity_sectors: self.disk.capacity_sectors(),
            file_blocks: self.file_blocks,
            block_sectors: self.block_sectors,
            seed: self.seed,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_sectors * SECTOR_BYTES
    }

    /// Files that are read, including those that do not count.
    pub fn files_read(&self) -> u32 {
        self.files + if self.steady { 2 } else { 0 }
    }

    /// Blocks of a processor on average (B/P), rounded up.
    pub fn share_blocks(&self) -> u64 {
        self.file_blocks.div_ceil(self.processors as u64)
    }

    /// Blocks of the processor that has most; a greater depth makes no difference. [`check`](Self::check) must
    /// have succeeded.
    pub fn largest_portion_blocks(&self) -> u64 {
        self.portions().into_iter().max().unwrap_or(0)
    }

    /// The number of blocks of each processor.
    fn portions(&self) -> Vec<u64> {
        let ownership = Ownership::new(&self.pattern, self.processors, self.file_blocks, self.seed);
        (0..self.processors).map(|p| u64::from(ownership.count(p))).collect()
    }

    /// Blocks that all processors together have fetched ahead at this depth, at most. [`check`](Self::check)
    /// must have succeeded.
    pub fn ahead_blocks(&self, depth: u64) -> u64 {
        self.portions().into_iter().map(|portion| portion.min(depth)).sum()
    }

    /// Memory for data of all processors, in blocks: B and the blocks fetched ahead, or 2B if a collective call
    /// is overlapped. [`check`](Self::check) must have succeeded.
    pub fn memory_blocks(&self) -> u64 {
        let ahead = match self.method {
            Method::Demand => 0,
            Method::Prefetch => self.ahead_blocks(self.depth),
            _ if self.overlapped => self.file_blocks,
            _ => 0,
        };
        self.file_blocks + ahead
    }

    /// Nanoseconds of computing of a processor that has `blocks` of each file.
    fn compute_ns(&self, blocks: u64) -> u128 {
        let own = u128::from(blocks) * self.processors as u128;
        u128::from(self.compute.0) * own / u128::from(self.file_blocks)
    }

    /// Runs the machine. [`check`](Self::check) must have succeeded.
    pub fn run(&self) -> CollectiveReport {
        self.run_observed(&mut |_| ())
    }

    /// Runs the machine, and calls `observe` with each service when it ends.
    pub fn run_observed(&self, observe: &mut dyn FnMut(&Served)) -> CollectiveReport {
        machine::run(self, observe)
    }
}

/// The result of a run, over the time that counts; see [`CollectiveSpec::steady`]. `bytes` does not depend on
/// that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveReport {
    /// From barrier to barrier, or from the first barrier to the end of the last computing.
    pub elapsed: Nanos,
    /// Bytes of all files that count.
    pub bytes: u64,
    /// Time from each barrier until the last processor has its portion, over all files.
    pub reading: Nanos,
    /// Requests that disks began.
    pub requests: u64,
    /// Sum over all requests of the time from arrival at the disk to the end.
    pub response_ns: u128,
    /// Sum over all requests of the time from the beginning of service to the end.
    pub service_ns: u128,
    /// Requests that began where the previous one on their disk had ended.
    pub sequential: u64,
    /// How long the busiest disk was occupied: its service times divided by its slots, or the time its link
    /// carried data, whichever is longer.
    pub busiest: Nanos,
}

impl CollectiveReport {
    /// Throughput in units of 2^20 bytes a second.
    pub fn throughput_mb_s(&self) -> f64 {
        self.bytes as f64 / MB / self.elapsed.as_secs()
    }

    /// Mean response time of a request, from its arrival at the disk to its end, in milliseconds.
    pub fn response_ms(&self) -> f64 {
        self.response_ns as f64 / 1e6 / self.requests.max(1) as f64
    }

    /// Mean service time of a request, in milliseconds.
    pub fn service_ms(&self) -> f64 {
        self.service_ns as f64 / 1e6 / self.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
