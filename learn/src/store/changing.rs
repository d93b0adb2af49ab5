//! Changes of the store under one lock: several profiles are read and written, or forgotten, as one.
//!
//! A profile whose bytes would be the same is not written. Its [`Stamp`] tells whether another process has changed it since.
//!
//! What is forgotten must not be left in the [history](crate::across), which has no workloads. So the history keeps only what
//! some profile that is left has. A history that cannot be read or written then is removed: it costs speed alone.

use std::collections::HashSet;
use std::sync::Arc;

use super::folder::{Content, Folder, Lock};
use super::{DAMAGED, Forgotten, NEW, Own, SUFFIX, StoreError, file, own_files, set_aside, shrink};
use crate::across;
use crate::codec::{self, PROFILE_MAX_BYTES};
use crate::profile::Profile;

/// What a file of the store has, in short: its length and its sum. Two files with one stamp have the same bytes, but for one
/// chance in four thousand million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    bytes: usize,
    sum: u32,
}

impl Stamp {
    fn of(bytes: &[u8]) -> Self {
        Stamp { bytes: bytes.len(), sum: crc32fast::hash(bytes) }
    }
}

/// Changes of the store under one lock, which is held until this is dropped.
#[derive(Debug)]
pub struct Changing {
    folder: Folder,
    _lock: Lock,
}

impl Changing {
    pub(super) fn new(folder: Folder) -> Result<Self, StoreError> {
        let lock = folder.lock()?;
        Ok(Changing { folder, _lock: lock })
    }

    /// What was learned under `key`, and the stamp of its file. A damaged one is set aside.
    ///
    /// # Errors
    /// [`StoreError`], but not [`Damaged`](StoreError::Damaged).
    pub fn read(&self, key: &[u8]) -> Result<Option<(Profile, Stamp)>, StoreError> {
        let bytes = match self.folder.read(&file(key, SUFFIX), true)? {
            Content::Bytes(bytes) => bytes,
            Content::Missing => return Ok(None),
            Content::Other => Vec::new(),
        };
        match codec::decode(&bytes) {
            Ok((found, profile)) if found == key => Ok(Some((profile, Stamp::of(&bytes)))),
            Ok(_) => Ok(None),
            Err(_) => {
                set_aside(&self.folder, key);
                Ok(None)
            }
        }
    }

    /// Puts `profile` in the place of what was learned under `key`. Returns the stamp of the file then; `None` if the profile
    /// is too large and nothing was written.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn write(&self, key: &[u8], profile: &Profile) -> Result<Option<Stamp>, StoreError> {
        let bytes = codec::encode(key, profile);
        if bytes.len() > PROFILE_MAX_BYTES {
            return Ok(None);
        }
        let name = file(key, SUFFIX);
        let is_same =
            matches!(self.folder.read(&name, true), Ok(Content::Bytes(old)) if old == bytes);
        if !is_same {
            self.folder.replace(&name, &file(key, NEW), &bytes)?;
        }
        Ok(Some(Stamp::of(&bytes)))
    }

    /// Ends the changes: the store is made as small as it may be.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn finish(self) -> Result<(), StoreError> {
        shrink(&self.folder)
    }

    /// Forgets what was learned under these keys.
    pub(super) fn forget(self, keys: &[&[u8]]) -> Result<Forgotten, StoreError> {
        let across = across::workload().exact;
        let files: HashSet<String> = keys.iter().map(|key| file(key, SUFFIX)).collect();
        let is_known = |own: &Own| own.ending == SUFFIX && files.contains(&own.name);
        let is_any = own_files(&self.folder)?.iter().any(is_known);
        let mut forgotten = Forgotten::default();
        // The history first: if this is killed, the profiles are still there to be forgotten.
        if is_any && !keys.contains(&&across[..]) {
            forgotten.of_history = self.forget_of_history(&across, &files)?;
        }
        for key in keys {
            forgotten.profiles += usize::from(self.folder.remove(&file(key, SUFFIX))?);
            self.remove_rest(key);
        }
        Ok(forgotten)
    }

    /// Removes from the history what no profile has but those in the files `forgotten`. Returns how many files that are.
    fn forget_of_history(
        &self,
        across: &[u8],
        forgotten: &HashSet<String>,
    ) -> Result<usize, StoreError> {
        self.remove_rest(across);
        let name = file(across, SUFFIX);
        let known = match self.folder.read(&name, false)? {
            Content::Missing => return Ok(0),
            Content::Bytes(bytes) => codec::decode(&bytes).ok(),
            Content::Other => None,
        };
        let Some((_, mut history)) = known else {
            self.folder.remove(&name)?;
            return Ok(0);
        };
        let mut unheld: HashSet<Arc<[u8]>> =
            history.steps.iter().map(|step| Arc::clone(&step.path)).collect();
        for own in own_files(&self.folder)? {
            let is_left =
                own.ending == SUFFIX && own.name != name && !forgotten.contains(&own.name);
            if unheld.is_empty() || !is_left {
                continue;
            }
            if let Content::Bytes(bytes) = self.folder.read(&own.name, false)?
                && let Ok((_, profile)) = codec::decode(&bytes)
            {
                for step in &profile.steps {
                    unheld.remove(&step.path);
                }
            }
        }
        if unheld.is_empty() {
            return Ok(0);
        }
        history.steps.retain(|step| !unheld.contains(&step.path));
        if history.steps.is_empty() || self.write(across, &history).is_err() {
            self.folder.remove(&name)?; // Removing needs no room.
        }
        Ok(unheld.len())
    }

    /// Removes what is left over of a key: a damaged file, and one that was not written to its end.
    fn remove_rest(&self, key: &[u8]) {
        for ending in [DAMAGED, NEW] {
            let _ = self.folder.remove(&file(key, ending));
        }
    }
}
