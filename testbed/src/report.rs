//! What the disks did: counters, times, and a timeline to plot.

use foretell_policy::Nanos;
use foretell_sim::device::{Request, Service};
use serde::{Deserialize, Serialize};

use crate::model::Access;

/// Bins of a timeline. When more are needed, their width doubles.
const BINS_MAX: usize = 2048;
/// The first width of a bin, 10 ms.
const BIN_FIRST: Nanos = Nanos(10_000_000);

/// What an array did since it was mounted or its statistics were reset.
///
/// Seconds are those of the array's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Real seconds in one second of the array's clock.
    pub time_scale: f64,
    /// Length of the reported time.
    pub elapsed_s: f64,
    /// Requests to all disks, reads and writes.
    pub requests: u64,
    /// Requests to all disks that wrote.
    pub writes: u64,
    /// Bytes read from all disks.
    pub bytes: u64,
    /// Bytes written to all disks.
    pub bytes_written: u64,
    /// Requests for which an arm moved.
    pub seeks: u64,
    /// Reads for inodes and folders, not for data.
    pub metadata_reads: u64,
    /// Changes of names and attributes, each of which wrote blocks of inodes and folders.
    pub metadata_writes: u64,
    /// Busy time of the busiest disk. No run over this array can be shorter.
    pub busiest_disk_s: f64,
    /// Whether a program still used the array when it was unmounted. The detached array then serves that program until
    /// it ends.
    pub in_use_after_unmount: bool,
    /// Width of a bin in each disk's `busy_share`.
    pub bin_s: f64,
    /// Each disk.
    pub disks: Vec<DiskReport>,
}

/// What one disk did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Requests done, reads and writes.
    pub requests: u64,
    /// Requests done that wrote.
    pub writes: u64,
    /// Sectors of 512 bytes read.
    pub sectors: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time spent on requests. For a device of several slots, the mean over its slots.
    pub busy_s: f64,
    /// Part of `busy_s`: in the controller, or before the first byte of a flat device.
    pub overhead_s: f64,
    /// Part of `busy_s`: moving the arm and switching heads.
    pub seek_s: f64,
    /// Part of `busy_s`: waiting for the platter to turn.
    pub rotation_s: f64,
    /// Part of `busy_s`: transferring data.
    pub transfer_s: f64,
    /// Requests for which the arm moved.
    pub seeks: u64,
    /// How far the arm moved in all.
    pub cylinders_travelled: u64,
    /// Requests whose first sector was in the drive's read-ahead cache.
    pub cache_hits: u64,
    /// The most requests that were waiting or in service at once.
    pub queue_max: u64,
    /// Share of each bin (see [`Report::bin_s`]) in which the disk was busy, from 0 to 1.
    pub busy_share: Vec<f64>,
}

/// The counters behind a [`Report`].
#[derive(Debug)]
pub(crate) struct Statistics {
    since: Nanos,
    bin: Nanos,
    metadata_reads: u64,
    metadata_writes: u64,
    disks: Vec<DiskStatistics>,
}

#[derive(Clone, Debug)]
struct DiskStatistics {
    slots: u64,
    requests: u64,
    writes: u64,
    sectors: u64,
    sectors_written: u64,
    overhead: Nanos,
    seek: Nanos,
    rotation: Nanos,
    transfer: Nanos,
    seeks: u64,
    cylinders_travelled: u64,
    cache_hits: u64,
    queue_max: u64,
    /// Busy nanoseconds in each bin.
    busy: Vec<u64>,
}

impl DiskStatistics {
    fn new(slots: u64) -> Self {
        DiskStatistics {
            slots,
            requests: 0,
            writes: 0,
            sectors: 0,
            sectors_written: 0,
            overhead: Nanos::ZERO,
            seek: Nanos::ZERO,
            rotation: Nanos::ZERO,
            transfer: Nanos::ZERO,
            seeks: 0,
            cylinders_travelled: 0,
            cache_hits: 0,
            queue_max: 0,
            busy: Vec::new(),
        }
    }

    fn report(&self, bin: Nanos) -> DiskReport {
        let slots = self.slots as f64;
        let part = |time: Nanos| time.as_secs() / slots;
        let busy = self.overhead + self.seek + self.rotation + self.transfer;
        let share = |&nanos: &u64| nanos as f64 / (bin.0 as f64 * slots);
        DiskReport {
            requests: self.requests,
            writes: self.writes,
            sectors: self.sectors,
            bytes: self.sectors * foretell_sim::SECTOR_BYTES,
            bytes_written: self.sectors_written * foretell_sim::SECTOR_BYTES,
            busy_s: part(busy),
            overhead_s: part(self.overhead),
            seek_s: part(self.seek),
            rotation_s: part(self.rotation),
            transfer_s: part(self.transfer),
            seeks: self.seeks,
            cylinders_travelled: self.cylinders_travelled,
            cache_hits: self.cache_hits,
            queue_max: self.queue_max,
            busy_share: self.busy.iter().map(share).collect(),
        }
    }
}

impl Statistics {
    /// Counters at zero for devices with these numbers of slots.
    pub(crate) fn new(slots: impl IntoIterator<Item = usize>) -> Self {
        let disks = slots.into_iter().map(|slots| DiskStatistics::new(slots as u64)).collect();
        Statistics {
            since: Nanos::ZERO,
            bin: BIN_FIRST,
            metadata_reads: 0,
            metadata_writes: 0,
            disks,
        }
    }

    /// Resets everything at `now`. A request in service counts as a whole when it ends.
    pub(crate) fn reset(&mut self, now: Nanos) {
        for disk in &mut self.disks {
            *disk = DiskStatistics::new(disk.slots);
        }
        *self = Statistics {
            since: now,
            bin: BIN_FIRST,
            metadata_reads: 0,
            metadata_writes: 0,
            disks: std::mem::take(&mut self.disks),
        };
    }

    pub(crate) fn queued(&mut self, disk: usize, length: usize) {
        let disk = &mut self.disks[disk];
        disk.queue_max = disk.queue_max.max(length as u64);
    }

    pub(crate) fn metadata_read(&mut self) {
        self.metadata_reads += 1;
    }

    pub(crate) fn metadata_written(&mut self) {
        self.metadata_writes += 1;
    }

    /// Counts a request that took `service` and ended at `end`.
    pub(crate) fn served(
        &mut self,
        disk: usize,
        end: Nanos,
        (access, request): (Access, Request),
        service: &Service,
    ) {
        let counters = &mut self.disks[disk];
        counters.requests += 1;
        match access {
            Access::Read => counters.sectors += request.sectors,
            Access::Write => {
                counters.writes += 1;
                counters.sectors_written += request.sectors;
            }
        }
        counters.overhead += service.overhead;
        counters.seek += service.seek;
        counters.rotation += service.rotation;
        counters.transfer += service.transfer;
        counters.seeks += u64::from(service.cylinders_travelled > 0);
        counters.cylinders_travelled += service.cylinders_travelled;
        counters.cache_hits += u64::from(service.cache_hit);
        self.mark_busy(disk, end - service.total(), end);
    }

    fn mark_busy(&mut self, disk: usize, start: Nanos, end: Nanos) {
        let (mut at, end) = (start.saturating_sub(self.since).0, end.saturating_sub(self.since).0);
        while end > self.bin.0 * BINS_MAX as u64 {
            self.widen();
        }
        let bins = &mut self.disks[disk].busy;
        while at < end {
            let bin = (at / self.bin.0) as usize;
            let upto = end.min((bin as u64 + 1) * self.bin.0);
            if bins.len() <= bin {
                bins.resize(bin + 1, 0);
            }
            bins[bin] += upto - at;
            at = upto;
        }
    }

    fn widen(&mut self) {
        self.bin = self.bin + self.bin;
        for disk in &mut self.disks {
            disk.busy = disk.busy.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }

    pub(crate) fn report(&self, now: Nanos, time_scale: f64) -> Report {
        let disks: Vec<DiskReport> = self.disks.iter().map(|disk| disk.report(self.bin)).collect();
        Report {
            time_scale,
            elapsed_s: now.saturating_sub(self.since).as_secs(),
            requests: disks.iter().map(|disk| disk.requests).sum(),
            writes: disks.iter().map(|disk| disk.writes).sum(),
            bytes: disks.iter().map(|disk| disk.bytes).sum(),
            bytes_written: disks.iter().map(|disk| disk.bytes_written).sum(),
            seeks: disks.iter().map(|disk| disk.seeks).sum(),
            metadata_reads: self.metadata_reads,
            metadata_writes: self.metadata_writes,
            busiest_disk_s: disks.iter().map(|disk| disk.busy_s).fold(0.0, f64::max),
            in_use_after_unmount: false,
            bin_s: self.bin.as_secs(),
            disks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_its_sum_however_often_it_widens() {
        let mut statistics = Statistics::new([1, 1]);
        let request = Request { sector: 0, sectors: 8 };
        for i in 0..10_000u64 {
            let service = Service { transfer: Nanos::from_millis(3.0), ..Service::default() };
            let end = Nanos::from_millis(i as f64 * 7.0 + 3.0);
            statistics.served((i % 2) as usize, end, (Access::Read, request), &service);
        }
        let report = statistics.report(Nanos::from_secs(70.0), 1.0);
        for disk in &report.disks {
            let sum: f64 = disk.busy_share.iter().map(|share| share * report.bin_s).sum();
            assert!((sum - 15.0).abs() < 1e-6 && (disk.busy_s - 15.0).abs() < 1e-6, "{sum}");
            assert!(disk.busy_share.len() <= BINS_MAX);
            assert!(disk.busy_share.iter().all(|share| (0.0..=1.0).contains(share)));
        }
        statistics.reset(Nanos::from_secs(70.0));
        let report = statistics.report(Nanos::from_secs(71.0), 1.0);
        assert_eq!((report.requests, report.elapsed_s), (0, 1.0));
    }
}
