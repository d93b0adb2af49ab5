//! Streams that go on disclosing: which blocks wait for more hints, and for how long.

use super::*;

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

/// Number of fetches after this many hints of the same file, `gap` apart.
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
    let half = Nanos(500_000); // Half the time of a fetch.
    let mut now = NOW;
    let after = |policy: &mut Policy, now: &mut Nanos, hints| {
        fetched_after_hints((policy, stream), now, (hints, half))
    };
    assert!(after(&mut policy, &mut now, 1) > 0, "what is near is fetched at once");
    let other = policy.open_stream(now, HinterId(2), Some(ReaderId(2)));
    let target = Target::File { file: FileId(2), size_bytes: 200 };
    policy.hint(now, other, Hint::whole_file(target, DISK));
    assert!(fetch_at(&mut policy, now) > 0);
    // The time of 63 fetches passes. The other stream has long been assumed to disclose no more.
    assert_eq!(after(&mut policy, &mut now, 126), 0);
    let of_other =
        |policy: &Policy| policy.arbiter.streams().get(StreamIndex(1)).map(|other| other.unread);
    let before = of_other(&policy);
    assert!(after(&mut policy, &mut now, 4) > 0);
    assert!(of_other(&policy) > before);
    // After a read it may go on.
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
        // The time of 60 fetches was used up. The pause gives it back, less the one fetch with which it begins.
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
    // Another program has it fetched.
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
