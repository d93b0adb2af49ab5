//! What stores tell of names: files, folders, links, and listings of them.

use std::sync::Arc;
use std::time::SystemTime;

use crate::error::BackendError;

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file, and what is known of it.
    File(FileInfo),
    /// A file about which the store has not been asked; only in [some listings](super::Backend::lists_all_of_files).
    Unasked,
    /// A folder.
    Folder,
    /// A link, from a store that shows links; [`read_link`](super::Backend::read_link) tells its target.
    Link(FileInfo),
}

/// What a store tells of a file without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its size.
    pub size_bytes: u64,
    /// When it was last modified, if the store tells.
    pub modified: Option<SystemTime>,
    /// The store's own name of this version (an ETag), if it has one.
    pub tag: Option<Arc<str>>,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the folder.
    pub name: String,
    /// What it is.
    pub found: Found,
}

/// The entries of a folder, as many at a time as the store tells at once.
pub trait Listing: Send {
    /// The next entries, in no particular order; none at the end. Waits for them. Each name comes once. A name that is
    /// both a file and a folder comes as a folder, as in [`find`](super::Backend::find).
    ///
    /// # Errors
    /// Any error of the store. It ends the listing.
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError>;

    /// Keys met so far that the listing leaves out, since no path can name them.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }
}

/// Keys that no path can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The number of these keys. Keys with a common beginning up to a slash count once.
    pub count: u64,
    /// The first of these keys.
    pub example: Option<String>,
}

impl LeftOut {
    /// Counts one more.
    pub fn add(&mut self, key: String) {
        self.count += 1;
        self.example.get_or_insert(key);
    }
}

/// A listing whose entries are all in memory.
#[derive(Debug)]
pub struct Whole(Vec<Entry>);

impl Whole {
    /// A listing of these entries.
    pub fn new(entries: Vec<Entry>) -> Self {
        Whole(entries)
    }
}

impl Listing for Whole {
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError> {
        Ok(std::mem::take(&mut self.0))
    }
}
