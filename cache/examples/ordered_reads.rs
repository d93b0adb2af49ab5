//! Sequential reads without hints: how fast they are, and what they fetch in vain. Also what gaps between disclosed reads cost.
//!
//!     cargo run --release -p foretell-cache --example ordered_reads -- [LINK_MB_S]
//!
//! The store is the testbed's, in this process: 30 ms to the first byte, 90 MB/s for each answer, and LINK_MB_S
//! (default 250) MB/s for all answers. Prints two tables of docs/internals/cache.md, *A handle that reads in order is
//! expected to go on*: waste and gaps.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::{Cache, CacheOptions, Segment};
use foretell_testbed::store::{Store, StoreOptions};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const OBJECT_BYTES: u64 = 512 << 20;
/// Numbers of files that are closed after two reads.
const FILES: usize = 100;
const FILE_BYTES: u64 = 32 << 20;
/// Reads with gaps: their distance and their length, bytes.
const STRIDE_BYTES: u64 = 128 << 10;
const STRIDDEN_BYTES: u64 = 120 << 10;
const STRIDDEN: u64 = 1024;
/// Longer than requests in flight take.
const QUIET: Duration = Duration::from_millis(500);

fn attached(store: &Store, depth: usize) -> Fallible<(Cache, foretell_cache::Session)> {
    let endpoint = store.endpoint();
    let settings = [
        ("aws_endpoint_url", endpoint.as_str()),
        ("aws_region", "us-east-1"),
        ("aws_skip_signature", "true"),
    ];
    let options = ObjectOptions { depth, ..ObjectOptions::default() };
    let cache = Cache::new(CacheOptions::default())?;
    let backend = ObjectBackend::configured("s3://data", &settings, options)?;
    let session = cache.attach(Arc::new(backend)).session();
    Ok((cache, session))
}

fn in_order(store: &Store, read_bytes: usize) -> Fallible<f64> {
    let (_cache, session) = attached(store, ObjectOptions::default().depth)?;
    let file = session.open("object")?;
    let mut buffer = vec![0; read_bytes];
    let begun = Instant::now();
    let mut at = 0;
    while at < file.size_bytes() {
        at += file.read_at(&mut buffer, at)? as u64;
    }
    Ok(at as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

/// MiB that were fetched and not read, after each number of files.
fn in_vain(store: &Store, read_bytes: usize, after: &[usize]) -> Fallible<Vec<f64>> {
    let (cache, session) = attached(store, ObjectOptions::default().depth)?;
    let mut buffer = vec![0; read_bytes];
    let mut found = Vec::new();
    for file in 0..FILES {
        let opened = session.open(&format!("many/{file}"))?;
        opened.read_at(&mut buffer, 0)?;
        opened.read_at(&mut buffer, read_bytes as u64)?;
        std::thread::sleep(Duration::from_millis(20)); // Otherwise requests that have not begun would be given up.
        drop(opened);
        if after.contains(&(file + 1)) {
            std::thread::sleep(QUIET);
            let read = 2 * read_bytes as u64 * (file as u64 + 1);
            found.push((cache.stats().fetched_bytes - read) as f64 / f64::from(1 << 20));
        }
    }
    Ok(found)
}

/// MB/s of the wanted bytes, when `bytes` of each stride are read.
fn with_holes(store: &Store, depth: usize, bytes: u64) -> Fallible<f64> {
    let (_cache, session) = attached(store, depth)?;
    let file = session.open("object")?;
    let segments: Vec<Segment> = (0..STRIDDEN)
        .map(|turn| Segment { offset_bytes: turn * STRIDE_BYTES, length_bytes: bytes })
        .collect();
    let mut buffer = vec![0; bytes as usize];
    let begun = Instant::now();
    let stream = session.stream();
    stream.hint_segments(&file, &segments);
    for segment in &segments {
        file.read_at(&mut buffer, segment.offset_bytes)?;
    }
    Ok((STRIDDEN * STRIDDEN_BYTES) as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) {
    println!("| {name} | {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

fn main() -> Fallible<()> {
    let link: u64 = std::env::args().nth(1).map_or(Ok(250), |word| word.parse())?;
    let folder = tempfile::tempdir()?;
    let bucket = folder.path().join("data");
    std::fs::create_dir_all(bucket.join("many"))?;
    std::fs::write(bucket.join("object"), vec![7; OBJECT_BYTES as usize])?;
    for file in 0..FILES {
        std::fs::File::create(bucket.join(format!("many/{file}")))?.set_len(FILE_BYTES)?;
    }
    let options = StoreOptions { total: Some(link * 1_000_000), ..StoreOptions::default() };
    let store = Store::start(folder.path(), &options)?;

    println!("512 MiB in order from a store of {link} MB/s\n\n| KiB a read | MB/s |\n|---|---|");
    for read_bytes in [16 << 10, 64 << 10, 128 << 10, 1 << 20] {
        let rate = in_order(&store, read_bytes)?;
        row(&(read_bytes >> 10).to_string(), [format!("{rate:.0}")]);
    }

    let after = [1, 2, 3, 4, 10, 100];
    println!("\nMiB in vain, after so many files of which each is read twice\n");
    row("KiB a read", after.map(|files| files.to_string()));
    println!("|{}", "---|".repeat(after.len() + 1));
    for read_bytes in [64 << 10, 1 << 20] {
        let found = in_vain(&store, read_bytes, &after)?;
        row(&(read_bytes >> 10).to_string(), found.iter().map(|mib| format!("{mib:.1}")));
    }

    let depths = [4, 16, 64, 128];
    println!("\nMB/s of 120 KiB of every 128, by requests at once\n");
    row("", depths.map(|depth| depth.to_string()));
    println!("|{}", "---|".repeat(depths.len() + 1));
    for (name, bytes) in [("with holes", STRIDDEN_BYTES), ("all of it", STRIDE_BYTES)] {
        let mut rates = Vec::new();
        for depth in depths {
            rates.push(format!("{:.0}", with_holes(&store, depth, bytes)?));
        }
        row(name, rates);
    }
    Ok(())
}
