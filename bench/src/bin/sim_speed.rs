//! Prints how many block accesses a second the simulator processes on this machine.
//!
//! * **A. Machine.** Each workload of [`Simulation`] under three policies, on 15 modelled disks.
//! * **B. Cache.** The part of `foretell sim cache`: LRU over a recording in memory, without a clock.
//! * **C. Long.** One run of many accesses. Its memory must not grow with their number.
//!
//! A and B run in turn, round by round, so that a change of the machine's speed affects all of them.

use std::process::ExitCode;
use std::time::Instant;

use foretell_bench::random::{Random, Zipf};
use foretell_bench::simulation::DISKS;
use foretell_bench::{Machine, Simulation};
use foretell_heap::Heap;
use foretell_policy::{Block, FileId, Rules};
use foretell_sim::cache::{self, CacheOptions, CachePolicy, Hints};
use foretell_sim::trace::Reads;

/// The product's allocator.
#[global_allocator]
static HEAP: Heap = Heap;

const USAGE: &str = "\
Usage: sim-speed [PART]
       sim-speed --long [ACCESSES [WORKLOAD]]

Prints the block accesses a second of the simulated machine: of rows with PART in `workload | policy`.

  --long  makes one run of ACCESSES (100000000), and prints the most memory that it took; WORKLOAD is a part of
          a name (hinted loop), which may also be that of all of them at once (mixed)
";

const ROUNDS: usize = 5;
/// A: accesses of a run.
const MACHINE_READS: u64 = 1_000_000;
const POLICIES: [Rules; 3] = [Rules::FORETELL, Rules::TIP2, Rules::LRU];
/// B: accesses of a run, distinct blocks, and a capacity of a tenth of these.
const CACHE_READS: usize = 10_000_000;
const CACHE_BLOCKS: u64 = 1_000_000;
const CACHE_CAPACITY_BLOCKS: u64 = 100_000;
const CACHE_EXPONENT: f64 = 0.99;
const CACHE_NAME: &str = "cache, Zipf";
/// C: accesses of a run.
const LONG_READS: u64 = 100_000_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["-h" | "--help", ..] => print!("{USAGE}"),
        ["--long"] => long(LONG_READS, Simulation::Loop),
        ["--long", reads, ref rest @ ..] => {
            let simulation = match rest {
                [] => Some(Simulation::Loop),
                [part] => Simulation::named_like(part),
                _ => None,
            };
            match (reads.parse(), simulation) {
                (Ok(reads), Some(simulation)) if reads > 0 => long(reads, simulation),
                (Ok(_), None) => return unexpected(rest[rest.len() - 1]),
                _ => return unexpected(reads),
            }
        }
        [] => compare(""),
        [part] if !part.starts_with('-') => compare(part),
        [word, ..] => return unexpected(word),
    }
    ExitCode::SUCCESS
}

fn unexpected(word: &str) -> ExitCode {
    eprintln!("sim-speed: {word} is not expected here: try --help");
    ExitCode::from(2)
}

/// A measured row: its name, its run (which returns accesses and seconds), and the results.
struct Row {
    name: String,
    run: Box<dyn Fn() -> (u64, f64)>,
    seconds: Vec<f64>,
    reads: u64,
}

/// A and B.
fn compare(part: &str) {
    println!("{}; medians of {ROUNDS} runs, {DISKS} disks\n", Machine::measure());
    let mut rows: Vec<Row> = Vec::new();
    let row = |name, run| Row { name, run, seconds: Vec::new(), reads: 0 };
    for simulation in Simulation::ALL {
        for rules in POLICIES {
            let name = format!("{} | {}", simulation.name(), rules.name);
            rows.push(row(name, Box::new(move || simulate(simulation, rules, MACHINE_READS))));
        }
    }
    rows.retain(|row| row.name.contains(part));
    if CACHE_NAME.contains(part) {
        let reads = recording();
        rows.push(row(format!("{CACHE_NAME} | lru"), Box::new(move || cached(&reads))));
    }
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let (reads, seconds) = (row.run)();
            row.reads = reads;
            row.seconds.push(seconds);
        }
    }
    println!("| workload | policy | M accesses/s | ns an access | least | most |");
    println!("|---|---|---|---|---|---|");
    for Row { name, mut seconds, reads, .. } in rows {
        seconds.sort_by(f64::total_cmp);
        let ns = |seconds: f64| seconds * 1e9 / reads as f64;
        let (median, least, most) = (seconds[ROUNDS / 2], seconds[0], seconds[ROUNDS - 1]);
        let rate = reads as f64 / median / 1e6;
        println!("| {name} | {rate:.2} | {:.0} | {:.0} | {:.0} |", ns(median), ns(least), ns(most));
    }
}

/// A: runs a workload; returns its accesses and seconds.
fn simulate(simulation: Simulation, rules: Rules, reads: u64) -> (u64, f64) {
    let (spec, programs) = simulation.build(rules, reads);
    let began = Instant::now();
    let report = spec.run(programs);
    let seconds = began.elapsed().as_secs_f64();
    (report.programs.iter().map(|program| program.tally.reads).sum(), seconds)
}

/// B: Zipf's law over the blocks of one file; frequent blocks lie at random places.
fn recording() -> Reads {
    let (mut random, zipf) = (Random::new(3), Zipf::new(CACHE_BLOCKS, CACHE_EXPONENT));
    let places = random.permutation(CACHE_BLOCKS);
    let mut draw = || places[zipf.draw(&mut random) as usize];
    (0..CACHE_READS).map(|_| Block { file: FileId(1), index: draw() }).collect()
}

/// B.
fn cached(reads: &Reads) -> (u64, f64) {
    let options = CacheOptions {
        policy: CachePolicy::Rules(Rules::LRU),
        capacity_blocks: CACHE_CAPACITY_BLOCKS,
        hints: Hints::None,
        depth_blocks: None,
    };
    let result = cache::run(reads, &options, &mut |_| ());
    (result.reads, result.seconds)
}

/// C.
fn long(reads: u64, simulation: Simulation) {
    println!("{}; {DISKS} disks\n", Machine::measure());
    println!("| workload | accesses | policy | M accesses/s | most memory, MiB |");
    println!("|---|---|---|---|---|");
    // A hundredth of the run first: the whole run should need no more memory.
    for reads in [reads.div_ceil(100), reads] {
        let (reads, seconds) = simulate(simulation, Rules::FORETELL, reads);
        let rate = reads as f64 / seconds / 1e6;
        let memory = peak_bytes()
            .map_or_else(|| "unknown".into(), |bytes| format!("{:.1}", bytes as f64 / 1048576.0));
        let (name, policy) = (simulation.name(), Rules::FORETELL.name);
        println!("| {name} | {reads} | {policy} | {rate:.2} | {memory} |");
    }
}

/// The peak memory of this process so far (`VmHWM`), if the kernel reports it.
fn peak_bytes() -> Option<u64> {
    let facts = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = facts.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
