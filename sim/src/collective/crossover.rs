//! The least depth that reaches a given throughput. Found by simulation, since no formula is accurate enough.
//!
//! Throughput grows with depth, but not at every step: contiguous portions get out of step at a depth that is
//! no multiple of D. So small depths are all tried in order, and only far above them does a bisection search
//! begin. The first depth that suffices also says nothing about greater ones, so some of these are tried too.

use std::collections::BTreeMap;

use super::{CollectiveReport, CollectiveSpec, Method};

/// The result of [`CollectiveSpec::answers`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answers {
    /// Throughput in MB/s of a disk-directed read of the same files, not overlapped.
    pub collective_mb_s: f64,
    /// Throughput in MB/s of a disk-directed read that is overlapped with computing, which takes as much memory as fetching
    /// whole portions ahead.
    pub overlapped_mb_s: f64,
    /// The least depth found whose throughput is no less than that of the call without overlap; `None` if even
    /// whole portions ahead do not reach it.
    pub crossover: Option<u64>,
    /// The first of the tried depths above `crossover` whose throughput is again less than `collective_mb_s`.
    pub less_again_at: Option<u64>,
    /// The least depth found that reaches [`NEAR_BEST`] of the throughput with whole portions ahead.
    pub near_best: u64,
}

/// Share of the best throughput; see [`Answers::near_best`].
pub const NEAR_BEST: f64 = 0.95;

/// The first of the tried depths from 1 to `portion` for which `is_enough` is true. Tries every depth up to
/// `each`, then every `each / 2`-th up to four times `each`, and then doubles and bisects, to a precision of
/// `each / 2` or a sixteenth.
pub fn least_depth(each: u64, portion: u64, mut is_enough: impl FnMut(u64) -> bool) -> Option<u64> {
    let step = (each / 2).max(1);
    let last = portion.min(4 * each);
    let mut depth = 0;
    while depth < last {
        depth = if depth < each { depth + 1 } else { (depth / step + 1) * step }.min(portion);
        if is_enough(depth) {
            return Some(depth);
        }
    }
    let (mut below, mut above) = (depth, depth);
    loop {
        if below >= portion {
            return None;
        }
        above = (2 * above).min(portion);
        if is_enough(above) {
            break;
        }
        below = above;
    }
    while above - below > step.max(below / 16) {
        let middle = below.midpoint(above) / step * step;
        if is_enough(middle) { above = middle } else { below = middle }
    }
    Some(above)
}

/// The depths tried above the first that suffices: one more, half a stripe and almost a stripe more, and almost
/// twice as deep.
fn above(first: u64, disks: u64, portion: u64) -> Vec<u64> {
    let all = [first + 1, first + disks / 2, first + disks - 1, 2 * first - 1];
    let mut tried = all.map(|depth| depth.min(portion)).to_vec();
    tried.sort_unstable();
    tried.dedup();
    tried.retain(|&depth| depth > first);
    tried
}

impl CollectiveSpec {
    /// Runs with prefetching to this depth, which also fetches the next file's blocks ahead.
    pub fn run_prefetching(&self, depth: u64) -> CollectiveReport {
        CollectiveSpec { method: Method::Prefetch, overlapped: true, depth, ..self.clone() }.run()
    }

    /// The depths from which prefetching equals a collective call, and reaches nearly the best throughput.
    /// Takes up to twenty runs, and each depth once; the spec's method and depth do not matter.
    pub fn answers(&self) -> Answers {
        let call = |overlapped| {
            let spec = CollectiveSpec { method: Method::DiskDirected, overlapped, ..self.clone() };
            spec.run().throughput_mb_s()
        };
        let collective_mb_s = call(false);
        let portion = self.largest_portion_blocks();
        let mut known = BTreeMap::new();
        let mut at = |depth| {
            *known.entry(depth).or_insert_with(|| self.run_prefetching(depth).throughput_mb_s())
        };
        let wanted = NEAR_BEST * at(portion);
        let mut first = |wanted: f64| least_depth(4, portion, |depth| at(depth) >= wanted);
        let (crossover, near_best) = (first(collective_mb_s), first(wanted));
        let tried = crossover.map(|first| above(first, self.disks as u64, portion));
        let is_less = |&depth: &u64| at(depth) < collective_mb_s;
        Answers {
            collective_mb_s,
            overlapped_mb_s: call(true),
            crossover,
            less_again_at: tried.and_then(|tried| tried.into_iter().find(is_less)),
            near_best: near_best.unwrap_or(portion),
        }
    }
}

#[cfg(test)]
mod tests {
    use foretell_policy::Nanos;

    use super::*;
    use crate::collective::{Network, Pattern};
    use crate::device::DiskParameters;

    fn least(each: u64, portion: u64, first: u64) -> (Option<u64>, Vec<u64>) {
        let mut tried = Vec::new();
        let found = least_depth(each, portion, |depth| {
            tried.push(depth);
            depth >= first
        });
        (found, tried)
    }

    #[test]
    fn small_depths_are_all_tried_and_large_ones_by_halves() {
        assert_eq!(least(4, 100, 3), (Some(3), vec![1, 2, 3]));
        assert_eq!(least(4, 100, 9), (Some(10), vec![1, 2, 3, 4, 6, 8, 10]));
        assert_eq!(least(2, 1000, 21).0, Some(21));
        assert_eq!(least(16, 4096, 290).0, Some(304)); // A sixteenth of 272 is more than `each / 2`.
        assert_eq!(least(16, 512, 60).0, Some(64));
        assert_eq!(least(16, 10, 11).0, None);
        assert_eq!(least(4, 50, 50).0, Some(50));
        assert_eq!(least(4, 1, 1).0, Some(1));
        assert_eq!(least(4, 50, 51).0, None);
    }

    #[test]
    fn above_the_first_depth_some_more_are_tried() {
        assert_eq!(above(16, 8, 512), [17, 20, 23, 31]);
        assert_eq!(above(2, 8, 512), [3, 6, 9]);
        assert_eq!(above(16, 8, 18), [17, 18]);
        assert_eq!(above(1, 1, 512), [2]);
        assert_eq!(above(5, 8, 5), [0_u64; 0]);
    }

    /// Contiguous portions of 512 blocks on 8 disks: two or three stripes ahead suffice, and depths between do
    /// not.
    #[test]
    fn more_depth_can_be_less_throughput() {
        let mut spec = CollectiveSpec {
            pattern: Pattern::Block1d,
            apart: true,
            steady: true,
            ..CollectiveSpec::paper(32)
        };
        spec.compute = Nanos::from_millis(1600.0);
        let answers = spec.answers();
        assert_eq!((answers.crossover, answers.less_again_at), (Some(16), Some(17)));
        assert!(answers.overlapped_mb_s > 1.5 * answers.collective_mb_s);
        let is_enough =
            |depth| spec.run_prefetching(depth).throughput_mb_s() >= answers.collective_mb_s;
        assert_eq!((15..=24).filter(|&depth| is_enough(depth)).collect::<Vec<_>>(), [16, 24]);
    }

    /// A file of one block and no computing: all methods take the same time.
    #[test]
    fn as_much_as_the_call_is_enough() {
        let spec = CollectiveSpec {
            processors: 1,
            disks: 1,
            network: Network::INSTANT,
            disk: DiskParameters::by_name("ssd").expect("built in"),
            file_blocks: 1,
            steady: true,
            ..CollectiveSpec::paper(4)
        };
        let answers = spec.answers();
        assert_eq!(answers.collective_mb_s, spec.run_prefetching(1).throughput_mb_s());
        assert_eq!(answers.crossover, Some(1));
    }
}
