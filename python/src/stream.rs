//! Streams, which hold hints.

use std::sync::{Arc, Mutex, PoisonError};

use foretell_cache::Segment;
use foretell_cache::share::EitherStream;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::errors::guarded;
use crate::file::File;
use crate::process::OfProcess;
use crate::store::Store;
use crate::wait::released;

/// Base of `foretell.Stream`. A stream from before a fork does nothing in the child.
#[pyclass(subclass, frozen, module = "foretell._foretell")]
pub(crate) struct Stream {
    store: Py<Store>,
    /// `None` once it is closed.
    stream: Mutex<Option<Shared>>,
}

type Shared = Arc<OfProcess<EitherStream>>;

impl Stream {
    fn here(&self) -> Option<Shared> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A stream of the store's cache of now, in the place of one whose process has ended; `None` if it was closed meanwhile.
    fn remade(&self, py: Python<'_>, lost: &Shared) -> PyResult<Option<Shared>> {
        let live = self.store.get().live(py)?;
        let live = live.get().expect("of this process");
        let made = guarded(py, || Ok(released(py, || live.stream())))?;
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if stream.as_ref().is_some_and(|stream| Arc::ptr_eq(stream, lost)) {
            *stream = Some(Arc::new(OfProcess::new(made)));
        }
        Ok(stream.clone())
    }
}

#[pymethods]
impl Stream {
    #[new]
    fn new(py: Python<'_>, store: Py<Store>) -> PyResult<Self> {
        let live = store.get().live(py)?;
        let live = live.get().expect("of this process");
        let stream = guarded(py, || Ok(released(py, || live.stream())))?;
        Ok(Stream {
            store: store.clone_ref(py),
            stream: Mutex::new(Some(Arc::new(OfProcess::new(stream)))),
        })
    }

    /// Discloses ranges of an open file: an (n, 2) buffer of 64-bit integers, or pairs. Without ranges, the whole file.
    #[pyo3(name = "_hint")]
    fn hint(
        &self,
        py: Python<'_>,
        file: &Bound<'_, File>,
        ranges: Option<&Bound<'_, PyAny>>,
        ordered: bool,
    ) -> PyResult<()> {
        let closed = || PyValueError::new_err("the stream is closed");
        let mut stream = self.here().ok_or_else(closed)?;
        if !self.store.is(file.get().store()) {
            let message = "the stream is of another store than the file: make one for each store";
            return Err(PyValueError::new_err(message));
        }
        let segments = ranges.map(|ranges| segments(py, ranges)).transpose()?;
        if stream.get().is_some_and(EitherStream::is_lost) {
            stream = self.remade(py, &stream)?.ok_or_else(closed)?;
        }
        let open = file.get().open_for_hint(py)?;
        let (Some(stream), Some(file)) = (stream.get(), open.get()) else { return Ok(()) };
        guarded(py, || {
            released(py, || stream.hint(file, segments.as_deref(), ordered));
            Ok(())
        })
    }

    /// Gives up hints that were not read. More hints may follow.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let Some(stream) = self.here() else { return Ok(()) };
        guarded(py, || {
            released(py, || {
                if let Some(stream) = stream.get() {
                    stream.cancel();
                }
            });
            Ok(())
        })
    }

    /// Gives up hints that were not read, for good.
    fn close(&self) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(stream);
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.here().is_none()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.store)
    }
}

/// The ranges that are not empty.
pub(crate) fn segments(py: Python<'_>, ranges: &Bound<'_, PyAny>) -> PyResult<Vec<Segment>> {
    let numbers: Option<Vec<i64>> = if let Ok(buffer) = PyBuffer::<i64>::get(ranges) {
        let columns = if buffer.dimensions() == 2 { buffer.shape()[1] } else { 0 };
        if columns != 2 {
            let shape = buffer.shape();
            return Err(PyValueError::new_err(format!("ranges of shape {shape:?}, not (n, 2)")));
        }
        Some(buffer.to_vec(py)?)
    } else {
        None
    };
    let segment = |offset: i64, length: i64| match (u64::try_from(offset), u64::try_from(length)) {
        (Ok(offset_bytes), Ok(length_bytes)) => Ok(Segment { offset_bytes, length_bytes }),
        _ => Err(PyValueError::new_err(format!("the range ({offset}, {length}) is negative"))),
    };
    let mut found = Vec::new();
    match numbers {
        Some(numbers) => {
            found.reserve(numbers.len() / 2);
            for pair in numbers.chunks_exact(2) {
                found.push(segment(pair[0], pair[1])?);
            }
        }
        None => {
            for pair in ranges.try_iter()? {
                let pair = pair?;
                let [offset, length]: [i64; 2] = pair.extract().map_err(|error: PyErr| {
                    let given = pair.repr().map_or_else(|_| String::new(), |text| text.to_string());
                    match error.is_instance_of::<PyTypeError>(py) {
                        true => PyTypeError::new_err(format!("{given} is no pair of integers")),
                        false => PyValueError::new_err(format!("{given} is no pair of integers")),
                    }
                })?;
                found.push(segment(offset, length)?);
            }
        }
    }
    found.retain(|segment| segment.length_bytes > 0);
    Ok(found)
}
