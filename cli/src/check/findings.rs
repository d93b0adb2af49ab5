//! What was found out about a program, in lines and as JSON.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Serialize, Serializer};

use super::binary::Binary;
use super::{SEEN_FROM_OUTSIDE, SEEN_IN_PART};
use crate::failure::without_controls;

/// Functions that read files in ways of their own. Of these, the ones that the library exports are seen.
const READERS: [&str; 27] = [
    "aio_read",
    "aio_read64",
    "lio_listio",
    "lio_listio64",
    "io_submit",
    "io_uring_queue_init",
    "io_uring_queue_init_params",
    "io_uring_queue_init_mem",
    "io_uring_setup",
    "copy_file_range",
    "fgets",
    "fopen",
    "fopen64",
    "fread",
    "getdelim",
    "getline",
    "open",
    "open64",
    "openat",
    "openat64",
    "pread",
    "pread64",
    "preadv2",
    "read",
    "readv",
    "sendfile",
    "splice",
];

/// Functions that map files, among other things.
const MAPPERS: [&str; 3] = ["mmap", "mmap64", "mremap"];

/// How much of a program's reads is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Seen {
    /// The library sees them.
    All,
    /// The library sees some of them.
    Part,
    /// They are seen from outside only.
    Outside,
    /// They are not seen. The kernel allows only root to look at the process.
    Nothing,
}

/// Why not all of a program's reads are seen by the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// It loads no libraries.
    Static,
    /// Its runtime makes system calls by itself.
    Go,
    /// Another machine, word size or byte order.
    Machine,
    /// Another C library, or a version that is too old.
    CLibrary,
    /// A shared sanitizer runtime must come first.
    Sanitizer,
    /// Its rights are raised at the start.
    Rights,
    /// Real and effective user or group differ.
    User,
    /// The library cannot be loaded here.
    Library,
    /// The file cannot be read.
    Unreadable,
    /// Its chain of interpreters cannot be followed.
    Script,
    /// It imports functions that read files and are not wrapped.
    Imports,
}

impl Reason {
    /// How much is seen of a program of which this holds.
    fn leaves(self) -> Seen {
        match self {
            Reason::Imports => Seen::Part,
            Reason::Rights | Reason::Unreadable if !rustix::process::geteuid().is_root() => {
                Seen::Nothing
            }
            _ => Seen::Outside,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Told {
    reason: Reason,
    text: String,
}

/// See the [module](self).
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    #[serde(serialize_with = "as_text")]
    program: OsString,
    #[serde(serialize_with = "path_as_text")]
    path: PathBuf,
    /// Interpreters of scripts, in the order in which they run.
    #[serde(serialize_with = "paths_as_text")]
    pub(super) through: Vec<PathBuf>,
    /// The program that runs in the end.
    #[serde(serialize_with = "path_as_text")]
    pub(super) runs: PathBuf,
    seen: Seen,
    /// Whether `foretell run` puts its library along.
    pub(super) library_fits: bool,
    machine: Option<String>,
    bits: Option<u8>,
    loader: Option<String>,
    go: bool,
    pub(super) reasons: Vec<Told>,
    /// Imported functions that read files and are not wrapped.
    unwrapped: Vec<String>,
    notes: Vec<String>,
}

fn as_text<S: Serializer>(text: &OsString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text.to_string_lossy())
}

fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn paths_as_text<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

impl Findings {
    pub(super) fn new(program: OsString, path: PathBuf) -> Self {
        Findings {
            program,
            runs: path.clone(),
            path,
            through: Vec::new(),
            seen: Seen::All,
            library_fits: true,
            machine: None,
            bits: None,
            loader: None,
            go: false,
            reasons: Vec::new(),
            unwrapped: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a reason, with what it comes from.
    pub(super) fn add(&mut self, reason: Reason, text: String) {
        self.seen = self.seen.max(reason.leaves());
        self.reasons.push(Told { reason, text });
    }

    pub(super) fn takes_facts(&mut self, binary: &Binary) {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        self.machine = Some(binary.kind.machine());
        self.bits = Some(binary.kind.bits);
        self.loader = binary.loader.as_ref().map(text);
        self.go = binary.is_go;
    }

    /// Compares the functions that the program imports with those that the library exports.
    pub(super) fn compare_imports(&mut self, program: &Binary, library: &Binary) {
        let imports = |name: &str| program.imports.iter().any(|import| import == name.as_bytes());
        let is_wrapped =
            |name: &str| library.exports.iter().any(|export| export == name.as_bytes());
        let missed = |names: &[&str]| -> Vec<String> {
            let missed = names.iter().filter(|name| imports(name) && !is_wrapped(name));
            missed.map(|&name| name.to_owned()).collect()
        };
        self.unwrapped = missed(&READERS);
        if self.seen >= Seen::Outside {
            return; // The library sees none of them.
        }
        if !self.unwrapped.is_empty() {
            let text = format!("its reads by {} are not seen", self.unwrapped.join(", "));
            self.add(Reason::Imports, text);
        }
        if let Some(name) = missed(&MAPPERS).first() {
            self.notes.push(format!("it may read mapped files ({name}), which is not seen"));
        }
        if imports("syscall") {
            let text =
                "it may make system calls by their numbers (syscall); such reads are not seen";
            self.notes.push(text.into());
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        match self.seen {
            Seen::All => ExitCode::SUCCESS,
            Seen::Part => ExitCode::from(SEEN_IN_PART),
            Seen::Outside | Seen::Nothing => ExitCode::from(SEEN_FROM_OUTSIDE),
        }
    }

    /// The findings for people: the verdict in the first line, a reason or note in each further line.
    pub(super) fn lines(&self) -> String {
        let verdict = match self.seen {
            Seen::All => "foretell run sees its reads",
            Seen::Part => "foretell run sees a part of its reads",
            Seen::Outside if self.library_fits => "foretell run sees its reads from outside only",
            Seen::Outside => "foretell run leaves it alone, and sees its reads from outside only",
            Seen::Nothing => "foretell run leaves it alone, and sees none of its reads",
        };
        let mut lines = format!("{}: {verdict}", without_controls(&self.path.to_string_lossy()));
        let mut add = |line: &str| {
            let _ = write!(lines, "\n  {}", without_controls(line));
        };
        if let Some(last) = self.through.last() {
            let last = last.to_string_lossy();
            let runs = self.runs.to_string_lossy();
            match last == runs {
                true => add(&format!("a script; its interpreter {last} was checked")),
                false => add(&format!("a script; {runs}, which {last} executes, was checked")),
            }
        }
        self.reasons.iter().for_each(|told| add(&told.text));
        self.notes.iter().for_each(|note| add(&format!("note: {note}")));
        let is_of_here = self.reasons.iter().all(|told| told.reason != Reason::Machine);
        if self.seen == Seen::Outside && is_of_here {
            add(
                "foretell run --observe opens (as root, or with no new privileges) also sees what it opens",
            );
        }
        if self.reasons.is_empty()
            && let Some(loader) = &self.loader
        {
            add(&format!("a dynamically linked program of glibc ({loader})"));
        }
        lines.push('\n');
        lines
    }
}
