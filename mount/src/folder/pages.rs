//! Finds pages in the kernel's cache that may be older than a write, so that the mount can have them dropped.
//!
//! The kernel copies a program's write into its pages, unlocks them, and sends the write to the mount. In between, this
//! can happen:
//!
//! 1. The write is *copied* into a page.
//! 2. The answer to an open makes the kernel *drop* the file's pages ([`content`](super::content)), the new one among
//!    them.
//! 3. Another program *reads*, which brings the old bytes back.
//! 4. The mount *handles* the write. The old page would stay.
//!
//! So before it answers a write, the mount has the kernel drop every page of the write that was read
//!
//! * while a program had the file open for writing,
//! * and since an open whose answer drops pages, if that answer was not known to have arrived when the last write was
//!   answered. (Writes to a file's pages follow one another, so this write was copied after the last one was answered.)
//!
//! Pages that are gone already need not be dropped: those read before an open whose answer has arrived meanwhile, and those
//! behind the place where the file was cut off since.
//!
//! The kernel also drops all pages when it is told a size that it does not expect, as others have changed the file.
//! From then on, the file is watched until no program has it open for writing.
//!
//! Writes from mappings need none of this, as the kernel keeps a mapped page until it is written. One case is not
//! prevented: a program that stores through a shared mapping into a page that is old at that moment writes all of the
//! page back.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The smallest unit in which the kernel keeps and drops data, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Ranges that are kept for a file. More of them become one, from the first to the last.
const RANGES_MAX: usize = 256;

/// A set of bytes, as ranges: start to end.
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

    /// Removes a range. Returns whether any of its bytes were in the set.
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
    /// Opens so far whose answers drop pages.
    told: u64,
    /// Drops that may still happen: those of answers to such opens that are not known to have arrived, and those for a write.
    on_their_way: u64,
    /// The latest open whose answer drops pages and has arrived.
    arrived: u64,
    /// Pages read since the last open whose answer drops pages, and not dropped for a write since.
    read: Ranges,
    /// Pages read before that open. They are gone when the answer to it has arrived.
    read_before: Ranges,
    /// Handles open for writing.
    writers: usize,
    /// Whether the file is watched until the last handle open for writing is closed.
    stays_watched: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct KernelPages {
    /// Whether reads are noted: pages may be dropped after a write was copied into them, because some drop was not
    /// known to be over when the last write was answered.
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

    /// The answer to an open will tell the kernel to drop all pages. Returns that open's number.
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

    /// The answer to open `number` has arrived. Must be called once for each number.
    pub(crate) fn dropped(&self, number: u64) {
        let mut state = self.state();
        state.on_their_way -= 1;
        state.arrived = state.arrived.max(number);
        if number == state.told {
            state.read_before = Ranges::default();
        }
    }

    /// The open failed, so no such answer was sent.
    pub(crate) fn not_dropped(&self) {
        self.state().on_their_way -= 1;
    }

    /// Whether the kernel is known to have dropped its pages at open `number` or a later one.
    pub(crate) fn are_dropped_since(&self, number: u64) -> bool {
        self.state().arrived >= number
    }

    /// Pages are about to be dropped for a write.
    pub(crate) fn begins_to_drop(&self) {
        let mut state = self.state();
        self.watch();
        state.on_their_way += 1;
    }

    /// The pages that were to be dropped are gone.
    pub(crate) fn has_dropped(&self) {
        self.state().on_their_way -= 1;
    }

    /// The kernel is about to be told a size that it does not expect.
    pub(crate) fn others_have_changed_it(&self) {
        let mut state = self.state();
        if state.writers > 0 {
            self.watch();
            state.stays_watched = true;
        }
    }

    /// A handle is being opened for writing.
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

    /// The file's size was changed by a request of the kernel.
    pub(crate) fn resized(&self, size_bytes: u64) {
        let mut state = self.state();
        let behind = in_pages(0..size_bytes).end..u64::MAX;
        state.read.take(behind.clone());
        state.read_before.take(behind);
    }

    /// The kernel is about to be given these bytes.
    pub(crate) fn reading(&self, bytes: Range<u64>) {
        if self.is_watched.load(Ordering::SeqCst) && !bytes.is_empty() {
            let mut state = self.state();
            if state.writers > 0 {
                state.read.add(in_pages(bytes));
            }
        }
    }

    /// A write of these bytes, which the kernel has in its pages, is in the folder and about to be answered. Returns
    /// whether the kernel may have older pages of them, which must be dropped first.
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
        assert!(pages.wrote(0..5000), "the write may have begun before the drop");
        pages.reading(5000..5001);
        assert!(!pages.wrote(0..8192), "the last write was answered after the drop");
        let (one, two) = (pages.drop_all(), pages.drop_all());
        pages.reading(0..1);
        pages.reading(9000..9001);
        let three = pages.drop_all();
        pages.dropped(one);
        assert!(pages.wrote(0..1), "answers that drop it may not have arrived");
        pages.dropped(three);
        assert!(!pages.wrote(9000..9001), "the answer to an open after the read has arrived");
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
        assert!(!pages.wrote(0..100), "the file had another writer then");
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
        assert!(pages.wrote(0..1), "the other answer may not have arrived");
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
        assert!(!pages.wrote(0..1), "no answer is outstanding");
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
