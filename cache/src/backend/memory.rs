//! Files in memory, for tests and experiments.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::conformance::World;
use super::{
    Addressed, Backend, BackendError, Entry, FileInfo, Found, Kind, Listing, Object, Opened,
    Request, Whole,
};

/// Files in memory.
pub(super) const KIND: Kind = Kind { name: "memory", by_address: None, worlds };

fn worlds(_: &Path) -> Vec<Box<dyn World>> {
    vec![Box::new(MemoryBackend::new())]
}

#[derive(Clone, Debug)]
struct Version {
    number: u64,
    bytes: Arc<[u8]>,
}

/// Files by path. They may be replaced while they are read. A clone shares the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryBackend {
    files: Arc<Mutex<HashMap<String, Version>>>,
}

impl MemoryBackend {
    /// A back end without files.
    pub fn new() -> Self {
        MemoryBackend::default()
    }

    /// Makes the file at `path`, or replaces it.
    pub fn put(&self, path: &str, bytes: impl Into<Arc<[u8]>>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let number = files.get(path).map_or(0, |version| version.number + 1);
        files.insert(path.to_owned(), Version { number, bytes: bytes.into() });
    }

    /// Removes the file at `path`, if there is one.
    pub fn remove(&self, path: &str) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    fn opened(&self, path: &str, number: u64, size_bytes: u64) -> Opened {
        Opened {
            version: Arc::from(number.to_le_bytes().as_slice()),
            is_exact: true,
            size_bytes,
            object: Arc::new(MemoryObject {
                files: Arc::clone(&self.files),
                path: path.to_owned(),
                number,
            }),
        }
    }
}

impl Version {
    fn info(&self) -> FileInfo {
        let tag = Some(self.number.to_string().into());
        FileInfo { size_bytes: self.bytes.len() as u64, modified: None, tag }
    }
}

/// Files below `folder`, and their paths from there.
fn below<'a>(
    files: &'a HashMap<String, Version>,
    folder: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Version)> {
    files.iter().filter_map(move |(path, version)| match folder {
        "" => Some((path.as_str(), version)),
        _ => Some((path.strip_prefix(folder)?.strip_prefix('/')?, version)),
    })
}

#[derive(Debug)]
struct MemoryObject {
    files: Arc<Mutex<HashMap<String, Version>>>,
    path: String,
    number: u64,
}

impl Backend for MemoryBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let version = files.get(path).ok_or(BackendError::NotFound)?;
        Ok(self.opened(path, version.number, version.bytes.len() as u64))
    }

    fn open_found(&self, path: &str, file: &FileInfo) -> Result<Opened, BackendError> {
        match file.tag.as_deref().and_then(|tag| tag.parse().ok()) {
            Some(number) => Ok(self.opened(path, number, file.size_bytes)),
            None => self.open(path),
        }
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if path.is_empty() || below(&files, path).next().is_some() {
            return Ok(Found::Folder);
        }
        files.get(path).map(|version| Found::File(version.info())).ok_or(BackendError::NotFound)
    }

    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut folders = BTreeSet::new();
        let mut entries = Vec::new();
        for (rest, version) in below(&files, path) {
            match rest.split_once('/') {
                Some((folder, _)) => drop(folders.insert(folder)),
                None => {
                    let found = Found::File(version.info());
                    entries.push(Entry { name: rest.to_owned(), found });
                }
            }
        }
        // A name that is both a file and a folder is a folder, as in `find`.
        entries.retain(|entry| !folders.contains(entry.name.as_str()));
        let folders = folders.into_iter();
        entries.extend(folders.map(|name| Entry { name: name.to_owned(), found: Found::Folder }));
        match entries.is_empty() && !path.is_empty() {
            true => Err(BackendError::NotFound),
            false => Ok(Box::new(Whole::new(entries))),
        }
    }

    fn depth(&self) -> usize {
        16
    }
}

impl Addressed for MemoryBackend {}

impl Object for MemoryObject {
    fn start(self: Arc<Self>, mut request: Request) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let found = files.get(&self.path).filter(|version| version.number == self.number).cloned();
        drop(files); // Completing the request may start the next one.
        let result = match found {
            Some(version) => {
                let from = (request.offset_bytes() as usize).min(version.bytes.len());
                request.fill(&version.bytes[from..]);
                Ok(())
            }
            None => Err(BackendError::Changed),
        };
        request.complete(result);
    }
}

impl World for MemoryBackend {
    fn backend(&self) -> &dyn Backend {
        self
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        MemoryBackend::put(self, path, bytes);
    }

    fn has_files_below_files(&self) -> bool {
        true
    }
}
