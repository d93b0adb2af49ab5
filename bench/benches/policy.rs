//! Reads a second through the whole policy, one core, with memory for a million blocks.

#![allow(missing_docs)]

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use foretell_bench::{Bench, Workload};

const CAPACITY_BLOCKS: u64 = 1_000_000;

/// Reads of one iteration, which is what criterion times.
const READS: u64 = 1000;

fn policy(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("policy");
    group.throughput(Throughput::Elements(READS)).sampling_mode(SamplingMode::Flat);
    group.sample_size(30);
    for workload in Workload::ALL {
        // It takes longer to come to a steady state than to be measured.
        let mut bench = None;
        group.bench_function(workload.name(), |bencher| {
            let bench = bench.get_or_insert_with(|| Bench::new(workload, CAPACITY_BLOCKS));
            bencher.iter(|| {
                (0..READS).filter(|_| bench.step() == foretell_policy::Access::Hit).count()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, policy);
criterion_main!(benches);
