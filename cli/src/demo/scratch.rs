//! The folder of a demo, which goes with it: also with one that was killed, when the next one begins.
//!
//! A demo holds a lock on a file in its folder. The kernel takes it away with the process, however that ends: a folder
//! whose lock nobody holds was left by a demo that was killed, and what is mounted there is dead.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use foretell_mount::point;

use crate::failure::Failure;

/// What the folders of all demos begin with.
const PREFIX: &str = "foretell-demo-";
const LOCK: &str = "lock";
/// Where the demos mount what they show, in their folders.
pub(super) const ARRAY: &str = "array";
pub(super) const STORE: &str = "mount";

/// See the [module](self).
pub(super) struct Scratch {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Scratch {
    /// A folder below that for temporary files, from which what killed demos have left is removed.
    pub(super) fn new() -> Result<Self, Failure> {
        remove_abandoned(&std::env::temp_dir());
        let none = |error| {
            Failure::failed(format!("no temporary folder: {error}; TMPDIR names another place"))
        };
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir().map_err(none)?;
        let lock = hold(folder.path()).map_err(none)?;
        Ok(Scratch { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder. Under the name that others look for, the file is locked from the first.
fn hold(folder: &Path) -> std::io::Result<File> {
    let made = folder.join("lock.new");
    let lock = File::create_new(&made)?;
    lock.lock()?;
    fs::rename(made, folder.join(LOCK))?;
    Ok(lock)
}

/// Removes the folders of this user's demos that were killed. What cannot be removed stays: it is in nobody's way.
fn remove_abandoned(below: &Path) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let is_of_a_demo = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // In a folder that anybody may write to, others may have put anything under that name.
        let is_ours = || {
            let known = entry.metadata();
            known.is_ok_and(|known| {
                known.is_dir() && known.uid() == rustix::process::geteuid().as_raw()
            })
        };
        if is_of_a_demo && is_ours() && is_abandoned(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Removes a folder and what is mounted in it: the lock last, so that what cannot be removed now is tried again.
fn remove(folder: &Path) {
    for mountpoint in [ARRAY, STORE].map(|name| folder.join(name)) {
        let _ = foretell_testbed::unmount_path(&mountpoint);
        let _ = point::unmount_path(&mountpoint, &foretell_mount::KIND);
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let are_left = entries.filter(|entry| entry.file_name() != LOCK).filter(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        let removed = match entry.file_type() {
            // What is still mounted there is nobody's to be removed.
            Ok(_) if name == ARRAY || name == STORE => fs::remove_dir(path),
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(path),
            _ => fs::remove_file(path),
        };
        removed.is_err()
    });
    if are_left.count() == 0 && fs::remove_file(folder.join(LOCK)).is_ok() {
        let _ = fs::remove_dir(folder);
    }
}

/// Whether a demo has locked it, and none holds the lock.
fn is_abandoned(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_demo_has_left_goes_whatever_it_is() {
        let below = tempfile::tempdir().expect("a folder");
        let left = below.path().join(format!("{PREFIX}left"));
        for folder in ["files", ARRAY] {
            fs::create_dir_all(left.join(folder)).expect("made");
        }
        fs::write(left.join("files/one"), "text").expect("written");
        fs::write(left.join("run.json"), "{}").expect("written");
        let lock = hold(&left).expect("locked");
        remove_abandoned(below.path());
        assert!(left.join("run.json").exists(), "its demo lives");
        lock.unlock().expect("it was held"); // A fork of another test's may hold the file for a moment.
        remove_abandoned(below.path());
        assert!(!left.exists());
    }
}
