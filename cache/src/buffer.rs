//! Memory aligned for direct I/O.

/// Alignment of direct I/O in bytes, unless the kernel reports a smaller one.
pub(crate) const UNIT: usize = 4096;

/// An aligned unit of memory.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Unit([u8; UNIT]);

/// A buffer of whole units.
pub(crate) struct Buffer(Vec<Unit>);

impl Buffer {
    /// A buffer of at least `bytes` bytes, all of them zero.
    pub(crate) fn new(bytes: usize) -> Self {
        Buffer(vec![Unit([0; UNIT]); bytes.div_ceil(UNIT)])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: units are arrays of bytes without padding.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * UNIT) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * UNIT) }
    }
}
