//! Which processes a daemon may work for.
//!
//! A manager opens files on behalf of a run. It must open none that the run could not open itself, and a path must mean the
//! same to both. So the daemon takes runs of processes that have the same user, the same files, and no fewer rights than
//! itself; others have managers of their own.
//!
//! The rights are read by the process's number, which may be another process's once it has ended. So its descriptor, which the
//! kernel gives with the connection, is asked afterwards whether it still runs: then the number was its own all the time.
//! (Before Linux 6.5 the descriptor is opened by the number as soon as the connection is accepted.)

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use foretell_protocol::{peer_of, process_of_peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a process may do, and what paths mean to it.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    /// Real, effective, saved and file-system user.
    users: Vec<u32>,
    groups: Vec<u32>,
    capabilities: u64,
    /// Namespaces of mounts, processes, users and the network, to which the names of control sockets belong.
    spaces: [PathBuf; 4],
    root: PathBuf,
    /// `no_new_privs`, which Landlock needs without further rights, and the mode of seccomp.
    confined: [Vec<u32>; 2],
    /// The label of a security module, if there is one.
    label: Vec<u8>,
    /// Of the processor and of devices.
    priorities: (i32, i64),
}

impl Rights {
    fn of(process: &str) -> Option<Self> {
        let folder = PathBuf::from("/proc").join(process);
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let numbers = |text: &str| -> Option<Vec<u32>> {
            text.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
        };
        let mut groups = [numbers(line("Groups:")?)?, numbers(line("Gid:")?)?].concat();
        groups.sort_unstable();
        groups.dedup();
        let space = |name: &str| std::fs::read_link(folder.join("ns").join(name)).ok();
        Some(Rights {
            users: numbers(line("Uid:")?)?,
            groups,
            capabilities: u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?,
            spaces: [space("mnt")?, space("pid")?, space("user")?, space("net")?],
            root: std::fs::read_link(folder.join("root")).ok()?,
            confined: [numbers(line("NoNewPrivs:")?)?, numbers(line("Seccomp:")?)?],
            label: std::fs::read(folder.join("attr/current")).unwrap_or_default(),
            priorities: priorities(process.parse().unwrap_or(0)),
        })
    }

    /// Why a process with the rights `self` must not open files for one with the rights `other`.
    fn refuses(&self, other: &Rights) -> Option<&'static str> {
        let has_more = |group: &u32| !other.groups.contains(group);
        if self.users != other.users {
            Some("it has another user")
        } else if self.spaces != other.spaces || self.root != other.root {
            Some("it has other mounts, another root, another network or other process numbers")
        } else if self.capabilities & !other.capabilities != 0
            || self.groups.iter().any(has_more)
            || self.confined != other.confined
            || self.label != other.label
        {
            Some("it has fewer rights")
        } else {
            None
        }
    }

    /// Why a manager must not work for a process with the rights `other`: what it fetches has the daemon's priority.
    fn refuses_run(&self, other: &Rights) -> Option<&'static str> {
        let has_other =
            || (self.priorities != other.priorities).then_some("it has another priority");
        self.refuses(other).or_else(has_other)
    }
}

/// The nice value and the I/O priority of a process; 0 is this one.
fn priorities(process: i32) -> (i32, i64) {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: plain system calls without memory. A process that has ended has the same answer as any other without one.
    unsafe {
        (
            libc::getpriority(libc::PRIO_PROCESS, process.unsigned_abs()),
            libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, process),
        )
    }
}

pub(super) const HAS_ENDED: &str = "it has ended, or has no number here";

/// A process that has connected.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: i32,
    uid: u32,
    /// Readable once it has ended; `None` if it had before it was looked at, or has no number here.
    process: Option<OwnedFd>,
}

impl Peer {
    /// The process at the other end of a socket that was just accepted.
    pub(super) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let (pid, uid) = peer_of(socket)?;
        Ok(Peer { pid, uid, process: process_of_peer(socket).ok() })
    }

    /// Readable when it has ended; `None` where the kernel does not tell.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    /// Whether it may ask anything at all: it has this user, or is root's.
    pub(super) fn may_ask(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// Why the daemon must not manage its run; `None` if it may.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        self.refused_by(Rights::refuses_run)
    }

    /// Why the daemon must not open files and stores for it; `None` if it may.
    pub(super) fn refusal_to_share(&self) -> Option<&'static str> {
        self.refused_by(Rights::refuses)
    }

    fn refused_by(
        &self,
        refuses: impl FnOnce(&Rights, &Rights) -> Option<&'static str>,
    ) -> Option<&'static str> {
        if self.uid != rustix::process::geteuid().as_raw() {
            return Some("it has another user");
        }
        static OWN: OnceLock<Rights> = OnceLock::new();
        // A look that fails for want of descriptors may succeed later.
        let own = OWN.get().or_else(|| Rights::of("self").map(|own| OWN.get_or_init(|| own)));
        let Some(own) = own else { return Some("/proc cannot be read") };
        let of_peer = Rights::of(&self.pid.to_string());
        if !self.runs() {
            return Some(HAS_ENDED);
        }
        of_peer.map_or(Some(HAS_ENDED), |of_peer| refuses(own, &of_peer))
    }

    /// Whether it has not ended.
    fn runs(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.process.as_ref().is_some_and(|process| {
            poll(&mut [PollFd::new(&process.as_fd(), PollFlags::IN)], Some(&at_once)) == Ok(0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights() -> Rights {
        Rights::of("self").expect("/proc is there")
    }

    #[test]
    fn a_process_like_this_one_is_served_and_one_with_less_is_not() {
        assert_eq!(rights().refuses(&rights()), None);
        let weaker: [fn(&mut Rights); 8] = [
            |rights| rights.confined[1] = vec![2],
            |rights| rights.label.push(b'x'),
            |rights| rights.users[3] += 1,
            |rights| rights.groups.clear(),
            |rights| rights.capabilities = 0,
            |rights| rights.spaces[0] = "mnt:[1]".into(),
            |rights| rights.root = "/jail".into(),
            |rights| rights.spaces[1] = "pid:[1]".into(),
        ];
        for weaken in weaker {
            let (own, mut other) = (Rights { capabilities: 1, ..rights() }, rights());
            other.capabilities |= 1;
            assert_eq!(own.refuses(&other), None);
            weaken(&mut other);
            assert!(own.refuses(&other).is_some(), "{other:?}");
        }
        let mut nicer = rights();
        nicer.priorities.0 += 1;
        assert_eq!(rights().refuses(&nicer), None, "the cache is for it too");
        assert!(rights().refuses_run(&nicer).is_some());
        let more = Rights {
            capabilities: u64::MAX,
            groups: [rights().groups, vec![9]].concat(),
            ..rights()
        };
        assert_eq!(rights().refuses(&more), None);
    }

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    use rustix::process::{Pid, WaitOptions, waitpid};

    /// A child that does nothing else than `work`, on plain system calls. Reaped.
    fn child(work: impl FnOnce()) -> Pid {
        // SAFETY: the child makes system calls alone, and ends by one.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            work();
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) };
        }
        let pid = Pid::from_raw(pid).expect("a child");
        waitpid(Some(pid), WaitOptions::empty()).expect("it ends");
        pid
    }

    /// The connection of a process that has ended since, and the other end, which is still open.
    fn left_behind() -> (OwnedFd, OwnedFd) {
        let folder = tempfile::tempdir().expect("a folder");
        let name = SocketAddrUnix::new(folder.path().join("socket")).expect("short");
        let socket = || {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
            rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).expect("a socket")
        };
        let (listener, client) = (socket(), socket());
        rustix::net::bind(&listener, &name).expect("bound");
        rustix::net::listen(&listener, 1).expect("it listens");
        let _ = child(|| {
            let _ = rustix::net::connect(&client, &name);
        });
        (rustix::net::accept(&listener).expect("connected"), client)
    }

    #[test]
    fn this_process_is_served_as_long_as_it_runs() {
        let (one, _other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair");
        let mut peer = Peer::of(one.as_fd()).expect("a socket");
        assert_eq!((peer.pid.unsigned_abs(), peer.may_ask()), (std::process::id(), true));
        assert_eq!((peer.refusal(), peer.refusal_to_share()), (None, None));
        peer.uid += 1;
        assert!(peer.refusal_to_share().is_some());
        assert_eq!((peer.refusal(), peer.may_ask()), (Some("it has another user"), false));
        peer.uid = 0;
        assert!(peer.may_ask());
    }

    /// Whether the kernel tells the process of a connection, which it does from 6.5 on.
    fn tells_processes() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(5))
    }

    /// The connection of a process is not that of a later process with the same number.
    #[test]
    fn a_number_that_was_given_again_is_not_taken_for_the_process_that_connected() {
        let (connection, _client) = left_behind();
        let peer = Peer::of(connection.as_fd()).expect("a socket");
        assert_eq!(peer.refusal(), Some(HAS_ENDED));
        // As if the number were this process's by now: only the descriptor tells.
        let again = Peer { pid: std::process::id().cast_signed(), ..peer };
        assert_eq!(again.refusal(), Some(HAS_ENDED));
        // The kernel gives the number again where one may ask for that.
        if !rustix::process::geteuid().is_root() || !tells_processes() {
            return eprintln!("skipped: not root, or a kernel before 6.5");
        }
        let (connection, _client) = left_behind();
        let (pid, _) = peer_of(connection.as_fd()).expect("a socket");
        let taken = (0..200).find_map(|_| {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().ok()?;
            if sleeper.id().cast_signed() == pid {
                return Some(sleeper);
            }
            let _ = sleeper.kill();
            let _ = sleeper.wait();
            None
        });
        let Some(mut sleeper) = taken else {
            return eprintln!(
                "skipped: other processes took the number each time, or it may not be chosen"
            );
        };
        let refusal = Peer::of(connection.as_fd()).map(|peer| peer.refusal());
        let of_sleeper = Rights::of(&pid.to_string());
        sleeper.kill().expect("it sleeps");
        sleeper.wait().expect("it ends");
        assert_eq!(of_sleeper.map(|of| rights().refuses(&of)), Some(None), "it has the rights");
        assert_eq!(refusal.expect("a socket"), Some(HAS_ENDED));
    }
}
