//! Which reads of a file can bypass the page cache (direct I/O), and whether they should.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::buffer::{Buffer, UNIT};

/// Whether the file system supports reads that return instead of waiting (`RWF_NOWAIT`), as the ring needs. A read at
/// the end of the file shows it, and starts no I/O.
pub(super) fn can_decline_to_wait(file: &File, size_bytes: u64) -> bool {
    let mut byte = [0];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(file, &mut pieces, size_bytes, ReadWriteFlags::NOWAIT);
    matches!(read, Ok(_) | Err(Errno::AGAIN))
}

/// A second descriptor of a file, for reads that bypass the page cache.
pub(super) struct Direct {
    pub(super) file: File,
    offset_unit: usize,
    memory_unit: usize,
    is_refused: AtomicBool,
}

impl Direct {
    /// Direct I/O on this file; `None` if the file has none.
    pub(super) fn of(file: &File) -> Option<Self> {
        Self::with_units(file, units(file))
    }

    /// As `of`, with given alignments of memory and of file offsets.
    pub(super) fn with_units(
        file: &File,
        (memory_unit, offset_unit): (usize, usize),
    ) -> Option<Self> {
        if !(1..=UNIT).contains(&offset_unit) || memory_unit == 0 {
            return None;
        }
        // This opens the same file, even if its name leads elsewhere by now.
        let place = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        let file = rustix::fs::open(place, flags, Mode::empty()).ok()?.into();
        Some(Direct { file, offset_unit, memory_unit, is_refused: AtomicBool::new(false) })
    }

    /// Ends direct I/O on this file, after the kernel has refused a read.
    pub(super) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Whether offset and pieces are aligned for direct I/O. If the read `is_end` of the request, the last piece may
    /// have any length.
    pub(super) fn takes(&self, offset_bytes: u64, pieces: &[libc::iovec], is_end: bool) -> bool {
        let is_aligned =
            |piece: &libc::iovec| piece.iov_base.addr().is_multiple_of(self.memory_unit);
        let whole = pieces.len() - usize::from(is_end);
        !self.is_refused.load(Ordering::Relaxed)
            && offset_bytes.is_multiple_of(self.offset_unit as u64)
            && pieces.iter().all(is_aligned)
            && pieces[..whole].iter().all(|piece| piece.iov_len.is_multiple_of(self.offset_unit))
    }

    /// A buffer for the last bytes if they are less than a unit. It takes their place in `pieces`.
    pub(super) fn tail(&self, pieces: &mut Vec<libc::iovec>) -> Option<Buffer> {
        let last = pieces.last_mut()?;
        let odd = last.iov_len % self.offset_unit;
        if odd == 0 {
            return None;
        }
        last.iov_len -= odd;
        if last.iov_len == 0 {
            pieces.pop();
        }
        let mut tail = Buffer::new(UNIT);
        let iov_base = tail.bytes_mut().as_mut_ptr().cast();
        pieces.push(libc::iovec { iov_base, iov_len: self.offset_unit });
        Some(tail)
    }
}

/// Alignments of direct I/O, of memory and of file offsets. Zeros if the kernel reports that there is no direct I/O.
fn units(file: &File) -> (usize, usize) {
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(known) if known.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            (known.stx_dio_mem_align as usize, known.stx_dio_offset_align as usize)
        }
        _ => (UNIT, UNIT),
    }
}

/// `struct cachestat_range` and `struct cachestat` of `linux/mman.h` (since Linux 6.5).
#[repr(C)]
struct CachestatRange {
    offset_bytes: u64,
    length_bytes: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached_pages: u64,
    dirty_pages: u64,
    writeback_pages: u64,
    evicted_pages: u64,
    recently_evicted_pages: u64,
}

/// The same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// Whether the page cache has all of this range, as far as the kernel tells. For files that the caller neither owns nor may
/// write, the kernel does not tell, and the answer is no.
pub(super) fn is_cached(file: &File, offset_bytes: u64, length_bytes: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let pages = (offset_bytes + length_bytes).div_ceil(page) - offset_bytes / page;
    let range = CachestatRange { offset_bytes, length_bytes };
    let mut found = Cachestat::default();
    // SAFETY: both structures have the layout that the system call expects and outlive it.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut found,
            0 as libc::c_uint,
        )
    };
    result == 0 && found.cached_pages >= pages
}
