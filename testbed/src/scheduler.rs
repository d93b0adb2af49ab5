//! Keeps the array's time in step with real time.
//!
//! The array's clock starts at mounting and runs at 1 / `time_scale` of real time. One thread sleeps until the next
//! request is done and passes its task to the reply pool. A thread that submits first completes everything due, under
//! the same lock, so the model sees arrivals and ends in the order of their times whichever thread comes first. A late
//! wake-up delays an answer, never the disks (see `model`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foretell_policy::Nanos;
use foretell_sim::array::DiskIndex;
use foretell_sim::device::Request;

use crate::error::ArrayError;
use crate::model::{Access, ArrayModel};
use crate::options::ArrayOptions;
use crate::pool::{Sender, Task};
use crate::report::Report;

/// The array's clock.
#[derive(Clone, Copy, Debug)]
struct Clock {
    origin: Instant,
    time_scale: f64,
}

impl Clock {
    fn now(&self) -> Nanos {
        Nanos((self.origin.elapsed().as_nanos() as f64 / self.time_scale) as u64)
    }

    /// The real time until the array's clock shows `time`; zero if it has passed.
    fn until(&self, time: Nanos) -> Duration {
        let real = Duration::from_nanos((time.0 as f64 * self.time_scale).ceil() as u64);
        real.saturating_sub(self.origin.elapsed())
    }
}

/// What a job reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Data,
    Metadata,
    WriteData,
    WriteMetadata,
}

impl Reason {
    fn access(self) -> Access {
        match self {
            Reason::Data | Reason::Metadata => Access::Read,
            Reason::WriteData | Reason::WriteMetadata => Access::Write,
        }
    }
}

struct State {
    model: ArrayModel<Task>,
    stopped: bool,
}

/// The model, its clock, and the pool that gets finished tasks.
pub(crate) struct Scheduler {
    clock: Clock,
    state: Mutex<State>,
    earlier_end: Condvar,
    pool: Sender,
}

impl Scheduler {
    pub(crate) fn new(options: &ArrayOptions, pool: Sender) -> Self {
        Scheduler {
            clock: Clock { origin: Instant::now(), time_scale: options.time_scale },
            state: Mutex::new(State { model: ArrayModel::new(options), stopped: false }),
            earlier_end: Condvar::new(),
            pool,
        }
    }

    /// Starts the thread that waits for requests to end.
    pub(crate) fn start(self: &Arc<Self>) -> Result<JoinHandle<()>, ArrayError> {
        let scheduler = Arc::clone(self);
        std::thread::Builder::new()
            .name("array-disks".into())
            .spawn(move || {
                if catch_unwind(AssertUnwindSafe(|| scheduler.run())).is_err() {
                    scheduler.stop(); // Programs get their answers, without the disks' delay.
                }
            })
            .map_err(|source| ArrayError::Thread { source })
    }

    /// Queues a job that arrives now. Its task goes to the pool when all its requests are done.
    pub(crate) fn submit(&self, reason: Reason, requests: &[(DiskIndex, Request)], task: Task) {
        let mut state = self.lock();
        if state.stopped {
            drop(state);
            return self.pool.send(task);
        }
        let now = self.clock.now();
        state.model.advance(now, |task| self.pool.send(task));
        match reason {
            Reason::Metadata => state.model.statistics_mut().metadata_read(),
            Reason::WriteMetadata => state.model.statistics_mut().metadata_written(),
            Reason::Data | Reason::WriteData => {}
        }
        let before = state.model.next_end();
        let at_once = state.model.submit(now, (reason.access(), requests), task);
        let sooner = state.model.next_end() < before || before.is_none();
        drop(state);
        if sooner {
            self.earlier_end.notify_one();
        }
        if let Some(task) = at_once {
            self.pool.send(task);
        }
    }

    /// The time on the array's clock.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// What the disks have done so far.
    pub(crate) fn report(&self) -> Report {
        let mut state = self.lock();
        let now = self.clock.now();
        state.model.advance(now, |task| self.pool.send(task));
        state.model.report(now)
    }

    /// Resets the statistics.
    pub(crate) fn reset_statistics(&self) {
        let mut state = self.lock();
        let now = self.clock.now();
        state.model.advance(now, |task| self.pool.send(task));
        state.model.statistics_mut().reset(now);
    }

    /// Whether no job is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().model.is_idle()
    }

    /// Ends the thread. Jobs in flight and later ones are answered without delay.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        let left = state.model.abandon();
        drop(state);
        self.earlier_end.notify_all();
        left.into_iter().for_each(|task| self.pool.send(task));
    }

    fn run(&self) {
        wake_up_precisely();
        let mut state = self.lock();
        while !state.stopped {
            foretell_fault::point("array-disks");
            state.model.advance(self.clock.now(), |task| self.pool.send(task));
            state = match state.model.next_end() {
                None => self.earlier_end.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let wait = self.clock.until(end);
                    let woken = self.earlier_end.wait_timeout(state, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a broken invariant of the model. Going on still answers programs, which would
        // otherwise wait for ever.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the kernel not to delay this thread's wake-ups to bundle them with others, which it does by up to 50 µs by
/// default.
fn wake_up_precisely() {
    let slack_ns: libc::c_ulong = 1;
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory. If it fails, wake-ups are less precise.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns, 0, 0, 0) };
}
