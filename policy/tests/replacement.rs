//! Which blocks are evicted, against models of replacement: LRU, and Belady's MIN where a comparison is possible.

use std::collections::HashSet;

use foretell_policy::{
    Access, Block, Config, CostModel, CostSource, DecisionKind, DeviceId, Fetch, FileId, Hint,
    HinterId, Memory, Nanos, Outcome, Policy, ReaderId, Rules, Segment, StreamId, Target, Work,
};
use proptest::prelude::*;

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const READER: ReaderId = ReaderId(1);
const HINTER: HinterId = HinterId(1);
const OTHER: ReaderId = ReaderId(2);

/// A driver that fetches missing blocks at once and prefetches only when told.
struct Clockless {
    policy: Policy,
    resident: HashSet<Block>,
    /// Blocks fetched by demand reads and prefetches.
    fetched: u64,
}

impl Clockless {
    fn new(rules: Rules, capacity: usize) -> Self {
        let config = Config {
            rules,
            capacity_blocks: capacity as u64,
            cluster_blocks_max: 1,
            costs: CostSource::Fixed(CostModel { hit_ns: 1e3, driver_ns: 5e3, disk_ns: 1e4 }),
            ..Config::new(Memory::Owned, 1, 1)
        };
        Clockless { policy: Policy::new(config), resident: HashSet::new(), fetched: 0 }
    }

    fn hint(&mut self, stream: StreamId, file: u64, blocks: &[u64]) {
        let segment = |&block| Segment { offset_bytes: block, length_bytes: 1 };
        let segments: Vec<Segment> = blocks.iter().map(segment).collect();
        let target = Target::File { file: FileId(file), size_bytes: u64::MAX / 2 };
        self.policy.hint(NOW, stream, Hint::segments(target, DISK, &segments));
    }

    /// Whether it was a hit.
    fn read(&mut self, reader: ReaderId, file: u64, index: u64) -> bool {
        let block = Block { file: FileId(file), index };
        let access = self.policy.read(NOW, reader, block, false);
        assert_eq!(access == Access::Hit, self.resident.contains(&block));
        if access == Access::Hit {
            return true;
        }
        let fetch = self.policy.demand(NOW, DISK, block).expect("a buffer");
        self.arrive(fetch);
        false
    }

    fn prefetch(&mut self) {
        while let Some(fetch) = self.policy.next_fetch(NOW, DISK) {
            self.arrive(fetch);
        }
    }

    fn arrive(&mut self, fetch: Fetch) {
        while let Some(block) = self.policy.next_eviction() {
            assert!(self.resident.remove(&block), "{block:?} was not there");
        }
        let Work::Read { file, first_block, blocks } = fetch.work else { panic!("{fetch:?}") };
        for index in first_block..first_block + blocks {
            assert!(self.resident.insert(Block { file, index }), "{index} fetched twice");
        }
        self.fetched += blocks;
        assert!(self.resident.len() as u64 <= self.policy.config().capacity_blocks);
        self.policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
}

/// Least recently used first.
struct Lru {
    order: Vec<(u64, u64)>,
    capacity: usize,
}

impl Lru {
    fn read(&mut self, file: u64, index: u64) -> bool {
        let place = self.order.iter().position(|&other| other == (file, index));
        match place {
            Some(place) => drop(self.order.remove(place)),
            None if self.order.len() == self.capacity => drop(self.order.remove(0)),
            None => {}
        }
        self.order.push((file, index));
        place.is_some()
    }
}

/// The fewest misses that any replacement can have.
fn belady(accesses: &[u64], capacity: usize) -> u64 {
    let next_use = |from: usize, block: u64| {
        accesses[from..].iter().position(|&other| other == block).unwrap_or(usize::MAX)
    };
    let (mut resident, mut misses) = (HashSet::new(), 0);
    for (at, &block) in accesses.iter().enumerate() {
        if !resident.contains(&block) {
            misses += 1;
            if resident.len() == capacity {
                let furthest = resident.iter().copied().max_by_key(|&other| next_use(at, other));
                resident.remove(&furthest.expect("capacity is at least one"));
            }
            resident.insert(block);
        }
    }
    misses
}

#[derive(Clone, Debug)]
enum Step {
    Read { reader: u64, file: u64, index: u64 },
    Hint { stream: usize, file: u64, blocks: Vec<u64> },
    Cancel { stream: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let blocks = prop::collection::vec(0u64..20, 1..12);
    prop_oneof![
        20 => (1u64..3, 0u64..2, 0u64..20)
            .prop_map(|(reader, file, index)| Step::Read { reader, file, index }),
        3 => (0usize..3, 0u64..2, blocks)
            .prop_map(|(stream, file, blocks)| Step::Hint { stream, file, blocks }),
        1 => (0usize..3).prop_map(|stream| Step::Cancel { stream }),
    ]
}

fn cases(usual: u32) -> ProptestConfig {
    let given = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { usual };
    ProptestConfig { cases, failure_persistence: None, ..given }
}

proptest! {
    #![proptest_config(cases(256))]

    /// Under `lru`, hints change nothing, right or wrong.
    #[test]
    fn under_lru_hints_change_no_hit(
        steps in prop::collection::vec(step(), 1..300), capacity in 1usize..24
    ) {
        let mut driver = Clockless::new(Rules::LRU, capacity);
        let mut lru = Lru { order: Vec::new(), capacity };
        let streams = [None, Some(READER), None].map(|owner| driver.policy.open_stream(NOW, HINTER, owner));
        for step in steps {
            match step {
                Step::Read { reader, file, index } => {
                    let hit = driver.read(ReaderId(reader), file, index);
                    prop_assert_eq!(hit, lru.read(file, index), "{} of {}", index, file);
                }
                Step::Hint { stream, file, blocks } => driver.hint(streams[stream], file, &blocks),
                Step::Cancel { stream } => driver.policy.cancel(NOW, streams[stream]),
            }
        }
    }

    #[test]
    fn with_complete_hints_the_victim_is_belady_s(
        accesses in prop::collection::vec(0u64..30, 1..400), capacity in 1usize..20
    ) {
        for rules in [Rules::TIP2, Rules::FORETELL, Rules::FIXED_HORIZON] {
            let mut driver = Clockless::new(rules, capacity);
            let stream = driver.policy.open_stream(NOW, HINTER, None);
            driver.hint(stream, 0, &accesses);
            for &index in &accesses {
                driver.read(READER, 0, index);
            }
            prop_assert_eq!(driver.fetched, belady(&accesses, capacity), "{}", rules.name);
        }
    }

    #[test]
    fn without_hints_it_is_lru(
        accesses in prop::collection::vec(0u64..30, 1..400), capacity in 1usize..20
    ) {
        for rules in Rules::ALL {
            let mut driver = Clockless::new(rules, capacity);
            let mut lru = Lru { order: Vec::new(), capacity };
            for &index in &accesses {
                prop_assert_eq!(driver.read(READER, 0, index), lru.read(0, index), "{}", rules.name);
                driver.prefetch();
            }
        }
    }

    /// Other programs' unhinted blocks, each read once, take one buffer from a stream that discloses everything. They also keep
    /// its block being read in memory, which takes another.
    #[test]
    fn reads_that_show_no_reuse_cost_a_stream_two_buffers_at_most(
        accesses in prop::collection::vec(0u64..30, 1..300),
        others in prop::collection::vec(0usize..3, 300),
        capacity in 3usize..20,
    ) {
        for rules in [Rules::TIP2, Rules::FORETELL, Rules::FIXED_HORIZON] {
            let mut driver = Clockless::new(rules, capacity);
            let stream = driver.policy.open_stream(NOW, HINTER, Some(READER));
            driver.hint(stream, 0, &accesses);
            let (mut misses, mut once) = (0, 0);
            for (&index, &between) in accesses.iter().zip(&others) {
                misses += u64::from(!driver.read(READER, 0, index));
                for _ in 0..between {
                    prop_assert!(!driver.read(OTHER, 1, once));
                    once += 1;
                }
            }
            let most = belady(&accesses, capacity - 2);
            prop_assert!(misses <= most, "{}: {} > {}", rules.name, misses, most);
            prop_assert!(misses >= belady(&accesses, capacity));
        }
    }
}

#[test]
fn a_loop_larger_than_the_cache_keeps_all_but_the_horizon() {
    for (blocks, capacity) in [(100, 50), (1000, 900), (64, 60), (500, 100), (300, 299), (40, 20)] {
        // `T_disk` is ten accesses. Where fetches begin early, `T_driver` adds five and the margin two.
        for (rules, horizon) in [(Rules::TIP2, 10), (Rules::FORETELL, 17)] {
            let mut driver = Clockless::new(rules, capacity);
            let stream = driver.policy.open_stream(NOW, HINTER, None);
            let target = Target::File { file: FileId(0), size_bytes: blocks };
            let hint = Hint { repeats: 6, ..Hint::whole_file(target, DISK) };
            driver.policy.hint(NOW, stream, hint);
            for pass in 0..6 {
                let before = driver.fetched;
                for index in 0..blocks {
                    driver.prefetch();
                    driver.read(READER, 0, index);
                }
                let fetched = driver.fetched - before;
                let most =
                    if pass == 0 { blocks + horizon } else { blocks - capacity as u64 + horizon };
                assert!(fetched <= most, "{} {blocks}/{capacity}: {fetched}", rules.name);
            }
        }
    }
}

#[test]
fn a_terabyte_that_nobody_reads_is_seen_in_the_log() {
    let mut driver = Clockless::new(Rules::FORETELL, 1000);
    // The horizon is a thousand accesses, more than a stream without a record may have unread.
    let costs = CostSource::Fixed(CostModel { hit_ns: 1e3, driver_ns: 5e3, disk_ns: 1e6 });
    let config = Config { decisions_max: 10_000, costs, ..*driver.policy.config() };
    driver.policy = Policy::new(config);
    let stream = driver.policy.open_stream(NOW, HINTER, None);
    let target = Target::File { file: FileId(9), size_bytes: 1 << 40 };
    driver.policy.hint(NOW, stream, Hint::whole_file(target, DISK));
    for index in 0..3000 {
        driver.prefetch();
        driver.read(READER, 0, index % 900);
    }
    let (decisions, _) = driver.policy.take_decisions();
    let of = |kind| decisions.iter().filter(move |decision| decision.kind == kind);
    assert!(of(DecisionKind::Unearned).chain(of(DecisionKind::Refuse)).count() > 0);
    assert!(decisions.iter().all(|decision| decision.stream.is_none_or(|of| of == stream)));
    let fetched = of(DecisionKind::Prefetch).chain(of(DecisionKind::Cluster)).count();
    // Half of the memory, which has no other use.
    assert!((1..=516).contains(&fetched), "{fetched} blocks fetched for nobody");
    for decision in of(DecisionKind::Prefetch) {
        assert!(decision.value_ns > decision.against_ns, "{decision:?}");
    }
}

/// How fast a new stream begins in a cache that another program has filled with blocks worth keeping.
#[test]
fn a_new_stream_is_prefetched_for_before_its_first_read() {
    let mut driver = Clockless::new(Rules::FORETELL, 1000);
    // The horizon is some sixty accesses.
    let costs = CostSource::Fixed(CostModel { hit_ns: 243e3, driver_ns: 580e3, disk_ns: 15_000e3 });
    driver.policy = Policy::new(Config { costs, ..*driver.policy.config() });
    let mut random = 1u64;
    for _ in 0..12_000 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let place = (random >> 11) as f64 / (1u64 << 53) as f64;
        driver.read(OTHER, 1, (place.powi(3) * 3000.0) as u64);
    }
    let before = driver.fetched;
    let stream = driver.policy.open_stream(NOW, HINTER, Some(READER));
    let target = Target::File { file: FileId(2), size_bytes: 10_000 };
    driver.policy.hint(NOW, stream, Hint::whole_file(target, DISK));
    driver.prefetch();
    let fetched = driver.fetched - before;
    assert!(fetched >= 50, "{fetched} blocks");
}
