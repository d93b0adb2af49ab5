//! Errors of stores: one line each, which names the thing and what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Why a store could not be started, or could not come up again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An option has a value out of its range.
    #[error("store option {option} = {value} is not possible; it must be {wanted}")]
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
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No sub-folder has a name that a bucket can have.
    #[error(
        "{} has no sub-folder whose name can be a bucket's (3 to 63 of a-z, 0-9, '-', '.'); make \
         one, or serve the folder itself as a bucket with --bucket NAME",
        path.display()
    )]
    NoBucket {
        /// The folder.
        path: PathBuf,
    },
    /// Other machines can reach the address, and so could read and change the folder.
    #[error(
        "{address} can be reached from other machines, and the store's keys are no secret; listen \
         at 127.0.0.1, or say --allow-remote"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The address is in use, or is not this machine's.
    #[error("cannot listen at {address}: {source}; port 0 finds a free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system gives no thread, timer or descriptor.
    #[error("cannot start the store: {source}; raise the limits of processes and files (ulimit)")]
    System {
        /// The system's error.
        source: io::Error,
    },
}
