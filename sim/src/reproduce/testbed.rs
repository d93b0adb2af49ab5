//! The machines of the papers.

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

/// A machine on which a paper has measured; what of it varies there can be set.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// Each disk.
    pub disk: DiskParameters,
    /// How many.
    pub disks: usize,
    /// From a file's blocks to the next.
    pub pitch_sectors: u64,
    /// Order of waiting prefetches.
    pub order: Order,
    /// Prefetches at a disk.
    pub prefetches_per_disk: usize,
    /// What the striper is told of programs that wait.
    pub priority: Priority,
    /// Bytes that the end of a file's last request is a multiple of.
    pub page_bytes: u64,
    /// Blocks of 8 KB.
    pub cache_blocks: u64,
    /// Blocks of a request, at most.
    pub cluster_blocks: u64,
    /// `T_hit`.
    pub hit: Nanos,
    /// `T_driver` of one block, and what each further block of the request adds.
    pub driver: (Nanos, Nanos),
    /// Processor time that a disk waits for between one request and its next.
    pub striper: Nanos,
    /// Work of an open.
    pub open: Nanos,
    /// What is read beside data.
    pub metadata: Metadata,
    /// What a read of what was disclosed adds to `T_hit`.
    pub disclosed_read: Nanos,
    /// Whose processors are whose.
    pub processors: Processors,
    /// What the file system reads ahead by itself.
    pub read_ahead: ReadAheadSpec,
    /// Whether the policy goes by `T_hit`, `T_driver` and a `T_disk` of 15 ms all the time, and not by what it has measured.
    pub fixed_costs: bool,
}

/// A stripe unit in blocks, in both papers.
const UNIT_BLOCKS: u64 = 8;
/// `T_disk` that the policy assumes, at first or all the time (memory, from the authors' other reports).
const KNOWN_DISK: Nanos = Nanos(15_000_000);

impl Testbed {
    /// The same without blocks of addresses, and with hints that cost nothing: what differs then are policies.
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

    /// Runs `workload` under `rules`; a panic if its files have no room.
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
