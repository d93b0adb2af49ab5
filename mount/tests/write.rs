//! A folder that programs write through its mount.

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Random, attribute, content, ioctl_hint, skipped, writable, writable_of};

const BUDGET_BYTES: u64 = 8 << 20;
const LONG: Duration = Duration::from_secs(600);

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn forget_pages(file: &File) {
    // SAFETY: a plain call on a descriptor that is open.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// A shared mapping of the first bytes of a file.
struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn new(file: &File, length: usize) -> Self {
        let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, shared, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Mapping { start: start.cast(), length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this value's, and no longer than its file. Nobody else writes to the file meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Unmapping written pages waits for the mount with this process's memory locked, and this process serves the
        // mount.
        // SAFETY: nothing borrows it any more.
        unsafe {
            assert_eq!(libc::msync(self.start.cast(), self.length, libc::MS_SYNC), 0);
            libc::munmap(self.start.cast(), self.length);
        }
    }
}

#[test]
fn what_was_written_is_in_the_folder_and_in_whatever_is_read_then() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let (here, there) = (mount.path().join("file"), mount.folder.join("file"));
    let mut expected = content(1, 300_000);
    fs::write(&here, &expected).unwrap();
    assert!(fs::read(&there).unwrap() == expected);
    let (reader, writer) =
        (File::open(&here).unwrap(), File::options().write(true).open(&here).unwrap());
    let mut bytes = vec![0; 400_000];
    let mut random = Random(1);
    for round in 0..200u64 {
        let at = random.below(300_000) as usize;
        let piece = content(round, 1 + random.below(20_000) as usize);
        match round % 5 {
            4 => {
                expected.resize(at, 0);
                writer.set_len(at as u64).unwrap();
            }
            _ => {
                expected.resize(expected.len().max(at + piece.len()), 0);
                expected[at..at + piece.len()].copy_from_slice(&piece);
                writer.write_all_at(&piece, at as u64).unwrap();
            }
        }
        assert!(fs::read(&there).unwrap() == expected, "in the folder, in round {round}");
        if round % 2 == 0 {
            forget_pages(&reader);
        }
        let read = reader.read_at(&mut bytes, 0).unwrap();
        assert!(bytes[..read] == expected, "by an old descriptor, in round {round}");
        if round % 3 == 0 {
            assert!(fs::read(&here).unwrap() == expected, "by a new one, in round {round}");
        }
        assert_eq!(fs::metadata(&here).unwrap().len(), expected.len() as u64);
    }
}

/// The kernel keeps the page locked until the write is answered. The mount wants it dropped before that.
#[test]
fn a_part_of_a_page_that_was_read_and_dropped_is_written() {
    let Some(mount) = writable(1 << 20, Duration::ZERO) else { return };
    let path = mount.path().join("file");
    let mut expected = vec![1; 40_960];
    fs::write(&path, &expected).unwrap();
    for at in [100, 5000, 40_000] {
        // A page that is not dropped.
        let file = File::options().read(true).append(true).open(&path).unwrap();
        file.read_exact_at(&mut [0; 10], 0).unwrap();
        (&file).write_all(&[7; 20]).unwrap();
        expected.extend([7; 20]);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut bytes = vec![0; expected.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, expected);
        forget_pages(&file);
        file.write_all_at(&[at as u8; 50], at as u64).unwrap();
        expected[at..at + 50].fill(at as u8);
        let reader = File::open(&path).unwrap();
        for file in [&file, &reader] {
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, expected);
        }
    }
    assert_eq!(fs::read(mount.folder.join("file")).unwrap(), expected);
}

/// A writer writes blocks that are filled with a counter. A reader that begins after a write has ended sees that write
/// or a later one.
#[test]
fn a_reader_never_sees_less_than_what_was_written_before_it_began() {
    const BLOCK: usize = 8192;
    const BLOCKS: u64 = 64;
    const WRITES: u64 = 4000;
    // A quarter of the file.
    let Some(mount) = writable(BLOCKS * BLOCK as u64 / 4, Duration::ZERO) else { return };
    let path = mount.path().join("file");
    fs::write(&path, vec![0; BLOCK * BLOCKS as usize]).unwrap();
    let written: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let begun = AtomicU64::new(0);
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (path, written, begun, is_over) = (&path, &written, &begun, &is_over);
            scope.spawn(move || {
                let mut random = Random(reader);
                let mut file = File::open(path).unwrap();
                let mut bytes = vec![0; 4 * BLOCK];
                while is_over.load(Ordering::SeqCst) == 0 {
                    let first = random.below(BLOCKS - 3);
                    match random.below(8) {
                        // This makes the kernel drop pages, including some that are just being written.
                        0..5 => file = File::open(path).unwrap(),
                        5 => ioctl_hint(&file, &[(0, BLOCKS * BLOCK as u64)], "").unwrap(),
                        _ => forget_pages(&file),
                    }
                    let least: Vec<u64> = (first..first + 4)
                        .map(|block| written[block as usize].load(Ordering::SeqCst))
                        .collect();
                    file.read_exact_at(&mut bytes, first * BLOCK as u64).unwrap();
                    let most = begun.load(Ordering::SeqCst);
                    for (at, word) in bytes.chunks_exact(8).enumerate() {
                        let seen = u64::from_le_bytes(word.try_into().unwrap());
                        let least = least[at * 8 / BLOCK];
                        assert!((least..=most).contains(&seen), "{seen}, not {least}..={most}");
                    }
                }
            });
        }
        let writer = File::options().write(true).open(&path).unwrap();
        let mut random = Random(77);
        for count in 1..=WRITES {
            let block = random.below(BLOCKS);
            let bytes = count.to_le_bytes().repeat(BLOCK / 8);
            begun.store(count, Ordering::SeqCst);
            writer.write_all_at(&bytes, block * BLOCK as u64).unwrap();
            written[block as usize].store(count, Ordering::SeqCst);
        }
        is_over.store(1, Ordering::SeqCst);
    });
}

#[test]
fn what_others_have_changed_is_seen_by_the_next_open_whatever_the_ttl() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let (here, there) = (mount.path().join("file"), mount.folder.join("file"));
    fs::write(&there, content(0, 50_000)).unwrap();
    let old = File::open(&here).unwrap();
    let mut random = Random(3);
    for round in 1..100 {
        let length = [50_000, random.below(100_000) as usize][round as usize % 2];
        let expected = content(round, length);
        let file = File::options().write(true).truncate(round % 3 == 0).open(&there).unwrap();
        file.set_len(length as u64).unwrap();
        file.write_all_at(&expected, 0).unwrap();
        if round % 5 == 0 {
            // As `cp -p` does; then only the inode's change time shows the change.
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        drop(file);
        assert!(fs::read(&here).unwrap() == expected, "round {round}");
        // A program that already has it open sees the same.
        let mut bytes = vec![0; 100_000];
        let read = old.read_at(&mut bytes, 0).unwrap();
        assert!(bytes[..read] == expected, "round {round}");
    }
}

#[test]
fn who_appends_writes_over_nobody() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let (here, there) = (mount.path().join("log"), mount.folder.join("log"));
    let append = |path: &Path| File::options().append(true).create(true).open(path).unwrap();
    let (mut one, mut other, mut outside) = (append(&here), append(&here), append(&there));
    let mut expected: Vec<u8> = Vec::new();
    for number in 0..300 {
        let line = format!("line {number}\n");
        [&mut one, &mut other, &mut outside][number % 3].write_all(line.as_bytes()).unwrap();
        expected.extend(line.as_bytes());
    }
    assert_eq!(fs::read(&there).unwrap(), expected);
    assert_eq!(fs::read(&here).unwrap(), expected);
}

#[test]
fn who_appends_to_what_others_have_cut_reads_it_by_the_same_descriptor() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let (here, there) = (mount.path().join("log"), mount.folder.join("log"));
    fs::write(&there, vec![b'A'; 100_000]).unwrap();
    let mut log = File::options().read(true).append(true).open(&here).unwrap();
    let mut bytes = vec![0; 100_000];
    log.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == b'A'));
    File::options().write(true).open(&there).unwrap().set_len(0).unwrap();
    log.write_all(&[b'B'; 50_000]).unwrap();
    assert_eq!(fs::read(&there).unwrap(), [b'B'; 50_000]);
    forget_pages(&log);
    log.read_exact_at(&mut bytes[..50_000], 0).unwrap();
    assert!(bytes[..50_000].iter().all(|&byte| byte == b'B'));
}

#[test]
fn a_file_keeps_its_number_while_it_is_written_renamed_and_linked() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let at = |name: &str| mount.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("a"), b"one").unwrap();
    let number = fs::metadata(at("a")).unwrap().ino();
    assert_eq!(number, fs::metadata(mount.folder.join("a")).unwrap().ino());
    fs::write(at("a"), b"another").unwrap();
    fs::rename(at("a"), at("folder/b")).unwrap();
    fs::hard_link(at("folder/b"), at("c")).unwrap();
    for name in ["folder/b", "c"] {
        let metadata = fs::metadata(at(name)).unwrap();
        assert_eq!((metadata.ino(), metadata.nlink()), (number, 2));
    }
    fs::write(at("c"), b"by the other name").unwrap();
    assert_eq!(fs::read(at("folder/b")).unwrap(), b"by the other name");
    fs::write(at("d"), b"").unwrap();
    let rename = |flags| {
        let (from, to) = (at("c"), at("d"));
        rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)
    };
    assert_eq!(rename(rustix::fs::RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(rustix::fs::RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::metadata(at("d")).unwrap().ino(), number);
    assert_eq!(fs::read(at("c")).unwrap(), b"");
}

#[test]
fn a_file_that_is_removed_or_replaced_is_there_for_who_has_it_open() {
    let Some(mount) = writable(64 << 10, LONG) else { return };
    let at = |name: &str| mount.path().join(name);
    let old = content(1, 200_000);
    for is_removed in [true, false] {
        fs::write(at("file"), &old).unwrap();
        let mut file = File::options().read(true).write(true).open(at("file")).unwrap();
        match is_removed {
            true => fs::remove_file(at("file")).unwrap(),
            false => {
                // As editors save.
                let mut new = File::create(at("new")).unwrap();
                new.write_all(b"new").unwrap();
                new.sync_all().unwrap();
                fs::rename(at("new"), at("file")).unwrap();
                assert_eq!(fs::read(at("file")).unwrap(), b"new");
            }
        }
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"more").unwrap();
        forget_pages(&file);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == [&old[..], b"more"].concat());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(at("file").exists(), !is_removed);
    }
}

#[test]
fn a_shared_mapping_can_be_written() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let (here, there) = (mount.path().join("file"), mount.folder.join("file"));
    let mut expected = content(1, 100_000);
    fs::write(&here, &expected).unwrap();
    let file = File::options().read(true).append(true).open(&here).unwrap();
    let mut mapping = Mapping::new(&file, expected.len());
    assert!(*mapping.bytes() == expected);
    for at in [0, 5000, 99_990] {
        mapping.bytes()[at..at + 5].copy_from_slice(b"HELLO");
        expected[at..at + 5].copy_from_slice(b"HELLO");
    }
    assert!(fs::read(&here).unwrap() == expected, "before it is written");
    drop(mapping);
    drop(file);
    assert!(fs::read(&there).unwrap() == expected);
    forget_pages(&File::open(&here).unwrap());
    assert!(fs::read(&here).unwrap() == expected);
}

#[test]
fn links_are_shown_as_links_and_times_modes_and_pipes_as_they_are() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let at = |name: &str| mount.path().join(name);
    symlink("target", at("link")).unwrap();
    assert_eq!(fs::read_link(mount.folder.join("link")).unwrap(), Path::new("target"));
    assert!(fs::metadata(at("link")).is_err(), "it leads nowhere");
    fs::write(at("target"), b"x").unwrap();
    assert_eq!(fs::read(at("link")).unwrap(), b"x");
    let made = File::options().write(true).create_new(true).mode(0o640).open(at("made")).unwrap();
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    fs::set_permissions(at("target"), fs::Permissions::from_mode(0o400)).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    made.set_modified(time).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for name in ["link", "target", "made", "pipe"] {
        let (here, there) = (at(name), mount.folder.join(name));
        let (here, there) = (here.symlink_metadata().unwrap(), there.symlink_metadata().unwrap());
        assert_eq!(
            (here.mode(), here.size(), here.uid()),
            (there.mode(), there.size(), there.uid())
        );
        assert_eq!(here.modified().unwrap(), there.modified().unwrap());
    }
    assert_eq!(made.metadata().unwrap().modified().unwrap(), time);
    let early = std::time::UNIX_EPOCH - Duration::from_millis(1500);
    made.set_modified(early).unwrap();
    assert_eq!(mount.folder.join("made").metadata().unwrap().modified().unwrap(), early);
    let statistics = rustix::fs::statvfs(mount.path()).unwrap();
    assert_eq!(statistics.f_blocks, rustix::fs::statvfs(&mount.folder).unwrap().f_blocks);
}

#[test]
fn programs_have_their_extended_attributes() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let (here, there) = (mount.path().join("file"), mount.folder.join("file"));
    fs::write(&here, vec![7; 100_000]).unwrap();
    let none = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&there, "user.probe", b"1", none).is_err() {
        return skipped("the folder's file system has no extended attributes");
    }
    rustix::fs::setxattr(&here, "user.name", b"value", none).unwrap();
    assert_eq!(attribute(&there, "user.name").unwrap(), "value");
    assert_eq!(attribute(&here, "user.probe").unwrap(), "1");
    rustix::fs::removexattr(&here, "user.name").unwrap();
    assert!(attribute(&there, "user.name").is_err());
    let refused = rustix::fs::setxattr(&here, "user.foretell.cached_bytes", b"1", none);
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    let mut file = File::open(&here).unwrap();
    file.read_exact(&mut [0; 10]).unwrap();
    let cached: u64 = attribute(&here, "user.foretell.cached_bytes").unwrap().parse().unwrap();
    assert!(cached >= 8192, "{cached}");
}

#[test]
fn hints_are_fetched_ahead_as_of_any_mount() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let expected = content(5, 1 << 20);
    fs::write(mount.folder.join("file"), &expected).unwrap();
    let changed = mount.folder.join("file").metadata().unwrap().modified().unwrap();
    common::wait_until("its time to be past", || {
        changed.elapsed().unwrap() > Duration::from_millis(100)
    });
    let cached = || attribute(&mount.path().join("file"), "user.foretell.cached_bytes").unwrap();
    let control = File::open(mount.path().join(".foretell/control")).unwrap();
    ioctl_hint(&control, &[(0, 1 << 20)], "file").unwrap();
    common::wait_until("what was hinted", || cached() == (1 << 20).to_string());
    let file = File::options().read(true).write(true).open(mount.path().join("file")).unwrap();
    file.write_all_at(b"written", 100_000).unwrap();
    ioctl_hint(&file, &[(0, 1 << 20)], "").unwrap();
    let expected = [&expected[..100_000], b"written", &expected[100_007..]].concat();
    assert!(fs::read(mount.path().join("file")).unwrap() == expected);
}

#[test]
fn the_mounts_own_folder_cannot_be_written() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let own = mount.path().join(".foretell");
    assert!(fs::write(own.join("new"), b"").is_err());
    assert!(fs::remove_file(own.join("stats")).is_err());
    assert!(fs::remove_dir(&own).is_err());
    fs::create_dir(mount.path().join("folder")).unwrap();
    assert!(fs::rename(mount.path().join("folder"), &own).is_err());
    assert!(fs::rename(&own, mount.path().join("other")).is_err());
    assert_eq!(errno(fs::hard_link(own.join("stats"), mount.path().join("x"))), Some(libc::EPERM));
    assert_eq!(fs::read_dir(&own).unwrap().count(), 2);
    assert!(fs::read_to_string(own.join("stats")).unwrap().contains("known_inodes"));
    let names: Vec<_> =
        fs::read_dir(mount.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["folder"]);
}

/// A small file system of its own, mounted while this value lives.
struct Small {
    folder: tempfile::TempDir,
    /// The folder of its image file.
    _image: Option<tempfile::TempDir>,
}

/// Times in whole seconds.
const COARSE: &[&str] = &["-I", "128"];

fn does(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

impl Small {
    /// In memory. `None` and a message if it cannot be mounted.
    fn in_memory() -> Option<Self> {
        Small::mounted(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], None)
    }

    /// In an image file, as `mkfs.ext4` makes it with these options.
    fn in_file(options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        if !does(Command::new("mkfs.ext4").args(["-q", "-F"]).args(options).arg(&image)) {
            skipped("there is no mkfs.ext4");
            return None;
        }
        Small::mounted(&["-o", "loop", image.to_str().unwrap()], Some(folder))
    }

    fn mounted(what: &[&str], _image: Option<tempfile::TempDir>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        match does(Command::new("mount").args(what).arg(folder.path())) {
            true => Some(Small { folder, _image }),
            false => {
                skipped("mounting a small file system needs root");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes writers wait until the returned value is dropped. `None` and a message if that is not possible.
    fn frozen(&self) -> Option<Frozen<'_>> {
        match does(Command::new("fsfreeze").arg("-f").arg(self.path())) {
            true => Some(Frozen(self)),
            false => {
                skipped("a file system cannot be frozen");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        assert!(does(Command::new("umount").arg("-l").arg(self.path())));
    }
}

struct Frozen<'a>(&'a Small);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        assert!(does(Command::new("fsfreeze").arg("-u").arg(self.0.path())));
    }
}

#[test]
fn a_folder_that_does_not_answer_holds_up_only_who_writes() {
    const WRITERS: usize = 100;
    let Some(small) = Small::in_file(COARSE) else { return };
    fs::write(small.path().join("read"), b"cached").unwrap();
    let Some(mount) = writable_of(Some(small.path()), (BUDGET_BYTES, LONG), false) else { return };
    let path = |name: &str| mount.path().join(name);
    let read = File::open(path("read")).unwrap();
    assert_eq!(fs::read(path("read")).unwrap(), b"cached");
    let open = |_| File::options().append(true).create(true).open(path("written")).unwrap();
    let writers: Vec<File> = (0..WRITERS).map(open).collect();
    let mapped = File::options().read(true).write(true).create_new(true).open(path("mapped"));
    mapped.unwrap().set_len(1 << 20).unwrap();
    let Some(frozen) = small.frozen() else { return };
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for mut writer in writers {
            let written = &written;
            scope.spawn(move || {
                writer.write_all(b"0123456789").unwrap();
                drop(writer);
                written.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut bytes = [0; 6];
        for _ in 0..100 {
            forget_pages(&read);
            read.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"cached");
            assert!(fs::read_to_string(path(".foretell/stats")).unwrap().contains("known_inodes"));
            assert_eq!(path("read").metadata().unwrap().len(), 6);
        }
        assert_eq!(written.load(Ordering::SeqCst), 0);
        drop(frozen);
    });
    assert_eq!(fs::read(path("written")).unwrap(), b"0123456789".repeat(WRITERS));
}

#[test]
fn what_others_change_within_a_tick_of_the_folders_clock_is_seen() {
    let Some(small) = Small::in_file(COARSE) else { return };
    let Some(mount) = writable_of(Some(small.path()), (BUDGET_BYTES, LONG), false) else { return };
    for turn in 0..200 {
        let expected = format!("turn {turn:03}");
        fs::write(small.path().join("file"), &expected).unwrap();
        assert_eq!(fs::read_to_string(mount.path().join("file")).unwrap(), expected);
    }
}

#[test]
fn who_has_a_lease_is_waited_for() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    fs::write(mount.folder.join("file"), b"before").unwrap();
    assert!(mount.path().join("file").exists());
    let held = File::open(mount.folder.join("file")).unwrap();
    /// From `linux/fcntl.h`: chooses the signal for a lease that is wanted back. `SIGURG` is ignored by default.
    const F_SETSIG: i32 = 10;
    // SAFETY: plain calls on a descriptor that is open.
    let lease =
        |command: i32, argument: i32| unsafe { libc::fcntl(held.as_raw_fd(), command, argument) };
    assert_eq!(lease(F_SETSIG, libc::SIGURG), 0);
    if lease(libc::F_SETLEASE, libc::F_RDLCK) != 0 {
        return skipped("leases do not work here");
    }
    const WRITERS: usize = 100;
    const WAITING: usize = 16;
    let file = mount.path().join("file");
    std::thread::scope(|scope| {
        let write = |_| scope.spawn(|| fs::write(&file, b"after"));
        let mut writers: Vec<_> = (0..WRITERS).map(write).collect();
        common::wait_until("the lease to be wanted back", || {
            lease(libc::F_GETLEASE, 0) == libc::F_UNLCK
        });
        // All writers that cannot wait get an error, and other requests are served.
        let (mut refused, mut served) = (0, 0);
        common::wait_until("those that cannot wait", || {
            served += u64::from(!mount.path().join(format!("other {served}")).exists());
            let (done, waiting): (Vec<_>, Vec<_>) =
                writers.drain(..).partition(|writer| writer.is_finished());
            writers = waiting;
            for writer in done {
                assert_eq!(errno(writer.join().unwrap()), Some(libc::EAGAIN));
                refused += 1;
            }
            refused == WRITERS - WAITING
        });
        assert_eq!(lease(libc::F_SETLEASE, libc::F_UNLCK), 0);
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    assert_eq!(fs::read(mount.folder.join("file")).unwrap(), b"after");
}

#[test]
fn errors_of_the_folder_reach_who_writes() {
    let Some(small) = Small::in_memory() else { return };
    let Some(mount) = writable_of(Some(small.path()), (BUDGET_BYTES, LONG), false) else {
        return;
    };
    let mut file = File::create(mount.path().join("file")).unwrap();
    let whole = content(1, 2 << 20);
    assert_eq!(errno(file.write_all(&whole)), Some(libc::ENOSPC));
    let there = fs::read(small.path().join("file")).unwrap();
    assert!(there == whole[..there.len()] && there.len() > 900_000, "{}", there.len());
    assert!(fs::read(mount.path().join("file")).unwrap() == there);
    drop(file);
    // The mount closes the folder's files some time after the program closes its own.
    let remounts = || {
        let mut command = Command::new("mount");
        command.args(["-o", "remount,ro"]).arg(small.path()).status().unwrap().success()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while !remounts() {
        assert!(Instant::now() < until, "it is not remounted");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(errno(File::create(mount.path().join("new"))), Some(libc::EROFS));
    assert_eq!(errno(fs::remove_file(mount.path().join("file"))), Some(libc::EROFS));
}

#[test]
fn what_programs_make_is_theirs() {
    const USER: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can be another user");
    }
    let Some(mount) = writable_of(None, (BUDGET_BYTES, LONG), true) else { return };
    fs::set_permissions(&mount.folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(mount.folder.join("ours"), b"secret").unwrap();
    fs::set_permissions(mount.folder.join("ours"), fs::Permissions::from_mode(0o600)).unwrap();
    let as_other = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(mount.path()).uid(USER).gid(USER);
        command.output().unwrap()
    };
    let made = as_other("mkdir d && echo x > d/f && ln -s f d/l && mkfifo d/p && chmod 640 d/f");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for name in ["d", "d/f", "d/l", "d/p"] {
        let metadata = mount.folder.join(name).symlink_metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (USER, USER), "{name}");
    }
    for refused in ["cat ours", "echo x > ours", "chmod 666 ours", "chown 0 d/f"] {
        assert!(!as_other(refused).status.success(), "{refused}");
    }
}

#[test]
fn what_programs_make_is_of_their_group_or_the_folders() {
    const USER: u32 = 65_534;
    const GROUP: u32 = 54_321;
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can be another user");
    }
    let Some(mount) = writable_of(None, (BUDGET_BYTES, LONG), true) else { return };
    fs::set_permissions(&mount.folder, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, mode) in [("shared", 0o2770), ("plain", 0o770)] {
        fs::create_dir(mount.folder.join(name)).unwrap();
        std::os::unix::fs::chown(mount.folder.join(name), Some(0), Some(GROUP)).unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(mount.folder.join(name), mode).unwrap();
    }
    // The group that lets the user in is one of the user's supplementary groups.
    let script = "import os, sys
os.setgroups([54321]); os.setgid(65534); os.setuid(65534)
for folder in ('shared', 'plain'):
    os.chdir(sys.argv[1] + '/' + folder)
    os.mkdir('d'); os.symlink('d', 'l'); os.mkfifo('p'); open('f', 'w').close()
    if folder == 'shared':
        os.chmod('d', 0o2775)
    else:
        os.mkdir('given'); os.chown('given', -1, 54321); os.chmod('given', 0o2770)
";
    let made = Command::new("python3").args(["-c", script]).arg(mount.path()).output();
    let Ok(made) = made else { return skipped("there is no python3") };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let given = mount.folder.join("plain/given").metadata().unwrap();
    assert_eq!((given.uid(), given.gid(), given.mode() & 0o7777), (USER, GROUP, 0o2770));
    for (folder, group) in [("shared", GROUP), ("plain", USER)] {
        for name in ["d", "f", "l", "p"] {
            let metadata = mount.folder.join(folder).join(name).symlink_metadata().unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (USER, group), "{folder}/{name}");
            let inherits = metadata.mode() & libc::S_ISGID != 0;
            assert_eq!(inherits, (folder, name) == ("shared", "d"), "{folder}/{name}");
        }
    }
}

#[test]
fn who_makes_a_file_that_others_have_made_meanwhile_gets_it_if_he_may() {
    const USER: u32 = 65_534;
    let is_root = rustix::process::geteuid().is_root();
    let Some(mount) = writable_of(None, (BUDGET_BYTES, LONG), is_root) else { return };
    fs::set_permissions(&mount.folder, fs::Permissions::from_mode(0o777)).unwrap();
    // The kernel remembers for long that the names do not exist.
    for name in ["ours", "theirs"] {
        assert!(!mount.path().join(name).exists());
    }
    fs::write(mount.folder.join("ours"), b"longer than it").unwrap();
    fs::set_permissions(mount.folder.join("ours"), fs::Permissions::from_mode(0o600)).unwrap();
    if is_root {
        let mut other = Command::new("sh");
        other.args(["-c", "echo x > ours"]).current_dir(mount.path()).uid(USER).gid(USER);
        assert!(!other.output().unwrap().status.success());
        assert_eq!(fs::read(mount.folder.join("ours")).unwrap(), b"longer than it");
    }
    fs::write(mount.path().join("ours"), b"that").unwrap();
    assert_eq!(fs::read(mount.folder.join("ours")).unwrap(), b"that");
    fs::write(mount.folder.join("theirs"), b"").unwrap();
    let exclusive = File::options().write(true).create_new(true).open(mount.path().join("theirs"));
    assert_eq!(errno(exclusive), Some(libc::EEXIST));
}

#[test]
fn folders_are_folders_where_the_system_does_not_say_so_in_lists() {
    let Some(small) = Small::in_file(&["-O", "^filetype"]) else { return };
    let Some(mount) = writable_of(Some(small.path()), (BUDGET_BYTES, LONG), false) else { return };
    fs::create_dir(small.path().join("folder")).unwrap();
    fs::write(small.path().join("file"), b"").unwrap();
    let kinds = |folder: &Path| {
        let kind = |entry: fs::DirEntry| (entry.file_name(), entry.file_type().unwrap().is_dir());
        let entries = fs::read_dir(folder).unwrap().map(|entry| kind(entry.unwrap()));
        entries.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(kinds(mount.path()), kinds(small.path()));
    assert!(kinds(mount.path())[std::ffi::OsStr::new("folder")]);
}

#[test]
fn a_long_write_at_the_end_is_written_in_its_order() {
    const MIB: usize = 1 << 20;
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    // Direct I/O, of which the kernel could send the parts at once.
    let layout = std::alloc::Layout::from_size_align(16 * MIB, 4096).unwrap();
    // SAFETY: the layout has a size, and all of the memory is written before it is read.
    let memory = unsafe {
        let start = std::alloc::alloc(layout);
        assert!(!start.is_null());
        for part in 0..16 {
            start.add(part * MIB).write_bytes(part as u8, MIB);
        }
        std::slice::from_raw_parts(start, 16 * MIB)
    };
    let flags = libc::O_DIRECT | libc::O_APPEND;
    for turn in 0..5 {
        let name = format!("file {turn}");
        let mut file = File::options();
        file.write(true).create_new(true).custom_flags(flags);
        let written = file.open(mount.path().join(&name)).unwrap().write(memory).unwrap();
        assert!(fs::read(mount.folder.join(&name)).unwrap() == memory[..written], "{turn}");
    }
    // SAFETY: it was allocated with this layout, and nothing borrows it any more.
    unsafe { std::alloc::dealloc(memory.as_ptr().cast_mut(), layout) };
}

#[test]
fn who_opens_a_file_in_an_odd_way_spoils_it_for_nobody() {
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    fs::write(mount.folder.join("file"), b"content").unwrap();
    let odd = rustix::fs::OFlags::RWMODE; // Neither reading nor writing.
    let mode = rustix::fs::Mode::empty();
    let odd = rustix::fs::open(mount.path().join("file"), odd, mode).unwrap();
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"content");
    drop(odd);
}

/// A process of another user that carries out commands.
struct Other {
    process: std::process::Child,
    answers: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Other {
    const USER: u32 = 65_534;

    /// `None` and a message if there cannot be one.
    fn at(folder: &Path) -> Option<Self> {
        const SCRIPT: &str = "import os, sys
for line in sys.stdin:
    try:
        exec(line)
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
";
        if !rustix::process::geteuid().is_root() {
            skipped("only root can be another user");
            return None;
        }
        let mut python = Command::new("python3");
        python.args(["-c", SCRIPT]).current_dir(folder).uid(Other::USER).gid(Other::USER);
        python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let Ok(mut process) = python.spawn() else {
            skipped("there is no python3");
            return None;
        };
        let answers = std::io::BufReader::new(process.stdout.take().unwrap());
        Some(Other { process, answers: std::io::BufRead::lines(answers) })
    }

    /// The error number; 0 for success.
    fn does(&mut self, line: &str) -> i32 {
        writeln!(self.process.stdin.as_ref().unwrap(), "{line}").unwrap();
        self.answers.next().unwrap().unwrap().parse().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The kernel believes what it knows of owners until something makes it ask again.
#[test]
fn who_asks_may_do_what_he_may_now_and_not_what_he_might_before() {
    let Some(mount) = writable_of(None, (BUDGET_BYTES, LONG), true) else { return };
    fs::set_permissions(&mount.folder, fs::Permissions::from_mode(0o1777)).unwrap();
    let Some(mut other) = Other::at(mount.path()) else { return };
    let at = |name: &str| mount.folder.join(name);
    let mode = |name: &str| at(name).metadata().unwrap().mode() & 0o7777;
    let take = |name: &str| std::os::unix::fs::chown(at(name), Some(0), Some(0)).unwrap();

    // A file that belonged to the user belongs to root now.
    assert_eq!(other.does("tool = os.open('tool', os.O_RDWR | os.O_CREAT, 0o755)"), 0);
    assert_eq!(other.does("os.fchmod(tool, 0o4755)"), 0, "the user's own file");
    assert_eq!(other.does("os.fchmod(tool, 0o755); os.utime(tool, (1, 1))"), 0);
    assert_eq!(other.does("os.fchown(tool, -1, 65534)"), 0);
    take("tool");
    for change in
        ["os.fchmod(tool, 0o4755)", "os.fchown(tool, -1, 65534)", "os.utime(tool, (2, 2))"]
    {
        assert_eq!(other.does(change), libc::EPERM, "{change}");
    }
    assert_eq!(mode("tool"), 0o755);

    // The user cannot make a program with the set-group bit of a group of root's.
    assert_eq!(other.does("group = os.open('group', os.O_RDWR | os.O_CREAT, 0o755)"), 0);
    std::os::unix::fs::chown(at("group"), None, Some(0)).unwrap();
    assert_eq!(other.does("os.fchmod(group, 0o2755)"), 0, "the user's own file");
    assert_eq!(mode("group"), 0o755, "as in the folder");
    // A file that no longer belongs to the user keeps its bits when the user tries to remove them.
    fs::set_permissions(at("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    other.does("os.fchmod(tool, 0o755)");
    assert_eq!(mode("tool"), 0o4755);

    // A file that the user writes loses its set-user bit.
    let writes =
        ["os.write(file, b'x')", "os.ftruncate(file, 100)", "os.posix_fallocate(file, 0, 65536)"];
    for (turn, write) in writes.into_iter().enumerate() {
        let name = format!("shared {turn}");
        let open = format!("file = os.open('{name}', os.O_WRONLY | os.O_CREAT, 0o777)");
        assert_eq!(other.does(&open), 0);
        take(&name);
        fs::set_permissions(at(&name), fs::Permissions::from_mode(0o4777)).unwrap();
        assert_eq!(other.does(write), 0);
        assert_eq!(mode(&name), 0o777 & mode(&name), "{write}");
        assert_eq!(other.does("os.close(file)"), 0);
    }

    // A name that stood for the user's file stands for another's, in a folder where all may write.
    assert_eq!(other.does("os.close(os.open('name', os.O_WRONLY | os.O_CREAT))"), 0);
    assert_eq!(other.does("os.close(os.open('mine', os.O_WRONLY | os.O_CREAT))"), 0);
    fs::remove_file(at("name")).unwrap();
    fs::write(at("name"), b"another's").unwrap();
    for change in ["os.unlink('name')", "os.rename('name', 'new')", "os.rename('mine', 'name')"] {
        assert_eq!(other.does(change), libc::EPERM, "{change}");
    }
    assert_eq!(fs::read(at("name")).unwrap(), b"another's");
    assert_eq!(other.does("os.unlink('mine')"), 0);
}

/// Each way to write to a file of another owner whose mode has set-user and set-group bits. The bits go as in a plain
/// folder.
#[test]
fn bits_that_set_the_user_go_as_in_a_plain_folder() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can make files of other users");
    }
    let Some(mount) = writable_of(None, (BUDGET_BYTES, LONG), true) else { return };
    let plain = tempfile::tempdir().unwrap();
    type Way = fn(&File);
    let ways: [(&str, Way); 6] = [
        ("a mapping", |file| Mapping::new(file, 4096).bytes()[10] = 1),
        ("a write", |file| file.write_all_at(b"x", 10).unwrap()),
        ("a write at the end", |mut file| {
            file.seek(SeekFrom::End(0)).unwrap();
            file.write_all(b"x").unwrap();
        }),
        ("a cut", |file| file.set_len(100).unwrap()),
        ("room", |file| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, 20_000).unwrap();
        }),
        ("a time", |file| file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap()),
    ];
    // The mount believes names for long, so each file has a new one.
    let mut files = 0..;
    let mut name = || format!("{}", files.next().expect("there are more"));
    for (owner, mode) in [(0, 0o6777), (1234, 0o6777), (1234, 0o4755), (65_534, 0o2775)] {
        for (what, way) in ways {
            let name = name();
            let modes = [plain.path(), mount.folder.as_path()].map(|folder| {
                let path = folder.join(&name);
                fs::write(&path, [0; 8192]).unwrap();
                std::os::unix::fs::chown(&path, Some(owner), Some(owner)).unwrap();
                fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
                let through =
                    if folder == plain.path() { path.clone() } else { mount.path().join(&name) };
                let file = File::options().read(true).write(true).open(through).unwrap();
                way(&file);
                drop(file);
                fs::metadata(&path).unwrap().permissions().mode()
            });
            assert_eq!(modes[0], modes[1], "{what} by root, {owner} {mode:o}");
        }
    }
    // The same writes by a user who may write the file and does not own it.
    let script = "import mmap, os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR)\n\
        if sys.argv[2] == 'map':\n\
        \x20   m = mmap.mmap(f, 4096); m[10] = 1; m.flush(); m.close()\n\
        else:\n\
        \x20   os.pwrite(f, b'x', 10)\n\
        os.close(f)";
    fs::set_permissions(plain.path(), PermissionsExt::from_mode(0o777)).unwrap();
    fs::set_permissions(&mount.folder, PermissionsExt::from_mode(0o777)).unwrap();
    for way in ["map", "write"] {
        let (name, mut modes) = (name(), Vec::new());
        for folder in [plain.path(), mount.folder.as_path()] {
            let path = folder.join(&name);
            fs::write(&path, [0; 8192]).unwrap();
            std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
            let through =
                if folder == plain.path() { path.clone() } else { mount.path().join(&name) };
            let mut python = Command::new("python3");
            python.args(["-c", script]).arg(through).arg(way).uid(65_534).gid(65_534);
            match python.output() {
                Err(error) => return skipped(&format!("python3: {error}")),
                Ok(ran) => {
                    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
                }
            }
            modes.push(fs::metadata(&path).unwrap().permissions().mode());
        }
        assert_eq!(modes[0], modes[1], "{way} by a user");
    }
}

/// The kernel does not ask for holes of a file while a mapping may have filled them. Data is never reported as a hole.
#[test]
fn what_a_mapping_has_put_into_a_hole_is_data() {
    use rustix::fs::{SeekFrom as Seek, seek};
    const LENGTH: u64 = 1 << 20;
    let Some(mount) = writable(BUDGET_BYTES, LONG) else { return };
    let path = mount.path().join("file");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.unwrap();
    file.set_len(LENGTH).unwrap();
    let mut mapping = Mapping::new(&file, LENGTH as usize);
    mapping.bytes()[500_000] = 1;
    let at = seek(&file, Seek::Data(0)).unwrap();
    assert!(at <= 500_000, "{at}");
    let hole = seek(&file, Seek::Hole(at)).unwrap();
    assert!((500_001..=LENGTH).contains(&hole), "{hole}");
    drop(mapping);
    for end in [Seek::Data(LENGTH), Seek::Hole(LENGTH), Seek::Data(LENGTH + 1)] {
        assert_eq!(seek(&file, end), Err(rustix::io::Errno::NXIO));
    }
}
