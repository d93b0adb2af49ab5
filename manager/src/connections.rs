//! The connections of the control socket: how many there may be, and which are heard.
//!
//! Each takes a descriptor, of which the process has a limited number. At the bound, or where the system has none left,
//! no more are accepted until one is closed: those who connect wait in the socket's queue, and once that is full run
//! without foretell. Connections that have not said anything take room from others: of these a small number may stay as long as they like, since a
//! program may open a stream long before its first hint; of more, those that have had their time are closed, and where room is
//! needed the oldest.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use foretell_policy::{HinterId, StreamId};
use foretell_protocol::{Connection, Listener};

/// Connections that have said nothing and may stay as long as they like.
const SILENT_MAX: usize = 128;

/// Of more, one that has said nothing for this long is closed.
const SILENT_PATIENCE: Duration = Duration::from_secs(5);

/// How long nobody is accepted after that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// A connection, and the streams that end with it.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    /// The process at its end.
    pub(crate) hinter: HinterId,
    pub(crate) has_spoken: bool,
    /// Whether it speaks for a script.
    pub(crate) is_script: bool,
    /// Something may have come from it, as far as was looked.
    pub(crate) is_ready: bool,
    /// A hint of it waits in its socket for room.
    pub(crate) is_held: bool,
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
    /// At most `most` of them at a time.
    pub(crate) fn new(listener: Listener, most: usize) -> Self {
        Connections { listener, peers: Vec::new(), most: most.max(1), paused_until: None }
    }

    /// Takes in those that wait, as far as there is room.
    pub(crate) fn accept(&mut self, now: Instant) {
        self.close_silent(now);
        self.paused_until = self.paused_until.filter(|&until| until > now);
        while self.paused_until.is_none() {
            if self.peers.len() >= self.most && !(self.somebody_waits() && self.close_oldest()) {
                return;
            }
            match self.listener.accept() {
                Ok(Some(connection)) => self.add(connection, now),
                Ok(None) => return,
                Err(_) => self.paused_until = Some(now + ACCEPT_PAUSE),
            }
        }
    }

    fn add(&mut self, connection: Connection, since: Instant) {
        let hinter = HinterId(u64::from(connection.peer_pid().unsigned_abs()));
        self.peers.push(Peer {
            connection,
            hinter,
            has_spoken: false,
            is_script: false,
            is_ready: true,
            is_held: false,
            streams: HashMap::new(),
            since,
        });
    }

    fn somebody_waits(&self) -> bool {
        crate::is_readable(self.listener.as_fd())
    }

    /// Closes the oldest that has said nothing, and has nothing waiting. Returns whether there is one.
    fn close_oldest(&mut self) -> bool {
        let oldest = self.peers.iter().position(Peer::is_silent);
        oldest.map(|at| self.peers.remove(at)).is_some()
    }

    fn close_silent(&mut self, now: Instant) {
        let mut more = self.silent().count().saturating_sub(SILENT_MAX);
        if more > 0 {
            self.peers.retain(|peer| {
                let is_over = more > 0 && peer.is_silent() && now - peer.since >= SILENT_PATIENCE;
                more -= usize::from(is_over);
                !is_over
            });
        }
    }

    fn silent(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.is_silent())
    }

    /// Readable when somebody waits who can be accepted.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        let accepts = self.paused_until.is_none()
            && (self.peers.len() < self.most || self.silent().next().is_some());
        accepts.then(|| self.listener.as_fd())
    }

    /// The connections on which something may come, in order.
    pub(crate) fn heard(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.peers.iter().filter(|peer| !peer.is_held).map(|peer| peer.connection.as_fd())
    }

    /// Says of those in [`heard`](Self::heard) whether something has come.
    pub(crate) fn note_ready(&mut self, ready: impl IntoIterator<Item = bool>) {
        let heard = self.peers.iter_mut().filter(|peer| !peer.is_held);
        heard.zip(ready).for_each(|(peer, ready)| peer.is_ready |= ready);
    }

    /// How long until something is due here.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        let pause = self.paused_until.map(|until| until.saturating_duration_since(now));
        let oldest = self.silent().next().filter(|_| self.silent().count() > SILENT_MAX);
        let silent = oldest.map(|peer| SILENT_PATIENCE.saturating_sub(now - peer.since));
        pause.into_iter().chain(silent).min()
    }
}

impl Peer {
    fn is_silent(&self) -> bool {
        !self.has_spoken && !self.is_held
    }
}
