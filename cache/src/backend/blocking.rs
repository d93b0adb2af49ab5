//! Reads of local files by threads that wait, one for each request under way.
//!
//! Threads are made when there is a request and none without work.

use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::files::{LocalFile, OpenFile};
use super::waiting::Waiting;
use super::{BackendError, Request};

/// Pieces of memory of one `preadv`: the system's limit.
pub(super) const PIECES_MAX: usize = 1024;

/// What a request is of.
enum Of {
    Open(Arc<OpenFile>),
    Closed(Arc<LocalFile>),
}

#[derive(Default)]
struct Queue {
    waiting: Waiting<Of>,
    threads: Vec<JoinHandle<()>>,
    /// Threads without work; those that were woken for what waits are among them until they have it.
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
    /// At most so many, none so far.
    pub(super) fn new(most: usize) -> Self {
        Threads { shared: Arc::default(), most }
    }

    /// Reads what is left of the request.
    pub(super) fn start(&self, file: Arc<OpenFile>, request: Request) {
        self.put(Of::Open(file), request);
    }

    /// Opens the file again, and reads as its way is.
    pub(super) fn open_and_start(&self, file: Arc<LocalFile>, request: Request) {
        self.put(Of::Closed(file), request);
    }

    fn put(&self, file: Of, request: Request) {
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
                Err(_) => {} // It waits for one of the others.
            }
        }
        queue.waiting.put(file, request);
        drop(queue);
        self.shared.is_more.notify_one();
    }

    /// Ends the threads, when they have read what they have begun; the rest is dropped.
    pub(super) fn close(&self) {
        let (threads, left) = {
            let mut queue = self.shared.lock();
            queue.is_closed = true;
            (std::mem::take(&mut queue.threads), std::mem::take(&mut queue.waiting))
        };
        self.shared.is_more.notify_all();
        for thread in threads {
            // One of them may be who calls this.
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
            // One that panics costs its request, which is dropped on the way and hears so.
            let _ = catch_unwind(AssertUnwindSafe(|| carry_out(file, request)));
        }
    }
}

fn carry_out(file: Of, mut request: Request) {
    foretell_fault::point("foretell-read");
    match file {
        Of::Open(file) => {
            let result = read(&file, &mut request);
            request.complete(result);
        }
        Of::Closed(file) => match file.reopened() {
            Ok(file) => file.start(request),
            Err(error) => request.complete(Err(error)),
        },
    }
}

fn read(file: &OpenFile, request: &mut Request) -> Result<(), BackendError> {
    while request.filled() < request.length() {
        let at = request.offset_bytes() + request.filled() as u64;
        let mut left = request.unfilled();
        let read = match left.as_mut_slice() {
            [only] => file.file.read_at(only, at),
            several => {
                let pieces = several.iter_mut().take(PIECES_MAX);
                let mut pieces: Vec<IoSliceMut> =
                    pieces.map(|piece| IoSliceMut::new(piece)).collect();
                rustix::io::preadv(&file.file, &mut pieces, at).map_err(io::Error::from)
            }
        };
        match read {
            Ok(0) => break, // Shorter than it was.
            Ok(count) => request.advance(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    file.check()
}
