//! The cache over real back ends, from several threads, against the plain bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foretell_cache::backend::conformance::content;
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::backend::{Backend, BackendError, Object, Opened, Request};
use foretell_cache::tier::{Tier, TierOptions};
use foretell_cache::{Cache, CacheOptions, Lent, Segment, Session};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

const FILES: [(&str, usize); 4] =
    [("a", 1), ("b", 70_000), ("dir/c", 1_000_003), ("dir/d", 4 << 20)];

fn files() -> Vec<(&'static str, Vec<u8>)> {
    FILES.iter().map(|&(path, length)| (path, content(length as u64, length))).collect()
}

fn cache(budget_bytes: u64, block_bytes: usize) -> Cache {
    Cache::new(CacheOptions { budget_bytes, block_bytes }).unwrap()
}

/// Random reads, some of them hinted, with some hints wrong or cancelled. Every byte is compared.
fn read_at_random(session: &Session, files: &[(&str, Vec<u8>)], seed: u64, reads: usize) {
    let mut random = Random(seed);
    let mut buffer = vec![0; 300_000];
    let mut open: Vec<_> = files.iter().map(|(path, _)| session.open(path).unwrap()).collect();
    let mut done = 0;
    while done < reads {
        let stream = session.stream();
        let mut plan = Vec::new();
        for _ in 0..1 + random.below(30) {
            let which = random.below(4) as usize;
            let length = files[which].1.len() as u64;
            let at = random.below(length + 10);
            let most = if random.below(20) == 0 { 300_000 } else { 20_000 };
            plan.push((which, Segment { offset_bytes: at, length_bytes: 1 + random.below(most) }));
        }
        match random.below(4) {
            0 => {}
            1 => {
                plan.iter().for_each(|&(which, segment)| stream.hint_set(&open[which], &[segment]))
            }
            _ => plan
                .iter()
                .for_each(|&(which, segment)| stream.hint_segments(&open[which], &[segment])),
        }
        if random.below(8) == 0 {
            stream.hint_file(&open[3]);
        }
        if random.below(8) == 0 {
            stream.cancel();
        }
        for (which, segment) in plan {
            if random.below(16) == 0 {
                continue; // Hinted and not read.
            }
            let whole = &files[which].1;
            let from = (segment.offset_bytes as usize).min(whole.len());
            let to = (from + segment.length_bytes as usize).min(whole.len());
            let length = segment.length_bytes as usize;
            let read = open[which].read_at(&mut buffer[..length], segment.offset_bytes).unwrap();
            assert_eq!(read, to - from);
            assert!(buffer[..read] == whole[from..to], "{} at {from}", files[which].0);
            done += 1;
        }
        if random.below(4) == 0 {
            let which = random.below(4) as usize;
            open[which] = session.open(files[which].0).unwrap();
        }
    }
}

/// Budgets from one block up; a session for each pair of threads.
fn check(backend: impl Fn() -> Arc<dyn Backend>, reads: usize) {
    let files = files();
    // If everything fits, all of it may be prefetched.
    let (mut demanded_blocks, mut prefetched_blocks) = (0, 0);
    for (budget_bytes, block_bytes) in
        [(4096, 4096), (64 << 10, 8192), (1 << 20, 8192), (64 << 20, 65_536)]
    {
        let cache = cache(budget_bytes, block_bytes);
        let store = cache.attach(backend());
        std::thread::scope(|scope| {
            for session in 0..2 {
                let session_of_two = store.session();
                // The hard case is many reads at once, with nearly all buffers in flight.
                for thread in 0..if budget_bytes <= 64 << 10 { 8 } else { 2 } {
                    let (files, session_of_two) = (&files, session_of_two.clone());
                    let seed = budget_bytes + session * 8 + thread;
                    scope.spawn(move || read_at_random(&session_of_two, files, seed, reads));
                }
            }
        });
        demanded_blocks += cache.stats().demanded_blocks;
        prefetched_blocks += cache.stats().prefetched_blocks;
    }
    assert!(demanded_blocks > 0 && prefetched_blocks > 0, "{demanded_blocks}, {prefetched_blocks}");
}

#[test]
fn over_memory() {
    check(
        || {
            let memory = MemoryBackend::new();
            files().into_iter().for_each(|(path, bytes)| memory.put(path, bytes));
            Arc::new(memory)
        },
        1000,
    );
}

#[test]
fn over_a_second_tier_of_blocks_that_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let tier = Tier::open(&TierOptions {
        folder: folder.path().to_owned(),
        budget_bytes: 2 << 20,
        block_bytes: 8192,
        keep: true,
    })
    .unwrap();
    // Also block sizes that are of little use; they must do no harm.
    check(
        || {
            let memory = MemoryBackend::new();
            files().into_iter().for_each(|(path, bytes)| memory.put(path, bytes));
            Arc::new(tier.over("memory", Arc::new(memory)))
        },
        1000,
    );
    let stats = tier.stats();
    assert!(stats.hit_blocks > 0 && stats.declined_blocks > 0, "{stats:?}");
    assert_eq!((stats.read_errors, stats.write_errors), (0, 0), "{stats:?}");
}

#[test]
fn over_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    for (path, bytes) in files() {
        std::fs::write(folder.path().join(path), bytes).unwrap();
    }
    check(|| Arc::new(LocalBackend::blocking(folder.path(), 8).unwrap()), 1000);
    let backend = LocalBackend::new(folder.path(), None).unwrap();
    if let Some(why) = backend.without_ring() {
        return eprintln!("skipped: io_uring ({why})");
    }
    // With direct I/O, if possible.
    for (path, _) in files() {
        let file = std::fs::File::open(folder.path().join(path)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    check(|| Arc::new(LocalBackend::new(folder.path(), None).unwrap()), 1000);
}

#[test]
fn over_an_object_store() {
    let store = Arc::new(InMemory::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (path, bytes) in files() {
        runtime.block_on(store.put(&Path::from(path), bytes.into())).unwrap();
    }
    check(
        || {
            let options = ObjectOptions::default();
            Arc::new(ObjectBackend::new(store.clone(), Path::default(), options).unwrap())
        },
        500,
    );
}

/// Counts requests and the bytes that they ask for.
#[derive(Default)]
struct Counting {
    requests: AtomicU64,
    bytes: AtomicU64,
    held: std::sync::Mutex<Option<Vec<Request>>>,
}

struct CountingBackend(Arc<Counting>, u64);

impl Backend for CountingBackend {
    fn open(&self, _: &str) -> Result<Opened, BackendError> {
        let object: Arc<dyn Object> = self.0.clone();
        Ok(Opened {
            version: Arc::from([1].as_slice()),
            is_exact: true,
            size_bytes: self.1,
            object,
        })
    }

    fn depth(&self) -> usize {
        32
    }
}

impl Object for Counting {
    fn start(self: Arc<Self>, mut request: Request) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(request.length() as u64, Ordering::Relaxed);
        if let Some(held) = &mut *self.held.lock().unwrap() {
            return held.push(request);
        }
        let zeros = vec![0; request.length()];
        request.fill(&zeros);
        request.complete(Ok(()));
    }
}

#[test]
fn what_is_disclosed_is_asked_for_at_once_and_only_that() {
    let counting = Arc::new(Counting::default());
    *counting.held.lock().unwrap() = Some(Vec::new());
    let cache = cache(64 << 20, 8192);
    let session = cache.attach(Arc::new(CountingBackend(counting.clone(), 1 << 30))).session();
    let file = session.open("file").unwrap();
    let stream = session.stream();
    let order: Vec<Segment> = (0..200u64)
        .map(|turn| Segment { offset_bytes: turn * 7_777_777 % (1 << 29), length_bytes: 131_072 })
        .collect();
    stream.hint_segments(&file, &order);
    assert_eq!(counting.requests.load(Ordering::Relaxed), 32, "as many as the store's depth");
    let held = counting.held.lock().unwrap().take().unwrap();
    for mut request in held {
        let zeros = vec![0; request.length()];
        request.fill(&zeros);
        request.complete(Ok(()));
    }
    let mut buffer = vec![1; 131_072];
    for segment in &order {
        assert_eq!(file.read_at(&mut buffer, segment.offset_bytes).unwrap(), 131_072);
        assert!(buffer.iter().all(|&byte| byte == 0));
    }
    let asked = 200 * 131_072u64;
    let fetched = counting.bytes.load(Ordering::Relaxed);
    assert!(fetched as f64 <= 1.1 * asked as f64, "{fetched} fetched for {asked}");
    let stats = cache.stats();
    assert_eq!((stats.demanded_blocks, stats.wasted_blocks), (0, 0), "{stats:?}");
}

#[test]
fn who_reads_in_order_need_not_wait_for_each_block() {
    let counting = Arc::new(Counting::default());
    let cache = cache(64 << 20, 8192);
    let session = cache.attach(Arc::new(CountingBackend(counting.clone(), 200 << 20))).session();
    let file = session.open("file").unwrap();
    let mut buffer = vec![1; 64 << 10];
    for at in (0..200u64 << 20).step_by(buffer.len()) {
        assert_eq!(file.read_at(&mut buffer, at).unwrap(), buffer.len());
    }
    let stats = cache.stats();
    assert!(stats.demanded_blocks <= 64, "{stats:?}");
    assert_eq!((stats.wasted_blocks, stats.fetched_bytes), (0, 200 << 20), "{stats:?}");
    // A handle that does not read in order is not expected to go on.
    let other = session.open("other").unwrap();
    let before = cache.stats().requests_ahead;
    let mut random = Random(1);
    for _ in 0..2000 {
        let at = random.below((200 << 20) / 8192) * 8192;
        assert_eq!(other.read_at(&mut buffer[..4096], at).unwrap(), 4096);
    }
    assert!(cache.stats().requests_ahead - before < 20, "{:?}", cache.stats());
}

#[test]
fn what_is_hinted_is_not_guessed_too() {
    let counting = Arc::new(Counting::default());
    *counting.held.lock().unwrap() = Some(Vec::new());
    let cache = cache(16 << 20, 8192);
    let size: u64 = 64 << 20;
    let session = cache.attach(Arc::new(CountingBackend(counting.clone(), size))).session();
    let file = session.open("file").unwrap();
    let stream = session.stream();
    let half = Segment { offset_bytes: 0, length_bytes: size / 2 };
    stream.hint_segments(&file, &[half]);
    // Reads in order that wait. They end within a block.
    let hinted = stream.hint_memory();
    for at in 0..4 {
        file.read_buffer_then(vec![1; 1_000_000], at * 1_000_000, |bytes, result| {
            assert_eq!((bytes[5], result.unwrap()), (0, 1_000_000));
        });
    }
    let with_reads = stream.hint_memory();
    assert!(with_reads.all_bytes <= hinted.all_bytes, "{hinted:?} {with_reads:?}");
    let held = counting.held.lock().unwrap().take().unwrap();
    for mut request in held {
        let zeros = vec![0; request.length()];
        request.fill(&zeros);
        request.complete(Ok(()));
    }
    // Where the hint ends, guessing begins.
    let mut buffer = vec![1; 1 << 20];
    for at in (3 << 20..size).step_by(1 << 20) {
        assert_eq!(file.read_at(&mut buffer, at).unwrap(), 1 << 20);
    }
    let stats = cache.stats();
    assert!(stats.demanded_blocks <= 256, "{stats:?}");
    assert_eq!((stats.wasted_blocks, stats.fetched_bytes), (0, size), "{stats:?}");
}

/// Parts of a file are read in another order than they lie, and the kernel's read-ahead goes beyond the end of each.
#[test]
fn what_lies_behind_a_hinted_part_is_not_guessed_nor_taken_for_a_leap() {
    let counting = Arc::new(Counting::default());
    let cache = cache(16 << 20, 8192);
    let (size, part, beyond): (u64, u64, u64) = (128 << 20, 8 << 20, 256 << 10);
    let store = cache.attach(Arc::new(CountingBackend(counting.clone(), size)));
    let session = store.session().through_kernel();
    let file = session.open("file").unwrap();
    let stream = session.stream();
    let parts: Vec<u64> = (0..16).map(|number| number * 5 % 16).collect();
    for number in &parts {
        let segment = Segment { offset_bytes: number * part, length_bytes: part };
        stream.hint_segments(&file, &[segment]);
    }
    let mut buffer = vec![1; 128 << 10];
    for (turn, number) in parts.iter().enumerate() {
        // Behind the last hint, guessing begins.
        let beyond = if turn == 15 { 0 } else { beyond };
        let end = ((number + 1) * part + beyond).min(size);
        for at in (number * part..end).step_by(buffer.len()) {
            assert_eq!(file.read_at(&mut buffer, at).unwrap(), buffer.len());
        }
    }
    let (fetched, read) = (cache.stats().fetched_bytes, size + 14 * beyond);
    assert!(fetched <= read, "{fetched} bytes for {read}");
}

/// Who reads a store itself reads on behind a hint because it wants to, and need not wait for each read.
#[test]
fn what_a_program_reads_behind_a_hinted_part_is_read_ahead() {
    let counting = Arc::new(Counting::default());
    let cache = cache(16 << 20, 16 << 10);
    let (size, record): (u64, u64) = (64 << 20, 1 << 20);
    let session = cache.attach(Arc::new(CountingBackend(counting.clone(), size))).session();
    let file = session.open("file").unwrap();
    let stream = session.stream();
    let begins: Vec<u64> = (0..64).map(|number| number * 5 % 64 * record).collect();
    for &offset_bytes in &begins {
        stream.hint_segments(&file, &[Segment { offset_bytes, length_bytes: 64 << 10 }]);
    }
    let mut buffer = vec![1; 16 << 10];
    for begin in begins {
        for at in (begin..begin + record).step_by(buffer.len()) {
            assert_eq!(file.read_at(&mut buffer, at).unwrap(), buffer.len());
        }
    }
    let (waited, blocks) = (cache.stats().demanded_blocks, size / buffer.len() as u64);
    assert!(waited < blocks / 8, "{waited} of {blocks} blocks");
}

#[test]
fn a_file_that_is_opened_again_has_its_blocks_still() {
    let counting = Arc::new(Counting::default());
    let cache = cache(1 << 20, 8192);
    let session = cache.attach(Arc::new(CountingBackend(counting.clone(), 1 << 19))).session();
    let mut buffer = vec![1; 1 << 19];
    for _ in 0..3 {
        let file = session.open("file").unwrap();
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 1 << 19);
    }
    assert_eq!(counting.bytes.load(Ordering::Relaxed), 1 << 19);
}

/// Blocks fetched for fifty streams, each of which discloses 500 blocks of its own and reads none.
fn fetched_for_nothing(session_of_each: bool) -> u64 {
    let cache = cache(16 << 20, 8192);
    let store = cache.attach(Arc::new(CountingBackend(Arc::default(), 1 << 30)));
    let session = store.session();
    for round in 0..50 {
        let own = store.session();
        let session = if session_of_each { &own } else { &session };
        let file = session.open("file").unwrap();
        let block = |at: u64| Segment { offset_bytes: (round * 500 + at) << 15, length_bytes: 1 };
        let stream = session.stream();
        stream.hint_segments(&file, &(0..500).map(block).collect::<Vec<_>>());
    }
    cache.stats().prefetched_blocks
}

#[test]
fn who_reads_nothing_of_what_it_discloses_gets_nothing_by_another_stream() {
    let (of_one, of_many) = (fetched_for_nothing(false), fetched_for_nothing(true));
    assert!(of_many > 50 * 100 && of_one < of_many / 5, "{of_one} of {of_many}");
}

#[test]
fn what_is_given_up_with_requests_under_way_is_over() {
    let counting = Arc::new(Counting::default());
    *counting.held.lock().unwrap() = Some(Vec::new());
    let cache = cache(1 << 20, 8192);
    let session = cache.attach(Arc::new(CountingBackend(counting.clone(), 1 << 30))).session();
    let file = session.open("file").unwrap();
    let stream = session.stream();
    stream.hint_file(&file);
    drop((stream, file, session, cache));
    let held = counting.held.lock().unwrap().take().unwrap();
    assert!(!held.is_empty());
    drop(held);
    assert_eq!(Arc::strong_count(&counting), 1, "all that held it has gone");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let of = |budget_bytes, block_bytes| Cache::new(CacheOptions { budget_bytes, block_bytes });
    for (error, part) in [
        (of(1 << 20, 5000).unwrap_err(), "a power of two"),
        (of(1 << 20, 1024).unwrap_err(), "a power of two"),
        (of(8000, 8192).unwrap_err(), "does not hold one block"),
        (of(1 << 62, 8192).unwrap_err(), "bytes of memory"),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(LocalBackend::new(folder.path().join("absent"), None).is_err());
    let wrong = ObjectBackend::at("ftp://somewhere", ObjectOptions::default()).unwrap_err();
    assert!(wrong.to_string().contains("begins with s3://"), "{wrong}");
}

#[test]
fn a_file_open_outlives_its_store() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), vec![7; 100_000]).unwrap();
    let backend = LocalBackend::new(folder.path(), None).unwrap();
    let session = cache(1 << 20, 8192).attach(Arc::new(backend)).session();
    let file = session.open("file").unwrap();
    drop(session);
    let mut buffer = vec![0; 100_000];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 100_000);
    assert!(buffer.iter().all(|&byte| byte == 7));
}

#[test]
fn who_gives_up_leaves_memory_that_is_kept_until_the_read_ends() {
    struct Memory(std::cell::UnsafeCell<Vec<u8>>);
    // SAFETY: only the cache uses it while it is lent, and this test afterwards.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    let backend = Arc::new(Held::default());
    let file =
        cache(1 << 20, 8192).attach(Arc::clone(&backend) as _).session().open("file").unwrap();
    let memory = Arc::new(Memory(vec![0; 50_000].into()));
    let lend = || {
        // SAFETY: nothing else uses it while it is kept.
        unsafe { Lent::new((*memory.0.get()).as_mut_ptr(), 50_000, Arc::clone(&memory) as _) }
    };
    assert_eq!(file.read_lent(lend(), 100, &mut || true).unwrap(), None);
    assert!(Arc::strong_count(&memory) > 1);
    backend.go_on();
    assert_eq!(Arc::strong_count(&memory), 1);
    assert_eq!(file.read_lent(lend(), 100, &mut || false).unwrap(), Some(50_000));
    // SAFETY: nothing else uses it.
    assert!(unsafe { (*memory.0.get()).iter().all(|&byte| byte == 9) });
}

/// One reader without blocking threads: many reads in flight at once, every byte compared.
#[test]
fn who_is_called_gets_what_who_waits_does() {
    let files = files();
    let backend = MemoryBackend::new();
    files.iter().for_each(|(path, whole)| backend.put(path, whole.as_slice()));
    for budget_bytes in [8192, 1 << 20] {
        let session = cache(budget_bytes, 8192).attach(Arc::new(backend.clone())).session();
        let open: Vec<_> = files.iter().map(|(path, _)| session.open(path).unwrap()).collect();
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut random = Random(7);
        for turn in 0..2000 {
            let which = random.below(4) as usize;
            let length = if turn % 50 == 0 { 3 << 20 } else { random.below(30_000) as usize };
            let at = random.below(files[which].1.len() as u64 + 10);
            let sender = sender.clone();
            open[which].read_buffer_then(vec![0; length], at, move |bytes, read| {
                sender.send((which, at as usize, bytes, read)).unwrap();
            });
        }
        drop(sender);
        let mut done = 0;
        for (which, at, bytes, read) in receiver {
            let whole = &files[which].1;
            let (from, to) = (at.min(whole.len()), (at + bytes.len()).min(whole.len()));
            assert_eq!(read.unwrap(), to - from);
            assert!(bytes[..to - from] == whole[from..to], "{} at {from}", files[which].0);
            done += 1;
        }
        assert_eq!(done, 2000);
        // A file that is all in memory, and one of which nothing is.
        let small = session.open("b").unwrap();
        let mut buffer = vec![0; 70_000];
        small.read_at(&mut buffer, 0).unwrap();
        let cached: u64 = small.cached().iter().map(|range| range.end - range.start).sum();
        assert!(if budget_bytes > 8192 { cached == 70_000 } else { cached <= 8192 }, "{cached}");
    }
}

#[test]
fn who_is_called_is_told_of_errors_once_and_last() {
    let backend = Arc::new(Held::default());
    let file =
        cache(64 << 20, 8192).attach(Arc::clone(&backend) as _).session().open("file").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    file.read_buffer_then(vec![0; 40_000], 0, move |_, read| sender.send(read).unwrap());
    assert!(receiver.try_recv().is_err(), "nothing has come");
    backend.fail();
    let error = receiver.recv().unwrap().unwrap_err();
    assert_eq!((error.offset_bytes, error.cause), (0, BackendError::Lost));
    assert!(receiver.recv().is_err(), "it is called once");
}

#[test]
fn a_callback_that_panics_holds_up_no_other_read() {
    let backend = Arc::new(Held::default());
    let file =
        cache(64 << 20, 8192).attach(Arc::clone(&backend) as _).session().open("file").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    for number in 0..4 {
        let sender = sender.clone();
        file.read_buffer_then(vec![0; 8192], 81_920 * number, move |_, read| {
            assert!(number % 2 == 1, "a panic of a callback, which this test wants");
            sender.send(read).unwrap();
        });
    }
    drop(sender);
    // All of them end in this thread.
    backend.fail();
    assert_eq!(receiver.into_iter().filter(Result::is_err).count(), 2);
}

/// A file whose reads wait for [`Held::go_on`].
#[derive(Clone, Default)]
struct Held(Arc<std::sync::Mutex<(bool, Vec<Request>)>>);

impl Held {
    /// Ends all waiting reads without an answer.
    fn fail(&self) {
        let waiting = std::mem::take(&mut self.0.lock().unwrap().1);
        drop(waiting);
    }

    fn serve(mut request: Request) {
        request.fill(&vec![9; request.length()]);
        request.complete(Ok(()));
    }

    fn go_on(&self) {
        let mut held = self.0.lock().unwrap();
        held.0 = true;
        let requests = std::mem::take(&mut held.1);
        drop(held);
        requests.into_iter().for_each(Held::serve);
    }
}

impl Backend for Held {
    fn open(&self, _: &str) -> Result<Opened, BackendError> {
        let object = Arc::new(self.clone());
        Ok(Opened { version: [1][..].into(), is_exact: true, size_bytes: 1 << 20, object })
    }

    fn depth(&self) -> usize {
        4
    }
}

impl Object for Held {
    fn start(self: Arc<Self>, request: Request) {
        let mut held = self.0.lock().unwrap();
        if held.0 {
            drop(held);
            return Held::serve(request);
        }
        held.1.push(request);
    }
}

#[test]
fn files_that_are_closed_again_and_again_push_nobody_out() {
    let backend = MemoryBackend::new();
    for name in ["kept", "often", "other"] {
        backend.put(name, content(1, 8192));
    }
    let cache = cache(8 * 8192, 8192);
    let session = cache.attach(Arc::new(backend)).session();
    let read = |name: &str| session.open(name).unwrap().read_at(&mut [0; 8192], 0).unwrap();
    assert_eq!(read("kept"), 8192);
    for _ in 0..100 {
        drop(session.open("often").unwrap());
        drop(session.open("other").unwrap());
    }
    let hits = cache.stats().hit_blocks;
    assert_eq!(read("kept"), 8192);
    assert_eq!(cache.stats().hit_blocks, hits + 1, "{:?}", cache.stats());
}

#[test]
fn all_handles_on_a_version_know_that_it_has_been_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("a");
    std::fs::write(&place, content(1, 40_000)).unwrap();
    let cache = cache(1 << 20, 4096);
    let session = cache.attach(Arc::new(LocalBackend::new(folder.path(), None).unwrap())).session();
    let first = session.open("a").unwrap();
    let second = first.another();
    drop(first.another()); // Closes itself alone.
    assert_eq!(second.version(), first.version());
    let mut buffer = vec![0; 100];
    assert_eq!(first.read_at(&mut buffer, 1000).unwrap(), 100);
    assert_eq!(buffer, content(1, 40_000)[1000..1100]);
    std::fs::write(&place, content(2, 50_000)).unwrap();
    assert_eq!(second.size_bytes(), 40_000);
    assert!(!first.is_stale());
    assert_eq!(second.read_at(&mut buffer, 39_000).unwrap_err().cause, BackendError::Changed);
    assert!(first.is_stale() && second.is_stale() && second.another().is_stale());
    assert!(!session.open("a").unwrap().is_stale());
}
