//! Programs that cannot be interposed, seen from outside.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use common::{assert_same, foretell, have, have_fuse, skipped};

const FILES: usize = 120;

/// Files behind an emulated array, and programs that read them.
struct Setting {
    folder: tempfile::TempDir,
    mountpoint: tempfile::TempDir,
}

fn setting() -> Option<Setting> {
    if !have_fuse() {
        return None;
    }
    let [folder, mountpoint] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("made");
    for index in 0..FILES {
        let content = vec![index as u8; 9_000 + 331 * index];
        fs::write(data.join(format!("{index:03}")), content).expect("written");
    }
    fs::write(data.join("large"), vec![5; 12 << 20]).expect("written");
    Some(Setting { folder, mountpoint })
}

/// Compiles `tests/c/reads_list.c` as a static program.
fn static_program(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/reads_list.c");
    let program = folder.join("reads_list");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Werror", "-static", "-o"]).arg(&program).arg(source);
    if compiler.output().is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    skipped("no static libc");
    None
}

fn go_program(folder: &Path) -> Option<PathBuf> {
    if !have("go") {
        return None;
    }
    let source = r#"package main

import ("bufio"; "fmt"; "io"; "os"; "time")

func main() {
	list, _ := os.Open(os.Args[2])
	lines := bufio.NewScanner(list)
	bytes, sum, buffer := 0, uint64(0), make([]byte, 8192)
	for lines.Scan() {
		file, _ := os.Open(lines.Text())
		var reader io.Reader = file
		if os.Args[1] == "pread" { reader = io.NewSectionReader(file, 0, 1 << 40) }
		for {
			got, err := reader.Read(buffer)
			time.Sleep(500 * time.Microsecond)
			for _, one := range buffer[:got] { sum = sum * 31 + uint64(one) }
			bytes += got
			if err != nil { break }
		}
		file.Close()
	}
	fmt.Println(bytes, sum)
	os.Exit(7)
}
"#;
    fs::write(folder.join("main.go"), source).expect("written");
    let mut command = Command::new("go");
    command.args(["build", "-o", "go-program", "main.go"]).current_dir(folder);
    command.env("CGO_ENABLED", "0").env("GOCACHE", folder.join("cache"));
    if command.output().is_ok_and(|output| output.status.success()) {
        return Some(folder.join("go-program"));
    }
    skipped("go builds nothing here");
    None
}

impl Setting {
    /// A list of files behind the array.
    fn list(&self, names: impl IntoIterator<Item = String>) -> PathBuf {
        let path = |name: String| format!("{}\n", self.mountpoint.path().join(name).display());
        let list = self.folder.path().join("list");
        fs::write(&list, names.into_iter().map(path).collect::<String>()).expect("written");
        list
    }

    fn small_files(&self) -> PathBuf {
        self.list((0..FILES).map(|index| format!("{index:03}")))
    }

    /// Runs `command` over a cold array, with the list as hints, and compares with a plain run over the array.
    fn run(&self, list: &Path, command: &[&str]) -> (Value, String) {
        let figures = self.folder.path().join("figures.json");
        let plain = self.on_array(|| Command::new(command[0]).args(&command[1..]).output());
        let hinted = self.on_array(|| {
            let mut run = foretell();
            run.args(["run", "--no-hint-args", "--hints"]).arg(list).arg("--json").arg(&figures);
            run.arg("--").args(command).stdin(Stdio::null()).output()
        });
        assert_eq!((hinted.status, hinted.stdout), (plain.status, plain.stdout), "{command:?}");
        let said = String::from_utf8_lossy(&hinted.stderr).into_owned();
        let figures = fs::read(figures).expect("written");
        (serde_json::from_slice(&figures).expect("JSON"), said)
    }

    fn on_array(&self, run: impl FnOnce() -> std::io::Result<Output>) -> Output {
        let array = |words: &[&str], paths: &[&Path]| {
            let output = foretell().arg("array").args(words).args(paths).output();
            assert!(output.expect("it runs").status.success(), "{words:?}");
        };
        let (data, mountpoint) = (self.folder.path().join("data"), self.mountpoint.path());
        array(&["mount", "--disks", "8", "--disk", "network"], &[&data, mountpoint]);
        let output = run().expect("it runs");
        array(&["unmount"], &[mountpoint]);
        output
    }
}

/// Only the library measures how long a program waits.
fn assert_waiting_is_unknown(figures: &Value, said: &str) {
    assert!(figures["stall_s"].is_null(), "{figures}");
    for part in ["read_stall_s", "open_stall_s"] {
        assert!(figures["programs"][part].is_null(), "{figures}");
    }
    assert!(figures["names"]["stall_s"].is_null(), "{figures}");
    assert!(said.contains(" s, time spent waiting for reads unknown"), "{said}");
}

/// Most of the reads were seen, and hints were worked off by them.
fn assert_followed(figures: &Value, said: &str) {
    let number = |path: &str| figures.pointer(path).and_then(Value::as_u64).expect("a number");
    let blocks = number("/blocks/prefetched");
    assert!(number("/blocks/useful") > blocks / 4, "{figures}");
    // On a busy machine the program overtakes some.
    let wanted = blocks + number("/blocks/overtaken");
    assert!(wanted > 400, "the stream was trusted: {figures}");
    assert_eq!(number("/programs/outside"), 1, "{figures}");
    assert!(figures["seen_share"].as_f64().expect("a number") > 0.4, "{figures}");
    assert!(said.contains("; 1 program seen from outside"), "{said}");
    assert!(!said.contains("program not seen") && !said.contains("wasted"), "{said}");
}

#[test]
fn a_static_program_works_hints_off() {
    let Some(setting) = setting() else { return };
    let Some(program) = static_program(setting.folder.path()) else { return };
    let (program, list) = (program.display().to_string(), setting.small_files());
    let list_name = list.display().to_string();
    for how in ["read", "pread"] {
        let (figures, said) = setting.run(&list, &[&program, how, &list_name]);
        assert_followed(&figures, &said);
        assert_waiting_is_unknown(&figures, &said);
    }
    // As a child of a program with the library.
    let script = format!("{program} pread {list_name}; exit 3");
    let (figures, said) = setting.run(&list, &["sh", "-c", &script]);
    assert_followed(&figures, &said);
    assert!(figures["stall_s"].is_f64(), "{figures}");
    let told = figures["programs"]["processes"].as_u64().expect("a number");
    let processes = if told == 1 { "process" } else { "processes" };
    let waiting = format!(" spent waiting for reads by {told} {processes}, unknown of others");
    assert!(said.contains(&waiting), "{said}");
    let list = setting.list(["large".to_owned()]);
    for how in ["read", "pread"] {
        let (figures, said) = setting.run(&list, &[&program, how, &list_name]);
        assert_followed(&figures, &said);
    }
}

#[test]
fn files_that_a_static_program_maps_are_worked_off() {
    let Some(setting) = setting() else { return };
    let Some(program) = static_program(setting.folder.path()) else { return };
    let program = program.display().to_string();
    for list in [setting.small_files(), setting.list(["large".to_owned()])] {
        let name = list.display().to_string();
        let (figures, _) = setting.run(&list, &[&program, "map", &name]);
        assert!(figures["blocks"]["useful"].as_u64().expect("a number") > 100, "{figures}");
    }
}

#[test]
fn a_go_program_works_hints_off() {
    let Some(setting) = setting() else { return };
    let Some(program) = go_program(setting.folder.path()) else { return };
    let (program, list) = (program.display().to_string(), setting.small_files());
    for how in ["read", "pread"] {
        let (figures, said) = setting.run(&list, &[&program, how, &list.display().to_string()]);
        assert_followed(&figures, &said);
    }
}

#[test]
fn a_program_that_ends_at_once_or_becomes_another_one_is_no_trouble() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = static_program(folder.path()) else { return };
    let program = program.display().to_string();
    let list = folder.path().join("list");
    let file = folder.path().join("file");
    fs::write(&file, [1; 50_000]).expect("written");
    fs::write(&list, format!("{}\n", file.display()).repeat(20)).expect("written");
    let (list, file) = (list.display().to_string(), file.display().to_string());
    for _ in 0..10 {
        let output = assert_same(&[&program], |_| {});
        assert_eq!(output.status.code(), Some(2));
    }
    let output = assert_same(&[&program, "read", &list, "/bin/cat", &file], |_| {});
    assert!(output.stdout.ends_with(&[1; 50_000]));
    let twice = [program.as_str(), "read", &list, &program, "pread", &list, "/bin/true"];
    assert_eq!(assert_same(&twice, |_| {}).status.code(), Some(0));
}

#[test]
fn many_short_programs_are_no_trouble() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = static_program(folder.path()) else { return };
    let script = format!("for i in $(seq 60); do {0} & {0}; done; wait; exit 4", program.display());
    assert_eq!(assert_same(&["bash", "-c", &script], |_| {}).status.code(), Some(4));
}
