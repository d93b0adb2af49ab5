//! What the command line and Python ask of a store that an address names, beside reads.
//!
//! A back end in the list of addresses implements [`Addressed`]. Its methods have default bodies, which call [`Backend`].
//! A store overrides a method if it can answer with fewer requests, or knows more.

use std::sync::Arc;

use super::names::{Entry, FileInfo, Found, LeftOut, Listing};
use super::request::Request;
use super::traits::{Backend, Object};
use crate::error::BackendError;

/// A store that an address names.
pub trait Addressed: Backend {
    /// The file at `path`. If the store has a file and a folder of this name, this is the file. Waits for the answer.
    ///
    /// # Errors
    /// As [`open`](Backend::open).
    fn find_file(&self, path: &str) -> Result<FileInfo, BackendError> {
        match self.find(path)? {
            Found::File(file) => Ok(file),
            _ => Err(BackendError::NotFound),
        }
    }

    /// Whether there is a folder at `path`; for "", whether there is such a store. Waits for the answer.
    ///
    /// # Errors
    /// As [`list`](Backend::list).
    fn is_folder(&self, path: &str) -> Result<bool, BackendError> {
        match self.list(path).and_then(|mut names| names.next_entries()) {
            Ok(_) => Ok(true),
            Err(BackendError::NotFound) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    /// Whether the address names a file instead of a folder of files. Waits for the answer; an error counts as no.
    fn is_object(&self) -> bool {
        false
    }

    /// Checks that the file at `path` exists and that parts of it can be read. Waits for the answer.
    ///
    /// # Errors
    /// As [`open`](Backend::open) and reads.
    fn probe(&self, path: &str) -> Result<(), BackendError> {
        let opened = self.open(path)?;
        read(&opened.object, usize::from(opened.size_bytes > 0)).map(drop)
    }

    /// Reads all of the file at `path`, or of the address itself if `path` is empty. Waits for it.
    ///
    /// # Errors
    /// As [`open`](Backend::open) and reads, and if the file has more than `most_bytes`.
    fn read_all(&self, path: &str, most_bytes: usize) -> Result<Vec<u8>, BackendError> {
        let opened = self.open(path)?;
        match usize::try_from(opened.size_bytes) {
            Ok(length) if length <= most_bytes => read(&opened.object, length),
            _ => Err(longer_than(most_bytes)),
        }
    }

    /// Whether a recursive [listing](Self::list_keys) of the whole store has names that no path can express. Waits for
    /// the answer.
    ///
    /// # Errors
    /// Any error of the store.
    fn has_keys_without_a_root(&self) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// Lists the folder at `path`. A name that is both a file and a folder may come twice. If `is_recursive`, lists all
    /// files below the folder, with names relative to it, and no folders.
    ///
    /// # Errors
    /// As [`list`](Backend::list).
    fn list_keys(
        self: Arc<Self>,
        path: &str,
        is_recursive: bool,
    ) -> Result<Box<dyn Listing>, BackendError> {
        let listing = self.list(path)?;
        if !is_recursive {
            return Ok(listing);
        }
        let (path, left_out) = (path.to_owned(), LeftOut::default());
        let listed = Some((String::new(), listing));
        Ok(Box::new(Below { store: self, path, listed, folders: Vec::new(), left_out }))
    }
}

/// The error of a file that is too long to be read as a whole.
pub(super) fn longer_than(most_bytes: usize) -> BackendError {
    let message = format!("it is longer than {most_bytes} bytes").into();
    BackendError::Other { errno: None, message }
}

/// Reads the beginning of a file, and waits.
fn read(object: &Arc<dyn Object>, length: usize) -> Result<Vec<u8>, BackendError> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let (request, ended) = Request::into_memory(vec![0; length], 0, true, length);
    Arc::clone(object).start(request);
    let (bytes, result) = ended.recv().map_err(|_| BackendError::Lost)?;
    result.map(|()| bytes)
}

/// The files below a folder, folder by folder.
struct Below<S: ?Sized> {
    store: Arc<S>,
    path: String,
    /// The folder that is being listed, from `path` on.
    listed: Option<(String, Box<dyn Listing>)>,
    /// Folders to be listed.
    folders: Vec<String>,
    /// Keys that listings which have ended left out.
    left_out: LeftOut,
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

impl<S: Backend + ?Sized> Listing for Below<S> {
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError> {
        loop {
            let Some((folder, listing)) = &mut self.listed else {
                let Some(folder) = self.folders.pop() else { return Ok(Vec::new()) };
                let listing = self.store.list(&joined(&self.path, &folder))?;
                self.listed = Some((folder, listing));
                continue;
            };
            let entries = listing.next_entries()?;
            if entries.is_empty() {
                self.left_out = self.left_out();
                self.listed = None;
                continue;
            }
            let mut files = Vec::new();
            for Entry { name, found } in entries {
                let name = joined(folder, &name);
                match found {
                    Found::Folder => self.folders.push(name),
                    found => files.push(Entry { name, found }),
                }
            }
            if !files.is_empty() {
                return Ok(files);
            }
        }
    }

    fn left_out(&self) -> LeftOut {
        let mut all = self.left_out.clone();
        if let Some((_, listing)) = &self.listed {
            let more = listing.left_out();
            all.count += more.count;
            all.example = all.example.or(more.example);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryBackend;

    #[test]
    fn a_store_without_bodies_of_its_own_answers_by_those_of_its_back_end() {
        let files = MemoryBackend::new();
        for path in ["a", "b/c", "b/d/e", "b/d/f/g"] {
            files.put(path, path.as_bytes());
        }
        files.put("empty", *b"");
        let store: Arc<dyn Addressed> = Arc::new(files);
        assert_eq!(store.find_file("b/c").map(|file| file.size_bytes), Ok(3));
        for absent in ["b", "b/x"] {
            assert_eq!(store.find_file(absent), Err(BackendError::NotFound), "{absent}");
        }
        for (path, is_folder) in [("", true), ("b/d", true), ("x", false)] {
            assert_eq!(store.is_folder(path), Ok(is_folder), "{path}");
        }
        assert!(!store.is_object());
        assert_eq!(store.has_keys_without_a_root(), Ok(false));
        assert_eq!(store.read_all("b/d/e", 5), Ok(b"b/d/e".to_vec()));
        assert_eq!(store.read_all("empty", 5), Ok(Vec::new()));
        let error = store.read_all("b/d/e", 4).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 4 bytes");
        assert_eq!(store.probe("a").and(store.probe("empty")), Ok(()));
        assert_eq!(store.probe("x"), Err(BackendError::NotFound));
        for (path, is_recursive, wanted) in [
            ("", true, &["a", "b/c", "b/d/e", "b/d/f/g", "empty"][..]),
            ("b", true, &["c", "d/e", "d/f/g"]),
            ("b", false, &["c", "d"]),
        ] {
            let mut listing = Arc::clone(&store).list_keys(path, is_recursive).unwrap();
            let mut names = Vec::new();
            loop {
                let entries = listing.next_entries().unwrap();
                if entries.is_empty() {
                    break;
                }
                names.extend(entries.into_iter().map(|entry| entry.name));
            }
            names.sort();
            assert_eq!(names, wanted, "{path} {is_recursive}");
            assert_eq!(listing.left_out(), LeftOut::default());
        }
        assert_eq!(store.list_keys("x", true).map(drop), Err(BackendError::NotFound));
    }
}
