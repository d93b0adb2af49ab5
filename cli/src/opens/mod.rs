//! Opens of programs in which the library cannot be: `foretell run --observe opens`.
//!
//! A seccomp filter stops each open for reading until a process of foretell has looked at it and answered that it goes on.
//! * `filter.rs`: which calls stop, and what is needed to install the filter.
//! * `guard.rs`: the processes that answer, and hold on as long as any program lives. `answer.rs`: one answer. `look.rs`: what
//!   is opened, and how long the program has slept. `timer.rs`: bounds a look.
//!
//! The manager's side is [`foretell_manager::opens`].
//!
//! Invariants: the program is started with the filter only if a guard has acknowledged it. Nothing that is installed lets the
//! program do less or more: each call goes on as it is. `no_new_privs` is never set. The program inherits no descriptor.
//!
//! What may fail: each of the conditions. Then the program runs without the filter, and a line says why.

mod answer;
mod filter;
mod guard;
mod look;
mod timer;

use std::io;
use std::os::fd::OwnedFd;

use foretell_manager::opens::PIPE_BYTES;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

pub(crate) use guard::Guard;

/// The pipe from the guard to the manager. Neither end waits.
pub(crate) struct Channel {
    pub(crate) reader: OwnedFd,
    pub(crate) writer: OwnedFd,
}

impl Channel {
    /// Checks what can be known before, and makes the pipe.
    ///
    /// # Errors
    /// In words: what is missing for watching opens, and the way out.
    pub(crate) fn open() -> Result<Self, String> {
        if !filter::is_known_to_kernel() {
            return Err("the kernel lacks what is needed (Linux 5.19 or later with seccomp, on x86-64 or aarch64)".into());
        }
        if !filter::is_allowed() {
            return Err("the right is missing; run foretell as root, or as setpriv --no-new-privs foretell ...".into());
        }
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (reader, writer) = pipe_with(flags).map_err(|error| error.to_string())?;
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES); // A smaller one holds less.
        Ok(Channel { reader, writer })
    }
}

/// Why opens are not watched.
pub(crate) enum Unwatched {
    /// The filter is not installed, for this reason. `BrokenPipe`: the guard has ended before.
    Refused(io::Error),
    /// The filter is installed, and there is no guard: this process must not execute a program.
    Unanswered,
}

/// Has the opens of this process and its descendants stop for the guard.
///
/// # Errors
/// [`Unwatched`].
pub(crate) fn watch(guard: &Guard) -> Result<(), Unwatched> {
    // A process with the filter cannot be its guard: no other could take over from here on.
    if guard.has_ended() {
        return Err(Unwatched::Refused(io::ErrorKind::BrokenPipe.into()));
    }
    let listener = filter::install().map_err(Unwatched::Refused)?;
    guard.hand_over(&listener).map_err(|_| Unwatched::Unanswered)
}

/// The line that says that opens are not watched, and `why`.
pub(crate) fn without(why: impl std::fmt::Display) -> String {
    format!("--observe opens: opens are not watched: {why}")
}

/// Says why the filter is not installed.
pub(crate) fn refusal(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "they are watched by another program already".into(),
        _ if error.kind() == io::ErrorKind::BrokenPipe => "their guard has ended".into(),
        _ => format!("the kernel refuses its filter ({error})"),
    }
}
