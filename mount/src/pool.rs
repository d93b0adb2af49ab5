//! Threads that wait for the store: lookups and listings, so that who takes in the kernel's requests need not.
//!
//! Should one of them ever look into a mount that it serves, it is told so at once ([`is_own`]): it would wait for itself, and no
//! signal ends that.
//!
//! There are as many as there is work for, up to a limit. What a program waits for comes before what is done for hints, which
//! never has all threads. They are not waited for when the mount goes: a store that does not answer would hold it up.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that are at work for hints, at most.
const LATER_MAX: usize = 32;

/// Threads at most. Each waits for an answer of the store: so many lookups go on at once.
const THREADS_MAX: usize = 64;

type Task = Box<dyn FnOnce() + Send>;

/// The threads of all pools.
static THREADS: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

fn threads() -> MutexGuard<'static, Option<HashSet<u32>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread is one that the kernel's requests are answered by.
pub(crate) fn is_own(thread: u32) -> bool {
    threads().as_ref().is_some_and(|threads| threads.contains(&thread))
}

/// This thread is one of them, as long as it is there.
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

/// Tasks of which one at a time is done, in the order in which they came: others do not wait in threads.
#[derive(Default)]
pub(crate) struct Line(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    /// A thread does them, or will.
    is_served: bool,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// Nobody waits for these.
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
    /// The next task, and whether nobody waits for it.
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
    /// Has a thread do `task`, which a program waits for. If there is none to be had, this one does it.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        queue.tasks.push_back(Box::new(task));
        self.wake(queue);
    }

    /// Has a thread do `task` when there is one to spare.
    pub(crate) fn run_later(&self, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        queue.later.push_back(Box::new(task));
        if queue.at_later < LATER_MAX {
            self.wake(queue); // Otherwise one of those that are at work takes it.
        }
    }

    /// Has a thread do `task` after those that are in `line`.
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
            let _ = catch_unwind(AssertUnwindSafe(task)); // As the pool does.
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
                // One that panics has told nobody; the program hears so from the reply that is dropped.
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
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), 0, "it is served again");
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
