//! A program's advice about its memory (`madvise`), until it is known which files are mapped there.
//!
//! The advice names addresses. `watched.rs` compares them with the mappings of the process, read anew when the advice comes.
//! Memory without a file, memory that is not mapped (any more), and what lies beyond the end of a file are left out, so wrong
//! addresses come to nothing. This module joins what several pieces of advice say about one file.
//!
//! Bounds: [`ADVICE_MAX`] pieces wait, and become [`PARTS_MAX`] parts of files at a time. The rest is left to the kernel.

use std::ops::Range;
use std::path::{Path, PathBuf};

use foretell_policy::FileId;
use foretell_protocol::AdviceKind;

/// Pieces of advice that wait for the observer's thread.
pub(super) const ADVICE_MAX: usize = 1024;

/// Parts of files that one look at advice finds. Advice about all memory of a process with many mappings has as many.
const PARTS_MAX: usize = 4096;

/// What a program has said about a part of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryAdvice {
    pub(crate) kind: AdviceKind,
    pub(crate) addresses: Range<u64>,
}

/// Parts of a file that a program says it needs, in the order in which it said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) file: FileId,
    pub(crate) path: PathBuf,
    pub(crate) ranges: Vec<Range<u64>>,
}

/// The needed parts of all files; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Parts {
    files: Vec<Needed>,
    count: usize,
}

impl Parts {
    /// Adds a part of a file. Returns whether there is room for more.
    pub(super) fn add(&mut self, file: FileId, path: &Path, range: Range<u64>) -> bool {
        let at = self.files.iter().rposition(|known| known.file == file).unwrap_or_else(|| {
            self.files.push(Needed { file, path: path.to_owned(), ranges: Vec::new() });
            self.files.len() - 1
        });
        let known = &mut self.files[at];
        match known.ranges.last_mut() {
            // Advice for a mapping in pieces, or piece by piece.
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => {
                known.ranges.push(range);
                self.count += 1;
            }
        }
        self.count < PARTS_MAX
    }

    pub(super) fn into_files(self) -> Vec<Needed> {
        self.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_joined_in_the_order_of_the_advice() {
        let mut parts = Parts::default();
        for (file, range) in [(1, 0..10), (1, 10..20), (2, 5..6), (1, 90..99), (1, 0..5), (2, 2..3)]
        {
            assert!(parts.add(FileId(file), Path::new("/x"), range));
        }
        let files = parts.into_files();
        let told: Vec<_> = files.iter().map(|of| (of.file.0, &of.ranges[..])).collect();
        assert_eq!(told, [(1, &[0..20, 90..99, 0..5][..]), (2, &[5..6, 2..3][..])]);
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let mut parts = Parts::default();
        let added = (0u64..)
            .take_while(|&at| parts.add(FileId(at % 3), Path::new("/x"), at * 100..at * 100 + 1));
        assert_eq!(added.count(), PARTS_MAX - 1);
    }
}
