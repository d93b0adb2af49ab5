//! Servers of devices: queues, and the modelled disks behind them.
//!
//! A *job* is a fetch, a read of metadata, or a read around the cache. It becomes one request for each disk and contiguous
//! piece, and is done when the last of them is. A request waits in the disk's queue until it is dispatched to the drive. The
//! drive serves the request first that it can begin soonest.
//!
//! Rules, for each disk:
//! * A demand request, which a program waits for, is dispatched at once.
//! * Prefetches are dispatched in the queue's order, while fewer than the limit are at the drive and no demand request waits
//!   there.
//! * A prefetch is promoted when a program begins to wait for it: its requests that are not dispatched become demand requests.
//!   (Their old places in the queue are skipped at their turns.)
//!
//! So a demand request never waits for a prefetch that was dispatched after its arrival.
//!
//! Disks may have [faults](super::fault). The outcome of a request is drawn when it begins. A job has the worst outcome of its
//! requests.
//!
//! A server has no clock. It is told `now`, returns the ends of services that it begins, and is called at these ends.

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

/// A device of the machine.
#[derive(Clone, Debug)]
pub enum DeviceSpec {
    /// Latency, then transfer, independent of places.
    Flat {
        /// Time before the first block of a request.
        latency: Nanos,
        /// Time of each block.
        transfer: Nanos,
        /// Requests served side by side; `None`: any number.
        slots: Option<usize>,
    },
    /// Disks behind a striping driver.
    Array(Box<ArraySpec>),
}

/// What an array knows of programs that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Nothing, as behind a kernel: all requests are alike and stay in the queue's order.
    None,
    /// Whether a program waits for a request when it arrives.
    Arrival,
    /// Also when a program begins to wait for a prefetch.
    Promotion,
}

/// Disks behind a striping driver.
#[derive(Clone, Debug)]
pub struct ArraySpec {
    /// The model of each disk.
    pub disk: DiskParameters,
    /// The number of disks.
    pub disks: usize,
    /// Sectors in a stripe unit.
    pub unit_sectors: u64,
    /// The places of files in the volume.
    pub layout: Layout,
    /// The order of prefetches in each disk's queue.
    pub order: Order,
    /// Bound of prefetches dispatched to a disk and not done.
    pub prefetches_per_disk: usize,
    /// Seed of devices that draw their latencies.
    pub seed: u64,
    /// What it knows of programs that wait.
    pub priority: Priority,
    /// The last request of a file ends at a multiple of so many bytes.
    pub page_bytes: u64,
}

/// Bytes of the unit in which file systems of today read.
pub const PAGE_BYTES: u64 = 4096;
/// Prefetches at a disk in the TIP papers.
pub const PREFETCHES_PER_DISK: usize = 5;
/// The stripe unit of the TIP papers, 64 KB.
pub const STRIPE_UNIT_SECTORS: u64 = 64 * 1024 / SECTOR_BYTES;

impl ArraySpec {
    /// HP 97560 disks in 64 KB units, with SCAN (both ways) and five prefetches at a disk, similar to the TIP papers' arrays.
    /// `sizes_bytes` are the files, which lie one after another in the volume.
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

/// The blocks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Blocks(Run),
    Metadata(MetadataBlock),
}

/// A block of a file system that is not data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MetadataBlock {
    /// The block that holds the inode of a file.
    Inode(foretell_policy::FileId),
    /// A block of addresses of a file, numbered as in [`crate::layout::address_blocks`].
    Addresses(foretell_policy::FileId, u64),
    /// A block of a directory. It lies where this file's first block does.
    Directory(foretell_policy::FileId),
}

impl Piece {
    /// The number of its blocks.
    pub(super) fn blocks(self) -> u64 {
        match self {
            Piece::Blocks(run) => run.blocks,
            Piece::Metadata(_) => 1,
        }
    }
}

/// A service that has begun: its end, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) end: Nanos,
    pub(super) service: Key,
}

/// A job that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) job: Key,
    /// Time from the job's first dispatch to its end.
    pub(super) since_dispatch: Nanos,
    /// The worst outcome of its requests.
    pub(super) arrival: Arrival,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    job: Key,
    /// Its number among the job's requests.
    number: u32,
    request: Request,
    class: Class,
}

/// One disk: its queue, the requests at the drive, and the drive.
struct Disk {
    device: Box<dyn Device>,
    health: Health,
    queue: DeviceQueue<Part>,
    /// Demand requests in the queue.
    demands_waiting: usize,
    /// Requests dispatched and not begun, oldest first.
    held: Held<Part>,
    /// Demand requests among them.
    demands_held: usize,
    serving: usize,
    /// Number of its slots that wait to be released.
    held_back: usize,
    prefetches_dispatched: usize,
    prefetches_max: usize,
    /// Time of service of finished requests, and their sectors.
    busy_ns: u64,
    sectors: u64,
}

/// The requests of a job, each with its disk, and whether it was dispatched.
#[derive(Default)]
struct Requests {
    all: Vec<(DiskIndex, Request)>,
    is_dispatched: Vec<bool>,
}

struct Job {
    /// Its class in the queue.
    class: Class,
    /// Whether a program waits for it, whatever its class.
    is_awaited: bool,
    parts_left: usize,
    blocks: u64,
    arrival: Arrival,
    requests: Requests,
    /// When the first request was dispatched.
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
    /// Sizes of files, where known.
    sizes_bytes: Sizes,
    priority: Priority,
    place: Place,
    disks: Vec<Disk>,
    /// Whether a slot that has ended a request waits to be released before its next.
    holds: bool,
    /// Disks with a waiting slot, longest wait first.
    held_back: VecDeque<usize>,
    jobs: Beside<Job>,
    in_service: Slab<InService>,
    /// Disks with changes since they last began requests.
    stirred: Vec<usize>,
    /// Empty lists, kept for their room.
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

    /// Sets the faults of the disks, which are those of `device`.
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

    /// Sets whether a slot that has ended a request begins its next only when it is [`release`](Self::release)d.
    pub(super) fn set_holds(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// Lets the slot that has waited longest begin its next request.
    pub(super) fn release(&mut self) {
        let disk = self.held_back.pop_front().expect("each service that ended is released once");
        self.disks[disk].held_back -= 1;
        self.stirred.push(disk);
    }

    /// Whether no request is in flight or waits.
    pub(super) fn is_idle(&self) -> bool {
        let disk_is_idle = |disk: &Disk| disk.serving == 0 && disk.held.is_empty();
        let nothing_waits = self.jobs.is_empty() && self.held_back.is_empty();
        nothing_waits && self.in_service.is_empty() && self.disks.iter().all(disk_is_idle)
    }

    /// Counts a job that will be tried again.
    pub(super) fn count_retry(&mut self) {
        self.report.retries += 1;
    }

    /// Adds a job.
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

    /// Dispatches and begins all requests that it can. Adds their ends to `begun`.
    pub(super) fn begin(&mut self, now: Nanos, begun: &mut Vec<Begun>) {
        // Other disks have nothing new to begin. (Faults change the times and outcomes of services, not whether they may
        // begin.) In the order of the disks' numbers.
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

    /// A service has ended. Returns the job if it is done.
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

    /// The report of the device at `now`.
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

    /// The identity of a block of metadata: files with their inodes in the same block share it.
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
                // Blocks that are read beyond the end of a file are taken to exist.
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

    /// Dispatches the requests that the rules allow to a drive.
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

    /// Busy time until `now`: of its slots on average, or of its link, whichever is longer.
    fn occupied_ns(&self, now: Nanos) -> u64 {
        (self.busy_ns / self.device.slots() as u64).max(self.device.link_time(now).0)
    }

    fn push(&mut self, part: Part) {
        self.demands_waiting += usize::from(part.class == Class::Demand);
        self.queue.push(part.class, self.device.position_of(part.request.sector), part);
    }

    /// Whether the head of the queue may go to the drive: a demand request at once, a prefetch while fewer than the limit and
    /// no demand request wait there. In TIP 1995, section 3.1, all outstanding requests count, so that a prefetch may follow
    /// a demand request to the drive; here it waits.
    fn may_dispatch(&self) -> bool {
        self.demands_waiting > 0
            || self.prefetches_dispatched < self.prefetches_max && self.demands_held == 0
    }

    /// Whether all its slots wait to be released.
    fn is_held_back(&self) -> bool {
        self.held_back >= self.device.slots()
    }

    /// Begins the request that the drive chooses. Returns it and its time.
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

/// A flat device: `latency` before the first block of a request, and `transfer` for each block.
fn flat(latency: Nanos, transfer: Nanos, slots: usize, block_bytes: u64) -> Box<dyn Device> {
    let spec = FlatSpec {
        latency: Latency::Constant { latency_ms: latency.as_millis() },
        // Infinite bandwidth if a transfer takes no time.
        bandwidth_bytes_per_s: block_bytes as f64 / transfer.as_secs(),
        link_bytes_per_s: f64::INFINITY,
        slots: slots.max(1),
        capacity_sectors: u64::MAX,
    };
    Box::new(Flat::new(spec, 0))
}

#[cfg(test)]
mod tests;
