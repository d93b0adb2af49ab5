//! How Python waits for bytes.
//!
//! A waiting thread has released the interpreter, and checks for signals some twenty times a second. If a signal's handler
//! raises (Ctrl-C), the read is given up. Data in flight may still be written into the memory of such a read, so the memory is
//! kept until then: the buffer stays exported, the `bytes` stay alive. The thread that gives the memory up then must not wait
//! for the interpreter. It puts the buffer or the `bytes` into a list ([`LEFT`]), and the next read releases them.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foretell_cache::{File, Lent};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::completions::{Ended, Queue};
use crate::errors;

/// Interval at which a waiting thread checks for signals.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The Python object that keeps memory alive.
pub(crate) enum Owner {
    Buffer(#[expect(dead_code, reason = "held for its release alone")] PyUntypedBuffer),
    Bytes(Py<PyBytes>),
}

/// A list of the owners of given-up reads, the last first. Lock-free, because a fork could leave a lock taken.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(std::ptr::null_mut());

struct Left {
    #[expect(dead_code, reason = "held for its release alone")]
    owner: Owner,
    next: *mut Left,
}

/// Leaves the owner to the next read. Any thread may call it, without the interpreter.
fn leave(owner: Owner) {
    let next = LEFT.load(Ordering::Relaxed);
    let left = Box::into_raw(Box::new(Left { owner, next }));
    let mut known = next;
    while let Err(now) =
        LEFT.compare_exchange_weak(known, left, Ordering::Release, Ordering::Relaxed)
    {
        known = now;
        // SAFETY: the entry belongs to this thread until the exchange succeeds.
        unsafe { (*left).next = now };
    }
}

/// Keeps the memory of a read in flight.
pub(crate) struct Keeper(Mutex<Option<Owner>>);

impl Keeper {
    /// The result of a completed read of `count` bytes: the bytes object, or the count for a buffer.
    pub(crate) fn result(&self, py: Python<'_>, count: usize) -> PyResult<Py<PyAny>> {
        match self.take().expect("nobody else takes it") {
            Owner::Bytes(bytes) => Ok(bytes.into_any()),
            Owner::Buffer(_) => Ok(count.into_pyobject(py)?.into_any().unbind()),
        }
    }

    /// Releases the memory of a completed read.
    pub(crate) fn release(&self, _: Python<'_>) {
        drop(self.take());
    }

    fn take(&self) -> Option<Owner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(owner) = self.take() {
            leave(owner);
        }
    }
}

/// Releases the owners of given-up reads that have completed.
fn release_left(_: Python<'_>) {
    let mut left = LEFT.swap(std::ptr::null_mut(), Ordering::Acquire);
    while !left.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and only the thread that swapped it out has it.
        left = unsafe { Box::from_raw(left) }.next;
    }
}

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
    file: &File,
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
    file: &File,
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
    file: &File,
    (start, length): (*mut u8, usize),
    owner: Owner,
    offset_bytes: u64,
) -> PyResult<(usize, Owner)> {
    release_left(py);
    let memory = Memory(start);
    // SAFETY: the owner lives longer than this.
    let now = move || unsafe { file.read_now(memory.start(), length, offset_bytes) };
    let partly = match if length <= AT_ONCE_BYTES { now() } else { py.detach(now) } {
        Ok(count) => return Ok((count, owner)),
        Err(partly) => partly,
    };
    let keeper = Arc::new(Keeper(Mutex::new(Some(owner))));
    // SAFETY: as above; the owner is taken from the keeper only after a read that was not given up.
    let lent = unsafe { Lent::new(start, length, Arc::clone(&keeper) as _) };
    let mut raised = None;
    let done = py.detach(|| {
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
    file: &Arc<File>,
    (start, length): (*mut u8, usize),
    owner: Owner,
    offset_bytes: u64,
    (queue, token): (&Arc<Queue>, u64),
) -> PyResult<Option<Py<PyAny>>> {
    release_left(py);
    let keeper = Arc::new(Keeper(Mutex::new(Some(owner))));
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
    let ended = py.detach(|| {
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
    file: &Arc<File>,
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
    file: &Arc<File>,
    buffer: PyUntypedBuffer,
    offset_bytes: u64,
    to: (&Arc<Queue>, u64),
) -> PyResult<Option<Py<PyAny>>> {
    let memory = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
    // SAFETY: the buffer is exported until it is released, which is what the owner does.
    unsafe { begin(py, file, memory, Owner::Buffer(buffer), offset_bytes, to) }
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
