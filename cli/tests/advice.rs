//! What a program advises the kernel is a hint.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{foretell, given, have, have_fuse, sample_files, sample_folder, skipped};

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

const MAPPED_BYTES: u64 = 6 << 20;

/// The beginning of programs that map the file `data`. `touch` goes through a part of it, with a rest after each 64 KiB.
const MAPPED: &str = "
import ctypes, mmap, os, time
with open('data', 'rb') as file:
    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
def touch(start, end, rest=0.005):
    total = 0
    for at in range(start, end, 1 << 16):
        total += sum(data[at:at + (1 << 16):4096])
        time.sleep(rest)
    print(total)
";

/// Runs a Python program in a folder with a file `data` behind an emulated array, as [`run`] does. `None` if the machine lacks
/// something.
fn run_mapped(options: &[&str], program: &str) -> Option<serde_json::Value> {
    if !have("python3") || !have_fuse() {
        return None;
    }
    let [backing, mountpoint] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let bytes: Vec<u8> = (0..MAPPED_BYTES).map(|at| (at / 4096 * 7 + at % 5) as u8).collect();
    fs::write(backing.path().join("data"), bytes).expect("written");
    let array = |action: &str, options: &[&str], folders: &[&Path]| {
        let mut command = foretell();
        command.args(["array", action]).args(options).args(folders);
        let output = command.output().expect("foretell runs");
        assert!(output.status.success(), "{output:?}");
    };
    let options_of_array = ["--disks", "8", "--disk", "network"];
    array("mount", &options_of_array, &[backing.path(), mountpoint.path()]);
    let figures = backing.path().join("figures.json");
    let program = format!("{MAPPED}{program}");
    let words = ["python3", "-c", &program];
    let mut run = foretell();
    run.args(["run", "--no-hint-args", "--quiet", "--json"]).arg(&figures).args(options).arg("--");
    let output = run.args(words).current_dir(mountpoint.path()).output().expect("foretell runs");
    array("unmount", &[], &[mountpoint.path()]);
    let plain = Command::new(words[0]).args(&words[1..]).current_dir(backing.path()).output();
    let plain = plain.expect("it runs");
    assert!(plain.status.success(), "{plain:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&plain.stdout));
    assert_eq!((output.stderr, output.status), (plain.stderr, plain.status), "{program}");
    Some(serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON"))
}

/// Blocks that were fetched ahead and touched then, among them those that the kernel had.
fn used(figures: &serde_json::Value) -> u64 {
    let count = |name: &str| figures["blocks"][name].as_u64().expect("a number");
    ["useful", "late", "already_cached"].map(count).iter().sum()
}

#[test]
fn memory_that_is_needed_is_fetched_from_its_file() {
    let all =
        "data.madvise(mmap.MADV_WILLNEED)\ntime.sleep(0.5)\ntouch(0, len(data))\ntime.sleep(0.3)";
    let Some(figures) = run_mapped(&[], all) else { return };
    assert_eq!(given(&figures), 1, "{figures}");
    assert!(used(&figures) > MAPPED_BYTES / 8192 / 2, "{figures}");
    for off in [&["--observe", "none"][..], &["--no-hints"]] {
        let figures = run_mapped(off, "data.madvise(mmap.MADV_WILLNEED)").expect("as before");
        assert_eq!(given(&figures), 0, "{off:?}: {figures}");
    }
    // Backwards, and each part a little after the one before: all of them are hints.
    let parts = "
parts = range(len(data) - (1 << 20), -1, -1 << 20)
for at in parts:
    data.madvise(mmap.MADV_WILLNEED, at, 1 << 19)
    time.sleep(0.03)
time.sleep(0.3)
for at in parts: touch(at, at + (1 << 19))
time.sleep(0.3)
";
    let figures = run_mapped(&[], parts).expect("as before");
    assert!((1..=6).contains(&given(&figures)), "{figures}");
    assert!(used(&figures) > MAPPED_BYTES / 8192 / 4, "{figures}");
}

#[test]
fn a_mapping_that_will_be_touched_in_order_is_fetched_before_it_shows_one() {
    // What is touched first is too little to show an order. The program ends some time after its last touch, which is seen
    // then.
    let first = "touch(0, 1 << 16)\ntime.sleep(0.5)\n";
    let Some(figures) = run_mapped(&[], first) else { return };
    assert_eq!(given(&figures), 0, "{figures}");
    let rest = "touch(1 << 16, len(data), 0)\ntime.sleep(0.5)\n";
    let advised = format!("data.madvise(mmap.MADV_SEQUENTIAL)\n{first}{rest}");
    let figures = run_mapped(&[], &advised).expect("as before");
    assert_eq!(given(&figures), 1, "{figures}");
    // How much depends on how busy the machine is: the program does not rest.
    assert!(used(&figures) > 0, "{figures}");
}

#[test]
fn a_mapping_that_will_be_touched_at_random_gets_no_window() {
    let Some(figures) = run_mapped(&[], "touch(0, len(data))") else { return };
    assert_eq!(given(&figures), 1, "{figures}");
    let random = "data.madvise(mmap.MADV_RANDOM)\ntouch(0, len(data))";
    let figures = run_mapped(&[], random).expect("as before");
    assert_eq!(given(&figures), 0, "{figures}");
}

#[test]
fn advice_about_other_memory_is_none() {
    let advice = "
import tempfile
library = ctypes.CDLL(None, use_errno=True)
def advise(at, length, advice):
    for name in ('madvise', 'posix_madvise'):
        print(name, getattr(library, name)(ctypes.c_void_p(at), ctypes.c_size_t(length), advice) != 0)
for advice in (0, 1, 2, 3, 22, 99):
    for at, length in ((0, 4096), (4096, 1 << 46), (1 << 63, 1 << 63), (12345, 1), ((1 << 64) - 4096, 4096)):
        advise(at, length, advice)
anonymous = mmap.mmap(-1, 1 << 20)
for advice in (mmap.MADV_WILLNEED, mmap.MADV_SEQUENTIAL, mmap.MADV_RANDOM, mmap.MADV_NORMAL):
    anonymous.madvise(advice)
with tempfile.TemporaryFile() as file:
    file.truncate(1 << 20)
    removed = mmap.mmap(file.fileno(), 0)
    removed.madvise(mmap.MADV_WILLNEED)
    removed.madvise(mmap.MADV_SEQUENTIAL)
time.sleep(0.3)
";
    let Some(figures) = run_mapped(&[], advice) else { return };
    assert_eq!(given(&figures), 0, "{figures}");
    assert_eq!(figures["blocks"]["prefetched"], 0, "{figures}");
}

#[test]
fn advice_about_a_mapping_that_goes_or_is_longer_than_its_file_does_no_harm() {
    let advice = "
for turn in range(200):
    with open('data', 'rb') as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as gone:
        gone.madvise((mmap.MADV_WILLNEED, mmap.MADV_SEQUENTIAL, mmap.MADV_RANDOM)[turn % 3])
library = ctypes.CDLL(None, use_errno=True)
library.mmap.restype = ctypes.c_void_p
library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
with open('data', 'rb') as file:
    length = 4 * len(data)
    longer = library.mmap(None, length, mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno(), 0)
print([library.madvise(longer, length, advice) for advice in (3, 2, 1, 3)])
print([library.madvise(longer + 2 * len(data), len(data), advice) for advice in (3, 2)])
time.sleep(0.3)
touch(0, len(data), 0)
";
    let Some(figures) = run_mapped(&[], advice) else { return };
    assert_eq!(
        (&figures["manager"], &figures["hints"]["refused"]),
        (&"finished".into(), &0.into())
    );
    assert!(figures["blocks"]["prefetched"].as_u64().expect("a number") <= MAPPED_BYTES / 8192);
}
