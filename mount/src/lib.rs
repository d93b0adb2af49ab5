//! The managed cache as a file system: object stores and folders, mounted read-only, and folders that programs can
//! write.
//!
//! `docs/internals/mount.md` explains the design; `docs/reference/semantics.md` lists what programs may rely on. By
//! module:
//!
//! * [`point`] is a mount's life, whatever is served; `table` is the kernel's list of mounts.
//! * `mount` makes a mount from its options.
//! * `file_system` answers the kernel for a read-only mount; `objects` holds its inodes and names.
//! * `folder` does both for a folder that programs can write.
//! * `service` is what both file systems share; `handles` is what programs have open; `inodes` numbers inodes.
//! * `hints` keeps the hints of each descriptor; `programs` limits the memory of each process's hints.
//! * `pool` has the threads that wait for the store; `deadlines` fails requests that take too long.
//! * `trouble` puts errors into words; `guarded` confines a panic to the request in which it happens.

mod deadlines;
mod error;
mod file_system;
mod folder;
mod guarded;
mod handles;
mod hints;
mod inodes;
mod kind;
mod mount;
mod objects;
pub mod point;
mod pool;
mod programs;
mod service;
mod table;
mod trouble;

pub use error::MountError;
pub use folder::{Owner, act_for, can_act_for_others, timespec};
pub use kind::Kind;
pub use mount::{Contents, StoreMount, StoreMountOptions, check};
pub use point::Ending;
