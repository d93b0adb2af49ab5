//! The commands of the `foretell` binary itself. All else, wrong usage included, is left to `foretell-tools`.
//!
//! Every run of a program pays for the start of the binary, and clients of object stores make a binary large: with them, a run
//! took 1 ms longer. `foretell-tools` has all commands, and lies beside this binary or the library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::failure::{FAILED_BEFORE, Failure};
use crate::launch::Launch;
use crate::{Quick, library, signals};

/// The name of the binary with all commands.
const TOOLS: &str = "foretell-tools";

#[derive(Parser)]
#[command(name = "foretell", bin_name = "foretell")]
struct Arguments {
    #[command(subcommand)]
    command: Quick,
}

/// Runs a quick command, or becomes `foretell-tools`.
pub(crate) fn command() -> ExitCode {
    let (ours, theirs) = crate::split_program_arguments();
    let parsed = crate::with_room(&ours, || Arguments::try_parse_from(&ours).ok());
    match parsed {
        Ok(Some(arguments)) => crate::done(arguments.command.call(theirs)),
        Ok(None) => become_tools(ours, theirs).report(),
        Err(code) => code,
    }
}

/// Executes `foretell-tools` in place of this process. Returns only on failure.
fn become_tools(ours: Vec<OsString>, theirs: Vec<OsString>) -> Failure {
    let is_run = ours.get(1).is_some_and(crate::runs_program);
    let code = if is_run { FAILED_BEFORE } else { 1 };
    let tools = match tools() {
        Ok(tools) => tools,
        Err(line) => return Failure { code, line },
    };
    let words = ours.into_iter().skip(1).chain(theirs);
    let command: Vec<OsString> = std::iter::once(tools.into()).chain(words).collect();
    let failure = Launch::new(&command, signals::block_all(), false).in_place();
    Failure { code, ..failure }
}

fn tools() -> Result<PathBuf, String> {
    let folder = library::own_folder()?;
    let found = library::PLACES.iter().map(|place| folder.join(place).join(TOOLS));
    found.into_iter().find(|path| Path::exists(path)).ok_or_else(|| {
        format!(
            "{TOOLS} is not in {} nor in ../lib/foretell; build or install again",
            folder.display()
        )
    })
}
