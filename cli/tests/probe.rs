//! `foretell probe`: what it says of file systems and files of all kinds, and that it ends and leaves nothing behind.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use common::{foretell, have_fuse, is_mounted, is_root, skipped, text, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const FILE_BYTES: usize = 20_000_000;

fn probe(args: &[&str], path: &Path) -> Output {
    foretell().arg("probe").args(args).arg(path).output().expect("foretell runs")
}

fn figures(args: &[&str], path: &Path) -> Value {
    let output = probe(&[args, &["--json", "-"]].concat(), path);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A folder with a large file that is on the disk.
fn folder_with_file() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut file = File::create(folder.path().join("file")).expect("made");
    file.write_all(&vec![7; FILE_BYTES]).and_then(|()| file.sync_all()).expect("written");
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("listed");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into()).collect()
}

/// Each back end was tried once, the chosen one first, and has brought what it was asked for.
fn assert_all_arrived(figures: &Value, expected: &[&str]) {
    let advice = figures["advice"].as_array().expect("a list");
    let tried: Vec<_> =
        advice.iter().map(|tried| tried["backend"].as_str().expect("a name")).collect();
    assert_eq!(tried, expected, "{figures}");
    assert_eq!(figures["backend"], expected[0], "{figures}");
    for tried in advice {
        assert_eq!(tried["arrived_bytes"], tried["asked_bytes"], "{figures}");
        assert!(tried["arrived_after_us"].as_f64() >= tried["call_us"].as_f64(), "{figures}");
        assert_eq!(tried["waits_in_call"], tried["backend"] == "read-through", "{figures}");
    }
    let reads = &figures["reads"];
    assert!(reads["count"].as_u64() > Some(0), "{figures}");
    assert!(reads["min_us"].as_f64() <= reads["max_us"].as_f64(), "{figures}");
}

#[test]
fn a_file_on_a_disk_is_measured_and_left_as_it_was() {
    let folder = folder_with_file();
    let path = folder.path().join("file");
    let figures = figures(&["--evict"], &path);
    if figures["in_memory_share"].as_f64().is_none_or(|share| share > 0.0) {
        return skipped("the file stays in memory");
    }
    assert_all_arrived(&figures, &["posix", "readahead", "read-through"]);
    assert_eq!(figures["file"].as_str(), path.to_str());
    assert_eq!(
        (&figures["leaves_access_time"], &figures["keeps_pages"]),
        (&true.into(), &true.into())
    );
    let table = probe(&["--evict"], folder.path());
    assert!(table.status.success() && table.stderr.is_empty(), "{}", text(&table.stderr));
    let table = text(&table.stdout);
    let (head, rest) = table.split_once('\n').expect("lines");
    assert_eq!(head, format!("{}, 19.1 MiB", path.display()));
    for name in [
        "file system",
        "back end         posix: ",
        "cold 4 KiB read",
        "arrival",
        "advice",
        "\n  posix ",
    ] {
        assert!(rest.contains(name), "{name}: {table}");
    }
    assert_eq!(names(folder.path()), ["file"]);
    assert!(fs::read(&path).expect("read") == vec![7; FILE_BYTES]);
}

#[test]
fn what_cannot_be_measured_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = probe(&[], folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("back end") && said.contains("needs a file"), "{said}");
    assert_eq!(names(folder.path()), [""; 0]);
    let file = folder.path().join("a\nb");
    fs::write(&file, "").expect("written");
    let said = text(&probe(&[], &file).stdout);
    assert!(said.contains("the file is empty") && said.contains("a\\nb"), "{said}");
    // Just written, so it is in memory.
    fs::write(&file, [7; 100]).expect("written");
    let said = text(&probe(&[], folder.path()).stdout);
    assert!(said.contains("its data is in memory") || said.contains("cannot be seen"), "{said}");
}

#[test]
fn failures_are_one_line_with_a_way_out() {
    let table: [(&[&str], &str, i32, &str); 4] = [
        (&[], "/no/such", 1, "name a file or folder that is there"),
        (&[], "/dev/null", 1, "neither a file nor a folder; name a file"),
        (&["--json", "/dev/null/x"], "/", 1, "--json"),
        (&["--evit"], "/", 2, "--evict"),
    ];
    for (args, path, code, expected) in table {
        let output = probe(args, Path::new(path));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.lines().count() == 1 && said.contains(expected), "{args:?}: {said}");
        assert!(said.starts_with("foretell: ") && output.stdout.is_empty(), "{said}");
    }
}

#[test]
fn another_user_is_told_which_file_cannot_be_read() {
    if !is_root() {
        return;
    }
    let folder = folder_with_file();
    let path = folder.path().join("file");
    let mode = |path: &Path, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, permissions).expect("set");
    };
    mode(folder.path(), 0o755);
    let run = || {
        let mut command = foretell();
        command.arg("probe").arg(&path).uid(65534).gid(65534).output()
    };
    let Ok(output) = run() else { return skipped("another user cannot run foretell") };
    mode(&path, 0o644);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("may change when foretell reads"), "{said}");
    // What is said of arrival is what the table shows.
    let is_seen = said.contains("arrival          seen");
    assert_eq!(is_seen, !said.contains("unseen"), "{said}");
    mode(&path, 0o600);
    let output = run().expect("it runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Permission denied; name a file that you may read"), "{said}");
    let mut command = foretell();
    command.arg("probe").arg(folder.path()).uid(65534).gid(65534);
    let said = text(&command.output().expect("it runs").stdout);
    assert!(said.contains(&format!("{}: Permission denied", path.display())), "{said}");
    mode(folder.path(), 0o700);
    let mut command = foretell();
    command.arg("probe").arg(folder.path()).uid(65534).gid(65534);
    let said = text(&command.output().expect("it runs").stdout);
    assert!(said.contains(&format!("{}: Permission denied", folder.path().display())), "{said}");
    assert!(!said.contains("os error"), "{said}");
}

#[test]
fn files_that_the_kernel_makes_are_said_to_have_no_cache() {
    for file in ["/proc/cpuinfo", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        if !Path::new(file).exists() {
            skipped(file);
            continue;
        }
        let output = probe(&["--evict"], Path::new(file));
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains("no cache"), "{said}");
        assert!(!said.contains("empty"), "{said}");
    }
}

#[test]
fn a_file_system_in_memory_has_nothing_to_be_dropped() {
    let type_of = |folder: &str| rustix::fs::statfs(folder).map(|system| system.f_type);
    if type_of("/dev/shm") != Ok(libc::TMPFS_MAGIC) {
        return skipped("no tmpfs at /dev/shm");
    }
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    file.write_all(&vec![7; 1_000_000]).expect("written");
    for args in [&[][..], &["--evict"]] {
        let output = probe(args, file.path());
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains("memory is where"), "{said}");
        assert!(!said.contains("--evict"), "{said}");
    }
}

/// An array over `backing` in the foreground.
fn array(backing: &Path, at: &Path) -> Child {
    let mut command = foretell();
    command.args(["array", "mount", "--foreground", "--time-scale", "0.01"]).args([backing, at]);
    let child = command.stdout(Stdio::null()).spawn().expect("foretell runs");
    let at = at.canonicalize().expect("it exists");
    wait_until("the array", || is_mounted(&at));
    child
}

/// The same over a folder with a large file, which is returned with the mount point and the server; `None` without FUSE.
fn array_of_file() -> Option<(tempfile::TempDir, tempfile::TempDir, Child)> {
    if !have_fuse() {
        return None;
    }
    let (folder, at) = (folder_with_file(), tempfile::tempdir().expect("a folder"));
    let server = array(folder.path(), at.path());
    Some((folder, at, server))
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

#[test]
fn an_array_and_a_mount_of_foretells_are_measured() {
    let Some((folder, at, mut server)) = array_of_file() else { return };
    let at = at.path();
    let measured = figures(&[], at);
    signal(&server, Signal::INT);
    assert!(server.wait().expect("it ends").success());
    assert_all_arrived(&measured, &["posix", "readahead", "read-through"]);
    assert_eq!(
        (&measured["is_of_foretell"], &measured["keeps_pages"]),
        (&false.into(), &true.into())
    );
    let mounted = foretell().arg("mount").args([folder.path(), at]).output().expect("it runs");
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    let measured = figures(&[], at);
    let unmounted = foretell().arg("unmount").arg(at).output().expect("it runs");
    assert!(unmounted.status.success(), "{}", text(&unmounted.stderr));
    assert_all_arrived(&measured, &["posix", "readahead", "read-through", "mount"]);
    assert_eq!(measured["is_of_foretell"], true, "{measured}");
}

#[test]
fn a_device_that_does_not_answer_holds_it_up_for_a_while_only_and_an_interrupt_ends_it() {
    let Some((folder, at, mut server)) = array_of_file() else { return };
    let at = at.path();
    signal(&server, Signal::STOP);
    let mut interrupted = foretell();
    let interrupted = interrupted.arg("probe").arg(at.join("file")).stdout(Stdio::null()).spawn();
    let mut interrupted = interrupted.expect("foretell runs");
    let tasks = format!("/proc/{}/task", interrupted.id());
    wait_until("its thread", || names(Path::new(&tasks)).len() > 1);
    signal(&interrupted, Signal::INT);
    let ended = interrupted.wait().expect("it ends");
    let output = probe(&[], &at.join("file"));
    signal(&server, Signal::CONT);
    signal(&server, Signal::INT);
    assert!(server.wait().expect("it ends").success());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no answer within 5 s"), "{said}");
    assert_eq!(ended.signal(), Some(libc::SIGINT), "{ended}");
    assert_eq!(names(folder.path()), ["file"]);
}
