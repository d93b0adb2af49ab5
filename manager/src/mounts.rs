//! Which device serves a path, determined without touching the path.
//!
//! `stat` on the path would wait for the device, while the device is to be kept busy. So the mount table, which is in memory,
//! tells the device: it is the one mounted at the longest mount point that is a prefix of the path. Symbolic links are not
//! followed, so a path through one may be assigned to the wrong device's threads. Its lookups and
//! fetches then count among the depth and costs of that device.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use foretell_policy::DeviceId;

/// A copy of the mount table.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// Mount point (without a slash at its end) and device, later mounts after earlier ones.
    mounts: Vec<(Vec<u8>, DeviceId)>,
}

impl Mounts {
    /// Reads this process's table. If it cannot be read, all paths belong to one device.
    pub(crate) fn read() -> Self {
        Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    /// `mountinfo` as in proc(5): the third field is major:minor, the fifth the mount point.
    fn parse(table: &[u8]) -> Self {
        let mounts = table
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                let mut fields = line.split(|&byte| byte == b' ').skip(2);
                let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
                let (major, minor) = (major.parse::<u64>().ok()?, minor.parse::<u64>().ok()?);
                let mut point = unescape(fields.nth(1)?);
                if point == b"/" {
                    point.clear();
                }
                Some((point, DeviceId(major << 32 | minor)))
            })
            .collect();
        Mounts { mounts }
    }

    /// The device that serves `path`, which is absolute. It compares bytes rather than components, since it runs for every
    /// hint. A path with a doubled slash may be assigned to the wrong device, like one with a symbolic link.
    pub(crate) fn device_of(&self, path: &Path) -> DeviceId {
        let path = path.as_os_str().as_bytes();
        let is_below = |point: &[u8]| {
            path.strip_prefix(point).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        self.mounts
            .iter()
            .filter(|(point, _)| is_below(point))
            .max_by_key(|(point, _)| point.len())
            .map_or(DeviceId(0), |&(_, device)| device)
    }
}

/// Undoes the octal escapes of `mountinfo` (space, tab, newline and backslash).
pub(crate) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let code = rest.get(1..4).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                bytes.push(value);
                rest = &rest[4..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_wins_and_the_latest_of_equals() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 0:40 / /data rw - nfs server:/x rw\n\
            3 1 0:41 / /data/with\\040space rw - fuse.x y rw\n\
            4 1 0:42 / /data rw - tmpfs z rw\nnonsense\n";
        let mounts = Mounts::parse(table);
        let device = |path: &str| mounts.device_of(Path::new(path)).0;
        assert_eq!(device("/etc/passwd"), 8 << 32 | 1);
        assert_eq!(device("/data/file"), 42);
        assert_eq!(device("/database/file"), 8 << 32 | 1);
        assert_eq!(device("/data/with space/file"), 41);
        assert_eq!(Mounts::default().device_of(Path::new("/x")), DeviceId(0));
    }
}
