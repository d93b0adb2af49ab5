//! A folder that can be written through its mount: [`file_system`] is what the kernel asks, [`tree`] what is done to names, [`attributes`] and [`extended`] what is
//! said of files, [`nodes`] the inodes, [`owner`] whose what is made is, [`content`] the bytes of files and what is cached of them, [`pages`] what the kernel has of them. `docs/internals/mount.md` says why it is as it is.

mod attributes;
mod content;
mod extended;
mod file_system;
mod nodes;
mod open;
mod owner;
mod pages;
mod tree;

pub(crate) use file_system::FileSystem;
pub(crate) use open::{Directory, OpenContent};
pub(crate) use owner::can_act_for_others;
pub(crate) use tree::Tree;
