//! The state of a process that its calls refer to: names, descriptors, and the current folder.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use super::super::recording::{PathIndex, is_on_no_disk};
use super::line::{self, Descriptor};

/// All names of the recording, without repetitions.
#[derive(Default)]
pub(super) struct Paths {
    /// Open files that were read at a guessed offset.
    pub(super) guessed: u64,
    paths: Vec<PathBuf>,
    indices: HashMap<Vec<u8>, PathIndex>,
    /// Annotations and absolute names as strace spells them, so that most need no decoding.
    spelled: HashMap<Vec<u8>, Option<PathIndex>>,
}

impl Paths {
    /// The index of `name`, which is not escaped and is taken from the root folder.
    pub(super) fn index(&mut self, name: &[u8]) -> PathIndex {
        let name = normalised(name);
        if let Some(index) = self.indices.get(&name) {
            return *index;
        }
        let index = u32::try_from(self.paths.len()).expect("fewer than 2^32 names");
        self.paths.push(PathBuf::from(OsStr::from_bytes(&name)));
        self.indices.insert(name, PathIndex(index));
        PathIndex(index)
    }

    /// The file or folder that an annotation of `-y` names; `None` for sockets, pipes and the like.
    pub(super) fn annotated(&mut self, spelled: &[u8]) -> Option<PathIndex> {
        if let Some(index) = self.spelled.get(spelled) {
            return *index;
        }
        // `-yy` adds the device to the name: `/dev/null<char 1:3>`.
        let device = [&b"<char "[..], b"<block "].iter().find_map(|of| line::find(spelled, of));
        let name = line::decoded(&spelled[..device.unwrap_or(spelled.len())]);
        let name = name.strip_suffix(b" (deleted)").unwrap_or(&name);
        let index = name.starts_with(b"/").then(|| self.index(name));
        self.spelled.insert(spelled.to_owned(), index);
        index
    }

    /// The path of a name as strace spells it, from `folder` unless it is absolute; `None` if it is relative
    /// and `folder` is unknown.
    fn resolved(&mut self, folder: Option<PathIndex>, spelled: &[u8]) -> Option<PathIndex> {
        let is_absolute = spelled.starts_with(b"/");
        if is_absolute && let Some(Some(index)) = self.spelled.get(spelled) {
            return Some(*index);
        }
        let name = line::decoded(spelled);
        if name.starts_with(b"/") {
            let index = self.index(&name);
            if is_absolute {
                self.spelled.insert(spelled.to_owned(), Some(index));
            }
            return Some(index);
        }
        let folder = self.paths[folder?.0 as usize].as_os_str().as_bytes();
        let whole = [folder, &name].join(&b'/');
        Some(self.index(&whole))
    }

    pub(super) fn is_on_no_disk(&self, path: PathIndex) -> bool {
        is_on_no_disk(&self.paths[path.0 as usize])
    }

    pub(super) fn into_vec(self) -> Vec<PathBuf> {
        self.paths
    }
}

/// `name` from the root folder without `.`, `..` and doubled slashes; links are not resolved.
fn normalised(name: &[u8]) -> Vec<u8> {
    let mut parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut whole = b"/".to_vec();
    whole.extend(parts.join(&b'/'));
    whole
}

/// An open file, which duplicated descriptors share.
pub(super) struct Description {
    file: PathIndex,
    offset_bytes: Cell<u64>,
    /// Whether its offset is assumed to be 0 for lack of information.
    is_guessed: Cell<bool>,
}

impl Description {
    /// Advances the offset by `length_bytes`, and returns the offset before.
    pub(super) fn advance(&self, length_bytes: u64) -> u64 {
        let offset_bytes = self.offset_bytes.get();
        self.offset_bytes.replace(offset_bytes.saturating_add(length_bytes))
    }

    pub(super) fn seek(&self, offset_bytes: u64) {
        self.offset_bytes.set(offset_bytes);
        self.is_guessed.set(false);
    }

    /// Whether its offset is a guess that has not been reported yet.
    pub(super) fn take_guess(&self) -> bool {
        self.is_guessed.take()
    }
}

#[derive(Clone)]
struct Slot {
    description: Rc<Description>,
    closes_on_exec: bool,
}

type Slots = HashMap<u32, Slot>;

/// Standard error. Descriptors up to this one are open from the start, mostly at offset 0.
const STANDARD_MAX: u32 = 2;

/// A process or thread.
pub(super) struct Process {
    /// Shared by threads of a process.
    slots: Rc<RefCell<Slots>>,
    /// The current folder; shared by threads of a process.
    folder: Rc<Cell<PathIndex>>,
}

impl Process {
    pub(super) fn new(folder: PathIndex) -> Self {
        Process { slots: Rc::default(), folder: Rc::new(Cell::new(folder)) }
    }

    /// The process that a call of the clone family creates; `text` has the call's flags.
    pub(super) fn child(&self, text: &[u8]) -> Process {
        let shares = |flag: &[u8]| line::find(text, flag).is_some();
        let mut child = Process { slots: Rc::clone(&self.slots), folder: Rc::clone(&self.folder) };
        if !shares(b"CLONE_FILES") {
            child.unshare_slots();
        }
        if !shares(b"CLONE_FS") {
            child.folder = Rc::new(Cell::new(self.folder.get()));
        }
        child
    }

    pub(super) fn unshare_slots(&mut self) {
        let slots = self.slots.borrow().clone();
        self.slots = Rc::new(RefCell::new(slots));
    }

    /// Ends the old program: descriptors are no longer shared, and some are closed.
    pub(super) fn execute(&mut self) {
        self.unshare_slots();
        self.slots.borrow_mut().retain(|_, slot| !slot.closes_on_exec);
    }

    pub(super) fn enter(&self, folder: PathIndex) {
        self.folder.set(folder);
    }

    /// The path of `name` from the folder `from`, or from the current folder if that is `None`.
    pub(super) fn resolve(
        &self,
        paths: &mut Paths,
        from: Option<&[u8]>,
        name: &[u8],
    ) -> Option<PathIndex> {
        let name = line::name(name)?;
        let folder = match from {
            None => Some(self.folder.get()),
            Some(from) => line::descriptor(from).and_then(|from| self.file(paths, &from)),
        };
        paths.resolved(folder, name)
    }

    /// The file or folder of a descriptor, as annotated or as opened.
    pub(super) fn file(&self, paths: &mut Paths, of: &Descriptor) -> Option<PathIndex> {
        match (of.annotation, of.number) {
            (Some(annotation), None) => {
                // The recorded folder also applies to calls that name none.
                let folder = paths.annotated(annotation)?;
                self.enter(folder);
                Some(folder)
            }
            (Some(annotation), Some(_)) => paths.annotated(annotation),
            (None, Some(number)) => Some(self.slots.borrow().get(&number)?.description.file),
            (None, None) => Some(self.folder.get()),
        }
    }

    /// The file of a descriptor, and its open file. A descriptor that is known only by its annotation begins at
    /// offset 0: its open, or the close of another descriptor, was not recorded.
    pub(super) fn opened(
        &self,
        paths: &mut Paths,
        argument: &[u8],
    ) -> Option<(PathIndex, Rc<Description>)> {
        let of = line::descriptor(argument)?;
        let number = of.number?;
        let file = self.file(paths, &of)?;
        let known = self.slots.borrow().get(&number).map(|slot| Rc::clone(&slot.description));
        let description = match known {
            Some(known) if known.file == file => known,
            known => {
                let description = self.open(number, file, false);
                description.is_guessed.set(known.is_some() || number > STANDARD_MAX);
                description
            }
        };
        Some((file, description))
    }

    pub(super) fn open(&self, fd: u32, file: PathIndex, closes_on_exec: bool) -> Rc<Description> {
        let (offset_bytes, is_guessed) = (Cell::new(0), Cell::new(false));
        let description = Rc::new(Description { file, offset_bytes, is_guessed });
        self.share(fd, Rc::clone(&description), closes_on_exec);
        description
    }

    /// Makes `fd` a further descriptor of an open file.
    pub(super) fn share(&self, fd: u32, description: Rc<Description>, closes_on_exec: bool) {
        self.slots.borrow_mut().insert(fd, Slot { description, closes_on_exec });
    }

    pub(super) fn close(&self, fd: u32) {
        self.slots.borrow_mut().remove(&fd);
    }

    pub(super) fn close_range(&self, first: u64, last: u64) {
        self.slots.borrow_mut().retain(|fd, _| !(first..=last).contains(&u64::from(*fd)));
    }

    pub(super) fn set_closes_on_exec(&self, first: u64, last: u64, closes_on_exec: bool) {
        for (fd, slot) in self.slots.borrow_mut().iter_mut() {
            if (first..=last).contains(&u64::from(*fd)) {
                slot.closes_on_exec = closes_on_exec;
            }
        }
    }
}
