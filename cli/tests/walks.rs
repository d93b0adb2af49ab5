//! Programs that go through folders, on an array as slow as a network: what is looked up ahead of them.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::mounted::Mounted;
use common::{foretell, have};

/// `a` with 300 files, `b` with ten folders of 30 headers and 10 sources each.
fn fill(folder: &Path) {
    let write = |path: PathBuf, bytes: usize| {
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, vec![b'x'; bytes]).expect("written");
    };
    (0..300).for_each(|at| write(folder.join(format!("a/{at:03}.bin")), 3_000 + at * 10));
    for sub in 0..10 {
        (0..30).for_each(|at| write(folder.join(format!("b/{sub}/{at:02}.h")), 200 * sub));
        (0..10).for_each(|at| write(folder.join(format!("b/{sub}/{at:02}.c")), 9_000));
    }
}

fn number(figures: &serde_json::Value, group: &str, key: &str) -> u64 {
    assert_eq!(figures["manager"], "finished", "{figures}");
    figures[group][key].as_u64().expect("a number")
}

/// Not the first of PATH, which may be a script that runs many programs.
const PYTHON: &str = "/usr/bin/python3";

/// Checks that at least `least` names were looked up before the program came to them, and that most were not in vain: a program
/// that is faster than the lookups passes some.
fn assert_ahead(figures: &serde_json::Value, least: u64) {
    let (used, unused) = (number(figures, "names", "used"), number(figures, "names", "unused"));
    assert!(used >= least && unused <= used + least, "{used} used, {unused} not: {figures}");
}

#[test]
fn names_are_looked_up_ahead_of_programs_that_walk() {
    let Some(mounted) = Mounted::new(fill) else { return };
    assert_ahead(&mounted.run(&["du", "-sb", "."]), 350);
    assert_ahead(&mounted.run(&["find", "b", "-type", "f", "-size", "+2k"]), 200);
    assert_ahead(&mounted.run(&["find", "b", "-name", "*.h"]), 4);
    assert_ahead(&mounted.run(&["sh", "-c", "ls -lR b"]), 200);
    let sorted = "LC_ALL=C; for file in a/*; do [ -f $file ] || exit 1; done";
    assert_ahead(&mounted.run(&["sh", "-c", sorted]), 150);
    let figures = mounted.run(&["find", "a"]);
    assert_eq!(number(&figures, "names", "looked_up"), 0, "names are not looked at: {figures}");
}

#[test]
fn waiting_for_names_is_counted_also_where_nothing_is_looked_up() {
    let Some(mounted) = Mounted::new(fill) else { return };
    let figures = mounted.backing.path().with_extension("figures");
    let names = |options: &[&str]| {
        common::wait_until("the array is free", || mounted.unmount());
        mounted.mount();
        let mut run = foretell();
        run.args(["run", "--quiet", "--json"]).arg(&figures).args(options);
        run.args(["--", "du", "-sb", "."]);
        assert!(mounted.output(run).status.success());
        let figures = fs::read(&figures).expect("written");
        let mut figures: serde_json::Value = serde_json::from_slice(&figures).expect("JSON");
        assert_eq!(figures["names"]["looked_up"].as_u64() == Some(0), !options.is_empty());
        figures["names"]["stall_s"].take()
    };
    for options in [&[][..], &["--no-hints"]] {
        let stall_s = names(options);
        assert!(stall_s.as_f64().is_some_and(|stall_s| stall_s > 0.0), "{options:?}: {stall_s}");
    }
    assert!(names(&["--observe", "none"]).is_null());
}

#[test]
fn files_are_read_ahead_of_programs_that_open_them_in_order() {
    let Some(mounted) = Mounted::new(fill) else { return };
    if Path::new(PYTHON).exists() {
        let script = "import os; print(sum(len(open('a/'+name,'rb').read()) for name in sorted(os.listdir('a'))))";
        let figures = mounted.run(&[PYTHON, "-c", script]);
        let block = |count| number(&figures, "blocks", count);
        assert!(number(&figures, "hints", "given") >= 200, "{figures}");
        assert!(block("useful") + block("late") >= 100, "{figures}");
        let script =
            "import os; [os.stat(os.path.join(d, f)) for d, _, fs in os.walk('b') for f in fs]";
        let figures = mounted.run(&[PYTHON, "-c", script]);
        assert_ahead(&figures, 200);
        assert_eq!(number(&figures, "hints", "given"), 0, "{figures}");
    }
    if have("tar") {
        // The argument discloses all files: each counts as one hint.
        let figures = mounted.run(&["tar", "cf", "-", "a", "b"]);
        assert_eq!(number(&figures, "hints", "given"), 700, "{figures}");
    }
    if have("cp") {
        let out = tempfile::tempdir().expect("a folder");
        let target = out.path().to_str().expect("text");
        let figures = mounted.run(&["cp", "-r", "--no-preserve=all", "b", target]);
        // By the argument, or in the walk's order where that is another one.
        assert!(number(&figures, "hints", "given") >= 400, "{figures}");
        let ahead = number(&figures, "blocks", "useful") + number(&figures, "blocks", "late");
        assert!(ahead >= 50, "{figures}");
    }
}

/// A program that computes for a while is not watched meanwhile, and opens its folder unseen.
#[test]
fn files_are_read_ahead_in_a_folder_that_was_opened_unseen() {
    let many = |folder: &Path| {
        fs::create_dir(folder.join("a")).expect("made");
        (0..1000).for_each(|at| {
            fs::write(folder.join(format!("a/{at:04}")), [b'x'; 3_000]).expect("written");
        });
    };
    let Some(mounted) = Mounted::new(many) else { return };
    if !Path::new(PYTHON).exists() {
        eprintln!("skipped: no {PYTHON}");
        return;
    }
    let script = "import os, time
began = time.process_time()
while time.process_time() - began < 0.3: pass
os.chdir('a')
print(sum(len(open(name, 'rb').read()) for name in sorted(os.listdir('.'))))";
    // On a busy machine, a part of the folder is over before the walk is seen.
    let mut ahead = (0..3).map(|_| {
        let figures = mounted.run(&[PYTHON, "-c", script]);
        let block = |count| number(&figures, "blocks", count);
        (number(&figures, "hints", "given"), block("useful") + block("late"))
    });
    assert!(ahead.any(|(given, read)| given >= 150 && read >= 75));
}

#[test]
fn little_is_fetched_of_arguments_that_are_only_looked_at() {
    let large = |folder: &Path| {
        (0..60).for_each(|at| {
            fs::write(folder.join(format!("{at:02}")), [b'x'; 200_000]).expect("written")
        });
    };
    let Some(mounted) = Mounted::new(large) else { return };
    let names: Vec<String> = (0..60).map(|at| format!("{at:02}")).collect();
    let with = |program: &'static str, option: &'static str| {
        let names = names.iter().map(String::as_str);
        [program, option].into_iter().chain(names).collect::<Vec<_>>()
    };
    let prefetched = |command: &[&str]| number(&mounted.run(command), "blocks", "prefetched");
    let looked_at = prefetched(&with("ls", "-l"));
    assert!(looked_at <= 192, "{looked_at} blocks of files that are not read");
    let read = prefetched(&with("cat", "-u"));
    assert!(read >= 700, "{read} of 1,500 blocks that are read");
}

#[test]
fn walks_are_switched_off() {
    let Some(mounted) = Mounted::new(fill) else { return };
    for option in [&["--no-hints"][..], &["--observe", "none"]] {
        let program = env!("CARGO_BIN_EXE_foretell");
        let figures = mounted.backing.path().with_extension("off");
        let mut run = Command::new(program);
        run.args(["run", "-q"])
            .args(option)
            .arg("--json")
            .arg(&figures)
            .args(["--", "du", "-s", "."]);
        assert!(mounted.output(run).status.success());
        let read: serde_json::Value =
            serde_json::from_slice(&fs::read(&figures).expect("written")).expect("JSON");
        assert_eq!(number(&read, "names", "looked_up"), 0, "{option:?}: {read}");
        fs::remove_file(figures).expect("it is there");
    }
}

/// A pipe, a socket, a dead link, a link to a folder, and a folder that may not be listed.
#[test]
fn what_is_no_file_does_no_harm() {
    let odd = |folder: &Path| {
        fill(folder);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("a/100.pipe"),
            rustix::fs::FileType::Fifo,
            0o666.into(),
            0,
        )
        .expect("made");
        drop(std::os::unix::net::UnixListener::bind(folder.join("a/101.socket")).expect("bound"));
        symlink("nowhere", folder.join("a/102.link")).expect("linked");
        symlink("../b", folder.join("a/103.link")).expect("linked");
        symlink("loop", folder.join("b/loop")).expect("linked");
        let closed = folder.join("b/5");
        fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).expect("changed");
    };
    let Some(mounted) = Mounted::new(odd) else { return };
    assert_ahead(&mounted.run(&["du", "-sb", "."]), 300);
    assert_ahead(&mounted.run(&["sh", "-c", "ls -lR"]), 200);
    let closed = mounted.backing.path().join("b/5");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o755)).expect("changed");
}

/// Another file system in the middle is not walked ahead, and a folder may go while it is walked.
#[test]
fn mount_points_inside_and_folders_that_go_do_no_harm() {
    let inner = |folder: &Path| {
        fill(folder);
        fs::create_dir(folder.join("b/55")).expect("made");
    };
    let Some(mounted) = Mounted::new(inner) else { return };
    let script =
        "mount -t tmpfs none b/55 2>/dev/null && touch b/55/x && du -s b >/dev/null && umount b/55";
    let unshared = Command::new("unshare").args(["-m", "true"]).status();
    if unshared.is_ok_and(|status| status.success()) {
        let _ = mounted.run(&["unshare", "-m", "sh", "-c", script]);
    } else {
        eprintln!("skipped: mount points inside, since this user may not mount");
    }
    let goes = tempfile::tempdir().expect("a folder");
    fill(goes.path());
    let folder = goes.path().to_str().expect("text");
    let script = format!("cp -r b {folder}/c && rm -r {folder}/c && ls -l {folder}/c; ls {folder}");
    let _ = mounted.run(&["sh", "-c", &script]);
}
