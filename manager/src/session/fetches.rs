//! The fetches and lookups that the policy wants: started, and their ends told to it.
//!
//! A search of the policy that is not done goes on in the next turn, so that events are taken in between. A lookup that fails
//! is void for a guess, and a refusal for a name that was given. No fetch is started while [`Warmth`](super::warmth::Warmth)
//! pauses them.

use std::time::{Duration, Instant};

use foretell_policy::{Cost, DeviceId, FileId, Nanos, Next, Outcome, Work};
use foretell_protocol::layout::STALL_THRESHOLD_NS;

use super::Session;
use super::waiting::{Folder, Name};
use crate::driver::{End, Ended, Subject};
use crate::programs::Program;
use crate::source::Certainty;
use crate::sources::Origin;

/// A lookup that takes no longer has found the inode in memory: that takes some 10 µs.
const IN_MEMORY: Duration = Duration::from_nanos(STALL_THRESHOLD_NS);

impl Session {
    /// Starts the fetches that the policy wants. If a device's search is not done, it continues in the next turn, which comes
    /// at once: events are taken in between.
    pub(super) fn start_fetches(&mut self) {
        self.policy_has_more = false;
        self.paused_for = self.warmth.rest(Instant::now(), || {
            let calls: u64 = self.programs.iter_mut().map(Program::count_waits).sum();
            calls + self.observed.waits() + self.sighted.waits()
        });
        if self.paused_for.is_some() {
            // What has ended since is not in flight any more, and others may use its place.
            self.driver.devices().into_iter().for_each(|device| self.note_in_flight(device, false));
            return;
        }
        for device in self.driver.devices() {
            let (now, mut started) = (self.now(), 0);
            let most = self.most_in_flight(device);
            let is_held_back = loop {
                if most < usize::MAX && self.policy.in_flight(device) >= most {
                    break true;
                }
                let fetch = match self.policy.next(now, device) {
                    Next::Fetch(fetch) => fetch,
                    Next::More => {
                        self.policy_has_more = true;
                        break false;
                    }
                    Next::Nothing => break false,
                };
                started += 1;
                match fetch.work {
                    Work::Resolve { name } => {
                        let path = self.waiting.path(name).cloned();
                        let path = path.expect("a name is kept until it is looked up");
                        self.driver.find(now, fetch, name, path);
                    }
                    Work::Read { file, first_block, blocks } => {
                        self.driver.read(now, fetch, file, first_block, blocks);
                    }
                }
            };
            self.note_in_flight(device, is_held_back);
            if let Some(each) = self.since(now).checked_div(started) {
                self.policy.observe(device, Cost::Driver, Nanos(each + self.ending_ns));
            }
        }
    }

    /// Releases evicted blocks, in ranges as long as possible.
    pub(super) fn release_evicted(&mut self) {
        let mut run: Option<(FileId, u64, u64)> = None;
        while let Some(block) = self.policy.next_eviction() {
            run = match run {
                Some((file, first, end)) if file == block.file && end == block.index => {
                    Some((file, first, end + 1))
                }
                // The block read last is evicted first.
                Some((file, first, end)) if file == block.file && first == block.index + 1 => {
                    Some((file, block.index, end))
                }
                before => {
                    self.driver.release(before);
                    Some((block.file, block.index, block.index + 1))
                }
            };
        }
        self.driver.release(run);
    }

    /// Takes in the ends of fetches and lookups.
    pub(super) fn take_ends(&mut self) {
        let ended = self.driver.ended(self.now());
        // Without `ended` itself, whose time depends on the fetches in flight and not on those that have ended.
        let began = self.now();
        let count = ended.len();
        ended.into_iter().for_each(|ended| self.fetch_ended(ended));
        if let Some(each) = self.since(began).checked_div(count as u64) {
            self.ending_ns = each;
        }
    }

    fn fetch_ended(&mut self, ended: Ended) {
        let now = self.now();
        match ended.subject {
            Subject::Name(name) => {
                let name = self.waiting.take_name(name).expect("a name is looked up once");
                let (outcome, found) = self.outcome_of_lookup(name, ended.device, ended.end);
                self.policy.completed(now, ended.fetch, outcome);
                if let Some(file) = found {
                    self.driver.close(file, self.policy.wants(file));
                }
            }
            Subject::Read(file, _) => {
                let outcome = match ended.end {
                    End::Read(outcome) => {
                        match outcome {
                            Outcome::AlreadyCached => self.warmth.found(Instant::now()),
                            Outcome::Fetched => self.warmth.waited(),
                            _ => {}
                        }
                        let waited = outcome == Outcome::Fetched;
                        self.accesses
                            .learning
                            .iter_mut()
                            .for_each(|learning| learning.looked_for(waited));
                        outcome
                    }
                    End::Failed(error) => {
                        self.refused(format!("read ahead: {error}"));
                        Outcome::Refused
                    }
                    End::Found(_) | End::Folder | End::Other => unreachable!("not a lookup"),
                };
                self.policy.completed(now, ended.fetch, outcome);
                self.driver.close(file, self.policy.wants(file));
            }
        }
    }

    fn outcome_of_lookup(
        &mut self,
        Name { path, certainty, owner, expected, origin }: Name,
        device: DeviceId,
        end: End,
    ) -> (Outcome, Option<FileId>) {
        let refusal = match end {
            End::Found(_) if matches!(certainty, Certainty::MaybeFolder(_)) => {
                return (Outcome::Void, None);
            }
            End::Found(_)
                if matches!(certainty, Certainty::MaybeTree(_))
                    && self.rules_drop_file(&path, origin) =>
            {
                return (Outcome::Void, None);
            }
            End::Found(file) if expected.is_some_and(|expected| !expected.is(&file)) => {
                return (Outcome::Void, None);
            }
            End::Found(file) => {
                let (id, size_bytes) = (file.id(), file.size_bytes());
                let advised_by = expected.and_then(|expected| expected.advised_by);
                if certainty == Certainty::MaybeUnread
                    && self.policy.wants(id)
                    && !self.is_advised_by(advised_by, id)
                {
                    return (Outcome::Void, None);
                }
                self.note_advised(advised_by, id);
                // A name that was looked up ahead, or a file that is open, says nothing of the data.
                let is_sign = certainty != Certainty::MaybeUnread && origin != Origin::Rules;
                if file.opened_in() < IN_MEMORY && is_sign {
                    self.warmth.found(Instant::now());
                }
                let backend = self.backend_of_rule(&path);
                if let Some(explanation) = &mut self.explanation {
                    explanation.name(id, path);
                }
                self.driver.hold(self.now(), device, *file);
                backend.into_iter().for_each(|backend| self.driver.carry_out_by(id, backend));
                return (Outcome::Resolved { file: id, size_bytes }, Some(id));
            }
            End::Folder
                if let Certainty::MaybeTree(visits) | Certainty::MaybeFolder(visits) =
                    certainty =>
            {
                self.walk(Folder { path, visits, owner, origin });
                return (Outcome::Void, None);
            }
            _ if certainty != Certainty::File => return (Outcome::Void, None),
            End::Folder => format!("{}: is a folder", path.display()),
            End::Other => format!("{}: not a regular file", path.display()),
            End::Failed(error) => format!("{}: {error}", path.display()),
            End::Read(_) => unreachable!("a lookup reads nothing"),
        };
        self.refused(refusal);
        (Outcome::Refused, None)
    }
}

#[cfg(test)]
mod tests {
    use foretell_policy::Segment;

    use std::sync::Arc;

    use super::*;
    use crate::driver::done::DoneQueue;
    use crate::session::tests::session;
    use crate::shares::{Measured, Shares};
    use crate::source::Disclosure;

    /// Fetches that have ended when a pause begins take no place from other runs.
    #[test]
    fn in_a_pause_nothing_that_has_ended_counts_as_in_flight() {
        let (mut session, shares) = (session(), Shares::new(1 << 30));
        let join = || shares.join(1000, Arc::new(DoneQueue::new().expect("a descriptor")));
        let other = join();
        session.lease = Some(join());
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_owned();
        session.disclose(session.external, Disclosure::whole_file(path, Certainty::File));
        let began = Instant::now();
        while session.policy.counts().hints_resolved == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "the name is not looked up");
            session.turn();
            session.wait(Some(Duration::from_millis(1)));
        }
        let device = *session.driver.devices().first().expect("it was looked up there");
        let measured = Measured { serves: 1.0, is_full: true };
        let room = || other.most_in_flight(device, Some(measured));
        let all = room();
        session.lease.iter().for_each(|lease| lease.note_in_flight(device, 7, true));
        assert!(room() < all);
        (0..64).for_each(|_| session.warmth.found(Instant::now()));
        session.start_fetches();
        assert!(session.paused_for.is_some(), "it pauses");
        assert_eq!(room(), all);
    }

    /// The last of many segments is fetched in the end, without an event, and no turn places all of them.
    #[test]
    fn a_turn_leaves_the_rest_of_a_search_to_the_next_one() {
        let mut session = session();
        let path = std::env::temp_dir().join(format!("foretell-session-{}", std::process::id()));
        std::fs::write(&path, [1; 100]).expect("a file");
        let segment = |length_bytes| Segment { offset_bytes: 0, length_bytes };
        let mut segments = vec![segment(0); 200_000];
        segments.push(segment(100));
        let extent = foretell_policy::Extent::Segments(segments.into());
        let disclosure = Disclosure::whole_file(path.clone(), Certainty::File);
        session.disclose(session.external, Disclosure { extent, ..disclosure });
        let began = Instant::now();
        while session.policy.counts().hints_resolved == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "the name is not looked up");
            session.turn();
            session.wait(Some(Duration::from_millis(1)));
        }
        let mut turns = 0;
        while session.policy_has_more {
            assert_eq!(session.policy.counts().prefetched, 0, "the last segment comes last");
            session.turn();
            turns += 1;
        }
        assert!(turns > 10, "{turns}");
        assert_eq!(session.policy.counts().prefetched, 1);
        std::fs::remove_file(path).expect("it is there");
    }
}
