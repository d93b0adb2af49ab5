//! What whole programs did: which names they resolved, which bytes they read, and how long they were busy with other
//! things in between. [`strace`](super::strace) and [`dxt`](super::dxt) read it.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_policy::{Nanos, ReaderId};

/// What programs did, in the order in which the calls began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The names that the calls refer to, and those of the folders that were passed through: absolute,
    /// and without `.`, `..` and doubled strokes.
    pub paths: Vec<PathBuf>,
    /// All calls but those that end a program.
    pub calls: Vec<Call>,
    /// Whether it is known how long any call took.
    pub has_durations: bool,
    /// How many bytes of which files were mapped into memory, but for programs and libraries; what is read of them
    /// that way is in no call.
    pub mapped: Vec<(PathIndex, u64)>,
    /// Bytes read at offsets of files whose opens are not recorded: which files is not known.
    pub unnamed_bytes: u64,
    /// Opens to read in folders that are known by no call, so that it is not known of which files.
    pub unnamed_opens: u64,
    /// Calls of io_uring and aio, which do not say what is read.
    pub ring_calls: u64,
    /// Lines not understood or not needed.
    pub passed_over: u64,
    /// What the recorder itself says that is wrong with it, each once.
    pub warnings: Vec<String>,
    /// How whole the recording is.
    pub state: State,
}

/// What of a recording's text is damaged or missing, as far as the format tells: [`strace`](super::strace) does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// All lines.
    pub lines: u64,
    /// Those that should be calls and are not understood.
    pub not_understood: u64,
    /// The first of these; lines count from 1.
    pub first_not_understood: Option<u64>,
    /// Whether the last line is cut off, or a call has a beginning and no end.
    pub ends_within_call: bool,
    /// Open files that were read from where they stood, and whose opening, or the closing of another one, is not in it.
    pub unopened: u64,
    /// A process that was made and is in no line.
    pub unheard_child: Option<ReaderId>,
}

/// A name: an index into [`Recording::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathIndex(pub u32);

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The process or thread; 0 where the recording names none.
    pub reader: ReaderId,
    /// When it began, since the first call.
    pub began: Nanos,
    /// How long it took; 0 if that was not recorded.
    pub took: Nanos,
    /// What it did.
    pub what: What,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A file or folder was opened. It is the name behind all links, as for reads, if the recording tells it.
    Open(PathIndex),
    /// A name was resolved otherwise, successfully: by the stat family, access, readlink, execve, chdir.
    Look(PathIndex),
    /// Bytes of a file were read: by the read family, or as the source of sendfile, splice and
    /// copy_file_range. They end at byte 2^63 at most.
    Read {
        /// What was read.
        file: PathIndex,
        /// The first byte.
        offset_bytes: u64,
        /// How many were read; at least 1.
        length_bytes: u64,
    },
    /// Entries of a folder were listed; not the empty answer at its end.
    List(PathIndex),
    /// There was nothing of this name, or it could not be had.
    Missing(PathIndex),
    /// A read or listing of this file was at its end.
    End(PathIndex),
    /// The program has asked the kernel to read ahead: posix_fadvise with WILLNEED, or readahead.
    Advise {
        /// What of.
        file: PathIndex,
        /// The first byte.
        offset_bytes: u64,
        /// How many; 0: all to the end of the file.
        length_bytes: u64,
    },
    /// A process or thread was made that has calls in the recording.
    Fork {
        /// Who was made.
        child: ReaderId,
        /// Whether the call lasts until the child executes a program or ends, as vfork does.
        waits: bool,
    },
    /// A call that lasts until somebody else has done something: a child has ended, a pipe has been written or
    /// read, a lock has been given back.
    Wait(Whom),
    /// Any other call: only its time matters.
    Other,
}

/// Who ended a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// This child, by its end.
    Child(ReaderId),
    /// Who wrote to the pipe of this number, from which so many bytes were read.
    Writer {
        /// Its number.
        pipe: u64,
        /// How many.
        bytes: u64,
    },
    /// Who read from the pipe of this number, to which so many bytes were written: if it was full.
    Reader {
        /// Its number.
        pipe: u64,
        /// How many.
        bytes: u64,
    },
    /// Anybody.
    Unknown,
}

/// What lies below these the kernel makes when it is read, or keeps in memory: devices, `/proc`, `/sys`, `/dev/shm`, `/run`.
const ON_NO_DISK: [&str; 5] = ["/dev", "/proc", "/sys", "/run", "/var/run"];
/// How the names of open files begin that lie in no folder: of memfd_create, shmget, mmap of huge pages, io_setup and DMA buffers.
const IN_NO_FOLDER: [&[u8]; 5] = [b"/memfd:", b"/SYSV", b"/anon_hugepage", b"/[aio]", b"/dmabuf:"];
/// What of `/dev` answers at once: what is read of all else there waits for somebody, as at a terminal.
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

/// Whether no disk has what is read of the file of this name: it is a device, a terminal, of the kernel, or in memory. A `/tmp` in
/// memory is not told from one on a disk.
pub fn is_on_no_disk(path: &Path) -> bool {
    let name = path.as_os_str().as_bytes();
    // DXT calls the standard descriptors `<STDIN>` and the like.
    name.starts_with(b"<STD")
        || ON_NO_DISK.iter().any(|folder| path.starts_with(folder))
        || IN_NO_FOLDER.iter().any(|begin| name.starts_with(begin))
}

/// What of a recording has been left out, as no disk has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Files of which something was read.
    pub files: usize,
    /// How much was.
    pub bytes: u64,
}

impl What {
    /// The file, folder or name that it is about.
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
    /// Makes calls on files for which `is_out` holds time of the program, or waits for somebody where they are that. It is asked
    /// once for each name.
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

    /// The name that `index` is.
    pub fn path(&self, index: PathIndex) -> &Path {
        &self.paths[index.0 as usize]
    }

    /// Brings the calls into the order in which they began, and counts time from the first.
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
