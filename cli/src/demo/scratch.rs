//! The temporary folder of a demo. It is removed at the end; one left by a killed demo is removed when the next demo begins.
//!
//! A demo holds a lock on a file in its folder. The kernel releases the lock when the process ends, however it ends. A folder
//! with an unlocked file was therefore left by a killed demo, and mounts in it are dead.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use foretell_mount::point;

use crate::failure::Failure;

/// The beginning of all demo folders' names.
const PREFIX: &str = "foretell-demo-";
const LOCK: &str = "lock";
/// The mount points of the demos, in their folders.
pub(super) const ARRAY: &str = "array";
pub(super) const STORE: &str = "mount";

/// See the [module](self).
pub(super) struct Scratch {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a folder for temporary files, after removing those of killed demos.
    pub(super) fn new() -> Result<Self, Failure> {
        remove_abandoned(&std::env::temp_dir());
        let none = |error| {
            Failure::failed(format!(
                "cannot make a temporary folder: {error}; set TMPDIR to another place"
            ))
        };
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir().map_err(none)?;
        let lock = hold(folder.path()).map_err(none)?;
        Ok(Scratch { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder. The lock file gets its name only after it is locked, so no other demo ever sees it unlocked.
fn hold(folder: &Path) -> std::io::Result<File> {
    let made = folder.join("lock.new");
    let lock = File::create_new(&made)?;
    lock.lock()?;
    fs::rename(made, folder.join(LOCK))?;
    Ok(lock)
}

/// Removes the folders of this user's killed demos. A folder that cannot be removed stays and does no harm.
fn remove_abandoned(below: &Path) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let is_of_a_demo = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // In a folder that all users can write, others may have put anything under that name.
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

/// Removes a folder and its mounts. The lock goes last, so that the next demo tries again if something cannot be removed now.
fn remove(folder: &Path) {
    for mountpoint in [ARRAY, STORE].map(|name| folder.join(name)) {
        let _ = foretell_testbed::unmount_path(&mountpoint);
        let _ = point::unmount_path(&mountpoint, &foretell_mount::Kind::STORE);
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let are_left = entries.filter(|entry| entry.file_name() != LOCK).filter(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        let removed = match entry.file_type() {
            // Never removes files of what may still be mounted there.
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

/// Whether the folder has a lock file that no demo holds.
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
