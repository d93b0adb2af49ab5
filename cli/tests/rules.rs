//! Files of rules: checked, made from recordings, and followed.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use common::{foretell, text};
use serde_json::Value;

/// Not the first of PATH, which may be a script that runs many programs.
const PYTHON: &str = "/usr/bin/python3";

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rules.toml");

fn check(words: &[&str], input: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("input");
    fs::write(&file, input).expect("written");
    let mut command = foretell();
    command.args(["rules", "check"]).args(words).env("HOME", "/home/a").current_dir("/");
    command.stdin(fs::File::open(file).expect("opened")).output().expect("foretell runs")
}

#[test]
fn the_example_is_explained_and_paths_get_their_rules() {
    let output =
        check(&[EXAMPLE, "--path", "/data/set/a/b.tab", "--path", "x.log", "--path", "/y"], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    for line in [
        "/data/set/a/b.tab: rule 2 (line ",
        "x.log: rule 4 (line ",
        "nothing is read ahead",
        "/y: no rule",
        "1000 parts of 64 KiB, 1 MiB apart, from 1 MiB on; at most 4 MiB ahead",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn mistakes_are_told_one_a_line_and_the_command_fails() {
    let output = check(&["-"], "[[rule]]\npaht = '/x'\n[[rule]]\npath = 'x'\n");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    let unknown =
        "foretell: standard input: line 2, column 1: unknown key \"paht\"; did you mean \"path\"?";
    assert!(lines.contains(&unknown), "{said}");
    assert_eq!(check(&[], "").status.code(), Some(2));
    let gone = check(&["/no/such/file"], "");
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).starts_with("foretell: /no/such/file: No such file"), "{gone:?}");
    let endless = check(&["/dev/zero"], "");
    assert!(text(&endless.stderr).contains("is larger than 4 MiB"), "{endless:?}");
}

#[test]
fn json_has_the_rules_or_the_mistakes() {
    let json = |input: &str| -> (Value, Option<i32>) {
        let output = check(&["-", "--json", "-", "--path", "/d/x"], input);
        (serde_json::from_slice(&output.stdout).expect("JSON"), output.status.code())
    };
    let (good, code) = json("[[rule]]\npath = '/d/*'\nahead = '1KiB'\n");
    assert_eq!((code, &good["rules"][0]["ahead_bytes"]), (Some(0), &1024.into()), "{good}");
    assert_eq!(good["paths"][0]["rule"], 1);
    let (bad, code) = json("[[rule]]\npath = 7\n");
    assert_eq!((code, &bad["problems"][0]["line"]), (Some(1), &2.into()), "{bad}");
    let (mercury, code) =
        json(r#"{"Directory": [{"Path": "/d", "CacheSize": 3, "WillNeed": [{"Offset": 8192}]}]}"#);
    assert_eq!((code, &mercury["paths"][0]["rule"]), (Some(0), &1.into()), "{mercury}");
    assert_eq!(mercury["rules"][0]["regions"][0]["offset_bytes"], 8192);
    assert!(mercury["ignored"][0].as_str().expect("text").starts_with("CacheSize"), "{mercury}");
}

/// Reads 64 KiB of each MiB of its argument.
const STRIDED: &str = "import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for at in range(0, os.fstat(fd).st_size, 1 << 20): os.pread(fd, 65536, at)";

fn profile(recording: &Path, words: &[&str]) -> Output {
    let mut command = foretell();
    command.arg("profile").arg(recording).args(words).stdin(Stdio::null());
    command.output().expect("foretell runs")
}

#[test]
fn a_profile_has_the_regions_that_were_read_and_passes_the_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let [data, run, rules] =
        ["data [1]", "run.ftr", "rules.toml"].map(|name| folder.path().join(name));
    fs::write(&data, vec![1; 24 << 20]).expect("written");
    let mut record = foretell();
    record.args(["record", "-o"]).arg(&run).args(["--", PYTHON, "-c", STRIDED]).arg(&data);
    let output = record.stdin(Stdio::null()).output().expect("foretell runs");
    assert!(output.status.success(), "{output:?}");
    let output = profile(&run, &["-o", rules.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let listed: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(listed.len(), 3, "nothing is left beside: {listed:?}");
    let name = data.to_str().expect("text");
    let output = check(&[rules.to_str().expect("text"), "--path", name], "");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let last = said.lines().last().expect("a line");
    assert!(
        last.starts_with(name) && last.ends_with(": 24 parts of 64 KiB, 1 MiB apart, from 0 B on"),
        "{said}"
    );
    let none = profile(&run, &["-o", "-", "--min-read", "1GiB"]);
    let none = check(&["-"], &text(&none.stdout));
    assert_eq!(text(&none.stdout), "standard input: no rules\n");
    let same = profile(&run, &["-o", run.to_str().expect("text")]);
    assert_eq!(same.status.code(), Some(2), "{same:?}");
    let no_recording = profile(&data, &["-o", "-"]);
    assert_eq!(no_recording.status.code(), Some(1), "{no_recording:?}");
}
