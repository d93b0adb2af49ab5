//! Whether a file system keeps a file's pages in memory when the file is opened once more.
//!
//! Most file systems do. A FUSE file system decides it at each open, and many have the kernel drop all pages then: those that
//! libfuse makes from a program's callbacks, unless they were mounted with `kernel_cache` or `auto_cache`. On these, prefetched
//! pages are lost when the program opens the file, and the manager's own open loses pages that the program has read.
//!
//! So each mounted FUSE file system is tried once, with its first file: a page is read, the file is opened again, and the page
//! is looked for. If the page is gone, no further file of that file system is opened.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// `FUSE_SUPER_MAGIC` of `linux/magic.h`.
const FUSE: libc::c_long = 0x6573_5546;

/// All file systems on which files were found, by `st_dev`.
#[derive(Debug, Default)]
pub(crate) struct FileSystems {
    known: Mutex<HashMap<u64, Arc<FileSystem>>>,
}

/// One mounted file system.
#[derive(Debug)]
pub(crate) struct FileSystem {
    /// Whether it keeps pages. Not set until that is known.
    keeps: OnceLock<bool>,
    /// Held during the probe.
    probing: Mutex<()>,
}

impl FileSystems {
    /// The file system of `file`, whose `st_dev` is `device`.
    pub(crate) fn of(&self, device: u64, file: impl AsFd) -> Arc<FileSystem> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let is_fuse = rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == FUSE);
            let keeps = if is_fuse { OnceLock::new() } else { OnceLock::from(true) };
            Arc::new(FileSystem { keeps, probing: Mutex::default() })
        };
        Arc::clone(known.entry(device).or_insert_with(new))
    }
}

impl FileSystem {
    /// Whether the file system is known to drop a file's pages when the file is opened again.
    pub(crate) fn forgets(&self) -> bool {
        self.keeps.get() == Some(&false)
    }

    /// Whether the file system keeps pages. If that is not known, `probe` finds it out with one file. `probe` may wait for the
    /// device, and returns `None` if that file cannot tell.
    pub(crate) fn keeps(&self, probe: impl FnOnce() -> Option<bool>) -> bool {
        if let Some(&keeps) = self.keeps.get() {
            return keeps;
        }
        let _turn = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.keeps.get().copied().or_else(probe);
        // A file that cannot tell is treated as on a file system that keeps pages.
        found.is_none_or(|keeps| *self.keeps.get_or_init(|| keeps))
    }
}

/// The error for a file on a file system that drops pages at each open.
pub(crate) fn forgotten() -> io::Error {
    io::Error::other("its file system drops a file's cached data each time the file is opened")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_probed_until_a_file_can_tell_and_then_no_more() {
        let system = FileSystem { keeps: OnceLock::new(), probing: Mutex::default() };
        assert!(system.keeps(|| None) && !system.forgets());
        assert!(!system.keeps(|| Some(false)) && system.forgets());
        assert!(!system.keeps(|| unreachable!("it is known")));
    }

    #[test]
    fn a_file_system_other_than_fuse_keeps() {
        let file = tempfile::tempfile().expect("a temporary file");
        let system = FileSystems::default().of(1, &file);
        if rustix::fs::fstatfs(&file).is_ok_and(|found| found.f_type != FUSE) {
            assert!(system.keeps(|| unreachable!("it is known")));
        }
    }
}
