//! What whole programs did: which names they resolved, which bytes they read, and how long they were busy with other
//! things in between. [`strace`](super::strace) and [`dxt`](super::dxt) read it.

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

impl Recording {
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
