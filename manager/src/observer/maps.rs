//! The mappings of files in the text of `/proc/PID/maps`.
//!
//! ```text
//! 7f2c4e600000-7f2c4e622000 r--p 00026000 fe:00 1835023   /usr/lib/libc.so.6
//! ```
//!
//! A mapping that continues the one before it, in memory and in the same file, is joined to it: the loader maps a library in
//! four pieces with different rights. Mappings without a file, of removed files, and without the right to read are left out.
//!
//! The kernel writes a line feed in a path as `\012` and leaves a backslash alone, so a path with these four characters is read
//! wrongly. The caller compares the file's inode before it believes a path.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The mark that the kernel adds to the name of a removed file.
const REMOVED: &[u8] = b" (deleted)";

/// A range of a process's memory that is mapped to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: u64,
    /// One past the last address.
    pub(crate) end: u64,
    /// Where in the file the mapping begins.
    pub(crate) offset_bytes: u64,
    /// The file's device, as the kernel writes it here. `stat` may give another number (btrfs, overlayfs).
    pub(crate) device: (u32, u32),
    /// The file's inode.
    pub(crate) inode: u64,
    /// Whether a part of it may be executed: a program or a library.
    pub(crate) is_code: bool,
    /// The file's path, from the root of the process.
    pub(crate) path: PathBuf,
}

impl Mapping {
    fn continues(&self, before: &Mapping) -> bool {
        self.start == before.end
            && self.is_of_the_same_file_as(before)
            && before.offset_bytes.checked_add(before.end - before.start) == Some(self.offset_bytes)
    }

    /// The part of the file that is mapped at `addresses`; `None` if none of it is. The file may end before.
    pub(crate) fn part_at(&self, addresses: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = (addresses.start.max(self.start), addresses.end.min(self.end));
        (start < end).then(|| {
            let offset = |address: u64| self.offset_bytes.saturating_add(address - self.start);
            offset(start)..offset(end)
        })
    }

    /// Whether both are of one file, by the same name.
    pub(crate) fn is_of_the_same_file_as(&self, other: &Mapping) -> bool {
        (self.device, self.inode) == (other.device, other.inode) && self.path == other.path
    }
}

/// The mappings in `text`, in the order of their addresses, `most` at most. Lines that cannot be read are left out.
pub(crate) fn mappings(text: &[u8], most: usize) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for mapping in text.split(|&byte| byte == b'\n').filter_map(of_line) {
        if let Some(last) = found.last_mut().filter(|last| mapping.continues(last)) {
            last.end = mapping.end;
            last.is_code |= mapping.is_code;
        } else if found.len() < most {
            found.push(mapping);
        } else {
            break;
        }
    }
    found
}

fn of_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = word(line)?;
    let (rights, rest) = word(rest)?;
    let (offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, path) = word(rest)?;
    let path = path.trim_ascii_start();
    let inode = text(inode)?.parse().ok().filter(|&inode: &u64| inode != 0)?;
    if !path.starts_with(b"/") || path.ends_with(REMOVED) || !rights.starts_with(b"r") {
        return None;
    }
    let (start, end) = text(range)?.split_once('-')?;
    let (major, minor) = text(device)?.split_once(':')?;
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    (start < end).then_some(())?;
    Some(Mapping {
        start,
        end,
        offset_bytes: hexadecimal(text(offset)?)?,
        device: (number(major)?, number(minor)?),
        inode,
        is_code: rights.get(2) == Some(&b'x'),
        path: PathBuf::from(OsString::from_vec(unescaped(path))),
    })
}

/// The first word of `line`, and what follows it.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|&byte| byte == b' ')?;
    Some((&line[..end], &line[end + 1..]))
}

fn text(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

fn hexadecimal(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

fn unescaped(path: &[u8]) -> Vec<u8> {
    const LINE_FEED: &[u8] = b"\\012";
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(&first) = rest.first() {
        match rest.strip_prefix(LINE_FEED) {
            Some(behind) => {
                bytes.push(b'\n');
                rest = behind;
            }
            None => {
                bytes.push(first);
                rest = &rest[1..];
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 77 /usr/bin/x y
7f0000000000-7f0000026000 r--p 00000000 fe:00 12                         /usr/lib/libc.so.6
7f0000026000-7f000017c000 r-xp 00026000 fe:00 12                         /usr/lib/libc.so.6
7f000017c000-7f0000180000 r--p 0017c000 fe:00 12                         /usr/lib/libc.so.6
7f0000180000-7f0000182000 rw-p 0017f000 fe:00 12                         /usr/lib/libc.so.6
7f0000182000-7f0000190000 rw-p 00000000 00:00 0
7f0000190000-7f0000191000 rw-s 00000000 00:01 5 /SYSV00000000 (deleted)
7f0000191000-7f0000192000 rw-s 00002000 00:2a 18446744073709551615 /mnt/a\\012b
7f0000192000-7f0000193000 ---p 00003000 00:2a 3 /mnt/c
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
7ffd00021000-7ffd00023000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn addresses_name_a_part_of_the_file() {
        let mapping = mappings(b"10000-20000 r--s 00003000 fe:00 7 /x\n", 1).remove(0);
        let part = |addresses: Range<u64>| mapping.part_at(&addresses);
        assert_eq!(part(0x11000..0x12000), Some(0x4000..0x5000));
        assert_eq!(part(0..u64::MAX), Some(0x3000..0x13000));
        assert_eq!(part(0x1_f000..0x30000), Some(0x12000..0x13000));
        for outside in [0..0x10000, 0x20000..u64::MAX, 0x11000..0x11000] {
            assert_eq!(part(outside.clone()), None, "{outside:?}");
        }
        let odd = Mapping { offset_bytes: u64::MAX - 1, ..mapping.clone() };
        assert_eq!(odd.part_at(&(0..u64::MAX)), Some(u64::MAX - 1..u64::MAX));
    }

    #[test]
    fn files_are_found_and_pieces_that_continue_each_other_are_joined() {
        let found = mappings(LIBRARY.as_bytes(), 100);
        let told: Vec<_> = found
            .iter()
            .map(|of| (of.start, of.end - of.start, of.offset_bytes, of.inode, of.path.to_str()))
            .collect();
        let libc = Some("/usr/lib/libc.so.6");
        let expected = [
            (0x55d0_c000_0000, 0x1000, 0, 77, Some("/usr/bin/x y")),
            (0x7f00_0000_0000, 0x18_0000, 0, 12, libc),
            // Its offset does not continue the piece before.
            (0x7f00_0018_0000, 0x2000, 0x17_f000, 12, libc),
            (0x7f00_0019_1000, 0x1000, 0x2000, u64::MAX, Some("/mnt/a\nb")),
        ];
        assert_eq!(told, expected);
        assert_eq!(found[1].device, (0xfe, 0));
        assert_eq!(
            found.iter().map(|of| of.is_code).collect::<Vec<_>>(),
            [false, true, false, false]
        );
        assert_eq!(mappings(LIBRARY.as_bytes(), 2), found[..2]);
    }

    #[test]
    fn lines_that_are_none_are_left_out() {
        for line in [
            "",
            "\n\n",
            " ",
            "x",
            "1-2 r--p 0 0:0 1",
            "2-1 r--p 0 0:0 1 /a",
            "1-1 r--p 0 0:0 1 /a",
            "g-h r--p 0 0:0 1 /a",
            "1-2 r--p 0 00 1 /a",
            "1-2 r--p 0 0:0 -1 /a",
            "1-2 r--p 11111111111111111 0:0 1 /a",
            "1-2 \u{ff} 0 0:0 1 /a",
        ] {
            assert_eq!(mappings(line.as_bytes(), 10), [], "{line:?}");
        }
        assert_eq!(mappings(b"1-2 r--p 0 0:0 1 /a", 10).len(), 1);
        // Pieces at the end of what numbers can say.
        let last = "1-2 r--p ffffffffffffffff 0:0 1 /a\n2-3 r--p 0 0:0 1 /a";
        assert_eq!(mappings(last.as_bytes(), 10).len(), 2);
    }

    #[test]
    fn the_own_executable_is_among_the_own_mappings() {
        let Ok(text) = std::fs::read("/proc/self/maps") else { return };
        let own = std::env::current_exe().expect("it has a path");
        assert!(mappings(&text, 10_000).iter().any(|mapping| mapping.path == own));
    }
}
