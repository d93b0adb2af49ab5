//! Storage as slow as wanted, for experiments and tests: an emulated disk array, and a slow object store ([`store`]).
//!
//! The array is a real folder served at the pace of modelled disks: a FUSE file system, read-only unless it is asked to
//! take writes. Every uncached read,
//! and the first lookup of every inode, takes as long as the device models of `foretell-sim` say, times a scale. The
//! kernel, its page cache, its read-ahead and the program are real; only the service time is modelled. Mounting again
//! gives a cold cache without root.
//!
//! A read of the array passes these modules:
//!
//! * `file_system` takes it from the kernel, asks the layout where the bytes lie, and splits that into requests to
//!   disks.
//! * `striped` says it instead, if each file is striped by itself.
//! * `model` queues the requests, and knows in the array's own time when each disk completes which.
//! * `scheduler` keeps the array's time in step with real time and passes on completed reads.
//! * `pool` reads the bytes from the folder (`tree`) and answers the kernel.
//! * `writing` makes changes in the folder first, and then has the disks write.
//! * `mount` starts all of that and takes it down.
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
mod striped;
mod tree;
mod writing;

pub use error::ArrayError;
pub use foretell_mount::{Ending, MountError};
pub use mount::{Array, ArrayHandle, unmount_path};
pub use options::{ArrayOptions, LayoutKind, Places, Striped};
pub use report::{DiskReport, Report};
pub use status::{Status, status_of};
