//! The life of a run that the daemon manages, on a thread of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foretell_manager::opens::Opens;
use foretell_manager::shares::{MANAGERS_MAX, Shares};
use foretell_manager::{Asker, Figures, Manager, Options, Report, Root};
use foretell_protocol::Listener;
use rustix::event::{PollFd, PollFlags, poll};

use super::Answer;
use super::asking::Permit;
use super::log::Log;
use super::peer::{self, Peer};
use super::pipes::{self, Patient};
use super::status::{RunStatus, Totals};
use super::wire::{self, Run};
use crate::manager_process;
use crate::rules::RulesPlan;

/// Bytes of a command that are kept for those who ask.
const COMMAND_MAX_BYTES: usize = 4096;

/// Refusals that are told in the log, and in which time.
const REFUSALS_TOLD_MAX: u32 = 60;
const REFUSALS_PERIOD: Duration = Duration::from_secs(60);

/// How long a manager may take for its figures.
const FIGURES_PATIENCE: Duration = Duration::from_millis(200);

/// What the threads of a daemon share.
pub(super) struct House {
    pub(super) shares: Shares,
    pub(super) log: Log,
    /// Readable once all runs are to end.
    pub(super) over: OwnedFd,
    /// An eventfd that is written to when a run has ended.
    bell: OwnedFd,
    runs: Mutex<Runs>,
    /// Whether the daemon is about to end, and takes no run. Changed while `runs` is locked.
    pub(super) is_draining: AtomicBool,
    next: AtomicU64,
    pub(super) refused: AtomicU64,
    told: Mutex<Told>,
    /// The rules of runs that have none of their own.
    rules: Mutex<Option<RulesPlan>>,
}

#[derive(Default)]
struct Runs {
    now: BTreeMap<u64, Known>,
    ended: Totals,
}

/// A run that is managed.
struct Known {
    pid: i32,
    command: String,
    began: Instant,
    /// `None` while it starts.
    asker: Option<Asker>,
    /// What it has said last.
    last: Figures,
}

/// The refusals that were told in this minute: clients that ask again and again must not fill the log.
#[derive(Debug, Default)]
struct Told {
    since: Option<Instant>,
    count: u32,
}

impl Told {
    /// Whether another refusal is to be told.
    fn takes(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now - since >= REFUSALS_PERIOD) {
            *self = Told { since: Some(now), count: 0 };
        }
        self.count += 1;
        self.count <= REFUSALS_TOLD_MAX
    }
}

impl House {
    /// `over` and `bell` are eventfds.
    pub(super) fn new(shares: Shares, log: Log, (over, bell): (OwnedFd, OwnedFd)) -> Self {
        House {
            shares,
            log,
            over,
            bell,
            runs: Mutex::default(),
            is_draining: AtomicBool::new(false),
            next: AtomicU64::new(1),
            refused: AtomicU64::new(0),
            told: Mutex::default(),
            rules: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rules of runs that begin from now on, and have none of their own.
    pub(super) fn set_rules(&self, rules: RulesPlan) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    fn rules(&self) -> Option<RulesPlan> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The runs under way, and what became of those that have ended. A manager that does not answer now counts as before.
    pub(super) fn runs(&self) -> (Vec<RunStatus>, Totals) {
        let ask = |(&run, known): (&u64, &Known)| (run, known.asker.as_ref().map(Asker::ask));
        let asked: Vec<_> = self.lock().now.iter().map(ask).collect();
        let deadline = Instant::now() + FIGURES_PATIENCE;
        let told: Vec<_> = asked
            .into_iter()
            .filter_map(|(run, answer)| {
                let left = deadline.saturating_duration_since(Instant::now());
                Some((run, answer?.recv_timeout(left).ok()?))
            })
            .collect();
        let mut runs = self.lock();
        for (run, figures) in told {
            if let Some(known) = runs.now.get_mut(&run) {
                known.last = figures;
            }
        }
        let status = |(&run, known): (&u64, &Known)| RunStatus {
            run,
            pid: known.pid,
            command: known.command.clone(),
            seconds: known.began.elapsed().as_secs_f64(),
            figures: known.last.clone(),
        };
        (runs.now.iter().map(status).collect(), runs.ended.clone())
    }

    /// Readable when a run has ended.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether no run is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().now.is_empty()
    }

    /// Takes no further run.
    pub(super) fn drain(&self) {
        let runs = self.lock();
        self.is_draining.store(true, Ordering::Release);
        drop(runs);
    }

    /// Why no run is taken; `None` if runs are.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        self.is_draining.load(Ordering::Acquire).then_some("the daemon is about to end")
    }

    /// The number of a new run.
    ///
    /// # Errors
    /// The reason why no further run is taken.
    fn begin(&self, pid: i32, command: String) -> Result<u64, &'static str> {
        let mut runs = self.lock();
        if let Some(reason) = self.refusal() {
            return Err(reason);
        }
        if runs.now.len() >= MANAGERS_MAX {
            return Err("there are too many runs");
        }
        let (run, began) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        let last = Figures::default();
        runs.now.insert(run, Known { pid, command, began, asker: None, last });
        Ok(run)
    }

    /// A run has ended, with this report if it had a manager.
    fn end(&self, run: u64, report: Option<Report>) {
        let mut runs = self.lock();
        runs.now.remove(&run);
        if let Some(Report { blocks, programs, .. }) = report {
            runs.ended.add(&blocks, &programs);
        }
        let is_idle = runs.now.is_empty();
        drop(runs);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        if is_idle {
            // SAFETY: a plain call. What the runs have freed goes back to the system.
            unsafe { libc::malloc_trim(0) };
        }
    }

    pub(super) fn refuse(&self, socket: &OwnedFd, pid: i32, reason: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if self.tells_refusal() {
            self.log.tell("run_refused", &[("pid", pid.into()), ("reason", reason.into())]);
        }
        let _ = wire::send(socket, &Answer::Refused(reason.to_owned()), &[]);
    }

    /// The cache has refused a store of this process.
    pub(super) fn store_refused(&self, pid: i32, reason: &str) {
        if self.tells_refusal() {
            self.log.tell("store_refused", &[("pid", pid.into()), ("reason", reason.into())]);
        }
    }

    /// Whether the log has room for one more refusal.
    fn tells_refusal(&self) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).takes(Instant::now())
    }
}

/// The files that came with a run.
struct Files {
    ends: Option<OwnedFd>,
    reporter: Option<Patient>,
    opens: Option<OwnedFd>,
}

impl Files {
    /// Takes those of the run out of `files`, and gives the plan its own.
    fn take(run: &mut Run, files: Vec<OwnedFd>) -> Option<Self> {
        let mut files = files.into_iter();
        let taken = Files {
            ends: if run.reports { Some(pipes::to_read(&files.next()?)?) } else { None },
            reporter: if run.reports { Some(Patient::new(&files.next()?)?) } else { None },
            opens: if run.watches { Some(pipes::to_read(&files.next()?)?) } else { None },
        };
        for hints in &mut run.plan.hints {
            let file = File::from(files.next()?);
            // A pipe may have no writer left that ends it.
            hints.file = Some(file.metadata().is_ok_and(|about| about.is_file()).then_some(file)?);
        }
        files.next().is_none().then_some(taken)
    }
}

/// The command as it is shown, at most [`COMMAND_MAX_BYTES`] of it.
fn shown(mut command: String) -> String {
    if command.len() > COMMAND_MAX_BYTES {
        command.truncate(command.floor_char_boundary(COMMAND_MAX_BYTES));
        command.shrink_to_fit();
    }
    command
}

/// A run that the house knows; dropping it ends that, however its thread ends.
struct Place {
    house: Arc<House>,
    run: u64,
    report: Option<Report>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.house.end(self.run, self.report.take());
    }
}

/// Manages a run from the request to its end: one of a process that may have it managed. `permit` is given back once it is
/// answered.
pub(super) fn manage(
    house: &Arc<House>,
    (mut run, files): (Run, Vec<OwnedFd>),
    (socket, peer): (OwnedFd, &Peer),
    permit: Permit,
) {
    let pid = peer.pid;
    let command = shown(run.plan.text());
    let number = match house.begin(pid, command.clone()) {
        Ok(number) => number,
        Err(reason) => return house.refuse(&socket, pid, reason),
    };
    let mut place = Place { house: Arc::clone(house), run: number, report: None };
    let Some(files) = Files::take(&mut run, files) else {
        return house.refuse(&socket, pid, "its files are not those that it names");
    };
    let reports = run.reports;
    if run.plan.observes && run.plan.rules.is_none() {
        run.plan.rules = house.rules();
    }
    let Some(process) = peer.process() else {
        return house.refuse(&socket, pid, peer::HAS_ENDED);
    };
    // The socket is this process's alone: nobody else can take what it waits for.
    let Ok(listener) = Listener::bind() else {
        return house.refuse(&socket, pid, "no socket can be opened for its programs");
    };
    let (options, problem) = run.plan.into_options();
    let root = if reports { Root::ChildrenOf } else { Root::Process };
    let options = Options {
        root: Some(root(pid.unsigned_abs())),
        // What it would release is other runs' too.
        release: false,
        opens: files.opens.map(Opens::new),
        shares: Some(house.shares.clone()),
        ..options
    };
    // The run goes on while its manager starts: connections of its programs wait in the socket's queue.
    let address = listener.address().to_owned();
    let answer = Answer::Taken { pid: std::process::id().cast_signed(), address, problem };
    if wire::send(&socket, &answer, &[]).is_err() {
        return; // It has given up, and has a manager of its own.
    }
    drop((socket, permit));
    let (reporter, began) = (files.reporter, Instant::now());
    let manager = match Manager::start_at(listener, options) {
        Ok(manager) => manager,
        Err(error) => {
            manager_process::tell_failure(reporter, &error);
            let fields = [("pid", pid.into()), ("reason", error.to_string().into())];
            return house.log.tell("manager_fails", &fields);
        }
    };
    if let Some(known) = house.lock().now.get_mut(&number) {
        known.asker = Some(manager.asker());
    }
    let fields = [("run", number.into()), ("pid", pid.into()), ("command", command.into())];
    house.log.tell("run_begins", &fields);
    let has_ended = wait(files.ends.as_ref(), &house.over, process) || !reports;
    let report = manager_process::conclude(manager, has_ended, reporter, Vec::new);
    let seconds = (began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
    let fields = [
        ("run", number.into()),
        ("seconds", seconds.into()),
        ("prefetched_blocks", report.blocks.prefetched.into()),
        ("useful_blocks", report.blocks.useful.into()),
        ("late_blocks", report.blocks.late.into()),
    ];
    house.log.tell("run_ends", &fields);
    place.report = Some(report);
}

/// Waits for the end of a run or of its process, or until all are to end. Returns whether its program has said that it has
/// ended.
fn wait(ends: Option<&OwnedFd>, over: &OwnedFd, process: BorrowedFd<'_>) -> bool {
    let mut has_ended = false;
    loop {
        let all = [over.as_fd(), process].into_iter().chain(ends.map(AsFd::as_fd));
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return has_ended,
            Ok(_) if !fds[0].revents().is_empty() => return has_ended,
            Ok(_) => {}
        }
        // Its last word comes first. Others may go on to write into its pipe.
        let is_over = !fds[1].revents().is_empty();
        let mut words = [0; 64];
        match ends.map(|ends| rustix::io::read(ends, &mut words)) {
            Some(Ok(count @ 1..)) => has_ended |= words[..count].contains(&manager_process::ENDED),
            Some(Err(rustix::io::Errno::AGAIN)) => {}
            _ => return has_ended,
        }
        if is_over {
            return has_ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_few_refusals_a_minute() {
        let (mut told, now) = (Told::default(), Instant::now());
        let mut count = |at| (0..1000).filter(|_| told.takes(at)).count();
        assert_eq!(count(now), REFUSALS_TOLD_MAX as usize);
        assert_eq!(count(now + REFUSALS_PERIOD / 2), 0);
        assert_eq!(count(now + REFUSALS_PERIOD), REFUSALS_TOLD_MAX as usize);
    }

    #[test]
    fn a_long_command_is_cut_between_letters() {
        let long = "ä".repeat(COMMAND_MAX_BYTES);
        assert_eq!(shown(format!("x{long}")).len(), COMMAND_MAX_BYTES - 1);
        assert_eq!(shown("cat a".into()), "cat a");
    }

    #[test]
    fn a_run_ends_with_its_process_though_nothing_tells_its_end() {
        let event = || {
            rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an eventfd")
        };
        let mut child = std::process::Command::new("true").spawn().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let process = process.expect("a descriptor");
        assert!(!wait(None, &event(), process.as_fd()));
        let (silent, _writer) = rustix::pipe::pipe().expect("a pipe");
        let silent = pipes::to_read(&silent).expect("a pipe");
        assert!(!wait(Some(&silent), &event(), process.as_fd()));
        child.wait().expect("it has ended");
        let (ends, writer) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&writer, &[manager_process::ENDED]).expect("there is room");
        drop(writer);
        assert!(wait(Some(&ends), &event(), process.as_fd()), "its last word is heard");
    }

    #[test]
    fn so_many_runs_are_managed_and_none_while_the_daemon_ends() {
        let event =
            || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("one");
        let log = Log { is_quiet: true, ..Log::default() };
        let house = House::new(Shares::new(1 << 20), log, (event(), event()));
        let runs: Vec<_> = (0..MANAGERS_MAX).map(|_| house.begin(1, String::new())).collect();
        assert!(runs.iter().all(Result::is_ok));
        assert_eq!(house.begin(1, String::new()), Err("there are too many runs"));
        house.end(runs[0].expect("it has begun"), None);
        assert!(rustix::io::read(house.bell(), &mut [0u8; 8]).is_ok(), "the loop is woken");
        house.drain();
        assert_eq!(house.begin(1, String::new()), Err("the daemon is about to end"));
        assert!(!house.is_empty());
    }
}
