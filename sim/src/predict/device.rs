//! The storage: today's devices, and those of the 1995 paper.

use foretell_learn::graph::Storage;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, for help texts.
    pub about: &'static str,
    /// Its times. The cache is that of the options.
    pub storage: Storage,
    /// By what the recorded times between opens are multiplied: how many times slower the processor is than the one of the
    /// recording.
    pub slower: u64,
}

const LOCAL: Storage = Storage { network: None, ahead: 1, ..Storage::REMOTE };
const LOCAL_1995: Storage = Storage { disk_us: 15_000, disk_bytes_per_us: 2.0, ..LOCAL };

/// All devices.
///
/// Our copy of the paper has lost the numbers of its devices. Those of 1995 are assumed: a seek of 15 ms and 2 MB/s, a network
/// of 10 ms and 1 MB/s. Their processor is a hundred times slower than the one of the recordings: 25 to 50 million instructions
/// a second. Today's have the numbers of `sim/disks/ssd.toml` and `network.toml`.
pub const DEVICES: [DeviceSpec; 4] = [
    DeviceSpec {
        name: "local",
        about: "a flash drive: 0.1 ms, 500 MB/s",
        storage: LOCAL,
        slower: 1,
    },
    DeviceSpec {
        name: "remote",
        about: "the flash drive of a file server: 1.25 ms, 110 MB/s",
        storage: Storage::REMOTE,
        slower: 1,
    },
    DeviceSpec {
        name: "local-1995",
        about: "a disk of 1995: 15 ms, 2 MB/s, and a processor 100 times slower",
        storage: LOCAL_1995,
        slower: 100,
    },
    DeviceSpec {
        name: "remote-1995",
        about: "the disk of a file server of 1995: 25 ms, 1 MB/s, and a processor 100 times slower",
        storage: Storage { network: Some((10_000, 1.0)), ahead: 4, ..LOCAL_1995 },
        slower: 100,
    },
];
