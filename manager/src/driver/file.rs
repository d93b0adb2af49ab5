//! Files that are being prefetched: looked up, opened, advised, observed.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;

use foretell_policy::FileId;
use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags};

use super::residency::{self, Observer, Range};

/// A file held open while it has something left to prefetch.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    id: FileId,
    size_bytes: u64,
    owner_uid: u32,
    /// Made when it is first needed, which is on a device's thread.
    observer: OnceLock<Observer>,
}

/// What a name turned out to be.
#[derive(Debug)]
pub(crate) enum Found {
    /// A regular file.
    File(OpenFile),
    /// A folder.
    Folder,
    /// A pipe, a socket, a device: nothing to prefetch.
    Other,
}

/// How an advice went.
#[derive(Debug)]
pub(crate) enum Advised {
    /// All of it was in memory already.
    AlreadyCached,
    /// The kernel is fetching it; [`OpenFile::state`] tells when it has arrived.
    Started,
    /// It is in memory now.
    Fetched,
    /// The file ends before `range` does; what exists of it, `length_bytes`, is in memory now.
    Short { length_bytes: u64 },
    /// It cannot be had.
    Failed(io::Error),
}

/// Where a started fetch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On its way, as far as can be told.
    Waiting,
    /// All of it is in memory.
    Arrived,
    /// The file has become shorter; `length_bytes` of the range still exist.
    Short { length_bytes: u64 },
}

/// The policy's name for the file of these numbers.
///
/// Reads are reported by device and inode number. Mixing the two into 64 bits needs no table that
/// would have to be pruned; two files that met in one number (one chance in 2⁶⁴ for a pair) would
/// share their accounting, and nothing else.
pub(crate) fn file_id(device: u64, inode: u64) -> FileId {
    // The finalizer of SplitMix64, once a word.
    fn mix(mut word: u64) -> u64 {
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
    FileId(mix(mix(device).wrapping_add(0x9e37_79b9_7f4a_7c15) ^ inode))
}

/// Looks `path` up and opens it if it is a regular file.
///
/// It is opened without rights first, since opening a pipe or a device in earnest has effects.
pub(crate) fn find(path: &Path) -> io::Result<Found> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let metadata = File::from(handle).metadata()?;
    if metadata.is_dir() {
        return Ok(Found::Folder);
    }
    if !metadata.is_file() {
        return Ok(Found::Other);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Found::Other);
    }
    let size_bytes = metadata.len();
    let (owner_uid, observer) = (metadata.uid(), OnceLock::new());
    let id = file_id(metadata.dev(), metadata.ino());
    Ok(Found::File(OpenFile { file, id, size_bytes, owner_uid, observer }))
}

impl OpenFile {
    /// The policy's name for it.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Its size when it was opened.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Has the kernel fetch `range`. May wait: for the device's queue, or, where the kernel takes no
    /// advice or arrival cannot be observed, for the data itself.
    pub(crate) fn advise(&self, range: Range) -> Advised {
        match self.clip(range, AtFlags::STATX_SYNC_AS_STAT) {
            Err(error) => Advised::Failed(error),
            Ok(existing) if existing == range => self.advise_existing(range),
            Ok(existing) if existing.length_bytes == 0 => Advised::Short { length_bytes: 0 },
            Ok(existing) => match self.read_through(existing) {
                Advised::Fetched => Advised::Short { length_bytes: existing.length_bytes },
                other => other,
            },
        }
    }

    /// Where the fetch of `range` stands. Never waits.
    pub(crate) fn state(&self, range: Range) -> State {
        // The size first: pages beyond a new end may linger in a large folio.
        match self.clip(range, AtFlags::STATX_DONT_SYNC) {
            Ok(existing) if existing != range => {
                State::Short { length_bytes: existing.length_bytes }
            }
            _ if self.has_arrived(range) == Some(true) => State::Arrived,
            _ => State::Waiting,
        }
    }

    /// Has the kernel let go of the pages of `range` that nobody has changed or mapped. Does not wait.
    pub(crate) fn release(&self, range: Range) {
        let length = std::num::NonZeroU64::new(range.length_bytes);
        // What the kernel does not let go of stays: no harm is done.
        let _ = rustix::fs::fadvise(&self.file, range.offset_bytes, length, Advice::DontNeed);
    }

    fn has_arrived(&self, range: Range) -> Option<bool> {
        let make = || Observer::new(&self.file, self.size_bytes, self.owner_uid);
        self.observer.get_or_init(make).has_arrived(&self.file, range)
    }

    fn advise_existing(&self, range: Range) -> Advised {
        // What has no place in the cache has not arrived; only then is it asked by a read, which would
        // have the kernel fetch what is missing.
        let accepted_bytes = residency::accepted_bytes(&self.file, range);
        if accepted_bytes.is_none_or(|accepted_bytes| accepted_bytes == range.length_bytes) {
            match self.has_arrived(range) {
                None => return self.read_through(range),
                Some(true) => return Advised::AlreadyCached,
                Some(false) => {}
            }
        }
        let mut rest = range;
        while rest.length_bytes > 0 {
            let wanted = std::num::NonZeroU64::new(rest.length_bytes);
            if rustix::fs::fadvise(&self.file, rest.offset_bytes, wanted, Advice::WillNeed).is_err()
            {
                return self.read_through(rest);
            }
            // The kernel cuts an advice to the device's read-ahead limit without a word.
            let accepted_bytes = match residency::accepted_bytes(&self.file, rest) {
                None => break,
                Some(0) => return self.read_through(rest),
                Some(accepted_bytes) => accepted_bytes,
            };
            rest.offset_bytes += accepted_bytes;
            rest.length_bytes -= accepted_bytes;
        }
        Advised::Started
    }

    /// Brings `range` into the page cache by reading it: what works with every file system.
    fn read_through(&self, range: Range) -> Advised {
        const SCRATCH_BYTES: usize = 32 * 1024;
        let mut scratch = [0u8; SCRATCH_BYTES];
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

    /// The part of `range` that lies within the file as it is now, or, with `STATX_DONT_SYNC`, as this
    /// machine last knew it: a network file system then asks nobody.
    fn clip(&self, range: Range, sync: AtFlags) -> io::Result<Range> {
        let flags = AtFlags::EMPTY_PATH | sync;
        let size_bytes = rustix::fs::statx(&self.file, "", flags, StatxFlags::SIZE)?.stx_size;
        let length_bytes = range.length_bytes.min(size_bytes.saturating_sub(range.offset_bytes));
        Ok(Range { length_bytes, ..range })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset_bytes: u64, length_bytes: u64) -> Range {
        Range { offset_bytes, length_bytes }
    }

    fn found(path: &Path) -> OpenFile {
        match find(path).expect("it can be opened") {
            Found::File(file) => file,
            other => panic!("{other:?} is no file"),
        }
    }

    #[test]
    fn pages_in_memory_need_no_fetch_and_a_shorter_file_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1u8; 50_000]).expect("written");
        let file = found(&path);
        assert_eq!(file.size_bytes(), 50_000);
        assert!(matches!(file.advise(range(0, 50_000)), Advised::AlreadyCached));
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|writer| writer.set_len(10_000))
            .expect("truncated");
        assert!(matches!(file.advise(range(0, 50_000)), Advised::Short { length_bytes: 10_000 }));
        assert!(matches!(file.advise(range(20_000, 10)), Advised::Short { length_bytes: 0 }));
        assert_eq!(file.state(range(8_192, 8_192)), State::Short { length_bytes: 1_808 });
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(matches!(find(folder.path()), Ok(Found::Folder)));
        assert!(matches!(find(Path::new("/dev/null")), Ok(Found::Other)));
        let missing = find(&folder.path().join("missing")).expect_err("there is none");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn every_name_of_a_file_gives_one_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "x").expect("written");
        std::fs::hard_link(&one, &two).expect("linked");
        assert_eq!(found(&one).id(), found(&two).id());
        assert_ne!(file_id(1, 2), file_id(2, 1));
    }
}
