//! A store in which something is learned, and `foretell learned` on it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use foretell_manager::learn::private::Private;
use foretell_manager::learn::profile::{Kind, Profile};
use foretell_manager::learn::steps::{Acts, Part, Run, Step};
use foretell_manager::learn::store::Store;
use foretell_manager::learn::workload::Workload;

use super::{foretell, text};

/// A store with some workloads, in a folder that goes with it.
pub(crate) struct Known {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
}

pub(crate) fn step(path: &str, acts: Acts, parts: &[(u64, u64)]) -> Step {
    let parts = parts.iter().map(|&(start, end)| Part { start, end }).collect();
    Step { path: path.as_bytes().into(), acts, parts, at_ms: 1500 }
}

pub(crate) fn workload(line: &str, folder: &str) -> Workload {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    Workload::of_command(&words, Path::new(folder), &Private::new(std::iter::empty()))
}

impl Known {
    pub(crate) fn nothing() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().join("state"));
        Known { folder, store }
    }

    pub(crate) fn new() -> Self {
        let known = Known::nothing();
        known.learn("cc -c a.c", "/src/one");
        known.learn("cc -c b.c", "/src/one");
        known.learn("cc -c a.c", "/src/two");
        known.learn("git status", "/src/one");
        let nightly = Workload::named("nightly");
        known.add(&nightly.exact, &nightly.name, (nightly.kind, nightly.folder));
        known
    }

    /// As a run of the command does.
    pub(crate) fn learn(&self, line: &str, folder: &str) {
        let workload = workload(line, folder);
        self.add(&workload.alike, &workload.shape, (Kind::Alike, Vec::new()));
        self.add(&workload.exact, &workload.name, (workload.kind, workload.folder));
    }

    pub(crate) fn add(&self, key: &[u8], name: &str, about: (Kind, Vec<u8>)) {
        let read = Acts::OPEN | Acts::READ;
        let steps = vec![
            step("/img/bin/tool", read | Acts::MAP, &[(0, 8192), (16384, 24576)]),
            step("/img/etc", Acts::LIST, &[]),
            step("/img/none", Acts::OPEN | Acts::FAIL, &[]),
            step("/img/data.bin", read | Acts::END, &[(0, 1 << 20)]),
            step("/home/a/notes", Acts::LOOK, &[]),
            step("/home/a/list", read, &[(8192, 16384)]),
        ];
        let change = |profile: &mut Profile| {
            (profile.kind, profile.folder) = about;
            profile.learn(Run { steps, is_cut: false }, |_, _| true, true);
        };
        self.store.update(key, name, change).expect("written");
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = foretell();
        command.arg("learned").args(words).env("FORETELL_STATE", self.store.folder());
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("foretell runs")
    }

    /// What a command prints that succeeds.
    pub(crate) fn printed(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The line of a command that fails with this code.
    pub(crate) fn refused(&self, code: i32, words: &[&str]) -> String {
        let output = self.output(words);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {line}");
        assert!(line.starts_with("foretell: ") && line.trim_end().lines().count() == 1, "{line}");
        assert!(output.stdout.is_empty(), "{words:?}: {}", text(&output.stdout));
        line
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn count(&self) -> usize {
        self.store.list().len()
    }
}

/// Whether the process was ended by this signal.
pub(crate) fn died_of(output: &Output, signal: i32) -> bool {
    output.status.signal() == Some(signal) && output.stderr.is_empty()
}
