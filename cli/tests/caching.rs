//! `foretell run --release` and `--explain`: which data stays in the kernel's cache, and why.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{foretell, have_fuse};

/// An array of one disk over three files of 2 MiB, unmounted at the end.
struct Array {
    backing: tempfile::TempDir,
    mountpoint: tempfile::TempDir,
}

const FILES: [&str; 3] = ["one", "two", "three"];
const FILE_BYTES: usize = 2 << 20;

impl Array {
    fn mount() -> Self {
        let folder = || tempfile::tempdir().expect("a folder");
        let array = Array { backing: folder(), mountpoint: folder() };
        for (number, name) in FILES.into_iter().enumerate() {
            let content: Vec<u8> =
                (0..FILE_BYTES).map(|at| (at * 31 + at / 8192 + number) as u8).collect();
            fs::write(array.backing.path().join(name), content).expect("written");
        }
        let mut mount = foretell();
        mount.args(["array", "mount", "--disks", "1", "--time-scale", "0.02"]);
        let done = mount.arg(array.backing.path()).arg(array.mountpoint.path()).output();
        assert!(done.expect("it runs").status.success());
        array
    }

    /// `cksum` over all files, `passes` times; under foretell with `options`, or without it.
    fn cksum(&self, passes: usize, options: Option<&[&str]>) -> Vec<u8> {
        let mut command = match options {
            Some(options) => {
                let mut run = foretell();
                run.args(["run", "--quiet"]).args(options).args(["--", "cksum"]);
                run
            }
            None => Command::new("cksum"),
        };
        let folder = match options {
            Some(_) => self.mountpoint.path(),
            None => self.backing.path(),
        };
        let names = (0..passes).flat_map(|_| FILES);
        let output = command.args(names).current_dir(folder).output().expect("it runs");
        assert!(output.status.success());
        output.stdout
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let _ = foretell().args(["array", "unmount"]).arg(self.mountpoint.path()).output();
    }
}

/// The lines of a log of decisions, as fields.
fn decisions(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).expect("written");
    assert!(text.starts_with("# foretell decisions 1"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn decisions_are_explained() {
    if !have_fuse() {
        return;
    }
    let (array, out) = (Array::mount(), tempfile::tempdir().expect("a folder"));
    let log = out.path().join("explain");
    let path = log.to_str().expect("plain");
    assert_eq!(array.cksum(1, Some(&["--explain", path])), array.cksum(1, None));
    let decisions = decisions(&log);
    assert!(decisions.iter().any(|fields| fields[1] == "prefetch"), "{decisions:?}");
    for fields in &decisions {
        assert_eq!(fields.len(), 7, "{fields:?}");
        let [value, against] = [2, 3].map(|at| fields[at].parse::<f64>().expect("a number"));
        assert!(fields[1] != "prefetch" || value > against, "{fields:?}");
        assert!(FILES.iter().any(|name| fields[6].ends_with(name)), "{fields:?}");
    }
}

#[test]
fn what_will_be_read_last_is_released_and_the_output_is_the_same() {
    if !have_fuse() {
        return;
    }
    let (array, out) = (Array::mount(), tempfile::tempdir().expect("a folder"));
    let log = out.path().join("explain");
    let path = log.to_str().expect("plain");
    let options = ["--release", "--budget", "3MiB", "--explain", path];
    assert_eq!(array.cksum(4, Some(&options)), array.cksum(4, None));
    let evicted = decisions(&log).iter().filter(|fields| fields[1] == "evict").count();
    // Half of the data fits, so in each pass the other half is released. The program may read some of it before foretell does.
    assert!(evicted > 100, "{evicted} blocks were let go");
}

#[test]
fn a_log_that_cannot_be_written_is_said_before_the_program_runs() {
    let output =
        foretell().args(["run", "--explain", "/no/such/folder/log", "--", "true"]).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("foretell: --explain: /no/such/folder/log: "), "{text}");
}
