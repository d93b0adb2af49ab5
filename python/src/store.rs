//! A store, with a cache of its own, and files that are being opened.
//!
//! What a store is made of is written down in it, so that a child of the process makes it anew when it first uses it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foretell_cache::backend::Backend;
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::{Cache, CacheOptions, OpenError, Session, backend::BackendError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::completions::{Completions, Ended};
use crate::errors;
use crate::process::OfProcess;
use crate::wait::{LOOK_EVERY, signal};

/// Of Linux's `errno.h`.
const EISDIR: i32 = 21;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    Objects,
}

/// What a store is made of.
struct Recipe {
    kind: Kind,
    /// An address, or the path of a folder.
    place: String,
    options: CacheOptions,
    depth: Option<usize>,
    deadline: Duration,
    settings: Vec<(String, String)>,
}

/// One process's store.
pub(crate) struct Live {
    cache: Cache,
    pub(crate) session: Session,
}

impl Recipe {
    fn make(&self, py: Python<'_>) -> PyResult<Live> {
        let cache = Cache::new(self.options).map_err(|error| errors::of_cache(&error))?;
        let backend: Arc<dyn Backend> = match self.kind {
            Kind::Folder => Arc::new(
                LocalBackend::new(&self.place, self.depth)
                    .map_err(|error| errors::of_backend(py, &error.into(), &self.place))?,
            ),
            Kind::Objects => {
                let standard = ObjectOptions::default();
                let depth = self.depth.unwrap_or(standard.depth);
                let silence = standard.silence.min(self.deadline);
                let options = ObjectOptions { depth, deadline: self.deadline, silence };
                let settings = self.settings.iter();
                let settings: Vec<(&str, &str)> =
                    settings.map(|(name, value)| (name.as_str(), value.as_str())).collect();
                Arc::new(
                    ObjectBackend::configured(&self.place, &settings, options)
                        .map_err(|error| errors::of_address(&error))?,
                )
            }
        };
        let session = cache.attach(backend).session();
        Ok(Live { cache, session })
    }
}

/// Base of `foretell.Store`.
#[pyclass(subclass, frozen, module = "foretell._foretell")]
pub(crate) struct Store {
    recipe: Recipe,
    /// `None` once it is closed.
    live: Mutex<Option<Arc<OfProcess<Live>>>>,
}

impl Store {
    /// What is used in this process, made anew if this is a child of who made it.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Arc<OfProcess<Live>>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = live.as_ref() else {
            return Err(PyRuntimeError::new_err("the store is closed"));
        };
        if known.get().is_none() {
            *live = Some(Arc::new(OfProcess::new(self.recipe.make(py)?)));
        }
        Ok(Arc::clone(live.as_ref().expect("it is there")))
    }

    /// Opens a file; waits.
    pub(crate) fn open_now(&self, py: Python<'_>, path: String) -> PyResult<Opening> {
        if self.recipe.kind == Kind::Objects || path.is_empty() {
            return self.begin_open(py, path, None);
        }
        let live = self.live(py)?;
        let session = &live.get().expect("of this process").session;
        let opened = py.detach(|| session.open(&path));
        Ok(Opening {
            path,
            place: self.recipe.place.clone(),
            state: Mutex::new(State::Here(OfProcess::new(opened))),
        })
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (place, is_folder, budget_bytes, block_bytes, depth, deadline_s, settings))]
    #[expect(clippy::too_many_arguments, reason = "called by Python's part alone, by name")]
    fn new(
        py: Python<'_>,
        place: String,
        is_folder: bool,
        budget_bytes: u64,
        block_bytes: usize,
        depth: Option<usize>,
        deadline_s: f64,
        settings: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let recipe = Recipe {
            kind: if is_folder { Kind::Folder } else { Kind::Objects },
            place,
            options: CacheOptions { budget_bytes, block_bytes },
            depth,
            deadline: Duration::from_secs_f64(deadline_s),
            settings,
        };
        let live = Mutex::new(Some(Arc::new(OfProcess::new(recipe.make(py)?))));
        Ok(Store { recipe, live })
    }

    /// Begins to open a file; does not wait. `told` are completions and the number that they are told when it has been
    /// opened, or could not be.
    #[pyo3(signature = (path, told=None))]
    fn begin_open(
        &self,
        py: Python<'_>,
        path: String,
        told: Option<(Bound<'_, Completions>, u64)>,
    ) -> PyResult<Opening> {
        let told = match told {
            Some((completions, token)) => Some((Arc::clone(completions.get().queue()?), token)),
            None => None,
        };
        let live = self.live(py)?;
        if path.is_empty() {
            let message = format!("it is {} itself, not a file in it", self.recipe.place);
            let cause = BackendError::Other { errno: Some(EISDIR), message: message.into() };
            return Err(errors::of_backend(py, &cause, &path));
        }
        let session = live.get().expect("of this process").session.clone();
        let (answer, answered) = sync_channel(1);
        let at = path.clone();
        std::thread::Builder::new()
            .name("foretell-open".to_owned())
            .spawn(move || {
                // Whoever asked may not wait any more. The file is closed in that case.
                let _ = answer.send(session.open(&at));
                if let Some((queue, token)) = told {
                    queue.put(token, Ended::Open);
                }
            })
            .map_err(|error| errors::of_backend(py, &error.into(), &path))?;
        let place = self.recipe.place.clone();
        Ok(Opening {
            path,
            place,
            state: Mutex::new(State::Coming(OfProcess::new(Mutex::new(answered)))),
        })
    }

    /// Bytes of a block.
    #[getter]
    fn block_bytes(&self) -> usize {
        self.recipe.options.block_bytes
    }

    fn _stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let live = self.live(py)?;
        let cache = &live.get().expect("of this process").cache;
        let stats = py.detach(|| cache.stats());
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
        Ok(counts)
    }

    fn _close(&self) {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(live);
    }
}

type Opened = Result<Arc<foretell_cache::File>, OpenError>;

enum State {
    Coming(OfProcess<Mutex<Receiver<Opened>>>),
    Here(OfProcess<Opened>),
    Taken,
}

/// A file that is being opened.
#[pyclass(frozen, module = "foretell._foretell")]
pub(crate) struct Opening {
    path: String,
    /// The store's address.
    place: String,
    state: Mutex<State>,
}

#[pymethods]
impl Opening {
    /// Whether the answer has come, so that nobody would wait for it. Does not wait.
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
    /// Waits until it is open. Once.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Arc<foretell_cache::File>> {
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
                py.detach(|| {
                    let answered = answered.lock().unwrap_or_else(PoisonError::into_inner);
                    loop {
                        match answered.recv_timeout(LOOK_EVERY) {
                            Ok(opened) => return Ok(opened),
                            Err(RecvTimeoutError::Timeout) => {}
                            Err(RecvTimeoutError::Disconnected) => {
                                let path = self.path.as_str().into();
                                return Ok(Err(OpenError { path, cause: BackendError::Lost }));
                            }
                        }
                        if let Some(raised) = signal() {
                            return Err(raised);
                        }
                    }
                })?
            }
        };
        opened.map_err(|error| errors::of_open(py, &error, &self.place))
    }
}
