//! The pipes of a run that a client has sent: they never make the daemon wait.
//!
//! A client may keep both ends of a pipe, share them with others, read what it has sent, and have reads and writes wait, which
//! is a setting of the open file and not of a descriptor. So a pipe is opened anew: how the new file behaves is the daemon's
//! alone. Whether the other end is closed is still told.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};

/// How long a report may wait for room in its pipe: as long as `foretell run` waits for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// A pipe's reading end, whose reads do not wait.
pub(super) fn to_read(pipe: &OwnedFd) -> Option<OwnedFd> {
    reopened(pipe, OFlags::RDONLY)
}

/// Opens a pipe anew; `None` if it is none, or has no other end any more.
fn reopened(pipe: &OwnedFd, access: OFlags) -> Option<OwnedFd> {
    let about = rustix::fs::fstat(pipe).ok()?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Fifo {
        return None;
    }
    let name = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(name, flags, Mode::empty()).ok()
}

/// A pipe's writing end, which waits so long for its reader ([`PATIENCE`] from the first write on), and then fails.
#[derive(Debug)]
pub(super) struct Patient {
    pipe: File,
    patience: Duration,
    until: Option<Instant>,
}

impl Patient {
    /// `None` if it is no pipe.
    pub(super) fn new(pipe: &OwnedFd) -> Option<Self> {
        let pipe = File::from(reopened(pipe, OFlags::WRONLY)?);
        Some(Patient { pipe, patience: PATIENCE, until: None })
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.patience);
        loop {
            match self.pipe.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // An interrupted wait is a short one.
            let _ = poll(&mut [PollFd::new(&self.pipe, PollFlags::OUT)], Some(&left));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn reads_of_a_pipe_never_wait() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let own = to_read(&reader).expect("it is a pipe");
        let read = || rustix::io::read(&own, &mut [0; 1]);
        assert_eq!(read(), Err(Errno::AGAIN));
        rustix::io::write(&writer, b"x").expect("there is room");
        rustix::io::ioctl_fionbio(&reader, false).expect("it is a pipe");
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(1), "the client takes it itself");
        assert_eq!(read(), Err(Errno::AGAIN));
        drop((reader, writer));
        assert_eq!(read(), Ok(0), "the end is told");
    }

    #[test]
    fn only_pipes_are_taken() {
        let event = || eventfd(0, EventfdFlags::empty()).expect("an eventfd");
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        for file in [event(), one.into(), tempfile::tempfile().expect("a file").into()] {
            assert!(to_read(&file).is_none() && Patient::new(&file).is_none());
        }
    }

    #[test]
    fn a_report_that_nobody_reads_is_given_up() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut own = Patient::new(&writer).expect("it is a pipe");
        own.patience = Duration::from_millis(20);
        own.write_all(b"report").expect("there is room");
        let error = own.write_all(&vec![b'x'; 1 << 20]).expect_err("there is no room for all");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop((own, writer));
        let mut said = Vec::new();
        File::from(reader).read_to_end(&mut said).expect("read");
        assert!(said.starts_with(b"reportx"));
    }

    /// One that is open for reading too would never tell that nobody reads.
    #[test]
    fn a_report_into_a_pipe_that_was_open_both_ways_ends_with_its_reader() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let name = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let both = rustix::fs::open(name, OFlags::RDWR, Mode::empty()).expect("opened");
        let mut own = Patient::new(&both).expect("it is a pipe");
        drop((reader, writer, both));
        assert_eq!(own.write_all(b"x").expect_err("no reader").kind(), io::ErrorKind::BrokenPipe);
    }
}
