//! The least depth with which prefetching brings so much: by simulation, as no formula tells it near enough.
//!
//! Throughput grows with depth, but not at every step: contiguous portions are out of step with one another at a depth that is no
//! multiple of D. So small depths are all tried, in their order, and only far above is the first one looked for by halves.

use super::{CollectiveReport, CollectiveSpec, Method};

/// What [`CollectiveSpec::answers`] tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answers {
    /// Of a disk-directed read of the same files that is not overlapped, MB/s.
    pub collective_mb_s: f64,
    /// The least depth found with more throughput than that; none if all of a portion ahead does not bring it.
    pub crossover: Option<u64>,
    /// The least depth found with [`NEAR_BEST`] of what all of a portion ahead brings.
    pub near_best: u64,
}

/// See [`Answers::near_best`].
pub const NEAR_BEST: f64 = 0.95;

/// The first depth from 1 to `portion` that `is_enough`, of those tried: each up to `each`, from there to four times that each
/// `each / 2`-th, and then the first found by doubling and halving, to `each / 2` or a sixteenth.
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

impl CollectiveSpec {
    /// Runs it with the next file's blocks fetched ahead to a depth of so many.
    pub fn run_prefetching(&self, depth: u64) -> CollectiveReport {
        CollectiveSpec { method: Method::Prefetch, overlapped: true, depth, ..self.clone() }.run()
    }

    /// How deep one must prefetch for a collective call to be no better, and to have nearly all that there is to have. Some
    /// twenty runs; its method and depth do not matter.
    pub fn answers(&self) -> Answers {
        let call =
            CollectiveSpec { method: Method::DiskDirected, overlapped: false, ..self.clone() };
        let collective_mb_s = call.run().throughput_mb_s();
        let portion = self.largest_portion_blocks();
        let at = |depth| self.run_prefetching(depth).throughput_mb_s();
        let wanted = NEAR_BEST * at(portion);
        let first = |wanted: f64| least_depth(4, portion, |depth| at(depth) > wanted);
        Answers {
            collective_mb_s,
            crossover: first(collective_mb_s),
            near_best: first(wanted).unwrap_or(portion),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(least(16, 4096, 290).0, Some(304)); // A sixteenth of 272 is more than 8.
        assert_eq!(least(16, 512, 60).0, Some(64));
        assert_eq!(least(16, 10, 11).0, None);
        assert_eq!(least(4, 50, 50).0, Some(50));
        assert_eq!(least(4, 1, 1).0, Some(1));
        assert_eq!(least(4, 50, 51).0, None);
    }
}
