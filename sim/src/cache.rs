//! A cache over recorded reads, without a clock: the hits, misses and prefetches of a policy.
//!
//! This driver gives [`Policy`] the simplest device: a fetch completes as soon as it begins. What remains is
//! which blocks the policy keeps and evicts, in numbers that can be compared with the literature and with
//! [`offline`](crate::offline) optima. There are no times here: the policy sees fixed costs, and the time is
//! always 0.
//!
//! With [`Hints::All`], the whole recording is disclosed in order before the first read, as one stream of the
//! one reader. Then for each read:
//!
//! * A: prefetches are taken from the policy until it has no more, or until [`CacheOptions::depth_blocks`]
//!   blocks are prefetched and unread. With a depth of 0 there are no prefetches, and hints only help to choose
//!   victims.
//! * B: the policy is told of the read; a missing block is fetched on demand.
//!
//! The policy's unit is a block, and its size does not matter here. So the policy's blocks are one byte long,
//! and the offset of a hint is the index of its block.
//!
//! The driver keeps its own ledger of resident blocks. Debug builds, and so all tests, assert that hits are
//! resident and misses absent, that only residents are evicted and only absent blocks fetched, and that the
//! cache holds no more than its capacity. All builds assert that a policy does not prefetch without end between
//! two reads.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use foretell_policy::hash::Mix;
use foretell_policy::{
    Access, Block, Config, CostModel, CostSource, DeviceId, Fetch, FileId, Hint, HinterId, Memory,
    Nanos, Outcome, PREPARED_MAX, Policy, ReaderId, Rules, Segment, Target, Work,
};
use serde::Serialize;

use crate::offline::NEED_A_CLOCK;
use crate::offline::belady::Belady;
use crate::trace::Reads;

/// The one device.
const DEVICE: DeviceId = DeviceId(0);
/// The one reader.
const READER: ReaderId = ReaderId(0);
/// The one hinter.
const HINTER: HinterId = HinterId(0);
/// The time at which everything happens.
const NOW: Nanos = Nanos::ZERO;
/// Segments of one hint at most: roughly the limit of a program's hint (`manager`, control socket).
const HINT_SEGMENTS_MAX: usize = 4096;
/// Least number of reads between two calls of `progress`.
const PROGRESS_READS: u64 = 4096;
/// Most reads of a run. `READS_MAX` holds for policies without hints, which take some tenths of a microsecond a read.
/// `WEIGHED_READS_MAX` holds for policies that weigh future reads or keep them in memory.
const READS_MAX: u64 = 1 << 28;
const WEIGHED_READS_MAX: u64 = 1 << 26;

/// Which reads are disclosed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hints {
    /// None.
    None,
    /// All, in order, before the first read.
    All,
}

impl Hints {
    /// Both, in the order in which help texts list them.
    pub const ALL: [Hints; 2] = [Hints::None, Hints::All];

    /// The name used on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Hints::None => "none",
            Hints::All => "all",
        }
    }
}

impl fmt::Display for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hints {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = |hints: &&Hints| hints.name() == text;
        Hints::ALL.iter().find(wanted).copied().ok_or_else(|| {
            let known = Hints::ALL.map(Hints::name).join(", ");
            format!("unknown choice of hints {text:?}; known are {known}")
        })
    }
}

/// The decision maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// The policy crate, under these rules.
    Rules(Rules),
    /// [`Belady`], which knows the future without hints and never prefetches.
    Belady,
}

impl CachePolicy {
    /// All policies, off-line ones last.
    pub fn all() -> impl Iterator<Item = CachePolicy> {
        Rules::ALL.into_iter().map(CachePolicy::Rules).chain([CachePolicy::Belady])
    }

    /// The names of all policies, separated by commas.
    pub fn names() -> String {
        CachePolicy::all().map(CachePolicy::name).collect::<Vec<_>>().join(", ")
    }

    /// The name used on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            CachePolicy::Rules(rules) => rules.name,
            CachePolicy::Belady => "belady",
        }
    }
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CachePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        CachePolicy::all().find(|policy| policy.name() == text).ok_or_else(|| {
            let known = CachePolicy::names();
            if NEED_A_CLOCK.contains(&text) {
                return format!(
                    "{text} needs a clock, which sim cache does not have; known are {known}"
                );
            }
            format!("unknown policy {text:?}; known are {known}")
        })
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The decision maker.
    pub policy: CachePolicy,
    /// Capacity in blocks; at least 1.
    pub capacity_blocks: u64,
    /// Which reads are disclosed.
    pub hints: Hints,
    /// Blocks prefetched and unread at any time, at most; `None` sets no limit.
    pub depth_blocks: Option<u64>,
}

impl CacheOptions {
    /// The largest number of reads that a run accepts.
    pub fn reads_max(&self) -> u64 {
        match (self.policy, self.hints) {
            (CachePolicy::Rules(rules), _) if rules == Rules::LRU => READS_MAX,
            (CachePolicy::Rules(_), Hints::None) => READS_MAX,
            (CachePolicy::Rules(_), Hints::All) | (CachePolicy::Belady, _) => WEIGHED_READS_MAX,
        }
    }
}

/// The outcome of a run, in blocks unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheResult {
    /// Name of the policy.
    pub policy: &'static str,
    /// Which reads were disclosed.
    pub hints: Hints,
    /// Capacity.
    pub capacity: u64,
    /// Blocks read.
    pub reads: u64,
    /// Reads that found their block in memory.
    pub hits: u64,
    /// Reads that did not, and fetched it on demand.
    pub misses: u64,
    /// Real time of the run, in seconds.
    pub seconds: f64,
    /// Blocks fetched ahead of their reads.
    pub prefetches: u64,
}

impl CacheResult {
    /// Hits over reads; `None` without reads.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.reads > 0).then(|| self.hits as f64 / self.reads as f64)
    }
}

/// Runs `reads`, at most [`CacheOptions::reads_max`], through a cache that is empty at first. `progress` is
/// called now and then with the number of reads since its last call; the numbers add up to all reads.
pub fn run(reads: &Reads, options: &CacheOptions, progress: &mut dyn FnMut(u64)) -> CacheResult {
    assert!(options.capacity_blocks > 0, "a cache has room for a block");
    assert!(reads.len() <= options.reads_max(), "a run is not too long");
    let begin = Instant::now();
    let mut result = CacheResult {
        policy: options.policy.name(),
        hints: options.hints,
        capacity: options.capacity_blocks,
        reads: reads.len(),
        hits: 0,
        misses: 0,
        seconds: 0.0,
        prefetches: 0,
    };
    match options.policy {
        CachePolicy::Rules(rules) => {
            let mut driver = Driver::new(rules, options, result);
            if options.hints == Hints::All {
                driver.disclose(reads);
            }
            let mut blocks = reads.blocks();
            let mut next: Vec<Block> = Vec::with_capacity(PREPARED_MAX);
            let mut behind = 0;
            loop {
                next.extend(blocks.by_ref().take(PREPARED_MAX));
                if next.is_empty() {
                    break;
                }
                driver.policy.prepare(next.iter().copied());
                behind += next.len() as u64;
                for block in next.drain(..) {
                    if options.hints != Hints::None {
                        driver.prefetch();
                    }
                    driver.read(block);
                }
                if behind >= PROGRESS_READS {
                    progress(std::mem::take(&mut behind));
                }
            }
            progress(behind);
            result = driver.end();
        }
        CachePolicy::Belady => {
            Belady { hits: result.hits, misses: result.misses } =
                Belady::run(reads.blocks(), options.capacity_blocks);
            progress(result.reads);
        }
    }
    debug_assert_eq!(result.hits + result.misses, result.reads);
    CacheResult { seconds: begin.elapsed().as_secs_f64(), ..result }
}

/// Connects the reads with the policy; see the [module](self).
struct Driver {
    policy: Policy,
    ledger: Ledger,
    depth_blocks: u64,
    result: CacheResult,
}

impl Driver {
    fn new(rules: Rules, options: &CacheOptions, result: CacheResult) -> Self {
        let config = Config {
            rules,
            cluster_blocks_max: 1,
            costs: CostSource::Fixed(CostModel::default()),
            ..Config::new(Memory::Owned, 1, options.capacity_blocks)
        };
        Driver {
            policy: Policy::new(config),
            ledger: Ledger::new(options.capacity_blocks),
            depth_blocks: options.depth_blocks.unwrap_or(u64::MAX),
            result,
        }
    }

    /// Hints all reads, in order; consecutive reads of one file share a hint, up to [`HINT_SEGMENTS_MAX`].
    fn disclose(&mut self, reads: &Reads) {
        let stream = self.policy.open_stream(NOW, HINTER, Some(READER));
        let mut hint = |file: Option<FileId>, segments: &mut Vec<Segment>| {
            if let Some(file) = file.filter(|_| !segments.is_empty()) {
                let target = Target::File { file, size_bytes: u64::MAX };
                self.policy.hint(NOW, stream, Hint::segments(target, DEVICE, segments));
                segments.clear();
            }
        };
        let (mut of, mut segments) = (None, Vec::with_capacity(HINT_SEGMENTS_MAX));
        for (file, offset_bytes, length_bytes) in reads.runs() {
            if of != Some(file) || segments.len() == HINT_SEGMENTS_MAX {
                hint(of, &mut segments);
                of = Some(file);
            }
            segments.push(Segment { offset_bytes, length_bytes });
        }
        hint(of, &mut segments);
    }

    /// A.
    fn prefetch(&mut self) {
        // At one moment, no block of the recording is worth fetching twice.
        let bound = self.result.prefetches + self.result.reads;
        while (self.ledger.unread.len() as u64) < self.depth_blocks {
            let fetch = self.policy.next_fetch(NOW, DEVICE);
            self.take_evictions();
            let Some(fetch) = fetch else { break };
            self.result.prefetches += self.carry_out(fetch, Ledger::prefetched);
            let policy = self.result.policy;
            assert!(self.result.prefetches <= bound, "{policy} prefetches without end");
        }
    }

    /// B.
    fn read(&mut self, block: Block) {
        let access = self.policy.read(NOW, READER, block, false);
        self.ledger.read(block, access);
        if access == Access::Hit {
            self.result.hits += 1;
            return;
        }
        self.result.misses += 1;
        let fetch =
            self.policy.demand(NOW, DEVICE, block).expect("invariant: no buffer is ever in flight");
        self.take_evictions();
        debug_assert_eq!(
            fetch.work,
            Work::Read { file: block.file, first_block: block.index, blocks: 1 }
        );
        self.carry_out(fetch, Ledger::demanded);
    }

    /// Must be called whenever the policy may have reused a buffer, before that buffer is filled.
    fn take_evictions(&mut self) {
        while let Some(block) = self.policy.next_eviction() {
            self.ledger.evicted(block);
        }
    }

    /// Completes `fetch`, and returns the number of blocks it brought.
    fn carry_out(&mut self, fetch: Fetch, arrived: fn(&mut Ledger, Block)) -> u64 {
        let Work::Read { file, first_block, blocks } = fetch.work else {
            unreachable!("a hint that gives a file has no name to look up");
        };
        for index in first_block..first_block + blocks {
            arrived(&mut self.ledger, Block { file, index });
        }
        self.policy.completed(NOW, fetch.id, Outcome::Fetched);
        blocks
    }

    fn end(mut self) -> CacheResult {
        self.policy.close_all(NOW);
        debug_assert_eq!(self.policy.counts().prefetched, self.result.prefetches);
        self.result
    }
}

/// The driver's own record of what is in memory.
struct Ledger {
    capacity_blocks: u64,
    /// Only in debug builds, where it is compared with the policy's answers.
    resident: HashSet<Block, Mix>,
    /// Prefetched and not read since.
    unread: HashSet<Block, Mix>,
}

impl Ledger {
    fn new(capacity_blocks: u64) -> Self {
        Ledger { capacity_blocks, resident: HashSet::default(), unread: HashSet::default() }
    }

    fn read(&mut self, block: Block, access: Access) {
        assert!(access != Access::InFlight, "{block:?}: in flight, but fetches complete at once");
        if cfg!(debug_assertions) {
            let is_there = self.resident.contains(&block);
            assert_eq!(access == Access::Hit, is_there, "{block:?}: {access:?}");
        }
        self.no_longer_unread(block);
    }

    fn no_longer_unread(&mut self, block: Block) {
        // Without prefetches it stays empty.
        if !self.unread.is_empty() {
            self.unread.remove(&block);
        }
    }

    fn evicted(&mut self, block: Block) {
        if cfg!(debug_assertions) {
            assert!(self.resident.remove(&block), "{block:?}: evicted, but was not resident");
        }
        self.no_longer_unread(block);
    }

    fn demanded(&mut self, block: Block) {
        if cfg!(debug_assertions) {
            assert!(self.resident.insert(block), "{block:?}: fetched, but was resident");
            assert!(
                self.resident.len() as u64 <= self.capacity_blocks,
                "{block:?}: beyond the capacity"
            );
        }
    }

    fn prefetched(&mut self, block: Block) {
        self.demanded(block);
        self.unread.insert(block);
    }
}

#[cfg(test)]
#[cfg(debug_assertions)]
mod tests {
    use super::*;

    const A: Block = Block { file: FileId(0), index: 0 };
    const B: Block = Block { file: FileId(0), index: 1 };

    /// A ledger with room for one block, and A in it.
    fn full() -> Ledger {
        let mut ledger = Ledger::new(1);
        ledger.read(A, Access::Miss);
        ledger.demanded(A);
        ledger
    }

    #[test]
    fn what_is_consistent_passes() {
        let mut ledger = full();
        ledger.read(A, Access::Hit);
        ledger.evicted(A);
        ledger.prefetched(B);
        assert_eq!(ledger.unread.len(), 1);
        ledger.read(B, Access::Hit);
        assert_eq!(ledger.unread.len(), 0);
        ledger.evicted(B);
        ledger.prefetched(A);
        ledger.evicted(A);
        assert_eq!(ledger.unread.len(), 0);
        ledger.read(A, Access::Miss);
    }

    #[test]
    #[should_panic(expected = "Miss")]
    fn a_miss_of_what_is_there() {
        full().read(A, Access::Miss);
    }

    #[test]
    #[should_panic(expected = "Hit")]
    fn a_hit_of_what_is_not_there() {
        full().read(B, Access::Hit);
    }

    #[test]
    #[should_panic(expected = "in flight, but fetches complete at once")]
    fn a_fetch_that_is_never_over() {
        full().read(B, Access::InFlight);
    }

    #[test]
    #[should_panic(expected = "evicted, but was not resident")]
    fn an_eviction_of_what_is_not_there() {
        full().evicted(B);
    }

    #[test]
    #[should_panic(expected = "fetched, but was resident")]
    fn a_fetch_of_what_is_there() {
        full().prefetched(A);
    }

    #[test]
    #[should_panic(expected = "beyond the capacity")]
    fn more_than_fits() {
        full().demanded(B);
    }
}
