//! The storage of the model: a disk that serves one request at a time, and a network before it or not.
//!
//! As in the 1995 paper (*Simulation system*): a file takes the disk's latency and its bytes at the disk's rate. A request
//! waits until the one before has finished. A remote disk adds the network's round trip, and its bytes at the network's rate.
//! Several requests may be in the network at a time; the disk serves them one after another.

/// Parameters of a storage, and of the cache before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storage {
    /// The disk's time for a request, in microseconds, without its bytes.
    pub disk_us: u64,
    /// The disk's rate, in bytes a microsecond (MB/s). Above 0.
    pub disk_bytes_per_us: f64,
    /// The network's round trip, in microseconds, and its rate in bytes a microsecond, above 0.
    pub network: Option<(u64, f64)>,
    /// Fetches ahead that are sent at a time, at least 1. A disk takes one, so that a read waits for one of them at most.
    pub ahead: usize,
    /// The usual time from an open to the read, in microseconds. Only a [`Trial`](super::Trial) uses it.
    pub read_us: u64,
    /// The cache, in bytes.
    pub cache_bytes: u64,
}

impl Storage {
    /// The flash drive of a file server on a local network, and a cache of 1 GiB. A read comes 60 us after its open, as is
    /// usual in the recordings of `sim/traces`.
    pub const REMOTE: Storage = Storage {
        disk_us: 100,
        disk_bytes_per_us: 500.0,
        network: Some((1150, 110.0)),
        ahead: 16,
        read_us: 60,
        cache_bytes: 1 << 30,
    };

    /// The time in microseconds that a fetch of `bytes` takes if nothing else is under way.
    pub fn fetch_us(&self, bytes: u64) -> u64 {
        Device::new(*self).fetch(0, bytes)
    }
}

fn at_rate(bytes: u64, bytes_per_us: f64) -> u64 {
    (bytes as f64 / bytes_per_us).round() as u64
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Device {
    storage: Storage,
    disk_free_us: u64,
    network_free_us: u64,
    /// Time that the disk has worked, in microseconds.
    pub(super) busy_us: u64,
}

impl Device {
    pub(super) fn new(storage: Storage) -> Self {
        Device { storage, disk_free_us: 0, network_free_us: 0, busy_us: 0 }
    }

    /// Sends a request for `bytes` at `now_us`, which is not before that of the last request. Returns when the data is there.
    pub(super) fn fetch(&mut self, now_us: u64, bytes: u64) -> u64 {
        let way_us = self.storage.network.map_or(0, |(round_us, _)| round_us / 2);
        let work_us = self.storage.disk_us + at_rate(bytes, self.storage.disk_bytes_per_us);
        let at_disk_us = now_us.saturating_add(way_us);
        self.disk_free_us = self.disk_free_us.max(at_disk_us).saturating_add(work_us);
        self.busy_us = self.busy_us.saturating_add(work_us);
        match self.storage.network {
            None => self.disk_free_us,
            Some((round_us, bytes_per_us)) => {
                let free_us = self.network_free_us.max(self.disk_free_us);
                self.network_free_us = free_us.saturating_add(at_rate(bytes, bytes_per_us));
                self.network_free_us.saturating_add(round_us - way_us)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_the_disk_and_share_the_network() {
        let storage =
            Storage { disk_us: 10, disk_bytes_per_us: 1.0, network: None, ..Storage::REMOTE };
        let mut local = Device::new(storage);
        assert_eq!([local.fetch(0, 5), local.fetch(1, 5), local.fetch(100, 5)], [15, 30, 115]);
        assert_eq!(local.busy_us, 45);
        let mut remote = Device::new(Storage { network: Some((100, 0.5)), ..storage });
        // 50 to the server, 15 on the disk, 10 on the network, 50 back; the next is 15 behind, on the disk.
        assert_eq!([remote.fetch(0, 5), remote.fetch(0, 5)], [125, 140]);
    }
}
