//! How `foretell run` starts its program: as `execvp` does, with the environment passed on entry by entry.
//!
//! A. In place: this process becomes the program.
//! B. As a child: for a run that reports something at its end.
//!
//! In both cases the program has the signal state and the standard descriptors that it would have without foretell.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use crate::environment::{self, Setting};
use crate::failure::{FAILED_BEFORE, Failure, note};
use crate::opens::{self, Guard, Unwatched};
use crate::signals::{self, Inherited};

/// The C library's search path if PATH is not set.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Bytes of a script's beginning that the kernel reads (`BINPRM_BUF_SIZE`).
const SCRIPT_HEAD_BYTES: u64 = 256;

/// What a child reports in place of an error's number if the guard of its opens has ended or does not answer.
const UNANSWERED: i32 = -1;

/// Why there is no child.
pub(crate) enum NotStarted {
    /// The guard of its opens has ended or does not answer. It may be started [without](Launch::without_guard).
    Guard,
    /// The program cannot be executed.
    Program(Failure),
    /// No process or descriptor is left, in the system or within a limit.
    Child(io::Error),
}

/// A program about to be started.
pub(crate) struct Launch<'a> {
    command: &'a [OsString],
    entries: Vec<CString>,
    inherited: Inherited,
    /// Whether foretell reads standard input itself, so that the program gets none.
    without_input: bool,
    is_left_alone: bool,
    guarded: Option<Guarded>,
}

/// How the program is started with its opens watched.
struct Guarded {
    guard: Guard,
    entries: Vec<CString>,
    /// Whether a failure is not told.
    is_quiet: bool,
}

/// Why this process has not become the program.
enum NotExecuted {
    Program(io::Error),
    Guard,
}

impl<'a> Launch<'a> {
    /// `command` is the program and its arguments; `inherited` comes from [`signals::block_all`].
    pub(crate) fn new(command: &'a [OsString], inherited: Inherited, without_input: bool) -> Self {
        let entries = environment::inherited();
        Launch { command, entries, inherited, without_input, is_left_alone: false, guarded: None }
    }

    /// Gives the program the library and the manager's address; `interest` says what of it matters from its start.
    ///
    /// Its opens are watched if there is a `guard` for them. If they cannot be, a line says why, unless `is_quiet`.
    pub(crate) fn preload(
        &mut self,
        library: &Path,
        (address, interest): (&str, u32),
        guard: Option<Guard>,
        is_quiet: bool,
    ) {
        let program = find(&self.command[0]);
        let inherited = std::mem::take(&mut self.entries);
        let entries = |own_filters| {
            let setting = Setting { address, interest, own_filters };
            environment::block(inherited.clone(), program.as_deref(), library, setting)
        };
        self.guarded = guard.map(|guard| Guarded { guard, entries: entries(1), is_quiet });
        self.entries = entries(0);
        self.is_left_alone = environment::is_left_alone(&self.entries);
    }

    /// Adds an entry to the program's environment. To be called before [`preload`](Self::preload), whose entries come last.
    pub(crate) fn add(&mut self, entry: CString) {
        self.entries.push(entry);
    }

    /// Gives up watching the program's opens.
    pub(crate) fn without_guard(&mut self) {
        self.guarded = None;
    }

    /// Whether the program runs without the library although there is a manager.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.is_left_alone
    }

    /// A: this process becomes the program. Returns only on failure.
    pub(crate) fn in_place(&self) -> Failure {
        match self.execute() {
            NotExecuted::Program(error) => self.cannot_execute(&error),
            NotExecuted::Guard => {
                let line =
                    "the guard of the program's opens has ended or is stopped; run it again".into();
                Failure { code: FAILED_BEFORE, line }
            }
        }
    }

    /// B: starts the program as a child. Call it only while this process has a single thread.
    ///
    /// # Errors
    /// [`NotStarted`].
    pub(crate) fn as_child(&self) -> Result<Pid, NotStarted> {
        let (told, teller) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|error| NotStarted::Child(error.into()))?;
        // SAFETY: there is one thread, so the child finds no lock taken and no structure half changed.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            let error = match self.execute() {
                NotExecuted::Program(error) => error.raw_os_error().unwrap_or(0),
                NotExecuted::Guard => UNANSWERED,
            };
            let _ = File::from(teller).write_all(&error.to_ne_bytes());
            // SAFETY: ends the child at once; what `exit` would run belongs to the parent.
            unsafe { libc::_exit(127) }
        }
        let pid = (forked > 0)
            .then(|| Pid::from_raw(forked))
            .flatten()
            .ok_or_else(|| NotStarted::Child(io::Error::last_os_error()))?;
        drop(teller);
        let mut error = [0; size_of::<i32>()];
        match File::from(told).read_exact(&mut error) {
            Err(_) => Ok(pid), // The pipe was closed by the program's start.
            Ok(()) => {
                let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                match i32::from_ne_bytes(error) {
                    UNANSWERED => Err(NotStarted::Guard),
                    error => {
                        let error = io::Error::from_raw_os_error(error);
                        Err(NotStarted::Program(self.cannot_execute(&error)))
                    }
                }
            }
        }
    }

    /// Executes the program in this process. Returns the error if that fails.
    fn execute(&self) -> NotExecuted {
        let text = |word: &OsString| CString::new(word.as_bytes()).ok();
        let words: Vec<CString> = self.command.iter().filter_map(text).collect();
        let array = |strings: &[CString]| -> Vec<*const libc::c_char> {
            strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let arguments = array(&words);
        if self.without_input
            && let Err(error) = be_without_input()
        {
            return NotExecuted::Program(error);
        }
        // Before the signals of the program are in force, and while standard error is open.
        let watched = self.guarded.as_ref().map(|guarded| (guarded, opens::watch(&guarded.guard)));
        let entries = match watched {
            Some((guarded, Ok(()))) => array(&guarded.entries),
            Some((_, Err(Unwatched::Unanswered))) => return NotExecuted::Guard,
            Some((guarded, Err(Unwatched::Refused(error)))) => {
                if !guarded.is_quiet {
                    note(opens::without(opens::refusal(&error)));
                }
                array(&self.entries)
            }
            None => array(&self.entries),
        };
        for (descriptor, _) in (0..).zip(signals::closed_at_start()).filter(|&(_, closed)| closed) {
            // SAFETY: nothing of this process uses it any more: it becomes the program.
            unsafe { libc::close(descriptor) };
        }
        if let Err(error) = self.inherited.restore() {
            return NotExecuted::Program(error);
        }
        // SAFETY: both arrays end with a null pointer and hold strings that outlive the call; a command has one word at
        // least. Like `execvp` it looks a name up in PATH and has the shell run what the kernel does not know.
        unsafe { libc::execvpe(arguments[0], arguments.as_ptr(), entries.as_ptr()) };
        let error = io::Error::last_os_error();
        signals::ignore_broken_pipes(); // The error line may have no reader.
        NotExecuted::Program(error)
    }

    fn cannot_execute(&self, error: &io::Error) -> Failure {
        let name = self.command[0].to_string_lossy();
        if error.kind() != io::ErrorKind::NotFound {
            return Failure { code: 126, line: format!("{name}: {error}") };
        }
        match find(&self.command[0]) {
            None => Failure { code: 127, line: format!("{name}: command not found") },
            Some(program) => Failure { code: 126, line: format!("{name}: {}", missing(&program)) },
        }
    }
}

/// Says which file is missing for a program that exists. The kernel only reports that some file is.
fn missing(program: &Path) -> String {
    match interpreter(program) {
        Some(interpreter) if !interpreter.exists() => {
            format!("its interpreter {} is missing; install it", interpreter.display())
        }
        _ => "the loader or interpreter that it needs is missing; install it".to_owned(),
    }
}

/// The interpreter that a script's first line names.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    File::open(program).ok()?.take(SCRIPT_HEAD_BYTES).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let word = line.split(is_space).find(|word| !word.is_empty())?;
    Some(OsStr::from_bytes(word).into())
}

fn be_without_input() -> io::Result<()> {
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd()).map_err(io::Error::from)
}

/// The file that `execvp` would execute for this name.
pub(crate) fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_in_path_and_a_path_is_not() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(OsStr::new("/bin/sh")), Some("/bin/sh".into()));
        assert_eq!(find(OsStr::new("no-such-program")), None);
        assert_eq!(find(OsStr::new("/etc/passwd")), None, "it is no program");
    }
}
