//! The driver: makes reads, and does what the policy asks for.
//!
//! * **A. Time.** All programs together make one read each `READ_NS`. The clock is counted, not read.
//! * **B. Demand.** A program that misses waits, and no other does: the fetch ends before anything else
//!   happens.
//! * **C. Prefetches** end `DISK_NS` after their beginning, in order. For a read of a block in flight, the
//!   policy is told the wait until its fetch ends, but the clock does not advance.
//!
//! Not here: data, failures, and devices with queues.

use std::collections::VecDeque;

use foretell_policy::{
    Access, Block, Config, Cost, CostModel, CostSource, DeviceId, Fetch, Hint, HinterId, Memory,
    Nanos, Outcome, Policy, ReaderId, Rules, StreamId, Work,
};

/// The one device.
pub const DEVICE: DeviceId = DeviceId(0);
/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 8192;

/// A: time between two reads, in ns.
const READ_NS: u64 = 500;
/// C: latency of an NVMe drive, in ns.
const DISK_NS: u64 = 100_000;

/// Counts since the beginning, of reads and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads.
    pub reads: u64,
    /// Reads that found their block in memory.
    pub hits: u64,
    /// Fetches begun ahead of reads.
    pub prefetches: u64,
    /// Blocks evicted from memory.
    pub evicted: u64,
    /// A hash of all the policy's decisions, to compare two versions of it.
    pub said: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Driver {
    /// The policy.
    pub policy: Policy,
    now: Nanos,
    /// Fetches in flight, with the times at which they end.
    under_way: VecDeque<(Nanos, Fetch)>,
    tally: Tally,
}

impl Driver {
    /// A driver of a policy with `rules` and room for `capacity_blocks`.
    pub fn new(rules: Rules, capacity_blocks: u64) -> Self {
        let costs = CostModel { disk_ns: DISK_NS as f64, ..CostModel::default() };
        let config = Config {
            rules,
            costs: CostSource::Measured(costs),
            ..Config::new(Memory::Owned, BLOCK_BYTES, capacity_blocks * BLOCK_BYTES)
        };
        Driver {
            policy: Policy::new(config),
            now: Nanos::ZERO,
            under_way: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// The counts so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Opens the stream of a reader.
    pub fn open(&mut self, reader: ReaderId) -> StreamId {
        self.policy.open_stream(self.now, HinterId(reader.0), Some(reader))
    }

    /// Gives the policy a hint.
    pub fn hint(&mut self, stream: StreamId, hint: Hint) {
        self.policy.hint(self.now, stream, hint);
    }

    /// Makes one read, and does everything that follows from it.
    #[inline]
    pub fn read(&mut self, reader: ReaderId, block: Block) -> Access {
        self.now = Nanos(self.now.0 + READ_NS);
        while let Some(&(due, fetch)) = self.under_way.front()
            && due <= self.now
        {
            self.under_way.pop_front();
            self.policy.completed(due, fetch.id, Outcome::Fetched);
            self.policy.observe(DEVICE, Cost::Disk, Nanos(DISK_NS));
        }
        let access = self.policy.read(self.now, reader, block, false);
        if access == Access::InFlight {
            self.policy.waited(reader, self.arrives(block).saturating_sub(self.now)); // C.
        }
        if access == Access::Miss
            && let Some(fetch) = self.policy.demand(self.now, DEVICE, block)
        {
            self.policy.completed(self.now, fetch.id, Outcome::Fetched); // B.
        }
        while let Some(fetch) = self.policy.next_fetch(self.now, DEVICE) {
            self.tally.prefetches += 1;
            if let Work::Read { file, first_block, blocks } = fetch.work {
                self.note((file.0 ^ (first_block << 20)) + blocks);
            }
            self.under_way.push_back((Nanos(self.now.0 + DISK_NS), fetch));
        }
        while let Some(block) = self.policy.next_eviction() {
            self.tally.evicted += 1;
            self.note((block.file.0 << 20) ^ block.index);
        }
        self.tally.reads += 1;
        self.tally.hits += u64::from(access == Access::Hit);
        access
    }

    /// The time at which a block in flight arrives.
    #[cold]
    fn arrives(&self, block: Block) -> Nanos {
        let brings = |fetch: &Fetch| match fetch.work {
            Work::Read { file, first_block, blocks } => {
                file == block.file && (first_block..first_block + blocks).contains(&block.index)
            }
            Work::Resolve { .. } => false,
        };
        let fetch = self.under_way.iter().find(|(_, fetch)| brings(fetch));
        fetch.expect("what is in flight is under way").0
    }

    fn note(&mut self, said: u64) {
        self.tally.said =
            (self.tally.said ^ said).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    }
}
