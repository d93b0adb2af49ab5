//! A client of a shared cache, as its server sees it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{PidfdFlags, pidfd_open};

use super::peer_of;
use super::ring::Ring;
use super::server::{Answer, OpenAt};
use super::wire::ToClient;
use crate::backend::{BackendError, Opened};
use crate::cache::{Session, Stream};
use crate::file::File;

/// What an open counts, which has a thread while it waits: a client has at most 64 of them at once.
pub(super) const OPEN_COST_BYTES: usize = 512 << 10;
/// Memory of a client's hints. Further ones are ignored.
const HINTS_MAX_BYTES: usize = 256 << 20;
/// Memory of all hints about the cache, beyond which further ones are ignored.
const ALL_HINTS_MAX_BYTES: usize = 1 << 30;
/// Most streams of a client. Hints of further ones are ignored.
const STREAMS_MAX: usize = 1 << 16;
/// Most files that a client has open.
const FILES_MAX: usize = 1 << 18;

/// What a client has, once it has said hello.
pub(super) struct Known {
    pub(super) session: Session,
    pub(super) open: OpenAt,
    pub(super) ring: Ring,
}

/// A connection, and all that is kept for it.
pub(super) struct Client {
    pub(super) socket: UnixStream,
    /// Readable once the process has ended, whose children may have the socket too.
    pub(super) process: OwnedFd,
    pub(super) known: Option<Known>,
    pub(super) files: HashMap<u32, Arc<File>>,
    next_handle: u32,
    pub(super) streams: HashMap<u32, Stream>,
    pub(super) input: Vec<u8>,
    pub(super) output: VecDeque<Vec<u8>>,
    /// Bytes of the first message of `output` that were sent.
    sent: usize,
    /// Bytes that are asked for or queued.
    pub(super) load_bytes: usize,
}

impl Client {
    /// `None` if it is of another user, cannot be seen from here, or has ended.
    pub(super) fn new(socket: UnixStream) -> Option<Self> {
        let process = pidfd_open(peer_of(&socket)?, PidfdFlags::empty()).ok()?;
        Some(Client {
            socket,
            process,
            known: None,
            files: HashMap::new(),
            next_handle: 0,
            streams: HashMap::new(),
            input: Vec::new(),
            output: VecDeque::new(),
            sent: 0,
            load_bytes: 0,
        })
    }

    /// The stream and the file of a hint; `None` if the hint is to be ignored.
    pub(super) fn stream(&mut self, stream: u32, handle: u32) -> Option<(&Stream, &Arc<File>)> {
        let (known, file) = (self.known.as_ref()?, self.files.get(&handle)?);
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&stream) {
            return None;
        }
        let stream = self.streams.entry(stream).or_insert_with(|| known.session.stream());
        let memory = stream.hint_memory();
        let has_room = memory.own_bytes < HINTS_MAX_BYTES && memory.all_bytes < ALL_HINTS_MAX_BYTES;
        has_room.then_some((stream, file))
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Opened { id, path, result } => {
                self.load_bytes -= OPEN_COST_BYTES;
                let message = match result {
                    Ok(opened) => self.opened(id, &path, opened),
                    Err(cause) => ToClient::Failed { id, offset_bytes: 0, cause },
                };
                self.queue(message.encode());
            }
            Answer::Read { id, asked_bytes, result } => {
                self.load_bytes -= asked_bytes;
                match result {
                    Ok(bytes) => {
                        self.queue(ToClient::data_head(id, bytes.len()));
                        self.queue(bytes);
                    }
                    Err((offset_bytes, cause)) => {
                        self.queue(ToClient::Failed { id, offset_bytes, cause }.encode());
                    }
                }
            }
        }
    }

    /// Queues a message, or a part of one. It counts until the client has taken it.
    pub(super) fn queue(&mut self, message: Vec<u8>) {
        self.load_bytes += message.len();
        self.output.push_back(message);
    }

    fn opened(&mut self, id: u64, path: &[u8], opened: Opened) -> ToClient {
        let Some(known) = &self.known else {
            return ToClient::Failed { id, offset_bytes: 0, cause: BackendError::Lost };
        };
        if self.files.len() >= FILES_MAX {
            let cause = std::io::Error::from_raw_os_error(libc::EMFILE).into();
            return ToClient::Failed { id, offset_bytes: 0, cause };
        }
        let file = known.session.open_found(&String::from_utf8_lossy(path), opened);
        while self.files.contains_key(&self.next_handle) {
            self.next_handle = self.next_handle.wrapping_add(1);
        }
        let handle = self.next_handle;
        self.next_handle = self.next_handle.wrapping_add(1);
        let message = ToClient::Opened {
            id,
            handle,
            file: file.id.0,
            size_bytes: file.size_bytes(),
            version: file.version().to_vec(),
        };
        self.files.insert(handle, file);
        message
    }

    /// Sends what the client takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(message) = self.output.front() {
            match (&self.socket).write(&message[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == message.len() {
                self.sent = 0;
                self.load_bytes -= message.len();
                self.output.pop_front();
            }
        }
        Ok(())
    }
}

/// Sends a message with descriptors to a client that has nothing queued.
pub(super) fn send_with(
    socket: &UnixStream,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let count = sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if count == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
