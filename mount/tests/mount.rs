//! A read-only mount as programs see it.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{
    Gate, HeldBackend, Random, content, ioctl_cancel, ioctl_hint, mounted, mounted_with,
    mounted_within,
};
use foretell_cache::backend::memory::MemoryBackend;
use foretell_mount::MountError;

/// Files by path.
fn tree(seed: u64) -> BTreeMap<String, Vec<u8>> {
    let mut random = Random(seed);
    let mut files = BTreeMap::new();
    for number in 0..60 {
        let folder = ["", "a/", "a/b/", "long name, with ümlauts/", "a/b/c/d/e/f/"];
        let folder = folder[random.below(5) as usize];
        let length = [0, 1, 4095, 4096, 100_000, 1 << 20][random.below(6) as usize];
        let name = format!("{folder}{number}");
        files.insert(name, content(number, length + random.below(100) as usize));
    }
    files
}

fn put(files: &BTreeMap<String, Vec<u8>>) -> MemoryBackend {
    let backend = MemoryBackend::new();
    files.iter().for_each(|(path, bytes)| backend.put(path, bytes.as_slice()));
    backend
}

fn walk(folder: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        let metadata = entry.metadata().unwrap();
        assert_eq!(entry.file_type().unwrap(), metadata.file_type());
        assert_eq!(metadata.ino(), fs::metadata(entry.path()).unwrap().ino());
        if metadata.is_dir() {
            walk(&entry.path(), &format!("{name}/"), found);
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            assert_eq!(metadata.len(), bytes.len() as u64);
            assert!(found.insert(name, bytes).is_none(), "a name comes once");
        }
    }
}

#[test]
fn every_name_and_every_byte_is_there() {
    let files = tree(1);
    let Some(mount) = mounted(put(&files)) else { return };
    let mut found = BTreeMap::new();
    walk(mount.path(), "", &mut found);
    assert_eq!(found.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
    assert!(found == files);
    for absent in ["absent", "a/absent", "absent/below"] {
        let error = fs::metadata(mount.path().join(absent)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{absent}");
    }
    let (file, _) = files.iter().find(|(path, _)| !path.contains('/')).expect("some are");
    let error = fs::metadata(mount.path().join(file).join("below")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    let error = File::create(mount.path().join("new")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn what_no_file_can_be_called_is_left_out_and_the_rest_is_there() {
    let files = MemoryBackend::new();
    let long = "x".repeat(256);
    for key in ["/a", "dir//a", "dir/./b", "dir/..", &format!("dir/{long}"), "dir/a\0", "a//b"] {
        files.put(key, *b"not there");
    }
    // A name that is both a file and a folder is shown as the folder.
    let there = ["dir/file", "both/below", "both-not", "line\nfeed"];
    there.iter().for_each(|&key| files.put(key, *b"there"));
    files.put("both", *b"not there");
    let Some(mount) = mounted(common::PagedBackend(files)) else { return };
    for _ in 0..2 {
        let mut found = BTreeMap::new();
        walk(mount.path(), "", &mut found);
        let mut names: Vec<_> = found.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["both-not", "both/below", "dir/file", "line\nfeed"]);
        assert!(found.values().all(|bytes| bytes == b"there"));
        assert_eq!(fs::read_dir(mount.path().join("a")).unwrap().count(), 0);
    }
    let stats = fs::read_to_string(mount.path().join(".foretell/stats")).unwrap();
    assert!(stats.contains("\"names_left_out\": 7"), "{stats}");
    assert!(stats.contains("dir: 5 names are left out, which no file can have: "), "{stats}");
}

#[test]
fn reads_at_random_in_many_threads_with_and_without_the_page_cache() {
    let files = tree(2);
    // Far less memory than data.
    let Some(mount) = mounted_with(Arc::new(put(&files)), 256 << 10, Duration::ZERO) else {
        return;
    };
    let list: Vec<(&String, &Vec<u8>)> = files.iter().collect();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (list, mount) = (&list, &mount);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut buffer = vec![0; 200_000];
                for turn in 0..150 {
                    let (path, whole) = list[random.below(list.len() as u64) as usize];
                    let file = File::open(mount.path().join(path)).unwrap();
                    if turn % 3 == 0 {
                        // SAFETY: a plain call on a descriptor that is open.
                        unsafe {
                            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED)
                        };
                    }
                    for _ in 0..3 {
                        let at = random.below(whole.len() as u64 + 10) as usize;
                        let length = random.below(200_000) as usize;
                        let read = file.read_at(&mut buffer[..length], at as u64).unwrap();
                        let from = at.min(whole.len());
                        assert_eq!(read, length.min(whole.len() - from), "{path} at {at}");
                        assert!(buffer[..read] == whole[from..from + read], "{path} at {at}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_file_can_be_mapped() {
    let whole = content(3, 3_000_000);
    let files = MemoryBackend::new();
    files.put("file", whole.as_slice());
    let Some(mount) = mounted(files) else { return };
    let file = File::open(mount.path().join("file")).unwrap();
    // SAFETY: a new mapping of a file that does not change; it lives until it is unmapped.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            whole.len(),
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert!(std::slice::from_raw_parts(at.cast::<u8>(), whole.len()) == whole);
        libc::munmap(at, whole.len());
    }
}

#[test]
fn a_large_folder_is_listed_from_any_place() {
    let files = MemoryBackend::new();
    for number in 0..5000 {
        files.put(&format!("many/{number:04}"), *b"x");
    }
    files.put(".foretell/stats", *b"of the store");
    let Some(mount) = mounted(common::PagedBackend(files)) else { return };
    let names: Vec<_> =
        fs::read_dir(mount.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["many"], "neither `.foretell` nor the object it hides is listed");
    let folder = mount.path().join("many");
    for _ in 0..2 {
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 5000);
        names.dedup();
        assert_eq!(names.len(), 5000);
    }
    // Back to an earlier place, and to the beginning.
    let path = std::ffi::CString::new(folder.to_str().unwrap()).unwrap();
    // SAFETY: `dir` is open until it is closed, and entries are used before the next call.
    unsafe {
        let dir = libc::opendir(path.as_ptr());
        assert!(!dir.is_null());
        let next = || {
            let entry = libc::readdir(dir);
            assert!(!entry.is_null());
            std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()).to_owned()
        };
        let first: Vec<_> = (0..3000).map(|_| next()).collect();
        let place = libc::telldir(dir);
        let then: Vec<_> = (0..100).map(|_| next()).collect();
        libc::seekdir(dir, place);
        assert_eq!((0..100).map(|_| next()).collect::<Vec<_>>(), then);
        libc::rewinddir(dir);
        assert_eq!((0..3000).map(|_| next()).collect::<Vec<_>>(), first);
        libc::closedir(dir);
    }
}

#[test]
fn a_file_that_is_replaced_is_another() {
    let (old, new) = (content(4, 1 << 20), content(5, 1 << 20));
    let files = MemoryBackend::new();
    files.put("file", old.as_slice());
    let Some(mount) = mounted_with(Arc::new(files.clone()), 8 << 20, Duration::ZERO) else {
        return;
    };
    let path = mount.path().join("file");
    let mut buffer = vec![0; 1 << 20];
    let before = File::open(&path).unwrap();
    before.read_exact_at(&mut buffer[..4096], 0).unwrap();
    assert!(buffer[..4096] == old[..4096]);
    files.put("file", new.as_slice());
    let after = File::open(&path).unwrap();
    after.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer == new);
    assert_ne!(before.metadata().unwrap().ino(), after.metadata().unwrap().ino());
    // Programs that have the old version open get what is cached of it, and no byte of the new one.
    before.read_exact_at(&mut buffer[..4096], 0).unwrap();
    assert!(buffer[..4096] == old[..4096]);
    let error = before.read_exact_at(&mut buffer[..4096], 900_000).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    after.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer == new);
    // Removed, and made again.
    files.remove("file");
    assert_eq!(File::open(&path).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    files.put("file", old.as_slice());
    assert!(fs::read(&path).unwrap() == old);
}

/// Files are made, overwritten, replaced, renamed and removed behind the mount, and read through it. A program sees
/// what a plain folder would show it, or an error that its open file has changed.
#[test]
fn a_folder_that_others_change_is_seen_as_it_is() {
    use foretell_cache::backend::local::LocalBackend;
    const OPERATIONS: u32 = 10_000;
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let plain = tempfile::tempdir().unwrap();
    let backend = LocalBackend::new(plain.path(), None).unwrap();
    let Some(mount) = mounted_with(Arc::new(backend), 128 << 10, Duration::ZERO) else { return };
    fs::create_dir_all(plain.path().join("a/b")).unwrap();
    let mut buffer = vec![0; 70_000];
    // Open files of the mount, with the bytes that each had when it was opened.
    let mut open: Vec<(File, Vec<u8>)> = Vec::new();
    let (mut compared, mut stale) = (0, 0);
    for operation in 0..OPERATIONS {
        let name = ["", "a/", "a/b/"][random.below(3) as usize].to_owned()
            + ["x", "y", "z"][random.below(3) as usize];
        let (there, here) = (plain.path().join(&name), mount.path().join(&name));
        let length = [0, 1, 5000, 60_000][random.below(4) as usize] + random.below(50) as usize;
        match random.below(12) {
            0 => fs::write(&there, content(u64::from(operation), length)).unwrap(),
            1 => {
                // Half of the new files get the length and times of the file before.
                let before = fs::metadata(&there).ok().filter(|_| random.below(2) == 0);
                let length = before.as_ref().map_or(length, |before| before.len() as usize);
                let beside = plain.path().join("beside");
                fs::write(&beside, content(u64::from(operation), length)).unwrap();
                if let Some(before) = before {
                    let file = File::options().write(true).open(&beside).unwrap();
                    file.set_modified(before.modified().unwrap()).unwrap();
                }
                fs::rename(&beside, &there).unwrap();
            }
            2 => drop(fs::remove_file(&there)),
            3 => {
                let to = plain.path().join(["x", "a/y", "a/b/z"][random.below(3) as usize]);
                drop(fs::rename(&there, to));
            }
            4 => {
                let names = |folder: &Path| {
                    let mut names: Vec<_> = fs::read_dir(folder)
                        .unwrap()
                        .map(|entry| {
                            let entry = entry.unwrap();
                            (entry.file_name(), entry.metadata().unwrap().len() as usize)
                        })
                        .filter(|(name, _)| name != "a" && name != "b")
                        .collect();
                    names.sort();
                    names
                };
                let folder = ["", "a", "a/b"][random.below(3) as usize];
                assert_eq!(names(&mount.path().join(folder)), names(&plain.path().join(folder)));
            }
            5 => {
                let length = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
                assert_eq!(length(&here), length(&there), "{name} at {operation}");
            }
            6 => {
                if let Ok(file) = File::open(&here) {
                    open.push((file, fs::read(&there).unwrap()));
                }
            }
            7 if !open.is_empty() => drop(open.remove(random.below(open.len() as u64) as usize)),
            8 if !open.is_empty() => {
                let (file, bytes) = &open[random.below(open.len() as u64) as usize];
                let at = random.below(bytes.len() as u64 + 10);
                let rest = &bytes[bytes.len().min(at as usize)..];
                let rest = &rest[..rest.len().min(20_000)];
                let mut done = 0;
                // The kernel may have some pages, and return these first.
                loop {
                    match file.read_at(&mut buffer[..rest.len() - done], at + done as u64) {
                        Ok(read) => {
                            assert!(buffer[..read] == rest[done..done + read], "at {operation}");
                            done += read;
                            assert!(read > 0 || done == rest.len(), "at {operation}");
                        }
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
                            stale += 1;
                            break;
                        }
                    }
                    if done == rest.len() {
                        compared += 1;
                        break;
                    }
                }
            }
            _ => {
                let (mounted, plain) = (fs::read(&here).ok(), fs::read(&there).ok());
                assert!(mounted == plain, "{name} at {operation}");
            }
        }
    }
    eprintln!("{OPERATIONS} operations, {compared} reads of open files, {stale} of changed ones");
    assert!(compared > 100 && stale > 10, "{compared}, {stale}");
}

#[test]
fn within_the_ttl_a_name_stands_for_what_it_stood_for() {
    let files = MemoryBackend::new();
    files.put("file", *b"old");
    let Some(mount) = mounted_with(Arc::new(files.clone()), 8 << 20, Duration::from_secs(600))
    else {
        return;
    };
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"old");
    assert!(!mount.path().join("absent").exists());
    files.put("file", *b"other");
    files.put("absent", *b"here");
    // The new objects do not show yet.
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"old");
    assert!(!mount.path().join("absent").exists());
}

#[test]
fn after_the_ttl_the_store_is_asked_again() {
    let files = MemoryBackend::new();
    files.put("file", *b"old");
    let Some(mount) = mounted_with(Arc::new(files.clone()), 8 << 20, Duration::from_millis(50))
    else {
        return;
    };
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"old");
    assert!(!mount.path().join("absent").exists());
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 1);
    files.put("file", *b"other");
    files.put("absent", *b"here");
    let read = |name: &str| fs::read(mount.path().join(name)).unwrap_or_default();
    common::wait_until("the new one", || read("file") == b"other" && read("absent") == b"here");
}

#[test]
fn the_same_object_has_the_same_number_in_each_mount() {
    let files = put(&tree(4));
    let numbers = || {
        let mount = mounted(files.clone())?;
        let mut found = Vec::new();
        let mut folders = vec![mount.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let path = entry.path();
                let below = path.strip_prefix(mount.path()).unwrap().to_owned();
                found.push((below, entry.metadata().unwrap().ino()));
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                }
            }
        }
        found.sort();
        Some(found)
    };
    let Some(first) = numbers() else { return };
    assert_eq!(numbers(), Some(first));
}

#[test]
fn advice_for_many_ranges_is_as_many_requests_at_once() {
    let backend = HeldBackend::new(64 << 20, Gate::Closed);
    let Some(mount) = mounted_with(Arc::new(backend.clone()), 64 << 20, Duration::ZERO) else {
        return;
    };
    let file = File::open(mount.path().join("file")).unwrap();
    for number in 0..100 {
        // SAFETY: a plain call on a descriptor that is open.
        let advised = unsafe {
            let at = number * 640 * 1024;
            libc::posix_fadvise(file.as_raw_fd(), at, 128 << 10, libc::POSIX_FADV_WILLNEED)
        };
        assert_eq!(advised, 0);
    }
    backend.wait_until(|requests| requests.len() >= 100);
    assert!(backend.asked_bytes() <= 110 * (128 << 10), "no more than was advised");
    backend.open();
    let mut buffer = vec![0; 128 << 10];
    for number in 0..100 {
        file.read_exact_at(&mut buffer, number * 640 * 1024).unwrap();
        assert!(buffer.iter().all(|&byte| byte == 9));
    }
}

#[test]
fn hints_by_ioctl_are_fetched_ahead_and_given_up() {
    let backend = HeldBackend::new(64 << 20, Gate::Closed);
    let Some(mount) = mounted_with(Arc::new(backend.clone()), 16 << 20, Duration::ZERO) else {
        return;
    };
    let file = File::open(mount.path().join("file")).unwrap();
    let ranges: Vec<(u64, u64)> = (0..40).map(|number| (number * (1 << 20), 64 << 10)).collect();
    ioctl_hint(&file, &ranges, "").unwrap();
    // As many as the store takes at once, none of which a program waits for.
    backend.wait_until(|requests| requests.len() == 16 && requests.iter().all(|at| !at.is_demand));
    ioctl_cancel(&file).unwrap();
    backend.open();
    backend.wait_until(|requests| requests.is_empty());
    assert!(backend.asked_bytes() <= 16 * (64 << 10), "cancelled blocks are not fetched");
    // The same steps with hints by name.
    let control = File::open(mount.path().join(".foretell/control")).unwrap();
    backend.close();
    ioctl_hint(&control, &[(32 << 20, 8 << 10)], "file").unwrap();
    ioctl_hint(&control, &[(33 << 20, 8 << 10)], "/file").unwrap();
    ioctl_hint(&control, &[], "absent").unwrap();
    backend.wait_until(|requests| requests.len() == 2);
    backend.open();
    let mut buffer = vec![0; 8 << 10];
    for at in [32 << 20, 33 << 20] {
        file.read_exact_at(&mut buffer, at).unwrap();
    }
    let stats = fs::read_to_string(mount.path().join(".foretell/stats")).unwrap();
    assert!(stats.contains("\"source\": \"memory\""), "{stats}");
    // Malformed hints.
    let refused = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(refused(ioctl_hint(&file, &[(0, 0)], "")), Some(libc::EINVAL));
    assert_eq!(refused(ioctl_hint(&file, &[(0, 1)], "file")), Some(libc::EINVAL));
    assert_eq!(refused(ioctl_hint(&control, &[(0, 1)], "")), Some(libc::EINVAL));
    let folder = File::open(mount.path()).unwrap();
    assert_eq!(refused(ioctl_hint(&folder, &[(0, 1)], "")), Some(libc::ENOTTY));
    let elsewhere = tempfile::tempfile().unwrap();
    assert_eq!(refused(ioctl_hint(&elsewhere, &[(0, 1)], "")), Some(libc::ENOTTY));
}

#[test]
fn who_hints_without_end_is_told_to_try_later() {
    let backend = HeldBackend::new(64 << 20, Gate::Closed);
    let Some(mount) = mounted_with(Arc::new(backend.clone()), 16 << 20, Duration::ZERO) else {
        return;
    };
    let [one, other] = [(); 2].map(|()| File::open(mount.path().join("file")).unwrap());
    let control = File::open(mount.path().join(".foretell/control")).unwrap();
    let ranges: Vec<(u64, u64)> = (0..900).map(|number| (number << 16, 1 << 12)).collect();
    let mut given = 0;
    let refused = loop {
        match ioctl_hint(&one, &ranges, "") {
            Ok(()) => given += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    // Half of 256 MiB. A range takes 16 bytes, and each hint one or two hundred more.
    assert!((124..=128).contains(&((given * 900 * 16) >> 20)), "{given}");
    // The limit holds for all descriptors of the process.
    for (file, path) in [(&other, ""), (&control, "file")] {
        let refused = ioctl_hint(file, &ranges, path).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    }
    ioctl_cancel(&one).unwrap();
    for (file, path) in [(&other, ""), (&control, "file")] {
        ioctl_hint(file, &ranges, path).unwrap();
    }
    backend.open();
}

#[test]
fn what_a_descriptor_was_told_goes_with_it() {
    let backend = HeldBackend::new(64 << 20, Gate::Closed);
    // All of the file would fit into memory.
    let Some(mount) = mounted_with(Arc::new(backend.clone()), 128 << 20, Duration::ZERO) else {
        return;
    };
    // A separate half of the file for each descriptor, as data in memory is not asked for again.
    for (name, path, at) in [("file", "", 0), (".foretell/control", "file", 32 << 20)] {
        let file = File::open(mount.path().join(name)).unwrap();
        backend.close();
        ioctl_hint(&file, &[(at, 32 << 20)], path).unwrap();
        // The depth of prefetching is found by trial; it may be one.
        backend.wait_until(|requests| !requests.is_empty());
        drop(file);
        // The kernel's release comes a little later. Reads in flight end, and no new ones begin.
        let stats = || fs::read_to_string(mount.path().join(".foretell/stats")).unwrap();
        common::wait_until("the file to be closed", || stats().contains("\"open_handles\": 0"));
        // Its hint is cancelled just after it has left the table.
        std::thread::sleep(Duration::from_millis(100));
        let asked = backend.asked_bytes();
        assert!(asked < at + (32 << 20), "not all was asked for");
        backend.open();
        backend.wait_until(|requests| requests.is_empty());
        assert_eq!(backend.asked_bytes(), asked, "{name}");
    }
}

#[test]
fn hints_for_many_files_hold_nobody_up_and_end_with_their_descriptor() {
    let backend = HeldBackend::new(1 << 20, Gate::Open);
    let Some(mount) = mounted_with(Arc::new(backend.clone()), 16 << 20, Duration::ZERO) else {
        return;
    };
    let control = File::open(mount.path().join(".foretell/control")).unwrap();
    backend.hold_names();
    let mut given = 0;
    let error = loop {
        match ioctl_hint(&control, &[(0, 1)], "absent") {
            Ok(()) => given += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN), "after {given}");
    // Lookups for hints wait; those of a program do not.
    assert_eq!(fs::read(mount.path().join("file")).unwrap().len(), 1 << 20);
    drop(control);
    let stats = || fs::read_to_string(mount.path().join(".foretell/stats")).unwrap();
    common::wait_until("the file to be closed", || stats().contains("\"open_handles\": 0"));
    let asked = backend.let_names_go();
    assert!(asked < 100, "the others are not looked up");
    common::wait_until("lookups to end", || backend.names_held() == 0);
    assert_eq!(backend.let_names_go(), asked);
}

#[test]
fn attributes_say_what_is_cached() {
    let files = MemoryBackend::new();
    files.put("file", content(6, 100_000));
    let Some(mount) = mounted(files) else { return };
    let path = mount.path().join("file");
    assert_eq!(common::attribute(&path, "user.foretell.cached_bytes").unwrap(), "0");
    let mut file = File::open(&path).unwrap();
    file.seek(SeekFrom::Start(50_000)).unwrap();
    file.read_exact(&mut [0; 10]).unwrap();
    let cached: u64 =
        common::attribute(&path, "user.foretell.cached_bytes").unwrap().parse().unwrap();
    assert!(cached >= 4096, "{cached}");
    let ranges = common::attribute(&path, "user.foretell.cached_ranges").unwrap();
    let (from, to) = ranges.split(' ').next().unwrap().split_once('-').unwrap();
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    assert!(from <= 50_000 && to >= 50_010, "{ranges}");
    // The reason: first that it was read, then that it is expected to be read.
    let why = || common::attribute(&path, "user.foretell.cached_for").unwrap();
    common::wait_until("what was read", || why().contains(&format!("recent={cached} ")));
    ioctl_hint(&file, &[(0, 100_000)], "").unwrap();
    common::wait_until("what is to be read", || why() == "expected=100000 recent=0 read=0");
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut Vec::new()).unwrap();
    common::wait_until("that it was read", || !why().ends_with("read=0"));
    for name in ["user.other", "user.foretell.other", "security.selinux"] {
        assert!(common::attribute(&path, name).is_err(), "{name}");
    }
}

#[test]
fn unmounting_waits_for_no_request() {
    let backend = HeldBackend::new(1 << 20, Gate::Closed);
    let Some(mount) = mounted_with(Arc::new(backend.clone()), 16 << 20, Duration::ZERO) else {
        return;
    };
    let path = mount.path().join("file");
    let reader = std::thread::spawn(move || fs::read(path));
    backend.wait_until(|requests| !requests.is_empty());
    assert!(mount.unmount().unwrap(), "a program still uses it");
    backend.open();
    // It was served after all, or got an error that the mount has gone.
    if let Ok(bytes) = reader.join().unwrap() {
        assert!(bytes.iter().all(|&byte| byte == 9));
    }
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let files = MemoryBackend::new();
    let Some(mount) = mounted(files.clone()) else { return };
    let again = common::mount_at(mount.path(), Arc::new(files.clone())).unwrap_err();
    assert!(matches!(again, MountError::AlreadyMounted { .. }), "{again}");
    let full = tempfile::tempdir().unwrap();
    fs::write(full.path().join("file"), b"").unwrap();
    let refused = common::mount_at(full.path(), Arc::new(files)).unwrap_err();
    assert!(matches!(refused, MountError::NotEmpty { .. }), "{refused}");
}

#[test]
fn a_folder_that_does_not_answer_in_time_is_an_error() {
    // More programs than the pool has threads.
    const PROGRAMS: usize = 80;
    let files = HeldBackend::new(1 << 20, Gate::Open);
    let timeout = Some(Duration::from_millis(400));
    let how = (8 << 20, Duration::ZERO);
    let Some(mount) = mounted_within(Arc::new(files.clone()), how, timeout) else { return };
    let at = |name: &str| mount.path().join(name);
    let file = File::open(at("file")).unwrap();
    files.hold_names();
    std::thread::scope(|scope| {
        for number in 0..PROGRAMS {
            let name = at(&format!("absent {number}"));
            scope.spawn(move || {
                let error = fs::metadata(name).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
            });
        }
    });
    files.let_names_go();
    // The threads that waited become free after a while.
    common::wait_until("an answer", || {
        fs::metadata(at("absent")).unwrap_err().raw_os_error() == Some(libc::ENOENT)
    });
    files.close();
    let mut byte = [0];
    let error = file.read_exact_at(&mut byte, 500_000).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let stats = fs::read_to_string(at(".foretell/stats")).unwrap();
    assert!(stats.contains("no answer within 0.4 s"), "{stats}");
    files.open();
    file.read_exact_at(&mut byte, 500_000).unwrap();
    assert_eq!(byte, [9]);
}
