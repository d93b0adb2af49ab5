//! The heap of foretell's processes: the system's, which asks the kernel for huge pages where a block is large.
//!
//! The tables of a policy with a million blocks take tens of megabytes, and are looked at all over. In pages of 4 KiB much of
//! the time goes to finding out where a page lies (`docs/results/performance.md`). Some kernels give huge pages unasked, and some
//! only to who asks (`always` and `madvise` in `/sys/kernel/mm/transparent_hugepage/enabled`); this is for the latter.
//!
//! * **A. Which.** Blocks of [`LARGE_BYTES`] or more, when they come and when they grow.
//! * **B. What.** Advice on all pages of the block: `madvise(MADV_HUGEPAGE)`. Those that are aligned to cache lines at most, as
//!   tables are, are mapped by themselves: so they grow without a copy (`mremap`), and are advised before they are touched. Others, as buffers
//!   that are aligned to pages, are the C library's, which keeps them for the next one; their first and last page may be others' in part.
//! * **C. Cost.** A huge page comes as a whole when a byte of it is touched: a block that is touched here and there takes up to what
//!   was asked for, where it took the touched pages alone. The kernel may go looking for room (`defrag` beside `enabled`), and gives small
//!   pages where it finds none. What is mapped by itself comes and goes with a system call and its pages: a table lives for long.
//!
//! Use it with `#[global_allocator] static HEAP: Heap = Heap;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap,
};

/// The least bytes of a block for which huge pages are asked. Of 2 MiB, as huge pages mostly are, at least one lies wholly in it.
pub const LARGE_BYTES: usize = 4 << 20;

/// Mappings and advice begin at multiples of this: the usual size of pages. Where it is another one, it is a larger one, which
/// mappings begin at, and kernels refuse advice that does not.
const PAGE_BYTES: usize = 4 << 10;

/// Large blocks of a greater alignment are not mapped by themselves: that of cache lines.
const ALIGN_MAX: usize = 64;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// Whether a block of this layout is mapped by itself.
#[inline]
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= ALIGN_MAX
}

/// A mapping of its own for a block, of nothing but zeros; null if there is none to be had.
#[cold]
fn map(bytes: usize) -> *mut u8 {
    let (may, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: it is put where nothing is.
    let mapped = unsafe { mmap_anonymous(null_mut(), bytes, may, kind) };
    mapped.map_or(null_mut(), |start| advise(start.cast(), bytes))
}

/// Asks for huge pages for a block that has just come, or grown, if it is large.
#[inline]
fn advise(start: *mut u8, bytes: usize) -> *mut u8 {
    if bytes >= LARGE_BYTES && !start.is_null() {
        let before = start.addr() % PAGE_BYTES;
        let pages_bytes = (before + bytes).next_multiple_of(PAGE_BYTES);
        let first = start.wrapping_sub(before);
        // SAFETY: part of each of these pages is a block that has just been given to us. The advice says how they are to be
        // backed, and changes nothing of what is in them, whosever it is. That it is not taken does no harm.
        let _ = unsafe { madvise(first.cast(), pages_bytes, Advice::LinuxHugepage) };
    }
    start
}

// SAFETY: blocks that are not mapped are `System`'s: every call for one is handed to it, with the arguments it came with, and what
// it returns is returned. Those that are begin at pages, and so at multiples of what is asked for; which ones
// they are is told by their layouts, and callers give the layout that a block has. Nothing here allocates or panics.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_mapped(layout) {
            true => map(layout.size()),
            // SAFETY: the caller has made sure of what `alloc` asks for, and `System` asks for no more.
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
            // SAFETY: it is a mapping of so many bytes, by `map` or `mremap`, and nobody uses it any more. What cannot be taken
            // back stays there.
            let _ = unsafe { munmap(start.cast(), layout.size()) };
        } else {
            // SAFETY: `start` came from this allocator with this layout, and so from `System`.
            unsafe { System.dealloc(start, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller has made sure that `bytes` is neither zero nor too large for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: as in `dealloc`; and the caller has made sure of what `realloc` asks for.
            (false, false) => advise(unsafe { System.realloc(start, layout, bytes) }, bytes),
            (true, true) => {
                // SAFETY: it is a mapping of so many bytes, as in `dealloc`; the caller uses it no more where it was, if it moves.
                let moved =
                    unsafe { mremap(start.cast(), layout.size(), bytes, MremapFlags::MAYMOVE) };
                match moved {
                    Ok(moved) => advise(moved.cast(), bytes),
                    // It keeps what it has; `dealloc` will give back as much as it knows of.
                    Err(_) if bytes <= layout.size() => start,
                    // SAFETY: as the caller says.
                    Err(_) => unsafe { self.copied(start, layout, new) },
                }
            }
            // SAFETY: as the caller says.
            _ => unsafe { self.copied(start, layout, new) },
        }
    }
}

impl Heap {
    /// A block of layout `new` with what is in the one at `start`, which goes; null, and it stays, if there is none to be had.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`], of which it is the long way.
    #[cold]
    unsafe fn copied(&self, start: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: `new` is not of nothing.
        let there = unsafe { self.alloc(new) };
        if !there.is_null() {
            // SAFETY: both blocks have so many bytes at least, and the new one has just come. The old one is the caller's, who
            // gives it back.
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

    /// Bounds and advice of the mapping with this address, as `/proc/self/smaps` tells: whether `VmFlags` has `hg`.
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

    /// A mapping that is locked in part the kernel does not grow.
    #[test]
    fn a_block_whose_mapping_does_not_grow_is_copied() {
        let layout = Layout::from_size_align(3 * LARGE_BYTES, 8).expect("a layout");
        // SAFETY: it is not of nothing.
        let start = unsafe { HEAP.alloc_zeroed(layout) };
        assert!(!start.is_null());
        let written: Vec<u8> = (0..layout.size()).map(byte).collect();
        // SAFETY: the block is as long, and nobody else has it.
        unsafe { start.copy_from_nonoverlapping(written.as_ptr(), layout.size()) };
        let lock = |start: *mut u8| {
            // SAFETY: the page is the block's.
            let locked = unsafe { rustix::mm::mlock(start.wrapping_add(LARGE_BYTES).cast(), 4096) };
            locked.inspect_err(|error| eprintln!("not locked: {error}")).is_ok()
        };
        let is_kept = |start: *mut u8, bytes: usize| {
            // SAFETY: the block has so many bytes at least, all of them written.
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
