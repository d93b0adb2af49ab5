//! An open file, and how it is read.
//!
//! Blocks that are in frames are copied at once, without the engine (case A of the [engine](crate::engine)). The engine
//! is asked for the rest, a part at a time. The caller waits for it ([`File::read_at`], [`File::read_lent`]) or is
//! called back when all of it has arrived ([`File::read_then`]).

mod calling;
mod lent;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foretell_policy::{Block, Extent, FileId, Order, ReaderId, Reason, Segment, StreamId};

use crate::backend::{Backend, BackendError};
use crate::error::ReadError;
use crate::read::{Keeper, Read, Then};
use crate::read_ahead::ReadAhead;
use crate::records::Record;
use crate::shared::{Identity, Shared};
use crate::slab::Frame;

pub use lent::{Lent, Partly};

/// Bytes of a part of a read. The engine is asked for a part at a time, so that its lock is never held for long.
const PART_BYTES: u64 = 1 << 20;
/// Parts of a read in flight, at most: enough that a long read keeps a device busy.
const PARTS: usize = 8;

/// Bytes to disclose ahead of a handle that reads in order, at most.
const READ_ON_MAX_BYTES: u64 = 64 << 20;
/// Bytes to disclose ahead of such a handle are also at most the cache's budget divided by this.
const READ_ON_DIVISOR: u64 = 4;

/// Blocks whose table entries and headers are loaded into the processor's caches at a time.
const LOADED_BLOCKS: u64 = 32;

/// Bytes of a file in memory, by the reason to keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedFor {
    /// Bytes of blocks that a hint covers, that sequential read-ahead predicts, or that are being read.
    pub expected_bytes: u64,
    /// Bytes of blocks that were read without a hint or a prediction.
    pub recent_bytes: u64,
    /// Bytes of blocks that were read as expected, and whose buffers have not been needed since; and of blocks that another
    /// estimator keeps after a read.
    pub consumed_bytes: u64,
}

/// One version of a file, open.
pub struct File {
    shared: Arc<Shared>,
    /// Held so that the back end outlives its open files.
    backend: Arc<dyn Backend>,
    identity: Identity,
    pub(crate) id: FileId,
    /// The engine keeps this up to date.
    size_bytes: Arc<AtomicU64>,
    reader: ReaderId,
    /// Whether reads come from the kernel, which reads ahead itself.
    is_kernels: bool,
    ahead: ReadAhead,
    /// A read by this handle or [another](File::another) has found another version.
    is_stale: Arc<AtomicBool>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.identity.path).finish_non_exhaustive()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.shared.close_file(self.identity.clone(), self.id, &self.ahead);
    }
}

/// The destination of a read. Without a keeper it is borrowed until the read is done, with one it is lent for longer.
struct Place {
    start: *mut u8,
    length: usize,
    keeper: Option<Keeper>,
}

/// Parts in flight. Dropping it waits for the parts, since they write to the program's memory. If the read was given up,
/// dropping it does not wait: a keeper keeps the memory.
struct UnderWay {
    reads: VecDeque<Arc<Read>>,
    is_given_up: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_given_up {
            self.reads.iter().for_each(|read| read.wait());
        }
    }
}

impl File {
    pub(crate) fn new(
        shared: Arc<Shared>,
        backend: Arc<dyn Backend>,
        (identity, id, size_bytes): (Identity, FileId, Arc<AtomicU64>),
        (reader, is_kernels): (ReaderId, bool),
    ) -> Self {
        let (ahead, is_stale) = (ReadAhead::default(), Arc::default());
        File { shared, backend, identity, id, size_bytes, reader, is_kernels, ahead, is_stale }
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The version that was opened, as the back end names it.
    pub fn version(&self) -> &[u8] {
        &self.identity.version
    }

    /// Its size in bytes when it was opened, or as told by [`changed`](File::changed) since.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::SeqCst)
    }

    /// Tells the cache that these bytes of the file, or its size, have changed.
    ///
    /// Reads that begin after this has returned find the new bytes, by any handle [on this
    /// file](crate::Session::open_again). Reads in flight find the old or the new bytes; those that
    /// reach beyond the new end find the old bytes or fail as [`Changed`](BackendError::Changed).
    ///
    /// Only for objects that may [change while they are open](crate::backend::local::LocalBackend::open_changing). The
    /// caller makes the changes or comes to know of them. The file's version has no meaning afterwards.
    pub fn changed(&self, bytes: Range<u64>, size_bytes: u64) {
        let change = (bytes, size_bytes);
        self.shared.with_engine(|state, now, todo| {
            state.engine.changed(now, self.id, change, todo);
        });
    }

    /// Another handle on the same file, for the reads of a reader, and whether these are the kernel's.
    pub(crate) fn again(&self, reader: (ReaderId, bool)) -> File {
        let is_held = self.shared.with_engine(|state, _, _| state.engine.hold(self.id));
        debug_assert!(is_held, "this holds it");
        let (shared, backend) = (Arc::clone(&self.shared), Arc::clone(&self.backend));
        let size_bytes = Arc::clone(&self.size_bytes);
        File::new(shared, backend, (self.identity.clone(), self.id, size_bytes), reader)
    }

    /// Another handle on this version, for the same program's reads, with a read-ahead of its own.
    pub fn another(&self) -> File {
        let mut file = self.again((self.reader, self.is_kernels));
        file.is_stale = Arc::clone(&self.is_stale);
        file
    }

    /// Whether a read has found that the file is no longer this version; by this handle, or another one that
    /// [`another`](File::another) has made of it.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Reads up to `buffer.len()` bytes at `offset_bytes`, and waits for them. Returns their number, which is smaller
    /// only at the end of the file.
    ///
    /// # Errors
    /// The back end's error for the first block that could not be read.
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, ReadError> {
        let place = Place { start: buffer.as_mut_ptr(), length: buffer.len(), keeper: None };
        // SAFETY: the buffer is borrowed until this returns, which it does when all is done: nothing is given up.
        let done = unsafe { self.read_to(place, offset_bytes, &mut || false) }?;
        Ok(done.expect("it was not given up"))
    }

    /// As [`read_at`](File::read_at), but can be given up: `is_given_up` is called some twenty times a second while the
    /// read waits. Returns `None` if the read was given up; bytes that arrive later are still written to the memory.
    /// Otherwise nothing is written after this has returned.
    ///
    /// # Errors
    /// As `read_at`.
    pub fn read_lent(
        &self,
        lent: Lent,
        offset_bytes: u64,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        let place = Place { start: lent.start, length: lent.length, keeper: Some(lent.keeper) };
        // SAFETY: the maker of `lent` promised it.
        unsafe { self.read_to(place, offset_bytes, is_given_up) }
    }

    /// Copies what is in memory, up to the first missing block. Never waits. Returns the number of bytes if nothing is missing.
    ///
    /// # Errors
    /// If a block is missing: how far the read has come. [`read_rest`](File::read_rest) continues from there.
    ///
    /// # Safety
    /// `start` must be valid for writes of `length` bytes until this returns, and nothing may make a reference to them.
    #[inline]
    pub unsafe fn read_now(
        &self,
        start: *mut u8,
        length: usize,
        offset_bytes: u64,
    ) -> Result<usize, Partly> {
        let left = self.size_bytes().saturating_sub(offset_bytes);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok(0);
        }
        let end = offset_bytes + length as u64;
        let goes_on = self.ahead.note(offset_bytes, end);
        let copied = self.read_present(&Place { start, length, keeper: None }, offset_bytes);
        if copied < length {
            return Err(Partly { offset_bytes, length, copied, goes_on });
        }
        if goes_on && self.ahead.is_due(end) {
            self.read_on(offset_bytes, end);
        }
        Ok(length)
    }

    /// Continues a read into the same memory, as [`read_lent`](File::read_lent) would.
    ///
    /// # Errors
    /// As `read_at`.
    ///
    /// # Panics
    /// If the memory is shorter than the read's.
    pub fn read_rest(
        &self,
        lent: Lent,
        partly: Partly,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        let place = Place { start: lent.start, length: lent.length, keeper: Some(lent.keeper) };
        // SAFETY: the maker of `lent` promised it.
        unsafe { self.read_rest_to(place, partly, is_given_up) }
    }

    /// Ranges of the file that are in memory now, in bytes, ascending.
    pub fn cached(&self) -> Vec<Range<u64>> {
        let (slab, block_bytes) = (&self.shared.slab, self.shared.block_bytes as u64);
        let mut found: Vec<Range<u64>> = Vec::new();
        let size_bytes = self.size_bytes();
        for index in slab.blocks_of(self.id, size_bytes.div_ceil(block_bytes)) {
            let start = index * block_bytes;
            let end = (start + block_bytes).min(size_bytes);
            match found.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end = end,
                None => found.push(start..end),
            }
        }
        found
    }

    /// Bytes of the file that are in memory now, by the reason to keep them.
    pub fn cached_for(&self) -> CachedFor {
        let block_bytes = self.shared.block_bytes as u64;
        let size_bytes = self.size_bytes();
        let blocks = self.shared.slab.blocks_of(self.id, size_bytes.div_ceil(block_bytes));
        let mut found = CachedFor::default();
        self.shared.with_engine(|state, _, _| {
            for index in blocks {
                let bytes = block_bytes.min(size_bytes.saturating_sub(index * block_bytes));
                match state.engine.reason(Block { file: self.id, index }) {
                    Some(Reason::Expected) => found.expected_bytes += bytes,
                    Some(Reason::Recent) => found.recent_bytes += bytes,
                    Some(Reason::Consumed | Reason::KeptBy(_)) => found.consumed_bytes += bytes,
                    None => {} // Evicted meanwhile.
                }
            }
        });
        found
    }

    fn error(&self, (block, cause): (Block, BackendError)) -> ReadError {
        if cause == BackendError::Changed {
            self.is_stale.store(true, Ordering::Relaxed);
        }
        let path = Arc::clone(&self.identity.path);
        ReadError { path, offset_bytes: block.index * self.shared.block_bytes as u64, cause }
    }

    /// Discloses a read that is longer than the parts that may be in flight, so that the policy fetches as much at once as the
    /// device takes.
    fn disclosed(&self, range: Range<u64>) -> Option<Disclosed> {
        if range.end - range.start <= PARTS as u64 * PART_BYTES {
            return None;
        }
        let segment = Segment { offset_bytes: range.start, length_bytes: range.end - range.start };
        let stream = self.shared.with_engine(|state, now, todo| {
            let stream = state.engine.open_guess(now, self.reader);
            let extent = Extent::Segments([segment].into());
            state.engine.hint(now, stream, (self.id, extent, Order::Given), todo);
            stream
        });
        Some(Disclosed { shared: Arc::clone(&self.shared), stream })
    }

    /// End of the part that begins at `at`, in a read that ends at `end`.
    fn part_end(&self, at: u64, end: u64) -> u64 {
        let part_bytes = PART_BYTES.max(self.shared.block_bytes as u64);
        end.min((at / part_bytes + 1) * part_bytes)
    }

    /// Asks the engine for a part of a read.
    ///
    /// # Safety
    /// The first byte of the place is for the byte at `offset_bytes`. The place is lent to this part until the part is
    /// done, or its keeper keeps it.
    unsafe fn begin(
        &self,
        place: &Place,
        offset_bytes: u64,
        part: Range<u64>,
        then: Option<Then>,
    ) -> Arc<Read> {
        let shared = &self.shared;
        // SAFETY: the part lies within the place; the rest is the caller's promise.
        let read = Arc::new(unsafe {
            let start = place.start.add((part.start - offset_bytes) as usize);
            let range = (part.start, (part.end - part.start) as usize);
            let place = (start, place.keeper.clone());
            Read::new(place, range, (self.id, self.reader), shared.now(), then)
        });
        let first = part.start / shared.block_bytes as u64;
        shared.with_engine(|state, now, todo| state.engine.read(now, &read, first, todo));
        read
    }

    /// # Safety
    /// The place is valid for writes, and nothing else uses it, until this returns. If the read is given up, that holds
    /// as long as the keeper lives. Without a keeper the read must not be given up.
    unsafe fn read_to(
        &self,
        place: Place,
        offset_bytes: u64,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        // SAFETY: the caller's promise.
        match unsafe { self.read_now(place.start, place.length, offset_bytes) } {
            Ok(count) => Ok(Some(count)),
            // SAFETY: as above.
            Err(partly) => unsafe { self.read_rest_to(place, partly, is_given_up) },
        }
    }

    /// # Safety
    /// As `read_to`.
    unsafe fn read_rest_to(
        &self,
        mut place: Place,
        Partly { offset_bytes, length, copied, goes_on }: Partly,
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<Option<usize>, ReadError> {
        assert!(copied <= length && length <= place.length, "another read");
        // SAFETY: fewer bytes than there are.
        place.start = unsafe { place.start.add(copied) };
        place.length = length - copied;
        let before_waiting = || match goes_on {
            true => self.read_on(offset_bytes, offset_bytes + length as u64),
            false => self.stray(),
        };
        let at = offset_bytes + copied as u64;
        let is_done = self.read_missing(&place, at, before_waiting, is_given_up)?;
        Ok(is_done.then_some(length))
    }

    /// Discloses what comes next after a read in order.
    fn read_on(&self, start: u64, end: u64) {
        let shared = &self.shared;
        let mut plan = self.ahead.plan();
        let budget_bytes = u64::from(shared.slab.frames()) * shared.block_bytes as u64;
        let most = READ_ON_MAX_BYTES.min(budget_bytes / READ_ON_DIVISOR);
        let bounds = (self.size_bytes(), most);
        let next = Block { file: self.id, index: end.div_ceil(shared.block_bytes as u64) };
        shared.with_engine(|state, now, todo| {
            if state.engine.is_hinted(self.reader, next, plan.stream) {
                if let Some(stream) = self.ahead.end(&mut plan) {
                    state.engine.close_stream(now, stream, todo);
                }
                return;
            }
            if self.is_kernels && state.engine.is_beyond_hints(self.reader, next, plan.stream) {
                return;
            }
            let guess = state.engine.guess(self.id);
            let Some(segment) = self.ahead.go_on(&mut plan, (start, end), bounds, guess) else {
                return;
            };
            let stream =
                *plan.stream.get_or_insert_with(|| state.engine.open_guess(now, self.reader));
            let extent = Extent::Segments([segment].into());
            state.engine.hint(now, stream, (self.id, extent, Order::Given), todo);
        });
    }

    /// Notes a read out of order that had to wait. After some, the handle's read-ahead ends.
    fn stray(&self) {
        if let Some(stream) = self.ahead.stray() {
            let shared = &self.shared;
            shared.with_engine(|state, now, todo| state.engine.close_stream(now, stream, todo));
        }
    }

    /// Notes that another process has copied this range out of frames by itself. After a batch of such notes, the caller calls
    /// [`Shared::look`]. Returns the number of blocks. A range of more than `most` blocks is not noted.
    pub(crate) fn told(&self, offset_bytes: u64, length: usize, most: u64) -> u64 {
        let shared = &self.shared;
        let block_bytes = shared.block_bytes as u64;
        let left = self.size_bytes().saturating_sub(offset_bytes);
        let length = (length as u64).min(left);
        if length == 0 || length.div_ceil(block_bytes) + 1 > most {
            return 0;
        }
        let end = offset_bytes + length;
        let (first, last) = (offset_bytes / block_bytes, (end - 1) / block_bytes);
        let goes_on = self.ahead.note(offset_bytes, end);
        for index in first..=last {
            // It is read for the first time now, perhaps.
            if let Some(pinned) = shared.slab.pin(Block { file: self.id, index }) {
                shared.slab.unpin(pinned.frame);
            }
        }
        let (reader, blocks) = (self.reader, last + 1 - first);
        shared.records.note(Record {
            reader,
            first: Block { file: self.id, index: first },
            blocks,
        });
        if goes_on && self.ahead.is_due(end) {
            self.read_on(offset_bytes, end);
        }
        blocks
    }

    /// A. Copies what is in frames, up to the first block that is not. Returns the number of bytes.
    fn read_present(&self, place: &Place, offset_bytes: u64) -> usize {
        let shared = &self.shared;
        let block_bytes = shared.block_bytes as u64;
        let (mut copied, mut is_news) = (0, false);
        let first = offset_bytes / block_bytes;
        let last = (offset_bytes + place.length as u64 - 1) / block_bytes;
        let mut index = first;
        // Frames that are pinned and not copied yet, adjacent both in memory and in the file.
        let mut run = 0..0;
        let mut copy = |run: std::ops::Range<Frame>| {
            if run.is_empty() {
                return false;
            }
            let from = ((offset_bytes + copied as u64) % block_bytes) as usize;
            let length = (place.length - copied).min(run.len() * shared.block_bytes - from);
            // SAFETY: this thread has pinned all frames of the run, and the place has this many bytes left.
            unsafe {
                shared.slab.copy_out(run.clone(), from, place.start.add(copied), length);
            }
            copied += length;
            shared.slab.unpin_run(run)
        };
        while index <= last {
            if (index - first).is_multiple_of(LOADED_BLOCKS) {
                let (count, block) =
                    (LOADED_BLOCKS.min(last + 1 - index), Block { file: self.id, index });
                let from = if index == first { offset_bytes % block_bytes } else { 0 };
                shared.slab.load(block, count, from as usize);
            }
            let Some(pinned) = shared.slab.pin(Block { file: self.id, index }) else { break };
            is_news |= pinned.is_first;
            if pinned.frame == run.end && !run.is_empty() {
                run.end += 1;
            } else {
                is_news |= copy(std::mem::replace(&mut run, pinned.frame..pinned.frame + 1));
            }
            index += 1;
        }
        is_news |= copy(run);
        if index > first {
            let first_block = Block { file: self.id, index: first };
            let (reader, blocks) = (self.reader, index - first);
            is_news |= shared.records.note(Record { reader, first: first_block, blocks });
        }
        if is_news && copied == place.length {
            shared.look();
        }
        copied
    }

    /// Cases B to E: reads from the engine, part by part.
    ///
    /// `before_waiting` is called once, after as many parts as may be in flight have been begun. Returns whether all of
    /// it was read, and not given up.
    fn read_missing(
        &self,
        place: &Place,
        offset_bytes: u64,
        before_waiting: impl FnOnce(),
        is_given_up: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ReadError> {
        let end = offset_bytes + place.length as u64;
        let _disclosed = self.disclosed(offset_bytes..end);
        let mut under_way = UnderWay { reads: VecDeque::new(), is_given_up: false };
        let mut at = offset_bytes;
        let mut before_waiting = Some(before_waiting);
        while at < end || !under_way.reads.is_empty() {
            if at < end && under_way.reads.len() < PARTS {
                let to = self.part_end(at, end);
                // SAFETY: this part of the place is lent to this read alone. `under_way` waits for the read before the
                // loan of the place ends, on every path; if the read is given up, its keeper keeps the place.
                let read = unsafe { self.begin(place, offset_bytes, at..to, None) };
                under_way.reads.push_back(Arc::clone(&read));
                read.settled(1); // The read has been begun.
                at = to;
                continue;
            }
            if let Some(act) = before_waiting.take() {
                act();
            }
            let Some(read) = under_way.reads.front() else { break };
            if place.keeper.is_none() {
                read.wait();
            } else if !read.wait_unless(is_given_up) {
                under_way.is_given_up = true;
                return Ok(false);
            }
            if let Some(error) = read.take_error() {
                let mut reads = under_way.reads.iter();
                if place.keeper.is_some() && !reads.all(|read| read.wait_unless(is_given_up)) {
                    under_way.is_given_up = true;
                    return Ok(false);
                }
                return Err(self.error(error));
            }
            under_way.reads.pop_front();
        }
        Ok(true)
    }
}

/// The stream of a read that has disclosed itself; closed when the read ends.
struct Disclosed {
    shared: Arc<Shared>,
    stream: StreamId,
}

impl Drop for Disclosed {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.with_engine(|state, now, todo| state.engine.close_stream(now, self.stream, todo));
    }
}
