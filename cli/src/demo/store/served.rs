//! A store that is served and mounted for one measurement, with all caches empty at its beginning.
//!
//! The store is in this process; `foretell mount` is a child process, as for a user. The child ends when this process ends.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use foretell_mount::{Kind, point};
use foretell_testbed::store::{Store, StoreOptions};
use rustix::fs::statfs;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::results::Sample;
use crate::background;

/// The bucket that is served.
pub(super) const BUCKET: &str = "demo";

/// Variables that could lead the mount to another server, besides all of `AWS_...`.
const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// See the [module](self).
pub(super) struct Served<'a> {
    mount: Mount<'a>,
    store: Store,
}

impl<'a> Served<'a> {
    /// # Errors
    /// The store or the mount cannot be started.
    pub(super) fn begin(
        folder: &Path,
        mountpoint: &'a Path,
        options: &StoreOptions,
    ) -> Result<Self, String> {
        let store = Store::start(folder, options).map_err(|error| error.to_string())?;
        let mount = Mount::begin(mountpoint, &store.endpoint())?;
        Ok(Served { mount, store })
    }

    /// The mount's process.
    pub(super) fn process(&self) -> &Child {
        &self.mount.child
    }

    /// Does `work` in the mount, in a thread other than the one that started the mount. A thread that looks up a name cannot be
    /// ended before the answer comes, not even by SIGKILL. The mount ends when the thread that started it does, so that thread
    /// must stay free.
    pub(super) fn within<R: Send>(
        &mut self,
        work: impl FnOnce() -> io::Result<R> + Send,
    ) -> Result<R, String> {
        let mountpoint = self.mount.mountpoint;
        let work = || work().map_err(|error| (error, is_served(mountpoint)));
        let result = thread::scope(|scope| scope.spawn(work).join());
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        result.map_err(|(error, is_served)| self.mount.why(&error, is_served))
    }

    /// As [`within`](Self::within); also returns a sample: the elapsed time, and what the store did meanwhile. The caller sets
    /// `identical`.
    pub(super) fn time<R: Send>(
        &mut self,
        work: impl FnOnce() -> io::Result<R> + Send,
    ) -> Result<(Sample, R), String> {
        self.store.reset_in_flight_max();
        let before = self.store.report();
        let (elapsed_s, result) = self.within(|| {
            let began = Instant::now();
            let result = work()?;
            Ok((began.elapsed().as_secs_f64(), result))
        })?;
        let after = self.store.report();
        let requests = after.requests - before.requests;
        let sample = Sample {
            elapsed_s,
            requests,
            in_flight_max: if requests == 0 { 0 } else { after.in_flight_max },
            bytes_sent: after.bytes_sent - before.bytes_sent,
            identical: false,
        };
        Ok((sample, result))
    }

    /// Unmounts the store. Returns how late its first bytes were on average, in seconds.
    pub(super) fn end(mut self) -> Result<f64, String> {
        self.mount.end()?;
        Ok(self.store.stop().first_byte_late_us_mean / 1e6)
    }
}

/// Whether a mount is there and its process answers. A read fails with EIO both for a read error and for a mount whose process
/// has ended; only `statfs` tells the two apart.
fn is_served(mountpoint: &Path) -> bool {
    statfs(mountpoint).is_ok_and(|figures| figures.f_type == libc::FUSE_SUPER_MAGIC)
}

/// `foretell mount --foreground`, and its mount point.
struct Mount<'a> {
    child: Child,
    mountpoint: &'a Path,
    has_ended: bool,
    /// Keeps the child's standard output open.
    _output: BufReader<ChildStdout>,
}

impl<'a> Mount<'a> {
    fn begin(mountpoint: &'a Path, endpoint: &str) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot run foretell mount: {error}");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["mount", "--foreground", "--ttl", "10min", &format!("s3://{BUCKET}")]);
        command.arg(mountpoint);
        let is_setting = |name: &str| name.starts_with("AWS_") || PROXIES.contains(&name);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_setting) {
                command.env_remove(name);
            }
        }
        command.envs([
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_SKIP_SIGNATURE", "true"),
            ("AWS_REGION", "us-east-1"),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A process group of its own: Ctrl-C reaches only the demo, which ends the mount itself.
        command.process_group(0);
        // SAFETY: a plain system call, allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                set_parent_process_death_signal(Some(Signal::TERM)).map_err(io::Error::from)
            })
        };
        let mut child = command.spawn().map_err(failed)?;
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        let read = output.read_line(&mut first);
        let mut mount = Mount { child, mountpoint, has_ended: false, _output: output };
        match read {
            Ok(0) => Err(mount.last_words().unwrap_or_else(|| "foretell mount failed".into())),
            Ok(_) => Ok(mount),
            Err(error) => Err(failed(error)),
        }
    }

    /// The last line on standard error of a process that has ended or is about to.
    fn last_words(&mut self) -> Option<String> {
        let mut messages = String::new();
        self.child.stderr.take()?.read_to_string(&mut messages).ok()?;
        let line = messages.lines().last()?;
        Some(line.strip_prefix("foretell: ").unwrap_or(line).to_owned())
    }

    /// Says why an action in the mount failed.
    fn why(&mut self, error: &io::Error, is_served: bool) -> String {
        // The error may be noticed before the process has ended.
        if !is_served && let Some(process) = background::process(self.child.id()) {
            background::ends(&process);
        }
        match self.child.try_wait() {
            Ok(Some(status)) => format!("foretell mount ended ({status}) before the demo did"),
            _ => format!("cannot read what is mounted: {error}"),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        if self.has_ended {
            return Ok(());
        }
        self.has_ended = true;
        let process: Option<OwnedFd> = background::process(self.child.id());
        // The process may have ended, but it is not reaped: its pid cannot belong to another one.
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        if !process.is_some_and(|process| background::ends(&process)) {
            self.child.kill().ok();
        }
        let status = self.child.wait().map_err(|error| format!("foretell mount: {error}"))?;
        // If the process was killed, the mount is still there.
        point::unmount_path(self.mountpoint, &Kind::STORE).ok();
        match status.success() {
            true => Ok(()),
            false => Err(format!("foretell mount ended ({status}) before the demo did")),
        }
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Another failure is being reported already.
        self.end().ok();
    }
}
