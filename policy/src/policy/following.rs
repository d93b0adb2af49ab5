//! Where streams and their readers are, for drivers that cannot see each read.
//!
//! Such a driver knows how much was read, and sometimes of which file. It asks what a stream expects next, and reports that as
//! read.

use super::Policy;
use crate::hint::{Block, FileId, ReaderId, StreamId};

/// Streams that name one file and are asked for it.
/// Unit: streams. Reason: bound.
const STREAMS_ASKED_MAX: usize = 32;

impl Policy {
    /// The access that `stream` expects next, and the bytes of the file in its block. `None` if the next hint is not looked up,
    /// or if the order of the next accesses is free.
    pub fn expected(&self, stream: StreamId) -> Option<(Block, u64)> {
        let index = self.stream_ids.get(&stream)?;
        self.arbiter.streams().get(*index)?.expected(self.config.block_bytes)
    }

    /// The stream that `reader` may belong to and that expects a read of `file` soonest, the number of accesses before that
    /// one, and its block. It is the next access, or one to the beginning of the file. Of several streams that expect it
    /// equally soon, the one that the reader follows. `None` if no stream has such an access ahead.
    pub fn expecting(&mut self, reader: ReaderId, file: FileId) -> Option<(StreamId, u64, Block)> {
        let named = self.arbiter.streams().named_by(file);
        let named: Vec<_> = named.iter().copied().take(STREAMS_ASKED_MAX).collect();
        let begin = Block { file, index: 0 };
        let followed = self.followed(reader);
        let ahead = named.into_iter().filter_map(|index| {
            let stream = self.arbiter.streams_mut().get_mut(index)?;
            if stream.reader.is_some_and(|only| only != reader) {
                return None;
            }
            if let Some(next) = stream.next_block().filter(|next| next.file == file) {
                return Some((stream.id, 0, next));
            }
            let position = stream.next_use(begin)?;
            Some((stream.id, position.checked_sub(stream.cursor.front())?, begin))
        });
        ahead.min_by_key(|&(stream, ahead, _)| (ahead, Some(stream) != followed))
    }

    /// Whether another stream than `but` has disclosed that `reader` will read `block`, and it has not yet.
    pub fn is_disclosed(&mut self, reader: ReaderId, block: Block, but: Option<StreamId>) -> bool {
        let named = self.arbiter.streams().named_by(block.file);
        let named: Vec<_> = named.iter().copied().take(STREAMS_ASKED_MAX).collect();
        named.into_iter().any(|index| {
            let Some(stream) = self.arbiter.streams_mut().get_mut(index) else { return false };
            let may_match = stream.reader.is_none_or(|only| only == reader);
            may_match && Some(stream.id) != but && stream.next_use(block).is_some()
        })
    }

    /// Whether `block` lies right behind what `reader` has read as it disclosed in another stream than `but`, and that stream has
    /// more to come elsewhere. It is the kernel's read-ahead that goes on with `block`, then.
    pub fn is_beyond_hints(&self, reader: ReaderId, block: Block, but: Option<StreamId>) -> bool {
        let mut named = self.arbiter.streams().named_by(block.file).iter().take(STREAMS_ASKED_MAX);
        named.any(|&index| {
            let Some(stream) = self.arbiter.streams().get(index) else { return false };
            let is_other = stream.reader == Some(reader) && Some(stream.id) != but;
            is_other && stream.ahead() > 0 && stream.is_beside(block)
        })
    }

    /// The stream of the last hinted read of `reader`.
    pub fn followed(&self, reader: ReaderId) -> Option<StreamId> {
        let index = self.last_stream.get(&reader)?;
        self.arbiter.streams().get(*index).map(|stream| stream.id)
    }
}
