//! What foretell leaves unchanged at an exec: programs that the library does not fit, environments, sandboxes, and programs
//! that outlive a run.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{
    assert_same, compile, foretell, have, is_root, sample_files, sample_folder, skipped, text,
    under_foretell, wait_until, write_script,
};

/// The figures of a run, whose output goes nowhere.
fn figures(run: &[&str], folder: &Path) -> serde_json::Value {
    let path = folder.join("summary.json");
    let mut command = foretell();
    command.args(["run", "--quiet", "--json"]).arg(&path).arg("--").args(run);
    let output = command.current_dir(folder).stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.code().is_some(), "{run:?}: {:?}", output.status);
    serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
}

/// Programs that the library does not fit: without those that are skipped.
fn left_alone(run: &[&str], folder: &Path) -> u64 {
    let programs = &figures(run, folder)["programs"];
    let of = |name: &str| programs[name].as_u64().expect("a number");
    of("left_alone") - of("skipped")
}

fn processes(run: &[&str], folder: &Path) -> u64 {
    figures(run, folder)["programs"]["processes"].as_u64().expect("a number")
}

#[test]
fn programs_under_a_filter_are_not_killed() {
    let folder = sample_folder();
    let sandbox = compile("sandbox", folder.path()).display().to_string();
    let file = folder.path().join("file-01.txt").display().to_string();
    let run = |how: &str, what: &str| {
        let line = [&sandbox, how, what, "/bin/cat", &file].map(str::to_owned);
        let output = assert_same(&line, |_| {});
        assert!(text(&output.stdout).ends_with("exit 0, signal 0\n"), "{how} {what}");
        let line = line.each_ref().map(String::as_str);
        left_alone(&line, folder.path())
    };
    for how in ["prctl", "syscall"] {
        for what in ["all", "sockets", "cat"] {
            assert_eq!(run(how, what), 1, "{how} {what}");
        }
    }
    // The executing program does not notice such a filter. The executed program notices it before it announces itself.
    run("raw", "sockets");
}

#[test]
fn programs_that_load_a_filter_unseen_are_not_killed() {
    let folder = sample_folder();
    let program = compile("confines_itself", folder.path()).display().to_string();
    let file = folder.path().join("file-01.txt").display().to_string();
    for what in ["some", "most"] {
        for how in ["open", "fopen", "stat", "fork", "thread"] {
            if (what, how) == ("most", "thread") {
                continue; // The end of a thread takes calls that differ between C libraries.
            }
            let line = [&program, what, how, &file].map(str::to_owned);
            let output = assert_same(&line, |_| {});
            let is_right = match how {
                "fork" => text(&output.stdout).ends_with("exit 7, signal 0\n"),
                _ => output.status.code() == Some(7),
            };
            assert!(is_right, "{what} {how}: {:?}", output.status);
        }
    }
}

#[test]
fn a_filter_around_the_whole_run_is_none_of_its_programs() {
    let folder = sample_folder();
    let sandbox = compile("sandbox", folder.path());
    let file = folder.path().join("file-01.txt");
    let path = folder.path().join("summary.json");
    let mut command = Command::new(sandbox);
    command.args(["prctl", "all", env!("CARGO_BIN_EXE_foretell"), "run", "-q", "--json"]);
    command.arg(&path).args(["--", "/bin/cat"]).arg(file);
    assert!(command.output().expect("it runs").status.success());
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON");
    assert_eq!(figures["programs"]["left_alone"], 0, "{figures}");
    assert_eq!(figures["programs"]["processes"], 1, "{figures}");
}

#[test]
fn manual_pages_are_shown() {
    if !have("man") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("changed");
    let page = folder.path().join("x.1");
    fs::write(&page, ".TH X 1\n.SH N\ntext\n").expect("written");
    let shown = format!("man -l {} | cat", page.display());
    let script = format!("{shown}; echo ${{PIPESTATUS[*]}}");
    let output = assert_same(&["bash", "-c", &script], |_| {});
    // A container's man may only print how to install the pages.
    if !text(&output.stdout).contains("text") {
        skipped("man shows no pages");
    }
    if is_root() && have("setpriv") {
        let as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let line = [&as_nobody[..], &["bash", "-c", &script]].concat();
        assert_same(&line, |command| {
            command.env("HOME", "/nonexistent");
        });
    }
}

/// A glibc before 2.34: that of Debian 11, which `scripts/setup-tests` fetches.
fn older_glibc() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../older-glibc/lib");
    let found = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.path());
    found.into_iter().find(|path| path.join("libc.so.6").exists())
}

#[test]
fn programs_with_an_older_glibc_run() {
    let Some(glibc) = older_glibc() else {
        skipped("no older glibc (scripts/setup-tests)");
        return;
    };
    let loader = ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]
        .map(|name| glibc.join(name))
        .into_iter()
        .find(|path| path.exists())
        .expect("its dynamic linker");
    let folder = sample_folder();
    let source = folder.path().join("old.c");
    let lines =
        "#include <unistd.h>\nint main(void) { return write(1, \"old\\n\", 4) == 4 ? 5 : 1; }\n";
    fs::write(&source, lines).expect("written");
    let program = folder.path().join("old");
    // Without this machine's start-up code, which is too new for the older C library.
    let start = "void _start(void) { __asm__(\"\"); extern int main(void); extern void _exit(int); _exit(main()); }\n";
    fs::write(&source, format!("{lines}{start}")).expect("written");
    let built = Command::new("cc")
        .args(["-O1", "-nostartfiles", "-o"])
        .arg(&program)
        .arg(&source)
        .arg(format!("-Wl,--dynamic-linker={}", loader.display()))
        .arg(format!("-Wl,-rpath,{}", glibc.display()))
        .output()
        .expect("a C compiler");
    assert!(built.status.success(), "{}", text(&built.stderr));
    let program = program.display().to_string();
    let output = assert_same(&[&program], |_| {});
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(5), "old\n".into()));
    for line in [&[program.as_str()][..], &["bash", "-c", &program], &["sh", "-c", &program]] {
        assert_eq!(left_alone(line, folder.path()), 1, "{line:?}");
    }
    let by_loader =
        format!("{} --library-path {} {program}; echo $?", loader.display(), glibc.display());
    let output = assert_same(&["sh", "-c", &by_loader], |_| {});
    assert_eq!(text(&output.stdout), "old\n5\n");
}

#[test]
fn the_environment_is_the_programs_own() {
    let empty = under_foretell("env").args(["-i", "/usr/bin/env"]).output().expect("it runs");
    assert_eq!((text(&empty.stdout), text(&empty.stderr)), (String::new(), String::new()));
    let script =
        "env -i sh -c 'env'; unset LD_PRELOAD FORETELL_SOCKET; bash -c 'env | sort | grep -v ^_'";
    assert_same(&["sh", "-c", script], |_| {});
    // All variables except FORETELL_SOCKET, through which hints are given.
    let lines = |mut command: Command| {
        let output = command.output().expect("it runs");
        text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut plain, mut hinted) = (Command::new("env"), under_foretell("env"));
    for command in [&mut plain, &mut hinted] {
        command.env("LD_PRELOAD", "libc.so.6");
    }
    let (plain, mut hinted) = (lines(plain), lines(hinted));
    let address = hinted.pop().expect("the last one");
    assert!(address.starts_with("FORETELL_SOCKET=foretell/"), "{address}");
    assert_eq!(plain, hinted);
}

#[test]
fn strange_environments_come_through_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("environments", folder.path());
    let output = assert_same(&[&program], |_| {});
    let stdout = text(&output.stdout);
    assert!(stdout.contains("1 as an array: EFAULT\n"), "{stdout}");
    assert!(stdout.contains("the same 1\n") && !stdout.contains("the same 0\n"), "{stdout}");
    assert!(stdout.contains("Z=1\nno value\nA=2\nZ=3\n\n=\n=x\nA=\nLAST=1\n"), "{stdout}");
}

#[test]
fn the_kernels_copy_of_the_environment_begins_with_the_programs_own() {
    let script = "tr '\\0' '\\n' < /proc/self/environ";
    let output = under_foretell("env")
        .args(["-i", "B=1", "A=2", "sh", "-c", script])
        .output()
        .expect("it runs");
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["B=1", "A=2"]);
    // The leftover entries preload nothing when they are copied.
    let others: Vec<&str> =
        lines[2..].iter().map(|line| line.split('=').next().unwrap_or_default()).collect();
    assert_eq!(others, ["FORETELL_L", "FORETELL_PRIVATE"]);
}

#[test]
fn libraries_that_the_program_preloads_stay_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("own.c");
    fs::write(&source, "__attribute__((constructor)) static void f(void) { extern int puts(const char *); puts(\"own\"); }\n")
        .expect("written");
    let library = folder.path().join("own.so");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.expect("a C compiler").success());
    let script = "echo \"<$LD_PRELOAD>\"; sh -c 'echo \"<$LD_PRELOAD>\"; cat /dev/null'; \
        LD_PRELOAD= sh -c 'env | grep LD_'; env -u LD_PRELOAD sh -c 'env | grep LD_'";
    let setting = format!("LD_PRELOAD={}", library.display());
    let line = ["env", &setting, "sh", "-c", script];
    let output = assert_same(&line, |_| {});
    assert!(text(&output.stdout).contains("own\n"), "{}", text(&output.stdout));
    assert_eq!(left_alone(&line, folder.path()), 0);
}

#[test]
fn whoever_is_to_be_left_alone_is() {
    let folder = sample_folder();
    let line = ["sh", "-c", "FORETELL_SOCKET= cat file-01.txt file-02.txt"];
    let seen = figures(&line, folder.path());
    assert_eq!(seen["programs"]["left_alone"], 1, "{seen}");
    assert_eq!(seen["programs"]["processes"], 1, "{seen}");
}

#[test]
fn the_summary_counts_programs_that_were_not_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("static.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let program = folder.path().join("static");
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    if !built.is_ok_and(|output| output.status.success()) {
        skipped("no static libc");
        return;
    }
    let program = program.display().to_string();
    let script = format!("{program}; ({program}); exec {program}");
    let run = |line: &[&str]| {
        let output = foretell().args(["run", "--"]).args(line).output().expect("it runs");
        text(&output.stderr)
    };
    assert!(run(&[&program]).ends_with("; 1 program not seen\n"));
    assert!(run(&["bash", "-c", &script]).ends_with("; 3 programs not seen\n"));
    // A program that cannot be executed is not counted.
    let missing = ["bash", "-c", "exec /nonexistent 2>/dev/null"];
    assert!(!run(&missing).contains("not seen"));
    let search =
        format!("PATH=/nonexistent:/usr/bin:/bin:{} exec env true", folder.path().display());
    assert!(!run(&["sh", "-c", &search]).contains("not seen"));
}

#[test]
fn small_stacks_suffice_and_no_memory_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("small_stacks", folder.path());
    let output = assert_same(&[&program], |_| {});
    assert_eq!(text(&output.stdout), "more mappings: 0\n");
    let program = program.display().to_string();
    assert_eq!(left_alone(&[&program], folder.path()), 0);
}

#[test]
fn without_a_descriptor_the_error_is_the_programs_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("no_descriptor", folder.path());
    assert_same(&[&program], |_| {});
}

#[test]
fn commands_of_system_and_popen_are_seen_and_nobody_can_tell() {
    let folder = sample_folder();
    let program = compile("commands", folder.path()).display().to_string();
    let file = folder.path().join("file-02.txt").display().to_string();
    let pid = folder.path().join("pid").display().to_string();
    let line = [program.as_str(), &file, &pid];
    assert_same(&line, |command| {
        command.current_dir(folder.path());
    });
    assert!(processes(&line, folder.path()) > 10);
}

#[test]
fn what_is_spawned_in_another_folder_is_looked_at_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile("spawns_elsewhere", folder.path()).display().to_string();
    let other = folder.path().join("other");
    fs::create_dir(&other).expect("made");
    let source = folder.path().join("name.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let build = |compiler: &str, to: &Path| {
        let built = Command::new(compiler).arg("-o").arg(to.join("name")).arg(&source).output();
        built.is_ok_and(|output| output.status.success())
    };
    assert!(build("cc", folder.path()));
    if !build("musl-gcc", &other) {
        skipped("no musl-gcc");
        return;
    }
    let output = assert_same(&[&program, "other", "./name", "x"], |command| {
        command.current_dir(folder.path());
    });
    assert_eq!(text(&output.stdout), "0 0\n");
}

/// Copies foretell and its library to where only this user may enter.
fn private_copy(folder: &Path) -> PathBuf {
    let copies = folder.join("private");
    fs::create_dir(&copies).expect("made");
    let binary = Path::new(env!("CARGO_BIN_EXE_foretell"));
    for name in ["foretell", "libforetell_preload.so"] {
        // Copied by another process: a program that this one has open for writing cannot be executed, and a fork of a parallel
        // test would keep it open.
        let copied = Command::new("cp").arg(binary.with_file_name(name)).arg(&copies).status();
        assert!(copied.expect("it runs").success());
    }
    fs::set_permissions(&copies, fs::Permissions::from_mode(0o700)).expect("changed");
    copies
}

#[test]
fn who_may_not_read_the_library_is_told_nothing() {
    if !is_root() || !have("setpriv") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let copies = private_copy(folder.path());
    let as_nobody =
        ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "id -u; cat /dev/null"];
    let output = Command::new(copies.join("foretell"))
        .args(["run", "-q", "--"])
        .args(as_nobody)
        .output()
        .expect("it runs");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("65534\n".into(), String::new()));
}

/// Waits until the manager at this address has ended. It ends shortly after the program that foretell became.
fn wait_for_manager(address: &str) {
    wait_until("the manager to end", || common::holders(address.trim()).is_empty());
}

#[test]
fn what_outlives_the_run_has_nothing_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let copies = private_copy(folder.path());
    let script = "unset FORETELL_STATE FORETELL_DAEMON; echo \"$FORETELL_SOCKET\" > address; (while [ ! -e go ]; do sleep 0.05; done; \
        { env; tr '\\0' '\\n' < /proc/self/environ | grep ^LD_; cat /dev/null; echo over; } > out 2>&1; mv out done) \
        > /dev/null 2>&1 &";
    let status = Command::new(copies.join("foretell"))
        .args(["run", "-q", "--", "bash", "-c", script])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .status()
        .expect("it runs");
    assert!(status.success());
    wait_for_manager(&fs::read_to_string(folder.path().join("address")).expect("written"));
    fs::remove_dir_all(copies).expect("removed");
    fs::write(folder.path().join("go"), "").expect("written");
    wait_until("what the daemon writes", || folder.path().join("done").exists());
    let written = fs::read_to_string(folder.path().join("done")).expect("written");
    assert!(written.ends_with("over\n"), "{written}");
    assert!(!written.contains("FORETELL"), "{written}");
    assert!(!written.contains("ld.so") && !written.contains("LD_PRELOAD"), "{written}");
}

#[test]
fn a_server_that_outlives_the_run_hands_nothing_on() {
    if !have("tmux") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let copies = private_copy(folder.path());
    let tmux = |command: &mut Command, words: &[&str]| -> Output {
        let socket = folder.path().join("tmux");
        command.arg("-S").arg(socket).args(["-f", "/dev/null"]).args(words);
        command.current_dir(folder.path()).stdin(Stdio::null()).output().expect("it runs")
    };
    let mut run = Command::new(copies.join("foretell"));
    run.args(["run", "-q", "--", "tmux"]);
    // The first window keeps running, so that the server does not end.
    assert!(tmux(&mut run, &["new", "-d", "sleep 1000"]).status.success());
    let address = tmux(&mut Command::new("tmux"), &["show-environment", "-g", "FORETELL_SOCKET"]);
    wait_for_manager(&text(&address.stdout));
    fs::remove_dir_all(copies).expect("removed");
    let window = "{ ls /dev/null; env | grep -e FORETELL_ -e LD_PRELOAD | grep -v -e ^FORETELL_STATE= -e ^FORETELL_DAEMON=; echo over; } > out 2>&1; mv out done";
    assert!(tmux(&mut Command::new("tmux"), &["new-window", window]).status.success());
    wait_until("what the window writes", || folder.path().join("done").exists());
    let _ = tmux(&mut Command::new("tmux"), &["kill-server"]);
    assert_eq!(
        fs::read_to_string(folder.path().join("done")).expect("written"),
        "/dev/null\nover\n"
    );
}

#[test]
fn tools_that_look_at_programs_do_not_see_the_library() {
    let listed = under_foretell("ldd").arg("/bin/true").output();
    if listed.as_ref().is_ok_and(|output| output.status.success()) {
        let listed = text(&listed.expect("it runs").stdout);
        assert!(listed.contains("libc.so.6") && !listed.contains("foretell"), "{listed}");
    }
    let folder = sample_folder();
    let file = sample_files(folder.path())[3].display().to_string();
    if have("fakeroot") {
        let script = format!("id -u; cat {file} | wc -l; env | grep LD_PRELOAD");
        assert_same(&["fakeroot", "sh", "-c", &script], |_| {});
    }
    if have("strace") {
        assert_same(&["strace", "-f", "-e", "trace=none", "-o", "/dev/null", "cat", &file], |_| {});
    }
    if have("valgrind") {
        assert_same(&["valgrind", "-q", "/bin/cat", &file], |_| {});
    }
}

#[test]
fn programs_start_with_the_environments_that_python_makes() {
    if !have("python3") {
        return;
    }
    let script = "import os, subprocess, sys\n\
        show = 'import os; print(sorted(os.environ), os.environb.get(b\"LD_PRELOAD\"))'\n\
        for env in ({}, {'A': '1'}, {'LD_PRELOAD': ''}):\n\
        \x20   print(subprocess.run([sys.executable, '-c', show], env=env, capture_output=True))\n\
        print(os.spawnve(os.P_WAIT, '/usr/bin/env', ['env'], {}))\n\
        pid = os.posix_spawn('/usr/bin/env', ['env'], {})\n\
        print(os.waitpid(pid, 0)[1])\n\
        print(os.system('exit 4'), os.popen('cat /dev/null; exit 5').close())\n";
    assert_same(&["python3", "-c", script], |_| {});
}

/// Closing a descriptor of a file drops the process's locks on it, so a locked file is not inspected.
#[test]
fn a_program_that_has_locked_itself_keeps_the_lock() {
    if !have("python3") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("locks");
    let text_of_script = "#!/usr/bin/env python3\n\
        import fcntl, os, struct, sys\n\
        if len(sys.argv) > 1: sys.exit(0)\n\
        file = open(__file__)\n\
        fcntl.lockf(file, fcntl.LOCK_SH)\n\
        os.waitpid(os.posix_spawn(__file__, [__file__, 'child'], os.environ), 0)\n\
        def ask():\n\
        \x20 asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)\n\
        \x20 told = fcntl.fcntl(open(__file__, 'r+'), fcntl.F_GETLK, asked)\n\
        \x20 return 'lost' if struct.unpack('hhqqi4x', told)[0] == fcntl.F_UNLCK else 'held'\n\
        if os.fork() == 0:\n\
        \x20 print(ask(), flush=True)\n\
        \x20 os._exit(0)\n\
        os.wait()\n";
    write_script(&script, text_of_script);
    let output = assert_same(&[&script], |_| ());
    assert_eq!(text(&output.stdout), "held\n");
}

/// Each forked process that announces itself has a ring of its own in place of its parent's.
#[test]
fn forks_of_forks_have_one_ring() {
    let script = "f() { read -r line </etc/passwd; if [ $1 -gt 0 ]; then (f $(($1 - 1))); else \
        read -r line </etc/passwd; grep -c foretell-ring /proc/$BASHPID/maps; fi; }; f 20";
    let output = foretell().args(["run", "-q", "--", "bash", "-c", script]).output();
    assert_eq!(text(&output.expect("it runs").stdout), "1\n");
}

#[test]
fn what_lists_its_libraries_lists_its_own() {
    let listing = ["env", "LD_TRACE_LOADED_OBJECTS=1", "/bin/true"];
    let output = foretell().args(["run", "-q", "--"]).args(listing).output().expect("it runs");
    let listed = text(&output.stdout);
    assert!(listed.contains("libc.so") && !listed.contains("foretell"), "{listed}");
}

/// Starts `true` four hundred times, which waits for nothing, and then reads a file.
const MANY: &str = "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done; cat file-01.txt";

#[test]
fn programs_that_do_not_wait_are_skipped_when_they_are_executed_again_and_again() {
    let folder = sample_folder();
    let length = fs::metadata(folder.path().join("file-01.txt")).expect("there").len();
    // On a busy machine a call may take long without waiting for storage.
    let is_as_expected = |_| {
        let figures = figures(&["sh", "-c", MANY], folder.path());
        let of = |name: &str| figures["programs"][name].as_u64().expect("a number");
        let (left_alone, skipped, followed) = (of("left_alone"), of("skipped"), of("followed"));
        // The last program has not been executed before.
        let is_followed = of("read_bytes") >= length;
        left_alone == skipped
            && (200..400).contains(&skipped)
            && skipped + followed == 401
            && is_followed
    };
    assert!((0..10).any(is_as_expected));
    assert_same(&["sh", "-c", MANY], |command| {
        command.current_dir(folder.path());
    });
}

#[test]
fn nothing_is_skipped_in_a_run_with_hints() {
    let folder = sample_folder();
    fs::write(folder.path().join("list"), "file-01.txt\n").expect("written");
    let path = folder.path().join("summary.json");
    let mut command = foretell();
    command.args(["run", "--quiet", "--hints", "list", "--json"]).arg(&path);
    command.args(["--", "sh", "-c", MANY]).current_dir(folder.path());
    assert!(command.output().expect("it runs").status.success());
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON");
    assert_eq!(figures["programs"]["skipped"], 0);
}
