//! A daemon under attack: the packets that a client sends, and what must be as before at the end.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};

use crate::common::daemon::Daemon;
use crate::common::{foretell, text, wait_until};

/// Files with a packet at most: twice those that the daemon takes.
pub(crate) const FILES_MAX: usize = 32;

/// More than a daemon needs that has read the longest words, and less than many of these at a time would take.
pub(crate) const RESIDENT_MAX_KIB: u64 = 1 << 20;

/// What a run sends to its daemon.
pub(crate) struct Packet {
    pub(crate) head: Vec<u8>,
    pub(crate) words: Vec<u8>,
    /// Those behind the words.
    pub(crate) files: Vec<OwnedFd>,
}

/// A socket of packets. It is closed in the processes that other tests start.
pub(crate) fn new_socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("a socket")
}

/// Takes down what `foretell run` with these options sends.
pub(crate) fn taken_down(options: &[&str]) -> Packet {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = new_socket();
    let name = SocketAddrUnix::new(folder.path().join("daemon.sock")).expect("short");
    bind(&listener, &name).expect("bound");
    listen(&listener, 4).expect("it listens");
    let mut run = foretell();
    // What is learned is written where the words say, so damaged ones must not say it.
    run.args(["run", "--no-learn"]).args(options).args(["--", "cat", "/etc/passwd"]);
    run.env("FORETELL_DAEMON", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = run.spawn().expect("it runs");
    let connection = accept_with(&listener, SocketFlags::CLOEXEC).expect("it connects");
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&connection, PollFlags::IN)], Some(&patience));
    assert_eq!(ready, Ok(1), "it asks");
    let (mut head, mut space) =
        ([0; 64], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))]);
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(&connection, &mut [IoSliceMut::new(&mut head)], &mut rights, flags);
    let bytes = got.expect("it asks").bytes;
    let mut files = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let mut files: Vec<OwnedFd> = files.by_ref().flatten().collect();
    drop(connection);
    run.wait().expect("it ends");
    let letter = File::from(files.remove(0));
    let mut words = vec![0; letter.metadata().expect("it is there").len() as usize];
    letter.read_exact_at(&mut words, 0).expect("it is there");
    Packet { head: head[..bytes].to_vec(), words, files }
}

pub(crate) fn letter(words: &[u8]) -> OwnedFd {
    let letter = memfd_create("letter", MemfdFlags::CLOEXEC).expect("a file");
    File::from(letter.try_clone().expect("a descriptor")).write_all(words).expect("written");
    letter
}

/// Sends a packet without waiting. What the daemon does not take is lost.
pub(crate) fn send(socket: &OwnedFd, head: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || rights.push(SendAncillaryMessage::ScmRights(files)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = sendmsg(socket, &[IoSlice::new(head)], &mut rights, flags);
}

/// The words of the daemon's answer; `None` if it closes the connection without one.
pub(crate) fn answer(socket: &OwnedFd) -> Option<String> {
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience));
    assert_eq!(ready, Ok(1), "it answers or closes");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut head = [0; 64];
    let flags = RecvFlags::CMSG_CLOEXEC;
    // What it has not read of several packets makes this fail.
    recvmsg(socket, &mut [IoSliceMut::new(&mut head)], &mut rights, flags).ok()?;
    let mut files = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let letter = File::from(files.by_ref().flatten().next()?);
    let mut words = vec![0; letter.metadata().expect("it is there").len() as usize];
    letter.read_exact_at(&mut words, 0).expect("it is there");
    Some(String::from_utf8(words).expect("text"))
}

/// The daemon under attack, and what it had before.
pub(crate) struct Attacked {
    pub(crate) daemon: Daemon,
    pub(crate) name: SocketAddrUnix,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// A file of which a run must give the right bytes.
    pub(crate) file: tempfile::NamedTempFile,
    pub(crate) content: Vec<u8>,
}

impl Attacked {
    pub(crate) fn start() -> Self {
        let daemon = Daemon::start();
        let content: Vec<u8> = (0..300_000u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&content).expect("written");
        let name = SocketAddrUnix::new(daemon.path().join("daemon.sock")).expect("short");
        let mut attacked = Attacked { daemon, name, descriptors: 0, threads: 0, file, content };
        // What the first run leaves open stays.
        attacked.is_managed();
        attacked.is_quiet();
        (attacked.descriptors, attacked.threads) = attacked.counts();
        attacked
    }

    /// A connection; `None` if the queue is full.
    pub(crate) fn connect(&self) -> Option<OwnedFd> {
        let socket = new_socket();
        rustix::io::ioctl_fionbio(&socket, true).expect("it is a socket");
        connect(&socket, &self.name).ok().map(|()| socket)
    }

    /// Connects as soon as there is room.
    pub(crate) fn connected(&self) -> OwnedFd {
        let mut socket = None;
        wait_until("room in the queue", || {
            socket = self.connect();
            socket.is_some()
        });
        socket.expect("connected")
    }

    /// Its descriptors and threads. Folders of /proc do not count: one is opened once, when it is needed first.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let list = |folder: &str| {
            let folder = format!("/proc/{}/{folder}", self.daemon.process.id());
            std::fs::read_dir(folder).expect("it runs").flatten()
        };
        let is_counted = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path()).is_ok_and(|file| !file.starts_with("/proc"))
        };
        (list("fd").filter(is_counted).count(), list("task").count())
    }

    /// The names of its descriptors.
    pub(crate) fn files(&self) -> String {
        let mut list = std::process::Command::new("ls");
        list.arg("-l").arg(format!("/proc/{}/fd", self.daemon.process.id()));
        text(&list.output().expect("it runs").stdout)
    }

    /// Waits until no run and no request is left.
    pub(crate) fn is_quiet(&self) {
        let mut last = (0, 0);
        wait_until("a quiet daemon", || {
            let counts = self.counts();
            let is_same = counts == std::mem::replace(&mut last, counts);
            std::thread::sleep(Duration::from_millis(50));
            is_same && self.daemon.status()["runs"].as_array().is_some_and(Vec::is_empty)
        });
    }

    /// Asserts that another client gets an answer, and that a program under foretell does what it does.
    pub(crate) fn serves(&self, case: u64) {
        assert!(self.daemon.status()["budget_bytes"].as_u64() > Some(0), "case {case}");
        let path = self.file.path().to_str().expect("text");
        let output = self.daemon.output(&["run", "-q", "--no-learn", "--", "cat", path]);
        assert_eq!(output.status.code(), Some(0), "case {case}: {}", text(&output.stderr));
        assert!(output.stdout == self.content, "case {case}: other bytes");
    }

    /// Asserts that a run is managed, sooner or later: a busy machine may have it wait for too long.
    pub(crate) fn is_managed(&self) {
        let before = self.daemon.status()["ended"]["runs"].as_u64().expect("a number");
        wait_until("a managed run", || {
            self.serves(0);
            self.daemon.status()["ended"]["runs"].as_u64() > Some(before)
        });
    }

    /// Asserts that nothing is left of the attack.
    pub(crate) fn must_be_as_before(mut self) {
        assert!(self.daemon.process.try_wait().expect("a child").is_none(), "it has ended");
        self.is_managed();
        let (before, mut now) = ((self.descriptors, self.threads), (0, 0));
        for _ in 0..1500 {
            now = self.counts();
            if now.0 <= before.0 && now.1 <= before.1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let is_less = now.0 <= before.0 && now.1 <= before.1;
        assert!(is_less, "{now:?} after {before:?}: {}", self.files());
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.process.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
        let most_kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        assert!(most_kib <= RESIDENT_MAX_KIB, "it has used {most_kib} KiB");
        self.daemon.signal(rustix::process::Signal::TERM);
        assert_eq!(self.daemon.process.wait().expect("it ends").code(), Some(0));
    }
}
