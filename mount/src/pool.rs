//! Threads that wait for the store: lookups and listings, so that who takes in the kernel's requests need not.
//!
//! There are as many as there is work for, up to a limit. They are not waited for when the mount goes: a
//! store that does not answer would hold it up.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads at most. Each waits for an answer of the store: so many lookups go on at once.
const THREADS_MAX: usize = 64;

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
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

impl Pool {
    /// Has a thread do `task`. If there is none to be had, this one does it.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.lock();
        queue.tasks.push_back(Box::new(task));
        if queue.idle >= queue.tasks.len() || queue.threads == THREADS_MAX {
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

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.tasks);
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
        let mut queue = self.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                drop(queue);
                task();
                queue = self.lock();
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
