//! Runs of one daemon share data, devices and memory.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::daemon::Daemon;
use common::{foretell, have, have_fuse, is_mounted, skipped, text, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A run that tells nothing of its own, of a program whose output is kept.
fn run(daemon: &Daemon, options: &[&str], program: &[&str]) -> Command {
    let mut run = daemon.command(&["run", "--quiet", "--no-learn"]);
    run.args(options).arg("--").args(program).stdout(Stdio::piped());
    run
}

/// What the daemon says of the runs that it has had, once none is left.
fn ended(daemon: &Daemon) -> Value {
    let mut status = Value::Null;
    wait_until("the end of the runs", || {
        status = daemon.status();
        status["runs"].as_array().is_some_and(Vec::is_empty)
    });
    status["ended"].clone()
}

/// Has `work` done under a daemon that `start` makes, until so many of its runs were managed by that: on a busy machine a run
/// may wait for its daemon in vain. Returns what came of it, the daemon, and what that says of its runs.
fn managed<T>(
    count: u64,
    start: impl Fn() -> Daemon,
    mut work: impl FnMut(&Daemon) -> T,
) -> (T, Daemon, Value) {
    for _ in 0..30 {
        let daemon = start();
        let result = work(&daemon);
        let ended = ended(&daemon);
        if ended["runs"] == count {
            return (result, daemon, ended);
        }
    }
    panic!("the daemon has never had {count} runs");
}

/// The most memory that the daemon has had.
fn peak_bytes(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.process.id()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().strip_suffix(" kB").expect("a unit").parse::<u64>().expect("a number") * 1024
}

/// A daemon in a control group, if one is given.
fn daemon_within(group: Option<&Group>, options: &[&str]) -> Daemon {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = within(group, &[env!("CARGO_BIN_EXE_foretell"), "daemon"]);
    command.args(options);
    let process = Daemon::begin_by(folder.path(), command);
    Daemon { folder, process }
}

/// A program, in a control group if one is given.
fn within(group: Option<&Group>, words: &[&str]) -> Command {
    let enter = group.map(|group| format!("echo $$ > {}/cgroup.procs && ", group.0.display()));
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{}exec \"$@\"", enter.unwrap_or_default())).arg("-").args(words);
    shell
}

/// An array that tells at the end what its disks did.
struct Array {
    backing: tempfile::TempDir,
    folder: tempfile::TempDir,
    report: PathBuf,
}

impl Array {
    fn new(fill: impl Fn(&Path)) -> Option<Self> {
        if !have_fuse() {
            return None;
        }
        let new = || tempfile::tempdir().expect("a folder");
        let (backing, folder) = (new(), new());
        fill(backing.path());
        let report = backing.path().with_extension("report");
        Some(Array { backing, folder, report })
    }

    /// The bytes that its disks have read, with metadata, while `work` was done on it cold.
    fn bytes_of(&self, work: impl FnOnce()) -> u64 {
        let mut mount = foretell();
        mount.args(["array", "mount", "--disks", "4", "--disk", "network", "--layout", "aged"]);
        mount.arg("--json").arg(&self.report).args([self.backing.path(), self.folder.path()]);
        let output = mount.output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        work();
        self.unmount();
        let mut report = Value::Null;
        wait_until("the array's report", || {
            let read = fs::read(&self.report).unwrap_or_default();
            report = serde_json::from_slice(&read).unwrap_or_default();
            report["bytes"].is_u64()
        });
        fs::remove_file(&self.report).expect("it is there");
        report["bytes"].as_u64().expect("a number")
    }

    fn unmount(&self) {
        let mut unmount = foretell();
        unmount.args(["array", "unmount"]).arg(self.folder.path());
        wait_until("the array is free", || unmount.output().expect("it runs").status.success());
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if is_mounted(self.folder.path()) {
            self.unmount();
        }
    }
}

fn end(child: Child) -> Output {
    child.wait_with_output().expect("it ends")
}

/// Two programs read the same files in opposite orders, with hints of all of them. With each back end, the disks read each byte
/// once.
#[test]
fn programs_with_hints_on_the_same_data_fetch_it_once() {
    let names: Vec<String> = (0..60).map(|at| format!("{at:02}")).chain(["large".into()]).collect();
    let Some(array) = Array::new(|folder| {
        for (at, name) in names.iter().enumerate() {
            let size = if name == "large" { 8 << 20 } else { 20_000 + 1000 * at };
            fs::write(folder.join(name), vec![b'a' + (at % 26) as u8; size]).expect("written");
        }
    }) else {
        return;
    };
    let forwards: Vec<&str> = ["cat"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let backwards: Vec<&str> =
        ["cat"].into_iter().chain(names.iter().rev().map(String::as_str)).collect();
    let (mut expected, mut reversed) = (Vec::new(), Vec::new());
    let plain_bytes = array.bytes_of(|| {
        for (program, to) in [(&forwards, &mut expected), (&backwards, &mut reversed)] {
            let mut plain = Command::new("cat");
            *to = plain
                .args(&program[1..])
                .current_dir(array.folder.path())
                .output()
                .expect("it runs")
                .stdout;
        }
    });
    for backend in ["auto", "posix", "read-through"] {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("rules.toml");
        fs::write(&rules, format!("[[rule]]\npath = '**/*'\nbackend = '{backend}'\n"))
            .expect("written");
        let start = || Daemon::start_with(&["--rules", rules.to_str().expect("text")]);
        let work = |daemon: &Daemon| {
            let begin = |program: &[&str]| {
                let mut run = run(daemon, &[], program);
                run.current_dir(array.folder.path()).spawn().expect("it runs")
            };
            let (one, two) = (begin(&forwards), begin(&backwards));
            let (one, two) = (end(one), end(two));
            assert!(one.stdout == expected && two.stdout == reversed, "{backend}");
        };
        let (bytes, _, ended) = managed(2, start, |daemon| array.bytes_of(|| work(daemon)));
        let prefetched = ended["prefetched_bytes"].as_u64().expect("a number");
        assert!(prefetched >= plain_bytes / 4, "{backend}: {ended}");
        assert!(bytes * 100 <= plain_bytes * 102, "{backend}: {bytes} of {plain_bytes}");
    }
}

/// A million hints that are never read: another program's hints are worked off, and memory keeps its bound.
#[test]
fn a_flood_of_hints_holds_up_no_other_run_and_takes_bounded_memory() {
    let Some(array) = Array::new(|folder| {
        for name in ["flood", "data"] {
            fs::create_dir(folder.join(name)).expect("made");
            for at in 0..200 {
                let path = folder.join(format!("{name}/{at:03}"));
                fs::write(path, vec![b'a' + (at % 26) as u8; 30_000]).expect("written");
            }
        }
    }) else {
        return;
    };
    let list = array.backing.path().with_extension("list");
    let line = |at: usize| format!("{}/flood/{:03}\n", array.folder.path().display(), at % 200);
    fs::write(&list, (0..1_000_000).map(line).collect::<String>()).expect("written");
    let work = |daemon: &Daemon| {
        let mut floods: Vec<Child> = (0..2)
            .map(|_| {
                let mut flood =
                    run(daemon, &["--hints", list.to_str().expect("text")], &["sleep", "1000"]);
                flood.spawn().expect("it runs")
            })
            .collect();
        let waiting = |run: &Value| run["figures"]["waiting_hints"].as_u64().expect("a number");
        // A flood that the daemon does not manage does not show.
        let mut left = 200;
        wait_until("the floods", || {
            let status = daemon.status();
            let runs = status["runs"].as_array().expect("runs");
            left -= 1;
            left == 0 || (runs.len() == 2 && runs.iter().all(|run| waiting(run) >= 1000))
        });
        let mut run = run(daemon, &[], &["sh", "-c", "cat data/* | cksum; cat data/* | wc -c"]);
        let output = run.current_dir(array.folder.path()).output().expect("it runs");
        let mut plain = Command::new("sh");
        plain.args(["-c", "cat data/* | cksum; cat data/* | wc -c"]);
        let plain = plain.current_dir(array.backing.path()).output().expect("it runs");
        assert_eq!(text(&output.stdout), text(&plain.stdout));
        for flood in &mut floods {
            kill_process(Pid::from_child(flood), Signal::TERM).expect("it is there");
            flood.wait().expect("it ends");
        }
    };
    let work = |daemon: &Daemon| array.bytes_of(|| work(daemon));
    let (_, daemon, ended) = managed(3, Daemon::start, work);
    assert!(ended["useful_bytes"].as_u64() > Some(1 << 20), "{ended}");
    fs::remove_file(&list).expect("it is there");
    assert!(peak_bytes(&daemon) < 256 << 20, "{}", peak_bytes(&daemon));
}

/// A file system of a few pages at a folder; unmounted at the end.
struct Tiny<'a>(&'a Path);

impl<'a> Tiny<'a> {
    /// `None`, with a message, where none can be mounted.
    fn mount(at: &'a Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8k,mode=0700", "tmpfs"]).arg(at);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        if !is_mounted {
            skipped("no tmpfs can be mounted");
        }
        is_mounted.then_some(Tiny(at))
    }
}

impl Drop for Tiny<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Names of foretell's in the folder of shared memory.
fn in_shared_memory() -> BTreeSet<String> {
    let listing = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = listing.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("foretell")).collect()
}

/// Eight programs of different kinds run at once, and something becomes of their daemon.
#[test]
fn whatever_becomes_of_the_daemon_all_programs_do_what_they_do() {
    let Some(array) = Array::new(|folder| {
        for at in 0..160 {
            let folder = folder.join(format!("tree/{}", at % 8));
            fs::create_dir_all(&folder).expect("made");
            let line = format!("{at} x\n").repeat(2000 + 10 * at);
            fs::write(folder.join(format!("{at:03}")), line).expect("written");
        }
        fs::write(folder.join("large"), vec![b'x'; 8 << 20]).expect("written");
    }) else {
        return;
    };
    let programs = [
        &["sh", "-c", "cat tree/0/* | cksum"][..],
        &["sh", "-c", "cksum tree/1/*"],
        &["sh", "-c", "grep -rc x tree/2 | sort"],
        &["sh", "-c", "tar cf - --sort=name tree/3 | wc -c"],
        &["sh", "-c", "find tree/4 -type f -size +1k -name '*1*' | sort"],
        &["sh", "-c", "for file in tree/5/*; do wc -c $file; done"],
        &["dd", "if=large", "bs=64k", "status=none"],
        &["sh", "-c", "ls tree/6 | sort -r | while read name; do tail -c 100 tree/6/$name; done"],
    ];
    let expected = programs.map(|program| {
        let mut plain = Command::new(program[0]);
        plain
            .args(&program[1..])
            .current_dir(array.backing.path())
            .output()
            .expect("it runs")
            .stdout
    });
    let folder = tempfile::tempdir().expect("a folder");
    let shared = in_shared_memory();
    for event in ["none", "kill", "stop", "replace", "full"] {
        let tiny = if event == "full" { Tiny::mount(folder.path()) } else { None };
        if event == "full" && tiny.is_none() {
            continue;
        }
        let process = Daemon::begin(folder.path(), &[]);
        if tiny.is_some() {
            assert!(fs::write(folder.path().join("fill"), [0; 1 << 16]).is_err(), "it is full");
        }
        let mut daemon = Daemon { folder: tempfile::tempdir().expect("a folder"), process };
        let run = |program: &&[&str]| {
            let mut run = foretell();
            run.args(["run", "--quiet", "--no-learn", "--"]).args(*program);
            run.env("FORETELL_DAEMON", folder.path().join("run")).stdin(Stdio::null());
            run.stdout(Stdio::piped()).current_dir(array.folder.path());
            let mut child = run.spawn().expect("it runs");
            let mut output = child.stdout.take().expect("a pipe");
            std::thread::spawn(move || {
                let mut read = Vec::new();
                output.read_to_end(&mut read).expect("read");
                (read, child.wait().expect("it ends"))
            })
        };
        array.bytes_of(|| {
            let begun: Vec<_> = programs.iter().map(run).collect();
            std::thread::sleep(Duration::from_millis(30)); // Most runs are managed by then.
            match event {
                "kill" => daemon.signal(Signal::KILL),
                "stop" => daemon.signal(Signal::STOP),
                "replace" => {
                    daemon.signal(Signal::KILL);
                    daemon.process.wait().expect("it ends");
                    daemon.process = Daemon::begin(folder.path(), &[]);
                }
                _ => {}
            }
            let more: Vec<_> = programs.iter().map(run).collect();
            for begun in [begun, more] {
                for ((thread, program), expected) in begun.into_iter().zip(programs).zip(&expected)
                {
                    let (output, status) = thread.join().expect("it is read");
                    assert!(status.success(), "{event}, {program:?}: {status}");
                    assert!(output == *expected, "{event}, {program:?}: {}", text(&output));
                }
            }
            // One that is stopped keeps descriptors of what its runs have read.
            if event == "stop" {
                daemon.signal(Signal::KILL);
            }
        });
        if matches!(event, "kill" | "stop") {
            daemon.process.wait().expect("it ends");
            daemon.process = Daemon::begin(folder.path(), &[]);
        }
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.process.wait().expect("it ends").code(), Some(0), "{event}");
        let left = fs::read_dir(folder.path().join("run")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{event}: something is left");
        let shared: Vec<_> = in_shared_memory().difference(&shared).cloned().collect();
        assert_eq!(shared, [""; 0], "{event}: something is left in shared memory");
    }
}

/// A control group of its own that limits memory; removed at the end.
struct Group(PathBuf);

impl Group {
    /// `None`, with a message, if no group can be made.
    fn new(bytes: u64) -> Option<Self> {
        for (hierarchy, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let folder =
                Path::new(hierarchy).join(format!("foretell-share-{}", std::process::id()));
            let group = fs::create_dir(&folder).is_ok().then_some(Group(folder));
            if let Some(group) = group
                && fs::write(group.0.join(limit), bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        skipped("no control group of memory can be made");
        None
    }

    fn oom_kills(&self) -> u64 {
        let read = |name| fs::read_to_string(self.0.join(name)).ok();
        let text = read("memory.oom_control").or_else(|| read("memory.events")).expect("counts");
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("a count").trim().parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The budget is four times what the group allows, and the data too.
#[test]
fn a_small_control_group_is_enough_for_a_large_budget() {
    if !have("cksum") {
        return;
    }
    let Some(group) = Group::new(256 << 20) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = (0..8).map(|at| format!("part{at}")).collect();
    for name in &names {
        // Most of it are holes, which take no disk.
        let file = File::create(folder.path().join(name)).expect("made");
        file.set_len(128 << 20).expect("set");
        (0..128).for_each(|at| file.write_all_at(name.as_bytes(), at << 20).expect("written"));
    }
    let program: Vec<&str> =
        ["cksum"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let plain = Command::new("cksum").args(&names).current_dir(folder.path()).output();
    let plain = text(&plain.expect("it runs").stdout);
    let run = [env!("CARGO_BIN_EXE_foretell"), "run", "-q", "--no-learn", "--budget", "1GiB", "--"];
    let words = [&run[..], &program].concat();
    let run = |daemon: Option<&Daemon>| {
        let mut command = within(Some(&group), &words);
        let daemon_path = daemon.map(Daemon::path).unwrap_or_default();
        command.env("FORETELL_DAEMON", &daemon_path).current_dir(folder.path());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{daemon_path:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), plain, "{daemon_path:?}");
        assert_eq!(group.oom_kills(), 0, "{daemon_path:?}");
    };
    run(None);
    for daemon_group in [Some(&group), None] {
        let start = || daemon_within(daemon_group, &["--budget", "1GiB"]);
        managed(1, start, |daemon| run(Some(daemon)));
    }
}
