//! Whether prediction has been worth it of late: reads are compared with LRU alone.
//!
//! The names in a cache of the same size under LRU alone are kept beside. Each read is looked up there too, which tells how long
//! it would have waited without prediction. Prediction is heard while its waits, the more recent the more they count, are at most
//! those. If it is not heard, the cache becomes that of LRU alone, so the difference fades and prediction is tried again. What is
//! lost is a share of [`LOSS_MAX`] of the time under LRU.
//!
//! Cost: as many names as there are files in memory.

use super::memory::Memory;

/// Opens over which waits are compared.
const OPENS: f64 = 4096.0;
/// The share of LRU's time that may be lost.
const LOSS_MAX: f64 = 0.005;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Guard {
    lru: Memory,
    waited_us: f64,
    lru_us: f64,
    evicted: Vec<u32>,
}

impl Guard {
    pub(super) fn new(files: usize, cache_bytes: u64) -> Self {
        Guard {
            lru: Memory::new(files, cache_bytes),
            waited_us: 0.0,
            lru_us: 0.0,
            evicted: Vec::new(),
        }
    }

    /// A read of a file of `bytes` has waited for `waited_us`. Without prediction, a miss waits for `fetch_us`.
    pub(super) fn read(&mut self, file: u32, bytes: u64, waited_us: u64, fetch_us: u64) {
        let keep = 1.0 - 1.0 / OPENS;
        let mut lru_us = 0;
        if self.lru.has(file) {
            self.lru.touch(file);
        } else {
            lru_us = fetch_us;
            self.lru.insert(file, bytes, &mut self.evicted);
            self.evicted.clear();
        }
        self.waited_us = self.waited_us * keep + waited_us as f64;
        self.lru_us = self.lru_us * keep + lru_us as f64;
    }

    /// Whether prediction is heard.
    pub(super) fn is_open(&self) -> bool {
        self.waited_us <= self.lru_us * (1.0 + LOSS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prediction_is_heard_while_it_is_no_worse_than_lru() {
        let mut guard = Guard::new(9, 20);
        assert!(guard.is_open());
        guard.read(1, 10, 100, 100);
        assert!(guard.is_open());
        guard.read(1, 10, 1, 100);
        assert!(!guard.is_open(), "a hit under LRU");
        (2..9).for_each(|file| guard.read(file, 10, 99, 100));
        assert!(guard.is_open());
    }
}
