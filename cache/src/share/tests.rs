//! A server and its clients in one process.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use foretell_policy::Segment;

use super::wire::{ToClient, ToServer, VERSION};
use super::{FarFile, FarSession, Name, Served, Server, Unjoined};
use crate::backend::memory::MemoryBackend;
use crate::backend::{Backend, BackendError};
use crate::cache::{Cache, CacheOptions};
use crate::file::Lent;
use crate::stats::Stats;

const BLOCK_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
const FILE_BYTES: usize = 300 * BLOCK_BYTES + 77;

fn content(seed: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ seed as u8).collect()
}

struct World {
    name: String,
    files: Arc<MemoryBackend>,
    cache: Cache,
    server: Option<Server>,
}

impl World {
    fn new(budget_bytes: u64) -> Self {
        let options = CacheOptions { budget_bytes, block_bytes: BLOCK_BYTES };
        Self::of(Cache::new_shared(options).unwrap())
    }

    fn of(cache: Cache) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let files = MemoryBackend::new();
        (0..4).for_each(|seed| files.put(&format!("file {seed}"), content(seed)));
        let name = format!("test-{}-{number}", std::process::id());
        let mut world = World { name, files: Arc::new(files), cache, server: None };
        world.server = world.start();
        world
    }

    fn start(&self) -> Option<Server> {
        let (cache, files) = (self.cache.clone(), Arc::clone(&self.files));
        let name = Name::take(&self.name).unwrap()?;
        let server = Server::start(&self.cache, name, move |recipe| {
            if recipe != b"files" {
                return Err(BackendError::NotFound);
            }
            let backend: Arc<dyn Backend> = Arc::clone(&files) as _;
            let (store, files) = (cache.attach(backend), Arc::clone(&files));
            let open = move |path: &[u8]| files.open(&String::from_utf8_lossy(path));
            Ok(Served { store, open: Arc::new(open) })
        });
        Some(server.unwrap())
    }

    fn connect(&self) -> FarSession {
        FarSession::connect(&self.name, b"files", PATIENCE).expect("it answers")
    }

    /// Waits until the counts are as they should be.
    fn until(&self, what: &str, is_so: impl Fn(Stats) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so(self.cache.stats()) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.cache.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn read(file: &FarFile, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let count = file.read_at(&mut bytes, offset as u64).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn what_is_in_memory_needs_no_answer_and_is_told_to_the_policy() {
    let world = World::new(4 << 20);
    let (one, other) = (world.connect(), world.connect());
    let (file, same) = (one.open(b"file 1").unwrap(), other.open(b"file 1").unwrap());
    assert_eq!(file.size_bytes(), FILE_BYTES as u64);
    assert_eq!(file.version(), same.version());
    let wanted = &content(1)[1000..9000];
    assert_eq!(read(&file, 1000, 8000), wanted);
    assert_eq!(read(&file, FILE_BYTES - 10, 100), content(1)[FILE_BYTES - 10..]);
    assert!(read(&file, FILE_BYTES + 10, 100).is_empty());
    let before = world.cache.stats();
    drop(one);
    for _ in 0..10 {
        let mut bytes = vec![0; 8000];
        // SAFETY: the buffer lives longer than the call.
        let now = unsafe { same.read_now(bytes.as_mut_ptr(), bytes.len(), 1000) };
        assert_eq!((now.unwrap(), &bytes[..]), (8000, wanted));
    }
    world.until("3 blocks ten times", |stats| stats.hit_blocks == before.hit_blocks + 30);
    assert_eq!(other.stats().unwrap().requests, before.requests, "nothing was fetched again");
}

#[test]
fn hints_are_fetched_ahead_and_cost_no_answers() {
    let world = World::new(4 << 20);
    let session = world.connect();
    let (file, stream) = (session.open(b"file 2").unwrap(), session.stream());
    let segments: Vec<Segment> = (0..100)
        .map(|number| Segment { offset_bytes: number * 7919 % 290 * 4096 + 5, length_bytes: 3000 })
        .collect();
    stream.hint_segments(&file, &segments);
    world.until("the first ones come", |stats| stats.prefetched_blocks >= 50);
    for segment in &segments {
        let (offset, length) = (segment.offset_bytes as usize, segment.length_bytes as usize);
        assert_eq!(read(&file, offset, length), &content(2)[offset..offset + length]);
    }
    world.until("all were used", |stats| {
        stats.useful_blocks + stats.late_blocks == stats.prefetched_blocks
    });
    stream.hint_file(&file);
    stream.cancel();
    stream.hint_set(&file, &segments[..3]);
    drop(stream);
    assert_eq!(read(&file, 0, FILE_BYTES), content(2));
}

#[test]
fn a_long_read_comes_in_parts_and_in_order_also_through_a_small_cache() {
    let world = World::new(16 * BLOCK_BYTES as u64);
    let session = world.connect();
    for seed in 0..4 {
        let file = session.open(format!("file {seed}").as_bytes()).unwrap();
        for _ in 0..3 {
            assert_eq!(read(&file, 0, FILE_BYTES), content(seed));
        }
    }
}

#[test]
fn errors_are_those_of_the_store() {
    let world = World::new(1 << 20);
    let session = world.connect();
    assert_eq!(session.open(b"absent").unwrap_err().cause, BackendError::NotFound);
    let other = FarSession::connect(&world.name, b"other files", PATIENCE);
    assert!(matches!(other, Err(Unjoined::Refused(None))), "{other:?}");
    let nobody = FarSession::connect("nobody is here", b"files", PATIENCE);
    assert!(matches!(nobody, Err(Unjoined::Nobody)), "{nobody:?}");
    assert!(world.start().is_none(), "the name is taken");
    let file = session.open(b"file 0").unwrap();
    world.files.put("file 0", vec![1; 10]);
    let mut bytes = [0; 10];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap_err().cause, BackendError::Changed);
    assert_eq!(read(&session.open(b"file 0").unwrap(), 0, 100), [1; 10]);
}

#[test]
fn without_its_server_a_file_is_lost_but_for_what_is_in_memory() {
    let mut world = World::new(4 << 20);
    let session = world.connect();
    let (file, stream) = (session.open(b"file 3").unwrap(), session.stream());
    assert_eq!(read(&file, 0, 5000), &content(3)[..5000]);
    drop(world.server.take());
    world.files.put("file 3", Vec::new());
    let mut bytes = vec![0; 5000];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 5000, "its memory is still there");
    assert_eq!(bytes, &content(3)[..5000]);
    assert_eq!(file.read_at(&mut bytes, 100_000).unwrap_err().cause, BackendError::Lost);
    assert!(file.is_lost() && session.is_lost());
    assert_eq!(session.open(b"file 1").unwrap_err().cause, BackendError::Lost);
    assert!(session.stats().is_none());
    stream.hint_file(&file);
    // Another server takes the name.
    world.server = world.start();
    assert_eq!(read(&world.connect().open(b"file 1").unwrap(), 0, FILE_BYTES), content(1));
}

#[test]
fn reads_that_call_back_and_reads_that_are_given_up() {
    let world = World::new(4 << 20);
    let file = world.connect().open(b"file 1").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    for number in 0..200 {
        let (offset, length) = (number * 4000, 5000 + number);
        let keeper: Arc<[std::sync::atomic::AtomicU8]> =
            (0..length).map(|_| std::sync::atomic::AtomicU8::new(0)).collect();
        let kept: Arc<dyn Send + Sync> = Arc::new(Arc::clone(&keeper));
        // SAFETY: the keeper has these bytes, which are read after the read has ended.
        let lent = unsafe { Lent::new(keeper.as_ptr().cast_mut().cast(), length, kept) };
        let sender = sender.clone();
        file.read_then(lent, offset as u64, move |result| {
            sender.send((offset, keeper, result.unwrap())).unwrap();
        });
    }
    drop(sender);
    let mut all = 0;
    for (offset, bytes, count) in receiver {
        let bytes: Vec<u8> = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        assert_eq!(bytes[..count], content(1)[offset..offset + count]);
        all += 1;
    }
    assert_eq!(all, 200);
}

#[test]
fn many_threads_share_a_session() {
    let world = World::new(40 * BLOCK_BYTES as u64);
    let session = world.connect();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let session = &session;
            scope.spawn(move || {
                let files: Vec<_> = (0..4)
                    .map(|seed| session.open(format!("file {seed}").as_bytes()).unwrap())
                    .collect();
                let mut random = thread as u64 + 1;
                for _ in 0..500 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (seed, offset) =
                        ((random >> 60) as usize % 4, (random >> 33) as usize % FILE_BYTES);
                    let length = (random >> 20) as usize % 20_000;
                    let end = (offset + length).min(FILE_BYTES);
                    assert_eq!(read(&files[seed], offset, length), &content(seed)[offset..end]);
                }
            });
        }
    });
}

#[test]
fn a_server_that_owes_an_answer_for_too_long_counts_as_gone() {
    // A server that says welcome and nothing more.
    let name = format!("silent-{}", std::process::id());
    let world = World::new(1 << 20);
    let at = SocketAddr::from_abstract_name(super::full(&name)).unwrap();
    let listener = UnixListener::bind_addr(&at).unwrap();
    let relay = std::thread::spawn({
        let to = world.name.clone();
        move || {
            // Passes on the real server's welcome, with its descriptors.
            let real = super::reach(super::At::Name(&to)).expect("it answers");
            let (client, _) = listener.accept().unwrap();
            let hello = ToServer::Hello { version: VERSION, recipe: b"files".to_vec() };
            (&real).write_all(&hello.encode()).unwrap();
            super::client::pass_on_welcome(&real, &client);
            client
        }
    });
    let session = FarSession::connect(&name, b"files", Duration::from_millis(300)).unwrap();
    let _client = relay.join().unwrap();
    assert_eq!(session.open(b"file 1").unwrap_err().cause, BackendError::Lost);
    assert!(session.is_lost());
}

#[test]
fn one_client_that_reads_much_takes_bounded_memory() {
    // Each read of it is of many parts, which are asked for as the earlier ones come.
    let world = World::new(64 * BLOCK_BYTES as u64);
    world.files.put("large", vec![5; 64 << 20]);
    let session = world.connect();
    let file = session.open(b"large").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(read(&file, 3, 60 << 20).iter().all(|&byte| byte == 5)));
        }
    });
}

#[test]
fn records_of_more_blocks_than_there_are_cost_the_server_nothing() {
    let world = World::new(1 << 20);
    let session = world.connect();
    world.files.put("large", vec![5; 600 << 20]);
    let file = session.open(b"large").unwrap();
    let before = world.cache.stats().hit_blocks;
    for _ in 0..5000 {
        file.tell(0, 600 << 20, true);
    }
    // It answers, and counts none of them.
    assert_eq!(read(&file, 1, 10), [5; 10]);
    assert!(world.cache.stats().hit_blocks - before < 10);
}

#[test]
fn a_client_that_takes_no_answers_holds_up_nobody_and_finds_them_later() {
    const READS: u64 = 150;
    let world = World::new(8 << 20);
    world.files.put("large", (0..1 << 20).map(|at| (at >> 7) as u8).collect::<Vec<u8>>());
    let raw = super::reach(super::At::Name(&world.name)).expect("it answers");
    raw.set_read_timeout(Some(PATIENCE)).unwrap();
    let send = |message: ToServer| (&raw).write_all(&message.encode());
    send(ToServer::Hello { version: VERSION, recipe: b"files".to_vec() }).unwrap();
    let _memory = super::client::take_welcome(&raw);
    send(ToServer::Open { id: 1, path: b"large".to_vec() }).unwrap();
    let receive = || {
        let mut head = [0; 4];
        (&raw).read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_ne_bytes(head) as usize];
        (&raw).read_exact(&mut body).unwrap();
        body
    };
    let Some(ToClient::Opened { handle, .. }) = ToClient::decode(&receive()) else { panic!() };
    // More than the server takes on for a client: some of them stay in the socket.
    for id in 0..READS {
        send(ToServer::Read { id, handle, offset_bytes: id, length_bytes: (1 << 20) - id as u32 })
            .unwrap();
    }
    let other = world.connect();
    assert_eq!(read(&other.open(b"file 2").unwrap(), 0, FILE_BYTES), content(2));
    let mut answered = [false; READS as usize];
    for _ in 0..READS {
        let body = receive();
        let (id, bytes) = ToClient::data(&body).expect("data");
        assert_eq!(bytes.len(), (1 << 20) - id as usize);
        assert!((id as usize..).zip(bytes).all(|(at, &byte)| byte == (at >> 7) as u8));
        assert!(!std::mem::replace(&mut answered[id as usize], true));
    }
}

/// Bytes of memory that the data of a cache takes.
fn taken_bytes(cache: &Cache) -> u64 {
    let [_, data] = cache.shared.slab.files().expect("it is shared");
    rustix::fs::fstat(data).unwrap().st_blocks as u64 * 512
}

#[test]
fn a_cache_gives_memory_back_and_takes_it_again() {
    let options = CacheOptions { budget_bytes: 8 << 20, block_bytes: BLOCK_BYTES };
    let world = World::of(Cache::new_shared_that_gives_back(options).unwrap());
    let (cache, session) = (&world.cache, world.connect());
    let files: Vec<_> =
        (0..4).map(|seed| session.open(format!("file {seed}").as_bytes()).unwrap()).collect();
    let read_all = || {
        for (seed, file) in files.iter().enumerate() {
            assert_eq!(read(file, 0, FILE_BYTES), content(seed));
        }
    };
    read_all();
    let full_bytes = taken_bytes(cache);
    assert!(full_bytes >= 4 * FILE_BYTES as u64, "{full_bytes}");
    cache.shrink(1 << 20, || false);
    assert_eq!(cache.limit_bytes(), 1 << 20);
    assert!(cache.stats().held_blocks <= 256);
    // Huge pages may be split later.
    assert!(taken_bytes(cache) < full_bytes / 2, "{}", taken_bytes(cache));
    (0..3).for_each(|_| read_all());
    assert!(taken_bytes(cache) < full_bytes / 2, "{}", taken_bytes(cache));
    cache.shrink(0, || false);
    assert_eq!(cache.limit_bytes(), BLOCK_BYTES as u64);
    read_all();
    cache.grow(u64::MAX);
    assert_eq!(cache.limit_bytes(), 8 << 20);
    read_all();
    let before = cache.stats().fetched_bytes;
    read_all();
    assert_eq!(cache.stats().fetched_bytes, before, "all is in memory again");
}

#[test]
fn a_cache_that_keeps_its_memory_takes_no_more() {
    let world = World::new(8 << 20);
    let (cache, session) = (&world.cache, world.connect());
    let open = |seed: usize| session.open(format!("file {seed}").as_bytes()).unwrap();
    assert_eq!(read(&open(0), 0, FILE_BYTES), content(0));
    cache.shrink(0, || false);
    let (limit_bytes, taken) = (cache.limit_bytes(), taken_bytes(cache));
    assert!((FILE_BYTES as u64..4 << 20).contains(&limit_bytes), "{limit_bytes}");
    let before = cache.stats().fetched_bytes;
    assert_eq!(read(&open(0), 0, FILE_BYTES), content(0));
    assert_eq!(cache.stats().fetched_bytes, before, "nothing was given up");
    for seed in [1, 2, 3, 0] {
        assert_eq!(read(&open(seed), 0, FILE_BYTES), content(seed));
    }
    assert!(taken_bytes(cache) <= taken.max(limit_bytes), "{}", taken_bytes(cache));
    cache.grow(u64::MAX);
    assert_eq!(cache.limit_bytes(), 8 << 20);
}

#[test]
fn reads_are_right_while_the_cache_shrinks_and_grows() {
    let options = CacheOptions { budget_bytes: 3 << 20, block_bytes: BLOCK_BYTES };
    let world = World::of(Cache::new_shared_that_gives_back(options).unwrap());
    let own = world.cache.attach(Arc::clone(&world.files) as _).session();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..4_usize {
            let (world, own, is_over) = (&world, &own, &is_over);
            scope.spawn(move || {
                let session = world.connect();
                let (stream, mut random) = (session.stream(), reader as u64 + 1);
                let mut next = |below: usize| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (random >> 33) as usize % below
                };
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next(4);
                    let (at, length) = (next(FILE_BYTES - 1), 1 + next(100_000));
                    let length = length.min(FILE_BYTES - at);
                    let name = format!("file {seed}");
                    let mut bytes = vec![0; length];
                    if reader == 0 {
                        let file = own.open(&name).unwrap();
                        assert_eq!(file.read_at(&mut bytes, at as u64).unwrap(), length);
                    } else {
                        let file = session.open(name.as_bytes()).unwrap();
                        if next(4) == 0 {
                            stream.hint_file(&file);
                        }
                        bytes = read(&file, at, length);
                    }
                    assert!(bytes == content(seed)[at..at + length], "file {seed} at {at}");
                }
            });
        }
        for step in 0..150_u64 {
            match step % 3 {
                0 => world.cache.shrink((step * 7919 % 300) * 4096, || false),
                1 => world.cache.shrink(0, || step % 2 == 0),
                _ => world.cache.grow(step * 104_729 % (4 << 20)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    world.cache.grow(u64::MAX);
    assert_eq!(world.cache.limit_bytes(), 3 << 20);
}
