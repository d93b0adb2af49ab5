//! The `foretell` command; see [`foretell_cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    foretell_cli::front()
}
