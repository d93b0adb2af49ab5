//! What a program advises the kernel is a hint.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{foretell, given, have, sample_files, sample_folder, skipped};

/// Runs a Python program in `folder` under foretell, with figures, and checks that it does the same without. The files of the
/// folder are not in memory before. Arguments give no hints, since `python3` may be a script that runs other programs.
fn run(folder: &Path, options: &[&str], program: &str) -> serde_json::Value {
    for file in sample_files(folder) {
        let file = fs::File::open(file).expect("opened");
        file.sync_all().expect("written to the device");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
    }
    let figures = folder.join("figures.json");
    let words = ["python3", "-c", program];
    let mut run = foretell();
    run.args(["run", "--no-hint-args", "--quiet", "--json"])
        .arg(&figures)
        .args(options)
        .arg("--")
        .args(words);
    let output = run.current_dir(folder).output().expect("foretell runs");
    let plain = Command::new(words[0]).args(&words[1..]).current_dir(folder).output();
    let plain = plain.expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&plain.stdout));
    assert_eq!(output.stderr, plain.stderr, "{program}");
    assert_eq!(output.status, plain.status, "{program}");
    serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON")
}

const BEGIN: &str = "import os, mmap, time\nfd = os.open('file-35.txt', os.O_RDONLY)\n";
const END: &str = "time.sleep(0.3)\nprint(sum(os.read(fd, 1 << 20)))\n";

#[test]
fn advice_that_names_what_will_be_read_is_a_hint() {
    if !have("python3") {
        return;
    }
    let folder = sample_folder();
    let with = |options: &[&str], advice: &str| {
        let figures = run(folder.path(), options, &format!("{BEGIN}{advice}\n{END}"));
        given(&figures)
    };
    let needed = "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)";
    assert_eq!(with(&[], needed), 1);
    assert_eq!(with(&["--observe", "none"], needed), 0);
    assert_eq!(with(&["--no-hints"], needed), 0);
    assert_eq!(with(&[], "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)"), 0);
    assert_eq!(with(&[], "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NOREUSE)"), 0);
    let populate = "m = mmap.mmap(fd, 0, mmap.MAP_PRIVATE | 0x8000, mmap.PROT_READ)";
    assert_eq!(with(&[], populate), 1);
}

/// A hint for a file that is not read keeps the interest in reads up.
#[test]
fn sequential_advice_about_a_large_file_is_a_hint() {
    if !have("python3") {
        return;
    }
    let folder = sample_folder();
    fs::write(folder.path().join("large"), vec![1; 3 << 20]).expect("written");
    fs::write(folder.path().join("unread"), vec![1; 3 << 20]).expect("written");
    fs::write(folder.path().join("list"), "unread\n").expect("written");
    let list = ["--hints", "list"];
    let hints = |name: &str| {
        let advice = format!(
            "time.sleep(0.2)\nlarge = os.open('{name}', os.O_RDONLY)\n\
             os.posix_fadvise(large, 0, 0, os.POSIX_FADV_SEQUENTIAL)"
        );
        given(&run(folder.path(), &list, &format!("{BEGIN}{advice}\n{END}")))
    };
    assert_eq!((hints("large"), hints("file-35.txt")), (2, 1));
}

#[test]
fn advice_about_what_is_no_file_is_none() {
    if !have("python3") {
        return;
    }
    let folder = sample_folder();
    let advice = "
for other in (os.open('.', os.O_RDONLY), os.pipe()[0], 77):
    try: os.posix_fadvise(other, 0, 0, os.POSIX_FADV_WILLNEED)
    except OSError as error: print(error)
removed = os.open('removed', os.O_RDWR | os.O_CREAT)
os.write(removed, b'text')
os.unlink('removed')
os.posix_fadvise(removed, 0, 0, os.POSIX_FADV_WILLNEED)
";
    let figures = run(folder.path(), &[], &format!("{BEGIN}{advice}\n{END}"));
    assert_eq!(given(&figures), 0, "{figures}");
}

#[test]
fn a_file_that_another_takes_the_place_of_is_not_fetched() {
    if !have("python3") {
        return;
    }
    if !Path::new("/proc/self/fd").exists() {
        return skipped("/proc is not there");
    }
    let folder = sample_folder();
    // The advice is recorded for one file. When the manager looks, the descriptor is another one's or closed.
    let advice = "
for name in sorted(os.listdir('.'))[:20]:
    if name.endswith('.txt'):
        other = os.open(name, os.O_RDONLY)
        os.posix_fadvise(other, 0, 0, os.POSIX_FADV_WILLNEED)
        os.close(other)
";
    let figures = run(folder.path(), &[], &format!("{BEGIN}{advice}\n{END}"));
    assert_eq!(figures["manager"], "finished", "{figures}");
    assert_eq!(figures["hints"]["refused"], 0, "{figures}");
}
