//! Read-ahead: what a kernel discloses to itself because reads were in sequence.
//!
//! It is a hinter like others. For each file that a program reads, a stream of its own names a *window* of
//! blocks, and the next one when half of it is read; each is twice as long as the one before, up to a limit.
//! A read out of sequence takes back what was disclosed, and two in sequence begin anew. A file whose first block
//! is read first is taken to be read in sequence. So buffers have one owner: under `tip1` nothing is weighed and a
//! window is fetched at once, as a kernel does it; under other rules it competes like anything disclosed.
//!
//! Files that their program discloses have none. The files of a program that are followed are those it read
//! last, as many as it might have open.

use std::collections::VecDeque;
use std::ops::Range;

use foretell_policy::{FileId, StreamId};

/// Files that are followed for each program.
const FILES_MAX: usize = 64;

/// How far ahead is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadSpec {
    /// The first window, blocks.
    pub first_blocks: u64,
    /// The longest window, blocks.
    pub most_blocks: u64,
}

impl ReadAheadSpec {
    /// OSF/1's of TIP 1995: clusters of 8 blocks of 8 KB, up to 8 of them.
    pub const OSF1: ReadAheadSpec = ReadAheadSpec { first_blocks: 8, most_blocks: 64 };

    /// Linux's as it comes, for programs that read with large buffers: 128 KiB.
    pub fn linux(block_bytes: u64) -> Self {
        let blocks = ((128 << 10) / block_bytes).max(1);
        ReadAheadSpec { first_blocks: blocks, most_blocks: blocks }
    }
}

/// A file that is being read.
#[derive(Debug)]
struct Followed {
    file: FileId,
    stream: StreamId,
    /// The block that would be next in sequence.
    next: u64,
    /// The first block beyond what is disclosed.
    until: u64,
    /// The present window, blocks; 0 while reads are not in sequence.
    window: u64,
}

/// What is to be disclosed, or taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// These blocks of the file.
    Disclose(StreamId, Range<u64>),
    /// All that was disclosed of it.
    TakeBack(StreamId),
}

/// The read-ahead of one program; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Read longest ago first.
    files: VecDeque<Followed>,
}

impl ReadAhead {
    /// Block `index` of a file of `blocks` blocks is about to be read. `open` makes a stream for a file that is
    /// new; a stream that is not needed any more is put into `closed`.
    pub(super) fn before(
        &mut self,
        spec: ReadAheadSpec,
        (file, index): (FileId, u64),
        blocks: u64,
        open: impl FnOnce() -> StreamId,
        closed: &mut Option<StreamId>,
    ) -> Option<Advice> {
        let at = self.files.iter().position(|followed| followed.file == file);
        let mut followed = match at.and_then(|at| self.files.remove(at)) {
            Some(followed) => followed,
            None => {
                if self.files.len() == FILES_MAX {
                    *closed = self.files.pop_front().map(|oldest| oldest.stream);
                }
                // Its first block would be in sequence; any other is not.
                Followed { file, stream: open(), next: 0, until: 0, window: 0 }
            }
        };
        let advice = followed.read(spec, index, blocks);
        self.files.push_back(followed);
        advice
    }

    /// All streams, which are not needed any more.
    pub(super) fn end(&mut self) -> impl Iterator<Item = StreamId> {
        self.files.drain(..).map(|followed| followed.stream)
    }
}

impl Followed {
    fn read(&mut self, spec: ReadAheadSpec, index: u64, blocks: u64) -> Option<Advice> {
        let in_sequence = index == self.next || index + 1 == self.next;
        self.next = index + 1;
        if !in_sequence {
            let had = std::mem::take(&mut self.window) > 0;
            return had.then_some(Advice::TakeBack(self.stream));
        }
        let range = match self.window {
            0 => {
                self.window = spec.first_blocks;
                index..index + self.window
            }
            window if index + window / 2 >= self.until => {
                self.window = (2 * window).min(spec.most_blocks);
                self.until..self.until + self.window
            }
            _ => return None,
        };
        let range = range.start..range.end.min(blocks);
        self.until = range.end.max(range.start);
        (!range.is_empty()).then_some(Advice::Disclose(self.stream, range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What reads of one file lead to.
    fn advice(spec: ReadAheadSpec, blocks: u64, reads: &[u64]) -> Vec<(u64, Option<Range<u64>>)> {
        let mut ahead = ReadAhead::default();
        let mut all = Vec::new();
        for &index in reads {
            let mut closed = None;
            let file = (FileId(1), index);
            match ahead.before(spec, file, blocks, || StreamId(9), &mut closed) {
                Some(Advice::Disclose(_, range)) => all.push((index, Some(range))),
                Some(Advice::TakeBack(_)) => all.push((index, None)),
                None => {}
            }
        }
        all
    }

    #[test]
    fn windows_grow_while_reads_are_in_sequence() {
        let spec = ReadAheadSpec { first_blocks: 4, most_blocks: 16 };
        let reads: Vec<u64> = (0..40).collect();
        let windows = [(0, 0..4), (2, 4..12), (8, 12..28), (20, 28..40)];
        let windows = windows.map(|(at, range)| (at, Some(range)));
        assert_eq!(advice(spec, 40, &reads), windows);
    }

    #[test]
    fn a_jump_takes_back_and_two_in_sequence_begin_anew() {
        let spec = ReadAheadSpec { first_blocks: 4, most_blocks: 16 };
        let expected = [(0, Some(0..4)), (50, None), (51, Some(51..55))];
        assert_eq!(advice(spec, 100, &[0, 1, 50, 51, 51]), expected);
        // Who begins in the middle has to show that he reads on.
        assert_eq!(advice(spec, 100, &[7, 30, 31]), [(31, Some(31..35))]);
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        assert_eq!(advice(ReadAheadSpec::OSF1, 3, &[0, 1, 2, 2]), [(0, Some(0..3))]);
        assert_eq!(ReadAheadSpec::linux(8192).first_blocks, 16);
    }

    #[test]
    fn what_was_read_longest_ago_is_forgotten() {
        let mut ahead = ReadAhead::default();
        let mut closed = Vec::new();
        for file in 0..FILES_MAX as u64 + 2 {
            let mut gone = None;
            ahead.before(ReadAheadSpec::OSF1, (FileId(file), 0), 9, || StreamId(file), &mut gone);
            closed.extend(gone);
        }
        assert_eq!(closed, [StreamId(0), StreamId(1)]);
        assert_eq!(ahead.end().count(), FILES_MAX);
    }
}
