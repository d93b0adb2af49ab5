//! How far a process has come in a file whose regions rise, and whether it has gone back in it.
//!
//! A look at something further ahead, such as a table at the end, is not known as one until the process goes on behind it. A
//! look at something behind is over after a few reads.

use std::collections::VecDeque;
use std::mem;

/// A read is far behind if it begins so many bytes before the end of the furthest one.
const BACK_BYTES: u64 = 1 << 20;

/// So many such reads, one behind the other, and the process has gone back. Fewer may look something up.
const BACK_READS: u32 = 8;

/// Times that a plan begins anew though less than [`ORDERED_BYTES`] were read in order since it last did. A process that
/// goes back more often reads in no order, or its threads are far apart.
const ANEW_MAX: u32 = 8;

/// A plan begins anew whenever so much was read in order.
const ORDERED_BYTES: u64 = 16 << 20;

/// Files with past plans that are remembered.
const PAST_MAX: usize = 256;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The end of its furthest read.
    end: u64,
    /// The end of what it has read in order, without looks further ahead.
    in_order: u64,
    /// Its last reads, if they were far behind: where the first and the last of them begin, and how many they are.
    back: Option<(u64, u64, u32)>,
    /// Where the process was when the plan began anew.
    anew_at: u64,
    /// How often it has begun anew for little.
    times: u32,
}

impl Progress {
    /// The process has read. Whether it has gone back.
    pub(super) fn read(&mut self, offset_bytes: u64, length_bytes: u64) -> bool {
        let end = offset_bytes.saturating_add(length_bytes);
        if offset_bytes <= self.in_order.saturating_add(BACK_BYTES) {
            self.in_order = self.in_order.max(end);
        }
        if offset_bytes.saturating_add(BACK_BYTES) > self.end {
            self.end = self.end.max(end);
            self.back = None;
            return false;
        }
        let (from, reads) = match self.back {
            Some((from, last, reads)) if offset_bytes > last => (from, reads + 1),
            _ => (offset_bytes, 1),
        };
        self.back = Some((from, offset_bytes, reads));
        self.has_gone_back()
    }

    /// Up to which byte it has read, leaving out less than [`BACK_BYTES`] at a time.
    pub(super) fn in_order_bytes(&self) -> u64 {
        self.in_order
    }

    /// How often the plan has begun anew for little, with this time.
    fn next_times(&self) -> u32 {
        let is_much = self.in_order.saturating_sub(self.anew_at) >= ORDERED_BYTES;
        self.times + u32::from(!is_much)
    }

    fn has_gone_back(&self) -> bool {
        self.next_times() <= ANEW_MAX && self.back.is_some_and(|(.., reads)| reads >= BACK_READS)
    }

    /// The plan begins anew: from where, and the progress from then on.
    pub(super) fn anew(self) -> Option<(u64, Progress)> {
        let (from, last, _) = self.back.filter(|_| self.has_gone_back())?;
        let times = self.next_times();
        Some((from, Progress { end: last, in_order: last, back: None, anew_at: last, times }))
    }
}

/// Files whose plans are past, although their processes may go back: a look at the very end passes all of a plan. Those that
/// were past first are forgotten first.
#[derive(Debug)]
pub(super) struct Past<T>(VecDeque<(T, Progress)>);

impl<T> Default for Past<T> {
    fn default() -> Self {
        Past(VecDeque::new())
    }
}

impl<T> Past<T> {
    pub(super) fn keep(&mut self, file: T, progress: Progress) {
        if progress.end > BACK_BYTES {
            self.0.push_back((file, progress));
            self.0.drain(..self.0.len().saturating_sub(PAST_MAX));
        }
    }

    pub(super) fn find(&mut self, is: impl Fn(&T) -> bool) -> Option<&mut Progress> {
        self.0.iter_mut().find(|(file, _)| is(file)).map(|(_, progress)| progress)
    }

    pub(super) fn forget(&mut self, is: impl Fn(&T) -> bool) {
        self.0.retain(|(file, _)| !is(file));
    }

    /// Those whose processes have gone back: each from where, and its progress from then on.
    pub(super) fn take_anew(&mut self) -> Vec<(T, (u64, Progress))> {
        let has_gone_back = |(_, progress): &(T, Progress)| progress.has_gone_back();
        let (anew, kept) = mem::take(&mut self.0).into_iter().partition(has_gone_back);
        self.0 = kept;
        let anew: VecDeque<_> = anew;
        anew.into_iter().filter_map(|(file, progress)| Some((file, progress.anew()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_gone_back_when_it_goes_on_far_behind() {
        let read = |progress: &mut Progress, offsets: &[u64]| {
            offsets.iter().fold(false, |_, &offset| progress.read(offset << 20, 4096))
        };
        let mut progress = Progress::default();
        assert!(!read(&mut progress, &[0, 90, 91, 1, 2, 3, 4, 5, 6, 7]));
        // A look at the beginning from time to time.
        assert!(!read(&mut progress, &[92, 0, 1, 93, 0, 1, 94, 0, 1, 95, 1, 2, 3]));
        assert!(progress.anew().is_none());
        assert!(read(&mut progress, &[4, 5, 6, 7, 8]));
        let (from, mut progress) = progress.anew().expect("it has gone back");
        assert_eq!((from, progress.times), (1 << 20, 1));
        assert!(!read(&mut progress, &[9, 10, 11, 12, 13, 14, 15, 16, 17, 18]));
        // Nothing rises here.
        assert!(!read(&mut progress, &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]));
    }

    /// Each makes the other look like one that has gone back.
    #[test]
    fn for_threads_far_apart_a_plan_begins_anew_a_few_times_and_then_for_much_only() {
        const READ_BYTES: u64 = 64 << 10;
        let (mut progress, mut times, mut bytes) = (Progress::default(), 0, 0);
        for turn in 0..10_000u64 {
            for _ in 0..10 {
                if progress.read(bytes, READ_BYTES) {
                    progress = progress.anew().expect("it has gone back").1;
                    times += 1;
                }
                bytes += READ_BYTES;
            }
            progress.read((1 << 40) + (turn << 20), READ_BYTES);
        }
        let most = u64::from(ANEW_MAX) + bytes / ORDERED_BYTES;
        assert!((u64::from(ANEW_MAX) + 2..=most).contains(&times), "{times} of {most}");
    }
}
