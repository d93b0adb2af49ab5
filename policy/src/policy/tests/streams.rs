//! Streams: placing, records and ends.

use super::*;

#[test]
fn a_stream_must_earn_its_depth() {
    // A program reads the first block of each of a hundred files.
    let deep = Config { resolved_max: 1000, ..config(1_000_000) };
    let (mut policy, _) = hinted(deep, 200);
    let mut fetched = 0;
    for file in 0..200 {
        fetched += fetch_all(&mut policy, 1000).len();
        policy.read(NOW, READER, block(file, 0), true);
    }
    assert!(fetched < 4000, "{fetched} of 20,000 blocks fetched for 200");
    // A program that reads everything is served up to the horizon, 2,500 blocks ahead.
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
fn a_cancelled_stream_leaves_nothing_behind() {
    let (mut policy, stream) = hinted(config(100), 20);
    let lookup = policy.next_fetch(NOW, DISK).expect("a lookup under way");
    let read = {
        let other = policy.next_fetch(NOW, DISK).expect("a second lookup");
        let outcome = Outcome::Resolved { file: FileId(1), size_bytes: 40 };
        policy.completed(NOW, other.id, outcome);
        // The second file does not wait forever for the first one.
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
fn reads_right_behind_a_hint_are_no_leap_to_where_it_goes_on_later() {
    let part = |number: u64| {
        Extent::Segments(
            [Segment { offset_bytes: number * 1_000_000, length_bytes: 1_000_000 }].into(),
        )
    };
    let order = [0, 7, 3, 1, 5];
    for (beyond, is_leap) in [(0..8, false), (30_000..30_008, true)] {
        let mut policy = Policy::new(owned_config(1_000));
        let stream = policy.open_stream(NOW, HINTER, Some(READER));
        let target = Target::File { file: FileId(1), size_bytes: 10_000_000 };
        for number in order {
            policy.hint(
                NOW,
                stream,
                Hint { extent: part(number), ..Hint::whole_file(target, DISK) },
            );
        }
        (0..100_000).for_each(|index| {
            policy.read(NOW, READER, block(1, index), false);
        });
        // Behind part 0 lies part 1, whose turn is the fourth.
        for index in beyond {
            policy.read(NOW, READER, block(1, 100_000 + index), false);
        }
        let next = policy.expected(stream).map(|(block, _)| block.index);
        assert_eq!(next != Some(700_000), is_leap, "{next:?}");
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
    // A few files are read early, as far as the window permits; then all others, few of which miss.
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
    // Each of twenty streams has two unread blocks and one block read.
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
        // The stream that was there before is still asked.
        disclose(&mut policy, stays, FileId(3), 4);
        let later = Nanos(1_000_000_000);
        for index in 0..20 {
            policy.read(later, READER, block(1, index), false);
        }
        assert_eq!(fetch_at(&mut policy, later) > 0, prefetch != Prefetch::Never, "{prefetch:?}");
    }
}

#[test]
fn who_reads_is_asked_again_before_its_block_goes_as_the_least() {
    let (mut policy, _) = owned(1000, 20);
    fetch_at(&mut policy, NOW);
    let index = StreamIndex(0);
    // Another stream claims the block that it reads.
    let other = policy.open_stream(NOW, HINTER, Some(ReaderId(2)));
    disclose(&mut policy, other, FileId(1), 20);
    let slot = policy.arbiter.blocks().find(block(1, 0)).expect("it was fetched");
    policy.arbiter.unclaim(slot);
    policy.arbiter.claim(slot, Claim { stream: StreamIndex(1), position: 0 });
    let changes = policy.arbiter.costs().changes();
    policy.arbiter.stream(index).note_ranked(changes);
    policy.read(NOW, READER, block(1, 0), false);
    assert_eq!(policy.arbiter.stream(index).cursor.front(), 1);
    assert!(!policy.arbiter.stream(index).is_ranked_by(changes), "its blocks are nearer now");
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
    // Others go ahead of the slow lookup: part of a stride that is read three times.
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
    // The reader leaps to the end of the placed accesses, so that all of them are past.
    let last = 4095 * 128 + 63;
    policy.read(later, READER, block(2, last - 1), false);
    policy.read(later, READER, block(2, last), false);
    assert_eq!(policy.waiting_hints_by(HINTER), 1, "two passes wait for their places");
    policy.arbiter.check_all();
}
