//! What changes cost: each is made in the backing folder, then written by the disks, then acknowledged.
//!
//! * *Data.* A write costs the whole blocks that it touches. They are neither read before nor kept in a cache of the
//!   drive, as on a disk without a write cache.
//! * *Metadata*, if switched on. A new file costs its inode's block and its folder's. A removed or renamed one costs the
//!   block of each folder. A change of attributes, as of a file's length, costs the inode's block. What a write itself
//!   changes of them is free.
//! * *Free* are opening, closing and fsync. That waits for the backing folder's disk, whose time is not modelled.
//!
//! A change that fails costs nothing.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foretell_mount::{Owner, can_act_for_others, point};
use foretell_sim::array::DiskIndex;
use foretell_sim::device::Request as DiskRequest;
use fuser::{FileHandle, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyWrite};
use rustix::fs::AtFlags;

use crate::file_system::{BLOCK_BYTES, Service, answer_entry, answer_list, errno};
use crate::pool::Task;
use crate::scheduler::Reason;
use crate::tree::{Entry, Found, Ino};

type Listing = Arc<Vec<Entry>>;

/// The listings of open folders. Each stays as it is until its program goes back to the beginning.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    last: AtomicU64,
    open: Mutex<HashMap<u64, Option<Listing>>>,
}

impl Listings {
    pub(crate) fn open(&self) -> FileHandle {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.all().insert(handle, None);
        FileHandle(handle)
    }

    pub(crate) fn close(&self, handle: FileHandle) {
        self.all().remove(&handle.0);
    }

    fn get(&self, handle: FileHandle) -> Option<Listing> {
        self.all().get(&handle.0).cloned().flatten()
    }

    fn set(&self, handle: FileHandle, listing: &Listing) {
        if let Some(kept) = self.all().get_mut(&handle.0) {
            *kept = Some(Arc::clone(listing));
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Option<Listing>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this process serves other users, and can make changes in their names.
pub(crate) fn acts_for_others() -> bool {
    point::is_root() && can_act_for_others()
}

/// Gives the answer to a change that has no other result.
pub(crate) fn answer(reply: ReplyEmpty, done: io::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Gives the answer to a change that makes a name.
pub(crate) fn answer_made(reply: ReplyEntry, made: io::Result<Found>) {
    match made {
        Ok(found) => answer_entry(reply, &found),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Service {
    /// Writes `(offset, bytes)`. `syncs`: the handle for which the backing folder's disk must have them.
    pub(crate) fn write(
        &self,
        ino: Ino,
        (offset, bytes): (u64, &[u8]),
        syncs: Option<FileHandle>,
        reply: ReplyWrite,
    ) {
        let count = match self.tree.write(ino, offset, bytes, syncs) {
            Ok(count) => count,
            Err(error) => return reply.error(errno(&error)),
        };
        let from = offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = (offset + count as u64).next_multiple_of(BLOCK_BYTES);
        let blocks = self.blocks(ino, from, end - from);
        let answer = move |_: &Service| reply.written(count as u32);
        self.scheduler.submit(Reason::WriteData, &blocks, Task::Do(Box::new(answer)));
    }

    /// A change of metadata was made: has the disks write these blocks, and then answers.
    pub(crate) fn changed<T: Send + 'static>(
        &self,
        result: io::Result<T>,
        blocks: &[Vec<(DiskIndex, DiskRequest)>],
        answer: impl FnOnce(io::Result<T>) + Send + 'static,
    ) {
        if !self.metadata || result.is_err() {
            return answer(result);
        }
        let answer = move |_: &Service| answer(result);
        let task = Task::Do(Box::new(answer));
        self.scheduler.submit(Reason::WriteMetadata, &blocks.concat(), task);
    }

    /// A name of this inode was made in a folder.
    pub(crate) fn made<T: Send + 'static>(
        &self,
        (folder, ino): (Ino, Option<Ino>),
        made: io::Result<T>,
        answer: impl FnOnce(io::Result<T>) + Send + 'static,
    ) {
        let mut blocks = vec![self.blocks(folder, 0, BLOCK_BYTES)];
        blocks.extend(ino.map(|ino| self.inode(ino)));
        self.changed(made, &blocks, answer);
    }

    /// Removes a name.
    pub(crate) fn remove(
        &self,
        (folder, name): (Ino, &OsStr),
        flags: AtFlags,
        asker: Option<Owner>,
        reply: ReplyEmpty,
    ) {
        let removed = self.tree.remove((folder, name), flags, asker);
        let blocks = [self.blocks(folder, 0, BLOCK_BYTES)];
        self.changed(removed, &blocks, move |removed| answer(reply, removed));
    }

    /// Lists an open folder from an entry on; at the beginning, as it is now.
    pub(crate) fn list_open(
        &self,
        ino: Ino,
        (handle, from): (FileHandle, u64),
        reply: ReplyDirectory,
    ) {
        if self.metadata && self.tree.first_listing(ino).unwrap_or(false) {
            let block = self.blocks(ino, 0, BLOCK_BYTES);
            let list = move |service: &Service| service.list_open(ino, (handle, from), reply);
            return self.scheduler.submit(Reason::Metadata, &block, Task::Do(Box::new(list)));
        }
        let kept = self.listings.get(handle).filter(|_| from > 0);
        let listing = match kept {
            Some(listing) => Ok(listing),
            None => self.tree.list_now(ino).map(Arc::new),
        };
        match listing {
            Ok(listing) => {
                self.listings.set(handle, &listing);
                answer_list(reply, &listing, from);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}
