//! Collective reads: processors that together read one striped file after another, and compute between.
//!
//! Decides how long that takes, on modelled disks behind the project's queues, for each way of reading: demand only,
//! informed prefetching of a fixed depth, disk-directed and two-phase I/O. After Madhyastha, Gibson and Faloutsos,
//! "Informed Prefetching of Collective Input/Output Requests", 1999 (called *the paper* here; figures 4 and 6 are the
//! loop). `docs/internals/collective.md` has the design.
//!
//! * [`pattern`]: which processor owns which block;
//! * [`placement`]: where blocks lie on their disk;
//! * [`machine`]: the events of a run;
//! * [`crossover`]: the least depth that equals a collective call, by simulation;
//! * [`model`]: the paper's formulas;
//! * [`recommend`]: the depth that they recommend.
//!
//! Not here: writes, caches shared by processors, files of which only a part is read.

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
use crate::device::{Device, DiskParameters};

use pattern::Ownership;

pub use machine::Served;
pub use pattern::Pattern;
pub use placement::Placement;

/// Bytes of what the paper calls a MB: its file of 4 MB is 512 blocks of 8 KB, and its disk's 2.11 MB/s are a track
/// of 36,864 bytes in a revolution and a skew of 8 sectors in 72.
pub const MB: f64 = 1_048_576.0;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Each processor asks for a block when it needs it.
    Demand,
    /// Each processor has its next blocks fetched.
    Prefetch,
    /// Each disk has a sorted list of all (Kotz, 1997).
    DiskDirected,
    /// Contiguous portions are read, and exchanged when all are there (del Rosario, Bordawekar and Choudhary, 1993).
    TwoPhase,
    /// As that, but portions are small and taken in turn (after Thakur and Choudhary, 1995).
    TwoPhaseExtended,
}

impl Method {
    /// All, in the order in which help texts list them.
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

    /// Whether processors wait for a file as a whole.
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

/// Point-to-point messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Of each message.
    pub startup: Nanos,
    /// At which a node takes in, or sends, one block after another; infinite if that takes no time.
    pub bytes_per_s: f64,
}

impl Network {
    /// Takes no time.
    pub const INSTANT: Network = Network { startup: Nanos::ZERO, bytes_per_s: f64::INFINITY };
    /// Table 3 of the paper.
    pub const PAPER: Network = Network { startup: Nanos(25), bytes_per_s: 400.0 * MB };

    fn transfer(&self, bytes: u64) -> Nanos {
        Nanos::from_secs(bytes as f64 / self.bytes_per_s)
    }
}

/// A machine, its files, and how they are read.
#[derive(Clone, Debug)]
pub struct CollectiveSpec {
    /// P.
    pub processors: usize,
    /// D.
    pub disks: usize,
    /// Each of them.
    pub disk: DiskParameters,
    /// Of requests waiting at a disk; disk-directed I/O has its own.
    pub order: Order,
    /// Between processors and disks, and among processors.
    pub network: Network,
    /// B, of each file.
    pub file_blocks: u64,
    /// Size of a block.
    pub block_sectors: u64,
    /// How many files, one after another.
    pub files: u32,
    /// Whether one file before those and one after them are read too, and time counts from the second barrier to the last. If
    /// not, it counts from the first barrier to the end, and what the first file has ahead is had for nothing, as in the paper.
    pub steady: bool,
    /// Whose blocks are whose.
    pub pattern: Pattern,
    /// Where blocks lie on their disk.
    pub placement: Placement,
    /// Of the sequential layout: whether a file lies anywhere, but in the same place on all disks, instead of after the
    /// one before it. Then its beginning is not read ahead while nothing is asked for.
    pub apart: bool,
    /// Parts of a revolution by which each disk is turned against the one before; 0 if they turn in step.
    pub turn: f64,
    /// How they are read.
    pub method: Method,
    /// Whether a file is read while the one before is computed on.
    pub overlapped: bool,
    /// x: most prefetches of a processor that it has not read yet. Of `prefetch` alone; 0 is `demand`.
    pub depth: u64,
    /// Computing on one file; each processor's part of it is that of its blocks, times P.
    pub compute: Nanos,
    /// Of ownerships, places and drawn latencies.
    pub seed: u64,
}

/// Why a machine cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SpecError {
    /// Something is nothing.
    #[error("there must be at least one {0}")]
    None(&'static str),
    /// More than a disk has.
    #[error(
        "{blocks} blocks of a file on each disk are more than the {slots} that it has room for; take more disks or a smaller file"
    )]
    TooLarge {
        /// Of one file on a disk.
        blocks: u64,
        /// Places on the disk.
        slots: u64,
    },
    /// A run holds some 150 bytes for each.
    #[error(
        "{0} blocks in a file are more than 2^26, which take 10 GB of memory; take larger blocks or a smaller file"
    )]
    TooMany(u64),
    /// The aged layout's runs are of such blocks.
    #[error("the aged layout is of blocks of 8 KiB; take those, or another layout")]
    Aged,
    /// A list of owners is of another file, or another machine.
    #[error(
        "the list of owners has {owners} entries, the largest {largest}; it must have {blocks}, one for each block, from 0 to {last}"
    )]
    Owners {
        /// Entries.
        owners: usize,
        /// The largest.
        largest: u32,
        /// Blocks of the file.
        blocks: u64,
        /// The last processor.
        last: usize,
    },
    /// More nanoseconds than are counted.
    #[error(
        "the processor that computes longest takes {years:.0} years for all files, and no more than {:.0} are counted; take less computing, fewer files or more equal shares",
        COUNTED_NS as f64 / NS_A_YEAR
    )]
    TooLong {
        /// Of its computing on all files.
        years: f64,
    },
}

/// Of computing on all files, nanoseconds: what there is besides has room in the rest.
const COUNTED_NS: u64 = u64::MAX / 4;

/// Of 365.25 days.
const NS_A_YEAR: f64 = 365.25 * 86_400.0 * 1e9;

impl CollectiveSpec {
    /// The paper's machine (tables 1 and 3): 8 HP 97560, 8 processors, blocks of 8 KB, SSTF. A file of so many MB, read by
    /// disk-directed I/O, without computing.
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

    /// Whether there can be such a machine.
    ///
    /// # Errors
    /// Says what is wrong.
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

    /// By what a disk's queue sorts a block that begins at `sector`: a position, and a rank there. The shortest *seek* is the next
    /// cylinder's; what lies in one is equally near, and goes in the order of its sectors.
    fn place_in_queue(&self, sector: u64, device: &dyn Device) -> (u64, u32) {
        match (&self.disk, self.order) {
            (DiskParameters::Mechanical(spec), Order::Sstf) => {
                let sectors = spec.geometry.heads * spec.geometry.sectors_per_track;
                (sector / sectors, (sector % sectors) as u32)
            }
            _ => (device.position_of(sector), 0),
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_sectors * SECTOR_BYTES
    }

    /// Those that count and those that do not.
    pub fn files_read(&self) -> u32 {
        self.files + if self.steady { 2 } else { 0 }
    }

    /// B/P, rounded up.
    pub fn share_blocks(&self) -> u64 {
        self.file_blocks.div_ceil(self.processors as u64)
    }

    /// Blocks of the processor that has most: more depth than this makes no difference. [`check`](Self::check) must have
    /// found nothing.
    pub fn largest_portion_blocks(&self) -> u64 {
        self.portions().into_iter().max().unwrap_or(0)
    }

    /// How many blocks each processor has.
    fn portions(&self) -> Vec<u64> {
        let ownership = Ownership::new(&self.pattern, self.processors, self.file_blocks, self.seed);
        (0..self.processors).map(|p| u64::from(ownership.count(p))).collect()
    }

    /// Most blocks that all processors together have fetched ahead at this depth: of each its portion at most. [`check`](Self::check)
    /// must have found nothing.
    pub fn ahead_blocks(&self, depth: u64) -> u64 {
        self.portions().into_iter().map(|portion| portion.min(depth)).sum()
    }

    /// Memory for data, blocks, of all processors: B, what is ahead more, or 2B. [`check`](Self::check) must have found nothing.
    pub fn memory_blocks(&self) -> u64 {
        let ahead = match self.method {
            Method::Demand => 0,
            Method::Prefetch => self.ahead_blocks(self.depth),
            _ if self.overlapped => self.file_blocks,
            _ => 0,
        };
        self.file_blocks + ahead
    }

    /// Computing of a processor that has so many blocks of each file, nanoseconds.
    fn compute_ns(&self, blocks: u64) -> u128 {
        let own = u128::from(blocks) * self.processors as u128;
        u128::from(self.compute.0) * own / u128::from(self.file_blocks)
    }

    /// Runs it. [`check`](Self::check) must have found nothing.
    pub fn run(&self) -> CollectiveReport {
        self.run_observed(&mut |_| ())
    }

    /// Runs it and tells `observe` of each service when it ends.
    pub fn run_observed(&self, observe: &mut dyn FnMut(&Served)) -> CollectiveReport {
        machine::run(self, observe)
    }
}

/// What a run has come to. All but the bytes is of the time that counts: see [`CollectiveSpec::steady`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveReport {
    /// From barrier to barrier, or from the first barrier to the end of the last computing.
    pub elapsed: Nanos,
    /// Of all files that count.
    pub bytes: u64,
    /// From each barrier until the last processor has its portion, of all files.
    pub reading: Nanos,
    /// Requests begun.
    pub requests: u64,
    /// From a request's coming to its disk to its end, of all.
    pub response_ns: u128,
    /// From its beginning to its end, of all.
    pub service_ns: u128,
    /// Requests that began where the one before on their disk had ended.
    pub sequential: u64,
    /// For how long the busiest disk was occupied: its services divided by how many it has at once, or data on the link that
    /// these share, whichever is longer.
    pub busiest: Nanos,
}

impl CollectiveReport {
    /// Bytes by the time, in units of 2^20 a second.
    pub fn throughput_mb_s(&self) -> f64 {
        self.bytes as f64 / MB / self.elapsed.as_secs()
    }

    /// Mean time from a request's coming to its disk to its end, milliseconds.
    pub fn response_ms(&self) -> f64 {
        self.response_ns as f64 / 1e6 / self.requests.max(1) as f64
    }

    /// Mean time from a request's beginning to its end, milliseconds.
    pub fn service_ms(&self) -> f64 {
        self.service_ns as f64 / 1e6 / self.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
