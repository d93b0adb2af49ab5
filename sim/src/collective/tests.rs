//! Properties of every run.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::device::flat::{FlatSpec, Latency};
use crate::random::SplitMix64;

/// A device that takes one millisecond for any request, one at a time.
fn unit_time() -> DiskParameters {
    DiskParameters::Flat(FlatSpec {
        latency: Latency::Constant { latency_ms: 1.0 },
        bandwidth_bytes_per_s: f64::INFINITY,
        link_bytes_per_s: f64::INFINITY,
        slots: 1,
        capacity_sectors: 1 << 30,
    })
}

/// The machine of section 4.3.
fn ideal(processors: usize, disks: usize, owners: Vec<u32>, depth: u64) -> CollectiveSpec {
    CollectiveSpec {
        processors,
        disks,
        disk: unit_time(),
        network: Network::INSTANT,
        file_blocks: owners.len() as u64,
        files: 1,
        pattern: Pattern::Owners(owners.into()),
        method: Method::Prefetch,
        depth,
        ..CollectiveSpec::paper(4)
    }
}

#[test]
fn waits_of_a_long_queue_of_a_slow_device_are_added_up() {
    // Two files of 2^15 blocks, a minute each, all queued at once: 2^16 waits of some 4 months.
    let blocks = 1u64 << 15;
    let latency = Latency::Constant { latency_ms: 60_000.0 };
    let DiskParameters::Flat(flat) = unit_time() else { unreachable!() };
    let spec = CollectiveSpec {
        disk: DiskParameters::Flat(FlatSpec { latency, ..flat }),
        files: 2,
        method: Method::DiskDirected,
        ..ideal(1, 1, vec![0; blocks as usize], 1)
    };
    let report = spec.run();
    assert!(report.response_ns > u128::from(u64::MAX), "it is no test of that");
    let mean_ms = 60_000.0 * (blocks + 1) as f64 / 2.0;
    assert!((report.response_ms() / mean_ms - 1.0).abs() < 0.01, "{}", report.response_ms());
}

/// The first block that a disk serves after a later block of the same file, if there is one.
fn out_of_order(spec: &CollectiveSpec) -> Option<u32> {
    let mut last = vec![None; spec.disks];
    let mut found = None;
    spec.run_observed(&mut |served| {
        let now = Some((served.file, served.block));
        if last[served.disk] >= now {
            found = found.or(Some(served.block));
        }
        last[served.disk] = now;
    });
    found
}

/// A file of 1 to 12 stripes and a part of one, with random owners; some processors are likelier than others.
fn random_owners(random: &mut SplitMix64, processors: usize, disks: usize) -> Vec<u32> {
    let blocks = 1 + random.below(12 * disks as u64);
    let skew = random.below(3);
    let draw = |random: &mut SplitMix64| random.below(processors as u64) as u32;
    let mut owner = draw(random);
    let mut owners = Vec::new();
    for _ in 0..blocks {
        // Runs of one owner are what makes depth necessary.
        if skew == 0 || random.below(2 * disks as u64) < skew {
            owner = draw(random);
        }
        owners.push(owner);
    }
    owners
}

/// The paper's section 4.3, for every order that does not turn back.
#[test]
fn depth_d_makes_every_disk_sequential() {
    let mut random = SplitMix64::new(43);
    let mut with_fewer = 0;
    for number in 0..12_000 {
        let (processors, disks) = (1 + random.below(12) as usize, 1 + random.below(12) as usize);
        let owners = random_owners(&mut random, processors, disks);
        let mut spec = ideal(processors, disks, owners, disks as u64);
        spec.order = [Order::Sstf, Order::CLook, Order::Scan][number % 3];
        spec.files = 1 + (number % 2) as u32;
        assert_eq!(out_of_order(&spec), None, "{spec:?}");
        // The least time: each disk serves one block after another.
        let stripes = spec.file_blocks.div_ceil(disks as u64) * u64::from(spec.files);
        assert_eq!(spec.run().elapsed, Nanos::from_millis(stripes as f64), "{spec:?}");
        spec.depth -= 1;
        with_fewer += u32::from(spec.depth > 0 && out_of_order(&spec).is_some());
    }
    assert!(with_fewer > 1000, "{with_fewer}");
}

/// The queue of a disk with an arm, which section 4.3 does not have: the nearest cylinder, the lower of two,
/// and sector by sector within it.
#[test]
fn the_shortest_seek_is_counted_in_cylinders() {
    let DiskParameters::Mechanical(disk) = DiskParameters::hp97560_stored() else {
        panic!("it has an arm");
    };
    let spec = CollectiveSpec {
        disk: DiskParameters::Mechanical(disk.clone()),
        placement: Placement::Random,
        ..ideal(1, 1, vec![0; 3000], 3000)
    };
    let places = Places::new(&spec.placing());
    let cylinder = |sector| sector / (disk.geometry.heads * disk.geometry.sectors_per_track);
    let mut left: Vec<u64> = (0..3000).map(|block| places.sector(0, block)).collect();
    let (mut at, mut shared) = (0, 0);
    spec.run_observed(&mut |served| {
        let nearest = |&&sector: &&u64| {
            let of = cylinder(sector);
            (of.abs_diff(at), of, sector)
        };
        let next = *left.iter().min_by_key(nearest).expect("some are left");
        assert_eq!(places.sector(0, served.block), next);
        left.retain(|&sector| sector != next);
        shared += u32::from(cylinder(next) == at);
        at = cylinder(next);
    });
    assert!(left.is_empty() && shared > 500, "{shared} of one cylinder");
}

/// The first ownership of so many stripes by two processors with equal shares that is read out of order.
fn counter_example(disks: usize, stripes: usize, depth: u64) -> Option<Vec<u32>> {
    let blocks = stripes * disks;
    let equal = |bits: &u32| bits.count_ones() as usize == blocks / 2;
    let owners = |bits: u32| (0..blocks).map(|block| bits >> block & 1).collect::<Vec<u32>>();
    let all = (0u32..1 << blocks).filter(equal).map(owners);
    all.into_iter().find(|owners| out_of_order(&ideal(2, disks, owners.clone(), depth)).is_some())
}

#[test]
fn depth_d_less_one_does_not() {
    for (disks, stripes) in [(2, 3), (3, 4), (4, 3), (6, 3)] {
        let depth = disks as u64;
        assert!(counter_example(disks, stripes, depth - 1).is_some(), "{disks}");
        assert_eq!(counter_example(disks, stripes, depth), None, "{disks}");
    }
    // The example of `docs/internals/collective.md`.
    let found = counter_example(4, 3, 3).expect("there is one");
    assert_eq!(found, [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
    let mut last_disk = Vec::new();
    ideal(2, 4, found, 3).run_observed(&mut |served| {
        if served.disk == 3 {
            last_disk.push(served.block);
        }
    });
    assert_eq!(last_disk, [7, 3, 11]);
}

fn any_spec() -> impl Strategy<Value = CollectiveSpec> {
    let machine = (1usize..6, 1usize..6, 0usize..4, 1u64..80, 1u32..4);
    let reading = (0usize..4, 0usize..4, 0usize..5, any::<bool>(), 0u64..20);
    let rest = (0usize..3, any::<bool>(), 0u64..40, any::<u64>());
    (machine, reading, rest).prop_map(|(machine, reading, rest)| {
        let (processors, disks, order, file_blocks, files) = machine;
        let (pattern, placement, method, overlapped, depth) = reading;
        let (disk, instant, compute_ms, seed) = rest;
        let names = ["hp97560", "network", "object-store"];
        CollectiveSpec {
            processors,
            disks,
            disk: DiskParameters::by_name(names[disk]).expect("built in"),
            order: Order::ALL[order],
            network: if instant { Network::INSTANT } else { Network::PAPER },
            file_blocks,
            block_sectors: 16,
            files,
            steady: seed % 3 == 0,
            pattern: Pattern::NAMED[pattern].clone(),
            placement: Placement::ALL[placement],
            apart: seed % 2 == 0,
            turn: (seed % 7) as f64 / 7.0,
            method: Method::ALL[method],
            overlapped,
            depth,
            compute: Nanos::from_millis(compute_ms as f64),
            seed,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_run_ends_with_everything_read_once(spec in any_spec()) {
        prop_assert_eq!(spec.check(), Ok(()));
        let mut blocks = HashSet::new();
        let mut busy_ns = vec![0; spec.disks];
        let mut twice = false;
        let report = spec.run_observed(&mut |served| {
            twice |= !blocks.insert((served.file, served.block));
            assert_eq!(served.block as usize % spec.disks, served.disk);
            busy_ns[served.disk] += u128::from((served.ended - served.begun).0);
        });
        prop_assert!(!twice);
        prop_assert_eq!(blocks.len() as u64, spec.file_blocks * u64::from(spec.files_read()));
        let slots = spec.disk.slots() as u128;
        let of_slots = Nanos((busy_ns.into_iter().max().unwrap_or(0) / slots) as u64);
        if !spec.steady && !spec.overlapped {
            // A link can be occupied while slots are free.
            prop_assert!(report.busiest >= of_slots);
            prop_assert!(report.busiest == of_slots || slots > 1);
        } else if slots == 1 {
            prop_assert!(report.busiest <= of_slots);
        }
        prop_assert!(report.busiest <= report.elapsed);
        prop_assert_eq!(report, spec.run());
        // No processor computes faster than it should, and memory has its bound.
        let compute = Nanos(spec.compute.0 * u64::from(spec.files));
        let rounding = Nanos(u64::from(spec.files));
        prop_assert!(report.elapsed + rounding >= compute);
        prop_assert!(spec.memory_blocks() <= 2 * spec.file_blocks);
    }
}

/// Two processors, two disks, eight blocks of 1 ms each, 6 ms of computing, and three files.
#[test]
fn times_that_are_worked_out_by_hand() {
    let of = |method, overlapped, depth| {
        let owners = vec![0, 0, 1, 1, 1, 1, 0, 0];
        let spec = CollectiveSpec {
            method,
            overlapped,
            files: 3,
            compute: Nanos::from_millis(6.0),
            ..ideal(2, 2, owners, depth)
        };
        spec.run().elapsed.as_millis()
    };
    // Block by block: both processors read from the same disk first, and then from the other one.
    assert_eq!(of(Method::Demand, false, 0), 3.0 * (5.0 + 6.0));
    assert_eq!(of(Method::Prefetch, false, 1), 3.0 * (5.0 + 6.0));
    // Each disk serves four blocks.
    assert_eq!(of(Method::Prefetch, false, 4), 3.0 * (4.0 + 6.0));
    assert_eq!(of(Method::DiskDirected, false, 0), 3.0 * (4.0 + 6.0));
    assert_eq!(of(Method::TwoPhase, false, 0), 3.0 * (4.0 + 6.0));
    assert_eq!(of(Method::TwoPhaseExtended, false, 0), 3.0 * (4.0 + 6.0));
    // All blocks are read while computing.
    assert_eq!(of(Method::Prefetch, true, 4), 3.0 * 6.0);
    assert_eq!(of(Method::DiskDirected, true, 0), 3.0 * 6.0);
    assert_eq!(of(Method::TwoPhase, true, 0), 3.0 * 6.0);
    // Two of each processor's four blocks are there at the barrier; the other two lie on both disks.
    assert_eq!(of(Method::Prefetch, true, 2), 3.0 * (2.0 + 6.0));
}

/// The exchange: half of the blocks change hands, at 1 ms each, after a message of 1 ms.
#[test]
fn two_phases_pay_for_the_exchange() {
    let network = Network { startup: Nanos::from_millis(1.0), bytes_per_s: 16.0 * 512.0 * 1000.0 };
    let spec = CollectiveSpec {
        method: Method::TwoPhase,
        network,
        ..ideal(2, 2, vec![0, 1, 0, 1, 0, 1, 0, 1], 0)
    };
    // Requests take 1 ms. A disk is free when its block has been received: the first disk at 1, 4, 7 and 10,
    // the second, whose blocks wait for those of the first, at 1, 5, 8 and 11. Its last block is read at 12, is
    // in transit at 13, and arrives at 14. Then two blocks are exchanged in one message, 1 + 2.
    assert_eq!(spec.run().elapsed.as_millis(), 14.0 + 3.0);
}

#[test]
fn what_cannot_be_is_refused() {
    let good = CollectiveSpec::paper(4);
    assert_eq!(good.check(), Ok(()));
    let refused = |change: &dyn Fn(&mut CollectiveSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        spec.check().expect_err("refused").to_string()
    };
    assert_eq!(refused(&|spec| spec.disks = 0), "there must be at least one disk");
    assert!(refused(&|spec| spec.file_blocks = 1 << 26).contains("more than the"));
    assert!(
        refused(&|spec| spec.pattern = Pattern::Owners(vec![8; 512].into())).contains("0 to 7")
    );
    let aged =
        |spec: &mut CollectiveSpec| (spec.placement, spec.block_sectors) = (Placement::Aged, 8);
    assert!(refused(&aged).contains("8 KiB"));
    // One of 65,536 processors has the only block. With an hour for an equal share, it computes seven years a
    // file.
    let mut long = CollectiveSpec { processors: 65_536, file_blocks: 1, files: 19, ..good };
    long.compute = Nanos::from_secs(3600.0);
    assert_eq!(long.check(), Ok(()));
    let hours = long.run().elapsed.as_secs() / 3600.0;
    assert!((hours / (19.0 * 65_536.0) - 1.0).abs() < 1e-6, "{hours}");
    long.files = 80;
    let error = long.check().expect_err("refused").to_string();
    assert!(error.contains("takes 598 years for all files, and no more than 146"), "{error}");
}

#[test]
fn who_has_few_blocks_has_few_ahead() {
    // The processors have 13, 2, 1 and 0 of 16 blocks.
    let owners: Vec<u32> = [vec![0; 13], vec![1; 2], vec![2]].concat();
    let spec = ideal(4, 2, owners, 4);
    assert_eq!([0, 1, 2, 4, 13, 99].map(|depth| spec.ahead_blocks(depth)), [0, 3, 5, 7, 16, 16]);
    assert_eq!(spec.memory_blocks(), 16 + 7);
    let overlapped = |method| CollectiveSpec { method, overlapped: true, ..spec.clone() };
    assert_eq!(overlapped(Method::DiskDirected).memory_blocks(), 32);
}
