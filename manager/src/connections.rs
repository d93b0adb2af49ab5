//! The connections of the control socket: how many are open at once, and which are closed to make room.
//!
//! Each connection takes a descriptor. At the bound, or when the process has no descriptor left, the manager stops accepting
//! until a connection closes. Programs that connect meanwhile wait in the socket's queue. When the queue is full they run
//! without foretell.
//!
//! A program may open a stream long before its first hint, so a small number of silent connections may stay for ever. Further
//! silent connections are closed after a while. When room is needed, the oldest silent one is closed at once.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use foretell_policy::{HinterId, StreamId};
use foretell_protocol::{Connection, Listener};

use crate::descriptors::is_readable;

/// Silent connections that may stay for ever.
const SILENT_MAX: usize = 128;

/// A silent connection beyond [`SILENT_MAX`] is closed after this time.
const SILENT_PATIENCE: Duration = Duration::from_secs(5);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// A connection, and the streams that end with it.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    /// The process at its end.
    pub(crate) hinter: HinterId,
    pub(crate) has_spoken: bool,
    /// Whether a message may be waiting, as of the last poll.
    pub(crate) is_ready: bool,
    /// The stream of the hint that waits in the socket because the manager has no room for it.
    pub(crate) held: Option<u64>,
    pub(crate) streams: HashMap<u64, StreamId>,
    since: Instant,
}

/// See the [module](self).
pub(crate) struct Connections {
    listener: Listener,
    pub(crate) peers: Vec<Peer>,
    most: usize,
    paused_until: Option<Instant>,
}

impl Connections {
    /// At most `most` connections at a time.
    pub(crate) fn new(listener: Listener, most: usize) -> Self {
        Connections { listener, peers: Vec::new(), most: most.max(1), paused_until: None }
    }

    /// Accepts waiting connections as far as there is room.
    pub(crate) fn accept(&mut self, now: Instant) {
        self.close_silent(now);
        self.paused_until = self.paused_until.filter(|&until| until > now);
        while self.paused_until.is_none() {
            if self.peers.len() >= self.most && !(self.has_waiting() && self.close_oldest()) {
                return;
            }
            match self.listener.accept() {
                Ok(Some(connection)) => self.add(connection, now),
                Ok(None) => return,
                Err(_) => self.paused_until = Some(now + ACCEPT_PAUSE),
            }
        }
    }

    /// The name that programs connect to.
    #[cfg(test)]
    pub(crate) fn address(&self) -> &str {
        self.listener.address()
    }

    fn add(&mut self, connection: Connection, since: Instant) {
        let hinter = HinterId(u64::from(connection.peer_pid().unsigned_abs()));
        self.peers.push(Peer {
            connection,
            hinter,
            has_spoken: false,
            is_ready: true,
            held: None,
            streams: HashMap::new(),
            since,
        });
    }

    fn has_waiting(&self) -> bool {
        is_readable(self.listener.as_fd())
    }

    /// Closes the oldest connection that has sent nothing. Returns whether there is one.
    fn close_oldest(&mut self) -> bool {
        let oldest = self.peers.iter().position(Peer::has_nothing_to_say);
        oldest.map(|at| self.peers.remove(at)).is_some()
    }

    fn close_silent(&mut self, now: Instant) {
        let mut more = self.silent().count().saturating_sub(SILENT_MAX);
        if more > 0 {
            self.peers.retain(|peer| {
                let is_late = now - peer.since >= SILENT_PATIENCE;
                let is_over = more > 0 && is_late && peer.has_nothing_to_say();
                more -= usize::from(is_over);
                !is_over
            });
        }
    }

    fn silent(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.is_silent())
    }

    /// The socket to poll: readable when a connection waits that can be accepted. `None` while none can be.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        let accepts = self.paused_until.is_none()
            && (self.peers.len() < self.most || self.silent().next().is_some());
        accepts.then(|| self.listener.as_fd())
    }

    /// The connections to poll, in order. One with a held hint is left out.
    pub(crate) fn heard(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.peers.iter().filter(|peer| peer.held.is_none()).map(|peer| peer.connection.as_fd())
    }

    /// Takes the result of polling [`heard`](Self::heard), in the same order.
    pub(crate) fn note_ready(&mut self, ready: impl IntoIterator<Item = bool>) {
        let heard = self.peers.iter_mut().filter(|peer| peer.held.is_none());
        heard.zip(ready).for_each(|(peer, ready)| peer.is_ready |= ready);
    }

    /// Time until the accept pause ends or a silent connection is to be closed; `None` if neither is pending.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        let pause = self.paused_until.map(|until| until.saturating_duration_since(now));
        let oldest = self.silent().next().filter(|_| self.silent().count() > SILENT_MAX);
        let silent = oldest.map(|peer| SILENT_PATIENCE.saturating_sub(now - peer.since));
        pause.into_iter().chain(silent).min()
    }
}

impl Peer {
    fn is_silent(&self) -> bool {
        !self.has_spoken && self.held.is_none()
    }

    /// It is silent, and no message waits in its socket. The socket is asked because accepting comes before receiving.
    fn has_nothing_to_say(&self) -> bool {
        self.is_silent() && !is_readable(self.connection.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_protocol::Client;

    fn connected(most: usize, clients: usize) -> (Connections, Vec<Client>, Instant) {
        let listener = Listener::bind().expect("a name");
        let address = listener.address().to_owned();
        let mut connections = Connections::new(listener, most);
        let (mut all, now) = (Vec::new(), Instant::now());
        for _ in 0..clients {
            all.extend(Client::connect(&address));
            connections.accept(now);
        }
        assert_eq!(all.len(), clients, "the socket's queue takes them");
        (connections, all, now)
    }

    #[test]
    fn silent_connections_beyond_the_bound_are_closed_in_time() {
        const MANY: usize = SILENT_MAX + 50;
        let (mut connections, _clients, now) = connected(10_000, MANY);
        assert_eq!(connections.peers.len(), MANY);
        assert_eq!(connections.due_in(now), Some(SILENT_PATIENCE));
        connections.accept(now + SILENT_PATIENCE / 2);
        assert_eq!(connections.peers.len(), MANY);
        connections.accept(now + SILENT_PATIENCE);
        assert_eq!(connections.peers.len(), SILENT_MAX);
        connections.accept(now + 100 * SILENT_PATIENCE);
        assert_eq!(connections.peers.len(), SILENT_MAX);
        assert_eq!(connections.due_in(now), None);
    }

    #[test]
    fn a_connection_with_a_waiting_message_is_not_closed() {
        let (mut connections, clients, now) = connected(3, 3);
        for spoken in [0, 2] {
            clients[spoken].cancel(1).expect("sent");
        }
        let address = connections.listener.address().to_owned();
        let more = [0; 2].map(|_| Client::connect(&address).expect("they wait"));
        connections.accept(now);
        let received = connections.peers.iter_mut().map(|peer| peer.connection.receive());
        assert_eq!(received.filter(|message| matches!(message, Ok(Some(_)))).count(), 2);
        assert_eq!(connections.peers.len(), 3);
        drop(more);
    }

    #[test]
    fn at_the_bound_a_silent_connection_makes_room_and_one_that_has_spoken_does_not() {
        let (mut connections, _clients, now) = connected(3, 3);
        connections.peers.iter_mut().for_each(|peer| peer.has_spoken = true);
        connections.peers[1].has_spoken = false;
        let address = connections.listener.address().to_owned();
        let more = [0; 2].map(|_| Client::connect(&address).expect("they wait"));
        assert!(connections.listener().is_some());
        connections.accept(now);
        assert_eq!(connections.peers.iter().filter(|peer| peer.has_spoken).count(), 2);
        connections.peers.iter_mut().for_each(|peer| peer.has_spoken = true);
        connections.accept(now);
        assert_eq!(connections.peers.len(), 3);
        assert!(connections.listener().is_none(), "none can be accepted");
        drop(more);
    }
}
