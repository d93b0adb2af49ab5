//! Object stores: S3, GCS, Azure and HTTP, through the `object_store` crate.
//!
//! A read is made on condition of the ETag that `open` found; where a server gives none, time (in whole seconds) and
//! size of what it sends are compared, and where it is a weak one, that. Reads that a program waits for are tried again, with growing pauses drawn at random, until a
//! [deadline](ObjectOptions::deadline); reads ahead are not, since whoever wants them will ask.
//!
//! The crate's own retries are switched off: they would hide that a server is busy, which must be known
//! to ask it for less.

mod errors;
mod listing;

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use rustix::io::Errno;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout_at;

use self::errors::{Failure, Telling};
use self::listing::{ObjectListing, Pages};
use super::{
    Backend, BackendError, FileInfo, Found, Listing, Object, Opened, Request, cannot_list,
};

/// Pauses between tries: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// No try is begun that has less time.
const TRY_LEAST: Duration = Duration::from_millis(50);

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
    prefix: Path,
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
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("foretell-store")
            .enable_all()
            .build()
            .map_err(AddressError::Threads)?;
        let handle = runtime.handle().clone();
        let (pages, can_list, runtime) = (None, true, Some(runtime));
        Ok(ObjectBackend { store, pages, can_list, prefix, options, runtime, handle })
    }

    /// What `address` stands for: `s3://bucket/prefix`, `gs://…`, `az://container/prefix`, `https://host/path`. Credentials, endpoint and
    /// region come from the usual variables of the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …) and from the machine's own
    /// metadata service.
    ///
    /// # Errors
    /// If it stands for nothing, or the settings are not enough.
    pub fn at(address: &str, options: ObjectOptions) -> Result<Self, AddressError> {
        ObjectBackend::configured(address, &[], options)
    }

    /// [`at`](ObjectBackend::at), with settings that come before the environment's, under the names of its variables in lower case
    /// (`aws_endpoint_url`, …).
    ///
    /// # Errors
    /// If the address stands for nothing, a setting is not known, or they are not enough.
    pub fn configured(
        address: &str,
        settings: &[(&str, &str)],
        options: ObjectOptions,
    ) -> Result<Self, AddressError> {
        use object_store::aws::AmazonS3Builder;
        use object_store::azure::MicrosoftAzureBuilder;
        use object_store::gcp::GoogleCloudStorageBuilder;
        use object_store::http::HttpBuilder;

        let wrong = |error: object_store::Error| AddressError::Store {
            address: address.to_owned(),
            message: error.to_string(),
        };
        let (scheme, rest) =
            address.split_once("://").ok_or_else(|| AddressError::Scheme(address.to_owned()))?;
        let (_, path) = rest.split_once('/').unwrap_or((rest, ""));
        // What is opened is added to the path of a web server, with a slash.
        let url = match scheme {
            "http" | "https" if !rest.contains(['?', '#']) => address.trim_end_matches('/'),
            _ => address,
        };
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let client = object_store::ClientOptions::new()
            .with_timeout_disabled()
            .with_read_timeout(options.silence)
            .with_connect_timeout(options.silence)
            .with_pool_max_idle_per_host(options.depth)
            .with_allow_http(true);
        let endpoint = settings
            .iter()
            .find(|(key, _)| matches!(*key, "aws_endpoint_url" | "aws_endpoint"))
            .map(|(_, value)| (*value).to_owned())
            .or_else(|| std::env::var("AWS_ENDPOINT_URL").ok())
            .or_else(|| std::env::var("AWS_ENDPOINT").ok());
        if let Some(endpoint) = endpoint.filter(|_| scheme.starts_with("s3"))
            && !endpoint.starts_with("http://")
            && !endpoint.starts_with("https://")
        {
            // The crate panics at the first request.
            let message =
                format!("the endpoint {endpoint:?} does not begin with http:// or https://");
            return Err(AddressError::Store { address: address.to_owned(), message });
        }
        // Builders have no trait in common.
        macro_rules! built {
            ($builder:expr) => {
                Arc::new(
                    $builder
                        .with_url(url)
                        .with_retry(retry)
                        .with_client_options(client)
                        .with_http_connector(Telling)
                        .build()
                        .map_err(wrong)?,
                )
            };
        }
        macro_rules! configured {
            ($builder:expr) => {
                keys(settings, wrong)?
                    .into_iter()
                    .fold($builder, |builder, (key, value)| builder.with_config(key, value))
            };
        }
        type Both = (Arc<dyn ObjectStore>, Option<Arc<dyn PaginatedListStore>>);
        macro_rules! paginated {
            ($builder:expr) => {{
                let store = built!(configured!($builder));
                (Arc::clone(&store) as _, Some(store as _))
            }};
        }
        let (store, pages): Both = match scheme {
            "s3" | "s3a" => paginated!(AmazonS3Builder::from_env()),
            "gs" => paginated!(GoogleCloudStorageBuilder::from_env()),
            "az" | "abfs" | "abfss" => paginated!(MicrosoftAzureBuilder::from_env()),
            "http" | "https" if let Some((name, _)) = settings.first() => {
                let message = format!("there is no setting {name} for it");
                return Err(AddressError::Store { address: address.to_owned(), message });
            }
            // The path belongs to the address, and what is opened is added to it.
            "http" | "https" => (built!(HttpBuilder::new()), None),
            _ => return Err(AddressError::Scheme(address.to_owned())),
        };
        let prefix = if scheme.starts_with("http") { "" } else { path };
        let prefix = Path::parse(prefix.trim_matches('/')).map_err(|error| wrong(error.into()))?;
        let mut backend = ObjectBackend::new(store, prefix, options)?;
        backend.pages = pages;
        backend.can_list = !scheme.starts_with("http");
        Ok(backend)
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
        let (store, location) = (Arc::clone(&self.store), self.location(path)?);
        let read = wait_for((&self.handle, self.options), move || {
            let (store, location) = (Arc::clone(&store), location.clone());
            async move {
                let mut all = Vec::new();
                let mut bytes = store.get(&location).await?.into_stream();
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
        let (store, location) = (Arc::clone(&self.store), self.location(path)?);
        wait_for((&self.handle, self.options), move || {
            let (store, location) = (Arc::clone(&store), location.clone());
            async move { store.get_range(&location, 0..1).await.map(|_| ()) }
        })
    }

    fn location(&self, path: &str) -> Result<Path, BackendError> {
        let path = Path::parse(path).map_err(|_| BackendError::NotFound)?;
        Ok(self.prefix.parts().chain(path.parts()).collect())
    }

    fn opened(&self, meta: ObjectMeta) -> Opened {
        let object = StoredObject {
            store: Arc::clone(&self.store),
            handle: self.handle.clone(),
            options: self.options,
            meta,
        };
        Opened {
            version: object.version().into_bytes().into(),
            size_bytes: object.meta.size,
            object: Arc::new(object),
        }
    }

    fn head(&self, path: &str) -> Result<ObjectMeta, BackendError> {
        let (store, location) = (Arc::clone(&self.store), self.location(path)?);
        wait_for((&self.handle, self.options), move || {
            let (store, location) = (Arc::clone(&store), location.clone());
            async move { store.head(&location).await }
        })
    }

    fn lister(&self, location: Path, most: Option<usize>) -> ObjectListing {
        ObjectListing::new((Arc::clone(&self.store), self.pages.clone()), location, most)
    }
}

/// Settings by the keys of a builder.
fn keys<'a, K: FromStr<Err = object_store::Error>>(
    settings: &[(&str, &'a str)],
    wrong: impl Fn(object_store::Error) -> AddressError,
) -> Result<Vec<(K, &'a str)>, AddressError> {
    settings.iter().map(|(key, value)| Ok((key.parse().map_err(&wrong)?, *value))).collect()
}

impl Backend for ObjectBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        if self.can_list && self.location(path)?.as_ref().is_empty() {
            let errno = Some(Errno::ISDIR.raw_os_error());
            return Err(BackendError::Other { errno, message: "it is a folder".into() });
        }
        Ok(self.opened(self.head(path)?))
    }

    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        let Some(modified) = file.modified else { return self.open(path) };
        Ok(self.opened(ObjectMeta {
            location: self.location(path)?,
            last_modified: modified.into(),
            size: file.size_bytes,
            e_tag: file.tag.as_deref().map(str::to_owned),
            version: None,
        }))
    }

    /// Asks for an object and for what is below it, at once.
    fn find(&self, path: &str) -> Result<Found, BackendError> {
        if path.is_empty() {
            return Ok(Found::Folder);
        }
        let (store, location) = (Arc::clone(&self.store), self.location(path)?);
        if !self.can_list {
            return Ok(Found::File(info(self.head(path)?)));
        }
        let lister = self.lister(location.clone(), Some(1));
        wait_for((&self.handle, self.options), move || {
            let (store, location, mut lister) =
                (Arc::clone(&store), location.clone(), lister.clone());
            async move {
                let below = async {
                    while !lister.is_there() && !lister.is_at_end() {
                        lister.step().await?;
                    }
                    Ok(lister.is_there())
                };
                match futures_util::join!(store.head(&location), below) {
                    (_, Ok(true)) => Ok(Found::Folder),
                    (Ok(meta), _) => Ok(Found::File(info(meta))),
                    (Err(object_store::Error::NotFound { .. }), Err(error)) => Err(error),
                    (Err(error), _) => Err(error),
                }
            }
        })
    }

    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        if !self.can_list {
            return Err(cannot_list());
        }
        let location = match path {
            "" => self.prefix.clone(),
            _ => self.location(path)?,
        };
        let mut listing =
            Pages::new(self.lister(location, None), self.handle.clone(), self.options);
        listing.first = listing.next_entries()?;
        match listing.first.is_empty() && !listing.lister.is_there() && !path.is_empty() {
            true => Err(BackendError::NotFound),
            false => Ok(Box::new(listing)),
        }
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

/// Does something in the threads that talk to the store, again until it works or there is no time, and waits for it.
fn wait_for<T: Send + 'static, F>(
    (handle, options): (&Handle, ObjectOptions),
    mut act: impl FnMut() -> F + Send + 'static,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, object_store::Error>> + Send,
{
    let (answer, answered) = std::sync::mpsc::sync_channel(1);
    handle.spawn(async move {
        let mut tries = Tries::new(options);
        let found = loop {
            let failure = match timeout_at(tries.until.into(), act()).await {
                Ok(Ok(found)) => break Ok(found),
                Ok(Err(error)) => Failure::of(&error),
                Err(_) => tries.late(),
            };
            if let Err(cause) = tries.again(failure).await {
                break Err(cause);
            }
        };
        let _ = answer.send(found); // Who asked may have been given up.
    });
    answered.recv().map_err(|_| BackendError::Lost)?
}

/// Tries of one operation.
struct Tries {
    pause: Duration,
    until: Instant,
    options: ObjectOptions,
}

impl Tries {
    fn new(options: ObjectOptions) -> Self {
        Tries { pause: PAUSE_FIRST, until: Instant::now() + options.deadline, options }
    }

    /// The deadline has passed within a try: a server may send a byte now and then for ever.
    fn late(&self) -> Failure {
        Failure::lasting(BackendError::Timeout(self.options.deadline))
    }

    /// Waits for the next, unless it will end as this one did, or there is no time.
    async fn again(&mut self, failure: Failure) -> Result<(), BackendError> {
        let Failure { cause, may_pass } = failure;
        if !may_pass {
            return Err(cause);
        }
        // From half of the pause to all of it.
        let half = self.pause / 2;
        let share = RandomState::new().hash_one(0u8) as u32;
        let pause = half + half.mul_f64(f64::from(share) / f64::from(u32::MAX));
        // Without some time for a try, all that it could tell is that there was none.
        let until = self.until;
        let leaves_time = |pause: Duration| Instant::now() + pause + TRY_LEAST < until;
        let has_time = leaves_time(pause) && {
            tokio::time::sleep(pause).await;
            leaves_time(Duration::ZERO)
        };
        if !has_time {
            return Err(match cause {
                BackendError::Lost | BackendError::Timeout(_) => {
                    BackendError::Timeout(self.options.deadline)
                }
                other => other,
            });
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

struct StoredObject {
    store: Arc<dyn ObjectStore>,
    handle: Handle,
    options: ObjectOptions,
    meta: ObjectMeta,
}

/// What tells one version of an object from another.
fn version_of(meta: &ObjectMeta) -> String {
    match &meta.e_tag {
        Some(tag) => format!("{} {}", bare(tag), meta.size),
        None => format!("{} {}", meta.last_modified.timestamp(), meta.size),
    }
}

/// An ETag without its quotes, which some listings leave out. A weak one stays as it is: it is another than the strong one.
fn bare(tag: &str) -> &str {
    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag)
}

/// An ETag as it goes into a condition. One with a weak tag never holds (RFC 9110, section 13.1.1).
fn condition(tag: &str) -> Option<String> {
    (!tag.starts_with("W/\"")).then(|| format!("\"{}\"", bare(tag)))
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
            let tried = timeout_at(tries.until.into(), self.try_to_read(request)).await;
            let Err(failure) = tried.unwrap_or_else(|_| Err(tries.late())) else { return Ok(()) };
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
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&self.meta.location, options).await;
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
