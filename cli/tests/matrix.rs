//! Programs of all kinds, run directly, by a script and by make: they behave the same with and without foretell.
//!
//! The summary counts programs without the library. So each test also checks that the library is left out exactly where it must
//! be.

mod common;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{foretell, have, is_root, skipped, write_script};

/// Whether the library goes along with a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Library {
    Along,
    Behind,
}

/// A folder with a text to read, which all users may enter.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("changed");
    let lines: String = (0..500).map(|line| format!("line {line}: ä ö ü €\n")).collect();
    fs::write(folder.path().join("text"), lines).expect("written");
    folder
}

/// Compiles `reads.c`, or says that the test is skipped.
fn compile(folder: &Path, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/reads.c");
    let program = folder.join("reads");
    let mut command = Command::new(compiler);
    command.arg("-O1").args(flags).arg("-o").arg(&program).arg(source);
    match command.output() {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().next().unwrap_or_default();
            skipped(&format!("{compiler} {}: {line}", flags.join(" ")));
            None
        }
        Err(_) => {
            skipped(&format!("no {compiler}"));
            None
        }
    }
}

/// The result of a command line: output, errors, exit code.
fn outcome(mut command: Command, folder: &Path) -> (String, String, Option<i32>) {
    command.current_dir(folder).stdin(Stdio::null());
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Runs a command line in all ways, plain and under foretell.
fn assert_same<S: AsRef<OsStr>>(folder: &Path, line: &[S], library: Library) {
    let words: Vec<OsString> = line.iter().map(|word| word.as_ref().to_owned()).collect();
    let quoted: Vec<String> =
        words.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
    write_script(&folder.join("by-script"), &format!("#!/bin/sh\n{}\nexit $?\n", quoted.join(" ")));
    fs::write(folder.join("makefile"), format!("all:\n\t@{}\n", quoted.join(" ")))
        .expect("written");
    let mut ways = vec![words, vec!["./by-script".into()]];
    if have("make") {
        ways.push(["make", "-f", "makefile"].map(OsString::from).to_vec());
    }
    for words in ways {
        let mut plain = Command::new(&words[0]);
        plain.args(&words[1..]);
        let plain = outcome(plain, folder);
        let summary = folder.join("summary.json");
        let mut hinted = foretell();
        hinted.args(["run", "--quiet", "--json"]).arg(&summary).arg("--").args(&words);
        let hinted = outcome(hinted, folder);
        assert_eq!(plain, hinted, "{words:?}");
        assert!(!plain.0.is_empty(), "{words:?} prints nothing: {}", plain.1);
        let text = fs::read(&summary).expect("written");
        let summary: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let alone = summary["programs"]["left_alone"].as_u64().expect("a number");
        assert_eq!(alone > 0, library == Library::Behind, "{words:?}: {summary}");
    }
}

fn assert_compiled_same(compiler: &str, flags: &[&str], library: Library) {
    let folder = folder();
    if let Some(program) = compile(folder.path(), compiler, flags) {
        assert_same(folder.path(), &[program.as_os_str(), "text".as_ref()], library);
    }
}

#[test]
fn glibc() {
    assert_compiled_same("cc", &[], Library::Along);
}

#[test]
fn glibc_not_position_independent() {
    assert_compiled_same("cc", &["-no-pie"], Library::Along);
}

#[test]
fn musl() {
    assert_compiled_same("musl-gcc", &[], Library::Behind);
}

#[test]
fn musl_static() {
    assert_compiled_same("musl-gcc", &["-static"], Library::Behind);
}

#[test]
fn linked_statically() {
    assert_compiled_same("cc", &["-static"], Library::Behind);
}

#[test]
fn linked_statically_position_independent() {
    assert_compiled_same("cc", &["-static-pie"], Library::Behind);
}

#[test]
fn of_32_bits() {
    assert_compiled_same("cc", &["-m32"], Library::Behind);
}

#[test]
fn address_sanitizer_of_gcc() {
    assert_compiled_same("gcc", &["-fsanitize=address"], Library::Behind);
}

#[test]
fn address_sanitizer_of_clang() {
    let clang = clang();
    let folder = Command::new(&clang).arg("-print-file-name=libclang_rt.asan-x86_64.so").output();
    let path = folder.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let found = path.ok().and_then(|path| Some(path.parent()?.display().to_string()));
    let rpath = format!("-Wl,-rpath,{}", found.unwrap_or_default());
    assert_compiled_same(
        &clang,
        &["-fsanitize=address", "-shared-libsan", &rpath],
        Library::Behind,
    );
    assert_compiled_same(&clang, &["-fsanitize=address"], Library::Along);
}

/// Under any of its usual names.
fn clang() -> String {
    let versions = (11..30).rev().map(|version| format!("clang-{version}"));
    let names = std::iter::once("clang".to_owned()).chain(versions);
    let runs = |name: &String| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    names.into_iter().find(runs).unwrap_or_else(|| "clang".into())
}

#[test]
fn thread_sanitizer() {
    assert_compiled_same("gcc", &["-fsanitize=thread"], Library::Behind);
    assert_compiled_same(&clang(), &["-fsanitize=thread"], Library::Along);
}

#[test]
fn leak_sanitizer() {
    assert_compiled_same("gcc", &["-fsanitize=leak"], Library::Behind);
}

#[test]
fn undefined_behaviour_sanitizer() {
    assert_compiled_same("gcc", &["-fsanitize=undefined"], Library::Along);
}

#[test]
fn go_programs() {
    let Some(go) = go() else {
        skipped("no go");
        return;
    };
    let source = "package main\n\
        import (\"fmt\"; \"os\"; \"os/exec\")\n\
        func main() {\n\
        \ttext, err := os.ReadFile(os.Args[1])\n\
        \tfmt.Println(len(text), err, os.Getpagesize())\n\
        \tfor _, entry := range os.Environ() { if len(entry) > 2 && entry[:3] == \"LD_\" { fmt.Println(entry) } }\n\
        \tout, err := exec.Command(\"cat\", os.Args[1]).CombinedOutput()\n\
        \tfmt.Println(len(out), err)\n\
        \tos.Exit(3)\n}\n";
    // With C in it, a Go program is linked dynamically. It finds the auxiliary vector without libc, on the stack behind the
    // environment.
    let with_c = "package main\n// #include <stdlib.h>\nimport \"C\"\nfunc init() { C.abs(1) }\n";
    for (cgo, library) in [("0", Library::Behind), ("1", Library::Along)] {
        let folder = folder();
        fs::write(folder.path().join("main.go"), source).expect("written");
        fs::write(folder.path().join("go.mod"), "module reads\n\ngo 1.18\n").expect("written");
        if cgo == "1" {
            fs::write(folder.path().join("c.go"), with_c).expect("written");
        }
        let mut build = Command::new(&go);
        build.args(["build", "-o", "reads", "."]).current_dir(folder.path());
        build.env("CGO_ENABLED", cgo).env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-build");
        build.env("GOCACHE", cache);
        let output = build.output().expect("it runs");
        if !output.status.success() {
            skipped(&format!("go build: {}", String::from_utf8_lossy(&output.stderr)));
            continue;
        }
        assert_same(folder.path(), &["./reads", "text"], library);
    }
}

fn go() -> Option<PathBuf> {
    let mut places = std::env::split_paths(&std::env::var_os("PATH")?).collect::<Vec<_>>();
    places.push("/usr/local/go/bin".into());
    places.into_iter().map(|place| place.join("go")).find(|path| path.is_file())
}

#[test]
fn set_user_id() {
    if !is_root() || !have("setpriv") {
        return;
    }
    let folder = folder();
    let Some(program) = compile(folder.path(), "cc", &[]) else { return };
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("changed");
    let as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", "./reads", "text"];
    assert_same(folder.path(), &as_nobody, Library::Behind);
    assert_same(folder.path(), &["./reads", "text"], Library::Behind);
}

#[test]
fn file_capabilities() {
    if !is_root() || !have("setpriv") || !have("setcap") {
        return;
    }
    let folder = folder();
    let Some(_) = compile(folder.path(), "cc", &[]) else { return };
    let mut setcap = Command::new("setcap");
    let set = setcap.args(["cap_net_raw+ep", "reads"]).current_dir(folder.path()).status();
    if !set.is_ok_and(|status| status.success()) {
        skipped("no capabilities on this file system");
        return;
    }
    let as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", "./reads", "text"];
    assert_same(folder.path(), &as_nobody, Library::Behind);
}

#[test]
fn scripts() {
    let folder = folder();
    let Some(_) = compile(folder.path(), "cc", &[]) else { return };
    let body = "cat text | tail -2\n./reads text\n";
    write_script(&folder.path().join("script"), &format!("#!/bin/sh\n{body}"));
    assert_same(folder.path(), &["./script"], Library::Along);
    write_script(&folder.path().join("with-env"), &format!("#! /usr/bin/env sh\n{body}"));
    assert_same(folder.path(), &["./with-env"], Library::Along);
    // The shell interprets a file that the kernel cannot execute.
    write_script(&folder.path().join("without"), body);
    assert_same(folder.path(), &["sh", "-c", "./without"], Library::Along);
}

#[test]
fn scripts_of_other_interpreters() {
    let folder = folder();
    let Some(program) = compile(folder.path(), "musl-gcc", &[]) else { return };
    // The kernel passes the script's own name to the interpreter, which reads it.
    write_script(&folder.path().join("script"), &format!("#!{}\ntext\n", program.display()));
    assert_same(folder.path(), &["./script"], Library::Behind);
    write_script(&folder.path().join("script-of-script"), "#!./script\n");
    assert_same(folder.path(), &["./script-of-script", "text"], Library::Behind);
}

/// Copies in another process, for the same reason as `common::script`.
fn copy(from: &Path, to: &Path) -> Option<()> {
    Command::new("cp").arg(from).arg(to).status().ok()?.success().then_some(())
}

/// A root folder in which `program` runs, with what it is linked with.
fn root_for(program: &Path, folder: &Path) -> Option<PathBuf> {
    let root = folder.join("root");
    let listed = Command::new("ldd").arg(program).output().ok()?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.map(Path::new) {
        let to = root.join(file.strip_prefix("/").ok()?);
        fs::create_dir_all(to.parent()?).ok()?;
        copy(file, &to)?;
    }
    copy(program, &root.join("reads"))?;
    fs::copy(folder.join("text"), root.join("text")).ok()?;
    Some(root)
}

#[test]
fn in_a_chroot() {
    if !is_root() || !have("chroot") {
        return;
    }
    let folder = folder();
    let Some(program) = compile(folder.path(), "cc", &[]) else { return };
    let Some(_) = root_for(&program, folder.path()) else {
        skipped("no ldd");
        return;
    };
    assert_same(folder.path(), &["chroot", "root", "/reads", "/text"], Library::Behind);
}

#[test]
fn in_bwrap() {
    let probe = ["--ro-bind", "/", "/", "true"];
    if !Command::new("bwrap").args(probe).status().is_ok_and(|status| status.success()) {
        skipped("no bwrap that works");
        return;
    }
    let mut line = vec!["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"];
    for (to, at) in [("usr/lib", "/lib"), ("usr/lib64", "/lib64")] {
        if Path::new("/").join(to).exists() {
            line.extend(["--symlink", to, at]);
        }
    }
    line.extend(["--proc", "/proc", "--unshare-pid"]);
    let folder = folder();
    let inside = [&line[..], &["cat", "/usr/lib/os-release"]].concat();
    assert_same(folder.path(), &inside, Library::Behind);
    let shell = "cat /usr/lib/os-release | wc -l; env | grep -c LD_";
    let inside = [&line[..], &["sh", "-c", shell]].concat();
    assert_same(folder.path(), &inside, Library::Behind);
}
