//! What the table of mounts says of the mount on which a file is.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, StatxFlags};

use crate::mounts::unescape;

/// How the sources of foretell's mounts begin in the table (`mount/src/kind.rs`).
const FORETELL: &str = "foretell";

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Its type: `ext4`, `fuse`, `fuse.sshfs`.
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) point: PathBuf,
}

impl Mounted {
    /// The mount of `file`; `None` where the kernel does not say (before Linux 5.8).
    pub(crate) fn of(file: impl AsFd) -> Option<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(file, "", flags, StatxFlags::MNT_ID).ok()?;
        if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return None;
        }
        let number = format!("{} ", found.stx_mnt_id);
        let table = fs::read("/proc/self/mountinfo").ok()?;
        let mut lines = table.split(|&byte| byte == b'\n');
        Mounted::parse(lines.find(|line| line.starts_with(number.as_bytes()))?)
    }

    /// Parses a line of `mountinfo`, as proc(5) describes it.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let point = OsString::from_vec(unescape(fields.nth(4)?)).into();
        let mut rest = fields.skip_while(|&field| field != b"-").skip(1);
        let mut text = || Some(String::from_utf8_lossy(&unescape(rest.next()?)).into_owned());
        Some(Mounted { kind: text()?, source: text()?, point })
    }

    /// Whether `foretell mount` serves it.
    pub(crate) fn is_of_foretell(&self) -> bool {
        let is_fuse = self.kind == "fuse" || self.kind.starts_with("fuse.");
        let rest = self.source.strip_prefix(FORETELL);
        is_fuse && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_file_is_found() {
        let folder = fs::File::open("/proc/self").expect("opened");
        let found = Mounted::of(folder).expect("it is in the table");
        assert_eq!((found.kind.as_str(), found.point.to_str()), ("proc", Some("/proc")));
    }

    #[test]
    fn fields_are_unescaped_and_optional_ones_skipped() {
        let line = br"36 35 98:0 /r /mnt\040two rw,noatime master:1 shared:2 - fuse.x a\040b rw";
        let found = Mounted::parse(line).expect("a line");
        assert_eq!(found.point, PathBuf::from("/mnt two"));
        assert_eq!((found.kind.as_str(), found.source.as_str()), ("fuse.x", "a b"));
        assert!(!found.is_of_foretell() && Mounted::parse(b"36 35 98:0 /").is_none());
    }
}
