//! Answers the kernel's requests, and decides which of them cost reads of the modelled disks.
//!
//! * *Data.* Each read that the page cache could not answer costs reading the blocks that hold it, up to the end of the
//!   file's last block.
//! * *Metadata*, if switched on. The first lookup of an inode costs the block of the inode, and the first listing of a
//!   folder costs one block of the folder.
//! * *Writes*, on a writable array. A write costs writing the blocks that it touches, when they are in the backing
//!   folder. A change of names or attributes costs the blocks of the inodes and folders that it changes (`writing`).
//! * *Free* are the root's inode, later lookups, attributes and link targets. So is a name that does not exist, as the
//!   folder's block would be cached by then.
//!
//! Threads of the session only take requests in; `pool` and `scheduler` do the rest.
//!
//! Settings asked of the kernel:
//!
//! * `open` and `opendir` answer ENOSYS. The kernel then opens by itself, and keeps pages and listings from one open to
//!   the next. On a writable array, files and folders are opened here: a file that has no name any more must go on, and a
//!   listing must not change while it is read.
//! * No write-back cache: a write arrives before it returns to the program.
//! * Lookups in one folder run in parallel (`PARALLEL_DIROPS`).
//! * Listings bring no inodes (no `READDIRPLUS`), which would give metadata for free.
//! * Read-ahead stays at the kernel's 128 KiB, as on most systems. One request may be up to 1 MiB.
//! * Background requests are as many as the kernel allows. Its default of 12 would hide a deep prefetch queue from the
//!   disks.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use foretell_mount::Owner;
use foretell_sim::array::{DiskIndex, Striping};
use foretell_sim::device::Request as DiskRequest;
use foretell_sim::layout::Layout;
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use rustix::fs::AtFlags;

use crate::pool::{Sender, Task};
use crate::scheduler::{Reason, Scheduler};
use crate::status;
use crate::striped::StripedFiles;
use crate::tree::{Change, Entry, Found, Ino, Tree};
use crate::writing::{self, Listings};

/// How long the kernel may keep names and attributes: a day, as nothing changes but by its own requests.
pub(crate) const KEEP: Duration = Duration::from_secs(24 * 3600);
/// The largest read, in bytes: the kernel's own limit for FUSE.
const READ_MAX_BYTES: u32 = 1 << 20;
/// The block size of the file system on the array, in bytes.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// What reply threads need to carry out a task.
pub(crate) struct Service {
    pub(crate) tree: Tree,
    pub(crate) layout: Layout,
    pub(crate) striping: Striping,
    /// If set, the places of data, instead of `layout` and `striping`.
    pub(crate) striped: Option<StripedFiles>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) metadata: bool,
    /// Folders that are open on a writable array.
    pub(crate) listings: Listings,
}

/// The kernel's requests, taken in.
pub(crate) struct FileSystem {
    service: Arc<Service>,
    pool: Sender,
    is_writable: bool,
    /// Whether changes are made as the asking user.
    acts_for_others: bool,
    kernel_opens: bool,
    kernel_opens_folders: bool,
}

impl FileSystem {
    pub(crate) fn new(service: Arc<Service>, pool: Sender, is_writable: bool) -> Self {
        FileSystem {
            service,
            pool,
            is_writable,
            acts_for_others: is_writable && writing::acts_for_others(),
            kernel_opens: false,
            kernel_opens_folders: false,
        }
    }

    /// Has a reply thread do something.
    fn run(&self, act: impl FnOnce(&Service) + Send + 'static) {
        self.pool.send(Task::Do(Box::new(act)));
    }

    /// Has one of some reply threads do something that waits for the backing folder's disk.
    fn run_sync(&self, act: impl FnOnce(&Service) + Send + 'static) {
        self.pool.send_sync(Task::Do(Box::new(act)));
    }

    fn asker(&self, request: &Request) -> Option<Owner> {
        self.acts_for_others.then(|| (request.uid(), request.gid()))
    }
}

impl Service {
    /// Carries out a task as far as possible now. A task that needs a disk goes to the scheduler.
    pub(crate) fn carry_out(&self, task: Task) {
        match task {
            Task::Lookup { parent, name, reply } => self.lookup(parent, &name, reply),
            Task::Entry { found, reply } => answer_entry(reply, &found),
            Task::Do(act) => act(self),
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
            Ok(found) if self.metadata && found.is_first => {
                let inode = self.inode(Ino::from(found.attr.ino));
                self.scheduler.submit(Reason::Metadata, &inode, Task::Entry { found, reply });
            }
            Ok(found) => answer_entry(reply, &found),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn list(&self, ino: Ino, from: u64, reply: ReplyDirectory) {
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
        answer_list(reply, &entries, from);
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

    /// The disk requests for the inode of a file.
    pub(crate) fn inode(&self, ino: Ino) -> Vec<(DiskIndex, DiskRequest)> {
        self.striping.split(self.layout.inode(ino.file()))
    }

    /// The disk requests for a piece of a file.
    pub(crate) fn blocks(&self, ino: Ino, offset: u64, len: u64) -> Vec<(DiskIndex, DiskRequest)> {
        match &self.striped {
            Some(striped) => striped.requests(ino.file(), offset, len),
            None => self.striping.split(self.layout.extents(ino.file(), offset, len)),
        }
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
            // Not for writes: the parts of a long one would come at once, and a failure would leave a hole.
            match self.is_writable {
                true => InitFlags::FUSE_BIG_WRITES,
                false => InitFlags::FUSE_ASYNC_DIO,
            },
        ] {
            config.add_capabilities(wish).ok();
        }
        let kernel = config.capabilities();
        let opens = |flag| !self.is_writable && kernel.contains(flag);
        self.kernel_opens = opens(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.kernel_opens_folders = opens(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
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

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.is_writable {
            let keep = FopenFlags::FOPEN_KEEP_CACHE;
            return self.run(move |service| match service.tree.open_for(ino.into(), flags.0) {
                Ok(handle) => reply.opened(handle, keep),
                Err(error) => reply.error(errno(&error)),
            });
        }
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
        if self.is_writable {
            return reply.opened(self.service.listings.open(), FopenFlags::empty());
        }
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
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        if self.is_writable {
            return self.run(move |service| service.list_open(ino.into(), (fh, offset), reply));
        }
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

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.service.listings.close(fh);
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.run(move |service| {
            service.tree.close(ino.into(), fh);
            reply.ok();
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        if flags.0 & libc::O_DSYNC == 0 {
            return self
                .run(move |service| service.write(ino.into(), (offset, &data), None, reply));
        }
        self.run_sync(move |service| service.write(ino.into(), (offset, &data), Some(fh), reply));
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        is_data: bool,
        reply: ReplyEmpty,
    ) {
        self.run_sync(move |service| {
            writing::answer(reply, service.tree.sync(ino.into(), fh, is_data));
        });
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _is_data: bool,
        reply: ReplyEmpty,
    ) {
        self.run_sync(move |service| writing::answer(reply, service.tree.sync_folder(ino.into())));
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.run(move |service| {
            let ino = ino.into();
            let allocated = service.tree.allocate(ino, (offset, length), mode);
            service.changed(allocated, &[service.inode(ino)], move |done| {
                writing::answer(reply, done);
            });
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (asker, size_bytes) = (self.asker(req), size);
        let change = Change { mode, uid, gid, size_bytes, accessed: atime, modified: mtime };
        self.run(move |service| {
            let ino = ino.into();
            let changed = service.tree.change(ino, &change, asker);
            service.changed(changed, &[service.inode(ino)], move |changed| match changed {
                Ok(attr) => reply.attr(&KEEP, &attr),
                Err(error) => reply.error(errno(&error)),
            });
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (parent, name, asker) = (parent.into(), name.to_owned(), self.asker(req));
        self.run(move |service| {
            let made = service.tree.create((parent, &name), (mode, flags), asker);
            let ino = made.as_ref().ok().map(|(found, _)| Ino::from(found.attr.ino));
            service.made((parent, ino), made, move |made| match made {
                Ok((Found { attr, generation, .. }, handle)) => {
                    let (generation, keep) = (Generation(generation), FopenFlags::FOPEN_KEEP_CACHE);
                    reply.created(&KEEP, &attr, generation, handle, keep);
                }
                Err(error) => reply.error(errno(&error)),
            });
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (parent, name, asker) = (parent.into(), name.to_owned(), self.asker(req));
        self.run(move |service| {
            let made = service.tree.make_node((parent, &name), (mode, rdev.into()), asker);
            let ino = made.as_ref().ok().map(|found| Ino::from(found.attr.ino));
            service.made((parent, ino), made, move |made| writing::answer_made(reply, made));
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (parent, name, asker) = (parent.into(), name.to_owned(), self.asker(req));
        self.run(move |service| {
            let made = service.tree.make_folder((parent, &name), mode, asker);
            let ino = made.as_ref().ok().map(|found| Ino::from(found.attr.ino));
            service.made((parent, ino), made, move |made| writing::answer_made(reply, made));
        });
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (parent, name, asker) = (parent.into(), link_name.to_owned(), self.asker(req));
        let target = target.to_owned();
        self.run(move |service| {
            let made = service.tree.make_link((parent, &name), &target, asker);
            let ino = made.as_ref().ok().map(|found| Ino::from(found.attr.ino));
            service.made((parent, ino), made, move |made| writing::answer_made(reply, made));
        });
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (parent, name, asker) = (newparent.into(), newname.to_owned(), self.asker(req));
        self.run(move |service| {
            let linked = service.tree.add_name(ino.into(), (parent, &name), asker);
            let ino = linked.as_ref().ok().map(|found| Ino::from(found.attr.ino));
            service.made((parent, ino), linked, move |linked| writing::answer_made(reply, linked));
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name, asker) = (parent.into(), name.to_owned(), self.asker(req));
        self.run(move |service| {
            service.remove((parent, &name), AtFlags::empty(), asker, reply);
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name, asker) = (parent.into(), name.to_owned(), self.asker(req));
        self.run(move |service| {
            service.remove((parent, &name), AtFlags::REMOVEDIR, asker, reply);
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (parent, name, asker) = (parent.into(), name.to_owned(), self.asker(req));
        let (to, to_name) = (newparent.into(), newname.to_owned());
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        self.run(move |service| {
            let renamed = service.tree.rename((parent, &name), (to, &to_name), flags, asker);
            let mut folders = vec![service.blocks(parent, 0, BLOCK_BYTES)];
            if to != parent {
                folders.push(service.blocks(to, 0, BLOCK_BYTES));
            }
            service.changed(renamed, &folders, move |renamed| writing::answer(reply, renamed));
        });
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}

/// Gives the answer to a lookup.
pub(crate) fn answer_entry(reply: ReplyEntry, found: &Found) {
    reply.entry(&KEEP, &found.attr, Generation(found.generation));
}

/// Lists entries from one on, as many as fit.
pub(crate) fn answer_list(mut reply: ReplyDirectory, entries: &[Entry], from: u64) {
    for (index, entry) in entries.iter().enumerate().skip(from as usize) {
        let next = index as u64 + 1;
        if reply.add(INodeNo(entry.ino.0), next, entry.kind, &entry.name) {
            break;
        }
    }
    reply.ok();
}

/// The error number that a program gets.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}
