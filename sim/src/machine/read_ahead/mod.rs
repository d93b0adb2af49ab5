//! Read-ahead: a kernel's disclosures to itself because of sequential reads.
//!
//! Read-ahead is a hinter like others, with a stream for each run of reads. So all buffers belong to the policy. Under `tip1`,
//! which compares no values, a window is fetched at once, as by a kernel. Under other rules it competes like other hints. A
//! call for several blocks requests all of them at once, with or without read-ahead.
//!
//! * [`ReadAheadSpec::Doubling`]: for each file that a program reads, a *window* of blocks is disclosed. When half of it is
//!   read, the next window is disclosed, which is longer. A call out of sequence cancels the disclosure, and two calls in
//!   sequence begin anew. A read of a file's first block begins a sequence.
//! * [`ReadAheadSpec::Linux`]: page by page, by the last call, the last window, the marks of windows and the pages in memory
//!   (`linux.rs` has the rules, and the differences). It follows interleaved runs, and other reads do not interrupt them.
//!
//! Files that their program discloses are not read ahead. For each program, the files that it read last are followed.

mod linux;

use std::collections::VecDeque;
use std::ops::Range;

use foretell_policy::{FileId, StreamId};

use linux::{Asked, OpenFile, PAGE_BYTES, Scene};

/// Files that are followed for each program.
const FILES_MAX: usize = 64;

/// The rules of read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAheadSpec {
    /// Each window is twice as long as the one before, and is requested when half of that is read.
    Doubling {
        /// The first window, blocks.
        first_blocks: u64,
        /// The longest window, blocks.
        most_blocks: u64,
    },
    /// The rules of Linux (`mm/readahead.c`).
    Linux {
        /// Bytes of a block.
        block_bytes: u64,
        /// The longest window, pages of 4 KiB.
        most_pages: u64,
    },
}

/// Bytes of Linux's longest window by default.
const LINUX_WINDOW_BYTES: u64 = 128 << 10;

impl ReadAheadSpec {
    /// OSF/1 in TIP 1995: clusters of 8 blocks of 8 KB, up to 8 clusters.
    pub const OSF1: ReadAheadSpec = ReadAheadSpec::Doubling { first_blocks: 8, most_blocks: 64 };

    /// Linux by default: up to 128 KiB.
    pub fn linux(block_bytes: u64) -> Self {
        ReadAheadSpec::Linux { block_bytes, most_pages: LINUX_WINDOW_BYTES / PAGE_BYTES }
    }
}

/// The blocks of a call, and the bytes that it reads.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) file: FileId,
    pub(super) first: u64,
    pub(super) blocks: u64,
    pub(super) bytes: Range<u64>,
}

/// Changes of streams, to be made in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Cancels the hints of this stream.
    TakeBack(StreamId),
    /// Discloses these blocks of the call's file; at least one.
    Disclose(StreamId, Range<u64>),
    /// Closes this stream.
    Close(StreamId),
}

/// The state of the machine before a call.
pub(super) struct Circumstances<'a> {
    /// Blocks of its file.
    pub(super) in_file: u64,
    /// Opens a stream.
    pub(super) open: &'a mut dyn FnMut() -> StreamId,
    /// Whether a block of its file is in memory or in flight.
    pub(super) is_there: &'a dyn Fn(u64) -> bool,
    /// Number of buffers.
    pub(super) capacity_blocks: u64,
}

/// A file that is being read.
#[derive(Debug)]
enum Followed {
    Doubling(Sequence),
    Linux(OpenFile),
}

/// The read-ahead of one program; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Least recently read first.
    files: VecDeque<(FileId, Followed)>,
    /// For Linux: blocks requested so far.
    asked: Asked,
}

impl ReadAhead {
    /// Adds the changes of streams before a call to `advice`.
    pub(super) fn before(
        &mut self,
        spec: Option<ReadAheadSpec>,
        call: Call,
        circumstances: Circumstances<'_>,
        advice: &mut Vec<Advice>,
    ) {
        if spec.is_none() && call.blocks <= 1 {
            return;
        }
        let Circumstances { in_file, open, is_there, capacity_blocks } = circumstances;
        let file = call.file;
        let at = self.files.iter().position(|(file, _)| *file == call.file);
        let mut followed = match at.and_then(|at| self.files.remove(at)) {
            Some((_, followed)) => followed,
            None => {
                if self.files.len() == FILES_MAX
                    && let Some((_, oldest)) = self.files.pop_front()
                {
                    advice.extend(oldest.streams().map(Advice::Close));
                }
                match spec {
                    Some(ReadAheadSpec::Linux { .. }) => Followed::Linux(OpenFile::default()),
                    _ => Followed::Doubling(Sequence::new(open())),
                }
            }
        };
        match (&mut followed, spec) {
            (Followed::Linux(file), Some(ReadAheadSpec::Linux { block_bytes, most_pages })) => {
                let blocks = call.first..call.first.saturating_add(call.blocks).min(in_file);
                let before = self.asked;
                let asked = &mut self.asked;
                file.call(
                    call.bytes,
                    blocks,
                    Scene { block_bytes, most_pages, in_file, open, is_there, advice, asked },
                );
                if self.asked > before {
                    let then = self.asked.saturating_sub(capacity_blocks / 2);
                    let others = self.files.iter_mut().map(|(_, followed)| followed);
                    for followed in others.chain([&mut followed]) {
                        if let Followed::Linux(file) = followed {
                            file.age(then, advice);
                        }
                    }
                }
            }
            (Followed::Doubling(sequence), spec) => sequence.call(spec, call, in_file, advice),
            (Followed::Linux(_), _) => unreachable!("a machine has one read-ahead"),
        }
        self.files.push_back((file, followed));
    }

    /// The program has opened the file.
    pub(super) fn opened(&mut self, file: FileId) {
        let followed = self.files.iter_mut().find(|(followed, _)| *followed == file);
        if let Some((_, Followed::Linux(file))) = followed {
            file.opened();
        }
    }

    /// Returns all streams, which are to be closed.
    pub(super) fn end(&mut self) -> Vec<StreamId> {
        self.files
            .drain(..)
            .flat_map(|(_, followed)| followed.streams().collect::<Vec<_>>())
            .collect()
    }
}

impl Followed {
    fn streams(&self) -> impl Iterator<Item = StreamId> {
        let (sequence, file) = match self {
            Followed::Doubling(sequence) => (Some(sequence.stream), None),
            Followed::Linux(file) => (None, Some(file)),
        };
        sequence.into_iter().chain(file.into_iter().flat_map(OpenFile::streams))
    }
}

/// A file under [`ReadAheadSpec::Doubling`], or without read-ahead.
#[derive(Debug)]
struct Sequence {
    stream: StreamId,
    /// The block that would be next in sequence.
    next: u64,
    /// The end of the disclosed blocks.
    until: u64,
    /// The present window, blocks; 0 while reads are out of sequence.
    window: u64,
}

impl Sequence {
    fn new(stream: StreamId) -> Self {
        // A read of the first block is in sequence, another one is not.
        Sequence { stream, next: 0, until: 0, window: 0 }
    }

    fn call(
        &mut self,
        spec: Option<ReadAheadSpec>,
        call: Call,
        in_file: u64,
        advice: &mut Vec<Advice>,
    ) {
        let Call { first, blocks, .. } = call;
        let goes_on = first == self.next || first + 1 == self.next;
        let end = first.saturating_add(blocks);
        self.next = end;
        let range = match spec {
            Some(ReadAheadSpec::Doubling { first_blocks, most_blocks }) if goes_on => {
                self.go_on((first_blocks, most_blocks), first, end)
            }
            _ => {
                if std::mem::take(&mut self.window) > 0 {
                    advice.push(Advice::TakeBack(self.stream));
                }
                (blocks > 1).then_some(first..end)
            }
        };
        let range = range.map(|range| range.start..range.end.min(in_file));
        if let Some(range) = range.filter(|range| !range.is_empty()) {
            advice.push(Advice::Disclose(self.stream, range));
        }
    }

    /// The disclosure for a call in sequence: its blocks, and windows.
    fn go_on(&mut self, lengths: (u64, u64), first: u64, end: u64) -> Option<Range<u64>> {
        let (first_blocks, most_blocks) = lengths;
        let from = if self.window == 0 { first } else { self.until };
        if self.window == 0 {
            self.extend(first, first_blocks, 1);
        }
        // The block in the middle of the window requests the next one.
        while self.until.saturating_sub(self.window / 2) < end {
            let window = (2 * self.window).min(most_blocks);
            // Windows do not grow any more: all windows of a long call at once.
            let is_steady = window == self.window;
            let marked = self.until - self.window / 2;
            let windows = if is_steady { (end - marked).div_ceil(window) } else { 1 };
            self.extend(self.until, window, windows);
        }
        (self.until > from).then_some(from..self.until)
    }

    /// Adds `windows` windows of `window` blocks each, from `from` on.
    fn extend(&mut self, from: u64, window: u64, windows: u64) {
        self.window = window;
        self.until = from.saturating_add(window.saturating_mul(windows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of these calls does, in a file of `in_file` blocks of which none is in memory: the call's first block, whether
    /// hints are cancelled, and the disclosure.
    fn advice_of(
        spec: Option<ReadAheadSpec>,
        in_file: u64,
        calls: &[(u64, u64)],
    ) -> Vec<(u64, bool, Option<Range<u64>>)> {
        let mut ahead = ReadAhead::default();
        let mut all = Vec::new();
        for &(first, blocks) in calls {
            let call = call(1, first, blocks);
            let advice = call_of(&mut ahead, spec, call, in_file, StreamId(9));
            if advice.is_empty() {
                continue;
            }
            let takes_back = advice.contains(&Advice::TakeBack(StreamId(9)));
            let range = advice.into_iter().find_map(|advice| match advice {
                Advice::Disclose(_, range) => Some(range),
                Advice::TakeBack(_) | Advice::Close(_) => None,
            });
            all.push((first, takes_back, range));
        }
        all
    }

    /// A call for blocks of 8 KiB.
    fn call(file: u64, first: u64, blocks: u64) -> Call {
        let bytes = first * 8192..(first + blocks) * 8192;
        Call { file: FileId(file), first, blocks, bytes }
    }

    fn call_of(
        ahead: &mut ReadAhead,
        spec: Option<ReadAheadSpec>,
        call: Call,
        in_file: u64,
        stream: StreamId,
    ) -> Vec<Advice> {
        let mut advice = Vec::new();
        let circumstances = Circumstances {
            in_file,
            open: &mut || stream,
            is_there: &|_| false,
            capacity_blocks: 1 << 20,
        };
        ahead.before(spec, call, circumstances, &mut advice);
        advice
    }

    /// [`advice_of`] for calls for one block, which either cancel or disclose.
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
        // Nor after the first block of a file, which is requested alone.
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
        // A sequence that begins in the middle needs a second read.
        assert_eq!(advice(spec, 100, &[7, 30, 31]), [(31, Some(31..35))]);
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        assert_eq!(advice(ReadAheadSpec::OSF1, 3, &[0, 1, 2, 2]), [(0, Some(0..3))]);
    }

    #[test]
    fn what_was_read_longest_ago_is_forgotten() {
        for spec in [ReadAheadSpec::OSF1, ReadAheadSpec::linux(8192)] {
            let mut ahead = ReadAhead::default();
            let mut closed = Vec::new();
            for file in 0..FILES_MAX as u64 + 2 {
                let advice = call_of(&mut ahead, Some(spec), call(file, 0, 1), 9, StreamId(file));
                closed.extend(advice.into_iter().filter_map(|advice| match advice {
                    Advice::Close(stream) => Some(stream),
                    Advice::TakeBack(_) | Advice::Disclose(..) => None,
                }));
            }
            assert_eq!(closed, [StreamId(0), StreamId(1)]);
            assert_eq!(ahead.end().len(), FILES_MAX);
        }
    }
}
