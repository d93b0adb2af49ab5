//! Threads that wait for a device so that the session need not.
//!
//! A lookup waits for the device, and an advice may. Each device has its own threads, so a slow one does not hold up the
//! others.
//!
//! One thread does all jobs as long as they finish quickly: where everything is in memory, more threads would take processors
//! from the program. When jobs wait and none was taken for [`STUCK`], all threads at work are waiting for the device. Then
//! one is added, and from [`ONE_BY_ONE`] on their number doubles, up to [`THREADS_MAX`] and as far as limits on processes
//! leave room ([`Threads`]). The session checks this by calling [`Pool::reinforce`] while jobs wait. A thread that has been
//! idle for [`IDLE`] ends.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use foretell_policy::FetchId;

use super::backend::BackendKind;
use super::done::{Ahead, Done, DoneQueue};
use super::file::{self, Handle};
use super::keeping::FileSystems;
use super::names;
use super::residency::Range;
use crate::threads::{Permit, Threads};

/// Most threads of a device: as many lookups can wait for it at once.
const THREADS_MAX: usize = 64;

/// Most of these threads that look names up ahead of programs. The others are for data, and for lookups of what will be read.
const AHEAD_MAX: usize = 48;

/// Lookups ahead that are left when the session is woken, so that it can add more: half of what it asks for at a time.
pub(crate) const AHEAD_LOW: usize = 16;

/// Jobs are stuck when they have waited this long and none was taken. A lookup in memory takes some 5 µs.
const STUCK: Duration = Duration::from_micros(100);

/// Up to so many threads are put to work one by one. Some that begin together overtake one another on their way to the device,
/// and what completes out of order looks like a device that sorts its requests. The policy's largest sample is as large.
const ONE_BY_ONE: usize = 16;

/// Until so many threads are at work, the first lookup in a folder looks up the folder itself before others in it begin, for
/// this time at most. Otherwise all would wait in the kernel for the folder, which wakes them in reverse order.
const FOLDER_MAX: Duration = Duration::from_millis(100);

/// An idle thread ends after this time, since it counts against limits on processes. Starting one takes some 50 µs.
const IDLE: Duration = Duration::from_millis(200);

/// A thread opens files, lists folders and reads into scratch on the heap; 128 KiB of stack is ample.
const STACK_BYTES: usize = 128 * 1024;

/// Something that may have to wait for the device.
#[derive(Debug)]
pub(crate) enum Job {
    /// Look a name up.
    Find { fetch: FetchId, path: PathBuf },
    /// Have a range fetched.
    Advise { fetch: FetchId, file: Arc<Handle>, range: Range, asked: BackendKind },
    /// Have a range released from memory.
    Release { file: Arc<Handle>, range: Range, asked: BackendKind },
    /// Look a name up ahead of a program; `walk` and `on` are passed on.
    Look { walk: u64, path: Box<[u8]>, on: u64 },
    /// List a folder ahead of a program; with `on`, only on the device of this number.
    List { walk: u64, folder: Arc<[u8]>, on: Option<u64> },
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
    /// Lookups and listings ahead of programs.
    ahead: VecDeque<Job>,
    /// Threads that carry one of them out.
    at_ahead: usize,
    threads: usize,
    idle: usize,
    /// Idle threads that were called and have not come yet.
    called: usize,
    /// When a job was last taken, or came to an empty queue.
    progress: Option<Instant>,
    /// The folder whose files were looked up last.
    folder: PathBuf,
    /// Since when this folder itself is being looked up, before its files.
    entered: Option<Instant>,
    closed: bool,
}

impl State {
    fn push(&mut self, job: Job) {
        match job {
            Job::Advise { .. } | Job::Release { .. } => self.advice.push_back(job),
            Job::Find { .. } => self.lookups.push_back(job),
            Job::Look { .. } | Job::List { .. } => self.ahead.push_back(job),
        }
    }

    fn pop(&mut self) -> Option<Job> {
        let lookups = if self.is_held_for().is_none() { Some(&mut self.lookups) } else { None };
        let next = self.advice.pop_front().or_else(|| lookups?.pop_front());
        next.or_else(|| {
            let ahead = if self.at_ahead < AHEAD_MAX { self.ahead.pop_front() } else { None };
            self.at_ahead += usize::from(ahead.is_some());
            ahead
        })
    }

    /// Jobs that a thread could take.
    fn waiting(&self) -> usize {
        let ahead = self.ahead.len().min(AHEAD_MAX - self.at_ahead);
        let lookups = if self.is_held_for().is_none() { self.lookups.len() } else { 0 };
        self.advice.len() + lookups + ahead
    }

    /// How long lookups wait at most for the folder of the next one, if it is being looked up.
    fn is_held_for(&self) -> Option<Duration> {
        let left = FOLDER_MAX.checked_sub(self.entered?.elapsed())?;
        let next = self.lookups.front()?.folder()?;
        (self.folder == *next).then_some(left)
    }

    /// Begins `job`. Returns its folder if that is to be looked up first.
    fn enters(&mut self, job: &Job, now: Instant) -> Option<PathBuf> {
        let folder = job.folder().filter(|folder| self.folder != **folder)?;
        let is_shared = self.lookups.front().is_none_or(|next| next.folder() == Some(folder));
        if self.entered.is_some() || !is_shared || self.at_work() > ONE_BY_ONE {
            return None;
        }
        folder.clone_into(&mut self.folder);
        self.entered = Some(now);
        Some(self.folder.clone())
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
            let job = state.pop();
            state.at_ahead = 0;
            if let Some(lost) = job.and_then(|job| job.lost()) {
                self.shared.done.push(lost, true);
            }
        }
    }

    /// Puts more threads to work if jobs are stuck. Returns the time until the next call; `None` if no call is needed.
    pub(crate) fn reinforce(&self) -> Option<Duration> {
        let mut state = self.shared.lock();
        let at_work = state.at_work();
        if at_work >= THREADS_MAX {
            return None;
        }
        if state.waiting() == 0 {
            return state.is_held_for();
        }
        if state.progress.is_none_or(|progress| progress.elapsed() >= STUCK) {
            let more = if at_work < ONE_BY_ONE { 1 } else { at_work };
            for _ in 0..more.min(state.waiting()) {
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
        state.ahead.clear();
        drop(state);
        self.shared.work.notify_all();
    }
}

impl Job {
    /// What to report if it cannot be carried out.
    fn lost(&self) -> Option<Done> {
        let waited = false;
        match self {
            Job::Find { fetch, .. } | Job::Advise { fetch, .. } => {
                Some(Done::Lost { fetch: *fetch })
            }
            Job::Release { .. } => None,
            Job::Look { walk, on, .. } => {
                Some(Done::Ahead(Ahead { walk: *walk, listed: None, on: Some(*on), waited }))
            }
            Job::List { walk, folder, on } => {
                let listed = Some((Arc::clone(folder), None));
                Some(Done::Ahead(Ahead { walk: *walk, listed, on: *on, waited }))
            }
        }
    }

    /// The folder of the name that is looked up.
    fn folder(&self) -> Option<&Path> {
        if let Job::Find { path, .. } = self { path.parent() } else { None }
    }

    fn is_ahead(&self) -> bool {
        matches!(self, Job::Look { .. } | Job::List { .. })
    }

    fn carry_out(self, systems: &FileSystems) -> Option<Done> {
        match self {
            Job::Look { walk, path, on } => {
                let ((), waited) = names::timed(|| names::look(&path));
                Some(Done::Ahead(Ahead { walk, listed: None, on: Some(on), waited }))
            }
            Job::List { walk, folder, on } => {
                let (listing, waited) = names::timed(|| names::list(&folder, on));
                let listed = Some((folder, listing.ok().map(Arc::new)));
                Some(Done::Ahead(Ahead { walk, listed, on, waited }))
            }
            Job::Find { fetch, path } => {
                Some(Done::Found { fetch, found: file::find(path, systems) })
            }
            Job::Advise { fetch, file, range, asked } => {
                Some(Done::Advised { fetch, advised: file.advise(range, asked) })
            }
            Job::Release { file, range, asked } => {
                file.release(range, asked);
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
        let folder = state.enters(&job, began);
        drop(state);
        if let Some(folder) = folder {
            names::enter(&folder);
            let mut state = shared.lock();
            let held_others = state.is_held_for().is_some();
            (state.entered, state.progress) = (None, Some(Instant::now()));
            if held_others {
                shared.done.ring(); // The session may add threads now.
            }
        }
        let (lost, is_look) = (job.lost(), matches!(job, Job::Look { .. }));
        let is_ahead = job.is_ahead();
        let done = catch_unwind(AssertUnwindSafe(|| {
            foretell_fault::point("foretell-device");
            job.carry_out(&shared.systems)
        }));
        let urgent = is_urgent(shared, began.elapsed(), (is_ahead, is_look));
        if let Some(done) = done.unwrap_or(lost) {
            shared.done.push(done, urgent);
        }
    }
}

/// Whether the session is to be woken for the result of a job that took this time.
///
/// While jobs are quick and more of them wait, it need not be: this thread will push the next result at once. Of names looked
/// up ahead it hears when few are left.
fn is_urgent(shared: &Shared, took: Duration, (is_ahead, is_look): (bool, bool)) -> bool {
    let mut state = shared.lock();
    state.at_ahead -= usize::from(is_ahead);
    let left = state.at_ahead + state.ahead.len();
    if is_look {
        return left == AHEAD_LOW || left == 0;
    }
    took >= STUCK || state.waiting() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(number: u64, path: &str) -> Job {
        Job::Find { fetch: FetchId(number), path: path.into() }
    }

    /// Takes the next job as a thread does that has just come to work. Returns its path, and the folder that it enters first.
    fn take(state: &mut State) -> Option<(PathBuf, Option<PathBuf>)> {
        state.threads += 1;
        let Some(job) = state.pop() else {
            assert_eq!(state.waiting(), 0, "what waits can be taken");
            return None;
        };
        let Job::Find { path, .. } = &job else { panic!("not a lookup: {job:?}") };
        let path = path.clone();
        Some((path, state.enters(&job, Instant::now())))
    }

    #[test]
    fn lookups_wait_for_their_folder() {
        let mut state = State::default();
        for (number, path) in ["a/1", "b/1", "b/2", "c/1", "b/3"].into_iter().enumerate() {
            state.push(find(number as u64, path));
        }
        let enters = |path: &str, folder: &str| Some((path.into(), Some(folder.into())));
        let plain = |path: &str| Some((path.into(), None));
        // Nobody waits for the folder of a lookup that is followed by one elsewhere.
        assert_eq!(take(&mut state), plain("a/1"));
        assert_eq!(take(&mut state), enters("b/1", "b"));
        assert!(state.is_held_for().is_some_and(|left| left <= FOLDER_MAX));
        assert_eq!(take(&mut state), None);
        state.entered = None;
        assert_eq!(take(&mut state), plain("b/2"));
        assert_eq!(take(&mut state), plain("c/1"));
        assert_eq!(take(&mut state), plain("b/3"));
        // The next one may be on its way.
        state.push(find(5, "d/1"));
        assert_eq!(take(&mut state), enters("d/1", "d"));
        state.push(find(6, "d/2"));
        assert_eq!(take(&mut state), None);
        // Another folder does not wait, nor is a second one entered at the same time.
        state.lookups.clear();
        state.push(find(7, "e/1"));
        assert_eq!(take(&mut state), plain("e/1"));
    }

    #[test]
    fn a_folder_that_hangs_and_many_threads_hold_up_nothing() {
        let mut state = State::default();
        for number in 0..3 {
            state.push(find(number, &format!("a/{number}")));
        }
        assert!(take(&mut state).is_some());
        assert_eq!(take(&mut state), None);
        state.entered = Instant::now().checked_sub(FOLDER_MAX * 2);
        assert!(take(&mut state).is_some());
        state.entered = None;
        state.threads = ONE_BY_ONE;
        state.push(find(3, "b/0"));
        assert!(take(&mut state).is_some());
        assert_eq!(take(&mut state), Some(("b/0".into(), None)));
    }
}
