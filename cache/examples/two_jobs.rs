//! What is gained by caching with both orders known, when two jobs read one data set, each in its own shuffled order.
//!
//!     cargo run --release -p foretell-cache --all-features --example two_jobs -- [ROUNDS]
//!
//! The data is an object on a slow store (30 ms, 90 MB/s an answer, 150 MB/s in all) in this process. The three ways
//! have the same total memory, and prefetch their misses equally deep:
//!
//! * **informed, shared**: one cache; both jobs disclose their orders.
//! * **LRU, private**: each job has an LRU cache of half of the memory. Its misses are computed beforehand.
//! * **never evict, private**: each job has half of the memory, and keeps the first samples that it reads there. For a single
//!   job this is optimal.
//!
//! Prints the ratio of bytes fetched to bytes asked for, and seconds: medians of rounds, in which the ways take turns.

#![allow(clippy::print_stdout)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::{Cache, CacheOptions, Segment, Session, Store as CacheStore};
use foretell_testbed::store::{FirstByte, Store, StoreOptions};

const SAMPLE_BYTES: u64 = 64 << 10;
const SAMPLES: u64 = 2048;
const EPOCHS: u64 = 3;
const JOBS: u64 = 2;
/// Additional memory of a baseline, for samples in flight.
const IN_FLIGHT_BYTES: u64 = 8 << 20;
const DEPTH: usize = 64;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Informed,
    Lru,
    NeverEvict,
}

/// The orders of all epochs of a job.
fn order(job: u64, round: u64) -> Vec<u64> {
    let mut state = (job + 1) * 0x9e37_79b9 + round * 77;
    let mut below = move |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut all = Vec::new();
    for _ in 0..EPOCHS {
        let mut epoch: Vec<u64> = (0..SAMPLES).collect();
        for last in (1..epoch.len()).rev() {
            epoch.swap(last, below(last as u64 + 1) as usize);
        }
        all.extend(epoch);
    }
    all
}

fn segment(sample: u64) -> Segment {
    Segment { offset_bytes: sample * SAMPLE_BYTES, length_bytes: SAMPLE_BYTES }
}

/// Whether each read of `order` is a hit in a cache of `capacity` samples.
fn hits(way: Way, order: &[u64], capacity: usize) -> Vec<bool> {
    let mut kept: HashMap<u64, u64> = HashMap::new();
    let mut queue: VecDeque<(u64, u64)> = VecDeque::new();
    let mut found = Vec::with_capacity(order.len());
    for (turn, &sample) in order.iter().enumerate() {
        let turn = turn as u64;
        found.push(kept.contains_key(&sample));
        if way == Way::NeverEvict {
            if kept.len() < capacity {
                kept.insert(sample, turn);
            }
            continue;
        }
        kept.insert(sample, turn);
        queue.push_back((sample, turn));
        while kept.len() > capacity {
            let (oldest, at) = queue.pop_front().expect("what is kept is queued");
            if kept.get(&oldest) == Some(&at) {
                kept.remove(&oldest);
            }
        }
    }
    found
}

/// A job that discloses its order and reads.
fn informed(session: &Session, order: &[u64]) -> Fallible<()> {
    let file = session.open("object")?;
    let stream = session.stream();
    let segments: Vec<Segment> = order.iter().map(|&sample| segment(sample)).collect();
    stream.hint_segments(&file, &segments);
    let mut buffer = vec![0; SAMPLE_BYTES as usize];
    for &sample in order {
        file.read_at(&mut buffer, sample * SAMPLE_BYTES)?;
        check(sample, &buffer);
    }
    Ok(())
}

/// A job with private memory: it discloses and reads only its misses.
fn private(session: &Session, way: Way, order: &[u64], capacity: usize) -> Fallible<()> {
    let file = session.open("object")?;
    let hits = hits(way, order, capacity);
    let missed: Vec<u64> =
        order.iter().zip(&hits).filter(|&(_, &hit)| !hit).map(|(&sample, _)| sample).collect();
    let stream = session.stream();
    let segments: Vec<Segment> = missed.iter().map(|&sample| segment(sample)).collect();
    stream.hint_segments(&file, &segments);
    let mut buffer = vec![0; SAMPLE_BYTES as usize];
    for sample in missed {
        file.read_at(&mut buffer, sample * SAMPLE_BYTES)?;
        check(sample, &buffer);
    }
    Ok(())
}

fn check(sample: u64, bytes: &[u8]) {
    assert!(bytes.iter().all(|&byte| byte == (sample % 251) as u8), "wrong bytes");
}

/// Bytes that the store sent, and seconds.
fn measure(store: &Store, way: Way, percent: u64, round: u64) -> Fallible<(u64, f64)> {
    let memory = SAMPLES * SAMPLE_BYTES * percent / 100;
    let endpoint = store.endpoint();
    let settings = [
        ("aws_endpoint_url", endpoint.as_str()),
        ("aws_region", "us-east-1"),
        ("aws_skip_signature", "true"),
    ];
    let before = store.report().bytes_sent;
    let begun = Instant::now();
    let backend = || -> Fallible<ObjectBackend> {
        let options = ObjectOptions { depth: DEPTH, ..ObjectOptions::default() };
        Ok(ObjectBackend::configured("s3://data", &settings, options)?)
    };
    let attached = |budget_bytes: u64| -> Fallible<CacheStore> {
        let cache = Cache::new(CacheOptions { budget_bytes, ..CacheOptions::default() })?;
        Ok(cache.attach(Arc::new(backend()?)))
    };
    // Samples in flight share this memory; the baselines have additional memory for them.
    let shared = attached(memory + JOBS * IN_FLIGHT_BYTES)?;
    std::thread::scope(|scope| {
        let mut jobs = Vec::new();
        for job in 0..JOBS {
            let order = order(job, round);
            let capacity = (memory / JOBS / SAMPLE_BYTES) as usize;
            let session = match way {
                Way::Informed => shared.session(),
                Way::Lru | Way::NeverEvict => attached(IN_FLIGHT_BYTES)?.session(),
            };
            jobs.push(scope.spawn(move || match way {
                Way::Informed => informed(&session, &order),
                Way::Lru | Way::NeverEvict => private(&session, way, &order, capacity),
            }));
        }
        jobs.into_iter().try_for_each(|job| job.join().expect("a job does not panic"))
    })?;
    Ok((store.report().bytes_sent - before, begun.elapsed().as_secs_f64()))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> Fallible<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(3), |word| word.parse())?;
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("data"))?;
    let data: Vec<u8> = (0..SAMPLES)
        .flat_map(|sample| std::iter::repeat_n((sample % 251) as u8, SAMPLE_BYTES as usize))
        .collect();
    std::fs::write(folder.path().join("data/object"), data)?;
    let options = StoreOptions {
        first_byte: FirstByte::fixed(Duration::from_millis(30)),
        per_response: Some(90_000_000),
        total: Some(150_000_000),
        ..StoreOptions::default()
    };
    let store = Store::start(folder.path(), &options)?;
    let ways = [
        ("informed, shared", Way::Informed),
        ("LRU, private", Way::Lru),
        ("never evict, private", Way::NeverEvict),
    ];
    println!("| memory | way | fetched by asked | seconds |\n|---|---|---|---|");
    let asked = (SAMPLES * SAMPLE_BYTES * EPOCHS * JOBS) as f64;
    for percent in [25, 50] {
        let mut found = ways.map(|_| (Vec::new(), Vec::new()));
        for round in 0..rounds {
            for (index, (_, way)) in ways.iter().enumerate() {
                let (bytes, seconds) = measure(&store, *way, percent, round)?;
                found[index].0.push(bytes as f64 / asked);
                found[index].1.push(seconds);
            }
        }
        for ((name, _), (shares, seconds)) in ways.iter().zip(found) {
            println!("| {percent} % | {name} | {:.3} | {:.2} |", median(shares), median(seconds));
        }
    }
    Ok(())
}
