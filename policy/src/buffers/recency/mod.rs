//! An LRU stack of residents and ghosts, exact but for ghosts of large ones, and for segments of those of 1,024 entries
//! and more, which are right to within a quarter.
//!
//! The LRU estimator (TIP 1995, section 5.2) wants three things of its queue: which resident block
//! was used longest ago; what would have been a hit with more buffers, for which the places of
//! evicted blocks, with their headers, stay in the queue as *ghosts*; and at which depth each hit lies, to within a
//! *segment* (figure 9). Depth 1 is the newest entry; ghosts count like residents.
//!
//! How it works: the stack is a [log](log::Log). A block that is used leaves a dead entry where it
//! was and gets a new one at the end. A linked list would touch two neighbours more, each a cache
//! miss. A resident's place is its [`Stamp`], which the caller keeps with the block; a ghost's is kept
//! in [`ghosts`].
//!
//! Dead entries are squeezed out while the stack is in use, a few dozen with every eighth push:
//!
//! * A. The log is [long](Stack::is_long) compared with what lives in it: a compaction starts at the
//!   newest entry and works downwards. It moves every live entry up to the one before, so that the
//!   dead ones gather in one gap, which grows and travels towards the front:
//!
//!   ```text
//!   front        read      gap_end          where it began        end
//!     │ old, mixed │ all dead │ all live, then used again │ pushed since │
//!   ```
//!
//! * B. The gap has reached the front: the front moves to its end, and the compaction is over.
//!
//! The log is a valid stack at every moment between. Its length stays below 2.6 times the live
//! entries and some hundreds, for as long as their number does not fall; after a fall the excess is
//! worked off, some 200 entries a push. In a stack without ghosts, where it costs less, the log is as long as its ring,
//! which has room for 3.3 to 6.6 times the live entries, and a compaction starts when that is nearly full.
//!
//! Memory: 4 bytes and a bit for each entry of the ring, of which there are a power of two: 11 to 21 bytes for each live
//! one, 14 to 27 without ghosts, and half as much again while the ring grows.
//!
//! In a large stack one ghost in two, four or eight is *named*: it has a header to be found by. The others hold their
//! places, so that depths are what they would be, and leave with a named one near them, whose hit stands for
//! theirs. Which blocks have named ghosts their hashes say (Waldspurger et al., "Efficient MRC construction
//! with SHARDS", FAST 2015). A header is two cache misses in its life, and 21 to 42 bytes, which
//! such a stack has no need to pay for each of a hundred thousand ghosts.
//!
//! Invariants: residents and ghosts together are at most `limit` unless the residents alone are more;
//! a block is a resident or a named ghost or neither. A stamp that is not of a live resident is a broken
//! invariant and panics where that is noticed.
//!
//! Not here: which blocks there are and what they are worth (the caller), and what follows from the
//! hits in each segment ([`curve`](crate::buffers::hit_curve)).
//!
//! We differ from the paper in that segments are ranges of the log instead of tags of buffers, and
//! that the first of them is divided further.

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

/// Most entries a stack keeps ghosts for: stamps and numbers have 32 bits, the log's length and one
/// bit of an entry included.
const LIMIT_MAX: usize = 1 << 30;
/// Pushes from one turn of the compaction to the next: a power of two.
const TURN_PUSHES: u64 = 8;
/// Live entries a compaction moves, or words of dead ones it skips, in each turn. A pass over `n`
/// live entries then takes about `n / 4` pushes.
const COMPACTED_PER_TURN: usize = 32;
/// A log of more than so many quarters of what lives in it is long. Where there are no ghosts to take memory it may be
/// longer, and may fill its ring: where blocks come and go, most leave, or are read again, before they would have to be
/// moved. A compaction is over before half as many as live have been pushed.
const LONG_QUARTERS: usize = 9;
const LONG_QUARTERS_PLAIN: usize = 12;
/// Dead entries that are never worth a compaction.
const SLACK: usize = 128;
/// Of ghosts one in so many has a name, a power of two; fewer do not where that would leave less than so many of a full
/// stack.
const NAMED_ONE_IN: u64 = 8;
const NAMED_MIN: usize = 1 << 14;
/// Entries that are searched for the ghosts that a named one stands for: four times as many; and how many are looked for
/// at most, if they were not found the times before.
const UNNAMED_TRIED_MAX: usize = 4 * NAMED_ONE_IN as usize;
const OWED_MAX: u64 = 3 * NAMED_ONE_IN;

/// A ghost that was found: the segment that it lay in, and how many it stands for.
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
    /// Those with names, and how many have none.
    ghosts: Ghosts,
    unnamed: usize,
    /// Of so many ghosts one has a name, a power of two.
    named_one_in: u64,
    /// Ghosts without names that should have left with those found.
    owed: u64,
    segments: Segments,
    compaction: Option<Compaction>,
    /// Most residents and ghosts.
    limit: usize,
    /// Whether blocks that leave become ghosts.
    keeps_ghosts: bool,
    residents: usize,
    /// No resident lies below.
    oldest_resident: Position,
    /// No ghost lies below.
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

    /// [`Stack::new`], with the first entry at `start`, and one ghost named of so many.
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

    /// Whether there is a ghost that can be found.
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
        // The lowest bits of the upper half tell neighbours apart: at most one in four of them has a name, so that a
        // few blocks that lie together have one more surely.
        hash.wrapping_add(hash >> 32) & (self.named_one_in - 1) == 0
    }

    /// The depth at which each segment ends: that of its last entry, counted from 1. Ascending; the
    /// last is the limit. Residents beyond the limit count as in the last segment.
    pub(crate) fn segment_ends(&self) -> Vec<usize> {
        self.segments.ends(self.limit)
    }

    /// Whether a resident is on top.
    #[inline]
    pub(crate) fn is_top(&self, stamp: Stamp) -> bool {
        stamp.0.wrapping_add(1) == self.log.end() as u32
    }

    /// Puts a resident on top, whose block has no named ghost (see [`take_ghost`](Stack::take_ghost)), and
    /// drops the oldest ghost if that makes one too many.
    ///
    /// `moved` is told the new stamps of other residents; the caller stores them. There are at most
    /// 32, and none at seven pushes of eight.
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

    /// Puts a resident on top that has been in the stack before: [`remove`](Stack::remove) and
    /// [`push`](Stack::push).
    #[inline(always)] // On the way of every hit.
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

    /// Removes a resident without a trace.
    #[inline]
    pub(crate) fn remove(&mut self, stamp: Stamp) {
        self.residents -= 1;
        self.end_resident(stamp);
    }

    /// Removes a resident and says in which segment it lay: what a hit does before the block's
    /// [`push`](Stack::push).
    #[inline]
    pub(crate) fn take(&mut self, stamp: Stamp) -> usize {
        let segment = self.segment_of(stamp);
        self.remove(stamp);
        segment
    }

    /// The data of a resident goes; it stays in place as a ghost, named or not. In a plain LRU
    /// queue it is removed.
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

    /// Removes the ghost of `block`, if it has one with a name, and others that have none for which it stands.
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

    /// Removes the ghosts without names that the one at `position` stood for: those above it. What is not found is for
    /// the next time.
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

    /// The entry at `position` is no more.
    #[inline]
    fn lose(&mut self, position: Position) {
        self.segments.removed(position);
        self.log.kill(position);
    }

    /// That of a resident is no more.
    #[inline(always)]
    fn end_resident(&mut self, stamp: Stamp) {
        let position = self.log.position(stamp.0);
        let was_live = self.log.kill(position);
        assert!(was_live, "{stamp:?} is of no live entry");
        debug_assert!(matches!(Entry::decode(self.log.get(position)), Entry::Resident(_)));
        self.segments.removed(position);
    }

    /// The segment of a resident; 0 is the top one.
    #[inline]
    pub(crate) fn segment_of(&mut self, stamp: Stamp) -> usize {
        self.segments.settle(&self.log, self.live());
        self.segments.find(self.resident_at(stamp))
    }

    /// The deepest resident. Amortised O(1): what lies below was passed once and for all, since
    /// entries move up only and new ones are on top.
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

    /// The deepest residents, deepest first: of the `most` entries from there on, those that are no ghosts.
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

    /// Loads what says that a resident's entry is live.
    #[inline]
    pub(crate) fn load_entry(&self, stamp: Stamp) {
        self.log.load(self.log.position(stamp.0));
    }

    /// Loads what is kept of the ghosts that will be the next to be dropped, among so many entries.
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
        assert!(self.log.is_live(position), "{stamp:?} is of no live entry");
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

    /// Amortised O(1) while blocks are demoted in about the order of the stack. A demotion far below
    /// the oldest ghost sends the search back there, and it passes the residents between once more.
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

    /// One turn: trims the front, and does a bounded amount of compaction.
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

    /// The next steps of a compaction, and what is left of it.
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
