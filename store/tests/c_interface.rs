//! The C interface, as a program that is compiled by `cc` uses it: alone, with others, and when the process with the cache dies.

#![allow(clippy::print_stdout)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use foretell_cache::CacheOptions;
use foretell_family::{Admission, Host, HostOptions};

/// The folder in which a process of this program is to have a host.
const ROLE: &str = "FORETELL_STORE_HOST";
/// The name by which programs find the library.
const SONAME: &str = "libforetell_store.so.0";
/// `FORETELL_CACHE_HERE` and `FORETELL_CACHE_DAEMON`.
const HERE: u8 = 1;
const DAEMON: u8 = 3;
const BYTES: usize = (3 << 20) + 12345;

fn content() -> Vec<u8> {
    (0..BYTES as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

/// What `shared.c` prints.
fn line() -> String {
    let weighed = content()
        .iter()
        .enumerate()
        .map(|(at, &byte)| u64::from(byte) * (at as u64 % 251 + 1))
        .sum::<u64>();
    format!("{BYTES} {weighed}")
}

/// All may join.
struct All;

impl Admission for All {
    fn may_join(&self, _: BorrowedFd<'_>) -> Result<(), String> {
        Ok(())
    }

    fn refused(&self, _: BorrowedFd<'_>, _: &str) {}
}

/// The work of a process with a [`ROLE`].
#[test]
fn host() {
    let Some(folder) = std::env::var_os(ROLE) else { return };
    let cache = CacheOptions { budget_bytes: 64 << 20, block_bytes: 16384 };
    let options = HostOptions { cache, gives_back: false, socket: None };
    let host = Host::start(options, Path::new(&folder), Box::new(All)).expect("it begins");
    println!("\nhosting");
    for line in std::io::stdin().lines() {
        line.expect("text");
        let status = host.status();
        println!("\n{} {}", status.stores, status.counts.fetched_bytes);
    }
}

/// A folder with the file, and one for sockets and keys.
struct Scene {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Scene {
    /// `None` without a C compiler, with a message.
    fn new(name: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("data")).expect("made");
        fs::create_dir(folder.path().join("run")).expect("made");
        fs::write(folder.path().join("data/file"), content()).expect("written");
        let program = compiled("tests/c/shared.c", folder.path(), name)?;
        Some(Scene { folder, program })
    }

    /// A command that finds the host of this scene alone.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let run = self.folder.path().join("run");
        command.env("FORETELL_DAEMON", &run).env("XDG_RUNTIME_DIR", &run);
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// `caches`: what `foretell_store_cache` must return, before and after a wait.
    fn program(&self, words: &[&str], caches: [u8; 2]) -> Talker {
        let mut command = self.command(&self.program);
        for (name, cache) in ["EXPECTED_CACHE", "EXPECTED_CACHE_LATER"].into_iter().zip(caches) {
            command.env(name, cache.to_string());
        }
        command.arg(self.folder.path().join("data")).arg("file").args(words);
        Talker::new(command)
    }

    fn host(&self) -> Talker {
        let mut command = self.command(std::env::current_exe().expect("a path"));
        command.args(["--exact", "host", "--nocapture"]);
        command.env(ROLE, self.folder.path().join("run"));
        let mut host = Talker::new(command);
        host.until("hosting");
        host
    }
}

/// The folder of the library that was built for this test. The one above may have an older one.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().expect("a folder").to_owned()
}

/// Compiles a program with the header and the library of this build. The library is `into` this folder, as it is installed: by
/// the name that programs look for, and a link to it for the linker.
fn compiled(source: &str, into: &Path, name: &str) -> Option<PathBuf> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = into.join(name);
    std::os::unix::fs::symlink(libraries().join("libforetell_store.so"), into.join(SONAME))
        .expect("a link");
    std::os::unix::fs::symlink(SONAME, into.join("libforetell_store.so")).expect("a link");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
    ]);
    compiler.arg("-o").arg(&program).arg(crate_folder.join(source));
    compiler.arg("-I").arg(crate_folder.join("../protocol/include"));
    compiler.arg("-L").arg(into).arg("-lforetell_store");
    match compiler.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no cc");
            None
        }
        output => {
            let output = output.expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
    }
}

/// A process that is asked by lines and answers by lines.
struct Talker(Child, BufReader<ChildStdout>);

impl Talker {
    fn new(mut command: Command) -> Self {
        let mut process = command.spawn().expect("it runs");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Talker(process, answers)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn until(&mut self, wanted: &str) {
        while self.line() != wanted {
            assert!(self.0.try_wait().expect("a child").is_none(), "it has ended");
        }
    }

    fn ask(&mut self) {
        self.0.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it listens");
    }

    /// Stores and fetched bytes of a host.
    fn told(&mut self) -> String {
        self.ask();
        loop {
            match self.line() {
                line if line.is_empty() => {}
                line => return line,
            }
        }
    }

    /// The rest of what it prints, if it ends well.
    fn rest(mut self) -> Vec<String> {
        drop(self.0.stdin.take());
        let lines = self.1.lines().map(|line| line.expect("text")).collect();
        assert_eq!(self.0.wait().expect("it ends").code(), Some(0));
        lines
    }
}

/// Ends a host with its test.
struct Guard<'a>(&'a mut Talker);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let _ = self.0.0.kill();
        let _ = self.0.0.wait();
    }
}

#[test]
fn a_program_alone_reads_what_is_there() {
    let Some(scene) = Scene::new("alone") else { return };
    // The program and its forked child.
    assert_eq!(scene.program(&[], [HERE; 2]).rest(), [line(), line()]);
}

#[test]
fn programs_share_the_cache_of_a_host() {
    let Some(scene) = Scene::new("shared") else { return };
    let mut host = scene.host();
    let guard = Guard(&mut host);
    let mut first = scene.program(&["wait"], [DAEMON; 2]);
    let mut second = scene.program(&["wait"], [DAEMON; 2]);
    for program in [&mut first, &mut second] {
        assert_eq!([program.line(), program.line()], [line(), line()]);
    }
    let blocks = BYTES.div_ceil(16384);
    assert_eq!(guard.0.told(), format!("1 {}", blocks * 16384), "each byte was fetched once");
    for mut program in [first, second] {
        program.ask();
        assert_eq!(program.rest(), [line(), line()]);
    }
}

#[test]
fn a_program_reads_on_when_the_host_is_killed() {
    let Some(scene) = Scene::new("killed") else { return };
    let mut host = scene.host();
    let mut program = scene.program(&["wait"], [DAEMON, HERE]);
    assert_eq!([program.line(), program.line()], [line(), line()]);
    drop(Guard(&mut host));
    program.ask();
    assert_eq!(program.rest(), [line(), line()]);
}

#[test]
fn the_bench_prints_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), content()).expect("written");
    let Some(program) = compiled("bench/hits.c", folder.path(), "hits") else { return };
    let mut command = Command::new(program);
    command.arg(folder.path()).arg("file").env("FORETELL_DAEMON", "");
    command.env("LD_LIBRARY_PATH", folder.path());
    let output = command.env("XDG_RUNTIME_DIR", folder.path()).output().expect("it runs");
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{wrong}");
    for length in ["| 128 |", "| 4096 |", "| 131072 |"] {
        assert!(said.contains(length), "{said}");
    }
}
