//! What has ended of what was begun and nobody waits for: reads and openings, each with a number that its beginner gave.
//!
//! Threads of back ends put it there, without the interpreter. Who has begun them takes it, after a wait
//! ([`Completions::wait`]), or when its event loop finds that `fileno` can be read. The queue belongs to one process: a child
//! has those of its parent's locks that its parent's threads held.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use foretell_cache::ReadError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors;
use crate::process::OfProcess;
use crate::wait::{Keeper, LOOK_EVERY, signal};

/// What has ended.
pub(crate) enum Ended {
    /// The answer can be taken from the `Opening`.
    Open,
    Read(Arc<Keeper>, Result<usize, ReadError>),
}

impl Ended {
    /// The bytes, or how many went into a buffer, or the exception; nothing of an opening.
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

/// Where it is put.
pub(crate) struct Queue {
    ended: Mutex<Vec<(u64, Ended)>>,
    came: Condvar,
    /// A byte for each time that the queue was empty.
    bell: UnixStream,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Ended)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In whatever thread; does not wait.
    pub(crate) fn put(&self, token: u64, what: Ended) {
        let mut ended = self.lock();
        let is_first = ended.is_empty();
        ended.push((token, what));
        drop(ended);
        if is_first {
            // There is room for a byte: those before have been taken. If the other end is closed, nobody listens any more.
            let _ = (&self.bell).write(&[1]);
            self.came.notify_one();
        }
    }
}

/// What has ended, for one who takes it.
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

    /// A descriptor that can be read when there is something to take.
    fn fileno(&self) -> i32 {
        self.ear.as_raw_fd()
    }

    /// Takes what has ended: numbers, and results or exceptions. Does not wait.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Py<PyAny>)>> {
        let queue = self.queue()?;
        // First: whatever comes after this is taken now or rings again.
        while matches!((&self.ear).read(&mut [0; 64]), Ok(count) if count > 0) {}
        let ended = py.detach(|| std::mem::take(&mut *queue.lock()));
        let taken = ended.into_iter().map(|(token, ended)| {
            let result = ended.result(py).unwrap_or_else(|error| error.into_value(py).into_any());
            (token, result)
        });
        Ok(taken.collect())
    }

    /// Waits until there is something to take. Ctrl-C ends it.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let queue = self.queue()?;
        py.detach(|| {
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
