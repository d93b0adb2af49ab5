//! What can be wrong with a mount: one line each, with the thing's name and the way out.

use std::io;
use std::path::PathBuf;

/// Why something could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
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
    /// One is there already.
    #[error("{0} is mounted already ({noun}); unmount it with: {unmount} {0}", path.display())]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// What is mounted.
        noun: &'static str,
        /// The command that unmounts it.
        unmount: &'static str,
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
    /// The kernel's side of FUSE is missing or not allowed.
    #[error("/dev/fuse: {source}; {}", way_out(source))]
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
    #[error("no {noun} is mounted at {}; `findmnt -t fuse` lists what is", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
        /// What is not mounted.
        noun: &'static str,
    },
    /// Somebody else's.
    #[error(
        "{} was mounted by user {user}; only that user and root may unmount it",
        path.display()
    )]
    NotYours {
        /// The mount point.
        path: PathBuf,
        /// Who has mounted it.
        user: u32,
    },
    /// Somebody has a file open below the mount point.
    #[error(
        "{0} is in use; end the programs that use it (fuser -vm {0}) and unmount again, or detach it: \
         fusermount3 -u -z {0}",
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
        "cannot start a thread for the mount: {source}; raise the limit of processes (ulimit -u)"
    )]
    Thread {
        /// What the system said.
        source: io::Error,
    },
    /// What is to be mounted cannot be read.
    #[error("cannot mount {source_name}: {message}")]
    Source {
        /// A folder, or an address.
        source_name: String,
        /// Why.
        message: String,
    },
}

/// The first line of `text` that says something.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given").into()
}

/// What can be done about a device that cannot be opened.
fn way_out(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES) => {
            "ask for its mode to be 0666, as distributions have it, or for a mount by root"
        }
        _ => "load it with `modprobe fuse`, or give the container that device and CAP_SYS_ADMIN",
    }
}
