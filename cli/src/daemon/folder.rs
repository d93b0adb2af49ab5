//! The daemon's folder: its socket, and a lock that says whether it runs.
//!
//! `FORETELL_DAEMON` names the folder; if it is set and empty, there is no daemon. Otherwise it is `foretell` in the XDG
//! runtime folder, or, without one, `/tmp/foretell-UID`. It must belong to this user, and nobody else may write to it: another
//! user could put a socket of their own there.
//!
//! The kernel lets go of a lock when its process ends, however that happens. So what a killed daemon leaves is taken over.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use foretell_family::HOST_SOCKET;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

const VARIABLE: &str = "FORETELL_DAEMON";
const SOCKET: &str = "daemon.sock";
const METRICS: &str = "metrics.sock";
const LOCK: &str = "daemon.lock";

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The folder; `None` if there is to be no daemon.
pub(super) fn path() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => std::path::absolute(folder).ok(),
        None => {
            let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
            let runtime = runtime.filter(|folder| folder.is_absolute());
            Some(runtime.map_or_else(in_tmp, |folder| folder.join("foretell")))
        }
    }
}

fn in_tmp() -> PathBuf {
    PathBuf::from(format!("/tmp/foretell-{}", rustix::process::geteuid().as_raw()))
}

/// The daemon's socket in its folder.
pub(super) fn socket_in(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

/// Checks that the folder belongs to this user, and that nobody else may write to it.
pub(super) fn check(folder: &Path) -> io::Result<()> {
    let about = std::fs::symlink_metadata(folder)?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw();
    match about.is_dir() && is_own && about.mode() & 0o022 == 0 {
        true => Ok(()),
        false => {
            Err(io::Error::other("it must be a folder of yours that nobody else may write to"))
        }
    }
}

/// A connection to the daemon of this folder. Does not wait.
pub(super) fn reach(folder: &Path) -> io::Result<OwnedFd> {
    check(folder)?;
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new(folder.join(SOCKET))?)?;
    Ok(socket)
}

/// Whether a process listens at a socket.
fn is_heard(path: &Path) -> bool {
    let Ok((socket, name)) = new_socket().and_then(|one| Ok((one, SocketAddrUnix::new(path)?)))
    else {
        return false;
    };
    // Its queue may be full, and it may be of another kind.
    matches!(connect(&socket, &name), Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE))
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A folder of which this process is the daemon. Dropping it removes what lies in it.
#[derive(Debug)]
pub(super) struct Taken {
    folder: PathBuf,
    /// Whether the folder was not there before.
    is_made: bool,
    /// Whether the socket is another's, who has opened it and keeps it; and whether that of the cache is.
    has_socket: bool,
    has_cache_socket: bool,
    _lock: File,
}

/// Why a folder cannot be taken.
pub(super) enum Refused {
    /// Another daemon has it: its process.
    By(Option<u32>),
    /// A process listens at this socket without having the folder, as systemd does for a daemon that it starts later.
    Heard(PathBuf),
    Error(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Error(error)
    }
}

impl Taken {
    /// Takes the folder, which is made if it is not there. `has_socket`: the socket in it is open already, and stays; so is and
    /// does that of the cache.
    pub(super) fn take(
        folder: PathBuf,
        (has_socket, has_cache_socket): (bool, bool),
    ) -> Result<Self, Refused> {
        let made = DirBuilder::new().mode(0o700).create(&folder);
        let is_made = made.is_ok();
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => check(&folder)?,
        }
        let path = folder.join(LOCK);
        let mut lock = loop {
            let lock = lock(&path)?;
            // A daemon that has just ended may have removed the file. The next one would make and lock a new file.
            let (of_lock, of_path) = (lock.metadata()?, std::fs::symlink_metadata(&path));
            if of_path
                .is_ok_and(|about| (about.dev(), about.ino()) == (of_lock.dev(), of_lock.ino()))
            {
                break lock;
            }
        };
        for (socket, is_given) in [(SOCKET, has_socket), (HOST_SOCKET, has_cache_socket)] {
            let socket = folder.join(socket);
            if !is_given && is_heard(&socket) {
                // While it is locked, it is nobody else's.
                let _ = remove(&path);
                return Err(Refused::Heard(socket));
            }
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(Taken { folder, is_made, has_socket, has_cache_socket, _lock: lock })
    }

    /// The socket for requests.
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        let path = self.folder.join(SOCKET);
        remove(&path)?;
        let socket = new_socket()?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o600))?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// The path of the socket for metrics, which is free.
    pub(super) fn metrics(&self) -> io::Result<PathBuf> {
        let path = self.folder.join(METRICS);
        remove(&path)?;
        Ok(path)
    }

    /// Lets nobody connect any more.
    pub(super) fn hide(&self) {
        if !self.has_socket {
            let _ = remove(&self.folder.join(SOCKET));
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.hide();
        // A host has removed its socket, but for one that was killed.
        let of_cache = (!self.has_cache_socket).then_some(HOST_SOCKET);
        for name in [METRICS, LOCK].into_iter().chain(of_cache) {
            let _ = remove(&self.folder.join(name));
        }
        if self.is_made {
            let _ = std::fs::remove_dir(&self.folder); // Others may have put something there.
        }
    }
}

/// The process that is the daemon of this folder, as far as its lock tells.
pub(super) fn holder(folder: &Path) -> Option<u32> {
    check(folder).ok()?;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = file.open(folder.join(LOCK)).ok()?;
    // A daemon that was killed leaves the file unlocked.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            std::fs::read_to_string(folder.join(LOCK)).ok()?.trim().parse().ok()
        }
        _ => None,
    }
}

/// Opens the file and locks it.
fn lock(path: &Path) -> Result<File, Refused> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            Err(Refused::By(text.trim().parse().ok()))
        }
        Err(error) => Err(Refused::Error(error.into())),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_taken_once_and_what_a_killed_daemon_leaves_is_no_hindrance() {
        let above = tempfile::tempdir().expect("a folder");
        let folder = above.path().join("foretell");
        let take = || Taken::take(folder.clone(), (false, false));
        // A killed daemon leaves a socket that nobody listens at, and a lock file that is not locked.
        std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("made");
        std::fs::write(folder.join(LOCK), "1\n").expect("written");
        drop(std::os::unix::net::UnixListener::bind(folder.join(SOCKET)).expect("a socket"));
        assert!(reach(&folder).is_err() && holder(&folder).is_none());
        let first = take().ok().expect("it is free");
        let _listener = first.listen().expect("a socket");
        assert!(reach(&folder).is_ok());
        assert!(matches!(take(), Err(Refused::By(Some(pid))) if pid == std::process::id()));
        assert_eq!(holder(&folder), Some(std::process::id()));
        first.hide();
        assert!(reach(&folder).is_err());
        drop(first);
        let left = std::fs::read_dir(&folder).expect("it was there before").count();
        assert_eq!(left, 0, "nothing is left");
        let others = std::os::unix::net::UnixListener::bind(folder.join(SOCKET)).expect("a socket");
        assert!(matches!(take(), Err(Refused::Heard(path)) if path == folder.join(SOCKET)));
        let left = std::fs::read_dir(&folder).expect("it is there").count();
        assert_eq!(left, 1, "the socket of another is left, and nothing else");
        drop(others);
        drop(take().ok().expect("nobody listens"));
        std::fs::remove_dir(&folder).expect("it is empty");
        drop(take().ok().expect("it is free again"));
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("foretell");
        std::fs::create_dir(&path).expect("made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("set");
        assert!(matches!(Taken::take(path.clone(), (false, false)), Err(Refused::Error(_))));
        assert!(reach(&path).is_err());
        let link = folder.path().join("link");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("set");
        std::os::unix::fs::symlink(&path, &link).expect("made");
        assert!(matches!(Taken::take(link, (false, false)), Err(Refused::Error(_))));
    }
}
