//! Failures put into words for people. The program that met one sees an error number only.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use foretell_cache::backend::{BackendError, LeftOut};
use fuser::Errno;

/// Failures that `.foretell/stats` shows, the newest ones.
const KEPT: usize = 16;
/// Folders for which the number of names left out is remembered. At this number all are forgotten, and may be reported
/// again.
const FOLDERS_MAX: usize = 4096;

type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// See the [module](self).
pub(crate) struct Troubles {
    last: Mutex<VecDeque<(Instant, String)>>,
    left_out: Mutex<NamesLeftOut>,
    tell: Tell,
}

/// Names of listed folders that no file can have.
#[derive(Default)]
struct NamesLeftOut {
    count: u64,
    /// The number that was reported for each folder.
    told: HashMap<String, u64>,
}

impl Troubles {
    pub(crate) fn new(tell: Tell) -> Self {
        Troubles { last: Mutex::default(), left_out: Mutex::default(), tell }
    }

    fn note(&self, what: impl Display) {
        let what = what.to_string();
        (self.tell)(&what);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.push_back((Instant::now(), what));
        if last.len() > KEPT {
            last.pop_front();
        }
    }

    /// Reports a failure about a name, and returns its error number. The folder's own error numbers are passed on. A
    /// missing name and a store that cannot list are not failures.
    pub(crate) fn of_name(&self, path: &str, cause: &BackendError) -> Errno {
        let errno = match cause {
            BackendError::NotFound => return Errno::ENOENT,
            BackendError::Other { errno: Some(libc::ENOTSUP), .. } => return Errno::ENOTSUP,
            BackendError::Other { errno: Some(libc::ENOTDIR), .. } => return Errno::ENOTDIR,
            BackendError::Changed => return Errno::ESTALE, // The kernel looks the name up anew.
            BackendError::Denied(_) => Errno::EACCES,
            BackendError::Other { errno: Some(code), .. } => Errno::from_i32(*code),
            _ => Errno::EIO,
        };
        self.note(format_args!("{}: {cause}", if path.is_empty() { "/" } else { path }));
        errno
    }

    /// Reports that a folder has not answered for this long.
    pub(crate) fn of_silence(&self, after: Duration) {
        self.note(BackendError::Timeout(after));
    }

    /// Reports the names that were left out of a folder that was listed: once, and again when there are more of them.
    pub(crate) fn of_folder(&self, path: &str, left_out: &LeftOut) {
        let Some(example) = &left_out.example else { return };
        let mut known = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if known.told.len() == FOLDERS_MAX {
            known.told.clear();
        }
        let before = known.told.insert(path.to_owned(), left_out.count).unwrap_or(0);
        let more = left_out.count.saturating_sub(before);
        known.count += more;
        drop(known);
        if more > 0 {
            let path = if path.is_empty() { "/" } else { path };
            let count = left_out.count;
            let names = if count == 1 { "name is" } else { "names are" };
            self.note(format_args!(
                "{path}: {count} {names} left out, which no file can have: {example:?}"
            ));
        }
    }

    /// The number of names left out of all listed folders.
    pub(crate) fn names_left_out(&self) -> u64 {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Reports a failed read, and returns its error number.
    pub(crate) fn of_read(&self, error: &foretell_cache::ReadError) -> Errno {
        self.note(error);
        match error.cause {
            BackendError::Changed | BackendError::NotFound => Errno::ESTALE,
            BackendError::Denied(_) => Errno::EACCES,
            BackendError::Other { errno: Some(code), .. } => Errno::from_i32(code),
            _ => Errno::EIO,
        }
    }

    /// Reports trouble with a tier in front of a store. Programs lose speed only.
    pub(crate) fn of_tier(&self, line: &str) {
        self.note(line);
    }

    /// The last failures, and how many seconds ago each was; the newest comes last.
    pub(crate) fn last(&self) -> Vec<(f64, String)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().map(|(at, what)| (at.elapsed().as_secs_f64(), what.clone())).collect()
    }
}
