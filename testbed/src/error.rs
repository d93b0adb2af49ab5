//! Errors of arrays: one line each, which names the thing and what to do.

use std::io;
use std::path::PathBuf;

use foretell_mount::MountError;
use thiserror::Error;

/// Why an array could not be mounted or unmounted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// An option has a value out of its range.
    #[error("array option {option} = {value} is not possible; it must be {wanted}")]
    Option {
        /// The option's name on the command line, without dashes.
        option: &'static str,
        /// The value given.
        value: String,
        /// The values that are allowed.
        wanted: &'static str,
    },
    /// The folder to serve is missing, not a folder, or cannot be read.
    #[error("cannot serve {}: {source}; name an existing folder that you may read", path.display())]
    Backing {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
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
    /// The mount could not be made or ended.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A thread could not be started.
    #[error(
        "cannot start a thread for the array: {source}; raise the limit of processes (ulimit -u)"
    )]
    Thread {
        /// The system's error.
        source: io::Error,
    },
}
