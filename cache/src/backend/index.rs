//! A store with a given list of names: for a web server's folder, or a bucket that may be read but not listed.
//!
//! The list is fixed for the life of the back end. Bytes and versions come from the store.
//!
//! * **A.** The list has the file's size: finding the file does not ask the store. Opening it does. The first version
//!   that is opened is the one that the list stands for. If a later open finds another version, or the first one finds
//!   another size, that open fails as [`Changed`](BackendError::Changed), and from then on the file is one of B.
//! * **B.** The list does not have the size: finding the file asks the store.
//!
//! A name that is both a file and a folder is a folder.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::{Addressed, Backend, BackendError, Entry, FileInfo, Found, Listing, Opened};

/// Entries that a listing returns at a time.
const PAGE_ENTRIES: usize = 1000;
/// Characters of a wrong line that are shown.
const QUOTED_MAX: usize = 60;

/// A wrong line of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct IndexError {
    /// The line's number, from 1.
    pub line: usize,
    /// What is wrong with the line.
    pub what: String,
}

/// The list: paths of files, sorted, and sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    files: Vec<(Box<str>, Option<u64>)>,
}

impl Index {
    /// Parses a list: on each line a path with `/` between its parts, and optionally a tab and the size in bytes. Empty
    /// lines, lines that begin with `#`, and `./` before a path are ignored. If a path comes twice, the later line
    /// holds.
    ///
    /// # Errors
    /// The first line that is wrong, or whose path cannot be that of a file.
    pub fn parse(text: &[u8]) -> Result<Self, IndexError> {
        let mut files = Vec::new();
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let file = file(line).map_err(|what| IndexError { line: number + 1, what })?;
            files.push(file);
        }
        files.sort_by(|one: &(Box<str>, _), other| one.0.cmp(&other.0));
        files.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.1 = later.1;
            }
            is_same
        });
        files.shrink_to_fit();
        Ok(Index { files })
    }

    /// Number of files that it names.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it names no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The first file by name that is not known to be empty; the first file if all are.
    pub fn first(&self) -> Option<&str> {
        let mut files = self.files.iter();
        let first = files.find(|(_, size)| *size != Some(0)).or(self.files.first());
        first.map(|(path, _)| &**path)
    }

    /// Position of the first path that is not less than `path`.
    fn at_or_behind(&self, path: &str) -> usize {
        self.files.partition_point(|(other, _)| **other < *path)
    }

    fn is_folder(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        let first = self.files.get(self.at_or_behind(&prefix));
        path.is_empty() || first.is_some_and(|(other, _)| other.starts_with(&prefix))
    }

    /// The number of a file; an error if it is also a folder.
    fn file(&self, path: &str) -> Result<usize, BackendError> {
        if self.is_folder(path) {
            let errno = Some(Errno::ISDIR.raw_os_error());
            return Err(BackendError::Other { errno, message: "it is a folder".into() });
        }
        let found = self.files.binary_search_by(|(other, _)| (**other).cmp(path));
        found.map_err(|_| BackendError::NotFound)
    }
}

fn file(line: &[u8]) -> Result<(Box<str>, Option<u64>), String> {
    let text = std::str::from_utf8(line)
        .map_err(|_| format!("{} is not UTF-8", quoted(&String::from_utf8_lossy(line))))?;
    let (path, size) = match text.split_once('\t') {
        Some((path, size)) => {
            let wrong = |_| {
                format!("{} is no size; write the path, a tab, and the size in bytes", quoted(size))
            };
            (path, Some(size.parse().map_err(wrong)?))
        }
        None => (text, None),
    };
    let path = path.strip_prefix("./").unwrap_or(path);
    let is_name = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.contains(|letter: char| letter.is_ascii_control())
    };
    match path.split('/').all(is_name) {
        true => Ok((path.into(), size)),
        false => Err(format!(
            "{} is no path of a file; write the names of its folders and its own, with / between",
            quoted(path)
        )),
    }
}

/// The beginning of a text, quoted for messages.
fn quoted(text: &str) -> String {
    let mut letters = text.chars();
    let beginning: String = letters.by_ref().take(QUOTED_MAX).collect();
    let rest = if letters.next().is_some() { "…" } else { "" };
    format!("{beginning:?}{rest}")
}

/// What is known of a file of case A.
enum Seen {
    /// It was opened as this version.
    As(Arc<[u8]>),
    /// It has changed, or has another size than the list says.
    Changed,
}

/// See the [module](self).
pub struct IndexBackend {
    remote: Arc<dyn Addressed>,
    index: Arc<Index>,
    seen: Mutex<HashMap<usize, Seen>>,
}

impl fmt::Debug for IndexBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexBackend").field("files", &self.index.len()).finish_non_exhaustive()
    }
}

impl IndexBackend {
    /// The files of `remote` that `index` names. `remote` is asked for [files](Addressed::find_file) only, never to list. It
    /// must tell a time or a tag of each file that it finds.
    pub fn new(remote: Arc<dyn Addressed>, index: Index) -> Self {
        IndexBackend { remote, index: Arc::new(index), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<usize, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the list itself tells of a file (A).
    fn listed(&self, number: usize) -> Option<FileInfo> {
        let size_bytes = self.index.files[number].1?;
        let is_changed = matches!(self.seen().get(&number), Some(Seen::Changed));
        (!is_changed).then_some(FileInfo { size_bytes, modified: None, tag: None })
    }
}

impl Backend for IndexBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        self.index.file(path)?;
        self.remote.open(path)
    }

    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        if file.modified.is_some() || file.tag.is_some() {
            return self.remote.open_found(path, file);
        }
        let number = self.index.file(path)?;
        let opened = self.remote.open(path)?;
        let mut seen = self.seen();
        let is_same = match seen.get(&number) {
            Some(Seen::As(version)) => *version == opened.version,
            Some(Seen::Changed) => false,
            None => opened.size_bytes == file.size_bytes,
        };
        match is_same {
            true => drop(seen.insert(number, Seen::As(Arc::clone(&opened.version)))),
            false => drop(seen.insert(number, Seen::Changed)),
        }
        if is_same { Ok(opened) } else { Err(BackendError::Changed) }
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        if self.index.is_folder(path) {
            return Ok(Found::Folder);
        }
        match self.listed(self.index.file(path)?) {
            Some(file) => Ok(Found::File(file)),
            None => self.remote.find_file(path).map(Found::File),
        }
    }

    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        if !self.index.is_folder(path) {
            return Err(BackendError::NotFound);
        }
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let next = self.index.at_or_behind(&prefix);
        Ok(Box::new(IndexListing { index: Arc::clone(&self.index), prefix, next }))
    }

    fn lists_all_of_files(&self) -> bool {
        false
    }

    fn depth(&self) -> usize {
        self.remote.depth()
    }
}

struct IndexListing {
    index: Arc<Index>,
    prefix: String,
    /// Number of the next file.
    next: usize,
}

impl Listing for IndexListing {
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError> {
        let mut entries = Vec::new();
        while let Some((path, _)) = self.index.files.get(self.next)
            && let Some(rest) = path.strip_prefix(&self.prefix)
            && entries.len() < PAGE_ENTRIES
        {
            let Some((name, _)) = rest.split_once('/') else {
                self.next += 1;
                // A name that is also a folder comes as a folder.
                if !self.index.is_folder(path) {
                    entries.push(Entry { name: rest.to_owned(), found: Found::Unasked });
                }
                continue;
            };
            entries.push(Entry { name: name.to_owned(), found: Found::Folder });
            // `0` is the character after the slash, so this skips all paths that begin with `name/`.
            self.next = self.index.at_or_behind(&format!("{}{name}0", self.prefix));
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryBackend;

    fn index(text: &str) -> Index {
        Index::parse(text.as_bytes()).unwrap()
    }

    fn names(backend: &IndexBackend, path: &str) -> Vec<(String, bool)> {
        let mut listing = backend.list(path).unwrap();
        let mut names = Vec::new();
        loop {
            let entries = listing.next_entries().unwrap();
            if entries.is_empty() {
                return names;
            }
            assert!(entries.len() <= PAGE_ENTRIES);
            names.extend(entries.into_iter().map(|e| (e.name, e.found == Found::Folder)));
        }
    }

    #[test]
    fn lines_are_paths_and_sizes() {
        let text = "# what there is\nb/c\t12\r\n\n./a\nb/c d\n./#x\t0\na\t5";
        let index = index(text);
        let files: Vec<(&str, Option<u64>)> = index.files.iter().map(|(p, s)| (&**p, *s)).collect();
        assert_eq!(files, [("#x", Some(0)), ("a", Some(5)), ("b/c", Some(12)), ("b/c d", None)]);
        for (text, line, part) in [
            ("a\n/b", 2, "\"/b\" is no path of a file"),
            ("a//b", 1, "no path"),
            ("a/../b", 1, "no path"),
            ("a/", 1, "no path"),
            ("a\n\n#\nb\tmany", 4, "\"many\" is no size"),
            ("b\t-1", 1, "is no size"),
            ("b\t1\t2", 1, "is no size"),
            ("b\u{1}", 1, "no path"),
        ] {
            let error = Index::parse(text.as_bytes()).unwrap_err();
            assert!(error.line == line && error.what.contains(part), "{text:?}: {error}");
        }
        assert!(Index::parse(b"\xff").unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn folders_are_listed_page_by_page_and_every_name_once() {
        let mut text = String::from("both\nboth-not\nboth.x\nboth/below\nboth0\n");
        for number in 0..2500 {
            text += &format!("many/{number:04}\nmany/{number:04}x/below\nmany/{number:04}x/low\n");
        }
        let backend = IndexBackend::new(Arc::new(MemoryBackend::new()), index(&text));
        let wanted = [("both-not", false), ("both.x", false), ("both", true), ("both0", false)];
        let top = names(&backend, "");
        assert_eq!(top[..4], wanted.map(|(name, is_folder)| (name.to_owned(), is_folder)));
        assert_eq!(top[4], ("many".to_owned(), true));
        assert_eq!(backend.find("both"), Ok(Found::Folder));
        assert!(backend.open("both").is_err());
        let many = names(&backend, "many");
        assert_eq!(many.len(), 5000);
        for (number, pair) in many.chunks(2).enumerate() {
            assert_eq!(pair[0], (format!("{number:04}"), false));
            assert_eq!(pair[1], (format!("{number:04}x"), true));
        }
        assert_eq!(names(&backend, "many/0007x").len(), 2);
        for absent in ["man", "many/0007x/below", "absent", "both-not"] {
            assert_eq!(backend.list(absent).map(|_| ()), Err(BackendError::NotFound), "{absent}");
        }
    }

    #[test]
    fn a_size_is_believed_until_the_store_says_otherwise() {
        let files = MemoryBackend::new();
        files.put("a", *b"five.");
        files.put("wrong", *b"five.");
        files.put("hidden", *b"x");
        let index = index("a\t5\nwrong\t6\nabsent\t1\nunknown");
        let backend = IndexBackend::new(Arc::new(files.clone()), index);
        let size = |path: &str| match backend.find(path) {
            Ok(Found::File(file)) => Ok(file),
            other => Err(other),
        };
        assert_eq!(backend.find("hidden"), Err(BackendError::NotFound));
        assert_eq!(backend.find("unknown"), Err(BackendError::NotFound));
        let absent = size("absent").unwrap();
        assert_eq!(backend.open_found("absent", &absent).unwrap_err(), BackendError::NotFound);
        let wrong = size("wrong").unwrap();
        assert_eq!(wrong.size_bytes, 6);
        assert_eq!(backend.open_found("wrong", &wrong).unwrap_err(), BackendError::Changed);
        let right = size("wrong").unwrap();
        assert_eq!(right.size_bytes, 5);
        assert!(backend.open_found("wrong", &right).is_ok());
        let before = size("a").unwrap();
        for _ in 0..2 {
            assert!(backend.open_found("a", &before).is_ok());
        }
        files.put("a", *b"other");
        for _ in 0..2 {
            assert_eq!(backend.open_found("a", &before).unwrap_err(), BackendError::Changed);
        }
        let after = size("a").unwrap();
        assert_ne!(after, before);
        assert!(backend.open_found("a", &after).is_ok());
    }
}
