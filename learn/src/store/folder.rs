//! The folder of the store, held open: what is checked of it is true of what is used.
//!
//! * It must belong to this user or to root, and nobody else may write into it. Otherwise another user could have paths looked
//!   up by this one.
//! * Links are not followed, and only regular files are read.
//! * A file is written beside the old one and put in its place.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, flock, fstat, futimens, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::StoreError;
use crate::codec::PROFILE_MAX_BYTES;

/// The file that is locked while a profile is changed.
const LOCK: &str = "lock";

/// Another process holds the lock for milliseconds. One that is stopped would hold it for ever.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The time of last use is that of the file. It is set anew if it is older.
const USED_GRAIN: Duration = Duration::from_secs(60);

const RULES: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Folder {
    descriptor: File,
    path: PathBuf,
}

/// What a file of the folder has.
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// It is no regular file.
    Other,
    Missing,
}

/// A lock that is held until this is dropped. `None` where the file system has no locks: what two runs learn at once is then
/// learned from one of them.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Option<File>,
}

impl Folder {
    /// Opens it; `None` if it is not there.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, StoreError> {
        let failed = |error: Errno| StoreError::Io(path.to_owned(), error.into());
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let descriptor = match openat(CWD, path, flags, Mode::empty()) {
            Ok(descriptor) => File::from(descriptor),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let about = fstat(&descriptor).map_err(failed)?;
        let owner = about.st_uid;
        if owner != geteuid().as_raw() && owner != 0 {
            return Err(StoreError::Foreign(path.to_owned()));
        }
        if Mode::from_raw_mode(about.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
            return Err(StoreError::Writable(path.to_owned()));
        }
        Ok(Some(Folder { descriptor, path: path.to_owned() }))
    }

    fn failed(&self, name: &str, error: Errno) -> StoreError {
        StoreError::Io(self.path.join(name), error.into())
    }

    /// Locks it for writing.
    pub(super) fn lock(&self) -> Result<Lock, StoreError> {
        let failed = |error| self.failed(LOCK, error);
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::CREATE | RULES;
        let file = File::from(openat(&self.descriptor, LOCK, flags, mode).map_err(failed)?);
        let began = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: Some(file) }),
                Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {
                    return Ok(Lock { _file: None });
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) if began.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(Errno::WOULDBLOCK) => return Err(StoreError::Busy(self.path.clone())),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Reads a file. If it was used, its time is set to now.
    pub(super) fn read(&self, name: &str, is_used: bool) -> Result<Content, StoreError> {
        let failed = |error| self.failed(name, error);
        let file = match openat(&self.descriptor, name, OFlags::RDONLY | RULES, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Content::Missing),
            // A link, or a socket.
            Err(Errno::LOOP | Errno::NXIO) => return Ok(Content::Other),
            Err(error) => return Err(failed(error)),
        };
        let about = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
            return Ok(Content::Other);
        }
        if is_used && modified(&about).elapsed().is_ok_and(|age| age > USED_GRAIN) {
            let _ = futimens(&file, &NOW); // In a folder of root, the time stays.
        }
        let mut bytes = Vec::new();
        let read = (&file).take(PROFILE_MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| StoreError::Io(self.path.join(name), error))?;
        Ok(Content::Bytes(bytes))
    }

    /// Puts a file with these bytes in the place of `name`. `beside` is the name that it has before. The lock is held.
    pub(super) fn replace(&self, name: &str, beside: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let _ = self.remove(beside); // Left over by a process that was killed.
        let replaced = self.write(beside, bytes).and_then(|()| {
            renameat(&self.descriptor, beside, &self.descriptor, name).map_err(io::Error::from)
        });
        replaced.map_err(|error| {
            let _ = self.remove(beside);
            StoreError::Io(self.path.join(name), error)
        })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | RULES;
        let mode = Mode::RUSR | Mode::WUSR;
        File::from(openat(&self.descriptor, name, flags, mode)?).write_all(bytes)
    }

    /// Gives a file another name. What has that name goes.
    pub(super) fn rename(&self, name: &str, to: &str) -> Result<(), StoreError> {
        let renamed = renameat(&self.descriptor, name, &self.descriptor, to);
        renamed.map_err(|error| self.failed(name, error))
    }

    /// Removes a file. Returns whether it was there.
    pub(super) fn remove(&self, name: &str) -> Result<bool, StoreError> {
        match unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// The names in it that are text.
    pub(super) fn names(&self) -> Result<Vec<String>, StoreError> {
        let failed = |error| self.failed("", error);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            names.extend(name.into_string());
        }
        Ok(names)
    }

    /// Bytes of a file (or link, or anything else) and its last use.
    pub(super) fn about(&self, name: &str) -> Option<(u64, SystemTime)> {
        let about = statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((u64::try_from(about.st_size).unwrap_or(0), modified(&about)))
    }

    /// The path of a file in it.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Makes the folder, and those above it.
pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(StoreError::Io(path.to_owned(), error))
        }
        _ => Ok(()),
    }
}

const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

fn modified(about: &Stat) -> SystemTime {
    let seconds = u64::try_from(about.st_mtime).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, u32::try_from(about.st_mtime_nsec).unwrap_or(0))
}
