//! The policy's decisions as text.
//!
//! A head explains the fields. Then each decision is one line, with fields separated by tabs. The policy knows files by number
//! only, so their names are kept here as they are looked up.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::path::PathBuf;

use foretell_policy::{Decision, FileId};

const HEAD: &str = "\
# foretell decisions 1: the last decisions of the policy, oldest first. docs/guide/explain.md says how to read them.
# decision  fate of the block               value_ns                  against_ns
# prefetch  fetched ahead of its read       benefit of fetching it    cost of its buffer (0: one is free)
# cluster   fetched with the one before     worth of keeping it       cost of its buffer
# refuse    not fetched                     benefit of fetching it    cost of the cheapest buffer (inf: all are in flight)
# unearned  not fetched: its stream has too many unread blocks for the share of its hints that it has read
#                                           benefit of fetching it    0
# evict     evicted                         worth of keeping it       worth of the block that gets its buffer
# evict-unread  the same, prefetched and not read: the summary counts it as wasted, like:
# waste     prefetched and given up unread: its reader has gone past, or its hint was cancelled
# A block that was read for the last time as hinted is left to the kernel without a line.
# Values are ns of run time saved or lost for each buffer and access, of all programs together.
# Stream 0 takes hints from scripts (foretell hint), the next ones those of --hints and of the arguments.
";
const FIELDS: &str = "# time_s\tdecision\tvalue_ns\tagainst_ns\tstream\tblock\tfile\n";

/// Most memory of the names. Beyond it the oldest are forgotten, since only the last decisions are reported.
const NAMES_MAX_BYTES: usize = 32 << 20;

/// Memory of a name in both tables, without its own bytes.
const NAME_BYTES: usize = 64;

/// The names of the files that decisions are about; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Explanation {
    names: HashMap<FileId, PathBuf>,
    /// In the order in which they came.
    files: VecDeque<FileId>,
    names_bytes: usize,
}

impl Explanation {
    /// Notes that `file` was found under this name.
    pub(crate) fn name(&mut self, file: FileId, path: PathBuf) {
        if self.names.contains_key(&file) {
            return;
        }
        self.names_bytes += path.capacity() + NAME_BYTES;
        self.names.insert(file, path);
        self.files.push_back(file);
        while self.names_bytes > NAMES_MAX_BYTES
            && let Some(path) = self.files.pop_front().and_then(|file| self.names.remove(&file))
        {
            self.names_bytes -= path.capacity() + NAME_BYTES;
        }
    }

    /// The text. `dropped` earlier decisions are not in it.
    pub(crate) fn text(&self, decisions: &[Decision], dropped: u64) -> String {
        let mut text = HEAD.to_owned();
        if dropped > 0 {
            let _ = writeln!(text, "# {dropped} earlier decisions are left out.");
        }
        text.push_str(FIELDS);
        for decision in decisions {
            let stream = decision.stream.map_or("-".into(), |stream| stream.0.to_string());
            let name = self.names.get(&decision.block.file);
            // Escaped: a name may contain a newline.
            let name =
                name.map_or("?".into(), |name| name.to_string_lossy().escape_debug().to_string());
            let _ = writeln!(
                text,
                "{:.6}\t{}\t{:.3}\t{:.3}\t{stream}\t{}\t{name}",
                decision.at.as_secs(),
                decision.kind.name(),
                decision.value_ns,
                decision.against_ns,
                decision.block.index,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_policy::{Block, DecisionKind, Nanos, StreamId};

    #[test]
    fn names_take_a_bounded_memory_and_the_last_stay() {
        let mut explanation = Explanation::default();
        let files = (NAMES_MAX_BYTES / 4096) as u64 * 2;
        for file in 0..files {
            explanation.name(FileId(file), "x".repeat(4096).into());
        }
        assert!(explanation.names_bytes <= NAMES_MAX_BYTES);
        assert_eq!(explanation.names.len(), explanation.files.len());
        assert!(explanation.names.contains_key(&FileId(files - 1)));
        assert!(!explanation.names.contains_key(&FileId(0)));
    }

    #[test]
    fn a_decision_is_a_line_whatever_the_file_is_called() {
        let mut explanation = Explanation::default();
        explanation.name(FileId(1), "two\nlines".into());
        let block = Block { file: FileId(1), index: 7 };
        let (kind, stream) = (DecisionKind::Evict, Some(StreamId(2)));
        let at = Nanos(1_500_000_000);
        let decision = Decision { at, kind, block, stream, value_ns: 1.0, against_ns: 2.5 };
        let text = explanation.text(&[decision], 3);
        assert!(text.ends_with("1.500000\tevict\t1.000\t2.500\t2\t7\ttwo\\nlines\n"), "{text}");
        let head: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        assert!(head[head.len() - 2].starts_with("# 3 earlier decisions"), "{head:?}");
        assert!(head[head.len() - 1].starts_with("# time_s\tdecision"), "{head:?}");
    }
}
