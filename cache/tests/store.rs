//! The cache over a real S3 server that is slow, busy, broken, or gone. No byte is wrong, only reads that cannot be
//! served fail, and nothing has to be restarted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foretell_cache::backend::conformance::{self, content};
use foretell_cache::backend::index::{Index, IndexBackend};
use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::backend::{Backend, BackendError, Found};
use foretell_cache::tier::{Tier, TierOptions};
use foretell_cache::{Cache, CacheOptions, Segment, Session};
use foretell_testbed::store::{Faults, Outage, Store, StoreOptions};

const LENGTH: usize = 8 << 20;

struct World {
    _folder: tempfile::TempDir,
    bucket: std::path::PathBuf,
    store: Store,
    whole: Vec<u8>,
}

impl World {
    fn new(faults: Faults) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bucket = folder.path().join("bucket");
        std::fs::create_dir_all(bucket.join("dir")).unwrap();
        let whole = content(5, LENGTH);
        std::fs::write(bucket.join("dir/object"), &whole).unwrap();
        let options = StoreOptions { faults, ..StoreOptions::fast() };
        let store = Store::start(folder.path(), &options).unwrap();
        World { _folder: folder, bucket, store, whole }
    }

    fn backend(&self, options: ObjectOptions) -> ObjectBackend {
        let endpoint = self.store.endpoint();
        let settings = [
            ("aws_endpoint_url", endpoint.as_str()),
            ("aws_access_key_id", "foretell"),
            ("aws_secret_access_key", "foretell-secret"),
            ("aws_region", "us-east-1"),
        ];
        ObjectBackend::configured("s3://bucket/dir", &settings, options).unwrap()
    }

    fn session(&self, deadline: Duration) -> (Cache, Session) {
        let options =
            ObjectOptions { deadline, silence: Duration::from_secs(2), ..ObjectOptions::default() };
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let session = cache.attach(Arc::new(self.backend(options))).session();
        (cache, session)
    }

    /// Replaces the object atomically.
    fn replace(&self, bytes: &[u8]) {
        let beside = self.bucket.join("beside");
        std::fs::write(&beside, bytes).unwrap();
        std::fs::rename(&beside, self.bucket.join("dir/object")).unwrap();
    }
}

/// Reads in a disclosed order. Returns the number of failed reads.
fn read_disclosed(session: &Session, whole: &[u8], reads: u64, seed: u64) -> usize {
    let file = session.open("object").unwrap();
    let segments: Vec<Segment> = (0..reads)
        .map(|turn| Segment {
            offset_bytes: (seed + turn * 7_919_123) % (LENGTH as u64 - 40_000),
            length_bytes: 1 + (seed + turn * 104_729) % 40_000,
        })
        .collect();
    let stream = session.stream();
    stream.hint_segments(&file, &segments);
    let mut buffer = vec![0; 40_000];
    let mut failed = 0;
    for segment in segments {
        let (at, length) = (segment.offset_bytes as usize, segment.length_bytes as usize);
        match file.read_at(&mut buffer[..length], segment.offset_bytes) {
            Ok(count) => {
                assert_eq!(count, length);
                assert!(buffer[..length] == whole[at..at + length], "wrong bytes at {at}");
            }
            Err(_) => failed += 1,
        }
    }
    failed
}

#[test]
fn a_busy_and_broken_server_costs_time_and_no_read() {
    let world = World::new(Faults { fail_503: 0.2, reset: 0.1, truncate: 0.1 });
    let (cache, session) = world.session(Duration::from_secs(120));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (session, whole) = (&session, &world.whole);
            scope.spawn(move || assert_eq!(read_disclosed(session, whole, 60, seed * 1013), 0));
        }
    });
    let report = world.store.report();
    assert!(report.failed_503 > 0 && report.resets > 0 && report.truncated > 0, "{report:?}");
    world.store.set_faults(Faults::default()).unwrap();
    assert_eq!(read_disclosed(&session, &world.whole, 60, 77), 0);
    assert!(cache.stats().requests_failed > 0, "{:?}", cache.stats());
}

#[test]
fn a_server_that_has_gone_is_an_error_and_one_that_comes_back_is_not() {
    let world = World::new(Faults::default());
    let (_cache, session) = world.session(Duration::from_millis(500));
    assert_eq!(read_disclosed(&session, &world.whole, 20, 1), 0);
    for outage in [Outage::Refuse, Outage::Silent] {
        let file = session.open("object").unwrap();
        world.store.go_down(outage);
        // A read is served from memory or fails as a whole. It never returns wrong bytes.
        let mut buffer = vec![0; LENGTH];
        let error = file.read_at(&mut buffer, 0).unwrap_err();
        assert!(error.to_string().starts_with("cannot read object at "), "{error}");
        assert!(!error.to_string().contains('\n'));
        world.store.come_up().unwrap();
        assert_eq!(read_disclosed(&session, &world.whole, 20, 3), 0);
    }
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_is_one_or_the_other() {
    let mut world = World::new(Faults::default());
    let (_cache, session) = world.session(Duration::from_secs(20));
    let before = session.open("object").unwrap();
    let mut buffer = vec![0; 100_000];
    before.read_at(&mut buffer, 0).unwrap();
    assert!(buffer == world.whole[..100_000]);
    let new = content(6, LENGTH);
    world.replace(&new);
    // A handle on the old version may get its blocks from memory; the rest cannot be read.
    let error = before.read_at(&mut buffer, 4 << 20).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    world.whole = new;
    assert_eq!(read_disclosed(&session, &world.whole, 60, 9), 0);
}

#[test]
fn what_the_second_tier_has_is_served_when_the_server_has_gone() {
    let mut world = World::new(Faults { fail_503: 0.1, reset: 0.1, truncate: 0.1 });
    let folder = tempfile::tempdir().unwrap();
    let tier = Tier::open(&TierOptions {
        folder: folder.path().join("tier"),
        budget_bytes: 2 * LENGTH as u64,
        block_bytes: 8192,
        keep: true,
    })
    .unwrap();
    let options = ObjectOptions { silence: Duration::from_secs(2), ..ObjectOptions::default() };
    let backend = Arc::new(tier.over("s3://bucket/dir", Arc::new(world.backend(options))));
    let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
    let session = cache.attach(backend).session();
    assert_eq!(read_disclosed(&session, &world.whole, 60, 5), 0);
    let file = session.open("object").unwrap();
    let read = |file: &foretell_cache::File, whole: &[u8]| {
        let mut buffer = vec![0; 64 << 10];
        for at in (0..LENGTH).step_by(buffer.len()) {
            file.read_at(&mut buffer, at as u64).unwrap();
            assert!(buffer == whole[at..at + buffer.len()], "wrong bytes at {at}");
        }
    };
    read(&file, &world.whole);
    tier.settle();
    world.store.go_down(Outage::Refuse);
    read(&file, &world.whole);
    world.store.come_up().unwrap();
    let stats = tier.stats();
    assert!(stats.hit_blocks > 0 && stats.corrupt_blocks == 0, "{stats:?}");
    // A new object of this name is a new file here.
    let new = content(6, LENGTH);
    world.replace(&new);
    world.whole = new;
    read(&session.open("object").unwrap(), &world.whole);
}

#[test]
fn a_silent_server_is_a_timeout_whoever_notices_it_first() {
    let world = World::new(Faults::default());
    world.store.go_down(Outage::Silent);
    // The client's own time is up first, at the same time, and last.
    for silence in [100, 300, 300, 300, 900].map(Duration::from_millis) {
        let deadline = Duration::from_millis(300);
        let options = ObjectOptions { deadline, silence, ..ObjectOptions::default() };
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let session = cache.attach(Arc::new(world.backend(options))).session();
        let error = session.open("object").unwrap_err();
        assert_eq!(error.cause, BackendError::Timeout(deadline), "{silence:?}");
    }
    world.store.come_up().unwrap();
}

#[test]
fn what_a_server_says_is_told_in_one_line() {
    let world = World::new(Faults::default());
    let (_cache, session) = world.session(Duration::from_millis(300));
    let absent = session.open("absent").unwrap_err().to_string();
    assert_eq!(absent, "cannot open absent: not found");
    let endpoint = world.store.endpoint();
    let open = |address: &str, settings: &[(&str, &str)]| {
        let options =
            ObjectOptions { deadline: Duration::from_millis(300), ..ObjectOptions::default() };
        let all: Vec<(&str, &str)> = [("aws_region", "us-east-1"), ("aws_endpoint_url", &endpoint)]
            .into_iter()
            .chain(settings.iter().copied())
            .collect();
        let backend =
            ObjectBackend::configured(address, &all, options).map_err(|e| e.to_string())?;
        let cache = Cache::new(CacheOptions::default()).unwrap();
        let opened = cache.attach(Arc::new(backend)).session().open("object");
        opened.map(|_| ()).map_err(|error| error.to_string())
    };
    let keys = [("aws_access_key_id", "foretell"), ("aws_secret_access_key", "wrong")];
    for (error, part) in [
        (open("s3://bucket/dir", &keys).unwrap_err(), "permission denied"),
        (open("s3://nowhere", &[("aws_skip_signature", "true")]).unwrap_err(), "not found"),
        (open("s3://bucket", &[("aws_colour", "green")]).unwrap_err(), "aws_colour"),
    ] {
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
    // The first names, as a mount asks for them.
    let list = |address: &str, settings: &[(&str, &str)]| {
        let settings: Vec<(&str, &str)> =
            [("aws_region", "us-east-1")].into_iter().chain(settings.iter().copied()).collect();
        let options =
            ObjectOptions { deadline: Duration::from_millis(300), ..ObjectOptions::default() };
        let backend = ObjectBackend::configured(address, &settings, options).unwrap();
        backend.list("").map(|_| ()).map_err(|error| error.to_string())
    };
    let (at, unsigned) = (("aws_endpoint_url", endpoint.as_str()), ("aws_skip_signature", "true"));
    let nobody = ("aws_endpoint_url", "http://127.0.0.1:9");
    for (said, wanted) in [
        (list("s3://nowhere", &[at, unsigned]), "not found"),
        (list("s3://bucket", &[at, keys[0], keys[1]]), "permission denied: SignatureDoesNotMatch"),
        (
            list("s3://bucket", &[nobody, unsigned]),
            "no connection: Connection refused (os error 111)",
        ),
    ] {
        assert_eq!(said, Err(wanted.to_owned()));
    }
    assert_eq!(open("s3://bucket/dir", &[("aws_skip_signature", "true")]), Ok(()));
    let none =
        ObjectBackend::configured("s3://b", &[("aws_endpoint_url", "")], ObjectOptions::default());
    assert!(none.unwrap_err().to_string().contains("does not begin with http"));
    assert!(Path::new(&world.bucket).exists());
}

struct Bucket(World, Box<dyn Backend>);

impl conformance::World for Bucket {
    fn backend(&self) -> &dyn Backend {
        &*self.1
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.0.bucket.join("dir").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let beside = self.0.bucket.join("beside");
        std::fs::write(&beside, bytes).unwrap();
        std::fs::rename(&beside, path).unwrap();
    }
}

#[test]
fn a_real_bucket_conforms() {
    let world = World::new(Faults::default());
    let backend = world.backend(ObjectOptions::default());
    conformance::check(&Bucket(world, Box::new(backend)));
}

#[test]
fn a_real_bucket_by_a_list_of_what_it_has_conforms_and_is_not_listed() {
    let names = "dir/any\nmany\ndir/there\nreplaced\nnames/a file\nnames/deep/er/file\nnames/empty";
    let world = World::new(Faults::default());
    let remote = Arc::new(world.backend(ObjectOptions::default()).unlisted());
    let backend = IndexBackend::new(remote, Index::parse(names.as_bytes()).unwrap());
    let bucket = Bucket(world, Box::new(backend));
    conformance::check(&bucket);
    assert_eq!(bucket.0.store.report().lists, 0);
}

#[test]
fn a_folder_of_many_pages_is_listed_page_by_page() {
    let world = World::new(Faults::default());
    for number in 0..2_300 {
        let name = format!("dir/many/{number:05}");
        match number % 10 {
            0 => {
                std::fs::create_dir_all(world.bucket.join(&name)).unwrap();
                std::fs::write(world.bucket.join(name).join("below"), b"").unwrap();
            }
            _ => {
                std::fs::create_dir_all(world.bucket.join("dir/many")).unwrap();
                std::fs::write(world.bucket.join(name), b"x").unwrap();
            }
        }
    }
    // No path can name these.
    std::fs::write(world.bucket.join("dir/many/00499\n"), b"x").unwrap();
    std::fs::create_dir(world.bucket.join("dir/many/01700\u{7f}")).unwrap();
    std::fs::write(world.bucket.join("dir/many/01700\u{7f}/below"), b"x").unwrap();
    let backend = world.backend(ObjectOptions::default());
    let mut listing = backend.list("many").unwrap();
    let (mut pages, mut names) = (0, BTreeSet::new());
    loop {
        let entries = listing.next_entries().unwrap();
        if entries.is_empty() {
            break;
        }
        assert!(entries.len() <= 1000, "a page at a time");
        pages += 1;
        for entry in entries {
            let is_folder = entry.found == Found::Folder;
            assert_eq!(is_folder, entry.name.parse::<u32>().unwrap() % 10 == 0, "{}", entry.name);
            assert!(names.insert(entry.name), "a name comes once");
        }
    }
    assert_eq!(names.len(), 2_300);
    let left_out = listing.left_out();
    assert_eq!(left_out.count, 2);
    assert_eq!(left_out.example.as_deref(), Some("dir/many/00499\n"));
    assert!(pages < 60, "{pages}");
}
