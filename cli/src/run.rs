//! `foretell run`: runs a program with its reads prefetched.
//!
//! The program gets the interposing library by `LD_PRELOAD`, and a manager to talk to, which is another process. There are two
//! forms:
//!
//! A. In place: if nothing is to be reported at the end, this process becomes the program.
//! B. Beside: the program is a child in the same process group. This process waits for it, passes signals on, reports, and ends
//!    as the program ended, so the summary is complete when this process ends.
//!
//! If the manager cannot start, or the library does not fit the program, the program runs without them.

mod hints;
mod mpi;
pub(crate) mod plan;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use foretell_manager::opens::Opens;
use foretell_manager::{Fault, ManagerState, Options, Report};
use foretell_protocol::layout::{
    INTEREST_MPI, INTEREST_MPI_LAUNCHED, INTEREST_NAMES, INTEREST_READS,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, waitid};

use self::hints::HintArgs;
pub(crate) use self::mpi::MpiReport;
use self::mpi::Reports;
use self::plan::{DECISIONS_MAX, Plan};
use crate::daemon::Daemon;
use crate::failure::{FAILED_BEFORE, Failure, note};
use crate::launch::{Launch, NotStarted};
use crate::manager_process::{self, InheritedDescriptors, ManagerProcess};
use crate::opens::{self, Channel, Guard};
use crate::output_file::{self, Named, OutputFile};
use crate::record::{self, Moved, Naming, Observed};
use crate::signals::Taken;
use crate::state::LearnPlan;
use crate::summary::{Ended, Ending, Summary};
use crate::{environment, library, panics, rules, signals, size, state};

/// Names a fault to be injected into the manager; for tests.
const FAULT_VARIABLE: &str = "FORETELL_TEST_FAULT";

/// The default budget without `--release`.
const BUDGET_DEFAULT_BYTES: u64 = 256 << 20;

/// The least budget; a smaller one is refused as a mistake.
const BUDGET_MIN_BYTES: u64 = 1 << 20;

/// What is followed of what a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Observe {
    // Comments that clap shows would put each option of the help on lines of its own.
    Calls,
    Opens,
    None,
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Memory for prefetched data that is not yet read, e.g. 64MiB or 2GiB; with --release, for all data that is kept [default:
    /// 256MiB; with --release, 3/4 of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    budget: Option<u64>,

    #[command(flatten)]
    hints: HintArgs,

    /// What of PROGRAM is followed, to tell what it will read: its calls (advice that it gives the kernel, and names), also the
    /// opens of programs in which foretell cannot see calls (static and Go programs; needs root, and slows each open), or
    /// nothing
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Observe::Calls)]
    observe: Observe,

    /// Also keep data that PROGRAM has read and hints say it will read again, up to the budget. Prefetched data that does not
    /// fit is released from the page cache; what the kernel read by itself is not. Data larger than memory that is read
    /// repeatedly is then read partly from memory
    #[arg(long)]
    release: bool,

    /// Write the policy's last decisions to FILE: which blocks it fetched, evicted or refused, and why (- for standard output,
    /// after PROGRAM's output)
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,

    /// Have a manager of its own for this run, even if a daemon runs (`foretell daemon`). With --release and --replay it always
    /// has
    #[arg(long)]
    embedded: bool,

    /// Neither use what earlier runs of this command have read, nor learn from this run
    #[arg(long)]
    no_learn: bool,

    /// Call this run one of the workload NAME: what its runs read is learned together, whatever their command lines are
    #[arg(long, value_name = "NAME", conflicts_with = "no_learn", value_parser = NonEmptyStringValueParser::new())]
    workload: Option<String>,

    /// Look ahead in a recording that `foretell record` has made, in place of what earlier runs have shown
    #[arg(long, value_name = "FILE", conflicts_with = "no-hints")]
    replay: Option<PathBuf>,

    /// Files that the recording has below the folder OLD are now below NEW; may be given several times
    #[arg(long, value_name = "OLD=NEW", requires = "replay", value_parser = record::moved)]
    map: Vec<Moved>,

    /// Read ahead what FILE says of the files that PROGRAM opens: which parts, and how far; or that a file is left alone
    #[arg(long, value_name = "FILE", conflicts_with = "no-hints")]
    rules: Option<PathBuf>,

    /// Take the MPI-IO calls of PROGRAM and of what it starts: the views of its ranks become hints (the default for
    /// mpiexec, mpirun and the like, wherever they are started)
    #[arg(long, conflicts_with = "no-hints")]
    mpi: bool,

    /// Print no summary and no warning. Without --json and --explain, foretell's own process then becomes PROGRAM, which has
    /// the pid and the parent that it would have without foretell
    #[arg(short, long)]
    quiet: bool,

    /// Write the summary's figures to FILE as JSON (- for standard output, after PROGRAM's output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// What the run is recorded to, with `foretell record`.
    #[arg(skip)]
    record: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl RunArgs {
    /// Of a run that is only recorded.
    pub(crate) fn recorded(
        (record, observed): (PathBuf, Observed),
        (quiet, json): (bool, Option<PathBuf>),
        command: Vec<OsString>,
    ) -> Self {
        RunArgs {
            budget: None,
            hints: HintArgs::none(),
            observe: match observed {
                Observed::Calls => Observe::Calls,
                Observed::Opens => Observe::Opens,
            },
            release: false,
            explain: None,
            embedded: true,
            no_learn: true,
            workload: None,
            replay: None,
            map: Vec::new(),
            rules: None,
            mpi: false,
            quiet,
            json,
            record: Some(record),
            command,
        }
    }

    /// Whether the run cannot be a daemon's: it has a file of its own to write or read all along, asks for more memory than a
    /// daemon shares out, or is a test of its own manager.
    fn needs_own_manager(&self) -> bool {
        let has_file = self.record.is_some() || self.replay.is_some();
        self.embedded || has_file || self.release || std::env::var_os(FAULT_VARIABLE).is_some()
    }

    /// Whether nothing is to be reported at the end.
    fn is_silent(&self) -> bool {
        self.quiet && self.json.is_none() && self.explain.is_none() && self.record.is_none()
    }
}

/// Refuses to overwrite an input of the run: a file of hints, and files named by the program's arguments.
fn check_outputs(args: &RunArgs) -> Result<(), String> {
    let arguments =
        args.command.iter().map(|argument| ("an argument of PROGRAM", argument.as_ref()));
    let replay = args.replay.as_deref().map(|path| ("the recording of --replay", path));
    let rules = args.rules.as_deref().map(|path| ("the rules of --rules", path));
    let read: Vec<Named> =
        args.hints.inputs().chain(replay).chain(rules).chain(arguments).collect();
    let written = [
        ("--json", args.json.as_deref()),
        ("--explain", args.explain.as_deref()),
        ("--output", args.record.as_deref()),
    ];
    let written = written.into_iter().filter_map(|(name, path)| Some((name, path?)));
    output_file::check_apart(&read, &written.collect::<Vec<Named>>())
}

/// With what the library for MPI-IO goes along: bits `INTEREST_MPI…`.
///
/// # Errors
/// It is asked for and missing.
fn mpi_interest(args: &RunArgs, library: &Path) -> Result<u32, String> {
    let mpi_library = library::for_mpi(library);
    if !args.hints.may_prefetch() || !mpi_library.exists() {
        return match args.mpi {
            true => Err(format!("{} is missing; build or install again", mpi_library.display())),
            false => Ok(0),
        };
    }
    let is_launcher =
        args.command.first().is_some_and(|program| environment::is_mpi_launcher(program));
    let with_all = if args.mpi || is_launcher { INTEREST_MPI } else { 0 };
    Ok(INTEREST_MPI_LAUNCHED | with_all)
}

/// Runs the program and ends as it ended; returns only on failure. The command is that of `args` followed by
/// `program_arguments`.
pub(crate) fn run(
    mut args: RunArgs,
    program_arguments: Vec<OsString>,
) -> Result<ExitCode, Failure> {
    args.command.extend(program_arguments);
    let args = &args;
    let mut descriptors = InheritedDescriptors::list();
    let library = library::find().map_err(own_failure)?;
    check_outputs(args).map_err(Failure::usage)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(own_failure)?;
    let explain =
        OutputFile::of_option("--explain", args.explain.as_deref()).map_err(own_failure)?;
    let plan = plan(args)?;
    // With hints from the start, the program's first reads matter.
    let interest = |wanted, bit| if wanted { bit } else { 0 };
    let follows_all = args.record.is_some() || args.rules.is_some();
    let interest = interest(args.hints.is_any() || follows_all, INTEREST_READS)
        | interest(plan.counts_names || follows_all, INTEREST_NAMES)
        | mpi_interest(args, &library).map_err(own_failure)?;
    let channel = channel(args, plan.observes);
    let (reader, writer) = channel.map(|channel| (channel.reader, channel.writer)).unzip();
    let needs_own = args.needs_own_manager() || !plan.can_be_given();
    let daemon = (!needs_own).then(Daemon::find).flatten();
    writer.iter().for_each(|writer| descriptors.add(writer));
    let mut launch = Launch::new(&args.command, signals::block_all(), args.hints.takes_input());
    if args.is_silent() && manager_process::can_be_behind() {
        let lent = match &daemon {
            Some(daemon) => manager_process::lent_behind(daemon, plan, reader.as_ref()),
            None => Err(Box::new(plan)),
        };
        let address = match lent {
            Ok(address) => Ok(address),
            Err(plan) => {
                let options = manager_options(args, *plan)?;
                let options = Options { opens: reader.map(Opens::new), ..options };
                manager_process::start_behind(options, descriptors)
            }
        };
        // If the manager cannot start, only speed is lost, and `--quiet` asks for no message.
        if let Ok(address) = address {
            launch.preload(&library, (&address, interest), guard(args, writer), args.quiet);
        }
        return Err(launch.in_place());
    }
    // Signals are held off by now: none leaves a temporary file behind.
    let record = args.record.as_deref().map(|path| record::to_record(path, &args.command));
    let (record, naming) = record.transpose()?.unzip();
    let budget_bytes = plan.budget_bytes;
    let lent = match daemon {
        Some(daemon) => ManagerProcess::lent(daemon, (plan, reader.as_ref()), &descriptors),
        None => Err(Box::new(plan)),
    };
    let mut manager = match lent {
        Ok(manager) => {
            drop(reader); // Its only reader is the daemon.
            Ok(manager)
        }
        Err(plan) => {
            let options = manager_options(args, *plan)?;
            let options = Options { opens: reader.map(Opens::new), record, ..options };
            let outputs: Vec<_> =
                json.iter().chain(&explain).filter_map(OutputFile::descriptor).collect();
            ManagerProcess::start(options, descriptors, &outputs)
        }
    };
    let reports = (interest & INTEREST_MPI != 0).then(Reports::new).flatten();
    if let Ok(manager) = &manager {
        reports.iter().for_each(|reports| launch.add(reports.entry()));
        let of_manager = (manager.address(), interest);
        launch.preload(&library, of_manager, guard(args, writer), args.quiet);
    }
    let own_bytes_read = characters_read("self");
    let began = Instant::now();
    let mut child = launch.as_child();
    if matches!(child, Err(NotStarted::Guard)) {
        if !args.quiet {
            note(opens::without("their guard has ended"));
        }
        launch.without_guard();
        child = launch.as_child();
    }
    let pid = match child {
        Ok(pid) => pid,
        Err(NotStarted::Guard) => unreachable!("there is none"),
        Err(NotStarted::Program(failure)) => return Err(failure),
        Err(NotStarted::Child(error)) => {
            drop((manager, naming));
            if !args.quiet {
                note(format!("cannot start another process ({error}): no summary will follow"));
            }
            return Err(launch.in_place());
        }
    };
    naming.into_iter().for_each(Naming::take_name);
    launch.without_guard(); // If the child has not used it, it ends.
    let_go_of_standard_files();
    let ended = wait(pid, own_bytes_read, manager.as_mut().ok());
    let (ending, elapsed) = (ended.ending, began.elapsed());
    // The program has ended, and this process ends the same way, even if its report fails.
    panics::contained(|| {
        let mut report = match manager {
            Ok(manager) => manager.finish(args.quiet),
            Err(reason) => Report::empty(ManagerState::Failed(reason), budget_bytes),
        };
        if let Some(path) = &args.record {
            record::tell_problem(path, &report);
        }
        report.programs.left_alone += u64::from(launch.is_left_alone());
        let mpi = reports.and_then(Reports::sum);
        conclude(args, (report, mpi), (ended, elapsed), (json, explain));
    });
    match ending {
        Ending::Exit(code) => std::process::exit(code),
        Ending::Signal(signal) => signals::die_of(signal),
    }
}

/// Writes the explanation, the figures and the summary.
fn conclude(
    args: &RunArgs,
    (mut report, mpi): (Report, Option<MpiReport>),
    (ended, elapsed): (Ended, Duration),
    (json, explain): (Option<OutputFile>, Option<OutputFile>),
) {
    foretell_fault::point("run-report");
    // For the files written from here on: no program is started any more that could inherit this setting.
    signals::make_file_limits_errors();
    match (explain, report.explanation.take()) {
        (Some(file), Some(explanation)) => {
            file.write(explanation.as_bytes()).unwrap_or_else(note);
        }
        (Some(_), None) => note("--explain: nothing is written, because the manager failed"),
        (None, _) => {}
    }
    let summary = Summary::new(&args.command, ended, elapsed, report).with_mpi(mpi);
    if let Some(file) = json {
        file.write_json(&summary).unwrap_or_else(note);
    }
    if !args.quiet {
        summary.broken_lines().into_iter().for_each(note);
        summary.learning_problem().into_iter().for_each(note);
        summary.recording_problems().into_iter().for_each(note);
        summary.stopped_sources().for_each(note);
        summary.sources().into_iter().for_each(note);
        summary.mpi_line().into_iter().for_each(note);
        note(summary.line());
    }
}

/// What opens are told by, if they are to be watched and can be.
fn channel(args: &RunArgs, observes: bool) -> Option<Channel> {
    let wanted = (observes || args.record.is_some()) && args.observe == Observe::Opens;
    wanted.then(|| told(args, Channel::open())).flatten()
}

/// A guard of the program's opens, if there is a pipe for it.
fn guard(args: &RunArgs, pipe: Option<OwnedFd>) -> Option<Guard> {
    told(args, Guard::start(pipe?))
}

/// Tells why opens are not watched.
fn told<T>(args: &RunArgs, result: Result<T, String>) -> Option<T> {
    result.map_err(|why| (!args.quiet).then(|| note(opens::without(why)))).ok()
}

fn own_failure(line: impl std::fmt::Display) -> Failure {
    Failure { code: FAILED_BEFORE, line: line.to_string() }
}

/// The budget in bytes: as given, or the default. With `--release` that is most of the available memory, since the kernel alone
/// would keep as much.
fn budget_bytes(args: &RunArgs) -> u64 {
    let room = foretell_manager::available_memory_bytes().filter(|_| args.release);
    let default = room.map_or(BUDGET_DEFAULT_BYTES, |bytes| bytes / 4 * 3);
    args.budget.unwrap_or(default.max(BUDGET_MIN_BYTES))
}

/// What the manager is to do.
fn plan(args: &RunArgs) -> Result<Plan, Failure> {
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
    let is_wanted = args.hints.may_prefetch() || !args.is_silent();
    let counts_names = args.observe != Observe::None && is_wanted;
    let observes = counts_names && args.hints.may_prefetch();
    let learns = observes && !args.no_learn;
    Ok(Plan {
        command: args.command.clone(),
        // The folder may have been removed; then no relative path exists.
        working_folder: std::env::current_dir().ok().map(PathBuf::into_os_string),
        budget_bytes,
        release: args.release,
        decisions_max: if args.explain.is_some() { DECISIONS_MAX } else { 0 },
        hints: args.hints.open()?,
        guesses: args.hints.guesses(),
        observes,
        counts_names,
        learn: learns.then(|| LearnPlan::new(args.workload.as_deref())).flatten(),
        rules: args.rules.as_deref().map(rules::load).transpose()?,
    })
}

/// What a manager of the run's own is started with, apart from what its starter knows.
fn manager_options(args: &RunArgs, plan: Plan) -> Result<Options, Failure> {
    let fault: Option<Fault> = match std::env::var(FAULT_VARIABLE) {
        Ok(name) => Some(name.parse().map_err(own_failure)?),
        Err(_) => None,
    };
    let replay =
        args.replay.as_deref().map(|path| record::replayed(path, &args.map)).transpose()?;
    let (options, problem) = plan.into_options();
    problem.into_iter().for_each(note);
    let learn = state::with_replay(options.learn, replay);
    Ok(Options { learn, fault, ..options })
}

/// Closes standard input and output in this process, so that the processes at their other ends notice when the program closes
/// them. Output at the end has its own descriptor.
fn let_go_of_standard_files() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Waits for the program to end and passes signals on. `own_bytes_read` is the number of bytes that this process had read
/// before.
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
            // The program has ended, and another thread or library has reaped it.
            Err(_) => return Ended::default(),
        };
        // Only root may read the count of an ended process. After it is reaped, this process's own count includes it.
        let of_program = characters_read(&program.to_string());
        let _ = waitid(WaitId::Pid(program), WaitIdOptions::EXITED);
        let since = || Some(characters_read("self")?.saturating_sub(own_bytes_read?));
        let (ending, core_dumped) = (ending(&status), status.dumped());
        return Ended { ending, core_dumped, read_bytes: of_program.or_else(since) };
    }
}

/// Reaps ended children other than the program: the manager and, if this process is an init process, its orphans.
fn reap_all_but(program: Pid) {
    loop {
        // SAFETY: all-zero is a valid `siginfo_t`, a plain C structure, to be filled in. After the call it has the pid of an
        // ended child, or 0.
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

/// Whether a signal was sent to this process alone and must be passed on. A signal to the process group has reached the program
/// too.
fn is_for_this_process(taken: &Taken, manager: Option<&mut ManagerProcess>) -> bool {
    let of_child = taken.signal == libc::SIGCHLD && !taken.may_be_for_one();
    if of_child || taken.is_own() {
        return false;
    }
    let to_group = manager.and_then(|manager| manager.takes_part_in(taken.signal));
    to_group.map_or_else(|| taken.may_be_for_one(), |to_group| !to_group)
}

/// Stops this process if the program was stopped, for instance from the terminal, so that the shell notices. The signal that
/// continues this process also continues the program: it goes to the group, or is passed on.
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

/// `rchar` of a process, in bytes, including the children that it has waited for.
fn characters_read(process: &str) -> Option<u64> {
    let table = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    table.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}
