//! One cache for many processes of a user.
//!
//! One process has the cache ([`Server`]). Its blocks lie in a file in memory that the others map for reading.
//! In these, a [`FarFile`] is read like a [`File`](crate::File):
//!
//! * **A hit** is a look-up in the mapped table and a copy, which is checked afterwards (`far`): no system call and no
//!   message. It is noted in a `ring`, which the server empties in batches, so that its policy knows of it.
//! * **The rest**, a block that is not there or was replaced during the copy, is asked for over a socket, and comes with the
//!   answer. So are opens and hints.
//!
//! A client writes nothing but its own ring, so a client that dies, at whatever point, leaves nothing undone: its files and
//! streams are closed when its socket is. If the server dies, the mapped blocks stay as they are, reads of them go on, and
//! all else is [`Lost`](crate::backend::BackendError::Lost): an [`EitherFile`] is opened in a cache of this process then.
//!
//! Both sides check that the other is of the same user. A server checks all that a client sends; a client bounds all that it
//! reads of the server's memory.
//!
//! By module: `far` reads the mapped blocks, `ring` tells of hits, `wire` has the messages, `server` (with `connection`,
//! `joining` and `opening`) and `client` (with `waiting`) the two sides,
//! `refusal` why one does not join, and `either` files that may be on either.

pub(crate) mod client;
mod connection;
pub(crate) mod either;
pub(crate) mod far;
pub(crate) mod joining;
mod opening;
mod refusal;
pub(crate) mod ring;
pub(crate) mod server;
#[cfg(test)]
mod tests;
pub(crate) mod waiting;
pub(crate) mod wire;

use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;

pub use client::{FarFile, FarSession, FarStream};
pub use either::{EitherFile, EitherStream, Reopen, There};
pub use joining::hello;
pub use refusal::{Refusal, Unjoined, refuse};
pub use server::{OpenAt, Served, Server};

/// The socket's name. Names are abstract: they end with the process, and need no folder.
fn full(name: &str) -> String {
    format!("foretell-cache/{}/{name}", rustix::process::geteuid().as_raw())
}

/// A name that this process has, and at which no other one can answer.
#[derive(Debug)]
pub struct Name(pub(crate) UnixListener);

impl Name {
    /// Takes a name; `None` if another process has it.
    ///
    /// # Errors
    /// Those of `socket` and `listen`.
    pub fn take(name: &str) -> io::Result<Option<Self>> {
        let listener = match UnixListener::bind_addr(&SocketAddr::from_abstract_name(full(name))?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            listener => listener?,
        };
        listener.set_nonblocking(true)?;
        Ok(Some(Name(listener)))
    }
}

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// At this [name](Name).
    Name(&'a str),
    /// At a socket in the file system, which clients [join](Server::join) from.
    Path(&'a Path),
}

/// A connection to a server.
fn reach(at: At<'_>) -> Result<UnixStream, Unjoined> {
    let address = match at {
        At::Name(name) => SocketAddrUnix::new_abstract_name(full(name).as_bytes())?,
        At::Path(path) => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // It does not wait until a server that hangs takes the connection.
    rustix::net::connect(&socket, &address).map_err(|error| match error {
        rustix::io::Errno::AGAIN => Unjoined::Silent,
        _ => Unjoined::Nobody,
    })?;
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    peer_of(&socket).map_or(Err(Unjoined::Nobody), |_| Ok(socket))
}

/// The process at the other end; `None` if it is of another user, or cannot be seen from here. Any user may take any name.
fn peer_of(socket: &UnixStream) -> Option<Pid> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `peer` has as many bytes as `length` says, and any bytes are such a structure.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut peer).cast(), &raw mut length)
    };
    let is_own = result == 0 && peer.uid == rustix::process::geteuid().as_raw();
    is_own.then(|| Pid::from_raw(peer.pid)).flatten()
}
