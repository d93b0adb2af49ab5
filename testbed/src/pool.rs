//! The reply threads, which do everything that touches the backing folder or answers the kernel.
//!
//! The threads that take in the kernel's requests and the one that keeps the disks' time may not wait for the backing
//! folder. They leave a [`Task`] here, and a few threads carry out tasks in order. These never wait for the modelled
//! disks: they hand a task that needs one to the scheduler, which sends the rest of it back here when its time has
//! come.
//!
//! The backing folder's own disk may take long to have what was written, so only some of the threads wait for it at once.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use fuser::{ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyStatfs};

use crate::error::ArrayError;
use crate::file_system::Service;
use crate::tree::{Found, Ino};

/// Something to do in the backing folder, and the reply to give.
pub(crate) enum Task {
    /// Find a name. May cost a read of the inode.
    Lookup { parent: Ino, name: OsString, reply: ReplyEntry },
    /// The inode has been read: give the answer.
    Entry { found: Found, reply: ReplyEntry },
    /// Attributes of a known inode.
    Attributes { ino: Ino, reply: ReplyAttr },
    /// The blocks have been read: give the bytes.
    Data { ino: Ino, offset: u64, len: usize, reply: ReplyData },
    /// List a folder from an entry on.
    List { ino: Ino, from: u64, reply: ReplyDirectory },
    /// The target of a symbolic link.
    Link { ino: Ino, reply: ReplyData },
    /// Change something, or give the answer to a change.
    Do(Box<dyn FnOnce(&Service) + Send>),
    /// Sizes of the backing file system.
    FileSystem { reply: ReplyStatfs },
}

/// Most threads that wait for the backing folder's disk, so that the others serve all else.
pub(crate) const SYNCING_MAX: usize = 4;

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// Tasks that wait for the backing folder's disk, and the number of those that do so now.
    syncs: VecDeque<Task>,
    syncing: usize,
    closed: bool,
}

impl Queue {
    /// The next task, and whether it waits for the backing folder's disk.
    fn next(&mut self) -> Option<(Task, bool)> {
        if let Some(task) = self.tasks.pop_front() {
            return Some((task, false));
        }
        if self.syncing == SYNCING_MAX {
            return None;
        }
        let task = self.syncs.pop_front()?;
        self.syncing += 1;
        Some((task, true))
    }
}

/// Where tasks are left; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Sender(Arc<(Mutex<Queue>, Condvar)>);

impl Sender {
    /// Leaves a task. Does nothing once the pool is closed, as the kernel then no longer listens.
    pub(crate) fn send(&self, task: Task) {
        self.leave(|queue| queue.tasks.push_back(task));
    }

    /// Leaves a task that waits for the backing folder's disk.
    pub(crate) fn send_sync(&self, task: Task) {
        self.leave(|queue| queue.syncs.push_back(task));
    }

    fn leave(&self, push: impl FnOnce(&mut Queue)) {
        let (queue, more) = &*self.0;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.closed {
            push(&mut queue);
            more.notify_one();
        }
    }

    /// One that waited for the backing folder's disk has ended.
    fn synced(&self) {
        let (queue, more) = &*self.0;
        queue.lock().unwrap_or_else(PoisonError::into_inner).syncing -= 1;
        more.notify_one();
    }

    /// Lets the threads end when all tasks are done.
    pub(crate) fn close(&self) {
        let (queue, more) = &*self.0;
        queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        more.notify_all();
    }

    fn receive(&self) -> Option<(Task, bool)> {
        let (queue, more) = &*self.0;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(task) = queue.next() {
                return Some(task);
            }
            // Those that sync take what is left of their kind.
            if queue.closed {
                return None;
            }
            queue = more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts `threads` threads that call `carry_out` for each task until the pool is closed.
pub(crate) fn start<F>(
    threads: usize,
    sender: &Sender,
    carry_out: F,
) -> Result<Vec<JoinHandle<()>>, ArrayError>
where
    F: Fn(Task) + Clone + Send + 'static,
{
    let start_one = |index| {
        let (sender, carry_out) = (sender.clone(), carry_out.clone());
        std::thread::Builder::new().name(format!("array-reply-{index}")).spawn(move || {
            while let Some((task, is_sync)) = sender.receive() {
                // If it panics, its reply is dropped, which gives the program EIO.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    foretell_fault::point("array-reply");
                    carry_out(task);
                }));
                if is_sync {
                    sender.synced();
                }
            }
        })
    };
    let started: Result<Vec<_>, _> = (0..threads).map(start_one).collect();
    started.map_err(|source| {
        sender.close();
        ArrayError::Thread { source }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    /// Its end waits until it may end: the tasks of this test are dropped, not done.
    struct Slow(Arc<Mutex<Receiver<()>>>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }

    #[test]
    fn many_that_wait_for_the_disk_leave_threads_for_all_else() {
        let sender = Sender::default();
        let threads = start(SYNCING_MAX + 1, &sender, drop::<Task>).expect("threads");
        let (end, ends) = channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        for _ in 0..3 * SYNCING_MAX {
            let slow = Slow(Arc::clone(&ends));
            sender.send_sync(Task::Do(Box::new(move |_| drop(slow))));
        }
        let (tell, told) = channel();
        for _ in 0..3 {
            let tell = Told(tell.clone());
            sender.send(Task::Do(Box::new(move |_| drop(tell))));
            let told = told.recv_timeout(Duration::from_secs(60));
            told.expect("it has its turn while the others wait");
        }
        drop(end);
        sender.close();
        for thread in threads {
            thread.join().expect("it ends");
        }
        let queue = sender.0.0.lock().expect("no panic");
        assert_eq!((queue.syncs.len(), queue.syncing), (0, 0));
    }

    /// Tells when it ends.
    struct Told(std::sync::mpsc::Sender<()>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
}
