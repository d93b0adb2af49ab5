//! A limit below the capacity, raised and lowered while hints are worked off.

use super::*;

/// With room for so many blocks, and for the names of all files.
fn wide(capacity_blocks: u64) -> Config {
    Config { resolved_max: 64, ..config(capacity_blocks) }
}

#[test]
fn a_limit_holds_and_raising_it_brings_in_more() {
    for memory in [Memory::Owned, Memory::Kernel { keeps: false }] {
        let (mut policy, _) = hinted(Config { memory, tries_depths: false, ..wide(40) }, 20);
        policy.set_limit(12);
        let first = fetch_all(&mut policy, 30).len();
        assert!(first > 0 && first <= 12, "{memory:?}: {first}");
        policy.set_limit(1000);
        assert_eq!(policy.limit_blocks(), 40, "no more than the capacity");
        assert!(!fetch_all(&mut policy, 30).is_empty(), "{memory:?}");
    }
}

#[test]
fn a_lower_limit_stops_fetches_and_shedding_lets_go_of_what_is_read_last() {
    let (mut policy, _) = hinted(wide(40), 20);
    let all = fetch_all(&mut policy, 30);
    let held = all.len() as u64;
    assert!(held > 20, "{held}");
    policy.set_limit(10);
    assert_eq!(policy.held_blocks(), held, "they stay until somebody needs their room");
    assert!(fetch_all(&mut policy, 30).is_empty());
    policy.shed(NOW);
    assert_eq!((policy.held_blocks(), policy.pending_blocks()), (10, 10));
    let mut gone: Vec<Block> = std::iter::from_fn(|| policy.next_eviction()).collect();
    gone.sort_unstable_by_key(|block| (block.file.0, block.index));
    assert_eq!(gone, all[10..], "what is read last goes first");
    assert_eq!(policy.counts().wasted, held - 10);
    // Room that reads have made is used again, and what was let go comes back in its turn.
    for read in &all[..5] {
        assert_eq!(policy.read(NOW, READER, *read, false), Access::Hit);
    }
    let again = fetch_all(&mut policy, 30);
    assert_eq!(again, all[10..15]);
}

#[test]
fn blocks_in_flight_are_not_shed() {
    let (mut policy, _) = hinted(wide(40), 20);
    let fetch = next_read(&mut policy, 30).expect("the first file");
    let held = policy.held_blocks();
    policy.set_limit(1);
    policy.shed(NOW);
    assert_eq!(policy.held_blocks(), held);
    policy.completed(NOW, fetch.id, Outcome::Fetched);
    policy.shed(NOW);
    assert_eq!(policy.held_blocks(), 1);
}

proptest! {
    /// Whatever the order of limits, reads and fetches: no fetch begins at the limit, and the books stay right.
    #[test]
    fn limits_change_at_any_time(
        steps in proptest::collection::vec((0..4u8, 0..60u64), 1..120),
        owned in any::<bool>(),
    ) {
        let memory = if owned { Memory::Owned } else { Memory::Kernel { keeps: false } };
        let (mut policy, _) = hinted(Config { memory, ..wide(40) }, 20);
        let mut under_way = Vec::new();
        for (what, number) in steps {
            match what {
                0 => policy.set_limit(number),
                1 => policy.shed(NOW),
                2 => {
                    let block = block(number / 6, number % 6);
                    policy.read(NOW, READER, block, false);
                }
                _ => {
                    if let Some(fetch) = next_read(&mut policy, 60) {
                        prop_assert!(policy.held_blocks() <= policy.limit_blocks());
                        under_way.push(fetch.id);
                    }
                }
            }
            while policy.next_eviction().is_some() {}
            if number % 2 == 0 && let Some(fetch) = under_way.pop() {
                policy.completed(NOW, fetch, Outcome::Fetched);
            }
        }
    }
}
