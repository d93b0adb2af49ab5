//! Case G: what ends dozing, and which fetches count towards it.
//!
//! A program that waited for a file has brought it into memory. Finding its blocks there says nothing about the files behind
//! them: the program may only be ahead of the fetches. So the last files that programs have waited for are remembered.

use std::collections::VecDeque;

use hashbrown::HashSet;

use super::Policy;
use crate::contract::Access;
use crate::devices::flights::FlightWork;
use crate::hint::{Block, FileId};
use crate::tables::hash::Mix;

/// Files that are remembered, the last ones. As many may be looked up at once, by default, and be read meanwhile.
/// Unit: files. Reason: bound.
const FILES_MAX: usize = 1024;

/// The last files that programs have waited for.
#[derive(Debug)]
pub(super) struct WaitedFiles {
    known: HashSet<FileId, Mix>,
    /// The same files, in the order in which they were first waited for.
    order: VecDeque<FileId>,
}

impl WaitedFiles {
    pub(super) fn new() -> Self {
        WaitedFiles { known: HashSet::with_hasher(Mix), order: VecDeque::new() }
    }

    pub(super) fn note(&mut self, file: FileId) {
        if !self.known.insert(file) {
            return;
        }
        self.order.push_back(file);
        if self.order.len() > FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn has(&self, file: FileId) -> bool {
        self.known.contains(&file)
    }
}

impl Policy {
    /// G: a program that had to wait ends dozing. `is_foreseen`: a hint had named the block.
    #[inline(always)] // Every read passes here.
    pub(super) fn note_stall(
        &mut self,
        block: Block,
        stalled: bool,
        (access, is_foreseen): (Access, bool),
    ) {
        if stalled {
            self.end_dozing(block.file);
            let is_missed = access == Access::Miss;
            self.counts.waited += u64::from(is_missed);
            self.counts.unforeseen += u64::from(is_missed && !is_foreseen);
        }
    }

    #[inline(never)] // The rare part of a read.
    fn end_dozing(&mut self, file: FileId) {
        self.devices.iter_mut().for_each(|device| device.cached_run = 0);
        self.waited_files.note(file);
    }

    /// G: whether a fetch that found all its blocks in memory says that those behind them may be there too. It does not if a
    /// program has brought them.
    pub(super) fn was_cached_before(&self, work: &FlightWork) -> bool {
        let FlightWork::Read { slots, .. } = work else { return false };
        let file = slots.first().map(|&slot| self.arbiter.blocks()[slot].block().file);
        file.is_some_and(|file| !self.waited_files.has(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_files_are_remembered() {
        let mut files = WaitedFiles::new();
        let most = FILES_MAX as u64;
        (0..most).chain(0..10).for_each(|file| files.note(FileId(file)));
        assert!((0..most).all(|file| files.has(FileId(file))));
        files.note(FileId(most));
        assert!(!files.has(FileId(0)) && (1..=most).all(|file| files.has(FileId(file))));
    }
}
