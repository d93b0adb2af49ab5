//! A process that reads the cache of another one.

use std::fmt;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foretell_policy::{Block, FileId, Segment};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{PidfdFlags, pidfd_open};

use super::far::FarSlab;
use super::refusal::{LINE_MAX_BYTES, Unjoined, told};
use super::ring::{Ring, Told};
use super::waiting::{Answered, Done, Exchange, Pending, Reading, hear};
use super::wire::{SEGMENTS_MAX, ToClient, ToServer, VERSION};
use super::{At, peer_of, reach};
use crate::error::{BackendError, OpenError, ReadError};
use crate::file::{Lent, Partly};
use crate::stats::Stats;

/// Time after which a waiting read asks again whether it is given up.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Longest wait for the server's first answer.
const WELCOME_WITHIN: Duration = Duration::from_secs(2);

struct Link {
    exchange: Arc<Exchange>,
    slab: FarSlab,
    ring: Mutex<Ring>,
    next_stream: AtomicU32,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.exchange.end(); // The thread that hears the server ends.
    }
}

/// A client's view of a store in the cache of another process: its reads and its hints. A clone stands for the same client.
///
/// It must not be used in a forked child.
#[derive(Clone)]
pub struct FarSession {
    link: Arc<Link>,
}

impl fmt::Debug for FarSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarSession").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}

impl FarSession {
    /// As [`connect_to`](FarSession::connect_to), by name.
    ///
    /// # Errors
    /// As there.
    pub fn connect(name: &str, recipe: &[u8], patience: Duration) -> Result<Self, Unjoined> {
        Self::connect_to(At::Name(name), recipe, patience)
    }

    /// Connects to a [server](super::Server), and has it read from what `recipe` stands for. A server that owes an answer and
    /// says nothing for longer than `patience` counts as gone.
    ///
    /// # Errors
    /// [`Unjoined`]
    pub fn connect_to(at: At<'_>, recipe: &[u8], patience: Duration) -> Result<Self, Unjoined> {
        let mut socket = reach(at)?;
        // Children of the server have its sockets too, and may outlive it: its end is seen by its process. If systemd has
        // opened a daemon's socket, this is systemd, and the end of the socket has to do.
        let process = peer_of(&socket).ok_or(Unjoined::Nobody)?;
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(|_| Unjoined::Nobody)?;
        let hello = ToServer::Hello { version: VERSION, recipe: recipe.to_vec() }.encode();
        socket.set_read_timeout(Some(WELCOME_WITHIN))?;
        socket.set_write_timeout(Some(WELCOME_WITHIN))?;
        // A server that refuses at once does not read it. Its answer says so.
        let _ = socket.write_all(&hello);
        let (frames, block_bytes, [head, data, ring]) = welcome(&socket)?;
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        let slab = FarSlab::map([head.as_fd(), data.as_fd()], frames, block_bytes)?;
        let ring = Mutex::new(Ring::map(ring.as_fd())?);
        let exchange = Arc::new(Exchange::new(socket, patience)?);
        let hearing = Arc::clone(&exchange);
        std::thread::Builder::new()
            .name("foretell-share".to_owned())
            .spawn(move || hear(&hearing, process))?;
        let link = Link { exchange, slab, ring, next_stream: AtomicU32::new(0) };
        Ok(FarSession { link: Arc::new(link) })
    }

    /// Bytes of a block of the server's cache.
    pub fn block_bytes(&self) -> usize {
        self.link.slab.block_bytes()
    }

    /// Whether the server has gone, so that only blocks in memory can be read.
    pub fn is_lost(&self) -> bool {
        self.link.exchange.is_lost()
    }

    /// Opens the current version of the file at `path`. Waits for the store's answer.
    ///
    /// # Errors
    /// The store's error; [`BackendError::Lost`] if the server has gone.
    pub fn open(&self, path: &[u8]) -> Result<Arc<FarFile>, OpenError> {
        let (sender, receiver) = sync_channel(1);
        self.link
            .exchange
            .ask(Pending::Open(sender), |id| ToServer::Open { id, path: path.to_vec() });
        let path: Arc<str> = String::from_utf8_lossy(path).into();
        let answered = receiver.recv().unwrap_or(Err(BackendError::Lost));
        match answered {
            Ok(Answered { handle, file, size_bytes, version }) => {
                let link = Arc::clone(&self.link);
                Ok(Arc::new(FarFile {
                    link,
                    path,
                    handle,
                    file,
                    size_bytes,
                    version: version.into(),
                }))
            }
            Err(cause) => Err(OpenError { path, cause }),
        }
    }

    /// A stream of hints; see [`Session::stream`](crate::Session::stream).
    pub fn stream(&self) -> FarStream {
        let number = self.link.next_stream.fetch_add(1, Ordering::Relaxed);
        FarStream { link: Arc::clone(&self.link), number }
    }

    /// Counts of the whole cache, of all its clients; `None` if the server has gone.
    pub fn stats(&self) -> Option<Stats> {
        let (sender, receiver) = sync_channel(1);
        self.link.exchange.ask(Pending::Stats(sender), |id| ToServer::Stats { id });
        receiver.recv().ok()
    }
}

/// What the server's first answer brings: the number of frames, the size of a block, and the files: table with headers, data,
/// ring.
type Welcome = (u32, usize, [OwnedFd; 3]);

/// The server's first answer.
fn welcome(socket: &UnixStream) -> Result<Welcome, Unjoined> {
    let mut bytes = [0; LINE_MAX_BYTES + 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Err(Unjoined::Silent),
            Err(rustix::io::Errno::CONNRESET) => return Err(Unjoined::Refused(None)),
            received => break received?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let body = bytes.get(4..received.bytes).and_then(ToClient::decode);
    if let Some(ToClient::Refused { can_mend, why }) = body {
        return Err(Unjoined::Refused(Some(told(can_mend, &why))));
    }
    let (Some(ToClient::Welcome { frames, block_bytes }), Ok(files)) =
        (body, <[OwnedFd; 3]>::try_from(descriptors))
    else {
        return Err(Unjoined::Refused(None));
    };
    let is_sane = (4096..=16 << 20).contains(&block_bytes)
        && block_bytes.is_power_of_two()
        && frames < 1 << 31;
    match is_sane {
        true => Ok((frames, block_bytes as usize, files)),
        false => Err(Unjoined::Refused(None)),
    }
}

/// Hears a server's welcome. Returns what came with it.
#[cfg(test)]
pub(super) fn take_welcome(from: &UnixStream) -> [OwnedFd; 3] {
    let (_, _, files) = welcome(from).expect("a welcome");
    files
}

/// Hears a server's welcome, and sends it to a client.
#[cfg(test)]
pub(super) fn pass_on_welcome(from: &UnixStream, to: &UnixStream) {
    let (frames, block_bytes, files) = welcome(from).expect("a welcome");
    let block_bytes = block_bytes as u32;
    let message = ToClient::Welcome { frames, block_bytes }.encode();
    super::connection::send_with(to, &message, &files.each_ref().map(OwnedFd::as_fd)).unwrap();
}

/// One version of a file, open in the cache of another process. Its methods are those of [`File`](crate::File).
pub struct FarFile {
    link: Arc<Link>,
    path: Arc<str>,
    handle: u32,
    file: FileId,
    size_bytes: u64,
    version: Arc<[u8]>,
}

impl fmt::Debug for FarFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for FarFile {
    fn drop(&mut self) {
        self.link.exchange.send(&ToServer::Close { handle: self.handle }, false);
    }
}

impl FarFile {
    /// The version that was opened, as the store names it.
    pub fn version(&self) -> &[u8] {
        &self.version
    }

    /// Its size in bytes when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn path(&self) -> Arc<str> {
        Arc::clone(&self.path)
    }

    /// Whether the server has gone. Then reads of what is not in memory fail as [`Lost`](BackendError::Lost).
    pub fn is_lost(&self) -> bool {
        self.link.exchange.is_lost()
    }

    /// As [`File::read_at`](crate::File::read_at).
    ///
    /// # Errors
    /// As there, and [`BackendError::Lost`] if the server has gone.
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, ReadError> {
        // SAFETY: the buffer is borrowed until this returns.
        let partly = match unsafe { self.read_now(buffer.as_mut_ptr(), buffer.len(), offset_bytes) }
        {
            Ok(count) => return Ok(count),
            Err(partly) => partly,
        };
        // SAFETY: the buffer is borrowed until this returns, which it does when the read has ended: it is not given up.
        let lent = unsafe { Lent::new(buffer.as_mut_ptr(), buffer.len(), Arc::new(())) };
        Ok(self.read_rest(lent, partly, &mut || false)?.expect("it was not given up"))
    }

    /// As [`File::read_now`](crate::File::read_now).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn read_now(
        &self,
        start: *mut u8,
        length: usize,
        offset_bytes: u64,
    ) -> Result<usize, Partly> {
        let left = self.size_bytes.saturating_sub(offset_bytes);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let slab = &self.link.slab;
        let block_bytes = slab.block_bytes();
        let (mut copied, mut is_news) = (0, false);
        while copied < length {
            let at = offset_bytes + copied as u64;
            let from = (at % block_bytes as u64) as usize;
            let count = (length - copied).min(block_bytes - from);
            let block = Block { file: self.file, index: at / block_bytes as u64 };
            // SAFETY: the place has `length` bytes, and is not part of a mapping of the slab, which is for reading.
            let Some(is_unread) = (unsafe { slab.copy(block, from, start.add(copied), count) })
            else {
                break;
            };
            is_news |= is_unread;
            copied += count;
        }
        self.tell(offset_bytes, copied, is_news);
        match copied == length {
            true => Ok(length),
            false => Err(Partly { offset_bytes, length, copied, goes_on: false }),
        }
    }

    /// Tells the server of a hit. It `is_news` if it makes room for a prefetch.
    #[inline]
    pub(super) fn tell(&self, offset_bytes: u64, length: usize, is_news: bool) {
        let Ok(length_bytes) = u32::try_from(length) else { return };
        if length_bytes == 0 {
            return;
        }
        let told = Told { handle: self.handle, offset_bytes, length_bytes };
        let is_asleep =
            self.link.ring.lock().unwrap_or_else(PoisonError::into_inner).push(told, is_news);
        if is_asleep {
            self.link.exchange.send(&ToServer::Look, true);
        }
    }

    /// As [`File::read_rest`](crate::File::read_rest).
    ///
    /// # Errors
    /// As `read_at`.
    ///
    /// # Panics
    /// As there.
    pub fn read_rest(
        &self,
        lent: Lent,
        partly: Partly,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        let (sender, receiver) = sync_channel(1);
        self.ask_rest(lent, &partly, Box::new(move |result| drop(sender.send(result))));
        loop {
            match receiver.recv_timeout(ASK_EVERY) {
                Ok(result) => return result.map(Some),
                Err(RecvTimeoutError::Timeout) if is_given_up() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let (path, offset_bytes) = (Arc::clone(&self.path), partly.offset_bytes);
                    return Err(ReadError { path, offset_bytes, cause: BackendError::Lost });
                }
            }
        }
    }

    /// As [`File::read_then`](crate::File::read_then).
    pub fn read_then(
        &self,
        lent: Lent,
        offset_bytes: u64,
        done: impl FnOnce(Result<usize, ReadError>) + Send + 'static,
    ) {
        // SAFETY: the memory is lent to this read.
        match unsafe { self.read_now(lent.start(), lent.length(), offset_bytes) } {
            Ok(count) => done(Ok(count)),
            Err(partly) => self.ask_rest(lent, &partly, Box::new(done)),
        }
    }

    /// Asks for what has not been copied.
    fn ask_rest(&self, lent: Lent, partly: &Partly, done: Done) {
        let of = (Arc::clone(&self.path), self.handle);
        Reading::begin(&self.link.exchange, (lent, done), of, partly);
    }
}

/// Discloses what will be read, in order; as [`Stream`](crate::Stream). Without the server, it does nothing.
pub struct FarStream {
    link: Arc<Link>,
    number: u32,
}

impl fmt::Debug for FarStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarStream").field("number", &self.number).finish_non_exhaustive()
    }
}

impl FarStream {
    /// Whether the server has gone.
    pub fn is_lost(&self) -> bool {
        self.link.exchange.is_lost()
    }

    /// All of `file` will be read, from the first byte to the last.
    pub fn hint_file(&self, file: &FarFile) {
        let message = ToServer::HintFile { stream: self.number, handle: file.handle };
        self.link.exchange.send(&message, true);
    }

    /// These ranges of `file` will be read, in this order.
    pub fn hint_segments(&self, file: &FarFile, segments: &[Segment]) {
        self.hint(file, segments, true);
    }

    /// These ranges of `file` will be read, in any order. Of more than some thousands, several such sets are made.
    pub fn hint_set(&self, file: &FarFile, segments: &[Segment]) {
        self.hint(file, segments, false);
    }

    fn hint(&self, file: &FarFile, segments: &[Segment], is_ordered: bool) {
        for part in segments.chunks(SEGMENTS_MAX) {
            let (stream, handle, segments) = (self.number, file.handle, part.to_vec());
            self.link.exchange.send(&ToServer::Hint { stream, handle, is_ordered, segments }, true);
        }
    }

    /// Gives up all unread hints. The stream can disclose more afterwards.
    pub fn cancel(&self) {
        self.link.exchange.send(&ToServer::Cancel { stream: self.number }, false);
    }
}

impl Drop for FarStream {
    fn drop(&mut self) {
        self.link.exchange.send(&ToServer::EndStream { stream: self.number }, false);
    }
}
