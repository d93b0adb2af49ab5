//! Programs that cannot be interposed, seen from outside.
//!
//! Static programs, Go programs and others make no records (`preload/src/executable.c` says which). What they read shows in
//! `/proc`, so a thread of its own looks there, and the session never waits for it:
//!
//! * `tree.rs` finds the processes of the run, and which of them are *outside*: the library does not work in them.
//! * `samples.rs` reads the positions of their open files, and the number of bytes that they have read.
//! * `positions.rs` turns two samples into reads (pure).
//! * `follow.rs`, on the session's thread, tells the policy, and says what it assumes of reads whose place is not known.
//! * `pace.rs` says when to look again (pure).
//! * `files.rs` reads and parses the files of `/proc`; `head.rs` the beginning of an ELF file.
//!
//! Invariants: nothing of a process is changed, stopped or traced. A process is known by its open folder in `/proc`, so a later
//! process with its number is never taken for it. No name of a program's is followed to a file: `statx` on an open descriptor
//! is answered from the inode in memory ([`AT_STATX_DONT_SYNC`](rustix::fs::AtFlags::STATX_DONT_SYNC)).
//!
//! Cost: the thread uses at most 2 % of a processor ([`pace`]), some of it in advance, and looks rarely while no hints are
//! worked off. Bounds: see [`tree::KNOWN_MAX`], [`samples::FILES_MAX`] and [`SIGHTINGS_MAX`].
//!
//! What may fail: a process of another user, or one with raised rights, shows nothing to anybody but root. It is then not seen.
//! Reads between the last sample and a process's end are not seen either.
//!
//! Not here: mapped files ([`crate::observer`]).

mod files;
pub(crate) mod follow;
mod head;
mod pace;
mod positions;
mod samples;
mod tree;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use foretell_policy::FileId;

pub(crate) use self::files::identity;
use self::pace::Pace;
use self::positions::Progress;
use self::samples::Watched;
use self::tree::Tree;
use crate::driver::done::DoneQueue;
use crate::threads::Threads;

/// Stack of the thread: it makes no deep calls.
const STACK_BYTES: usize = 128 << 10;

/// Sightings that wait for the session. Beyond that the thread looks no further, and loses nothing: positions add up.
const SIGHTINGS_MAX: usize = 1024;

/// Where the processes of a run are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// They are the children of this process, and their descendants. The manager itself is not one of them.
    ChildrenOf(u32),
    /// They are this process and its descendants.
    Process(u32),
}

/// What was seen of a process since it was looked at last.
#[derive(Debug)]
pub(crate) struct Sighting {
    pub(crate) process: u64,
    pub(crate) progress: Progress,
    pub(crate) time: Times,
    /// Files that it has opened, with their paths.
    pub(crate) opened: Vec<(FileId, PathBuf)>,
    /// It has ended; this is the last sighting.
    pub(crate) has_ended: bool,
}

/// How a process has spent the time since it was seen to read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) span: Duration,
    /// The part in which it neither ran nor waited for a processor.
    pub(crate) waited: Duration,
}

/// The session's end of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Outside {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sightings: Vec<Sighting>,
    /// Whether hints are being worked off.
    is_interested: bool,
    is_over: bool,
}

impl Shared {
    /// The state is valid even if a thread has panicked under the lock: no code that can panic runs there.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outside {
    /// Starts the thread for the processes below `root`, which may open `descriptors_max` descriptors. `bell` is rung for
    /// sightings. `None` if there is no `/proc` of this namespace, or no thread can be started.
    pub(crate) fn start(
        root: Root,
        descriptors_max: usize,
        bell: Arc<DoneQueue>,
        threads: &Threads,
    ) -> Option<Self> {
        let tree = Tree::new(root, descriptors_max)?;
        let permit = threads.permit()?;
        let shared = Arc::new(Shared::default());
        let observer = Observer { shared: Arc::clone(&shared), bell, tree, watched: Vec::new() };
        let thread = thread::Builder::new().name("foretell-outside".into());
        let started = thread.stack_size(STACK_BYTES).spawn(move || {
            let _permit = permit;
            // After a panic nothing more is seen from outside.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.run()));
        });
        started.is_ok().then_some(Outside { shared })
    }

    /// Says whether hints are being worked off.
    pub(crate) fn set_interest(&self, wanted: bool) {
        self.shared.lock().is_interested = wanted;
        self.shared.changed.notify_one();
    }

    /// Takes what was seen since the last call.
    pub(crate) fn take(&self) -> Vec<Sighting> {
        std::mem::take(&mut self.shared.lock().sightings)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

/// The thread.
struct Observer {
    shared: Arc<Shared>,
    bell: Arc<DoneQueue>,
    tree: Tree,
    watched: Vec<Watched>,
}

impl Observer {
    fn run(mut self) {
        let (mut walks, mut looks) = (Pace::of_walks(), Pace::of_samples());
        let began = Instant::now();
        let (mut next_walk, mut next_look) = (Duration::ZERO, Duration::ZERO);
        while let Some(is_interested) = self.wait_until(began, next_walk.min(next_look)) {
            foretell_fault::point("foretell-outside");
            let now = began.elapsed();
            if now >= next_walk {
                let (has_changed, cost) = costing(|| self.walk(now));
                next_walk = began.elapsed() + walks.pause(is_interested, has_changed, cost);
                if has_changed {
                    next_look = now;
                }
            }
            if now >= next_look {
                let (has_changed, cost) = costing(|| self.look());
                next_look = began.elapsed() + looks.pause(is_interested, has_changed, cost);
            }
        }
    }

    /// Waits until `due` after `began`, or until interest arises. Returns whether there is interest; `None` if the session has
    /// ended.
    fn wait_until(&self, began: Instant, due: Duration) -> Option<bool> {
        let mut state = self.shared.lock();
        let was_interested = state.is_interested;
        loop {
            let left = due.saturating_sub(began.elapsed());
            if state.is_over {
                return None;
            }
            let arises = state.is_interested && !was_interested;
            if (left.is_zero() || arises) && state.sightings.len() < SIGHTINGS_MAX {
                return Some(state.is_interested);
            }
            // A session that does not take its sightings is asked again after a while.
            let left = left.max(pace::LEAST);
            let (waited, _) = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited;
        }
    }

    /// Looks for new processes. Returns whether there are any.
    fn walk(&mut self, now: Duration) -> bool {
        let has_changed = self.tree.walk(now, self.watched.len());
        for found in self.tree.take_found() {
            // A process that executes one program outside after the other stays the same process.
            if !self.watched.iter().any(|watched| watched.process() == found.process()) {
                self.watched.push(found);
            }
        }
        has_changed
    }

    /// Samples each process that is watched. Returns whether one has read anything.
    fn look(&mut self) -> bool {
        let mut sightings = Vec::new();
        let tree = &self.tree;
        self.watched.retain_mut(|watched| {
            let sighting = watched.look(tree.is_inside(watched.process()));
            let stays = sighting.as_ref().is_none_or(|sighting| !sighting.has_ended);
            sightings.extend(sighting);
            stays
        });
        let has_changed = !sightings.is_empty();
        if has_changed {
            self.shared.lock().sightings.append(&mut sightings);
            self.bell.ring();
        }
        has_changed
    }
}

/// The result of `work`, and the processor's time that it took.
fn costing<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let time = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = |at: rustix::time::Timespec| {
        u64::try_from(at.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(at.tv_nsec).unwrap_or(0)
    };
    let began = nanos(time());
    let result = work();
    (result, Duration::from_nanos(nanos(time()).saturating_sub(began)))
}
