//! Linux's read-ahead of one open file, by the rules of `mm/readahead.c`: by the last call, the last window, and the pages in
//! memory.
//!
//! Page by page of a call:
//! * **A. Missing.** A window begins at a missing page in these cases:
//!   * The page is the file's first one, or one of the two after the last call; or the call is longer than the longest window.
//!     The call's length is rounded up to a power of two. If the rounded length is up to a 32nd of the longest window, the
//!     window is four times as long as it; if it is up to a quarter, twice as long; otherwise it is the longest window.
//!   * More pages than the call wants are in memory just before the page. The window is as long as these pages and the call
//!     together, up to the longest window. If these pages go back to the file's first page, they count twice.
//!
//!   Otherwise only the pages of the call are read, and the state stays as it was.
//! * **B. Marked.** Each window has a mark on one page: the first after the call, or after the window before. A read of that
//!   page requests the next window. That window is four times as long as the last one if the last one is shorter than a 16th of
//!   the longest window, and twice as long otherwise. If the mark is not of the last window, the next window begins at the
//!   first missing page, and its length follows in the same way from the number of pages in memory up to there and the call. If
//!   that number of pages is the longest window already, there is no next window.
//!
//! So a second run in the same file, and reads of pages in memory, do not interrupt a run. A mark outlives its window.
//!
//! Differences from a kernel:
//! * Pages that were requested and are not read yet count as in memory, whatever the policy does with them.
//! * In a kernel, pages of an abandoned window age. Here the window is cancelled when half as many blocks as memory has were
//!   requested since, or when [`RUNS_MAX`] other runs of the file are in use. So of more interleaved runs a little less is read
//!   ahead.
//! * Marks belong to the program, not to the page. The last call belongs to the program, not to the open file.
//! * Not modelled: an `io_pages` longer than a window, advice, and windows of kernels since 6.16 that end a few pages early,
//!   at a large folio.

use std::collections::VecDeque;
use std::ops::Range;

use foretell_policy::StreamId;

use super::Advice;

/// Interleaved runs of a file that are followed.
const RUNS_MAX: usize = 16;

/// Marks of a file that are kept: more than it has runs, since some belong to abandoned runs.
const MARKS_MAX: usize = 4 * RUNS_MAX;

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Adjacent windows that were requested.
#[derive(Debug)]
struct Run {
    stream: StreamId,
    /// Pages are read up to `read`, and disclosed up to `until`.
    read: u64,
    until: u64,
    /// `until` in blocks.
    until_block: u64,
    /// When it was used last.
    used: Asked,
}

/// Time, as the number of blocks that a program had requested.
pub(super) type Asked = u64;

impl Run {
    /// Whether a page was requested, and is not read.
    fn is_ahead(&self, page: u64) -> bool {
        (self.read..self.until).contains(&page)
    }
}

/// The state of a file; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct OpenFile {
    /// The page at the end of the last call: the next one if that was at a page's end.
    next: Option<u64>,
    /// Pages of the present call that were handled or requested.
    called: Range<u64>,
    /// The last window: its first page, its length, and its pages from the mark on.
    start: u64,
    pages: u64,
    ahead: u64,
    runs: Vec<Run>,
    /// Marked pages, which request the next window when they are read, oldest mark first.
    marks: VecDeque<u64>,
    /// The stream of calls without read-ahead.
    alone: Option<StreamId>,
}

/// The state of the machine before a call.
pub(super) struct Scene<'a> {
    pub(super) block_bytes: u64,
    /// The longest window.
    pub(super) most_pages: u64,
    /// Blocks of the file.
    pub(super) in_file: u64,
    /// Opens a stream.
    pub(super) open: &'a mut dyn FnMut() -> StreamId,
    /// Whether a block of the file is in memory or in flight.
    pub(super) is_there: &'a dyn Fn(u64) -> bool,
    pub(super) advice: &'a mut Vec<Advice>,
    /// The present time.
    pub(super) asked: &'a mut Asked,
}

impl Scene<'_> {
    /// The block that a page begins in.
    fn block_of(&self, page: u64) -> u64 {
        page.saturating_mul(PAGE_BYTES) / self.block_bytes
    }

    /// Blocks that lie in these pages, entirely or in part.
    fn blocks_of(&self, pages: &Range<u64>) -> Range<u64> {
        let end = pages.end.saturating_mul(PAGE_BYTES).div_ceil(self.block_bytes);
        self.block_of(pages.start)..end.min(self.in_file)
    }

    /// The page that a block begins in.
    fn page_of(&self, block: u64) -> u64 {
        block.saturating_mul(self.block_bytes) / PAGE_BYTES
    }

    /// Discloses those of these blocks that are neither in memory nor disclosed by a run.
    fn disclose(&mut self, stream: StreamId, blocks: Range<u64>, runs: &[Run]) {
        let is_known = |scene: &Self, block| {
            (scene.is_there)(block) || runs.iter().any(|run| run.is_ahead(scene.page_of(block)))
        };
        let mut from = blocks.start;
        while from < blocks.end {
            let mut rest = from..blocks.end;
            let Some(missing) = rest.find(|&block| !is_known(self, block)) else { return };
            let end = rest.find(|&block| is_known(self, block)).unwrap_or(blocks.end);
            self.advice.push(Advice::Disclose(stream, missing..end));
            *self.asked += end - missing;
            from = end;
        }
    }
}

impl OpenFile {
    /// The file is opened anew.
    pub(super) fn opened(&mut self) {
        (self.next, self.start, self.pages, self.ahead) = (None, 0, 0, 0);
    }

    /// Handles a call for these bytes, which lie in these blocks of the file.
    pub(super) fn call(&mut self, bytes: Range<u64>, blocks: Range<u64>, mut scene: Scene<'_>) {
        let scene = &mut scene;
        if bytes.is_empty() {
            return;
        }
        let end = bytes.end.div_ceil(PAGE_BYTES);
        let start = bytes.start / PAGE_BYTES;
        self.called = start..start;
        for page in start..end {
            let wanted = end - page;
            if self.is_known(page, scene) {
                if let Some(mark) = self.marks.iter().position(|&mark| mark == page) {
                    self.marks.remove(mark);
                    self.go_on(page, wanted, scene);
                }
            } else if !self.begin(page, wanted, scene) {
                self.ask_for(page..end, &blocks, scene);
                self.called.end = end;
            }
            self.called.end = self.called.end.max(page + 1);
            for run in self.runs.iter_mut().filter(|run| run.is_ahead(page)) {
                (run.read, run.used) = (page + 1, *scene.asked);
            }
        }
        self.called = 0..0;
        self.next = Some(bytes.end / PAGE_BYTES);
    }

    /// Cancels runs that were not read since `then`.
    pub(super) fn age(&mut self, then: Asked, advice: &mut Vec<Advice>) {
        for run in self.runs.iter_mut().filter(|run| run.read < run.until && run.used < then) {
            advice.push(Advice::TakeBack(run.stream));
            run.read = run.until;
        }
    }

    /// All streams, which are to be closed.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.runs.iter().map(|run| run.stream).chain(self.alone)
    }

    /// Whether a page is in memory or requested.
    fn is_known(&self, page: u64, scene: &Scene<'_>) -> bool {
        self.called.contains(&page)
            || self.runs.iter().any(|run| run.is_ahead(page))
            || (scene.is_there)(scene.block_of(page))
    }

    /// A: begins a window at a missing page, if one begins there. `wanted`: pages of the call from there on. Returns whether
    /// it did.
    fn begin(&mut self, page: u64, wanted: u64, scene: &mut Scene<'_>) -> bool {
        let most = scene.most_pages;
        let goes_on = self.next.is_some_and(|next| (next..=next.saturating_add(1)).contains(&page));
        let (pages, ahead) = if page == 0 || wanted > most || goes_on {
            let pages = first_window(wanted, most);
            (pages, if pages > wanted { pages - wanted } else { pages / 2 })
        } else {
            let before = (page.saturating_sub(most)..page).rev();
            let known = before.take_while(|&page| self.is_known(page, scene)).count() as u64;
            if known <= wanted {
                return false;
            }
            let is_all = known == page;
            ((if is_all { 2 * known } else { known } + wanted).min(most), 1)
        };
        (self.start, self.pages, self.ahead) = (page, pages, ahead);
        let run = self.run_for(page, scene);
        self.extend(run, scene);
        true
    }

    /// B: the window after a mark.
    fn go_on(&mut self, page: u64, wanted: u64, scene: &mut Scene<'_>) {
        let most = scene.most_pages;
        if page == self.start + self.pages - self.ahead {
            (self.start, self.pages) = (self.start + self.pages, next_window(self.pages, most));
        } else {
            let behind = page + 1..page + 1 + most;
            let known = behind.take_while(|&page| self.is_known(page, scene)).count() as u64;
            if known == most {
                return;
            }
            self.start = page + 1 + known;
            self.pages = next_window(1 + known + wanted, most);
        }
        self.ahead = self.pages;
        let run = self.run_for(self.start, scene);
        self.extend(run, scene);
    }

    /// The run for a window that begins at this page: the run that ends there, or else a run that is read, or a new one.
    fn run_for(&mut self, page: u64, scene: &mut Scene<'_>) -> usize {
        if let Some(same) = self.runs.iter().position(|run| run.until == page) {
            return same;
        }
        let (read, until_block, used) = (page, scene.block_of(page), *scene.asked);
        let run = |stream| Run { stream, read, until: page, until_block, used };
        let is_over = |(_, run): &(usize, &Run)| run.read >= run.until;
        let over = self.runs.iter().enumerate().find(is_over).map(|(index, _)| index);
        if let Some(index) = over {
            self.runs[index] = run(self.runs[index].stream);
            return index;
        }
        if self.runs.len() < RUNS_MAX {
            self.runs.push(run((scene.open)()));
            return self.runs.len() - 1;
        }
        let all = self.runs.iter().enumerate();
        let (oldest, _) = all.min_by_key(|(_, run)| run.used).expect("there are some");
        let stream = self.runs[oldest].stream;
        scene.advice.push(Advice::TakeBack(stream));
        self.runs[oldest] = run(stream);
        oldest
    }

    /// Discloses the window, and marks its page.
    fn extend(&mut self, run: usize, scene: &mut Scene<'_>) {
        let window = self.start..self.start + self.pages;
        let marked = window.end - self.ahead;
        let blocks = scene.blocks_of(&window);
        // A block longer than a window was requested with the window before.
        let Run { stream, until, until_block, .. } = self.runs[run];
        debug_assert_eq!(window.start, until, "the run is one for this window");
        let from = until_block.max(blocks.start);
        // A page that is in memory already gets no mark. Pages that come anew lose old marks.
        let is_new = scene.block_of(marked) < from || !self.is_known(marked, scene);
        self.unmark(&window, scene);
        scene.disclose(stream, from..blocks.end, &self.runs);
        if is_new && !self.marks.contains(&marked) {
            self.marks.push_back(marked);
            if self.marks.len() > MARKS_MAX {
                self.marks.pop_front();
            }
        }
        let run = &mut self.runs[run];
        let file_end = scene.in_file.saturating_mul(scene.block_bytes).div_ceil(PAGE_BYTES);
        (run.until, run.until_block) = (window.end.min(file_end).max(window.start), blocks.end);
        run.used = *scene.asked;
    }

    /// Removes the marks of those of these pages that have left memory.
    fn unmark(&mut self, pages: &Range<u64>, scene: &Scene<'_>) {
        let mut marks = std::mem::take(&mut self.marks);
        marks.retain(|mark| !pages.contains(mark) || self.is_known(*mark, scene));
        self.marks = marks;
    }

    /// Requests the blocks of a call from its first missing page on, without read-ahead. A single block needs no disclosure.
    fn ask_for(&mut self, pages: Range<u64>, of_call: &Range<u64>, scene: &mut Scene<'_>) {
        let mut blocks = scene.blocks_of(&pages);
        if scene.block_bytes >= PAGE_BYTES {
            blocks = blocks.start.max(of_call.start)..blocks.end.min(of_call.end);
        }
        self.unmark(&pages, scene);
        if blocks.end.saturating_sub(blocks.start) > 1 {
            let stream = *self.alone.get_or_insert_with(|| (scene.open)());
            scene.disclose(stream, blocks, &self.runs);
        } else {
            *scene.asked += 1;
        }
    }
}

/// The length of a window that begins with a call for `wanted` pages.
fn first_window(wanted: u64, most: u64) -> u64 {
    match wanted.min(most).next_power_of_two() {
        few if 32 * few <= most => 4 * few,
        some if 4 * some <= most => 2 * some,
        _ => most,
    }
}

/// The length of the window after one of `pages` pages.
fn next_window(pages: u64, most: u64) -> u64 {
    match pages {
        few if 16 * few < most => 4 * few,
        some if 2 * some <= most => 2 * some,
        _ => most,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MOST_PAGES: u64 = 32;

    /// A file, and the blocks of it that are in memory.
    struct InMemory {
        file: OpenFile,
        block_bytes: u64,
        in_file: u64,
        blocks: BTreeSet<u64>,
        streams: u64,
        asked: Asked,
    }

    impl InMemory {
        fn new(block_bytes: u64, in_file: u64) -> Self {
            let (file, blocks) = (OpenFile::default(), BTreeSet::new());
            InMemory { file, block_bytes, in_file, blocks, streams: 0, asked: 0 }
        }

        /// Makes a call for blocks. Returns the blocks that it brings into memory, as runs of first block and end.
        fn call(&mut self, first: u64, blocks: u64) -> Vec<(u64, u64)> {
            let end = (first + blocks).min(self.in_file);
            self.call_for(first * self.block_bytes..end * self.block_bytes)
        }

        /// [`call`](Self::call) for bytes of the file.
        fn call_for(&mut self, bytes: Range<u64>) -> Vec<(u64, u64)> {
            let asked = bytes.start / self.block_bytes..bytes.end.div_ceil(self.block_bytes);
            let mut advice = Vec::new();
            let streams = &mut self.streams;
            let scene = Scene {
                block_bytes: self.block_bytes,
                most_pages: MOST_PAGES,
                in_file: self.in_file,
                open: &mut || {
                    *streams += 1;
                    StreamId(*streams)
                },
                is_there: &|block| self.blocks.contains(&block),
                advice: &mut advice,
                asked: &mut self.asked,
            };
            self.file.call(bytes, asked.clone(), scene);
            let disclosed = advice.into_iter().filter_map(|advice| match advice {
                Advice::Disclose(_, range) => Some(range),
                Advice::TakeBack(_) | Advice::Close(_) => None,
            });
            let mut new = BTreeSet::new();
            for range in disclosed.chain([asked]) {
                assert!(!range.is_empty() && range.end <= self.in_file, "{range:?}");
                new.extend(range.filter(|block| !self.blocks.contains(block)));
            }
            self.blocks.extend(&new);
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for block in new {
                match runs.last_mut() {
                    Some((_, end)) if *end == block => *end += 1,
                    _ => runs.push((block, block + 1)),
                }
            }
            runs
        }

        /// Makes several calls. Returns those that bring blocks, each with its run.
        fn calls(&mut self, calls: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64, u64)> {
            let mut all = Vec::new();
            for (first, blocks) in calls {
                let runs = self.call(first, blocks);
                assert!(runs.len() < 2, "{first}: {runs:?}");
                all.extend(runs.into_iter().map(|(from, end)| (first, from, end)));
            }
            all
        }
    }

    /// Reads single pages of a file of 2048. Returns those that bring pages into memory, with their runs.
    fn pages(reads: impl IntoIterator<Item = u64>) -> Vec<(u64, u64, u64)> {
        InMemory::new(PAGE_BYTES, 2048).calls(reads.into_iter().map(|page| (page, 1)))
    }

    // The following was measured on Linux 6.18 with mincore(2), on a FUSE file system, after each call.

    #[test]
    fn windows_grow_while_reads_are_in_sequence() {
        let windows = [(0, 0, 4), (1, 4, 12), (4, 12, 28), (12, 28, 60)];
        assert_eq!(pages(0..14), windows);
        // The first page is read again before each page.
        assert_eq!(pages((1..16).flat_map(|page| [0, page])), windows);
    }

    #[test]
    fn a_page_may_be_left_out_but_not_two() {
        let others = pages((0..24).step_by(2));
        assert_eq!(
            others,
            [(0, 0, 4), (4, 4, 8), (8, 8, 12), (12, 12, 16), (16, 16, 20), (20, 20, 24)]
        );
        let thirds = pages((0..18).step_by(3));
        assert_eq!(thirds, [(0, 0, 4), (6, 6, 7), (9, 9, 10), (12, 12, 13), (15, 15, 16)]);
        let alone = [30, 29, 28, 700, 30];
        assert_eq!(pages(alone), [30, 29, 28, 700].map(|page| (page, page, page + 1)));
    }

    #[test]
    fn of_two_runs_in_turn_each_is_found_by_what_it_has_left_in_memory() {
        let runs = (0..5).flat_map(|page| [page, 1000 + page]);
        let (first, second): (Vec<_>, Vec<_>) = pages(runs).into_iter().partition(|of| of.0 < 1000);
        assert_eq!(first, [(0, 0, 4), (1, 4, 12), (4, 12, 30)]);
        // Linux: up to 28 and 1008, since it ended the last windows at large folios.
        let windows =
            [(1000, 1000, 1001), (1001, 1001, 1002), (1002, 1002, 1005), (1004, 1005, 1009)];
        assert_eq!(second, windows);
        // In calls of several pages.
        let mut file = InMemory::new(PAGE_BYTES, 2048);
        let calls = [100, 200, 103, 203, 106, 206, 109, 209].map(|first| (first, 3));
        let expected = [
            (100, 100, 103),
            (200, 200, 203),
            (103, 103, 106),
            (203, 203, 206),
            (106, 106, 115),
            (206, 206, 215),
        ];
        assert_eq!(file.calls(calls), expected);
    }

    #[test]
    fn a_mark_outlives_a_read_elsewhere() {
        // Linux: up to 112 and 124, for the same reason.
        let reads = [100, 101, 102, 103, 104, 110, 111, 105, 106];
        assert_eq!(
            pages(reads),
            [(100, 100, 101), (101, 101, 105), (102, 105, 113), (105, 113, 129)]
        );
        assert_eq!(
            pages([0, 1, 500, 2, 3, 4]),
            [(0, 0, 4), (1, 4, 12), (500, 500, 501), (4, 12, 28)]
        );
    }

    // The following is derived from its rules.

    #[test]
    fn a_call_that_ends_within_a_page_goes_on_in_it() {
        // Half of every other page: the page after the next is out of sequence.
        for block_bytes in [512, 2048, PAGE_BYTES] {
            let mut file = InMemory::new(block_bytes, (1 << 20) / block_bytes);
            let pages = |file: &mut InMemory, page: u64| {
                let blocks = file.call_for(page * PAGE_BYTES..page * PAGE_BYTES + 2048);
                let page = |block: u64| block * block_bytes / PAGE_BYTES;
                blocks.into_iter().map(|(from, end)| (page(from), page(end))).collect::<Vec<_>>()
            };
            for at in [100, 102, 104, 106] {
                assert_eq!(pages(&mut file, at), [(at, at + 1)], "{block_bytes}");
            }
            assert_eq!(pages(&mut file, 107), [(107, 111)]);
        }
    }

    #[test]
    fn a_mark_behind_a_missing_page_is_found() {
        let mut file = InMemory::new(PAGE_BYTES, 2048);
        file.calls([(100, 1), (101, 1)]);
        assert_eq!(file.call(99, 4), [(99, 100), (105, 113)]);
    }

    #[test]
    fn where_a_window_is_in_memory_none_begins() {
        let mut file = InMemory::new(PAGE_BYTES, 2048);
        file.blocks.extend(12..60);
        let calls = [0, 1, 500, 501, 2, 3, 4].map(|page| (page, 1));
        let expected = [(0, 0, 4), (1, 4, 12), (500, 500, 501), (501, 501, 505)];
        assert_eq!(file.calls(calls), expected);
    }

    #[test]
    fn marks_are_the_pages() {
        let reads = (0..12).chain(17..30).chain([11, 12]);
        let last = pages(reads).last().copied();
        assert_eq!(last, Some((12, 40, 72)));
    }

    #[test]
    fn a_short_call_of_a_long_block_is_one() {
        for block_bytes in [12_800, 132 << 10, 1 << 20] {
            let mut file = InMemory::new(block_bytes, 100);
            for block in [10, 50, 30] {
                let at = block * block_bytes + 512;
                assert_eq!(file.call_for(at..at + 4096), [(block, block + 1)], "{block_bytes}");
            }
        }
    }

    #[test]
    fn a_long_call_goes_through_windows() {
        let of_call = |blocks: u64, calls: u64| -> Vec<u64> {
            let mut file = InMemory::new(PAGE_BYTES, 1 << 20);
            let calls = file.calls((0..calls).map(|call| (call * blocks, blocks)));
            calls.into_iter().map(|(_, _, end)| end).collect()
        };
        assert_eq!(of_call(31, 3), [32, 96, 128]);
        assert_eq!(of_call(48, 3), [96, 128, 192]);
        assert_eq!(of_call(256, 2), [288, 544]);
        let mut file = InMemory::new(PAGE_BYTES, 1000);
        assert_eq!(file.calls([(0, 32), (32, 16)]), [(0, 0, 64), (32, 64, 96)]);
    }

    #[test]
    fn blocks_are_so_many_pages() {
        let mut file = InMemory::new(8192, 1000);
        let calls = file.calls((0..7).map(|block| (block, 1)));
        assert_eq!(calls, [(0, 0, 2), (1, 2, 6), (2, 6, 14), (6, 14, 30)]);
        let mut file = InMemory::new(512, 1000);
        assert_eq!(
            file.calls([(0, 1), (8, 1), (500, 1)]),
            [(0, 0, 32), (8, 32, 96), (500, 496, 504)]
        );
        let mut file = InMemory::new(1 << 20, 1000);
        assert_eq!(file.calls([(0, 1), (1, 1)]), [(0, 0, 2), (1, 2, 3)]);
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut file = InMemory::new(PAGE_BYTES, 6);
        assert_eq!(
            file.calls([(0, 1), (1, 9), (5, 1), (7, 1)][..3].to_vec()),
            [(0, 0, 4), (1, 4, 6)]
        );
    }

    #[test]
    fn who_opens_it_again_has_to_show_that_he_reads_on() {
        let mut file = InMemory::new(PAGE_BYTES, 100);
        assert_eq!(file.call(50, 1), [(50, 51)]);
        file.file.opened();
        assert_eq!(file.call(51, 1), [(51, 52)]);
        assert_eq!(file.call(52, 1), [(52, 56)]);
        // A mark belongs to the page, and outlives the open file.
        file.file.opened();
        assert_eq!(file.call(53, 1), [(56, 64)]);
    }

    /// A page cache of one file and the state of one open file, by the kernel's names.
    #[derive(Default)]
    struct Kernel {
        /// Pages in memory, and whether they are marked.
        pages: std::collections::BTreeMap<u64, bool>,
        prev_index: Option<u64>,
        start: u64,
        size: u64,
        async_size: u64,
    }

    impl Kernel {
        fn read(&mut self, bytes: Range<u64>, file_pages: u64) {
            let (mut index, last_index) =
                (bytes.start / PAGE_BYTES, bytes.end.div_ceil(PAGE_BYTES));
            while index < last_index {
                let req_count = last_index - index;
                if !self.pages.contains_key(&index) {
                    self.sync(index, req_count, file_pages);
                }
                if self.pages.get_mut(&index).is_some_and(std::mem::take) {
                    self.asynchronous(index, req_count, file_pages);
                }
                index += 1;
            }
            self.prev_index = Some(bytes.end / PAGE_BYTES);
        }

        fn sync(&mut self, index: u64, req_count: u64, file_pages: u64) {
            let is_near = |prev: u64| index.wrapping_sub(prev) <= 1;
            if index == 0 || req_count > MOST_PAGES || self.prev_index.is_some_and(is_near) {
                let size = match req_count.next_power_of_two() {
                    1 => 4,
                    size @ 2..=8 => 2 * size,
                    _ => MOST_PAGES,
                };
                let async_size = if size > req_count { size - req_count } else { size >> 1 };
                return self.submit(index, size, async_size, file_pages);
            }
            let mut contig_count = 0;
            while contig_count < MOST_PAGES
                && index
                    .checked_sub(1 + contig_count)
                    .is_some_and(|page| self.pages.contains_key(&page))
            {
                contig_count += 1;
            }
            if contig_count <= req_count {
                for page in index..index + req_count {
                    self.pages.entry(page).or_default();
                }
                return;
            }
            if contig_count == index {
                contig_count *= 2;
            }
            self.submit(index, (contig_count + req_count).min(MOST_PAGES), 1, file_pages);
        }

        fn asynchronous(&mut self, index: u64, req_count: u64, file_pages: u64) {
            let next_size =
                |size: u64| if size < 2 { 4 * size } else { (2 * size).min(MOST_PAGES) };
            if index == self.start + self.size - self.async_size {
                let size = next_size(self.size);
                return self.submit(self.start + self.size, size, size, file_pages);
            }
            let start =
                (index + 1..).find(|page| !self.pages.contains_key(page)).unwrap_or(u64::MAX);
            if start - index > MOST_PAGES {
                return;
            }
            let size = next_size(start - index + req_count);
            self.submit(start, size, size, file_pages);
        }

        fn submit(&mut self, start: u64, size: u64, async_size: u64, file_pages: u64) {
            (self.start, self.size, self.async_size) = (start, size, async_size);
            let mark = start + size - async_size;
            for page in start..(start + size).min(file_pages) {
                self.pages.entry(page).or_insert(page == mark);
            }
        }
    }

    proptest! {
        /// With enough memory, the same pages come in as in a kernel. The kernel's rules are written down a second time above.
        #[test]
        fn what_a_kernel_brings_in_is_brought_in(
            file_pages in 1u64..400,
            starts in prop::collection::vec(0u64..400, 1..6),
            calls in prop::collection::vec((0usize..6, 0u8..12, 1u64..70_000, 0u64..4096), 1..120),
        ) {
            let (mut file, mut kernel) = (InMemory::new(PAGE_BYTES, file_pages), Kernel::default());
            let size = file_pages * PAGE_BYTES;
            let mut next: Vec<u64> = starts.iter().map(|start| start % file_pages * PAGE_BYTES).collect();
            for (run, kind, length, skipped) in calls {
                let run = run % next.len();
                let at = &mut next[run];
                match kind {
                    0 => *at = length.wrapping_mul(7919) % size,
                    1 => *at += skipped,
                    2 => *at += PAGE_BYTES,
                    _ => {}
                }
                if *at >= size {
                    *at = 0;
                }
                let length = match kind {
                    3 => length * 5,
                    4 | 5 => length,
                    6 => 100,
                    _ => PAGE_BYTES,
                };
                let bytes = *at..(*at + length).min(size);
                *at = bytes.end;
                file.call_for(bytes.clone());
                kernel.read(bytes.clone(), file_pages);
                let expected: BTreeSet<u64> = kernel.pages.keys().copied().collect();
                prop_assert_eq!(&file.blocks, &expected, "after {:?}", bytes);
            }
        }

        /// Interleaved runs, jumps, evictions, opens and age: requests lie in the file and were missing.
        #[test]
        fn whatever_comes_is_borne(
            shape in (prop::sample::select(vec![512u64, 1536, 4096, 8192, 12_800, 1 << 20]), 1u64..5_000),
            steps in prop::collection::vec((0u8..10, 0u64..6, any::<u64>(), 1u64..400), 1..200),
        ) {
            let (block_bytes, in_file) = shape;
            let mut file = InMemory::new(block_bytes, in_file);
            let mut next = [0; 6];
            for (kind, run, drawn, blocks) in steps {
                let run = &mut next[run as usize];
                match kind {
                    0 => file.file.opened(),
                    1 => file.blocks.retain(|block| (block ^ drawn) & 3 != 0),
                    2 => {
                        let mut advice = Vec::new();
                        file.file.age(drawn % (file.asked + 2), &mut advice);
                        prop_assert!(advice.len() <= RUNS_MAX);
                    }
                    3 | 4 => *run = drawn % in_file,
                    5 => {
                        let from = drawn % (in_file * block_bytes);
                        file.call_for(from..(from + 1 + blocks * 37).min(in_file * block_bytes));
                    }
                    _ if *run >= in_file => *run = 0,
                    _ => {
                        let blocks = if kind == 9 { blocks } else { 1 + blocks % 3 };
                        file.call(*run, blocks);
                        *run += blocks;
                    }
                }
                prop_assert!(file.file.runs.len() <= RUNS_MAX);
                for run in &file.file.runs {
                    prop_assert!(run.read <= run.until && run.used <= file.asked, "{:?}", run);
                }
            }
        }
    }

    #[test]
    fn few_runs_stay_disclosed() {
        let mut file = InMemory::new(PAGE_BYTES, 1 << 20);
        for run in 0..RUNS_MAX as u64 + 9 {
            file.calls([(1000 * run + 7, 1), (1000 * run + 8, 1)]);
        }
        assert_eq!((file.streams, file.file.streams().count()), (RUNS_MAX as u64, RUNS_MAX));
    }

    #[test]
    fn what_nobody_reads_on_in_is_taken_back() {
        let mut file = InMemory::new(PAGE_BYTES, 1 << 20);
        file.calls([(7, 1), (8, 1), (1007, 1), (1008, 1)]);
        let first = file.file.runs[0].used;
        let mut advice = Vec::new();
        file.file.age(first, &mut advice);
        assert_eq!(advice, []);
        file.file.age(first + 1, &mut advice);
        assert_eq!(advice, [Advice::TakeBack(StreamId(1))]);
        file.file.age(first + 1, &mut advice);
        assert_eq!(advice.len(), 1, "once");
        // Another run may begin where it ended.
        assert_eq!(file.calls([(2007, 1), (2008, 1)]), [(2007, 2007, 2008), (2008, 2008, 2012)]);
        assert_eq!(file.streams, 2);
    }
}
