//! What a store has, by name.

use std::sync::Arc;
use std::time::SystemTime;

use super::BackendError;

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file, and what is known of it.
    File(FileInfo),
    /// Something that files are below.
    Folder,
}

/// What a store tells of a file that it has not been asked to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its size.
    pub size_bytes: u64,
    /// When it was made or changed last, if the store says so.
    pub modified: Option<SystemTime>,
    /// What the store itself calls this version, if it does (an ETag).
    pub tag: Option<Arc<str>>,
}

/// One of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the folder.
    pub name: String,
    /// What it is.
    pub found: Found,
}

/// A folder's entries, some at a time: as many as the store tells at once.
pub trait Listing: Send {
    /// The next entries, in no particular order, and waits for them; none at the end. A name may come twice, as a file and
    /// as a folder: the folder is what [`find`](super::Backend::find) finds then.
    ///
    /// # Errors
    /// What the store says. The listing has ended then.
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError>;
}

/// A listing that is there already.
#[derive(Debug)]
pub struct Whole(Vec<Entry>);

impl Whole {
    /// These entries.
    pub fn new(entries: Vec<Entry>) -> Self {
        Whole(entries)
    }
}

impl Listing for Whole {
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError> {
        Ok(std::mem::take(&mut self.0))
    }
}
