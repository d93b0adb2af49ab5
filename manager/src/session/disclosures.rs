//! Disclosures become hints: those of sources, of the folders that they name, and of processes.
//!
//! A source is asked for more while few of its hints wait in the policy and there is room for them. A folder that was found is
//! listed by a source of its own, a bounded number at a time. A path is not touched here: its device comes from the mount
//! table, and its file from a lookup later.

use std::sync::Arc;

use foretell_policy::{Hint, HinterId, Nanos, StreamId, Target};

use super::Session;
use super::waiting::{Expected, Folder, Name};
use crate::Source;
use crate::feed::Feed;
use crate::programs::Program;
use crate::source::{Certainty, Disclosure, walk};
use crate::sources::Origin;

/// Sources are asked for more while fewer of their hints wait in the policy.
const LOW_WATER_HINTS: usize = 4096;

/// The same while all that was looked for was in memory.
const LOW_WATER_WARM: usize = 64;

/// Folders that are listed at a time, each on a thread.
const WALKS_MAX: usize = 8;

/// Hinter numbers of sources begin here; those of processes are below.
const FIRST_SOURCE: u64 = 1 << 32;

/// A source of hints that is not a program, and its stream.
pub(super) struct Supply {
    feed: Feed,
    hinter: HinterId,
    pub(super) stream: StreamId,
    is_walk: bool,
    origin: Origin,
    /// The stream of the process among whose words the folder is.
    pub(super) owner: Option<StreamId>,
}

impl Session {
    /// Adds a source of hints, with a stream of its own.
    pub(crate) fn add_source(&mut self, source: Source, origin: Origin) {
        self.start_feed(source, false, (None, origin));
    }

    fn start_feed(
        &mut self,
        source: Source,
        is_walk: bool,
        (owner, origin): (Option<StreamId>, Origin),
    ) -> StreamId {
        let feed = Feed::start(source, Arc::clone(&self.done), &self.threads);
        let hinter = HinterId(FIRST_SOURCE + self.sources);
        self.sources += 1;
        let stream = self.policy.open_stream(self.now(), hinter, None);
        self.policy.set_source(stream, origin.id());
        if is_walk {
            self.policy.guesses(stream);
        }
        self.feeds.push(Supply { feed, hinter, stream, is_walk, origin, owner });
        if let (Some(owner), Some(arguments)) = (owner, &mut self.arguments) {
            arguments.lineage.note_walk(owner, stream);
        }
        stream
    }

    /// Asks the sources for more, and closes the streams of those that have ended once all is read.
    pub(super) fn take_disclosures(&mut self) {
        let mut feeds = std::mem::take(&mut self.feeds);
        feeds.retain_mut(|Supply { feed, hinter, stream, .. }| {
            // Each feed by itself: one whose hints nobody reads must not hold up the others.
            let mut waiting = self.policy.waiting_hints_by(*hinter);
            let most = if self.warmth.is_cold() { LOW_WATER_HINTS } else { LOW_WATER_WARM };
            while waiting < most && self.has_room(*hinter) {
                match feed.next() {
                    Some(Ok(disclosure)) => {
                        waiting += 1; // An upper bound: the policy may drop the hint at once.
                        self.disclose(*stream, disclosure);
                    }
                    Some(Err(error)) => {
                        self.broken_lines += 1;
                        self.first_broken_line.get_or_insert_with(|| error.clone());
                        self.refused(error);
                    }
                    None if feed.is_finished() => {
                        self.supplied.push(*stream);
                        return false;
                    }
                    None => return true,
                }
            }
            true
        });
        self.feeds.append(&mut feeds);
        let (policy, now) = (&mut self.policy, Nanos(self.clock.elapsed().as_nanos() as u64));
        self.supplied.retain(|&stream| {
            let is_past = policy.is_past(stream);
            if is_past {
                policy.close(now, stream);
            }
            !is_past
        });
    }

    /// Stops the sources that guess and are mostly wrong.
    pub(super) fn stop_wrong_sources(&mut self) {
        if self.ended_programs.processes == 0 && self.programs.is_empty() {
            return; // Nobody has read yet.
        }
        let mut sources = std::mem::take(&mut self.sources_of_hints);
        while let Some(origin) = sources.next_to_stop(&self.policy, || self.sees_all_reads()) {
            let now = self.now();
            self.policy.silence(now, origin.id());
            self.feeds.retain(|feed| feed.origin != origin);
            self.waiting.drop_folders_by(origin);
        }
        self.sources_of_hints = sources;
    }

    /// Whether all processes of the run have had the library, and have lost no record of a read, as far as is known. Once it is
    /// `false` it stays so, since counts of these only grow.
    fn sees_all_reads(&self) -> bool {
        let ended = &self.ended_programs;
        // Skipped ones hardly read what has to be fetched. A source that seems wrong for their sake helps nobody much.
        let left_alone = |program: &Program| {
            let counters = program.counters();
            counters.programs_left_alone.saturating_sub(counters.programs_skipped)
        };
        let is_any_left_alone = ended.left_alone > ended.skipped
            || self.programs.iter().any(|program| left_alone(program) > 0);
        let (outside, _) = self.sighted.counts();
        let lost = |program: &Program| program.counters().dropped_records;
        let is_any_lost =
            ended.dropped_records > 0 || self.programs.iter().any(|program| lost(program) > 0);
        !is_any_left_alone && outside == 0 && !is_any_lost
    }

    /// Lists folders that were found, [`WALKS_MAX`] at a time.
    pub(super) fn start_walks(&mut self) {
        while self.feeds.iter().filter(|feed| feed.is_walk).count() < WALKS_MAX
            && let Some(Folder { path, visits, owner, origin }) = self.waiting.next_folder()
        {
            let files = walk::disclosures(path.clone(), visits).map(Ok);
            let stream = self.start_feed(Box::new(files), true, (owner, origin));
            self.walking.note_tree(path, visits, stream);
        }
    }

    pub(super) fn disclose(&mut self, stream: StreamId, disclosure: Disclosure) {
        self.hint(stream, disclosure, None, None);
    }

    /// As `disclose`, if the path names what is `expected` when it is looked up.
    pub(super) fn disclose_file(
        &mut self,
        stream: StreamId,
        disclosure: Disclosure,
        expected: Expected,
    ) {
        self.hint(stream, disclosure, None, Some(expected));
    }

    /// As `disclose`, of a guess that goes with the process whose stream it is.
    pub(super) fn disclose_guess(&mut self, stream: StreamId, disclosure: Disclosure) {
        self.hint(stream, disclosure, Some(stream), None);
    }

    fn hint(
        &mut self,
        stream: StreamId,
        disclosure: Disclosure,
        owner: Option<StreamId>,
        expected: Option<Expected>,
    ) {
        let Disclosure { path, extent, repeats, order, certainty } = disclosure;
        let origin = Origin::of(self.policy.source(stream));
        if self.rules_drop(&path, certainty, origin) {
            return;
        }
        let device = self.mounts.device_of(&path);
        // A process opens files in an order before others are `MaybeUnread`.
        if !matches!(certainty, Certainty::File | Certainty::MaybeUnread) {
            self.policy.guesses(stream);
        }
        let name = self.waiting.add_name(Name { path, certainty, owner, expected, origin });
        let (now, target) = (self.now(), Target::Name(name));
        self.policy.hint(now, stream, Hint { target, device, extent, order, repeats });
        self.driver.add_device(device);
    }

    /// Queues `folder`: all files below it will be disclosed, after those of folders found before.
    pub(super) fn walk(&mut self, folder: Folder) {
        let is_open =
            |stream| self.arguments.as_ref().is_some_and(|known| known.lineage.is_open(stream));
        if folder.owner.is_some_and(|owner| !is_open(owner)) {
            return; // Its process has ended.
        }
        if self.sources_of_hints.is_stopped(folder.origin) {
            return;
        }
        self.waiting.add_folder(folder);
    }
}

#[cfg(test)]
mod tests {
    use foretell_policy::{DeviceId, FileId, Outcome};

    use super::*;
    use crate::session::tests::session;

    const DISK: DeviceId = DeviceId(1);

    /// Fetches for streams of `origin`, each of a hinter of its own, until so many blocks have been wasted.
    fn waste(session: &mut Session, origin: Origin, blocks: u64) {
        for hinter in 0.. {
            let now = session.now();
            let stream = session.policy.open_stream(now, HinterId(hinter), None);
            session.policy.set_source(stream, origin.id());
            let target = Target::File { file: FileId(hinter), size_bytes: 1 << 20 };
            session.policy.hint(now, stream, Hint::whole_file(target, DISK));
            while let Some(fetch) = session.policy.next_fetch(now, DISK) {
                session.policy.completed(now, fetch.id, Outcome::Fetched);
            }
            session.policy.close(now, stream);
            if session.policy.tally(origin.id()).wasted >= blocks {
                return;
            }
        }
    }

    #[test]
    fn programs_are_looked_at_once_though_a_source_stays_wrong() {
        let mut session = session();
        waste(&mut session, Origin::Arguments, 5000);
        let (mut sources, mut looks) = (crate::sources::Sources::default(), 0);
        for _ in 0..3 {
            let sees_all = || {
                looks += 1;
                false
            };
            assert_eq!(sources.next_to_stop(&session.policy, sees_all), None);
        }
        assert_eq!(looks, 1);
    }

    #[test]
    fn a_source_that_is_mostly_wrong_stops_if_all_reads_are_seen() {
        let mut session = session();
        for origin in [Origin::Arguments, Origin::Program] {
            waste(&mut session, origin, 5000);
        }
        session.stop_wrong_sources();
        assert!(!session.sources_of_hints.is_stopped(Origin::Arguments), "nobody was seen");
        session.ended_programs.processes = 1;
        session.stop_wrong_sources();
        assert!(session.sources_of_hints.is_stopped(Origin::Arguments));
        assert!(!session.sources_of_hints.is_stopped(Origin::Program), "it said so itself");

        let stream = session.policy.open_stream(session.now(), HinterId(1), None);
        session.policy.set_source(stream, Origin::Arguments.id());
        let path = std::path::PathBuf::from("/no/such/file");
        session.disclose_guess(stream, Disclosure::whole_file(path.clone(), Certainty::MaybeFile));
        session.take_dropped_names();
        assert_eq!(session.waiting.names(), 0, "its names are let go");
        session.walk(Folder {
            path,
            visits: crate::source::Visits::Listed,
            owner: None,
            origin: Origin::Arguments,
        });
        assert!(!session.waiting.has_folders());

        let report = session.report();
        let stopped = |of: &&crate::report::SourceReport| of.has_stopped;
        let stopped: Vec<_> = report.sources.iter().filter(stopped).map(|of| of.source).collect();
        assert_eq!(stopped, [Origin::Arguments]);
        let wasted: u64 = report.sources.iter().map(|of| of.wasted).sum();
        assert_eq!(wasted, report.blocks.wasted);
    }
}
