//! What was recorded, whatever the format: who opened and read what, and when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_policy::{Block, FileId, Nanos, ReaderId};

use super::BLOCKS_MAX;
use crate::random::hash;
use crate::trace::recording::{PathIndex, Recording, What, Whom};
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
    /// A file was opened: its inode was needed.
    Open(FileId),
    /// A name was looked up, and not for reading: the inode was needed.
    Look(FileId),
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
    /// Another reader was made, which begins then.
    Fork {
        /// Who.
        child: ReaderId,
        /// Whether this lasts until the child has begun a program of its own.
        waits: bool,
    },
    /// The program waited until somebody else had done something.
    Wait(Whom),
    /// A name was looked up that is not there, or what was read had come to its end. Its time was a device's, if
    /// anybody's.
    Nothing,
    /// Something else: its time is the program's own.
    Other,
}

impl Deed {
    /// The file that it is about.
    fn file_mut(&mut self) -> Option<&mut FileId> {
        match self {
            Deed::Open(file)
            | Deed::Look(file)
            | Deed::Read { file, .. }
            | Deed::Disclose { file, .. } => Some(file),
            Deed::Fork { .. } | Deed::Wait(_) | Deed::Nothing | Deed::Other => None,
        }
    }

    /// The file and the blocks of it that it reads, if it is a read; some.
    pub(super) fn range_read(self, block_bytes: u64) -> Option<(FileId, Range<u64>)> {
        let Deed::Read { file, offset_bytes, length_bytes } = self else { return None };
        let touched = touched(offset_bytes, length_bytes, block_bytes);
        let (first, blocks) = touched.expect("a read ends at byte 2^63 at most");
        Some((file, first..first + blocks))
    }

    /// The blocks that it reads, in ascending order.
    pub(super) fn blocks_read(self, block_bytes: u64) -> impl Iterator<Item = Block> {
        let read = self.range_read(block_bytes);
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

/// A file that is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The number of the file system's device.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// What tells a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    Known(u64, u64),
    /// A number for the name of one that is not there any more.
    Gone(u64),
}

/// The numbers of files: of those on the device where most are, their inodes, which is what layouts place them by; of the
/// others a hash, so that equal inodes of two devices are two files.
fn numbers(files: &[(Identity, u64)]) -> Vec<FileId> {
    let mut on: BTreeMap<u64, usize> = BTreeMap::new();
    for (identity, _) in files {
        if let Identity::Known(device, _) = identity {
            *on.entry(*device).or_default() += 1;
        }
    }
    let most = on.into_iter().max_by_key(|&(device, files)| (files, Reverse(device)));
    let number = |&(identity, _): &(Identity, u64)| match identity {
        Identity::Known(device, inode) if most.is_some_and(|(most, _)| most == device) => inode,
        Identity::Known(device, inode) => hash(&[device, inode]) >> 1,
        Identity::Gone(number) => number,
    };
    files.iter().map(number).map(FileId).collect()
}

impl Activity {
    /// What a whole program did. Only what lies below `root` counts, if there is one: all else is the program's
    /// own time. `known` tells of files that are still there; others are taken to be as large as what was
    /// read of them.
    pub fn of_recording(
        recording: &Recording,
        root: Option<&Path>,
        known: impl Fn(&Path) -> Option<Known>,
    ) -> Self {
        // Numbers are known when all files are: till then a file is its place among them.
        let mut found: HashMap<PathBuf, FileId> = HashMap::new();
        let mut identities: Vec<(Identity, u64)> = Vec::new();
        let mut identify = |path: &Path| -> FileId {
            if let Some(&file) = found.get(path) {
                return file;
            }
            let file = FileId(identities.len() as u64);
            identities.push(match known(path) {
                Some(known) => (Identity::Known(known.device, known.inode), known.size_bytes),
                None => (Identity::Gone(hash_path(path)), 0),
            });
            found.insert(path.to_owned(), file);
            file
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
                    let below = path(index).ancestors().take_while(|&at| Some(at) != root);
                    folders.extend(below.take(if root.is_some() { usize::MAX } else { 1 }));
                    if folders.is_empty() {
                        push(Deed::Nothing); // The root: its time was a device's.
                    }
                    let is_opened = matches!(call.what, What::Open(_));
                    for at in folders.drain(..).rev() {
                        let file = identify(at);
                        push(match is_opened && at == path(index) {
                            true => Deed::Open(file),
                            false => Deed::Look(file),
                        });
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
                        false => push(Deed::Nothing),
                    }
                }
                What::Missing(index) if counts(path(index)) => {
                    // Those on the way were looked up all the same.
                    let below = path(index).ancestors().take_while(|&at| Some(at) != root);
                    folders.extend(below.skip(1).take(if root.is_some() { usize::MAX } else { 0 }));
                    for at in folders.drain(..).rev() {
                        push(Deed::Look(identify(at)));
                    }
                    push(Deed::Nothing);
                }
                What::End(index) if counts(path(index)) => push(Deed::Nothing),
                What::Fork { child, waits } => push(Deed::Fork { child, waits }),
                What::Wait(whom) => push(Deed::Wait(whom)),
                _ => push(Deed::Other),
            }
        }
        let numbers = numbers(&identities);
        let number = |file: FileId| numbers[file.0 as usize];
        for act in &mut acts {
            if let Some(file) = act.deed.file_mut() {
                *file = number(*file);
            }
        }
        let mut files: HashMap<FileId, u64> = HashMap::new();
        for (&file, &(_, size_bytes)) in numbers.iter().zip(&identities) {
            files.entry(file).or_insert(size_bytes);
        }
        files.extend(listed.into_iter().map(|folder| (number(folder), FOLDER_BYTES)));
        let mut activity = Activity { acts, files, has_durations: recording.has_durations };
        activity.grow_files();
        activity
    }

    /// A recording of reads alone, in blocks of `block_bytes`.
    ///
    /// # Errors
    /// As for [`Trace`]; [`Fault::Beyond`]: no file has so many blocks of this size; [`TraceError::TooLong`]: more reads than
    /// a run has blocks.
    pub fn of_trace(mut trace: Trace, block_bytes: u64) -> Result<Self, TraceError> {
        let mut activity = Activity::default();
        while let Some(read) = trace.next() {
            let read = read?;
            // Each is of a block at least.
            if activity.acts.len() as u64 == BLOCKS_MAX {
                return Err(trace.too_long(BLOCKS_MAX));
            }
            let bytes = read.bytes(block_bytes).ok_or_else(|| trace.malformed(Fault::Beyond));
            let (file, (offset_bytes, length_bytes)) = (read.file, bytes?);
            let deed = Deed::Read { file, offset_bytes, length_bytes };
            let (reader, began, took) = (read.reader, read.time, Nanos::ZERO);
            activity.acts.push(Act { reader, began, took, deed });
        }
        activity.grow_files();
        Ok(activity)
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
