//! Carries out the kernel's requests on a writable folder, each by the system call of the same kind.
//!
//! The kernel has checked permissions by the modes that it was told. If root serves the mount, requests that depend on
//! the owner are made as the asking user ([`owner`](super::owner)). Otherwise all are made as the user who mounted.

use std::ffi::OsStr;
use std::fs::File as SystemFile;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use foretell_cache::backend::beneath::{self, Beneath, Links};
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::{File, Session};
use fuser::{FileAttr, FileType, INodeNo, Notifier};
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, RawDir, RenameFlags, Stat, Timestamps, Uid,
};
use rustix::io::{Errno, ReadWriteFlags, Result};

use super::attributes::{Change, attributes_of, kind_of, timespec};
use super::content::Version;
use super::nodes::{Node, Nodes, path_of};
use super::open::{Directory, Listing, OpenContent};
use super::owner::{Owner, act_for, write_mapped_for};
use crate::hints::OpenFile;
use crate::inodes::{OWN_FOLDER, ROOT};
use crate::pool::Pool;
use crate::service::{OWN_NAME, Service};

/// Bytes of entries that are read from a folder at a time.
const ENTRIES_BYTES: usize = 32 << 10;

/// Threads that may wait for a program to give up its lease on a file: a quarter of the pool's.
const LEASES_MAX: usize = 16;

/// See the [module](self).
pub(crate) struct Tree {
    pub(crate) service: Arc<Service>,
    pub(crate) nodes: Nodes,
    backend: Arc<LocalBackend>,
    /// The session that keeps the cache's files open for all programs.
    own: Session,
    root: String,
    /// Resolves hinted names.
    beneath: Beneath,
    /// The user who mounted.
    user: u32,
    /// Threads that wait for a lease now.
    leases: AtomicUsize,
    /// The threads that wait for the folder.
    pub(crate) pool: Arc<Pool>,
    /// Tells the kernel that attributes or pages are out of date. Set as soon as the folder is mounted.
    pub(crate) notifier: OnceLock<Notifier>,
}

/// How a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteWay {
    InPlace,
    /// At the end of the folder's file, even if others append behind the mount.
    AtEnd,
    /// From a mapping. The kernel writes it back for no user in particular, so it is done as the file's owner.
    Mapped,
}

/// The result of a write.
pub(crate) struct Written {
    pub(crate) count: usize,
    /// Bytes of which the kernel may have older pages.
    pub(crate) old_pages: Option<Range<u64>>,
}

/// How long the answer to a write waits for the kernel to drop older pages.
const DROP_PATIENCE: Duration = Duration::from_millis(100);

/// Descriptors that a new file needs beside its own: one for its node, and two for reading it.
const SPARES: usize = 3;

/// Opens the file that a descriptor (`O_PATH`) stands for.
fn reopen(descriptor: &OwnedFd, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path_of(descriptor), flags | OFlags::CLOEXEC, Mode::empty())
}

fn stat_of(descriptor: &OwnedFd) -> Result<Stat> {
    rustix::fs::fstat(descriptor)
}

/// Whether the modes differ only in set-user and set-group bits that go.
fn loses_set_bits(before: u32, after: u32) -> bool {
    (before ^ after) & !(before & (libc::S_ISUID | libc::S_ISGID)) == 0
}

/// The error number of an error of the standard library.
fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Tree {
    pub(crate) fn new(
        root: &Path,
        service: Arc<Service>,
        (backend, own): (Arc<LocalBackend>, Session),
        are_numbers_small: bool,
    ) -> Result<Self> {
        Ok(Tree {
            service,
            nodes: Nodes::new(root, are_numbers_small)?,
            backend,
            own,
            root: root.to_string_lossy().into_owned(),
            beneath: Beneath::new(root)?,
            user: rustix::process::geteuid().as_raw(),
            leases: AtomicUsize::new(0),
            pool: Arc::default(),
            notifier: OnceLock::new(),
        })
    }

    /// Refuses names of `.foretell` and in it.
    fn check_name(&self, parent: u64, name: &OsStr) -> Result<()> {
        match parent == OWN_FOLDER || parent == ROOT && name == OWN_NAME {
            true => Err(Errno::PERM),
            false => Ok(()),
        }
    }

    fn folder(&self, parent: u64, name: &OsStr) -> Result<Arc<OwnedFd>> {
        self.check_name(parent, name)?;
        self.nodes.descriptor(&*self.nodes.get(parent)?)
    }

    /// The folder's attributes of a node, which its content takes in.
    fn stat(&self, node: &Node) -> Result<Stat> {
        let descriptor = self.nodes.descriptor(node)?;
        if !node.is_file() {
            return stat_of(&descriptor);
        }
        let mut content = node.content();
        let stat = stat_of(&descriptor)?;
        content.observe(&stat, &node.pages);
        Ok(stat)
    }

    fn attributes_of(&self, node: &Node) -> Result<FileAttr> {
        Ok(attributes_of(node.number, &self.stat(node)?))
    }

    pub(crate) fn attributes(&self, number: u64) -> Result<FileAttr> {
        self.attributes_of(&*self.nodes.get(number)?)
    }

    /// Finds a name. The kernel holds the node until it forgets it.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let node = self.nodes.lookup(parent, name)?;
        let attributes = self.attributes_of(&node);
        if attributes.is_err() {
            self.nodes.forget(node.number, 1); // The kernel was not told of it.
        }
        attributes
    }

    /// Does something as the asker, if root serves the mount.
    fn act<T>(&self, asker: Owner, act: impl FnOnce() -> Result<T>) -> Result<T> {
        act_for(self.other_than_root(asker), act)
    }

    fn other_than_root(&self, asker: Owner) -> Option<Owner> {
        Some(asker).filter(|&asker| self.user == 0 && asker != (0, 0))
    }

    /// The mode of something new. What other users make on a user's mount belongs to that user, so it must not get
    /// set-user or set-group bits.
    fn mode(&self, mode: u32, asker: Owner) -> Mode {
        let is_own = self.user == 0 || asker.0 == self.user;
        Mode::from_raw_mode(mode & if is_own { 0o7777 } else { 0o1777 })
    }

    pub(crate) fn make_folder(
        &self,
        (parent, name): (u64, &OsStr),
        mode: u32,
        owner: Owner,
    ) -> Result<FileAttr> {
        let folder = self.folder(parent, name)?;
        let mode = self.mode(mode, owner);
        self.act(owner, || rustix::fs::mkdirat(&*folder, name, mode))?;
        self.lookup(parent, name)
    }

    pub(crate) fn make_node(
        &self,
        (parent, name): (u64, &OsStr),
        (mode, device): (u32, u32),
        owner: Owner,
    ) -> Result<FileAttr> {
        let folder = self.folder(parent, name)?;
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let (mode, device) = (self.mode(mode, owner), u64::from(device));
        self.act(owner, || rustix::fs::mknodat(&*folder, name, kind, mode, device))?;
        self.lookup(parent, name)
    }

    pub(crate) fn make_link(
        &self,
        (parent, name): (u64, &OsStr),
        target: &Path,
        owner: Owner,
    ) -> Result<FileAttr> {
        let folder = self.folder(parent, name)?;
        self.act(owner, || rustix::fs::symlinkat(target, &*folder, name))?;
        self.lookup(parent, name)
    }

    /// Adds a name to a node.
    pub(crate) fn link(
        &self,
        number: u64,
        (parent, name): (u64, &OsStr),
        asker: Owner,
    ) -> Result<FileAttr> {
        let folder = self.folder(parent, name)?;
        let descriptor = self.nodes.descriptor(&*self.nodes.get(number)?)?;
        let (from, follow) = (path_of(&descriptor), AtFlags::SYMLINK_FOLLOW);
        self.act(asker, || rustix::fs::linkat(rustix::fs::CWD, from, &*folder, name, follow))?;
        self.lookup(parent, name)
    }

    pub(crate) fn read_link(&self, number: u64) -> Result<Vec<u8>> {
        let descriptor = self.nodes.descriptor(&*self.nodes.get(number)?)?;
        Ok(rustix::fs::readlinkat(&*descriptor, "", Vec::new())?.into_bytes())
    }

    pub(crate) fn remove(
        &self,
        (parent, name): (u64, &OsStr),
        flags: AtFlags,
        asker: Owner,
    ) -> Result<()> {
        let folder = self.folder(parent, name)?;
        self.act(asker, || rustix::fs::unlinkat(&*folder, name, flags))
    }

    pub(crate) fn rename(
        &self,
        (parent, name): (u64, &OsStr),
        (to, to_name): (u64, &OsStr),
        (flags, asker): (RenameFlags, Owner),
    ) -> Result<()> {
        let (folder, to_folder) = (self.folder(parent, name)?, self.folder(to, to_name)?);
        self.act(asker, || rustix::fs::renameat_with(&*folder, name, &*to_folder, to_name, flags))?;
        self.nodes.moved(to, to_name);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.nodes.moved(parent, name);
        }
        Ok(())
    }

    /// Opens a file for a thread of a program.
    pub(crate) fn open(&self, number: u64, flags: i32, thread: u32) -> Result<OpenContent> {
        let node = self.nodes.get(number)?;
        let wish = OFlags::from_bits_retain(flags as u32);
        let opened = self.open_node(&node, wish, thread, None)?;
        if !opened.keeps_pages()
            && let Some(notifier) = self.notifier.get()
        {
            // Attributes only; the answer to this open decides about pages. The kernel may not know the inode, which is
            // fine.
            notifier.inval_inode(INodeNo(number), -1, 0).ok();
        }
        Ok(opened)
    }

    /// Opens a file. If a program has a lease on the file, waits until the lease is given up. If too many threads of the pool
    /// wait for leases already, fails with EAGAIN.
    fn open_patiently(&self, descriptor: &OwnedFd, access: OFlags) -> Result<OwnedFd> {
        match reopen(descriptor, access | OFlags::NONBLOCK) {
            Ok(opened) => {
                rustix::fs::fcntl_setfl(&opened, OFlags::empty())?;
                Ok(opened)
            }
            Err(Errno::AGAIN) => {
                let before = self.leases.fetch_add(1, Ordering::Relaxed);
                let opened = match before < LEASES_MAX {
                    true => reopen(descriptor, access),
                    false => Err(Errno::AGAIN),
                };
                self.leases.fetch_sub(1, Ordering::Relaxed);
                opened
            }
            Err(error) => Err(error),
        }
    }

    /// `made` is a descriptor of the file, if it was just made.
    fn open_node(
        &self,
        node: &Arc<Node>,
        wish: OFlags,
        thread: u32,
        made: Option<OwnedFd>,
    ) -> Result<OpenContent> {
        // Linux takes this combination for a descriptor that can neither read nor write.
        let access = match wish & OFlags::RWMODE {
            OFlags::RWMODE => OFlags::RDWR,
            access => access,
        };
        node.handles.fetch_add(1, Ordering::SeqCst);
        let pool = Arc::clone(&self.pool);
        let mut handle = OpenContent {
            node: Arc::clone(node),
            open: None,
            writer: None,
            dropped: None,
            is_answered: AtomicBool::new(false),
            pool,
        };
        let descriptor = self.nodes.descriptor(node)?;
        let opened = match made {
            Some(made) => made,
            None => self.open_patiently(&descriptor, access)?,
        };
        let mut content = node.content();
        let stat = stat_of(&opened)?;
        handle.dropped = if access == OFlags::WRONLY {
            content.opened(&stat, &node.pages)
        } else {
            let program = self.service.processes.program(thread);
            let with = (&*self.backend, &program.session, &self.own);
            let reader =
                || Ok((opened.try_clone().map_err(|error| errno(&error))?, self.path(&opened)));
            let open = content.open((&stat, &node.pages), with, reader)?;
            handle.open = Some(OpenFile::new(open.file, program));
            open.dropped
        };
        drop(content);
        if access != OFlags::RDONLY {
            handle.writer = Some(opened.into());
            node.pages.writer_comes();
        }
        Ok(handle)
    }

    /// The path of a file below the root.
    fn path(&self, descriptor: &OwnedFd) -> String {
        let path = std::fs::read_link(path_of(descriptor)).unwrap_or_default();
        let below = path.strip_prefix(&self.root).unwrap_or(&path);
        below.to_string_lossy().into_owned()
    }

    /// Makes a file and opens it. If somebody else has made one meanwhile, returns ESTALE: the kernel then looks the
    /// name up and checks whether this program may open that file.
    pub(crate) fn create(
        &self,
        (parent, name): (u64, &OsStr),
        (mode, flags): (u32, i32),
        (owner, thread): (Owner, u32),
    ) -> Result<(FileAttr, OpenContent)> {
        let folder = self.folder(parent, name)?;
        let wish = OFlags::from_bits_retain(flags as u32);
        let with = (wish & OFlags::RWMODE) | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = self.mode(mode, owner);
        // If there are no descriptors for the steps that follow, nothing is made.
        let spares = [(); SPARES].map(|()| rustix::io::fcntl_dupfd_cloexec(&*folder, 0));
        let spares = spares.into_iter().collect::<Result<Vec<OwnedFd>>>()?;
        let made = self.act(owner, || rustix::fs::openat(&*folder, name, with, mode));
        drop(spares);
        let made = match made {
            Err(Errno::EXIST) if !wish.contains(OFlags::EXCL) => return Err(Errno::STALE),
            made => made?,
        };
        // By descriptor, as the name may stand for another file by now.
        let node = self.nodes.hold((parent, name), reopen(&made, OFlags::PATH)?)?;
        let opened = self
            .open_node(&node, wish, thread, Some(made))
            .and_then(|opened| Ok((self.attributes_of(&node)?, opened)));
        if opened.is_err() {
            self.nodes.forget(node.number, 1);
        }
        opened
    }

    fn resize(
        &self,
        node: &Node,
        writer: Option<&SystemFile>,
        (size_bytes, asker): (u64, Owner),
    ) -> Result<()> {
        let descriptor = self.nodes.descriptor(node)?;
        let opened = match writer {
            Some(_) => None,
            None => Some(SystemFile::from(self.open_patiently(&descriptor, OFlags::WRONLY)?)),
        };
        let writer =
            writer.or(opened.as_ref()).expect("invariant: it was open, or has been opened");
        let mut content = node.content();
        self.act(asker, || rustix::fs::ftruncate(writer, size_bytes))?;
        content.wrote(0..0, Some(size_bytes));
        node.pages.resized(size_bytes);
        Ok(())
    }

    pub(crate) fn change(
        &self,
        number: u64,
        (change, asker): (&Change, Owner),
        handle: Option<&OpenContent>,
    ) -> Result<FileAttr> {
        let node = self.nodes.get(number)?;
        let descriptor = self.nodes.descriptor(&node)?;
        if let Some(mode) = change.mode {
            if node.is_link() {
                return Err(Errno::OPNOTSUPP);
            }
            let (mode, stat) = (mode & 0o7777, stat_of(&descriptor)?);
            let is_folder = kind_of(stat.st_mode) == FileType::Directory;
            // For a folder the asker acts with the folder's group; otherwise the system would take its set-group bit
            // away. That bit only passes the group on to new files, and gives nobody a right.
            let asker = if is_folder { (asker.0, stat.st_gid) } else { asker };
            let path = path_of(&descriptor);
            match self.act(asker, || rustix::fs::chmod(path, Mode::from_raw_mode(mode))) {
                // The kernel takes these bits away in the name of the program that writes, which may not change the
                // mode. The folder's file system takes them away at the write anyway.
                Err(Errno::PERM) if !is_folder && loses_set_bits(stat.st_mode & 0o7777, mode) => {}
                changed => changed?,
            }
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (user, group) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            // The kernel has checked that the asker is in that group.
            let asker = (asker.0, change.gid.unwrap_or(asker.1));
            self.act(asker, || {
                rustix::fs::chownat(&*descriptor, "", user, group, AtFlags::EMPTY_PATH)
            })?;
        }
        if let Some(size_bytes) = change.size {
            let writer = handle.and_then(|handle| handle.writer.as_ref());
            self.resize(&node, writer, (size_bytes, asker))?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            self.act(asker, || {
                rustix::fs::utimensat(&*descriptor, "", &times, AtFlags::EMPTY_PATH)
            })?;
        }
        self.attributes_of(&node)
    }

    /// Writes to the folder's file and tells the cache. Every later read by the mount returns the new bytes. So do
    /// reads from the kernel's pages, once [old ones are dropped](Self::drop_pages).
    pub(crate) fn write(
        &self,
        handle: &OpenContent,
        (bytes, offset): (&[u8], u64),
        (way, asker): (WriteWay, Owner),
    ) -> Result<Written> {
        let writer = handle.writer.as_ref().ok_or(Errno::BADF)?;
        let pages = &handle.node.pages;
        let old_pages = |bytes: Range<u64>| pages.wrote(bytes.clone()).then_some(bytes);
        let asker = match way {
            WriteWay::Mapped => {
                let stat = rustix::fs::fstat(writer)?;
                (stat.st_uid, stat.st_gid)
            }
            _ => asker,
        };
        let mut content = handle.node.content();
        if way == WriteWay::AtEnd {
            let pieces = [std::io::IoSlice::new(bytes)];
            let append = || rustix::io::pwritev2(writer, &pieces, offset, ReadWriteFlags::APPEND);
            let written = self.act(asker, append);
            let end = rustix::fs::fstat(writer)?.st_size as u64;
            // If the end is not where the kernel expects it, others have changed the file, and all of it counts as
            // changed.
            let start = match written {
                Ok(count) if end.checked_sub(count as u64) == Some(offset) => offset,
                _ => 0,
            };
            content.wrote(start..end, Some(end));
            drop(content);
            let old_pages = old_pages(offset..offset.saturating_add(bytes.len() as u64));
            return written.map(|count| Written { count, old_pages });
        }
        let write = || writer.write_at(bytes, offset).map_err(|error| errno(&error));
        let written = match way {
            WriteWay::Mapped => match write_mapped_for(self.other_than_root(asker), write) {
                // This process cannot act as the file's owner.
                Err(Errno::PERM) => write(),
                written => written,
            },
            _ => self.act(asker, write),
        };
        let asked = offset..offset.saturating_add(bytes.len() as u64);
        match written {
            Ok(count) => content.wrote(offset..offset + count as u64, None),
            // Some of it may have been written. The folder tells the size.
            Err(_) => {
                let size = rustix::fs::fstat(writer)?.st_size as u64;
                content.wrote(asked.clone(), Some(size));
            }
        }
        drop(content);
        let old_pages = if way == WriteWay::Mapped { None } else { old_pages(asked) };
        written.map(|count| Written { count, old_pages })
    }

    /// Has the kernel drop pages that may be older than a write, then gives the answer. Runs on a thread that no write
    /// waits for.
    ///
    /// The kernel waits for pages that are locked, by reads and by writing back mappings, which go on meanwhile. It
    /// also locks a page until the answer, if the write covers part of it and it was not in memory before. Such a page
    /// is not old, but the kernel would wait for the answer to drop it. So the answer does not wait for long.
    pub(crate) fn drop_pages(
        &self,
        handle: &OpenContent,
        pages: &Range<u64>,
        answer: impl FnOnce(),
    ) {
        let Some(notifier) = self.notifier.get().cloned() else { return answer() };
        let (node, pages) = (Arc::clone(&handle.node), pages.clone());
        let (is_over, wait) = std::sync::mpsc::channel::<()>();
        let drop_them = move || {
            let (start, length) = (pages.start as i64, (pages.end - pages.start) as i64);
            // The kernel may have forgotten the inode.
            notifier.inval_inode(INodeNo(node.number), start, length).ok();
            node.pages.has_dropped();
            drop(is_over);
        };
        handle.node.pages.begins_to_drop();
        let thread = std::thread::Builder::new().name("mount-pages".to_owned());
        match thread.spawn(drop_them.clone()) {
            Ok(_) => {
                drop(drop_them);
                wait.recv_timeout(DROP_PATIENCE).ok(); // If this times out, the pages are dropped a little later.
                answer();
            }
            Err(_) => {
                answer();
                drop_them();
            }
        }
    }

    pub(crate) fn allocate(
        &self,
        handle: &OpenContent,
        (offset, length): (u64, u64),
        (mode, asker): (i32, Owner),
    ) -> Result<()> {
        let writer = handle.writer.as_ref().ok_or(Errno::BADF)?;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let mut content = handle.node.content();
        let allocated = self.act(asker, || rustix::fs::fallocate(writer, mode, offset, length));
        let size = rustix::fs::fstat(writer)?.st_size as u64;
        // Some modes move all bytes that lie behind.
        content.wrote(offset.min(size)..size.max(offset.saturating_add(length)), Some(size));
        allocated
    }

    /// Reads from the folder, after the cache has found the file shorter than it knew. The cache is told the new size.
    pub(crate) fn read_plainly(
        &self,
        handle: &OpenContent,
        (offset, length): (u64, usize),
    ) -> Result<Vec<u8>> {
        self.stat(&handle.node)?;
        let descriptor = self.nodes.descriptor(&handle.node)?;
        let file = match &handle.writer {
            Some(writer) => writer.try_clone().map_err(|error| errno(&error))?,
            None => reopen(&descriptor, OFlags::RDONLY)?.into(),
        };
        let (mut bytes, mut filled) = (vec![0; length], 0);
        while filled < length {
            match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(&error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    pub(crate) fn sync(&self, handle: &OpenContent, is_data: bool) -> Result<()> {
        let opened = match &handle.writer {
            Some(_) => None,
            None => {
                let descriptor = self.nodes.descriptor(&handle.node)?;
                Some(SystemFile::from(reopen(&descriptor, OFlags::RDONLY)?))
            }
        };
        let file = handle
            .writer
            .as_ref()
            .or(opened.as_ref())
            .expect("invariant: it was open, or has been opened");
        match is_data {
            true => rustix::fs::fdatasync(file),
            false => rustix::fs::fsync(file),
        }
    }

    pub(crate) fn sync_folder(&self, folder: &Directory) -> Result<()> {
        rustix::fs::fsync(&folder.listing().descriptor)
    }

    /// A program closes a descriptor. Passes that on, for the errors of earlier writes that the folder's file system
    /// reports at a close.
    pub(crate) fn flush(&self, handle: &OpenContent) -> Result<()> {
        let Some(writer) = &handle.writer else { return Ok(()) };
        let copy = OwnedFd::from(writer.try_clone().map_err(|error| errno(&error))?);
        // SAFETY: the descriptor is this function's own, and nothing uses it afterwards.
        match unsafe { libc::close(std::os::fd::IntoRawFd::into_raw_fd(copy)) } {
            0 => Ok(()),
            _ => Err(errno(&std::io::Error::last_os_error())),
        }
    }

    pub(crate) fn open_folder(&self, number: u64) -> Result<Directory> {
        let node = self.nodes.get(number)?;
        let descriptor = self.nodes.descriptor(&node)?;
        let descriptor = reopen(&descriptor, OFlags::RDONLY | OFlags::DIRECTORY)?;
        node.handles.fetch_add(1, Ordering::SeqCst);
        let places = self.nodes.are_numbers_small().then(Vec::new);
        Ok(Directory { node, listing: Mutex::new(Listing { descriptor, places }) })
    }

    /// Passes the entries of a folder from a position on to `add`, until `add` returns that the answer is full.
    pub(crate) fn list(
        &self,
        folder: &Directory,
        position: u64,
        mut add: impl FnMut(u64, u64, FileType, &OsStr) -> bool,
    ) -> Result<()> {
        let mut listing = folder.listing();
        let Listing { descriptor, places } = &mut *listing;
        let place = match places {
            Some(places) if position > 0 => {
                *places.get(position as usize - 1).ok_or(Errno::INVAL)?
            }
            _ => position,
        };
        rustix::fs::seek(&*descriptor, rustix::fs::SeekFrom::Start(place))?;
        let mut buffer = [MaybeUninit::uninit(); ENTRIES_BYTES];
        let mut entries = RawDir::new(&*descriptor, &mut buffer);
        let mut count = position;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            count += 1;
            let next = match places {
                Some(places) => {
                    // Others may have changed the folder since it was last read.
                    match places.get_mut(count as usize - 1) {
                        Some(place) => *place = entry.next_entry_cookie(),
                        None => places.push(entry.next_entry_cookie()),
                    }
                    count
                }
                None => entry.next_entry_cookie(),
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            // The mount's own `.foretell` hides one of the folder.
            if folder.node.number == ROOT && name == OWN_NAME {
                continue;
            }
            let mode = match entry.file_type() {
                // Some file systems do not tell the kind.
                rustix::fs::FileType::Unknown => {
                    match beneath::stat_entry(descriptor, name) {
                        Ok(stat) => stat.st_mode,
                        Err(Errno::NOENT) => continue, // It has gone.
                        Err(beneath::REFUSED) => libc::S_IFDIR,
                        Err(_) => libc::S_IFREG, // It exists.
                    }
                }
                kind => kind.as_raw_mode(),
            };
            let number = match name.as_bytes() {
                b"." => folder.node.number,
                b".." => folder.node.parent(),
                _ => self.nodes.number_of_entry(&folder.node, entry.ino(), mode & libc::S_IFMT),
            };
            if add(number, next, kind_of(mode), name) {
                break;
            }
        }
        Ok(())
    }

    /// Opens the file at a path below the root for a hint. A file that was just written is left out: its blocks would
    /// soon be out of date.
    pub(crate) fn open_path(&self, path: &str, session: &Session) -> Option<Arc<File>> {
        let path = Path::new(path.trim_matches('/'));
        let found = self.beneath.open(path, OFlags::PATH, Links::Followed).ok()?;
        // Opening a device could have an effect.
        if kind_of(stat_of(&found).ok()?.st_mode) != FileType::RegularFile {
            return None;
        }
        let opened = reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
        let stat = stat_of(&opened).ok()?;
        let version = Version::of(&stat);
        let open_found = |opened: OwnedFd| {
            let path = self.path(&opened);
            let size_bytes = stat.st_size as u64;
            session.open_found(
                &path,
                self.backend.open_changing(opened.into(), version.name(), size_bytes),
            )
        };
        // A hinted file keeps a descriptor until its hints have passed.
        let can_hold = || version.is_settled() && self.backend.can_hold_more();
        let Some(node) = self.nodes.of(&stat) else {
            return can_hold().then(|| open_found(opened));
        };
        let content = node.content();
        match content.file() {
            Some(file) => self.backend.can_hold_more().then(|| session.open_again(file)),
            None => can_hold().then(|| open_found(opened)),
        }
    }

    /// The cache's file, to tell what is cached.
    pub(crate) fn cached(&self, number: u64) -> Result<Arc<File>> {
        let node = self.nodes.get(number)?;
        if !node.is_file() {
            return Err(Errno::NODATA);
        }
        let descriptor = self.nodes.descriptor(&node)?;
        let content = node.content();
        if let Some(file) = content.file() {
            return Ok(Arc::clone(file));
        }
        let stat = stat_of(&descriptor)?;
        let opened = reopen(&descriptor, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let (path, version) = (self.path(&opened), Version::of(&stat).name());
        let opened = self.backend.open_changing(opened.into(), version, stat.st_size as u64);
        Ok(self.own.open_found(&path, opened))
    }

    pub(crate) fn statistics(&self) -> Result<rustix::fs::StatVfs> {
        rustix::fs::fstatvfs(&*self.nodes.descriptor(&*self.nodes.get(ROOT)?)?)
    }
}
