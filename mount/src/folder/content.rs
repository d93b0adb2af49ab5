//! The cached bytes of a file of a writable folder: decides when they must be dropped.
//!
//! A file keeps its inode while its bytes change. So there is one file of the cache for all programs that have it open,
//! and it is told of every change ([`File::changed`]). The kernel drops its pages of the file when the answer to an
//! open says so. Other opens let it keep its pages only after a request has come in by the handle of that open, which
//! shows that the answer has arrived.
//!
//! Changes are noticed by comparing the folder's attributes of the file (its [`Version`]) with those seen before.
//! Writes hold the same lock, so that the mount does not take its own writes for changes by others.
//!
//! * **A. A write through the mount.** The bytes go to the folder's file, then the cache is told of them. The next
//!   attributes are accepted as they are, since they cannot show whether others have written too. The next open drops
//!   all that is cached.
//! * **B. New attributes** at an open, a lookup or a request for attributes: somebody else has changed the file. All
//!   that is cached is dropped.
//! * **C. The same attributes.** Nothing has changed. But if the file's times are so recent that another change might
//!   leave them the same, the version is not settled, and the next open does not trust it.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::{File, Session};
use rustix::fs::Stat;

use super::pages::KernelPages;

/// How old a change must be before a later one must show in the file's times. They advance with the kernel's ticks, of
/// 10 ms at most.
const SETTLES_AFTER: Duration = Duration::from_millis(50);
/// How old a change must be on file systems whose times are whole seconds, or even seconds only.
const COARSE_SETTLES_AFTER: Duration = Duration::from_millis(2050);

/// The folder's attributes of a file that change whenever its bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version([u64; 7]);

impl Version {
    pub(crate) fn of(stat: &Stat) -> Self {
        Version([
            stat.st_dev,
            stat.st_ino,
            stat.st_size as u64,
            stat.st_mtime as u64,
            stat.st_mtime_nsec,
            stat.st_ctime as u64,
            stat.st_ctime_nsec,
        ])
    }

    /// Whether a further change would give another version.
    pub(crate) fn is_settled(&self) -> bool {
        let [.., modified_nanoseconds, seconds, nanoseconds] = self.0;
        let changed = Duration::new(seconds, nanoseconds as u32);
        let settles_after = match (modified_nanoseconds, nanoseconds) {
            (0, 0) => COARSE_SETTLES_AFTER,
            _ => SETTLES_AFTER,
        };
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        now.checked_sub(changed).is_some_and(|age| age >= settles_after)
    }

    /// The version's name in the cache. A version that is not settled gets a name of its own, as its bytes may still
    /// change.
    pub(crate) fn name(&self) -> Arc<[u8]> {
        static UNIQUE: AtomicU64 = AtomicU64::new(1);
        let unique = match self.is_settled() {
            true => 0,
            false => UNIQUE.fetch_add(1, Ordering::Relaxed),
        };
        let words = self.0.iter().chain([&unique]);
        words.flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into()
    }
}

/// The cache's file, while a program has it open.
struct Live {
    file: Arc<File>,
    handles: usize,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Content {
    /// The last version seen. `None` after a write, or if it was not settled.
    version: Option<Version>,
    /// Whether nothing has changed since the open at which the kernel dropped its pages.
    is_clean: bool,
    /// The number of that open.
    drop: u64,
    live: Option<Live>,
}

/// The result of an open.
pub(crate) struct OpenedContent {
    pub(crate) file: Arc<File>,
    /// The number of this open if the kernel is to drop its pages. When the answer has arrived,
    /// [`KernelPages::dropped`] must be called with it. `None` if the kernel keeps its pages.
    pub(crate) dropped: Option<u64>,
}

impl Content {
    /// A program opens the file for reading. `stat` is the folder's attributes. If the file is not open yet, `open`
    /// gives a descriptor and the file's path.
    pub(crate) fn open<E>(
        &mut self,
        (stat, kernel): (&Stat, &KernelPages),
        (backend, session, own): (&LocalBackend, &Session, &Session),
        open: impl FnOnce() -> Result<(OwnedFd, String), E>,
    ) -> Result<OpenedContent, E> {
        // From here on nothing may fail: the open is counted as one that drops pages.
        let opened = if self.live.is_none() { Some(open()?) } else { None };
        let dropped = self.opened(stat, kernel);
        let live = match &mut self.live {
            Some(live) => live,
            None => {
                let (descriptor, path) =
                    opened.expect("invariant: `opened` is set if `live` is not");
                let version = Version::of(stat).name();
                let opened = backend.open_changing(descriptor.into(), version, stat.st_size as u64);
                let file = own.open_found(&path, opened);
                self.live.insert(Live { file, handles: 0 })
            }
        };
        live.handles += 1;
        Ok(OpenedContent { file: session.open_again(&live.file), dropped })
    }

    /// A program opens the file. Returns [`OpenedContent::dropped`].
    pub(crate) fn opened(&mut self, stat: &Stat, kernel: &KernelPages) -> Option<u64> {
        let version = Version::of(stat);
        let is_same = self.is_clean && self.version == Some(version);
        let are_kept = is_same && kernel.are_dropped_since(self.drop);
        let dropped = (!are_kept).then(|| kernel.drop_all());
        if !is_same {
            self.forget(stat.st_size as u64);
            self.drop = dropped.expect("invariant: pages of another version are dropped");
        }
        self.is_clean = version.is_settled();
        self.version = Some(version).filter(|_| self.is_clean);
        dropped
    }

    /// A handle that had [opened](Content::open) the file for reading is closed.
    pub(crate) fn close(&mut self) {
        if let Some(live) = &mut self.live {
            live.handles -= 1;
            if live.handles == 0 {
                self.live = None;
            }
        }
    }

    /// The cache's file, if a program has it open.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        self.live.as_ref().map(|live| &live.file)
    }

    /// Takes in the folder's attributes. The caller holds the lock that keeps writes through the mount away.
    pub(crate) fn observe(&mut self, stat: &Stat, kernel: &KernelPages) {
        let (version, size_bytes) = (Version::of(stat), stat.st_size as u64);
        let known_bytes = self.live.as_ref().map(|live| live.file.size_bytes());
        if self.version.is_some_and(|before| before != version)
            || known_bytes.is_some_and(|known| known != size_bytes)
        {
            kernel.others_have_changed_it();
        }
        match self.version {
            Some(before) if before == version => return,
            // B.
            Some(_) => {
                self.is_clean = false;
                self.forget(size_bytes);
            }
            // A.
            None => self.changed(0..0, size_bytes),
        }
        self.version = Some(version).filter(Version::is_settled);
    }

    /// A. The file was written through the mount.
    pub(crate) fn wrote(&mut self, bytes: Range<u64>, size_bytes: Option<u64>) {
        (self.version, self.is_clean) = (None, false);
        let known = self.live.as_ref().map_or(0, |live| live.file.size_bytes());
        let size_bytes = size_bytes.unwrap_or_else(|| known.max(bytes.end));
        self.changed(bytes, size_bytes);
    }

    fn forget(&self, size_bytes: u64) {
        if let Some(live) = &self.live {
            let all = 0..live.file.size_bytes().max(size_bytes);
            live.file.changed(all, size_bytes);
        }
    }

    fn changed(&self, bytes: Range<u64>, size_bytes: u64) {
        if let Some(live) = &self.live
            && (!bytes.is_empty() || live.file.size_bytes() != size_bytes)
        {
            live.file.changed(bytes, size_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_keeps_its_pages_when_it_is_known_to_have_dropped_the_old_ones() {
        let file = tempfile::tempfile().unwrap();
        let stat = || rustix::fs::fstat(&file).unwrap();
        while !Version::of(&stat()).is_settled() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut content, kernel) = (Content::default(), KernelPages::default());
        let open = |content: &mut Content| content.opened(&stat(), &kernel);
        assert_eq!(open(&mut content), Some(1), "its pages may be older");
        assert_eq!(open(&mut content), Some(2), "that answer may not have arrived");
        kernel.dropped(1);
        assert_eq!(open(&mut content), None);
        content.wrote(0..1, None);
        assert_eq!(open(&mut content), Some(3));
        kernel.dropped(2);
        assert_eq!(open(&mut content), Some(4), "that drop came before the write");
        kernel.dropped(4);
        assert_eq!(open(&mut content), None);
    }
}
