//! Runs a recording on another machine, to predict the gain of hints, memory, disks or another store.
//!
//! Each reader of a recording becomes a program. Between two of its calls it works for as long as it did in the
//! recording, and its reads go through the given policy to the given devices. So a prediction takes three
//! things from the recording (the bytes read, their order, and the work between them), and the rest from the
//! model.
//!
//! * [`activity`]: the recorded actions, independent of the format;
//! * `links`: which reader created which, and which waited for which;
//! * [`steps`]: makes programs of them, with or without disclosures.
//!
//! A result has three bounds. No program ends before its own work is done. No device ends before it has served
//! its requests. No policy fetches fewer blocks than one that knows all reads; this bound exists for a single
//! program, whose order is known. A result below a bound is a bug, and ends the run with a panic.
//!
//! If several processes were recorded, each begins when its parent creates it, and waits for others where it
//! did in the recording. Such waits are neither work nor stall. The recording shows which process ended a wait
//! for a child, or for a pipe with a known number. Any other wait is taken to end with the last act that
//! another process had begun by then. The time from that act to the end of the wait is dropped.
//!
//! Not modelled: writes; waits that were not recorded, except that a pipe must be written before it is read;
//! and the slowdown of shared processors.

pub mod activity;
mod links;
pub mod steps;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use foretell_policy::queue::Order;
use foretell_policy::{Config, DeviceId, FileId, Memory, NameId, Nanos, Rules};
use serde::Serialize;
use thiserror::Error;

use crate::array::Striping;
use crate::device::DiskParameters;
use crate::layout::{FileId as PlacedFile, Layout};
use crate::machine::program::Program;
use crate::machine::read_ahead::ReadAheadSpec;
use crate::machine::report::Report;
use crate::machine::server::{ArraySpec, DeviceSpec, PAGE_BYTES, Priority};
use crate::machine::{MachineSpec, Metadata, Readers};
use crate::offline::belady::Belady;
use activity::Activity;
use links::{Links, Reader};

/// The one device, which holds all files.
pub(crate) const DEVICE: DeviceId = DeviceId(0);

/// Lookups in flight at once. `foretell run` has as many: its page-cache driver uses so many threads for a
/// device (`THREADS_MAX` of its pool). Advice takes such a thread too, but mostly does not wait, so it takes
/// none here.
const LOOKUPS_MAX: usize = 64;

/// The reads that are disclosed to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclosed {
    /// Nothing.
    None,
    /// All reads of a program, before it begins.
    All,
    /// The files that a program reads, as wholes, before it begins: what `foretell run` learns from arguments.
    Files,
    /// The reads that the program itself disclosed to the kernel, by posix_fadvise or readahead, at the same moment.
    Recorded,
    /// Each read, this number of reads ahead of it.
    Ahead(u64),
}

impl fmt::Display for Disclosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disclosed::None => f.write_str("none"),
            Disclosed::All => f.write_str("all"),
            Disclosed::Files => f.write_str("files"),
            Disclosed::Recorded => f.write_str("recorded"),
            Disclosed::Ahead(reads) => write!(f, "{reads}-ahead"),
        }
    }
}

impl FromStr for Disclosed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ahead = |text: &str| text.strip_suffix("-ahead")?.parse().ok().filter(|&n| n > 0);
        match text {
            "none" => Ok(Disclosed::None),
            "all" => Ok(Disclosed::All),
            "files" => Ok(Disclosed::Files),
            "recorded" => Ok(Disclosed::Recorded),
            _ => ahead(text).map(Disclosed::Ahead).ok_or_else(|| {
                format!("unknown hints {text:?}; known are none, recorded, files, all, and N-ahead such as 20-ahead")
            }),
        }
    }
}

/// How files are placed on the disks; see [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// One after another, by their numbers.
    Sequential,
    /// In short runs all over the volume.
    Aged,
}

/// Processor times of the modelled machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Factor on recorded work and on the times below.
    pub factor: f64,
    /// The recorder's own time, subtracted from each recorded gap between two calls.
    pub overhead: Nanos,
    /// Time between two reads, if the recording lacks durations of calls.
    pub think: Nanos,
    /// Reading a block that is in memory (`T_hit`).
    pub hit: Nanos,
    /// Starting and completing a fetch (`T_driver`).
    pub driver: Nanos,
    /// Opening a file whose inode is in memory.
    pub open: Nanos,
}

impl Default for Work {
    /// Times of a machine of 2026, and no time between reads.
    fn default() -> Self {
        let micros = |us: u64| Nanos(us * 1000);
        Work {
            factor: 1.0,
            overhead: Nanos::ZERO,
            think: Nanos::ZERO,
            hit: micros(2),
            driver: micros(10),
            open: micros(5),
        }
    }
}

/// The modelled machine, and how the recording runs on it.
#[derive(Clone, Debug)]
pub struct ReplaySpec {
    /// The policy.
    pub rules: Rules,
    /// The reads that are disclosed.
    pub disclosed: Disclosed,
    /// Memory for blocks, in bytes.
    pub cache_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The parameters of each disk.
    pub disk: DiskParameters,
    /// Number of disks.
    pub disks: usize,
    /// The stripe unit: bytes on one disk before the next disk follows.
    pub stripe_bytes: u64,
    /// The order in which waiting requests go to a disk.
    pub order: Order,
    /// Requests that a disk holds at once.
    pub outstanding: usize,
    /// How files are placed.
    pub placing: Placing,
    /// Seed of the aged layout and of drawn latencies.
    pub seed: u64,
    /// Whether the first open of a file reads its inode.
    pub inodes: bool,
    /// Read-ahead of reads that are not disclosed.
    pub read_ahead: Option<ReadAheadSpec>,
    /// Processor times.
    pub work: Work,
}

/// The result of a replay. Seconds are those of the modelled machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayResult {
    /// From the first program's start to the last one's end.
    pub elapsed_s: f64,
    /// Work of all programs together.
    pub cpu_s: f64,
    /// Time in which programs waited for devices, all together.
    pub stall_s: f64,
    /// Blocks read.
    pub reads: u64,
    /// Blocks of `reads` that were in memory because of an earlier read.
    pub hits: u64,
    /// Blocks of `reads` that were in memory because they were fetched ahead.
    pub ahead: u64,
    /// Blocks of `reads` that were in flight.
    pub late: u64,
    /// Blocks of `reads` that were fetched by their own read.
    pub misses: u64,
    /// Files and folders opened or looked up, and those of them that waited for an inode.
    pub opens: u64,
    /// See `opens`.
    pub inode_waits: u64,
    /// Blocks fetched ahead of reads, including read-ahead, and those of them that were not read.
    pub prefetched: u64,
    /// See `prefetched`.
    pub wasted: u64,
    /// Requests to disks.
    pub requests: u64,
    /// Bytes read from disks.
    pub bytes: u64,
    /// Share of the time in which a disk was busy: the mean, and the busiest disk. For devices that serve
    /// several requests at once, it is the share of their slots or of their link, whichever is greater.
    pub busy_share: f64,
    /// See `busy_share`.
    pub busiest_share: f64,
    /// The longest work of one program. No program ends before its own work.
    pub bound_cpu_s: f64,
    /// Service time of the busiest disk, or the time its link carried data.
    pub bound_disk_s: f64,
    /// The fewest blocks that a cache of this size has to fetch for these reads in this order, with one extra
    /// buffer for reads past the cache. `None` if several programs read, since their order is not known in
    /// advance.
    pub bound_fetches: Option<u64>,
}

/// The longest work and the longest waiting of a run, in years. The clock counts nanoseconds up to 584 years.
const YEARS_MAX: f64 = 100.0;
const YEAR_NS: f64 = 1e9 * 3600.0 * 24.0 * 365.0;

/// The run would take too long.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TooLong {
    /// The programs' work is too long, in years.
    #[error("{0:.0} years of work, and a run has {YEARS_MAX} at most")]
    Work(f64),
    /// The programs' requests would take too long one after another, in years.
    #[error("requests of {0:.0} years on this disk, and a run has {YEARS_MAX} at most")]
    Requests(f64),
    /// The programs read too many blocks.
    #[error(
        "reads {blocks} blocks, each counted as often as it is read, and a run has {BLOCKS_MAX} at most"
    )]
    Blocks {
        /// The number of blocks, each counted as often as it is read.
        blocks: u64,
        /// A block size, in bytes, with which they are few enough; `None` if there is none.
        enough_bytes: Option<u64>,
    },
}

/// Blocks read in a run, at most. Each takes some microseconds, and MIN's count about 30 bytes.
pub const BLOCKS_MAX: u64 = 1 << 25;

/// The largest block size that is proposed, in bytes.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// A recording prepared for the runs of a sweep.
#[derive(Debug)]
pub struct Recorded<'a> {
    activity: &'a Activity,
    readers: Vec<Reader>,
    links: Links,
    /// MIN's fetches, by block size in bytes and cache size in blocks.
    fewest: Mutex<HashMap<(u64, u64), u64>>,
}

impl<'a> Recorded<'a> {
    /// Prepares `activity`: its readers, and the links between them.
    pub fn new(activity: &'a Activity) -> Self {
        let mut readers = links::readers(&activity.acts);
        let links = Links::new(&activity.acts, &mut readers);
        Recorded { activity, readers, links, fewest: Mutex::default() }
    }

    /// Bytes of all files.
    pub fn size_bytes(&self) -> u64 {
        self.activity.files.values().fold(0, |sum, &size| sum.saturating_add(size))
    }

    /// The fetches of Belady's MIN for a single reader. Computed once for each size; `None` if there are
    /// several readers.
    fn fewest_fetches(&self, block_bytes: u64, capacity_blocks: u64) -> Option<u64> {
        let [_] = &self.readers[..] else { return None };
        // Other threads wait for the lock, so that only one count at a time takes memory.
        let mut fewest = self.fewest.lock().expect("nothing fails with the lock held");
        let count = fewest.entry((block_bytes, capacity_blocks)).or_insert_with(|| {
            let blocks =
                self.activity.acts.iter().flat_map(|act| act.deed.blocks_read(block_bytes));
            Belady::run(blocks, capacity_blocks).misses
        });
        Some(*count)
    }

    /// Blocks that are read; a block counts as often as it is read.
    fn blocks_read(&self, block_bytes: u64) -> u64 {
        let ranges = self.activity.acts.iter().filter_map(|act| act.deed.range_read(block_bytes));
        ranges.fold(0, |sum, (_, blocks)| sum.saturating_add(blocks.end - blocks.start))
    }
}

impl ReplaySpec {
    /// Checks that the recording can be run.
    ///
    /// # Errors
    /// [`TooLong`]: the run would overflow the clock, or take too long in reality.
    pub fn check(&self, recorded: &Recorded) -> Result<(), TooLong> {
        let blocks = recorded.blocks_read(self.block_bytes);
        if blocks > BLOCKS_MAX {
            let larger = |&bytes: &u64| Some(bytes * 2).filter(|&bytes| bytes <= BLOCK_BYTES_MAX);
            let mut sizes = std::iter::successors(Some(self.block_bytes), larger);
            let enough_bytes = sizes.find(|&bytes| recorded.blocks_read(bytes) <= BLOCKS_MAX);
            return Err(TooLong::Blocks { blocks, enough_bytes });
        }
        let years = steps::work_ns_max(self, recorded) / YEAR_NS;
        if years > YEARS_MAX {
            return Err(TooLong::Work(years));
        }
        // At most two inodes for each act, and two fetches of each block.
        let requests = 2.0 * (recorded.activity.acts.len() as f64 + blocks as f64);
        let years = requests * self.disk.longest_request_ns(self.block_bytes) / YEAR_NS;
        if years > YEARS_MAX { Err(TooLong::Requests(years)) } else { Ok(()) }
    }

    /// The capacity of the disks in bytes, if the recorded files take more. Then some files share places.
    pub fn too_small(&self, recorded: &Recorded) -> Option<u64> {
        let volume_bytes = self.volume_sectors().saturating_mul(crate::SECTOR_BYTES);
        (recorded.size_bytes() > volume_bytes).then_some(volume_bytes)
    }

    /// Runs the recording, which must pass [`check`](Self::check).
    pub fn run(&self, recorded: &Recorded) -> ReplayResult {
        let report = self.machine(recorded).run(self.programs(recorded));
        let capacity_blocks = (self.cache_bytes / self.block_bytes).max(1);
        let fewest = recorded.fewest_fetches(self.block_bytes, capacity_blocks + 1);
        let result = self.result(&report, fewest);
        let fetches = result.prefetched + result.misses;
        let bound = result.bound_fetches.unwrap_or(0);
        assert!(fetches >= bound, "{fetches} blocks fetched are below the bound {bound}");
        result
    }

    fn programs(&self, recorded: &Recorded) -> Vec<Program> {
        recorded.readers.iter().map(|reader| steps::program(self, recorded, reader)).collect()
    }

    fn volume_sectors(&self) -> u64 {
        let striping = Striping::new(self.disks, self.stripe_bytes / crate::SECTOR_BYTES);
        striping.volume_sectors(self.disk.capacity_sectors())
    }

    fn machine(&self, recorded: &Recorded) -> MachineSpec {
        let activity = recorded.activity;
        let config = Config::new(Memory::Owned, self.block_bytes, self.cache_bytes);
        let tries_depths = self.tries_depths();
        let policy = Config { rules: self.rules, tries_depths, ..config };
        let [hit, driver, open] =
            [self.work.hit, self.work.driver, self.work.open].map(|work| self.scaled(work));
        let volume_sectors = self.volume_sectors();
        let layout = match self.placing {
            Placing::Aged => Layout::aged(volume_sectors, self.seed),
            Placing::Sequential => {
                let mut files: Vec<(PlacedFile, u64)> =
                    activity.files.iter().map(|(file, size)| (PlacedFile(file.0), *size)).collect();
                files.sort_unstable();
                Layout::sequential(volume_sectors, files)
            }
        };
        let array = ArraySpec {
            disk: self.disk.clone(),
            disks: self.disks,
            unit_sectors: self.stripe_bytes / crate::SECTOR_BYTES,
            layout,
            order: self.order,
            prefetches_per_disk: self.outstanding,
            seed: self.seed,
            priority: Priority::None,
            page_bytes: PAGE_BYTES,
        };
        let devices = vec![(DEVICE, DeviceSpec::Array(Box::new(array)))];
        let name = |file: &FileId| (NameId(file.0), *file);
        let reads_inodes = self.reads_inodes(activity);
        let metadata = if reads_inodes { Metadata::Inodes } else { Metadata::Known };
        MachineSpec {
            open,
            metadata,
            read_ahead: self.read_ahead,
            reads_ahead_of_hints: self.disclosed == Disclosed::Recorded,
            // The first reader of a family discloses the reads of all its members.
            readers: if recorded.links.has_forks() { Readers::Anybody } else { Readers::Hinter },
            sizes_bytes: activity.files.clone(),
            names: activity.files.keys().map(name).collect::<HashMap<_, _>>(),
            lookups_max: LOOKUPS_MAX,
            ..MachineSpec::new(policy, hit, driver, devices)
        }
    }

    /// Whether the policy tries depths, as under the manager. The papers' policies do not, and neither does a
    /// kernel with read-ahead or advice.
    fn tries_depths(&self) -> bool {
        use Disclosed::{Ahead, All, Files};
        matches!(self.disclosed, Files | All | Ahead(_)) && self.rules == Rules::FORETELL
    }

    /// Whether inodes cost a read. If no open was recorded, nothing waits for inodes.
    fn reads_inodes(&self, recorded: &Activity) -> bool {
        use activity::Deed::{Look, Open};
        self.inodes && recorded.acts.iter().any(|act| matches!(act.deed, Open(_) | Look(_)))
    }

    /// A time of the recording's machine, converted to the modelled one.
    fn scaled(&self, work: Nanos) -> Nanos {
        Nanos((work.0 as f64 * self.work.factor) as u64)
    }

    fn result(&self, report: &Report, bound_fetches: Option<u64>) -> ReplayResult {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let of = |tally: fn(&crate::machine::report::Tally) -> u64| {
            report.programs.iter().map(|program| tally(&program.tally)).sum::<u64>()
        };
        let device = report.devices[0];
        let ends = report.programs.iter().map(|program| program.start_ns + program.tally.cpu_ns);
        let (bound_cpu_ns, bound_disk_ns) = (ends.max().unwrap_or(0), device.busiest_disk_ns);
        let least_ns = bound_cpu_ns.max(bound_disk_ns);
        assert!(report.end_ns >= least_ns, "{} ns are below the bound {least_ns}", report.end_ns);
        let share = |occupied_ns: u64| occupied_ns as f64 / report.end_ns.max(1) as f64;
        ReplayResult {
            elapsed_s: seconds(report.end_ns),
            cpu_s: seconds(of(|tally| tally.cpu_ns)),
            stall_s: seconds(of(|tally| tally.stall_ns)),
            reads: of(|tally| tally.reads),
            hits: of(|tally| tally.hits - tally.prefetched_hits),
            ahead: of(|tally| tally.prefetched_hits),
            late: of(|tally| tally.late),
            misses: of(|tally| tally.misses),
            opens: of(|tally| tally.opens),
            inode_waits: of(|tally| tally.inode_waits),
            prefetched: report.counts.prefetched,
            wasted: report.counts.wasted,
            requests: device.demand_requests + device.prefetch_requests,
            bytes: device.bytes,
            busy_share: share(device.occupied_ns) / self.disks as f64,
            busiest_share: share(device.busiest_disk_ns),
            bound_cpu_s: seconds(bound_cpu_ns),
            bound_disk_s: seconds(bound_disk_ns),
            bound_fetches,
        }
    }
}

#[cfg(test)]
mod tests;
