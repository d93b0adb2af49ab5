//! Why a process does not become a client of a server.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::net::{SendFlags, send};

use super::peer_of;
use super::wire::ToClient;

/// Most bytes of a line that are sent.
pub(super) const LINE_MAX_BYTES: usize = 400;

/// Why a server does not take a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A line for people.
    pub why: String,
    /// Whether the user of the client can do something about it, which the line then says.
    pub can_mend: bool,
}

impl Refusal {
    /// One that is as it should be.
    pub fn final_one(why: impl Into<String>) -> Self {
        Refusal { why: why.into(), can_mend: false }
    }

    /// One that the user can mend.
    pub fn mendable(why: impl Into<String>) -> Self {
        Refusal { why: why.into(), can_mend: true }
    }
}

/// Why there is no connection to a server.
#[derive(Debug)]
pub enum Unjoined {
    /// Nobody of this user listens there.
    Nobody,
    /// Somebody does, and says nothing.
    Silent,
    /// The server does not take the client. `None`: it does not say why, as servers of other versions do.
    Refused(Option<Refusal>),
    /// This process lacks something for it.
    Failed(io::Error),
}

impl From<io::Error> for Unjoined {
    fn from(error: io::Error) -> Self {
        Unjoined::Failed(error)
    }
}

impl From<rustix::io::Errno> for Unjoined {
    fn from(error: rustix::io::Errno) -> Self {
        Unjoined::Failed(error.into())
    }
}

impl fmt::Display for Unjoined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unjoined::Nobody => f.write_str("nobody listens there"),
            Unjoined::Silent => f.write_str("there is no answer"),
            Unjoined::Refused(Some(refusal)) => f.write_str(&refusal.why),
            Unjoined::Refused(None) => f.write_str("it is refused without a reason"),
            Unjoined::Failed(error) => error.fmt(f),
        }
    }
}

/// Tells a client of this user why it is not taken. Never waits.
pub fn refuse(client: &UnixStream, refusal: &Refusal) {
    if peer_of(client).is_none() {
        return;
    }
    let why = &refusal.why[..refusal.why.floor_char_boundary(LINE_MAX_BYTES)];
    let message = ToClient::Refused { can_mend: refusal.can_mend, why: why.as_bytes().to_vec() };
    // It may have gone.
    let _ = send(client, &message.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// What a server says of a client that it does not take, as a line without control characters.
pub(super) fn told(can_mend: bool, why: &[u8]) -> Refusal {
    let why = String::from_utf8_lossy(why).replace(char::is_control, " ");
    Refusal { why, can_mend }
}
