//! An array's life: checks, mounting, serving, unmounting, and what is left of a crash.
//!
//! Threads of a mounted array: two that take in the kernel's requests, one that waits for them to
//! end, one for the disks' time, three that answer.
//!
//! Unmounting first lets the disks finish, for two seconds at most; what comes later is answered
//! without delay. Then the mount goes, and the threads. If a program still uses the array after a
//! moment's patience, the mount is taken out of sight (detached) and goes on serving that program,
//! no longer at the disks' pace, until it lets go or this process ends; the report says so.
//! Should this process be killed, the kernel ends the connection: readers get an error,
//! and the mount point answers "not connected" until somebody mounts there again, which removes it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foretell_policy::Nanos;
use foretell_sim::layout::Layout;
use fuser::{Config, MountOption, Session, SessionACL};

use crate::error::{ArrayError, one_line};
use crate::file_system::{FileSystem, Service};
use crate::mount_table::{self, Force, mount_at};
use crate::options::{ArrayOptions, LayoutKind};
use crate::pool;
use crate::report::Report;
use crate::scheduler::Scheduler;
use crate::tree::Tree;

/// Threads that take in the kernel's requests.
const SESSION_THREADS: usize = 2;
/// Threads that read the backing folder and answer.
const REPLY_THREADS: usize = 3;
/// How long unmounting waits for programs that are just letting go.
const BUSY_PATIENCE: Duration = Duration::from_millis(500);
/// How long unmounting lets the disks work on what has been asked of them.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);
/// Files that a sequential layout places one after another; what is beyond is placed by itself.
const SEQUENTIAL_FILES_MAX: usize = 100_000;

/// Why an array is no longer served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Somebody unmounted it.
    Unmounted,
    /// [`ArrayHandle::request_unmount`] was called.
    Requested,
}

#[derive(Debug, Default)]
struct Life {
    session_ended: bool,
    unmount_requested: bool,
}

struct Shared {
    life: Mutex<Life>,
    changed: Condvar,
    scheduler: Arc<Scheduler>,
}

impl Shared {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Life)) {
        change(&mut self.life());
        self.changed.notify_all();
    }
}

/// Speaks to a mounted array from any thread; cheap to clone, and harmless when the array is gone.
#[derive(Clone)]
pub struct ArrayHandle(Arc<Shared>);

impl ArrayHandle {
    /// Makes [`Array::wait`] return, so that whoever waits there unmounts.
    pub fn request_unmount(&self) {
        self.0.change(|life| life.unmount_requested = true);
    }

    /// What the disks have done so far.
    pub fn report(&self) -> Report {
        self.0.scheduler.report()
    }

    /// Begins the statistics anew.
    pub fn reset_statistics(&self) {
        self.0.scheduler.reset_statistics();
    }

    /// The time on the array's clock: since mounting, in real time divided by the time scale.
    pub fn now(&self) -> Nanos {
        self.0.scheduler.now()
    }
}

/// A mounted array; dropping it unmounts it.
pub struct Array {
    shared: Arc<Shared>,
    mountpoint: PathBuf,
    /// Device number of the mount, to recognise it.
    device: Option<String>,
    pool: pool::Sender,
    session: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    /// A program still uses what has been unmounted: the threads go on.
    left_serving: bool,
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("mountpoint", &self.mountpoint).finish_non_exhaustive()
    }
}

impl Array {
    /// Serves the folder `backing` at the empty folder `mountpoint`.
    ///
    /// What an array that crashed has left at `mountpoint` is removed first. With a sequential
    /// layout the folder is walked once, up to 100,000 files.
    pub fn mount(
        backing: &Path,
        mountpoint: &Path,
        options: &ArrayOptions,
    ) -> Result<Array, ArrayError> {
        options.validate()?;
        let unusable = |source| ArrayError::Backing { path: backing.into(), source };
        let root = backing.canonicalize().map_err(unusable)?;
        let mountpoint = prepare_mountpoint(mountpoint)?;
        if root.starts_with(&mountpoint) || mountpoint.starts_with(&root) {
            return Err(ArrayError::Overlap { backing: root, mountpoint });
        }
        check_fuse()?;
        let source = mount_table::source_of(&root);
        let tree = Tree::new(root).map_err(unusable)?;
        let pool = pool::Sender::default();
        let scheduler = Arc::new(Scheduler::new(options, pool.clone()));
        let service = Arc::new(Service {
            layout: layout(options, &tree),
            tree,
            striping: options.striping(),
            scheduler: Arc::clone(&scheduler),
            metadata: options.metadata,
        });
        let shared = Arc::new(Shared {
            life: Mutex::default(),
            changed: Condvar::new(),
            scheduler: Arc::clone(&scheduler),
        });
        // From here on dropping the array undoes what has been done.
        let mut array = Array {
            shared,
            mountpoint,
            device: None,
            pool,
            session: None,
            threads: Vec::new(),
            left_serving: false,
        };
        let replier = Arc::clone(&service);
        array.threads =
            pool::start(REPLY_THREADS, &array.pool, move |task| replier.carry_out(task))?;
        array.threads.push(scheduler.start()?);
        array.start_session(FileSystem::new(service, array.pool.clone()), source)?;
        Ok(array)
    }

    fn start_session(&mut self, fs: FileSystem, source: String) -> Result<(), ArrayError> {
        let session = Session::new(fs, &self.mountpoint, &session_config(source));
        let session = session.map_err(|error| ArrayError::Mount {
            path: self.mountpoint.clone(),
            message: one_line(&error.to_string()),
        })?;
        self.device = mount_at(&self.mountpoint).map(|mount| mount.device);
        let shared = Arc::clone(&self.shared);
        let serve = move || {
            // However the session ends, the array is no longer served.
            session.run().ok();
            shared.change(|life| life.session_ended = true);
        };
        let thread = std::thread::Builder::new().name("array-session".into()).spawn(serve);
        self.session = Some(thread.map_err(|source| ArrayError::Thread { source })?);
        Ok(())
    }

    /// Where the array is mounted, as an absolute path.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// A handle for other threads.
    pub fn handle(&self) -> ArrayHandle {
        ArrayHandle(Arc::clone(&self.shared))
    }

    /// What the disks have done so far.
    pub fn report(&self) -> Report {
        self.shared.scheduler.report()
    }

    /// Begins the statistics anew.
    pub fn reset_statistics(&self) {
        self.shared.scheduler.reset_statistics();
    }

    /// The time on the array's clock: since mounting, in real time divided by the time scale.
    pub fn now(&self) -> Nanos {
        self.shared.scheduler.now()
    }

    /// Waits until somebody unmounts the array, or asks for it by a handle.
    pub fn wait(&self) -> Ending {
        let mut life = self.shared.life();
        loop {
            if life.session_ended {
                return Ending::Unmounted;
            }
            if life.unmount_requested {
                return Ending::Requested;
            }
            life = self.shared.changed.wait(life).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Unmounts, ends all threads and says what the disks did.
    ///
    /// Waits up to two seconds for the disks to finish. If a program still uses the array, the mount
    /// is taken out of sight and serves that program on; see [`Report::in_use_after_unmount`]. After
    /// an error the mount is still there, and ends with this process.
    pub fn unmount(mut self) -> Result<Report, ArrayError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<Report, ArrayError> {
        let Some(session) = self.session.take() else { return Ok(self.report()) };
        let patience_ends = Instant::now() + DRAIN_PATIENCE;
        while !self.shared.scheduler.is_idle() && Instant::now() < patience_ends {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut report = self.report();
        self.shared.scheduler.stop();
        self.left_serving = true;
        self.detach()?;
        if self.session_ends_within(BUSY_PATIENCE) {
            self.left_serving = false;
            session.join().ok();
            self.stop_threads();
        }
        report.in_use_after_unmount = self.left_serving;
        Ok(report)
    }

    /// Takes the mount away from the tree of folders, if it is still there.
    fn detach(&self) -> Result<(), ArrayError> {
        let patience_ends = Instant::now() + BUSY_PATIENCE;
        loop {
            let still_there = mount_at(&self.mountpoint).is_some_and(|mount| {
                mount.is_ours() && Some(&mount.device) == self.device.as_ref()
            });
            if !still_there {
                return Ok(());
            }
            match mount_table::unmount(&self.mountpoint, Force::Refuse) {
                Err(ArrayError::Busy { .. }) if Instant::now() < patience_ends => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(ArrayError::Busy { .. }) => {
                    return mount_table::unmount(&self.mountpoint, Force::Detach);
                }
                result => return result,
            }
        }
    }

    fn session_ends_within(&self, patience: Duration) -> bool {
        let life = self.shared.life();
        let going_on = |life: &mut Life| !life.session_ended;
        let waited = self.shared.changed.wait_timeout_while(life, patience, going_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.session_ended
    }

    fn stop_threads(&mut self) {
        self.shared.scheduler.stop();
        self.pool.close();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if self.session.is_some() {
            // Nobody is left to be told of an error.
            self.take_down().ok();
        }
        if !self.left_serving {
            self.stop_threads();
        }
    }
}

/// Unmounts the array at `mountpoint`, which another process may be serving; that process notices.
pub fn unmount_path(mountpoint: &Path) -> Result<(), ArrayError> {
    let not_mounted = || ArrayError::NotMounted { path: mountpoint.into() };
    let path = absolute(mountpoint).map_err(|_| not_mounted())?;
    match mount_at(&path) {
        Some(mount) if mount.is_ours() => mount_table::unmount(&path, Force::Refuse),
        _ => Err(not_mounted()),
    }
}

fn session_config(source: String) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source),
        MountOption::Subtype(mount_table::SOURCE.into()),
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    // Without root, sharing with other users would need a line in /etc/fuse.conf.
    config.acl = if is_root() { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(SESSION_THREADS);
    config
}

fn layout(options: &ArrayOptions, tree: &Tree) -> Layout {
    let volume = options.volume_sectors();
    match options.layout {
        LayoutKind::Sequential => Layout::sequential(volume, tree.walk(SEQUENTIAL_FILES_MAX)),
        LayoutKind::Aged => Layout::aged(volume, options.seed),
    }
}

/// Resolves a path whose last part may be a dead mount, which cannot be looked at.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            Ok(folder.canonicalize()?.join(name))
        }
        result => result,
    }
}

/// Makes sure that `mountpoint` is an empty folder with nothing mounted, and resolves its name.
fn prepare_mountpoint(mountpoint: &Path) -> Result<PathBuf, ArrayError> {
    let unusable = |source| ArrayError::MountPoint { path: mountpoint.into(), source };
    let path = absolute(mountpoint).map_err(unusable)?;
    match fs::metadata(&path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => remove_stale(&path)?,
        _ => {
            if mount_at(&path).is_some_and(|mount| mount.is_ours()) {
                return Err(ArrayError::AlreadyMounted { path });
            }
        }
    }
    let mut entries = fs::read_dir(&path).map_err(unusable)?;
    if entries.next().is_some() {
        return Err(ArrayError::NotEmpty { path });
    }
    Ok(path)
}

/// Unmounts what a crashed array has left.
fn remove_stale(path: &Path) -> Result<(), ArrayError> {
    match mount_at(path) {
        Some(mount) if !mount.is_ours() => {
            Err(ArrayError::StaleForeign { path: path.into(), owner: mount.source })
        }
        // `None`: somebody else has just removed it.
        None => Ok(()),
        Some(_) => mount_table::unmount(path, Force::Detach),
    }
}

fn check_fuse() -> Result<(), ArrayError> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map_err(|source| ArrayError::NoFuse { source })?;
    if !is_root() && mount_table::helper().is_none() {
        return Err(ArrayError::NoFusermount);
    }
    Ok(())
}

fn is_root() -> bool {
    // SAFETY: the call has no arguments, touches no memory and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
