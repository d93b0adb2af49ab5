//! Names: when they are looked up, and slow lookups.

use super::*;

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
    // A program that had to wait for a block ends this.
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

/// Completes fetches to the end. The program has brought the files below `read_first`. The device brings the others, and the
/// program reads them. Returns these.
fn complete_behind(policy: &mut Policy, read_first: u64) -> Vec<u64> {
    let mut fetched = Vec::new();
    while let Some(fetch) = next_read(policy, 10) {
        let Work::Read { file: FileId(file), .. } = fetch.work else { unreachable!() };
        let is_there = file < read_first;
        fetched.extend((!is_there).then_some(file));
        let outcome = if is_there { Outcome::AlreadyCached } else { Outcome::Fetched };
        policy.completed(NOW, fetch.id, outcome);
        if !is_there {
            policy.read(NOW, READER, block(file, 0), false);
        }
    }
    fetched
}

/// The program waits for each file, and has read them before their fetches say that they are in memory.
#[test]
fn no_hint_is_passed_over_behind_a_program_that_outruns_the_first_fetches() {
    const AHEAD: u64 = 60;
    const FILES: u64 = 400;
    let all_others: Vec<u64> = (AHEAD..FILES).collect();

    // It reads before the names are looked up.
    let (mut policy, _) = hinted(Config { resolved_max: 64, ..config(1000) }, FILES);
    for file in 0..AHEAD {
        policy.read(NOW, READER, block(file, 0), true);
    }
    assert_eq!(complete_behind(&mut policy, AHEAD), all_others);
    assert_eq!(policy.counts().hints_passed_over, 0);

    // It reads while the fetches are in flight.
    let (mut policy, _) = hinted(Config { resolved_max: 64, ..config(1000) }, FILES);
    let mut ahead = 0;
    while ahead < AHEAD {
        let begun = Vec::from_iter(std::iter::from_fn(|| next_read(&mut policy, 10)));
        for file in ahead..ahead + begun.len() as u64 {
            assert_eq!(policy.read(NOW, READER, block(file, 0), true), Access::InFlight);
        }
        ahead += begun.len() as u64;
        begun.iter().for_each(|fetch| policy.completed(NOW, fetch.id, Outcome::AlreadyCached));
    }
    assert_eq!(complete_behind(&mut policy, ahead), (ahead..FILES).collect::<Vec<_>>());
    assert_eq!(policy.counts().hints_passed_over, 0);

    // Its reads are heard of after the fetches have ended.
    let (mut policy, _) = hinted(Config { resolved_max: 64, ..config(1000) }, FILES);
    for _ in 0..AHEAD {
        let fetch = next_read(&mut policy, 10).expect("a read");
        policy.completed(NOW, fetch.id, Outcome::AlreadyCached);
        if let Work::Read { file, .. } = fetch.work {
            policy.read(NOW, READER, Block { file, index: 0 }, true);
        }
    }
    assert_eq!(complete_behind(&mut policy, AHEAD), all_others);
    assert_eq!(policy.counts().hints_passed_over, 0);
}

#[test]
fn the_queue_deepens_once_the_device_is_seen_to_work_on_many() {
    let wide = Config { outstanding_max: 1000, resolved_max: 1000, ..config(2000) };
    let (mut policy, _) = hinted(wide, 2000);
    let mut lookups: Vec<Fetch> = std::iter::from_fn(|| policy.next_fetch(NOW, DISK)).collect();
    assert_eq!(lookups.len(), SAMPLE_MAX);
    let lookup = lookups.remove(0);
    let found = |number| Outcome::Resolved { file: FileId(number), size_bytes: 10 };
    policy.completed(NOW, lookup.id, found(5));
    let read = policy.next_fetch(NOW, DISK).expect("its block");
    policy.completed(NOW, read.id, Outcome::Fetched);
    // The read fetched something, but the sample has not yet shown whether the device serves many at once.
    assert!(policy.next_fetch(NOW, DISK).is_none());
    // They all end close together.
    let mut now = NOW + Nanos(10_000_000);
    for (number, lookup) in (6..).zip(lookups) {
        now += Nanos(100_000);
        policy.completed(now, lookup.id, found(number));
    }
    assert!(std::iter::from_fn(|| policy.next_fetch(now, DISK)).count() > 90);
}

#[test]
fn a_name_that_cannot_be_had_is_refused_and_the_next_goes_on() {
    let (mut policy, _) = hinted(config(10), 2);
    let lookup = policy.next_fetch(NOW, DISK).expect("name 0");
    policy.completed(NOW, lookup.id, Outcome::Refused);
    assert_eq!(fetch_all(&mut policy, 10), [block(1, 0)]);
    assert_eq!(policy.counts().hints_refused, 1);
}

/// A policy whose device has nothing but two lookups that never end, during a probe of whether that depth is better.
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
    // Blocks of known files of either stream are fetched, and names hinted after the two are looked up.
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
