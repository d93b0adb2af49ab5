//! The bytes of a file of a writable folder: who has them cached, and until when that is right.
//!
//! A file keeps its inode while its bytes change. So there is one file of the cache for all that have it open, which is told of
//! every change ([`File::changed`]), and the kernel's pages are dropped by opening it: when the answer to that open arrives, so that others are
//! told to keep them only when something was asked by the handle of that answer. What is known is compared with what the folder says of
//! the file (its [`Version`]), under one lock with the writes, so that one's own writes are not taken for another's:
//!
//! * **A. Written through the mount.** The bytes go to the folder's file, then the cache is told of them. What the folder says next is
//!   taken in, since it cannot be told whether somebody else has written too; who opens the file next begins with nothing cached.
//! * **B. The folder says something new** at an open, a lookup, or when attributes are asked for: somebody else has changed it. All that is cached is dropped.
//! * **C. It says what it said before.** Then nothing has changed, unless its times are so fresh that another change might not
//!   show in them: such a version is not trusted at the next open.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::{File, Session};
use rustix::fs::Stat;

use super::pages::KernelPages;

/// Times of files are as fine as the kernel's ticks, where they are not finer: 10 ms at most. A change that is older shows.
const SETTLES_AFTER: Duration = Duration::from_millis(50);
/// Some file systems have whole seconds, or every second one.
const COARSE_SETTLES_AFTER: Duration = Duration::from_millis(2050);

/// What the folder says of a file, and says otherwise when its bytes have changed.
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

    /// Whether another change would be another version.
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

    /// As the cache knows it: the same bytes for the same version, if that can be told.
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

/// The cache's file, as long as somebody has it open.
struct Live {
    file: Arc<File>,
    handles: usize,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Content {
    /// What the folder has said last; none if something was written since, or it is not settled.
    version: Option<Version>,
    /// Nothing has changed since the open by which the kernel drops its pages.
    is_clean: bool,
    /// Which that is.
    drop: u64,
    live: Option<Live>,
}

/// A file that was opened.
pub(crate) struct OpenedContent {
    pub(crate) file: Arc<File>,
    /// The kernel drops its pages when the answer has arrived, which is to be [said](KernelPages::dropped). None if it keeps them.
    pub(crate) dropped: Option<u64>,
}

impl Content {
    /// A program opens it to read. `stat` is what the folder says now; `open` gets a descriptor, and what the file is called, if it is not open yet.
    pub(crate) fn open<E>(
        &mut self,
        (stat, kernel): (&Stat, &KernelPages),
        (backend, session, own): (&LocalBackend, &Session, &Session),
        open: impl FnOnce() -> Result<(OwnedFd, String), E>,
    ) -> Result<OpenedContent, E> {
        // Nothing fails when it is said what is dropped.
        let opened = if self.live.is_none() { Some(open()?) } else { None };
        let dropped = self.opened(stat, kernel);
        let live = match &mut self.live {
            Some(live) => live,
            None => {
                let (descriptor, path) =
                    opened.expect("invariant: it was opened, as it was not live");
                let version = Version::of(stat).name();
                let opened = backend.open_changing(descriptor.into(), version, stat.st_size as u64);
                let file = own.open_found(&path, opened);
                self.live.insert(Live { file, handles: 0 })
            }
        };
        live.handles += 1;
        Ok(OpenedContent { file: session.open_again(&live.file), dropped })
    }

    /// A program opens it. See [`OpenedContent::dropped`].
    pub(crate) fn opened(&mut self, stat: &Stat, kernel: &KernelPages) -> Option<u64> {
        let version = Version::of(stat);
        let is_same = self.is_clean && self.version == Some(version);
        let are_kept = is_same && kernel.are_dropped_since(self.drop);
        let dropped = (!are_kept).then(|| kernel.drop_all());
        if !is_same {
            self.forget(stat.st_size as u64);
            self.drop = dropped.expect("invariant: what is not the same is not kept");
        }
        self.is_clean = version.is_settled();
        self.version = Some(version).filter(|_| self.is_clean);
        dropped
    }

    /// Who has [opened](Content::open) it does not read any more.
    pub(crate) fn close(&mut self) {
        if let Some(live) = &mut self.live {
            live.handles -= 1;
            if live.handles == 0 {
                self.live = None;
            }
        }
    }

    /// What is cached, if it is open.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        self.live.as_ref().map(|live| &live.file)
    }

    /// The folder says this of it, under the lock that keeps writes through the mount away.
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

    /// A. Written through the mount.
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
        assert_eq!(open(&mut content), Some(1), "they may be of before");
        assert_eq!(open(&mut content), Some(2), "that answer is on its way");
        kernel.dropped(1);
        assert_eq!(open(&mut content), None);
        content.wrote(0..1, None);
        assert_eq!(open(&mut content), Some(3));
        kernel.dropped(2);
        assert_eq!(open(&mut content), Some(4), "that was before");
        kernel.dropped(4);
        assert_eq!(open(&mut content), None);
    }
}
