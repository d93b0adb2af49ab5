//! Listings of an object store, and facts about its objects.
//!
//! A separate thread waits for each answer, so that Ctrl-C ends the wait.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use foretell_cache::OpenError;
use foretell_cache::backend::{BackendError, Entry, FileInfo, Found, Listing};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::{self, guarded};
use crate::process::OfProcess;
use crate::wait::{in_thread, released};

/// Size in bytes, time of change in seconds since 1970, and the store's tag of the version.
pub(crate) type Told = (u64, Option<f64>, Option<String>);

pub(crate) fn told(file: &FileInfo) -> Told {
    let modified = file.modified.map(|time| match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    });
    (file.size_bytes, modified, file.tag.as_deref().map(str::to_owned))
}

type Pages = Arc<Mutex<Box<dyn Listing>>>;

/// A listing in progress.
#[pyclass(frozen, module = "foretell._foretell", name = "Listing")]
pub(crate) struct Listed {
    pub(crate) pages: OfProcess<Pages>,
    pub(crate) path: OsString,
    pub(crate) place: String,
}

impl Listed {
    fn pages(&self) -> PyResult<&Pages> {
        let forked = || PyRuntimeError::new_err("the listing was begun before a fork");
        self.pages.get().ok_or_else(forked)
    }
}

#[pymethods]
impl Listed {
    /// The next entries: names, with the facts of a file or `None` for a folder. An empty list at the end.
    fn next_entries(&self, py: Python<'_>) -> PyResult<Vec<(String, Option<Told>)>> {
        guarded(py, || {
            let pages = Arc::clone(self.pages()?);
            let found = in_thread(py, "foretell-list", move || {
                pages.lock().unwrap_or_else(PoisonError::into_inner).next_entries()
            })?;
            let entries = found.unwrap_or(Err(BackendError::Lost)).map_err(|cause| {
                let path = self.path.to_string_lossy().into();
                errors::of_open(py, &OpenError { path, cause }, &self.place)
            })?;
            Ok(entries.into_iter().map(named).collect())
        })
    }

    /// Number of keys left out so far because no path can name them, and the first of them.
    fn left_out(&self, py: Python<'_>) -> PyResult<(u64, Option<String>)> {
        let pages = self.pages()?;
        let left_out =
            released(py, || pages.lock().unwrap_or_else(PoisonError::into_inner).left_out());
        Ok((left_out.count, left_out.example))
    }
}

fn named(entry: Entry) -> (String, Option<Told>) {
    let told = match entry.found {
        Found::File(file) => Some(told(&file)),
        Found::Folder => None,
        // Object stores have nothing else.
        _ => Some((0, None, None)),
    };
    (entry.name, told)
}
