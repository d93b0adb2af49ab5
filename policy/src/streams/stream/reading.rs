//! What a read means to a stream: which of its accesses it is, what is past with it, and when a block is read next.

use super::index::FileChange;
use super::{Current, Fit, Stream};
use crate::blocks::{BlockTable, SlotId};
use crate::hint::{Block, FileId, ReaderId};
use crate::time::Nanos;

/// A pace that is slower by this part, as a divisor, is another one to the arbiter at once. What changes by less, and what costs
/// have changed, it learns after so many reads.
const PACE_DIVISOR: f64 = 16.0;
pub(super) const RANKED_READS: u64 = 16;

/// Runs of uses of a block, made already, that are passed over in search of one still to come.
const USES_TRIED_MAX: usize = 8;

impl Stream {
    /// What a read of `block` by `reader` means here.
    pub(crate) fn fit(&mut self, reader: ReaderId, block: Block) -> Option<Fit> {
        if self.is_next(block) {
            return Some(Fit::At(self.cursor.front()));
        }
        if self.last == Some(block) && self.last_reader == Some(reader) {
            return Some(Fit::Again);
        }
        let position = self.next_use(block)?;
        self.cursor.accepts(&self.places, reader, position).then_some(Fit::At(position))
    }

    /// `reader` reads the block that was read last, in parts perhaps.
    pub(crate) fn lingers_with(&mut self, reader: ReaderId) {
        self.last_reader = Some(reader);
    }

    /// Whether `reader` was the last one, and has read nothing else since.
    pub(crate) fn was_read_by(&self, reader: ReaderId) -> bool {
        self.last_reader == Some(reader)
    }

    /// `reader` reads something else: to come back is another access.
    pub(crate) fn is_left_by(&mut self, reader: ReaderId) {
        self.last_reader = self.last_reader.filter(|&last| last != reader);
    }

    pub(super) fn next_block(&self) -> Option<Block> {
        self.next?.block_at(self.cursor.front())
    }

    /// Whether `block` is the very next access.
    pub(crate) fn is_next(&self, block: Block) -> bool {
        // In order, it may need nothing any more and still be read.
        self.next_block() == Some(block)
            && (!self.cursor.in_set() || self.cursor.expects(self.cursor.front()))
    }

    /// Position of the first access to `block` that is still to come.
    #[inline]
    pub(crate) fn next_use(&mut self, block: Block) -> Option<u64> {
        self.next_use_from(block, self.cursor.base())
    }

    /// Whether it names `file`, if that is known without looking for it.
    #[inline]
    pub(crate) fn surely_names(&self, file: FileId) -> bool {
        self.index.surely_has(file)
    }

    /// The block in `slot`, which is read at `position`, is the current one.
    pub(crate) fn reads(&mut self, position: u64, slot: SlotId) {
        self.current = Some(Current { position, slot, later: None, added: (0, 0) });
    }

    /// Finds the next use of the current block, which is `block`, while what says so is at hand.
    pub(crate) fn note_later_use(&mut self, block: Block) {
        if self.current.is_some() {
            let (later, added) = (self.next_use(block), self.index.added());
            self.current.as_mut().into_iter().for_each(|current| {
                (current.later, current.added) = (later, added);
            });
        }
    }

    /// The next use of `block`, which was the current one.
    pub(crate) fn later_use(&mut self, current: &Current, block: Block) -> Option<u64> {
        match current.later {
            Some(later) if self.cursor.expects(later) => Some(later),
            None if current.added == self.index.added() => None,
            _ => self.next_use(block),
        }
    }

    /// `block`, which is read at `position`, is offered to others, and leaves memory if they do not want it.
    pub(crate) fn lets_go(&mut self, block: Block, position: u64) {
        self.let_go = Some((block, position));
    }

    /// The next use of `block`, which leaves memory.
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

    /// The same where the use at `position` was made already.
    #[cold]
    fn next_use_after(&mut self, block: Block, mut position: u64) -> Option<u64> {
        for _ in 1..USES_TRIED_MAX {
            // Asked first: how far what was read ahead reaches takes longer to find out, and mostly there is no later use.
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

    /// The access at `position` is being made; what lies more than `behind` before it is given up. Blocks
    /// whose turn has passed with it are no longer tracked, and handed out. Returns whether what is left may be worth less
    /// than when the arbiter asked, unless it is going to ask again.
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

    /// The arbiter asks for its value, when costs have changed so often.
    pub(crate) fn note_ranked(&mut self, cost_changes: u64) {
        self.ranked_at = Some(cost_changes);
        self.ranked_pace = (self.pace.pace_ns(), self.pace.is_late());
    }

    /// Whether its value is as the arbiter found it when costs had changed so often: it has read nothing since, and tracks
    /// the same blocks.
    pub(crate) fn is_ranked_by(&self, cost_changes: u64) -> bool {
        self.ranked_at == Some(cost_changes)
    }

    /// Whether it reads at the pace that it had when the arbiter asked.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn keeps_ranked_pace(&self) -> bool {
        self.ranked_pace == (self.pace.pace_ns(), self.pace.is_late())
    }

    /// Whether its reads come more slowly than when the arbiter asked, or have come to be late or in time.
    fn has_other_pace(&self) -> bool {
        let (before, was_late) = self.ranked_pace;
        let is_slower = match (before, self.pace.pace_ns()) {
            (Some(before), Some(now)) => now > before + before / PACE_DIVISOR,
            (before, now) => before != now,
        };
        is_slower || was_late != self.pace.is_late()
    }

    /// The reader has come back: what was passed over is looked for again.
    fn look_back(&mut self) {
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

    /// `block` was come upon, and is kept for a use ahead of the reader: one that was overtaken comes before it if the
    /// reader comes back.
    pub(crate) fn come_upon_behind(&mut self, block: Block) {
        let from = self.cursor.fetched_from();
        if self.cursor.base() < from
            && let Some(overtaken) = self.next_use(block).filter(|&position| position < from)
        {
            self.overtaken = self.overtaken.min(overtaken);
        }
    }

    /// Whether more than so many accesses lie between what is past and its reader.
    pub(crate) fn is_behind_by(&self, accesses: u64) -> bool {
        self.cursor.front() - self.cursor.base() > accesses
    }

    /// How many of its hints lie between what is past and its reader.
    pub(crate) fn hints_left_out(&self) -> u64 {
        self.places.len() as u64 - self.places.ends_after(self.cursor.front())
    }

    /// The access at `position` needs nothing any more: its block is in memory, and not the policy's.
    pub(crate) fn settle(
        &mut self,
        position: u64,
        blocks: &BlockTable,
        changed: impl FnMut(FileChange),
        untracked: &mut Vec<SlotId>,
    ) {
        let mut base = self.cursor.settle(position);
        // Without a reader, one pass that found everything in memory says enough of the others.
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

    /// Notes when a read came, and whether it had to wait.
    pub(crate) fn note_pace(&mut self, now: Nanos, by: ReaderId, waits: bool, hit_ns: f64) {
        self.hinted_at = None;
        self.pace.read(now, by, waits, hit_ns);
    }

    /// Whether the access at `position` is still to come, or going on.
    pub(crate) fn expects(&self, position: u64) -> bool {
        self.cursor.expects(position)
            || self.current.is_some_and(|current| current.position == position)
    }
}
