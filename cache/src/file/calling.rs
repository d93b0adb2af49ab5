//! Reads that call back instead of having their caller wait.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use foretell_policy::Block;

use super::{Disclosed, File, Lent, PARTS, Place};
use crate::backend::BackendError;
use crate::error::ReadError;
use crate::read::Then;

impl File {
    /// As [`read_at`](File::read_at), without waiting: `done` is called with the result, in any thread, and before this
    /// returns if all of it is in memory. `done` must not wait. Nothing is written to the memory after the call.
    pub fn read_then(
        self: &Arc<Self>,
        lent: Lent,
        offset_bytes: u64,
        done: impl FnOnce(Result<usize, ReadError>) + Send + 'static,
    ) {
        let left = self.size_bytes().saturating_sub(offset_bytes);
        let length = lent.length.min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return done(Ok(0));
        }
        let end = offset_bytes + length as u64;
        let goes_on = self.ahead.note(offset_bytes, end);
        let place = Place { start: lent.start, length, keeper: Some(lent.keeper) };
        let copied = self.read_present(&place, offset_bytes);
        let is_whole = copied == length;
        if is_whole {
            done(Ok(length));
        } else {
            let progress = Progress {
                at: offset_bytes + copied as u64,
                under_way: 0,
                is_advancing: false,
                error: None,
                done: Some(Box::new(done)),
            };
            let (file, progress) = (Arc::clone(self), Mutex::new(progress));
            let range = offset_bytes..end;
            let disclosed = self.disclosed(range.start + copied as u64..end);
            Arc::new(Calling { file, place, range, progress, _disclosed: disclosed }).advance();
        }
        match (is_whole, goes_on) {
            (true, true) if self.ahead.is_due(end) => self.read_on(offset_bytes, end),
            (true, _) => {}
            (false, true) => self.read_on(offset_bytes, end),
            (false, false) => self.stray(),
        }
    }

    /// As [`read_then`](File::read_then), into a buffer of the caller's, which `done` gets back.
    pub fn read_buffer_then(
        self: &Arc<Self>,
        mut buffer: Vec<u8>,
        offset_bytes: u64,
        done: impl FnOnce(Vec<u8>, Result<usize, ReadError>) + Send + 'static,
    ) {
        let (start, length) = (buffer.as_mut_ptr(), buffer.len());
        let buffer = Arc::new(HandedOver(UnsafeCell::new(buffer)));
        // SAFETY: the vector lives as long as the keeper, does not move its bytes, and nothing else uses it until the
        // read is done.
        let lent = unsafe { Lent::new(start, length, Arc::clone(&buffer) as Arc<dyn Send + Sync>) };
        self.read_then(lent, offset_bytes, move |result| {
            // SAFETY: the read is done, so nothing writes to the bytes, and only this looks at the vector.
            let buffer = std::mem::take(unsafe { &mut *buffer.0.get() });
            done(buffer, result);
        });
    }
}

/// The buffer of a read that calls back.
struct HandedOver(UnsafeCell<Vec<u8>>);

// SAFETY: one read writes to it, and its callback takes it when the read is done. Both may be in any thread.
unsafe impl Sync for HandedOver {}

type Done = Box<dyn FnOnce(Result<usize, ReadError>) + Send>;

struct Progress {
    /// Parts have been begun up to here.
    at: u64,
    under_way: usize,
    /// A thread is beginning parts.
    is_advancing: bool,
    /// The error of the first failed block in the file.
    error: Option<(Block, BackendError)>,
    done: Option<Done>,
}

/// A read that calls back instead of having its caller wait.
struct Calling {
    file: Arc<File>,
    /// The destination of the whole range.
    place: Place,
    range: Range<u64>,
    progress: Mutex<Progress>,
    _disclosed: Option<Disclosed>,
}

// SAFETY: only the parts use the place, each its own piece, and the keeper may be dropped in any thread.
unsafe impl Send for Calling {}
// SAFETY: as above.
unsafe impl Sync for Calling {}

impl Calling {
    /// Begins as many parts as may be in flight. Calls back when none is left.
    fn advance(self: &Arc<Self>) {
        let lock = || self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = lock();
        if std::mem::replace(&mut progress.is_advancing, true) {
            return; // The other thread will begin the next parts.
        }
        while progress.at < self.range.end && progress.under_way < PARTS && progress.error.is_none()
        {
            let at = progress.at;
            let to = self.file.part_end(at, self.range.end);
            progress.at = to;
            progress.under_way += 1;
            drop(progress);
            let calling = Arc::clone(self);
            let then: Then = Box::new(move |error| calling.ended(error));
            // SAFETY: this part of the place is lent to this read alone, and the keeper keeps the place.
            let read =
                unsafe { self.file.begin(&self.place, self.range.start, at..to, Some(then)) };
            read.settled(1); // The read has been begun.
            progress = lock();
        }
        progress.is_advancing = false;
        if progress.under_way > 0 {
            return;
        }
        let (done, error) = (progress.done.take(), progress.error.take());
        drop(progress);
        if let Some(done) = done {
            done(match error {
                Some(error) => Err(self.file.error(error)),
                None => Ok((self.range.end - self.range.start) as usize),
            });
        }
    }

    fn ended(self: &Arc<Self>, error: Option<(Block, BackendError)>) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.under_way -= 1;
        if let Some(error) = error
            && progress.error.as_ref().is_none_or(|before| error.0.index < before.0.index)
        {
            progress.error = Some(error);
        }
        drop(progress);
        self.advance();
    }
}
