//! The file systems on which files were found: what carries out their fetches ([`choice`]), and whether they keep a file's
//! pages in memory when the file is opened once more.
//!
//! Most file systems keep them. A FUSE file system decides it at each open, and many have the kernel drop all pages then:
//! those that libfuse makes from a program's callbacks, unless they were mounted with `kernel_cache` or `auto_cache`. On
//! these, prefetched pages are lost when the program opens the file, and the manager's own open loses pages that the program
//! has read.
//!
//! So each mounted FUSE file system is tried once, with its first file: a page is read, the file is opened again, and the page
//! is looked for. If the page is gone, no further file of that file system is opened.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::backend::choice::{self, ByType, Choice, FUSE};
use super::backend::{self, Backend, BackendKind};

/// All file systems on which files were found, by `st_dev`.
#[derive(Debug, Default)]
pub(crate) struct FileSystems {
    known: Mutex<HashMap<u64, Arc<FileSystem>>>,
}

/// One mounted file system.
#[derive(Debug)]
pub(crate) struct FileSystem {
    /// Whether it keeps pages. Not set until that is known.
    keeps: OnceLock<bool>,
    /// Held during the probe.
    probing: Mutex<()>,
    /// What carries out its fetches. Not set until that is known.
    choice: OnceLock<Choice>,
    /// What does so meanwhile.
    until_then: Choice,
}

impl FileSystems {
    /// The file system of `file`, whose `st_dev` is `device`.
    pub(crate) fn of(&self, device: u64, file: impl AsFd) -> Arc<FileSystem> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(FileSystem::new(file));
        Arc::clone(known.entry(device).or_insert_with(new))
    }
}

impl FileSystem {
    /// The file system on which `file` is.
    fn new(file: impl AsFd) -> Self {
        // No number of a file system that is known.
        let magic = rustix::fs::fstatfs(file).map_or(0, |found| found.f_type as u32);
        let keeps = if magic == FUSE { OnceLock::new() } else { OnceLock::from(true) };
        let (choice, until_then) = match choice::by_type(magic) {
            ByType::Chosen(choice) => (OnceLock::from(choice.clone()), choice),
            ByType::Unknown(choice) => (OnceLock::new(), choice),
        };
        FileSystem { keeps, probing: Mutex::default(), choice, until_then }
    }

    /// What carries out its fetches: `asked`, if it is a back end that is here. If the file system's own is not known yet,
    /// `measure` finds out whether it takes advice, and may wait for the device. It returns `None` if that file cannot tell.
    pub(crate) fn backend(
        &self,
        asked: BackendKind,
        measure: impl FnOnce() -> Option<bool>,
    ) -> &'static dyn Backend {
        match asked {
            BackendKind::Auto => self.choice(measure).backend,
            _ => backend::of_kind(asked).unwrap_or_else(|_| self.choice(measure).backend),
        }
    }

    /// As [`backend`](Self::backend), as far as it is known. Does not wait.
    pub(crate) fn backend_so_far(&self, asked: BackendKind) -> &'static dyn Backend {
        let own = || self.choice.get().unwrap_or(&self.until_then).backend;
        match asked {
            BackendKind::Auto => own(),
            _ => backend::of_kind(asked).unwrap_or_else(|_| own()),
        }
    }

    /// The file system's own back end, with the reason.
    pub(crate) fn choice(&self, measure: impl FnOnce() -> Option<bool>) -> &Choice {
        if let Some(choice) = self.choice.get() {
            return choice;
        }
        let _turn = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.choice.get().is_none().then(measure).flatten() {
            Some(takes_advice) => self.choice.get_or_init(|| Choice::measured(takes_advice)),
            None => self.choice.get().unwrap_or(&self.until_then),
        }
    }

    /// Whether the file system is known to drop a file's pages when the file is opened again.
    pub(crate) fn forgets(&self) -> bool {
        self.keeps.get() == Some(&false)
    }

    /// Whether the file system keeps pages. If that is not known, `probe` finds it out with one file. `probe` may wait for the
    /// device, and returns `None` if that file cannot tell.
    pub(crate) fn keeps(&self, probe: impl FnOnce() -> Option<bool>) -> bool {
        if let Some(&keeps) = self.keeps.get() {
            return keeps;
        }
        let _turn = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.keeps.get().copied().or_else(probe);
        // A file that cannot tell is treated as on a file system that keeps pages.
        found.is_none_or(|keeps| *self.keeps.get_or_init(|| keeps))
    }
}

/// The error for a file on a file system that drops pages at each open.
pub(crate) fn forgotten() -> io::Error {
    io::Error::other("its file system drops a file's cached data each time the file is opened")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_probed_until_a_file_can_tell_and_then_no_more() {
        let file = tempfile::tempfile().expect("a temporary file");
        let system = FileSystem { keeps: OnceLock::new(), ..FileSystem::new(file) };
        assert!(system.keeps(|| None) && !system.forgets());
        assert!(!system.keeps(|| Some(false)) && system.forgets());
        assert!(!system.keeps(|| unreachable!("it is known")));
    }

    #[test]
    fn an_unknown_file_system_is_measured_once_and_a_named_back_end_is_taken() {
        let file = tempfile::tempfile().expect("a temporary file");
        let system = FileSystem { choice: OnceLock::new(), ..FileSystem::new(file) };
        let kind = |asked, told: Option<bool>| system.backend(asked, || told).kind();
        let never = || unreachable!("it is known");
        assert_eq!(kind(BackendKind::Auto, None), BackendKind::Posix);
        assert_eq!(kind(BackendKind::Readahead, None), BackendKind::Readahead);
        assert_eq!(kind(BackendKind::Auto, Some(false)), BackendKind::ReadThrough);
        assert_eq!(system.backend(BackendKind::Auto, never).kind(), BackendKind::ReadThrough);
        assert_eq!(system.backend(BackendKind::Posix, never).kind(), BackendKind::Posix);
    }

    #[test]
    fn a_file_system_other_than_fuse_keeps() {
        let file = tempfile::tempfile().expect("a temporary file");
        let system = FileSystems::default().of(1, &file);
        if rustix::fs::fstatfs(&file).is_ok_and(|found| found.f_type as u32 != FUSE) {
            assert!(system.keeps(|| unreachable!("it is known")));
        }
    }
}
