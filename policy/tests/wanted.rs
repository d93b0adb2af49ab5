//! Files that hints want stay open until they were read; blocks are fetched whatever precedes them; and useful prefetches are
//! counted as useful.

use std::collections::{BTreeSet, VecDeque};

use foretell_policy::{
    Access, Block, Config, DeviceId, Fetch, FetchId, FileId, Hint, HinterId, Memory, NameId, Nanos,
    Outcome, Policy, ReaderId, Rules, Segment, Target, Work,
};

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const READER: ReaderId = ReaderId(1);
const HINTER: HinterId = HinterId(1);
const FILE: FileId = FileId(1);

fn config(rules: Rules, capacity_blocks: u64) -> Config {
    Config { rules, capacity_blocks, cluster_blocks_max: 1, ..Config::new(Memory::Owned, 10, 1) }
}

fn file(file: FileId, blocks: u64) -> Target {
    Target::File { file, size_bytes: blocks * 10 }
}

fn block(index: u64) -> Block {
    Block { file: FILE, index }
}

/// Fetches until nothing is wanted.
fn fetch_all(policy: &mut Policy) {
    while let Some(Fetch { id, work, .. }) = policy.next_fetch(NOW, DISK) {
        assert!(matches!(work, Work::Read { .. }), "{work:?}");
        policy.completed(NOW, id, Outcome::Fetched);
    }
    while policy.next_eviction().is_some() {}
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

/// Closes the files that the policy has released.
fn close_released(policy: &mut Policy, open: &mut BTreeSet<FileId>) {
    for file in policy.take_released_files() {
        if !policy.wants(file) {
            open.remove(&file);
        }
    }
}

#[test]
fn a_file_stays_open_until_all_of_its_hint_is_known() {
    // The limit of one call to place falls within the second hint. The first hint's lookup ends last.
    for segments in [[1000, 1200, 10], [1300, 300, 10], [10, 5000, 5000]] {
        let memory = Memory::Kernel { keeps: false };
        let mut policy =
            Policy::new(Config { capacity_blocks: 1000, ..Config::new(memory, 10, 1) });
        let stream = policy.open_stream(NOW, HINTER, None);
        for (name, count) in (0..).zip(segments) {
            let ranges: Vec<Segment> =
                (0..count).map(|at| Segment { offset_bytes: at * 20, length_bytes: 1 }).collect();
            policy.hint(NOW, stream, Hint::segments(Target::Name(NameId(name)), DISK, &ranges));
        }
        let mut open = BTreeSet::new();
        let mut lookups: Vec<(FetchId, NameId)> = Vec::new();
        while let Some(fetch) = policy.next_fetch(NOW, DISK) {
            let Work::Resolve { name } = fetch.work else { unreachable!("nothing is known") };
            lookups.push((fetch.id, name));
        }
        for (id, name) in lookups.into_iter().rev() {
            let file = FileId(name.0);
            open.insert(file);
            policy.completed(NOW, id, Outcome::Resolved { file, size_bytes: 1 << 20 });
            close_released(&mut policy, &mut open);
        }
        let mut read = BTreeSet::new();
        while let Some(fetch) = policy.next_fetch(NOW, DISK) {
            let Work::Read { file, .. } = fetch.work else { unreachable!("all are known") };
            assert!(open.contains(&file), "{file:?} of {segments:?} is closed");
            read.insert(file);
            policy.completed(NOW, fetch.id, Outcome::Fetched);
            close_released(&mut policy, &mut open);
        }
        assert_eq!(open.len(), 3, "{segments:?}: nothing has been read by a program");
        assert!(!read.is_empty());
    }
}

#[test]
fn what_comes_after_thousands_of_empty_segments_is_fetched() {
    for empty in [0, 4000, 4096, 9000] {
        let mut policy = Policy::new(config(Rules::FORETELL, 1000));
        let stream = policy.open_stream(NOW, HINTER, None);
        let none = (0..empty).map(|at| Segment { offset_bytes: at * 10, length_bytes: 0 });
        let some = (0..100).map(|at| Segment { offset_bytes: at * 10, length_bytes: 10 });
        let ranges: Vec<Segment> = none.chain(some).collect();
        policy.hint(NOW, stream, Hint::segments(file(FILE, 100), DISK, &ranges));
        fetch_all(&mut policy);
        assert_eq!(policy.counts().prefetched, 100, "{empty}");
    }
}

#[test]
fn what_comes_late_speaks_for_its_hinter_too() {
    let fetched = [false, true].map(|late| {
        let mut policy = Policy::new(config(Rules::FORETELL, 4000));
        let truthful = policy.open_stream(NOW, HINTER, None);
        policy.hint(NOW, truthful, Hint::whole_file(file(FILE, 2000), DISK));
        let mut begun = VecDeque::new();
        for index in 0..2000 {
            begun.extend(std::iter::from_fn(|| policy.next_fetch(NOW, DISK)));
            if late {
                policy.read(NOW, READER, block(index), false);
            }
            let fetch: Fetch = begun.pop_front().expect("it is read in order");
            policy.completed(NOW, fetch.id, Outcome::Fetched);
            if !late {
                policy.read(NOW, READER, block(index), false);
            }
        }
        policy.close(NOW, truthful);
        let wrong = policy.open_stream(NOW, HINTER, None);
        policy.hint(NOW, wrong, Hint::whole_file(file(FileId(2), 1000), DISK));
        fetch_all(&mut policy);
        policy.close(NOW, wrong);
        let before = policy.counts().prefetched;
        let next = policy.open_stream(NOW, HINTER, None);
        policy.hint(NOW, next, Hint::whole_file(file(FileId(3), 3000), DISK));
        fetch_all(&mut policy);
        policy.counts().prefetched - before
    });
    assert_eq!(fetched[0], fetched[1]);
    assert!(fetched[0] > 100, "{fetched:?}");
}

#[test]
fn what_is_read_as_hinted_again_is_the_last_to_go() {
    let mut policy = Policy::new(config(Rules::TIP2, 10));
    let first = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, first, Hint::whole_file(file(FILE, 10), DISK));
    for index in 0..10 {
        fetch_all(&mut policy);
        read(&mut policy, READER, block(index));
    }
    policy.close(NOW, first);
    let second = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, second, Hint::whole_file(file(FILE, 2), DISK));
    for index in 0..2 {
        read(&mut policy, READER, block(index));
    }
    policy.close(NOW, second);
    let third = policy.open_stream(NOW, HINTER, None);
    policy.hint(NOW, third, Hint::whole_file(file(FileId(9), 8), DISK));
    let mut gone = Vec::new();
    while let Some(fetch) = policy.next_fetch(NOW, DISK) {
        policy.completed(NOW, fetch.id, Outcome::Fetched);
        gone.extend(std::iter::from_fn(|| policy.next_eviction()).map(|block| block.index));
    }
    assert_eq!(gone, [2, 3, 4, 5, 6, 7, 8, 9]);
}
