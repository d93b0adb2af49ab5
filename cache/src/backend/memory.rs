//! Files in memory: for tests, and to try things out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Backend, BackendError, Object, Opened, Request};

#[derive(Clone, Debug)]
struct Version {
    number: u64,
    bytes: Arc<[u8]>,
}

/// Files by path. They may be replaced while they are read. A clone has the same files.
#[derive(Clone, Debug, Default)]
pub struct MemoryBackend {
    files: Arc<Mutex<HashMap<String, Version>>>,
}

impl MemoryBackend {
    /// No files.
    pub fn new() -> Self {
        MemoryBackend::default()
    }

    /// Makes the file at `path`, or replaces it.
    pub fn put(&self, path: &str, bytes: impl Into<Arc<[u8]>>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let number = files.get(path).map_or(0, |version| version.number + 1);
        files.insert(path.to_owned(), Version { number, bytes: bytes.into() });
    }
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
        Ok(Opened {
            version: Arc::from(version.number.to_le_bytes().as_slice()),
            size_bytes: version.bytes.len() as u64,
            object: Arc::new(MemoryObject {
                files: Arc::clone(&self.files),
                path: path.to_owned(),
                number: version.number,
            }),
        })
    }

    fn depth(&self) -> usize {
        16
    }
}

impl Object for MemoryObject {
    fn start(self: Arc<Self>, mut request: Request) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let found = files.get(&self.path).filter(|version| version.number == self.number).cloned();
        drop(files); // What follows may start the next request.
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
