//! The manager of `foretell run`, in a process of its own.
//!
//! A thread that waits for a device cannot be ended before the device answers, and a process cannot
//! end before its threads have. The manager has many threads that wait for devices; the process that
//! stands in for the program must end when the program does. So they are two: the manager is forked
//! off before anything else is started, and told to end by the closing of a pipe, which also happens
//! when `foretell run` is killed. If it has to wait for a device then, it does so alone and unseen.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use foretell_manager::{Manager, ManagerState, Options, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use crate::failure::{note, without_controls};
use crate::panics;

/// How long to wait for the report: what the manager allows itself, and some more.
const REPORT_PATIENCE: Duration = Duration::from_secs(3);

/// How long to wait for the process to end after its report. Longer only if a device keeps it.
const END_PATIENCE: Duration = Duration::from_millis(100);

/// Before a line of the manager's about a panic, ahead of its report.
const TOLD: &str = "panic ";

/// The descriptors that this process was started with, besides the standard three.
pub(crate) struct InheritedDescriptors(Vec<RawFd>);

impl InheritedDescriptors {
    /// To be called before anything is opened.
    pub(crate) fn list() -> Self {
        let listing = std::fs::read_dir("/proc/self/fd");
        let numbers = listing.into_iter().flatten().flatten();
        let open: Vec<RawFd> =
            numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // The listing's own descriptor is closed by now.
        let still_open =
            |&fd: &RawFd| std::fs::exists(format!("/proc/self/fd/{fd}")).unwrap_or(false);
        InheritedDescriptors(open.into_iter().filter(|&fd| fd > 2).filter(still_open).collect())
    }

    fn close(self) {
        for fd in self.0 {
            // SAFETY: it was open when this process was started, so nothing in it owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
}

/// A running manager; dropping it ends it.
pub(crate) struct ManagerProcess {
    address: String,
    budget_bytes: u64,
    pid: Pid,
    /// Closing it tells the manager to end.
    control: OwnedFd,
    report: BufReader<File>,
}

impl ManagerProcess {
    /// Forks the manager off. To be called while there is one thread.
    ///
    /// # Errors
    /// In words, if the system is out of processes or descriptors, or the manager cannot start.
    pub(crate) fn start(options: Options, inherited: InheritedDescriptors) -> Result<Self, String> {
        let failed = |error| format!("cannot start the manager: {error}");
        let (told, control) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let (report, reporter) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let budget_bytes = options.budget_bytes;
        // SAFETY: there is one thread, so the child finds no lock taken and no structure half changed.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            drop((control, report));
            inherited.close();
            serve(options, told, File::from(reporter));
        }
        let pid = Pid::from_raw(forked).filter(|_| forked > 0).ok_or_else(|| {
            format!("cannot start the manager: {}", std::io::Error::last_os_error())
        })?;
        drop((told, reporter));
        let mut report = BufReader::new(File::from(report));
        let mut line = String::new();
        report
            .read_line(&mut line)
            .map_err(|error| format!("cannot start the manager: {error}"))?;
        match line.trim_end().split_once(' ') {
            Some(("ready", address)) => {
                let address = address.to_owned();
                Ok(ManagerProcess { address, budget_bytes, pid, control, report })
            }
            Some((_, message)) => Err(message.to_owned()),
            None => Err("the manager ended as it was started".into()),
        }
    }

    /// What programs need in the environment variable `FORETELL_SOCKET`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Ends the manager and returns its report; waits three seconds at most.
    pub(crate) fn finish(self) -> Report {
        let ManagerProcess { budget_bytes, pid, control, mut report, .. } = self;
        drop(control);
        let deadline = Instant::now() + REPORT_PATIENCE;
        let mut text = Vec::new();
        let state = loop {
            if !is_readable(report.get_ref(), deadline.saturating_duration_since(Instant::now())) {
                break ManagerState::Unresponsive;
            }
            match report.fill_buf().map(<[u8]>::len) {
                Ok(0) | Err(_) => break ManagerState::Failed("its process ended".into()),
                Ok(length) => {
                    text.extend_from_slice(report.buffer());
                    report.consume(length);
                }
            }
        };
        if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
            && is_readable(pidfd, END_PATIENCE)
        {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        let mut text = &text[..];
        while let Some(rest) = text.strip_prefix(TOLD.as_bytes()) {
            let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            note(format_args!("in the manager: {}", String::from_utf8_lossy(&rest[..end])));
            text = rest.get(end + 1..).unwrap_or_default();
        }
        serde_json::from_slice(text).unwrap_or_else(|_| Report::empty(state, budget_bytes))
    }
}

fn is_readable(fd: impl AsFd, patience: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: patience.as_secs().cast_signed(),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    matches!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)), Ok(1))
}

/// The child: serves until `told` is closed, reports, ends.
fn serve(options: Options, told: OwnedFd, mut reporter: File) -> ! {
    let _ = rustix::thread::set_name(c"foretell-manag");
    // Whoever reads our output shall see its end when the program has ended, and our folder may be
    // unmounted.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let _ = rustix::process::chdir("/");
    let code = match Manager::start(options) {
        Ok(manager) => {
            let _ = writeln!(reporter, "ready {}", manager.address());
            let _ = File::from(told).read(&mut [0u8; 1]);
            let report = manager.stop();
            for line in panics::told() {
                let _ = writeln!(reporter, "{TOLD}{}", without_controls(&line));
            }
            let _ = serde_json::to_vec(&report).map(|text| reporter.write_all(&text));
            0
        }
        Err(error) => {
            let _ = writeln!(reporter, "failed {error}");
            1
        }
    };
    drop(reporter);
    // SAFETY: ends the process at once; what `exit` would run belongs to the parent.
    unsafe { libc::_exit(code) }
}
