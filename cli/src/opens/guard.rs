//! The guard: processes that answer the opens of a run, for as long as any program of it lives.
//!
//! If nobody answers a program's opens, they fail with `ENOSYS`. So the guard depends on nothing that may end before the
//! programs: not on `foretell run`, nor on the manager. It is a pair of processes:
//!
//! A. The *answerer* receives each open and answers it (`answer.rs`).
//! B. The *keeper* is its parent and waits. If the answerer ends by anything but the end of all programs, or is held up by a
//!    look at a caller, the keeper answers the open that was left over and starts another answerer. After many failures, each
//!    soon after the one before, it starts one that does not look.
//!
//! Both are in a session of their own, block all signals, and have nothing open but what they need. So they end when the last
//! process with the filter has ended, and by SIGKILL only before. If the keeper is killed, the answerer goes on without looks.
//! If both are, opens fail.
//!
//! The listener is handed over by the process that has installed the filter ([`Guard::hand_over`]), before it executes the
//! program, and acknowledged.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg,
    send, sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getpid, getrlimit, kill_process,
    pidfd_open, setrlimit, waitpid,
};

use super::answer::{self, Held, Teller};
use super::look::read_memory;
use super::timer::Timer;
use crate::{orphan, signals};

/// After so many answerers that were held up or have failed, each soon after the one before, opens are answered without a look
/// at the caller.
const FAILURES_MAX: u32 = 8;

/// An answerer that has worked for so long makes up for all failures before. A failure holds up an open for [`Timer`]'s 250 ms,
/// so 10 minutes keep what a program loses in this way below 0.4 % of its time, however long it runs.
const MADE_UP: Duration = Duration::from_secs(600);

/// How long to wait for the end of an answerer that was killed. It is longer only where the kernel waits for a page.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How often an answerer is looked after of which the system gives no descriptor. Well below a look's limit.
const ROUND: Duration = Duration::from_millis(50);

/// How long a guard may take for what it says, in seconds. It takes microseconds, unless it is stopped.
const HEARING_SECONDS: i64 = 10;

/// The pause after each further one, so that their starts do not keep a processor busy.
const FAILURE_PAUSE: Duration = Duration::from_millis(1);

/// Descriptors from here on are none of the standard ones.
const FIRST_OWN: i32 = 3;

/// What the guard says first: whether it can look at other processes.
const SEES: u8 = 1;
const SEES_NOT: u8 = 0;

/// What the guard must be able to read in its parent.
static MARK: u8 = 0x5a;

/// A guard that waits for a listener. Dropping it ends the guard.
pub(crate) struct Guard {
    socket: OwnedFd,
}

impl Guard {
    /// Starts a guard that writes what it sees to `pipe`, which must not block. Call it while this process has a single thread,
    /// with all signals blocked.
    ///
    /// # Errors
    /// In words: the system is out of processes or descriptors, or the guard may not look at this process's memory.
    pub(crate) fn start(pipe: OwnedFd) -> Result<Self, String> {
        let cannot = |error: &dyn std::fmt::Display| format!("cannot start their guard: {error}");
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| cannot(&error))?;
        let parent = std::process::id();
        orphan::fork(|| {
            let work = AssertUnwindSafe(|| keep(&theirs, pipe.as_fd(), parent));
            let _ = catch_unwind(work);
        })
        .map_err(|error| cannot(&error))?;
        drop((theirs, pipe));
        let guard = Guard { socket };
        match guard.hear() {
            Some(SEES) => Ok(guard),
            Some(_) => Err("the kernel does not let a process look at others \
                (kernel.yama.ptrace_scope); run foretell as root"
                .into()),
            None => Err(cannot(&"it does not answer")),
        }
    }

    /// Hands the listener over. From here on opens are answered.
    ///
    /// # Errors
    /// The guard has ended, or does not answer.
    pub(super) fn hand_over(&self, listener: &OwnedFd) -> io::Result<()> {
        let fds = [listener.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&self.socket, &[IoSlice::new(&[0])], &mut rights, SendFlags::NOSIGNAL)?;
        self.hear().map(|_| ()).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Whether the guard has ended.
    pub(super) fn has_ended(&self) -> bool {
        let mut end = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut end, Some(&at_once)).is_ok() && end[0].revents().contains(PollFlags::HUP)
    }

    /// The next byte that the guard says; `None` if it has ended, or says nothing for long.
    fn hear(&self) -> Option<u8> {
        let mut byte = [0];
        let mut said = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience = Timespec { tv_sec: HEARING_SECONDS, tv_nsec: 0 };
        let count = rustix::io::retry_on_intr(|| poll(&mut said, Some(&patience))).ok()?;
        if count == 0 {
            return None;
        }
        let (count, _) =
            rustix::io::retry_on_intr(|| recv(&self.socket, &mut byte, RecvFlags::empty())).ok()?;
        (count == 1).then_some(byte[0])
    }
}

/// B: the life of the keeper. Returns when all is over.
fn keep(socket: &OwnedFd, pipe: BorrowedFd<'_>, parent: u32) {
    let _ = rustix::thread::set_name(c"foretell-guard");
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    signals::write_no_core();
    signals::reap_children();
    outlive_limits();
    if !close_all_but(&[socket.as_fd(), pipe]) {
        return;
    }
    let mut mark = [0];
    let sees =
        read_memory(parent, (&raw const MARK).addr() as u64, &mut mark) == 1 && mark[0] == MARK;
    let say = |byte| send(socket, &[byte], SendFlags::NOSIGNAL).is_ok();
    let (Ok(held), Ok(timer)) = (Held::new(), Timer::new()) else { return };
    if !say(if sees { SEES } else { SEES_NOT }) {
        return;
    }
    let Some(listener) = receive_listener(socket) else { return };
    answer::wake_in_turn(&listener);
    // The write fails only if the program has ended already.
    say(SEES);
    close(socket.as_fd());
    keep_answering(&listener, pipe, &held, &timer);
}

/// Has one answerer after the other answer, until no program is left.
fn keep_answering(listener: &OwnedFd, pipe: BorrowedFd<'_>, held: &Held, timer: &Timer) {
    let (mut failures, keeper) = (Failures::default(), Some(getpid()));
    while !answer::is_over(listener) {
        let (may_look, began) = (failures.may_look(), Instant::now());
        let pipe =
            may_look.then(|| rustix::io::fcntl_dupfd_cloexec(pipe, FIRST_OWN).ok()).flatten();
        let teller = pipe.map(Teller::new);
        // SAFETY: there is one thread.
        match unsafe { libc::fork() } {
            0 => {
                let work =
                    AssertUnwindSafe(|| answer::run(listener, (held, timer), keeper, teller));
                let code = i32::from(!catch_unwind(work).unwrap_or(false));
                // SAFETY: ends the process at once; what `exit` would run belongs to nobody.
                unsafe { libc::_exit(code) }
            }
            forked => match Pid::from_raw(forked).filter(|_| forked > 0) {
                Some(answerer) if has_done(answerer, timer) => return,
                Some(_) => held.answer(listener),
                // No process is left.
                None => {
                    answer::run(listener, (held, timer), None, None);
                    return;
                }
            },
        };
        while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
        failures.add(began.elapsed());
        if !may_look {
            std::thread::sleep(FAILURE_PAUSE);
        }
    }
}

/// Answerers that were held up or have failed in a row, each before it has worked for [`MADE_UP`].
#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// Whether the next answerer may look at callers.
    fn may_look(&self) -> bool {
        self.0 < FAILURES_MAX
    }

    /// An answerer has failed after it has `worked` for so long.
    fn add(&mut self, worked: Duration) {
        let before = if worked >= MADE_UP { 0 } else { self.0 };
        self.0 = (before + 1).min(FAILURES_MAX);
    }
}

/// Waits for the end of an answerer, or ends it if it is held up. Returns whether its work is done.
fn has_done(answerer: Pid, timer: &Timer) -> bool {
    // There is none where the system is out of descriptors.
    let process = pidfd_open(answerer, PidfdFlags::empty()).ok();
    let mut deadline = None;
    loop {
        match waitpid(Some(answerer), WaitOptions::NOHANG) {
            Ok(None) => {}
            ended => {
                timer.stop();
                let status = ended.ok().flatten().and_then(|(_, status)| status.exit_status());
                return deadline.is_none() && status == Some(0);
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return false;
        }
        if wait_for_either(process.as_ref(), timer, deadline.is_some()) {
            let _ = kill_process(answerer, Signal::KILL);
            timer.stop();
            // What it holds is not certain before it has ended, unless it is held up within the kernel.
            deadline.get_or_insert_with(|| Instant::now() + END_PATIENCE);
        }
    }
}

/// Waits until the process has ended or the timer has run out, or for a round where neither can be waited for or the process
/// `is_killed`. Returns whether the timer has run out.
fn wait_for_either(process: Option<&OwnedFd>, timer: &Timer, is_killed: bool) -> bool {
    let round = Timespec { tv_sec: 0, tv_nsec: ROUND.subsec_nanos().into() };
    let mut ends = vec![PollFd::new(timer, PollFlags::IN)];
    ends.extend(process.map(|process| PollFd::new(process, PollFlags::IN)));
    let timeout = (is_killed || process.is_none()).then_some(&round);
    if poll(&mut ends, timeout).is_err() {
        std::thread::sleep(ROUND);
        return false;
    }
    ends[0].revents().contains(PollFlags::IN)
}

/// Receives the listener; `None` if there will be none.
fn receive_listener(socket: &OwnedFd) -> Option<OwnedFd> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut rights, RecvFlags::CMSG_CLOEXEC);
    if received.is_ok_and(|received| received.flags.contains(ReturnFlags::CTRUNC)) {
        return None;
    }
    let mut listeners = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    listeners.next()?.next()
}

/// Lets no limit of the programs' end the guard: it uses the processor for all of them, and the system must not choose it when
/// memory is short.
fn outlive_limits() {
    let hard = getrlimit(Resource::Cpu).maximum;
    let without = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Cpu, without).is_err() {
        let _ = setrlimit(Resource::Cpu, Rlimit { current: hard, maximum: hard });
    }
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Closes all descriptors but `kept`, and replaces the standard ones by /dev/null. Returns whether that is done.
///
/// One that is left open may keep a reader of the run's output waiting for as long as the guard lives.
fn close_all_but(kept: &[BorrowedFd<'_>]) -> bool {
    let is_replaced =
        fs::File::options().read(true).write(true).open("/dev/null").is_ok_and(|null| {
            rustix::stdio::dup2_stdin(&null).is_ok()
                && rustix::stdio::dup2_stdout(&null).is_ok()
                && rustix::stdio::dup2_stderr(&null).is_ok()
        });
    if !is_replaced {
        (0..FIRST_OWN).for_each(close_number);
    }
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd().unsigned_abs()).collect();
    kept.sort_unstable();
    close_ranges(&kept) || close_listed(&kept)
}

/// Closes all but the standard descriptors and `kept`, which ascend. Returns whether the kernel has done so.
fn close_ranges(kept: &[u32]) -> bool {
    let mut first = FIRST_OWN.unsigned_abs();
    for number in kept.iter().copied().chain([u32::MAX]) {
        if first < number {
            // SAFETY: a plain system call. Nothing in this process uses these descriptors any more: it never returns to where
            // they are owned.
            let failed = unsafe { libc::syscall(libc::SYS_close_range, first, number - 1, 0) } != 0;
            if failed {
                return false;
            }
        }
        first = first.max(number.saturating_add(1));
    }
    true
}

/// Does the same one by one, where a filter around foretell refuses that call. Returns whether they are known.
fn close_listed(kept: &[u32]) -> bool {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return false };
    let number = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse().ok());
    let names = entries.map(|entry| entry.map(|entry| number(entry.file_name())));
    // They are collected first: the listing has a descriptor of its own, which is closed with it.
    let Ok(numbers) = names.collect::<io::Result<Vec<Option<i32>>>>() else { return false };
    let is_kept = |number: i32| number < FIRST_OWN || kept.contains(&number.unsigned_abs());
    numbers.into_iter().flatten().filter(|&number| !is_kept(number)).for_each(close_number);
    true
}

fn close(descriptor: BorrowedFd<'_>) {
    close_number(descriptor.as_raw_fd());
}

fn close_number(number: i32) {
    // SAFETY: this process does not use it any more, and never returns to where it is owned.
    unsafe { libc::close(number) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_soon_after_each_other_end_the_looks() {
        let mut failures = Failures::default();
        for _ in 0..100 {
            failures.add(MADE_UP);
            assert!(failures.may_look(), "each is days after the one before");
        }
        for _ in 2..FAILURES_MAX {
            failures.add(Duration::ZERO);
            assert!(failures.may_look());
        }
        for _ in 0..3 {
            failures.add(MADE_UP / 2);
            assert!(!failures.may_look());
        }
        failures.add(MADE_UP);
        assert!(failures.may_look());
    }
}
