//! The storage: a disk that serves one request at a time, and a network before it or not.
//!
//! As in the paper (*Simulation system*): a file takes the disk's latency and its bytes at the disk's rate. A request waits until
//! the one before has finished. A remote disk adds the network's round trip, and its bytes at the network's rate. Several
//! requests may be in the network at a time; the disk serves them one after another.

/// Parameters of a [`Device`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, for help texts.
    pub about: &'static str,
    /// The disk's time for a request, in microseconds, without its bytes.
    pub disk_us: u64,
    /// The disk's rate, in bytes a microsecond (MB/s).
    pub disk_bytes_per_us: f64,
    /// The network's round trip, in microseconds, and its rate in bytes a microsecond.
    pub network: Option<(u64, f64)>,
    /// Fetches ahead that are sent at a time. A disk takes one, so that an open waits for one fetch at most.
    pub ahead: usize,
    /// By what the recorded times between opens are multiplied: how many times slower the processor is than the one of the
    /// recording.
    pub slower: u64,
}

/// Today's devices, and those of the paper's time.
///
/// Our copy of the paper has lost the numbers of its devices. Those of 1995 are assumed: a seek of 15 ms and 2 MB/s, a network of
/// 10 ms and 1 MB/s. Their processor is a hundred times slower than the one of the recordings: 25 to 50 million instructions a
/// second. Today's have the numbers of `sim/disks/ssd.toml` and `network.toml`.
pub const DEVICES: [DeviceSpec; 4] = [
    DeviceSpec {
        name: "local",
        about: "a flash drive: 0.1 ms, 500 MB/s",
        disk_us: 100,
        disk_bytes_per_us: 500.0,
        network: None,
        ahead: 1,
        slower: 1,
    },
    DeviceSpec {
        name: "remote",
        about: "the flash drive of a file server: 1.25 ms, 110 MB/s",
        disk_us: 100,
        disk_bytes_per_us: 500.0,
        network: Some((1150, 110.0)),
        ahead: 16,
        slower: 1,
    },
    DeviceSpec {
        name: "local-1995",
        about: "a disk of 1995: 15 ms, 2 MB/s, and a processor 100 times slower",
        disk_us: 15_000,
        disk_bytes_per_us: 2.0,
        network: None,
        ahead: 1,
        slower: 100,
    },
    DeviceSpec {
        name: "remote-1995",
        about: "the disk of a file server of 1995: 25 ms, 1 MB/s, and a processor 100 times slower",
        disk_us: 15_000,
        disk_bytes_per_us: 2.0,
        network: Some((10_000, 1.0)),
        ahead: 4,
        slower: 100,
    },
];

impl DeviceSpec {
    /// The time in microseconds that the fetch of `bytes` takes on an idle device.
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
    spec: DeviceSpec,
    disk_free_us: u64,
    network_free_us: u64,
    /// Time that the disk has worked, in microseconds.
    pub(super) busy_us: u64,
}

impl Device {
    pub(super) fn new(spec: DeviceSpec) -> Self {
        Device { spec, disk_free_us: 0, network_free_us: 0, busy_us: 0 }
    }

    /// Sends a request for `bytes` at `now_us`, which is not before that of the last request. Returns when the data is there.
    pub(super) fn fetch(&mut self, now_us: u64, bytes: u64) -> u64 {
        let way_us = self.spec.network.map_or(0, |(round_us, _)| round_us / 2);
        let work_us = self.spec.disk_us + at_rate(bytes, self.spec.disk_bytes_per_us);
        self.disk_free_us = self.disk_free_us.max(now_us + way_us) + work_us;
        self.busy_us += work_us;
        match self.spec.network {
            None => self.disk_free_us,
            Some((round_us, bytes_per_us)) => {
                self.network_free_us =
                    self.network_free_us.max(self.disk_free_us) + at_rate(bytes, bytes_per_us);
                self.network_free_us + (round_us - way_us)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_the_disk_and_share_the_network() {
        let spec = DeviceSpec { disk_us: 10, disk_bytes_per_us: 1.0, ..DEVICES[0] };
        let mut local = Device::new(spec);
        assert_eq!([local.fetch(0, 5), local.fetch(1, 5), local.fetch(100, 5)], [15, 30, 115]);
        assert_eq!(local.busy_us, 45);
        let mut remote = Device::new(DeviceSpec { network: Some((100, 0.5)), ..spec });
        // 50 to the server, 15 on the disk, 10 on the network, 50 back; the next is 15 behind, on the disk.
        assert_eq!([remote.fetch(0, 5), remote.fetch(0, 5)], [125, 140]);
    }
}
