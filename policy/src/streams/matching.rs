//! Which stream a read belongs to.

use super::Streams;
use super::stream::Fit;
use crate::blocks::StreamIndex;
use crate::hint::{Block, ReaderId};

/// Streams that one read is compared with.
/// Unit: streams. Reason: bound.
const STREAMS_ASKED_MAX: usize = 32;

/// Streams visited in search of streams to compare a read with. Many of the streams that name the file may be for other
/// readers.
/// Unit: streams. Reason: bound.
const STREAMS_PASSED_MAX: usize = 1024;

impl Streams {
    /// The stream that disclosed a read of `block` by `reader`, and the access that it fits there. Of several, the one that
    /// expects the read soonest. `last` is the stream of the reader's last hinted read; `claimed` is the stream that claims the
    /// block.
    pub(crate) fn match_read(
        &mut self,
        reader: ReaderId,
        last: Option<StreamIndex>,
        block: Block,
        claimed: Option<StreamIndex>,
    ) -> Option<(StreamIndex, Fit)> {
        if let Some(last) = last
            && self[last].is_next(block)
        {
            return Some((last, Fit::At(self[last].cursor.front())));
        }
        let named = self.files.named_by(block.file);
        if named.is_empty() {
            return None;
        }
        let mut best: Option<(StreamIndex, Fit, u64)> = None;
        let mut asked = 0;
        for turn in 0..=named.len().min(STREAMS_PASSED_MAX) {
            // The stream that claims the block is compared first.
            let index = match turn {
                0 => claimed,
                _ => Some(named[turn - 1]),
            };
            let Some(index) = index.filter(|&index| turn == 0 || Some(index) != claimed) else {
                continue;
            };
            let stream = self.all[index.0 as usize].as_mut().expect("a stream in use");
            if stream.reader.is_some_and(|only| only != reader) {
                continue;
            }
            if asked == STREAMS_ASKED_MAX {
                break;
            }
            asked += 1;
            let Some(fit) = stream.fit(reader, block) else { continue };
            let ahead = match fit {
                Fit::At(position) => position.saturating_sub(stream.cursor.front()) + 1,
                Fit::Again => 0,
            };
            if best.is_none_or(|(_, _, least)| ahead < least) {
                best = Some((index, fit, ahead));
            }
        }
        best.map(|(index, fit, _)| (index, fit))
    }
}
