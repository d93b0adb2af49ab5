//! The cache without a clock, compared with reference counts, golden counts, and the off-line optimum.

mod common;

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use common::{blocks, shared_trace};
use foretell_policy::{Block, FileId};
use foretell_sim::cache::{CacheOptions, CachePolicy, CacheResult, Hints, run};
use foretell_sim::offline::NEED_A_CLOCK;
use foretell_sim::trace::{Format, Trace};
use proptest::prelude::*;

/// Misses of LRU and MIN with single blocks, from a cold start, as published with the recordings.
const REFERENCE: [(&str, u64, u64, u64); 5] = [
    ("lirs-sprite", 100, 105_079, 65_929),
    ("lirs-sprite", 1_000, 12_544, 9_060),
    ("lirs-cpp", 100, 2_740, 1_582),
    ("lirs-gli", 1_000, 5_341, 2_819),
    ("lirs-ps", 1_000, 5_376, 3_378),
];

fn options(policy: &str, hints: Hints, capacity_blocks: u64) -> CacheOptions {
    let policy: CachePolicy = policy.parse().expect("a policy");
    CacheOptions { policy, capacity_blocks, hints, depth_blocks: None }
}

/// Runs `reads`, and checks the properties of every result.
fn result(reads: &[Block], options: &CacheOptions) -> CacheResult {
    let mut seen = 0;
    let result = run(&reads.iter().copied().collect(), options, &mut |reads| seen += reads);
    assert_eq!((seen, result.reads), (reads.len() as u64, reads.len() as u64));
    assert_eq!(result.hits + result.misses, result.reads);
    if options.depth_blocks == Some(0) || options.hints == Hints::None {
        assert_eq!(result.prefetches, 0);
    }
    result
}

fn misses_on_demand(reads: &[Block], policy: &str, hints: Hints, capacity: u64) -> u64 {
    let options = CacheOptions { depth_blocks: Some(0), ..options(policy, hints, capacity) };
    result(reads, &options).misses
}

fn load(path: &Path) -> Vec<Block> {
    let trace = Trace::open(path, Format::BLOCKS, 8192).expect("it opens");
    trace.into_reads().expect("it is well formed").blocks().collect()
}

/// The rows of the table whose recordings are available, with their reads.
fn references() -> impl Iterator<Item = (&'static str, Vec<Block>, u64, u64, u64)> {
    let mut loaded: HashMap<&str, Option<Vec<Block>>> = HashMap::new();
    REFERENCE.into_iter().filter_map(move |(name, capacity, lru, belady)| {
        let trace = || shared_trace(&format!("{name}.trace.gz")).map(|path| load(&path));
        let reads = loaded.entry(name).or_insert_with(trace).clone()?;
        Some((name, reads, capacity, lru, belady))
    })
}

#[test]
fn reference_counts() {
    for (name, reads, capacity, lru, belady) in references() {
        for (policy, misses) in [("lru", lru), ("belady", belady)] {
            let found = misses_on_demand(&reads, policy, Hints::None, capacity);
            assert_eq!(found, misses, "{policy} on {name} with {capacity}");
        }
    }
}

#[test]

fn with_all_disclosed_and_no_prefetching_tip2_is_min() {
    for (name, reads, capacity, _, belady) in references() {
        let found = misses_on_demand(&reads, "tip2", Hints::All, capacity);
        assert_eq!(found, belady, "{name} with {capacity}");
    }
}

/// A recording of one or more files with runs of adjacent blocks.
fn recordings() -> impl Strategy<Value = Vec<Block>> {
    let visit = (0u64..3, 0u64..20, 1u64..6);
    prop::collection::vec(visit, 0..60).prop_map(|visits| {
        let blocks = |(file, first, blocks)| {
            (first..first + blocks).map(move |index| Block { file: FileId(file), index })
        };
        visits.into_iter().flat_map(blocks).collect()
    })
}

proptest! {
    #[test]

    fn tip2_without_prefetching_is_min(reads in recordings(), capacity in 1u64..40) {
        let tip2 = misses_on_demand(&reads, "tip2", Hints::All, capacity);
        prop_assert_eq!(tip2, misses_on_demand(&reads, "belady", Hints::None, capacity));
    }

    /// The driver's ledger asserts the rest.
    #[test]
    fn no_policy_fetches_less_than_min(
        reads in recordings(), capacity in 1u64..40, depth in prop::option::of(0u64..10),
        all: bool, policy in prop::sample::select(CachePolicy::all().collect::<Vec<_>>()),
    ) {
        let hints = if all { Hints::All } else { Hints::None };
        let options = CacheOptions { policy, capacity_blocks: capacity, hints, depth_blocks: depth };
        let result = result(&reads, &options);
        let min = misses_on_demand(&reads, "belady", Hints::None, capacity);
        prop_assert!(result.misses + result.prefetches >= min, "{result:?}");
    }

    #[test]
    fn lru_is_a_stack(reads in prop::collection::vec(0u64..30, 0..300), capacity in 1u64..40) {
        let reads = blocks(reads);
        let expected = reads.iter().enumerate().filter(|&(position, block)| {
            let since = reads[..position].iter().rev().position(|earlier| earlier == block);
            let distinct = |since| {
                reads[position - since..position].iter().collect::<std::collections::HashSet<_>>()
            };
            since.is_none_or(|since| distinct(since).len() as u64 >= capacity)
        });
        let expected = expected.count() as u64;
        prop_assert_eq!(misses_on_demand(&reads, "lru", Hints::None, capacity), expected);
    }
}

#[test]
fn hints_are_nothing_to_lru() {
    let reads = blocks((0..500).map(|i| i * i % 61));
    let without = misses_on_demand(&reads, "lru", Hints::None, 20);
    assert_eq!(result(&reads, &options("lru", Hints::All, 20)).misses, without);
}

#[test]

fn all_disclosed_reads_are_prefetched_where_a_fetch_takes_no_time() {
    let reads = blocks((0..300).map(|i| i * 7 % 100));
    let found = result(&reads, &options("tip2", Hints::All, 10));
    assert_eq!(found.misses, 0, "{found:?}");
    let min = misses_on_demand(&reads, "belady", Hints::None, 10);
    assert!(found.prefetches >= min, "{found:?}");
}

#[test]
fn extreme_recordings() {
    for policy in CachePolicy::all() {
        for hints in Hints::ALL {
            let options = CacheOptions { policy, capacity_blocks: 1, hints, depth_blocks: None };
            assert_eq!(result(&[], &options).hit_ratio(), None);
            let ends = blocks([0, i64::MAX as u64, 0]);
            assert!(result(&ends, &options).misses <= 3);
            let roomy = CacheOptions { capacity_blocks: u64::MAX, ..options };
            assert!(result(&ends, &roomy).misses <= 2);
        }
    }
}

#[test]
fn a_result_as_json() {
    let result = CacheResult {
        policy: "lru",
        hints: Hints::All,
        capacity: 10,
        reads: 4,
        hits: 1,
        misses: 3,
        seconds: 0.5,
        prefetches: 0,
    };
    let json = serde_json::to_string(&result).expect("it is plain");
    let expected = r#"{"policy":"lru","hints":"all","capacity":10,"reads":4,"hits":1,"misses":3,"seconds":0.5,"prefetches":0}"#;
    assert_eq!(json, expected);
}

#[test]
fn policies_are_known_by_name() {
    for policy in CachePolicy::all() {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "mru".parse::<CachePolicy>().expect_err("unknown");
    assert!(error.contains("known are lru, tip1, tip2,") && error.ends_with(", belady"), "{error}");
    for name in NEED_A_CLOCK {
        let error = name.parse::<CachePolicy>().expect_err("there is no clock");
        assert!(error.starts_with(&format!("{name} needs a clock")), "{error}");
    }
}

/// A row of `golden/counts.tsv` with its counts computed anew.
fn count_anew(row: &str, folder: &Path) -> String {
    let fields: Vec<&str> = row.split('\t').collect();
    let [trace, policy, hints, depth, capacity, ..] = fields[..] else {
        panic!("not a row of counts: {row:?}");
    };
    let reads = load(&folder.join(format!("{trace}.trace")));
    let depth_blocks = (depth != "any").then(|| depth.parse().expect("a number of blocks"));
    let hints = hints.parse().expect("none or all");
    let options = options(policy, hints, capacity.parse().expect("a number of blocks"));
    let result = result(&reads, &CacheOptions { depth_blocks, ..options });
    [&fields[..5], &[&result.misses.to_string(), &result.prefetches.to_string()]]
        .concat()
        .join("\t")
}

#[test]
fn golden_counts() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let table = folder.join("counts.tsv");
    let given = fs::read_to_string(&table).expect("it comes with the tests");
    let mut counted = String::new();
    for line in given.lines() {
        let line = if line.starts_with('#') { line.to_owned() } else { count_anew(line, &folder) };
        writeln!(counted, "{line}").expect("a string takes all");
    }
    if std::env::var_os("FORETELL_UPDATE_GOLDEN").is_some() {
        fs::write(&table, counted).expect("it can be written");
        return;
    }
    for (given, counted) in given.lines().zip(counted.lines()) {
        assert_eq!(given, counted);
    }
}
