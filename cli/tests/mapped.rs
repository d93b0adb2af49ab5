//! Mapped files under `foretell run`: seen from outside, over an emulated array.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{foretell, have, have_fuse, skipped};
use serde_json::Value;

const FILE_BYTES: u64 = 24 << 20;

/// Python: touches each page of a mapped file (argument 1) from an offset on (argument 2), with a short rest after each 256 KiB
/// (3), and prints a sum.
const IN_ORDER: &str = "\
import mmap, sys, time
file = open(sys.argv[1], 'rb')
data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
total = 0
for start in range(int(sys.argv[2]), len(data), 256 << 10):
    for at in range(start, min(start + (256 << 10), len(data)), 4096):
        total = total * 31 + data[at] & 0xffffffff
    time.sleep(0.01)
print(total)
";

/// A folder with a file `data` behind an emulated array.
struct Array {
    backing: tempfile::TempDir,
    mountpoint: tempfile::TempDir,
}

/// `None` if the machine lacks something.
fn array() -> Option<Array> {
    if !have("python3") || !have_fuse() {
        return None;
    }
    let (backing, mountpoint) = [(), ()].map(|()| tempfile::tempdir().expect("a folder")).into();
    let mut state = 1u64;
    let words = (0..FILE_BYTES / 8).flat_map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()
    });
    fs::write(backing.path().join("data"), words.collect::<Vec<u8>>()).expect("written");
    Some(Array { backing, mountpoint })
}

impl Array {
    fn figures_path(&self) -> PathBuf {
        self.backing.path().join("figures.json")
    }

    /// Runs a command in the mounted folder under `foretell run`, and checks that it says what it says without. Returns the
    /// figures of the run, and the bytes that the array has read.
    fn run(&self, options: &[&str], command: &[&str]) -> (Value, u64) {
        let json = self.backing.path().join("array.json");
        let mut mount = foretell();
        mount.args(["array", "mount", "--disks", "8", "--disk", "network", "--json"]);
        let mounted = mount.arg(&json).args([self.backing.path(), self.mountpoint.path()]).output();
        assert!(mounted.expect("it runs").status.success());
        let output = self.run_mounted(options, command);
        let unmounted = foretell().args(["array", "unmount"]).arg(self.mountpoint.path()).output();
        assert!(unmounted.expect("it runs").status.success());
        let plain = words(command).current_dir(self.backing.path()).output().expect("it runs");
        assert!(plain.status.success(), "{plain:?}");
        assert!(output.status == plain.status && output.stdout == plain.stdout, "{output:?}");
        assert_eq!(output.stderr, plain.stderr, "{command:?}");
        let read = |path: &Path| -> Value {
            serde_json::from_slice(&fs::read(path).expect("written")).expect("JSON")
        };
        let figures = read(&self.figures_path());
        assert_eq!(figures["manager"], "finished", "{figures}");
        assert_eq!(figures["hints"]["refused"], 0, "{figures}");
        let report = read(&json);
        (figures, report["bytes"].as_u64().expect("a number"))
    }

    fn run_mounted(&self, options: &[&str], command: &[&str]) -> Output {
        let mut run = foretell();
        run.args(["run", "--quiet", "--json"]).arg(self.figures_path()).args(options);
        run.arg("--").args(command).current_dir(self.mountpoint.path()).stdin(Stdio::null());
        run.output().expect("foretell runs")
    }
}

fn words(command: &[&str]) -> Command {
    let mut words = Command::new(command[0]);
    words.args(&command[1..]).stdin(Stdio::null());
    words
}

fn count(figures: &Value, group: &str, name: &str) -> u64 {
    figures[group][name].as_u64().unwrap_or_else(|| panic!("no {group}.{name}: {figures}"))
}

/// Blocks fetched ahead that were touched, among them those that the kernel had.
fn worked_off(figures: &Value) -> u64 {
    ["useful", "late", "already_cached"].map(|name| count(figures, "blocks", name)).iter().sum()
}

/// At most 1.05 times the file.
fn assert_read_once(bytes: u64) {
    assert!(bytes <= FILE_BYTES * 105 / 100, "{bytes} bytes of {FILE_BYTES}");
}

#[test]
fn a_mapping_that_is_touched_in_order_is_fetched_ahead() {
    let Some(array) = array() else { return };
    let command = ["python3", "-c", IN_ORDER, "data", "0"];
    let (figures, bytes) = array.run(&["--no-hint-args"], &command);
    assert_eq!(count(&figures, "hints", "given"), 1, "{figures}");
    assert!(count(&figures, "blocks", "useful") > 0, "{figures}");
    assert_read_once(bytes);
    for off in [&["--no-hints"][..], &["--no-hint-args", "--observe", "none"]] {
        let (figures, _) = array.run(off, &command);
        assert_eq!(count(&figures, "hints", "given"), 0, "{off:?}: {figures}");
        assert_eq!(count(&figures, "blocks", "prefetched"), 0, "{off:?}: {figures}");
    }
}

#[test]
fn hints_on_a_mapped_file_are_worked_off() {
    let Some(array) = array() else { return };
    let hints = array.backing.path().join("hints");
    let hints = hints.to_str().expect("UTF-8");
    // More than an unread stream may have: without reads seen, 8 MiB would be fetched and nothing more.
    let blocks = FILE_BYTES / 8192;
    for (list, first) in [
        ("data\n", "0"),
        ("{\"path\": \"data\", \"segments\": [[65536, 65536]], \"stride\": [131072, 192]}\n", "0"),
    ] {
        fs::write(hints, list).expect("written");
        let command = ["python3", "-c", IN_ORDER, "data", first];
        let (figures, bytes) =
            array.run(&["--no-hint-args", "--observe", "none", "--hints", hints], &command);
        assert_eq!(count(&figures, "hints", "given"), 1, "{figures}");
        let expected = if list.starts_with('{') { blocks / 2 } else { blocks };
        assert!(worked_off(&figures) > expected / 2, "{expected}: {figures}");
        assert_read_once(bytes);
    }
}

#[test]
fn processes_that_map_one_file_have_each_block_fetched_once() {
    let Some(array) = array() else { return };
    for processes in [2, 4] {
        let each = "python3 -c \"$1\" data 0 > /dev/null & ".repeat(processes);
        let script = format!("{each} wait");
        let command = ["sh", "-c", &script, "sh", IN_ORDER];
        let (figures, bytes) = array.run(&["--no-hint-args"], &command);
        assert!(count(&figures, "hints", "given") >= 1, "{figures}");
        assert_read_once(bytes);
    }
}

#[test]
fn what_is_no_file_on_a_device_any_more_is_left_alone() {
    if !have("python3") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Mappings that go away, change or are not of files, touched while the observer looks.
    let program = "\
import mmap, os, sys, time
def touch(data):
    total = 0
    for at in range(0, len(data), 65536):
        total += data[at]
        time.sleep(0.001)
    return total
size = 4 << 20
def file(name):
    with open(name, 'wb') as out:
        out.write(b'x' * size)
    return open(name, 'r+b')
gone = file('gone')
deleted = mmap.mmap(gone.fileno(), 0)
os.remove('gone')
print(touch(deleted))
shrunk = file('shrunk')
mapped = mmap.mmap(shrunk.fileno(), 0, prot=mmap.PROT_READ)
shrunk.truncate(size // 2)
print(sum(mapped[at] for at in range(0, size // 2, 4096)))
shrunk.truncate(size)
print(touch(mapped))
small = file('small')
with mmap.mmap(small.fileno(), 4096) as head:
    print(head[0])
populated = mmap.mmap(small.fileno(), 0, flags=mmap.MAP_SHARED | getattr(mmap, 'MAP_POPULATE', 0))
print(touch(populated))
print(touch(mmap.mmap(-1, size)))
if os.path.isdir('/dev/shm') and os.access('/dev/shm', os.W_OK):
    name = '/dev/shm/foretell-test-%d' % os.getpid()
    with file(name) as shared:
        data = mmap.mmap(shared.fileno(), 0)
        os.remove(name)
    touch(data)
for again in range(50):
    with mmap.mmap(small.fileno(), 0, prot=mmap.PROT_READ) as data:
        data[again * 4096]
if len(sys.argv) > 1:
    time.sleep(0.05)
    os.execvp('python3', ['python3', '-c', sys.argv[1]])
";
    let figures = folder.path().join("figures.json");
    let output = foretell()
        .args(["run", "--quiet", "--json"])
        .arg(&figures)
        .args(["--", "python3", "-c", program, program])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("foretell runs");
    let mut plain = words(&["python3", "-c", program, program]);
    let plain = plain.current_dir(folder.path()).output().expect("it runs");
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    assert_eq!((output.status, output.stdout), (plain.status, plain.stdout));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let figures: Value =
        serde_json::from_slice(&fs::read(&figures).expect("written")).expect("JSON");
    assert_eq!(figures["manager"], "finished", "{figures}");
    if !Path::new("/proc/self/pagemap").exists() {
        skipped("no pagemap");
    }
}
