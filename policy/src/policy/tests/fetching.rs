//! Which blocks are fetched, in which order, how many at once, and what becomes of them.

use super::*;

#[test]
fn blocks_come_in_hint_order_and_clusters_stay_within_a_file() {
    let (mut policy, _) = hinted(config(100), 3);
    let expected: Vec<Block> =
        (0..3).flat_map(|file| (0..6).map(move |index| block(file, index))).collect();
    assert_eq!(fetch_all(&mut policy, 55), expected);
    assert_eq!(policy.counts().prefetched, 18);
}

#[test]
fn the_ceiling_holds_and_a_read_makes_room_for_one_more() {
    let (mut policy, _) = hinted(config(5), 4);
    assert_eq!(fetch_all(&mut policy, 30).len(), 5);
    assert!(next_read(&mut policy, 30).is_none());
    assert_eq!(policy.read(NOW, READER, block(0, 0), false), Access::Hit);
    assert_eq!(fetch_all(&mut policy, 30), [block(1, 2)]);
}

/// A program may look at files and read none.
#[test]
fn little_is_fetched_on_a_guess_before_the_first_read() {
    let wide = Config { resolved_max: 1024, ..config(100_000) };
    let (mut sure, _) = hinted(wide, 200);
    let all = fetch_all(&mut sure, 140).len();
    let (mut policy, stream) = hinted(wide, 200);
    policy.guesses(stream);
    let first = fetch_all(&mut policy, 140).len();
    assert!((128..=132).contains(&first) && all > 1000, "{first}, without a guess {all}");
    let mut fetched = first;
    for at in 0..140 {
        policy.read(NOW, READER, block(at / 14, at % 14), false);
        fetched += fetch_all(&mut policy, 140).len();
    }
    assert!(fetched >= 140 + all, "{fetched}: a guess that is read is as good as a hint");
}

#[test]
fn a_block_that_has_moved_is_fetched_from_where_it_lies() {
    let config = Config { memory: Memory::Owned, tries_depths: false, ..config(4) };
    let mut policy = Policy::new(config);
    let (near, file) = (DeviceId(1), Target::File { file: FileId(0), size_bytes: 60 });
    let stream = policy.open_stream(NOW, HINTER, None);
    // The same six blocks twice, with memory for four.
    policy.hint(NOW, stream, Hint { repeats: 2, ..Hint::whole_file(file, DISK) });
    let mut fetched = vec![];
    for turn in 0..12 {
        for device in [DISK, near] {
            while let Some(fetch) = policy.next_fetch(NOW, device) {
                let Work::Read { first_block, blocks, .. } = fetch.work else { unreachable!() };
                policy.completed(NOW, fetch.id, Outcome::Fetched);
                for index in first_block..first_block + blocks {
                    policy.moved(block(0, index), near);
                    fetched.push((index, device));
                }
            }
        }
        let block = block(0, turn % 6);
        if policy.read(NOW, READER, block, false) == Access::Miss {
            let fetch = policy.demand(NOW, DISK, block).unwrap();
            policy.completed(NOW, fetch.id, Outcome::Fetched);
            policy.moved(block, near);
        }
        while policy.next_eviction().is_some() {}
    }
    let ahead = fetched.iter().filter(|(_, device)| *device == near).count();
    assert!(ahead > 0 && policy.counts().prefetched > 4, "{fetched:?}");
}

#[test]
fn a_cluster_takes_no_neighbour_that_is_read_when_memory_has_been_filled_anew() {
    let file = Target::File { file: FileId(0), size_bytes: 10_000 };
    for (blocks_between, cluster) in [(10, 2), (30, 1)] {
        let mut policy =
            Policy::new(Config { memory: Memory::Owned, tries_depths: false, ..config(20) });
        let stream = policy.open_stream(NOW, HINTER, None);
        // Block 0, then others far away, and block 1 last.
        let one = |index: u64| Segment { offset_bytes: index * 10, length_bytes: 10 };
        let others = (0..blocks_between).map(|turn| one(100 + turn * 10));
        let order: Vec<Segment> = [one(0)].into_iter().chain(others).chain([one(1)]).collect();
        policy.hint(NOW, stream, Hint::segments(file, DISK, &order));
        let first = policy.next_fetch(NOW, DISK).map(|fetch| fetch.work);
        assert_eq!(first, Some(Work::Read { file: FileId(0), first_block: 0, blocks: cluster }));
    }
}

#[test]
fn a_device_gets_no_more_than_its_slots() {
    let (mut policy, _) = hinted(Config { outstanding_max: 3, ..config(100) }, 50);
    let fetches: Vec<Fetch> = std::iter::from_fn(|| policy.next_fetch(NOW, DISK)).collect();
    assert_eq!(fetches.len(), 3);
    policy.completed(NOW, fetches[1].id, Outcome::Refused);
    assert!(policy.next_fetch(NOW, DISK).is_some());
    assert!(policy.next_fetch(NOW, DISK).is_none());
    assert!(policy.next_fetch(NOW, DeviceId(99)).is_none(), "a device nobody named");
}

#[test]
fn every_prefetched_block_ends_in_one_count() {
    let (mut policy, stream) = hinted(config(100), 2);
    let first = next_read(&mut policy, 40).expect("file 0");
    let second = next_read(&mut policy, 40).expect("file 1");
    assert_eq!(policy.read(NOW, READER, block(0, 0), true), Access::InFlight);
    assert_eq!(policy.read(NOW, READER, block(0, 1), false), Access::Hit);
    policy.completed(NOW, first.id, Outcome::Fetched);
    assert_eq!(policy.read(NOW, READER, block(0, 2), true), Access::Hit);
    policy.completed(NOW, second.id, Outcome::Short { blocks: 1 });
    policy.close(NOW, stream);
    let counts = policy.counts();
    assert_eq!((counts.prefetched, counts.late, counts.useful), (8, 1, 2));
    assert_eq!((counts.refused, counts.wasted), (3, 2));
    assert_eq!(policy.pending_blocks(), 0);
}

#[test]
fn what_is_cached_already_costs_no_room() {
    let (mut policy, _) = hinted(config(4), 3);
    for _ in 0..3 {
        let fetch = next_read(&mut policy, 40).expect("room for the next");
        policy.completed(NOW, fetch.id, Outcome::AlreadyCached);
    }
    assert_eq!(policy.counts().already_cached, 12);
    assert_eq!(policy.counts().prefetched, 0);
    assert!(policy.is_idle());
}

#[test]
fn who_reads_a_block_on_its_way_to_another_has_read_it() {
    let mut policy = Policy::new(Config { memory: Memory::Owned, ..config(10) });
    let stream = policy.open_stream(NOW, HINTER, Some(READER));
    let file = Target::File { file: FileId(0), size_bytes: 10 };
    policy.hint(NOW, stream, Hint::whole_file(file, DISK));
    let fetch = policy.next_fetch(NOW, DISK).expect("the block");
    assert_eq!(policy.read(NOW, ReaderId(2), block(0, 0), true), Access::InFlight);
    policy.completed(NOW, fetch.id, Outcome::Fetched);
    policy.close(NOW, stream);
    assert_eq!(policy.reason(block(0, 0)), Some(Reason::Recent));
}

#[test]
fn every_block_in_memory_has_a_reason() {
    let mut policy = Policy::new(Config { memory: Memory::Owned, ..config(10) });
    policy.arbiter.set_frequency(true);
    for index in [0; 5].into_iter().chain(1..50) {
        if policy.read(NOW, READER, block(0, index), true) == Access::Miss {
            let fetch = policy.demand(NOW, DISK, block(0, index)).expect("a buffer");
            policy.completed(NOW, fetch.id, Outcome::Fetched);
        }
    }
    let reasons = (0..50).filter_map(|index| policy.reason(block(0, index)));
    assert_eq!(reasons.count() as u64, policy.held_blocks());
    assert_eq!(policy.reason(block(0, 0)), Some(Reason::KeptBy("frequency")));
    assert_eq!(policy.reason(block(0, 49)), Some(Reason::Recent));
}

/// Values of the evicted blocks: a loop of nine blocks and a new one each time, in memory that is just large enough for both.
fn worth_of_a_loop(driver_ns: f64, disk_ns: f64) -> Vec<f64> {
    let costs = CostSource::Fixed(CostModel { hit_ns: 1e3, driver_ns, disk_ns });
    let mut policy = Policy::new(Config {
        memory: Memory::Owned,
        decisions_max: 1000,
        costs,
        rules: Rules::TIP2,
        ..config(10)
    });
    for index in (0..24).flat_map(|round| (0..9).chain([100 + round])) {
        if policy.read(NOW, READER, block(0, index), false) == Access::Miss {
            let fetch = policy.demand(NOW, DISK, block(0, index)).expect("a buffer");
            policy.completed(NOW, fetch.id, Outcome::Fetched);
        }
    }
    policy.take_decisions().0.iter().map(|decision| decision.value_ns).collect()
}

#[test]
fn a_miss_costs_the_driver_as_well_as_the_disk() {
    let worth = worth_of_a_loop(5e3, 1e4);
    assert!(worth.iter().any(|&value_ns| value_ns > 0.0), "with one buffer less nothing would hit");
    assert_eq!(worth, worth_of_a_loop(1e4, 5e3));
    assert_ne!(worth, worth_of_a_loop(1e4, 1e4));
}

/// Fetches in flight at a device with one server that cannot keep up with its reader.
fn under_way(memory: Memory, overload: bool, capacity_blocks: u64) -> usize {
    const SERVICE: Nanos = Nanos(10_000_000);
    let rules = Rules { overload, ..Rules::FORETELL };
    let config = Config { tries_depths: false, ..config(capacity_blocks) };
    let single = Config { cluster_blocks_max: 1, memory, rules, ..config };
    let (mut policy, _) = hinted(single, 1);
    let (mut now, mut queue) = (NOW, VecDeque::new());
    for index in 0..500 {
        while let Some(fetch) = policy.next_fetch(now, DISK) {
            let Work::Resolve { .. } = fetch.work else {
                queue.push_back(fetch);
                continue;
            };
            let outcome = Outcome::Resolved { file: FileId(0), size_bytes: 10_000 };
            policy.completed(now, fetch.id, outcome);
        }
        while policy.next_eviction().is_some() {}
        policy.read(now, READER, block(0, index), true);
        now += SERVICE;
        let served = queue.pop_front().expect("the device is never idle");
        policy.completed(now, served.id, Outcome::Fetched);
        policy.waited(READER, SERVICE);
    }
    queue.len()
}

#[test]
fn a_device_that_cannot_keep_up_has_a_long_queue_only_while_memory_is_free() {
    for memory in [Memory::Owned, Memory::Kernel { keeps: false }, Memory::Kernel { keeps: true }] {
        let queues = |overload| [1000, 80, 8].map(|blocks| under_way(memory, overload, blocks));
        let [free, some_free, scarce] = queues(true);
        assert!(free >= 60, "{free}: all slots");
        assert!((59..=60).contains(&some_free), "{some_free}: all but a quarter of memory");
        assert!((5..=6).contains(&scarce), "{scarce}: five for a server, and one block");
        let [_, unnoticed, scarce_unnoticed] = queues(false);
        assert!(some_free < unnoticed, "{unnoticed}");
        assert!(scarce < scarce_unnoticed, "{scarce_unnoticed}");
    }
}

#[test]
fn the_demand_reader_overtakes() {
    let (mut policy, _) = hinted(Config { outstanding_max: 1, ..config(100) }, 1);
    let first = next_read(&mut policy, 200).expect("blocks 0 to 3");
    assert_eq!(policy.read(NOW, READER, block(0, 9), true), Access::Miss);
    policy.completed(NOW, first.id, Outcome::Fetched);
    let second = policy.next_fetch(NOW, DISK).expect("the rest");
    assert_eq!(second.work, Work::Read { file: FileId(0), first_block: 10, blocks: 4 });
    assert_eq!(policy.counts().overtaken, 1);
}

#[test]
fn skipped_blocks_do_not_hold_the_ceiling_for_ever() {
    let (mut policy, _) = hinted(config(10), 100);
    let mut read = 0;
    loop {
        let fetched = fetch_all(&mut policy, 40);
        let Some(last) = fetched.last() else { break };
        policy.read(NOW, READER, *last, false);
        read += 1;
        assert!(read < 400, "it must come to an end");
    }
    assert!(policy.counts().prefetched >= 390, "{:?}", policy.counts());
    assert!(policy.counts().wasted > 200, "{:?}", policy.counts());
}

#[test]
fn overlapping_hints_fetch_a_block_once() {
    let mut policy = Policy::new(config(100));
    let (one, two) = (policy.open_stream(NOW, HINTER, None), policy.open_stream(NOW, HINTER, None));
    policy.hint(NOW, one, Hint::whole_file(named(0), DISK));
    let tail = [Segment { offset_bytes: 15, length_bytes: 40 }];
    policy.hint(NOW, two, Hint::segments(named(0), DISK, &tail));
    assert_eq!(fetch_all(&mut policy, 40).len(), 4);
    // 15..55 touches blocks 1 to 5. The file has no blocks 4 and 5.
    assert_eq!(policy.counts().refused, 2);
}

#[test]
fn a_hint_at_the_end_of_time_is_fetched() {
    // The horizon is about ten blocks. Blocks beyond it wait until no more hints come.
    let costs = CostModel { hit_ns: 1000.0, driver_ns: 10.0, disk_ns: 10_000.0 };
    let costs = CostSource::Fixed(costs);
    let owned = Config { memory: Memory::Owned, tries_depths: false, ..config(100) };
    let single = Config { cluster_blocks_max: 1, costs, outstanding_max: 50, ..owned };
    let mut policy = Policy::new(single);
    let end = Nanos(u64::MAX);
    let stream = policy.open_stream(end, HINTER, None);
    let target = Target::File { file: FileId(0), size_bytes: 10_000 };
    policy.hint(end, stream, Hint::whole_file(target, DISK));
    let fetched = std::iter::from_fn(|| policy.next_fetch(end, DISK)).count();
    assert!(fetched > 0);
}

#[test]
fn a_stream_with_a_bound_is_fetched_no_further_ahead() {
    let target = Target::File { file: FileId(0), size_bytes: 10_000 };
    for (bytes, least, most) in [(95, 10, 14), (1, 1, 1)] {
        let mut policy = Policy::new(config(1000));
        let stream = policy.open_stream(NOW, HINTER, None);
        policy.limit_ahead(stream, bytes);
        policy.hint(NOW, stream, Hint::whole_file(target, DISK));
        let mut fetched = fetch_all(&mut policy, 10_000).len() as u64;
        assert!((least..=most).contains(&fetched), "{fetched}");
        for index in 0..1000 {
            policy.read(NOW, READER, block(0, index), false);
            fetched += fetch_all(&mut policy, 10_000).len() as u64;
            assert!(fetched <= index + 1 + most, "{fetched} at {index}");
        }
        assert_eq!(policy.counts().useful, 1000);
    }
}

/// A table of which one column in eight is read.
#[test]
fn a_stream_with_gaps_is_fetched_as_far_ahead_as_before() {
    let target = Target::File { file: FileId(0), size_bytes: 100_000 };
    let ahead = |has_gaps: bool, step: usize| {
        let mut policy = Policy::new(config(10_000));
        let stream = policy.open_stream(NOW, HINTER, None);
        if has_gaps {
            policy.expect_gaps(stream);
        }
        policy.hint(NOW, stream, Hint::whole_file(target, DISK));
        let mut last = fetch_all(&mut policy, 100_000).len() as u64;
        for index in (0..5000).step_by(step) {
            policy.read(NOW, READER, block(0, index), false);
            last += fetch_all(&mut policy, 100_000).len() as u64;
        }
        last.saturating_sub(5000)
    };
    let (with, without) = (ahead(true, 8), ahead(false, 8));
    assert!(with >= 400 && without < 100, "{with}, without gaps {without}");
    let sparse = ahead(true, 64);
    assert!(sparse < 100, "{sparse}: hardly anything of it is read");
}

#[test]
fn a_stream_may_have_clusters_of_its_own() {
    let target = Target::File { file: FileId(0), size_bytes: 10_000 };
    let mut policy = Policy::new(config(1000));
    for (bytes, blocks) in [(None, 4), (Some(160), 16), (Some(1), 1)] {
        let stream = policy.open_stream(NOW, HINTER, None);
        bytes.into_iter().for_each(|bytes| policy.set_cluster(stream, bytes));
        policy.hint(NOW, stream, Hint::whole_file(target, DISK));
        let fetch = next_read(&mut policy, 10_000).expect("a block is missing");
        let Work::Read { blocks: most, .. } = fetch.work else { panic!("no lookup is due") };
        assert_eq!(most, blocks);
        policy.close(NOW, stream);
    }
}
