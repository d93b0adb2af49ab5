//! Real programs run byte for byte the same under `foretell run`.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{assert_same, compile, have, sample_files, sample_folder};

fn paths(folder: &Path) -> Vec<String> {
    sample_files(folder).iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn line(words: &[&str], files: &[String]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(files.iter().cloned()).collect()
}

#[test]
fn grep() {
    let folder = sample_folder();
    let files = paths(folder.path());
    let found = assert_same(&line(&["grep", "-n", "7 of"], &files), |_| {});
    assert!(found.stdout.len() > 100);
    assert_same(&line(&["grep", "-c", "nothing of the kind"], &files), |_| {});
    let mut missing = line(&["grep", "text"], &files);
    missing.push("/nonexistent/file".into());
    assert_same(&missing, |_| {});
    let root = folder.path().to_string_lossy().into_owned();
    assert_same(&["grep", "-rn", "9 of", &root], |_| {});
}

#[test]
fn tar() {
    if !have("tar") {
        return;
    }
    let folder = sample_folder();
    let root = folder.path().to_string_lossy().into_owned();
    let archive = assert_same(&["tar", "cf", "-", "-C", &root, "."], |_| {});
    assert!(archive.stdout.len() > 100_000);
    let archive_path = folder.path().join("archive.tar");
    fs::write(&archive_path, archive.stdout).expect("written");
    let archive_path = archive_path.to_string_lossy().into_owned();
    assert_same(&["tar", "tvf", &archive_path], |_| {});
}

#[test]
fn find_with_exec() {
    if !have("find") {
        return;
    }
    let folder = sample_folder();
    let root = folder.path().to_string_lossy().into_owned();
    assert_same(&["find", &root, "-name", "*1*", "-exec", "cksum", "{}", ";"], |_| {});
    assert_same(&["find", &root, "-type", "f", "-exec", "grep", "-l", "3 of", "{}", "+"], |_| {});
}

#[test]
fn a_c_compiler() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("program.c");
    let text = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <math.h>\n\
        int main(void) { printf(\"%f\\n\", sin(1)); return EXIT_SUCCESS; }\n";
    fs::write(&source, text).expect("written");
    let source = source.to_string_lossy().into_owned();
    let assembly = assert_same(&["cc", "-O2", "-S", "-o", "-", &source], |_| {});
    assert!(assembly.stdout.len() > 200);
    // From source to executable, through assembler and linker.
    let plain = folder.path().join("plain");
    let hinted = folder.path().join("hinted");
    let build = |command: &mut Command, output: &Path| {
        command.args(["-O2", "-o"]).arg(output).arg(&source).arg("-lm");
        assert!(command.status().expect("it runs").success());
    };
    build(&mut Command::new("cc"), &plain);
    build(&mut common::under_foretell("cc"), &hinted);
    assert_eq!(fs::read(plain).expect("built"), fs::read(hinted).expect("built"));
}

#[test]
fn python() {
    if !have("python3") {
        return;
    }
    let folder = sample_folder();
    let script = folder.path().join("script.py");
    let text = "import sys, os, hashlib, subprocess, mmap, threading\n\
        for path in sys.argv[1:]:\n\
        \x20   with open(path, 'rb') as f: print(hashlib.md5(f.read()).hexdigest(), f.tell())\n\
        \x20   with open(path) as f: print(sum(1 for _ in f))\n\
        print(subprocess.run(['wc', '-l'] + sys.argv[1:], capture_output=True).stdout)\n\
        print(subprocess.check_output('cat ' + sys.argv[9] + ' | sort -r | head -3', shell=True))\n\
        pid = os.fork()\n\
        if pid == 0:\n\
        \x20   print(len(open(sys.argv[5]).read())); sys.stdout.flush(); os._exit(4)\n\
        print(os.waitpid(pid, 0)[1]); sys.stdout.flush()\n\
        sys.exit(5)\n";
    fs::write(&script, text).expect("written");
    let script = script.to_string_lossy().into_owned();
    let output = assert_same(&line(&["python3", &script], &paths(folder.path())), |_| {});
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn bash_with_forks_pipes_and_redirections() {
    if !have("bash") {
        return;
    }
    let folder = sample_folder();
    let script = "set -e; cd \"$1\"; for f in *.txt sub/*.txt; do \
        wc -l < \"$f\"; (head -c 100 \"$f\" | tail -c 20; exec 3< \"$f\"; read -r -u 3 a b || true; \
        read -r -u 3 c d || true; echo \"$a $c\"); done; \
        while read -r line; do echo \"<$line>\"; done < <(sort -r file-10.txt | head -5); \
        cat <<< here; env -i /bin/echo bare; exec cksum *.txt";
    let root = folder.path().to_string_lossy().into_owned();
    assert_same(&["bash", "-c", script, "script", &root], |_| {});
}

#[test]
fn sort_in_threads_and_with_temporary_files() {
    if !have("sort") {
        return;
    }
    let folder = sample_folder();
    let files = paths(folder.path());
    assert_same(&line(&["sort", "--parallel=2", "-S", "64k"], &files), |command| {
        command.env("LC_ALL", "C");
    });
}

#[test]
fn git_status() {
    if !have("git") {
        return;
    }
    let folder = sample_folder();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=n", "-c", "user.email=e@example.org"]).args(arguments);
        let output = command.current_dir(folder.path()).output().expect("git runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "all"]);
    fs::write(folder.path().join("file-01.txt"), "changed").expect("written");
    fs::write(folder.path().join("new.txt"), "new").expect("written");
    let in_folder = |command: &mut Command| {
        command.current_dir(folder.path());
    };
    let status = assert_same(&["git", "status", "--porcelain"], in_folder);
    assert_eq!(String::from_utf8_lossy(&status.stdout), " M file-01.txt\n?? new.txt\n");
    assert_same(&["git", "diff"], in_folder);
    assert_same(&["git", "log", "--stat"], in_folder);
}

#[test]
fn a_program_that_forks_vforks_and_spawns() {
    let folder = sample_folder();
    let program = compile("forks", folder.path()).to_string_lossy().into_owned();
    let output = assert_same(&line(&[&program], &paths(folder.path())[20..21]), |_| {});
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_program_that_closes_all_descriptors() {
    let folder = sample_folder();
    let program = compile("closes_all", folder.path()).to_string_lossy().into_owned();
    assert_same(&line(&[&program], &paths(folder.path())[20..21]), |_| {});
}

#[test]
fn a_program_that_forks_in_a_signal_handler() {
    let folder = sample_folder();
    let program = compile("forks_in_handler", folder.path()).to_string_lossy().into_owned();
    let output = assert_same(&line(&[&program], &paths(folder.path())[20..21]), |_| {});
    assert_eq!(output.stdout, b"bad: 0\n");
}

#[test]
fn a_program_that_locks_itself_up() {
    let folder = sample_folder();
    let program = compile("locks_itself_up", folder.path()).to_string_lossy().into_owned();
    let output = assert_same(&line(&[&program], &paths(folder.path())[20..21]), |_| {});
    assert!(matches!(output.status.code(), Some(1 | 6)), "{:?}", output.status);
}

#[test]
fn a_program_with_jemalloc_preloaded() {
    let candidates = ["x86_64", "aarch64"]
        .map(|machine| format!("/usr/lib/{machine}-linux-gnu/libjemalloc.so.2"));
    let Some(library) = candidates.iter().find(|path| Path::new(path).exists()) else {
        common::skipped("no libjemalloc.so.2");
        return;
    };
    let folder = sample_folder();
    assert_same(&line(&["sort"], &paths(folder.path())), |command| {
        command.env("LD_PRELOAD", library);
    });
    if have("python3") {
        let script = "import sys; print([len(open(p).read()) for p in sys.argv[1:]])";
        assert_same(&line(&["python3", "-c", script], &paths(folder.path())), |command| {
            command.env("LD_PRELOAD", library);
        });
    }
}

#[test]
fn a_program_that_reads_standard_input() {
    let folder = sample_folder();
    let file = &sample_files(folder.path())[25];
    let text = fs::read(file).expect("read");
    let from_file = assert_same(&["cksum"], |command| {
        command.stdin(fs::File::open(file).expect("opened"));
    });
    assert!(!from_file.stdout.is_empty());
    let mut child = common::under_foretell("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = child.stdin.take().expect("a pipe");
    let copy = text.clone();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, &copy));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("all was read");
    assert_eq!(output.stdout, text);
}

#[test]
fn a_static_program_runs_unseen() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("static.c");
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"static\"); return 6; }\n")
        .expect("written");
    let program = folder.path().join("static");
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    if !built.is_ok_and(|output| output.status.success()) {
        common::skipped("no static libc");
        return;
    }
    let output = assert_same(&[&program], |_| {});
    assert_eq!(output.status.code(), Some(6));
}
