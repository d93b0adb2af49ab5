//! How deep to prefetch: the least depth that loses almost no throughput. The paper's formulas, with some
//! additions, give an *expected* depth. A few simulations around it, and at D, 2D and so on, find the least
//! depth that suffices. Files of more than [`SEARCHED_BLOCKS`] blocks get the expected depth.
//!
//! Files are read as in figure 4 b, one after another without end. With x blocks ahead at each processor, at
//! most P·x = A blocks are there at the barrier:
//!
//! * *ahead* of the barrier the disks need `Q = A/D·t_q`, which overlaps with computing (`C`);
//! * *after* it they need `R = (B − A)/D·t_r`, as in equation 3;
//! * so a file takes `C + R + max(0, Q − C) + W`.
//!
//! W is the wait of all processors for the *last* request of a flat device, if anything is requested after the
//! barrier. `t_q` and `t_r` are a disk's times for a block, as in [`model`](super::model), with additions:
//!
//! * the drive's overhead, and the network's time, for which the disk waits;
//! * with few requests, some disks have none. They are busy for `min(1, r)` of the time if portions go over the
//!   disks in turn. Otherwise it is `r / (r + 1/2)`: a request to a busy disk arrives, on average, in the
//!   middle of a service;
//! * P·x blocks that are all known are read in the disk's order.
//!
//! Depths above D are multiples of D, since contiguous portions get out of step with less than a full stripe
//! more.
//!
//! Not here: whether a collective call is better, which has to be simulated ([`crossover`](super::crossover)).

use super::model::{
    cylinders, random_disk_ms, random_part, rotation_ms, sequential_disk_ms, transfer_ms,
};
use super::{CollectiveSpec, MB, Pattern, Placement};
use crate::device::DiskParameters;
use crate::device::disk::DiskSpec;
use crate::device::flat::{FlatSpec, Latency};

/// Share of the best expected throughput that a depth must reach to be expected.
const NEAR: f64 = 0.99;

/// Share of the best simulated throughput that suffices. Slightly more than the 95 % that users are promised,
/// since a run reads few files.
const ENOUGH: f64 = 0.96;

/// Blocks of the largest file for which depths are simulated: at most some seconds of work.
pub const SEARCHED_BLOCKS: u64 = 1 << 17;

/// Share of an aged file's blocks that follow the block before: runs have three blocks.
const AGED_SEQUENTIAL: f64 = 2.0 / 3.0;

/// A disk's times for a block in milliseconds: ahead of the barrier and after it; and W.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    ahead: f64,
    after: f64,
    last: f64,
}

/// A machine, the blocks of each processor, and the most of one processor.
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

    /// Whether no disk is shared by processors.
    fn owns_disks(&self) -> bool {
        self.spec.pattern == Pattern::Interleaved
            && self.spec.disks.is_multiple_of(self.spec.processors)
    }

    /// Whether each disk's blocks are requested in their order at any depth.
    fn in_step(&self) -> bool {
        self.owns_disks()
            || self.spec.pattern == Pattern::Interleaved
                && self.spec.processors.is_multiple_of(self.spec.disks)
    }

    /// The share of time in which a disk is busy, with `requests` for each disk.
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

    /// Requests run in parallel, limited by slots, by the device's link or by the processors' links.
    fn flat(&self, flat: &FlatSpec, depth: u64) -> Times {
        let (spec, bytes) = (self.spec, self.spec.block_bytes() as f64);
        let requests = depth as f64 * spec.processors as f64 / spec.disks as f64;
        let one = mean_ms(flat) + bytes / flat.bandwidth_bytes_per_s * 1e3;
        let taken = self.network_ms() * spec.disks as f64 / spec.processors as f64;
        let each = (one / requests.min(flat.slots as f64))
            .max(bytes / flat.link_bytes_per_s * 1e3)
            .max(taken);
        let last = if depth < self.largest { longest_ms(flat) } else { 0.0 };
        Times { ahead: each, after: each, last }
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
        let between = |part: f64, all: f64, none: f64| part * all + (1.0 - part) * none;
        let (ahead, after) = match spec.placement {
            Placement::Random => (random, random / busy),
            Placement::Increasing => {
                let gap = cylinders(disk) / (spec.file_blocks as f64 / disks);
                let sorted = fixed
                    + transfer_ms(disk, spec.block_sectors)
                    + rotation_ms(disk)
                    + disk.seek.time(gap.round() as u64).as_millis();
                // Twice the 2D of the sequential layout, since service times are irregular (section 5.5).
                let part = if self.in_step() { 1.0 } else { (x / (4.0 * disks)).min(1.0) };
                let each = between(part, sorted, random) / busy;
                (each, each)
            }
            Placement::Aged => {
                // The next block of a run is known if its owner has requested as far.
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
                    // Sections 4.3 and 5.5: depth D begins to suffice, and 2D does.
                    _ => {
                        let stripes = (x / disks).floor().min(2.0) / 2.0;
                        let to_portions =
                            if all_known { 0.0 } else { positioning * (disks / x).min(1.0) };
                        let each = between(stripes, sequential, scattered);
                        (sequential + to_portions, each / busy)
                    }
                }
            }
        };
        Times { ahead, after, last: 0.0 }
    }

    /// Blocks that are requested before the barrier.
    fn asked(&self, depth: u64) -> f64 {
        self.portions.iter().map(|&portion| portion.min(depth)).sum::<u64>() as f64
    }

    /// Computing time of the processor that has most blocks, in milliseconds.
    fn compute_ms(&self) -> f64 {
        let share = self.spec.file_blocks as f64 / self.spec.processors as f64;
        self.spec.compute.as_millis() * self.largest as f64 / share
    }

    fn throughput_mb_s(&self, depth: u64) -> f64 {
        let (spec, times) = (self.spec, self.times(depth));
        let (blocks, disks) = (spec.file_blocks as f64, spec.disks as f64);
        let (asked, compute) = (self.asked(depth), self.compute_ms());
        let ahead = asked / disks * times.ahead;
        let after = (blocks - asked) / disks * times.after;
        let file_ms = compute + after + (ahead - compute).max(0.0) + times.last;
        blocks * spec.block_bytes() as f64 / MB / (file_ms / 1e3)
    }

    /// Depths from 1 to the largest portion, about 3 % apart, rounded up to multiples of D above D.
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

/// Mean time to the first byte, in milliseconds.
fn mean_ms(flat: &FlatSpec) -> f64 {
    match flat.latency {
        Latency::Constant { latency_ms } => latency_ms,
        Latency::Uniform { min_ms, max_ms } => (min_ms + max_ms) / 2.0,
        Latency::LogNormal { median_ms, sigma } => median_ms * (sigma * sigma / 2.0).exp(),
    }
}

/// Time to the first byte of the slowest of about twenty requests, for which a barrier waits, in milliseconds.
/// For a log-normal distribution, about three means.
fn longest_ms(flat: &FlatSpec) -> f64 {
    match flat.latency {
        Latency::Constant { latency_ms } => latency_ms,
        Latency::Uniform { max_ms, .. } => max_ms,
        Latency::LogNormal { .. } => 3.0 * mean_ms(flat),
    }
}

/// Expected throughput in MB/s with prefetching to this depth, also of the next file.
pub fn expected_throughput_mb_s(spec: &CollectiveSpec, depth: u64) -> f64 {
    Expected::new(spec).throughput_mb_s(depth)
}

/// The least depth whose expected throughput is almost the best, in a steady state; at most the largest
/// portion. Depends on `spec`'s layout, pattern, P, D, device, file size and computing, and not on its method
/// and depth.
pub fn expected_depth(spec: &CollectiveSpec) -> u64 {
    let expected = Expected::new(spec);
    let depths: Vec<(u64, f64)> =
        expected.depths().map(|depth| (depth, expected.throughput_mb_s(depth))).collect();
    let best = depths.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
    depths
        .into_iter()
        .find(|(_, throughput)| *throughput >= NEAR * best)
        .map_or(1, |(depth, _)| depth)
}

/// The least depth at each processor, in blocks, that reaches 96 % of the best throughput in simulation. It tests depths around
/// [`expected_depth`] in about ten simulated runs. A run counts one to eight files, and reads one more before and one more
/// after them. Files of more than [`SEARCHED_BLOCKS`] get the expected depth.
pub fn recommended_depth(spec: &CollectiveSpec) -> u64 {
    let expected = expected_depth(spec);
    if spec.file_blocks > SEARCHED_BLOCKS {
        return expected;
    }
    let files = (SEARCHED_BLOCKS / 8 / spec.file_blocks).clamp(1, 8) as u32;
    let spec = CollectiveSpec { files, steady: true, ..spec.clone() };
    let (portion, disks) = (spec.largest_portion_blocks(), spec.disks as u64);
    let at = |depth| spec.run_prefetching(depth).throughput_mb_s();
    let best = at(portion).max(at(expected));
    let is_enough = |depth| depth >= portion || at(depth) >= ENOUGH * best;
    let stripes = std::iter::successors(Some(disks), |depth| depth.checked_mul(2));
    let mut tried: Vec<u64> = stripes.take_while(|&depth| depth < portion).collect();
    tried.extend([1, expected / 2, expected]);
    tried.sort_unstable();
    let (mut below, mut above) = (0, portion);
    for depth in tried.into_iter().filter(|&depth| depth > 0 && depth < portion) {
        if is_enough(depth) {
            above = depth;
            break;
        }
        below = depth;
    }
    // Above D only multiples of D, if one lies between.
    while above > below + (below / 4).max(1) {
        let middle = below.midpoint(above);
        let stripes = middle / disks * disks;
        let middle = if stripes > below { stripes } else { middle };
        if is_enough(middle) { above = middle } else { below = middle }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_policy::Nanos;

    /// Blocks ahead and after: 512 blocks on 8 disks, at the time of the drive, of the seek at a cylinder's end
    /// and of the network.
    #[test]
    fn a_file_takes_what_is_ahead_after_and_computed() {
        let mut spec = CollectiveSpec::paper(4);
        let each = 2.2
            + 16.0 * 512.0 / 10e6 * 1e3
            + 3.64 * 16.0 / 1368.0
            + 25e-6
            + 8192.0 / (400.0 * MB) * 1e3;
        let near = |depth: u64, spec: &CollectiveSpec, ms: f64| {
            let expected = expected_throughput_mb_s(spec, depth);
            let wanted = 4.0 / (ms / 1e3);
            assert!((expected / wanted - 1.0).abs() < 1e-4, "{expected} instead of {wanted}");
        };
        near(16, &spec, 64.0 * each);
        spec.compute = Nanos::from_millis(100.0);
        near(16, &spec, 48.0 * each + 100.0); // 16 blocks are less than the computing.
        near(64, &spec, 64.0 * each);
    }

    #[test]
    fn recommendations_are_no_more_than_the_largest_portion() {
        let spec = CollectiveSpec { files: 1000, ..CollectiveSpec::paper(4) };
        assert_eq!(expected_depth(&spec), 1); // Only the disks matter, and they are in step.
        assert_eq!(recommended_depth(&spec), 1);
        let mut portions =
            CollectiveSpec { pattern: Pattern::Block1d, file_blocks: 1 << 17, ..spec };
        assert!((16..=64).contains(&expected_depth(&portions)));
        portions.file_blocks = 512;
        portions.compute = Nanos::from_millis(220.0); // As much computing as reading: nearly all blocks ahead.
        assert!((56..=64).contains(&expected_depth(&portions)));
        // Boxes of a file of 13 by 13 by 13 blocks; the largest box has 7 by 7 by 7.
        let boxes =
            CollectiveSpec { pattern: Pattern::Block3d, file_blocks: 2197, ..portions.clone() };
        assert!((256..=343).contains(&expected_depth(&boxes)));
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
