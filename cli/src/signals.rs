//! Signals of a process that stands in for another: it takes them, passes them on, and ends by them. Also which standard
//! descriptors were closed at its start.
//!
//! `foretell run` blocks all signals and takes them synchronously, so no handler ever runs. A signal to the process group (from
//! the terminal, or by `kill -- -GROUP`) reaches the program by itself. A signal to foretell alone (`kill PID`, a timer) is
//! passed on.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::Pid;

/// The signals that ask a server or the demo to end.
pub(crate) const OF_A_SERVER: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// The signal state that this process was started with, which the program gets.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: libc::sigset_t,
    pipe: libc::sighandler_t,
    child: libc::sighandler_t,
}

/// The disposition of SIGPIPE at the start, before the Rust runtime ignores it.
static mut PIPE_AT_START: libc::sighandler_t = libc::SIG_DFL;

/// Which of standard input, output and error were closed at the start, before the runtime opens /dev/null in their place.
static mut CLOSED_AT_START: [bool; 3] = [false; 3];

extern "C" fn remember() {
    // SAFETY: all-zero is a valid `sigaction` to be filled in; with no new action the call only
    // reads, as does F_GETFD. The writes happen before `main`, while there is one thread.
    unsafe {
        CLOSED_AT_START = [0, 1, 2].map(|descriptor| libc::fcntl(descriptor, libc::F_GETFD) < 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut action) == 0 {
            PIPE_AT_START = action.sa_sigaction;
        }
    }
}

/// Runs `remember` before the Rust runtime.
// SAFETY: the section holds pointers to functions without arguments that need nothing of the Rust
// runtime; this is one.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// Makes a write beyond the file size limit fail instead of ending this process, so that nothing is left half-written. Call it
/// only once no program is started any more: a program would inherit this.
pub(crate) fn make_file_limits_errors() {
    // SAFETY: ignoring a signal runs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Which of standard input, output and error were closed when this process started.
pub(crate) fn closed_at_start() -> [bool; 3] {
    // SAFETY: it was written before `main`, and is only read since.
    unsafe { CLOSED_AT_START }
}

/// Checks that standard input, output or error (0, 1, 2) was open when this process started.
///
/// # Errors
/// If it was closed.
pub(crate) fn was_open(descriptor: usize) -> io::Result<()> {
    match closed_at_start()[descriptor] {
        true => Err(rustix::io::Errno::BADF.into()),
        false => Ok(()),
    }
}

/// Makes SIGTERM end the program that this process becomes, whatever its disposition was. Async-signal-safe: may be called
/// between fork and exec.
pub(crate) fn can_be_terminated() {
    let set = set_of(&[libc::SIGTERM]);
    // SAFETY: `set` is initialised, and the signal's default action valid.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

/// A signal that was taken.
pub(crate) struct Taken {
    pub(crate) signal: libc::c_int,
    info: libc::siginfo_t,
}

impl Taken {
    /// Whether this process caused the signal itself, for instance by a write to a pipe without a reader.
    pub(crate) fn is_own(&self) -> bool {
        // SAFETY: a signal of this code has the sender's number in its place; any other code is not looked at further.
        self.info.si_code <= 0 && unsafe { self.info.si_pid() } == std::process::id().cast_signed()
    }

    /// Whether the signal's own data allow that it was sent to this process alone: by another process, or by a timer that was
    /// set before foretell was executed.
    pub(crate) fn may_be_for_one(&self) -> bool {
        let timers = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];
        self.info.si_code <= 0 || timers.contains(&self.signal)
    }

    /// Sends the signal, with its value if it has one, to a child that has not been reaped.
    pub(crate) fn pass_on(&self, to: Pid) {
        let to = to.as_raw_nonzero().get();
        // SAFETY: `info` was filled in by the kernel; the calls read it and touch no other memory. A child that has not been
        // waited for has its number to itself.
        unsafe {
            if self.info.si_code == libc::SI_QUEUE {
                let info = &raw const self.info;
                libc::syscall(libc::SYS_rt_sigqueueinfo, to, self.signal, info);
            } else {
                libc::kill(to, self.signal);
            }
        }
    }
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set; the signal numbers are valid.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks `signals` in this thread and in those that it starts, so that [`take`] gets them.
pub(crate) fn block(signals: &[libc::c_int]) -> Inherited {
    block_set(&set_of(signals))
}

/// As [`block`], for all signals that can be blocked.
pub(crate) fn block_all() -> Inherited {
    block_set(&all())
}

fn block_set(set: &libc::sigset_t) -> Inherited {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: `set` is initialised; the calls fill `mask` in and cannot fail with valid arguments.
    // `PIPE_AT_START` was written before `main` and is only read since.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, set, mask.as_mut_ptr());
        // A process that ignores SIGCHLD is not notified of its children's ends.
        let child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        Inherited { mask: mask.assume_init(), pipe: PIPE_AT_START, child }
    }
}

fn all() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Whether this process already has children: those of the program that executed foretell.
pub(crate) fn has_children() -> bool {
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: nothing is to be filled in.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, ptr::null_mut(), look) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ECHILD)
}

/// Forks a child that sends no signal when it ends: a pending signal would be inherited by the program.
///
/// # Safety
/// As for `fork`. The C library does not know of the child, so the child may only fork and end.
pub(crate) unsafe fn fork_silently() -> libc::pid_t {
    // SAFETY: without flags and a stack, `clone` is a fork; the signal in the flags' lowest byte is none.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    libc::pid_t::try_from(pid).unwrap_or(-1)
}

/// Has this process learn how its children end, whatever it has inherited.
pub(crate) fn reap_children() {
    // SAFETY: the default action runs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Waits until a child has ended, also one of [`fork_silently`].
pub(crate) fn wait_for_any_kind(child: Pid) {
    let child = child.as_raw_nonzero().get();
    // SAFETY: nothing is to be filled in.
    while unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Does `work` while ended children are reaped automatically and leave no trace in this process's resource usage. Only for a
/// process that [has none](has_children): it would not learn how earlier ones ended.
pub(crate) fn without_children<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: ignoring a signal, or what the C library gave, runs no handler.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let result = work();
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGCHLD, before) };
    result
}

/// From here on, a write to a pipe without a reader is an error and does not end this process.
pub(crate) fn ignore_broken_pipes() {
    // SAFETY: ignoring a signal runs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

impl Inherited {
    /// Puts this state in force. Async-signal-safe: may be called between fork and exec.
    pub(crate) fn restore(&self) -> io::Result<()> {
        // SAFETY: the mask is initialised, and the dispositions are those that the kernel gave.
        let result = unsafe {
            libc::signal(libc::SIGPIPE, self.pipe);
            libc::signal(libc::SIGCHLD, self.child);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Does `work` with the terminating signals blocked in this thread. They take effect afterwards.
pub(crate) fn held<R>(work: impl FnOnce() -> R) -> R {
    let set = set_of(&[&OF_A_SERVER[..], &[libc::SIGQUIT]].concat());
    let mut before = MaybeUninit::uninit();
    // SAFETY: `set` is initialised; the call fills `before` in and cannot fail with valid arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
    let result = work();
    // SAFETY: `before` was filled in above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

/// Waits for the next of `signals`, which are blocked. Returns its number.
pub(crate) fn take(signals: &[libc::c_int]) -> libc::c_int {
    take_of(&set_of(signals)).signal
}

/// Waits for the next signal, after [`block_all`].
pub(crate) fn take_any() -> Taken {
    take_of(&all())
}

fn take_of(set: &libc::sigset_t) -> Taken {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `set` is initialised and `info` valid for writing.
        let signal = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if signal > 0 {
            // SAFETY: the call succeeded and filled `info` in (and it was zeroed before).
            return Taken { signal, info: unsafe { info.assume_init() } };
        }
    }
}

/// Discards one pending, blocked `signal`, if there is one.
pub(crate) fn forget(signal: libc::c_int) {
    let set = set_of(&[signal]);
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set is initialised and the time valid; nothing is to be filled in.
    unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const at_once) };
}

/// Stops this process the way `signal` stopped the program, until it is continued.
pub(crate) fn stop_of(signal: libc::c_int) {
    let set = set_of(&[signal]);
    // SAFETY: plain calls with valid arguments; the default action of a signal runs no handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
    }
}

/// Ends this process the way `signal` ended the program, without a core dump of its own.
pub(crate) fn die_of(signal: libc::c_int) -> ! {
    write_no_core();
    let set = set_of(&[signal]);
    // SAFETY: plain system calls with valid arguments. The first is for core collectors, which ignore the limit.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::raise(signal);
    }
    // Unreachable: a signal that ended the program ends this process too.
    std::process::exit(128 + signal);
}

/// Disables core dumps of this process from here on: one would look like the program's.
pub(crate) fn write_no_core() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call with a valid argument.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}
