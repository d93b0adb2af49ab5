//! The paper's formulas for the throughput of informed prefetching, and the depth that they recommend.
//!
//! Symbols, as in table 2: B blocks of a file, P processors, D disks, x the depth at each processor, `T_C` computing a block
//! at one processor, `T_d` a disk's time for a block, r requests at a disk (P·x/D). Times are in milliseconds here.
//!
//! What is not the paper's:
//! * P and D may differ: D disks serve the B − P·x blocks that are not there at the barrier, so `(B/P − x)·T_d` of
//!   equation 3 becomes `(B − P·x)/D·T_d`.
//! * No disk can be overtaken: a cycle takes at least `B/D·T_d`, less what the first file has ahead at the first barrier,
//!   divided among N files: `(B − P·x/N)/D·T_d`. With the paper's balanced benchmark that never binds.
//! * Equation 5 prints .04 for the factor of the square root of the seek curve where table 1 has .4: with .04 a
//!   seek over a third of the disk would take 4.3 ms instead of 13.5. Table 1's is used.

use foretell_policy::Nanos;

use super::{CollectiveSpec, MB, Method, Pattern, Placement};
use crate::device::DiskParameters;
use crate::device::disk::DiskSpec;
use crate::device::flat::{FlatSpec, Latency};

/// `T_cycle` of equation 3, milliseconds: what is not there at the barrier, then computing.
pub fn cycle_ms(spec: &CollectiveSpec, depth: f64, disk_ms: f64) -> f64 {
    let (blocks, disks) = (spec.file_blocks as f64, spec.disks as f64);
    let ahead = (depth * spec.processors as f64).min(blocks);
    let compute = spec.compute.as_millis();
    let serial = (blocks - ahead) / disks * disk_ms + compute;
    serial.max((blocks - ahead / f64::from(spec.files)) / disks * disk_ms)
}

/// E\[TransferTime\]: a block passing under the head.
pub fn transfer_ms(disk: &DiskSpec, block_sectors: u64) -> f64 {
    let geometry = &disk.geometry;
    geometry.revolution.as_millis() * block_sectors as f64 / geometry.sectors_per_track as f64
}

/// E\[RotationalLatency\]: half a revolution.
pub fn rotation_ms(disk: &DiskSpec) -> f64 {
    disk.geometry.revolution.as_millis() / 2.0
}

/// E\[SeekTime(x)\] of equation 5: the seek over C/(x/2 + 2) of `cylinders` C. With P ≠ D, x is r.
pub fn seek_ms(disk: &DiskSpec, cylinders: f64, depth: f64) -> f64 {
    disk.seek.time((cylinders / (depth / 2.0 + 2.0)).round() as u64).as_millis()
}

/// `T_d` of equation 4: random places.
pub fn random_disk_ms(spec: &CollectiveSpec, disk: &DiskSpec, depth: f64) -> f64 {
    let per_cylinder = disk.geometry.heads * disk.geometry.sectors_per_track;
    let cylinders = disk.capacity_sectors as f64 / per_cylinder as f64;
    let at_disk = depth * spec.processors as f64 / spec.disks as f64;
    transfer_ms(disk, spec.block_sectors) + rotation_ms(disk) + seek_ms(disk, cylinders, at_disk)
}

/// M of equation 6: the tracks of 2P blocks.
pub fn region_tracks(spec: &CollectiveSpec, disk: &DiskSpec) -> f64 {
    let sectors = 2.0 * spec.processors as f64 * spec.block_sectors as f64;
    (sectors / disk.geometry.sectors_per_track as f64).max(1.0)
}

/// Tracks of `tracks` that `requests` requests hit, equation 7 (Cardenas, 1975).
pub fn tracks_hit(tracks: f64, requests: f64) -> f64 {
    (1.0 - (1.0 - 1.0 / tracks).powf(requests)) * tracks
}

/// `T_seq`: a block of a long run, switches of tracks and cylinders with their skews included.
pub fn sequential_disk_ms(spec: &CollectiveSpec, disk: &DiskSpec) -> f64 {
    let geometry = &disk.geometry;
    let skews = (geometry.heads - 1) * geometry.track_skew_sectors + geometry.cylinder_skew_sectors;
    let per_cylinder = (geometry.heads * geometry.sectors_per_track) as f64;
    let streaming = transfer_ms(disk, spec.block_sectors) * (1.0 + skews as f64 / per_cylinder);
    let bus = disk.overhead + Nanos(disk.bus_sector.0 * spec.block_sectors);
    // A drive without read-ahead misses the next sector by its overhead, and waits for a whole revolution.
    match disk.read_ahead_sectors {
        0 => transfer_ms(disk, spec.block_sectors) + 2.0 * rotation_ms(disk),
        _ => streaming.max(bus.as_millis()),
    }
}

/// `T_d` of equation 8: sequential places, and owners as `Pattern::Global` has them.
pub fn global_disk_ms(spec: &CollectiveSpec, disk: &DiskSpec, depth: f64) -> f64 {
    let tracks = region_tracks(spec, disk);
    let requests = depth * spec.processors as f64 / spec.disks as f64;
    let random = (tracks - tracks_hit(tracks, requests)) / tracks;
    random * (transfer_ms(disk, spec.block_sectors) + rotation_ms(disk))
        + (1.0 - random) * sequential_disk_ms(spec, disk)
}

/// Throughput by the paper's model for `spec`'s layout, MB/s: equations 3 to 5 where places are random, 3 and 6 to 8
/// where they are not. `None` for devices without places.
pub fn paper_throughput_mb_s(spec: &CollectiveSpec, depth: u64) -> Option<f64> {
    let DiskParameters::Mechanical(disk) = &spec.disk else { return None };
    let depth = depth as f64;
    let disk_ms = match spec.placement {
        Placement::Sequential => global_disk_ms(spec, disk, depth),
        _ => random_disk_ms(spec, disk, depth),
    };
    Some(throughput_mb_s(spec, depth, disk_ms))
}

fn throughput_mb_s(spec: &CollectiveSpec, depth: f64, disk_ms: f64) -> f64 {
    throughput_of(spec, cycle_ms(spec, depth, disk_ms))
}

fn throughput_of(spec: &CollectiveSpec, cycle_ms: f64) -> f64 {
    (spec.file_blocks * spec.block_bytes()) as f64 / MB / (cycle_ms / 1e3)
}

/// Mean time to the first byte, milliseconds.
fn latency_ms(flat: &FlatSpec) -> f64 {
    match flat.latency {
        Latency::Constant { latency_ms } => latency_ms,
        Latency::Uniform { min_ms, max_ms } => (min_ms + max_ms) / 2.0,
        Latency::LogNormal { median_ms, sigma } => median_ms * (sigma * sigma / 2.0).exp(),
    }
}

/// A disk's time for one block, as the recommendation takes it: what a block costs in the end (`.0`), and what one costs that
/// is left over for the barrier (`.1`), milliseconds.
///
/// Beside the paper's formulas: the drive's overhead, which they leave out; a depth of 2D as what makes patterns of runs
/// sequential, and 4D as what makes drawn owners so (section 5.5, and our table 4); increasing places as far apart as the
/// file's blocks are; and, for devices without places, r requests side by side. What is left over is few blocks of everybody's, which no
/// order helps: each costs a seek and a whole revolution, or three mean latencies, the longest of some twenty drawn ones.
fn expected_disk_ms(spec: &CollectiveSpec, depth: f64) -> (f64, f64) {
    let at_disk = (depth * spec.processors as f64 / spec.disks as f64).max(1.0);
    let disk = match &spec.disk {
        DiskParameters::Flat(flat) => {
            let transfer = spec.block_bytes() as f64 / flat.bandwidth_bytes_per_s * 1e3;
            let one = latency_ms(flat) + transfer;
            let longest = match flat.latency {
                Latency::Constant { .. } => one,
                Latency::Uniform { max_ms, .. } => max_ms + transfer,
                Latency::LogNormal { .. } => 3.0 * one,
            };
            return (one / at_disk.min(flat.slots as f64), longest);
        }
        DiskParameters::Mechanical(disk) => disk,
    };
    let overhead = disk.overhead.as_millis();
    let random = overhead + random_disk_ms(spec, disk, depth);
    let apart = overhead + random_disk_ms(spec, disk, 1.0) + rotation_ms(disk);
    match spec.placement {
        Placement::Random | Placement::Aged => (random, apart),
        Placement::Increasing => {
            let blocks = spec.file_blocks as f64 / spec.disks as f64;
            let sorted = overhead + random_disk_ms(spec, disk, 2.0 * blocks);
            let part = (depth / (4.0 * spec.disks as f64)).min(1.0);
            (sorted * part + random * (1.0 - part), apart)
        }
        Placement::Sequential => {
            let sequential = sequential_disk_ms(spec, disk);
            let scattered =
                overhead + transfer_ms(disk, spec.block_sectors) + 2.0 * rotation_ms(disk);
            let in_step = spec.processors.is_multiple_of(spec.disks)
                || spec.disks.is_multiple_of(spec.processors);
            let disks = spec.disks as f64;
            match spec.pattern {
                Pattern::Interleaved if in_step => (sequential, sequential),
                Pattern::Global if depth < 4.0 * disks => (scattered, scattered),
                _ if depth < 2.0 * disks => (scattered, scattered),
                _ => (sequential, scattered),
            }
        }
    }
}

/// What the recommendation expects of a depth, MB/s.
///
/// A cycle is either the disks' time for a file, or computing and what is left over: in the worst pattern, blocks of all processors
/// on one disk.
pub fn expected_throughput_mb_s(spec: &CollectiveSpec, depth: u64) -> f64 {
    let (each, left_over) = expected_disk_ms(spec, depth as f64);
    let (processors, disks) = (spec.processors as u64, spec.disks as u64);
    let left = spec.share_blocks().saturating_sub(depth);
    let at_one = match spec.pattern {
        Pattern::Interleaved if processors.is_multiple_of(disks) => {
            left * processors.div_ceil(disks)
        }
        _ => left.div_ceil(disks) * processors,
    };
    let rounds = at_one.div_ceil(spec.disk.slots() as u64) as f64;
    let blocks = spec.file_blocks as f64;
    let ahead = ((depth * processors) as f64).min(blocks) / f64::from(spec.files);
    let disks_ms = (blocks - ahead) / disks as f64 * each;
    // Equation 3 without computing, and for the last rounds what they cost in the worst case.
    let io = CollectiveSpec { compute: Nanos::ZERO, ..spec.clone() };
    let last = rounds.min(LAST_ROUNDS) * left_over;
    let waiting = cycle_ms(&io, depth as f64, each).max(last).min(rounds * left_over);
    let in_vain = rounds.min(LAST_ROUNDS) * (left_over - each).max(0.0);
    throughput_of(spec, (disks_ms + in_vain).max(spec.compute.as_millis() + waiting))
}

/// So many blocks on a disk after a barrier are served in no good order.
const LAST_ROUNDS: f64 = 8.0;

/// As near as this to the best that is expected, a depth is good enough.
const NEAR: f64 = 0.995;

/// The least depth at each processor from which on no more is expected of more depth, or next to nothing: the answer to
/// "how deep must I prefetch?" for `spec`'s layout, pattern, P, D, device, file and computing. Its method and depth do not
/// matter. At most B/P.
pub fn recommended_depth(spec: &CollectiveSpec) -> u64 {
    let spec = &CollectiveSpec { method: Method::Prefetch, overlapped: true, ..spec.clone() };
    let share = spec.share_blocks();
    let best = (1..=share).map(|x| expected_throughput_mb_s(spec, x)).fold(0.0, f64::max);
    (1..=share).find(|&x| expected_throughput_mb_s(spec, x) >= NEAR * best).unwrap_or(share)
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

    /// Worked out by hand, with the numbers of table 1.
    #[test]
    fn formulas_at_points() {
        let (disk, spec) = (hp97560(), CollectiveSpec::paper(4));
        near(transfer_ms(&disk, 16), 3.3316);
        near(rotation_ms(&disk), 7.496);
        // 1962 / 12 = 163.5 cylinders: 3.24 + .4 * 12.79.
        near(seek_ms(&disk, 1962.0, 20.0), 8.361);
        // 2 * 8 * 16 / 72; of these, one request hits one.
        near(region_tracks(&spec, &disk), 3.5556);
        near(tracks_hit(3.5556, 1.0), 1.0);
        near(tracks_hit(3.5556, 8.0), 3.5556 * (1.0 - 0.71875f64.powi(8)));
        // Eq. 8 at one request: 2.5556 of 3.5556 tracks are missed.
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

    #[test]
    fn recommendations_are_no_more_than_a_share() {
        let spec = CollectiveSpec { files: 1000, ..CollectiveSpec::paper(4) };
        assert_eq!(recommended_depth(&spec), 1); // Disks are all that counts, and they are in step.
        // 4 GB: what is left over at the end of a file is little of it.
        let portions = CollectiveSpec { pattern: Pattern::Block1d, file_blocks: 1 << 19, ..spec };
        assert_eq!(recommended_depth(&portions), 16);
        let mut spec = CollectiveSpec { file_blocks: 512, ..portions };
        spec.compute = Nanos::from_millis(220.0); // As much computing as reading: all ahead, nearly.
        assert!((56..=64).contains(&recommended_depth(&spec)));
    }
}
