//! What a program does: reads, computes and discloses, one step after another.
//!
//! Steps are produced lazily, so that a program may be endless or longer than memory. The functions
//! here make the usual ones: passes over a file ([`passes`]) and a list of blocks in any order
//! ([`list`]), with hints as programs of the literature give them ([`Disclosure`]).

use std::ops::Range;

use foretell_policy::{Block, DeviceId, Extent, FileId, Hint, Nanos, ReaderId, Segment, Target};

/// One thing that a program does. The sequence's end is the program's end.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Opens a file that this device serves: its inode is read, if the machine's opens cost that and nobody has
    /// before.
    Open(FileId, DeviceId),
    /// Looks at a file by its name: what is read for that is what an open reads.
    Look(FileId, DeviceId),
    /// Reads a block in a call of its own, and waits for it if need be.
    Read(Block, DeviceId),
    /// Reads several blocks in one call: what of them nobody has disclosed is asked for at once, and then waited for in
    /// order.
    Call {
        /// The first of them.
        first: Block,
        /// How many.
        blocks: u64,
        /// The bytes of the file that it asks for, which lie in these blocks.
        bytes: Range<u64>,
        /// The device that serves them.
        device: DeviceId,
    },
    /// Works for this long (`T_cpu`).
    Compute(Nanos),
    /// Discloses, in the stream opened last; the first hint opens one.
    Hint(Hint),
    /// Opens another stream for the hints that follow; those open stay so until the program ends.
    OpenStream,
    /// Takes back what the stream opened last has disclosed and not yet read.
    Cancel,
    /// Notes that what others may wait for has been done.
    Mark(MarkId),
    /// Waits until some program has noted that this has been done; not at all if it has been already.
    Await(MarkId),
}

/// What programs wait for of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkId(pub u64);

/// The steps of a program.
pub type Steps = Box<dyn Iterator<Item = Step>>;

/// A program of the simulated machine.
pub struct Program {
    /// To find it in reports.
    pub name: String,
    /// Who it is to the policy; no two programs of a machine share one.
    pub reader: ReaderId,
    /// When it starts.
    pub start: Nanos,
    /// Whether the run is over when all others have ended, whatever this one still has to do.
    pub background: bool,
    /// What it does.
    pub steps: Steps,
}

impl Program {
    /// A program that starts at once and runs to its end.
    pub fn new(name: impl Into<String>, reader: ReaderId, steps: Steps) -> Self {
        Program { name: name.into(), reader, start: Nanos::ZERO, background: false, steps }
    }

    /// The same, starting at `start`.
    #[must_use]
    pub fn starting_at(self, start: Nanos) -> Self {
        Program { start, ..self }
    }

    /// The same, ended by the end of the others.
    #[must_use]
    pub fn in_background(self) -> Self {
        Program { background: true, ..self }
    }
}

/// A file, where it lies and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// The file.
    pub file: FileId,
    /// The device that serves it.
    pub device: DeviceId,
    /// Its size in blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl StoredFile {
    /// Reading block `index`.
    pub fn read(&self, index: u64) -> Step {
        Step::Read(Block { file: self.file, index }, self.device)
    }

    /// What hints name.
    pub fn target(&self) -> Target {
        Target::File { file: self.file, size_bytes: self.blocks * self.block_bytes }
    }

    /// The disclosure that the whole file will be read in sequence, `repeats` times over.
    pub fn hint(&self, repeats: u32) -> Hint {
        Hint { repeats, ..Hint::whole_file(self.target(), self.device) }
    }

    /// The disclosure that these blocks will be read, in this order.
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

/// When a program of several passes over a file discloses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclosure {
    /// Never.
    None,
    /// At the start of each pass the next one, and the first one before it begins: the Davidson
    /// program of TIP 1995, section 3.6.
    NextPass,
    /// All of them before the first read.
    UpFront,
}

/// Reads `file` in sequence, `passes` times over, working `cpu` after each block.
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
    /// Passes begun.
    pass: u32,
    /// To be given before the next read.
    hints: u32,
    /// The block to be read next in this pass.
    next: u64,
    /// Whether a block has just been read.
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

/// Reads blocks of `file` in the order of `indices`, working `cpu` after each.
///
/// With `batch_reads`, the first two batches of so many reads are disclosed at the beginning, and
/// each further one at the start of the batch before it; without, nothing is.
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

/// The batches of `batch` reads out of `count` to disclose before read number `at`.
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
