//! An open file, as back ends use it: what of it is in memory, reading it, and letting it go.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
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
    pub(crate) fn read_through(&self, range: Range) -> Advised {
        const SCRATCH_BYTES: usize = 32 * 1024;
        // Not on the stack: inlined several times, it may take as many times its size there.
        let mut scratch = vec![0u8; SCRATCH_BYTES];
        let end = range.offset_bytes + range.length_bytes;
        let mut offset_bytes = range.offset_bytes;
        while offset_bytes < end {
            let wanted = SCRATCH_BYTES.min((end - offset_bytes) as usize);
            match self.file.read_at(&mut scratch[..wanted], offset_bytes) {
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
