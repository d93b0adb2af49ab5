//! A timer that one process starts and another one waits for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// How long a look at a caller may take. 250 ms: it takes microseconds, unless the caller's memory is not there, or the machine
/// is very busy.
const PATIENCE_NS: libc::c_long = 250_000_000;

/// Readable once a look has taken too long.
pub(super) struct Timer(OwnedFd);

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a plain system call.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        if timer < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has returned a new descriptor.
        Ok(Timer(unsafe { OwnedFd::from_raw_fd(timer) }))
    }

    pub(super) fn start(&self) {
        self.set(PATIENCE_NS);
    }

    pub(super) fn stop(&self) {
        self.set(0);
    }

    fn set(&self, nanoseconds: libc::c_long) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let time = libc::itimerspec {
            it_interval: none,
            it_value: libc::timespec { tv_nsec: nanoseconds, ..none },
        };
        // SAFETY: the time is valid; nothing is to be filled in.
        unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const time, std::ptr::null_mut())
        };
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
