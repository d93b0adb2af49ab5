//! How deep to prefetch: the least depth with which next to no throughput is lost, by the paper's formulas and what they leave
//! out.
//!
//! Files are read as in figure 4 b. With x blocks ahead at each processor, of the P·x = A that are there at most:
//!
//! * *ahead* of the barrier the disks need `Q = A/D·t_q`, of which computing (`C`) hides what it can;
//! * *after* it `R = (B − A)/D·t_r`, equation 3;
//! * so N files take `N (C + R) + (N − 1) (max(0, Q − C) + W)`: the first is ahead for nothing.
//!
//! W is what whoever is *behind* waits for those who are not, as long as anything is asked for after the barrier: disks know nothing of
//! who waits, and processors that have read their portions disclose the next file's. `t_q` and `t_r`, a disk's times for a
//! block, are those of [`model`](super::model) with what the paper leaves out there:
//!
//! * the drive's overhead, and the network's time, for which the disk waits;
//! * with few requests some disks have none: they are busy for `min(1, r)` of the time if portions go over the disks in turn,
//!   and otherwise for `r / (r + 1/2)`: whoever comes to a busy disk comes, on average, in the middle of a service;
//! * P·x blocks that are all known are read in the disk's order.
//!
//! Depths above D are multiples of it: with less than a stripe more, contiguous portions are out of step with one another.
//!
//! Not here: what pays for a collective call, for which the crossover has to be simulated.

use super::model::{
    cylinders, random_disk_ms, random_part, rotation_ms, seek_ms, sequential_disk_ms, transfer_ms,
};
use super::{CollectiveSpec, MB, Pattern, Placement};
use crate::device::DiskParameters;
use crate::device::disk::DiskSpec;
use crate::device::flat::{FlatSpec, Latency};

/// Of the best that is expected, what a depth must reach to be recommended.
const NEAR: f64 = 0.99;

/// Of the blocks of an aged file, those that lie behind the one before: runs are of three.
const AGED_SEQUENTIAL: f64 = 2.0 / 3.0;

/// Of contiguous files, blocks that are still asked for when others have disclosed the next file, for each of which the arm goes there
/// and back. Found with files of 16 and 128 MB on machines of (P, D) = (8, 8), (16, 4) and (5, 12); larger files have no
/// more of them.
const LEFT_BEHIND: f64 = 2.0;

/// A disk's times for a block, milliseconds, and W.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    ahead: f64,
    after: f64,
    behind: f64,
}

/// A machine, and how many blocks each processor has.
struct Expected<'a> {
    spec: &'a CollectiveSpec,
    portions: Vec<u64>,
    largest: u64,
}

impl<'a> Expected<'a> {
    fn new(spec: &'a CollectiveSpec) -> Self {
        let portions = spec.portions();
        let largest = portions.iter().copied().max().unwrap_or(0);
        Expected { spec, portions, largest }
    }

    /// Whether each processor has disks of its own.
    fn owns_disks(&self) -> bool {
        self.spec.pattern == Pattern::Interleaved
            && self.spec.disks.is_multiple_of(self.spec.processors)
    }

    /// Whether each disk's blocks are asked for in their order at any depth.
    fn in_step(&self) -> bool {
        self.owns_disks()
            || self.spec.pattern == Pattern::Interleaved
                && self.spec.processors.is_multiple_of(self.spec.disks)
    }

    /// The part of the time in which a disk is busy, with `requests` of them for each.
    fn busy(&self, requests: f64) -> f64 {
        match self.spec.pattern {
            Pattern::Interleaved | Pattern::Block1d => requests.min(1.0),
            _ => requests / (requests + 0.5),
        }
    }

    fn network_ms(&self) -> f64 {
        let network = &self.spec.network;
        (network.startup + network.transfer(self.spec.block_bytes())).as_millis()
    }

    fn times(&self, depth: u64) -> Times {
        match &self.spec.disk {
            DiskParameters::Mechanical(disk) => self.mechanical(disk, depth),
            DiskParameters::Flat(flat) => self.flat(flat, depth),
        }
    }

    /// Requests side by side, until slots, the device's link or the processors' are the bound.
    fn flat(&self, flat: &FlatSpec, depth: u64) -> Times {
        let (spec, bytes) = (self.spec, self.spec.block_bytes() as f64);
        let requests = depth as f64 * spec.processors as f64 / spec.disks as f64;
        let one = mean_ms(flat) + bytes / flat.bandwidth_bytes_per_s * 1e3;
        let taken = self.network_ms() * spec.disks as f64 / spec.processors as f64;
        let each = (one / requests.min(flat.slots as f64))
            .max(bytes / flat.link_bytes_per_s * 1e3)
            .max(taken);
        let behind = if depth < self.largest { longest_ms(flat) } else { 0.0 };
        Times { ahead: each, after: each, behind }
    }

    fn mechanical(&self, disk: &DiskSpec, depth: u64) -> Times {
        let spec = self.spec;
        let (x, disks) = (depth as f64, spec.disks as f64);
        let requests = x * spec.processors as f64 / disks;
        let busy = self.busy(requests);
        let all_known = depth >= self.largest;
        let fixed = disk.overhead_ms(spec.block_sectors) + self.network_ms();
        let random = fixed + random_disk_ms(spec, disk, x);
        let sequential = sequential_disk_ms(spec, disk) + self.network_ms();
        let is_shared = !self.owns_disks() && !all_known;
        let between = |part: f64, all: f64, none: f64| part * all + (1.0 - part) * none;
        let (ahead, after) = match spec.placement {
            Placement::Random => (random, random / busy),
            Placement::Increasing => {
                let gap = cylinders(disk) / (spec.file_blocks as f64 / disks);
                let sorted = fixed
                    + transfer_ms(disk, spec.block_sectors)
                    + rotation_ms(disk)
                    + disk.seek.time(gap.round() as u64).as_millis();
                // Twice the 2D of the sequential layout: service times are irregular (section 5.5).
                let part = if self.in_step() { 1.0 } else { (x / (4.0 * disks)).min(1.0) };
                let each = between(part, sorted, random) / busy;
                (each, each)
            }
            Placement::Aged => {
                // A run's next block is known if its owner has asked for so much.
                let known = match spec.pattern {
                    _ if all_known || self.in_step() => 1.0,
                    Pattern::Interleaved | Pattern::Block1d => (1.0 - disks / x).max(0.0),
                    _ => x / (x + 6.0 * disks),
                };
                let each = between(AGED_SEQUENTIAL * known, sequential, random) / busy;
                (each, each)
            }
            Placement::Sequential => {
                let positioning = fixed + rotation_ms(disk);
                let scattered = positioning + transfer_ms(disk, spec.block_sectors);
                match spec.pattern {
                    _ if self.in_step() => (sequential, sequential),
                    Pattern::Global => {
                        let each = between(random_part(spec, disk, x), scattered, sequential);
                        (sequential, each / busy)
                    }
                    // Section 4.3 and 5.5: D begins to suffice, 2D does.
                    _ => {
                        let stripes = (x / disks).floor().min(2.0) / 2.0;
                        let to_portions = positioning * (disks / x).min(1.0);
                        let each = between(stripes, sequential, scattered);
                        (sequential + to_portions, each / busy)
                    }
                }
            }
        };
        let behind = match spec.placement {
            _ if !is_shared => 0.0,
            Placement::Sequential => {
                let away = fixed
                    + transfer_ms(disk, spec.block_sectors)
                    + rotation_ms(disk)
                    + seek_ms(disk, cylinders(disk), 2.0);
                LEFT_BEHIND * 2.0 * away
            }
            // On average in the middle of what the others have disclosed, as far as computing does not hide it.
            _ => 0.5 * (self.asked(depth) / disks * ahead).min(self.compute_ms()),
        };
        Times { ahead, after, behind }
    }

    /// Blocks that are ahead of the barrier.
    fn asked(&self, depth: u64) -> f64 {
        self.portions.iter().map(|&portion| portion.min(depth)).sum::<u64>() as f64
    }

    /// Of whoever has most.
    fn compute_ms(&self) -> f64 {
        let share = self.spec.file_blocks as f64 / self.spec.processors as f64;
        self.spec.compute.as_millis() * self.largest as f64 / share
    }

    fn throughput_mb_s(&self, depth: u64) -> f64 {
        let (spec, times) = (self.spec, self.times(depth));
        let (blocks, disks, files) =
            (spec.file_blocks as f64, spec.disks as f64, f64::from(spec.files));
        let (asked, compute) = (self.asked(depth), self.compute_ms());
        let ahead = asked / disks * times.ahead;
        let after = (blocks - asked) / disks * times.after;
        let hidden = (ahead - compute).max(0.0) + times.behind;
        let all_ms = files * (compute + after) + (files - 1.0) * hidden;
        files * blocks * spec.block_bytes() as f64 / MB / (all_ms / 1e3)
    }

    /// 1 to the largest portion, at most 3 % apart where that is a multiple of D or of 1.
    fn depths(&self) -> impl Iterator<Item = u64> {
        let (disks, largest) = (self.spec.disks as u64, self.largest);
        let next = move |&depth: &u64| {
            let more = depth + depth / 32;
            let next = if depth < disks { more + 1 } else { more / disks * disks + disks };
            (depth < largest).then_some(next.min(largest))
        };
        std::iter::successors(Some(1), next)
    }
}

/// Mean time to the first byte, milliseconds.
fn mean_ms(flat: &FlatSpec) -> f64 {
    match flat.latency {
        Latency::Constant { latency_ms } => latency_ms,
        Latency::Uniform { min_ms, max_ms } => (min_ms + max_ms) / 2.0,
        Latency::LogNormal { median_ms, sigma } => median_ms * (sigma * sigma / 2.0).exp(),
    }
}

/// The same of the last of some twenty requests, for which a barrier waits: of a log-normal distribution some three means.
fn longest_ms(flat: &FlatSpec) -> f64 {
    match flat.latency {
        Latency::Constant { latency_ms } => latency_ms,
        Latency::Uniform { max_ms, .. } => max_ms,
        Latency::LogNormal { .. } => 3.0 * mean_ms(flat),
    }
}

/// What is expected of prefetching so deep, of the next file too, MB/s.
pub fn expected_throughput_mb_s(spec: &CollectiveSpec, depth: u64) -> f64 {
    Expected::new(spec).throughput_mb_s(depth)
}

/// The answer to "how deep must I prefetch?": the least depth at each processor, blocks, from which next to no more is
/// expected of any other. For `spec`'s layout, pattern, P, D, device, files and computing; its method and depth do not
/// matter. At most the largest portion.
pub fn recommended_depth(spec: &CollectiveSpec) -> u64 {
    let expected = Expected::new(spec);
    let depths: Vec<(u64, f64)> =
        expected.depths().map(|depth| (depth, expected.throughput_mb_s(depth))).collect();
    let best = depths.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
    depths
        .into_iter()
        .find(|(_, throughput)| *throughput >= NEAR * best)
        .map_or(1, |(depth, _)| depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_policy::Nanos;

    /// Blocks ahead, after and for the first file: 512 blocks on 8 disks at 3.0397 ms, the drive's and the network's.
    #[test]
    fn a_file_takes_what_is_ahead_after_and_computed() {
        let mut spec = CollectiveSpec::paper(4);
        let each = 2.2 + 16.0 * 512.0 / 10e6 * 1e3 + 25e-6 + 8192.0 / (400.0 * MB) * 1e3;
        let near = |depth: u64, spec: &CollectiveSpec, ms: f64| {
            let expected = expected_throughput_mb_s(spec, depth);
            let wanted = 16.0 / (ms / 1e3);
            assert!((expected / wanted - 1.0).abs() < 1e-4, "{expected} instead of {wanted}");
        };
        near(16, &spec, (4.0 * 48.0 + 3.0 * 16.0) * each);
        spec.compute = Nanos::from_millis(100.0);
        near(16, &spec, 4.0 * (48.0 * each + 100.0)); // 16 blocks are less than the computing.
        near(64, &spec, 400.0 + 3.0 * (64.0 * each - 100.0));
    }

    #[test]
    fn recommendations_are_no_more_than_the_largest_portion() {
        let spec = CollectiveSpec { files: 1000, ..CollectiveSpec::paper(4) };
        assert_eq!(recommended_depth(&spec), 1); // Disks are all that counts, and they are in step.
        let mut portions =
            CollectiveSpec { pattern: Pattern::Block1d, file_blocks: 1 << 17, ..spec };
        assert!((16..=64).contains(&recommended_depth(&portions)));
        portions.file_blocks = 512;
        portions.compute = Nanos::from_millis(220.0); // As much computing as reading: all ahead, nearly.
        assert!((56..=64).contains(&recommended_depth(&portions)));
        // Boxes of a file of 13 by 13 by 13 blocks: the largest has 7 by 7 by 7.
        let boxes =
            CollectiveSpec { pattern: Pattern::Block3d, file_blocks: 2197, ..portions.clone() };
        assert!((256..=343).contains(&recommended_depth(&boxes)));
    }

    #[test]
    fn depths_are_multiples_of_the_disks() {
        let spec =
            CollectiveSpec { disks: 5, pattern: Pattern::Block1d, ..CollectiveSpec::paper(4) };
        let depths: Vec<u64> = Expected::new(&spec).depths().collect();
        assert_eq!(depths[..6], [1, 2, 3, 4, 5, 10]);
        assert_eq!(depths.last(), Some(&64));
        assert!(depths[4..depths.len() - 1].iter().all(|depth| depth % 5 == 0));
    }
}
