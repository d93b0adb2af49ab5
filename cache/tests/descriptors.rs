//! More open files than descriptors. A process of its own, since it lowers its limit of descriptors.

use std::sync::Arc;

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::{Cache, CacheOptions};
use rustix::process::{Resource, getrlimit, setrlimit};

const DESCRIPTORS: u64 = 64;
const FILES: usize = 300;

fn bytes(which: usize) -> Vec<u8> {
    (0..10_000).map(|at| (at / 7 + which) as u8).collect()
}

#[test]
fn more_files_are_hinted_and_open_than_there_are_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, limit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let name = |which| format!("file {which}");
    let backends: [fn(&std::path::Path) -> std::io::Result<LocalBackend>; 2] =
        [|root| LocalBackend::new(root, None), |root| LocalBackend::blocking(root, 4)];
    for make in backends {
        for which in 0..FILES {
            std::fs::write(folder.path().join(name(which)), bytes(which)).unwrap();
        }
        let backend = make(folder.path()).unwrap();
        eprintln!("{backend:?}");
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 4096 }).unwrap();
        let session = cache.attach(Arc::new(backend)).session();
        let files: Vec<_> = (0..FILES).map(|which| session.open(&name(which)).unwrap()).collect();
        let stream = session.stream();
        files.iter().for_each(|file| stream.hint_file(file));
        let mut buffer = vec![0; 20_000];
        for _ in 0..2 {
            for (which, file) in files.iter().enumerate() {
                assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_000, "{which}");
                assert!(buffer[..10_000] == bytes(which), "{which}");
            }
        }
        assert!(cache.stats().prefetched_blocks > 0, "{:?}", cache.stats());

        // The first file has been closed, and nothing of it is in memory.
        let place = folder.path().join(name(0));
        std::fs::rename(&place, folder.path().join("other")).unwrap();
        let gone = files[0].read_at(&mut buffer, 0).unwrap_err();
        assert!(gone.to_string().contains("changed"), "{gone}");
        std::fs::write(&place, bytes(1)).unwrap();
        let replaced = files[0].read_at(&mut buffer, 0).unwrap_err();
        assert!(replaced.to_string().contains("changed"), "{replaced}");
        std::fs::rename(folder.path().join("other"), &place).unwrap();
        let again = session.open(&name(0)).unwrap();
        assert_eq!(again.read_at(&mut buffer, 0).unwrap(), 10_000);
        assert!(buffer[..10_000] == bytes(0));
    }
}
