//! What a client and the server say to each other: messages on their way, requests without an answer, and the thread that hears
//! the answers. No thread of the program waits for the socket.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use foretell_policy::FileId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::wire::{READ_MAX_BYTES, ToClient, ToServer};
use crate::error::{BackendError, ReadError};
use crate::file::{Lent, Partly};
use crate::stats::Stats;

/// Longest body that a server sends: the data of a read, or a long error.
const ANSWER_MAX_BYTES: usize = READ_MAX_BYTES as usize + 4096;
/// Parts of a read that are asked for at once: enough to keep a store busy.
const PARTS: usize = 8;
/// Bytes of queued messages beyond which hints are lost.
const OUTGOING_MAX_BYTES: usize = 8 << 20;
/// While nothing comes, the thread looks so often whether the server is silent for too long.
const OVERDUE_EVERY: Duration = Duration::from_millis(500);

/// What is waiting for an answer.
pub(super) enum Pending {
    Open(SyncSender<Result<Answered, BackendError>>),
    Read(Part),
    Stats(SyncSender<Stats>),
}

/// An opened file, as the server answers.
pub(super) struct Answered {
    pub(super) handle: u32,
    pub(super) file: FileId,
    pub(super) size_bytes: u64,
    pub(super) version: Vec<u8>,
}

/// A part of a read, and where its bytes go.
pub(super) struct Part {
    reading: Arc<Reading>,
    /// Where it begins in the read.
    from: usize,
    length: usize,
}

pub(super) type Done = Box<dyn FnOnce(Result<usize, ReadError>) + Send>;

/// A read, some of whose parts have not arrived.
pub(super) struct Reading {
    lent: Lent,
    path: Arc<str>,
    handle: u32,
    offset_bytes: u64,
    length: usize,
    /// Where the next part begins that has not been asked for.
    next: Mutex<usize>,
    /// Parts in flight, and one until the first ones have been asked for.
    left: AtomicUsize,
    error: Mutex<Option<(u64, BackendError)>>,
    done: Mutex<Option<Done>>,
}

impl Reading {
    /// Asks for the bytes of a read that are missing, from `copied` on; calls `done` at the end.
    pub(super) fn begin(
        exchange: &Exchange,
        (lent, done): (Lent, Done),
        (path, handle): (Arc<str>, u32),
        partly: &Partly,
    ) {
        let &Partly { offset_bytes, length, copied, .. } = partly;
        assert!(length <= lent.length(), "the memory of another read");
        let reading = Arc::new(Reading {
            lent,
            path,
            handle,
            offset_bytes,
            length,
            next: Mutex::new(copied),
            left: AtomicUsize::new(1),
            error: Mutex::default(),
            done: Mutex::new(Some(done)),
        });
        for _ in 0..PARTS {
            Self::ask_next(&reading, exchange);
        }
        reading.settled();
    }

    /// Asks for the next part, if there is one.
    fn ask_next(this: &Arc<Self>, exchange: &Exchange) {
        let mut next = this.next.lock().unwrap_or_else(PoisonError::into_inner);
        let from = *next;
        let length = (this.length - from).min(READ_MAX_BYTES as usize);
        if length == 0 {
            return;
        }
        *next += length;
        drop(next);
        this.left.fetch_add(1, Ordering::Relaxed);
        let part = Part { reading: Arc::clone(this), from, length };
        let (handle, offset_bytes) = (this.handle, this.offset_bytes + from as u64);
        exchange.ask(Pending::Read(part), |id| ToServer::Read {
            id,
            handle,
            offset_bytes,
            length_bytes: length as u32,
        });
    }

    /// A part is done with. The last one calls back.
    fn settled(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(done) = self.done.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        done(match error {
            None => Ok(self.length),
            Some((offset_bytes, cause)) => {
                Err(ReadError { path: Arc::clone(&self.path), offset_bytes, cause })
            }
        });
    }

    /// A part has failed: no more are asked for. The error of the first in the file counts.
    fn failed(&self, offset_bytes: u64, cause: BackendError) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = self.length;
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if error.as_ref().is_none_or(|(before, _)| offset_bytes < *before) {
            *error = Some((offset_bytes, cause));
        }
    }
}

/// Messages that the socket has not taken yet.
#[derive(Default)]
struct Outgoing {
    queue: VecDeque<Vec<u8>>,
    /// Bytes of the first one that were sent.
    sent: usize,
    bytes: usize,
}

/// What a client and the server say to each other.
pub(super) struct Exchange {
    socket: UnixStream,
    outgoing: Mutex<Outgoing>,
    /// Wakes the thread that hears the server, to send what is left.
    bell: OwnedFd,
    /// Requests without an answer.
    pending: Mutex<HashMap<u64, Pending>>,
    next_id: AtomicU64,
    is_lost: AtomicBool,
    /// How long the server may be silent while it owes an answer.
    patience: Duration,
}

impl Exchange {
    pub(super) fn new(socket: UnixStream, patience: Duration) -> io::Result<Self> {
        Ok(Exchange {
            socket,
            outgoing: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            pending: Mutex::default(),
            next_id: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            patience,
        })
    }

    /// Whether the server has gone.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// Ends it, from the client's side.
    pub(super) fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Sends a message, now or as soon as the server takes it. Never waits. One that `may_be_lost` is, if much is queued.
    pub(super) fn send(&self, message: &ToServer, may_be_lost: bool) {
        let bytes = message.encode();
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        if may_be_lost && outgoing.bytes > OUTGOING_MAX_BYTES {
            return;
        }
        outgoing.bytes += bytes.len();
        outgoing.queue.push_back(bytes);
        self.flush(&mut outgoing);
        if !outgoing.queue.is_empty() {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Sends what the socket takes.
    fn flush(&self, outgoing: &mut Outgoing) {
        while let Some(message) = outgoing.queue.front() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &message[outgoing.sent..], flags) {
                Ok(count) => outgoing.sent += count,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    // The thread that hears the server finds out.
                    self.end();
                    *outgoing = Outgoing::default();
                    return;
                }
            }
            if outgoing.sent == message.len() {
                outgoing.bytes -= message.len();
                outgoing.sent = 0;
                outgoing.queue.pop_front();
            }
        }
    }

    /// Sends a request that is answered to `pending`.
    pub(super) fn ask(&self, pending: Pending, message: impl FnOnce(u64) -> ToServer) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(id, pending);
        self.send(&message(id), false);
        // Either this sees that the server is lost, or the one who finds that out sees this request.
        if self.is_lost() {
            self.lose();
        }
    }

    fn take(&self, id: u64) -> Option<Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }

    fn owes(&self) -> bool {
        !self.pending.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The server has gone: nothing more will be answered.
    fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        let pending =
            std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        for pending in pending.into_values() {
            if let Pending::Read(part) = pending {
                part.reading.failed(0, BackendError::Lost);
                part.reading.settled();
            } // The receivers of the others find that the senders have gone.
        }
    }
}

/// What the server says, until it has gone.
struct Heard {
    exchange: Arc<Exchange>,
    process: OwnedFd,
    /// When the server was heard last, or owed nothing.
    heard_at: Instant,
}

impl Read for Heard {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut wanted = PollFlags::IN;
            {
                let outgoing = &self.exchange.outgoing;
                let mut outgoing = outgoing.lock().unwrap_or_else(PoisonError::into_inner);
                self.exchange.flush(&mut outgoing);
                wanted.set(PollFlags::OUT, !outgoing.queue.is_empty());
            }
            let mut fds = [
                PollFd::new(&self.exchange.socket, wanted),
                PollFd::new(&self.process, PollFlags::IN),
                PollFd::new(&self.exchange.bell, PollFlags::IN),
            ];
            match poll(&mut fds, Timespec::try_from(OVERDUE_EVERY).ok().as_ref()) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            let [socket, process, bell] = fds.map(|fd| fd.revents());
            if !bell.is_empty() {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.exchange.bell, &mut count);
            }
            if socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.heard_at = Instant::now();
                return (&self.exchange.socket).read(to);
            }
            if !self.exchange.owes() {
                self.heard_at = Instant::now();
            }
            if !process.is_empty() || self.heard_at.elapsed() > self.exchange.patience {
                return Ok(0);
            }
        }
    }
}

/// Hears the server, a process, until it or the client has gone; the work of a thread.
pub(super) fn hear(exchange: &Arc<Exchange>, process: OwnedFd) {
    let heard = Heard { exchange: Arc::clone(exchange), process, heard_at: Instant::now() };
    let mut from = io::BufReader::with_capacity(64 << 10, heard);
    let mut body = Vec::new();
    while hear_one(&mut from, &mut body, exchange).is_some() {}
    exchange.end();
    exchange.lose();
}

fn hear_one(from: &mut impl Read, body: &mut Vec<u8>, exchange: &Exchange) -> Option<()> {
    let mut head = [0; 4];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_ne_bytes(head) as usize;
    if length > ANSWER_MAX_BYTES {
        return None;
    }
    body.resize(length, 0);
    from.read_exact(body).ok()?;
    if let Some((id, bytes)) = ToClient::data(body) {
        if let Some(Pending::Read(part)) = exchange.take(id) {
            take_data(&part, bytes, exchange);
        }
        return Some(());
    }
    match ToClient::decode(body)? {
        ToClient::Welcome { .. } | ToClient::Refused { .. } => return None,
        ToClient::Opened { id, handle, file, size_bytes, version } => {
            if let Some(Pending::Open(sender)) = exchange.take(id) {
                let file = FileId(file);
                let _ = sender.send(Ok(Answered { handle, file, size_bytes, version }));
            }
        }
        ToClient::Failed { id, offset_bytes, cause } => match exchange.take(id) {
            Some(Pending::Open(sender)) => drop(sender.send(Err(cause))),
            Some(Pending::Read(part)) => {
                part.reading.failed(offset_bytes, cause);
                part.reading.settled();
            }
            _ => {}
        },
        ToClient::Stats { id, json } => {
            if let Some(Pending::Stats(sender)) = exchange.take(id) {
                let _ = sender.send(serde_json::from_slice(&json).ok()?);
            }
        }
    }
    Some(())
}

/// Takes the data of a part of a read.
fn take_data(part: &Part, bytes: &[u8], exchange: &Exchange) {
    if bytes.len() == part.length {
        // SAFETY: this part of the memory is lent to this answer alone, until the read has settled.
        unsafe {
            let to = part.reading.lent.start().add(part.from);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, part.length);
        }
    } else {
        // Files do not grow or shrink while they are open.
        part.reading.failed(0, BackendError::Changed);
    }
    Reading::ask_next(&part.reading, exchange);
    part.reading.settled();
}
