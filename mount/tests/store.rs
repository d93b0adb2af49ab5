//! A mount of a bucket on a server that is slow, busy, broken or gone. No byte is wrong, only reads that cannot be
//! served fail, and nothing has to be mounted again.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use common::{Mounted, Random, content, mounted_with};
use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_mount::{Contents, check};
use foretell_testbed::store::{Faults, Outage, Store, StoreOptions};

const LENGTH: usize = 4 << 20;

struct World {
    bucket: std::path::PathBuf,
    store: Store,
    whole: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(faults: Faults) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bucket = folder.path().join("bucket");
        fs::create_dir_all(bucket.join("dir")).unwrap();
        let whole = content(5, LENGTH);
        for number in 0..4 {
            fs::write(bucket.join(format!("dir/{number}")), &whole).unwrap();
        }
        let options = StoreOptions { faults, ..StoreOptions::fast() };
        let store = Store::start(folder.path(), &options).unwrap();
        World { bucket, store, whole, _folder: folder }
    }

    fn backend(&self, deadline: Duration) -> ObjectBackend {
        let endpoint = self.store.endpoint();
        let settings = [
            ("aws_endpoint_url", endpoint.as_str()),
            ("aws_access_key_id", "foretell"),
            ("aws_secret_access_key", "foretell-secret"),
            ("aws_region", "us-east-1"),
        ];
        let silence = Duration::from_secs(1).min(deadline);
        let options = ObjectOptions { deadline, silence, ..ObjectOptions::default() };
        ObjectBackend::configured("s3://bucket", &settings, options).unwrap()
    }

    /// Little memory, so that most reads reach the store.
    fn mounted(&self, deadline: Duration) -> Option<Mounted> {
        mounted_with(Arc::new(self.backend(deadline)), 1 << 20, Duration::ZERO)
    }

    /// Reads in threads, bypassing the kernel's pages. Returns how many reads failed.
    fn read(&self, mount: &Mounted, seed: u64, reads: usize) -> usize {
        let failed = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let failed = &failed;
                scope.spawn(move || {
                    let mut random = Random(seed * 4 + thread);
                    let mut buffer = vec![0; 100_000];
                    let path = mount.path().join(format!("dir/{thread}"));
                    let Ok(file) = File::open(path) else {
                        failed.fetch_add(reads, std::sync::atomic::Ordering::Relaxed);
                        return;
                    };
                    let ranges: Vec<(u64, u64)> = (0..reads)
                        .map(|_| (random.below(LENGTH as u64), 1 + random.below(100_000)))
                        .collect();
                    if seed.is_multiple_of(2) {
                        common::ioctl_hint(&file, &ranges, "").unwrap();
                    }
                    for (at, length) in ranges {
                        let (at, length) = (at as usize, length as usize);
                        let rest = length.min(LENGTH - at);
                        // SAFETY: a plain call on a descriptor that is open.
                        unsafe {
                            use std::os::fd::AsRawFd;
                            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED)
                        };
                        match file.read_exact_at(&mut buffer[..rest], at as u64) {
                            Ok(()) => assert!(
                                buffer[..rest] == self.whole[at..at + rest],
                                "wrong bytes at {at}"
                            ),
                            Err(error) => {
                                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
                                failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        failed.into_inner()
    }
}

#[test]
fn a_server_with_faults_is_asked_again() {
    for faults in [
        Faults { fail_503: 0.2, ..Faults::default() },
        Faults { reset: 0.1, ..Faults::default() },
        Faults { truncate: 0.1, ..Faults::default() },
        Faults { fail_503: 0.1, reset: 0.05, truncate: 0.05 },
    ] {
        let world = World::new(faults);
        let Some(mount) = world.mounted(Duration::from_secs(60)) else { return };
        for seed in 0..2 {
            assert_eq!(world.read(&mount, seed, 40), 0);
        }
    }
}

#[test]
fn while_the_server_is_gone_reads_fail_and_then_do_not() {
    for outage in [Outage::Refuse, Outage::Silent] {
        let world = World::new(Faults::default());
        let Some(mount) = world.mounted(Duration::from_millis(1500)) else { return };
        let open = File::open(mount.path().join("dir/0")).unwrap();
        let mut buffer = vec![0; 4096];
        open.read_exact_at(&mut buffer, 0).unwrap();
        world.store.go_down(outage);
        let error = open.read_exact_at(&mut buffer, 2 << 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        let error = fs::metadata(mount.path().join("dir/1")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        // Data in memory is still served.
        open.read_exact_at(&mut buffer, 0).unwrap();
        assert!(buffer == world.whole[..4096]);
        let stats = fs::read_to_string(mount.path().join(".foretell/stats")).unwrap();
        assert!(stats.contains("cannot read dir/0 at 2"), "{stats}");
        world.store.come_up().unwrap();
        open.read_exact_at(&mut buffer, 2 << 20).unwrap();
        assert!(buffer == world.whole[2 << 20..][..4096]);
        assert_eq!(world.read(&mount, 2, 20), 0);
    }
}

#[test]
fn an_object_that_is_replaced_is_stale_to_who_has_it_open() {
    let world = World::new(Faults::default());
    let Some(mount) = world.mounted(Duration::from_secs(20)) else { return };
    let path = mount.path().join("dir/0");
    let before = File::open(&path).unwrap();
    let mut buffer = vec![0; LENGTH];
    before.read_exact_at(&mut buffer[..4096], 0).unwrap();
    let new = content(6, LENGTH);
    let beside = world.bucket.join("beside");
    fs::write(&beside, &new).unwrap();
    fs::rename(&beside, world.bucket.join("dir/0")).unwrap();
    assert!(fs::read(&path).unwrap() == new);
    let error = before.read_exact_at(&mut buffer[..4096], 3 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
}

#[test]
fn a_store_that_does_not_let_us_in_is_not_mounted() {
    let world = World::new(Faults::default());
    let endpoint = world.store.endpoint();
    let said = |address: &str, secret: &str, endpoint: &str| {
        let settings = [
            ("aws_endpoint_url", endpoint),
            ("aws_access_key_id", "foretell"),
            ("aws_secret_access_key", secret),
            ("aws_region", "us-east-1"),
        ];
        let deadline = Duration::from_millis(300);
        let options = ObjectOptions { deadline, ..ObjectOptions::default() };
        let backend = ObjectBackend::configured(address, &settings, options).unwrap();
        check(&backend, address).map_err(|error| error.to_string())
    };
    assert_eq!(said("s3://bucket", "foretell-secret", &endpoint), Ok(Contents::Some));
    assert_eq!(said("s3://bucket/mistyped", "foretell-secret", &endpoint), Ok(Contents::None));
    for (said, wanted) in [
        (said("s3://bucket", "wrong", &endpoint), "permission denied: SignatureDoesNotMatch"),
        (said("s3://nowhere", "foretell-secret", &endpoint), "there is no such bucket or folder"),
        (said("s3://bucket", "x", "http://127.0.0.1:9"), "no connection: Connection refused"),
    ] {
        let said = said.unwrap_err();
        assert!(said.starts_with("cannot mount s3://") && said.contains(wanted), "{said}");
    }
}
