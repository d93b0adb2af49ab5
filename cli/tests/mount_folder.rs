//! Mounted folders, from the outside: links in them, folders that contain their own mount, full disks, and 32-bit inode
//! numbers.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{foretell, have, have_fuse, is_mounted, is_root, skipped, text, wait_until};
use foretell_testbed::store::{Store, StoreOptions};

/// Longer than any operation takes.
const PATIENCE: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65_534;
/// The kinds of servers of a folder.
const KINDS: [&[&str]; 3] = [&["mount"], &["mount", "--read-write"], &["array", "mount"]];

/// A mount in the foreground, killed and unmounted on drop.
struct Mounted(Child, std::path::PathBuf);

impl Mounted {
    fn new(words: &[&str], source: &str, at: &Path) -> Self {
        let mut command = foretell();
        command.args(words).arg("--foreground").arg(source).arg(at);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs");
        wait_until("the mount", || is_mounted(at));
        Mounted(child, at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.1).stderr(Stdio::null()).status();
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A program's output and exit status. If it does not end soon, the mount at `at` is removed, so that it can end.
fn soon(command: &mut Command, at: &Path) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it runs");
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        abort(at);
        panic!("{command:?} has not ended");
    });
    waiter.join().expect("it has told").expect("it is heard");
    output.expect("it ran")
}

/// Aborts a mount that waits for itself, through the kernel.
fn abort(at: &Path) {
    // The device is in the table of mounts; asking the mount itself would hang too.
    let connections = Path::new("/sys/fs/fuse/connections");
    if fs::read_dir(connections).is_ok_and(|mut entries| entries.next().is_none()) {
        let _ = Command::new("mount").args(["-t", "fusectl", "none"]).arg(connections).status();
    }
    let table = fs::read_to_string("/proc/self/mountinfo").expect("listed");
    let line = table.lines().rfind(|line| line.contains(&format!(" {} ", at.display())));
    let minor = line.and_then(|line| line.split(' ').nth(2)?.strip_prefix("0:"));
    if let Some(minor) = minor {
        let _ = fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
    }
}

/// A folder `data` with a link to its parent, in which the mount point `mnt` lies too.
fn above_itself() -> tempfile::TempDir {
    let top = tempfile::tempdir().expect("a folder");
    let data = top.path().join("data");
    fs::create_dir_all(data.join("sub")).expect("made");
    fs::create_dir(data.join("inner")).expect("made");
    fs::create_dir(top.path().join("mnt")).expect("made");
    fs::write(data.join("sub/file"), "inside").expect("written");
    fs::write(data.join("bound"), "").expect("written");
    symlink("..", data.join("parent")).expect("linked");
    top
}

#[test]
fn a_folder_with_a_link_above_its_own_mount_is_read_to_its_end() {
    if !have_fuse() {
        return;
    }
    for kind in KINDS {
        let top = above_itself();
        let (data, mnt) = (top.path().join("data"), top.path().join("mnt"));
        let _mounted = Mounted::new(kind, path_text(&data), &mnt);
        for follow in ["-P", "-L"] {
            let found = soon(Command::new("find").arg(follow).arg(&mnt), &mnt);
            let names = text(&found.stdout);
            assert!(names.contains("/mnt/parent\n") || follow == "-L", "{kind:?}: {names}");
            assert!(names.contains("/mnt/sub/file\n"), "{kind:?}: {names}");
        }
        let read = soon(Command::new("cat").arg(mnt.join("parent/data/sub/file")), &mnt);
        assert_eq!(text(&read.stdout), "inside", "{kind:?}");
        let through =
            soon(Command::new("cat").arg(mnt.join("parent/mnt/parent/mnt/sub/file")), &mnt);
        assert_eq!(text(&through.stdout), "inside", "{kind:?}");
    }
}

/// The mount is bound into its own folder, as a whole and as one file: a server that looked there would wait for itself.
#[test]
fn a_mount_that_comes_to_lie_in_its_own_folder_is_not_entered() {
    if !have_fuse() || !is_root() {
        return;
    }
    for kind in KINDS {
        let top = above_itself();
        let (data, mnt) = (top.path().join("data"), top.path().join("mnt"));
        let mut mounted = Mounted::new(kind, path_text(&data), &mnt);
        let bind = |from: &Path, to: &Path| {
            let bound = Command::new("mount").arg("--bind").args([from, to]).status();
            assert!(bound.expect("it runs").success());
        };
        bind(&mnt, &data.join("inner"));
        bind(&mnt.join("sub/file"), &data.join("bound"));
        let found = soon(Command::new("find").arg(&mnt), &mnt);
        let (names, errors) = (text(&found.stdout), text(&found.stderr));
        assert!(names.contains("/mnt/sub/file\n"), "{kind:?}: {names}");
        assert!(!names.contains("inner/"), "{kind:?}: {names}");
        assert!(
            errors.contains("inner") && errors.contains("symbolic links"),
            "{kind:?}: {errors}"
        );
        for inside in ["inner/sub/file", "inner/absent", "bound"] {
            let read = soon(Command::new("cat").arg(mnt.join(inside)), &mnt);
            assert!(!read.status.success() && read.stdout.is_empty(), "{kind:?}: {inside}");
        }
        // In any state, the mount ends when it is killed.
        let searches: Vec<Child> = (0..8)
            .map(|_| {
                let mut command = Command::new("find");
                command.arg("-L").arg(&mnt).stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().expect("it runs")
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        mounted.0.kill().expect("it runs");
        let until = Instant::now() + PATIENCE;
        while mounted.0.try_wait().expect("a child").is_none() {
            if Instant::now() > until {
                abort(&mnt);
                panic!("{kind:?}: it is still there");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for mut search in searches {
            search.wait().expect("it ends");
        }
        for place in ["inner", "bound"] {
            let gone = Command::new("umount").arg("-l").arg(data.join(place)).status();
            assert!(gone.expect("it runs").success());
        }
    }
}

/// Another foretell mount below the folder is not entered either: it might lead back here. A mount of another kind is.
#[test]
fn other_file_systems_below_a_folder_are_shown() {
    if !have_fuse() || !is_root() {
        return;
    }
    for kind in KINDS {
        let top = above_itself();
        let (data, mnt) = (top.path().join("data"), top.path().join("mnt"));
        let inner = data.join("inner");
        let disk = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inner).status();
        if !disk.expect("it runs").success() {
            return skipped("no tmpfs can be mounted");
        }
        fs::create_dir(inner.join("deep")).expect("made");
        fs::write(inner.join("deep/file"), "on another one").expect("written");
        symlink("deep/file", inner.join("link")).expect("linked");
        let mounted = Mounted::new(kind, path_text(&data), &mnt);
        for name in ["inner/deep/file", "inner/link"] {
            let read = soon(Command::new("cat").arg(mnt.join(name)), &mnt);
            assert_eq!(text(&read.stdout), "on another one", "{kind:?}: {}", text(&read.stderr));
        }
        drop(mounted);
        assert!(Command::new("umount").arg("-l").arg(&inner).status().expect("it runs").success());
    }
}

#[test]
fn who_reads_through_roots_mount_gets_nothing_from_outside_of_the_folder() {
    if !have_fuse() || !is_root() {
        return;
    }
    let top = tempfile::tempdir().expect("a folder");
    let at = |name: &str| top.path().join(name);
    fs::set_permissions(top.path(), PermissionsExt::from_mode(0o755)).expect("set");
    fs::create_dir(at("outside")).expect("made");
    fs::write(at("outside/file"), "secret").expect("written");
    fs::set_permissions(at("outside/file"), PermissionsExt::from_mode(0o600)).expect("set");
    // Links that any user with write permission in the folder can make.
    for kind in KINDS {
        let (data, mnt) = (at("data"), at("mnt"));
        for folder in [&data, &mnt, &data.join("sub"), &data.join("later")] {
            fs::create_dir(folder).expect("made");
            fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).expect("set");
        }
        fs::write(data.join("later/file"), "inside").expect("written");
        fs::set_permissions(data.join("later/file"), PermissionsExt::from_mode(0o644))
            .expect("set");
        symlink(at("outside/file"), data.join("absolute")).expect("linked");
        symlink("../../outside/file", data.join("sub/relative")).expect("linked");
        symlink(at("outside"), data.join("folder")).expect("linked");
        symlink("../outside", data.join("near")).expect("linked");
        let mut words = kind.to_vec();
        if kind[0] == "mount" {
            words.extend(["--allow-other", "--ttl", "60min"]);
        }
        let mounted = Mounted::new(&words, path_text(&data), &mnt);
        let as_nobody = |name: &str| {
            let mut command = Command::new("cat");
            let read = soon(command.arg(mnt.join(name)).uid(NOBODY).gid(NOBODY), &mnt);
            text(&read.stdout)
        };
        assert_eq!(as_nobody("later/file"), "inside", "{kind:?}");
        for name in ["absolute", "sub/relative", "folder/file", "near/file"] {
            assert_eq!(as_nobody(name), "", "{kind:?}: {name}");
        }
        // A folder that the mount knows has become a link.
        fs::rename(data.join("later"), data.join("before")).expect("renamed");
        symlink(at("outside"), data.join("later")).expect("linked");
        for name in ["later/file", "later/."] {
            assert!(!as_nobody(name).contains("secret"), "{kind:?}: {name}");
        }
        // The mounted folder itself has become a link too: the mount still shows the original folder.
        fs::rename(&data, at("moved")).expect("renamed");
        symlink(at("outside"), &data).expect("linked");
        assert_eq!(as_nobody("file"), "", "{kind:?}");
        assert_eq!(as_nobody("before/file"), "inside", "{kind:?}");
        drop(mounted);
        fs::remove_file(&data).expect("removed");
        fs::remove_dir_all(at("moved")).expect("removed");
        fs::remove_dir(&mnt).expect("removed");
    }
}

#[test]
fn links_in_a_folder_are_the_same_links_in_its_mount() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("sub")).expect("made");
    fs::write(at("sub/file"), "inside").expect("written");
    let long = "x/".repeat(2000) + "y";
    for (target, name) in [
        ("sub/file", "near"),
        ("file", "sub/beside"),
        ("../near", "sub/up"),
        ("sub", "folder"),
        ("nowhere", "dangling"),
        ("/etc/hostname", "absolute"),
        ("loop", "loop"),
        (&long, "long"),
    ] {
        symlink(target, at(name)).expect("linked");
    }
    let mounted = Mounted::new(&["mount"], path_text(folder.path()), mnt.path());
    let told = |folder: &Path| {
        let mut command = Command::new("find");
        command.args([".", "-printf", "%P %y %l\\n"]).current_dir(folder);
        let found = soon(&mut command, mnt.path());
        let mut lines: Vec<String> = text(&found.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(told(folder.path()), told(mnt.path()));
    for name in ["near", "sub/beside", "sub/up", "folder/file"] {
        assert_eq!(fs::read_to_string(mnt.path().join(name)).expect(name), "inside");
    }
    let (here, there) =
        (fs::symlink_metadata(mnt.path().join("long")), fs::symlink_metadata(at("long")));
    assert_eq!(here.expect("a link").len(), there.expect("a link").len());
    // Another link by the same name is another one.
    fs::remove_file(at("near")).expect("removed");
    symlink("sub", at("near")).expect("linked");
    wait_until("the new link", || {
        fs::read_link(mnt.path().join("near")).is_ok_and(|target| target == Path::new("sub"))
    });
    drop(mounted);
}

#[test]
fn a_folder_that_goes_away_takes_its_mount_nowhere() {
    if !have_fuse() {
        return;
    }
    let (top, mnt) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let data = top.path().join("data");
    for kind in [KINDS[0], KINDS[1]] {
        fs::create_dir(&data).expect("made");
        fs::write(data.join("file"), "inside").expect("written");
        let mut words = kind.to_vec();
        words.extend(["--ttl", "0s"]);
        let mounted = Mounted::new(&words, path_text(&data), mnt.path());
        assert_eq!(fs::read_to_string(mnt.path().join("file")).expect("there"), "inside");
        fs::remove_dir_all(&data).expect("removed");
        let error = fs::read_to_string(mnt.path().join("file")).expect_err("it is gone");
        assert!(matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)), "{error}");
        assert_eq!(fs::read_dir(mnt.path()).expect("listed").count(), 0);
        rustix::fs::statvfs(mnt.path()).expect("its file system is there");
        drop(mounted);
    }
}

#[test]
fn room_is_told_of_folders_and_of_stores() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    fs::create_dir(folder.path().join("bucket")).expect("made");
    fs::write(folder.path().join("bucket/file"), "inside").expect("written");
    let check = |what: &str| {
        assert_ne!(fs::metadata(mnt.path()).expect("there").ino(), 0, "{what}");
        let path = path_text(mnt.path());
        for options in [&["-P"][..], &["-P", "-h"], &["-P", "-i"]] {
            let told = soon(Command::new("df").args(options), mnt.path());
            let told = text(&told.stdout);
            let line = told.lines().find(|line| line.ends_with(path));
            let line = line.unwrap_or_else(|| panic!("{what}: df {options:?} has not: {told}"));
            let columns: Vec<&str> = line.split_whitespace().rev().collect();
            assert!(columns[4] != "0", "{what}: {line}");
        }
        if have("python3") {
            let script = "import shutil, sys; d = shutil.disk_usage(sys.argv[1]); \
                          assert 0 <= d.used / d.total <= 1 and d.free > 0, d";
            let ran = soon(Command::new("python3").args(["-c", script, path]), mnt.path());
            assert!(ran.status.success(), "{what}: {}", text(&ran.stderr));
        }
    };
    for kind in KINDS {
        let mounted = Mounted::new(kind, path_text(folder.path()), mnt.path());
        let here = rustix::fs::statvfs(mnt.path()).expect("told");
        let there = rustix::fs::statvfs(folder.path()).expect("told");
        assert_eq!(
            (here.f_blocks, here.f_frsize, here.f_bsize, here.f_namemax),
            (there.f_blocks, there.f_frsize, there.f_bsize, there.f_namemax),
            "{kind:?}"
        );
        // Others write meanwhile.
        assert!(here.f_bavail.abs_diff(there.f_bavail) < there.f_blocks / 10, "{kind:?}");
        check(kind[0]);
        drop(mounted);
    }
    let store = Store::start(folder.path(), &StoreOptions::fast()).expect("it starts");
    let mut command = foretell();
    command.args(["mount", "s3://bucket"]).arg(mnt.path()).stdin(Stdio::null()).envs([
        ("AWS_ENDPOINT_URL", store.endpoint().as_str()),
        ("AWS_ACCESS_KEY_ID", "foretell"),
        ("AWS_SECRET_ACCESS_KEY", "foretell-secret"),
        ("AWS_REGION", "us-east-1"),
    ]);
    let mounted = command.output().expect("it runs");
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    let told = rustix::fs::statvfs(mnt.path()).expect("told");
    assert_eq!(told.f_blocks * told.f_frsize, 1 << 50);
    assert_eq!((told.f_bavail, told.f_namemax), (told.f_blocks, 255));
    assert!(told.f_blocks < 1 << 32 && told.f_files < 1 << 32, "for programs of 32 bits");
    check("bucket");
    let unmounted = foretell().arg("unmount").arg(mnt.path()).output().expect("it runs");
    assert!(unmounted.status.success(), "{}", text(&unmounted.stderr));
}

#[test]
fn a_program_of_32_bits_lists_a_mount_of_small_numbers() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/lists_in_32_bits.c");
    let program = folder.path().join("lists_in_32_bits");
    let compiled =
        Command::new("cc").args(["-m32", "-O1", "-Wall", "-o"]).args([&program, &source]).output();
    if !compiled.is_ok_and(|compiled| compiled.status.success()) {
        return skipped("no compiler for 32 bits (gcc-multilib)");
    }
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("sub")).expect("made");
    for number in 0..3000 {
        fs::write(data.join(format!("file {number}")), "").expect("written");
    }
    symlink("sub", data.join("link")).expect("linked");
    let lists = || {
        let told = soon(Command::new(&program).arg(mnt.path()), mnt.path());
        assert!(told.status.success(), "{}", text(&told.stderr) + &text(&told.stdout));
        let mut names: Vec<String> = text(&told.stdout).lines().map(str::to_owned).collect();
        names.sort();
        names
    };
    for kind in [KINDS[0], KINDS[1]] {
        let mut words = kind.to_vec();
        words.extend(["--inode-bits", "32", "--ttl", "0s"]);
        let mounted = Mounted::new(&words, path_text(&data), mnt.path());
        let names = lists();
        assert_eq!(names.len(), 3002, "{kind:?}");
        let number = |name: &str| fs::symlink_metadata(mnt.path().join(name)).expect("there").ino();
        let before: Vec<u64> = names.iter().map(|name| number(name)).collect();
        // The kernel drops unused inodes, if this is permitted.
        let _ = fs::write("/proc/sys/vm/drop_caches", "2");
        assert_eq!(lists(), names, "{kind:?}");
        let after: Vec<u64> = names.iter().map(|name| number(name)).collect();
        assert_eq!(before, after, "{kind:?}");
        drop(mounted);
    }
    let refused = foretell().args(["mount", "--inode-bits", "16", "a", "b"]).output();
    assert_eq!(refused.expect("it runs").status.code(), Some(2));
}
