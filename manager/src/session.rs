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

mod advice;
mod arguments;
mod messages;
mod names;
mod observed;
mod sighted;
pub(crate) mod walking;
mod warmth;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foretell_policy::{
    Config, Cost, DeviceId, FileId, Hint, HinterId, NameId, Nanos, Next, Outcome, Policy, ReaderId,
    StreamId, Target, Work,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::advice::AdviceStreams;
use self::arguments::Arguments;
use self::observed::Observed;
use self::sighted::Sighted;
use self::walking::Walking;
use foretell_protocol::Event;
use foretell_protocol::layout::STALL_THRESHOLD_NS;

use crate::Source;
use crate::connections::Connections;
use crate::driver::done::DoneQueue;
use crate::driver::file::OpenFile;
use crate::driver::{End, Ended, PageCache, Subject};
use crate::explain::Explanation;
use crate::fault::{Fault, FaultState};
use crate::feed::Feed;
use crate::mounts::Mounts;
use crate::observer::Observer;
use crate::outside::Outside;
use crate::process_files::ProcessFiles;
use crate::programs::Program;
use crate::reads::Reads;
use crate::report::{BlockReport, HintReport, ManagerState, ProgramReport, Report};
use crate::source::{Certainty, Disclosure, Setting, Visits, walk};
use crate::threads::Threads;

use warmth::Warmth;

/// Sources are asked for more while fewer of their hints wait in the policy.
const LOW_WATER_HINTS: usize = 4096;

/// The same while all that was looked for was in memory.
const LOW_WATER_WARM: usize = 64;

/// When a turn has taken in this many blocks that one program has read, it goes on to the next program, since other programs
/// and a stop wait meanwhile. (A single call of a program can read four times as many.)
const TURN_BLOCKS_MAX: u64 = 65_536;

/// How long records left in the rings may delay the end of a run.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Bytes of a waiting name beside its text.
const NAME_BYTES: usize = 64;

/// Folders that are listed at a time, each on a thread.
const WALKS_MAX: usize = 8;

/// How often the manager checks whether programs without a descriptor to watch have ended.
const POLL_ASKED: Duration = Duration::from_secs(1);

/// The one hinter of all scripts, each of whose hints comes from a process of its own.
const SCRIPTS: HinterId = HinterId(u64::MAX);

/// Hinter numbers of sources begin here; those of processes are below.
const FIRST_SOURCE: u64 = 1 << 32;

/// How often rings are polled while the next prefetch waits for a read to make room.
const POLL_AT_CEILING: Duration = Duration::from_millis(1);

/// How often rings are polled while no prefetch waits, for the accounting: a ring holds the records of this time at 200,000
/// reads a second.
const POLL_UNREAD: Duration = Duration::from_millis(10);

/// How often the manager looks whether a program waits, while fetches pause.
const POLL_PAUSED: Duration = Duration::from_millis(2);

/// A lookup that takes no longer has found the inode in memory: that takes some 10 µs.
const IN_MEMORY: Duration = Duration::from_nanos(STALL_THRESHOLD_NS);

/// How long the end of a job may go unheard if other jobs were waiting; see [`DoneQueue::push`].
const POLL_UNANNOUNCED: Duration = Duration::from_micros(100);

/// The state of the loop; see the [module](self).
pub(crate) struct Session {
    clock: Instant,
    policy: Policy,
    driver: PageCache,
    done: Arc<DoneQueue>,
    stop: Arc<AtomicBool>,
    threads: Threads,
    connections: Connections,
    programs: Vec<Program>,
    /// Programs that may take a descriptor for watching their ends.
    watched_max: usize,
    ended_programs: ProgramReport,
    interest: bool,
    /// Records of reads are left for the next turn.
    is_behind: bool,
    /// A search of the policy is left for the next turn.
    policy_has_more: bool,
    mounts: Mounts,
    names: HashMap<NameId, Name>,
    next_name: u64,
    /// Bytes of `names`, and of the names of folders to list.
    names_bytes: usize,
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
    /// Words of processes, and guesses of what they will read, that were dropped before they were looked up.
    dropped_guesses: u64,
    /// Folders that wait to be listed, each with the stream of the process that named it.
    walks: VecDeque<(PathBuf, Visits, Option<StreamId>)>,
    walking: Walking,
    /// Number of sources so far.
    sources: u64,
    /// The stream of hints from scripts, which any program may read.
    external: StreamId,
    /// Time to take in the end of a fetch, the last time, ns: a part of `T_driver`.
    ending_ns: u64,
    /// When the next idle file is to be closed.
    closes_in: Option<Duration>,
    first_refusal: Option<String>,
    /// Hints that a source could not even read.
    source_errors: u64,
    budget_bytes: u64,
    explanation: Option<Explanation>,
    fault: FaultState,
    warmth: Warmth,
    /// The rest of a pause in which no fetch is started.
    paused_for: Option<Duration>,
}

/// The parts of a session that its caller makes.
pub(crate) struct Parts {
    pub(crate) connections: Connections,
    /// Programs that may take a descriptor for watching their ends.
    pub(crate) watched_max: usize,
    pub(crate) threads: Threads,
    pub(crate) done: Arc<DoneQueue>,
    pub(crate) stop: Arc<AtomicBool>,
    /// See [`Options::lineage`](crate::Options::lineage).
    pub(crate) lineage: Option<Setting>,
    /// See [`Options::observes`](crate::Options::observes).
    pub(crate) observes: bool,
    pub(crate) outside: Option<Outside>,
    pub(crate) fault: Option<Fault>,
}

/// A path that waits to be looked up.
struct Name {
    path: PathBuf,
    certainty: Certainty,
    /// The stream of the process among whose words it is.
    owner: Option<StreamId>,
    /// What the file must be, if that is known.
    expected: Option<Expected>,
}

/// What a name must mean when it is looked up. Else its hint is dropped.
#[derive(Clone, Copy, Debug)]
struct Expected {
    file: FileId,
    size_bytes_min: u64,
}

impl Expected {
    fn is(&self, file: &OpenFile) -> bool {
        self.file == file.id() && self.size_bytes_min <= file.size_bytes()
    }
}

/// A source of hints that is not a program, and its stream.
struct Supply {
    feed: Feed,
    hinter: HinterId,
    stream: StreamId,
    is_walk: bool,
    /// The stream of the process among whose words the folder is.
    owner: Option<StreamId>,
}

impl Session {
    pub(crate) fn new(config: Config, parts: Parts) -> Self {
        let Parts { connections, watched_max, threads, done, stop, lineage, .. } = parts;
        let Parts { observes, outside, fault, .. } = parts;
        let mut policy = Policy::new(config);
        let external = policy.open_stream(Nanos::ZERO, SCRIPTS, None);
        let observer = Observer::new(Arc::clone(&done), threads.clone(), observes);
        Session {
            clock: Instant::now(),
            driver: PageCache::new(&config, Arc::clone(&done), threads.clone()),
            policy,
            done,
            stop,
            threads,
            connections,
            programs: Vec::new(),
            watched_max,
            ended_programs: ProgramReport::default(),
            interest: false,
            is_behind: false,
            policy_has_more: false,
            mounts: Mounts::read(),
            names: HashMap::new(),
            next_name: 0,
            names_bytes: 0,
            streams: 0,
            feeds: Vec::new(),
            supplied: Vec::new(),
            files: (lineage.is_some() || observes).then(ProcessFiles::open).flatten(),
            arguments: lineage.map(Arguments::new),
            observes,
            advice_streams: AdviceStreams::new(),
            observed: Observed::new(observer),
            sighted: Sighted::new(outside),
            dropped_guesses: 0,
            walks: VecDeque::new(),
            walking: Walking::new(observes),
            sources: 0,
            external,
            ending_ns: 0,
            closes_in: None,
            first_refusal: None,
            source_errors: 0,
            budget_bytes: config.capacity_blocks * config.block_bytes,
            explanation: (config.decisions_max > 0).then(Explanation::default),
            fault: FaultState::new(fault),
            warmth: Warmth::new(),
            paused_for: None,
        }
    }

    /// Adds a source of hints, with a stream of its own.
    pub(crate) fn add_source(&mut self, source: Source) {
        self.start_feed(source, false, None);
    }

    fn start_feed(&mut self, source: Source, is_walk: bool, owner: Option<StreamId>) -> StreamId {
        let feed = Feed::start(source, Arc::clone(&self.done), &self.threads);
        let hinter = HinterId(FIRST_SOURCE + self.sources);
        self.sources += 1;
        let stream = self.policy.open_stream(self.now(), hinter, None);
        self.feeds.push(Supply { feed, hinter, stream, is_walk, owner });
        if let (Some(owner), Some(arguments)) = (owner, &mut self.arguments) {
            arguments.lineage.note_walk(owner, stream);
        }
        stream
    }

    /// Runs until it is stopped. Returns the report.
    pub(crate) fn run(mut self) -> Report {
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
        while self.is_behind && began.elapsed() < LAST_WORDS {
            self.take_in();
        }
        self.report()
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
        self.start_fetches();
        self.release_evicted();
        self.update_interest();
        self.watch_names();
        self.fault.strike();
    }

    fn take_in(&mut self) {
        self.connections.accept(Instant::now());
        self.take_messages();
        self.take_disclosures();
        self.take_words();
        self.take_records();
        self.take_observed();
        self.take_sightings();
        let ended = self.driver.ended(self.now());
        // Without `ended` itself, whose time depends on the fetches in flight and not on those that have ended.
        let began = self.now();
        let count = ended.len();
        ended.into_iter().for_each(|ended| self.fetch_ended(ended));
        if let Some(each) = self.since(began).checked_div(count as u64) {
            self.ending_ns = each;
        }
        self.take_dropped_names();
        for file in self.policy.take_released_files() {
            self.driver.close(file, self.policy.wants(file));
        }
        self.start_walks();
        self.closes_in = self.driver.close_idle(self.now());
    }

    fn take_disclosures(&mut self) {
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
                        self.source_errors += 1;
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

    /// Lists folders that were found, [`WALKS_MAX`] at a time.
    fn start_walks(&mut self) {
        while self.feeds.iter().filter(|feed| feed.is_walk).count() < WALKS_MAX
            && let Some((folder, visits, owner)) = self.walks.pop_front()
        {
            self.names_bytes -= bytes_of_name(&folder);
            let tree = folder.clone();
            let files = walk::disclosures(folder, visits).map(Ok);
            let stream = self.start_feed(Box::new(files), true, owner);
            self.walking.note_tree(tree, visits, stream);
        }
    }

    fn disclose(&mut self, stream: StreamId, disclosure: Disclosure) {
        self.disclose_for(None, stream, disclosure);
    }

    /// As `disclose`, if the path names what is `expected` when it is looked up.
    fn disclose_file(&mut self, stream: StreamId, disclosure: Disclosure, expected: Expected) {
        let name = NameId(self.next_name);
        self.disclose_for(None, stream, disclosure);
        if let Some(name) = self.names.get_mut(&name) {
            name.expected = Some(expected);
        }
    }

    /// As `disclose`, of the words of a process if there is an `owner`.
    fn disclose_for(&mut self, owner: Option<StreamId>, stream: StreamId, disclosure: Disclosure) {
        let name = NameId(self.next_name);
        self.next_name += 1;
        let device = self.mounts.device_of(&disclosure.path);
        self.names_bytes += bytes_of_name(&disclosure.path);
        let (path, certainty) = (disclosure.path, disclosure.certainty);
        self.names.insert(name, Name { path, certainty, owner, expected: None });
        let (extent, repeats) = (disclosure.extent, disclosure.repeats);
        let now = self.now();
        let (target, order) = (Target::Name(name), disclosure.order);
        self.policy.hint(now, stream, Hint { target, device, extent, order, repeats });
        self.driver.add_device(device);
    }

    /// Takes out a name that does not wait any more.
    fn take_name(&mut self, name: NameId) -> Option<Name> {
        let known = self.names.remove(&name);
        self.names_bytes -= known.as_ref().map_or(0, |known| bytes_of_name(&known.path));
        known
    }

    /// Takes out names whose hints were cancelled or passed over.
    fn take_dropped_names(&mut self) {
        for name in self.policy.take_dropped_names() {
            let is_guess = self.take_name(name).is_some_and(|name| {
                name.owner.is_some() || name.certainty == Certainty::MaybeUnread
            });
            self.dropped_guesses += u64::from(is_guess);
        }
    }

    fn take_records(&mut self) {
        let now = self.now();
        if self.fault.ignores_rings() {
            return;
        }
        let (policy, ended_programs) = (&mut self.policy, &mut self.ended_programs);
        let (walking, streams, files) = (&mut self.walking, &mut self.streams, self.files.as_ref());
        let mut touches = Vec::new();
        let (mut behind, mut ended_processes, mut advices) = (false, Vec::new(), Vec::new());
        self.programs.retain_mut(|program| {
            let of = program.reader();
            let mut reads = Reads::new(policy, now, of);
            let ended = program.has_ended();
            program.drain_while(ended, |event| {
                match event {
                    Event::Call(record) => reads.take(record),
                    Event::Touch(touch) => touches.push(touch),
                    Event::Advice(advice) => advices.push((of, advice)),
                }
                reads.told_blocks() < TURN_BLOCKS_MAX
            });
            reads.tell();
            let told_blocks = reads.told_blocks();
            walking.take(program, files, &touches, now);
            touches.clear();
            let is_behind = told_blocks >= TURN_BLOCKS_MAX;
            behind |= is_behind;
            if ended && !is_behind {
                ended_programs.add(&program.counters());
                if let Some(stream) = walking.end(program) {
                    *streams -= 1;
                    policy.close(now, stream);
                }
                ended_processes.extend(program.is_gone().then(|| program.reader()));
            }
            !ended || is_behind
        });
        self.is_behind = behind;
        advices.into_iter().for_each(|(process, advice)| self.take_advice(process, advice));
        for process in ended_processes {
            self.process_ended(process);
        }
    }

    /// Lets go of what is known of a process that has ended.
    fn process_ended(&mut self, process: ReaderId) {
        self.end_arguments(process);
        self.end_advice(process);
        self.end_observed(process);
    }

    fn fetch_ended(&mut self, ended: Ended) {
        let now = self.now();
        match ended.subject {
            Subject::Name(name) => {
                let name = self.take_name(name).expect("a name is looked up once");
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
        Name { path, certainty, owner, expected }: Name,
        device: DeviceId,
        end: End,
    ) -> (Outcome, Option<FileId>) {
        let refusal = match end {
            End::Found(_) if matches!(certainty, Certainty::MaybeFolder(_)) => {
                return (Outcome::Void, None);
            }
            End::Found(file) if expected.is_some_and(|expected| !expected.is(&file)) => {
                return (Outcome::Void, None);
            }
            End::Found(file) => {
                let (id, size_bytes) = (file.id(), file.size_bytes());
                if certainty == Certainty::MaybeUnread && self.policy.wants(id) {
                    return (Outcome::Void, None);
                }
                // A name that was looked up ahead says nothing of the data.
                if file.opened_in() < IN_MEMORY && certainty != Certainty::MaybeUnread {
                    self.warmth.found(Instant::now());
                }
                if let Some(explanation) = &mut self.explanation {
                    explanation.name(id, path);
                }
                self.driver.hold(self.now(), device, *file);
                return (Outcome::Resolved { file: id, size_bytes }, Some(id));
            }
            End::Folder
                if let Certainty::MaybeTree(visits) | Certainty::MaybeFolder(visits) =
                    certainty =>
            {
                self.walk((path, visits), owner);
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

    /// Queues `folder`: all files below it will be disclosed, after those of folders found before.
    fn walk(&mut self, (folder, visits): (PathBuf, Visits), owner: Option<StreamId>) {
        let is_open =
            |stream| self.arguments.as_ref().is_some_and(|known| known.lineage.is_open(stream));
        if owner.is_some_and(|owner| !is_open(owner)) {
            return; // Its process has ended.
        }
        self.names_bytes += bytes_of_name(&folder);
        self.walks.push_back((folder, visits, owner));
    }

    /// Starts the fetches that the policy wants. If a device's search is not done, it continues in the next turn, which comes
    /// at once: events are taken in between.
    fn start_fetches(&mut self) {
        self.policy_has_more = false;
        self.paused_for = self.warmth.rest(Instant::now(), || {
            let calls: u64 = self.programs.iter_mut().map(Program::waits).sum();
            calls + self.observed.waits() + self.sighted.waits()
        });
        if self.paused_for.is_some() {
            return;
        }
        for device in self.driver.devices() {
            let (now, mut started) = (self.now(), 0);
            loop {
                let fetch = match self.policy.next(now, device) {
                    Next::Fetch(fetch) => fetch,
                    Next::More => {
                        self.policy_has_more = true;
                        break;
                    }
                    Next::Nothing => break,
                };
                started += 1;
                match fetch.work {
                    Work::Resolve { name } => {
                        let path = self.names.get(&name).map(|name| name.path.clone());
                        let path = path.expect("a name is kept until it is looked up");
                        self.driver.find(now, fetch, name, path);
                    }
                    Work::Read { file, first_block, blocks } => {
                        self.driver.read(now, fetch, file, first_block, blocks);
                    }
                }
            }
            if let Some(each) = self.since(now).checked_div(started) {
                self.policy.observe(device, Cost::Driver, Nanos(each + self.ending_ns));
            }
        }
    }

    /// Releases evicted blocks, in ranges as long as possible.
    fn release_evicted(&mut self) {
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

    /// Whether hints are being worked off, or prefetched blocks wait to be read.
    fn is_active(&self) -> bool {
        !self.feeds.is_empty()
            || !self.walks.is_empty()
            || self.arguments.as_ref().is_some_and(|known| known.lineage.has_words())
            || !self.policy.is_idle()
            || self.policy.pending_blocks() > 0
    }

    fn update_interest(&mut self) {
        // Without fetched blocks that wait to be read, a pause needs no records.
        let pauses = self.paused_for.is_some() && self.policy.pending_blocks() == 0;
        let wanted = (self.is_active() && !pauses) || self.fault.ignores_rings();
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
        let is_behind = self.is_behind || self.observed.is_behind() || self.sighted.is_behind();
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
        fds.extend(ends.chain(self.connections.listener()).map(watch));
        fds.push(PollFd::new(&self.done, PollFlags::IN));
        // An interrupted or failed wait is a short one.
        let _ = poll(&mut fds, timeout.map(timespec).as_ref());
        let ready: Vec<bool> = fds[..heard].iter().map(|fd| !fd.revents().is_empty()).collect();
        self.connections.note_ready(ready);
    }

    fn refused(&mut self, reason: String) {
        self.first_refusal.get_or_insert(reason);
    }

    /// Guesses whose lookups have not ended, or not begun. A run may end before the first of them is looked up.
    fn unanswered_guesses(&mut self) -> u64 {
        self.take_dropped_names();
        let is_guess = |name: &&Name| name.certainty != Certainty::File;
        self.dropped_guesses + self.names.values().filter(is_guess).count() as u64
    }

    fn report(mut self) -> Report {
        let now = self.now();
        let unanswered_guesses = self.unanswered_guesses();
        for Supply { stream, .. } in std::mem::take(&mut self.feeds) {
            self.policy.close(now, stream);
        }
        self.policy.close_all(now);
        let (decisions, dropped) = self.policy.take_decisions();
        let mut programs = self.ended_programs;
        for mut program in std::mem::take(&mut self.programs) {
            programs.add(&program.counters());
            program.tell_end();
            self.walking.end(&mut program);
        }
        (programs.outside, programs.outside_read_bytes) = self.sighted.counts();
        let mut counts = self.policy.counts();
        counts.hints_void += unanswered_guesses;
        Report {
            manager: ManagerState::Finished,
            budget_bytes: self.budget_bytes,
            hints: HintReport::new(&counts, self.source_errors),
            blocks: BlockReport::new(self.policy.config().block_bytes, &counts),
            names: self.walking.report(),
            programs,
            first_refusal: self.first_refusal,
            explanation: self.explanation.map(|explanation| explanation.text(&decisions, dropped)),
        }
    }
}

fn bytes_of_name(path: &PathBuf) -> usize {
    path.capacity() + NAME_BYTES
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use foretell_policy::{Memory, Segment};
    use foretell_protocol::Listener;

    use super::*;

    pub(super) fn session() -> Session {
        let listener = Listener::bind().expect("a socket");
        Session::new(
            Config::new(Memory::Kernel { keeps: false }, crate::BLOCK_BYTES, 1 << 20),
            Parts {
                connections: Connections::new(listener, 16),
                watched_max: 16,
                threads: Threads::new().expect("some processes are left"),
                done: Arc::new(DoneQueue::new().expect("a descriptor")),
                stop: Arc::default(),
                lineage: None,
                observes: true,
                outside: None,
                fault: None,
            },
        )
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
