//! Bringing what will be looked at near the processor, without waiting for it.
//!
//! A load whose value is used holds up everything after it in the processor's window, sooner or later; this one is asked
//! for and forgotten. With a million blocks in memory, reads that bring fetches and evictions take four fifths of the
//! time by it, and hits of a plain LRU queue six tenths (`docs/results/performance.md`). It is there for x86-64 alone: the instruction of others is not to be had.

/// Bytes that are loaded at a time.
const LINE_BYTES: usize = 64;

/// Loads the cache line in which `what` begins.
#[inline(always)]
pub(crate) fn load_line<T>(what: &T) {
    load_at(std::ptr::from_ref(what).cast());
}

/// Loads all cache lines of `what`.
#[inline(always)]
pub(crate) fn load_lines<T>(what: &T) {
    let begin: *const i8 = std::ptr::from_ref(what).cast();
    (0..size_of::<T>()).step_by(LINE_BYTES).for_each(|offset| load_at(begin.wrapping_add(offset)));
}

#[inline(always)]
#[allow(unsafe_code)]
fn load_at(address: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program could see, and faults nowhere.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
