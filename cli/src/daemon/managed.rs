//! The life of a run that the daemon manages, on a thread of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foretell_manager::opens::Opens;
use foretell_manager::shares::{MANAGERS_MAX, Shares};
use foretell_manager::{Asker, Figures, Manager, Options, Report, Root};
use foretell_protocol::Listener;
use rustix::event::{PollFd, PollFlags, poll};

use super::log::Log;
use super::status::{RunStatus, Totals};
use super::wire::{self, Run};
use super::{Answer, peer};
use crate::manager_process;
use crate::rules::RulesPlan;

/// How long a manager may take for its figures.
const FIGURES_PATIENCE: Duration = Duration::from_millis(200);

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
    /// What it has said last.
    last: Figures,
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

    /// Waits until no run is left, for `patience` at most.
    pub(super) fn wait_for_runs(&self, patience: Duration) -> bool {
        let runs = self.lock();
        let is_busy = |runs: &mut Runs| !runs.now.is_empty();
        let waited = self.changed.wait_timeout_while(runs, patience, is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.now.is_empty()
    }

    /// The number of a new run; `None` if there are too many.
    fn begin(&self, pid: i32, command: String) -> Option<u64> {
        let mut runs = self.lock();
        if runs.now.len() >= MANAGERS_MAX {
            return None;
        }
        let (run, began) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        let last = Figures::default();
        runs.now.insert(run, Known { pid, command, began, asker: None, last });
        Some(run)
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

/// Manages a run from the request to its end.
fn manage(mut place: Place, mut run: Run, files: Vec<OwnedFd>, (socket, pid, uid): Asking) {
    let house = Arc::clone(&place.house);
    if let Some(reason) = peer::refusal((pid, uid)) {
        return house.refuse(&socket, pid, reason);
    }
    let Some(files) = Files::take(&mut run, files) else {
        return house.refuse(&socket, pid, "its files are not those that it names");
    };
    let (command, reports, number) = (run.plan.text(), run.reports, place.run);
    if run.plan.observes && run.plan.rules.is_none() {
        run.plan.rules = house.rules();
    }
    let (options, problem) = run.plan.into_options();
    let process = pid.unsigned_abs();
    let root = if reports { Root::ChildrenOf(process) } else { Root::Process(process) };
    let options = Options {
        root: Some(root),
        opens: files.opens.map(Opens::new),
        shares: Some(house.shares.clone()),
        ..options
    };
    let listener = Listener::adopt(files.listener, run.address);
    // The run goes on while its manager starts: connections of its programs wait in the socket's queue.
    if wire::send(&socket, &Answer::Taken(problem), &[]).is_err() {
        return; // It has given up, and has a manager of its own.
    }
    drop(socket);
    let (reporter, began) = (files.reporter.map(File::from), Instant::now());
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
    let has_ended = wait(&files.ends, &house.over) || !reports;
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

/// A connection that asks, and the process and the user behind it.
pub(super) type Asking = (OwnedFd, i32, u32);

/// Starts the thread of a run, which counts from here on.
pub(super) fn start(house: &Arc<House>, run: Run, files: Vec<OwnedFd>, asking: Asking) {
    let (socket, pid, _) = &asking;
    let Some(number) = house.begin(*pid, run.plan.text()) else {
        return house.refuse(socket, *pid, "there are too many runs");
    };
    let place = Place { house: Arc::clone(house), run: number, report: None };
    let thread = std::thread::Builder::new().name("foretell-run".into());
    // Without a thread the socket is closed, and the run has its own manager.
    let _ = thread.spawn(move || manage(place, run, files, asking));
}
