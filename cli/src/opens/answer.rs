//! Answers each open: it goes on. What is opened is read before, and told to the manager after.
//!
//! The order of steps bounds what a program may suffer:
//! 1. The notification is received into memory that the keeper shares. If this process ends now, the keeper answers.
//! 2. A timer of the keeper's runs while this process looks at the caller, which may wait for a page of the caller's memory.
//!    If the keeper has ended, nobody would act on the timer, so this process stops looking and only answers.
//! 3. The answer. If the caller is gone by then, or its number is another thread's, what was seen is dropped.
//! 4. The record is written to a pipe without waiting. It is lost if the pipe is full, and the loss is counted.
//!
//! Without the manager (the pipe has no reader), and without a looker, the answer is all that is left.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use foretell_manager::opens::encode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getppid};

use super::filter::Call;
use super::look::Looker;
use super::timer::Timer;

/// `SECCOMP_IOCTL_NOTIF_…` of linux/seccomp.h, which the `libc` crate lacks.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the kernel lets the one take over the other's processor.
const SYNC_WAKE_UP: u64 = 1;

/// After so many errors in a row, each is followed by a pause of 1 ms. The kernel gives none but for callers that are gone, so
/// this bounds the cost of what is not foreseen.
const ERRORS_MAX: u32 = 1000;

/// After so many errors in a row, about ten seconds of them, another answerer is to try.
const ERRORS_END: u32 = 10 * ERRORS_MAX;

/// A notification, in memory shared by the processes of a guard. Its number is 0 while none is held.
pub(super) struct Held(*mut libc::seccomp_notif);

impl Held {
    pub(super) fn new() -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let bytes = size_of::<libc::seccomp_notif>();
        // SAFETY: a new mapping, at no place in particular.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Held(memory.cast()))
        }
    }

    /// The number of the notification that was received and not answered.
    fn number(&self) -> Option<u64> {
        // SAFETY: the memory stays mapped, and all bytes are a valid value. The process that wrote it is this one, or has
        // ended.
        let number = unsafe { (&raw const (*self.0).id).read_volatile() };
        (number != 0).then_some(number)
    }

    fn clear(&self) {
        // SAFETY: the memory stays mapped, and all-zero is a valid value.
        unsafe { self.0.write_volatile(MaybeUninit::zeroed().assume_init()) };
    }

    /// Receives a notification. The memory has been cleared, and is so again after an error.
    fn receive(&self, listener: &OwnedFd) -> io::Result<libc::seccomp_notif> {
        // SAFETY: the kernel fills the structure in, which is all zero and as long as it expects.
        let result = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, self.0) };
        if result < 0 {
            let error = io::Error::last_os_error();
            self.clear();
            return Err(error);
        }
        // SAFETY: the kernel has filled it in.
        Ok(unsafe { self.0.read_volatile() })
    }

    /// Answers the notification that is held: the call goes on. Returns whether its caller has been waiting for that.
    pub(super) fn answer(&self, listener: &OwnedFd) -> bool {
        let Some(id) = self.number() else { return false };
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the structure is as long as the kernel expects, which reads it only.
        let sent = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut answer) } == 0;
        self.clear();
        sent
    }
}

/// Where opens are told, and what is needed for that.
pub(super) struct Teller {
    looker: Looker,
    pipe: OwnedFd,
    record: Vec<u8>,
    lost: u32,
    is_over: bool,
}

impl Teller {
    /// `pipe`: its writes do not wait.
    pub(super) fn new(pipe: OwnedFd) -> Self {
        Teller { looker: Looker::default(), pipe, record: Vec::new(), lost: 0, is_over: false }
    }

    /// Looks at the caller of a notification.
    fn look(&mut self, seen: &libc::seccomp_notif) {
        self.record.clear();
        let Some(call) = Call::of(seen.data.nr, &seen.data.args) else { return };
        // A number of 0 is a process that cannot be seen from here.
        let opened = (seen.pid != 0).then(|| self.looker.look(seen.pid, call)).flatten();
        if let Some(opened) = opened
            && !encode(&opened, self.lost, &mut self.record)
        {
            self.record.clear();
        }
    }

    /// The caller was answered.
    fn tell(&mut self, thread: u32) {
        self.looker.answered(thread);
        if self.record.is_empty() {
            return;
        }
        match rustix::io::write(&self.pipe, &self.record) {
            Ok(_) => self.lost = 0,
            Err(Errno::AGAIN) => self.lost = self.lost.saturating_add(1),
            Err(_) => self.is_over = true,
        }
    }
}

/// Has a caller and the process that answers it share a processor where the kernel can: each waits for the other.
pub(super) fn wake_in_turn(listener: &OwnedFd) {
    // SAFETY: a plain system call with a number. Kernels before 6.6 refuse it.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// Whether no process with the filter is left.
pub(super) fn is_over(listener: &OwnedFd) -> bool {
    let mut ended = [PollFd::new(listener, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut ended, Some(&at_once)), Ok(1)) && ended[0].revents() == PollFlags::HUP
}

/// Answers until no process with the filter is left, and returns `true`. Looks at the callers if there is a `teller`.
///
/// `keeper` is the parent that bounds the looks and replaces this process: without it there is no look, and no error ends this.
/// With it, many errors in a row do, and `false` is returned.
pub(super) fn run(
    listener: &OwnedFd,
    (held, timer): (&Held, &Timer),
    keeper: Option<Pid>,
    mut teller: Option<Teller>,
) -> bool {
    let has_keeper = || keeper.is_some() && getppid() == keeper;
    let mut errors = 0u32;
    held.clear();
    loop {
        let mut waited_for = [PollFd::new(listener, PollFlags::IN)];
        let polled = poll(&mut waited_for, None);
        let events = waited_for[0].revents();
        let has_call = events.contains(PollFlags::IN);
        if polled.is_ok() && !has_call && events.contains(PollFlags::HUP) {
            return true; // All are gone.
        }
        // A signal may have ended the call before it is received.
        let received = has_call.then(|| held.receive(listener).ok()).flatten();
        let Some(seen) = received else {
            errors = errors.saturating_add(1);
            if errors >= ERRORS_END && has_keeper() {
                return false;
            }
            if errors > ERRORS_MAX {
                std::thread::sleep(Duration::from_millis(1));
            }
            continue;
        };
        errors = 0;
        teller = teller.filter(|teller| !teller.is_over && has_keeper());
        if let Some(teller) = &mut teller {
            timer.start();
            teller.look(&seen);
            timer.stop();
        }
        let is_answered = held.answer(listener);
        if let Some(of) = &mut teller
            && is_answered
        {
            of.tell(seen.pid);
        }
    }
}
