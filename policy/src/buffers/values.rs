//! The value of a buffer: the formulas of TIP 1995, section 4, in ns saved or lost for each buffer and access.
//!
//! The value of a choice is the expected change of execution time, divided by the number of accesses for which a buffer is
//! bound or freed. Choices of different kinds can thus be compared. Each estimator states values in terms of its own accesses;
//! the arbiter multiplies them by the estimator's share of all accesses (eq. 8).
//!
//! Beyond the paper:
//!
//! * **A. Overload.** Where a device cannot keep up, the horizon is no limit: a fetch begun early uses time in which the device
//!   would have been idle, and a block that has to be fetched twice takes device time from another fetch. A prefetch beyond the
//!   horizon therefore saves the device's time for a block, and flushing costs it (as in TIPTOE and Forestall, in TIP's
//!   currency).
//! * **B. Early.** Eq. 6 assumes that the next access is `T_hit` away. It may come at once, decisions are made once an access,
//!   and starting a fetch takes time too. The horizon is therefore two accesses and `T_driver` further. The block of the next
//!   access is worth `T_disk + T_driver` and one pace, so that the most urgent of several streams comes first. Where reads are
//!   further apart than `T_disk`, this margin would exceed what a fetch can save: the value is `T_disk` at most.
//! * **C. Pace.** Eq. 6 assumes a burst of reads `T_hit` apart. Where memory is smaller than the horizon of such a burst, every
//!   block in memory seems too urgent to evict, and nothing is prefetched. A stream whose pace has been measured is assumed to
//!   keep it, or to be a few times faster while its reads come late ([`crate::streams::stream`]). A stream that waits for a
//!   busy device is not assumed to be faster than the device.
//! * **D. Sets.** Each of n blocks that will be read in any order is the next with chance 1/n. It is read n accesses ahead at
//!   the latest, so that it is worth no less than a block that is read then.
//! * **E. Spare buffers.** The horizon rests on measurements, and a pace changes. A fetch beyond the horizon has a small value,
//!   enough to get a buffer that no estimator values.

use crate::devices::costs::Prices;
use crate::rules::Rules;
use crate::streams::stream::cursor::Distance;

/// Least number of accesses for which flushing a block frees its buffer (eq. 9 would divide by next to nothing).
/// Unit: accesses. Reason: bound.
const ACCESSES_MIN: f64 = 1.0;

/// E: the value of a fetch beyond the horizon, as a part of `T_driver`.
/// Unit: ratio. Reason: judgement.
const SPARE: f64 = 1e-3;

/// The costs of fetching from one device for one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    /// Time between two accesses.
    pace_ns: f64,
    /// `T_driver`.
    driver_ns: f64,
    /// `T_disk`.
    disk_ns: f64,
    /// How long before its use a fetch should begin, in ns and in accesses (eq. 7).
    lead_ns: f64,
    horizon: f64,
    /// The longest wait that a fetch is assumed to save its reader.
    stall_max_ns: f64,
    /// A: the device's time for a block; 0 if the device keeps up.
    busy_ns: f64,
    /// E: the value of a fetch beyond the horizon.
    spare_ns: f64,
}

impl Terms {
    /// The terms of a stream at a device of these `prices`. `gap_ns` is the stream's mean time between reads that do not wait,
    /// if it is known; `late` says that many of its reads do wait.
    pub(crate) fn new(prices: &Prices, rules: &Rules, gap_ns: Option<f64>, late: bool) -> Self {
        let &Prices { hit_ns, driver_ns, disk_ns, block_ns, .. } = prices;
        let busy_ns = if rules.overload && late { block_ns } else { 0.0 };
        let mut pace_ns = hit_ns;
        if rules.own_pace {
            pace_ns = gap_ns.unwrap_or(hit_ns).max(hit_ns).max(busy_ns);
        }
        let margin_ns = if rules.early { driver_ns + 2.0 * pace_ns } else { 0.0 };
        let lead_ns = disk_ns + margin_ns;
        let stall_max_ns = if pace_ns > disk_ns { disk_ns } else { lead_ns };
        let spare_ns = if rules.spare_buffers { SPARE * driver_ns } else { 0.0 };
        let horizon = lead_ns / pace_ns;
        Terms { pace_ns, driver_ns, disk_ns, lead_ns, horizon, stall_max_ns, busy_ns, spare_ns }
    }

    /// B: the wait that is saved if a block used so many accesses from now is fetched now instead of then.
    fn stall_ns(&self, accesses: f64) -> f64 {
        (self.lead_ns - accesses * self.pace_ns).min(self.stall_max_ns)
    }

    /// The prefetch horizon, in accesses (eq. 7).
    pub(crate) fn horizon(&self) -> f64 {
        self.horizon
    }

    /// Whether the device cannot keep up with the stream.
    pub(crate) fn overloaded(&self) -> bool {
        self.busy_ns > 0.0
    }

    /// A: these terms for the case that the device of these `prices` will not keep up.
    pub(crate) fn behind(self, prices: &Prices) -> Self {
        Terms { busy_ns: prices.full_ns, ..self }
    }

    /// E: whether a fetch beyond the horizon is worth a buffer that no estimator values.
    pub(crate) fn spares(&self) -> bool {
        self.spare_ns > 0.0
    }

    /// Eq. 9: the cost of flushing a block whose next use is `distance` away, in ns for each access.
    pub(crate) fn flush_cost(&self, distance: Distance) -> f64 {
        match distance {
            Distance::Ahead(accesses) => {
                let (y, horizon) = (accesses as f64, self.horizon);
                if y > horizon {
                    (self.driver_ns + self.busy_ns) / (y - horizon).max(ACCESSES_MIN)
                } else {
                    self.driver_ns + self.busy_ns.max(self.stall_ns(y))
                }
            }
            Distance::AnyOf(accesses) => {
                let accesses = accesses.max(1);
                let by_chance = (self.driver_ns + self.disk_ns) / accesses as f64;
                by_chance.max(self.flush_cost(Distance::Ahead(accesses)))
            }
        }
    }

    /// Eq. 6 averaged as in eq. 8: the benefit of prefetching a block that is used `distance` away, in
    /// ns for each access that its buffer is bound.
    pub(crate) fn prefetch_benefit(&self, distance: Distance) -> f64 {
        match distance {
            Distance::Ahead(accesses) => {
                let x = accesses as f64;
                self.stall_ns(x).max(self.busy_ns).max(self.spare_ns) / x
            }
            Distance::AnyOf(accesses) => self.disk_ns / accesses.max(1) as f64,
        }
    }

    /// E: the benefit of a fetch that would only wait for its turn at the device.
    pub(crate) fn spare_benefit(&self, distance: Distance) -> f64 {
        match distance {
            Distance::Ahead(accesses) | Distance::AnyOf(accesses) => {
                self.spare_ns / accesses.max(1) as f64
            }
        }
    }
}

/// Rounds a number that is not negative up to the next whole one. `f64::ceil` is a call where the compiler may not assume an
/// instruction for it.
pub(crate) fn rounded_up(value: f64) -> u64 {
    let whole = value as u64;
    whole + u64::from((whole as f64) < value)
}

/// A value by distance alone: the sooner a block is used, the higher.
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
        Prices { hit_ns: 1.0, driver_ns: 2.0, disk_ns: 100.0, block_ns: 30.0, full_ns: 30.0 };

    fn terms(rules: Rules, late: bool) -> Terms {
        Terms::new(&PRICES, &rules, Some(4.0), late)
    }

    fn all_terms() -> Vec<Terms> {
        let rules = Rules::ALL.into_iter();
        let slow = |rules: Rules| Terms::new(&PRICES, &rules, Some(130.0), false);
        rules.flat_map(|rules| [terms(rules, false), terms(rules, true), slow(rules)]).collect()
    }

    #[test]
    fn flushing_costs_more_than_prefetching_the_same_block_benefits() {
        for terms in all_terms() {
            for y in 1..1000 {
                let (cost, benefit) =
                    (terms.flush_cost(Ahead(y)), terms.prefetch_benefit(Ahead(y)));
                assert!(cost > benefit, "{y}: {cost} {benefit} {terms:?}");
            }
        }
    }

    #[test]
    fn the_values_of_the_formulas() {
        let paper = terms(Rules::TIP2, true);
        assert_eq!(paper.horizon(), 100.0);
        assert_eq!(paper.prefetch_benefit(Ahead(20)), 80.0 / 20.0);
        assert_eq!(paper.prefetch_benefit(Ahead(100)), 0.0);
        assert_eq!(paper.flush_cost(Ahead(40)), 2.0 + 60.0);
        assert_eq!(paper.flush_cost(Ahead(150)), 2.0 / 50.0);
        assert_eq!(paper.flush_cost(Distance::AnyOf(204)), 0.5);
        assert_eq!(paper.flush_cost(Distance::AnyOf(40)), 2.0 + 60.0);
        let overloaded = Terms { lead_ns: 100.0, horizon: 100.0, ..terms(Rules::TIPTOE, true) };
        assert_eq!(overloaded.prefetch_benefit(Ahead(300)), 0.1);
        assert_eq!(overloaded.flush_cost(Ahead(150)), 32.0 / 50.0);
        assert_eq!(terms(Rules::FORETELL, false).horizon(), (100.0 + 2.0 + 8.0) / 4.0);
        assert_eq!(terms(Rules::FORETELL, true).horizon(), (100.0 + 2.0 + 60.0) / 30.0);
    }

    #[test]
    fn the_next_block_of_a_slow_reader_is_worth_no_more_than_a_fetch() {
        let slow = Terms::new(&PRICES, &Rules::FORETELL, Some(100_000.0), false);
        assert_eq!(slow.flush_cost(Ahead(1)), 2.0 + 100.0);
        assert_eq!(slow.prefetch_benefit(Ahead(1)), 100.0);
        assert_eq!(slow.prefetch_benefit(Ahead(2)), 50.0);
    }

    #[test]
    fn a_block_of_a_set_is_worth_no_less_than_one_read_after_it() {
        for terms in all_terms() {
            for n in 1..400 {
                let (within, after) = (Distance::AnyOf(n), Ahead(n + 1));
                assert!(terms.flush_cost(within) >= terms.flush_cost(after), "{n} {terms:?}");
                assert!(nearness(within) >= nearness(after), "{n}");
            }
        }
    }

    #[test]
    fn the_cost_of_flushing_falls_with_the_distance() {
        for terms in all_terms() {
            let costs: Vec<f64> = (1..400).map(|y| terms.flush_cost(Ahead(y))).collect();
            assert!(costs.is_sorted_by(|sooner, later| sooner >= later), "{terms:?}");
        }
    }
}
