//! A program's own advice (`posix_fadvise`, `readahead`, `MAP_POPULATE`, `madvise`) as disclosures.
//!
//! The library forwards the advice first and records it then. The kernel does with it what it does without foretell: it cuts
//! `WILLNEED` to the device's read-ahead limit, say. As a disclosure, all of the range is fetched, as deep as the device allows
//! and as far ahead as the budget allows.
//!
//! | advice | about a file | about memory |
//! |---|---|---|
//! | *needed* | discloses the range | the same, of the files that are mapped there, in no order |
//! | *sequential* | discloses the range of a large file | the mapping counts as touched in order (`observer/order.rs`) |
//! | *random* | nothing | no order is looked for there |
//! | *normal* | nothing | takes back *random* |
//! | *once* | nothing | the kernel has none |
//!
//! Ranges are disclosed in the order in which the program gave its advice. *Needed* memory of up to 128 KiB is left to the
//! kernel.
//!
//! The record of advice about a file names the descriptor and the file's identity. The path comes from `/proc`, where a link
//! names the file that is open, so it may be another file by now. The lookup compares the identity, and drops the hint if it
//! differs.
//!
//! Advice about memory names addresses. The observer finds out which files are mapped there, since that may wait for a lock of
//! the process's memory.
//!
//! A file of which other hints are known is left to them: `cat` gives advice for each of its arguments. Advice of the same
//! process about another part of the file is no such hint.

use std::collections::HashMap;
use std::path::PathBuf;

use foretell_policy::{Extent, FileId, HinterId, Order, Policy, ReaderId, Segment, StreamId};
use foretell_protocol::{Advice, AdviceKind, Advised};

use super::Session;
use super::waiting::Expected;
use crate::driver::file::file_id;
use crate::lineage::ProcessId;
use crate::observer::{MemoryAdvice, Needed};
use crate::source::{Certainty, Disclosure};
use crate::sources::Origin;

/// Sequential advice about a smaller file is left to the kernel, which reads ahead as far as the program reads such a file at
/// once.
const SEQUENTIAL_MIN_BYTES: u64 = 1 << 20;

/// Advice that so little memory is needed is left to the kernel, which reads as much for one advice where the device's
/// read-ahead has its default. A hint would cost processor time and fetch nothing.
const NEEDED_MIN_BYTES: u64 = 128 << 10;

/// Files of a process that are remembered as disclosed by its advice. Beyond that, those that no hint names are forgotten.
const FILES_MAX: usize = 256;

/// What processes have disclosed by advice.
pub(super) type AdviceStreams = HashMap<ProcessId, AdviceStream>;

/// The stream of a process that has given advice.
#[derive(Debug)]
pub(super) struct AdviceStream {
    stream: StreamId,
    /// Files of which hints were accepted.
    files: Vec<FileId>,
    /// What was disclosed last. A program that says the same again says nothing new.
    last: Option<(FileId, Extent)>,
}

/// The range that will be read, and the file and its descriptor; `None` if the advice does not say.
fn disclosed(advice: Advice) -> Option<(Segment, FileId, u64)> {
    if !matches!(advice.kind, AdviceKind::Needed | AdviceKind::Sequential) {
        return None;
    }
    let Advised::File { device, inode, descriptor } = advice.of else { return None };
    let (offset_bytes, rest_bytes) = (advice.offset_bytes, u64::MAX - advice.offset_bytes);
    let length_bytes = if advice.length_bytes == 0 { rest_bytes } else { advice.length_bytes };
    let range = Segment { offset_bytes, length_bytes: length_bytes.min(rest_bytes) };
    (range.length_bytes > 0).then(|| (range, file_id(device, inode), descriptor))
}

impl Session {
    /// Takes in the advice of a process. Without room for more of its hints, the advice has no effect beyond the kernel's.
    pub(super) fn take_advice(&mut self, ReaderId(process): ReaderId, advice: Advice) {
        let is_followed = self.observes && process != 0;
        let Some(files) = self.files.as_ref().filter(|_| is_followed) else { return };
        if advice.of == Advised::Memory {
            if advice.kind == AdviceKind::Needed && advice.length_bytes <= NEEDED_MIN_BYTES {
                return;
            }
            let end = advice.offset_bytes.saturating_add(advice.length_bytes);
            let (kind, addresses) = (advice.kind, advice.offset_bytes..end);
            return self.observed.observer.advise(process, MemoryAdvice { kind, addresses });
        }
        let Some((range, file, descriptor)) = disclosed(advice) else { return };
        let Some(path) = files.path_of_descriptor(process, descriptor) else { return };
        let extent = match range {
            Segment { offset_bytes: 0, length_bytes: u64::MAX } => Extent::WholeFile,
            part => Extent::Segments([part].into()),
        };
        let size_bytes_min = match advice.kind {
            AdviceKind::Sequential => SEQUENTIAL_MIN_BYTES,
            _ => 0,
        };
        let order = Order::Given;
        self.disclose_advised(process, (path, extent, order), Expected::of(file, size_bytes_min));
    }

    /// Takes in what a process needs of a file that it has mapped. Within the parts it may go in any order.
    pub(super) fn take_needed(
        &mut self,
        process: ProcessId,
        Needed { file, path, ranges }: Needed,
    ) {
        let segment = |range: std::ops::Range<u64>| Segment {
            offset_bytes: range.start,
            length_bytes: range.end - range.start,
        };
        let extent = Extent::Segments(ranges.into_iter().map(segment).collect());
        self.disclose_advised(process, (path, extent, Order::Any), Expected::of(file, 0));
    }

    fn disclose_advised(
        &mut self,
        process: ProcessId,
        (path, extent, order): (PathBuf, Extent, Order),
        expected: Expected,
    ) {
        if !self.hears(HinterId(process)) {
            return;
        }
        let now = self.now();
        let of_process = self.advice_streams.entry(process).or_insert_with(|| {
            self.streams += 1;
            let stream = self.policy.open_stream(now, HinterId(process), None);
            self.policy.set_source(stream, Origin::Advice.id());
            AdviceStream { stream, files: Vec::new(), last: None }
        });
        let stream = of_process.stream;
        let said = Some((expected.file, extent.clone()));
        if of_process.last == said && self.policy.wants(expected.file) {
            return;
        }
        of_process.last = said;
        let whole = Disclosure::whole_file(path, Certainty::MaybeUnread);
        let expected = Expected { advised_by: Some(process), ..expected };
        self.disclose_file(stream, Disclosure { extent, order, ..whole }, expected);
    }

    /// Whether the hints that name `file` may have a further one beside them: they are advice of the same process.
    pub(super) fn is_advised_by(&self, process: Option<ProcessId>, file: FileId) -> bool {
        let of_process = process.and_then(|process| self.advice_streams.get(&process));
        of_process.is_some_and(|of_process| of_process.files.contains(&file))
    }

    /// Notes that a hint by advice of a process has been accepted.
    pub(super) fn note_advised(&mut self, process: Option<ProcessId>, file: FileId) {
        let of_process = process.and_then(|process| self.advice_streams.get_mut(&process));
        if let Some(of_process) = of_process {
            of_process.note(file, &self.policy);
        }
    }

    /// Closes the stream of a process that has ended.
    pub(super) fn end_advice(&mut self, ReaderId(process): ReaderId) {
        if let Some(of_process) = self.advice_streams.remove(&process) {
            self.streams -= 1;
            self.policy.close(self.now(), of_process.stream);
        }
    }
}

impl AdviceStream {
    fn note(&mut self, file: FileId, policy: &Policy) {
        if self.files.contains(&file) {
            return;
        }
        if self.files.len() >= FILES_MAX {
            self.files.retain(|&file| policy.wants(file));
        }
        if self.files.len() < FILES_MAX {
            self.files.push(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_advice_up_to_the_largest_offset() {
        let of = Advised::File { device: 1, inode: 2, descriptor: 3 };
        let range = |kind, offset_bytes, length_bytes| {
            let advice = Advice { kind, of, offset_bytes, length_bytes };
            disclosed(advice).map(|(range, ..)| (range.offset_bytes, range.length_bytes))
        };
        assert_eq!(range(AdviceKind::Needed, 10, 20), Some((10, 20)));
        assert_eq!(range(AdviceKind::Sequential, 0, 0), Some((0, u64::MAX)));
        assert_eq!(range(AdviceKind::Needed, 10, u64::MAX), Some((10, u64::MAX - 10)));
        assert_eq!(range(AdviceKind::Needed, u64::MAX, 0), None);
        for kind in [AdviceKind::Random, AdviceKind::Once, AdviceKind::Normal] {
            assert_eq!(range(kind, 10, 20), None);
        }
        let memory = Advice {
            kind: AdviceKind::Needed,
            of: Advised::Memory,
            offset_bytes: 4096,
            length_bytes: 1,
        };
        assert_eq!(disclosed(memory), None);
    }
}
