//! A tool's way to a running manager: find it, hint, cancel.
//!
//! Decides which manager is meant: A. the one named in `FORETELL_SOCKET`; B. else the only one of
//! this user that listens. Several are an error that names them, since a hint to the wrong one would
//! be lost silently.
//!
//! This client is for foretell's own tools, which may wait: a send waits up to [`SEND_PATIENCE`] for
//! room. Programs use the C API, which never waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::layout;
use crate::message::{Hint, ProtocolError, encode_cancel};
use crate::socket::{
    abstract_address, check, effective_uid, is_trusted, peer_credentials, seqpacket_socket,
};

/// Longest wait of a send for a busy manager.
const SEND_PATIENCE: Duration = Duration::from_secs(5);

/// Why no hint got through.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No manager listens.
    #[error("no manager is running for this user: start the program with `foretell run`")]
    NoManager,
    /// More than one listens, and `FORETELL_SOCKET` does not say which.
    #[error("several managers are running, set {variable} to one of: {}", .0.join(", "), variable = layout::SOCKET_VARIABLE)]
    Several(Vec<String>),
    /// The name is taken by another user's process.
    #[error("manager {address} belongs to user {uid}")]
    Untrusted {
        /// The socket's name.
        address: String,
        /// The user of the process that listens there.
        uid: u32,
    },
    /// The manager named cannot be reached.
    #[error("manager {address}: {source}")]
    Connect {
        /// The socket's name.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The manager ended, or has been too busy for too long.
    #[error("sending to the manager: {0}")]
    Send(io::Error),
    /// The hint is malformed.
    #[error(transparent)]
    Hint(#[from] ProtocolError),
}

/// A connection to a manager. Streams other than [`layout::STREAM_EXTERNAL`] end with it.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
}

impl Client {
    /// Connects to the manager of this name.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::Untrusted`].
    pub fn connect(address: &str) -> Result<Self, ClientError> {
        let failed = |source| ClientError::Connect { address: address.to_owned(), source };
        let (raw, length) = abstract_address(address).map_err(failed)?;
        let socket = seqpacket_socket().map_err(failed)?;
        // SAFETY: `raw` is an initialised address of which `length` bytes count.
        check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const raw).cast(), length) })
            .map_err(failed)?;
        let peer = peer_credentials(socket.as_fd()).map_err(failed)?;
        if !is_trusted(peer.uid) {
            return Err(ClientError::Untrusted { address: address.to_owned(), uid: peer.uid });
        }
        Ok(Self { socket })
    }

    /// Connects to the manager in `FORETELL_SOCKET` (A), else to the only one of this user (B).
    ///
    /// # Errors
    /// [`ClientError::NoManager`], [`ClientError::Several`], and those of [`Self::connect`].
    pub fn discover() -> Result<Self, ClientError> {
        if let Ok(address) = std::env::var(layout::SOCKET_VARIABLE)
            && !address.is_empty()
        {
            return Self::connect(&address);
        }
        // Any user may give a socket any name, so sockets of other users are ignored.
        let reachable = |address: String| Some((Self::connect(&address).ok()?, address));
        let mut managers: Vec<(Self, String)> =
            Self::managers().into_iter().filter_map(reachable).collect();
        match managers.len() {
            0 => Err(ClientError::NoManager),
            1 => Ok(managers.remove(0).0),
            _ => Err(ClientError::Several(
                managers.into_iter().map(|(_, address)| address).collect(),
            )),
        }
    }

    /// The names of all managers of this user that listen in this network namespace, sorted.
    pub fn managers() -> Vec<String> {
        let table = std::fs::read("/proc/net/unix").unwrap_or_default();
        listening(&String::from_utf8_lossy(&table), effective_uid())
    }

    /// Discloses reads to come.
    ///
    /// # Errors
    /// [`ClientError::Hint`] if it is malformed, [`ClientError::Send`].
    pub fn hint(&self, hint: &Hint) -> Result<(), ClientError> {
        self.hint_within(hint, SEND_PATIENCE)
    }

    /// As [`Self::hint`], and waits at most so long for a busy manager, for each packet. If it has no room by then, the error
    /// is [`ClientError::Send`] with `EAGAIN`, and the packets before it are in force.
    ///
    /// # Errors
    /// As [`Self::hint`].
    pub fn hint_within(&self, hint: &Hint, patience: Duration) -> Result<(), ClientError> {
        hint.encode()?.iter().try_for_each(|packet| self.send(packet, patience))
    }

    /// Cancels the hints that this connection gave to the stream and that are not read yet.
    ///
    /// # Errors
    /// [`ClientError::Send`].
    pub fn cancel(&self, stream: u64) -> Result<(), ClientError> {
        self.send(&encode_cancel(stream), SEND_PATIENCE)
    }

    fn send(&self, packet: &[u8], patience: Duration) -> Result<(), ClientError> {
        let deadline = Instant::now() + patience;
        loop {
            // SAFETY: `packet` is valid for reading its length.
            let sent = unsafe {
                libc::send(
                    self.socket.as_raw_fd(),
                    packet.as_ptr().cast(),
                    packet.len(),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            let room_may_come = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
            let left = deadline.saturating_duration_since(Instant::now());
            if !room_may_come || left.is_zero() {
                return Err(ClientError::Send(error));
            }
            let mut wait =
                libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
            // SAFETY: `wait` is one valid entry.
            unsafe { libc::poll(&raw mut wait, 1, left.as_millis() as libc::c_int) };
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The listening sequenced-packet sockets of this user's managers in a `/proc/net/unix` table, whose
/// columns are: number, references, protocol, flags, type, state, inode, name.
fn listening(table: &str, uid: libc::uid_t) -> Vec<String> {
    /// The flag `__SO_ACCEPTCON`: accepted sockets bear the name too, but not this flag.
    const LISTENS: &str = "00010000";
    const SEQPACKET: &str = "0005";
    let prefix = format!("@{}{uid}/", layout::SOCKET_PREFIX);
    let mut names: Vec<String> = table
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let [_, _, _, LISTENS, SEQPACKET, _, _, name] = columns[..] else { return None };
            name.starts_with(&prefix).then(|| name[1..].to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_this_user_are_managers() {
        let table = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 101 @foretell/1000/7-ab
0000000000000000: 00000003 00000000 00000000 0005 03 102 @foretell/1000/8-cd
0000000000000000: 00000002 00000000 00010000 0005 01 103 @foretell/1001/9-ef
0000000000000000: 00000002 00000000 00010000 0001 01 104 @foretell/1000/6-aa
0000000000000000: 00000002 00000000 00010000 0005 01 105
";
        assert_eq!(listening(table, 1000), ["foretell/1000/7-ab"]);
    }
}
