//! Storage devices: models that tell how long a request takes.
//!
//! A [`Device`] is a state machine in virtual time. Its caller decides which request it gets next (see
//! `foretell_policy::queue`), and when. The device answers with the time that the request takes, split by
//! cause, and advances its own state (head, rotation, cache) to the end of the request.
//!
//! Each model has its own file: [`disk`] is mechanical, [`flat`] has only latency and bandwidth. [`parameters`]
//! reads either from a TOML text; several are built in.

pub mod disk;
pub mod flat;
pub mod geometry;
pub mod held;
pub mod parameters;
pub mod seek;

use std::ops::Range;

use foretell_policy::Nanos;
use foretell_policy::queue::Order;

pub use disk::Disk;
pub use flat::Flat;
use geometry::Track;
pub use parameters::{DiskParameters, ParameterError};

/// A read or a write of `sectors` sectors of 512 bytes, beginning at `sector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// First sector.
    pub sector: u64,
    /// Number of sectors; at least 1.
    pub sectors: u64,
}

impl Request {
    /// The sector after the last one.
    pub fn end(self) -> u64 {
        self.sector + self.sectors
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        self.sectors * crate::SECTOR_BYTES
    }
}

/// The beginning of a request, with all that a drive needs to choose between several; computed once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// First sector.
    pub sector: u64,
    /// The track that the sector lies on.
    pub track: Track,
    /// The time from the index mark until the sector begins to pass under a head.
    pub angle: Nanos,
    /// How long the sector takes to pass.
    pub pass: Nanos,
}

/// The time that one request takes at a device, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Controller and command; for a flat device, the latency of the first byte.
    pub overhead: Nanos,
    /// Moving the arm and switching heads.
    pub seek: Nanos,
    /// Waiting for the sector to pass under the head.
    pub rotation: Nanos,
    /// Data passing under the head, or over the bus if the drive's cache holds it.
    pub transfer: Nanos,
    /// How far the arm moved.
    pub cylinders_travelled: u64,
    /// Whether the request began with data that the drive had read ahead, or was about to.
    pub cache_hit: bool,
}

impl Service {
    /// The whole time from start to end.
    pub fn total(&self) -> Nanos {
        self.overhead + self.seek + self.rotation + self.transfer
    }
}

/// A modelled storage device.
///
/// The caller guarantees three things. `start` never goes back. For a device of one slot, `start` is not before
/// the end of the previous request. Requests are not empty, and lie within the capacity. The device guarantees
/// that the same calls give the same answers.
pub trait Device: Send {
    /// Reads `request` from `start` on, and returns the time it takes.
    fn service(&mut self, start: Nanos, request: Request) -> Service;

    /// Writes `request` to the medium from `start` on, and returns the time it takes. As long as a read, unless the device
    /// says otherwise.
    fn write(&mut self, start: Nanos, request: Request) -> Service {
        self.service(start, request)
    }

    /// The capacity in sectors.
    fn capacity_sectors(&self) -> u64;

    /// The key by which a queue sorts requests: sectors with close positions are close on the device.
    fn position_of(&self, sector: u64) -> u64 {
        sector
    }

    /// The beginning of a request at `sector`.
    fn start_at(&self, sector: u64) -> Start;

    /// The time from `now` until the device has the first sector of a request that begins at `start`. A drive
    /// that holds several commands compares them by it.
    fn positioning_time(&self, now: Nanos, start: &Start) -> Nanos;

    /// Sectors that the device's own cache holds, which need no arm movement; empty if it has no cache.
    fn cached(&self) -> Range<u64> {
        0..0
    }

    /// How long the link that all requests share has carried data until `now`, which is not before the last
    /// start; 0 if there is no such link.
    fn link_time(&self, _now: Nanos) -> Nanos {
        Nanos::ZERO
    }

    /// Requests that the device serves at the same time.
    fn slots(&self) -> usize {
        1
    }
}

/// The key by which a queue sorts a request that begins at `sector`: a position, and a rank at equal positions. For SSTF on a
/// mechanical disk the position is the cylinder: requests of one cylinder are equally near, and go in the order of their
/// sectors.
pub fn place_in_queue(
    disk: &DiskParameters,
    order: Order,
    sector: u64,
    device: &dyn Device,
) -> (u64, u32) {
    match (disk, order) {
        (DiskParameters::Mechanical(spec), Order::Sstf) => {
            let sectors = spec.geometry.heads * spec.geometry.sectors_per_track;
            (sector / sectors, (sector % sectors) as u32)
        }
        _ => (device.position_of(sector), 0),
    }
}
