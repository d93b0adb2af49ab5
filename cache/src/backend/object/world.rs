//! A bucket in memory, for the conformance suite.

use std::path::Path as Folder;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Runtime};

use super::ObjectBackend;
use super::options::ObjectOptions;
use crate::backend::Backend;
use crate::backend::conformance::World;

/// Objects below a prefix.
struct Bucket {
    store: Arc<InMemory>,
    backend: ObjectBackend,
    runtime: Runtime,
}

impl World for Bucket {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = Path::from("below/here").parts().chain(Path::from(path).parts()).collect();
        let put = self.runtime.block_on(self.store.put(&path, bytes.to_vec().into()));
        put.expect("memory takes what it is given");
    }

    fn has_files_below_files(&self) -> bool {
        true
    }
}

pub(super) fn worlds(_: &Folder) -> Vec<Box<dyn World>> {
    let store = Arc::new(InMemory::new());
    let shared: Arc<dyn ObjectStore> = Arc::clone(&store) as _;
    let prefix = Path::from("below/here");
    let backend = ObjectBackend::new(shared, prefix, ObjectOptions::default());
    let backend = backend.expect("threads can be started");
    let runtime = Builder::new_current_thread().build().expect("a runtime can be made");
    vec![Box::new(Bucket { store, backend, runtime })]
}
