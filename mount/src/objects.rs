//! The names of an object store as folders and files.
//!
//! A file's inode stands for one version of it, so its attributes and its data never change. Its number is a hash of
//! folder, name and version. An inode is kept as long as the kernel holds it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use foretell_cache::backend::{Backend, BackendError, Entry, Found, LeftOut, Listing};
use foretell_cache::{File, Session};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use rustix::fs::StatVfs;

use crate::inodes::{BLOCK_BYTES, FIRST, ROOT, SmallNumbers};
use crate::trouble::Troubles;

/// The longest name of a file on Linux, in bytes.
pub(crate) const NAME_MAX_BYTES: usize = 255;
/// Links that are followed for one hinted name. 40, as in the kernel.
const LINKS_MAX: usize = 40;

struct Node {
    parent: u64,
    name: Box<str>,
    found: Found,
    /// How many times the kernel was told of the inode, less how many times it forgot it.
    lookups: u64,
}

/// See the [module](self).
pub(crate) struct Objects {
    backend: Arc<dyn Backend>,
    nodes: Mutex<HashMap<u64, Node>>,
    /// Small numbers by [`number`], if inode numbers must fit into 32 bits.
    small: Option<SmallNumbers<u64>>,
    troubles: Arc<Troubles>,
    owner: (u32, u32),
    /// The time that is shown for objects without one.
    began: SystemTime,
}

/// A listing of a folder.
pub(crate) struct Names {
    listing: Box<dyn Listing>,
    path: String,
    /// How many names were left out so far because no file can have them, with an example. The listing counts those that it
    /// leaves out itself.
    left_out: LeftOut,
}

impl Objects {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        troubles: Arc<Troubles>,
        are_numbers_small: bool,
    ) -> Self {
        let root = Node { parent: ROOT, name: "".into(), found: Found::Folder, lookups: 1 };
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let nodes = Mutex::new(HashMap::from([(ROOT, root)]));
        let small = are_numbers_small.then(SmallNumbers::new);
        Objects { backend, nodes, small, troubles, owner, began: SystemTime::now() }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of inodes that the kernel holds.
    pub(crate) fn known(&self) -> usize {
        self.nodes().len()
    }

    /// Asks the store for `name` in the folder `parent`. The kernel holds the inode until it [forgets](Objects::forget)
    /// it.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let name = name.to_str().filter(|name| is_name(name)).ok_or(Errno::ENOENT)?;
        let path = below(self.path(parent)?, name);
        let found =
            self.backend.find(&path).map_err(|cause| self.troubles.of_name(&path, &cause))?;
        Ok(self.remember(parent, &Entry { name: name.to_owned(), found }))
    }

    /// The number of an entry of the folder `parent`, unless another entry has that number already.
    pub(crate) fn number(&self, parent: u64, entry: &Entry) -> u64 {
        let number = number(parent, entry);
        self.small.as_ref().map_or(number, |small| small.of(number))
    }

    /// Makes or finds the inode of an entry of the folder `parent`, for the kernel to hold.
    pub(crate) fn remember(&self, parent: u64, entry: &Entry) -> FileAttr {
        let mut nodes = self.nodes();
        let mut number = self.number(parent, entry);
        loop {
            let node = nodes.entry(number).or_insert_with(|| Node {
                parent,
                name: entry.name.as_str().into(),
                found: entry.found.clone(),
                lookups: 0,
            });
            if node.parent == parent && *node.name == *entry.name && node.found == entry.found {
                node.lookups += 1;
                return self.attributes_of(number, &entry.found);
            }
            number = number.wrapping_add(1).max(FIRST); // Another entry has the same hash.
        }
    }

    /// The kernel takes back `lookups` of the times that it was told of an inode. With none left, the inode goes.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 && number != ROOT {
                nodes.remove(&number);
            }
        }
    }

    pub(crate) fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        let nodes = self.nodes();
        let node = nodes.get(&number).ok_or(Errno::ESTALE)?;
        Ok(self.attributes_of(number, &node.found))
    }

    fn attributes_of(&self, number: u64, found: &Found) -> FileAttr {
        let (kind, perm, size, modified) = match found {
            Found::File(file) => (FileType::RegularFile, 0o444, file.size_bytes, file.modified),
            Found::Unasked => (FileType::RegularFile, 0o444, 0, None),
            Found::Folder => (FileType::Directory, 0o555, 0, None),
            Found::Link(link) => (FileType::Symlink, 0o777, link.size_bytes, link.modified),
        };
        let time = modified.unwrap_or(self.began);
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    /// Opens the version that the inode stands for.
    pub(crate) fn open(&self, number: u64, session: &Session) -> Result<Arc<File>, Errno> {
        let found = self.nodes().get(&number).ok_or(Errno::ESTALE)?.found.clone();
        self.open_found(&self.path(number)?, &found, session)
    }

    /// Opens the file that a path below the root stands for now. Links are followed as the kernel would, if they stay
    /// below the root.
    pub(crate) fn open_path(&self, path: &str, session: &Session) -> Result<Arc<File>, Errno> {
        let path = path.trim_matches('/');
        if !path.split('/').all(is_name) {
            return Err(Errno::ENOENT);
        }
        match self.backend.find(path) {
            Ok(Found::Link(_)) | Err(BackendError::Changed) => {
                let path = self.without_links(path).ok_or(Errno::ENOENT)?;
                let found = self.backend.find(&path);
                let found = found.map_err(|cause| self.troubles.of_name(&path, &cause))?;
                self.open_found(&path, &found, session)
            }
            found => {
                let found = found.map_err(|cause| self.troubles.of_name(path, &cause))?;
                self.open_found(path, &found, session)
            }
        }
    }

    /// Resolves the links in a path. `None` if it leads nowhere, or out of the root.
    fn without_links(&self, path: &str) -> Option<String> {
        let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut path = String::new();
        let mut followed = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                // No part before it is a link.
                if path.is_empty() {
                    return None;
                }
                path.truncate(path.rfind('/').unwrap_or(0));
                continue;
            }
            let place = below(path.clone(), &name);
            match self.backend.find(&place).ok()? {
                Found::Link(link) if followed < LINKS_MAX => {
                    followed += 1;
                    let target = self.backend.read_link(&place, &link).ok()?;
                    for part in target.components().rev() {
                        match part {
                            Component::Normal(name) => rest.push(name.to_str()?.to_owned()),
                            Component::ParentDir => rest.push("..".to_owned()),
                            Component::CurDir => {}
                            Component::RootDir | Component::Prefix(_) => return None,
                        }
                    }
                }
                Found::Link(_) => return None,
                _ => path = place,
            }
        }
        Some(path)
    }

    /// The target of a link.
    pub(crate) fn read_link(&self, number: u64) -> Result<PathBuf, Errno> {
        let found = self.nodes().get(&number).ok_or(Errno::ESTALE)?.found.clone();
        let Found::Link(link) = found else { return Err(Errno::EINVAL) };
        let path = self.path(number)?;
        self.backend.read_link(&path, &link).map_err(|cause| self.troubles.of_name(&path, &cause))
    }

    /// The store's space, if it can tell.
    pub(crate) fn space(&self) -> Result<Option<StatVfs>, Errno> {
        self.backend.space().map_err(|cause| self.troubles.of_name("", &cause))
    }

    fn open_found(&self, path: &str, found: &Found, session: &Session) -> Result<Arc<File>, Errno> {
        let file = match found {
            Found::File(file) => file,
            Found::Unasked => return Err(Errno::ESTALE), // The kernel looks the name up anew.
            Found::Folder => return Err(Errno::EISDIR),
            Found::Link(_) => return Err(Errno::ELOOP), // The kernel follows links.
        };
        match self.backend.open_found(path, file) {
            Ok(opened) => Ok(session.open_found(path, opened)),
            Err(cause) => Err(self.troubles.of_name(path, &cause)),
        }
    }

    /// Whether listings tell as much about files as lookups do.
    pub(crate) fn lists_all_of_files(&self) -> bool {
        self.backend.lists_all_of_files()
    }

    /// Begins to list a folder.
    pub(crate) fn list(&self, number: u64) -> Result<Names, Errno> {
        let path = self.path(number)?;
        match self.backend.list(&path) {
            Ok(listing) => Ok(Names { listing, path, left_out: LeftOut::default() }),
            Err(cause) => Err(self.troubles.of_name(&path, &cause)),
        }
    }

    /// The next entries of a listing. An empty list is the end.
    pub(crate) fn next_entries(&self, names: &mut Names) -> Result<Vec<Entry>, Errno> {
        loop {
            let entries = names.listing.next_entries();
            let mut entries =
                entries.map_err(|cause| self.troubles.of_name(&names.path, &cause))?;
            let is_end = entries.is_empty();
            entries.retain(|entry| {
                let is_name = is_name(&entry.name);
                if !is_name {
                    names.left_out.add(entry.name.clone());
                }
                is_name
            });
            if is_end {
                let LeftOut { count, example } = names.listing.left_out();
                let own = &names.left_out;
                let example = example.or_else(|| own.example.clone());
                let left_out = LeftOut { count: count + own.count, example };
                self.troubles.of_folder(&names.path, &left_out);
            }
            if is_end || !entries.is_empty() {
                return Ok(entries);
            }
        }
    }

    /// The path of an inode below the root.
    pub(crate) fn path(&self, number: u64) -> Result<String, Errno> {
        let nodes = self.nodes();
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT {
            let node = nodes.get(&at).ok_or(Errno::ESTALE)?;
            names.push(&*node.name);
            at = node.parent;
        }
        names.reverse();
        Ok(names.join("/"))
    }
}

/// A hash that distinguishes an entry of the folder `parent` from all others: by folder, name and version.
fn number(parent: u64, entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, &entry.name).hash(&mut hasher);
    if let Found::File(file) | Found::Link(file) = &entry.found {
        (file.size_bytes, &file.tag).hash(&mut hasher);
        if file.tag.is_none() {
            file.modified.hash(&mut hasher);
        }
    }
    hasher.finish().max(FIRST)
}

fn below(folder: String, name: &str) -> String {
    match folder.is_empty() {
        true => name.to_owned(),
        false => folder + "/" + name,
    }
}

/// Whether a file can have this name.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= NAME_MAX_BYTES && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use foretell_cache::backend::memory::MemoryBackend;

    use super::*;

    fn objects() -> (MemoryBackend, Objects) {
        let files = MemoryBackend::new();
        let troubles = Arc::new(Troubles::new(Box::new(|_| {})));
        (files.clone(), Objects::new(Arc::new(files), troubles, false))
    }

    #[test]
    fn an_inode_is_kept_as_long_as_the_kernel_holds_it() {
        let (files, objects) = objects();
        files.put("dir/file", *b"x");
        let dir = objects.lookup(ROOT, OsStr::new("dir")).unwrap().ino.0;
        let file = objects.lookup(dir, OsStr::new("file")).unwrap();
        assert_eq!(objects.lookup(dir, OsStr::new("file")).unwrap().ino, file.ino);
        assert_eq!(objects.path(file.ino.0).unwrap(), "dir/file");
        objects.forget(file.ino.0, 1);
        assert!(objects.attributes(file.ino.0).is_ok());
        objects.forget(file.ino.0, 1);
        assert_eq!(objects.attributes(file.ino.0).unwrap_err().code(), libc::ESTALE);
        objects.forget(dir, 1);
        objects.forget(ROOT, 100);
        assert_eq!(objects.known(), 1, "the root stays");
    }

    #[test]
    fn another_version_is_another_inode() {
        let (files, objects) = objects();
        files.put("file", *b"one");
        let before = objects.lookup(ROOT, OsStr::new("file")).unwrap();
        files.put("file", *b"other");
        let after = objects.lookup(ROOT, OsStr::new("file")).unwrap();
        assert_ne!(before.ino, after.ino);
        assert_eq!(objects.attributes(before.ino.0).unwrap().size, 3);
        assert_eq!(objects.attributes(after.ino.0).unwrap().size, 5);
    }

    #[test]
    fn two_of_one_hash_are_two() {
        let (_files, objects) = objects();
        let entry = Entry { name: "a".into(), found: Found::Folder };
        let taken = number(ROOT, &entry);
        let other = Node { parent: 77, name: "b".into(), found: Found::Folder, lookups: 1 };
        objects.nodes().insert(taken, other);
        assert_eq!(objects.remember(ROOT, &entry).ino.0, taken + 1);
        assert_eq!(objects.remember(ROOT, &entry).ino.0, taken + 1);
    }

    #[test]
    fn what_is_no_name_is_left_out_and_told_once() {
        let files = MemoryBackend::new();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = Arc::clone(&told);
        let tell = move |line: &str| lines.lock().unwrap().push(line.to_owned());
        let troubles = Arc::new(Troubles::new(Box::new(tell)));
        let objects = Objects::new(Arc::new(files.clone()), Arc::clone(&troubles), false);
        let long = "x".repeat(256);
        for key in
            ["dir/file", "dir//a", "dir//b", "dir/./a", "dir/..", &format!("dir/{long}"), "/"]
        {
            files.put(key, *b"x");
        }
        let dir = objects.lookup(ROOT, OsStr::new("dir")).unwrap().ino.0;
        let listed = |number| {
            let mut names = objects.list(number).unwrap();
            let mut listed = Vec::new();
            loop {
                let entries = objects.next_entries(&mut names).unwrap();
                if entries.is_empty() {
                    return listed;
                }
                listed.extend(entries.into_iter().map(|entry| entry.name));
            }
        };
        for _ in 0..3 {
            assert_eq!(listed(dir), ["file"]);
            assert_eq!(listed(ROOT), ["dir"]);
        }
        assert_eq!(troubles.names_left_out(), 5);
        files.put("dir/a\0", *b"x");
        listed(dir);
        assert_eq!(troubles.names_left_out(), 6);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("dir: 4 names are left out, which no file can have: "));
        assert_eq!(told[1], "/: 1 name is left out, which no file can have: \"\"");
    }

    #[test]
    fn what_is_a_file_and_a_folder_is_a_folder() {
        let (files, objects) = objects();
        files.put("both", *b"file");
        files.put("both/below", *b"x");
        let found = objects.lookup(ROOT, OsStr::new("both")).unwrap();
        assert_eq!(found.kind, FileType::Directory);
        let entries = objects.next_entries(&mut objects.list(ROOT).unwrap()).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(number(ROOT, &entries[0]), found.ino.0);
        files.remove("both/below");
        assert_eq!(objects.lookup(ROOT, OsStr::new("both")).unwrap().kind, FileType::RegularFile);
    }

    #[test]
    fn what_is_no_name_is_not_found() {
        let (files, objects) = objects();
        files.put("dir/file", *b"x");
        for name in ["", ".", "..", "dir/file", "a\0", &"x".repeat(256)] {
            assert_eq!(objects.lookup(ROOT, OsStr::new(name)).unwrap_err().code(), libc::ENOENT);
        }
    }
}
