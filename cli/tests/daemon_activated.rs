//! `foretell daemon` at a socket that systemd has opened, and its end when nothing is to be done.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{foretell, have, skipped, text, wait_until};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use serde_json::Value;

/// What systemd does for `foretell.socket`: it opens the socket, and passes it as the descriptor 3.
struct Unit {
    folder: tempfile::TempDir,
    socket: OwnedFd,
}

impl Unit {
    fn new(kind: SocketType) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // What other tests start must not keep it.
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        let path = folder.path().join("daemon.sock");
        bind(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("bound");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        listen(&socket, 16).expect("it listens");
        Unit { folder, socket }
    }

    /// The daemon with the socket, and `LISTEN_PID` set to its number.
    fn command(&self, options: &[&str]) -> Command {
        let program = foretell();
        // A shell that becomes the daemon knows its number before.
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" daemon \"$@\""]);
        command.arg(program.get_program()).args(options).env("FORETELL_DAEMON", self.folder.path());
        let socket = self.socket.as_raw_fd();
        // SAFETY: system calls on a descriptor that stays open until the child is started. Then 3 outlives an exec, also if it is
        // the socket itself.
        unsafe {
            command.pre_exec(move || {
                match (libc::dup2(socket, 3), libc::fcntl(3, libc::F_SETFD, 0)) {
                    (3, 0) => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
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
        listen(&unit.socket, 0).expect("it listens");
    }
    let mut daemon = unit.start(&["--idle-exit", "0s"]);
    assert_eq!(daemon.wait().expect("it ends").code(), Some(0));
    // When systemd has let go of it, it hinders nobody.
    let Unit { folder, socket } = unit;
    drop(socket);
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
    assert!(refused(&stream, stream.folder.path()).contains("ListenSequentialPacket"));
    let unit = Unit::new(SocketType::SEQPACKET);
    let other = tempfile::tempdir().expect("a folder");
    assert!(refused(&unit, other.path()).contains("where runs look for it"));
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
    for name in ["foretell.service", "foretell.socket"] {
        let unit = fs::read_to_string(units.join(name)).expect("it is there");
        let program = env!("CARGO_BIN_EXE_foretell");
        fs::write(folder.path().join(name), unit.replace("/usr/local/bin/foretell", program))
            .expect("written");
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--user", "--man=no", "verify"]);
    verify.args(["foretell.service", "foretell.socket"].map(|name| folder.path().join(name)));
    let output = verify.env("XDG_RUNTIME_DIR", folder.path()).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
}
