//! Memory of requests that blocks are in on their way.

use crate::backend::Part;
use crate::buffer::UNIT;

/// Pieces of memory of a request, one after the other as the bytes in the file.
///
/// Whoever has them may read and write there as long as the share of the request that they were
/// [made](Pieces::new) for has not ended.
#[derive(Debug)]
pub(crate) struct Pieces(Vec<Part>);

impl Pieces {
    /// # Safety
    /// Until the share has ended, the parts are valid, initialised, and used by nobody but who has these pieces,
    /// or a [second](Pieces::again) of them.
    pub(crate) unsafe fn new(parts: Vec<Part>) -> Self {
        Pieces(parts)
    }

    /// The same once more.
    ///
    /// # Safety
    /// Only one of both is used at a time.
    pub(crate) unsafe fn again(&self) -> Self {
        let parts = self.0.iter().map(|part| Part { start: part.start, length: part.length });
        Pieces(parts.collect())
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        self.0
    }

    /// The part of them from byte `from` on, `length` bytes.
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

    /// `length` bytes from `from` on, if they lie together, and as direct I/O wants them.
    pub(crate) fn units(&mut self, from: usize, length: usize) -> Option<&mut [u8]> {
        let parts = self.slice(from, length);
        let [Part { start, length }] = *parts.as_slice() else { return None };
        let fits = length.is_multiple_of(UNIT) && start.addr().is_multiple_of(UNIT);
        // SAFETY: as `new` was promised; borrowed from here, so that there is no other.
        fits.then(|| unsafe { std::slice::from_raw_parts_mut(start, length) })
    }

    /// Several such ranges, of which all are [`units`](Pieces::units), in the order in which they lie.
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
            // SAFETY: as in `units`; the ranges are disjoint, as just asserted, and all are borrowed from here.
            unsafe { std::slice::from_raw_parts_mut(start, length) }
        });
        slices.collect()
    }

    /// Copies `bytes` to where they are from byte `at` on.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for part in self.slice(at, bytes.len()) {
            let (some, more) = rest.split_at(part.length);
            // SAFETY: as `new` was promised; `some` is elsewhere, since nobody else can see this memory.
            unsafe { std::ptr::copy_nonoverlapping(some.as_ptr(), part.start, part.length) };
            rest = more;
        }
    }

    /// Copies from byte `at` on into `bytes`.
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
        // SAFETY: nobody looks at the memory while they are used.
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
