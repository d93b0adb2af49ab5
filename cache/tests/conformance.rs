//! Every kind of back end passes the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use foretell_cache::backend::conformance::check;
use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::{AddressOptions, KINDS, at};

/// The back ends of a folder that this machine supports, by what reads.
fn backends(root: &std::path::Path) -> Vec<(&'static str, LocalBackend)> {
    let mut backends = vec![("threads", LocalBackend::blocking(root, 4).unwrap())];
    let ring = LocalBackend::new(root, None).unwrap();
    match ring.without_ring() {
        None => backends.push(("io_uring", ring)),
        Some(why) => eprintln!("skipped: io_uring ({why})"),
    }
    backends
}

/// Folders of file systems that are read in different ways: on a disk, with direct I/O if possible, and in memory.
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
fn each_kind_of_back_end_conforms() {
    for folder in folders() {
        for kind in KINDS {
            let worlds = (kind.worlds)(folder.path());
            assert!(!worlds.is_empty(), "{}", kind.name);
            for world in worlds {
                eprintln!("{}: {}", folder.path().display(), kind.name);
                check(&*world);
            }
        }
    }
}

#[test]
fn an_address_is_opened_by_the_kind_that_has_its_scheme() {
    let deadline = Duration::from_secs(1);
    let options =
        AddressOptions { depth: None, deadline, silence: None, settings: &[], environment: None };
    let said =
        |address: &str| at(address, &options).map(|it| it.identity).map_err(|e| e.to_string());
    assert_eq!(said("http://user:secret@host/data"), Ok("http://host/data".to_owned()));
    let by_address = || KINDS.iter().filter_map(|kind| kind.by_address);
    let schemes: Vec<&str> = by_address().flat_map(|it| it.schemes).copied().collect();
    for scheme in ["s3", "gs", "az", "http", "https"] {
        assert!(schemes.contains(&scheme), "{scheme} is not one of {schemes:?}");
    }
    let wanted = format!("an address begins with {}://", schemes.join("://, "));
    let (first, last) = wanted.rsplit_once(", ").unwrap();
    let wanted = format!("{first} or {last}");
    assert_eq!(said("nobody://user:secret@host"), Err(format!("nobody://host: {wanted}")));
    assert_eq!(said("folder"), Err(format!("folder: {wanted}")));
    for scheme in by_address().flat_map(|it| it.schemes.iter().chain(it.aliases)) {
        // The address has no bucket or host.
        let error = said(&format!("{scheme}://")).unwrap_err();
        assert!(!error.contains("an address begins with"), "{error}");
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
