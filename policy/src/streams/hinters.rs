//! The records of hinters: how many of the blocks fetched for them were useful.
//!
//! A stream measures by itself how accurate its hints are ([`cursor`](crate::streams::stream::cursor)). It starts with the
//! accuracy of its hinter's record. A hinter without a record is trusted.
//!
//! The record is the share of the hinter's prefetched blocks that were read. The unread blocks of a stream count against the
//! record, as far as they exceed the stream's balance (blocks read, less blocks wasted). So a hinter that opens stream after
//! stream and reads none soon loses trust, and a hinter that reads one stream may open the next.
//!
//! Cost: O(1) per block, O(log s) to open or close a stream, with s streams of its hinter. The record has the contributions of
//! open streams as of when a stream was last opened. [`Streams`](crate::streams::Streams) notes which have changed since.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::blocks::StreamIndex;
use crate::hint::{HinterId, StreamId};
use crate::tables::hash::Mix;

/// Useful blocks credited to every record.
/// Unit: blocks. Reason: judgement.
const FIRST_BLOCKS: f64 = 16.0;
/// When a record exceeds this many blocks, it is halved, so that older blocks count less.
/// Unit: blocks. Reason: judgement.
const RECORD_BLOCKS: f64 = 65_536.0;

/// Records kept of hinters without a stream. Beyond this the older half is dropped.
/// Unit: entries. Reason: bound.
const RECORDS_MAX: usize = 4096;

/// A stream's contribution to its hinter's record, beyond the blocks already recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Unread blocks that count against the hinter.
    pub(crate) unproven: u64,
    /// Useful blocks that are not recorded yet.
    pub(crate) unrecorded: u32,
}

/// The fate of the blocks fetched for one hinter, and its hints.
#[derive(Clone, Debug, Default)]
struct Record {
    useful: f64,
    wasted: f64,
    /// Its streams, in the order in which they were opened.
    streams: BTreeMap<StreamId, StreamIndex>,
    /// Sums of its streams' contributions.
    unproven: u64,
    unrecorded: u64,
    /// When it closed its last stream, as a turn number.
    left: u64,
    /// Its hints that are not placed yet.
    waiting: usize,
    /// Bytes of its hints.
    hint_bytes: usize,
    /// Its hints that are looked up or in lookup and not past, as last noted.
    resolved: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Hinters {
    records: HashMap<HinterId, Record, Mix>,
    /// Number of records of hinters with streams.
    with_streams: usize,
    next_turn: u64,
    /// Bytes of all hints.
    hint_bytes: usize,
}

impl Hinters {
    fn record(&mut self, hinter: HinterId) -> &mut Record {
        self.records.entry(hinter).or_default()
    }

    /// `hinter` opens a stream. Returns how far its record is trusted, from 0 to 1.
    pub(crate) fn opened(&mut self, hinter: HinterId, id: StreamId, stream: StreamIndex) -> f64 {
        if self.records.len() - self.with_streams >= RECORDS_MAX {
            self.forget_some();
        }
        let record = self.record(hinter);
        let is_first = record.streams.is_empty();
        record.streams.insert(id, stream);
        let good = record.useful + record.unrecorded as f64 + FIRST_BLOCKS;
        let believed = good / (good + record.wasted + record.unproven as f64);
        self.with_streams += usize::from(is_first);
        if hinter == HinterId::DRIVER { 1.0 } else { believed }
    }

    fn forget_some(&mut self) {
        let without = self.records.values().filter(|record| record.streams.is_empty());
        let mut left: Vec<u64> = without.map(|record| record.left).collect();
        let middle = left.len() / 2;
        let (_, &mut until, _) = left.select_nth_unstable(middle);
        self.records.retain(|_, record| !record.streams.is_empty() || record.left >= until);
    }

    /// The contribution of one of its streams changes from `before` to `now`.
    pub(crate) fn shows(&mut self, hinter: HinterId, before: Shown, now: Shown) {
        if before != now {
            let record = self.record(hinter);
            record.unproven = record.unproven - before.unproven + now.unproven;
            record.unrecorded =
                record.unrecorded - u64::from(before.unrecorded) + u64::from(now.unrecorded);
        }
    }

    /// A stream is closed. Its contribution was removed before.
    pub(crate) fn closed(&mut self, hinter: HinterId, id: StreamId) {
        let turn = self.next_turn;
        self.next_turn += 1;
        let record = self.record(hinter);
        if record.streams.remove(&id).is_some() && record.streams.is_empty() {
            record.left = turn;
            self.with_streams -= 1;
        }
    }

    /// Counts useful blocks: they were prefetched or in flight for it when they were read.
    pub(crate) fn note_useful(&mut self, hinter: HinterId, blocks: u32) {
        let record = self.record(hinter);
        record.useful += f64::from(blocks);
        record.fade();
    }

    /// Counts a wasted block: it was prefetched for the hinter and not read.
    pub(crate) fn note_wasted(&mut self, hinter: HinterId) {
        let record = self.record(hinter);
        record.wasted += 1.0;
        record.fade();
    }

    /// One of its hints begins to wait for its place.
    pub(crate) fn waits(&mut self, hinter: HinterId) {
        self.record(hinter).waiting += 1;
    }

    /// One of its waiting hints was placed or dropped.
    pub(crate) fn waits_no_more(&mut self, hinter: HinterId) {
        self.record(hinter).waiting -= 1;
    }

    /// Number of its hints that wait for their places.
    pub(crate) fn waiting(&self, hinter: HinterId) -> usize {
        self.records.get(&hinter).map_or(0, |record| record.waiting)
    }

    /// The bytes of one of its streams' hints change from `before` to `now`.
    pub(crate) fn note_hint_bytes(&mut self, hinter: HinterId, before: usize, now: usize) {
        self.hint_bytes = self.hint_bytes - before + now;
        let record = self.record(hinter);
        record.hint_bytes = record.hint_bytes - before + now;
    }

    /// Bytes of the hinter's hints, and of all hints.
    pub(crate) fn hint_bytes(&self, hinter: HinterId) -> (usize, usize) {
        let own = self.records.get(&hinter).map_or(0, |record| record.hint_bytes);
        (own, self.hint_bytes)
    }

    /// The number of looked-up hints of one of its streams changes from `before` to `now`.
    pub(crate) fn note_resolved(&mut self, hinter: HinterId, before: u64, now: u64) {
        let record = self.record(hinter);
        record.resolved = record.resolved - before + now;
    }

    /// Its hints that are looked up or in lookup and not past, as last noted.
    pub(crate) fn resolved(&self, hinter: HinterId) -> u64 {
        self.records.get(&hinter).map_or(0, |record| record.resolved)
    }

    /// Its streams, in the order in which they were opened.
    pub(crate) fn streams(&self, hinter: HinterId) -> impl Iterator<Item = StreamIndex> {
        self.records.get(&hinter).into_iter().flat_map(|record| record.streams.values().copied())
    }

    /// The sums of its streams' contributions.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn shown(&self, hinter: HinterId) -> (u64, u64) {
        self.records.get(&hinter).map_or((0, 0), |record| (record.unproven, record.unrecorded))
    }
}

impl Record {
    /// Halves the record when it is full, so that older blocks count less.
    fn fade(&mut self) {
        if self.useful + self.wasted > RECORD_BLOCKS {
            (self.useful, self.wasted) = (self.useful / 2.0, self.wasted / 2.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a stream of `hinter`.
    fn open(trust: &mut Hinters, hinter: u64, id: u64) -> f64 {
        trust.opened(HinterId(hinter), StreamId(id), StreamIndex(id as u32))
    }

    fn shown(unproven: u64, unrecorded: u32) -> Shown {
        Shown { unproven, unrecorded }
    }

    #[test]
    fn one_hinters_record_is_not_anothers() {
        let mut trust = Hinters::default();
        (0..1000).for_each(|_| trust.note_wasted(HinterId(1)));
        assert!(open(&mut trust, 1, 0) < 0.02);
        assert_eq!(open(&mut trust, 2, 1), 1.0);
        (0..9000).for_each(|_| trust.note_useful(HinterId(1), 1));
        assert!((0.9..0.91).contains(&open(&mut trust, 1, 2)));
    }

    #[test]
    fn what_is_long_past_counts_for_little() {
        let mut trust = Hinters::default();
        (0..200).for_each(|_| trust.note_useful(HinterId(1), 1000));
        (0..65_536).for_each(|_| trust.note_wasted(HinterId(1)));
        let believed = open(&mut trust, 1, 0);
        assert!(
            believed < 0.5,
            "{believed}: by all that there ever was it would be three quarters"
        );
    }

    #[test]
    fn what_the_record_does_not_have_yet_counts() {
        let mut trust = Hinters::default();
        let hinter = HinterId(1);
        (0..16).for_each(|_| trust.note_wasted(hinter));
        assert_eq!(open(&mut trust, 1, 0), 0.5);
        trust.shows(hinter, Shown::default(), shown(0, 16));
        assert_eq!(open(&mut trust, 1, 1), 2.0 / 3.0);
        trust.note_useful(hinter, 16);
        trust.shows(hinter, shown(0, 16), Shown::default());
        assert_eq!(open(&mut trust, 1, 2), 2.0 / 3.0);
    }

    #[test]
    fn what_is_unread_counts_until_the_stream_is_closed() {
        let mut trust = Hinters::default();
        let hinter = HinterId(1);
        assert_eq!(open(&mut trust, 1, 0), 1.0);
        trust.shows(hinter, Shown::default(), shown(1024, 0));
        assert!(open(&mut trust, 1, 1) < 0.02);
        trust.shows(hinter, shown(1024, 0), Shown::default());
        trust.closed(hinter, StreamId(0));
        trust.closed(hinter, StreamId(1));
        assert_eq!(open(&mut trust, 1, 2), 1.0);
    }

    #[test]
    fn the_driver_is_believed_whatever_becomes_of_it() {
        let mut trust = Hinters::default();
        (0..1000).for_each(|_| trust.note_wasted(HinterId::DRIVER));
        assert_eq!(trust.opened(HinterId::DRIVER, StreamId(0), StreamIndex(0)), 1.0);
    }

    #[test]
    fn who_has_a_stream_is_not_forgotten_nor_who_had_one_lately() {
        let mut trust = Hinters::default();
        for hinter in [0, 1] {
            open(&mut trust, hinter, hinter);
            (0..100).for_each(|_| trust.note_wasted(HinterId(hinter)));
        }
        let all = 3 * RECORDS_MAX as u64;
        for hinter in 2..all {
            open(&mut trust, hinter, hinter);
            trust.note_wasted(HinterId(hinter));
            trust.closed(HinterId(hinter), StreamId(hinter));
            if hinter == all - 1000 {
                trust.closed(HinterId(1), StreamId(1));
            }
            assert!(trust.records.len() <= RECORDS_MAX + 2);
        }
        assert!(open(&mut trust, 0, all) < 0.2);
        assert!(open(&mut trust, 1, all + 1) < 0.2, "it had one lately");
        assert!(open(&mut trust, all - 1, all + 2) < 1.0);
        assert_eq!(open(&mut trust, 2, all + 3), 1.0);
    }
}
