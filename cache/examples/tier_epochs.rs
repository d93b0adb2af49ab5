//! What the second tier gives. A program reads a data set in a slow object store once each epoch, in a new order, which
//! it discloses. Its memory holds a tenth of the data.
//!
//!     cargo run --release -p foretell-cache --example tier_epochs -- [MIB] [LINK_MB_S]
//!
//! The store is the testbed's: 30 ms to the first byte, 90 MB/s for each answer, and LINK_MB_S (default 250) MB/s for
//! all answers. Prints for each epoch, with a tier of none, half and all of the data: seconds, and bytes from the store
//! and from the tier as shares of the bytes read. The tier is on the disk of the temporary files.

#![allow(clippy::print_stdout)]

#[path = "../tests/shuffled/mod.rs"]
mod shuffled;

use std::sync::Arc;
use std::time::Instant;

use foretell_cache::backend::Backend;
use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::tier::{Tier, TierOptions};
use foretell_cache::{Cache, CacheOptions, Segment};
use foretell_testbed::store::{Store, StoreOptions};
use shuffled::shuffled;

const SAMPLE_BYTES: u64 = 128 << 10;
const BLOCK_BYTES: usize = 64 << 10;
const EPOCHS: u64 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mib: u64 = words.next().map_or(Ok(1024), |word| word.parse())?;
    let link: u64 = words.next().map_or(Ok(250), |word| word.parse())?;
    let size_bytes = mib << 20;
    let folder = tempfile::tempdir()?;
    let bucket = folder.path().join("store/bucket");
    std::fs::create_dir_all(&bucket)?;
    let mut word = 1u64;
    let bytes: Vec<u8> = (0..size_bytes / 8)
        .flat_map(|_| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.to_le_bytes()
        })
        .collect();
    std::fs::write(bucket.join("data"), &bytes)?;
    let options = StoreOptions { total: Some(link * 1_000_000), ..StoreOptions::default() };
    let store = Store::start(&folder.path().join("store"), &options)?;
    println!("| tier | epoch | seconds | from the store | from the tier |\n|---|---|---|---|---|");
    for (name, share) in [("none", 0), ("half", 50), ("all", 105)] {
        let tier_folder = folder.path().join(name);
        let cache =
            Cache::new(CacheOptions { budget_bytes: size_bytes / 10, block_bytes: BLOCK_BYTES })?;
        let open_tier = || {
            let budget_bytes = size_bytes / 100 * share;
            let folder = tier_folder.clone();
            Tier::open(&TierOptions { folder, budget_bytes, block_bytes: BLOCK_BYTES, keep: false })
        };
        let tier = if share > 0 { Some(open_tier()?) } else { None };
        let remote: Arc<dyn Backend> = Arc::new(backend(&store)?);
        let backend: Arc<dyn Backend> = match &tier {
            Some(tier) => Arc::new(tier.over("s3://bucket", remote)),
            None => remote,
        };
        let session = cache.attach(backend).session();
        for epoch in 0..EPOCHS {
            let file = session.open("data")?;
            let order = order(size_bytes / SAMPLE_BYTES, epoch);
            let before =
                (store.report().bytes_sent, tier.as_ref().map(|tier| tier.stats().hit_blocks));
            let begun = Instant::now();
            let stream = session.stream();
            stream.hint_segments(&file, &order);
            let mut buffer = vec![0; SAMPLE_BYTES as usize];
            for segment in &order {
                file.read_at(&mut buffer, segment.offset_bytes)?;
                let at = segment.offset_bytes as usize;
                assert!(buffer == bytes[at..at + buffer.len()], "wrong bytes");
            }
            let seconds = begun.elapsed().as_secs_f64();
            let of = |bytes: u64| bytes as f64 / size_bytes as f64;
            let far = of(store.report().bytes_sent - before.0);
            let hits = tier.as_ref().map_or(0, |tier| tier.stats().hit_blocks);
            let near = of((hits - before.1.unwrap_or(0)) * BLOCK_BYTES as u64);
            println!("| {name} | {} | {seconds:.1} | {far:.2} | {near:.2} |", epoch + 1);
        }
        eprintln!("{:?}\n{tier:?}", cache.stats());
    }
    Ok(())
}

fn backend(store: &Store) -> Result<ObjectBackend, Box<dyn std::error::Error>> {
    let endpoint = store.endpoint();
    let settings = [
        ("aws_endpoint_url", endpoint.as_str()),
        ("aws_access_key_id", "foretell"),
        ("aws_secret_access_key", "foretell-secret"),
        ("aws_region", "us-east-1"),
    ];
    Ok(ObjectBackend::configured("s3://bucket", &settings, ObjectOptions::default())?)
}

/// All samples once, in the order of this epoch.
fn order(samples: u64, epoch: u64) -> Vec<Segment> {
    let segment =
        |sample| Segment { offset_bytes: sample * SAMPLE_BYTES, length_bytes: SAMPLE_BYTES };
    shuffled(samples, epoch + 1).into_iter().map(segment).collect()
}
