//! Keeps what a run touches, in the order of first use.
//!
//! A path gets one step, and further steps if the run comes back to other parts of the file much later: reads join the step
//! that the file had last, as long as at most `NEAR_STEPS` steps were begun since, or the step has fewer than `STEP_PARTS_MAX`
//! parts and `STEP_BYTES_MAX` bytes. So files that are read side by side take turns in pieces only if so many steps lie between
//! them, as with files that are opened first and read later. Of a few files that are read side by side, each has one step.
//!
//! Parts are whole blocks of [`BLOCK_BYTES`], each kept once: what is read again is not kept again.
//!
//! Bounds: [`STEPS_MAX`] steps, [`PARTS_MAX`] parts, [`PATHS_MAX_BYTES`] bytes of paths. Beyond that nothing new is kept.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::steps::{Acts, Part, Run, Step};

/// Steps of a run.
pub const STEPS_MAX: usize = 1 << 16;

/// Parts of all steps.
pub const PARTS_MAX: usize = 1 << 18;

/// Bytes of all paths.
pub const PATHS_MAX_BYTES: usize = 8 << 20;

/// Parts are rounded to blocks of so many bytes, as the policy's blocks.
pub const BLOCK_BYTES: u64 = 8 * 1024;

/// Blocks of a file, so that the offset of each one's end is a number.
pub(crate) const BLOCKS_MAX: u64 = u64::MAX / BLOCK_BYTES;

/// A file that is read while fewer steps were begun since its last one goes on with that step.
const NEAR_STEPS: usize = 16;

/// A step that is not near goes on as long as it is smaller.
const STEP_PARTS_MAX: usize = 256;
const STEP_BYTES_MAX: u64 = 8 << 20;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    steps: Vec<Step>,
    /// Steps that come before others of the same millisecond.
    early: HashSet<usize>,
    paths: HashMap<Arc<[u8]>, usize>,
    files: Vec<File>,
    /// Files by the number that their reads have.
    numbers: HashMap<u64, usize>,
    parts: usize,
    path_bytes: usize,
    is_cut: bool,
}

#[derive(Clone, Debug)]
struct File {
    path: Arc<[u8]>,
    /// The number under which its reads come.
    number: Option<u64>,
    /// Its first step, its last one, and the bytes of that.
    first: usize,
    step: usize,
    step_bytes: u64,
    /// Blocks that were read: disjoint ranges in ascending order.
    read: Vec<Range<u64>>,
    /// Its length, where that is known: a read up to there is a read to its end, if the program asks no further.
    size_bytes: Option<u64>,
}

impl Recorder {
    /// Keeps nothing yet.
    pub fn new() -> Self {
        Recorder::default()
    }

    /// A path was touched, `at_ms` after the start of the run.
    pub fn touch(&mut self, path: &[u8], acts: Acts, at_ms: u32) {
        if let Some(&file) = self.paths.get(path) {
            let first = &mut self.steps[self.files[file].first];
            first.acts = first.acts | acts;
            return;
        }
        let _ = self.add(path, acts, at_ms);
    }

    /// The file of this number has this path. Its reads come under the number.
    pub fn identify(&mut self, number: u64, path: &[u8], at_ms: u32) {
        let known = self.paths.get(path).copied();
        if let Some(file) = known.or_else(|| self.add(path, Acts::default(), at_ms)) {
            // A file that was replaced by another one has its number no more.
            if let Some(before) =
                self.files[file].number.replace(number).filter(|&before| before != number)
            {
                self.numbers.remove(&before);
            }
            self.numbers.insert(number, file);
        }
    }

    /// As [`identify`](Self::identify), of a file that is [seen late](crate::starts): if it is new, its step comes before
    /// others of that millisecond.
    pub fn identify_early(&mut self, number: u64, path: &[u8], at_ms: u32) {
        let step = self.steps.len();
        self.identify(number, path, at_ms);
        if self.steps.len() > step {
            self.early.insert(step);
        }
    }

    /// The file of this number is not one that is kept: another one had the number before.
    pub fn forget_number(&mut self, number: u64) {
        self.numbers.remove(&number);
    }

    /// The file of this number was so long when it was opened.
    pub fn note_size(&mut self, number: u64, size_bytes: u64) {
        if let Some(&file) = self.numbers.get(&number) {
            self.files[file].size_bytes = Some(size_bytes);
        }
    }

    /// Whether this path was touched.
    pub fn has_touched(&self, path: &[u8]) -> bool {
        self.paths.contains_key(path)
    }

    /// Whether the path of this number is known.
    pub fn knows(&self, number: u64) -> bool {
        self.numbers.contains_key(&number)
    }

    /// A range of bytes of the file of this number was read. Without its path, that is not kept. Returns the path if this
    /// begins another step of the file.
    pub fn read(&mut self, number: u64, range: Range<u64>, at_ms: u32) -> Option<Arc<[u8]>> {
        let &file = self.numbers.get(&number)?;
        let before = self.files[file].step;
        if self.parts >= PARTS_MAX {
            self.is_cut = true; // What was read is not noted either: it would grow, and each note take longer.
            return None;
        }
        let is_end = self.files[file].size_bytes.is_some_and(|size_bytes| range.end >= size_bytes);
        let (first, end) = (range.start / BLOCK_BYTES, range.end.div_ceil(BLOCK_BYTES));
        let end = end.min(BLOCKS_MAX); // A program may name any offset.
        for (start, end) in unread(&mut self.files[file].read, first..end) {
            self.read_blocks(file, start..end, at_ms);
        }
        if is_end {
            self.note(number, Acts::END);
        }
        let File { path, step, .. } = &self.files[file];
        (*step != before).then(|| Arc::clone(path))
    }

    /// Something was done to the file of this number: it was read to its end, or mapped.
    pub fn note(&mut self, number: u64, acts: Acts) {
        let Some(&file) = self.numbers.get(&number) else { return };
        let File { first, step, .. } = self.files[file];
        for step in [first, step] {
            self.steps[step].acts = self.steps[step].acts | acts;
        }
    }

    fn read_blocks(&mut self, file: usize, blocks: Range<u64>, at_ms: u32) {
        let part = Part { start: blocks.start * BLOCK_BYTES, end: blocks.end * BLOCK_BYTES };
        let File { step, step_bytes, .. } = self.files[file];
        let is_near = self.steps.len() - step <= NEAR_STEPS;
        let parts = self.steps[step].parts.len();
        let goes_on = is_near || (parts < STEP_PARTS_MAX && step_bytes < STEP_BYTES_MAX);
        let has_room = self.parts < PARTS_MAX && (goes_on || self.steps.len() < STEPS_MAX);
        let continued = self.steps[step].parts.last_mut().filter(|last| last.end == part.start);
        if let Some(last) = continued.filter(|_| goes_on) {
            last.end = part.end;
        } else if has_room {
            if !goes_on {
                let path = Arc::clone(&self.files[file].path);
                (self.files[file].step, self.files[file].step_bytes) = (self.steps.len(), 0);
                self.steps.push(Step { path, acts: Acts::READ, parts: Vec::new(), at_ms });
            }
            self.steps[self.files[file].step].parts.push(part);
            self.parts += 1;
        } else {
            self.is_cut = true;
            return;
        }
        let file = &mut self.files[file];
        file.step_bytes += part.bytes();
        let step = &mut self.steps[file.step];
        step.acts = step.acts | Acts::READ;
    }

    fn add(&mut self, path: &[u8], acts: Acts, at_ms: u32) -> Option<usize> {
        if self.steps.len() >= STEPS_MAX || self.path_bytes + path.len() > PATHS_MAX_BYTES {
            self.is_cut = true;
            return None;
        }
        let path: Arc<[u8]> = path.into();
        let (file, step) = (self.files.len(), self.steps.len());
        self.path_bytes += path.len();
        let (first, step_bytes, read) = (step, 0, Vec::new());
        self.files.push(File {
            path: Arc::clone(&path),
            first,
            step,
            step_bytes,
            read,
            size_bytes: None,
            number: None,
        });
        self.steps.push(Step { path: Arc::clone(&path), acts, parts: Vec::new(), at_ms });
        self.paths.insert(path, file);
        Some(file)
    }

    /// What was kept, in the order of first use.
    pub fn finish(self) -> Run {
        let mut steps: Vec<(usize, Step)> = self.steps.into_iter().enumerate().collect();
        // Stable: within a millisecond as it came.
        steps.sort_by_key(|(at, step)| (step.at_ms, !self.early.contains(at)));
        let steps = steps.into_iter().map(|(_, step)| step).collect();
        Run { steps, is_cut: self.is_cut }
    }

    /// Steps so far.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// The parts of `blocks` that are not in `read`, which gets them.
fn unread(read: &mut Vec<Range<u64>>, blocks: Range<u64>) -> Vec<(u64, u64)> {
    if blocks.is_empty() {
        return Vec::new();
    }
    // Ranges that overlap `blocks` or touch it.
    let first = read.partition_point(|range| range.end < blocks.start);
    let last = read.partition_point(|range| range.start <= blocks.end);
    let mut missing = Vec::new();
    let mut from = blocks.start;
    for range in &read[first..last] {
        if from < range.start.min(blocks.end) {
            missing.push((from, range.start.min(blocks.end)));
        }
        from = from.max(range.end);
    }
    if from < blocks.end {
        missing.push((from, blocks.end));
    }
    let start =
        read[first..last].first().map_or(blocks.start, |range| range.start.min(blocks.start));
    let end = read[first..last].last().map_or(blocks.end, |range| range.end.max(blocks.end));
    read.splice(first..last, std::iter::once(start..end));
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1024;

    fn parts(run: &Run, path: &str) -> Vec<Vec<(u64, u64)>> {
        let of = run.steps.iter().filter(|step| *step.path == *path.as_bytes());
        of.map(|step| {
            step.parts.iter().map(|part| (part.start / 8 / KIB, part.end / 8 / KIB)).collect()
        })
        .collect()
    }

    #[test]
    fn reads_in_a_row_are_one_part_and_what_is_read_again_is_kept_once() {
        let mut recorder = Recorder::new();
        recorder.touch(b"/a", Acts::OPEN, 0);
        recorder.identify(7, b"/a", 0);
        for at in [0, 4, 8, 12, 100, 0, 8, 96] {
            recorder.read(7, at * KIB..(at + 4) * KIB, 1);
        }
        recorder.read(9, 0..1, 1);
        let run = recorder.finish();
        assert_eq!(run.steps.len(), 1);
        assert_eq!(run.steps[0].acts, Acts::OPEN | Acts::READ);
        assert_eq!(parts(&run, "/a"), [vec![(0, 2), (12, 13)]]);
    }

    #[test]
    fn what_was_read_is_bounded() {
        let mut recorder = Recorder::new();
        recorder.identify(7, b"/a", 0);
        for at in 0..PARTS_MAX as u64 + 1000 {
            recorder.read(7, 2 * at * BLOCK_BYTES..(2 * at + 1) * BLOCK_BYTES, 1);
        }
        assert_eq!((recorder.parts, recorder.files[0].read.len()), (PARTS_MAX, PARTS_MAX));
        assert!(recorder.is_cut);
    }

    #[test]
    fn a_file_has_one_number() {
        let mut recorder = Recorder::new();
        for number in 0..100 {
            recorder.identify(number, b"/replaced", 0);
        }
        assert_eq!(recorder.numbers.len(), 1);
        recorder.identify(100, b"/other", 0);
        recorder.forget_number(100);
        assert!(!recorder.knows(100));
    }

    #[test]
    fn a_read_up_to_the_size_is_a_read_to_the_end() {
        let acts = |read: Range<u64>| {
            let mut recorder = Recorder::new();
            recorder.identify(7, b"/a", 0);
            recorder.note_size(7, 10_000);
            recorder.read(7, read, 1);
            recorder.finish().steps[0].acts
        };
        assert_eq!(acts(0..9_999), Acts::READ);
        assert_eq!(acts(0..10_000), Acts::READ | Acts::END);
    }

    #[test]
    fn files_that_are_read_side_by_side_take_turns_if_many_steps_lie_between() {
        let mut recorder = Recorder::new();
        for (number, name) in (0..40).map(|number| (number, format!("/{number}"))) {
            recorder.identify(number, name.as_bytes(), 0);
        }
        const MIB: u64 = 1 << 20;
        for at in 0..20 {
            let again = recorder.read(0, at * MIB..(at + 1) * MIB, at as u32);
            assert_eq!(again.as_deref(), (at == 8).then_some(&b"/0"[..]));
            recorder.read(39, at * MIB..(at + 1) * MIB, at as u32);
        }
        let run = recorder.finish();
        assert_eq!(parts(&run, "/0").len(), 2, "it goes on with a near step of its own");
        assert_eq!(parts(&run, "/39").len(), 1, "its step is near");
        let all: u64 = run.steps.iter().flat_map(|step| &step.parts).map(Part::bytes).sum();
        assert_eq!(all, 40 * MIB);
    }

    #[test]
    fn reads_at_the_end_of_all_numbers_are_kept_as_far_as_they_can_be_written() {
        let mut recorder = Recorder::new();
        recorder.identify(7, b"/a", 0);
        for start in [u64::MAX, u64::MAX - BLOCK_BYTES, u64::MAX - 3 * BLOCK_BYTES, 0] {
            recorder.read(7, start..u64::MAX, 1);
        }
        let mut profile = crate::profile::Profile::new(String::new());
        profile.learn(recorder.finish(), |_, _| true, true);
        let (_, kept) = crate::codec::decode(&crate::codec::encode(b"k", &profile)).expect("whole");
        assert_eq!(kept.steps[0].parts.len(), profile.steps[0].parts.len());
    }

    #[test]
    fn two_files_that_are_read_side_by_side_have_a_step_each() {
        let mut recorder = Recorder::new();
        recorder.identify(0, b"/a", 0);
        recorder.identify(1, b"/b", 0);
        const MIB: u64 = 1 << 20;
        for at in 0..40 {
            (0..2).for_each(|file| {
                assert!(recorder.read(file, at * MIB..(at + 1) * MIB, 1).is_none())
            });
        }
        assert_eq!(recorder.finish().steps.len(), 2);
    }

    #[test]
    fn what_is_seen_late_comes_first_in_its_millisecond() {
        let mut recorder = Recorder::new();
        recorder.touch(b"/before", Acts::LOOK, 2);
        recorder.touch(b"/first", Acts::OPEN, 3);
        recorder.identify_early(1, b"/program", 3);
        recorder.identify_early(2, b"/library", 3);
        recorder.identify_early(3, b"/first", 3);
        let steps = recorder.finish().steps;
        let paths: Vec<&[u8]> = steps.iter().map(|step| &*step.path).collect();
        assert_eq!(paths, [&b"/before"[..], b"/program", b"/library", b"/first"]);
    }

    #[test]
    fn steps_are_in_the_order_of_first_use_and_bounded() {
        let mut recorder = Recorder::new();
        recorder.touch(b"/late", Acts::LOOK, 9);
        recorder.touch(b"/early", Acts::LOOK, 3);
        for number in 0..STEPS_MAX {
            recorder.touch(format!("/{number}").as_bytes(), Acts::LOOK, 20);
        }
        let run = recorder.finish();
        assert!(run.is_cut && run.steps.len() == STEPS_MAX);
        assert_eq!((&*run.steps[0].path, &*run.steps[1].path), (&b"/early"[..], &b"/late"[..]));
    }

    proptest! {
        #[test]
        fn each_block_is_kept_exactly_once(ranges in prop::collection::vec((0_u64..100, 0_u64..20), 1..60)) {
            let (mut read, mut kept) = (Vec::new(), vec![0; 200]);
            for &(start, length) in &ranges {
                for (from, to) in unread(&mut read, start..start + length) {
                    (from..to).for_each(|block| kept[block as usize] += 1);
                }
                prop_assert!(read.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
            for block in 0..200 {
                let is_read = ranges.iter().any(|&(start, length)| (start..start + length).contains(&block));
                prop_assert_eq!(kept[block as usize], i32::from(is_read));
            }
        }
    }
}
