//! Threads that wait for the store, so that the threads that take in the kernel's requests need not.
//!
//! * Threads are started as tasks come, up to a limit.
//! * Tasks that a program waits for come first. Tasks for hints run when no such task is queued, on half of the threads
//!   at most.
//! * Dropping the pool drops queued tasks and does not wait for running ones: a store that does not answer would hold
//!   it up.
//!
//! If a pool's thread makes a request to a mount of this process, the mount refuses it at once ([`is_own`]). Otherwise
//! the thread would wait for itself, which not even SIGKILL ends.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that run tasks for hints at the same time: half of all.
const LATER_MAX: usize = 32;

/// Threads in a pool. Each waits for one answer of the store, so this is also how many lookups are in flight.
const THREADS_MAX: usize = 64;

type Task = Box<dyn FnOnce() + Send>;

/// The thread numbers of all pools.
static THREADS: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

fn threads() -> MutexGuard<'static, Option<HashSet<u32>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread belongs to a pool.
pub(crate) fn is_own(thread: u32) -> bool {
    threads().as_ref().is_some_and(|threads| threads.contains(&thread))
}

/// Registers this thread until it is dropped.
struct Own(u32);

impl Own {
    fn new() -> Self {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        threads().get_or_insert_default().insert(thread);
        Own(thread)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        threads().get_or_insert_default().remove(&self.0);
    }
}

/// Tasks that run one at a time, in order of arrival. Waiting ones take no thread.
#[derive(Default)]
pub(crate) struct Line(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    /// A thread runs them, or is about to.
    is_served: bool,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// Tasks for hints, which no program waits for.
    later: VecDeque<Task>,
    at_later: usize,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    is_more: Condvar,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Pool(Arc<Shared>);

impl Queue {
    /// The next task, and whether it is one for hints.
    fn next(&mut self) -> Option<(Task, bool)> {
        if let Some(task) = self.tasks.pop_front() {
            return Some((task, false));
        }
        if self.at_later == LATER_MAX {
            return None;
        }
        let task = self.later.pop_front()?;
        self.at_later += 1;
        Some((task, true))
    }
}

impl Pool {
    /// Runs `task`, which a program waits for, on a thread of the pool. If the pool has no thread and none can be
    /// started, this thread runs it.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        queue.tasks.push_back(Box::new(task));
        self.wake(queue);
    }

    /// Runs `task`, which no program waits for, when a thread is free.
    pub(crate) fn run_later(&self, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        queue.later.push_back(Box::new(task));
        if queue.at_later < LATER_MAX {
            self.wake(queue); // Otherwise a thread takes it when it is done with another.
        }
    }

    /// Runs `task` after those that are in `line`.
    pub(crate) fn run_in(&self, line: &Arc<Line>, task: impl FnOnce() + Send + 'static) {
        let mut waiting = line.lock();
        waiting.tasks.push_back(Box::new(task));
        let is_served = std::mem::replace(&mut waiting.is_served, true);
        drop(waiting);
        if !is_served {
            let line = Arc::clone(line);
            self.run(move || line.serve());
        }
    }

    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let waiting = queue.tasks.len() + queue.later.len().min(LATER_MAX);
        if queue.idle >= waiting || queue.threads == THREADS_MAX {
            drop(queue);
            return self.0.is_more.notify_one();
        }
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(&self.0);
        let name = "mount-names".to_owned();
        if std::thread::Builder::new().name(name).spawn(move || shared.serve()).is_err() {
            let mut queue = self.0.lock();
            queue.threads -= 1;
            let task = match queue.threads {
                0 => queue.tasks.pop_front(),
                _ => None,
            };
            drop(queue);
            if let Some(task) = task {
                task();
            }
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let mut waiting = self.lock();
            let Some(task) = waiting.tasks.pop_front() else {
                waiting.is_served = false;
                return;
            };
            drop(waiting);
            let _ = catch_unwind(AssertUnwindSafe(task)); // A panic is caught as for tasks of the pool.
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_closed = true;
        let left = (std::mem::take(&mut queue.tasks), std::mem::take(&mut queue.later));
        drop(queue);
        drop(left);
        self.0.is_more.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let _own = Own::new();
        let mut queue = self.lock();
        loop {
            if let Some((task, is_later)) = queue.next() {
                drop(queue);
                // If the task panics, its reply is dropped, which gives the program EIO.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    foretell_fault::point("mount-names");
                    task();
                }));
                queue = self.lock();
                queue.at_later -= usize::from(is_later);
            } else if queue.is_closed {
                return;
            } else {
                queue.idle += 1;
                queue = self.is_more.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn what_a_program_waits_for_does_not_wait_for_hints() {
        let pool = Pool::default();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for _ in 0..1000 {
            let gate = Arc::clone(&gate);
            pool.run_later(move || {
                let open = gate.0.lock().unwrap();
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
            });
        }
        let (sender, receiver) = channel();
        for number in 0..10 {
            let sender = sender.clone();
            pool.run(move || sender.send(number).unwrap());
        }
        for _ in 0..10 {
            receiver.recv_timeout(PATIENCE).unwrap();
        }
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        pool.run_later(move || sender.send(10).unwrap());
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), 10);
    }

    #[test]
    fn its_threads_are_known_as_such() {
        let this = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let pool = Pool::default();
        let (sender, receiver) = channel();
        pool.run(move || sender.send((this(), is_own(this()))).unwrap());
        let (thread, is_own_there) = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(is_own_there && thread != this());
        assert!(!is_own(this()));
    }

    #[test]
    fn a_line_takes_one_thread_and_keeps_its_order() {
        let pool = Pool::default();
        let line = Arc::new(Line::default());
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (sender, receiver) = channel();
        for number in 0..4 * THREADS_MAX {
            let (gate, sender) = (Arc::clone(&gate), sender.clone());
            pool.run_in(&line, move || {
                let open = gate.0.lock().unwrap();
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
                sender.send(number).unwrap();
                if number == THREADS_MAX {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            });
        }
        let others = sender.clone();
        pool.run(move || others.send(usize::MAX).unwrap());
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), usize::MAX);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        for number in 0..4 * THREADS_MAX {
            assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), number);
        }
        pool.run_in(&line, move || sender.send(0).unwrap());
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), 0, "the line is served again");
    }

    #[test]
    fn a_task_that_panics_takes_no_thread_along() {
        let pool = Pool::default();
        let (sender, receiver) = channel();
        for _ in 0..2 * THREADS_MAX {
            pool.run(|| std::panic::resume_unwind(Box::new("on purpose")));
        }
        pool.run(move || sender.send(()).unwrap());
        receiver.recv_timeout(PATIENCE).unwrap();
    }
}
