//! `foretell check`: tells beforehand what `foretell run` will see of a program's reads, and why.
//!
//! Whether the interposing library goes along is decided by the code that `run` itself uses (`preload/src/executable.c`, by way
//! of [`environment::goes_along`]), so both always agree. This module finds the reasons in the file, and what the library would
//! miss in a program that it goes along with:
//!
//! A. Scripts are checked by their interpreter. `env` as an interpreter stands for the program that it executes.
//! B. A program that the library does not fit is seen from outside, through `/proc`. A Go program is too, even if the library
//!    is loaded: its runtime makes system calls by itself.
//! C. A program that imports functions which read files, and which the library does not wrap, is seen in part. The imports are
//!    compared with what the library exports.
//! D. Some imports may be harmless: `syscall` reads files in few of the programs that call it. They are notes.
//!
//! Not checked: libraries that the program loads, and system calls in the program's own code.

mod binary;
mod findings;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rustix::fs::Access;

use self::binary::Binary;
use self::findings::{Findings, Reason};
use crate::failure::{Failure, written};
use crate::output_file::{self, OutputFile};
use crate::{environment, launch, library};

pub(crate) const HELP: &str = "\
Exit codes: 0 the reads are seen; 3 a part of them is; 4 they are seen from outside at best, by \
positions of open files; 1 the program cannot be checked.

Libraries that the program loads are not checked. Hints work for all programs.

Examples:
  foretell check grep
  foretell check --json - ./server | jq .seen";

/// Exit code: a part of the program's reads is seen.
const SEEN_IN_PART: u8 = 3;

/// Exit code: the program's reads are seen from outside at best.
const SEEN_FROM_OUTSIDE: u8 = 4;

/// Bytes of a script's first line that are read: as many as `preload/src/executable.c` reads.
const SCRIPT_HEAD_BYTES: u64 = 128;

/// Levels of scripts that the kernel follows.
const SCRIPT_LEVELS: usize = 5;

/// What runs a file that is neither a program nor a script.
const SHELL: &str = "/bin/sh";

/// Beginnings of the names of shared sanitizer runtimes, as in `preload/src/executable.c`.
const SANITIZERS: [&str; 8] = [
    "libasan.",
    "libtsan.",
    "liblsan.",
    "libhwasan.",
    "libclang_rt.asan",
    "libclang_rt.tsan",
    "libclang_rt.lsan",
    "libclang_rt.hwasan",
];

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Write the findings to FILE as JSON (- for standard output, in place of the lines)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The program; a name without a slash is looked up in PATH
    #[arg(value_name = "PROGRAM")]
    program: OsString,
}

pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let library = library::find().map_err(Failure::failed)?;
    let named = args.program.display();
    let path = find(&args.program).map_err(|why| Failure::failed(format!("{named}: {why}")))?;
    let written_to = args.json.as_deref().map(|to| ("--json", to));
    output_file::check_apart(
        &[("the program", &path)],
        &written_to.into_iter().collect::<Vec<_>>(),
    )
    .map_err(Failure::usage)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    let findings = Findings::new(args.program.clone(), path.clone());
    let findings =
        look(findings, path, &library).map_err(|why| Failure::failed(format!("{named}: {why}")))?;
    let prints_json = args.json.as_deref() == Some(Path::new("-"));
    if let Some(file) = json {
        file.write_json(&findings).map_err(Failure::failed)?;
    }
    if !prints_json {
        written(write!(io::stdout(), "{}", findings.lines()))?;
    }
    Ok(findings.exit_code())
}

/// The file that would be executed.
fn find(name: &OsString) -> Result<PathBuf, String> {
    if let Some(found) = launch::find(name) {
        return Ok(found);
    }
    let path = Path::new(name);
    if !name.as_bytes().contains(&b'/') {
        let here = if path.is_file() { "; a file of this folder is named with ./" } else { "" };
        return Err(format!("no such program in PATH{here}"));
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err("is a folder; name a program".into()),
        Ok(metadata) if !metadata.is_file() => Err("not a regular file; name a program".into()),
        Ok(_) => Err("not executable; see chmod +x".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// A: follows scripts to the program that will run, and looks at it.
fn look(mut findings: Findings, path: PathBuf, library: &Path) -> Result<Findings, String> {
    findings.library_fits = environment::goes_along(&path, library);
    let mut path = path;
    for level in 0..=SCRIPT_LEVELS {
        match head(&path).map_err(|error| error.to_string()) {
            // The library's own code cannot read it either.
            Err(why) if level == 0 && !is_readable(&path) => {
                findings.add(Reason::Unreadable, why);
                return Ok(findings);
            }
            Err(why) if level == 0 => return Err(why),
            Err(why) => return Err(format!("its interpreter {}: {why}", path.display())),
            Ok(Head::Program) => {
                return look_at_program(findings, &path, library);
            }
            Ok(Head::Script(Some(interpreter), program)) => {
                findings.through.push(interpreter.clone());
                if let Some(program) = program {
                    findings.library_fits &= environment::goes_along(&program, library);
                    path = program;
                } else {
                    path = interpreter;
                }
                findings.runs = path.clone();
            }
            Ok(Head::Script(None, _)) => {
                let text = "the name of its interpreter is too long".to_owned();
                findings.add(Reason::Script, text);
                return Ok(findings);
            }
            Ok(Head::Other) if level == 0 => {
                findings.through.push(SHELL.into());
                path = SHELL.into();
                findings.runs = path.clone();
            }
            Ok(Head::Other) => {
                return Err(format!("its interpreter {} is no program", path.display()));
            }
        }
    }
    findings.add(Reason::Script, "more scripts run each other than the kernel follows".into());
    Ok(findings)
}

fn is_readable(path: &Path) -> bool {
    rustix::fs::access(path, Access::READ_OK).is_ok()
}

/// How a file begins.
enum Head {
    Program,
    /// Its interpreter, unless the name is too long; and the program that `env` as an interpreter runs.
    Script(Option<PathBuf>, Option<PathBuf>),
    Other,
}

fn head(path: &Path) -> io::Result<Head> {
    let mut head = Vec::new();
    File::open(path)?.take(SCRIPT_HEAD_BYTES).read_to_end(&mut head)?;
    if head.starts_with(b"\x7fELF") {
        return Ok(Head::Program);
    }
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(Head::Other) };
    let is_whole = line.contains(&b'\n') || (head.len() as u64) < SCRIPT_HEAD_BYTES;
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| b" \t\0".contains(byte)).filter(|word| !word.is_empty());
    let as_path = |word: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(word));
    let interpreter = words.next().map(as_path);
    let is_cut = !is_whole && words.clone().next().is_none();
    let Some(interpreter) = interpreter.filter(|_| !is_cut) else {
        return Ok(Head::Script(None, None));
    };
    let program = (interpreter.file_name() == Some("env".as_ref()))
        .then(|| words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')))
        .flatten()
        .and_then(|word| launch::find(std::ffi::OsStr::from_bytes(word)));
    Ok(Head::Script(Some(interpreter), program))
}

/// B to D, for an ELF file.
fn look_at_program(
    mut findings: Findings,
    path: &Path,
    library: &Path,
) -> Result<Findings, String> {
    let read = |path: &Path| -> Result<Binary, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        Binary::read(file).map_err(|error| format!("a damaged or cut ELF file ({error})"))
    };
    let ours = read(library).map_err(|why| format!("{}: {why}", library.display()))?;
    let binary = read(path)?;
    if binary.is_cut {
        return Err("a cut ELF file: it ends before its last part".into());
    }
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    let is_own_kind = binary.kind == ours.kind;
    findings.takes_facts(&binary);
    if binary.is_go {
        let text = "a Go program: its runtime makes system calls without the C library";
        findings.add(Reason::Go, text.into());
    }
    if !is_own_kind {
        let text = format!(
            "a program of {} bits for {}; foretell's library is of {} bits for {}",
            binary.kind.bits,
            binary.kind.machine(),
            ours.kind.bits,
            ours.kind.machine()
        );
        findings.add(Reason::Machine, text);
    }
    match &binary.loader {
        None => findings.add(Reason::Static, "static: it loads no libraries".into()),
        Some(loader) if is_own_kind => check_loader(&mut findings, loader),
        Some(_) => {}
    }
    if let Some(how) = raised_rights(path, &metadata) {
        findings
            .add(Reason::Rights, format!("{how}: the dynamic linker ignores foretell's library"));
    }
    if let Some(name) = binary.needed.iter().find(|name| is_sanitizer(name)) {
        let text = format!("{} must be loaded before all others", String::from_utf8_lossy(name));
        findings.add(Reason::Sanitizer, text);
    }
    if is_another_user() {
        findings.add(Reason::User, "this process has the rights of another user".into());
    }
    if !findings.library_fits && findings.reasons.is_empty() {
        let text = format!("{} cannot be loaded by it", library.display());
        findings.add(Reason::Library, text);
    }
    findings.compare_imports(&binary, &ours);
    Ok(findings)
}

/// Checks the C library by the dynamic linker that belongs to it.
fn check_loader(findings: &mut Findings, loader: &[u8]) {
    let path = Path::new(std::ffi::OsStr::from_bytes(loader));
    let name = path.display();
    let found = File::open(path);
    let text = match found {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!("its dynamic linker {name} is missing, so it cannot start")
        }
        Err(error) => format!("its dynamic linker {name}: {error}"),
        Ok(file) => match Binary::read(file) {
            Ok(linker) if linker.defines_needed_version => return,
            _ if name.to_string().contains("musl") => {
                format!("musl ({name}); foretell's library needs glibc 2.34 or later")
            }
            _ => format!("a C library other than glibc 2.34 or later ({name})"),
        },
    };
    findings.add(Reason::CLibrary, text);
}

/// How the kernel would raise the program's rights, as `preload/src/executable.c` decides it.
fn raised_rights(path: &Path, metadata: &fs::Metadata) -> Option<&'static str> {
    let mode = metadata.mode();
    let has = |bits: u32| mode & bits == bits;
    let mut none = [0u8; 0];
    match () {
        () if has(libc::S_ISUID) => Some("set-user-ID"),
        () if has(libc::S_ISGID | libc::S_IXGRP) => Some("set-group-ID"),
        () if rustix::fs::getxattr(path, "security.capability", &mut none[..]).is_ok() => {
            Some("file capabilities")
        }
        () => None,
    }
}

fn is_another_user() -> bool {
    rustix::process::getuid() != rustix::process::geteuid()
        || rustix::process::getgid() != rustix::process::getegid()
}

fn is_sanitizer(library: &[u8]) -> bool {
    let name = library.rsplit(|&byte| byte == b'/').next().unwrap_or(library);
    SANITIZERS.iter().any(|begin| name.starts_with(begin.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &[u8]) -> Head {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("script");
        fs::write(&path, text).expect("written");
        head(&path).expect("read")
    }

    #[test]
    fn the_interpreter_of_a_script_is_the_first_word_and_env_stands_for_its_program() {
        let interpreter = |text: &[u8]| match script(text) {
            Head::Script(interpreter, program) => (interpreter, program.is_some()),
            _ => panic!("it is a script"),
        };
        assert_eq!(interpreter(b"#!/bin/sh -e\n"), (Some("/bin/sh".into()), false));
        assert_eq!(interpreter(b"#! \t/bin/sh"), (Some("/bin/sh".into()), false));
        let env = Some("/usr/bin/env".into());
        assert_eq!(interpreter(b"#!/usr/bin/env -S A=1 sh -e\n"), (env.clone(), true));
        assert_eq!(interpreter(b"#!/usr/bin/env no-such-program\n"), (env, false));
        let long = [b"#!/".as_slice(), &[b'a'; 200], b"\n"].concat();
        assert_eq!(interpreter(&long), (None, false));
        assert_eq!(interpreter(b"#!\n"), (None, false));
    }

    #[test]
    fn other_files_are_no_scripts() {
        assert!(matches!(script(b""), Head::Other));
        assert!(matches!(script(b"# !/bin/sh"), Head::Other));
        assert!(matches!(script(b"\x7fELF"), Head::Program));
    }

    #[test]
    fn sanitizers_are_known_by_the_beginning_of_their_names() {
        assert!(is_sanitizer(b"libasan.so.8") && is_sanitizer(b"/usr/lib/libtsan.so.2"));
        assert!(!is_sanitizer(b"libasana.so") && !is_sanitizer(b"/libasan.so/libc.so.6"));
    }
}
