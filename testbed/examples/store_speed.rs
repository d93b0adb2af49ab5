//! Measures how well the slow object store keeps its times, and what it costs. A small client reads ranges of one
//! object from a store in the same process, one after another and many at once.
//!
//! `cargo run --release --example store_speed [-- DEPTH...]`
//!
//! Columns: reads of 128 KiB a second; time to the first byte and to the last, as the client sees them, which includes
//! its own delays; how late the store handed over the first byte by its own account, on average, and the share of reads
//! where that was over a millisecond; processor time of the store for each read. Then come the pace of a long answer,
//! and that of a link shared by all.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foretell_sim::random::SplitMix64;
use foretell_testbed::store::{Store, StoreOptions};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;

const OBJECT_BYTES: u64 = 512 << 20;
const READ_BYTES: u64 = 128 << 10;
const SECONDS: u64 = 4;
const LINK_RATE: u64 = 100_000_000;

type Failure = Box<dyn Error + Send + Sync>;

/// The times of one read, from the sending of the request.
struct Timing {
    first: Duration,
    last: Duration,
}

/// A connection that asks for ranges of the object.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, buffer: vec![0; 256 << 10] })
    }

    async fn read(&mut self, offset: u64, bytes: u64) -> Result<Timing, Failure> {
        let last = offset + bytes - 1;
        let head =
            format!("GET /data/object HTTP/1.1\r\nHost: x\r\nRange: bytes={offset}-{last}\r\n\r\n");
        let begin = Instant::now();
        // It is short and the socket is empty, so it is sent as a whole.
        self.stream.writable().await?;
        self.stream.try_write(head.as_bytes())?;
        let (mut got, mut body_at, mut first) = (0, None, Duration::ZERO);
        let mut head = Vec::new();
        loop {
            self.stream.readable().await?;
            let count = match self.stream.try_read(&mut self.buffer) {
                Ok(0) => return Err("the connection ended".into()),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            if got == 0 {
                first = begin.elapsed();
            }
            got += count as u64;
            if body_at.is_none() {
                head.extend_from_slice(&self.buffer[..count]);
                let end = head.windows(4).position(|four| four == b"\r\n\r\n");
                if !head.starts_with(b"HTTP/1.1 206") && head.len() > 12 {
                    return Err(String::from_utf8_lossy(&head).into_owned().into());
                }
                body_at = end.map(|end| end as u64 + 4);
            }
            if body_at.is_some_and(|at| got >= at + bytes) {
                return Ok(Timing { first, last: begin.elapsed() });
            }
        }
    }
}

/// Processor time of `clock`.
fn used(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn percentile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() as f64 * share) as usize).min(times.len() - 1);
    times[at].as_secs_f64() * 1e3
}

/// Makes `depth` reads at once for some seconds, each on a connection of its own.
async fn reads(address: SocketAddr, depth: u64) -> Result<(Vec<Timing>, Duration), Failure> {
    let begin = Instant::now();
    let end = begin + Duration::from_secs(SECONDS);
    let started = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..depth {
        let started = Arc::clone(&started);
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(address).await?;
            let mut timings = Vec::new();
            while Instant::now() < end {
                let number = started.fetch_add(1, Ordering::Relaxed);
                let block = SplitMix64::new(number).below(OBJECT_BYTES / READ_BYTES);
                timings.push(client.read(block * READ_BYTES, READ_BYTES).await?);
            }
            Ok::<_, Failure>(timings)
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok((all, begin.elapsed()))
}

fn main() -> Result<(), Failure> {
    let depths: Vec<u64> =
        std::env::args().skip(1).map(|depth| depth.parse()).collect::<Result<_, _>>()?;
    let depths = if depths.is_empty() { vec![1, 32, 100, 200] } else { depths };
    let folder = tempfile::tempdir()?;
    fs::create_dir(folder.path().join("data"))?;
    let mut file = fs::File::create(folder.path().join("data/object"))?;
    for part in 0..OBJECT_BYTES >> 20 {
        file.write_all(&vec![part as u8; 1 << 20])?;
    }
    let client = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    println!("30 ms to the first byte, 90 MB/s for each answer, reads of 128 KiB");
    println!("             first byte, ms          last byte, ms  store late, ms         CPU");
    println!("depth reads/s  median    99 %     max  median    99 %    mean  > 1 ms  us/read");
    for depth in depths {
        let store = Store::start(folder.path(), &StoreOptions::default())?;
        let cpu = || {
            let own = used(ClockId::ThreadCPUTime);
            used(ClockId::ProcessCPUTime).saturating_sub(own)
        };
        let before = cpu();
        let (timings, elapsed) = client.block_on(reads(store.address(), depth))?;
        let store_cpu = cpu().saturating_sub(before);
        let report = store.stop();
        let mut first: Vec<Duration> = timings.iter().map(|timing| timing.first).collect();
        let mut last: Vec<Duration> = timings.iter().map(|timing| timing.last).collect();
        println!(
            "{depth:>5} {:>7.0} {:>7.2} {:>7.2} {:>7.2} {:>7.2} {:>7.2} {:>7.3} {:>5.1} % {:>8.0}",
            timings.len() as f64 / elapsed.as_secs_f64(),
            percentile(&mut first, 0.5),
            percentile(&mut first, 0.99),
            percentile(&mut first, 1.0),
            percentile(&mut last, 0.5),
            percentile(&mut last, 0.99),
            report.first_byte_late_us_mean / 1e3,
            report.first_byte_late_over_1ms as f64 * 100.0 / report.gets as f64,
            store_cpu.as_secs_f64() * 1e6 / timings.len() as f64,
        );
    }
    let store = Store::start(folder.path(), &StoreOptions::default())?;
    let whole = client
        .block_on(async { Client::connect(store.address()).await?.read(0, OBJECT_BYTES).await })?;
    let rate = OBJECT_BYTES as f64 / (whole.last - whole.first).as_secs_f64() / 1e6;
    println!("one answer of 512 MiB: {rate:.1} MB/s");
    drop(store);
    let options = StoreOptions { total: Some(LINK_RATE), ..StoreOptions::default() };
    let store = Store::start(folder.path(), &options)?;
    let (timings, elapsed) = client.block_on(reads(store.address(), 100))?;
    let rate = (timings.len() as u64 * READ_BYTES) as f64 / elapsed.as_secs_f64() / 1e6;
    println!("100 reads at once over a link of {} MB/s: {rate:.1} MB/s", LINK_RATE / 1_000_000);
    Ok(())
}
