//! Arguments of all processes under `foretell run` are hints.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{compile, foretell, given, have, sample_files, sample_folder};

/// Runs a command in `folder`, with figures, and checks that it does the same without foretell. The files of the folder are not
/// in memory before. Standard input is empty and ends after half a second, so that a program that reads it (`cat FILE -`) has
/// not ended when its arguments are looked at.
fn run(folder: &Path, options: &[&str], command: &[&str]) -> (Output, serde_json::Value) {
    for file in sample_files(folder) {
        let file = fs::File::open(file).expect("opened");
        file.sync_all().expect("written to the device");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
    }
    let figures = folder.join("figures.json");
    let mut run = foretell();
    run.args(["run", "--quiet", "--json"]).arg(&figures).args(options).arg("--").args(command);
    let mut input =
        Command::new("sleep").arg("0.5").stdout(Stdio::piped()).spawn().expect("it runs");
    let pipe = input.stdout.take().expect("a pipe");
    let output = run.current_dir(folder).stdin(pipe).output().expect("foretell runs");
    input.wait().expect("it ends");
    let plain = Command::new(command[0])
        .args(&command[1..])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(output.stdout == plain.stdout, "{command:?}: standard output differs");
    assert_eq!(output.stderr, plain.stderr, "{command:?}");
    assert_eq!(output.status, plain.status, "{command:?}");
    (output, serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON"))
}

const FILES: &str = "file-35.txt file-37.txt file-38.txt";

/// Standard input, which is no file.
const INPUT: &str = "-";

#[test]
fn what_a_script_runs_gives_hints() {
    let folder = sample_folder();
    let script = format!("cat {FILES} {INPUT}; true file-34.txt");
    let (_, figures) = run(folder.path(), &[], &["sh", "-c", &script]);
    assert_eq!(given(&figures), 3, "{figures}");
    let blocks = &figures["blocks"];
    let known: u64 = ["useful", "late", "overtaken", "already_cached"]
        .map(|count| blocks[count].as_u64().expect("a number"))
        .iter()
        .sum();
    assert!(known > 0, "{figures}");
    assert_eq!(blocks["wasted"], 0, "{figures}");
    for off in ["--no-hint-args", "--no-hints"] {
        let (_, figures) = run(folder.path(), &[off], &["sh", "-c", &script]);
        assert_eq!(given(&figures), 0, "{off}: {figures}");
    }
}

#[test]
fn a_path_is_disclosed_once_whoever_hands_it_on() {
    let folder = sample_folder();
    let files: Vec<&str> = FILES.split(' ').chain([INPUT]).collect();
    common::write_script(&folder.path().join("script"), "#!/bin/sh\ncat \"$@\"\nexec cat \"$@\"\n");
    for first in [
        &["cat"][..],
        &["env", "A=1", "cat"],
        &["nice", "env", "A=1", "timeout", "60", "cat"],
        &["sh", "-c", "cat \"$@\"", "sh"],
        &["sh", "-c", "(cat \"$@\"; true); exec cat \"$@\"", "sh"],
        &["./script"],
        &["sh", "-c", "env ./script \"$@\" & wait", "sh"],
    ] {
        let (_, figures) = run(folder.path(), &[], &[first, &files].concat());
        // The script is a file too.
        let scripts = u64::from(first.concat().contains("./script"));
        let hints = given(&figures);
        assert!((3..=3 + scripts).contains(&hints), "{first:?}: {hints} hints");
    }
    let (_, figures) =
        run(folder.path(), &[], &["sh", "-c", &format!("env A=1 nice cat {FILES} {INPUT}")]);
    assert_eq!(given(&figures), 3, "{figures}");
    // Each process reads them.
    let script = format!("(sleep 0.5; true) | cat {FILES} {INPUT}; cat {FILES} {INPUT}");
    let (_, figures) = run(folder.path(), &[], &["sh", "-c", &script]);
    assert!((3..=6).contains(&given(&figures)), "{figures}");
}

#[test]
fn the_arguments_that_xargs_and_find_make_are_hints() {
    if !have("find") || !have("xargs") {
        return;
    }
    let folder = sample_folder();
    let find = "find . -name 'file-3*' -print0 | sort -z";
    for number in ["10", "4"] {
        let reader = format!("xargs -0 -n {number} sh -c 'cksum \"$@\"; sleep 0.3' sh");
        let (_, figures) = run(folder.path(), &[], &["sh", "-c", &format!("{find} | {reader}")]);
        assert_eq!(given(&figures), 10, "{reader}: {figures}");
    }
    let script = "cd sub && grep -r needle . -; exit 0";
    let (_, figures) = run(folder.path(), &[], &["sh", "-c", script]);
    assert_eq!(given(&figures), 14, "all files of the folder: {figures}");
}

#[test]
fn odd_arguments_do_no_harm() {
    let folder = sample_folder();
    let program = compile("odd_arguments", folder.path());
    let program = program.to_str().expect("text");
    // The child has executed no program, so its command line is its parent's.
    let words = [program, "overwrite", "file-35.txt", "file-37.txt"];
    let (output, figures) = run(folder.path(), &[], &words);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(given(&figures), 2, "{figures}");
    let (_, figures) = run(folder.path(), &[], &["sh", "-c", &format!("{program} none x; exit 0")]);
    assert_eq!(given(&figures), 0, "{figures}");
    let script = format!("{program} chroot sub /file-36.txt; exit 0");
    run(folder.path(), &[], &["sh", "-c", &script]);
    // Some have ended before the manager looks at them.
    run(folder.path(), &[], &["sh", "-c", "for i in $(seq 100); do cat file-05.txt & done; wait"]);
}

#[test]
fn very_many_words_do_no_harm() {
    if !have("xargs") {
        return;
    }
    let folder = sample_folder();
    let script = "seq 1 100000 | xargs -s 1900000 -n 100000 grep -s -c some file-38.txt; exit 0";
    let (_, figures) = run(folder.path(), &[], &["sh", "-c", script]);
    assert!(given(&figures) <= 1, "{figures}");
}
