//! A program under `foretell run` as a process: its number, its parent, its signals, its standard files, its environment.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{
    assert_same, beside_foretell, compile, foretell, manager_of, skipped, under_foretell,
    wait_until, write_script,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Longest wait for something that normally takes no time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program in both forms.
fn both(program: impl AsRef<OsStr>) -> [Command; 2] {
    [under_foretell(&program), beside_foretell(&program)]
}

fn kill(child: &Child, signal: libc::c_int) {
    // SAFETY: no memory is passed; the child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

#[test]
fn in_place_the_program_is_the_process_that_was_started() {
    let script = "read -r stat < /proc/$$/stat; read -r children < /proc/$$/task/$$/children; \
                  echo \"$$ $PPID $stat\"; echo \"children: $children\"";
    let told = |mut command: Command| {
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let child = command.spawn().expect("it runs");
        let id = child.id();
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8(output.stdout).expect("text");
        let (first, children) = text.split_once('\n').expect("two lines");
        let fields: Vec<&str> = first.split(' ').collect();
        // pid and parent, and from the third on what the kernel says: pid, name, state, parent, group, session.
        let is_leader = fields[6] == fields[0];
        let facts = (fields[0] == id.to_string(), fields[1].to_owned(), is_leader);
        (facts, fields[7].to_owned(), children.to_owned())
    };
    let plain = told(Command::new("sh"));
    assert_eq!(told(under_foretell("sh")), plain);
    assert_eq!(plain.0, (true, std::process::id().to_string(), true));
    assert_ne!(told(beside_foretell("sh")), plain, "there it is a child");
}

/// A shell that executes foretell leaves its children to it, and these may end while foretell starts.
#[test]
fn in_place_children_from_before_are_the_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("waits_for_all", folder.path());
    for milliseconds in (0..10).chain([100]) {
        let line = format!("(sleep 0.{milliseconds:03}; exit 7) & (exit 8) & exec \"$@\"");
        let told = |run: Command| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &line, "sh"]).arg(run.get_program()).args(run.get_args());
            let output = shell.output().expect("it runs");
            let text = String::from_utf8(output.stdout).expect("text");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(told(Command::new(&program)), ["7", "8"]);
        assert_eq!(told(under_foretell(&program)), ["7", "8"], "after {milliseconds} ms");
    }
}

#[test]
fn in_place_what_cannot_be_run_ends_as_in_a_shell() {
    for (program, code, said) in [
        ("no-such-program-anywhere", 127, "command not found"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/", 126, "Permission denied"),
    ] {
        let output = under_foretell(program).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.starts_with(&format!("foretell: {program}: {said}")), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn a_script_whose_interpreter_is_missing_is_told_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    write_script(&script, "#! /no/such/interpreter -x\n");
    for mut run in both(&script) {
        let output = run.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{text}");
        let wanted = format!(
            "foretell: {}: its interpreter /no/such/interpreter is missing; install it\n",
            script.display()
        );
        assert_eq!(text, wanted);
    }
}

#[test]
fn a_script_without_a_first_line_runs_as_by_env() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    write_script(&script, "echo \"$0\" \"$@\"; exit 6\n");
    let by_env = Command::new("env").arg(&script).args(["a", "b"]).output().expect("it runs");
    assert_eq!(by_env.status.code(), Some(6));
    for mut run in both(&script) {
        let output = run.args(["a", "b"]).output().expect("it runs");
        assert_eq!((output.status, output.stdout), (by_env.status, by_env.stdout.clone()));
    }
}

#[test]
fn in_place_a_core_is_the_programs_own() {
    let dumped = |mut command: Command, folder: &std::path::Path| {
        command.args(["-c", "ulimit -c unlimited; kill -SEGV $$"]).current_dir(folder);
        let output = command.output().expect("it runs");
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
        let cores = fs::read_dir(folder).expect("listed").count();
        (output.status.core_dumped(), cores, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let folders = [0; 3].map(|_| tempfile::tempdir().expect("a folder"));
    let plain = dumped(Command::new("sh"), folders[0].path());
    if !plain.0 {
        return skipped("no core is dumped here");
    }
    assert_eq!(dumped(under_foretell("sh"), folders[1].path()), plain);
    // In the form beside, the summary mentions the core, and there is no second one.
    let mut run = foretell();
    run.args(["run", "--", "sh"]);
    let (_, cores, text) = dumped(run, folders[2].path());
    assert_eq!(cores, plain.1);
    assert!(text.trim_end().ends_with("; core dumped"), "{text}");
}

#[test]
fn the_manager_in_place_ends_with_the_program() {
    let mut run = under_foretell("sh");
    run.args(["-c", "echo $FORETELL_SOCKET; read -r line"]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    let mut said = BufReader::new(run.stdout.take().expect("a pipe"));
    said.read_line(&mut line).expect("text");
    let manager = manager_of(&line);
    writeln!(run.stdin.take().expect("a pipe")).expect("it is read");
    assert!(run.wait().expect("it ends").success());
    wait_until("the manager's end", || {
        let stat = fs::read_to_string(format!("/proc/{manager}/stat")).unwrap_or_default();
        // A zombie still has an entry.
        stat.is_empty() || stat.rsplit(") ").next().is_some_and(|state| state.starts_with('Z'))
    });
}

/// A program that prints the signals that it gets.
struct Listening {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    _folder: tempfile::TempDir,
}

fn listening(run: impl FnOnce(&std::path::Path) -> Command) -> Listening {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("tells_signals", folder.path());
    let mut child = run(&program).process_group(0).stdout(Stdio::piped()).spawn().expect("it runs");
    let said = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut listening = Listening { child, said, _folder: folder };
    assert_eq!(listening.line(), "ready");
    listening
}

impl Listening {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn ends(mut self) {
        kill(&self.child, libc::SIGTERM);
        assert_eq!(self.line(), format!("{} 0", libc::SIGTERM));
        assert_eq!(self.child.wait().expect("it ends").code(), Some(44));
    }
}

#[test]
fn every_signal_to_foretell_alone_reaches_the_program() {
    for is_beside in [false, true] {
        let mut listening = listening(|program| match is_beside {
            true => beside_foretell(program),
            false => under_foretell(program),
        });
        // All signals except those that cannot be blocked, that end this program, or that the C library uses.
        let ordinary = (1..32).filter(|&signal| {
            ![libc::SIGKILL, libc::SIGSTOP, libc::SIGTERM, libc::SIGCHLD].contains(&signal)
        });
        for signal in ordinary.chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
            kill(&listening.child, signal);
            assert_eq!(listening.line(), format!("{signal} 0"));
        }
        for signal in [libc::SIGUSR1, libc::SIGRTMIN() + 3] {
            let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(7) };
            // SAFETY: the value is a number to its receiver; the child has not been waited for.
            let sent = unsafe { libc::sigqueue(listening.child.id().cast_signed(), signal, value) };
            assert_eq!((sent, listening.line()), (0, format!("{signal} 7")));
        }
        listening.ends();
    }
}

#[test]
fn a_signal_to_the_process_group_reaches_the_program_once() {
    let mut listening = listening(|program| beside_foretell(program));
    for signal in [libc::SIGRTMIN() + 1, libc::SIGRTMIN() + 2] {
        for _ in 0..2 {
            // SAFETY: no memory is passed; the group is that of a child that has not been waited for.
            let sent = unsafe { libc::kill(-listening.child.id().cast_signed(), signal) };
            assert_eq!((sent, listening.line()), (0, format!("{signal} 0")));
            // A wrongly passed-on signal would arrive before this later one.
            kill(&listening.child, libc::SIGRTMAX());
            assert_eq!(listening.line(), format!("{} 0", libc::SIGRTMAX()));
        }
    }
    listening.ends();
}

#[test]
fn an_alarm_that_was_set_before_reaches_the_program() {
    for mut run in both("sleep") {
        run.arg("60");
        // SAFETY: `alarm` may be called between fork and exec.
        unsafe {
            run.pre_exec(|| {
                libc::alarm(1);
                Ok(())
            })
        };
        let status = run.status().expect("it runs");
        assert_eq!(status.signal(), Some(libc::SIGALRM));
    }
}

#[test]
fn foretell_stops_and_goes_on_with_the_program() {
    for signal in [Signal::STOP, Signal::TSTP] {
        let mut run = beside_foretell("sh");
        run.args(["-c", "echo $$; read -r line; exit 9"]);
        // SIGTSTP does not stop an orphaned process group, which the test's own may be.
        run.process_group(0);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        let mut said = BufReader::new(run.stdout.take().expect("a pipe"));
        said.read_line(&mut line).expect("text");
        let program = Pid::from_raw(line.trim().parse().expect("a number")).expect("not 0");
        kill_process(program, signal).expect("it runs");
        let id = WaitId::Pid(Pid::from_child(&run));
        let stopped = waitid(id, WaitIdOptions::STOPPED).expect("a child").expect("it stops");
        assert_eq!(stopped.stopping_signal(), Some(signal.as_raw()));
        kill(&run, libc::SIGCONT);
        writeln!(run.stdin.take().expect("a pipe")).expect("it is read");
        assert_eq!(run.wait().expect("it ends").code(), Some(9));
    }
}

#[test]
fn whoever_reads_the_programs_output_sees_it_close_it() {
    for mut run in both("sh") {
        let script = "echo first; exec >&-; read -r line; exit 3";
        let run = run.args(["-c", script]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut stdout = run.stdout.take().expect("a pipe");
        let (sender, received) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let text = received.recv_timeout(PATIENCE).expect("the end of what it writes");
        assert_eq!(text, "first\n");
        writeln!(run.stdin.take().expect("a pipe")).expect("it is read");
        assert_eq!(run.wait().expect("it ends").code(), Some(3));
    }
}

#[test]
fn whoever_writes_the_programs_input_sees_it_close_it() {
    for mut run in both("sh") {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "exec <&-; touch closed; while [ ! -e go ]; do sleep 0.05; done; exit 4";
        run.args(["-c", script]).current_dir(folder.path());
        let mut run = run.stdin(Stdio::piped()).spawn().expect("it runs");
        let mut stdin = run.stdin.take().expect("a pipe");
        wait_until("the script", || folder.path().join("closed").exists());
        // In the form beside, foretell closes it after the program has begun, which may be later.
        wait_until("an error", || stdin.write_all(b"x").is_err());
        fs::write(folder.path().join("go"), "").expect("written");
        assert_eq!(run.wait().expect("it ends").code(), Some(4));
    }
}

/// Otherwise the readers of the outputs would wait for a manager that is stuck.
#[test]
fn the_manager_has_no_output_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let [json, explanation] = ["json", "explanation"].map(|name| folder.path().join(name));
    fs::write(&json, "").expect("written");
    for explain in [explanation.as_os_str(), OsStr::new("-")] {
        let mut run = foretell();
        run.args(["run", "--quiet", "--json"]).arg(&json).arg("--explain").arg(explain);
        run.args(["--", "sh", "-c", "echo $FORETELL_SOCKET; read -r line"]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut said = BufReader::new(run.stdout.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        let files = |process: u32| -> Vec<std::path::PathBuf> {
            let listing = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
            listing.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).collect()
        };
        let stdout = std::os::fd::AsRawFd::as_raw_fd(said.get_ref());
        let stdout = fs::read_link(format!("/proc/self/fd/{stdout}")).expect("a pipe");
        assert!(files(run.id()).contains(&json));
        let manager = manager_of(&line);
        wait_until("the manager to close them", || {
            let of_manager = files(manager);
            !of_manager.contains(&json) && !of_manager.contains(&stdout)
        });
        writeln!(run.stdin.take().expect("a pipe")).expect("it is read");
        assert!(run.wait().expect("it ends").success());
    }
}

#[test]
fn a_program_in_a_removed_folder_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "content\n").expect("written");
    let output = |run: Command| {
        let gone = folder.path().join("gone");
        fs::create_dir(&gone).expect("made");
        let mut shell = Command::new("sh");
        let line = "cd \"$0\" && rmdir \"$0\" && exec \"$@\"";
        shell.args(["-c", line]).arg(&gone).arg(run.get_program()).args(run.get_args());
        let output = shell.arg(&file).arg("relative").output().expect("it runs");
        (output.status.code(), output.stdout, output.stderr)
    };
    let plain = output(Command::new("cat"));
    assert_eq!(plain.1, b"content\n");
    for run in both("cat") {
        assert_eq!(output(run), plain);
    }
    let mut listed = foretell();
    let list = folder.path().join("list");
    fs::write(&list, format!("{}\nrelative\n", file.display())).expect("written");
    listed.args(["run", "--hints"]).arg(&list).args(["--", "cat"]);
    let (code, stdout, stderr) = output(listed);
    assert_eq!((code, stdout), (plain.0, plain.1));
    let text = String::from_utf8_lossy(&stderr);
    assert!(text.contains("the working folder was removed"), "{text}");
}

#[test]
fn the_environment_is_handed_on_entry_by_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("odd_environment", folder.path());
    let entries = |run: Option<Command>| -> Vec<Vec<u8>> {
        let mut command = Command::new(&program);
        match run {
            Some(run) => command.arg(run.get_program()).args(run.get_args()),
            None => command.arg("/bin/cat"),
        };
        let output = command.arg("/proc/self/environ").output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        output.stdout.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
    };
    let plain = entries(None);
    assert!(plain.len() > 10);
    // Nothing follows the last entry's zero byte.
    let plain = &plain[..plain.len() - 1];
    for run in both("/bin/cat") {
        let hinted = entries(Some(run));
        assert_eq!(&hinted[..plain.len()], plain);
        let ours = &hinted[plain.len()..hinted.len() - 1];
        let is_ours =
            |entry: &Vec<u8>| entry.starts_with(b"LD_PRELOAD=") || entry.starts_with(b"FORETELL_");
        assert!(!ours.is_empty() && ours.iter().all(is_ours), "{ours:?}");
    }
}

/// A command in its own process namespace, in which it is process 1.
fn as_init() -> Option<Command> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]);
    let mut tried = Command::new("unshare");
    tried.args(command.get_args()).arg("true").stderr(Stdio::null());
    match tried.status().is_ok_and(|status| status.success()) {
        true => Some(command),
        false => {
            skipped("no process namespace can be made");
            None
        }
    }
}

/// As yelp/dumb-init#44 and moby/moby#41454 have it.
#[test]
fn as_an_init_process_it_reaps_orphans_and_tells_how_the_program_ended() {
    let Some(init) = as_init() else { return };
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        command.args(init.get_args()).arg(env!("CARGO_BIN_EXE_foretell")).arg("run");
        command.args(options).args(["--", "sh", "-c", script]).output().expect("it runs")
    };
    for options in [&["--quiet"][..], &["--quiet", "--json", "/dev/null"]] {
        let output = run(options, "kill -SEGV $$");
        assert_eq!(output.status.code(), Some(128 + libc::SIGSEGV), "{options:?}");
        let script = "echo $PPID; sh -c 'sleep 0.1 & :'; sleep 1; \
                      for stat in /proc/[0-9]*/stat; do \
                          read -r line < $stat; case \"$line\" in *') Z '*) echo $line;; esac; done";
        let output = run(options, script);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{options:?}");
        assert!(output.status.success());
    }
}

#[test]
fn real_wrappers_of_processes_see_the_program_alike() {
    for line in [
        &["timeout", "-s", "USR1", "60", "sh", "-c", "echo $#; exit 8", "-", "a b", ""][..],
        &["nice", "-n", "3", "sh", "-c", "nice"],
        &["env", "-u", "HOME", "sh", "-c", "echo ${HOME-none}"],
        &["setsid", "-w", "sh", "-c", "exit 12"],
        &["sh", "-c", "trap 'exit 7' TERM; kill -TERM 0; exit 1"],
    ] {
        assert_same(line, |command| {
            command.process_group(0);
        });
    }
}
