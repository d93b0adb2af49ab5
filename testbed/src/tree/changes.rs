//! What programs change in the backing folder, and the files that they have open.
//!
//! A change is made in the backing folder before it is acknowledged, and that folder's error is the program's. So a
//! killed array leaves the folder as programs knew it.
//!
//! * **Names.** The kernel knows files by the names that it was told, and never asks again. A node keeps them all, so
//!   that a file is found when one of several links is removed. A change of names locks out all use of paths.
//! * **Open files.** All programs that have a file open share one descriptor for reading and one for writing. These go
//!   on when the file has no name any more. What the backing folder's disk failed to write is told once to each open
//!   file ([`Failures`]), as the kernel does for descriptors.
//! * **Owners.** Where root serves other users, a change is made as the asking user (`foretell_mount::act_for`), so
//!   that new files belong to that user.
//! * **Numbers.** The backing folder gives the number of a removed file to a new one. Then the kernel may still hold
//!   the old one, so files that are made get generations of their own.

use std::collections::hash_map;
use std::os::fd::AsRawFd;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use foretell_cache::backend::beneath;
use foretell_mount::{Owner, act_for, timespec};
use fuser::{FileHandle, TimeOrNow};
use rustix::fs::{AtFlags, CWD, FileType as Kind, Gid, Mode, RenameFlags, Stat, Timestamps, Uid};

use super::*;

/// The descriptors of a file that programs have open.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// Opens that were not closed yet.
    handles: usize,
    reader: Option<Arc<File>>,
    writer: Option<Arc<File>>,
    failures: Failures,
    /// Held by the one that syncs.
    syncing: Arc<Mutex<()>>,
}

/// What the backing folder's disk failed to write of a file, and which open files were told. The shared descriptor is told
/// once.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    last: Option<i32>,
    /// The count when an open file was told last, or opened.
    told: HashMap<u64, u64>,
}

impl Failures {
    fn open(&mut self, handle: FileHandle) {
        self.told.insert(handle.0, self.count);
    }

    /// Takes in how a sync has ended, and returns what this open file is told.
    fn settle(&mut self, handle: FileHandle, result: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &result {
            self.count += 1;
            self.last = Some(error.raw_os_error().unwrap_or(libc::EIO));
        }
        let told = self.told.entry(handle.0).or_insert(0);
        if std::mem::replace(told, self.count) == self.count {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(self.last.unwrap_or(libc::EIO)))
    }
}

impl Opened {
    fn any(&self) -> Option<&Arc<File>> {
        self.reader.as_ref().or(self.writer.as_ref())
    }

    /// Takes in a descriptor that was opened with the access mode of `flags`.
    fn keep(&mut self, file: &Arc<File>, flags: OFlags) {
        let mode = flags & OFlags::RWMODE;
        if mode != OFlags::WRONLY && self.reader.is_none() {
            self.reader = Some(Arc::clone(file));
        }
        if mode != OFlags::RDONLY && self.writer.is_none() {
            self.writer = Some(Arc::clone(file));
        }
    }

    fn has(&self, flags: OFlags) -> bool {
        let mode = flags & OFlags::RWMODE;
        (mode == OFlags::WRONLY || self.reader.is_some())
            && (mode == OFlags::RDONLY || self.writer.is_some())
    }
}

/// The attributes of an inode to be changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) accessed: Option<TimeOrNow>,
    pub(crate) modified: Option<TimeOrNow>,
}

/// A path to the file of a descriptor.
fn path_of(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl Tree {
    pub(super) fn read_names(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_names(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_opened(&self) -> MutexGuard<'_, HashMap<Ino, Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor of a file that programs have open.
    pub(super) fn opened(&self, ino: Ino) -> Option<Arc<File>> {
        self.all_opened().get(&ino)?.any().cloned()
    }

    /// The descriptor for reading of a file that programs have open.
    pub(super) fn reader(&self, ino: Ino) -> Option<Arc<File>> {
        self.all_opened().get(&ino)?.reader.clone()
    }

    fn writer(&self, ino: Ino) -> Option<Arc<File>> {
        self.all_opened().get(&ino)?.writer.clone()
    }

    /// Opens a file for a program.
    pub(crate) fn open_for(&self, ino: Ino, flags: i32) -> io::Result<FileHandle> {
        let _names = self.read_names();
        // Times of the backing folder do not matter, and what is appended has its offset.
        let flags = (OFlags::from_bits_retain(flags as u32) & OFlags::RWMODE) | OFlags::NONBLOCK;
        let mut opened = self.all_opened();
        if let Some(opened) = opened.get_mut(&ino) {
            if !opened.has(flags)
                && let Some(file) = opened.any()
            {
                // By descriptor, as the file may have no name any more.
                let again =
                    rustix::fs::open(path_of(file), flags | OFlags::CLOEXEC, Mode::empty())?;
                opened.keep(&Arc::new(File::from(again)), flags);
            }
            return Ok(self.handle_of(opened));
        }
        let file = self.beneath_open(&self.path(ino)?, flags | OFlags::NOCTTY)?;
        let mut new = Opened::default();
        new.keep(&Arc::new(File::from(file)), flags);
        let handle = self.handle_of(&mut new);
        opened.insert(ino, new);
        Ok(handle)
    }

    /// A program has opened a file.
    fn handle_of(&self, opened: &mut Opened) -> FileHandle {
        opened.handles += 1;
        let handle = FileHandle(self.handle.fetch_add(1, Ordering::Relaxed) + 1);
        opened.failures.open(handle);
        handle
    }

    /// A program closes a file that was opened, or created.
    pub(crate) fn close(&self, ino: Ino, handle: FileHandle) {
        let _names = self.change_names();
        let mut opened = self.all_opened();
        let hash_map::Entry::Occupied(mut entry) = opened.entry(ino) else { return };
        entry.get_mut().handles -= 1;
        entry.get_mut().failures.told.remove(&handle.0);
        if entry.get().handles > 0 {
            return;
        }
        let last = entry.remove();
        drop(opened);
        let is_gone = self.node(ino).is_ok_and(|node| node.names().is_empty());
        if is_gone && last.any().is_some_and(|file| file.metadata().is_ok_and(|m| m.nlink() == 0)) {
            self.forget(ino);
        }
    }

    /// Writes all of `bytes` at `offset`. A short count means an error after some of it. `syncs`: the open file for which the
    /// backing folder's disk must have them.
    pub(crate) fn write(
        &self,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        syncs: Option<FileHandle>,
    ) -> io::Result<usize> {
        let bad = || io::Error::from_raw_os_error(libc::EBADF);
        let writer = self.writer(ino).ok_or_else(bad)?;
        let mut written = 0;
        while written < bytes.len() {
            match writer.write_at(&bytes[written..], offset + written as u64) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.node(ino)?.size_bytes.fetch_max(offset + written as u64, Ordering::Relaxed);
        if let Some(handle) = syncs {
            self.sync(ino, handle, true)?;
        }
        Ok(written)
    }

    /// Waits until the bytes of an open file are on the backing folder's disk.
    pub(crate) fn sync(&self, ino: Ino, handle: FileHandle, is_data: bool) -> io::Result<()> {
        let bad = || io::Error::from_raw_os_error(libc::EBADF);
        let opened = self.all_opened();
        let of_file = opened.get(&ino).ok_or_else(bad)?;
        // Always the same one, as each is told of an error.
        let file = of_file.writer.as_ref().or(of_file.any()).cloned().ok_or_else(bad)?;
        let syncing = Arc::clone(&of_file.syncing);
        drop(opened);
        // One at a time: whoever syncs next hears of an error that this one was told.
        let _syncing = syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = if is_data { file.sync_data() } else { file.sync_all() };
        // It is open as long as a program syncs it.
        self.all_opened().get_mut(&ino).ok_or_else(bad)?.failures.settle(handle, synced)
    }

    /// Waits until the names in a folder are on the backing folder's disk.
    pub(crate) fn sync_folder(&self, ino: Ino) -> io::Result<()> {
        let folder = {
            let _names = self.read_names();
            self.beneath_open(&self.path(ino)?, OFlags::RDONLY | OFlags::DIRECTORY)?
        };
        File::from(folder).sync_all()
    }

    /// Gives an open file space, or takes space from it, as fallocate(2) does.
    pub(crate) fn allocate(
        &self,
        ino: Ino,
        (offset, length): (u64, u64),
        mode: i32,
    ) -> io::Result<()> {
        let bad = || io::Error::from_raw_os_error(libc::EBADF);
        let writer = self.writer(ino).ok_or_else(bad)?;
        let flags = rustix::fs::FallocateFlags::from_bits_retain(mode as u32);
        rustix::fs::fallocate(&*writer, flags, offset, length)?;
        self.node(ino)?.size_bytes.store(writer.metadata()?.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Changes attributes, and returns the new ones.
    pub(crate) fn change(
        &self,
        ino: Ino,
        change: &Change,
        asker: Option<Owner>,
    ) -> io::Result<FileAttr> {
        let file = match self.opened(ino) {
            Some(file) => file,
            None => {
                let _names = self.read_names();
                let found = self.beneath_open(&self.path(ino)?, OFlags::PATH | OFlags::NOFOLLOW)?;
                Arc::new(File::from(found))
            }
        };
        if let Some(mode) = change.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            act_for(asker, || rustix::fs::chmod(path_of(&file), mode))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (user, group) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            // The kernel has checked that the asker is in that group.
            let asker = asker.map(|(user, own)| (user, change.gid.unwrap_or(own)));
            act_for(asker, || rustix::fs::chownat(&*file, "", user, group, AtFlags::EMPTY_PATH))?;
        }
        if let Some(size_bytes) = change.size_bytes {
            match self.writer(ino) {
                Some(writer) => rustix::fs::ftruncate(&*writer, size_bytes)?,
                None => {
                    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    let writer = rustix::fs::open(path_of(&file), flags, Mode::empty())?;
                    rustix::fs::ftruncate(writer, size_bytes)?;
                }
            }
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            act_for(asker, || rustix::fs::utimensat(&*file, "", &times, AtFlags::EMPTY_PATH))?;
        }
        let metadata = file.metadata()?;
        self.node(ino)?.size_bytes.store(metadata.len(), Ordering::Relaxed);
        attributes(ino, &metadata)
    }

    /// Makes a file and opens it. It must be [closed](Self::close).
    pub(crate) fn create(
        &self,
        (parent, name): (Ino, &OsStr),
        (mode, flags): (u32, i32),
        asker: Option<Owner>,
    ) -> io::Result<(Found, FileHandle)> {
        let _names = self.change_names();
        let folder = self.folder(parent)?;
        let flags = OFlags::from_bits_retain(flags as u32);
        let access = flags & OFlags::RWMODE;
        let how = access | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let made = act_for(asker, || rustix::fs::openat(&folder, name, how, mode));
        let file = match made {
            // The kernel looks the name up anew.
            Err(rustix::io::Errno::EXIST) if !flags.contains(OFlags::EXCL) => {
                return Err(io::Error::from_raw_os_error(libc::ESTALE));
            }
            made => Arc::new(File::from(made?)),
        };
        let found = self.enter((parent, name), &file.metadata()?)?;
        let mut opened = self.all_opened();
        let new = opened.entry(Ino::from(found.attr.ino)).or_default();
        new.keep(&file, access);
        let handle = self.handle_of(new);
        Ok((found, handle))
    }

    /// Makes a folder.
    pub(crate) fn make_folder(
        &self,
        (parent, name): (Ino, &OsStr),
        mode: u32,
        asker: Option<Owner>,
    ) -> io::Result<Found> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.make((parent, name), asker, |folder| rustix::fs::mkdirat(folder, name, mode))
    }

    /// Makes a file, a pipe, a socket or a device.
    pub(crate) fn make_node(
        &self,
        (parent, name): (Ino, &OsStr),
        (mode, device): (u32, u64),
        asker: Option<Owner>,
    ) -> io::Result<Found> {
        let (kind, mode) = (Kind::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
        self.make((parent, name), asker, |folder| {
            rustix::fs::mknodat(folder, name, kind, mode, device)
        })
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(
        &self,
        (parent, name): (Ino, &OsStr),
        target: &Path,
        asker: Option<Owner>,
    ) -> io::Result<Found> {
        self.make((parent, name), asker, |folder| rustix::fs::symlinkat(target, folder, name))
    }

    fn make(
        &self,
        (parent, name): (Ino, &OsStr),
        asker: Option<Owner>,
        make: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> io::Result<Found> {
        let _names = self.change_names();
        let folder = self.folder(parent)?;
        act_for(asker, || make(&folder))?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = File::from(rustix::fs::openat(&folder, name, flags, Mode::empty())?);
        self.enter((parent, name), &made.metadata()?)
    }

    /// Gives a file a further name.
    pub(crate) fn add_name(
        &self,
        ino: Ino,
        (parent, name): (Ino, &OsStr),
        asker: Option<Owner>,
    ) -> io::Result<Found> {
        let _names = self.change_names();
        let folder = self.folder(parent)?;
        let file = self.beneath_open(&self.path(ino)?, OFlags::PATH | OFlags::NOFOLLOW)?;
        let (from, follow) = (path_of(&file), AtFlags::SYMLINK_FOLLOW);
        act_for(asker, || rustix::fs::linkat(CWD, from, &folder, name, follow))?;
        let node = self.node(ino)?;
        node.names().push((parent, name.to_owned()));
        let attr = attributes(ino, &File::from(file).metadata()?)?;
        Ok(Found { attr, generation: node.generation, is_first: false })
    }

    /// Removes a name: of a folder if `flags` say so.
    pub(crate) fn remove(
        &self,
        (parent, name): (Ino, &OsStr),
        flags: AtFlags,
        asker: Option<Owner>,
    ) -> io::Result<()> {
        let _names = self.change_names();
        let folder = self.folder(parent)?;
        let stat = beneath::stat_entry(&folder, name)?;
        act_for(asker, || rustix::fs::unlinkat(&folder, name, flags))?;
        self.removed((parent, name), &stat);
        Ok(())
    }

    /// Renames a file or folder, or exchanges two.
    pub(crate) fn rename(
        &self,
        (parent, name): (Ino, &OsStr),
        (to, to_name): (Ino, &OsStr),
        flags: RenameFlags,
        asker: Option<Owner>,
    ) -> io::Result<()> {
        let _names = self.change_names();
        let (folder, to_folder) = (self.folder(parent)?, self.folder(to)?);
        let source = beneath::stat_entry(&folder, name)?;
        let replaced = beneath::stat_entry(&to_folder, to_name).ok();
        act_for(asker, || rustix::fs::renameat_with(&folder, name, &to_folder, to_name, flags))?;
        let moved = |stat: &Stat, from: (Ino, &OsStr), to: (Ino, &OsStr)| {
            if let Ok(node) = self.node(self.number(stat.st_dev, stat.st_ino)) {
                let mut names = node.names();
                names.retain(|known| (known.0, &*known.1) != from);
                names.push((to.0, to.1.to_owned()));
            }
        };
        match replaced {
            Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
                moved(&other, (to, to_name), (parent, name));
            }
            Some(other) => self.removed((to, to_name), &other),
            None => {}
        }
        moved(&source, (parent, name), (to, to_name));
        Ok(())
    }

    /// The folder of an inode (`O_PATH`). The caller holds `names`.
    fn folder(&self, ino: Ino) -> io::Result<OwnedFd> {
        self.beneath_open(&self.path(ino)?, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Takes in a file that was made. Its inode and, if it is a folder, its block need not be read.
    fn enter(&self, (parent, name): (Ino, &OsStr), metadata: &Metadata) -> io::Result<Found> {
        let ino = self.number(metadata.dev(), metadata.ino());
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        let node = Node { generation, ..Node::new(parent, name, metadata.len()) };
        node.listed.store(true, Ordering::Relaxed);
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(ino, Arc::new(node));
        Ok(Found { attr: attributes(ino, metadata)?, generation, is_first: false })
    }

    /// A name was removed. `stat` is what it stood for, as it was before.
    fn removed(&self, name: (Ino, &OsStr), stat: &Stat) {
        let ino = self.number(stat.st_dev, stat.st_ino);
        if let Ok(node) = self.node(ino) {
            node.names().retain(|known| (known.0, &*known.1) != name);
        }
        let is_folder = Kind::from_raw_mode(stat.st_mode) == Kind::Directory;
        if (is_folder || stat.st_nlink <= 1) && self.opened(ino).is_none() {
            self.forget(ino);
        }
    }

    fn forget(&self, ino: Ino) {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).remove(&ino);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).entries.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_is_told_once_of_a_failure() {
        let (one, other, late) = (FileHandle(1), FileHandle(2), FileHandle(3));
        let mut failures = Failures::default();
        failures.open(one);
        failures.open(other);
        assert!(failures.settle(one, Ok(())).is_ok());
        let told = |told: io::Result<()>| told.err().and_then(|error| error.raw_os_error());
        let full = || Err(io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(told(failures.settle(one, full())), Some(libc::ENOSPC));
        failures.open(late);
        // The descriptor says nothing any more, and the other one is owed it.
        assert_eq!(told(failures.settle(other, Ok(()))), Some(libc::ENOSPC));
        for handle in [one, other, late] {
            assert_eq!(told(failures.settle(handle, Ok(()))), None);
        }
    }
}
