//! What a buffer is worth: the formulas of TIP 1995, section 4, in time saved or lost for each buffer
//! and access.
//!
//! The value of a choice is an expected change in execution time divided by the number of accesses for
//! which a buffer is bound or freed, so that choices of different kinds can be compared. Every estimator
//! states values in terms of its own accesses; the arbiter multiplies them by the estimator's share of
//! all accesses (eq. 8).
//!
//! Beyond the paper:
//!
//! * **A. Overload.** Where a device is busy all the time, the horizon is not the limit: a fetch that is
//!   begun early takes time that the device would have stood still, and one that is done twice takes
//!   the time of another. So a prefetch beyond the horizon saves the device's time for a block, and
//!   flushing costs it (what TIPTOE and Forestall do, in TIP's currency).
//! * **B. Sets.** Of n blocks that will be read in any order each is the next one with chance 1/n; and each
//!   is read at the latest n accesses ahead, so that it is worth no less than a block that is read then.

use crate::costs::Prices;
use crate::stream::cursor::Distance;

/// A block that is used later than the next access frees its buffer for so many accesses at least.
const ACCESSES_MIN: f64 = 1.0;

/// Eq. 9: the cost of flushing a block whose next use is `distance` away, in ns for each access.
///
/// `overloaded` adds the device's time where it has none to spare (A).
pub(crate) fn flush_cost(distance: Distance, prices: &Prices, overloaded: bool) -> f64 {
    let busy_ns = if overloaded { prices.block_ns } else { 0.0 };
    match distance {
        Distance::Ahead(accesses) => {
            let (y, horizon) = (accesses as f64, prices.horizon());
            if y > horizon {
                (prices.driver_ns + busy_ns) / (y - horizon).max(ACCESSES_MIN)
            } else {
                prices.driver_ns + busy_ns.max(prices.lead_ns - y * prices.hit_ns)
            }
        }
        Distance::AnyOf(accesses) => {
            let accesses = accesses.max(1);
            let by_chance = (prices.driver_ns + prices.disk_ns) / accesses as f64;
            by_chance.max(flush_cost(Distance::Ahead(accesses), prices, overloaded))
        }
    }
}

/// Eq. 6 averaged as in eq. 8: the benefit of prefetching a block that is used `distance` away, in ns
/// for each access that its buffer is bound.
pub(crate) fn prefetch_benefit(distance: Distance, prices: &Prices, overloaded: bool) -> f64 {
    let busy_ns = if overloaded { prices.block_ns } else { 0.0 };
    match distance {
        Distance::Ahead(accesses) => {
            let x = accesses as f64;
            (prices.lead_ns - x * prices.hit_ns).max(busy_ns).max(0.0) / x
        }
        Distance::AnyOf(accesses) => prices.disk_ns / accesses.max(1) as f64,
    }
}

/// The same choice by distance alone: the sooner, the more.
pub(crate) fn nearness(distance: Distance) -> f64 {
    match distance {
        Distance::Ahead(accesses) => 1.0 / accesses as f64,
        Distance::AnyOf(accesses) => 2.0 / (accesses.max(1) + 1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Distance::Ahead;

    const PRICES: Prices =
        Prices { hit_ns: 1.0, driver_ns: 2.0, disk_ns: 100.0, lead_ns: 100.0, block_ns: 30.0 };

    #[test]
    fn flushing_costs_more_than_prefetching_the_same_block_benefits() {
        for y in 1..1000 {
            for overloaded in [false, true] {
                let cost = flush_cost(Ahead(y), &PRICES, overloaded);
                let benefit = prefetch_benefit(Ahead(y), &PRICES, overloaded);
                assert!(cost > benefit, "{y}: {cost} {benefit}");
            }
        }
    }

    #[test]
    fn the_values_of_the_formulas() {
        assert_eq!(prefetch_benefit(Ahead(20), &PRICES, false), 80.0 / 20.0);
        assert_eq!(prefetch_benefit(Ahead(100), &PRICES, false), 0.0);
        assert_eq!(prefetch_benefit(Ahead(300), &PRICES, true), 0.1);
        assert_eq!(flush_cost(Ahead(40), &PRICES, false), 2.0 + 60.0);
        assert_eq!(flush_cost(Ahead(150), &PRICES, false), 2.0 / 50.0);
        assert_eq!(flush_cost(Ahead(150), &PRICES, true), 32.0 / 50.0);
        assert_eq!(flush_cost(Distance::AnyOf(204), &PRICES, false), 0.5);
        assert_eq!(flush_cost(Distance::AnyOf(40), &PRICES, false), 2.0 + 60.0);
    }

    #[test]
    fn a_block_of_a_set_is_worth_no_less_than_one_read_after_it() {
        for (n, overloaded) in (1..400).flat_map(|n| [(n, false), (n, true)]) {
            let (within, after) = (Distance::AnyOf(n), Ahead(n + 1));
            let cost = |distance| flush_cost(distance, &PRICES, overloaded);
            assert!(cost(within) >= cost(after), "{n}: {} {}", cost(within), cost(after));
            assert!(nearness(within) >= nearness(after), "{n}");
        }
    }

    #[test]
    fn the_cost_of_flushing_falls_with_the_distance() {
        for overloaded in [false, true] {
            let costs: Vec<f64> =
                (1..400).map(|y| flush_cost(Ahead(y), &PRICES, overloaded)).collect();
            assert!(costs.is_sorted_by(|sooner, later| sooner >= later));
        }
    }
}
