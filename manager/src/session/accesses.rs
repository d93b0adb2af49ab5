//! What programs touch and read, with the paths of the files: for [learning](super::learning), for
//! [recordings](super::recording) and for [rules](super::rules).
//!
//! Names come from the touches of programs, files and their parts from records of reads, from page tables, and from the
//! positions of open files of programs outside. A read names a file by its number. An open is a record, which has the number,
//! and a touch, which has the path; both returned at the same time. So a turn first takes in its records of opens, then its
//! touches, then its reads.

use std::collections::HashSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foretell_learn::starts::Starts;
use foretell_policy::{FileId, Nanos, ReaderId};
use foretell_protocol::{Record, RecordKind, Touch};
use rustix::time::{ClockId, clock_gettime};

use super::learning::Learning;
use super::recording::Recording;
use super::rules::Ruled;
use crate::driver::file::file_id;
use crate::mounts::Mounts;
use crate::outside::Sighting;
use crate::process_files::ProcessFiles;

/// Reads that wait for the open that names their file, in a turn.
const CALLS_MAX: usize = 1 << 16;

/// Files of which a path was looked for in vain, and in a turn at most.
const UNNAMED_MAX: usize = 4096;
const SEARCHES_MAX: usize = 8;

/// Opens that are kept for the next turn: more than threads that open at one moment.
const OPENS_KEPT: usize = 16;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Accesses {
    /// `None` if nothing is to be learned.
    pub(super) learning: Option<Learning>,
    /// `None` if nothing is to be recorded.
    pub(super) recording: Option<Recording>,
    /// `None` without rules.
    pub(super) rules: Option<Ruled>,
    /// Opens of this turn, and the last ones before: when they returned, and their files.
    opens: Vec<(u64, Opened)>,
    /// Reads of this turn.
    calls: Vec<Record>,
    path: Vec<u8>,
    /// Files that are read and have no path: private ones, and those that were closed before they were looked for.
    unnamed: HashSet<FileId>,
    /// When processes began, for learning.
    starts: Starts,
    /// The folder in which the run began.
    folder: Option<Arc<[u8]>>,
}

/// A file that was opened, and its length where the open tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) file: FileId,
    pub(super) size_bytes: Option<u64>,
}

impl Accesses {
    pub(super) fn new(
        learning: Option<Learning>,
        recording: Option<Recording>,
        rules: Option<Ruled>,
        folder: Option<Arc<[u8]>>,
    ) -> Self {
        Accesses { learning, recording, rules, folder, ..Accesses::default() }
    }

    /// Whether nobody wants to know.
    fn is_idle(&self) -> bool {
        self.learning.is_none() && self.recording.is_none() && !self.has_plans()
    }

    fn has_plans(&self) -> bool {
        self.rules.as_ref().is_some_and(Ruled::has_plans)
    }

    /// Whether programs are to report their names and reads.
    pub(super) fn watches(&self, now: Nanos) -> bool {
        self.follows_all() || self.learning.as_ref().is_some_and(|learning| learning.watches(now))
    }

    /// Whether programs are to report them from their start to their end.
    pub(super) fn follows_all(&self) -> bool {
        self.records() || self.has_plans()
    }

    /// Whether all of the run is recorded.
    pub(super) fn records(&self) -> bool {
        self.recording.as_ref().is_some_and(Recording::goes_on)
    }

    /// The folder in which the run began, as far as known.
    pub(super) fn folder(&self) -> Option<Arc<[u8]>> {
        self.folder.clone()
    }

    /// A process begins a program.
    pub(super) fn begins(&mut self, process: ReaderId, parent: Option<u64>, name: &str) {
        if self.learning.is_some() {
            self.starts.begins(process.0, monotonic_ns());
        }
        self.recording.iter_mut().for_each(|recording| recording.begins(process, parent, name));
    }

    /// A process has ended.
    pub(super) fn ends(&mut self, process: ReaderId) {
        self.starts.ends(process.0);
        self.recording.iter_mut().for_each(|recording| recording.ends(process));
    }

    /// The command line of a program names these paths.
    pub(super) fn names(&mut self, paths: impl Iterator<Item = PathBuf>) {
        if let Some(recording) = &mut self.recording {
            recording.names(paths);
        }
    }

    /// A program has read or opened a file. Its path may come with the touch that follows.
    pub(super) fn call(&mut self, record: &Record) {
        if self.is_idle() {
            return;
        }
        if record.kind == RecordKind::Open && record.inode != 0 {
            let file = file_id(record.device, record.inode);
            let size_bytes = record.opened_version().map(|version| version.size_bytes);
            self.opens.push((record.end_ns, Opened { file, size_bytes }));
        } else if record.kind == RecordKind::Read && self.calls.len() < CALLS_MAX {
            self.calls.push(*record);
        }
    }

    /// A program has touched a name in a folder.
    pub(super) fn touch(
        &mut self,
        process: ReaderId,
        (folder, name): (&[u8], &[u8]),
        touch: &Touch,
        mounts: &Mounts,
    ) {
        if self.is_idle() {
            return;
        }
        self.path.clear();
        self.path.extend_from_slice(folder);
        if !folder.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        let same = |&&(end_ns, _): &&(u64, Opened)| end_ns == touch.end_ns;
        // Most touches open nothing, and need no search.
        let opened = if touch.flags.is_open() { self.opens.iter().find(same) } else { None };
        let opened = opened.map(|&(_, opened)| opened);
        if let Some(learning) = &mut self.learning {
            let end_ns = if touch.end_ns == 0 { monotonic_ns() } else { touch.end_ns };
            self.starts.acts(process.0, end_ns.saturating_sub(touch.duration_ns));
            learning.touched(&self.path, touch, opened, mounts);
        }
        if let (Some(rules), Some(Opened { file, size_bytes })) = (&mut self.rules, opened)
            && !touch.flags.is_failed()
        {
            rules.opened(process, &self.path, (file, size_bytes));
        }
        if let Some(recording) = &mut self.recording {
            recording.touched(process, &self.path, touch, opened.map(|opened| opened.file));
        }
    }

    /// Takes in the reads of this turn, after its touches. A file that was opened while nobody wanted to know is looked for
    /// among those that the process has open.
    pub(super) fn take_calls(
        &mut self,
        process: ReaderId,
        (files, mounts): (Option<&ProcessFiles>, &Mounts),
    ) {
        let mut searches = 0;
        for record in self.calls.drain(..) {
            if let (Some(learning), Some(files)) = (&mut self.learning, files)
                && !learning.knows(&record)
                && searches < SEARCHES_MAX
                && self.unnamed.len() < UNNAMED_MAX
                && self.unnamed.insert(file_id(record.device, record.inode))
            {
                searches += 1;
                let numbers = (record.device, record.inode);
                if let Some(path) = files.path_of_open_file(process.0, numbers) {
                    learning.has_found(&record, path.as_os_str().as_bytes(), mounts);
                }
            }
            self.learning.iter_mut().for_each(|learning| learning.has_read(&record));
            if let Some(rules) = &mut self.rules {
                let file = file_id(record.device, record.inode);
                rules.has_read(process, file, (record.offset_bytes, record.length_bytes));
            }
            self.recording.iter_mut().for_each(|recording| recording.has_read(process, &record));
        }
        // The touch of the last ones may not be written yet.
        let past = self.opens.len().saturating_sub(OPENS_KEPT);
        self.opens.drain(..past);
    }

    /// A process has touched parts of a mapped file.
    pub(super) fn mapped(
        &mut self,
        process: ReaderId,
        (file, path): (FileId, &Path),
        (ranges, waited): (&[Range<u64>], Option<Nanos>),
        (mounts, now): (&Mounts, Nanos),
    ) {
        if let Some(learning) = &mut self.learning {
            let first_ns = self.starts.of_mapped(process.0, monotonic_ns());
            learning.mapped((file, path), ranges, (waited, first_ns), (mounts, now));
        }
        if let Some(rules) = &mut self.rules {
            rules.met(process, path.as_os_str().as_bytes(), file);
            for part in ranges {
                rules.has_read(process, file, (part.start, part.end - part.start));
            }
        }
        if let Some(recording) = &mut self.recording {
            recording.mapped(process, (file, path), ranges, waited);
        }
    }

    /// A process outside was seen to have read.
    pub(super) fn sighted(&mut self, sighting: &Sighting, mounts: &Mounts) {
        self.learning.iter_mut().for_each(|learning| learning.sighted(sighting, mounts));
        self.recording.iter_mut().for_each(|recording| recording.sighted(sighting));
        let process = ReaderId(sighting.process);
        if let Some(rules) = &mut self.rules {
            for (file, path) in &sighting.opened {
                rules.met(process, path.as_os_str().as_bytes(), *file);
            }
        }
    }
}

/// CLOCK_MONOTONIC.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
