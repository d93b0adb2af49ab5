//! Hints from a command line: `grep pattern FILES…` names the files that it will read.
//!
//! Every word that is not an option may name a file. So may the part after an `=`, in options and other words (`--file=list`,
//! `if=image`). The lookup decides whether it does. The policy makes lookups in parallel and ahead; a check here would wait for
//! the device once for each word. The order is that of the command line. The program itself, `argv[0]`, is not disclosed: it is
//! read before foretell could help.
//!
//! The script of a shell (`sh -c SCRIPT`) is no name. Its commands are processes with arguments of their own.
//!
//! Folders are disclosed for programs that are known to read whole trees when told to. A search that names no folder searches
//! the working folder. A search of some files only (`--include`) discloses no folder: it would be hints for all the others.
//!
//! Words that name what will be written are left out: the last one of a copy, the one behind `-o`, the archive of `tar c`.
//!
//! The source discloses the command line of the run. The processes that it starts have command lines too: the manager reads
//! them itself (`lineage.rs`), by the same rules.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{ByDefault, Certainty, Disclosure, Kind, Visits};

/// See the [module](self).
pub const KIND: Kind = Kind::ByDefault(ByDefault {
    on: "hint-args",
    help: "Take existing files named in the arguments of PROGRAM, and of the programs that it starts, as hints, in their order \
           (the default); also folders, for programs known to recurse (grep -r, tar c, cp -a, ...)",
    off: "no-hint-args",
    help_off: "Do not take hints from arguments",
    of_processes: true,
    open: |setting| {
        let line = CommandLine::from_words(&setting.command);
        Box::new(disclosures(line, setting.working_folder).map(Ok))
    },
});

/// The words of a command line, each ended by a NUL byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine(Box<[u8]>);

impl CommandLine {
    /// The command line `argv`.
    pub fn from_words(argv: &[OsString]) -> Self {
        let words = argv.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0]));
        CommandLine(words.collect())
    }

    /// As in `/proc/PID/cmdline`. A last word that is not ended by a NUL byte is left out.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        CommandLine(bytes[..ended_words(bytes)].into())
    }

    /// Whether it consists of these bytes.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        *self.0 == *bytes
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// Bytes of the words that are ended by a NUL byte.
fn ended_words(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == 0).map_or(0, |last| last + 1)
}

/// The last component of a command line's first word.
fn name_of_program(line: &[u8]) -> &[u8] {
    let program = line.split(|&byte| byte == 0).next().unwrap_or_default();
    program.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Whether a program with this `argv[0]` is known to read no file that its arguments name.
pub(crate) fn reads_no_arguments(argv0: &str) -> bool {
    let name = name_of_program(argv0.as_bytes());
    NO_READERS.iter().any(|known| name == known.as_bytes())
}

/// Whether a word of this command line may name a file.
pub(crate) fn may_name_files(line: &[u8]) -> bool {
    let mut words = Words::of(&line[..ended_words(line)]);
    while let Some(word) = words.next(line) {
        if word.candidates(line).iter().flatten().next().is_some() {
            return true;
        }
    }
    false
}

/// A position in a command line behind its program.
#[derive(Clone, Debug)]
struct Words {
    at: usize,
    end: usize,
    options_end: bool,
    /// The program is a shell whose script has not come.
    takes_script: bool,
    /// The next word is a script.
    script_is_next: bool,
    /// The next word, if it is no option, is written.
    output_is_next: bool,
    /// The program is `tar`, creates an archive, and its first word has not come.
    takes_bundle: bool,
    /// The program is `tar` and creates an archive.
    archives: bool,
    /// Where the last name begins, if that is where a copy goes.
    destination: Option<usize>,
    /// The option `-t` names where a copy goes.
    targets: bool,
}

/// A word of a command line.
struct Word {
    from: usize,
    to: usize,
    /// It is a name, and not an option.
    is_name: bool,
    /// It may be a path to be read, or end with one: it is no script, no output and not the `--` that ends the options.
    is_path: bool,
}

impl Words {
    /// Those of a line of ended words, behind the first one.
    fn of(line: &[u8]) -> Self {
        let at = line.iter().position(|&byte| byte == 0).map_or(line.len(), |end| end + 1);
        let name = name_of_program(line);
        let takes_script = SHELLS.iter().any(|shell| name == shell.as_bytes());
        let archives = name == b"tar" && creates_archive(line);
        let mut words = Words {
            at,
            end: line.len(),
            options_end: false,
            takes_script,
            script_is_next: false,
            output_is_next: false,
            takes_bundle: archives,
            archives,
            destination: None,
            targets: false,
        };
        if COPIERS.iter().any(|copier| name == copier.as_bytes()) {
            let mut all = words.clone();
            let names = std::iter::from_fn(|| all.next(line)).filter(|word| word.is_name);
            let names: Vec<usize> = names.map(|word| word.from).collect();
            words.destination = names.last().copied().filter(|_| names.len() > 1);
            words.targets = line.split(|&byte| byte == 0).any(|word| word == b"-t");
            words.destination = words.destination.filter(|_| !words.targets);
        }
        words
    }

    fn next(&mut self, line: &[u8]) -> Option<Word> {
        let from = self.at;
        let length = line[from..self.end].iter().position(|&byte| byte == 0)?;
        let to = from + length;
        self.at = to + 1;
        let word = &line[from..to];
        let ends_options = !self.options_end && word == b"--";
        let is_name = self.options_end || !word.starts_with(b"-");
        let is_bundle = std::mem::take(&mut self.takes_bundle) && is_name;
        let is_output = std::mem::take(&mut self.output_is_next) && is_name;
        let is_output = is_output || is_bundle || self.destination == Some(from);
        let is_output = is_output || (!self.options_end && names_output(word, self.archives));
        self.output_is_next = !self.options_end
            && (matches!(word, b"-o" | b"--output")
                || (self.targets && word == b"-t")
                || (self.archives && (is_bundle || !is_name) && ends_with_file(word)));
        let is_script = std::mem::take(&mut self.script_is_next) && is_name;
        // `-c`, or an option `-ec`.
        self.script_is_next = self.takes_script && !is_name && word.ends_with(b"c");
        self.takes_script &= !is_script && !is_name && !ends_options;
        self.options_end |= ends_options;
        Some(Word { from, to, is_name, is_path: !ends_options && !is_script && !is_output })
    }
}

/// Whether an option or a word like `of=` names what is written.
fn names_output(word: &[u8], archives: bool) -> bool {
    OUTPUTS.iter().any(|begin| word.starts_with(begin.as_bytes()))
        || (archives && word.starts_with(b"--file="))
}

/// Whether the value of an option of `tar` is the archive: it is `--file`, or a bundle of letters that ends with `f`.
fn ends_with_file(word: &[u8]) -> bool {
    word == b"--file" || (!word.starts_with(b"--") && word.ends_with(b"f"))
}

impl Word {
    /// The parts that may be a path.
    fn candidates<'a>(&self, line: &'a [u8]) -> [Option<&'a [u8]>; 2] {
        let word = &line[self.from..self.to];
        let value = word.iter().position(|&byte| byte == b'=').map(|at| &word[at + 1..]);
        let is_path =
            |part: &&[u8]| self.is_path && !part.is_empty() && part.len() < libc::PATH_MAX as usize;
        [self.is_name.then_some(word).filter(is_path), value.filter(is_path)]
    }
}

/// When a program reads the whole tree below a folder that it is given.
enum Recursion {
    /// Always.
    Always,
    /// With one of these letters among its short options, or one of these long options.
    With { letters: &'static [u8], words: &'static [&'static str] },
}

/// Programs known to read folders, by the last component of `argv[0]`.
const RECURSIVE_PROGRAMS: [(&str, Recursion); 13] = [
    ("grep", GREP),
    ("egrep", GREP),
    ("fgrep", GREP),
    ("zgrep", GREP),
    ("rg", Recursion::Always),
    ("ag", Recursion::Always),
    ("ack", Recursion::Always),
    ("tar", Recursion::With { letters: b"cru", words: &["--create", "--append", "--update"] }),
    ("cp", Recursion::With { letters: b"rRa", words: &["--recursive", "--archive"] }),
    ("rsync", Recursion::With { letters: b"ra", words: &["--recursive", "--archive"] }),
    ("diff", Recursion::With { letters: b"r", words: &["--recursive"] }),
    ("zip", Recursion::With { letters: b"r", words: &["--recurse-paths"] }),
    ("md5deep", Recursion::With { letters: b"r", words: &[] }),
];

const GREP: Recursion = Recursion::With {
    letters: b"rR",
    words: &["--recursive", "--dereference-recursive", "--directories=recurse"],
};

/// Shells, by the last component of `argv[0]`.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh"];

/// Programs that visit a folder's entries in another order than that of its list. GNU `cp` sorts them by inode number.
const SORTERS: [(&str, Visits); 3] =
    [("cp", Visits::ByInode), ("rsync", Visits::FilesFirst), ("diff", Visits::ByName)];

/// Programs that write to what the last of several names means.
const COPIERS: [&str; 4] = ["cp", "rsync", "install", "scp"];

/// Beginnings of words that name an output.
const OUTPUTS: [&str; 5] =
    ["of=", "--output=", "--outfile=", "--output-file=", "--output-document="];

/// Programs that search the working folder if they name no other.
const SEARCHERS: [&str; 6] = ["grep", "egrep", "fgrep", "rg", "ag", "ack"];

/// Beginnings of options by which a search leaves files out.
const FILTERS: [&str; 5] = ["--include", "--exclude", "--glob", "--type", "-g"];

/// Programs known to read no file that they name, by the last component of `argv[0]`. Scripts run many of them.
const NO_READERS: [&str; 31] = [
    "[", "basename", "chgrp", "chmod", "chown", "dirname", "du", "echo", "expr", "false", "kill",
    "ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "printf", "pwd", "readlink", "realpath", "rm",
    "rmdir", "sleep", "stat", "test", "touch", "true", "truncate", "unlink", "which",
];

/// The disclosures of a command line that is run in `working_folder`. They are made lazily, since the folder's name in front of
/// each word may be much longer than the command line. Without a working folder (it was removed) only absolute paths count.
pub fn disclosures(line: CommandLine, working_folder: Option<PathBuf>) -> Disclosures {
    let walks = recurses(&line.0) && !leaves_out(&line.0);
    let name = name_of_program(&line.0);
    let visits = SORTERS.iter().find(|(known, _)| name == known.as_bytes());
    let visits = visits.map_or(Visits::Listed, |&(_, visits)| visits);
    let certainty = if walks { Certainty::MaybeTree(visits) } else { Certainty::MaybeFile };
    let searches = walks && SEARCHERS.iter().any(|searcher| name == searcher.as_bytes());
    let words = Words::of(&line.0);
    Disclosures { line, words, value: None, working_folder, certainty, searches, names: 0 }
}

/// See [`disclosures`].
#[derive(Clone, Debug)]
pub struct Disclosures {
    line: CommandLine,
    words: Words,
    /// The part of the last word after its `=`, if it comes next.
    value: Option<PathBuf>,
    working_folder: Option<PathBuf>,
    certainty: Certainty,
    /// The program searches a folder.
    searches: bool,
    /// Names so far.
    names: usize,
}

impl Iterator for Disclosures {
    type Item = Disclosure;

    fn next(&mut self) -> Option<Disclosure> {
        let of_word = |path| Disclosure::whole_file(path, self.certainty);
        if let Some(value) = self.value.take() {
            return Some(of_word(value));
        }
        loop {
            let Some(word) = self.words.next(&self.line.0) else {
                // The pattern alone is no folder.
                let is_unnamed = std::mem::take(&mut self.searches) && self.names < 2;
                let folder = self.working_folder.clone().filter(|_| is_unnamed)?;
                return Some(Disclosure::whole_file(folder, Certainty::MaybeTree(Visits::Listed)));
            };
            self.names += usize::from(word.is_name);
            let path = |candidate: &[u8]| {
                let path = Path::new(OsStr::from_bytes(candidate));
                match &self.working_folder {
                    Some(folder) => Some(folder.join(path)),
                    None => path.is_absolute().then(|| path.to_owned()),
                }
            };
            match word.candidates(&self.line.0).map(|candidate| candidate.and_then(path)) {
                [None, None] => {}
                [None, Some(path)] => return Some(of_word(path)),
                [Some(path), value] => {
                    self.value = value;
                    return Some(of_word(path));
                }
            }
        }
    }
}

/// Whether a search leaves files out.
fn leaves_out(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == 0);
    words.any(|word| FILTERS.iter().any(|filter| word.starts_with(filter.as_bytes())))
}

/// Whether `tar` is told to create an archive.
fn creates_archive(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == 0).skip(1);
    let bundle = words.clone().next().unwrap_or_default();
    let is_short = |word: &[u8]| word.starts_with(b"-") && !word.starts_with(b"--");
    (!bundle.starts_with(b"-") && bundle.contains(&b'c'))
        || words.any(|word| word == b"--create" || (is_short(word) && word.contains(&b'c')))
}

fn recurses(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == 0);
    words.next();
    let name = name_of_program(line);
    let known = RECURSIVE_PROGRAMS.iter().find(|(known, _)| name == known.as_bytes());
    match known {
        None => false,
        Some((_, Recursion::Always)) => true,
        Some((_, Recursion::With { letters, words: known })) => {
            // `tar cf archive folder`: the first word may be a bundle of options without a dash.
            let bundle = words.clone().next().filter(|_| name == b"tar");
            let options = words.filter(|word| word.starts_with(b"-"));
            options.chain(bundle).any(|word| {
                let long = word.starts_with(b"--");
                known.iter().any(|known| word == known.as_bytes())
                    || (!long && word.iter().any(|letter| letters.contains(letter)))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(line: &str) -> (Vec<PathBuf>, bool) {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let line = CommandLine::from_words(&argv);
        let found: Vec<Disclosure> = disclosures(line, Some("/here".into())).collect();
        let tree =
            found.iter().any(|disclosure| matches!(disclosure.certainty, Certainty::MaybeTree(_)));
        (found.into_iter().map(|disclosure| disclosure.path).collect(), tree)
    }

    #[test]
    fn words_that_are_no_options_may_be_files_in_their_order() {
        let (found, tree) = paths("grep -n needle b.txt /abs/a.txt --file=list -- -dash");
        let expected = ["/here/needle", "/here/b.txt", "/abs/a.txt", "/here/list", "/here/-dash"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(!tree);
    }

    #[test]
    fn the_script_of_a_shell_is_no_name() {
        for line in ["sh -c script", "/bin/bash -ec a=b", "sh -e -c script"] {
            assert!(paths(line).0.is_empty(), "{line}");
        }
        assert_eq!(paths("sh -c script -c a").0, ["/here/a"].map(PathBuf::from));
        assert_eq!(paths("sh script -c a").0, ["/here/script", "/here/a"].map(PathBuf::from));
        assert_eq!(paths("sh -c -- b").0, ["/here/b"].map(PathBuf::from));
        assert_eq!(paths("grep -c a").0, ["/here/a"].map(PathBuf::from));
    }

    #[test]
    fn values_behind_an_equals_sign_count_with_or_without_dashes() {
        let (found, _) = paths("dd if=image bs=/x");
        let expected = ["/here/if=image", "/here/image", "/here/bs=/x", "/x"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn without_a_working_folder_absolute_paths_are_left() {
        let argv = ["cat", "a", "/b", "--list=c", "--list=/d"].map(OsString::from);
        let line = CommandLine::from_words(&argv);
        let found = disclosures(line, None).map(|disclosure| disclosure.path);
        assert_eq!(found.collect::<Vec<_>>(), ["/b", "/d"].map(PathBuf::from));
    }

    #[test]
    fn folders_count_for_programs_told_to_recurse() {
        for line in [
            "grep -rn x .",
            "/usr/bin/grep --recursive x .",
            "rg x",
            "rg x .",
            "tar cf - folder",
            "tar -czf a.tgz folder",
            "cp -a one two",
        ] {
            // `rg x` has one word and would search the working folder; the word is a candidate.
            assert!(paths(line).1, "{line}");
        }
        for line in ["grep x .", "tar xf archive", "cat -r folder", "find . -name x"] {
            assert!(!paths(line).1, "{line}");
        }
    }

    #[test]
    fn what_is_written_is_not_read() {
        let names = |line: &str| -> Vec<String> {
            let (found, _) = paths(line);
            let text = |path: &PathBuf| path.to_str().expect("text").replace("/here/", "");
            found.iter().map(text).collect()
        };
        assert_eq!(names("dd if=a of=b"), ["if=a", "a"]);
        assert_eq!(names("cp a b c"), ["a", "b"]);
        assert_eq!(names("cp -t d a"), ["a"]);
        assert_eq!(names("rsync -a one/ two"), ["one/"]);
        assert_eq!(names("cat a"), ["a"]);
        assert_eq!(names("sort -o out in --output=out2"), ["in"]);
        assert_eq!(names("gcc -o out a.c -- -o"), ["a.c", "-o"]);
        assert_eq!(names("tar cf x.tar d"), ["d"]);
        assert_eq!(names("tar -czf x.tar d e"), ["d", "e"]);
        assert_eq!(names("tar -c --file=x.tar d"), ["d"]);
        assert_eq!(names("tar -c -f x.tar d"), ["d"]);
        assert_eq!(names("tar xf x.tar d"), ["xf", "x.tar", "d"]);
        assert_eq!(names("tar c d"), ["d"]);
    }

    #[test]
    fn a_search_without_a_folder_is_one_of_the_working_folder() {
        let last = |line: &str| paths(line).0.last().cloned();
        assert_eq!(last("grep -r needle"), Some("/here".into()));
        assert_eq!(last("rg needle"), Some("/here".into()));
        assert_eq!(last("grep -r needle d"), Some("/here/d".into()));
        assert_eq!(last("grep needle"), Some("/here/needle".into()));
        assert_eq!(last("grep -r --include=*.c needle"), Some("/here/needle".into()));
        assert!(!paths("grep -r --include=*.c needle d").1);
    }

    #[test]
    fn a_line_without_a_word_that_may_be_a_file_is_known_by_its_bytes() {
        for line in ["", "true\0", "\0", "ls\0-l\0--color\0", "a\0--\0", "a\0-o=\0", "a\0b"] {
            assert!(!may_name_files(line.as_bytes()), "{line:?}");
            let line = CommandLine::from_bytes(line.as_bytes());
            assert_eq!(disclosures(line, Some("/here".into())).count(), 0);
        }
        assert!(reads_no_arguments("/bin/rm") && reads_no_arguments("rm"));
        assert!(!reads_no_arguments("rm/cat") && !reads_no_arguments(""));
        for line in ["a\0b\0", "\0b\0", "a\0--\0-b\0", "a\0-o=b\0", "a\0\0\0b\0c"] {
            assert!(may_name_files(line.as_bytes()), "{line:?}");
            let line = CommandLine::from_bytes(line.as_bytes());
            assert_eq!(disclosures(line, Some("/here".into())).count(), 1);
        }
    }
}
