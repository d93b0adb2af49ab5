//! Processes that are seen from outside: their reads for the policy, and their mappings for the observer.

use std::collections::VecDeque;

use foretell_policy::ReaderId;

use super::Session;
use super::records::TURN_BLOCKS_MAX;
use crate::lineage::ProcessId;
use crate::outside::follow::Followers;
use crate::outside::{Outside, Sighting};

/// See the [module](self).
pub(super) struct Sighted {
    outside: Option<Outside>,
    followers: Followers,
    /// What is left for the next turn.
    waiting: VecDeque<Sighting>,
}

impl Sighted {
    pub(super) fn new(outside: Option<Outside>) -> Self {
        Sighted { outside, followers: Followers::default(), waiting: VecDeque::new() }
    }

    /// Whether something is left for the next turn.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells whether hints are being worked off.
    pub(super) fn set_interest(&self, wanted: bool) {
        self.outside.iter().for_each(|outside| outside.set_interest(wanted));
    }

    /// Processes of which reads were seen, and the bytes that these reads returned.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.followers.counts()
    }

    /// Times that a process was seen to have waited for its reads.
    pub(super) fn waits(&self) -> u64 {
        self.followers.waits()
    }

    /// Whether this process is seen from outside.
    pub(super) fn has(&self, process: ProcessId) -> bool {
        self.followers.has(process)
    }
}

impl Session {
    /// Takes in what was seen of processes from outside, as much as a turn may.
    pub(super) fn take_sightings(&mut self) {
        let now = self.now();
        if let Some(outside) = &self.sighted.outside
            && !self.sighted.is_behind()
        {
            self.sighted.waiting.extend(outside.take());
        }
        let mut told_blocks = 0;
        while told_blocks < TURN_BLOCKS_MAX
            && let Some(sighting) = self.sighted.waiting.pop_front()
        {
            let (process, has_ended) = (sighting.process, sighting.has_ended);
            let is_new = !self.sighted.has(process) && !has_ended;
            self.accesses.sighted(&sighting, &self.mounts);
            told_blocks += self.sighted.followers.take(&mut self.policy, now, sighting);
            let is_inside =
                || self.programs.iter().any(|program| program.reader() == ReaderId(process));
            if is_new {
                self.observed.observer.watch_soon(process);
            } else if has_ended && !is_inside() {
                self.end_observed(ReaderId(process));
                self.end_ruled(ReaderId(process));
            }
        }
    }
}
