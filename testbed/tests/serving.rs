//! A mounted array serves the content of its folder and counts the work of its disks.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use common::{Folders, fast, will_need, write};
use foretell_policy::queue::Order;
use foretell_testbed::{Array, ArrayOptions, LayoutKind, Report};

fn mount(folders: &Folders, options: &ArrayOptions) -> Array {
    Array::mount(&folders.backing, &folders.mountpoint, options).expect("mounting works here")
}

/// Everything below `root` that a program can see, by relative path.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path).expect("what is listed exists");
            let content = if metadata.is_dir() {
                folders.push(path.clone());
                String::new()
            } else if metadata.is_symlink() {
                format!("{:?}", fs::read_link(&path).expect("a link"))
            } else {
                let bytes = fs::read(&path).expect("a file");
                assert_eq!(bytes.len() as u64, metadata.len());
                format!("{:?}", bytes)
            };
            let line = format!(
                "{:o} {} {} {} {} {}.{} {} {:?} {content}",
                metadata.mode(),
                metadata.nlink(),
                metadata.uid(),
                metadata.gid(),
                metadata.len(),
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ino(),
                entry.file_type().expect("listings have types"),
            );
            let name = path.strip_prefix(root).expect("it is below").to_path_buf();
            seen.insert(name, line);
        }
    }
    seen
}

#[test]
fn a_tree_looks_like_its_backing_folder() {
    needs_fuse!();
    let folders = Folders::new();
    let deep = folders.backing.join("a/b/c d/é");
    fs::create_dir_all(&deep).expect("folders");
    for (index, bytes) in
        [0, 1, 511, 4095, 4096, 4097, 100_000, 131_073, 1_500_000].into_iter().enumerate()
    {
        write(&folders.backing.join(format!("size{bytes}")), index as u64, bytes);
        write(&deep.join(format!("deep{bytes}")), 100 + index as u64, bytes);
    }
    symlink("size4096", folders.backing.join("link")).expect("a link");
    symlink("nowhere", folders.backing.join("a/dangling")).expect("a link");
    fs::hard_link(folders.backing.join("size1"), deep.join("same")).expect("a hard link");
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(folders.backing.join("size1"), mode).expect("own file");
    fs::create_dir(folders.backing.join("empty")).expect("a folder");
    for index in 0..500 {
        write(&folders.backing.join(format!("empty/{index:0100}")), index, 3);
    }
    let expected = snapshot(&folders.backing);
    for layout in LayoutKind::ALL {
        let array = mount(&folders, &ArrayOptions { layout, time_scale: 0.001, ..fast() });
        assert_eq!(snapshot(&folders.mountpoint), expected, "{layout}");
        // Once more, from the caches.
        assert_eq!(snapshot(&folders.mountpoint), expected, "{layout}");
        let report = array.unmount().expect("nothing is open");
        assert!(!report.in_use_after_unmount);
        assert!(report.bytes >= 2 * 1_700_000);
    }
}

#[test]
fn nothing_can_be_written() {
    needs_fuse!();
    let folders = Folders::with_files(1, 10);
    let _array = mount(&folders, &fast());
    let file = folders.files(1).remove(0);
    let error = File::options().write(true).open(&file).expect_err("read-only");
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    let error = fs::write(folders.mountpoint.join("new"), "x").expect_err("read-only");
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    let missing = File::open(folders.mountpoint.join("missing")).expect_err("not there");
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn pages_and_inodes_are_paid_for_once() {
    needs_fuse!();
    let folders = Folders::with_files(10, 20_000);
    let array = mount(&folders, &fast());
    let read_all = || -> Report {
        for path in folders.files(10) {
            fs::read(path).expect("a file");
        }
        array.report()
    };
    let first = read_all();
    assert_eq!(first.metadata_reads, 10);
    assert!(first.requests >= 20);
    assert_eq!(read_all().requests, first.requests);
    fs::read_dir(&folders.mountpoint).expect("the root").for_each(drop);
    assert_eq!(array.report().metadata_reads, 11);
    fs::read_dir(&folders.mountpoint).expect("the root").for_each(drop);
    assert_eq!(array.report().metadata_reads, 11);
    array.reset_statistics();
    assert_eq!(array.report().requests, 0);
}

#[test]
fn metadata_can_be_free() {
    needs_fuse!();
    let folders = Folders::with_files(10, 4096);
    let array = mount(&folders, &ArrayOptions { metadata: false, ..fast() });
    for path in folders.files(10) {
        fs::metadata(path).expect("a file");
    }
    assert_eq!(array.report().requests, 0);
}

/// Reads all files: after advising the kernel of all of them, or one after the other.
fn read_files(options: &ArrayOptions, count: usize, ahead: bool) -> Report {
    let folders = Folders::with_files(count, 8192);
    let array = mount(&folders, options);
    let mut files: Vec<File> =
        folders.files(count).iter().map(|path| File::open(path).expect("a file")).collect();
    array.reset_statistics();
    if ahead {
        files.iter().for_each(will_need);
    }
    for file in &mut files {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("a file");
        assert_eq!(bytes.len(), 8192);
    }
    drop(files);
    let report = array.unmount().expect("nothing is open");
    // The kernel may drop a page before it is read, and fetch it again.
    let bytes = count as u64 * 8192;
    assert!((bytes..bytes + bytes / 10).contains(&report.bytes), "{} of {bytes}", report.bytes);
    report
}

#[test]
fn advice_fills_the_queues_of_all_disks() {
    needs_fuse!();
    let options = ArrayOptions { layout: LayoutKind::Aged, time_scale: 0.25, ..fast() };
    let hinted = read_files(&options, 400, true);
    let waiting: u64 = hinted.disks.iter().map(|disk| disk.queue_max).sum();
    assert!(waiting > 64, "only {waiting} waited");
    for disk in &hinted.disks {
        assert!(disk.requests > 50 && disk.queue_max > 1, "{disk:?}");
        assert!(disk.busy_s > 0.0 && disk.busy_s <= hinted.elapsed_s + 0.1);
    }
    eprintln!("400 files of 8 KB, hinted: {:.2} s, at most {waiting} waited", hinted.elapsed_s);
}

#[test]
fn without_advice_disks_work_one_at_a_time() {
    needs_fuse!();
    let plain = read_files(&ArrayOptions { layout: LayoutKind::Aged, ..fast() }, 60, false);
    assert!(plain.disks.iter().all(|disk| disk.queue_max <= 1));
}

#[test]
fn scan_moves_the_arm_less_than_fifo() {
    needs_fuse!();
    let travelled = |order| {
        let options = ArrayOptions {
            order,
            outstanding: 1,
            disks: 1,
            layout: LayoutKind::Aged,
            time_scale: 0.02,
            ..fast()
        };
        read_files(&options, 200, true).disks[0].cylinders_travelled
    };
    let (fifo, scan) = (travelled(Order::Fifo), travelled(Order::Scan));
    assert!(scan * 3 < fifo, "scan {scan}, fifo {fifo}");
}

#[test]
fn lookups_in_one_folder_go_on_side_by_side() {
    needs_fuse!();
    let folders = Folders::with_files(64, 1);
    let options = ArrayOptions { layout: LayoutKind::Aged, time_scale: 0.25, disks: 1, ..fast() };
    let array = mount(&folders, &options);
    std::thread::scope(|scope| {
        for path in folders.files(64) {
            scope.spawn(move || fs::metadata(path).expect("a file"));
        }
    });
    let report = array.report();
    assert_eq!(report.metadata_reads, 64);
    assert!(report.disks[0].queue_max > 8, "{}", report.disks[0].queue_max);
}

#[test]
fn a_file_cut_short_beneath_the_array_reads_short() {
    needs_fuse!();
    let folders = Folders::with_files(2, 50_000);
    let _array = mount(&folders, &fast());
    let paths = folders.files(2);
    let file = File::open(&paths[0]).expect("a file");
    let backing = File::options().write(true).open(folders.backing.join("f000")).expect("mine");
    backing.set_len(10).expect("mine");
    let mut bytes = vec![0; 50_000];
    let count = file.read_at(&mut bytes, 0).expect("no error, fewer bytes");
    assert!(count <= 50_000);
    // A file is removed in the backing folder: the program sees that folder's error.
    let metadata = fs::metadata(&paths[1]).expect("a file");
    assert_eq!(metadata.len(), 50_000);
    fs::remove_file(folders.backing.join("f001")).expect("mine");
    let error = fs::read(&paths[1]).expect_err("it is gone");
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn flat_devices_can_be_mounted_too() {
    needs_fuse!();
    let disk = foretell_sim::device::DiskParameters::by_name("object-store").expect("built in");
    let report = read_files(&ArrayOptions { disk, disks: 1, ..fast() }, 100, true);
    assert_eq!(report.disks[0].seeks, 0);
    assert!(report.disks[0].queue_max > 8);
}
