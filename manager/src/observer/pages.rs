//! Which pages of a process are in its memory, from `/proc/PID/pagemap`.
//!
//! * **A.** `ioctl(PAGEMAP_SCAN)` (Linux 6.7 and later) answers with ranges. It skips parts without page tables.
//! * **B.** Before that, each page is a word of the file. A set bit 63 says that it is present, bit 62 that it is in swap; both
//!   are told without privilege.
//!
//! A page counts as present if it was touched and is still there, or in swap. A page that the process has written to counts
//! too, since it was read from the file first. The kernel may map up to 64 KiB of pages around one that is touched, if they are
//! in the page cache: "present" says that the process has been near.
//!
//! Both hold the lock of the process's mappings (shared) for as long as one piece of [`PIECE_BYTES`] takes. They wait while the
//! process holds it alone.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::driver::residency::page_bytes;

/// Bytes of memory that one system call looks at, so that the process can map and unmap soon. A scan of 64 MiB takes about
/// 0.1 ms.
const PIECE_BYTES: u64 = 64 << 20;

/// Ranges that one system call returns.
const REGIONS: usize = 512;

/// Words of the file that B reads at a time: 64 KiB, for 32 MiB of memory.
const WORDS: usize = 8192;

/// B: bits of a word.
const PRESENT_BIT: u64 = 1 << 63;
const SWAPPED_BIT: u64 = 1 << 62;

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size_bytes: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Where the kernel stopped.
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    pages_max: u64,
    categories_inverted: u64,
    categories_all: u64,
    categories_any: u64,
    categories_told: u64,
}

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl =
    rustix::ioctl::opcode::read_write::<ScanArg>(b'f', 16) as libc::Ioctl;

/// How a process's pages are looked at: A until the kernel says that it cannot, then B.
#[derive(Debug)]
pub(crate) struct Scanner {
    has_scan: bool,
    regions: Vec<PageRegion>,
    words: Vec<u8>,
}

impl Scanner {
    pub(crate) fn new() -> Self {
        Scanner { has_scan: true, regions: vec![PageRegion::default(); REGIONS], words: Vec::new() }
    }

    /// Passes the ranges of present pages between two addresses to `each`, in order. Ranges may touch each other.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub(crate) fn scan(
        &mut self,
        pagemap: &File,
        addresses: Range<u64>,
        mut each: impl FnMut(Range<u64>),
    ) -> io::Result<()> {
        let mut at = addresses.start;
        while at < addresses.end {
            let piece = at..addresses.end.min(at.saturating_add(PIECE_BYTES));
            at = if self.has_scan {
                match self.scan_piece(pagemap, piece, &mut each) {
                    Err(Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => {
                        self.has_scan = false;
                        continue;
                    }
                    until => until?,
                }
            } else {
                self.read_piece(pagemap, piece, &mut each)?
            };
        }
        Ok(())
    }

    /// A. Returns where the next piece begins.
    fn scan_piece(
        &mut self,
        pagemap: &File,
        piece: Range<u64>,
        each: &mut impl FnMut(Range<u64>),
    ) -> Result<u64, Errno> {
        let mut argument = ScanArg {
            size_bytes: size_of::<ScanArg>() as u64,
            start: piece.start,
            end: piece.end,
            regions: self.regions.as_mut_ptr().expose_provenance() as u64,
            regions_length: self.regions.len() as u64,
            categories_any: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            categories_told: PAGE_IS_PRESENT,
            ..ScanArg::default()
        };
        // SAFETY: the argument has the layout that the kernel expects (tested below), and tells it of a buffer that outlives
        // the call and has room for as many regions. The kernel writes whole regions only.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        let found = usize::try_from(found)
            .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))?;
        for region in &self.regions[..found.min(REGIONS)] {
            each(region.start..region.end);
        }
        // It always goes on, or the piece would be looked at for ever.
        Ok(if argument.walk_end > piece.start {
            argument.walk_end.min(piece.end)
        } else {
            piece.end
        })
    }

    /// B.
    fn read_piece(
        &mut self,
        pagemap: &File,
        piece: Range<u64>,
        each: &mut impl FnMut(Range<u64>),
    ) -> io::Result<u64> {
        let first = piece.start / page_bytes();
        let pages = (piece.end.div_ceil(page_bytes()) - first).min(WORDS as u64);
        self.words.resize(WORDS * 8, 0);
        let asked = &mut self.words[..pages as usize * 8];
        let read = pagemap.read_at(asked, first * 8)? / 8;
        let mut begun: Option<u64> = None;
        for (index, word) in self.words[..read * 8].as_chunks::<8>().0.iter().enumerate() {
            let is_present = u64::from_ne_bytes(*word) & (PRESENT_BIT | SWAPPED_BIT) != 0;
            let at = (first + index as u64) * page_bytes();
            match begun {
                None if is_present => begun = Some(at),
                Some(start) if !is_present => {
                    each(start..at);
                    begun = None;
                }
                _ => {}
            }
        }
        let end = (first + read as u64) * page_bytes();
        if let Some(start) = begun {
            each(start..end);
        }
        // At the end of the address space there are no more words.
        Ok(if read == 0 { piece.end } else { end })
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// As `linux/fs.h` has them.
    #[test]
    fn the_argument_has_the_layout_of_the_kernel() {
        assert_eq!(size_of::<ScanArg>(), 96);
        assert_eq!(offset_of!(ScanArg, walk_end), 32);
        assert_eq!(offset_of!(ScanArg, regions), 40);
        assert_eq!(offset_of!(ScanArg, categories_any), 80);
        assert_eq!(offset_of!(ScanArg, categories_told), 88);
        assert_eq!(size_of::<PageRegion>(), 24);
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(PAGEMAP_SCAN as u32, 0xc060_6610);
        }
    }

    /// The pages of a mapping of `pages` pages that a scan finds, after those in `touched` were read.
    fn found(pages: usize, touched: &[usize], has_scan: bool) -> Option<Vec<usize>> {
        let page = page_bytes() as usize;
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len((pages * page) as u64).expect("a sparse file");
        // SAFETY: a new mapping at an address of the kernel's choice; the file keeps its size.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                pages * page,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        }
        .expect("it is mapped");
        for at in touched {
            // SAFETY: within the mapping.
            let byte = unsafe { base.cast::<u8>().add(at * page).read_volatile() };
            assert_eq!(byte, 0);
        }
        let pagemap = File::open("/proc/self/pagemap").ok()?;
        let start = base.expose_provenance() as u64;
        let mut scanner = Scanner { has_scan, ..Scanner::new() };
        let mut all = Vec::new();
        let whole = start..start + (pages * page) as u64;
        scanner
            .scan(&pagemap, whole, |range| {
                assert!(range.start < range.end);
                let index = |address: u64| (address - start) as usize / page;
                all.extend(index(range.start)..index(range.end));
            })
            .expect("the own process may be looked at");
        // SAFETY: the mapping of above, which nothing refers to.
        unsafe { rustix::mm::munmap(base, pages * page) }.expect("it is mapped");
        (scanner.has_scan == has_scan).then_some(all)
    }

    #[test]
    fn exactly_the_neighbourhood_of_touched_pages_is_present() {
        // 64 KiB, aligned, around a page.
        let near = (64 << 10) / page_bytes() as usize;
        for has_scan in [true, false] {
            for touched in [&[][..], &[0], &[0, 1, 40], &[4095], &[100, 2000, 3000]] {
                let Some(found) = found(4096, touched, has_scan) else {
                    eprintln!("skipped: no pagemap, or no PAGEMAP_SCAN");
                    continue;
                };
                for at in touched {
                    assert!(found.contains(at), "{at} of {touched:?}, {has_scan}");
                }
                let is_near = |at: usize| touched.iter().any(|of| at.abs_diff(*of) < 2 * near);
                assert!(found.iter().all(|&at| is_near(at)), "{touched:?}, {has_scan}");
                assert!(found.is_sorted_by(|before, after| before < after));
            }
        }
    }

    #[test]
    fn more_ranges_than_one_call_returns_are_all_told() {
        let touched: Vec<usize> = (0..600).map(|index| index * 64).collect();
        for has_scan in [true, false] {
            let Some(found) = found(600 * 64, &touched, has_scan) else { continue };
            assert!(touched.iter().all(|at| found.binary_search(at).is_ok()), "{has_scan}");
        }
    }
}
