//! Arguments of the processes of a run, as hints: which paths they have disclosed, so that no path is disclosed twice in a
//! lineage.
//!
//! The rules are those of the [source](crate::source::arguments) of the run's own command line. [`Session`](crate::session)
//! reads a command line when a program introduces itself, and draws words from here as earlier ones are looked up.
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
        keys.extend(matches!(certainty, Certainty::MaybeTree(_)).then_some(tree));
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

    /// Whether this path is a word of the process or of an ancestor.
    pub(crate) fn has_named(&mut self, process: ProcessId, path: &Path) -> bool {
        let [file, _] = keys_of(path);
        let is_in = |keys: &[u64]| keys.binary_search(&file).is_ok();
        if is_in(self.first.keys()) {
            return true;
        }
        let Some(known) = self.processes.get(&process) else { return false };
        let of_ancestor = |&(ancestor, stream): &(ProcessId, StreamId)| {
            let found = self.processes.get(&ancestor);
            found.is_some_and(|found| found.stream == stream && is_in(&found.keys))
        };
        is_in(&known.keys) || known.ancestors.iter().any(of_ancestor)
    }

    /// Notes a process that has begun a program, before its command line is taken over.
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
                Certainty::MaybeTree(_) if stands(tree) => None,
                Certainty::MaybeTree(visits) if stands(file) => {
                    Some(Certainty::MaybeFolder(visits))
                }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::source::Visits;

    const PROCESS: ProcessId = 100;

    /// A run whose processes have these parents.
    struct Run {
        lineage: Lineage,
        parents: HashMap<ProcessId, ProcessId>,
        streams: Cell<u64>,
    }

    fn line(words: &str) -> CommandLine {
        CommandLine::from_words(&words.split(' ').map(Into::into).collect::<Vec<_>>())
    }

    fn run(first: &str) -> Run {
        let command = first.split(' ').map(Into::into).collect();
        let lineage = Lineage::new(Setting { command, working_folder: Some("/w".into()) });
        Run { lineage, parents: HashMap::new(), streams: Cell::new(0) }
    }

    impl Run {
        fn take(&mut self, process: ProcessId, line: CommandLine) -> bool {
            let open = || {
                self.streams.set(self.streams.get() + 1);
                StreamId(self.streams.get())
            };
            let parent_of = |of| self.parents.get(&of).copied();
            self.lineage.note_process(process);
            self.lineage.begin(process, (line, Some("/w".into())), parent_of, open)
        }

        /// The paths that a process discloses when it begins a program, with the number of its stream.
        fn begins(&mut self, process: ProcessId, words: &str) -> Vec<(u64, String)> {
            self.take(process, line(words));
            self.words().into_iter().map(|(stream, word)| (stream, name(&word))).collect()
        }

        fn words(&mut self) -> Vec<(u64, Disclosure)> {
            let next = || self.lineage.next_word(|_| true);
            std::iter::from_fn(next).map(|(stream, word)| (stream.0, word)).collect()
        }
    }

    fn name(word: &Disclosure) -> String {
        word.path.strip_prefix("/w").expect("it is there").to_str().expect("text").to_owned()
    }

    fn on(stream: u64, names: &[&str]) -> Vec<(u64, String)> {
        names.iter().map(|name| (stream, (*name).to_owned())).collect()
    }

    #[test]
    fn words_of_the_run_are_new_to_no_process() {
        let mut run = run("env A=1 grep x a b");
        assert!(run.lineage.is_first(b"env\0A=1\0grep\0x\0a\0b\0"));
        assert!(!run.lineage.is_first(b"grep\0x\0a\0b\0"));
        assert_eq!(run.begins(PROCESS, "grep x a b"), []);
        assert_eq!((run.lineage.bytes(), run.streams.get()), (0, 0), "it leaves nothing");
        assert_eq!(run.begins(PROCESS, "grep x a c b"), on(1, &["c"]));
        assert_eq!(run.begins(PROCESS + 1, "grep x a c b"), on(2, &["c"]), "no relation");
    }

    #[test]
    fn a_process_that_executes_another_program_goes_on_with_its_stream() {
        let mut run = run("sh -c script");
        assert_eq!(run.begins(PROCESS, "nice cat a b"), on(1, &["cat", "a", "b"]));
        assert_eq!(run.begins(PROCESS, "cat a b"), []);
        assert_eq!(run.begins(PROCESS, "cat a b c"), on(1, &["c"]));
        assert_eq!(run.lineage.end(PROCESS), [StreamId(1)]);
        assert_eq!(run.lineage.end(PROCESS), [], "it has ended");
        assert_eq!(run.lineage.bytes(), 0);
        assert_eq!(run.begins(PROCESS, "cat a b"), on(2, &["a", "b"]), "another process");
    }

    #[test]
    fn words_that_wait_are_disclosed_after_the_process_executes_another_program() {
        let mut run = run("sh -c script");
        assert!(run.take(PROCESS, line("nice cat a b")));
        let first = run.lineage.next_word(|_| true).expect("three");
        assert_eq!(name(&first.1), "cat");
        assert!(run.lineage.next_word(|process| process != PROCESS).is_none(), "no room");
        assert!(run.take(PROCESS, line("cat a b c")));
        let rest = run.words();
        assert_eq!(rest.iter().map(|(_, word)| name(word)).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(!run.lineage.has_words());
    }

    #[test]
    fn words_of_an_ancestor_are_new_when_it_has_ended() {
        let mut run = run("sh -c script");
        run.parents = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1)].into();
        run.lineage.note_process(1);
        assert_eq!(run.begins(2, "sh s a b"), on(1, &["s", "a", "b"]));
        // Process 3 has announced nothing.
        assert_eq!(run.begins(4, "cat a b c"), on(2, &["c"]));
        assert_eq!(run.begins(5, "cat a"), on(3, &["a"]), "a process beside it");
        let stream = run.lineage.processes[&2].stream;
        assert!(run.lineage.is_open(stream));
        run.lineage.note_walk(stream, StreamId(77));
        assert_eq!(run.lineage.end(2), [stream, StreamId(77)]);
        assert!(!run.lineage.is_open(stream));
        // The number is another process's now.
        assert_eq!(run.begins(2, "sh d"), on(4, &["d"]));
        assert_eq!(run.begins(4, "cat a b c d"), on(2, &["a", "b", "d"]));
    }

    #[test]
    fn the_way_to_an_ancestor_ends_at_the_first_process() {
        let mut run = run("sh -c script");
        run.lineage.note_process(1);
        assert_eq!(run.begins(7, "cat a").len(), 1);
        let asked = Cell::new(0);
        let parent_of = |of: ProcessId| {
            asked.set(asked.get() + 1);
            Some(of - 1)
        };
        let open = || StreamId(9);
        run.lineage.begin(4, (line("cat a"), Some("/w".into())), parent_of, open);
        assert_eq!(asked.get(), 3);
        run.lineage.begin(1000, (line("cat a"), Some("/w".into())), parent_of, open);
        assert_eq!(asked.get(), 3 + DEPTH_MAX);
    }

    #[test]
    fn words_of_the_run_of_a_process_and_of_its_ancestors_are_named() {
        let mut run = run("sh first");
        run.parents.extend([(2, 1), (3, 1)]);
        run.begins(1, "sh of-shell");
        run.begins(2, "cat of-child");
        let mut has =
            |process, name: &str| run.lineage.has_named(process, &Path::new("/w").join(name));
        assert!(has(2, "of-child") && has(2, "of-shell") && has(1, "of-shell") && has(9, "first"));
        assert!(!has(1, "of-child") && !has(3, "of-child") && !has(2, "of-none"));
    }

    #[test]
    fn a_path_named_several_times_in_one_line_is_disclosed_as_often() {
        let mut run = run("sh -c script");
        assert_eq!(run.begins(PROCESS, "cat a b a"), on(1, &["a", "b", "a"]));
        assert_eq!(run.begins(PROCESS, "cat a b a"), []);
    }

    #[test]
    fn a_folder_is_new_to_a_program_that_recurses() {
        let mut run = run("sh -c script");
        let claims = |words: Vec<(u64, Disclosure)>| -> Vec<(String, Certainty)> {
            words.iter().map(|(_, word)| (name(word), word.certainty)).collect()
        };
        run.take(PROCESS, line("env cat d"));
        assert_eq!(claims(run.words())[1], ("d".into(), Certainty::MaybeFile));
        run.take(PROCESS, line("grep -r x d"));
        let (x, d) = (
            ("x".into(), Certainty::MaybeTree(Visits::Listed)),
            ("d".into(), Certainty::MaybeFolder(Visits::Listed)),
        );
        assert_eq!(claims(run.words()), [x, d]);
        run.take(PROCESS, line("grep -r x d"));
        run.take(PROCESS, line("cat d"));
        assert_eq!(claims(run.words()), []);
    }

    #[test]
    fn command_lines_take_bounded_memory() {
        let mut run = run("sh -c script");
        let many = |count: usize| {
            let words: Vec<String> = (0..count).map(|word| format!("{word:06}")).collect();
            line(&format!("cat {}", words.join(" ")))
        };
        assert!(run.take(PROCESS, many(100_000)));
        assert_eq!(run.words().len(), 100_000);
        assert!(!run.take(PROCESS, many(100_000)));
        // Beyond the bound words are disclosed and forgotten.
        assert!(run.take(PROCESS, many(KEYS_MAX + 1000)));
        assert_eq!(run.words().len(), KEYS_MAX + 1000 - 100_000);
        assert!(run.take(PROCESS, many(KEYS_MAX + 1000)));
        assert_eq!(run.words().len(), 1000);
        assert_eq!(run.lineage.processes[&PROCESS].keys.len(), KEYS_MAX);
        let mut taken = 0;
        while run.take(PROCESS + 1 + taken, many(100_000)) {
            taken += 1;
        }
        assert!(taken > 2, "{taken}");
        assert!(run.lineage.bytes() < 2 * KEPT_MAX_BYTES);
        (0..=taken).for_each(|process| drop(run.lineage.end(PROCESS + process)));
        assert_eq!((run.lineage.bytes(), run.lineage.has_words()), (0, false));
    }
}
