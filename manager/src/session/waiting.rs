//! The paths that wait: names to be looked up, and folders to be listed.
//!
//! Counts their bytes, which [`room`](super::room) bounds, and the guesses among the names whose hints the policy has dropped.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use foretell_policy::{FileId, NameId, StreamId};

use crate::driver::file::OpenFile;
use crate::lineage::ProcessId;
use crate::source::{Certainty, Visits};
use crate::sources::Origin;

/// Bytes of a waiting path beside its text.
const PATH_BYTES: usize = 64;

/// A path that waits to be looked up. It is a guess unless its source claims that it names a file.
pub(super) struct Name {
    pub(super) path: PathBuf,
    pub(super) certainty: Certainty,
    /// The stream of the process among whose words it is.
    pub(super) owner: Option<StreamId>,
    /// What the file must be, if that is known.
    pub(super) expected: Option<Expected>,
    /// Where its hint comes from.
    pub(super) origin: Origin,
}

impl Name {
    fn is_guess(&self) -> bool {
        self.certainty != Certainty::File
    }
}

/// What a name must mean when it is looked up. Else its hint is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) file: FileId,
    pub(super) size_bytes_min: u64,
    /// The process whose advice the hint is.
    pub(super) advised_by: Option<ProcessId>,
}

impl Expected {
    pub(super) fn of(file: FileId, size_bytes_min: u64) -> Self {
        Expected { file, size_bytes_min, advised_by: None }
    }

    pub(super) fn is(&self, file: &OpenFile) -> bool {
        self.file == file.id() && self.size_bytes_min <= file.size_bytes()
    }
}

/// A folder that waits to be listed.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) visits: Visits,
    /// The stream of the process that named it.
    pub(super) owner: Option<StreamId>,
    /// Where its hint comes from.
    pub(super) origin: Origin,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Waiting {
    names: HashMap<NameId, Name>,
    next_name: u64,
    folders: VecDeque<Folder>,
    bytes: usize,
    dropped_guesses: u64,
}

impl Waiting {
    /// Bytes of all names and folders.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add_name(&mut self, name: Name) -> NameId {
        let id = NameId(self.next_name);
        self.next_name += 1;
        self.bytes += bytes_of(&name.path);
        self.names.insert(id, name);
        id
    }

    pub(super) fn path(&self, name: NameId) -> Option<&PathBuf> {
        self.names.get(&name).map(|name| &name.path)
    }

    /// Takes out a name that has been looked up.
    pub(super) fn take_name(&mut self, name: NameId) -> Option<Name> {
        let known = self.names.remove(&name);
        self.bytes -= known.as_ref().map_or(0, |known| bytes_of(&known.path));
        known
    }

    /// Takes out a name whose hint was cancelled or passed over.
    pub(super) fn drop_name(&mut self, name: NameId) {
        let is_guess = self.take_name(name).is_some_and(|name| name.is_guess());
        self.dropped_guesses += u64::from(is_guess);
    }

    /// Guesses whose lookups have not ended, or not begun.
    pub(super) fn unanswered_guesses(&self) -> u64 {
        self.dropped_guesses + self.names.values().filter(|name| name.is_guess()).count() as u64
    }

    pub(super) fn add_folder(&mut self, folder: Folder) {
        self.bytes += bytes_of(&folder.path);
        self.folders.push_back(folder);
    }

    /// Takes out the folder that waits longest.
    pub(super) fn next_folder(&mut self) -> Option<Folder> {
        let folder = self.folders.pop_front()?;
        self.bytes -= bytes_of(&folder.path);
        Some(folder)
    }

    /// Takes out the folders that a process has named.
    pub(super) fn drop_folders_of(&mut self, owner: StreamId) {
        self.keep_folders(|folder| folder.owner != Some(owner));
    }

    /// Forgets the folders of a source that has stopped.
    pub(super) fn drop_folders_by(&mut self, origin: Origin) {
        self.keep_folders(|folder| folder.origin != origin);
    }

    fn keep_folders(&mut self, keeps: impl Fn(&Folder) -> bool) {
        self.folders.retain(|folder| {
            let is_kept = keeps(folder);
            self.bytes -= if is_kept { 0 } else { bytes_of(&folder.path) };
            is_kept
        });
    }

    pub(super) fn has_folders(&self) -> bool {
        !self.folders.is_empty()
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.names.len()
    }
}

fn bytes_of(path: &PathBuf) -> usize {
    path.capacity() + PATH_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: StreamId = StreamId(7);

    #[test]
    fn bytes_are_those_of_the_paths_that_wait() {
        let mut waiting = Waiting::default();
        let path = || PathBuf::from("/a/path");
        let name = |certainty, owner| Name {
            path: path(),
            certainty,
            owner,
            expected: None,
            origin: Origin::Given,
        };
        let folder =
            |owner| Folder { path: path(), visits: Visits::Listed, owner, origin: Origin::Given };
        let given = waiting.add_name(name(Certainty::File, None));
        let word = waiting.add_name(name(Certainty::MaybeFile, Some(OWNER)));
        waiting.add_folder(folder(None));
        waiting.add_folder(folder(Some(OWNER)));
        assert_eq!((waiting.bytes(), waiting.unanswered_guesses()), (4 * bytes_of(&path()), 1));

        waiting.drop_name(word);
        waiting.drop_name(word); // It counts once.
        waiting.drop_folders_of(OWNER);
        assert_eq!((waiting.bytes(), waiting.unanswered_guesses()), (2 * bytes_of(&path()), 1));

        assert!(waiting.take_name(given).is_some() && waiting.path(given).is_none());
        assert!(waiting.next_folder().is_some() && !waiting.has_folders());
        assert_eq!(waiting.bytes(), 0);
    }

    /// Whose it is makes no difference, nor whether it is dropped or waits to the end.
    #[test]
    fn what_may_be_no_file_is_a_guess() {
        let all = [Certainty::File, Certainty::MaybeFile, Certainty::MaybeUnread];
        for (certainty, owner) in all.into_iter().flat_map(|of| [(of, None), (of, Some(OWNER))]) {
            let mut waiting = Waiting::default();
            let path = PathBuf::from("/a");
            let name = waiting.add_name(Name {
                path,
                certainty,
                owner,
                expected: None,
                origin: Origin::Given,
            });
            let is_guess = u64::from(certainty != Certainty::File);
            assert_eq!(waiting.unanswered_guesses(), is_guess, "{certainty:?} {owner:?}");
            waiting.drop_name(name);
            assert_eq!(waiting.unanswered_guesses(), is_guess, "{certainty:?} {owner:?}");
        }
    }
}
