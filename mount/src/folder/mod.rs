//! A folder that can be written through its mount: [`file_system`] is what the kernel asks, [`tree`] names and attributes, [`nodes`] the
//! inodes, [`content`] the bytes of files and what is cached of them. `docs/mount.md` says why it is as it is.

mod content;
mod file_system;
mod nodes;
mod tree;

pub(crate) use file_system::FileSystem;
pub(crate) use tree::{Directory, OpenContent, Tree};
