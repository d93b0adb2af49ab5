//! A file that a command checks at its start and writes at its end.
//!
//! A wrong path is reported before the work. No file is created and none is changed until the content is complete, so a command
//! that is ended early leaves nothing half-written.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::Mode;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::signals;

/// Most threads that look up the inputs, and the least number of names per thread.
const LOOKUPS_AT_ONCE: usize = 32;
const LOOKUPS_EACH_MIN: usize = 16;

/// Most symbolic links followed to a file, as in Linux.
const LINKS_MAX: usize = 40;

/// See the [module](self).
pub(crate) struct OutputFile {
    /// What the user calls it.
    name: String,
    to: Destination,
    /// The mode of a new file, before the process's mask is applied.
    mode: u32,
}

/// The default mode of a new file, before the mask.
const NEW_MODE: u32 = 0o666;

enum Destination {
    /// A pipe, a terminal or standard output: the content is appended.
    Stream(File),
    /// An existing file, and its name with all links resolved, if a new file can take that name.
    Old(File, Option<PathBuf>),
    /// The name of a file to create, with all links resolved.
    New(PathBuf),
}

impl OutputFile {
    /// Checks that `path` can be written, and changes nothing; `-` is standard output.
    ///
    /// # Errors
    /// In words: it cannot be written.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        if path.as_os_str() == "-" {
            let file = signals::was_open(1);
            let file = file.and_then(|()| io::stdout().as_fd().try_clone_to_owned());
            let file = file.map_err(|error| format!("standard output: {error}"))?;
            return Ok(OutputFile {
                name: "standard output".into(),
                to: Destination::Stream(file.into()),
                mode: NEW_MODE,
            });
        }
        let to = destination(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(OutputFile { name: path.display().to_string(), to, mode: NEW_MODE })
    }

    /// Opens the file of `option`, if that is given, as [`open_as`](Self::open_as).
    ///
    /// # Errors
    /// In words, with the option: it cannot be written.
    pub(crate) fn of_option(option: &str, path: Option<&Path>) -> Result<Option<Self>, String> {
        path.map(|path| Self::open_as(option, path)).transpose()
    }

    /// As [`open`](Self::open); all errors, also later ones, name the option.
    pub(crate) fn open_as(option: &str, path: &Path) -> Result<Self, String> {
        let mut file = Self::open(path).map_err(|error| format!("{option}: {error}"))?;
        file.name = format!("{option}: {}", file.name);
        Ok(file)
    }

    /// The descriptor that it holds open until it is written, if it has one.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.to {
            Destination::Stream(file) | Destination::Old(file, _) => Some(file.as_fd()),
            Destination::New(_) => None,
        }
    }

    /// For a process that has since set its mask to zero: a new file gets the mode that `mask` would have left.
    pub(crate) fn with_mask(mut self, mask: Mode) -> Self {
        self.mode &= !mask.bits();
        self
    }

    /// Writes the content: replaces a file's, appends to a stream.
    ///
    /// # Errors
    /// In words: it could not be written.
    pub(crate) fn write(self, content: &[u8]) -> Result<(), String> {
        let written = match self.to {
            Destination::Stream(mut file) => file.write_all(content),
            // Signals are held off, because a process ended here would leave a nameless temporary file behind.
            to => signals::held(|| replace(to, self.mode, content)),
        };
        written.map_err(|error| format!("{}: {error}", self.name))
    }

    /// As [`write`](Self::write), with `figures` as JSON.
    pub(crate) fn write_json(self, figures: &impl Serialize) -> Result<(), String> {
        let mut text = serde_json::to_vec(figures).map_err(|error| error.to_string())?;
        text.push(b'\n');
        self.write(&text)
    }
}

fn destination(path: &Path) -> io::Result<Destination> {
    let name = behind_links(path);
    match File::options().write(true).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(match standard(&file)? {
            Some(file) => Destination::Stream(file),
            None => Destination::Old(file, name),
        }),
        Ok(file) => Ok(Destination::Stream(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let name = name.ok_or(error)?;
            File::options().write(true).create_new(true).open(&name)?;
            fs::remove_file(&name)?;
            Ok(Destination::New(name))
        }
        Err(error) => Err(error),
    }
}

/// Standard output or error, if `file` is the same file: then both share one position.
fn standard(file: &File) -> io::Result<Option<File>> {
    let id = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    for standard in [io::stdout().as_fd(), io::stderr().as_fd()] {
        let standard = File::from(standard.try_clone_to_owned()?);
        if id(&standard)? == id(file)? {
            return Ok(Some(standard));
        }
    }
    Ok(None)
}

/// `path` with all links resolved; `None` if they lead through /proc, to a file that is already open.
pub(crate) fn behind_links(path: &Path) -> Option<PathBuf> {
    let mut name = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(link) = fs::read_link(&name) else { break };
        let folder = folder(&name);
        if fs::canonicalize(folder).is_ok_and(|folder| folder.starts_with("/proc")) {
            return None;
        }
        name = folder.join(link);
    }
    Some(name)
}

pub(crate) fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Writes a new file beside the old one and renames it, so that the old content survives a full disk. If no file can be made
/// there, it overwrites the old one in place.
fn replace(to: Destination, mode: u32, content: &[u8]) -> io::Result<()> {
    match to {
        Destination::Stream(mut file) => file.write_all(content),
        Destination::New(name) => match beside(&name, mode) {
            Ok(beside) => {
                beside.as_file().write_all(content)?;
                beside.persist(&name).map(drop).map_err(Into::into)
            }
            Err(_) => {
                let mut options = File::options();
                let mut file = options.write(true).create_new(true).mode(mode).open(&name)?;
                file.write_all(content).inspect_err(|_| drop(fs::remove_file(&name)))
            }
        },
        Destination::Old(mut file, name) => {
            let beside = name.and_then(|name| Some((like(&file.metadata().ok()?, &name)?, name)));
            if let Some((beside, name)) = beside {
                beside.as_file().write_all(content)?;
                // The rename can fail, for instance if something is mounted on the name: overwrite in place.
                if beside.persist(name).is_ok() {
                    return Ok(());
                }
            }
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(content)
        }
    }
}

/// A temporary file in the folder of `name`, removed unless it is renamed. The process's mask applies to `mode`.
fn beside(name: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(Permissions::from_mode(mode)).tempfile_in(folder(name))
}

/// A temporary file with the owner and mode of the file called `name`, unless that has other hard links.
fn like(metadata: &Metadata, name: &Path) -> Option<NamedTempFile> {
    if metadata.nlink() != 1 {
        return None;
    }
    let beside = beside(name, 0o600).ok()?;
    let (owner, group) = (metadata.uid(), metadata.gid());
    std::os::unix::fs::fchown(beside.as_file(), Some(owner), Some(group)).ok()?;
    beside.as_file().set_permissions(metadata.permissions()).ok()?;
    Some(beside)
}

/// An input or output: its name for the user, and its path.
pub(crate) type Named<'a> = (&'a str, &'a Path);

/// Refuses to overwrite an input, and to write two outputs to one file.
///
/// # Errors
/// Says which option, and to give another file.
pub(crate) fn check_apart(read: &[Named], written: &[Named]) -> Result<(), String> {
    for (at, &(name, path)) in written.iter().enumerate() {
        let is_same = |other: &&Named| other.1 == path && !is_device(path) || is_one(path, other.1);
        if let Some((other, _)) = written[..at].iter().find(is_same) {
            let path = path.display();
            return Err(format!("{name}: {other} is written to {path} too; give another file"));
        }
        if let Some(other) = read_as(path, read) {
            return Err(format!("{name}: {} is {other}; give another file", path.display()));
        }
    }
    Ok(())
}

/// The name of the input in `read` that is the file at `path`, if any. Inputs may be thousands of remote files, so lookups are
/// saved: none if `path` does not exist yet, and none for inputs whose folder is on another device. The rest are looked up on
/// several threads.
fn read_as<'a>(path: &Path, read: &'a [Named<'a>]) -> Option<&'a str> {
    found(path).filter(|there| !there.file_type().is_char_device())?;
    let device = behind_links(path).and_then(|name| device_of_folder(&name));
    let each = read.len().div_ceil(LOOKUPS_AT_ONCE).max(LOOKUPS_EACH_MIN);
    let (first, others) = read.split_at(each.min(read.len()));
    let find = |part: &'a [Named<'a>]| {
        let mut last: Option<(&Path, bool)> = None;
        part.iter().find(|(_, other)| {
            let folder = folder(other);
            let may_be = match last {
                Some((known, may_be)) if known == folder => may_be,
                _ => device.is_none() || device_of_folder(other) == device,
            };
            last = Some((folder, may_be));
            may_be && other.as_os_str() != "-" && is_one(path, other)
        })
    };
    let found = thread::scope(|scope| {
        let look = |part: &'a [Named<'a>]| {
            (part, thread::Builder::new().spawn_scoped(scope, move || find(part)).ok())
        };
        let others: Vec<_> = others.chunks(each).map(look).collect();
        let other = |(part, looks): (&'a [Named<'a>], Option<thread::ScopedJoinHandle<'_, _>>)| {
            match looks.map(thread::ScopedJoinHandle::join) {
                Some(Ok(found)) => found,
                _ => find(part), // No thread could be started.
            }
        };
        find(first).or_else(|| others.into_iter().find_map(other))
    });
    found.map(|&(name, _)| name)
}

fn device_of_folder(path: &Path) -> Option<u64> {
    // Standard output may be a file on any device.
    if path.as_os_str() == "-" {
        return None;
    }
    fs::metadata(folder(path)).ok().map(|metadata| metadata.dev())
}

/// Whether `path` is a character device, to which two outputs can be written without loss.
fn is_device(path: &Path) -> bool {
    path.as_os_str() != "-"
        && fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// Whether two paths lead to one file.
fn is_one(path: &Path, other: &Path) -> bool {
    match (found(path), found(other)) {
        (Some(one), Some(other)) => {
            let is_device = one.file_type().is_char_device();
            !is_device && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        (None, None) => placed(path).is_some_and(|place| placed(other) == Some(place)),
        _ => false,
    }
}

fn found(path: &Path) -> Option<Metadata> {
    let path = if path.as_os_str() == "-" { Path::new("/dev/stdout") } else { path };
    fs::metadata(path).ok()
}

/// The canonical name of a file that does not exist yet.
fn placed(path: &Path) -> Option<PathBuf> {
    let name = behind_links(path)?;
    Some(fs::canonicalize(folder(&name)).ok()?.join(name.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nothing_changes_until_it_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "as it was").expect("written");
        for path in [&old, &new] {
            drop(OutputFile::open(path).expect("it can be written"));
        }
        assert_eq!(fs::read_to_string(&old).expect("there"), "as it was");
        assert!(!new.exists());
        for path in [&old, &new] {
            let file = OutputFile::open(path).expect("it can be written");
            file.write(b"now").expect("written");
            assert_eq!(fs::read_to_string(path).expect("there"), "now");
        }
        assert!(OutputFile::open(folder.path()).is_err());
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_mode_and_a_link_its_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "a longer text than the next one").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).expect("changed");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        for path in [&file, &link] {
            OutputFile::open(path).and_then(|file| file.write(b"now")).expect("written");
            assert_eq!(fs::read_to_string(&file).expect("there"), "now");
            assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o604);
            fs::write(&file, "before").expect("written");
        }
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing is left");
    }

    #[test]
    fn a_link_to_nothing_stays_one_and_pipes_are_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::os::unix::fs::symlink("file", &link).expect("linked");
        let output = OutputFile::open(&link).expect("it can be written");
        assert!(!file.exists(), "nothing is made before it is complete");
        output.write(b"now").expect("written");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("there"), "now");
        OutputFile::open(Path::new("/dev/null"))
            .and_then(|null| null.write(b"x"))
            .expect("written");
        assert!(OutputFile::open(&folder.path().join("none/file")).is_err());
        let full = OutputFile::open(Path::new("/dev/full")).expect("it can be written");
        let error = full.write(b"x").expect_err("it is full");
        assert!(error.starts_with("/dev/full: No space left"), "{error}");
    }

    #[test]
    fn one_file_is_not_two() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("read"), "").expect("written");
        fs::hard_link(at("read"), at("other")).expect("linked");
        std::os::unix::fs::symlink("new", at("link")).expect("linked");
        let check = |read: &str, one: &str, two: &str| {
            let [read, one, two] = [read, one, two].map(at);
            check_apart(&[("read", &read)], &[("--a", &one), ("--b", &two)]).err()
        };
        assert_eq!(check("read", "a", "b"), None);
        assert_eq!(check("gone", "a", "b"), None);
        assert_eq!(check("read", "/dev/null", "/dev/null"), None);
        let many: Vec<PathBuf> = (0..1000).map(|name| at(&format!("none{name}"))).collect();
        let mut many: Vec<Named> =
            many.iter().map(|path| ("one of many", path.as_path())).collect();
        let (other, new) = (at("other"), at("new"));
        let check_many = |many: &[Named], path: &Path| check_apart(many, &[("--a", path)]).err();
        assert_eq!(check_many(&many, &other), None);
        let read = at("read");
        many[700] = ("another", &read);
        assert_eq!(check_many(&many, &new), None);
        let said_of_many = check_many(&many, &other);
        let said = |said: Option<String>, what: &str| {
            assert!(said.as_ref().is_some_and(|said| said.contains(what)), "{said:?}");
        };
        said(said_of_many, "other is another; give another file");
        said(check("read", "a", "other"), "other is read; give another file");
        said(check("read", "a", "./a"), "--b: --a is written to ");
        said(check("read", "new", "link"), "--b: --a is written to ");
        let outputs = [("--a", Path::new("-")), ("--b", Path::new("-"))];
        said(check_apart(&[], &outputs).err(), "--b: --a is written to -");
    }
}
