use super::reading::RANKED_READS;
use super::*;
use crate::blocks::Slot;
use crate::hint::{DeviceId, FileId, Hint, Segment, Target};

const DISK: DeviceIndex = DeviceIndex(0);
const READER: ReaderId = ReaderId(1);
const FILE: FileId = FileId(0);

fn block(index: u64) -> Block {
    Block { file: FILE, index }
}

/// A stream that reads these ranges (first block, number of blocks) of one file.
fn stream_of(ranges: &[(u64, u64)]) -> Stream {
    let limits = Limits { block_bytes: 1, window: 40, placed_max: 1 << 20 };
    let mut stream = Stream::new(StreamId(0), HinterId(0), Some(READER), limits);
    for &(offset_bytes, length_bytes) in ranges {
        let target = Target::File { file: FILE, size_bytes: 1000 };
        let segments = [Segment { offset_bytes, length_bytes }];
        let hint = Hint::segments(target, DeviceId(0), &segments);
        stream.wait(Waiting::new(hint, DISK));
    }
    stream.advance(4096, |_| (), |_| ());
    stream
}

fn read(stream: &mut Stream, blocks: &BlockTable, position: u64) {
    let (block, _) = stream.block_at(position).expect("it is placed");
    stream.read((block, position), 20, blocks, |_| (), &mut Vec::new());
    stream.check(blocks);
}

#[test]
fn a_later_use_that_was_overtaken_too_is_sought_when_the_reader_comes_back() {
    // Block 9 is read at 9, and at 24 again.
    let mut stream = stream_of(&[(0, 20), (5, 20)]);
    let mut blocks = BlockTable::new(64);
    let slots: Vec<SlotId> =
        (0..25).map(|index| blocks.insert(Slot::in_flight(block(index), DISK, true))).collect();
    stream.note_missing(&blocks, u64::MAX, |_, _| ());
    blocks.remove(slots[9]);
    stream.lost(DISK, 9);
    // The reader leaps ahead: the first use is given up, the second lies behind the front.
    for position in [30, 31, 32] {
        read(&mut stream, &blocks, position);
    }
    assert_eq!((stream.cursor.base(), stream.cursor.fetched_from()), (13, 33));
    assert_eq!(stream.first_missing(&blocks, DISK, u64::MAX, |_, _| ()), None);
    for position in [20, 21] {
        read(&mut stream, &blocks, position);
    }
    assert_eq!(stream.first_missing(&blocks, DISK, u64::MAX, |_, _| ()), Some(24));
}

#[test]
fn a_use_that_was_overtaken_is_come_upon_again_when_the_reader_comes_back() {
    // Block 9 is read at 9, at 24 and at 40.
    let mut stream = stream_of(&[(0, 20), (5, 20), (9, 1)]);
    let mut blocks = BlockTable::new(64);
    let slots: Vec<SlotId> =
        (0..25).map(|index| blocks.insert(Slot::in_flight(block(index), DISK, true))).collect();
    for position in [30, 31, 32] {
        read(&mut stream, &blocks, position);
    }
    let come_upon = |stream: &mut Stream| {
        let mut found = Vec::new();
        let missing = stream.first_missing(&blocks, DISK, u64::MAX, |slot, at| {
            found.push((slot, at));
        });
        assert_eq!(missing, None);
        found.retain(|&(slot, _)| slot == slots[9]);
        found
    };
    assert_eq!(come_upon(&mut stream), [(slots[9], 40)]);
    stream.come_upon_behind(block(9));
    stream.lets_go(block(9), 40);
    for position in [20, 21] {
        read(&mut stream, &blocks, position);
    }
    assert_eq!(stream.use_of_leaving(block(9)), Some(24));
    assert_eq!(come_upon(&mut stream), [(slots[9], 24), (slots[9], 40)]);
}

#[test]
fn who_reads_in_order_and_no_more_slowly_has_nothing_that_is_worth_less() {
    let (mut stream, blocks) = (stream_of(&[(0, 30)]), BlockTable::new(64));
    let mut read = |position: u64, ranked_pace: (Option<f64>, bool)| {
        stream.ranked_pace = ranked_pace;
        stream.read((block(position), position), 20, &blocks, |_| (), &mut Vec::new())
    };
    let none = (None, false);
    assert!(!read(0, none));
    assert!(read(1, (None, true)), "it is in time");
    assert!(read(2, (Some(1.0), false)), "nothing is known of its pace any more");
    assert!(!read(10, none));
    // The second read behind the front moves the front back.
    assert!(!read(4, none));
    assert!(read(5, none), "all is further away");
}

#[test]
fn who_reads_in_order_is_asked_now_and_then_since_costs_may_have_changed() {
    let (mut stream, blocks) = (stream_of(&[(0, 60)]), BlockTable::new(64));
    let mut read = |position: u64| {
        stream.read((block(position), position), 20, &blocks, |_| (), &mut Vec::new())
    };
    let asked = (0..2 * RANKED_READS).filter(|&position| read(position)).count();
    assert_eq!(asked, 2);
}

#[test]
fn what_was_missing_and_has_come_is_come_upon() {
    let (mut stream, mut blocks) = (stream_of(&[(0, 3), (0, 3)]), BlockTable::new(64));
    stream.note_missing(&blocks, u64::MAX, |_, _| ());
    // Fetched, possibly for its second use.
    let slot = blocks.insert(Slot::in_flight(block(0), DISK, true));
    let mut found = Vec::new();
    let missing = stream.first_missing(&blocks, DISK, u64::MAX, |slot, at| {
        found.push((slot, at));
    });
    assert_eq!((missing, found), (Some(1), vec![(slot, 0)]));
}

#[test]
fn what_a_search_gave_up_is_forgotten_with_the_hints() {
    let (mut stream, blocks) = (stream_of(&[(0, 1); 10]), BlockTable::new(64));
    stream.gave_up_search = true;
    stream.cancel(&blocks, |_| (), |_| (), &mut Vec::new());
    assert!(!stream.gave_up_search, "it would be checked no more");
}
