//! The programs that have introduced themselves: their rings, their connections, their ends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use foretell_policy::ReaderId;
use foretell_protocol::{Connection, Counters, Hello, Record, RingReader};

/// One process under foretell.
#[derive(Debug)]
pub(crate) struct Program {
    ring: RingReader,
    /// Readable when the process has ended; `None` if it had already when it was asked for.
    pidfd: Option<OwnedFd>,
    reader: ReaderId,
}

impl Program {
    /// Takes over the ring that came with `hello`, or says why it cannot be used.
    pub(crate) fn adopt(connection: &Connection, hello: Hello) -> Result<Self, String> {
        let reader = ReaderId(u64::from(connection.peer_pid().unsigned_abs()));
        let ring = RingReader::map(hello.ring)
            .map_err(|error| format!("{} ({}): {error}", hello.comm, hello.pid))?;
        Ok(Program { ring, pidfd: connection.peer_pidfd().ok(), reader })
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

    /// Readable when the process has ended.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for Program {
    /// Nobody will read the ring from here on: the program need not fill it.
    fn drop(&mut self) {
        self.ring.set_interest(false);
    }
}
