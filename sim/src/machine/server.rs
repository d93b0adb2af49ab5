//! What serves a device's fetches: queues, and the modelled devices behind them.
//!
//! A *job* is one fetch, or one read around the cache. It becomes one request for each disk and
//! contiguous piece, and is done when the last of them is. For each disk: what arrives waits in the
//! striper's queue; what is dispatched is at the drive, which serves what it can begin soonest.
//!
//! Rules, for each disk:
//! * A request that a program waits for is dispatched at once.
//! * Prefetches are dispatched in the queue's order, while fewer than the limit are at the drive
//!   and none waits there behind a demand request that has not begun.
//! * A job that a program comes to wait for is promoted: what of it is not dispatched becomes
//!   demand. (Its place in the queue stays until its turn and is passed over then.)
//!
//! So a demand request never waits behind a prefetch that was dispatched after it came.
//!
//! Disks may be ill ([`fault`](super::fault)): what a request comes to is known when it is begun, and the worst of
//! its requests is what comes of a job.
//!
//! A server keeps no time: it is told `now`, says when what it begins will end, and is told when
//! that is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foretell_policy::hash::Mix;
use foretell_policy::queue::{Class, DeviceQueue, Order};
use foretell_policy::{Block, DeviceId, Nanos};

use super::fault::{Arrival, Faults, Health};
use super::report::DeviceReport;
use super::slab::{Beside, Key, Slab};
use crate::SECTOR_BYTES;
use crate::array::{DiskIndex, Striping};
use crate::device::flat::{FlatSpec, Latency};
use crate::device::held::Held;
use crate::device::{Device, DiskParameters, Flat, Request};
use crate::layout::{FileId, Layout};

/// What a device of the machine is.
#[derive(Clone, Debug)]
pub enum DeviceSpec {
    /// Latency, then transfer; the same for every block, wherever it lies.
    Flat {
        /// Of each request.
        latency: Nanos,
        /// Of each block after that.
        transfer: Nanos,
        /// Requests served side by side; `None`: any number.
        slots: Option<usize>,
    },
    /// Disks behind a striping driver.
    Array(Box<ArraySpec>),
}

/// What an array is told of programs that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Nothing, as behind a kernel: all requests are alike, and their order is that of the queue.
    None,
    /// Which requests somebody waits for when they come.
    Arrival,
    /// That, and which prefetches somebody comes to wait for.
    Promotion,
}

/// Disks behind a striping driver.
#[derive(Clone, Debug)]
pub struct ArraySpec {
    /// Each of the disks.
    pub disk: DiskParameters,
    /// How many.
    pub disks: usize,
    /// Sectors in a stripe unit.
    pub unit_sectors: u64,
    /// Where files lie in the volume.
    pub layout: Layout,
    /// Order of prefetches in each disk's queue.
    pub order: Order,
    /// Most prefetches dispatched to a disk and not done.
    pub prefetches_per_disk: usize,
    /// Seed of devices that draw their latencies.
    pub seed: u64,
    /// What it is told of programs that wait.
    pub priority: Priority,
    /// Bytes that the end of a file's last request is a multiple of.
    pub page_bytes: u64,
}

/// The unit in which file systems of today read, bytes.
pub const PAGE_BYTES: u64 = 4096;
/// The TIP papers' number of prefetches at a disk.
pub const PREFETCHES_PER_DISK: usize = 5;
/// The TIP papers' stripe unit, 64 KB.
pub const STRIPE_UNIT_SECTORS: u64 = 64 * 1024 / SECTOR_BYTES;

impl ArraySpec {
    /// HP 97560 disks in 64 KB units, with SCAN (both ways) and five prefetches at a disk, much as the TIP papers' arrays.
    /// `sizes_bytes` are the files, one after another in the volume.
    pub fn hp97560(
        disks: usize,
        sizes_bytes: impl IntoIterator<Item = (foretell_policy::FileId, u64)>,
    ) -> Self {
        let disk = DiskParameters::hp97560();
        let striping = Striping::new(disks, STRIPE_UNIT_SECTORS);
        let volume_sectors = striping.volume_sectors(disk.capacity_sectors());
        let files = sizes_bytes.into_iter().map(|(file, bytes)| (FileId(file.0), bytes));
        ArraySpec {
            layout: Layout::sequential(volume_sectors, files),
            disk,
            disks,
            unit_sectors: STRIPE_UNIT_SECTORS,
            order: Order::Scan,
            prefetches_per_disk: PREFETCHES_PER_DISK,
            seed: 0,
            priority: Priority::Promotion,
            page_bytes: PAGE_BYTES,
        }
    }
}

/// Blocks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: Block,
    pub(super) blocks: u64,
}

/// Sizes of files, bytes.
pub(super) type Sizes = Arc<HashMap<foretell_policy::FileId, u64, Mix>>;

/// What a job brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Blocks(Run),
    Metadata(MetadataBlock),
}

/// A block of a file system that is not data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MetadataBlock {
    /// The one that holds the inode of a file.
    Inode(foretell_policy::FileId),
    /// One of the blocks of addresses of a file; its number is that of [`crate::layout::address_blocks`].
    Addresses(foretell_policy::FileId, u64),
    /// A block of a directory, which is placed as the first one of this file.
    Directory(foretell_policy::FileId),
}

impl Piece {
    /// How many blocks it is.
    pub(super) fn blocks(self) -> u64 {
        match self {
            Piece::Blocks(run) => run.blocks,
            Piece::Metadata(_) => 1,
        }
    }
}

/// A service that has begun: when it ends, and what to call it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) end: Nanos,
    pub(super) service: Key,
}

/// A job that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) job: Key,
    /// From its first dispatch to its end.
    pub(super) since_dispatch: Nanos,
    /// What has come of it: the worst that came of its requests.
    pub(super) arrival: Arrival,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    job: Key,
    /// Which of the job's requests it is.
    number: u32,
    request: Request,
    class: Class,
}

/// One disk: its queue, what is at the drive, and the drive.
struct Disk {
    device: Box<dyn Device>,
    health: Health,
    queue: DeviceQueue<Part>,
    /// Demand requests in the queue.
    demands_waiting: usize,
    /// Dispatched and not begun, oldest first.
    held: Held<Part>,
    /// Demand requests among them.
    demands_held: usize,
    serving: usize,
    /// So many of its slots begin nothing until they are released.
    held_back: usize,
    prefetches_dispatched: usize,
    prefetches_max: usize,
    /// Of requests that are done.
    busy_ns: u64,
    sectors: u64,
}

/// Of a job, each with its disk, and whether it was dispatched.
#[derive(Default)]
struct Requests {
    all: Vec<(DiskIndex, Request)>,
    is_dispatched: Vec<bool>,
}

struct Job {
    /// In the queue.
    class: Class,
    /// Whether a program waits for it, whatever its class.
    is_awaited: bool,
    parts_left: usize,
    blocks: u64,
    arrival: Arrival,
    requests: Requests,
    /// When the first of them was.
    dispatched: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct InService {
    disk: usize,
    part: Part,
    took: Nanos,
    arrival: Arrival,
}

enum Place {
    Nowhere,
    Volume { layout: Layout, striping: Striping, page_bytes: u64 },
}

/// A device of the machine; see the [module](self).
pub(super) struct Server {
    block_bytes: u64,
    /// Of files of which it is known.
    sizes_bytes: Sizes,
    priority: Priority,
    place: Place,
    disks: Vec<Disk>,
    /// Whether a slot of a disk that has ended a request waits to be released before its next.
    holds: bool,
    /// Disks of which a slot waits, longest first.
    held_back: VecDeque<usize>,
    jobs: Beside<Job>,
    in_service: Slab<InService>,
    /// Disks to which something has happened since they were last asked what they can begin.
    stirred: Vec<usize>,
    /// Room for the requests of jobs to come.
    spare: Vec<Requests>,
    report: DeviceReport,
}

impl Server {
    pub(super) fn new(spec: &DeviceSpec, block_bytes: u64, sizes_bytes: Sizes) -> Self {
        assert_eq!(block_bytes % SECTOR_BYTES, 0, "blocks are whole sectors");
        let priority = match spec {
            DeviceSpec::Flat { .. } => Priority::Promotion,
            DeviceSpec::Array(array) => array.priority,
        };
        let (place, disks) = match spec {
            DeviceSpec::Flat { latency, transfer, slots } => {
                let slots = slots.unwrap_or(usize::MAX);
                let device = flat(*latency, *transfer, slots, block_bytes);
                (Place::Nowhere, vec![Disk::new(device, Order::Fifo, slots)])
            }
            DeviceSpec::Array(array) => {
                let disk = |index: usize| {
                    let device = array.disk.device(array.seed.wrapping_add(index as u64));
                    Disk::new(device, array.order, array.prefetches_per_disk)
                };
                let striping = Striping::new(array.disks, array.unit_sectors);
                let page_bytes = array.page_bytes;
                let place = Place::Volume { layout: array.layout.clone(), striping, page_bytes };
                (place, (0..array.disks).map(disk).collect())
            }
        };
        Server {
            block_bytes,
            sizes_bytes,
            priority,
            place,
            disks,
            holds: false,
            held_back: VecDeque::new(),
            jobs: Beside::new(),
            in_service: Slab::new(),
            stirred: Vec::new(),
            spare: Vec::new(),
            report: DeviceReport::default(),
        }
    }

    /// What will be the matter with the disks, as those of `device`.
    pub(super) fn set_faults(&mut self, faults: &Faults, device: DeviceId) {
        for fault in faults.schedule.iter().filter(|fault| fault.device == device) {
            let (disks, exists) =
                (self.disks.len(), fault.disk.is_none_or(|disk| disk < self.disks.len()));
            assert!(exists, "{fault:?}, and {device:?} has {disks} disks");
        }
        for (index, disk) in self.disks.iter_mut().enumerate() {
            disk.health = Health::new(faults, device, index);
        }
    }

    /// Whether a slot of a disk that has ended a request begins its next only when it is [`release`](Self::release)d.
    pub(super) fn set_holds(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// The slot that has waited longest may begin its next request.
    pub(super) fn release(&mut self) {
        let disk = self.held_back.pop_front().expect("each service that ended is released once");
        self.disks[disk].held_back -= 1;
        self.stirred.push(disk);
    }

    /// Whether nothing is under way, nor waits.
    pub(super) fn is_idle(&self) -> bool {
        let disk_is_idle = |disk: &Disk| disk.serving == 0 && disk.held.is_empty();
        let nothing_waits = self.jobs.is_empty() && self.held_back.is_empty();
        nothing_waits && self.in_service.is_empty() && self.disks.iter().all(disk_is_idle)
    }

    /// What was here in vain will be tried again.
    pub(super) fn count_retry(&mut self) {
        self.report.retries += 1;
    }

    /// Takes a job in.
    pub(super) fn submit(&mut self, job: Key, class: Class, piece: Piece) {
        let is_awaited = class == Class::Demand;
        let class = if self.priority == Priority::None { Class::Prefetch } else { class };
        let mut requests = self.spare.pop().unwrap_or_default();
        self.requests(piece, &mut requests.all);
        for (number, &(DiskIndex(disk), request)) in (0..).zip(&requests.all) {
            self.disks[disk].push(Part { job, number, request, class });
            self.stirred.push(disk);
        }
        let parts_left = requests.all.len();
        requests.is_dispatched.resize(parts_left, false);
        let blocks = piece.blocks();
        let (dispatched, arrival) = (None, Arrival::Whole);
        let entry = Job { class, is_awaited, parts_left, blocks, arrival, requests, dispatched };
        let before = self.jobs.insert(job, entry);
        assert!(before.is_none(), "{job:?} came twice");
    }

    /// A program waits for `job` from now on.
    pub(super) fn promote(&mut self, job: Key) {
        let entry = self.jobs.get_mut(job).expect("only a job that is under way is waited for");
        if std::mem::replace(&mut entry.is_awaited, true) {
            return;
        }
        self.report.promoted += u64::from(entry.requests.is_dispatched.contains(&false));
        if self.priority != Priority::Promotion {
            return;
        }
        entry.class = Class::Demand;
        let Requests { all, is_dispatched } = &entry.requests;
        let queued = (0..).zip(all.iter().zip(is_dispatched));
        for (number, (&(DiskIndex(disk), request), _)) in queued.filter(|(_, (_, gone))| !**gone) {
            self.disks[disk].push(Part { job, number, request, class: Class::Demand });
            self.stirred.push(disk);
        }
    }

    /// Dispatches and begins what can be, and adds to `begun` when it will end.
    pub(super) fn begin(&mut self, now: Nanos, begun: &mut Vec<Begun>) {
        // The others have begun what they could, and nothing has come or gone since. (What is the matter with a disk
        // changes how long a service takes and what comes of it, not whether it may begin.) Disk by disk, as they are
        // numbered.
        let mut stirred = std::mem::take(&mut self.stirred);
        stirred.sort_unstable();
        stirred.dedup();
        for index in stirred.drain(..) {
            while !self.disks[index].is_held_back() {
                self.dispatch(index, now);
                let Some((part, took)) = self.disks[index].begin(now) else { break };
                let blocks = || self.jobs.get(part.job).expect("it lasts until it is done").blocks;
                let (took, arrival) = self.disks[index].health.serve(now, took, blocks);
                let begins = InService { disk: index, part, took, arrival };
                let service = self.in_service.insert(begins);
                begun.push(Begun { end: now + took, service });
            }
        }
        self.stirred = stirred;
    }

    /// A service has ended; the job if that was the last of it.
    pub(super) fn ended(&mut self, now: Nanos, service: Key) -> Option<Done> {
        let ended = self.in_service.remove(service);
        let InService { disk, part, took, arrival } =
            ended.expect("each service that has begun ends once");
        self.disks[disk].ended(part, took, arrival);
        if self.holds {
            self.disks[disk].held_back += 1;
            self.held_back.push_back(disk);
        }
        self.stirred.push(disk);
        self.report.failed_requests += u64::from(arrival == Arrival::Failed);
        self.report.short_requests += u64::from(matches!(arrival, Arrival::Short { .. }));
        let job = self.jobs.get_mut(part.job).expect("a job lasts until its last part is done");
        job.parts_left -= 1;
        job.arrival = job.arrival.min(arrival);
        if job.parts_left > 0 {
            return None;
        }
        let dispatched = job.dispatched.expect("what has ended was dispatched");
        let arrival = job.arrival;
        if let Some(Job { mut requests, .. }) = self.jobs.remove(part.job) {
            requests.all.clear();
            requests.is_dispatched.clear();
            self.spare.push(requests);
        }
        Some(Done { job: part.job, since_dispatch: now - dispatched, arrival })
    }

    /// What has come of it until `now`.
    pub(super) fn report(&self, device: u64, now: Nanos) -> DeviceReport {
        let occupied = self.disks.iter().map(|disk| disk.occupied_ns(now));
        DeviceReport {
            device,
            busy_ns: self.disks.iter().map(|disk| disk.busy_ns).sum(),
            occupied_ns: occupied.clone().sum(),
            busiest_disk_ns: occupied.max().unwrap_or(0),
            bytes: self.disks.iter().map(|disk| disk.sectors * SECTOR_BYTES).sum(),
            ..self.report
        }
    }

    /// What tells blocks of metadata apart: files whose inodes lie in the same one have it in common.
    pub(super) fn identity(&self, metadata: MetadataBlock) -> MetadataBlock {
        match (metadata, &self.place) {
            (MetadataBlock::Inode(file), Place::Volume { layout, .. }) => {
                MetadataBlock::Inode(foretell_policy::FileId(layout.inode_block(FileId(file.0))))
            }
            _ => metadata,
        }
    }

    /// Adds the requests that bring `piece` to `parts`, each with its disk.
    fn requests(&self, piece: Piece, parts: &mut Vec<(DiskIndex, Request)>) {
        let Place::Volume { layout, striping, page_bytes } = &self.place else {
            let bytes = match piece {
                Piece::Blocks(run) => run.blocks * self.block_bytes,
                Piece::Metadata(MetadataBlock::Inode(_)) => PAGE_BYTES,
                Piece::Metadata(MetadataBlock::Addresses(..) | MetadataBlock::Directory(_)) => {
                    self.block_bytes
                }
            };
            let request = Request { sector: 0, sectors: bytes / SECTOR_BYTES };
            return parts.push((DiskIndex(0), request));
        };
        match piece {
            Piece::Blocks(run) => {
                let first = run.first.index * self.block_bytes;
                let end = first + run.blocks * self.block_bytes;
                let size = self.sizes_bytes.get(&run.first.file);
                let last = size.map_or(end, |size| size.next_multiple_of(*page_bytes));
                // What lies beyond the end of a file that was read all the same is taken to exist.
                let end = if last > first { end.min(last) } else { end };
                let extents = layout.extents(FileId(run.first.file.0), first, end - first);
                striping.split_into(extents, parts);
            }
            Piece::Metadata(MetadataBlock::Inode(file)) => {
                striping.split_into(layout.inode(FileId(file.0)), parts);
            }
            Piece::Metadata(MetadataBlock::Addresses(file, number)) => {
                striping.split_into(layout.addresses(FileId(file.0), number), parts);
            }
            Piece::Metadata(MetadataBlock::Directory(block)) => {
                let extents = layout.extents(FileId(block.0), 0, self.block_bytes);
                striping.split_into(extents, parts);
            }
        }
    }

    /// Hands over to a drive what the rules allow.
    fn dispatch(&mut self, index: usize, now: Nanos) {
        let disk = &mut self.disks[index];
        while disk.may_dispatch() {
            let Some((class, _, part)) = disk.queue.pop() else { return };
            disk.queue.completed();
            disk.demands_waiting -= usize::from(class == Class::Demand);
            let Some(job) = self.jobs.get_mut(part.job) else { continue };
            let is_dispatched = &mut job.requests.is_dispatched[part.number as usize];
            if job.class != part.class || std::mem::replace(is_dispatched, true) {
                continue; // Promoted since.
            }
            job.dispatched.get_or_insert(now);
            match job.is_awaited {
                true => self.report.demand_requests += 1,
                false => self.report.prefetch_requests += 1,
            }
            if class == Class::Prefetch {
                assert_eq!(disk.demands_waiting, 0, "a prefetch overtakes a demand request");
                disk.prefetches_dispatched += 1;
            }
            disk.demands_held += usize::from(part.class == Class::Demand);
            disk.held.push(part.request, part);
        }
    }
}

impl Disk {
    fn new(device: Box<dyn Device>, order: Order, prefetches_max: usize) -> Self {
        Disk {
            device,
            health: Health::default(),
            queue: DeviceQueue::new(order, usize::MAX),
            demands_waiting: 0,
            held: Held::default(),
            demands_held: 0,
            serving: 0,
            held_back: 0,
            prefetches_dispatched: 0,
            prefetches_max: prefetches_max.max(1),
            busy_ns: 0,
            sectors: 0,
        }
    }

    /// For how long, until `now`, it could have done no more than it did: of its slots on average, or of its link.
    fn occupied_ns(&self, now: Nanos) -> u64 {
        (self.busy_ns / self.device.slots() as u64).max(self.device.link_time(now).0)
    }

    fn push(&mut self, part: Part) {
        self.demands_waiting += usize::from(part.class == Class::Demand);
        self.queue.push(part.class, self.device.position_of(part.request.sector), part);
    }

    /// Whether the head of the queue may go to the drive: demands at once; a prefetch while there are fewer than so many of them
    /// there, and no demand. TIP 1995, section 3.1, counts all outstanding requests, so that a prefetch may follow
    /// a demand to the drive; here it waits.
    fn may_dispatch(&self) -> bool {
        self.demands_waiting > 0
            || self.prefetches_dispatched < self.prefetches_max && self.demands_held == 0
    }

    /// Whether all its slots wait to be released.
    fn is_held_back(&self) -> bool {
        self.held_back >= self.device.slots()
    }

    /// Begins what the drive chooses, and says how long it takes.
    fn begin(&mut self, now: Nanos) -> Option<(Part, Nanos)> {
        if self.serving + self.held_back >= self.device.slots() {
            return None;
        }
        let part = self.held.take_next(self.device.as_ref(), now)?;
        self.demands_held -= usize::from(part.class == Class::Demand);
        let took = self.device.service(now, part.request).total();
        self.serving += 1;
        Some((part, took))
    }

    fn ended(&mut self, part: Part, took: Nanos, arrival: Arrival) {
        self.busy_ns += took.0;
        self.sectors += if arrival == Arrival::Failed { 0 } else { part.request.sectors };
        self.serving -= 1;
        self.prefetches_dispatched -= usize::from(part.class == Class::Prefetch);
    }
}

/// A device on which every block takes `transfer` after `latency`.
fn flat(latency: Nanos, transfer: Nanos, slots: usize, block_bytes: u64) -> Box<dyn Device> {
    let spec = FlatSpec {
        latency: Latency::Constant { latency_ms: latency.as_millis() },
        // Infinite if the transfer takes no time.
        bandwidth_bytes_per_s: block_bytes as f64 / transfer.as_secs(),
        link_bytes_per_s: f64::INFINITY,
        slots: slots.max(1),
        capacity_sectors: u64::MAX,
    };
    Box::new(Flat::new(spec, 0))
}

#[cfg(test)]
mod tests;
