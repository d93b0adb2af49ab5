//! Reads of local files by io_uring.
//!
//! One thread has the ring: it submits what [`Ring::start`] has put in a queue, and reaps. While it sleeps it waits for a
//! completion, of which one is that of a read of the *bell*, an eventfd that whoever comes with a request rings. What
//! completions start goes to the kernel with the call that waits for the next one. `docs/internals/cache.md` says why requests
//! are not submitted by whoever comes with them.
//!
//! How a request is read:
//!
//! * **A.** The page cache has all of it: from there.
//! * **B.** Past it, with the odd bytes at the end of a file by way of a buffer of their own.
//! * **C.** Neither can be: through the page cache.
//!
//! A read that stops early goes on where it stopped, and may be of another case then. What the ring cannot do is left to threads.
//!
//! Invariants: each slot in use has one read in the kernel, whose memory, descriptors and vector of pieces are the slot's
//! until its completion has been reaped. The thread does not end before that, whichever way it ends.

use std::collections::VecDeque;
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

use super::Request;
use super::blocking::PIECES_MAX;
use super::direct::is_cached;
use super::files::OpenFile;
use super::waiting::Waiting;
use crate::buffer::Buffer;

/// Reads in the kernel at once; more wait for these.
const READS_MAX: usize = 1024;

/// Bytes of a piece of memory: the kernel counts them in 32 bits, and reads 2 GiB at most.
const PIECE_MAX_BYTES: usize = 1 << 30;

/// In place of a slot.
const BELL: u64 = u64::MAX;

/// How long the thread waits when the kernel has no memory for a request.
const NO_MEMORY: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Queue {
    waiting: Waiting<Arc<OpenFile>>,
    /// The thread does not look here before the bell rings or a read ends.
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
        // It can fail only if it has been rung some 10^19 times and not been heard.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// No more is begun. What waits is given to who calls this.
    fn close(&self) -> Waiting<Arc<OpenFile>> {
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
    /// What keeps this process from using rings, or one as this module needs (Linux 6.1).
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { queue: Mutex::default(), bell });
        let (sender, receiver) = sync_channel(1);
        let of_thread = Arc::clone(&shared);
        let name = "foretell-ring".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            // The receiver waits for the answer.
            match Reads::new(of_thread) {
                Ok(mut reads) => {
                    let _ = sender.send(Ok(()));
                    // A panic costs the request that it is in, which is dropped and hears so. What the kernel works on is in
                    // `reads`, which stays.
                    while catch_unwind(AssertUnwindSafe(|| reads.serve())).is_err() {}
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        })?;
        let made = receiver.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
        made.map(|()| Ring { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Reads what is left of the request.
    pub(super) fn start(&self, file: Arc<OpenFile>, request: Request) {
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

    /// Ends the thread, when what it has begun has been read; the rest is dropped.
    pub(super) fn close(&self) {
        drop(self.shared.close());
        self.shared.ring_bell();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It may be who calls this.
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// What the kernel has been asked for, next, on behalf of a request.
struct Call {
    /// Memory as it lies, one piece where it lies together.
    pieces: Vec<libc::iovec>,
    /// B. The last of the pieces, in place of the last bytes of the request.
    tail: Option<Buffer>,
    is_direct: bool,
}

impl Call {
    fn new(file: &OpenFile, request: &mut Request) -> Self {
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
                // One is for the tail. The rest comes when this has been read.
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
            direct.takes(at, &pieces, left == 0) && !is_cached(&file.file, at, length as u64)
        });
        let tail = direct.and_then(|direct| direct.tail(&mut pieces));
        Call { pieces, tail, is_direct: direct.is_some() }
    }

    fn entry(&self, file: &OpenFile, offset_bytes: u64) -> Entry {
        let direct = file.direct().filter(|_| self.is_direct);
        let descriptor = types::Fd(direct.map_or(&file.file, |direct| &direct.file).as_raw_fd());
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

    /// So many bytes came.
    fn came(&self, request: &mut Request, count: usize) {
        let Some(tail) = &self.tail else { return request.advance(count) };
        let before = self.pieces.split_last().map_or(&[][..], |(_, before)| before);
        let before: usize = before.iter().map(|piece| piece.iov_len).sum();
        request.advance(count.min(before));
        // There may be more of them than were asked for.
        request.fill(&tail.bytes()[..count.saturating_sub(before)]);
    }
}

struct Read {
    file: Arc<OpenFile>,
    request: Request,
    call: Call,
}

/// The thread's own.
struct Reads {
    shared: Arc<Shared>,
    ring: IoUring,
    slots: Vec<Option<Read>>,
    free: Vec<usize>,
    is_bell_read: bool,
    /// Where the kernel writes how often it was rung.
    bell: Vec<u64>,
    /// Completions that have been reaped and not been looked at.
    ended: VecDeque<(u64, i32)>,
}

impl Reads {
    fn new(shared: Arc<Shared>) -> io::Result<Self> {
        // Completions are worked on by this thread alone, and when it waits for them.
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

    /// Begins what may be begun. Nothing is left to be done if it is false.
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

    fn begin(&mut self, file: Arc<OpenFile>, mut request: Request) {
        foretell_fault::point("foretell-ring");
        let offset_bytes = request.offset_bytes() + request.filled() as u64;
        let call = Call::new(&file, &mut request);
        let entry = call.entry(&file, offset_bytes);
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
    /// What the entry names is there, and nobody else's, until its completion has been reaped.
    unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: as promised.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if self.ring.submit().is_err() {
                std::thread::sleep(NO_MEMORY);
            }
        }
    }

    /// Waits for a completion, or the bell.
    fn wait(&mut self) {
        if !self.is_bell_read {
            let count = self.bell.as_mut_ptr().cast();
            let bell = types::Fd(self.shared.bell.as_raw_fd());
            let entry = opcode::Read::new(bell, count, size_of::<u64>() as u32).build();
            self.is_bell_read = true;
            // SAFETY: the count and the bell are `self`'s, which is not dropped before this has ended.
            unsafe { self.push(&entry.user_data(BELL)) };
        }
        self.reap();
    }

    /// Hands on what has been pushed, and waits for a completion.
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

    /// Empties the slot of a completion that has been reaped; `None` if that is the bell's.
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
        // Nothing comes where the file is shorter than it was.
        if count > 0 && request.filled() < request.length() {
            return self.begin(file, request);
        }
        let result = file.check();
        request.complete(result);
    }
}

fn failed(file: Arc<OpenFile>, request: Request, call: &Call, error: Errno) {
    if call.is_direct
        && error == Errno::INVAL
        && let Some(direct) = file.direct()
    {
        direct.refuse();
    }
    match error {
        // The device has answered.
        Errno::IO => request.complete(Err(io::Error::from(error).into())),
        _ => file.start_thread(request),
    }
}

impl Drop for Reads {
    /// Waits for all that the kernel has been asked for. Nothing is left, unless something called by a request's end has panicked.
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
