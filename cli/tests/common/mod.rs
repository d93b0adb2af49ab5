//! Shared code of the end-to-end tests: running programs with and without foretell, and comparing the results.

#![allow(dead_code, reason = "each test crate uses its own part")]

pub(crate) mod daemon;
pub(crate) mod known;
pub(crate) mod mounted;
pub(crate) mod mpi;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The command under test; its libraries lie beside it.
pub(crate) fn foretell() -> Command {
    Command::new(env!("CARGO_BIN_EXE_foretell"))
}

/// `foretell run --quiet -- PROGRAM`, to which arguments are added: foretell's own process becomes the program.
pub(crate) fn under_foretell(program: impl AsRef<OsStr>) -> Command {
    let mut command = foretell();
    command.args(["run", "--quiet", "--"]).arg(program);
    command
}

/// `foretell run` of a program with figures at the end, so that the program is a child.
pub(crate) fn beside_foretell(program: impl AsRef<OsStr>) -> Command {
    let mut command = foretell();
    command.args(["run", "--quiet", "--json", "/dev/null", "--"]).arg(program);
    command
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with `content` in the file `t`, and that file's path.
pub(crate) fn recording(content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t");
    fs::write(&path, content).expect("written");
    (folder, path)
}

/// The number of hints in the figures of a run in which nothing was refused.
pub(crate) fn given(figures: &serde_json::Value) -> u64 {
    assert_eq!(figures["manager"], "finished", "{figures}");
    assert_eq!(figures["hints"]["refused"], 0, "{figures}");
    figures["hints"]["given"].as_u64().expect("a number")
}

/// Whether the tests run as root; if not, says that the test is skipped.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("not root");
    }
    root
}

/// Whether `program` is in PATH; if not, says that the test is skipped.
pub(crate) fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skipped(&format!("no {program}"));
    }
    found
}

/// Whether FUSE mounts can be made here; if not, says that the test is skipped.
pub(crate) fn have_fuse() -> bool {
    let usable = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    let helper = rustix::process::geteuid().is_root() || have("fusermount3");
    if !usable {
        skipped("no usable /dev/fuse");
    }
    usable && helper
}

/// Prints that a test is skipped, on the terminal and past the captured output.
pub(crate) fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// A folder of text files of many sizes.
pub(crate) fn sample_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for index in 0..40usize {
        let name = format!("file-{index:02}.txt");
        let sub = folder.path().join(if index % 3 == 0 { "sub" } else { "." });
        fs::create_dir_all(&sub).expect("made");
        let lines: String =
            (0..index * index).map(|line| format!("{line} of {index}: some text\n")).collect();
        fs::write(sub.join(name), lines).expect("written");
    }
    folder
}

/// Paths of all sample files, sorted.
pub(crate) fn sample_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for sub in [folder.to_owned(), folder.join("sub")] {
        for entry in fs::read_dir(sub).expect("listed") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Runs a command line without foretell and in both forms of it, asserts that the results are the same, and returns the output.
pub(crate) fn assert_same<S: AsRef<OsStr>>(
    command_line: &[S],
    adjust: impl Fn(&mut Command),
) -> Output {
    let (program, arguments) = command_line.split_first().expect("a program");
    let output = |mut command: Command| {
        command.args(arguments).stdin(Stdio::null());
        adjust(&mut command);
        command.output().expect("it runs")
    };
    let plain = output(Command::new(program));
    for hinted in [under_foretell(program), beside_foretell(program)] {
        let hinted = output(hinted);
        assert_eq!(text(&plain.stderr), text(&hinted.stderr), "standard error");
        assert!(plain.stdout == hinted.stdout, "standard output differs");
        assert_eq!(plain.status, hinted.status, "{}", text(&hinted.stderr));
    }
    plain
}

/// Compiles a C program of `tests/c` into `folder`.
pub(crate) fn compile(name: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let program = folder.join(name);
    let status = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{name}.c compiles");
    program
}

/// Whether something is mounted there.
pub(crate) fn is_mounted(mountpoint: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("listed");
    table.contains(&format!(" {} ", mountpoint.display()))
}

/// Waits until `path` exists, up to a limit.
pub(crate) fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited 30 s for {what}");
}

/// The process of the manager at this address (`FORETELL_SOCKET`), once it runs: the only one that keeps the listening socket.
pub(crate) fn manager_of(address: &str) -> u32 {
    let mut found = Vec::new();
    wait_until("the manager", || {
        found = holders(address.trim());
        found.len() == 1
    });
    found[0]
}

/// The processes that have the listening socket of this address open.
pub(crate) fn holders(address: &str) -> Vec<u32> {
    let table = std::fs::read_to_string("/proc/net/unix").expect("listed");
    let name = format!("@{address}");
    let mut sockets = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_listening = fields.get(3).is_some_and(|flags| flags.ends_with("10000"));
        (fields.get(7) == Some(&&*name) && is_listening).then(|| fields[6].to_owned())
    });
    let Some(socket) = sockets.next().map(|inode| PathBuf::from(format!("socket:[{inode}]")))
    else {
        return Vec::new();
    };
    let listing = |folder: String| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let processes =
        listing("/proc".into()).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |process: &u32| {
        let mut files = listing(format!("/proc/{process}/fd"));
        files.any(|file| std::fs::read_link(file.path()).is_ok_and(|file| file == socket))
    };
    processes.filter(holds).collect()
}

/// Writes an executable script, in another process. A file that this process has open for writing cannot be executed, and a
/// child forked meanwhile by a parallel test keeps it open until it executes its program.
pub(crate) fn write_script(path: &Path, text: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path);
    let mut shell = shell.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut stdin = shell.stdin.take().expect("a pipe");
    stdin.write_all(text.as_bytes()).expect("it is read");
    drop(stdin);
    assert!(shell.wait().expect("it ends").success());
}
