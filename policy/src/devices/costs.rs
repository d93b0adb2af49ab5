//! Costs of hits and fetches: given, or measured as they occur.
//!
//! The terms are those of TIP 1995, section 4: `T_hit`, `T_driver` and `T_disk`. There is one more: the time of one more block
//! at a busy device. It is the cost of a fetch where a device cannot keep up, so that its throughput and not its latency
//! decides. Drivers report single costs; the policy keeps an exponentially weighted moving average of each. `T_disk` is kept
//! per device and over all devices.

use crate::blocks::DeviceIndex;
use crate::contract::{CostModel, CostSource};
use crate::rules::Rules;
use crate::time::Nanos;

/// The kinds of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// `T_hit`: reading a block that is in memory.
    Hit,
    /// `T_driver`: processor time of starting a fetch.
    Driver,
    /// `T_disk`: from the start of a fetch to its arrival.
    Disk,
}

/// Weight of a moving average against one new sample. So the last 16 or so samples dominate.
/// Unit: samples. Reason: judgement.
const BEFORE: f64 = 15.0;

/// A sample above this many means counts as this many. One lost request says nothing of the device, and a device that became
/// slower says so again. The first sample is the mean, whatever was assumed before.
/// Unit: ratio. Reason: judgement.
const OUTLIER: f64 = 4.0;

/// The least cost. Costs are divided by each other, so none may be zero.
/// Unit: ns. Reason: layout.
const LEAST_NS: f64 = 1e-3;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean(Option<f64>);

impl Mean {
    /// Adds a sample. Returns whether the mean has changed.
    pub(crate) fn add(&mut self, sample: f64) -> bool {
        self.add_mean_of(sample, 1)
    }

    /// Adds a sample that is itself the mean of `count`. A sample of 0 comes from a clock that stood still and is ignored: a
    /// mean of 0 could never rise, since outliers are cut at a multiple of it. Returns whether the mean has changed.
    pub(crate) fn add_mean_of(&mut self, sample: f64, count: u32) -> bool {
        if sample <= 0.0 {
            return false;
        }
        let before = self.0;
        let mean = self.0.get_or_insert(sample);
        let weight = f64::from(count) / (f64::from(count) + BEFORE);
        *mean += weight * (sample.min(*mean * OUTLIER) - *mean);
        self.0 != before
    }

    pub(crate) fn or(self, first: f64) -> f64 {
        self.0.unwrap_or(first).max(LEAST_NS)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct DeviceCosts {
    disk_ns: Mean,
    /// Time of one more block at a busy device.
    block_ns: Mean,
    /// Time of one more block at a device that had more requests than it serves at once, so that more would not have been
    /// faster.
    full_ns: Mean,
}

/// The costs of a device that nothing is known of.
const UNSEEN: DeviceCosts =
    DeviceCosts { disk_ns: Mean(None), block_ns: Mean(None), full_ns: Mean(None) };

/// The costs of one device, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prices {
    pub(crate) hit_ns: f64,
    pub(crate) driver_ns: f64,
    pub(crate) disk_ns: f64,
    /// Time of one more block at the device when it is busy; 0 if that was never observed.
    pub(crate) block_ns: f64,
    /// Time of one more block when the device had more requests than it serves at once, so that more would not have been
    /// faster; 0 if that was never observed.
    pub(crate) full_ns: f64,
}

impl CostSource {
    /// The values assumed until they are measured, or always.
    fn first(self) -> CostModel {
        match self {
            CostSource::Measured(first) | CostSource::Fixed(first) => first,
        }
    }
}

/// Moving averages of all costs; see the [module](self).
#[derive(Debug)]
pub struct Costs {
    source: CostSource,
    own: bool,
    hit_ns: Mean,
    driver_ns: Mean,
    disk_ns: Mean,
    devices: Vec<DeviceCosts>,
    changes: u64,
    /// Values derived from the means, for all devices together and for each. They are queried several times per read.
    over_all: CostModel,
    prices: Vec<DevicePrices>,
}

/// The part of [`Prices`] that each device has of its own.
#[derive(Clone, Copy, Debug)]
struct DevicePrices {
    /// 0 if the mean of all devices applies.
    disk_ns: f64,
    block_ns: f64,
    full_ns: f64,
}

const UNSEEN_PRICES: DevicePrices = DevicePrices { disk_ns: 0.0, block_ns: 0.0, full_ns: 0.0 };

impl Costs {
    /// `rules` says whether each device has its own `T_disk` or all share one mean.
    pub(crate) fn new(source: CostSource, rules: &Rules) -> Self {
        let (hit_ns, driver_ns, disk_ns) = Default::default();
        let (own, devices, changes) = (rules.own_costs, Vec::new(), 0);
        let (over_all, prices) = (source.first(), Vec::new());
        let mut costs =
            Costs { source, own, hit_ns, driver_ns, disk_ns, devices, changes, over_all, prices };
        costs.renew_over_all();
        costs
    }

    fn device(&mut self, device: DeviceIndex) -> &mut DeviceCosts {
        let index = usize::from(device.0);
        if self.devices.len() <= index {
            self.devices.resize(index + 1, UNSEEN);
            self.prices.resize(index + 1, UNSEEN_PRICES);
        }
        &mut self.devices[index]
    }

    fn renew_over_all(&mut self) {
        let CostModel { hit_ns, driver_ns, disk_ns } = self.source.first();
        self.over_all = match self.source {
            CostSource::Measured(_) => CostModel {
                hit_ns: self.hit_ns.or(hit_ns),
                driver_ns: self.driver_ns.or(driver_ns),
                disk_ns: self.disk_ns.or(disk_ns),
            },
            CostSource::Fixed(_) => CostModel {
                hit_ns: hit_ns.max(LEAST_NS),
                driver_ns: driver_ns.max(LEAST_NS),
                disk_ns: disk_ns.max(LEAST_NS),
            },
        };
    }

    fn renew(&mut self, device: DeviceIndex) {
        let index = usize::from(device.0);
        let has_own = self.own && matches!(self.source, CostSource::Measured(_));
        let DeviceCosts { disk_ns, block_ns, full_ns } = self.devices[index];
        let own_ns = disk_ns.0.filter(|_| has_own).map_or(0.0, |own_ns| own_ns.max(LEAST_NS));
        let [block_ns, full_ns] = [block_ns, full_ns].map(|mean| mean.0.unwrap_or(0.0));
        self.prices[index] = DevicePrices { disk_ns: own_ns, block_ns, full_ns };
    }

    /// Adds a sample of `T_hit`.
    pub(crate) fn observe_hit(&mut self, sample: Nanos) {
        let changed = self.hit_ns.add(sample.0 as f64);
        self.note_over_all(changed);
    }

    /// Adds a sample of `T_driver`.
    pub(crate) fn observe_driver(&mut self, sample: Nanos) {
        let changed = self.driver_ns.add(sample.0 as f64);
        self.note_over_all(changed);
    }

    /// Updates the derived values if a mean over all devices has changed.
    fn note_over_all(&mut self, changed: bool) {
        if changed {
            self.changes += 1;
            self.renew_over_all();
        }
    }

    /// Adds a sample of `T_disk`.
    pub(crate) fn observe_disk(&mut self, device: DeviceIndex, sample: Nanos) {
        let mut changed = self.disk_ns.add(sample.0 as f64);
        changed |= self.device(device).disk_ns.add(sample.0 as f64);
        self.note_over_all(changed);
        if changed {
            self.renew(device);
        }
    }

    /// Adds a sample of the time of one more block at a busy device, measured over this many requests. `was_full` says whether
    /// the device always had more requests than it serves at once.
    pub(crate) fn observe_block(
        &mut self,
        device: DeviceIndex,
        sample_ns: f64,
        requests: u32,
        was_full: bool,
    ) {
        let costs = self.device(device);
        let mut changed = costs.block_ns.add_mean_of(sample_ns, requests);
        if was_full {
            changed |= costs.full_ns.add_mean_of(sample_ns, requests);
        }
        if changed {
            self.changes += 1;
            self.renew(device);
        }
    }

    /// How often a cost has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether measurements make no difference.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn are_fixed(&self) -> bool {
        let were_busy = self.devices.iter().any(|device| device.block_ns.0.is_some());
        matches!(self.source, CostSource::Fixed(_)) && !were_busy
    }

    /// `T_hit`, in ns.
    pub(crate) fn hit_ns(&self) -> f64 {
        self.over_all.hit_ns
    }

    /// The costs of fetching from `device`.
    #[inline]
    pub(crate) fn at(&self, device: DeviceIndex) -> Prices {
        let CostModel { hit_ns, driver_ns, disk_ns } = self.over_all;
        let own = self.prices.get(usize::from(device.0)).unwrap_or(&UNSEEN_PRICES);
        let DevicePrices { disk_ns: own_ns, block_ns, full_ns } = *own;
        let disk_ns = if own_ns > 0.0 { own_ns } else { disk_ns };
        Prices { hit_ns, driver_ns, disk_ns, block_ns, full_ns }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: DeviceIndex = DeviceIndex(1);
    const TWO: DeviceIndex = DeviceIndex(2);
    const OWN: Rules = Rules { own_costs: true, ..Rules::TIP2 };

    #[test]
    fn the_mean_follows_a_change_and_devices_have_their_own() {
        let mut costs = Costs::new(CostSource::Measured(CostModel::default()), &OWN);
        assert_eq!(costs.at(ONE).disk_ns, CostModel::default().disk_ns);
        costs.observe_disk(ONE, Nanos(1000));
        assert_eq!(costs.at(ONE).disk_ns, 1000.0);
        for _ in 0..400 {
            costs.observe_disk(ONE, Nanos(5000));
            costs.observe_disk(TWO, Nanos(100_000));
        }
        assert!((4900.0..=5000.0).contains(&costs.at(ONE).disk_ns));
        assert!(costs.at(TWO).disk_ns > 99_000.0);
        assert_eq!(costs.at(ONE).hit_ns, CostModel::default().hit_ns);
    }

    proptest! {
        /// Prices derived when a mean changes agree with the means.
        #[test]
        fn prices_are_those_of_the_means(
            is_measured in any::<bool>(),
            own in any::<bool>(),
            samples in prop::collection::vec((0..4, 0u16..4, 0u64..10_000), 1..60),
        ) {
            let first = CostModel { hit_ns: 0.0, driver_ns: 7.0, disk_ns: 500.0 };
            let source = match is_measured {
                true => CostSource::Measured(first),
                false => CostSource::Fixed(first),
            };
            let mut costs = Costs::new(source, &Rules { own_costs: own, ..Rules::TIP2 });
            for (kind, device, ns) in samples {
                let (before, device) = (costs.changes(), DeviceIndex(device));
                let all_before: Vec<Prices> = (0..6).map(|at| costs.at(DeviceIndex(at))).collect();
                match kind {
                    0 => costs.observe_hit(Nanos(ns)),
                    1 => costs.observe_driver(Nanos(ns)),
                    2 => costs.observe_disk(device, Nanos(ns)),
                    _ => costs.observe_block(device, ns as f64, 3, ns % 2 == 0),
                }
                for at in 0..6 {
                    let of_device = costs.devices.get(usize::from(at)).unwrap_or(&UNSEEN);
                    let or = |mean: Mean, first| if is_measured { mean.or(first) } else { first };
                    let over_all_ns = or(costs.disk_ns, first.disk_ns);
                    let disk_ns = if own { or(of_device.disk_ns, over_all_ns) } else { over_all_ns };
                    let prices = Prices {
                        hit_ns: or(costs.hit_ns, first.hit_ns).max(LEAST_NS),
                        driver_ns: or(costs.driver_ns, first.driver_ns),
                        disk_ns,
                        block_ns: of_device.block_ns.0.unwrap_or(0.0),
                        full_ns: of_device.full_ns.0.unwrap_or(0.0),
                    };
                    prop_assert_eq!(costs.at(DeviceIndex(at)), prices);
                    let is_same = all_before[usize::from(at)] == prices;
                    prop_assert!(is_same || costs.changes() > before, "a change is counted");
                }
                prop_assert_eq!(costs.hit_ns(), costs.at(device).hit_ns);
            }
        }
    }

    #[test]
    fn a_sample_of_nothing_does_not_keep_the_mean_at_nothing() {
        let mut costs = Costs::new(CostSource::Measured(CostModel::default()), &OWN);
        for _ in 0..20 {
            costs.observe_disk(ONE, Nanos(0));
        }
        for _ in 0..100 {
            costs.observe_disk(ONE, Nanos(5_000_000));
            costs.observe_disk(ONE, Nanos(0));
        }
        assert!((4.9e6..=5.1e6).contains(&costs.at(ONE).disk_ns), "{}", costs.at(ONE).disk_ns);
    }

    #[test]
    fn fixed_costs_stay_and_uniform_ones_are_shared() {
        let model = CostModel { hit_ns: 1.0, driver_ns: 0.0, disk_ns: 10.0 };
        let mut fixed = Costs::new(CostSource::Fixed(model), &OWN);
        fixed.observe_disk(ONE, Nanos(7));
        assert_eq!(fixed.at(ONE).disk_ns, 10.0);
        assert!(fixed.at(ONE).driver_ns > 0.0);
        let mut uniform = Costs::new(CostSource::Measured(model), &Rules::TIP2);
        uniform.observe_disk(ONE, Nanos(100));
        assert_eq!(uniform.at(TWO).disk_ns, 100.0);
    }
}
