//! Bytes that the policy takes: for each block in memory, and for each segment that was disclosed and whose
//! turn has not come. Counted by the allocator, and compared with what the policy says of itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foretell_bench::driver::{BLOCK_BYTES, DEVICE};
use foretell_bench::random::Random;
use foretell_bench::{Bench, Driver, Workload};
use foretell_policy::{Extent, FileId, Hint, ReaderId, Rules, Segment, StreamId, Target};

const CAPACITY_BLOCKS: u64 = 1_000_000;
/// More than a stream enters into its index of next uses.
const INDEXED: u64 = 1 << 19;

/// Bytes allocated and not freed.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
struct Counting;

// SAFETY: every call is handed on to the system's allocator as it came; the counter is beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live_bytes() -> usize {
    LIVE_BYTES.load(Ordering::Relaxed)
}

fn blocks(workload: Workload) {
    let policy = Bench::new(workload, CAPACITY_BLOCKS).into_policy();
    let (held, said) = (policy.held_blocks() as f64, policy.memory_bytes() as f64);
    let with = live_bytes();
    drop(policy);
    let counted = (with - live_bytes()) as f64;
    println!("| {} | {held} | {:.1} | {:.1} |", workload.name(), counted / held, said / held);
}

fn disclose(driver: &mut Driver, stream: StreamId, count: u64, longest: u64) {
    let mut random = Random::new(2);
    let size_blocks = 4 * count;
    let segments: Arc<[Segment]> = (0..count)
        .map(|_| Segment {
            offset_bytes: random.below(size_blocks) * BLOCK_BYTES,
            length_bytes: (1 + random.below(longest)) * BLOCK_BYTES,
        })
        .collect();
    let target = Target::File { file: FileId(1), size_bytes: size_blocks * BLOCK_BYTES };
    let extent = Extent::Segments(segments);
    driver.hint(stream, Hint { extent, ..Hint::whole_file(target, DEVICE) });
}

fn segments(count: u64, longest: u64) {
    let mut driver = Driver::new(Rules::FORETELL, CAPACITY_BLOCKS);
    let stream = driver.open(ReaderId(1));
    disclose(&mut driver, stream, INDEXED, 1);
    let before = live_bytes();
    disclose(&mut driver, stream, count, longest);
    let bytes = (live_bytes() - before) as f64;
    println!("| {count} of 1 to {longest} blocks | {:.2} |", bytes / count as f64);
}

fn main() {
    println!("| 1,000 streams or none | blocks in memory | bytes a block | by its own account |");
    println!("|---|---|---|---|");
    for workload in [
        Workload::LoopsThatFit,
        Workload::Scans,
        Workload::ScansAndZipf,
        Workload::Shuffled,
        Workload::LruZipf,
        Workload::LruMisses,
    ] {
        blocks(workload);
    }
    println!("\n| segments of one hint | bytes a segment |");
    println!("|---|---|");
    for count in [1_000_000, 10_000_000] {
        segments(count, 1);
        segments(count, 2);
    }
}
