//! Compares the search with an enumeration of all decisions, and with cases worked out by hand.

use super::*;
use crate::random::SplitMix64;
use foretell_policy::Nanos;

fn case(reads: &[usize], remote: &[bool], buffers: usize, fetch_units: [u64; 2]) -> Case {
    let (reads, remote) = (reads.to_vec(), remote.to_vec());
    Case { reads, remote, buffers, fetch_units, driver: Nanos::ZERO }
}

#[test]
fn worked_out_by_hand() {
    let stall =
        |reads: &[usize], remote: &[bool], buffers| optimum(&case(reads, remote, buffers, [2, 20]));
    // Both fetches start at once; the program waits for the first, and the second arrives a unit later.
    assert_eq!(stall(&[0, 1], &[false, false], 2), 2);
    // The one buffer goes to the second block, and the first is read without a buffer meanwhile.
    assert_eq!(stall(&[0, 1], &[false, false], 1), 2);
    // The third read waits until the second block has been read from the buffer.
    assert_eq!(stall(&[0, 1, 0], &[false, false], 1), 2 + 1);
    // The remote block is fetched first, and the local ones pass through the other buffer. It arrives after 20
    // units, and is needed after (2 + 1) + (1 + 1) at the earliest.
    assert_eq!(stall(&[0, 1, 2], &[false, false, true], 2), 19 - 2 + 1);
    // With all buffers waiting for remote blocks, a local block is read without a buffer.
    assert_eq!(stall(&[0, 1], &[false, true], 1), 2 + 17);
    assert_eq!(stall(&[0, 0, 0], &[true], 1), 20);
}

/// The same model without search: every decision at every instant that allows one, with one recursion for each
/// sequence of decisions. Blocks that will not be read again are kept and evicted like any other.
#[derive(Clone)]
struct Naive<'a> {
    case: &'a Case,
    memory: Vec<usize>,
    /// Blocks in flight, with their times of arrival.
    coming: Vec<(usize, u64)>,
}

impl Naive<'_> {
    /// The least stall from `now` on, if `begun` reads have begun and the last one ends at `over`; `None` if it
    /// waits for its block.
    fn decide(self, now: u64, begun: usize, over: Option<u64>) -> u64 {
        let mut least = self.clone().go_on(now, begun, over);
        let later = &self.case.reads[begun..];
        for block in 0..self.case.remote.len() {
            if later.contains(&block) && self.is_absent(block) {
                for with in self.with_fetch(block, now) {
                    least = least.min(with.decide(now, begun, over));
                }
            }
        }
        least
    }

    fn is_absent(&self, block: usize) -> bool {
        !self.memory.contains(&block) && self.coming.iter().all(|&(other, _)| other != block)
    }

    /// All states after a fetch of `block` has started; empty if no buffer can be had.
    fn with_fetch(&self, block: usize, now: u64) -> Vec<Self> {
        let mut started = self.clone();
        started.coming.push((block, now + self.case.fetch_units(block)));
        if self.memory.len() + self.coming.len() < self.case.buffers {
            return vec![started];
        }
        let without = |victim: usize| {
            let mut evicted = started.clone();
            evicted.memory.remove(victim);
            evicted
        };
        (0..self.memory.len()).map(without).collect()
    }

    /// Advances to the next event.
    fn go_on(mut self, now: u64, begun: usize, over: Option<u64>) -> u64 {
        if begun == self.case.reads.len() && over.is_some() {
            return 0;
        }
        let arrival = self.coming.iter().map(|&(_, at)| at).min().unwrap_or(u64::MAX);
        let then = arrival.min(over.unwrap_or(u64::MAX));
        if arrival > then {
            return self.read(then, begun);
        }
        let (come, coming) = self.coming.iter().partition::<Vec<_>, _>(|&&(_, at)| at == then);
        self.coming = coming;
        self.memory.extend(come.iter().map(|&(block, _)| block));
        match over {
            Some(_) => self.decide(then, begun, over),
            None => {
                let came = self.memory.contains(&self.case.reads[begun - 1]);
                let over = came.then_some(then + 1);
                (then - now) + self.decide(then, begun, over)
            }
        }
    }

    fn read(mut self, now: u64, begun: usize) -> u64 {
        let block = self.case.reads[begun];
        if self.memory.contains(&block) {
            return self.decide(now, begun + 1, Some(now + 1));
        }
        if !self.is_absent(block) {
            return self.decide(now, begun + 1, None);
        }
        let started = self.with_fetch(block, now);
        if started.is_empty() {
            let took = self.case.fetch_units(block);
            return took + self.around(now, now + took, begun + 1);
        }
        self.coming.clear();
        started.into_iter().map(|next| next.decide(now, begun + 1, None)).min().unwrap_or(u64::MAX)
    }

    /// Reads without a buffer until `until`, deciding now and at each arrival.
    fn around(mut self, now: u64, until: u64, begun: usize) -> u64 {
        // All buffers are being filled, so there is no decision before an arrival.
        let arrival = self.coming.iter().map(|&(_, at)| at).min().unwrap_or(u64::MAX);
        let then = arrival.min(until);
        assert!(then > now);
        let (come, coming) = self.coming.iter().partition::<Vec<_>, _>(|&&(_, at)| at == then);
        self.coming = coming;
        self.memory.extend(come.iter().map(|&(block, _)| block));
        if then == until {
            return self.decide(then, begun, Some(then + 1));
        }
        let mut least = u64::MAX;
        for next in self.all_starts(then, begun) {
            least = least.min(next.around(then, until, begun));
        }
        least
    }

    /// All states after any number of fetches have started.
    fn all_starts(self, now: u64, begun: usize) -> Vec<Self> {
        let mut all = Vec::new();
        let later = &self.case.reads[begun..];
        for block in 0..self.case.remote.len() {
            if later.contains(&block) && self.is_absent(block) {
                for with in self.with_fetch(block, now) {
                    all.extend(with.all_starts(now, begun));
                }
            }
        }
        all.push(self);
        all
    }
}

#[test]
fn the_search_finds_what_the_enumeration_finds() {
    let mut random = SplitMix64::new(11);
    for _ in 0..1000 {
        let blocks = 2 + random.below(2);
        let reads: Vec<usize> =
            (0..3 + random.below(3)).map(|_| random.below(blocks) as usize).collect();
        let remote: Vec<bool> = (0..blocks).map(|_| random.below(2) == 0).collect();
        let local = 1 + random.below(2);
        let fetch_units = [local, local + 1 + random.below(5)];
        let case = case(&reads, &remote, 1 + random.below(2) as usize, fetch_units);
        let naive = Naive { case: &case, memory: Vec::new(), coming: Vec::new() };
        assert_eq!(optimum(&case), naive.decide(0, 0, Some(0)), "{case:?}");
    }
}
