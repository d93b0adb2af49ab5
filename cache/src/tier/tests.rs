//! The tier on a disk that fails, forgets and changes data, in front of files that are replaced: never a wrong byte, and never
//! an error that is not the store's own.

use std::io::IoSliceMut;
use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex, MutexGuard};

use proptest::prelude::*;

use super::disk::Disk;
use super::shared::{FAILURES, Pause};
use super::*;
use crate::backend::Backend;
use crate::backend::conformance::content;
use crate::backend::memory::MemoryBackend;
use crate::buffer::UNIT;
use crate::{Cache, CacheOptions, Segment, Session};

const BLOCK: usize = 4096;

/// A disk whose contents outlive the tier that has it open.
#[derive(Default)]
struct Platter {
    data: Mutex<Vec<u8>>,
    index: Mutex<Vec<u8>>,
    /// Room for data, in bytes.
    room: AtomicU64,
    fails_reads: AtomicBool,
    fails_writes: AtomicBool,
    writes: AtomicU64,
}

impl Platter {
    fn new() -> Arc<Self> {
        Arc::new(Platter { room: AtomicU64::new(u64::MAX), ..Platter::default() })
    }

    fn index(&self) -> MutexGuard<'_, Vec<u8>> {
        self.index.lock().unwrap()
    }

    fn data(&self) -> MutexGuard<'_, Vec<u8>> {
        self.data.lock().unwrap()
    }
}

fn read(from: &[u8], into: &mut [u8], at: u64) -> usize {
    let from = from.get(at as usize..).unwrap_or(&[]);
    let length = into.len().min(from.len());
    into[..length].copy_from_slice(&from[..length]);
    length
}

fn write(into: &mut Vec<u8>, from: &[u8], at: u64) {
    let end = at as usize + from.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[at as usize..end].copy_from_slice(from);
}

impl Disk for Arc<Platter> {
    fn read_data(&self, into: &mut [IoSliceMut<'_>], offset_bytes: u64) -> io::Result<usize> {
        if self.fails_reads.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        assert!(offset_bytes.is_multiple_of(UNIT as u64));
        let data = self.data();
        let mut done = 0;
        for piece in into {
            assert!(piece.len().is_multiple_of(UNIT));
            done += read(&data, piece, offset_bytes + done as u64);
        }
        Ok(done)
    }

    fn write_data(&self, from: &[&[u8]], offset_bytes: u64) -> io::Result<()> {
        if self.fails_writes.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let mut at = offset_bytes;
        for piece in from {
            assert!(piece.len().is_multiple_of(UNIT));
            if at + piece.len() as u64 > self.room.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            write(&mut self.data(), piece, at);
            self.writes.fetch_add(1, Ordering::SeqCst);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn read_index(&self, into: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        Ok(read(&self.index(), into, offset_bytes))
    }

    fn write_index(&self, from: &[u8], offset_bytes: u64) -> io::Result<()> {
        if self.fails_writes.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        write(&mut self.index(), from, offset_bytes);
        Ok(())
    }

    fn cut(&self, index_bytes: u64, data_bytes: u64) -> io::Result<()> {
        self.index().truncate(index_bytes as usize);
        self.data().truncate(data_bytes as usize);
        Ok(())
    }
}

/// Pauses so short that the disk is tried again at once.
const NO_PATIENCE: Patience = Patience { first: Duration::ZERO, most: Duration::ZERO };

fn tier(platter: &Arc<Platter>, slots: Slot) -> Arc<Tier> {
    Tier::start(Box::new(Arc::clone(platter)), slots, (BLOCK, true), NO_PATIENCE).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A store whose files are replaced, a cache, and the tier between them.
struct World {
    platter: Arc<Platter>,
    tier: Arc<Tier>,
    remote: Arc<MemoryBackend>,
    session: Session,
    files: Vec<Vec<u8>>,
    slots: Slot,
    frames: u64,
    version: u64,
}

impl World {
    fn new(frames: u64, slots: Slot) -> Self {
        let platter = Platter::new();
        let remote = Arc::new(MemoryBackend::new());
        let lengths = [1, 4096, 100_000, 400_001];
        let files: Vec<Vec<u8>> =
            lengths.iter().map(|&length| content(length as u64, length)).collect();
        for (number, bytes) in files.iter().enumerate() {
            remote.put(&number.to_string(), bytes.clone());
        }
        let tier = tier(&platter, slots);
        let session = World::session(&tier, &remote, frames);
        World { platter, tier, remote, session, files, slots, frames, version: 0 }
    }

    fn session(tier: &Arc<Tier>, remote: &Arc<MemoryBackend>, frames: u64) -> Session {
        let budget_bytes = frames * BLOCK as u64;
        let cache = Cache::new(CacheOptions { budget_bytes, block_bytes: BLOCK }).unwrap();
        let remote = Arc::clone(remote) as Arc<dyn Backend>;
        cache.attach(Arc::new(tier.over("memory", remote))).session()
    }

    fn replace(&mut self, which: usize) {
        self.version += 1;
        self.files[which] = content(self.version + 1000, self.files[which].len());
        self.remote.put(&which.to_string(), self.files[which].clone());
    }

    /// Restarts the process.
    fn restart(&mut self) {
        self.tier.settle();
        let mut gone = tier(&Platter::new(), 1);
        std::mem::swap(&mut self.tier, &mut gone);
        self.session = World::session(&self.tier, &self.remote, self.frames);
        drop(gone);
        self.tier = tier(&self.platter, self.slots);
        self.session = World::session(&self.tier, &self.remote, self.frames);
    }

    fn read(&self, random: &mut Random, reads: usize) {
        let open: Vec<_> =
            (0..self.files.len()).map(|which| self.session.open(&which.to_string())).collect();
        let stream = self.session.stream();
        let mut plan = Vec::new();
        for _ in 0..reads {
            let which = random.below(self.files.len() as u64) as usize;
            let length = self.files[which].len() as u64;
            let offset_bytes = random.below(length);
            let length_bytes = 1 + random.below((length - offset_bytes).min(60_000));
            plan.push((which, Segment { offset_bytes, length_bytes }));
        }
        if random.below(3) > 0 {
            for &(which, segment) in &plan {
                stream.hint_segments(open[which].as_ref().unwrap(), &[segment]);
            }
        }
        if random.below(4) == 0 {
            stream.hint_file(open[3].as_ref().unwrap());
        }
        let mut buffer = vec![0; 60_000];
        for (which, segment) in plan {
            let (at, length) = (segment.offset_bytes as usize, segment.length_bytes as usize);
            let file = open[which].as_ref().unwrap();
            let read = file.read_at(&mut buffer[..length], segment.offset_bytes).unwrap();
            assert_eq!(read, length);
            assert!(buffer[..length] == self.files[which][at..at + length], "{which} at {at}");
        }
    }
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    if !bytes.is_empty() {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 + random.below(255) as u8;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read,
    Replace(usize),
    Restart,
    /// Of the data, or the index.
    Flip(bool),
    /// The disk gives or takes half of something from somewhere.
    Tear,
    Cut(u16),
    FailReads(bool),
    FailWrites(bool),
    Room(Option<u16>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => Just(Step::Read),
        2 => (0usize..4).prop_map(Step::Replace),
        2 => Just(Step::Restart),
        3 => any::<bool>().prop_map(Step::Flip),
        2 => Just(Step::Tear),
        1 => any::<u16>().prop_map(Step::Cut),
        1 => any::<bool>().prop_map(Step::FailReads),
        1 => any::<bool>().prop_map(Step::FailWrites),
        1 => prop::option::of(any::<u16>()).prop_map(Step::Room),
    ]
}

proptest! {
    // A case takes some time, so there are fewer of them. PROPTEST_CASES sets their number.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 5,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_becomes_of_the_disk_every_byte_is_right(
        steps in prop::collection::vec(step(), 1..40),
        frames in prop_oneof![1..4u64, 8..60u64],
        slots in prop_oneof![1..4u32, 20..400u32],
        seed: u64,
    ) {
        let mut world = World::new(frames, slots);
        let mut random = Random(seed);
        for step in steps {
            match step {
                Step::Read => world.read(&mut random, 12),
                Step::Replace(which) => world.replace(which),
                Step::Restart => world.restart(),
                Step::Flip(true) => flip(&mut world.platter.data(), &mut random),
                Step::Flip(false) => flip(&mut world.platter.index(), &mut random),
                Step::Tear => {
                    // Moves a block or a part of one, as after a lost write.
                    let mut data = world.platter.data();
                    let length = data.len() as u64;
                    if length > 0 {
                        let (from, to) = (random.below(length), random.below(length));
                        let count = (1 + random.below(9000)).min(length - from.max(to)) as usize;
                        data.copy_within(from as usize..from as usize + count, to as usize);
                    }
                }
                Step::Cut(at) => {
                    world.platter.data().truncate(usize::from(at) * 8);
                    world.platter.index().truncate(usize::from(at) * 2);
                }
                Step::FailReads(fails) => world.platter.fails_reads.store(fails, Ordering::SeqCst),
                Step::FailWrites(fails) => {
                    world.platter.fails_writes.store(fails, Ordering::SeqCst);
                }
                Step::Room(room) => {
                    let room = room.map_or(u64::MAX, |room| u64::from(room) * 8);
                    world.platter.room.store(room, Ordering::SeqCst);
                }
            }
        }
        // Faults stop: the tier works again without being reopened.
        world.platter.fails_reads.store(false, Ordering::SeqCst);
        world.platter.fails_writes.store(false, Ordering::SeqCst);
        world.platter.room.store(u64::MAX, Ordering::SeqCst);
        world.read(&mut random, 60);
        world.tier.settle();
        let before = world.tier.stats();
        (0..3).for_each(|which| world.replace(which));
        world.read(&mut random, 60);
        world.tier.settle();
        let after = world.tier.stats();
        let lost = |stats: &TierStats| (stats.dropped_blocks, stats.write_errors, stats.read_errors);
        prop_assert_eq!(lost(&before), lost(&after));
        let offered = |stats: &TierStats| stats.written_blocks + stats.declined_blocks;
        prop_assert!(offered(&after) > offered(&before), "{:?}", after);
    }
}

/// The messages of the tier from now on.
fn told(tier: &Tier) -> Arc<Mutex<Vec<String>>> {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&lines);
    tier.on_trouble(move |trouble| told.lock().unwrap().push(trouble.to_string()));
    lines
}

/// Reads all of a file in order and compares its bytes.
fn read_whole(world: &World, which: usize) {
    let file = world.session.open(&which.to_string()).unwrap();
    let mut buffer = vec![0; world.files[which].len()];
    for (at, piece) in buffer.chunks_mut(BLOCK).enumerate() {
        file.read_at(piece, (at * BLOCK) as u64).unwrap();
    }
    assert!(buffer == world.files[which]);
}

#[test]
fn what_was_fetched_once_comes_from_the_tier_also_after_a_restart() {
    let mut world = World::new(4, 400);
    read_whole(&world, 3);
    world.tier.settle();
    let stats = world.tier.stats();
    assert_eq!((stats.written_blocks, stats.hit_blocks, stats.dropped_blocks), (98, 0, 0));
    assert_eq!(stats.missed_blocks, 98);
    read_whole(&world, 3);
    let stats = world.tier.stats();
    assert_eq!(stats.missed_blocks, 98, "{stats:?}");
    assert!(stats.hit_blocks >= 94, "{stats:?}");
    world.restart();
    assert_eq!(world.tier.stats().found_blocks, 98);
    read_whole(&world, 3);
    assert_eq!(world.tier.stats().missed_blocks, 0, "{:?}", world.tier.stats());
    // Another version is another file.
    world.replace(3);
    read_whole(&world, 3);
    assert_eq!(world.tier.stats().missed_blocks, 98, "{:?}", world.tier.stats());
}

#[test]
fn damaged_blocks_are_counted_and_fetched_anew() {
    let mut world = World::new(4, 400);
    let told = told(&world.tier);
    read_whole(&world, 3);
    world.tier.settle();
    for block in 0..10 {
        world.platter.data()[block * 5 * BLOCK + 17] ^= 1;
    }
    read_whole(&world, 3);
    let stats = world.tier.stats();
    assert_eq!((stats.corrupt_blocks, stats.missed_blocks), (10, 108), "{stats:?}");
    assert_eq!(told.lock().unwrap().len(), 1, "ten of them are one line");
    assert!(told.lock().unwrap()[0].starts_with("corrupted blocks on the disk, 1 so far"));
    world.tier.settle();
    read_whole(&world, 3);
    assert_eq!(world.tier.stats().missed_blocks, 108, "they are there again");
    // A damaged header: an empty tier.
    world.tier.settle();
    world.platter.index()[20] ^= 1;
    world.restart();
    assert_eq!(world.tier.stats().found_blocks, 0);
    read_whole(&world, 3);
}

#[test]
fn a_full_disk_is_used_as_far_as_it_goes_and_further_when_there_is_room() {
    let mut world = World::new(4, 400);
    world.platter.room.store(20 * BLOCK as u64, Ordering::SeqCst);
    let told = told(&world.tier);
    read_whole(&world, 3);
    world.tier.settle();
    let stats = world.tier.stats();
    assert!(stats.write_errors > 0 && stats.dropped_blocks > 0, "{stats:?}");
    assert!((1..=20).contains(&stats.held_blocks), "{stats:?}");
    assert_eq!(stats.held_bytes, stats.held_blocks * BLOCK as u64);
    assert_eq!(told.lock().unwrap().len(), 1, "{told:?}");
    assert!(told.lock().unwrap()[0].contains("only as far as there is room"), "{told:?}");
    read_whole(&world, 3);
    world.platter.room.store(u64::MAX, Ordering::SeqCst);
    read_whole(&world, 3);
    world.tier.settle();
    assert_eq!(world.tier.stats().held_blocks, 98, "{:?}", world.tier.stats());
    world.restart();
    assert_eq!(world.tier.stats().held_blocks, 98);
}

#[test]
fn a_disk_that_fails_is_left_alone_for_a_while() {
    let platter = Platter::new();
    let patience = Patience { first: Duration::from_secs(3600), most: Duration::from_secs(3600) };
    let tier = Tier::start(Box::new(Arc::clone(&platter)), 100, (BLOCK, true), patience).unwrap();
    let told = told(&tier);
    let remote = Arc::new(MemoryBackend::new());
    let bytes = content(1, 100 * BLOCK);
    remote.put("file", bytes.clone());
    let session = World::session(&tier, &remote, 2);
    let read = |blocks: std::ops::Range<usize>| {
        let file = session.open("file").unwrap();
        let mut buffer = vec![0; BLOCK];
        for block in blocks {
            file.read_at(&mut buffer, (block * BLOCK) as u64).unwrap();
            assert!(buffer == bytes[block * BLOCK..(block + 1) * BLOCK]);
            tier.settle();
        }
    };
    read(0..50);
    let held = tier.stats().held_blocks;
    assert!(held >= 50);
    platter.fails_reads.store(true, Ordering::SeqCst);
    read(0..50);
    let stats = tier.stats();
    // Reads that were in flight then fail as well.
    let most = u64::from(FAILURES) + READERS as u64;
    assert!((u64::from(FAILURES)..=most).contains(&stats.read_errors), "{stats:?}");
    platter.fails_reads.store(false, Ordering::SeqCst);
    platter.fails_writes.store(true, Ordering::SeqCst);
    read(50..100);
    let stats = tier.stats();
    assert!(stats.write_errors <= 1 && stats.dropped_blocks > 0, "{stats:?}");
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("cannot read from the disk: "), "{told:?}");
    assert!(told[1].starts_with("cannot write to the disk: "), "{told:?}");
}

#[test]
fn what_is_left_alone_is_tried_again() {
    let short = Duration::from_millis(1);
    let mut pause = Pause::new(Patience { first: short, most: short * 3 });
    assert!(pause.is_over());
    let mut lengths = Vec::new();
    for _ in 0..4 {
        lengths.push(pause.next);
        pause.begin();
        assert!(pause.until.is_some());
        while !pause.is_over() {
            std::thread::yield_now();
        }
    }
    assert_eq!(lengths, [1, 2, 3, 3].map(Duration::from_millis));
    pause.went_well();
    assert_eq!((pause.until, pause.next), (None, short));
}

#[test]
fn a_slow_disk_holds_up_nobody() {
    /// A disk whose writes wait.
    struct Slow(Arc<Platter>, Arc<(Mutex<bool>, Condvar)>);
    impl Disk for Slow {
        fn read_data(&self, into: &mut [IoSliceMut<'_>], at: u64) -> io::Result<usize> {
            self.0.read_data(into, at)
        }
        fn write_data(&self, from: &[&[u8]], at: u64) -> io::Result<()> {
            let mut goes_on = self.1.0.lock().unwrap();
            while !*goes_on {
                goes_on = self.1.1.wait(goes_on).unwrap();
            }
            self.0.write_data(from, at)
        }
        fn read_index(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
            self.0.read_index(into, at)
        }
        fn write_index(&self, from: &[u8], at: u64) -> io::Result<()> {
            self.0.write_index(from, at)
        }
        fn cut(&self, index_bytes: u64, data_bytes: u64) -> io::Result<()> {
            self.0.cut(index_bytes, data_bytes)
        }
    }
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let disk = Box::new(Slow(Platter::new(), Arc::clone(&gate)));
    let tier = Tier::start(disk, 100_000, (BLOCK, true), NO_PATIENCE).unwrap();
    let remote = Arc::new(MemoryBackend::new());
    let length = STAGED_MAX_BYTES + (8 << 20);
    remote.put("file", vec![7; length]);
    let session = World::session(&tier, &remote, 64);
    let file = session.open("file").unwrap();
    let mut buffer = vec![0; 1 << 20];
    for at in (0..length).step_by(buffer.len()) {
        assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), buffer.len());
    }
    let stats = tier.stats();
    assert_eq!(stats.written_blocks, 0);
    assert_eq!(stats.dropped_blocks, (8 << 20) / BLOCK as u64);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    tier.settle();
    assert_eq!(tier.stats().written_blocks, (STAGED_MAX_BYTES / BLOCK) as u64);
}

/// A store that answers on command.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<crate::backend::Request>>>);

impl Backend for Held {
    fn open(&self, _: &str) -> Result<crate::backend::Opened, crate::backend::BackendError> {
        let object = Arc::new(self.clone());
        Ok(crate::backend::Opened {
            version: [1][..].into(),
            is_exact: true,
            size_bytes: 1 << 20,
            object,
        })
    }

    fn depth(&self) -> usize {
        8
    }
}

impl crate::backend::Object for Held {
    fn start(self: Arc<Self>, request: crate::backend::Request) {
        self.0.lock().unwrap().push(request);
    }
}

#[test]
fn all_may_go_while_requests_are_under_way() {
    for is_answered in [false, true] {
        let (platter, remote) = (Platter::new(), Held::default());
        let tier = tier(&platter, 400);
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: BLOCK }).unwrap();
        let session = cache.attach(Arc::new(tier.over("held", Arc::new(remote.clone())))).session();
        let file = session.open("file").unwrap();
        let stream = session.stream();
        stream.hint_file(&file);
        drop((stream, file, session, cache, tier));
        let requests = std::mem::take(&mut *remote.0.lock().unwrap());
        assert!(!requests.is_empty());
        for mut request in requests {
            if is_answered {
                request.fill(&vec![3; request.length()]);
                request.complete(Ok(()));
            }
        }
        // Requests that were begun since then.
        remote.0.lock().unwrap().clear();
        assert_eq!(Arc::strong_count(&platter), 1, "nothing holds the disk any more");
    }
}
