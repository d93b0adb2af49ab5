//! The entries that a process will come to from a place on, in the order in which it will.
//!
//! A. *Inline*: what is below a folder comes where the folder does (`du`, `find`, `tar`).
//! B. *Deferred*: all entries of a folder come first, then what is below its folders (`ls -R`, `os.walk`).
//!
//! The way goes down into folders whose listings are known, and up as far as the folders above are listed too. Only folders of
//! the process are passed, no I/O is done, and [`STEPS_MAX`] bounds the time.

use super::Action;
use super::folders::{Contents, Folder, FolderId, Folders, Listed};
use super::listing::{EntryIndex, Order};

/// Entries that are looked at in one call, about 50 µs.
const STEPS_MAX: u32 = 8192;

/// Folders on the way down. Deeper trees are not walked ahead.
const DEPTH_MAX: usize = 64;

/// How a process goes through a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) action: Action,
    pub(super) order: Order,
    /// B, with the order in which it goes into folders.
    pub(super) deferred: Option<Order>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Entries,
    /// B: what is below its folders.
    Below,
}

#[derive(Clone, Copy, Debug)]
struct Level<'a> {
    folder: FolderId,
    of: &'a Folder,
    listed: &'a Listed,
    phase: Phase,
    next: u32,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coming<'a> {
    Entry((FolderId, EntryIndex), &'a Folder, &'a Listed),
    /// Entries of a folder whose listing has not come yet.
    Unlisted,
}

/// See the [module](self).
pub(super) struct Ahead<'a> {
    folders: &'a Folders,
    manner: Manner,
    levels: Vec<Level<'a>>,
    steps: u32,
}

impl<'a> Ahead<'a> {
    /// From behind `entry` on.
    pub(super) fn new(
        folders: &'a Folders,
        manner: Manner,
        (folder, entry): (FolderId, EntryIndex),
    ) -> Self {
        let mut ahead = Ahead { folders, manner, levels: Vec::new(), steps: 0 };
        let mut at = Some((folder, entry));
        while let Some((folder, entry)) = at.filter(|_| ahead.levels.len() < DEPTH_MAX) {
            let Some(of) = folders.get(folder) else { break };
            let Some(listed) = of.listed() else { break };
            let is_above = !ahead.levels.is_empty();
            let (phase, order) = match manner.deferred {
                Some(order) if is_above => (Phase::Below, order),
                _ => (Phase::Entries, manner.order),
            };
            let next = listed.listing.place(order, entry) + 1;
            ahead.levels.push(Level { folder, of, listed, phase, next });
            at = folders.parent(folder);
        }
        ahead.levels.reverse();
        if manner.deferred.is_none() {
            ahead.go_down(folder, entry);
        }
        ahead
    }

    /// Goes into the folder behind an entry. Returns whether its listing is on its way.
    fn go_down(&mut self, folder: FolderId, entry: EntryIndex) -> bool {
        let Some(folder) = self.folders.child(folder, entry) else { return false };
        let Some(of) = self.folders.get(folder) else { return false };
        let Some(listed) = of.listed() else { return matches!(of.contents, Contents::Asked) };
        if self.levels.len() < DEPTH_MAX {
            let behind = |&entry| listed.listing.place(self.manner.order, entry) + 1;
            let next = listed.recent(self.manner.action).first().map_or(0, behind);
            self.levels.push(Level { folder, of, listed, phase: Phase::Entries, next });
        }
        false
    }

    /// Entries that were looked at.
    pub(super) fn steps(&self) -> u32 {
        self.steps
    }

    /// The place where the process goes into folders next.
    fn below(listed: &Listed, order: Order) -> u32 {
        let last = listed.recent(Action::List).first();
        last.map_or(0, |&entry| listed.listing.place(order, entry))
    }
}

impl<'a> Iterator for Ahead<'a> {
    type Item = Coming<'a>;

    fn next(&mut self) -> Option<Coming<'a>> {
        loop {
            let level = *self.levels.last()?;
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return None;
            }
            let listed = level.listed;
            let last = self.levels.len() - 1;
            if level.next >= listed.listing.len() {
                match (level.phase, self.manner.deferred) {
                    (Phase::Entries, Some(order)) => {
                        let next = Self::below(listed, order);
                        self.levels[last] = Level { phase: Phase::Below, next, ..level };
                    }
                    _ => drop(self.levels.pop()),
                }
                continue;
            }
            self.levels[last].next += 1;
            let order = match level.phase {
                Phase::Entries => self.manner.order,
                Phase::Below => self.manner.deferred.unwrap_or(self.manner.order),
            };
            let entry = listed.listing.at(order, level.next);
            let coming = Coming::Entry((level.folder, entry), level.of, listed);
            match (level.phase, self.manner.deferred) {
                (Phase::Entries, Some(_)) => return Some(coming),
                (Phase::Entries, None) => {
                    let waits = listed.is_folder(entry) && self.go_down(level.folder, entry);
                    // The entry itself comes first. It is a folder, so nothing is lost if data stops here.
                    return Some(if waits && self.manner.action == Action::Open {
                        Coming::Unlisted
                    } else {
                        coming
                    });
                }
                (Phase::Below, _) if listed.is_folder(entry) => {
                    if self.go_down(level.folder, entry) {
                        return Some(Coming::Unlisted);
                    }
                }
                (Phase::Below, _) => {}
            }
        }
    }
}
