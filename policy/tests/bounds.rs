//! Bounds on what a program's disclosures cost the policy.

use foretell_policy::{
    Access, Block, Config, DeviceId, FileId, Hint, HinterId, Memory, NameId, Nanos, Outcome,
    Policy, ReaderId, Segment, StreamId, Target, Work,
};

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const BLOCK_BYTES: u64 = 8192;
const SIZE_BYTES: u64 = 8 << 40;

fn policy(capacity_blocks: u64) -> Policy {
    let memory = Memory::Kernel { keeps: false };
    let config = Config::new(memory, BLOCK_BYTES, capacity_blocks * BLOCK_BYTES);
    Policy::new(Config { cluster_blocks_max: 1, ..config })
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

/// Segments of `blocks` blocks each at random places of a file.
fn segments(count: u64, blocks: u64, state: &mut u64) -> Vec<Segment> {
    let length_bytes = blocks * BLOCK_BYTES;
    (0..count)
        .map(|_| {
            let offset_bytes = random(state) % ((SIZE_BYTES - length_bytes) / BLOCK_BYTES);
            Segment { offset_bytes: offset_bytes * BLOCK_BYTES, length_bytes }
        })
        .collect()
}

fn hint(policy: &mut Policy, stream: StreamId, file: u64, segments: &[Segment]) {
    let target = Target::File { file: FileId(file), size_bytes: SIZE_BYTES };
    policy.hint(NOW, stream, Hint::segments(target, DISK, segments));
}

/// Fetches everything that the policy wants. Returns the number of blocks.
fn fetch_all(policy: &mut Policy) -> u64 {
    let mut fetched = 0;
    while let Some(fetch) = policy.next_fetch(NOW, DISK) {
        policy.completed(NOW, fetch.id, Outcome::Fetched);
        fetched += 1;
    }
    fetched
}

#[test]
fn long_segments_of_many_streams_take_memory_for_a_million_pieces_and_no_more() {
    let (mut policy, mut state) = (policy(1000), 1);
    for file in 0..64 {
        let stream = policy.open_stream(NOW, HinterId(1), None);
        hint(&mut policy, stream, file, &segments(4000, 1 << 29, &mut state));
        fetch_all(&mut policy);
    }
    let memory_bytes = policy.memory_bytes();
    assert!(memory_bytes < 80_000_000, "{memory_bytes}");
    assert!(memory_bytes > 64 * 4000 * size_of::<Segment>(), "{memory_bytes}: with the hints");
}

#[test]
fn what_many_streams_disclose_is_all_fetched_when_they_are_read() {
    const STREAMS: u64 = 4;
    const SEGMENTS: u64 = 6000;
    let (mut policy, mut state) = (policy(10_000), 1);
    // Sixty streams before them leave them the least possible room.
    let silent: Vec<StreamId> = (0..60)
        .map(|file| {
            let stream = policy.open_stream(NOW, HinterId(1), None);
            hint(&mut policy, stream, 100 + file, &segments(4000, 1 << 29, &mut state));
            fetch_all(&mut policy);
            stream
        })
        .collect();
    let mut order: Vec<Vec<u64>> = Vec::new();
    for file in 0..STREAMS {
        let stream = policy.open_stream(NOW, HinterId(file), Some(ReaderId(file)));
        let mut blocks = Vec::new();
        for _ in 0..3 {
            let segments = segments(SEGMENTS / 3, 1, &mut state);
            hint(&mut policy, stream, file, &segments);
            blocks.extend(segments.iter().map(|segment| segment.offset_bytes / BLOCK_BYTES));
        }
        order.push(blocks);
    }
    let mut hits = 0;
    for turn in 0..SEGMENTS as usize {
        for (file, blocks) in (0..).zip(&order) {
            fetch_all(&mut policy);
            let block = Block { file: FileId(file), index: blocks[turn] };
            let access = policy.read(NOW, ReaderId(file), block, false);
            hits += u64::from(access == Access::Hit);
        }
    }
    assert_eq!(hits, STREAMS * SEGMENTS);
    silent.into_iter().for_each(|stream| policy.close(NOW, stream));
    assert!(policy.is_idle() && policy.waiting_hints() == 0);
}

#[test]
fn placing_that_was_broken_off_goes_on_without_another_event() {
    // Of a hundred thousand segments, only the last one has a block to fetch.
    let mut policy = policy(1000);
    let stream = policy.open_stream(NOW, HinterId(1), None);
    let nothing = [Segment { offset_bytes: 0, length_bytes: 0 }; 4000];
    for _ in 0..25 {
        let name = Target::Name(NameId(0));
        policy.hint(NOW, stream, Hint::segments(name, DISK, &nothing));
    }
    hint(&mut policy, stream, 1, &[Segment { offset_bytes: 0, length_bytes: 1 }]);
    let mut read = false;
    while let Some(fetch) = policy.next_fetch(NOW, DISK) {
        let outcome = match fetch.work {
            Work::Resolve { .. } => Outcome::Resolved { file: FileId(7), size_bytes: SIZE_BYTES },
            Work::Read { .. } => Outcome::Fetched,
        };
        read |= matches!(fetch.work, Work::Read { .. });
        policy.completed(NOW, fetch.id, outcome);
    }
    assert!(read && policy.is_idle());
}

#[test]
fn hints_that_wait_are_counted() {
    let mut policy = policy(1000);
    let stream = policy.open_stream(NOW, HinterId(1), None);
    let before = policy.memory_bytes();
    for name in 0..100 {
        let segments = segments(1000, 1, &mut 1);
        let target = Target::Name(NameId(name));
        policy.hint(NOW, stream, Hint::segments(target, DISK, &segments));
    }
    let taken = policy.memory_bytes() - before;
    assert!(taken > 100 * 1000 * size_of::<Segment>(), "{taken}");
}

/// Number of hints in these tests.
const HINTS: u64 = 40_000;

/// Streams whose readers are nearly through and stay open hold no more memory than reported. `block_of` gives the file and
/// block of each hint.
fn hold_no_more_than_they_say(by_name: bool, block_of: impl Fn(u64) -> (u64, u64)) {
    const READER: ReaderId = ReaderId(1);
    let config = Config::new(Memory::Owned, BLOCK_BYTES, 100 * BLOCK_BYTES);
    let mut policy = Policy::new(config);
    let fetch_all = |policy: &mut Policy| {
        while let Some(fetch) = policy.next_fetch(NOW, DISK) {
            let outcome = match fetch.work {
                Work::Resolve { name } => {
                    Outcome::Resolved { file: FileId(name.0), size_bytes: SIZE_BYTES }
                }
                Work::Read { .. } => Outcome::Fetched,
            };
            policy.completed(NOW, fetch.id, outcome);
        }
        while policy.next_eviction().is_some() {}
    };
    let mut before = 0;
    for turn in 0..4 {
        let stream = policy.open_stream(NOW, HinterId(1), Some(READER));
        let block = |n| {
            let (file, index) = block_of(n);
            Block { file: FileId(turn * 2 * HINTS + file), index }
        };
        for n in 0..HINTS {
            let Block { file, index } = block(n);
            let target = match by_name {
                true => Target::Name(NameId(file.0)),
                false => Target::File { file, size_bytes: SIZE_BYTES },
            };
            let segment = Segment { offset_bytes: index * BLOCK_BYTES, length_bytes: 1 };
            policy.hint(NOW, stream, Hint::segments(target, DISK, &[segment]));
        }
        let last = FileId((turn + 1) * 2 * HINTS - 1);
        let last = Target::File { file: last, size_bytes: 100 * BLOCK_BYTES };
        policy.hint(NOW, stream, Hint::whole_file(last, DISK));
        assert!(policy.hint_bytes(HinterId(1)).0 > 64 * HINTS as usize);
        for n in 0..HINTS - 10 {
            fetch_all(&mut policy);
            policy.read(NOW, READER, block(n), false);
        }
        let (account, really) = (policy.hint_bytes(HinterId(1)).0, policy.memory_bytes());
        assert!(account < 100_000, "{account}");
        before = if turn == 0 { really } else { before };
        assert!(
            before < 400_000 && really <= before + turn as usize * 50_000,
            "{before}, {really}"
        );
    }
}

#[test]
fn what_is_past_of_one_file_is_not_held() {
    hold_no_more_than_they_say(false, |_| (0, 0));
}

#[test]
fn what_is_past_of_many_files_is_not_held() {
    hold_no_more_than_they_say(false, |n| (n, 0));
}

#[test]
fn what_is_past_of_a_shuffled_file_is_not_held() {
    hold_no_more_than_they_say(false, |n| (0, n * 7919 % HINTS));
}

#[test]
fn what_has_waited_is_not_held() {
    hold_no_more_than_they_say(true, |n| (n, 0));
}

#[test]
fn what_hints_take_is_known_of_each_hinter_until_they_are_past_or_cancelled() {
    const READER: ReaderId = ReaderId(1);
    let (mut policy, mut state) = (policy(1000), 1);
    let segments = segments(4000, 1, &mut state);
    let segments_bytes = size_of_val(&segments[..]);
    let streams = [(1, 10), (1, 20), (2, 30)].map(|(hinter, file)| {
        let stream = policy.open_stream(NOW, HinterId(hinter), Some(READER));
        hint(&mut policy, stream, file, &segments);
        // It waits for its lookup.
        let name = Hint::segments(Target::Name(NameId(file)), DISK, &segments);
        policy.hint(NOW, stream, name);
        stream
    });
    let bytes = |policy: &Policy, hinter| policy.hint_bytes(HinterId(hinter)).0 / segments_bytes;
    let all = |policy: &Policy| policy.hint_bytes(HinterId(9)).1 / segments_bytes;
    assert_eq!((bytes(&policy, 1), bytes(&policy, 2), all(&policy)), (4, 2, 6));
    policy.cancel(NOW, streams[0]);
    assert_eq!((bytes(&policy, 1), bytes(&policy, 2), all(&policy)), (2, 2, 4));
    for segment in &segments {
        let block = Block { file: FileId(30), index: segment.offset_bytes / BLOCK_BYTES };
        policy.read(NOW, READER, block, false);
    }
    assert_eq!((bytes(&policy, 2), all(&policy)), (1, 3));
    streams.into_iter().for_each(|stream| policy.close(NOW, stream));
    assert_eq!(policy.hint_bytes(HinterId(1)), (0, 0));
    assert_eq!(policy.hint_bytes(HinterId(2)), (0, 0));
}
