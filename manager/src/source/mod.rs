//! Sources of disclosures, which become hints to the policy.
//!
//! A source is an iterator that may wait for standard input or a slow folder. It runs on a thread of its own, and is asked for
//! more only as its earlier hints are worked off. So a source of any length takes bounded memory.

pub mod arguments;
pub mod list;
pub mod walk;

use std::path::PathBuf;

use foretell_policy::{Extent, Order};

/// A file, or parts of one, that a source says will be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disclosure {
    /// Absolute path.
    pub path: PathBuf,
    /// Which part of the file will be read.
    pub extent: Extent,
    /// How many times that part will be read, at least 1.
    pub repeats: u32,
    /// Whether the parts are read in the order given.
    pub order: Order,
    /// How sure the source is that the path is a file.
    pub certainty: Certainty,
}

/// What a [`Disclosure`] claims about its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The path names a file. If it does not, the hint is refused.
    File,
    /// The path may be none at all (a word of a command line). Then the hint is dropped silently.
    MaybeFile,
    /// As `MaybeFile`. If the path names a folder, all files below it will be read.
    MaybeTree,
}

impl Disclosure {
    /// Bytes that it takes on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = match &self.extent {
            Extent::Segments(segments) => size_of_val(&segments[..]),
            Extent::WholeFile | Extent::Strided { .. } => 0,
        };
        self.path.capacity() + segments
    }

    /// One sequential reading of all of `path`.
    pub fn whole_file(path: PathBuf, certainty: Certainty) -> Self {
        let (extent, order) = (Extent::WholeFile, Order::Given);
        Disclosure { path, extent, repeats: 1, order, certainty }
    }
}
