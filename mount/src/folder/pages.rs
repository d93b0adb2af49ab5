//! The kernel's pages of a file that is written: when they were dropped, and which may be older than what was written since.
//!
//! A program's write is *copied* into the kernel's pages, which are unlocked, and then sent to the mount, which *handles* it. What comes
//! between may leave an old page behind: copied < dropped < read < handled. An open *drops* the file's pages ([`content`](super::content)),
//! the new one too; somebody *reads*, and gets the old bytes; the write is handled, and the old page stays. So the
//! mount has the kernel drop it once more before it answers the write, if it was read
//!
//! * while a program had the file open to write it;
//! * since an open was told to drop pages whose answer was not known to have arrived when the last write was answered: writes into
//!   a file's pages are one after the other, so this one was copied after that;
//! * and not before an open whose answer has arrived meanwhile, or beyond where the file was cut off since: such pages are gone.
//!
//! Also dropped are all pages when the kernel is told a size which it did not expect, as others have changed the file: from then on it is watched until nobody has it
//! open to write it.
//!
//! Not for what comes from a mapping: its pages are not dropped before they are written. (Who stores by a shared mapping into a page that
//! is old in that moment writes all of it back. That is not prevented.)

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that the kernel keeps, or drops, together, at least.
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
    /// What is about to drop pages, and not known to have done so: opens of these, and the mount's own for a write.
    on_their_way: u64,
    /// The last of the opens that have.
    arrived: u64,
    /// Pages that were read since the last of the opens was told, and not dropped for a write.
    read: Ranges,
    /// Those that were read before: gone when that answer has arrived.
    read_before: Ranges,
    /// Handles by which programs may write.
    writers: usize,
    /// Watched until the last of the writers goes.
    stays_watched: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct KernelPages {
    /// Pages may be dropped after a write has gone into them: not all that drops them is known to be over before the
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

    fn watch(&self) {
        self.is_watched.store(true, Ordering::SeqCst);
    }

    /// The kernel is about to be told to drop all pages, by the answer to an open. Returns the number of that.
    pub(crate) fn drop_all(&self) -> u64 {
        let mut state = self.state();
        self.watch();
        state.told += 1;
        state.on_their_way += 1;
        for (start, end) in std::mem::take(&mut state.read).0 {
            state.read_before.add(start..end);
        }
        state.told
    }

    /// That answer has arrived. To be said once for each number.
    pub(crate) fn dropped(&self, number: u64) {
        let mut state = self.state();
        state.on_their_way -= 1;
        state.arrived = state.arrived.max(number);
        if number == state.told {
            state.read_before = Ranges::default();
        }
    }

    /// That open was not answered so.
    pub(crate) fn not_dropped(&self) {
        self.state().on_their_way -= 1;
    }

    /// Whether the kernel is known to have dropped its pages since it was told so by this number.
    pub(crate) fn are_dropped_since(&self, number: u64) -> bool {
        self.state().arrived >= number
    }

    /// Pages of this file are about to be dropped for a write.
    pub(crate) fn begins_to_drop(&self) {
        let mut state = self.state();
        self.watch();
        state.on_their_way += 1;
    }

    /// They are.
    pub(crate) fn has_dropped(&self) {
        self.state().on_their_way -= 1;
    }

    /// The kernel is about to be told of a size that it does not expect.
    pub(crate) fn others_have_changed_it(&self) {
        let mut state = self.state();
        if state.writers > 0 {
            self.watch();
            state.stays_watched = true;
        }
    }

    /// A program is about to hear that it may write.
    pub(crate) fn writer_comes(&self) {
        self.state().writers += 1;
    }

    pub(crate) fn writer_goes(&self) {
        let mut state = self.state();
        state.writers -= 1;
        if state.writers == 0 {
            state.stays_watched = false;
            (state.read, state.read_before) = Default::default();
        }
    }

    /// The file is cut off, or has grown, by who has told the kernel to do so.
    pub(crate) fn resized(&self, size_bytes: u64) {
        let mut state = self.state();
        let behind = in_pages(0..size_bytes).end..u64::MAX;
        state.read.take(behind.clone());
        state.read_before.take(behind);
    }

    /// The kernel is about to be told what these bytes are.
    pub(crate) fn reading(&self, bytes: Range<u64>) {
        if self.is_watched.load(Ordering::SeqCst) && !bytes.is_empty() {
            let mut state = self.state();
            if state.writers > 0 {
                state.read.add(in_pages(bytes));
            }
        }
    }

    /// These bytes, which a program has written into the kernel's pages, are in the folder, and it is about to be told so. Whether
    /// pages of them may be older: then they have to be dropped first.
    pub(crate) fn wrote(&self, bytes: Range<u64>) -> bool {
        if !self.is_watched.load(Ordering::SeqCst) || bytes.is_empty() {
            return false;
        }
        let mut state = self.state();
        let pages = in_pages(bytes);
        let may_be_old = state.read.take(pages.clone()) | state.read_before.take(pages);
        if state.on_their_way == 0 && !state.stays_watched {
            self.is_watched.store(false, Ordering::SeqCst);
            (state.read, state.read_before) = Default::default();
        }
        may_be_old
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn written() -> KernelPages {
        let pages = KernelPages::default();
        pages.writer_comes();
        pages
    }

    #[test]
    fn pages_are_old_if_read_after_a_drop_that_may_be_later_than_the_write() {
        let pages = written();
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
        let (one, two) = (pages.drop_all(), pages.drop_all());
        pages.reading(0..1);
        pages.reading(9000..9001);
        let three = pages.drop_all();
        pages.dropped(one);
        assert!(pages.wrote(0..1), "the answers that are to drop it may be on their way");
        pages.dropped(three);
        assert!(!pages.wrote(9000..9001), "one has arrived that was told after it was read");
        pages.dropped(two);
        pages.drop_all();
        pages.reading(0..1);
        assert!(pages.wrote(0..1));
    }

    #[test]
    fn pages_are_not_old_if_read_when_nobody_could_write() {
        let pages = KernelPages::default();
        pages.drop_all();
        pages.reading(0..100);
        pages.writer_comes();
        assert!(!pages.wrote(0..100));
        pages.reading(0..100);
        pages.writer_goes();
        pages.writer_comes();
        assert!(!pages.wrote(0..100), "that was another");
    }

    #[test]
    fn pages_behind_the_end_are_gone() {
        let pages = written();
        pages.drop_all();
        pages.reading(0..20_000);
        pages.drop_all();
        pages.reading(30_000..40_000);
        pages.resized(5000);
        assert!(!pages.wrote(8192..50_000));
        assert!(pages.wrote(8191..50_000));
    }

    #[test]
    fn they_are_dropped_by_the_last_answer_that_arrives() {
        let pages = written();
        let (one, two) = (pages.drop_all(), pages.drop_all());
        assert!(!pages.are_dropped_since(one));
        pages.dropped(two);
        assert!(pages.are_dropped_since(two));
        pages.reading(0..1);
        assert!(pages.wrote(0..1));
        pages.reading(0..1);
        assert!(pages.wrote(0..1), "the other may be on its way still");
        pages.dropped(one);
        assert!(pages.are_dropped_since(two));
        pages.reading(0..1);
        assert!(pages.wrote(0..1));
        pages.reading(0..1);
        assert!(!pages.wrote(0..1));
        let three = pages.drop_all();
        pages.not_dropped();
        assert!(!pages.are_dropped_since(three));
        pages.wrote(0..1);
        pages.reading(0..1);
        assert!(!pages.wrote(0..1), "nothing is on its way");
    }

    #[test]
    fn what_is_dropped_for_a_write_and_by_others_is_watched_too() {
        let pages = written();
        pages.begins_to_drop();
        for _ in 0..2 {
            pages.reading(0..1);
            assert!(pages.wrote(0..1));
        }
        pages.has_dropped();
        pages.wrote(0..1);
        pages.reading(0..1);
        assert!(!pages.wrote(0..1));
        pages.others_have_changed_it();
        for _ in 0..2 {
            pages.reading(0..1);
            assert!(pages.wrote(0..1));
        }
        pages.writer_goes();
        pages.writer_comes();
        pages.wrote(0..1);
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
