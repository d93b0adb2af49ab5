//! A daemon with a folder of its own, and programs that wait under it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{foretell, text, wait_until};

/// A daemon with a folder of its own. Dropping it ends it.
pub(crate) struct Daemon {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) process: Child,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let process = Self::begin(folder.path(), options);
        Daemon { folder, process }
    }

    pub(crate) fn begin(folder: &Path, options: &[&str]) -> Child {
        let mut daemon = foretell();
        daemon.arg("daemon").args(options);
        Self::begin_by(folder, daemon)
    }

    /// As `begin`, by a command that becomes the daemon.
    pub(crate) fn begin_by(folder: &Path, mut daemon: Command) -> Child {
        daemon.env("FORETELL_DAEMON", folder.join("run"));
        let mut process = daemon.stderr(Stdio::piped()).spawn().expect("it runs");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut line = String::new();
        log.read_line(&mut line).expect("a line");
        assert!(line.contains("daemon_begins"), "{line}");
        // Its log must not fill the pipe.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        process
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// A command of foretell that uses it.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = foretell();
        command.args(words).env("FORETELL_DAEMON", self.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it runs")
    }

    pub(crate) fn status(&self) -> Value {
        let output = self.output(&["status", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub(crate) fn has_ended_runs(&self, count: u64) {
        wait_until("the end of the runs", || {
            let status = self.status();
            status["ended"]["runs"] == count && status["runs"].as_array().is_some_and(Vec::is_empty)
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is there");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(self.pid(), Signal::CONT);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program under foretell that says `begun`, waits for a line, and says `done`.
pub(crate) struct Waiting(Child, BufReader<std::process::ChildStdout>);

impl Waiting {
    pub(crate) fn begin(mut command: Command) -> Self {
        command.args([
            "--",
            "sh",
            "-c",
            "echo begun; read line; cat /etc/passwd | wc -l; echo done; exit 7",
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "begun\n");
        Waiting(child, output)
    }

    /// What foretell says, if the program has done what it does without foretell.
    pub(crate) fn end(mut self) -> String {
        let passwords = fs::read_to_string("/etc/passwd").expect("it is there").lines().count();
        self.0.stdin.take().expect("a pipe").write_all(b"line\n").expect("written");
        let (mut said, mut notes) = (String::new(), String::new());
        self.1.read_to_string(&mut said).expect("text");
        self.0.stderr.take().expect("a pipe").read_to_string(&mut notes).expect("text");
        assert_eq!(said, format!("{passwords}\ndone\n"), "{notes}");
        assert_eq!(self.0.wait().expect("it ends").code(), Some(7), "{notes}");
        notes
    }
}

/// What a store of this folder says first to the daemon's cache.
pub(crate) fn hello(folder: &Path) -> Vec<u8> {
    let about = fs::metadata(folder).expect("it is there");
    let told = json!({
        "is_folder": true,
        "place": { "Unix": folder.as_os_str().as_bytes() },
        "depth": null,
        "deadline": { "secs": 60, "nanos": 0 },
        "settings": [],
        "folder": [about.dev(), about.ino()],
        "environment": {},
        "surroundings": [],
    });
    let told = told.to_string();
    let string = |bytes: &[u8]| [&(bytes.len() as u32).to_ne_bytes(), bytes].concat();
    let body = [&[0][..], &2_u32.to_ne_bytes(), &string(told.as_bytes())].concat();
    string(&body)
}
