//! Helpers of the integration tests: `make` builds the C side, and a small manager collects the
//! messages and records of programs.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use foretell_protocol::{
    Advice, Connection, Counters, Event, Hint, Listener, Message, Record, RingReader, Touch,
};

use foretell_protocol::layout::INTEREST_READS;

/// The folder of this crate.
pub(crate) fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for build products, of this test binary alone.
pub(crate) fn build_folder() -> PathBuf {
    let binary = std::env::current_exe().expect("the test binary has a path");
    let name = binary.file_stem().expect("and a name").to_owned();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The interposing library, built once.
pub(crate) fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = build_folder();
        std::fs::create_dir_all(&folder).expect("build folder");
        let mut make = Command::new("make");
        make.arg("-s").arg("-C").arg(crate_folder().join("../preload"));
        make.arg(format!("OUT={}", folder.display()));
        // `SANITIZE=1 cargo test` tests the library that traps on undefined behaviour.
        if let Ok(sanitize) = std::env::var("SANITIZE") {
            make.arg("-B").arg(format!("SANITIZE={sanitize}"));
        }
        succeed(&mut make);
        folder.join("libforetell_preload.so")
    })
}

/// The names that the interposing library exports, by the list.
pub(crate) fn symbols() -> Vec<String> {
    let list = crate_folder().join("../preload/symbols.txt");
    let list = std::fs::read_to_string(list).expect("list");
    let families = list.lines().filter(|line| !line.starts_with('#'));
    let names = families.filter_map(|line| line.split_once(": ")).map(|(_, names)| names);
    names.flat_map(|names| names.split(' ')).map(str::to_owned).collect()
}

/// Compiles a program of `tests/c`.
pub(crate) fn c_program(name: &str, more: &[&str]) -> PathBuf {
    let source = crate_folder().join("tests/c").join(name).with_extension("c");
    compile(&source, more)
}

/// Compiles a C source with the protocol's headers in its include path.
pub(crate) fn compile(source: &Path, more: &[&str]) -> PathBuf {
    let folder = build_folder();
    std::fs::create_dir_all(&folder).expect("build folder");
    // A name of its own per test: tests run at the same time.
    let thread = thread::current().name().unwrap_or("main").replace("::", "-");
    let stem = source.file_stem().and_then(OsStr::to_str).expect("source name");
    let program = folder.join(format!("{stem}-{thread}"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-pthread", "-o"]);
    compiler.arg(&program).arg(source).arg("-I").arg(crate_folder().join("include")).args(more);
    succeed(&mut compiler);
    program
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The messages and records of one process.
#[derive(Debug)]
pub(crate) struct Session {
    /// The process's number as the kernel reports it.
    pub(crate) pid: i32,
    /// The command name.
    pub(crate) comm: String,
    /// All its records.
    pub(crate) records: Vec<Record>,
    /// The paths that it named.
    pub(crate) touches: Vec<Touch>,
    /// Its own advice.
    pub(crate) advice: Vec<Advice>,
    /// Its last counters.
    pub(crate) counters: Counters,
    /// Whether it says at its end that it tells no more.
    pub(crate) is_silent: bool,
}

/// The result of a command and its children.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The command's own output and status.
    pub(crate) output: Output,
    /// One per HELLO, in the order of arrival.
    pub(crate) sessions: Vec<Session>,
    /// All hints.
    pub(crate) hints: Vec<Hint>,
    /// Streams that were cancelled.
    pub(crate) cancelled: Vec<u64>,
    /// Streams whose requests were bounded, with the bytes.
    pub(crate) bounded: Vec<(u64, u64)>,
}

/// Sets the environment of a program to be watched, with or without interest in its reads.
pub(crate) fn watch<'a>(
    command: &'a mut Command,
    address: &str,
    interest: bool,
) -> &'a mut Command {
    watch_for(command, address, if interest { INTEREST_READS } else { 0 })
}

/// Sets the environment of a program to be watched, with interest by the bits `INTEREST_…`.
pub(crate) fn watch_for<'a>(
    command: &'a mut Command,
    address: &str,
    interest: u32,
) -> &'a mut Command {
    // Without the inodes of library and dynamic linker, the library looks at each file itself.
    let told = format!("{interest:x}.0.0.0.0.0.{address}");
    command
        .env("LD_PRELOAD", preload_library())
        .env("FORETELL_SOCKET", address)
        .env("FORETELL_PRELOAD", told)
}

/// Runs a command under a manager that collects.
pub(crate) fn observe(command: &mut Command, interest: bool) -> Observed {
    observe_for(command, if interest { INTEREST_READS } else { 0 })
}

/// Runs a command under a manager that collects, with interest by the bits `INTEREST_…`.
pub(crate) fn observe_for(command: &mut Command, interest: u32) -> Observed {
    let listener = Listener::bind().expect("listener");
    watch_for(command, listener.address(), interest);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let collector = scope.spawn(|| collect(&listener, &done));
        let output = command.output();
        done.store(true, Ordering::Release);
        let (sessions, hints, (cancelled, bounded)) = collector.join().expect("collector");
        Observed { output: output.expect("command starts"), sessions, hints, cancelled, bounded }
    })
}

type Collected = (Vec<Session>, Vec<Hint>, (Vec<u64>, Vec<(u64, u64)>));

fn collect(listener: &Listener, done: &AtomicBool) -> Collected {
    let mut connections: Vec<Connection> = Vec::new();
    let mut rings: Vec<(Session, RingReader)> = Vec::new();
    let (mut hints, mut cancelled, mut bounded) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let last_round = done.load(Ordering::Acquire);
        while let Some(connection) = listener.accept().expect("accept") {
            connections.push(connection);
        }
        connections.retain_mut(|connection| {
            loop {
                match connection.receive().expect("well-formed message") {
                    None => return !last_round,
                    Some(Message::End) => return false,
                    Some(Message::Hint(hint)) => hints.push(hint),
                    Some(Message::Cancel { stream }) => cancelled.push(stream),
                    Some(Message::Request { stream, bytes }) => bounded.push((stream, bytes)),
                    Some(Message::Hello(hello)) => {
                        let reader = RingReader::map(hello.ring).expect("a valid ring");
                        let session = Session {
                            pid: connection.peer_pid(),
                            comm: hello.comm,
                            records: Vec::new(),
                            touches: Vec::new(),
                            advice: Vec::new(),
                            counters: Counters::default(),
                            is_silent: false,
                        };
                        rings.push((session, reader));
                    }
                }
            }
        });
        for (session, reader) in &mut rings {
            reader.drain_while(last_round, |event| {
                match event {
                    Event::Call(record) => session.records.push(record),
                    Event::Touch(touch) => session.touches.push(touch),
                    Event::Advice(advice) => session.advice.push(advice),
                }
                true
            });
            session.counters = reader.counters();
            session.is_silent = reader.is_silent();
        }
        if last_round {
            let sessions = rings.into_iter().map(|(session, _)| session).collect();
            return (sessions, hints, (cancelled, bounded));
        }
        thread::sleep(Duration::from_micros(300));
    }
}

/// Says that a test is skipped, past the test runner, which keeps what passing tests print.
pub(crate) fn skipped(why: &str) {
    let line = format!("skipped: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
