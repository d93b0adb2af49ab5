//! Object stores: S3, GCS, Azure and HTTP, through the `object_store` crate.
//!
//! A read is made on condition of the ETag that `open` found; where a server gives none, time (in whole seconds) and
//! size of what it sends are compared. Where the ETag is a weak one, it is compared along with them: it may stay the same when
//! bytes change (RFC 9110, section 8.8.1). Reads that a program waits for are tried again, with growing pauses drawn at random, until a
//! [deadline](ObjectOptions::deadline); reads ahead are not, since whoever wants them will ask.
//!
//! The crate's own retries are switched off: they would hide that a server is busy, which must be known
//! to ask it for less.
//!
//! By module: `address` makes a client of an address and of `settings`, whose `names` are listed in one place, and of AWS'
//! `profile`s; `wire` sees what goes out and comes back; `tries` tries again; `errors` says what servers say; `listing` lists.

mod address;
mod errors;
mod listing;
mod names;
mod profile;
mod settings;
mod tries;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use http::Uri;
use object_store::list::PaginatedListStore;
use object_store::path::{DELIMITER, Path};
use object_store::{GetOptions, ObjectMeta, ObjectStore};
use rustix::io::Errno;
use tokio::runtime::{Builder, Handle, Runtime};

pub use self::address::without_secrets;
use self::address::{Folder, Place};
use self::errors::Failure;
use self::listing::{ObjectListing, Pages, Shape};
use self::tries::{Tries, guarded, wait_for};
use self::wire::About;
use super::{
    Backend, BackendError, FileInfo, Found, Listing, Object, Opened, Request, cannot_list,
};

/// Threads that talk to a store: they decrypt and copy, and wait for nothing.
const THREADS: usize = 2;

/// How an object store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Requests ahead of programs at once, if the store does not say that it is busy.
    pub depth: usize,
    /// How long a program waits before it is told why it cannot have what it asked for.
    pub deadline: Duration,
    /// How long a server may send nothing before it is asked once more.
    pub silence: Duration,
}

impl Default for ObjectOptions {
    /// 128 requests; a minute; ten seconds.
    fn default() -> Self {
        ObjectOptions {
            depth: 128,
            deadline: Duration::from_secs(60),
            silence: Duration::from_secs(10),
        }
    }
}

/// An address that no store could be made of.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// None of those that are known.
    #[error("{0}: an address begins with s3://, gs://, az://, http:// or https://")]
    Scheme(String),
    /// The crate that talks to it says so.
    #[error("{address}: {message}")]
    Store {
        /// What was given.
        address: String,
        /// What is wrong with it, or with the settings in the environment.
        message: String,
    },
    /// No threads.
    #[error("cannot start the threads that talk to a store: {0}")]
    Threads(std::io::Error),
}

/// A bucket, or part of one.
pub struct ObjectBackend {
    store: Arc<dyn ObjectStore>,
    /// The same, where it lists a page at a time.
    pages: Option<Arc<dyn PaginatedListStore>>,
    /// Web servers do not tell what they have.
    can_list: bool,
    /// What names mean at a web server.
    folder: Option<Folder>,
    prefix: Path,
    identity: String,
    options: ObjectOptions,
    /// There until it is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl fmt::Debug for ObjectBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectBackend").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Drop for ObjectBackend {
    fn drop(&mut self) {
        // It may be one of its own threads that drops it. What is under way fails as lost.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn threads() -> Result<Runtime, AddressError> {
    Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("foretell-store")
        .enable_all()
        .build()
        .map_err(AddressError::Threads)
}

impl ObjectBackend {
    /// The objects of `store` below `prefix`.
    ///
    /// # Errors
    /// If no threads can be made.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        options: ObjectOptions,
    ) -> Result<Self, AddressError> {
        let threads = threads()?;
        Ok(ObjectBackend {
            identity: format!("{store} {prefix}"),
            store,
            pages: None,
            can_list: true,
            folder: None,
            prefix,
            options,
            handle: threads.handle().clone(),
            runtime: Some(threads),
        })
    }

    /// What `address` stands for: `s3://bucket/prefix`, `gs://…`, `az://container/prefix`, `https://host/path`. Credentials, endpoint and
    /// region come from the usual variables of the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …), from AWS profiles, and from
    /// the machine's own metadata service.
    ///
    /// Names in a bucket are keys. At a web server they are what files below the address are called, and are written with percent signs
    /// on the way; but a name that begins with `http://` or `https://` is a whole address at the same server, which is asked for as it is
    /// written, and the empty name is the address itself. A query of the address goes with each request.
    ///
    /// # Errors
    /// If it stands for nothing, or the settings are not enough.
    pub fn at(address: &str, options: ObjectOptions) -> Result<Self, AddressError> {
        ObjectBackend::configured(address, &[], options)
    }

    /// [`at`](ObjectBackend::at), with settings that come before the environment's: under the names of `docs/reference/stores.md`, which
    /// are those of its variables in lower case, with or without `aws_`, `google_` or `azure_` before them.
    ///
    /// # Errors
    /// If the address stands for nothing, a setting is not known or cannot be what it is, or they are not enough.
    pub fn configured(
        address: &str,
        settings: &[(&str, &str)],
        options: ObjectOptions,
    ) -> Result<Self, AddressError> {
        let threads = threads()?;
        let handle = threads.handle().clone();
        let place = guarded(|| Place::find(address, settings, options, &handle));
        let place = place.unwrap_or_else(|message| {
            Err(AddressError::Store { address: without_secrets(address), message })
        })?;
        Ok(ObjectBackend {
            store: place.store,
            pages: place.pages,
            can_list: place.folder.is_none(),
            folder: place.folder,
            prefix: place.prefix,
            identity: place.identity,
            options,
            runtime: Some(threads),
            handle,
        })
    }

    /// What tells this store, and the part of it that its address names, from others, wherever settings come from: where it is,
    /// whose it is, and the address. No secret is in it but the query of a web server's address.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The same, and it is never asked what there is: neither to list nor for what is below a name.
    #[must_use]
    pub fn unlisted(mut self) -> Self {
        self.can_list = false;
        self
    }

    /// All bytes of the file at `path`, or of the address itself if that is empty, and waits for them. The server need not
    /// be able to send parts.
    ///
    /// # Errors
    /// As [`open`](Backend::open), and if there are more than `most_bytes`.
    pub fn read_all(&self, path: &str, most_bytes: usize) -> Result<Vec<u8>, BackendError> {
        let (store, target) = (Arc::clone(&self.store), self.target(path)?);
        let read = wait_for((&self.handle, self.options), move || {
            let (store, target) = (Arc::clone(&store), target.clone());
            async move {
                let mut all = Vec::new();
                let found = store.get_opts(&target.location, target.options(None)).await?;
                let mut bytes = found.into_stream();
                while let Some(some) = bytes.next().await {
                    all.extend_from_slice(&some?);
                    if all.len() > most_bytes {
                        return Ok(None);
                    }
                }
                Ok(Some(all))
            }
        })?;
        read.ok_or_else(|| other(format!("it is longer than {most_bytes} bytes")))
    }

    /// Whether the file at `path` is there and can be read in parts, as all are; waits for the answer.
    ///
    /// # Errors
    /// As [`open`](Backend::open) and reads.
    pub fn probe(&self, path: &str) -> Result<(), BackendError> {
        let meta = self.head(path)?;
        if meta.size == 0 {
            return Ok(());
        }
        let (store, target) = (Arc::clone(&self.store), self.target(path)?);
        wait_for((&self.handle, self.options), move || {
            let (store, target) = (Arc::clone(&store), target.clone());
            async move {
                let options = target.options(Some(meta.size)).with_range(Some(0..1));
                store.get_opts(&target.location, options).await.map(|_| ())
            }
        })
    }

    fn location(&self, path: &str) -> Result<Path, BackendError> {
        let path = Path::parse(path).map_err(|_| BackendError::NotFound)?;
        Ok(self.prefix.parts().chain(path.parts()).collect())
    }

    fn target(&self, path: &str) -> Result<Target, BackendError> {
        let Some(folder) = &self.folder else {
            return Ok(Target { location: self.location(path)?, address: None });
        };
        let address = Some(folder.address_of(path).map_err(other)?);
        // A whole address is no path; what the crate makes of one is not asked for.
        let location = Path::parse(path).unwrap_or_default();
        Ok(Target { location, address })
    }

    fn opened(&self, target: Target, meta: ObjectMeta) -> Opened {
        let object = StoredObject {
            store: Arc::clone(&self.store),
            handle: self.handle.clone(),
            options: self.options,
            target,
            meta,
        };
        Opened {
            version: object.version().into_bytes().into(),
            size_bytes: object.meta.size,
            object: Arc::new(object),
        }
    }

    fn head(&self, path: &str) -> Result<ObjectMeta, BackendError> {
        let (store, target) = (Arc::clone(&self.store), self.target(path)?);
        wait_for((&self.handle, self.options), move || {
            let (store, target) = (Arc::clone(&store), target.clone());
            async move { target.head(&*store).await }
        })
    }

    fn lister(&self, location: Path, most: Option<usize>) -> ObjectListing {
        ObjectListing::new((Arc::clone(&self.store), self.pages.clone()), location, most)
    }

    /// What the store tells of the object at `path`, whether or not there are objects below it; waits for the answer.
    ///
    /// # Errors
    /// As [`open`](Backend::open).
    pub fn find_file(&self, path: &str) -> Result<FileInfo, BackendError> {
        self.head(path).map(info)
    }

    /// Whether there are objects below `path`, or one that stands for the folder; of the store itself, whether there is such a
    /// bucket. Waits for the answer.
    ///
    /// # Errors
    /// As [`list`](Backend::list).
    pub fn is_folder(&self, path: &str) -> Result<bool, BackendError> {
        match self.listing(path, Shape::Keys, Some(1)) {
            Ok(_) => Ok(true),
            Err(BackendError::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the address itself is the key of an object that has bytes; one without may stand for an empty folder.
    /// Waits for the answer, and takes a refusal for no.
    pub fn is_object(&self) -> bool {
        let has_bytes = || self.head("").is_ok_and(|found| found.size > 0);
        self.can_list && !self.prefix.as_ref().is_empty() && has_bytes()
    }

    /// Whether there are keys that begin with a slash: no path can name them, but a recursive [listing](Self::list_keys) of the
    /// whole bucket tells them, without the slash. Waits for the answer.
    ///
    /// # Errors
    /// What the store says.
    pub fn has_keys_without_a_root(&self) -> Result<bool, BackendError> {
        let Some(pages) = self.pages.clone().filter(|_| self.prefix.as_ref().is_empty()) else {
            return Ok(false);
        };
        wait_for((&self.handle, self.options), move || {
            let pages = Arc::clone(&pages);
            async move { listing::has_any(&*pages, DELIMITER).await }
        })
    }

    /// The keys below the folder at `path`, as the store has them: a name that is a file and a folder comes as both. All of
    /// them, with names relative to the folder, if `is_recursive`; there are no folders among these, and an object of no bytes
    /// may stand for one. See [`has_keys_without_a_root`](Self::has_keys_without_a_root).
    ///
    /// # Errors
    /// As [`list`](Backend::list).
    pub fn list_keys(
        &self,
        path: &str,
        is_recursive: bool,
    ) -> Result<Box<dyn Listing>, BackendError> {
        let shape = if is_recursive { Shape::AllKeys } else { Shape::Keys };
        Ok(Box::new(self.listing(path, shape, None)?))
    }

    /// A listing of which the first entries are known.
    fn listing(
        &self,
        path: &str,
        shape: Shape,
        most: Option<usize>,
    ) -> Result<Pages, BackendError> {
        if !self.can_list {
            return Err(cannot_list());
        }
        let location = match path {
            "" => self.prefix.clone(),
            _ => self.location(path)?,
        };
        let lister = self.lister(location, most).shaped(shape);
        let mut listing = Pages::new(lister, self.handle.clone(), self.options);
        listing.first = listing.next_entries()?;
        match listing.first.is_empty() && !listing.lister.is_there() && !path.is_empty() {
            true => Err(BackendError::NotFound),
            false => Ok(listing),
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
struct Target {
    location: Path,
    /// In place of it, of a web server.
    address: Option<Uri>,
}

impl Target {
    /// For a request about it, which has this size as far as is known.
    fn options(&self, size_bytes: Option<u64>) -> GetOptions {
        let mut options = GetOptions::default();
        options.extensions.insert(About { address: self.address.clone(), size_bytes });
        options
    }

    async fn head(&self, store: &dyn ObjectStore) -> object_store::Result<ObjectMeta> {
        let options = self.options(None).with_head(true);
        store.get_opts(&self.location, options).await.map(|found| found.meta)
    }
}

impl Backend for ObjectBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        if self.can_list && self.location(path)?.as_ref().is_empty() {
            let errno = Some(Errno::ISDIR.raw_os_error());
            return Err(BackendError::Other { errno, message: "it is a folder".into() });
        }
        Ok(self.opened(self.target(path)?, self.head(path)?))
    }

    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        let Some(modified) = file.modified else { return self.open(path) };
        let target = self.target(path)?;
        let meta = ObjectMeta {
            location: target.location.clone(),
            last_modified: modified.into(),
            size: file.size_bytes,
            e_tag: file.tag.as_deref().map(str::to_owned),
            version: None,
        };
        Ok(self.opened(target, meta))
    }

    /// Asks for an object and for what is below it, at once.
    fn find(&self, path: &str) -> Result<Found, BackendError> {
        if path.is_empty() {
            return Ok(Found::Folder);
        }
        if !self.can_list {
            return Ok(Found::File(info(self.head(path)?)));
        }
        let (store, target) = (Arc::clone(&self.store), self.target(path)?);
        let lister = self.lister(target.location.clone(), Some(1));
        wait_for((&self.handle, self.options), move || {
            let (store, target, mut lister) = (Arc::clone(&store), target.clone(), lister.clone());
            async move {
                let below = async {
                    while !lister.is_there() && !lister.is_at_end() {
                        lister.step().await?;
                    }
                    Ok(lister.is_there())
                };
                match futures_util::join!(target.head(&*store), below) {
                    (_, Ok(true)) => Ok(Found::Folder),
                    (Ok(meta), _) => Ok(Found::File(info(meta))),
                    (Err(object_store::Error::NotFound { .. }), Err(error)) => Err(error),
                    (Err(error), _) => Err(error),
                }
            }
        })
    }

    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        Ok(Box::new(self.listing(path, Shape::Names, None)?))
    }

    fn depth(&self) -> usize {
        self.options.depth
    }
}

/// The same, whatever has told of the object: listings know its time in milliseconds, answers in seconds.
fn info(meta: ObjectMeta) -> FileInfo {
    let seconds = meta.last_modified.timestamp();
    let since = Duration::from_secs(seconds.unsigned_abs());
    let modified = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH - since,
        false => SystemTime::UNIX_EPOCH + since,
    };
    FileInfo {
        size_bytes: meta.size,
        modified: Some(modified),
        tag: meta.e_tag.as_deref().map(|tag| bare(tag).into()),
    }
}

struct StoredObject {
    store: Arc<dyn ObjectStore>,
    handle: Handle,
    options: ObjectOptions,
    target: Target,
    meta: ObjectMeta,
}

/// What tells one version of an object from another.
fn version_of(meta: &ObjectMeta) -> String {
    match &meta.e_tag {
        Some(tag) if is_weak(tag) => {
            format!("{tag} {} {}", meta.last_modified.timestamp(), meta.size)
        }
        Some(tag) => format!("{} {}", bare(tag), meta.size),
        None => format!("{} {}", meta.last_modified.timestamp(), meta.size),
    }
}

/// An ETag without its quotes, which some listings leave out. A weak one stays as it is: it is another than the strong one.
fn bare(tag: &str) -> &str {
    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag)
}

fn is_weak(tag: &str) -> bool {
    tag.starts_with("W/\"")
}

/// An ETag as it goes into a condition. One with a weak tag never holds (RFC 9110, section 13.1.1).
fn condition(tag: &str) -> Option<String> {
    (!is_weak(tag)).then(|| format!("\"{}\"", bare(tag)))
}

fn other(message: String) -> BackendError {
    BackendError::Other { errno: None, message: message.into() }
}

impl StoredObject {
    fn version(&self) -> String {
        version_of(&self.meta)
    }

    async fn read(&self, request: &mut Request) -> Result<(), BackendError> {
        let mut tries = Tries::new(self.options);
        loop {
            let tried = tries.once(self.try_to_read(request)).await;
            let Err(failure) = tried else { return Ok(()) };
            if !request.is_demand() {
                return Err(failure.cause);
            }
            tries.again(failure).await?;
            request.restart();
        }
    }

    async fn try_to_read(&self, request: &mut Request) -> Result<(), Failure> {
        let start = request.offset_bytes();
        let range = start..start + request.length() as u64;
        let options = GetOptions {
            if_match: self.meta.e_tag.as_deref().and_then(condition),
            range: Some(range.clone().into()),
            ..self.target.options(Some(self.meta.size))
        };
        let found = self.store.get_opts(&self.target.location, options).await;
        let found = found.map_err(|error| Failure::of(&error))?;
        // A server may not know conditions, or send another range.
        let mut meta = found.meta.clone();
        if self.meta.e_tag.is_none() {
            meta.e_tag = None; // What told of the object knew no ETag.
        }
        if version_of(&meta) != self.version() {
            return Err(Failure::lasting(BackendError::Changed));
        }
        if found.range != range {
            let message = format!("asked for bytes {range:?}, the server sent {:?}", found.range);
            return Err(Failure::lasting(other(message)));
        }
        let mut bytes = found.into_stream();
        while let Some(some) = bytes.next().await {
            request.fill(&some.map_err(|error| Failure::of(&error))?);
        }
        if request.filled() < request.length() {
            let message = format!(
                "the answer ended after {} of {} bytes",
                request.filled(),
                request.length()
            );
            return Err(Failure::passing(other(message)));
        }
        Ok(())
    }
}

impl Object for StoredObject {
    fn start(self: Arc<Self>, mut request: Request) {
        let handle = self.handle.clone();
        handle.spawn(async move {
            let result = self.read(&mut request).await;
            request.complete(result);
        });
    }
}
