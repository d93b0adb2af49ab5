//! How a thread of Python waits: it has released the interpreter, and checks for signals some twenty times a second. If a
//! signal's handler raises (Ctrl-C), the wait ends.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use foretell_family::forks;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Interval at which a waiting thread checks for signals.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Threads that have released the interpreter and will take it again.
static AWAY: AtomicUsize = AtomicUsize::new(0);
/// The interpreter is about to end.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Number of forks up to the process that counts in `AWAY`.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// How long the end waits for threads that are away.
const AWAY_MAX: Duration = Duration::from_secs(1);

/// Calls `act` without the interpreter.
///
/// A thread that takes an interpreter which has ended is itself ended (up to Python 3.13), in the middle of its caller's code.
/// Libraries in C++ abort by that, or wait for it forever. So the interpreter's end waits for those that are away
/// ([`end`]), and afterwards other threads than the main one keep it.
pub(crate) fn released<T: Send>(py: Python<'_>, act: impl FnOnce() -> T + Send) -> T {
    struct Away;
    impl Drop for Away {
        fn drop(&mut self) {
            AWAY.fetch_sub(1, Ordering::Release);
        }
    }
    if IS_ENDING.load(Ordering::Relaxed) && !is_main() {
        return act();
    }
    AWAY.fetch_add(1, Ordering::Relaxed);
    let _away = Away; // Dropped with the interpreter.
    py.detach(act)
}

/// Waits, at the interpreter's end, until other threads have taken it again. Those that wait for data give up.
#[pyfunction]
#[pyo3(name = "_end")]
pub(crate) fn end(py: Python<'_>) {
    IS_ENDING.store(true, Ordering::Relaxed);
    // Threads that were away at a fork are not in the child, but in its count.
    if forks() != FORKS.load(Ordering::Relaxed) {
        return;
    }
    let until = Instant::now() + AWAY_MAX;
    while AWAY.load(Ordering::Acquire) > 0 && Instant::now() < until {
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
    }
}

/// Has the interpreter call [`end`] before it ends.
pub(crate) fn prepare(module: &Bound<'_, PyModule>) -> PyResult<()> {
    FORKS.store(forks(), Ordering::Relaxed);
    let atexit = module.py().import("atexit")?;
    atexit.call_method1("register", (module.getattr("_end")?,))?;
    Ok(())
}

fn is_main() -> bool {
    // SAFETY: they have no preconditions and cannot fail.
    unsafe { libc::gettid() == libc::getpid() }
}

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
    released(py, move || answer_of(&answered))
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

/// Runs the handlers of pending signals, if this is the main thread. Returns the exception that they raise; in another thread
/// one if the interpreter is about to end.
pub(crate) fn signal() -> Option<PyErr> {
    if !is_main() {
        let is_ending = IS_ENDING.load(Ordering::Relaxed);
        return is_ending.then(|| PyRuntimeError::new_err("the interpreter is about to end"));
    }
    Python::try_attach(|py| py.check_signals().err()).flatten()
}
