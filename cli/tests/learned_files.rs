//! `foretell learned export` and `import`: what is known is taken elsewhere.

mod common;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use common::known::{Known, died_of, step, workload};
use common::text;
use foretell_manager::learn::codec;
use foretell_manager::learn::steps::{Acts, Run};
use foretell_manager::learn::workload::Workload;
use serde_json::Value;

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
fn a_profile_that_is_too_large_is_refused() {
    let known = Known::nothing();
    let file = known.path("large");
    let large = fs::File::create(&file).expect("made");
    large.set_len(codec::PROFILE_MAX_BYTES as u64 + 1).expect("sparse");
    let line = known.refused(1, &["import", file.to_str().expect("text"), "--workload", "x"]);
    assert!(line.contains("larger than 32 MiB"), "{line}");
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
