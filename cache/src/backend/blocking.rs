//! Reads of local files by blocking threads, one for each request in flight.
//!
//! A thread is started when a request comes and no thread is idle.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::waiting::Waiting;
use super::{BackendError, Request};

/// Pieces of memory in one `preadv`, at most: the system's limit (`IOV_MAX`).
pub(super) const PIECES_MAX: usize = 1024;

/// A file that threads read.
pub(super) trait Blocking: Send + Sync {
    /// Serves the request, in a thread that may wait for it.
    fn serve(self: Arc<Self>, request: Request);
}

#[derive(Default)]
struct Queue {
    waiting: Waiting<Arc<dyn Blocking>>,
    threads: Vec<JoinHandle<()>>,
    /// Idle threads. A thread that was woken for a request counts as idle until it has taken the request.
    idle: usize,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    is_more: Condvar,
}

/// See the [module](self).
pub(super) struct Threads {
    shared: Arc<Shared>,
    most: usize,
}

impl Threads {
    /// A pool of at most `most` threads, without any yet.
    pub(super) fn new(most: usize) -> Self {
        Threads { shared: Arc::default(), most }
    }

    /// Has one of the threads [serve](Blocking::serve) the request.
    pub(super) fn start(&self, file: Arc<dyn Blocking>, request: Request) {
        let mut queue = self.shared.lock();
        if queue.is_closed {
            drop(queue);
            return drop(request);
        }
        if queue.idle <= queue.waiting.len() && queue.threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            let name = "foretell-read".to_owned();
            match std::thread::Builder::new().name(name).spawn(move || shared.serve()) {
                Ok(thread) => queue.threads.push(thread),
                Err(error) if queue.threads.is_empty() => {
                    drop(queue);
                    return request.complete(Err(error.into()));
                }
                Err(_) => {} // The request waits for one of the other threads.
            }
        }
        queue.waiting.put(file, request);
        drop(queue);
        self.shared.is_more.notify_one();
    }

    /// Ends the threads after their current requests. Requests that wait are dropped.
    pub(super) fn close(&self) {
        let (threads, left) = {
            let mut queue = self.shared.lock();
            queue.is_closed = true;
            (std::mem::take(&mut queue.threads), std::mem::take(&mut queue.waiting))
        };
        self.shared.is_more.notify_all();
        for thread in threads {
            // The caller may be one of them.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        drop(left);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let mut queue = self.lock();
            let (file, request) = loop {
                if queue.is_closed {
                    return;
                }
                if let Some(next) = queue.waiting.take() {
                    break next;
                }
                queue.idle += 1;
                queue = self.is_more.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            };
            drop(queue);
            // A panic drops its request, which fails as lost. The thread goes on.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                foretell_fault::point("foretell-read");
                file.serve(request);
            }));
        }
    }
}

/// Reads what is left of the request, up to the end of the file.
pub(super) fn read(file: &File, request: &mut Request) -> Result<(), BackendError> {
    while request.filled() < request.length() {
        let at = request.offset_bytes() + request.filled() as u64;
        let mut left = request.unfilled();
        let read = match left.as_mut_slice() {
            [only] => file.read_at(only, at),
            several => {
                let pieces = several.iter_mut().take(PIECES_MAX);
                let mut pieces: Vec<IoSliceMut> =
                    pieces.map(|piece| IoSliceMut::new(piece)).collect();
                rustix::io::preadv(file, &mut pieces, at).map_err(io::Error::from)
            }
        };
        match read {
            Ok(0) => break, // The file is shorter than it was.
            Ok(count) => request.advance(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
