//! Commands that return and leave a process behind that goes on serving: a mount or an array.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::Failure;

/// How long to wait for a server to end after its unmount: it has its figures to write.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Starts this command again with `--foreground`, in its own session, and waits for its first line, which says that the mount
/// is usable. `subcommand_words` counts the words of the command's name.
pub(crate) fn again_in_foreground(subcommand_words: usize) -> Result<ExitCode, Failure> {
    let binary = std::env::current_exe().map_err(Failure::failed)?;
    let mut command = Command::new(binary);
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    words.insert(subcommand_words, "--foreground".into());
    command.args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: both are plain system calls, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // Closes the caller's other descriptors (a lock, a pipe) at exec. A kernel before 5.11 keeps them open.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            rustix::process::setsid().map(drop).map_err(io::Error::from)
        })
    };
    let mut child = command.spawn().map_err(Failure::failed)?;
    let mut first = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut first).map_err(Failure::failed)?;
    }
    if !first.is_empty() {
        pass_on_notes(&mut child);
        let _ = writeln!(io::stdout(), "{}", first.trim_end()); // The reader may be gone.
        return Ok(ExitCode::SUCCESS);
    }
    let mut messages = String::new();
    if let Some(mut output) = child.stderr.take() {
        output.read_to_string(&mut messages).map_err(Failure::failed)?;
    }
    let status = child.wait().map_err(Failure::failed)?;
    let line = messages.trim_end();
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0);
    let line = line.strip_prefix("foretell: ").unwrap_or(line).to_owned();
    Err(Failure { code: code.unwrap_or(1), line })
}

/// Passes on the child's notes so far. Later ones have no reader.
fn pass_on_notes(child: &mut Child) {
    let Some(mut notes) = child.stderr.take() else { return };
    if rustix::fs::fcntl_setfl(&notes, OFlags::NONBLOCK).is_ok() {
        let mut text = Vec::new();
        let _ = notes.read_to_end(&mut text); // Reads what is there, without waiting.
        let _ = io::stderr().write_all(&text);
    }
}

/// A descriptor of the process `pid`, if there is one.
pub(crate) fn process(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()
}

/// Waits up to 10 s for the process to end. Returns whether it has ended.
pub(crate) fn ends(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let seconds = Timespec { tv_sec: END_PATIENCE.as_secs() as i64, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&seconds)), Ok(1))
}
