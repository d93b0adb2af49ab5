//! Hints without order, whose blocks are read in any order.

use foretell_policy::{
    Access, Block, Config, DeviceId, FileId, Hint, HinterId, Memory, Nanos, Order, Outcome, Policy,
    ReaderId, Target, Work,
};

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const READER: ReaderId = ReaderId(1);
/// The most blocks in memory.
const CAPACITY: u64 = 1000;

/// A stream of files, numbered from 0, each read in any order; and the results.
struct Sets {
    policy: Policy,
    hits: u64,
    /// Blocks fetched for files before the one that was begun last.
    left: u64,
    begun: u64,
}

impl Sets {
    fn new(files: u64, blocks: u64) -> Self {
        let memory = Memory::Kernel { keeps: false };
        let config = Config {
            capacity_blocks: CAPACITY,
            cluster_blocks_max: 1,
            ..Config::new(memory, 10, 1)
        };
        let mut policy = Policy::new(config);
        let stream = policy.open_stream(NOW, HinterId(1), None);
        for file in 0..files {
            let target = Target::File { file: FileId(file), size_bytes: blocks * 10 };
            let hint = Hint { order: Order::Any, ..Hint::whole_file(target, DISK) };
            policy.hint(NOW, stream, hint);
        }
        Sets { policy, hits: 0, left: 0, begun: 0 }
    }

    /// Fetches everything that is worth it, then reads the block.
    fn read(&mut self, file: u64, index: u64) {
        while let Some(fetch) = self.policy.next_fetch(NOW, DISK) {
            let Work::Read { file, .. } = fetch.work else { unreachable!("all files are known") };
            self.left += u64::from(file.0 < self.begun);
            self.policy.completed(NOW, fetch.id, Outcome::Fetched);
        }
        self.begun = self.begun.max(file);
        let block = Block { file: FileId(file), index };
        self.hits += u64::from(self.policy.read(NOW, READER, block, false) == Access::Hit);
    }
}

/// Two threads, each with a file of its own. The first thread begins half a file ahead.
fn side_by_side(mut sets: Sets, files: u64, blocks: u64) -> (Sets, u64) {
    let mut threads = [(0, 0), (1, 0)];
    let (mut begun, mut reads) = (2, 0);
    loop {
        let turn = usize::from(reads >= blocks / 2 && reads % 2 == 1);
        let (file, read) = &mut threads[turn];
        if *read == blocks {
            if begun == files {
                return (sets, reads);
            }
            (*file, *read) = (begun, 0);
            begun += 1;
        }
        sets.read(*file, *read * 367 % blocks); // 367 is prime.
        *read += 1;
        reads += 1;
    }
}

#[test]
fn a_set_that_its_reader_leaves_is_given_up() {
    let mut sets = Sets::new(60, 100);
    for file in 0..60 {
        (0..10).for_each(|index| sets.read(file, index * 3));
    }
    let (hits, left, pending) = (sets.hits, sets.left, sets.policy.pending_blocks());
    assert!(hits > 150, "{hits}");
    assert!(left < 20, "{left} blocks fetched of sets that were left");
    assert!(pending < 50, "{pending}");
    let counts = sets.policy.counts();
    assert_eq!(counts.prefetched, counts.useful + counts.wasted + pending);
    assert!(counts.wasted > 700, "{counts:?}");
}

#[test]
fn what_is_given_up_of_a_set_is_earned_again_by_reading_all_of_others() {
    let mut sets = Sets::new(90, 100);
    for file in 0..30 {
        (0..3).for_each(|index| sets.read(file, index * 30));
    }
    let pending = sets.policy.pending_blocks();
    assert!(pending <= 32, "{pending}: it may have as few as one that has shown nothing");
    for file in 30..80 {
        (0..100).for_each(|index| sets.read(file, index * 7 % 100));
    }
    sets.hits = 0;
    for file in 80..90 {
        (0..100).for_each(|index| sets.read(file, index * 7 % 100));
    }
    assert_eq!(sets.hits, 1000);
}

#[test]
fn threads_at_sets_of_their_own_within_one_stream_find_what_they_read() {
    for (blocks, found) in [(60, 1.0), (200, 1.0), (400, 0.99), (800, 0.95), (3000, 0.5)] {
        let files = 24_000 / blocks;
        let (sets, reads) = side_by_side(Sets::new(files, blocks), files, blocks);
        let (hits, wasted) = (sets.hits, sets.policy.counts().wasted);
        assert!(hits as f64 >= found * reads as f64, "{hits} of {reads}, sets of {blocks}");
        assert!(wasted < 10, "{wasted} wasted, sets of {blocks}");
    }
}

/// This many threads, each of which reads a file of its own to the end; `turn` says which thread is next.
fn many_threads(threads: u64, files: u64, mut turn: impl FnMut() -> u64) -> (Sets, u64) {
    // All sets being read fit into memory together.
    let blocks = CAPACITY * 9 / 10 / threads;
    let mut sets = Sets::new(files, blocks);
    let mut at: Vec<(u64, u64)> = (0..threads).map(|thread| (thread, 0)).collect();
    let (mut begun, mut reads) = (threads, 0);
    loop {
        let (file, read) = &mut at[(turn() % threads) as usize];
        if *read == blocks {
            if begun == files {
                return (sets, reads);
            }
            (*file, *read) = (begun, 0);
            begun += 1;
        }
        sets.read(*file, (*read * 13 + *file) % blocks);
        *read += 1;
        reads += 1;
    }
}

#[test]
fn as_many_threads_as_a_data_loader_has_find_what_they_read() {
    for threads in [8, 9, 16, 32, 48] {
        let mut turn = 0;
        let in_turn = || {
            turn += 1;
            turn
        };
        let (sets, reads) = many_threads(threads, 8 * threads, in_turn);
        assert!(sets.hits as f64 > 0.95 * reads as f64, "{threads}: {} of {reads}", sets.hits);
        let mut state = 1u64;
        let at_random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let (sets, reads) = many_threads(threads, 8 * threads, at_random);
        assert!(sets.hits as f64 > 0.95 * reads as f64, "{threads}: {} of {reads}", sets.hits);
    }
}

#[test]
fn what_was_read_of_a_set_is_counted_and_takes_half_a_byte_a_block() {
    const BLOCKS: u64 = 1 << 20;
    let mut sets = Sets::new(1, BLOCKS);
    let before = sets.policy.memory_bytes();
    for step in 0..BLOCKS / 2 {
        let index = (step * 387_431) % BLOCKS; // Odd, so that all are different.
        sets.policy.read(NOW, READER, Block { file: FileId(0), index }, false);
    }
    let taken = (sets.policy.memory_bytes() - before) as u64;
    assert!(taken > BLOCKS / 8, "{taken} bytes: a bit for each is the least");
    assert!(taken < BLOCKS / 2, "{taken} bytes");
}
