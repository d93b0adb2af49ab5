//! Answers the kernel's requests to a read-only mount. `docs/internals/mount.md` gives the reasons.
//!
//! * Requests that memory can answer are answered by the thread that takes them in.
//! * Lookups, opens and listings go to the [`pool`], as the store may take its time.
//! * A read calls back when its data is there; no thread waits for it.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foretell_cache::Session;
use foretell_cache::backend::{Entry, Found};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request,
};
use rustix::fs::StatVfs;

use crate::deadlines::{Answer, Deadlines};
use crate::handles::{Handle, OpenFolder};
use crate::hints::OpenFile;
use crate::inodes::{CONTROL, OWN_FOLDER, ROOT, STATS_FILE};
use crate::objects::{NAME_MAX_BYTES, Objects};
use crate::pool::{self, Pool};
use crate::service::{
    ATTRIBUTE_PREFIX, FOREVER, OWN_NAME, OWN_NAMES, Service, name_of_cached, text_of_cached,
};

/// How long the kernel may believe that a name does not exist, at most: programs wait for files to appear. Less if
/// `ttl` is less.
const NOTHING_TTL: Duration = Duration::from_secs(1);

/// The size that is reported for a store that does not know its own: 1 PiB, all of it free. Programs that look for
/// space, or divide by it, find some. The unit makes the numbers fit into 32 bits.
const SPACE_UNIT_BYTES: u32 = 1 << 20;
const SPACE_UNITS: u64 = 1 << 30;

/// See the [module](self).
pub(crate) struct FileSystem {
    store: Arc<ReadOnly>,
    pool: Pool,
    deadlines: Deadlines,
}

/// The store and its inodes.
pub(crate) struct ReadOnly {
    pub(crate) service: Arc<Service>,
    pub(crate) objects: Objects,
}

impl ReadOnly {
    fn read(
        self: &Arc<Self>,
        open: &OpenFile,
        (offset, length): (u64, u32),
        reply: Answer<ReplyData>,
    ) {
        let service = Arc::clone(&self.service);
        let buffer = service.buffer(length as usize);
        open.file.read_buffer_then(buffer, offset, move |buffer, read| {
            match read {
                Ok(count) => reply.give(|reply| reply.data(&buffer[..count])),
                Err(error) => reply.error(service.troubles.of_read(&error)),
            }
            service.keep(buffer);
        });
    }

    fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        match Service::own_attributes(number) {
            Some(own) => Ok(own),
            None => self.objects.attributes(number),
        }
    }

    fn root(&self) -> FileAttr {
        self.objects.attributes(ROOT).expect("invariant: the root is always known")
    }

    /// Passes the entries of a folder from a position on to `add`, until `add` returns that the answer is full.
    fn tell_entries(
        &self,
        number_of_folder: u64,
        folder: &Mutex<OpenFolder>,
        from: u64,
        mut add: impl FnMut(u64, Told) -> bool,
    ) -> Result<(), Errno> {
        let mut is_told = false;
        for (position, name) in [(0, "."), (1, "..")] {
            if from <= position && add(position + 1, Told::Dots(name)) {
                return Ok(());
            }
            is_told |= from <= position;
        }
        if number_of_folder == OWN_FOLDER {
            for (position, (name, number)) in (2..).zip(OWN_NAMES) {
                if from <= position && add(position + 1, Told::Own(name, number)) {
                    return Ok(());
                }
            }
            return Ok(());
        }
        let mut folder = folder.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = from.saturating_sub(2);
        if index < folder.first {
            *folder = OpenFolder::default(); // A program has gone back.
        }
        loop {
            let known = folder.first + folder.entries.len() as u64;
            if index < known {
                let entry = &folder.entries[(index - folder.first) as usize];
                // The mount's own `.foretell` hides one of the store.
                let is_hidden = number_of_folder == ROOT && entry.name == OWN_NAME;
                if !is_hidden && add(index + 3, Told::Entry(entry)) {
                    return Ok(());
                }
                is_told |= !is_hidden;
                index += 1;
                continue;
            }
            match self.next_entries(number_of_folder, &mut folder) {
                Ok(entries) if entries.is_empty() => return Ok(()),
                Ok(entries) => (folder.first, folder.entries) = (known, entries),
                Err(error) => {
                    // The next request lists the folder anew. Entries that were already added are answered before the
                    // error.
                    *folder = OpenFolder::default();
                    return if is_told { Ok(()) } else { Err(error) };
                }
            }
        }
    }

    /// Opens a file for a thread of a program. May wait for the store, if that is a folder.
    fn open(&self, number: u64, thread: u32) -> Result<(Handle, FopenFlags), Errno> {
        if let Some(own) = self.service.open_own(number, thread, self.objects.known()) {
            return Ok((own, FopenFlags::FOPEN_DIRECT_IO));
        }
        let program = self.service.processes.program(thread);
        let file = self.objects.open(number, &program.session)?;
        // The kernel's pages of this inode are of the same version.
        Ok((Handle::File(OpenFile::new(file, program)), FopenFlags::FOPEN_KEEP_CACHE))
    }

    fn next_entries(&self, number: u64, folder: &mut OpenFolder) -> Result<Vec<Entry>, Errno> {
        if folder.names.is_none() {
            folder.names = Some(self.objects.list(number)?);
        }
        self.objects.next_entries(folder.names.as_mut().expect("invariant: it was just set"))
    }

    /// The value of an extended attribute that says what is cached.
    fn extended_attribute(&self, number: u64, name: &OsStr, thread: u32) -> Result<String, Errno> {
        let name = name_of_cached(name).ok_or(Errno::ENODATA)?;
        let program = self.service.processes.program(thread);
        let file =
            self.objects.open(number, &program.session).map_err(|error| match error.code() {
                libc::ESTALE => error, // The kernel looks the name up anew.
                _ => Errno::ENODATA,
            })?;
        text_of_cached(name, &file).ok_or(Errno::ENODATA)
    }
}

/// Answers `statfs` with the numbers of a folder's own file system.
pub(crate) fn tell_space(reply: ReplyStatfs, of: &StatVfs) {
    let (block_bytes, unit_bytes) = (of.f_bsize as u32, of.f_frsize as u32);
    let (name_max, files, files_free) = (of.f_namemax as u32, of.f_files, of.f_ffree);
    let (total, free, available) = (of.f_blocks, of.f_bfree, of.f_bavail);
    reply.statfs(total, free, available, files, files_free, block_bytes, name_max, unit_bytes);
}

/// An entry to be listed.
enum Told<'a> {
    Dots(&'a str),
    Own(&'a str, u64),
    Entry(&'a Entry),
}

impl FileSystem {
    pub(crate) fn new(store: Arc<ReadOnly>, timeout: Option<Duration>) -> Self {
        let deadlines = Deadlines::new(timeout, &store.service.troubles);
        FileSystem { store, pool: Pool::default(), deadlines }
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Where listings do not tell all, READDIRPLUS would cost a request for each file.
        let names = match self.store.objects.lists_all_of_files() {
            true => InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            false => InitFlags::empty(),
        };
        Service::configure(config, names | InitFlags::FUSE_ASYNC_DIO);
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
        let store = Arc::clone(&self.store);
        let (name, reply) = (name.to_owned(), self.deadlines.of(reply));
        self.pool.run(move || match store.objects.lookup(parent.0, &name) {
            Ok(attr) => {
                let is_told = reply.try_give(|reply| {
                    // Attributes of an inode never change, but the name may come to stand for another.
                    let ttl = &store.service.ttl;
                    reply.entry_with_ttls(&FOREVER, ttl, &attr, Generation(0));
                });
                if !is_told {
                    store.objects.forget(attr.ino.0, 1);
                }
            }
            Err(error) if error.code() == libc::ENOENT => {
                // The kernel may remember that there is no such name.
                let none = FileAttr { ino: INodeNo(0), ..store.root() };
                let ttl = store.service.ttl.min(NOTHING_TTL);
                reply.give(|reply| reply.entry(&ttl, &none, Generation(0)));
            }
            Err(error) => reply.error(error),
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, lookups: u64) {
        self.store.objects.forget(ino.0, lookups);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        match self.store.attributes(ino.0) {
            Ok(attr) => reply.attr(&FOREVER, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let (store, reply) = (Arc::clone(&self.store), self.deadlines.of(reply));
        self.pool.run(move || match store.objects.read_link(ino.0) {
            Ok(target) => {
                reply.give(|reply| reply.data(target.as_os_str().as_encoded_bytes()));
            }
            Err(error) => reply.error(error),
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        let (store, thread) = (Arc::clone(&self.store), req.pid());
        let reply = self.deadlines.of(reply);
        let answer = move || match store.open(ino.0, thread) {
            Ok((handle, flags)) => reply.give(|reply| {
                let handle = FileHandle(store.service.handles.add(handle));
                reply.opened(handle, flags | FopenFlags::FOPEN_NOFLUSH);
            }),
            Err(error) => reply.error(error),
        };
        match ino.0 {
            STATS_FILE | CONTROL => answer(), // Even if all threads of the pool wait.
            _ => self.pool.run(answer),
        }
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
        match self.store.service.handles.get(fh.0).as_deref() {
            Some(Handle::File(open)) => {
                let reply = self.deadlines.of(reply);
                self.store.read(open, (offset, size), reply);
            }
            Some(Handle::Text(text)) => {
                let from = text.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                reply.data(&text[from..text.len().min(from + size as usize)]);
            }
            Some(Handle::Control(_)) => reply.data(&[]),
            Some(Handle::Folder(_)) => reply.error(Errno::EISDIR),
            _ => reply.error(Errno::EBADF),
        }
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
        self.store.service.handles.remove(fh.0);
        reply.ok();
    }

    fn opendir(&self, req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        let handle = Handle::Folder(Mutex::default());
        reply.opened(FileHandle(self.store.service.handles.add(handle)), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let (store, reply) = (Arc::clone(&self.store), self.deadlines.of(reply));
        self.pool.run(move || {
            let handle = store.service.handles.get(fh.0);
            let Some(Handle::Folder(folder)) = handle.as_deref() else {
                return reply.error(Errno::EBADF);
            };
            let told = store.tell_entries(ino.0, folder, offset, |next, told| match told {
                Told::Dots(name) => {
                    reply.add(true, |reply| reply.add(ino, next, FileType::Directory, name))
                }
                Told::Own(name, number) => {
                    let kind = FileType::RegularFile;
                    reply.add(true, |reply| reply.add(INodeNo(number), next, kind, name))
                }
                Told::Entry(entry) => {
                    let kind = match entry.found {
                        Found::File(_) | Found::Unasked => FileType::RegularFile,
                        Found::Folder => FileType::Directory,
                        Found::Link(_) => FileType::Symlink,
                    };
                    let number = store.objects.number(ino.0, entry);
                    reply.add(true, |reply| reply.add(INodeNo(number), next, kind, &entry.name))
                }
            });
            match told {
                Ok(()) => reply.give(|reply| reply.ok()),
                Err(error) => reply.error(error),
            }
        });
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (store, reply) = (Arc::clone(&self.store), self.deadlines.of(reply));
        self.pool.run(move || {
            let handle = store.service.handles.get(fh.0);
            let Some(Handle::Folder(folder)) = handle.as_deref() else {
                return reply.error(Errno::EBADF);
            };
            let ttl = store.service.ttl;
            let mut remembered = Vec::new();
            let told = store.tell_entries(ino.0, folder, offset, |next, told| match told {
                Told::Dots(name) => {
                    // The kernel does not count these two as lookups.
                    let own = FileAttr { ino, ..store.root() };
                    let ttl = Duration::ZERO;
                    reply.add(true, |reply| reply.add(ino, next, name, &ttl, &own, Generation(0)))
                }
                Told::Own(name, number) => {
                    let own = Service::own_attributes(number)
                        .expect("invariant: its own names have attributes");
                    reply.add(true, |reply| {
                        reply.add(own.ino, next, name, &FOREVER, &own, Generation(0))
                    })
                }
                Told::Entry(entry) => {
                    let attr = store.objects.remember(ino.0, entry);
                    let name = &entry.name;
                    let is_full = reply.add(true, |reply| {
                        reply.add(attr.ino, next, name, &ttl, &attr, Generation(0))
                    });
                    match is_full {
                        true => store.objects.forget(attr.ino.0, 1), // The kernel was not told of it.
                        false => remembered.push(attr.ino.0),
                    }
                    is_full
                }
            });
            match told {
                Ok(()) => {
                    if !reply.try_give(|reply| reply.ok()) {
                        remembered.iter().for_each(|&number| store.objects.forget(number, 1));
                    }
                }
                Err(error) => reply.error(error),
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
        self.store.service.handles.remove(fh.0);
        reply.ok();
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        if pool::is_own(req.pid()) {
            return reply.error(Errno::ELOOP);
        }
        let (store, reply) = (Arc::clone(&self.store), self.deadlines.of(reply));
        self.pool.run(move || match store.objects.space() {
            Ok(Some(space)) => reply.give(|reply| tell_space(reply, &space)),
            Ok(None) => reply.give(|reply| {
                let (units, unit_bytes) = (SPACE_UNITS, SPACE_UNIT_BYTES);
                let name_max = NAME_MAX_BYTES as u32;
                reply.statfs(units, units, units, units, units, unit_bytes, name_max, unit_bytes);
            }),
            Err(error) => reply.error(error),
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !name.as_encoded_bytes().starts_with(ATTRIBUTE_PREFIX.as_bytes()) {
            return reply.error(Errno::ENODATA); // The kernel asks often, for its own attributes.
        }
        let (store, name, thread) = (Arc::clone(&self.store), name.to_owned(), req.pid());
        let reply = self.deadlines.of(reply);
        self.pool.run(move || match store.extended_attribute(ino.0, &name, thread) {
            Ok(value) => reply.give(|reply| match size as usize {
                0 => reply.size(value.len() as u32),
                most if value.len() <= most => reply.data(value.as_bytes()),
                _ => reply.error(Errno::ERANGE),
            }),
            Err(error) => reply.error(error),
        });
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, size: u32, reply: ReplyXattr) {
        // Attributes are not listed, so that programs do not copy them with the file.
        match size {
            0 => reply.size(0),
            _ => reply.data(&[]),
        }
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
        let Some(handle) = self.store.service.handles.get(fh.0) else {
            return reply.error(Errno::ENOTTY);
        };
        let store = Arc::clone(&self.store);
        let open_path =
            move |path: &str, session: &Session| store.objects.open_path(path, session).ok();
        let done = self.store.service.ioctl(&handle, (command, bytes), &self.pool, open_path);
        match done {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(error),
        }
    }
}
