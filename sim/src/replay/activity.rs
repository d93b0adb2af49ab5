//! What was recorded, whatever the format: who opened and read what, and when.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_policy::{Block, FileId, Nanos, ReaderId};

use crate::random::hash;
use crate::trace::recording::{PathIndex, Recording, What};
use crate::trace::{Fault, Trace, TraceError, touched};

/// Bytes of a folder that its listing reads.
const FOLDER_BYTES: u64 = 4096;

/// One thing that a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Who.
    pub reader: ReaderId,
    /// When it began, since the beginning of the recording.
    pub began: Nanos,
    /// How long it took; 0 where that was not recorded.
    pub took: Nanos,
    /// What.
    pub deed: Deed,
}

/// The kinds of [`Act`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A name was looked up: the inode of the file was needed.
    Open(FileId),
    /// These bytes were read; at least one, and none beyond byte 2^63.
    Read {
        /// The file.
        file: FileId,
        /// The first byte.
        offset_bytes: u64,
        /// How many bytes.
        length_bytes: u64,
    },
    /// The program disclosed that it will read these bytes; 0 of them: all to the end of the file.
    Disclose {
        /// The file.
        file: FileId,
        /// The first byte.
        offset_bytes: u64,
        /// How many bytes.
        length_bytes: u64,
    },
    /// Something else: its time is the program's own.
    Other,
}

impl Deed {
    /// The blocks that it reads, in ascending order.
    pub(super) fn blocks_read(self, block_bytes: u64) -> impl Iterator<Item = Block> {
        let read = match self {
            Deed::Read { file, offset_bytes, length_bytes } => {
                let touched = touched(offset_bytes, length_bytes, block_bytes);
                let (first, blocks) = touched.expect("a read ends at byte 2^63 at most");
                Some((file, first..first + blocks))
            }
            _ => None,
        };
        let blocks =
            |(file, range): (FileId, Range<u64>)| range.map(move |index| Block { file, index });
        read.into_iter().flat_map(blocks)
    }
}

/// A recording; see the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// In the order in which they began.
    pub acts: Vec<Act>,
    /// Sizes of all files, bytes.
    pub files: HashMap<FileId, u64>,
    /// Whether it is known how long acts took: otherwise times are those of the waiting, too.
    pub has_durations: bool,
}

/// Inode number and size of a file that is still there.
pub type Known = (u64, u64);

impl Activity {
    /// What a whole program did. Only what lies below `root` counts, if there is one: all else is the program's
    /// own time. `known` tells of files that are still there; others are taken to be as large as what was
    /// read of them.
    pub fn of_recording(
        recording: &Recording,
        root: Option<&Path>,
        known: impl Fn(&Path) -> Option<Known>,
    ) -> Self {
        let mut found: HashMap<PathBuf, FileId> = HashMap::new();
        let mut files: HashMap<FileId, u64> = HashMap::new();
        let mut identify = |path: &Path| -> FileId {
            if let Some(&file) = found.get(path) {
                return file;
            }
            let (number, size) = known(path).unwrap_or_else(|| (hash_path(path), 0));
            found.insert(path.to_owned(), FileId(number));
            files.entry(FileId(number)).or_insert(size);
            FileId(number)
        };
        let mut listed = HashSet::new();
        let mut acts = Vec::new();
        let mut folders = Vec::new();
        for call in &recording.calls {
            let mut push = |deed| {
                let (began, took) = (call.began, call.took);
                acts.push(Act { reader: call.reader, began, took, deed });
            };
            let path = |index: PathIndex| &recording.paths[index.0 as usize];
            let counts = |path: &Path| root.is_none_or(|root| path.starts_with(root));
            match call.what {
                What::Open(index) | What::Look(index) if counts(path(index)) => {
                    // The folders on the way are looked up before it. The root is known to all.
                    folders.clear();
                    let below = path(index).ancestors().take_while(|&at| Some(at) != root);
                    folders.extend(below.take(if root.is_some() { usize::MAX } else { 1 }));
                    for at in folders.drain(..).rev() {
                        push(Deed::Open(identify(at)));
                    }
                }
                What::Read { file, offset_bytes, length_bytes } if counts(path(file)) => {
                    push(Deed::Read { file: identify(path(file)), offset_bytes, length_bytes });
                }
                What::Advise { file, offset_bytes, length_bytes } if counts(path(file)) => {
                    push(Deed::Disclose { file: identify(path(file)), offset_bytes, length_bytes });
                }
                What::List(index) if counts(path(index)) => {
                    let file = identify(path(index));
                    match listed.insert(file) {
                        true => {
                            push(Deed::Read { file, offset_bytes: 0, length_bytes: FOLDER_BYTES })
                        }
                        false => push(Deed::Other),
                    }
                }
                _ => push(Deed::Other),
            }
        }
        let mut activity = Activity { acts, files, has_durations: recording.has_durations };
        for folder in listed {
            activity.files.insert(folder, FOLDER_BYTES);
        }
        activity.grow_files();
        activity
    }

    /// A recording of reads alone, in blocks of `block_bytes`.
    ///
    /// # Errors
    /// As for [`Trace`], and [`Fault::Beyond`]: no file has so many blocks of this size.
    pub fn of_trace(mut trace: Trace, block_bytes: u64) -> Result<Self, TraceError> {
        let mut activity = Activity::default();
        while let Some(read) = trace.next() {
            let read = read?;
            let bytes = read.bytes(block_bytes).ok_or_else(|| trace.malformed(Fault::Beyond));
            let (file, (offset_bytes, length_bytes)) = (read.file, bytes?);
            let deed = Deed::Read { file, offset_bytes, length_bytes };
            let (reader, began, took) = (read.reader, read.time, Nanos::ZERO);
            activity.acts.push(Act { reader, began, took, deed });
        }
        activity.grow_files();
        Ok(activity)
    }

    /// Who did something, in the order of their first acts.
    pub fn readers(&self) -> Vec<ReaderId> {
        let mut seen = HashSet::new();
        self.acts.iter().map(|act| act.reader).filter(|&reader| seen.insert(reader)).collect()
    }

    /// How large `file` is; 0 if it is unknown.
    pub fn size_bytes(&self, file: FileId) -> u64 {
        self.files.get(&file).copied().unwrap_or(0)
    }

    /// Whether anything is read at all.
    pub fn has_reads(&self) -> bool {
        self.acts.iter().any(|act| matches!(act.deed, Deed::Read { .. }))
    }

    /// Whether anything was disclosed.
    pub fn has_disclosures(&self) -> bool {
        self.acts.iter().any(|act| matches!(act.deed, Deed::Disclose { .. }))
    }

    /// Files are at least as large as what was read of them.
    fn grow_files(&mut self) {
        for act in &self.acts {
            if let Deed::Read { file, offset_bytes, length_bytes } = act.deed {
                let size = self.files.entry(file).or_insert(0);
                *size = (*size).max(offset_bytes.saturating_add(length_bytes));
            }
        }
    }
}

/// A number for a file that is not there any more.
fn hash_path(path: &Path) -> u64 {
    let text: &OsStr = path.as_os_str();
    let words: Vec<u64> = text.as_bytes().iter().map(|&byte| u64::from(byte)).collect();
    hash(&words) >> 1
}
