//! Which part of a file is in the page cache, as the kernel says.
//!
//! * How much of an advice has the kernel *accepted*? `cachestat(2)` counts pages that have a place in the cache, including
//!   those whose data is still in flight.
//! * Which data has *arrived*? A read that must not wait (`preadv2` with `RWF_NOWAIT`) succeeds on valid data only. File
//!   systems without such reads (FUSE among them) are asked by `mincore(2)` on a mapping that is never touched.
//!
//! For a file that the caller neither owns nor may write, `mincore` reports every page as resident. Arrival cannot be observed
//! there, and the driver reads the data instead of advising.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::OnceLock;

use rustix::fs::Access;

/// Bytes of a page.
pub(crate) fn page_bytes() -> u64 {
    static PAGE_BYTES: OnceLock<u64> = OnceLock::new();
    *PAGE_BYTES.get_or_init(|| rustix::param::page_size() as u64)
}

/// What one advice brings at least, on a device with the kernel's usual limit.
const AT_ONCE_BYTES: usize = 128 << 10;

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

impl Range {
    /// The pages that the range touches: first, and one past the last.
    fn pages(self) -> (u64, u64) {
        let end = self.offset_bytes + self.length_bytes;
        (self.offset_bytes / page_bytes(), end.div_ceil(page_bytes()))
    }
}

/// How the arrival of a file's pages can be observed.
#[derive(Debug)]
pub(crate) enum Observer {
    /// By reads that must not wait.
    NoWait,
    /// By `mincore` on a mapping that is never touched.
    Mapping(Mapping),
    /// Not at all.
    Blind,
}

impl Observer {
    /// The cheapest way for `file`, whose length is `size_bytes`.
    pub(crate) fn new(file: &File, size_bytes: u64, owner_uid: u32) -> Self {
        // At the end of the file there is nothing to read, so the question fetches nothing.
        if read_without_waiting(file, size_bytes).is_ok() {
            return Observer::NoWait;
        }
        match Mapping::new(file, size_bytes) {
            Ok(mapping) if may_see_pages(file, owner_uid) => Observer::Mapping(mapping),
            _ => Observer::Blind,
        }
    }

    /// Whether all of `range` (which lies within the file) has arrived; `None` if that cannot be observed.
    pub(crate) fn has_arrived(&self, file: &File, range: Range) -> Option<bool> {
        match self {
            Observer::NoWait => {
                // A byte stands for those up to the next one: an advice brings as much at once.
                let last_byte = range.offset_bytes + range.length_bytes.saturating_sub(1);
                let mut bytes = (range.offset_bytes..last_byte).step_by(AT_ONCE_BYTES);
                for byte in bytes.by_ref().chain([last_byte]) {
                    if !read_without_waiting(file, byte).ok()? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Observer::Mapping(mapping) => mapping.is_resident(range).ok(),
            Observer::Blind => None,
        }
    }
}

/// Whether `mincore` tells this process the truth about `file`.
fn may_see_pages(file: &File, owner_uid: u32) -> bool {
    let euid = rustix::process::geteuid();
    euid.is_root()
        || euid.as_raw() == owner_uid
        || rustix::fs::accessat(file, "", Access::WRITE_OK, rustix::fs::AtFlags::EMPTY_PATH).is_ok()
}

/// Bytes of `range` (which lies within the file of this size and owner) whose data is valid, page by page. It makes a mapping,
/// and fetches nothing. `None` if the kernel does not say.
pub(crate) fn resident_bytes(
    file: &File,
    size_bytes: u64,
    owner_uid: u32,
    range: Range,
) -> Option<u64> {
    if !may_see_pages(file, owner_uid) {
        return None;
    }
    let mapping = Mapping::new(file, size_bytes).ok()?;
    let (first, end) = range.pages();
    let mut pages = 0;
    for page in first..end {
        pages += u64::from(mapping.are_resident(page, page + 1).ok()?);
    }
    Some((pages * page_bytes()).min(range.length_bytes))
}

/// Reads the byte at `offset_bytes` if that needs no waiting. Returns whether it did.
fn read_without_waiting(file: &File, offset_bytes: u64) -> io::Result<bool> {
    let mut byte = 0u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast::<c_void>(), iov_len: 1 };
    let offset = libc::off_t::try_from(offset_bytes).map_err(io::Error::other)?;
    // SAFETY: `part` describes one byte that outlives the call.
    let read =
        unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_NOWAIT) };
    if read >= 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

/// A mapping of a file that is never read: it serves to ask `mincore` about the file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: ptr::NonNull<c_void>,
    length_bytes: usize,
}

// SAFETY: the mapping is never read or written through `base`; the system calls made with it may be
// made from any thread, at the same time too.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, size_bytes: u64) -> io::Result<Self> {
        let length_bytes = usize::try_from(size_bytes).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice affects no memory in use; it has
        // no access rights, so a file that shrinks cannot make anyone fault on it.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length_bytes,
                rustix::mm::ProtFlags::empty(),
                rustix::mm::MapFlags::PRIVATE,
                file,
                0,
            )
        }?;
        let base = ptr::NonNull::new(base).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Mapping { base, length_bytes })
    }

    /// Whether the data of every page that `range` touches is valid. Pages beyond the mapping, of a file that has grown since,
    /// count as absent.
    fn is_resident(&self, range: Range) -> io::Result<bool> {
        let (first, end) = range.pages();
        if end > (self.length_bytes as u64).div_ceil(page_bytes()) {
            return Ok(false);
        }
        // Pages of one request arrive together. The last one tells of most fetches that are on their way, for a tenth of the
        // cost.
        if !self.are_resident(end.saturating_sub(1).max(first), end)? {
            return Ok(false);
        }
        self.are_resident(first, end)
    }

    /// Whether the pages from `page` to before `end`, which lie within the mapping, are all resident.
    fn are_resident(&self, mut page: u64, end: u64) -> io::Result<bool> {
        let mut pages = [0u8; 64];
        while page < end {
            let count = (end - page).min(pages.len() as u64);
            // SAFETY: the address lies within the mapping (the caller has checked it) and is page aligned;
            // `pages` has room for the `count` bytes that the kernel writes.
            let result = unsafe {
                let address = self.base.as_ptr().byte_add((page * page_bytes()) as usize);
                libc::mincore(address, (count * page_bytes()) as usize, pages.as_mut_ptr())
            };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
            if pages[..count as usize].iter().any(|state| state & 1 == 0) {
                return Ok(false);
            }
            page += count;
        }
        Ok(true)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and nothing refers to it any more. A failure, which a valid range does not
        // have, would only leave address space behind.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.length_bytes) };
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

/// The system call's number, the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// Bytes of `range` (which lies within the file) that have a place in the page cache, arrived or not. `None` before Linux 6.5
/// and wherever else the kernel does not say.
pub(crate) fn accepted_bytes(file: impl AsFd, range: Range) -> Option<u64> {
    let (first, end) = range.pages();
    let asked = CachestatRange {
        offset_bytes: first * page_bytes(),
        length_bytes: (end - first) * page_bytes(),
    };
    let mut answer = Cachestat::default();
    // SAFETY: both structures have the layout that the system call expects and outlive it.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            &raw const asked,
            &raw mut answer,
            0 as libc::c_uint,
        )
    };
    (result == 0).then(|| (answer.cached_pages * page_bytes()).min(range.length_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(bytes: usize) -> File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&vec![7u8; bytes]).expect("room for it");
        file
    }

    #[test]
    fn pages_just_written_have_arrived() {
        let file = file_of(100_000);
        let whole = Range { offset_bytes: 0, length_bytes: 100_000 };
        let owner_uid = rustix::process::geteuid().as_raw();
        let mapping = Observer::Mapping(Mapping::new(&file, 100_000).expect("mapped"));
        assert_eq!(resident_bytes(&file, 100_000, owner_uid, whole), Some(100_000));
        for observer in [Observer::new(&file, 100_000, owner_uid), mapping] {
            assert_eq!(observer.has_arrived(&file, whole), Some(true), "{observer:?}");
        }
        if let Some(accepted) = accepted_bytes(&file, whole) {
            assert_eq!(accepted, 100_000);
        }
    }

    #[test]
    fn a_hole_that_was_never_read_has_not_arrived() {
        let file = file_of(0);
        file.set_len(1 << 20).expect("a sparse file");
        let mapping = Mapping::new(&file, 1 << 20).expect("mapped");
        let tail = Range { offset_bytes: 1 << 19, length_bytes: 1 << 19 };
        // On a memory file system a hole has no page; elsewhere it was never read. Either way:
        assert!(!mapping.is_resident(tail).expect("mincore answers"));
        let owner_uid = rustix::process::geteuid().as_raw();
        assert_eq!(resident_bytes(&file, 1 << 20, owner_uid, tail), Some(0));
        let beyond = Range { offset_bytes: 1 << 20, length_bytes: 1 };
        assert!(!mapping.is_resident(beyond).expect("mincore is not asked"));
    }

    #[test]
    fn an_empty_file_cannot_be_mapped_and_needs_no_observer() {
        assert!(Mapping::new(&file_of(0), 0).is_err());
    }
}
