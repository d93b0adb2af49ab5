//! `foretell learned list`, `show` and `forget`, and what all its commands have in common.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::known::{Known, died_of, step};
use common::text;
use foretell_manager::learn::across;
use foretell_manager::learn::profile::{Kind, Last, Profile};
use foretell_manager::learn::steps::{Acts, Run};
use foretell_manager::learn::workload::Workload;
use serde_json::Value;

#[test]
fn the_list_has_a_line_a_workload_and_tells_alike_ones_apart() {
    let known = Known::new();
    let list = known.printed(&["list"]);
    assert_eq!(list, known.printed(&[]), "without a command, the list is printed");
    assert_eq!(list.lines().count(), 7 + 2, "{list}");
    for part in [
        "cc -c a.c (in /src/one)",
        "cc -c a.c (in /src/two)",
        "like cc -c *.c",
        "git status (in /src/one)",
        "like git status",
        "nightly",
        "1.0 MiB",
        "7 workloads, ",
        "just now",
    ] {
        assert!(list.contains(part), "{part}: {list}");
    }
    let alike = list.lines().find(|line| line.ends_with("like cc -c *.c")).expect("listed");
    assert_eq!(alike.split_whitespace().nth(1), Some("3"), "runs: {alike}");

    let figures: Value =
        serde_json::from_str(&known.printed(&["list", "--json", "-"])).expect("JSON");
    assert_eq!(figures["folder"], known.store.folder().display().to_string());
    let workloads = figures["workloads"].as_array().expect("a list");
    assert_eq!(workloads.len(), 7);
    let nightly = workloads.iter().find(|one| one["name"] == "nightly").expect("listed");
    assert_eq!((&nightly["kind"], &nightly["runs"]), (&"named".into(), &1.into()));
    assert_eq!(nightly["likely_bytes"], (1 << 20) + 2 * 8192 + 8192);
}

#[test]
fn one_workload_is_shown_by_name_words_or_key() {
    let known = Known::new();
    let key = |label: &str| {
        let list = known.printed(&["list"]);
        let line = list.lines().find(|line| line.contains(label)).expect("listed");
        line.split_whitespace().next().expect("a key").to_owned()
    };
    let by_name = known.printed(&["show", "nightly"]);
    assert_eq!(by_name, known.printed(&["show", &key("nightly")]));
    assert_eq!(by_name, known.printed(&["show", "night"]));
    for part in ["runs with this --workload", "was not looked ahead in yet", "list", "look up"] {
        assert!(by_name.contains(part), "{part}: {by_name}");
    }
    assert!(by_name.contains("all, 1 MiB") && by_name.contains("16 KiB in 2"), "{by_name}");
    assert!(
        known.printed(&["show", "--", "cc", "-c", "b.c"]).contains("this very command in /src/one")
    );
    assert!(known.printed(&["show", "like cc"]).contains("all commands of this shape"));
    assert!(known.printed(&["show", "two a.c"]).contains("/src/two"));

    let line = known.refused(1, &["show", "cc -c a.c"]);
    assert!(line.contains("(in /src/one)") && line.contains("(in /src/two)"), "{line}");
    assert!(line.contains(&key("cc -c a.c (in /src/one)")), "{line}");
    assert!(known.refused(1, &["show", "svn"]).contains("foretell learned list"));
    let _ = known.refused(2, &["show"]);
    let _ = known.refused(2, &["show", ""]);

    let figures: Value =
        serde_json::from_str(&known.printed(&["show", "nightly", "--json", "-"])).expect("JSON");
    assert_eq!(figures["all_steps"][0]["parts"][1][0], 16384);
    assert_eq!(figures["all_steps"].as_array().map(Vec::len), Some(6));
}

#[test]
fn what_became_of_the_last_run_is_shown() {
    let known = Known::new();
    let last = Last {
        expected: 200,
        asked: 190,
        found: 150,
        has_stopped: true,
        ahead_bytes: 10 << 20,
        useful_bytes: 7 << 20,
        late_bytes: 1 << 20,
        wasted_bytes: 2 << 20,
    };
    let key = Workload::named("nightly").exact;
    known.store.update(&key, "", |profile| profile.last = Some(last)).expect("written");
    let shown = known.printed(&["show", "nightly"]);
    assert!(shown.contains("200 steps expected, 190 asked for ahead, 150 found (75 %)"), "{shown}");
    assert!(shown.contains("it stopped"), "{shown}");
    let bytes = "of files read ahead: ";
    assert!(shown.contains(bytes) && shown.contains(" late, "), "{shown}");
    let figures: Value =
        serde_json::from_str(&known.printed(&["show", "nightly", "--json", "-"])).expect("JSON");
    assert_eq!(figures["last"]["wasted_bytes"], 2 << 20);
}

#[test]
fn forgetting_takes_one_the_old_ones_or_all() {
    let known = Known::new();
    let output = known.output(&["forget", "git", "status"]);
    assert!(text(&output.stdout).starts_with("forgot "), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("like git status"), "{}", text(&output.stderr));
    assert_eq!(known.count(), 6);
    let _ = known.refused(1, &["forget", "cc"]);
    let line = known.refused(1, &["forget", "night"]);
    assert!(line.contains("did you mean") && line.contains("nightly?"), "{line}");
    assert!(known.printed(&["list"]).contains("nightly"), "it is still there");
    let _ = known.refused(2, &["forget"]);
    let _ = known.refused(2, &["forget", "nightly", "--all"]);
    let _ = known.refused(2, &["forget", "--older-than", "1y"]);

    let old = known.store.list().into_iter().find(|kept| kept.profile.name == "nightly");
    let file = fs::File::options().write(true).open(old.expect("kept").path).expect("opened");
    let age = std::time::Duration::from_secs(40 * 86_400);
    file.set_modified(std::time::SystemTime::now() - age).expect("set");
    assert_eq!(known.printed(&["forget", "--older-than", "50d"]), "nothing to forget\n");
    assert_eq!(known.printed(&["forget", "nightly", "--older-than", "6w"]), "nothing to forget\n");
    assert!(known.printed(&["forget", "--all", "--older-than", "30d"]).contains("nightly"));
    assert_eq!(known.count(), 5);

    let private = known.store.folder().join("private");
    fs::write(&private, "*.draft\n").expect("written");
    fs::write(known.store.folder().join("0102.profile"), "nonsense").expect("written");
    assert!(known.printed(&["list"]).contains("1 damaged file set aside"));
    let printed = known.printed(&["forget", "--all"]);
    assert!(printed.ends_with("removed 1 damaged file\n"), "{printed}");
    assert_eq!(known.count(), 0);
    assert!(private.exists());
    assert!(known.printed(&["list"]).contains("nothing is learned yet"));
}

#[test]
fn what_is_forgotten_is_not_left_in_all_programs() {
    let known = Known::nothing();
    let read = Acts::OPEN | Acts::READ;
    for (name, paths) in [("one", ["/lib", "/a"]), ("two", ["/lib", "/b"])] {
        let steps = paths.map(|path| step(path, read, &[(0, 8192)])).to_vec();
        let run = Run { steps, is_cut: false };
        let (named, all) = (Workload::named(name), across::workload());
        let learn = |profile: &mut Profile| profile.learn(run.clone(), |_, _| true, true);
        known.store.update(&named.exact, name, learn).expect("written");
        let add = |history: &mut Profile| {
            let _ = across::add(history, &run);
        };
        known.store.update(&all.exact, &all.name, add).expect("written");
    }
    let list = known.printed(&["list"]);
    let line = list.lines().find(|line| line.ends_with("all programs")).expect("listed");
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[1..4], ["2", "4", "-"], "files that are known, and none ahead: {line}");
    let shown = known.printed(&["show", "all", "programs"]);
    assert!(shown.contains("of 4 files, those that followed"), "{shown}");
    let printed = known.printed(&["forget", "one"]);
    assert!(printed.ends_with("removed 1 file from \"all programs\"\n"), "{printed}");
    let shown = known.printed(&["show", "all", "programs"]);
    assert!(!shown.contains("/a\n") && shown.contains("/b\n") && shown.contains("/lib\n"));
}

#[test]
fn all_is_forgotten_though_nobody_reads_what_is_printed() {
    let known = Known::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = known.command(&["forget", "--all"]);
    let status = command.stdout(writer).status().expect("foretell runs");
    assert_eq!(status.signal(), Some(rustix::process::Signal::PIPE.as_raw()), "{status:?}");
    assert_eq!(known.count(), 0);
}

#[test]
fn a_name_with_dashes_goes_behind_two_and_the_line_says_so() {
    let known = Known::nothing();
    known.learn("grep -rn x", "/src");
    let line = known.refused(2, &["forget", "grep", "-rn", "x"]);
    assert!(line.contains("foretell learned forget -- grep -rn x"), "{line}");
    assert!(known.printed(&["show", "--", "grep", "-rn", "x"]).contains("grep -rn x\n"));
    let line = known.refused(1, &["forget", "--", "svn", "-x"]);
    assert!(line.contains("\"svn -x\": no workload"), "{line}");
    let printed = known.printed(&["forget", "--", "grep", "-rn", "x"]);
    assert!(printed.contains("\"grep -rn x\" (in /src)"), "{printed}");
    assert_eq!(known.count(), 1);
}

#[test]
fn names_that_were_kept_with_secrets_are_shown_without_them() {
    let known = Known::nothing();
    known.add(b"key", "curl --token hunter2 https://me:hunter3@host", (Kind::Exact, b"/x".into()));
    let file = known.path("exported");
    let to = file.to_str().expect("text");
    let key = "6b6579";
    let printed = [
        known.printed(&["list"]),
        known.printed(&["list", "--json", "-"]),
        known.printed(&["show", key]),
        known.printed(&["show", key, "--json", "-"]),
        known.printed(&["show", "--", "curl", "--token", "hunter2", "https://me:hunter3@host"]),
        known.printed(&["export", key, "--format", "foretell", "-o", to])
            + &String::from_utf8_lossy(&fs::read(&file).expect("written")),
        known.printed(&["forget", key]),
    ];
    for printed in printed {
        assert!(!printed.contains("hunter"), "{printed}");
        assert!(printed.contains("--token …"), "{printed}");
    }
}

#[test]
fn learning_that_is_off_says_so() {
    let known = Known::nothing();
    let run = |words: &[&str]| {
        let mut command = known.command(words);
        command.env("FORETELL_STATE", "").output().expect("foretell runs")
    };
    let output = run(&["list"]);
    assert!(output.status.success() && text(&output.stdout).contains("learning is off"));
    let figures: Value =
        serde_json::from_slice(&run(&["list", "--json", "-"]).stdout).expect("JSON");
    assert_eq!((&figures["folder"], &figures["workloads"]), (&Value::Null, &Value::Array(vec![])));
    for words in
        [&["show", "x"][..], &["forget", "--all"], &["export", "x"], &["import", "/dev/null"]]
    {
        let output = run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(text(&output.stderr).contains("learning is off"), "{}", text(&output.stderr));
    }
    let mut command = known.command(&["list"]);
    command.env_remove("FORETELL_STATE").env_remove("XDG_STATE_HOME").env_remove("HOME");
    let output = command.output().expect("foretell runs");
    assert!(text(&output.stdout).contains("HOME"), "{}", text(&output.stdout));
    // Without a store, nothing is made by looking.
    assert!(known.printed(&["list"]).contains("nothing is learned yet"));
    assert!(known.refused(1, &["show", "x"]).contains("nothing is learned yet"));
    assert_eq!(known.printed(&["forget", "--all"]), "nothing to forget\n");
    assert!(!known.store.folder().exists());
}

#[test]
fn a_reader_that_is_gone_ends_it_silently() {
    let known = Known::new();
    for words in [
        &["list"][..],
        &["list", "--json", "-"],
        &["show", "nightly"],
        &["export", "nightly"],
        &["export", "nightly", "--format", "foretell"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = known.command(words).stdout(writer).stderr(Stdio::piped()).output();
        let output = output.expect("it runs");
        assert!(died_of(&output, 13), "{words:?}: {output:?}");
    }
    let mut shell = Command::new("sh");
    let line = format!("{} learned list | head -1", env!("CARGO_BIN_EXE_foretell"));
    let shell = shell.args(["-c", &line]).env("FORETELL_STATE", known.store.folder());
    let output = shell.output().expect("it runs");
    assert!(output.stderr.is_empty() && text(&output.stdout).starts_with("KEY"), "{output:?}");
}

#[test]
fn full_output_is_told() {
    let known = Known::new();
    let full = || fs::File::options().write(true).open("/dev/full").expect("opened");
    for words in [&["list"][..], &["show", "nightly"], &["export", "nightly"]] {
        let output = known.command(words).stdout(full()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(text(&output.stderr).contains("standard output: No space"), "{output:?}");
    }
}

#[test]
fn a_store_that_others_may_write_into_is_refused_and_programs_run_all_the_same() {
    let known = Known::new();
    let set = |mode| {
        fs::set_permissions(known.store.folder(), fs::Permissions::from_mode(mode)).expect("set");
    };
    set(0o777);
    for words in [&["list"][..], &["show", "nightly"], &["forget", "--all"], &["export", "nightly"]]
    {
        assert!(known.refused(1, words).contains("chmod go-w"), "{words:?}");
    }
    let mut command = common::foretell();
    command.args(["run", "--quiet", "--json", "/dev/null", "--", "echo", "hello"]);
    let output = command.env("FORETELL_STATE", known.store.folder()).output().expect("it runs");
    assert_eq!((text(&output.stdout), output.status.code()), ("hello\n".into(), Some(0)));
    set(0o700);
    assert_eq!(known.count(), 7);
    if common::is_root() {
        std::os::unix::fs::chown(known.store.folder(), Some(12345), None).expect("given away");
        assert!(known.refused(1, &["list"]).contains("another user"));
    }
}

#[test]
fn a_file_of_patterns_that_is_no_file_does_not_hold_up_a_run() {
    let known = Known::new();
    let private = known.store.folder().join("private");
    symlink("/dev/zero", &private).expect("linked");
    let mut command = common::beside_foretell("true");
    let status = command.env("FORETELL_STATE", known.store.folder()).status();
    assert!(status.expect("it runs").success());
    fs::remove_file(&private).expect("removed");
    assert!(Command::new("mkfifo").arg(&private).status().expect("it runs").success());
    let mut command = common::beside_foretell("true");
    let status = command.env("FORETELL_STATE", known.store.folder()).status();
    assert!(status.expect("it runs").success());
}

#[test]
fn what_programs_are_called_moves_no_terminal() {
    let known = Known::nothing();
    let steps = vec![step("/a\x1b[2Jb\nc", Acts::OPEN | Acts::READ | Acts::END, &[(0, 8192)])];
    let run = Run { steps, is_cut: false };
    known
        .store
        .update(b"k", "x\x1b[31m\ny", |profile| profile.learn(run, |_, _| true, true))
        .expect("written");
    for words in [&["list"][..], &["show", "x"], &["forget", "x\\u{1b}[31m\\ny"]] {
        let printed = known.printed(words);
        assert!(!printed.contains('\x1b') && printed.contains("\\u{1b}[31m\\ny"), "{printed}");
    }
}

/// Two runs of a program over a slow folder.
#[test]
fn a_run_is_listed_and_its_second_run_is_judged() {
    if !common::have_fuse() || !common::have("cat") {
        return;
    }
    let known = Known::nothing();
    let (data, mountpoint) = (common::sample_folder(), known.path("mnt"));
    fs::create_dir(&mountpoint).expect("made");
    for _ in 0..2 {
        let mut mount = common::foretell();
        mount.args(["array", "mount", "--disk", "network"]).arg(data.path()).arg(&mountpoint);
        assert!(mount.stdout(Stdio::null()).status().expect("it runs").success());
        let mut command = common::foretell();
        command.args(["run", "--quiet", "--json", "/dev/null", "--", "sh", "-c"]);
        command.arg("cat mnt/*.txt mnt/sub/*.txt").current_dir(known.folder.path());
        let output = command.env("FORETELL_STATE", known.store.folder()).output();
        let mut unmount = common::foretell();
        let unmount = unmount.args(["array", "unmount"]).arg(&mountpoint).output();
        assert!(unmount.expect("it runs").status.success());
        assert!(output.expect("it runs").status.success());
        common::wait_until("the lesson", || known.count() == 3);
    }
    common::wait_until("the second lesson", || {
        known.store.list().iter().any(|kept| kept.profile.last.is_some() && kept.profile.runs == 2)
    });
    let shown = known.printed(&["show", "sh -c"]);
    assert!(shown.contains("runs      2") && shown.contains("asked for ahead"), "{shown}");
    assert!(shown.contains("mnt/sub/file-39.txt"), "{shown}");
}
