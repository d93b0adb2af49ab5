//! How the command ends when it cannot do what it was asked: one line and an exit code.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::signals;

/// The code of what ends as a program does that SIGPIPE has ended.
const UNREAD: u8 = 128 + libc::SIGPIPE as u8;

/// Something went wrong: say so and exit. Codes: 1 the command failed; 2 wrong usage; of `run`, 125
/// foretell itself failed before the program began, 126 the program cannot be executed, 127 it is not
/// found.
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

    /// It was used wrongly.
    pub(crate) fn usage(line: impl Display) -> Self {
        Failure { code: 2, line: line.to_string() }
    }

    /// Nobody reads standard output any more. There is no point in going on, and nothing to be said.
    fn unread() -> Self {
        Failure { code: UNREAD, line: String::new() }
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        if self.code == UNREAD {
            signals::die_of(libc::SIGPIPE);
        }
        note(&self.line);
        ExitCode::from(self.code)
    }
}

/// What has come of writing to standard output. Where it was closed from the beginning, nobody has got what was written.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.and_then(|()| signals::was_open(1)).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::failed(format!("standard output: {error}")),
    })
}

/// Whether standard error is a terminal that a bar can be drawn on, over and over.
pub(crate) fn draws_progress() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// One line on standard error, if that can be written at all. Names of files may hold what a terminal
/// takes for a command: it is written out.
pub(crate) fn note(line: impl Display) {
    let line = without_controls(&without_numbers(&line.to_string()));
    let _ = writeln!(io::stderr(), "foretell: {line}");
}

/// `line` as a terminal can show it, in one line.
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

/// `line` without the error numbers that the standard library puts behind its messages.
pub(crate) fn without_numbers(line: &str) -> String {
    let mut text = line.to_owned();
    while let Some(start) = text.find(" (os error ")
        && let Some(length) = text[start..].find(')')
    {
        text.replace_range(start..=start + length, "");
    }
    text
}
