//! Random operations on a folder through its mount, compared with the same operations on a plain folder.
//!
//! A run prints its seed. `FORETELL_TEST_SEED` repeats it; `FORETELL_TEST_OPERATIONS` sets the number of operations.

mod common;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Random, Writable, content, writable};

const OPERATIONS: u64 = 12_000;
const OPEN_MAX: usize = 12;
/// The trees are compared as a whole once in so many operations.
const WALKED_EVERY: u64 = 2000;

/// The same file, open in the mount and in the plain folder.
struct Pair {
    mounted: File,
    plain: File,
    /// The plain one's inode.
    number: u64,
    can_read: bool,
    can_write: bool,
    /// It was changed behind the mount, and not opened since.
    is_loose: bool,
}

struct World {
    mount: Writable,
    plain: tempfile::TempDir,
    random: Random,
    open: Vec<Pair>,
    operation: u64,
    compared_reads: u64,
}

fn number(variable: &str, otherwise: impl FnOnce() -> u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => otherwise(),
    }
}

/// The attributes that must be the same in both places.
fn facts(metadata: &fs::Metadata) -> (u32, u64, u64) {
    // The size of a folder depends on its file system.
    let size = if metadata.is_dir() { 0 } else { metadata.len() };
    (metadata.mode(), size, metadata.nlink())
}

fn mapped(file: &File, length: usize, act: impl FnOnce(&mut [u8]), writes: bool) {
    let protection = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
    let (none, descriptor) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: a new mapping, at an address that the kernel chooses. It is unmapped when nothing borrows it. `act`
    // writes within it only, and nobody makes the file shorter meanwhile.
    unsafe {
        let start = libc::mmap(none, length, protection, libc::MAP_SHARED, descriptor, 0);
        assert_ne!(start, libc::MAP_FAILED);
        act(std::slice::from_raw_parts_mut(start.cast(), length));
        // Unmapping written pages waits for the mount with this process's memory locked, and this process serves the
        // mount.
        assert_eq!(libc::msync(start, length, libc::MS_SYNC), 0);
        libc::munmap(start, length);
    }
}

impl World {
    fn name(&mut self) -> PathBuf {
        let folder = ["", "d", "d/e"][self.random.below(3) as usize];
        Path::new(folder).join(["x", "y", "z", "d", "e"][self.random.below(5) as usize])
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [1, 100, 5000, 30_000][self.random.below(4) as usize];
        let length = 1 + self.random.below(length) as usize;
        content(self.operation, length)
    }

    /// Does the same in both places; the results must be the same.
    fn both<T: PartialEq + std::fmt::Debug>(
        &self,
        name: &Path,
        act: impl Fn(&Path) -> io::Result<T>,
    ) -> Option<T> {
        let errno = |error: io::Error| error.raw_os_error();
        let here = act(&self.mount.path().join(name)).map_err(errno);
        let there = act(&self.plain.path().join(name)).map_err(errno);
        assert_eq!(here, there, "{} at {}", name.display(), self.operation);
        here.ok()
    }

    /// Does the same in both places, behind the mount.
    fn behind(&mut self, name: &Path, act: impl Fn(&Path) -> io::Result<()>) {
        let number = fs::metadata(self.plain.path().join(name)).map(|metadata| metadata.ino());
        let here = act(&self.mount.folder.join(name));
        let there = act(&self.plain.path().join(name));
        assert_eq!(here.is_ok(), there.is_ok(), "{} at {}", name.display(), self.operation);
        if let Ok(number) = number {
            self.open
                .iter_mut()
                .filter(|pair| pair.number == number)
                .for_each(|pair| pair.is_loose = true);
        }
    }

    fn open(&mut self) {
        let name = self.name();
        let draw = self.random.below(64);
        let mut options = File::options();
        let (can_read, can_write) = [(true, false), (false, true), (true, true)][draw as usize % 3];
        options.read(can_read);
        if can_write {
            match draw & 4 == 0 {
                true => options.write(true).truncate(draw & 24 == 0),
                false => options.append(true),
            };
            options.create(draw & 32 == 0);
        }
        let mounted = options.open(self.mount.path().join(&name));
        let plain = options.open(self.plain.path().join(&name));
        match (mounted, plain) {
            (Ok(mounted), Ok(plain)) => {
                let metadata = plain.metadata().unwrap();
                if !metadata.is_file() {
                    return;
                }
                let number = metadata.ino();
                for pair in &mut self.open {
                    pair.is_loose &= pair.number != number;
                }
                if self.open.len() == OPEN_MAX {
                    let gone = self.random.below(OPEN_MAX as u64) as usize;
                    self.open.swap_remove(gone);
                }
                self.open.push(Pair {
                    mounted,
                    plain,
                    number,
                    can_read,
                    can_write,
                    is_loose: false,
                });
            }
            (mounted, plain) => {
                let errno = |result: io::Result<File>| result.err().and_then(|e| e.raw_os_error());
                let (here, there) = (errno(mounted), errno(plain));
                assert_eq!(here, there, "{} at {}", name.display(), self.operation);
            }
        }
    }

    fn use_open(&mut self) {
        if self.open.is_empty() {
            return self.open();
        }
        let index = self.random.below(self.open.len() as u64) as usize;
        let (draw, at) = (self.random.below(16), self.random.below(60_000));
        let bytes = self.bytes();
        let Pair { mounted, plain, can_read, can_write, is_loose, .. } = &self.open[index];
        let operation = self.operation;
        match draw {
            0..6 if *can_read => {
                if draw == 0 {
                    // SAFETY: a plain call on a descriptor that is open.
                    unsafe {
                        libc::posix_fadvise(mounted.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED)
                    };
                }
                let (mut here, mut there) = (vec![0; bytes.len() * 2], vec![0; bytes.len() * 2]);
                let read = mounted.read_at(&mut here, at).unwrap();
                let expected = plain.read_at(&mut there, at).unwrap();
                if !is_loose {
                    assert_eq!(read, expected, "length at {operation}");
                    assert!(here[..read] == there[..read], "bytes at {operation}");
                    self.compared_reads += 1;
                }
            }
            6..9 if *can_write => {
                assert_eq!(mounted.write_at(&bytes, at).unwrap(), bytes.len());
                assert_eq!(plain.write_at(&bytes, at).unwrap(), bytes.len());
            }
            9 if *can_write => {
                mounted.set_len(at).unwrap();
                plain.set_len(at).unwrap();
            }
            10 if *can_read && !is_loose => {
                let length = plain.metadata().unwrap().len() as usize;
                if length == 0 {
                    return;
                }
                let mut expected = vec![0; length];
                plain.read_exact_at(&mut expected, 0).unwrap();
                mapped(
                    mounted,
                    length,
                    |found| assert!(*found == expected[..], "at {operation}"),
                    false,
                );
                if *can_write {
                    let at = at as usize % length;
                    let count = bytes.len().min(length - at);
                    mapped(
                        mounted,
                        length,
                        |all| all[at..at + count].copy_from_slice(&bytes[..count]),
                        true,
                    );
                    // A descriptor opened for appending writes at the end, whatever the offset.
                    let path = format!("/proc/self/fd/{}", plain.as_raw_fd());
                    let plain = File::options().write(true).open(path).unwrap();
                    plain.write_all_at(&bytes[..count], at as u64).unwrap();
                }
            }
            11 => {
                mounted.sync_all().unwrap();
            }
            12 => {
                let (here, there) = (mounted.metadata().unwrap(), plain.metadata().unwrap());
                assert_eq!(facts(&here), facts(&there), "at {operation}");
            }
            13 => drop(self.open.swap_remove(index)),
            _ => {}
        }
    }

    fn step(&mut self) {
        let (name, to) = (self.name(), self.name());
        let bytes = self.bytes();
        match self.random.below(40) {
            0..3 => drop(self.both(&name, |path| fs::write(path, &bytes))),
            3..7 => drop(self.both(&name, |path| fs::read(path))),
            7 => drop(self.both(&name, |path| fs::create_dir(path))),
            8 => drop(self.both(&name, |path| fs::remove_dir(path))),
            9..11 => drop(self.both(&name, |path| fs::remove_file(path))),
            11..13 => {
                let rename = |root: &Path| {
                    fs::rename(root.join(&name), root.join(&to)).map_err(|e| e.raw_os_error())
                };
                let mut here = rename(self.mount.path());
                if here == Err(Some(libc::ESTALE)) {
                    // The kernel cannot rename a folder that was renamed behind the mount until it has been looked up
                    // again.
                    let look = |name: &Path| fs::symlink_metadata(self.mount.path().join(name));
                    drop((look(&name), look(&to)));
                    here = rename(self.mount.path());
                }
                let there = rename(self.plain.path());
                assert_eq!(here, there, "{name:?} to {to:?} at {}", self.operation);
            }
            13 => {
                let roots = [self.mount.path(), self.plain.path()];
                let linked = roots.map(|root| {
                    fs::hard_link(root.join(&name), root.join(&to)).map_err(|e| e.raw_os_error())
                });
                assert_eq!(linked[0], linked[1], "{name:?} to {to:?} at {}", self.operation);
            }
            14 => drop(self.both(&name, |path| symlink(to.file_name().unwrap(), path))),
            15 => drop(self.both(&name, |path| fs::read_link(path))),
            16 => {
                let mode = 0o600 | self.random.below(0o200) as u32;
                let mode = fs::Permissions::from_mode(mode | 0o100);
                self.both(&name, |path| fs::set_permissions(path, mode.clone()));
            }
            17..20 => drop(self.both(&name, |path| Ok(facts(&fs::symlink_metadata(path)?)))),
            20..22 => {
                let folder = name.parent().unwrap().to_owned();
                self.both(&folder, |path| {
                    let entry = |entry: io::Result<fs::DirEntry>| {
                        let entry = entry?;
                        Ok((entry.file_name(), format!("{:?}", entry.file_type()?)))
                    };
                    let mut entries: Vec<_> =
                        fs::read_dir(path)?.map(entry).collect::<io::Result<_>>()?;
                    entries.sort();
                    Ok(entries)
                });
            }
            22 => self.behind(&name, |path| fs::write(path, &bytes)),
            23 => {
                let at = self.random.below(40_000);
                self.behind(&name, |path| {
                    File::options().write(true).open(path)?.write_all_at(&bytes, at)
                });
            }
            24 => {
                self.behind(&name, |path| {
                    File::options().write(true).open(path)?.set_len(bytes.len() as u64)
                });
            }
            25 => self.behind(&name, |path| fs::remove_file(path)),
            26 => {
                let roots = [self.mount.folder.as_path(), self.plain.path()];
                let renamed =
                    roots.map(|root| fs::rename(root.join(&name), root.join(&to)).is_ok());
                assert_eq!(renamed[0], renamed[1]);
            }
            27..31 => self.open(),
            _ => self.use_open(),
        }
    }

    fn walk(&self, folder: &Path) {
        let names = |root: &Path| {
            let entries = fs::read_dir(root.join(folder)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let all = names(self.plain.path());
        assert_eq!(names(self.mount.path()), all);
        assert_eq!(names(&self.mount.folder), all);
        for name in all {
            let name = folder.join(name);
            let kind = fs::symlink_metadata(self.plain.path().join(&name)).unwrap();
            for root in [self.mount.path(), &self.mount.folder] {
                let found = fs::symlink_metadata(root.join(&name)).unwrap();
                assert_eq!(facts(&found), facts(&kind), "{}", name.display());
                if kind.is_file() {
                    let read = |root: &Path| fs::read(root.join(&name)).unwrap();
                    assert!(read(root) == read(self.plain.path()), "{}", name.display());
                }
            }
            if kind.is_dir() {
                self.walk(&name);
            }
        }
    }
}

#[test]
fn what_is_done_to_a_mount_is_done_to_the_folder() {
    let seed =
        number("FORETELL_TEST_SEED", || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let operations = number("FORETELL_TEST_OPERATIONS", || OPERATIONS);
    eprintln!("FORETELL_TEST_SEED={seed}");
    // Little memory, so that blocks are evicted and fetched again.
    let Some(mount) = writable(128 << 10, Duration::ZERO) else { return };
    let plain = tempfile::tempdir().unwrap();
    // The mode of a new folder, whatever mode the temporary folder got.
    for root in [&mount.folder, plain.path()] {
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (open, operation) = (Vec::new(), 0);
    let mut world =
        World { mount, plain, random: Random(seed), open, operation, compared_reads: 0 };
    for operation in 0..operations {
        world.operation = operation;
        world.step();
        if operation % WALKED_EVERY == 0 {
            world.walk(Path::new(""));
        }
    }
    world.walk(Path::new(""));
    eprintln!("{operations} operations, {} reads of open files compared", world.compared_reads);
    assert!(world.compared_reads > operations / 100);
}
