//! An array's life: its mount, and the threads behind it.
//!
//! A mounted array has these threads: two that take in the kernel's requests, one that waits for them to end, one for
//! the disks' time, and three that answer (eight if it is writable).
//!
//! Unmounting first lets the disks finish, for at most two seconds. Requests that come later are answered without
//! delay. Then the mount goes ([`foretell_mount::point`]), and the threads. If a program still uses the array, the
//! threads go on serving it, no longer at the disks' pace, and the report says so.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foretell_mount::Kind;
use foretell_mount::point::{self, Ending, FreePoint, MountOptions, MountPoint};
use foretell_policy::Nanos;
use foretell_sim::layout::Layout;

use crate::error::ArrayError;
use crate::file_system::{FileSystem, Service};
use crate::options::{ArrayOptions, LayoutKind};
use crate::pool;
use crate::report::Report;
use crate::scheduler::Scheduler;
use crate::striped::StripedFiles;
use crate::tree::Tree;
use crate::writing::Listings;

/// Threads that take in the kernel's requests.
const SESSION_THREADS: usize = 2;
/// Threads that read the backing folder and answer.
const REPLY_THREADS: usize = 3;
/// As many on a writable array, so that some are left while others wait for the backing folder's disk (fsync).
const WRITABLE_REPLY_THREADS: usize = 8;
/// How long unmounting lets the disks work on requests in flight.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// Files that a sequential layout places one after another. Each further file has a place of its own.
const SEQUENTIAL_FILES_MAX: usize = 100_000;

/// Controls a mounted array from any thread. Cheap to clone, and harmless when the array is gone.
#[derive(Clone)]
pub struct ArrayHandle {
    mount: point::Handle,
    scheduler: Arc<Scheduler>,
}

impl ArrayHandle {
    /// Makes [`Array::wait`] return, so that its caller unmounts.
    pub fn request_unmount(&self) {
        self.mount.request_unmount();
    }

    /// What the disks have done so far.
    pub fn report(&self) -> Report {
        self.scheduler.report()
    }

    /// Resets the statistics.
    pub fn reset_statistics(&self) {
        self.scheduler.reset_statistics();
    }

    /// The time on the array's clock: real time since mounting, divided by the time scale.
    pub fn now(&self) -> Nanos {
        self.scheduler.now()
    }
}

/// The threads that keep the disks' time and answer.
struct Threads {
    scheduler: Arc<Scheduler>,
    pool: pool::Sender,
    threads: Vec<JoinHandle<()>>,
    /// A program still uses the array after unmounting, so the threads go on.
    is_left_serving: bool,
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.is_left_serving {
            return;
        }
        self.scheduler.stop();
        self.pool.close();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

/// A mounted array. Dropping it unmounts it.
pub struct Array {
    mount: MountPoint,
    threads: Threads,
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("mount", &self.mount).finish_non_exhaustive()
    }
}

impl Array {
    /// Serves the folder `backing` at the empty folder `mountpoint`.
    ///
    /// A crashed array at `mountpoint` is removed first. A sequential layout walks the folder once, up to 100,000
    /// files.
    ///
    /// If it is writable, this process should have no umask of its own: the kernel has applied that of the program, and
    /// this one would be taken from the modes too.
    pub fn mount(
        backing: &Path,
        mountpoint: &Path,
        options: &ArrayOptions,
    ) -> Result<Array, ArrayError> {
        options.validate()?;
        let unusable = |source| ArrayError::Backing { path: backing.into(), source };
        let root = backing.canonicalize().map_err(unusable)?;
        let point = FreePoint::prepare(mountpoint, Kind::ARRAY)?;
        if root.starts_with(point.path()) || point.path().starts_with(&root) {
            let mountpoint = point.path().into();
            return Err(ArrayError::Overlap { backing: root, mountpoint });
        }
        let mount_options = MountOptions {
            source: root.to_string_lossy().into_owned(),
            is_read_only: !options.writable,
            // Without root, sharing with other users would need a line in /etc/fuse.conf.
            is_for_all: point::is_root(),
            threads: SESSION_THREADS,
        };
        let tree = Tree::new(root).map_err(unusable)?;
        let pool = pool::Sender::default();
        let scheduler = Arc::new(Scheduler::new(options, pool.clone()));
        let service = Arc::new(Service {
            layout: layout(options, &tree),
            striped: options.striped.map(|striped| {
                let mut files = tree.walk(SEQUENTIAL_FILES_MAX);
                files.remove(0); // The root, whose listing is not striped.
                StripedFiles::new(options, &striped, &files)
            }),
            tree,
            striping: options.striping(),
            scheduler: Arc::clone(&scheduler),
            metadata: options.metadata,
            listings: Listings::default(),
        });
        let mut threads = Threads { scheduler, pool, threads: Vec::new(), is_left_serving: false };
        let replier = Arc::clone(&service);
        let repliers = if options.writable { WRITABLE_REPLY_THREADS } else { REPLY_THREADS };
        threads.threads =
            pool::start(repliers, &threads.pool, move |task| replier.carry_out(task))?;
        let disks = threads.scheduler.start()?;
        threads.threads.push(disks);
        let file_system = FileSystem::new(service, threads.pool.clone(), options.writable);
        let mount = point.serve(file_system, &mount_options)?;
        Ok(Array { mount, threads })
    }

    /// Where the array is mounted, as an absolute path.
    pub fn mountpoint(&self) -> &Path {
        self.mount.path()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> ArrayHandle {
        ArrayHandle { mount: self.mount.handle(), scheduler: Arc::clone(&self.threads.scheduler) }
    }

    /// What the disks have done so far.
    pub fn report(&self) -> Report {
        self.threads.scheduler.report()
    }

    /// Resets the statistics.
    pub fn reset_statistics(&self) {
        self.threads.scheduler.reset_statistics();
    }

    /// The time on the array's clock: real time since mounting, divided by the time scale.
    pub fn now(&self) -> Nanos {
        self.threads.scheduler.now()
    }

    /// Waits until the array is unmounted, or a handle asks for that.
    pub fn wait(&self) -> Ending {
        self.mount.wait()
    }

    /// Unmounts, ends all threads and returns what the disks did.
    ///
    /// Waits at most two seconds for the disks to finish. If a program still uses the array, the mount is detached and
    /// serves that program on; see [`Report::in_use_after_unmount`]. After an error the mount is still there, and ends
    /// with this process.
    pub fn unmount(mut self) -> Result<Report, ArrayError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<Report, ArrayError> {
        let scheduler = &self.threads.scheduler;
        let patience_ends = Instant::now() + DRAIN_PATIENCE;
        while !scheduler.is_idle() && Instant::now() < patience_ends {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut report = scheduler.report();
        scheduler.stop();
        self.threads.is_left_serving = true;
        self.threads.is_left_serving = self.mount.unmount()?;
        report.in_use_after_unmount = self.threads.is_left_serving;
        Ok(report)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if self.mount.is_served() {
            // There is nobody to report an error to.
            self.take_down().ok();
        }
    }
}

/// Unmounts the array at `mountpoint`. If another process serves it, that process notices.
pub fn unmount_path(mountpoint: &Path) -> Result<(), ArrayError> {
    Ok(point::unmount_path(mountpoint, &Kind::ARRAY)?)
}

fn layout(options: &ArrayOptions, tree: &Tree) -> Layout {
    let volume = options.volume_sectors();
    match options.layout {
        LayoutKind::Sequential => Layout::sequential(volume, tree.walk(SEQUENTIAL_FILES_MAX)),
        LayoutKind::Aged => Layout::aged(volume, options.seed),
    }
}
