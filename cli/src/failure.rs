//! Failures of a command: one line on standard error and an exit code.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::signals;

/// The exit code of a process that SIGPIPE ended, as shells count it.
const UNREAD: u8 = 128 + libc::SIGPIPE as u8;

/// Exit code of a run that failed before its program began.
pub(crate) const FAILED_BEFORE: u8 = 125;

/// Why a command ends, and with which exit code: 1 failed; 2 wrong usage; `run` also has 125 (foretell failed before the
/// program began), 126 (the program cannot be executed) and 127 (the program was not found).
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) line: String,
}

impl Failure {
    /// The command failed.
    pub(crate) fn failed(line: impl Display) -> Self {
        Failure { code: 1, line: line.to_string() }
    }

    /// The command was used wrongly.
    pub(crate) fn usage(line: impl Display) -> Self {
        Failure { code: 2, line: line.to_string() }
    }

    /// The reader of standard output is gone: the command ends silently.
    fn unread() -> Self {
        Failure { code: UNREAD, line: String::new() }
    }

    /// Prints the line on standard error and returns the exit code. For a lost reader, ends this process by SIGPIPE.
    pub(crate) fn report(&self) -> ExitCode {
        if self.code == UNREAD {
            signals::die_of(libc::SIGPIPE);
        }
        note(&self.line);
        ExitCode::from(self.code)
    }
}

/// Turns the result of writing to standard output into a failure. If that was closed from the start, the write has reached
/// nobody and is a failure too.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.and_then(|()| signals::was_open(1)).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::failed(format!("standard output: {error}")),
    })
}

/// Whether standard error is a terminal that can show a progress bar.
pub(crate) fn draws_progress() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Prints one line on standard error, if possible. Control characters, as in file names, are escaped, so that no terminal takes
/// them for commands.
pub(crate) fn note(line: impl Display) {
    let line = without_controls(&without_numbers(&line.to_string()));
    let _ = writeln!(io::stderr(), "foretell: {line}");
}

/// `line` with control characters escaped.
pub(crate) fn without_controls(line: &str) -> String {
    let visible = |letter: char| {
        let (kept, escaped) = match letter.is_control() {
            true => (None, Some(letter.escape_default())),
            false => (Some(letter), None),
        };
        kept.into_iter().chain(escaped.into_iter().flatten())
    };
    line.chars().flat_map(visible).collect()
}

/// `line` without the error numbers that the standard library appends to its messages.
pub(crate) fn without_numbers(line: &str) -> String {
    let mut text = line.to_owned();
    while let Some(start) = text.find(" (os error ")
        && let Some(length) = text[start..].find(')')
    {
        text.replace_range(start..=start + length, "");
    }
    text
}
