//! The quality of the recommended depth, on machines that were not used to design the recommendation.
//!
//! A depth is right if it reaches at least 95 % of the best throughput of a sweep, and is at most twice the
//! least such depth, since more would waste memory. Whole portions ahead are judged too, for comparison.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use foretell_policy::Nanos;
use foretell_sim::collective::recommend::recommended_depth;
use foretell_sim::collective::{CollectiveSpec, Pattern, Placement};
use foretell_sim::device::DiskParameters;

/// Share of the best throughput that counts as near.
const RIGHT: f64 = 0.95;

/// P, D, MB of a file, and number of files.
type Machine = (usize, usize, u64, u32);

/// All machines with this device: each pattern, each layout if the device has positions, and computing that is
/// a multiple of the time of a disk-directed read.
fn machines(device: &str, seed: u64, sizes: &[Machine], factors: &[f64]) -> Vec<CollectiveSpec> {
    let disk = DiskParameters::by_name(device).expect("built in");
    let has_places = matches!(disk, DiskParameters::Mechanical(_));
    let placements = if has_places { &Placement::ALL[..] } else { &Placement::ALL[..1] };
    let mut all = Vec::new();
    for &(processors, disks, mb, files) in sizes {
        for pattern in Pattern::NAMED {
            for &placement in placements {
                let (disk, pattern) = (disk.clone(), pattern.clone());
                let mut spec = CollectiveSpec {
                    processors,
                    disks,
                    disk,
                    pattern,
                    placement,
                    files,
                    steady: true,
                    seed,
                    apart: disks % 2 == 0,
                    ..CollectiveSpec::paper(mb)
                };
                let reading = spec.run().reading.as_secs() / f64::from(files);
                for factor in factors {
                    spec.compute = Nanos::from_secs(factor * reading);
                    all.push(spec.clone());
                }
            }
        }
    }
    all
}

/// The verdict on one machine.
#[derive(Clone, Copy, Debug)]
struct Judged {
    /// Near the best, and at most twice the least depth that is.
    is_right: bool,
    is_near: bool,
    /// Whether the largest portion would be right.
    all_is_right: bool,
    recommended: u64,
    /// The least depth of the sweep that is near the best.
    least: u64,
}

/// Sweeps depths in steps of 25 %, up to the largest portion.
fn judge(spec: &CollectiveSpec) -> Judged {
    let at = |depth: u64| spec.run_prefetching(depth).throughput_mb_s();
    let portion = spec.largest_portion_blocks();
    let next = |depth: &u64| (*depth < portion).then_some((depth + 1 + depth / 4).min(portion));
    let mut depths: Vec<u64> = std::iter::successors(Some(1), next).collect();
    let recommended = recommended_depth(spec);
    depths.push(recommended);
    depths.sort_unstable();
    let sweep: Vec<(u64, f64)> = depths.into_iter().map(|depth| (depth, at(depth))).collect();
    let best = sweep.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
    let is_right = |&&(_, throughput): &&(u64, f64)| throughput >= RIGHT * best;
    let least = sweep.iter().find(is_right).expect("the best is").0;
    let is_near = sweep.iter().filter(is_right).any(|(depth, _)| *depth == recommended);
    Judged {
        is_right: is_near && recommended <= 2 * least,
        is_near,
        all_is_right: sweep.last().as_ref().is_some_and(is_right) && portion <= 2 * least,
        recommended,
        least,
    }
}

/// Judges on all processors; the results are in order.
fn judge_all(specs: &[CollectiveSpec]) -> Vec<Judged> {
    let (next, judged) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(spec) = specs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = judge(spec);
            if !result.is_right {
                let (p, d, mb) = (spec.processors, spec.disks, spec.file_blocks / 128);
                let (pattern, placement, ms) =
                    (&spec.pattern, spec.placement, spec.compute.as_millis());
                eprintln!("not right: {p} {d} {mb} MB {pattern} {placement} {ms:.0} ms {result:?}");
            }
            judged.lock().expect("nobody fails").push(result);
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| {
            scope.spawn(work);
        });
    });
    judged.into_inner().expect("nobody fails")
}

/// A line of counts.
fn line(name: &str, judged: &[Judged]) -> String {
    let all = judged.len();
    let right = judged.iter().filter(|one| one.is_right).count();
    let all_is_right = judged.iter().filter(|one| one.all_is_right).count();
    let near = judged.iter().filter(|one| one.is_near).count();
    let mut times: Vec<f64> =
        judged.iter().map(|one| one.recommended as f64 / one.least as f64).collect();
    times.sort_by(f64::total_cmp);
    let (median, ninth) = (times[all / 2], times[9 * all / 10]);
    format!(
        "{name:<16} {all:>5} machines, right {right:>4} ({:.1} %), near the best {near:>4}, all of a portion right {all_is_right:>4}, \
         recommended / least: median {median:.2}, 9 of 10 below {ninth:.2}",
        100.0 * right as f64 / all as f64,
    )
}

fn is_good(judged: &[Judged]) -> bool {
    20 * judged.iter().filter(|one| one.is_right).count() >= 19 * judged.len()
}

/// Small files, so that the test is short.
#[test]
fn recommendations_are_right_on_small_machines() {
    let mut judged = Vec::new();
    for device in ["hp97560", "network"] {
        judged.extend(judge_all(&machines(device, 1, &[(6, 6, 4, 8), (9, 4, 4, 8)], &[0.0, 0.8])));
    }
    assert!(is_good(&judged), "{}", line("all", &judged));
}

/// P and D are neither equal nor multiples, with one exception.
const SIZES: [Machine; 3] = [(7, 7, 12, 4), (10, 3, 20, 4), (3, 8, 24, 4)];
const FACTORS: [f64; 4] = [0.0, 0.5, 1.2, 2.5];

/// Prints each device's counts on standard error, and returns all verdicts.
fn judge_devices(devices: &[&str]) -> Vec<Judged> {
    let mut all = Vec::new();
    for device in devices {
        let judged = judge_all(&machines(device, 7, &SIZES, &FACTORS));
        eprintln!("{}", line(device, &judged));
        all.extend(judged);
    }
    eprintln!("{}", line("all", &all));
    all
}

/// The numbers of `docs/internals/collective.md`.
#[test]
#[ignore = "takes minutes: cargo test --release -p foretell-sim --test collective_depth -- --ignored --nocapture"]
fn recommendations_are_right_on_disks() {
    assert!(is_good(&judge_devices(&["hp97560", "hpc2247", "ibm0661"])));
}

/// Recommendations are not as good here; the document says how good.
#[test]
#[ignore = "takes minutes: cargo test --release -p foretell-sim --test collective_depth -- --ignored --nocapture"]
fn recommendations_on_devices_without_places_are_counted() {
    let judged = judge_devices(&["ssd", "nvme", "network", "object-store"]);
    assert!(2 * judged.iter().filter(|one| one.is_right).count() > judged.len());
}
