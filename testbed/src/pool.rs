//! The reply threads, which do everything that touches the backing folder or answers the kernel.
//!
//! The threads that take in the kernel's requests and the one that keeps the disks' time may not wait for the backing
//! folder. They leave a [`Task`] here, and a few threads carry out tasks in order. These never wait for the modelled
//! disks: they hand a task that needs one to the scheduler, which sends the rest of it back here when its time has
//! come.

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

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    closed: bool,
}

/// Where tasks are left; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Sender(Arc<(Mutex<Queue>, Condvar)>);

impl Sender {
    /// Leaves a task. Does nothing once the pool is closed, as the kernel then no longer listens.
    pub(crate) fn send(&self, task: Task) {
        let (queue, more) = &*self.0;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !queue.closed {
            queue.tasks.push_back(task);
            more.notify_one();
        }
    }

    /// Lets the threads end when all tasks are done.
    pub(crate) fn close(&self) {
        let (queue, more) = &*self.0;
        queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        more.notify_all();
    }

    fn receive(&self) -> Option<Task> {
        let (queue, more) = &*self.0;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
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
            while let Some(task) = sender.receive() {
                // If it panics, its reply is dropped, which gives the program EIO.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    foretell_fault::point("array-reply");
                    carry_out(task);
                }));
            }
        })
    };
    let started: Result<Vec<_>, _> = (0..threads).map(start_one).collect();
    started.map_err(|source| {
        sender.close();
        ArrayError::Thread { source }
    })
}
