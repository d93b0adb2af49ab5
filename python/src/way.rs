//! How a store reads: through a cache of its own, through one that it shares as the process that has it, or through that of
//! another process.
//!
//! Stores of one user that read the same with the same rights are a *family*. The first process of a family that makes a store
//! has the cache, and the others are its clients. If it ends, each client opens its files in a cache of its own, and the next
//! store or file that is made finds the family anew.

use std::ffi::{OsStr, OsString};
#[expect(deprecated, reason = "the hasher that takes its place has a fixed key")]
use std::hash::{Hasher, SipHasher};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foretell_cache::backend::{Backend, BackendError, Opened};
use foretell_cache::share::{EitherFile, EitherStream, FarSession, Name, Served, Server};
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
    own: Mutex<Option<Arc<Own>>>,
}

/// Names of a family. More than the first are needed only while children hold those of servers that have ended.
const TRIES: usize = 5;

/// A hash of the family that says nothing of what is in it, such as credentials: names of sockets are public. The key is a
/// secret of the user.
fn hash_of(family: &[u8], (key, use_of): (u128, u8)) -> u128 {
    let half = |number: u8| {
        #[expect(deprecated, reason = "the hasher that takes its place has a fixed key")]
        let mut hasher = SipHasher::new_with_keys(key as u64, (key >> 64) as u64);
        hasher.write(&[use_of, number]);
        hasher.write(family);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// The user's secret, made at its first use; `None` without a folder for it.
fn secret() -> Option<u128> {
    let user = effective_user();
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|at| at.is_absolute());
    let folder =
        runtime.map_or_else(|| format!("/tmp/foretell-{user}").into(), |at| at.join("foretell"));
    let _ = std::fs::DirBuilder::new().mode(0o700).create(&folder);
    let about = std::fs::symlink_metadata(&folder).ok()?;
    if !about.is_dir() || about.uid() != user || about.mode() & 0o022 != 0 {
        return None;
    }
    let (at, new) =
        (folder.join("share.key"), folder.join(format!("share.key.{}", std::process::id())));
    let read = || {
        let about = std::fs::symlink_metadata(&at).ok()?;
        let is_own = about.is_file() && about.uid() == user && about.mode() & 0o077 == 0;
        let bytes = std::fs::read(&at).ok().filter(|_| is_own)?;
        Some(u128::from_ne_bytes(bytes.try_into().ok()?))
    };
    read().or_else(|| {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new).ok()?;
        // A link, so that of several processes one makes it, and all of it is there.
        let _ = file.write_all(&bytes).and_then(|()| std::fs::hard_link(&new, &at));
        let _ = std::fs::remove_file(&new);
        read()
    })
}

fn effective_user() -> u32 {
    // SAFETY: it has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
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
        let own = own(Cache::new(self.options), &self.backend, &self.open).map_err(|error| {
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
        if let Some((family, patience)) = family
            && let Some(key) = secret()
        {
            // A client proves that it knows the family, as does a server by its name.
            let (name, proof) =
                (hash_of(family, (key, 0)), hash_of(family, (key, 1)).to_ne_bytes());
            // A name may be held by a child of a server that has ended.
            for number in 0..TRIES {
                let name = format!("family-{name:032x}-{number}");
                if let Ok(Some(session)) = FarSession::connect(&name, &proof, patience) {
                    let own = Mutex::new(None);
                    let fallback = Arc::new(Fallback { options, backend, open, own });
                    return Ok(Way::There { session, fallback });
                }
                let Ok(Some(name)) = Name::take(&name) else { continue };
                // Without the memory or a thread for it, it is a cache of this process alone.
                if let Some(own) = serving(options, &backend, &open, (name, proof)) {
                    return Ok(Way::Here(Arc::new(own)));
                }
                break;
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
            Way::There { session, fallback } => {
                session.stats().or_else(|| fallback.stats()).unwrap_or_default()
            }
        }
    }
}

/// A cache of this process that answers others of the family.
fn serving(
    options: CacheOptions,
    backend: &Arc<dyn Backend>,
    open: &Open,
    (name, proof): (Name, [u8; 16]),
) -> Option<Own> {
    let cache = Cache::new_shared(options).ok()?;
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
    Some(Own { cache, session, open: Arc::clone(open), _server: Some(server.ok()?) })
}
