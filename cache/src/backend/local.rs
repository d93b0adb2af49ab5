//! Local files: a folder, and its names. What becomes of files when they are open is in `files`.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::files::{Identity, LocalFile, OpenFile, Readers};
use super::uring::Ring;
use super::{Backend, BackendError, Entry, FileInfo, Found, Listing, Opened, Whole};

/// Requests at once, unless somebody says how many: what keeps a solid-state disk busy, and no disk too long.
const DEPTH: usize = 32;

/// A folder, and what reads its files.
pub struct LocalBackend {
    root: PathBuf,
    readers: Arc<Readers>,
}

impl fmt::Debug for LocalBackend {
    /// Says what reads, and why not a ring.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads_by = match self.without_ring() {
            None => "io_uring".to_owned(),
            Some(why) => format!("threads ({why})"),
        };
        f.debug_struct("LocalBackend")
            .field("root", &self.root)
            .field("reads_by", &reads_by)
            .finish()
    }
}

impl LocalBackend {
    /// The files below `root`, read by io_uring where that can be had, and else by threads; so many requests at once,
    /// or as many as there are descriptors for.
    ///
    /// # Errors
    /// That `root` is not a folder.
    pub fn new(root: impl Into<PathBuf>, depth: Option<usize>) -> io::Result<Self> {
        Self::with(root.into(), depth.unwrap_or(DEPTH), || Some(Ring::new()))
    }

    /// The files below `root`, read by so many threads.
    ///
    /// # Errors
    /// That `root` is not a folder.
    pub fn blocking(root: impl Into<PathBuf>, threads: usize) -> io::Result<Self> {
        Self::with(root.into(), threads, || None)
    }

    fn with(
        root: PathBuf,
        depth: usize,
        ring: impl FnOnce() -> Option<io::Result<Ring>>,
    ) -> io::Result<Self> {
        if !std::fs::metadata(&root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let readers = Arc::new(Readers::new(ring(), depth));
        Ok(LocalBackend { root, readers })
    }

    /// Why io_uring is not used; `None` if it is. Files on which its reads would wait are read by threads all the same.
    pub fn without_ring(&self) -> Option<String> {
        match &self.readers.ring {
            Some(Ok(_)) => None,
            Some(Err(error)) => Some(error.to_string()),
            None => Some("threads were asked for".to_owned()),
        }
    }
}

impl Drop for LocalBackend {
    /// Requests that have not begun fail as lost; files may be open longer.
    fn drop(&mut self) {
        self.readers.close();
    }
}

impl LocalBackend {
    /// Where the file at `path` is: names lead nowhere but down; links may.
    fn place(&self, path: &str) -> Result<PathBuf, BackendError> {
        let path = Path::new(path);
        match path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            true => Ok(self.root.join(path)),
            false => Err(BackendError::NotFound),
        }
    }

    /// A file that is open, and whose bytes may change while it is: whoever opens it says when
    /// ([`File::changed`](crate::File::changed)). Its version is what it is now; reads are made of what there is, and fail as
    /// [`Changed`](BackendError::Changed) if there is less than was told.
    pub fn open_changing(&self, file: File, version: Arc<[u8]>, size_bytes: u64) -> Opened {
        let object = OpenFile::changing(file, size_bytes, &self.readers);
        Opened { version, size_bytes, object }
    }

    /// Whether there are descriptors to spare for another such file, for somebody who can do without it.
    pub fn can_hold_more(&self) -> bool {
        self.readers.can_hold_more()
    }

    fn opened(
        &self,
        place: PathBuf,
        file: File,
        metadata: &Metadata,
    ) -> Result<Opened, BackendError> {
        let identity = Identity::of(metadata);
        let object = LocalFile::opened(place, file, metadata, &self.readers)?;
        Ok(Opened { version: identity.version(), size_bytes: metadata.len(), object })
    }
}

fn info(metadata: &Metadata) -> FileInfo {
    FileInfo {
        size_bytes: metadata.len(),
        modified: metadata.modified().ok(),
        tag: Some(Identity::of(metadata).tag()),
    }
}

fn found(path: &Path) -> io::Result<Option<Found>> {
    let metadata = std::fs::metadata(path)?;
    Ok(if metadata.is_dir() {
        Some(Found::Folder)
    } else if metadata.is_file() {
        Some(Found::File(info(&metadata)))
    } else {
        None
    })
}

impl Backend for LocalBackend {
    fn open(&self, path: &str) -> Result<Opened, BackendError> {
        let place = self.place(path)?;
        let (file, metadata) = self.readers.open(&place)?;
        self.opened(place, file, &metadata)
    }

    /// A file is opened by its name, so it may be another by now: that is told at once.
    fn open_found(&self, path: &str, wanted: &FileInfo) -> Result<Opened, BackendError> {
        let place = self.place(path)?;
        let (file, metadata) = self.readers.open(&place)?;
        match info(&metadata) == *wanted {
            true => self.opened(place, file, &metadata),
            false => Err(BackendError::Changed),
        }
    }

    fn find(&self, path: &str) -> Result<Found, BackendError> {
        found(&self.place(path)?)?.ok_or(BackendError::NotFound)
    }

    /// Links that lead nowhere, what is neither file nor folder, and names that are not UTF-8 are left out.
    fn list(&self, path: &str) -> Result<Box<dyn Listing>, BackendError> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.place(path)?)? {
            let entry = entry?;
            if let (Ok(name), Ok(Some(found))) =
                (entry.file_name().into_string(), found(&entry.path()))
            {
                entries.push(Entry { name, found });
            }
        }
        Ok(Box::new(Whole::new(entries)))
    }

    fn depth(&self) -> usize {
        self.readers.depth
    }
}

#[cfg(test)]
mod tests;
