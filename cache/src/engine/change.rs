//! Files whose bytes change while they are open: case F of the [engine](super).
//!
//! The policy is not told: to the policy a block that has changed stays in memory or in flight.
//!
//! * A block in a frame loses the frame and becomes *absent*. The next read fetches it into a new frame (a *refetch*); the
//!   policy still has a buffer for it. If no frame is free at once, because readers still copy out of evicted blocks, the block
//!   is read past the cache, directly into the program's memory. So no read waits for a frame for which the policy has not
//!   evicted a block.
//! * A block in flight is *outdated* if its request has started: the bytes may be old. These bytes go to the reads that wait
//!   for them already, which began before the change was over. They are not published in a frame. Later reads go past the
//!   cache. When the request ends, the block is absent.
//! * A request that waits for frames has read nothing yet. It is cut to the new size, or fails if it reaches beyond.
//!
//! An evicted block is not absent any more. A refetch of it goes to reads that wait, and is not published.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foretell_policy::{Block, FileId, Nanos};

use super::Engine;
use super::requests::{By, Fate, Flight, Pending, RequestId, Todo, Wanted};
use crate::backend::BackendError;

impl Engine {
    /// F: bytes of `file`, or its size, have changed. Reads that begin from now on see the new bytes.
    pub(crate) fn changed(
        &mut self,
        now: Nanos,
        file: FileId,
        (bytes, size_bytes): (Range<u64>, u64),
        todo: &mut Todo,
    ) {
        let Some(known) = self.files.get_mut(&file) else { return };
        let before = std::mem::replace(&mut known.source.size_bytes, size_bytes);
        let size = Arc::clone(&known.size_bytes);
        // No reader sees the new end before the old last block has gone, nor the old end after that.
        size.fetch_min(size_bytes, Ordering::SeqCst);
        let (mut from, mut to) = (bytes.start, bytes.end);
        if before != size_bytes {
            (from, to) = match bytes.is_empty() {
                true => (before.min(size_bytes), before.max(size_bytes)),
                false => (from.min(before).min(size_bytes), to.max(before).max(size_bytes)),
            };
        }
        let block_bytes = self.block_bytes as u64;
        let range = from / block_bytes..to.div_ceil(block_bytes);
        for index in self.framed(file, &range) {
            let block = Block { file, index };
            if let Some(frame) = self.slab.evict(block) {
                self.put(frame);
                self.absent.insert(block);
            }
        }
        let requests = &self.requests;
        let outdate = |flight: &mut Flight| {
            // Requests without frames start after the change.
            flight.is_outdated |= !requests[&flight.request].frames.is_empty();
        };
        if range.end - range.start <= self.flights.len() as u64 {
            for index in range {
                self.flights.get_mut(&Block { file, index }).map(outdate);
            }
        } else {
            let of_range = |block: &Block| block.file == file && range.contains(&block.index);
            self.flights.iter_mut().filter(|(block, _)| of_range(block)).for_each(|(_, flight)| {
                outdate(flight);
            });
        }
        size.store(size_bytes, Ordering::SeqCst);
        self.resize_starved(now, file, size_bytes, todo);
        self.pump(now, todo);
    }

    /// The blocks of a range that are in frames.
    fn framed(&self, file: FileId, range: &Range<u64>) -> Vec<u64> {
        if range.end - range.start <= u64::from(self.slab.frames()) {
            let holds = |&index: &u64| self.slab.holds(Block { file, index });
            return range.clone().filter(holds).collect();
        }
        let mut framed = self.slab.blocks_of(file, range.end);
        framed.retain(|index| range.contains(index));
        framed
    }

    /// Requests that wait for frames read up to the new end. Those that reach beyond it fail, as do their reads.
    fn resize_starved(&mut self, now: Nanos, file: FileId, size_bytes: u64, todo: &mut Todo) {
        let mut beyond = Vec::new();
        for &id in &self.starved {
            let pending = self.requests.get_mut(&id).expect("it is there");
            if pending.first.file != file {
                continue;
            }
            pending.source.size_bytes = size_bytes;
            let last = pending.first.index + pending.blocks - 1;
            if last * self.block_bytes as u64 >= size_bytes {
                beyond.push(id);
                continue;
            }
            for (read, block) in &pending.deliveries {
                if read.offset_bytes + read.length as u64 > size_bytes {
                    read.failed(*block, BackendError::Changed); // It returns the error when it is done.
                }
            }
        }
        self.starved.retain(|id| !beyond.contains(id));
        for id in beyond {
            self.completed(now, id, Err(BackendError::Changed), todo);
        }
    }

    /// F: refetches go past the cache if no frame is free at once, or if the block was evicted by a later block of the same
    /// read.
    pub(super) fn settle_refetches(&mut self, wanted: &mut [Wanted]) {
        let refetches = wanted.iter_mut().filter(|wanted| wanted.by == By::Refetch);
        let mut refetches: Vec<&mut Wanted> = refetches.collect();
        if refetches.is_empty() {
            return;
        }
        self.take_from_limbo();
        let mut frames = self.free.count();
        for wanted in &mut refetches {
            match frames > 0 && self.absent.remove(&wanted.block) {
                true => frames -= 1,
                false => wanted.by = By::NoBuffer,
            }
        }
    }

    /// Ends the flights of a request's blocks, in order. Returns what to do with each.
    pub(super) fn land(&mut self, id: RequestId, pending: &Pending) -> Vec<Fate> {
        if pending.passes_by {
            return Vec::new();
        }
        let indices = pending.first.index..pending.first.index + pending.blocks;
        let land = |index| {
            let block = Block { index, ..pending.first };
            match self.flights.get(&block).filter(|flight| flight.request == id).copied() {
                None => Fate::LetGo,
                Some(flight) => {
                    self.flights.remove(&block);
                    if flight.is_outdated { Fate::Outdated } else { Fate::Publish }
                }
            }
        };
        indices.map(land).collect()
    }
}
