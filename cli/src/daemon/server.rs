//! The daemon's loop: hears requests, passes runs on to threads, and answers what it does.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use foretell_manager::shares::Shares;
use foretell_protocol::peer_of;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SocketFlags, accept_with};

use super::folder::{self, Refused, Taken};
use super::log::{Format, Log};
use super::managed::{self, House};
use super::pressure::{self, Squeezed};
use super::status::Status;
use super::wire::{self, Request};
use super::{Answer, metrics};
use crate::failure::Failure;
use crate::{duration, rules, signals, size};

pub(crate) const HELP: &str = "\
While it runs, `foretell run` has its programs managed by it, within one budget. When it ends, or does not answer, runs \
have managers of their own. It is one process for each user, and does not go into the background: start it from a \
terminal, or by the systemd unit in packaging/systemd.

FORETELL_DAEMON names the folder of its sockets; set and empty, runs look for no daemon. Otherwise that is `foretell` in \
XDG_RUNTIME_DIR, or /tmp/foretell-UID.

SIGTERM and SIGINT end it, and SIGHUP does without --rules: no run comes in any more, and those under way may end; a second signal ends it within 3 s. \
Programs go on in any case.

Exit codes: 0 ended by a signal; 1 failed, or another daemon runs; 2 wrong usage.";

/// The least budget; a smaller one is refused as a mistake.
const BUDGET_MIN_BYTES: u64 = 1 << 20;

/// Connections that have not asked yet. Further ones wait in the socket's queue.
const ASKING_MAX: usize = 64;

/// A connection that has not asked after this time is closed.
const ASKING_PATIENCE: Duration = Duration::from_secs(5);

/// The budget grows again after this time without pressure.
const QUIET: Duration = Duration::from_secs(10);

/// How long the daemon waits at its end for runs to write what they have learned.
const LAST_WORDS: Duration = Duration::from_secs(3);

#[derive(Args)]
pub(crate) struct DaemonArgs {
    /// Memory for prefetched data that is not yet read, for all runs together, e.g. 64MiB or 2GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256MiB")]
    budget: u64,

    /// Rules about files for all runs that have none of their own (see `foretell rules check`). SIGHUP reads FILE again; if it has
    /// mistakes, the rules before stay in force
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// How long runs may go on after the signal that ends the daemon
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    drain: Duration,

    /// How lines of the log look, on standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log: Format,

    /// Write no log
    #[arg(short, long)]
    quiet: bool,

    /// Serve metrics for Prometheus at this port of the loopback address, too. They are always served on `metrics.sock` in the
    /// daemon's folder
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    metrics_port: Option<u16>,
}

pub(crate) fn daemon(args: &DaemonArgs) -> Result<ExitCode, Failure> {
    let budget_bytes = args.budget;
    if budget_bytes < BUDGET_MIN_BYTES {
        let line = format!("--budget: {} is too small; at least 1MiB", size::display(budget_bytes));
        return Err(Failure::usage(line));
    }
    let full_bytes = foretell_manager::within_limits(budget_bytes);
    let folder = folder::path().ok_or_else(|| {
        Failure::failed("FORETELL_DAEMON is set and empty: unset it, or name a folder in it")
    })?;
    signals::block(&signals::OF_A_SERVER);
    let name = folder.display().to_string();
    let taken = Taken::take(folder).map_err(|refused| match refused {
        Refused::By(Some(pid)) => Failure::failed(format!(
            "a daemon runs already, or has not ended yet: process {pid}, which kill {pid} ends"
        )),
        Refused::By(None) => Failure::failed(format!("{name}: a daemon runs already")),
        Refused::Error(error) => Failure::failed(format!("{name}: {error}")),
    })?;
    let failed = |what: &'static str| {
        move |error: std::io::Error| Failure::failed(format!("{what}: {error}"))
    };
    let listener = taken.listen().map_err(failed("cannot open the daemon's socket"))?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let new_event =
        || eventfd(0, flags).map_err(|error| Failure::failed(format!("cannot start: {error}")));
    let (over, stop) = (new_event()?, Arc::new(new_event()?));
    let log = Log { format: args.log, is_quiet: args.quiet };
    let house = Arc::new(House::new(Shares::new(full_bytes), log, over));
    let about = Arc::new(About::new(Arc::clone(&house), full_bytes));
    let mut reloaded = None;
    let socket = taken.metrics().map_err(failed("cannot open the socket for metrics"))?;
    metrics::serve(Arc::clone(&about), &socket, args.metrics_port)
        .map_err(failed("cannot serve metrics"))?;
    if let Some(path) = &args.rules {
        // The working folder changes below.
        let path = std::path::absolute(path).map_err(failed("--rules"))?;
        house.set_rules(rules::load(&path).map_err(|failure| Failure::failed(failure.line))?);
        reloaded = Some(path);
    }
    let (ring, of_signals) = (Arc::clone(&stop), Arc::clone(&house));
    std::thread::Builder::new()
        .name("foretell-signal".into())
        .spawn(move || {
            loop {
                let signal = signals::take(&signals::OF_A_SERVER);
                if let Some(path) = reloaded.clone().filter(|_| signal == libc::SIGHUP) {
                    let house = Arc::clone(&of_signals);
                    // The file may be slow, and the next signal is to be heard.
                    let thread = std::thread::Builder::new().name("foretell-rules".into());
                    let _ = thread.spawn(move || reload(&house, &path));
                    continue;
                }
                let _ = rustix::io::write(&*ring, &1u64.to_ne_bytes());
            }
        })
        .map_err(failed("cannot start"))?;
    // SAFETY: only a parameter of the allocator is set. Memory freed in one arena is not used by others.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    // Nothing may keep a file system from being unmounted.
    let _ = rustix::process::chdir("/");
    log.tell(
        "daemon_begins",
        &[
            ("pid", std::process::id().into()),
            ("folder", name.into()),
            ("budget_bytes", full_bytes.into()),
        ],
    );
    hear(&about, &listener, &stop);
    taken.hide();
    drop(listener);
    log.tell("daemon_drains", &[("seconds", args.drain.as_secs().into())]);
    end(&house, &stop, args.drain);
    log.tell("daemon_ends", &[]);
    drop(taken);
    Ok(ExitCode::SUCCESS)
}

/// Reads the rules again. If they have mistakes, the last ones stay.
fn reload(house: &House, path: &Path) {
    let name = path.display().to_string();
    match rules::load_quietly(path) {
        Ok(rules) => {
            house.set_rules(rules);
            house.log.tell("rules_read", &[("file", name.into())]);
        }
        Err(problems) => {
            for problem in problems {
                house.log.tell("rules_kept", &[("problem", problem.into())]);
            }
        }
    }
}

/// Lets the runs end, or ends their managers.
fn end(house: &House, stop: &OwnedFd, patience: Duration) {
    let deadline = Instant::now() + patience;
    let _ = rustix::io::read(stop, &mut [0u8; 8]);
    let is_asked_again = || rustix::io::read(stop, &mut [0u8; 8]).is_ok();
    while Instant::now() < deadline && !house.wait_for_runs(Duration::from_millis(50)) {
        if is_asked_again() {
            break;
        }
    }
    let _ = rustix::io::write(&house.over, &1u64.to_ne_bytes());
    house.wait_for_runs(LAST_WORDS);
}

/// What the daemon says about itself.
pub(super) struct About {
    pub(super) house: Arc<House>,
    began: Instant,
    budget: Mutex<(Squeezed, u64)>,
}

impl About {
    fn new(house: Arc<House>, full_bytes: u64) -> Self {
        let budget = Mutex::new((Squeezed::new(full_bytes), 0));
        About { house, began: Instant::now(), budget }
    }

    fn budget(&self) -> (Squeezed, u64) {
        *self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the budget. Returns whether it is below what it is without pressure.
    fn change_budget(&self, change: impl FnOnce(&mut Squeezed), pressures: u64) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut budget.0);
        budget.1 += pressures;
        let now_bytes = budget.0.now_bytes;
        self.house.shares.set_budget(now_bytes);
        let is_squeezed = budget.0.is_squeezed();
        drop(budget);
        self.house.log.tell("budget", &[("bytes", now_bytes.into())]);
        is_squeezed
    }

    pub(super) fn status(&self) -> Status {
        let (runs, ended) = self.house.runs();
        let (budget, pressures) = self.budget();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.began.elapsed().as_secs_f64(),
            budget_bytes: budget.now_bytes,
            full_budget_bytes: budget.full_bytes,
            held_bytes: runs.iter().map(|run| run.figures.held_bytes).sum(),
            pressures,
            refused_runs: self.house.refused.load(Ordering::Relaxed),
            ended,
            runs,
        }
    }
}

/// Connections that have not asked yet.
struct Asking {
    socket: OwnedFd,
    since: Instant,
}

/// Hears requests until `stop` is readable.
fn hear(about: &Arc<About>, listener: &OwnedFd, stop: &OwnedFd) {
    let mut pressure: Option<File> = pressure::watch();
    let (mut asking, mut squeezed_at) = (Vec::<Asking>::new(), None);
    loop {
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        let takes = if asking.len() < ASKING_MAX { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(listener, takes));
        fds.extend(asking.iter().map(|one| PollFd::new(&one.socket, PollFlags::IN)));
        fds.extend(pressure.iter().map(|file| PollFd::new(file, PollFlags::PRI)));
        let due = |since: Instant, patience: Duration| {
            (since + patience).saturating_duration_since(Instant::now())
        };
        let silent = asking.first().map(|one| due(one.since, ASKING_PATIENCE));
        let relaxes = squeezed_at.map(|since| due(since, QUIET));
        let timeout = silent.into_iter().chain(relaxes).min().map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            continue; // Interrupted.
        }
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let of_pressure = fds.last().filter(|_| pressure.is_some()).map(PollFd::revents);
        drop(fds);
        if is_ready[0] {
            return;
        }
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        match of_pressure {
            // Its control group is gone.
            Some(events) if events.intersects(gone) => pressure = None,
            Some(events) if events.contains(PollFlags::PRI) => {
                about.change_budget(Squeezed::press, 1);
                squeezed_at = Some(Instant::now());
            }
            _ => {}
        }
        if squeezed_at.is_some_and(|since| since.elapsed() >= QUIET) {
            squeezed_at = about.change_budget(Squeezed::relax, 0).then(Instant::now);
        }
        let mut ready = is_ready[2..].iter();
        asking.retain_mut(|one| {
            let is_over = ready.next() == Some(&true) && answer(about, &one.socket);
            !is_over && one.since.elapsed() < ASKING_PATIENCE
        });
        if is_ready[1] {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(listener, flags) {
                Ok(socket) => asking.push(Asking { socket, since: Instant::now() }),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                // No descriptor is left. Whoever waits in the queue gives up by itself.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

/// Takes a request. Returns whether the connection is done with here.
fn answer(about: &Arc<About>, socket: &OwnedFd) -> bool {
    match wire::receive::<Request>(socket) {
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        Ok((Request::Status, _)) => {
            let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(socket, 3) else { return true };
            let about = Arc::clone(about);
            // Managers are asked for their figures, which takes a while if one is busy.
            let _ = std::thread::Builder::new().name("foretell-status".into()).spawn(move || {
                let _ = wire::send(&socket, &Answer::Status(Box::new(about.status())), &[]);
            });
            false
        }
        Ok((Request::Run(run), files)) => {
            let Ok((pid, uid)) = peer_of(socket.as_fd()) else { return true };
            if let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(socket, 3) {
                managed::start(&about.house, *run, files, (socket, pid, uid));
            }
            true
        }
    }
}
