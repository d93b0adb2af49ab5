//! The share of recent accesses that each estimator has had (r_d and r_h of TIP 1995, eq. 8).
//!
//! Shares decay with the number of accesses, not with time: while no program reads, they stay. Each access weighs more than
//! the one before by a constant factor. An access therefore changes one count, and counts can be compared at any time.
//!
//! Cost: O(1) an access.

use crate::blocks::StreamIndex;

/// The number under which accesses without hints are counted. Streams have the numbers after it.
/// Unit: members. Reason: layout.
pub(crate) const UNHINTED: u32 = 0;

/// Weight at which all counts are scaled down, far below the largest number.
/// Unit: ratio. Reason: bound.
const RESCALE: f64 = 1e100;

/// The number under which a stream's accesses are counted.
#[inline]
pub(crate) fn share_of(stream: StreamIndex) -> u32 {
    UNHINTED + 1 + stream.0
}

/// Counts of accesses; see the [module](self). Members are small integers.
#[derive(Debug)]
pub(crate) struct Rates {
    growth: f64,
    weight: f64,
    total: f64,
    /// The accesses that were made: `total` without the credit of new members.
    accessed: f64,
    counts: Vec<f64>,
}

impl Rates {
    /// After `half_life` accesses a count is worth half.
    pub(crate) fn new(half_life: f64) -> Self {
        let growth = (1.0 / half_life).exp2();
        Rates { growth, weight: 1.0, total: 0.0, accessed: 0.0, counts: Vec::new() }
    }

    fn count_mut(&mut self, member: u32) -> &mut f64 {
        let index = member as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0.0);
        }
        &mut self.counts[index]
    }

    /// Counts an access. Returns whether all counts have been scaled: keys made of them must be made anew.
    pub(crate) fn access(&mut self, member: u32) -> bool {
        self.weight *= self.growth;
        let weight = self.weight;
        *self.count_mut(member) += weight;
        self.total += weight;
        self.accessed += weight;
        if weight < RESCALE {
            return false;
        }
        self.counts.iter_mut().for_each(|count| *count /= RESCALE);
        self.total /= RESCALE;
        self.accessed /= RESCALE;
        self.weight /= RESCALE;
        true
    }

    /// Credits a new member with this share. It is a share of the accesses that were really made. Credits of members that make
    /// no accesses therefore do not raise the next member's credit.
    pub(crate) fn introduce(&mut self, member: u32, share: f64) {
        let count = (self.accessed * share / (1.0 - share)).max(self.weight);
        let old = std::mem::replace(self.count_mut(member), count);
        self.total += count - old;
    }

    /// The member has left.
    pub(crate) fn forget(&mut self, member: u32) {
        let old = std::mem::take(self.count_mut(member));
        self.total -= old;
        if old > self.total {
            self.total = self.counts.iter().sum(); // The difference may consist of rounding errors.
        }
    }

    /// The member's weighted accesses: its share times a factor that all members have in common until the next scaling.
    pub(crate) fn count(&self, member: u32) -> f64 {
        self.counts.get(member as usize).copied().unwrap_or(0.0)
    }

    /// `floor`, a normalised value, in terms of the member's own accesses.
    ///
    /// The result is rounded up by a few units in the last place. Otherwise, by rounding, each of two members could value the
    /// same block above the other, and they would hand it to and fro for ever.
    pub(crate) fn own(&self, member: u32, floor: f64) -> f64 {
        /// Unit: ratio. Reason: bound.
        const MARGIN: f64 = 1.0 + 4.0 * f64::EPSILON;
        let count = self.count(member);
        if count > 0.0 { floor / count * MARGIN } else { f64::INFINITY }
    }

    /// The sum of all counts. A count divided by it is a share.
    pub(crate) fn total(&self) -> f64 {
        self.total.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_a_change_with_the_half_life() {
        let mut rates = Rates::new(100.0);
        for _ in 0..10_000 {
            rates.access(0);
            rates.access(1);
        }
        assert!((rates.count(0) / rates.total() - 0.5).abs() < 0.01);
        for _ in 0..100 {
            rates.access(1);
        }
        assert!((rates.count(0) / rates.total() - 0.25).abs() < 0.01);
    }

    #[test]
    fn many_silent_members_do_not_outgrow_those_that_read() {
        let mut rates = Rates::new(1024.0);
        (0..10_000).for_each(|_| {
            rates.access(0);
        });
        let reader = rates.count(0);
        for members in [100, 5000] {
            (1..=members).for_each(|member| rates.introduce(member, 0.2));
            assert!(rates.count(members) <= reader, "the last is worth more than the reader");
            assert!(rates.count(0) / rates.total() > 1.0 / f64::from(members));
            (1..=members).for_each(|member| rates.forget(member));
            assert!((rates.total() / reader - 1.0).abs() < 1e-9, "{}", rates.total() / reader);
        }
    }

    #[test]
    fn scaling_keeps_shares() {
        let mut rates = Rates::new(10.0);
        let mut scaled = 0;
        for access in 0..20_000 {
            scaled += u32::from(rates.access(u32::from(access % 4 == 0)));
        }
        assert!(scaled > 5);
        assert!((rates.count(1) / rates.total() - 0.25).abs() < 0.05);
        rates.introduce(7, 0.2);
        assert!((rates.count(7) / rates.total() - 0.2).abs() < 0.01);
        rates.forget(7);
        assert_eq!(rates.count(7), 0.0);
    }

    proptest::proptest! {
        #[test]
        fn what_exceeds_the_own_floor_exceeds_the_floor(
            accesses in proptest::collection::vec(0..3u32, 1..50),
            floor in 1e-300..1e300f64,
            member in 0..3u32,
        ) {
            let mut rates = Rates::new(7.0);
            for access in accesses {
                rates.access(access);
            }
            let own = rates.own(member, floor);
            let above = own.next_up();
            proptest::prop_assert!(own == f64::INFINITY || above * rates.count(member) > floor);
            // Not by much.
            proptest::prop_assert!(own == f64::INFINITY || own * rates.count(member) <= floor * (1.0 + 1e-14));
        }
    }
}
