//! The programs that have introduced themselves: their rings, their connections, their ends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use foretell_policy::ReaderId;
use foretell_protocol::{Connection, Counters, Hello, Record, RingReader};

use crate::descriptors::is_readable;

/// One process under foretell.
#[derive(Debug)]
pub(crate) struct Program {
    ring: RingReader,
    life: Life,
    reader: ReaderId,
}

/// How a process's end is noticed.
#[derive(Debug)]
enum Life {
    /// This is readable then.
    Watched(OwnedFd),
    /// By asking whether there is a process of this number: where descriptors are short. One that has the number later is taken
    /// for it; that costs the memory of a ring.
    Asked(Pid),
    /// It has ended, or another program has taken its place in the process.
    Over,
}

impl Program {
    /// Takes over the ring that came with `hello`, or says why it cannot be used. `watches` says whether there is a descriptor
    /// for it.
    pub(crate) fn adopt(
        connection: &Connection,
        hello: Hello,
        watches: bool,
    ) -> Result<Self, String> {
        let pid = connection.peer_pid();
        let reader = ReaderId(u64::from(pid.unsigned_abs()));
        let ring = RingReader::map(hello.ring)
            .map_err(|error| format!("{} ({}): {error}", hello.comm, hello.pid))?;
        let watched = watches.then(|| connection.peer_pidfd().ok()).flatten().map(Life::Watched);
        let asked = || Pid::from_raw(pid).filter(|&pid| is_there(pid)).map(Life::Asked);
        let life = watched.or_else(asked).unwrap_or(Life::Over);
        Ok(Program { ring, life, reader })
    }

    /// Whether a descriptor watches over it.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.life, Life::Watched(_))
    }

    /// Whether its end has to be asked for.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.life, Life::Asked(_))
    }

    /// Another program has taken its place in the process.
    pub(crate) fn is_replaced(&mut self) {
        self.life = Life::Over;
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.life {
            Life::Watched(pidfd) => is_readable(pidfd.as_fd()),
            Life::Asked(pid) => !is_there(*pid),
            Life::Over => true,
        }
    }

    pub(crate) fn reader(&self) -> ReaderId {
        self.reader
    }

    /// Tells the process whether its reads are of interest.
    pub(crate) fn set_interest(&self, wanted: bool) {
        self.ring.set_interest(wanted);
    }

    /// What has come in, or of a process that has `ended` what it left behind, until `each` has had enough.
    pub(crate) fn drain_while(&mut self, ended: bool, each: impl FnMut(Record) -> bool) {
        self.ring.drain_while(ended, each);
    }

    /// The manager ends: programs that are started from now on are none of its business.
    pub(crate) fn tell_end(&self) {
        self.ring.tell_end();
    }

    /// For tests: the ring is full from now on.
    pub(crate) fn fill_ring(&self) {
        self.ring.fill();
    }

    pub(crate) fn counters(&self) -> Counters {
        self.ring.counters()
    }

    /// Readable when the process has ended, if it is watched.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        match &self.life {
            Life::Watched(pidfd) => Some(pidfd.as_fd()),
            Life::Asked(_) | Life::Over => None,
        }
    }
}

fn is_there(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

impl Drop for Program {
    /// Nobody will read the ring from here on: the program need not fill it.
    fn drop(&mut self) {
        self.ring.set_interest(false);
    }
}
