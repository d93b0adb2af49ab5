//! A socket that systemd has opened for the daemon (`foretell.socket`), by the protocol of `sd_listen_fds`.
//!
//! `LISTEN_PID` names the process that the sockets are for, and `LISTEN_FDS` their number; the first has the descriptor 3.
//! The daemon takes only a socket like the one that it would open itself: it listens for packets, lies where runs look for it,
//! and is closed to other users.

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

/// The socket that systemd has passed, if any, for the daemon of `folder`. To be called before there are other threads.
///
/// # Errors
/// A line: what was passed cannot be the daemon's socket.
pub(super) fn socket(folder: &Path) -> Result<Option<OwnedFd>, String> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let is_own = number("LISTEN_PID") == Some(std::process::id());
    match number("LISTEN_FDS").filter(|&count| is_own && count > 0) {
        None => return Ok(None),
        Some(1) => {}
        Some(count) => return Err(format!("systemd has passed {count} sockets; give one")),
    }
    // SAFETY: F_GETFD only reads, and fails where nothing is open.
    if unsafe { libc::fcntl(FIRST, libc::F_GETFD) } < 0 {
        return Err("LISTEN_FDS is set, but no socket was passed; unset it".into());
    }
    // SAFETY: the descriptor is open, and whoever started this process has passed it to be owned here; nothing else uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    check(socket.as_fd(), folder).map_err(|why| {
        format!("the socket that systemd has passed {why}; see packaging/systemd/foretell.socket")
    })?;
    let prepared = fcntl_setfd(&socket, FdFlags::CLOEXEC)
        .and_then(|()| rustix::io::ioctl_fionbio(&socket, true));
    prepared.map_err(|error| format!("cannot use the socket that systemd has passed: {error}"))?;
    Ok(Some(socket))
}

/// Checks that it is what the daemon of `folder` would have opened.
fn check(socket: BorrowedFd<'_>, folder: &Path) -> Result<(), String> {
    let is_listening = socket_domain(socket) == Ok(AddressFamily::UNIX)
        && socket_type(socket) == Ok(SocketType::SEQPACKET)
        && socket_acceptconn(socket) == Ok(true);
    if !is_listening {
        return Err("is no listening Unix socket of packets (ListenSequentialPacket)".into());
    }
    let (wanted, path) = (folder::socket_in(folder), path_of(socket));
    // Both may have links in them.
    let place = |path: &Path| path.canonicalize().ok();
    let is_there = path.as_deref().is_some_and(|path| {
        path == wanted || (place(path).is_some() && place(path) == place(&wanted))
    });
    if !is_there {
        return Err(format!("is not at {}, where runs look for it", wanted.display()));
    }
    is_private(folder, &wanted).map_err(|why| format!("is at {}: {why}", wanted.display()))
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
        let why = |socket: &OwnedFd| check(socket.as_fd(), &folder).expect_err("it is refused");
        let path = folder::socket_in(&folder);
        let stream = bound(SocketType::STREAM, &path);
        listen(&stream, 1).expect("it listens");
        assert!(why(&stream).contains("packets"));
        std::fs::remove_file(&path).expect("it is there");
        let socket = bound(SocketType::SEQPACKET, &path);
        assert!(why(&socket).contains("listening"));
        listen(&socket, 1).expect("it listens");
        assert_eq!(check(socket.as_fd(), &folder), Ok(()));
        let elsewhere = bound(SocketType::SEQPACKET, &folder.join("other"));
        listen(&elsewhere, 1).expect("it listens");
        assert!(why(&elsewhere).contains("where runs look"));
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
        assert_eq!(check(socket.as_fd(), &folder), Ok(()));
        mode(&folder, 0o755);
        assert!(why(&socket).contains("SocketMode"));
        mode(&path, 0o600);
        assert_eq!(check(socket.as_fd(), &folder), Ok(()));
        mode(&folder, 0o777);
        assert!(why(&socket).contains("nobody else"));
    }
}
