//! Waits that end on time. tokio's own timer counts whole milliseconds; this one uses a timer of the kernel
//! (`timerfd`), set to the end of the next wait.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A task that waits.
struct Waiting {
    end: Instant,
    waker: Waker,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.end == other.end
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    /// The heap's greatest element is the one that ends first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.end.cmp(&self.end)
    }
}

struct State {
    waiting: BinaryHeap<Waiting>,
    /// The time to which the kernel's timer is set.
    set_to: Option<Instant>,
}

/// The store's timer. It may wake a task for a wait that was dropped; such a task does nothing.
pub(crate) struct Timer {
    descriptor: OwnedFd,
    state: Mutex<State>,
}

impl Timer {
    /// Makes a timer. [`Timer::run`] must be polled beside the tasks that wait.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let state = State { waiting: BinaryHeap::new(), set_to: None };
        Ok(Arc::new(Timer { descriptor, state: Mutex::new(state) }))
    }

    /// A wait that ends at `end`, or at once if that has passed.
    pub(crate) fn until(self: &Arc<Self>, end: Instant) -> Wait {
        Wait { timer: Arc::clone(self), end, waker: None }
    }

    /// Wakes tasks whose waits have ended, for ever.
    ///
    /// # Errors
    /// The runtime cannot watch the timer's descriptor.
    pub(crate) async fn run(self: Arc<Self>) -> io::Result<()> {
        let descriptor = self.descriptor.try_clone()?;
        // SAFETY: `AsyncFd` owns the descriptor, which stays open and the same.
        let expired = unsafe { AsyncFd::register(descriptor) }?;
        loop {
            let mut ready = expired.readable().await?;
            let mut count = [0u8; 8];
            // It may not have expired after all; then nothing is woken.
            let _ = rustix::io::read(expired.get_ref(), &mut count);
            ready.clear_ready();
            self.wake();
        }
    }

    fn wake(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        state.set_to = None;
        while state.waiting.peek().is_some_and(|first| first.end <= now) {
            state.waiting.pop().expect("invariant: peek found one").waker.wake();
        }
        if let Some(first) = state.waiting.peek().map(|first| first.end) {
            self.set(&mut state, first);
        }
    }

    fn add(&self, end: Instant, waker: Waker) {
        let mut state = self.lock();
        state.waiting.push(Waiting { end, waker });
        if state.set_to.is_none_or(|set_to| end < set_to) {
            self.set(&mut state, end);
        }
    }

    fn set(&self, state: &mut State, end: Instant) {
        state.set_to = Some(end);
        // Zero would switch the timer off.
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let time = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            },
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &time)
            .expect("invariant: a timer takes any time above zero");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A future that is ready at a given time.
pub(crate) struct Wait {
    timer: Arc<Timer>,
    end: Instant,
    /// The task to be woken.
    waker: Option<Waker>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.end {
            return Poll::Ready(());
        }
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
            self.timer.add(self.end, context.waker().clone());
        }
        Poll::Pending
    }
}
