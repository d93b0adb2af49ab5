//! An open file, as back ends use it: what of it is in memory, reading it, and letting it go.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use rustix::fs::{Advice, AtFlags, StatxFlags};

use super::Advised;
use crate::driver::residency::{self, Observer, Range};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    size_bytes: u64,
    owner_uid: u32,
    /// Made at its first use, on a device thread.
    observer: OnceLock<Observer>,
}

/// Bytes that one call reads: the largest request of FUSE.
const READ_MAX_BYTES: usize = 1 << 20;

/// What is read goes into so much memory, again and again.
const SCRATCH_BYTES: usize = 32 << 10;

/// Where a range stands before it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// All of it is in memory.
    Cached,
    /// A part of it is missing or in flight.
    Missing,
    /// Its arrival cannot be observed.
    Unknown,
}

impl Target {
    /// An open file of this size and owner.
    pub(crate) fn new(file: File, size_bytes: u64, owner_uid: u32) -> Self {
        Target { file, size_bytes, owner_uid, observer: OnceLock::new() }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Its size when it was opened.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn owner_uid(&self) -> u32 {
        self.owner_uid
    }

    /// Whether all of `range` has arrived; `None` if that cannot be observed.
    pub(crate) fn has_arrived(&self, range: Range) -> Option<bool> {
        self.observer().has_arrived(&self.file, range)
    }

    /// Whether arrival can be observed.
    pub(crate) fn is_observable(&self) -> bool {
        !matches!(self.observer(), Observer::Blind)
    }

    /// How arrival is observed.
    pub(crate) fn observer(&self) -> &Observer {
        self.observer.get_or_init(|| Observer::new(&self.file, self.size_bytes, self.owner_uid))
    }

    /// Bytes of `range` that have a place in the page cache, arrived or not; `None` if the kernel does not say.
    pub(crate) fn accepted_bytes(&self, range: Range) -> Option<u64> {
        residency::accepted_bytes(&self.file, range)
    }

    /// Bytes of `range` whose data is valid; `None` if the kernel does not say. Fetches nothing, and costs a call for each
    /// page.
    pub(crate) fn resident_bytes(&self, range: Range) -> Option<u64> {
        residency::resident_bytes(&self.file, self.size_bytes, self.owner_uid, range)
    }

    /// Where `range` stands.
    pub(crate) fn standing(&self, range: Range) -> Standing {
        // A page without a place in the cache has not arrived. Arrival is asked only if all have one, since the question is
        // a read, which makes the kernel fetch missing pages.
        let accepted_bytes = self.accepted_bytes(range);
        if accepted_bytes.is_some_and(|accepted_bytes| accepted_bytes < range.length_bytes) {
            return if self.is_observable() { Standing::Missing } else { Standing::Unknown };
        }
        match self.has_arrived(range) {
            None => Standing::Unknown,
            Some(true) => Standing::Cached,
            Some(false) => Standing::Missing,
        }
    }

    /// Brings `range` into the page cache by reading it. This works on every file system.
    ///
    /// The kernel makes few large requests of it if it is read in few large calls.
    pub(crate) fn read_through(&self, range: Range) -> Advised {
        // Not on the stack: inlined several times, it may take as many times its size there.
        let mut scratch = vec![0u8; SCRATCH_BYTES];
        let end = range.offset_bytes + range.length_bytes;
        let mut offset_bytes = range.offset_bytes;
        while offset_bytes < end {
            let wanted =
                READ_MAX_BYTES.min(usize::try_from(end - offset_bytes).unwrap_or(usize::MAX));
            match read_and_forget(&self.file, &mut scratch, offset_bytes, wanted) {
                Ok(0) => {
                    return Advised::Short { length_bytes: offset_bytes - range.offset_bytes };
                }
                Ok(read) => offset_bytes += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Advised::Failed(error),
            }
        }
        Advised::Fetched
    }

    /// Has the kernel drop the pages of `range` that are clean and not mapped. Does not wait.
    pub(crate) fn release_pages(&self, range: Range) {
        let length = NonZeroU64::new(range.length_bytes);
        // A page that the kernel keeps does no harm.
        let _ = rustix::fs::fadvise(&self.file, range.offset_bytes, length, Advice::DontNeed);
    }

    /// The part of `range` that lies within the file as it is now. With `STATX_DONT_SYNC` the size is the one this machine last
    /// knew, and a network file system does not ask its server.
    pub(crate) fn clip(&self, range: Range, sync: AtFlags) -> io::Result<Range> {
        let flags = AtFlags::EMPTY_PATH | sync;
        let size_bytes = rustix::fs::statx(&self.file, "", flags, StatxFlags::SIZE)?.stx_size;
        let length_bytes = range.length_bytes.min(size_bytes.saturating_sub(range.offset_bytes));
        Ok(Range { length_bytes, ..range })
    }
}

/// Reads up to `length_bytes` in one call, into the same `scratch` over and over. Returns how many were read.
fn read_and_forget(
    file: &File,
    scratch: &mut [u8],
    offset_bytes: u64,
    length_bytes: usize,
) -> io::Result<usize> {
    const PARTS_MAX: usize = READ_MAX_BYTES / SCRATCH_BYTES;
    assert_eq!(scratch.len(), SCRATCH_BYTES);
    let part = libc::iovec { iov_base: scratch.as_mut_ptr().cast(), iov_len: SCRATCH_BYTES };
    let mut parts = [part; PARTS_MAX];
    let count = length_bytes.div_ceil(SCRATCH_BYTES).clamp(1, PARTS_MAX);
    parts[count - 1].iov_len = (length_bytes - (count - 1) * SCRATCH_BYTES).min(SCRATCH_BYTES);
    let offset = offset_bytes.try_into().map_err(io::Error::other)?;
    // SAFETY: each part is `scratch` or its beginning, which is borrowed exclusively until the call returns. That the parts
    // are the same memory is no matter to the kernel, which writes one after the other, nor here, where none is looked at.
    let read =
        unsafe { libc::preadv(file.as_raw_fd(), parts.as_ptr(), count as libc::c_int, offset) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_any_length_are_read_to_their_end_or_to_that_of_the_file() {
        let file = tempfile::tempfile().expect("a file");
        let size_bytes = 2 * READ_MAX_BYTES as u64 + SCRATCH_BYTES as u64 + 5;
        file.set_len(size_bytes).expect("its length");
        let target = Target::new(file, size_bytes, 0);
        for length_bytes in [1, SCRATCH_BYTES as u64, READ_MAX_BYTES as u64 + 1, size_bytes] {
            let range = Range { offset_bytes: size_bytes - length_bytes, length_bytes };
            assert!(matches!(target.read_through(range), Advised::Fetched), "{range:?}");
            let longer = Range { length_bytes: length_bytes + READ_MAX_BYTES as u64, ..range };
            let short = target.read_through(longer);
            let Advised::Short { length_bytes: found } = short else { panic!("{short:?}") };
            assert_eq!(found, length_bytes);
        }
    }

    #[test]
    fn what_is_read_goes_into_the_same_memory() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 * READ_MAX_BYTES as u64).expect("its length");
        let mut scratch = vec![1u8; SCRATCH_BYTES];
        let all = [1, 7, SCRATCH_BYTES, SCRATCH_BYTES + 1, READ_MAX_BYTES - 1, READ_MAX_BYTES];
        for length_bytes in all {
            let read = read_and_forget(&file, &mut scratch, 0, length_bytes).expect("it is read");
            assert_eq!(read, length_bytes);
        }
        assert_eq!(scratch, [0u8; SCRATCH_BYTES]);
    }
}
