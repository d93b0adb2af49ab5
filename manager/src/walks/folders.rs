//! The folders that a process has to do with: their listings, and what was done to each entry.
//!
//! Memory is bounded ([`FOLDERS_MAX`], [`ENTRIES_MAX`]): beyond a bound the folders that were used least recently are
//! forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use super::Action;
use super::classes::{ClassId, Classes};
use super::listing::{EntryIndex, Kind, Listing};

/// Folders that are kept of a process: those that are listed ahead, several times.
const FOLDERS_MAX: usize = 512;

/// Entries of all these folders. They take some 45 bytes each.
const ENTRIES_MAX: usize = 1 << 17;

/// Touches of a folder that are kept until its listing comes. A listing takes as long as a few lookups.
const EARLY_MAX: usize = 64;

/// The last entries of a folder that a process has come to, for each action: threads may share a folder.
const RECENT_MAX: usize = 4;

/// So many touches a folder that was listed ahead is kept longer than one that the process has come to.
const AHEAD_TOUCHES: u64 = 1 << 14;

/// A folder's number, never used again.
pub(super) type FolderId = u64;

/// Marks of an entry: a bit of each action for "asked for ahead", and for "done by the program".
const ASKED: u8 = 0;
const DONE: u8 = 3;
/// It was looked up or listed ahead, and the program has come to it.
const USED: u8 = 1 << 6;

/// What is known of the entries of a folder.
#[derive(Debug)]
pub(super) enum Contents {
    Unknown,
    /// Its listing is under way.
    Asked,
    Listed(Listed),
    /// It cannot be listed, or is not to be.
    Closed,
}

#[derive(Debug)]
pub(super) struct Listed {
    pub(super) listing: Arc<Listing>,
    classes: Box<[ClassId]>,
    marks: Box<[u8]>,
    /// Folders among the entries that are known.
    children: HashMap<EntryIndex, FolderId>,
    recent: [Vec<EntryIndex>; Action::COUNT],
    steps: [u32; Action::COUNT],
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: Arc<[u8]>,
    pub(super) contents: Contents,
    /// The folder that lists it, if that is known.
    parent: Option<FolderId>,
    /// Whether the program has opened it.
    pub(super) is_opened: bool,
    /// Whether the program has touched something in it.
    pub(super) is_entered: bool,
    /// Whether the program knows its entries: it has opened it, or goes through the folder above and opens those there.
    pub(super) is_own: bool,
    /// Touches before its listing came, and whether the call waited.
    pub(super) early: Vec<(Box<[u8]>, Action, bool)>,
    used_at: u64,
}

impl Listed {
    pub(super) fn new(listing: Arc<Listing>, classes: &mut Classes) -> Self {
        let class = |entry| classes.of(listing.kind(entry), listing.name(entry));
        let classes: Box<[ClassId]> = (0..listing.len()).map(class).collect();
        let marks = vec![0; listing.len() as usize].into();
        let (children, recent, steps) = (HashMap::new(), Default::default(), Default::default());
        Listed { listing, classes, marks, children, recent, steps }
    }

    pub(super) fn class(&self, entry: EntryIndex) -> ClassId {
        self.classes[entry as usize]
    }

    pub(super) fn is_folder(&self, entry: EntryIndex) -> bool {
        self.listing.kind(entry) == Kind::Folder
    }

    /// Whether `action` was asked for ahead.
    pub(super) fn is_asked(&self, entry: EntryIndex, action: Action) -> bool {
        self.marks[entry as usize] & 1 << (ASKED + action as u8) != 0
    }

    pub(super) fn ask(&mut self, entry: EntryIndex, action: Action) {
        self.marks[entry as usize] |= 1 << (ASKED + action as u8);
    }

    /// Whether the program has done `action`.
    pub(super) fn is_done(&self, entry: EntryIndex, action: Action) -> bool {
        self.marks[entry as usize] & 1 << (DONE + action as u8) != 0
    }

    /// Notes that the program does `action`. Returns whether it comes to a name that was looked up ahead, for the first time.
    pub(super) fn do_to(&mut self, entry: EntryIndex, action: Action) -> bool {
        let ahead = self.is_asked(entry, Action::Look) || self.is_asked(entry, Action::List);
        let mark = &mut self.marks[entry as usize];
        *mark |= 1 << (DONE + action as u8);
        let is_use = ahead && *mark & USED == 0;
        *mark |= if ahead { USED } else { 0 };
        is_use
    }

    /// The entries to which the program has done `action` last, the last one first.
    pub(super) fn recent(&self, action: Action) -> &[EntryIndex] {
        &self.recent[action as usize]
    }

    /// How often the program has come from one entry to another that follows it in an order.
    pub(super) fn steps(&self, action: Action) -> u32 {
        self.steps[action as usize]
    }

    /// Notes that the program has come from the entry number `from` of the recent ones, if from any, to `entry`.
    pub(super) fn come(&mut self, action: Action, from: Option<usize>, entry: EntryIndex) {
        let recent = &mut self.recent[action as usize];
        if let Some(from) = from {
            recent.remove(from);
            self.steps[action as usize] += 1;
        }
        recent.insert(0, entry);
        recent.truncate(RECENT_MAX);
    }
}

impl Folder {
    pub(super) fn listed(&self) -> Option<&Listed> {
        match &self.contents {
            Contents::Listed(listed) => Some(listed),
            _ => None,
        }
    }

    pub(super) fn listed_mut(&mut self) -> Option<&mut Listed> {
        match &mut self.contents {
            Contents::Listed(listed) => Some(listed),
            _ => None,
        }
    }

    /// Keeps a touch until the listing comes.
    pub(super) fn keep(&mut self, name: &[u8], action: Action, waited: bool) {
        if self.early.len() < EARLY_MAX {
            self.early.push((name.into(), action, waited));
        }
    }
}

/// All folders; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Folders {
    folders: HashMap<FolderId, Folder>,
    numbers: HashMap<Arc<[u8]>, FolderId>,
    next: FolderId,
    clock: u64,
    entries: usize,
    listing_bytes: usize,
}

/// The path of an entry.
pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The folder of a path, and the name in it.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    let name = &path[slash + 1..];
    (!name.is_empty()).then_some((&path[..slash.max(1)], name))
}

impl Folders {
    pub(super) fn get(&self, folder: FolderId) -> Option<&Folder> {
        self.folders.get(&folder)
    }

    pub(super) fn get_mut(&mut self, folder: FolderId) -> Option<&mut Folder> {
        self.folders.get_mut(&folder)
    }

    pub(super) fn listed(&self, folder: FolderId) -> Option<&Listed> {
        self.get(folder)?.listed()
    }

    pub(super) fn listed_mut(&mut self, folder: FolderId) -> Option<&mut Listed> {
        self.get_mut(folder)?.listed_mut()
    }

    pub(super) fn known(&self, path: &[u8]) -> Option<FolderId> {
        self.numbers.get(path).copied()
    }

    /// The folder of this path, made known if it is not.
    pub(super) fn of(&mut self, path: &[u8]) -> FolderId {
        if let Some(known) = self.known(path) {
            return known;
        }
        if self.folders.len() >= FOLDERS_MAX {
            self.forget_oldest();
        }
        let (number, path) = (self.next, Arc::<[u8]>::from(path));
        self.next += 1;
        self.clock += 1;
        let folder = Folder {
            path: Arc::clone(&path),
            contents: Contents::Unknown,
            parent: None,
            is_opened: false,
            is_entered: false,
            is_own: false,
            early: Vec::new(),
            used_at: self.clock,
        };
        self.folders.insert(number, folder);
        self.numbers.insert(path, number);
        number
    }

    /// The folder behind an entry, if it is known.
    pub(super) fn child(&self, folder: FolderId, entry: EntryIndex) -> Option<FolderId> {
        let child = *self.listed(folder)?.children.get(&entry)?;
        self.folders.contains_key(&child).then_some(child)
    }

    /// As [`child`](Self::child), made known if it is not.
    pub(super) fn child_made(&mut self, folder: FolderId, entry: EntryIndex) -> Option<FolderId> {
        if let Some(child) = self.child(folder, entry) {
            return Some(child);
        }
        let of = self.get(folder)?;
        let path = join(&of.path, of.listed()?.listing.name(entry));
        let child = self.of(&path);
        self.listed_mut(folder)?.children.insert(entry, child);
        self.get_mut(child)?.parent = Some(folder);
        Some(child)
    }

    /// The folder that lists `folder`, and the entry there.
    pub(super) fn parent(&self, folder: FolderId) -> Option<(FolderId, EntryIndex)> {
        let of = self.get(folder)?;
        let (_, name) = split(&of.path)?;
        let entry = self.listed(of.parent?)?.listing.find(name)?;
        Some((of.parent?, entry))
    }

    /// Notes that a folder is in use, and with it all that it lies in.
    pub(super) fn note_use(&mut self, folder: FolderId) {
        self.clock += 1;
        let (clock, mut at) = (self.clock, Some(folder));
        while let Some(of) =
            at.and_then(|at| self.folders.get_mut(&at)).filter(|of| of.used_at != clock)
        {
            of.used_at = clock;
            at = of.parent;
        }
    }

    /// Takes in the entries of a folder; `None` if it cannot be listed.
    pub(super) fn list(&mut self, folder: FolderId, listed: Option<Listed>) {
        self.unlist(folder);
        let Some(of) = self.folders.get_mut(&folder) else { return };
        match listed {
            None => of.contents = Contents::Closed,
            Some(listed) => {
                self.entries += listed.marks.len();
                self.listing_bytes += listed.listing.memory_bytes();
                of.contents = Contents::Listed(listed);
            }
        }
        while self.entries > ENTRIES_MAX && self.folders.len() > 1 {
            self.forget_oldest();
        }
    }

    /// Forgets the entries of a folder.
    pub(super) fn unlist(&mut self, folder: FolderId) {
        let Some(of) = self.folders.get_mut(&folder) else { return };
        if let Contents::Listed(listed) = std::mem::replace(&mut of.contents, Contents::Unknown) {
            self.entries -= listed.marks.len();
            self.listing_bytes -= listed.listing.memory_bytes();
        }
    }

    /// Forgets the fourth of the folders whose use lies back the furthest.
    fn forget_oldest(&mut self) {
        // A folder that was listed ahead is not needed before its turn.
        let use_of = |folder: &Folder| {
            let is_past = folder.is_entered || folder.is_opened;
            folder.used_at + if is_past { 0 } else { AHEAD_TOUCHES }
        };
        let mut uses: Vec<(u64, FolderId)> =
            self.folders.iter().map(|(&number, folder)| (use_of(folder), number)).collect();
        uses.sort_unstable();
        uses.truncate(uses.len().div_ceil(4));
        for (_, folder) in uses {
            self.unlist(folder);
            if let Some(of) = self.folders.remove(&folder) {
                self.numbers.remove(&of.path);
            }
        }
    }

    /// Bytes that the folders take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        const FOLDER_BYTES: usize = size_of::<Folder>() + 256;
        self.listing_bytes + self.entries * 3 + self.folders.len() * FOLDER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walks::listing::Collector;

    #[test]
    fn paths_are_joined_and_split() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
        assert_eq!(split(b"/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"/"), None);
    }

    #[test]
    fn folders_and_entries_are_bounded_and_ancestors_of_the_used_one_stay() {
        let (mut folders, mut classes) = (Folders::default(), Classes::default());
        let mut entries = Collector::default();
        (0..5000).for_each(|number| entries.add(format!("d{number}").as_bytes(), Kind::Folder, 1));
        let listing = Arc::new(entries.finish(1));
        let root = folders.of(b"/r");
        folders.list(root, Some(Listed::new(Arc::clone(&listing), &mut classes)));
        for entry in 0..2000 {
            let child = folders.child_made(root, entry).expect("the root is kept");
            folders.list(child, Some(Listed::new(Arc::clone(&listing), &mut classes)));
            folders.note_use(child);
            assert_eq!(folders.parent(child), Some((root, entry)));
        }
        assert!(folders.folders.len() <= FOLDERS_MAX && folders.entries <= ENTRIES_MAX);
        assert_eq!(folders.child(root, 0), None, "forgotten");
        assert_eq!(folders.numbers.len(), folders.folders.len());
    }
}
