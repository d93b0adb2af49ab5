//! A writable array passes changes to its backing folder, and has the disks write them.

mod common;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{Folders, fast, write};
use foretell_sim::random::SplitMix64;
use foretell_testbed::{Array, ArrayOptions};

/// A writable array that runs so fast that a test can make thousands of changes.
fn options() -> ArrayOptions {
    ArrayOptions { writable: true, time_scale: 0.000_1, ..fast() }
}

fn mount(folders: &Folders, options: &ArrayOptions) -> Array {
    Array::mount(&folders.backing, &folders.mountpoint, options).expect("mounting works here")
}

/// The variable with the folders that [`serve_for_another_test`] serves.
const SERVE: &str = "FORETELL_TEST_SERVE_WRITABLE";

/// Not a test by itself: a process for another test to kill. It serves until it is killed.
#[test]
fn serve_for_another_test() {
    let Some(folders) = std::env::var_os(SERVE) else { return };
    let folder = Path::new(&folders);
    let array = Array::mount(&folder.join("backing"), &folder.join("mnt"), &options());
    let array = array.expect("mounting works here");
    eprintln!("serving");
    array.wait();
}

#[test]
fn what_a_killed_array_has_acknowledged_is_in_the_folder() {
    needs_fuse!();
    let folders = Folders::with_files(1, 8192);
    let mut server = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "serve_for_another_test", "--nocapture"])
        .env(SERVE, folders.backing.parent().expect("it has one"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let errors = BufReader::new(server.stderr.take().expect("a pipe"));
    assert!(errors.lines().any(|line| line.expect("text").contains("serving")));
    // A program writes numbers until its array is gone. The last that it was told of is in the folder.
    let path = folders.files(1).remove(0);
    let file = OpenOptions::new().write(true).open(path).expect("a file");
    let (begun, has_begun) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let mut last = 0u64;
        while file.write_all_at(&(last + 1).to_le_bytes(), 100).is_ok() {
            last += 1;
            begun.send(()).ok();
        }
        last
    });
    for _ in 0..100 {
        has_begun.recv().expect("a write is acknowledged");
    }
    server.kill().expect("it is mine");
    server.wait().expect("it is mine");
    let last = writer.join().expect("a thread");
    let mut number = [0; 8];
    let backing = File::open(folders.backing.join("f000")).expect("a file");
    backing.read_exact_at(&mut number, 100).expect("a file");
    let number = u64::from_le_bytes(number);
    assert!(number == last || number == last + 1, "{number}, {last} were acknowledged");
    // The dead mount is replaced.
    drop(mount(&folders, &options()));
}

/// The content of the same file on the array, in its backing folder, and in a plain folder.
fn assert_same(folders: &Folders, plain: &Path, name: &str) {
    let expected = fs::read(plain.join(name)).expect("a plain file");
    for folder in [&folders.mountpoint, &folders.backing] {
        let found = fs::read(folder.join(name)).expect("a file");
        assert!(found == expected, "{name} in {} differs", folder.display());
    }
}

#[test]
fn random_writes_are_those_of_a_plain_folder() {
    needs_fuse!();
    let folders = Folders::with_files(4, 100_000);
    let plain = tempfile::tempdir().expect("a temporary folder");
    for index in 0..4 {
        write(&plain.path().join(format!("f{index:03}")), index, 100_000);
    }
    let array = mount(&folders, &options());
    let mut random = SplitMix64::new(7);
    let open = |folder: &Path, name: &str, append: bool| {
        let mut how = OpenOptions::new();
        how.read(true).create(true);
        let how = if append { how.append(true) } else { how.write(true) };
        how.open(folder.join(name)).expect("opened")
    };
    for _ in 0..400 {
        let name = format!("f{:03}", random.below(6)); // Two of them are new.
        let kind = random.below(8);
        let offset = random.below(200_000);
        let bytes: Vec<u8> = (0..random.below(40_000)).map(|_| random.next_u64() as u8).collect();
        for folder in [&*folders.mountpoint, plain.path()] {
            let mut file = open(folder, &name, kind == 0);
            match kind {
                0 => file.write_all(&bytes).expect("appended"),
                1 => file.set_len(offset).expect("cut or extended"),
                2 => {
                    file.seek(SeekFrom::Start(offset)).expect("moved");
                    file.write_all(&bytes).expect("written");
                    file.sync_all().expect("synced");
                }
                _ => file.write_all_at(&bytes, offset).expect("written"),
            }
            let mut found = vec![0; 5000];
            let count = file.read_at(&mut found, offset / 2).expect("read");
            let again = fs::read(folder.join(&name)).expect("read");
            let from = again.len().min((offset / 2) as usize);
            assert_eq!(found[..count], again[from..again.len().min(from + 5000)]);
        }
        assert_same(&folders, plain.path(), &name);
    }
    array.unmount().expect("nothing is open");
    // Cold, from the disks.
    let _array = mount(&folders, &options());
    for entry in fs::read_dir(plain.path()).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        assert_same(&folders, plain.path(), name.to_str().expect("plain"));
    }
}

#[test]
fn names_come_and_go_as_in_a_plain_folder() {
    needs_fuse!();
    let folders = Folders::with_files(3, 5000);
    let _array = mount(&folders, &options());
    let at = |name: &str| folders.mountpoint.join(name);
    let content = |name: &str| fs::read(at(name)).expect("a file");
    let is_there = |name: &str| {
        let there = fs::symlink_metadata(at(name)).is_ok();
        let backing = fs::symlink_metadata(folders.backing.join(name)).is_ok();
        assert_eq!(there, backing, "{name}");
        there
    };
    fs::create_dir_all(at("a/b")).expect("made");
    fs::rename(at("f000"), at("a/b/moved")).expect("renamed");
    assert!(is_there("a/b/moved") && !is_there("f000"));
    // A folder moves, with what is in it and what is open in it.
    let mut open = File::open(at("a/b/moved")).expect("a file");
    fs::rename(at("a"), at("c")).expect("renamed");
    assert_eq!(content("c/b/moved").len(), 5000);
    let mut bytes = Vec::new();
    assert_eq!(open.read_to_end(&mut bytes).expect("still open"), 5000);
    // One file replaces another.
    let second = content("f002");
    fs::rename(at("f002"), at("f001")).expect("replaced");
    assert_eq!(content("f001"), second);
    // Of two links, either can go.
    fs::hard_link(at("f001"), at("link")).expect("linked");
    assert_eq!(fs::metadata(at("f001")).expect("a file").nlink(), 2);
    fs::remove_file(at("f001")).expect("removed");
    assert!(!is_there("f001"));
    assert_eq!(content("link"), second);
    assert_eq!(fs::metadata(at("link")).expect("a file").nlink(), 1);
    symlink("c/b/moved", at("soft")).expect("linked");
    assert_eq!(
        fs::read_link(folders.backing.join("soft")).expect("a link"),
        Path::new("c/b/moved")
    );
    assert_eq!(content("soft").len(), 5000);
    fs::remove_dir(at("c")).expect_err("it is not empty");
    fs::remove_file(at("c/b/moved")).expect("removed");
    fs::remove_dir_all(at("c")).expect("removed");
    assert!(!is_there("c"));
    fs::write(at("link/below"), "x").expect_err("not a folder");
    let new = OpenOptions::new().write(true).create_new(true).open(at("link"));
    assert_eq!(new.expect_err("it exists").raw_os_error(), Some(libc::EEXIST));
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
    let kind = fs::symlink_metadata(folders.backing.join("socket")).expect("it is there");
    assert!(kind.file_type().is_socket());
}

#[test]
fn a_removed_file_goes_on_while_it_is_open() {
    needs_fuse!();
    let folders = Folders::with_files(1, 5000);
    let _array = mount(&folders, &options());
    let path = folders.files(1).remove(0);
    let old = OpenOptions::new().read(true).write(true).open(&path).expect("a file");
    fs::remove_file(&path).expect("removed");
    fs::write(&path, "new").expect("the name is free");
    old.write_all_at(b"old", 4998).expect("still open");
    old.sync_all().expect("still open");
    let metadata = old.metadata().expect("still open");
    assert_eq!((metadata.len(), metadata.nlink()), (5001, 0));
    let mut bytes = [0; 3];
    old.read_exact_at(&mut bytes, 4998).expect("still open");
    assert_eq!(&bytes, b"old");
    old.set_len(1).expect("still open");
    assert_eq!(old.metadata().expect("still open").len(), 1);
    drop(old);
    assert_eq!(fs::read(&path).expect("a file"), b"new");
    assert_eq!(fs::read(folders.backing.join("f000")).expect("a file"), b"new");
}

#[test]
fn files_that_take_each_others_numbers_keep_their_bytes_apart() {
    needs_fuse!();
    let folders = Folders::new();
    let _array = mount(&folders, &options());
    for round in 0..200u32 {
        let path = folders.mountpoint.join("same");
        let bytes = round.to_le_bytes().repeat(2000);
        fs::write(&path, &bytes).expect("written");
        assert_eq!(fs::read(&path).expect("a file"), bytes);
        fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn a_folder_is_emptied_while_it_is_listed() {
    needs_fuse!();
    let folders = Folders::with_files(3000, 1);
    let array = mount(&folders, &options());
    let mut seen = 0;
    for entry in fs::read_dir(&folders.mountpoint).expect("a folder") {
        fs::remove_file(entry.expect("an entry").path()).expect("removed");
        seen += 1;
    }
    assert_eq!(seen, 3000);
    assert_eq!(fs::read_dir(&folders.mountpoint).expect("a folder").count(), 0);
    assert_eq!(array.report().metadata_writes, 3000);
}

#[test]
fn attributes_are_passed_on() {
    needs_fuse!();
    let folders = Folders::with_files(1, 10);
    let _array = mount(&folders, &options());
    let path = folders.files(1).remove(0);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("mine");
    let when = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5000);
    let file = OpenOptions::new().write(true).open(&path).expect("mine");
    file.set_modified(when).expect("mine");
    drop(file);
    let private = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folders.mountpoint.join("private"));
    drop(private.expect("made"));
    for folder in [&folders.mountpoint, &folders.backing] {
        let metadata = fs::metadata(folder.join("f000")).expect("a file");
        assert_eq!(metadata.mode() & 0o7777, 0o640);
        assert_eq!(metadata.modified().expect("a time"), when);
        let private = fs::metadata(folder.join("private")).expect("a file");
        assert_eq!(private.mode() & 0o7777, 0o600);
    }
    // SAFETY: `geteuid` has no conditions.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&path, Some(1234), Some(4321)).expect("root may");
        let metadata = fs::metadata(folders.backing.join("f000")).expect("a file");
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 4321));
    }
}

#[test]
fn what_another_user_makes_is_that_users() {
    needs_fuse!();
    // SAFETY: `geteuid` has no conditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root serves other users");
        return;
    }
    let folders = Folders::new();
    for folder in [folders.backing.parent().expect("a parent"), &folders.backing] {
        fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("mine");
    }
    let _array = mount(&folders, &options());
    let as_other = |script: &str| {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", script]).current_dir("/").uid(65_534).gid(65_534);
        shell.env("at", &folders.mountpoint).status().expect("a shell").success()
    };
    assert!(as_other("mkdir $at/d; echo x > $at/d/f; ln -s f $at/d/l; mv $at/d/f $at/d/g"));
    for name in ["d", "d/g", "d/l"] {
        let metadata = fs::symlink_metadata(folders.backing.join(name)).expect("made");
        assert_eq!((metadata.uid(), metadata.gid()), (65_534, 65_534), "{name}");
    }
    fs::write(folders.mountpoint.join("roots"), "x").expect("written");
    assert!(!as_other("echo y > $at/roots 2> /dev/null"), "it belongs to root");
}

#[test]
fn a_full_disk_is_the_programs_error() {
    needs_fuse!();
    let folders = Folders::new();
    let tmpfs = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "none"])
        .arg(&folders.backing)
        .stderr(Stdio::null())
        .status();
    if !tmpfs.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no small file system can be mounted here");
        return;
    }
    let array = mount(&folders, &options());
    let path = folders.mountpoint.join("big");
    let error = fs::write(&path, vec![1; 1 << 20]).expect_err("no room");
    let kept = fs::read(&path).expect("what had room");
    let backing = fs::read(folders.backing.join("big")).expect("what had room");
    let report = array.unmount();
    Command::new("umount").arg(&folders.backing).status().expect("unmounted");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(kept == backing && kept.iter().all(|byte| *byte == 1) && kept.len() < 1 << 20);
    // Only what was written is paid for.
    let report = report.expect("nothing is open");
    assert!(report.bytes_written <= (256 << 10) + 8192, "{}", report.bytes_written);
}

#[test]
fn writes_are_paid_for() {
    needs_fuse!();
    let folders = Folders::with_files(1, 100_000);
    let array = mount(&folders, &ArrayOptions { metadata: false, ..options() });
    let path = folders.files(1).remove(0);
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    for block in 0..10u64 {
        file.write_all_at(&[1; 4096], block * 8192).expect("written");
    }
    let report = array.report();
    assert_eq!((report.writes, report.bytes_written, report.bytes), (10, 10 * 4096, 0));
    assert_eq!(report.requests, 10);
    // A byte costs its block, and two blocks if it is two bytes across their boundary.
    file.write_all_at(&[2], 5).expect("written");
    file.write_all_at(&[2, 2], 4095).expect("written");
    assert_eq!(array.report().bytes_written, 13 * 4096);
    file.sync_all().expect("synced");
    assert_eq!(array.report().requests, 12);
    assert_eq!(array.report().metadata_writes, 0);
    drop(file);
    array.unmount().expect("nothing is open");

    let array = mount(&folders, &options());
    fs::write(folders.mountpoint.join("new"), [1; 10]).expect("written");
    let report = array.report();
    // Its inode and its folder's block, and its data.
    assert_eq!((report.metadata_writes, report.writes), (1, 3));
    fs::rename(folders.mountpoint.join("new"), folders.mountpoint.join("other")).expect("renamed");
    fs::remove_file(folders.mountpoint.join("other")).expect("removed");
    let report = array.report();
    assert_eq!((report.metadata_writes, report.writes), (3, 5));
    assert_eq!(report.metadata_reads, 0, "what was just made need not be read");
}

#[test]
fn a_mapped_file_is_written_too() {
    needs_fuse!();
    let folders = Folders::with_files(1, 8192);
    let array = mount(&folders, &options());
    let path = folders.files(1).remove(0);
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let (both, shared) =
        (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
    // SAFETY: the mapping is new, 8192 bytes long as the file is, and only used until it is unmapped here.
    unsafe {
        let map =
            rustix::mm::mmap(std::ptr::null_mut(), 8192, both, shared, &file, 0).expect("mapped");
        map.cast::<u8>().add(5000).write(77);
        rustix::mm::msync(map, 8192, rustix::mm::MsyncFlags::SYNC).expect("synced");
        rustix::mm::munmap(map, 8192).expect("unmapped");
    }
    assert_eq!(fs::read(folders.backing.join("f000")).expect("a file")[5000], 77);
    assert!(array.report().writes >= 1);
}
