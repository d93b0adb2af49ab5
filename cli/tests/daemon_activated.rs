//! `foretell daemon` at a socket that systemd has opened, and its end when nothing is to be done.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::daemon::hello;
use common::{foretell, have, skipped, text, wait_until};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use serde_json::Value;

/// What systemd does for `foretell.socket` and `foretell-cache.socket`: it opens sockets, and passes them as the descriptors
/// from 3 on.
struct Unit {
    folder: tempfile::TempDir,
    sockets: Vec<OwnedFd>,
}

impl Unit {
    fn new(kind: SocketType) -> Self {
        Self::with(&[(kind, "daemon.sock")])
    }

    fn with(sockets: &[(SocketType, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |&(kind, name): &(SocketType, &str)| {
            // What other tests start must not keep it.
            let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
            let socket = socket.expect("a socket");
            let path = folder.path().join(name);
            bind(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("bound");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
            listen(&socket, 16).expect("it listens");
            socket
        };
        let sockets = sockets.iter().map(open).collect();
        Unit { folder, sockets }
    }

    /// The daemon with the socket, and `LISTEN_PID` set to its number.
    fn command(&self, options: &[&str]) -> Command {
        let program = foretell();
        // A shell that becomes the daemon knows its number before.
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$0\" daemon \"$@\""]);
        command.env("LISTEN_FDS", self.sockets.len().to_string());
        command.arg(program.get_program()).args(options).env("FORETELL_DAEMON", self.folder.path());
        let sockets: Vec<i32> = self.sockets.iter().map(AsRawFd::as_raw_fd).collect();
        let passed = |socket: i32| match socket {
            -1 => Err(std::io::Error::last_os_error()),
            socket => Ok(socket),
        };
        // SAFETY: system calls on descriptors that stay open until the child is started. First copies far above, since one of
        // them may have the number that another one gets. Those from 3 on outlive an exec.
        unsafe {
            command.pre_exec(move || {
                let mut copies = [0; 2];
                for (copy, &socket) in copies.iter_mut().zip(&sockets) {
                    *copy = passed(libc::fcntl(socket, libc::F_DUPFD_CLOEXEC, 100))?;
                }
                for (to, copy) in (3..).zip(&copies[..sockets.len()]) {
                    passed(libc::dup2(*copy, to))?;
                }
                Ok(())
            })
        };
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn start(&self, options: &[&str]) -> Child {
        let mut process = self.command(options).spawn().expect("it runs");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut line = String::new();
        log.read_line(&mut line).expect("a line");
        assert!(line.contains("daemon_begins") && line.contains("socket_given=true"), "{line}");
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        process
    }

    fn output(&self, words: &[&str]) -> Output {
        let mut command = foretell();
        command.args(words).env("FORETELL_DAEMON", self.folder.path()).stdin(Stdio::null());
        command.output().expect("it runs")
    }

    fn ended_runs(&self) -> u64 {
        let output = self.output(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        status["ended"]["runs"].as_u64().expect("a number")
    }
}

#[test]
fn a_socket_that_is_passed_is_used_and_left() {
    let unit = Unit::new(SocketType::SEQPACKET);
    let path = unit.folder.path().join("daemon.sock");
    let inode = fs::symlink_metadata(&path).expect("it is there").ino();
    // A question that was asked before the daemon was there is answered.
    let mut early = foretell();
    early.args(["status", "--json"]).env("FORETELL_DAEMON", unit.folder.path());
    let early = early.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
    let mut daemon = unit.start(&["--idle-exit", "5s"]);
    let early = early.wait_with_output().expect("it ends");
    // On a slow machine it has given up.
    assert!(!early.status.success() || text(&early.stdout).contains("\"is_draining\": false"));
    wait_until("a managed run", || {
        let output = unit.output(&["run", "-q", "--no-learn", "--", "echo", "out"]);
        assert_eq!(text(&output.stdout), "out\n");
        unit.ended_runs() > 0
    });
    assert_eq!(daemon.wait().expect("it ends when it is idle").code(), Some(0));
    // The socket is systemd's. Runs have managers of their own until it has started the daemon again.
    assert_eq!(fs::symlink_metadata(&path).expect("it is there").ino(), inode);
    assert_eq!(fs::read_dir(unit.folder.path()).expect("listed").count(), 1, "nothing else is");
    let output = unit.output(&["run", "-q", "--json", "-", "--no-learn", "--", "true"]);
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(figures["manager"], "finished", "{figures}");
    let mut again = unit.start(&["--idle-exit", "5s"]);
    wait_until("an answer", || unit.output(&["status"]).status.success());
    assert_eq!(again.wait().expect("it ends").code(), Some(0));
}

/// The kind of the answer to a store that wants to join.
fn answer_to_store(unit: &Unit) -> u8 {
    let mut stream = store_that_asks(unit);
    kind_of_answer(&mut stream)
}

fn store_that_asks(unit: &Unit) -> UnixStream {
    let path = unit.folder.path().join("cache.sock");
    let mut stream = UnixStream::connect(path).expect("it listens");
    // A daemon that refuses at once does not read it.
    let _ = stream.write_all(&hello(unit.folder.path()));
    stream
}

fn kind_of_answer(stream: &mut UnixStream) -> u8 {
    let mut answer = [0; 500];
    assert!(stream.read(&mut answer).expect("an answer") > 4);
    answer[4]
}

#[test]
fn a_store_has_the_daemon_started_and_one_that_drains_refuses_stores() {
    const WELCOME: u8 = 0;
    const REFUSED: u8 = 5;
    let sockets = [(SocketType::SEQPACKET, "daemon.sock"), (SocketType::STREAM, "cache.sock")];
    let unit = Unit::with(&sockets);
    let path = unit.folder.path().join("cache.sock");
    let inode = || fs::symlink_metadata(&path).expect("it is there").ino();
    let before = inode();
    // A store that has come before the daemon is welcome, and keeps it.
    let mut early = store_that_asks(&unit);
    let mut daemon = unit.start(&["--cache", "64MiB", "--idle-exit", "1s"]);
    assert_eq!(kind_of_answer(&mut early), WELCOME);
    drop(early);
    assert_eq!(daemon.wait().expect("it ends when it is idle").code(), Some(0));
    assert_eq!(inode(), before, "the socket is systemd's");
    // It is left alone by a daemon that is started by hand.
    let Unit { folder, mut sockets } = unit;
    drop(sockets.remove(0));
    let unit = Unit { folder, sockets };
    wait_until("the other socket is free", || {
        let output = unit.output(&["daemon", "--cache", "64MiB"]);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr).contains("cache.sock: another process listens there")
    });
    assert_eq!(inode(), before);
    // Nobody waits for one that drains, though the socket stays.
    let mut daemon = unit.start(&["--cache", "64MiB"]);
    assert_eq!(answer_to_store(&unit), WELCOME);
    let mut run = foretell();
    run.arg("run").env("FORETELL_DAEMON", unit.folder.path());
    let run = common::daemon::Waiting::begin(run);
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    wait_until("it drains", || answer_to_store(&unit) == REFUSED);
    run.end();
    assert_eq!(daemon.wait().expect("it ends").code(), Some(0));
    assert_eq!(inode(), before);
}

/// Systemd listens, and has not started the daemon.
#[test]
fn a_daemon_started_by_hand_leaves_the_socket_of_systemd() {
    let unit = Unit::new(SocketType::SEQPACKET);
    let path = unit.folder.path().join("daemon.sock");
    let inode = || fs::symlink_metadata(&path).expect("it is there").ino();
    let before = inode();
    // Also when its queue is full.
    for _ in 0..2 {
        let output = unit.output(&["daemon"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("systemctl --user stop foretell.socket"), "{said}");
        assert_eq!(inode(), before);
        let left = fs::read_dir(unit.folder.path()).expect("listed").count();
        assert_eq!(left, 1, "nothing else is there");
        listen(&unit.sockets[0], 0).expect("it listens");
    }
    let mut daemon = unit.start(&["--idle-exit", "0s"]);
    assert_eq!(daemon.wait().expect("it ends").code(), Some(0));
    // When systemd has let go of it, it hinders nobody.
    let Unit { folder, sockets } = unit;
    drop(sockets);
    let mut by_hand = foretell();
    by_hand.args(["daemon", "--quiet", "--idle-exit", "0s"]).env("FORETELL_DAEMON", folder.path());
    // A process that another test is about to start may have it for a moment.
    wait_until("a free socket", || by_hand.output().expect("it runs").status.success());
}

#[test]
fn a_daemon_with_a_run_or_without_the_option_is_not_idle() {
    let daemon = common::daemon::Daemon::start_with(&["--idle-exit", "2s"]);
    let managed = common::daemon::Waiting::begin(daemon.command(&["run"]));
    std::thread::sleep(std::time::Duration::from_secs(3));
    let is_managed = daemon.output(&["status"]).status.success();
    let notes = managed.end();
    assert!(is_managed, "{notes}");
    let mut daemon = daemon;
    assert_eq!(daemon.process.wait().expect("it ends").code(), Some(0));
    assert!(!daemon.path().exists(), "nothing is left");
}

#[test]
fn what_is_no_socket_of_the_daemon_is_refused_with_a_line() {
    let refused = |unit: &Unit, folder: &Path| {
        let output = unit.command(&[]).env("FORETELL_DAEMON", folder).output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        said
    };
    let stream = Unit::new(SocketType::STREAM);
    assert!(refused(&stream, stream.folder.path()).contains("where programs look for it"));
    let datagrams = tempfile::tempfile().expect("a file");
    let file =
        Unit { folder: tempfile::tempdir().expect("a folder"), sockets: vec![datagrams.into()] };
    assert!(refused(&file, file.folder.path()).contains("ListenSequentialPacket"));
    let cache = Unit::with(&[(SocketType::STREAM, "cache.sock")]);
    assert!(refused(&cache, cache.folder.path()).contains("--cache is missing"));
    let unit = Unit::new(SocketType::SEQPACKET);
    let other = tempfile::tempdir().expect("a folder");
    assert!(refused(&unit, other.path()).contains("where programs look for it"));
    let path = unit.folder.path();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    mode(path, 0o755);
    mode(&path.join("daemon.sock"), 0o666);
    assert!(refused(&unit, path).contains("SocketMode"));
    mode(path, 0o777);
    assert!(refused(&unit, path).contains("nobody else may write"));
    mode(path, 0o700);
    // One that is for another process is none.
    let mut other = foretell();
    other.args(["daemon", "--idle-exit", "0s"]).env("FORETELL_DAEMON", path.join("own"));
    other.env("LISTEN_FDS", "1").env("LISTEN_PID", "1").stderr(Stdio::null());
    assert_eq!(other.status().expect("it runs").code(), Some(0));
}

#[test]
fn the_units_are_as_systemd_wants_them() {
    if !have("systemd-analyze") {
        return skipped("no systemd-analyze");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd");
    let names = ["foretell.service", "foretell.socket", "foretell-cache.socket"];
    for name in names {
        let unit = fs::read_to_string(units.join(name)).expect("it is there");
        let program = env!("CARGO_BIN_EXE_foretell");
        fs::write(folder.path().join(name), unit.replace("/usr/local/bin/foretell", program))
            .expect("written");
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--user", "--man=no", "verify"]);
    verify.args(names.map(|name| folder.path().join(name)));
    let output = verify.env("XDG_RUNTIME_DIR", folder.path()).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
}
