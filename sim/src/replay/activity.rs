//! The recorded actions, independent of the format: which reader opened and read which file, and when.

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

/// Bytes that are read to list a folder.
const FOLDER_BYTES: u64 = 4096;

/// One action of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// The reader that did it.
    pub reader: ReaderId,
    /// Its beginning, from the beginning of the recording.
    pub began: Nanos,
    /// Its duration; 0 if not recorded.
    pub took: Nanos,
    /// Its kind.
    pub deed: Deed,
}

/// The kinds of [`Act`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A file was opened, which needs its inode.
    Open(FileId),
    /// A name was looked up without being read, which needs its inode.
    Look(FileId),
    /// At least one byte was read, and none beyond byte 2^63.
    Read {
        /// The file.
        file: FileId,
        /// The first byte.
        offset_bytes: u64,
        /// The number of bytes.
        length_bytes: u64,
    },
    /// The program disclosed that it will read these bytes.
    Disclose {
        /// The file.
        file: FileId,
        /// The first byte.
        offset_bytes: u64,
        /// The number of bytes; 0 means to the end of the file.
        length_bytes: u64,
    },
    /// Another reader was created, which begins then.
    Fork {
        /// The new reader.
        child: ReaderId,
        /// Whether the creator waits until the child executes a program.
        waits: bool,
    },
    /// The program waited for another process to act.
    Wait(Whom),
    /// A lookup of a missing name, or a read at the end of a file. Its time was that of a device, if any.
    Nothing,
    /// Anything else; its time is the program's own.
    Other,
}

impl Deed {
    /// The file that the action is about.
    fn file_mut(&mut self) -> Option<&mut FileId> {
        match self {
            Deed::Open(file)
            | Deed::Look(file)
            | Deed::Read { file, .. }
            | Deed::Disclose { file, .. } => Some(file),
            Deed::Fork { .. } | Deed::Wait(_) | Deed::Nothing | Deed::Other => None,
        }
    }

    /// For a read, the file and its blocks that are read.
    pub(super) fn range_read(self, block_bytes: u64) -> Option<(FileId, Range<u64>)> {
        let Deed::Read { file, offset_bytes, length_bytes } = self else { return None };
        let touched = touched(offset_bytes, length_bytes, block_bytes);
        let (first, blocks) = touched.expect("a read ends at byte 2^63 at most");
        Some((file, first..first + blocks))
    }

    /// The blocks that are read, in ascending order.
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
    /// Actions, in the order of their beginnings.
    pub acts: Vec<Act>,
    /// Sizes of all files, in bytes.
    pub files: HashMap<FileId, u64>,
    /// Whether durations are known. Otherwise the times between actions include waiting.
    pub has_durations: bool,
}

/// A file that still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The number of the file system's device.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
    /// The file's size.
    pub size_bytes: u64,
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    Known(u64, u64),
    /// A hash of the name of a file that no longer exists.
    Gone(u64),
}

/// The numbers of files. On the device that has most of them these are the inode numbers, which layouts use to
/// place files. Elsewhere they are hashes, so that equal inodes of two devices are two files.
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
    /// The actions of whole programs. With a `root`, only files below it count, and everything else is the
    /// program's own time. `known` looks up files that still exist; all others get the size that their reads
    /// show.
    pub fn of_recording(
        recording: &Recording,
        root: Option<&Path>,
        known: impl Fn(&Path) -> Option<Known>,
    ) -> Self {
        // Until the numbers of all files can be computed, a file is identified by its place in the list.
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
                    // The folders on the way are looked up before the file. The root counts as known.
                    let below = path(index).ancestors().take_while(|&at| Some(at) != root);
                    folders.extend(below.take(if root.is_some() { usize::MAX } else { 1 }));
                    if folders.is_empty() {
                        push(Deed::Nothing); // The root: the time was that of a device.
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
                    // The folders on the way were looked up all the same.
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

    /// A recording of reads only, in blocks of `block_bytes`.
    ///
    /// # Errors
    /// As for [`Trace`]. [`Fault::Beyond`]: no file has so many blocks of this size. [`TraceError::TooLong`]:
    /// more reads than a run may have blocks.
    pub fn of_trace(mut trace: Trace, block_bytes: u64) -> Result<Self, TraceError> {
        let mut activity = Activity::default();
        while let Some(read) = trace.next() {
            let read = read?;
            // Each read has at least one block.
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

    /// The size of `file`; 0 if unknown.
    pub fn size_bytes(&self, file: FileId) -> u64 {
        self.files.get(&file).copied().unwrap_or(0)
    }

    /// Whether there is any read.
    pub fn has_reads(&self) -> bool {
        self.acts.iter().any(|act| matches!(act.deed, Deed::Read { .. }))
    }

    /// Whether there is any disclosure.
    pub fn has_disclosures(&self) -> bool {
        self.acts.iter().any(|act| matches!(act.deed, Deed::Disclose { .. }))
    }

    /// Grows files to the size that their reads show.
    fn grow_files(&mut self) {
        for act in &self.acts {
            if let Deed::Read { file, offset_bytes, length_bytes } = act.deed {
                let size = self.files.entry(file).or_insert(0);
                *size = (*size).max(offset_bytes.saturating_add(length_bytes));
            }
        }
    }
}

/// A number for a file that no longer exists.
fn hash_path(path: &Path) -> u64 {
    let text: &OsStr = path.as_os_str();
    let words: Vec<u64> = text.as_bytes().iter().map(|&byte| u64::from(byte)).collect();
    hash(&words) >> 1
}
