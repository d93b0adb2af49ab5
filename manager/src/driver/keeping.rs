//! Whether a file system keeps what is in memory of a file when that file is opened once more.
//!
//! Most do. File systems of FUSE decide it at each open, and many have the kernel forget all of it then (those that libfuse makes
//! from a program's callbacks, unless they were mounted with `kernel_cache` or `auto_cache`). There, whatever was fetched
//! ahead would be lost as the program opens the file, and the manager's own open would lose what the program has read. So of
//! each mounted file system of FUSE it is found out once, with the first file: a page of it is read, it is opened again,
//! and the page looked for. Where it is gone no file is opened any more.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// `FUSE_SUPER_MAGIC` of `linux/magic.h`.
const FUSE: libc::c_long = 0x6573_5546;

/// All file systems that files were found on, by `st_dev`.
#[derive(Debug, Default)]
pub(crate) struct FileSystems {
    known: Mutex<HashMap<u64, Arc<FileSystem>>>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct FileSystem {
    /// Not set while it is not known.
    keeps: OnceLock<bool>,
    /// Held while it is being found out.
    probing: Mutex<()>,
}

impl FileSystems {
    /// That of `file`, whose `st_dev` is `device`.
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
    /// Whether it is known to forget.
    pub(crate) fn forgets(&self) -> bool {
        self.keeps.get() == Some(&false)
    }

    /// Whether it keeps what is in memory; `probe` finds that out, if its file can tell, which may wait for the device.
    pub(crate) fn keeps(&self, probe: impl FnOnce() -> Option<bool>) -> bool {
        if let Some(&keeps) = self.keeps.get() {
            return keeps;
        }
        let _turn = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.keeps.get().copied().or_else(probe);
        // A file that cannot tell is read as on a file system that keeps.
        found.is_none_or(|keeps| *self.keeps.get_or_init(|| keeps))
    }
}

/// Why nothing is fetched of a file.
pub(crate) fn forgotten() -> io::Error {
    io::Error::other("its file system has the kernel forget a file's data when the file is opened")
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
    fn one_that_is_not_of_fuse_keeps() {
        let file = tempfile::tempfile().expect("a temporary file");
        let system = FileSystems::default().of(1, &file);
        if rustix::fs::fstatfs(&file).is_ok_and(|found| found.f_type != FUSE) {
            assert!(system.keeps(|| unreachable!("it is known")));
        }
    }
}
