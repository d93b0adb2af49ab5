//! What is known of those who hint: whether what was fetched for them was of use.
//!
//! A stream shows by itself how true its hints are ([`cursor`](crate::stream::cursor)); one that has shown
//! nothing is taken for what its hinter has shown with others. A hinter of whom nothing is known is believed.
//!
//! The record of a hinter is the share of the blocks fetched for it that were read. Those that are not read
//! yet are against it as far as the same stream has had fewer read: who opens stream after stream and
//! reads none soon gets nothing by it, and who reads one stream may well open the next.
//!
//! Cost: O(1) a block, O(s) a new stream, with s streams of its hinter.

use hashbrown::HashMap;

use crate::blocks::StreamIndex;
use crate::hash::Mix;
use crate::hint::HinterId;

/// What a hinter of whom nothing is known is credited with; and for how many blocks a record counts in
/// full.
const FIRST_BLOCKS: f64 = 16.0;
const RECORD_BLOCKS: f64 = 65_536.0;

/// Hinters without a stream that are remembered.
const RECORDS_MAX: usize = 4096;

/// What became of the blocks that were fetched for a hinter, and what it has.
#[derive(Clone, Debug, Default)]
struct Record {
    useful: f64,
    wasted: f64,
    streams: Vec<StreamIndex>,
    /// Its hints that have no place yet.
    waiting: usize,
    /// What all its hints take.
    hint_bytes: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Trust {
    records: HashMap<HinterId, Record, Mix>,
    /// What all hints take.
    hint_bytes: usize,
}

impl Trust {
    fn record(&mut self, hinter: HinterId) -> &mut Record {
        self.records.entry(hinter).or_default()
    }

    /// `hinter` has opened a stream. Returns how far it is to be believed, from 0 to 1; `shown` says how
    /// many blocks of a stream speak against it for now, and how many of use are not in the record yet.
    pub(crate) fn opened(
        &mut self,
        hinter: HinterId,
        stream: StreamIndex,
        shown: impl Fn(StreamIndex) -> (u64, u32),
    ) -> f64 {
        if self.records.len() >= RECORDS_MAX && !self.records.contains_key(&hinter) {
            self.records.retain(|_, record| !record.streams.is_empty());
        }
        let record = self.record(hinter);
        let (mut unproven, mut unrecorded) = (0.0, 0.0);
        for &of_hinter in &record.streams {
            let (against, good) = shown(of_hinter);
            unproven += against as f64;
            unrecorded += f64::from(good);
        }
        record.streams.push(stream);
        let good = record.useful + unrecorded + FIRST_BLOCKS;
        good / (good + record.wasted + unproven)
    }

    /// The stream is no more.
    pub(crate) fn closed(&mut self, hinter: HinterId, stream: StreamIndex) {
        self.record(hinter).streams.retain(|&other| other != stream);
    }

    /// So many blocks that were prefetched for it, or are on their way, are read.
    pub(crate) fn note_useful(&mut self, hinter: HinterId, blocks: u32) {
        let record = self.record(hinter);
        record.useful += f64::from(blocks);
        record.fade();
    }

    /// A block that was prefetched for it has gone unread.
    pub(crate) fn note_wasted(&mut self, hinter: HinterId) {
        let record = self.record(hinter);
        record.wasted += 1.0;
        record.fade();
    }

    /// A hint of its waits for its place.
    pub(crate) fn waits(&mut self, hinter: HinterId) {
        self.record(hinter).waiting += 1;
    }

    /// One of them has its place, or is no more.
    pub(crate) fn waits_no_more(&mut self, hinter: HinterId) {
        self.record(hinter).waiting -= 1;
    }

    /// Its hints that wait for their places.
    pub(crate) fn waiting(&self, hinter: HinterId) -> usize {
        self.records.get(&hinter).map_or(0, |record| record.waiting)
    }

    /// The hints of one of its streams have taken `before`, and take `now`.
    pub(crate) fn note_hint_bytes(&mut self, hinter: HinterId, before: usize, now: usize) {
        self.hint_bytes = self.hint_bytes - before + now;
        let record = self.record(hinter);
        record.hint_bytes = record.hint_bytes - before + now;
    }

    /// What its hints take, and what all hints do.
    pub(crate) fn hint_bytes(&self, hinter: HinterId) -> (usize, usize) {
        let own = self.records.get(&hinter).map_or(0, |record| record.hint_bytes);
        (own, self.hint_bytes)
    }

    /// Its streams.
    pub(crate) fn streams(&self, hinter: HinterId) -> &[StreamIndex] {
        self.records.get(&hinter).map_or(&[], |record| &record.streams)
    }
}

impl Record {
    /// What is long past counts less.
    fn fade(&mut self) {
        if self.useful + self.wasted > RECORD_BLOCKS {
            (self.useful, self.wasted) = (self.useful / 2.0, self.wasted / 2.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamIndex = StreamIndex(0);

    #[test]
    fn one_hinters_record_is_not_anothers() {
        let mut trust = Trust::default();
        (0..1000).for_each(|_| trust.note_wasted(HinterId(1)));
        assert!(trust.opened(HinterId(1), STREAM, |_| (0, 0)) < 0.02);
        assert_eq!(trust.opened(HinterId(2), STREAM, |_| (0, 0)), 1.0);
        (0..9000).for_each(|_| trust.note_useful(HinterId(1), 1));
        assert!((0.9..0.91).contains(&trust.opened(HinterId(1), STREAM, |_| (0, 0))));
    }

    #[test]
    fn what_the_record_does_not_have_yet_counts() {
        let mut trust = Trust::default();
        (0..16).for_each(|_| trust.note_wasted(HinterId(1)));
        assert_eq!(trust.opened(HinterId(1), STREAM, |_| (0, 63)), 0.5);
        assert_eq!(trust.opened(HinterId(1), StreamIndex(1), |_| (0, 16)), 2.0 / 3.0);
        trust.note_useful(HinterId(1), 16);
        assert_eq!(trust.opened(HinterId(1), StreamIndex(2), |_| (0, 0)), 2.0 / 3.0);
    }

    #[test]
    fn what_is_unread_counts_until_the_stream_is_closed() {
        let mut trust = Trust::default();
        let hinter = HinterId(1);
        assert_eq!(trust.opened(hinter, StreamIndex(0), |_| (1024, 0)), 1.0);
        assert!(trust.opened(hinter, StreamIndex(1), |_| (1024, 0)) < 0.02);
        trust.closed(hinter, StreamIndex(0));
        trust.closed(hinter, StreamIndex(1));
        assert_eq!(trust.opened(hinter, StreamIndex(0), |_| (1024, 0)), 1.0);
    }

    #[test]
    fn who_has_a_stream_is_not_forgotten() {
        let mut trust = Trust::default();
        trust.opened(HinterId(0), STREAM, |_| (0, 0));
        (0..100).for_each(|_| trust.note_wasted(HinterId(0)));
        for hinter in 1..=2 * RECORDS_MAX as u64 {
            trust.opened(HinterId(hinter), STREAM, |_| (0, 0));
            trust.closed(HinterId(hinter), STREAM);
        }
        assert!(trust.records.len() <= RECORDS_MAX);
        assert!(trust.opened(HinterId(0), STREAM, |_| (0, 0)) < 0.2);
    }
}
