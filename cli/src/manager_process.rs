//! The manager of `foretell run`, in a process of its own.
//!
//! A thread that waits for a device cannot be ended before the device answers, and a process cannot end before its threads. The
//! manager has many threads that wait for devices, but `foretell run` must end when its program does. So the manager is a
//! process of its own, forked off before anything else is started. If it must wait for a device at its end, nobody waits for
//! it.
//!
//! A. [`ManagerProcess`] is a child that reports. It ends when a pipe is closed, which also happens when `foretell run` is
//!    killed. The byte [`ENDED`] before that says that the program has ended. It is in the process group of `foretell run` and
//!    has all signals blocked. A signal to the group is therefore pending in the manager too, which tells it from a signal to
//!    `foretell run` alone ([`ManagerProcess::takes_part_in`]). With a daemon, the manager is a part of it, and only a
//!    *witness* is forked off: it does nothing but take part in signals.
//! B. [`start_behind`] is for a run in place, in which this process becomes the program. The manager is then not its child, has
//!    its own session, reports nothing, and ends after the program.
//!
//! The control socket is opened before the fork. So the program need not wait until the manager has started: a connection that
//! it makes meanwhile waits in the socket's queue. A manager that cannot start closes the socket, and programs then do without
//! it.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foretell_manager::learn::store::StoreError;
use foretell_manager::recorded::Written;
use foretell_manager::{Ends, Lesson, Manager, ManagerError, ManagerState, Options, Report, Root};
use foretell_protocol::Listener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::daemon::Daemon;
use crate::failure::{note, without_controls};
use crate::run::plan::Plan;
use crate::{orphan, panics, signals};

/// How long to wait for the report: longer than the manager's own deadline.
const REPORT_PATIENCE: Duration = Duration::from_secs(3);

/// How often to look whether a daemon whose report is waited for was stopped.
const DAEMON_ROUND: Duration = Duration::from_millis(20);

/// How long to wait for the process to end after its report. It takes longer only if a device holds it up.
const END_PATIENCE: Duration = Duration::from_millis(100);

/// How long the report waits for what was learned to be written.
const LESSON_PATIENCE: Duration = Duration::from_millis(100);

/// How long the report waits for the rest of a recording to be written.
const RECORDING_PATIENCE: Duration = Duration::from_millis(500);

/// Prefix of a line about a panic in the manager; such lines precede its report.
const TOLD: &str = "panic ";

/// Prefix of the line that a manager writes in place of a report if it cannot start.
const FAILED: &str = "failed ";

/// What the control pipe says when the program has ended; other bytes are numbers of signals, which begin at 1.
pub(crate) const ENDED: u8 = 0;

/// Arenas of the manager's allocator. Two: each takes 64 MiB of a limited address space.
const ARENAS_MAX: libc::c_int = 2;

/// The descriptors that this process was started with, except the standard three.
pub(crate) struct InheritedDescriptors(Vec<RawFd>);

impl InheritedDescriptors {
    /// Lists them. Call it before anything is opened.
    pub(crate) fn list() -> Self {
        let listing = std::fs::read_dir("/proc/self/fd");
        let numbers = listing.into_iter().flatten().flatten();
        let open: Vec<RawFd> =
            numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // The listing's own descriptor is closed by now. `stat` of a file could hang for ever on a dead server; F_GETFD does
        // not. SAFETY: F_GETFD only reads, and fails where nothing is open.
        let still_open = |&fd: &RawFd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        InheritedDescriptors(open.into_iter().filter(|&fd| fd > 2).filter(still_open).collect())
    }

    /// Adds one that the manager must not keep open either.
    pub(crate) fn add(&mut self, descriptor: &impl AsRawFd) {
        self.0.push(descriptor.as_raw_fd());
    }

    fn close(&self) {
        for &fd in &self.0 {
            // SAFETY: it was open when this process was started, so nothing in it owns it; or its owner is in a part of the
            // program that the manager's process never comes back to.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// A: a running manager; dropping it ends it.
pub(crate) struct ManagerProcess {
    address: String,
    budget_bytes: u64,
    pid: Pid,
    /// Readable when the process has ended; `None` if the kernel has no pidfds.
    process: Option<OwnedFd>,
    /// Closing it tells the manager to end. A byte is the number of a pending signal that it must discard.
    control: File,
    /// With a daemon: the same for the witness, whose process the one above is.
    witness: Option<File>,
    daemon: Option<Daemon>,
    report: BufReader<File>,
}

impl ManagerProcess {
    /// Forks the manager off, with /dev/null in place of `outputs`: their readers must not wait for a manager that is stuck.
    /// Call it while this process has a single thread, with all signals blocked.
    ///
    /// # Errors
    /// The system is out of processes or descriptors. A manager that cannot start says so in its report.
    pub(crate) fn start(
        mut options: Options,
        inherited: InheritedDescriptors,
        outputs: &[BorrowedFd<'_>],
    ) -> Result<Self, String> {
        let (told, control) = pipe_with(PipeFlags::CLOEXEC).map_err(cannot_start)?;
        let (report, reporter) = pipe_with(PipeFlags::CLOEXEC).map_err(cannot_start)?;
        let budget_bytes = options.budget_bytes;
        options.root = Some(Root::ChildrenOf(std::process::id()));
        let listener = Listener::bind().map_err(cannot_start)?;
        let address = listener.address().to_owned();
        // SAFETY: there is one thread, so the child finds no lock taken and no structure half changed.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            drop((control, report));
            inherited.close();
            replace_by_null(outputs);
            let reporter = Some(File::from(reporter));
            serve(
                || Manager::start_at(listener, options),
                reporter,
                || until_told(File::from(told)),
            );
        }
        let pid = forked_pid(forked)?;
        drop((told, reporter, listener));
        let process = pidfd_open(pid, PidfdFlags::empty()).ok();
        let report = BufReader::new(File::from(report));
        let (control, witness, daemon) = (File::from(control), None, None);
        Ok(ManagerProcess { address, budget_bytes, pid, process, control, witness, daemon, report })
    }

    /// Has `daemon` manage the run, with what tells of opens if they are watched. Call it as [`start`](Self::start).
    ///
    /// # Errors
    /// The plan, if the daemon does not take the run at once; a line, if the system is out of processes or descriptors.
    pub(crate) fn lent(
        daemon: Daemon,
        (plan, opens): (Plan, Option<&OwnedFd>),
        inherited: &InheritedDescriptors,
    ) -> Result<Self, Box<Plan>> {
        let budget_bytes = plan.budget_bytes;
        let pipes = || {
            Ok::<_, Errno>([
                pipe_with(PipeFlags::CLOEXEC)?,
                pipe_with(PipeFlags::CLOEXEC)?,
                pipe_with(PipeFlags::CLOEXEC)?,
            ])
        };
        let Ok([(told, control), (report, reporter), (noticed, witness)]) = pipes() else {
            return Err(Box::new(plan));
        };
        let pipes = [told.as_fd(), reporter.as_fd()];
        let address = daemon.lend(plan, Some(pipes), opens.map(AsFd::as_fd))?;
        drop((told, reporter));
        // SAFETY: there is one thread, so the child finds no lock taken and no structure half changed.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            drop((control, report, witness));
            inherited.close();
            // SAFETY: its owner is in a part of the program that this process never comes back to.
            opens
                .into_iter()
                .for_each(|opens| unsafe { drop(OwnedFd::from_raw_fd(opens.as_raw_fd())) });
            be_witness(File::from(noticed));
        }
        drop(noticed);
        // Without a witness nobody knows who got a signal, as with a manager that has died.
        let pid = forked_pid(forked).unwrap_or(rustix::process::getpid());
        let process = (forked > 0).then(|| pidfd_open(pid, PidfdFlags::empty()).ok()).flatten();
        Ok(ManagerProcess {
            address,
            budget_bytes,
            pid,
            process,
            control: File::from(control),
            witness: (forked > 0).then(|| File::from(witness)),
            daemon: Some(daemon),
            report: BufReader::new(File::from(report)),
        })
    }

    /// The manager's address, the value of the environment variable `FORETELL_SOCKET`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Whether `signal`, which this process has taken, was sent to the manager as well, and so to the whole process group.
    /// `None` if unknown.
    pub(crate) fn takes_part_in(&mut self, signal: libc::c_int) -> Option<bool> {
        if self.daemon.is_some() && self.witness.is_none() {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"))?;
        let pending = u64::from_str_radix(pending.trim(), 16).ok()?;
        let takes_part = pending & (1 << (signal - 1)) != 0;
        if takes_part {
            let taker = self.witness.as_mut().unwrap_or(&mut self.control);
            taker.write_all(&[u8::try_from(signal).ok()?]).ok()?;
        }
        Some(takes_part)
    }

    /// Ends the manager and returns its report; waits at most three seconds. Prints the manager's panics unless `quiet`.
    pub(crate) fn finish(self, quiet: bool) -> Report {
        let ManagerProcess { budget_bytes, process, mut control, mut report, .. } = self;
        let _ = control.write_all(&[ENDED]); // One that has ended needs no word.
        drop((control, self.witness));
        let deadline = Instant::now() + REPORT_PATIENCE;
        let mut text = Vec::new();
        let state = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let round = if self.daemon.is_some() { DAEMON_ROUND } else { left };
            if !is_readable(report.get_ref(), left.min(round)) {
                let is_stopped = self.daemon.as_ref().is_some_and(Daemon::is_stopped);
                if left.is_zero() || is_stopped {
                    break ManagerState::Unresponsive;
                }
                continue;
            }
            match report.fill_buf().map(<[u8]>::len) {
                Ok(0) | Err(_) => break ManagerState::Failed("its process ended".into()),
                Ok(length) => {
                    text.extend_from_slice(report.buffer());
                    report.consume(length);
                }
            }
        };
        if let Some(process) = process
            && is_readable(&process, END_PATIENCE)
        {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::PidFd(process.as_fd()), options);
        }
        let mut text = &text[..];
        while let Some(rest) = text.strip_prefix(TOLD.as_bytes()) {
            let (line, rest) = first_line(rest);
            if !quiet {
                note(format_args!("in the manager: {line}"));
            }
            text = rest;
        }
        if let Some(reason) = text.strip_prefix(FAILED.as_bytes()) {
            let reason = first_line(reason).0.into_owned();
            return Report::empty(ManagerState::Failed(reason), budget_bytes);
        }
        serde_json::from_slice(text).unwrap_or_else(|_| Report::empty(state, budget_bytes))
    }
}

/// B: forks the manager off for the program that this process is about to become, and returns the manager's address. Call it
/// only if [`can_be_behind`], while this process has a single thread, with all signals blocked.
///
/// # Errors
/// In words, if the system is out of processes or descriptors. A manager that cannot start closes its socket.
pub(crate) fn start_behind(
    mut options: Options,
    inherited: InheritedDescriptors,
) -> Result<String, String> {
    let program = rustix::process::getpid();
    options.root = Some(Root::Process(std::process::id()));
    let ends = pidfd_open(program, PidfdFlags::empty()).map_err(cannot_start)?;
    let listener = Listener::bind().map_err(cannot_start)?;
    let address = listener.address().to_owned();
    orphan::fork(move || {
        inherited.close();
        let _ = rustix::process::setsid();
        serve(
            || Manager::start_at(listener, options),
            None,
            || {
                while !is_readable(&ends, Duration::MAX) {}
                true
            },
        );
    })
    .map_err(cannot_start)?;
    Ok(address)
}

/// As [`start_behind`], with a daemon in the manager's place.
///
/// # Errors
/// The plan, if the daemon does not take the run at once.
pub(crate) fn lent_behind(
    daemon: &Daemon,
    plan: Plan,
    opens: Option<&OwnedFd>,
) -> Result<String, Box<Plan>> {
    daemon.lend(plan, None, opens.map(AsFd::as_fd))
}

/// Whether a run in place leaves the program as it would be without foretell. An init process or a subreaper adopts orphans, so
/// the manager would become its child.
pub(crate) fn can_be_behind() -> bool {
    let is_init = std::process::id() == 1;
    let adopts = rustix::process::child_subreaper().is_ok_and(|adopts| adopts.is_some());
    !is_init && !adopts && pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).is_ok()
}

fn cannot_start(error: impl Display) -> String {
    format!("cannot start the manager: {error}")
}

/// The child's pid from the return value of `fork`.
fn forked_pid(forked: libc::pid_t) -> Result<Pid, String> {
    let pid = (forked > 0).then(|| Pid::from_raw(forked)).flatten();
    pid.ok_or_else(|| cannot_start(std::io::Error::last_os_error()))
}

/// The first line of `text`, and what follows it.
fn first_line(text: &[u8]) -> (Cow<'_, str>, &[u8]) {
    let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
    (String::from_utf8_lossy(&text[..end]), text.get(end + 1..).unwrap_or_default())
}

/// Waits until the other end of `told` is closed, and discards the signals that it names. Returns whether the program has
/// ended.
fn until_told(mut told: File) -> bool {
    let (mut byte, mut has_ended) = ([0; 1], false);
    while told.read_exact(&mut byte).is_ok() {
        match byte {
            [ENDED] => has_ended = true,
            [signal] => signals::forget(signal.into()),
        }
    }
    has_ended
}

fn is_readable(fd: impl AsFd, patience: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    matches!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)), Ok(1))
}

/// Runs in the child: starts the manager, serves until `until` returns, then reports and ends. `until` says whether the program
/// has ended.
fn serve(
    start: impl FnOnce() -> Result<Manager, ManagerError>,
    reporter: Option<File>,
    until: impl FnOnce() -> bool,
) -> ! {
    let _ = rustix::thread::set_name(c"foretell-manag");
    signals::write_no_core();
    // Each arena takes 64 MiB of a limited address space (`ulimit -v`), and memory freed in one is not reused in another.
    // SAFETY: only a parameter of the allocator is set, while there is one thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX) };
    // The reader of our output must see its end when the program has ended, and nothing may keep our folder from being
    // unmounted.
    let _ = without_standard_files();
    let _ = rustix::process::chdir("/");
    let code = match start() {
        Ok(manager) => {
            conclude(manager, until(), reporter, panics::told);
            0
        }
        Err(error) => {
            tell_failure(reporter, &error);
            1
        }
    };
    // SAFETY: ends the process at once; what `exit` would run belongs to the parent.
    unsafe { libc::_exit(code) }
}

/// Says in place of a report that the manager cannot start.
pub(crate) fn tell_failure(reporter: Option<impl Write>, error: &ManagerError) {
    let _ = reporter.map(|mut file| writeln!(file, "{FAILED}{error}"));
}

/// Ends the manager of a run, reports, and writes what is to be learned. Returns the report. `panics` are lines about panics in the process.
pub(crate) fn conclude(
    manager: Manager,
    has_ended: bool,
    reporter: Option<impl Write>,
    panics: impl FnOnce() -> Vec<String>,
) -> Report {
    if !has_ended {
        manager.abandon();
    }
    // Programs that outlive the run are told that it is over, even if there is no report.
    let (mut report, Ends { lesson, mut recording }) = manager.finish();
    let written = recording.as_mut().map(|recording| recording.wait(RECORDING_PATIENCE));
    if let (Some(Some(written)), Some(recorded)) = (written, &mut report.recorded) {
        match written {
            Ok(bytes) => recorded.file_bytes = bytes,
            Err(problem) => recorded.problem = Some(problem),
        }
    }
    let learning = lesson.map(Learning::start);
    let problem = learning.as_ref().and_then(Learning::problem);
    report.learned.problem = problem.or(report.learned.problem);
    if let Some(mut reporter) = reporter {
        for line in panics() {
            let _ = writeln!(reporter, "{TOLD}{}", without_controls(&line));
        }
        let _ = serde_json::to_vec(&report).map(|text| reporter.write_all(&text));
    }
    learning.into_iter().for_each(Learning::end);
    recording.into_iter().for_each(Written::end);
    report
}

/// Runs in the child: has all signals blocked, so that one to the group is pending here, until the run is over.
fn be_witness(noticed: File) -> ! {
    let _ = rustix::thread::set_name(c"foretell-witnes");
    signals::write_no_core();
    let _ = without_standard_files();
    let _ = rustix::process::chdir("/");
    until_told(noticed);
    // SAFETY: ends the process at once; what `exit` would run belongs to the parent.
    unsafe { libc::_exit(0) }
}

/// A lesson that is being written, by a thread: the folder may be on a slow file system, and the report is waited for.
struct Learning {
    thread: Option<JoinHandle<()>>,
    written: Receiver<Result<(), StoreError>>,
}

impl Learning {
    fn start(lesson: Lesson) -> Self {
        let (sender, written) = channel();
        let thread = thread::Builder::new().name("foretell-learn".into());
        // Without a thread the channel is closed, and nothing is learned.
        let thread = thread.spawn(move || {
            let _ = sender.send(lesson.learn());
        });
        Learning { thread: thread.ok(), written }
    }

    /// Why it cannot be written, as far as that is known soon.
    fn problem(&self) -> Option<String> {
        let result = self.written.recv_timeout(LESSON_PATIENCE).ok()?;
        result.err().map(|error| error.to_string())
    }

    fn end(self) {
        let _ = self.thread.map(JoinHandle::join);
    }
}

/// Replaces `files` by /dev/null; the descriptors stay open.
fn replace_by_null(files: &[BorrowedFd<'_>]) {
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { return };
    for file in files {
        // SAFETY: a plain system call with descriptors that are open.
        unsafe { libc::dup3(null.as_raw_fd(), file.as_raw_fd(), libc::O_CLOEXEC) };
    }
}

/// Replaces standard input, output and error by /dev/null.
fn without_standard_files() -> std::io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
