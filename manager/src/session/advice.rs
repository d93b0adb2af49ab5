//! A program's own advice (`posix_fadvise`, `readahead`, `MAP_POPULATE`) as disclosures.
//!
//! The library forwards the advice first and records it then. The kernel does with it what it does without foretell: it cuts
//! `WILLNEED` to the device's read-ahead limit, say. As a disclosure, all of the range is fetched, as deep as the device allows and
//! as far ahead as the budget allows.
//!
//! * *Needed* and *sequential* disclose the range, in the order in which the program gave its advice.
//! * *Random*, *once* and *normal* disclose nothing: they do not say which part will be read.
//!
//! The record names the descriptor and the file's identity. The path comes from `/proc`, where a link names the file that is
//! open, so it may be another file by now. The lookup compares the identity, and drops the hint if it differs.
//!
//! A file of which other hints are known is left to them: `cat` gives advice for each of its arguments.
//!
//! Not here: advice about memory (`madvise`). It names an address, and which file is mapped there is not known.

use std::collections::HashMap;

use foretell_policy::{Extent, FileId, HinterId, ReaderId, Segment, StreamId};
use foretell_protocol::{Advice, AdviceKind, Advised};

use super::Session;
use super::waiting::Expected;
use crate::driver::file::file_id;
use crate::lineage::ProcessId;
use crate::source::{Certainty, Disclosure};

/// Sequential advice about a smaller file is left to the kernel, which reads ahead as far as the program reads such a file at once.
const SEQUENTIAL_MIN_BYTES: u64 = 1 << 20;

/// The streams of processes that have given advice.
pub(super) type AdviceStreams = HashMap<ProcessId, StreamId>;

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
        let Some((range, file, descriptor)) = disclosed(advice) else { return };
        let is_followed = self.observes && process != 0;
        let Some(files) = self.files.as_ref().filter(|_| is_followed) else { return };
        let path = files.path_of_descriptor(process, descriptor);
        let Some(path) = path.filter(|_| self.hears(HinterId(process))) else { return };
        let now = self.now();
        let stream = *self.advice_streams.entry(process).or_insert_with(|| {
            self.streams += 1;
            self.policy.open_stream(now, HinterId(process), None)
        });
        let extent = match range {
            Segment { offset_bytes: 0, length_bytes: u64::MAX } => Extent::WholeFile,
            part => Extent::Segments([part].into()),
        };
        let whole = Disclosure::whole_file(path, Certainty::MaybeUnread);
        let size_bytes_min = match advice.kind {
            AdviceKind::Sequential => SEQUENTIAL_MIN_BYTES,
            _ => 0,
        };
        let expected = Expected { file, size_bytes_min };
        self.disclose_file(stream, Disclosure { extent, ..whole }, expected);
    }

    /// Closes the stream of a process that has ended.
    pub(super) fn end_advice(&mut self, ReaderId(process): ReaderId) {
        if let Some(stream) = self.advice_streams.remove(&process) {
            self.streams -= 1;
            self.policy.close(self.now(), stream);
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
