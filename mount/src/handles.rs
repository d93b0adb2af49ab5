//! What is open, and whose it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use foretell_cache::backend::Entry;

use crate::folder::{Directory, OpenContent};
use crate::hints::{OpenControl, OpenFile};
use crate::objects::Names;

/// What the kernel has open.
pub(crate) enum Handle {
    File(OpenFile),
    Folder(Mutex<OpenFolder>),
    /// A file that is made when it is opened.
    Text(Vec<u8>),
    Control(Arc<OpenControl>),
    /// Of a folder that can be written.
    Content(OpenContent),
    Directory(Directory),
}

impl Handle {
    /// The file, if it is one that hints can be for.
    pub(crate) fn open_file(&self) -> Option<&OpenFile> {
        match self {
            Handle::File(open) => Some(open),
            Handle::Content(content) => content.open.as_ref(),
            _ => None,
        }
    }
}

/// A folder that is being listed: the entries that the store told last.
///
/// Entry k of the folder is followed by position k + 3; the first two positions are for `.` and `..`.
#[derive(Default)]
pub(crate) struct OpenFolder {
    pub(crate) names: Option<Names>,
    pub(crate) entries: Vec<Entry>,
    /// The index of the first of `entries` in the folder.
    pub(crate) first: u64,
}

/// What is open, by the number that the kernel has of it.
#[derive(Default)]
pub(crate) struct Handles {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<Handle>>>,
}

impl Handles {
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) {
        let handle = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
        // Lookups of its hints may be under way, and hold it.
        if let Some(Handle::Control(control)) = handle.as_deref() {
            control.cancel();
        }
        drop(handle); // Not under the lock.
    }

    pub(crate) fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
