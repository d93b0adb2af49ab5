//! The connections of the daemon's socket that have not asked yet, and the requests that are being answered.
//!
//! A client connects and asks at once, so a connection is seldom here for longer than a turn of the loop. Clients that do not
//! ask, or ask too much, cost themselves only:
//!
//! * A. One process has at most [`OF_PROCESS_MAX`] connections and requests at a time; further connections are closed.
//! * B. There are at most [`ASKING_MAX`] connections. For a further one the oldest that is silent is closed, so silent
//!   clients keep no other out. One that is silent for [`PATIENCE`] is closed in any case.
//! * C. At most [`ANSWERING_MAX`] requests are answered at a time, each on a thread of its own, since its files may be on a
//!   file system that does not answer. Further requests wait in their sockets, and their clients not longer than they like.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::peer::Peer;
use super::wire;

/// A: connections and requests of one process. A run and a `foretell status` have one.
pub(super) const OF_PROCESS_MAX: usize = 4;

/// B: connections that have not asked yet.
pub(super) const ASKING_MAX: usize = 64;

/// B: a connection that has not asked after this time is closed.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// C: requests that are being answered: as many as runs may be managed.
pub(super) const ANSWERING_MAX: usize = 32;

/// See the [module](self).
pub(super) struct Asking {
    /// The oldest first.
    waiting: Vec<Waiting>,
    answering: Arc<Answering>,
}

struct Waiting {
    socket: OwnedFd,
    peer: Peer,
    since: Instant,
}

/// Requests that are being answered: the process of each, and an eventfd that rings when one of them is done.
#[derive(Debug)]
struct Answering {
    of: Mutex<Vec<i32>>,
    bell: OwnedFd,
}

impl Answering {
    fn lock(&self) -> MutexGuard<'_, Vec<i32>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leave to answer a request of a process; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Permit {
    answering: Arc<Answering>,
    pid: i32,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut of = self.answering.lock();
        if let Some(at) = of.iter().position(|&pid| pid == self.pid) {
            of.swap_remove(at);
        }
        drop(of);
        let _ = rustix::io::write(&self.answering.bell, &1u64.to_ne_bytes());
    }
}

impl Asking {
    /// `bell`: an eventfd that is written to whenever an answer has ended.
    pub(super) fn new(bell: OwnedFd) -> Self {
        let answering = Answering { of: Mutex::default(), bell };
        Asking { waiting: Vec::new(), answering: Arc::new(answering) }
    }

    /// Whether nobody waits, and nothing is being answered.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.answering.lock().is_empty()
    }

    /// Whether another request can be answered.
    pub(super) fn has_room(&self) -> bool {
        self.answering.lock().len() < ANSWERING_MAX
    }

    /// Adds a connection that was just accepted.
    pub(super) fn add(&mut self, socket: OwnedFd, since: Instant) {
        let Ok(peer) = Peer::of(socket.as_fd()) else { return };
        if !peer.may_ask() || self.count_of(peer.pid) >= OF_PROCESS_MAX {
            return; // A
        }
        if self.waiting.len() >= ASKING_MAX {
            // B: one whose request waits for room is not silent.
            let is_silent = |one: &Waiting| wire::is_request(&one.socket) != Some(true);
            match self.waiting.iter().position(is_silent) {
                Some(at) => drop(self.waiting.remove(at)),
                None => return,
            }
        }
        self.waiting.push(Waiting { socket, peer, since });
    }

    fn count_of(&self, pid: i32) -> usize {
        let waiting = self.waiting.iter().filter(|one| one.peer.pid == pid).count();
        waiting + self.answering.lock().iter().filter(|&&other| other == pid).count()
    }

    /// Takes a connection that has asked. Those that have ended, have said anything else, or were silent for too long are
    /// closed.
    pub(super) fn next(&mut self, now: Instant) -> Option<(OwnedFd, Peer, Permit)> {
        if !self.has_room() {
            return None;
        }
        let (mut ready, mut at) = (None, 0);
        while at < self.waiting.len() && ready.is_none() {
            let is_late = now.saturating_duration_since(self.waiting[at].since) >= PATIENCE;
            match wire::is_request(&self.waiting[at].socket) {
                Some(true) => ready = Some(at),
                None if !is_late => at += 1,
                _ => drop(self.waiting.remove(at)),
            }
        }
        let Waiting { socket, peer, .. } = self.waiting.remove(ready?);
        self.answering.lock().push(peer.pid);
        let permit = Permit { answering: Arc::clone(&self.answering), pid: peer.pid };
        Some((socket, peer, permit))
    }

    /// The sockets to poll.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let heard = if self.has_room() { &self.waiting[..] } else { &[] };
        heard.iter().map(|one| one.socket.as_fd())
    }

    /// Readable when an answer has ended.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.answering.bell.as_fd()
    }

    /// Time until the oldest connection is to be closed.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        let oldest = self.waiting.first().filter(|_| self.has_room())?;
        Some((oldest.since + PATIENCE).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    fn asking() -> Asking {
        Asking::new(eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor"))
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    /// A connection that belongs to process `pid`, and its other end.
    fn connect(asking: &mut Asking, pid: i32, since: Instant) -> OwnedFd {
        let (one, other) = pair();
        let before = asking.waiting.len();
        // What this process adds is another's at once, so that its own bound does not count.
        asking.add(one, since);
        if let Some(added) = asking.waiting.get_mut(before) {
            added.peer.pid = pid;
        }
        other
    }

    fn is_open(client: &OwnedFd) -> bool {
        send(client, b"x", SendFlags::NOSIGNAL).is_ok()
    }

    #[test]
    fn one_process_has_few_connections_and_requests() {
        let (mut asking, now) = (asking(), Instant::now());
        let (clients, ends): (Vec<_>, Vec<_>) = (0..OF_PROCESS_MAX + 2).map(|_| pair()).unzip();
        ends.into_iter().for_each(|end| asking.add(end, now));
        assert_eq!(asking.waiting.len(), OF_PROCESS_MAX);
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).expect("one");
        wire::send(&clients[0], &wire::Request::Status, &[memory.as_fd()]).expect("sent");
        let (_, peer, permit) = asking.next(now).expect("it has asked");
        assert_eq!(peer.pid, std::process::id().cast_signed());
        asking.add(pair().0, now);
        assert_eq!(asking.waiting.len(), OF_PROCESS_MAX - 1, "its request counts");
        drop(permit);
        asking.add(pair().0, now);
        assert_eq!(asking.waiting.len(), OF_PROCESS_MAX);
        assert!(rustix::io::read(asking.bell(), &mut [0u8; 8]).is_ok(), "the loop is woken");
    }

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let (mut asking, now) = (asking(), Instant::now());
        let clients: Vec<_> =
            (0..ASKING_MAX).map(|at| connect(&mut asking, at as i32 + 1, now)).collect();
        assert_eq!(asking.waiting.len(), ASKING_MAX);
        wire::send(&clients[0], &wire::Request::Status, &[]).expect("sent");
        let _more = connect(&mut asking, 1000, now);
        assert_eq!(asking.waiting.len(), ASKING_MAX);
        assert!(is_open(&clients[0]) && !is_open(&clients[1]) && is_open(&clients[2]));
    }

    #[test]
    fn silence_and_other_words_end_a_connection() {
        let (mut asking, now) = (asking(), Instant::now());
        let silent = connect(&mut asking, 1, now);
        let other = connect(&mut asking, 2, now);
        send(&other, b"foretell 0.0.0 0\n", SendFlags::NOSIGNAL).expect("sent");
        drop(connect(&mut asking, 3, now));
        assert!(asking.next(now).is_none());
        assert_eq!((asking.waiting.len(), is_open(&other)), (1, false));
        assert_eq!(asking.due_in(now), Some(PATIENCE));
        assert!(asking.next(now + PATIENCE).is_none() && asking.is_idle());
        assert!(!is_open(&silent));
    }

    #[test]
    fn requests_beyond_the_bound_wait() {
        let (mut asking, now) = (asking(), Instant::now());
        let clients: Vec<_> =
            (0..ANSWERING_MAX + 1).map(|at| connect(&mut asking, at as i32 + 1, now)).collect();
        for client in &clients {
            wire::send(client, &wire::Request::Status, &[]).expect("sent");
        }
        let taken: Vec<_> = std::iter::from_fn(|| asking.next(now)).collect();
        assert_eq!((taken.len(), asking.waiting.len()), (ANSWERING_MAX, 1));
        assert_eq!((asking.sockets().count(), asking.due_in(now)), (0, None));
        // It is not closed for its silence: it has asked.
        assert!(asking.next(now + PATIENCE).is_none());
        drop(taken);
        assert!(asking.next(now + PATIENCE).is_some());
    }
}
