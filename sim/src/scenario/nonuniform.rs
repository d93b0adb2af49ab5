//! One stream over devices of very different speed (TIP 1995, section 4.9).
//!
//! A program discloses all its reads before the first. Some of its blocks lie on a local device, the others on
//! a remote one that takes [`REMOTE`] times as long for a block. Both serve any number of requests at once, so
//! the only decision is how to use the buffers. Units: a read of a block in memory takes one ([`UNIT`]), and
//! the program does nothing else.
//!
//! [`optimum()`] finds the least total stall of any sequence of decisions. [`Case::run`] gives the stall of a
//! policy on the machine. Both follow the same rules, which `optimum` states.

mod optimum;

use foretell_policy::{
    Block, Config, CostModel, CostSource, DeviceId, FileId, Memory, Nanos, ReaderId, Rules,
};

use crate::machine::MachineSpec;
use crate::machine::program::{Program, Step, StoredFile};
use crate::machine::report::Report;
use crate::machine::server::DeviceSpec;
use crate::random::SplitMix64;

pub use optimum::optimum;

/// One unit of time: `T_hit`.
pub const UNIT: Nanos = Nanos(1_000_000);
/// Time of a remote fetch, in times of a local one.
pub const REMOTE: u64 = 20;

const BLOCK_BYTES: u64 = 512;
/// Local and remote. Each holds one file, whose block numbers are those of the case.
const DEVICES: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];

/// A sequence of reads, and the devices of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The blocks read, by number.
    pub reads: Vec<usize>,
    /// For each block, whether it lies on the remote device.
    pub remote: Vec<bool>,
    /// Buffers.
    pub buffers: usize,
    /// Units that a local fetch and a remote fetch take.
    pub fetch_units: [u64; 2],
    /// `T_driver`; the optimum has none.
    pub driver: Nanos,
}

impl Case {
    /// At most 12 reads of 6 blocks with 4 buffers, small enough for [`optimum()`].
    pub fn small(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let blocks = 3 + random.below(4) as usize;
        let reads = 6 + random.below(7);
        let local = 1 + random.below(2);
        Case {
            reads: (0..reads).map(|_| random.below(blocks as u64) as usize).collect(),
            remote: placed(&mut random, blocks),
            buffers: (2 + random.below(3) as usize).min(blocks - 1),
            fetch_units: [local, local * REMOTE],
            driver: Nanos::ZERO,
        }
    }

    /// 2,000 reads of 200 blocks with 50 buffers, in phases of loops, hot spots and random reads.
    pub fn large(seed: u64) -> Self {
        const READS: usize = 2000;
        const BLOCKS: u64 = 200;
        let mut random = SplitMix64::new(seed);
        let mut reads = Vec::with_capacity(READS);
        while reads.len() < READS {
            let length = 50 + random.below(250);
            let first = random.below(BLOCKS);
            let span = 10 + random.below(120);
            let within = |at: u64| ((first + at) % BLOCKS) as usize;
            match random.below(3) {
                0 => reads.extend((0..length).map(|at| within(at % span))),
                1 => reads.extend((0..length).map(|_| {
                    let skewed = random.unit() * random.unit();
                    within((skewed * span as f64) as u64)
                })),
                _ => reads.extend((0..length).map(|_| random.below(BLOCKS) as usize)),
            }
        }
        reads.truncate(READS);
        let local = 1 + random.below(2);
        Case {
            reads,
            remote: placed(&mut random, BLOCKS as usize),
            buffers: 50,
            fetch_units: [local, local * REMOTE],
            driver: Nanos(UNIT.0 / 20),
        }
    }

    /// Units that a fetch of `block` takes.
    pub fn fetch_units(&self, block: usize) -> u64 {
        self.fetch_units[usize::from(self.remote[block])]
    }

    /// The stall under `rules` on the machine, in units of [`UNIT`].
    pub fn run(&self, rules: Rules) -> f64 {
        self.report(rules).programs[0].tally.stall_ns as f64 / UNIT.0 as f64
    }

    /// The machine's report of the run. The policy knows both devices' costs from the start.
    pub fn report(&self, rules: Rules) -> Report {
        let fetch = self.fetch_units.map(|units| Nanos(units * UNIT.0));
        let mean_ns = (fetch[0].0 + fetch[1].0) as f64 / 2.0;
        let (hit_ns, driver_ns) = (UNIT.0 as f64, self.driver.0 as f64);
        let memory_bytes = self.buffers as u64 * BLOCK_BYTES;
        let policy = Config {
            rules,
            cluster_blocks_max: 1,
            costs: CostSource::Measured(CostModel { hit_ns, driver_ns, disk_ns: mean_ns }),
            ..Config::new(Memory::Owned, BLOCK_BYTES, memory_bytes)
        };
        let device = |index: usize| {
            let (latency, transfer) = (fetch[index], Nanos::ZERO);
            (DEVICES[index], DeviceSpec::Flat { latency, transfer, slots: None })
        };
        let devices = vec![device(0), device(1)];
        let known_costs = vec![(DEVICES[0], fetch[0]), (DEVICES[1], fetch[1])];
        let spec =
            MachineSpec { known_costs, ..MachineSpec::new(policy, UNIT, self.driver, devices) };
        spec.run(vec![Program::new("reader", ReaderId(1), Box::new(self.steps()))])
    }

    /// Discloses every read, with one hint for each run of blocks of one file, and then makes every read.
    fn steps(&self) -> impl Iterator<Item = Step> + use<> {
        let files = [0, 1].map(|index| StoredFile {
            file: FileId(1 + index as u64),
            device: DEVICES[index],
            blocks: self.remote.len() as u64,
            block_bytes: BLOCK_BYTES,
        });
        let side = |&block: &usize| usize::from(self.remote[block]);
        let runs = self.reads.chunk_by(|a, b| side(a) == side(b));
        let hint = |run: &[usize]| {
            Step::Hint(files[side(&run[0])].hint_blocks(run.iter().map(|&block| block as u64)))
        };
        let read = |block: &usize| {
            let file = files[side(block)];
            Step::Read(Block { file: file.file, index: *block as u64 }, file.device)
        };
        let steps: Vec<Step> = runs.map(hint).chain(self.reads.iter().map(read)).collect();
        steps.into_iter()
    }
}

/// The device of each block: a tenth to a half of the blocks are remote.
fn placed(random: &mut SplitMix64, blocks: usize) -> Vec<bool> {
    let share = 0.1 + 0.4 * random.unit();
    (0..blocks).map(|_| random.unit() < share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stall of demand fetching in LRU order, computed read by read.
    fn lru_stall(case: &Case) -> u64 {
        let mut cached: Vec<usize> = Vec::new();
        let mut stall = 0;
        for &block in &case.reads {
            match cached.iter().position(|&other| other == block) {
                Some(at) => drop(cached.remove(at)),
                None => {
                    stall += case.fetch_units(block);
                    cached.truncate(case.buffers - 1);
                }
            }
            cached.insert(0, block);
        }
        stall
    }

    #[test]
    fn the_machine_counts_what_the_model_counts() {
        for seed in 0..200 {
            let case = Case::small(seed);
            let stall = lru_stall(&case);
            assert_eq!(case.run(Rules::LRU), stall as f64, "{case:?}");
            assert!(optimum(&case) <= stall, "{case:?}");
        }
        let large = Case { driver: Nanos::ZERO, ..Case::large(1) };
        assert_eq!(large.run(Rules::LRU), lru_stall(&large) as f64);
    }

    #[test]
    fn no_rules_beat_the_optimum() {
        for seed in 0..300 {
            let case = Case::small(seed);
            let least = optimum(&case) as f64;
            for rules in Rules::ALL {
                let stall = case.run(rules);
                assert!(stall >= least, "{}: {stall} < {least} for {case:?}", rules.name);
            }
        }
    }

    #[test]

    fn foretell_is_close_to_the_optimum() {
        let cases = (0..1500).map(Case::small);
        let (mut reached, mut least) = (0.0, 0.0);
        for case in cases {
            reached += case.run(Rules::FORETELL);
            least += optimum(&case) as f64;
        }
        assert!(reached <= 1.1 * least, "{reached} units of stall; the least is {least}");
    }

    #[test]

    fn own_costs_pay_where_devices_differ() {
        let (mut uniform, mut own) = (0.0, 0.0);
        for seed in 0..40 {
            let case = Case::large(seed);
            let (plain, foretell) = (case.run(Rules::TIP2), case.run(Rules::FORETELL));
            assert!(foretell <= 1.02 * plain, "seed {seed}: {foretell} against {plain}");
            uniform += plain;
            own += foretell;
        }
        assert!(own < 0.95 * uniform, "{own} units of stall against {uniform}");
    }
}
