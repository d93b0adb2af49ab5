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
    keeps: OnceLock<bool>,
}

impl FileSystems {
    /// That of `file`, whose `st_dev` is `device`.
    pub(crate) fn of(&self, device: u64, file: impl AsFd) -> Arc<FileSystem> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let is_fuse = rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == FUSE);
            let keeps = if is_fuse { OnceLock::new() } else { OnceLock::from(true) };
            Arc::new(FileSystem { keeps })
        };
        Arc::clone(known.entry(device).or_insert_with(new))
    }
}

impl FileSystem {
    /// Whether it is known to forget.
    pub(crate) fn forgets(&self) -> bool {
        self.keeps.get() == Some(&false)
    }

    /// Whether it keeps what is in memory; `probe` finds that out, which may wait for the device.
    pub(crate) fn keeps(&self, probe: impl FnOnce() -> bool) -> bool {
        *self.keeps.get_or_init(probe)
    }
}

/// Why nothing is fetched of a file.
pub(crate) fn forgotten() -> io::Error {
    io::Error::other("its file system has the kernel forget a file's data when the file is opened")
}
