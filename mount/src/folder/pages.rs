//! The kernel's pages of a file that is written: when they were dropped, and which may be older than what was written since.
//!
//! A program's write goes into the kernel's pages, which are unlocked, and then to the mount. If another program opens the file between
//! the two, and that open drops the kernel's pages ([`content`](super::content)), the new page goes, and somebody may read the old one from the folder before the write has come to it. That
//! page would stay, older than a write that is over. So the mount has the kernel drop it once more before it answers
//! the write. It must have been read since an open was told to drop pages, and that open's answer must not be known to have arrived before the write began:
//! writes of a file's pages are one after the other, so it is none of those that had arrived when the one before was answered.
//!
//! Not for what comes from a mapping: such pages are not dropped before they are written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that the kernel keeps, or drops, together.
const PAGE_BYTES: u64 = 4096;

/// Ranges that are told apart; beyond that there is one from the first to the last.
const RANGES_MAX: usize = 256;

/// Bytes, by their ranges: where each begins, and ends.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, together with those that it touches.
    fn add(&mut self, mut range: Range<u64>) {
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back()
            && end >= range.start
        {
            self.0.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
        if self.0.len() > RANGES_MAX
            && let (Some((&start, _)), Some((_, &end))) =
                (self.0.first_key_value(), self.0.last_key_value())
        {
            self.0.clear();
            self.0.insert(start, end);
        }
    }

    /// Takes the bytes of a range away. Whether there were any.
    fn take(&mut self, range: Range<u64>) -> bool {
        let mut any = false;
        while let Some((&start, &end)) = self.0.range(..range.end).next_back()
            && end > range.start
        {
            any = true;
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
        }
        any
    }
}

#[derive(Default)]
struct State {
    /// How many opens there were by which the kernel drops the file's pages.
    told: u64,
    /// Of these, those whose answers are not known to have arrived.
    on_their_way: u64,
    /// The last of those that have.
    arrived: u64,
    /// Pages that were read since, and not dropped for a write.
    read: Ranges,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct KernelPages {
    /// Pages may be dropped after a write has gone into them: not all opens that do so are known to have arrived before the
    /// last write was answered.
    is_watched: AtomicBool,
    state: Mutex<State>,
}

fn in_pages(bytes: Range<u64>) -> Range<u64> {
    let end = bytes.end.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
    bytes.start / PAGE_BYTES * PAGE_BYTES..end
}

impl KernelPages {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is about to be told to drop all pages. Returns the number of that, for [`dropped`](Self::dropped).
    pub(crate) fn drop_all(&self) -> u64 {
        let mut state = self.state();
        self.is_watched.store(true, Ordering::SeqCst);
        state.told += 1;
        state.on_their_way += 1;
        state.told
    }

    /// It has done so. To be said once for each number.
    pub(crate) fn dropped(&self, number: u64) {
        let mut state = self.state();
        state.on_their_way -= 1;
        state.arrived = state.arrived.max(number);
    }

    /// Whether it is known to have dropped them since it was told so by this number.
    pub(crate) fn are_dropped_since(&self, number: u64) -> bool {
        self.state().arrived >= number
    }

    /// The kernel is about to be told what these bytes are.
    pub(crate) fn reading(&self, bytes: Range<u64>) {
        if self.is_watched.load(Ordering::SeqCst) && !bytes.is_empty() {
            self.state().read.add(in_pages(bytes));
        }
    }

    /// These bytes, which a program has written into the kernel's pages, are in the folder, and it is about to be told so. Whether
    /// pages of them may be older: then they have to be dropped first.
    pub(crate) fn wrote(&self, bytes: Range<u64>) -> bool {
        if !self.is_watched.load(Ordering::SeqCst) || bytes.is_empty() {
            return false;
        }
        let mut state = self.state();
        let may_be_old = state.read.take(in_pages(bytes));
        if state.on_their_way == 0 {
            self.is_watched.store(false, Ordering::SeqCst);
            state.read = Ranges::default();
        }
        may_be_old
    }

    /// Pages that may be older have not been dropped yet.
    pub(crate) fn are_still_old(&self, bytes: Range<u64>) {
        let mut state = self.state();
        self.is_watched.store(true, Ordering::SeqCst);
        state.read.add(in_pages(bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_are_old_if_read_after_a_drop_that_may_be_later_than_the_write() {
        let pages = KernelPages::default();
        pages.reading(0..100);
        assert!(!pages.wrote(0..100), "nothing was dropped");
        let number = pages.drop_all();
        assert!(!pages.wrote(0..100), "nothing was read");
        pages.reading(5000..5001);
        assert!(!pages.wrote(0..4096));
        assert!(pages.wrote(8191..8192), "of the same page");
        assert!(!pages.wrote(8191..8192), "it was dropped");
        pages.reading(5000..5001);
        pages.dropped(number);
        assert!(pages.wrote(0..5000), "it may have begun before they were");
        pages.reading(5000..5001);
        assert!(!pages.wrote(0..8192), "the write before was answered after that");
    }

    #[test]
    fn they_are_dropped_by_the_last_answer_that_arrives() {
        let pages = KernelPages::default();
        let (one, two) = (pages.drop_all(), pages.drop_all());
        assert!(!pages.are_dropped_since(one));
        pages.dropped(two);
        assert!(pages.are_dropped_since(two));
        pages.reading(0..1);
        assert!(pages.wrote(0..1));
        pages.reading(0..1);
        assert!(pages.wrote(0..1), "the other may be on its way still");
        pages.are_still_old(0..1);
        assert!(pages.wrote(0..1));
        pages.dropped(one);
        assert!(pages.are_dropped_since(two));
        pages.reading(0..1);
        assert!(pages.wrote(0..1));
        pages.reading(0..1);
        assert!(!pages.wrote(0..1));
    }

    proptest! {
        #[test]
        fn ranges_are_the_bytes_that_were_added_and_not_taken(
            changes in prop::collection::vec((any::<bool>(), 0..300u64, 1..40u64), 0..60),
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = BTreeSet::new();
            for (is_added, start, length) in changes {
                let range = start..start + length;
                if is_added {
                    ranges.add(range.clone());
                    bytes.extend(range);
                } else {
                    let before = bytes.len();
                    bytes.retain(|at| !range.contains(at));
                    prop_assert_eq!(ranges.take(range), bytes.len() < before);
                }
                let found: Vec<u64> = ranges.0.iter().flat_map(|(&start, &end)| start..end).collect();
                prop_assert!(found.iter().eq(&bytes), "{:?}, not {:?}", ranges.0, bytes);
            }
        }
    }

    #[test]
    fn very_many_ranges_are_one() {
        let mut ranges = Ranges::default();
        for number in 0..=RANGES_MAX as u64 {
            assert_eq!(ranges.0.len(), number as usize);
            ranges.add(2 * number..2 * number + 1);
        }
        assert_eq!(ranges.0.len(), 1);
        assert!(ranges.take(3..4));
    }
}
