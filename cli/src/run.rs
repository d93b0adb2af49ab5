//! `foretell run`: a program with its reads disclosed and prefetched.
//!
//! The program has the interposing library preloaded and a manager to talk to, which is another process. There are two forms:
//!
//! A. In place: where nothing is to be said at the end, this process becomes the program.
//! B. Beside: the program is a child in the same process group. This process waits for it, passes signals on, reports, and
//!    ends as the program ended. Whoever waits for this process has the summary then.
//!
//! Where the manager cannot start, or the program cannot be given the library, the program runs without them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use foretell_manager::source::{arguments, list};
use foretell_manager::{Fault, ManagerState, Options, Report, Source};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, waitid};

use crate::failure::{Failure, note};
use crate::launch::{Launch, NotStarted};
use crate::manager_process::{self, InheritedDescriptors, ManagerProcess};
use crate::output_file::{self, Named, OutputFile};
use crate::signals::Taken;
use crate::summary::{Ended, Ending, Summary};
use crate::{library, panics, signals, size};

/// The code of a run that has failed before its program began.
pub(crate) const FAILED_BEFORE: u8 = 125;

/// Names a fault to be injected into the manager; for tests.
const FAULT_VARIABLE: &str = "FORETELL_TEST_FAULT";

/// Decisions that `--explain` tells of.
const DECISIONS_MAX: usize = 1 << 16;

/// The budget, if none is given and nothing is to be kept.
const BUDGET_DEFAULT_BYTES: u64 = 256 << 20;

/// A budget below this is a mistake.
const BUDGET_MIN_BYTES: u64 = 1 << 20;

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Most memory for data prefetched and not yet read, e.g. 64MiB or 2GiB (the default is 256MiB); with
    /// --release, for all that is kept (three quarters of what is available)
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    budget: Option<u64>,

    /// Take existing files named in PROGRAM's arguments, in order, as hints (the default); folders
    /// too for programs known to recurse (grep -r, tar c, cp -a, ...)
    #[arg(long, overrides_with = "no_hint_args")]
    hint_args: bool,

    /// Do not take hints from PROGRAM's arguments
    #[arg(long, overrides_with = "hint_args")]
    no_hint_args: bool,

    /// Take hints from FILE, too (- for standard input, of which PROGRAM then gets nothing): a path a
    /// line, or JSON: {"path": "f", "segments": [[OFFSET, LENGTH], ...], "repeat": 1}
    #[arg(long, value_name = "FILE")]
    hints: Option<PathBuf>,

    /// Prefetch nothing; only measure
    #[arg(long, conflicts_with = "hints")]
    no_hints: bool,

    /// Use the budget to keep data in memory, too: what PROGRAM has read and hints say it will read
    /// again stays, and what does not fit is released from the page cache, so that data larger than
    /// memory that is read repeatedly is read partly from memory; only what was fetched ahead is
    /// released, not what the kernel has read by itself
    #[arg(long)]
    release: bool,

    /// Write the policy's last decisions to FILE: what was fetched, let go or refused, and why
    /// (- for standard output, behind PROGRAM's)
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,

    /// Print no summary. With neither --json nor --explain, foretell's own process becomes PROGRAM: it has the pid
    /// and the parent that it would have without foretell
    #[arg(short, long)]
    quiet: bool,

    /// Write the summary's figures to FILE as JSON (- for standard output, behind PROGRAM's)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl RunArgs {
    /// Whether there will be hints from the start, so that the program's first reads matter.
    fn prefetches(&self) -> bool {
        !self.no_hints && (self.hints.is_some() || !self.no_hint_args)
    }

    /// Whether nothing is to be said at the end.
    fn is_silent(&self) -> bool {
        self.quiet && self.json.is_none() && self.explain.is_none()
    }

    /// Whether hints come from standard input, of which the program gets nothing.
    fn takes_input(&self) -> bool {
        self.hints.as_ref().is_some_and(|file| file.as_os_str() == "-")
    }
}

/// Refuses to write where the run reads: the list of hints, and what the program's arguments name.
fn check_outputs(args: &RunArgs) -> Result<(), String> {
    let list = args.hints.as_deref().map(|list| ("the list of hints", list));
    let arguments =
        args.command.iter().map(|argument| ("an argument of PROGRAM", argument.as_ref()));
    let read: Vec<Named> = list.into_iter().chain(arguments).collect();
    let written = [("--json", args.json.as_deref()), ("--explain", args.explain.as_deref())];
    let written = written.into_iter().filter_map(|(name, path)| Some((name, path?)));
    output_file::check_apart(&read, &written.collect::<Vec<Named>>())
}

/// Runs the program and ends as it ended; returns only on failure. `program_arguments` follow what
/// `args` has of the command.
pub(crate) fn run(
    mut args: RunArgs,
    program_arguments: Vec<OsString>,
) -> Result<ExitCode, Failure> {
    args.command.extend(program_arguments);
    let args = &args;
    let descriptors = InheritedDescriptors::list();
    let library = library::find().map_err(own_failure)?;
    check_outputs(args).map_err(Failure::usage)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(own_failure)?;
    let explain =
        OutputFile::of_option("--explain", args.explain.as_deref()).map_err(own_failure)?;
    let options = manager_options(args)?;
    let mut launch = Launch::new(&args.command, signals::block_all(), args.takes_input());
    if args.is_silent() && manager_process::can_be_behind() {
        // A manager that cannot start costs speed alone, and there is nobody to be told.
        if let Ok(address) = manager_process::start_behind(options, descriptors) {
            launch.preload(&library, &address, args.prefetches());
        }
        return Err(launch.in_place());
    }
    let budget_bytes = options.budget_bytes;
    let outputs: Vec<_> = json.iter().chain(&explain).filter_map(OutputFile::descriptor).collect();
    let mut manager = ManagerProcess::start(options, descriptors, &outputs);
    if let Ok(manager) = &manager {
        launch.preload(&library, manager.address(), args.prefetches());
    }
    let own_bytes_read = characters_read("self");
    let began = Instant::now();
    let pid = match launch.as_child() {
        Ok(pid) => pid,
        Err(NotStarted::Program(failure)) => return Err(failure),
        Err(NotStarted::Child(error)) => {
            drop(manager);
            if !args.quiet {
                note(format!("no process can be had ({error}): no summary will follow"));
            }
            return Err(launch.in_place());
        }
    };
    let_go_of_standard_files();
    let ended = wait(pid, own_bytes_read, manager.as_mut().ok());
    let (ending, elapsed) = (ended.ending, began.elapsed());
    // The program has ended, and so does this process, whatever becomes of what is told of it.
    panics::contained(|| {
        let mut report = match manager {
            Ok(manager) => manager.finish(args.quiet),
            Err(reason) => Report::empty(ManagerState::Failed(reason), budget_bytes),
        };
        report.programs.left_alone += u64::from(launch.is_left_alone());
        conclude(args, report, (ended, elapsed), (json, explain));
    });
    match ending {
        Ending::Exit(code) => std::process::exit(code),
        Ending::Signal(signal) => signals::die_of(signal),
    }
}

/// Tells what was done.
fn conclude(
    args: &RunArgs,
    mut report: Report,
    (ended, elapsed): (Ended, Duration),
    (json, explain): (Option<OutputFile>, Option<OutputFile>),
) {
    foretell_fault::point("run-report");
    // Of what is written from here on, now that no program is to be begun any more.
    signals::make_file_limits_errors();
    match (explain, report.explanation.take()) {
        (Some(file), Some(explanation)) => {
            file.write(explanation.as_bytes()).unwrap_or_else(note);
        }
        (Some(_), None) => note("--explain: nothing is written: the manager has failed"),
        (None, _) => {}
    }
    let summary = Summary::new(&args.command, ended, elapsed, report);
    if let Some(file) = json {
        file.write_json(&summary).unwrap_or_else(note);
    }
    if !args.quiet {
        note(summary.line());
    }
}

fn own_failure(line: impl std::fmt::Display) -> Failure {
    Failure { code: FAILED_BEFORE, line: line.to_string() }
}

/// What is given; to be kept as much as there is room for, or the kernel would have kept more.
fn budget_bytes(args: &RunArgs) -> u64 {
    let room = foretell_manager::available_memory_bytes().filter(|_| args.release);
    let default = room.map_or(BUDGET_DEFAULT_BYTES, |bytes| bytes / 4 * 3);
    args.budget.unwrap_or(default.max(BUDGET_MIN_BYTES))
}

fn manager_options(args: &RunArgs) -> Result<Options, Failure> {
    let budget_bytes = budget_bytes(args);
    let budget = size::display(budget_bytes);
    if budget_bytes < BUDGET_MIN_BYTES {
        return Err(Failure::usage(format!("--budget: {budget} is too small; at least 1MiB")));
    }
    if let Some(memory) = foretell_manager::machine_memory_bytes()
        && budget_bytes > memory
    {
        let memory = size::display(memory);
        let line = format!(
            "a budget of {budget} is more than this machine's memory ({memory}): give --budget less"
        );
        return Err(Failure::usage(line));
    }
    let fault: Option<Fault> = match std::env::var(FAULT_VARIABLE) {
        Ok(name) => Some(name.parse().map_err(own_failure)?),
        Err(_) => None,
    };
    let decisions_max = if args.explain.is_some() { DECISIONS_MAX } else { 0 };
    let (release, sources) = (args.release, sources(args)?);
    Ok(Options { budget_bytes, release, decisions_max, sources, fault })
}

fn sources(args: &RunArgs) -> Result<Vec<Source>, Failure> {
    let mut sources: Vec<Source> = Vec::new();
    if args.no_hints {
        return Ok(sources);
    }
    // It may have been removed: then relative names name nothing.
    let working_folder = std::env::current_dir().ok();
    if let Some(path) = &args.hints {
        let file = if path.as_os_str() == "-" {
            let closed = |error| own_failure(format!("standard input: {error}"));
            signals::was_open(0).map_err(closed)?;
            let handle = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3).map_err(own_failure)?;
            File::from(handle)
        } else {
            open_list(path).map_err(|error| {
                own_failure(format!("cannot read hints from {}: {error}", path.display()))
            })?
        };
        let lines = list::disclosures(BufReader::new(file), working_folder.clone());
        let list = path.display().to_string();
        sources.push(Box::new(lines.map(move |line| {
            line.map_err(|error| match list.as_str() {
                "-" => format!("standard input: {error}"),
                list => format!("{list}: {error}"),
            })
        })));
    }
    if !args.no_hint_args {
        let found = arguments::disclosures(args.command.clone(), working_folder);
        sources.push(Box::new(found.map(Ok)));
    }
    Ok(sources)
}

fn open_list(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

/// Lets go of standard input and output, which are the program's now: whoever is at their other ends shall see the program
/// close them. What is written to standard output at the end has a descriptor of its own.
fn let_go_of_standard_files() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Waits for the program to end, passing signals on. `own_bytes_read` is what this process had read before.
fn wait(
    program: Pid,
    own_bytes_read: Option<u64>,
    mut manager: Option<&mut ManagerProcess>,
) -> Ended {
    loop {
        let taken = signals::take_any();
        if is_for_this_process(&taken, manager.as_deref_mut()) {
            taken.pass_on(program);
        }
        if taken.signal != libc::SIGCHLD {
            continue;
        }
        stop_with(program);
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::Pid(program), look) {
            Ok(Some(status)) => status,
            Ok(None) => {
                reap_all_but(program);
                continue;
            }
            // Reaped by somebody else: it has ended.
            Err(_) => return Ended::default(),
        };
        // Only root may ask for a process that has ended; its parent's own count has it afterwards.
        let of_program = characters_read(&program.to_string());
        let _ = waitid(WaitId::Pid(program), WaitIdOptions::EXITED);
        let since = || Some(characters_read("self")?.saturating_sub(own_bytes_read?));
        let (ending, core_dumped) = (ending(&status), status.dumped());
        return Ended { ending, core_dumped, read_bytes: of_program.or_else(since) };
    }
}

/// Reaps what has ended and is not the program: the manager, and where this process is an init process whatever is left to it.
fn reap_all_but(program: Pid) {
    loop {
        // SAFETY: all-zero is a valid `siginfo_t`, a plain C structure, to be filled in; after the call it says whose end is
        // told, or 0.
        let child = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_ALL, 0, &raw mut info, look);
            info.si_pid()
        };
        match Pid::from_raw(child) {
            Some(child) if child != program => {
                let _ = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
            }
            _ => return,
        }
    }
}

/// Whether a signal was sent to this process alone, and is to be passed on. One to the process group has reached the program as
/// well.
fn is_for_this_process(taken: &Taken, manager: Option<&mut ManagerProcess>) -> bool {
    let of_child = taken.signal == libc::SIGCHLD && !taken.may_be_for_one();
    if of_child || taken.is_own() {
        return false;
    }
    let to_group = manager.and_then(|manager| manager.takes_part_in(taken.signal));
    to_group.map_or_else(|| taken.may_be_for_one(), |to_group| !to_group)
}

/// Stops if the program was stopped, from the terminal say, so that the shell notices. Whoever continues this process continues
/// the program: by a signal to the group, or by one that is passed on.
fn stop_with(program: Pid) {
    let stopped = waitid(WaitId::Pid(program), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
    let Ok(Some(status)) = stopped else { return };
    let continued = WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
    if !matches!(waitid(WaitId::Pid(program), continued), Ok(Some(_)))
        && let Some(signal) = status.stopping_signal()
    {
        signals::stop_of(signal);
    }
}

fn ending(status: &WaitIdStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Exit(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Exit(0),
    }
}

/// `rchar` of a process, with that of the children it has waited for.
fn characters_read(process: &str) -> Option<u64> {
    let table = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    table.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}
