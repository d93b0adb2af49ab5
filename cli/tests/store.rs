//! `foretell store` from the outside.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Output, Stdio};

use common::foretell;
use rustix::process::{Pid, Signal, kill_process};

/// A folder with the bucket `data`, which holds `object`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("data")).expect("made");
    fs::write(folder.path().join("data/object"), "0123456789").expect("written");
    folder
}

/// A store that is ready: its process, the rest of its output, its address.
fn serve(folder: &Path, options: &[&str]) -> (Child, BufReader<ChildStdout>, SocketAddr) {
    let mut child = foretell()
        .args(["store", "serve"])
        .arg(folder)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let endpoint = line.split(' ').next().expect("a word");
    let address = endpoint.strip_prefix("http://").expect(&line).parse().expect(&line);
    assert!(line.ends_with(", bucket data\n"), "{line}");
    (child, output, address)
}

/// The response to a plain GET, with its head.
fn get(address: SocketAddr, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("comes");
    answer
}

#[test]
fn entries_that_are_in_no_bucket_are_counted_with_the_reason() {
    let folder = folder();
    for name in ["Upper", "ab"] {
        fs::create_dir(folder.path().join(name)).expect("made");
    }
    fs::write(folder.path().join("loose"), "x").expect("written");
    let said = |options: &[&str]| {
        let mut command = foretell();
        command.args(["store", "serve"]).arg(folder.path()).args(options).stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut ready = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut ready).expect("a line");
        // The signal is blocked until the note is written.
        kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
        String::from_utf8(child.wait_with_output().expect("it ends").stderr).expect("UTF-8")
    };
    let note = said(&[]);
    assert!(note.contains("2 sub-folders are not served: a bucket's name has"), "{note}");
    assert!(note.contains("; 1 file is not served: ") && note.contains("--bucket NAME"), "{note}");
    assert_eq!(note.lines().count(), 1, "{note}");
    assert_eq!(said(&["--bucket", "all-of-it"]), "");
}

#[test]
fn serve_get_and_end_by_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = folder();
        let json = folder.path().join("figures.json");
        let file = json.to_string_lossy().into_owned();
        let options = ["--first-byte", "2ms", "--per-response", "50MB/s", "--json", &file];
        let (mut child, mut output, address) = serve(folder.path(), &options);
        let whole = get(address, "/data/object", "");
        assert!(whole.starts_with("HTTP/1.1 200 ") && whole.ends_with("\r\n\r\n0123456789"));
        let part = get(address, "/data/object", "Range: bytes=2-4\r\n");
        assert!(part.starts_with("HTTP/1.1 206 ") && part.ends_with("\r\n\r\n234"), "{part}");
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        let mut report = String::new();
        output.read_to_string(&mut report).expect("text");
        assert!(report.contains("2 GET") && report.contains("13 B sent"), "{report}");
        let figures: serde_json::Value =
            serde_json::from_slice(&fs::read(&json).expect("written")).expect("JSON");
        assert_eq!((&figures["gets"], &figures["bytes_sent"]), (&2.into(), &13.into()));
        assert!(TcpStream::connect(address).is_err());
        let left = fs::read_dir(folder.path()).expect("listed").count();
        assert_eq!(left, 2, "the bucket and the figures");
    }
}

#[test]
fn an_interrupted_store_leaves_answers_and_nothing_else_unfinished() {
    let folder = folder();
    let options = ["--first-byte", "0", "--per-response", "1B/s"];
    let (mut child, mut output, address) = serve(folder.path(), &options);
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(b"GET /data/object HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut first = [0];
    stream.read_exact(&mut first).expect("the head begins");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let mut rest = Vec::new();
    // Either the end of the stream or a reset.
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0123456789"));
    let mut report = String::new();
    output.read_to_string(&mut report).expect("text");
    assert!(report.contains("most in flight 1"), "{report}");
}

#[test]
fn faults_are_as_asked_for() {
    let folder = folder();
    let (mut child, _output, address) = serve(folder.path(), &["--fail-503", "100%"]);
    assert!(get(address, "/data/object", "").contains("<Code>SlowDown</Code>"));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_cannot_be_served_is_named_in_one_line() {
    let folder = folder();
    let path = folder.path();
    let taken = TcpListener::bind("127.0.0.1:0").expect("listens");
    let taken = taken.local_addr().expect("it has one").to_string();
    let run = |folder: &Path, options: &[&str]| -> Output {
        let mut command = foretell();
        command.args(["store", "serve"]).arg(folder).args(options).stdin(Stdio::null());
        command.output().expect("it runs")
    };
    let (missing, file, data) = (path.join("missing"), path.join("data/object"), path.join("data"));
    let table: [(&Path, &[&str], i32, &str); 8] = [
        (&missing, &[], 1, "missing"),
        (&file, &[], 1, "object"),
        (&data, &[], 1, "--bucket"),
        (path, &["--listen", &taken], 1, &taken),
        (path, &["--listen", "0.0.0.0:0"], 2, "--allow-remote"),
        (path, &["--bucket", "No"], 2, "bucket"),
        (path, &["--reset", "0.6", "--truncate", "0.6"], 2, "truncate"),
        (path, &["--json", "/nowhere/figures"], 1, "/nowhere/figures"),
    ];
    for (folder, options, code, part) in table {
        let output = run(folder, options);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {text}");
        assert!(text.contains(part), "{options:?} should say {part:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
        assert!(text.starts_with("foretell: ") && output.stdout.is_empty(), "{text}");
    }
    for options in [
        ["--per-response", "90MB"],
        ["--total", "0/s"],
        ["--first-byte", "30"],
        ["--first-byte-tail", "500ms"],
        ["--fail-503", "2"],
        ["--listen", "here"],
    ] {
        assert_eq!(run(path, &options).status.code(), Some(2), "{options:?}");
    }
}
