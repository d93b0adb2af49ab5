//! Shared parts of the tests that mount.
#![allow(dead_code)]

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use foretell_testbed::{Array, ArrayOptions};
use tempfile::TempDir;

/// The reason why nothing can be mounted here, if so. The test then prints it and passes.
pub(crate) fn cannot_mount() -> Option<String> {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        return Some(format!("/dev/fuse: {error}"));
    }
    let folders = Folders::new();
    match Array::mount(&folders.backing, &folders.mountpoint, &fast()) {
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Ends a test early where FUSE is missing.
#[macro_export]
macro_rules! needs_fuse {
    () => {
        if let Some(reason) = common::cannot_mount() {
            // Bypasses the test runner, which hides the output of passing tests.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("skipped: {reason}\n").as_bytes(),
            );
            return;
        }
    };
}

/// A folder to serve and one to mount at.
pub(crate) struct Folders {
    _root: TempDir,
    pub(crate) backing: PathBuf,
    pub(crate) mountpoint: PathBuf,
}

impl Folders {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().canonicalize().expect("it exists");
        let (backing, mountpoint) = (path.join("backing"), path.join("mnt"));
        fs::create_dir(&backing).expect("a new folder");
        fs::create_dir(&mountpoint).expect("a new folder");
        Folders { _root: root, backing, mountpoint }
    }

    /// With `count` files `f000`… of `bytes` bytes each.
    pub(crate) fn with_files(count: usize, bytes: usize) -> Self {
        let folders = Folders::new();
        for index in 0..count {
            write(&folders.backing.join(format!("f{index:03}")), index as u64, bytes);
        }
        folders
    }

    pub(crate) fn files(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|index| self.mountpoint.join(format!("f{index:03}"))).collect()
    }
}

/// Writes `bytes` bytes that `seed` determines.
pub(crate) fn write(path: &Path, seed: u64, bytes: usize) {
    let mut random = foretell_sim::random::SplitMix64::new(seed);
    let mut data = Vec::with_capacity(bytes + 8);
    while data.len() < bytes {
        data.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    data.truncate(bytes);
    File::create(path).and_then(|mut file| file.write_all(&data)).expect("room for a file");
}

/// Options of an array that runs a hundred times as fast as real time.
pub(crate) fn fast() -> ArrayOptions {
    ArrayOptions { time_scale: 0.01, ..ArrayOptions::default() }
}

/// Tells the kernel that a file will be read.
pub(crate) fn will_need(file: &File) {
    // SAFETY: the descriptor is open and the call only gives advice about it.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED) };
    assert_eq!(error, 0);
}

/// Whether the table of mounts mentions `path`.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a table of mounts");
    let path = path.to_str().expect("a temporary folder has a plain name");
    table.lines().any(|line| line.split(' ').nth(4) == Some(path))
}
