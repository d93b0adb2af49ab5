//! Parts of a file that are not in memory, one after another, far from each other.

use rustix::fs::SeekFrom;

use crate::driver::backend::Target;
use crate::driver::residency::{Range, page_bytes};

/// Parts of a small file: each measurement needs one.
const PARTS_MIN: u64 = 16;

/// Most parts that are looked at.
const LOOKS_MAX: u64 = 4096;

/// See the [module](self).
pub(super) struct Cold<'a> {
    target: &'a Target,
    part_bytes: u64,
    parts: u64,
    /// Distance from one part to the next to be looked at; it has no divisor in common with `parts`.
    stride: u64,
    looked_at: u64,
    is_unsure: bool,
}

impl<'a> Cold<'a> {
    /// Parts of `part_max_bytes` at most.
    pub(super) fn new(target: &'a Target, size_bytes: u64, part_max_bytes: u64) -> Self {
        let pages = (size_bytes / PARTS_MIN / page_bytes()).max(1);
        let part_bytes = (pages * page_bytes()).min(part_max_bytes);
        // A file of less than a page has one part.
        let parts = (size_bytes / part_bytes).max(1);
        Cold {
            target,
            part_bytes: part_bytes.min(size_bytes),
            parts,
            stride: stride(parts),
            looked_at: 0,
            is_unsure: false,
        }
    }

    /// Whether the kernel did not say of a part whether it is in memory.
    pub(super) fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// Whether there is data and none of it is in memory, so that a measurement tells something.
    fn is_usable(&mut self, part: Range) -> bool {
        let data = rustix::fs::seek(self.target.file(), SeekFrom::Data(part.offset_bytes));
        if data.is_ok_and(|data| data != part.offset_bytes) {
            return false;
        }
        let found = self.target.accepted_bytes(part).or_else(|| self.target.resident_bytes(part));
        self.is_unsure |= found.is_none();
        found.is_none_or(|bytes| bytes == 0)
    }
}

impl Iterator for Cold<'_> {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        while self.looked_at < self.parts.min(LOOKS_MAX) {
            self.looked_at += 1;
            // It begins away from the ends, which programs read most.
            let index = (self.looked_at * self.stride) % self.parts;
            let part =
                Range { offset_bytes: index * self.part_bytes, length_bytes: self.part_bytes };
            if self.is_usable(part) {
                return Some(part);
            }
        }
        None
    }
}

/// A stride through `parts` parts that meets each of them, and spreads the first ones: the golden section.
fn stride(parts: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (parts as f64 * 0.618) as u64;
    (golden.max(1)..).find(|&stride| divisor(stride, parts) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_meets_each_part_once() {
        for parts in [1, 2, 3, 16, 17, 100, 4096] {
            let stride = stride(parts);
            let mut met: Vec<u64> = (1..=parts).map(|step| step * stride % parts).collect();
            met.sort_unstable();
            assert_eq!(met, (0..parts).collect::<Vec<_>>(), "{parts} by {stride}");
        }
    }
}
