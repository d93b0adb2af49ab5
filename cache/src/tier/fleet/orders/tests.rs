//! Orders of two nodes, and what follows for blocks.

use super::super::format::{Checks, Named};
use super::*;

const BLOCK: u64 = 4096;

fn file(path: &str) -> FileId {
    let named = Named { store: "s", path, version: b"1" };
    Checks::new(None).file(named, 100 * BLOCK, BLOCK as usize)
}

fn disclose(orders: &mut Orders, stream: u64, file: &FileId, indices: &[u64]) {
    let of = |&index: &u64| Segment { offset_bytes: index * BLOCK, length_bytes: BLOCK };
    let segments: Vec<Segment> = indices.iter().map(of).collect();
    orders.note_disclosed(stream, (file, 1 << 40), BLOCK, Some(&segments));
}

/// Has `other` learn all that `one` publishes.
fn tell(one: &mut Orders, other: &mut Orders) {
    for News { reader, progress, chunks, .. } in one.news().0 {
        other.learn(&reader, progress, &chunks);
    }
}

/// Two nodes. The first one has disclosed blocks 1 to 4 of this file. The second one knows that, and its server is nearly full.
fn pair(a: &FileId) -> (Orders, Orders) {
    let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
    disclose(&mut one, 0, a, &[1, 2, 3, 4]);
    tell(&mut one, &mut other);
    other.set_filled(Some(0.95));
    (one, other)
}

#[test]
fn a_block_is_worth_what_all_readers_will_save_by_it() {
    let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
    let (a, b) = (file("a"), file("b"));
    disclose(&mut one, 7, &a, &[5, 3, 9]);
    disclose(&mut one, 7, &b, &[5]);
    disclose(&mut other, 1, &a, &[9, 4, 9]);
    tell(&mut one, &mut other);
    assert_eq!(other.worth(&a, 5), 1.0);
    assert_eq!(other.worth(&b, 5), 0.25);
    assert_eq!(other.worth(&a, 4), 0.5);
    assert_eq!(other.worth(&a, 9), 1.0 / 3.0 + (1.0 + 1.0 / 3.0));
    assert_eq!(other.worth(&a, 6), 0.0);
    // What has arrived is behind the reader, and so is what was before it.
    one.note_arrival(&a, 3);
    tell(&mut one, &mut other);
    assert_eq!((other.worth(&a, 5), other.worth(&b, 5)), (0.0, 0.5));
    other.note_arrival(&a, 9);
    assert_eq!(other.worth(&a, 9), 1.0 + 0.5);
    other.note_arrival(&a, 9);
    assert_eq!(other.worth(&a, 9), 1.0);
    // A reader that gives up, or is gone, counts no more.
    one.note_end(7);
    assert_eq!(one.news().1, [format!("{}-7-0", one.node)]);
    other.keep_only(&HashSet::new());
    assert_eq!((other.worth(&a, 9), other.other_positions), (0.0, 0));
    // All of it is published anew when the server has lost it.
    other.publish_anew();
    let news = other.news().0;
    assert_eq!(news[0].progress, Progress { at: 3, blocks: 3 });
    assert_eq!(news[0].chunks.len(), CHUNK_HEAD_BYTES + 3 * 4);
    assert_eq!(news[0].reader, format!("{}-1-1", other.node));
}

#[test]
fn on_a_full_server_blocks_are_put_for_others_of_less_worth() {
    let a = file("a");
    let (mut one, mut other) = pair(&a);
    other.set_filled(Some(0.5));
    assert_eq!(other.admit(&a, 1), Admission::Put, "there is room");
    other.set_filled(Some(0.95));
    assert_eq!(other.admit(&a, 1), Admission::No, "there is none to go for it");
    other.note_put(a, 4);
    assert_eq!(other.admit(&a, 1), Admission::For(a, 4));
    other.note_put(a, 1);
    assert_eq!(other.admit(&a, 2), Admission::No);
    // A block that all readers have behind them is not put, and goes once it has been read.
    one.note_arrival(&a, 2);
    tell(&mut one, &mut other);
    assert_eq!(other.admit(&a, 1), Admission::No);
    assert!(other.may_go(&a, 1) && !other.may_go(&a, 3));
    // Without orders of others the server decides.
    other.keep_only(&HashSet::new());
    assert_eq!(other.admit(&a, 1), Admission::Put);
    // Where there is always room, nothing is noted.
    one.set_filled(None);
    disclose(&mut one, 1, &a, &[1]);
    one.note_put(a, 1);
    assert!(!one.is_active() && one.own_positions == 0 && one.put.is_empty());
}

#[test]
fn blocks_that_no_program_has_disclosed_are_left_to_the_server() {
    let a = file("a");
    let (_, mut other) = pair(&a);
    assert_eq!(other.admit(&a, 50), Admission::Put);
    assert!(!other.may_go(&a, 50));
}

#[test]
fn what_is_not_known_is_not_worthless() {
    let a = file("a");
    let past = |one: &mut Orders, other: &mut Orders| {
        one.note_arrival(&a, 2);
        tell(one, other);
    };
    let decides = |other: &mut Orders| {
        assert_eq!(other.may_go(&a, 1), other.admit(&a, 1) == Admission::No);
        other.may_go(&a, 1)
    };
    let (mut one, mut other) = pair(&a);
    past(&mut one, &mut other);
    assert!(decides(&mut other), "all is known");
    // A reader that discloses more while it reads may go on.
    disclose(&mut one, 0, &a, &[5]);
    tell(&mut one, &mut other);
    assert!(!decides(&mut other), "another node's window");
    let (mut one, mut other) = pair(&a);
    disclose(&mut other, 3, &a, &[1, 7]);
    other.note_arrival(&a, 7);
    past(&mut one, &mut other);
    assert!(decides(&mut other), "its own order is known");
    disclose(&mut other, 3, &a, &[8]);
    assert!(!decides(&mut other), "its own window");
    // A part of the order has not been read yet, or was refused by a full server.
    let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
    disclose(&mut one, 0, &a, &[1, 2]);
    disclose(&mut one, 0, &file("b"), &[3]);
    one.note_arrival(&a, 2);
    let news = one.news().0.remove(0);
    let (first, rest) = news.chunks.split_at(CHUNK_HEAD_BYTES + 2 * 4);
    other.set_filled(Some(0.95));
    other.learn(&news.reader, news.progress, first);
    assert!(!decides(&mut other), "the rest has not come");
    other.learn(&news.reader, news.progress, rest);
    assert!(decides(&mut other), "the rest has come");
    // There are more readers.
    let readers = other.follow(vec![news.reader.clone(), "x".to_owned()], 3);
    assert!(readers.contains(&news.reader) && readers.len() == 2);
    assert!(!decides(&mut other), "a reader that is not followed");
    other.follow(vec![news.reader.clone(), "x".to_owned()], 2);
    assert!(decides(&mut other));
    // What was learnt long ago decides nothing.
    other.learnt = None;
    assert!(!decides(&mut other), "stale");
    other.keep_only(&HashSet::from([news.reader]));
    assert!(decides(&mut other));
    other.forget_others();
    assert!(!decides(&mut other) && !other.is_full());
}

#[test]
fn orders_that_do_not_fit_are_cut_and_may_go_on() {
    let a = file("a");
    let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
    let whole = [Segment { offset_bytes: 0, length_bytes: u64::MAX }];
    one.note_disclosed(0, (&a, 1 << 40), BLOCK, Some(&whole));
    assert_eq!(one.own_positions, OWN_POSITIONS_MAX);
    let news = one.news().0.remove(0);
    assert_eq!(news.progress.blocks, MAY_GO_ON);
    // Three of them do not fit in the table of another node: the first two do.
    for reader in ["x", "y", "z"] {
        let progress = Progress { at: 0, blocks: OWN_POSITIONS_MAX as u64 };
        other.learn(reader, progress, &news.chunks);
    }
    assert_eq!(other.other_positions, POSITIONS_MAX);
    let is_known = ["x", "y", "z"].map(|reader| other.others[reader].is_complete());
    assert_eq!(is_known, [true, true, false]);
    assert_eq!((other.unread("x"), other.unread("z")), (Some(news.chunks.len() as u64), None));
    // A node's own streams find no room then.
    disclose(&mut other, 0, &a, &[1]);
    assert_eq!(other.news().0[0].progress, Progress { at: 0, blocks: MAY_GO_ON });
    other.keep_only(&HashSet::new());
    assert_eq!((other.other_positions, other.wanted.len()), (0, 0));
}

#[test]
fn an_order_is_read_in_pieces() {
    let (a, b) = (file("a"), file("b"));
    let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
    disclose(&mut one, 0, &a, &[3, 1]);
    disclose(&mut one, 0, &b, &[9]);
    let news = one.news().0.remove(0);
    let whole = news.chunks;
    while other.others.get(&news.reader).is_none_or(|known| known.bytes < whole.len() as u64) {
        // More than the first chunk has, and less than both.
        let from = other.unread(&news.reader).unwrap() as usize;
        let to = whole.len().min(from + CHUNK_HEAD_BYTES + 2 * 4 + 10);
        other.learn(&news.reader, news.progress, &whole[from..to]);
        assert!(other.unread(&news.reader).unwrap() as usize > from);
    }
    assert!(other.others[&news.reader].is_complete());
    assert_eq!((other.worth(&a, 1), other.worth(&b, 9)), (0.5, 1.0 / 3.0));
}

#[test]
fn an_endless_order_leaves_behind_what_is_past() {
    let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
    let a = file("a");
    let indices: Vec<u64> = (0..100).collect();
    for turn in 0..2000 {
        disclose(&mut one, 0, &a, &indices);
        indices.iter().for_each(|&index| one.note_arrival(&a, index));
        if turn % 10 == 0 {
            tell(&mut one, &mut other);
        }
    }
    assert!(one.own_positions <= 2 * BEHIND_MAX as usize, "{}", one.own_positions);
    disclose(&mut one, 0, &a, &[7, 5]);
    let (news, _) = one.news();
    other.learn(&news[0].reader, news[0].progress, &news[0].chunks);
    other.keep_only(&HashSet::from([news[0].reader.clone()]));
    assert_eq!((other.worth(&a, 7), other.worth(&a, 5)), (1.0, 0.5));
}

#[test]
fn whatever_is_published_under_its_keys_is_taken_as_it_is() {
    let mut orders = Orders::new(&[1; 16]);
    for length in 0..40 {
        assert_eq!(Progress::decode(&vec![0xFF; length]).is_some(), length == 16);
        let progress = Progress { at: u64::MAX, blocks: 3 };
        orders.learn(&length.to_string(), progress, &vec![0xFF; length]);
        orders.learn("x", progress, &vec![0; length]);
    }
    let mut chunk = vec![0xFF; CHUNK_HEAD_BYTES + 4];
    chunk[16..20].copy_from_slice(&1_u32.to_le_bytes());
    orders.learn("far", Progress::default(), &chunk);
    assert_eq!(orders.worth(&file("a"), 1), 0.0);
    orders.keep_only(&HashSet::new());
    assert_eq!((orders.other_positions, orders.wanted.len()), (0, 0));
}

#[test]
fn of_many_blocks_that_were_put_some_are_known() {
    let (mut orders, a) = (Orders::new(&[1; 16]), file("a"));
    orders.put = vec![(a, 0); PUT_MAX];
    (1..100).for_each(|index| orders.note_put(a, index));
    assert_eq!(orders.put.len(), PUT_MAX);
    assert!(orders.put.iter().filter(|(_, index)| *index > 0).count() > 50);
}
