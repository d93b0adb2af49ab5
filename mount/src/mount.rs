//! A mount of a store, from its options to its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::{Backend, BackendError};
use foretell_cache::tier::Tier;
use foretell_cache::{Cache, CacheOptions, Stats, Store};

use crate::error::{MountError, one_line};
use crate::file_system::{FileSystem, ReadOnly};
use crate::folder::{self, Tree};
use crate::kind::Kind;
use crate::objects::Objects;
use crate::point::{Ending, FreePoint, Handle, MountOptions, MountPoint};
use crate::service::Service;
use crate::trouble::Troubles;

/// Threads that take in the kernel's requests.
const SESSION_THREADS: usize = 2;

/// What a mount is in the table of mounts.
pub const KIND: Kind = Kind { name: "foretell", noun: "store", unmount: "foretell unmount" };

/// How a store is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMountOptions {
    /// What it is called in the table of mounts: its address.
    pub source: String,
    /// Memory for data, and the size of blocks.
    pub cache: CacheOptions,
    /// How long a name may stand for what it stood for when the store was asked last.
    pub ttl: Duration,
    /// All users may use it.
    pub is_for_all: bool,
    /// How long a program waits for a folder that does not answer; of a store, which [keeps the time](Backend) itself, none. A folder that
    /// can be written has programs wait as long as it likes: what they write would be done, or not.
    pub timeout: Option<Duration>,
    /// Inode numbers fit into 32 bits: they are the same as long as it is mounted, and others the next time.
    pub are_numbers_small: bool,
}

/// Asks a store for its first names: better said now than by each program that will use a mount of it. One that cannot
/// list is not asked.
///
/// # Errors
/// That there is no such bucket or folder, that it does not let us in, or that it does not answer.
pub fn check(backend: &dyn Backend, source: &str) -> Result<Contents, MountError> {
    let message = match backend.list("").and_then(|mut names| names.next_entries()) {
        Ok(entries) if entries.is_empty() => return Ok(Contents::None),
        Ok(_) | Err(BackendError::Other { errno: Some(libc::ENOTSUP), .. }) => {
            return Ok(Contents::Some);
        }
        Err(BackendError::NotFound) => "there is no such bucket or folder".to_owned(),
        Err(cause) => one_line(&cause.to_string()),
    };
    Err(MountError::Source { source_name: source.to_owned(), message })
}

/// What a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing.
    None,
    /// Something, or it does not say.
    Some,
}

fn service(
    (cache, store, tier): (Cache, Store, Option<Arc<Tier>>),
    troubles: Arc<Troubles>,
    options: &StoreMountOptions,
) -> Arc<Service> {
    let size = (options.cache.budget_bytes, options.cache.block_bytes);
    let source = (options.source.clone(), options.ttl);
    Arc::new(Service::new((cache, store, tier), troubles, source, size))
}

fn mount_options(options: &StoreMountOptions, is_read_only: bool) -> MountOptions {
    MountOptions {
        source: options.source.clone(),
        is_read_only,
        is_for_all: options.is_for_all,
        threads: SESSION_THREADS,
    }
}

/// A store that is mounted. Dropping it unmounts it.
pub struct StoreMount {
    mount: MountPoint,
    service: Arc<Service>,
    /// How many inodes the kernel holds.
    known_inodes: Box<dyn Fn() -> usize + Send + Sync>,
}

impl std::fmt::Debug for StoreMount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreMount").field("mount", &self.mount).finish_non_exhaustive()
    }
}

impl StoreMount {
    /// Mounts a store at the empty folder `mountpoint`. What could not be read is told to `tell` in a line each, in whatever
    /// thread, which must not wait; programs see an error number.
    ///
    /// # Errors
    /// What stands in the way: the options, the mount point, FUSE. The store is not asked: that is for [`check`].
    pub fn mount(
        backend: Arc<dyn Backend>,
        mountpoint: &Path,
        options: &StoreMountOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, MountError> {
        Self::mount_tiered((backend, None), mountpoint, options, tell)
    }

    /// The same of a store that is perhaps behind a [tier](Tier::over): what the tier does is in the mount's report then, and its troubles are
    /// told as the store's are.
    ///
    /// # Errors
    /// As `mount`.
    pub fn mount_tiered(
        (backend, tier): (Arc<dyn Backend>, Option<Arc<Tier>>),
        mountpoint: &Path,
        options: &StoreMountOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, MountError> {
        let source = |message: String| MountError::Source {
            source_name: options.source.clone(),
            message: one_line(&message),
        };
        let point = FreePoint::prepare(mountpoint, KIND)?;
        let cache = Cache::new(options.cache).map_err(|error| source(error.to_string()))?;
        let store = cache.attach(Arc::clone(&backend));
        let troubles = Arc::new(Troubles::new(Box::new(tell)));
        if let Some(tier) = &tier {
            let troubles = Arc::clone(&troubles);
            tier.on_trouble(move |trouble| troubles.of_tier(trouble));
        }
        let objects = Objects::new(backend, Arc::clone(&troubles), options.are_numbers_small);
        let service = service((cache, store, tier), troubles, options);
        let read_only = Arc::new(ReadOnly { service: Arc::clone(&service), objects });
        let known = Arc::clone(&read_only);
        let file_system = FileSystem::new(read_only, options.timeout);
        let mount = point.serve(file_system, &mount_options(options, true))?;
        let known_inodes = Box::new(move || known.objects.known());
        Ok(StoreMount { mount, service, known_inodes })
    }

    /// Mounts a folder at the empty folder `mountpoint`, so that it can be written: what programs write is in the folder's files before
    /// they are told so. Otherwise as [`mount`](StoreMount::mount). `depth` is how many reads of the folder there may be at once, if it is not left to
    /// the [back end](LocalBackend::new).
    ///
    /// This process itself must not have files of the mount mapped for writing: the kernel unmaps what was written with the
    /// memory of who has mapped it locked, and waits for the mount.
    ///
    /// What programs make has the modes that they wish if this process has no mask (`umask`) of its own.
    ///
    /// # Errors
    /// As `mount`, and that the folder cannot be read.
    pub fn mount_writable(
        (folder, depth): (&Path, Option<usize>),
        mountpoint: &Path,
        options: &StoreMountOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, MountError> {
        let source = |message: String| MountError::Source {
            source_name: options.source.clone(),
            message: one_line(&message),
        };
        if options.is_for_all
            && rustix::process::geteuid().is_root()
            && !folder::can_act_for_others()
        {
            let message = "to do things for other users takes CAP_SETUID and CAP_SETGID, \
                           which this process lacks; leave --allow-other out";
            return Err(source(message.to_owned()));
        }
        let point = FreePoint::prepare(mountpoint, KIND)?;
        let cache = Cache::new(options.cache).map_err(|error| source(error.to_string()))?;
        let backend = LocalBackend::beneath(folder, depth);
        let backend = Arc::new(backend.map_err(|error| source(error.to_string()))?);
        let store = cache.attach(Arc::clone(&backend) as Arc<dyn Backend>);
        let own = store.session();
        let troubles = Arc::new(Troubles::new(Box::new(tell)));
        let service = service((cache, store, None), troubles, options);
        let small = options.are_numbers_small;
        let tree = Tree::new(folder, Arc::clone(&service), (backend, own), small);
        let tree = Arc::new(tree.map_err(|error| source(error.to_string()))?);
        let known = Arc::clone(&tree);
        let file_system = folder::FileSystem::new(Arc::clone(&tree));
        let mount = point.serve(file_system, &mount_options(options, false))?;
        tree.notifier.set(mount.notifier()).ok(); // It is set once.
        let known_inodes = Box::new(move || known.nodes.known());
        Ok(StoreMount { mount, service, known_inodes })
    }

    /// Where it is mounted, as an absolute path.
    pub fn mountpoint(&self) -> &Path {
        self.mount.path()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        self.mount.handle()
    }

    /// What the cache has done so far.
    pub fn stats(&self) -> Stats {
        self.service.cache.stats()
    }

    /// What `.foretell/stats` says.
    pub fn report(&self) -> Vec<u8> {
        self.service.report((self.known_inodes)())
    }

    /// Waits until somebody unmounts it, or asks for it by a handle.
    pub fn wait(&self) -> Ending {
        self.mount.wait()
    }

    /// Why it is no longer served, if nobody unmounted it.
    pub fn failure(&self) -> Option<String> {
        self.mount.failure()
    }

    /// Unmounts it. Says whether a program still uses it, which is served until it lets go or this process ends.
    ///
    /// # Errors
    /// What the system says. The mount is still there, and ends with this process.
    pub fn unmount(mut self) -> Result<bool, MountError> {
        self.mount.unmount()
    }
}
