//! The backing folder: inode numbers, attributes, listings and bytes.
//!
//! An inode keeps the number that it has in the backing file system. So hard links stay recognisable, and a file has
//! the same place in the layout at every mount. There are three exceptions: the root is 1, as FUSE requires; a file
//! whose number is 1 gets another; files of other file systems that are mounted below the folder get numbers that
//! depend on their device.
//!
//! Names are resolved below the folder ([`beneath`](foretell_cache::backend::beneath)), whatever takes their place
//! meanwhile.
//!
//! Inodes that were looked up are kept with their names until unmounting, however often the kernel forgets them,
//! because only the first lookup costs a read. Open files are kept in a small cache. If a file is moved or removed in
//! the backing folder, programs see that folder's error. A change of attributes shows only after mounting again.
//!
//! What programs change through the array, and what they have open on a writable one, is in `changes`.

mod changes;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foretell_cache::backend::beneath::{Beneath, Links, REFUSED};
use foretell_sim::layout::FileId;
use foretell_sim::random::hash;
use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{Dir, OFlags, StatVfs};

pub(crate) use changes::Change;
use changes::Opened;

/// Backing files kept open.
const OPEN_FILES_MAX: usize = 128;
/// Listings of folders kept, so that a folder that is read in parts is listed once.
const LISTINGS_MAX: usize = 64;
/// Marks numbers that are hashes. No common file system uses this bit.
const MADE_UP: u64 = 1 << 63;
/// The block size that `stat` reports, in bytes.
const BLOCK_BYTES: u32 = 4096;

/// An inode number as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ino(pub(crate) u64);

impl Ino {
    pub(crate) const ROOT: Ino = Ino(1);

    /// The file's identity in the layout.
    pub(crate) fn file(self) -> FileId {
        FileId(self.0)
    }
}

impl From<INodeNo> for Ino {
    fn from(ino: INodeNo) -> Self {
        Ino(ino.0)
    }
}

/// An inode that has been looked up, or made.
#[derive(Debug)]
struct Node {
    /// The folders and names by which the kernel knows it, oldest first. Empty if they are all removed.
    names: Mutex<Vec<(Ino, OsString)>>,
    /// Tells an inode from an earlier one of the same number.
    generation: u64,
    size_bytes: AtomicU64,
    listed: AtomicBool,
}

impl Node {
    fn new(parent: Ino, name: &OsStr, size_bytes: u64) -> Self {
        Node {
            names: Mutex::new(vec![(parent, name.to_owned())]),
            generation: 0,
            size_bytes: AtomicU64::new(size_bytes),
            listed: AtomicBool::new(false),
        }
    }

    fn names(&self) -> MutexGuard<'_, Vec<(Ino, OsString)>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder and the name by which it is found. Fails if it has no name any more.
    fn place(&self) -> io::Result<(Ino, OsString)> {
        self.names().first().cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}

/// An entry of a folder.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) ino: Ino,
    pub(crate) kind: FileType,
    pub(crate) name: OsString,
}

/// What a lookup has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) attr: FileAttr,
    pub(crate) generation: u64,
    /// Whether this is the inode's first lookup.
    pub(crate) is_first: bool,
}

/// A map that evicts the least recently used entry.
#[derive(Debug)]
struct Recent<V> {
    max: usize,
    tick: u64,
    entries: HashMap<Ino, (u64, Arc<V>)>,
}

impl<V> Recent<V> {
    fn new(max: usize) -> Self {
        Recent { max, tick: 0, entries: HashMap::new() }
    }

    fn get(&mut self, ino: Ino) -> Option<Arc<V>> {
        self.tick += 1;
        let (used, value) = self.entries.get_mut(&ino)?;
        *used = self.tick;
        Some(Arc::clone(value))
    }

    fn insert(&mut self, ino: Ino, value: Arc<V>) {
        if self.entries.len() >= self.max {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(ino, _)| *ino) {
                self.entries.remove(&oldest);
            }
        }
        self.tick += 1;
        self.entries.insert(ino, (self.tick, value));
    }
}

/// The backing folder; see the [module](self).
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    beneath: Beneath,
    root_device: u64,
    root_ino: u64,
    nodes: RwLock<HashMap<Ino, Arc<Node>>>,
    open: Mutex<Recent<File>>,
    listings: Mutex<Recent<Vec<Entry>>>,
    /// Held while a path is in use, and for writing while names change.
    names: RwLock<()>,
    /// What programs have open. Empty on a read-only array, where the kernel opens by itself.
    opened: Mutex<HashMap<Ino, Opened>>,
    /// The last generation given to a file that was made.
    generation: AtomicU64,
    /// The last number given to an open file.
    handle: AtomicU64,
}

impl Tree {
    /// Opens the folder at `root`, which must exist.
    pub(crate) fn new(root: PathBuf) -> io::Result<Self> {
        let metadata = fs::metadata(&root)?;
        fs::read_dir(&root)?;
        let node = Node::new(Ino::ROOT, OsStr::new(""), metadata.len());
        Ok(Tree {
            beneath: Beneath::new(&root)?,
            root,
            root_device: metadata.dev(),
            root_ino: metadata.ino(),
            nodes: RwLock::new(HashMap::from([(Ino::ROOT, Arc::new(node))])),
            open: Mutex::new(Recent::new(OPEN_FILES_MAX)),
            listings: Mutex::new(Recent::new(LISTINGS_MAX)),
            names: RwLock::new(()),
            opened: Mutex::default(),
            generation: AtomicU64::new(0),
            handle: AtomicU64::new(0),
        })
    }

    /// Finds `name` in a folder.
    pub(crate) fn lookup(&self, parent: Ino, name: &OsStr) -> io::Result<Found> {
        let _names = self.read_names();
        let metadata = self.metadata(&self.path(parent)?.join(name))?;
        let ino = self.number(metadata.dev(), metadata.ino());
        let attr = attributes(ino, &metadata)?;
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(&ino) {
            node.size_bytes.store(metadata.len(), Ordering::Relaxed);
            let mut names = node.names();
            if !names.iter().any(|known| (known.0, &*known.1) == (parent, name)) {
                names.push((parent, name.to_owned()));
            }
            return Ok(Found { attr, generation: node.generation, is_first: false });
        }
        nodes.insert(ino, Arc::new(Node::new(parent, name, metadata.len())));
        Ok(Found { attr, generation: 0, is_first: true })
    }

    /// Attributes of a known inode.
    pub(crate) fn attributes(&self, ino: Ino) -> io::Result<FileAttr> {
        let metadata = match self.opened(ino) {
            Some(file) => file.metadata()?,
            None => {
                let _names = self.read_names();
                self.metadata(&self.path(ino)?)?
            }
        };
        let node = self.node(ino)?;
        node.size_bytes.store(metadata.len(), Ordering::Relaxed);
        attributes(ino, &metadata)
    }

    /// The size of a known file when its attributes were last read.
    pub(crate) fn size_bytes(&self, ino: Ino) -> io::Result<u64> {
        Ok(self.node(ino)?.size_bytes.load(Ordering::Relaxed))
    }

    /// Whether this is the first listing of a folder.
    pub(crate) fn first_listing(&self, ino: Ino) -> io::Result<bool> {
        Ok(!self.node(ino)?.listed.swap(true, Ordering::Relaxed))
    }

    /// Reads up to `len` bytes from `offset`; fewer if the file ends before.
    pub(crate) fn read(&self, ino: Ino, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = match self.reader(ino) {
            Some(file) => file,
            None => self.open(ino)?,
        };
        let mut buffer = vec![0; len];
        let mut filled = 0;
        while filled < len {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }

    /// The entries of a folder in the backing folder's order, "." and ".." first.
    pub(crate) fn list(&self, ino: Ino) -> io::Result<Arc<Vec<Entry>>> {
        let kept = self.listings.lock().unwrap_or_else(PoisonError::into_inner).get(ino);
        if let Some(entries) = kept {
            return Ok(entries);
        }
        let entries = Arc::new(self.list_now(ino)?);
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        listings.insert(ino, Arc::clone(&entries));
        Ok(entries)
    }

    /// As [`list`](Self::list), asking the backing folder anew.
    pub(crate) fn list_now(&self, ino: Ino) -> io::Result<Vec<Entry>> {
        let _names = self.read_names();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = fs::File::from(self.beneath_open(&self.path(ino)?, flags)?);
        let device = folder.metadata()?.dev();
        let (parent, _) = self.node(ino)?.place()?;
        let dot = |ino, name: &str| Entry { ino, kind: FileType::Directory, name: name.into() };
        let mut entries = vec![dot(ino, "."), dot(parent, "..")];
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                let (ino, kind) = (self.number(device, entry.ino()), kind_of(entry.file_type()));
                entries.push(Entry { ino, kind, name });
            }
        }
        Ok(entries)
    }

    /// The target of a symbolic link.
    pub(crate) fn link(&self, ino: Ino) -> io::Result<PathBuf> {
        let _names = self.read_names();
        let link = self.beneath_open(&self.path(ino)?, OFlags::PATH | OFlags::NOFOLLOW)?;
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// The space of the folder's file system.
    pub(crate) fn space(&self) -> io::Result<StatVfs> {
        Ok(rustix::fs::fstatvfs(self.beneath.root())?)
    }

    fn beneath_open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        match self.beneath.open(path, flags, Links::Shown) {
            Err(REFUSED) => Err(io::Error::from_raw_os_error(libc::ELOOP)),
            opened => Ok(opened?),
        }
    }

    /// The metadata of a path below the folder. A link is not followed.
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        fs::File::from(self.beneath_open(path, OFlags::PATH | OFlags::NOFOLLOW)?).metadata()
    }

    /// Every inode below the root with its size, at most `max` of them. Folders come before their content, names in
    /// order. What cannot be read is left out.
    pub(crate) fn walk(&self, max: usize) -> Vec<(FileId, u64)> {
        let mut found = vec![(Ino::ROOT.file(), u64::from(BLOCK_BYTES))];
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            let mut names: Vec<OsString> =
                entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
            names.sort_unstable();
            let mut below = Vec::new();
            for name in names {
                let path = folder.join(name);
                let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
                if found.len() >= max {
                    return found;
                }
                let ino = self.number(metadata.dev(), metadata.ino());
                if metadata.is_dir() {
                    found.push((ino.file(), u64::from(BLOCK_BYTES)));
                    below.push(path);
                } else {
                    found.push((ino.file(), metadata.len()));
                }
            }
            folders.extend(below.into_iter().rev());
        }
        found
    }

    fn number(&self, device: u64, ino: u64) -> Ino {
        if (device, ino) == (self.root_device, self.root_ino) {
            Ino::ROOT
        } else if device == self.root_device && ino != Ino::ROOT.0 && ino != 0 {
            Ino(ino)
        } else {
            Ino(hash(&[device, ino]) | MADE_UP)
        }
    }

    fn node(&self, ino: Ino) -> io::Result<Arc<Node>> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&ino).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    /// The path of an inode below the folder. The caller holds `names`, as the path is good no longer than that.
    fn path(&self, ino: Ino) -> io::Result<PathBuf> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            let (parent, name) = self.node(at)?.place()?;
            at = parent;
            names.push(name);
        }
        let mut path = PathBuf::new();
        path.extend(names.iter().rev());
        Ok(path)
    }

    fn open(&self, ino: Ino) -> io::Result<Arc<File>> {
        let kept = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(ino);
        if let Some(file) = kept {
            return Ok(file);
        }
        let _names = self.read_names();
        // Without blocking, as the name may stand for a pipe by now.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = Arc::new(File::from(self.beneath_open(&self.path(ino)?, flags)?));
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(ino, Arc::clone(&file));
        Ok(file)
    }
}

/// The kind in a listing. Some file systems do not tell it; a lookup does.
fn kind_of(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Kind;
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::RegularFile | Kind::Unknown => FileType::RegularFile,
    }
}

fn attributes(ino: Ino, metadata: &Metadata) -> io::Result<FileAttr> {
    let kind = FileType::from_std(metadata.file_type())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))?;
    Ok(FileAttr {
        ino: INodeNo(ino.0),
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind,
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: metadata.nlink().try_into().unwrap_or(u32::MAX),
        uid: metadata.uid(),
        gid: metadata.gid(),
        // FUSE has 32 bits for a device number.
        rdev: metadata.rdev() as u32,
        blksize: BLOCK_BYTES,
        flags: 0,
    })
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    second + Duration::from_nanos(nanoseconds.unsigned_abs())
}
