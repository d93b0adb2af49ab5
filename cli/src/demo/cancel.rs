//! Ctrl-C during the demo: the search under way is ended, and everything is put away in order.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::signals;

/// Whether the user has had enough, and what is running in the meantime.
#[derive(Debug, Default)]
pub(super) struct Cancel {
    cancelled: AtomicBool,
    running: Mutex<Option<OwnedFd>>,
}

/// While it lives, the child is ended when the user cancels.
pub(super) struct Watch<'a>(&'a Cancel);

impl Cancel {
    /// Takes this process's signals from now on. To be called while there is one thread.
    pub(super) fn listen() -> Arc<Self> {
        signals::block(&signals::OF_A_SERVER);
        let cancel = Arc::new(Cancel::default());
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

    /// Ends `child` too when the user cancels.
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
