//! The manager's loop: one thread that owns the policy and never waits for a device or a program.
//!
//! Each turn takes in events (connections, hints, records of reads, ends of fetches), tells the policy, starts the fetches
//! that the policy wants, and sleeps until there is more. Programs write records to shared memory without a wake-up, so the
//! loop polls the rings while hints are being worked off. Without hints, programs write no records, and the loop sleeps until
//! a program connects, hints or ends.
//!
//! A turn is bounded, so that a stop, a cancel or an end is heard soon: it takes in a bounded number of blocks read, and makes
//! one bounded search for each device. If it leaves work behind, the next turn comes at once.
//!
//! What may fail: a connection (dropped), a ring (not mapped, so that program's reads are not seen), a source (its error is
//! reported as a refusal). No failure reaches a program.

mod accesses;
mod advice;
mod arguments;
mod disclosures;
mod fetches;
mod follows;
#[cfg(test)]
mod hostile;
pub(crate) mod learning;
mod messages;
mod names;
mod observed;
mod opens;
mod predicting;
mod recording;
mod records;
mod room;
mod rules;
pub(crate) mod shared;
mod sighted;
mod waiting;
pub(crate) mod walking;
mod warmth;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foretell_policy::{Config, HinterId, Nanos, Policy, StreamId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::accesses::Accesses;
use self::advice::AdviceStreams;
use self::arguments::Arguments;
use self::disclosures::Supply;
use self::learning::{Learn, Learning};
use self::observed::Observed;
use self::opens::Openers;
use self::recording::Recording;
use self::rules::Ruled;
use self::shared::{Asked, Waits};
use self::sighted::Sighted;
use self::waiting::Waiting;
use self::walking::Walking;
use self::warmth::Warmth;
use crate::Ends;
use crate::connections::Connections;
use crate::driver::PageCache;
use crate::driver::backend::BackendKind;
use crate::driver::done::DoneQueue;
use crate::explain::Explanation;
use crate::fault::{Fault, FaultState};
use crate::following::Following;
use crate::mounts::Mounts;
use crate::observer::Observer;
use crate::opens::Opens;
use crate::outside::Outside;
use crate::process_files::ProcessFiles;
use crate::programs::Program;
use crate::recorded::Record;
use crate::report::{
    BlockReport, HintReport, LearnReport, ManagerState, OracleReport, ProgramReport, Report,
};
use crate::shares::Lease;
use crate::source::Setting;
use crate::sources::{Origin, Sources};
use crate::threads::Threads;

/// How long records left in the rings may delay the end of a run.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often the manager checks whether programs without a descriptor to watch have ended.
const POLL_ASKED: Duration = Duration::from_secs(1);

/// The one hinter of all scripts, each of whose hints comes from a process of its own.
const SCRIPTS: HinterId = HinterId(u64::MAX);

/// How often rings are polled while the next prefetch waits for a read to make room.
const POLL_AT_CEILING: Duration = Duration::from_millis(1);

/// How often rings are polled while no prefetch waits, for the accounting: a ring holds the records of this time at 200,000
/// reads a second.
const POLL_UNREAD: Duration = Duration::from_millis(10);

/// How often the manager looks whether a program waits, while fetches pause.
const POLL_PAUSED: Duration = Duration::from_millis(2);

/// How long the end of a job may go unheard if other jobs were waiting; see [`DoneQueue::push`].
const POLL_UNANNOUNCED: Duration = Duration::from_micros(100);

/// The state of the loop; see the [module](self).
pub(crate) struct Session {
    clock: Instant,
    policy: Policy,
    driver: PageCache,
    done: Arc<DoneQueue>,
    stop: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
    threads: Threads,
    connections: Connections,
    programs: Vec<Program>,
    /// Programs that may take a descriptor for watching their ends.
    watched_max: usize,
    ended_programs: ProgramReport,
    following: Following,
    /// Programs that have introduced themselves.
    introduced: u64,
    /// What processes are told by [`Session::update_following`].
    skips_repeated: bool,
    interest: bool,
    /// Records of reads are left for the next turn.
    is_behind: bool,
    /// A search of the policy is left for the next turn.
    policy_has_more: bool,
    /// Messages are left for the next turn.
    has_messages: bool,
    mounts: Mounts,
    /// Names to look up, and folders to list.
    waiting: Waiting,
    /// Streams of all connections, and of the words of processes.
    streams: usize,
    feeds: Vec<Supply>,
    /// Streams of sources that have ended, with hints or blocks left to read.
    supplied: Vec<StreamId>,
    /// Arguments of the processes of the run, if they are hints.
    /// `None` if nothing is to be learnt about processes.
    files: Option<ProcessFiles>,
    arguments: Option<Arguments>,
    /// See [`Options::observes`](crate::Options::observes).
    observes: bool,
    advice_streams: AdviceStreams,
    /// What is seen of mapped files.
    observed: Observed,
    /// Processes without the library.
    sighted: Sighted,
    /// Those whose opens are told.
    openers: Openers,
    walking: Walking,
    /// What learning and a recording are told.
    accesses: Accesses,
    /// How right the kinds of sources have been.
    sources_of_hints: Sources,
    /// Number of sources so far.
    sources: u64,
    /// The stream of hints from scripts, which any program may read.
    external: StreamId,
    /// Time to take in the end of a fetch, the last time, ns: a part of `T_driver`.
    ending_ns: u64,
    /// When the next idle file is to be closed.
    closes_in: Option<Duration>,
    first_refusal: Option<String>,
    /// Hints that a source could not even read, and the first of them.
    broken_lines: u64,
    first_broken_line: Option<String>,
    budget_bytes: u64,
    explanation: Option<Explanation>,
    fault: FaultState,
    warmth: Warmth,
    /// The rest of a pause in which no fetch is started.
    paused_for: Option<Duration>,
    /// The part of a budget that it shares with others.
    lease: Option<Lease>,
    /// Other sessions of the process fetch, and may have to make way for this one's programs.
    others_fetch: bool,
    waits: Waits,
    /// Where it is asked for its figures.
    asked: Arc<Asked>,
}

/// The parts of a session that its caller makes.
pub(crate) struct Parts {
    /// What carries out fetches.
    pub(crate) backend: BackendKind,
    pub(crate) connections: Connections,
    /// Programs that may take a descriptor for watching their ends.
    pub(crate) watched_max: usize,
    pub(crate) threads: Threads,
    pub(crate) done: Arc<DoneQueue>,
    pub(crate) stop: Arc<AtomicBool>,
    /// See [`Manager::abandon`](crate::Manager::abandon).
    pub(crate) is_abandoned: Arc<AtomicBool>,
    /// See [`Options::lineage`](crate::Options::lineage).
    pub(crate) lineage: Option<Setting>,
    /// See [`Options::observes`](crate::Options::observes).
    pub(crate) observes: bool,
    /// See [`Options::counts_names`](crate::Options::counts_names).
    pub(crate) counts_names: bool,
    pub(crate) outside: Option<Outside>,
    pub(crate) opens: Option<Opens>,
    pub(crate) learn: Option<Learn>,
    pub(crate) record: Option<Record>,
    pub(crate) lease: Option<Lease>,
    pub(crate) asked: Arc<Asked>,
    pub(crate) rules: Option<foretell_rules::Rules>,
    pub(crate) fault: Option<Fault>,
}

impl Session {
    pub(crate) fn new(config: Config, parts: Parts) -> Self {
        let Parts { connections, watched_max, threads, done, stop, is_abandoned, lineage, .. } =
            parts;
        let Parts { observes, counts_names, outside, opens, learn, record, rules, .. } = parts;
        let Parts { lease, asked, fault, .. } = parts;
        let mut policy = Policy::new(config);
        let external = policy.open_stream(Nanos::ZERO, SCRIPTS, None);
        let mounts = Mounts::read();
        let folder = learn.as_ref().map(|learn| Arc::clone(&learn.folder));
        let learning =
            learn.map(|learn| Learning::new(learn, &mounts, Arc::clone(&done), &threads));
        let of_record = record.as_ref().map(|record| Arc::clone(&record.folder));
        let folder = of_record.or(folder).filter(|folder| !folder.is_empty());
        let recording = record.and_then(|record| Recording::new(record, &threads));
        let rules = rules.map(Ruled::new);
        // For a recording and for rules, all names are followed.
        let follows_all = recording.is_some() || rules.as_ref().is_some_and(Ruled::has_plans);
        let follows = observes || follows_all;
        let observer = Observer::new(Arc::clone(&done), threads.clone(), observes);
        Session {
            clock: Instant::now(),
            driver: PageCache::new(&config, parts.backend, Arc::clone(&done), threads.clone()),
            policy,
            done,
            stop,
            is_abandoned,
            threads,
            connections,
            programs: Vec::new(),
            watched_max,
            following: Following::new(),
            introduced: 0,
            skips_repeated: false,
            ended_programs: ProgramReport::default(),
            interest: false,
            is_behind: false,
            policy_has_more: false,
            has_messages: false,
            mounts,
            waiting: Waiting::default(),
            streams: 0,
            feeds: Vec::new(),
            supplied: Vec::new(),
            files: (lineage.is_some() || follows).then(ProcessFiles::open).flatten(),
            arguments: lineage.map(Arguments::new),
            observes,
            advice_streams: AdviceStreams::new(),
            observed: Observed::new(observer),
            sighted: Sighted::new(outside),
            openers: Openers::new(opens),
            walking: Walking::new(observes, counts_names, follows_all),
            accesses: Accesses::new(learning, recording, rules, folder),
            sources_of_hints: Sources::default(),
            sources: 0,
            external,
            ending_ns: 0,
            closes_in: None,
            first_refusal: None,
            broken_lines: 0,
            first_broken_line: None,
            budget_bytes: config.capacity_blocks * config.block_bytes,
            explanation: (config.decisions_max > 0).then(Explanation::default),
            fault: FaultState::new(fault),
            warmth: Warmth::new(),
            paused_for: None,
            lease,
            others_fetch: false,
            waits: Waits::new(),
            asked,
        }
    }

    /// Runs until it is stopped. Returns the report, and what is to be learned.
    pub(crate) fn run(mut self) -> (Report, Ends) {
        self.set_interest(self.accesses.follows_all());
        loop {
            self.done.hush();
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            self.turn();
            self.sleep();
        }
        // The last records of programs are in their rings. Programs that connected last are in the socket's backlog.
        let began = Instant::now();
        self.wait(Some(Duration::ZERO));
        self.take_in();
        while (self.is_behind || self.has_messages) && began.elapsed() < LAST_WORDS {
            self.take_in();
        }
        let (learned, mut lesson) = match self.accesses.learning.take() {
            Some(learning) => learning.finish(),
            None => Default::default(),
        };
        let recording = self.accesses.recording.take();
        let is_whole = !self.is_abandoned.load(Ordering::Acquire);
        let report = Report { learned, ..self.report() };
        lesson.iter_mut().for_each(|lesson| lesson.note_ahead(report.ahead_by(Origin::Learned)));
        let dropped = report.programs.dropped_records;
        let finish = |recording: Recording| recording.finish(dropped, is_whole);
        let (recorded, recording) = recording.map(finish).unzip();
        (Report { recorded, ..report }, Ends { lesson, recording: recording.flatten() })
    }

    fn now(&self) -> Nanos {
        Nanos(self.clock.elapsed().as_nanos() as u64)
    }

    fn since(&self, began: Nanos) -> u64 {
        self.now().0 - began.0
    }

    fn turn(&mut self) {
        self.take_in();
        self.walk_ahead();
        self.replay_ahead();
        self.accesses.recording.iter_mut().for_each(Recording::flush);
        self.follow_lease();
        self.start_fetches();
        self.release_evicted();
        self.update_interest();
        self.watch_names();
        self.answer();
        self.fault.strike();
    }

    fn take_in(&mut self) {
        self.connections.accept(Instant::now());
        self.take_messages();
        self.take_disclosures();
        self.take_words();
        self.take_records();
        self.update_following();
        self.take_observed();
        self.take_sightings();
        self.take_opens();
        self.take_ruled();
        self.take_ends();
        self.stop_wrong_sources();
        self.take_dropped_names();
        for file in self.policy.take_released_files() {
            self.driver.close(file, self.policy.wants(file));
        }
        self.start_walks();
        self.closes_in = self.driver.close_idle(self.now());
    }

    /// Whether hints are being worked off, or prefetched blocks wait to be read.
    fn is_active(&self) -> bool {
        !self.feeds.is_empty()
            || self.waiting.has_folders()
            || self.arguments.as_ref().is_some_and(|known| known.lineage.has_words())
            || !self.policy.is_idle()
            || self.policy.pending_blocks() > 0
    }

    fn update_interest(&mut self) {
        // Without fetched blocks that wait to be read, a pause needs no records.
        let pauses = self.paused_for.is_some() && self.policy.pending_blocks() == 0;
        let wanted = (self.is_active() && !pauses)
            || self.others_fetch
            || self.fault.ignores_rings()
            || self.accesses.watches(self.now());
        self.set_interest(wanted);
    }

    fn set_interest(&mut self, wanted: bool) {
        if wanted != self.interest {
            self.interest = wanted;
            self.observed.observer.set_busy(wanted);
            self.sighted.set_interest(wanted);
            for program in &mut self.programs {
                program.want_reads(wanted);
            }
        }
    }

    /// Sleeps until an event comes in, or until the rings or the fetches in flight are to be polled.
    fn sleep(&mut self) {
        let arrivals = self.driver.poll_interval();
        let unannounced = (!self.done.is_empty()).then_some(POLL_UNANNOUNCED);
        let soon = self.driver.reinforce().into_iter().chain(arrivals).chain(unannounced).min();
        let is_outside_behind = self.sighted.is_behind() || self.openers.is_behind();
        let is_behind = self.is_behind || self.has_messages || self.observed.is_behind();
        let is_behind = is_behind || is_outside_behind;
        let now = (is_behind || self.policy_has_more).then_some(Duration::ZERO);
        let timeout = now.or(soon).or_else(|| {
            let at_ceiling = self.policy.waiting_hints() > 0 && self.policy.pending_blocks() > 0;
            match (at_ceiling, self.policy.pending_blocks() > 0) {
                (true, _) => Some(POLL_AT_CEILING),
                (false, true) => Some(POLL_UNREAD),
                // Programs write records of reads without waking the manager.
                (false, false) => self.interest.then_some(POLL_UNREAD),
            }
        });
        let asked = self.programs.iter().any(Program::is_asked).then_some(POLL_ASKED);
        let due = self.connections.due_in(Instant::now());
        let paused = self.paused_for.map(|rest| rest.min(POLL_PAUSED));
        let names = self.names_due_in();
        let waits = [timeout, self.closes_in, asked, due, paused, names];
        self.wait(waits.into_iter().flatten().min());
    }

    /// Waits until an event comes in, for `timeout` at most.
    fn wait(&mut self, timeout: Option<Duration>) {
        let watch = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<PollFd> = self.connections.heard().map(watch).collect();
        let heard = fds.len();
        let ends = self.programs.iter().filter_map(Program::end);
        let opens = self.openers.waking_pipe(self.now());
        fds.extend(ends.chain(self.connections.listener()).chain(opens).map(watch));
        fds.push(PollFd::new(&self.done, PollFlags::IN));
        // An interrupted or failed wait is a short one.
        let _ = poll(&mut fds, timeout.map(timespec).as_ref());
        let ready: Vec<bool> = fds[..heard].iter().map(|fd| !fd.revents().is_empty()).collect();
        self.connections.note_ready(ready);
    }

    fn refused(&mut self, reason: String) {
        self.first_refusal.get_or_insert(reason);
    }

    /// Lets go of names whose hints were cancelled or passed over.
    fn take_dropped_names(&mut self) {
        for name in self.policy.take_dropped_names() {
            self.waiting.drop_name(name);
        }
    }

    fn report(mut self) -> Report {
        let now = self.now();
        // A run may end before the first of its guesses is looked up.
        self.take_dropped_names();
        let unanswered_guesses = self.waiting.unanswered_guesses();
        for Supply { stream, .. } in std::mem::take(&mut self.feeds) {
            self.policy.close(now, stream);
        }
        self.end_all_openers();
        self.policy.close_all(now);
        let (decisions, dropped) = self.policy.take_decisions();
        let mut programs = self.ended_programs;
        for mut program in std::mem::take(&mut self.programs) {
            programs.add(&program.counters());
            program.tell_end();
            self.walking.end(&mut program);
        }
        (programs.outside, programs.outside_read_bytes) = self.sighted.counts();
        (programs.outside_opens, programs.dropped_opens) = self.openers.counts();
        let mut counts = self.policy.counts();
        counts.hints_void += unanswered_guesses;
        Report {
            manager: ManagerState::Finished,
            budget_bytes: self.budget_bytes,
            hints: HintReport::new(&counts, self.broken_lines),
            blocks: BlockReport::new(self.policy.config().block_bytes, &counts),
            sources: self.sources_of_hints.report(&self.policy),
            oracle: OracleReport::new(&counts),
            names: self.walking.report(),
            learned: LearnReport::default(),
            recorded: None,
            rules: self.accesses.rules.as_ref().map(Ruled::report).unwrap_or_default(),
            programs,
            first_refusal: self.first_refusal,
            first_broken_line: self.first_broken_line,
            explanation: self.explanation.map(|explanation| explanation.text(&decisions, dropped)),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use foretell_policy::Memory;
    use foretell_protocol::Listener;

    use super::*;
    use crate::source::{Certainty, Disclosure, Visits};

    pub(super) fn session() -> Session {
        let listener = Listener::bind().expect("a socket");
        Session::new(
            Config::new(Memory::Kernel { keeps: false }, crate::BLOCK_BYTES, 1 << 20),
            Parts {
                backend: BackendKind::Auto,
                connections: Connections::new(listener, 16),
                watched_max: 16,
                threads: Threads::new().expect("some processes are left"),
                done: Arc::new(DoneQueue::new().expect("a descriptor")),
                stop: Arc::default(),
                is_abandoned: Arc::default(),
                lineage: None,
                observes: true,
                counts_names: true,
                outside: None,
                opens: None,
                learn: None,
                record: None,
                lease: None,
                asked: Arc::default(),
                rules: None,
                fault: None,
            },
        )
    }

    /// No outcome of a lookup is taken in before the report, however soon it comes.
    #[test]
    fn a_guess_that_is_not_looked_up_by_the_end_is_no_hint() {
        let given = |certainty, begun: bool| {
            let mut session = session();
            let path = PathBuf::from("/no/such/file");
            session.disclose(session.external, Disclosure::whole_file(path, certainty));
            if begun {
                session.start_fetches();
            }
            session.report().hints.given
        };
        for begun in [false, true] {
            assert_eq!(given(Certainty::File, begun), 1, "begun: {begun}");
            assert_eq!(given(Certainty::MaybeFile, begun), 0, "begun: {begun}");
            assert_eq!(given(Certainty::MaybeTree(Visits::Listed), begun), 0, "begun: {begun}");
        }
    }
}
