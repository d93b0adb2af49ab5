//! Answers the kernel's requests to a folder that can be written. Threads of the [`pool`] do the work, since the folder
//! may take its time. A read calls back when its data is there.
//!
//! The kernel keeps pages while a file is unchanged (`content.rs`). It holds back no writes: each is a request. Locks
//! are kept by the kernel alone, which is right as long as all programs come through this mount.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use foretell_cache::Session;
use foretell_cache::backend::BackendError;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::AtFlags;

use super::attributes::Change;
use super::open::OpenContent;
use super::tree::{Tree, WriteWay, Written};
use crate::file_system::tell_space;
use crate::handles::Handle;
use crate::inodes::{CONTROL, OWN_FOLDER, ROOT, STATS_FILE};
use crate::pool;
use crate::service::{FOREVER, OWN_NAMES, Service, name_of_cached, text_of_cached};

/// See the [module](self).
pub(crate) struct FileSystem {
    tree: Arc<Tree>,
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn owner(request: &Request) -> (u32, u32) {
    (request.uid(), request.gid())
}

fn answer_empty(reply: ReplyEmpty, result: rustix::io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers with the size of a value if `size` is 0, else with the value if it fits.
fn answer_value(reply: ReplyXattr, size: u32, value: &[u8]) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        most if value.len() <= most => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

impl FileSystem {
    pub(crate) fn new(tree: Arc<Tree>) -> Self {
        FileSystem { tree }
    }

    /// Runs `act` on a thread of the pool.
    fn run(&self, act: impl FnOnce(&Arc<Tree>) + Send + 'static) {
        let tree = Arc::clone(&self.tree);
        self.tree.pool.run(move || act(&tree));
    }

    /// Runs `act`, which finds or makes a file, on a thread of the pool, and tells the kernel of it.
    fn tell_entry(
        &self,
        reply: ReplyEntry,
        act: impl FnOnce(&Tree) -> rustix::io::Result<FileAttr> + Send + 'static,
    ) {
        self.run(move |tree| match act(tree) {
            Ok(attributes) => reply.entry(&tree.service.ttl, &attributes, Generation(0)),
            Err(error) => reply.error(errno(error)),
        });
    }

    /// Runs `act` with an open file on a thread of the pool.
    fn with_content(
        &self,
        handle: FileHandle,
        act: impl FnOnce(&Arc<Tree>, &OpenContent) -> rustix::io::Result<()> + Send + 'static,
        reply: ReplyEmpty,
    ) {
        self.run(move |tree| match tree.service.handles.get(handle.0).as_deref() {
            Some(Handle::Content(content)) => {
                content.is_used();
                answer_empty(reply, act(tree, content));
            }
            Some(_) => reply.ok(), // There is nothing to do.
            None => reply.error(Errno::EBADF),
        });
    }
}

fn read(tree: &Arc<Tree>, number: u64, (offset, size): (u64, u32), reply: ReplyData) {
    let handle = tree.service.handles.get(number);
    if let Some(Handle::Content(content)) = handle.as_deref() {
        content.is_read(offset..offset.saturating_add(u64::from(size)));
    }
    let Some(open) = handle.as_deref().and_then(Handle::open_file) else {
        return reply.error(Errno::EBADF);
    };
    let tree = Arc::clone(tree);
    let buffer = tree.service.buffer(size as usize);
    open.file.read_buffer_then(buffer, offset, move |buffer, read| {
        match read {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) if error.cause == BackendError::Changed => {
                // The file has become shorter than the cache knew. It is read from the folder, on another thread: this
                // one may be telling the cache of the change, and hold the lock. The kernel keeps the handle until the
                // reply.
                let (tree, pool) = (Arc::clone(&tree), Arc::clone(&tree.pool));
                pool.run(move || {
                    let handle = tree.service.handles.get(number);
                    let Some(Handle::Content(content)) = handle.as_deref() else { return };
                    match tree.read_plainly(content, (offset, size as usize)) {
                        Ok(bytes) => reply.data(&bytes),
                        Err(error) => reply.error(errno(error)),
                    }
                });
            }
            Err(error) => reply.error(tree.service.troubles.of_read(&error)),
        }
        tree.service.keep(buffer);
    });
}

impl Filesystem for FileSystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // No asynchronous direct I/O: the parts of a long write would come at once, and appends would be out of order.
        Service::configure(config, InitFlags::empty());
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        match Service::find_own(parent.0, parent.0 == ROOT, name) {
            Some(Ok(own)) => return reply.entry(&FOREVER, &own, Generation(0)),
            Some(Err(error)) => return reply.error(error),
            None => {}
        }
        let name = name.to_owned();
        self.run(move |tree| match tree.lookup(parent.0, &name) {
            Ok(attributes) => reply.entry(&tree.service.ttl, &attributes, Generation(0)),
            Err(rustix::io::Errno::NOENT) => {
                // The kernel may remember that there is no such name.
                let own = Service::own_attributes(CONTROL)
                    .expect("invariant: the control file has attributes");
                let none = FileAttr { ino: INodeNo(0), ..own };
                reply.entry(&tree.service.ttl, &none, Generation(0));
            }
            Err(error) => reply.error(errno(error)),
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, lookups: u64) {
        let forgotten = self.tree.nodes.forget(ino.0, lookups);
        if let Some(forgotten) = forgotten.filter(|node| node.is_removed()) {
            self.run(move |_| drop(forgotten)); // The folder frees the file's bytes, which may take a while.
        }
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        if let Some(own) = Service::own_attributes(ino.0) {
            return reply.attr(&FOREVER, &own);
        }
        self.run(move |tree| match tree.attributes(ino.0) {
            Ok(attributes) => reply.attr(&tree.service.ttl, &attributes),
            Err(error) => reply.error(errno(error)),
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
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if Service::own_attributes(ino.0).is_some() {
            return reply.error(Errno::EPERM);
        }
        let change = Change { mode, uid, gid, size, accessed, modified };
        let asker = owner(req);
        self.run(move |tree| {
            let handle = fh.and_then(|fh| tree.service.handles.get(fh.0));
            let content = match handle.as_deref() {
                Some(Handle::Content(content)) => {
                    content.is_used();
                    Some(content)
                }
                _ => None,
            };
            match tree.change(ino.0, (&change, asker), content) {
                Ok(attributes) => reply.attr(&tree.service.ttl, &attributes),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        self.run(move |tree| match tree.read_link(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (name, owner) = (name.to_owned(), owner(req));
        self.tell_entry(reply, move |tree| {
            tree.make_node((parent.0, &name), (mode, device), owner)
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
        let (name, owner) = (name.to_owned(), owner(req));
        self.tell_entry(reply, move |tree| tree.make_folder((parent.0, &name), mode, owner));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target, owner) = (name.to_owned(), target.to_owned(), owner(req));
        self.tell_entry(reply, move |tree| tree.make_link((parent.0, &name), &target, owner));
    }

    fn link(&self, req: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if Service::own_attributes(ino.0).is_some() {
            return reply.error(Errno::EPERM);
        }
        let (name, asker) = (name.to_owned(), owner(req));
        self.tell_entry(reply, move |tree| tree.link(ino.0, (parent.0, &name), asker));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, asker) = (name.to_owned(), owner(req));
        self.run(move |tree| {
            answer_empty(reply, tree.remove((parent.0, &name), AtFlags::empty(), asker));
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, asker) = (name.to_owned(), owner(req));
        self.run(move |tree| {
            answer_empty(reply, tree.remove((parent.0, &name), AtFlags::REMOVEDIR, asker));
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
        let (name, newname) = (name.to_owned(), newname.to_owned());
        let how = (rustix::fs::RenameFlags::from_bits_retain(flags.bits()), owner(req));
        self.run(move |tree| {
            let renamed = tree.rename((parent.0, &name), (newparent.0, &newname), how);
            answer_empty(reply, renamed);
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let thread = req.pid();
        if pool::is_own(thread) {
            return reply.error(Errno::ELOOP);
        }
        if matches!(ino.0, STATS_FILE | CONTROL) {
            // Works even if all threads of the pool wait.
            let service = &self.tree.service;
            return match service.open_own(ino.0, thread, self.tree.nodes.known()) {
                Some(own) => {
                    let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
                    reply.opened(FileHandle(service.handles.add(own)), direct);
                }
                None => reply.error(Errno::ENOENT),
            };
        }
        self.run(move |tree| match tree.open(ino.0, flags.0, thread) {
            Ok(content) => {
                let mut flags = FopenFlags::empty();
                flags.set(FopenFlags::FOPEN_KEEP_CACHE, content.keeps_pages());
                flags.set(FopenFlags::FOPEN_NOFLUSH, !content.is_writable());
                let handle = tree.service.handles.add(Handle::Content(content));
                reply.opened(FileHandle(handle), flags);
            }
            Err(error) => reply.error(errno(error)),
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
        let (name, who) = (name.to_owned(), (owner(req), req.pid()));
        self.run(move |tree| match tree.create((parent.0, &name), (mode, flags), who) {
            Ok((attributes, content)) => {
                let mut flags = FopenFlags::empty();
                flags.set(FopenFlags::FOPEN_KEEP_CACHE, content.keeps_pages());
                let handle = FileHandle(tree.service.handles.add(Handle::Content(content)));
                let ttl = &tree.service.ttl;
                reply.created(ttl, &attributes, Generation(0), handle, flags);
            }
            Err(error) => reply.error(errno(error)),
        });
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.tree.service.handles.get(fh.0).as_deref() {
            Some(Handle::Text(text)) => {
                let from = text.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                reply.data(&text[from..text.len().min(from + size as usize)]);
            }
            Some(Handle::Control(_)) => reply.data(&[]),
            _ => read(&self.tree, fh.0, (offset, size), reply),
        }
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut bytes = self.tree.service.buffer(data.len());
        bytes.copy_from_slice(data);
        // A write from a mapping has its offset, whichever descriptor the kernel picked for it.
        let way = if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            WriteWay::Mapped
        } else if flags.0 & libc::O_APPEND != 0 {
            WriteWay::AtEnd
        } else {
            WriteWay::InPlace
        };
        let how = (way, owner(req));
        let handle = self.tree.service.handles.get(fh.0);
        let Some(Handle::Content(content)) = handle.as_deref() else {
            return reply.error(Errno::EBADF);
        };
        content.is_used();
        let (tree, writers) = (Arc::clone(&self.tree), Arc::clone(content.writers()));
        self.tree.pool.run_in(&writers, move || {
            match tree.service.handles.get(fh.0).as_deref() {
                Some(Handle::Content(content)) => {
                    match tree.write(content, (&bytes, offset), how) {
                        Ok(Written { count, old_pages: None }) => reply.written(count as u32),
                        Ok(Written { count, old_pages: Some(pages) }) => {
                            let (tree, pool) = (Arc::clone(&tree), Arc::clone(&tree.pool));
                            pool.run(move || {
                                let handle = tree.service.handles.get(fh.0);
                                let answer = || reply.written(count as u32);
                                match handle.as_deref() {
                                    Some(Handle::Content(content)) => {
                                        tree.drop_pages(content, &pages, answer);
                                    }
                                    _ => answer(),
                                }
                            });
                        }
                        Err(error) => reply.error(errno(error)),
                    }
                }
                _ => reply.error(Errno::EBADF),
            }
            tree.service.keep(bytes);
        });
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let how = (mode, owner(req));
        let allocate = move |tree: &Arc<Tree>, content: &OpenContent| {
            tree.allocate(content, (offset, length), how)
        };
        self.with_content(fh, allocate, reply);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.with_content(fh, |tree, content| tree.flush(content), reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        is_data: bool,
        reply: ReplyEmpty,
    ) {
        self.with_content(fh, move |tree, content| tree.sync(content, is_data), reply);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(Handle::Content(content)) = self.tree.service.handles.get(fh.0).as_deref() {
            content.is_used();
        }
        self.tree.service.handles.remove(fh.0);
        reply.ok();
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        if ino.0 == OWN_FOLDER {
            let handle = self.tree.service.handles.add(Handle::Text(Vec::new()));
            return reply.opened(FileHandle(handle), FopenFlags::empty());
        }
        self.run(move |tree| match tree.open_folder(ino.0) {
            Ok(directory) => {
                let handle = tree.service.handles.add(Handle::Directory(directory));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(errno(error)),
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino.0 == OWN_FOLDER {
            for (position, (name, number)) in (1..).zip(OWN_NAMES).skip(offset as usize) {
                if reply.add(INodeNo(number), position, FileType::RegularFile, name) {
                    break;
                }
            }
            return reply.ok();
        }
        self.run(move |tree| {
            let handle = tree.service.handles.get(fh.0);
            let Some(Handle::Directory(directory)) = handle.as_deref() else {
                return reply.error(Errno::EBADF);
            };
            let listed = tree.list(directory, offset, |number, next, kind, name| {
                reply.add(INodeNo(number), next, kind, name)
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.tree.service.handles.remove(fh.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _is_data: bool,
        reply: ReplyEmpty,
    ) {
        self.run(move |tree| match tree.service.handles.get(fh.0).as_deref() {
            Some(Handle::Directory(directory)) => answer_empty(reply, tree.sync_folder(directory)),
            _ => reply.ok(),
        });
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        self.run(move |tree| match tree.statistics() {
            Ok(of) => tell_space(reply, &of),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if Service::own_attributes(ino.0).is_some() {
            return reply.error(Errno::ENODATA);
        }
        let name = name.to_owned();
        self.run(move |tree| {
            let value = match name_of_cached(&name) {
                Some(cached) => tree
                    .cached(ino.0)
                    .map(|file| text_of_cached(cached, &file).unwrap_or_default().into_bytes()),
                None => tree.attribute(ino.0, &name),
            };
            match value {
                Ok(value) => answer_value(reply, size, &value),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if Service::own_attributes(ino.0).is_some() {
            return reply.error(Errno::EPERM);
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        self.run(move |tree| {
            answer_empty(reply, tree.set_attribute(ino.0, (&name, &value), flags));
        });
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if Service::own_attributes(ino.0).is_some() {
            return answer_value(reply, size, &[]);
        }
        self.run(move |tree| match tree.list_attributes(ino.0) {
            Ok(names) => answer_value(reply, size, &names),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if Service::own_attributes(ino.0).is_some() {
            return reply.error(Errno::EPERM);
        }
        let name = name.to_owned();
        self.run(move |tree| answer_empty(reply, tree.remove_attribute(ino.0, &name)));
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        bytes: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let Some(handle) = self.tree.service.handles.get(fh.0) else {
            return reply.error(Errno::ENOTTY);
        };
        if let Handle::Content(content) = &*handle {
            content.is_used();
        }
        let tree = Arc::clone(&self.tree);
        let open_path = move |path: &str, session: &Session| tree.open_path(path, session);
        match self.tree.service.ioctl(&handle, (command, bytes), &self.tree.pool, open_path) {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(error),
        }
    }
}
