//! The managed cache as a file system: object stores, mounted read-only, and folders that can be written.
//!
//! How it works is in `docs/internals/mount.md`, what programs may rely on in `docs/reference/semantics.md`. By module: [`point`] is a mount's
//! life, whatever is served; `table` the system's list of mounts; `mount` puts a store there; `file_system` is what the kernel
//! asks, `objects` the names; `folder` is both for a folder that can be written; `service` what they have in common, `handles` what
//! is open and hinted, `pool` who waits for the store, `trouble` what people are told, `guarded` what a panic costs.

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
pub use kind::Kind;
pub use mount::{Contents, KIND, StoreMount, StoreMountOptions, check};
pub use point::Ending;
