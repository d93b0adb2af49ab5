//! Read-ahead: what a kernel discloses to itself because reads were in sequence.
//!
//! It is a hinter like others. For each file that a program reads, a stream of its own names a *window* of
//! blocks, and the next one, which is longer, when so much of it is read; [`ReadAheadSpec`] says how long and how much.
//! A call out of sequence takes back what was disclosed, and two in sequence begin anew; of several blocks it asks for
//! all of them at once, whether anything is read ahead or not. A file whose first block
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
pub enum ReadAheadSpec {
    /// Each window is twice as long as the one before, and is asked for when half of that is read.
    Doubling {
        /// The first window, blocks.
        first_blocks: u64,
        /// The longest window, blocks.
        most_blocks: u64,
    },
    /// Linux's (`mm/readahead.c` with an `io_pages` of no more than a window), without what that finds out from the pages in memory. The first window is four times as long as
    /// the call, rounded up to a power of two, if that is up to a 32nd of the longest, twice if it is up to a quarter, else the longest; the block after the
    /// call asks for the next one. That is four times as long as the one before if this is below a 16th of the longest, or
    /// else twice, and its first block asks for the one after it. A call for a file's first block begins anew.
    Linux {
        /// Blocks of a page, or of a block if that is larger: no call is for fewer.
        page_blocks: u64,
        /// The longest window, blocks.
        most_blocks: u64,
    },
}

/// Bytes of Linux's page, and of its longest window as it comes.
const LINUX_PAGE_BYTES: u64 = 4096;
const LINUX_WINDOW_BYTES: u64 = 128 << 10;

/// A part of a file that is read ahead at once.
#[derive(Clone, Copy, Debug)]
struct Window {
    blocks: u64,
    /// So many blocks before its end is the one whose read asks for the next window.
    ahead_blocks: u64,
}

impl ReadAheadSpec {
    /// OSF/1's of TIP 1995: clusters of 8 blocks of 8 KB, up to 8 of them.
    pub const OSF1: ReadAheadSpec = ReadAheadSpec::Doubling { first_blocks: 8, most_blocks: 64 };

    /// Linux's as it comes: up to 128 KiB.
    pub fn linux(block_bytes: u64) -> Self {
        let blocks = |bytes: u64| (bytes / block_bytes).max(1);
        let (page_blocks, most_blocks) = (blocks(LINUX_PAGE_BYTES), blocks(LINUX_WINDOW_BYTES));
        ReadAheadSpec::Linux { page_blocks, most_blocks }
    }

    /// The window that begins with a call for so many blocks.
    fn first(self, call_blocks: u64) -> Window {
        match self {
            ReadAheadSpec::Doubling { first_blocks, .. } => {
                Window { blocks: first_blocks, ahead_blocks: first_blocks / 2 }
            }
            ReadAheadSpec::Linux { page_blocks, most_blocks } => {
                let call = call_blocks.max(page_blocks);
                let blocks = match call.min(most_blocks).next_power_of_two() {
                    call if 32 * call <= most_blocks => 4 * call,
                    call if 4 * call <= most_blocks => 2 * call,
                    _ => most_blocks,
                };
                let ahead_blocks = if blocks > call { blocks - call } else { blocks };
                Window { blocks, ahead_blocks }
            }
        }
    }

    /// The window after one of so many blocks.
    fn next(self, blocks: u64) -> Window {
        match self {
            ReadAheadSpec::Doubling { most_blocks, .. } => {
                let blocks = (2 * blocks).min(most_blocks);
                Window { blocks, ahead_blocks: blocks / 2 }
            }
            ReadAheadSpec::Linux { most_blocks, .. } => {
                let blocks = match blocks {
                    few if 16 * few < most_blocks => 4 * few,
                    some if 2 * some <= most_blocks => 2 * some,
                    _ => most_blocks,
                };
                Window { blocks, ahead_blocks: blocks }
            }
        }
    }

    /// Whether a call for a file's first block is in sequence whatever was read before.
    fn begins_anew(self) -> bool {
        matches!(self, ReadAheadSpec::Linux { .. })
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
    /// The block whose read asks for the next window.
    marked: u64,
}

/// Blocks that one call asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) file: FileId,
    pub(super) first: u64,
    pub(super) blocks: u64,
}

/// What is to be taken back, and then to be disclosed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// The stream of the file.
    pub(super) stream: StreamId,
    /// Whether all that it has disclosed is taken back.
    pub(super) takes_back: bool,
    /// The blocks of the file that it discloses; some.
    pub(super) discloses: Option<Range<u64>>,
}

/// The read-ahead of one program; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Read longest ago first.
    files: VecDeque<Followed>,
}

impl ReadAhead {
    /// A call is about to be made for blocks of a file of `in_file` blocks. `open` makes a stream for a file that is
    /// new; a stream that is not needed any more is put into `closed`.
    pub(super) fn before(
        &mut self,
        spec: Option<ReadAheadSpec>,
        call: Call,
        in_file: u64,
        open: impl FnOnce() -> StreamId,
        closed: &mut Option<StreamId>,
    ) -> Option<Advice> {
        if spec.is_none() && call.blocks <= 1 {
            return None;
        }
        let at = self.files.iter().position(|followed| followed.file == call.file);
        let mut followed = match at.and_then(|at| self.files.remove(at)) {
            Some(followed) => followed,
            None => {
                if self.files.len() == FILES_MAX {
                    *closed = self.files.pop_front().map(|oldest| oldest.stream);
                }
                // Its first block would be in sequence; any other is not.
                Followed {
                    file: call.file,
                    stream: open(),
                    next: 0,
                    until: 0,
                    window: 0,
                    marked: 0,
                }
            }
        };
        let advice = followed.call(spec, call, in_file);
        self.files.push_back(followed);
        advice
    }

    /// All streams, which are not needed any more.
    pub(super) fn end(&mut self) -> impl Iterator<Item = StreamId> {
        self.files.drain(..).map(|followed| followed.stream)
    }
}

impl Followed {
    fn call(&mut self, spec: Option<ReadAheadSpec>, call: Call, in_file: u64) -> Option<Advice> {
        let Call { first, blocks, .. } = call;
        let goes_on = first == self.next || first + 1 == self.next;
        let end = first.saturating_add(blocks);
        self.next = end;
        let (mut takes_back, mut range) = (false, None);
        match spec {
            Some(spec) if goes_on => range = self.go_on(spec, first, end),
            Some(spec) if first == 0 && spec.begins_anew() => {
                takes_back = std::mem::take(&mut self.window) > 0;
                range = self.go_on(spec, first, end);
            }
            _ => {
                takes_back = std::mem::take(&mut self.window) > 0;
                if blocks > 1 {
                    range = Some(first..end);
                }
            }
        }
        let range = range.map(|range| range.start..range.end.min(in_file));
        let discloses = range.filter(|range| !range.is_empty());
        let advice = Advice { stream: self.stream, takes_back, discloses };
        (advice.takes_back || advice.discloses.is_some()).then_some(advice)
    }

    /// What is disclosed for a call in sequence: the call, and windows.
    fn go_on(&mut self, spec: ReadAheadSpec, first: u64, end: u64) -> Option<Range<u64>> {
        let from = if self.window == 0 { first } else { self.until };
        if self.window == 0 {
            self.extend(first, spec.first(end - first), 1);
        }
        while self.marked < end {
            let window = spec.next(self.window);
            // They grow no more: all that a long call asks for, at once.
            let is_steady = window.blocks == self.window;
            let windows = if is_steady { (end - self.marked).div_ceil(window.blocks) } else { 1 };
            self.extend(self.until, window, windows);
        }
        (self.until > from).then_some(from..self.until)
    }

    /// So many windows, one after another from `from` on.
    fn extend(&mut self, from: u64, window: Window, windows: u64) {
        self.window = window.blocks;
        self.until = from.saturating_add(window.blocks.saturating_mul(windows));
        self.marked = self.until.saturating_sub(window.ahead_blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What calls for blocks of one file of `in_file` blocks lead to: of whom, whether something is taken back, and what
    /// is disclosed.
    fn advice_of(
        spec: Option<ReadAheadSpec>,
        in_file: u64,
        calls: &[(u64, u64)],
    ) -> Vec<(u64, bool, Option<Range<u64>>)> {
        let mut ahead = ReadAhead::default();
        let mut all = Vec::new();
        for &(first, blocks) in calls {
            let call = Call { file: FileId(1), first, blocks };
            let advice = ahead.before(spec, call, in_file, || StreamId(9), &mut None);
            all.extend(advice.map(|advice| (first, advice.takes_back, advice.discloses)));
        }
        all
    }

    /// The same for calls for one block, which do not both.
    fn advice(spec: ReadAheadSpec, blocks: u64, reads: &[u64]) -> Vec<(u64, Option<Range<u64>>)> {
        let calls: Vec<(u64, u64)> = reads.iter().map(|&read| (read, 1)).collect();
        let all = advice_of(Some(spec), blocks, &calls);
        let one = |(read, takes_back, range): (u64, bool, Option<Range<u64>>)| {
            assert_ne!(takes_back, range.is_some());
            (read, range)
        };
        all.into_iter().map(one).collect()
    }

    #[test]
    fn a_call_out_of_sequence_asks_for_its_blocks_and_no_more() {
        let random = [(50, 2), (20, 2), (70, 1), (30, 3)];
        let expected =
            [(50, false, Some(50..52)), (20, false, Some(20..22)), (30, false, Some(30..33))];
        for spec in [None, Some(ReadAheadSpec::linux(8192))] {
            assert_eq!(advice_of(spec, 100, &random), expected);
        }
        // Nor is anything read ahead of the first block of a file, but what is asked for.
        assert_eq!(advice_of(None, 100, &[(0, 2), (2, 1)]), [(0, false, Some(0..2))]);
    }

    #[test]
    fn a_call_in_sequence_is_read_ahead_of_and_a_jump_does_both() {
        let spec = ReadAheadSpec::Doubling { first_blocks: 4, most_blocks: 8 };
        let expected = [
            (0, false, Some(0..4)),
            (2, false, Some(4..12)),
            (8, false, Some(12..44)),
            (50, true, Some(50..52)),
            (52, false, Some(52..56)),
        ];
        let calls = [(0, 2), (2, 2), (4, 4), (8, 32), (50, 2), (52, 2)];
        assert_eq!(advice_of(Some(spec), 100, &calls), expected);
    }

    #[test]
    fn windows_grow_while_reads_are_in_sequence() {
        let spec = ReadAheadSpec::Doubling { first_blocks: 4, most_blocks: 16 };
        let reads: Vec<u64> = (0..40).collect();
        let windows = [(0, 0..4), (2, 4..12), (8, 12..28), (20, 28..40)];
        let windows = windows.map(|(at, range)| (at, Some(range)));
        assert_eq!(advice(spec, 40, &reads), windows);
    }

    #[test]
    fn a_jump_takes_back_and_two_in_sequence_begin_anew() {
        let spec = ReadAheadSpec::Doubling { first_blocks: 4, most_blocks: 16 };
        let expected = [(0, Some(0..4)), (50, None), (51, Some(51..55))];
        assert_eq!(advice(spec, 100, &[0, 1, 50, 51, 51]), expected);
        // Who begins in the middle has to show that he reads on.
        assert_eq!(advice(spec, 100, &[7, 30, 31]), [(31, Some(31..35))]);
    }

    #[test]
    fn linux_windows_are_as_long_as_its_own() {
        // Calls of one page each, then of 64 KiB: what `mm/readahead.c` asks for, in pages.
        let pages = ReadAheadSpec::linux(4096);
        let reads: Vec<u64> = (0..60).collect();
        let windows = [(0, 0..4), (1, 4..12), (4, 12..28), (12, 28..60), (28, 60..92)];
        assert_eq!(advice(pages, 1000, &reads), windows.map(|(at, range)| (at, Some(range))));
        // A call as long as the longest window asks for the next one, too.
        let expected = [(0, false, Some(0..64)), (32, false, Some(64..96))];
        assert_eq!(advice_of(Some(pages), 1000, &[(0, 32), (32, 16)]), expected);
        // A longer one for as many as it goes through.
        let of_call = |blocks: u64, calls: u64| -> Vec<Option<u64>> {
            let calls: Vec<(u64, u64)> = (0..calls).map(|call| (call * blocks, blocks)).collect();
            let all = advice_of(Some(pages), 1 << 20, &calls);
            all.into_iter().map(|(_, _, range)| range.map(|range| range.end)).collect()
        };
        assert_eq!(of_call(31, 3), [32, 96, 128].map(Some));
        assert_eq!(of_call(48, 3), [96, 128, 192].map(Some));
        assert_eq!(of_call(256, 2), [288, 544].map(Some));
        // Blocks of another size are so many pages.
        let expected = [(0, 0..2), (1, 2..6), (2, 6..14), (6, 14..30)];
        let expected = expected.map(|(at, range)| (at, Some(range)));
        assert_eq!(advice(ReadAheadSpec::linux(8192), 1000, &reads[..7]), expected);
        let few = advice(ReadAheadSpec::linux(512), 1000, &[0]);
        assert_eq!(few, [(0, Some(0..32))]);
        let large = advice(ReadAheadSpec::linux(1 << 20), 1000, &[0, 1]);
        assert_eq!(large, [(0, Some(0..2)), (1, Some(2..3))]);
    }

    #[test]
    fn linux_begins_anew_with_the_first_block() {
        let spec = Some(ReadAheadSpec::linux(4096));
        let expected = [(0, false, Some(0..4)), (1, false, Some(4..12)), (0, true, Some(0..4))];
        assert_eq!(advice_of(spec, 100, &[(0, 1), (1, 1), (0, 1)]), expected);
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        assert_eq!(advice(ReadAheadSpec::OSF1, 3, &[0, 1, 2, 2]), [(0, Some(0..3))]);
    }

    #[test]
    fn what_was_read_longest_ago_is_forgotten() {
        let mut ahead = ReadAhead::default();
        let mut closed = Vec::new();
        for file in 0..FILES_MAX as u64 + 2 {
            let mut gone = None;
            let call = Call { file: FileId(file), first: 0, blocks: 1 };
            ahead.before(Some(ReadAheadSpec::OSF1), call, 9, || StreamId(file), &mut gone);
            closed.extend(gone);
        }
        assert_eq!(closed, [StreamId(0), StreamId(1)]);
        assert_eq!(ahead.end().count(), FILES_MAX);
    }
}
