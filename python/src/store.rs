//! A store with its own cache, and files that are being opened.
//!
//! A store keeps a recipe of itself. A forked child makes it anew from the recipe when it first uses it.

use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::{self, Addressed, BackendError};
use foretell_cache::share::{EitherFile, EitherStream};
use foretell_cache::{CacheOptions, OpenError};
use foretell_family::{CacheOf, Place, Recipe, Source, SourceError, Way};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::completions::{Completions, Ended, Queue};
use crate::errors::{self, guarded};
use crate::listing::{Listed, Told, told};
use crate::process::OfProcess;
use crate::wait::{answer_of, in_thread, released};

/// From Linux's `errno.h`.
const EISDIR: i32 = 21;

/// Opens a file of a source, and waits. The caller has checked that an object's name is UTF-8.
fn open_in(source: &Source, path: &OsStr) -> Result<backend::Opened, BackendError> {
    let found = source.open(path);
    #[cfg(debug_assertions)]
    let found = found.map(crate::faults::opened);
    found
}

/// The parts of a store that belong to one process.
pub(crate) struct Live {
    way: Way,
    source: Source,
}

impl Live {
    pub(crate) fn stream(&self) -> EitherStream {
        self.way.stream()
    }
}

/// Makes the parts of a store for this process.
fn make(recipe: &Recipe, py: Python<'_>) -> PyResult<Live> {
    let source = Source::of(recipe, None).map_err(|error| match error {
        SourceError::Folder(error) => {
            errors::of_backend(py, &error.into(), &recipe.place.as_os_str().to_string_lossy())
        }
        SourceError::Address(error) => errors::of_address(&error),
    })?;
    source.tell_troubles();
    let from = source.clone();
    let open = Arc::new(move |path: &OsStr| open_in(&from, path));
    let way = released(py, || Way::new(recipe, source.backend(), open));
    Ok(Live { way: way.map_err(|error| errors::of_cache(&error))?, source })
}

/// Base of `foretell.Store`.
#[pyclass(subclass, frozen, module = "foretell._foretell")]
pub(crate) struct Store {
    recipe: Recipe,
    /// `None` once it is closed.
    live: Mutex<Option<Arc<OfProcess<Live>>>>,
}

impl Store {
    /// The parts for this process, made anew in a forked child.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Arc<OfProcess<Live>>> {
        loop {
            let known = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(known) = known else {
                return Err(PyRuntimeError::new_err("the store is closed"));
            };
            if known.get().is_some_and(|live| !live.way.is_lost()) {
                return Ok(known);
            }
            // Without the lock, since this releases the interpreter. Of two threads that make it, one makes it in vain.
            let made = Arc::new(OfProcess::new(make(&self.recipe, py)?));
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            let is_known = live.as_ref().is_some_and(|live| Arc::ptr_eq(live, &known));
            let left = if is_known { live.replace(made) } else { Some(made) };
            drop(live);
            released(py, || drop((left, known))); // It may wait for threads.
        }
    }

    /// Opens a file, and waits.
    pub(crate) fn open_now(&self, py: Python<'_>, path: OsString) -> PyResult<Opening> {
        if self.is_objects() || path.is_empty() {
            return self.begin(py, path, None);
        }
        let live = self.live(py)?;
        let live = live.get().expect("of this process");
        let opened = released(py, || live.way.open(&path));
        Ok(Opening {
            path,
            place: self.place(),
            is_borrowed: false,
            state: Mutex::new(State::Here(OfProcess::new(opened))),
        })
    }

    /// A handle on a file that was opened for somebody else.
    pub(crate) fn opening_of(&self, path: OsString, file: EitherFile) -> Opening {
        let state = Mutex::new(State::Here(OfProcess::new(Ok(file))));
        Opening { path, place: self.place(), is_borrowed: true, state }
    }

    /// The address, for errors.
    fn place(&self) -> String {
        self.recipe.place.as_os_str().to_string_lossy().into_owned()
    }

    fn is_objects(&self) -> bool {
        matches!(self.recipe.place, Place::Address(_))
    }

    /// The part of a file's version that can be compared in other processes and on other machines.
    pub(crate) fn shared_version<'a>(&self, version: &'a [u8]) -> &'a [u8] {
        match self.recipe.place {
            Place::Folder(_) => LocalBackend::shared_version(version),
            Place::Address(_) => version,
        }
    }

    /// The name of an object, which must be UTF-8.
    fn key(&self, py: Python<'_>, path: &OsStr) -> PyResult<String> {
        path.to_str().map(str::to_owned).ok_or_else(|| errors::of_name(py, path))
    }

    /// Calls `ask` with the object store in a new thread, and waits.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        path: &OsStr,
        ask: impl FnOnce(&Arc<dyn Addressed>, &str) -> Result<T, BackendError> + Send + 'static,
    ) -> PyResult<T> {
        let key = self.key(py, path)?;
        let live = self.live(py)?;
        let Source::Objects(objects, _) = &live.get().expect("of this process").source else {
            return Err(PyRuntimeError::new_err("a folder is asked by Python"));
        };
        let (objects, at) = (Arc::clone(objects), key.clone());
        let found = in_thread(py, "foretell-ask", move || ask(&objects, &at))?;
        found.unwrap_or(Err(BackendError::Lost)).map_err(|cause| {
            errors::of_open(py, &OpenError { path: key.into(), cause }, &self.place())
        })
    }

    fn begin(
        &self,
        py: Python<'_>,
        path: OsString,
        told: Option<(Arc<Queue>, u64)>,
    ) -> PyResult<Opening> {
        let live = self.live(py)?;
        if path.is_empty() {
            let message = format!("it is {} itself, not a file in it", self.place());
            let cause = BackendError::Other { errno: Some(EISDIR), message: message.into() };
            return Err(errors::of_backend(py, &cause, ""));
        }
        if self.is_objects() {
            self.key(py, &path)?;
        }
        let live = live.get().expect("of this process");
        let way = live.way.clone();
        let (answer, answered) = sync_channel(1);
        let at = path.clone();
        std::thread::Builder::new()
            .name("foretell-open".to_owned())
            .spawn(move || {
                // Dropped last, also on a panic: the notified caller finds the answer, or that there is none.
                let _tell = Tell(told);
                let answer = answer;
                // The caller may have stopped waiting. Then the file is closed here.
                let _ = answer.send(way.open(&at));
            })
            .map_err(|error| errors::of_backend(py, &error.into(), &path.to_string_lossy()))?;
        let state = Mutex::new(State::Coming(OfProcess::new(Mutex::new(answered))));
        Ok(Opening { path, place: self.place(), is_borrowed: false, state })
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (place, is_folder, budget_bytes, block_bytes, depth, deadline_s, settings, is_shared, tier))]
    #[expect(clippy::too_many_arguments, reason = "called by Python's part alone, by name")]
    fn new(
        py: Python<'_>,
        place: OsString,
        is_folder: bool,
        budget_bytes: u64,
        block_bytes: usize,
        depth: Option<usize>,
        deadline_s: f64,
        settings: Vec<(String, String)>,
        is_shared: bool,
        tier: Option<String>,
    ) -> PyResult<Self> {
        let place = match is_folder {
            true => Place::Folder(place.into()),
            false => Place::Address(place.into_string().map_err(|place| {
                PyValueError::new_err(format!("the address {place:?} is not UTF-8"))
            })?),
        };
        let recipe = Recipe {
            place,
            options: CacheOptions { budget_bytes, block_bytes },
            depth,
            deadline: Duration::from_secs_f64(deadline_s),
            settings,
            is_shared,
            tier,
        };
        let live = guarded(py, || make(&recipe, py))?;
        Ok(Store { recipe, live: Mutex::new(Some(Arc::new(OfProcess::new(live)))) })
    }

    /// Begins to open a file, without waiting. `told` names the completions and the token that they get when it is open or has
    /// failed.
    #[pyo3(signature = (path, told=None))]
    fn begin_open(
        &self,
        py: Python<'_>,
        path: OsString,
        told: Option<(Bound<'_, Completions>, u64)>,
    ) -> PyResult<Opening> {
        let told = match told {
            Some((completions, token)) => Some((Arc::clone(completions.get().queue()?), token)),
            None => None,
        };
        guarded(py, || self.begin(py, path, told))
    }

    /// What an object store tells of the object at `path`.
    fn _file(&self, py: Python<'_>, path: OsString) -> PyResult<Told> {
        guarded(py, || {
            let file = self.ask(py, &path, |store, key| store.find_file(key))?;
            Ok(told(&file))
        })
    }

    /// Whether an object store has anything below `path`.
    fn _is_folder(&self, py: Python<'_>, path: OsString) -> PyResult<bool> {
        guarded(py, || self.ask(py, &path, |store, key| store.is_folder(key)))
    }

    /// Whether a recursive listing of a whole object store would return invalid names.
    fn _has_keys_without_a_root(&self, py: Python<'_>) -> PyResult<bool> {
        let ask = |store: &Arc<dyn Addressed>, _: &str| store.has_keys_without_a_root();
        guarded(py, || self.ask(py, OsStr::new(""), ask))
    }

    /// Lists an object store below `path`: up to the next slash, or everything.
    fn _list(&self, py: Python<'_>, path: OsString, is_recursive: bool) -> PyResult<Listed> {
        guarded(py, || {
            let pages = self
                .ask(py, &path, move |store, key| Arc::clone(store).list_keys(key, is_recursive))?;
            let pages = OfProcess::new(Arc::new(Mutex::new(pages)));
            Ok(Listed { pages, path, place: self.place() })
        })
    }

    /// Size of a block, in bytes: that of the cache, which may be a daemon's.
    #[getter]
    fn block_bytes(&self) -> usize {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let of_cache = live.as_ref().and_then(|live| Some(live.get()?.way.block_bytes()));
        of_cache.unwrap_or(self.recipe.options.block_bytes)
    }

    /// Whose cache it is, why not another one, and whether the user can mend that.
    fn _sharing(&self, py: Python<'_>) -> PyResult<(&'static str, Option<String>, bool)> {
        let live = self.live(py)?;
        let sharing = live.get().expect("of this process").way.sharing();
        let cache = match sharing.cache {
            CacheOf::Alone => "alone",
            CacheOf::Here => "here",
            CacheOf::Other => "other",
            CacheOf::Daemon => "daemon",
        };
        let why = sharing.refusal.as_ref().map(|refusal| refusal.why.clone());
        Ok((cache, why, sharing.to_mend().is_some()))
    }

    fn _stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let live = self.live(py)?;
        let Live { way, source } = live.get().expect("of this process");
        let stats = guarded(py, || Ok(released(py, || way.stats())))?;
        let counts = PyDict::new(py);
        for (name, count) in [
            ("hit_blocks", stats.hit_blocks),
            ("joined_blocks", stats.joined_blocks),
            ("demanded_blocks", stats.demanded_blocks),
            ("passed_by_blocks", stats.passed_by_blocks),
            ("prefetched_blocks", stats.prefetched_blocks),
            ("useful_blocks", stats.useful_blocks),
            ("late_blocks", stats.late_blocks),
            ("wasted_blocks", stats.wasted_blocks),
            ("requests", stats.requests),
            ("requests_ahead", stats.requests_ahead),
            ("requests_failed", stats.requests_failed),
            ("fetched_bytes", stats.fetched_bytes),
        ] {
            counts.set_item(name, count)?;
        }
        // Of a store whose cache another process has, that one has the tier.
        if let Some(fleet) = source.fleet().filter(|_| is_here(way)) {
            for (name, count) in fleet.stats().named() {
                counts.set_item(format!("tier_{name}"), count)?;
            }
        }
        Ok(counts)
    }

    fn _close(&self) {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(live);
    }
}

/// Whether this process has the cache.
fn is_here(way: &Way) -> bool {
    matches!(way.sharing().cache, CacheOf::Alone | CacheOf::Here)
}

type Opened = Result<EitherFile, OpenError>;

enum State {
    Coming(OfProcess<Mutex<Receiver<Opened>>>),
    Here(OfProcess<Opened>),
    Taken,
}

/// Notifies the caller, on drop, that a file is open or will not be.
struct Tell(Option<(Arc<Queue>, u64)>);

impl Drop for Tell {
    fn drop(&mut self) {
        if let Some((queue, token)) = self.0.take() {
            queue.put(token, Ended::Open);
        }
    }
}

/// A file that is being opened.
#[pyclass(frozen, module = "foretell._foretell")]
pub(crate) struct Opening {
    path: OsString,
    /// The store's address.
    place: String,
    /// Its file was opened for somebody else.
    pub(crate) is_borrowed: bool,
    state: Mutex<State>,
}

#[pymethods]
impl Opening {
    /// Whether the answer has arrived. Does not wait.
    fn is_ready(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Coming(answered) = &*state else { return true };
        let Some(answered) = answered.get() else { return true };
        let answer = answered.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
        match answer {
            Ok(opened) => {
                *state = State::Here(OfProcess::new(opened));
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => true,
        }
    }
}

impl Opening {
    /// Waits until the file is open, and takes it. Works once.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<EitherFile> {
        let state = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, State::Taken)
        };
        let forked = || PyRuntimeError::new_err("it was being opened before the process forked");
        let opened = match &state {
            State::Taken => return Err(PyRuntimeError::new_err("it has been taken")),
            State::Here(opened) => opened.get().ok_or_else(forked)?.clone(),
            State::Coming(answered) => {
                let answered = answered.get().ok_or_else(forked)?;
                let answer = released(py, || {
                    answer_of(&answered.lock().unwrap_or_else(PoisonError::into_inner))
                })?;
                let path = self.path.to_string_lossy();
                answer.unwrap_or(Err(OpenError { path: path.into(), cause: BackendError::Lost }))
            }
        };
        opened.map_err(|error| errors::of_open(py, &error, &self.place))
    }
}
