//! `foretell run --observe opens`: programs in which the library cannot be, whose opens are watched.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use common::{foretell, have, have_fuse, skipped, wait_until, write_script};

const FILES: usize = 200;

/// What tells the processes of one test from those of others.
const MARK: &str = "FORETELL_TEST_MARK";

/// Files, and a static program that opens them.
struct Setting {
    folder: tempfile::TempDir,
}

impl Setting {
    /// `None`, with a message, without a static C library, or where opens cannot be watched.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let setting = Setting { folder };
        fs::create_dir(setting.data()).expect("made");
        for index in 0..FILES {
            let content = vec![index as u8; 3_000 + 31 * index];
            fs::write(setting.data().join(format!("{index:03}")), content).expect("written");
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/opens_files.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Werror", "-static", "-pthread", "-o"]);
        compiler.arg(setting.program()).arg(source);
        if !compiler.output().is_ok_and(|output| output.status.success()) {
            skipped("no static libc");
            return None;
        }
        let output = watched(&["true"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("not watched") {
            skipped(said.lines().next().unwrap_or_default());
            return None;
        }
        Some(setting)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("opens_files")
    }

    fn command(&self, what: &str) -> [String; 3] {
        let text = |path: PathBuf| path.to_str().expect("text").to_owned();
        [text(self.program()), what.to_owned(), text(self.data())]
    }

    /// A command that says that it has begun, and goes on once `gate` is there.
    fn begin_later(&self, form: &[&str], adjust: impl Fn(&mut Command)) -> Later {
        let [program, _, data] = self.command("later");
        let (gate, mark) = (self.folder.path().join("gate"), format!("{:?}", self.folder.path()));
        let mut command = foretell();
        command.args(["run", "--observe", "opens"]).args(form).arg("--").arg(program);
        command.arg("later").arg(&gate).arg(data).env(MARK, &mark).stdin(Stdio::null());
        adjust(&mut command);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "begun\n");
        Later { child, output, gate, mark }
    }

    /// What the command says after it has begun.
    fn expected(&self) -> String {
        let [program, what, data] = self.command("list");
        let output = Command::new(program).args([what, data]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(7));
        String::from_utf8(output.stdout).expect("text")
    }
}

/// A program that waits for its gate.
struct Later {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    gate: PathBuf,
    mark: String,
}

impl Later {
    /// Lets it go on. Returns what it says from then on.
    fn open_gate(&mut self) -> String {
        fs::write(&self.gate, "").expect("written");
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("text");
        said
    }

    /// The processes of its run of this name.
    fn processes(&self, name: &str) -> Vec<Pid> {
        let has_mark = |folder: &Path| {
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|entry| {
                entry.strip_prefix(format!("{MARK}=").as_bytes()) == Some(self.mark.as_bytes())
            })
        };
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("listed").flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let is_named = || {
                fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
            };
            if let Some(pid) = number.and_then(Pid::from_raw)
                && is_named()
                && has_mark(&entry.path())
            {
                found.push(pid);
            }
        }
        found.sort_by_key(|pid| pid.as_raw_nonzero());
        found
    }

    fn guards(&self) -> Vec<Pid> {
        self.processes("foretell-guard")
    }

    /// The keeper and its answerer. A program that opens nothing may have begun before there is an answerer.
    fn keeper_and_answerer(&self) -> [Pid; 2] {
        let mut guards = Vec::new();
        wait_until("both processes of the guard", || {
            guards = self.guards();
            guards.len() == 2
        });
        [guards[0], guards[1]]
    }

    fn assert_nothing_is_left(&self) {
        wait_until("the end of the guard", || self.guards().is_empty());
        wait_until("the end of the manager", || self.processes("foretell-manag").is_empty());
    }
}

fn watched(command: &[&str]) -> Command {
    let mut run = foretell();
    run.args(["run", "--observe", "opens", "--"]).args(command).stdin(Stdio::null());
    run
}

/// Runs a command plain and in both forms with its opens watched, and asserts that the results are the same.
fn assert_same(command: &[impl AsRef<str>]) -> Output {
    let (program, arguments) = command.split_first().expect("a program");
    let output = |mut command: Command| command.stdin(Stdio::null()).output().expect("it runs");
    let mut plain = Command::new(program.as_ref());
    plain.args(arguments.iter().map(AsRef::as_ref));
    let plain = output(plain);
    for form in [&["--quiet"][..], &["--quiet", "--json", "/dev/null"]] {
        let mut run = foretell();
        run.args(["run", "--observe", "opens"]).args(form).arg("--");
        run.args(command.iter().map(AsRef::as_ref));
        let run = output(run);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&plain.stderr), text(&run.stderr), "{form:?}");
        assert_eq!(text(&plain.stdout), text(&run.stdout), "{form:?}");
        assert_eq!(plain.status, run.status, "{form:?}");
    }
    plain
}

#[test]
fn a_static_program_that_goes_through_a_folder_is_helped() {
    let Some(setting) = Setting::new().filter(|_| have_fuse()) else { return };
    let mountpoint = tempfile::tempdir().expect("a folder");
    let array = |words: &[&str], paths: &[&Path]| {
        let output = foretell().arg("array").args(words).args(paths).output();
        output.expect("it runs").status.success()
    };
    let mount = ["mount", "--disks", "4", "--disk", "network", "--layout", "aged"];
    assert!(array(&mount, &[&setting.data(), mountpoint.path()]));
    let figures = setting.folder.path().join("figures");
    let mut run = foretell();
    run.args(["run", "--quiet", "--no-hint-args", "--observe", "opens", "--json"]).arg(&figures);
    run.arg("--").arg(setting.program()).arg("list").arg(mountpoint.path());
    let output = run.output().expect("it runs");
    wait_until("the array is free", || array(&["unmount"], &[mountpoint.path()]));
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), setting.expected());
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON");
    let number = |group: &str, key: &str| figures[group][key].as_u64().expect("a number");
    assert!(number("programs", "outside_opens") >= FILES as u64, "{figures}");
    assert_eq!(number("programs", "dropped_opens"), 0, "{figures}");
    assert!(number("names", "used") > FILES as u64 / 4, "{figures}");
    assert!(number("blocks", "prefetched") > 0, "{figures}");
}

/// A process in which the library was executes the program, some also after an exec that has failed.
#[test]
fn opens_of_a_static_program_are_recorded() {
    let Some(setting) = Setting::new() else { return };
    let recording = setting.folder.path().join("run.ftr");
    let opened = |options: &[&str]| {
        let mut record = foretell();
        record.args(["record", "-q", "-o"]).arg(&recording).args(options).arg("--");
        let output = record.args(setting.command("list")).output().expect("it runs");
        assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), setting.expected());
        let mut report = foretell();
        report.arg("report").arg(&recording).args(["--no-simulation", "--json", "-"]);
        let output = report.output().expect("it runs");
        let figures: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let data = setting.data().canonicalize().expect("there");
        let files = figures["files"].as_array().expect("files").iter();
        let is_opened = |file: &&serde_json::Value| {
            let path = Path::new(file["path"].as_str().expect("text"));
            path.parent() == Some(&data) && file["opens"].as_u64() > Some(0)
        };
        files.filter(is_opened).count()
    };
    // On a busy machine the manager may hear of opens after the program has ended.
    let all = (0..10).any(|_| opened(&["--observe", "opens"]) == FILES);
    assert!(all, "some opens were missed in each of ten runs");
    assert!(opened(&[]) < FILES);
}

#[test]
fn a_static_program_is_watched_whoever_executes_it() {
    let Some(setting) = Setting::new() else { return };
    let [program, _, data] = setting.command("");
    let gate = setting.folder.path().join("gate");
    let gate_name = gate.to_str().expect("text");
    let script = format!("exec {program} stays {gate_name} {data}");
    let python = "import os, sys
try: os.execv('/', ['/'])
except OSError: os.execv(sys.argv[1], sys.argv[1:])";
    for before in [
        &["env"][..],
        &["sh", "-c", &script],
        &["nice"],
        &["xargs"],
        &["setpriv", "--no-new-privs"],
        &["python3", "-c", python],
    ] {
        if !have(before[0]) {
            continue;
        }
        // The manager takes in the opens while the program is there, which it may have no time for.
        let is_seen = [100, 1000, 10_000].into_iter().any(|stay_ms| {
            let _ = fs::remove_file(&gate);
            let figures = setting.folder.path().join("figures");
            let mut run = foretell();
            run.args(["run", "--quiet", "--observe", "opens", "--json"]).arg(&figures).arg("--");
            run.args(before).args([&program, "stays", gate_name, &data]);
            let mut child =
                run.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it runs");
            let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            std::thread::sleep(std::time::Duration::from_millis(stay_ms));
            fs::write(&gate, "").expect("written");
            let code = child.wait().expect("it ends").code();
            assert_eq!(code, Some(if before[0] == "xargs" { 123 } else { 7 }), "{before:?}");
            assert_eq!(line, setting.expected(), "{before:?}");
            let figures: serde_json::Value =
                serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON");
            figures["programs"]["outside_opens"].as_u64().expect("a number") >= FILES as u64
        });
        assert!(is_seen, "{before:?}");
    }
}

#[test]
fn programs_do_the_same_with_their_opens_watched() {
    let Some(setting) = Setting::new() else { return };
    for what in ["list", "threads", "interrupted", "filtered", "children"] {
        let output = assert_same(&setting.command(what));
        assert!(!output.stdout.is_empty(), "{what}");
    }
    let [program, _, data] = setting.command("list");
    let script =
        format!("{program} list {data}; ls -lR {data} | cksum; cat {data}/* | cksum; exit 3");
    assert_eq!(assert_same(&["sh", "-c", &script]).status.code(), Some(3));
    if have("python3") {
        let script = "import os, sys, json\nfor name in sorted(os.listdir(sys.argv[1])): print(len(open(sys.argv[1] + '/' + name, 'rb').read()))";
        assert_same(&["python3", "-c", script, &data]);
    }
    assert_same(&["sh", "-c", "kill -9 $$"]);
}

/// `assert_same` cannot compare the lines on standard error.
#[test]
fn a_program_that_cannot_be_executed_ends_as_without() {
    let Some(setting) = Setting::new() else { return };
    let script = setting.folder.path().join("script");
    write_script(&script, "#!/no/such/interpreter\n");
    for (program, code) in
        [("no-such-program", 127), ("/etc/passwd", 126), (script.to_str().expect("text"), 126)]
    {
        for form in [&["--quiet"][..], &["--quiet", "--json", "/dev/null"]] {
            let line = |options: &[&str]| {
                let mut run = foretell();
                run.arg("run").args(form).args(options).args(["--", program]);
                let output = run.stdin(Stdio::null()).output().expect("it runs");
                assert_eq!(output.status.code(), Some(code), "{program}");
                String::from_utf8_lossy(&output.stderr).into_owned()
            };
            assert_eq!(line(&["--observe", "opens"]), line(&[]));
        }
    }
}

#[test]
fn a_program_that_outlives_foretell_goes_on() {
    let Some(setting) = Setting::new() else { return };
    let mut later = setting.begin_later(&[], |_| ());
    let manager = later.processes("foretell-manag");
    assert_eq!((later.guards().len(), manager.len()), (2, 1));
    later.child.kill().expect("it is there");
    later.child.wait().expect("it ends");
    wait_until("the end of the manager", || later.processes("foretell-manag").is_empty());
    assert_eq!(later.open_gate(), setting.expected());
    later.assert_nothing_is_left();
}

#[test]
fn a_manager_that_is_killed_or_stopped_does_not_hold_up_the_program() {
    let Some(setting) = Setting::new() else { return };
    for signal in [Signal::KILL, Signal::STOP] {
        let mut later = setting.begin_later(&["--quiet"], |_| ());
        let manager = later.processes("foretell-manag");
        manager.iter().for_each(|&manager| kill_process(manager, signal).expect("it is there"));
        assert_eq!((later.open_gate(), manager.len()), (setting.expected(), 1));
        assert_eq!(later.child.wait().expect("it ends").code(), Some(7));
        if signal == Signal::STOP {
            kill_process(manager[0], Signal::CONT).expect("it is there");
        }
        later.assert_nothing_is_left();
        fs::remove_file(&later.gate).expect("it is there");
    }
}

#[test]
fn either_process_of_the_guard_may_be_killed() {
    let Some(setting) = Setting::new() else { return };
    for form in [&["--quiet"][..], &[]] {
        for killed in [0, 1] {
            let mut later = setting.begin_later(form, |_| ());
            kill_process(later.keeper_and_answerer()[killed], Signal::KILL).expect("it is there");
            assert_eq!(later.open_gate(), setting.expected());
            assert_eq!(later.child.wait().expect("it ends").code(), Some(7));
            later.assert_nothing_is_left();
            fs::remove_file(&later.gate).expect("it is there");
        }
    }
}

/// A look that nobody bounds could last for ever.
#[test]
fn without_its_keeper_the_answerer_does_not_look() {
    let Some(setting) = Setting::new() else { return };
    let figures = setting.folder.path().join("figures");
    let form = ["--quiet", "--json", figures.to_str().expect("text")];
    let mut later = setting.begin_later(&form, |_| ());
    let [keeper, _] = later.keeper_and_answerer();
    kill_process(keeper, Signal::KILL).expect("it is there");
    wait_until("the end of the keeper", || later.guards().len() == 1);
    assert_eq!(later.open_gate(), setting.expected());
    assert_eq!(later.child.wait().expect("it ends").code(), Some(7));
    later.assert_nothing_is_left();
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON");
    let seen = figures["programs"]["outside_opens"].as_u64().expect("a number");
    assert!(seen < FILES as u64 / 2, "{figures}");
}

/// The answerer is killed again and again while opens wait for it.
#[test]
fn no_open_is_lost_with_an_answerer() {
    let Some(setting) = Setting::new() else { return };
    let [program, what, data] = setting.command("threads");
    let plain = Command::new(&program).args([&what, &data]).output().expect("it runs");
    let mark = format!("{:?}", setting.folder.path());
    let mut run = foretell();
    run.args(["run", "--quiet", "--observe", "opens", "--"]).args([&program, &what, &data]);
    run.env(MARK, &mark).stdout(Stdio::piped());
    let mut child = run.spawn().expect("it runs");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut later = Later { child, output, gate: setting.folder.path().join("gate"), mark };
    for _ in 0..30 {
        if let Some(&answerer) = later.guards().get(1) {
            let _ = kill_process(answerer, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    assert_eq!(later.open_gate().as_bytes(), plain.stdout);
    assert_eq!(later.child.wait().expect("it ends").code(), Some(0));
    later.assert_nothing_is_left();
}

#[test]
fn an_interrupt_from_the_terminal_ends_no_guard() {
    let Some(setting) = Setting::new() else { return };
    let [program, what, data] = setting.command("list");
    let script = format!(
        "trap '{program} {what} {data}; {program} {what} {data}; exit 3' INT; echo begun; while :; do sleep 0.02; done"
    );
    for form in [&["--quiet"][..], &["--quiet", "--json", "/dev/null"]] {
        let mut run = foretell();
        run.args(["run", "--observe", "opens"]).args(form).args(["--", "sh", "-c", &script]);
        let mut child = run.process_group(0).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (mut line, mut said) = (String::new(), String::new());
        output.read_line(&mut line).expect("a line");
        let group = Pid::from_raw(child.id().cast_signed()).expect("a number");
        kill_process_group(group, Signal::INT).expect("it is there");
        output.read_to_string(&mut said).expect("text");
        assert_eq!((line.as_str(), said), ("begun\n", setting.expected().repeat(2)));
        assert_eq!(child.wait().expect("it ends").code(), Some(3));
    }
}

#[test]
fn without_the_right_a_line_says_so_and_the_program_runs() {
    let Some(setting) = Setting::new() else { return };
    if !have("setpriv") || !rustix::process::geteuid().is_root() {
        return skipped("only root may give up a right");
    }
    let command = setting.command("list");
    let run = |before: &[&str], options: &[&str]| {
        let mut run = Command::new("setpriv");
        run.args(before).arg(env!("CARGO_BIN_EXE_foretell")).args(["run", "--observe", "opens"]);
        let output = run.args(options).arg("--").args(&command).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), setting.expected());
        assert_eq!(output.status.code(), Some(7));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let without = ["--bounding-set", "-sys_admin"];
    let said = run(&without, &[]);
    assert_eq!(said.matches("opens are not watched: the right is missing").count(), 1, "{said}");
    assert_eq!(run(&without, &["--quiet"]), "");
    // Who gets no further rights needs none.
    let said = run(&["--bounding-set", "-sys_admin", "--no-new-privs"], &[]);
    assert!(!said.contains("not watched"), "{said}");
}

#[test]
fn opens_that_are_watched_already_are_not_watched_again() {
    let Some(setting) = Setting::new() else { return };
    let mut line = vec![env!("CARGO_BIN_EXE_foretell"), "run", "--observe", "opens", "--"];
    let command = setting.command("list");
    line.extend(command.iter().map(String::as_str));
    let output = watched(&line).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), setting.expected());
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(said.matches("they are watched by another program already").count(), 1, "{said}");
}
