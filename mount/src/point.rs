//! A FUSE mount's life: checks, mounting, serving, unmounting, and what is left of a crash.
//!
//! Whoever serves a file system brings it; a [`MountPoint`] has it served in threads of its own until somebody unmounts
//! it, or [asks](Handle::request_unmount) for that. If a program still uses the mount after a moment's patience, it is taken out of
//! sight (detached) and goes on serving that program until it lets go or this process ends. Should this
//! process be killed, the kernel ends the connection: readers get an error,
//! and the mount point answers "not connected" until somebody mounts there again, which removes it.

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
use crate::table::{self, Force, mount_at};

/// How long unmounting waits for programs that are just letting go.
const BUSY_PATIENCE: Duration = Duration::from_millis(500);

/// How it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What the table of mounts says is mounted there: a folder, an address.
    pub source: String,
    /// Nobody can write.
    pub is_read_only: bool,
    /// All users may use it, as far as the permissions of files let them; without root that needs a line in `/etc/fuse.conf`.
    pub is_for_all: bool,
    /// Threads that take in the kernel's requests.
    pub threads: usize,
}

/// Why a mount is no longer served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Somebody unmounted it.
    Unmounted,
    /// [`Handle::request_unmount`] was called.
    Requested,
}

#[derive(Debug, Default)]
struct Life {
    session_ended: bool,
    /// Why it ended, if not by an unmount.
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

/// Speaks to a mount from any thread; cheap to clone, and harmless when the mount is gone.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Makes [`MountPoint::wait`] return, so that whoever waits there unmounts.
    pub fn request_unmount(&self) {
        self.0.change(|life| life.unmount_requested = true);
    }
}

/// A place where a file system can be mounted: an empty folder.
#[derive(Debug)]
pub struct FreePoint {
    path: PathBuf,
    kind: Kind,
}

impl FreePoint {
    /// Makes sure that `path` is an empty folder with nothing of this kind mounted, and that the system can mount there.
    /// What has crashed there is removed.
    ///
    /// # Errors
    /// What stands in the way.
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

    /// It, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves `file_system` there.
    ///
    /// # Errors
    /// What the system says.
    pub fn serve<F: Filesystem + 'static>(
        self,
        file_system: F,
        options: &MountOptions,
    ) -> Result<MountPoint, MountError> {
        let FreePoint { path, kind } = self;
        // Without its threads the session ends after the mount was announced.
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
            // However the session ends, nothing is served any longer.
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

/// A file system that is mounted and served. Dropping it unmounts it.
pub struct MountPoint {
    shared: Arc<Shared>,
    path: PathBuf,
    kind: Kind,
    /// Device number of the mount, to recognise it.
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
    /// Where it is, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has not been [unmounted](MountPoint::unmount) here.
    pub fn is_served(&self) -> bool {
        self.session.is_some()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// What tells the kernel that something of its caches is no longer right.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Why the session ended by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.shared.life().failure.clone()
    }

    /// Waits until somebody unmounts it, or asks for it by a handle.
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

    /// Unmounts it, if that has not been done. Says whether a program still uses it: it is out of sight then, and
    /// serves that program on.
    ///
    /// # Errors
    /// What the system says. The mount is still there, and ends with this process.
    pub fn unmount(&mut self) -> Result<bool, MountError> {
        let Some(session) = self.session.take() else { return Ok(false) };
        self.detach()?;
        let has_ended = self.session_ends_within(BUSY_PATIENCE);
        if has_ended {
            session.join().ok();
        }
        Ok(!has_ended)
    }

    /// Takes the mount away from the tree of folders, if it is still there.
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
        // Nobody is left to be told of an error.
        self.unmount().ok();
    }
}

/// Unmounts what of this kind is at `path`, which another process may be serving; that process notices.
///
/// # Errors
/// That nothing of this kind is there, that another user has mounted it, that it is in use (and has not crashed), and what
/// the system says.
pub fn unmount_path(path: &Path, kind: &Kind) -> Result<(), MountError> {
    let not_mounted = || MountError::NotMounted { path: path.into(), noun: kind.noun };
    let place = absolute(path).map_err(|_| not_mounted())?;
    // Whoever still holds a file of a dead one will get nothing from it any more.
    let force = if is_dead(&place) { Force::Detach } else { Force::Refuse };
    match mount_at(&place) {
        Some(mount) if mount.is_of(kind) => match mount.user {
            Some(user) if !is_root() && user != rustix::process::getuid().as_raw() => {
                Err(MountError::NotYours { path: path.into(), user })
            }
            _ => table::unmount(&place, force),
        },
        _ => Err(not_mounted()),
    }
}

/// Checks that so many threads can be started at once, and one more for requests to a store or a folder.
fn check_threads(threads: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let _closed = gate.lock(); // Until all are started.
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
        // What a user may write is not to be root's by its mode, nor a device.
        false => config.mount_options.extend([MountOption::NoDev, MountOption::NoSuid]),
    }
    config.acl = if options.is_for_all { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config
}

/// Resolves a path whose last part may be a dead mount, or that of another user, which cannot be looked at.
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

/// Whether what is mounted there has crashed. What the kernel knows of the folder itself it may still tell.
fn is_dead(place: &Path) -> bool {
    rustix::fs::statfs(place).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// Unmounts what has crashed.
fn remove_stale(path: &Path, kind: &Kind) -> Result<(), MountError> {
    match mount_at(path) {
        Some(mount) if !mount.is_of(kind) => {
            Err(MountError::StaleForeign { path: path.into(), owner: mount.source })
        }
        // `None`: somebody else has just removed it.
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

/// Whether this process may do all.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
