//! Folders, for the conformance suite: read by threads and by io_uring, with their files in the page cache and not.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::LocalBackend;
use crate::backend::Backend;
use crate::backend::conformance::World;

struct Folder {
    root: PathBuf,
    backend: LocalBackend,
    /// What is written is put on the disk, and leaves the page cache.
    is_cold: bool,
}

impl Folder {
    fn try_put(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        let beside = path.with_extension("new");
        fs::write(&beside, bytes)?;
        if self.is_cold {
            let file = File::open(&beside)?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        fs::rename(beside, path)
    }
}

impl World for Folder {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        self.try_put(path, bytes).expect("the folder can be written to");
    }
}

/// Local folders read by threads, and by io_uring where it is available, with files in the page cache and without.
pub(super) fn worlds(root: &Path) -> Vec<Box<dyn World>> {
    let mut worlds: Vec<Box<dyn World>> = Vec::new();
    for is_cold in [false, true] {
        let threads = LocalBackend::blocking(root, 4).expect("it is a folder");
        let ring = LocalBackend::new(root, None).expect("it is a folder");
        for backend in [threads, ring] {
            worlds.push(Box::new(Folder { root: root.into(), backend, is_cold }));
        }
    }
    worlds
}
