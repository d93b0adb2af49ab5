//! Storage that is as slow as wanted: an emulated disk array, and a slow object store ([`store`]).
//!
//! Development machines have neither a disk array nor a slow network, so foretell's experiments run
//! over these. The array is a real folder, served at the pace of modelled disks: a read-only FUSE
//! file system in which every uncached read, and the first lookup of every inode, takes as long as
//! the device models of `foretell-sim` say, times a scale. The kernel, its page cache, its read-ahead
//! and the program are all real; only the service time is modelled. Remounting gives a cold cache
//! without root.
//!
//! The way of a read of the array, by module:
//!
//! * `file_system` gets it from the kernel, asks the layout where the bytes lie and splits that
//!   into requests to disks;
//! * `model` queues these and knows, in the array's own time, when each disk has done what;
//! * `scheduler` keeps the array's time in step with the real one and passes on what is done;
//! * `pool` then reads the bytes from the folder (`tree`) and answers the kernel;
//! * `mount` brings all that to life and takes it down.
//!
//! Times in a [`Report`] are seconds of the array's clock: real seconds divided by the time scale.

mod error;
mod file_system;
mod model;
mod mount;
mod options;
mod pool;
mod report;
mod scheduler;
mod status;
pub mod store;
mod tree;

pub use error::ArrayError;
pub use foretell_mount::{Ending, MountError};
pub use mount::{Array, ArrayHandle, unmount_path};
pub use options::{ArrayOptions, LayoutKind};
pub use report::{DiskReport, Report};
pub use status::{Status, status_of};
