//! One cache for many processes of a user.
//!
//! One process has the cache ([`Server`]). Its blocks lie in a file in memory that the others map for reading.
//! In these, a [`FarFile`] is read like a [`File`](crate::File):
//!
//! * **A hit** is a look-up in the mapped table and a copy, which is checked afterwards ([`far`]): no system call and no
//!   message. It is noted in a [`ring`], which the server empties in batches, so that its policy knows of it.
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
//! By module: [`far`] reads the mapped blocks, [`ring`] tells of hits, [`wire`] has the messages, [`server`] and [`client`] (with
//! [`waiting`]) the two sides, and [`either`] files that may be on either.

pub(crate) mod client;
pub(crate) mod either;
pub(crate) mod far;
pub(crate) mod ring;
pub(crate) mod server;
#[cfg(test)]
mod tests;
pub(crate) mod waiting;
pub(crate) mod wire;

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

pub use client::{FarFile, FarSession, FarStream};
pub use either::{EitherFile, EitherStream, Reopen, There};
pub use server::{OpenAt, Served, Server};

/// The socket's address. Names are abstract: they end with the process, and need no folder.
fn address(name: &str) -> io::Result<SocketAddr> {
    let user = rustix::process::geteuid().as_raw();
    SocketAddr::from_abstract_name(format!("foretell-cache/{user}/{name}"))
}

/// Whether the process at the other end is of this user. Any user may take any name.
fn is_own(socket: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
