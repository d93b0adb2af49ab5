//! What a run has come to.

use foretell_policy::Counts;
use serde::Serialize;

/// A program's reads and time so far.
///
/// For a program with a processor of its own, time is either work or stall:
/// `elapsed = cpu_ns + stall_ns`, but for what it awaits of other programs. On a shared processor the rest is waiting
/// for the others, too, and for the striper ([`Report::striper_ns`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Reads begun: `hits + late + misses`.
    pub reads: u64,
    /// Reads that found their block in memory.
    pub hits: u64,
    /// Those of the hits that were the first after a prefetch.
    pub prefetched_hits: u64,
    /// Reads that found their block on its way.
    pub late: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Reads that went around the cache, because all buffers were being filled: misses, but for those whose
    /// prefetch failed while they waited for it.
    pub around: u64,
    /// Reads and opens that ended with an error, after the last try.
    pub errors: u64,
    /// Opens.
    pub opens: u64,
    /// Waits of opens for inodes.
    pub inode_waits: u64,
    /// Waits of opens for blocks of directories.
    pub directory_waits: u64,
    /// Time waited for devices while the program's processor was not working for it.
    pub stall_ns: u64,
    /// Processor time: the program's own work, `T_hit` for each read and `T_driver` for each fetch
    /// that it asked for or disclosed.
    pub cpu_ns: u64,
}

impl Tally {
    /// Share of reads whose block the cache did not have from an earlier read: it had to come from
    /// the device, prefetched or not. The miss ratio of TIP 1995, figure 11, where a program that
    /// is prefetched for and has no buffers to keep anything in comes to 1. 0 without reads.
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
    /// From its start to its end, or to the end of the run if it was stopped then.
    pub elapsed_ns: u64,
    /// Whether it came to its own end.
    pub ended: bool,
    /// All it did.
    pub tally: Tally,
}

/// One device's part of a [`Report`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Its number.
    pub device: u64,
    /// Time of service, summed over its requests: more than the run's if it serves several at once.
    pub busy_ns: u64,
    /// Time in which its disks were occupied, summed over them. Of each it is the time of service of its requests divided by
    /// how many it serves at once, or the time in which the link that these share carried data, whichever is longer.
    pub occupied_ns: u64,
    /// The same of the disk that was occupied longest: no longer than the run.
    pub busiest_disk_ns: u64,
    /// Bytes read of its disks, by requests that did not fail.
    pub bytes: u64,
    /// Requests to its disks that a program waited for when they were dispatched.
    pub demand_requests: u64,
    /// Requests to its disks that nobody waited for when they were dispatched.
    pub prefetch_requests: u64,
    /// Prefetches that a program came to wait for before they were dispatched.
    pub promoted: u64,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Requests of whose blocks not all arrived.
    pub short_requests: u64,
    /// Tries after the first: of what was asked for, of metadata and lookups, and of blocks whose prefetch brought
    /// nothing to those who waited for it.
    pub retries: u64,
}

/// What a run has come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// When the last program ended.
    pub end_ns: u64,
    /// Processor time of giving disks their next requests.
    pub striper_ns: u64,
    /// In the order in which the programs were given.
    pub programs: Vec<ProgramReport>,
    /// What each of them had done when the one that was [asked about](super::MachineSpec::noted_at_end_of) ended; empty
    /// if none was.
    pub noted: Vec<Tally>,
    /// In the order in which the devices were given.
    pub devices: Vec<DeviceReport>,
    /// What the policy has counted.
    #[serde(skip)]
    pub counts: Counts,
}

impl Report {
    /// The part of the program of this name; a panic if there is none.
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
