//! The ring that holds the stack's entries, oldest first, and which of them are live.
//!
//! Positions count every entry ever appended and never repeat. The entry at position `p` lies in the ring at `p` modulo the
//! ring's length. A bitmap of the same layout says which entries are live. A removal touches one bit instead of the entry: the
//! bits of a million entries fit a second-level cache, and 64 dead entries are skipped at once.
//!
//! Invariants: bits outside `front..end` are clear. Positions of two turns of the ring never share a word of the bitmap, since
//! the ring is 64 entries longer than its contents. A word can therefore be searched without asking for its turn.

use crate::tables::line::load_line;

/// The number of an entry in the order of appending. Does not wrap.
pub(super) type Position = u64;

/// Entries of a word of the bitmap.
/// Unit: entries. Reason: layout.
const WORD: u64 = u64::BITS as u64;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Log {
    /// By position modulo length. The length is a power of two, at least two words of the bitmap.
    entries: Vec<u32>,
    /// One bit for each of `entries`.
    live: Vec<u64>,
    /// No live entry lies below this position.
    front: Position,
    /// Where the next entry goes.
    end: Position,
}

impl Log {
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u32>() + self.live.capacity() * size_of::<u64>()
    }

    /// An empty log whose first entry will be at `start`.
    pub(super) fn new(start: Position) -> Self {
        let words = 2;
        Log {
            entries: vec![0; words * WORD as usize],
            live: vec![0; words],
            front: start,
            end: start,
        }
    }

    /// No live entry lies below this position.
    pub(super) fn front(&self) -> Position {
        self.front
    }

    /// One past the newest entry.
    pub(super) fn end(&self) -> Position {
        self.end
    }

    /// Entries from front to end, live and dead.
    pub(super) fn len(&self) -> usize {
        (self.end - self.front) as usize
    }

    /// Entries that can be pushed before the ring is full.
    pub(super) fn room(&self) -> usize {
        self.entries.len() - self.len() - WORD as usize
    }

    /// The position within the log whose low 32 bits these are.
    #[inline]
    pub(super) fn position(&self, low: u32) -> Position {
        self.front + Position::from(low.wrapping_sub(self.front as u32))
    }

    /// The entry at `position`, which is live.
    #[inline]
    pub(super) fn get(&self, position: Position) -> u32 {
        self.entries[self.slot(position)]
    }

    /// Replaces the entry at `position`, which is live.
    #[inline]
    pub(super) fn set(&mut self, position: Position, entry: u32) {
        let slot = self.slot(position);
        self.entries[slot] = entry;
    }

    /// Whether the entry at `position`, which lies within the log, is live.
    #[inline]
    pub(super) fn is_live(&self, position: Position) -> bool {
        position < self.end && self.word(position) >> (position % WORD) & 1 == 1
    }

    /// Loads the word that says whether the entry at `position` is live.
    #[inline]
    pub(super) fn load(&self, position: Position) {
        load_line(&self.live[self.word_index(position)]);
    }

    /// Appends an entry and returns its position. A full ring is copied to one of twice the length.
    #[inline(always)] // Every hit without hints passes here.
    pub(super) fn push(&mut self, entry: u32) -> Position {
        if self.room() == 0 {
            self.grow();
        }
        let position = self.end;
        self.end += 1;
        self.revive(position, entry);
        position
    }

    /// Marks the entry at `position` dead, and says whether it was live.
    #[inline(always)] // Every hit without hints passes here.
    pub(super) fn kill(&mut self, position: Position) -> bool {
        let (word, bit) = (self.word_index(position), 1 << (position % WORD));
        let was_live = position < self.end && self.live[word] & bit != 0;
        self.live[word] &= !bit;
        was_live
    }

    /// Replaces the dead entry at `position` with a live one.
    #[inline]
    pub(super) fn revive(&mut self, position: Position, entry: u32) {
        self.set(position, entry);
        let word = self.word_index(position);
        self.live[word] |= 1 << (position % WORD);
    }

    /// The oldest live entry at `from` or above.
    #[inline]
    pub(super) fn next_live(&self, from: Position) -> Option<Position> {
        let from = from.max(self.front);
        let word = self.word(from) >> (from % WORD);
        if word != 0 {
            return Some(from + Position::from(word.trailing_zeros()));
        }
        let mut word_start = from - from % WORD + WORD;
        while word_start < self.end {
            let word = self.word(word_start);
            if word != 0 {
                return Some(word_start + Position::from(word.trailing_zeros()));
            }
            word_start += WORD;
        }
        None
    }

    /// The position above the first `count` live entries at `from` or above. There must be at least `count` of them.
    pub(super) fn above(&self, from: Position, count: usize) -> Position {
        let (mut position, mut left) = (from.max(self.front), count as u32);
        while left > 0 {
            let word = self.word(position) >> (position % WORD);
            let live = word.count_ones();
            if live < left {
                left -= live;
                position += WORD - position % WORD;
                debug_assert!(position < self.end, "fewer live entries above {from}");
                continue;
            }
            let mut rest = word;
            for _ in 1..left {
                rest &= rest - 1;
            }
            return position + Position::from(rest.trailing_zeros()) + 1;
        }
        position
    }

    /// The position of the `count`th live entry below `before`. There must be at least `count` of them.
    pub(super) fn below(&self, before: Position, count: usize) -> Position {
        let (mut before, mut left) = (before, count as u32);
        while left > 0 {
            let last = before - 1;
            let word = self.word(last) & (u64::MAX >> (WORD - 1 - last % WORD));
            let live = word.count_ones();
            if live < left {
                left -= live;
                before = last - last % WORD;
                debug_assert!(before > self.front, "fewer live entries below");
                continue;
            }
            let mut rest = word;
            for _ in left..live {
                rest &= rest - 1;
            }
            return last - last % WORD + Position::from(rest.trailing_zeros());
        }
        before
    }

    /// The newest live entry below `before` within one word of the bitmap: the word that holds the position `before - 1`. If
    /// the word has none, the position where the word starts. `before` lies above the front.
    #[inline]
    pub(super) fn previous_live_in_word(&self, before: Position) -> Result<Position, Position> {
        let last = before - 1;
        let word = self.word(last) & (u64::MAX >> (WORD - 1 - last % WORD));
        match word {
            0 => Err(last - last % WORD),
            _ => Ok(last - last % WORD + (WORD - 1 - Position::from(word.leading_zeros()))),
        }
    }

    /// Moves the front over dead entries, to the end of one word of the bitmap at most.
    #[inline]
    pub(super) fn trim(&mut self) {
        if self.front == self.end {
            return;
        }
        let word_start = self.front - self.front % WORD;
        self.front = match self.word(self.front) {
            0 => (word_start + WORD).min(self.end),
            word => word_start + Position::from(word.trailing_zeros()),
        };
    }

    /// Moves the front up to `position`, below which nothing is live.
    pub(super) fn trim_to(&mut self, position: Position) {
        self.front = self.front.max(position);
    }

    fn slot(&self, position: Position) -> usize {
        position as usize & (self.entries.len() - 1)
    }

    fn word_index(&self, position: Position) -> usize {
        (position / WORD) as usize & (self.live.len() - 1)
    }

    fn word(&self, position: Position) -> u64 {
        self.live[self.word_index(position)]
    }

    #[cold]
    fn grow(&mut self) {
        let words = self.live.len() * 2;
        assert!(words as u64 * WORD <= 1 << u32::BITS, "positions that 32 bits cannot tell apart");
        let mut grown = Log {
            entries: vec![0; words * WORD as usize],
            live: vec![0; words],
            front: self.front,
            end: self.end,
        };
        let word_size = WORD as usize;
        let first = self.front - self.front % WORD;
        for word_start in (first..self.end).step_by(word_size) {
            let (from, to) = (self.slot(word_start), grown.slot(word_start));
            let source = &self.entries[from..from + word_size];
            grown.entries[to..to + word_size].copy_from_slice(source);
            let word = grown.word_index(word_start);
            grown.live[word] = self.word(word_start);
        }
        *self = grown;
    }
}
