//! `foretell run` and `foretell hint` from the outside: exit codes, signals, options, bad input.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{compile, foretell, sample_files, sample_folder, under_foretell};
use rustix::process::{Pid, Signal, kill_process};

fn output(arguments: &[&str]) -> Output {
    foretell().args(arguments).stdin(Stdio::null()).output().expect("foretell runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks the exit code and the one-line message.
fn assert_fails(arguments: &[&str], code: i32, part: &str) {
    let output = output(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(text.contains(part), "{arguments:?} should say {part:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    assert!(text.starts_with("foretell: "), "{text}");
    assert!(output.stdout.is_empty());
}

fn summary_of(command: &mut Command) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("summary.json");
    let mut run = foretell();
    run.args(["run", "--quiet", "--json"]).arg(&path);
    run.args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        run.current_dir(folder);
    }
    let status = run.stdout(Stdio::null()).status().expect("foretell runs");
    let _ = status;
    serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
}

#[test]
fn exit_codes_are_the_programs_own() {
    for code in [0, 1, 2, 125, 126, 127, 255] {
        let script = format!("exit {code}");
        let status = under_foretell("sh").args(["-c", &script]).status().expect("it runs");
        assert_eq!(status.code(), Some(code));
    }
}

#[test]
fn what_cannot_be_run_ends_as_in_a_shell() {
    assert_fails(&["run", "--", "no-such-program-anywhere"], 127, "no-such-program-anywhere");
    assert_fails(&["run", "--", "/etc/passwd"], 126, "/etc/passwd");
    assert_fails(&["run", "--", "/"], 126, "/");
}

#[test]
fn signals_end_foretell_as_they_ended_the_program() {
    for signal in [Signal::TERM, Signal::KILL, Signal::SEGV] {
        let script = format!("kill -{} $$", signal.as_raw());
        let status = under_foretell("sh").args(["-c", &script]).status().expect("it runs");
        assert_eq!(status.signal(), Some(signal.as_raw()));
    }
}

#[test]
fn a_signal_to_foretell_reaches_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    let script =
        format!("trap 'exit 44' USR1; touch {}; while :; do sleep 0.05; done", ready.display());
    let mut run = under_foretell("sh").args(["-c", &script]).spawn().expect("it runs");
    while !ready.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&run), Signal::USR1).expect("it runs");
    assert_eq!(run.wait().expect("it ends").code(), Some(44));
}

#[test]
fn the_program_inherits_what_foretell_did() {
    // Limits, signal dispositions and masks are those that foretell was started with.
    let script = "ulimit -n; sed -n 's/^Sig[BI].*:\\t//p' /proc/self/status";
    // Signals 32 and 33 are the C library's own, and differ between its ways to start a program.
    let state = |mut command: Command| -> (String, Vec<u32>) {
        let output = command.args(["-c", script]).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        let limit = lines.next().expect("a limit").to_owned();
        let mask = |line| u64::from_str_radix(line, 16).expect("a mask") as u32 & 0x7fff_ffff;
        (limit, lines.map(mask).collect())
    };
    let plain = state(Command::new("sh"));
    assert_eq!(plain.1.len(), 2);
    assert_eq!(plain, state(under_foretell("sh")));
    let ignoring = |program: &str| {
        let mut shell = Command::new("sh");
        let run = format!("trap '' PIPE INT HUP CHLD; exec {program} \"$@\"");
        shell.args(["-c", &run, "sh"]);
        shell
    };
    let foretell = format!("{} run --quiet -- sh", env!("CARGO_BIN_EXE_foretell"));
    let ignored = state(ignoring("sh"));
    assert_ne!(ignored, plain);
    assert_eq!(ignored, state(ignoring(&foretell)));
}

#[test]
fn a_program_without_a_standard_descriptor_has_none_under_foretell_either() {
    // A shell closes the descriptors: `Command` cannot.
    let ends = |program: &[&str], closed: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$@\" {closed}"), "sh"]).args(program);
        let output = shell.stdin(Stdio::null()).output().expect("sh runs");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), stdout, stderr(&output))
    };
    let program = ["sh", "-c", "cat; echo out && echo err >&2"];
    let foretell = env!("CARGO_BIN_EXE_foretell");
    let under = [&[foretell, "run", "--quiet", "--"][..], &program].concat();
    for closed in ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        assert_eq!(ends(&under, closed), ends(&program, closed), "{closed}");
    }
    assert_ne!(ends(&program, ">&-"), ends(&program, ""));
    for (option, closed, name) in
        [("--json", ">&-", "--json: standard output"), ("--hints", "<&-", "standard input")]
    {
        let (code, _, told) = ends(&[foretell, "run", option, "-", "--", "true"], closed);
        let line = format!("foretell: {name}: Bad file descriptor\n");
        assert_eq!((code, told), (Some(125), line));
    }
    let (code, _, told) = ends(&[foretell, "--version"], ">&-");
    assert_eq!(code, Some(1), "what nobody gets is no success");
    assert_eq!(told, "foretell: standard output: Bad file descriptor\n");
}

#[test]
fn bad_options_are_named_in_one_line() {
    assert_fails(&["run", "--budget", "0", "--", "true"], 2, "--budget: 0 B is too small");
    assert_fails(&["run", "--budget", "100TiB", "--", "true"], 2, "more than this machine");
    assert_fails(&["run", "--hints", "/nonexistent", "--", "true"], 125, "/nonexistent");
    for option in ["--json", "--explain"] {
        let named = format!("{option}: /nonexistent/x: ");
        assert_fails(&["run", option, "/nonexistent/x", "--", "true"], 125, &named);
    }
    for (wrong, named) in [
        (&["run"][..], "<PROGRAM>"),
        (&["run", "--bogus", "--", "true"], "--bogus"),
        (&["run", "--budget", "many", "--", "true"], "not a size such as 256MiB"),
        (&["nonsense"], "nonsense"),
        (&["rnu", "--", "ls"], "a similar subcommand exists: 'run'"),
        (&["run", "--hint", "list", "--", "true"], "a similar argument exists: '--hints'; see"),
        (&["run", "--no-hints", "--hints", "x", "--", "true"], "cannot be used with"),
    ] {
        assert_fails(wrong, 2, named);
    }
}

#[test]
fn help_and_version_go_to_standard_output_if_asked_for() {
    for (asked, part) in [("--version", "foretell "), ("--help", "Exit codes:")] {
        let said = output(&[asked]);
        assert_eq!((said.status.code(), stderr(&said).as_ref()), (Some(0), ""));
        assert!(String::from_utf8_lossy(&said.stdout).contains(part));
    }
    for missing in [&[][..], &["sim"]] {
        let said = output(missing);
        assert_eq!(said.status.code(), Some(2));
        assert!(said.stdout.is_empty() && stderr(&said).contains("Usage: foretell"));
    }
}

#[test]
fn the_summary_is_one_line_and_can_be_silenced() {
    let said = output(&["run", "--", "true"]);
    assert_eq!(stderr(&said).lines().count(), 1, "{}", stderr(&said));
    let quiet = output(&["run", "--quiet", "--", "true"]);
    assert_eq!(stderr(&quiet), "");
    assert!(said.stdout.is_empty() && quiet.stdout.is_empty());
}

#[test]
fn the_summary_counts_what_was_read_and_how_much_was_seen() {
    let folder = sample_folder();
    let files = sample_files(folder.path());
    let bytes: u64 = files.iter().map(|file| fs::metadata(file).expect("there").len()).sum();
    let summary = summary_of(Command::new("-").args(["--no-hints", "--", "cat"]).args(&files));
    assert_eq!(summary["ending"]["exit"], 0);
    assert_eq!(summary["hints"]["given"], 0);
    let read = summary["programs"]["read_bytes"].as_u64().expect("a number");
    assert!(read >= bytes, "{read} of {bytes} bytes");
    assert!(summary["kernel_read_bytes"].as_u64().expect("a number") >= bytes);
    assert!(summary["seen_share"].as_f64().expect("a number") > 0.9, "{summary}");
}

#[test]
fn unusable_hints_are_counted_and_named() {
    let folder = sample_folder();
    let list = folder.path().join("hints");
    let secret = folder.path().join("secret");
    fs::create_dir(&secret).expect("made");
    let lines = "file-10.txt\nmissing.txt\n.\n/dev/null\n\
        {\"path\": \"file-11.txt\", \"segments\": [[0, 10], [1000000000, 8192]]}\n{\"path\": 7}\n";
    fs::write(&list, lines).expect("written");
    let summary = summary_of(
        Command::new("-").args(["--hints", "hints", "--", "sleep", "0.3"]).current_dir(&folder),
    );
    assert_eq!(summary["hints"]["given"], 6, "{summary}");
    assert_eq!(summary["hints"]["resolved"], 2, "{summary}");
    assert_eq!(summary["hints"]["refused"], 4, "{summary}");
    assert!(summary["blocks"]["refused"].as_u64().expect("a number") >= 1, "{summary}");
    assert!(summary["first_refusal"].is_string(), "{summary}");
}

#[test]
fn hints_from_standard_input_leave_the_program_none() {
    let folder = sample_folder();
    let list: String =
        sample_files(folder.path()).iter().map(|file| format!("{}\n", file.display())).collect();
    let mut run = foretell()
        .args(["run", "--quiet", "--hints", "-", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = run.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, list.as_bytes()).expect("it is read");
    drop(input);
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stdout.is_empty());
}

#[test]
fn a_script_hints_to_the_manager_that_it_runs_under() {
    let folder = sample_folder();
    let script = format!(
        "{} hint file-20.txt file-22.txt:0+4096 && sleep 0.3 && cat file-20.txt",
        env!("CARGO_BIN_EXE_foretell"),
    );
    let summary = summary_of(
        Command::new("-").args(["--no-hint-args", "--", "sh", "-c", &script]).current_dir(&folder),
    );
    assert_eq!(summary["ending"]["exit"], 0, "{summary}");
    assert_eq!(summary["hints"]["resolved"], 2, "{summary}");
}

#[test]
fn hints_without_a_manager_or_a_file_say_so() {
    let alone = foretell()
        .args(["hint", "/etc/passwd"])
        .env("FORETELL_SOCKET", "foretell/0/1-gone")
        .output()
        .expect("it runs");
    assert_eq!(alone.status.code(), Some(1));
    assert_eq!(stderr(&alone).lines().count(), 1, "{}", stderr(&alone));
    assert!(stderr(&alone).contains("network namespace"), "{}", stderr(&alone));
    let script = format!("{} hint missing-file", env!("CARGO_BIN_EXE_foretell"));
    let missing = under_foretell("sh").args(["-c", &script]).output().expect("it runs");
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("missing-file"), "{}", stderr(&missing));
    for (what, code, part) in
        [("''", 2, "empty"), ("/etc", 1, "folder"), ("/etc/passwd:0+x", 2, "OFFSET+LENGTH")]
    {
        let script = format!("{} hint {what}", env!("CARGO_BIN_EXE_foretell"));
        let output = under_foretell("sh").args(["-c", &script]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{what}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

#[test]
fn a_missing_file_does_not_keep_the_others_from_being_hinted() {
    let folder = sample_folder();
    let script = format!(
        "{} hint gone file-20.txt '' file-22.txt; echo $?; sleep 0.3; cat file-20.txt >/dev/null",
        env!("CARGO_BIN_EXE_foretell"),
    );
    let mut command = foretell();
    command.args(["run", "--no-hint-args", "--json"]).arg(folder.path().join("figures"));
    command.args(["--", "sh", "-c", &script]).current_dir(&folder);
    let output = command.output().expect("it runs");
    assert_eq!(output.stdout, b"1\n");
    let said = stderr(&output);
    assert!(said.contains("foretell: gone: No such file") && said.contains("empty name"), "{said}");
    let figures = std::fs::read(folder.path().join("figures")).expect("figures");
    let figures: serde_json::Value = serde_json::from_slice(&figures).expect("JSON");
    assert_eq!(figures["hints"]["resolved"], 2, "{figures}");
}

#[test]
fn a_hint_list_that_cannot_be_read_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("list");
    fs::write(&list, "{\"path\": 3\n").expect("written");
    let output = output(&["run", "--hints", &list.to_string_lossy(), "--", "sleep", "0.2"]);
    assert_eq!(output.status.code(), Some(0));
    let told = format!("1 refused: {}: line 1", list.display());
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    let no_list = folder.path().to_string_lossy();
    assert_fails(&["run", "--hints", &no_list, "--", "true"], 125, "is a directory");
}

#[test]
fn broken_lines_of_a_hint_list_are_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (list, figures) = (folder.path().join("list"), folder.path().join("figures"));
    let lines = "/etc/passwd\nmissing\n{\"path\": 3}\n\n{\"path\": \"a\", \"x\": 1}\n";
    fs::write(&list, lines).expect("written");
    let (list, figures) = (list.to_string_lossy(), figures.to_string_lossy());
    let run = |options: &[&str]| {
        let program = ["--hints", &list, "--", "sleep", "0.3"];
        stderr(&output(&[&["run"], options, &program].concat()))
    };
    let said = run(&[]);
    let first = said.lines().next().unwrap_or_default();
    assert!(
        first.starts_with(&format!("foretell: --hints: {list}: line 3, column 10: ")),
        "{said}"
    );
    assert!(first.ends_with("; 2 broken lines in all"), "{said}");
    assert_eq!((said.lines().count(), said.matches("--hints:").count()), (2, 1), "{said}");
    assert_eq!(run(&["--quiet"]), "");
    assert_eq!(run(&["--quiet", "--json", &figures]), "");
    let figures = fs::read(&*figures).expect("written");
    let figures: serde_json::Value = serde_json::from_slice(&figures).expect("JSON");
    assert_eq!(figures["hints"]["broken_lines"], 2, "{figures}");
    let first = figures["first_broken_line"].as_str().expect("text");
    assert!(first.starts_with(&format!("{list}: line 3")), "{figures}");
}

#[test]
fn help_of_the_command_help_is_help() {
    let plain = output(&["--help"]);
    for words in [&["help", "--help"][..], &["help", "-h"], &["help"]] {
        assert_eq!(output(words), plain, "{words:?}");
    }
    assert_eq!(output(&["help", "run", "--help"]), output(&["run", "--help"]));
    assert_fails(&["help", "no-such"], 2, "see 'foretell --help'");
}

#[test]
fn figures_to_standard_output_come_behind_the_programs() {
    let arguments = ["run", "--quiet", "--json", "-", "--no-hints", "--", "echo", "first"];
    let piped = output(&arguments).stdout;
    let folder = tempfile::tempdir().expect("a folder");
    let file = fs::File::create(folder.path().join("out")).expect("created");
    let status = foretell().args(arguments).stdout(file).status().expect("it runs");
    assert!(status.success());
    for text in [piped, fs::read(folder.path().join("out")).expect("written")] {
        let text = String::from_utf8(text).expect("text");
        let (first, figures) = text.split_once('\n').expect("two lines");
        assert_eq!(first, "first");
        let figures: serde_json::Value = serde_json::from_str(figures).expect("JSON");
        assert_eq!(figures["program"][0], "echo");
    }
}

#[test]
fn what_the_run_reads_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (data, list, other) = (path("data"), path("list"), path("other"));
    fs::write(&data, "data").expect("written");
    fs::write(&list, &data).expect("written");
    assert_fails(&["run", "--json", &data, "--", "cat", &data], 2, "give another file");
    assert_fails(
        &["run", "--hints", &list, "--explain", &list, "--", "true"],
        2,
        "the list of hints",
    );
    assert_fails(
        &["run", "--json", &other, "--explain", &other, "--", "true"],
        2,
        "--json is written",
    );
    assert_eq!(fs::read_to_string(&data).expect("still there"), "data");
    assert_eq!(fs::read_to_string(&list).expect("still there"), data);
    assert!(!Path::new(&other).exists());
}

#[test]
fn a_file_named_many_times_is_no_problem() {
    let folder = sample_folder();
    let file = sample_files(folder.path())[20].to_string_lossy().into_owned();
    for _ in 0..20 {
        let mut arguments = vec!["run", "--", "cat"];
        arguments.extend([file.as_str(); 7]);
        let output = output(&arguments);
        assert!(!stderr(&output).contains("manager"), "{}", stderr(&output));
    }
}

#[test]
fn nested_runs_work() {
    let folder = sample_folder();
    let file = &sample_files(folder.path())[20];
    let output = under_foretell(env!("CARGO_BIN_EXE_foretell"))
        .args(["run", "--quiet", "--", "cksum"])
        .arg(file)
        .output()
        .expect("it runs");
    let plain = Command::new("cksum").arg(file).output().expect("it runs");
    assert_eq!(output.stdout, plain.stdout);
}

#[test]
fn no_descriptor_and_no_process_is_left_in_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let _ = compile("closes_all", folder.path());
    let list = ["-c", "ls -l /proc/self/fd | wc -l"];
    let plain = Command::new("sh").args(list).stdin(Stdio::null()).output().expect("it runs");
    let hinted = under_foretell("sh").args(list).stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(plain.stdout, hinted.stdout);
    let mut from_input = foretell();
    from_input.args(["run", "--quiet", "--hints", "-", "--", "sh"]).args(list);
    let from_input = from_input.stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(plain.stdout, from_input.stdout);
}

/// Compiles a program that uses `foretell.h`.
fn compile_hinter(source: &str, program: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let libraries = Path::new(env!("CARGO_BIN_EXE_foretell")).parent().expect("beside it");
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-O1"])
        .arg(format!("-I{}", root.join("protocol/include").display()))
        .arg(root.join(source))
        .arg(libraries.join("libforetell.a"))
        .args(["-lpthread", "-o"])
        .arg(program)
        .status()
        .expect("a C compiler");
    assert!(built.success());
}

#[test]
fn who_hints_very_much_and_reads_nothing_silences_nobody() {
    let folder = sample_folder();
    let program = folder.path().join("hints_much");
    compile_hinter("cli/tests/c/hints_much.c", &program);
    let file = &sample_files(folder.path())[20];
    for times in ["500", "3000"] {
        let mut run = Command::new("-");
        run.args(["--no-hint-args", "--"]).arg(&program).arg(file).arg(times);
        let summary = summary_of(&mut run);
        let given = 10 + times.parse::<u64>().expect("a number");
        assert_eq!(summary["ending"]["exit"], 0, "{summary}");
        assert_eq!(summary["hints"]["given"], given, "{summary}");
    }
}

#[test]
fn the_example_in_c_hints_and_reads() {
    let folder = sample_folder();
    let program = folder.path().join("hint_files");
    compile_hinter("examples/hint_files.c", &program);
    let files = sample_files(folder.path());
    let alone = Command::new(&program).args(&files).output().expect("it runs");
    assert!(alone.status.success(), "{}", stderr(&alone));
    let summary =
        summary_of(Command::new("-").args(["--no-hint-args", "--"]).arg(&program).args(&files));
    assert_eq!(summary["ending"]["exit"], 0);
    assert!(summary["hints"]["given"].as_u64().expect("a number") > 0, "{summary}");
}
