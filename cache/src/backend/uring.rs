//! Reads of local files by io_uring.
//!
//! One thread owns the ring: it submits the requests that [`Ring::start`] has queued, and reaps completions. It sleeps until a
//! read completes. One of the reads is always of the *bell*, an eventfd; whoever queues a request while the thread sleeps
//! writes to it. Requests that follow from completions are submitted by the same system call that waits for the next
//! completion. `docs/internals/cache.md` says why callers do not submit their requests themselves.
//!
//! How a request is read:
//!
//! * **A.** If all of it is in the page cache: from there.
//! * **B.** Otherwise with direct I/O. The end of a file, less than one unit of direct I/O, is read into a buffer of its own.
//! * **C.** If direct I/O is not possible: through the page cache.
//!
//! A short read continues where it stopped, possibly as another case. A read that the ring cannot do goes to a thread.
//!
//! Invariants: each slot in use has one read in the kernel. The slot owns its memory, descriptors and vector of pieces
//! until the completion has been reaped. The thread does not end before that, even if it panics.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::blocking::PIECES_MAX;
use super::direct::{Direct, is_cached};
use super::waiting::Waiting;
use super::{BackendError, Request};
use crate::buffer::Buffer;

/// Reads in the kernel at once. Further requests wait in the queue.
const READS_MAX: usize = 1024;

/// Bytes of a piece of memory, at most. The kernel counts them in 32 bits and reads at most 2 GiB.
const PIECE_MAX_BYTES: usize = 1 << 30;

/// Marks completions of the bell, in place of a slot's number.
const BELL: u64 = u64::MAX;

/// How long the thread waits when the kernel has no memory for a request.
const NO_MEMORY: Duration = Duration::from_millis(1);

/// A file that the ring reads.
pub(super) trait Uring: Send + Sync {
    /// Its descriptor.
    fn file(&self) -> &File;
    /// Its descriptor for direct I/O, if it has one.
    fn direct(&self) -> Option<&Direct>;
    /// Fails if the file is no longer the version that was opened. Called after a request has been read.
    fn check(&self) -> Result<(), BackendError>;
    /// Has a thread read what is left of the request.
    fn start_thread(self: Arc<Self>, request: Request);
}

#[derive(Default)]
struct Queue {
    waiting: Waiting<Arc<dyn Uring>>,
    /// The thread will not look into the queue before the bell rings or a read ends.
    is_asleep: bool,
    is_closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    bell: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring_bell(&self) {
        // It can fail only after some 10^19 writes that the thread has not read.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Stops new reads. Returns the requests that wait.
    fn close(&self) -> Waiting<Arc<dyn Uring>> {
        let mut queue = self.lock();
        queue.is_closed = true;
        std::mem::take(&mut queue.waiting)
    }
}

/// See the [module](self).
pub(super) struct Ring {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Ring {
    /// # Errors
    /// If this process may not use io_uring, or the kernel lacks what this module needs (Linux 6.1).
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { queue: Mutex::default(), bell });
        let (sender, receiver) = sync_channel(1);
        let of_thread = Arc::clone(&shared);
        let name = "foretell-ring".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // The sends cannot fail: the receiver waits for the answer.
            match Reads::new(of_thread) {
                Ok(mut reads) => {
                    let _ = sender.send(Ok(()));
                    // A panic drops the current request, which fails as lost. Reads in the kernel are in `reads`, which stays.
                    while catch_unwind(AssertUnwindSafe(|| reads.serve())).is_err() {}
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        })?;
        let made = receiver.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        made.map(|()| Ring { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Reads what is left of the request.
    pub(super) fn start(&self, file: Arc<dyn Uring>, request: Request) {
        let mut queue = self.shared.lock();
        if queue.is_closed {
            drop(queue);
            return drop(request);
        }
        queue.waiting.put(file, request);
        let is_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if is_asleep {
            self.shared.ring_bell();
        }
    }

    /// Ends the thread after the reads in the kernel. Requests that wait are dropped.
    pub(super) fn close(&self) {
        drop(self.shared.close());
        self.shared.ring_bell();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The caller may be this thread.
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// The next read of a request, as the kernel gets it.
struct Call {
    /// The memory; adjacent pieces are joined.
    pieces: Vec<libc::iovec>,
    /// B. The memory of the last piece, in place of the request's last bytes.
    tail: Option<Buffer>,
    is_direct: bool,
}

impl Call {
    fn new(file: &dyn Uring, request: &mut Request) -> Self {
        let at = request.offset_bytes() + request.filled() as u64;
        let mut left = request.length() - request.filled();
        let mut pieces: Vec<libc::iovec> = Vec::new();
        for memory in request.unfilled() {
            let (start, length) = (memory.as_mut_ptr(), memory.len().min(PIECE_MAX_BYTES));
            let is_full = pieces.len() == PIECES_MAX - 1;
            match pieces.last_mut() {
                Some(last)
                    if last.iov_base.addr() + last.iov_len == start.addr()
                        && last.iov_len + length <= PIECE_MAX_BYTES =>
                {
                    last.iov_len += length;
                }
                // One piece is left for the tail. The rest is read after this.
                _ if is_full => break,
                _ => pieces.push(libc::iovec { iov_base: start.cast(), iov_len: length }),
            }
            left -= length;
            if length < memory.len() {
                break;
            }
        }
        let length: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        let direct = file.direct().filter(|direct| {
            direct.takes(at, &pieces, left == 0) && !is_cached(file.file(), at, length as u64)
        });
        let tail = direct.and_then(|direct| direct.tail(&mut pieces));
        Call { pieces, tail, is_direct: direct.is_some() }
    }

    fn entry(&self, file: &dyn Uring, offset_bytes: u64) -> Entry {
        let direct = file.direct().filter(|_| self.is_direct);
        let descriptor = types::Fd(direct.map_or(file.file(), |direct| &direct.file).as_raw_fd());
        match self.pieces.as_slice() {
            [only] => {
                let length = only.iov_len as u32;
                opcode::Read::new(descriptor, only.iov_base.cast(), length)
                    .offset(offset_bytes)
                    .build()
            }
            several => opcode::Readv::new(descriptor, several.as_ptr(), several.len() as u32)
                .offset(offset_bytes)
                .build(),
        }
    }

    /// Notes that `count` bytes have been read.
    fn came(&self, request: &mut Request, count: usize) {
        let Some(tail) = &self.tail else { return request.advance(count) };
        let before = self.pieces.split_last().map_or(&[][..], |(_, before)| before);
        let before: usize = before.iter().map(|piece| piece.iov_len).sum();
        request.advance(count.min(before));
        // The tail may have more bytes than were asked for: `fill` takes only those.
        request.fill(&tail.bytes()[..count.saturating_sub(before)]);
    }
}

struct Read {
    file: Arc<dyn Uring>,
    request: Request,
    call: Call,
}

/// State of the ring's thread.
struct Reads {
    shared: Arc<Shared>,
    ring: IoUring,
    slots: Vec<Option<Read>>,
    free: Vec<usize>,
    is_bell_read: bool,
    /// The kernel writes the bell's counter here.
    bell: Vec<u64>,
    /// Completions that have been reaped and not handled yet: slot and result.
    ended: VecDeque<(u64, i32)>,
}

impl Reads {
    fn new(shared: Arc<Shared>) -> io::Result<Self> {
        // The kernel's completion work runs in this thread, and only while it waits for completions.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .dontfork()
            .build(READS_MAX as u32)?;
        Ok(Reads {
            shared,
            ring,
            slots: Vec::new(),
            free: Vec::new(),
            is_bell_read: false,
            bell: vec![0],
            ended: VecDeque::new(),
        })
    }

    fn in_kernel(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn serve(&mut self) {
        while self.begin_waiting() {
            self.wait();
            self.shared.lock().is_asleep = false;
            while let Some((slot, result)) = self.ended.pop_front() {
                if let Some(read) = self.take_ended(slot) {
                    self.go_on(read, result);
                }
            }
        }
    }

    /// Begins as many requests as may be in the kernel. Returns false if the ring is closed and nothing is left to do.
    fn begin_waiting(&mut self) -> bool {
        let mut begun = Vec::new();
        let is_closed = {
            let mut queue = self.shared.lock();
            while self.in_kernel() + begun.len() < READS_MAX
                && let Some(next) = queue.waiting.take()
            {
                begun.push(next);
            }
            queue.is_asleep = true;
            queue.is_closed
        };
        for (file, request) in begun {
            self.begin(file, request);
        }
        !is_closed || self.in_kernel() > 0
    }

    fn begin(&mut self, file: Arc<dyn Uring>, mut request: Request) {
        foretell_fault::point("foretell-ring");
        let offset_bytes = request.offset_bytes() + request.filled() as u64;
        let call = Call::new(&*file, &mut request);
        let entry = call.entry(&*file, offset_bytes);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Read { file, request, call });
        // SAFETY: its memory and descriptors are the slot's, which is emptied when the completion has been reaped, and not
        // before: by `take_ended`, or when `self` is dropped, which waits for it.
        unsafe { self.push(&entry.user_data(slot as u64)) };
    }

    /// # Safety
    /// What the entry points to must stay valid, and nothing else may use it, until its completion has been reaped.
    unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: as promised.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if self.ring.submit().is_err() {
                std::thread::sleep(NO_MEMORY);
            }
        }
    }

    /// Waits for a completion, which may be the bell's.
    fn wait(&mut self) {
        if !self.is_bell_read {
            let count = self.bell.as_mut_ptr().cast();
            let bell = types::Fd(self.shared.bell.as_raw_fd());
            let entry = opcode::Read::new(bell, count, size_of::<u64>() as u32).build();
            self.is_bell_read = true;
            // SAFETY: `self` owns the counter and the bell, and is not dropped before this read has ended.
            unsafe { self.push(&entry.user_data(BELL)) };
        }
        self.reap();
    }

    /// Submits what has been pushed, and waits for a completion.
    fn reap(&mut self) {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                std::thread::sleep(NO_MEMORY);
            }
            _ => {}
        }
        let ended = self.ring.completion().map(|ended| (ended.user_data(), ended.result()));
        self.ended.extend(ended);
    }

    /// Empties the slot of a completion that has been reaped; `None` for the bell's.
    fn take_ended(&mut self, slot: u64) -> Option<Read> {
        if slot == BELL {
            self.is_bell_read = false;
            return None;
        }
        let read = self.slots[slot as usize].take();
        self.free.push(slot as usize);
        read
    }

    fn go_on(&mut self, read: Read, result: i32) {
        let Read { file, mut request, call } = read;
        let Ok(count) = usize::try_from(result) else {
            return failed(file, request, &call, Errno::from_raw_os_error(-result));
        };
        call.came(&mut request, count);
        // No bytes: the file is shorter than it was.
        if count > 0 && request.filled() < request.length() {
            return self.begin(file, request);
        }
        let result = file.check();
        request.complete(result);
    }
}

fn failed(file: Arc<dyn Uring>, request: Request, call: &Call, error: Errno) {
    if call.is_direct
        && error == Errno::INVAL
        && let Some(direct) = file.direct()
    {
        direct.refuse();
    }
    match error {
        // An error of the device is final. Other errors may be the ring's own, so a thread tries again.
        Errno::IO => request.complete(Err(io::Error::from(error).into())),
        _ => file.start_thread(request),
    }
}

impl Drop for Reads {
    /// Waits for all reads in the kernel. There are none, unless a callback of a request has panicked.
    fn drop(&mut self) {
        drop(self.shared.close());
        self.shared.ring_bell();
        loop {
            while let Some((slot, _)) = self.ended.pop_front() {
                drop(self.take_ended(slot));
            }
            if self.in_kernel() == 0 && !self.is_bell_read {
                break;
            }
            self.reap();
        }
    }
}
