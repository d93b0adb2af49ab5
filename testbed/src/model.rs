//! The array in its own time: the striper's queues, the drives, and when each request is done.
//!
//! The model has no thread and no clock; the scheduler tells it the time. A *job* is one read or write of the file
//! system: requests to one or more disks, and a task that is handed back when the last request is done.
//!
//! * Requests that arrive for a disk wait in the striper's queue (`foretell_policy::queue`, in the array's order).
//!   The shortest seek (SSTF) is counted in cylinders, and what the drive's cache holds needs none, as in `foretell sim
//!   collective`.
//! * Up to `outstanding` requests are at the drive, which serves next the one that it can begin soonest.
//! * A disk that completes a request at time t begins the next at t, however late the scheduler notices. So the array's
//!   time does not drift.
//! * All requests have the queue's class *demand*, because a file system does not see whether a program waits for a read.
//!
//! Invariants: a disk is idle only if nothing waits for it. The caller completes everything due before it submits, so
//! the model never sees time go back. Every job is handed back exactly once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foretell_policy::Nanos;
use foretell_policy::queue::{Class, DeviceQueue, Order};
use foretell_sim::array::DiskIndex;
use foretell_sim::device::held::Held;
use foretell_sim::device::{Device, DiskParameters, Request, Service, place_in_queue};
use foretell_sim::layout::BLOCK_SECTORS;

use crate::options::ArrayOptions;
use crate::report::{Report, Statistics};

/// Identifies a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct JobId(u64);

/// What a job does with its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// One request of a job.
#[derive(Clone, Copy, Debug)]
struct Part {
    job: JobId,
    request: Request,
    access: Access,
}

/// A request in service.
#[derive(Clone, Copy, Debug)]
struct InService {
    part: Part,
    service: Service,
}

struct Disk {
    device: Box<dyn Device>,
    queue: DeviceQueue<Part>,
    /// Requests at the drive that it has not begun, oldest first.
    held: Held<Part>,
    serving: usize,
}

/// The disks of an array and their jobs. `T` is the task to hand back when a job is done.
pub(crate) struct ArrayModel<T> {
    disks: Vec<Disk>,
    jobs: HashMap<JobId, (usize, T)>,
    next_job: u64,
    /// Ends of service: time, serial number of the service, disk.
    ends: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    in_service: HashMap<u64, InService>,
    next_service: u64,
    statistics: Statistics,
    time_scale: f64,
    parameters: DiskParameters,
    order: Order,
}

impl<T> ArrayModel<T> {
    pub(crate) fn new(options: &ArrayOptions) -> Self {
        let disks: Vec<Disk> = (0..options.disks)
            .map(|index| {
                let device = options.disk.device(options.seed.wrapping_add(index as u64));
                let outstanding = options.outstanding.max(device.slots());
                let queue = DeviceQueue::new(options.order, outstanding);
                Disk { device, queue, held: Held::default(), serving: 0 }
            })
            .collect();
        ArrayModel {
            statistics: Statistics::new(disks.iter().map(|disk| disk.device.slots())),
            disks,
            jobs: HashMap::new(),
            next_job: 0,
            ends: BinaryHeap::new(),
            in_service: HashMap::new(),
            next_service: 0,
            time_scale: options.time_scale,
            parameters: options.disk.clone(),
            order: options.order,
        }
    }

    /// Takes in a job that arrives at `now`. Hands its task straight back if it needs no disk.
    pub(crate) fn submit(
        &mut self,
        now: Nanos,
        (access, requests): (Access, &[(DiskIndex, Request)]),
        task: T,
    ) -> Option<T> {
        if requests.is_empty() {
            return Some(task);
        }
        let job = JobId(self.next_job);
        self.next_job += 1;
        self.jobs.insert(job, (requests.len(), task));
        for &(DiskIndex(index), request) in requests {
            let disk = &mut self.disks[index];
            let (position, rank) =
                place_in_queue(&self.parameters, self.order, request.sector, disk.device.as_ref());
            disk.queue.push_ranked(Class::Demand, position, rank, Part { job, request, access });
            let length = disk.queue.len() + disk.held.len() + disk.serving;
            self.statistics.queued(index, length);
        }
        for &(DiskIndex(index), _) in requests {
            self.begin(index, now);
        }
        None
    }

    /// When the next request will be done.
    pub(crate) fn next_end(&self) -> Option<Nanos> {
        self.ends.peek().map(|Reverse((end, ..))| *end)
    }

    /// Completes everything that is done by `now`, in order, and passes on the task of each finished job.
    pub(crate) fn advance(&mut self, now: Nanos, mut done: impl FnMut(T)) {
        while self.next_end().is_some_and(|end| end <= now) {
            let Some(Reverse((end, serial, index))) = self.ends.pop() else { break };
            let ended = self.in_service.remove(&serial);
            let InService { part, service } = ended.expect("invariant: each end has its service");
            self.statistics.served(index, end, (part.access, part.request), &service);
            let disk = &mut self.disks[index];
            disk.serving -= 1;
            disk.queue.completed();
            self.begin(index, end);
            if let Some(task) = self.part_done(part.job) {
                done(task);
            }
        }
    }

    /// Gives up all jobs and returns their tasks, when the array is taken down.
    pub(crate) fn abandon(&mut self) -> Vec<T> {
        self.ends.clear();
        self.jobs.drain().map(|(_, (_, task))| task).collect()
    }

    /// Whether no job is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn statistics_mut(&mut self) -> &mut Statistics {
        &mut self.statistics
    }

    pub(crate) fn report(&self, now: Nanos) -> Report {
        self.statistics.report(now, self.time_scale)
    }

    fn part_done(&mut self, job: JobId) -> Option<T> {
        let (parts_left, _) = self.jobs.get_mut(&job)?;
        *parts_left -= 1;
        if *parts_left > 0 {
            return None;
        }
        self.jobs.remove(&job).map(|(_, task)| task)
    }

    /// Lets a disk begin as many requests at `now` as it can.
    fn begin(&mut self, index: usize, now: Nanos) {
        let disk = &mut self.disks[index];
        let cached = disk.device.cached();
        let place =
            |sector| place_in_queue(&self.parameters, self.order, sector, disk.device.as_ref());
        // Requests whose first block the drive's cache holds need no seek.
        let end = (cached.end + 1).saturating_sub(BLOCK_SECTORS);
        let held = place(cached.start)..place(end.max(cached.start));
        while let Some((_, _, part)) = disk.queue.pop_holding(held.clone()) {
            disk.held.push(part.request, part);
        }
        while disk.serving < disk.device.slots()
            && let Some(part) = disk.held.take_next(disk.device.as_ref(), now)
        {
            let service = match part.access {
                Access::Read => disk.device.service(now, part.request),
                Access::Write => disk.device.write(now, part.request),
            };
            disk.serving += 1;
            let serial = self.next_service;
            self.next_service += 1;
            self.in_service.insert(serial, InService { part, service });
            self.ends.push(Reverse((now + service.total(), serial, index)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_sim::random::SplitMix64;

    fn options(disks: usize, order: Order, outstanding: usize) -> ArrayOptions {
        ArrayOptions { disks, order, outstanding, ..ArrayOptions::default() }
    }

    fn scattered(count: usize, disks: u64) -> Vec<(DiskIndex, Request)> {
        let mut random = SplitMix64::new(11);
        let place = |_| {
            let disk = DiskIndex(random.below(disks) as usize);
            (disk, Request { sector: random.below(160_000) * 16, sectors: 16 })
        };
        (0..count).map(place).collect()
    }

    /// Serves everything and returns the time of the last end and the report.
    fn drain(model: &mut ArrayModel<usize>) -> (Nanos, Report) {
        let mut now = Nanos::ZERO;
        while let Some(end) = model.next_end() {
            now = end;
            model.advance(now, |_| ());
        }
        (now, model.report(now))
    }

    fn all_at_once(options: &ArrayOptions, count: usize) -> (Nanos, Report) {
        let mut model = ArrayModel::new(options);
        for (task, request) in scattered(count, options.disks as u64).into_iter().enumerate() {
            model.submit(Nanos::ZERO, (Access::Read, &[request]), task);
        }
        drain(&mut model)
    }

    #[test]
    fn scan_travels_less_than_fifo() {
        let (fifo_end, fifo) = all_at_once(&options(1, Order::Fifo, 1), 300);
        let (scan_end, scan) = all_at_once(&options(1, Order::Scan, 1), 300);
        let travelled = |report: &Report| report.disks[0].cylinders_travelled;
        assert!(travelled(&scan) * 10 < travelled(&fifo));
        assert!(scan_end < fifo_end);
        // To the first request at once, then once up and once down.
        assert!(travelled(&scan) <= 2 * 1962);
    }

    #[test]
    fn a_drive_that_holds_more_chooses_better() {
        let (one, _) = all_at_once(&options(1, Order::Fifo, 1), 300);
        let (five, _) = all_at_once(&options(1, Order::Fifo, 5), 300);
        assert!(five.0 * 4 < one.0 * 3, "{five} {one}");
    }

    #[test]
    fn disks_work_side_by_side() {
        let (one, _) = all_at_once(&options(1, Order::Fifo, 1), 400);
        let (eight, report) = all_at_once(&options(8, Order::Fifo, 1), 400);
        assert!(eight.0 * 5 < one.0);
        assert_eq!(report.requests, 400);
        assert!(report.disks.iter().all(|disk| disk.requests > 20));
        // Every disk was busy from the start to its own end.
        assert!((report.busiest_disk_s - eight.as_secs()).abs() < 1e-9);
    }

    #[test]
    fn a_job_ends_with_its_last_part_and_only_once() {
        let mut model = ArrayModel::new(&options(2, Order::Scan, 5));
        let near = (DiskIndex(0), Request { sector: 0, sectors: 8 });
        let far = (DiskIndex(1), Request { sector: 2_000_000, sectors: 64 });
        assert!(model.submit(Nanos::ZERO, (Access::Read, &[near, far]), 7).is_none());
        let mut done = Vec::new();
        let first = model.next_end().expect("two are under way");
        model.advance(first, |task| done.push(task));
        assert!(done.is_empty());
        model.advance(Nanos::from_secs(10.0), |task| done.push(task));
        assert_eq!(done, [7]);
        assert!(model.is_idle() && model.next_end().is_none());
    }

    #[test]
    fn noticing_late_costs_the_disk_nothing() {
        let serve = |step: Nanos| {
            let mut model = ArrayModel::new(&options(1, Order::Scan, 5));
            for (task, request) in scattered(50, 1).into_iter().enumerate() {
                model.submit(Nanos::ZERO, (Access::Read, &[request]), task);
            }
            let mut now = Nanos::ZERO;
            while !model.is_idle() {
                now += step;
                model.advance(now, |_| ());
            }
            let report = model.report(now);
            (report.disks[0].busy_s, report.disks[0].cylinders_travelled)
        };
        assert_eq!(serve(Nanos::from_millis(0.1)), serve(Nanos::from_secs(5.0)));
    }

    #[test]
    fn writes_move_the_arm_and_are_counted_apart_from_reads() {
        let mut model = ArrayModel::new(&options(1, Order::Fifo, 1));
        // Read-ahead would serve the second request if it were a read.
        let first = (DiskIndex(0), Request { sector: 0, sectors: 8 });
        let next = (DiskIndex(0), Request { sector: 8, sectors: 8 });
        for (access, request) in [(Access::Read, first), (Access::Write, next)] {
            model.submit(model.next_end().unwrap_or(Nanos::ZERO), (access, &[request]), 0);
        }
        let (_, report) = drain(&mut model);
        assert_eq!((report.requests, report.writes), (2, 1));
        assert_eq!((report.bytes, report.bytes_written), (4096, 4096));
        assert_eq!(report.disks[0].cache_hits, 0);
    }

    #[test]
    fn flat_devices_use_their_slots() {
        let disk = foretell_sim::device::DiskParameters::by_name("network").expect("built in");
        let network = ArrayOptions { disks: 1, disk, ..ArrayOptions::default() };
        let (end, report) = all_at_once(&network, 320);
        assert!(end < Nanos::from_millis(40.0), "{end}");
        assert!(report.disks[0].busy_share.iter().all(|share| *share <= 1.0 + 1e-9));
    }
}
