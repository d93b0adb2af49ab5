//! What a read means to a stream: which access it is, what is past with it, and when a block is read next.

use super::index::FileChange;
use super::{Current, Fit, Stream};
use crate::blocks::{BlockTable, SlotId};
use crate::hint::{Block, FileId, Order, ReaderId};
use crate::time::Nanos;

/// The arbiter asks again at once if the pace (the time between reads) grew by more than this part, as a divisor.
/// Unit: ratio. Reason: judgement.
const PACE_DIVISOR: f64 = 16.0;
/// Smaller changes of the pace, and changes of costs, reach the arbiter once in this many reads.
/// Unit: reads. Reason: judgement.
pub(super) const RANKED_READS: u64 = 16;

/// Runs of past uses of a block that are skipped in search of one still to come.
/// Unit: runs. Reason: bound.
const USES_TRIED_MAX: usize = 8;

/// The kernel's read-ahead does not know hints. It goes on behind the end of each, and in mapped files it begins before what is
/// read. Its reads are at most so far away: it is 128 KiB by default, of which two may be under way.
/// Unit: bytes. Reason: judgement.
const BESIDE_MAX_BYTES: u64 = 256 << 10;

impl Stream {
    /// How a read of `block` by `reader` relates to the stream; `None` if the read does not belong to the stream.
    pub(crate) fn fit(&mut self, reader: ReaderId, block: Block) -> Option<Fit> {
        if self.is_next(block) {
            return Some(Fit::At(self.cursor.front()));
        }
        if self.last == Some(block) && self.last_reader == Some(reader) {
            return Some(Fit::Again);
        }
        let position = self.next_use(block)?;
        let is_beside = self.is_beside(block);
        self.cursor
            .accepts(&self.places, (reader, is_beside), position)
            .then_some(Fit::At(position))
    }

    /// Makes `reader` the last reader, which may go on reading the same block in parts.
    pub(crate) fn lingers_with(&mut self, reader: ReaderId) {
        self.last_reader = Some(reader);
    }

    /// Whether `block` lies right behind the block that was read last, or right before the next.
    pub(crate) fn is_beside(&self, block: Block) -> bool {
        let most = 1 + BESIDE_MAX_BYTES / self.limits.block_bytes;
        let is_near = |from: Block, to: Block| {
            let distance = to.index.checked_sub(from.index);
            from.file == to.file && distance.is_some_and(|distance| distance <= most)
        };
        self.last.is_some_and(|last| is_near(last, block))
            || self.next_block().is_some_and(|next| is_near(block, next))
    }

    /// Whether `reader` read last in this stream and has read nothing else since.
    pub(crate) fn was_read_by(&self, reader: ReaderId) -> bool {
        self.last_reader == Some(reader)
    }

    /// `reader` reads something else: if it returns to the block, that is another access.
    pub(crate) fn is_left_by(&mut self, reader: ReaderId) {
        self.last_reader = self.last_reader.filter(|&last| last != reader);
    }

    /// The block of the very next access, if it is placed.
    pub(crate) fn next_block(&self) -> Option<Block> {
        self.next?.block_at(self.cursor.front())
    }

    /// The very next access, and the bytes of the file in its block. `None` if it is not placed, or if its order is free.
    pub(crate) fn expected(&self, block_bytes: u64) -> Option<(Block, u64)> {
        let placed = self.places.placed_at(self.cursor.front())?;
        if self.cursor.in_set() || placed.order == Order::Any {
            return None;
        }
        let block = self.next_block()?;
        Some((block, placed.bytes_in(block.index, block_bytes)))
    }

    /// Whether `block` is the very next access.
    pub(crate) fn is_next(&self, block: Block) -> bool {
        // In given order, a settled access may still be read.
        self.next_block() == Some(block)
            && (!self.cursor.in_set() || self.cursor.expects(self.cursor.front()))
    }

    /// Position of the first access to `block` that is still to come.
    #[inline]
    pub(crate) fn next_use(&mut self, block: Block) -> Option<u64> {
        self.next_use_from(block, self.cursor.base())
    }

    /// Whether the stream is known to name `file` without a search.
    #[inline]
    pub(crate) fn surely_names(&self, file: FileId) -> bool {
        self.index.surely_has(file)
    }

    /// Makes the block in `slot`, read at `position`, the current one.
    pub(crate) fn reads(&mut self, position: u64, slot: SlotId) {
        self.current = Some(Current { position, slot, later: None, added: (0, 0) });
    }

    /// Looks up the next use of the current block, `block`, while its index entry is cached.
    pub(crate) fn note_later_use(&mut self, block: Block) {
        if self.current.is_some() {
            let (later, added) = (self.next_use(block), self.index.added());
            self.current.as_mut().into_iter().for_each(|current| {
                (current.later, current.added) = (later, added);
            });
        }
    }

    /// The next use of `block`, which was the current block.
    pub(crate) fn later_use(&mut self, current: &Current, block: Block) -> Option<u64> {
        match current.later {
            Some(later) if self.cursor.expects(later) => Some(later),
            None if current.added == self.index.added() => None,
            _ => self.next_use(block),
        }
    }

    /// Notes that `block`, with its next use at `position`, is released. It is evicted unless another estimator keeps it; then
    /// [`use_of_leaving`](Self::use_of_leaving) needs no search.
    pub(crate) fn lets_go(&mut self, block: Block, position: u64) {
        self.let_go = Some((block, position));
    }

    /// The next use of `block`, which is being evicted.
    pub(crate) fn use_of_leaving(&mut self, block: Block) -> Option<u64> {
        match self.let_go.take() {
            Some((known, position)) if known == block && self.cursor.expects(position) => {
                Some(position)
            }
            _ => self.next_use(block),
        }
    }

    #[inline]
    pub(super) fn next_use_from(&mut self, block: Block, from: u64) -> Option<u64> {
        let position = self.index.find(&self.places, block, from)?;
        match self.cursor.expects(position) {
            true => Some(position),
            false => self.next_use_after(block, position),
        }
    }

    /// As [`next_use_from`](Self::next_use_from), after a use at `position` that is past.
    #[cold]
    fn next_use_after(&mut self, block: Block, mut position: u64) -> Option<u64> {
        for _ in 1..USES_TRIED_MAX {
            // This goes before `next_expected`, which is slower: usually there is no later use.
            position = self.index.find(&self.places, block, position + 1)?;
            if self.cursor.expects(position) {
                return Some(position);
            }
            position = self.cursor.next_expected(position) - 1;
        }
        #[cfg(any(test, debug_assertions))]
        {
            self.gave_up_search = true;
        }
        None
    }

    /// Records the access to `block` at `position`. Left-out positions more than `behind` before it are given up. Blocks whose
    /// positions are past after this read are no longer tracked; their slots go to `untracked`. Returns whether the arbiter has
    /// to be told that the remaining blocks may be worth less than when it last asked. That is not needed if it will ask again
    /// anyway.
    pub(crate) fn read(
        &mut self,
        (block, position): (Block, u64),
        behind: u64,
        blocks: &BlockTable,
        changed: impl FnMut(FileChange),
        untracked: &mut Vec<SlotId>,
    ) -> bool {
        let (past, from) = (self.cursor.base(), self.cursor.fetched_from());
        let (front, accuracy) = (self.cursor.front(), self.cursor.accuracy());
        let was_in_set = self.cursor.in_set();
        let base = self.cursor.read(&self.places, position, behind);
        if self.cursor.fetched_from() < from {
            self.look_back();
        }
        self.last = Some(block);
        self.balance += 1;
        self.has_lost_unread = false;
        self.renew_next();
        if base > past + 1 || (base > past && position != past) {
            self.untrack_before(base, blocks, untracked);
            self.look_for_later_uses(base, blocks);
        }
        if base > past {
            self.index.retire(&mut self.places, self.limits.block_bytes, base, changed);
        }
        self.ranked_at = None;
        !self.value_is_stale
            && (was_in_set
                || self.cursor.in_set()
                || self.cursor.front() < front
                || self.cursor.accuracy() < accuracy
                || self.cursor.reads().is_multiple_of(RANKED_READS)
                || self.has_other_pace())
    }

    /// Notes that the arbiter asks for its value after this many cost changes.
    pub(crate) fn note_ranked(&mut self, cost_changes: u64) {
        self.ranked_at = Some(cost_changes);
        self.ranked_pace = (self.pace.pace_ns(), self.pace.is_late());
    }

    /// Whether the arbiter's last question was after this many cost changes, and the stream has read nothing and tracks the
    /// same blocks since. Its value is then the same.
    pub(crate) fn is_ranked_by(&self, cost_changes: u64) -> bool {
        self.ranked_at == Some(cost_changes)
    }

    /// Whether the stream's pace is what it was when the arbiter last asked.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn keeps_ranked_pace(&self) -> bool {
        self.ranked_pace == (self.pace.pace_ns(), self.pace.is_late())
    }

    /// Whether its reads have become slower since the arbiter last asked, or it has become late or ceased to be late.
    fn has_other_pace(&self) -> bool {
        let (before, was_late) = self.ranked_pace;
        let is_slower = match (before, self.pace.pace_ns()) {
            (Some(before), Some(now)) => now > before + before / PACE_DIVISOR,
            (before, now) => before != now,
        };
        is_slower || was_late != self.pace.is_late()
    }

    /// The reader came back: searches again for the positions passed over.
    fn look_back(&mut self) {
        self.let_go = None; // The block may have an earlier use ahead of the reader now.
        if self.overtaken >= self.scan {
            return;
        }
        let from = self.cursor.fetched_from();
        self.scan = self.scan.min(from.max(self.overtaken));
        if from <= self.overtaken {
            self.overtaken = u64::MAX;
        }
        self.devices.iter_mut().for_each(|part| part.quiet_until = 0);
    }

    /// The search found `block` in memory at `position`, and no stream claims it: returns the use to claim it for. That is an
    /// earlier use if the search passed one while the block had another claim or was in flight.
    pub(crate) fn first_use_ahead(&mut self, block: Block, position: u64) -> u64 {
        let first = self.next_use_from(block, self.cursor.fetched_from());
        first.map_or(position, |first| first.min(position))
    }

    /// The search found `block` in memory and keeps it for a use ahead of the reader. If the block has an earlier use that the
    /// reader has overtaken, notes that use, in case the reader comes back.
    pub(crate) fn come_upon_behind(&mut self, block: Block) {
        let from = self.cursor.fetched_from();
        if self.cursor.base() < from
            && let Some(overtaken) = self.next_use(block).filter(|&position| position < from)
        {
            self.overtaken = self.overtaken.min(overtaken);
        }
    }

    /// Whether more than this many accesses lie between the base and the front.
    pub(crate) fn is_behind_by(&self, accesses: u64) -> bool {
        self.cursor.front() - self.cursor.base() > accesses
    }

    /// How many of the stream's hints lie between the base and the front.
    pub(crate) fn hints_left_out(&self) -> u64 {
        self.places.len() as u64 - self.places.ends_after(self.cursor.front())
    }

    /// The access at `position` no longer needs its block, which is in memory that the policy does not manage.
    pub(crate) fn settle(
        &mut self,
        position: u64,
        blocks: &BlockTable,
        changed: impl FnMut(FileChange),
        untracked: &mut Vec<SlotId>,
    ) {
        let mut base = self.cursor.settle(position);
        // No reader was seen. If one pass found everything in memory, the other passes are skipped.
        let front = self.cursor.front();
        if !self.cursor.is_seen()
            && let Some(hint) = self.places.placed_at(front)
            && front >= hint.start + hint.pass_blocks
        {
            base = self.cursor.skip_to(hint.end());
        }
        self.untrack_before(base, blocks, untracked);
        self.look_for_later_uses(base, blocks);
        self.index.retire(&mut self.places, self.limits.block_bytes, base, changed);
        self.renew_next();
    }

    fn renew_next(&mut self) {
        let front = self.cursor.front();
        if self.next.is_none_or(|run| !(run.first_position..run.end_position()).contains(&front)) {
            self.next = self.places.run_at(front);
        }
    }

    /// Records the time of a read, and whether it had to wait.
    pub(crate) fn note_pace(&mut self, now: Nanos, by: ReaderId, waits: bool, hit_ns: f64) {
        self.hinted_at = None;
        self.pace.read(now, by, waits, hit_ns);
    }

    /// Whether the access at `position` is still to come, or is the current one.
    pub(crate) fn expects(&self, position: u64) -> bool {
        self.cursor.expects(position)
            || self.current.is_some_and(|current| current.position == position)
    }
}
