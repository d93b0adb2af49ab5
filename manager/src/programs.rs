//! The programs that have introduced themselves: their rings, and how their ends are noticed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use foretell_policy::ReaderId;
use foretell_protocol::layout::{INTEREST_NAMES, INTEREST_READS};
use foretell_protocol::{Connection, Counters, Event, Hello, RingReader};

use crate::descriptors::is_readable;
use crate::process_files::{ProcessFiles, Switches};
use crate::session::walking::Walker;

/// One process under foretell.
#[derive(Debug)]
pub(crate) struct Program {
    ring: RingReader,
    life: Life,
    reader: ReaderId,
    /// Bits `INTEREST_…`.
    interest: u32,
    /// What is known of the names that it touches.
    pub(crate) walker: Walker,
    waits: Waits,
}

/// Calls that took long because they waited. A call takes long for one of three reasons:
///
/// A. It waited: the process has given up the processor.
/// B. The process has lost the processor to another one.
/// C. It has copied much.
///
/// The kernel counts A and B, but of a process, not of a call. So each loss of the processor is taken to have made one call
/// long. This errs on the side of too few waits, by those before the look that finds the first of a row: the looks come every
/// few milliseconds, and a process that waits and loses the processor as often is rare.
#[derive(Debug, Default)]
struct Waits {
    /// Stalls as of the last look, and switches as of the last look that found more stalls.
    stalls: u64,
    switches: Option<Switches>,
    /// Stalls that were waits, and those of them that were told as new ones.
    count: u64,
    told: u64,
}

impl Waits {
    /// Takes in a look that found `more` stalls, and the switches by then.
    fn add(&mut self, more: u64, switches: Option<Switches>) {
        let before = std::mem::replace(&mut self.switches, switches).unwrap_or_default();
        let given_up = switches.and_then(|now| now.voluntary.checked_sub(before.voluntary));
        self.count += match (switches, given_up) {
            (Some(now), Some(given_up)) => {
                let lost = now.involuntary.saturating_sub(before.involuntary);
                more.saturating_sub(lost).min(given_up)
            }
            // It has too many threads, or has ended, or some of its threads have, with their counts.
            _ => more,
        };
    }
}

/// How a process's end is noticed.
#[derive(Debug)]
enum Life {
    /// By this pidfd, which is readable after the end.
    Watched(OwnedFd),
    /// By asking whether a process has this number, where descriptors are short. A later process with the same number is taken
    /// for it, which costs the memory of a ring.
    Asked(Pid),
    /// The process has ended.
    Over,
    /// The process has executed another program, or its number is another process's.
    Replaced,
}

impl Program {
    /// Takes over the ring that came with `hello`, or returns the reason why it cannot be used. `watches` says whether a
    /// descriptor may be spent on a pidfd.
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
        Ok(Program {
            ring,
            life,
            reader,
            interest: 0,
            walker: Walker::default(),
            waits: Waits::default(),
        })
    }

    /// Whether a pidfd reports its end.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.life, Life::Watched(_))
    }

    /// Whether the program's end must be polled.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.life, Life::Asked(_))
    }

    /// Notes that the process has executed another program.
    pub(crate) fn note_replaced(&mut self) {
        self.life = Life::Replaced;
    }

    /// Whether the library tells what this process does. It does not if it has switched itself off, or if the process executes,
    /// or has executed, a program without the library. The process says so itself.
    pub(crate) fn tells(&self) -> bool {
        !self.ring.is_silent()
    }

    /// Whether the program has ended: its process has, or has executed another one.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.life, Life::Replaced) || self.is_gone()
    }

    /// Whether the process has ended, as far as this program tells.
    pub(crate) fn is_gone(&self) -> bool {
        match &self.life {
            Life::Watched(pidfd) => is_readable(pidfd.as_fd()),
            Life::Asked(pid) => !is_there(*pid),
            Life::Over => true,
            Life::Replaced => false,
        }
    }

    pub(crate) fn reader(&self) -> ReaderId {
        self.reader
    }

    /// Tells the process whether its reads are of interest.
    pub(crate) fn want_reads(&mut self, wanted: bool) {
        self.want(INTEREST_READS, wanted);
    }

    /// Tells the process whether the names that it touches are of interest.
    pub(crate) fn want_names(&mut self, wanted: bool) {
        self.want(INTEREST_NAMES, wanted);
    }

    /// Whether the names that it touches are of interest.
    pub(crate) fn wants_names(&self) -> bool {
        self.interest & INTEREST_NAMES != 0
    }

    fn want(&mut self, bit: u32, wanted: bool) {
        self.interest = if wanted { self.interest | bit } else { self.interest & !bit };
        self.ring.set_interest(self.interest);
    }

    /// Passes the waiting events to `each` until it returns false. `ended` says whether the process has ended: then records
    /// that it left unfinished are skipped at once.
    pub(crate) fn drain_while(&mut self, ended: bool, each: impl FnMut(Event) -> bool) {
        self.ring.drain_while(ended, each);
    }

    /// Tells the process whether to execute most times without the library what it executes again and again.
    pub(crate) fn skip_repeated(&self, skips: bool) {
        self.ring.skip_repeated(skips);
    }

    /// Tells the process that the manager ends, so that it does not put the library along with further programs.
    pub(crate) fn tell_end(&self) {
        self.ring.tell_end();
    }

    /// Marks the ring as full, for tests.
    pub(crate) fn fill_ring(&self) {
        self.ring.fill();
    }

    pub(crate) fn counters(&self) -> Counters {
        self.ring.counters()
    }

    /// Looks how many of its calls have waited. Costs some 20 µs a thread if calls have taken long since the last time.
    pub(crate) fn count_waits(&mut self) -> u64 {
        let (stalls, ReaderId(process)) = (self.counters().stalls(), self.reader);
        let waits = &mut self.waits;
        let more = stalls.wrapping_sub(std::mem::replace(&mut waits.stalls, stalls));
        if more > 0 {
            waits.add(more, ProcessFiles::switches(process));
        }
        waits.count
    }

    /// As [`count_waits`](Self::count_waits), those since this was asked last.
    pub(crate) fn count_new_waits(&mut self) -> u64 {
        let count = self.count_waits();
        count - std::mem::replace(&mut self.waits.told, count)
    }

    /// The pidfd, which is readable when the process has ended; `None` if it is not watched.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        match &self.life {
            Life::Watched(pidfd) => Some(pidfd.as_fd()),
            Life::Asked(_) | Life::Over | Life::Replaced => None,
        }
    }
}

fn is_there(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

impl Drop for Program {
    /// The ring is not read any more, so the program need not fill it.
    fn drop(&mut self) {
        self.ring.set_interest(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_waited_if_the_processor_was_given_up_and_not_lost() {
        let switches = |voluntary, involuntary| Some(Switches { voluntary, involuntary });
        let mut waits = Waits::default();
        let mut counted = |more, switches| {
            let before = waits.count;
            waits.add(more, switches);
            waits.count - before
        };
        assert_eq!(counted(2, switches(5, 0)), 2, "A");
        assert_eq!(counted(1, switches(9, 1)), 0, "B, and it has slept elsewhere");
        assert_eq!(counted(3, switches(12, 2)), 2, "A and B");
        assert_eq!(counted(4, switches(12, 2)), 0, "C");
        assert_eq!(counted(4, switches(13, 2)), 1, "A and C");
        assert_eq!(counted(1, switches(20, 90)), 0, "it has lost the processor often before");
        assert_eq!(counted(1, switches(21, 90)), 1, "A");
        assert_eq!(counted(7, switches(3, 90)), 7, "a thread has ended");
        assert_eq!(counted(7, None), 7, "not known");
    }
}
