//! What a store has, by name.

use std::sync::Arc;
use std::time::SystemTime;

use super::BackendError;

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file, and what is known of it.
    File(FileInfo),
    /// A file of which the store has not been asked: only listings [say so](super::Backend::lists_all_of_files).
    Unasked,
    /// Something that files are below.
    Folder,
    /// A link, which [`read_link`](super::Backend::read_link) says more of: of stores that show links.
    Link(FileInfo),
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
    /// The next entries, in no particular order, and waits for them; none at the end. A name comes once: what is a file and a
    /// folder by one name is a folder, here as for [`find`](super::Backend::find).
    ///
    /// # Errors
    /// What the store says. The listing has ended then.
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError>;

    /// What the folder has so far that the listing does not tell, since no path can name it.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }
}

/// What no path can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// How many there are; what begins alike up to a slash counts once.
    pub count: u64,
    /// The first of them, as the store has it.
    pub example: Option<String>,
}

impl LeftOut {
    /// One more.
    pub fn add(&mut self, key: String) {
        self.count += 1;
        self.example.get_or_insert(key);
    }
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
