//! What things cost, measured as they happen.
//!
//! The drivers report single costs; the policy keeps an exponentially weighted mean of each, per
//! device. The terms are those of TIP 1995, section 4: `T_hit`, `T_driver` and `T_disk`. The TIP-1
//! policy decides without them; drivers use them (how long to wait before asking whether a fetch
//! has arrived), and so will a policy that weighs cost against benefit.

use std::collections::HashMap;

use crate::hint::DeviceId;
use crate::time::Nanos;

/// The kinds of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// `T_hit`: reading a block that is in memory.
    Hit,
    /// `T_driver`: starting a fetch.
    Driver,
    /// `T_disk`: from the start of a fetch to its arrival.
    Disk,
}

/// The weight of one new sample in the mean: the last 16 or so samples dominate.
const WEIGHT: f64 = 1.0 / 16.0;

/// Means of all costs observed, per device.
#[derive(Debug, Default)]
pub struct Costs {
    means_ns: HashMap<(DeviceId, Cost), f64>,
}

impl Costs {
    /// Takes in one sample.
    pub fn observe(&mut self, device: DeviceId, cost: Cost, sample: Nanos) {
        let sample_ns = sample.0 as f64;
        let mean_ns = self.means_ns.entry((device, cost)).or_insert(sample_ns);
        *mean_ns += WEIGHT * (sample_ns - *mean_ns);
    }

    /// The mean so far, or `None` without a sample.
    pub fn mean(&self, device: DeviceId, cost: Cost) -> Option<Nanos> {
        self.means_ns.get(&(device, cost)).map(|&mean_ns| Nanos(mean_ns as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_a_change_and_forgets_outliers() {
        let (device, mut costs) = (DeviceId(1), Costs::default());
        assert_eq!(costs.mean(device, Cost::Disk), None);
        costs.observe(device, Cost::Disk, Nanos(1000));
        assert_eq!(costs.mean(device, Cost::Disk), Some(Nanos(1000)));
        for _ in 0..100 {
            costs.observe(device, Cost::Disk, Nanos(5000));
        }
        let after = costs.mean(device, Cost::Disk).expect("samples were given");
        assert!(after > Nanos(4900) && after <= Nanos(5000), "{after}");
        assert_eq!(costs.mean(device, Cost::Hit), None);
    }
}
