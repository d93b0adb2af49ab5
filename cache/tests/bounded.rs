//! A large hint does not keep the cache from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::{Cache, CacheOptions, Segment};

const BLOCK: u64 = 4096;

/// A cache, and a store with a file of one block.
fn cache(budget_bytes: u64) -> (Cache, MemoryBackend) {
    let files = MemoryBackend::new();
    files.put("a", vec![1; BLOCK as usize]);
    let options = CacheOptions { budget_bytes, block_bytes: BLOCK as usize };
    (Cache::new(options).unwrap(), files)
}

#[test]
fn a_large_hint_is_looked_at_to_its_end_without_another_call() {
    let (cache, files) = cache(16 * BLOCK);
    let session = cache.attach(Arc::new(files)).session();
    let (file, stream) = (session.open("a").unwrap(), session.stream());
    let mut segments = vec![Segment { offset_bytes: 0, length_bytes: 0 }; 100_000];
    segments.push(Segment { offset_bytes: 0, length_bytes: 1 });
    stream.hint_segments(&file, &segments);
    assert_eq!(cache.stats().requests_ahead, 1);
}

/// Prints the longest wait of another thread for the cache while a large hint is looked at:
/// `cargo test --release -p foretell-cache --test bounded -- --ignored --nocapture`.
#[test]
#[ignore = "prints times"]
#[allow(clippy::print_stdout)]
fn longest_wait_of_another_thread() {
    for frames in [10_000u64, 1_000_000] {
        let (cache, files) = cache(frames * BLOCK);
        let session = cache.attach(Arc::new(files)).session();
        let file = session.open("a").unwrap();
        // Empty ones: all are looked at before there is nothing to fetch.
        let segments = vec![Segment { offset_bytes: 0, length_bytes: 0 }; 10_000_000];
        let is_over = AtomicBool::new(false);
        let (hint, wait) = std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    cache.stats();
                    longest = longest.max(began.elapsed());
                    std::thread::sleep(Duration::from_micros(200));
                }
                longest
            });
            let stream = session.stream();
            let began = Instant::now();
            stream.hint_segments(&file, &segments);
            let hint = began.elapsed();
            is_over.store(true, Ordering::Relaxed);
            let wait = others.join().unwrap();
            drop(stream);
            (hint, wait)
        });
        println!("{frames} blocks: hint {hint:.1?}, longest wait of another thread {wait:.1?}");
    }
}
