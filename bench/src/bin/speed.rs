//! Prints the policy's cost of a read, for each workload.
//!
//! A round consists of whole periods (`Workload::period_reads`).
//!
//! Usage: `policy-speed [BLOCKS [WORKLOAD]]`: blocks in memory (1,000,000), and a part of a workload's name.

use std::time::Instant;

use foretell_bench::{Bench, Machine, Workload};
use foretell_heap::Heap;

/// The product's allocator.
#[global_allocator]
static HEAP: Heap = Heap;

const ROUNDS: usize = 5;
const READS_MIN: u64 = 1_000_000;

fn main() {
    if std::env::args().skip(1).any(|argument| argument == "--help" || argument == "-h") {
        println!("policy-speed [BLOCKS [WORKLOAD]]: what a read costs the policy, ns");
        println!("  BLOCKS    blocks in memory (1000000)");
        println!("  WORKLOAD  a part of a workload's name (all)");
        return;
    }
    let mut arguments = std::env::args().skip(1);
    let blocks = arguments.next().map_or(Ok(1_000_000), |blocks| blocks.parse());
    let Ok(blocks) = blocks else {
        eprintln!("policy-speed: the first argument is a number of blocks");
        std::process::exit(2);
    };
    let part = arguments.next().unwrap_or_default();
    println!("{}\n", Machine::measure());
    println!("| workload, {blocks} blocks | ns a read, median | least |");
    println!("|---|---|---|");
    for workload in Workload::ALL.into_iter().filter(|workload| workload.name().contains(&part)) {
        let mut bench = Bench::new(workload, blocks);
        let reads = workload.whole_reads(blocks, READS_MIN);
        let mut costs_ns: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                (0..reads).for_each(|_| {
                    bench.step();
                });
                began.elapsed().as_nanos() as f64 / reads as f64
            })
            .collect();
        costs_ns.sort_by(f64::total_cmp);
        println!("| {} | {:.0} | {:.0} |", workload.name(), costs_ns[ROUNDS / 2], costs_ns[0]);
    }
}
