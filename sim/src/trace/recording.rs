//! What whole programs did: the names that they resolved, the bytes that they read, and the time that they
//! spent on other things in between. [`strace`](super::strace),
//! [`dxt`](super::dxt) and [`recorded`](super::recorded) make recordings.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_policy::{Nanos, ReaderId};

/// The calls of programs, in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The names that the calls refer to, and those of the folders on the way: absolute, and without `.`, `..`
    /// and doubled slashes.
    pub paths: Vec<PathBuf>,
    /// All calls except those that end a program.
    pub calls: Vec<Call>,
    /// Whether the recording has durations of calls.
    pub has_durations: bool,
    /// Files that were mapped into memory, and how many bytes; programs and libraries are left out. No call
    /// shows what is read through a mapping.
    pub mapped: Vec<(PathIndex, u64)>,
    /// Bytes read at given offsets from files whose names are unknown, since their opens were not recorded.
    pub unnamed_bytes: u64,
    /// Opens for reading whose names are unknown, since no recorded call shows the folder.
    pub unnamed_opens: u64,
    /// Calls of io_uring and aio, which do not show what is read.
    pub ring_calls: u64,
    /// Lines that were not understood or not needed.
    pub passed_over: u64,
    /// Warnings of the recorder about its own data, without repetitions.
    pub warnings: Vec<String>,
    /// Damaged and missing parts.
    pub state: State,
}

/// What is damaged or missing in a recording, as far as its format shows it. Only [`strace`](super::strace)
/// and [`recorded`](super::recorded) do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Why the recording has no end, in words.
    pub without_end: Option<&'static str>,
    /// All lines of the recording.
    pub lines: u64,
    /// Lines that should be calls and were not understood.
    pub not_understood: u64,
    /// The first of these; the first line is 1.
    pub first_not_understood: Option<u64>,
    /// Whether the last line is cut off, or a call has a beginning but no end.
    pub ends_within_call: bool,
    /// Descriptors that were read at their current position, where the recording lacks the open, or the close
    /// of another descriptor.
    pub unopened: u64,
    /// A process that was created but has no line in the recording.
    pub unheard_child: Option<ReaderId>,
}

/// A name: an index into [`Recording::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathIndex(pub u32);

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The process or thread; 0 if the recording has no numbers.
    pub reader: ReaderId,
    /// When it began, from the first call on.
    pub began: Nanos,
    /// How long it took; 0 if not recorded.
    pub took: Nanos,
    /// Its effect.
    pub what: What,
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A file or folder was opened. The name is the one after all links are resolved, as for reads, if the
    /// recording shows it.
    Open(PathIndex),
    /// A name was resolved in another way, with success: by the stat family, access, readlink, execve or chdir.
    Look(PathIndex),
    /// Bytes of a file were read: by the read family, or as the source of sendfile, splice and
    /// copy_file_range. They end at byte 2^63 at most.
    Read {
        /// The file.
        file: PathIndex,
        /// The first byte.
        offset_bytes: u64,
        /// The number of bytes that were read; at least 1.
        length_bytes: u64,
    },
    /// Entries of a folder were listed. The empty answer at its end is [`What::End`].
    List(PathIndex),
    /// The name does not exist, or access to it failed.
    Missing(PathIndex),
    /// A read or a listing was at the end of this file or folder.
    End(PathIndex),
    /// The program has asked the kernel to read ahead: posix_fadvise with WILLNEED, or readahead.
    Advise {
        /// The file.
        file: PathIndex,
        /// The first byte.
        offset_bytes: u64,
        /// The number of bytes; 0 means to the end of the file.
        length_bytes: u64,
    },
    /// A process or thread was created that has calls in the recording.
    Fork {
        /// The number of the new process or thread.
        child: ReaderId,
        /// Whether the call lasts until the child executes a program or ends, as vfork does.
        waits: bool,
    },
    /// A call that lasts until another process acts: a child ends, a pipe is written or read, a lock is
    /// released.
    Wait(Whom),
    /// Any other call. Only its time matters.
    Other,
}

/// The process that ends a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// This child, by ending.
    Child(ReaderId),
    /// The writer of this pipe, from which `bytes` were read.
    Writer {
        /// The pipe's number.
        pipe: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// The reader of this pipe, to which `bytes` were written. It mattered only if the pipe was full.
    Reader {
        /// The pipe's number.
        pipe: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Any other process.
    Unknown,
}

/// Folders whose content the kernel generates or keeps in memory: devices, `/proc`, `/sys`, `/dev/shm`, `/run`.
const ON_NO_DISK: [&str; 5] = ["/dev", "/proc", "/sys", "/run", "/var/run"];
/// How the names begin of open files that lie in no folder: of memfd_create, shmget, huge pages, aio and DMA
/// buffers.
const IN_NO_FOLDER: [&[u8]; 5] = [b"/memfd:", b"/SYSV", b"/anon_hugepage", b"/[aio]", b"/dmabuf:"];
/// Devices and folders of `/dev` that answer at once. A read of anything else there waits for another party, as
/// at a terminal.
const ANSWERS_AT_ONCE: [&str; 9] = [
    "/dev/zero",
    "/dev/null",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/mem",
    "/dev/port",
    "/dev/shm",
    "/dev/hugepages",
];

/// Whether no disk holds the content of this file, by its name: a device, a terminal, a file of the kernel, or
/// memory. A `/tmp` in memory cannot be distinguished from one on a disk.
pub fn is_on_no_disk(path: &Path) -> bool {
    let name = path.as_os_str().as_bytes();
    // DXT calls the standard descriptors `<STDIN>` and the like.
    name.starts_with(b"<STD")
        || ON_NO_DISK.iter().any(|folder| path.starts_with(folder))
        || IN_NO_FOLDER.iter().any(|begin| name.starts_with(begin))
}

/// Reads that were left out, since no disk holds their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Files that were read.
    pub files: usize,
    /// Bytes that were read.
    pub bytes: u64,
}

impl What {
    /// The file, folder or name that the call is about.
    fn path(self) -> Option<PathIndex> {
        match self {
            What::Open(path)
            | What::Look(path)
            | What::Read { file: path, .. }
            | What::List(path)
            | What::Missing(path)
            | What::End(path)
            | What::Advise { file: path, .. } => Some(path),
            What::Fork { .. } | What::Wait(_) | What::Other => None,
        }
    }
}

impl Recording {
    /// Removes the calls on files for which `is_out` is true. They become the program's own time, or waits if
    /// such a file is one that waits for another party. `is_out` is asked once for each name.
    pub fn leave_out(&mut self, is_out: impl Fn(&Path) -> bool) -> LeftOut {
        let is_out: Vec<bool> = self.paths.iter().map(|path| is_out(path)).collect();
        let is_out = |path: PathIndex| is_out[path.0 as usize];
        let waits = |path: &Path| !ANSWERS_AT_ONCE.iter().any(|known| path.starts_with(known));
        let waits = |path: &Path| path.starts_with("/dev") && waits(path);
        let (mut files, mut bytes) = (HashSet::new(), 0u64);
        for call in &mut self.calls {
            let Some(path) = call.what.path().filter(|&path| is_out(path)) else { continue };
            let what = call.what;
            call.what = What::Other;
            if let What::Read { length_bytes, .. } = what {
                files.insert(path);
                bytes = bytes.saturating_add(length_bytes);
                if waits(&self.paths[path.0 as usize]) {
                    call.what = What::Wait(Whom::Unknown);
                }
            }
        }
        self.mapped.retain(|&(file, _)| !is_out(file));
        LeftOut { files: files.len(), bytes }
    }

    /// The name with this index.
    pub fn path(&self, index: PathIndex) -> &Path {
        &self.paths[index.0 as usize]
    }

    /// Sorts the calls by their beginnings, and counts time from the first.
    pub(super) fn settle(&mut self) {
        if !self.calls.is_sorted_by_key(|call| call.began) {
            self.calls.sort_by_key(|call| call.began);
        }
        let origin = self.calls.first().map_or(Nanos::ZERO, |call| call.began);
        for call in &mut self.calls {
            call.began = call.began.saturating_sub(origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_disk_has_is_told_by_its_name() {
        for name in [
            "/dev/zero",
            "/dev/pts/3",
            "/dev/shm/x",
            "/proc/kallsyms",
            "/proc/1/maps",
            "/sys/kernel/x",
            "/run/user/0/x",
            "/memfd:x",
            "/memfd:a/b",
            "/SYSV00000000",
            "<STDIN>",
        ] {
            assert!(is_on_no_disk(Path::new(name)), "{name}");
        }
        for name in ["/device/x", "/home/dev/zero", "/data/memfd:x", "/procession", "/", "/tmp/x"] {
            assert!(!is_on_no_disk(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn what_is_left_out_is_the_programs_time_or_a_wait() {
        let paths = ["/dev/zero", "/dev/pts/1", "/data/f"].map(PathBuf::from).to_vec();
        let [zero, terminal, file] = [0, 1, 2].map(PathIndex);
        let read = |file| What::Read { file, offset_bytes: 0, length_bytes: 100 };
        let (reader, began, took) = (ReaderId(1), Nanos::ZERO, Nanos(5));
        let whats = [What::Open(zero), read(zero), read(zero), read(terminal), read(file)];
        let calls = whats.map(|what| Call { reader, began, took, what }).to_vec();
        let mapped = vec![(zero, 9), (file, 8)];
        let mut recording = Recording { paths, calls, mapped, ..Recording::default() };
        let left_out = recording.leave_out(is_on_no_disk);
        assert_eq!(left_out, LeftOut { files: 2, bytes: 300 });
        let whats: Vec<What> = recording.calls.iter().map(|call| call.what).collect();
        let wait = What::Wait(Whom::Unknown);
        assert_eq!(whats, [What::Other, What::Other, What::Other, wait, read(file)]);
        assert_eq!(recording.mapped, [(file, 8)]);
    }
}
