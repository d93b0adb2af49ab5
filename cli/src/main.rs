//! The `foretell` command: a thin face of the crates.

mod array;
mod background;
mod demo;
mod duration;
mod environment;
mod failure;
mod hint;
mod input_file;
mod launch;
mod library;
mod manager_process;
mod mount;
mod output_file;
mod panics;
mod run;
mod signals;
mod sim;
mod size;
mod store;
mod summary;
mod usage;

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;

use clap::{CommandFactory, Parser, Subcommand};
use panics::FiniteHeap;
use rustix::process::{Resource, getrlimit};

/// The policy's tables are large, and read all over.
#[global_allocator]
static HEAP: FiniteHeap = FiniteHeap;

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
    /// Show an object store or a folder as a file system that takes hints and keeps a bounded memory
    #[command(after_help = mount::HELP)]
    Mount(mount::MountArgs),
    /// End what `foretell mount` serves at MOUNTPOINT, and say what it did
    Unmount {
        /// Where it is mounted
        mountpoint: std::path::PathBuf,
    },
    /// Tell a running manager what will be read next: one of this user, in the same network namespace
    Hint(hint::HintArgs),
    /// Show what foretell does on an emulated disk array, or with --store on an object store (about a minute)
    Demo(demo::DemoArgs),
    /// Emulate a disk array: a folder served at the pace of modelled disks
    Array(array::ArrayArgs),
    /// Emulate an object store far away: a folder served over S3 with waits, limits and faults
    Store(store::StoreArgs),
    /// Simulate caches over recorded reads, recorded runs on other machines, and the TIP papers' programs
    Sim(sim::SimArgs),
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage. Of `foretell run`: the program's own, or 125 foretell
failed before the program began, 126 the program cannot be executed, 127 it was not found; a program
that was ended by a signal ends foretell by the same signal.";

const RUN_HELP: &str = "\
The program's output, exit code and signals are its own; foretell adds one line on standard error at
the end. Programs in which it would not work (static, setuid, musl, ...) run as without it.

A list of --hints has one path a line, or one object with `path` and, as far as wanted:
  segments  [[OFFSET, LENGTH], ...] in bytes, in the order of reading
  stride    [DISTANCE, COUNT]: so many segments like the only one given
  repeat    how many times over
  order     \"any\" where the segments are read in no order that is known

Examples:
  foretell run -- grep -n needle src/*.c
  find data -name '*.h5' | sort | foretell run --hints - -- ./analyse
  foretell run --no-hints -- make          measure how long a program waits for reads";

/// What follows `foretell run -- PROGRAM` is the program's: it is not looked at here, and a list of
/// a hundred thousand files costs nothing.
fn split_program_arguments() -> (Vec<OsString>, Vec<OsString>) {
    let mut ours: Vec<OsString> = std::env::args_os().collect();
    if ours.get(1).is_none_or(|command| command != "run") {
        return (ours, Vec::new());
    }
    let program = ours.iter().position(|word| word == "--").map_or(ours.len(), |at| at + 2);
    let theirs = ours.split_off(program.min(ours.len()));
    (ours, theirs)
}

fn main() -> ExitCode {
    panics::install();
    panics::guarded(command)
}

/// What parsing takes of the stack, with room to spare: it makes the options of all commands at once.
const PARSER_STACK_BYTES: u64 = 2 << 20;

/// With less, parsing on the main thread may overflow: it takes 132 KiB in release builds, and twice as much in others.
const PARSER_STACK_MIN_BYTES: u64 = 512 << 10;

/// What is asked for; if it is not understood, that is told.
fn parse(ours: &[OsString]) -> Result<Arguments, ExitCode> {
    Arguments::try_parse_from(ours)
        .map_err(|error| usage::report(&error, &Arguments::command(), ours))
}

/// The same with as much stack as it takes. A user may have limited the stack for the program that is to be run.
fn parse_with_room(ours: &[OsString]) -> Result<Arguments, ExitCode> {
    let limit = getrlimit(Resource::Stack).current;
    if limit.is_none_or(|bytes| bytes >= PARSER_STACK_BYTES) {
        return parse(ours);
    }
    thread::scope(|scope| {
        let parser = thread::Builder::new().stack_size(PARSER_STACK_BYTES as usize);
        match parser.spawn_scoped(scope, || parse(ours)) {
            Ok(parsed) => parsed.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) if limit.is_none_or(|bytes| bytes >= PARSER_STACK_MIN_BYTES) => parse(ours),
            Err(error) => {
                let message =
                    format!("the stack is too small (ulimit -s), and there is no thread: {error}");
                failure::note(message);
                let is_run = ours.get(1).is_some_and(|word| word == "run");
                Err(ExitCode::from(if is_run { run::FAILED_BEFORE } else { 1 }))
            }
        }
    })
}

fn command() -> ExitCode {
    let (ours, theirs) = split_program_arguments();
    let arguments = match parse_with_room(&ours) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    if let Command::Run(_) = arguments.command {
        panics::fail_with(run::FAILED_BEFORE);
    }
    foretell_fault::point("main");
    let result = match arguments.command {
        Command::Run(args) => run::run(args, theirs),
        Command::Mount(args) => mount::mount(&args),
        Command::Unmount { mountpoint } => mount::unmount(&mountpoint),
        Command::Hint(args) => hint::hint(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Array(args) => array::array(&args),
        Command::Store(args) => store::store(&args),
        Command::Sim(args) => sim::sim(&args),
    };
    result.unwrap_or_else(|failure| failure.report())
}
