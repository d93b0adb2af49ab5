//! What a byte of the cache is worth: the time that one more byte would save at an open.
//!
//! Files that were evicted last are remembered, up to a quarter of the cache. A miss of one of them would have been a hit if
//! the cache were larger by that quarter. So the time of such misses, for each open and each byte of the quarter, is the worth
//! of the cache's last bytes. TIP's buffer manager values its LRU buffers the same way (Patterson and others 1995, section 4).

use std::collections::VecDeque;

/// Opens over which the worth is averaged.
const OPENS: f64 = 1024.0;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Worth {
    /// Evicted files, the latest last, with their bytes and the number of the eviction.
    evicted: VecDeque<(u32, u64, u64)>,
    /// For each file, the number of its eviction; 0 if it was not evicted, or has been read since.
    numbers: Vec<u64>,
    number: u64,
    bytes: u64,
    bytes_max: u64,
    /// Time of misses that a larger cache would have saved, in microseconds; less the longer ago it was.
    missed_us: f64,
}

impl Worth {
    pub(super) fn new(cache_bytes: u64) -> Self {
        let bytes_max = (cache_bytes / 4).max(1);
        Worth {
            evicted: VecDeque::new(),
            numbers: Vec::new(),
            number: 0,
            bytes: 0,
            bytes_max,
            missed_us: 0.0,
        }
    }

    pub(super) fn open(&mut self) {
        self.missed_us *= 1.0 - 1.0 / OPENS;
    }

    pub(super) fn evicted(&mut self, file: u32, bytes: u64) {
        self.number += 1;
        if file as usize >= self.numbers.len() {
            self.numbers.resize(file as usize + 1, 0);
        }
        self.numbers[file as usize] = self.number;
        self.evicted.push_back((file, bytes, self.number));
        self.bytes += bytes;
        while self.bytes > self.bytes_max {
            let Some((file, bytes, number)) = self.evicted.pop_front() else { return };
            self.bytes -= bytes;
            let known = &mut self.numbers[file as usize];
            if *known == number {
                *known = 0;
            }
        }
    }

    /// A read of `file` had to wait for a fetch of `fetch_us`.
    pub(super) fn missed(&mut self, file: u32, fetch_us: u64) {
        if self.numbers.get_mut(file as usize).map_or(0, std::mem::take) > 0 {
            self.missed_us += fetch_us as f64;
        }
    }

    /// Bytes of memory that this takes.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.capacity() * 8 + self.evicted.capacity() * 24
    }

    /// What `bytes` are worth for one open, in microseconds.
    pub(super) fn of(&self, bytes: u64) -> f64 {
        bytes as f64 * self.missed_us / OPENS / self.bytes_max as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_misses_that_a_larger_cache_would_save_count() {
        let mut worth = Worth::new(400);
        (0..5).for_each(|file| worth.evicted(file, 25));
        worth.missed(0, 1000);
        assert_eq!(worth.of(1), 0.0, "beyond the quarter");
        worth.missed(1, 1024);
        assert_eq!(worth.of(100), 1.0);
        worth.missed(1, 1024);
        worth.missed(8, 1024);
        assert_eq!(worth.of(100), 1.0, "counted once; and one that was never evicted");
        (0..10_000).for_each(|_| worth.open());
        assert!(worth.of(100) < 0.001);
    }
}
