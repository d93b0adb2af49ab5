//! A server and eight clients in processes of their own: blocks are evicted while they are read, and clients and servers are
//! killed. Every byte that a client reads is compared.
//!
//! `FORETELL_SHARE_READS` says how many reads are made in all.

#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::backend::{Backend, BackendError};
use foretell_cache::share::{FarSession, Name, Served, Server};
use foretell_cache::{Cache, CacheOptions, Segment};

const BLOCK_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
const FILES: u64 = 4;
/// Words of a file.
const WORDS: u64 = 512 << 10;
/// The cache holds an eighth of the files.
const BUDGET_BYTES: u64 = FILES * WORDS; // Words have 8 bytes.
const READERS: usize = 8;
/// What a process is to do: `serve` or `read`, at which name, how often, and with which seed.
const ROLE: &str = "FORETELL_SHARE_ROLE";

fn word(file: u64, at: u64) -> u64 {
    (file << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn reads() -> u64 {
    std::env::var("FORETELL_SHARE_READS")
        .map_or(3_000_000, |reads| reads.parse().expect("a number"))
}

fn serve(name: &str) {
    let files = MemoryBackend::new();
    for file in 0..FILES {
        let words = (0..WORDS).flat_map(|at| word(file, at).to_ne_bytes());
        files.put(&file.to_string(), words.collect::<Vec<u8>>());
    }
    let files = Arc::new(files);
    let options = CacheOptions { budget_bytes: BUDGET_BYTES, block_bytes: BLOCK_BYTES };
    let cache = Cache::new_shared(options).unwrap();
    let (of_server, backend) = (cache.clone(), Arc::clone(&files));
    let name = Name::take(name).unwrap().expect("the name is free");
    let server = Server::start(&cache, name, move |_| {
        let files = Arc::clone(&files);
        let open = move |path: &[u8]| files.open(&String::from_utf8_lossy(path));
        let backend: Arc<dyn Backend> = Arc::clone(&backend) as _;
        Ok(Served { store: of_server.attach(backend), open: Arc::new(open) })
    });
    let _server = server.unwrap();
    println!("serving");
    std::thread::sleep(Duration::from_secs(3600));
}

/// Reads until so many reads have been found right. A server that has gone is sought again.
fn read(name: &str, count: u64, seed: u64) {
    let mut random = seed;
    let mut next = move |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut right, mut lost, mut hits) = (0, 0, 0);
    let deadline = Instant::now() + Duration::from_secs(1200);
    'servers: while right < count {
        assert!(Instant::now() < deadline, "{right} of {count} reads after {lost} servers");
        let Ok(session) = FarSession::connect(name, b"", PATIENCE) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        lost += 1;
        let mut files = Vec::new();
        for file in 0..FILES {
            match session.open(file.to_string().as_bytes()) {
                Ok(file) => files.push(file),
                Err(error) if error.cause == BackendError::Lost => continue 'servers,
                Err(error) => panic!("{error}"),
            }
        }
        let stream = session.stream();
        let mut buffer = vec![0_u64; 4 * BLOCK_BYTES / 8];
        while right < count {
            // Mostly in a part that moves on, so that there are hits as well as evictions.
            let part = right / 3000 % 16 * (WORDS / 16);
            let divisor = 1 + next(64);
            let (file, words) = (next(FILES), 1 + next(buffer.len() as u64 / divisor));
            let at = (part + next(WORDS / 64)).min(WORDS - words);
            if next(500) == 0 {
                let segment =
                    Segment { offset_bytes: next(WORDS / 2) * 8, length_bytes: 1 + next(100_000) };
                stream.hint_segments(&files[next(FILES) as usize], &[segment]);
            }
            let buffer = &mut buffer[..words as usize];
            // SAFETY: the words of the buffer as bytes; any bytes are words.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), buffer.len() * 8)
            };
            // SAFETY: the buffer lives longer than the call.
            let now =
                unsafe { files[file as usize].read_now(bytes.as_mut_ptr(), bytes.len(), at * 8) };
            hits += u64::from(now.is_ok());
            let result = match now {
                Ok(found) => Ok(found),
                Err(_) => files[file as usize].read_at(bytes, at * 8),
            };
            match result {
                Ok(found) => assert_eq!(found, bytes.len()),
                Err(error) if error.cause == BackendError::Lost => continue 'servers,
                Err(error) => panic!("{error}"),
            }
            for (number, &found) in (at..).zip(buffer.iter()) {
                assert_eq!(found, word(file, number), "file {file}, word {number}");
            }
            right += 1;
        }
    }
    println!("{right} reads, {hits} without an answer, {lost} servers");
    assert!(hits > 0);
}

/// Hints as a client of which a child is left, which has its socket.
fn leave_a_child(name: &str) {
    let session = FarSession::connect(name, b"", PATIENCE).expect("it answers");
    let (file, stream) = (session.open(b"0").unwrap(), session.stream());
    let part = |number: u64| Segment { offset_bytes: number * 8192, length_bytes: 4096 };
    stream.hint_segments(&file, &(0..500).map(part).collect::<Vec<_>>());
    session.stats().expect("it has the hint now");
    // SAFETY: the child calls nothing but `pause` and is killed by its parent's reader.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: it waits for a signal.
            unsafe { libc::pause() };
        }
    }
    println!("left {child}");
    std::thread::sleep(Duration::from_secs(3600));
}

fn start(role: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    let words = ["--exact", "a_process_of_the_test", "--nocapture", "--include-ignored"];
    let mut child = Command::new(program);
    child.args(words).env(ROLE, role).stdout(Stdio::piped()).spawn().unwrap()
}

fn start_server(name: &str) -> Child {
    let mut child = start(&format!("serve {name} 0 0"));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("serving")), "it has ended");
    child
}

#[test]
#[ignore = "not a test: what the other test starts"]
fn a_process_of_the_test() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["serve", name, ..] => serve(name),
        ["leave", name, ..] => leave_a_child(name),
        ["read", name, count, seed] => read(name, count.parse().unwrap(), seed.parse().unwrap()),
        _ => panic!("{role}"),
    }
}

#[test]
fn no_byte_is_wrong_whoever_is_killed() {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let name = format!("torture-{}", std::process::id());
    let each = reads() / READERS as u64;
    let start_reader =
        || start(&format!("read {name} {each} {}", SEED.fetch_add(1, Ordering::Relaxed)));
    let mut server = start_server(&name);
    let mut readers: Vec<Child> = (0..READERS).map(|_| start_reader()).collect();
    let (mut killed, mut restarted) = (0, 0);
    let mut turn: u64 = 0;
    while !readers.is_empty() {
        std::thread::sleep(Duration::from_millis(150));
        turn += 1;
        let mut going = Vec::new();
        for mut reader in readers {
            match reader.try_wait().unwrap() {
                None => going.push(reader),
                Some(status) => assert!(status.success(), "a reader has failed: {status}"),
            }
        }
        readers = going;
        if turn.is_multiple_of(3) && killed < 20 && !readers.is_empty() {
            let mut reader = readers.swap_remove(turn as usize % readers.len());
            reader.kill().unwrap();
            // It may have ended by itself just before.
            let status = reader.wait().unwrap();
            assert!(status.success() || status.signal() == Some(9), "{status}");
            readers.push(start_reader());
            killed += 1;
        }
        if turn % 8 == 1 && restarted < 5 {
            server.kill().unwrap();
            server.wait().unwrap();
            server = start_server(&name);
            restarted += 1;
        }
    }
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(restarted > 0, "no server was killed");
}

#[test]
fn a_killed_client_leaves_nothing_though_its_child_has_the_socket() {
    let files = MemoryBackend::new();
    files.put("0", vec![1; 8 << 20]);
    let files = Arc::new(files);
    let options = CacheOptions { budget_bytes: 1 << 20, block_bytes: BLOCK_BYTES };
    let cache = Cache::new_shared(options).unwrap();
    let store = cache.attach(Arc::clone(&files) as Arc<dyn Backend>);
    let own = store.session().stream();
    let before = own.hint_memory().all_bytes;
    let name = format!("left-{}", std::process::id());
    let server = Server::start(&cache, Name::take(&name).unwrap().unwrap(), move |_| {
        let files = Arc::clone(&files);
        let open = move |path: &[u8]| files.open(&String::from_utf8_lossy(path));
        Ok(Served { store: store.clone(), open: Arc::new(open) })
    });
    let _server = server.unwrap();
    let mut client = start(&format!("leave {name} 0 0"));
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let left = lines.find_map(|line| line.unwrap().split_once("left ")?.1.parse::<i32>().ok());
    let left = left.expect("it has forked");
    assert!(own.hint_memory().all_bytes > before);
    client.kill().unwrap();
    client.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_gone = || own.hint_memory().all_bytes <= before;
    while !is_gone() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_gone = is_gone();
    // SAFETY: the child of the client, which nobody else ends.
    assert_eq!(unsafe { libc::kill(left, libc::SIGKILL) }, 0, "it was still there");
    assert!(is_gone, "its hints are still there");
}
