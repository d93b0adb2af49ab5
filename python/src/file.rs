//! An open file, with the interface of Python's raw files.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foretell_cache::share::EitherFile;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::completions::Completions;
use crate::errors::{self, guarded};
use crate::lines::Lines;
use crate::process::OfProcess;
use crate::reads;
use crate::store::{Opening, Store};

type Open = Arc<OfProcess<EitherFile>>;

/// Base of `foretell.File`.
#[pyclass(subclass, frozen, module = "foretell._foretell")]
pub(crate) struct File {
    store: Py<Store>,
    path: OsString,
    size_bytes: u64,
    version: Vec<u8>,
    /// Where the next read begins.
    position: AtomicU64,
    lines: Lines,
    /// `None` once it is closed.
    open: Mutex<Option<Open>>,
}

impl File {
    pub(crate) fn store(&self) -> &Py<Store> {
        &self.store
    }

    /// The open file of this process. A forked child opens it again; the version must be the same.
    pub(crate) fn open_here(&self, py: Python<'_>) -> PyResult<Open> {
        let known = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = known.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?;
        if known.get().is_some() {
            return Ok(known);
        }
        let opened = self.store.get().open_now(py, self.path.clone())?.take(py)?;
        if opened.version() != self.version {
            let cause = foretell_cache::backend::BackendError::Changed;
            return Err(errors::of_backend(py, &cause, &self.path.to_string_lossy()));
        }
        let opened = Arc::new(OfProcess::new(opened));
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&EitherFile) -> PyResult<R>) -> PyResult<R> {
        guarded(py, || {
            let open = self.open_here(py)?;
            act(open.get().expect("of this process"))
        })
    }

    /// The next line, of at most `most` bytes.
    fn line(&self, py: Python<'_>, most: u64) -> PyResult<Py<PyBytes>> {
        let at = self.position.load(Ordering::Relaxed);
        let line = self.with(py, |file| {
            let read = |offset, length| reads::read_bytes(py, file, length, offset);
            self.lines.line(py, (at, self.size_bytes), most, read)
        })?;
        self.position.store(at + line.as_bytes(py).len() as u64, Ordering::Relaxed);
        Ok(line)
    }

    fn remaining(&self) -> u64 {
        self.size_bytes.saturating_sub(self.position.load(Ordering::Relaxed))
    }
}

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (store, path, opening=None))]
    fn new(
        py: Python<'_>,
        store: Py<Store>,
        path: OsString,
        opening: Option<Py<Opening>>,
    ) -> PyResult<Self> {
        let opened = guarded(py, || match opening {
            Some(opening) => opening.get().take(py),
            None => store.get().open_now(py, path.clone())?.take(py),
        })?;
        Ok(File {
            store,
            path,
            size_bytes: opened.size_bytes(),
            version: opened.version().to_vec(),
            position: AtomicU64::new(0),
            lines: Lines::default(),
            open: Mutex::new(Some(Arc::new(OfProcess::new(opened)))),
        })
    }

    #[getter]
    fn _store(&self, py: Python<'_>) -> Py<Store> {
        self.store.clone_ref(py)
    }

    /// Path within the store.
    #[getter]
    fn name(&self) -> OsString {
        self.path.clone()
    }

    /// Identifies the open version, also in other processes.
    #[getter]
    fn _version(&self) -> &[u8] {
        self.store.get().shared_version(&self.version)
    }

    /// Size in bytes when the file was opened.
    #[getter]
    fn size(&self) -> u64 {
        self.size_bytes
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Closes the file. Streams with hints for it keep it open until they are closed.
    fn close(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(open);
        self.lines.clear();
    }

    /// The position of the next read, in bytes from the start.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |_| Ok(self.position.load(Ordering::Relaxed)))
    }

    /// Moves the position to `offset` bytes from the start (`whence` 0), from the current position (1), or from the end (2).
    /// Returns the new position, in bytes from the start; it may be beyond the end.
    #[pyo3(signature = (offset, whence=0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let from = match whence {
            0 => 0,
            1 => self.position.load(Ordering::Relaxed),
            2 => self.size_bytes,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "invalid whence ({whence}, should be 0, 1 or 2)"
                )));
            }
        };
        self.with(py, |_| Ok(()))?;
        let to = from
            .checked_add_signed(offset)
            .ok_or_else(|| PyValueError::new_err(format!("negative seek position {offset}")))?;
        self.position.store(to, Ordering::Relaxed);
        Ok(to)
    }

    /// Reads `size` bytes, or the rest of the file, from the position; waits for them. Returns fewer only at the end of the
    /// file.
    #[pyo3(signature = (size=None, /))]
    fn read(&self, py: Python<'_>, size: Option<i64>) -> PyResult<Py<PyBytes>> {
        let at = self.position.load(Ordering::Relaxed);
        // None and negative numbers stand for the rest of the file.
        let length = size.and_then(|size| u64::try_from(size).ok()).unwrap_or(u64::MAX);
        let length = length.min(self.remaining());
        let bytes = self.with(py, |file| reads::read_bytes(py, file, length, at))?;
        self.position.store(at + length, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Reads to the end of the line, but at most `size` bytes; waits for them.
    #[pyo3(signature = (size=None, /))]
    fn readline(&self, py: Python<'_>, size: Option<i64>) -> PyResult<Py<PyBytes>> {
        self.line(py, size.and_then(|size| u64::try_from(size).ok()).unwrap_or(u64::MAX))
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        this.with(this.py(), |_| Ok(()))?;
        Ok(this)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        let line = self.line(py, u64::MAX)?;
        Ok((!line.as_bytes(py).is_empty()).then_some(line))
    }

    /// Fills `buffer` from the position; waits for the bytes. Returns their number, less than the buffer's length only at the
    /// end of the file.
    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let at = self.position.load(Ordering::Relaxed);
        let buffer = reads::writable(buffer)?;
        let count = self.with(py, |file| reads::read_into(py, file, buffer, at))?;
        self.position.store(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }

    /// Reads `length` bytes at `offset` bytes from the start; waits for them. Returns fewer only at the end of the file. Does
    /// not use the position, and many threads may call it at once.
    fn read_at(&self, py: Python<'_>, offset: i64, length: i64) -> PyResult<Py<PyBytes>> {
        let (offset, length) = (whole("offset", offset)?, whole("length", length)?);
        self.with(py, |file| reads::read_bytes(py, file, length, offset))
    }

    /// As `readinto`, at `offset` bytes from the start. Does not use the position, and many threads may call it at once.
    fn pread_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: i64,
    ) -> PyResult<usize> {
        let offset = whole("offset", offset)?;
        let buffer = reads::writable(buffer)?;
        self.with(py, |file| reads::read_into(py, file, buffer, offset))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.store)
    }

    /// Begins a read, without waiting. Returns the bytes if all are in memory. Otherwise returns `None`, and `completions` gets
    /// them with `token`. With a buffer, `length` is ignored, and the result is the number of bytes written.
    fn _begin_read(
        &self,
        py: Python<'_>,
        completions: &Bound<'_, Completions>,
        token: u64,
        offset: i64,
        length: i64,
        buffer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (offset, length) = (whole("offset", offset)?, whole("length", length)?);
        let to = (completions.get().queue()?, token);
        match buffer.map(reads::writable).transpose()? {
            None => self.with(py, |file| reads::begin_bytes(py, file, length, offset, to)),
            Some(buffer) => self.with(py, |file| reads::begin_into(py, file, buffer, offset, to)),
        }
    }
}

fn whole(what: &str, number: i64) -> PyResult<u64> {
    u64::try_from(number).map_err(|_| PyValueError::new_err(format!("negative {what} {number}")))
}
