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

/// Control characters that a text may have: tab, line feed, vertical tab, form feed, carriage return and escape.
const TEXT_CONTROLS: &[u8] = b"\t\n\x0b\x0c\r\x1b";

/// Levels of scripts that the kernel follows.
const SCRIPT_LEVELS: usize = 5;

/// What is said of a file that cannot be executed.
const NO_PROGRAM: &str = "not a program: no ELF file and no #! line";

/// What runs a text that is neither a program nor a script.
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
        let here = match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => "; a file of this folder is named with ./",
            Ok(metadata) if metadata.is_dir() => "; it is a folder, so name a program",
            _ if name.is_empty() => "; the name is empty",
            _ => "",
        };
        return Err(format!("no such program in PATH{here}"));
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err("is a folder; name a program".into()),
        Ok(metadata) if !metadata.is_file() => Err("not a regular file; name a program".into()),
        Ok(_) => Err(not_executable(path)),
        Err(error) => Err(error.to_string()),
    }
}

/// What to do about a file that the user may not execute.
fn not_executable(path: &Path) -> String {
    let is_set = fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o111 != 0);
    let other = match head(path) {
        Ok(Head::Text | Head::Data) => Some(NO_PROGRAM),
        Ok(Head::Empty) => Some("an empty file"),
        Ok(Head::Program) => read_binary(path).ok().and_then(|binary| binary.other),
        Ok(Head::Script(..)) | Err(_) => None,
    };
    match other {
        Some(other) => format!("not executable, and {other}; name a program"),
        None if is_set => "not executable by this user".into(),
        None => "not executable; see chmod +x".into(),
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
            Err(why) => return Err(interpreter_fails(&path, &why)),
            Ok(Head::Program) => {
                return look_at_program(findings, &path, library);
            }
            Ok(Head::Script(Some(interpreter), runs)) => {
                findings.through.push(interpreter.clone());
                path = match runs {
                    Runs::Itself => interpreter,
                    Runs::Program(program) => {
                        findings.library_fits &= environment::goes_along(&program, library);
                        program
                    }
                    Runs::Nothing(name) => {
                        let (env, name) = (interpreter.display(), name.display());
                        return Err(format!(
                            "its #! line has {env} run {name}, which is not in PATH"
                        ));
                    }
                };
                findings.runs = path.clone();
            }
            Ok(Head::Script(None, _)) => {
                let text = "the name of its interpreter is missing or too long".to_owned();
                findings.add(Reason::Script, text);
                return Ok(findings);
            }
            Ok(Head::Text) if level == 0 => {
                findings.through.push(SHELL.into());
                path = SHELL.into();
                findings.runs = path.clone();
            }
            Ok(Head::Empty) if level == 0 => return Err("an empty file; name a program".into()),
            Ok(Head::Data) if level == 0 => return Err(format!("{NO_PROGRAM}; name a program")),
            Ok(Head::Text | Head::Empty | Head::Data) => {
                return Err(interpreter_fails(&path, "not a program"));
            }
        }
    }
    findings.add(Reason::Script, "more scripts run each other than the kernel follows".into());
    Ok(findings)
}

/// Why an interpreter cannot be read, and the way out.
fn interpreter_fails(interpreter: &Path, why: &str) -> String {
    let way_out = match () {
        () if interpreter.as_os_str().as_bytes().ends_with(b"\r") => {
            "; the #! line ends with a carriage return, so write the script with line feeds alone"
        }
        () if !interpreter.exists() => "; install it, or change the #! line",
        () => "; change the #! line",
    };
    format!("its interpreter {}: {why}{way_out}", interpreter.display())
}

fn is_readable(path: &Path) -> bool {
    rustix::fs::access(path, Access::READ_OK).is_ok()
}

/// How a file begins.
enum Head {
    Program,
    /// Its interpreter, unless the name is missing or too long, and what runs.
    Script(Option<PathBuf>, Runs),
    /// What a shell would execute.
    Text,
    /// Control characters are in its beginning that are in no text.
    Data,
    Empty,
}

/// What a script's interpreter runs.
#[derive(Debug, PartialEq, Eq)]
enum Runs {
    Itself,
    /// The interpreter is `env`, which executes this program.
    Program(PathBuf),
    /// The interpreter is `env`, which finds no program of this name.
    Nothing(OsString),
}

fn head(path: &Path) -> io::Result<Head> {
    let mut head = Vec::new();
    File::open(path)?.take(SCRIPT_HEAD_BYTES).read_to_end(&mut head)?;
    if head.starts_with(b"\x7fELF") {
        return Ok(Head::Program);
    }
    let Some(line) = head.strip_prefix(b"#!") else {
        let is_of_data = |byte: &u8| byte.is_ascii_control() && !TEXT_CONTROLS.contains(byte);
        return Ok(match () {
            () if head.is_empty() => Head::Empty,
            () if head.iter().any(is_of_data) => Head::Data,
            () => Head::Text,
        });
    };
    let is_whole = line.contains(&b'\n') || (head.len() as u64) < SCRIPT_HEAD_BYTES;
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| b" \t\0".contains(byte)).filter(|word| !word.is_empty());
    let as_path = |word: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(word));
    let interpreter = words.next().map(as_path);
    let is_cut = !is_whole && words.clone().next().is_none();
    let Some(interpreter) = interpreter.filter(|_| !is_cut) else {
        return Ok(Head::Script(None, Runs::Itself));
    };
    let runs = match interpreter.file_name() == Some("env".as_ref()) {
        true => run_by_env(words, is_whole),
        false => Runs::Itself,
    };
    Ok(Head::Script(Some(interpreter), runs))
}

/// What `env` runs with these words. They may be cut if they are not `whole`.
fn run_by_env<'a>(words: impl Iterator<Item = &'a [u8]>, whole: bool) -> Runs {
    let mut is_certain = whole;
    for word in words.filter(|word| !word.contains(&b'=')) {
        if word.starts_with(b"-") {
            is_certain &= word == b"-S"; // Other options may have words of their own.
            continue;
        }
        let name = std::ffi::OsStr::from_bytes(word);
        return match launch::find(name) {
            Some(program) => Runs::Program(program),
            None if is_certain => Runs::Nothing(name.to_owned()),
            None => Runs::Itself,
        };
    }
    Runs::Itself
}

fn read_binary(path: &Path) -> Result<Binary, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    Binary::read(file).map_err(|error| format!("a damaged or cut ELF file ({error})"))
}

/// B to D, for an ELF file.
fn look_at_program(
    mut findings: Findings,
    path: &Path,
    library: &Path,
) -> Result<Findings, String> {
    let ours = read_binary(library).map_err(|why| format!("{}: {why}", library.display()))?;
    let binary = read_binary(path)?;
    if let Some(other) = binary.other {
        return Err(format!("{other}, not a program; name a program"));
    }
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
            Head::Script(interpreter, runs) => (interpreter, matches!(runs, Runs::Program(_))),
            _ => panic!("it is a script"),
        };
        assert_eq!(interpreter(b"#!/bin/sh -e\n"), (Some("/bin/sh".into()), false));
        assert_eq!(interpreter(b"#! \t/bin/sh"), (Some("/bin/sh".into()), false));
        let env = Some("/usr/bin/env".into());
        assert_eq!(interpreter(b"#!/usr/bin/env -S A=1 sh -e\n"), (env.clone(), true));
        assert_eq!(interpreter(b"#!/usr/bin/env no-such-program\n"), (env, false));
        let runs = |text: &[u8]| match script(text) {
            Head::Script(_, runs) => runs,
            _ => panic!("it is a script"),
        };
        let nothing = Runs::Nothing("no-such-program".into());
        assert_eq!(runs(b"#!/usr/bin/env -S A=1 no-such-program\n"), nothing);
        assert_eq!(runs(b"#!/usr/bin/env -u no-such-program true\n"), Runs::Itself);
        assert_eq!(runs(b"#!/bin/sh no-such-program\n"), Runs::Itself);
        let long = [b"#!/".as_slice(), &[b'a'; 200], b"\n"].concat();
        assert_eq!(interpreter(&long), (None, false));
        assert_eq!(interpreter(b"#!\n"), (None, false));
    }

    #[test]
    fn other_files_are_no_scripts() {
        assert!(matches!(script(b""), Head::Empty));
        assert!(matches!(script(b"# !/bin/sh"), Head::Text));
        assert!(matches!(script("\x1b\tÄ\r\n".as_bytes()), Head::Text));
        assert!(matches!(script(b"\x89PNG\r\n\x1a\n\0"), Head::Data));
        assert!(matches!(script(b"\x7fELF"), Head::Program));
    }

    #[test]
    fn sanitizers_are_known_by_the_beginning_of_their_names() {
        assert!(is_sanitizer(b"libasan.so.8") && is_sanitizer(b"/usr/lib/libtsan.so.2"));
        assert!(!is_sanitizer(b"libasana.so") && !is_sanitizer(b"/libasan.so/libc.so.6"));
    }
}
