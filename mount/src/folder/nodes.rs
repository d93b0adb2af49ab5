//! The inodes of a writable folder, as the kernel holds them.
//!
//! A node stands for one file of the folder, known by device and inode number. It stays the same when the file is
//! written, renamed or linked, and has the folder's inode number where that is free.
//!
//! A node is reached by a descriptor (`O_PATH`), which follows the file wherever it is moved. The number of descriptors
//! is limited. Those of nodes that no program has open are closed, the longest open first, and opened again by the last
//! name of the node. If that name stands for another file by then, the answer is ESTALE, and the kernel looks the name
//! up anew.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foretell_cache::backend::beneath;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::{Errno, Result};

use super::content::Content;
use super::pages::KernelPages;
use crate::inodes::{FIRST, ROOT, SmallNumbers};
use crate::pool::Line;

/// The part of the process's descriptors, as a divisor, that nodes may have while no program has them open.
const DESCRIPTORS_DIVISOR: usize = 4;
/// Nodes that are examined to find one whose descriptor can be closed.
const LOOKED_AT: usize = 16;
/// The depth of a node, at most. A greater depth means that folders were renamed into a circle meanwhile.
const DEPTH_MAX: usize = 4096;

/// Identifies a file of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: u64,
    number: u64,
    kind: u32,
}

impl Key {
    fn of(stat: &Stat) -> Self {
        Key { device: stat.st_dev, number: stat.st_ino, kind: stat.st_mode & libc::S_IFMT }
    }
}

pub(crate) struct Node {
    pub(crate) number: u64,
    key: Key,
    /// The folder and the name by which it was found last.
    place: Mutex<(u64, OsString)>,
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    /// Open handles. While there are any, its descriptor is not closed.
    pub(crate) handles: AtomicUsize,
    /// The state of its cached bytes, if it is a file.
    pub(crate) content: Mutex<Content>,
    /// The state of its bytes in the kernel, if it is a file.
    pub(crate) pages: KernelPages,
    /// The line in which writes to it wait.
    pub(crate) writers: Arc<Line>,
}

impl Node {
    pub(crate) fn is_file(&self) -> bool {
        self.key.kind == libc::S_IFREG
    }

    pub(crate) fn is_link(&self) -> bool {
        self.key.kind == libc::S_IFLNK
    }

    /// Whether the file has no name any more, and exists only by open descriptors.
    pub(crate) fn is_removed(&self) -> bool {
        let descriptor = lock(&self.descriptor);
        let stat = descriptor.as_ref().and_then(|open| rustix::fs::fstat(&**open).ok());
        stat.is_some_and(|stat| stat.st_nlink == 0)
    }

    /// The folder in which it was found last.
    pub(crate) fn parent(&self) -> u64 {
        lock(&self.place).0
    }

    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }
}

struct Held {
    node: Arc<Node>,
    /// How many times the kernel was told of the node, less how many times it forgot it.
    lookups: u64,
}

#[derive(Default)]
struct Table {
    nodes: HashMap<u64, Held>,
    numbers: HashMap<Key, u64>,
    /// Nodes in the order in which their descriptors were opened; some may be gone.
    opened: VecDeque<u64>,
}

/// See the [module](self).
pub(crate) struct Nodes {
    table: Mutex<Table>,
    device: u64,
    descriptors_max: usize,
    /// If inode numbers must fit into 32 bits.
    small: Option<SmallNumbers<Key>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens an entry of a folder with `O_PATH`, and tells what it is. A link is not followed.
fn open_entry(folder: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, Stat)> {
    beneath::open_entry(folder, name).map_err(|error| match error {
        beneath::REFUSED => Errno::LOOP,
        other => other,
    })
}

/// A path to the file that a descriptor stands for.
pub(crate) fn path_of(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

impl Nodes {
    pub(crate) fn new(root: &Path, are_numbers_small: bool) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(root, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&descriptor)?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let nodes = Nodes {
            table: Mutex::default(),
            device: stat.st_dev,
            descriptors_max: (limit / DESCRIPTORS_DIVISOR).max(1),
            small: are_numbers_small.then(SmallNumbers::new),
        };
        let node = nodes.node(ROOT, Key::of(&stat), (ROOT, OsStr::new("")), descriptor);
        // The root's descriptor is never closed.
        node.handles.store(1, Ordering::Relaxed);
        let mut table = lock(&nodes.table);
        table.numbers.insert(node.key, ROOT);
        table.nodes.insert(ROOT, Held { node, lookups: 1 });
        drop(table);
        Ok(nodes)
    }

    fn node(
        &self,
        number: u64,
        key: Key,
        (parent, name): (u64, &OsStr),
        descriptor: OwnedFd,
    ) -> Arc<Node> {
        Arc::new(Node {
            number,
            key,
            place: Mutex::new((parent, name.to_owned())),
            descriptor: Mutex::new(Some(Arc::new(descriptor))),
            handles: AtomicUsize::new(0),
            content: Mutex::default(),
            pages: KernelPages::default(),
            writers: Arc::default(),
        })
    }

    /// Whether inode numbers must fit into 32 bits.
    pub(crate) fn are_numbers_small(&self) -> bool {
        self.small.is_some()
    }

    /// The number of inodes that the kernel holds.
    pub(crate) fn known(&self) -> usize {
        lock(&self.table).nodes.len()
    }

    pub(crate) fn get(&self, number: u64) -> Result<Arc<Node>> {
        let table = lock(&self.table);
        table.nodes.get(&number).map(|held| Arc::clone(&held.node)).ok_or(Errno::STALE)
    }

    /// The node of a file, if the kernel holds one.
    pub(crate) fn of(&self, stat: &Stat) -> Option<Arc<Node>> {
        let table = lock(&self.table);
        let number = table.numbers.get(&Key::of(stat))?;
        table.nodes.get(number).map(|held| Arc::clone(&held.node))
    }

    /// Looks up `name` in the folder `parent`. The kernel holds the node until it [forgets](Nodes::forget) it.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<Arc<Node>> {
        let (descriptor, stat) = open_entry(&*self.descriptor(&*self.get(parent)?)?, name)?;
        self.hold_found((parent, name), descriptor, &stat)
    }

    /// Like [`lookup`](Nodes::lookup), for a file that is open (`O_PATH`) and was found by that name.
    pub(crate) fn hold(
        &self,
        (parent, name): (u64, &OsStr),
        descriptor: OwnedFd,
    ) -> Result<Arc<Node>> {
        let stat = rustix::fs::fstat(&descriptor)?;
        self.hold_found((parent, name), descriptor, &stat)
    }

    fn hold_found(
        &self,
        (parent, name): (u64, &OsStr),
        descriptor: OwnedFd,
        stat: &Stat,
    ) -> Result<Arc<Node>> {
        let key = Key::of(stat);
        let mut table = lock(&self.table);
        let known = table.numbers.get(&key).copied();
        if let Some(held) = known.and_then(|number| table.nodes.get_mut(&number)) {
            held.lookups += 1;
            let node = Arc::clone(&held.node);
            drop(table);
            *lock(&node.place) = (parent, name.to_owned());
            return Ok(node);
        }
        let mut number = self.number(key);
        while table.nodes.contains_key(&number) {
            number = number.wrapping_add(1).max(FIRST); // Another node has that number.
        }
        let node = self.node(number, key, (parent, name), descriptor);
        table.numbers.insert(key, number);
        table.nodes.insert(number, Held { node: Arc::clone(&node), lookups: 1 });
        let closed = self.note_opened(&mut table, number);
        drop(table);
        drop(closed);
        Ok(node)
    }

    /// The inode number for a file: the folder's own, if the file is on the same file system.
    fn number(&self, key: Key) -> u64 {
        if let Some(small) = &self.small {
            return small.of(key);
        }
        if key.device == self.device {
            return key.number.max(FIRST);
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish().max(FIRST)
    }

    /// The inode number for an entry of a listing, which tells the folder's number and the kind only.
    pub(crate) fn number_of_entry(&self, parent: &Node, number: u64, kind: u32) -> u64 {
        let key = Key { device: parent.key.device, number, kind };
        lock(&self.table).numbers.get(&key).copied().unwrap_or_else(|| self.number(key))
    }

    /// The kernel drops `lookups` of its references to a node: it has one for each time that it was told of the node. If none
    /// is left, the node is returned; dropping the node may close its descriptor.
    pub(crate) fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Node>> {
        let mut table = lock(&self.table);
        let held = table.nodes.get_mut(&number)?;
        held.lookups = held.lookups.saturating_sub(lookups);
        if held.lookups > 0 || number == ROOT {
            return None;
        }
        let held = table.nodes.remove(&number)?;
        table.numbers.remove(&held.node.key);
        Some(held.node)
    }

    /// The descriptor of a node, opened again if it was closed.
    pub(crate) fn descriptor(&self, node: &Node) -> Result<Arc<OwnedFd>> {
        if let Some(descriptor) = &*lock(&node.descriptor) {
            return Ok(Arc::clone(descriptor));
        }
        // Folders above it, up to one that has a descriptor.
        let mut above = vec![self.get(node.parent())?];
        let mut folder = loop {
            let last = &above[above.len() - 1];
            if let Some(descriptor) = &*lock(&last.descriptor) {
                break Arc::clone(descriptor);
            }
            if above.len() == DEPTH_MAX {
                return Err(Errno::STALE);
            }
            let parent = last.parent();
            above.push(self.get(parent)?);
        };
        for below in above.iter().rev().skip(1) {
            folder = self.open_again(below, &folder)?;
        }
        self.open_again(node, &folder)
    }

    /// Opens a node by its last name in `folder`.
    fn open_again(&self, node: &Node, folder: &OwnedFd) -> Result<Arc<OwnedFd>> {
        let name = lock(&node.place).1.clone();
        let (descriptor, stat) = open_entry(folder, &name).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => Errno::STALE,
            other => other,
        })?;
        if Key::of(&stat) != node.key {
            return Err(Errno::STALE);
        }
        let descriptor = Arc::new(descriptor);
        *lock(&node.descriptor) = Some(Arc::clone(&descriptor));
        let mut table = lock(&self.table);
        let closed = self.note_opened(&mut table, node.number);
        drop(table);
        drop(closed);
        Ok(descriptor)
    }

    /// Notes that a descriptor was opened. Returns others to be closed.
    fn note_opened(&self, table: &mut Table, number: u64) -> Vec<Arc<OwnedFd>> {
        table.opened.push_back(number);
        let mut closed = Vec::new();
        for _ in 0..LOOKED_AT {
            if table.opened.len() <= self.descriptors_max {
                break;
            }
            let Some(oldest) = table.opened.pop_front() else { break };
            let Some(held) = table.nodes.get(&oldest) else { continue };
            let mut descriptor = lock(&held.node.descriptor);
            let is_used = descriptor.as_ref().is_some_and(|open| Arc::strong_count(open) > 1)
                || held.node.handles.load(Ordering::SeqCst) > 0;
            match is_used {
                true => table.opened.push_back(oldest),
                false => closed.extend(descriptor.take()),
            }
        }
        closed
    }

    /// Notes the new place of the file that was just moved there.
    pub(crate) fn moved(&self, parent: u64, name: &OsStr) {
        let stat = || {
            let folder = self.descriptor(&*self.get(parent)?)?;
            beneath::stat_entry(&folder, name)
        };
        if let Ok(stat) = stat()
            && let Some(node) = self.of(&stat)
        {
            *lock(&node.place) = (parent, name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(descriptors_max: usize) -> (tempfile::TempDir, Nodes) {
        let folder = tempfile::tempdir().unwrap();
        let nodes = Nodes { descriptors_max, ..Nodes::new(folder.path(), false).unwrap() };
        (folder, nodes)
    }

    fn number_below(nodes: &Nodes, node: &Node) -> u64 {
        rustix::fs::fstat(&*nodes.descriptor(node).unwrap()).unwrap().st_ino
    }

    #[test]
    fn a_node_is_kept_as_long_as_the_kernel_holds_it_whatever_it_is_called() {
        let (folder, nodes) = nodes(100);
        std::fs::write(folder.path().join("a"), b"x").unwrap();
        let node = nodes.lookup(ROOT, OsStr::new("a")).unwrap();
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        std::fs::hard_link(folder.path().join("b"), folder.path().join("c")).unwrap();
        assert_eq!(nodes.lookup(ROOT, OsStr::new("c")).unwrap().number, node.number);
        assert_eq!(nodes.known(), 2);
        assert_eq!(number_below(&nodes, &node), node.key.number);
        nodes.forget(node.number, 1);
        assert!(nodes.get(node.number).is_ok());
        nodes.forget(node.number, 1);
        assert!(nodes.get(node.number).is_err());
        nodes.forget(ROOT, 100);
        assert!(nodes.get(ROOT).is_ok());
    }

    #[test]
    fn descriptors_are_bounded_and_opened_again_by_name() {
        let (folder, nodes) = nodes(10);
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let below = nodes.lookup(ROOT, OsStr::new("below")).unwrap();
        let name = |number: usize| OsString::from(format!("{number}"));
        let files: Vec<_> = (0..100)
            .map(|number| {
                std::fs::write(folder.path().join("below").join(name(number)), b"").unwrap();
                nodes.lookup(below.number, &name(number)).unwrap()
            })
            .collect();
        let open = || files.iter().filter(|node| lock(&node.descriptor).is_some()).count();
        assert!(open() <= 11, "{}", open());
        files.iter().for_each(|node| assert_eq!(number_below(&nodes, node), node.key.number));
        assert!(open() <= 11, "{}", open());
        // The names of closed nodes now stand for other files, or for none.
        let closed = files.iter().position(|node| lock(&node.descriptor).is_none()).unwrap();
        let path = folder.path().join("below").join(name(closed));
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        assert_eq!(nodes.descriptor(&files[closed]).unwrap_err(), Errno::STALE);
        std::fs::write(&path, b"").unwrap();
        assert_eq!(nodes.descriptor(&files[closed]).unwrap_err(), Errno::STALE);
        nodes.moved(ROOT, OsStr::new("elsewhere"));
        assert_eq!(number_below(&nodes, &files[closed]), files[closed].key.number);
    }

    #[test]
    fn however_deep_a_node_is_it_is_opened_again() {
        const DEPTH: usize = 300;
        let (folder, nodes) = nodes(10);
        let mut parent = nodes.get(ROOT).unwrap();
        for _ in 0..DEPTH {
            let descriptor = nodes.descriptor(&parent).unwrap();
            rustix::fs::mkdirat(&*descriptor, "d", Mode::RWXU).unwrap();
            parent = nodes.lookup(parent.number, OsStr::new("d")).unwrap();
        }
        // On a thread with a small stack.
        std::thread::scope(|scope| {
            let few = std::thread::Builder::new().stack_size(64 << 10);
            let found = few.spawn_scoped(scope, || {
                *lock(&parent.descriptor) = None;
                number_below(&nodes, &parent)
            });
            assert_eq!(found.unwrap().join().unwrap(), parent.key.number);
        });
        drop(folder);
    }
}
