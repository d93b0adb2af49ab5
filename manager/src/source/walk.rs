//! Hints from a folder: every regular file below it.
//!
//! Files come in the order in which the program visits them ([`Visits`]), and a subfolder's files at the subfolder's place.
//! Many programs visit them as the folder lists them (`grep -r`, `tar c`). Symbolic links are not followed. A folder that
//! cannot be listed is left out: the program will meet the same error and report it.
//!
//! A folder is open only while it is listed. The consumer of the files may be slow, and an open folder keeps its file system
//! from being unmounted. So a folder is listed in parts, each from the place where the last one ended. A part that is to be
//! sorted is larger: only folders beyond 64 Ki entries come in several sorted parts.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{Certainty, Disclosure, Visits};

/// Entries of a part. They take at most 100 KiB for each level of folders, and few folders need more than one part.
const PART_MAX: usize = 1024;

/// Entries of a part that is sorted. They take at most 6 MiB for each level of folders.
const SORTED_MAX: usize = 64 * 1024;

/// An iterator over the files below a folder.
#[derive(Debug)]
pub struct Walk {
    root: Option<PathBuf>,
    visits: Visits,
    levels: Vec<Level>,
}

/// A folder, and its entries that are listed and not yet taken.
#[derive(Debug)]
struct Level {
    folder: PathBuf,
    entries: VecDeque<Entry>,
    /// Where the next part begins, if there is one.
    next: Option<i64>,
}

#[derive(Debug)]
struct Entry {
    name: OsString,
    kind: FileType,
    inode: u64,
}

/// All files below `folder`, which is visited in this order.
pub fn disclosures(folder: PathBuf, visits: Visits) -> Walk {
    Walk { root: Some(folder), visits, levels: Vec::new() }
}

impl Level {
    fn new(folder: PathBuf, visits: Visits) -> Self {
        let mut level = Level { folder, entries: VecDeque::new(), next: None };
        level.list(0, visits);
        level
    }

    fn next(&mut self, visits: Visits) -> Option<(PathBuf, FileType)> {
        if self.entries.is_empty()
            && let Some(next) = self.next.take()
        {
            self.list(next, visits);
        }
        let Entry { name, kind, .. } = self.entries.pop_front()?;
        Some((self.folder.join(name), kind))
    }

    /// Lists the part that begins at `from`, and sorts it.
    fn list(&mut self, from: i64, visits: Visits) {
        let most = if visits == Visits::Listed { PART_MAX } else { SORTED_MAX };
        self.list_part(from, most);
        let entries = self.entries.make_contiguous();
        match visits {
            Visits::Listed => {}
            Visits::ByInode => entries.sort_by_key(|entry| entry.inode),
            Visits::ByName => entries.sort_by(|a, b| a.name.cmp(&b.name)),
            Visits::FilesFirst => {
                let is_folder = |entry: &Entry| entry.kind == FileType::Directory;
                entries.sort_by(|a, b| (is_folder(a), &a.name).cmp(&(is_folder(b), &b.name)));
            }
        }
    }

    /// Lists `most` entries from `from` on.
    fn list_part(&mut self, from: i64, most: usize) {
        let Some(mut folder) = open(&self.folder) else { return };
        if from != 0 && folder.seek(from).is_err() {
            return;
        }
        while let Some(Ok(entry)) = folder.read() {
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = kind_of(&folder, &entry);
                let name = OsStr::from_bytes(name).to_owned();
                self.entries.push_back(Entry { name, kind, inode: entry.ino() });
            }
            if self.entries.len() >= most {
                self.next = Some(entry.offset());
                return;
            }
        }
    }
}

fn open(folder: &Path) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::new(rustix::fs::open(folder, flags, Mode::empty()).ok()?).ok()
}

/// The entry's kind. Not all file systems list it, so it may have to be looked up.
fn kind_of(folder: &Dir, entry: &rustix::fs::DirEntry) -> FileType {
    let look = || {
        let folder = folder.fd().ok()?;
        let found =
            rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    };
    match entry.file_type() {
        FileType::Unknown => look().unwrap_or(FileType::Unknown),
        kind => kind,
    }
}

impl Iterator for Walk {
    type Item = Disclosure;

    fn next(&mut self) -> Option<Disclosure> {
        let visits = self.visits;
        self.levels.extend(self.root.take().map(|root| Level::new(root, visits)));
        loop {
            match self.levels.last_mut()?.next(visits) {
                None => drop(self.levels.pop()),
                Some((path, FileType::Directory)) => self.levels.push(Level::new(path, visits)),
                Some((path, FileType::RegularFile)) => {
                    return Some(Disclosure::whole_file(path, Certainty::File));
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn every_file_below_comes_once_and_a_missing_folder_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for name in ["a", "sub/b", "sub/deeper/c", "z"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, name).expect("written");
        }
        std::os::unix::fs::symlink(root, root.join("loop")).expect("linked");
        let found: Vec<PathBuf> =
            disclosures(root.into(), Visits::Listed).map(|found| found.path).collect();
        let expected = ["a", "sub/b", "sub/deeper/c", "z"].map(|name| root.join(name));
        assert_eq!(found.len(), 4);
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
        assert_eq!(disclosures(root.join("missing"), Visits::Listed).count(), 0);
    }

    #[test]
    fn files_come_in_the_order_of_the_visits() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for name in ["z", "b/y", "a", "b/x", "c"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, name).expect("written");
        }
        let found = |visits| -> Vec<PathBuf> {
            let below = |found: Disclosure| found.path.strip_prefix(root).expect("below").into();
            disclosures(root.into(), visits).map(below).collect()
        };
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(found(Visits::ByName), paths(&["a", "b/x", "b/y", "c", "z"]));
        assert_eq!(found(Visits::FilesFirst), paths(&["a", "c", "z", "b/x", "b/y"]));
        let by_inode = found(Visits::ByInode);
        let inode = |path: &Path| {
            use std::os::unix::fs::MetadataExt;
            let top = path.components().next().expect("a name");
            fs::metadata(root.join(top)).expect("there").ino()
        };
        assert!(by_inode.is_sorted_by_key(|path| inode(path)), "{by_inode:?}");
    }

    #[test]
    fn a_folder_of_many_parts_is_listed_once_and_is_not_open_between() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = (0..3 * PART_MAX + 7).map(|number| folder.path().join(number.to_string()));
        let names: BTreeSet<PathBuf> = names.collect();
        names.iter().for_each(|name| fs::write(name, "").expect("written"));
        let mut walk = disclosures(folder.path().into(), Visits::Listed);
        let first = walk.next().expect("a file").path;
        let open = fs::read_dir("/proc/self/fd").expect("listed").flatten();
        let mut open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        assert!(open.all(|open| open != folder.path()), "it is open");
        let found: Vec<PathBuf> =
            std::iter::once(first).chain(walk.map(|found| found.path)).collect();
        assert_eq!(found.len(), names.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
    }
}
