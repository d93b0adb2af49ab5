//! A mapping of files in memory, placed so that huge pages of the file can be mapped as such.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Bytes of a huge page. A mapping begins at a multiple of it.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// See the [module](self). It is unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// All addresses that were reserved; the mapping begins up to a huge page after the first.
    reserved: (NonNull<u8>, usize),
}

// SAFETY: it is memory. How threads may use it is a matter of the owner.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New memory of this process alone, all zeros. Huge pages are asked for.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(crate) fn private(bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)?
        };
        // SAFETY: this advice does not change the contents of the mapping. Without huge pages nothing is lost.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes, reserved: (base, bytes) })
    }

    /// Maps the given number of bytes from the beginning of each file, one file after another, shared with all processes that map
    /// them. All numbers but the last are multiples of a page.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(crate) fn shared(
        files: [(BorrowedFd<'_>, usize); 2],
        protection: ProtFlags,
    ) -> io::Result<Self> {
        let bytes = files[0].1 + files[1].1;
        let reserved_bytes = bytes + HUGE_PAGE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let reserved = unsafe {
            let none = ProtFlags::empty();
            mmap_anonymous(std::ptr::null_mut(), reserved_bytes, none, MapFlags::PRIVATE)?
        };
        let start = reserved.cast::<u8>();
        let at = start.wrapping_add(start.align_offset(HUGE_PAGE));
        let (Some(start), Some(base)) = (NonNull::new(start), NonNull::new(at)) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let mapping = Mapping { base, bytes, reserved: (start, reserved_bytes) };
        let mut from = at;
        for (file, bytes) in files {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: it replaces part of the mapping that was just made, which `mapping` gives up if this fails.
            unsafe { mmap(from.cast(), bytes, protection, flags, file, 0)? };
            from = from.wrapping_add(bytes);
        }
        // SAFETY: a child of a fork does not use it. With it, the child would keep the memory when this process has ended.
        let _ = unsafe { madvise(at.cast(), bytes, Advice::LinuxDontFork) };
        Ok(mapping)
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes a huge page of the pages from byte `at`, a multiple of [`HUGE_PAGE`], on. Waits for the copy, some milliseconds.
    /// Without success nothing has changed.
    pub(crate) fn gather(&self, at: usize) -> bool {
        assert!(at.is_multiple_of(HUGE_PAGE) && at + HUGE_PAGE <= self.bytes);
        // SAFETY: within the mapping. The contents stay the same.
        unsafe {
            let start = self.base().add(at).cast();
            libc::madvise(start, HUGE_PAGE, libc::MADV_COLLAPSE) == 0
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the addresses are this mapping's, and no borrow of them is left. An error cannot be handled here.
        let _ = unsafe { munmap(self.reserved.0.as_ptr().cast(), self.reserved.1) };
    }
}
