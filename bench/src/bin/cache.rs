//! Prints the cost of hits in the managed cache, beside the cost of copying the same bytes; and the memory of a
//! process that reads much more than its budget, from many files and threads.
//!
//! * **A. Hits.** Blocks in random order, all in memory. *Copy* is the same copy from an array of the same
//!   size, in pages of the same size (huge ones, where the system gives them on request). Rounds of both
//!   alternate. The results are medians; the ratio is that of neighbouring rounds. Times are processor times,
//!   so other work on the machine only matters through its use of the caches.
//! * **B. Memory.** A back end that takes no time and generates the bytes; the result is the peak of resident
//!   memory (`VmHWM`).

use std::process::ExitCode;
use std::sync::Arc;

use foretell_bench::Machine;
use foretell_bench::random::Random;
use foretell_cache::backend::{Backend, BackendError, Object, Opened, Request};
use foretell_cache::{Cache, CacheOptions, File};
use foretell_heap::Heap;
use rustix::time::{ClockId, clock_gettime};

/// The product's allocator.
#[global_allocator]
static HEAP: Heap = Heap;

const USAGE: &str = "\
Usage: cache-speed [--memory [GIB]]

Prints nanoseconds a read of the managed cache, for reads that hit; with --memory, the peak of memory of a process
that reads GIB (20) at random from 200 files, by 32 threads.
";

const MIB: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 256 * MIB;
const ROUNDS: usize = 7;
/// A: bytes that one round copies.
const ROUND_BYTES: usize = 1 << 29;
/// B: files, bytes of each, and reading threads.
const FILES: usize = 200;
const FILE_BYTES: u64 = 64 * MIB;
const THREADS: u64 = 32;

/// A back end with files of one repeated byte. The byte identifies the file.
struct Made;

struct MadeFile(u8);

impl Backend for Made {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        let number: u8 = path.parse().map_err(|_| BackendError::NotFound)?;
        let version = Arc::from([number].as_slice());
        Ok(Opened {
            version,
            is_exact: true,
            size_bytes: FILE_BYTES,
            object: Arc::new(MadeFile(number)),
        })
    }

    fn depth(&self) -> usize {
        16
    }
}

impl Object for MadeFile {
    fn start(self: Arc<Self>, mut request: Request) {
        let some = [self.0; 1 << 16];
        while request.filled() < request.length() {
            request.fill(&some);
        }
        request.complete(Ok(()));
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let gib = match words.as_slice() {
        ["-h" | "--help"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [] => None,
        ["--memory"] => Some(20),
        ["--memory", gib] if gib.parse().is_ok_and(|gib: u64| gib > 0) => gib.parse().ok(),
        _ => {
            eprintln!("cache-speed: {} is not expected here: try --help", words.join(" "));
            return ExitCode::from(2);
        }
    };
    println!("{}\n", Machine::measure());
    match gib {
        None => print_hits(),
        Some(gib) => print_memory(gib),
    }
    ExitCode::SUCCESS
}

fn cache() -> Cache {
    let options = CacheOptions { budget_bytes: BUDGET_BYTES, ..CacheOptions::default() };
    Cache::new(options).expect("there is memory")
}

fn open(cache: &Cache, files: usize) -> Vec<Arc<File>> {
    let session = cache.attach(Arc::new(Made)).session();
    (0..files).map(|file| session.open(&file.to_string()).expect("it is made")).collect()
}

/// Processor time that this thread has used.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_hits() {
    let cache = cache();
    let files = open(&cache, 3); // 192 MiB, which fits the budget.
    let mut buffer = vec![0u8; 1 << 20];
    for file in &files {
        for at in (0..FILE_BYTES).step_by(buffer.len()) {
            file.read_at(&mut buffer, at).expect("it is made");
        }
    }
    let plain = vec![1u8; 3 * FILE_BYTES as usize];
    println!("| bytes a read | cache, ns | copy, ns | ratio |\n|---|---|---|---|");
    for bytes in [512usize, 4 << 10, 16 << 10, 128 << 10, 1 << 20] {
        let reads = (ROUND_BYTES / bytes).min(1 << 20);
        let mut random = Random::new(7);
        let places: Vec<(usize, u64)> = (0..reads)
            .map(|_| {
                let file = random.below(3) as usize;
                let at = random.below((FILE_BYTES - bytes as u64) / 4096) * 4096;
                (file, at)
            })
            .collect();
        let (mut cached, mut copied) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = processor_ns();
            for &(file, at) in &places {
                files[file].read_at(&mut buffer[..bytes], at).expect("it is made");
            }
            cached.push((processor_ns() - begun) / reads as f64);
            let begun = processor_ns();
            for &(file, at) in &places {
                let from = file * FILE_BYTES as usize + at as usize;
                buffer[..bytes].copy_from_slice(&plain[from..from + bytes]);
                std::hint::black_box(&mut buffer);
            }
            copied.push((processor_ns() - begun) / reads as f64);
        }
        let ratio = median(cached.iter().zip(&copied).map(|(one, other)| one / other).collect());
        let (cached, copied) = (median(cached), median(copied));
        println!("| {bytes} | {cached:.0} | {copied:.0} | {ratio:.2} |");
    }
    let stats = cache.stats();
    assert_eq!(stats.fetched_bytes, 3 * FILE_BYTES, "all were hits: {stats:?}");
}

fn print_memory(gib: u64) {
    let cache = cache();
    let files = open(&cache, FILES);
    let each = gib * 1024 * MIB / THREADS;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let files = &files;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut buffer = vec![0u8; 256 << 10];
                let mut read = 0;
                while read < each {
                    let file = random.below(FILES as u64) as usize;
                    let length = 1 + random.below(buffer.len() as u64) as usize;
                    let at = random.below(FILE_BYTES - length as u64);
                    files[file].read_at(&mut buffer[..length], at).expect("it is made");
                    assert!(buffer[0] == file as u8 && buffer[length - 1] == file as u8);
                    read += length as u64;
                }
            });
        }
    });
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0);
    println!(
        "| read, GiB | files | threads | budget, MiB | most memory, MiB | beyond the budget, MiB |"
    );
    println!("|---|---|---|---|---|---|");
    let beyond = kib as f64 / 1024.0 - (BUDGET_BYTES / MIB) as f64;
    println!(
        "| {gib} | {FILES} | {THREADS} | {} | {:.1} | {beyond:.1} |",
        BUDGET_BYTES / MIB,
        kib as f64 / 1024.0
    );
    let stats = cache.stats();
    println!(
        "\n{} of {} blocks went past the cache",
        stats.passed_by_blocks,
        stats.demanded_blocks + stats.hit_blocks
    );
}
