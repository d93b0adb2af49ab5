//! How far a process has come in a file whose regions rise, and whether it has gone back in it.
//!
//! A look at something further ahead, such as a table at the end, is not known as one until the process goes on behind it. A
//! look at something behind is over after a few reads.

/// A read is far behind if it begins so many bytes before the end of the furthest one.
const BACK_BYTES: u64 = 1 << 20;

/// So many such reads, one behind the other, and the process has gone back. Fewer may look something up.
const BACK_READS: u32 = 8;

/// Times that a plan begins anew. A process that goes back more often reads in no order.
const ANEW_MAX: u32 = 256;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The end of its furthest read.
    end: u64,
    /// The end of what it has read in order, without looks further ahead.
    in_order: u64,
    /// Its last reads, if they were far behind: where the first and the last of them begin, and how many they are.
    back: Option<(u64, u64, u32)>,
    /// How often the plan has begun anew.
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

    fn has_gone_back(&self) -> bool {
        self.times < ANEW_MAX && self.back.is_some_and(|(.., reads)| reads >= BACK_READS)
    }

    /// The plan begins anew: from where, and the progress from then on.
    pub(super) fn anew(self) -> Option<(u64, Progress)> {
        let (from, last, _) = self.back.filter(|_| self.has_gone_back())?;
        Some((from, Progress { end: last, in_order: last, back: None, times: self.times + 1 }))
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
}
