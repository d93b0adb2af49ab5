//! Opens of programs without the library: touches for walks, as those of other programs.
//!
//! Records come from a pipe ([`crate::opens`]), a bounded number in a turn. A record names a thread. Its process is read from
//! `/proc`, and is one of three:
//!
//! A. The library is in it and tells more: the record is dropped. Before such a process executes a program without the library,
//!    it says so in its ring ([`Program::tells`]): from then on it is one of the following.
//! B. It is known: the open is a touch in its walk.
//! C. It is new: it gets a walker, if there is room.
//!
//! How long the process has slept since its open before tells that the open before, or a read after it, has waited. Which of
//! the two is not known, so both are taken to wait: names and data are looked for ahead. Lookups ahead that do not wait correct
//! that. A process that sleeps for another reason looks the same.
//!
//! While records come, the pipe is polled, so that a program that opens many files does not wake the manager for each.
//!
//! Bounds: [`OPENERS_MAX`] processes, [`THREADS_MAX`] threads, [`MEETINGS_MAX`] looks at `/proc` and [`TAKES_MAX`] reads of the
//! pipe in a turn; memory of walks as for all programs.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use foretell_policy::{Nanos, ReaderId};
use foretell_protocol::layout::{TOUCH_FOLDER, TOUCH_OPEN};
use foretell_protocol::{Base, STALL_THRESHOLD_NS, Touch, TouchFlags};
use rustix::process::{Pid, test_kill_process};

use super::Session;
use super::walking::{Known, Walker};
use crate::opens::{Opened, Opens};
use crate::process_files::ProcessFiles;
use crate::programs::Program;

/// Processes whose opens are followed at a time. Further ones are not.
const OPENERS_MAX: usize = 64;

/// Threads whose processes are known. Of more, all are forgotten.
const THREADS_MAX: usize = 1024;

/// Threads whose processes are read in one turn, 20 µs each.
const MEETINGS_MAX: usize = 16;

/// Reads of the pipe in one turn, each of some thousand records.
const TAKES_MAX: usize = 4;

/// How often the pipe is polled while records come. A lookup in a network takes as long.
const POLL: Duration = Duration::from_millis(1);

/// After so long without a record, the next one wakes the manager.
const QUIET: Nanos = Nanos(50_000_000);

/// How often it is checked which processes have ended. Numbers of threads are forgotten then, too.
const CHECK: Nanos = Nanos(1_000_000_000);

/// See the [module](self).
pub(super) struct Openers {
    opens: Option<Opens>,
    openers: Vec<Opener>,
    /// The processes of threads.
    threads: HashMap<u32, ReaderId>,
    taken_at: Nanos,
    checked_at: Nanos,
    is_behind: bool,
    seen: u64,
}

struct Opener {
    process: ReaderId,
    walker: Walker,
    /// Its opens of this turn.
    touches: Vec<Touch>,
    has_waited: bool,
}

impl Openers {
    pub(super) fn new(opens: Option<Opens>) -> Self {
        Openers {
            opens,
            openers: Vec::new(),
            threads: HashMap::new(),
            taken_at: Nanos::ZERO,
            checked_at: Nanos::ZERO,
            is_behind: false,
            seen: 0,
        }
    }

    /// Opens that were seen of programs without the library, and those that were lost, of any program.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.seen, self.opens.as_ref().map_or(0, Opens::lost))
    }

    /// Whether records are left for the next turn.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The pipe to wait on, if a record is to wake the manager.
    pub(super) fn waking_pipe(&self, now: Nanos) -> Option<BorrowedFd<'_>> {
        let opens = self.opens.as_ref().filter(|opens| !opens.is_over())?;
        (now.saturating_sub(self.taken_at) >= QUIET).then(|| opens.as_fd())
    }

    /// When the pipe is to be polled.
    pub(super) fn due_in(&self, now: Nanos) -> Option<Duration> {
        let is_over = self.opens.as_ref().is_none_or(Opens::is_over);
        (!is_over && now.saturating_sub(self.taken_at) < QUIET).then_some(POLL)
    }

    pub(super) fn walkers(&self) -> impl Iterator<Item = &Walker> {
        self.openers.iter().map(|opener| &opener.walker)
    }

    /// The walker of this number, and whose it is.
    pub(super) fn walker(&mut self, number: u64) -> Option<(ReaderId, &mut Walker)> {
        let found = self.openers.iter_mut().find(|opener| opener.walker.number() == number)?;
        Some((found.process, &mut found.walker))
    }
}

impl Opened<'_> {
    fn touch(&self) -> Touch {
        Touch {
            flags: TouchFlags::from_bits(if self.is_folder { TOUCH_FOLDER } else { TOUCH_OPEN }),
            base: Base::WorkingFolder,
            path: self.path.into(),
            opened: None,
            end_ns: 0,
            duration_ns: u64::try_from(self.slept.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl Session {
    /// Takes in opens of programs without the library, as many as a turn may.
    pub(super) fn take_opens(&mut self) {
        let now = self.now();
        let Some(mut opens) = self.openers.opens.take() else { return };
        let (mut meetings, mut takes, mut has_more) = (MEETINGS_MAX, 0, true);
        while has_more && takes < TAKES_MAX {
            has_more = opens.take(|opened| self.take_open(&opened, &mut meetings, now));
            takes += 1;
        }
        self.openers.opens = Some(opens);
        self.openers.is_behind = has_more;
        let (walking, arguments) = (&self.walking, self.arguments.as_mut());
        let accesses = (&mut self.accesses, &self.mounts);
        let mut known = Known { files: self.files.as_ref(), arguments, accesses };
        for opener in &mut self.openers.openers {
            if opener.touches.is_empty() {
                continue;
            }
            if std::mem::take(&mut opener.has_waited) {
                opener.walker.has_waited(now);
            }
            // It may have another root by now.
            opener.walker.forget_places();
            walking.take((opener.process, &mut opener.walker), &mut known, &opener.touches, now);
            opener.touches.clear();
        }
        if now.saturating_sub(self.openers.checked_at) >= CHECK {
            self.openers.checked_at = now;
            self.openers.threads.clear();
            self.end_openers(|process| !is_there(process));
            self.note_memory_of_walks();
        }
    }

    fn take_open(&mut self, opened: &Opened<'_>, meetings: &mut usize, now: Nanos) {
        self.openers.taken_at = now;
        let Some(process) = self.process_of(opened.thread, meetings) else { return };
        let tells = |program: &Program| program.reader() == process && program.tells();
        let at = self.openers.openers.iter().position(|opener| opener.process == process);
        if self.programs.iter().any(tells) {
            // A.
            if at.is_some() {
                self.end_openers(|other| other == process);
            }
            return;
        }
        self.openers.seen += 1;
        if !opened.path.starts_with(b"/") || opened.path.contains(&0) {
            return;
        }
        let at = match at {
            Some(at) => at, // B.
            None if self.walking.has_room() && self.openers.openers.len() < OPENERS_MAX => {
                let mut walker = self.walking.walker(now); // C.
                if self.accesses.records() {
                    walker.begins_in(self.accesses.folder()); // Also what it opens right before its end is recorded.
                }
                let opener = Opener { process, walker, touches: Vec::new(), has_waited: false };
                self.openers.openers.push(opener);
                self.openers.openers.len() - 1
            }
            None => return,
        };
        let opener = &mut self.openers.openers[at];
        opener.has_waited |= opened.slept >= Duration::from_nanos(STALL_THRESHOLD_NS);
        opener.touches.push(opened.touch());
    }

    /// The process of a thread. `None` if it has ended, or too many are new in this turn.
    fn process_of(&mut self, thread: u32, meetings: &mut usize) -> Option<ReaderId> {
        if let Some(&process) = self.openers.threads.get(&thread) {
            return Some(process);
        }
        let is_main = |process| process == ReaderId(thread.into());
        if self.programs.iter().any(|program| is_main(program.reader())) {
            return Some(ReaderId(thread.into()));
        }
        *meetings = meetings.checked_sub(1)?;
        let process = ReaderId(ProcessFiles::process_of_thread(thread.into())?);
        if self.openers.threads.len() >= THREADS_MAX {
            self.openers.threads.clear();
        }
        self.openers.threads.insert(thread, process);
        Some(process)
    }

    /// Lets go of the processes for which `is_over`.
    fn end_openers(&mut self, is_over: impl Fn(ReaderId) -> bool) {
        let now = self.now();
        for mut opener in self.openers.openers.extract_if(.., |opener| is_over(opener.process)) {
            if let Some(stream) = self.walking.end_walker(&mut opener.walker) {
                self.streams -= 1;
                self.policy.close(now, stream);
            }
        }
    }

    /// Lets go of all of them, at the end of the run.
    pub(super) fn end_all_openers(&mut self) {
        self.end_openers(|_| true);
    }
}

fn is_there(ReaderId(process): ReaderId) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) != Err(rustix::io::Errno::SRCH))
}
