//! `foretell demo --store` from the outside.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{foretell, have, have_fuse, text, wait_until};
use rustix::process::{Pid, Signal, kill_process};

fn demo(folder: &Path, options: &[&str]) -> Command {
    let mut command = foretell();
    command.args(["demo", "--store"]).args(options).current_dir(folder).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether something is mounted below `folder`.
fn has_mounts(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("listed");
    mounts.contains(&folder.to_string_lossy().into_owned())
}

fn left_in(folder: &Path) -> Vec<String> {
    let listed = fs::read_dir(folder).expect("listed");
    let mut names: Vec<String> = listed
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Processes that this one began.
fn children_of(parent: u32) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

/// A demo that has mounted its store.
fn begun(folder: &Path) -> Child {
    let mut child = demo(folder, &["--rounds", "100"]).spawn().expect("it runs");
    wait_until("the mount or the end", || {
        has_mounts(folder) || child.try_wait().is_ok_and(|status| status.is_some())
    });
    child
}

fn assert_failed_in_a_line(output: &Output, code: i32, part: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.starts_with("foretell: ") && stderr.contains(part), "{part:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn it_measures_and_reports() {
    if !have_fuse() || !have("grep") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let options = ["--first-byte", "1ms", "--rounds", "2", "--json", "figures.json"];
    // The user's own endpoint and proxy settings are not used.
    let mut command = demo(folder.path(), &options);
    command.envs([("AWS_ENDPOINT_URL", "http://127.0.0.1:1"), ("AWS_ACCESS_KEY_ID", "user")]);
    let output = command.env("http_proxy", "http://127.0.0.1:1").output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let stdout = text(&output.stdout);
    assert_eq!(stdout.matches("  identical\n").count(), 8, "{stdout}");
    assert!(stdout.contains("emulated store on this machine"), "{stdout}");
    let figures = fs::read(folder.path().join("figures.json")).expect("written");
    let figures: serde_json::Value = serde_json::from_slice(&figures).expect("JSON");
    let cases = figures["cases"].as_array().expect("a list");
    let ways = cases.iter().map(|case| case["ways"].as_array().expect("a list").len());
    assert_eq!(ways.collect::<Vec<_>>(), [5, 3]);
    for way in cases.iter().flat_map(|case| case["ways"].as_array().expect("a list")) {
        let samples = way["samples"].as_array().expect("a list");
        assert_eq!(samples.len(), 2, "{way}");
        for sample in samples {
            assert_eq!(sample["identical"], true, "{way}");
            assert!(sample["elapsed_s"].as_f64() > Some(0.0), "{way}");
        }
        assert!(way["least_s"].as_f64() <= way["most_s"].as_f64());
    }
    // Data in the page cache costs no request; undisclosed ranges are requested one by one.
    let of = |way: usize, name: &str| cases[0]["ways"][way]["median"][name].as_u64();
    assert_eq!(of(4, "requests"), Some(0), "{figures}");
    assert!(of(0, "requests") >= Some(64), "{figures}");
    // How many requests are in flight depends on this machine's speed, but it is more than one.
    for way in [1, 2] {
        assert!(of(way, "in_flight_max") > Some(1), "{figures}");
    }
    assert!(figures["conditions"]["cores"].as_u64() > Some(0));
    let report = fs::read_to_string(folder.path().join("report.html")).expect("written");
    assert!(report.contains("a slow object store") && report.contains("</html>"));
    assert_eq!(left_in(folder.path()), ["figures.json", "report.html"]);
}

#[test]
fn interrupted_it_puts_everything_away() {
    if !have_fuse() || !have("grep") {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().expect("a folder");
        let child = begun(folder.path());
        kill_process(Pid::from_child(&child), signal).ok();
        let output = child.wait_with_output().expect("it ends");
        assert_failed_in_a_line(&output, 1, "interrupted");
        assert!(!has_mounts(folder.path()));
        assert!(left_in(folder.path()).is_empty(), "{:?}", left_in(folder.path()));
    }
}

#[test]
fn without_its_mount_it_ends_and_puts_everything_away() {
    if !have_fuse() || !have("grep") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let child = begun(folder.path());
    for process in children_of(child.id()) {
        kill_process(process, Signal::KILL).ok();
    }
    let output = child.wait_with_output().expect("it ends");
    assert_failed_in_a_line(&output, 1, "foretell mount");
    assert!(!has_mounts(folder.path()));
    assert!(left_in(folder.path()).is_empty(), "{:?}", left_in(folder.path()));
}

#[test]
fn killed_it_leaves_nothing_mounted_and_its_folder_goes_with_the_next() {
    if !have_fuse() || !have("grep") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = begun(folder.path());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    wait_until("the mount's end", || !has_mounts(folder.path()));
    assert_eq!(left_in(folder.path()).len(), 1, "{:?}", left_in(folder.path()));
    let next = begun(folder.path());
    assert_eq!(left_in(folder.path()).len(), 1, "{:?}", left_in(folder.path()));
    // The folder of a running demo is left alone.
    let other = begun(folder.path());
    wait_until("another folder", || left_in(folder.path()).len() == 2);
    assert!(has_mounts(folder.path()));
    for demo in [next, other] {
        kill_process(Pid::from_child(&demo), Signal::INT).ok();
        demo.wait_with_output().expect("it ends");
    }
    assert!(left_in(folder.path()).is_empty(), "{:?}", left_in(folder.path()));
}

#[test]
fn what_does_not_go_together_is_told_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, part) in [
        (&["--store", "--layout", "aged"][..], "--layout is for the disk array"),
        (&["--store", "--time-scale", "1"], "--time-scale is for the disk array"),
        (&["--rounds", "2"], "--rounds is for the object store; add --store"),
        (&["--first-byte", "1ms"], "--first-byte is for the object store; add --store"),
        (&["--store", "--first-byte", "3s"], "--first-byte: with 3 s"),
    ] {
        let mut command = foretell();
        command.arg("demo").args(words).current_dir(&folder).stdin(Stdio::null());
        let output = command.output().expect("it runs");
        assert_failed_in_a_line(&output, 2, part);
    }
    let absent = folder.path().join("absent");
    let output = demo(folder.path(), &[]).env("TMPDIR", &absent).output().expect("it runs");
    assert_failed_in_a_line(&output, 1, "absent");
    assert!(left_in(folder.path()).is_empty());
}
