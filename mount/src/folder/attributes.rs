//! What is said of a file beside its bytes: the folder's words in the kernel's, and the other way round; extended attributes.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec, XattrFlags};
use rustix::io::{Errno, Result};

use super::nodes::path_of;
use super::tree::Tree;
use crate::service::{ATTRIBUTE_MAX_BYTES, ATTRIBUTE_PREFIX, BLOCK_BYTES};

/// The extended attributes that are those of the folder's files: security and access lists are of other mounts.
const ATTRIBUTES: &[u8] = b"user.";

/// What of a node is to be changed.
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

pub(super) fn timespec(time: Option<TimeOrNow>) -> Timespec {
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
                // As the library has put it together, which takes the kernel's nanoseconds away where they are to be added.
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                Timespec { tv_sec: -whole, tv_nsec: i64::from(before.subsec_nanos()) }
            }
        },
    }
}

/// The kind of what has a mode.
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

impl Tree {
    /// What has extended attributes by a name, which is to be one that programs may give to files.
    fn with_attribute(&self, number: u64, name: &OsStr) -> Result<Arc<OwnedFd>> {
        let bytes = name.as_bytes();
        if !bytes.starts_with(ATTRIBUTES) || bytes.starts_with(ATTRIBUTE_PREFIX.as_bytes()) {
            return Err(Errno::OPNOTSUPP);
        }
        let node = self.nodes.get(number)?;
        if node.is_link() {
            return Err(Errno::OPNOTSUPP);
        }
        self.nodes.descriptor(&node)
    }

    pub(crate) fn attribute(&self, number: u64, name: &OsStr) -> Result<Vec<u8>> {
        let descriptor = self.with_attribute(number, name)?;
        let mut value = vec![0; ATTRIBUTE_MAX_BYTES];
        let length = rustix::fs::getxattr(path_of(&descriptor), name, &mut value[..])?;
        value.truncate(length);
        Ok(value)
    }

    pub(crate) fn set_attribute(
        &self,
        number: u64,
        (name, value): (&OsStr, &[u8]),
        flags: i32,
    ) -> Result<()> {
        let descriptor = self.with_attribute(number, name)?;
        let flags = XattrFlags::from_bits_retain(flags as u32);
        rustix::fs::setxattr(path_of(&descriptor), name, value, flags)
    }

    pub(crate) fn remove_attribute(&self, number: u64, name: &OsStr) -> Result<()> {
        let descriptor = self.with_attribute(number, name)?;
        rustix::fs::removexattr(path_of(&descriptor), name)
    }

    pub(crate) fn list_attributes(&self, number: u64) -> Result<Vec<u8>> {
        let node = self.nodes.get(number)?;
        if node.is_link() {
            return Ok(Vec::new());
        }
        let mut names = vec![0; ATTRIBUTE_MAX_BYTES];
        let descriptor = self.nodes.descriptor(&node)?;
        let length = match rustix::fs::listxattr(path_of(&descriptor), &mut names[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            length => length?,
        };
        let of_programs = names[..length]
            .split_inclusive(|&byte| byte == 0)
            .filter(|name| name.starts_with(ATTRIBUTES));
        Ok(of_programs.flatten().copied().collect())
    }
}
