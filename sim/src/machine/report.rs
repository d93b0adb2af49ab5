//! The result of a run.

use foretell_policy::Counts;
use serde::Serialize;

/// A program's reads and time so far.
///
/// With a processor of its own, a program's time is work, stall, or waiting for other programs' marks. Without marks,
/// `elapsed = cpu_ns + stall_ns`. On a shared processor it also waits for the other programs and the striper
/// ([`Report::striper_ns`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Reads begun: `hits + late + misses`.
    pub reads: u64,
    /// Reads that found their block in memory.
    pub hits: u64,
    /// Hits that were the first read after a prefetch.
    pub prefetched_hits: u64,
    /// Reads that found their block in flight.
    pub late: u64,
    /// Reads that found no block.
    pub misses: u64,
    /// Reads around the cache, because all buffers were in flight. They count as misses, except those that waited for a
    /// prefetch that failed.
    pub around: u64,
    /// Reads and opens that ended with an error, after the last try.
    pub errors: u64,
    /// Opens.
    pub opens: u64,
    /// Waits of opens for inodes.
    pub inode_waits: u64,
    /// Waits of opens for blocks of directories.
    pub directory_waits: u64,
    /// Time of waits for devices, without the program's own work meanwhile.
    pub stall_ns: u64,
    /// Processor time: the program's work, `T_hit` for each read, and `T_driver` for each fetch that it demanded or disclosed.
    pub cpu_ns: u64,
}

impl Tally {
    /// Share of reads whose block came from the device, prefetched or not, and not from an earlier read; 0 without reads. It is
    /// the miss ratio of TIP 1995, figure 11, which is 1 for a program with prefetches and no buffers for caching.
    pub fn miss_ratio(&self) -> f64 {
        let kept = self.hits - self.prefetched_hits;
        if self.reads == 0 { 0.0 } else { 1.0 - kept as f64 / self.reads as f64 }
    }
}

/// One program's part of a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramReport {
    /// Its name.
    pub name: String,
    /// When it started.
    pub start_ns: u64,
    /// From its start to its end, or to the end of the run.
    pub elapsed_ns: u64,
    /// Whether it ended before the run did.
    pub ended: bool,
    /// Its counts.
    pub tally: Tally,
}

/// One device's part of a [`Report`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Its number.
    pub device: u64,
    /// Time of service, summed over its requests. It may exceed the run's time if the device serves several at once.
    pub busy_ns: u64,
    /// Busy time, summed over its disks. For each disk, it is the longer of two times: the time of service divided by the
    /// number of requests that it serves at once, and the time in which its link carried data.
    pub occupied_ns: u64,
    /// Busy time of its busiest disk: at most the run's time.
    pub busiest_disk_ns: u64,
    /// Bytes read from its disks by requests that did not fail.
    pub bytes: u64,
    /// Requests to its disks with a waiting program when they were dispatched.
    pub demand_requests: u64,
    /// Requests to its disks without a waiting program when they were dispatched.
    pub prefetch_requests: u64,
    /// Prefetches that a program waited for before they were entirely dispatched.
    pub promoted: u64,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Requests that brought only some of their blocks.
    pub short_requests: u64,
    /// Tries after the first: of demanded blocks, of metadata and lookups, and of blocks that did not arrive with the
    /// prefetch that a program waited for.
    pub retries: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The end of the last program.
    pub end_ns: u64,
    /// Processor time of the striper, which gives disks their next requests.
    pub striper_ns: u64,
    /// In the order in which the programs were given.
    pub programs: Vec<ProgramReport>,
    /// The programs' counts at the end of [one of them](super::MachineSpec::noted_at_end_of); empty if none was named.
    pub noted: Vec<Tally>,
    /// In the order in which the devices were given.
    pub devices: Vec<DeviceReport>,
    /// The policy's counts.
    #[serde(skip)]
    pub counts: Counts,
}

impl Report {
    /// The report of the program of this name. Panics if there is none.
    pub fn program(&self, name: &str) -> &ProgramReport {
        let found = self.programs.iter().find(|program| program.name == name);
        found.unwrap_or_else(|| panic!("no program {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetched_blocks_are_misses_of_the_cache() {
        let tally = Tally {
            reads: 10,
            hits: 7,
            prefetched_hits: 3,
            late: 1,
            misses: 2,
            ..Tally::default()
        };
        assert!((tally.miss_ratio() - 0.6).abs() < 1e-12);
        assert_eq!(Tally::default().miss_ratio(), 0.0);
    }
}
