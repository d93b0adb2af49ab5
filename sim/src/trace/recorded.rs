//! [Recordings](Recording) of whole programs by `foretell record`.
//!
//! A reader is a process. What the format lacks is derived:
//!
//! * A process begins with its first event. Its parent creates it then.
//! * A parent that does nothing while a child ends has waited for it, from its own last call or the child's beginning on.
//! * Calls of one process that overlap, of its threads, are put one after another by the replay.
//! * A touched part of a mapped file is a read. It is seen some milliseconds after it was made, and the time that the process has
//!   waited for several of them is that of the first.
//!
//! What may fail: the file cannot be read, or is no recording. One that is cut off or damaged is read up to there.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Error, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_learn::recording::reader::{Ending, Reader, Refusal, is_recording};
use foretell_learn::recording::{self, Event, PathId, is_named};
use foretell_learn::steps::Acts;
use foretell_policy::{Nanos, ReaderId};

use super::end_of;
use super::error::TraceError;
use super::recording::{Call, PathIndex, Recording, What, Whom};

/// Bytes that are read at a time.
const READ_BYTES: usize = 128 << 10;

/// Whether the file is a recording of `foretell record`. A file that cannot be read is none.
pub fn is_one(path: &Path) -> bool {
    let mut beginning = [0; recording::HEADER_BYTES];
    let is_file = std::fs::metadata(path).is_ok_and(|known| known.is_file());
    let mut read = || File::open(path)?.read_exact(&mut beginning);
    is_file && read().is_ok() && is_recording(&beginning)
}

/// Reads the recording in the file `path`.
///
/// # Errors
/// [`TraceError::Open`].
pub fn open(path: &Path) -> Result<Recording, TraceError> {
    let failed = |source| TraceError::Open { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    of(BufReader::with_capacity(READ_BYTES, file)).map_err(failed)
}

/// Reads the recording from `bytes`.
///
/// # Errors
/// It cannot be read, or is no recording.
pub fn of(bytes: impl Read) -> Result<Recording, Error> {
    let mut reader = Reader::new(bytes).map_err(|refusal| match refusal {
        Refusal::Io(error) => error,
        refusal => Error::other(refusal.to_string()),
    })?;
    let mut maker = Maker::default();
    while let Some(event) = reader.next_event()? {
        maker.take(&event, reader.paths().get(path_of(&event).0 as usize).map(|path| &**path));
    }
    let mut made = maker.finish();
    made.paths = reader.paths().iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
    made.state.without_end = reader.ending().problem();
    made.warnings.extend(match reader.ending() {
        Ending::Whole { lost } if lost > 0 => Some(format!("{lost} events were lost")),
        _ => None,
    });
    Ok(made)
}

fn path_of(event: &Event) -> PathId {
    match event.what {
        recording::What::Touch { path, .. } => path,
        recording::What::Read { file, .. } => file,
        _ => PathId(u32::MAX),
    }
}

#[derive(Default)]
struct Maker {
    recording: Recording,
    processes: HashMap<u32, Process>,
}

/// Times in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Process {
    parent: u32,
    began: u64,
    ended: Option<u64>,
    last: u64,
}

impl Maker {
    fn take(&mut self, event: &Event, path: Option<&[u8]>) {
        use recording::What as Done;
        let process = self
            .processes
            .entry(event.process)
            .or_insert(Process { began: event.at_ns, ..Process::default() });
        process.began = process.began.min(event.at_ns);
        process.last = process.last.max(event.at_ns.saturating_add(event.took_ns));
        let whats = match event.what {
            Done::Begins { parent, .. } => {
                if process.parent == 0 && parent != event.process {
                    process.parent = parent;
                }
                return;
            }
            Done::Ends => {
                process.ended = Some(event.at_ns);
                return;
            }
            Done::Close { .. } => {
                self.processes.remove(&event.process);
                return;
            }
            Done::Touch { path, acts } => of_touch(PathIndex(path.0), acts),
            Done::Read { file, offset_bytes, length_bytes, .. } => {
                let end = end_of(offset_bytes, length_bytes);
                let file = PathIndex(file.0);
                match (path.is_some_and(is_named), length_bytes, end) {
                    (false, ..) => {
                        let unnamed = &mut self.recording.unnamed_bytes;
                        *unnamed = unnamed.saturating_add(length_bytes);
                        [Some(What::Other), None]
                    }
                    (true, 0, _) | (true, _, None) => [Some(What::End(file)), None],
                    _ => [Some(What::Read { file, offset_bytes, length_bytes }), None],
                }
            }
        };
        let (reader, began) = (ReaderId(event.process.into()), Nanos(event.at_ns));
        let mut took = Nanos(event.took_ns);
        for what in whats.into_iter().flatten() {
            self.recording.calls.push(Call { reader, began, took, what });
            took = Nanos::ZERO;
        }
    }

    fn finish(mut self) -> Recording {
        self.recording.has_durations = true;
        let readers: HashSet<u64> = self.recording.calls.iter().map(|call| call.reader.0).collect();
        self.processes.retain(|&process, _| readers.contains(&process.into()));
        self.recording.calls.sort_by_key(|call| call.began);
        let mut more = self.waits();
        more.extend(self.forks());
        self.recording.calls.extend(more);
        self.recording.settle();
        self.recording
    }

    fn known_children(&self) -> impl Iterator<Item = (u32, &Process)> {
        let is_known = |&(_, child): &(u32, &Process)| self.processes.contains_key(&child.parent);
        self.processes.iter().map(|(&number, child)| (number, child)).filter(is_known)
    }

    fn forks(&self) -> Vec<Call> {
        let fork = |(number, child): (u32, &Process)| Call {
            reader: ReaderId(child.parent.into()),
            // A process that is known by its second program only was there before its parent.
            began: Nanos(child.began.max(self.processes[&child.parent].began)),
            took: Nanos::ZERO,
            what: What::Fork { child: ReaderId(number.into()), waits: false },
        };
        self.known_children().map(fork).collect()
    }

    /// The waits of parents, where children end between two of their calls.
    fn waits(&self) -> Vec<Call> {
        let mut children: Vec<(u32, &Process)> = self.known_children().collect();
        children.sort_by_key(|(number, child)| (child.ended.unwrap_or(child.last), *number));
        let mut calls_of: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for call in &self.recording.calls {
            let spans = calls_of.entry(call.reader.0).or_default();
            spans.push((call.began.0, call.began.0.saturating_add(call.took.0)));
        }
        let mut waited: HashMap<u32, u64> = HashMap::new();
        let mut waits = Vec::new();
        for (number, child) in children {
            let Some(spans) = calls_of.get(&u64::from(child.parent)) else { continue };
            let next = spans.partition_point(|&(began, _)| began <= child.last);
            let next_began = spans.get(next).map_or(u64::MAX, |&(began, _)| began);
            let ended = child.ended.unwrap_or(child.last).clamp(child.last, next_began);
            let free = next.checked_sub(1).map_or(0, |at| spans[at].1);
            let waited = waited.entry(child.parent).or_default();
            let began = free.max(child.began).max(*waited);
            if began < ended {
                *waited = ended;
                waits.push(Call {
                    reader: ReaderId(child.parent.into()),
                    began: Nanos(began),
                    took: Nanos(ended - began),
                    what: What::Wait(Whom::Child(ReaderId(number.into()))),
                });
            }
        }
        waits
    }
}

fn of_touch(path: PathIndex, acts: Acts) -> [Option<What>; 2] {
    match () {
        () if acts.has(Acts::FAIL) => [Some(What::Missing(path)), None],
        () if acts.has(Acts::LIST) => [Some(What::Open(path)), Some(What::List(path))],
        () if acts.has(Acts::OPEN) => [Some(What::Open(path)), None],
        () => [Some(What::Look(path)), None],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use foretell_learn::recording::encoder::Encoder;
    use foretell_learn::recording::{Meta, Origin};

    use super::*;

    fn recorded(events: &[(u64, u64, u32, recording::What)]) -> Recording {
        let (mut encoder, mut bytes) = Encoder::new(&Meta::default());
        assert!(encoder.path(b"/a/b").is_some() && encoder.path(b"<file 7>").is_some());
        for (at_us, took_us, process, what) in events {
            let (at_ns, took_ns) = (at_us * 1000, took_us * 1000);
            encoder.push(&Event { at_ns, took_ns, process: *process, what: what.clone() });
        }
        bytes.extend(encoder.take_chunk().expect("events"));
        of(&bytes[..]).expect("a recording")
    }

    fn begins(parent: u32) -> recording::What {
        recording::What::Begins { parent, name: Arc::from(&b"x"[..]) }
    }

    fn read(file: u32, length_bytes: u64) -> recording::What {
        let (file, origin) = (PathId(file), Origin::Call);
        recording::What::Read { file, offset_bytes: 0, length_bytes, origin }
    }

    #[test]
    fn calls_are_in_order_and_count_from_the_first() {
        let touch = |acts| recording::What::Touch { path: PathId(0), acts };
        let recording = recorded(&[
            (100, 0, 5, begins(0)),
            (300, 7, 5, read(0, 10)),
            (200, 5, 5, touch(Acts::OPEN)),
            (210, 0, 5, touch(Acts::LOOK | Acts::FAIL)),
            (400, 0, 5, read(0, 0)),
            (500, 0, 5, read(1, 99)),
            (600, 1, 5, touch(Acts::LIST)),
        ]);
        let path = PathIndex(0);
        let whats: Vec<(u64, u64, What)> =
            recording.calls.iter().map(|call| (call.began.0, call.took.0, call.what)).collect();
        let expected = [
            (0, 5000, What::Open(path)),
            (10_000, 0, What::Missing(path)),
            (100_000, 7000, What::Read { file: path, offset_bytes: 0, length_bytes: 10 }),
            (200_000, 0, What::End(path)),
            (300_000, 0, What::Other),
            (400_000, 1000, What::Open(path)),
            (400_000, 0, What::List(path)),
        ];
        assert_eq!(whats, expected);
        assert_eq!(recording.path(path), Path::new("/a/b"));
        assert!(recording.has_durations);
        let why = recording.state.without_end.expect("it has no end");
        assert!(why.starts_with("stopped early: "), "{why}");
        assert_eq!(recording.unnamed_bytes, 99);
    }

    #[test]
    fn a_parent_creates_its_child_and_waits_for_it() {
        let recording = recorded(&[
            (0, 0, 5, begins(1)),
            (0, 10, 5, read(0, 10)),
            (100, 0, 6, begins(5)),
            (150, 10, 6, read(0, 20)),
            (190, 0, 6, recording::What::Ends),
            (200, 10, 5, read(0, 30)),
            (0, 0, 0, recording::What::Close { lost: 2 }),
        ]);
        let child = ReaderId(6);
        let of = |what| {
            let found = recording.calls.iter().find(|call| call.what == what).expect("there");
            (found.reader.0, found.began.0, found.took.0)
        };
        assert_eq!(of(What::Fork { child, waits: false }), (5, 100_000, 0));
        assert_eq!(of(What::Wait(Whom::Child(child))), (5, 100_000, 90_000));
        assert_eq!(recording.calls.len(), 5);
        assert_eq!(recording.warnings, ["2 events were lost"]);
        assert_eq!(recording.state.without_end, None);
    }

    #[test]
    fn other_files_are_refused() {
        let error = of(&b"1 2 3 4 5 6 7 8"[..]).expect_err("text");
        assert!(error.to_string().contains("foretell record"), "{error}");
        assert!(!is_one(Path::new("/none")) && !is_one(Path::new("/etc/passwd")));
    }
}
