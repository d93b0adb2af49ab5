//! The workloads: who reads which block next.
//!
//! Those of streams have one for each [`PART_BLOCKS`] blocks of memory; every read is by a stream drawn
//! at random. Draws are made beforehand.

use std::sync::Arc;

use foretell_policy::{
    Access, Block, Extent, FileId, Hint, Policy, ReaderId, Rules, Segment, StreamId, Target,
};

use crate::driver::{BLOCK_BYTES, DEVICE, Driver, Tally};
use crate::random::{Random, Zipf};

/// Memory for each stream, blocks.
pub const PART_BLOCKS: u64 = 1000;

/// Draws that are made beforehand, and used over and over.
const DRAWS: usize = 1 << 22;
/// Zipf's exponent, as in YCSB.
const EXPONENT: f64 = 0.99;
/// Blocks of a file that is scanned, and how many files are disclosed ahead.
const SCANNED_BLOCKS: u64 = 256;
const SCANS_AHEAD: u64 = 16;
/// A shuffled file has so many times the blocks that there is memory for it.
const SHUFFLED_PARTS: u64 = 2;
/// Orders in which files are shuffled, for all streams.
const SHUFFLES: u64 = 8;
/// The file of the reads without streams.
const COMMON: FileId = FileId(1 << 60);
/// Who makes the reads without streams.
const ANYBODY: ReaderId = ReaderId(1 << 60);

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// `foretell`; each stream reads its file, which is in memory, for ever. It was disclosed once.
    LoopsThatFit,
    /// `foretell`; each stream reads file after file, once, and discloses them ahead of time.
    Scans,
    /// `foretell`; each stream reads the blocks of one file, twice as large as its memory, each time in
    /// another order, disclosed as single blocks.
    Shuffled,
    /// `foretell`; every other read as in `Scans`, the others without hints, by Zipf's law, of as many
    /// blocks as there is memory for.
    ScansAndZipf,
    /// `lru`; all blocks are in memory and alike.
    LruUniform,
    /// `lru`; all blocks are in memory, and read by Zipf's law.
    LruZipf,
    /// `lru`; a loop over all blocks in memory.
    LruLoop,
    /// `lru`; every block is another one.
    LruMisses,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 8] = [
        Workload::LoopsThatFit,
        Workload::Scans,
        Workload::Shuffled,
        Workload::ScansAndZipf,
        Workload::LruUniform,
        Workload::LruZipf,
        Workload::LruLoop,
        Workload::LruMisses,
    ];

    /// The name under which it is reported.
    pub fn name(self) -> &'static str {
        match self {
            Workload::LoopsThatFit => "foretell, loops that fit",
            Workload::Scans => "foretell, scans",
            Workload::Shuffled => "foretell, shuffled",
            Workload::ScansAndZipf => "foretell, scans and Zipf",
            Workload::LruUniform => "lru, uniform hits",
            Workload::LruZipf => "lru, Zipf hits",
            Workload::LruLoop => "lru, loop",
            Workload::LruMisses => "lru, misses",
        }
    }

    /// The rules it runs under.
    pub fn rules(self) -> Rules {
        match self {
            Workload::LoopsThatFit
            | Workload::Scans
            | Workload::Shuffled
            | Workload::ScansAndZipf => Rules::FORETELL,
            _ => Rules::LRU,
        }
    }
}

/// One stream, and how far its reader is.
#[derive(Debug)]
struct Hinter {
    stream: StreamId,
    /// In its present file, or order.
    at: u64,
    /// Files, or orders, that are behind.
    done: u64,
}

/// A workload and the policy under it.
#[derive(Debug)]
pub struct Bench {
    workload: Workload,
    driver: Driver,
    hinters: Vec<Hinter>,
    orders: Vec<Arc<[Segment]>>,
    /// Streams, or blocks of the common file.
    draws: Vec<u32>,
    blocks: Vec<u32>,
    turn: usize,
}

fn draws(mut draw: impl FnMut(&mut Random) -> u64) -> Vec<u32> {
    let mut random = Random::new(7);
    (0..DRAWS).map(|_| u32::try_from(draw(&mut random)).expect("fewer than 2³²")).collect()
}

impl Bench {
    /// `workload` with memory for `capacity_blocks`, in steady state.
    pub fn new(workload: Workload, capacity_blocks: u64) -> Self {
        let parts = (capacity_blocks / PART_BLOCKS).max(1);
        let streams = if workload.rules() == Rules::FORETELL { parts } else { 0 };
        let by_zipf =
            |zipf: Zipf, scatter: &[u64]| draws(|random| scatter[zipf.draw(random) as usize]);
        let scattered = || Random::new(3).permutation(capacity_blocks);
        let blocks = match workload {
            Workload::LruUniform => draws(|random| random.below(capacity_blocks)),
            Workload::LruZipf | Workload::ScansAndZipf => {
                by_zipf(Zipf::new(capacity_blocks, EXPONENT), &scattered())
            }
            _ => Vec::new(),
        };
        let mut bench = Bench {
            workload,
            driver: Driver::new(workload.rules(), capacity_blocks),
            hinters: Vec::new(),
            orders: Vec::new(),
            draws: draws(|random| random.below(parts)),
            blocks,
            turn: 0,
        };
        if workload == Workload::Shuffled {
            bench.shuffle();
        }
        for reader in 0..streams {
            let stream = bench.driver.open(ReaderId(reader));
            bench.hinters.push(Hinter { stream, at: 0, done: 0 });
            bench.disclose_first(reader as usize);
        }
        bench.warm_up(capacity_blocks);
        bench
    }

    fn shuffle(&mut self) {
        let mut random = Random::new(5);
        self.orders = (0..SHUFFLES)
            .map(|_| {
                let order = random.permutation(PART_BLOCKS * SHUFFLED_PARTS).into_iter();
                let segment = |index| Segment {
                    offset_bytes: index * BLOCK_BYTES,
                    length_bytes: BLOCK_BYTES,
                };
                order.map(segment).collect()
            })
            .collect();
    }

    fn warm_up(&mut self, capacity_blocks: u64) {
        if self.workload.rules() == Rules::LRU {
            for index in 0..capacity_blocks {
                self.driver.read(ANYBODY, Block { file: COMMON, index });
            }
        }
        // Streams are drawn at random: some take longer than others to come round.
        let reads = match self.workload {
            Workload::LoopsThatFit => capacity_blocks + capacity_blocks / 2,
            Workload::Scans => 2 * capacity_blocks,
            Workload::Shuffled | Workload::ScansAndZipf => 4 * capacity_blocks,
            _ => capacity_blocks / 2,
        };
        (0..reads).for_each(|_| {
            self.step();
        });
    }

    fn disclose_first(&mut self, hinter: usize) {
        let target = |size_blocks: u64| Target::File {
            file: FileId(hinter as u64),
            size_bytes: size_blocks * BLOCK_BYTES,
        };
        match self.workload {
            Workload::LoopsThatFit => {
                let hint =
                    Hint { repeats: u32::MAX, ..Hint::whole_file(target(PART_BLOCKS), DEVICE) };
                self.driver.hint(self.hinters[hinter].stream, hint);
            }
            Workload::Shuffled => (0..2).for_each(|ahead| self.disclose(hinter, ahead)),
            _ => (0..SCANS_AHEAD).for_each(|ahead| self.disclose(hinter, ahead)),
        }
    }

    fn scanned_file(hinter: usize, number: u64) -> FileId {
        FileId(((hinter as u64) << 32) + number)
    }

    fn order(&self, hinter: usize, number: u64) -> &Arc<[Segment]> {
        &self.orders[((hinter as u64 + number) % SHUFFLES) as usize]
    }

    /// Discloses the file, or order, of this number.
    fn disclose(&mut self, hinter: usize, number: u64) {
        let stream = self.hinters[hinter].stream;
        let hint = if self.workload == Workload::Shuffled {
            let size_bytes = PART_BLOCKS * SHUFFLED_PARTS * BLOCK_BYTES;
            let target = Target::File { file: FileId(hinter as u64), size_bytes };
            let extent = Extent::Segments(Arc::clone(self.order(hinter, number)));
            Hint { extent, ..Hint::whole_file(target, DEVICE) }
        } else {
            let (file, size_bytes) =
                (Bench::scanned_file(hinter, number), SCANNED_BLOCKS * BLOCK_BYTES);
            Hint::whole_file(Target::File { file, size_bytes }, DEVICE)
        };
        self.driver.hint(stream, hint);
    }

    /// One read, and all that follows from it.
    #[inline]
    pub fn step(&mut self) -> Access {
        let turn = self.turn;
        self.turn += 1;
        match self.workload {
            Workload::ScansAndZipf if turn % 2 == 1 => self.read_common(turn),
            Workload::LruUniform | Workload::LruZipf => self.read_common(turn),
            Workload::LruLoop | Workload::LruMisses => {
                let index = match self.workload {
                    Workload::LruLoop => turn as u64 % self.driver.policy.config().capacity_blocks,
                    _ => (1 << 32) + turn as u64,
                };
                self.driver.read(ANYBODY, Block { file: COMMON, index })
            }
            _ => self.read_hinted(self.draws[turn % DRAWS] as usize),
        }
    }

    fn read_common(&mut self, turn: usize) -> Access {
        let index = u64::from(self.blocks[turn % DRAWS]);
        self.driver.read(ANYBODY, Block { file: COMMON, index })
    }

    fn read_hinted(&mut self, hinter: usize) -> Access {
        let Hinter { at, done, .. } = self.hinters[hinter];
        let (block, blocks) = match self.workload {
            Workload::LoopsThatFit => {
                (Block { file: FileId(hinter as u64), index: at }, PART_BLOCKS)
            }
            Workload::Shuffled => {
                let order = self.order(hinter, done);
                let index = order[at as usize].offset_bytes / BLOCK_BYTES;
                (Block { file: FileId(hinter as u64), index }, order.len() as u64)
            }
            _ => (Block { file: Bench::scanned_file(hinter, done), index: at }, SCANNED_BLOCKS),
        };
        let access = self.driver.read(ReaderId(hinter as u64), block);
        let state = &mut self.hinters[hinter];
        state.at += 1;
        if state.at == blocks {
            (state.at, state.done) = (0, done + 1);
            match self.workload {
                Workload::LoopsThatFit => {}
                Workload::Shuffled => self.disclose(hinter, done + 2),
                _ => self.disclose(hinter, done + SCANS_AHEAD),
            }
        }
        access
    }

    /// What has happened since the beginning.
    pub fn tally(&self) -> Tally {
        self.driver.tally()
    }

    /// The policy alone.
    pub fn into_policy(self) -> Policy {
        self.driver.policy
    }
}
