//! `foretell run` as a client of the daemon.
//!
//! Nothing waits for a daemon that does not answer: it is asked for so long ([`PATIENCE`]), and then the run has a manager of
//! its own, as without a daemon.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use foretell_protocol::peer_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use super::wire::{self, Request, Run};
use super::{Answer, folder};
use crate::failure::note;
use crate::run::plan::Plan;

/// How long a run waits for the daemon to take it.
const PATIENCE: Duration = Duration::from_millis(40);

/// A daemon that runs.
pub(crate) struct Daemon {
    socket: OwnedFd,
    /// The process that listens, as far as it is known: systemd, until the daemon has answered at a socket that systemd has
    /// opened.
    process: Cell<i32>,
}

impl Daemon {
    /// The daemon of this user, if there is one that is not stopped.
    pub(crate) fn find() -> Option<Self> {
        let socket = folder::reach(&folder::path()?).ok()?;
        let (process, user) = peer_of(socket.as_fd()).ok()?;
        let daemon = Daemon { socket, process: Cell::new(process) };
        let is_own = user == rustix::process::geteuid().as_raw() && process > 0;
        (is_own && !daemon.is_stopped()).then_some(daemon)
    }

    /// Whether a signal has stopped its process, or it has ended.
    pub(crate) fn is_stopped(&self) -> bool {
        is_stopped(self.process.get().unsigned_abs())
    }

    /// Has it manage a run. `pipes`: one that is closed at the end, and one for the report. Without them, the run ends with this
    /// process, which becomes the program. Returns the address for the programs.
    ///
    /// # Errors
    /// The plan, if it does not take the run at once.
    pub(crate) fn lend(
        &self,
        mut plan: Plan,
        pipes: Option<[BorrowedFd<'_>; 2]>,
        opens: Option<BorrowedFd<'_>>,
    ) -> Result<String, Box<Plan>> {
        // The daemon sees the limits of its own control groups, not those of the run.
        plan.budget_bytes = foretell_manager::within_limits(plan.budget_bytes);
        let run = Run { plan, reports: pipes.is_some(), watches: opens.is_some() };
        let request = Request::Run(Box::new(run));
        let Request::Run(run) = &request else { unreachable!("it was made here") };
        let hints = run.plan.hints.iter().filter_map(|hints| hints.file.as_ref());
        let files: Vec<BorrowedFd<'_>> =
            pipes.into_iter().flatten().chain(opens).chain(hints.map(AsFd::as_fd)).collect();
        let answer = ask(&self.socket, &request, &files, PATIENCE);
        if let Ok(Answer::Taken { pid, address, problem }) = answer {
            self.process.set(pid);
            problem.into_iter().for_each(note);
            return Ok(address);
        }
        let Request::Run(run) = request else { unreachable!("it was made here") };
        Err(Box::new(run.plan))
    }
}

/// Whether a signal has stopped this process, or it has ended.
pub(super) fn is_stopped(process: u32) -> bool {
    let Ok(line) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    // The state comes after the name in parentheses, which may have any characters.
    let state = line.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't' | 'Z'))
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Nothing came in time.
    Late,
    /// The connection was closed, or the answer is not one of this version.
    Refused,
}

/// Sends a request, and waits for the answer. If there is none in time, the daemon cannot answer later either.
///
/// # Errors
/// [`Unanswered`]
pub(super) fn ask(
    socket: &OwnedFd,
    request: &Request,
    files: &[BorrowedFd<'_>],
    patience: Duration,
) -> Result<Answer, Unanswered> {
    wire::send(socket, request, files).map_err(|_| Unanswered::Refused)?;
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        let why = match poll(&mut fds, Some(&left)) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(1..) => Unanswered::Refused,
            // An answer may have come since.
            Ok(0) | Err(_) => {
                shutdown(socket, Shutdown::Both).map_err(|_| Unanswered::Late)?;
                Unanswered::Late
            }
        };
        return wire::receive::<Answer>(socket).map(|(answer, _)| answer).map_err(|_| why);
    }
}
