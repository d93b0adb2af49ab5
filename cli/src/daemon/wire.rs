//! Requests to the daemon, and its answers: a packet with open files, the first of which holds the words as JSON.
//!
//! A packet of a fixed size never waits for room, so neither side waits for the other: the daemon reads a request when it is
//! there, and a client waits for its answer until a deadline. The daemon is of the same user, so its answers are not feared,
//! but they are bounded like the requests.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::run::plan::Plan;

/// Tells versions apart: both sides are of one build of foretell, or a run has its own manager.
const HEAD: &[u8] = concat!("foretell ", env!("CARGO_PKG_VERSION"), " 1\n").as_bytes();

/// Bytes of the words at most: the kernel's limit for a command line, written as JSON numbers, with room to spare.
const WORDS_MAX_BYTES: u64 = 16 << 20;

/// Files with a packet at most.
pub(crate) const FILES_MAX: usize = 16;

/// What the daemon is asked.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Request {
    /// To manage a run. Its files: the socket at which programs will connect, the end of a pipe that is closed at the end of
    /// the run, the other end of one for the report ([`Run::reports`]), that of a pipe with opens ([`Run::watches`]), and the
    /// plan's.
    Run(Box<Run>),
    /// What it does.
    Status,
}

/// A run that the daemon is to manage.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Run {
    pub(super) plan: Plan,
    /// The name of the socket.
    pub(super) address: String,
    /// Whether the manager reports at the end. If not, the process that asks becomes the program.
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

/// Receives a packet that has arrived.
///
/// # Errors
/// `WouldBlock` if none has; `UnexpectedEof` at the end; otherwise it is no packet of this version.
pub(super) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Vec<OwnedFd>)> {
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
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is of another version"));
    }
    let letter = File::from(files.remove(0));
    Ok((read(&letter)?, files))
}

/// The words in a letter. It may be any file that a client has sent, so it is not read where that might wait.
fn read<T: DeserializeOwned>(letter: &File) -> io::Result<T> {
    let wrong = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let about = letter.metadata()?;
    let system = rustix::fs::fstatfs(letter)?;
    if !about.is_file() || system.f_type != libc::TMPFS_MAGIC {
        return Err(wrong("its words are in no memory file"));
    }
    if about.len() > WORDS_MAX_BYTES {
        return Err(wrong("it has too many words"));
    }
    let mut words = vec![0; usize::try_from(about.len()).unwrap_or(0)];
    letter.read_exact_at(&mut words, 0)?;
    Ok(serde_json::from_slice(&words)?)
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
