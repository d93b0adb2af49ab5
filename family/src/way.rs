//! How a store reads: through a cache of its own, through one that it shares as the process that has it, or through that of
//! another process.
//!
//! Stores of one user that read the same with the same rights are a *family*. The first process of a family that makes a store
//! has the cache, and the others are its clients. If it ends, each client opens its files in a cache of its own, and the next
//! store or file that is made finds the family anew.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use foretell_cache::backend::{Backend, BackendError, Opened};
use foretell_cache::share::{
    At, EitherFile, EitherStream, FarSession, Name, Refusal, Served, Server, Unjoined,
};
use foretell_cache::{Cache, CacheError, CacheOptions, OpenError, Session, Stats};

use crate::host;
use crate::recipe::Recipe;
use crate::secret::Secret;
use crate::sharing::{self, CacheOf, Sharing};

/// Opens the file at a path of the back end, and waits.
pub type Open = Arc<dyn Fn(&OsStr) -> Result<Opened, BackendError> + Send + Sync>;

/// A cache of this process.
struct Own {
    cache: Cache,
    block_bytes: usize,
    session: Session,
    open: Open,
    /// Answers other processes, if they share it.
    _server: Option<Server>,
}

/// How a store reads: through a cache of this process, or through that of another one. A clone is the same.
#[derive(Clone)]
pub struct Way(Where, Arc<Sharing>);

#[derive(Clone)]
enum Where {
    Here(Arc<Own>),
    There { session: FarSession, fallback: Arc<Fallback> },
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Where::Here(_) => "Way(Here)",
            Where::There { .. } => "Way(There)",
        })
    }
}

/// A cache of this process that is made if the other process ends.
struct Fallback {
    options: CacheOptions,
    backend: Arc<dyn Backend>,
    open: Open,
    own: Mutex<Option<Arc<Own>>>,
}

/// How much longer than a store's own deadline a process waits for the one that has the shared cache.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names of a family. More than the first are needed only while children hold those of servers that have ended.
const TRIES: usize = 5;

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
    fn stats(&self) -> Option<Stats> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        own.map(|own| own.cache.stats())
    }

    fn open(&self, path: &OsStr) -> Result<Arc<foretell_cache::File>, OpenError> {
        // Held while it is made, so that many readers make one.
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = &*known {
            let own = Arc::clone(own);
            drop(known);
            return own.open(path);
        }
        let own = own((self.options, Cache::new(self.options)), &self.backend, &self.open)
            .map_err(|error| {
                let (errno, message) = (None, error.to_string().into());
                OpenError {
                    path: path.to_string_lossy().into(),
                    cause: BackendError::Other { errno, message },
                }
            })?;
        let own = Arc::clone(known.insert(Arc::new(own)));
        drop(known);
        own.open(path)
    }
}

fn own(
    (options, cache): (CacheOptions, Result<Cache, CacheError>),
    backend: &Arc<dyn Backend>,
    open: &Open,
) -> Result<Own, CacheError> {
    let cache = cache?;
    let session = cache.attach(Arc::clone(backend)).session();
    let block_bytes = options.block_bytes;
    Ok(Own { cache, block_bytes, session, open: Arc::clone(open), _server: None })
}

impl Way {
    /// A way to read what a recipe names, which has been opened as this back end and can be opened by `open`.
    ///
    /// # Errors
    /// Those of a cache of this process.
    pub fn new(recipe: &Recipe, backend: Arc<dyn Backend>, open: Open) -> Result<Self, CacheError> {
        let options = recipe.options;
        options.check()?;
        let alone = |refusal| {
            let own = own((options, Cache::new(options)), &backend, &open)?;
            let sharing = Sharing { cache: CacheOf::Alone, refusal };
            Ok(Way(Where::Here(Arc::new(own)), Arc::new(sharing)))
        };
        // The process that has the cache answers within this time, or counts as ended.
        let patience = recipe.deadline + PATIENCE;
        let there = |session, cache, refusal| {
            let (backend, open) = (Arc::clone(&backend), Arc::clone(&open));
            let fallback = Arc::new(Fallback { options, backend, open, own: Mutex::new(None) });
            Way(Where::There { session, fallback }, Arc::new(Sharing { cache, refusal }))
        };
        let mut refusal = None;
        if recipe.is_shared {
            match of_daemon(recipe, patience) {
                Ok(session) => return Ok(there(session, CacheOf::Daemon, None)),
                Err(why) => refusal = why,
            }
        }
        if recipe.is_shared {
            let Some(secret) = Secret::find() else {
                let why = "it is not shared: neither XDG_RUNTIME_DIR/foretell nor /tmp/foretell-UID can be made a folder of \
                           this user alone";
                return alone(Some(Refusal::mendable(why)));
            };
            let family = recipe.family();
            // A client proves that it knows the family, as does a server by its name.
            let (name, proof) =
                (secret.hash_of(&family, 0), secret.hash_of(&family, 1).to_ne_bytes());
            // A name may be held by a child of a server that has ended.
            for number in 0..TRIES {
                let name = format!("family-{name:032x}-{number}");
                if let Ok(session) = FarSession::connect(&name, &proof, patience) {
                    return Ok(there(session, CacheOf::Other, refusal));
                }
                let Ok(Some(name)) = Name::take(&name) else { continue };
                return match serving(options, &backend, &open, (name, proof)) {
                    Ok(own) => {
                        let sharing = Sharing { cache: CacheOf::Here, refusal };
                        Ok(Way(Where::Here(Arc::new(own)), Arc::new(sharing)))
                    }
                    // Without the memory or a thread for it, it is a cache of this process alone.
                    Err(why) => alone(Some(Refusal::final_one(format!("it is not shared: {why}")))),
                };
            }
            let why = "it is not shared: children of processes that have ended hold its sockets";
            refusal = Some(Refusal::final_one(why));
        }
        alone(refusal)
    }

    /// Which cache it is, and why not another one.
    pub fn sharing(&self) -> &Sharing {
        &self.1
    }

    /// Whether the other process has ended, so that another way should be sought.
    pub fn is_lost(&self) -> bool {
        matches!(&self.0, Where::There { session, .. } if session.is_lost())
    }

    /// Opens the current version of a file, and waits.
    ///
    /// # Errors
    /// The back end's error.
    pub fn open(&self, path: &OsStr) -> Result<EitherFile, OpenError> {
        match &self.0 {
            Where::Here(own) => Ok(EitherFile::Here(own.open(path)?)),
            Where::There { session, fallback } => {
                let (kept, at) = (Arc::clone(fallback), path.to_owned());
                match session.open(path.as_bytes()) {
                    Err(error) if error.cause == BackendError::Lost && session.is_lost() => {
                        Ok(EitherFile::Here(fallback.open(path)?))
                    }
                    // The other process has no descriptors, threads or memory left; this one may have.
                    Err(OpenError {
                        cause: BackendError::Other { errno: Some(errno), .. },
                        ..
                    }) if [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM]
                        .contains(&errno) =>
                    {
                        Ok(EitherFile::Here(fallback.open(path)?))
                    }
                    file => Ok(EitherFile::there(file?, Arc::new(move || kept.open(&at)))),
                }
            }
        }
    }

    /// A stream of hints.
    pub fn stream(&self) -> EitherStream {
        match &self.0 {
            Where::Here(own) => EitherStream::Here(own.session.stream()),
            Where::There { session, .. } => EitherStream::There(session.stream()),
        }
    }

    /// Bytes of a block of the cache.
    pub fn block_bytes(&self) -> usize {
        match &self.0 {
            Where::Here(own) => own.block_bytes,
            Where::There { session, .. } => session.block_bytes(),
        }
    }

    /// Counts of the cache: of all who share it.
    pub fn stats(&self) -> Stats {
        match &self.0 {
            Where::Here(own) => own.cache.stats(),
            Where::There { session, fallback } => {
                session.stats().or_else(|| fallback.stats()).unwrap_or_default()
            }
        }
    }
}

/// A daemon that did not answer is left alone for so long.
const SILENT_FOR: Duration = Duration::from_secs(30);

/// Since when a daemon has not answered.
struct Silence(Mutex<Option<Instant>>);

impl Silence {
    /// What a daemon answers. One that was silent is not asked for a while. A late refusal is an answer.
    fn ask<T>(&self, ask: impl FnOnce() -> Result<T, Unjoined>) -> Result<T, Unjoined> {
        let since = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since().is_some_and(|since| since.elapsed() < SILENT_FOR) {
            return Err(Unjoined::Silent);
        }
        let answer = ask();
        *since() = matches!(answer, Err(Unjoined::Silent)).then(Instant::now);
        answer
    }
}

/// The cache of the user's daemon. The error is empty if no daemon is wanted.
fn of_daemon(recipe: &Recipe, patience: Duration) -> Result<FarSession, Option<Refusal>> {
    static SILENCE: Silence = Silence(Mutex::new(None));
    let socket = host::socket().ok_or_else(sharing::of_no_daemon)?;
    if let Some(name) = recipe.relative() {
        let why = format!(
            "the daemon's cache is not used: {name} is a relative path, and the daemon has another working folder: \
             make it absolute"
        );
        return Err(Some(Refusal::mendable(why)));
    }
    let ask = || FarSession::connect_to(At::Path(&socket), &recipe.told(), patience);
    SILENCE.ask(ask).map_err(sharing::of_daemon)
}

/// A cache of this process that answers others of the family.
fn serving(
    options: CacheOptions,
    backend: &Arc<dyn Backend>,
    open: &Open,
    (name, proof): (Name, [u8; 16]),
) -> Result<Own, String> {
    let cache = Cache::new_shared(options).map_err(|error| error.to_string())?;
    let store = cache.attach(Arc::clone(backend));
    let session = store.session();
    let opens = Arc::clone(open);
    let server = Server::start(&cache, name, move |asked| {
        if asked != proof {
            return Err(BackendError::NotFound);
        }
        let open = Arc::clone(&opens);
        let open = move |path: &[u8]| open(&OsString::from_vec(path.to_vec()));
        Ok(Served { store: store.clone(), open: Arc::new(open) })
    });
    let server = Some(server.map_err(|error| error.to_string())?);
    let block_bytes = options.block_bytes;
    Ok(Own { cache, block_bytes, session, open: Arc::clone(open), _server: server })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_refusal_is_no_silence() {
        let silence = Silence(Mutex::new(None));
        let refused = || Unjoined::Refused(Some(Refusal::final_one("no")));
        let late: Result<(), _> = silence.ask(|| {
            std::thread::sleep(Duration::from_millis(1100));
            Err(refused())
        });
        assert!(matches!(late, Err(Unjoined::Refused(_))));
        assert!(silence.ask(|| Ok(())).is_ok(), "it is asked again");
        assert!(silence.ask::<()>(|| Err(Unjoined::Silent)).is_err());
        let mut is_asked = false;
        let silent = silence.ask(|| {
            is_asked = true;
            Ok(())
        });
        assert!(matches!(silent, Err(Unjoined::Silent)) && !is_asked, "it is left alone");
    }
}
