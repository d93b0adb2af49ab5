//! Sequences that must not break the policy, most of them found and shrunk by `properties.rs`.

use foretell_policy::{
    Access, Block, Config, Cost, CostModel, CostSource, DeviceId, Extent, Fetch, FileId, Hint,
    HinterId, Memory, NameId, Nanos, Order, Outcome, Policy, ReaderId, Rules, Segment, StreamId,
    Target, Work,
};

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const READER: ReaderId = ReaderId(1);
const HINTER: HinterId = HinterId(1);
const FILE: FileId = FileId(1);

fn config(rules: Rules, capacity_blocks: u64) -> Config {
    Config { rules, capacity_blocks, cluster_blocks_max: 1, ..Config::new(Memory::Owned, 10, 1) }
}

fn opened(config: Config) -> (Policy, StreamId) {
    let mut policy = Policy::new(config);
    let stream = policy.open_stream(NOW, HINTER, None);
    (policy, stream)
}

fn file(size_bytes: u64) -> Target {
    Target::File { file: FILE, size_bytes }
}

fn block(index: u64) -> Block {
    Block { file: FILE, index }
}

fn strided(size_bytes: u64, first: (u64, u64), stride_bytes: u64, count: u64) -> Hint {
    let first = Segment { offset_bytes: first.0, length_bytes: first.1 };
    let extent = Extent::Strided { first, stride_bytes, count };
    Hint { extent, ..Hint::whole_file(file(size_bytes), DISK) }
}

/// Fetches until nothing is wanted. Returns the indices of the blocks.
fn fetch_all(policy: &mut Policy, device: DeviceId) -> Vec<u64> {
    let mut fetched = Vec::new();
    while let Some(Fetch { id, work, .. }) = policy.next_fetch(NOW, device) {
        let Work::Read { first_block, .. } = work else { panic!("{work:?}") };
        fetched.push(first_block);
        policy.completed(NOW, id, Outcome::Fetched);
    }
    fetched
}

/// Reads a block, and fetches it if necessary.
fn read(policy: &mut Policy, reader: ReaderId, block: Block) -> Access {
    let access = policy.read(NOW, reader, block, false);
    if access == Access::Miss {
        let fetch = policy.demand(NOW, DISK, block).expect("a buffer");
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    access
}

#[test]
fn a_stride_beyond_all_numbers_ends() {
    let (mut policy, stream) = opened(config(Rules::FORETELL, 8));
    policy.hint(NOW, stream, strided(100, (0, 5), u64::MAX / 15, 1000));
    assert_eq!(fetch_all(&mut policy, DISK), [0]);
    assert!(policy.is_idle());
}

#[test]
fn a_stride_without_progress_costs_nothing() {
    let (mut policy, stream) = opened(config(Rules::FORETELL, 8));
    policy.hint(NOW, stream, strided(100, (25, 5), 0, u64::MAX));
    policy.hint(NOW, stream, strided(10 << 40, (50, 0), 56, u64::MAX)); // Empty ranges, again and again.
    policy.hint(NOW, stream, strided(100, (95, u64::MAX), 0, u64::MAX)); // Cut off by the end of the file.
    assert_eq!(fetch_all(&mut policy, DISK), [2, 9]);
    policy.hint(NOW, stream, strided(10 << 40, (60, 1), 1, u64::MAX)); // Every byte of the range.
    assert_eq!(fetch_all(&mut policy, DISK), [6, 7, 8, 10, 11, 12]);
}

#[test]
fn segments_with_more_blocks_than_positions_are_left_out() {
    let (mut policy, stream) = opened(Config { block_bytes: 1, ..config(Rules::FORETELL, 4) });
    let all = Segment { offset_bytes: 0, length_bytes: u64::MAX };
    let segments = [Segment { offset_bytes: 3, length_bytes: 2 }, all, all, all];
    policy.hint(NOW, stream, Hint::segments(file(u64::MAX), DISK, &segments));
    assert_eq!(fetch_all(&mut policy, DISK), [3, 4]);
}

#[test]
fn of_a_segment_with_more_blocks_than_positions_nothing_is_left() {
    let (mut policy, stream) = opened(Config { block_bytes: 1, ..config(Rules::FORETELL, 4) });
    let all = [Segment { offset_bytes: 0, length_bytes: u64::MAX }];
    policy.hint(NOW, stream, Hint::segments(file(u64::MAX), DISK, &all));
    policy.hint(NOW, stream, Hint::whole_file(file(2), DISK));
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1]);
}

#[test]
fn a_file_with_more_blocks_than_positions_has_some() {
    let (mut policy, stream) = opened(config(Rules::FORETELL, 4));
    policy.hint(NOW, stream, Hint::whole_file(file(u64::MAX), DISK));
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1, 2, 3]);
}

#[test]
fn after_hints_for_ever_of_what_is_in_memory_others_have_their_turn() {
    let memory = Memory::Kernel { keeps: false };
    let wide = Config { memory, cluster_blocks_max: 4096, ..config(Rules::FORETELL, 1 << 20) };
    let (mut policy, stream) = opened(wide);
    let size_bytes = 10 << 17;
    for number in 1..=20 {
        let target = Target::File { file: FileId(number), size_bytes };
        let for_ever = Hint { repeats: u32::MAX, ..Hint::whole_file(target, DISK) };
        policy.hint(NOW, stream, for_ever);
    }
    policy.hint(NOW, stream, Hint::whole_file(Target::File { file: FileId(99), size_bytes }, DISK));
    let mut seen = Vec::new();
    while let Some(Fetch { id, work, .. }) = policy.next_fetch(NOW, DISK) {
        let Work::Read { file, .. } = work else { panic!("{work:?}") };
        seen.push(file);
        policy.completed(NOW, id, Outcome::AlreadyCached);
    }
    seen.dedup();
    let all: Vec<FileId> = (1..=20).chain([99]).map(FileId).collect();
    assert_eq!(seen, all);
}

#[test]
fn a_range_beyond_the_end_of_the_last_block_is_nothing() {
    let (mut policy, stream) = opened(config(Rules::FORETELL, 8));
    let beyond = [Segment { offset_bytes: 95, length_bytes: 1 }];
    policy.hint(NOW, stream, Hint::segments(file(95), DISK, &beyond));
    assert!(policy.next_fetch(NOW, DISK).is_none() && !policy.wants(FILE));
}

#[test]
fn a_file_may_be_said_to_lie_on_two_devices() {
    let (mut policy, one) = opened(config(Rules::FORETELL, 8));
    let two = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, one, Hint::whole_file(file(20), DISK));
    policy.hint(NOW, two, Hint::whole_file(file(20), DeviceId(1)));
    policy.close(NOW, one);
    policy.close(NOW, two);
    assert!(!policy.wants(FILE));
    assert_eq!(policy.take_released_files(), [FILE]);
}

#[test]
fn what_tip1_has_fetched_for_a_closed_stream_is_wasted() {
    let (mut policy, stream) = opened(config(Rules::TIP1, 9));
    policy.hint(NOW, stream, Hint::whole_file(file(20), DISK));
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1]);
    policy.close(NOW, stream);
    assert_eq!((policy.pending_blocks(), policy.counts().wasted), (0, 2));
    // A new stream at the same index has nothing to do with them.
    let stream = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, stream, Hint::whole_file(file(20), DISK));
    assert_eq!(policy.read(NOW, READER, block(0), false), Access::Hit);
    for index in 100..109 {
        assert_eq!(read(&mut policy, READER, block(index)), Access::Miss);
    }
}

#[test]
fn a_stream_may_end_between_a_miss_and_its_demand() {
    for rules in Rules::ALL {
        let (mut policy, stream) = opened(config(rules, 4));
        policy.hint(NOW, stream, Hint::whole_file(file(20), DISK));
        assert_eq!(policy.read(NOW, READER, block(0), true), Access::Miss);
        policy.close(NOW, stream);
        let fetch = policy.demand(NOW, DISK, block(0)).expect("a buffer");
        policy.completed(NOW, fetch.id, Outcome::Fetched);
        assert_eq!(policy.read(NOW, READER, block(0), true), Access::Hit);
    }
}

#[test]
fn a_stream_goes_on_after_a_hint_for_ever_is_cancelled() {
    let (mut policy, stream) = opened(config(Rules::FORETELL, 4));
    let once = Hint::whole_file(file(10 << 40), DISK);
    policy.hint(NOW, stream, Hint { repeats: u32::MAX, ..once.clone() });
    policy.cancel(NOW, stream);
    policy.hint(NOW, stream, once);
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1, 2, 3]);
}

#[test]
fn a_refusal_after_a_hint_beyond_all_ends_is_counted() {
    let (mut policy, stream) = opened(Config { block_bytes: 1, ..config(Rules::FORETELL, 4) });
    let beyond = [Segment { offset_bytes: 10, length_bytes: u64::MAX }; 2];
    policy.hint(NOW, stream, Hint::segments(file(10), DISK, &beyond));
    policy.hint(NOW, stream, Hint::whole_file(file(1), DISK));
    let fetch = policy.next_fetch(NOW, DISK).expect("its block");
    policy.completed(NOW, fetch.id, Outcome::Refused);
    assert_eq!(policy.counts().refused, u64::MAX);
}

#[test]
fn forestall_bears_a_horizon_without_end() {
    let (mut policy, stream) = opened(config(Rules::FORESTALL, 4));
    policy.observe(DISK, Cost::Hit, NOW);
    policy.observe(DISK, Cost::Disk, Nanos(u64::MAX));
    policy.hint(NOW, stream, Hint::whole_file(file(90), DISK));
    assert_eq!(read(&mut policy, READER, block(0)), Access::Miss);
    assert_eq!(fetch_all(&mut policy, DISK), [1, 2, 3]);
}

#[test]
fn under_lru_a_block_that_is_come_back_to_is_recent() {
    let (mut policy, stream) = opened(config(Rules::LRU, 2));
    policy.hint(NOW, stream, Hint::whole_file(file(20), DISK));
    let order = [0, 100, 0, 101, 0];
    let found = order.map(|index| read(&mut policy, READER, block(index)));
    assert_eq!(found, [Access::Miss, Access::Miss, Access::Hit, Access::Miss, Access::Hit]);
}

#[test]
fn a_search_that_was_broken_off_goes_on() {
    // 10,000 blocks are in memory for one stream. Another one names them, and a file on another device.
    let model = CostModel { hit_ns: 1.0, driver_ns: 1.0, disk_ns: 1e9 };
    let costs = CostSource::Fixed(model);
    let outstanding_max = 20_000;
    let (mut policy, one) =
        opened(Config { costs, outstanding_max, ..config(Rules::TIP2, 20_000) });
    policy.hint(NOW, one, Hint::whole_file(file(100_000), DISK));
    assert_eq!(fetch_all(&mut policy, DISK).len(), 10_000);
    let two = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, two, Hint::whole_file(file(100_000), DISK));
    let other = Target::File { file: FileId(2), size_bytes: 10 };
    policy.hint(NOW, two, Hint::whole_file(other, DeviceId(1)));
    let next = policy.next_fetch(NOW, DeviceId(1)).expect("what comes after");
    assert_eq!(next.work, Work::Read { file: FileId(2), first_block: 0, blocks: 1 });
}

#[test]
fn a_block_claimed_for_later_is_kept_for_who_reads_it_sooner() {
    let model = CostModel { hit_ns: 1e3, driver_ns: 5e3, disk_ns: 1e4 };
    let costs = CostSource::Fixed(model);
    let (mut policy, late) = opened(Config { costs, ..config(Rules::FIXED_HORIZON, 3) });
    read(&mut policy, READER, block(0)); // The block is recent and not claimed.
    // One stream claims the block first, to read it after two others. The next stream reads it at once.
    let ranges = [1, 2, 0].map(|index| Segment { offset_bytes: index * 10, length_bytes: 10 });
    policy.hint(NOW, late, Hint::segments(file(1000), DISK, &ranges));
    assert_eq!(fetch_all(&mut policy, DISK), [1, 2]);
    let soon = policy.open_stream(NOW, HinterId(7), Some(ReaderId(7)));
    policy.hint(NOW, soon, Hint::segments(file(1000), DISK, &ranges[2..]));
    assert_eq!(fetch_all(&mut policy, DISK), [0u64; 0]);
    read(&mut policy, READER, block(50));
    assert_eq!(policy.read(NOW, ReaderId(7), block(0), false), Access::Hit);
}

fn other_file(number: u64, size_bytes: u64) -> Target {
    Target::File { file: FileId(number), size_bytes }
}

#[test]
fn no_file_is_fetched_that_nobody_wants() {
    // The few blocks have more segments than the index takes. The search for blocks must not go beyond the index.
    let memory = Memory::Kernel { keeps: false };
    let config =
        Config { capacity_blocks: 1000, cluster_blocks_max: 1, ..Config::new(memory, 10, 1) };
    let (mut policy, stream) = opened(config);
    let ranges: Vec<Segment> =
        (0..5000).map(|at| Segment { offset_bytes: at % 10, length_bytes: 1 }).collect();
    for name in 0..80 {
        policy.hint(NOW, stream, Hint::segments(Target::Name(NameId(name)), DISK, &ranges));
    }
    let mut open = std::collections::BTreeSet::new();
    while let Some(Fetch { id, work, .. }) = policy.next_fetch(NOW, DISK) {
        let outcome = match work {
            Work::Resolve { name } => {
                open.insert(FileId(name.0));
                Outcome::Resolved { file: FileId(name.0), size_bytes: 10 }
            }
            Work::Read { file, .. } => {
                assert!(open.contains(&file), "{file:?} is closed");
                Outcome::Fetched
            }
        };
        policy.completed(NOW, id, outcome);
        for file in policy.take_released_files() {
            if !policy.wants(file) {
                open.remove(&file);
            }
        }
    }
    assert!(open.len() > 60, "{}", open.len());
}

#[test]
fn a_stream_that_comes_upon_blocks_in_memory_hides_no_other() {
    let mut policy = Policy::new(config(Rules::FORETELL, 100));
    (0..4).for_each(|index| {
        read(&mut policy, READER, block(index));
    });
    let (absent, present) =
        (policy.open_stream(NOW, HINTER, None), policy.open_stream(NOW, HINTER, None));
    policy.hint(NOW, absent, Hint::whole_file(other_file(2, 40), DISK));
    policy.hint(NOW, present, Hint::whole_file(file(40), DISK));
    assert!(policy.next_fetch(NOW, DISK).is_some());
}

#[test]
fn a_search_through_many_blocks_in_memory_comes_to_its_end() {
    let model = CostModel { hit_ns: 1e3, driver_ns: 5e3, disk_ns: 1e8 };
    let (mut policy, one) =
        opened(Config { costs: CostSource::Fixed(model), ..config(Rules::FORETELL, 100_000) });
    (0..20_000).for_each(|index| {
        read(&mut policy, READER, block(index));
    });
    policy.hint(NOW, one, Hint::whole_file(file(200_000), DISK));
    assert!(policy.next_fetch(NOW, DISK).is_none(), "all of it is in memory");
    let two = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, two, Hint::whole_file(file(200_050), DISK));
    assert!(policy.next_fetch(NOW, DISK).is_some());
}

#[test]
fn a_bound_for_all_lets_one_go_on_when_another_has_read() {
    let (mut policy, one) = opened(config(Rules::TIP1, 9));
    let two = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, one, Hint::whole_file(file(30), DISK));
    policy.hint(NOW, two, Hint::whole_file(other_file(2, 30), DISK));
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1, 2]);
    (0..3).for_each(|index| assert_eq!(read(&mut policy, READER, block(index)), Access::Hit));
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1, 2]);
}

const KERNEL: Memory = Memory::Kernel { keeps: false };

/// Completes everything there is to do, with files of one block each. Returns the names that were looked up.
fn look_up(policy: &mut Policy) -> Vec<NameId> {
    let mut names = Vec::new();
    while let Some(Fetch { id, work, .. }) = policy.next_fetch(NOW, DISK) {
        let outcome = match work {
            Work::Resolve { name } => {
                names.push(name);
                Outcome::Resolved { file: FileId(name.0), size_bytes: 10 }
            }
            Work::Read { .. } => Outcome::Fetched,
        };
        policy.completed(NOW, id, outcome);
    }
    names
}

fn hint_names(policy: &mut Policy, stream: StreamId, names: std::ops::Range<u64>) {
    for name in names {
        policy.hint(NOW, stream, Hint::whole_file(Target::Name(NameId(name)), DISK));
    }
}

#[test]
fn streams_that_show_nothing_leave_others_a_lookup() {
    let mut policy = Policy::new(Config::new(KERNEL, 10, 1_000_000));
    for silent in 0..4 {
        let stream = policy.open_stream(NOW, HINTER, None);
        hint_names(&mut policy, stream, silent * 300..silent * 300 + 300);
    }
    look_up(&mut policy);
    let last = policy.open_stream(NOW, HINTER, None);
    hint_names(&mut policy, last, 9999..10_000);
    assert_eq!(look_up(&mut policy), [NameId(9999)]);
}

#[test]
fn who_opens_very_many_streams_leaves_others_lookups() {
    let mut policy = Policy::new(Config::new(KERNEL, 10, 1_000_000));
    for silent in 0..1100 {
        let stream = policy.open_stream(NOW, HINTER, None);
        hint_names(&mut policy, stream, silent..silent + 1);
    }
    look_up(&mut policy);
    let honest = policy.open_stream(NOW, HinterId(2), None);
    hint_names(&mut policy, honest, 5000..5100);
    assert!(look_up(&mut policy).len() >= 16);
    for name in 5000..5100 {
        policy.read(NOW, READER, Block { file: FileId(name), index: 0 }, false);
        look_up(&mut policy);
    }
    assert_eq!(policy.waiting_hints_by(HinterId(2)), 0, "all were looked up");
}

#[test]
fn files_that_wait_for_their_place_are_lookups_too() {
    let mut policy = Policy::new(Config::new(KERNEL, 10, 10_000));
    let most = policy.config().resolved_max;
    for hinter in 0..8 {
        let stream = policy.open_stream(NOW, HinterId(hinter), None);
        // It places so much that no later hint is placed.
        let size_bytes = 10 * (2 << 20);
        policy.hint(NOW, stream, Hint::whole_file(other_file(1 << 40 | hinter, size_bytes), DISK));
        hint_names(&mut policy, stream, hinter * 1000..hinter * 1000 + 1000);
    }
    let names = look_up(&mut policy);
    let held = names.iter().filter(|name| policy.wants(FileId(name.0))).count();
    assert!(names.len() == held && held <= most && held >= most / 2, "{held} are held open");
}

#[test]
fn what_one_has_fetched_and_not_read_speaks_against_nobody_else() {
    let mut policy =
        Policy::new(Config { cluster_blocks_max: 1, ..Config::new(KERNEL, 10, 81_920) });
    let open = |policy: &mut Policy, hinter: u64, number: u64| {
        let stream = policy.open_stream(NOW, HinterId(hinter), None);
        policy.hint(NOW, stream, Hint::whole_file(other_file(number, 100_000), DISK));
        fetch_all(policy, DISK).len()
    };
    assert_eq!(open(&mut policy, 1, 1), 1024);
    assert!(open(&mut policy, 1, 2) < 64, "it has shown nothing");
    assert_eq!(open(&mut policy, 2, 3), 1024);
    // Its reads earn trust for the next stream.
    for index in 0..1024 {
        policy.read(NOW, READER, Block { file: FileId(1), index }, false);
        fetch_all(&mut policy, DISK);
    }
    assert!(open(&mut policy, 1, 4) > 256);
}

#[test]
fn a_silent_stream_gives_its_buffers_to_a_loop_that_would_hit() {
    let mut policy = Policy::new(config(Rules::FORETELL, 1000));
    let pass = |policy: &mut Policy| {
        let mut hits = 0;
        for index in 0..900 {
            while let Some(fetch) = policy.next_fetch(NOW, DISK) {
                policy.completed(NOW, fetch.id, Outcome::Fetched);
            }
            hits += u32::from(read(policy, READER, block(index)) == Access::Hit);
        }
        hits
    };
    (0..20).for_each(|_| {
        pass(&mut policy);
    });
    let silent = policy.open_stream(NOW, HinterId(7), Some(ReaderId(7)));
    policy.hint(NOW, silent, Hint::whole_file(other_file(2, 1 << 20), DISK));
    (0..40).for_each(|_| {
        pass(&mut policy);
    });
    assert_eq!(pass(&mut policy), 900);
}

#[test]
fn each_of_many_readers_of_one_file_gets_on_with_its_own_stream() {
    const READERS: u64 = 100;
    let mut policy = Policy::new(config(Rules::FORETELL, 8));
    let parts: Vec<(ReaderId, StreamId)> = (0..READERS)
        .map(|number| {
            let reader = ReaderId(number);
            let stream = policy.open_stream(NOW, HinterId(number), Some(reader));
            let part = Segment { offset_bytes: number * 100, length_bytes: 100 };
            policy.hint(NOW, stream, Hint::segments(file(READERS * 100), DISK, &[part]));
            (reader, stream)
        })
        .collect();
    // Nothing is prefetched.
    for index in 0..10 {
        for &(reader, _) in &parts {
            read(&mut policy, reader, block(10 * reader.0 + index));
        }
    }
    let past = parts.iter().filter(|(_, stream)| policy.is_past(*stream)).count();
    assert_eq!(past, parts.len());
}

#[test]
fn the_name_of_a_hint_that_comes_too_late_is_dropped() {
    let (mut policy, stream) = opened(config(Rules::FORETELL, 8));
    policy.close(NOW, stream);
    policy.hint(NOW, stream, Hint::whole_file(Target::Name(NameId(5)), DISK));
    assert_eq!(policy.take_dropped_names(), [NameId(5)]);
}

#[test]
fn what_needed_nothing_and_is_read_counts_once_in_a_set() {
    let mut policy = Policy::new(config(Rules::FORETELL, 400));
    let anybody = ReaderId(9);
    let of = |number, index| Block { file: FileId(number), index };
    read(&mut policy, anybody, of(2, 5));
    (0..300).for_each(|index| {
        read(&mut policy, anybody, of(7, index));
    });
    let stream = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, stream, Hint::whole_file(file(20), DISK));
    let set = Hint { order: Order::Any, ..Hint::whole_file(other_file(2, 60), DISK) };
    policy.hint(NOW, stream, set);
    let mut flights = Vec::new();
    while let Some(fetch) = policy.next_fetch(NOW, DISK) {
        flights.push(fetch);
    }
    let of_file = |number: u64| {
        flights.iter().filter_map(move |fetch| match fetch.work {
            Work::Read { file, first_block, .. } if file == FileId(number) => {
                Some((fetch.id, first_block))
            }
            _ => None,
        })
    };
    of_file(1).for_each(|(id, _)| policy.completed(NOW, id, Outcome::Fetched));
    assert_eq!(
        policy.read(NOW, READER, block(1), false),
        Access::Hit,
        "the one before is left out"
    );
    for (id, first_block) in of_file(2) {
        let outcome = if first_block == 0 { Outcome::Refused } else { Outcome::Fetched };
        policy.completed(NOW, id, outcome);
    }
    (0..6).for_each(|index| {
        read(&mut policy, READER, of(2, index));
    });
    (0..900).for_each(|index| {
        read(&mut policy, anybody, of(8, index));
    });
}

#[test]
fn a_long_stride_is_repeated_as_a_whole() {
    let count = 5000;
    let model = CostModel { hit_ns: 1e3, driver_ns: 1e3, disk_ns: 1e4 };
    let costs = CostSource::Fixed(model);
    let (mut policy, stream) = opened(Config { block_bytes: 1, costs, ..config(Rules::TIP2, 400) });
    policy.hint(NOW, stream, Hint { repeats: 2, ..strided(1 << 20, (0, 1), 2, count) });
    for pass in 0..2 {
        for index in 0..count {
            fetch_all(&mut policy, DISK);
            let access = read(&mut policy, READER, block(2 * index));
            assert_eq!(access, Access::Hit, "pass {pass}, range {index}");
        }
    }
    assert_eq!(policy.waiting_hints(), 0, "all was read as it was hinted");
    // A stride beyond the end of its file ends, however often it is repeated.
    policy.hint(NOW, stream, Hint { repeats: u32::MAX, ..strided(10, (100, 1), 2, count) });
    assert_eq!(policy.waiting_hints(), 0);
}

#[test]
fn hints_for_ever_of_what_is_in_memory_leave_positions_for_others() {
    let config =
        Config { capacity_blocks: 2048, cluster_blocks_max: 1024, ..Config::new(KERNEL, 10, 10) };
    let (mut policy, stream) = opened(config);
    for number in 0..600 {
        let file = other_file(number, 10 * 1024);
        policy.hint(NOW, stream, Hint { repeats: u32::MAX, ..Hint::whole_file(file, DISK) });
        let mut looked_at = 0;
        while let Some(Fetch { id, work, .. }) = policy.next_fetch(NOW, DISK) {
            let Work::Read { blocks, .. } = work else { panic!("{work:?}") };
            looked_at += blocks;
            policy.completed(NOW, id, Outcome::AlreadyCached);
        }
        assert!(looked_at >= 1024, "{looked_at} blocks of hint {number}");
    }
    assert!(policy.is_past(stream));
}

#[test]
fn two_who_begin_runs_do_not_take_each_others_unread_blocks_for_ever() {
    const SIZE_BYTES: u64 = 300;
    let mut policy = Policy::new(Config {
        outstanding_max: 12,
        resolved_max: 16,
        tries_depths: false,
        ..config(Rules::FORETELL, 40)
    });
    let named = |name: u64| Hint::whole_file(Target::Name(NameId(name)), DISK);
    let resolved =
        |name: NameId| Outcome::Resolved { file: FileId(name.0), size_bytes: SIZE_BYTES };
    let mut under_way: Vec<Fetch> = Vec::new();
    let mut begin = |policy: &mut Policy, at: u64| {
        policy.next_fetch(Nanos(at), DISK).inspect(|&fetch| under_way.push(fetch))
    };
    let one = policy.open_stream(Nanos(11_308_723_565), HinterId(2), None);
    policy.hint(Nanos(11_308_893_607), one, named(302));
    policy.hint(Nanos(11_308_893_607), one, named(303));
    let lookups = [(); 2].map(|()| policy.next_fetch(Nanos(11_309_356_436), DISK).expect("a name"));
    policy.completed(Nanos(11_309_383_276), lookups[1].id, resolved(NameId(303)));
    policy.completed(Nanos(11_309_399_760), lookups[0].id, Outcome::Refused);
    begin(&mut policy, 11_309_497_276);
    let other = policy.open_stream(Nanos(11_310_886_763), HINTER, None);
    policy.hint(Nanos(11_412_349_097), other, named(311));
    begin(&mut policy, 11_412_349_097);
    policy.hint(Nanos(11_412_349_097), other, named(319));
    // Other readers wait for blocks, which shows how fast the device is: when, for which block, and whether its fetch begins.
    let mut waited_for: Vec<(u64, Fetch)> = Vec::new();
    let mut wait = |policy: &mut Policy, (at, number, begins): (u64, u64, bool)| {
        let now = Nanos(38_740_675_355 + at);
        if begins {
            let block = Block { file: FileId(1000 + number), index: 0 };
            waited_for.push((number, policy.demand(now, DISK, block).expect("a buffer")));
        } else {
            let known = waited_for.iter().find(|(waits, _)| *waits == number).expect("it began");
            policy.completed(now, known.1.id, Outcome::Fetched);
        }
        while policy.next_eviction().is_some() {}
    };
    let first = [
        (0, 0, true),
        (20680, 1, true),
        (22177, 2, true),
        (29605, 3, true),
        (54999, 4, true),
        (63100, 5, true),
        (150846, 0, false),
        (150846, 4, false),
        (150846, 1, false),
        (150846, 5, false),
        (150846, 3, false),
        (150846, 2, false),
        (305826, 6, true),
        (324441, 7, true),
        (525730, 6, false),
        (525730, 7, false),
        (576342, 8, true),
        (100798014, 9, true),
        (100804181, 10, true),
        (100828387, 11, true),
        (101055291, 11, false),
        (101260005, 12, true),
        (101333715, 13, true),
        (101339391, 14, true),
        (101362946, 14, false),
        (101362946, 9, false),
        (101362946, 10, false),
        (101362946, 12, false),
        (101362946, 8, false),
        (101362946, 13, false),
        (101905895, 15, true),
    ];
    first.into_iter().for_each(|event| wait(&mut policy, event));
    policy.observe(DISK, Cost::Hit, Nanos(16_494_806));
    let rest = [(1602125827, 15, false), (1702636137, 16, true), (1702669293, 16, false)];
    rest.into_iter().for_each(|event| wait(&mut policy, event));
    let mut now = 40_443_344_648;
    for _ in 0..200 {
        under_way.extend(std::iter::from_fn(|| policy.next_fetch(Nanos(now), DISK)));
        if under_way.is_empty() {
            return;
        }
        now += 5_000_000;
        for Fetch { id, work, .. } in under_way.drain(..) {
            let outcome = match work {
                Work::Resolve { name } => resolved(name),
                Work::Read { .. } => Outcome::Fetched,
            };
            policy.completed(Nanos(now), id, outcome);
        }
        while policy.next_eviction().is_some() {}
    }
    panic!("what is fetched is let go for ever: {:?}", policy.counts());
}

/// A hanging fetch of a block that was read meanwhile keeps its buffer. Other blocks must not be fetched and evicted for ever
/// in the remaining buffers.
#[test]
fn tip1_comes_to_an_end_beside_a_fetch_that_hangs() {
    let far = DeviceId(1);
    for memory in [Memory::Kernel { keeps: false }, Memory::Kernel { keeps: true }, Memory::Owned] {
        let config = Config { memory, tries_depths: false, ..config(Rules::TIP1, 8) };
        let (mut policy, stream) = opened(config);
        if memory == Memory::Owned {
            for index in 0..7 {
                let other = Block { file: FileId(2), index };
                policy.demand(NOW, far, other).expect("a buffer");
            }
        } else {
            let other = Target::File { file: FileId(2), size_bytes: 10 };
            policy.hint(NOW, stream, Hint::whole_file(other, far));
            policy.next_fetch(NOW, far).expect("it hangs");
            let other = Block { file: FileId(2), index: 0 };
            assert_eq!(policy.read(NOW, READER, other, false), Access::Hit, "the kernel had it");
        }
        policy.hint(NOW, stream, Hint::whole_file(file(300), DISK));
        let mut fetched = 0;
        while let Some(fetch) = policy.next_fetch(NOW, DISK) {
            policy.completed(NOW, fetch.id, Outcome::Fetched);
            fetched += 1;
            assert!(fetched < 1000, "what is fetched is let go for ever: {:?}", policy.counts());
        }
        let most = if memory == Memory::Owned { 1 } else { 7 };
        assert_eq!((fetched, policy.counts().wasted), (most, 0), "{memory:?}");
    }
}

/// Streams parked until others have fewer unread blocks are asked then, even if some of them want nothing any more.
#[test]
fn tip1_asks_all_that_wait() {
    let mut policy = Policy::new(config(Rules::TIP1, 9));
    let open = |policy: &mut Policy, number, blocks: u64| {
        let stream = policy.open_stream(NOW, HINTER, None);
        let target = Target::File { file: FileId(number), size_bytes: 10 * blocks };
        policy.hint(NOW, stream, Hint::whole_file(target, DISK));
        stream
    };
    open(&mut policy, 1, 3);
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1, 2]);
    open(&mut policy, 2, 30);
    assert_eq!(fetch_all(&mut policy, DISK), []);
    let others: Vec<StreamId> = (3..6).map(|number| open(&mut policy, number, 30)).collect();
    assert_eq!(fetch_all(&mut policy, DISK), []);
    others.into_iter().for_each(|stream| policy.cancel(NOW, stream));
    for index in 0..3 {
        assert_eq!(policy.read(NOW, READER, block(index), false), Access::Hit);
    }
    assert_eq!(policy.pending_blocks(), 0);
    assert_eq!(fetch_all(&mut policy, DISK), [0, 1, 2]);
}
