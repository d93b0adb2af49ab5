//! What a hit in the cache of another process costs, beside a copy from private memory and a `pread` from the page cache.
//!
//!     cargo run --release -p foretell-cache --example shared_hits
//!
//! One process has 256 MiB of a file in its cache; 1, 2 and 8 processes read random ranges of it at once. Prints the
//! nanoseconds of a read: the median over the processes, each of which takes the median of five rounds of all three ways.

#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::backend::{Backend, BackendError};
use foretell_cache::share::{FarSession, Name, Served, Server};
use foretell_cache::{Cache, CacheOptions};

const PATIENCE: Duration = Duration::from_secs(60);
const FILE_BYTES: usize = 256 << 20;
const SIZES: [usize; 5] = [128, 4 << 10, 8 << 10, 64 << 10, 128 << 10];
const ROLE: &str = "FORETELL_SHARED_HITS";

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Nanoseconds of a call of `read` with random offsets.
fn time(size: usize, mut read: impl FnMut(u64)) -> f64 {
    let count = (40_000_000 / (size + 400)).max(200);
    let places = (FILE_BYTES / size) as u64;
    let mut random: u64 = 7;
    let mut one = || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        read((random >> 33) % places * size as u64);
    };
    let begun = Instant::now();
    (0..count).for_each(|_| one());
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// The work of a reading process: prints a line of figures for each size.
fn read(name: &str, path: &str) {
    let session = FarSession::connect(name, b"", PATIENCE).expect("a server");
    let file = session.open(b"file").expect("it is there");
    let plain = std::fs::File::open(path).expect("a file");
    let private = vec![1_u8; FILE_BYTES];
    let mut buffer = vec![0_u8; SIZES[SIZES.len() - 1]];
    // Page tables of all of it.
    for at in (0..FILE_BYTES).step_by(buffer.len()) {
        file.read_at(&mut buffer, at as u64).expect("a read");
        plain.read_exact_at(&mut buffer, at as u64).expect("a read");
    }
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    for size in SIZES {
        let buffer = &mut buffer[..size];
        let (mut shared, mut copy, mut pread) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..5 {
            let mut absent = 0_u64;
            shared.push(time(size, |at| {
                // SAFETY: the buffer lives longer than the call.
                let now = unsafe { file.read_now(buffer.as_mut_ptr(), size, at) };
                absent += u64::from(now.is_err());
            }));
            assert_eq!(absent, 0, "it is all in memory");
            copy.push(time(size, |at| {
                buffer.copy_from_slice(&private[at as usize..at as usize + size]);
                std::hint::black_box(&buffer);
            }));
            pread.push(time(size, |at| plain.read_exact_at(buffer, at).expect("a read")));
        }
        println!("{} {} {}", median(shared), median(copy), median(pread));
    }
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        let (name, path) = role.split_once(' ').expect("two words");
        return read(name, path);
    }
    let content: Vec<u8> = (0..FILE_BYTES).map(|at| at as u8).collect();
    let path = std::env::temp_dir().join(format!("shared-hits-{}", std::process::id()));
    std::fs::write(&path, &content).expect("room for the file");
    let files = Arc::new(MemoryBackend::new());
    files.put("file", content);
    let options = CacheOptions { budget_bytes: 2 * FILE_BYTES as u64, ..CacheOptions::default() };
    let cache = Cache::new_shared(options).expect("memory");
    let store = cache.attach(Arc::clone(&files) as Arc<dyn Backend>);
    let name = format!("shared-hits-{}", std::process::id());
    let of_server = Arc::clone(&files);
    let taken = Name::take(&name).expect("a socket").expect("a free name");
    let server = Server::start(&cache, taken, move |_| {
        let files = Arc::clone(&of_server);
        let open = move |path: &[u8]| files.open(&String::from_utf8_lossy(path));
        Ok::<_, BackendError>(Served { store: store.clone(), open: Arc::new(open) })
    });
    let _server = server.expect("threads");
    let session = FarSession::connect(&name, b"", PATIENCE).expect("a server");
    let file = session.open(b"file").expect("it is there");
    let mut buffer = vec![0; 1 << 20];
    for at in (0..FILE_BYTES).step_by(buffer.len()) {
        file.read_at(&mut buffer, at as u64).expect("a read");
    }
    std::thread::sleep(Duration::from_secs(3)); // Huge pages are made in the background.
    println!(
        "| processes | bytes | shared, ns | copy, ns | pread, ns | shared / copy | shared / pread |"
    );
    println!("|---|---|---|---|---|---|---|");
    for processes in [1, 2, 8] {
        let program = std::env::current_exe().expect("a path");
        let start = |_| {
            let mut command = Command::new(&program);
            command.env(ROLE, format!("{name} {}", path.display()));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process")
        };
        let mut children: Vec<_> = (0..processes).map(start).collect();
        let mut outputs: Vec<_> = children
            .iter_mut()
            .map(|child| BufReader::new(child.stdout.take().expect("its output")).lines())
            .collect();
        for lines in &mut outputs {
            assert_eq!(lines.next().expect("a line").expect("text"), "ready");
        }
        for child in &mut children {
            child.stdin.take().expect("its input").write_all(b"go\n").expect("it reads");
        }
        let figures: Vec<Vec<Vec<f64>>> = outputs
            .into_iter()
            .map(|lines| {
                let numbers = |line: String| {
                    line.split(' ').map(|word| word.parse().expect("a number")).collect()
                };
                lines.map(|line| numbers(line.expect("text"))).collect()
            })
            .collect();
        for mut child in children {
            assert!(child.wait().expect("it ends").success());
        }
        for (at, size) in SIZES.iter().enumerate() {
            let of = |way: usize| median(figures.iter().map(|figures| figures[at][way]).collect());
            let (shared, copy, pread) = (of(0), of(1), of(2));
            println!(
                "| {processes} | {size} | {shared:.0} | {copy:.0} | {pread:.0} | {:.2} | {:.2} |",
                shared / copy,
                shared / pread,
            );
        }
    }
    std::fs::remove_file(path).expect("its own file");
}
