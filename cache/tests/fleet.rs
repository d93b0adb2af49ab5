//! The shared tier on real servers: each block is fetched once, wrong values are never served, and whatever happens to nodes
//! and servers, reads end with the right bytes.

mod redis;
mod shuffled;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use foretell_cache::backend::conformance::{World, check, content};
use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::backend::{Backend, BackendError, Object, Opened, Request};
use foretell_cache::tier::fleet::{Fleet, FleetStats};
use foretell_cache::{Cache, CacheOptions, Segment};
use redis::Server;
use shuffled::shuffled;

const BLOCK: usize = 8192;
/// Blocks that the cache of a node has room for.
const CACHED: u64 = 64;

/// A store that counts what it is asked for, and may keep requests waiting.
#[derive(Clone)]
struct Origin {
    files: MemoryBackend,
    bytes: Arc<AtomicU64>,
    delay: Duration,
    /// What files say of their versions.
    is_exact: bool,
    /// Requests that are never answered, if it is so.
    is_stuck: Arc<AtomicBool>,
    stuck: Arc<Mutex<Vec<Request>>>,
}

struct Slow(Origin, Arc<dyn Object>);

impl Origin {
    fn new(delay_ms: u64) -> Self {
        Origin {
            files: MemoryBackend::new(),
            bytes: Arc::default(),
            delay: Duration::from_millis(delay_ms),
            is_exact: true,
            is_stuck: Arc::default(),
            stuck: Arc::default(),
        }
    }

    fn of(whole: &[u8], delay_ms: u64) -> Self {
        let origin = Self::new(delay_ms);
        origin.files.put("file", whole);
        origin
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

impl Backend for Origin {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        let opened = self.files.open(path)?;
        let object = Arc::new(Slow(self.clone(), opened.object));
        Ok(Opened { object, is_exact: self.is_exact, ..opened })
    }

    fn depth(&self) -> usize {
        16
    }
}

impl Object for Slow {
    fn start(self: Arc<Self>, request: Request) {
        let Slow(origin, object) = &*self;
        origin.bytes.fetch_add(request.length() as u64, Ordering::SeqCst);
        if origin.is_stuck.load(Ordering::SeqCst) {
            return origin.stuck.lock().unwrap().push(request);
        }
        let (object, delay) = (Arc::clone(object), origin.delay);
        if delay.is_zero() {
            return object.start(request);
        }
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            object.start(request);
        });
    }
}

/// A node: a cache of its own, and a tier of its own at this address.
struct Node {
    fleet: Arc<Fleet>,
    cache: Cache,
    backend: Arc<dyn Backend>,
    told: Arc<Mutex<Vec<String>>>,
}

/// Each node says the address in other words, so that it has connections and a token of its own.
fn node(server: &str, origin: &Origin) -> Node {
    static NODES: AtomicU64 = AtomicU64::new(0);
    let number = NODES.fetch_add(1, Ordering::SeqCst);
    let sign = if server.contains('?') { '&' } else { '?' };
    let fleet = Fleet::open(&format!("{server}{sign}ttl={}s", 3600 + number), BLOCK, None).unwrap();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let lines = Arc::clone(&told);
    fleet.on_trouble(move |trouble| lines.lock().unwrap().push(trouble.to_string()));
    let backend: Arc<dyn Backend> = Arc::new(fleet.over("memory", Arc::new(origin.clone())));
    let options = CacheOptions { budget_bytes: CACHED * BLOCK as u64, block_bytes: BLOCK };
    Node { fleet, cache: Cache::new(options).unwrap(), backend, told }
}

impl Node {
    /// Reads the whole file in an order of its own, disclosed, and compares every byte. `at_half` is called in the middle.
    fn read(&self, whole: &[u8], seed: u64, at_half: impl FnOnce()) {
        let session = self.cache.attach(Arc::clone(&self.backend)).session();
        let file = session.open("file").unwrap();
        let order = shuffled(whole.len().div_ceil(BLOCK) as u64, seed);
        let order: Vec<usize> = order.into_iter().map(|block| block as usize).collect();
        let length_of = |block: usize| BLOCK.min(whole.len() - block * BLOCK);
        let segments: Vec<Segment> = order
            .iter()
            .map(|&block| Segment {
                offset_bytes: (block * BLOCK) as u64,
                length_bytes: length_of(block) as u64,
            })
            .collect();
        let stream = session.stream();
        stream.hint_segments(&file, &segments);
        let (mut buffer, mut at_half) = (vec![0; BLOCK], Some(at_half));
        for (turn, &block) in order.iter().enumerate() {
            if turn == order.len() / 2 {
                at_half.take().unwrap()();
            }
            let (at, length) = (block * BLOCK, length_of(block));
            let read = file.read_at(&mut buffer[..length], at as u64).unwrap();
            assert!(buffer[..read] == whole[at..at + length], "wrong bytes at {at}");
        }
        self.fleet.settle();
    }

    fn stats(&self) -> FleetStats {
        self.fleet.stats()
    }
}

/// Waits for something that happens on any machine, however busy it is.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fails if a test hangs.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _ended = ended;
        test();
    });
    let waited = end.recv_timeout(Duration::from_secs(300));
    assert_ne!(waited, Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn whole() -> Vec<u8> {
    content(9, 3_000_001)
}

struct Tiered(Origin, Box<dyn Backend>);

impl World for Tiered {
    fn backend(&self) -> &dyn Backend {
        self.1.as_ref()
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.files.put(path, bytes);
    }
}

/// Lists are the memory back end's.
impl Tiered {
    fn new(fleet: &Arc<Fleet>) -> Self {
        let origin = Origin::new(0);
        let backend = Box::new(fleet.over("conformance", Arc::new(origin.files.clone())));
        Tiered(origin, backend)
    }
}

#[test]
fn it_does_what_a_back_end_must_empty_and_filled() {
    let Some(server) = Server::start(&[]) else { return };
    for block_bytes in [4096, 65_536] {
        let fleet = Fleet::open(&server.url(""), block_bytes, None).unwrap();
        for _ in 0..3 {
            check(&Tiered::new(&fleet));
            fleet.settle();
        }
        let stats = fleet.stats();
        assert!(stats.hit_blocks > 0 && stats.put_blocks > 0, "{stats:?}");
        assert_eq!((stats.refused_values, stats.server_errors), (0, 0), "{stats:?}");
    }
}

#[test]
fn nodes_fetch_each_block_once_whatever_their_orders_are() {
    let Some(server) = Server::start(&[]) else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 20);
    // A lease that no pause of a busy machine outlasts.
    let nodes: Vec<Node> = (0..4).map(|_| node(&server.url("?lease=60s"), &origin)).collect();
    std::thread::scope(|scope| {
        for (seed, node) in nodes.iter().enumerate() {
            let whole = &whole;
            scope.spawn(move || node.read(whole, seed as u64, || {}));
        }
    });
    let all: Vec<FleetStats> = nodes.iter().map(Node::stats).collect();
    assert_eq!(origin.bytes(), whole.len() as u64, "{all:?}");
    let blocks = whole.len().div_ceil(BLOCK) as u64;
    assert_eq!(all.iter().map(|stats| stats.leases).sum::<u64>(), blocks, "{all:?}");
    assert_eq!(all.iter().map(|stats| stats.put_blocks).sum::<u64>(), blocks, "{all:?}");
    assert!(nodes.iter().all(|node| node.told.lock().unwrap().is_empty()));
    // A node that comes later needs no origin.
    let late = node(&server.url(""), &origin);
    late.read(&whole, 77, || {});
    assert_eq!((origin.bytes(), late.stats().missed_blocks), (whole.len() as u64, 0));
    // Another version of the file has other blocks.
    let other = content(10, whole.len());
    origin.files.put("file", other.as_slice());
    late.read(&other, 5, || {});
    nodes[0].read(&other, 6, || {});
    assert_eq!(origin.bytes(), 2 * whole.len() as u64);
}

#[test]
fn files_without_an_exact_version_are_not_shared() {
    let Some(server) = Server::start(&[]) else { return };
    let whole = whole();
    let origin = Origin { is_exact: false, ..Origin::of(&whole, 0) };
    for turn in 1..3 {
        node(&server.url(""), &origin).read(&whole, 1, || {});
        assert!(origin.bytes() >= turn * whole.len() as u64, "{}", origin.bytes());
    }
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

/// With this variable, [`holder`] gets leases at the server that it names, and fetches nothing.
const HOLDER: &str = "FORETELL_TEST_HOLDER";

#[test]
#[allow(clippy::print_stdout)]
fn holder() {
    let Some(server) = std::env::var_os(HOLDER) else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    origin.is_stuck.store(true, Ordering::SeqCst);
    let node = node(server.to_str().unwrap(), &origin);
    let opened = node.backend.open("file").unwrap();
    let session = node.cache.attach(Arc::clone(&node.backend)).session();
    let file = session.open_found("file", opened);
    let stream = session.stream();
    stream.hint_file(&file);
    eventually("it has leases", || node.stats().leases >= 16);
    println!("holds leases");
    std::thread::sleep(Duration::from_secs(600));
}

/// A process with leases.
fn start_holder(url: &str) -> Child {
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["holder", "--exact", "--nocapture"])
        .env(HOLDER, url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("holds leases")));
    holder
}

#[test]
fn when_the_holder_of_a_lease_dies_others_go_on_after_its_deadline() {
    let Some(server) = Server::start(&[]) else { return };
    let url = server.url("?lease=400ms");
    let mut holder = start_holder(&url);
    // It extends them while it lives.
    std::thread::sleep(Duration::from_secs(1));
    assert!(server.keys().len() >= 16, "{:?}", server.keys());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let whole = whole();
    let origin = Origin::of(&whole, 1);
    let node = node(&url, &origin);
    node.read(&whole, 3, || {});
    let stats = node.stats();
    assert_eq!(stats.put_blocks, whole.len().div_ceil(BLOCK) as u64, "{stats:?}");
    assert_eq!((stats.overdue_blocks, origin.bytes()), (0, whole.len() as u64), "{stats:?}");
}

#[test]
fn who_ends_gives_its_leases_back() {
    in_time(|| {
        let Some(server) = Server::start(&[]) else { return };
        let whole = whole();
        let stuck = Origin::of(&whole, 0);
        stuck.is_stuck.store(true, Ordering::SeqCst);
        // No node would wait for the end of this lease.
        let url = server.url("?lease=24h");
        let first = node(&url, &stuck);
        let session = first.cache.attach(Arc::clone(&first.backend)).session();
        let opened = first.backend.open("file").unwrap();
        let file = session.open_found("file", opened);
        let stream = session.stream();
        stream.hint_file(&file);
        eventually("it has leases", || first.stats().leases >= 16);
        let origin = Origin::of(&whole, 0);
        let second = node(&url, &origin);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| second.read(&whole, 3, || {}));
            eventually("it waits for the first one's blocks", || {
                assert!(!reading.is_finished(), "it waits for the first one's blocks");
                second.stats().waited_blocks > 0
            });
            drop((stream, file, session));
            let Node { fleet, cache, backend, .. } = first;
            stuck.stuck.lock().unwrap().clear(); // The requests fail.
            drop((cache, backend, fleet));
        });
        assert_eq!(second.stats().overdue_blocks, 0, "{:?}", second.stats());
    });
}

#[test]
fn from_a_holder_that_lives_and_never_ends_one_node_takes_each_lease_over() {
    in_time(|| {
        let Some(server) = Server::start(&[]) else { return };
        let whole = whole();
        let stuck = Origin::of(&whole, 0);
        stuck.is_stuck.store(true, Ordering::SeqCst);
        let url = server.url("?lease=1s");
        let holder = node(&url, &stuck);
        let opened = holder.backend.open("file").unwrap();
        let session = holder.cache.attach(Arc::clone(&holder.backend)).session();
        let file = session.open_found("file", opened);
        let stream = session.stream();
        stream.hint_file(&file);
        eventually("it has leases", || holder.stats().leases >= 16);
        // It asks for no more meanwhile: nothing of it is read.
        let held = server.keys().len() as u64;
        let origin = Origin::of(&whole, 0);
        let nodes: Vec<Node> = (0..4).map(|_| node(&url, &origin)).collect();
        std::thread::scope(|scope| {
            for (seed, node) in nodes.iter().enumerate() {
                let whole = &whole;
                scope.spawn(move || node.read(whole, seed as u64, || {}));
            }
        });
        let all: Vec<FleetStats> = nodes.iter().map(Node::stats).collect();
        let overdue: u64 = all.iter().map(|stats| stats.overdue_blocks).sum();
        assert!(overdue >= held, "{held} held: {all:?}");
        // A busy machine may lose a lease or two.
        let fetched = origin.bytes() / BLOCK as u64;
        assert!(fetched < (whole.len() / BLOCK) as u64 + held, "{held} held, {fetched}: {all:?}");
        drop((stream, file, session));
        let Node { fleet, cache, backend, .. } = holder;
        stuck.stuck.lock().unwrap().clear(); // The requests fail.
        drop((cache, backend, fleet));
    });
}

/// With this variable, [`panicking`] passes the point that it names first, with the server that it names then.
const PANICKING: &str = "FORETELL_TEST_PANICKING";

#[test]
fn a_panic_leaves_nothing_behind_that_others_wait_for() {
    let Some(server) = Server::start(&[]) else { return };
    for point in ["foretell-fleet", "foretell-fleet-puts"] {
        server.say(&["FLUSHALL"]);
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["panicking", "--exact", "--nocapture"])
            .env(PANICKING, format!("{point} {}", server.url("?lease=2s")))
            .status();
        assert!(status.unwrap().success(), "{point}");
    }
}

#[test]
fn panicking() {
    let Ok(named) = std::env::var(PANICKING) else { return };
    let (point, server) = named.split_once(' ').unwrap();
    let (point, server) = (point.to_owned(), server.to_owned());
    in_time(move || {
        foretell_fault::arm(point);
        let whole = whole();
        let origin = Origin::of(&whole, 0);
        let first = node(&server, &origin);
        let session = first.cache.attach(Arc::clone(&first.backend)).session();
        let file = session.open("file").unwrap();
        let mut buffer = vec![0; BLOCK];
        for (index, wanted) in whole.chunks(BLOCK).enumerate() {
            let buffer = &mut buffer[..wanted.len()];
            // One request fails.
            let at = (index * BLOCK) as u64;
            eventually("reads go on", || file.read_at(buffer, at).is_ok());
            assert!(buffer == wanted);
        }
        first.fleet.settle();
        // All leases have been given back, or end: no thread extends them.
        let second = node(&server, &origin);
        second.read(&whole, 3, || {});
        let stats = second.stats();
        assert!(stats.hit_blocks > 0 && stats.overdue_blocks == 0, "{stats:?}");
    });
}

#[test]
fn all_that_is_on_the_server_expires_and_a_node_takes_its_orders_back() {
    // Orders are published only where memory has a bound.
    let Some(server) = Server::start(&["--maxmemory", "100mb"]) else { return };
    let orders = || -> Vec<String> {
        let keys = server.keys().into_iter();
        keys.filter(|key| key.starts_with("foretell:1:order:")).collect()
    };
    let url = server.url("");
    let mut holder = start_holder(&url);
    eventually("a process has published its order", || orders().len() == 1);
    let whole = whole();
    let origin = Origin::new(0);
    origin.files.put("other", whole.as_slice());
    let node = node(&url, &origin);
    let session = node.cache.attach(Arc::clone(&node.backend)).session();
    let file = session.open("other").unwrap();
    let stream = session.stream();
    stream.hint_file(&file);
    eventually("so has a node of this one", || orders().len() == 2);
    eventually("and has put blocks", || node.stats().put_blocks > 0);
    let check_times = || {
        let keys = server.keys();
        for key in ["foretell:1:readers", "foretell:1:at:", "foretell:1:order:"] {
            assert!(keys.iter().any(|name| name.starts_with(key)), "{key}: {keys:?}");
        }
        for key in keys {
            let lasts_ms: i64 = server.say(&["PTTL", &key]).parse().unwrap();
            // -2: it has expired meanwhile.
            assert!(lasts_ms >= 0 || lasts_ms == -2, "{key} lasts for ever: {lasts_ms}");
        }
    };
    check_times();
    holder.kill().unwrap();
    holder.wait().unwrap();
    check_times();
    let Node { fleet, cache, backend, .. } = node;
    drop((stream, file, session, cache, backend, fleet));
    eventually("the node has taken its order back", || orders().len() == 1);
}

#[test]
fn when_the_server_is_killed_or_hangs_reads_go_straight_to_the_origin() {
    in_time(|| {
        let Some(mut server) = Server::start(&[]) else { return };
        let whole = whole();
        for is_killed in [true, false] {
            let origin = Origin::of(&whole, 2);
            let nodes: Vec<Node> = (0..2).map(|_| node(&server.url(""), &origin)).collect();
            let halves = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for (seed, node) in nodes.iter().enumerate() {
                    let (whole, server, halves) = (&whole, &server, &halves);
                    scope.spawn(move || {
                        node.read(whole, seed as u64, || {
                            if halves.fetch_add(1, Ordering::SeqCst) == 0 {
                                match is_killed {
                                    true => drop(
                                        Command::new("kill").args(["-9", &server.pid()]).status(),
                                    ),
                                    false => server.freeze(),
                                }
                            }
                        });
                    });
                }
            });
            for node in &nodes {
                let (stats, told) = (node.stats(), node.told.lock().unwrap());
                assert!(stats.server_errors > 0, "{stats:?}");
                assert_eq!(told.len(), 1, "one line: {told:?}");
                assert!(
                    told[0].starts_with(&format!("redis://127.0.0.1:{}: ", server.port)),
                    "{told:?}"
                );
            }
            assert!(origin.bytes() <= 2 * whole.len() as u64, "each node fetches what it lacks");
            // When it is back, it is used again.
            server.thaw();
            server.restart();
            let begun = Instant::now();
            while nodes[0].stats().put_blocks == 0 || server.keys().is_empty() {
                nodes[0].read(&whole, 9, || {});
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", nodes[0].stats());
            }
        }
    });
}

#[test]
fn without_a_server_all_is_as_without_a_tier() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.kill();
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    let node = node(&server.url(""), &origin);
    node.read(&whole, 1, || {});
    let stats = node.stats();
    assert_eq!((stats.hit_blocks, stats.put_blocks), (0, 0));
    let told = node.told.lock().unwrap();
    assert!(told.len() == 1 && told[0].contains("refused"), "{told:?}");
}

#[test]
fn a_wrong_password_is_one_line_without_the_password() {
    let Some(server) = Server::start(&["--requirepass", "right-one"]) else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    for user in [":wrong-one@", ""] {
        let url = format!("redis://{user}127.0.0.1:{}", server.port);
        let node = node(&url, &origin);
        node.read(&whole, 1, || {});
        let told = node.told.lock().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(!told[0].contains("wrong-one"), "{told:?}");
        assert!(told[0].contains("uthentication"), "{told:?}");
    }
    let node = node(&format!("redis://:right-one@127.0.0.1:{}", server.port), &origin);
    node.read(&whole, 1, || {});
    assert!(node.stats().put_blocks > 0 && node.told.lock().unwrap().is_empty());
}

/// Damage that may be done to a value. Returns whether it counts as refused.
fn damage(server: &Server, kind: usize, key: &str, other: &str) -> bool {
    match kind {
        0 => drop(server.say(&["SETRANGE", key, "4000", "damage"])),
        1 => drop(server.say(&["SETRANGE", key, "20000", "longer"])),
        2 => drop(server.say(&["COPY", other, key, "REPLACE"])),
        3 => drop(server.say(&["SET", key, "short"])),
        4 => drop(server.say(&["SET", key, ""])),
        5 => drop((server.say(&["DEL", key]), server.say(&["LPUSH", key, "x"]))),
        6 => drop(server.say(&["SET", key, "ftl-get1too short"])),
        // Cut off in the middle, with the header of all of it.
        7 => drop(server.say(&["EVAL", CUT, "1", key])),
        // A lease without a holder.
        _ => {
            server.say(&["SET", key, "ftl-get1\u{1}nobody's token"]);
            return false;
        }
    }
    true
}

const CUT: &str = "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 4000))";

#[test]
fn damaged_cut_and_swapped_values_are_never_served() {
    let Some(server) = Server::start(&[]) else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    let url = server.url("?lease=200ms");
    node(&url, &origin).read(&whole, 1, || {});
    let mut keys = server.keys();
    keys.sort();
    assert_eq!(keys.len(), whole.len().div_ceil(BLOCK));
    let chosen = keys.iter().step_by(7).take(36);
    let refused: Vec<bool> = chosen
        .enumerate()
        .map(|(turn, key)| damage(&server, turn % 9, key, &keys[7 * turn + 1]))
        .collect();
    let reader = node(&url, &origin);
    reader.read(&whole, 2, || {});
    let stats = reader.stats();
    let wanted = refused.iter().filter(|&&is_refused| is_refused).count() as u64;
    assert!(stats.refused_values >= wanted, "{wanted}: {stats:?}");
    let told = reader.told.lock().unwrap();
    assert!(told.len() == 1 && told[0].contains("damaged or forged"), "{told:?}");
    // All are mended but those that seem to be leases.
    let another = node(&url, &origin);
    another.read(&whole, 3, || {});
    let stats = another.stats();
    assert_eq!(stats.refused_values, 0, "{stats:?}");
    assert!(stats.missed_blocks <= (refused.len() as u64) - wanted, "{stats:?}");
}

#[test]
fn blocks_that_no_node_could_put_are_fetched_at_once() {
    let Some(server) = Server::start(&[]) else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    let url = server.url("?lease=24h");
    node(&url, &origin).read(&whole, 1, || {});
    let script = "for _, key in ipairs(redis.call('KEYS', 'foretell:*')) do redis.call('SET', key, 'ftl-not1') end";
    server.say(&["EVAL", script, "0"]);
    let reader = node(&url, &origin);
    reader.read(&whole, 2, || {});
    let stats = reader.stats();
    assert_eq!((stats.waited_blocks, stats.refused_values, stats.leases), (0, 0, 0), "{stats:?}");
    assert!(stats.missed_blocks >= whole.len().div_ceil(BLOCK) as u64, "{stats:?}");
}

#[test]
fn a_full_server_keeps_what_it_can() {
    for policy in ["noeviction", "allkeys-lru"] {
        let options = ["--maxmemory", "3mb", "--maxmemory-policy", policy];
        let Some(server) = Server::start(&options) else { return };
        let whole = whole();
        let origin = Origin::of(&whole, 1);
        let nodes: Vec<Node> = (0..2).map(|_| node(&server.url("?lease=1s"), &origin)).collect();
        std::thread::scope(|scope| {
            for (seed, node) in nodes.iter().enumerate() {
                let whole = &whole;
                scope.spawn(move || node.read(whole, seed as u64, || {}));
            }
        });
        let all: Vec<FleetStats> = nodes.iter().map(Node::stats).collect();
        assert!(all.iter().all(|stats| stats.server_errors == 0), "{policy}: {all:?}");
        assert!(all.iter().any(|stats| stats.hit_blocks > 0), "{policy}: {all:?}");
        let told: usize = nodes.iter().map(|node| node.told.lock().unwrap().len()).sum();
        assert_eq!(told, 0);
    }
}

/// Leaves the server 5 % of its memory, which is more than connections and orders take.
fn fill(server: &Server) {
    let set = |most: u64| {
        assert_eq!(server.say(&["CONFIG", "SET", "maxmemory", &most.to_string()]), "OK");
    };
    set(1 << 30);
    server.say(&["SETRANGE", "filler", "100000000", "x"]);
    let info = server.say(&["INFO", "memory"]);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    set(used.trim().parse::<u64>().unwrap() * 100 / 95);
}

#[test]
fn the_rights_that_the_guide_names_are_enough() {
    let Some(server) = Server::start(&["--maxmemory", "100mb"]) else { return };
    let guide = include_str!("../../docs/guide/fleet.md");
    let rights =
        guide.lines().find_map(|line| line.trim().strip_prefix("user foretell on >PASSWORD "));
    let rights = rights.expect("the guide has a line of a configuration").split(' ');
    let user = ["ACL", "SETUSER", "foretell", "reset", "on", ">right-one"].into_iter();
    assert_eq!(server.say(&user.chain(rights).collect::<Vec<_>>()), "OK");
    let url = format!("redis://foretell:right-one@127.0.0.1:{}?lease=400ms", server.port);
    let mut holder = start_holder(&url);
    std::thread::sleep(Duration::from_millis(400)); // It extends its leases.
    holder.kill().unwrap();
    holder.wait().unwrap();
    let whole = whole();
    let origin = Origin::of(&whole, 1);
    for is_full in [false, true] {
        if is_full {
            fill(&server);
        }
        let nodes: Vec<Node> = (0..2).map(|_| node(&url, &origin)).collect();
        std::thread::scope(|scope| {
            for (seed, node) in nodes.iter().enumerate() {
                let whole = &whole;
                // Longer than the time between two exchanges of orders.
                let pause = || std::thread::sleep(Duration::from_millis(1200));
                scope.spawn(move || node.read(whole, seed as u64, pause));
            }
        });
        for node in &nodes {
            assert_eq!(node.stats().server_errors, 0, "{:?}", node.told);
            assert!(node.stats().hit_blocks > 0, "{:?}", node.stats());
        }
    }
    assert_eq!(server.say(&["ACL", "LOG"]), "");
}

#[test]
fn a_nearly_full_server_loses_what_all_have_read_and_keeps_what_no_program_has_disclosed() {
    let Some(server) = Server::start(&["--maxmemory", "100mb"]) else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    node(&server.url(""), &origin).read(&whole, 1, || {});
    fill(&server);
    let blocks = || {
        let not_blocks = ["foretell:1:readers", "foretell:1:at:", "foretell:1:order:"];
        let keys = server.keys().into_iter();
        keys.filter(|key| !not_blocks.iter().any(|prefix| key.starts_with(prefix))).count()
    };
    assert_eq!(blocks(), whole.len().div_ceil(BLOCK));
    let (one, other) = (node(&server.url(""), &origin), node(&server.url(""), &origin));
    let block = |index: usize| {
        [Segment { offset_bytes: (index * BLOCK) as u64, length_bytes: BLOCK as u64 }]
    };
    let [session, of_other] =
        [&one, &other].map(|node| node.cache.attach(Arc::clone(&node.backend)).session());
    let [file, file_of_other] = [&session, &of_other].map(|session| session.open("file").unwrap());
    let (stream, first) = (of_other.stream(), session.stream());
    stream.hint_segments(&file_of_other, &block(0));
    first.hint_segments(&file, &block(0));
    let mut buffer = vec![0; BLOCK];
    let mut read = |index: usize| {
        file.read_at(&mut buffer, (index * BLOCK) as u64).unwrap();
        assert!(buffer == whole[index * BLOCK..][..BLOCK], "block {index}");
    };
    // When it knows the orders, a block that is behind all readers goes.
    let mut index = whole.len() / BLOCK - 1;
    eventually("a block goes", || {
        let before = blocks();
        let stream = session.stream();
        stream.hint_segments(&file, &block(index));
        read(index);
        index -= 2;
        std::thread::sleep(Duration::from_millis(200));
        blocks() < before
    });
    // Of others nothing is known.
    let before = blocks();
    (10..50).for_each(&mut read);
    assert_eq!(blocks(), before, "with streams");
    drop(first);
    (50..90).for_each(&mut read);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(blocks(), before, "without");
    assert_eq!(one.stats().missed_blocks, 0, "{:?}", one.stats());
}

/// Three servers that are a cluster.
fn cluster() -> Option<Vec<Server>> {
    let options = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
    let servers: Vec<Server> = (0..3).map(|_| Server::start(&options)).collect::<Option<_>>()?;
    for (server, slots) in servers.iter().zip([(0, 5000), (5001, 11000), (11001, 16383)]) {
        let (first, last) = (slots.0.to_string(), slots.1.to_string());
        assert_eq!(server.say(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]), "OK");
        server.say(&["CLUSTER", "MEET", "127.0.0.1", &servers[0].port.to_string()]);
    }
    let begun = Instant::now();
    let knows_all = |server: &Server| server.say(&["CLUSTER", "SLOTS"]).contains("16383");
    let is_made = |server: &Server| {
        let info = server.say(&["CLUSTER", "INFO"]);
        let slots = server.say(&["CLUSTER", "SLOTS"]);
        let all = ["5000", "11000", "16383"].iter().all(|last| slots.contains(last));
        info.contains("cluster_state:ok") && all && knows_all(server)
    };
    while !servers.iter().all(is_made) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the cluster is not made");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(servers)
}

#[test]
fn a_cluster_shares_blocks_among_its_nodes() {
    let Some(servers) = cluster() else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 1);
    // One that is not there is passed over.
    let url = format!("redis://127.0.0.1:1,127.0.0.1:{}?lease=60s", servers[1].port);
    let nodes: Vec<Node> = (0..2).map(|_| node(&url, &origin)).collect();
    std::thread::scope(|scope| {
        for (seed, node) in nodes.iter().enumerate() {
            let whole = &whole;
            scope.spawn(move || node.read(whole, seed as u64, || {}));
        }
    });
    assert_eq!(origin.bytes(), whole.len() as u64, "{:?}", nodes[0].stats());
    for server in &servers {
        let keys = server.keys().len();
        assert!(keys > 0 && keys < whole.len().div_ceil(BLOCK), "{keys}");
    }
    // Slots move to another node, with nothing in them.
    let ids: Vec<String> = servers.iter().map(|server| server.say(&["CLUSTER", "MYID"])).collect();
    for server in [&servers[0], &servers[1], &servers[2]] {
        for slot in 100..200 {
            server.say(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &ids[1]]);
        }
    }
    nodes[0].read(&whole, 5, || {});
    assert_eq!(nodes[0].stats().server_errors, 0, "{:?}", nodes[0].stats());
}

#[test]
fn when_a_node_of_a_cluster_ends_blocks_of_the_others_are_shared_as_before() {
    let Some(mut servers) = cluster() else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    // The address names one host, the one that ends.
    let node = node(&servers[1].url("?lease=60s"), &origin);
    node.read(&whole, 1, || {});
    let (before, lost) = (node.stats(), servers[1].keys().len() as u64);
    assert_eq!(before.server_errors, 0, "{before:?}");
    servers[1].kill();
    node.read(&whole, 2, || {});
    let after = node.stats();
    let blocks = whole.len().div_ceil(BLOCK) as u64;
    let hits = after.hit_blocks - before.hit_blocks;
    let missed = after.missed_blocks - before.missed_blocks;
    assert!(missed <= lost, "{missed} of {lost} lost: {after:?}");
    assert!(hits + missed + CACHED >= blocks, "{after:?}");
    assert!(after.server_errors > 0, "{after:?}");
    let lines = node.told.lock().unwrap().clone();
    assert!(lines.len() == 1 && lines[0].contains(&servers[1].port.to_string()), "{lines:?}");
    // When it is back, it is used again.
    servers[1].restart();
    let mut seed = 3;
    eventually("the node is used again", || {
        seed += 1;
        node.read(&whole, seed, || {});
        !servers[1].keys().is_empty()
    });
}

#[test]
fn a_cluster_that_does_not_say_where_slots_are_is_one_line() {
    let Some(servers) = cluster() else { return };
    for server in &servers {
        assert_eq!(server.say(&["ACL", "SETUSER", "default", "-cluster"]), "OK");
    }
    let whole = whole();
    let node = node(&servers[1].url(""), &Origin::of(&whole, 0));
    node.read(&whole, 1, || {});
    let lines = node.told.lock().unwrap().clone();
    assert!(lines.len() == 1 && lines[0].contains("allow CLUSTER SLOTS"), "{lines:?}");
}

#[test]
fn a_user_who_may_not_use_scripts_shares_blocks_and_one_line_says_so() {
    let Some(server) = Server::start(&[]) else { return };
    assert_eq!(server.say(&["ACL", "SETUSER", "default", "-eval"]), "OK");
    let whole = content(9, 20 * BLOCK);
    // Fetches take long enough for leases to be extended.
    let node = node(&server.url("?lease=600ms"), &Origin::of(&whole, 400));
    node.read(&whole, 1, || {});
    let (stats, lines) = (node.stats(), node.told.lock().unwrap().clone());
    assert!(stats.put_blocks > 0 && stats.server_errors == 0, "{stats:?}");
    assert!(lines.len() == 1 && lines[0].contains("eval"), "{lines:?}");
}

#[test]
fn connections_may_be_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let words = format!(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
         -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {} -out {}",
        at("key"),
        at("certificate")
    );
    let made = Command::new("openssl").args(words.split(' ')).stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: there is no openssl that makes certificates");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (key, certificate, port) = (at("key"), at("certificate"), port.to_string());
    let options = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-auth-clients", "no"],
    ];
    let Some(server) = Server::start(options.as_flattened()) else { return };
    let mut reader = Command::new(std::env::current_exe().unwrap());
    reader.args(["encrypted", "--exact", "--nocapture"]);
    // Whose certificates are trusted is read from the environment.
    let status = reader.env("SSL_CERT_FILE", &certificate).env(ENCRYPTED, &port).status();
    assert!(status.unwrap().success());
    assert!(!server.keys().is_empty());
}

const ENCRYPTED: &str = "FORETELL_TEST_ENCRYPTED";

#[test]
fn encrypted() {
    let Ok(port) = std::env::var(ENCRYPTED) else { return };
    let whole = whole();
    let origin = Origin::of(&whole, 0);
    let node = node(&format!("rediss://localhost:{port}"), &origin);
    node.read(&whole, 1, || {});
    assert!(node.stats().put_blocks > 0, "{:?} {:?}", node.stats(), node.told);
}
