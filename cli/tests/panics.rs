//! A panic in any thread of any command prints one line, and the command goes on or ends in order.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{foretell, have_fuse, is_mounted};

/// Makes the thread that passes the fault point of this name panic.
const POINT: &str = "FORETELL_TEST_PANIC";

fn armed(point: &str) -> Command {
    let mut command = foretell();
    command.env(POINT, point).env("RUST_BACKTRACE", "1");
    command
}

/// Checks that the only line is about a panic in a thread whose name has this beginning.
fn assert_one_line(said: &[u8], thread: &str) {
    let said = String::from_utf8_lossy(said);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_told(&said, thread);
}

fn assert_told(said: &str, thread: &str) {
    assert!(said.contains(&format!("internal error in thread {thread}")), "{said}");
    assert!(said.starts_with("foretell: ") && said.contains(".rs:"), "{said}");
    assert!(said.contains("a test asked for it; please report this line"), "{said}");
}

#[test]
fn the_main_thread_of_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("f");
    fs::write(&file, "1\n").expect("written");
    let [folder, file] = [folder.path(), &file].map(|path| path.to_str().expect("UTF-8"));
    let table: [(&[&str], i32); 12] = [
        (&["run", "--", "true"], 125),
        (&["record", "-o", file, "--", "true"], 125),
        (&["report", file, "--json", "-"], 1),
        (&["mount", folder, folder], 1),
        (&["unmount", folder], 1),
        (&["hint", file], 1),
        (&["probe", file], 1),
        (&["demo"], 1),
        (&["array", "mount", folder, folder], 1),
        (&["store", "serve", folder], 1),
        (
            &[
                "sim",
                "cache",
                "--trace",
                file,
                "--format",
                "blocks",
                "--capacity",
                "1",
                "--policy",
                "lru",
                "--hints",
                "none",
            ],
            1,
        ),
        (&["sim", "reproduce", "tip1994"], 1),
    ];
    for (arguments, code) in table {
        let output = armed("main").args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_one_line(&output.stderr, "main");
    }
}

#[test]
fn a_worker_of_the_simulator() {
    let folder = tempfile::tempdir().expect("a folder");
    let (trace, json) = (folder.path().join("t"), folder.path().join("json"));
    fs::write(&trace, "1\n2\n").expect("written");
    fs::write(&json, "of the run before").expect("written");
    let mut command = armed("sim-run");
    command.args(["sim", "replay", "--format", "blocks", "--disks", "1,2,3", "--json"]);
    let output = command.arg(&json).arg(&trace).output().expect("it runs");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_one_line(&output.stderr, "");
    assert_eq!(fs::read_to_string(&json).expect("it is there"), "of the run before");
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2, "nothing half-written");
}

/// The messages and result of `foretell run` around a program that reads and exits with 5.
fn run(point: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("f");
    fs::write(&file, "hello\n").expect("written");
    let mut command = armed(point);
    command.args(["run", "--", "sh", "-c", "sleep 0.5; cat \"$1\"; exit 5", "reader"]);
    let output = command.arg(file).output().expect("it runs");
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(output.stdout, b"hello\n");
    output
}

#[test]
fn threads_of_the_manager_and_of_the_run_itself() {
    for (point, thread) in [
        ("foretell-device", "foretell-device"),
        ("foretell-source", "foretell-source"),
        ("foretell-observer", "foretell-observer"),
        ("foretell-outside", "foretell-outside"),
        ("run-report", "main"),
    ] {
        let said = run(point).stderr;
        let lines = String::from_utf8_lossy(&said);
        let (told, rest): (Vec<&str>, Vec<&str>) =
            lines.lines().partition(|line| line.contains("internal error"));
        assert_eq!(told.len(), 1, "{lines}");
        assert_told(told[0], thread);
        // The summary, where the last of these panics happens.
        assert_eq!(rest.len(), usize::from(point != "run-report"), "{lines}");
    }
}

/// A serving command.
struct Server {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    first: String,
}

impl Server {
    fn start(point: &str, arguments: &[&str], folders: &[&Path]) -> Self {
        let mut command = armed(point);
        command.args(arguments).args(folders).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut first = String::new();
        said.read_line(&mut first).expect("it says that it is there");
        Server { child, said, first }
    }

    /// Ends the server. Returns whether it ended in order, and its standard error.
    fn end(mut self) -> (bool, Vec<u8>) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("it ends");
        let output = self.child.wait_with_output().expect("it ends");
        (output.status.success(), output.stderr)
    }
}

/// A folder with a file of 300,000 bytes, and a mount point.
fn folders() -> (tempfile::TempDir, tempfile::TempDir, Vec<u8>) {
    let (source, mountpoint) =
        (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("one"));
    let bytes: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    fs::write(source.path().join("f"), &bytes).expect("written");
    (source, mountpoint, bytes)
}

#[test]
fn threads_of_a_mount_cost_one_request() {
    if !have_fuse() {
        return;
    }
    let mount = ["mount", "--foreground", "--timeout", "20s"];
    let writable = ["mount", "--foreground", "--read-write"];
    let array = ["array", "mount", "--foreground", "--disk", "nvme"];
    let tier = tempfile::tempdir().expect("a folder");
    let tiered = ["mount", "--foreground", "--tier", tier.path().to_str().expect("UTF-8")];
    let table: [(&[&str], &str, &str); 6] = [
        (&mount, "mount-session", "fuser"),
        (&mount, "mount-names", "mount-names"),
        (&writable, "mount-session", "fuser"),
        (&tiered, "foretell-tier", "foretell-tier"),
        (&array, "array-reply", "array-reply"),
        (&array, "array-disks", "array-disks"),
    ];
    for (arguments, point, thread) in table {
        let (source, mountpoint, bytes) = folders();
        let server = Server::start(point, arguments, &[source.path(), mountpoint.path()]);
        let file = mountpoint.path().join("f");
        // The first read may fail, with an error that programs expect of file systems.
        let _ = fs::read(&file);
        let mut read = fs::read(&file);
        for _ in 0..20 {
            if read.is_ok() {
                break;
            }
            // Wait until the kernel has forgotten the failure.
            std::thread::sleep(Duration::from_millis(100));
            read = fs::read(&file);
        }
        assert!(read.expect("the next request is served") == bytes, "{point}");
        let (is_in_order, said) = server.end();
        assert!(is_in_order && !is_mounted(mountpoint.path()), "{point}");
        assert_one_line(&said, thread);
    }
}

/// With io_uring or with threads, depending on this machine.
#[test]
fn threads_that_read_for_a_mount_cost_one_request() {
    if !have_fuse() {
        return;
    }
    let mut told = 0;
    for point in ["foretell-ring", "foretell-read"] {
        let (source, mountpoint, bytes) = folders();
        let server =
            Server::start(point, &["mount", "--foreground"], &[source.path(), mountpoint.path()]);
        let file = mountpoint.path().join("f");
        let _ = fs::read(&file);
        assert!(fs::read(&file).expect("the next request is served") == bytes, "{point}");
        let (is_in_order, said) = server.end();
        assert!(is_in_order, "{point}");
        let said = String::from_utf8_lossy(&said);
        // Other lines are the mount's usual ones about failed reads.
        let panics = said.lines().filter(|line| line.contains("internal error"));
        panics.for_each(|line| {
            assert_told(line, point);
            told += 1;
        });
    }
    assert!(told > 0, "one of them reads");
}

#[test]
fn a_mount_whose_main_thread_panics_is_unmounted() {
    if !have_fuse() {
        return;
    }
    for arguments in [&["mount"][..], &["mount", "--foreground"], &["array", "mount"]] {
        let (source, mountpoint, _) = folders();
        let mut command = armed("mounted");
        command.args(arguments).arg(source.path()).arg(mountpoint.path());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_one_line(&output.stderr, "main");
        assert!(!is_mounted(mountpoint.path()), "{arguments:?}");
    }
}

/// The server's status code for a request that lists its bucket.
fn status_of(address: &str, bucket: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "GET /{bucket}?list-type=2 HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn threads_of_the_object_store_cost_one_request() {
    for (point, thread) in [("store", "store"), ("store-files", "store-files")] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("bucket")).expect("made");
        let server =
            Server::start(point, &["store", "serve", "--first-byte", "1ms"], &[folder.path()]);
        let address = server.first.split(' ').next().and_then(|url| url.strip_prefix("http://"));
        let address = address.expect("the endpoint").to_owned();
        assert_eq!(status_of(&address, "bucket"), "500", "{point}");
        assert_eq!(status_of(&address, "bucket"), "200", "{point}");
        let (is_in_order, said) = server.end();
        assert!(is_in_order, "{point}");
        assert_one_line(&said, thread);
    }
}

#[test]
fn no_memory_left_is_one_line_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t");
    // 2^21 blocks that are all different.
    fs::write(&trace, "# foretell trace 1\n1 1 1 0 1073741824\n").expect("written");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v \"$1\"; shift; exec \"$@\"", "limited", "200000"]);
    command.arg(env!("CARGO_BIN_EXE_foretell")).args(["sim", "cache", "--trace"]).arg(trace);
    command.args(["--format", "foretell", "--block", "512", "--capacity", "9999999"]);
    let output = command.args(["--policy", "belady", "--hints", "none"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("foretell: no memory left: "), "{said}");
}

#[test]
fn the_thread_of_a_probe() {
    let output = armed("foretell-probe").args(["probe", "/"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 2), "{said}");
    let told = said.lines().next().expect("a line");
    assert_told(told, "foretell-probe");
    assert!(said.ends_with("foretell: the measurement failed: its thread ended\n"), "{said}");
}

#[test]
fn the_writer_of_a_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut record = armed("foretell-record");
    record.args(["record", "-o"]).arg(folder.path().join("run.ftr"));
    let output = record.args(["--", "sh", "-c", "echo out; exit 5"]).output().expect("it runs");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"out\n"[..]));
    let said = String::from_utf8_lossy(&output.stderr);
    let told = said.lines().filter(|line| line.contains("internal error")).count();
    assert!(told == 1 && said.contains("its writer has failed"), "{said}");
}
