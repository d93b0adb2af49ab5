//! Pieces of a request's memory.

use crate::backend::Part;
use crate::buffer::UNIT;

/// Pieces of a request's memory, in the order of the bytes in the file.
///
/// The owner may read and write them until the share that they were [made](Pieces::new) for has ended.
#[derive(Debug)]
pub(crate) struct Pieces(Vec<Part>);

impl Pieces {
    /// # Safety
    /// Until the share has ended, the parts are valid and initialised, and only the owner of these pieces, or of a
    /// [second set](Pieces::again), uses them.
    pub(crate) unsafe fn new(parts: Vec<Part>) -> Self {
        Pieces(parts)
    }

    /// A second set of the same pieces.
    ///
    /// # Safety
    /// Only one of the two is used at a time.
    pub(crate) unsafe fn again(&self) -> Self {
        let parts = self.0.iter().map(|part| Part { start: part.start, length: part.length });
        Pieces(parts.collect())
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        self.0
    }

    /// `length` bytes of these pieces, from byte `from` on.
    pub(crate) fn slice(&self, from: usize, length: usize) -> Vec<Part> {
        let (mut skip, mut left) = (from, length);
        let mut parts = Vec::new();
        for part in &self.0 {
            if skip >= part.length {
                skip -= part.length;
                continue;
            }
            let count = left.min(part.length - skip);
            if count > 0 {
                parts.push(Part { start: part.start.wrapping_add(skip), length: count });
            }
            (skip, left) = (0, left - count);
        }
        assert_eq!(left, 0, "beyond the request");
        parts
    }

    /// `length` bytes from `from` on, if they are in one piece and aligned for direct I/O.
    pub(crate) fn units(&mut self, from: usize, length: usize) -> Option<&mut [u8]> {
        let parts = self.slice(from, length);
        let [Part { start, length }] = *parts.as_slice() else { return None };
        let fits = length.is_multiple_of(UNIT) && start.addr().is_multiple_of(UNIT);
        // SAFETY: the promise made to `new`. The slice is borrowed from `self`, so there is no other.
        fits.then(|| unsafe { std::slice::from_raw_parts_mut(start, length) })
    }

    /// Several such ranges, in ascending order. All must be [`units`](Pieces::units).
    pub(crate) fn several(
        &mut self,
        ranges: impl Iterator<Item = (usize, usize)>,
    ) -> Vec<&mut [u8]> {
        let mut end = 0;
        let slices = ranges.map(|(from, length)| {
            assert!(from >= end, "ranges overlap");
            end = from + length;
            let units = self.units(from, length).expect("they lie together");
            let (start, length) = (units.as_mut_ptr(), units.len());
            // SAFETY: as in `units`. The ranges are disjoint, as just asserted, and all are borrowed from `self`.
            unsafe { std::slice::from_raw_parts_mut(start, length) }
        });
        slices.collect()
    }

    /// Copies `bytes` to the memory from byte `at` on.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for part in self.slice(at, bytes.len()) {
            let (some, more) = rest.split_at(part.length);
            // SAFETY: the promise made to `new`. `some` does not overlap it, since nothing else refers to this memory.
            unsafe { std::ptr::copy_nonoverlapping(some.as_ptr(), part.start, part.length) };
            rest = more;
        }
    }

    /// Copies the memory from byte `at` on into `bytes`.
    pub(crate) fn get(&self, at: usize, bytes: &mut [u8]) {
        let mut rest = bytes;
        for part in self.slice(at, rest.len()) {
            let (some, more) = rest.split_at_mut(part.length);
            // SAFETY: as in `put`.
            unsafe { std::ptr::copy_nonoverlapping(part.start, some.as_mut_ptr(), part.length) };
            rest = more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    #[test]
    fn pieces_are_as_one() {
        let mut memory = [vec![0u8; 10], vec![0; 1], vec![0; 20]];
        let parts =
            memory.each_mut().map(|piece| Part { start: piece.as_mut_ptr(), length: piece.len() });
        // SAFETY: nothing else uses the memory while the pieces do.
        let mut pieces = unsafe { Pieces::new(parts.into()) };
        let all: Vec<u8> = (0..31).collect();
        pieces.put(0, &all[..12]);
        pieces.put(12, &all[12..]);
        for (at, length) in [(0, 31), (9, 3), (10, 1), (11, 20), (31, 0)] {
            let mut found = vec![0; length];
            pieces.get(at, &mut found);
            assert_eq!(found, all[at..at + length]);
        }
        assert!(pieces.units(0, 31).is_none());
        let mut buffer = Buffer::new(5000);
        assert_eq!(buffer.bytes().len(), 2 * UNIT);
        let start = buffer.bytes_mut().as_mut_ptr();
        // SAFETY: as above.
        let mut pieces = unsafe { Pieces::new(vec![Part { start, length: 2 * UNIT }]) };
        assert_eq!(pieces.units(0, UNIT).map(|units| units.len()), Some(UNIT));
        assert_eq!(pieces.units(UNIT, UNIT).map(|units| units.len()), Some(UNIT));
        assert!(pieces.units(8, UNIT).is_none() && pieces.units(0, 100).is_none());
    }
}
