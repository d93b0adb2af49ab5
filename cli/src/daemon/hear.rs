//! The daemon's loop: accepts connections, has their requests answered, and follows memory pressure.
//!
//! It reads nothing of what clients send but the first bytes of a packet, so none can hold it up ([`super::asking`]). The
//! rest is done on a thread of the request, which becomes that of the run.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};

use super::about::About;
use super::asking::{Asking, Permit};
use super::peer::Peer;
use super::pressure::{self, Pressure, Squeezed};
use super::wire::{self, Packet, Request};
use super::{Answer, managed};

/// The budget grows again after this time without pressure.
const QUIET: Duration = Duration::from_secs(10);

/// Connections that are accepted in one turn.
const ACCEPTED_MAX: usize = 64;

/// Pause after a failed accept: no descriptor is left. Whoever waits in the queue gives up by itself.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Words of a request that are read before its process is looked at: enough for a question, and too few to take time.
const WORDS_UNCHECKED_BYTES: u64 = 256;

/// With an end when idle, the cache's clients are looked for so often.
const CLIENTS_LOOK: Duration = Duration::from_secs(1);

/// Until when the loop goes on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// The end is asked for, or there was nothing to do for this time.
    Stopped { idle: Option<Duration> },
    /// No run is left, it is this late, or, if `hears_stop`, the end is asked for again. Further runs are refused.
    Drained { deadline: Instant, hears_stop: bool },
}

/// See the [module](self).
pub(super) struct Hall {
    about: Arc<About>,
    listener: OwnedFd,
    /// Readable when the end is asked for.
    stop: Arc<OwnedFd>,
    asking: Asking,
    pressure: Option<Pressure>,
    squeezed_at: Option<Instant>,
    /// Since when there is nothing to do.
    idle_since: Option<Instant>,
    /// When connections are accepted again.
    paused_until: Option<Instant>,
}

impl Hall {
    /// Hears connections of `listener`; `bell` is an eventfd of its own.
    pub(super) fn new(
        about: Arc<About>,
        (listener, stop, bell): (OwnedFd, Arc<OwnedFd>, OwnedFd),
    ) -> Self {
        Hall {
            about,
            listener,
            stop,
            asking: Asking::new(bell),
            pressure: pressure::watch(),
            squeezed_at: None,
            idle_since: None,
            paused_until: None,
        }
    }

    /// Hears requests `until` then.
    pub(super) fn hear(&mut self, until: Until) {
        loop {
            let now = Instant::now();
            let is_asked = rustix::io::read(&*self.stop, &mut [0u8; 8]).is_ok();
            let is_over = match until {
                Until::Stopped { idle } => {
                    is_asked || idle.is_some_and(|idle| self.idle_for(now) >= Some(idle))
                }
                Until::Drained { deadline, hears_stop } => {
                    (is_asked && hears_stop) || now >= deadline || self.about.house.is_empty()
                }
            };
            if is_over {
                return;
            }
            self.accept(now);
            while let Some((socket, peer, permit)) = self.asking.next(now) {
                self.begin(socket, peer, permit);
            }
            let due = self.due_in(until);
            self.wait(due);
        }
    }

    /// How long there has been nothing to do; `None` if there is something.
    fn idle_for(&mut self, now: Instant) -> Option<Duration> {
        let is_idle =
            self.asking.is_idle() && self.about.house.is_empty() && self.about.cache_clients() == 0;
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(now));
        self.idle_since.map(|since| now - since)
    }

    /// Time until something is due though nothing comes in.
    fn due_in(&mut self, until: Until) -> Option<Duration> {
        let now = Instant::now();
        let left = |at: Instant| at.saturating_duration_since(now);
        let over = match until {
            // While it is busy, the end of that wakes the loop, but for that of clients of the cache.
            Until::Stopped { idle } => {
                let busy = (self.about.cache_clients() > 0).then_some(CLIENTS_LOOK);
                idle.zip(self.idle_for(now))
                    .map(|(idle, so_far)| idle.saturating_sub(so_far))
                    .or(idle.and(busy))
            }
            Until::Drained { deadline, .. } => Some(left(deadline)),
        };
        let relaxes = self.squeezed_at.map(|since| left(since + QUIET));
        let paused = self.paused_until.map(left);
        [over, relaxes, paused, self.asking.due_in(now)].into_iter().flatten().min()
    }

    /// Waits until something comes in. Follows memory pressure.
    fn wait(&mut self, timeout: Option<Duration>) {
        let timeout = timeout.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let accepts = self.asking.has_room() && self.paused_until.is_none();
        let bells = [self.stop.as_fd(), self.asking.bell(), self.about.house.bell()];
        let listener = accepts.then(|| self.listener.as_fd());
        let read = bells.into_iter().chain(listener).chain(self.asking.sockets());
        let mut fds: Vec<PollFd<'_>> =
            read.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.extend(self.pressure.iter().map(|file| PollFd::new(file, PollFlags::PRI)));
        // An interrupted wait is a short one.
        let is_woken = poll(&mut fds, timeout.as_ref()).is_ok();
        let of_pressure = fds.last().filter(|_| is_woken && self.pressure.is_some());
        let of_pressure = of_pressure.map(PollFd::revents);
        drop(fds);
        for bell in [self.asking.bell(), self.about.house.bell()] {
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        match of_pressure {
            // Its control group is gone.
            Some(events) if events.intersects(gone) => self.pressure = None,
            Some(events)
                if events.contains(PollFlags::PRI)
                    && self.pressure.as_mut().is_some_and(Pressure::is_new) =>
            {
                self.about.change_budget(Squeezed::press, 1);
                self.about.press_cache();
                self.squeezed_at = Some(Instant::now());
            }
            _ => {}
        }
        if self.squeezed_at.is_some_and(|since| since.elapsed() >= QUIET) {
            // Both, in any case.
            let is_squeezed =
                self.about.change_budget(Squeezed::relax, 0) | self.about.relax_cache();
            self.squeezed_at = is_squeezed.then(Instant::now);
        }
    }

    fn accept(&mut self, now: Instant) {
        self.paused_until = self.paused_until.filter(|&until| until > now);
        for _ in 0..ACCEPTED_MAX {
            if !self.asking.has_room() || self.paused_until.is_some() {
                return;
            }
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    self.idle_since = None;
                    self.asking.add(socket, now);
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.paused_until = Some(now + ACCEPT_PAUSE),
            }
        }
    }

    /// Starts the thread of a request. Without one the socket is closed, and a run has its own manager.
    fn begin(&self, socket: OwnedFd, peer: Peer, permit: Permit) {
        let about = Arc::clone(&self.about);
        let thread = std::thread::Builder::new().name("foretell-run".into());
        let _ = thread.spawn(move || answer(&about, socket, &peer, permit));
    }
}

/// Answers a request. If it is a run that may be managed, manages it to its end.
fn answer(about: &About, socket: OwnedFd, peer: &Peer, permit: Permit) {
    let Ok(packet) = Packet::receive(&socket) else { return };
    // A process that may not have a run managed must not make the daemon read much either.
    let is_long = packet.bytes() > WORDS_UNCHECKED_BYTES;
    let refusal = || about.house.refusal().or_else(|| peer.refusal());
    let refuse = |reason| about.house.refuse(&socket, peer.pid, reason);
    if let Some(reason) = is_long.then(refusal).flatten() {
        return refuse(reason);
    }
    match packet.open::<Request>() {
        Err(_) => {}
        Ok((Request::Status, files)) => {
            drop(files);
            // Managers are asked for their figures, which takes a while if one is busy.
            let _ = wire::send(&socket, &Answer::Status(Box::new(about.status())), &[]);
        }
        Ok((Request::Run(run), files)) => {
            if let Some(reason) = (!is_long).then(refusal).flatten() {
                return refuse(reason);
            }
            managed::manage(&about.house, (*run, files), (socket, peer), permit);
        }
    }
}
