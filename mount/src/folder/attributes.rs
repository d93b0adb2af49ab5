//! Translates attributes of files between the folder and the kernel.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec};

use crate::inodes::BLOCK_BYTES;

/// The attributes of a node to be changed.
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<TimeOrNow>,
    pub(crate) modified: Option<TimeOrNow>,
}

fn time_of(seconds: i64, nanoseconds: u64) -> SystemTime {
    let nanoseconds = Duration::from_nanos(nanoseconds);
    match u64::try_from(seconds) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + nanoseconds,
        Err(_) => {
            SystemTime::UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + nanoseconds
        }
    }
}

/// A time as `utimensat` takes it; `None` leaves the file's time as it is.
pub fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let fixed = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => fixed(libc::UTIME_OMIT),
        Some(TimeOrNow::Now) => fixed(libc::UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timespec {
                tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(since.subsec_nanos()),
            },
            Err(before) => {
                let before = before.duration();
                // `fuser` has subtracted the kernel's nanoseconds, which should be added; this undoes that.
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                Timespec { tv_sec: -whole, tv_nsec: i64::from(before.subsec_nanos()) }
            }
        },
    }
}

/// The kind of file that a mode tells.
pub(super) fn kind_of(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

pub(super) fn attributes_of(number: u64, stat: &Stat) -> FileAttr {
    let changed = time_of(stat.st_ctime, stat.st_ctime_nsec);
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time_of(stat.st_atime, stat.st_atime_nsec),
        mtime: time_of(stat.st_mtime, stat.st_mtime_nsec),
        ctime: changed,
        crtime: changed,
        kind: kind_of(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: u32::try_from(stat.st_blksize).unwrap_or(BLOCK_BYTES),
        flags: 0,
    }
}
