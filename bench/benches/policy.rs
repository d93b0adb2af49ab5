//! Reads a second of each workload, with a million blocks in memory and a thousand streams.
//!
//! `cargo bench --manifest-path bench/Cargo.toml [-- PART_OF_A_NAME]`. A workload's memory is filled once. Its
//! reads then continue from sample to sample, without any set-up between.

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use foretell_bench::{Bench, Machine, Workload};
use foretell_heap::Heap;

/// The product's allocator.
#[global_allocator]
static HEAP: Heap = Heap;

const BLOCKS: u64 = 1_000_000;

/// Several times as long as one order of *shuffled*, in which its cost goes up and down. A sample covers a part
/// of an order, so its spread includes these phases.
const MEASURED: Duration = Duration::from_secs(10);

fn policy(criterion: &mut Criterion) {
    println!("{}", Machine::measure());
    let mut group = criterion.benchmark_group("policy");
    group
        .throughput(Throughput::Elements(1))
        .sampling_mode(SamplingMode::Flat)
        .sample_size(15)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(MEASURED);
    for workload in Workload::ALL {
        // Made on first use, which does not happen if its name is not selected.
        let mut bench = None;
        group.bench_function(workload.name(), |bencher| {
            let bench = bench.get_or_insert_with(|| Bench::new(workload, BLOCKS));
            bencher.iter(|| bench.step());
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().without_plots();
    targets = policy
}
criterion_main!(benches);
