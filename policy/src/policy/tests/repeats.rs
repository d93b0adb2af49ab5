//! Blocks that a stream reads more than once. The search may come upon such a block in memory for a later use first, because
//! TIP-1 claims no block that was read.

use super::*;

fn tip1(capacity_blocks: u64) -> (Policy, StreamId) {
    let mut policy = Policy::new(Config {
        rules: Rules::TIP1,
        cluster_blocks_max: 1,
        resolved_max: 64, // With fewer, hints that the reader leaves out are given up at once.
        ..owned_config(capacity_blocks)
    });
    let stream = policy.open_stream(NOW, HINTER, Some(READER));
    (policy, stream)
}

/// Discloses these blocks of one file, one after the other.
fn disclose_blocks(policy: &mut Policy, stream: StreamId, indices: &[u64]) {
    let file = Target::File { file: FileId(1), size_bytes: 1000 };
    for &index in indices {
        let segment = Segment { offset_bytes: 10 * index, length_bytes: 10 };
        policy.hint(NOW, stream, Hint::segments(file, DISK, &[segment]));
    }
}

fn hit(policy: &mut Policy, reader: ReaderId, indices: &[u64]) {
    for &index in indices {
        assert_eq!(policy.read(NOW, reader, block(1, index), false), Access::Hit, "{index}");
    }
}

/// Reads so many other blocks without hints. Returns the blocks that make room for them.
fn read_others(policy: &mut Policy, blocks: u64) -> Vec<Block> {
    for index in 0..blocks {
        let fetch = policy.demand(NOW, DISK, block(9, index)).expect("a buffer");
        policy.completed(NOW, fetch.id, Outcome::Fetched);
    }
    std::iter::from_fn(|| policy.next_eviction()).collect()
}

#[test]
fn a_block_found_for_a_later_use_is_fetched_for_its_next_use() {
    let (mut policy, stream) = tip1(8);
    disclose_blocks(&mut policy, stream, &[0, 1, 0, 1]);
    assert_eq!(fetch_all(&mut policy, 0), [block(1, 0), block(1, 1)]);
    hit(&mut policy, READER, &[0, 1]);
    // The search has passed the next use of block 0 and comes upon this one.
    disclose_blocks(&mut policy, stream, &[0]);
    assert_eq!(fetch_all(&mut policy, 0), []);
    assert_eq!(read_others(&mut policy, 8), [block(1, 0), block(1, 1)]);
    assert_eq!(fetch_all(&mut policy, 0), [block(1, 0), block(1, 1)]);
}

#[test]
fn a_block_found_for_a_later_use_is_sought_when_the_reader_comes_back() {
    let (mut policy, stream) = tip1(32);
    disclose_blocks(&mut policy, stream, &[0, 1, 2, 0]);
    assert_eq!(fetch_all(&mut policy, 0).len(), 3);
    hit(&mut policy, READER, &[0]);
    disclose_blocks(&mut policy, stream, &[0, 5, 6, 7]);
    assert_eq!(fetch_all(&mut policy, 0).len(), 3);
    hit(&mut policy, ReaderId(2), &[1, 2]); // Block 0 is now the least recently used one.
    assert_eq!(read_others(&mut policy, 27), [block(1, 0)]);
    // The reader leaves out both uses, and comes back.
    hit(&mut policy, READER, &[5, 6, 7]);
    assert_eq!(fetch_all(&mut policy, 0), []);
    hit(&mut policy, READER, &[1, 2]);
    assert_eq!(fetch_all(&mut policy, 0), [block(1, 0)]);
}
