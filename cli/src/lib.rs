//! The `foretell` command: parses the command line and calls the crate that does the work. Its two binaries are `foretell`,
//! which is small because every run pays for its start, and `foretell-tools`, which has all commands.

mod array;
mod background;
mod check;
mod daemon;
mod demo;
mod descriptors;
mod duration;
mod environment;
mod failure;
mod front;
mod hint;
mod input_file;
mod launch;
mod learned;
mod library;
mod manager_process;
mod mount;
mod opens;
mod orphan;
mod output_file;
mod panics;
mod probe;
mod profile;
mod record;
mod report;
mod rules;
mod run;
mod signals;
mod sim;
mod size;
mod standard_output;
mod state;
mod store;
mod summary;
mod usage;

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Failure;
use panics::FiniteHeap;
use rustix::process::{Resource, getrlimit};

/// Asks the kernel for huge pages, because the policy's tables are large and accessed at random. Running out of memory ends the
/// process with one line.
#[global_allocator]
static HEAP: FiniteHeap = FiniteHeap;

/// Informed prefetching for Linux: fetches what programs will read before they ask for it
#[derive(Parser)]
#[command(name = "foretell", bin_name = "foretell", version, arg_required_else_help = true)]
#[command(after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Quick(Quick),
    /// Tell what `foretell run` will see of a program's reads, and why: foretell check ./server
    #[command(after_help = check::HELP)]
    Check(check::CheckArgs),
    /// Manage the runs of all programs of yours within one budget: foretell daemon --budget 1GiB
    #[command(after_help = daemon::HELP)]
    Daemon(daemon::DaemonArgs),
    /// Show what the daemon does
    #[command(after_help = daemon::status::HELP)]
    Status(daemon::StatusArgs),
    /// Show what the daemon does, again and again
    #[command(after_help = daemon::TOP_HELP)]
    Top(daemon::TopArgs),
    /// Tell how foretell would fetch data of a file or folder, and how soon it arrives: foretell probe /data
    #[command(after_help = probe::HELP)]
    Probe(probe::ProbeArgs),
    /// Show what earlier runs have shown about later ones; forget it, or take it elsewhere: foretell learned list
    #[command(after_help = learned::HELP)]
    Learned(learned::LearnedArgs),
    /// Record what a program reads, and when: foretell record -o run.ftr -- PROGRAM
    #[command(after_help = record::HELP)]
    Record(record::RecordArgs),
    /// Show a recording as a page: foretell report run.ftr -o report.html
    #[command(after_help = report::HELP)]
    Report(report::ReportArgs),
    /// Write rules about the files of a recording, which `foretell run --rules` follows: foretell profile run.ftr -o rules.toml
    #[command(after_help = profile::HELP)]
    Profile(profile::ProfileArgs),
    /// Check files of rules about what is read ahead: foretell rules check rules.toml
    #[command(after_help = rules::HELP)]
    Rules(rules::RulesArgs),
    /// Mount an object store or a folder as a file system that takes hints and caches data in bounded memory
    #[command(after_help = mount::HELP)]
    Mount(mount::MountArgs),
    /// Unmount what `foretell mount` serves at MOUNTPOINT, and print what it did
    Unmount {
        /// Where the store or folder is mounted
        mountpoint: std::path::PathBuf,
    },
    /// Show what foretell does on an emulated disk array, or with --store on an emulated object store (about a minute)
    Demo(demo::DemoArgs),
    /// Emulate a disk array: serve a folder at the pace of modelled disks
    Array(array::ArrayArgs),
    /// Emulate a distant object store: serve a folder over S3 with latency, bandwidth limits and faults
    Store(store::StoreArgs),
    /// Simulate caches over recorded reads, recorded runs on other machines, and the TIP papers' programs
    Sim(sim::SimArgs),
}

/// The commands that `foretell` does itself.
#[derive(Subcommand)]
enum Quick {
    /// Run a program with its reads prefetched: foretell run -- grep -n needle FILES...
    #[command(after_help = RUN_HELP)]
    Run(Box<run::RunArgs>),
    /// Tell a running `foretell run` which files will be read next: foretell hint notes.txt data.bin:64KiB+4096
    #[command(after_help = hint::HELP)]
    Hint(hint::HintArgs),
}

impl Quick {
    /// `theirs`: the words after `foretell run -- PROGRAM`.
    fn call(self, theirs: Vec<OsString>) -> Result<ExitCode, Failure> {
        if matches!(self, Quick::Run(_)) {
            panics::fail_with(failure::FAILED_BEFORE);
        }
        foretell_fault::point("main");
        match self {
            Quick::Run(args) => run::run(*args, theirs),
            Quick::Hint(args) => hint::hint(&args),
        }
    }
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage. `foretell run` ends with the program's own exit code, \
or with 125 (foretell failed before the program began), 126 (the program cannot be executed) or 127 \
(it was not found). If a signal ended the program, foretell ends by the same signal.";

const RUN_HELP: &str = "\
The program's output, exit code and signals stay its own; foretell adds one line on standard error \
at the end. Programs in which it cannot work (static, setuid, musl, ...) run as they would without \
it.

Each line of a list of --hints is a path, or a JSON object with `path` and any of:
  segments  [[OFFSET, LENGTH], ...] in bytes, in reading order; without it, the whole file
  stride    [DISTANCE, COUNT]: COUNT segments like the only one given, DISTANCE bytes apart
  repeat    how many times all of this is read
  order     \"any\" if the order in which the segments are read is not known

Examples:
  foretell run -- grep -n needle src/*.c
  find data -name '*.h5' | sort | foretell run --hints - -- ./analyse
  foretell run --no-hints -- make          measure how long a program waits for reads";

/// Whether this command runs a program, and ends as that ends.
fn runs_program(command: &OsString) -> bool {
    command == "run" || command == "record"
}

/// Splits off the words after `foretell run -- PROGRAM`. They belong to the program and are never parsed here, so a list of a
/// hundred thousand files costs nothing.
fn split_program_arguments() -> (Vec<OsString>, Vec<OsString>) {
    let mut ours: Vec<OsString> = std::env::args_os().collect();
    if !ours.get(1).is_some_and(runs_program) {
        return (ours, Vec::new());
    }
    let program = ours.iter().position(|word| word == "--").map_or(ours.len(), |at| at + 2);
    let theirs = ours.split_off(program.min(ours.len()));
    (ours, theirs)
}

/// The main function of `foretell`.
pub fn front() -> ExitCode {
    panics::install();
    panics::guarded(front::command)
}

/// The main function of `foretell-tools`.
pub fn all() -> ExitCode {
    panics::install();
    panics::guarded(command)
}

/// Stack for parsing, in bytes, with room to spare: clap builds the options of all commands at once.
const PARSER_STACK_BYTES: u64 = 2 << 20;

/// The least stack, in bytes, for parsing on the main thread. Parsing takes 132 KiB in release builds and twice as much in
/// debug builds.
const PARSER_STACK_MIN_BYTES: u64 = 512 << 10;

/// Calls `parse`, on a thread with a large enough stack where this one's is too small: a user may have limited the stack for
/// the program to be run. The exit code if no stack can be had.
fn with_room<T: Send>(ours: &[OsString], parse: impl Fn() -> T + Sync) -> Result<T, ExitCode> {
    let limit = getrlimit(Resource::Stack).current;
    if limit.is_none_or(|bytes| bytes >= PARSER_STACK_BYTES) {
        return Ok(parse());
    }
    thread::scope(|scope| {
        let parser = thread::Builder::new().stack_size(PARSER_STACK_BYTES as usize);
        match parser.spawn_scoped(scope, &parse) {
            Ok(parsed) => Ok(parsed.join().unwrap_or_else(|panic| resume_unwind(panic))),
            Err(_) if limit.is_none_or(|bytes| bytes >= PARSER_STACK_MIN_BYTES) => Ok(parse()),
            Err(error) => {
                let message = format!(
                    "the stack is too small (raise ulimit -s), and no thread can be started: {error}"
                );
                failure::note(message);
                let is_run = ours.get(1).is_some_and(runs_program);
                Err(ExitCode::from(if is_run { failure::FAILED_BEFORE } else { 1 }))
            }
        }
    })
}

fn command() -> ExitCode {
    let (ours, theirs) = split_program_arguments();
    // Reports a mistake in the command line.
    let parse = || {
        Arguments::try_parse_from(&ours)
            .map_err(|error| usage::report(&error, &Arguments::command(), &ours))
    };
    match with_room(&ours, parse) {
        Ok(Ok(arguments)) => done(arguments.command.call(theirs)),
        Ok(Err(code)) | Err(code) => code,
    }
}

impl Command {
    /// `theirs`: the words after `foretell run -- PROGRAM`.
    fn call(self, theirs: Vec<OsString>) -> Result<ExitCode, Failure> {
        if matches!(self, Command::Record(_)) {
            panics::fail_with(failure::FAILED_BEFORE);
        }
        if !matches!(self, Command::Quick(_)) {
            foretell_fault::point("main");
        }
        match self {
            Command::Quick(quick) => quick.call(theirs),
            Command::Check(args) => check::check(&args),
            Command::Daemon(args) => daemon::daemon(&args),
            Command::Status(args) => daemon::status(&args),
            Command::Top(args) => daemon::top(&args),
            Command::Probe(args) => probe::probe(&args),
            Command::Learned(args) => learned::learned(args),
            Command::Record(args) => record::record(args, theirs),
            Command::Report(args) => report::report(&args),
            Command::Profile(args) => profile::profile(&args),
            Command::Rules(args) => rules::rules(&args),
            Command::Mount(args) => mount::mount(&args),
            Command::Unmount { mountpoint } => mount::unmount(&mountpoint),
            Command::Demo(args) => demo::demo(&args),
            Command::Array(args) => array::array(&args),
            Command::Store(args) => store::store(&args),
            Command::Sim(args) => sim::sim(&args),
        }
    }
}

fn done(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| failure.report())
}
