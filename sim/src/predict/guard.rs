//! Whether prediction has been worth it: reads are compared with LRU alone.
//!
//! The names in a cache of the same size under LRU alone are kept beside. Each read is looked up there too, which tells how long
//! it would have waited without prediction. Prediction is heard until its reads have waited for longer than those, by the loss
//! that is allowed: [`LOSS_MAX`] of LRU's time, and [`FETCHES`] fetches. While it is not heard, the cache becomes that of LRU
//! alone, and the allowed loss grows until prediction is tried again.
//!
//! Gains of earlier times count for [`FETCHES`] at most, so that what was good long ago does not excuse what is bad now.
//!
//! Cost: as many names as there are files in memory.

use foretell_learn::graph::model::Memory;

/// The share of LRU's time that may be lost.
const LOSS_MAX: f64 = 0.01;
/// Fetches that may be lost at once: until a predictor has learned something.
const FETCHES: f64 = 16.0;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Guard {
    lru: Memory,
    /// By how much reads have waited longer than under LRU alone, in microseconds.
    lost_us: f64,
    lru_us: f64,
    /// Time of a fetch.
    fetch_us: f64,
    evicted: Vec<u32>,
}

impl Guard {
    /// A fetch takes `fetch_us`.
    pub(super) fn new(cache_bytes: u64, fetch_us: u64) -> Self {
        let (lru, fetch_us) = (Memory::new(cache_bytes), fetch_us as f64);
        Guard { lru, lost_us: 0.0, lru_us: 0.0, fetch_us, evicted: Vec::new() }
    }

    /// A read of a file of `bytes` has waited for `waited_us`. Without prediction, a miss waits for `fetch_us`.
    pub(super) fn read(&mut self, file: u32, bytes: u64, waited_us: u64, fetch_us: u64) {
        let mut lru_us = 0;
        if self.lru.has(file) {
            self.lru.touch(file);
        } else {
            lru_us = fetch_us;
            self.lru.insert(file, bytes, &mut self.evicted);
            self.evicted.clear();
        }
        self.lru_us += lru_us as f64;
        self.lost_us =
            (self.lost_us + waited_us as f64 - lru_us as f64).max(-FETCHES * self.fetch_us);
    }

    /// Whether prediction is heard.
    pub(super) fn is_open(&self) -> bool {
        self.lost_us <= self.lru_us * LOSS_MAX + FETCHES * self.fetch_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prediction_is_heard_until_it_has_cost_too_much() {
        let mut guard = Guard::new(20, 100);
        assert!(guard.is_open());
        guard.read(1, 10, 100, 100);
        guard.read(1, 10, 1600, 100);
        assert!(guard.is_open());
        guard.read(1, 10, 10, 100);
        assert!(!guard.is_open(), "hits under LRU");
        (2..12).for_each(|file| guard.read(file, 10, 100, 100));
        assert!(guard.is_open(), "LRU has waited for a thousand more");
    }
}
