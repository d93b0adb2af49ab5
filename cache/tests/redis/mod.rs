//! A real Redis or Valkey server for a test, on a free port of the loopback interface. It ends with the test.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Servers that will do, with the command that talks to them.
const PROGRAMS: [(&str, &str); 2] =
    [("redis-server", "redis-cli"), ("valkey-server", "valkey-cli")];
/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Another program may take a port before the server does.
const PORTS_TRIED: usize = 20;

/// A server.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    client: &'static str,
    folder: Arc<tempfile::TempDir>,
    options: Vec<String>,
    program: &'static str,
}

/// A port that is free now, and so is the one 10000 above it, which a cluster needs.
fn free_port() -> u16 {
    loop {
        let Ok(one) = TcpListener::bind("127.0.0.1:0") else { continue };
        let port = one.local_addr().expect("it is bound").port();
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

fn spawn(program: &str, port: u16, folder: &std::path::Path, options: &[String]) -> Child {
    let mut command = Command::new(program);
    let always = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"];
    command.args(["--port", &port.to_string()]).args(always).arg("--dir").arg(folder);
    command.args(options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: prctl is a system call that touches no memory.
    unsafe {
        command.pre_exec(|| {
            // A test that is killed ends no server by itself.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.spawn().expect("it can be started")
}

impl Server {
    /// Starts a server with these options; `None`, and a line, if there is none on this machine.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        let has = |program: &str| {
            let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        };
        let Some(&(program, client)) = PROGRAMS.iter().find(|(program, _)| has(program)) else {
            eprintln!("skipped: there is no redis-server");
            return None;
        };
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = None;
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            let child = spawn(program, port, folder.path(), &options);
            let options = options.clone();
            let mut one = Server { child, port, client, folder: folder.clone(), options, program };
            if one.answers() {
                server = Some(one);
                break;
            }
        }
        Some(server.expect("a server starts"))
    }

    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return false;
            }
            // Whatever it says to that, it answers.
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("a server does not answer");
    }

    /// Its address, with these options.
    pub(crate) fn url(&self, options: &str) -> String {
        format!("redis://127.0.0.1:{}{options}", self.port)
    }

    /// What its own client prints for a command.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        let said = Command::new(self.client)
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(words)
            .output()
            .expect("the client can be started");
        String::from_utf8_lossy(&said.stdout).trim_end().to_owned()
    }

    /// Keys of blocks.
    pub(crate) fn keys(&self) -> Vec<String> {
        let said = self.say(&["--scan", "--pattern", "foretell:*"]);
        said.lines().map(str::to_owned).collect()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a system call about a child that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// It answers no more, but is there.
    pub(crate) fn freeze(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// It goes on.
    pub(crate) fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// It is killed.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// It is started again, empty, at the same port.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.program, self.port, self.folder.path(), &self.options);
        assert!(self.answers(), "it starts again");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
