//! A session among others in one process: its part of their budget, and its figures while it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Session;
use crate::reads::BLOCK_BYTES;
use crate::report::{BlockReport, HintReport, NameReport, ProgramReport, SourceReport};

/// What a manager does at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Processes with the library that run now.
    pub running: u64,
    /// What programs have done so far.
    pub programs: ProgramReport,
    /// Hints so far.
    pub hints: HintReport,
    /// Hints that wait to be worked off.
    pub waiting_hints: u64,
    /// Blocks so far.
    pub blocks: BlockReport,
    /// The same by their sources, without those that did nothing.
    pub sources: Vec<SourceReport>,
    /// Names looked up ahead.
    pub names: NameReport,
    /// Bytes that are in memory or in flight, and unread or kept for another read.
    pub held_bytes: u64,
    /// Bytes that these may be at most, at this moment.
    pub limit_bytes: u64,
}

/// Questions that wait at a time. A session that does not answer would gather them; further ones are not answered.
const ASKED_MAX: usize = 64;

/// Where others ask a session for its figures.
#[derive(Debug)]
pub(crate) struct Asked {
    is_asked: AtomicBool,
    /// `None` once the session has ended.
    by: Mutex<Option<Vec<Sender<Figures>>>>,
}

impl Default for Asked {
    fn default() -> Self {
        Asked { is_asked: AtomicBool::new(false), by: Mutex::new(Some(Vec::new())) }
    }
}

impl Asked {
    /// Asks. The session must be woken after that.
    pub(crate) fn ask(&self) -> Receiver<Figures> {
        let (sender, receiver) = channel();
        let mut by = self.lock();
        by.iter_mut().filter(|by| by.len() < ASKED_MAX).for_each(|by| by.push(sender.clone()));
        drop(by);
        self.is_asked.store(true, Ordering::Release);
        receiver
    }

    /// Nobody gets an answer from now on.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Sender<Figures>>>> {
        self.by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who have asked since the last call.
    fn take(&self) -> Vec<Sender<Figures>> {
        match self.is_asked.swap(false, Ordering::Acquire) {
            true => self.lock().as_mut().map(std::mem::take).unwrap_or_default(),
            false => Vec::new(),
        }
    }
}

impl Session {
    /// Abides by what the other sessions of the process leave to this one.
    pub(super) fn follow_lease(&mut self) {
        let Some(lease) = &self.lease else { return };
        let terms = lease.tell(Instant::now(), self.is_active(), self.policy.held_blocks());
        self.policy.set_limit(terms.limit_blocks);
        if terms.sheds {
            let now = self.now();
            self.policy.shed(now);
        }
    }

    pub(super) fn answer(&mut self) {
        for asking in self.asked.take() {
            let _ = asking.send(self.figures()); // One that has given up needs no answer.
        }
    }

    fn figures(&self) -> Figures {
        let counts = self.policy.counts();
        Figures {
            running: self.programs.len() as u64,
            programs: self.programs_so_far(),
            hints: HintReport::new(&counts, self.broken_lines),
            waiting_hints: self.policy.waiting_hints() as u64,
            blocks: BlockReport::new(BLOCK_BYTES, &counts),
            sources: self.sources_of_hints.report(&self.policy),
            names: self.walking.report(),
            held_bytes: self.policy.held_blocks() * BLOCK_BYTES,
            limit_bytes: self.policy.limit_blocks() * BLOCK_BYTES,
        }
    }

    /// What programs have done: those that have ended, and those that run.
    fn programs_so_far(&self) -> ProgramReport {
        let mut programs = self.ended_programs;
        self.programs.iter().for_each(|program| programs.add(&program.counters()));
        (programs.outside, programs.outside_read_bytes) = self.sighted.counts();
        (programs.outside_opens, programs.dropped_opens) = self.openers.counts();
        programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_to_a_session_that_does_not_answer_are_bounded() {
        let asked = Asked::default();
        let answers: Vec<_> = (0..ASKED_MAX + 10).map(|_| asked.ask()).collect();
        let is_closed = |answer: &Receiver<Figures>| {
            answer.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected)
        };
        assert_eq!(answers.iter().filter(|answer| is_closed(answer)).count(), 10);
        assert_eq!(asked.take().len(), ASKED_MAX);
        assert_eq!(asked.ask().try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    }
}
