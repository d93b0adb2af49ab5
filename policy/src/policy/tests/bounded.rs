//! [`Policy::next`] does a bounded piece of work, and all pieces together do what [`Policy::next_fetch`] does.

use super::*;
use crate::hint::Order;

/// A device that streams want nothing from but one block, which comes first.
const OTHER: DeviceId = DeviceId(1);

/// Pieces of segments that one call places.
const PLACED_MAX: usize = 4096;

/// A policy that has disclosed these extents of a large file.
fn policy(capacity_blocks: u64, extents: Vec<Extent>) -> (Policy, StreamId) {
    disclosing(owned_config(capacity_blocks), extents)
}

fn disclosing(config: Config, extents: Vec<Extent>) -> (Policy, StreamId) {
    let mut policy = Policy::new(config);
    let stream = policy.open_stream(NOW, HINTER, Some(READER));
    let target = |file| Target::File { file: FileId(file), size_bytes: 1 << 50 };
    let first = Segment { offset_bytes: 0, length_bytes: 10 };
    policy.hint(NOW, stream, Hint::segments(target(2), OTHER, &[first]));
    for extent in extents {
        let (device, order) = (DISK, Order::Given);
        policy.hint(NOW, stream, Hint { target: target(1), device, extent, order, repeats: 1 });
    }
    (policy, stream)
}

fn list(segments: u64) -> Vec<Extent> {
    vec![far_apart(segments, 1).extent]
}

fn stride(count: u64) -> Vec<Extent> {
    let first = Segment { offset_bytes: 0, length_bytes: 10 };
    vec![Extent::Strided { first, stride_bytes: 170, count }]
}

fn load(policy: &mut Policy, stream: StreamId) -> usize {
    let index = policy.stream_ids[&stream];
    policy.arbiter.stream(index).load()
}

#[test]
fn a_call_places_a_bounded_number_of_segments_and_the_last_one_says_that_it_is() {
    for (extents, all) in [(list(4000), 4001), (list(200_000), 200_001), (stride(200_000), 200_001)]
    {
        let (mut policy, stream) = policy(100_000, extents);
        let first = policy.next_fetch(NOW, OTHER).expect("its block");
        policy.completed(NOW, first.id, Outcome::Fetched);
        let mut before = load(&mut policy, stream);
        assert!(before <= PLACED_MAX + 1, "{before}");
        let mut calls = 1;
        while policy.next(NOW, OTHER) == Next::More {
            let load = load(&mut policy, stream);
            assert!(load >= before && load - before <= PLACED_MAX, "{before}, {load}");
            (before, calls) = (load, calls + 1);
        }
        assert_eq!(load(&mut policy, stream), all);
        assert!(calls >= all / PLACED_MAX && calls <= all / 1000 + 2, "{calls} calls for {all}");
        // Nothing was lost: the other device has its first block, and this one has no more to look at.
        assert_eq!(policy.next(NOW, OTHER), Next::Nothing);
        assert!(matches!(policy.next(NOW, DISK), Next::Fetch(_)));
    }
}

#[test]
fn a_full_device_leaves_nothing_to_be_looked_at() {
    let config = Config { outstanding_max: 4, ..owned_config(100_000) };
    let (mut policy, _) = disclosing(config, stride(200_000));
    for _ in 0..4 {
        assert!(matches!(policy.next(NOW, DISK), Next::Fetch(_)));
    }
    assert_eq!(policy.next(NOW, DISK), Next::Nothing, "else its driver would ask for ever");
}

/// What a driver hears that reads and fetches in turn, of whom `next` says what to do.
fn said(
    (mut policy, _): (Policy, StreamId),
    seed: u64,
    mut next: impl FnMut(&mut Policy, Nanos, DeviceId) -> Option<Fetch>,
) -> (Vec<Fetch>, crate::contract::Counts) {
    let (mut said, mut under_way) = (Vec::new(), VecDeque::new());
    let mut state = seed;
    for turn in 0..300u64 {
        let now = Nanos(turn * 1_000_000);
        for device in [OTHER, DISK] {
            while let Some(fetch) = next(&mut policy, now, device) {
                said.push(fetch);
                under_way.push_back(fetch);
            }
        }
        while policy.next_eviction().is_some() {}
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        for _ in 0..state >> 60 {
            let Some(fetch) = under_way.pop_front() else { break };
            policy.completed(now, fetch.id, Outcome::Fetched);
        }
        policy.read(now, READER, block(1, turn * 17), false);
    }
    (said, policy.counts())
}

#[test]
fn pieces_of_work_come_to_what_all_of_it_at_once_comes_to() {
    for (capacity, seed) in [(100, 1), (5000, 2), (100_000, 3)] {
        for extents in [|| list(100_000), || stride(100_000)] {
            let at_once = said(policy(capacity, extents()), seed, Policy::next_fetch);
            let mut more = 0;
            let in_pieces = said(policy(capacity, extents()), seed, |policy, now, device| {
                loop {
                    match policy.next(now, device) {
                        Next::Fetch(fetch) => return Some(fetch),
                        Next::More => more += 1,
                        Next::Nothing => return None,
                    }
                }
            });
            assert!(more > 10 && at_once.0.len() > 30, "{more}, {}", at_once.0.len());
            assert!(at_once == in_pieces, "{capacity}, {seed}");
        }
    }
}
