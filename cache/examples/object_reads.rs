//! How fast random reads of one object through the cache are: serial without hints, and disclosed.
//!
//!     AWS_ENDPOINT_URL=… cargo run --release -p foretell-cache --example object_reads -- s3://bucket path
//!
//! Prints reads a second, the ratio of bytes fetched to bytes asked for, and the rate of a sequential read of the whole object.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use foretell_cache::backend::{self, AddressOptions};
use foretell_cache::{Cache, CacheOptions, Segment};

const READ_BYTES: u64 = 128 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(address), Some(path)) = (words.next(), words.next()) else {
        return Err("usage: object_reads ADDRESS PATH [DEPTH]".into());
    };
    let depth = words.next().map_or(Ok(100), |word| word.parse())?;
    let options = AddressOptions {
        depth: Some(depth),
        deadline: Duration::from_secs(60),
        silence: None,
        settings: &[],
        environment: None,
    };
    println!("| reads of 128 KiB | reads a second | fetched by asked |\n|---|---|---|");
    for (name, count, disclosed) in [("serial", 100u64, false), ("disclosed", 3000, true)] {
        let cache = Cache::new(CacheOptions::default())?;
        let session = cache.attach(backend::at(&address, &options)?.backend).session();
        let file = session.open(&path)?;
        // Each place once, and none at the beginning of a block.
        let places = (file.size_bytes() - READ_BYTES) / READ_BYTES;
        if places < count {
            return Err(format!(
                "{path} is too small: {} bytes are wanted",
                (count + 2) * READ_BYTES
            )
            .into());
        }
        let step = (places * 618 / 1000..).find(|&step| is_coprime(step, places)).unwrap_or(1);
        let order: Vec<Segment> = (0..count)
            .map(|turn| {
                let offset_bytes = turn * step % places * READ_BYTES + 1234;
                Segment { offset_bytes, length_bytes: READ_BYTES }
            })
            .collect();
        let mut buffer = vec![0; READ_BYTES as usize];
        let begun = Instant::now();
        let stream = session.stream();
        if disclosed {
            stream.hint_segments(&file, &order);
        }
        for segment in &order {
            file.read_at(&mut buffer, segment.offset_bytes)?;
        }
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        let stats = cache.stats();
        let ratio = stats.fetched_bytes as f64 / (count * READ_BYTES) as f64;
        println!("| {name} | {rate:.0} | {ratio:.3} |");
        eprintln!("{stats:?}");
    }
    let cache = Cache::new(CacheOptions::default())?;
    let session = cache.attach(backend::at(&address, &options)?.backend).session();
    let file = session.open(&path)?;
    let mut buffer = vec![0; 1 << 20];
    let begun = Instant::now();
    let mut at = 0;
    while at < file.size_bytes() {
        at += file.read_at(&mut buffer, at)? as u64;
    }
    let rate = at as f64 / begun.elapsed().as_secs_f64() / 1e6;
    println!("\nall of it in order: {rate:.0} MB/s");
    eprintln!("{:?}", cache.stats());
    Ok(())
}

fn is_coprime(mut one: u64, mut other: u64) -> bool {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one == 1
}
