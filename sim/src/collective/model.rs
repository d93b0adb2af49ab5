//! The paper's formulas for the throughput of informed prefetching.
//!
//! Symbols, as in table 2: B blocks of a file, P processors, D disks, depth x at each processor, `T_C`
//! computing on a block at one processor, `T_d` a disk's time for a block, r requests at a disk (P·x/D). Times
//! are in milliseconds here.
//!
//! Differences from the paper:
//! * P and D may differ. D disks serve the B − P·x blocks that are missing at the barrier, so `(B/P − x)·T_d`
//!   of equation 3 becomes `(B − P·x)/D·T_d`.
//! * A cycle takes at least the disks' time, `B/D·T_d`. The blocks that the first file has ahead at the first
//!   barrier are subtracted, spread over N files: `(B − P·x/N)/D·T_d`. With the paper's balanced benchmark this
//!   bound never matters.
//! * Equation 5 prints .04 as the factor of the square root of the seek curve, and table 1 has .4. With .04, a
//!   seek over a third of the disk would take 4.3 ms instead of 13.5. Table 1's value is used.

use foretell_policy::Nanos;

use super::{CollectiveSpec, MB, Placement};
use crate::device::DiskParameters;
use crate::device::disk::{DiskSpec, Reading};

/// `T_cycle` of equation 3 in milliseconds: reading the blocks missing at the barrier, then computing.
pub fn cycle_ms(spec: &CollectiveSpec, depth: f64, disk_ms: f64) -> f64 {
    let (blocks, disks) = (spec.file_blocks as f64, spec.disks as f64);
    let ahead = (depth * spec.processors as f64).min(blocks);
    let compute = spec.compute.as_millis();
    let serial = (blocks - ahead) / disks * disk_ms + compute;
    serial.max((blocks - ahead / f64::from(spec.files)) / disks * disk_ms)
}

/// E\[TransferTime\]: the time of a block under the head.
pub fn transfer_ms(disk: &DiskSpec, block_sectors: u64) -> f64 {
    let geometry = &disk.geometry;
    geometry.revolution.as_millis() * block_sectors as f64 / geometry.sectors_per_track as f64
}

/// E\[RotationalLatency\]: half a revolution.
pub fn rotation_ms(disk: &DiskSpec) -> f64 {
    disk.geometry.revolution.as_millis() / 2.0
}

/// E\[SeekTime(x)\] of equation 5: the seek over C/(x/2 + 2) cylinders, where C is `cylinders`. If P ≠ D, x is
/// r.
pub fn seek_ms(disk: &DiskSpec, cylinders: f64, depth: f64) -> f64 {
    disk.seek.time((cylinders / (depth / 2.0 + 2.0)).round() as u64).as_millis()
}

/// C of equation 5: the cylinders that can hold data.
pub fn cylinders(disk: &DiskSpec) -> f64 {
    let per_cylinder = disk.geometry.heads * disk.geometry.sectors_per_track;
    disk.capacity_sectors as f64 / per_cylinder as f64
}

/// `T_d` of equation 4, for random places.
pub fn random_disk_ms(spec: &CollectiveSpec, disk: &DiskSpec, depth: f64) -> f64 {
    let cylinders = cylinders(disk);
    let at_disk = depth * spec.processors as f64 / spec.disks as f64;
    transfer_ms(disk, spec.block_sectors) + rotation_ms(disk) + seek_ms(disk, cylinders, at_disk)
}

/// M of equation 6: the tracks of 2P blocks.
pub fn region_tracks(spec: &CollectiveSpec, disk: &DiskSpec) -> f64 {
    let sectors = 2.0 * spec.processors as f64 * spec.block_sectors as f64;
    (sectors / disk.geometry.sectors_per_track as f64).max(1.0)
}

/// How many of `tracks` are hit by `requests` requests: equation 7 (Cardenas, 1975).
pub fn tracks_hit(tracks: f64, requests: f64) -> f64 {
    (1.0 - (1.0 - 1.0 / tracks).powf(requests)) * tracks
}

/// `T_seq`: the time of a block in a long sequential run, including switches of tracks and cylinders with their
/// skews.
pub fn sequential_disk_ms(spec: &CollectiveSpec, disk: &DiskSpec) -> f64 {
    let geometry = &disk.geometry;
    let skews = (geometry.heads - 1) * geometry.track_skew_sectors + geometry.cylinder_skew_sectors;
    let per_cylinder = (geometry.heads * geometry.sectors_per_track) as f64;
    let streaming = transfer_ms(disk, spec.block_sectors) * (1.0 + skews as f64 / per_cylinder);
    let bus = disk.overhead + Nanos(disk.bus_sector.0 * spec.block_sectors);
    // A drive without read-ahead misses the next sector by its overhead, and waits for a whole revolution.
    match (disk.read_ahead_sectors, disk.reading) {
        (0, _) => transfer_ms(disk, spec.block_sectors) + 2.0 * rotation_ms(disk),
        (_, Reading::Streamed) => streaming.max(bus.as_millis()),
        (_, Reading::Stored) => {
            bus.as_millis()
                + disk.seek.time(1).as_millis() * spec.block_sectors as f64 / per_cylinder
        }
    }
}

/// `frac_rand` of equation 8, for sequential places and the owners of `Pattern::Global`.
pub fn random_part(spec: &CollectiveSpec, disk: &DiskSpec, depth: f64) -> f64 {
    let tracks = region_tracks(spec, disk);
    let requests = depth * spec.processors as f64 / spec.disks as f64;
    (tracks - tracks_hit(tracks, requests)) / tracks
}

/// `T_d` of equation 8.
pub fn global_disk_ms(spec: &CollectiveSpec, disk: &DiskSpec, depth: f64) -> f64 {
    let random = random_part(spec, disk, depth);
    random * (transfer_ms(disk, spec.block_sectors) + rotation_ms(disk))
        + (1.0 - random) * sequential_disk_ms(spec, disk)
}

/// Throughput in MB/s by the paper's model for `spec`'s layout: equations 3 to 5 for random places, 3 and 6 to
/// 8 for sequential ones. `None` for devices without positions.
pub fn paper_throughput_mb_s(spec: &CollectiveSpec, depth: u64) -> Option<f64> {
    let DiskParameters::Mechanical(disk) = &spec.disk else { return None };
    let depth = depth as f64;
    let disk_ms = match spec.placement {
        Placement::Sequential => global_disk_ms(spec, disk, depth),
        _ => random_disk_ms(spec, disk, depth),
    };
    Some(throughput_mb_s(spec, depth, disk_ms))
}

/// Like [`paper_throughput_mb_s`] for random places, with a request's costs beside arm and platter
/// ([`DiskSpec::overhead_ms`]), which equation 4 leaves out.
pub fn random_throughput_with_overhead_mb_s(spec: &CollectiveSpec, depth: u64) -> Option<f64> {
    let DiskParameters::Mechanical(disk) = &spec.disk else { return None };
    let overhead = disk.overhead_ms(spec.block_sectors);
    Some(throughput_mb_s(spec, depth as f64, overhead + random_disk_ms(spec, disk, depth as f64)))
}

fn throughput_mb_s(spec: &CollectiveSpec, depth: f64, disk_ms: f64) -> f64 {
    let cycle_ms = cycle_ms(spec, depth, disk_ms);
    (spec.file_blocks * spec.block_bytes()) as f64 / MB / (cycle_ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hp97560() -> DiskSpec {
        match DiskParameters::hp97560() {
            DiskParameters::Mechanical(disk) => disk,
            DiskParameters::Flat(_) => unreachable!("it has an arm"),
        }
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() <= 0.0006 * expected, "{value} instead of {expected}");
    }

    /// Computed by hand, with the numbers of table 1.
    #[test]
    fn formulas_at_points() {
        let (disk, spec) = (hp97560(), CollectiveSpec::paper(4));
        near(disk.overhead_ms(16), 2.2);
        near(transfer_ms(&disk, 16), 3.3316);
        near(rotation_ms(&disk), 7.496);
        // 1962 / 12 = 163.5 cylinders: 3.24 + .4 * 12.79.
        near(seek_ms(&disk, 1962.0, 20.0), 8.361);
        // 2 * 8 * 16 / 72; one request hits one of these tracks.
        near(region_tracks(&spec, &disk), 3.5556);
        near(tracks_hit(3.5556, 1.0), 1.0);
        near(tracks_hit(3.5556, 8.0), 3.5556 * (1.0 - 0.71875f64.powi(8)));
        // Equation 8 at one request: 2.5556 of 3.5556 tracks are missed.
        let expected = 0.71875 * (3.3316 + 7.4963) + 0.28125 * sequential_disk_ms(&spec, &disk);
        near(global_disk_ms(&spec, &disk, 1.0), expected);
        // 8 sectors of skew a track, 18 a cylinder: 19 * 72 + 18 * 8 + 18 slots for 19 * 72 sectors.
        near(sequential_disk_ms(&spec, &disk), 3.3316 * 1530.0 / 1368.0);
    }

    #[test]
    fn a_cycle_is_what_is_missing_and_computing() {
        let spec =
            CollectiveSpec { compute: Nanos::from_millis(100.0), ..CollectiveSpec::paper(4) };
        near(cycle_ms(&spec, 0.0, 4.0), 64.0 * 4.0 + 100.0);
        near(cycle_ms(&spec, 64.0, 4.0), 192.0); // The disks' own time, for three files of four.
        near(cycle_ms(&spec, 16.0, 1.0), 148.0);
        let fewer = CollectiveSpec { disks: 4, ..spec };
        near(cycle_ms(&fewer, 16.0, 1.0), (512.0 - 128.0) / 4.0 + 100.0);
    }
}
