//! `foretell check`: what it says of programs of all kinds, and that `foretell run` does what it says.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use common::{foretell, have, skipped, text, write_script};

const PROGRAM: &str = "int main(void) { return 0; }\n";

fn checked(program: &Path) -> Output {
    foretell().arg("check").arg(program).output().expect("it runs")
}

/// The findings as JSON, and the exit code.
fn findings(program: &Path) -> (Value, Option<i32>) {
    let output = foretell().args(["check", "--json", "-"]).arg(program).output().expect("it runs");
    let value = serde_json::from_slice(&output.stdout);
    (value.unwrap_or_else(|_| panic!("{}", text(&output.stderr))), output.status.code())
}

fn reasons(findings: &Value) -> Vec<&str> {
    let told = findings["reasons"].as_array().expect("a list");
    told.iter().map(|told| told["reason"].as_str().expect("a name")).collect()
}

/// Builds a program; `None`, with a message, if this machine cannot.
fn build(
    folder: &Path,
    name: &str,
    compiler: &str,
    options: &[&str],
    source: &str,
) -> Option<PathBuf> {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).expect("written");
    let program = folder.join(name);
    let built = Command::new(compiler).arg("-o").arg(&program).arg(&file).args(options).output();
    let is_built = built.is_ok_and(|output| output.status.success());
    if !is_built {
        skipped(&format!("{compiler} {options:?} does not work"));
    }
    is_built.then_some(program)
}

fn build_go(folder: &Path) -> Option<PathBuf> {
    if !have("go") {
        return None;
    }
    fs::write(folder.join("main.go"), "package main\n\nfunc main() {}\n").expect("written");
    let mut command = Command::new("go");
    command.args(["build", "-o", "go-program", "main.go"]).current_dir(folder);
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod").env("GOCACHE", folder.join("cache"));
    let output = command.output().expect("it runs");
    if !output.status.success() {
        skipped(&format!("go builds nothing here: {}", text(&output.stderr)));
        return None;
    }
    Some(folder.join("go-program"))
}

/// Whether `foretell run` leaves the program alone, by its own figures.
fn is_left_alone(program: &Path) -> bool {
    let mut command = foretell();
    command.args(["run", "--quiet", "--json", "-", "--"]).arg(program);
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    figures["programs"]["left_alone"] == 1
}

#[test]
fn run_does_what_check_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let build =
        |name, compiler, options: &[&str]| build(folder.path(), name, compiler, options, PROGRAM);
    let setuid = build("setuid", "cc", &[]);
    if let Some(setuid) = &setuid {
        fs::set_permissions(setuid, fs::Permissions::from_mode(0o4755)).expect("changed");
    }
    let script = folder.path().join("script");
    write_script(&script, "#!/bin/sh\nexit 0\n");
    let no_program = folder.path().join("no-program");
    write_script(&no_program, "exit 0\n");
    let of_static = folder.path().join("of-static");
    let static_program = build("static", "cc", &["-static"]);
    if let Some(program) = &static_program {
        write_script(&of_static, &format!("#!{}\n", program.display()));
    }
    let table: [(Option<PathBuf>, &str, &[&str]); 11] = [
        (build("dynamic", "cc", &[]), "all", &[]),
        (Some("/bin/true".into()), "all", &[]),
        (Some(script), "all", &[]),
        (Some(no_program), "all", &[]),
        (static_program.clone(), "outside", &["static"]),
        (static_program.map(|_| of_static), "outside", &["static"]),
        (build("static-pie", "cc", &["-static-pie"]), "outside", &["static"]),
        (build("musl", "musl-gcc", &[]), "outside", &["c_library"]),
        (build("narrow", "cc", &["-m32"]), "outside", &["machine"]),
        (build("sanitized", "cc", &["-fsanitize=address"]), "outside", &["sanitizer"]),
        (build_go(folder.path()), "outside", &["go", "static"]),
    ];
    for (program, seen, expected) in table {
        let Some(program) = program else { continue };
        let (found, code) = findings(&program);
        assert_eq!(found["seen"], seen, "{found}");
        assert_eq!(reasons(&found), expected, "{found}");
        assert_eq!(code, Some(if seen == "all" { 0 } else { 4 }), "{found}");
        assert_eq!(found["library_fits"], !is_left_alone(&program), "{found}");
    }
    if let Some(setuid) = setuid {
        let (found, code) = findings(&setuid);
        let seen = if rustix::process::geteuid().is_root() { "outside" } else { "nothing" };
        assert_eq!((&found["seen"], code), (&seen.into(), Some(4)), "{found}");
        assert_eq!(reasons(&found), ["rights"], "{found}");
        assert_eq!(found["library_fits"], !is_left_alone(&setuid), "{found}");
    }
}

#[test]
fn each_reason_is_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = build(folder.path(), "static", "cc", &["-static"], PROGRAM) else { return };
    let output = checked(&program);
    let expected = format!(
        "{}: foretell run leaves it alone, and sees its reads from outside only\n  static: it loads no libraries\n  foretell run --observe opens (as root, or with no new privileges) also sees what it opens\n",
        program.display()
    );
    assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, String::new()));
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn functions_that_are_not_wrapped_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = "#include <aio.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
        int main(void) { struct aiocb one = {0}; return aio_read(&one) == 0 && syscall(SYS_gettid) == 0; }\n";
    let Some(program) = build(folder.path(), "reads", "cc", &[], source) else { return };
    let (found, code) = findings(&program);
    assert_eq!((&found["seen"], code), (&"part".into(), Some(3)), "{found}");
    assert_eq!(reasons(&found), ["imports"]);
    assert_eq!(found["unwrapped"], serde_json::json!(["aio_read"]));
    assert_eq!(found["notes"].as_array().map(Vec::len), Some(1), "{found}");
    // Whatever the library exports is no finding.
    let (found, code) = findings(Path::new("cat"));
    assert_eq!((&found["seen"], code), (&"all".into(), Some(0)), "{found}");
}

#[test]
fn a_script_is_checked_by_the_program_that_runs_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    write_script(&script, "#!/usr/bin/env -S cat -n\n");
    let (found, code) = findings(&script);
    assert_eq!(found["through"], serde_json::json!(["/usr/bin/env"]), "{found}");
    assert!(found["runs"].as_str().is_some_and(|runs| runs.ends_with("/cat")), "{found}");
    assert_eq!((&found["seen"], code), (&"all".into(), Some(0)));
    let looped = folder.path().join("looped");
    write_script(&looped, &format!("#!{}\n", looped.display()));
    let (found, code) = findings(&looped);
    assert_eq!((reasons(&found), code), (vec!["script"], Some(4)), "{found}");
}

#[test]
fn what_cannot_be_checked_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = fs::read("/bin/true").expect("it is there");
    let put = |name: &str, content: &[u8], mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
        path
    };
    let library =
        Path::new(env!("CARGO_BIN_EXE_foretell")).with_file_name("libforetell_preload.so");
    let library = fs::read(library).expect("it is there");
    let of_data = format!("#!{}\n", put("data", b"\x89PNG\r\n\x1a\n\0", 0o755).display());
    let no_program = "not a program: no ELF file and no #! line";
    let table = [
        (folder.path().join("missing"), "No such file"),
        ("/etc/passwd".into(), &format!("not executable, and {no_program}; name a program")),
        (folder.path().join("data"), no_program),
        (put("empty", b"", 0o755), "an empty file; name a program"),
        (put("empty-plain", b"", 0o644), "not executable, and an empty file"),
        (put("script", b"#!/bin/sh\n", 0o644), "not executable; see chmod +x"),
        (put("plain-program", &whole, 0o644), "not executable; see chmod +x"),
        (put("library", &library, 0o755), "a shared library, not a program; name a program"),
        (put("library-plain", &library, 0o644), "not executable, and a shared library"),
        (put("carriage", b"#!/bin/sh\r\n", 0o755), "ends with a carriage return"),
        (put("env", b"#!/usr/bin/env no-such-program\n", 0o755), "no-such-program, which is not"),
        (put("of-data", of_data.as_bytes(), 0o755), "data: not a program; change the #! line"),
        (put("of-folder", b"#!/etc\n", 0o755), "Is a directory; change the #! line"),
        (".".into(), "it is a folder"),
        (folder.path().to_owned(), "is a folder"),
        (put("plain", b"text", 0o644), "not executable"),
        (put("header", &whole[..40], 0o755), "ELF file"),
        (put("half", &whole[..whole.len() / 2], 0o755), "ELF file"),
        (put("nothing-else", b"\x7fELF", 0o755), "ELF file"),
        (put("lost", b"#!/no/such/interpreter\n", 0o755), "its interpreter /no/such/interpreter"),
        (folder.path().join("lost"), "install it, or change the #! line"),
        ("no-such-program".into(), "no such program in PATH"),
        ("/dev/null".into(), "not a regular file"),
        ("".into(), "no such program"),
    ];
    for (program, why) in table {
        let output = checked(&program);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{program:?}: {line}");
        assert!(line.starts_with("foretell: ") && line.contains(why), "{program:?}: {line}");
        assert_eq!((line.lines().count(), text(&output.stdout)), (1, String::new()), "{line}");
    }
}

#[test]
fn damaged_files_end_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = fs::read("/bin/true").expect("it is there");
    let path = folder.path().join("damaged");
    // Each step overwrites another eight bytes of the header, of the segments or of the sections.
    let sections = whole.len().saturating_sub(29 * 64);
    for at in (16..64)
        .step_by(8)
        .chain((64..700).step_by(56))
        .chain((sections..whole.len() - 8).step_by(104))
    {
        let mut content = whole.clone();
        content[at..at + 8].fill(0xff);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("changed");
        let output = checked(&path);
        let code = output.status.code().expect("no signal");
        assert!([0, 1, 3, 4].contains(&code), "{at}: {code}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("internal error"), "{at}: {}", text(&output.stderr));
    }
}

#[test]
fn an_output_is_not_written_over_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("true");
    fs::copy("/bin/true", &copy).expect("copied");
    let output = foretell().args(["check", "--json"]).args([&copy, &copy]).output().expect("runs");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(fs::read(&copy).ok(), fs::read("/bin/true").ok());
}
