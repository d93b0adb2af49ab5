//! An LRU stack of residents and ghosts.
//!
//! The LRU estimator (TIP 1995, section 5.2) asks three things of this stack:
//! * which resident block was used longest ago;
//! * which accesses would have been hits with more buffers. For these, the places of evicted blocks stay in the stack as
//!   *ghosts*;
//! * the depth of each hit, to within a *segment* (figure 9). Depth 1 is the newest entry; ghosts count like residents.
//!
//! Its answers are exact with two exceptions: large stacks name only some of their ghosts (see below), and the segments of
//! stacks of 1,024 entries and more are right to within a quarter ([`segments`]).
//!
//! The stack is a [log](log::Log). A block that is used leaves a dead entry where it was and gets a new one at the end. A
//! linked list would touch two more neighbours, each a cache miss. A resident's place is its [`Stamp`], which the caller keeps
//! with the block; a ghost's is kept in [`ghosts`].
//!
//! Dead entries are removed while the stack is in use, a few dozen with every eighth push:
//!
//! * A. The log is [long](Stack::is_long) for its live entries: a compaction starts at the newest entry and works downwards. It
//!   moves each live entry up, next to the live entry that it handled before. Dead entries gather in one gap, which grows and
//!   moves towards the front:
//!
//!   ```text
//!   front        read      gap_end          where it began        end
//!     │ old, mixed │ all dead │ all live, then used again │ pushed since │
//!   ```
//!
//! * B. The gap has reached the front: the front moves to the gap's end, and the compaction is over.
//!
//! The log is a valid stack at all times. While the number of live entries does not fall, the log stays shorter than 2.6 times
//! that number plus some hundreds. After a fall, each push removes some 200 of the entries in excess. In a stack without ghosts
//! the log is as long as its ring, which has room for 3.3 to 6.6 times the live entries, and a compaction starts when the ring
//! is nearly full.
//!
//! Memory: 4 bytes and a bit for each entry of the ring, whose length is a power of two. That is 11 to 21 bytes for each live
//! entry; 14 to 27 in a stack without ghosts; and half as much again while the ring grows.
//!
//! In a large stack one ghost in two, four or eight is *named*: it has a header by which it is found. The others hold their
//! places, so that depths stay right. A named ghost stands for the unnamed ones near it: a hit of it counts for all of them,
//! and they leave the stack with it. The hash of a block says whether its ghost is named (Waldspurger et al., "Efficient MRC
//! construction with SHARDS", FAST 2015). A header costs two cache misses in its life and 21 to 42 bytes; a sample of a hundred
//! thousand ghosts is enough for the hit ratio.
//!
//! Invariants: residents and ghosts together are at most `limit`, unless the residents alone are more. A block is a resident,
//! or a named ghost, or neither. A call with a stamp that belongs to no live resident panics where the stack notices it.
//!
//! Not here: which blocks there are and their values (the caller), and the hit ratio
//! ([`hit_curve`](crate::buffers::hit_curve)).
//!
//! We differ from the paper: segments are ranges of the log instead of tags of buffers, and the first of them is divided
//! further.

mod entry;
mod ghosts;
mod log;
mod segments;
#[cfg(test)]
mod tests;

use self::entry::{Entry, GHOST, UNNAMED};
use self::ghosts::Ghosts;
use self::log::{Log, Position};
use self::segments::Segments;
use crate::blocks::{SlotId, Stamp};
use crate::hint::Block;
use crate::tables::hash::hash_block;

/// Most entries for which a stack keeps ghosts. The positions in a log of so many entries can be told apart by 32 bits.
/// Unit: entries. Reason: layout.
const LIMIT_MAX: usize = 1 << 30;
/// Pushes from one turn of the compaction to the next: a power of two.
/// Unit: pushes. Reason: judgement.
const TURN_PUSHES: u64 = 8;
/// Work of a compaction in each turn: live entries that it moves, or words of dead entries that it skips. A pass over `n` live
/// entries takes about `n / 4` pushes.
/// Unit: entries. Reason: judgement.
const COMPACTED_PER_TURN: usize = 32;
/// A log is long when it exceeds its live entries by this factor, in quarters.
/// Unit: quarters. Reason: judgement.
const LONG_QUARTERS: usize = 9;
/// In a stack without ghosts, a log is long when it exceeds its live entries by this factor, in quarters, and nearly fills its
/// ring. So most blocks leave, or are read again, before a compaction would move them. A compaction ends before half as many
/// entries as live are pushed.
/// Unit: quarters. Reason: judgement.
const LONG_QUARTERS_PLAIN: usize = 12;
/// Dead entries that are never worth a compaction. Without this, a stack of a few blocks would be compacted all the time.
/// Unit: entries. Reason: bound.
const SLACK: usize = 128;
/// In the largest stacks one ghost in this many has a name: a power of two.
/// Unit: ghosts. Reason: judgement.
const NAMED_ONE_IN: u64 = 8;
/// A full stack with at least so many entries has at least this many named ghosts. A smaller stack names a larger part of its
/// ghosts.
/// Unit: ghosts. Reason: judgement.
const NAMED_MIN: usize = 1 << 14;
/// Entries that are searched for the unnamed ghosts that a named one stands for.
/// Unit: entries. Reason: bound.
const UNNAMED_TRIED_MAX: usize = 4 * NAMED_ONE_IN as usize;
/// Unnamed ghosts that one search looks for, with those that earlier searches did not find.
/// Unit: ghosts. Reason: bound.
const OWED_MAX: u64 = 3 * NAMED_ONE_IN;

/// A ghost that was found: its segment, and the number of ghosts that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) segment: usize,
    pub(crate) ghosts: u64,
}

/// A compaction under way: nothing in `read..gap_end` is live.
#[derive(Clone, Copy, Debug)]
struct Compaction {
    read: Position,
    gap_end: Position,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Stack {
    log: Log,
    /// The ghosts with names.
    ghosts: Ghosts,
    /// The number of ghosts without a name.
    unnamed: usize,
    /// One ghost in this many has a name: a power of two.
    named_one_in: u64,
    /// Unnamed ghosts that should have left with named ones and were not found.
    owed: u64,
    segments: Segments,
    compaction: Option<Compaction>,
    /// Most residents and ghosts.
    limit: usize,
    /// Whether blocks that leave become ghosts.
    keeps_ghosts: bool,
    residents: usize,
    /// No resident lies below this position.
    oldest_resident: Position,
    /// No ghost lies below this position.
    oldest_ghost: Position,
}

impl Stack {
    /// An empty stack.
    ///
    /// `limit` is the most residents and ghosts it holds: the paper's is the total number of buffers
    /// in the cache. Beyond it the oldest ghosts are dropped; residents never are. Without
    /// `boundaries` it is a plain LRU queue: one segment, no ghosts.
    pub(crate) fn new(limit: usize, boundaries: bool) -> Self {
        let named_one_in = 1 << ((limit / NAMED_MIN) as u64).clamp(1, NAMED_ONE_IN).ilog2();
        Stack::starting_at(limit, boundaries, (0, named_one_in))
    }

    /// [`Stack::new`], with the first entry at `start`, and a name for one ghost in `named_one_in`.
    fn starting_at(limit: usize, boundaries: bool, (start, named_one_in): (Position, u64)) -> Self {
        let limit = limit.clamp(1, LIMIT_MAX);
        Stack {
            log: Log::new(start),
            ghosts: Ghosts::new(limit),
            unnamed: 0,
            named_one_in,
            owed: 0,
            segments: Segments::new(limit, boundaries),
            compaction: None,
            limit,
            keeps_ghosts: boundaries,
            residents: 0,
            oldest_resident: start,
            oldest_ghost: start,
        }
    }

    /// Residents in the stack.
    pub(crate) fn residents(&self) -> usize {
        self.residents
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.log.memory_bytes() + self.ghosts.memory_bytes()
    }

    /// Whether there is a ghost with a name.
    pub(crate) fn has_named_ghosts(&self) -> bool {
        self.ghosts.len() > 0
    }

    /// Ghosts in the stack.
    #[cfg(test)]
    pub(crate) fn ghosts(&self) -> usize {
        self.ghosts.len() + self.unnamed
    }

    /// Residents and ghosts.
    #[inline]
    fn live(&self) -> usize {
        self.residents + self.ghosts.len() + self.unnamed
    }

    /// Whether the ghost of the block with this hash has a name.
    #[inline]
    fn is_named(&self, hash: u64) -> bool {
        // The lowest bits of the upper half differ between neighbours. They spread the names over blocks that lie together.
        hash.wrapping_add(hash >> 32) & (self.named_one_in - 1) == 0
    }

    /// The depth of the last entry of each segment, counted from 1, ascending. The last is the limit. Residents beyond the
    /// limit count as in the last segment.
    pub(crate) fn segment_ends(&self) -> Vec<usize> {
        self.segments.ends(self.limit)
    }

    /// Whether a resident is on top.
    #[inline]
    pub(crate) fn is_top(&self, stamp: Stamp) -> bool {
        stamp.0.wrapping_add(1) == self.log.end() as u32
    }

    /// Puts a resident on top, and drops the oldest ghost if that is one entry too many. Its block must have no named ghost
    /// (see [`take_ghost`](Stack::take_ghost)).
    ///
    /// `moved` is told the new stamps of other residents, which the caller stores. At most 32 move, and none at seven pushes
    /// of eight.
    #[inline]
    pub(crate) fn push(&mut self, slot: SlotId, moved: impl FnMut(SlotId, Stamp)) -> Stamp {
        debug_assert!(slot.0 < GHOST, "slots are numbered below 2^31");
        self.drop_ghosts(1);
        if self.log.end().is_multiple_of(TURN_PUSHES) {
            self.compact(moved);
        }
        let position = self.log.push(slot.0);
        self.residents += 1;
        self.segments.pushed();
        Stamp(position as u32)
    }

    /// Moves a resident to the top: [`remove`](Stack::remove) and [`push`](Stack::push).
    #[inline(always)] // Every hit without hints passes here.
    pub(crate) fn renew(
        &mut self,
        slot: SlotId,
        stamp: Stamp,
        moved: impl FnMut(SlotId, Stamp),
    ) -> Stamp {
        self.end_resident(stamp);
        if self.log.end().is_multiple_of(TURN_PUSHES) {
            self.compact(moved);
        }
        self.segments.pushed();
        Stamp(self.log.push(slot.0) as u32)
    }

    /// Removes a resident without leaving a ghost.
    #[inline]
    pub(crate) fn remove(&mut self, stamp: Stamp) {
        self.residents -= 1;
        self.end_resident(stamp);
    }

    /// Removes a resident and returns its segment: a hit does this before it [pushes](Stack::push) the block.
    #[inline]
    pub(crate) fn take(&mut self, stamp: Stamp) -> usize {
        let segment = self.segment_of(stamp);
        self.remove(stamp);
        segment
    }

    /// Turns a resident into a ghost, named or not, in its place. In a stack without ghosts it is removed.
    pub(crate) fn demote(&mut self, stamp: Stamp, block: Block) {
        if !self.keeps_ghosts {
            return self.remove(stamp);
        }
        let position = self.resident_at(stamp);
        let hash = hash_block(block);
        let entry = match self.is_named(hash) {
            true => {
                let log = &mut self.log;
                GHOST
                    | self.ghosts.insert(hash, stamp, |Stamp(at), number| {
                        log.set(log.position(at), GHOST | number);
                    })
            }
            false => UNNAMED,
        };
        self.unnamed += usize::from(entry == UNNAMED);
        self.log.set(position, entry);
        self.residents -= 1;
        self.oldest_ghost = self.oldest_ghost.min(position);
        self.drop_ghosts(0);
    }

    /// Removes the named ghost of `block`, if it has one, and the unnamed ones for which it stands.
    pub(crate) fn take_ghost(&mut self, block: Block) -> Option<Found> {
        let hash = hash_block(block);
        if self.ghosts.len() == 0 || !self.is_named(hash) {
            return None;
        }
        let position = self.log.position(self.ghosts.take(hash)?.0);
        self.segments.settle(&self.log, self.live() + 1);
        let segment = self.segments.find(position);
        self.lose(position);
        self.owed = (self.owed + self.named_one_in - 1).min(OWED_MAX);
        self.lose_unnamed(position);
        Some(Found { segment, ghosts: self.named_one_in })
    }

    /// Removes the unnamed ghosts for which the named one at `position` stood, searching upwards from it. Those that are not
    /// found are counted in `owed`, and a later search looks for them.
    fn lose_unnamed(&mut self, mut position: Position) {
        for _ in 0..UNNAMED_TRIED_MAX {
            if self.owed == 0 || self.unnamed == 0 {
                return;
            }
            let Some(next) = self.log.next_live(position) else { return };
            if let Entry::Unnamed = Entry::decode(self.log.get(next)) {
                self.unnamed -= 1;
                self.lose(next);
                self.owed -= 1;
            }
            position = next + 1;
        }
    }

    /// Removes the entry of a ghost.
    #[inline]
    fn lose(&mut self, position: Position) {
        self.segments.removed(position);
        self.log.kill(position);
    }

    /// Removes the entry of a resident.
    #[inline(always)]
    fn end_resident(&mut self, stamp: Stamp) {
        let position = self.log.position(stamp.0);
        let was_live = self.log.kill(position);
        assert!(was_live, "{stamp:?} has no live entry");
        debug_assert!(matches!(Entry::decode(self.log.get(position)), Entry::Resident(_)));
        self.segments.removed(position);
    }

    /// The segment of a resident; 0 is the top one.
    #[inline]
    pub(crate) fn segment_of(&mut self, stamp: Stamp) -> usize {
        self.segments.settle(&self.log, self.live());
        self.segments.find(self.resident_at(stamp))
    }

    /// The deepest resident. Amortised O(1): entries only move up and new ones are on top, so that the search never goes back.
    pub(crate) fn oldest(&mut self) -> Option<SlotId> {
        while self.residents > 0 {
            let position = self.log.next_live(self.oldest_resident).expect("residents are live");
            self.oldest_resident = position;
            match Entry::decode(self.log.get(position)) {
                Entry::Resident(slot) => return Some(slot),
                Entry::Ghost(_) | Entry::Unnamed => self.oldest_resident += 1,
            }
        }
        None
    }

    /// The residents among the `most` entries from the deepest resident up, deepest first.
    pub(crate) fn deepest(&self, most: usize) -> impl Iterator<Item = SlotId> {
        self.entries_from(self.oldest_resident).take(most).filter_map(|entry| match entry {
            Entry::Resident(slot) => Some(slot),
            Entry::Ghost(_) | Entry::Unnamed => None,
        })
    }

    /// Loads the ghost of the block with this hash, or the place where it would be, into the processor's caches.
    #[inline]
    pub(crate) fn load_ghost(&self, hash: u64) {
        if self.ghosts.len() > 0 && self.is_named(hash) {
            self.ghosts.load(hash);
        }
    }

    /// Loads the word that says whether a resident's entry is live.
    #[inline]
    pub(crate) fn load_entry(&self, stamp: Stamp) {
        self.log.load(self.log.position(stamp.0));
    }

    /// Loads the headers of the ghosts that will be dropped next: those among the `entries` deepest entries.
    pub(crate) fn load_deepest_ghosts(&self, entries: usize) {
        if self.ghosts.len() == 0 {
            return;
        }
        for entry in self.entries_from(self.oldest_ghost).take(entries) {
            if let Entry::Ghost(ghost) = entry {
                self.ghosts.load_numbered(ghost);
            }
        }
    }

    /// The live entries at `from` and above.
    fn entries_from(&self, mut from: Position) -> impl Iterator<Item = Entry> {
        std::iter::from_fn(move || {
            let position = self.log.next_live(from)?;
            from = position + 1;
            Some(Entry::decode(self.log.get(position)))
        })
    }

    #[inline]
    fn resident_at(&self, stamp: Stamp) -> Position {
        let position = self.log.position(stamp.0);
        assert!(self.log.is_live(position), "{stamp:?} has no live entry");
        debug_assert!(matches!(Entry::decode(self.log.get(position)), Entry::Resident(_)));
        position
    }

    /// Drops the oldest ghosts until `room` more entries fit, or no ghost is left.
    #[inline]
    fn drop_ghosts(&mut self, room: usize) {
        let mut live = self.live();
        while live > self.residents && live + room > self.limit {
            self.drop_oldest_ghost();
            live -= 1;
        }
        debug_assert_eq!(live, self.live());
    }

    /// Amortised O(1) while blocks are demoted in about the order of the stack. After a demotion far below the oldest ghost,
    /// the search starts there and passes the residents between once more.
    fn drop_oldest_ghost(&mut self) {
        loop {
            let position = self.log.next_live(self.oldest_ghost).expect("ghosts are live");
            self.oldest_ghost = position + 1;
            match Entry::decode(self.log.get(position)) {
                Entry::Resident(_) => continue,
                Entry::Ghost(number) => self.ghosts.remove(number),
                Entry::Unnamed => self.unnamed -= 1,
            }
            return self.lose(position);
        }
    }

    /// Whether the log deserves a compaction.
    #[inline]
    fn is_long(&self) -> bool {
        let live = self.live();
        if self.keeps_ghosts {
            return self.log.len() > live * LONG_QUARTERS / 4 + SLACK;
        }
        self.log.len() > live * LONG_QUARTERS_PLAIN / 4 + SLACK
            && self.log.room() < live / 2 + SLACK
    }

    /// One turn: moves the front over dead entries, and does a bounded part of a compaction.
    #[inline(never)]
    fn compact(&mut self, moved: impl FnMut(SlotId, Stamp)) {
        self.log.trim();
        // Case A.
        if self.compaction.is_none() && self.is_long() {
            let end = self.log.end();
            self.compaction = Some(Compaction { read: end, gap_end: end });
            self.segments.compaction_starts();
        }
        if let Some(compaction) = self.compaction {
            self.compaction = self.compact_from(compaction, moved);
        }
    }

    /// Continues a compaction for one turn. Returns what is left of it.
    fn compact_from(
        &mut self,
        compaction: Compaction,
        mut moved: impl FnMut(SlotId, Stamp),
    ) -> Option<Compaction> {
        let Compaction { mut read, mut gap_end } = compaction;
        for _ in 0..COMPACTED_PER_TURN {
            if read <= self.log.front() {
                // Case B.
                self.log.trim_to(gap_end);
                return None;
            }
            match self.log.previous_live_in_word(read) {
                Err(word_start) => read = word_start,
                Ok(position) => {
                    self.segments.lift(position, gap_end);
                    read = position;
                    gap_end -= 1;
                    if gap_end > position {
                        self.relocate(position, gap_end, &mut moved);
                    }
                }
            }
        }
        Some(Compaction { read, gap_end })
    }

    /// Moves the entry at `from` up to `to`; all between are dead.
    #[inline]
    fn relocate(&mut self, from: Position, to: Position, moved: &mut impl FnMut(SlotId, Stamp)) {
        let entry = self.log.get(from);
        self.log.kill(from);
        self.log.revive(to, entry);
        let stamp = Stamp(to as u32);
        match Entry::decode(entry) {
            Entry::Resident(slot) => moved(slot, stamp),
            Entry::Ghost(number) => self.ghosts.moved(number, stamp),
            Entry::Unnamed => {}
        }
    }
}
