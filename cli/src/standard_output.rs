//! Lines on standard output.
//!
//! A command whose result is its output fails if nobody reads it ([`say`]). A server goes on ([`mention`]).

use std::io::{self, Write};

use crate::failure::{Failure, written};

/// Prints one line.
pub(crate) fn say(line: &str) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}"))
}

/// Prints one line, if there is a reader.
pub(crate) fn mention(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
