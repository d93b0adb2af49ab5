//! Mounting and unmounting, including failures.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Folders, fast, is_mounted, will_need};
use foretell_testbed::{
    Array, ArrayError, ArrayOptions, Ending, LayoutKind, MountError, unmount_path,
};

/// The variable with the folders that [`serve_for_another_test`] serves.
const SERVE: &str = "FORETELL_TEST_SERVE";

/// Not a test by itself: a process for other tests to kill. It serves until it is killed.
#[test]
fn serve_for_another_test() {
    let Some(folders) = std::env::var_os(SERVE) else { return };
    let folder = Path::new(&folders);
    let slow = ArrayOptions { time_scale: 100.0, metadata: false, ..ArrayOptions::default() };
    let array = Array::mount(&folder.join("backing"), &folder.join("mnt"), &slow);
    let array = array.expect("mounting works here");
    eprintln!("serving");
    array.wait();
}

/// Runs [`serve_for_another_test`] in a process of its own.
fn serve(folders: &Folders) -> Child {
    let me = std::env::current_exe().expect("this test");
    let mut child = Command::new(me)
        .args(["--exact", "serve_for_another_test", "--nocapture"])
        .env(SERVE, folders.backing.parent().expect("it has one"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("serving") {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a pipe") > 0, "it did not mount");
    }
    child
}

fn kill(child: &mut Child) {
    child.kill().expect("it is mine");
    child.wait().expect("it is mine");
}

#[test]
fn unmounting_leaves_nothing_behind() {
    needs_fuse!();
    let folders = Folders::with_files(3, 10_000);
    let array = Array::mount(&folders.backing, &folders.mountpoint, &fast()).expect("mounting");
    assert!(is_mounted(&folders.mountpoint));
    assert_eq!(array.mountpoint(), folders.mountpoint);
    let handle = array.handle();
    array.unmount().expect("nothing is open");
    assert!(!is_mounted(&folders.mountpoint));
    assert_eq!(fs::read_dir(&folders.mountpoint).expect("a folder").count(), 0);
    // A handle outlives its array.
    handle.request_unmount();
    assert_eq!(handle.report().requests, 0);
    // Dropping does the same as unmounting.
    drop(Array::mount(&folders.backing, &folders.mountpoint, &fast()).expect("mounting"));
    assert!(!is_mounted(&folders.mountpoint));
}

#[test]
fn waiting_ends_by_request_and_by_unmounting_from_outside() {
    needs_fuse!();
    let folders = Folders::new();
    let array = Array::mount(&folders.backing, &folders.mountpoint, &fast()).expect("mounting");
    let handle = array.handle();
    let requester = std::thread::spawn(move || handle.request_unmount());
    assert_eq!(array.wait(), Ending::Requested);
    requester.join().expect("it only asks");
    array.unmount().expect("nothing is open");

    let array = Array::mount(&folders.backing, &folders.mountpoint, &fast()).expect("mounting");
    unmount_path(&folders.mountpoint).expect("nothing is open");
    assert_eq!(array.wait(), Ending::Unmounted);
    array.unmount().expect("already unmounted");
    let error = unmount_path(&folders.mountpoint).expect_err("nothing there");
    assert!(matches!(error, ArrayError::Mount(MountError::NotMounted { .. })), "{error}");
}

#[test]
fn an_array_in_use_is_taken_out_of_sight() {
    needs_fuse!();
    let folders = Folders::with_files(1, 300_000);
    let array = Array::mount(&folders.backing, &folders.mountpoint, &fast()).expect("mounting");
    let mut file = File::open(&folders.files(1)[0]).expect("a file");
    let error = unmount_path(&folders.mountpoint).expect_err("a file is open");
    assert!(matches!(error, ArrayError::Mount(MountError::Busy { .. })), "{error}");
    let report = array.unmount().expect("it can always be detached");
    assert!(report.in_use_after_unmount);
    assert!(!is_mounted(&folders.mountpoint));
    // A program that has it open can go on.
    let mut bytes = Vec::new();
    assert_eq!(file.read_to_end(&mut bytes).expect("still served"), 300_000);
}

#[test]
fn a_killed_server_hangs_nobody_and_its_mount_is_replaced() {
    needs_fuse!();
    let folders = Folders::with_files(1, 4096);
    let mut server = serve(&folders);
    let path = folders.files(1).remove(0);
    let mut file = File::open(&path).expect("metadata is free here");
    let reader = std::thread::spawn(move || file.read(&mut [0; 100]));
    kill(&mut server);
    // The read was in flight or came too late. Either way it ends with an error.
    let error = reader.join().expect("a thread").expect_err("nobody serves");
    assert!(matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error}");
    let dead = fs::read_dir(&folders.mountpoint).expect_err("nobody serves");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));

    let array = Array::mount(&folders.backing, &folders.mountpoint, &fast());
    let array = array.expect("what is stale is removed");
    assert_eq!(fs::read(&path).expect("a file").len(), 4096);
    array.unmount().expect("nothing is open");
    assert!(!is_mounted(&folders.mountpoint));
}

#[test]
fn a_stale_mount_can_be_unmounted_by_path() {
    needs_fuse!();
    let folders = Folders::new();
    kill(&mut serve(&folders));
    unmount_path(&folders.mountpoint).expect("it is one of ours");
    assert!(!is_mounted(&folders.mountpoint));
}

#[test]
fn a_killed_reader_leaves_the_array_working() {
    needs_fuse!();
    let folders = Folders::with_files(2, 1 << 20);
    let slow = ArrayOptions {
        time_scale: 1.0,
        layout: LayoutKind::Aged,
        disks: 1,
        ..ArrayOptions::default()
    };
    let array = Array::mount(&folders.backing, &folders.mountpoint, &slow).expect("mounting");
    let paths = folders.files(2);
    let mut reader =
        Command::new("cat").arg(&paths[0]).stdout(Stdio::null()).spawn().expect("cat exists");
    while array.report().requests == 0 {
        std::thread::yield_now();
    }
    kill(&mut reader);
    assert_eq!(fs::read(&paths[1]).expect("a file").len(), 1 << 20);
    array.unmount().expect("nothing is open");
    assert!(!is_mounted(&folders.mountpoint));
}

#[test]
fn what_cannot_be_mounted_is_said_in_one_line() {
    needs_fuse!();
    let folders = Folders::with_files(1, 1);
    let (backing, mountpoint) = (&folders.backing, &folders.mountpoint);
    let missing = folders.backing.join("missing");
    let file = backing.join("f000");
    let inner = backing.join("inner");
    fs::create_dir(&inner).expect("a folder");
    let absurd = ArrayOptions { disks: 1000, ..fast() };
    let fine = fast();
    let table: [(&Path, &Path, &ArrayOptions, &str); 8] = [
        (&missing, mountpoint, &fine, "missing"),
        (&file, mountpoint, &fine, "f000"),
        (backing, &missing, &fine, "missing"),
        (backing, &file, &fine, "f000"),
        (mountpoint, backing, &fine, "not empty"),
        (mountpoint, mountpoint, &fine, "one lies in the other"),
        (backing, &inner, &fine, "one lies in the other"),
        (backing, mountpoint, &absurd, "disks = 1000"),
    ];
    for (backing, mountpoint, options, expected) in table {
        let error = Array::mount(backing, mountpoint, options).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!is_mounted(mountpoint));
    }
    let array = Array::mount(backing, mountpoint, &fine).expect("mounting");
    let again = Array::mount(backing, mountpoint, &fine).expect_err("it is taken");
    assert!(matches!(again, ArrayError::Mount(MountError::AlreadyMounted { .. })), "{again}");
    array.unmount().expect("nothing is open");
}

#[test]
fn unmounting_does_not_wait_for_a_queue_that_takes_for_ever() {
    needs_fuse!();
    let folders = Folders::with_files(50, 8192);
    let slow = ArrayOptions { time_scale: 100.0, metadata: false, ..ArrayOptions::default() };
    let array = Array::mount(&folders.backing, &folders.mountpoint, &slow).expect("mounting");
    for path in folders.files(50) {
        will_need(&File::open(path).expect("metadata is free here"));
    }
    let report = array.unmount().expect("nothing is open");
    assert!(report.requests < 50 && !report.in_use_after_unmount);
    assert!(!is_mounted(&folders.mountpoint));
}

#[test]
fn threads_end_with_the_array() {
    // Other tests of this process mount too, so their threads would be counted. This test uses a process of its own.
    needs_fuse!();
    let folders = Folders::with_files(1, 4096);
    let me = std::env::current_exe().expect("this test");
    let output = Command::new(me)
        .args(["--exact", "count_threads_for_another_test", "--nocapture"])
        .env(SERVE, folders.backing.parent().expect("it has one"))
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("all threads have ended"), "{said}");
}

/// Not a test by itself; see [`threads_end_with_the_array`].
#[test]
fn count_threads_for_another_test() {
    let Some(folders) = std::env::var_os(SERVE) else { return };
    let folder = Path::new(&folders);
    let threads = || fs::read_dir("/proc/self/task").expect("a process has threads").count();
    let before = threads();
    let array = Array::mount(&folder.join("backing"), &folder.join("mnt"), &fast());
    fs::read(folder.join("mnt/f000")).expect("a file");
    array.and_then(Array::unmount).expect("nothing is open");
    // A thread that was joined may be listed for a moment longer. One that stays hangs the test.
    while threads() > before {
        std::thread::yield_now();
    }
    eprintln!("all threads have ended");
}
