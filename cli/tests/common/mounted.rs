//! A folder on an array as slow as a network, on which programs run cold.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{foretell, have_fuse, wait_until};

/// Mounted, and unmounted on drop.
pub(crate) struct Mounted {
    pub(crate) backing: tempfile::TempDir,
    pub(crate) folder: tempfile::TempDir,
}

impl Mounted {
    /// Of a tree that `fill` makes; `None`, with a message, without FUSE.
    pub(crate) fn new(fill: impl Fn(&Path)) -> Option<Self> {
        if !have_fuse() {
            return None;
        }
        let new = || tempfile::tempdir().expect("a folder");
        let (backing, folder) = (new(), new());
        fill(backing.path());
        let mounted = Mounted { backing, folder };
        mounted.mount();
        Some(mounted)
    }

    pub(crate) fn mount(&self) {
        let mut mount = foretell();
        mount.args(["array", "mount", "--disks", "4", "--disk", "network", "--layout", "aged"]);
        let output = mount.args([self.backing.path(), self.folder.path()]).output();
        let output = output.expect("foretell runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn unmount(&self) -> bool {
        let mut unmount = foretell();
        unmount.args(["array", "unmount"]).arg(self.folder.path()).stdout(Stdio::null());
        unmount.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Runs a command cold under `foretell run`, and again without.
    pub(crate) fn run(&self, command: &[&str]) -> serde_json::Value {
        self.run_with(command, &[], |_| {})
    }

    /// Runs a command cold under `foretell run` with these options, after `adjust`, and again without. Both must do the same.
    /// Returns the figures.
    pub(crate) fn run_with(
        &self,
        command: &[&str],
        options: &[&str],
        adjust: impl Fn(&mut Command),
    ) -> serde_json::Value {
        wait_until("the array is free", || self.unmount());
        self.mount();
        let figures = self.backing.path().with_extension("figures");
        let mut hinted = foretell();
        hinted.args(["run", "--quiet", "--json"]).arg(&figures).args(options);
        hinted.arg("--").args(command);
        adjust(&mut hinted);
        let hinted = self.output(hinted);
        let mut plain = Command::new(command[0]);
        plain.args(&command[1..]);
        let plain = self.output(plain);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&hinted.stderr), text(&plain.stderr), "{command:?}");
        assert!(hinted.stdout == plain.stdout, "{command:?}: standard output differs");
        assert_eq!(hinted.status, plain.status, "{command:?}");
        let read = serde_json::from_slice(&fs::read(&figures).expect("written")).expect("JSON");
        fs::remove_file(figures).expect("it is there");
        read
    }

    pub(crate) fn output(&self, mut command: Command) -> Output {
        command.current_dir(self.folder.path()).stdin(Stdio::null()).output().expect("it runs")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        wait_until("the array is free", || self.unmount());
    }
}
