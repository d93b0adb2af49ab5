//! Whatever happens to the manager, the program's output and exit code stay its own.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{assert_same, foretell, sample_files, sample_folder, under_foretell, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// A script that reads for about a second, and leaves output and exit code of its reading in files
/// of the folder it is given.
const SLOW_READER: &str = "cd \"$1\"; shift; \
    { for i in 1 2 3 4 5; do cat \"$@\" | cksum; grep -c of \"$@\"; sleep 0.2; done; (exit 23); } \
    > output 2> errors; echo $? > code.tmp; mv code.tmp code";

fn expected(folder: &Path) -> Vec<u8> {
    let files = sample_files(&folder.join("files"));
    let mut script = Command::new("bash");
    script.args(["-c", SLOW_READER, "reader"]).arg(folder).args(files);
    let status = script.status().expect("bash runs");
    assert!(status.success());
    fs::remove_file(folder.join("code")).expect("the script has ended");
    let output = fs::read(folder.join("output")).expect("written");
    fs::remove_file(folder.join("output")).expect("it was there");
    output
}

fn set_up() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let files = sample_folder();
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(files.path()).arg(folder.path().join("files"));
    assert!(copy.status().expect("cp runs").success());
    folder
}

/// The slow reader under foretell, once it has written something to the file that is returned too.
fn start_slow_reader(folder: &Path) -> (std::process::Child, std::path::PathBuf) {
    let run = common::beside_foretell("bash")
        .args(["-c", SLOW_READER, "reader"])
        .arg(folder)
        .args(sample_files(&folder.join("files")))
        .spawn()
        .expect("it runs");
    let output = folder.join("output");
    wait_until("the first output", || fs::metadata(&output).is_ok_and(|file| file.len() > 0));
    (run, output)
}

#[test]
fn foretell_run_is_killed() {
    if !common::have("bash") {
        return;
    }
    let folder = set_up();
    let expected = expected(folder.path());
    let (mut run, output) = start_slow_reader(folder.path());
    run.kill().expect("it was running");
    run.wait().expect("it has ended");
    wait_until("the script's end", || folder.path().join("code").exists());
    assert_eq!(fs::read(output).expect("written"), expected);
    assert_eq!(fs::read_to_string(folder.path().join("code")).expect("written"), "23\n");
    assert_eq!(fs::read_to_string(folder.path().join("errors")).expect("written"), "");
}

#[test]
fn foretell_run_is_stopped_for_a_while() {
    if !common::have("bash") {
        return;
    }
    let folder = set_up();
    let expected = expected(folder.path());
    let (mut run, output) = start_slow_reader(folder.path());
    let pid = Pid::from_child(&run);
    kill_process(pid, Signal::STOP).expect("it was running");
    wait_until("the script's end", || folder.path().join("code").exists());
    kill_process(pid, Signal::CONT).expect("it was stopped");
    assert!(run.wait().expect("it ends").success(), "mv was the script's last command");
    assert_eq!(fs::read(output).expect("written"), expected);
}

#[test]
fn the_manager_is_killed() {
    for run in [under_foretell("sh"), common::beside_foretell("sh")] {
        let (mut run, folder) = (run, sample_folder());
        let files = sample_files(folder.path());
        let script = "cd \"$0\"; echo $FORETELL_SOCKET > new; mv new address; \
                      while [ ! -e go ]; do sleep 0.05; done; cat \"$@\" | cksum; exit 5";
        run.args(["-c", script]).arg(folder.path()).args(&files).stdout(Stdio::piped());
        let run = run.spawn().expect("it runs");
        let address = folder.path().join("address");
        wait_until("the address", || address.exists());
        let manager = common::manager_of(&fs::read_to_string(address).expect("written"));
        let pid = Pid::from_raw(manager.cast_signed()).expect("a number");
        kill_process(pid, Signal::KILL).expect("it runs");
        fs::write(folder.path().join("go"), "").expect("written");
        let output = run.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(5));
        let plain =
            Command::new("sh").args(["-c", "cat \"$@\" | cksum", "-"]).args(&files).output();
        assert_eq!(output.stdout, plain.expect("it runs").stdout);
    }
}

fn with_fault(fault: &str) -> (std::process::Output, serde_json::Value) {
    let folder = sample_folder();
    let files = sample_files(folder.path());
    // The sleep gives the manager time to register the shell, which then reads something itself: a short program may end before
    // that.
    let script = "sleep 0.3; while read -r line; do :; done < \"$1\"; \
                  grep -n '3 of' \"$@\"; cat \"$@\" | cksum; exit 3";
    let mut line = vec!["sh".to_owned(), "-c".into(), script.into(), "reader".into()];
    line.extend(files.iter().map(|path| path.to_string_lossy().into_owned()));
    let output = assert_same(&line, |command| {
        command.env("FORETELL_TEST_FAULT", fault);
    });
    let json = folder.path().join("summary.json");
    let status = foretell()
        .args(["run", "--json"])
        .arg(&json)
        .arg("--")
        .args(&line)
        .env("FORETELL_TEST_FAULT", fault)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("it runs");
    assert_eq!(status.code(), output.status.code());
    let summary = fs::read(&json).expect("the summary was written");
    (output, serde_json::from_slice(&summary).expect("JSON"))
}

#[test]
fn the_manager_panics() {
    let (_, summary) = with_fault("panic");
    assert!(summary["manager"]["failed"].is_string(), "{summary}");
}

#[test]
fn an_explanation_that_is_there_stays_where_the_manager_fails() {
    let (folder, out) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let log = out.path().join("log");
    fs::write(&log, "of the run before").expect("written");
    let mut command = foretell();
    command.args(["run", "--quiet", "--explain"]).arg(&log);
    command.args([
        "--",
        "sh",
        "-c",
        "sleep 0.3; while read -r line; do :; done < \"$1\"; cat \"$@\"",
        "reader",
    ]);
    let output =
        command.args(sample_files(folder.path())).env("FORETELL_TEST_FAULT", "panic").output();
    let output = output.expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("--explain: nothing is written"), "{text}");
    assert_eq!(fs::read_to_string(&log).expect("it is there"), "of the run before");
    assert_eq!(fs::read_dir(out.path()).expect("listed").count(), 1);
}

#[test]
fn the_manager_stalls_for_ten_seconds() {
    let (_, summary) = with_fault("stall:10");
    assert_eq!(summary["manager"], "unresponsive");
}

#[test]
fn the_ring_is_full_from_the_start() {
    let (_, summary) = with_fault("full-ring");
    assert_eq!(summary["manager"], "finished");
    assert!(summary["programs"]["dropped_records"].as_u64().expect("a number") > 0, "{summary}");
}

#[test]
fn a_file_that_may_not_grow_changes_nothing_of_how_the_program_ends() {
    let out = tempfile::tempdir().expect("a folder");
    for option in ["--json", "--explain"] {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -f 0; exec \"$0\" run --quiet \"$@\" figures -- sh -c 'exit 7'"]);
        command.arg(env!("CARGO_BIN_EXE_foretell")).arg(option).current_dir(out.path());
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{text}");
        assert!(text.starts_with(&format!("foretell: {option}: figures: ")), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(fs::read_dir(out.path()).expect("listed").count(), 0);
    }
}

#[test]
fn an_unknown_fault_is_refused() {
    let output = foretell()
        .args(["run", "--", "true"])
        .env("FORETELL_TEST_FAULT", "nonsense")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn nothing_is_left_behind_when_foretell_is_killed() {
    let mut run = foretell()
        .args(["run", "--", "sh", "-c", "echo $FORETELL_SOCKET; sleep 1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut address = String::new();
    let mut said = BufReader::new(run.stdout.take().expect("a pipe"));
    said.read_line(&mut address).expect("text");
    let manager = common::manager_of(&address);
    run.kill().expect("it was running");
    run.wait().expect("it has ended");
    wait_until("the manager's end", || !Path::new("/proc").join(manager.to_string()).exists());
    assert!(
        common::holders(address.trim()).is_empty(),
        "the control socket is gone with its process"
    );
}

#[test]
fn the_program_ends_without_waiting_for_prefetches() {
    if !common::have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let array = |arguments: &[&str], folders: &[&Path]| {
        let (action, options) = arguments.split_first().expect("mount or unmount");
        let mut command = foretell();
        command.args(["array", action]).args(folders).args(options).stdout(Stdio::null());
        assert!(command.status().expect("it runs").success());
    };
    // Each read takes more than a second: 40 files keep one disk busy for a minute.
    let slow = ["mount", "--disks", "1", "--time-scale", "50", "--layout", "aged"];
    array(&slow, &[backing.path(), mnt.path()]);
    let mut run = under_foretell("true").args(sample_files_of(backing.path(), mnt.path())).spawn();
    let run = run.as_mut().expect("it runs");
    let mut ended = false;
    for _ in 0..200 {
        ended = run.try_wait().expect("it can be asked").is_some();
        if ended {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let unmounted = foretell().args(["array", "unmount"]).arg(mnt.path()).output();
    let unmounted = unmounted.expect("it runs").status.success()
        || Command::new("umount").arg("-l").arg(mnt.path()).status().is_ok_and(|s| s.success());
    assert!(unmounted && ended, "it must end within 10 s");
}

/// The sample files of `backing` as seen below `mountpoint`, without asking the array.
fn sample_files_of(backing: &Path, mountpoint: &Path) -> Vec<std::path::PathBuf> {
    let below = |path: std::path::PathBuf| {
        mountpoint.join(path.strip_prefix(backing).expect("a sample file"))
    };
    sample_files(backing).into_iter().map(below).collect()
}
