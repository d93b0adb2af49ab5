//! Learning: keeps what the run touches, and looks ahead in what earlier runs of the workload have touched.
//!
//! What programs do comes from [`Accesses`](super::accesses::Accesses), which knows the paths. [`foretell_learn`] decides what
//! to keep and what to ask for. Here is what surrounds it: what it is told of the run, when a run is watched, and when a lesson
//! is saved. [`ahead`] asks for names and files.
//!
//! A recording by hand (`--replay`) takes the place of the profile. The store may be left out then.
//!
//! A run is watched from its start, and while its calls wait or a replay goes on. So a run whose data is in memory costs what
//! it costs without learning, and teaches nothing.
//!
//! The profile is read by a thread of its own, since the folder may lie on a slow file system. It is changed after the run, and
//! every [`SAVED_EVERY`] of a long one, each time in the place of the change before ([`Lesson`]).

mod ahead;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use foretell_learn::private::Private;
use foretell_learn::profile::Profile;
use foretell_learn::recorder::Recorder;
use foretell_learn::recording::{self, reader::Reader, replay::Moves};
use foretell_learn::replay::Replay;
use foretell_learn::steps::Acts;
use foretell_learn::store::{Store, StoreError};
use foretell_learn::workload::Workload;
use foretell_policy::{DeviceId, FileId, HinterId, Nanos, StreamId};
use foretell_protocol::{Record, STALL_THRESHOLD_NS, Touch, stall_threshold_ns};

use super::accesses::{Opened, monotonic_ns};
use super::predicting::Predicting;
use crate::driver::done::DoneQueue;
use crate::driver::file::file_id;
use crate::lesson::{Lesson, Writer};
use crate::mounts::Mounts;
use crate::outside::Sighting;
use crate::report::LearnReport;
use crate::threads::Threads;

/// The number of the replay among the walks.
pub(super) const REPLAY: u64 = u64::MAX;

/// A run is watched for so long from its start, and after a call that has waited.
const WATCHED: Nanos = Nanos(100_000_000);

/// A run of which so many calls have waited is cold.
const WAITS_MIN: u64 = 8;

/// A run whose slow calls took less time, or a smaller share of it, has nothing to learn, unless it was seen to wait.
const WAITED_MIN_NS: u64 = 2_000_000;
const WAITED_SHARE: u64 = 20;

/// So often what is known of a run is saved: at most as much of it is lost if the run is killed.
const SAVED_EVERY: Nanos = Nanos(60_000_000_000);

/// After so many lookups in a row that did not wait, the names there are in memory.
const QUICK_MAX: u32 = 128;

/// Bytes of a recording that are read at a time.
const READ_BYTES: usize = 128 << 10;

/// Stack of the thread that reads the profile.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// What a manager needs to learn.
#[derive(Debug)]
pub struct Learn {
    /// Where profiles are kept, and the workload of the run. `None`: nothing is kept.
    pub store: Option<(Store, Workload)>,
    /// What is looked ahead in, in place of a profile of the store.
    pub replay: Option<Replayed>,
    /// Paths that are not learned.
    pub private: Private,
    /// The folder in which the run begins; empty if that was removed.
    pub folder: Arc<[u8]>,
    /// Folders of temporary files. What lies in one, on its own file system, is not learned.
    pub temporary: Vec<PathBuf>,
}

/// A recording that a run is looked ahead with.
#[derive(Debug)]
pub struct Replayed {
    /// Its name, for people.
    pub name: String,
    /// The recording, at its beginning.
    pub file: File,
    /// Folders that have moved since.
    pub moves: Moves,
}

/// What was read at the start, if there was anything.
type Found = Result<Option<Known>, String>;

/// A profile that was found.
struct Known {
    profile: Profile,
    /// Whether it is of this very command.
    is_exact: bool,
    /// What the recording lacks, if it is of one.
    lacks: Option<String>,
}

/// See the [module](self).
pub(super) struct Learning {
    private: Private,
    /// `None` if nothing is kept.
    writer: Option<Writer>,
    /// A recording takes the place of the profile.
    is_by_hand: bool,
    saved_at: Nanos,
    saved_steps: usize,
    /// The last save has not ended.
    is_saving: Arc<AtomicBool>,
    /// CLOCK_MONOTONIC at the start.
    began_ns: u64,
    recorder: Recorder,
    found: Option<Receiver<Found>>,
    replay: Option<(Replay, bool)>,
    predicting: Predicting,
    problem: Option<String>,
    lacks: Option<String>,
    /// The devices of temporary folders.
    temporary: Vec<(Vec<u8>, DeviceId)>,
    /// The streams of files, by their devices.
    streams: Vec<(DeviceId, HinterId, StreamId)>,
    predicted_streams: Vec<(DeviceId, HinterId, StreamId)>,
    under_way: usize,
    /// Lookups in a row that did not wait.
    quick: HashMap<DeviceId, u32>,
    touches: u64,
    /// When a call has waited last, and for how long in all.
    waited_at: Nanos,
    waited: Nanos,
    waits: u64,
    /// What was looked up or fetched ahead in a row and was in memory.
    in_row: u32,
    /// The run has had to wait, or something ahead of it.
    is_cold: bool,
    is_watched: bool,
    /// It was watched all the time.
    has_seen_all: bool,
}

impl Learning {
    pub(super) fn new(
        learn: Learn,
        mounts: &Mounts,
        bell: Arc<DoneQueue>,
        threads: &Threads,
    ) -> Self {
        let temporary = learn
            .temporary
            .iter()
            .map(|folder| (folder.as_os_str().as_bytes().to_vec(), mounts.device_of(folder)));
        let is_by_hand = learn.replay.is_some();
        Learning {
            temporary: temporary.collect(),
            is_by_hand,
            found: load(learn.replay, learn.store.clone(), bell, threads),
            predicting: Predicting::new(
                learn.store.as_ref().filter(|_| !is_by_hand).map(|(store, _)| store.clone()),
            ),
            private: learn.private,
            writer: learn.store.map(|(store, workload)| Writer::new(store, workload)),
            saved_at: Nanos::ZERO,
            saved_steps: 0,
            is_saving: Arc::default(),
            began_ns: monotonic_ns(),
            recorder: Recorder::new(),
            replay: None,
            problem: None,
            lacks: None,
            streams: Vec::new(),
            predicted_streams: Vec::new(),
            under_way: 0,
            quick: HashMap::new(),
            touches: 0,
            waited_at: Nanos::ZERO,
            waited: Nanos::ZERO,
            waits: 0,
            in_row: 0,
            is_cold: false,
            is_watched: true,
            has_seen_all: true,
        }
    }

    /// Notes whether the run is watched now.
    fn note_sight(&mut self, now: Nanos) {
        let is_watched = self.watches(now);
        if std::mem::replace(&mut self.is_watched, is_watched) && !is_watched {
            self.lose_sight();
        }
    }

    /// Whether the run is to be watched.
    pub(super) fn watches(&self, now: Nanos) -> bool {
        let is_awaited = self.replay.as_ref().is_some_and(|(replay, _)| replay.is_awaited());
        let is_replayed = is_awaited && self.in_row < QUICK_MAX;
        is_replayed || self.found.is_some() || now.saturating_sub(self.waited_at) < WATCHED
    }

    /// So many calls of programs have waited, and have not only lost the processor.
    pub(super) fn have_waited(&mut self, calls: u64, now: Nanos) {
        if calls > 0 {
            self.waited_at = now;
        }
        self.waits += calls;
        self.is_cold |= self.waits >= WAITS_MIN;
    }

    fn at_ms(&self, end_ns: u64) -> u32 {
        let end_ns = if end_ns == 0 { monotonic_ns() } else { end_ns };
        u32::try_from(end_ns.saturating_sub(self.began_ns) / 1_000_000).unwrap_or(u32::MAX)
    }

    /// A program has touched a path; `opened`: the file that it has opened thereby.
    pub(super) fn touched(
        &mut self,
        path: &[u8],
        touch: &Touch,
        opened: Option<Opened>,
        mounts: &Mounts,
    ) {
        let waited = touch.duration_ns >= STALL_THRESHOLD_NS;
        if waited {
            self.waited.0 += touch.duration_ns;
        }
        self.touches += 1;
        let is_private = self.is_private(path, mounts);
        if is_private {
            opened.iter().for_each(|opened| self.recorder.forget_number(opened.file.0));
        } else {
            let at_ms = self.at_ms(touch.end_ns.saturating_sub(touch.duration_ns));
            if acts_of(touch) == Acts::OPEN {
                self.predicting.opened(path, at_ms, &self.recorder);
            }
            self.recorder.touch(path, acts_of(touch), at_ms);
            if let Some(Opened { file: FileId(number), size_bytes }) = opened {
                self.recorder.identify(number, path, at_ms);
                size_bytes.into_iter().for_each(|size| self.recorder.note_size(number, size));
            }
        }
        if let Some((replay, _)) = &mut self.replay
            && (!is_private || self.is_by_hand)
        {
            replay.touch(path);
        }
    }

    /// Whether the path is known of the file that a program reads.
    pub(super) fn knows(&self, record: &Record) -> bool {
        self.recorder.knows(file_id(record.device, record.inode).0)
    }

    /// A program has had this file open since before it was watched.
    pub(super) fn has_found(&mut self, record: &Record, path: &[u8], mounts: &Mounts) {
        if !self.is_private(path, mounts) {
            let at_ms = self.at_ms(record.end_ns.saturating_sub(record.duration_ns));
            self.recorder.touch(path, Acts::OPEN, at_ms);
            self.recorder.identify(file_id(record.device, record.inode).0, path, at_ms);
        }
    }

    /// A program has read.
    pub(super) fn has_read(&mut self, record: &Record) {
        let FileId(number) = file_id(record.device, record.inode);
        let start = record.offset_bytes;
        let at_ms = self.at_ms(record.end_ns.saturating_sub(record.duration_ns));
        if record.duration_ns >= stall_threshold_ns(record.length_bytes) {
            self.waited.0 += record.duration_ns;
        }
        match record.length_bytes {
            0 => self.recorder.note(number, Acts::END),
            bytes => self.read(number, start..start.saturating_add(bytes), at_ms),
        }
    }

    fn read(&mut self, number: u64, range: Range<u64>, at_ms: u32) {
        let again = self.recorder.read(number, range, at_ms);
        if let (Some(path), Some((replay, _))) = (again, &mut self.replay) {
            replay.touch(&path); // The run has come back to the file.
        }
    }

    /// A program outside was seen to have opened files, to have read, and to have waited.
    pub(super) fn sighted(&mut self, sighting: &Sighting, mounts: &Mounts) {
        let at_ms = self.at_ms(0);
        for (FileId(number), path) in &sighting.opened {
            let path = path.as_os_str().as_bytes();
            self.replay.iter_mut().for_each(|(replay, _)| replay.sighted(path));
            if !self.is_private(path, mounts) {
                self.predicting.opened(path, at_ms, &self.recorder);
                self.recorder.touch(path, Acts::OPEN, at_ms);
                self.recorder.identify(*number, path, at_ms);
            }
        }
        for part in &sighting.progress.reads {
            let range = part.offset_bytes..part.offset_bytes.saturating_add(part.length_bytes);
            self.read(part.file.0, range, at_ms);
        }
        if !sighting.progress.reads.is_empty() {
            self.waited.0 += u64::try_from(sighting.time.waited.as_nanos()).unwrap_or(u64::MAX);
        }
    }

    /// A process has touched parts of a mapped file. `first_ns`: when it was used first, on CLOCK_MONOTONIC, if that was before
    /// now.
    pub(super) fn mapped(
        &mut self,
        (FileId(number), path): (FileId, &Path),
        ranges: &[Range<u64>],
        (waited, first_ns): (Option<Nanos>, Option<u64>),
        (mounts, now): (&Mounts, Nanos),
    ) {
        if let Some(waited) = waited {
            (self.waited_at, self.waited.0) = (now, self.waited.0 + waited.0);
        }
        let (path, at_ms) = (path.as_os_str().as_bytes(), self.at_ms(0));
        if !self.recorder.knows(number) {
            if self.is_private(path, mounts) {
                return;
            }
            self.predicting.opened(path, at_ms, &self.recorder);
            match first_ns {
                Some(first_ns) => {
                    self.recorder.identify_early(number, path, self.at_ms(first_ns));
                }
                None => self.recorder.identify(number, path, at_ms),
            }
        }
        for range in ranges {
            self.read(number, range.clone(), at_ms);
        }
        self.recorder.note(number, Acts::MAP);
        if let Some((replay, _)) = &mut self.replay {
            replay.touch(path);
        }
    }

    fn is_private(&self, path: &[u8], mounts: &Mounts) -> bool {
        let is_temporary = |(folder, device): &(Vec<u8>, DeviceId)| {
            let rest = path.strip_prefix(&folder[..]);
            rest.is_some_and(|rest| rest.starts_with(b"/"))
                && mounts.device_of(Path::new(std::ffi::OsStr::from_bytes(path))) == *device
        };
        self.private.has(path) || self.temporary.iter().any(is_temporary)
    }

    /// Something was looked up or fetched ahead of the run; `waited`: it was not in memory.
    pub(super) fn looked_for(&mut self, waited: bool) {
        self.in_row = if waited { 0 } else { self.in_row.saturating_add(1) };
        self.is_cold |= waited;
    }

    fn take_found(&mut self) {
        let Some(receiver) = &self.found else { return };
        match receiver.try_recv() {
            Err(TryRecvError::Empty) => return,
            Ok(Ok(Some(Known { profile, is_exact, lacks }))) => {
                self.replay = Some((Replay::new(&profile, is_exact), is_exact));
                self.lacks = lacks;
            }
            Ok(Err(error)) => self.problem = Some(error),
            Ok(Ok(None)) | Err(TryRecvError::Disconnected) => {}
        }
        self.found = None;
    }

    /// Whether there is anything to be learned from the run so far.
    fn has_learned(&self) -> bool {
        // A short program may be over before it is seen to have given up the processor.
        let elapsed_ns = monotonic_ns() - self.began_ns;
        let has_waited = self.waited.0 >= WAITED_MIN_NS.max(elapsed_ns / WAITED_SHARE);
        (self.is_cold || has_waited) && !self.recorder.is_empty()
    }

    /// Saves what is known of a long run, in case that it is killed. A thread does it.
    pub(super) fn save(&mut self, now: Nanos, threads: &Threads) {
        if now.saturating_sub(self.saved_at) < SAVED_EVERY {
            return;
        }
        self.saved_at = now;
        let steps = self.recorder.len();
        if !self.has_learned() || std::mem::replace(&mut self.saved_steps, steps) == steps {
            return;
        }
        let Some(writer) = self.writer.clone() else { return };
        // The store may be on a file system that hangs.
        if self.is_saving.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_saving = Arc::clone(&self.is_saving);
        let Some(permit) = threads.permit() else { return };
        let lesson = writer.lesson(self.recorder.clone());
        let thread = thread::Builder::new().name("foretell-learned".into());
        let _ = thread.stack_size(STACK_BYTES).spawn(move || {
            let _permit = permit;
            let _ = lesson.learn(); // The last lesson tells why it cannot be written.
            is_saving.store(false, Ordering::Release);
        });
    }

    /// Steps that were asked for and that the run has come to, at most.
    pub(super) fn used_ahead(&self) -> u64 {
        let counts = self.replay.as_ref().map(|(replay, _)| replay.counts()).unwrap_or_default();
        counts.asked.min(counts.found) as u64
    }

    /// From here on some programs are not seen.
    pub(super) fn lose_sight(&mut self) {
        self.has_seen_all = false;
        self.replay.iter_mut().for_each(|(replay, _)| replay.lose_sight());
    }

    /// The report, and what is to be learned.
    pub(super) fn finish(mut self) -> (LearnReport, Option<Lesson>) {
        self.take_found(); // Of a short run it may not have been read before.
        let counts = self.replay.as_ref().map(|(replay, _)| replay.counts()).unwrap_or_default();
        let has_stopped = self.replay.as_ref().is_some_and(|(replay, _)| replay.has_stopped());
        let is_lesson = self.has_learned();
        let report = LearnReport {
            is_known: self.replay.is_some(),
            expected: counts.expected as u64,
            asked: counts.asked as u64,
            found: counts.found as u64,
            has_stopped,
            problem: self.problem,
            is_by_hand: self.is_by_hand,
            lacks: self.lacks,
            others: self.replay.as_ref().map_or(0, |(replay, _)| replay.others() as u64),
            kept: self.recorder.len() as u64,
            predicted: self.predicting.counts().asked,
            predicted_found: self.predicting.counts().found,
        };
        let Learning { writer, recorder, replay, is_by_hand, has_seen_all, .. } = self;
        let replay = replay.filter(|_| !is_by_hand);
        let lesson = writer
            .filter(|_| is_lesson)
            .map(|writer| writer.last_lesson(recorder, replay, has_seen_all));
        (report, lesson)
    }
}

/// Reads the recording, or the profile of this very command or of commands like it, by a thread. `None` if there can be no
/// thread, or there is nothing to read.
fn load(
    replay: Option<Replayed>,
    store: Option<(Store, Workload)>,
    bell: Arc<DoneQueue>,
    threads: &Threads,
) -> Option<Receiver<Found>> {
    if replay.is_none() && store.is_none() {
        return None;
    }
    let permit = threads.permit()?;
    let (sender, receiver) = channel();
    let thread = thread::Builder::new().name("foretell-learned".into()).stack_size(STACK_BYTES);
    let started = thread.spawn(move || {
        let _permit = permit;
        let found = match (replay, store) {
            (Some(replay), _) => of_recording(replay).map(Some),
            (None, Some((store, workload))) => {
                of_store(&store, &workload).map_err(|error| error.to_string())
            }
            (None, None) => Ok(None),
        };
        let _ = sender.send(found);
        bell.ring();
    });
    started.is_ok().then_some(receiver)
}

fn of_store(store: &Store, workload: &Workload) -> Result<Option<Known>, StoreError> {
    let known = |is_exact| move |profile| Known { profile, is_exact, lacks: None };
    match store.load(&workload.exact)? {
        None if workload.alike != workload.exact => {
            store.load(&workload.alike).map(|found| found.map(known(false)))
        }
        exact => Ok(exact.map(known(true))),
    }
}

fn of_recording(Replayed { name, file, moves }: Replayed) -> Result<Known, String> {
    let problem = |error: &dyn std::fmt::Display| format!("--replay: {name}: {error}");
    let reader = Reader::new(BufReader::with_capacity(READ_BYTES, file));
    let mut reader = reader.map_err(|error| problem(&error))?;
    let profile =
        recording::replay::profile(&mut reader, &moves).map_err(|error| problem(&error))?;
    let lacks = reader.ending().problem().map(|lacks| format!("--replay: {name}: {lacks}"));
    Ok(Known { profile, is_exact: true, lacks })
}

pub(super) fn acts_of(touch: &Touch) -> Acts {
    let flags = touch.flags;
    let act = match () {
        () if flags.is_folder() => Acts::LIST,
        () if flags.is_open() => Acts::OPEN,
        () => Acts::LOOK,
    };
    if flags.is_failed() { act | Acts::FAIL } else { act }
}
