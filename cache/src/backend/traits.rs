//! The contract between the cache and a back end. The [module above](super) lists the duties of both.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use foretell_policy::Segment;
use rustix::fs::StatVfs;
use rustix::io::Errno;

use super::names::{FileInfo, Found, Listing};
use super::request::Request;
use crate::error::BackendError;

/// A store of files: a folder, a bucket.
pub trait Backend: Send + Sync + 'static {
    /// Opens the current version of the file at `path`. Waits for the answer.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if there is no file, and any other error of the store.
    fn open(&self, path: &str) -> Result<Opened, BackendError>;

    /// Opens the version of the file at `path` that [`find`](Backend::find) or a listing told of, without asking the
    /// store again where that is possible.
    ///
    /// # Errors
    /// As `open`. If the version is no longer there, the open may succeed and the first read fail.
    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        let _ = file;
        self.open(path)
    }

    /// Looks up what there is at `path`. Waits for the answer. The store itself, at "", is a folder.
    ///
    /// # Errors
    /// As `open`.
    fn find(&self, path: &str) -> Result<Found, BackendError> {
        if path.is_empty() {
            return Ok(Found::Folder);
        }
        let opened = self.open(path)?;
        let file = FileInfo { size_bytes: opened.size_bytes, modified: None, tag: None };
        Ok(Found::File(file))
    }

    /// Lists the folder at `path`; "" is the store itself.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if there is no folder, `ENOTSUP` if the store cannot list, and any other error of the store.
    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        let _ = path;
        Err(cannot_list())
    }

    /// The target of a link that [`find`](Backend::find) or a listing told of, as it is written in the link.
    ///
    /// # Errors
    /// [`BackendError::Changed`] if the link is another one now, and any other error of the store.
    fn read_link(&self, path: &str, link: &FileInfo) -> Result<PathBuf, BackendError> {
        let _ = (path, link);
        Err(BackendError::NotFound)
    }

    /// The size of the store and its free space; `None` if the store does not say.
    ///
    /// # Errors
    /// Any error of the store.
    fn space(&self) -> Result<Option<StatVfs>, BackendError> {
        Ok(None)
    }

    /// Whether listings tell as much of each file as [`find`](Backend::find) does. If not, they may have files that are
    /// [`Found::Unasked`].
    fn lists_all_of_files(&self) -> bool {
        true
    }

    /// A stream of a program has given up all that it has [disclosed](Object::disclosed) and not read. Must not wait.
    fn gave_up(&self, stream: u64) {
        let _ = stream;
    }

    /// Number of prefetch requests that the store can work on at once.
    fn depth(&self) -> usize;

    /// Number of prefetch requests for [near](Object::is_near) blocks, which count as another device, that it can work on at
    /// once; `None` if the back end has no near blocks.
    fn near_depth(&self) -> Option<usize> {
        None
    }
}

/// The error of a store that cannot list.
pub(super) fn cannot_list() -> BackendError {
    let message = "this store cannot tell what it has".into();
    BackendError::Other { errno: Some(Errno::NOTSUP.raw_os_error()), message }
}

/// What [`Backend::open`] found.
#[derive(Clone)]
pub struct Opened {
    /// Names this version of the file: two opens of the same version give the same bytes, two versions give different ones.
    pub version: Arc<[u8]>,
    /// Whether files of the same version have the same bytes for certain, on whichever machine and however long ago they were
    /// opened. A strong ETag is such a version. A modification time is not: a file may be rewritten within its resolution.
    pub is_exact: bool,
    /// Its size.
    pub size_bytes: u64,
    /// Reads this version.
    pub object: Arc<dyn Object>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

/// One version of a file.
pub trait Object: Send + Sync + 'static {
    /// Begins a read. The [module above](super) lists the duties.
    fn start(self: Arc<Self>, request: Request);

    /// A program has disclosed that it will read these ranges next, in this order; all of it without any. `stream` is the
    /// number of the disclosing stream, which no other one of this process has. Must not wait. Most back ends need not know.
    fn disclosed(&self, stream: u64, segments: Option<&[Segment]>) {
        let _ = (stream, segments);
    }

    /// Whether the block at `offset_bytes` is near: it will come from a faster place than the rest. This is called
    /// often and under a lock. The answer may be out of date.
    fn is_near(&self, offset_bytes: u64) -> bool {
        let _ = offset_bytes;
        false
    }
}
