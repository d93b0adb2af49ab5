//! Errors of mounts: one line each, which names the thing and, where that is known, what to do.

use std::io;
use std::path::PathBuf;

/// Why something could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point is missing, not a folder, or out of reach.
    #[error("cannot mount at {}: {source}; create an empty folder there first", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The mount point is a folder that is not empty; the mount would hide its content.
    #[error("cannot mount at {}: the folder is not empty; name an empty one", path.display())]
    NotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// A mount of the same kind is already there.
    #[error("{0} is mounted already ({noun}); unmount it with: {unmount} {0}", path.display())]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// What is mounted.
        noun: &'static str,
        /// The command that unmounts it.
        unmount: &'static str,
    },
    /// A FUSE mount whose process is gone, of another program.
    #[error(
        "{0} is a dead mount of {owner}, not of foretell; unmount it with: fusermount3 -u -z {0}",
        path.display()
    )]
    StaleForeign {
        /// The mount point.
        path: PathBuf,
        /// Its source in the table of mounts.
        owner: String,
    },
    /// The kernel has no FUSE, or does not allow this process to use it.
    #[error("/dev/fuse: {source}; {}", way_out(source))]
    NoFuse {
        /// The system's error.
        source: io::Error,
    },
    /// The helper program that mounts for users other than root is missing.
    #[error("fusermount3 not found; mounting without root needs it: install the package fuse3")]
    NoFusermount,
    /// Mounting failed.
    #[error("cannot mount at {}: {message}", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The system's message, on one line.
        message: String,
    },
    /// The path that should be a mount cannot be found.
    #[error("no {noun} is mounted at {}: {source}; `findmnt -t fuse` lists what is", path.display())]
    NoSuchPath {
        /// The path.
        path: PathBuf,
        /// The kind of mount.
        noun: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A mount of another kind is at the path.
    #[error("{0} is a mount of the kind {found}, not {wanted}; unmount it with: {unmount} {0}", path.display())]
    OtherKind {
        /// The path.
        path: PathBuf,
        /// The kind that was to be unmounted.
        wanted: &'static str,
        /// The kind that is there.
        found: &'static str,
        /// The command that unmounts it.
        unmount: &'static str,
    },
    /// There is no such mount at the path.
    #[error("no {noun} is mounted at {}; `findmnt -t fuse` lists what is", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
        /// The kind of mount.
        noun: &'static str,
    },
    /// Another user has mounted it.
    #[error(
        "{} was mounted by user {user}; only that user and root may unmount it",
        path.display()
    )]
    NotYours {
        /// The mount point.
        path: PathBuf,
        /// That user's number.
        user: u32,
    },
    /// A program uses the mount.
    #[error(
        "{0} is in use; end the programs that use it (fuser -vm {0}) and unmount again, or detach it: \
         fusermount3 -u -z {0}",
        path.display()
    )]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// Unmounting failed for another reason.
    #[error("cannot unmount {}: {message}", path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The system's message, on one line.
        message: String,
    },
    /// A thread could not be started.
    #[error(
        "cannot start a thread for the mount: {source}; raise the limit of processes (ulimit -u)"
    )]
    Thread {
        /// The system's error.
        source: io::Error,
    },
    /// The source cannot be read.
    #[error("cannot mount {source_name}: {message}")]
    Source {
        /// The folder's path or the store's address.
        source_name: String,
        /// Why.
        message: String,
    },
}

/// The first line of `text` that is not blank.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given").into()
}

/// What to do if /dev/fuse cannot be opened.
fn way_out(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES) => "ask for its usual mode, 0666, or have root mount",
        _ => "load it with `modprobe fuse`, or give the container that device and CAP_SYS_ADMIN",
    }
}
