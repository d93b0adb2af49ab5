//! Sources: each block counts for the source that had it fetched, and a silenced source asks for nothing.

use super::*;
use crate::tally::{SourceId, Tally};

/// All tallies, as one.
fn sum(policy: &Policy) -> Tally {
    let mut sum = Tally::default();
    for tally in SourceId::all().map(|source| policy.tally(source)) {
        sum.prefetched += tally.prefetched;
        sum.useful += tally.useful;
        sum.late += tally.late;
        sum.wasted += tally.wasted;
        sum.unfinished += tally.unfinished;
        sum.refused += tally.refused;
        sum.already_cached += tally.already_cached;
        sum.overtaken += tally.overtaken;
    }
    sum
}

fn open_of(policy: &mut Policy, source: SourceId) -> StreamId {
    let stream = policy.open_stream(NOW, HINTER, None);
    policy.set_source(stream, source);
    stream
}

#[test]
fn a_block_stays_of_the_source_that_had_it_fetched() {
    let mut policy = Policy::new(config(64));
    let (one, two) = (SourceId::new(1), SourceId::new(15));
    let (first, second) = (open_of(&mut policy, one), open_of(&mut policy, two));
    let hint = |name| Hint::whole_file(Target::File { file: FileId(name), size_bytes: 20 }, DISK);
    policy.hint(NOW, first, hint(1));
    while let Some(fetch) = policy.next_fetch(NOW, DISK) {
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    // The second stream names the same blocks, and the first ends.
    policy.hint(NOW, second, hint(1));
    policy.hint(NOW, second, hint(2));
    let mut fetches = Vec::new();
    while let Some(fetch) = policy.next_fetch(NOW, DISK) {
        fetches.push(fetch);
    }
    policy.read(NOW, READER, block(1, 0), false);
    policy.read(NOW, READER, block(2, 0), true);
    for fetch in fetches {
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    policy.close_all(NOW);
    let of_first = policy.tally(one);
    assert_eq!((of_first.prefetched, of_first.useful, of_first.wasted), (2, 1, 1));
    let of_second = policy.tally(two);
    assert_eq!((of_second.prefetched, of_second.late), (2, 1));
    assert_eq!(of_second.wasted + of_second.unfinished, 1);
    assert_eq!(policy.tally(SourceId::default()), Tally::default());
}

#[test]
fn a_silenced_source_gives_up_what_it_has_and_asks_for_nothing() {
    let mut policy = Policy::new(config(64));
    let (wrong, right) = (SourceId::new(3), SourceId::new(4));
    let (one, other) = (open_of(&mut policy, wrong), open_of(&mut policy, right));
    let hint = |name| Hint::whole_file(named(name), DISK);
    policy.hint(NOW, one, hint(1));
    policy.hint(NOW, other, hint(2));
    policy.silence(NOW, wrong);
    assert_eq!(policy.take_dropped_names(), [NameId(1)]);
    policy.hint(NOW, one, hint(3));
    assert_eq!(policy.take_dropped_names(), [NameId(3)]);
    assert_eq!(policy.waiting_hints(), 1, "those of the other source stay");
    let later = open_of(&mut policy, wrong);
    policy.hint(NOW, later, hint(4));
    assert_eq!(
        (policy.take_dropped_names().as_slice(), policy.counts().hints),
        (&[NameId(4)][..], 2)
    );
}

#[test]
fn a_wait_is_foreseen_if_a_hint_names_the_block() {
    let mut policy = Policy::new(config(64));
    let stream = open_of(&mut policy, SourceId::new(1));
    let target = Target::File { file: FileId(1), size_bytes: 100 };
    policy.hint(NOW, stream, Hint::whole_file(target, DISK));
    policy.read(NOW, READER, block(1, 0), true);
    policy.read(NOW, READER, block(7, 0), true);
    policy.read(NOW, READER, block(7, 1), false);
    let counts = policy.counts();
    assert_eq!((counts.waited, counts.unforeseen, counts.overtaken), (2, 1, 1));
}

proptest! {
    /// Whatever happens: each block that is fetched for a source ends for that source once, and the counts are the sums.
    #[test]
    fn every_source_answers_for_its_blocks(
        steps in prop::collection::vec((0u8..8, 0usize..4, 0u64..6, 0u64..20), 1..400),
        is_owned: bool,
    ) {
        let memory = if is_owned { Memory::Owned } else { Memory::Kernel { keeps: true } };
        let mut policy = Policy::new(Config { memory, ..config(12) });
        let sources = [0, 1, 7, 15].map(SourceId::new);
        let streams = sources.map(|source| open_of(&mut policy, source));
        let mut under_way: VecDeque<Fetch> = VecDeque::new();
        for (what, which, file, index) in steps {
            match what {
                0 => policy.hint(NOW, streams[which], Hint::whole_file(named(file), DISK)),
                1..=3 => under_way.extend(policy.next_fetch(NOW, DISK)),
                4 => {
                    if let Some(fetch) = under_way.remove(index as usize % under_way.len().max(1)) {
                        policy.completed(NOW, fetch.id, outcome_of(fetch.work, which as u8));
                    }
                }
                5 => _ = policy.read(NOW, READER, block(file, index), which == 0),
                6 if index == 0 => policy.silence(NOW, sources[which]),
                _ if index < 4 => policy.cancel(NOW, streams[which]),
                _ => {}
            }
            while policy.next_eviction().is_some() {}
        }
        policy.close_all(NOW);
        for fetch in under_way {
            policy.completed(NOW, fetch.id, outcome_of(fetch.work, 0));
        }
        let (all, counts) = (sum(&policy), policy.counts());
        prop_assert_eq!(
            (all.prefetched, all.useful, all.late, all.wasted, all.unfinished, all.refused),
            (counts.prefetched, counts.useful, counts.late, counts.wasted, counts.unfinished, counts.refused)
        );
        for source in SourceId::all() {
            let tally = policy.tally(source);
            let ended = tally.judged() + tally.unfinished;
            prop_assert!(ended <= tally.prefetched, "{source:?}: {tally:?}");
            prop_assert!(tally.prefetched <= ended + tally.refused, "{source:?}: {tally:?}");
        }
    }
}
