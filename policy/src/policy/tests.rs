use super::*;
use crate::blocks::Claim;
use crate::contract::{CostModel, CostSource, Reason, Work};

use crate::devices::depth::DEPTH_SAMPLE;
use crate::hint::{Extent, FileId, HinterId, NameId, Segment, Target};
use crate::rules::Rules;
use proptest::prelude::*;
use std::collections::VecDeque;

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const READER: ReaderId = ReaderId(1);
const HINTER: HinterId = HinterId(1);

fn config(capacity_blocks: u64) -> Config {
    Config {
        cluster_blocks_max: 4,
        outstanding_max: 64,
        resolved_max: 8,
        capacity_blocks,
        ..Config::new(Memory::Kernel { keeps: false }, 10, 1)
    }
}

fn named(name: u64) -> Target {
    Target::Name(NameId(name))
}

fn block(file: u64, index: u64) -> Block {
    Block { file: FileId(file), index }
}

/// Files of `size_bytes` each, the name's number being the file's, hinted whole in one stream.
fn hinted(config: Config, files: u64) -> (Policy, StreamId) {
    let mut policy = Policy::new(config);
    let stream = policy.open_stream(NOW, HINTER, None);
    for name in 0..files {
        policy.hint(NOW, stream, Hint::whole_file(named(name), DISK));
    }
    (policy, stream)
}

/// Completes lookups until a read comes out; all files have `size_bytes`.
fn next_read(policy: &mut Policy, size_bytes: u64) -> Option<Fetch> {
    loop {
        let fetch = policy.next_fetch(NOW, DISK)?;
        let Work::Resolve { name } = fetch.work else { return Some(fetch) };
        policy.completed(NOW, fetch.id, Outcome::Resolved { file: FileId(name.0), size_bytes });
    }
}

fn fetch_all(policy: &mut Policy, size_bytes: u64) -> Vec<Block> {
    let mut fetched = Vec::new();
    while let Some(fetch) = next_read(policy, size_bytes) {
        let Work::Read { file, first_block, blocks } = fetch.work else { unreachable!() };
        fetched.extend((0..blocks).map(|offset| Block { file, index: first_block + offset }));
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    fetched
}

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

#[test]
fn names_are_looked_up_lazily_and_in_parallel() {
    let (mut policy, _) = hinted(config(100), 50);
    let lookups: Vec<Fetch> = std::iter::from_fn(|| policy.next_fetch(NOW, DISK)).collect();
    assert_eq!(lookups.len(), 8, "resolved_max lookups at once");
    for lookup in lookups.into_iter().rev() {
        let Work::Resolve { name } = lookup.work else { panic!("a read before its lookup") };
        let outcome = Outcome::Resolved { file: FileId(name.0), size_bytes: 10 };
        policy.completed(NOW, lookup.id, outcome);
    }
    let first = policy.next_fetch(NOW, DISK).expect("eight files are known");
    assert_eq!(first.work, Work::Read { file: FileId(0), first_block: 0, blocks: 1 });
}

#[test]
fn a_block_that_has_moved_is_fetched_from_where_it_lies() {
    let config = Config { memory: Memory::Owned, tries_depths: false, ..config(4) };
    let mut policy = Policy::new(config);
    let (near, file) = (DeviceId(1), Target::File { file: FileId(0), size_bytes: 60 });
    let stream = policy.open_stream(NOW, HINTER, None);
    // Twice the same six blocks, of which memory holds four.
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
        // Block 0, others far away, and only then block 1.
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
fn where_everything_is_cached_few_hints_are_looked_at_until_one_is_not() {
    let (mut policy, _) = hinted(Config { resolved_max: 64, ..config(100) }, 1000);
    let mut looked_at = 0;
    while let Some(fetch) = next_read(&mut policy, 10) {
        policy.completed(NOW, fetch.id, Outcome::AlreadyCached);
        looked_at += 1;
        if policy.waiting_hints() < 400 {
            break;
        }
    }
    assert!(looked_at > 32 && looked_at < 32 + 600 / 8 + 10, "{looked_at}");
    // A program that had to wait for a block wakes it.
    policy.read(NOW, READER, block(99_999, 0), true);
    let before = policy.counts().hints_passed_over;
    for _ in 0..20 {
        let fetch = next_read(&mut policy, 10).expect("hints are left");
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    assert_eq!(policy.counts().hints_passed_over, before);
    assert_eq!(policy.counts().useful + policy.counts().late, 0);
}

#[test]
fn the_last_of_all_hints_is_not_passed_over_nor_one_after_a_block_that_was_not_cached() {
    let (mut policy, _) = hinted(config(100), u64::from(DOZE_AFTER) + 4);
    let mut last = None;
    while let Some(fetch) = next_read(&mut policy, 10) {
        let Work::Read { file, .. } = fetch.work else { unreachable!() };
        last = Some(file);
        policy.completed(NOW, fetch.id, Outcome::AlreadyCached);
    }
    assert_eq!(
        (policy.counts().hints_passed_over, last),
        (3, Some(FileId(u64::from(DOZE_AFTER) + 3)))
    );
    assert!(policy.is_idle());

    let (mut policy, _) = hinted(Config { resolved_max: 64, ..config(100) }, 1000);
    while policy.counts().hints_passed_over == 0 {
        let fetch = next_read(&mut policy, 10).expect("hints are left");
        policy.completed(NOW, fetch.id, Outcome::AlreadyCached);
    }
    let fetch = next_read(&mut policy, 10).expect("hints are left");
    policy.completed(NOW, fetch.id, Outcome::Fetched);
    let before = policy.counts().hints_passed_over;
    for _ in 0..20 {
        let fetch = next_read(&mut policy, 10).expect("hints are left");
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    assert_eq!(policy.counts().hints_passed_over, before);
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

/// What the blocks were worth that a loop of nine and a new one each time, for which memory is just large enough, has let go.
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

#[test]
fn the_queue_deepens_once_the_device_is_seen_to_work_on_many() {
    let wide = Config { outstanding_max: 1000, resolved_max: 1000, ..config(2000) };
    let (mut policy, _) = hinted(wide, 2000);
    let mut lookups: Vec<Fetch> = std::iter::from_fn(|| policy.next_fetch(NOW, DISK)).collect();
    assert_eq!(lookups.len(), DEPTH_SAMPLE);
    let lookup = lookups.remove(0);
    let found = |number| Outcome::Resolved { file: FileId(number), size_bytes: 10 };
    policy.completed(NOW, lookup.id, found(5));
    let read = policy.next_fetch(NOW, DISK).expect("its block");
    policy.completed(NOW, read.id, Outcome::Fetched);
    // That was worth it, but whether it would not be without the others, too, is not known.
    assert_eq!(policy.next_fetch(NOW, DISK).map(|fetch| lookups.push(fetch)), Some(()));
    assert!(policy.next_fetch(NOW, DISK).is_none());
    // All side by side.
    let mut now = NOW + Nanos(10_000_000);
    for (number, lookup) in (6..).zip(lookups) {
        now += Nanos(100_000);
        policy.completed(now, lookup.id, found(number));
    }
    assert!(std::iter::from_fn(|| policy.next_fetch(now, DISK)).count() > 90);
}

/// Fetches under way at a device with one server that cannot keep up with its reader.
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
fn a_name_that_cannot_be_had_is_refused_and_the_next_goes_on() {
    let (mut policy, _) = hinted(config(10), 2);
    let lookup = policy.next_fetch(NOW, DISK).expect("name 0");
    policy.completed(NOW, lookup.id, Outcome::Refused);
    assert_eq!(fetch_all(&mut policy, 10), [block(1, 0)]);
    assert_eq!(policy.counts().hints_refused, 1);
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
fn a_stream_must_earn_its_depth() {
    // A program that reads the first block of each file of a hundred.
    let deep = Config { resolved_max: 1000, ..config(1_000_000) };
    let (mut policy, _) = hinted(deep, 200);
    let mut fetched = 0;
    for file in 0..200 {
        fetched += fetch_all(&mut policy, 1000).len();
        policy.read(NOW, READER, block(file, 0), true);
    }
    assert!(fetched < 4000, "{fetched} of 20,000 blocks fetched for 200");
    // One that reads everything is served up to the horizon, 2,500 blocks ahead.
    let (mut policy, _) = hinted(deep, 200);
    let (mut fetched, mut read) = (Vec::new(), 0);
    while read < 10_000 {
        fetched.extend(fetch_all(&mut policy, 1000));
        policy.read(NOW, READER, fetched[read], false);
        read += 1;
    }
    assert!((12_400..12_600).contains(&fetched.len()), "{}", fetched.len());
}

#[test]
fn a_repeated_hint_waits_for_its_earlier_pass() {
    let mut policy = Policy::new(config(100));
    let stream = policy.open_stream(NOW, HINTER, None);
    let hint = Hint { repeats: 2, ..Hint::whole_file(named(0), DISK) };
    policy.hint(NOW, stream, hint);
    policy.hint(NOW, stream, Hint::whole_file(named(1), DISK));
    // The second file does not wait behind the blocked second pass.
    assert_eq!(fetch_all(&mut policy, 20), [block(0, 0), block(0, 1), block(1, 0), block(1, 1)]);
    policy.read(NOW, READER, block(0, 0), false);
    assert_eq!(fetch_all(&mut policy, 20), [block(0, 0)]);
    policy.read(NOW, READER, block(0, 1), false);
    assert_eq!(fetch_all(&mut policy, 20), [block(0, 1)]);
    assert!(policy.is_idle());
}

#[test]
fn overlapping_hints_fetch_a_block_once() {
    let mut policy = Policy::new(config(100));
    let (one, two) = (policy.open_stream(NOW, HINTER, None), policy.open_stream(NOW, HINTER, None));
    policy.hint(NOW, one, Hint::whole_file(named(0), DISK));
    let tail = [Segment { offset_bytes: 15, length_bytes: 40 }];
    policy.hint(NOW, two, Hint::segments(named(0), DISK, &tail));
    assert_eq!(fetch_all(&mut policy, 40).len(), 4);
    // 15..55 touches blocks 1 to 5, of which the file has not 4 and 5.
    assert_eq!(policy.counts().refused, 2);
}

#[test]
fn a_cancelled_stream_leaves_nothing_behind() {
    let (mut policy, stream) = hinted(config(100), 20);
    let lookup = policy.next_fetch(NOW, DISK).expect("a lookup under way");
    let read = {
        let other = policy.next_fetch(NOW, DISK).expect("a second lookup");
        let outcome = Outcome::Resolved { file: FileId(1), size_bytes: 40 };
        policy.completed(NOW, other.id, outcome);
        // The second file does not wait for the first one for ever.
        policy.next_fetch(Nanos(1_000_000_000), DISK).expect("a read under way")
    };
    policy.cancel(NOW, stream);
    assert_eq!(policy.pending_blocks(), 0);
    assert_eq!(policy.counts().unfinished, 4);
    policy.completed(NOW, read.id, Outcome::Fetched);
    let outcome = Outcome::Resolved { file: FileId(0), size_bytes: 40 };
    policy.completed(NOW, lookup.id, outcome);
    assert!(policy.is_idle() && policy.next_fetch(NOW, DISK).is_none());
    assert!(policy.devices.iter().all(|device| device.names_under_way() == 0));
    policy.close(NOW, stream);
    policy.hint(NOW, stream, Hint::whole_file(named(0), DISK));
    assert!(policy.is_idle(), "a closed stream takes no hints");
}

#[test]
fn a_hint_repeated_for_ever_of_what_is_in_memory_is_not_looked_at_for_ever() {
    let mut policy = Policy::new(config(100));
    let stream = policy.open_stream(NOW, HINTER, None);
    let hint = Hint { repeats: u32::MAX, ..Hint::whole_file(named(0), DISK) };
    policy.hint(NOW, stream, hint);
    let mut looked_at = 0;
    while let Some(fetch) = next_read(&mut policy, 100) {
        policy.completed(NOW, fetch.id, Outcome::AlreadyCached);
        looked_at += 1;
        assert!(looked_at < 100, "nobody has read anything");
    }
    assert!(policy.is_idle());
}

/// A policy whose device is left with nothing but two lookups that never end, when it is being tried
/// whether so many at a time are better than many.
fn left_with_two_lookups() -> (Policy, Nanos) {
    const SERVICE: Nanos = Nanos(10_000_000);
    let wide = Config { outstanding_max: 1024, resolved_max: 128, ..config(100_000) };
    let (mut policy, _) = hinted(wide, 3000);
    let (mut now, mut under_way) = (NOW, VecDeque::new());
    loop {
        while let Some(fetch) = policy.next_fetch(now, DISK) {
            under_way.push_back(fetch);
        }
        let lookups = under_way.iter().filter(|fetch| matches!(fetch.work, Work::Resolve { .. }));
        if policy.devices[0].depth.depth() == 2 && lookups.count() == 2 && under_way.len() == 2 {
            return (policy, now);
        }
        now += SERVICE;
        let ended = under_way.pop_front().expect("hints are left");
        let outcome = match ended.work {
            Work::Resolve { name } => Outcome::Resolved { file: FileId(name.0), size_bytes: 10 },
            Work::Read { .. } => Outcome::Fetched,
        };
        policy.completed(now, ended.id, outcome);
        if let Work::Read { file, first_block, .. } = ended.work {
            policy.read(now, READER, Block { file, index: first_block }, false);
        }
    }
}

#[test]
fn lookups_that_never_end_do_not_stop_their_device() {
    let (mut policy, mut now) = left_with_two_lookups();
    assert!(policy.next_fetch(now, DISK).is_none());
    let other = policy.open_stream(now, HINTER, None);
    let file = FileId(1_000_000);
    policy.hint(now, other, Hint::whole_file(Target::File { file, size_bytes: 10 }, DISK));
    now += Nanos(3_600_000_000_000);
    // What is known of either stream is fetched, and what was hinted after the two is looked up.
    let (mut is_fetched, mut is_looked_up) = (false, false);
    for _ in 0..500 {
        let Some(fetch) = policy.next_fetch(now, DISK) else { break };
        is_fetched |= fetch.work == Work::Read { file, first_block: 0, blocks: 1 };
        is_looked_up |= matches!(fetch.work, Work::Resolve { .. });
        if let Work::Read { .. } = fetch.work {
            policy.completed(now, fetch.id, Outcome::Fetched);
        }
    }
    assert!(is_fetched && is_looked_up, "{is_fetched} {is_looked_up}");
}

#[test]
fn a_lookup_at_one_device_does_not_hold_up_another_device_for_ever() {
    let mut policy = Policy::new(config(100));
    let (stream, other) = (policy.open_stream(NOW, HINTER, None), DeviceId(1));
    policy.hint(NOW, stream, Hint::whole_file(named(0), DISK));
    let known = Target::File { file: FileId(7), size_bytes: 10 };
    policy.hint(NOW, stream, Hint::whole_file(known, other));
    let lookup = policy.next_fetch(NOW, DISK).expect("a lookup");
    assert!(policy.next_fetch(Nanos(100_000_000), other).is_none());
    let fetch = policy.next_fetch(Nanos(1_000_000_000), other).expect("what comes after it");
    assert_eq!(fetch.work, Work::Read { file: FileId(7), first_block: 0, blocks: 1 });
    let outcome = Outcome::Resolved { file: FileId(0), size_bytes: 10 };
    policy.completed(Nanos(2_000_000_000), lookup.id, outcome);
    let late = policy.next_fetch(Nanos(2_000_000_000), DISK).expect("the file that was found");
    assert_eq!(late.work, Work::Read { file: FileId(0), first_block: 0, blocks: 1 });
}

#[test]
fn a_hint_at_the_end_of_time_is_fetched() {
    // A horizon of some ten blocks: those beyond it wait until no more hints come.
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
fn many_segments_wait_for_the_lookup_of_their_file() {
    for segments in [4095, 4096, 10_000] {
        let mut policy = Policy::new(config(100));
        let stream = policy.open_stream(NOW, HINTER, None);
        let hint = Hint { target: named(0), ..far_apart(segments, 1) };
        policy.hint(NOW, stream, hint);
        let lookup = policy.next_fetch(NOW, DISK).expect("a lookup");
        assert!(matches!(lookup.work, Work::Resolve { .. }), "{lookup:?}");
        assert_eq!(policy.next_fetch(NOW, DISK), None);
    }
}

/// A hint of segments of so many blocks each, here and there.
fn far_apart(segments: u64, blocks: u64) -> Hint {
    let at = |index: u64| (index * 387_431 % 1_000_003) * 10_000_010;
    let segments: Vec<Segment> = (0..segments)
        .map(|index| Segment { offset_bytes: at(index), length_bytes: blocks * 10 })
        .collect();
    let target = Target::File { file: FileId(1), size_bytes: u64::MAX / 4 };
    Hint::segments(target, DISK, &segments)
}

fn load_of(policy: &mut Policy, stream: StreamId) -> usize {
    let index = policy.stream_ids[&stream];
    policy.arbiter.stream(index).load()
}

#[test]
fn a_call_places_some_thousand_pieces_and_those_that_follow_go_on() {
    let mut policy = Policy::new(config(10));
    let stream = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, stream, far_apart(4000, 1 << 29));
    let at_once = load_of(&mut policy, stream);
    assert!(at_once < 4300, "{at_once}");
    assert!(next_read(&mut policy, 0).is_some());
    let then = load_of(&mut policy, stream);
    assert!((4000..4300).contains(&(then - at_once)), "{at_once}, {then}");
    while next_read(&mut policy, 0).is_some() {}
    let all = load_of(&mut policy, stream);
    assert!((1 << 18..(1 << 18) + 300).contains(&all), "{all}");
    policy.close(NOW, stream);
    assert_eq!(
        (policy.arbiter.streams().load(), policy.is_idle()),
        (0, false),
        "fetches are under way"
    );
}

#[test]
fn one_stream_is_placed_far_ahead_and_many_have_as_much_each() {
    let mut policy = Policy::new(config(100_000));
    let single = |policy: &mut Policy| {
        let stream = policy.open_stream(NOW, HINTER, None);
        (0..100).for_each(|_| policy.hint(NOW, stream, far_apart(2000, 1)));
        while policy.place_more() {}
        stream
    };
    let first = single(&mut policy);
    assert_eq!(load_of(&mut policy, first), 200_000, "all of it");
    let others: Vec<StreamId> = (0..40).map(|_| single(&mut policy)).collect();
    let loads: Vec<usize> = others.iter().map(|&stream| load_of(&mut policy, stream)).collect();
    assert!(loads[0] > 150_000 && loads.iter().all(|&load| load >= 512), "{loads:?}");
    assert!(
        policy.arbiter.streams().load() < (1 << 19) + 40 * 512,
        "{}",
        policy.arbiter.streams().load()
    );
    assert_eq!(policy.arbiter.streams().load(), loads.iter().sum::<usize>() + 200_000);
}

/// One step of a random driver.
#[derive(Clone, Debug)]
enum Step {
    Hint { stream: usize, name: u64, segments: Vec<(u64, u64)>, repeats: u32 },
    Next,
    Complete { which: usize, how: u8 },
    Read { file: u64, index: u64, stalled: bool },
    Cancel { stream: usize },
    Wait { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let segments = prop::collection::vec((0u64..200, 0u64..80), 0..4);
    prop_oneof![
        2 => (0usize..3, 0u64..6, segments, 0u32..3)
            .prop_map(|(stream, name, segments, repeats)| Step::Hint {
                stream, name, segments, repeats
            }),
        5 => Just(Step::Next),
        4 => (0usize..64, 0u8..8).prop_map(|(which, how)| Step::Complete { which, how }),
        4 => (0u64..6, 0u64..20, any::<bool>())
            .prop_map(|(file, index, stalled)| Step::Read { file, index, stalled }),
        1 => (0usize..3).prop_map(|stream| Step::Cancel { stream }),
        1 => (1u64..400).prop_map(|ms| Step::Wait { ms }),
    ]
}

fn size_of(name: u64) -> u64 {
    [0, 10, 95, 100, 150, 7][name as usize]
}

fn outcome_of(work: Work, how: u8) -> Outcome {
    match (work, how) {
        (_, 0) => Outcome::Refused,
        (Work::Resolve { name }, _) => {
            Outcome::Resolved { file: FileId(name.0), size_bytes: size_of(name.0) }
        }
        (Work::Read { .. }, 1) => Outcome::AlreadyCached,
        (Work::Read { blocks, .. }, 2) => Outcome::Short { blocks: blocks / 2 },
        (Work::Read { .. }, _) => Outcome::Fetched,
    }
}

proptest! {
    /// Whatever happens: the ceiling holds, no block is fetched while it is pending, none lies
    /// beyond its file, and when all is cancelled and completed the counts add up and nothing is
    /// left.
    #[test]
    fn random_drivers_keep_the_invariants(steps in prop::collection::vec(step(), 1..300)) {
        let mut policy = Policy::new(Config { outstanding_max: 5, ..config(12) });
        let streams: Vec<StreamId> = (0..3).map(|_| policy.open_stream(NOW, HINTER, None)).collect();
        let mut under_way: VecDeque<Fetch> = VecDeque::new();
        let (mut hinted, mut asked_for, mut now) = (0, 0, NOW);
        for step in steps {
            match step {
                Step::Hint { stream, name, segments, repeats } => {
                    hinted += 1;
                    let extent = if segments.is_empty() {
                        Extent::WholeFile
                    } else {
                        let segment = |&(offset_bytes, length_bytes): &(u64, u64)| {
                            Segment { offset_bytes, length_bytes }
                        };
                        Extent::Segments(segments.iter().map(segment).collect())
                    };
                    let hint = Hint { extent, repeats, ..Hint::whole_file(named(name), DISK) };
                    policy.hint(now, streams[stream], hint);
                }
                Step::Next => {
                    if let Some(fetch) = policy.next_fetch(now, DISK) {
                        asked_for += u64::from(matches!(fetch.work, Work::Resolve { .. }));
                        if let Work::Read { file, first_block, blocks } = fetch.work {
                            prop_assert!((1..=4).contains(&blocks));
                            prop_assert!((first_block + blocks - 1) * 10 < size_of(file.0));
                        }
                        under_way.push_back(fetch);
                        prop_assert!(under_way.len() <= 5);
                    }
                }
                Step::Complete { which, how } => {
                    if let Some(fetch) = under_way.remove(which % under_way.len().max(1)) {
                        policy.completed(now, fetch.id, outcome_of(fetch.work, how));
                    }
                }
                Step::Read { file, index, stalled } => {
                    policy.read(now, READER, block(file, index), stalled);
                }
                Step::Cancel { stream } => policy.cancel(now, streams[stream]),
                Step::Wait { ms } => now += Nanos(ms * 1_000_000),
            }
            prop_assert!(policy.pending_blocks() <= 12);
        }
        for stream in streams {
            policy.close(now, stream);
        }
        for fetch in under_way {
            policy.completed(now, fetch.id, outcome_of(fetch.work, 7));
        }
        prop_assert!(policy.is_idle());
        prop_assert_eq!(policy.pending_blocks(), 0);
        prop_assert!(policy.devices.iter().all(|device| device.names_under_way() == 0));
        policy.arbiter.check_all();
        prop_assert_eq!(policy.arbiter.streams().load(), 0);
        prop_assert!((0..6).all(|file| !policy.wants(FileId(file))));
        prop_assert_eq!(asked_for + policy.take_dropped_names().len() as u64, hinted);
        let counts = policy.counts();
        let ended = counts.useful + counts.late + counts.wasted + counts.unfinished;
        prop_assert!(ended <= counts.prefetched);
        prop_assert!(counts.prefetched <= ended + counts.refused);
    }
}

/// One step of many who disclose lists of names; each name is another file, of one block.
#[derive(Clone, Debug)]
enum OfList {
    Open {
        hinter: u64,
    },
    Hint {
        stream: usize,
        names: u64,
        device: u64,
    },
    /// So many fetches are begun at a device.
    Next {
        device: u64,
        fetches: u64,
    },
    Complete {
        which: usize,
        void: bool,
    },
    /// The next of its names is read, or one further on.
    Read {
        stream: usize,
        skips: usize,
    },
    Cancel {
        stream: usize,
    },
    Close {
        stream: usize,
    },
}

fn of_list() -> impl Strategy<Value = OfList> {
    let stream = || 0usize..32;
    prop_oneof![
        2 => (1u64..5).prop_map(|hinter| OfList::Open { hinter }),
        6 => (stream(), 1u64..8, 0u64..2)
            .prop_map(|(stream, names, device)| OfList::Hint { stream, names, device }),
        6 => (0u64..2, 1u64..10).prop_map(|(device, fetches)| OfList::Next { device, fetches }),
        6 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(which, void)| OfList::Complete { which, void }),
        8 => (stream(), 0usize..3).prop_map(|(stream, skips)| OfList::Read { stream, skips }),
        1 => stream().prop_map(|stream| OfList::Cancel { stream }),
        1 => stream().prop_map(|stream| OfList::Close { stream }),
    ]
}

proptest! {
    /// Whose name is looked up next is what all of them would say if they were asked: that is asserted where it is
    /// found. And when all are left to themselves, every name is looked up or dropped.
    #[test]
    fn of_many_lists_the_next_name_is_looked_up(
        resolved_max in 1usize..100,
        steps in prop::collection::vec(of_list(), 1..300),
    ) {
        let mut policy = Policy::new(Config { resolved_max, tries_depths: false, ..config(1000) });
        let (mut streams, mut under_way) = (Vec::new(), Vec::new());
        let (mut hinted, mut asked_for) = (0, 0);
        for step in steps.iter().cloned().chain((0..32).map(|stream| OfList::Close { stream })) {
            let open = streams.len().max(1);
            match step {
                OfList::Open { hinter } if streams.len() < 32 => {
                    let stream = policy.open_stream(NOW, HinterId(hinter), None);
                    streams.push((stream, VecDeque::new()));
                }
                OfList::Hint { stream, names, device } => {
                    let Some((id, list)) = streams.get_mut(stream % open) else { continue };
                    for name in hinted..hinted + names {
                        let hint = Hint::whole_file(named(name), DeviceId(device));
                        policy.hint(NOW, *id, hint);
                        list.push_back(name);
                    }
                    hinted += names;
                }
                OfList::Next { device, fetches } => {
                    for _ in 0..fetches {
                        let Some(fetch) = policy.next_fetch(NOW, DeviceId(device)) else { break };
                        asked_for += u64::from(matches!(fetch.work, Work::Resolve { .. }));
                        under_way.push(fetch);
                    }
                }
                OfList::Complete { which, void } if !under_way.is_empty() => {
                    let fetch = under_way.swap_remove(which % under_way.len());
                    let outcome = match fetch.work {
                        Work::Resolve { .. } if void => Outcome::Void,
                        Work::Resolve { name } => {
                            Outcome::Resolved { file: FileId(name.0), size_bytes: 10 }
                        }
                        Work::Read { .. } => Outcome::Fetched,
                    };
                    policy.completed(NOW, fetch.id, outcome);
                }
                OfList::Read { stream, skips } => {
                    let Some((_, list)) = streams.get_mut(stream % open) else { continue };
                    if let Some(name) = list.drain(..list.len().min(skips + 1)).next_back() {
                        policy.read(NOW, READER, block(name, 0), false);
                    }
                }
                OfList::Cancel { stream } => {
                    let Some((id, list)) = streams.get_mut(stream % open) else { continue };
                    policy.cancel(NOW, *id);
                    list.clear();
                }
                OfList::Close { stream } if !streams.is_empty() => {
                    policy.close(NOW, streams.swap_remove(stream % open).0);
                }
                _ => {}
            }
        }
        prop_assert!(policy.devices.iter().all(|device| device.unresolved.len() == 0));
        prop_assert_eq!(asked_for + policy.take_dropped_names().len() as u64, hinted);
        policy.arbiter.check_all();
    }
}

#[test]
fn the_last_two_read_the_other_way_round_end_the_stream_all_the_same() {
    let (mut policy, stream) = hinted(config(100), 4);
    fetch_all(&mut policy, 30);
    for (file, index) in (0..3).flat_map(|file| (0..3).map(move |index| (file, index))) {
        policy.read(NOW, READER, block(file, index), false);
    }
    for index in [0, 2, 1] {
        assert!(!policy.is_past(stream));
        policy.read(NOW, READER, block(3, index), false);
        fetch_all(&mut policy, 30);
    }
    assert!(policy.is_past(stream) && policy.is_idle());
}

#[test]
fn a_file_that_is_never_read_does_not_keep_others_from_being_looked_up() {
    for capacity_blocks in [100, 4_096, 100_000] {
        let wide = Config { resolved_max: 1024, ..config(capacity_blocks) };
        let (mut policy, stream) = hinted(wide, 5_000);
        fetch_all(&mut policy, 10);
        for file in 1..5_000 {
            policy.read(NOW, READER, block(file, 0), false);
            fetch_all(&mut policy, 10);
        }
        assert_eq!(policy.counts().hints_resolved, 5_000, "{capacity_blocks}");
        assert!(policy.is_idle(), "{capacity_blocks}");
        policy.close(NOW, stream);
    }
}

#[test]
fn what_a_reader_left_out_is_fetched_when_it_comes_back() {
    let owned = Config { outstanding_max: 64, ..Config::new(Memory::Owned, 10, 6_000) };
    let mut policy = Policy::new(owned);
    let stream = policy.open_stream(NOW, HINTER, None);
    let target = |file| Target::File { file: FileId(file), size_bytes: 10 };
    (0..2_000).for_each(|file| policy.hint(NOW, stream, Hint::whole_file(target(file), DISK)));
    let mut read = |file: u64| {
        let access = policy.read(NOW, READER, block(file, 0), false);
        if access == Access::Miss
            && let Some(fetch) = policy.demand(NOW, DISK, block(file, 0))
        {
            policy.completed(NOW, fetch.id, Outcome::Fetched);
        }
        while let Some(fetch) = policy.next_fetch(NOW, DISK) {
            policy.completed(NOW, fetch.id, Outcome::Fetched);
        }
        while policy.next_eviction().is_some() {}
        access
    };
    // A few ahead of their turn, as far as the window goes; then all the others, of which few are missing.
    (140..146).for_each(|file| {
        read(file);
    });
    let misses = (0..140).chain(146..2_000).filter(|&file| read(file) == Access::Miss).count();
    assert!(misses <= 4, "{misses}");
}

#[test]
fn to_open_a_stream_asks_only_those_that_have_shown_something() {
    const STREAMS: u64 = 2000;
    let mut policy =
        Policy::new(Config { memory: Memory::Owned, tries_depths: false, ..config(1000) });
    let mut streams = VecDeque::new();
    for file in 0..STREAMS {
        let stream = policy.open_stream(NOW, HINTER, Some(READER));
        if file % 100 == 0 {
            let target = Target::File { file: FileId(file), size_bytes: 30 };
            policy.hint(NOW, stream, Hint::whole_file(target, DISK));
            fetch_all(&mut policy, 30);
            policy.read(NOW, READER, block(file, 0), false);
        }
        streams.push_back(stream);
    }
    assert!(
        policy.arbiter.streams().asked_shown < STREAMS as usize / 10,
        "{}",
        policy.arbiter.streams().asked_shown
    );
    // Each of twenty has two blocks unread, and one that was read.
    policy.open_stream(NOW, HINTER, None);
    assert_eq!(policy.arbiter.streams().hinters().shown(HINTER), (20, 20));
    streams.into_iter().for_each(|stream| policy.close(NOW, stream));
    assert_eq!(policy.arbiter.streams().hinters().shown(HINTER), (0, 0));
    assert_eq!(policy.arbiter.streams().hinters().streams(HINTER).count(), 1);
}

#[test]
fn what_the_driver_expects_by_itself_is_always_believed() {
    let mut policy =
        Policy::new(Config { memory: Memory::Owned, tries_depths: false, ..config(100) });
    let mut first = None;
    for file in 0..50 {
        let stream = policy.open_stream(NOW, HinterId::DRIVER, Some(READER));
        let target = Target::File { file: FileId(file), size_bytes: 500 };
        policy.hint(NOW, stream, Hint::whole_file(target, DISK));
        let fetched = fetch_all(&mut policy, 500).len();
        assert_eq!(fetched, *first.get_or_insert(fetched), "by file {file}");
        policy.close(NOW, stream);
        while policy.next_eviction().is_some() {}
    }
}

/// A policy with its own memory and fixed costs, and a stream that has disclosed a file of so many blocks.
fn owned(capacity_blocks: u64, file_blocks: u64) -> (Policy, StreamId) {
    disclosed(owned_config(capacity_blocks), file_blocks)
}

fn owned_config(capacity_blocks: u64) -> Config {
    let costs = CostModel { hit_ns: 1e5, driver_ns: 1e5, disk_ns: 1e6 };
    Config {
        memory: Memory::Owned,
        tries_depths: false,
        costs: CostSource::Fixed(costs),
        ..config(capacity_blocks)
    }
}

/// A policy, and a stream that has disclosed a file of so many blocks.
fn disclosed(config: Config, file_blocks: u64) -> (Policy, StreamId) {
    let mut policy = Policy::new(config);
    let stream = policy.open_stream(NOW, HINTER, Some(READER));
    disclose(&mut policy, stream, FileId(1), file_blocks);
    (policy, stream)
}

fn disclose(policy: &mut Policy, stream: StreamId, file: FileId, blocks: u64) {
    let target = Target::File { file, size_bytes: blocks * 10 };
    policy.hint(NOW, stream, Hint::whole_file(target, DISK));
}

#[test]
fn streams_that_come_and_go_leave_nothing_behind() {
    for prefetch in [Prefetch::Benefit, Prefetch::Never, Prefetch::HintOrder] {
        let rules = Rules { prefetch, ..Rules::FORETELL };
        let (mut policy, stays) = disclosed(Config { rules, ..owned_config(30) }, 20);
        fetch_at(&mut policy, NOW);
        for _ in 0..1000 {
            let stream = policy.open_stream(NOW, HINTER, Some(ReaderId(2)));
            disclose(&mut policy, stream, FileId(2), 4);
            fetch_at(&mut policy, NOW);
            policy.read(NOW, ReaderId(2), block(2, 0), false);
            policy.close(NOW, stream);
            policy.arbiter.check_all();
        }
        let noted = policy.arbiter.streams().noted_as_stale();
        assert!(noted < 10, "{prefetch:?}: {noted}");
        // Who was there before is still asked.
        disclose(&mut policy, stays, FileId(3), 4);
        let later = Nanos(1_000_000_000);
        for index in 0..20 {
            policy.read(later, READER, block(1, index), false);
        }
        assert_eq!(fetch_at(&mut policy, later) > 0, prefetch != Prefetch::Never, "{prefetch:?}");
    }
}

/// Fetches whatever is to be fetched at `now`. Returns how many fetches that were.
fn fetch_at(policy: &mut Policy, now: Nanos) -> usize {
    std::iter::from_fn(|| {
        let fetch = policy.next_fetch(now, DISK)?;
        policy.completed(now, fetch.id, Outcome::Fetched);
        Some(())
    })
    .count()
}

#[test]
fn what_only_waits_for_its_turn_is_begun_when_no_more_is_disclosed() {
    let later = Nanos(2_000_000);
    let (mut policy, _) = owned(1000, 200);
    assert!(fetch_at(&mut policy, NOW) > 0, "what is near is fetched at once");
    assert!(policy.devices[0].first_waits.is_some());
    assert_eq!(fetch_at(&mut policy, NOW), 0);
    assert!(fetch_at(&mut policy, later) > 0);
    assert_eq!(policy.devices[0].first_waits, None);
}

/// What is fetched after each of so many hints of a file, the first of which names block 0, `gap` after one another.
fn fetched_after_hints(
    (policy, stream): (&mut Policy, StreamId),
    now: &mut Nanos,
    (hints, gap): (u64, Nanos),
) -> usize {
    let after_each = (0..hints).map(|_| {
        *now += gap;
        let target = Target::File { file: FileId(1), size_bytes: 200 };
        policy.hint(*now, stream, Hint::whole_file(target, DISK));
        fetch_at(policy, *now)
    });
    after_each.sum()
}

#[test]
fn who_goes_on_disclosing_and_reads_nothing_holds_others_up_for_a_while_only() {
    let (mut policy, stream) = owned(1000, 20);
    let half = Nanos(500_000); // Of what a fetch takes.
    let mut now = NOW;
    let after = |policy: &mut Policy, now: &mut Nanos, hints| {
        fetched_after_hints((policy, stream), now, (hints, half))
    };
    assert!(after(&mut policy, &mut now, 1) > 0, "what is near is fetched at once");
    let other = policy.open_stream(now, HinterId(2), Some(ReaderId(2)));
    let target = Target::File { file: FileId(2), size_bytes: 200 };
    policy.hint(now, other, Hint::whole_file(target, DISK));
    assert!(fetch_at(&mut policy, now) > 0);
    // 63 fetches' time; that of the other one has been over for long.
    assert_eq!(after(&mut policy, &mut now, 126), 0);
    let of_other =
        |policy: &Policy| policy.arbiter.streams().get(StreamIndex(1)).map(|other| other.unread);
    let before = of_other(&policy);
    assert!(after(&mut policy, &mut now, 4) > 0);
    assert!(of_other(&policy) > before);
    // A read, and it may go on.
    policy.read(now, READER, block(1, 0), false);
    fetch_at(&mut policy, now);
    assert_eq!(after(&mut policy, &mut now, 126), 0);
}

#[test]
fn who_rests_may_disclose_as_long_again() {
    let (mut policy, stream) = owned(4000, 20);
    let (half, mut now) = (Nanos(500_000), NOW);
    for _ in 0..3 {
        fetched_after_hints((&mut policy, stream), &mut now, (120, half));
        // 60 fetches' time was used up, and is given back but for the one that the pause begins with.
        now += Nanos(100_000_000);
        fetch_at(&mut policy, now);
        let discloses_for = |policy: &Policy| {
            policy
                .arbiter
                .streams()
                .get(StreamIndex(0))
                .map(|stream| stream.devices[0].discloses_for)
        };
        fetched_after_hints((&mut policy, stream), &mut now, (1, half));
        assert_eq!(discloses_for(&policy), Some(Nanos::ZERO));
    }
}

#[test]
fn what_is_disclosed_at_a_fast_device_is_counted_by_each_ones_own_time() {
    let costs = CostSource::Measured(CostModel::default());
    let (mut policy, stream) = disclosed(Config { costs, ..owned_config(1000) }, 20);
    let (fast, slow) = (DeviceId(7), DISK);
    policy.observe(slow, Cost::Disk, Nanos(100_000_000));
    policy.observe(fast, Cost::Disk, Nanos(100_000));
    let mut now = NOW;
    for _ in 0..10 {
        now += Nanos(99_000_000);
        let target = Target::File { file: FileId(2), size_bytes: 10 };
        policy.hint(now, stream, Hint::whole_file(target, fast));
    }
    let parts = &policy.arbiter.streams().get(StreamIndex(0)).expect("it is open").devices;
    assert_eq!(parts[0].discloses_for, Nanos(10 * 99_000_000));
    assert_eq!(parts[1].discloses_for, Nanos::ZERO, "it rests for most of the time");
}

#[test]
fn a_candidate_that_waits_is_asked_again_when_it_is_another_one() {
    let (mut policy, stream) = owned(1000, 200);
    fetch_at(&mut policy, NOW);
    let waits = |policy: &Policy| policy.devices[0].first_waits;
    let first = waits(&policy).expect("it discloses");
    // Somebody else has it fetched.
    policy.demand(NOW, DISK, first.block).expect("there is room");
    fetch_at(&mut policy, NOW);
    let second = waits(&policy).expect("it still does");
    assert_eq!(second.stream, first.stream);
    assert!(second.block.index > first.block.index, "{first:?} {second:?}");
    policy.cancel(NOW, stream);
    assert_eq!(waits(&policy), None);
}

#[test]
fn a_block_is_near_from_when_it_is_said_to_be_on_and_not_before() {
    let (mut policy, _) = owned(1000, 200);
    fetch_at(&mut policy, NOW);
    let (index, disk) = (StreamIndex(0), DeviceIndex(0));
    let candidate =
        |policy: &mut Policy| policy.prefetcher.candidate(&mut policy.arbiter, index, disk);
    let first = candidate(&mut policy).expect("there is more");
    for front in 0..first.near_from + 2 {
        let same = candidate(&mut policy).expect("it is missing");
        assert_eq!((same.wanted.claim, same.near_from), (first.wanted.claim, first.near_from));
        assert_eq!(same.is_early, front < first.near_from, "{front}: {first:?}");
        policy.read(NOW, READER, block(1, front), false);
    }
}

#[test]
fn who_reads_is_asked_again_before_its_block_goes_as_the_least() {
    let (mut policy, _) = owned(1000, 20);
    fetch_at(&mut policy, NOW);
    let index = StreamIndex(0);
    // Another one claims what it reads.
    let other = policy.open_stream(NOW, HINTER, Some(ReaderId(2)));
    disclose(&mut policy, other, FileId(1), 20);
    let slot = policy.arbiter.blocks().find(block(1, 0)).expect("it was fetched");
    policy.arbiter.unclaim(slot);
    policy.arbiter.claim(slot, Claim { stream: StreamIndex(1), position: 0 });
    policy.arbiter.stream(index).ranked_at = Some(policy.arbiter.costs().changes());
    policy.read(NOW, READER, block(1, 0), false);
    assert_eq!(policy.arbiter.stream(index).cursor.front(), 1);
    assert_eq!(policy.arbiter.stream(index).ranked_at, None, "its blocks are nearer now");
}

proptest! {
    /// In these tests positions begin anew as soon as 64 have been taken and all are past. A stream goes on as if they did
    /// not, whatever is under way, is being read, or is left out.
    #[test]
    fn streams_whose_positions_begin_anew_go_on(
        is_owned in any::<bool>(),
        hints in prop::collection::vec((0u64..4, 1u64..60, 0u64..4, 0usize..9, 0u8..6), 40..160),
    ) {
        let memory = if is_owned { Memory::Owned } else { Memory::Kernel { keeps: true } };
        let mut policy = Policy::new(Config { memory, ..config(24) });
        let stream = policy.open_stream(NOW, HINTER, Some(READER));
        let index = policy.stream_ids[&stream];
        let (mut under_way, mut now, mut began_anew) = (VecDeque::new(), NOW, 0);
        for (file, blocks, left_out, most_under_way, how) in hints {
            let target = Target::File { file: FileId(file), size_bytes: 10 * blocks };
            let end = policy.arbiter.stream(index).placed_end();
            policy.hint(now, stream, Hint::whole_file(target, DISK));
            began_anew += usize::from(policy.arbiter.stream(index).placed_end() < end);
            for at in 0..=blocks.saturating_sub(left_out) {
                while let Some(fetch) = policy.next_fetch(now, DISK) {
                    under_way.push_back(fetch);
                }
                while under_way.len() > most_under_way {
                    let fetch: Fetch = under_way.pop_front().expect("there are some");
                    policy.completed(now, fetch.id, outcome_of(fetch.work, how));
                }
                if at == blocks {
                    break;
                }
                let access = policy.read(now, READER, block(file, at), false);
                if access == Access::Miss
                    && is_owned
                    && let Some(fetch) = policy.demand(now, DISK, block(file, at))
                {
                    policy.completed(now, fetch.id, Outcome::Fetched);
                }
                while policy.next_eviction().is_some() {}
                now += Nanos(1000);
            }
            policy.arbiter.check_all();
        }
        for fetch in under_way {
            policy.completed(now, fetch.id, Outcome::Fetched);
        }
        policy.arbiter.check_all();
        prop_assert!(began_anew > 0, "positions went on");
        // What is disclosed next is fetched and found.
        let target = Target::File { file: FileId(9), size_bytes: 80 };
        policy.hint(now, stream, Hint::whole_file(target, DISK));
        let mut hits = 0;
        for at in 0..8 {
            now += Nanos(1_000_000_000);
            while let Some(fetch) = policy.next_fetch(now, DISK) {
                policy.completed(now, fetch.id, Outcome::Fetched);
            }
            let access = policy.read(now, READER, block(9, at), false);
            hits += usize::from(access == Access::Hit);
        }
        prop_assert!(hits >= 7, "{} of 8", hits);
        policy.close(now, stream);
        policy.arbiter.check_all();
        prop_assert!(policy.is_idle() && policy.pending_blocks() == 0 && policy.arbiter.streams().load() == 0);
    }
}

#[test]
fn readers_that_come_and_go_are_forgotten() {
    let (mut policy, stream) = hinted(config(8), 0);
    policy.hint(NOW, stream, Hint { repeats: u32::MAX, ..Hint::whole_file(named(0), DISK) });
    fetch_all(&mut policy, 20);
    for reader in 0..20_000 {
        policy.read(NOW, ReaderId(reader), block(0, reader % 2), false);
        fetch_all(&mut policy, 20);
    }
    assert!(policy.last_stream.len() <= READERS_MIN, "{}", policy.last_stream.len());
    assert!(policy.arbiter.stream(policy.stream_ids[&stream]).was_read_by(ReaderId(19_999)));
}

#[test]
fn the_passes_that_are_left_of_a_stride_are_placed_when_positions_begin_anew_under_it() {
    let mut policy = Policy::new(Config { memory: Memory::Owned, ..config(1) });
    let stream = policy.open_stream(NOW, HINTER, None);
    let strided = |target, count, repeats| {
        let first = Segment { offset_bytes: 0, length_bytes: 640 };
        let extent = Extent::Strided { first, stride_bytes: 1280, count };
        Hint { extent, repeats, ..Hint::whole_file(target, DISK) }
    };
    let file = |file, size_bytes| Target::File { file: FileId(file), size_bytes };
    // The lookup takes its time, and others go before it: part of a stride that is read three times.
    policy.hint(NOW, stream, strided(named(0), 2, 1));
    let lookup = policy.next_fetch(NOW, DISK).expect("a lookup");
    policy.hint(NOW, stream, Hint::whole_file(file(1, 1_000_000), DISK));
    policy.hint(NOW, stream, strided(file(2, 1 << 40), 5000, 3));
    let later = Nanos(100_000_000_000);
    while let Some(fetch) = policy.next_fetch(later, DISK) {
        policy.completed(later, fetch.id, Outcome::Fetched);
    }
    let index = policy.stream_ids[&stream];
    assert_eq!(policy.arbiter.stream(index).placed_end(), 100_000 + 4096 * 64);
    policy.completed(later, lookup.id, Outcome::Resolved { file: FileId(0), size_bytes: 10_000 });
    // The reader leaps to the end of what is placed, so that all of it is past.
    let last = 4095 * 128 + 63;
    policy.read(later, READER, block(2, last - 1), false);
    policy.read(later, READER, block(2, last), false);
    assert_eq!(policy.waiting_hints_by(HINTER), 1, "two passes wait for their places");
    policy.arbiter.check_all();
}
