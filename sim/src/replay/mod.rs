//! A recorded run again, on another machine: what hints, memory, disks or another store would buy.
//!
//! A recording becomes a program for each reader: between two of its calls it works for as long as it did, and
//! what it reads is read again, from the devices and through the policy that are asked for. So what is
//! predicted rests on three things that were recorded (which bytes, in which order, how much work between) and
//! on the model for the rest.
//!
//! * [`activity`]: what was recorded, whatever the format;
//! * `links`: which reader began by which, and which waited for which;
//! * [`steps`]: from there to programs, with or without disclosures.
//!
//! A result has three bounds beside it: a program cannot end before its own work is done, nor a device before it has
//! served what it was asked for, and no policy fetches fewer blocks than one that knows all reads (of one program, whose
//! order is known). A result below one of them is a bug and ends the run with a panic.
//!
//! Of several processes, each begins when another one has come to make it, and waits for the others where it did:
//! that is neither work nor stall. Whom it waited for is known of the ends of children, and of pipes that the
//! recording tells; otherwise it is taken to be the last who had begun anything by then. What lay between that and the end of the wait is lost.
//!
//! What is not modelled: writes, waits that the recording did not have (but for what is read from a pipe, which
//! must have been written), and what the processor does worse when it is shared.

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

/// The one device: all files lie there.
pub(crate) const DEVICE: DeviceId = DeviceId(0);

/// Lookups under way at once, as at `foretell run`, whose page-cache driver has so many threads for a device (`THREADS_MAX` of
/// its pool). Advice takes such a thread, too, but mostly does not wait, and takes none here.
const LOOKUPS_MAX: usize = 64;

/// What is disclosed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclosed {
    /// Nothing.
    None,
    /// All that a program will read, before it begins.
    All,
    /// The files that it will read from, as wholes, before it begins: what `foretell run` knows from arguments.
    Files,
    /// What the program itself disclosed to the kernel, when it did: by posix_fadvise or readahead.
    Recorded,
    /// Each read, this many reads before it.
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

/// How files lie on the disks; see [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// One after another, by their numbers.
    Sequential,
    /// In short runs all over the volume.
    Aged,
}

/// Processor times of the machine that is asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Recorded work and the times below are so many times as long.
    pub factor: f64,
    /// Of each recorded gap between two calls, what the recorder took.
    pub overhead: Nanos,
    /// Between two reads, where the recording does not say how long calls took.
    pub think: Nanos,
    /// Reading a block that is in memory (`T_hit`).
    pub hit: Nanos,
    /// Beginning a fetch and taking its end (`T_driver`).
    pub driver: Nanos,
    /// Opening a file whose inode is known.
    pub open: Nanos,
}

impl Default for Work {
    /// What they are on a machine of 2026, and no time between reads.
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

/// The machine on which the recording is run again.
#[derive(Clone, Debug)]
pub struct ReplaySpec {
    /// What decides.
    pub rules: Rules,
    /// What it is told.
    pub disclosed: Disclosed,
    /// Memory for blocks, bytes.
    pub cache_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Each disk.
    pub disk: DiskParameters,
    /// How many.
    pub disks: usize,
    /// Bytes of a file on one disk before the next disk's turn.
    pub stripe_bytes: u64,
    /// Order in which waiting requests go to a disk.
    pub order: Order,
    /// Requests that a disk holds at once.
    pub outstanding: usize,
    /// How files lie.
    pub placing: Placing,
    /// Decides places of the aged layout, and drawn latencies.
    pub seed: u64,
    /// Whether the first open of a file reads its inode.
    pub inodes: bool,
    /// What is read ahead of what is not disclosed.
    pub read_ahead: Option<ReadAheadSpec>,
    /// Processor times.
    pub work: Work,
}

/// What a replay has come to. Seconds are of the machine that was asked about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayResult {
    /// Until the last program had ended.
    pub elapsed_s: f64,
    /// Work of all programs.
    pub cpu_s: f64,
    /// Waiting of all programs for devices.
    pub stall_s: f64,
    /// Blocks read.
    pub reads: u64,
    /// Found in memory, where they had been read before.
    pub hits: u64,
    /// Found in memory, because they were fetched ahead of the read.
    pub ahead: u64,
    /// Found on their way.
    pub late: u64,
    /// Not found.
    pub misses: u64,
    /// Files and folders opened or looked at, and those of them that waited for an inode.
    pub opens: u64,
    /// See `opens`.
    pub inode_waits: u64,
    /// Blocks fetched ahead of reads, read-ahead included, and those of them that nobody read.
    pub prefetched: u64,
    /// See `prefetched`.
    pub wasted: u64,
    /// Requests to disks.
    pub requests: u64,
    /// Bytes read of disks.
    pub bytes: u64,
    /// Share of the time in which a disk was busy, on average and of the busiest; of devices that serve several requests at
    /// once the share of their slots, or that of the link that these share, whichever is more.
    pub busy_share: f64,
    /// See `busy_share`.
    pub busiest_share: f64,
    /// The longest work of one program: no program ends before its own.
    pub bound_cpu_s: f64,
    /// Service times of the busiest disk, or what its link took for the data.
    pub bound_disk_s: f64,
    /// The fewest blocks that a cache of this size, and one buffer more to read past it, has to fetch for these reads
    /// in this order; none where several programs read, whose order is not known beforehand.
    pub bound_fetches: Option<u64>,
}

/// The longest work, and the longest waiting, of a run: the clock counts nanoseconds up to 584 years.
const YEARS_MAX: f64 = 100.0;
const YEAR_NS: f64 = 1e9 * 3600.0 * 24.0 * 365.0;

/// A run would go on for longer than there is time for.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TooLong {
    /// The programs' work.
    #[error("{0:.0} years of work, and a run has {YEARS_MAX} at most")]
    Work(f64),
    /// Their requests, if none was served beside another.
    #[error("requests of {0:.0} years on this disk, and a run has {YEARS_MAX} at most")]
    Requests(f64),
    /// They read too many blocks.
    #[error(
        "reads {blocks} blocks, each counted as often as it is read, and a run has {BLOCKS_MAX} at most"
    )]
    Blocks {
        /// How many.
        blocks: u64,
        /// Bytes of a block with which they are few enough, if there are any.
        enough_bytes: Option<u64>,
    },
}

/// Blocks read in a run, at most: each takes some microseconds, and what MIN fetches for it some 30 bytes.
pub const BLOCKS_MAX: u64 = 1 << 25;

/// The largest block whose size is proposed.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// What was recorded, as the runs of a sweep have it in common.
#[derive(Debug)]
pub struct Recorded<'a> {
    activity: &'a Activity,
    readers: Vec<Reader>,
    links: Links,
    /// What MIN fetches, by the bytes of a block and the blocks of the cache.
    fewest: Mutex<HashMap<(u64, u64), u64>>,
}

impl<'a> Recorded<'a> {
    /// What `activity` holds, by readers.
    pub fn new(activity: &'a Activity) -> Self {
        let mut readers = links::readers(&activity.acts);
        let links = Links::new(&activity.acts, &mut readers);
        Recorded { activity, readers, links, fewest: Mutex::default() }
    }

    /// Bytes of all its files.
    pub fn size_bytes(&self) -> u64 {
        self.activity.files.values().fold(0, |sum, &size| sum.saturating_add(size))
    }

    /// What Belady's MIN fetches for the only reader, if it does not read too much to count; counted once, whoever asks.
    fn fewest_fetches(&self, block_bytes: u64, capacity_blocks: u64) -> Option<u64> {
        let [_] = &self.readers[..] else { return None };
        // Who comes meanwhile waits: to count takes memory.
        let mut fewest = self.fewest.lock().expect("nothing fails with the lock held");
        let count = fewest.entry((block_bytes, capacity_blocks)).or_insert_with(|| {
            let blocks =
                self.activity.acts.iter().flat_map(|act| act.deed.blocks_read(block_bytes));
            Belady::run(blocks, capacity_blocks).misses
        });
        Some(*count)
    }

    /// Blocks that are read, each as often as it is.
    fn blocks_read(&self, block_bytes: u64) -> u64 {
        let ranges = self.activity.acts.iter().filter_map(|act| act.deed.range_read(block_bytes));
        ranges.fold(0, |sum, (_, blocks)| sum.saturating_add(blocks.end - blocks.start))
    }
}

impl ReplaySpec {
    /// Whether what was recorded can be run.
    ///
    /// # Errors
    /// [`TooLong`]: the run would go on for longer than the clock does, or than anybody waits.
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
        // An inode or two for each act, and each block fetched twice.
        let requests = 2.0 * (recorded.activity.acts.len() as f64 + blocks as f64);
        let years = requests * self.disk.longest_request_ns(self.block_bytes) / YEAR_NS;
        if years > YEARS_MAX { Err(TooLong::Requests(years)) } else { Ok(()) }
    }

    /// Bytes of the disks, if the files of the recording take more: then some lie where others do.
    pub fn too_small(&self, recorded: &Recorded) -> Option<u64> {
        let volume_bytes = self.volume_sectors().saturating_mul(crate::SECTOR_BYTES);
        (recorded.size_bytes() > volume_bytes).then_some(volume_bytes)
    }

    /// Runs what was recorded, if that [can be](Self::check).
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
            // The first of a family discloses for all of it.
            readers: if recorded.links.has_forks() { Readers::Anybody } else { Readers::Hinter },
            sizes_bytes: activity.files.clone(),
            names: activity.files.keys().map(name).collect::<HashMap<_, _>>(),
            lookups_max: LOOKUPS_MAX,
            ..MachineSpec::new(policy, hit, driver, devices)
        }
    }

    /// Whether depths are tried, as by the manager: the policies of the papers try none, nor does a kernel, neither
    /// with its own read-ahead nor with advice.
    fn tries_depths(&self) -> bool {
        use Disclosed::{Ahead, All, Files};
        matches!(self.disclosed, Files | All | Ahead(_)) && self.rules == Rules::FORETELL
    }

    /// Whether inodes cost a read: where no open was recorded, nobody waits for them.
    fn reads_inodes(&self, recorded: &Activity) -> bool {
        use activity::Deed::{Look, Open};
        self.inodes && recorded.acts.iter().any(|act| matches!(act.deed, Open(_) | Look(_)))
    }

    /// A time of the recording's machine on this one.
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
