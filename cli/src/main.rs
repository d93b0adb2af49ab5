//! The `foretell` command: a thin face of the crates.

mod array;
mod demo;
mod failure;
mod hint;
mod library;
mod run;
mod signals;
mod size;
mod summary;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Informed prefetching for Linux: programs disclose what they will read, foretell fetches it
/// before they ask
#[derive(Parser)]
#[command(name = "foretell", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program with its reads prefetched: foretell run -- grep -n needle FILES...
    #[command(after_help = RUN_HELP)]
    Run(run::RunArgs),
    /// Tell a running manager what will be read next
    Hint(hint::HintArgs),
    /// Show what foretell does on an emulated disk array (about a minute)
    Demo(demo::DemoArgs),
    /// Emulate a disk array: a folder served at the pace of modelled disks
    Array(array::ArrayArgs),
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage. Of `foretell run`: the program's own, or 125 foretell
failed before the program began, 126 the program cannot be executed, 127 it was not found; a program
that was ended by a signal ends foretell by the same signal.";

const RUN_HELP: &str = "\
The program's output, exit code and signals are its own; foretell adds one line on standard error at
the end. Static and setuid programs run as they would without foretell.

Examples:
  foretell run -- grep -n needle src/*.c
  find data -name '*.h5' | sort | foretell run --hints - -- ./analyse
  foretell run --no-hints -- make          measure how long a program waits for reads";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Command::Run(args) => run::run(args),
        Command::Hint(args) => hint::hint(args),
        Command::Demo(args) => demo::demo(args),
        Command::Array(args) => array::array(args),
    };
    result.unwrap_or_else(|failure| failure.report())
}
