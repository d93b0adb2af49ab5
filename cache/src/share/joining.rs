//! Clients that say hello elsewhere, and then join a server.
//!
//! A server asks at once what a recipe stands for. Whoever has to wait for that, or to look at the client first, hears the hello
//! on a thread of its own ([`hello`]), and has the client join.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::connection::Client;
use super::peer_of;
use super::refusal::{Refusal, refuse};
use super::server::{CLIENTS_MAX, Served, Server, Serving};
use super::wire::{REQUEST_MAX_BYTES, ToServer, VERSION};
use crate::backend::BackendError;
use crate::cache::Cache;

/// Hears what a client wants to read from, for at most so long. The socket then blocks.
///
/// # Errors
/// Those of the socket; `InvalidData` if the client is of another user or another version, or says anything else.
pub fn hello(socket: &UnixStream, patience: Duration) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    peer_of(socket).ok_or_else(wrong)?;
    socket.set_nonblocking(false)?;
    let until = Instant::now() + patience;
    let mut head = [0; 4];
    read_until(socket, &mut head, until)?;
    let length = u32::from_ne_bytes(head) as usize;
    if length > REQUEST_MAX_BYTES {
        return Err(wrong());
    }
    let mut body = vec![0; length];
    read_until(socket, &mut body, until)?;
    match ToServer::decode(&body) {
        Some(ToServer::Hello { version: VERSION, recipe }) => Ok(recipe),
        Some(ToServer::Hello { .. }) => {
            refuse(
                socket,
                &Refusal::mendable("it is of another version of foretell: start it again"),
            );
            Err(wrong())
        }
        _ => Err(wrong()),
    }
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
    /// this user.
    pub fn join(&self, client: UnixStream, served: Served) {
        let mut joining = self.mailbox.joining.lock().unwrap_or_else(PoisonError::into_inner);
        joining.push((client, served));
        drop(joining);
        self.mailbox.ring();
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
        for (socket, served) in joining {
            if self.clients.len() >= CLIENTS_MAX {
                refuse(&socket, &Refusal::final_one("it has as many clients as it takes"));
                continue;
            }
            let Some(mut client) = Client::new(socket) else { continue };
            let welcomed = client.socket.set_nonblocking(true);
            match welcomed.and_then(|()| self.welcome_to(&mut client, &served)) {
                Ok(true) => {
                    self.clients.insert(self.next_client, client);
                    self.next_client += 1;
                }
                Ok(false) => {}
                Err(error) => {
                    let why = format!("it cannot take one more client: {error}");
                    refuse(&client.socket, &Refusal::final_one(why));
                }
            }
        }
    }
}
