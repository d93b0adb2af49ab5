//! The files and folders that programs have open, by the numbers that the kernel uses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use foretell_cache::backend::Entry;

use crate::folder::{Directory, OpenContent};
use crate::hints::{OpenControl, OpenFile};
use crate::objects::Names;

/// An open file or folder.
pub(crate) enum Handle {
    File(OpenFile),
    Folder(Mutex<OpenFolder>),
    /// A file whose text is made at the open.
    Text(Vec<u8>),
    Control(Arc<OpenControl>),
    /// A file of a writable folder.
    Content(OpenContent),
    Directory(Directory),
}

impl Handle {
    /// The file, if hints can be about it.
    pub(crate) fn open_file(&self) -> Option<&OpenFile> {
        match self {
            Handle::File(open) => Some(open),
            Handle::Content(content) => content.open.as_ref(),
            _ => None,
        }
    }
}

/// A folder that is being listed: the last page of entries that the store gave.
///
/// Positions 1 and 2 follow `.` and `..`; position k + 3 follows entry k.
#[derive(Default)]
pub(crate) struct OpenFolder {
    pub(crate) names: Option<Names>,
    pub(crate) entries: Vec<Entry>,
    /// The index in the folder of the first of `entries`.
    pub(crate) first: u64,
}

/// All open handles, by number.
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
        // Lookups of its hints may be running, and hold it.
        if let Some(Handle::Control(control)) = handle.as_deref() {
            control.cancel();
        }
        drop(handle); // Not while the lock is held.
    }

    pub(crate) fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
