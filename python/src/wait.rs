//! How a thread of Python waits: it has released the interpreter, and checks for signals some twenty times a second. If a
//! signal's handler raises (Ctrl-C), the wait ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;

/// Interval at which a waiting thread checks for signals.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Calls `act` in a new thread and waits for it. Ctrl-C ends the wait but not the thread. Returns `None` if `act` panicked.
pub(crate) fn in_thread<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    act: impl FnOnce() -> T + Send + 'static,
) -> PyResult<Option<T>> {
    let (answer, answered) = sync_channel(1);
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _ = answer.send(act()); // The caller may have been interrupted.
    })?;
    py.detach(move || answer_of(&answered))
}

/// Waits for an answer, without the interpreter. Returns `None` if the sender is gone.
pub(crate) fn answer_of<T>(answered: &Receiver<T>) -> PyResult<Option<T>> {
    loop {
        match answered.recv_timeout(LOOK_EVERY) {
            Ok(found) => return Ok(Some(found)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
        if let Some(raised) = signal() {
            return Err(raised);
        }
    }
}

/// Runs the handlers of pending signals, if this is the main thread. Returns the exception that they raise.
pub(crate) fn signal() -> Option<PyErr> {
    Python::try_attach(|py| py.check_signals().err()).flatten()
}
