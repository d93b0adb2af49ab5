//! Each back end does what all must.

use std::sync::Arc;

use foretell_cache::backend::Backend;
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::conformance::{World, check};
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
}

#[test]
fn memory_conforms() {
    check(&Memory(MemoryBackend::new()));
}

struct Folder(tempfile::TempDir, LocalBackend);

impl World for Folder {
    fn backend(&self) -> &dyn Backend {
        &self.1
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let beside = path.with_extension("new");
        std::fs::write(&beside, bytes).unwrap();
        std::fs::rename(beside, path).unwrap();
    }
}

#[test]
fn blocking_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let backend = LocalBackend::blocking(folder.path(), 4).unwrap();
    check(&Folder(folder, backend));
}

#[test]
fn a_file_that_is_written_over_is_not_served_as_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let backend = LocalBackend::blocking(folder.path(), 1).unwrap();
    std::fs::write(folder.path().join("file"), [1; 5000]).unwrap();
    let cache = foretell_cache::Cache::new(Default::default()).unwrap();
    let session = cache.attach(Arc::new(backend)).session();
    let before = session.open("file").unwrap();
    let mut bytes = [0; 5000];
    std::fs::write(folder.path().join("file"), [2; 4000]).unwrap();
    let error = before.read_at(&mut bytes, 0).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    assert_eq!(session.open("file").unwrap().read_at(&mut bytes, 0).unwrap(), 4000);
    assert!(bytes[..4000].iter().all(|&byte| byte == 2));
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
