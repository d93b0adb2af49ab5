//! An open file, with the interface of Python's raw files.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
use crate::wait::released;

type Open = Arc<OfProcess<EitherFile>>;

/// Base of `foretell.File`.
#[pyclass(subclass, frozen, module = "foretell._foretell")]
pub(crate) struct File {
    store: Py<Store>,
    path: OsString,
    size_bytes: u64,
    /// Where the next read begins.
    position: AtomicU64,
    lines: Lines,
    now: Mutex<Now>,
    /// It was opened for somebody else ([`_again`](File::_again)), and nothing has been read by it.
    is_borrowed: AtomicBool,
}

struct Now {
    version: Vec<u8>,
    /// `None` once it is closed.
    open: Option<Open>,
}

impl File {
    pub(crate) fn store(&self) -> &Py<Store> {
        &self.store
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file of this process. A forked child opens it again; the version must be the same.
    pub(crate) fn open_here(&self, py: Python<'_>) -> PyResult<Open> {
        let known = self.now().open.clone();
        let known = known.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?;
        if known.get().is_some() { Ok(known) } else { self.open_anew(py, &known) }
    }

    /// The open file, for a hint: not one in the cache of a process that has ended, if it can be opened in another one.
    pub(crate) fn open_for_hint(&self, py: Python<'_>) -> PyResult<Open> {
        let known = self.open_here(py)?;
        if known.get().is_some_and(EitherFile::is_lost) {
            return Ok(self.open_anew(py, &known).unwrap_or(known));
        }
        Ok(known)
    }

    /// Opens the same version again, in the place of `known`.
    fn open_anew(&self, py: Python<'_>, known: &Open) -> PyResult<Open> {
        let opened = self.store.get().open_now(py, self.path.clone())?.take(py)?;
        let mut now = self.now();
        if opened.version() != now.version {
            let cause = foretell_cache::backend::BackendError::Changed;
            return Err(errors::of_backend(py, &cause, &self.path.to_string_lossy()));
        }
        let opened = Arc::new(OfProcess::new(opened));
        if now.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, known)) {
            now.open = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&EitherFile) -> PyResult<R>) -> PyResult<R> {
        guarded(py, || {
            let open = self.open_here(py)?;
            act(open.get().expect("of this process"))
        })
    }

    /// Reads. The first read by a borrowed file may find that it has been replaced since it was opened. Then it is opened
    /// again, once, as if it had not been borrowed: nothing but its size is known of it so far.
    fn reading<R>(&self, py: Python<'_>, act: impl Fn(&EitherFile) -> PyResult<R>) -> PyResult<R> {
        if !self.is_borrowed.load(Ordering::Relaxed) {
            return self.with(py, act);
        }
        guarded(py, || {
            loop {
                let open = self.open_here(py)?;
                let file = open.get().expect("of this process");
                let found = act(file);
                if found.is_err() {
                    if file.is_stale() && self.renew(py, &open) {
                        continue;
                    }
                    return found;
                }
                let now = self.now();
                if now.open.as_ref().is_none_or(|now| Arc::ptr_eq(now, &open)) {
                    self.is_borrowed.store(false, Ordering::Relaxed);
                    return found;
                }
                // Another thread has renewed it meanwhile.
            }
        })
    }

    /// Opens the current version in the place of a borrowed one, if nothing was read and the size is the same.
    fn renew(&self, py: Python<'_>, borrowed: &Open) -> bool {
        let opened = self.store.get().open_now(py, self.path.clone());
        let opened = opened.and_then(|opening| opening.take(py));
        let mut now = self.now();
        let Some(open) = &now.open else { return false };
        if !Arc::ptr_eq(open, borrowed) {
            return true;
        }
        if !self.is_borrowed.swap(false, Ordering::Relaxed) {
            return false;
        }
        let Ok(opened) = opened else { return false };
        if opened.size_bytes() != self.size_bytes {
            drop(now); // Before the file, whose end may wait.
            return false;
        }
        now.version = opened.version().to_vec();
        now.open = Some(Arc::new(OfProcess::new(opened)));
        true
    }

    /// The next line, of at most `most` bytes.
    fn line(&self, py: Python<'_>, most: u64) -> PyResult<Py<PyBytes>> {
        let at = self.position.load(Ordering::Relaxed);
        let line = self.reading(py, |file| {
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
        let is_borrowed = opening.as_ref().is_some_and(|opening| opening.get().is_borrowed);
        let opened = guarded(py, || match opening {
            Some(opening) => opening.get().take(py),
            None => store.get().open_now(py, path.clone())?.take(py),
        })?;
        let (size_bytes, version) = (opened.size_bytes(), opened.version().to_vec());
        let open = Some(Arc::new(OfProcess::new(opened)));
        Ok(File {
            store,
            path,
            size_bytes,
            position: AtomicU64::new(0),
            lines: Lines::default(),
            now: Mutex::new(Now { version, open }),
            is_borrowed: AtomicBool::new(is_borrowed),
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
    fn _version<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.store.get().shared_version(&self.now().version))
    }

    /// Another handle on this version, as an opening that need not be waited for.
    fn _again(&self, py: Python<'_>) -> PyResult<Opening> {
        let again = self.with(py, |file| Ok(released(py, || file.another())))?;
        Ok(self.store.get().opening_of(self.path.clone(), again))
    }

    /// Whether a read, by this handle or one that `_again` has made, has found that the file has changed.
    #[getter]
    fn _is_stale(&self) -> bool {
        let open = self.now().open.clone();
        open.is_some_and(|open| open.get().is_some_and(EitherFile::is_stale))
    }

    /// Size in bytes when the file was opened.
    #[getter]
    fn size(&self) -> u64 {
        self.size_bytes
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.now().open.is_none()
    }

    /// Closes the file. Streams with hints for it keep it open until they are closed.
    fn close(&self) {
        let open = self.now().open.take();
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
        let bytes = self.reading(py, |file| reads::read_bytes(py, file, length, at))?;
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
        let count =
            self.reading(py, |file| reads::read_into(py, file, reads::writable(buffer)?, at))?;
        self.position.store(at + count as u64, Ordering::Relaxed);
        Ok(count)
    }

    /// Reads `length` bytes at `offset` bytes from the start; waits for them. Returns fewer only at the end of the file. Does
    /// not use the position, and many threads may call it at once.
    fn read_at(&self, py: Python<'_>, offset: i64, length: i64) -> PyResult<Py<PyBytes>> {
        let (offset, length) = (whole("offset", offset)?, whole("length", length)?);
        self.reading(py, |file| reads::read_bytes(py, file, length, offset))
    }

    /// As `readinto`, at `offset` bytes from the start. Does not use the position, and many threads may call it at once.
    fn pread_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: i64,
    ) -> PyResult<usize> {
        let offset = whole("offset", offset)?;
        self.reading(py, |file| reads::read_into(py, file, reads::writable(buffer)?, offset))
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
        self.is_borrowed.store(false, Ordering::Relaxed);
        match buffer.map(reads::writable).transpose()? {
            None => self.with(py, |file| reads::begin_bytes(py, file, length, offset, to)),
            Some(buffer) => self.with(py, |file| reads::begin_into(py, file, buffer, offset, to)),
        }
    }
}

fn whole(what: &str, number: i64) -> PyResult<u64> {
    u64::try_from(number).map_err(|_| PyValueError::new_err(format!("negative {what} {number}")))
}
