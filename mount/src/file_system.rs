//! The file system that the kernel sees. `docs/mount.md` says why it is as it is.
//!
//! What can be answered from memory is answered by the thread that takes the request in; lookups and
//! listings go to the [`pool`](crate::pool); reads call when they are done.
//!
//! `.foretell` at the root is not of the store and is not listed: `control` in it takes hints by ioctl, `stats` says what
//! the cache does.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use foretell_cache::backend::{Entry, Found};
use foretell_cache::{Cache, Order, Segment, Stats, Store};
use foretell_protocol::{Ioctl, IoctlError, IoctlHint};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request,
};
use serde::Serialize;

use crate::handles::{Handle, Handles, OpenControl, OpenFile, OpenFolder, Processes};
use crate::objects::{Objects, ROOT, number};
use crate::pool::Pool;
use crate::trouble::Troubles;

/// The folder that is not of the store, and what is in it.
const OWN_FOLDER: u64 = 2;
const CONTROL: u64 = 3;
const STATS_FILE: u64 = 4;
const OWN_NAME: &str = ".foretell";
const ATTRIBUTE_PREFIX: &str = "user.foretell.";
const OWN_NAMES: [(&str, u64); 2] = [("control", CONTROL), ("stats", STATS_FILE)];

/// How long the kernel may keep what never changes.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
/// Requests that the kernel may make without anybody waiting for each: reads of advice, mostly.
const BACKGROUND_MAX: u16 = 256;
/// The largest read, in bytes: the kernel's own limit for FUSE.
const READ_MAX_BYTES: u32 = 1 << 20;
/// Buffers that are kept for reads to come, and how large they may be: the kernel's own reads ahead.
const BUFFERS_KEPT: usize = 32;
const BUFFER_KEPT_BYTES: usize = 128 << 10;
/// The longest value of an extended attribute.
const ATTRIBUTE_MAX_BYTES: usize = 64 << 10;

/// What is mounted, and how.
pub(crate) struct Service {
    pub(crate) cache: Cache,
    pub(crate) objects: Objects,
    pub(crate) processes: Processes,
    pub(crate) troubles: Arc<Troubles>,
    pub(crate) handles: Handles,
    /// How long a name may stand for what it stood for.
    pub(crate) ttl: Duration,
    pub(crate) source: String,
    pub(crate) budget_bytes: u64,
    pub(crate) block_bytes: usize,
    pub(crate) began: Instant,
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// See the [module](self).
pub(crate) struct FileSystem {
    service: Arc<Service>,
    pool: Pool,
}

/// `.foretell/stats`.
#[derive(Serialize)]
struct Report<'a> {
    source: &'a str,
    /// The process that serves it.
    pid: u32,
    uptime_s: f64,
    budget_bytes: u64,
    block_bytes: usize,
    open_handles: usize,
    known_inodes: usize,
    #[serde(flatten)]
    cache: Stats,
    troubles: Vec<Trouble>,
}

#[derive(Serialize)]
struct Trouble {
    seconds_ago: f64,
    what: String,
}

impl Service {
    pub(crate) fn new(
        (cache, store): (Cache, Store),
        objects: Objects,
        troubles: Arc<Troubles>,
        (source, ttl): (String, Duration),
        (budget_bytes, block_bytes): (u64, usize),
    ) -> Self {
        Service {
            cache,
            objects,
            processes: Processes::new(store),
            troubles,
            handles: Handles::default(),
            ttl,
            source,
            budget_bytes,
            block_bytes,
            began: Instant::now(),
            buffers: Mutex::default(),
        }
    }

    /// What was done so far, as JSON and a line feed.
    pub(crate) fn report(&self) -> Vec<u8> {
        let troubles = self.troubles.last().into_iter();
        let report = Report {
            source: &self.source,
            pid: std::process::id(),
            uptime_s: self.began.elapsed().as_secs_f64(),
            budget_bytes: self.budget_bytes,
            block_bytes: self.block_bytes,
            open_handles: self.handles.count(),
            known_inodes: self.objects.known(),
            cache: self.cache.stats(),
            troubles: troubles.map(|(seconds_ago, what)| Trouble { seconds_ago, what }).collect(),
        };
        let mut text = serde_json::to_vec_pretty(&report).expect("invariant: all keys are strings");
        text.push(b'\n');
        text
    }

    fn buffer(&self, length: usize) -> Vec<u8> {
        let kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = kept.unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < BUFFERS_KEPT && buffer.capacity() <= BUFFER_KEPT_BYTES {
            kept.push(buffer);
        }
    }

    fn read(self: &Arc<Self>, open: &OpenFile, (offset, length): (u64, u32), reply: ReplyData) {
        let service = Arc::clone(self);
        let buffer = self.buffer(length as usize);
        open.file.read_buffer_then(buffer, offset, move |buffer, read| {
            match read {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(service.troubles.of_read(&error)),
            }
            service.keep(buffer);
        });
    }

    fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        match number {
            OWN_FOLDER => Ok(self.own(OWN_FOLDER, FileType::Directory, 0o555)),
            CONTROL => Ok(self.own(CONTROL, FileType::RegularFile, 0o444)),
            STATS_FILE => Ok(self.own(STATS_FILE, FileType::RegularFile, 0o444)),
            _ => self.objects.attributes(number),
        }
    }

    /// Attributes of what is not of the store.
    fn own(&self, number: u64, kind: FileType, perm: u16) -> FileAttr {
        let root = self.objects.attributes(ROOT).expect("invariant: the root is always known");
        let time = SystemTime::now();
        let ino = INodeNo(number);
        FileAttr { ino, kind, perm, mtime: time, ctime: time, ..root }
    }

    /// Tells the kernel entries of a folder from a position on, with `add`, which says whether there is no more room.
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
            *folder = OpenFolder::default(); // Somebody has gone back.
        }
        loop {
            let known = folder.first + folder.entries.len() as u64;
            if index < known {
                let entry = &folder.entries[(index - folder.first) as usize];
                // The root's own folder is another.
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
                    // It is listed anew by whoever goes on. What has been told is told first.
                    *folder = OpenFolder::default();
                    return if is_told { Ok(()) } else { Err(error) };
                }
            }
        }
    }

    /// Opens a file for a thread of a program; the store, if that is a folder, may take its time.
    fn open(&self, number: u64, thread: u32) -> Result<(Handle, FopenFlags), Errno> {
        if number == STATS_FILE {
            return Ok((Handle::Text(self.report()), FopenFlags::FOPEN_DIRECT_IO));
        }
        let session = self.processes.session(thread);
        if number == CONTROL {
            let control = Handle::Control(Arc::new(OpenControl::new(session)));
            return Ok((control, FopenFlags::FOPEN_DIRECT_IO));
        }
        let file = self.objects.open(number, &session)?;
        // What the kernel has of this inode is of this version.
        Ok((Handle::File(OpenFile::new(file, session)), FopenFlags::FOPEN_KEEP_CACHE))
    }

    fn next_entries(&self, number: u64, folder: &mut OpenFolder) -> Result<Vec<Entry>, Errno> {
        if folder.names.is_none() {
            folder.names = Some(self.objects.list(number)?);
        }
        self.objects.next_entries(folder.names.as_mut().expect("it was just made"))
    }

    fn hint(self: &Arc<Self>, handle: &Handle, hint: IoctlHint, pool: &Pool) -> Result<(), Errno> {
        let segment = |segment: &foretell_protocol::Segment| Segment {
            offset_bytes: segment.offset_bytes,
            length_bytes: segment.length_bytes,
        };
        let segments: Vec<Segment> = hint.segments.iter().map(segment).collect();
        let order = if hint.any_order { Order::Any } else { Order::Given };
        match handle {
            Handle::File(open) if hint.path.is_empty() => open.hint(&segments, order),
            Handle::Control(control) if !hint.path.is_empty() => {
                let path = String::from_utf8(hint.path).map_err(|_| Errno::ENOENT)?;
                let (service, control) = (Arc::clone(self), Arc::clone(control));
                let place = control.place(&segments).ok_or(Errno::EAGAIN)?;
                pool.run_later(move || {
                    if control.is_wanted(place) {
                        let file = service.objects.open_path(&path, &control.session).ok();
                        control.found(place, file, segments, order);
                    }
                });
            }
            Handle::File(_) | Handle::Control(_) => return Err(Errno::EINVAL),
            Handle::Folder(_) | Handle::Text(_) => return Err(Errno::ENOTTY),
        }
        Ok(())
    }

    /// What is said of a file in an extended attribute.
    fn extended_attribute(&self, number: u64, name: &OsStr, thread: u32) -> Result<String, Errno> {
        let name = name.to_str().and_then(|name| name.strip_prefix(ATTRIBUTE_PREFIX));
        let Some(name @ ("cached_bytes" | "cached_ranges")) = name else {
            return Err(Errno::ENODATA);
        };
        let session = self.processes.session(thread);
        let cached = self.objects.open(number, &session).map_err(|_| Errno::ENODATA)?.cached();
        Ok(match name {
            "cached_bytes" => {
                cached.iter().map(|range| range.end - range.start).sum::<u64>().to_string()
            }
            _ => {
                let mut text = String::new();
                for range in cached {
                    let next = format!("{}-{}", range.start, range.end);
                    if text.len() + 1 + next.len() + 4 > ATTRIBUTE_MAX_BYTES {
                        text.push_str(" ...");
                        break;
                    }
                    text.push_str(if text.is_empty() { "" } else { " " });
                    text.push_str(&next);
                }
                text
            }
        })
    }
}

/// What a folder has.
enum Told<'a> {
    Dots(&'a str),
    Own(&'a str, u64),
    Entry(&'a Entry),
}

impl FileSystem {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        FileSystem { service, pool: Pool::default() }
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A refused setting is answered with the nearest possible one, and none is vital.
        config.set_max_background(BACKGROUND_MAX).ok();
        config.set_congestion_threshold(BACKGROUND_MAX).ok();
        config.set_max_write(READ_MAX_BYTES).ok();
        for wish in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            config.add_capabilities(wish).ok();
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let service = Arc::clone(&self.service);
        if parent.0 == ROOT && name == OWN_NAME {
            let folder = service.own(OWN_FOLDER, FileType::Directory, 0o555);
            return reply.entry(&FOREVER, &folder, Generation(0));
        }
        if parent.0 == OWN_FOLDER {
            return match OWN_NAMES.iter().find(|(own, _)| name == *own) {
                Some(&(_, number)) => {
                    let attr = service.own(number, FileType::RegularFile, 0o444);
                    reply.entry(&FOREVER, &attr, Generation(0));
                }
                None => reply.error(Errno::ENOENT),
            };
        }
        let name = name.to_owned();
        self.pool.run(move || match service.objects.lookup(parent.0, &name) {
            // Attributes never change; what a name stands for may.
            Ok(attr) => reply.entry_with_ttls(&FOREVER, &service.ttl, &attr, Generation(0)),
            Err(error) if error.code() == libc::ENOENT => {
                // A name that stands for nothing is one too.
                let mut none = service.own(0, FileType::RegularFile, 0);
                none.ino = INodeNo(0);
                reply.entry(&service.ttl, &none, Generation(0));
            }
            Err(error) => reply.error(error),
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, lookups: u64) {
        self.service.objects.forget(ino.0, lookups);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.service.attributes(ino.0) {
            Ok(attr) => reply.attr(&FOREVER, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let (service, thread) = (Arc::clone(&self.service), req.pid());
        let answer = move || match service.open(ino.0, thread) {
            Ok((handle, flags)) => {
                let handle = FileHandle(service.handles.add(handle));
                reply.opened(handle, flags | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(error) => reply.error(error),
        };
        match ino.0 {
            STATS_FILE | CONTROL => answer(), // Even if all threads wait.
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
        match self.service.handles.get(fh.0).as_deref() {
            Some(Handle::File(open)) => self.service.read(open, (offset, size), reply),
            Some(Handle::Text(text)) => {
                let from = text.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                reply.data(&text[from..text.len().min(from + size as usize)]);
            }
            Some(Handle::Control(_)) => reply.data(&[]),
            Some(Handle::Folder(_)) => reply.error(Errno::EISDIR),
            None => reply.error(Errno::EBADF),
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
        // Tells the kernel not to ask again.
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
        self.service.handles.remove(fh.0);
        reply.ok();
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = Handle::Folder(Mutex::default());
        reply.opened(FileHandle(self.service.handles.add(handle)), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let service = Arc::clone(&self.service);
        self.pool.run(move || {
            let handle = service.handles.get(fh.0);
            let Some(Handle::Folder(folder)) = handle.as_deref() else {
                return reply.error(Errno::EBADF);
            };
            let told = service.tell_entries(ino.0, folder, offset, |next, told| match told {
                Told::Dots(name) => reply.add(ino, next, FileType::Directory, name),
                Told::Own(name, number) => {
                    reply.add(INodeNo(number), next, FileType::RegularFile, name)
                }
                Told::Entry(entry) => {
                    let kind = match entry.found {
                        Found::File(_) => FileType::RegularFile,
                        Found::Folder => FileType::Directory,
                    };
                    reply.add(INodeNo(number(ino.0, entry)), next, kind, &entry.name)
                }
            });
            match told {
                Ok(()) => reply.ok(),
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
        mut reply: ReplyDirectoryPlus,
    ) {
        let service = Arc::clone(&self.service);
        self.pool.run(move || {
            let handle = service.handles.get(fh.0);
            let Some(Handle::Folder(folder)) = handle.as_deref() else {
                return reply.error(Errno::EBADF);
            };
            let ttl = service.ttl;
            let told = service.tell_entries(ino.0, folder, offset, |next, told| match told {
                Told::Dots(name) => {
                    // The kernel does not take these two for lookups.
                    let own = service.own(ino.0, FileType::Directory, 0o555);
                    reply.add(ino, next, name, &Duration::ZERO, &own, Generation(0))
                }
                Told::Own(name, number) => {
                    let own = service.own(number, FileType::RegularFile, 0o444);
                    reply.add(own.ino, next, name, &FOREVER, &own, Generation(0))
                }
                Told::Entry(entry) => {
                    let attr = service.objects.remember(ino.0, entry);
                    let name = &entry.name;
                    let is_full = reply.add(attr.ino, next, name, &ttl, &attr, Generation(0));
                    if is_full {
                        service.objects.forget(attr.ino.0, 1); // It was not told.
                    }
                    is_full
                }
            });
            match told {
                Ok(()) => reply.ok(),
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
        self.service.handles.remove(fh.0);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // A store does not say how large it is.
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !name.as_encoded_bytes().starts_with(ATTRIBUTE_PREFIX.as_bytes()) {
            return reply.error(Errno::ENODATA); // Of the system's own there are many questions.
        }
        let (service, name, thread) = (Arc::clone(&self.service), name.to_owned(), req.pid());
        self.pool.run(move || match service.extended_attribute(ino.0, &name, thread) {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() <= size as usize => reply.data(value.as_bytes()),
            Ok(_) => reply.error(Errno::ERANGE),
            Err(error) => reply.error(error),
        });
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, size: u32, reply: ReplyXattr) {
        // What is said of files is not to be copied with them.
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
        let Some(handle) = self.service.handles.get(fh.0) else {
            return reply.error(Errno::ENOTTY);
        };
        let done = match (Ioctl::decode(command, bytes), &*handle) {
            (Ok(Ioctl::Hint(hint)), handle) => self.service.hint(handle, hint, &self.pool),
            (Ok(Ioctl::Cancel), Handle::File(open)) => {
                open.cancel();
                Ok(())
            }
            (Ok(Ioctl::Cancel), Handle::Control(control)) => {
                control.cancel();
                Ok(())
            }
            (Ok(Ioctl::Cancel), _) | (Err(IoctlError::Unknown), _) => Err(Errno::ENOTTY),
            (Err(IoctlError::Malformed), _) => Err(Errno::EINVAL),
        };
        match done {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(error),
        }
    }
}
