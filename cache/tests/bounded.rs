//! A large hint does not keep the cache from other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::{Cache, CacheOptions, Segment};

const BLOCK: u64 = 4096;

/// A cache, and a file of so many blocks.
fn cache(budget_bytes: u64, blocks: usize) -> (Cache, MemoryBackend) {
    let files = MemoryBackend::new();
    files.put("a", vec![1; blocks * BLOCK as usize]);
    let options = CacheOptions { budget_bytes, block_bytes: BLOCK as usize };
    (Cache::new(options).unwrap(), files)
}

#[test]
fn what_a_large_hint_leaves_to_be_looked_at_is_looked_at_without_an_event() {
    let (cache, files) = cache(16 * BLOCK, 1);
    let session = cache.attach(Arc::new(files)).session();
    let (file, stream) = (session.open("a").unwrap(), session.stream());
    let mut segments = vec![Segment { offset_bytes: 0, length_bytes: 0 }; 100_000];
    segments.push(Segment { offset_bytes: 0, length_bytes: 1 });
    stream.hint_segments(&file, &segments);
    assert_eq!(cache.stats().requests_ahead, 1);
}

/// Prints how long another thread waits at most while a large hint is looked at:
/// `cargo test --release -p foretell-cache --test bounded -- --ignored --nocapture`.
#[test]
#[ignore = "prints times"]
fn longest_wait_of_another_thread() {
    for frames in [10_000u64, 1_000_000] {
        let (cache, files) = cache(frames * BLOCK, 1_500_000);
        let session = cache.attach(Arc::new(files)).session();
        let file = session.open("a").unwrap();
        // All of it is read already but for the end, so there is nothing to be fetched for long.
        let segment = |index: u64| Segment {
            offset_bytes: index * 387_431 % 1_500_000 * BLOCK,
            length_bytes: 0,
        };
        let segments: Vec<Segment> = (0..10_000_000).map(segment).collect();
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
