//! Where disclosures come from, before they are hints to the policy.
//!
//! A source is an iterator that may wait (for standard input, for a slow folder): it runs on a thread
//! of its own and is asked for more only as the hints it gave are worked off, so a source of any
//! length costs a bounded memory.

pub mod arguments;
pub mod list;
pub mod walk;

use std::path::PathBuf;

use foretell_policy::{Extent, Order};

/// One thing that a source says will be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disclosure {
    /// Absolute path.
    pub path: PathBuf,
    /// Which part.
    pub extent: Extent,
    /// How many times over, at least 1.
    pub repeats: u32,
    /// Whether the parts are read in the order given.
    pub order: Order,
    /// How sure the source is.
    pub certainty: Certainty,
}

/// What a [`Disclosure`] claims about its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It names a file; if it does not, the hint is refused.
    File,
    /// It may be no path at all (a word of a command line); then it is dropped without a word.
    MaybeFile,
    /// As `MaybeFile`, and if it names a folder, everything in it will be read.
    MaybeTree,
}

impl Disclosure {
    /// Bytes that it takes beside itself.
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
