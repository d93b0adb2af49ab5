//! `foretell array` and `foretell demo` from the outside.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{foretell, have_fuse, is_mounted, sample_files, sample_folder, wait_until};
use rustix::process::{Pid, Signal, kill_process};

fn array(arguments: &[&str], folders: &[&Path]) -> Output {
    let (action, options) = arguments.split_first().expect("mount or unmount");
    foretell()
        .args(["array", action])
        .args(folders)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .expect("foretell runs")
}

fn in_foreground(backing: &Path, mountpoint: &Path, json: &Path) -> Child {
    let array = foretell()
        .args(["array", "mount", "--foreground", "--time-scale", "0.001", "--json"])
        .args([json, backing, mountpoint])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    wait_until("the mount", || is_mounted(mountpoint));
    array
}

#[test]
fn mount_read_unmount() {
    if !have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let json = backing.path().with_extension("json");
    let json_text = json.to_string_lossy().into_owned();
    let options = [
        "mount",
        "--disks",
        "3",
        "--time-scale",
        "0.001",
        "--layout",
        "aged",
        "--json",
        &json_text,
    ];
    let mounted = array(&options, &[backing.path(), mnt.path()]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let compared = Command::new("diff").arg("-r").args([backing.path(), mnt.path()]).status();
    assert!(compared.expect("diff runs").success());
    let unmounted = array(&["unmount"], &[mnt.path()]);
    let text = String::from_utf8_lossy(&unmounted.stdout);
    assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
    assert!(text.contains("requests") && text.lines().count() == 5, "{text}");
    assert!(!is_mounted(mnt.path()));
    // The array's process has ended and written its figures by the time that unmount returns.
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(&json).expect("written")).expect("JSON");
    assert_eq!(report["disks"].as_array().map(Vec::len), Some(3));
    assert!(report["requests"].as_u64().expect("a number") > 40);
    fs::remove_file(json).expect("it was written");
}

#[test]
fn a_writable_array_passes_writes_to_its_folder() {
    if !have_fuse() {
        return;
    }
    let (source, backing, mnt) =
        (sample_folder(), sample_folder(), tempfile::tempdir().expect("a folder"));
    let options = ["mount", "--writable", "--time-scale", "0.001"];
    let mounted = array(&options, &[backing.path(), mnt.path()]);
    let said = String::from_utf8_lossy(&mounted.stdout);
    assert!(mounted.status.success() && said.contains("writable"), "{said}");
    // Only the writing program's mask counts.
    let script = "umask 0 && cp -r \"$1\" copy && mkdir open && umask 77 && echo x > closed";
    let work = mnt.path().join("work");
    fs::create_dir(&work).expect("a folder");
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(source.path());
    let done = shell.current_dir(&work).status();
    let unmounted = array(&["unmount"], &[mnt.path()]);
    assert!(done.expect("a shell").success());
    let text = String::from_utf8_lossy(&unmounted.stdout);
    assert!(unmounted.status.success() && text.contains(" written"), "{text}");
    let work = backing.path().join("work");
    let mode = |name: &str| {
        let metadata = fs::metadata(work.join(name)).expect("it was made");
        std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777
    };
    assert_eq!((mode("open"), mode("closed")), (0o777, 0o600));
    for file in sample_files(source.path()) {
        let copy = work.join("copy").join(file.strip_prefix(source.path()).expect("below"));
        assert!(fs::read(&file).expect("a file") == fs::read(copy).expect("its copy"));
    }
}

#[test]
fn a_hinted_program_over_an_array_finds_its_files_in_memory() {
    if !have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let summary = backing.path().join("summary.json");
    let mounted = array(&["mount", "--time-scale", "0.05"], &[backing.path(), mnt.path()]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let files = sample_files(mnt.path());
    let output = foretell()
        .args(["run", "--quiet", "--json"])
        .arg(&summary)
        .args(["--", "cksum"])
        .args(&files)
        .output()
        .expect("it runs");
    assert!(array(&["unmount"], &[mnt.path()]).status.success());
    let plain = Command::new("cksum").args(sample_files(backing.path())).output();
    let sums = |output: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(output).into_owned();
        text.lines().map(|line| line.split(' ').take(2).collect()).collect()
    };
    let mut ours = sums(&output.stdout);
    let mut theirs = sums(&plain.expect("it runs").stdout);
    ours.sort();
    theirs.sort();
    theirs.retain(|sum| ours.contains(sum));
    assert_eq!(ours, theirs);
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(summary).expect("written")).expect("JSON");
    let count = |name: &str| summary["blocks"][name].as_u64().expect("a number");
    assert!(count("prefetched") > 20, "{summary}");
    assert!(count("useful") + count("late") > count("prefetched") / 2, "{summary}");
    assert_eq!(count("wasted") + count("refused"), 0, "{summary}");
}

#[test]
fn signals_end_an_array_in_order() {
    if !have_fuse() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
        let json = backing.path().join("figures");
        let mut array = in_foreground(backing.path(), mnt.path(), &json);
        kill_process(Pid::from_child(&array), signal).expect("it runs");
        assert!(array.wait().expect("it ends").success());
        assert!(!is_mounted(mnt.path()));
        assert!(fs::metadata(json).expect("written").len() > 0);
    }
}

#[test]
fn an_array_outlives_the_programs_that_use_it() {
    if !have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let json = backing.path().join("figures");
    let mut array = in_foreground(backing.path(), mnt.path(), &json);
    let mut reader = Command::new("sh")
        .args(["-c", "while :; do cat \"$0\"/*.txt > /dev/null; done"])
        .arg(mnt.path())
        .spawn()
        .expect("it runs");
    std::thread::sleep(Duration::from_millis(100));
    reader.kill().expect("it was running");
    reader.wait().expect("it has ended");
    assert!(fs::read(sample_files(mnt.path()).last().expect("a file")).is_ok());
    kill_process(Pid::from_child(&array), Signal::INT).expect("it runs");
    assert!(array.wait().expect("it ends").success());
    assert!(!is_mounted(mnt.path()));
}

#[test]
fn the_mount_of_a_crashed_array_is_replaced() {
    if !have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let json = backing.path().join("figures");
    let mut crashed = in_foreground(backing.path(), mnt.path(), &json);
    crashed.kill().expect("it was running");
    crashed.wait().expect("it has ended");
    assert!(is_mounted(mnt.path()), "a crash leaves its mount");
    let mounted = array(&["mount", "--time-scale", "0.001"], &[backing.path(), mnt.path()]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    assert!(array(&["unmount"], &[mnt.path()]).status.success());
    assert!(!is_mounted(mnt.path()));
}

#[test]
fn what_cannot_be_mounted_is_named_in_one_line() {
    if !have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let (full, missing) = (sample_folder(), mnt.path().join("missing"));
    let (b, m) = (backing.path(), mnt.path());
    let assert_fails = |options: &[&str], folders: &[&Path], part: &str| {
        let output = array(options, folders);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{options:?}: {text}");
        assert!(text.contains(part), "{options:?} should say {part:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
        assert!(text.starts_with("foretell: ") && !text.contains("foretell: foretell"), "{text}");
        assert!(!is_mounted(m));
    };
    assert_fails(&["mount"], &[&missing, m], "missing");
    assert_fails(&["mount"], &[b, &missing], "missing");
    assert_fails(&["mount"], &[b, full.path()], "empty");
    assert_fails(&["mount"], &[b, b], &b.to_string_lossy());
    assert_fails(&["mount", "--disks", "0"], &[b, m], "disks");
    assert_fails(&["mount", "--disks", "100000"], &[b, m], "disks");
    assert_fails(&["mount", "--disk", "floppy"], &[b, m], "floppy");
    assert_fails(&["mount", "--time-scale", "-1"], &[b, m], "time");
    assert_fails(&["mount", "--stripe", "100"], &[b, m], "stripe");
    assert_fails(&["mount", "--outstanding", "0"], &[b, m], "outstanding");
    assert_fails(&["unmount"], &[m], &format!("no array is mounted at {}; ", m.display()));
    assert_fails(&["unmount"], &[&missing], "missing: No such file or directory; ");
    let usage = array(&["mount", "--order", "elevator"], &[b, m]);
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn a_disk_may_come_from_a_parameter_file() {
    if !have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let file = mnt.path().with_extension("toml");
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/disks/network.toml");
    fs::copy(built_in, &file).expect("copied");
    let disk = file.to_string_lossy().into_owned();
    let mounted = array(
        &["mount", "--disk", &disk, "--time-scale", "0.01", "--metadata", "off"],
        &[backing.path(), mnt.path()],
    );
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    assert!(array(&["unmount"], &[mnt.path()]).status.success());
    fs::remove_file(file).expect("it was copied");
}

#[test]
fn the_demo_measures_and_reports() {
    if !have_fuse() || !common::have("grep") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = foretell()
        .args(["demo", "--time-scale", "0.001", "--json", "figures.json"])
        .current_dir(&folder)
        .env("TMPDIR", folder.path())
        .output()
        .expect("it runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    if messages.contains("small text files where") {
        common::skipped("too few text files on this machine");
        return;
    }
    assert!(output.status.success(), "{messages}");
    assert_eq!(messages, "");
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path().join("figures.json")).expect("written"))
            .expect("JSON");
    let runs = figures["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 6 * 4);
    for run in runs {
        assert_eq!(run["identical"], true);
        for key in ["plain_s", "hinted_s", "warm_s", "busiest_disk_s", "files", "blocks", "disks"] {
            assert!(run[key].as_f64().expect("a number") > 0.0, "{key}: {run}");
        }
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("identical").count(), 24);
    let report = fs::read_to_string(folder.path().join("report.html")).expect("written");
    assert!(report.contains("</html>"));
    let left: Vec<_> = fs::read_dir(&folder)
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn what_a_demo_cannot_do_is_told_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    for (options, code, part) in [
        (&["--report", "-"][..], 2, "--report -"),
        (&["--report", "same", "--json", "./same"], 2, "--report is written to ./same too"),
        (&["--report", "none/report.html"], 1, "--report: none/report.html: No such file"),
        (&["--time-scale", "0"], 2, "--time-scale 0: give a factor from 0.001 to 10"),
        (&["--time-scale", "NaN"], 2, "--time-scale NaN"),
    ] {
        let output = foretell().arg("demo").args(options).current_dir(&folder).output();
        let output = output.expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {error}");
        assert!(error.starts_with("foretell: ") && error.contains(part), "{options:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert_eq!(fs::read_dir(&folder).expect("listed").count(), 0);
}

#[test]
fn a_demo_that_nobody_reads_ends_as_others_do_and_puts_everything_away() {
    if !have_fuse() || !common::have("grep") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = foretell();
    command.arg("demo").current_dir(&folder).env("TMPDIR", folder.path());
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(demo.stdout.take());
    let output = demo.wait_with_output().expect("it ends");
    assert_eq!(output.status.signal(), Some(Signal::PIPE.as_raw()), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(fs::read_dir(&folder).expect("listed").count(), 0);
}

#[test]
fn an_interrupted_demo_puts_everything_away_also_that_of_one_that_was_killed() {
    if !have_fuse() || !common::have("grep") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mounts = || {
        let mounted = fs::read_to_string("/proc/self/mountinfo").expect("listed");
        mounted.matches(&*folder.path().to_string_lossy()).count()
    };
    let end = |signal: Signal| {
        let mut demo = foretell()
            .args(["demo", "--time-scale", "1"])
            .current_dir(&folder)
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        wait_until("the first array or the end", || {
            is_served(folder.path()) || demo.try_wait().is_ok_and(|status| status.is_some())
        });
        kill_process(Pid::from_child(&demo), signal).ok();
        assert!(!demo.wait().expect("it ends").success());
    };
    end(Signal::KILL);
    assert_eq!(left_in(folder.path()), 1);
    end(Signal::INT);
    assert_eq!((mounts(), left_in(folder.path())), (0, 0));
}

/// The number of demos with a folder there.
fn left_in(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry"));
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("foretell-demo-"))
        .count()
}

/// Whether the array of a demo in `folder` answers. A killed demo's array does not, even if the kernel still has the mount.
fn is_served(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).expect("listed").flatten();
    let mut arrays = entries.map(|entry| entry.path().join("array"));
    arrays.any(|array| is_mounted(&array) && rustix::fs::statfs(&array).is_ok())
}
