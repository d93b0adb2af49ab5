//! Programs: sequences of reads, work and disclosures.
//!
//! Steps are produced lazily, so a program may be endless or larger than memory. The functions here make the usual programs:
//! passes over a file ([`passes`]) and a list of blocks in any order ([`list`]), with hints like those of programs in the
//! literature ([`Disclosure`]).

use std::ops::Range;

use foretell_policy::{Block, DeviceId, Extent, FileId, Hint, Nanos, ReaderId, Segment, Target};

/// One step of a program. The program ends with its steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Opens a file of this device. Its inode is read if the machine models inodes and no program has read it before.
    Open(FileId, DeviceId),
    /// Looks up a file by its name. It reads the same blocks as an open.
    Look(FileId, DeviceId),
    /// Reads a block in a call of its own, and waits for it if necessary.
    Read(Block, DeviceId),
    /// Reads several blocks in one call: undisclosed ones are requested at once, and then waited for in order.
    Call {
        /// The first block.
        first: Block,
        /// The number of blocks.
        blocks: u64,
        /// The bytes of the call, which lie in these blocks.
        bytes: Range<u64>,
        /// The device of the file.
        device: DeviceId,
    },
    /// Works for this long (`T_cpu`).
    Compute(Nanos),
    /// Discloses in the stream opened last. The first hint opens a stream.
    Hint(Hint),
    /// Opens another stream for the hints that follow. All streams stay open until the program ends.
    OpenStream,
    /// Cancels the hints of the stream opened last.
    Cancel,
    /// Sets a mark that other programs may await.
    Mark(MarkId),
    /// Waits until the mark is set.
    Await(MarkId),
}

/// A mark by which programs wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkId(pub u64);

/// The steps of a program.
pub type Steps = Box<dyn Iterator<Item = Step>>;

/// A program of the simulated machine.
pub struct Program {
    /// Its name in reports.
    pub name: String,
    /// Its reader for the policy; different for each program of a machine.
    pub reader: ReaderId,
    /// When it starts.
    pub start: Nanos,
    /// Whether the run may end before this program does.
    pub background: bool,
    /// Its steps.
    pub steps: Steps,
}

impl Program {
    /// A program that starts at once and runs to its end.
    pub fn new(name: impl Into<String>, reader: ReaderId, steps: Steps) -> Self {
        Program { name: name.into(), reader, start: Nanos::ZERO, background: false, steps }
    }

    /// Starts it at `start`.
    #[must_use]
    pub fn starting_at(self, start: Nanos) -> Self {
        Program { start, ..self }
    }

    /// Ends it with the last program that is not in the background.
    #[must_use]
    pub fn in_background(self) -> Self {
        Program { background: true, ..self }
    }
}

/// A file, its device and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// The file.
    pub file: FileId,
    /// Its device.
    pub device: DeviceId,
    /// Its size in blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl StoredFile {
    /// The step that reads block `index`.
    pub fn read(&self, index: u64) -> Step {
        Step::Read(Block { file: self.file, index }, self.device)
    }

    /// The target of hints.
    pub fn target(&self) -> Target {
        Target::File { file: self.file, size_bytes: self.blocks * self.block_bytes }
    }

    /// A hint that the whole file will be read in sequence, `repeats` times.
    pub fn hint(&self, repeats: u32) -> Hint {
        Hint { repeats, ..Hint::whole_file(self.target(), self.device) }
    }

    /// A hint that these blocks will be read in this order.
    pub fn hint_blocks(&self, indices: impl IntoIterator<Item = u64>) -> Hint {
        let segment = |index| Segment {
            offset_bytes: index * self.block_bytes,
            length_bytes: self.block_bytes,
        };
        let segments: Vec<Segment> = indices.into_iter().map(segment).collect();
        let extent = Extent::Segments(segments.into());
        Hint { extent, ..Hint::whole_file(self.target(), self.device) }
    }
}

/// When a program discloses its passes over a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclosure {
    /// Never.
    None,
    /// The next pass at the start of each pass, and the first one before it begins, like the Davidson program of TIP 1995,
    /// section 3.6.
    NextPass,
    /// All passes before the first read.
    UpFront,
}

/// Reads `file` in sequence, `passes` times, with work of `cpu` after each block.
pub fn passes(file: StoredFile, passes: u32, cpu: Nanos, disclosure: Disclosure) -> Steps {
    let (pass, hints, next) = (0, 0, file.blocks);
    Box::new(Passes { file, passes, cpu, disclosure, pass, hints, next, works: false })
}

/// See [`passes`].
struct Passes {
    file: StoredFile,
    passes: u32,
    cpu: Nanos,
    disclosure: Disclosure,
    /// Number of passes begun.
    pass: u32,
    /// The hint to give before the next read.
    hints: u32,
    /// The next block of this pass.
    next: u64,
    /// Whether the last step was a read.
    works: bool,
}

impl Iterator for Passes {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if self.hints > 0 {
                self.hints -= 1;
                let up_front = self.disclosure == Disclosure::UpFront;
                return Some(Step::Hint(self.file.hint(if up_front { self.passes } else { 1 })));
            }
            if std::mem::take(&mut self.works) {
                return Some(Step::Compute(self.cpu));
            }
            if self.next < self.file.blocks {
                self.works = self.cpu > Nanos::ZERO;
                self.next += 1;
                return Some(self.file.read(self.next - 1));
            }
            if self.pass == self.passes {
                return None;
            }
            self.hints = match self.disclosure {
                Disclosure::NextPass if self.pass == 0 => self.passes.min(2),
                Disclosure::NextPass => u32::from(self.pass + 1 < self.passes),
                Disclosure::UpFront => u32::from(self.pass == 0),
                Disclosure::None => 0,
            };
            self.pass += 1;
            self.next = 0;
        }
    }
}

/// Reads blocks of `file` in the order of `indices`, with work of `cpu` after each.
///
/// With `batch_reads`, the first two batches of so many reads are disclosed at the beginning, and each further one at the
/// start of the batch before it. Without it, nothing is disclosed.
pub fn list(file: StoredFile, indices: Vec<u64>, cpu: Nanos, batch_reads: Option<usize>) -> Steps {
    let count = indices.len();
    Box::new((0..count).flat_map(move |at| {
        let hints = batch_reads.map_or_else(Vec::new, |batch| due_batches(at, batch, count));
        let hint = |range: std::ops::Range<usize>| {
            Step::Hint(file.hint_blocks(indices[range].iter().copied()))
        };
        let hints: Vec<Step> = hints.into_iter().map(hint).collect();
        hints.into_iter().chain(read_and_compute(file, indices[at], cpu))
    }))
}

/// The reads, of `count` in batches of `batch`, that are disclosed before read number `at`.
fn due_batches(at: usize, batch: usize, count: usize) -> Vec<std::ops::Range<usize>> {
    let part = |first: usize| first.min(count)..(first + batch).min(count);
    let due = match at {
        0 => vec![part(0), part(batch)],
        _ if at.is_multiple_of(batch) => vec![part(at + batch)],
        _ => Vec::new(),
    };
    due.into_iter().filter(|range| !range.is_empty()).collect()
}

fn read_and_compute(file: StoredFile, index: u64, cpu: Nanos) -> impl Iterator<Item = Step> {
    let compute = (cpu > Nanos::ZERO).then_some(Step::Compute(cpu));
    std::iter::once(file.read(index)).chain(compute)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: StoredFile =
        StoredFile { file: FileId(1), device: DeviceId(0), blocks: 3, block_bytes: 8192 };

    /// `h` for a hint, `r` for a read, `c` for work.
    fn letters(steps: Steps) -> String {
        let letter = |step| match step {
            Step::Hint(_) => 'h',
            Step::Read(..) | Step::Call { .. } => 'r',
            Step::Compute(_) => 'c',
            Step::Open(..) | Step::Look(..) | Step::OpenStream | Step::Cancel => '-',
            Step::Mark(_) | Step::Await(_) => '-',
        };
        steps.map(letter).collect()
    }

    #[test]
    fn passes_disclose_as_they_should() {
        let cpu = Nanos::ZERO;
        assert_eq!(letters(passes(FILE, 2, cpu, Disclosure::None)), "rrrrrr");
        assert_eq!(letters(passes(FILE, 3, cpu, Disclosure::NextPass)), "hhrrrhrrrrrr");
        assert_eq!(letters(passes(FILE, 1, cpu, Disclosure::NextPass)), "hrrr");
        assert_eq!(letters(passes(FILE, 2, cpu, Disclosure::UpFront)), "hrrrrrr");
        assert_eq!(letters(passes(FILE, 1, Nanos(1), Disclosure::None)), "rcrcrc");
    }

    #[test]
    fn lists_disclose_a_batch_ahead() {
        let indices = vec![2, 0, 1, 1, 0];
        assert_eq!(letters(list(FILE, indices.clone(), Nanos::ZERO, None)), "rrrrr");
        assert_eq!(letters(list(FILE, indices, Nanos::ZERO, Some(2))), "hhrrhrrr");
    }
}
