//! Clients that say hello elsewhere, and then join a server.
//!
//! A server asks at once what a recipe stands for. Whoever has to wait for that, or to look at the client first, hears the hello
//! on a thread of its own ([`hello`]), and has the client join.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use super::connection::Client;
use super::peer_of;
use super::refusal::Refusal;
use super::server::{CLIENTS_MAX, Served, Server, Serving};
use super::wire::{REQUEST_MAX_BYTES, ToServer, VERSION};
use crate::backend::BackendError;
use crate::cache::Cache;

/// Longest wait until the server has looked at a client.
const JOINED_WITHIN: Duration = Duration::from_secs(2);

/// A client on its way to the server's thread.
#[derive(Debug)]
pub(super) struct Joining {
    client: UnixStream,
    served: Served,
    /// Gets it back if it is refused.
    refused: Sender<(UnixStream, Refusal)>,
}

/// Hears what a client wants to read from, for at most so long. The socket then blocks.
///
/// # Errors
/// Why the client is to be refused. `None`: it is of another user, has gone, or says anything else or nothing, and is no store.
pub fn hello(socket: &UnixStream, patience: Duration) -> Result<Vec<u8>, Option<Refusal>> {
    match said(socket, patience).ok().flatten() {
        Some(ToServer::Hello { version: VERSION, recipe }) => Ok(recipe),
        Some(ToServer::Hello { .. }) => {
            Err(Some(Refusal::mendable("it is of another version of foretell: start it again")))
        }
        _ => Err(None),
    }
}

/// The first message of a client of this user.
fn said(socket: &UnixStream, patience: Duration) -> io::Result<Option<ToServer>> {
    if peer_of(socket).is_none() {
        return Ok(None);
    }
    socket.set_nonblocking(false)?;
    let until = Instant::now() + patience;
    let mut head = [0; 4];
    read_until(socket, &mut head, until)?;
    let length = u32::from_ne_bytes(head) as usize;
    if length > REQUEST_MAX_BYTES {
        return Ok(None);
    }
    let mut body = vec![0; length];
    read_until(socket, &mut body, until)?;
    Ok(ToServer::decode(&body))
}

/// Fills the buffer, and no more: what comes behind is the server's.
fn read_until(mut socket: &UnixStream, mut buffer: &mut [u8], until: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Server {
    /// As [`start`](Server::start), for clients that [join](Server::join).
    ///
    /// # Errors
    /// As there.
    pub fn start_unnamed(cache: &Cache) -> io::Result<Self> {
        Self::serving(cache, None, Box::new(|_| Err(BackendError::NotFound)))
    }

    /// Takes a client that has [said hello](super::hello) and is to read from this store of the server's cache. It must be of
    /// this user. Waits until the server has looked at it.
    ///
    /// # Errors
    /// A client that it does not take, and why. It has not been told.
    pub fn join(&self, client: UnixStream, served: Served) -> Result<(), (UnixStream, Refusal)> {
        let (refused, hears) = channel();
        let mut joining = self.mailbox.joining.lock().unwrap_or_else(PoisonError::into_inner);
        joining.push(Joining { client, served, refused });
        drop(joining);
        self.mailbox.ring();
        // Nothing comes if it is taken, or has gone. The wait is bounded, in case that the server has panicked.
        hears.recv_timeout(JOINED_WITHIN).map_or(Ok(()), Err)
    }

    /// Number of clients that are connected.
    pub fn clients(&self) -> usize {
        self.mailbox.clients.load(Ordering::Relaxed)
    }
}

impl Serving {
    /// Welcomes those who have said hello elsewhere.
    pub(super) fn take_joining(&mut self) {
        let joining = std::mem::take(
            &mut *self.mailbox.joining.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for Joining { client, served, refused } in joining {
            // If the receiver is gone, the connection closes, and the client uses a cache of its own.
            let refuse = |client, why| drop(refused.send((client, Refusal::final_one(why))));
            if self.clients.len() >= CLIENTS_MAX {
                refuse(client, "it has as many clients as it takes".to_owned());
                continue;
            }
            let Some(mut client) = Client::new(client) else { continue };
            let welcomed = client.socket.set_nonblocking(true);
            match welcomed.and_then(|()| self.welcome_to(&mut client, &served)) {
                Ok(true) => {
                    self.clients.insert(self.next_client, client);
                    self.next_client += 1;
                }
                Ok(false) => {}
                Err(error) if has_gone(&error) => {}
                Err(error) => {
                    refuse(client.socket, format!("it cannot take one more client: {error}"));
                }
            }
        }
    }
}

/// Whether the other end of a socket has been closed.
fn has_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
