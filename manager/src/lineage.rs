//! Arguments of the processes of a run, as hints: which paths they have disclosed, so that no path is disclosed twice in a lineage.
//!
//! The rules are those of the [source](crate::source::arguments) of the run's own command line. [`Session`](crate::session) reads
//! a command line when a program introduces itself, and draws words from here as earlier ones are looked up.
//!
//! A process's words are disclosed unless one of these has disclosed the path, and that disclosure stands:
//!
//! A. the command line of the run, which a [source](crate::source::arguments) discloses. It stands until the run ends.
//! B. an ancestor of the process. It stands until the ancestor ends.
//! C. the same process before it executed this program (`env`, `nice`, `timeout`). The process keeps its stream of words, and
//!    adds to it.
//!
//! A path that one command line names several times is disclosed as often.
//!
//! A path is known by a hash of 64 bits. Two paths with the same hash cost a hint, nothing more. A folder counts apart: `env`
//! does not disclose what is below it, `grep -r` does.
//!
//! Cost: a process without new paths leaves nothing here. Memory is bounded: by [`KEYS_MAX`] for each process, and by
//! [`KEPT_MAX_BYTES`] for all.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_policy::StreamId;

use crate::source::arguments::{CommandLine, Disclosures, disclosures};
use crate::source::{Certainty, Disclosure, Setting};

/// Hashes that are kept of each process. Words beyond that are disclosed, and may be disclosed again.
const KEYS_MAX: usize = 1 << 17;

/// Bytes of all command lines and hashes. Beyond that, arguments of further processes are not disclosed.
const KEPT_MAX_BYTES: usize = 32 << 20;

/// Processes that are looked at on the way to an ancestor. A deeper lineage may disclose a path twice.
const DEPTH_MAX: usize = 32;

/// The number of a process in the manager's namespace.
pub(crate) type ProcessId = u64;

/// See the [module](self).
pub(crate) struct Lineage {
    first: First,
    /// Where the way to ancestors ends: the first process that was seen.
    first_process: Option<ProcessId>,
    processes: HashMap<ProcessId, Process>,
    /// Processes with words left to disclose.
    supplying: Vec<ProcessId>,
    /// Bytes of `processes`.
    bytes: usize,
}

/// A: the command line of the run.
struct First {
    line: CommandLine,
    working_folder: Option<PathBuf>,
    /// Hashes of its paths, sorted; `None` until they are needed.
    keys: Option<Vec<u64>>,
}

/// A process that has disclosed arguments.
struct Process {
    stream: StreamId,
    /// Streams of the folders among its words.
    walks: Vec<StreamId>,
    /// New words, one command line after the other.
    lines: VecDeque<NewWords>,
    /// Hashes of its paths, sorted.
    keys: Vec<u64>,
    /// B. A number may be another process's by now, so each comes with its stream.
    ancestors: Vec<(ProcessId, StreamId)>,
}

/// The words of a command line that no one in the lineage has disclosed.
struct NewWords {
    words: Disclosures,
    /// For each word, what it claims if it is new.
    news: std::vec::IntoIter<Option<Certainty>>,
    bytes: usize,
}

impl Iterator for NewWords {
    type Item = Disclosure;

    fn next(&mut self) -> Option<Disclosure> {
        loop {
            let (word, certainty) = (self.words.next()?, self.news.next()?);
            if let Some(certainty) = certainty {
                return Some(Disclosure { certainty, ..word });
            }
        }
    }
}

/// The hashes of a path, as a file and as a folder with all that is below it.
fn keys_of(path: &Path) -> [u64; 2] {
    let mut hasher = DefaultHasher::new();
    hasher.write(path.as_os_str().as_bytes());
    let file = hasher.finish();
    hasher.write_u8(0);
    [file, hasher.finish()]
}

/// Adds the hashes of a word's path to `keys`.
fn note(keys: &mut Vec<u64>, [file, tree]: [u64; 2], certainty: Certainty) {
    if keys.len() < KEYS_MAX {
        keys.push(file);
        keys.extend((certainty == Certainty::MaybeTree).then_some(tree));
    }
}

impl First {
    fn keys(&mut self) -> &[u64] {
        self.keys.get_or_insert_with(|| {
            let mut keys = Vec::new();
            for word in disclosures(self.line.clone(), self.working_folder.clone()) {
                note(&mut keys, keys_of(&word.path), word.certainty);
            }
            keys.sort_unstable();
            keys
        })
    }
}

impl Process {
    fn bytes(&self) -> usize {
        let lines: usize = self.lines.iter().map(|line| line.bytes).sum();
        lines + size_of_val(&self.keys[..]) + size_of_val(&self.ancestors[..]) + size_of::<Self>()
    }
}

impl Lineage {
    pub(crate) fn new(first: Setting) -> Self {
        let line = CommandLine::from_words(&first.command);
        Lineage {
            first: First { line, working_folder: first.working_folder, keys: None },
            first_process: None,
            processes: HashMap::new(),
            supplying: Vec::new(),
            bytes: 0,
        }
    }

    /// Whether this is the command line of the run, all of whose words are disclosed.
    pub(crate) fn is_first(&self, line: &[u8]) -> bool {
        self.first.line.is(line)
    }

    /// Notes that a process has begun a program. Call it for every one, in their order.
    pub(crate) fn note_process(&mut self, process: ProcessId) {
        self.first_process.get_or_insert(process);
    }

    /// Takes over the command line of a program that `process` has begun in `working_folder`. Returns whether it has new words.
    /// `parent_of` tells a process's parent; `open_stream` opens the process's stream if it has none.
    pub(crate) fn begin(
        &mut self,
        process: ProcessId,
        (line, working_folder): (CommandLine, Option<PathBuf>),
        parent_of: impl FnMut(ProcessId) -> Option<ProcessId>,
        open_stream: impl FnOnce() -> StreamId,
    ) -> bool {
        if self.bytes + line.bytes() >= KEPT_MAX_BYTES {
            return false;
        }
        let known = self.processes.get(&process);
        let ancestors = match known {
            Some(known) => known.ancestors.clone(),
            None => self.ancestors(process, parent_of),
        };
        let of_ancestors = ancestors.iter().filter_map(|&(ancestor, stream)| {
            self.processes.get(&ancestor).filter(|ancestor| ancestor.stream == stream)
        });
        let of_lineage = known.into_iter().chain(of_ancestors).map(|known| &known.keys[..]);
        let standing: Vec<&[u64]> = [self.first.keys()].into_iter().chain(of_lineage).collect();
        let stands = |key: u64| standing.iter().any(|keys| keys.binary_search(&key).is_ok());
        let line_bytes = line.bytes();
        let words = disclosures(line, working_folder);
        let (mut news, mut keys) = (Vec::new(), Vec::new());
        for word in words.clone() {
            let of_word @ [file, tree] = keys_of(&word.path);
            let new = match word.certainty {
                Certainty::MaybeTree if stands(tree) => None,
                Certainty::MaybeTree if stands(file) => Some(Certainty::MaybeFolder),
                _ if stands(file) => None,
                certainty => Some(certainty),
            };
            if new.is_some() {
                note(&mut keys, of_word, word.certainty);
            }
            news.push(new);
        }
        if keys.is_empty() {
            return false;
        }
        let bytes = line_bytes + news.len();
        let line = NewWords { words, news: news.into_iter(), bytes };
        let before = known.map_or(0, Process::bytes);
        let entry = self.processes.entry(process).or_insert_with(|| Process {
            stream: open_stream(),
            walks: Vec::new(),
            lines: VecDeque::new(),
            keys: Vec::new(),
            ancestors,
        });
        if entry.lines.is_empty() {
            self.supplying.push(process);
        }
        entry.lines.push_back(line);
        entry.keys.append(&mut keys);
        entry.keys.truncate(KEYS_MAX);
        entry.keys.sort_unstable();
        self.bytes = self.bytes + entry.bytes() - before;
        true
    }

    /// B: the ancestors of `process` that have disclosed arguments.
    fn ancestors(
        &self,
        process: ProcessId,
        mut parent_of: impl FnMut(ProcessId) -> Option<ProcessId>,
    ) -> Vec<(ProcessId, StreamId)> {
        let mut at = process;
        for _ in 0..DEPTH_MAX {
            if self.processes.is_empty() || self.first_process == Some(at) {
                break;
            }
            let Some(parent) = parent_of(at) else { break };
            if let Some(known) = self.processes.get(&parent) {
                let above = known.ancestors.iter().copied().take(DEPTH_MAX);
                return [(parent, known.stream)].into_iter().chain(above).collect();
            }
            at = parent;
        }
        Vec::new()
    }

    /// The next new word, with its stream: of the first process for which `has_room` holds.
    pub(crate) fn next_word(
        &mut self,
        has_room: impl Fn(ProcessId) -> bool,
    ) -> Option<(StreamId, Disclosure)> {
        let mut at = 0;
        while let Some(&id) = self.supplying.get(at) {
            if !has_room(id) {
                at += 1;
                continue;
            }
            let process = self.processes.get_mut(&id).expect("one that supplies is known");
            while let Some(line) = process.lines.front_mut() {
                if let Some(word) = line.next() {
                    return Some((process.stream, word));
                }
                self.bytes -= line.bytes;
                process.lines.pop_front();
            }
            self.supplying.swap_remove(at);
        }
        None
    }

    /// Whether words are left to disclose.
    pub(crate) fn has_words(&self) -> bool {
        !self.supplying.is_empty()
    }

    /// Whether the process with this stream has not ended.
    pub(crate) fn is_open(&self, stream: StreamId) -> bool {
        self.processes.values().any(|process| process.stream == stream)
    }

    /// Notes that a folder among the words of `stream` is listed, and its files are disclosed on the stream `walk`.
    pub(crate) fn note_walk(&mut self, stream: StreamId, walk: StreamId) {
        let process = self.processes.values_mut().find(|process| process.stream == stream);
        if let Some(process) = process {
            process.walks.push(walk);
        }
    }

    /// Forgets a process that has ended. Returns its streams: of its words first, then of the folders among them.
    pub(crate) fn end(&mut self, process: ProcessId) -> Vec<StreamId> {
        let Some(ended) = self.processes.remove(&process) else { return Vec::new() };
        self.bytes -= ended.bytes();
        self.supplying.retain(|&supplying| supplying != process);
        [ended.stream].into_iter().chain(ended.walks).collect()
    }

    /// Bytes of command lines and hashes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
