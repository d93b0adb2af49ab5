//! Processes that are no children of this one: those that stay when this process becomes a program, which must not find
//! children that it has not started.
//!
//! A process in between is forked and ends at once, so that its child becomes an orphan. An init process or a subreaper adopts
//! orphans; there it is a child after all.

use std::io;

use rustix::process::Pid;

use crate::signals;

/// Forks an orphan that does `work`, which must end the process. Call it while this process has a single thread.
///
/// # Errors
/// The system is out of processes. Where the second fork fails, there is no error and no orphan.
pub(crate) fn fork(work: impl FnOnce()) -> io::Result<()> {
    let has_children = signals::has_children();
    let start = || {
        // SAFETY: there is one thread, so the child finds no lock taken and no structure half changed.
        let forked = unsafe { if has_children { signals::fork_silently() } else { libc::fork() } };
        if forked == 0 {
            // SAFETY: as above.
            if unsafe { libc::fork() } == 0 {
                work();
            }
            // SAFETY: ends the process at once; what `exit` would run belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        let between = (forked > 0).then(|| Pid::from_raw(forked)).flatten();
        signals::wait_for_any_kind(between.ok_or_else(io::Error::last_os_error)?);
        Ok(())
    };
    // Children from before foretell was executed stay for the program to wait for.
    if has_children { start() } else { signals::without_children(start) }
}
