//! What a client waits for, and the thread that hears the server's answers.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use foretell_policy::FileId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wire::{READ_MAX_BYTES, ToClient};
use crate::error::{BackendError, ReadError};
use crate::file::Lent;
use crate::stats::Stats;

/// Longest body that a server sends: the data of a read, or a long error.
const ANSWER_MAX_BYTES: usize = READ_MAX_BYTES as usize + 4096;
/// While nothing comes, the thread looks so often whether an answer is overdue.
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
    pub(super) reading: Arc<Reading>,
    /// Where it begins in the read.
    pub(super) from: usize,
    pub(super) length: usize,
}

pub(super) type Done = Box<dyn FnOnce(Result<usize, ReadError>) + Send>;

/// A read, some of whose parts have not arrived.
pub(super) struct Reading {
    pub(super) lent: Lent,
    pub(super) path: Arc<str>,
    pub(super) length: usize,
    pub(super) left: AtomicUsize,
    pub(super) error: Mutex<Option<(u64, BackendError)>>,
    pub(super) done: Mutex<Option<Done>>,
}

impl Reading {
    /// A part is done with. The last one calls back.
    pub(super) fn settled(&self) {
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

    /// A part has failed. The error of the first in the file counts.
    pub(super) fn failed(&self, offset_bytes: u64, cause: BackendError) {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if error.as_ref().is_none_or(|(before, _)| offset_bytes < *before) {
            *error = Some((offset_bytes, cause));
        }
    }
}

/// Requests in flight, which the thread that hears the server shares.
pub(super) struct Waiting {
    /// With the time of asking.
    pub(super) pending: Mutex<HashMap<u64, (Instant, Pending)>>,
    pub(super) is_lost: AtomicBool,
    /// How long an answer may take.
    pub(super) patience: Duration,
}

impl Waiting {
    pub(super) fn take(&self, id: u64) -> Option<Pending> {
        self.pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id)
            .map(|(_, pending)| pending)
    }

    /// Whether a request has waited for too long: the server has been stopped, say.
    pub(super) fn is_overdue(&self) -> bool {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.values().any(|(asked_at, _)| asked_at.elapsed() > self.patience)
    }

    /// The server has gone: nothing more will be answered.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        let pending =
            std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, pending) in pending.into_values() {
            if let Pending::Read(part) = pending {
                part.reading.failed(0, BackendError::Lost);
                part.reading.settled();
            } // The receivers of the others find that the senders have gone.
        }
    }
}

/// What the server says, until it has gone.
pub(super) struct Heard {
    pub(super) socket: UnixStream,
    pub(super) process: OwnedFd,
    pub(super) waiting: Arc<Waiting>,
}

impl Read for Heard {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut fds = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&self.process, PollFlags::IN),
            ];
            let is_idle = poll(&mut fds, Timespec::try_from(OVERDUE_EVERY).ok().as_ref())? == 0;
            let (has_more, is_over) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if has_more {
                return self.socket.read(to);
            }
            if is_over || (is_idle && self.waiting.is_overdue()) {
                return Ok(0);
            }
        }
    }
}

/// Hears the server until it or the client has gone; the work of a thread.
pub(super) fn hear(heard: Heard, waiting: &Waiting) {
    let mut from = io::BufReader::with_capacity(64 << 10, heard);
    let mut body = Vec::new();
    while hear_one(&mut from, &mut body, waiting).is_some() {}
    // Threads that are about to send, or wait until they can, end too.
    let _ = from.get_ref().socket.shutdown(Shutdown::Both);
    waiting.lose();
}

fn hear_one(from: &mut impl Read, body: &mut Vec<u8>, waiting: &Waiting) -> Option<()> {
    let mut head = [0; 4];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_ne_bytes(head) as usize;
    if length > ANSWER_MAX_BYTES {
        return None;
    }
    body.resize(length, 0);
    from.read_exact(body).ok()?;
    if let Some((id, bytes)) = ToClient::data(body) {
        if let Some(Pending::Read(part)) = waiting.take(id) {
            take_data(&part, bytes);
        }
        return Some(());
    }
    match ToClient::decode(body)? {
        ToClient::Welcome { .. } => return None,
        ToClient::Opened { id, handle, file, size_bytes, version } => {
            if let Some(Pending::Open(sender)) = waiting.take(id) {
                let file = FileId(file);
                let _ = sender.send(Ok(Answered { handle, file, size_bytes, version }));
            }
        }
        ToClient::Failed { id, offset_bytes, cause } => match waiting.take(id) {
            Some(Pending::Open(sender)) => drop(sender.send(Err(cause))),
            Some(Pending::Read(part)) => {
                part.reading.failed(offset_bytes, cause);
                part.reading.settled();
            }
            _ => {}
        },
        ToClient::Stats { id, json } => {
            if let Some(Pending::Stats(sender)) = waiting.take(id) {
                let _ = sender.send(serde_json::from_slice(&json).ok()?);
            }
        }
    }
    Some(())
}

/// Takes the data of a part of a read.
fn take_data(part: &Part, bytes: &[u8]) {
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
    part.reading.settled();
}
