//! The events of a run.
//!
//! Processors alternate between barrier, reading and computing. Disks serve their queues. Messages take the
//! network's time. There are two kinds of reading:
//!
//! * A, *by blocks* (demand, prefetch): each processor has a window of blocks that are requested and not yet
//!   read, over the file that it disclosed last. Reading takes blocks from the window's front as they arrive.
//! * B, *by files* (disk-directed, two-phase): the last processor to join submits the request for all. A
//!   processor has read the file when all its blocks have arrived.
//!
//! A disk begins the next block when the one before has been sent, since nodes have no memory for blocks but
//! the disk's cache. A device of several slots has a buffer for each, and does not wait.
//!
//! A disk chooses its next request as soon as it can, event by event: the first request of an instant may find
//! it idle, and lower processors go first. If messages have no start-up time, all events of an instant happen
//! before any disk chooses, as section 4.3 assumes.
//!
//! Invariants: each block of each file is served once, and nothing is in flight at the end.
//! `docs/internals/collective.md` has the rules.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use foretell_policy::Nanos;
use foretell_policy::queue::{Class, DeviceQueue, Order};

use super::pattern::{Ownership, Pattern};
use super::placement::Places;
use super::{CollectiveReport, CollectiveSpec, Method};
use crate::device::{Device, DiskParameters, Request, place_in_queue};
use crate::random::hash;

/// Separates the seeds of different draws.
pub(super) enum Purpose {
    Owners,
    Places,
    Devices,
}

/// A completed service of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The disk.
    pub disk: usize,
    /// The file; the first is 0.
    pub file: u32,
    /// The block of the file.
    pub block: u32,
    /// When it began.
    pub begun: Nanos,
    /// When it ended.
    pub ended: Nanos,
}

/// A requested block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fetch {
    file: u32,
    block: u32,
    /// The processor that it is sent to.
    reader: u32,
    /// Case A: its place among the blocks sorted by owner.
    at: u32,
    /// When it arrived at its disk, and when its service began.
    came: Nanos,
    begun: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request arrives at its disk.
    Asked(Fetch),
    /// Case B: the request for a whole file arrives at the disks.
    Submitted(u32),
    Served(Fetch),
    Delivered(Fetch),
    /// Two-phase: a processor has received the blocks that others read for it.
    Exchanged(u32),
    Computed(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The time before the first file.
    Lead,
    AtBarrier,
    Reading,
    /// Has its portion, and waits for the other processors.
    HasRead,
    Computing,
}

#[derive(Clone, Debug)]
struct Processor {
    phase: Phase,
    /// The file that it reads or computes on.
    file: u32,
    /// Case A: the disclosed file, and how many of its blocks are requested and read.
    disclosed: u32,
    asked: u32,
    read: u32,
    /// Case B: how much of the submitted file has arrived.
    received: u32,
    /// Two-phase extended: blocks of the processor's piece that are still missing.
    piece: u32,
    /// Two-phase: blocks to send to other processors, and to receive from them.
    to_others: u32,
    from_others: u32,
    /// When the processor's link can receive another block.
    link_free: Nanos,
    /// When the processor's last request is sent.
    sent: Nanos,
}

struct DiskState {
    device: Box<dyn Device>,
    queue: DeviceQueue<Fetch>,
    /// The sector where the last request ended.
    end: u64,
    /// Total time of services until `since`, and the number of services in progress then.
    busy_ns: u128,
    since: Nanos,
    serving: u64,
    /// How far its rotation is ahead of the first disk's.
    turned: Nanos,
    /// Whether it is listed in `Machine::touched`.
    touched: bool,
}

impl DiskState {
    /// Total time of services until `now`.
    fn busy_at(&mut self, now: Nanos) -> u128 {
        self.busy_ns += u128::from((now - self.since).0) * u128::from(self.serving);
        self.since = now;
        self.busy_ns
    }
}

/// All counters, as they stood at a barrier.
#[derive(Clone, Debug, Default)]
struct Standing {
    at: Nanos,
    requests: u64,
    /// Over all requests. With a queue of length n, it grows as n².
    response_ns: u128,
    service_ns: u128,
    sequential: u64,
    disks: Vec<Occupied>,
}

/// How long a disk has been occupied.
#[derive(Clone, Copy, Debug)]
struct Occupied {
    /// Total time of services.
    busy_ns: u128,
    /// Time in which the link shared by its requests carried data.
    link: Nanos,
}

struct Machine<'a> {
    spec: &'a CollectiveSpec,
    window: u32,
    overlapped: bool,
    /// Ownerships of even and of odd files.
    ownerships: [Rc<Ownership>; 2],
    places: Places,
    transfer: Nanos,
    now: Nanos,
    number: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    disks: Vec<DiskState>,
    touched: Vec<usize>,
    processors: Vec<Processor>,
    /// Case A: for each block, sorted by owner, whether it has arrived and is unread.
    arrived: Vec<u64>,
    /// The number of files whose places have been prepared.
    prepared: u32,
    /// Requests and exchanges in progress.
    in_flight: u64,
    at_barrier: usize,
    still_reading: usize,
    finished: usize,
    /// Two-phase: blocks of the submitted file that are missing; for the extended method, the next block to be
    /// taken.
    unread: u64,
    next_block: u64,
    barrier: Nanos,
    /// Time from barriers until the last processor has its portion, over the files that count.
    reading: Nanos,
    /// The counters now.
    now_at: Standing,
    /// The counters at the beginning and the end of the time that counts.
    from: Standing,
    to: Standing,
}

/// See [`CollectiveSpec::run_observed`].
pub(super) fn run(spec: &CollectiveSpec, observe: &mut dyn FnMut(&Served)) -> CollectiveReport {
    let mut machine = Machine::new(spec);
    let is_instant = spec.network.startup == Nanos::ZERO;
    machine.begin();
    loop {
        while let Some(event) = machine.next_event_now() {
            machine.handle(event, observe);
            if !is_instant {
                machine.dispatch();
            }
        }
        machine.dispatch();
        let Some(Reverse((at, ..))) = machine.events.peek() else { break };
        machine.now = *at;
    }
    machine.end()
}

impl<'a> Machine<'a> {
    fn new(spec: &'a CollectiveSpec) -> Self {
        let seed =
            |purpose: Purpose, index: usize| hash(&[spec.seed, purpose as u64, index as u64]);
        let order = match spec.method {
            Method::DiskDirected => Order::Fifo, // The list is sorted.
            _ => spec.order,
        };
        let revolution = match &spec.disk {
            DiskParameters::Mechanical(disk) => disk.geometry.revolution.as_millis(),
            DiskParameters::Flat(_) => 0.0,
        };
        let disk = |index| {
            let device = spec.disk.device(seed(Purpose::Devices, index));
            let queue = DeviceQueue::new(order, device.slots());
            let turned = Nanos::from_millis(revolution * (spec.turn * index as f64).fract());
            let since = Nanos::ZERO;
            DiskState {
                device,
                queue,
                end: 0,
                busy_ns: 0,
                since,
                serving: 0,
                turned,
                touched: false,
            }
        };
        let processor = Processor {
            phase: Phase::Lead,
            file: 0,
            disclosed: u32::MAX,
            asked: 0,
            read: 0,
            received: 0,
            piece: 0,
            to_others: 0,
            from_others: 0,
            link_free: Nanos::ZERO,
            sent: Nanos::ZERO,
        };
        let is_demand =
            spec.method == Method::Demand || spec.method == Method::Prefetch && spec.depth == 0;
        let ownership = Rc::new(Ownership::new(
            &spec.pattern,
            spec.processors,
            spec.file_blocks,
            seed(Purpose::Owners, 0),
        ));
        Machine {
            spec,
            window: if is_demand { 1 } else { spec.depth.min(u64::from(u32::MAX)) as u32 },
            overlapped: spec.overlapped && !is_demand,
            ownerships: [Rc::clone(&ownership), ownership],
            places: Places::new(&spec.placing()),
            transfer: spec.network.transfer(spec.block_bytes()),
            now: Nanos::ZERO,
            number: 0,
            events: BinaryHeap::new(),
            disks: (0..spec.disks).map(disk).collect(),
            touched: Vec::new(),
            processors: vec![processor; spec.processors],
            arrived: vec![0; (spec.file_blocks as usize).div_ceil(64)],
            prepared: 0,
            in_flight: 0,
            at_barrier: 0,
            still_reading: 0,
            finished: 0,
            unread: 0,
            next_block: 0,
            barrier: Nanos::ZERO,
            reading: Nanos::ZERO,
            now_at: Standing::default(),
            from: Standing::default(),
            to: Standing::default(),
        }
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, self.number, event)));
        self.number += 1;
    }

    fn next_event_now(&mut self) -> Option<Event> {
        let Reverse((at, ..)) = self.events.peek()?;
        if *at > self.now {
            return None;
        }
        self.events.pop().map(|Reverse((_, _, event))| event)
    }

    fn handle(&mut self, event: Event, observe: &mut dyn FnMut(&Served)) {
        match event {
            Event::Asked(fetch) => self.enqueue(fetch),
            Event::Submitted(file) => self.enqueue_file(file),
            Event::Served(fetch) => self.served(fetch, observe),
            Event::Delivered(fetch) => self.delivered(fetch),
            Event::Exchanged(processor) => {
                self.in_flight -= 1;
                self.processors[processor as usize].received = 1;
                self.try_finish_file(processor as usize);
            }
            Event::Computed(processor) => self.computed(processor as usize),
        }
        // The first barrier opens only after all earlier requests are complete.
        if self.at_barrier == self.spec.processors && self.in_flight == 0 {
            self.open_barrier();
        }
    }

    /// Begins the time before the first file.
    fn begin(&mut self) {
        for p in 0..self.spec.processors {
            let lead = self.compute_time(p);
            self.push(self.now + lead, Event::Computed(p as u32));
        }
        if self.overlapped {
            self.disclose_all(0);
        }
    }

    fn end(mut self) -> CollectiveReport {
        assert_eq!(self.finished, self.spec.processors, "a processor never finishes");
        assert_eq!(self.in_flight, 0, "requests are in flight at the end");
        let blocks = self.spec.file_blocks * u64::from(self.spec.files_read());
        assert_eq!(self.now_at.requests, blocks, "not every block was served once");
        if !self.spec.steady {
            self.to = self.standing();
        }
        let (spec, from, to) = (self.spec, &self.from, &self.to);
        let slots = spec.disk.slots() as u128;
        let occupied = from.disks.iter().zip(&to.disks).map(|(from, to)| {
            let of_slots = Nanos(((to.busy_ns - from.busy_ns) / slots) as u64);
            of_slots.max(to.link - from.link)
        });
        CollectiveReport {
            elapsed: to.at - from.at,
            bytes: spec.file_blocks * spec.block_bytes() * u64::from(spec.files),
            reading: self.reading,
            requests: to.requests - from.requests,
            response_ns: to.response_ns - from.response_ns,
            service_ns: to.service_ns - from.service_ns,
            sequential: to.sequential - from.sequential,
            busiest: occupied.max().unwrap_or(Nanos::ZERO),
        }
    }

    fn standing(&mut self) -> Standing {
        let now = self.now;
        let occupied = |disk: &mut DiskState| Occupied {
            busy_ns: disk.busy_at(now),
            link: disk.device.link_time(now + disk.turned),
        };
        let disks = self.disks.iter_mut().map(occupied).collect();
        Standing { at: now, disks, ..self.now_at.clone() }
    }

    fn compute_time(&self, processor: usize) -> Nanos {
        let blocks = u64::from(self.ownerships[0].count(processor));
        Nanos(self.spec.compute_ns(blocks) as u64)
    }

    /// The ownership of a file that is being read or disclosed. The number of a processor's blocks is the same
    /// for all files.
    fn ownership(&self, file: u32) -> &Rc<Ownership> {
        &self.ownerships[file as usize % 2]
    }

    fn prepare(&mut self, file: u32) {
        if file >= self.prepared {
            self.places.prepare(file);
            if file > 0 && self.spec.pattern == Pattern::Global {
                let CollectiveSpec { pattern, processors, file_blocks, .. } = self.spec;
                let seed = hash(&[self.spec.seed, Purpose::Owners as u64, u64::from(file)]);
                let drawn = Ownership::new(pattern, *processors, *file_blocks, seed);
                self.ownerships[file as usize % 2] = Rc::new(drawn);
            }
            self.prepared = file + 1;
        }
    }

    fn computed(&mut self, p: usize) {
        let processor = &mut self.processors[p];
        if processor.phase == Phase::Computing {
            processor.file += 1;
        }
        processor.phase = Phase::AtBarrier;
        if processor.file == self.spec.files_read() {
            self.finished += 1;
            return;
        }
        self.at_barrier += 1;
        if self.at_barrier == self.spec.processors && processor.file > 0 {
            self.open_barrier();
        }
    }

    fn open_barrier(&mut self) {
        let file = self.processors[0].file;
        self.at_barrier = 0;
        self.still_reading = self.spec.processors;
        self.barrier = self.now;
        // The time before the first file does not count, and in a steady state the first file does not either.
        if file == u32::from(self.spec.steady) {
            self.from = self.standing();
        }
        if self.spec.steady && file + 1 == self.spec.files_read() {
            self.to = self.standing();
        }
        self.processors.iter_mut().for_each(|processor| processor.phase = Phase::Reading);
        if !self.overlapped {
            self.disclose_all(file);
        }
        for p in 0..self.spec.processors {
            if self.spec.method.is_collective() {
                self.try_finish_file(p);
            } else {
                self.read_on(p);
            }
        }
    }

    fn disclose_all(&mut self, file: u32) {
        if self.spec.method.is_collective() {
            self.submit(file);
        } else {
            (0..self.spec.processors).for_each(|p| self.disclose(p, file));
        }
    }

    /// Processor `p` has read its portion. When all have, they go on to compute.
    fn has_read(&mut self, p: usize) {
        self.processors[p].phase = Phase::HasRead;
        self.still_reading -= 1;
        if self.still_reading > 0 {
            return;
        }
        let next = self.processors[p].file + 1;
        let uncounted = u32::from(self.spec.steady);
        if (uncounted + 1..=uncounted + self.spec.files).contains(&next) {
            self.reading += self.now - self.barrier;
        }
        if self.overlapped && next < self.spec.files_read() {
            self.disclose_all(next);
        }
        for p in 0..self.spec.processors {
            self.processors[p].phase = Phase::Computing;
            let compute = self.compute_time(p);
            self.push(self.now + compute, Event::Computed(p as u32));
        }
    }

    // Case A.

    fn disclose(&mut self, p: usize, file: u32) {
        self.prepare(file);
        let processor = &mut self.processors[p];
        (processor.disclosed, processor.asked, processor.read) = (file, 0, 0);
        self.fill_window(p);
    }

    fn fill_window(&mut self, p: usize) {
        let ownership = Rc::clone(self.ownership(self.processors[p].disclosed));
        let (own, start) = (ownership.count(p), ownership.start(p));
        loop {
            let processor = &mut self.processors[p];
            let asked = processor.asked;
            if asked == own || asked - processor.read >= self.window {
                return;
            }
            processor.asked += 1;
            let (file, block) = (processor.disclosed, ownership.of(p)[asked as usize]);
            self.ask(file, block, p as u32, start + asked);
        }
    }

    fn read_on(&mut self, p: usize) {
        let ownership = self.ownership(self.processors[p].file);
        let (own, start) = (ownership.count(p), ownership.start(p));
        loop {
            let read = self.processors[p].read;
            let (word, bit) = ((start + read) as usize / 64, (start + read) % 64);
            if read == own || self.arrived[word] >> bit & 1 == 0 {
                break;
            }
            self.arrived[word] &= !(1 << bit);
            self.processors[p].read += 1;
        }
        self.fill_window(p);
        if self.processors[p].read == own {
            self.has_read(p);
        }
    }

    // Case B.

    /// All processors have joined the collective read of `file`.
    fn submit(&mut self, file: u32) {
        self.prepare(file);
        self.unread = self.spec.file_blocks;
        self.next_block = 0;
        if self.spec.method == Method::TwoPhaseExtended {
            (0..self.spec.processors).for_each(|p| self.take_piece(p, file));
        } else {
            self.in_flight += self.spec.file_blocks;
            self.push(self.now + self.spec.network.startup, Event::Submitted(file));
        }
    }

    fn enqueue_file(&mut self, file: u32) {
        let came = self.now;
        let fetch = |block, reader| Fetch { file, block, reader, at: 0, came, begun: came };
        let (blocks, processors) = (self.spec.file_blocks, self.spec.processors as u64);
        if self.spec.method == Method::TwoPhase {
            for block in 0..blocks {
                self.enqueue(fetch(block as u32, (block * processors / blocks) as u32));
            }
            return;
        }
        for disk in 0..self.spec.disks as u64 {
            let blocks = (disk..blocks).step_by(self.spec.disks).map(|block| block as u32);
            let mut list: Vec<(u64, u32)> =
                blocks.map(|block| (self.places.sector(file, block), block)).collect();
            list.sort_unstable();
            for (_, block) in list {
                let reader = self.ownership(file).owner(block) as u32;
                self.enqueue(fetch(block, reader));
            }
        }
    }

    /// Two-phase extended: `p` takes the next blocks that are not taken, one of each disk.
    fn take_piece(&mut self, p: usize, file: u32) {
        let from = self.next_block;
        let to = (from + self.spec.disks as u64).min(self.spec.file_blocks);
        self.next_block = to;
        self.processors[p].piece = (to - from) as u32;
        (from..to).for_each(|block| self.ask(file, block as u32, p as u32, 0));
    }

    /// Two-phase: a block has been read, and will be exchanged if another processor owns it.
    fn exchange_later(&mut self, fetch: Fetch) {
        let owner = self.ownership(fetch.file).owner(fetch.block);
        let reader = fetch.reader as usize;
        if reader != owner {
            self.processors[reader].to_others += 1;
            self.processors[owner].from_others += 1;
        }
        self.unread -= 1;
        if self.spec.method == Method::TwoPhaseExtended {
            self.processors[reader].piece -= 1;
            if self.processors[reader].piece == 0 {
                self.take_piece(reader, fetch.file);
            }
        }
        if self.unread == 0 {
            (0..self.spec.processors).for_each(|p| self.exchange(p));
        }
    }

    /// Exchanges blocks: a processor sends and receives at the same time, one message for each other processor.
    fn exchange(&mut self, p: usize) {
        let processor = &mut self.processors[p];
        let blocks = u64::from(processor.to_others.max(processor.from_others));
        (processor.to_others, processor.from_others) = (0, 0);
        let messages = blocks.min(self.spec.processors as u64 - 1);
        let network = &self.spec.network;
        let time = Nanos(network.startup.0 * messages)
            + network.transfer(blocks * self.spec.block_bytes());
        self.in_flight += 1;
        self.push(self.now + time, Event::Exchanged(p as u32));
    }

    fn try_finish_file(&mut self, p: usize) {
        let wanted = match self.spec.method {
            Method::DiskDirected => self.ownerships[0].count(p),
            _ => 1,
        };
        let processor = &mut self.processors[p];
        if processor.phase == Phase::Reading && processor.received == wanted {
            processor.received = 0;
            self.has_read(p);
        }
    }

    // Disks and messages.

    fn ask(&mut self, file: u32, block: u32, reader: u32, at: u32) {
        self.in_flight += 1;
        // The sender pays the start-up time, so its requests leave one after another.
        let sent = &mut self.processors[reader as usize].sent;
        *sent = self.now.max(*sent) + self.spec.network.startup;
        let came = *sent;
        let fetch = Fetch { file, block, reader, at, came, begun: came };
        if came == self.now {
            self.enqueue(fetch);
        } else {
            self.push(came, Event::Asked(fetch));
        }
    }

    fn disk_of(&self, block: u32) -> usize {
        block as usize % self.spec.disks
    }

    fn enqueue(&mut self, fetch: Fetch) {
        let sector = self.places.sector(fetch.file, fetch.block);
        let index = self.disk_of(fetch.block);
        let disk = &mut self.disks[index];
        let (position, rank) =
            place_in_queue(&self.spec.disk, self.spec.order, sector, disk.device.as_ref());
        // The paper's disks do not know which requests a processor waits for.
        disk.queue.push_ranked(Class::Prefetch, position, rank, fetch);
        self.touch(index);
    }

    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.disks[index].touched, true) {
            self.touched.push(index);
        }
    }

    /// Lets all touched disks begin what they can.
    fn dispatch(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            self.disks[index].touched = false;
            while let Some((_, _, mut fetch)) = self.next_of(index) {
                let sector = self.places.sector(fetch.file, fetch.block);
                let request = Request { sector, sectors: self.spec.block_sectors };
                let disk = &mut self.disks[index];
                let time = disk.device.service(self.now + disk.turned, request).total();
                disk.busy_at(self.now);
                disk.serving += 1;
                self.now_at.sequential += u64::from(disk.end == sector);
                disk.end = request.end();
                self.now_at.requests += 1;
                self.now_at.service_ns += u128::from(time.0);
                fetch.begun = self.now;
                self.push(self.now + time, Event::Served(fetch));
            }
        }
        self.touched = touched;
    }

    /// Requests that the drive's cache holds need no seek, and go first.
    fn next_of(&mut self, index: usize) -> Option<(Class, u64, Fetch)> {
        let DiskState { device, queue, .. } = &mut self.disks[index];
        let cached = device.cached();
        // Only blocks that the cache holds completely.
        let end = (cached.end + 1).saturating_sub(self.spec.block_sectors);
        let place =
            |sector| place_in_queue(&self.spec.disk, self.spec.order, sector, device.as_ref());
        queue.pop_holding(place(cached.start)..place(end))
    }

    fn served(&mut self, fetch: Fetch, observe: &mut dyn FnMut(&Served)) {
        let disk = self.disk_of(fetch.block);
        let Fetch { file, block, begun, .. } = fetch;
        observe(&Served { disk, file, block, begun, ended: self.now });
        self.now_at.response_ns += u128::from((self.now - fetch.came).0);
        self.disks[disk].busy_at(self.now);
        self.disks[disk].serving -= 1;
        if !self.holds_until_sent() {
            self.disks[disk].queue.completed();
            self.touch(disk);
        }
        let processor = &mut self.processors[fetch.reader as usize];
        let from = (self.now + self.spec.network.startup).max(processor.link_free);
        processor.link_free = from + self.transfer;
        let at = processor.link_free;
        self.push(at, Event::Delivered(fetch));
    }

    /// Whether a disk waits until its block has been received: a drive has one cache, other devices a buffer
    /// for each slot.
    fn holds_until_sent(&self) -> bool {
        self.spec.disk.slots() == 1
    }

    fn delivered(&mut self, fetch: Fetch) {
        self.in_flight -= 1;
        if self.holds_until_sent() {
            let disk = self.disk_of(fetch.block);
            self.disks[disk].queue.completed();
            self.touch(disk);
        }
        let p = fetch.reader as usize;
        match self.spec.method {
            Method::Demand | Method::Prefetch => {
                self.arrived[fetch.at as usize / 64] |= 1 << (fetch.at % 64);
                let processor = &self.processors[p];
                if processor.phase == Phase::Reading && processor.disclosed == processor.file {
                    self.read_on(p);
                }
            }
            Method::DiskDirected => {
                self.processors[p].received += 1;
                self.try_finish_file(p);
            }
            Method::TwoPhase | Method::TwoPhaseExtended => self.exchange_later(fetch),
        }
    }
}
