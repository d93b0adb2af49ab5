//! What can be wrong with an array: one line each, with the thing's name and the way out.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why an array could not be mounted or unmounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// An option has a value that makes no array.
    #[error("array option {option} = {value} is not possible; it must be {wanted}")]
    Option {
        /// The option's name on the command line, without dashes.
        option: &'static str,
        /// The value given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// The folder to serve is missing, no folder, or not to be read.
    #[error("cannot serve {}: {source}; name an existing folder that you may read", path.display())]
    Backing {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The mount point is missing, no folder, or not to be reached.
    #[error("cannot mount at {}: {source}; create an empty folder there first", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something is in the folder that the mount would hide.
    #[error("cannot mount at {}: the folder is not empty; name an empty one", path.display())]
    NotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// An array is there already.
    #[error(
        "an array is already mounted at {0}; unmount it with: foretell array unmount {0}",
        path.display()
    )]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
    },
    /// A dead FUSE mount, but not one of ours.
    #[error(
        "{0} is a dead mount of {owner}, not of foretell; unmount it with: fusermount3 -u -z {0}",
        path.display()
    )]
    StaleForeign {
        /// The mount point.
        path: PathBuf,
        /// The mount's source as the system lists it.
        owner: String,
    },
    /// One folder contains the other, so the array would serve itself.
    #[error(
        "cannot serve {} at {}: one lies in the other; mount somewhere outside",
        backing.display(), mountpoint.display()
    )]
    Overlap {
        /// The folder.
        backing: PathBuf,
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// The kernel's side of FUSE is missing or not allowed.
    #[error(
        "/dev/fuse: {source}; load it with `modprobe fuse`, or give the container that device \
         and CAP_SYS_ADMIN"
    )]
    NoFuse {
        /// What the system said.
        source: io::Error,
    },
    /// Mounting without root needs a helper program.
    #[error("fusermount3 not found, which mounting without root needs; install package fuse3")]
    NoFusermount,
    /// The mount itself failed.
    #[error("cannot mount at {}: {message}", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// What the system said, on one line.
        message: String,
    },
    /// Nothing to unmount.
    #[error("no array is mounted at {}; `findmnt -t fuse` lists what is", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// Somebody has a file open below the mount point.
    #[error(
        "{0} is in use; end the programs that use it (fuser -vm {0}) and unmount again",
        path.display()
    )]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// Unmounting failed otherwise.
    #[error("cannot unmount {}: {message}", path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// What the system said, on one line.
        message: String,
    },
    /// A thread could not be started.
    #[error(
        "cannot start a thread for the array: {source}; raise the limit of processes (ulimit -u)"
    )]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

/// The first line of `text` that says something.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given").into()
}
