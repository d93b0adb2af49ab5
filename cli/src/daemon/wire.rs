//! Requests to the daemon, and its answers: a packet with open files, the first of which holds the words as JSON.
//!
//! A packet of a fixed size never waits for room, so neither side waits for the other: the daemon reads a request when it is
//! there, and a client waits for its answer until a deadline. The daemon is of the same user, so its answers are not feared,
//! but they are bounded like the requests.
//!
//! A client may lie. So the words are read only from a memory file, which never waits, and the kernel closes files beyond
//! [`FILES_MAX`] by itself.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, fcntl_get_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::run::plan::Plan;

/// Tells versions apart: both sides are of one build of foretell, or a run has its own manager.
const HEAD: &[u8] = concat!("foretell ", env!("CARGO_PKG_VERSION"), " 2\n").as_bytes();

/// Bytes of the words at most: the kernel's limit for a command line, written as JSON numbers, with room to spare.
const WORDS_MAX_BYTES: u64 = 16 << 20;

/// Packets with more words are read one at a time.
const LARGE_BYTES: u64 = 1 << 20;

/// Files with a packet at most.
pub(crate) const FILES_MAX: usize = 16;

/// What the daemon is asked.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Request {
    /// To manage a run. Its files: the end of a pipe that is closed at the end of the run and the other end of one for the report
    /// ([`Run::reports`]), that of a pipe with opens ([`Run::watches`]), and the plan's.
    Run(Box<Run>),
    /// What it does.
    Status,
}

/// A run that the daemon is to manage.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Run {
    pub(super) plan: Plan,
    /// Whether the manager reports at the end. If not, the process that asks becomes the program, and the run ends with it.
    pub(super) reports: bool,
    /// Whether opens are told by a pipe.
    pub(super) watches: bool,
}

/// Sends `words` and `files`. Does not wait.
///
/// # Errors
/// The socket is closed or full, or there is no memory for the words.
pub(super) fn send(
    socket: impl AsFd,
    words: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut letter = File::from(memfd_create("foretell", MemfdFlags::CLOEXEC)?);
    letter.write_all(&serde_json::to_vec(words)?)?;
    let fds: Vec<BorrowedFd<'_>> =
        [letter.as_fd()].into_iter().chain(files.iter().copied()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if fds.len() > FILES_MAX || !rights.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("too many files"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(HEAD)], &mut rights, flags)?;
    Ok(())
}

/// Whether a packet of this version waits, or anything else; `None` if nothing does. What waits stays there: a socket that is
/// closed with it lets go of its files without a wait, however slow their file systems are.
pub(super) fn is_request(socket: impl AsFd) -> Option<bool> {
    let mut head = [0; 64];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    match rustix::net::recv(socket, &mut head, flags) {
        Ok((_, bytes)) => Some(bytes == HEAD.len() && head.starts_with(HEAD)),
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(_) => Some(false),
    }
}

/// A packet that was received, whose words are not read yet. Dropping it may take long, if its files are on a slow file system.
#[derive(Debug)]
pub(super) struct Packet {
    letter: File,
    bytes: u64,
    files: Vec<OwnedFd>,
}

impl Packet {
    /// Receives a packet that has arrived.
    ///
    /// # Errors
    /// `WouldBlock` if none has; `UnexpectedEof` at the end; otherwise it is no packet of this version.
    pub(super) fn receive(socket: impl AsFd) -> io::Result<Self> {
        let mut head = [0; 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = recvmsg(socket, &mut [IoSliceMut::new(&mut head)], &mut rights, flags)?;
        let files = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let mut files: Vec<OwnedFd> = files.flatten().collect();
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_cut = got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC);
        if head[..got.bytes] != *HEAD || is_cut || files.is_empty() {
            return Err(wrong("it is of another version"));
        }
        let letter = File::from(files.remove(0));
        // It may be any file that a client has sent. Only one in memory has seals, and answers without a wait.
        fcntl_get_seals(&letter).map_err(|_| wrong("its words are in no memory file"))?;
        let bytes = letter.metadata()?.len();
        if bytes > WORDS_MAX_BYTES {
            return Err(wrong("it has too many words"));
        }
        Ok(Packet { letter, bytes, files })
    }

    /// Bytes of its words.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its words, and its files.
    ///
    /// # Errors
    /// They are no words of this kind.
    pub(super) fn open<T: DeserializeOwned>(self) -> io::Result<(T, Vec<OwnedFd>)> {
        // What is made of many words may take several times their memory, so they are read one packet at a time.
        static LARGE: Mutex<()> = Mutex::new(());
        let is_large = self.bytes > LARGE_BYTES;
        let _turn = is_large.then(|| LARGE.lock().unwrap_or_else(PoisonError::into_inner));
        let mut words = vec![0; usize::try_from(self.bytes).unwrap_or(0)];
        self.letter.read_exact_at(&mut words, 0)?;
        Ok((serde_json::from_slice(&words)?, self.files))
    }
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Receives a packet that has arrived, and reads it.
///
/// # Errors
/// As [`Packet::receive`] and [`Packet::open`].
pub(super) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Vec<OwnedFd>)> {
    Packet::receive(socket)?.open()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair")
    }

    #[test]
    fn words_and_files_arrive() {
        let (one, other) = pair();
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(b"text", 0).expect("written");
        send(&one, &Request::Status, &[file.as_fd()]).expect("sent");
        let (request, files) = receive::<Request>(&other).expect("there");
        assert!(matches!(request, Request::Status));
        let mut text = [0; 4];
        File::from(files.into_iter().next().expect("one")).read_exact_at(&mut text, 0).expect("4");
        assert_eq!(&text, b"text");
        assert_eq!(receive::<Request>(&other).expect_err("none").kind(), io::ErrorKind::WouldBlock);
        drop(one);
        let end = receive::<Request>(&other).expect_err("the end");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn other_packets_are_refused() {
        let packet = |head: &[u8], files: &[BorrowedFd<'_>]| {
            let (one, other) = pair();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX + 4))];
            let mut rights = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() {
                assert!(rights.push(SendAncillaryMessage::ScmRights(files)));
            }
            let flags = SendFlags::NOSIGNAL;
            sendmsg(&one, &[IoSlice::new(head)], &mut rights, flags).expect("sent");
            receive::<Request>(&other).expect_err("refused").kind()
        };
        let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
        let on_disk = File::open(std::env::current_exe().expect("a name")).expect("this");
        let mut letter = File::from(memfd_create("test", MemfdFlags::CLOEXEC).expect("a file"));
        letter.write_all(b"{\"Stat").expect("written");
        let large = File::from(memfd_create("test", MemfdFlags::CLOEXEC).expect("a file"));
        large.set_len(WORDS_MAX_BYTES + 1).expect("sparse");
        let many = [letter.as_fd(); FILES_MAX + 1];
        for (head, files) in [
            (&b"foretell 0.0.0 0\n"[..], &[letter.as_fd()][..]),
            (HEAD, &[]),
            (HEAD, &[pipe.as_fd()]),
            (HEAD, &[on_disk.as_fd()]),
            (HEAD, &[letter.as_fd()]),
            (HEAD, &[large.as_fd()]),
            (HEAD, &many),
            (&[b'f'; 100], &[letter.as_fd()]),
        ] {
            let kind = packet(head, files);
            let is_refused =
                matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
            assert!(is_refused, "{kind:?}");
        }
    }
}
