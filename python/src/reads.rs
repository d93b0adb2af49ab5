//! How Python reads: at once, with a wait that a signal ends ([`wait`](crate::wait)), or without a wait.
//!
//! A read that a signal's handler ends is given up. Its [`Keeper`] keeps the memory until no data comes for it.

use std::sync::{Arc, Mutex, PoisonError};

use foretell_cache::Lent;
use foretell_cache::share::EitherFile;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::completions::{Ended, Queue};
use crate::errors;
use crate::keeper::{Keeper, Owner, release_left};
use crate::wait::{released, signal};

/// A writable, contiguous buffer.
pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if buffer.readonly() {
        return Err(PyBufferError::new_err("the buffer is read-only"));
    }
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous"));
    }
    Ok(buffer)
}

/// A `bytes` object of that length with uninitialised contents, and its address.
fn new_bytes(py: Python<'_>, length: usize) -> PyResult<(Py<PyBytes>, *mut u8)> {
    let size = ffi::Py_ssize_t::try_from(length).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: a new object, or null with an error set.
    let bytes = unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>()
    };
    // SAFETY: it is an object of that type.
    let start = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) }.cast::<u8>();
    Ok((bytes.unbind(), start))
}

/// Reads into `buffer`; returns the number of bytes.
pub(crate) fn read_into(
    py: Python<'_>,
    file: &EitherFile,
    buffer: PyUntypedBuffer,
    offset_bytes: u64,
) -> PyResult<usize> {
    let memory = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
    // SAFETY: the buffer is exported until it is released, which is what the owner does.
    let (count, _) = unsafe { read(py, file, memory, Owner::Buffer(buffer), offset_bytes) }?;
    Ok(count)
}

/// Reads up to `length` bytes.
pub(crate) fn read_bytes(
    py: Python<'_>,
    file: &EitherFile,
    length: u64,
    offset_bytes: u64,
) -> PyResult<Py<PyBytes>> {
    let length = length.min(file.size_bytes().saturating_sub(offset_bytes));
    let length = usize::try_from(length).map_err(|_| PyMemoryError::new_err(()))?;
    if length == 0 {
        return Ok(PyBytes::new(py, b"").unbind());
    }
    let (bytes, start) = new_bytes(py, length)?;
    // SAFETY: nobody else has seen the object; it lives as long as its owner.
    match unsafe { read(py, file, (start, length), Owner::Bytes(bytes), offset_bytes) }? {
        (count, Owner::Bytes(bytes)) if count == length => Ok(bytes),
        _ => unreachable!("a file open has one size"),
    }
}

/// For copies larger than this, in bytes, the interpreter is released.
const AT_ONCE_BYTES: usize = 16 << 10;

/// # Safety
/// The memory is valid for writes while the owner lives, and Rust has no reference to it.
unsafe fn read(
    py: Python<'_>,
    file: &EitherFile,
    (start, length): (*mut u8, usize),
    owner: Owner,
    offset_bytes: u64,
) -> PyResult<(usize, Owner)> {
    release_left(py);
    let memory = Memory(start);
    // SAFETY: the owner lives longer than this.
    let now = move || unsafe { file.read_now(memory.start(), length, offset_bytes) };
    let partly = match if length <= AT_ONCE_BYTES { now() } else { released(py, now) } {
        Ok(count) => return Ok((count, owner)),
        Err(partly) => partly,
    };
    let keeper = Arc::new(Keeper::new(owner));
    // SAFETY: as above; the owner is taken from the keeper only after a read that was not given up.
    let lent = unsafe { Lent::new(start, length, Arc::clone(&keeper) as _) };
    let mut raised = None;
    let done = released(py, || {
        file.read_rest(lent, partly, &mut || {
            raised = signal();
            raised.is_some()
        })
    });
    match done {
        Ok(Some(count)) => Ok((count, keeper.take().expect("nobody else takes it"))),
        Ok(None) => Err(raised.expect("it was given up because of it")),
        Err(error) => {
            keeper.release(py);
            Err(errors::of_read(py, &error))
        }
    }
}

/// The address to read to, for use without the interpreter.
#[derive(Clone, Copy)]
struct Memory(*mut u8);

// SAFETY: it is only an address; each write there has its own justification.
unsafe impl Send for Memory {}

impl Memory {
    fn start(self) -> *mut u8 {
        self.0
    }
}

/// The destination of a begun read's result.
enum Slot {
    /// The caller that begins the read, until it returns.
    Beginner(Option<Ended>),
    Queue,
}

/// Begins to read into `owner`'s memory, without waiting. Returns the result if all bytes were in memory. Otherwise returns
/// `None`, and `queue` gets the result with `token`.
///
/// # Safety
/// As of [`read`].
unsafe fn begin(
    py: Python<'_>,
    file: &EitherFile,
    (start, length): (*mut u8, usize),
    owner: Owner,
    offset_bytes: u64,
    (queue, token): (&Arc<Queue>, u64),
) -> PyResult<Option<Py<PyAny>>> {
    release_left(py);
    let keeper = Arc::new(Keeper::new(owner));
    // SAFETY: as above; the owner is taken from the keeper only when the read has ended.
    let lent = unsafe { Lent::new(start, length, Arc::clone(&keeper) as _) };
    let slot = Arc::new(Mutex::new(Slot::Beginner(None)));
    let done = {
        let (slot, queue) = (Arc::clone(&slot), Arc::clone(queue));
        move |result| {
            let ended = Ended::Read(keeper, result);
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *slot {
                Slot::Beginner(to) => *to = Some(ended),
                Slot::Queue => queue.put(token, ended),
            }
        }
    };
    let ended = released(py, || {
        file.read_then(lent, offset_bytes, done);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *slot, Slot::Queue) {
            Slot::Beginner(ended) => ended,
            Slot::Queue => None,
        }
    });
    ended.map(|ended| ended.result(py)).transpose()
}

/// Begins to read up to `length` bytes.
pub(crate) fn begin_bytes(
    py: Python<'_>,
    file: &EitherFile,
    length: u64,
    offset_bytes: u64,
    to: (&Arc<Queue>, u64),
) -> PyResult<Option<Py<PyAny>>> {
    let length = length.min(file.size_bytes().saturating_sub(offset_bytes));
    let length = usize::try_from(length).map_err(|_| PyMemoryError::new_err(()))?;
    if length == 0 {
        return Ok(Some(PyBytes::new(py, b"").into_any().unbind()));
    }
    let (bytes, start) = new_bytes(py, length)?;
    // SAFETY: nobody else has seen the object; it lives as long as its owner.
    unsafe { begin(py, file, (start, length), Owner::Bytes(bytes), offset_bytes, to) }
}

/// Begins to read into `buffer`.
pub(crate) fn begin_into(
    py: Python<'_>,
    file: &EitherFile,
    buffer: PyUntypedBuffer,
    offset_bytes: u64,
    to: (&Arc<Queue>, u64),
) -> PyResult<Option<Py<PyAny>>> {
    let memory = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
    // SAFETY: the buffer is exported until it is released, which is what the owner does.
    unsafe { begin(py, file, memory, Owner::Buffer(buffer), offset_bytes, to) }
}
