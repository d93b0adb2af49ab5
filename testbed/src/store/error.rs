//! What can be wrong with a store: one line each, with the thing's name and the way out.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Why a store could not be started, or not come up again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An option has a value that makes no store.
    #[error("store option {option} = {value} is not possible; it must be {wanted}")]
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
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing in the folder can be a bucket.
    #[error(
        "{} has no sub-folder whose name can be a bucket's (3 to 63 of a-z, 0-9, '-', '.'); make \
         one, or serve the folder itself as a bucket with --bucket NAME",
        path.display()
    )]
    NoBucket {
        /// The folder.
        path: PathBuf,
    },
    /// Whoever reaches that address could read and change the folder.
    #[error(
        "{address} can be reached from other machines, and the store's keys are no secret; listen \
         at 127.0.0.1, or say --allow-remote"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The address is taken or not this machine's.
    #[error("cannot listen at {address}: {source}; port 0 finds a free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No thread, no timer, or no descriptor to be had.
    #[error("cannot start the store: {source}; raise the limits of processes and files (ulimit)")]
    System {
        /// What the system said.
        source: io::Error,
    },
}
