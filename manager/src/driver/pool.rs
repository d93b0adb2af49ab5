//! Threads that wait for a device so that the session need not.
//!
//! A lookup waits for the device, and an advice may. Each device has its own threads, so a slow one does not hold up the others.
//!
//! One thread does all jobs as long as they finish quickly: where everything is in memory, more threads would take processors
//! from the program. When jobs wait and none was taken for [`STUCK`], all threads at work are waiting for the device. Then
//! their number doubles, up to [`THREADS_MAX`] and as far as limits on processes leave room ([`Threads`]). The session checks
//! this by calling [`Pool::reinforce`] while jobs wait. A thread that has been idle for [`IDLE`] ends.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use foretell_policy::FetchId;

use super::done::{Done, DoneQueue};
use super::file::{self, Handle};
use super::keeping::FileSystems;
use super::residency::Range;
use crate::threads::{Permit, Threads};

/// Most threads of a device: as many lookups can wait for it at once.
const THREADS_MAX: usize = 64;

/// Jobs are stuck when they have waited this long and none was taken. A lookup in memory takes some 5 µs.
const STUCK: Duration = Duration::from_micros(100);

/// An idle thread ends after this time, since it counts against limits on processes. Starting one takes some 50 µs.
const IDLE: Duration = Duration::from_millis(200);

/// A thread opens files and reads into 32 KiB of scratch; 128 KiB of stack is ample.
const STACK_BYTES: usize = 128 * 1024;

/// Something that may have to wait for the device.
#[derive(Debug)]
pub(crate) enum Job {
    /// Look a name up.
    Find { fetch: FetchId, path: PathBuf },
    /// Have a range fetched.
    Advise { fetch: FetchId, file: Arc<Handle>, range: Range },
    /// Have a range released from memory.
    Release { file: Arc<Handle>, range: Range },
}

/// The threads of one device. After a drop each thread ends when it has finished its current job. The drop does not wait for
/// them, since a job may wait for a device that never answers.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    room: Threads,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Arc<DoneQueue>,
    systems: Arc<FileSystems>,
}

#[derive(Debug, Default)]
struct State {
    /// Advice goes before lookups: first the data of a known file, then the lookup of the next one. The other way round all
    /// lookups would precede all data, against the order of the hints. On a disk that stores files beside their inodes, the
    /// arm would then pass twice.
    advice: VecDeque<Job>,
    lookups: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Idle threads that were called and have not come yet.
    called: usize,
    /// When a job was last taken, or came to an empty queue.
    progress: Option<Instant>,
    closed: bool,
}

impl State {
    fn push(&mut self, job: Job) {
        match job {
            Job::Advise { .. } | Job::Release { .. } => self.advice.push_back(job),
            Job::Find { .. } => self.lookups.push_back(job),
        }
    }

    fn pop(&mut self) -> Option<Job> {
        self.advice.pop_front().or_else(|| self.lookups.pop_front())
    }

    fn waiting(&self) -> usize {
        self.advice.len() + self.lookups.len()
    }

    fn at_work(&self) -> usize {
        self.threads - self.idle
    }
}

impl Shared {
    /// No code that can panic runs under the lock, so a poisoned lock is still valid.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    pub(crate) fn new(done: Arc<DoneQueue>, systems: Arc<FileSystems>, room: Threads) -> Self {
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), done, systems };
        Pool { shared: Arc::new(shared), room }
    }

    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.shared.lock();
        if state.waiting() == 0 {
            state.progress = Some(Instant::now());
        }
        state.push(job);
        if state.at_work() == 0 {
            self.add_thread(&mut state);
        }
        if state.threads == 0 {
            // No thread can be started: the job is lost, which costs no more than a prefetch.
            if let Some(fetch) = state.pop().and_then(|job| job.fetch()) {
                self.shared.done.push(Done::Lost { fetch }, true);
            }
        }
    }

    /// Puts more threads to work if jobs are stuck. Returns the time until the next call; `None` if no call is needed.
    pub(crate) fn reinforce(&self) -> Option<Duration> {
        let mut state = self.shared.lock();
        let at_work = state.at_work();
        if state.waiting() == 0 || at_work >= THREADS_MAX {
            return None;
        }
        if state.progress.is_none_or(|progress| progress.elapsed() >= STUCK) {
            for _ in 0..at_work.max(1).min(state.waiting()) {
                self.add_thread(&mut state);
            }
            state.progress = Some(Instant::now());
        }
        Some(STUCK)
    }

    /// Wakes an idle thread, or starts one.
    fn add_thread(&self, state: &mut State) {
        if state.idle > 0 {
            state.idle -= 1;
            state.called += 1;
            self.shared.work.notify_one();
        } else if state.threads < THREADS_MAX && self.start_thread() {
            state.threads += 1;
        }
    }

    fn start_thread(&self) -> bool {
        let Some(permit) = self.room.permit() else { return false };
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .name("foretell-device".into())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(&shared, permit))
            .is_ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.advice.clear();
        state.lookups.clear();
        drop(state);
        self.shared.work.notify_all();
    }
}

impl Job {
    /// The fetch that waits for it.
    fn fetch(&self) -> Option<FetchId> {
        match self {
            Job::Find { fetch, .. } | Job::Advise { fetch, .. } => Some(*fetch),
            Job::Release { .. } => None,
        }
    }

    fn carry_out(self, systems: &FileSystems) -> Option<Done> {
        match self {
            Job::Find { fetch, path } => {
                Some(Done::Found { fetch, found: file::find(path, systems) })
            }
            Job::Advise { fetch, file, range } => {
                Some(Done::Advised { fetch, advised: file.advise(range) })
            }
            Job::Release { file, range } => {
                file.release(range);
                None
            }
        }
    }
}

fn serve(shared: &Shared, _permit: Permit) {
    loop {
        let mut state = shared.lock();
        while state.waiting() == 0 && !state.closed {
            state.idle += 1;
            while state.called == 0 && !state.closed {
                let (waited, time) =
                    shared.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                state = waited;
                if time.timed_out() && state.called == 0 {
                    state.idle -= 1;
                    state.threads -= 1;
                    return;
                }
            }
            state.called = state.called.saturating_sub(1);
        }
        let Some(job) = state.pop() else { return };
        let began = Instant::now();
        state.progress = Some(began);
        drop(state);
        let fetch = job.fetch();
        let done = catch_unwind(AssertUnwindSafe(|| {
            foretell_fault::point("foretell-device");
            job.carry_out(&shared.systems)
        }));
        // While jobs are quick and more of them wait, the session need not be woken for each: this thread will push the next
        // result at once.
        let urgent = began.elapsed() >= STUCK || shared.lock().waiting() == 0;
        if let Some(done) = done.unwrap_or(fetch.map(|fetch| Done::Lost { fetch })) {
            shared.done.push(done, urgent);
        }
    }
}
