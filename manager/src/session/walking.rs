//! Walks of folders: takes in the names that programs touch, and looks ahead of programs that wait for names.
//!
//! [`walks`] decides what to look up. Here is what surrounds it: which programs are watched, whose lookups are
//! under way, and where the files go that are to be read.
//!
//! *Interest.* A program writes a record for each name only while its names are of interest ([`interest`]).
//!
//! *Files* that will be read are disclosed to the policy on a stream of the process, which bounds and paces them. A file that
//! another source has disclosed is left out: one below a folder that a command line names, and one of which hints exist when it
//! is looked up ([`Session::outcome_of_lookup`]).
//!
//! *Counting only.* Where nothing is looked up ahead, programs may be watched all the same, so that the time for which their
//! calls about names wait is known. Their records are then read and dropped.

mod interest;

use std::collections::HashMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foretell_policy::{HinterId, Nanos, ReaderId, StreamId};
use foretell_protocol::{STALL_THRESHOLD_NS, Touch};

use self::interest::{LOOK_MIN, QUIET};
use super::Session;
use super::accesses::Accesses;
use super::arguments::Arguments;
use super::learning::REPLAY;
use super::names::Names;
use crate::driver::done::Ahead;
use crate::lineage::ProcessId;
use crate::mounts::Mounts;
use crate::process_files::ProcessFiles;
use crate::programs::Program;
use crate::report::NameReport;
use crate::source::{Certainty, Disclosure, Visits};
use crate::sources::Origin;
use crate::walks::listing::Order;
use crate::walks::{self, Action, Request, Room, Walk};

/// Lookups under way for one program at a time. As many as the threads of a device that look ahead.
const UNDER_WAY_MAX: usize = 48;

/// While more of them are under way, no more are asked for, so that a search for more finds several.
const UNDER_WAY_LOW: usize = 32;

/// Files disclosed for a program that wait to be looked up by the policy.
const FILES_WAITING_MAX: usize = 256;

/// How often rings are polled while a program touches names and waits. A lookup in a network takes as long.
const POLL_WALK: Duration = Duration::from_millis(1);

/// Bytes of all walks. Beyond that, no program is watched anew.
const MEMORY_MAX_BYTES: usize = 32 << 20;

/// Folders with all below them that were disclosed. Of more, files may be disclosed twice.
const TREES_MAX: usize = 4096;

/// What is known of one program; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Walker {
    /// Its number among the walkers.
    number: u64,
    begun_at: Nanos,
    /// When voluntary switches may have it watched again, and the pause before.
    glimpse_at: Nanos,
    glimpse: Nanos,
    /// Counted stalls when they were looked at last, and when they had changed last.
    stalls: u64,
    read_stalls: u64,
    /// Voluntary switches of its threads when stalls had changed last.
    switches: Option<u64>,
    stalled_at: Nanos,
    /// Touches since the last one that waited.
    quick_touches: u32,
    touched_at: Nanos,
    /// `None` before the first touch.
    path: Option<Box<(Names, Walk)>>,
    under_way: usize,
    /// Its slow calls are taken for noise until then, for twice as long as the last time.
    noise_until: Nanos,
    noise: Nanos,
    /// Whether something may be requested that was not before.
    is_due: bool,
    /// The stream of the files that it will read.
    stream: Option<StreamId>,
}

/// What is known of processes from elsewhere.
pub(super) struct Known<'a> {
    pub(super) files: Option<&'a ProcessFiles>,
    pub(super) arguments: Option<&'a mut Arguments>,
    pub(super) accesses: (&'a mut Accesses, &'a Mounts),
}

impl Known<'_> {
    /// Whether the process's command line, or an ancestor's, names this file.
    fn has_named(&mut self, process: ProcessId, folder: &[u8], name: &[u8]) -> bool {
        let Some(arguments) = &mut self.arguments else { return false };
        let path = Path::new(std::ffi::OsStr::from_bytes(folder));
        arguments.lineage.has_named(process, &path.join(std::ffi::OsStr::from_bytes(name)))
    }
}

/// What belongs to no single program.
pub(crate) struct Walking {
    /// Whether anything is looked up ahead.
    is_on: bool,
    /// Whether any program is watched.
    watches: bool,
    /// Names are followed for a recording or for rules, if for nothing else.
    follows_all: bool,
    next_number: u64,
    looks_at: Nanos,
    interval: Duration,
    /// The program whose counters are looked at next.
    next_look: usize,
    memory_bytes: usize,
    ended: walks::Counts,
    name_stall_s: f64,
    /// Folders with all below them that were disclosed.
    trees: HashMap<PathBuf, (Visits, StreamId)>,
}

impl Walking {
    /// `is_on`: whether anything is looked up ahead. `counts`: whether programs are watched also without that. `follows_all`:
    /// whether all names are followed for a recording or for rules.
    pub(super) fn new(is_on: bool, counts: bool, follows_all: bool) -> Self {
        Walking {
            is_on,
            watches: is_on || counts || follows_all,
            follows_all,
            next_number: 0,
            looks_at: Nanos::ZERO,
            interval: LOOK_MIN,
            next_look: 0,
            memory_bytes: 0,
            ended: walks::Counts::default(),
            name_stall_s: 0.0,
            trees: HashMap::new(),
        }
    }

    /// Bytes of all walks, as of the last look.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Watches a program from its start.
    pub(super) fn begin(&mut self, program: &mut Program, now: Nanos) {
        program.walker = self.walker(now);
        program.walker.stalls = program.counters().stalls();
        if self.can_watch(program) {
            program.want_names(true);
            self.interval = LOOK_MIN;
            self.looks_at = self.looks_at.min(Nanos(now.0 + LOOK_MIN.as_nanos() as u64));
        }
    }

    /// A walker of a process that begins now.
    pub(super) fn walker(&mut self, now: Nanos) -> Walker {
        self.next_number += 1;
        Walker { number: self.next_number, begun_at: now, stalled_at: now, ..Walker::default() }
    }

    /// Whether there is room for the walks of another process.
    pub(super) fn has_room(&self) -> bool {
        (self.is_on || self.follows_all) && self.memory_bytes < MEMORY_MAX_BYTES
    }

    fn can_watch(&self, program: &Program) -> bool {
        self.watches
            && program.reader() != ReaderId(0)
            && (self.memory_bytes < MEMORY_MAX_BYTES || program.walker.path.is_some())
    }

    /// Notes that all files below `folder` are being disclosed on `stream`.
    pub(super) fn note_tree(&mut self, folder: PathBuf, visits: Visits, stream: StreamId) {
        if self.trees.len() < TREES_MAX {
            self.trees.insert(folder, (visits, stream));
        }
    }

    /// Takes in what a process has touched in this turn. Paths that its command line names tell nothing of a walk: the program
    /// goes from word to word, and ends with the last one.
    pub(super) fn take(
        &self,
        (ReaderId(process), walker): (ReaderId, &mut Walker),
        known: &mut Known<'_>,
        touches: &[Touch],
        now: Nanos,
    ) {
        if touches.is_empty() {
            return;
        }
        walker.touched_at = now;
        let Some(files) = known.files.filter(|_| self.is_on || self.follows_all) else {
            return walker.count_quick(touches);
        };
        let mut quick_touches = walker.quick_touches;
        let (names, walk) = walker.path_made();
        names.begin_turn(touches);
        for touch in touches {
            let place = names.place(process, files, touch);
            let Some((folder, name)) = place else { continue };
            let (accesses, mounts) = &mut known.accesses;
            accesses.touch(ReaderId(process), (folder, name), touch, mounts);
            if !self.is_on {
                continue;
            }
            let Some(action) = action_of(touch) else { continue };
            let waited = touch.duration_ns >= STALL_THRESHOLD_NS;
            quick_touches = if waited { 0 } else { quick_touches + 1 };
            if action != Action::List && known.has_named(process, folder, name) {
                continue;
            }
            walk.touch(walks::Touch { folder, name, action, waited });
        }
        walker.quick_touches = quick_touches;
        walker.is_due = self.is_on;
    }

    /// Names that were looked up ahead and used, by programs that have ended.
    pub(super) fn names_used(&self) -> u64 {
        self.ended.names_used
    }

    /// The report so far.
    pub(super) fn report(&self) -> NameReport {
        NameReport {
            looked_up: self.ended.names_ahead,
            used: self.ended.names_used,
            unused: self.ended.names_ahead.saturating_sub(self.ended.names_used),
            stall_s: self.watches.then_some(self.name_stall_s),
        }
    }

    /// Adds a program that has ended to the report. Returns its stream, to be closed.
    pub(super) fn end(&mut self, program: &mut Program) -> Option<StreamId> {
        self.name_stall_s += program.counters().name_stall_ns as f64 / 1e9;
        self.end_walker(&mut program.walker)
    }

    /// As `end`, of a process without the library.
    pub(super) fn end_walker(&mut self, walker: &mut Walker) -> Option<StreamId> {
        if let Some(path) = walker.path.take() {
            let counts = path.1.counts();
            self.ended.names_ahead += counts.names_ahead;
            self.ended.names_used += counts.names_used;
        }
        walker.stream.take()
    }
}

impl Walker {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Calls of the process have waited, or its reads.
    pub(super) fn has_waited(&mut self, now: Nanos) {
        self.stalled_at = now;
        self.path_made().1.has_waited();
    }

    /// Counts the touches since the last one that waited.
    fn count_quick(&mut self, touches: &[Touch]) {
        let waited = |touch: &Touch| touch.duration_ns >= STALL_THRESHOLD_NS;
        let quick = touches.iter().rev().take_while(|touch| !waited(touch)).count();
        let before = if quick == touches.len() { self.quick_touches } else { 0 };
        self.quick_touches = before.saturating_add(u32::try_from(quick).unwrap_or(u32::MAX));
    }

    /// Forgets what may have changed since its last touch.
    pub(super) fn forget_places(&mut self) {
        self.path_made().0.forget();
    }

    /// The process began in this folder.
    pub(super) fn begins_in(&mut self, folder: Option<Arc<[u8]>>) {
        self.path_made().0.assume(folder);
    }

    /// Its working folder, as far as known.
    pub(super) fn working_folder(&self) -> Option<Arc<[u8]>> {
        self.path.as_ref()?.0.working_folder().cloned()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.path.as_ref().map_or(0, |path| path.1.memory_bytes())
    }

    fn path_made(&mut self) -> &mut (Names, Walk) {
        self.path.get_or_insert_with(|| Box::new((Names::default(), Walk::new())))
    }

    fn walk(&mut self) -> Option<&mut Walk> {
        self.path.as_mut().map(|path| &mut path.1)
    }

    /// Whether something is looked up ahead of the program, or may be.
    fn is_under_way(&self) -> bool {
        self.under_way > 0 || self.path.as_ref().is_some_and(|path| path.1.is_under_way())
    }
}

/// What a touch did; `None` if it tells nothing of a walk.
fn action_of(touch: &Touch) -> Option<Action> {
    let flags = touch.flags;
    match () {
        () if flags.is_failed() => None,
        () if flags.is_folder() => Some(Action::List),
        () if flags.is_open() => Some(Action::Open),
        () if flags.is_stat() || flags.is_link() => Some(Action::Look),
        () => None,
    }
}

/// The order of a tree in which a walk goes; `None` if no tree is disclosed in that order.
fn visits_of(order: Order, is_deferred: bool) -> Option<Visits> {
    match (order, is_deferred) {
        (Order::Listed, false) => Some(Visits::Listed),
        (Order::Inode, false) => Some(Visits::ByInode),
        (Order::Sorted, false) => Some(Visits::ByName),
        (Order::Sorted, true) => Some(Visits::FilesFirst),
        (Order::Listed | Order::Inode, true) => None,
    }
}

impl Session {
    pub(super) fn note_memory_of_walks(&mut self) {
        let of_programs = self.programs.iter().map(|program| &program.walker);
        let walkers = of_programs.chain(self.openers.walkers());
        self.walking.memory_bytes = walkers.map(Walker::memory_bytes).sum();
    }

    /// The walker of this number, and whose it is.
    fn walker(&mut self, number: u64) -> Option<(ReaderId, &mut Walker)> {
        match self.program_of(number) {
            Some(at) => {
                let program = &mut self.programs[at];
                Some((program.reader(), &mut program.walker))
            }
            None => self.openers.walker(number),
        }
    }

    /// The index of the program whose walker has this number.
    fn program_of(&self, number: u64) -> Option<usize> {
        self.programs.binary_search_by_key(&number, |program| program.walker.number).ok()
    }

    /// Whether files are disclosed for a program and not read.
    fn reads_ahead(&self, program: usize) -> bool {
        let stream = self.programs[program].walker.stream;
        stream.is_some_and(|stream| !self.policy.is_past(stream))
    }

    /// Takes in lookups that have ended, and asks for more.
    pub(super) fn walk_ahead(&mut self) {
        for Ahead { walk: number, listed, on, waited } in self.driver.take_ahead() {
            if number == REPLAY {
                self.accesses
                    .learning
                    .iter_mut()
                    .for_each(|learning| learning.looked_up(on, waited));
                continue;
            }
            let Some((_, walker)) = self.walker(number) else { continue };
            walker.under_way = walker.under_way.saturating_sub(1);
            walker.is_due |= walker.under_way <= UNDER_WAY_LOW;
            match (walker.walk(), listed) {
                (None, _) => {}
                (Some(walk), None) => walk.looked_up(on.unwrap_or(0), waited),
                (Some(walk), Some((folder, listing))) => {
                    walk.listed(&folder, listing, waited);
                    walker.is_due = true;
                }
            }
        }
        let of_programs = self.programs.iter().map(|program| &program.walker);
        let walkers = of_programs.chain(self.openers.walkers());
        let due: Vec<u64> =
            walkers.filter(|walker| walker.is_due).map(|walker| walker.number).collect();
        for number in due {
            self.ask_ahead(number);
        }
    }

    fn ask_ahead(&mut self, number: u64) {
        let Some((ReaderId(process), walker)) = self.walker(number) else { return };
        walker.is_due = false;
        let names = UNDER_WAY_MAX.saturating_sub(walker.under_way);
        let waiting = self.policy.waiting_hints_by(HinterId(process));
        let files = FILES_WAITING_MAX.saturating_sub(waiting);
        let walk = self.walker(number).and_then(|(_, walker)| walker.walk());
        for request in walk.map(|walk| walk.requests(Room { names, files })).unwrap_or_default() {
            self.request(number, request);
        }
    }

    fn request(&mut self, number: u64, request: Request) {
        let device_of =
            |path: &[u8]| self.mounts.device_of(Path::new(std::ffi::OsStr::from_bytes(path)));
        match request {
            Request::Look { path, device } => {
                self.driver.look(device_of(&path), number, path, device);
                self.begun(number);
            }
            Request::List { folder, device } => {
                self.driver.list(device_of(&folder), number, folder, device);
                self.begun(number);
            }
            Request::Data { path, order, is_deferred } => {
                self.read_ahead(number, path, visits_of(order, is_deferred));
            }
            Request::Cancel => {
                let stream = self.walker(number).and_then(|(_, walker)| walker.stream);
                let now = self.now();
                stream.into_iter().for_each(|stream| self.policy.cancel(now, stream));
            }
        }
    }

    fn begun(&mut self, number: u64) {
        if let Some((_, walker)) = self.walker(number) {
            walker.under_way += 1;
        }
    }

    /// Discloses a file that a process will read.
    fn read_ahead(&mut self, number: u64, path: Box<[u8]>, visits: Option<Visits>) {
        let path = PathBuf::from(std::ffi::OsString::from_vec(path.into()));
        let trees = &self.walking.trees;
        let of_tree = path.ancestors().find(|folder| trees.contains_key(*folder));
        if !trees.is_empty()
            && let Some(tree) = of_tree.map(Path::to_owned)
        {
            if trees.get(&tree).map(|tree| tree.0) == visits {
                return;
            }
            self.drop_tree(&tree);
        }
        let now = self.now();
        let Some((ReaderId(process), walker)) = self.walker(number) else { return };
        let stream = match walker.stream {
            Some(stream) => stream,
            None => {
                let stream = self.policy.open_stream(now, HinterId(process), None);
                self.policy.set_source(stream, Origin::Walks.id());
                self.streams += 1;
                let walker = self.walker(number).map(|(_, walker)| walker);
                walker.into_iter().for_each(|walker| walker.stream = Some(stream));
                stream
            }
        };
        let disclosure = Disclosure::whole_file(path, Certainty::MaybeUnread);
        self.disclose_guess(stream, disclosure);
    }

    /// Takes back the files below `folder`, which were disclosed in an order in which they are not read.
    fn drop_tree(&mut self, folder: &Path) {
        let Some((_, stream)) = self.walking.trees.remove(folder) else { return };
        self.feeds.retain(|feed| feed.stream != stream);
        let now = self.now();
        self.policy.close(now, stream);
    }

    /// When the rings are to be polled for names, or the counters to be looked at; `None` without programs.
    pub(super) fn names_due_in(&self) -> Option<Duration> {
        let now = self.now();
        if self.programs.is_empty() {
            return self.openers.due_in(now);
        }
        let is_busy = |program: &Program| {
            let walker = &program.walker;
            program.wants_names()
                && now.saturating_sub(walker.touched_at.max(walker.stalled_at)) < QUIET
        };
        let look = Duration::from_nanos(self.walking.looks_at.saturating_sub(now).0);
        let own = if self.programs.iter().any(is_busy) { look.min(POLL_WALK) } else { look };
        Some(self.openers.due_in(now).map_or(own, |due| own.min(due)))
    }
}
