//! Ctrl-C during the demo: ends the running search, after which the demo cleans up.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::signals;

/// Whether the user has cancelled, and the child that is running.
pub(super) struct Cancel {
    /// This process's signal state from before.
    inherited: signals::Inherited,
    cancelled: AtomicBool,
    running: Mutex<Option<OwnedFd>>,
}

/// What a program printed and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) output: Vec<u8>,
    pub(super) messages: Vec<u8>,
}

/// While it lives, the child is ended when the user cancels.
pub(super) struct Watch<'a>(&'a Cancel);

impl Cancel {
    /// Takes this process's signals from now on. Call it while the process has a single thread.
    pub(super) fn listen() -> Arc<Self> {
        let inherited = signals::block(&signals::OF_A_SERVER);
        let (cancelled, running) = (AtomicBool::new(false), Mutex::new(None));
        let cancel = Arc::new(Cancel { inherited, cancelled, running });
        let listener = Arc::clone(&cancel);
        // Without the thread, signals stay blocked until the demo ends by itself.
        let _ = thread::Builder::new().name("demo-signals".into()).spawn(move || {
            loop {
                signals::take(&signals::OF_A_SERVER);
                listener.cancel();
            }
        });
        cancel
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        if let Some(child) = self.running().as_ref() {
            let _ = pidfd_send_signal(child, Signal::TERM);
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program in its own process group, with the signal state from before [`listen`](Cancel::listen) and SIGTERM
    /// enabled. Ctrl-C reaches only the demo, which ends the program itself while it is [watched](Cancel::watch).
    pub(super) fn spawn(&self, mut command: Command) -> io::Result<Child> {
        let inherited = self.inherited;
        command.process_group(0);
        // SAFETY: between fork and exec only system calls are made, and no memory is allocated.
        unsafe {
            command.pre_exec(move || {
                inherited.restore()?;
                signals::can_be_terminated();
                Ok(())
            })
        };
        command.spawn()
    }

    /// Runs a program to its end, or until the user cancels.
    pub(super) fn run(&self, mut command: Command) -> io::Result<Outcome> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn(command)?;
        let watch = self.watch(&child);
        let output = child.wait_with_output()?;
        drop(watch);
        let code = output.status.code();
        Ok(Outcome { code, output: output.stdout, messages: output.stderr })
    }

    /// From now on, cancelling ends `child` too.
    pub(super) fn watch(&self, child: &Child) -> Watch<'_> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
        *self.running() = pidfd;
        if self.cancelled.load(Ordering::Acquire) {
            self.cancel();
        }
        Watch(self)
    }

    /// # Errors
    /// If the user has cancelled.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.cancelled.load(Ordering::Acquire) { Err("interrupted".into()) } else { Ok(()) }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_program_that_the_demo_runs_can_be_ended() {
        let inherited = signals::block(&signals::OF_A_SERVER);
        let (cancelled, running) = (AtomicBool::new(false), Mutex::new(None));
        let cancel = Cancel { inherited, cancelled, running };
        let mut command = Command::new("sleep");
        command.arg("60");
        let mut child = cancel.spawn(command).expect("sleep runs");
        let watch = cancel.watch(&child);
        cancel.cancel();
        let ended = child.wait().expect("it ends");
        drop(watch);
        assert_eq!(ended.signal(), Some(libc::SIGTERM));
        assert!(cancel.check().is_err());
    }
}
