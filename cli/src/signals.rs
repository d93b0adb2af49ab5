//! Signals of a process that stands in for another: passed on, waited for, died of; and its standard descriptors, where
//! they were closed.
//!
//! `foretell run` blocks what it wants to see and takes it synchronously, so no handler runs anywhere.
//! A signal from the terminal reaches the program by itself, since it is in the same process group;
//! only one that was sent to foretell alone (`kill PID`) is passed on.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// What asks a server or the demo to end.
pub(crate) const OF_A_SERVER: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// What `foretell run` takes while the program runs.
pub(crate) const OF_A_RUN: [libc::c_int; 9] = [
    libc::SIGCHLD,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGALRM,
];

/// The signal state that this process was started with, to be given to the program.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: libc::sigset_t,
    pipe: libc::sighandler_t,
    child: libc::sighandler_t,
}

/// What a process did with SIGPIPE before the Rust runtime, which ignores it, came up.
static mut PIPE_AT_START: libc::sighandler_t = libc::SIG_DFL;

/// Which of standard input, output and error were closed before the runtime, which opens /dev/null in their place, came up.
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

/// A write beyond the limit of a file's size fails instead of ending this process, which leaves nothing half-written. Only
/// where no program is started any more: it would inherit this.
pub(crate) fn make_file_limits_errors() {
    // SAFETY: ignoring a signal runs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Which of standard input, output and error this process was started without.
pub(crate) fn closed_at_start() -> [bool; 3] {
    // SAFETY: it was written before `main`, and is only read since.
    unsafe { CLOSED_AT_START }
}

/// Whether this process was started with this one of standard input, output and error.
///
/// # Errors
/// If it was closed.
pub(crate) fn was_open(descriptor: usize) -> io::Result<()> {
    match closed_at_start()[descriptor] {
        true => Err(rustix::io::Errno::BADF.into()),
        false => Ok(()),
    }
}

/// Has SIGTERM end the program that this process becomes, whatever was done with it before. Async-signal-safe: may be called
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
    /// Sent to this process alone by another, rather than by the terminal or the kernel.
    pub(crate) by_process: bool,
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

/// Blocks `signals`, to be taken by [`take`], in this thread and those that it will start.
pub(crate) fn block(signals: &[libc::c_int]) -> Inherited {
    let set = set_of(signals);
    let mut mask = MaybeUninit::uninit();
    // SAFETY: `set` is initialised; the calls fill `mask` in and cannot fail with valid arguments.
    // `PIPE_AT_START` was written before `main` and is only read since.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, mask.as_mut_ptr());
        // Whoever ignores SIGCHLD is not told of his children's ends.
        let child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        Inherited { mask: mask.assume_init(), pipe: PIPE_AT_START, child }
    }
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

/// Does `work` with this thread not to be ended by the terminal or by who asks it to end: that happens after it.
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

/// Waits for the next of `signals`, which are blocked.
pub(crate) fn take(signals: &[libc::c_int]) -> Taken {
    let set = set_of(signals);
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `set` is initialised and `info` valid for writing.
        let signal = unsafe { libc::sigwaitinfo(&raw const set, info.as_mut_ptr()) };
        if signal > 0 {
            // SAFETY: the call succeeded and filled `info` in (and it was zeroed before).
            let code = unsafe { info.assume_init() }.si_code;
            return Taken { signal, by_process: code <= 0 };
        }
    }
}

/// Ends this process the way `signal` ended the program, without a core dump of its own.
pub(crate) fn die_of(signal: libc::c_int) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let mut set = MaybeUninit::uninit();
    // SAFETY: plain system calls with valid arguments; `sigemptyset` initialises the set.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
        libc::raise(signal);
    }
    // A signal that does not end a process cannot have ended the program; be sure all the same.
    std::process::exit(128 + signal);
}
