//! The mapping of errors to exceptions. All of it is here.

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use foretell_cache::backend::{AddressError, BackendError};
use foretell_cache::{CacheError, OpenError, ReadError};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::panics;

/// Numbers of Linux's `errno.h`, for errors without their own number.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;
const ESTALE: i32 = 116;

/// The exception's name in `foretell._errors`, and its `errno`.
fn mapped(cause: &BackendError) -> (&'static str, i32) {
    match cause {
        BackendError::NotFound => ("NotFound", ENOENT),
        BackendError::Denied(_) => ("PermissionDenied", EACCES),
        BackendError::Busy(_) => ("Busy", EBUSY),
        BackendError::Changed => ("Changed", ESTALE),
        BackendError::Timeout(_) => ("Timeout", ETIMEDOUT),
        BackendError::Lost => ("Error", EIO),
        BackendError::Other { errno, .. } => ("Error", errno.unwrap_or(EIO)),
    }
}

fn exception(py: Python<'_>, cause: &BackendError, message: &str, path: &str) -> PyErr {
    let (name, errno) = mapped(cause);
    let class = py.import("foretell._errors").and_then(|module| module.getattr(name));
    match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
        Ok(class) => PyErr::from_type(class, (errno, one_line(message), path.to_owned())),
        Err(error) => error,
    }
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The exception for a failed open; `place` is the store's address.
pub(crate) fn of_open(py: Python<'_>, error: &OpenError, place: &str) -> PyErr {
    let cause = &error.cause;
    let has_buckets = ["s3://", "gs://", "az://"].iter().any(|scheme| place.starts_with(scheme));
    let message = match cause {
        // Stores do not say whether the object or the bucket is missing.
        BackendError::NotFound if has_buckets => {
            format!("not found in {place}, or there is no such bucket")
        }
        BackendError::NotFound => format!("not found in {place}"),
        BackendError::Denied(_) if has_buckets => {
            format!(
                "{cause}; credentials for {place} are those of `settings`, else of the environment"
            )
        }
        BackendError::Other { message, .. } if message.starts_with("no connection") => {
            format!("{message}; is the endpoint of {place} right, and up?")
        }
        BackendError::Lost => lost().unwrap_or_else(|| cause.to_string()),
        _ => cause.to_string(),
    };
    exception(py, cause, &message, &error.path)
}

/// The message of a `Lost` that a panic caused.
fn lost() -> Option<String> {
    panics::last().map(|said| format!("foretell itself failed: {said}; please report this line"))
}

/// Calls `act` for Python; a panic becomes an exception.
pub(crate) fn guarded<T>(py: Python<'_>, act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // State that `act` left half changed is foretell's own, behind locks that ignore poisoning.
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|_| Err(of_panic(py)))
}

/// The exception of a call in which foretell panicked.
fn of_panic(py: Python<'_>) -> PyErr {
    let message = lost().unwrap_or_else(|| "foretell itself failed".to_owned());
    let class = py.import("foretell._errors").and_then(|module| module.getattr("Error"));
    match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
        Ok(class) => PyErr::from_type(class, (EIO, one_line(&message))),
        Err(error) => error,
    }
}

/// The exception for a path that no object can have, because it is not UTF-8.
pub(crate) fn of_name(py: Python<'_>, path: &OsStr) -> PyErr {
    let message = format!("no object has such a name: {path:?} is not UTF-8");
    let class = py.import("foretell._errors").and_then(|module| module.getattr("NotFound"));
    match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
        Ok(class) => PyErr::from_type(class, (ENOENT, message, path.to_owned())),
        Err(error) => error,
    }
}

pub(crate) fn of_read(py: Python<'_>, error: &ReadError) -> PyErr {
    let cause = match &error.cause {
        BackendError::Lost => lost().unwrap_or_else(|| error.cause.to_string()),
        cause => cause.to_string(),
    };
    let message = format!("{cause} (at byte {})", error.offset_bytes);
    exception(py, &error.cause, &message, &error.path)
}

pub(crate) fn of_backend(py: Python<'_>, cause: &BackendError, path: &str) -> PyErr {
    exception(py, cause, &cause.to_string(), path)
}

pub(crate) fn of_address(error: &AddressError) -> PyErr {
    PyValueError::new_err(one_line(&error.to_string()))
}

pub(crate) fn of_cache(error: &CacheError) -> PyErr {
    let message = one_line(&error.to_string());
    match error {
        CacheError::Memory { .. } => PyMemoryError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

/// The exception for the cause of this name; with `place`, for an open in a store at that address. For tests.
#[pyfunction]
#[pyo3(name = "_error_of", signature = (cause, place=None))]
pub(crate) fn error_of(py: Python<'_>, cause: &str, place: Option<&str>) -> PyResult<Py<PyAny>> {
    let words: Arc<str> = "in its\nown words".into();
    let cause = match cause {
        "not-found" => BackendError::NotFound,
        "denied" => BackendError::Denied(words),
        "busy" => BackendError::Busy(words),
        "changed" => BackendError::Changed,
        "timeout" => BackendError::Timeout(Duration::from_secs(60)),
        "lost" => BackendError::Lost,
        "other" => BackendError::Other { errno: None, message: words },
        "gone" => BackendError::Other { errno: None, message: "no connection: refused".into() },
        "errno" => BackendError::Other { errno: Some(28), message: words },
        _ => return Err(PyValueError::new_err(format!("{cause}: no such cause"))),
    };
    let error = match place {
        None => of_backend(py, &cause, "a/path"),
        Some(place) => of_open(py, &OpenError { path: "a/path".into(), cause }, place),
    };
    Ok(error.into_value(py).into_any())
}
