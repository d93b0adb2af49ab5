//! Mounts and stores with `--tier redis://…`, which share what they fetch, and a server that is not as it should be.

#![allow(clippy::print_stdout)]

mod common;
#[path = "../../cache/tests/redis/mod.rs"]
mod redis;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::{foretell, have_fuse, text, wait_until};
use foretell_cache::{CacheOptions, Lent};
use foretell_family::{Place, Recipe, Source, Way};
use foretell_testbed::store::{Store, StoreOptions};
use redis::Server;

/// A bucket with one object.
struct Bucket {
    store: Store,
    bytes: Vec<u8>,
    _folder: tempfile::TempDir,
}

fn content() -> Vec<u8> {
    (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

impl Bucket {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("bucket")).expect("made");
        let bytes = content();
        fs::write(folder.path().join("bucket/f"), &bytes).expect("written");
        let store = Store::start(folder.path(), &StoreOptions::fast()).expect("it starts");
        Bucket { store, bytes, _folder: folder }
    }
}

fn mount(bucket: &Bucket, mountpoint: &Path, options: &[&str]) -> Command {
    let mut command = foretell();
    command.args(["mount", "s3://bucket"]).arg(mountpoint).args(options).stdin(Stdio::null());
    command.env("AWS_ENDPOINT_URL", bucket.store.endpoint()).env("AWS_SKIP_SIGNATURE", "true");
    command.env("AWS_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// A mount in the foreground.
struct Mounted {
    child: Child,
    mountpoint: tempfile::TempDir,
    said: std::path::PathBuf,
}

impl Mounted {
    fn new(bucket: &Bucket, options: &[&str], variables: &[(&str, &str)]) -> Self {
        static MOUNTS: AtomicU64 = AtomicU64::new(0);
        let mountpoint = tempfile::tempdir().expect("a folder");
        let number = MOUNTS.fetch_add(1, Ordering::SeqCst);
        let said = mountpoint.path().with_extension(format!("said{number}"));
        let file = fs::File::create(&said).expect("created");
        let mut command = mount(bucket, mountpoint.path(), options);
        let child = command
            .arg("--foreground")
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn();
        let child = child.expect("foretell runs");
        wait_until("it is mounted", || mountpoint.path().join("f").exists());
        Mounted { child, mountpoint, said }
    }

    fn read(&self) -> std::io::Result<Vec<u8>> {
        fs::read(self.mountpoint.path().join("f"))
    }

    fn fleet(&self) -> serde_json::Value {
        let stats = fs::read(self.mountpoint.path().join(".foretell/stats")).expect("read");
        let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
        stats["fleet"].clone()
    }

    /// Ends it as Ctrl-C does. Returns what it said on standard error.
    fn end(mut self) -> String {
        // SAFETY: a system call about a child that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let status = self.child.wait().expect("it ends");
        let said = fs::read_to_string(&self.said).expect("read");
        let _ = fs::remove_file(&self.said);
        assert!(status.success(), "{said}");
        said
    }
}

#[test]
fn mounts_with_one_server_fetch_each_block_once() {
    if !have_fuse() {
        return;
    }
    let Some(server) = Server::start(&["--requirepass", "a-password"]) else { return };
    let bucket = Bucket::new();
    let tier = server.url("");
    let disk = tempfile::tempdir().expect("a folder");
    let disk = disk.path().to_str().expect("UTF-8");
    let password = [("FORETELL_TIER_PASSWORD", "a-password")];
    // The second one has a local disk before the server.
    let first = Mounted::new(&bucket, &["--tier", &tier], &password);
    assert!(first.read().expect("read") == bucket.bytes);
    let blocks = bucket.bytes.len().div_ceil(16384) as u64;
    wait_until("its blocks are put", || first.fleet()["put_blocks"] == blocks);
    let second = Mounted::new(&bucket, &["--tier", disk, "--tier", &tier], &password);
    assert!(second.read().expect("read") == bucket.bytes);
    let fleet = second.fleet();
    assert_eq!(
        (&fleet["hit_blocks"], &fleet["missed_blocks"]),
        (&blocks.into(), &0.into()),
        "{fleet}"
    );
    let said = [first.end(), second.end()].concat();
    assert!(!said.contains("a-password"), "{said}");
}

#[test]
fn a_server_that_hangs_costs_time_alone_and_ctrl_c_ends_the_mount() {
    if !have_fuse() {
        return;
    }
    let Some(server) = Server::start(&[]) else { return };
    let bucket = Bucket::new();
    let mounted = Mounted::new(&bucket, &["--tier", &server.url("")], &[]);
    server.freeze();
    assert!(mounted.read().expect("read") == bucket.bytes);
    let fleet = mounted.fleet();
    assert!(fleet["server_errors"].as_u64() > Some(0), "{fleet}");
    let said = mounted.end();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("shared tier: ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    server.thaw();
}

#[test]
fn a_panic_of_a_thread_costs_one_request() {
    if !have_fuse() || !cfg!(debug_assertions) {
        return;
    }
    let Some(server) = Server::start(&[]) else { return };
    let bucket = Bucket::new();
    let panics = [("FORETELL_TEST_PANIC", "foretell-fleet")];
    let mounted = Mounted::new(&bucket, &["--tier", &server.url("")], &panics);
    // The first read may fail, with an error that programs expect of file systems.
    let _ = mounted.read();
    let begun = Instant::now();
    let read = loop {
        match mounted.read() {
            Ok(read) => break read,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(read == bucket.bytes);
    let said = mounted.end();
    assert!(said.contains("foretell-fleet"), "{said}");
}

#[test]
fn what_is_wrong_with_a_tier_is_one_line() {
    let bucket = Bucket::new();
    let folder = tempfile::tempdir().expect("a folder");
    let folder_name = folder.path().to_str().expect("UTF-8");
    for (tiers, why) in [
        (&["redis://:pw@host:0"][..], "--tier redis://host:0: host:0 has no port from 1 to 65535"),
        (&["http://host"], "begins with redis://"),
        (&["redis://a", "redis://b"], "give one folder and one address at most"),
        (&[folder_name, folder_name], "give one folder and one address at most"),
        (&["redis://:pw@a?lease=1"], "lease=1: write a time such as"),
    ] {
        let mnt = tempfile::tempdir().expect("a folder");
        let options: Vec<&str> = tiers.iter().flat_map(|tier| ["--tier", tier]).collect();
        let output = mount(&bucket, mnt.path(), &options).output().expect("foretell runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        assert!(!said.contains("pw"), "{said}");
    }
    let mnt = tempfile::tempdir().expect("a folder");
    let mut of_folder = foretell();
    of_folder.arg("mount").args([folder.path(), mnt.path()]).args(["--tier", "redis://a"]);
    let said = of_folder.output().expect("foretell runs");
    assert!(
        text(&said.stderr).contains("files of a folder have no version"),
        "{}",
        text(&said.stderr)
    );
}

/// With this variable, [`reader`] reads the object of the bucket through the daemon's cache, with the tier that it names.
const ROLE: &str = "FORETELL_TEST_FLEET_READER";

#[test]
fn reader() {
    let Ok(tier) = std::env::var(ROLE) else { return };
    let recipe = Recipe {
        place: Place::Address("s3://bucket".into()),
        options: CacheOptions::default(),
        depth: None,
        deadline: Duration::from_secs(60),
        settings: Vec::new(),
        is_shared: true,
        tier: Some(tier),
    };
    let source = Source::of(&recipe, None).expect("a store");
    let from = source.clone();
    let open = Arc::new(move |path: &OsStr| from.open(path));
    let way = Way::new(&recipe, source.backend(), open).expect("a cache");
    let file = way.open(OsStr::new("f")).expect("it is there");
    let mut bytes = vec![0; file.size_bytes() as usize];
    let length = bytes.len();
    // SAFETY: the buffer is not used until the read has ended.
    if let Err(partly) = unsafe { file.read_now(bytes.as_mut_ptr(), length, 0) } {
        // SAFETY: as above.
        let lent = unsafe { Lent::new(bytes.as_mut_ptr(), length, Arc::new(())) };
        file.read_rest(lent, partly, &mut || false).expect("read");
    }
    assert!(bytes == content(), "wrong bytes");
    println!("read right through {:?}", way.sharing().cache);
}

#[test]
fn a_daemons_cache_has_the_tier_of_its_stores() {
    let Some(server) = Server::start(&[]) else { return };
    let bucket = Bucket::new();
    for turn in 0..2 {
        let daemon = Daemon::start_with(&["--cache", "16MiB"]);
        let mut reader = Command::new(std::env::current_exe().expect("a path"));
        reader.args(["--exact", "reader", "--nocapture"]).env("FORETELL_DAEMON", daemon.path());
        reader.env(ROLE, server.url("")).env("AWS_ENDPOINT_URL", bucket.store.endpoint());
        reader.env("AWS_SKIP_SIGNATURE", "true").env("AWS_REGION", "us-east-1");
        let output = reader.output().expect("it runs");
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said} {}", text(&output.stderr));
        assert!(said.contains("read right through Daemon"), "{said}");
        let blocks = bucket.bytes.len().div_ceil(16384) as u64;
        let fleet = || daemon.status()["cache"]["fleet"].clone();
        // The second daemon finds what the first one has put.
        match turn {
            0 => wait_until("all is put", || fleet()["put_blocks"] == blocks),
            _ => assert_eq!(
                (&fleet()["hit_blocks"], &fleet()["missed_blocks"]),
                (&blocks.into(), &0.into())
            ),
        }
    }
}
