//! What may happen to a store: damaged and foreign files, killed writers, several at once, no room and no permission.
//!
//! In all cases: no crash, no profile is accepted that was not written, and what an update has written stays until a later one
//! writes. `FORETELL_STORE_CASES` sets the number of random cases; `scripts/check-deep` has 100,000.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use foretell_learn::codec;
use foretell_learn::profile::{Kind, Last, Profile, Weighted};
use foretell_learn::steps::{Acts, Part};
use foretell_learn::store::{STORE_MAX_FILES, Store, StoreError};

const KEY: &[u8] = b"\x01\x02\x03\x04";
const OTHER: &[u8] = b"\x01\x02\x03\x05";

fn cases() -> u64 {
    std::env::var("FORETELL_STORE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Random numbers by xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// The profile that the update of this number writes. All of it follows from the number, so that a mixture is seen.
fn made(number: u32) -> Profile {
    let mut random = Random(u64::from(number) + 1);
    let step = |at: usize, random: &mut Random| {
        let start = random.next() % 1000 * 8192;
        let bytes = 8192 * (1 + random.next() % 9);
        let part = |at| (Part { start: start + at * bytes, end: start + (at + 1) * bytes }, 1.0);
        Weighted {
            path: format!("/{number}/{at}/{}", random.next()).as_bytes().into(),
            acts: Acts::OPEN | Acts::READ,
            at_ms: random.next() as u32,
            seen: number,
            weight: 1.0,
            parts: (0..random.below(3) as u64).rev().map(part).collect(),
        }
    };
    Profile {
        name: format!("number {number}"),
        kind: Kind::Alike,
        folder: Vec::new(),
        last: Some(Last { expected: number, ..Last::default() }),
        runs: number,
        steps: (0..20).map(|at| step(at, &mut random)).collect(),
    }
}

fn write(store: &Store, key: &[u8], number: u32) -> Result<(), StoreError> {
    store.update(key, "name", |profile| *profile = made(number))
}

/// The number of what is known under the key. Panics if it is anything else than an update has written.
fn number(store: &Store, key: &[u8]) -> Option<u32> {
    match store.load(key) {
        Ok(Some(profile)) => {
            assert_eq!(profile, made(profile.runs), "a profile that was never written");
            Some(profile.runs)
        }
        Ok(None) => None,
        Err(error) => panic!("{error}"),
    }
}

fn file(store: &Store, ending: &str) -> PathBuf {
    store.folder().join(format!("01020304.{ending}"))
}

fn fresh() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::at(folder.path().join("store"));
    (folder, store)
}

/// Damages `bytes` in one of many ways.
fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let (at, length) = (random.below(bytes.len()), 1 + random.below(64));
    let end = (at + length).min(bytes.len());
    match random.below(9) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at),
        2 => bytes[at..end].fill(0),
        3 => bytes[at..end].fill_with(|| random.next() as u8),
        4 => bytes.extend_from_slice(&other[..random.below(other.len())]),
        5 => bytes.splice(at..end, other.iter().copied().take(length)).for_each(drop),
        6 => drop(bytes.drain(at..end)),
        7 => bytes.rotate_left(at),
        _ => {
            // With a right sum: what is checked beyond it must not crash.
            bytes[at..end].fill_with(|| random.next() as u8);
            if bytes.len() > 20 {
                let (length, sum) = (bytes.len() - 20, crc32fast::hash(&bytes[20..]));
                bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
                bytes[16..20].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

#[test]
fn damaged_files_are_set_aside_and_learned_anew() {
    let (_folder, store) = fresh();
    let mut random = Random(0x5eed);
    for case in 0..cases() {
        let number_of = |at: u64| (case * 3 + at) as u32;
        write(&store, OTHER, number_of(0)).expect("written");
        write(&store, KEY, number_of(1)).expect("written");
        let right = codec::encode(KEY, &made(number_of(1)));
        let mut bytes = right.clone();
        damage(&mut bytes, &codec::encode(OTHER, &made(number_of(0))), &mut random);
        fs::write(file(&store, "profile"), &bytes).expect("written");
        let is_right = codec::decode(&bytes).is_ok();
        match store.load(KEY) {
            Err(StoreError::Damaged(path, _)) => {
                assert!(!is_right && !path.exists(), "case {case}");
                assert!(file(&store, "damaged").exists(), "case {case}");
            }
            Ok(None) => assert!(is_right, "case {case}: of another key"),
            Ok(Some(profile)) => {
                assert!(is_right, "case {case}");
                assert!(bytes != right || profile == made(number_of(1)), "case {case}");
            }
            Err(error) => panic!("case {case}: {error}"),
        }
        // A writer that was killed while it wrote leaves this.
        let cut = random.below(bytes.len() + 1);
        fs::write(file(&store, "new"), &bytes[..cut]).expect("written");
        assert_eq!(number(&store, OTHER), Some(number_of(0)), "case {case}");
        write(&store, KEY, number_of(2)).expect("written");
        assert_eq!(number(&store, KEY), Some(number_of(2)), "case {case}");
        assert!(!file(&store, "new").exists(), "case {case}");
    }
}

/// Puts something into the folder that may be called like the files of the store.
fn litter(folder: &Path, outside: &Path, random: &mut Random) -> PathBuf {
    let names: [&[u8]; 9] = [
        b"01020304.profile",
        b"01020304.new",
        b"01020304.damaged",
        b"0102030405.profile",
        b"private",
        b"notes.txt",
        b"\xff\xfe",
        b"0102.profile.old",
        b"zz.profile",
    ];
    let path = folder.join(std::ffi::OsStr::from_bytes(names[random.below(names.len())]));
    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    let made = match random.below(6) {
        0 => fs::create_dir(&path).and_then(|()| fs::write(path.join("x"), "x")),
        1 => symlink(outside, &path),
        2 => symlink("/dev/zero", &path),
        3 => rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .map_err(Into::into),
        4 => std::os::unix::net::UnixListener::bind(&path).map(drop),
        _ => fs::write(&path, vec![random.next() as u8; random.below(5000)]),
    };
    made.expect("littered");
    path
}

#[test]
fn garbage_in_the_folder_neither_harms_nor_is_harmed() {
    let (folder, store) = fresh();
    let outside = folder.path().join("outside");
    let secret = codec::encode(KEY, &made(7));
    fs::write(&outside, &secret).expect("written");
    let mut random = Random(0xbad5eed);
    write(&store, OTHER, 1).expect("written");
    for case in 0..cases() {
        let path = litter(store.folder(), &outside, &mut random);
        match store.load(KEY) {
            Ok(_) | Err(StoreError::Damaged(..)) => {}
            Err(error) => panic!("case {case}: {error}"),
        }
        assert!(store.list().iter().any(|kept| kept.key == OTHER), "case {case}");
        // A folder in the place of a file cannot be replaced, which is an error that names it.
        if let Err(error) = write(&store, KEY, case as u32) {
            assert!(error.to_string().contains("01020304"), "case {case}: {error}");
        }
        assert_eq!(number(&store, OTHER), Some(1), "case {case}");
        let name = path.file_name().expect("a name").as_bytes();
        if !name.starts_with(b"0102030") {
            assert!(path.symlink_metadata().is_ok(), "case {case}: {}", path.display());
        }
        assert_eq!(fs::read(&outside).expect("there"), secret, "case {case}");
        let _ = store.clean();
    }
}

#[test]
fn a_link_to_a_profile_is_no_profile() {
    let (folder, store) = fresh();
    write(&store, OTHER, 1).expect("written");
    let outside = folder.path().join("outside");
    fs::write(&outside, codec::encode(KEY, &made(7))).expect("written");
    symlink(&outside, file(&store, "profile")).expect("linked");
    assert!(matches!(store.load(KEY), Err(StoreError::Damaged(..))));
    assert_eq!(number(&store, KEY), None);
    write(&store, KEY, 2).expect("written");
    assert_eq!(fs::read(&outside).expect("there"), codec::encode(KEY, &made(7)));
}

#[test]
fn a_lock_that_is_a_link_or_a_folder_is_an_error_and_not_followed() {
    for is_link in [false, true] {
        let (folder, store) = fresh();
        let (lock, outside) = (store.folder().join("lock"), folder.path().join("outside"));
        fs::create_dir(store.folder()).expect("made");
        match is_link {
            true => symlink(&outside, &lock).expect("linked"),
            false => fs::create_dir(&lock).expect("made"),
        }
        let error = write(&store, KEY, 1).expect_err("no lock").to_string();
        assert!(error.contains("lock") && !outside.exists(), "{error}");
    }
}

#[test]
fn foreign_files_are_neither_counted_nor_removed() {
    let (_folder, store) = fresh();
    fs::create_dir(store.folder()).expect("made");
    let foreign = ["a.profile.bak", "profile", ".profile", "0g.profile", "0A.profile", "private"];
    let old = SystemTime::now() - Duration::from_secs(1_000_000);
    for name in foreign {
        let file = File::create(store.folder().join(name)).expect("made");
        file.set_len(1 << 40).expect("sparse");
        file.set_modified(old).expect("set");
    }
    for at in 0..STORE_MAX_FILES as u32 + 3 {
        fs::write(store.folder().join(format!("ff{at:06x}.profile")), "x").expect("written");
    }
    write(&store, KEY, 1).expect("written");
    let left = fs::read_dir(store.folder()).expect("listed").count();
    assert_eq!(left, STORE_MAX_FILES + foreign.len() + 1, "the lock is one more");
    assert!(foreign.iter().all(|name| store.folder().join(name).exists()));
    assert_eq!(number(&store, KEY), Some(1));
}

/// Not a test: the writer that others kill. It writes ascending numbers, and tells each when it is written.
#[test]
#[ignore = "started by other tests"]
fn writer() {
    let Some(folder) = std::env::var_os("FORETELL_TEST_STORE") else { return };
    let store = Store::at(folder.into());
    loop {
        let mut number = 0;
        let result = store.update(KEY, "name", |profile| {
            number = profile.runs + 1;
            *profile = made(number);
        });
        result.expect("written");
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "#{number}").and_then(|()| stdout.flush());
    }
}

/// A process that writes into the store, and what it tells. It is killed when this is dropped.
struct Writer {
    child: Child,
    told: BufReader<ChildStdout>,
}

impl Writer {
    fn start(store: &Store) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", "writer", "--ignored", "--nocapture", "--test-threads=1"])
            .env("FORETELL_TEST_STORE", store.folder())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let told = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut writer = Writer { child, told };
        assert!(writer.told().is_some(), "it writes");
        writer
    }

    /// The next number that it has written; `None` if there is no more.
    fn told(&mut self) -> Option<u32> {
        let mut line = String::new();
        while self.told.read_line(&mut line).expect("text") > 0 {
            if let Some((_, number)) = line.split_once('#') {
                return number.trim().parse().ok();
            }
            line.clear();
        }
        None
    }

    /// Kills it. Returns the numbers that it has told.
    fn kill(mut self) -> Vec<u32> {
        self.child.kill().expect("killed");
        std::iter::from_fn(|| self.told()).collect()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn killed_writers_lose_nothing_that_was_written() {
    let (_folder, store) = fresh();
    let mut random = Random(0x4b1d);
    let mut least = 0;
    for round in 0..(cases() / 50).clamp(8, 1000) {
        let writers: Vec<Writer> = (0..1 + round % 3).map(|_| Writer::start(&store)).collect();
        std::thread::sleep(Duration::from_micros(random.next() % 3000));
        for writer in writers {
            least = writer.kill().into_iter().fold(least, u32::max);
        }
        let found = number(&store, KEY).expect("written");
        assert!(found >= least, "round {round}: {found}, and {least} was written");
    }
    write(&store, KEY, 1).expect("written");
    assert!(!file(&store, "new").exists());
}

#[test]
fn readers_see_whole_profiles_while_writers_write() {
    let (_folder, store) = fresh();
    let writers: Vec<Writer> = (0..3).map(|_| Writer::start(&store)).collect();
    let mut last = 0;
    for _ in 0..cases() {
        let found = number(&store, KEY).expect("written");
        assert!(found >= last, "{found} after {last}");
        last = found;
    }
    drop(writers);
}

#[test]
fn updates_of_processes_add_up() {
    let (_folder, store) = fresh();
    let writers: Vec<Writer> = (0..4).map(|_| Writer::start(&store)).collect();
    std::thread::sleep(Duration::from_millis(50));
    let mut told: Vec<u32> = writers.into_iter().flat_map(Writer::kill).collect();
    told.sort_unstable();
    let count = told.len();
    told.dedup();
    assert_eq!(told.len(), count, "two updates have counted the same run");
}

#[test]
fn a_folder_that_others_may_write_into_is_not_used() {
    let (_folder, store) = fresh();
    write(&store, KEY, 1).expect("written");
    for mode in [0o777, 0o770, 0o1777, 0o702] {
        fs::set_permissions(store.folder(), Permissions::from_mode(mode)).expect("set");
        let errors = [
            store.load(KEY).map(drop).expect_err("refused"),
            write(&store, KEY, 2).expect_err("refused"),
            store.forget(KEY).map(drop).expect_err("refused"),
            store.survey(|_| {}).map(drop).expect_err("refused"),
        ];
        for error in errors {
            assert!(matches!(error, StoreError::Writable(_)), "{error}");
            assert!(error.to_string().contains("chmod go-w"), "{error}");
        }
    }
    fs::set_permissions(store.folder(), Permissions::from_mode(0o755)).expect("set");
    assert_eq!(number(&store, KEY), Some(1));
}

/// Whether this is root; if not, says that the test is skipped.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = writeln!(std::io::stderr(), "skipped: not root");
    }
    is_root
}

#[test]
fn a_folder_of_another_user_is_not_used() {
    if !is_root() {
        return;
    }
    let (_folder, store) = fresh();
    write(&store, KEY, 1).expect("written");
    std::os::unix::fs::chown(store.folder(), Some(12345), None).expect("given away");
    let error = store.load(KEY).expect_err("refused");
    assert!(matches!(error, StoreError::Foreign(_)), "{error}");
    assert!(write(&store, KEY, 2).expect_err("refused").to_string().contains("FORETELL_STATE"));
}

/// A small file system in memory, unmounted at the end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null());
        let is_mounted = mount.status().is_ok_and(|status| status.success());
        if !is_mounted {
            let _ = writeln!(std::io::stderr(), "skipped: no tmpfs can be mounted");
        }
        is_mounted.then_some(Mounted(folder))
    }

    fn remount(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,{options}")]).arg(self.0.path());
        assert!(mount.status().expect("it runs").success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_keeps_what_was_learned_before() {
    let mounted = || Mounted::new("size=64k,mode=0700");
    let Some(disk) = is_root().then(mounted).flatten() else { return };
    let store = Store::at(disk.0.path().join("store"));
    write(&store, KEY, 1).expect("written");
    let fill = disk.0.path().join("fill");
    let mut filler = File::create(&fill).expect("made");
    while filler.write_all(&[1; 512]).is_ok() {}
    let error = write(&store, KEY, 2).expect_err("full").to_string();
    assert!(error.contains("01020304") && error.contains("No space"), "{error}");
    assert_eq!(number(&store, KEY), Some(1));
    assert!(!file(&store, "new").exists());
    assert!(store.forget(KEY).expect("removed"));
    fs::remove_file(fill).expect("removed");
    write(&store, KEY, 3).expect("written");
    assert_eq!(number(&store, KEY), Some(3));
}

#[test]
fn a_read_only_folder_is_read() {
    let Some(disk) = is_root().then(|| Mounted::new("mode=0700")).flatten() else { return };
    let store = Store::at(disk.0.path().join("store"));
    write(&store, KEY, 1).expect("written");
    fs::write(store.folder().join("01020305.profile"), "x").expect("written");
    disk.remount("ro");
    assert_eq!(number(&store, KEY), Some(1));
    assert!(matches!(store.load(OTHER), Err(StoreError::Damaged(..))), "it stays, and is told");
    let error = write(&store, KEY, 2).expect_err("read-only").to_string();
    assert!(error.contains("Read-only"), "{error}");
    assert_eq!(store.list().len(), 1);
}
