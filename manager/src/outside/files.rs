//! The files of `/proc/PID`: reading them by way of the process's open folder, and their formats.
//!
//! The kernel makes these files from its own memory, so reading them waits for no device. A number that is missing or odd gives
//! no answer.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use rustix::path::Arg;

/// Bytes of a file that are read at most. `maps` of a large program may be longer; the rest is then not seen.
const FILE_MAX_BYTES: usize = 1 << 20;

/// Bytes that are read at a time. A page: most files are shorter.
const STEP_BYTES: usize = 4096;

/// The part of a mapping's name that says that the interposing library works in the process.
const LIBRARY: &[u8] = b"/libforetell_preload.so";

/// The folder of a process. It stays that process's, whoever has its number later.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// `None` if there is no such process.
    pub(super) fn of(process: u64) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(format!("/proc/{process}"), flags, Mode::empty()).ok()?;
        Some(Folder(folder))
    }

    /// Opens one of its files or folders.
    pub(super) fn open(&self, name: impl Arg) -> Option<OwnedFd> {
        openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    /// Reads one of its files into `buffer`.
    pub(super) fn read<'a>(&self, name: impl Arg, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        read_whole(&self.open(name)?, buffer)
    }

    /// The device and inode of the program that it executes.
    pub(super) fn program(&self) -> Option<(u64, u64)> {
        identity(&self.0, "exe").map(|(_, device, inode)| (device, inode))
    }
}

/// Type, device and inode of a file, from memory.
pub(crate) fn identity(
    folder: &OwnedFd,
    name: impl Arg,
) -> Option<(rustix::fs::FileType, u64, u64)> {
    use rustix::fs::{AtFlags, FileType, StatxFlags, makedev, statx};
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let known =
        statx(folder, name, AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT, wanted).ok()?;
    let device = makedev(known.stx_dev_major, known.stx_dev_minor);
    Some((FileType::from_raw_mode(known.stx_mode.into()), device, known.stx_ino))
}

/// Reads a file of `/proc` from its beginning.
pub(super) fn read_whole<'a>(file: &OwnedFd, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let mut length = 0;
    loop {
        buffer.resize((length + STEP_BYTES).max(buffer.len()), 0);
        let read = rustix::io::pread(file, &mut buffer[length..length + STEP_BYTES], length as u64);
        match read.ok()? {
            0 => return Some(&buffer[..length]),
            read => length += read,
        }
        if length >= FILE_MAX_BYTES {
            return Some(&buffer[..length]);
        }
    }
}

/// Reads a file of `/proc` that is no longer than [`STEP_BYTES`], in one call.
pub(super) fn read_short<'a>(file: &OwnedFd, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    buffer.resize(STEP_BYTES.max(buffer.len()), 0);
    let read = rustix::io::pread(file, &mut buffer[..STEP_BYTES], 0).ok()?;
    Some(&buffer[..read])
}

/// A line `NAME:\tVALUE`.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(b":"))?;
    std::str::from_utf8(value).ok().map(str::trim)
}

/// `rchar` of `/proc/PID/io`: bytes that all reads of the process have returned.
pub(super) fn read_bytes(io: &[u8]) -> Option<u64> {
    field(io, b"rchar")?.parse().ok()
}

/// What `/proc/PID/fdinfo/N` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorInfo {
    pub(super) position: u64,
    pub(super) is_read: bool,
    /// Mount and inode, which tell files apart; unknown before Linux 5.14.
    pub(super) file: Option<(u64, u64)>,
}

pub(super) fn descriptor_info(text: &[u8]) -> Option<DescriptorInfo> {
    let position = field(text, b"pos")?.parse().ok()?;
    let flags = u32::from_str_radix(field(text, b"flags")?, 8).ok()?;
    let is_path = flags & libc::O_PATH as u32 != 0;
    let is_read = flags & libc::O_ACCMODE as u32 != libc::O_WRONLY as u32 && !is_path;
    let number = |name: &[u8]| field(text, name)?.parse().ok();
    let file = number(b"mnt_id").zip(number(b"ino"));
    Some(DescriptorInfo { position, is_read, file })
}

/// The time that the first thread has waited for a processor: the second number of `/proc/PID/schedstat`.
pub(super) fn delayed(schedule: &[u8]) -> Option<Duration> {
    let number = std::str::from_utf8(schedule).ok()?.split_ascii_whitespace().nth(1)?;
    number.parse().ok().map(Duration::from_nanos)
}

/// The processor's time that all threads of a process have used; zero if it has ended.
pub(super) fn processor_time(process: u64) -> Duration {
    let Ok(process) = libc::pid_t::try_from(process) else { return Duration::ZERO };
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write one value each, to places that outlive them.
    let is_read = unsafe {
        libc::clock_getcpuclockid(process, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos)) if is_read => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    }
}

/// The numbers in `task/TID/children`.
pub(super) fn children(text: &[u8]) -> impl Iterator<Item = u64> {
    let words = text.split(|byte| byte.is_ascii_whitespace());
    words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

/// The parent in `/proc/PID/stat`.
pub(super) fn parent(stat: &[u8]) -> Option<u64> {
    // The second field, the command's name in parentheses, may have any bytes.
    let behind_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[behind_name..]).ok()?.split_ascii_whitespace();
    fields.nth(1)?.parse().ok()
}

/// When the process began, in ticks since the machine's start: a field of `/proc/PID/stat`.
pub(super) fn started(stat: &[u8]) -> Option<u64> {
    let behind_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[behind_name..]).ok()?.split_ascii_whitespace();
    fields.nth(19)?.parse().ok()
}

/// Whether the interposing library is among the mappings in `/proc/PID/maps`.
pub(super) fn has_library(maps: &[u8]) -> bool {
    maps.windows(LIBRARY.len()).any(|window| window == LIBRARY)
}

/// The numbers that name the entries of a folder of `/proc`, at most `most`.
pub(super) fn numbers(folder: &OwnedFd, most: usize, to: &mut Vec<u32>) {
    use std::mem::MaybeUninit;
    to.clear();
    if rustix::fs::seek(folder, rustix::fs::SeekFrom::Start(0)).is_err() {
        return;
    }
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = rustix::fs::RawDir::new(folder, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_str().ok();
        let number: Option<u32> = name.and_then(|name| name.parse().ok());
        to.extend(number);
        if to.len() >= most {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom};
    use std::os::fd::AsRawFd;

    #[test]
    fn the_formats_of_proc() {
        let io = b"rchar: 323934931\nwchar: 323929600\nsyscr: 632687\n";
        assert_eq!(read_bytes(io), Some(323_934_931));
        assert_eq!(read_bytes(b"wchar: 1\n"), None);
        let info = b"pos:\t8192\nflags:\t02100000\nmnt_id:\t29\nino:\t77\n";
        let expected = DescriptorInfo { position: 8192, is_read: true, file: Some((29, 77)) };
        assert_eq!(descriptor_info(info), Some(expected));
        let written = descriptor_info(b"pos:\t0\nflags:\t0100001\nmnt_id:\t9\n").expect("whole");
        assert_eq!((written.is_read, written.file), (false, None));
        let path = descriptor_info(b"pos:\t0\nflags:\t012000000\n").expect("whole");
        assert!(!path.is_read, "O_PATH");
        assert_eq!(descriptor_info(b"pos:\t-1\nflags:\t0\n"), None);
        assert_eq!(delayed(b"194690 113920 2\n"), Some(Duration::from_nanos(113_920)));
        assert_eq!(delayed(b"194690"), None);
        assert_eq!(children(b"12 13 \n").collect::<Vec<_>>(), [12, 13]);
        assert_eq!(parent(b"7 (a) b) S 5 7 7 0"), Some(5));
        assert_eq!(parent(b"7 (a"), None);
        assert!(
            has_library(b"r-xp 0 /x/libforetell_preload.so\n") && !has_library(b"/x/libc.so\n")
        );
    }

    #[test]
    fn an_open_file_of_this_process_is_seen() {
        let mut file = tempfile::tempfile().expect("a file");
        file.set_len(100).expect("grown");
        let folder = Folder::of(std::process::id().into()).expect("it is there");
        let mut buffer = Vec::new();
        let before = read_bytes(folder.read("io", &mut buffer).expect("read")).expect("a number");
        file.read_exact(&mut [0; 60]).expect("read");
        let after = read_bytes(folder.read("io", &mut buffer).expect("read")).expect("a number");
        assert!(after >= before + 60);
        let name = format!("fdinfo/{}", file.as_raw_fd());
        let info = descriptor_info(folder.read(name, &mut buffer).expect("read")).expect("whole");
        assert_eq!((info.position, info.is_read), (60, true));
        file.seek(SeekFrom::Start(5)).expect("sought");
        let descriptors = folder.open("fd").expect("a folder");
        let mut open = Vec::new();
        numbers(&descriptors, 1000, &mut open);
        assert!(open.contains(&(file.as_raw_fd() as u32)), "{open:?}");
        numbers(&descriptors, 2, &mut open);
        assert_eq!(open.len(), 2);
        let known = identity(&descriptors, file.as_raw_fd().to_string()).expect("known");
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata().expect("known");
        assert_eq!((known.1, known.2), (metadata.dev(), metadata.ino()));
        assert!(known.0.is_file());
        assert_eq!(
            folder.program(),
            Folder::of(std::process::id().into()).expect("there").program()
        );
    }

    #[test]
    fn a_process_that_runs_uses_time() {
        let own = u64::from(std::process::id());
        let before = processor_time(own);
        while processor_time(own) < before + Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert_eq!(processor_time(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn a_folder_stays_that_of_a_process_that_has_ended() {
        let mut child = std::process::Command::new("true").spawn().expect("it runs");
        let folder = Folder::of(child.id().into()).expect("it is there");
        child.wait().expect("it ends");
        assert!(folder.read("stat", &mut Vec::new()).is_none());
        assert!(folder.program().is_none());
    }
}
