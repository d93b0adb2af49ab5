//! `foretell daemon`: runs that it manages do what they do without it, whatever becomes of it.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::daemon::{Daemon, Waiting};
use common::mounted::Mounted;
use common::{foretell, have, is_root, skipped, text, wait_until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

#[test]
fn a_run_is_managed_in_both_forms_and_its_report_is_its_own() {
    let daemon = Daemon::start();
    let Some(mounted) = Mounted::new(|folder| {
        for at in 0..60 {
            fs::write(folder.join(format!("{at:02}")), vec![b'x'; 20_000]).expect("written");
        }
    }) else {
        return;
    };
    let command = ["sh", "-c", "cat [0-9]* | cksum"];
    let figures = mounted.run_with(&command, &["--no-learn"], |run| {
        run.env("FORETELL_DAEMON", daemon.path());
    });
    assert_eq!(figures["manager"], "finished", "{figures}");
    let of = |key: &str| figures["blocks"][key].as_u64().expect("a number");
    assert!(of("useful") + of("late") >= 100, "{figures}");
    daemon.has_ended_runs(1);
    let ended = daemon.status()["ended"].clone();
    assert_eq!(ended["prefetched_bytes"].as_u64(), Some(of("prefetched") * 8192), "{ended}");
    // In place, and without it.
    for (words, more) in [(&["run", "-q"][..], 1), (&["run", "--embedded"][..], 0)] {
        let words = [words, &["--", "sh", "-c", "echo out; exit 3"]].concat();
        let before = daemon.status()["ended"]["runs"].as_u64().expect("a number");
        let output = daemon.output(&words);
        assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("out\n", Some(3)));
        daemon.has_ended_runs(before + more);
    }
}

#[test]
fn a_daemon_that_is_killed_or_stopped_holds_up_no_program() {
    for (signal, form) in [
        (Signal::KILL, &["run"][..]),
        (Signal::KILL, &["run", "--quiet"]),
        (Signal::STOP, &["run"]),
        (Signal::STOP, &["run", "--quiet"]),
    ] {
        let mut daemon = Daemon::start();
        let managed = Waiting::begin(daemon.command(form));
        assert_eq!(daemon.status()["runs"].as_array().map(Vec::len), Some(1));
        daemon.signal(signal);
        if signal == Signal::KILL {
            daemon.process.wait().expect("it ends");
        }
        let notes = managed.end();
        assert_eq!(notes.contains("the program ran"), form.len() == 1, "{notes}");
        // Another run has a manager of its own.
        let notes = Waiting::begin(daemon.command(form)).end();
        assert!(!notes.contains("the program ran"), "{notes}");
        if signal == Signal::KILL {
            let left = fs::read_dir(daemon.path()).expect("it is there").count();
            daemon.process = Daemon::begin(daemon.folder.path(), &[]);
            assert!(
                left > 0 && daemon.status()["ended"]["runs"] == 0,
                "what is left is no hindrance"
            );
        }
    }
}

#[test]
fn a_daemon_drains_and_leaves_nothing() {
    let mut daemon = Daemon::start();
    let managed = Waiting::begin(daemon.command(&["run"]));
    daemon.signal(Signal::TERM);
    wait_until("the end to be under way", || daemon.status()["is_draining"] == true);
    assert_eq!(daemon.status()["runs"].as_array().map(Vec::len), Some(1));
    let said = text(&daemon.output(&["status"]).stdout);
    assert!(said.contains("it is about to end"), "{said}");
    // A new run has its own manager.
    let before = daemon.status()["refused_runs"].as_u64().expect("a number");
    let output = daemon.output(&["run", "-q", "--json", "-", "--", "true"]);
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(figures["manager"], "finished", "{figures}");
    assert_eq!(daemon.status()["refused_runs"].as_u64(), Some(before + 1));
    assert!(daemon.process.try_wait().expect("a child").is_none(), "it waits for the run");
    let notes = managed.end();
    assert!(!notes.contains("the program ran"), "{notes}");
    assert_eq!(daemon.process.wait().expect("it ends").code(), Some(0));
    assert!(!daemon.path().exists());
    // One without runs has nothing to wait for.
    let mut daemon = Daemon::start_with(&["--drain", "60min"]);
    daemon.signal(Signal::TERM);
    wait_until("its end", || daemon.process.try_wait().expect("a child").is_some());
    // So it is with runs in place.
    let mut daemon = Daemon::start_with(&["--drain", "60min"]);
    let managed = Waiting::begin(daemon.command(&["run", "-q"]));
    daemon.signal(Signal::TERM);
    wait_until("the end to be under way", || daemon.status()["is_draining"] == true);
    assert_eq!(managed.end(), "");
    wait_until("its end", || daemon.process.try_wait().expect("a child").is_some());
    // A second signal ends it though a run is under way, which goes on, and says so in its summary alone.
    for form in [&["run"][..], &["run", "-q"]] {
        let mut daemon = Daemon::start_with(&["--drain", "60min"]);
        let managed = Waiting::begin(daemon.command(form));
        daemon.signal(Signal::TERM);
        wait_until("the end to be under way", || daemon.status()["is_draining"] == true);
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.process.wait().expect("it ends").code(), Some(0));
        let notes = managed.end();
        let lines: Vec<&str> = notes.lines().collect();
        assert_eq!(lines.len(), usize::from(form.len() == 1), "{notes}");
        assert!(!notes.contains("the program ran"), "{notes}");
    }
}

#[test]
fn a_second_daemon_and_bad_folders_are_refused_with_a_line() {
    let daemon = Daemon::start();
    let refused = |folder: &Path| {
        let output =
            daemon.command(&["daemon"]).env("FORETELL_DAEMON", folder).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let line = text(&output.stderr);
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    };
    assert!(refused(&daemon.path()).contains(&format!("process {}", daemon.process.id())));
    // A stopped one is named with the way out, by the commands that ask it, too.
    daemon.signal(Signal::STOP);
    wait_until("it to be stopped", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.process.id()));
        stat.expect("it is there").contains(") T ")
    });
    let pid = daemon.process.id();
    let asked = [&["status"][..], &["top"]].map(|words| {
        let output = daemon.output(words);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    });
    for line in asked.into_iter().chain([refused(&daemon.path())]) {
        assert_eq!(line.lines().count(), 1, "{line}");
        for part in ["does not answer", &format!("kill -CONT {pid}"), &format!("kill -9 {pid}")] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    daemon.signal(Signal::CONT);
    wait_until("an answer", || daemon.output(&["status"]).status.success());
    let open = daemon.folder.path().join("open");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("set");
    assert!(refused(&open).contains("nobody else"));
    assert!(refused(&daemon.folder.path().join("none/none")).contains("No such file"));
    let long = daemon.folder.path().join("x".repeat(120));
    assert!(!refused(&long).is_empty());
    assert!(!long.exists(), "nothing is left");
    assert_eq!(daemon.output(&["daemon", "--budget", "1KiB"]).status.code(), Some(2));
    drop(daemon);
    let folder = tempfile::tempdir().expect("a folder");
    let none = foretell().arg("status").env("FORETELL_DAEMON", folder.path()).output();
    let none = none.expect("it runs");
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("foretell daemon"), "{}", text(&none.stderr));
}

/// A signal to the group reaches the program once, as without a daemon.
#[test]
fn signals_reach_the_program_once() {
    let daemon = Daemon::start();
    let script = "import signal, sys, time
counts = {signal.SIGUSR1: 0, signal.SIGINT: 0}
def take(number, frame): counts[number] += 1
for number in counts: signal.signal(number, take)
print('begun', flush=True)
end = time.monotonic() + 1
while time.monotonic() < end: time.sleep(0.01)
print(*counts.values())";
    for (to_group, form) in [(true, &["run"][..]), (false, &["run"]), (true, &["run", "-q"])] {
        let mut command = daemon.command(form);
        command.args(["--", "/usr/bin/python3", "-c", script]).process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (mut line, mut said) = (String::new(), String::new());
        output.read_line(&mut line).expect("a line");
        let process = Pid::from_child(&child);
        for signal in [Signal::USR1, Signal::INT] {
            match to_group {
                true => kill_process_group(process, signal).expect("it is there"),
                false => kill_process(process, signal).expect("it is there"),
            }
        }
        output.read_to_string(&mut said).expect("text");
        assert_eq!(said, "1 1\n", "to the group: {to_group}, {form:?}");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    }
}

#[test]
fn a_run_with_other_rights_or_mounts_has_a_manager_of_its_own() {
    if !is_root() {
        return skipped("only root may give up rights");
    }
    let daemon = Daemon::start();
    let program = env!("CARGO_BIN_EXE_foretell");
    let run = ["run", "--", "echo", "out"];
    for (before, reason) in [
        (&["setpriv", "--bounding-set", "-sys_admin"][..], "fewer rights"),
        (&["setpriv", "--clear-groups", "--regid", "12345"], "fewer rights"),
        (&["unshare", "--mount"], "other mounts"),
        (&["unshare", "--net"], "another network"),
        (&["setpriv", "--no-new-privs"], "fewer rights"),
        (&["nice", "-n", "5"], "another priority"),
    ] {
        if !have(before[0]) {
            skipped(before[0]);
            continue;
        }
        let before_it = daemon.status()["refused_runs"].as_u64().expect("a number");
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(program).args(run).env("FORETELL_DAEMON", daemon.path());
        let output = command.output().expect("it runs");
        assert_eq!(text(&output.stdout), "out\n", "{}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("the program ran"), "{}", text(&output.stderr));
        let refused = daemon.status()["refused_runs"].as_u64().expect("a number");
        assert_eq!(refused, before_it + 1, "{reason}");
    }
}

#[test]
fn rules_of_the_daemon_hold_for_its_runs_and_are_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.toml");
    let name = rules.to_str().expect("text");
    fs::write(&rules, "[[rule]]\npath = '/nowhere/**'\nnever = true\n").expect("written");
    let daemon = Daemon::start_with(&["--rules", name]);
    let dropped = |options: &[&str]| {
        let words =
            [&["run", "-q", "--json", "-"], options, &["--", "true", "/etc/passwd"]].concat();
        let output = daemon.output(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(figures["manager"], "finished", "{figures}");
        figures["rules"]["dropped"].as_u64().unwrap_or(0)
    };
    assert_eq!(dropped(&[]), 0);
    let never = "[[rule]]\npath = '/etc/**'\nnever = true\n";
    fs::write(&rules, never).expect("written");
    daemon.signal(Signal::HUP);
    wait_until("the new rules", || dropped(&[]) > 0);
    // Mistakes change nothing, and a run's own rules go before.
    fs::write(&rules, "[[rule]]\npath = 7\n").expect("written");
    daemon.signal(Signal::HUP);
    let own = folder.path().join("own.toml");
    fs::write(&own, "[[rule]]\npath = '/nowhere/**'\nnever = true\n").expect("written");
    assert_eq!(dropped(&["--rules", own.to_str().expect("text")]), 0);
    // A run may be over before its words are looked at.
    wait_until("the rules before", || dropped(&[]) > 0);
    let output = daemon
        .command(&["daemon", "--rules", name])
        .env("FORETELL_DAEMON", folder.path().join("x"))
        .output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("line 2"), "{}", text(&output.stderr));
    assert!(!folder.path().join("x").exists(), "nothing is left");
}

/// Hints by a pipe are read by the run's own manager, which ends with the run: no later run loses its hints to it.
#[test]
fn hints_by_a_pipe_are_not_left_to_the_daemon() {
    let daemon = Daemon::start();
    for _ in 0..2 {
        let mut run = daemon.command(&["run", "--hints", "-", "--json", "-", "--", "true"]);
        let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        child.stdin.take().expect("a pipe").write_all(b"/etc/passwd\n").expect("written");
        let output = child.wait_with_output().expect("it ends");
        let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(figures["manager"], "finished", "{figures}");
    }
    assert_eq!(daemon.status()["ended"]["runs"], 0);
    let list = daemon.folder.path().join("list");
    fs::write(&list, "/etc/passwd\n").expect("written");
    let list = list.to_str().expect("text");
    assert_eq!(daemon.output(&["run", "--hints", list, "--", "true"]).status.code(), Some(0));
    daemon.has_ended_runs(1);
}

/// Two programs at a time keep within one budget.
#[test]
fn runs_share_a_budget() {
    let daemon = Daemon::start_with(&["--budget", "4MiB"]);
    let Some(mounted) = Mounted::new(|folder| {
        for name in ["one", "two"] {
            fs::write(folder.join(name), vec![b'x'; 24 << 20]).expect("written");
        }
    }) else {
        return;
    };
    // They read a little at a time, so that both wait for room.
    let begin = |name: &str| {
        let mut command = daemon.command(&[
            "run",
            "-q",
            "--no-learn",
            "--",
            "dd",
            "bs=64k",
            "status=none",
            "of=/dev/null",
        ]);
        command.arg(format!("if={name}")).current_dir(mounted.folder.path());
        command.spawn().expect("it runs")
    };
    let mut children = [begin("one"), begin("two")];
    let mut most = 0;
    while children.iter_mut().any(|child| child.try_wait().expect("a child").is_none()) {
        let status = daemon.status();
        let runs = status["runs"].as_array().expect("runs");
        let held = |run: &Value| run["figures"]["held_bytes"].as_u64().expect("a number");
        most = most.max(runs.iter().map(held).sum::<u64>());
    }
    daemon.has_ended_runs(2);
    // Each manager may have 1 MiB whatever the others hold, and is asked at another moment.
    assert!(most <= 8 << 20, "{most}");
    assert!(daemon.status()["ended"]["prefetched_bytes"].as_u64() >= Some(8 << 20));
}

fn http(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn metrics_are_those_that_the_guide_names() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let daemon = Daemon::start_with(&["--metrics-port", &port.to_string()]);
    assert_eq!(daemon.output(&["run", "--", "cat", "/etc/passwd"]).status.code(), Some(0));
    daemon.has_ended_runs(1);
    let second = daemon.folder.path().join("second");
    let mut second_daemon = daemon.command(&["daemon", "--metrics-port", &port.to_string()]);
    let output = second_daemon.env("FORETELL_DAEMON", &second).output().expect("it runs");
    let line = text(&output.stderr);
    assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains(&format!("--metrics-port {port}: Address already in use")), "{line}");
    assert!(!second.exists(), "nothing is left");
    let local = || UnixStream::connect(daemon.path().join("metrics.sock")).expect("it listens");
    let get = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = http(local(), get);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let value = |name: &str| -> f64 {
        let line = answer.lines().find(|line| line.starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("{name} is missing: {answer}"));
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/daemon.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let named: Vec<&str> = guide
        .split('`')
        .filter(|word| word.starts_with("foretell_") && !word.contains(char::is_whitespace))
        .collect();
    assert!(named.len() >= 10, "{named:?}");
    named.iter().for_each(|name| assert!(value(name) >= 0.0));
    let served: Vec<&str> =
        answer.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    served.iter().for_each(|name| assert!(named.contains(name), "{name} is not in the guide"));
    assert_eq!(
        (value("foretell_runs_total"), value("foretell_budget_bytes")),
        (1.0, (256 << 20) as f64)
    );
    let over_port = http(TcpStream::connect(("127.0.0.1", port)).expect("it listens"), get);
    assert!(over_port.contains("foretell_runs_total 1"), "{over_port}");
    let other = http(local(), "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    let post = http(
        local(),
        "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
}

#[test]
fn top_shows_runs_on_a_terminal_and_in_a_pipe() {
    let daemon = Daemon::start();
    let managed = Waiting::begin(daemon.command(&["run"]));
    let output = daemon.output(&["top", "-n", "2", "--interval", "100ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert_eq!(said.matches("echo begun").count(), 2, "{said}");
    assert!(!said.contains('\x1b'), "{said}");
    if have("tmux") {
        let socket = daemon.folder.path().join("tmux");
        let tmux = |words: &[&str]| {
            let mut command = Command::new("tmux");
            command.arg("-S").arg(&socket).args(words).env("FORETELL_DAEMON", daemon.path());
            text(&command.output().expect("it runs").stdout)
        };
        let line = format!("{} top --interval 100ms", env!("CARGO_BIN_EXE_foretell"));
        tmux(&["new-session", "-d", "-x", "60", "-y", "12", &line]);
        wait_until("the run on the screen", || {
            let screen = tmux(&["capture-pane", "-p"]);
            let is_narrow = screen.lines().all(|line| line.chars().count() <= 60);
            is_narrow && screen.contains("COMMAND") && screen.contains("sh -c echo begun")
        });
        tmux(&["kill-server"]);
    } else {
        skipped("no tmux");
    }
    managed.end();
    drop(daemon);
}

/// Whatever is sent to its socket, the daemon goes on.
#[test]
fn other_packets_do_not_disturb_it() {
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketType, connect, send, socket,
    };
    let daemon = Daemon::start();
    let address = SocketAddrUnix::new(daemon.path().join("daemon.sock")).expect("short");
    let mut silent = Vec::new();
    for at in 0..200usize {
        let one = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        if connect(&one, &address).is_err() {
            break; // Its queue is full.
        }
        if at % 2 == 0 {
            let _ = send(&one, &vec![at as u8; at], SendFlags::NOSIGNAL);
        } else if at < 20 {
            silent.push(one);
        }
    }
    let output = daemon.output(&["run", "--", "echo", "out"]);
    assert_eq!(text(&output.stdout), "out\n");
    drop(silent);
    wait_until("an answer", || daemon.output(&["status"]).status.success());
}
