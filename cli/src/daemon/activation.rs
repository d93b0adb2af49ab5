//! Sockets that systemd has opened for the daemon (`foretell.socket`, `foretell-cache.socket`), by the protocol of
//! `sd_listen_fds`.
//!
//! `LISTEN_PID` names the process that the sockets are for, and `LISTEN_FDS` their number; the first has the descriptor 3.
//! The daemon takes only sockets like those that it would open itself: one that listens for packets of runs, and one for
//! stores, a stream. Each lies where they look for it, and is closed to other users.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, getsockname};

use super::folder;

/// The first descriptor that is passed.
const FIRST: i32 = 3;

/// The sockets that systemd has passed.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// That of runs.
    pub(super) runs: Option<OwnedFd>,
    /// That of the cache of stores.
    pub(super) stores: Option<OwnedFd>,
}

/// The sockets that systemd has passed for the daemon of `folder`. To be called before there are other threads.
///
/// # Errors
/// A line: what was passed cannot be a socket of the daemon's.
pub(super) fn sockets(folder: &Path) -> Result<Given, String> {
    let number = |name| std::env::var(name).ok()?.parse::<i32>().ok();
    let is_own = number("LISTEN_PID") == i32::try_from(std::process::id()).ok();
    let count = number("LISTEN_FDS").filter(|_| is_own).unwrap_or(0);
    let mut given = Given::default();
    if count > 2 {
        return Err(format!(
            "systemd has passed {count} sockets; give one of runs and one of stores"
        ));
    }
    for descriptor in FIRST..FIRST + count {
        let socket = passed(descriptor)?;
        let kind = socket_type(&socket).unwrap_or(SocketType::RAW);
        let (place, wanted) = match kind {
            SocketType::STREAM => (&mut given.stores, folder.join(foretell_family::HOST_SOCKET)),
            _ => (&mut given.runs, folder::socket_in(folder)),
        };
        let wrong = |why: String| {
            format!("a socket that systemd has passed {why}; see packaging/systemd in the sources")
        };
        check((socket.as_fd(), kind), folder, &wanted).map_err(wrong)?;
        if place.replace(socket).is_some() {
            return Err(wrong("is the second of its kind".to_owned()));
        }
    }
    Ok(given)
}

/// The socket of this descriptor.
fn passed(descriptor: i32) -> Result<OwnedFd, String> {
    // SAFETY: F_GETFD only reads, and fails where nothing is open.
    if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        return Err("LISTEN_FDS is set, but no socket was passed; unset it".into());
    }
    // SAFETY: the descriptor is open, and whoever started this process has passed it to be owned here; nothing else uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let prepared = fcntl_setfd(&socket, FdFlags::CLOEXEC)
        .and_then(|()| rustix::io::ioctl_fionbio(&socket, true));
    prepared.map_err(|error| format!("cannot use a socket that systemd has passed: {error}"))?;
    Ok(socket)
}

/// Checks that it is what the daemon of `folder` would have opened at the path `wanted`.
fn check(
    (socket, kind): (BorrowedFd<'_>, SocketType),
    folder: &Path,
    wanted: &Path,
) -> Result<(), String> {
    let is_listening = socket_domain(socket) == Ok(AddressFamily::UNIX)
        && [SocketType::SEQPACKET, SocketType::STREAM].contains(&kind)
        && socket_acceptconn(socket) == Ok(true);
    if !is_listening {
        return Err(
            "is no listening Unix socket of packets (ListenSequentialPacket), or of a stream \
                    (ListenStream) for --cache"
                .into(),
        );
    }
    let path = path_of(socket);
    // Both may have links in them.
    let place = |path: &Path| path.canonicalize().ok();
    let is_there = path.as_deref().is_some_and(|path| {
        path == wanted || (place(path).is_some() && place(path) == place(wanted))
    });
    if !is_there {
        return Err(format!("is not at {}, where programs look for it", wanted.display()));
    }
    is_private(folder, wanted).map_err(|why| format!("is at {}: {why}", wanted.display()))
}

fn path_of(socket: BorrowedFd<'_>) -> Option<PathBuf> {
    let name = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    let path = name.path()?;
    Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}

/// Checks that other users can neither connect nor replace the socket.
fn is_private(folder: &Path, socket: &Path) -> io::Result<()> {
    folder::check(folder)?;
    let mode = |path: &Path| std::fs::symlink_metadata(path).map(|about| about.mode());
    // To connect, another user must be allowed to search the folder and to write to the socket.
    match mode(folder)? & 0o011 != 0 && mode(socket)? & 0o022 != 0 {
        true => Err(io::Error::other("others can reach it; set SocketMode=0600")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use rustix::net::{bind, listen, socketpair};

    use super::*;

    fn bound(kind: SocketType, path: &Path) -> OwnedFd {
        let socket = rustix::net::socket(AddressFamily::UNIX, kind, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(path).expect("short")).expect("bound");
        socket
    }

    #[test]
    fn only_a_private_listening_socket_of_packets_at_its_place_is_taken() {
        let above = tempfile::tempdir().expect("a folder");
        let folder = above.path().join("run");
        std::fs::create_dir(&folder).expect("made");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
        };
        mode(&folder, 0o700);
        let path = folder::socket_in(&folder);
        let checked = |socket: &OwnedFd| {
            check((socket.as_fd(), socket_type(socket).expect("a socket")), &folder, &path)
        };
        let why = |socket: &OwnedFd| checked(socket).expect_err("it is refused");
        let datagrams = bound(SocketType::DGRAM, &path);
        assert!(why(&datagrams).contains("packets"));
        std::fs::remove_file(&path).expect("it is there");
        let socket = bound(SocketType::SEQPACKET, &path);
        assert!(why(&socket).contains("listening"));
        listen(&socket, 1).expect("it listens");
        assert_eq!(checked(&socket), Ok(()));
        let elsewhere = bound(SocketType::SEQPACKET, &folder.join("other"));
        listen(&elsewhere, 1).expect("it listens");
        assert!(why(&elsewhere).contains("where programs look"));
        let (one, _other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            rustix::net::SocketFlags::empty(),
            None,
        )
        .expect("a pair");
        assert!(why(&one).contains("listening"));
        // Others may come in where both allow it.
        mode(&path, 0o666);
        assert_eq!(checked(&socket), Ok(()));
        mode(&folder, 0o755);
        assert!(why(&socket).contains("SocketMode"));
        mode(&path, 0o600);
        assert_eq!(checked(&socket), Ok(()));
        mode(&folder, 0o777);
        assert!(why(&socket).contains("nobody else"));
    }
}
