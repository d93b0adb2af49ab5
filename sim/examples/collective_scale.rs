//! Prints the table of `docs/internals/collective.md` on many processors: throughput with blocks ahead, by that of a
//! collective call, on the paper's drive.
//!
//!     cargo run --release -p foretell-sim --example collective_scale [MOST]
//!
//! MOST is the largest number of processors, 4,096 if not given. With it, this takes a quarter of an hour
//! of a core, and 2 GB.

#![allow(clippy::print_stdout)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foretell_policy::Nanos;
use foretell_sim::collective::{CollectiveSpec, Pattern};

/// Blocks of each processor in a file, as a multiple of D.
const PORTION: u64 = 4;

/// Depths, in quarters of D.
const QUARTERS: [u64; 4] = [1, 2, 4, 8];

fn line((processors, disks, pattern): &(usize, usize, Pattern)) -> String {
    let mut spec = CollectiveSpec {
        processors: *processors,
        disks: *disks,
        pattern: pattern.clone(),
        file_blocks: PORTION * (disks * processors) as u64,
        files: 1,
        steady: true,
        apart: true,
        ..CollectiveSpec::paper(4)
    };
    // As much computing as reading, as in the paper.
    spec.compute = Nanos::from_secs(spec.run().reading.as_secs());
    let call = spec.run().throughput_mb_s();
    let cell = |quarters| match quarters * *disks as u64 / 4 {
        0 => "".into(),
        depth => format!("{:.2}", spec.run_prefetching(depth).throughput_mb_s() / call),
    };
    let cells = QUARTERS.map(cell).join(" | ");
    format!("| {processors} | {disks} | {pattern} | {cells} |")
}

fn main() {
    let most = std::env::args().nth(1).and_then(|most| most.parse().ok()).unwrap_or(4096);
    let machines = [(8, 8), (64, 8), (512, 8), (4096, 8), (8, 1), (512, 64), (4096, 512)];
    let patterns = [Pattern::Interleaved, Pattern::Block1d, Pattern::Block3d, Pattern::Global];
    let cases: Vec<_> = machines
        .into_iter()
        .filter(|(processors, _)| *processors <= most)
        .flat_map(|(p, d)| patterns.clone().map(|pattern| (p, d, pattern)))
        .collect();
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(vec![String::new(); cases.len()]));
    let work = || {
        while let Some((at, case)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, cases.get(at)?)))
        {
            let line = line(case);
            lines.lock().expect("nothing fails with the lock held")[at] = line;
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| {
            scope.spawn(work);
        });
    });
    println!("| P | D | pattern | D/4 | D/2 | D | 2D |\n|---|---|---|---|---|---|---|");
    lines.into_inner().expect("nothing failed").iter().for_each(|line| println!("{line}"));
}
