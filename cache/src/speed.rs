//! How many bytes in flight keep a device busy, estimated from the times of its requests.
//!
//! If a request begins with q bytes in flight, its own included, and takes time t, the device works at a rate of q / t
//! (Little's law). To be busy, the device needs this rate times its latency in flight. Its latency is the shortest recent time
//! of requests of about the same size, which did not wait in a queue. If t is no longer than the latency, there was no queue,
//! and the device needs at least q. So each request gives an estimate of q × latency / t, and the greatest recent one counts.
//!
//! The result is *known* only after a queue was seen. Until then, more bytes in flight might be faster.

use foretell_policy::Nanos;

/// Classes of request sizes: powers of two of bytes.
const SIZES: usize = 40;

/// A request that takes this many times the least time has waited in a queue.
const QUEUED: f64 = 2.0;

/// Factor by which least and greatest values decay with each request: by half in 7,000 requests.
const FORGET: f64 = 1.0001;

/// A window is this many times what keeps a device busy, since a program pauses between reads.
const SPARE: f64 = 2.0;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Speed {
    /// Least time by class of size, ns; 0 without a request.
    least_ns: [f64; SIZES],
    enough_bytes: f64,
    is_known: bool,
    under_way_bytes: u64,
}

impl Default for Speed {
    fn default() -> Self {
        let least_ns = [0.0; SIZES];
        Speed { least_ns, enough_bytes: 0.0, is_known: false, under_way_bytes: 0 }
    }
}

impl Speed {
    /// Notes that a request begins. Returns the bytes in flight, its own included, which [`took`](Speed::took) needs.
    pub(crate) fn began(&mut self, bytes: u64) -> u64 {
        self.under_way_bytes += bytes;
        self.under_way_bytes
    }

    /// Notes that a request of `bytes` has ended.
    pub(crate) fn ended(&mut self, bytes: u64) {
        self.under_way_bytes -= bytes;
    }

    /// Notes the time of a request that was successful and served by this device alone.
    pub(crate) fn took(&mut self, bytes: u64, under_way_bytes: u64, took: Nanos) {
        let took_ns = took.0 as f64;
        if took_ns == 0.0 || bytes == 0 {
            return; // The clock stood still.
        }
        let least_ns = &mut self.least_ns[(bytes.ilog2() as usize).min(SIZES - 1)];
        *least_ns = match *least_ns {
            0.0 => took_ns,
            least_ns => (least_ns * FORGET).min(took_ns),
        };
        self.is_known |= took_ns > QUEUED * *least_ns;
        let enough_bytes = under_way_bytes as f64 * *least_ns / took_ns;
        self.enough_bytes = (self.enough_bytes / FORGET).max(enough_bytes);
    }

    /// Bytes to prefetch ahead of a sequential reader to keep the device busy; `None` if that is not known yet.
    pub(crate) fn window_bytes(&self) -> Option<u64> {
        self.is_known.then_some((self.enough_bytes * SPARE) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A device that takes `latency_ns` and serves `rate` bytes a ns, given `at_once` requests of `bytes` at all times.
    fn served(speed: &mut Speed, latency_ns: f64, rate: f64, (bytes, at_once): (u64, u64)) {
        let took_ns = (latency_ns + bytes as f64 / rate).max((at_once * bytes) as f64 / rate);
        let begun: Vec<u64> = (0..at_once).map(|_| speed.began(bytes)).collect();
        for _ in 0..100 {
            speed.ended(bytes);
            let under_way = speed.began(bytes);
            speed.took(bytes, under_way, Nanos(took_ns as u64));
        }
        begun.iter().for_each(|_| speed.ended(bytes));
    }

    #[test]
    fn enough_is_rate_times_latency_once_a_queue_was_seen() {
        let mut speed = Speed::default();
        // 250 MB/s, 30 ms: 7.5 MB; and a request's own 4 ms.
        served(&mut speed, 30e6, 0.25, (MIB, 1));
        served(&mut speed, 30e6, 0.25, (MIB, 4));
        assert_eq!(speed.window_bytes(), None, "more might be faster");
        served(&mut speed, 30e6, 0.25, (MIB, 40));
        let window = speed.window_bytes().unwrap() as f64;
        assert!((0.9..1.3).contains(&(window / (2.0 * 0.25 * 34.2e6))), "{window}");
        assert_eq!(speed.under_way_bytes, 0);
    }

    #[test]
    fn a_small_request_that_is_faster_is_no_sign_of_a_queue() {
        let mut speed = Speed::default();
        served(&mut speed, 100e3, 1.0, (8192, 1));
        served(&mut speed, 100e3, 1.0, (MIB, 1));
        assert_eq!(speed.window_bytes(), None);
        served(&mut speed, 100e3, 1.0, (MIB, 8));
        let window = speed.window_bytes().unwrap();
        assert!((MIB..3 * MIB).contains(&window), "{window}");
    }

    #[test]
    fn a_device_that_becomes_faster_is_given_more() {
        let mut speed = Speed::default();
        served(&mut speed, 30e6, 0.05, (MIB, 1));
        served(&mut speed, 30e6, 0.05, (MIB, 40));
        let slow = speed.window_bytes().unwrap();
        (0..20).for_each(|_| served(&mut speed, 30e6, 0.5, (MIB, 40)));
        assert!(speed.window_bytes().unwrap() > 3 * slow);
    }
}
