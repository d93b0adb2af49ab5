//! Where streams and readers are, for drivers that cannot see each read.

use super::*;
use crate::hint::Order;

/// A policy with a stream of three files of 25 bytes: three blocks each, the last one of five bytes.
fn three_files(order: Order) -> (Policy, StreamId) {
    let mut policy = Policy::new(config(100));
    let stream = policy.open_stream(NOW, HINTER, None);
    for file in 0..3 {
        let target = Target::File { file: FileId(file), size_bytes: 25 };
        policy.hint(NOW, stream, Hint { order, ..Hint::whole_file(target, DISK) });
    }
    fetch_all(&mut policy, 25);
    (policy, stream)
}

#[test]
fn what_is_expected_can_be_read_until_nothing_is() {
    let (mut policy, stream) = three_files(Order::Given);
    let mut read = Vec::new();
    while let Some((block, bytes)) = policy.expected(stream) {
        policy.read(NOW, READER, block, false);
        read.push((block.file.0, block.index, bytes));
    }
    let of_file = |file| [(file, 0, 10), (file, 1, 10), (file, 2, 5)];
    assert_eq!(read, [of_file(0), of_file(1), of_file(2)].concat());
    assert_eq!(policy.counts().useful, 9);
    assert_eq!(policy.followed(READER), Some(stream));
}

#[test]
fn a_stream_tells_how_far_ahead_a_file_is() {
    let (mut policy, stream) = three_files(Order::Given);
    assert_eq!(policy.expecting(READER, FileId(2)), Some((stream, 6, block(2, 0))));
    assert_eq!((policy.expecting(READER, FileId(9)), policy.followed(READER)), (None, None));
    policy.read(NOW, READER, block(0, 0), false);
    assert_eq!(policy.expecting(READER, FileId(0)), Some((stream, 0, block(0, 1))));
    policy.read(NOW, READER, block(2, 0), false);
    assert_eq!(policy.expecting(READER, FileId(2)), Some((stream, 0, block(2, 1))));
    assert_eq!(policy.expecting(READER, FileId(1)), None, "it was passed");
}

#[test]
fn a_stream_of_another_reader_and_a_free_order_expect_nothing() {
    let (mut policy, stream) = three_files(Order::Any);
    assert_eq!(policy.expected(stream), None);
    policy.close(NOW, stream);
    assert_eq!(policy.expected(stream), None);
    let (mut policy, _) = disclosed(config(100), 5);
    assert_eq!(policy.expecting(ReaderId(99), FileId(1)), None);
    assert!(policy.expecting(READER, FileId(1)).is_some());
}

#[test]
fn of_two_streams_that_expect_a_file_equally_soon_the_followed_one_is_told() {
    let mut policy = Policy::new(config(100));
    let target = Target::File { file: FileId(0), size_bytes: 45 };
    for hinter in [1, 2] {
        let stream = policy.open_stream(NOW, HinterId(hinter), None);
        policy.hint(NOW, stream, Hint::whole_file(target, DISK));
    }
    fetch_all(&mut policy, 25);
    for index in 0..4 {
        policy.read(NOW, READER, block(0, index), false);
        let followed = policy.followed(READER).expect("a hinted read");
        assert_eq!(policy.expecting(READER, FileId(0)), Some((followed, 0, block(0, index + 1))));
    }
}
