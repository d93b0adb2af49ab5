//! A folder that programs can write through its mount. `docs/internals/mount.md` gives the reasons.
//!
//! * [`file_system`] answers the kernel's requests.
//! * [`tree`] carries them out on the folder; [`attributes`] and [`extended`] do so for attributes.
//! * [`open`] is what programs have open; [`nodes`] holds the inodes.
//! * [`content`] keeps the cache right when a file's bytes change; [`pages`] does so for the kernel's pages.
//! * [`owner`] acts as the asking user, where root serves the mount.

mod attributes;
mod content;
mod extended;
mod file_system;
mod nodes;
mod open;
mod owner;
mod pages;
mod tree;

pub use attributes::timespec;
pub(crate) use file_system::FileSystem;
pub(crate) use open::{Directory, OpenContent};
pub use owner::{Owner, act_for, can_act_for_others};
pub(crate) use tree::Tree;
