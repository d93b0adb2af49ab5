//! Sources of hints: what became of the blocks fetched for each, a bound for one that wants less, and an end to those that are
//! mostly wrong.
//!
//! The policy measures alone. Which source is to end, and when, is the driver's decision.

use super::Policy;
use crate::blocks::StreamIndex;
use crate::hint::StreamId;
use crate::tally::{SourceId, Tally};
use crate::time::Nanos;

impl Policy {
    /// What became of the blocks fetched for `source` so far. The sums over all sources are the [`counts`](Self::counts).
    pub fn tally(&self, source: SourceId) -> Tally {
        self.arbiter.tallies().get(source)
    }

    /// Notes what the hints of `stream` come from, before the first of them. Without it, that is the source with number 0.
    pub fn set_source(&mut self, stream: StreamId, source: SourceId) {
        if let Some(&index) = self.stream_ids.get(&stream) {
            self.arbiter.stream(index).source = source;
        }
    }

    /// What the hints of `stream` come from, as noted; the source with number 0 if it is closed.
    pub fn source(&self, stream: StreamId) -> SourceId {
        let known = self.stream_ids.get(&stream);
        let stream = known.and_then(|&index| self.arbiter.streams().get(index));
        stream.map_or(SourceId::default(), |stream| stream.source)
    }

    /// Bounds the bytes that are fetched for `stream` and unread, from now on. A cluster that is begun may exceed the bound by
    /// its other blocks, and by no more than a half of it.
    pub fn limit_ahead(&mut self, stream: StreamId, bytes: u64) {
        if let Some(&index) = self.stream_ids.get(&stream) {
            self.arbiter.stream(index).unread_max = bytes.div_ceil(self.config.block_bytes).max(1);
        }
    }

    /// Has blocks of `stream` fetched in clusters of up to so many bytes, in place of [`Config::cluster_blocks_max`], from now
    /// on.
    ///
    /// [`Config::cluster_blocks_max`]: crate::Config::cluster_blocks_max
    pub fn set_cluster(&mut self, stream: StreamId, bytes: u64) {
        if let Some(&index) = self.stream_ids.get(&stream) {
            let blocks = (bytes / self.config.block_bytes).max(1);
            self.arbiter.stream(index).cluster_blocks_max = Some(blocks);
        }
    }

    /// The reader of `stream` is known to leave out parts. While it reads at least a sixteenth of what is disclosed, what is
    /// fetched in vain between these does not lower the number of blocks that are fetched ahead.
    pub fn expect_gaps(&mut self, stream: StreamId) {
        if let Some(&index) = self.stream_ids.get(&stream) {
            self.arbiter.stream(index).has_gaps = true;
        }
    }

    /// [Cancels](Self::cancel) all streams of `source`, and drops its hints from now on.
    pub fn silence(&mut self, now: Nanos, source: SourceId) {
        self.silenced |= 1 << source.number();
        let of_source = |&(_, index): &(_, &StreamIndex)| {
            self.arbiter.streams().get(*index).is_some_and(|stream| stream.source == source)
        };
        let streams = self.stream_ids.iter().filter(of_source).map(|(&stream, _)| stream);
        let mut streams: Vec<StreamId> = streams.collect();
        streams.sort_unstable();
        for stream in streams {
            self.cancel(now, stream);
        }
    }

    /// Whether hints of this stream are dropped.
    pub(super) fn is_silenced(&self, index: StreamIndex) -> bool {
        self.silenced >> self.arbiter.streams()[index].source.number() & 1 == 1
    }
}
