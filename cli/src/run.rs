//! `foretell run`: a program with its reads disclosed and prefetched.
//!
//! The program is a child in the same process group, with the interposing library preloaded and a
//! manager to talk to, which is another child. This process waits for the program, passes signals on,
//! reports, and ends as the program ended.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use foretell_manager::source::{arguments, list};
use foretell_manager::{Fault, Options, Source};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use crate::failure::{Failure, note};
use crate::manager_process::{InheritedDescriptors, ManagerProcess};
use crate::output_file::{self, Named, OutputFile};
use crate::summary::{Ending, Summary};
use crate::{environment, library, panics, signals, size};

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

    /// Print no summary
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
) -> Result<std::process::ExitCode, Failure> {
    args.command.extend(program_arguments);
    let args = &args;
    let descriptors = InheritedDescriptors::list();
    let library = library::find().map_err(own_failure)?;
    check_outputs(args).map_err(Failure::usage)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(own_failure)?;
    let explain =
        OutputFile::of_option("--explain", args.explain.as_deref()).map_err(own_failure)?;
    let options = manager_options(args)?;
    let inherited = signals::block(&signals::OF_A_RUN);
    let manager = ManagerProcess::start(options, descriptors).map_err(own_failure)?;
    let own_bytes_read = characters_read("self");
    let began = Instant::now();
    let entries = environment::block(
        environment::inherited(),
        find(&args.command[0]).as_deref(),
        &library,
        manager.address(),
        args.prefetches(),
    );
    let left_alone = environment::is_left_alone(&entries);
    let mut command = Command::new(&args.command[0]);
    if args.hints.as_ref().is_some_and(|file| file.as_os_str() == "-") {
        command.stdin(Stdio::null());
    }
    restore_before_exec(&mut command, inherited);
    execute_with(&mut command, &args.command, entries);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            manager.finish();
            return Err(cannot_execute(&args.command[0], &error));
        }
    };
    let (ending, bytes_read) = wait(child, own_bytes_read);
    let elapsed = began.elapsed();
    // The program has ended, and so does this process, whatever becomes of what is told of it.
    panics::contained(|| {
        let left_alone = u64::from(left_alone);
        conclude(args, (manager, left_alone), ending, (elapsed, bytes_read), (json, explain));
    });
    match ending {
        Ending::Exit(code) => std::process::exit(code),
        Ending::Signal(signal) => signals::die_of(signal),
    }
}

/// Ends the manager, and tells what was done.
fn conclude(
    args: &RunArgs,
    (manager, left_alone): (ManagerProcess, u64),
    ending: Ending,
    (elapsed, bytes_read): (Duration, Option<u64>),
    (json, explain): (Option<OutputFile>, Option<OutputFile>),
) {
    let mut report = manager.finish();
    report.programs.left_alone += left_alone;
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
    let summary = Summary::new(&args.command, ending, elapsed, bytes_read, report);
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
    let working_folder = std::env::current_dir()
        .map_err(|error| own_failure(format!("the working folder: {error}")))?;
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
        let found = arguments::disclosures(&args.command, &working_folder);
        sources.push(Box::new(found.into_iter().map(Ok)));
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

/// What `execvp` would execute.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or("/bin:/usr/bin".into());
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    })
}

/// Has `command` execute the program with exactly these entries, in their order.
fn execute_with(command: &mut Command, words: &[OsString], entries: Vec<CString>) {
    let words: Vec<CString> =
        words.iter().filter_map(|word| CString::new(word.as_bytes()).ok()).collect();
    let execute = move || {
        let array = |strings: &[CString]| -> Vec<*const libc::c_char> {
            strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (arguments, entries) = (array(&words), array(&entries));
        // SAFETY: both arrays end with a null pointer and hold strings that outlive the call; a command has one word at
        // least.
        unsafe { libc::execvpe(arguments[0], arguments.as_ptr(), entries.as_ptr()) };
        Err(io::Error::last_os_error())
    };
    // SAFETY: this process has one thread, so memory may be allocated between fork and exec.
    unsafe { command.pre_exec(execute) };
}

/// The program has the signals, and the standard descriptors, that it would have without this process.
fn restore_before_exec(command: &mut Command, inherited: signals::Inherited) {
    let closed = signals::closed_at_start();
    let restore = move || {
        for (descriptor, _) in (0..).zip(closed).filter(|&(_, was_closed)| was_closed) {
            // SAFETY: nothing of this process uses it any more: it becomes the program.
            unsafe { libc::close(descriptor) };
        }
        inherited.restore()
    };
    // SAFETY: between fork and exec only system calls are made, and no memory is allocated.
    unsafe { command.pre_exec(restore) };
}

fn cannot_execute(program: &OsString, error: &io::Error) -> Failure {
    let name = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        Failure { code: 127, line: format!("{name}: command not found") }
    } else {
        Failure { code: 126, line: format!("{name}: {error}") }
    }
}

/// Waits for the program to end, passing signals on. Also returns the bytes that it and the
/// descendants it waited for have read, by the kernel's count; `own_bytes_read` is what this process
/// had read before.
fn wait(child: Child, own_bytes_read: Option<u64>) -> (Ending, Option<u64>) {
    let pid = Pid::from_child(&child);
    loop {
        let taken = signals::take(&signals::OF_A_RUN);
        if taken.signal != libc::SIGCHLD {
            if taken.by_process
                && let Some(signal) = Signal::from_named_raw(taken.signal)
            {
                let _ = rustix::process::kill_process(pid, signal);
            }
            continue;
        }
        let at_once = WaitIdOptions::NOHANG;
        let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | at_once);
        if matches!(stopped, Ok(Some(_))) {
            // The program was stopped, from the terminal say: stop too, so that the shell notices.
            // Whoever lets us go on lets the program go on.
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            let _ = rustix::process::kill_process(pid, Signal::CONT);
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | at_once;
        let status = match waitid(WaitId::Pid(pid), look) {
            Ok(Some(status)) => status,
            Ok(None) => continue,
            Err(_) => return (Ending::Exit(0), None), // Reaped by somebody else: it has ended.
        };
        // Only root may ask for a process that has ended; its parent's own count has it afterwards.
        let of_program = characters_read(&pid.to_string());
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        let since = || Some(characters_read("self")?.saturating_sub(own_bytes_read?));
        return (ending(&status), of_program.or_else(since));
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
