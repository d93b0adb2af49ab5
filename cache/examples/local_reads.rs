//! Reads of a local file by threads and by io_uring, through the cache, in pairs.
//!
//!     cargo run --release -p foretell-cache --all-features --example local_reads -- [FOLDER] [MIB] [PAIRS]
//!
//! The example creates a file of MIB MiB (default 4,096) below FOLDER (default: the folder of temporary files). It reads the
//! file at random in pieces of 8 and of 128 KiB, with 1, 16 and 64 requests in flight, through a cache of 64 MiB. The reads
//! are disclosed beforehand. Before each measurement the file is dropped from the page cache, except for rows called *warm*.
//!
//! It prints medians of PAIRS (default 5) pairs: reads/s, and this process's CPU time for each read. Threads and io_uring take
//! turns at being first in a pair. The last columns are the median, least and greatest ratio of times, io_uring to threads.

#![allow(clippy::print_stdout)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::{Cache, CacheOptions, Segment};
use rustix::fs::Advice;
use rustix::time::{ClockId, clock_gettime};

const BUDGET_BYTES: u64 = 64 << 20;
const SAMPLE: usize = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let below = words.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mib: u64 = words.next().map_or(Ok(4096), |word| word.parse())?;
    let pairs: usize = words.next().map_or(Ok(5), |word| word.parse())?;
    let folder = tempfile::tempdir_in(below)?;
    make(&folder.path().join("data"), mib)?;
    println!(
        "| reads | depth | threads, reads/s | io_uring | ratio of times | threads, µs of CPU | io_uring |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, is_warm) in [("", false), (", warm", true)] {
        for kib in [8, 128] {
            for depth in [1, 16, 64] {
                let mut runs = [Vec::new(), Vec::new()];
                for turn in 0..pairs {
                    let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
                    for which in order {
                        let reads = Reads { kib, depth, is_warm, seed: turn as u64 };
                        runs[which].push(reads.run(folder.path(), mib, which == 1)?);
                    }
                }
                print_row(&format!("{kib} KiB{name}"), depth, &runs);
            }
        }
    }
    Ok(())
}

fn make(path: &Path, mib: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut word = 1u64;
    for _ in 0..mib {
        let bytes: Vec<u8> = (0..1 << 17)
            .flat_map(|_| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                word.to_le_bytes()
            })
            .collect();
        file.write_all(&bytes)?;
    }
    file.sync_all()
}

struct Reads {
    kib: u64,
    depth: usize,
    is_warm: bool,
    seed: u64,
}

/// Seconds, and seconds of CPU time, for a read.
type Times = (f64, f64);

impl Reads {
    fn run(
        &self,
        folder: &Path,
        mib: u64,
        by_ring: bool,
    ) -> Result<Times, Box<dyn std::error::Error>> {
        let plain = std::fs::File::open(folder.join("data"))?;
        match self.is_warm {
            true => drop(std::io::copy(&mut &plain, &mut std::io::sink())?),
            false => rustix::fs::fadvise(&plain, 0, None, Advice::DontNeed)?,
        }
        let backend = match by_ring {
            true => LocalBackend::new(folder, Some(self.depth))?,
            false => LocalBackend::blocking(folder, self.depth)?,
        };
        if by_ring && let Some(why) = backend.without_ring() {
            return Err(format!("no io_uring here: {why}").into());
        }
        let cache = Cache::new(CacheOptions { budget_bytes: BUDGET_BYTES, block_bytes: 8 << 10 })?;
        let session = cache.attach(Arc::new(backend)).session();
        let file = session.open("data")?;
        let length_bytes = self.kib << 10;
        let mut seed = self.seed;
        let count = if self.depth == 1 { SAMPLE } else { 5 * SAMPLE };
        let segments: Vec<Segment> = (0..count)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let offset_bytes = (seed >> 33) % ((mib << 20) / length_bytes) * length_bytes;
                Segment { offset_bytes, length_bytes }
            })
            .collect();
        let mut buffer = vec![0; length_bytes as usize];
        let (begun, cpu) = (Instant::now(), cpu_time());
        let stream = session.stream();
        if self.depth > 1 {
            stream.hint_segments(&file, &segments);
        }
        for segment in &segments {
            file.read_at(&mut buffer, segment.offset_bytes)?;
        }
        let of_each = |time: Duration| time.as_secs_f64() / count as f64;
        Ok((of_each(begun.elapsed()), of_each(cpu_time() - cpu)))
    }
}

fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

fn print_row(reads: &str, depth: usize, runs: &[Vec<Times>; 2]) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let [threads, ring] = runs;
    let per_s = |runs: &[Times]| 1.0 / median(runs.iter().map(|run| run.0).collect());
    let cpu_us = |runs: &[Times]| 1e6 * median(runs.iter().map(|run| run.1).collect());
    let ratios: Vec<f64> =
        ring.iter().zip(threads).map(|(ring, threads)| ring.0 / threads.0).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "| {reads} | {depth} | {:.0} | {:.0} | {:.2} ({least:.2} to {greatest:.2}) | {:.0} | {:.0} |",
        per_s(threads),
        per_s(ring),
        median(ratios),
        cpu_us(threads),
        cpu_us(ring)
    );
}
