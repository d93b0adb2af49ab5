//! What the shared tier gives a fleet. Nodes, each a process with a cache of its own, read a data set in a slow object store,
//! each in another order, which it discloses.
//!
//!     cargo run --release -p foretell-cache --example fleet_nodes -- [--nodes N] [--mib MIB] [--mb-s MB_S] [--maxmemory SHARE]
//!
//! The store is the testbed's: 30 ms to the first byte, and MB_S (default 8) MB/s for all answers together. Each node has
//! memory for an eighth of the data, and every byte is compared. The server is redis-server or valkey-server.
//!
//! Prints the table of docs/results/fleet.md: bytes from the store by the bytes of the data, and the time until the last node
//! has read all, by the least that the store's bandwidth allows for one copy. `--maxmemory SHARE` bounds the server to that
//! share of the data, in percent, instead, with and without orders.

#![allow(clippy::print_stdout)]

#[path = "../tests/redis/mod.rs"]
mod redis;
#[path = "../tests/shuffled/mod.rs"]
mod shuffled;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use foretell_cache::backend::{AddressOptions, Backend, at};
use foretell_cache::tier::fleet::Fleet;
use foretell_cache::{Cache, CacheOptions, Segment};
use foretell_testbed::store::{Store, StoreOptions};
use shuffled::shuffled;

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

const SAMPLE_BYTES: u64 = 64 << 10;
const BLOCK_BYTES: usize = 16 << 10;
/// A node that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What happens in the middle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mishap {
    None,
    /// A node is killed when it has read half.
    Node,
    /// A node is killed while it holds leases.
    Holder,
    /// The server is killed when the first node has read half.
    Server,
}

struct Options {
    nodes: u64,
    size_bytes: u64,
    bytes_per_s: u64,
    maxmemory: Option<u64>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("node") => node(&words[1..]),
        _ => options(&words).and_then(|options| experiment(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet_nodes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(words: &[String]) -> Anything<Options> {
    let mut options =
        Options { nodes: 8, size_bytes: 96 << 20, bytes_per_s: 8_000_000, maxmemory: None };
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} lacks a value", pair[0]).into()) };
        let number: u64 = value.parse()?;
        match name.as_str() {
            "--nodes" => options.nodes = number,
            "--mib" => options.size_bytes = number << 20,
            "--mb-s" => options.bytes_per_s = number * 1_000_000,
            "--maxmemory" => options.maxmemory = Some(number),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

/// The byte at an offset of the data.
fn word_at(offset_bytes: u64) -> u64 {
    let mut word = (offset_bytes / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn experiment(options: &Options) -> Anything<()> {
    let folder = tempfile::tempdir()?;
    let bucket = folder.path().join("bucket");
    std::fs::create_dir_all(&bucket)?;
    let bytes: Vec<u8> = (0..options.size_bytes)
        .step_by(8)
        .flat_map(|offset| word_at(offset).to_le_bytes())
        .collect();
    std::fs::write(bucket.join("data"), bytes)?;
    let of_store = StoreOptions {
        total: Some(options.bytes_per_s),
        per_response: None,
        ..StoreOptions::default()
    };
    let store = Store::start(folder.path(), &of_store)?;
    println!(
        "| nodes | tier | mishap | egress / data | time to ready / bound |\n|---|---|---|---|---|"
    );
    if let Some(percent) = options.maxmemory {
        for is_disclosed in [false, true] {
            let most = (options.size_bytes * percent / 100).to_string();
            let policy = ["--maxmemory", &most, "--maxmemory-policy", "allkeys-lru"];
            let Some(server) = redis::Server::start(&policy) else { return Ok(()) };
            let name = format!(
                "{percent} % of the data, {}",
                if is_disclosed { "disclosed orders" } else { "LRU" }
            );
            run(options, &store, (Some(server), &name, is_disclosed), Mishap::None)?;
        }
        return Ok(());
    }
    run(options, &store, (None, "none", true), Mishap::None)?;
    for mishap in [Mishap::None, Mishap::Node, Mishap::Holder, Mishap::Server] {
        let Some(server) = redis::Server::start(&[]) else { return Ok(()) };
        run(options, &store, (Some(server), "one server", true), mishap)?;
    }
    Ok(())
}

/// Nodes that end with this one.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn run(
    options: &Options,
    store: &Store,
    (mut server, tier, is_disclosed): (Option<redis::Server>, &str, bool),
    mishap: Mishap,
) -> Anything<()> {
    let url = server.as_ref().map_or("none".to_owned(), |server| server.url(""));
    let before = store.report().bytes_sent;
    let (sender, said) = channel();
    let mut nodes = Nodes(Vec::new());
    let begun = Instant::now();
    for number in 0..options.nodes {
        let dies = match mishap {
            Mishap::Node if number == 0 => "at-half",
            Mishap::Holder if number == 0 => "holding",
            _ => "not",
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["node", &store.endpoint(), &url, &number.to_string()])
            .args([&options.size_bytes.to_string(), dies, &is_disclosed.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        nodes.0.push(child);
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send((number, line));
            }
        });
    }
    drop(sender);
    let survivors = options.nodes - u64::from([Mishap::Node, Mishap::Holder].contains(&mishap));
    let ready = wait(&said, survivors, begun, || {
        if mishap == Mishap::Server
            && let Some(server) = &mut server
        {
            server.kill();
        }
    })?;
    let egress = (store.report().bytes_sent - before) as f64 / options.size_bytes as f64;
    let bound = options.size_bytes as f64 / options.bytes_per_s as f64;
    let mishap = match mishap {
        Mishap::None => "",
        Mishap::Node => "a node is killed at half",
        Mishap::Holder => "a node is killed while it holds leases",
        Mishap::Server => "the server is killed at half",
    };
    let ready = ready.as_secs_f64() / bound;
    println!("| {} | {tier} | {mishap} | {egress:.2} | {ready:.2} |", options.nodes);
    Ok(())
}

/// Waits until so many nodes are ready; `at_half` is called when the first one has read half.
fn wait(
    said: &Receiver<(u64, String)>,
    survivors: u64,
    begun: Instant,
    at_half: impl FnOnce(),
) -> Anything<Duration> {
    let (mut ready, mut at_half) = (0, Some(at_half));
    while ready < survivors {
        let (number, line) =
            said.recv_timeout(PATIENCE).map_err(|_| "a node hangs, or has failed")?;
        match line.split_once(' ').map_or(line.as_str(), |(first, _)| first) {
            "half" => {
                if let Some(at_half) = at_half.take() {
                    at_half();
                }
            }
            "ready" => {
                eprintln!("node {number}: {line}");
                ready += 1;
            }
            _ => {}
        }
    }
    Ok(begun.elapsed())
}

/// The work of a node.
fn node(words: &[String]) -> Anything<()> {
    let [endpoint, tier, number, size, dies, is_disclosed] = words else {
        return Err("a node needs six words".into());
    };
    let (number, size_bytes): (u64, u64) = (number.parse()?, size.parse()?);
    let settings = [
        ("aws_endpoint_url", endpoint.as_str()),
        ("aws_skip_signature", "true"),
        ("aws_region", "us-east-1"),
    ];
    let deadline = Duration::from_secs(60);
    let options = AddressOptions {
        depth: None,
        deadline,
        silence: None,
        settings: &settings,
        environment: None,
    };
    let named = at("s3://bucket", &options)?;
    let fleet = match tier.as_str() {
        "none" => None,
        tier => Some(Fleet::open(tier, BLOCK_BYTES, None)?),
    };
    let origin: Arc<dyn Backend> = named.backend;
    let backend = match &fleet {
        Some(fleet) => {
            fleet.on_trouble(move |trouble| eprintln!("node {number}: {trouble}"));
            Arc::new(fleet.over(&named.identity, origin))
        }
        None => origin,
    };
    let cache =
        Cache::new(CacheOptions { budget_bytes: size_bytes / 8, block_bytes: BLOCK_BYTES })?;
    let session = cache.attach(backend).session();
    let file = session.open("data")?;
    let order = order(size_bytes / SAMPLE_BYTES, number);
    let stream = session.stream();
    if is_disclosed == "true" {
        stream.hint_segments(&file, &order);
    }
    let mut buffer = vec![0; SAMPLE_BYTES as usize];
    for (turn, segment) in order.iter().enumerate() {
        let is_half = turn == order.len() / 2;
        if is_half {
            println!("half");
        }
        let holds = || {
            fleet.as_ref().is_some_and(|fleet| {
                let stats = fleet.stats();
                stats.leases > stats.put_blocks + stats.declined_blocks + stats.dropped_blocks
            })
        };
        if (dies == "at-half" && is_half)
            || (dies == "holding" && turn > order.len() / 4 && holds())
        {
            // SAFETY: a system call about this process.
            unsafe { libc::kill(std::process::id() as i32, libc::SIGKILL) };
        }
        file.read_at(&mut buffer, segment.offset_bytes)?;
        for (at, word) in buffer.as_chunks::<8>().0.iter().enumerate() {
            let offset = segment.offset_bytes + at as u64 * 8;
            if u64::from_le_bytes(*word) != word_at(offset) {
                return Err(format!("wrong bytes at {offset}").into());
            }
        }
    }
    println!("ready {:?}", fleet.map(|fleet| fleet.stats()));
    Ok(())
}

/// All samples once, in the order of this node.
fn order(samples: u64, number: u64) -> Vec<Segment> {
    let segment =
        |sample| Segment { offset_bytes: sample * SAMPLE_BYTES, length_bytes: SAMPLE_BYTES };
    shuffled(samples, number + 1).into_iter().map(segment).collect()
}
