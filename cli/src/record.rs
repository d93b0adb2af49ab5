//! `foretell record`: runs a program and records what it reads; and what `foretell run --replay` needs of a recording.
//!
//! The run is one of `foretell run --no-hints` ([`crate::run`]), with a recording beside it. The file is written while the
//! program runs, so it is made at the start, unlike other outputs:
//!
//! A. Beside the old one, under a temporary name. It takes its name once it has its beginning and the program is executed. A
//!    program that does not exist therefore leaves the old recording as it was.
//! B. In place, if it cannot be made beside, or could not replace the old one: devices, files with several names, folders in
//!    which nothing may be made. It is emptied if the program can be found.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use foretell_manager::learn::masking;
use foretell_manager::learn::recording::Meta;
use foretell_manager::learn::recording::reader::Reader;
use foretell_manager::learn::recording::replay::Moves;
use foretell_manager::recorded::Record;
use foretell_manager::{Replayed, Report};
use tempfile::NamedTempFile;

use crate::failure::{FAILED_BEFORE, Failure, note};
use crate::launch;
use crate::output_file;
use crate::run::{self, RunArgs};
use crate::size;

pub(crate) const HELP: &str = "\
PROGRAM runs as under `foretell run --no-hints`: nothing is prefetched, and its output, exit code \
and signals stay its own. If it is killed, or the disk is full, the recording holds what came before.

What is recorded: each open, each question about a name (stat, readlink, ...), each read, and each part \
of a mapped file that is touched, with the time, the process and, for calls, how long they took. Data is \
not recorded; names of files are, and so is the command line, without passwords and tokens. Of programs in which foretell cannot see \
calls (static and Go programs), only what the positions of their open files show; with --observe opens, each file that they \
open, too.

Examples:
  foretell record -o run.ftr -- ./analyse data/*.h5
  foretell report run.ftr -o report.html                        shows it
  foretell run --replay run.ftr -- ./analyse data/*.h5          looks ahead in it
  foretell sim replay run.ftr --disk network --hints none,all   predicts other machines";

#[derive(Args)]
pub(crate) struct RecordArgs {
    /// The file to write; what it has is replaced
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// What is recorded: calls, or also the opens of programs in which foretell cannot see calls (static and Go programs; needs
    /// root, and slows each open)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Observed::Calls)]
    observe: Observed,

    /// Print no summary
    #[arg(short, long)]
    quiet: bool,

    /// Write the summary's figures to FILE as JSON (- for standard output, after PROGRAM's output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// What is recorded of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Observed {
    Calls,
    Opens,
}

/// Runs the program and ends as it ended; returns only on failure.
pub(crate) fn record(args: RecordArgs, theirs: Vec<OsString>) -> Result<ExitCode, Failure> {
    let RecordArgs { output, observe, quiet, json, command } = args;
    run::run(RunArgs::recorded((output, observe), (quiet, json), command), theirs)
}

fn refused(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure { code: FAILED_BEFORE, line: format!("--output: {}: {why}", path.display()) }
}

/// The name that a recording takes once the program is executed. Dropped before that, the file is removed.
pub(crate) struct Naming {
    /// The file under its temporary name, and its name. `None`: it has its name already.
    beside: Option<(NamedTempFile, PathBuf)>,
}

impl Naming {
    /// The recording replaces the file of its name, if there is one.
    pub(crate) fn take_name(self) {
        let Some((beside, name)) = self.beside else { return };
        let Err(tempfile::PersistError { error, file }) = beside.persist(&name) else { return };
        match file.into_temp_path().keep() {
            Ok(kept) => {
                let (name, kept) = (name.display(), kept.display());
                note(format!("--output: {name}: {error}; the recording is {kept}"));
            }
            Err(_) => note(format!("--output: {}: {error}; there is no recording", name.display())),
        }
    }
}

/// The file of a recording, with its beginning, and the name that it will take.
pub(crate) fn to_record(path: &Path, command: &[OsString]) -> Result<(Record, Naming), Failure> {
    if path.as_os_str() == "-" {
        return Err(refused(path, "standard output is the program's; give a file"));
    }
    let old = match std::fs::metadata(path) {
        // Opening a pipe would wait for its reader.
        Ok(old) if !old.is_file() && !old.file_type().is_char_device() => {
            return Err(refused(path, "it is no regular file; give another one"));
        }
        Ok(old) => Some(old),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(refused(path, error)),
    };
    let made = made_beside(path, old.as_ref());
    let (file, beside) = match made {
        Some((file, beside)) => (file, Some(beside)),
        None => (made_in_place(path, command)?, None),
    };
    let folder = std::env::current_dir().unwrap_or_default().into_os_string().into_vec();
    let began_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let meta = Meta { command: shown(command), folder: folder.into(), began_s };
    let mut record = Record::new(file, &meta);
    let _ = record.begin(); // The manager tries again, and tells why it cannot write.
    Ok((record, Naming { beside }))
}

/// A: a new file in the folder of `path`. A hidden one, so that patterns such as `*.ftr` do not find it.
fn made_beside(path: &Path, old: Option<&Metadata>) -> Option<(File, (NamedTempFile, PathBuf))> {
    if old.is_some_and(|old| !old.is_file() || old.nlink() != 1) {
        return None;
    }
    let name = output_file::behind_links(path)?;
    if old.is_some() && rustix::fs::access(&name, rustix::fs::Access::WRITE_OK).is_err() {
        return None; // What may not be written is refused in place.
    }
    let mut prefix = OsString::from(".");
    prefix.push(name.file_name()?);
    prefix.push(".");
    let beside = tempfile::Builder::new().prefix(&prefix).tempfile_in(output_file::folder(&name));
    let beside = beside.ok()?; // Of mode 0600.
    if let Some(old) = old {
        fchown(beside.as_file(), Some(old.uid()), Some(old.gid())).ok()?;
        beside.as_file().set_permissions(old.permissions()).ok()?;
    }
    Some((beside.as_file().try_clone().ok()?, (beside, name)))
}

/// B: the file itself, emptied. If the program cannot be found, the file is left alone: the run ends in a moment, by that
/// error.
fn made_in_place(path: &Path, command: &[OsString]) -> Result<File, Failure> {
    let can_begin = command.first().is_some_and(|program| launch::find(program).is_some());
    let path = if can_begin { path } else { Path::new("/dev/null") };
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(|error| refused(path, error))
}

/// The words of the command as the recording has them: without secrets. Paths stay, for what is read is recorded too.
fn shown(command: &[OsString]) -> Vec<Arc<[u8]>> {
    let masked = masking::words(command.iter().map(|word| word.to_string_lossy()), None);
    let kept = |(word, masked): (&OsString, String)| match word.to_string_lossy() == masked {
        true => word.as_bytes().into(), // As it is, also where it is no text.
        false => masked.into_bytes().into(),
    };
    command.iter().zip(masked).map(kept).collect()
}

/// Says on standard error if the recording ends before the run.
pub(crate) fn tell_problem(path: &Path, report: &Report) {
    let recorded = report.recorded.as_ref();
    let why = match recorded {
        None => Some("the manager failed"),
        Some(recorded) => recorded.problem.as_deref(),
    };
    if let Some(why) = why {
        let path = path.display();
        note(format!("{path}: {why}; the recording has only the part of the run before that"));
    }
}

/// The part of the summary that is about the recording.
pub(crate) fn summary(recorded: &foretell_manager::RecordReport) -> String {
    let lost = match recorded.lost {
        0 => String::new(),
        lost => format!(", {lost} events lost"),
    };
    format!(
        "recorded {} reads of {} in {} files, {} names{lost}: {}",
        recorded.reads,
        size::display(recorded.read_bytes),
        recorded.files,
        recorded.touches,
        size::display(recorded.file_bytes)
    )
}

/// A folder that has moved.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    old: PathBuf,
    new: PathBuf,
}

/// Parses `OLD=NEW`.
pub(crate) fn moved(text: &str) -> Result<Moved, String> {
    let (old, new) = text
        .split_once('=')
        .filter(|(old, new)| !old.is_empty() && !new.is_empty())
        .ok_or("give the old and the new folder, as /old/data=/new/data")?;
    let absolute = |path| std::path::absolute(path).map_err(|error| format!("{path}: {error}"));
    Ok(Moved { old: absolute(old)?, new: absolute(new)? })
}

/// The recording in the file `path`, checked at its beginning.
pub(crate) fn replayed(path: &Path, moves: &[Moved]) -> Result<Replayed, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure {
        code: FAILED_BEFORE,
        line: format!("--replay: {}: {why}", path.display()),
    };
    let open = || {
        let file = File::open(path)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(std::io::Error::from(ErrorKind::IsADirectory)),
        }
    };
    let not_a_file = |error: std::io::Error| match error.kind() {
        ErrorKind::IsADirectory => failed(&"it is no regular file; give a recording"),
        _ => failed(&error),
    };
    let mut file = open().map_err(not_a_file)?;
    Reader::new(&file).map_err(|refusal| failed(&refusal))?;
    file.rewind().map_err(|error| failed(&error))?;
    let bytes = |path: &Path| OsStr::as_bytes(path.as_os_str()).to_vec();
    let moves = moves.iter().map(|moved| (bytes(&moved.old), bytes(&moved.new))).collect();
    Ok(Replayed { name: path.display().to_string(), file, moves: Moves::new(moves) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_has_no_secret_of_the_command_line() {
        let command = ["curl", "--token", "abc", "/home/a/.ssh/config"].map(OsString::from);
        let words = [&b"\xff"[..], b"x"].map(|word| OsString::from_vec(word.to_vec()));
        let shown = shown(&[&command[..], &words].concat());
        let is: [&[u8]; 6] =
            [b"curl", b"--token", "…".as_bytes(), b"/home/a/.ssh/config", b"\xff", b"x"];
        assert_eq!(shown.iter().map(|word| &**word).collect::<Vec<_>>(), is);
    }
}
