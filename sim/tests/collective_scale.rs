//! Collective reads by thousands of processors.

use foretell_policy::Nanos;
use foretell_sim::collective::recommend::recommended_depth;
use foretell_sim::collective::{CollectiveSpec, Method, Network, Pattern};
use foretell_sim::device::DiskParameters;
use foretell_sim::device::flat::{FlatSpec, Latency};
use foretell_sim::random::SplitMix64;

const PROCESSORS: usize = 4096;

/// Owners of `stripes` stripes among so many of the processors, in runs of up to two stripes.
fn owners(disks: usize, stripes: usize, among: usize, seed: u64) -> Vec<u32> {
    let mut random = SplitMix64::new(seed);
    let (blocks, share) = (stripes * disks, (stripes * disks).div_ceil(among));
    let mut left: Vec<(u32, usize)> =
        (0..among).map(|owner| ((owner * (PROCESSORS / among)) as u32, share)).collect();
    let mut owners = Vec::with_capacity(blocks);
    while owners.len() < blocks {
        let at = random.below(left.len() as u64) as usize;
        let (owner, more) = &mut left[at];
        let run = (1 + random.below(2 * disks as u64) as usize).min(*more);
        owners.extend(std::iter::repeat_n(*owner, run.min(blocks - owners.len())));
        *more -= run;
        if *more == 0 {
            left.swap_remove(at);
        }
    }
    owners
}

/// The machine of the paper's section 4.3: unit times, and a network that takes none.
fn ideal(disks: usize, owners: Vec<u32>, depth: usize) -> CollectiveSpec {
    CollectiveSpec {
        processors: PROCESSORS,
        disks,
        disk: DiskParameters::Flat(FlatSpec {
            latency: Latency::Constant { latency_ms: 1.0 },
            bandwidth_bytes_per_s: f64::INFINITY,
            link_bytes_per_s: f64::INFINITY,
            slots: 1,
            capacity_sectors: 1 << 30,
        }),
        network: Network::INSTANT,
        file_blocks: owners.len() as u64,
        files: 1,
        pattern: Pattern::Owners(owners.into()),
        method: Method::Prefetch,
        depth: depth as u64,
        ..CollectiveSpec::paper(4)
    }
}

/// Blocks that a disk serves after a later one.
fn out_of_order(spec: &CollectiveSpec) -> usize {
    let mut last = vec![None; spec.disks];
    let mut found = 0;
    spec.run_observed(&mut |served| {
        found += usize::from(last[served.disk] >= Some(served.block));
        last[served.disk] = Some(served.block);
    });
    found
}

fn depth_d_is_enough(disks: usize, among: usize, portion: usize) {
    let stripes = among * portion / disks;
    let owners = owners(disks, stripes, among, disks as u64);
    let spec = ideal(disks, owners, disks);
    assert_eq!(out_of_order(&spec), 0, "{disks}");
    assert_eq!(spec.run().elapsed, Nanos::from_millis(stripes as f64), "{disks}");
    let fewer = CollectiveSpec { depth: disks as u64 / 2, ..spec };
    assert!(out_of_order(&fewer) > 0, "{disks}");
}

/// Section 4.3. Where all 4,096 processors would need too many blocks, only some have any.
#[test]
fn depth_d_is_enough_for_4096_processors() {
    depth_d_is_enough(8, 4096, 16);
    depth_d_is_enough(64, 512, 128);
    depth_d_is_enough(512, 64, 1024);
}

#[test]
#[ignore = "takes a minute: cargo test --release -p foretell-sim --test collective_scale -- --ignored"]
fn depth_d_is_enough_for_4096_busy_processors() {
    depth_d_is_enough(8, 4096, 128);
    depth_d_is_enough(64, 4096, 128);
    depth_d_is_enough(512, 4096, 1024);
}

fn machine(disks: usize, pattern: Pattern, share: u64) -> CollectiveSpec {
    let mut spec = CollectiveSpec {
        processors: PROCESSORS,
        disks,
        pattern,
        file_blocks: share * PROCESSORS as u64,
        files: 1,
        steady: true,
        apart: true,
        ..CollectiveSpec::paper(4)
    };
    spec.compute = spec.run().reading;
    spec
}

/// Each method on each pattern, the recommended depth and the crossover.
fn all_of_it(disks: usize, share: u64) {
    for pattern in Pattern::NAMED {
        let spec = machine(disks, pattern, share);
        let best = spec.run_prefetching(share).throughput_mb_s();
        for method in Method::ALL {
            let report = CollectiveSpec { method, depth: share, ..spec.clone() }.run();
            // No faster than the best: the disks' own order, with computing hidden.
            assert!(report.throughput_mb_s() < 1.1 * best, "{disks} {method} {:?}", spec.pattern);
        }
        let depth = recommended_depth(&spec);
        assert!((1..=spec.largest_portion_blocks()).contains(&depth), "{depth}");
        assert!(spec.run_prefetching(depth).throughput_mb_s() > 0.9 * best, "{depth}");
    }
    let answers = machine(disks, Pattern::Global, share).answers();
    assert!(answers.crossover.is_some_and(|depth| depth <= share), "{answers:?}");
}

#[test]
fn all_of_it_runs_with_4096_processors() {
    all_of_it(64, 2);
}

#[test]
#[ignore = "takes a minute: cargo test --release -p foretell-sim --test collective_scale -- --ignored"]
fn all_of_it_runs_with_4096_processors_on_any_disks() {
    for disks in [8, 64, 512] {
        all_of_it(disks, 32);
    }
}
