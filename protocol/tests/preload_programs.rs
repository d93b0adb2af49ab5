//! Real programs, and programs with other preloaded libraries, under the interposing library; and
//! what the library exports.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use foretell_protocol::layout::{INTEREST_NAMES, INTEREST_READS};

/// Sums a folder's bytes and ends.
const PYTHON: &str = "
import os, shutil, subprocess, sys
total = 0
for name in sorted(os.listdir('.')):
    with open(name, 'rb') as f: total += len(f.read())
    with open(name) as f: total += sum(1 for line in f)
    total += len(subprocess.run(['cat', name], stdout=subprocess.PIPE, env={}).stdout)
print(total)
pid = os.fork()
if pid == 0:
    shutil.copyfile('b', '/dev/null'); print(open('c').read(3)); sys.stdout.flush(); os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

const BASH: &str = "
while read -r line; do echo \"<$line>\"; done < a
cat a b | sort | uniq -c | tail -3
x=$(wc -l < b); echo $x
exec 9< a; read -r first <&9; cat <&9 | head -2; echo $first
for f in a b c; do (grep -c 1 $f; exit 3); echo $?; done
(env -i /bin/cat a | head -1)
find . -type f -name '?' -exec cksum {} + | sort
";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    for (index, name) in ["a", "b", "c"].iter().enumerate() {
        let lines: String =
            (0..3000 * (index + 1)).map(|i| format!("{} line {i}\n", i * 7 % 13)).collect();
        std::fs::write(folder.path().join(name), lines).expect("file");
    }
    std::fs::write(folder.path().join("d"), "").expect("file");
    folder
}

/// Runs a command plain and watched, with and without records. Output and status must be the same. Where there is interest in
/// names, at least `sessions` processes must have announced themselves: others may have had no reason to.
fn same(folder: &Path, line: &[&str], sessions: usize) {
    let command = || {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir(folder);
        command
    };
    let plain = command().output().unwrap_or_else(|error| panic!("{line:?}: {error}"));
    for interest in [0, INTEREST_READS, INTEREST_READS | INTEREST_NAMES] {
        let observed = support::observe_for(&mut command(), interest);
        assert_eq!(
            String::from_utf8_lossy(&observed.output.stderr),
            String::from_utf8_lossy(&plain.stderr),
            "{line:?}"
        );
        assert_eq!(observed.output.stdout, plain.stdout, "{line:?}");
        assert_eq!(observed.output.status, plain.status, "{line:?}");
        let are_enough = observed.sessions.len() >= sessions || interest & INTEREST_NAMES == 0;
        assert!(are_enough, "{line:?}: {:?}", observed.sessions.len());
    }
}

#[test]
fn real_programs_do_what_they_do_without() {
    let folder = folder();
    let elsewhere = tempfile::tempdir().expect("folder");
    let archive = elsewhere.path().join("archive.tar");
    let archive = archive.to_str().expect("plain path");
    for (line, sessions) in [
        (&["bash", "-c", BASH][..], 10),
        (&["sh", "-c", "cat a | tr 1 2 | sort -n | head -5; (cd /; pwd); exit 7"], 3),
        (&["sh", "-c", "cat a b > e; cp a f; cksum e f; rm e f"], 5),
        (&["sort", "-k3", "a", "b", "c"], 1),
        (&["grep", "-rn", "line 29", "."], 1),
        (&["tar", "cf", archive, "--mtime=@0", "--sort=name", "."], 1),
        (&["tar", "tf", archive], 1),
        (&["wc", "a", "b", "missing"], 1),
        (&["dd", "if=a", "bs=100", "skip=3", "count=5", "status=none"], 1),
        (&["cmp", "a", "b"], 1),
        (&["xargs", "-a", "a", "-n", "500", "echo"], 5),
        (&["awk", "{ s += $1 } END { print s }", "a", "b"], 1),
        (&["sed", "-n", "5,9p", "a"], 1),
        (&["gcc", "-x", "c", "-E", "a"], 1),
        (&["/nonexistent/../bin/true"][..0], 0),
    ] {
        if !line.is_empty() {
            same(folder.path(), line, sessions);
        }
    }
}

#[test]
fn programs_that_walk_folders_do_what_they_do_without() {
    let folder = folder();
    let deep = folder.path().join("one/two/three");
    std::fs::create_dir_all(&deep).expect("folders");
    for index in 0..100 {
        std::fs::write(deep.join(format!("{index}")), "x").expect("file");
    }
    std::os::unix::fs::symlink("one/two", folder.path().join("link")).expect("link");
    std::os::unix::fs::symlink("nothing", folder.path().join("broken")).expect("link");
    for line in [
        &["find", ".", "-printf", "%p %y %s %l\\n"][..],
        &["find", "-L", ".", "-type", "f", "-size", "-2"],
        &["du", "-a", "."],
        &["du", "-s", "one", "missing", "link/"],
        &["ls", "-lRU", "--time-style=+", "."],
        &["ls", "-l", "--time-style=+", "missing", "link", "broken"],
        &[
            "bash",
            "-c",
            "shopt -s globstar; echo **/*1 | sort; cd link; cd -P ..; pwd; test -e ../broken",
        ],
        &["readlink", "-f", "link/three/7"],
        &["realpath", "broken", "link/../a"],
        &["grep", "-rlc", "x", "one"],
        &["tar", "cf", "-", "--mtime=@0", "--sort=name", "one"],
        &["cp", "-ru", "one", "copy"],
        &["diff", "-r", "one", "copy"],
        &["sh", "-c", "cp -r one copy2 && rm -rv copy2 | sort"],
        &[
            "python3",
            "-c",
            "import os; print(sorted(os.walk('.'))); print([f[2] for f in os.fwalk('one')])",
        ],
    ] {
        if Command::new(line[0]).arg("--version").output().is_err() {
            support::skipped(&format!("no {} on this machine", line[0]));
            continue;
        }
        same(folder.path(), line, 1);
    }
}

#[test]
fn python_reads_forks_and_starts_programs_with_an_emptied_environment() {
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"];
    let found = python.iter().find(|path| Path::new(path).exists());
    let from_path = || {
        let output =
            Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(python) = found.map(|path| (*path).to_owned()).or_else(from_path) else {
        support::skipped("no python3 on this machine");
        return;
    };
    // The interpreter, four cats with an empty environment, and the forked child.
    same(folder().path(), &[&python, "-c", PYTHON], 6);
}

/// A shared library of this machine, by the first part of its file name.
fn library(prefix: &str) -> Option<PathBuf> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    files.filter_map(|file| file.ok().map(|file| file.path())).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    })
}

#[test]
fn stacks_with_a_preloaded_allocator() {
    let Some(jemalloc) = library("libjemalloc.so") else {
        support::skipped("libjemalloc is not installed (apt install libjemalloc2)");
        return;
    };
    let folder = folder();
    let ours = support::preload_library().display();
    let jemalloc = jemalloc.display();
    for order in [format!("{ours}:{jemalloc}"), format!("{jemalloc}:{ours}")] {
        // `env` overwrites LD_PRELOAD, as a user would.
        let preload = format!("LD_PRELOAD={order}");
        same(folder.path(), &["env", &preload, "sort", "a", "b"], 1);
        same(folder.path(), &["env", &preload, "bash", "-c", BASH], 10);
    }
}

#[test]
fn an_earlier_constructor_may_read() {
    // A library whose constructor runs before ours: it is preloaded after, and so initialised first.
    let source = support::crate_folder().join("tests/c/early.c");
    let early = support::compile(&source, &["-shared", "-fPIC"]);
    let folder = folder();
    let preload =
        format!("LD_PRELOAD={}:{}", support::preload_library().display(), early.display());
    same(folder.path(), &["env", &preload, "cat", "a"], 1);
}

#[test]
fn address_sanitizer_programs_run() {
    let source = support::crate_folder().join("tests/c/access.c");
    let folder = folder();
    let probe = folder.path().join("probe.c");
    std::fs::write(&probe, "int main(void) { return 0; }\n").expect("probe");
    let flags = ["-fsanitize=address", "-static-libasan", "-Wno-unused-result"];
    let mut compiler = Command::new("cc");
    compiler.args(flags).arg(&probe).arg("-o").arg(folder.path().join("probe"));
    if !compiler.output().is_ok_and(|output| output.status.success()) {
        support::skipped("the compiler has no address sanitizer");
        return;
    }
    let program = support::compile(&source, &flags);
    let program = program.to_str().expect("plain path");
    for way in ["read", "fread", "lines", "fork", "spawn", "threads"] {
        same(folder.path(), &[program, way, "a"], 1);
    }
}

#[test]
fn a_process_says_that_it_tells_no_more() {
    let program = support::c_program("silent", &[]);
    let file = support::crate_folder().join("Cargo.toml");
    for (way, is_silent) in [
        ("none", false),
        ("exec", true),
        ("exec-in-thread", true),
        ("exec-with-library", false),
        ("fails", false),
        ("fails-then-exec", true),
        ("spawn", false),
        ("fork", false),
        ("vfork", false),
        ("confined", true),
        ("confined-fails", true),
    ] {
        let observed = support::observe(Command::new(&program).arg(way).arg(&file), true);
        assert!(observed.output.status.success(), "{way}: {:?}", observed.output);
        assert_eq!(observed.sessions[0].is_silent, is_silent, "{way}");
    }
}

#[test]
fn the_library_needs_libc_of_2_34_and_nothing_else() {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--dynamic", "--version-info"]).arg(support::preload_library());
    let output = support::succeed(&mut readelf).stdout;
    let output = String::from_utf8_lossy(&output);
    let needed: Vec<&str> = output.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(
        needed.iter().all(|line| line.contains("[libc.so") || line.contains("[ld-linux")),
        "{needed:?}"
    );
    // Definitions come first. preload/src/executable.c looks for the newest version that is needed.
    let (_, needs) = output.split_once("Version needs section").expect("it needs libc");
    let newest = needs.split("GLIBC_2.").skip(1).filter_map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    });
    assert_eq!(newest.max(), Some(34), "{needs}");
}

#[test]
fn the_library_exports_exactly_the_list() {
    let listed = support::symbols();
    let listed: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only"]).arg(support::preload_library());
    let output = support::succeed(&mut nm).stdout;
    let output = String::from_utf8_lossy(&output);
    // Lines of the versions themselves have the type A.
    let exported: BTreeSet<&str> = output
        .lines()
        .filter(|line| !line.contains(" A "))
        .filter_map(|line| line.split([' ', '@']).nth(2))
        .collect();
    let missing: Vec<_> = listed.difference(&exported).collect();
    let unlisted: Vec<_> = exported.difference(&listed).collect();
    assert!(
        missing.is_empty() && unlisted.is_empty(),
        "missing {missing:?}, unlisted {unlisted:?}"
    );
}
