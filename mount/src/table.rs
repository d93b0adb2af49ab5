//! The kernel's table of mounts: which mounts are foretell's, and how to unmount them.
//!
//! foretell's mounts are those whose source begins with the name of a [`Kind`]. The subtype would not do, because
//! mounts by root have none. A mount is identified by its device number, which no two live mounts share. Unmounting
//! checks it, so that a mount made by somebody else at the same place is left alone.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{MountError, one_line};
use crate::kind::Kind;

/// The table, as this process sees it.
const TABLE: &str = "/proc/self/mountinfo";

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The major and minor device number, as text.
    pub(crate) device: String,
    pub(crate) path: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: String,
    /// The user who mounted it, if the table tells, as it does for FUSE.
    pub(crate) user: Option<u32>,
}

impl Mount {
    pub(crate) fn is_of(&self, kind: &Kind) -> bool {
        let fuse = self.kind == "fuse" || self.kind.starts_with("fuse.");
        let rest = self.source.strip_prefix(kind.name);
        fuse && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }
}

/// The source of a mount in the table: the kind and `what`. The kind alone if `what` would end the mount option.
pub(crate) fn source_of(kind: &Kind, what: &str) -> String {
    match what.contains([',', '\\']) {
        false => format!("{}:{what}", kind.name),
        true => kind.name.to_owned(),
    }
}

/// The topmost mount at exactly `path`.
pub(crate) fn mount_at(path: &Path) -> Option<Mount> {
    let table = std::fs::read(TABLE).ok()?;
    table.split(|byte| *byte == b'\n').filter_map(parse).rfind(|mount| mount.path == path)
}

/// Parses a line of the table, as proc_pid_mountinfo(5) describes it.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |index: usize| fields.get(index).map(|field| unescape(field));
    let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some(Mount {
        device: lossy(text(2)?),
        path: std::ffi::OsString::from_vec(text(4)?).into(),
        kind: lossy(text(dash + 1)?),
        source: lossy(text(dash + 2)?),
        user: text(dash + 3).map(lossy).and_then(|options| {
            options.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
        }),
    })
}

/// Turns escapes such as `\040` back into the bytes that they stand for.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.get(..3)).flatten();
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

/// What unmounting does if the mount is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Unmounting fails.
    Refuse,
    /// Unmounting detaches the mount, which goes when it is no longer in use.
    Detach,
}

/// Unmounts the topmost mount at `path`.
pub(crate) fn unmount(path: &Path, force: Force) -> Result<(), MountError> {
    let failed = |message: String| MountError::Unmount { path: path.into(), message };
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| failed("the path contains a zero byte".into()))?;
    let flags = libc::UMOUNT_NOFOLLOW | if force == Force::Detach { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is a C string, which the call only reads.
    if unsafe { libc::umount2(name.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY) => Err(MountError::Busy { path: path.into() }),
        Some(libc::EPERM) => unmount_by_helper(path, force),
        _ => Err(failed(error.to_string())),
    }
}

/// The program that mounts and unmounts FUSE file systems for users other than root.
pub(crate) fn helper() -> Option<&'static str> {
    let answers = |name: &&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // If it exists but cannot be started now, its error shows when it is needed.
        !command.status().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    ["fusermount3", "fusermount"].iter().find(|name| answers(name)).copied()
}

fn unmount_by_helper(path: &Path, force: Force) -> Result<(), MountError> {
    let helper = helper().ok_or(MountError::NoFusermount)?;
    let mut command = Command::new(helper);
    command.env("LC_ALL", "C").stdin(Stdio::null()).arg("-u");
    if force == Force::Detach {
        command.arg("-z");
    }
    let failed = |message: String| MountError::Unmount { path: path.into(), message };
    let output = command.arg("--").arg(path).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let message = one_line(&String::from_utf8_lossy(&output.stderr));
    if message.contains("busy") {
        Err(MountError::Busy { path: path.into() })
    } else {
        Err(failed(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_understood() {
        let line =
            br"41 28 0:37 / /tmp/a\040b\134c rw,nosuid shared:7 - fuse foretell-array:/data rw,user_id=1000,group_id=7";
        let mount = parse(line).expect("a mount");
        assert_eq!((mount.device.as_str(), mount.user), ("0:37", Some(1000)));
        assert_eq!(mount.path, Path::new("/tmp/a b\\c"));
        assert!(mount.is_of(&Kind::ARRAY));
        assert!(!mount.is_of(&Kind::STORE));
        let other =
            br"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let other = parse(other).expect("a mount");
        assert_eq!((other.is_of(&Kind::ARRAY), other.user), (false, None));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 3 -"), None);
    }

    #[test]
    fn a_source_never_contains_what_ends_an_option() {
        assert_eq!(source_of(&Kind::ARRAY, "/data"), "foretell-array:/data");
        assert_eq!(source_of(&Kind::ARRAY, "/da,ta"), "foretell-array");
    }
}
