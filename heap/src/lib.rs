//! The heap of foretell's processes: the system's heap, which also asks the kernel for huge pages for large blocks.
//!
//! The tables of a policy with a million blocks take tens of megabytes and are accessed at random. In pages of 4 KiB much of
//! the time goes to address translation (`docs/results/performance.md`). Some kernels give huge pages unasked, and some only on
//! request (`always` and `madvise` in `/sys/kernel/mm/transparent_hugepage/enabled`). This heap is for the latter.
//!
//! * **A. Which blocks.** Blocks of [`LARGE_BYTES`] or more, when they are allocated and when they grow.
//! * **B. What it does.** It advises all pages of the block with `madvise(MADV_HUGEPAGE)`. Blocks aligned to at most a cache
//!   line, as tables are, get their own mapping. They are advised before they are touched, and grow without a copy (`mremap`).
//!   Blocks of a greater alignment, such as page-aligned buffers, come from the C library, which keeps them for reuse. Their
//!   first and last pages may partly belong to others.
//! * **C. Cost.** The kernel supplies a whole huge page when one byte of it is touched. So a block that is touched here and
//!   there may take all the memory it asked for. The kernel may search for room (`defrag` beside `enabled`), and gives small
//!   pages if it finds none. A mapping costs a system call and its page faults; tables live long.
//!
//! Use it with `#[global_allocator] static HEAP: Heap = Heap;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap,
};

/// The smallest block for which huge pages are requested, in bytes. It contains at least one whole huge page of 2 MiB, the
/// usual size.
pub const LARGE_BYTES: usize = 4 << 20;

/// Bytes of the usual page. Mappings and advice begin at multiples of it. Where pages are larger, mappings begin at multiples
/// of those, and the kernel refuses other advice.
const PAGE_BYTES: usize = 4 << 10;

/// Large blocks of a greater alignment do not get their own mapping. In bytes: a cache line.
const ALIGN_MAX: usize = 64;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// Whether a block of this layout has its own mapping.
#[inline]
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= ALIGN_MAX
}

/// A new mapping for a block, filled with zeros; null if the kernel gives none.
#[cold]
fn map(bytes: usize) -> *mut u8 {
    let (may, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses an unused address.
    let mapped = unsafe { mmap_anonymous(null_mut(), bytes, may, kind) };
    mapped.map_or(null_mut(), |start| advise(start.cast(), bytes))
}

/// Requests huge pages for a new or grown block, if it is large.
#[inline]
fn advise(start: *mut u8, bytes: usize) -> *mut u8 {
    if bytes >= LARGE_BYTES && !start.is_null() {
        let before = start.addr() % PAGE_BYTES;
        let pages_bytes = (before + bytes).next_multiple_of(PAGE_BYTES);
        let first = start.wrapping_sub(before);
        // SAFETY: each of these pages contains part of a block that was just allocated. The advice only says how the pages
        // should be backed. It changes no data in them, whoever owns it. A refusal does no harm.
        let _ = unsafe { madvise(first.cast(), pages_bytes, Advice::LinuxHugepage) };
    }
    start
}

// SAFETY: blocks that are not mapped belong to `System`: each call for one is passed to it with the same arguments, and its
// result is returned. Mapped blocks begin at pages, and so at multiples of the requested alignment. Layouts say which blocks
// are mapped, and callers give the layout that a block has. Nothing here allocates or panics.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_mapped(layout) {
            true => map(layout.size()),
            // SAFETY: the caller guarantees what `alloc` requires, and `System` requires no more.
            false => advise(unsafe { System.alloc(layout) }, layout.size()),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_mapped(layout) {
            true => map(layout.size()),
            // SAFETY: as in `alloc`.
            false => advise(unsafe { System.alloc_zeroed(layout) }, layout.size()),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: it is a mapping of this many bytes, made by `map` or `mremap`, and no longer in use. If unmapping fails,
            // it stays.
            let _ = unsafe { munmap(start.cast(), layout.size()) };
        } else {
            // SAFETY: `start` came from this allocator with this layout, and so from `System`.
            unsafe { System.dealloc(start, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `bytes` is not zero and not too large for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: as in `dealloc`; and the caller guarantees what `realloc` requires.
            (false, false) => advise(unsafe { System.realloc(start, layout, bytes) }, bytes),
            (true, true) => {
                // SAFETY: it is a mapping of this many bytes, as in `dealloc`. If it moves, the caller no longer uses the old
                // address.
                let moved =
                    unsafe { mremap(start.cast(), layout.size(), bytes, MremapFlags::MAYMOVE) };
                match moved {
                    Ok(moved) => advise(moved.cast(), bytes),
                    // The mapping keeps its size; `dealloc` will unmap as much as its layout says.
                    Err(_) if bytes <= layout.size() => start,
                    // SAFETY: the caller guarantees what `realloc` requires.
                    Err(_) => unsafe { self.copied(start, layout, new) },
                }
            }
            // SAFETY: the caller guarantees what `realloc` requires.
            _ => unsafe { self.copied(start, layout, new) },
        }
    }
}

impl Heap {
    /// Moves the contents of the block at `start` to a new block of layout `new`, and frees the old one. Returns null and keeps
    /// the old block if there is no memory.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`], of which this is the slow path.
    #[cold]
    unsafe fn copied(&self, start: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: the size of `new` is not zero.
        let there = unsafe { self.alloc(new) };
        if !there.is_null() {
            // SAFETY: both blocks have at least this many bytes, and the new one is not in use yet. The old one belongs to the
            // caller, which gives it back.
            unsafe {
                start.copy_to_nonoverlapping(there, layout.size().min(new.size()));
                self.dealloc(start, layout);
            }
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: Heap = Heap;

    /// Bounds of the mapping with this address, from `/proc/self/smaps`, and whether it is advised: its `VmFlags` contain `hg`.
    fn mapping(address: usize) -> Option<(std::ops::Range<usize>, bool)> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut found = None;
        for line in maps.lines() {
            let bounds = line.split(' ').next().and_then(|word| word.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((Some(start), Some(end))) = bounds.map(|(s, e)| (number(s), number(e))) {
                found = Some(start..end).filter(|range| range.contains(&address));
            } else if let (Some(range), Some(flags)) = (&found, line.strip_prefix("VmFlags:")) {
                return Some((range.clone(), flags.split_whitespace().any(|flag| flag == "hg")));
            }
        }
        None
    }

    fn byte(index: usize) -> u8 {
        (index % 251) as u8
    }

    #[test]
    fn large_blocks_are_advised_from_end_to_end() {
        if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false)
            || mapping((&raw const HEAP).addr()).is_none()
        {
            eprintln!("skipped: this kernel has no huge pages to ask for, or does not tell");
            return;
        }
        let mut grown: Vec<u8> = Vec::with_capacity(LARGE_BYTES);
        grown.extend((0..LARGE_BYTES).map(byte));
        grown.reserve_exact(8 * LARGE_BYTES);
        let zeroed = vec![0u8; 2 * LARGE_BYTES];
        let written = vec![7u8; LARGE_BYTES];
        for (name, block, bytes) in [
            ("grown", grown.as_ptr(), grown.capacity()),
            ("zeroed", zeroed.as_ptr(), zeroed.len()),
            ("written", written.as_ptr(), written.len()),
        ] {
            let (range, is_advised) = mapping(block.addr()).expect("it is mapped");
            assert!(is_advised, "{name}");
            assert!(range.contains(&(block.addr() + bytes - 1)), "{name}: is in several mappings");
        }
    }

    #[test]
    fn blocks_keep_what_is_in_them() {
        let is_kept =
            |bytes: &[u8]| bytes.iter().enumerate().all(|(index, &there)| there == byte(index));
        let mut grown: Vec<u8> = Vec::new();
        let sizes = [1000, 100_000, LARGE_BYTES - 1, LARGE_BYTES, 3 * LARGE_BYTES + 5];
        for bytes in sizes {
            let start = grown.len();
            grown.reserve_exact(bytes - start);
            grown.extend((start..bytes).map(byte));
            assert!(is_kept(&grown));
        }
        for bytes in sizes.into_iter().rev() {
            grown.truncate(bytes);
            grown.shrink_to_fit();
            assert!(is_kept(&grown));
        }
        assert!(vec![0u8; 2 * LARGE_BYTES].iter().all(|&there| there == 0));
        #[repr(align(4096))]
        #[derive(Clone, Copy)]
        struct Page([u8; 4096]);
        let mut pages = vec![Page([1; 4096]); LARGE_BYTES / 4096];
        pages.resize(3 * pages.len(), Page([2; 4096]));
        let first_bytes: Vec<u8> = pages.iter().map(|page| page.0[4095]).collect();
        let (old, new) = first_bytes.split_at(LARGE_BYTES / 4096);
        assert!(old.iter().all(|&byte| byte == 1) && new.iter().all(|&byte| byte == 2));
    }

    /// The kernel does not grow a mapping that is partly locked.
    #[test]
    fn a_block_whose_mapping_does_not_grow_is_copied() {
        let layout = Layout::from_size_align(3 * LARGE_BYTES, 8).expect("a layout");
        // SAFETY: the size is not zero.
        let start = unsafe { HEAP.alloc_zeroed(layout) };
        assert!(!start.is_null());
        let written: Vec<u8> = (0..layout.size()).map(byte).collect();
        // SAFETY: the block has this length and no other user.
        unsafe { start.copy_from_nonoverlapping(written.as_ptr(), layout.size()) };
        let lock = |start: *mut u8| {
            // SAFETY: the page belongs to the block.
            let locked = unsafe { rustix::mm::mlock(start.wrapping_add(LARGE_BYTES).cast(), 4096) };
            locked.inspect_err(|error| eprintln!("not locked: {error}")).is_ok()
        };
        let is_kept = |start: *mut u8, bytes: usize| {
            // SAFETY: the block has at least this many bytes, all of them written.
            let there = unsafe { std::slice::from_raw_parts(start, bytes) };
            there == &written[..bytes]
        };
        let was_locked = lock(start);
        // SAFETY: it came with this layout.
        let grown = unsafe { HEAP.realloc(start, layout, 5 * LARGE_BYTES) };
        assert!(!grown.is_null() && is_kept(grown, layout.size()));
        assert!(!was_locked || grown != start, "it was mapped anew");
        let layout = Layout::from_size_align(5 * LARGE_BYTES, 8).expect("a layout");
        lock(grown);
        // SAFETY: it came with this layout.
        let shrunk = unsafe { HEAP.realloc(grown, layout, 2 * LARGE_BYTES) };
        assert!(!shrunk.is_null() && is_kept(shrunk, 2 * LARGE_BYTES));
        let layout = Layout::from_size_align(2 * LARGE_BYTES, 8).expect("a layout");
        // SAFETY: it came with this layout.
        unsafe { HEAP.dealloc(shrunk, layout) };
    }
}
