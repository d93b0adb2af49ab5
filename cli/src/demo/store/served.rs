//! A store that is served and mounted, for one measurement: nobody remembers anything at its beginning.
//!
//! The store is in this process, and `foretell mount` a child, as it is for whoever uses it. It ends with this process, however that ends.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use foretell_mount::{KIND, point};
use foretell_testbed::store::{Store, StoreOptions};
use rustix::fs::statfs;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::results::Sample;
use crate::background;

/// The bucket that is served.
pub(super) const BUCKET: &str = "demo";

/// What could lead the mount elsewhere, besides all of `AWS_...`.
const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// See the [module](self).
pub(super) struct Served<'a> {
    mount: Mount<'a>,
    store: Store,
}

impl<'a> Served<'a> {
    /// # Errors
    /// In words: what stands in the way of the store or the mount.
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

    /// Does something in the mount.
    ///
    /// Not in the thread that began the mount: who looks up a name cannot be ended before the answer comes, not even by SIGKILL,
    /// and the mount is told to end when that thread does.
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

    /// The same, and says how long it took and what the store did meanwhile. What was right is for others to say.
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

    /// Unmounts it. Returns how late the store was on average, in seconds.
    pub(super) fn end(mut self) -> Result<f64, String> {
        self.mount.end()?;
        Ok(self.store.stop().first_byte_late_us_mean / 1e6)
    }
}

/// Whether something is mounted there, and somebody answers. A read that was under way when nobody did any longer fails as one from a
/// broken disk does: only what the file system says of itself tells the two apart.
fn is_served(mountpoint: &Path) -> bool {
    statfs(mountpoint).is_ok_and(|figures| figures.f_type == libc::FUSE_SUPER_MAGIC)
}

/// `foretell mount --foreground`, and its mount point.
struct Mount<'a> {
    child: Child,
    mountpoint: &'a Path,
    has_ended: bool,
    /// Of its standard output, which stays open.
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
        // A group of its own: Ctrl-C is for the demo, which ends the mount itself.
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

    /// What a process that has ended, or is about to, said last.
    fn last_words(&mut self) -> Option<String> {
        let mut messages = String::new();
        self.child.stderr.take()?.read_to_string(&mut messages).ok()?;
        let line = messages.lines().last()?;
        Some(line.strip_prefix("foretell: ").unwrap_or(line).to_owned())
    }

    /// Why something could not be done in it.
    fn why(&mut self, error: &io::Error, is_served: bool) -> String {
        // Who sees that nobody serves it any longer may be faster than the process is gone.
        if !is_served && let Some(process) = background::process(self.child.id()) {
            background::ends(&process);
        }
        match self.child.try_wait() {
            Ok(Some(status)) => format!("foretell mount has ended ({status}) before the demo did"),
            _ => format!("cannot read what is mounted: {error}"),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        if self.has_ended {
            return Ok(());
        }
        self.has_ended = true;
        let process: Option<OwnedFd> = background::process(self.child.id());
        // It may have ended, and is not reaped yet: the number is still its own.
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        if !process.is_some_and(|process| background::ends(&process)) {
            self.child.kill().ok();
        }
        let status = self.child.wait().map_err(|error| format!("foretell mount: {error}"))?;
        // If it was killed, the mount is still there.
        point::unmount_path(self.mountpoint, &KIND).ok();
        match status.success() {
            true => Ok(()),
            false => Err(format!("foretell mount has ended ({status}) before the demo did")),
        }
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Something else went wrong, and is told.
        self.end().ok();
    }
}
