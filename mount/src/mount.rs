//! A mount of a store or a folder, from its options to its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::{Backend, BackendError};
use foretell_cache::tier::Tiers;
use foretell_cache::{Cache, CacheOptions, Stats, Store};

use crate::error::{MountError, one_line};
use crate::file_system::{FileSystem, ReadOnly};
use crate::folder::{self, Tree};
use crate::kind::Kind;
use crate::objects::Objects;
use crate::point::{Ending, FreePoint, Handle, MountOptions, MountPoint};
use crate::service::Service;
use crate::trouble::Troubles;

/// Threads that take in the kernel's requests. Two: one takes in a request while the other answers from memory.
const SESSION_THREADS: usize = 2;

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMountOptions {
    /// Its source in the table of mounts: the store's address.
    pub source: String,
    /// The cache's memory for data, and its block size.
    pub cache: CacheOptions,
    /// How long a name is believed to stand for the same object without asking the store again.
    pub ttl: Duration,
    /// Whether all users may use the mount.
    pub is_for_all: bool,
    /// How long a program waits for a read-only folder that does not answer; `None` waits for ever. Stores need none,
    /// as each [back end](Backend) limits its own requests. [`mount_writable`](StoreMount::mount_writable) ignores it:
    /// after an error a program would not know whether its write was done.
    pub timeout: Option<Duration>,
    /// Whether inode numbers fit into 32 bits. Such numbers stay the same until the mount ends; the next mount may give
    /// others.
    pub are_numbers_small: bool,
}

/// Asks a store for its first names, so that a wrong address fails now and not in each program that uses the mount. A
/// store that cannot list passes.
///
/// # Errors
/// There is no such bucket or folder, the store denies access, or it does not answer.
pub fn check(backend: &dyn Backend, source: &str) -> Result<Contents, MountError> {
    let message = match backend.list("").and_then(|mut names| names.next_entries()) {
        Ok(entries) if entries.is_empty() => return Ok(Contents::None),
        Ok(_) => return Ok(Contents::Some),
        Err(BackendError::Other { errno: Some(libc::ENOTSUP), .. }) => {
            return Ok(Contents::Unlisted);
        }
        Err(BackendError::NotFound) => "there is no such bucket or folder".to_owned(),
        Err(cause) => one_line(&cause.to_string()),
    };
    Err(MountError::Source { source_name: source.to_owned(), message })
}

/// Whether a store has any objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// None.
    None,
    /// Some.
    Some,
    /// The store does not list its names, as web servers do not.
    Unlisted,
}

fn service(
    (cache, store, tiers): (Cache, Store, Tiers),
    troubles: Arc<Troubles>,
    options: &StoreMountOptions,
) -> Arc<Service> {
    let size = (options.cache.budget_bytes, options.cache.block_bytes);
    let source = (options.source.clone(), options.ttl);
    Arc::new(Service::new((cache, store, tiers), troubles, source, size))
}

fn mount_options(options: &StoreMountOptions, is_read_only: bool) -> MountOptions {
    MountOptions {
        source: options.source.clone(),
        is_read_only,
        is_for_all: options.is_for_all,
        threads: SESSION_THREADS,
    }
}

/// A mounted store or folder. Dropping it unmounts it.
pub struct StoreMount {
    mount: MountPoint,
    service: Arc<Service>,
    /// Counts the inodes that the kernel holds.
    known_inodes: Box<dyn Fn() -> usize + Send + Sync>,
}

impl std::fmt::Debug for StoreMount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreMount").field("mount", &self.mount).finish_non_exhaustive()
    }
}

impl StoreMount {
    /// Mounts a store read-only at the empty folder `mountpoint`. Programs see error numbers only; `tell` gets a line
    /// for each failure. It is called from any thread and must not wait.
    ///
    /// # Errors
    /// The options, the mount point or FUSE do not allow it. The store is not asked; [`check`] does that.
    pub fn mount(
        backend: Arc<dyn Backend>,
        mountpoint: &Path,
        options: &StoreMountOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, MountError> {
        Self::mount_tiered((backend, Tiers::default()), mountpoint, options, tell)
    }

    /// Like [`mount`](StoreMount::mount), for a store behind [tiers](Tiers::over). The report then includes their counts, and
    /// `tell` gets their failures too.
    ///
    /// # Errors
    /// As [`mount`](StoreMount::mount).
    pub fn mount_tiered(
        (backend, tiers): (Arc<dyn Backend>, Tiers),
        mountpoint: &Path,
        options: &StoreMountOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, MountError> {
        let source = |message: String| MountError::Source {
            source_name: options.source.clone(),
            message: one_line(&message),
        };
        let point = FreePoint::prepare(mountpoint, Kind::STORE)?;
        let cache = Cache::new(options.cache).map_err(|error| source(error.to_string()))?;
        let store = cache.attach(Arc::clone(&backend));
        let troubles = Arc::new(Troubles::new(Box::new(tell)));
        let of_tiers = Arc::clone(&troubles);
        tiers.on_trouble(move |line| of_tiers.of_tier(line));
        let objects = Objects::new(backend, Arc::clone(&troubles), options.are_numbers_small);
        let service = service((cache, store, tiers), troubles, options);
        let read_only = Arc::new(ReadOnly { service: Arc::clone(&service), objects });
        let known = Arc::clone(&read_only);
        let file_system = FileSystem::new(read_only, options.timeout);
        let mount = point.serve(file_system, &mount_options(options, true))?;
        let known_inodes = Box::new(move || known.objects.known());
        Ok(StoreMount { mount, service, known_inodes })
    }

    /// Mounts a folder at the empty folder `mountpoint` so that programs can write it. A write is in the folder's file
    /// before it returns to the program. `depth` limits reads of the folder that are in flight at once; without it the
    /// [back end](LocalBackend::new) decides.
    ///
    /// This process must not map files of the mount for writing. When it unmaps written pages, the kernel locks the
    /// memory of the process and waits for the mount, which would need that memory: a deadlock.
    ///
    /// This process should have no umask of its own, as it would be taken from the modes that programs ask for.
    ///
    /// # Errors
    /// As [`mount`](StoreMount::mount), or the folder cannot be read.
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
            let message = "acting for other users needs CAP_SETUID and CAP_SETGID, \
                           which this process lacks; leave --allow-other out";
            return Err(source(message.to_owned()));
        }
        let point = FreePoint::prepare(mountpoint, Kind::STORE)?;
        let cache = Cache::new(options.cache).map_err(|error| source(error.to_string()))?;
        let backend = LocalBackend::beneath(folder, depth);
        let backend = Arc::new(backend.map_err(|error| source(error.to_string()))?);
        let store = cache.attach(Arc::clone(&backend) as Arc<dyn Backend>);
        let own = store.session();
        let troubles = Arc::new(Troubles::new(Box::new(tell)));
        let service = service((cache, store, Tiers::default()), troubles, options);
        let small = options.are_numbers_small;
        let tree = Tree::new(folder, Arc::clone(&service), (backend, own), small);
        let tree = Arc::new(tree.map_err(|error| source(error.to_string()))?);
        let known = Arc::clone(&tree);
        let file_system = folder::FileSystem::new(Arc::clone(&tree));
        let mount = point.serve(file_system, &mount_options(options, false))?;
        tree.notifier.set(mount.notifier()).ok(); // The notifier is set nowhere else.
        let known_inodes = Box::new(move || known.nodes.known());
        Ok(StoreMount { mount, service, known_inodes })
    }

    /// The mount point, as an absolute path.
    pub fn mountpoint(&self) -> &Path {
        self.mount.path()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        self.mount.handle()
    }

    /// The cache's counts so far.
    pub fn stats(&self) -> Stats {
        self.service.cache.stats()
    }

    /// The content of `.foretell/stats`.
    pub fn report(&self) -> Vec<u8> {
        self.service.report((self.known_inodes)())
    }

    /// Waits until the mount is unmounted, or a handle asks for that.
    pub fn wait(&self) -> Ending {
        self.mount.wait()
    }

    /// Why serving failed, if it ended by itself.
    pub fn failure(&self) -> Option<String> {
        self.mount.failure()
    }

    /// Unmounts the store or folder. Returns whether a program still uses it. Such a program is served until it closes its
    /// files or this process ends.
    ///
    /// # Errors
    /// The system refuses. The mount is still there, and ends with this process.
    pub fn unmount(mut self) -> Result<bool, MountError> {
        self.mount.unmount()
    }
}
