//! `foretell learned`: what is known is listed, shown, forgotten, and taken elsewhere.

mod common;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::text;
use foretell_manager::learn::across;
use foretell_manager::learn::private::Private;
use foretell_manager::learn::profile::{Kind, Last, Profile};
use foretell_manager::learn::steps::{Acts, Part, Run, Step};
use foretell_manager::learn::store::Store;
use foretell_manager::learn::workload::Workload;
use serde_json::Value;

/// A store with some workloads, in a folder that goes with it.
struct Known {
    folder: tempfile::TempDir,
    store: Store,
}

fn step(path: &str, acts: Acts, parts: &[(u64, u64)]) -> Step {
    let parts = parts.iter().map(|&(start, end)| Part { start, end }).collect();
    Step { path: path.as_bytes().into(), acts, parts, at_ms: 1500 }
}

fn workload(line: &str, folder: &str) -> Workload {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    Workload::of_command(&words, Path::new(folder), &Private::new(std::iter::empty()))
}

impl Known {
    fn nothing() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().join("state"));
        Known { folder, store }
    }

    fn new() -> Self {
        let known = Known::nothing();
        known.learn("cc -c a.c", "/src/one");
        known.learn("cc -c b.c", "/src/one");
        known.learn("cc -c a.c", "/src/two");
        known.learn("git status", "/src/one");
        let nightly = Workload::named("nightly");
        known.add(&nightly.exact, &nightly.name, (nightly.kind, nightly.folder));
        known
    }

    /// As a run of the command does.
    fn learn(&self, line: &str, folder: &str) {
        let workload = workload(line, folder);
        self.add(&workload.alike, &workload.shape, (Kind::Alike, Vec::new()));
        self.add(&workload.exact, &workload.name, (workload.kind, workload.folder));
    }

    fn add(&self, key: &[u8], name: &str, about: (Kind, Vec<u8>)) {
        let read = Acts::OPEN | Acts::READ;
        let steps = vec![
            step("/img/bin/tool", read | Acts::MAP, &[(0, 8192), (16384, 24576)]),
            step("/img/etc", Acts::LIST, &[]),
            step("/img/none", Acts::OPEN | Acts::FAIL, &[]),
            step("/img/data.bin", read | Acts::END, &[(0, 1 << 20)]),
            step("/home/a/notes", Acts::LOOK, &[]),
            step("/home/a/list", read, &[(8192, 16384)]),
        ];
        let change = |profile: &mut Profile| {
            (profile.kind, profile.folder) = about;
            profile.learn(Run { steps, is_cut: false }, |_, _| true, true);
        };
        self.store.update(key, name, change).expect("written");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = common::foretell();
        command.arg("learned").args(words).env("FORETELL_STATE", self.store.folder());
        command.stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("foretell runs")
    }

    /// What a command prints that succeeds.
    fn printed(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The line of a command that fails with this code.
    fn refused(&self, code: i32, words: &[&str]) -> String {
        let output = self.output(words);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {line}");
        assert!(line.starts_with("foretell: ") && line.trim_end().lines().count() == 1, "{line}");
        assert!(output.stdout.is_empty(), "{words:?}: {}", text(&output.stdout));
        line
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn count(&self) -> usize {
        self.store.list().len()
    }
}

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
fn lists_are_exported_as_tools_ask_for_them() {
    let known = Known::new();
    let export =
        |format| known.printed(&["export", "nightly", "--format", format, "--root", "/img"]);
    assert_eq!(export("list"), "bin/tool\ndata.bin\n");
    assert_eq!(export("nydus"), "/bin/tool\n/data.bin\n");
    assert_eq!(export("estargz"), "{\"path\":\"bin/tool\"}\n{\"path\":\"data.bin\"}\n");
    let soci: Value = serde_json::from_str(&export("soci")).expect("JSON");
    assert_eq!(soci, serde_json::json!(["/bin/tool", "/data.bin"]));
    let cvmfs: Value = serde_json::from_str(&export("cvmfs")).expect("JSON");
    assert_eq!(cvmfs["dependencies"], soci);
    let output = known.output(&["export", "nightly", "--format", "cvmfs", "--root", "/img"]);
    assert!(text(&output.stderr).contains("/bin/.cvmfsbundle-tool"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("left out: 1 file outside"), "{}", text(&output.stderr));

    let file = known.path("files");
    let to = file.to_str().expect("text");
    assert_eq!(known.printed(&["export", "nightly", "-o", to]), "");
    let written = fs::read_to_string(&file).expect("written");
    assert_eq!(written, "/img/bin/tool\n/img/data.bin\n/home/a/list\n");

    assert!(
        known.refused(1, &["export", "nightly", "--root", "/elsewhere"]).contains("/elsewhere")
    );
    assert!(known.refused(1, &["export", "nightly", "-o", "/no/where"]).contains("/no/where"));
    let _ = known.refused(2, &["export", "nightly", "--format", "tar"]);
    let _ = known.refused(2, &["export", "nightly", "--format", "foretell", "--root", "/img"]);
}

#[test]
fn rules_are_hints_that_a_run_accepts() {
    let known = Known::nothing();
    let folder = common::sample_folder();
    let files = common::sample_files(folder.path());
    let steps = files.iter().skip(10).map(|path| {
        let path = path.to_str().expect("text");
        step(path, Acts::OPEN | Acts::READ | Acts::MAP, &[(0, 8192), (16384, 24576)])
    });
    let run = Run { steps: steps.collect(), is_cut: false };
    let count = run.steps.len() as u64;
    known
        .store
        .update(b"k", "x", |profile| profile.learn(run, |_, _| true, true))
        .expect("written");
    let rules = known.path("rules");
    known.printed(&["export", "x", "--format", "rules", "-o", rules.to_str().expect("text")]);
    let mut command = common::foretell();
    command.args(["run", "--quiet", "--json", "-", "--hints"]).arg(&rules);
    let output = command.args(["--", "sleep", "0.5"]).output().expect("it runs");
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(common::given(&figures), count);
}

#[test]
fn a_list_is_imported_for_a_name_or_a_command() {
    let known = Known::nothing();
    let folder = common::sample_folder();
    let list = known.path("list");
    fs::write(&list, "file-01.txt\n./file-02.txt\nmissing\n\n/old/sub/file-00.txt\n/x/id_rsa\n")
        .expect("written");
    let list = list.to_str().expect("text");
    let map = format!("/old={}", folder.path().display());
    let root = folder.path().to_str().expect("text");
    assert!(known.refused(2, &["import", list]).contains("--workload"));
    let words = ["import", list, "--root", root, "--map", &map, "--workload", "serve"];
    let output = known.output(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    assert!(told.contains("1 of 4 paths are not on this machine"), "{told}");
    assert!(told.contains("1 path never to be learned"), "{told}");
    let exported = known.printed(&["export", "serve"]);
    let expected: Vec<String> = ["file-01.txt", "file-02.txt", "missing", "sub/file-00.txt"]
        .map(|name| folder.path().join(name).display().to_string() + "\n")
        .to_vec();
    assert_eq!(exported, expected.concat());
    assert!(known.refused(1, &words).contains("--replace"));
    let again = [&words[..], &["--replace"]].concat();
    assert!(known.printed(&again).contains("4 steps"));

    let mut command = known.command(&["import", list, "--", "./serve", "--port", "80"]);
    let output = command.current_dir(folder.path()).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let key = workload("./serve --port 80", root).exact;
    assert!(known.store.load(&key).expect("read").is_some());
    assert!(known.printed(&["list"]).contains(&format!("./serve --port 80 (in {root})")));
}

#[test]
fn what_one_machine_exports_another_imports() {
    let (here, there) = (Known::new(), Known::nothing());
    let file = here.path("exported");
    let file = file.to_str().expect("text");
    let export = |name: &str| {
        here.printed(&["export", name, "--format", "foretell", "-o", file]);
    };
    export("nightly");
    let printed = there.printed(&["import", file, "--map", "/img=/mnt/img"]);
    assert!(printed.contains("nightly: 6 steps"), "{printed}");
    let key = Workload::named("nightly").exact;
    let (before, after) = (here.store.load(&key), there.store.load(&key));
    let (before, after) =
        (before.expect("read").expect("kept"), after.expect("read").expect("kept"));
    assert_eq!((before.runs, before.kind), (after.runs, after.kind));
    assert_eq!(&*after.steps[0].path, b"/mnt/img/bin/tool");
    assert_eq!(before.steps[0].parts, after.steps[0].parts);

    export("git status");
    let _ = there.printed(&["import", file]);
    assert!(there.store.load(&workload("git status", "/src/one").exact).expect("read").is_some());
    let line = there.refused(2, &["import", file, "--map", "/src=/home"]);
    assert!(line.contains("/src/one") && line.contains("--workload"), "{line}");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command =
        there.command(&["import", file, "--map", "/src=/home", "--", "git", "status"]);
    assert!(command.current_dir(folder.path()).status().expect("it runs").success());
    let moved = workload("git status", folder.path().to_str().expect("text"));
    assert!(there.store.load(&moved.exact).expect("read").is_some());
}

#[test]
fn what_cannot_be_imported_is_told() {
    let known = Known::new();
    let file = known.path("file");
    let path = file.to_str().expect("text");
    let import = |content: &[u8], words: &[&str]| {
        fs::write(&file, content).expect("written");
        known.refused(1, &[&["import", path][..], words].concat())
    };
    let exported = known.command(&["export", "nightly", "--format", "foretell"]).output();
    let mut bytes = exported.expect("it runs").stdout;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    assert!(import(&bytes, &[]).contains("damaged"));
    bytes[8] = 99;
    assert!(import(&bytes, &[]).contains("another version"));
    assert!(import(b"/a\n{\"path\": \"/b\"}\n", &["--workload", "x"]).contains("line 2"));
    assert!(import(b"ELF\0\0\0", &["--workload", "x"]).contains("zero byte"));
    assert!(import(b"", &["--workload", "x"]).contains("no path"));
    assert!(import(b"/home/a/.ssh/id_rsa\n", &["--workload", "x"]).contains("no path"));
    assert!(import(b"/a\n", &["--format", "foretell"]).contains("damaged"));
    assert!(known.refused(1, &["import", "/no/file"]).contains("/no/file"));
    assert!(known.refused(1, &["import", "/dev/zero"]).contains("larger"));
    for map in ["/a", "a=b", "/a=b", "="] {
        assert!(known.refused(2, &["import", path, "--map", map]).contains("OLD=NEW"), "{map}");
    }
    let _ = known.refused(2, &["import", path, "--workload", "x", "--", "cmd"]);
    assert_eq!(known.count(), 7);
}

/// Whether the process was ended by this signal.
fn died_of(output: &Output, signal: i32) -> bool {
    output.status.signal() == Some(signal) && output.stderr.is_empty()
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
fn ctrl_c_ends_it_and_leaves_nothing() {
    let known = Known::new();
    let mut command = known.command(&["import", "-", "--workload", "x"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"/usr/bin/true\n").expect("it is read");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sent");
    let output = child.wait_with_output().expect("it ends");
    assert!(died_of(&output, 2), "{output:?}");
    assert_eq!(known.count(), 7);
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
    for words in [&["list"][..], &["show", "x"], &["forget", "x"]] {
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
