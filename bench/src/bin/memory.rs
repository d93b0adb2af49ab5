//! Prints the bytes that the policy takes for each block in memory, and for each disclosed segment.
//!
//! Measured are the live bytes before a policy is dropped, less those after, as requested and without the
//! overhead of the allocator. Beside them is the result of [`Policy::memory_bytes`], which programs see.
//!
//! * **A. Blocks.** All that a policy holds after five reads for each block in memory, including hints and
//!   their index, divided by the blocks in memory. It is measured again after all streams are closed, when only
//!   the memory of blocks is left.
//! * **B. Segments.** What two million segments, or a million hints, take in addition. They are disclosed after as many
//!   segments as the policy indexes at a time (or hints as it places at a time). This includes the segments that a hint itself
//!   contains.

use std::alloc::{GlobalAlloc, Layout};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use foretell_bench::driver::{BLOCK_BYTES, DEVICE};
use foretell_bench::random::Random;
use foretell_bench::{Bench, Driver, Machine, Workload};
use foretell_heap::Heap;
use foretell_policy::{FileId, Hint, NameId, Nanos, Policy, ReaderId, Rules, Segment, Target};

const USAGE: &str = "\
Usage: policy-memory [BLOCKS [SEGMENTS]]

Prints the bytes that the policy takes for each of BLOCKS (1,000,000) blocks in memory, and for each of
SEGMENTS (2,000,000) segments that it does not look at yet.
";

/// A: reads after the warm-up, for each block in memory. The logs of queues reach their full length by then.
const READS_OF_EACH: u64 = 5;
/// Target values, in bytes.
const BLOCK_TARGET_BYTES: u32 = 96;
const SEGMENT_TARGET_BYTES: u32 = 24;
/// B: segments that the policy indexes at a time, at most.
const INDEXED_SEGMENTS: u64 = 1 << 18;
/// B: memory so small that the policy places no more.
const CAPACITY_BLOCKS: u64 = 10_000;
/// B: blocks of the file in which scattered segments lie.
const FILE_BLOCKS: u64 = 1 << 32;

/// Live bytes, and their peak since [`reset_peak`].
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The product's allocator, with counters.
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn came(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn went(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every call goes to `Heap`, which keeps the contract, with unchanged arguments; counting neither
// allocates nor panics.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller meets the contract of `alloc`, and `Heap` demands no more.
        let start = unsafe { Heap.alloc(layout) };
        if !start.is_null() {
            came(layout.size());
        }
        start
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let start = unsafe { Heap.alloc_zeroed(layout) };
        if !start.is_null() {
            came(layout.size());
        }
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: `start` came from this allocator with this layout, and so from `Heap`.
        unsafe { Heap.dealloc(start, layout) };
        went(layout.size());
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `start` came from this allocator with this layout, and so from `Heap`; the caller guarantees
        // that `size` is valid.
        let moved = unsafe { Heap.realloc(start, layout, size) };
        // Only the difference counts: large allocations grow by remapping, not by copying.
        match size.checked_sub(layout.size()) {
            _ if moved.is_null() => {}
            Some(more) => came(more),
            None => went(layout.size() - size),
        }
        moved
    }
}

fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

fn reset_peak() {
    PEAK.store(live(), Ordering::Relaxed);
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "-h" || word == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let number = |index: usize, usual: u64| match words.get(index) {
        None => Ok(usual),
        Some(word) => word.parse().ok().filter(|&number| number > 0).ok_or(word),
    };
    let (blocks, segments) = match (number(0, 1_000_000), number(1, 2_000_000), words.get(2)) {
        (Ok(blocks), Ok(segments), None) => (blocks, segments),
        (Err(word), ..) | (_, Err(word), _) | (.., Some(word)) => {
            eprintln!("policy-memory: {word} is not expected here: try --help");
            return ExitCode::from(2);
        }
    };
    println!("{}\n", Machine::measure());
    print_blocks(blocks);
    println!();
    print_segments(segments);
    ExitCode::SUCCESS
}

/// Bytes that a policy takes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Bytes that are freed with the policy.
    measured: usize,
    /// Of these, bytes that are left after all streams are closed.
    closed: usize,
    /// Bytes that the policy reports.
    told: usize,
}

impl Taken {
    fn by(mut policy: Policy) -> Self {
        let (told, open) = (policy.memory_bytes(), live());
        policy.close_all(Nanos(u64::MAX));
        let closed = live();
        drop(policy);
        let gone = live();
        Taken { measured: open - gone, closed: closed - gone, told }
    }
}

/// A.
fn print_blocks(blocks: u64) {
    println!(
        "| bytes for each block in memory | blocks | measured | at its peak | as told | streams closed | target |"
    );
    println!("|---|---|---|---|---|---|---|");
    for workload in Workload::ALL {
        reset_peak();
        let mut bench = Bench::new(workload, blocks);
        for _ in 0..blocks * READS_OF_EACH {
            bench.step();
        }
        // Memory outside the policy was there all the time, except for what was needed to create the policy.
        let above = PEAK.load(Ordering::Relaxed) - live();
        let policy = bench.into_policy();
        let held = policy.held_blocks();
        let taken = Taken::by(policy);
        let each = |bytes: usize| bytes as f64 / held as f64;
        println!(
            "| {} | {held} | {:.1} | {:.1} | {:.1} | {:.1} | ≤ {BLOCK_TARGET_BYTES} |",
            workload.name(),
            each(taken.measured),
            each(taken.measured + above),
            each(taken.told),
            each(taken.closed),
        );
    }
}

/// B.
fn print_segments(segments: u64) {
    println!("| bytes for each disclosed | how many | measured | as told | target |");
    println!("|---|---|---|---|---|");
    type Disclose = fn(&mut Driver, u64);
    let half = segments.div_ceil(2);
    let rows: [(&str, Disclose, u64, u64); 4] = [
        ("single block of one hint, not indexed", single_blocks, INDEXED_SEGMENTS, segments),
        ("range of 1 to 8 blocks of one hint, not indexed", ranges, INDEXED_SEGMENTS, segments),
        ("whole file, not placed", whole_files, INDEXED_SEGMENTS, half),
        ("name, not looked up", names, 1, half),
    ];
    for (name, disclose, first, more) in rows {
        let (before, after) = (disclosed(disclose, first), disclosed(disclose, first + more));
        let each = |before: usize, after: usize| (after as f64 - before as f64) / more as f64;
        println!(
            "| {name} | {more} | {:.1} | {:.1} | ≤ {SEGMENT_TARGET_BYTES} |",
            each(before.measured, after.measured),
            each(before.told, after.told),
        );
    }
}

/// The memory of a policy with `count` disclosures.
fn disclosed(disclose: fn(&mut Driver, u64), count: u64) -> Taken {
    let mut driver = Driver::new(Rules::FORETELL, CAPACITY_BLOCKS);
    disclose(&mut driver, count);
    Taken::by(driver.policy)
}

fn single_blocks(driver: &mut Driver, count: u64) {
    scattered(driver, count, |_| 1);
}

fn ranges(driver: &mut Driver, count: u64) {
    scattered(driver, count, |random| 1 + random.below(8));
}

/// One hint of `count` segments, at random places of a large file.
fn scattered(driver: &mut Driver, count: u64, mut blocks: impl FnMut(&mut Random) -> u64) {
    let mut random = Random::new(13);
    let segments: Vec<Segment> = (0..count)
        .map(|_| Segment {
            offset_bytes: random.below(FILE_BLOCKS - 8) * BLOCK_BYTES,
            length_bytes: blocks(&mut random) * BLOCK_BYTES,
        })
        .collect();
    let size_bytes = FILE_BLOCKS * BLOCK_BYTES;
    let stream = driver.open(ReaderId(0));
    let target = Target::File { file: FileId(1), size_bytes };
    driver.hint(stream, Hint::segments(target, DEVICE, &segments));
}

/// `count` hints, each of another file of one block.
fn whole_files(driver: &mut Driver, count: u64) {
    let stream = driver.open(ReaderId(0));
    for file in 0..count {
        let target = Target::File { file: FileId(file), size_bytes: BLOCK_BYTES };
        driver.hint(stream, Hint::whole_file(target, DEVICE));
    }
}

/// `count` hints, each by another name.
fn names(driver: &mut Driver, count: u64) {
    let stream = driver.open(ReaderId(0));
    for name in 0..count {
        driver.hint(stream, Hint::whole_file(Target::Name(NameId(name)), DEVICE));
    }
}
