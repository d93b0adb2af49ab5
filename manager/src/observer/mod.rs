//! The observer: sees from outside which pages of mapped files processes touch.
//!
//! A program that maps a file reads it without a call, so the interposing library sees nothing of it. A thread of the observer
//! looks at the page tables of the processes that it is told to [watch](Observer::watch), and tells the session:
//!
//! * which parts of files became present: reads, as far as the policy is concerned;
//! * where a mapping is touched [in order](order), so that the rest of it can be fetched ahead;
//! * which files a program's [advice](told) about its memory is about.
//!
//! It needs no privilege beyond that of reading `/proc` of the same user's processes. It is a thread of its own because reading
//! these files takes a lock of the process's memory, and may wait as long as the process waits in a page fault.
//!
//! **Precision.** The kernel maps up to 64 KiB of pages that are in memory around a page that is touched. So a read is seen up
//! to 64 KiB before it is made. A page that is touched again while it is present is not seen.
//!
//! **Pace.** The cheap sign is the count of page faults in `/proc/PID/stat`. A process is looked at every [`LOOK_MIN`] while it
//! waits in faults, and every [`LOOK_MIN_BUSY`] while it has faults and hints are being worked off. While it does not, the
//! interval grows to [`LOOK_MAX`]. The thread rests [`REST`] times the processor time that looks take, so all of them together
//! take a fiftieth of a processor, whatever a process maps. It may use some processor time in advance ([`CREDIT`]), so that an
//! order is found soon.
//!
//! **Bounds.** A round looks at [`ROUND_MAX`] processes. While [`HELD_MAX`] observations wait for the session, no more are
//! made.
//!
//! **What may fail.** A process may end or may not be looked at: then nothing is seen of it. Without a thread nothing is seen
//! at all.

mod maps;
mod order;
mod pages;
mod presence;
mod told;
mod waits;
mod watched;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use foretell_policy::FileId;
use rustix::time::{ClockId, clock_gettime};

use self::pages::Scanner;
use self::told::ADVICE_MAX;
pub(crate) use self::told::{MemoryAdvice, Needed};
use self::watched::{Look, Looker, Watched};
use crate::driver::done::DoneQueue;
use crate::lineage::ProcessId;
use crate::process_files::ProcessFiles;
use crate::threads::{Permit, Threads};

/// Interval between looks at a process that moves. In this time a program touches some 5 MiB of memory.
const LOOK_MIN: Duration = Duration::from_millis(5);

/// The same while hints are being worked off: a program that finds its pages touches a window of 8 MiB in less.
const LOOK_MIN_BUSY: Duration = Duration::from_millis(2);

/// Interval between looks at a process that does not move, and while hints are being worked off.
const LOOK_MAX: Duration = Duration::from_millis(100);
const LOOK_MAX_BUSY: Duration = Duration::from_millis(20);

/// A process is looked at first when it has run for so long. Most processes of a build or a script have ended by then.
const LOOK_FIRST: Duration = Duration::from_millis(10);

/// An interval grows by this factor at each look that sees nothing: to 100 ms in half a second.
const GROWTH: f64 = 1.3;

/// A round costs this multiple of its processor time in rest.
const REST: u32 = 50;

/// Processor time that may be used before it is rested for: some ten looks at a program with a hundred mappings.
const CREDIT: Duration = Duration::from_millis(3);

/// Processes that one round looks at.
const ROUND_MAX: usize = 64;

/// Processes that are watched at a time.
const WATCHED_MAX: usize = 4096;

/// Changes of the set of watched processes that wait for the thread.
const CHANGES_MAX: usize = 1 << 16;

/// Observations that wait for the session.
const HELD_MAX: usize = 1024;

/// Hints count as being worked off for this time after the session has said so: the flag changes often.
const BUSY_LINGERS: Duration = Duration::from_millis(200);

/// Stack of the thread, which makes no deep calls.
const STACK_BYTES: usize = 256 * 1024;

/// Something that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    /// These byte ranges of `file` became present in the memory of `process`. `waited`: how long it has waited meanwhile, if
    /// that was probably for this file.
    Touched {
        process: ProcessId,
        file: FileId,
        path: PathBuf,
        ranges: Vec<Range<u64>>,
        waited: Option<Duration>,
    },
    /// A mapping is touched in order: next comes `range` of the file `path`.
    Begins { process: ProcessId, mapping: u64, file: FileId, path: PathBuf, range: Range<u64> },
    /// A mapping is not touched in order any more, or is no more.
    Ends { process: ProcessId, mapping: u64 },
    /// The process has said that it needs these parts of a file.
    Needs { process: ProcessId, needed: Needed },
}

impl Observation {
    /// The process that it is about.
    pub(crate) fn process(&self) -> ProcessId {
        match self {
            Observation::Touched { process, .. }
            | Observation::Begins { process, .. }
            | Observation::Ends { process, .. }
            | Observation::Needs { process, .. } => *process,
        }
    }
}

/// The session's end of the observer; see the [module](self).
#[derive(Debug)]
pub(crate) struct Observer {
    shared: Arc<Shared>,
    bell: Arc<DoneQueue>,
    threads: Threads,
    finds_orders: bool,
    is_started: bool,
    is_busy: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    changes: Vec<(ProcessId, Change)>,
    advice: Vec<(ProcessId, MemoryAdvice)>,
    is_busy: bool,
    stops: bool,
    observations: Vec<Observation>,
    /// The thread sleeps for longer than [`LOOK_MIN`].
    is_asleep: bool,
}

/// A change of the set of watched processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Watched from now on. Its first look comes soon if hints are being worked off.
    Added {
        soon: bool,
    },
    Forgotten,
}

impl Shared {
    /// The state is valid even if a thread has panicked under the lock: no code that can panic runs there.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer {
    /// An observer that has no thread yet. `bell` is rung when there are observations. `finds_orders` says whether mappings
    /// that are touched in order are told, beside the reads while hints are being worked off.
    pub(crate) fn new(bell: Arc<DoneQueue>, threads: Threads, finds_orders: bool) -> Self {
        let shared = Arc::default();
        Observer { shared, bell, threads, finds_orders, is_started: false, is_busy: false }
    }

    /// Watches `process` from now on. If it is watched already, it has begun another program.
    pub(crate) fn watch(&mut self, process: ProcessId) {
        self.add(process, false);
    }

    /// Watches a `process` that has been seen to run for a while.
    pub(crate) fn watch_soon(&mut self, process: ProcessId) {
        self.add(process, true);
    }

    fn add(&mut self, process: ProcessId, soon: bool) {
        if self.is_started || self.start() {
            self.change(process, Change::Added { soon });
        }
    }

    /// Takes what a watched process has said about its memory. What files that is about comes as observations. What has no room
    /// is dropped.
    pub(crate) fn advise(&mut self, process: ProcessId, advice: MemoryAdvice) {
        if !self.is_started || !self.finds_orders {
            return;
        }
        let mut state = self.shared.lock();
        if state.advice.len() < ADVICE_MAX {
            state.advice.push((process, advice));
            let is_first = state.advice.len() == 1;
            drop(state);
            if is_first {
                self.shared.wake.notify_one();
            }
        }
    }

    /// Watches `process` no more. What was seen of it may still come.
    pub(crate) fn forget(&mut self, process: ProcessId) {
        if self.is_started {
            self.change(process, Change::Forgotten);
        }
    }

    fn change(&self, process: ProcessId, change: Change) {
        let mut state = self.shared.lock();
        if state.changes.len() >= CHANGES_MAX {
            return; // The thread is held up. It finds out by itself which processes have ended.
        }
        state.changes.push((process, change));
        let wakes = change != Change::Forgotten && state.is_asleep;
        drop(state);
        if wakes {
            self.shared.wake.notify_one();
        }
    }

    /// Tells whether hints are being worked off.
    pub(crate) fn set_busy(&mut self, is_busy: bool) {
        if is_busy == self.is_busy {
            return;
        }
        self.is_busy = is_busy;
        let mut state = self.shared.lock();
        state.is_busy = is_busy;
        if is_busy && state.is_asleep {
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// Takes what was seen since the last call, in order.
    pub(crate) fn take(&self) -> Vec<Observation> {
        if self.is_started {
            std::mem::take(&mut self.shared.lock().observations)
        } else {
            Vec::new()
        }
    }

    fn start(&mut self) -> bool {
        let (Some(files), Some(permit)) = (ProcessFiles::open(), self.threads.permit()) else {
            return false;
        };
        let watcher = Watcher {
            shared: Arc::clone(&self.shared),
            bell: Arc::clone(&self.bell),
            files,
            scanner: Scanner::new(),
            watched: Vec::new(),
            next: 0,
            finds_orders: self.finds_orders,
            busy_until: None,
            _permit: permit,
        };
        let thread = thread::Builder::new().name("foretell-observer".into());
        let started = thread.stack_size(STACK_BYTES).spawn(move || {
            // Without it, mapped files are not seen any more.
            let _ = catch_unwind(AssertUnwindSafe(|| watcher.run()));
        });
        self.is_started = started.is_ok();
        self.is_started
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        self.shared.wake.notify_one();
    }
}

/// The thread.
struct Watcher {
    shared: Arc<Shared>,
    bell: Arc<DoneQueue>,
    files: ProcessFiles,
    scanner: Scanner,
    watched: Vec<Watched>,
    /// Where the next round begins.
    next: usize,
    finds_orders: bool,
    /// Until when hints count as being worked off.
    busy_until: Option<Instant>,
    _permit: Permit,
}

impl Watcher {
    fn run(mut self) {
        foretell_fault::point("foretell-observer");
        // When all processor time that was used is rested for.
        let mut paid_until = Instant::now();
        while self.wait(paid_until.checked_sub(CREDIT * REST).unwrap_or(paid_until)) {
            let began = processor_time();
            self.take_advice(Instant::now());
            self.look_around(Instant::now());
            let cost = processor_time().saturating_sub(began) * REST;
            paid_until = paid_until.max(Instant::now()) + cost;
        }
    }

    /// Waits until a look is due, and until `rest_until`. Returns false at the end.
    fn wait(&mut self, rest_until: Instant) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            if state.stops {
                return false;
            }
            let now = Instant::now();
            self.take_changes(&mut state, now);
            let due = self.watched.iter().map(|watched| watched.due).min();
            let due = if state.advice.is_empty() { due } else { Some(now) };
            // If the session does not take what was seen, there is time.
            let late = (state.observations.len() >= HELD_MAX).then(|| now + LOOK_MIN);
            let due = due.map(|due| due.max(rest_until).max(late.unwrap_or(due)));
            let left = due.map(|due| due.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return true;
            }
            state.is_asleep = left.is_none_or(|left| left > LOOK_MIN);
            state = match left {
                Some(left) => {
                    let woken = shared.wake.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.is_asleep = false;
        }
    }

    fn take_changes(&mut self, state: &mut State, now: Instant) {
        for (process, change) in state.changes.drain(..) {
            self.watched.retain(|watched| watched.id != process);
            let Change::Added { soon } = change else { continue };
            if self.watched.len() < WATCHED_MAX {
                let first = if soon && state.is_busy { Duration::ZERO } else { LOOK_FIRST };
                self.watched.push(Watched::new(process, now + first, LOOK_MIN));
            }
        }
        if state.is_busy {
            if self.busy_until.is_none_or(|until| until < now) {
                let soon = now + LOOK_MIN_BUSY;
                self.watched.iter_mut().for_each(|watched| watched.due = watched.due.min(soon));
            }
            self.busy_until = Some(now + BUSY_LINGERS);
        }
    }

    /// Finds out which files the advice that waits is about.
    fn take_advice(&mut self, now: Instant) {
        let mut advice = std::mem::take(&mut self.shared.lock().advice);
        if advice.is_empty() {
            return;
        }
        advice.sort_by_key(|&(process, _)| process); // Stable: that of each process stays in its order.
        let mut seen = Vec::new();
        let Watcher { files, scanner, watched, finds_orders, .. } = self;
        let finds_orders = *finds_orders;
        let mut looker =
            Looker { scanner, files, is_busy: true, finds_orders, now, seen: &mut seen };
        for of_process in advice.chunk_by(|one, other| one.0 == other.0) {
            let said = of_process.iter().map(|(_, advice)| advice);
            let known = watched.iter_mut().find(|watched| watched.id == of_process[0].0);
            if let Some(known) = known
                && known.take_advice(said, &mut looker).is_some()
            {
                (known.interval, known.due) = (LOOK_MIN, known.due.min(now + LOOK_MIN_BUSY)); // What it touches next matters.
            }
        }
        self.pass_on(seen);
    }

    fn pass_on(&self, mut seen: Vec<Observation>) {
        if !seen.is_empty() {
            self.shared.lock().observations.append(&mut seen);
            self.bell.ring();
        }
    }

    /// One round.
    fn look_around(&mut self, now: Instant) {
        let is_busy = self.busy_until.is_some_and(|until| until >= now);
        let (least, most) = match is_busy {
            true => (LOOK_MIN_BUSY, LOOK_MAX_BUSY),
            false => (LOOK_MIN, LOOK_MAX),
        };
        let (mut seen, mut ended) = (Vec::new(), false);
        let Watcher { files, scanner, watched, next, .. } = self;
        let finds_orders = self.finds_orders;
        let mut looker = Looker { scanner, files, is_busy, finds_orders, now, seen: &mut seen };
        let count = watched.len();
        let mut looks = 0;
        for turn in 0..count {
            let at = (*next + turn) % count;
            let process = &mut watched[at];
            if process.due > now {
                continue;
            }
            if looks == ROUND_MAX {
                *next = at;
                break;
            }
            looks += 1;
            process.interval = match process.look(&mut looker) {
                Look::Moves => least,
                Look::Still => process.interval.mul_f64(GROWTH).min(most),
                Look::Ended => {
                    process.interval = Duration::MAX;
                    ended = true;
                    continue;
                }
            };
            process.due = now + process.interval;
        }
        if ended {
            watched.retain(|watched| watched.interval != Duration::MAX);
        }
        self.pass_on(seen);
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
