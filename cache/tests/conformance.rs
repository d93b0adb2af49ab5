//! Each back end does what all must.

use std::path::PathBuf;
use std::sync::Arc;

use foretell_cache::backend::Backend;
use foretell_cache::backend::conformance::{World, check};
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};

struct Memory(MemoryBackend);

impl World for Memory {
    fn backend(&self) -> &dyn Backend {
        &self.0
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.put(path, bytes);
    }

    fn has_files_below_files(&self) -> bool {
        true
    }
}

#[test]
fn memory_conforms() {
    check(&Memory(MemoryBackend::new()));
}

struct Folder {
    root: PathBuf,
    backend: LocalBackend,
    /// What is written is put on the disk, and leaves the page cache.
    is_cold: bool,
}

impl World for Folder {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let beside = path.with_extension("new");
        std::fs::write(&beside, bytes).unwrap();
        if self.is_cold {
            let file = std::fs::File::open(&beside).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        std::fs::rename(beside, path).unwrap();
    }
}

/// The back ends of a folder that there are here, by what reads.
fn backends(root: &std::path::Path) -> Vec<(&'static str, LocalBackend)> {
    let mut backends = vec![("threads", LocalBackend::blocking(root, 4).unwrap())];
    let ring = LocalBackend::new(root, None).unwrap();
    match ring.without_ring() {
        None => backends.push(("io_uring", ring)),
        Some(why) => eprintln!("skipped: io_uring ({why})"),
    }
    backends
}

/// Folders of file systems that are read in different ways: a disk's, past the page cache if it can; in memory, and not.
fn folders() -> Vec<tempfile::TempDir> {
    let mut folders = vec![
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    ];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(folder) => folders.push(folder),
        Err(error) => eprintln!("skipped: a file system in memory (/dev/shm: {error})"),
    }
    folders
}

#[test]
fn folders_conform() {
    for (folder, is_cold) in folders().iter().flat_map(|folder| [(folder, false), (folder, true)]) {
        for (_, backend) in backends(folder.path()) {
            check(&Folder { root: folder.path().into(), backend, is_cold });
        }
    }
}

#[test]
fn a_file_that_is_written_over_is_not_served_as_what_it_was() {
    for folder in folders() {
        for (name, backend) in backends(folder.path()) {
            let path = folder.path().join("file");
            std::fs::write(&path, [1; 5000]).unwrap();
            let cache = foretell_cache::Cache::new(Default::default()).unwrap();
            let session = cache.attach(Arc::new(backend)).session();
            let before = session.open("file").unwrap();
            let mut bytes = [0; 5000];
            std::fs::write(&path, [2; 4000]).unwrap();
            let error = before.read_at(&mut bytes, 0).unwrap_err();
            assert!(error.to_string().contains("changed"), "{name}: {error}");
            assert_eq!(session.open("file").unwrap().read_at(&mut bytes, 0).unwrap(), 4000);
            assert!(bytes[..4000].iter().all(|&byte| byte == 2), "{name}");
        }
    }
}

struct Objects(Arc<InMemory>, ObjectBackend, tokio::runtime::Runtime);

impl World for Objects {
    fn backend(&self) -> &dyn Backend {
        &self.1
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path =
            Path::from("below").join("here").parts().chain(Path::from(path).parts()).collect();
        self.2.block_on(self.0.put(&path, bytes.to_vec().into())).unwrap();
    }

    fn has_files_below_files(&self) -> bool {
        true
    }
}

#[test]
fn object_conforms() {
    let store = Arc::new(InMemory::new());
    let shared: Arc<dyn ObjectStore> = store.clone();
    let prefix = Path::from("below/here");
    let backend = ObjectBackend::new(shared, prefix, ObjectOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    check(&Objects(store, backend, runtime));
}
