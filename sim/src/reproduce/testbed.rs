//! Machines as the papers describe them.

use foretell_policy::queue::Order;
use foretell_policy::{Config, CostModel, CostSource, Memory, Nanos, Rules};

use crate::array::Striping;
use crate::device::DiskParameters;
use crate::layout::Layout;
use crate::machine::read_ahead::ReadAheadSpec;
use crate::machine::report::Report;
use crate::machine::server::{ArraySpec, DeviceSpec, Priority};
use crate::machine::{MachineSpec, Metadata, Processors};
use crate::programs::{BLOCK_BYTES, DEVICE, Workload};

/// A machine on which a paper measured. Its fields are the values that differ between papers or are varied
/// here.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// Parameters of each disk.
    pub disk: DiskParameters,
    /// Number of disks.
    pub disks: usize,
    /// Sectors from the beginning of a file's block to that of its next block.
    pub pitch_sectors: u64,
    /// Order in which waiting prefetches are served.
    pub order: Order,
    /// Prefetches in flight at a disk, at most.
    pub prefetches_per_disk: usize,
    /// How the striper treats requests that a program waits for.
    pub priority: Priority,
    /// A file's last request is rounded up to a multiple of this number of bytes.
    pub page_bytes: u64,
    /// Size of the cache, in blocks of 8 KB.
    pub cache_blocks: u64,
    /// Blocks in one request, at most.
    pub cluster_blocks: u64,
    /// `T_hit`: processor time of a read that hits.
    pub hit: Nanos,
    /// `T_driver` of a request's first block, and the time that each further block adds.
    pub driver: (Nanos, Nanos),
    /// Processor time that the striper takes between two requests of a disk, while the disk waits.
    pub striper: Nanos,
    /// Processor time of an open.
    pub open: Nanos,
    /// Metadata that is read from the disks.
    pub metadata: Metadata,
    /// Processor time that a disclosed read adds to `T_hit`.
    pub disclosed_read: Nanos,
    /// Whether programs share a processor.
    pub processors: Processors,
    /// Read-ahead of the file system.
    pub read_ahead: ReadAheadSpec,
    /// Whether the policy always uses `T_hit`, `T_driver` and a `T_disk` of 15 ms, instead of measured costs.
    pub fixed_costs: bool,
}

/// A stripe unit in blocks, in both papers.
const UNIT_BLOCKS: u64 = 8;
/// The `T_disk` with which the policy starts, and which it keeps with `fixed_costs` (from memory of the
/// authors' other reports).
const KNOWN_DISK: Nanos = Nanos(15_000_000);

impl Testbed {
    /// The same machine without indirect blocks and with free hints, so that only policies differ.
    #[must_use]
    pub fn for_policies(self) -> Self {
        Testbed { metadata: Metadata::Inodes, disclosed_read: Nanos::ZERO, ..self }
    }

    /// Sectors of a stripe unit.
    fn unit_sectors(&self) -> u64 {
        UNIT_BLOCKS * self.pitch_sectors
    }

    /// Sectors of all disks together.
    pub fn volume_sectors(&self) -> u64 {
        let striping = Striping::new(self.disks, self.unit_sectors());
        striping.volume_sectors(self.disk.capacity_sectors())
    }

    /// Runs `workload` under `rules`.
    ///
    /// Panics if the array has no room for its files.
    pub fn run(&self, workload: Workload, rules: Rules) -> Report {
        let volume = workload.volume;
        let unit_sectors = self.unit_sectors();
        let volume_sectors = self.volume_sectors();
        assert!(volume.end_sector() <= volume_sectors, "the array has no room for these files");
        let array = ArraySpec {
            disk: self.disk.clone(),
            disks: self.disks,
            unit_sectors,
            layout: Layout::placed(volume_sectors, volume.places.into()),
            order: self.order,
            prefetches_per_disk: self.prefetches_per_disk,
            seed: 0,
            priority: self.priority,
            page_bytes: self.page_bytes,
        };
        let config = Config::new(Memory::Owned, BLOCK_BYTES, self.cache_blocks * BLOCK_BYTES);
        let fixed = CostModel {
            hit_ns: self.hit.0 as f64,
            driver_ns: self.driver.0.0 as f64,
            disk_ns: KNOWN_DISK.0 as f64,
        };
        let costs = if self.fixed_costs { CostSource::Fixed(fixed) } else { config.costs };
        let policy = Config { costs, rules, cluster_blocks_max: self.cluster_blocks, ..config };
        let devices = vec![(DEVICE, DeviceSpec::Array(Box::new(array)))];
        let spec = MachineSpec {
            driver_block: self.driver.1,
            striper: self.striper,
            known_costs: vec![(DEVICE, KNOWN_DISK)],
            open: self.open,
            metadata: self.metadata,
            disclosed_read: self.disclosed_read,
            processors: self.processors,
            read_ahead: Some(self.read_ahead),
            sizes_bytes: volume.sizes_bytes,
            directories: volume.directories,
            ..MachineSpec::new(policy, self.hit, self.driver.0, devices)
        };
        spec.run(workload.programs)
    }
}
