//! A FUSE mount's life: checks, mounting, serving, unmounting, and cleaning up after a crash.
//!
//! The caller brings a file system. A [`MountPoint`] serves it in threads of its own until it is unmounted, or until
//! somebody [asks](Handle::request_unmount) for that.
//!
//! * **In use.** Unmounting waits half a second for programs that still use the mount. Then it detaches the mount:
//!   nothing can open it any more, and programs with open files are served until they close them or this process ends.
//! * **Crash.** If this process is killed, the kernel ends the connection. Readers get an error, and the mount point
//!   answers ENOTCONN until it is unmounted or something is mounted there again.

use std::fs::{self, OpenOptions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Config, Filesystem, MountOption, Notifier, Session, SessionACL};

use crate::error::{MountError, one_line};
use crate::guarded::Guarded;
use crate::kind::Kind;
use crate::table::{self, Force, Mount, mount_at};

/// How long unmounting waits for programs that are about to close their files.
const BUSY_PATIENCE: Duration = Duration::from_millis(500);

/// Options of a FUSE mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The source in the table of mounts: a folder, or an address.
    pub source: String,
    /// Whether nobody can write.
    pub is_read_only: bool,
    /// Whether all users may use it, within the permissions of its files. Without root this needs a line in
    /// `/etc/fuse.conf`.
    pub is_for_all: bool,
    /// Threads that take in the kernel's requests.
    pub threads: usize,
}

/// Why [`MountPoint::wait`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The mount is gone.
    Unmounted,
    /// [`Handle::request_unmount`] was called.
    Requested,
}

#[derive(Debug, Default)]
struct Life {
    session_ended: bool,
    /// The error that ended it, if it was not unmounted.
    failure: Option<String>,
    unmount_requested: bool,
}

#[derive(Debug, Default)]
struct Shared {
    life: Mutex<Life>,
    changed: Condvar,
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

/// Controls a mount from any thread. Cheap to clone, and harmless when the mount is gone.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Makes [`MountPoint::wait`] return, so that its caller unmounts.
    pub fn request_unmount(&self) {
        self.0.change(|life| life.unmount_requested = true);
    }
}

/// An empty folder where a file system can be mounted.
#[derive(Debug)]
pub struct FreePoint {
    path: PathBuf,
    kind: Kind,
}

impl FreePoint {
    /// Checks that `path` is an empty folder where nothing of this kind is mounted, and that the system can mount
    /// there. A crashed mount of this kind is removed first.
    ///
    /// # Errors
    /// The reason why nothing can be mounted there.
    pub fn prepare(path: &Path, kind: Kind) -> Result<Self, MountError> {
        let unusable = |source| MountError::MountPoint { path: path.into(), source };
        let place = absolute(path).map_err(unusable)?;
        if is_dead(&place) {
            remove_stale(&place, &kind)?;
        } else if mount_at(&place).is_some_and(|mount| mount.is_of(&kind)) {
            let Kind { noun, unmount, .. } = kind;
            return Err(MountError::AlreadyMounted { path: place, noun, unmount });
        }
        let mut entries = fs::read_dir(&place).map_err(unusable)?;
        if entries.next().is_some() {
            return Err(MountError::NotEmpty { path: place });
        }
        check_fuse()?;
        Ok(FreePoint { path: place, kind })
    }

    /// The folder, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Mounts and serves `file_system` there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn serve<F: Filesystem + 'static>(
        self,
        file_system: F,
        options: &MountOptions,
    ) -> Result<MountPoint, MountError> {
        let FreePoint { path, kind } = self;
        // Without enough threads the session would end just after it was reported as mounted.
        check_threads(options.threads).map_err(|source| MountError::Thread { source })?;
        let config = config(&kind, options);
        let session = Session::new(Guarded(file_system), &path, &config);
        let session = session.map_err(|error| MountError::Mount {
            path: path.clone(),
            message: one_line(&error.to_string()),
        })?;
        let device = mount_at(&path).map(|mount| mount.device);
        let (shared, notifier) = (Arc::<Shared>::default(), session.notifier());
        let ending = Arc::clone(&shared);
        let serve = move || {
            // Whether it returns or panics, nothing is served any more.
            let ended = catch_unwind(AssertUnwindSafe(|| session.run()));
            ending.change(|life| {
                life.failure = match ended {
                    Ok(result) => result.err().map(|error| one_line(&error.to_string())),
                    Err(_) => Some("internal error".into()),
                };
                life.session_ended = true;
            });
        };
        let thread = std::thread::Builder::new().name("mount-session".into()).spawn(serve);
        let session = Some(thread.map_err(|source| MountError::Thread { source })?);
        Ok(MountPoint { shared, path, kind, device, session, notifier })
    }
}

/// A mounted file system that is being served. Dropping it unmounts it.
pub struct MountPoint {
    shared: Arc<Shared>,
    path: PathBuf,
    kind: Kind,
    /// The mount's device number, which identifies it.
    device: Option<String>,
    session: Option<JoinHandle<()>>,
    notifier: Notifier,
}

impl std::fmt::Debug for MountPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountPoint").field("path", &self.path).finish_non_exhaustive()
    }
}

impl MountPoint {
    /// The mount point, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has not been [unmounted](MountPoint::unmount) through this value.
    pub fn is_served(&self) -> bool {
        self.session.is_some()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Tells the kernel that something in its caches is out of date.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// The error that ended the session, if it ended by itself.
    pub fn failure(&self) -> Option<String> {
        self.shared.life().failure.clone()
    }

    /// Waits until it is unmounted, or a handle asks for that.
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

    /// Unmounts this mount, if it is mounted. Returns whether a program still uses the mount: then the mount is detached, and
    /// serves that program on.
    ///
    /// # Errors
    /// The system refuses. The mount is still there, and ends with this process.
    pub fn unmount(&mut self) -> Result<bool, MountError> {
        let Some(session) = self.session.take() else { return Ok(false) };
        self.detach()?;
        let has_ended = self.session_ends_within(BUSY_PATIENCE);
        if has_ended {
            session.join().ok();
        }
        Ok(!has_ended)
    }

    /// Removes the mount from the tree of folders, if it is still there.
    fn detach(&self) -> Result<(), MountError> {
        let patience_ends = Instant::now() + BUSY_PATIENCE;
        loop {
            let still_there = mount_at(&self.path).is_some_and(|mount| {
                mount.is_of(&self.kind) && Some(&mount.device) == self.device.as_ref()
            });
            if !still_there {
                return Ok(());
            }
            match table::unmount(&self.path, Force::Refuse) {
                Err(MountError::Busy { .. }) if Instant::now() < patience_ends => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(MountError::Busy { .. }) => {
                    return table::unmount(&self.path, Force::Detach);
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
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // There is nobody to report an error to.
        self.unmount().ok();
    }
}

/// Unmounts a mount of this kind at `path`. If another process serves it, that process notices.
///
/// # Errors
/// No mount of this kind is there, another user has mounted it, a program uses it (unless it has crashed), or the
/// system refuses.
pub fn unmount_path(path: &Path, kind: &Kind) -> Result<(), MountError> {
    let no_such_path =
        |source| MountError::NoSuchPath { path: path.into(), noun: kind.noun, source };
    let place = absolute(path).map_err(no_such_path)?;
    // A dead mount has nothing for programs that still hold its files.
    let force = if is_dead(&place) { Force::Detach } else { Force::Refuse };
    match mount_at(&place) {
        Some(mount) if mount.is_of(kind) => match mount.user {
            Some(user) if !is_root() && user != rustix::process::getuid().as_raw() => {
                Err(MountError::NotYours { path: path.into(), user })
            }
            _ => unmount_patiently(&place, force),
        },
        other => Err(not_mounted(path, kind, other)),
    }
}

/// No mount of the kind `wanted` is at `path`, but `other` or none.
fn not_mounted(path: &Path, wanted: &Kind, other: Option<Mount>) -> MountError {
    let found = other.and_then(|mount| Kind::ALL.into_iter().find(|kind| mount.is_of(kind)));
    match found {
        Some(Kind { noun: found, unmount, .. }) => {
            MountError::OtherKind { path: path.into(), wanted: wanted.noun, found, unmount }
        }
        None => MountError::NotMounted { path: path.into(), noun: wanted.noun },
    }
}

/// Unmounts what is at `path`. Waits for programs that are about to close their files: the manager of a run that has ended may
/// still have lookups under way.
fn unmount_patiently(path: &Path, force: Force) -> Result<(), MountError> {
    let patience_ends = Instant::now() + BUSY_PATIENCE;
    loop {
        match table::unmount(path, force) {
            Err(MountError::Busy { .. }) if Instant::now() < patience_ends => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Checks that `threads` threads can be started, and one more for requests to a store or a folder.
fn check_threads(threads: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let _closed = gate.lock(); // Until all have started.
        for _ in 0..=threads {
            let thread = std::thread::Builder::new().name("mount-check".into());
            thread.spawn_scoped(scope, || drop(gate.lock()))?;
        }
        Ok(())
    })
}

fn config(kind: &Kind, options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(table::source_of(kind, &options.source)),
        MountOption::Subtype(kind.name.into()),
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    match options.is_read_only {
        true => config.mount_options.push(MountOption::RO),
        // A user who may write here must not get root's rights by set-user bits, or devices.
        false => config.mount_options.extend([MountOption::NoDev, MountOption::NoSuid]),
    }
    config.acl = if options.is_for_all { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config
}

/// Resolves a path. Its last part may be a dead mount or another user's, which cannot be looked at.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::EACCES)) => {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            Ok(folder.canonicalize()?.join(name))
        }
        result => result,
    }
}

/// Whether a mount there has crashed. `statfs` asks its process, while the kernel may answer `stat` from memory.
fn is_dead(place: &Path) -> bool {
    rustix::fs::statfs(place).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// Removes a crashed mount.
fn remove_stale(path: &Path, kind: &Kind) -> Result<(), MountError> {
    match mount_at(path) {
        Some(mount) if !mount.is_of(kind) => {
            Err(MountError::StaleForeign { path: path.into(), owner: mount.source })
        }
        // Somebody else has just removed it.
        None => Ok(()),
        Some(_) => table::unmount(path, Force::Detach),
    }
}

fn check_fuse() -> Result<(), MountError> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map_err(|source| MountError::NoFuse { source })?;
    if !is_root() && table::helper().is_none() {
        return Err(MountError::NoFusermount);
    }
    Ok(())
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
