//! What `/proc` tells of other processes: command line, working folder, parent.
//!
//! These files are made from the memory of the process and the kernel, so reading them waits for no device. A process may have
//! ended, may forbid it, or may have overwritten its arguments: then there is no answer, or a wrong guess, which costs a
//! lookup.
//!
//! A path means the same to the manager and to a process if both have the same root and the same mounts. Other processes have
//! no answer.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::lineage::ProcessId;
use crate::outside::identity;

/// Bytes of a command line that are read. Linux allows some 2 MiB for arguments and environment, unless the stack's limit is
/// raised.
const LINE_MAX_BYTES: usize = 2 << 20;

/// Bytes that are kept for reading the next command line.
const BUFFER_BYTES: usize = 16 << 10;

/// Threads of a process whose switches are read, some 10 µs each.
const THREADS_MAX: usize = 8;

/// Descriptors of a process that are looked at, some 2 µs each.
const DESCRIPTORS_MAX: usize = 256;

/// The lines of `status` that count them.
const VOLUNTARY: &str = "voluntary_ctxt_switches:";
const INVOLUNTARY: &str = "nonvoluntary_ctxt_switches:";

/// The mark that the kernel adds to the name of a working folder that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// How often the threads of a process have left the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    /// By themselves, as they do to wait for a device.
    pub(crate) voluntary: u64,
    /// Because others took it.
    pub(crate) involuntary: u64,
}

/// See the [module](self).
pub(crate) struct ProcessFiles {
    buffer: Vec<u8>,
    mounts: PathBuf,
}

impl ProcessFiles {
    /// `None` if `/proc` is not there, or is that of another namespace of process numbers.
    pub(crate) fn open() -> Option<Self> {
        let own = std::fs::read_link("/proc/self").ok()?;
        let is_own = own.to_str() == Some(&std::process::id().to_string());
        let mounts = std::fs::read_link("/proc/self/ns/mnt").ok()?;
        is_own.then(|| ProcessFiles { buffer: vec![0; BUFFER_BYTES], mounts })
    }

    /// The words of a process, each ended by a NUL byte, as far as they fit.
    pub(crate) fn command_line(&mut self, process: ProcessId) -> Option<&[u8]> {
        let file = File::open(format!("/proc/{process}/cmdline")).ok()?;
        if self.buffer.len() > BUFFER_BYTES {
            self.buffer = vec![0; BUFFER_BYTES];
        }
        let mut length = 0;
        loop {
            let room = &mut self.buffer[length..];
            let (asked, read) = (room.len(), rustix::io::read(&file, room).ok()?);
            length += read;
            if read < asked || length >= LINE_MAX_BYTES {
                return Some(&self.buffer[..length]);
            }
            self.buffer.resize((length * 4).min(LINE_MAX_BYTES), 0);
        }
    }

    /// Whether a path means the same to a process as to the manager.
    pub(crate) fn shares_paths(&self, process: ProcessId) -> bool {
        let is = |name, expected: &Path| link(process, name).is_some_and(|of| of == expected);
        is("root", Path::new("/")) && is("ns/mnt", &self.mounts)
    }

    /// Whether the process has ended.
    pub(crate) fn is_gone(process: ProcessId) -> bool {
        let root = std::fs::read_link(format!("/proc/{process}/root"));
        root.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    /// The folder that a process takes relative paths from. It has none if it was removed.
    pub(crate) fn working_folder(&self, process: ProcessId) -> Option<Option<PathBuf>> {
        self.shares_paths(process).then_some(())?;
        let folder = link(process, "cwd")?;
        let is_there = folder.is_absolute() && !folder.as_os_str().as_bytes().ends_with(REMOVED);
        Some(Some(folder).filter(|_| is_there))
    }

    /// The file that a descriptor of a process is open on, by its name. `None` if it was removed, or is no file.
    pub(crate) fn path_of_descriptor(
        &self,
        process: ProcessId,
        descriptor: u64,
    ) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/{process}/fd/{descriptor}")).ok()?;
        let is_there = path.is_absolute() && !path.as_os_str().as_bytes().ends_with(REMOVED);
        (is_there && self.shares_paths(process)).then_some(path)
    }

    /// The name of a file that a process has open, by its numbers (`st_dev`, `st_ino`), as far as the process has few files
    /// open.
    pub(crate) fn path_of_open_file(
        &self,
        process: ProcessId,
        (device, inode): (u64, u64),
    ) -> Option<PathBuf> {
        let folder = format!("/proc/{process}/fd");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = rustix::fs::open(&folder, flags, Mode::empty()).ok()?;
        let numbers = std::fs::read_dir(&folder).ok()?.take(DESCRIPTORS_MAX);
        let mut names = numbers.flatten().map(|entry| entry.file_name());
        let is_it = |name: &OsString| {
            let known = identity(&descriptors, name.as_os_str());
            known.is_some_and(|(_, of_device, of_inode)| (of_device, of_inode) == (device, inode))
        };
        let number = names.find(is_it)?.to_str()?.parse().ok()?;
        self.path_of_descriptor(process, number)
    }

    /// How often the threads of a process have left the processor. `None` for a process of many threads.
    pub(crate) fn switches(process: ProcessId) -> Option<Switches> {
        let mut switches = Switches::default();
        for (number, task) in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.enumerate() {
            if number >= THREADS_MAX {
                return None;
            }
            let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let count = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.trim().parse::<u64>().ok()
            };
            switches.voluntary += count(VOLUNTARY)?;
            switches.involuntary += count(INVOLUNTARY)?;
        }
        Some(switches)
    }

    /// The process that a thread belongs to.
    pub(crate) fn process_of_thread(thread: u64) -> Option<ProcessId> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
        line.trim().parse().ok()
    }

    /// The parent of a process.
    pub(crate) fn parent(process: ProcessId) -> Option<ProcessId> {
        let line = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        // The second field, the command's name in parentheses, may have any bytes.
        let behind_name = line.iter().rposition(|&byte| byte == b')')? + 1;
        let mut fields = std::str::from_utf8(&line[behind_name..]).ok()?.split_ascii_whitespace();
        fields.nth(1)?.parse().ok().filter(|&parent| parent != 0)
    }
}

fn link(process: ProcessId, name: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/{name}")).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_has_words_a_folder_and_a_parent() {
        let mut files = ProcessFiles::open().expect("/proc is there");
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("x");
        std::fs::create_dir(&inner).expect("made");
        let long = "w".repeat(100);
        let words: Vec<&str> = std::iter::repeat_n(long.as_str(), 1000).collect();
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line", "sh"])
            .args(&words)
            .current_dir(&inner)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let process = ProcessId::from(child.id());
        let mut begun = [0];
        let output = child.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut begun).expect("it has begun");
        let expected =
            format!("sh\0-c\0echo; read line\0sh\0{}", (long.clone() + "\0").repeat(1000));
        assert!(files.command_line(process) == Some(expected.as_bytes()));
        let real = inner.canonicalize().expect("it is there");
        assert_eq!(files.working_folder(process), Some(Some(real)));
        assert_eq!(ProcessFiles::parent(process), Some(u64::from(std::process::id())));
        assert!(ProcessFiles::switches(process).is_some());
        assert_eq!(ProcessFiles::process_of_thread(process), Some(process));
        std::fs::remove_dir(&inner).expect("it is empty");
        assert_eq!(files.working_folder(process), Some(None));
        drop(child.stdin.take());
        assert!(!child.wait().expect("it ends").success());
        assert_eq!(files.command_line(process).unwrap_or_default(), b"");
        assert_eq!(ProcessFiles::parent(process), None);
    }

    #[test]
    fn an_open_file_is_named_by_its_numbers() {
        use std::os::unix::fs::MetadataExt;
        let files = ProcessFiles::open().expect("/proc is there");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let about = file.as_file().metadata().expect("known");
        let named =
            |inode| files.path_of_open_file(std::process::id().into(), (about.dev(), inode));
        assert_eq!(named(about.ino()), file.path().canonicalize().ok());
        assert_eq!(named(u64::MAX), None);
    }

    /// What is told of the working folder of a child that `change`s something first. `None` if it may not.
    fn folder_of_child(change: fn() -> libc::c_int) -> Option<Option<Option<PathBuf>>> {
        let files = ProcessFiles::open().expect("/proc is there");
        let (told, teller) = rustix::pipe::pipe().expect("a pipe");
        // SAFETY: the child makes nothing but system calls.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = File::from(teller).write_all(&[u8::from(change() == 0)]);
            loop {
                // SAFETY: plain system call.
                unsafe { libc::pause() };
            }
        }
        drop(teller);
        let mut changed = [0];
        File::from(told).read_exact(&mut changed).expect("a byte");
        let folder = files.working_folder(child.unsigned_abs().into());
        let child = rustix::process::Pid::from_raw(child).expect("it was forked");
        rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("it is there");
        let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        (changed == [1]).then_some(folder)
    }

    #[test]
    fn a_process_with_another_root_or_other_mounts_tells_nothing() {
        let own = std::env::current_dir().expect("it is there");
        assert_eq!(folder_of_child(|| 0), Some(Some(Some(own))));
        // SAFETY: plain system calls, with a constant.
        let changes: [fn() -> libc::c_int; 2] = [
            || unsafe { libc::chroot(c"/proc".as_ptr()) },
            || unsafe { libc::unshare(libc::CLONE_NEWNS) },
        ];
        for change in changes {
            match folder_of_child(change) {
                Some(told) => assert_eq!(told, None),
                None => eprintln!("skipped: only root may change its root and mounts"),
            }
        }
    }
}
