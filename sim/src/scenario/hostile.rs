//! The effect of a program with bad hints on programs that did not give them.
//!
//! Three honest programs share a machine. *local* reads without hints, with a locality that mostly fits the
//! memory the others leave. *loop* reads a file again and again, and discloses the next pass at the start of
//! each. *random* reads at random, and discloses a thousand reads at a time. An attacker joins them. It reads
//! its own files, more slowly than the others do, and only a few blocks again and again unless the attack needs
//! a long file. So the harm it does comes from its hints. The device serves any number of requests at once, so
//! programs compete only for buffers.
//!
//! Each attack runs three times: without the attacker, with it but without its hints, and with both. The second
//! run shows what the attacker's reads alone cost the others.

use foretell_policy::{Config, DeviceId, FileId, Memory, Nanos, ReaderId, Rules};
use serde::Serialize;

use crate::machine::program::{Disclosure, Program, Step, Steps, StoredFile, list, passes};
use crate::machine::report::Report;
use crate::machine::server::DeviceSpec;
use crate::machine::{MachineSpec, Readers};
use crate::random::SplitMix64;

const BLOCK_BYTES: u64 = 8192;
const DEVICE: DeviceId = DeviceId(0);
/// Blocks that the local program reads nine times out of ten.
const HOT_BLOCKS: u64 = 400;
/// All blocks of the local program's file.
const LOCAL_BLOCKS: u64 = 8000;
/// Blocks of the looping program's file.
const LOOP_BLOCKS: u64 = 1000;
/// Blocks of the random program's file.
const RANDOM_BLOCKS: u64 = 4000;
/// Reads that the random program discloses at a time.
const RANDOM_BATCH: usize = 1000;
/// Blocks that the attacker reads, unless it reads the whole reversed file.
const ATTACKER_BLOCKS: u64 = 64;
/// Blocks of the files that the attacker hints: 1 TiB.
const TERABYTE_BLOCKS: u64 = (1 << 40) / BLOCK_BYTES;
/// Blocks of the file that is hinted in reverse.
const REVERSE_BLOCKS: u64 = 3000;
/// Wrong blocks hinted at once, and reads between two new streams.
const WRONG_BATCH: u64 = 100;
/// The attacker's work after each read.
const ATTACKER_CPU: Nanos = Nanos(10_000_000);

/// A kind of bad hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Hints a terabyte once, and reads nothing of it.
    Terabyte,
    /// Hints a file in reverse, and reads it forwards.
    Reverse,
    /// Hints random blocks of a file, a hundred at a time, and reads others of it.
    WrongBlocks,
    /// Opens a new stream every hundred reads, and hints a terabyte in it.
    Streams,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Attack; 4] =
        [Attack::Terabyte, Attack::Reverse, Attack::WrongBlocks, Attack::Streams];
}

/// The parameters of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The policy.
    pub rules: Rules,
    /// Which reads count for a program's hints.
    pub readers: Readers,
    /// Memory, in blocks of 8 KB.
    pub buffers: u64,
    /// Reads of each honest program.
    pub reads: u32,
    /// `T_hit`.
    pub hit: Nanos,
    /// `T_driver`.
    pub driver: Nanos,
    /// `T_disk`.
    pub latency: Nanos,
    /// The honest programs' work after each read.
    pub cpu: Nanos,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Parameters {
    /// 16 MB of memory, 20,000 reads each, and the machine of [`contention`](super::contention).
    pub fn new(rules: Rules) -> Self {
        Parameters {
            rules,
            readers: Readers::Hinter,
            buffers: 2048,
            reads: 20_000,
            hit: Nanos(243_000),
            driver: Nanos(580_000),
            latency: Nanos(15_000_000),
            cpu: Nanos(1_000_000),
            seed: 1,
        }
    }
}

/// The effect of an attack on one honest program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Harm {
    /// The program.
    pub name: String,
    /// Its stall without the attacker.
    pub alone_stall_ns: u64,
    /// Its stall beside the attacker without hints.
    pub unhinted_stall_ns: u64,
    /// Its stall beside the attacker with hints.
    pub attacked_stall_ns: u64,
    /// Its elapsed time without the attacker.
    pub alone_elapsed_ns: u64,
}

impl Harm {
    /// The change of stall through the attacker as a whole, as a share of the stall without it.
    pub fn by_attacker(&self) -> f64 {
        self.change(self.alone_stall_ns)
    }

    /// The change of stall through the attacker's hints, as a share of the stall beside it without hints.
    pub fn by_hints(&self) -> f64 {
        self.change(self.unhinted_stall_ns)
    }

    /// The change from a stall of `before_ns`, as a share of it. For the share, `before_ns` counts as at least a twentieth of
    /// the elapsed time: one more late fetch does not harm a program that hardly stalls. So a change of 2 % is at least a
    /// thousandth of the program's elapsed time.
    fn change(&self, before_ns: u64) -> f64 {
        let base_ns = before_ns.max(self.alone_elapsed_ns / 20).max(1);
        (self.attacked_stall_ns as f64 - before_ns as f64) / base_ns as f64
    }
}

/// The effect of an attack on each honest program.
pub fn run(parameters: &Parameters, attack: Attack) -> Vec<Harm> {
    let alone = run_machine(parameters, None);
    let hinted = |step: &Step| !matches!(step, Step::Hint(_) | Step::OpenStream | Step::Cancel);
    let unhinted: Steps = Box::new(attacker(parameters, attack).filter(hinted));
    let unhinted = run_machine(parameters, Some(unhinted));
    let attacked = run_machine(parameters, Some(attacker(parameters, attack)));
    let honest = alone.programs.iter().map(|program| {
        let stall_ns = |report: &Report| report.program(&program.name).tally.stall_ns;
        Harm {
            name: program.name.clone(),
            alone_stall_ns: program.tally.stall_ns,
            unhinted_stall_ns: stall_ns(&unhinted),
            attacked_stall_ns: stall_ns(&attacked),
            alone_elapsed_ns: program.elapsed_ns,
        }
    });
    honest.collect()
}

fn run_machine(parameters: &Parameters, attacker: Option<Steps>) -> Report {
    let config = Config::new(Memory::Owned, BLOCK_BYTES, parameters.buffers * BLOCK_BYTES);
    let policy = Config { rules: parameters.rules, ..config };
    let (latency, transfer) = (parameters.latency, Nanos::ZERO);
    let devices = vec![(DEVICE, DeviceSpec::Flat { latency, transfer, slots: None })];
    let spec = MachineSpec {
        readers: parameters.readers,
        ..MachineSpec::new(policy, parameters.hit, parameters.driver, devices)
    };
    let mut programs = honest(parameters);
    if let Some(steps) = attacker {
        programs.push(Program::new("attacker", ReaderId(4), steps).in_background());
    }
    spec.run(programs)
}

fn file(number: u64, blocks: u64) -> StoredFile {
    StoredFile { file: FileId(number), device: DEVICE, blocks, block_bytes: BLOCK_BYTES }
}

fn honest(parameters: &Parameters) -> Vec<Program> {
    let (reads, cpu) = (parameters.reads, parameters.cpu);
    let mut random = SplitMix64::new(parameters.seed);
    let mut draw_local = || {
        let hot = random.below(10) < 9;
        if hot { random.below(HOT_BLOCKS) } else { random.below(LOCAL_BLOCKS) }
    };
    let local: Vec<u64> = (0..reads).map(|_| draw_local()).collect();
    let draws: Vec<u64> = (0..reads).map(|_| random.below(RANDOM_BLOCKS)).collect();
    let times = reads.div_ceil(LOOP_BLOCKS as u32);
    vec![
        Program::new("local", ReaderId(1), list(file(1, LOCAL_BLOCKS), local, cpu, None)),
        Program::new(
            "loop",
            ReaderId(2),
            passes(file(2, LOOP_BLOCKS), times, cpu, Disclosure::NextPass),
        ),
        Program::new(
            "random",
            ReaderId(3),
            list(file(3, RANDOM_BLOCKS), draws, cpu, Some(RANDOM_BATCH)),
        ),
    ]
}

/// The attacker's steps, without end.
fn attacker(parameters: &Parameters, attack: Attack) -> Steps {
    let mut random = SplitMix64::new(parameters.seed ^ 0xA77A);
    let small = file(4, ATTACKER_BLOCKS);
    let large = file(5, TERABYTE_BLOCKS);
    let reversed = file(6, REVERSE_BLOCKS);
    match attack {
        Attack::Terabyte => {
            let reads = (0..ATTACKER_BLOCKS).cycle().flat_map(move |index| read(small, index));
            Box::new(std::iter::once(Step::Hint(large.hint(1))).chain(reads))
        }
        Attack::Reverse => Box::new(std::iter::repeat(()).flat_map(move |()| {
            let hint = Step::Hint(reversed.hint_blocks((0..REVERSE_BLOCKS).rev()));
            let reads = (0..REVERSE_BLOCKS).flat_map(move |index| read(reversed, index));
            std::iter::once(hint).chain(reads)
        })),
        Attack::WrongBlocks => Box::new(std::iter::repeat(()).flat_map(move |()| {
            let beyond = TERABYTE_BLOCKS - ATTACKER_BLOCKS;
            let draw = |_| ATTACKER_BLOCKS + random.below(beyond);
            let hint = large.hint_blocks((0..WRONG_BATCH).map(draw));
            let wanted: Vec<u64> =
                (0..WRONG_BATCH).map(|_| random.below(ATTACKER_BLOCKS)).collect();
            let reads = wanted.into_iter().flat_map(move |index| read(large, index));
            std::iter::once(Step::Hint(hint)).chain(reads)
        })),
        Attack::Streams => Box::new((0u64..).flat_map(move |round| {
            let again = file(100 + round, TERABYTE_BLOCKS);
            let hints = [Step::OpenStream, Step::Hint(again.hint(1))];
            let reads = (0..WRONG_BATCH).flat_map(move |at| read(small, at % ATTACKER_BLOCKS));
            hints.into_iter().chain(reads)
        })),
    }
}

fn read(file: StoredFile, index: u64) -> [Step; 2] {
    [file.read(index), Step::Compute(ATTACKER_CPU)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_use_for_hints_no_hint_does_harm() {
        let parameters = Parameters { reads: 2000, ..Parameters::new(Rules::LRU) };
        for attack in Attack::ALL {
            let harms = run(&parameters, attack);
            assert_eq!(harms.len(), 3);
            for harm in harms {
                assert_eq!(harm.by_hints(), 0.0, "{attack:?} {harm:?}");
                assert!(harm.alone_stall_ns > 0);
            }
        }
    }

    #[test]

    fn nobody_pays_for_another_ones_hints() {
        for readers in [Readers::Hinter, Readers::Anybody] {
            nobody_pays(&Parameters { readers, ..Parameters::new(Rules::FORETELL) });
        }
    }

    fn nobody_pays(parameters: &Parameters) {
        for attack in Attack::ALL {
            for harm in run(parameters, attack) {
                assert!(harm.by_hints() <= 0.02, "{attack:?} {harm:?}");
                // Reading a file of 3,000 blocks takes buffers by itself.
                if attack != Attack::Reverse {
                    assert!(harm.by_attacker() <= 0.02, "{attack:?} {harm:?}");
                }
            }
        }
    }
}
