//! Answers the kernel's requests, and decides which of them cost reads of the modelled disks.
//!
//! * *Data.* Each read that the page cache could not answer costs reading the blocks that hold it, up to the end of the
//!   file's last block.
//! * *Metadata*, if switched on. The first lookup of an inode costs the block of the inode, and the first listing of a
//!   folder costs one block of the folder.
//! * *Free* are the root's inode, later lookups, attributes and link targets. So is a name that does not exist, as the
//!   folder's block would be cached by then.
//!
//! Threads of the session only take requests in; `pool` and `scheduler` do the rest.
//!
//! Settings asked of the kernel:
//!
//! * `open` and `opendir` answer ENOSYS. The kernel then opens by itself, and keeps pages and listings from one open to
//!   the next.
//! * Lookups in one folder run in parallel (`PARALLEL_DIROPS`).
//! * Listings bring no inodes (no `READDIRPLUS`), which would give metadata for free.
//! * Read-ahead stays at the kernel's 128 KiB, as on most systems. One request may be up to 1 MiB.
//! * Background requests are as many as the kernel allows. Its default of 12 would hide a deep prefetch queue from the
//!   disks.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use foretell_sim::array::{DiskIndex, Striping};
use foretell_sim::device::Request as DiskRequest;
use foretell_sim::layout::Layout;
use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyXattr, Request,
};

use crate::pool::{Sender, Task};
use crate::scheduler::{Reason, Scheduler};
use crate::status;
use crate::tree::{Ino, Tree};

/// How long the kernel may keep names and attributes: a day, as the array does not change.
const KEEP: Duration = Duration::from_secs(24 * 3600);
/// The largest read, in bytes: the kernel's own limit for FUSE.
const READ_MAX_BYTES: u32 = 1 << 20;
/// The block size of the file system on the array, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// What reply threads need to carry out a task.
pub(crate) struct Service {
    pub(crate) tree: Tree,
    pub(crate) layout: Layout,
    pub(crate) striping: Striping,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) metadata: bool,
}

/// The kernel's requests, taken in.
pub(crate) struct FileSystem {
    service: Arc<Service>,
    pool: Sender,
    kernel_opens: bool,
    kernel_opens_folders: bool,
}

impl FileSystem {
    pub(crate) fn new(service: Arc<Service>, pool: Sender) -> Self {
        FileSystem { service, pool, kernel_opens: false, kernel_opens_folders: false }
    }
}

impl Service {
    /// Carries out a task as far as possible now. A task that needs a disk goes to the scheduler.
    pub(crate) fn carry_out(&self, task: Task) {
        match task {
            Task::Lookup { parent, name, reply } => self.lookup(parent, &name, reply),
            Task::Entry { attr, reply } => reply.entry(&KEEP, &attr, Generation(0)),
            Task::Attributes { ino, reply } => match self.tree.attributes(ino) {
                Ok(attr) => reply.attr(&KEEP, &attr),
                Err(error) => reply.error(errno(&error)),
            },
            Task::Data { ino, offset, len, reply } => match self.tree.read(ino, offset, len) {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(errno(&error)),
            },
            Task::List { ino, from, reply } => self.list(ino, from, reply),
            Task::Link { ino, reply } => match self.tree.link(ino) {
                Ok(target) => reply.data(&target.into_os_string().into_vec()),
                Err(error) => reply.error(errno(&error)),
            },
            Task::FileSystem { reply } => self.statfs(reply),
        }
    }

    fn lookup(&self, parent: Ino, name: &OsStr, reply: ReplyEntry) {
        match self.tree.lookup(parent, name) {
            Ok((attr, true)) if self.metadata => {
                let inode = self.striping.split(self.layout.inode(Ino::from(attr.ino).file()));
                self.scheduler.submit(Reason::Metadata, &inode, Task::Entry { attr, reply });
            }
            Ok((attr, _)) => reply.entry(&KEEP, &attr, Generation(0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn list(&self, ino: Ino, from: u64, mut reply: ReplyDirectory) {
        if self.metadata && self.tree.first_listing(ino).unwrap_or(false) {
            let block = self.blocks(ino, 0, BLOCK_BYTES);
            return self.scheduler.submit(
                Reason::Metadata,
                &block,
                Task::List { ino, from, reply },
            );
        }
        let entries = match self.tree.list(ino) {
            Ok(entries) => entries,
            Err(error) => return reply.error(errno(&error)),
        };
        for (index, entry) in entries.iter().enumerate().skip(from as usize) {
            let next = index as u64 + 1;
            if reply.add(INodeNo(entry.ino.0), next, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn read(&self, ino: Ino, offset: u64, len: u32, reply: ReplyData) {
        let size = match self.tree.size_bytes(ino) {
            Ok(size) => size,
            Err(error) => return reply.error(errno(&error)),
        };
        let end = (offset + u64::from(len)).min(size.next_multiple_of(BLOCK_BYTES));
        let blocks = self.blocks(ino, offset, end.saturating_sub(offset));
        let task = Task::Data { ino, offset, len: len as usize, reply };
        self.scheduler.submit(Reason::Data, &blocks, task);
    }

    /// The disk requests that read a piece of a file.
    fn blocks(&self, ino: Ino, offset: u64, len: u64) -> Vec<(DiskIndex, DiskRequest)> {
        self.striping.split(self.layout.extents(ino.file(), offset, len))
    }

    fn statfs(&self, reply: ReplyStatfs) {
        match self.tree.space() {
            Ok(stat) => reply.statfs(
                stat.f_blocks,
                stat.f_bfree,
                stat.f_bavail,
                stat.f_files,
                stat.f_ffree,
                stat.f_bsize as u32,
                stat.f_namemax as u32,
                stat.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The kernel replaces a setting that it refuses by the nearest possible one; none is vital.
        config.set_max_background(u16::MAX).ok();
        config.set_congestion_threshold(u16::MAX).ok();
        config.set_max_write(READ_MAX_BYTES).ok();
        for wish in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            config.add_capabilities(wish).ok();
        }
        let kernel = config.capabilities();
        self.kernel_opens = kernel.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.kernel_opens_folders = kernel.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.pool.send(Task::Lookup { parent: parent.into(), name: name.to_owned(), reply });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.pool.send(Task::Attributes { ino: ino.into(), reply });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        self.pool.send(Task::Link { ino: ino.into(), reply });
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.kernel_opens {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.service.read(ino.into(), offset, size, reply);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // After ENOSYS the kernel no longer asks.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.kernel_opens_folders {
            reply.error(Errno::ENOSYS);
        } else {
            let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
            reply.opened(FileHandle(0), keep);
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.pool.send(Task::List { ino: ino.into(), from: offset, reply });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.pool.send(Task::FileSystem { reply });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        // The folder's own extended attributes are not passed on.
        if ino != INodeNo::ROOT || name != status::ATTRIBUTE {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let status = status::encode(self.service.scheduler.report());
        match u32::try_from(status.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(&status),
            _ => reply.error(Errno::ERANGE),
        }
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}

/// The error number that a program gets.
fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}
