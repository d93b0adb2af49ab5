//! Files of rules: checked, made from recordings, and followed.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use common::mounted::Mounted;
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
    assert_eq!(lines.len(), 2, "{said}");
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
    let all = text(&profile(&run, &["-o", "-", "--min-read", "0"]).stdout);
    assert!(all.contains("libc.so") && !all.contains("libforetell_preload"), "{all}");
    let none = profile(&run, &["-o", "-", "--min-read", "1GiB"]);
    let none = check(&["-"], &text(&none.stdout));
    assert_eq!(text(&none.stdout), "standard input: no rules\n");
    let same = profile(&run, &["-o", run.to_str().expect("text")]);
    assert_eq!(same.status.code(), Some(2), "{same:?}");
    let no_recording = profile(&data, &["-o", "-"]);
    assert_eq!(no_recording.status.code(), Some(1), "{no_recording:?}");
}

/// Programs that know the size of a file do not read at its end, and several that read the same bytes read no more of it.
#[test]
fn a_profile_tells_whole_files_and_counts_a_byte_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let [data, run] = ["data", "run.ftr"].map(|name| folder.path().join(name));
    fs::write(&data, vec![1; 900 << 10]).expect("written");
    let script =
        "dd if=\"$0\" of=/dev/null bs=900k count=1; dd if=\"$0\" of=/dev/null bs=900k count=1";
    let mut record = foretell();
    record.args(["record", "-o"]).arg(&run).args(["--", "sh", "-c", script]).arg(&data);
    let output = record.stdin(Stdio::null()).output().expect("foretell runs");
    assert!(output.status.success(), "{output:?}");
    let rules = |least| text(&profile(&run, &["-o", "-", "--min-read", least]).stdout);
    let path = format!("path = \"{}\"", data.display());
    let whole = rules("900KiB");
    let (_, rule) = whole.split_once(&path).expect("a rule");
    let rule = rule.split("[[rule]]").next().expect("its text");
    assert!(!rule.contains("region"), "{whole}");
    assert!(!rules("1MiB").contains(&path), "it was read twice");
}

/// A cold file of 24 MiB on an array, and a file of rules about it.
struct Cold {
    mounted: Mounted,
    rules: tempfile::NamedTempFile,
}

impl Cold {
    /// `None`, with a message, if there is no array or no Python. `rule`: what the rule says beside its path.
    fn new(rule: &str) -> Option<Self> {
        if !common::have(PYTHON) {
            return None;
        }
        let data: Vec<u8> = (0..24 << 20).map(|at: u32| (at >> 12) as u8).collect();
        let mounted =
            Mounted::new(|folder| fs::write(folder.join("data"), &data).expect("written"))?;
        let rules = tempfile::NamedTempFile::new().expect("a file");
        let cold = Cold { mounted, rules };
        fs::write(&cold.rules, format!("[[rule]]\npath = \"{}\"\n{rule}", cold.data()))
            .expect("written");
        Some(cold)
    }

    fn data(&self) -> String {
        self.mounted.folder.path().join("data").display().to_string()
    }

    /// Runs a program of Python that has opened the file as `fd`, and has given foretell time to read ahead.
    fn run(&self, program: &str, options: &[&str]) -> Value {
        let begin = format!(
            "import os, time\nfd = os.open('{}', os.O_RDONLY)\ntime.sleep(0.5)\n",
            self.data()
        );
        let rules = self.rules.path().to_str().expect("text");
        let command = [PYTHON, "-c", &format!("{begin}{program}")];
        self.mounted.run_with(
            &command,
            &[&["--no-learn", "--rules", rules], options].concat(),
            |_| {},
        )
    }
}

/// Blocks that were read ahead by rules.
fn ahead(figures: &Value) -> u64 {
    let sources = figures["sources"].as_array().expect("a list");
    let of = sources.iter().find(|of| of["source"] == "rules");
    of.map_or(0, |of| of["prefetched"].as_u64().expect("a number"))
}

const SUM: &str = "print(sum(sum(os.pread(fd, 65536, at)) for at in range(0, 24 << 20, 1 << 20)))";

#[test]
fn the_parts_of_a_strided_file_are_read_ahead_and_no_others() {
    let stride = "[[rule.region]]\npattern = 'strided'\nlength = '64KiB'\nstride = '1MiB'\n";
    let Some(cold) = Cold::new(stride) else { return };
    let figures = cold.run(SUM, &[]);
    assert_eq!(figures["rules"]["files"], 1, "{figures}");
    let blocks = ahead(&figures);
    assert!((1..=24 * 8).contains(&blocks), "{figures}");
    assert_eq!(figures["blocks"]["refused"], 0, "{figures}");
    // On a busy machine, two blocks of the parts have been seen to count as wasted. More than a part would be a mistake.
    let wasted = figures["blocks"]["wasted"].as_u64().expect("a number");
    assert!(wasted < 8, "{figures}");
}

#[test]
fn no_more_is_read_ahead_than_the_rule_says() {
    let Some(cold) = Cold::new("ahead = '1MiB'\n") else { return };
    let figures = cold.run("print(len(os.pread(fd, 10, 0)))", &[]);
    // A cluster may exceed the bound.
    assert!((1..=128 + 16).contains(&ahead(&figures)), "{figures}");
    let figures = cold.run("print(sum(map(len, iter(lambda: os.read(fd, 65536), b''))))", &[]);
    assert!(ahead(&figures) > 128 + 16, "as the program goes on: {figures}");
}

/// As programs read files of ROOT and Parquet, whose tables are at the end.
const END_FIRST: &str = "
for at in range(22 << 20, 24 << 20, 65536): os.pread(fd, 65536, at)
for at in range(0, 64 << 13, 1 << 13): os.pread(fd, 4096, at)
time.sleep(0.5)
for at in range(1 << 20, 22 << 20, 65536):
    os.pread(fd, 4096, at)
    time.sleep(0.002)
";

#[test]
fn a_program_that_reads_the_end_first_and_leaves_out_parts_is_read_ahead_of() {
    let Some(cold) = Cold::new("request = '1MiB'\n") else { return };
    let figures = cold.run(END_FIRST, &[]);
    assert_eq!(figures["rules"]["files"], 1, "{figures}");
    // What is fetched before the program reads the end is 8 MiB and a request more.
    assert!(ahead(&figures) > 1024 + 128, "{figures}");
    assert!(figures["hints"]["given"].as_u64() > Some(1), "it begins anew: {figures}");
}

/// Its data is dropped from memory in between.
const TWICE: &str = "
for _ in range(2):
    for at in range(0, 24 << 20, 65536):
        os.pread(fd, 65536, at)
        time.sleep(0.002)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
";

#[test]
fn a_file_that_is_read_twice_through_one_descriptor_is_read_ahead_twice() {
    let Some(cold) = Cold::new("request = '1MiB'\n") else { return };
    let figures = cold.run(TWICE, &[]);
    assert_eq!(figures["rules"]["files"], 1, "{figures}");
    assert!(ahead(&figures) > 24 * 128 + 1024, "{figures}");
}

#[test]
fn a_file_that_is_never_read_ahead_is_not_whoever_asks() {
    let Some(cold) = Cold::new("never = true\n") else { return };
    let list = tempfile::NamedTempFile::new().expect("a file");
    fs::write(&list, cold.data()).expect("written");
    let list = list.path().to_str().expect("text");
    let advice = "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)\ntime.sleep(0.3)\n";
    let figures = cold.run(&format!("{advice}{SUM}"), &["--hints", list]);
    assert_eq!(figures["blocks"]["prefetched"], 0, "{figures}");
    assert_eq!(figures["rules"]["files"], 0);
    assert!(figures["rules"]["dropped"].as_u64() >= Some(1), "that of the list: {figures}");
}

#[test]
fn a_process_that_the_program_starts_follows_the_rules_too() {
    let Some(cold) = Cold::new("ahead = '2MiB'\n") else { return };
    let begin =
        format!("import os, time\nfd = os.open('{}', os.O_RDONLY)\ntime.sleep(0.5)\n", cold.data());
    let program = format!(
        "import subprocess; subprocess.run([{PYTHON:?}, '-c', {:?}])",
        format!("{begin}{SUM}")
    );
    let rules = cold.rules.path().to_str().expect("text");
    // What is observed otherwise makes no difference.
    let options = ["--no-learn", "--rules", rules, "--observe", "none"];
    let figures = cold.mounted.run_with(&[PYTHON, "-c", &program], &options, |_| {});
    assert_eq!(figures["rules"]["files"], 1, "{figures}");
    assert!(ahead(&figures) > 0, "{figures}");
}

#[test]
fn a_run_with_bad_rules_does_not_begin() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\npath = '/x'\naheda = 1\n").expect("written");
    let run = |words: &[&str]| {
        let mut command = foretell();
        command.arg("run").args(words).args(["--", "echo", "begun"]).current_dir(folder.path());
        command.stdin(Stdio::null()).output().expect("foretell runs")
    };
    let bad = run(&["--rules", "rules.toml"]);
    let told = "foretell: --rules: rules.toml: line 3, column 1: unknown key \"aheda\"; did you mean \"ahead\"?\n";
    assert_eq!(
        (bad.status.code(), text(&bad.stdout), text(&bad.stderr)),
        (Some(125), String::new(), told.into())
    );
    assert_eq!(run(&["--rules", "gone.toml"]).status.code(), Some(125));
    assert_eq!(run(&["--rules", "-"]).status.code(), Some(2));
    assert_eq!(run(&["--no-hints", "--rules", "rules.toml"]).status.code(), Some(2));
    fs::write(&rules, "").expect("written");
    assert_eq!(text(&run(&["--quiet", "--rules", "rules.toml"]).stdout), "begun\n");
    assert_eq!(run(&["--rules", "rules.toml", "--json", "rules.toml"]).status.code(), Some(2));
}

/// Says how much of its argument is in memory, after a wait for releases under way.
const RESIDENT: &str = "import ctypes, mmap, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
size = os.stat(sys.argv[1]).st_size
fd = os.open(sys.argv[1], os.O_RDONLY)
at = libc.mmap(None, ctypes.c_size_t(size), 1, 1, fd, ctypes.c_long(0))
pages = (size + 4095) // 4096
seen = (ctypes.c_ubyte * pages)()
assert libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), seen) == 0
print(sum(page & 1 for page in seen) * 100 // pages)";

#[test]
fn data_is_let_go_after_it_was_read_where_a_rule_says_so() {
    let Some(mounted) = Mounted::new(|folder| {
        fs::write(folder.join("data"), vec![b'x'; 16 << 20]).expect("written");
    }) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.toml");
    let resident = |after: &str| -> u64 {
        fs::write(&rules, format!("[[rule]]\npath = '**/data'\nbackend = 'readahead'\n{after}"))
            .expect("written");
        common::wait_until("the array is free", || mounted.unmount());
        mounted.mount();
        let mut run = foretell();
        run.args(["run", "--quiet", "--no-learn", "--json", "/dev/null", "--rules"]).arg(&rules);
        // It ends some time after its last read.
        let script = "dd if=data bs=64k status=none | cksum; sleep 0.5";
        run.args(["--", "sh", "-c", script]).current_dir(mounted.folder.path());
        let output = run.output().expect("foretell runs");
        assert!(output.status.success(), "{output:?}");
        let mut look = std::process::Command::new(PYTHON);
        look.args(["-c", RESIDENT]).arg(mounted.folder.path().join("data"));
        let output = look.output().expect("it runs");
        text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
    };
    // The kernel reclaims single pages at any time.
    let kept = resident("");
    assert!(kept >= 90, "{kept} %");
    let mut left = (0..5).map(|_| resident("after = 'release'\n"));
    assert!(left.any(|left| left < 50), "on a busy machine some of its reads may come too late");
}
