//! The heap of foretell's processes: the system's, which asks the kernel for huge pages where a block is large.
//!
//! The tables of a policy with a million blocks take tens of megabytes, and are looked at all over. In pages of 4 KiB,
//! finding out where a page lies takes as long as what is done with it: a read costs the policy a tenth to a sixth more
//! (`docs/performance.md`). Some kernels give huge pages unasked, and some only to who asks (`always` and `madvise` in
//! `/sys/kernel/mm/transparent_hugepage/enabled`); this is for the latter.
//!
//! * **A. Which.** Blocks of [`LARGE_BYTES`] or more, when they come and when they grow. They have mappings of their own, or lie
//!   where such blocks have lain before.
//! * **B. What.** Advice on the pages that lie wholly in the block: `madvise(MADV_HUGEPAGE)`. All else is the system's allocator. Where
//!   the kernel has no such pages, or none left, it gives small ones.
//! * **C. Memory.** A huge page comes as a whole when a byte of it is touched, and none reaches beyond the block: what a block takes
//!   is at most what was asked for.
//!
//! Use it with `#[global_allocator] static HEAP: Heap = Heap;`.

use std::alloc::{GlobalAlloc, Layout, System};

use rustix::mm::{Advice, madvise};

/// The least bytes of a block for which huge pages are asked: in smaller ones hardly any lies wholly within.
pub const LARGE_BYTES: usize = 4 << 20;

/// Advice starts and ends at multiples of this: every size of pages that Linux has divides it.
const GRAIN_BYTES: usize = 64 << 10;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// The grains that lie wholly in a large block: how far into it they begin, and their bytes.
fn grains(address: usize, bytes: usize) -> Option<(usize, usize)> {
    if bytes < LARGE_BYTES {
        return None;
    }
    let before = address.wrapping_neg() % GRAIN_BYTES;
    Some((before, (bytes - before) / GRAIN_BYTES * GRAIN_BYTES))
}

/// Asks for huge pages for a block that has just come, if it is large.
#[inline]
fn advise(start: *mut u8, bytes: usize) -> *mut u8 {
    if !start.is_null()
        && let Some((before, advised_bytes)) = grains(start.addr(), bytes)
    {
        let first = start.wrapping_add(before);
        // SAFETY: these pages lie in a block that has just been given to us. The advice says how they are to be backed, and
        // changes nothing of what is in them. That it is not taken does no harm.
        let _ = unsafe { madvise(first.cast(), advised_bytes, Advice::LinuxHugepage) };
    }
    start
}

// SAFETY: every call is handed to `System`, which keeps the contract, with the arguments it came with; what it returns is
// returned. `advise` neither allocates nor panics.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller has made sure of what `alloc` asks for, and `System` asks for no more.
        advise(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        advise(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: `start` came from this allocator with this layout, and so from `System`.
        unsafe { System.dealloc(start, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; the caller has made sure that `bytes` is neither zero nor too large.
        advise(unsafe { System.realloc(start, layout, bytes) }, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: Heap = Heap;

    #[test]
    fn grains_lie_in_large_blocks_alone() {
        assert_eq!(grains(GRAIN_BYTES, LARGE_BYTES - 1), None);
        for address in [1, 16, GRAIN_BYTES - 1, GRAIN_BYTES, GRAIN_BYTES + 16, 5 << 30] {
            for bytes in [LARGE_BYTES, LARGE_BYTES + 1, LARGE_BYTES + GRAIN_BYTES, 1 << 32] {
                let (before, advised) = grains(address, bytes).expect("it is large");
                assert_eq!(((address + before) % GRAIN_BYTES, advised % GRAIN_BYTES), (0, 0));
                assert!(before + advised <= bytes && bytes - advised < 2 * GRAIN_BYTES);
            }
        }
    }

    /// The huge pages that the kernel was asked for, of the mapping with this address: whether `VmFlags` has `hg`.
    fn is_advised(address: usize) -> Option<bool> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut within = false;
        for line in maps.lines() {
            let bounds = line.split(' ').next().and_then(|word| word.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((Some(start), Some(end))) = bounds.map(|(s, e)| (number(s), number(e))) {
                within = (start..end).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| within) {
                return Some(flags.split_whitespace().any(|flag| flag == "hg"));
            }
        }
        None
    }

    fn middle_is_advised(block: &[u8]) -> Option<bool> {
        is_advised(block.as_ptr().addr() + block.len() / 2)
    }

    #[test]
    fn large_blocks_are_advised_and_keep_what_is_in_them() {
        let byte = |index: usize| (index % 251) as u8;
        let mut grown: Vec<u8> = Vec::new();
        for bytes in [1000, 100_000, LARGE_BYTES, 3 * LARGE_BYTES + 5] {
            let start = grown.len();
            grown.reserve_exact(bytes - start);
            grown.extend((start..bytes).map(byte));
            assert!(grown.iter().enumerate().all(|(index, &there)| there == byte(index)));
        }
        let zeroed = vec![0u8; 2 * LARGE_BYTES];
        assert!(zeroed.iter().all(|&there| there == 0));
        let written = vec![7u8; LARGE_BYTES];
        if std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false) {
            for (name, block) in [("grown", &grown), ("zeroed", &zeroed), ("written", &written)] {
                assert_ne!(middle_is_advised(block), Some(false), "{name}");
            }
        } else {
            println!("skipped: this kernel has no huge pages to ask for");
        }
        grown.truncate(1000);
        grown.shrink_to_fit();
        assert!(grown.iter().enumerate().all(|(index, &there)| there == byte(index)));
    }
}
