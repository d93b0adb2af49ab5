//! A recording of the run: all that programs touch and read becomes events of a [recording](foretell_learn::recording).
//!
//! Events come from [`Accesses`](super::accesses), which knows the paths. They are encoded here, some 50 ns each, and a thread
//! writes the chunks ([`crate::recorded`]). The session never waits for that thread: up to [`CHUNKS_WAITING_MAX`] chunks wait
//! for it, and events beyond that are lost and counted.
//!
//! While a run is recorded, all programs report all names and reads. Nothing else is changed: nothing is prefetched.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use foretell_learn::recording::encoder::{CHUNK_BYTES, Encoder};
use foretell_learn::recording::{Event, Origin, PathId, What, without_dots};
use foretell_policy::{FileId, Nanos, ReaderId};
use foretell_protocol::{Record, Touch};

use super::accesses::monotonic_ns;
use super::learning::acts_of;
use crate::driver::file::file_id;
use crate::outside::Sighting;
use crate::recorded::{self, Record as ToRecord, Written};
use crate::report::RecordReport;
use crate::threads::Threads;

/// Chunks that wait for the writer: 8 MiB, a million events.
const CHUNKS_WAITING_MAX: usize = 128;

/// A chunk that is not full is written after this time, so that a killed manager costs so much.
const FLUSHED_EVERY_NS: u64 = 500_000_000;

/// Files whose paths are known. Of more, all are forgotten, and files that are still open are unnamed from then on.
const FILES_MAX: usize = 1 << 20;

/// Paths that command lines have named. Of more, further ones are not noted.
const NAMED_MAX: usize = 1 << 20;

/// See the [module](self).
pub(super) struct Recording {
    encoder: Encoder,
    /// `None` if nothing more can be written.
    writer: Option<SyncSender<Vec<u8>>>,
    written: Option<Written>,
    waiting: VecDeque<Vec<u8>>,
    /// CLOCK_MONOTONIC at the start, and when the last chunk was finished.
    began_ns: u64,
    flushed_ns: u64,
    files: HashMap<FileId, PathId>,
    /// Hashes of the paths that command lines of programs have named. Words that the run does not touch, such as passwords, are
    /// not written.
    named: HashSet<u64>,
    counts: RecordReport,
}

impl Recording {
    /// `None` if there can be no thread.
    pub(super) fn new(record: ToRecord, threads: &Threads) -> Option<Self> {
        let ToRecord { file, encoder, beginning, .. } = record;
        let (writer, written) = recorded::start(file, threads)?;
        let began_ns = monotonic_ns();
        Some(Recording {
            encoder,
            writer: Some(writer),
            written: Some(written),
            waiting: VecDeque::from_iter(Some(beginning).filter(|beginning| !beginning.is_empty())),
            began_ns,
            flushed_ns: began_ns,
            files: HashMap::new(),
            named: HashSet::new(),
            counts: RecordReport::default(),
        })
    }

    /// Whether anything can still be recorded.
    pub(super) fn goes_on(&self) -> bool {
        self.writer.is_some()
    }

    /// Adds what a process has done at `began_ns` of CLOCK_MONOTONIC.
    fn push(&mut self, ReaderId(process): ReaderId, began_ns: u64, took_ns: u64, what: What) {
        if self.writer.is_none() || self.waiting.len() >= CHUNKS_WAITING_MAX {
            self.counts.lost += 1;
            return;
        }
        let at_ns = began_ns.saturating_sub(self.began_ns);
        let process = u32::try_from(process).unwrap_or(0);
        self.encoder.push(&Event { at_ns, took_ns, process, what });
        self.counts.events += 1;
        if self.encoder.waiting_bytes() >= CHUNK_BYTES {
            self.finish_chunk();
        }
    }

    fn finish_chunk(&mut self) {
        self.waiting.extend(self.encoder.take_chunk());
        self.hand_over();
    }

    fn hand_over(&mut self) {
        while let Some(writer) = &self.writer
            && let Some(chunk) = self.waiting.pop_front()
        {
            match writer.try_send(chunk) {
                Ok(()) => {}
                Err(TrySendError::Full(chunk)) => return self.waiting.push_front(chunk),
                Err(TrySendError::Disconnected(_)) => self.writer = None, // It could not write.
            }
        }
    }

    /// Finishes the chunk that is being filled, if it is time.
    pub(super) fn flush(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.flushed_ns) >= FLUSHED_EVERY_NS {
            self.flushed_ns = now_ns;
            self.finish_chunk();
        }
    }

    fn path(&mut self, path: &[u8]) -> Option<PathId> {
        let has_room = self.writer.is_some() && self.waiting.len() < CHUNKS_WAITING_MAX;
        let known = self.encoder.paths();
        let number = if has_room { self.encoder.path(path) } else { None };
        self.counts.lost += u64::from(number.is_none());
        if let Some(path_id) =
            number.filter(|_| self.encoder.paths() > known && self.is_named(path))
        {
            self.push(ReaderId(0), monotonic_ns(), 0, What::Named { path: path_id });
        }
        // Files that a program outside has open come without an event each.
        if self.encoder.waiting_bytes() >= CHUNK_BYTES {
            self.finish_chunk();
        }
        number
    }

    /// A command line of a program names these paths.
    pub(super) fn names(&mut self, paths: impl Iterator<Item = PathBuf>) {
        for path in paths {
            if self.named.len() >= NAMED_MAX {
                return;
            }
            let plain = without_dots(path.as_os_str().as_bytes());
            if plain.len() > 1 {
                self.named.insert(self.named.hasher().hash_one(&plain[..]));
            }
        }
    }

    /// Whether a command line has named the path, or a folder above it.
    fn is_named(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|&(at, &byte)| byte == b'/' && at > 0);
        let mut ends = ends.map(|(at, _)| at).chain([path.len()]);
        let has = |end: usize| self.named.contains(&self.named.hasher().hash_one(&path[..end]));
        !self.named.is_empty() && ends.any(has)
    }

    /// The path of a file; a name in brackets if its opening was not seen.
    fn path_of(&mut self, file: FileId) -> Option<PathId> {
        if let Some(&known) = self.files.get(&file) {
            return Some(known);
        }
        let number = self.path(format!("<file {:x}>", file.0).as_bytes())?;
        self.identify(file, number);
        Some(number)
    }

    fn identify(&mut self, file: FileId, path: PathId) {
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        self.files.insert(file, path);
    }

    /// A process begins a program.
    pub(super) fn begins(&mut self, process: ReaderId, parent: Option<u64>, name: &str) {
        let parent = parent.and_then(|parent| u32::try_from(parent).ok()).unwrap_or(0);
        let what = What::Begins { parent, name: Arc::from(name.as_bytes()) };
        self.push(process, monotonic_ns(), 0, what);
    }

    /// A process has ended.
    pub(super) fn ends(&mut self, process: ReaderId) {
        self.push(process, monotonic_ns(), 0, What::Ends);
    }

    /// A process has touched a path; `opened`: the file that it has opened thereby.
    pub(super) fn touched(
        &mut self,
        process: ReaderId,
        path: &[u8],
        touch: &Touch,
        opened: Option<FileId>,
    ) {
        let Some(path) = self.path(path) else { return };
        opened.into_iter().for_each(|file| self.identify(file, path));
        let (acts, took_ns) = (acts_of(touch), touch.duration_ns);
        let began_ns = began_ns(touch.end_ns, took_ns);
        self.push(process, began_ns, took_ns, What::Touch { path, acts });
        self.counts.touches += 1;
    }

    /// A process has read.
    pub(super) fn has_read(&mut self, process: ReaderId, record: &Record) {
        let Some(file) = self.path_of(file_id(record.device, record.inode)) else { return };
        let (offset_bytes, length_bytes) = (record.offset_bytes, record.length_bytes);
        let (origin, took_ns) = (Origin::Call, record.duration_ns);
        let began_ns = began_ns(record.end_ns, took_ns);
        let what = What::Read { file, offset_bytes, length_bytes, origin };
        self.push(process, began_ns, took_ns, what);
        self.counts.reads += 1;
        self.counts.read_bytes = self.counts.read_bytes.saturating_add(length_bytes);
    }

    /// A process has touched parts of a mapped file. The first one carries the time that it has waited.
    pub(super) fn mapped(
        &mut self,
        process: ReaderId,
        (file, path): (FileId, &Path),
        ranges: &[Range<u64>],
        waited: Option<Nanos>,
    ) {
        let Some(path) = self.path(path.as_os_str().as_bytes()) else { return };
        self.identify(file, path);
        let mut took_ns = waited.map_or(0, |waited| waited.0);
        for range in ranges {
            self.seen(process, (path, range.clone()), Origin::Pages, std::mem::take(&mut took_ns));
        }
    }

    /// A process outside was seen to have read.
    pub(super) fn sighted(&mut self, sighting: &Sighting) {
        let process = ReaderId(sighting.process);
        if sighting.has_ended {
            return self.ends(process);
        }
        for (file, path) in &sighting.opened {
            let Some(path) = self.path(path.as_os_str().as_bytes()) else { continue };
            self.identify(*file, path);
        }
        let mut took_ns = u64::try_from(sighting.time.waited.as_nanos()).unwrap_or(0);
        for part in &sighting.progress.reads {
            let Some(path) = self.path_of(part.file) else { continue };
            let range = part.offset_bytes..part.offset_bytes.saturating_add(part.length_bytes);
            self.seen(process, (path, range), Origin::Outside, std::mem::take(&mut took_ns));
        }
    }

    /// A read whose call was not seen. It is over by now.
    fn seen(
        &mut self,
        process: ReaderId,
        (file, range): (PathId, Range<u64>),
        origin: Origin,
        took_ns: u64,
    ) {
        let (offset_bytes, length_bytes) = (range.start, range.end.saturating_sub(range.start));
        let what = What::Read { file, offset_bytes, length_bytes, origin };
        self.push(process, began_ns(0, took_ns), took_ns, what);
        self.counts.reads += 1;
        self.counts.read_bytes = self.counts.read_bytes.saturating_add(length_bytes);
    }

    /// Ends the recording. `dropped`: records that programs could not hand over. Without the end of the run (`is_whole`), what
    /// was recorded has none either.
    pub(super) fn finish(
        mut self,
        dropped: u64,
        is_whole: bool,
    ) -> (RecordReport, Option<Written>) {
        self.counts.lost += dropped;
        if is_whole {
            let what = What::Close { lost: self.counts.lost };
            self.encoder.push(&Event { at_ns: 0, took_ns: 0, process: 0, what });
        }
        self.waiting.extend(self.encoder.take_chunk());
        self.counts.files = self.files.len() as u64;
        // The writer takes what is left from the caller's thread.
        let written =
            self.written.take().map(|written| written.with_rest(self.writer, self.waiting));
        (self.counts, written)
    }
}

/// When a call began that returned at `end_ns`, or now if that is not known.
fn began_ns(end_ns: u64, took_ns: u64) -> u64 {
    let end_ns = if end_ns == 0 { monotonic_ns() } else { end_ns };
    end_ns.saturating_sub(took_ns)
}

#[cfg(test)]
mod tests {
    use foretell_learn::recording::Meta;
    use foretell_learn::recording::reader::Reader;

    use super::*;

    #[test]
    fn many_open_files_of_a_program_outside_fill_several_chunks() {
        let file = tempfile::tempfile().expect("a file");
        let mut record = ToRecord::new(file, &Meta::default());
        let mut bytes = std::mem::take(&mut record.beginning);
        let threads = Threads::new().expect("threads");
        let mut recording = Recording::new(record, &threads).expect("a thread");
        // Chunks stay here.
        let (writer, _chunks) = std::sync::mpsc::sync_channel(0);
        recording.writer = Some(writer);
        let name = |at: usize| format!("/{at}/{}", "x".repeat(4000));
        let opened = (0..400).map(|at| (FileId(at as u64), name(at).into())).collect();
        recording.sighted(&Sighting {
            process: 7,
            progress: Default::default(),
            time: Default::default(),
            opened,
            has_ended: false,
        });
        recording.waiting.extend(recording.encoder.take_chunk());
        assert!(recording.waiting.len() > 10, "{}", recording.waiting.len());
        bytes.extend(recording.waiting.iter().flatten());
        let mut reader = Reader::new(&bytes[..]).expect("a recording");
        while reader.next_event().expect("read").is_some() {}
        assert_eq!(reader.paths().len(), 400);
    }
}
