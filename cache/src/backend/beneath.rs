//! Resolves names strictly below a folder.
//!
//! A user with write access to a folder can create a link in it to any file. A server that follows the link would serve
//! that file with its own rights. Here names never lead out of one folder, whatever is renamed or linked at the same
//! time:
//!
//! * **A. In one system call** where possible: `openat2` resolves below the folder, and stops at other file systems.
//! * **B. Name by name** at a mount of another file system, or where there is no `openat2`. Other file systems are entered,
//!   except mounts of foretell (C).
//! * **C. Mounts of foretell are not entered.** A daemon that looks into its own mount, directly or through another
//!   daemon, waits for itself, and no signal ends that. The mount table shows which mounts these are, without asking
//!   them.
//!
//! If the folder is renamed or removed, names are still resolved below it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::{Errno, Result};

/// Links that are followed for one name, at most: the kernel's own limit.
const LINKS_MAX: usize = 40;

/// `AT_STATX_DONT_SYNC` of `linux/fcntl.h`: the kernel answers from its cache, without asking the file system.
const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);

/// The error for names on a mount of foretell (C).
pub const REFUSED: Errno = Errno::DEADLK;

/// How links are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Links are not followed: they give `ELOOP`. A link as the last name can be opened with `O_PATH` and `O_NOFOLLOW`.
    Shown,
    /// Links that stay below the folder are followed. Others, and all that begin with a slash, give `EXDEV`.
    Followed,
}

/// A folder below which names are resolved; see the [module](self).
#[derive(Debug)]
pub struct Beneath {
    root: OwnedFd,
}

impl Beneath {
    /// The folder at `path`, which may be a link itself.
    ///
    /// # Errors
    /// The system's error, for example if it is not a folder.
    pub fn new(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Beneath { root: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// The folder itself (`O_PATH`).
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens `path` below the folder; an empty path is the folder itself. The descriptor is closed on exec. Nothing is created.
    ///
    /// # Errors
    /// `EXDEV` for a path that leads outside, [`REFUSED`] for mounts of foretell, `ELOOP` as in [`Links`], and any
    /// other error of the system.
    pub fn open(&self, path: &Path, flags: OFlags, links: Links) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let inside = match links {
            Links::Shown => ResolveFlags::NO_SYMLINKS,
            Links::Followed => ResolveFlags::NO_MAGICLINKS,
        };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | inside;
        let place = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match rustix::fs::openat2(&self.root, place, flags, Mode::empty(), how) {
            // In this order: another file system or a path that leads outside; a kernel or sandbox without the call; a folder
            // that was renamed meanwhile.
            Err(Errno::XDEV | Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {
                self.walk(path, flags, links)
            }
            opened => opened,
        }
    }

    /// B. Name by name.
    fn walk(&self, path: &Path, flags: OFlags, links: Links) -> Result<OwnedFd> {
        let mut folders: Vec<OwnedFd> = Vec::new();
        let mut rest = VecDeque::new();
        put_first(&mut rest, path)?;
        let mut followed = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                folders.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            let folder = folders.last().unwrap_or(&self.root);
            let (found, stat) = open_entry(folder, &name)?;
            let is_last = rest.is_empty();
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink if is_last && flags.contains(OFlags::PATH | OFlags::NOFOLLOW) => {
                    return Ok(found);
                }
                FileType::Symlink if links == Links::Followed && followed < LINKS_MAX => {
                    followed += 1;
                    let target = rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes();
                    put_first(&mut rest, Path::new(OsStr::from_bytes(&target)))?;
                }
                FileType::Symlink => return Err(Errno::LOOP),
                FileType::Directory => folders.push(found),
                _ if !is_last || flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
                _ if flags.contains(OFlags::PATH) => return Ok(found),
                _ => {
                    let flags = flags | OFlags::NOFOLLOW;
                    return rustix::fs::openat(folder, &name, flags, Mode::empty());
                }
            }
        }
        rustix::fs::openat(folders.last().unwrap_or(&self.root), ".", flags, Mode::empty())
    }
}

/// Puts the names of a path before `rest`.
fn put_first(rest: &mut VecDeque<OsString>, path: &Path) -> Result<()> {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => rest.push_front(name.to_owned()),
            Component::ParentDir => rest.push_front("..".into()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    Ok(())
}

/// Opens an entry of a folder (`O_PATH`) without following a link. Returns the descriptor and the entry's attributes.
///
/// # Errors
/// [`REFUSED`] for a mount of foretell, and any error of the system.
pub fn open_entry(folder: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let device = device(&found, "")?;
    if device != self::device(folder, "")? && is_foretells(device) {
        return Err(REFUSED);
    }
    let stat = rustix::fs::fstat(&found)?;
    Ok((found, stat))
}

/// The attributes of an entry of an open folder, without following a link.
///
/// # Errors
/// As [`open_entry`].
pub fn stat_entry(folder: &OwnedFd, name: &OsStr) -> Result<Stat> {
    let (found, own) = (device(folder, name)?, device(folder, "")?);
    if found != own && is_foretells(found) {
        return Err(REFUSED);
    }
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The device number at a name in a folder, or of the folder for an empty name. The file system is not asked.
fn device(folder: impl AsFd, name: impl AsRef<OsStr>) -> Result<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | DONT_SYNC;
    let found = rustix::fs::statx(folder, name.as_ref(), flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Whether a device is a mount of foretell, by the mount table (proc_pid_mountinfo(5)).
fn is_foretells((major, minor): (u32, u32)) -> bool {
    // Only devices without a disk have major number 0; FUSE is one of them.
    if major != 0 {
        return false;
    }
    // Without a table no mount can be recognised.
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    is_foretells_by(&table, &format!("{major}:{minor}"))
}

fn is_foretells_by(table: &[u8], device: &str) -> bool {
    table.split(|byte| *byte == b'\n').any(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        if fields.nth(2) != Some(device.as_bytes()) {
            return false;
        }
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let kind = fields.next().unwrap_or_default();
        let source = fields.next().unwrap_or_default();
        // Only mounts of the crate `foretell-mount` have a source that begins with this.
        kind.starts_with(b"fuse") && source.starts_with(b"foretell")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const READ: OFlags = OFlags::RDONLY;

    /// A folder `in` with links of all kinds, beside `secret`.
    fn folders() -> (tempfile::TempDir, Beneath) {
        let top = tempfile::tempdir().expect("a folder");
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("in/a/b")).expect("made");
        fs::write(at("in/a/b/file"), "inside").expect("written");
        fs::write(at("secret"), "outside").expect("written");
        for (target, link) in [
            ("a/b/file", "near"),
            ("b", "a/down"),
            ("../near", "a/up"),
            ("../secret", "out"),
            ("..", "above"),
            ("loop", "loop"),
            ("a/b/../../../secret", "around"),
            ("/proc/self/root", "magic"),
        ] {
            symlink(target, at("in").join(link)).expect("linked");
        }
        symlink(at("in/a"), at("in/whole")).expect("linked");
        symlink(at("secret"), at("in/absolute")).expect("linked");
        let beneath = Beneath::new(&at("in")).expect("it is there");
        (top, beneath)
    }

    fn text(opened: OwnedFd) -> String {
        std::io::read_to_string(fs::File::from(opened)).expect("text")
    }

    /// Opens the path in one call and name by name, and checks that the results are the same.
    fn both(beneath: &Beneath, path: &str, flags: OFlags, links: Links) -> Result<OwnedFd> {
        let walked = beneath.walk(Path::new(path), flags | OFlags::CLOEXEC, links);
        let opened = beneath.open(Path::new(path), flags, links);
        assert_eq!(opened.as_ref().err(), walked.as_ref().err(), "{path}");
        opened
    }

    #[test]
    fn nothing_leads_outside() {
        let (_top, beneath) = folders();
        for path in ["a/b/file", "near", "a/down/file", "a/up"] {
            assert_eq!(text(both(&beneath, path, READ, Links::Followed).expect(path)), "inside");
        }
        for path in ["out", "above/secret", "around", "absolute", "whole/b/file", "magic", ".."] {
            let error = both(&beneath, path, READ, Links::Followed).expect_err(path);
            assert_eq!(error, Errno::XDEV, "{path}");
        }
        assert_eq!(both(&beneath, "loop", READ, Links::Followed).err(), Some(Errno::LOOP));
        let folder = READ | OFlags::DIRECTORY;
        both(&beneath, "", folder, Links::Shown).expect("the folder itself");
        both(&beneath, "a", folder, Links::Shown).expect("a folder");
        let error = both(&beneath, "a/b/file", folder, Links::Shown).expect_err("a file");
        assert_eq!(error, Errno::NOTDIR);
        let error = both(&beneath, "a/b/file/c", READ, Links::Followed).expect_err("below a file");
        assert_eq!(error, Errno::NOTDIR);
        let error = both(&beneath, "a/absent", READ, Links::Followed).expect_err("nothing");
        assert_eq!(error, Errno::NOENT);
    }

    #[test]
    fn links_are_themselves_where_they_are_shown() {
        let (_top, beneath) = folders();
        assert_eq!(text(both(&beneath, "a/b/file", READ, Links::Shown).expect("a file")), "inside");
        for path in ["near", "out", "a/down/file", "above/secret", "whole/b/file"] {
            let error = both(&beneath, path, READ, Links::Shown).expect_err(path);
            assert_eq!(error, Errno::LOOP, "{path}");
        }
        let itself = OFlags::PATH | OFlags::NOFOLLOW;
        let link = both(&beneath, "out", itself, Links::Shown).expect("a link");
        let target = rustix::fs::readlinkat(&link, "", Vec::new()).expect("it leads somewhere");
        assert_eq!(target.to_bytes(), b"../secret");
        let stat = stat_entry(beneath.root(), OsStr::new("out")).expect("it is there");
        assert_eq!(FileType::from_raw_mode(stat.st_mode), FileType::Symlink);
    }

    #[test]
    fn a_folder_that_is_renamed_stays_what_it_was() {
        let (top, beneath) = folders();
        fs::rename(top.path().join("in"), top.path().join("elsewhere")).expect("renamed");
        symlink("/etc", top.path().join("in")).expect("linked");
        assert_eq!(text(both(&beneath, "a/b/file", READ, Links::Shown).expect("a file")), "inside");
        assert!(both(&beneath, "passwd", READ, Links::Followed).is_err());
    }

    #[test]
    fn mounts_of_foretell_are_known_by_the_table() {
        let table = b"36 35 98:0 /a /b rw - ext4 /dev/root rw\n\
            40 35 0:50 / /m ro - fuse foretell:/data ro\n\
            41 35 0:51 / /n ro shared:3 master:1 - fuse.foretell-array foretell-array:/x ro\n\
            42 35 0:52 / /o rw - fuse.sshfs host:foretell rw\n\
            43 35 0:53 / /p rw - tmpfs foretell rw\n";
        let own: Vec<bool> =
            (49..55).map(|minor| is_foretells_by(table, &format!("0:{minor}"))).collect();
        assert_eq!(own, [false, true, true, false, false, false]);
    }
}
