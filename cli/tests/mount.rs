//! `foretell mount` from the outside.

mod common;
#[path = "../../cache/tests/server/mod.rs"]
mod server;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{
    foretell, have, have_fuse, is_mounted, sample_files, sample_folder, text, wait_until,
};
use foretell_testbed::store::{Store, StoreOptions};
use rustix::process::{Pid, Signal, kill_process};
use server::{Files, Tells, put, say, serve, web};

fn mount(source: &str, mountpoint: &Path, options: &[&str]) -> Output {
    let mut command = foretell();
    command.arg("mount").arg(source).arg(mountpoint).args(options).stdin(Stdio::null());
    command.output().expect("foretell runs")
}

fn unmount(mountpoint: &Path) -> Output {
    foretell().arg("unmount").arg(mountpoint).output().expect("foretell runs")
}

fn in_foreground(source: &Path, mountpoint: &Path, options: &[&str]) -> Child {
    let mut command = foretell();
    command.args(["mount", "--foreground"]).args(options).arg(source).arg(mountpoint);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    wait_until("the mount", || is_mounted(mountpoint));
    child
}

#[test]
fn a_folder_is_mounted_read_and_unmounted() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let source = folder.path().to_str().expect("UTF-8");
    let mounted = mount(source, mnt.path(), &["--budget", "1MiB"]);
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    assert!(text(&mounted.stdout).contains("read-only, 1 MiB of memory"));
    let as_array = foretell().args(["array", "unmount"]).arg(mnt.path()).output().expect("it runs");
    assert_eq!(as_array.status.code(), Some(1));
    let way_out = format!(
        "of the kind store, not array; unmount it with: foretell unmount {}\n",
        mnt.path().display()
    );
    assert!(text(&as_array.stderr).ends_with(&way_out), "{}", text(&as_array.stderr));
    let compared = Command::new("diff").arg("-r").args([folder.path(), mnt.path()]).status();
    assert!(compared.expect("diff runs").success());
    let unmounted = unmount(mnt.path());
    assert!(unmounted.status.success(), "{}", text(&unmounted.stderr));
    let said = text(&unmounted.stdout);
    assert!(said.contains(" fetched in ") && said.lines().count() == 1, "{said}");
    assert!(!is_mounted(mnt.path()));
    let again = unmount(mnt.path());
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("no store is mounted at"), "{}", text(&again.stderr));
}

#[test]
fn a_mount_of_another_user_is_called_that() {
    use std::os::unix::process::CommandExt;
    if !have_fuse() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "skipped: only root can be another user");
        return;
    }
    let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let mounted = mount(folder.path().to_str().expect("UTF-8"), mnt.path(), &[]);
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    let refused = foretell().arg("unmount").arg(mnt.path()).uid(65534).gid(65534).output();
    assert!(is_mounted(mnt.path()));
    let unmounted = unmount(mnt.path());
    assert!(unmounted.status.success(), "{}", text(&unmounted.stderr));
    let Ok(refused) = refused else {
        let _ = writeln!(std::io::stderr(), "skipped: another user cannot run foretell");
        return;
    };
    assert_eq!(refused.status.code(), Some(1));
    let line = format!(
        "foretell: {} was mounted by user 0; only that user and root may unmount it\n",
        mnt.path().display()
    );
    assert_eq!(text(&refused.stderr), line);
}

#[test]
fn a_bucket_is_mounted_with_the_environments_credentials() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    let bucket = folder.path().join("bucket");
    fs::create_dir(&bucket).expect("a new folder");
    let sample = sample_folder();
    let copied = Command::new("cp").arg("-r").arg(sample.path()).arg(bucket.join("data")).status();
    assert!(copied.expect("cp runs").success());
    let store = Store::start(folder.path(), &StoreOptions::fast()).expect("it starts");
    let try_with = |address: &str, secret: &str| {
        let mut command = foretell();
        command.args(["mount", address]).arg(mnt.path()).stdin(Stdio::null());
        command.envs([
            ("AWS_ENDPOINT_URL", store.endpoint().as_str()),
            ("AWS_ACCESS_KEY_ID", "foretell"),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", "us-east-1"),
        ]);
        command.output().expect("foretell runs")
    };
    for (output, said) in [
        (try_with("s3://bucket", "wrong"), "permission denied: SignatureDoesNotMatch"),
        (try_with("s3://nowhere", "foretell-secret"), "there is no such bucket"),
    ] {
        assert_eq!(output.status.code(), Some(1));
        let stderr = text(&output.stderr);
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{stderr}");
        assert!(!is_mounted(mnt.path()));
    }
    let mounted = try_with("s3://bucket/data", "foretell-secret");
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    let compared = Command::new("diff").arg("-r").args([sample.path(), mnt.path()]).status();
    assert!(compared.expect("diff runs").success());
    // A program under `foretell run` works on the mount as anywhere else.
    let files = sample_files(mnt.path());
    let summed = |mut command: Command| {
        let output = command.args(&files).output().expect("it runs");
        assert!(output.status.success());
        output.stdout
    };
    let mut hinted = foretell();
    hinted.args(["run", "--quiet", "--", "cksum"]);
    assert!(summed(hinted) == summed(Command::new("cksum")));
    assert!(unmount(mnt.path()).status.success());
}

/// The files below a folder for a web server, and a list of them that has the size of every other file.
fn put_all(files: &Files, folder: &Path) -> String {
    let mut list = String::from("# what there is\n");
    for (number, path) in sample_files(folder).iter().enumerate() {
        let name = path.strip_prefix(folder).expect("below").to_str().expect("UTF-8");
        let bytes = fs::read(path).expect("it is there");
        put(files, &format!("/data/{name}"), &bytes);
        list += name;
        if number % 2 == 0 {
            list += &format!("\t{}", bytes.len());
        }
        list += "\n";
    }
    list
}

#[test]
fn a_web_server_is_mounted_by_a_list_of_what_it_has() {
    if !have_fuse() {
        return;
    }
    let (sample, mnt) = (sample_folder(), tempfile::tempdir().expect("two"));
    let files = Files::default();
    let list = put_all(&files, sample.path());
    put(&files, "/lists/all.txt", list.as_bytes());
    let server = web(&files, Tells::Tag);
    let copies = tempfile::tempdir().expect("three");
    fs::write(copies.path().join("list"), &list).expect("written");
    let address = format!("{}/data/", server.endpoint);
    let remote = format!("{}/lists/all.txt", server.endpoint);
    for (index, ttl) in [(remote.as_str(), "0s"), ("list", "10min")] {
        let mut command = foretell();
        command.args(["mount", &address, "--ttl", ttl, "--index", index]).arg(mnt.path());
        command.current_dir(copies.path()).stdin(Stdio::null());
        let mounted = command.output().expect("it runs");
        assert!(mounted.status.success(), "{}", text(&mounted.stderr));
        assert!(mounted.stderr.is_empty(), "{}", text(&mounted.stderr));
        let copy = copies.path().join("copy");
        for (program, options) in [("diff", "-r"), ("cp", "-r")] {
            let to = if program == "cp" { copy.as_path() } else { sample.path() };
            let done = Command::new(program).arg(options).arg(mnt.path()).arg(to).output();
            let done = done.expect("it runs");
            assert!(done.status.success(), "{program}: {}", text(&done.stderr));
        }
        let compared = Command::new("diff").arg("-r").args([sample.path(), &copy]).status();
        assert!(compared.expect("diff runs").success());
        fs::remove_dir_all(&copy).expect("it was made");
        // Files are replaced on the server by ones of the same size, and of another size. A file with a listed size is
        // requested whenever it is opened.
        for (number, path) in sample_files(sample.path()).iter().take(6).enumerate() {
            if ttl != "0s" && number % 2 > 0 {
                continue;
            }
            let name = path.strip_prefix(sample.path()).expect("below").to_str().expect("UTF-8");
            let before = fs::read(path).expect("it is there");
            let mut after = before.clone();
            after.reverse();
            after.extend(std::iter::repeat_n(b'x', number / 3));
            put(&files, &format!("/data/{name}"), &after);
            assert!(fs::read(mnt.path().join(name)).expect("it is there") == after, "{name}");
            assert_eq!(
                fs::metadata(mnt.path().join(name)).expect("it is there").len(),
                after.len() as u64
            );
            put(&files, &format!("/data/{name}"), &before);
            if ttl != "0s" {
                continue; // The old size stays valid for the ttl.
            }
            assert!(fs::read(mnt.path().join(name)).expect("it is there") == before, "{name}");
        }
        let absent = fs::metadata(mnt.path().join("absent")).unwrap_err();
        assert_eq!(absent.kind(), std::io::ErrorKind::NotFound);
        assert!(unmount(mnt.path()).status.success());
    }
}

#[test]
fn what_a_mount_notes_before_it_goes_to_the_background_is_heard() {
    if !have_fuse() {
        return;
    }
    let (mnt, lists) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    let files = Files::default();
    put(&files, "/data/b", b"hello");
    let server = web(&files, Tells::Tag);
    let address = format!("{}/data", server.endpoint);
    let list = lists.path().join("list");
    let unlisted = mount(&address, mnt.path(), &[]);
    assert!(unlisted.status.success() && unmount(mnt.path()).status.success());
    let note = text(&unlisted.stderr);
    assert!(note.contains("does not list its files") && note.contains("--index"), "{note}");
    assert_eq!(note.lines().count(), 1, "{note}");
    let said = |text_of_list: &str| {
        fs::write(&list, text_of_list).expect("written");
        let options = ["--index", list.to_str().expect("UTF-8")];
        let mounted = mount(&address, mnt.path(), &options);
        assert!(mounted.status.success(), "{}", text(&mounted.stderr));
        assert!(unmount(mnt.path()).status.success());
        text(&mounted.stderr).to_owned()
    };
    assert!(said("a\t5\nb\t5\n").contains("a, which "), "it is not there");
    assert!(said("# nothing\n").contains("names no files"));
    assert_eq!(said("a\t0\nb\t5\n"), "", "what is empty says nothing about the others");
}

#[test]
fn what_is_wrong_with_a_list_or_its_server_is_told_in_one_line() {
    let mnt = tempfile::tempdir().expect("a folder");
    let lists = tempfile::tempdir().expect("two");
    let files = Files::default();
    put(&files, "/data/a", b"hello");
    put(&files, "/denied/a", b"hello");
    put(&files, "/whole/a", b"hello");
    let own = std::sync::Arc::clone(&files);
    let server = server::Server::start(move |asked, stream| match asked.path() {
        path if path.starts_with("/denied") => say(stream, "403 Forbidden", &[], b"no"),
        path if path.starts_with("/whole") && !asked.is_head() => {
            say(stream, "200 OK", &[], b"hello");
        }
        _ => serve(&own, Tells::Tag, asked, stream),
    });
    let list = |name: &str, text: &str| {
        let path = lists.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (good, bad) = (list("good", "a\t5\n"), list("bad", "a\n../b\n"));
    let folder = lists.path().to_str().expect("UTF-8");
    let at = |path: &str| format!("{}{path}", server.endpoint);
    for (source, index, code, said) in [
        (at("/data"), bad.as_str(), 1, "line 2: \"../b\" is no path of a file"),
        (at("/data"), "/nowhere/list", 1, "--index /nowhere/list: No such file"),
        (at("/data"), &at("/nowhere"), 1, "/nowhere: not found"),
        (at("/denied"), &good, 1, "a: permission denied"),
        (at("/whole"), &good, 1, "a: the server does not send parts of files"),
        ("http://127.0.0.1:9/".into(), &good, 1, "a: no connection: "),
        (folder.into(), &good, 2, "a folder lists its own files; leave the option out"),
    ] {
        let output = mount(&source, mnt.path(), &["--index", index, "--timeout", "1s"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{said}: {stderr}");
        assert!(!is_mounted(mnt.path()));
    }
}

#[test]
fn a_store_may_take_as_long_as_the_timeout_for_its_first_answer() {
    if !have_fuse() {
        return;
    }
    let (mnt, lists) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    let files = Files::default();
    put(&files, "/data/a", b"hello");
    let server = server::Server::start(move |asked, stream| {
        // Longer than the check waits without `--timeout`.
        std::thread::sleep(std::time::Duration::from_secs(6));
        serve(&files, Tells::Tag, asked, stream);
    });
    let list = lists.path().join("list");
    fs::write(&list, "a\t5\n").expect("written");
    let index = ["--index", list.to_str().expect("UTF-8")];
    let address = format!("{}/data", server.endpoint);
    let hasty = mount(&address, mnt.path(), &index);
    assert_eq!(hasty.status.code(), Some(1), "{}", text(&hasty.stderr));
    let patient = mount(&address, mnt.path(), &[&index[..], &["--timeout", "2min"]].concat());
    assert!(patient.status.success(), "{}", text(&patient.stderr));
    assert!(unmount(mnt.path()).status.success());
}

#[test]
fn what_was_fetched_once_comes_from_the_local_disk() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let tier = tempfile::tempdir().expect("a folder");
    let read = |options: &[&str]| -> serde_json::Value {
        let json = tempfile::NamedTempFile::new().expect("a file");
        let words = ["--json", json.path().to_str().expect("UTF-8"), "--tier"];
        let words = [&words[..], &[tier.path().to_str().expect("UTF-8")], options].concat();
        let mount = in_foreground(folder.path(), mnt.path(), &words);
        let compared = Command::new("diff").arg("-r").args([folder.path(), mnt.path()]).status();
        assert!(compared.expect("diff runs").success());
        kill_process(Pid::from_child(&mount), Signal::INT).expect("it runs");
        let output = mount.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&fs::read(json.path()).expect("written")).expect("JSON")
    };
    let count =
        |report: &serde_json::Value, name: &str| report["tier"][name].as_u64().expect("a number");
    let first = read(&[]);
    assert_eq!(count(&first, "hit_blocks"), 0);
    let kept = count(&first, "held_blocks");
    assert!(kept > 0, "{first}");
    let second = read(&[]);
    // Writes to the disk that were in flight may have completed since.
    assert!(count(&second, "found_blocks") >= kept, "{second}");
    assert!(count(&second, "hit_blocks") > 0, "{second}");
    // --tier-wipe leaves nothing.
    assert_eq!(count(&read(&["--tier-wipe"]), "hit_blocks"), 0);
    assert_eq!(count(&read(&[]), "found_blocks"), 0);
    let alone = mount(folder.path().to_str().expect("UTF-8"), mnt.path(), &["--tier-wipe"]);
    assert_eq!(alone.status.code(), Some(2));
}

/// The mount's statistics.
fn stats(mountpoint: &Path) -> serde_json::Value {
    let stats = fs::read(mountpoint.join(".foretell/stats")).expect("it is there");
    serde_json::from_slice(&stats).expect("JSON")
}

fn troubles(stats: &serde_json::Value) -> Vec<String> {
    let troubles = stats["troubles"].as_array().expect("a list");
    troubles.iter().map(|trouble| trouble["what"].as_str().expect("words").to_owned()).collect()
}

#[test]
fn damage_to_the_local_disk_is_told_and_harms_nobody() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let tier = tempfile::tempdir().expect("a folder");
    let options = ["--tier", tier.path().to_str().expect("UTF-8")];
    let compare = || {
        let compared = Command::new("diff").arg("-r").args([folder.path(), mnt.path()]).status();
        assert!(compared.expect("diff runs").success());
    };
    let first = in_foreground(folder.path(), mnt.path(), &options);
    assert_eq!(stats(mnt.path())["tier"]["held_bytes"], 0);
    compare();
    wait_until("blocks on the disk", || {
        let stats = stats(mnt.path());
        let count = |name: &str| stats["tier"][name].as_u64().expect("a number");
        assert_eq!(count("held_bytes"), count("held_blocks") * 16384);
        count("written_blocks") > 0 && count("written_blocks") == count("missed_blocks")
    });
    assert!(troubles(&stats(mnt.path())).is_empty());
    let unmounted = unmount(mnt.path());
    assert!(text(&unmounted.stdout).contains("from the local disk, which holds"));
    assert!(first.wait_with_output().expect("it ends").status.success());
    let data = tier.path().join("foretell-tier.data");
    let mut damaged = fs::read(&data).expect("it is kept");
    damaged.iter_mut().step_by(100).for_each(|byte| *byte ^= 1);
    fs::write(&data, damaged).expect("written");
    let second = in_foreground(folder.path(), mnt.path(), &options);
    compare();
    let stats = stats(mnt.path());
    assert!(stats["tier"]["corrupt_blocks"].as_u64() > Some(0), "{stats}");
    let told = "second tier: corrupted blocks on the disk, 1 so far";
    assert!(troubles(&stats).iter().any(|what| what.starts_with(told)), "{stats}");
    kill_process(Pid::from_child(&second), Signal::INT).expect("it runs");
    let output = second.wait_with_output().expect("it ends");
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.starts_with(&format!("foretell: {told}")), "{stderr}");
}

/// A file system of its own, of 1 MiB.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` if it cannot be mounted: the test is skipped.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path());
        let mounted = command.stderr(Stdio::null()).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        if !is_mounted {
            common::skipped("no file system can be mounted here");
        }
        is_mounted.then_some(Small(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_local_disk_is_told_and_harms_nobody() {
    let Some(small) = have_fuse().then(Small::new).flatten() else { return };
    let (folder, mnt) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    fs::write(folder.path().join("big"), vec![7; 4 << 20]).expect("written");
    let tier = small.0.path().join("tier");
    let options = ["--tier", tier.to_str().expect("UTF-8")];
    let mut mount = in_foreground(folder.path(), mnt.path(), &options);
    let compared = Command::new("diff").arg("-r").args([folder.path(), mnt.path()]).status();
    assert!(compared.expect("diff runs").success());
    wait_until("a trouble", || !troubles(&stats(mnt.path())).is_empty());
    let stats = stats(mnt.path());
    let told = "second tier: No space left on device";
    assert!(troubles(&stats)[0].starts_with(told), "{stats}");
    assert!(stats["tier"]["write_errors"].as_u64() > Some(0), "{stats}");
    assert!(stats["tier"]["held_bytes"].as_u64().is_some_and(|bytes| bytes < 1 << 20), "{stats}");
    kill_process(Pid::from_child(&mount), Signal::INT).expect("it runs");
    assert!(mount.wait().expect("it ends").success());
}

#[test]
fn a_c_program_hints_by_ioctl() {
    if !have_fuse() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let (folder, mnt) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    fs::write(folder.path().join("big"), vec![7u8; 32 << 20]).expect("written");
    let program = folder.path().join("program");
    let compiled = Command::new("cc")
        .args(["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("protocol/include"))
        .arg("-o")
        .arg(&program)
        .arg(root.join("examples/hint_mount.c"))
        .status();
    assert!(compiled.expect("cc runs").success());
    let source = folder.path().to_str().expect("UTF-8");
    let mounted = mount(source, mnt.path(), &[]);
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    let read = |folder: &Path| {
        // More parts than one ioctl holds.
        let mut command = Command::new(&program);
        command.arg(folder.join("big")).args(["1500", "5000"]);
        let output = command.output().expect("it runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        output.stdout
    };
    assert!(read(mnt.path()) == read(folder.path()));
    let stats = stats(mnt.path());
    let count = |name: &str| stats[name].as_u64().expect("a number");
    assert!(count("prefetched_blocks") > 1000, "{stats}"); // The file has 2,048.
    assert!(count("useful_blocks") + count("late_blocks") > count("prefetched_blocks") / 2);
    assert!(unmount(mnt.path()).status.success());
}

#[test]
fn signals_end_a_mount_in_order() {
    if !have_fuse() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
        let json = tempfile::NamedTempFile::new().expect("a file");
        let options = ["--json", json.path().to_str().expect("UTF-8")];
        let mount = in_foreground(folder.path(), mnt.path(), &options);
        fs::read(&sample_files(mnt.path())[0]).expect("it is there");
        kill_process(Pid::from_child(&mount), signal).expect("it runs");
        let output = mount.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!is_mounted(mnt.path()));
        let report: serde_json::Value =
            serde_json::from_slice(&fs::read(json.path()).expect("written")).expect("JSON");
        assert!(report["fetched_bytes"].as_u64().expect("a number") > 0, "{report}");
    }
}

#[test]
fn what_a_killed_mount_has_left_is_removed_by_the_next() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let mut killed = in_foreground(folder.path(), mnt.path(), &[]);
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    assert!(is_mounted(mnt.path()), "dead, but there");
    let source = folder.path().to_str().expect("UTF-8");
    let mounted = mount(source, mnt.path(), &[]);
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    let twice = mount(source, mnt.path(), &[]);
    assert_eq!(twice.status.code(), Some(1));
    assert!(text(&twice.stderr).contains("foretell unmount"), "{}", text(&twice.stderr));
    assert!(unmount(mnt.path()).status.success());
}

#[test]
fn wrong_arguments_are_told_in_a_line() {
    let (folder, mnt) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    let source = folder.path().to_str().expect("UTF-8");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).expect("a new folder");
    for (output, code, said) in [
        (mount("/absent", mnt.path(), &[]), 1, "name a folder that you may read"),
        (mount("ftp://host", mnt.path(), &[]), 2, "begins with s3://"),
        (mount(source, &inside, &[]), 1, "one is inside the other"),
        (mount(source, &mnt.path().join("absent"), &[]), 1, "create an empty folder there first"),
        (mount(source, mnt.path(), &["--block", "5000"]), 2, "a power of two"),
        (mount(source, mnt.path(), &["--budget", "1"]), 2, "does not hold one block"),
        (mount(source, mnt.path(), &["--timeout", "0"]), 2, "0 leaves no time for an answer"),
        (mount(source, mnt.path(), &["--json", "-"]), 2, "needs --foreground"),
        (mount(source, mnt.path(), &["--ttl", "1"]), 2, "the unit is missing"),
    ] {
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
        assert!(code == 2 || stderr.lines().count() == 1, "{stderr}");
        assert!(!is_mounted(mnt.path()));
    }
}

#[test]
fn a_mount_in_the_background_keeps_nothing_of_its_caller_open() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let command = env!("CARGO_BIN_EXE_foretell");
    // The reader of the pipe sees its end when the command has returned.
    let script = "exec 9>&1; \"$1\" mount \"$2\" \"$3\" >/dev/null";
    let output = Command::new("timeout")
        .args(["60", "sh", "-c", script, "sh", command])
        .args([folder.path(), mnt.path()])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(is_mounted(mnt.path()));
    assert!(unmount(mnt.path()).status.success());
}

#[test]
fn a_tier_does_not_lie_in_what_is_mounted() {
    let (folder, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let source = folder.path().to_str().expect("UTF-8");
    for tier in [mnt.path().to_owned(), folder.path().join("tier")] {
        let refused = mount(source, mnt.path(), &["--tier", tier.to_str().expect("UTF-8")]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            text(&refused.stderr).contains("name a folder outside"),
            "{}",
            text(&refused.stderr)
        );
    }
    assert_eq!(fs::read_dir(mnt.path()).expect("it is there").count(), 0, "nothing is left there");
    assert!(!folder.path().join("tier").exists());
}

fn mounted_to_be_written(folder: &Path, mountpoint: &Path) -> Child {
    in_foreground(folder, mountpoint, &["--read-write", "--budget", "1MiB"])
}

#[test]
fn programs_work_on_a_mount_that_can_be_written() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    let sample = sample_folder();
    let mut mount = mounted_to_be_written(folder.path(), mnt.path());
    for (program, script) in [
        (
            "git",
            "git init -q repo && cd repo && git config user.email a@b.c && git config user.name a \
             && cp -r \"$1\" data && git add . && git commit -qm first && echo x > data/new \
             && git add . && git commit -qm second && git gc -q && git fsck --strict 2>/dev/null \
             && git checkout -q HEAD~1 && test -z \"$(git status --short)\" && test ! -e data/new",
        ),
        (
            "tar",
            "mkdir unpacked && tar -C \"$1\" -cf archive.tar . && tar -C unpacked -xf archive.tar \
             && diff -r \"$1\" unpacked",
        ),
        ("cp", "cp -a \"$1\" copy && cp -a copy again && diff -r \"$1\" again && rm -r copy again"),
        (
            "python3",
            "python3 -c '
import sqlite3
for mode in \"delete\", \"wal\":
    data = sqlite3.connect(\"base\")
    data.execute(\"pragma journal_mode=\" + mode)
    data.execute(\"create table if not exists t(a, b)\")
    for number in range(300):
        data.execute(\"insert into t values (?, ?)\", (number, \"x\" * 1000))
        if number % 50 == 0:
            data.commit()
    data.commit()
    data.execute(\"delete from t where a % 2\")
    data.commit()
    assert data.execute(\"pragma integrity_check\").fetchone() == (\"ok\",)
    data.close()
data = sqlite3.connect(\"base\")
assert data.execute(\"select count(*) from t\").fetchone() == (300,)
'",
        ),
        (
            "dd",
            "dd if=/dev/zero of=image bs=1000 count=100 status=none \
             && printf patch | dd of=image bs=1 seek=50000 conv=notrunc status=none \
             && test \"$(tail -c +50001 image | head -c 5)\" = patch && test $(stat -c %s image) = 100000",
        ),
        (
            "make",
            "printf 'all: one two\\n\\tcat one two > all\\none two:\\n\\techo $@ > $@\\n' > Makefile \
             && make -s -j4 && test \"$(cat all | tr '\\n' ' ')\" = 'one two ' && make -q",
        ),
        (
            "rsync",
            "rsync -a \"$1\"/ synced && rsync -a --delete \"$1\"/ synced && diff -r \"$1\" synced",
        ),
    ] {
        if !have(program) {
            continue;
        }
        let mut command = Command::new("timeout");
        command.args(["120", "sh", "-ec", script, "sh"]).arg(sample.path());
        let output = command.current_dir(mnt.path()).output().expect("sh runs");
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{program}: {stderr}");
    }
    // An editor's way to save.
    for number in 0..20 {
        let (new, file) = (mnt.path().join(".file.new"), mnt.path().join("file"));
        let mut saved = fs::File::create(&new).expect("made");
        saved.write_all(number.to_string().as_bytes()).expect("written");
        saved.sync_all().expect("synced");
        fs::rename(&new, &file).expect("renamed");
        assert_eq!(fs::read_to_string(&file).expect("read"), number.to_string());
    }
    let mut diff = Command::new("diff");
    let compared = diff.args(["-r", "--no-dereference"]).args([folder.path(), mnt.path()]).status();
    assert!(compared.expect("diff runs").success());
    assert!(unmount(mnt.path()).status.success());
    mount.wait().expect("it ends");
}

#[test]
fn figures_of_a_mount_that_can_be_written_have_the_mode_of_any_new_file() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    let figures = tempfile::tempdir().expect("three");
    let json = figures.path().join("json");
    let mut command = Command::new("sh");
    let script = "umask 027; exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(env!("CARGO_BIN_EXE_foretell"));
    command.args(["mount", "--foreground", "--read-write", "--json"]).arg(&json);
    command.args([folder.path(), mnt.path()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut mount = command.spawn().expect("it runs");
    wait_until("the mount", || is_mounted(mnt.path()));
    let mode = |path: &Path| {
        std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).expect("it is there")) & 0o777
    };
    // Files get the modes that programs ask for, whatever the mask of the mount's own process.
    let script = "umask 027; echo text > \"$1\"/made; umask 0; echo text > \"$1\"/open";
    let made = Command::new("sh").args(["-c", script, "sh"]).arg(mnt.path()).status();
    assert!(made.expect("sh runs").success());
    let modes = ["made", "open"].map(|name| mode(&folder.path().join(name)));
    assert_eq!(modes, [0o640, 0o666]);
    assert!(unmount(mnt.path()).status.success());
    mount.wait().expect("it ends");
    assert_eq!(mode(&json), 0o640);
}

#[test]
fn what_was_written_is_there_when_the_mount_is_killed() {
    if !have_fuse() {
        return;
    }
    let (folder, mnt) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("two"));
    let mut served = mounted_to_be_written(folder.path(), mnt.path());
    let mut file = fs::File::create(mnt.path().join("file")).expect("made");
    let mut written = Vec::new();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        served.kill().expect("it runs");
        served.wait().expect("it ends");
    });
    for number in 0.. {
        let line = format!("line {number}\n").repeat(100);
        match file.write(line.as_bytes()) {
            Ok(count) => written.extend(&line.as_bytes()[..count]),
            Err(_) => break,
        }
    }
    killer.join().expect("it was killed");
    assert!(!written.is_empty());
    let there = fs::read(folder.path().join("file")).expect("it is there");
    // The last write may have been done but not answered.
    assert!(there.starts_with(&written) && there.len() <= written.len() + 20_000);
    drop(file);
    // A new mount replaces the dead one.
    let source = folder.path().to_str().expect("UTF-8");
    let again = mount(source, mnt.path(), &["--read-write"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(fs::read(mnt.path().join("file")).expect("it is there"), there);
    assert!(unmount(mnt.path()).status.success());
}

#[test]
fn only_folders_can_be_written() {
    let mnt = tempfile::tempdir().expect("a folder");
    for source in ["s3://bucket/data", "https://host/data"] {
        let refused = mount(source, mnt.path(), &["--read-write"]);
        let stderr = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("only a folder can be written; leave the option out"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let folder = mnt.path().to_str().expect("UTF-8");
    let refused = mount(folder, mnt.path(), &["--read-write", "--tier", "/tmp/tier"]);
    assert_eq!(refused.status.code(), Some(2));
    let inside = mount("/", mnt.path(), &["--read-write"]);
    assert!(text(&inside.stderr).contains("one is inside the other"), "{}", text(&inside.stderr));
}
