//! Object stores: S3, GCS, Azure and HTTP, through the `object_store` crate.
//!
//! **Versions.** A read is conditional on the ETag that `open` found (`If-Match`). If a server gives no ETag, the modification
//! time (in whole seconds) and the size in the answer are compared instead. A weak ETag is compared together with time and
//! size, since it may stay the same when bytes change (RFC 9110, section 8.8.1).
//!
//! **Retries.** A demand read is retried, with pauses that grow and are randomised, until a
//! [deadline](ObjectOptions::deadline). A prefetch is not: a program that needs the block will demand it. The crate's
//! own retries are off, since they would hide that a server is busy and should get fewer requests.
//!
//! By module: `address` makes a client from an address, the `settings` (`names` has the tables) and AWS `profile`s;
//! `wire` corrects requests and answers; `tries` retries; `errors` translates errors; `versions` tells versions apart;
//! `listing` lists.

mod address;
mod errors;
mod listing;
mod names;
mod options;
mod profile;
mod settings;
mod tries;
mod versions;
mod wire;
mod world;

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use http::Uri;
use object_store::list::PaginatedListStore;
use object_store::path::{DELIMITER, Path};
use object_store::{GetOptions, ObjectMeta, ObjectStore};
use rustix::io::Errno;
use tokio::runtime::{Builder, Handle, Runtime};

use self::address::{Folder, Place};
use self::errors::Failure;
use self::listing::{ObjectListing, Pages, Shape};
pub use self::options::ObjectOptions;
use self::tries::{Tries, guarded, wait_for};
use self::versions::{condition, info, is_exact, version_of};
use self::wire::About;
use super::addressed::longer_than;
pub use super::kind::{AddressError, without_secrets};
use super::traits::cannot_list;
use super::{
    AddressOptions, Addressed, Backend, BackendError, ByAddress, Environment, FileInfo, Found,
    Kind, Listing, Named, Object, Opened, Request,
};

/// S3, GCS, Azure and web servers.
pub(super) const KIND: Kind = Kind {
    name: "object",
    by_address: Some(ByAddress {
        schemes: names::Kind::SCHEMES,
        aliases: names::Kind::ALIASES,
        open: named,
    }),
    worlds: world::worlds,
};

fn named(address: &str, options: &AddressOptions<'_>) -> Result<Named, AddressError> {
    let &AddressOptions { depth, deadline, silence, settings, environment } = options;
    let options = ObjectOptions::with(depth, deadline, silence);
    let own = Environment::default();
    let environment = environment.unwrap_or(&own);
    let backend = ObjectBackend::configured_in(address, settings, environment, options)?;
    let identity = backend.identity().to_owned();
    Ok(Named { backend: Arc::new(backend), identity })
}

/// Threads that talk to a store. They decrypt and copy, and never block.
const THREADS: usize = 2;

/// A bucket, or part of one.
pub struct ObjectBackend {
    store: Arc<dyn ObjectStore>,
    /// The store once more, if it can list a page at a time.
    pages: Option<Arc<dyn PaginatedListStore>>,
    /// False for web servers and [`unlisted`](Self::unlisted) stores.
    can_list: bool,
    /// Turns names into addresses; only for a web server.
    folder: Option<Folder>,
    prefix: Path,
    identity: String,
    options: ObjectOptions,
    /// `None` only while the back end is dropped.
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
        // The dropping thread may be one of the runtime's own, so this does not wait. Requests in flight fail as lost.
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
    /// If threads cannot be started.
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

    /// The store at an address: `s3://bucket/prefix`, `gs://…`, `az://container/prefix`, `https://host/path`.
    /// Credentials, endpoint and region come from the usual environment variables (`AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT_URL`, …), AWS profiles, and the machine's metadata service.
    ///
    /// Names in a bucket are keys. Names at a web server are relative to the address, and are percent-encoded in
    /// requests. A name that begins with `http://` or `https://` is a whole address at the same server and is sent as
    /// written. The empty name is the address itself. The query of the address goes with each request.
    ///
    /// # Errors
    /// If the address is wrong, or settings are missing.
    pub fn at(address: &str, options: ObjectOptions) -> Result<Self, AddressError> {
        ObjectBackend::configured(address, &[], options)
    }

    /// As [`at`](ObjectBackend::at), with settings that override the environment. `docs/reference/stores.md` lists
    /// their names: those of the environment variables in lower case, with or without the prefix `aws_`, `google_` or
    /// `azure_`.
    ///
    /// # Errors
    /// If the address is wrong, or a setting is unknown, wrong or missing.
    pub fn configured(
        address: &str,
        settings: &[(&str, &str)],
        options: ObjectOptions,
    ) -> Result<Self, AddressError> {
        ObjectBackend::configured_in(address, settings, &Environment::default(), options)
    }

    fn configured_in(
        address: &str,
        settings: &[(&str, &str)],
        environment: &Environment,
        options: ObjectOptions,
    ) -> Result<Self, AddressError> {
        let threads = threads()?;
        let handle = threads.handle().clone();
        let place = guarded(|| Place::find(address, (settings, environment), options, &handle));
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

    /// Identifies this store and the part of it that its address names, wherever its settings come from. It is made of
    /// endpoint or region, account, and address. It has no secrets, except that the query of a web server's address is
    /// in it.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// This store, from now on without listing requests: neither folders nor what is below a name are listed.
    #[must_use]
    pub fn unlisted(mut self) -> Self {
        self.can_list = false;
        self
    }

    /// Reads all of the file at `path`, or of the address itself if `path` is empty. Waits for it. The server need not support
    /// ranges.
    ///
    /// # Errors
    /// As [`open`](Backend::open), and if the file has more than `most_bytes`.
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
        read.ok_or_else(|| longer_than(most_bytes))
    }

    /// Checks that the file at `path` exists and that ranges of it can be read. Waits for the answer.
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
        // A whole address is not a path. The location is not used in requests that have an address.
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
            is_exact: is_exact(&object.meta),
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

    /// The object at `path`, even if there are objects below it. Waits for the answer.
    ///
    /// # Errors
    /// As [`open`](Backend::open).
    pub fn find_file(&self, path: &str) -> Result<FileInfo, BackendError> {
        self.head(path).map(info)
    }

    /// Whether there are objects below `path`, or an object that stands for the folder. For the store itself (""): whether the
    /// bucket exists. Waits for the answer.
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

    /// Whether the address itself is the key of an object that is not empty. An empty one may stand for an empty
    /// folder. Waits for the answer; an error counts as no.
    pub fn is_object(&self) -> bool {
        let has_bytes = || self.head("").is_ok_and(|found| found.size > 0);
        self.can_list && !self.prefix.as_ref().is_empty() && has_bytes()
    }

    /// Whether there are keys that begin with a slash. Paths cannot name them, but a recursive
    /// [listing](Self::list_keys) of the whole bucket has them, without the slash. Waits for the answer.
    ///
    /// # Errors
    /// Any error of the store.
    pub fn has_keys_without_a_root(&self) -> Result<bool, BackendError> {
        let Some(pages) = self.pages.clone().filter(|_| self.prefix.as_ref().is_empty()) else {
            return Ok(false);
        };
        wait_for((&self.handle, self.options), move || {
            let pages = Arc::clone(&pages);
            async move { listing::has_any(&*pages, DELIMITER).await }
        })
    }

    /// Lists the keys of the folder at `path` as the store has them: a name that is both a file and a folder comes twice. If
    /// `is_recursive`, lists all keys below the folder, with names relative to it. There are no folders among these,
    /// but an empty object may stand for one. See [`has_keys_without_a_root`](Self::has_keys_without_a_root).
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

    /// Begins a listing and fetches its first entries.
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

/// An object or file to ask for.
#[derive(Clone, Debug)]
struct Target {
    location: Path,
    /// Used in place of `location` at a web server.
    address: Option<Uri>,
}

impl Target {
    /// Options of a request for it. `size_bytes` is its size, if known.
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

    /// Asks for the object and for keys below it, both at once.
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

impl Addressed for ObjectBackend {
    fn find_file(&self, path: &str) -> Result<FileInfo, BackendError> {
        ObjectBackend::find_file(self, path)
    }

    fn is_folder(&self, path: &str) -> Result<bool, BackendError> {
        ObjectBackend::is_folder(self, path)
    }

    fn is_object(&self) -> bool {
        ObjectBackend::is_object(self)
    }

    fn probe(&self, path: &str) -> Result<(), BackendError> {
        ObjectBackend::probe(self, path)
    }

    fn read_all(&self, path: &str, most_bytes: usize) -> Result<Vec<u8>, BackendError> {
        ObjectBackend::read_all(self, path, most_bytes)
    }

    fn has_keys_without_a_root(&self) -> Result<bool, BackendError> {
        ObjectBackend::has_keys_without_a_root(self)
    }

    fn list_keys(
        self: Arc<Self>,
        path: &str,
        is_recursive: bool,
    ) -> Result<Box<dyn Listing>, BackendError> {
        ObjectBackend::list_keys(&self, path, is_recursive)
    }
}

struct StoredObject {
    store: Arc<dyn ObjectStore>,
    handle: Handle,
    options: ObjectOptions,
    target: Target,
    meta: ObjectMeta,
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
        // A server may ignore the condition, or send another range.
        let mut meta = found.meta.clone();
        if self.meta.e_tag.is_none() {
            meta.e_tag = None; // The listing or answer that told of the object had no ETag.
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
