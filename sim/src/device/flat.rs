//! A device without positions: a latency, then a bandwidth, whatever is read.
//!
//! The device models storage behind a network: a file server, an object store. Each request waits for its first byte for a time
//! drawn from a distribution, then receives its bytes at a fixed rate. The device serves as many requests at once as it has
//! slots, each at the full rate (one connection each). If requests share a link, they are as fast as the link allows, and the
//! link carries the bytes of earlier requests first.
//!
//! The draws come from a seed, one for each request in the order of service. The log-normal distribution uses
//! the platform's `ln`, `cos` and `exp`, so its last digits may differ between platforms. On one platform a run
//! is exactly repeatable.

use foretell_policy::Nanos;
use serde::Deserialize;

use super::{Device, Request, Service, Start};
use crate::random::SplitMix64;

/// The distribution of the time to the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "distribution", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Latency {
    /// Always the same.
    Constant {
        /// The time.
        latency_ms: f64,
    },
    /// Uniform between two bounds.
    Uniform {
        /// The lower bound.
        min_ms: f64,
        /// The upper bound.
        max_ms: f64,
    },
    /// Log-normal: mostly near the median, with a long tail.
    LogNormal {
        /// Half of the requests take longer than this.
        median_ms: f64,
        /// Standard deviation of the latency's natural logarithm; at 0.5, one request in a hundred exceeds 3.2
        /// medians.
        sigma: f64,
    },
}

impl Latency {
    fn draw(&self, random: &mut SplitMix64) -> Nanos {
        Nanos::from_millis(match *self {
            Latency::Constant { latency_ms } => latency_ms,
            Latency::Uniform { min_ms, max_ms } => min_ms + (max_ms - min_ms) * random.unit(),
            Latency::LogNormal { median_ms, sigma } => median_ms * (sigma * random.normal()).exp(),
        })
    }
}

/// Parameters of a [`Flat`] device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlatSpec {
    /// Time to the first byte.
    pub latency: Latency,
    /// Rate of one request's data.
    pub bandwidth_bytes_per_s: f64,
    /// Rate of the data of all requests together; infinite if they share no link.
    pub link_bytes_per_s: f64,
    /// Requests served at the same time.
    pub slots: usize,
    /// Sectors that can hold data.
    pub capacity_sectors: u64,
}

/// A device of latency and bandwidth; see the [module](self).
#[derive(Clone, Debug)]
pub struct Flat {
    spec: FlatSpec,
    random: SplitMix64,
    /// When the link will have carried all requested data, apart from the latency; and the total time of that
    /// data on the link.
    link_free_at: Nanos,
    link_time: Nanos,
}

impl Flat {
    /// A device whose latencies are drawn from `seed`.
    pub fn new(spec: FlatSpec, seed: u64) -> Self {
        let (link_free_at, link_time) = (Nanos::ZERO, Nanos::ZERO);
        Flat { spec, random: SplitMix64::new(seed), link_free_at, link_time }
    }
}

impl Device for Flat {
    fn service(&mut self, start: Nanos, request: Request) -> Service {
        let overhead = self.spec.latency.draw(&mut self.random);
        let at_rate = |rate: f64| Nanos::from_secs(request.bytes() as f64 / rate);
        let on_link = at_rate(self.spec.link_bytes_per_s);
        self.link_free_at = self.link_free_at.max(start) + on_link;
        self.link_time += on_link;
        let transfer = at_rate(self.spec.bandwidth_bytes_per_s).max(self.link_free_at - start);
        Service { overhead, transfer, ..Service::default() }
    }

    fn capacity_sectors(&self) -> u64 {
        self.spec.capacity_sectors
    }

    fn start_at(&self, sector: u64) -> Start {
        Start { sector, ..Start::default() }
    }

    fn positioning_time(&self, _now: Nanos, _start: &Start) -> Nanos {
        Nanos::ZERO
    }

    fn link_time(&self, now: Nanos) -> Nanos {
        self.link_time - self.link_free_at.saturating_sub(now)
    }

    fn slots(&self) -> usize {
        self.spec.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ms(latency: Latency) -> f64 {
        let spec = FlatSpec {
            latency,
            bandwidth_bytes_per_s: 1e9,
            link_bytes_per_s: f64::INFINITY,
            slots: 1,
            capacity_sectors: 1 << 20,
        };
        let mut device = Flat::new(spec, 3);
        let request = Request { sector: 0, sectors: 1 };
        let draws = 50_000;
        let sum: Nanos = (0..draws).map(|_| device.service(Nanos::ZERO, request).overhead).sum();
        sum.as_millis() / f64::from(draws)
    }

    #[test]
    fn latencies_have_the_mean_of_their_distribution() {
        assert_eq!(mean_ms(Latency::Constant { latency_ms: 2.0 }), 2.0);
        let uniform = mean_ms(Latency::Uniform { min_ms: 1.0, max_ms: 5.0 });
        assert!((uniform - 3.0).abs() < 0.05, "{uniform}");
        // The mean of a log-normal distribution is median × exp(σ²/2): 10 × 1.1331.
        let tailed = mean_ms(Latency::LogNormal { median_ms: 10.0, sigma: 0.5 });
        assert!((tailed - 11.33).abs() < 0.2, "{tailed}");
    }

    #[test]
    fn bytes_take_bandwidth() {
        let spec = FlatSpec {
            latency: Latency::Constant { latency_ms: 1.0 },
            bandwidth_bytes_per_s: 512_000.0,
            link_bytes_per_s: f64::INFINITY,
            slots: 4,
            capacity_sectors: 1 << 20,
        };
        let service = Flat::new(spec, 0).service(Nanos::ZERO, Request { sector: 9, sectors: 1000 });
        assert_eq!(service.transfer, Nanos::from_secs(1.0));
        assert_eq!(service.total(), Nanos::from_millis(1001.0));
    }

    #[test]
    fn what_shares_a_link_is_as_fast_as_the_link() {
        let spec = FlatSpec {
            latency: Latency::Constant { latency_ms: 1.0 },
            bandwidth_bytes_per_s: 512_000.0,
            link_bytes_per_s: 1_024_000.0,
            slots: 8,
            capacity_sectors: 1 << 20,
        };
        let request = Request { sector: 0, sectors: 1000 };
        let mut device = Flat::new(spec, 0);
        let mut transfer =
            |start_s: f64| device.service(Nanos::from_secs(start_s), request).transfer;
        // Two fill the link, the next ones wait for them, and later ones do not wait.
        let transfers = [0.0, 0.0, 0.0, 0.0, 1.0, 9.0].map(&mut transfer);
        assert_eq!(transfers, [1.0, 1.0, 1.5, 2.0, 1.5, 1.0].map(Nanos::from_secs));
        // It carries data from 0 to 2.5 s, and from 9 s on.
        let carried = |until_s: f64| device.link_time(Nanos::from_secs(until_s)).as_secs();
        assert_eq!([9.25, 9.5, 20.0].map(carried), [2.75, 3.0, 3.0]);
    }
}
