//! Memory as direct I/O wants it.

/// Bytes that direct I/O takes at a time, wherever it does not say that it takes fewer.
pub(crate) const UNIT: usize = 4096;

/// A piece of memory as direct I/O wants it.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Unit([u8; UNIT]);

/// Memory of foretell's own, in whole units.
pub(crate) struct Buffer(Vec<Unit>);

impl Buffer {
    /// Of at least so many bytes, all of them zero.
    pub(crate) fn new(bytes: usize) -> Self {
        Buffer(vec![Unit([0; UNIT]); bytes.div_ceil(UNIT)])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: units are bytes, one after the other.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * UNIT) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * UNIT) }
    }
}
