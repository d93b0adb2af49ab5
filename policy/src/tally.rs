//! What became of the blocks fetched for each source of hints.
//!
//! A source is whatever a driver tells apart: hints that were given, guesses of one kind. The policy knows its number alone,
//! which a stream has from its opening. A block is of the source for whose stream its fetch began, and stays so if another
//! stream takes it over. Its number lies in its slot, so each count takes O(1) and no memory.
//!
//! Invariant: [`Counts`] are the sums of all tallies, since they are made of them.

use crate::contract::Counts;

/// Sources that are told apart.
/// Unit: sources. Reason: layout.
pub const SOURCES_MAX: usize = 1 << SOURCE_BITS;

/// Bits of a source in a block's slot.
/// Unit: bits. Reason: layout.
pub(crate) const SOURCE_BITS: u32 = 4;

/// The number of a source of hints, below [`SOURCES_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u8);

impl SourceId {
    /// The source with this number.
    ///
    /// # Panics
    /// If it is not below [`SOURCES_MAX`].
    pub const fn new(number: u8) -> Self {
        assert!((number as usize) < SOURCES_MAX, "a source's number has 4 bits");
        SourceId(number)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The source whose number is in the lower bits.
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        SourceId((bits % SOURCES_MAX as u32) as u8)
    }

    /// All sources.
    pub fn all() -> impl Iterator<Item = SourceId> {
        (0..SOURCES_MAX as u8).map(SourceId)
    }
}

/// What became of the blocks fetched for one source, in blocks. The fields are those of [`Counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Handed out to be fetched.
    pub prefetched: u64,
    /// Read after they arrived.
    pub useful: u64,
    /// Read while in flight.
    pub late: u64,
    /// Never read.
    pub wasted: u64,
    /// In flight when their stream ended.
    pub unfinished: u64,
    /// Could not be fetched, or lay beyond the end of the file.
    pub refused: u64,
    /// Found in memory when their turn came.
    pub already_cached: u64,
    /// Hinted by it, and read before they were fetched.
    pub overtaken: u64,
}

impl Tally {
    /// Blocks of which it is known whether a program has read them.
    pub fn judged(&self) -> u64 {
        self.useful + self.late + self.wasted
    }

    /// The share of the blocks judged that were read, in time or late; `None` if none is judged.
    pub fn precision(&self) -> Option<f64> {
        let judged = self.judged();
        (judged > 0).then(|| (self.useful + self.late) as f64 / judged as f64)
    }
}

/// The tallies of all sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies([Tally; SOURCES_MAX]);

impl Tallies {
    #[inline]
    pub(crate) fn of(&mut self, source: SourceId) -> &mut Tally {
        &mut self.0[usize::from(source.0) % SOURCES_MAX] // Without a check of bounds.
    }

    pub(crate) fn get(&self, source: SourceId) -> Tally {
        self.0[usize::from(source.0)]
    }

    /// Puts the sums over all sources into `counts`.
    pub(crate) fn add_to(&self, counts: &mut Counts) {
        for tally in &self.0 {
            counts.prefetched += tally.prefetched;
            counts.useful += tally.useful;
            counts.late += tally.late;
            counts.wasted += tally.wasted;
            counts.unfinished += tally.unfinished;
            counts.refused = counts.refused.saturating_add(tally.refused);
            counts.already_cached += tally.already_cached;
            counts.overtaken += tally.overtaken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_block_was_guessed_rightly() {
        assert_eq!(Tally::default().precision(), None);
        let tally = Tally { prefetched: 9, useful: 2, late: 1, wasted: 1, ..Tally::default() };
        assert_eq!((tally.judged(), tally.precision()), (4, Some(0.75)));
    }
}
