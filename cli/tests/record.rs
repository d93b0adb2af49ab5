//! `foretell record`, and what its recordings are good for: the simulator, and `foretell run --replay`.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::mounted::Mounted;
use common::{foretell, have, skipped, text, wait_until};
use serde_json::Value;

/// Not the first of PATH, which may be a script that runs many programs.
const PYTHON: &str = "/usr/bin/python3";

/// Reads half of the files of `a` in a shuffled order, which no rule predicts. The program does not end before the manager has
/// seen what it did.
const SHUFFLED: &str =
    "import os,random,time; all=sorted(os.listdir('a')); random.Random(7).shuffle(all)
print(sum(len(open('a/'+name,'rb').read()) for name in all[:100])); time.sleep(0.3)";

fn record(to: &Path, command: &[&str]) -> Output {
    let mut record = foretell();
    record.args(["record", "-o"]).arg(to).arg("--").args(command).stdin(Stdio::null());
    record.output().expect("foretell runs")
}

/// The figures of a recording.
fn figures(recording: &Path) -> Value {
    let mut report = foretell();
    report.arg("report").arg(recording).args(["--json", "-", "--no-simulation"]);
    let output = report.output().expect("foretell runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn file<'a>(figures: &'a Value, path: &Path) -> &'a Value {
    let files = figures["files"].as_array().expect("files");
    let found = files.iter().find(|file| file["path"] == path.to_str().expect("text"));
    found.unwrap_or_else(|| panic!("{} in {figures}", path.display()))
}

#[test]
fn what_a_program_reads_is_recorded_and_it_ends_as_without() {
    let folder = common::sample_folder();
    let (data, run) = (folder.path().join("data"), folder.path().join("run.ftr"));
    fs::write(&data, vec![b'x'; 300_000]).expect("written");
    let [name, absent] =
        [data.clone(), folder.path().join("absent")].map(|path| path.display().to_string());
    let script = format!("cat {name} | wc -c; test -e {absent}; exit 3");
    let output = record(&run, &["sh", "-c", &script]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "300000\n".to_owned()));
    let said = text(&output.stderr);
    assert!(said.lines().count() == 1 && said.contains("recorded "), "{said}");
    let figures = figures(&run);
    assert_eq!((&figures["ending"], &figures["lost_events"]), (&"whole".into(), &0.into()));
    let read = file(&figures, &data);
    assert_eq!((&read["bytes"], &read["opens"]), (&300_000.into(), &1.into()), "{read}");
    assert_eq!(read["seen_by"], "calls");
    assert_eq!(file(&figures, Path::new(&absent))["is_missing"], true);
    let programs = figures["programs"].as_array().expect("programs");
    assert!(programs.iter().any(|program| program["name"] == "cat"), "{figures}");
    let killed = record(&run, &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.status.signal(), Some(15));
}

#[test]
fn a_recording_is_replayed_by_the_simulator_without_a_format() {
    let folder = common::sample_folder();
    let run = folder.path().join("run.ftr");
    let files = common::sample_files(folder.path());
    let names: Vec<&str> = files.iter().map(|path| path.to_str().expect("text")).collect();
    assert!(record(&run, &[&["cat"][..], &names].concat()).status.success());
    for format in [&[][..], &["--format", "record"]] {
        let mut replay = foretell();
        replay.args(["sim", "replay"]).arg(&run).args(format).args([
            "--json",
            "-",
            "--hints",
            "none,files",
        ]);
        let output = replay.arg("--root").arg(folder.path()).output().expect("foretell runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let bytes: u64 = files.iter().map(|path| fs::metadata(path).expect("there").len()).sum();
        let reads = rows[0]["reads"].as_u64().expect("a number");
        assert!(reads >= bytes / 8192 && reads < bytes / 8192 + 3 * files.len() as u64, "{rows}");
        assert!(rows[0]["elapsed_s"].as_f64() > rows[1]["elapsed_s"].as_f64(), "{rows}");
    }
}

#[test]
fn a_full_disk_costs_the_recording_alone() {
    let output = record(Path::new("/dev/full"), &["sh", "-c", "echo out; exit 4"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(4), "out\n".to_owned()));
    let said = text(&output.stderr);
    let of_disk = said.lines().filter(|line| line.contains("No space left on device")).count();
    assert!(of_disk == 1 && said.lines().count() == 2, "{said}");
}

#[test]
fn files_that_cannot_be_recorded_to_are_refused_before_the_program_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input");
    fs::write(&input, "content").expect("written");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let name = input.to_str().expect("text");
    let table: [(&Path, &str); 5] = [
        (&input, "is an argument of PROGRAM; give another file"),
        (Path::new("-"), "standard output is the program's; give a file"),
        (folder.path(), "it is no regular file"),
        (&pipe, "it is no regular file"),
        (Path::new("/none/such"), "No such file or directory"),
    ];
    for (to, why) in table {
        let output = record(to, &["cat", name]);
        let said = text(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code == 125 || code == 2), "{said}");
        assert!(
            output.stdout.is_empty() && said.lines().count() == 1 && said.contains(why),
            "{said}"
        );
    }
    assert_eq!(fs::read_to_string(&input).expect("there"), "content");
}

/// The manager of this `foretell record`: its child of that name.
fn manager_of(foretell: &Child) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", foretell.id());
    let children = fs::read_to_string(children).ok()?;
    let is_manager = |pid: &&str| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("foretell-manag"))
    };
    children.split_whitespace().find(is_manager)?.parse().ok()
}

/// How often a recording has this text.
fn times_named(recording: &Path, name: &str) -> usize {
    let recorded = fs::read(recording).unwrap_or_default();
    recorded.windows(name.len()).filter(|part| *part == name.as_bytes()).count()
}

#[test]
fn a_killed_manager_leaves_what_came_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let [data, run, go] = ["data", "run.ftr", "go"].map(|name| folder.path().join(name));
    fs::write(&data, vec![b'x'; 100_000]).expect("written");
    let script = "cat data > copy; until test -e go; do sleep 0.05; done; echo end";
    let mut record = foretell();
    record.args(["record", "-o"]).arg(&run).args(["--", "sh", "-c", script]);
    record.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = record.spawn().expect("foretell runs");
    wait_until("the beginning is written", || times_named(&run, "data") == 2); // One is in the command.
    let manager = manager_of(&child).expect("it is there");
    let status = Command::new("kill").args(["-9", &manager.to_string()]).status();
    assert!(status.expect("kill runs").success());
    fs::write(&go, "").expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "end\n".to_owned()));
    let figures = figures(&run);
    assert_eq!(figures["ending"], "cut");
    assert_eq!(file(&figures, &data)["bytes"], 100_000);
}

/// A run of `foretell record` in `folder` that has read `data`, after which its `foretell` was killed. It goes on until `go`
/// exists.
fn killed_foretell(folder: &Path) {
    fs::write(folder.join("data"), vec![b'x'; 100_000]).expect("written");
    let script =
        "cat data > copy; until test -e go; do sleep 0.05; done; cat data > later; echo > over";
    let mut record = foretell();
    record.args(["record", "-o", "run.ftr", "--", "sh", "-c", script]).current_dir(folder);
    let mut child = record.spawn().expect("foretell runs");
    // Two are in the command.
    wait_until("the beginning is written", || times_named(&folder.join("run.ftr"), "data") == 3);
    let manager = manager_of(&child).expect("it is there");
    child.kill().expect("killed");
    let _ = child.wait();
    wait_until("the manager has ended", || !Path::new(&format!("/proc/{manager}")).exists());
    fs::write(folder.join("go"), "").expect("written");
    wait_until("the program goes on", || folder.join("over").exists());
}

#[test]
fn a_recording_whose_foretell_was_killed_has_no_end_and_is_used_all_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    killed_foretell(folder.path());
    let run = |words: &[&str]| {
        let output = foretell().args(words).current_dir(folder.path()).output().expect("it runs");
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        let early = said.lines().filter(|line| line.contains("stopped early: ")).count();
        assert_eq!(early, 1, "{words:?}: {said}");
        output
    };
    let report = run(&["report", "run.ftr", "--json", "-", "--no-simulation"]);
    let figures: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert_eq!(figures["ending"], "cut");
    assert_eq!(file(&figures, &folder.path().join("data"))["bytes"], 100_000);
    let _ = run(&["sim", "replay", "run.ftr"]);
    let _ = run(&["run", "--replay", "run.ftr", "--", "sh", "-c", "cat data; sleep 0.3"]);
}

#[test]
fn a_mistyped_program_leaves_the_recording_before_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run.ftr");
    assert!(record(&run, &["true"]).status.success());
    let before = fs::read(&run).expect("there");
    let script = folder.path().join("script");
    fs::write(&script, "#!/none/such\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("changed");
    let other_name = folder.path().join("other.ftr");
    for with_other_name in [false, true] {
        for (program, code) in [("mistyped", 127), (script.to_str().expect("text"), 126)] {
            let output = record(&run, &[program]);
            assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
            if code == 127 || !with_other_name {
                assert_eq!(fs::read(&run).expect("there"), before, "{program}");
            }
        }
        if !with_other_name {
            let names = fs::read_dir(folder.path()).expect("a folder").count();
            assert_eq!(names, 2, "nothing is left behind");
            fs::hard_link(&run, &other_name).expect("linked");
        }
    }
    let mistyped = record(&folder.path().join("new.ftr"), &["mistyped"]);
    assert_eq!(mistyped.status.code(), Some(127));
    assert!(!folder.path().join("new.ftr").exists());
}

#[test]
fn a_recording_replaces_the_file_behind_a_link_and_keeps_its_mode() {
    let folder = tempfile::tempdir().expect("a folder");
    let [old, link] = ["old.ftr", "link.ftr"].map(|name| folder.path().join(name));
    fs::write(&old, "before").expect("written");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).expect("changed");
    std::os::unix::fs::symlink("old.ftr", &link).expect("linked");
    assert!(record(&link, &["true"]).status.success());
    assert!(link.is_symlink());
    assert_eq!(fs::metadata(&old).expect("there").permissions().mode() & 0o777, 0o640);
    assert_eq!(figures(&old)["ending"], "whole");
    let new = folder.path().join("new.ftr");
    assert!(record(&new, &["true"]).status.success());
    assert_eq!(fs::metadata(&new).expect("there").permissions().mode() & 0o777, 0o600);
}

fn fill(folder: &Path) {
    fs::create_dir(folder.join("a")).expect("made");
    for at in 0..200 {
        let path = folder.join(format!("a/{at:03}.bin"));
        fs::write(path, vec![b'x'; 3_000 + at * 100]).expect("written");
    }
}

fn number(figures: &Value, group: &str, key: &str) -> u64 {
    assert_eq!(figures["manager"], "finished", "{figures}");
    figures[group][key].as_u64().expect("a number")
}

#[test]
fn a_run_is_looked_ahead_of_with_a_recording_of_moved_files() {
    let Some(mounted) = Mounted::new(fill) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (run, elsewhere) = (folder.path().join("run.ftr"), folder.path().join("elsewhere"));
    fs::create_dir(&elsewhere).expect("made");
    fill(&elsewhere);
    let mut recorded = foretell();
    recorded.args(["record", "-q", "-o"]).arg(&run).args(["--", PYTHON, "-c", SHUFFLED]);
    let status = recorded.current_dir(&elsewhere).stdout(Stdio::null()).status();
    assert!(status.expect("foretell runs").success());
    let map = format!("{}={}", elsewhere.display(), mounted.folder.path().display());
    let run = run.to_str().expect("text");
    for (options, is_found) in [(&["--map", &map][..], true), (&[], false)] {
        let options = [&["--no-hint-args", "--replay", run], options].concat();
        let figures = mounted.run_with(&[PYTHON, "-c", SHUFFLED], &options, |_| {});
        assert_eq!(figures["learned"]["is_known"], true, "{figures}");
        let in_time = number(&figures, "blocks", "useful") + number(&figures, "blocks", "late");
        assert_eq!(in_time >= 100, is_found, "{figures}");
    }
}

/// Compiles `tests/c/reads_list.c` as a static program.
fn static_program(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/reads_list.c");
    let program = folder.join("reads_list");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-static", "-o"]).arg(&program).arg(source).stderr(Stdio::null());
    let is_there = compiler.status().expect("a C compiler").success();
    if !is_there {
        skipped("no static libc");
    }
    is_there.then_some(program)
}

#[test]
fn a_program_that_cannot_be_interposed_is_looked_ahead_of() {
    let Some(mounted) = Mounted::new(fill) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = static_program(folder.path()) else { return };
    let (run, list) = (folder.path().join("run.ftr"), folder.path().join("list"));
    let names: Vec<String> = (0..200).rev().map(|at| format!("a/{at:03}.bin\n")).collect();
    fs::write(&list, names.concat()).expect("written");
    // `cat` reads the same files in the same order.
    let mut recorded = foretell();
    let script = format!("cat $(cat {}) > /dev/null", list.display());
    recorded.args(["record", "-q", "-o"]).arg(&run).args(["--", "sh", "-c", &script]);
    assert!(recorded.current_dir(mounted.folder.path()).status().expect("it runs").success());
    let [program, list, run] = [&program, &list, &run].map(|path| path.to_str().expect("text"));
    let options = ["--no-hint-args", "--replay", run];
    let figures = mounted.run_with(&[program, "read", list], &options, |_| {});
    assert_eq!(figures["learned"]["is_known"], true, "{figures}");
    assert!(number(&figures, "blocks", "prefetched") >= 100, "{figures}");
}

#[test]
fn a_static_program_is_recorded_from_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    if !have("busybox") {
        return;
    }
    let (data, run) = (folder.path().join("data"), folder.path().join("run.ftr"));
    fs::write(&data, vec![b'x'; 4 << 20]).expect("written");
    let script = "while read -r line; do sleep 0.2; break; done < data; sleep 0.2";
    let mut recorded = foretell();
    recorded.args(["record", "-o"]).arg(&run).args(["--", "busybox", "sh", "-c", script]);
    let output = recorded.current_dir(folder.path()).output().expect("foretell runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let _ = figures(&run);
}

#[test]
fn what_is_no_recording_is_refused_with_the_way_out() {
    let (_folder, path) = common::recording("1 execve(\"/bin/true\") = 0\n");
    let path = path.to_str().expect("text");
    let table = [
        (&["run", "--replay", path, "--", "true"][..], 125, "foretell record -o FILE"),
        (&["run", "--replay", "/none", "--", "true"], 125, "No such file"),
        (&["run", "--replay", "/", "--", "true"], 125, "no regular file"),
        (&["run", "--map", "/a=/b", "--", "true"], 125, "--replay"),
        (&["run", "--replay", path, "--map", "/a", "--", "true"], 125, "/old/data=/new/data"),
        (&["report", path, "--json", "-"], 1, "foretell record -o FILE"),
        (&["sim", "replay", path, "--format", "record"], 1, "foretell record"),
    ];
    for (words, code, why) in table {
        let output = foretell().args(words).output().expect("foretell runs");
        let said = text(&output.stderr);
        assert!(said.contains(why), "{words:?}: {said}");
        let is_usage = output.status.code() == Some(2);
        assert!(is_usage || output.status.code() == Some(code), "{words:?}: {:?}", output.status);
    }
}
