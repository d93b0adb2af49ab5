//! How a store reads: through a cache of its own, through one that it shares as the process that has it, or through that of
//! another process.
//!
//! Stores of one user that read the same with the same rights are a *family*. The first process of a family that makes a store
//! has the cache, and the others are its clients. If it ends, each client opens its files in a cache of its own, and the next
//! store or file that is made finds the family anew.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use foretell_cache::backend::{Backend, BackendError, Opened};
use foretell_cache::share::{EitherFile, EitherStream, FarSession, Served, Server};
use foretell_cache::{Cache, CacheError, CacheOptions, OpenError, Session, Stats};

/// Opens the file at a path of the back end, and waits.
type Open = Arc<dyn Fn(&OsStr) -> Result<Opened, BackendError> + Send + Sync>;

/// A cache of this process.
pub(crate) struct Own {
    cache: Cache,
    session: Session,
    open: Open,
    /// Answers other processes, if they share it.
    _server: Option<Server>,
}

/// See the [module](self). A clone is the same.
#[derive(Clone)]
pub(crate) enum Way {
    Here(Arc<Own>),
    There { session: FarSession, fallback: Arc<Fallback> },
}

/// A cache of this process that is made if the other process ends.
pub(crate) struct Fallback {
    options: CacheOptions,
    backend: Arc<dyn Backend>,
    open: Open,
    own: OnceLock<Own>,
}

/// Tries to have the cache of a family, or to find who has it. More are needed only if processes end meanwhile.
const TRIES: usize = 5;

/// FNV-1a, in 128 bits: names need no defence against chosen families, which are the user's own.
fn name_of(family: &[u8]) -> String {
    let hash = family.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("family-{hash:032x}")
}

impl Own {
    fn open(&self, path: &OsStr) -> Result<Arc<foretell_cache::File>, OpenError> {
        // A folder's name that is not UTF-8 is approximated in errors. Two files there never have the same version.
        let name = path.to_string_lossy();
        match (self.open)(path) {
            Ok(opened) => Ok(self.session.open_found(&name, opened)),
            Err(cause) => Err(OpenError { path: name.into(), cause }),
        }
    }
}

impl Fallback {
    fn open(&self, path: &OsStr) -> Result<Arc<foretell_cache::File>, OpenError> {
        if let Some(own) = self.own.get() {
            return own.open(path);
        }
        let own = own(Cache::new(self.options), &self.backend, &self.open).map_err(|error| {
            let (errno, message) = (None, error.to_string().into());
            OpenError {
                path: path.to_string_lossy().into(),
                cause: BackendError::Other { errno, message },
            }
        })?;
        self.own.get_or_init(|| own).open(path)
    }
}

fn own(
    cache: Result<Cache, CacheError>,
    backend: &Arc<dyn Backend>,
    open: &Open,
) -> Result<Own, CacheError> {
    let cache = cache?;
    let session = cache.attach(Arc::clone(backend)).session();
    Ok(Own { cache, session, open: Arc::clone(open), _server: None })
}

impl Way {
    /// A way to read what a back end has; stores of the same `family` share a cache. The process that has it answers within the
    /// given time, or counts as ended.
    pub(crate) fn new(
        options: CacheOptions,
        backend: Arc<dyn Backend>,
        open: Open,
        family: Option<(&[u8], Duration)>,
    ) -> Result<Self, CacheError> {
        if let Some((family, patience)) = family {
            let name = name_of(family);
            for _ in 0..TRIES {
                if let Ok(Some(session)) = FarSession::connect(&name, family, patience) {
                    let own = OnceLock::new();
                    let fallback = Arc::new(Fallback { options, backend, open, own });
                    return Ok(Way::There { session, fallback });
                }
                if let Some(own) = serving(options, &backend, &open, (&name, family))? {
                    return Ok(Way::Here(Arc::new(own)));
                }
            }
        }
        Ok(Way::Here(Arc::new(own(Cache::new(options), &backend, &open)?)))
    }

    /// Whether the other process has ended, so that another way should be sought.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Way::There { session, .. } if session.is_lost())
    }

    /// Opens the current version of a file, and waits.
    pub(crate) fn open(&self, path: &OsStr) -> Result<EitherFile, OpenError> {
        match self {
            Way::Here(own) => Ok(EitherFile::Here(own.open(path)?)),
            Way::There { session, fallback } => {
                let (kept, at) = (Arc::clone(fallback), path.to_owned());
                match session.open(path.as_bytes()) {
                    Err(error) if error.cause == BackendError::Lost && session.is_lost() => {
                        Ok(EitherFile::Here(fallback.open(path)?))
                    }
                    file => Ok(EitherFile::there(file?, Arc::new(move || kept.open(&at)))),
                }
            }
        }
    }

    pub(crate) fn stream(&self) -> EitherStream {
        match self {
            Way::Here(own) => EitherStream::Here(own.session.stream()),
            Way::There { session, .. } => EitherStream::There(session.stream()),
        }
    }

    /// Counts of the cache: of all who share it.
    pub(crate) fn stats(&self) -> Stats {
        match self {
            Way::Here(own) => own.cache.stats(),
            Way::There { session, fallback } => session
                .stats()
                .or_else(|| fallback.own.get().map(|own| own.cache.stats()))
                .unwrap_or_default(),
        }
    }
}

/// A cache of this process that answers others of the family; `None` if another process does so already.
fn serving(
    options: CacheOptions,
    backend: &Arc<dyn Backend>,
    open: &Open,
    (name, family): (&str, &[u8]),
) -> Result<Option<Own>, CacheError> {
    let cache = Cache::new_shared(options)?;
    let store = cache.attach(Arc::clone(backend));
    let session = store.session();
    let (family, opens) = (family.to_vec(), Arc::clone(open));
    let server = Server::start(&cache, name, move |asked| {
        if asked != family {
            return Err(BackendError::NotFound);
        }
        let open = Arc::clone(&opens);
        let open = move |path: &[u8]| open(&OsString::from_vec(path.to_vec()));
        Ok(Served { store: store.clone(), open: Arc::new(open) })
    });
    match server {
        Ok(Some(server)) => {
            Ok(Some(Own { cache, session, open: Arc::clone(open), _server: Some(server) }))
        }
        Ok(None) => Ok(None),
        // Without a socket or a thread it is a cache of this process alone.
        Err(_) => Ok(Some(Own { cache, session, open: Arc::clone(open), _server: None })),
    }
}
