//! The life of a run that the daemon manages, on a thread of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foretell_manager::opens::Opens;
use foretell_manager::shares::Shares;
use foretell_manager::{Asker, Figures, Manager, Options, Report, Root};
use foretell_protocol::Listener;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::UCred;

use super::log::Log;
use super::status::{RunStatus, Totals};
use super::wire::{self, Run};
use super::{Answer, peer};
use crate::manager_process;
use crate::rules::RulesPlan;

/// Runs at a time. Each takes some threads, and a share of the descriptors.
const RUNS_MAX: usize = 64;

/// How long a manager may take for its figures.
pub(super) const FIGURES_PATIENCE: Duration = Duration::from_millis(200);

/// What the threads of a daemon share.
pub(super) struct House {
    pub(super) shares: Shares,
    pub(super) log: Log,
    /// Readable once all runs are to end.
    pub(super) over: OwnedFd,
    runs: Mutex<Runs>,
    /// Notified when a run has ended.
    changed: Condvar,
    next: AtomicU64,
    pub(super) refused: AtomicU64,
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
}

impl House {
    pub(super) fn new(shares: Shares, log: Log, over: OwnedFd) -> Self {
        House {
            shares,
            log,
            over,
            runs: Mutex::default(),
            changed: Condvar::new(),
            next: AtomicU64::new(1),
            refused: AtomicU64::new(0),
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

    /// The runs under way, and what became of those that have ended.
    pub(super) fn runs(&self) -> (Vec<RunStatus>, Totals) {
        let runs = self.lock();
        let known: Vec<_> = runs
            .now
            .iter()
            .map(|(&run, known)| {
                let seconds = known.began.elapsed().as_secs_f64();
                let (pid, command) = (known.pid, known.command.clone());
                let figures = Figures::default();
                (RunStatus { run, pid, command, seconds, figures }, known.asker.clone())
            })
            .collect();
        let ended = runs.ended.clone();
        drop(runs);
        let with_figures = |(run, asker): (RunStatus, Option<Asker>)| {
            let figures =
                asker.and_then(|asker| asker.figures(FIGURES_PATIENCE)).unwrap_or_default();
            RunStatus { figures, ..run }
        };
        (known.into_iter().map(with_figures).collect(), ended)
    }

    /// Waits until no run is left, for `patience` at most.
    pub(super) fn wait_for_runs(&self, patience: Duration) -> bool {
        let runs = self.lock();
        let is_busy = |runs: &mut Runs| !runs.now.is_empty();
        let waited = self.changed.wait_timeout_while(runs, patience, is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.now.is_empty()
    }

    /// A run has ended, with this report if it had a manager.
    fn end(&self, run: u64, report: Option<&Report>) {
        let mut runs = self.lock();
        runs.now.remove(&run);
        if let Some(Report { blocks, programs, .. }) = report {
            runs.ended.add(blocks, programs);
        }
        let is_idle = runs.now.is_empty();
        drop(runs);
        self.changed.notify_all();
        if is_idle {
            // SAFETY: a plain call. What the runs have freed goes back to the system.
            unsafe { libc::malloc_trim(0) };
        }
    }

    pub(super) fn refuse(&self, socket: &OwnedFd, pid: i32, reason: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.log.tell("run_refused", &[("pid", pid.into()), ("reason", reason.into())]);
        let _ = wire::send(socket, &Answer::Refused(reason.to_owned()), &[]);
    }
}

/// The files that came with a run.
struct Files {
    listener: OwnedFd,
    ends: OwnedFd,
    reporter: Option<OwnedFd>,
    opens: Option<OwnedFd>,
}

impl Files {
    /// Takes those of the run out of `files`, and gives the plan its own.
    fn take(run: &mut Run, files: Vec<OwnedFd>) -> Option<Self> {
        let mut files = files.into_iter();
        let taken = Files {
            listener: files.next()?,
            ends: files.next()?,
            reporter: if run.reports { Some(files.next()?) } else { None },
            opens: if run.watches { Some(files.next()?) } else { None },
        };
        for hints in &mut run.plan.hints {
            hints.file = Some(File::from(files.next()?));
        }
        files.next().is_none().then_some(taken)
    }
}

/// Manages a run from the request to its end.
pub(super) fn manage(
    house: &House,
    mut run: Run,
    files: Vec<OwnedFd>,
    (socket, by): (OwnedFd, UCred),
) {
    let pid = by.pid.as_raw_nonzero().get();
    if let Some(reason) = peer::refusal(&by) {
        return house.refuse(&socket, pid, reason);
    }
    if house.lock().now.len() >= RUNS_MAX {
        return house.refuse(&socket, pid, "there are too many runs");
    }
    let Some(files) = Files::take(&mut run, files) else {
        return house.refuse(&socket, pid, "its files are not those that it names");
    };
    let (command, reports) = (run.plan.text(), run.reports);
    if run.plan.observes && run.plan.rules.is_none() {
        run.plan.rules = house.rules();
    }
    let (options, problem) = run.plan.into_options();
    let number = pid.unsigned_abs();
    let root = if reports { Root::ChildrenOf(number) } else { Root::Process(number) };
    let options = Options {
        root: Some(root),
        opens: files.opens.map(Opens::new),
        shares: Some(house.shares.clone()),
        ..options
    };
    let listener = Listener::adopt(files.listener, run.address);
    let (run, began) = (house.next.fetch_add(1, Ordering::Relaxed), Instant::now());
    let known = Known { pid, command: command.clone(), began, asker: None };
    house.lock().now.insert(run, known);
    // The run goes on while its manager starts: connections of its programs wait in the socket's queue.
    let has_asked = wire::send(&socket, &Answer::Taken(problem), &[]).is_ok();
    drop(socket);
    let reporter = files.reporter.map(File::from);
    let manager = match Manager::start_at(listener, options) {
        Ok(manager) => manager,
        Err(error) => {
            manager_process::tell_failure(reporter, &error);
            let fields = [("pid", pid.into()), ("reason", error.to_string().into())];
            house.log.tell("manager_fails", &fields);
            return house.end(run, None);
        }
    };
    if let Some(known) = house.lock().now.get_mut(&run) {
        known.asker = Some(manager.asker());
    }
    house.log.tell(
        "run_begins",
        &[("run", run.into()), ("pid", pid.into()), ("command", command.into())],
    );
    let has_ended = has_asked && (wait(&files.ends, &house.over) || !reports);
    let report = manager_process::conclude(manager, has_ended, reporter, Vec::new);
    let seconds = (began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
    let Report { blocks, .. } = &report;
    house.log.tell(
        "run_ends",
        &[
            ("run", run.into()),
            ("seconds", seconds.into()),
            ("prefetched_blocks", blocks.prefetched.into()),
            ("useful_blocks", blocks.useful.into()),
            ("late_blocks", blocks.late.into()),
        ],
    );
    house.end(run, Some(&report));
}

/// Waits for the end of a run, or until all are to end. Returns whether its program has said that it has ended.
fn wait(ends: &OwnedFd, over: &OwnedFd) -> bool {
    let mut has_ended = false;
    loop {
        let mut fds = [ends, over].map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return has_ended,
            Ok(_) if !fds[1].revents().is_empty() => return has_ended,
            Ok(_) => {}
        }
        // A process's descriptor cannot be read.
        let mut byte = [0; 1];
        match rustix::io::read(ends, &mut byte) {
            Ok(1) => has_ended |= byte == [manager_process::ENDED],
            Ok(_) | Err(_) => return has_ended,
        }
    }
}

/// Starts the thread of a run.
pub(super) fn start(house: &Arc<House>, run: Run, files: Vec<OwnedFd>, asking: (OwnedFd, UCred)) {
    let house = Arc::clone(house);
    let thread = std::thread::Builder::new().name("foretell-run".into());
    // Without a thread the socket is closed, and the run has its own manager.
    let _ = thread.spawn(move || manage(&house, run, files, asking));
}
