//! Completed reads and openings that no thread waits for, each with a token that the caller gave.
//!
//! Threads of back ends put results into a queue, without the interpreter. The caller takes them after a wait
//! ([`Completions::wait`]), or when its event loop finds `fileno` readable. The queue belongs to one process, because a forked
//! child inherits locks that its parent's threads held.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use foretell_cache::ReadError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors;
use crate::keeper::Keeper;
use crate::process::OfProcess;
use crate::wait::{LOOK_EVERY, released, signal};

/// A completed operation.
pub(crate) enum Ended {
    /// The `Opening` has its answer.
    Open,
    Read(Arc<Keeper>, Result<usize, ReadError>),
}

impl Ended {
    /// The bytes, the number of bytes written into a buffer, or the exception; `None` for an opening.
    pub(crate) fn result(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Ended::Open => Ok(py.None()),
            Ended::Read(keeper, Ok(count)) => keeper.result(py, count),
            Ended::Read(keeper, Err(error)) => {
                keeper.release(py);
                Err(errors::of_read(py, &error))
            }
        }
    }
}

/// The queue of completed operations.
pub(crate) struct Queue {
    ended: Mutex<Vec<(u64, Ended)>>,
    came: Condvar,
    /// Gets a byte whenever the queue stops being empty.
    bell: UnixStream,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Ended)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a result. Any thread may call it, and it does not wait.
    pub(crate) fn put(&self, token: u64, what: Ended) {
        let mut ended = self.lock();
        let is_first = ended.is_empty();
        ended.push((token, what));
        drop(ended);
        if is_first {
            // There is room for a byte, because earlier ones were taken with the queue. If the other end is closed, there is no
            // reader.
            let _ = (&self.bell).write(&[1]);
            self.came.notify_one();
        }
    }
}

/// The caller's end of a queue.
#[pyclass(frozen, module = "foretell._foretell")]
pub(crate) struct Completions {
    queue: OfProcess<Arc<Queue>>,
    ear: UnixStream,
}

impl Completions {
    pub(crate) fn queue(&self) -> PyResult<&Arc<Queue>> {
        self.queue.get().ok_or_else(|| PyRuntimeError::new_err("it was begun before a fork"))
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Self> {
        let (ear, bell) = UnixStream::pair()?;
        ear.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let queue = Queue { ended: Mutex::default(), came: Condvar::new(), bell };
        Ok(Completions { queue: OfProcess::new(Arc::new(queue)), ear })
    }

    /// A descriptor that is readable when there are results.
    fn fileno(&self) -> i32 {
        self.ear.as_raw_fd()
    }

    /// Takes all results: tokens, each with a result or an exception. Does not wait.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Py<PyAny>)>> {
        let queue = self.queue()?;
        // Empty the descriptor first: a later result is either taken below or makes it readable again.
        while matches!((&self.ear).read(&mut [0; 64]), Ok(count) if count > 0) {}
        let ended = released(py, || std::mem::take(&mut *queue.lock()));
        let taken = ended.into_iter().map(|(token, ended)| {
            let result = ended.result(py).unwrap_or_else(|error| error.into_value(py).into_any());
            (token, result)
        });
        Ok(taken.collect())
    }

    /// Waits until there are results. Ctrl-C ends the wait.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let queue = self.queue()?;
        released(py, || {
            loop {
                let ended = queue.lock();
                let wait =
                    queue.came.wait_timeout_while(ended, LOOK_EVERY, |ended| ended.is_empty());
                let (ended, _) = wait.unwrap_or_else(PoisonError::into_inner);
                if !ended.is_empty() {
                    return Ok(());
                }
                drop(ended);
                if let Some(raised) = signal() {
                    return Err(raised);
                }
            }
        })
    }
}
