//! The state of the cache: the policy, the requests in flight, and the block in each frame.
//!
//! No I/O, no threads, no clock: each call is given the time, and adds requests to start and blocks to copy to a [`Todo`]. The
//! caller carries these out after it has released the engine, in any order.
//!
//! Cases of a block that is read, as in `docs/internals/cache.md`:
//!
//! * **A.** It is in a frame: the frame is pinned and the block will be copied.
//! * **B.** It is in flight: the read joins the request. If it is neither, it is demanded; neighbours go in one request.
//! * **C.** The policy has no buffer for the block: the request reads into the program's buffer.
//! * **D.** Its request succeeds: the block is published, and pinned and copied for each read that waits.
//! * **E.** Its request fails: a read that demanded it gets the error. A read that joined a prefetch demands the block.
//! * **F.** The bytes of its file change: see [`change`].
//! * **G.** The machine is short of memory: see [`memory`].
//!
//! Invariants: a block is in one flight, in one frame, absent (F), or unknown. A frame is free, in limbo, of a request, of a
//! block, or out of use (G). The policy's blocks are those in frames, absent, and in flight (except in case C).
//!
//! A file may have *near* blocks, in a second tier. The policy demands, values and times them as blocks of another device.
//! Hints name the device of the file (`docs/internals/cache.md` says why).
//!
//! A frame of an evicted block is not free while readers copy out of it. A request without enough frames waits until enough are
//! free ([`Engine::pump`]).

#[cfg(test)]
mod bounded;
mod change;
mod memory;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use foretell_policy::hash::Mix;
use foretell_policy::{
    Access, Block, Config, Cost, Counts, DeviceId, Extent, Fetch, FileId, Hint, HinterId, Memory,
    Nanos, Next, Order, Outcome, Policy, ReaderId, Reason, StreamId, Target, Work,
};

use self::requests::{By, Fate, Flight, Pending, Source, Wanted};
pub(crate) use self::requests::{Delivery, RequestId, Start, Todo};
use crate::backend::{BackendError, Object, Part};
use crate::free::FreeFrames;
use crate::limit::Limit;
use crate::read::Read;
use crate::read_ahead::{Credit, Guess};
use crate::records::Record;
use crate::slab::{Frame, Slab};
use crate::speed::Speed;

/// The engine's own counts, beside the policy's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EngineCounts {
    /// A: blocks that were in a frame when they were read.
    pub(crate) hits: u64,
    /// B: blocks that were in flight when they were read.
    pub(crate) joined: u64,
    /// B: blocks that were fetched on demand.
    pub(crate) demanded: u64,
    /// C: blocks that were read without a buffer.
    pub(crate) passed_by: u64,
    pub(crate) requests: u64,
    pub(crate) requests_ahead: u64,
    pub(crate) fetched_bytes: u64,
    pub(crate) failed: u64,
}

struct File {
    source: Source,
    /// The source's size, for handles that read it without the engine.
    size_bytes: Arc<AtomicU64>,
    /// Number of handles and hints that hold the file.
    holders: usize,
}

struct Device {
    limit: Limit,
    speed: Speed,
    credit: Credit,
    /// The device of its near blocks.
    near: Option<usize>,
}

/// See the [module](self).
pub(crate) struct Engine {
    policy: Policy,
    slab: Arc<Slab>,
    block_bytes: usize,
    devices: Vec<Device>,
    files: HashMap<FileId, File, Mix>,
    next_file: u64,
    requests: HashMap<RequestId, Pending, Mix>,
    next_request: u64,
    flights: HashMap<Block, Flight, Mix>,
    /// F: blocks without a frame that are in memory according to the policy.
    absent: HashSet<Block, Mix>,
    free: FreeFrames,
    limbo: Vec<Frame>,
    /// Requests without frames, oldest first.
    starved: VecDeque<RequestId>,
    has_more: bool,
    counts: EngineCounts,
}

/// Bytes that one prefetch may read.
const CLUSTER_BYTES: u64 = 1 << 20;

impl Engine {
    pub(crate) fn new(slab: Arc<Slab>, block_bytes: usize) -> Self {
        let block = block_bytes as u64;
        let mut config = Config::new(Memory::Owned, block, block * u64::from(slab.frames()));
        config.cluster_blocks_max = (CLUSTER_BYTES / block).max(1);
        Engine {
            policy: Policy::new(config),
            free: FreeFrames::all(slab.frames()),
            slab,
            block_bytes,
            devices: Vec::new(),
            files: HashMap::default(),
            next_file: 0,
            requests: HashMap::default(),
            next_request: 0,
            flights: HashMap::default(),
            absent: HashSet::default(),
            limbo: Vec::new(),
            starved: VecDeque::new(),
            has_more: false,
            counts: EngineCounts::default(),
        }
    }

    /// Adds a device with `depth` prefetches at a time. `near` is the depth of its near blocks, if it has any.
    pub(crate) fn add_device(&mut self, depth: usize, near: Option<usize>) -> usize {
        let near = near.map(|depth| self.add_device(depth, None));
        let (speed, credit) = (Speed::default(), Credit::default());
        self.devices.push(Device { limit: Limit::new(depth), speed, credit, near });
        self.devices.len() - 1
    }

    /// The device that a block belongs to now.
    fn device_of(&self, source: &Source, index: u64) -> usize {
        let near = self.devices[source.device].near;
        let is_near = |_: &usize| source.object.is_near(index * self.block_bytes as u64);
        near.filter(is_near).unwrap_or(source.device)
    }

    /// Adds a version of a file. The caller has the first hold.
    pub(crate) fn add_file(
        &mut self,
        device: usize,
        size_bytes: u64,
        object: Arc<dyn Object>,
    ) -> FileId {
        let id = FileId(self.next_file);
        self.next_file += 1;
        self.reopen_file(id, device, size_bytes, object);
        id
    }

    /// Holds a file once more. Returns whether it is known.
    pub(crate) fn hold(&mut self, file: FileId) -> bool {
        self.files.get_mut(&file).map(|known| known.holders += 1).is_some()
    }

    /// Adds a version of a file that was known before. Blocks of it may still be in memory.
    pub(crate) fn reopen_file(
        &mut self,
        id: FileId,
        device: usize,
        size_bytes: u64,
        object: Arc<dyn Object>,
    ) {
        let source = Source { device, object, size_bytes };
        let size_bytes = Arc::new(AtomicU64::new(size_bytes));
        self.files.insert(id, File { source, size_bytes, holders: 1 });
    }

    /// The size of a file that is held. It follows changes of the file.
    pub(crate) fn size_of(&self, file: FileId) -> Arc<AtomicU64> {
        Arc::clone(&self.files[&file].size_bytes)
    }

    /// Ends a hold. After the last one, returns the file's object. Its blocks stay until they are evicted.
    pub(crate) fn release(&mut self, file: FileId) -> Option<Arc<dyn Object>> {
        let known = self.files.get_mut(&file)?;
        known.holders -= 1;
        if known.holders > 0 {
            return None;
        }
        self.files.remove(&file).map(|file| file.source.object)
    }

    pub(crate) fn counts(&self) -> (EngineCounts, Counts) {
        (self.counts, self.policy.counts())
    }

    /// Blocks in frames and in flight.
    pub(crate) fn held_blocks(&self) -> u64 {
        self.policy.held_blocks()
    }

    /// Opens a stream for hints of a program. All streams of a reader share one record of accuracy: a reader that does not read
    /// what it disclosed gains nothing by a new stream.
    pub(crate) fn open_stream(&mut self, now: Nanos, reader: ReaderId) -> StreamId {
        self.policy.open_stream(now, HinterId(reader.0), Some(reader))
    }

    /// Opens a stream for reads that the cache itself expects of a reader. It does not count on the reader's record.
    pub(crate) fn open_guess(&mut self, now: Nanos, reader: ReaderId) -> StreamId {
        self.policy.open_stream(now, HinterId::DRIVER, Some(reader))
    }

    /// Whether a stream of hints, other than the guess, says that a reader will read a block.
    pub(crate) fn is_hinted(
        &mut self,
        reader: ReaderId,
        block: Block,
        guess: Option<StreamId>,
    ) -> bool {
        self.policy.is_disclosed(reader, block, guess)
    }

    /// Whether `block` lies right behind what a reader has read as hinted, and it goes on elsewhere.
    pub(crate) fn is_beyond_hints(
        &self,
        reader: ReaderId,
        block: Block,
        guess: Option<StreamId>,
    ) -> bool {
        self.policy.is_beyond_hints(reader, block, guess)
    }

    /// Files whose last hint has gone.
    pub(crate) fn unwanted_files(&mut self) -> Vec<FileId> {
        let mut files = self.policy.take_released_files();
        files.retain(|&file| !self.policy.wants(file));
        files
    }

    /// Bytes of the hints of a reader's streams, and of all hints.
    pub(crate) fn hint_bytes(&self, reader: ReaderId) -> (usize, usize) {
        self.policy.hint_bytes(HinterId(reader.0))
    }

    /// What reads a file that is held.
    pub(crate) fn object_of(&self, file: FileId) -> Option<Arc<dyn Object>> {
        self.files.get(&file).map(|file| Arc::clone(&file.source.object))
    }

    /// How far the cache may read ahead for a reader that reads `file` in order. The file is held.
    pub(crate) fn guess(&mut self, file: FileId) -> Guess<'_> {
        let device = &mut self.devices[self.files[&file].source.device];
        Guess { window_bytes: device.speed.window_bytes(), credit: &mut device.credit }
    }

    /// Discloses that `extent` of `file` will be read.
    pub(crate) fn hint(
        &mut self,
        now: Nanos,
        stream: StreamId,
        (file, extent, order): (FileId, Extent, Order),
        todo: &mut Todo,
    ) {
        let Some(known) = self.files.get(&file) else { return };
        let source = &known.source;
        let target = Target::File { file, size_bytes: source.size_bytes };
        // Also for near blocks: a stream's blocks are fetched in its order, wherever they are.
        let device = DeviceId(source.device as u64);
        self.policy.hint(now, stream, Hint { target, device, extent, order, repeats: 1 });
        self.pump(now, todo);
    }

    pub(crate) fn close_stream(&mut self, now: Nanos, stream: StreamId, todo: &mut Todo) {
        self.policy.close(now, stream);
        self.pump(now, todo);
    }

    pub(crate) fn cancel(&mut self, now: Nanos, stream: StreamId, todo: &mut Todo) {
        self.policy.cancel(now, stream);
        self.pump(now, todo);
    }

    /// Why a block is in memory.
    pub(crate) fn reason(&self, block: Block) -> Option<Reason> {
        self.policy.reason(block)
    }

    /// Takes in reads of blocks in frames, which were made without the engine.
    pub(crate) fn recorded(&mut self, now: Nanos, records: &[Record], todo: &mut Todo) {
        let blocks_of = |record: &Record| {
            let Record { reader, first, blocks } = *record;
            (first.index..first.index + blocks).map(move |index| (reader, Block { index, ..first }))
        };
        let mut reads = records.iter().flat_map(blocks_of);
        let mut some = Vec::with_capacity(foretell_policy::PREPARED_MAX);
        loop {
            some.clear();
            some.extend(reads.by_ref().take(foretell_policy::PREPARED_MAX));
            if some.is_empty() {
                break;
            }
            self.policy.prepare(some.iter().map(|&(_, block)| block));
            for &(reader, block) in &some {
                self.policy.read(now, reader, block, false);
            }
            self.counts.hits += some.len() as u64;
        }
        if !records.is_empty() {
            self.pump(now, todo);
        }
    }

    /// Reads the blocks of `read` from `first` on.
    pub(crate) fn read(&mut self, now: Nanos, read: &Arc<Read>, first: u64, todo: &mut Todo) {
        let Some(file) = self.files.get(&read.file) else {
            unreachable!("a file that is read is held");
        };
        let source = file.source.clone();
        let end_bytes = read.offset_bytes + read.length as u64;
        if end_bytes > source.size_bytes {
            // The file was cut since the read began.
            return read.failed(Block { file: read.file, index: first }, BackendError::Changed);
        }
        let end = end_bytes.div_ceil(self.block_bytes as u64);
        let mut wanted: Vec<Wanted> = Vec::new();
        for index in first..end {
            let block = Block { file: read.file, index };
            let access = self.policy.read(now, read.reader, block, false);
            if let Some(pinned) = self.slab.pin_own(block) {
                // A.
                read.will_copy();
                todo.copy.push(Delivery { read: Arc::clone(read), block, pinned });
                self.counts.hits += 1;
            } else if let Some(request) = self.joinable(block) {
                // B.
                self.join(request, read, block);
                self.counts.joined += 1;
            } else {
                let is_changed = self.absent.contains(&block) || self.flights.contains_key(&block);
                debug_assert!(is_changed || access == Access::Miss, "{block:?} is nowhere");
                wanted.push(self.demand(now, &source, block));
            }
        }
        for Wanted { block, .. } in &wanted {
            read.owe();
            debug_assert!(!self.slab.holds(*block));
        }
        self.request_wanted(now, &source, &mut wanted, read, todo);
        self.pump(now, todo);
    }

    /// The request in flight that a read of a block may join.
    fn joinable(&self, block: Block) -> Option<RequestId> {
        self.flights.get(&block).filter(|flight| !flight.is_outdated).map(|flight| flight.request)
    }

    fn demand(&mut self, now: Nanos, source: &Source, block: Block) -> Wanted {
        let device = self.device_of(source, block.index);
        if self.absent.contains(&block) {
            return Wanted { block, by: By::Refetch, device };
        }
        // The fetch of an outdated block is in flight to the policy, which then has no other one.
        let fetch = self.policy.demand(now, DeviceId(device as u64), block);
        self.let_go();
        Wanted { block, by: fetch.map_or(By::NoBuffer, |fetch| By::Fetch(fetch.id)), device }
    }

    /// Makes one request for each run of neighbours among `wanted`, which ascend.
    fn request_wanted(
        &mut self,
        now: Nanos,
        source: &Source,
        wanted: &mut [Wanted],
        read: &Arc<Read>,
        todo: &mut Todo,
    ) {
        self.settle_refetches(wanted);
        let goes_on = |one: &Wanted, next: &Wanted| {
            one.block.index + 1 == next.block.index
                && std::mem::discriminant(&one.by) == std::mem::discriminant(&next.by)
                && one.device == next.device
        };
        // Refetches first, since their frames are free now.
        let (first, then): (Vec<&[Wanted]>, Vec<&[Wanted]>) =
            wanted.chunk_by(goes_on).partition(|run| run[0].by == By::Refetch);
        for run in first.into_iter().chain(then) {
            let fetch = |wanted: &Wanted| match wanted.by {
                By::Fetch(fetch) => Some((fetch, 1)),
                By::Refetch | By::NoBuffer => None,
            };
            let passes_by = run[0].by == By::NoBuffer;
            match passes_by {
                true => self.counts.passed_by += run.len() as u64,
                false => self.counts.demanded += run.len() as u64,
            }
            let pending = Pending {
                fetches: run.iter().filter_map(fetch).collect(),
                first: run[0].block,
                blocks: run.len() as u64,
                source: source.clone(),
                device: run[0].device,
                served_by: None,
                is_demand: true,
                frames: Vec::new(),
                passes_by,
                began: now,
                bytes: 0,
                under_way_bytes: 0,
                deliveries: run.iter().map(|wanted| (Arc::clone(read), wanted.block)).collect(),
            };
            self.begin(now, pending, todo);
        }
    }

    /// B: one more read waits for a block.
    fn join(&mut self, request: RequestId, read: &Arc<Read>, block: Block) {
        let pending = self.requests.get_mut(&request).expect("a flight is of a request");
        pending.deliveries.push((Arc::clone(read), block));
        read.owe();
        if !pending.is_demand && pending.frames.is_empty() {
            // The request has not started. It now goes before all prefetches that no read waits for.
            self.starved.retain(|&other| other != request);
            self.starved.push_front(request);
        }
    }

    fn begin(&mut self, now: Nanos, pending: Pending, todo: &mut Todo) {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.counts.requests += 1;
        if !pending.is_demand {
            self.counts.requests_ahead += 1;
            self.devices[pending.device].limit.began();
        }
        if !pending.passes_by {
            for offset in 0..pending.blocks {
                let block = Block { index: pending.first.index + offset, ..pending.first };
                self.flights.insert(block, Flight { request: id, is_outdated: false });
            }
        }
        let is_demand = pending.is_demand;
        self.requests.insert(id, pending);
        if !self.start(now, id, todo) {
            match is_demand {
                true => self.starved.push_front(id),
                false => self.starved.push_back(id),
            }
        }
    }

    /// Starts a request. Returns false if there are not enough frames.
    fn start(&mut self, now: Nanos, id: RequestId, todo: &mut Todo) -> bool {
        let served_by = self.served_by(&self.requests[&id]);
        let count = self.requests[&id].blocks as usize;
        if self.free.count() < count {
            self.take_from_limbo();
        }
        let pending = self.requests.get_mut(&id).expect("it is there");
        if !pending.passes_by {
            match self.free.take(count) {
                Some(frames) => pending.frames = frames,
                None => return false,
            }
        }
        (pending.began, pending.served_by) = (now, served_by);
        let block_bytes = self.block_bytes as u64;
        let mut start = pending.first.index * block_bytes;
        let mut end = pending.source.size_bytes.min(start + pending.blocks * block_bytes);
        let parts = if pending.passes_by {
            let (read, _) = &pending.deliveries[0];
            (start, end) = read.within(start, end);
            vec![read.part(start, end)]
        } else {
            // Adjacent frames are one part.
            let mut left = (end - start) as usize;
            let runs = pending.frames.chunk_by(|one, next| one + 1 == *next).map(|run| {
                let length = left.min(run.len() * self.block_bytes);
                left -= length;
                // A reader that does not know the new end of a shorter file sees no bytes of other blocks.
                run.iter().enumerate().for_each(|(at, &frame)| {
                    let rest = length.saturating_sub(at * self.block_bytes);
                    self.slab.clear_from(frame, rest.min(self.block_bytes));
                });
                Part { start: self.slab.data(run[0]), length }
            });
            runs.collect()
        };
        pending.bytes = end - start;
        pending.under_way_bytes = self.devices[pending.device].speed.began(pending.bytes);
        let (object, is_demand) = (Arc::clone(&pending.source.object), pending.is_demand);
        todo.start.push(Start { id, object, offset_bytes: start, is_demand, parts });
        true
    }

    /// Frees the frames in limbo that no reader copies out of any longer.
    fn take_from_limbo(&mut self) {
        self.limbo.retain(|&frame| {
            let is_free = self.slab.is_free(frame);
            if is_free {
                self.free.put(frame);
            }
            !is_free
        });
    }

    /// Takes back the frame of a block that has left it.
    fn put(&mut self, frame: Frame) {
        match self.slab.is_free(frame) {
            true => self.free.put(frame),
            false => self.limbo.push(frame),
        }
    }

    /// The device that all blocks of a request belong to now, if it is one.
    fn served_by(&self, pending: &Pending) -> Option<usize> {
        let source = &pending.source;
        let Some(near) = self.devices[source.device].near else { return Some(source.device) };
        let first = pending.first.index;
        let of_near = (first..first + pending.blocks)
            .filter(|&index| self.device_of(source, index) == near)
            .count();
        match of_near as u64 {
            0 => Some(source.device),
            count => (count == pending.blocks).then_some(near),
        }
    }

    /// Starts the fetches that the policy wants, and requests that wait for frames. One call makes one bounded search for each
    /// device. If it [leaves something](Self::has_more), call it again.
    pub(crate) fn pump(&mut self, now: Nanos, todo: &mut Todo) {
        self.let_go();
        self.has_more = false;
        for device in 0..self.devices.len() {
            while self.starved.is_empty() && !self.devices[device].limit.is_reached() {
                match self.policy.next(now, DeviceId(device as u64)) {
                    Next::Fetch(fetch) => {
                        self.let_go();
                        self.begin_ahead(now, device, fetch, todo);
                    }
                    Next::More => {
                        self.has_more = true;
                        break;
                    }
                    Next::Nothing => break,
                }
            }
        }
        self.feed_starved(now, todo);
    }

    /// Whether the last [`pump`](Self::pump) left a search unfinished, so that it must be called again without an event.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    fn begin_ahead(&mut self, now: Nanos, device: usize, fetch: Fetch, todo: &mut Todo) {
        let Work::Read { file, first_block, blocks } = fetch.work else {
            unreachable!("files are known when they are hinted");
        };
        let first = Block { file, index: first_block };
        let end = (first_block + blocks - 1) * self.block_bytes as u64;
        let known = self.files.get(&file).filter(|known| end < known.source.size_bytes);
        let Some(known) = known else {
            // No handle or hint holds it any more, or it was cut.
            self.policy.completed(now, fetch.id, Outcome::Refused);
            return self.let_go();
        };
        let pending = Pending {
            fetches: vec![(fetch.id, blocks)],
            first,
            blocks,
            source: known.source.clone(),
            device,
            served_by: None,
            is_demand: false,
            frames: Vec::new(),
            passes_by: false,
            began: now,
            bytes: 0,
            under_way_bytes: 0,
            deliveries: Vec::new(),
        };
        self.begin(now, pending, todo);
    }

    /// Starts requests that wait for frames. While some wait, readers report unpinned frames. That is switched on before the
    /// frames are checked, so that no free frame is missed.
    fn feed_starved(&mut self, now: Nanos, todo: &mut Todo) {
        if self.starved.is_empty() {
            return;
        }
        self.slab.starve(true);
        while let Some(&first) = self.starved.front() {
            if !self.start(now, first, todo) {
                return;
            }
            self.starved.pop_front();
        }
        self.slab.starve(false);
    }

    /// Takes back the frames of evicted blocks.
    fn let_go(&mut self) {
        while let Some(block) = self.policy.next_eviction() {
            if let Some(frame) = self.slab.evict(block) {
                self.put(frame);
            } else if !self.absent.remove(&block)
                && let Some(flight) = self.flights.remove(&block)
            {
                // F: it is being fetched again.
                debug_assert!(self.requests[&flight.request].fetches.is_empty(), "{block:?}");
            }
        }
    }

    /// A request has ended.
    pub(crate) fn completed(
        &mut self,
        now: Nanos,
        id: RequestId,
        result: Result<(), BackendError>,
        todo: &mut Todo,
    ) {
        let mut pending = self.requests.remove(&id).expect("a request ends once");
        if !pending.is_demand {
            self.devices[pending.device].limit.ended();
        }
        let speed = &mut self.devices[pending.device].speed;
        speed.ended(pending.bytes);
        if result.is_ok() && pending.served_by == Some(pending.device) {
            let took = now.saturating_sub(pending.began);
            speed.took(pending.bytes, pending.under_way_bytes, took);
        }
        let is_busy = matches!(result, Err(BackendError::Busy(_)));
        // Only the store reports that it is busy, never the tier of near blocks.
        let heard_of = if is_busy { Some(pending.source.device) } else { pending.served_by };
        if let Some(device) = heard_of.filter(|_| result.is_ok() || is_busy) {
            self.devices[device].limit.heard(is_busy);
        }
        let fates = self.land(id, &pending);
        match result {
            Ok(()) => self.arrived(now, &mut pending, &fates, todo),
            Err(cause) => self.failed(now, pending, &fates, cause, todo),
        }
        self.pump(now, todo);
    }

    /// D: publishes and delivers the blocks of a request.
    fn arrived(&mut self, now: Nanos, pending: &mut Pending, fates: &[Fate], todo: &mut Todo) {
        self.counts.fetched_bytes += pending.blocks * self.block_bytes as u64;
        let (first, frames) = (pending.first, std::mem::take(&mut pending.frames));
        let mut is_unread = vec![!pending.is_demand; frames.len()];
        if !pending.passes_by {
            for (_, block) in &pending.deliveries {
                is_unread[(block.index - first.index) as usize] = false;
            }
        }
        let settled = frames.iter().zip(fates).zip(is_unread);
        for (((&frame, &fate), is_unread), index) in settled.zip(first.index..) {
            let block = Block { index, ..first };
            match fate {
                Fate::Publish => self.slab.publish(block, frame, is_unread),
                Fate::Outdated => drop(self.absent.insert(block)),
                Fate::LetGo => {}
            }
        }
        for (read, block) in pending.deliveries.drain(..) {
            if read.arrived() {
                self.policy.waited(read.reader, now.saturating_sub(read.began));
            }
            if pending.passes_by {
                todo.settled.push(read);
            } else {
                // The frame belongs to this request until it is put back, published or not.
                let pinned = self.slab.pin_known(frames[(block.index - first.index) as usize]);
                todo.copy.push(Delivery { read, block, pinned });
            }
        }
        for (&frame, &fate) in frames.iter().zip(fates) {
            if fate != Fate::Publish {
                self.put(frame);
            }
        }
        if let Some(device) = pending.served_by.filter(|_| !pending.fetches.is_empty()) {
            let took = now.saturating_sub(pending.began);
            self.policy.observe(DeviceId(device as u64), Cost::Disk, took);
        }
        for &(fetch, _) in &pending.fetches {
            self.policy.completed(now, fetch, Outcome::Fetched);
            self.let_go();
        }
        if self.devices[pending.source.device].near.is_some() && !pending.passes_by {
            // The request may have moved its blocks into the near tier, or found them gone from it.
            for index in first.index..first.index + pending.blocks {
                let device = self.device_of(&pending.source, index);
                self.policy.moved(Block { index, ..first }, DeviceId(device as u64));
            }
        }
    }

    /// E: frees the frames of a request, and tells or demands for its reads.
    fn failed(
        &mut self,
        now: Nanos,
        pending: Pending,
        fates: &[Fate],
        cause: BackendError,
        todo: &mut Todo,
    ) {
        self.counts.failed += 1;
        pending.frames.iter().for_each(|&frame| self.free.put(frame));
        if pending.fetches.is_empty() {
            // F: the policy keeps their buffers.
            for (index, _) in
                (pending.first.index..).zip(fates).filter(|(_, fate)| **fate != Fate::LetGo)
            {
                self.absent.insert(Block { index, ..pending.first });
            }
        }
        for &(fetch, _) in &pending.fetches {
            self.policy.completed(now, fetch, Outcome::Refused);
            self.let_go();
        }
        for (read, block) in pending.deliveries {
            read.arrived();
            if pending.is_demand {
                read.failed(block, cause.clone());
                todo.settled.push(read);
                continue;
            }
            // A read had joined a prefetch: it demands the block.
            let source = self.files.get(&block.file).map_or(&pending.source, |file| &file.source);
            let source = source.clone();
            if read.offset_bytes + read.length as u64 > source.size_bytes {
                read.failed(block, BackendError::Changed);
            } else if let Some(request) = self.joinable(block) {
                self.join(request, &read, block);
            } else {
                let mut wanted = [self.demand(now, &source, block)];
                read.owe();
                self.request_wanted(now, &source, &mut wanted, &read, todo);
            }
            todo.settled.push(read); // The old debt; the new one counts by itself.
        }
    }

    /// Whether no request is in flight or waits.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.starved.is_empty() && self.flights.is_empty()
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let flying: usize = self.requests.values().map(|pending| pending.frames.len()).sum();
        let known = self.free.count() + self.limbo.len() + flying;
        assert!(known <= self.slab.frames() as usize, "more frames than there are");
        assert!(self.policy.held_blocks() <= u64::from(self.slab.frames()));
        for (block, flight) in &self.flights {
            assert!(self.requests.contains_key(&flight.request) && !self.slab.holds(*block));
        }
        for block in &self.absent {
            assert!(!self.flights.contains_key(block) && !self.slab.holds(*block));
        }
    }
}
