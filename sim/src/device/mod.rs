//! What a storage device is to the rest of foretell: something that takes a time for a request.
//!
//! A [`Device`] is a state machine in virtual time. Whoever drives it decides which request it gets
//! next (see `foretell_policy::queue`) and when; the device answers with the time that takes, split
//! by cause, and moves its own state (head, rotation, cache) to the end of the request.
//!
//! One file a model: [`disk`] is mechanical, [`flat`] knows only latency and bandwidth.
//! [`parameters`] reads either from a TOML text, several of which are built in.

pub mod disk;
pub mod flat;
pub mod geometry;
pub mod held;
pub mod parameters;
pub mod seek;

use std::ops::Range;

use foretell_policy::Nanos;

pub use disk::Disk;
pub use flat::Flat;
use geometry::Track;
pub use parameters::{DiskParameters, ParameterError};

/// A read of `sectors` sectors of 512 bytes from `sector` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// First sector.
    pub sector: u64,
    /// How many; at least 1.
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

/// Where a request begins: what a drive that holds several has to know of each to choose among them, found once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// First sector.
    pub sector: u64,
    /// The track that the sector lies on.
    pub track: Track,
    /// When the sector begins to pass under a head, after the index mark.
    pub angle: Nanos,
    /// How long the sector takes to pass.
    pub pass: Nanos,
}

/// The time that one request took at a device, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Controller, command and, for a flat device, everything before the first byte.
    pub overhead: Nanos,
    /// Moving the arm and switching heads.
    pub seek: Nanos,
    /// Waiting for the sector to come round.
    pub rotation: Nanos,
    /// Data passing under the head, or over the bus when it comes from the drive's cache.
    pub transfer: Nanos,
    /// How far the arm moved.
    pub cylinders_travelled: u64,
    /// Whether the request began with data that the drive had read, or was about to read, ahead.
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
/// The caller guarantees that `start` never goes back and, for a device of one slot, is never
/// before the end of the request before; that requests are not empty and lie within the capacity.
/// The device guarantees that the same calls give the same answers.
pub trait Device: Send {
    /// Carries out `request` from `start` on and says what it took.
    fn service(&mut self, start: Nanos, request: Request) -> Service;

    /// How many sectors the device has.
    fn capacity_sectors(&self) -> u64;

    /// What a queue sorts requests by: two sectors are near if their positions are.
    fn position_of(&self, sector: u64) -> u64 {
        sector
    }

    /// Where a request that begins with `sector` begins.
    fn start_at(&self, sector: u64) -> Start;

    /// How long the device would take from `now` until it has the first sector of a request that begins at `start`;
    /// what a drive that holds several commands uses to choose among them.
    fn positioning_time(&self, now: Nanos, start: &Start) -> Nanos;

    /// Sectors that are in the device's own cache, and so need no arm; none if it has no cache.
    fn cached(&self) -> Range<u64> {
        0..0
    }

    /// For how long, until `now`, the link that all its requests share has carried data of theirs; no time if there is none.
    /// `now` is not before the last start.
    fn link_time(&self, _now: Nanos) -> Nanos {
        Nanos::ZERO
    }

    /// How many requests the device works on at the same time.
    fn slots(&self) -> usize {
        1
    }
}
