//! The workloads: the next read, and its reader.
//!
//! The driver gets several reads at a time, and lets the policy prepare for them (`Policy::prepare`).
//!
//! Workloads with streams have one for each [`PART_BLOCKS`] blocks of memory, at most [`STREAMS_MAX`]. Each
//! read is made by a random stream. Streams begin at different places of their files, so that they do not all
//! reach the end, and disclose more, within the same thousand reads. Random draws are made in advance.

use std::collections::VecDeque;
use std::sync::Arc;

use foretell_policy::{
    Access, Block, Extent, FileId, Hint, Policy, ReaderId, Rules, Segment, StreamId, Target,
};

use crate::driver::{BLOCK_BYTES, DEVICE, Driver, Tally};
use crate::random::{Random, Zipf};

/// Blocks of memory for each stream; more if there is more memory than [`STREAMS_MAX`] streams need.
pub const PART_BLOCKS: u64 = 1000;
/// Number of streams, at most.
pub const STREAMS_MAX: u64 = 1000;

/// Least number of draws, which are made in advance and repeated.
const DRAWS_MIN: u64 = 1 << 22;
/// Zipf's exponent, as in YCSB.
const EXPONENT: f64 = 0.99;
/// Blocks of a scanned file, and the number of files disclosed ahead.
const SCANNED_BLOCKS: u64 = 256;
const SCANS_AHEAD: u64 = 16;
/// Size of a shuffled file, as a multiple of the memory for it.
const SHUFFLED_PARTS: u64 = 2;
/// Number of orders in which files are shuffled, shared by all streams.
const SHUFFLES: u64 = 8;
/// Reads that the driver takes at once, as from a ring; half of those that the policy can prepare for at once.
const BATCH_READS: usize = 32;
/// The file of reads without streams.
const COMMON: FileId = FileId(1 << 60);
/// The reader of reads without streams.
const ANYBODY: ReaderId = ReaderId(1 << 60);

/// A workload; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// `foretell`; each stream reads its file, which is in memory, without end. It was disclosed once.
    LoopsThatFit,
    /// `foretell`; each stream reads one file after another, once, and discloses them in advance.
    Scans,
    /// `foretell`; each stream reads the blocks of one file, twice as large as its memory, each time in another
    /// order, disclosed as single blocks.
    Shuffled,
    /// `foretell`; every other read is one of `Scans`. The others have no hints and follow Zipf's law, over as
    /// many blocks as memory holds.
    ScansAndZipf,
    /// `lru`; all blocks are in memory, and equally likely.
    LruUniform,
    /// `lru`; all blocks are in memory, and read by Zipf's law.
    LruZipf,
    /// `lru`; a loop over all blocks in memory.
    LruLoop,
    /// `lru`; every read is of a new block.
    LruMisses,
}

impl Workload {
    /// All workloads.
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

    /// The name in reports.
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

    /// The number of reads in which the cost goes through a whole cycle, with so many blocks in memory. Blocks
    /// that were fetched together are read, and evicted, together one order later.
    pub fn period_reads(self, capacity_blocks: u64) -> u64 {
        match self {
            Workload::Shuffled => (SHUFFLED_PARTS * capacity_blocks).max(1),
            _ => 1,
        }
    }

    /// At least `reads_min` reads, rounded up to whole [periods](Workload::period_reads).
    pub fn whole_reads(self, capacity_blocks: u64, reads_min: u64) -> u64 {
        reads_min.next_multiple_of(self.period_reads(capacity_blocks))
    }

    /// The policy's rules.
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

/// A stream, and the position of its reader.
#[derive(Debug)]
struct Hinter {
    stream: StreamId,
    /// Position in its current file or order.
    at: u64,
    /// Files or orders that are complete.
    done: u64,
}

/// A workload, with its policy.
#[derive(Debug)]
pub struct Bench {
    workload: Workload,
    driver: Driver,
    hinters: Vec<Hinter>,
    /// Blocks of memory for each hinter.
    part_blocks: u64,
    orders: Vec<Arc<[Segment]>>,
    /// Draws of streams, and of blocks of the common file.
    draws: Vec<u32>,
    blocks: Vec<u32>,
    turn: usize,
    /// The next reads; and the disclosures to make after some of them, as place, hinter and number.
    batch: Vec<(ReaderId, Block)>,
    next: usize,
    disclosures: VecDeque<(usize, usize, u64)>,
}

/// A power of two of draws, and at least as many as there are `things`; with fewer, most things would never be
/// drawn.
fn draws(things: u64, mut draw: impl FnMut(&mut Random) -> u64) -> Vec<u32> {
    let mut random = Random::new(7);
    (0..things.next_power_of_two().max(DRAWS_MIN))
        .map(|_| u32::try_from(draw(&mut random)).expect("fewer than 2³²"))
        .collect()
}

impl Bench {
    /// `workload` with memory for `capacity_blocks`, after a warm-up. With streams, nearly every stream has replaced or read
    /// again what is in memory. Without streams (`lru`), memory is full, and the workload has made half as many reads.
    pub fn new(workload: Workload, capacity_blocks: u64) -> Self {
        let parts = (capacity_blocks / PART_BLOCKS).clamp(1, STREAMS_MAX);
        let streams = if workload.rules() == Rules::FORETELL { parts } else { 0 };
        let by_zipf = |zipf: Zipf, scatter: &[u64]| {
            draws(capacity_blocks, |random| scatter[zipf.draw(random) as usize])
        };
        let scattered = || Random::new(3).permutation(capacity_blocks);
        let blocks = match workload {
            Workload::LruUniform => draws(capacity_blocks, |random| random.below(capacity_blocks)),
            Workload::LruZipf | Workload::ScansAndZipf => {
                by_zipf(Zipf::new(capacity_blocks, EXPONENT), &scattered())
            }
            _ => Vec::new(),
        };
        let mut bench = Bench {
            workload,
            driver: Driver::new(workload.rules(), capacity_blocks),
            hinters: Vec::new(),
            part_blocks: (capacity_blocks / parts).max(PART_BLOCKS),
            orders: Vec::new(),
            draws: draws(parts, |random| random.below(parts)),
            blocks,
            turn: 0,
            batch: Vec::new(),
            next: 0,
            disclosures: VecDeque::new(),
        };
        if workload == Workload::Shuffled {
            bench.shuffle();
        }
        for reader in 0..streams {
            let stream = bench.driver.open(ReaderId(reader));
            let at = bench.first_at(reader);
            bench.hinters.push(Hinter { stream, at, done: 0 });
            bench.disclose_first(reader as usize);
        }
        bench.warm_up(capacity_blocks);
        bench
    }

    fn shuffle(&mut self) {
        let mut random = Random::new(5);
        self.orders = (0..SHUFFLES)
            .map(|_| {
                let order = random.permutation(self.part_blocks * SHUFFLED_PARTS).into_iter();
                let segment = |index| Segment {
                    offset_bytes: index * BLOCK_BYTES,
                    length_bytes: BLOCK_BYTES,
                };
                order.map(segment).collect()
            })
            .collect();
    }

    /// Where a reader begins in its first file or order; the golden ratio spreads readers over it.
    fn first_at(&self, reader: u64) -> u64 {
        let blocks = match self.workload {
            Workload::LoopsThatFit => return 0, // The end of a loop changes nothing.
            Workload::Shuffled => self.part_blocks * SHUFFLED_PARTS,
            _ => SCANNED_BLOCKS,
        };
        let part = reader.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (part * blocks) >> 32
    }

    fn warm_up(&mut self, capacity_blocks: u64) {
        if self.workload.rules() == Rules::LRU {
            for index in 0..capacity_blocks {
                self.driver.read(ANYBODY, Block { file: COMMON, index });
            }
        }
        // Streams are drawn at random, so some take longer for a pass than others.
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
                let hint = Hint {
                    repeats: u32::MAX,
                    ..Hint::whole_file(target(self.part_blocks), DEVICE)
                };
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

    /// Discloses the file or order `number`; of the first one, only what its reader has not passed.
    fn disclose(&mut self, hinter: usize, number: u64) {
        let Hinter { stream, at, .. } = self.hinters[hinter];
        let passed_blocks = if number == 0 { at } else { 0 };
        let hint = if self.workload == Workload::Shuffled {
            let size_bytes = self.part_blocks * SHUFFLED_PARTS * BLOCK_BYTES;
            let target = Target::File { file: FileId(hinter as u64), size_bytes };
            let order = self.order(hinter, number);
            let extent = Extent::Segments(match passed_blocks as usize {
                0 => Arc::clone(order),
                passed => order[passed..].into(),
            });
            Hint { extent, ..Hint::whole_file(target, DEVICE) }
        } else {
            let (file, size_bytes) =
                (Bench::scanned_file(hinter, number), SCANNED_BLOCKS * BLOCK_BYTES);
            let target = Target::File { file, size_bytes };
            let offset_bytes = passed_blocks * BLOCK_BYTES;
            let length_bytes = size_bytes - offset_bytes;
            match passed_blocks {
                0 => Hint::whole_file(target, DEVICE),
                _ => Hint::segments(target, DEVICE, &[Segment { offset_bytes, length_bytes }]),
            }
        };
        self.driver.hint(stream, hint);
    }

    /// Makes one read, and does everything that follows from it.
    #[inline]
    pub fn step(&mut self) -> Access {
        if self.next == self.batch.len() {
            self.batch.clear();
            self.disclosures.clear();
            for _ in 0..BATCH_READS {
                let read = self.draw();
                self.batch.push(read);
            }
            self.driver.policy.prepare(self.batch.iter().map(|&(_, block)| block));
            self.next = 0;
        }
        let (reader, block) = self.batch[self.next];
        let access = self.driver.read(reader, block);
        while let Some(&(at, hinter, number)) = self.disclosures.front()
            && at == self.next
        {
            self.disclosures.pop_front();
            self.disclose(hinter, number);
        }
        self.next += 1;
        access
    }

    #[inline]
    fn draw(&mut self) -> (ReaderId, Block) {
        let turn = self.turn;
        self.turn += 1;
        match self.workload {
            Workload::ScansAndZipf if turn % 2 == 1 => self.draw_common(turn),
            Workload::LruUniform | Workload::LruZipf => self.draw_common(turn),
            Workload::LruLoop | Workload::LruMisses => {
                let index = match self.workload {
                    Workload::LruLoop => turn as u64 % self.driver.policy.config().capacity_blocks,
                    _ => (1 << 32) + turn as u64,
                };
                (ANYBODY, Block { file: COMMON, index })
            }
            _ => self.draw_hinted(self.draws[turn & (self.draws.len() - 1)] as usize),
        }
    }

    fn draw_common(&self, turn: usize) -> (ReaderId, Block) {
        let index = u64::from(self.blocks[turn & (self.blocks.len() - 1)]);
        (ANYBODY, Block { file: COMMON, index })
    }

    fn draw_hinted(&mut self, hinter: usize) -> (ReaderId, Block) {
        let Hinter { at, done, .. } = self.hinters[hinter];
        let (block, blocks) = match self.workload {
            Workload::LoopsThatFit => {
                (Block { file: FileId(hinter as u64), index: at }, self.part_blocks)
            }
            Workload::Shuffled => {
                let order = self.order(hinter, done);
                let index = order[at as usize].offset_bytes / BLOCK_BYTES;
                (Block { file: FileId(hinter as u64), index }, order.len() as u64)
            }
            _ => (Block { file: Bench::scanned_file(hinter, done), index: at }, SCANNED_BLOCKS),
        };
        let state = &mut self.hinters[hinter];
        state.at += 1;
        if state.at == blocks {
            (state.at, state.done) = (0, done + 1);
            let turn = self.batch.len();
            match self.workload {
                Workload::LoopsThatFit => {}
                Workload::Shuffled => self.disclosures.push_back((turn, hinter, done + 2)),
                _ => self.disclosures.push_back((turn, hinter, done + SCANS_AHEAD)),
            }
        }
        (ReaderId(hinter as u64), block)
    }

    /// The counts since the beginning.
    pub fn tally(&self) -> Tally {
        self.driver.tally()
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.driver.policy
    }

    /// Returns the policy alone.
    pub fn into_policy(self) -> Policy {
        self.driver.policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hit ratio of 10,000 reads after the warm-up.
    fn hits(workload: Workload) -> f64 {
        let mut bench = Bench::new(workload, 3 * PART_BLOCKS);
        assert_eq!(bench.policy().held_blocks(), 3 * PART_BLOCKS, "{workload:?}: memory is full");
        let reads = 10_000;
        let hits = (0..reads).filter(|_| bench.step() == Access::Hit).count();
        hits as f64 / f64::from(reads)
    }

    #[test]
    fn workloads_are_what_their_names_say() {
        for workload in Workload::ALL {
            let hits = hits(workload);
            match workload {
                Workload::LruMisses => assert_eq!(hits, 0.0),
                Workload::ScansAndZipf => assert!(hits > 0.6, "{workload:?}: {hits}"),
                Workload::Scans | Workload::Shuffled => {
                    assert!(hits > 0.9, "{workload:?}: {hits}");
                }
                _ => assert_eq!(hits, 1.0, "{workload:?}"),
            }
        }
    }

    #[test]
    fn rounds_are_of_whole_periods() {
        assert_eq!(Workload::Shuffled.whole_reads(1000, 500_000), 500_000);
        assert_eq!(Workload::Shuffled.whole_reads(100_000, 500_000), 600_000);
        assert_eq!(Workload::Shuffled.whole_reads(10_000_000, 500_000), 20_000_000);
        assert_eq!(Workload::Scans.whole_reads(10_000_000, 500_000), 500_000);
    }
}
