//! Workloads of the simulated machine, which `sim-speed` runs.
//!
//! The machine is that of the TIP papers with more memory: 15 HP 97560 disks behind a striping driver, blocks
//! of 8 KiB, 8192 of them in memory, and 1 ms of work after each read. Steps are made one by one, so that a
//! long run takes no more memory than a short one.

use std::rc::Rc;

use foretell_policy::{Config, DeviceId, FileId, Hint, Memory, Nanos, ReaderId, Rules};
use foretell_sim::machine::MachineSpec;
use foretell_sim::machine::program::{self, Disclosure, Program, Step, Steps, StoredFile};
use foretell_sim::machine::server::{ArraySpec, DeviceSpec};

use crate::random::{Random, Zipf};

/// Disks of the array.
pub const DISKS: usize = 15;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 8192;
/// Blocks in memory.
const CAPACITY_BLOCKS: u64 = 8192;
/// `T_hit` and `T_driver` of TIP 1995, and the work after each read.
const HIT: Nanos = Nanos(243_000);
const DRIVER: Nanos = Nanos(580_000);
const WORK: Nanos = Nanos(1_000_000);
/// The array of disks.
const DEVICE: DeviceId = DeviceId(1);

/// A: files that are read at random, blocks of each, and Zipf's exponent.
const DRAWN_FILES: u64 = 16;
const DRAWN_FILE_BLOCKS: u64 = 1024;
const EXPONENT: f64 = 0.99;
/// A: draws made in advance and repeated, since drawing takes longer than a read.
const DRAWS: usize = 1 << 20;
/// B: blocks of the file that is read again and again.
const LOOP_BLOCKS: u64 = 9000;
/// C: programs, files of each, and blocks of a file.
const SCANNERS: u64 = 4;
const SCANNED_FILES: u64 = 100;
const SCANNED_FILE_BLOCKS: u64 = 1000;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulation {
    /// A: one program reads blocks of 16 files, which are twice as large as memory, by Zipf's law and without
    /// hints.
    Zipf,
    /// A: the same with uniform draws from as many blocks as memory holds.
    Uniform,
    /// B: one program reads a file a tenth larger than memory again and again, and discloses the next pass.
    Loop,
    /// C: four programs read one file after another, and disclose the next one.
    Scans,
    /// Two `Zipf` programs, a `Loop` and four `Scans` at once, with one cache.
    Mixed,
}

impl Simulation {
    /// The workloads that are compared.
    pub const ALL: [Simulation; 4] =
        [Simulation::Zipf, Simulation::Uniform, Simulation::Loop, Simulation::Scans];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Simulation::Zipf => "Zipf, no hints",
            Simulation::Uniform => "uniform, no hints",
            Simulation::Loop => "hinted loop",
            Simulation::Scans => "four hinted scans",
            Simulation::Mixed => "mixed",
        }
    }

    /// The first workload with `part` in its name.
    pub fn named_like(part: &str) -> Option<Simulation> {
        let mut all = Simulation::ALL.into_iter().chain([Simulation::Mixed]);
        all.find(|simulation| simulation.name().contains(part))
    }

    /// The machine, and programs that make about `reads` reads together.
    pub fn build(self, rules: Rules, reads: u64) -> (MachineSpec, Vec<Program>) {
        let mut steps: Vec<Steps> = Vec::new();
        match self {
            Simulation::Zipf => steps.push(drawn(reads, zipf_draws(1))),
            Simulation::Uniform => steps.push(drawn(reads, uniform_draws(2))),
            Simulation::Loop => steps.push(looped(reads)),
            Simulation::Scans => {
                let reads = reads.div_ceil(SCANNERS);
                steps.extend((0..SCANNERS).map(|scanner| scan(scanner, reads)));
            }
            Simulation::Mixed => {
                let reads = reads.div_ceil(SCANNERS + 3);
                steps.extend([drawn(reads, zipf_draws(1)), drawn(reads, zipf_draws(2))]);
                steps.push(looped(reads));
                steps.extend((0..SCANNERS).map(|scanner| scan(scanner, reads)));
            }
        }
        let config = Config::new(Memory::Owned, BLOCK_BYTES, CAPACITY_BLOCKS * BLOCK_BYTES);
        let array = DeviceSpec::Array(Box::new(ArraySpec::hp97560(DISKS, sizes_bytes())));
        let devices = vec![(DEVICE, array)];
        let spec = MachineSpec::new(Config { rules, ..config }, HIT, DRIVER, devices);
        let named = |(number, steps)| Program::new(format!("p{number}"), ReaderId(number), steps);
        (spec, (1..).zip(steps).map(named).collect())
    }
}

/// All files, in their order in the volume.
fn sizes_bytes() -> impl Iterator<Item = (FileId, u64)> {
    let drawn = (0..DRAWN_FILES).map(drawn_file);
    let scanned = (0..SCANNERS)
        .flat_map(|scanner| (0..SCANNED_FILES).map(move |number| scanned_file(scanner, number)));
    let all = drawn.chain([looped_file()]).chain(scanned);
    all.map(|file| (file.file, file.blocks * file.block_bytes))
}

fn stored(file: u64, blocks: u64) -> StoredFile {
    StoredFile { file: FileId(file), device: DEVICE, blocks, block_bytes: BLOCK_BYTES }
}

fn drawn_file(number: u64) -> StoredFile {
    stored(1 + number, DRAWN_FILE_BLOCKS)
}

fn looped_file() -> StoredFile {
    stored(100, LOOP_BLOCKS)
}

fn scanned_file(scanner: u64, number: u64) -> StoredFile {
    stored(1000 * (1 + scanner) + number % SCANNED_FILES, SCANNED_FILE_BLOCKS)
}

/// Draws by Zipf's law; the ranks lie at random places of the files.
fn zipf_draws(seed: u64) -> Rc<[u32]> {
    let blocks = DRAWN_FILES * DRAWN_FILE_BLOCKS;
    let (mut random, zipf) = (Random::new(seed), Zipf::new(blocks, EXPONENT));
    let places = Random::new(0).permutation(blocks);
    (0..DRAWS).map(|_| places[zipf.draw(&mut random) as usize] as u32).collect()
}

fn uniform_draws(seed: u64) -> Rc<[u32]> {
    let mut random = Random::new(seed);
    (0..DRAWS).map(|_| random.below(CAPACITY_BLOCKS) as u32).collect()
}

/// A.
fn drawn(reads: u64, draws: Rc<[u32]>) -> Steps {
    let mut at = 0;
    steps(move || {
        let block = u64::from(draws[at as usize % DRAWS]);
        at += 1;
        (at <= reads).then(|| drawn_file(block / DRAWN_FILE_BLOCKS).read(block % DRAWN_FILE_BLOCKS))
    })
}

/// B: reads whole passes.
fn looped(reads: u64) -> Steps {
    let file = looped_file();
    let passes = u32::try_from(reads.div_ceil(LOOP_BLOCKS)).unwrap_or(u32::MAX);
    program::passes(file, passes, WORK, Disclosure::NextPass)
}

/// C: reads whole files in turn.
fn scan(scanner: u64, reads: u64) -> Steps {
    let files = reads.div_ceil(SCANNED_FILE_BLOCKS);
    let hint = move |number| {
        let file = scanned_file(scanner, number);
        Step::Hint(Hint::whole_file(file.target(), DEVICE))
    };
    // The current file, the next block of it, and the number of hints given.
    let (mut number, mut next, mut hints) = (0, 0, 0);
    steps(move || {
        if hints < files.min(number + 2) {
            hints += 1;
            return Some(hint(hints - 1));
        }
        let file = scanned_file(scanner, number);
        let read = (number < files).then(|| file.read(next));
        next += 1;
        if next == file.blocks {
            (number, next) = (number + 1, 0);
        }
        read
    })
}

/// The steps of `next`, with work after each read.
fn steps(mut next: impl FnMut() -> Option<Step> + 'static) -> Steps {
    let mut works = false;
    Box::new(std::iter::from_fn(move || {
        if std::mem::take(&mut works) {
            return Some(Step::Compute(WORK));
        }
        let step = next();
        works = matches!(step, Some(Step::Read(..)));
        step
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_makes_the_reads_it_was_asked_for() {
        for simulation in Simulation::ALL.into_iter().chain([Simulation::Mixed]) {
            let (spec, programs) = simulation.build(Rules::FORETELL, 40_000);
            let report = spec.run(programs);
            let reads: u64 = report.programs.iter().map(|program| program.tally.reads).sum();
            assert!((40_000..60_000).contains(&reads), "{}: {reads}", simulation.name());
        }
    }

    #[test]
    fn unhinted_reads_mostly_hit() {
        for simulation in [Simulation::Zipf, Simulation::Uniform] {
            let (spec, programs) = simulation.build(Rules::FORETELL, 100_000);
            let tally = spec.run(programs).programs[0].tally;
            assert!(tally.hits * 10 > tally.reads * 8, "{}: {tally:?}", simulation.name());
        }
    }
}
