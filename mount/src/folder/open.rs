//! The files and folders that programs have open. While one is open, its node keeps its descriptor.

use std::fs::File as SystemFile;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::nodes::Node;
use crate::hints::OpenFile;
use crate::pool::{Line, Pool};

/// A file that a program has open.
pub(crate) struct OpenContent {
    pub(super) node: Arc<Node>,
    /// `None` if it is open for writing only.
    pub(crate) open: Option<OpenFile>,
    pub(super) writer: Option<SystemFile>,
    /// See [`OpenedContent::dropped`](super::content::OpenedContent::dropped).
    pub(super) dropped: Option<u64>,
    /// The answer to its open is known to have arrived in the kernel.
    pub(super) is_answered: AtomicBool,
    pub(super) pool: Arc<Pool>,
}

impl OpenContent {
    /// Whether the kernel keeps its pages at this open.
    pub(crate) fn keeps_pages(&self) -> bool {
        self.dropped.is_none()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writer.is_some()
    }

    /// The kernel made a request with this handle, so the answer to its open has arrived.
    pub(crate) fn is_used(&self) {
        if let Some(number) = self.dropped
            && !self.is_answered.load(Ordering::SeqCst)
            && !self.is_answered.swap(true, Ordering::SeqCst)
        {
            self.node.pages.dropped(number);
        }
    }

    /// The kernel asks for these bytes, and has no answer yet.
    pub(crate) fn is_read(&self, bytes: Range<u64>) {
        self.is_used();
        self.node.pages.reading(bytes);
    }

    /// The line in which writes to the file wait.
    pub(crate) fn writers(&self) -> &Arc<Line> {
        &self.node.writers
    }
}

impl Drop for OpenContent {
    /// A thread of the pool drops what may have to wait for a writer of the file or for the folder. The current thread must not
    /// wait: it may be one that takes in the kernel's requests, or one that has the file's content locked.
    fn drop(&mut self) {
        if self.dropped.is_some() && !self.is_answered.load(Ordering::SeqCst) {
            self.node.pages.not_dropped(); // Otherwise the kernel would have sent a release.
        }
        let (open, writer) = (self.open.take(), self.writer.take());
        let node = Arc::clone(&self.node);
        if writer.is_some() {
            node.pages.writer_goes();
        }
        self.pool.run(move || {
            drop(writer);
            if open.is_some() {
                node.content().close();
            }
            drop(open);
            node.handles.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// A folder that a program has open to list it.
pub(crate) struct Directory {
    pub(super) node: Arc<Node>,
    pub(super) listing: Mutex<Listing>,
}

/// The position of the descriptor, which the lock protects.
pub(super) struct Listing {
    pub(super) descriptor: OwnedFd,
    /// With small inode numbers, positions are small too: the folder's own position after its first entry, its second,
    /// and so on.
    pub(super) places: Option<Vec<u64>>,
}

impl Directory {
    pub(super) fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.node.handles.fetch_sub(1, Ordering::SeqCst);
    }
}
