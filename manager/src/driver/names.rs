//! Names that are looked up, and folders that are listed, ahead of a program.
//!
//! Both bring into memory what the kernel keeps of names and attributes. The answers matter only as entries to look up next.
//!
//! Neither has an effect on what it meets: no symbolic link is followed at a path's end, no automount is triggered, and no pipe
//! or device is opened. A folder is listed only on the file system of the folder that lists it, unless the program has opened
//! it itself. File systems that are views of the kernel's own data are left out.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use foretell_protocol::STALL_THRESHOLD_NS;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxAttributes, StatxFlags, fstatfs, open, statx,
};
use rustix::io::Errno;

use crate::walks::listing::{Collector, Kind, Listing};

/// Entries of a folder that are listed. The rest of a larger folder is not predicted.
const ENTRIES_MAX: usize = 1 << 16;

/// Types (`f_type`) of file systems whose files are not stored anywhere: proc, sysfs, debugfs, tracefs, securityfs, cgroup and
/// cgroup2, configfs, bpf, devpts, autofs, mqueue, fusectl, efivarfs, pstore, binfmt_misc, rpc_pipefs.
const VIEWS: [u32; 17] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0x6265_6570,
    0xcafe_4a11,
    0x1cd1,
    0x0187,
    0x1980_0202,
    0x6573_5543,
    0xde5e_81e4,
    0x6165_676c,
    0x4249_4e4d,
    0x6759_6969,
];

/// Does `work`. Says whether it has waited for a device: it took long, and gave the processor up by itself.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let (began, switches) = (Instant::now(), voluntary_switches());
    let done = work();
    let took_long = began.elapsed().as_nanos() as u64 >= STALL_THRESHOLD_NS;
    (done, took_long && voluntary_switches() != switches)
}

/// How often this thread has given the processor up by itself.
fn voluntary_switches() -> libc::c_long {
    // SAFETY: all-zero is a valid `rusage`, a plain C structure, which the call fills in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Looks `path` up, which brings its attributes into memory.
pub(crate) fn look(path: &[u8]) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    // A name that is not there is remembered by the kernel as well.
    let _ = statx(CWD, path, flags, StatxFlags::BASIC_STATS);
}

/// Walks the path of a folder to its end, which brings its parts into memory.
pub(crate) fn enter(folder: &Path) {
    // Whether it is there does not matter here.
    let _ = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
}

/// Lists the folder `path`; with a `device`, only if it is on this one.
///
/// # Errors
/// * An error of a system call.
/// * `Unsupported` for a folder that is not to be listed.
pub(crate) fn list(path: &[u8], device: Option<u64>) -> io::Result<Listing> {
    // The program has opened a folder without a given device. It may have gone through a link, then.
    let nofollow = device.map_or(AtFlags::empty(), |_| AtFlags::SYMLINK_NOFOLLOW);
    let found = statx(CWD, path, AtFlags::NO_AUTOMOUNT | nofollow, StatxFlags::BASIC_STATS)?;
    let on = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let is_folder = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
    if !is_folder
        || found.stx_attributes.contains(StatxAttributes::AUTOMOUNT)
        || device.is_some_and(|device| device != on)
    {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let folder = open_folder(path, device.is_some())?;
    if VIEWS.contains(&(fstatfs(&folder)?.f_type as u32)) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut entries = Collector::default();
    let mut folder = Dir::new(folder)?;
    while let Some(entry) = folder.read() {
        let entry = entry?;
        let kind = match entry.file_type() {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Unknown => Kind::Unknown,
            _ => Kind::Other,
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.add(name, kind, entry.ino());
        }
        if entries.len() >= ENTRIES_MAX {
            break;
        }
    }
    Ok(entries.finish(on))
}

/// Opens a folder, and leaves its access time alone where that is allowed.
fn open_folder(path: &[u8], is_guess: bool) -> rustix::io::Result<OwnedFd> {
    let path = Path::new(OsStr::from_bytes(path));
    let nofollow = if is_guess { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC | nofollow;
    match open(path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM | Errno::INVAL) => open(path, flags, Mode::empty()),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn only_what_gives_up_the_processor_has_waited() {
        let sleep = || std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(timed(sleep).1);
        let spin = || {
            let began = Instant::now();
            while began.elapsed().as_nanos() < 2 * u128::from(STALL_THRESHOLD_NS) {}
        };
        assert!(!timed(spin).1);
    }

    #[test]
    fn a_folder_is_listed_and_a_link_to_it_only_if_the_program_has_opened_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, link) = (folder.path().join("inner"), folder.path().join("link"));
        std::fs::create_dir(&inner).expect("made");
        std::fs::write(inner.join("file"), "").expect("written");
        std::fs::create_dir(inner.join("sub")).expect("made");
        symlink(&inner, &link).expect("linked");
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let device = inner.metadata().expect("it is there").dev();
        let listing = list(&bytes(&inner), Some(device)).expect("listed");
        let kind = |name: &[u8]| listing.find(name).map(|entry| listing.kind(entry));
        assert_eq!((kind(b"file"), kind(b"sub")), (Some(Kind::File), Some(Kind::Folder)));
        assert_eq!((listing.len(), listing.device()), (2, device));
        assert!(list(&bytes(&link), None).is_ok());
        assert!(list(&bytes(&link), Some(device)).is_err());
        assert!(list(&bytes(&inner), Some(device + 1)).is_err(), "another file system");
        assert!(list(&bytes(&inner.join("file")), None).is_err());
        assert!(list(b"/proc/self", None).is_err());
        look(b"/no/such/name");
    }
}
