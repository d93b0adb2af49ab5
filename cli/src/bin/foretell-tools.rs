//! The commands that take their time to start; see [`foretell_cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    foretell_cli::all()
}
