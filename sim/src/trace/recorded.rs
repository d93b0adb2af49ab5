//! [Recordings](Recording) of whole programs by `foretell record`.
//!
//! A reader is a process. What the format lacks is derived:
//!
//! * A process begins with its first event. Its parent creates it then. It works until its end, which is noticed up to
//!   `LATE_NS` later: a call of its parent in that time was made after the end.
//! * A parent that does nothing while a child ends has waited for it, from its own last call or the child's beginning on. What
//!   was seen meanwhile of its mapped files, it has touched before.
//! * A child that neither names nor reads anything is not in the recording, and its time is its parent's.
//! * Calls of one process that overlap, of its threads, are put one after another by the replay.
//! * A touched part of a mapped file is a read. It is seen some milliseconds after it was made, and the time that the process
//!   has waited for several of them is that of the first.
//!
//! What may fail: the file cannot be read, or is no recording. One that is cut off or damaged is read up to there.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Error, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_learn::recording::reader::{Ending, Reader, Refusal, is_recording};
use foretell_learn::recording::{self, Event, Origin, PathId, is_named};
use foretell_learn::steps::Acts;
use foretell_policy::{Nanos, ReaderId};

use super::end_of;
use super::error::TraceError;
use super::recording::{Call, PathIndex, Recording, What, Whom};

/// Bytes that are read at a time.
pub(super) const READ_BYTES: usize = 128 << 10;

/// The recorder hears of the end of a process within this time, in nanoseconds, also on a busy machine.
const LATE_NS: u64 = 20_000_000;

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
    let mut reader = Reader::new(bytes).map_err(not_one)?;
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

pub(super) fn not_one(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Io(error) => error,
        refusal => Error::other(refusal.to_string()),
    }
}

fn path_of(event: &Event) -> PathId {
    match event.what {
        recording::What::Touch { path, .. } => path,
        recording::What::Read { file, .. } => file,
        _ => PathId(u32::MAX),
    }
}

/// The beginnings and ends of a process's calls, in nanoseconds, in the order of the beginnings.
type Spans = Vec<(u64, u64)>;

#[derive(Default)]
struct Maker {
    recording: Recording,
    /// Reads through mappings, which were made some time before they were seen.
    mapped: Vec<Call>,
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
        if matches!(event.what, Done::Named { .. }) {
            return;
        }
        let process = self
            .processes
            .entry(event.process)
            .or_insert(Process { began: event.at_ns, ..Process::default() });
        process.began = process.began.min(event.at_ns);
        // Beginnings and ends are those that the recorder has noticed.
        if matches!(event.what, Done::Touch { .. } | Done::Read { .. }) {
            process.last = process.last.max(event.at_ns.saturating_add(event.took_ns));
        }
        let mut is_late = false;
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
            Done::Named { .. } => return,
            Done::Touch { path, acts } => of_touch(PathIndex(path.0), acts),
            Done::Read { file, offset_bytes, length_bytes, origin } => {
                is_late = origin == Origin::Pages;
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
            let calls = if is_late { &mut self.mapped } else { &mut self.recording.calls };
            calls.push(Call { reader, began, took, what });
            took = Nanos::ZERO;
        }
    }

    fn finish(mut self) -> Recording {
        self.recording.has_durations = true;
        self.recording.calls.sort_by_key(|call| call.began);
        let mut calls_of: HashMap<u32, Spans> = HashMap::new();
        for Call { reader, began, took, .. } in &self.recording.calls {
            let span = (began.0, began.0.saturating_add(took.0));
            calls_of.entry(reader.0 as u32).or_default().push(span);
        }
        self.settle_ends(&calls_of);
        let waits = self.waits(&calls_of);
        self.put_before_waits(&waits);
        // At one time, a child is created before it begins, and the wait for it comes last.
        let mut calls = self.forks();
        calls.append(&mut self.recording.calls);
        calls.append(&mut self.mapped);
        calls.extend(self.lives(&calls_of));
        calls.extend(waits);
        self.recording.calls = calls;
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

    /// Puts the ends of processes before the calls that their parents made, and before the parents' own ends, while the ends
    /// were not yet noticed.
    fn settle_ends(&mut self, calls_of: &HashMap<u32, Spans>) {
        let mut numbers: Vec<u32> = self.known_children().map(|(number, _)| number).collect();
        numbers.sort_by_key(|number| (self.processes[number].began, *number)); // Parents first.
        for number in numbers {
            let child = self.processes[&number];
            let Some(ended) = child.ended else { continue };
            let parent = self.processes[&child.parent];
            let lived = child.last.max(child.began);
            let since = lived.max(ended.saturating_sub(LATE_NS));
            let spans = calls_of.get(&child.parent).map_or(&[][..], |spans| spans);
            let next = spans.get(spans.partition_point(|&(began, _)| began <= since));
            let ends = parent.ended.filter(|&ended| ended > since);
            let next = next.map(|&(began, _)| began).into_iter().chain(ends).min();
            let settled = next.map_or(ended, |next| ended.min(next - 1)).max(lived);
            self.processes.entry(number).and_modify(|child| child.ended = Some(settled));
        }
    }

    /// The ends of processes, up to which they work, and the beginnings of those without calls.
    fn lives(&self, calls_of: &HashMap<u32, Spans>) -> Vec<Call> {
        let call = |number: u32, at| Call {
            reader: ReaderId(number.into()),
            began: Nanos(at),
            took: Nanos::ZERO,
            what: What::Other,
        };
        let mut lives = Vec::new();
        for (&number, process) in &self.processes {
            let begins = !calls_of.contains_key(&number);
            lives.extend(begins.then(|| call(number, process.began)));
            lives.extend(process.ended.map(|ended| call(number, ended)));
        }
        lives.sort_by_key(|call| (call.began, call.reader));
        lives
    }

    /// The waits of parents, where children end between two of their calls, in the order of their beginnings for each parent.
    fn waits(&self, calls_of: &HashMap<u32, Spans>) -> Vec<Call> {
        let ended = |child: &Process| child.ended.unwrap_or(child.last);
        let mut children: Vec<(u32, &Process)> = self.known_children().collect();
        children.sort_by_key(|(number, child)| (ended(child), *number));
        let mut waited: HashMap<u32, u64> = HashMap::new();
        let mut waits = Vec::new();
        for (number, child) in children {
            let (ended, parent) = (ended(child), &self.processes[&child.parent]);
            let spans = calls_of.get(&child.parent).map_or(&[][..], |spans| spans);
            let next = spans.partition_point(|&(began, _)| began <= ended);
            let free = next.checked_sub(1).map_or(parent.began, |at| spans[at].1);
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

    /// Reads through mappings that were seen while the process waited for a child were made before.
    fn put_before_waits(&mut self, waits: &[Call]) {
        let mut of: HashMap<ReaderId, Vec<(Nanos, Nanos)>> = HashMap::new();
        for &Call { reader, began, took, .. } in waits {
            of.entry(reader).or_default().push((began, Nanos(began.0 + took.0)));
        }
        for call in &mut self.mapped {
            let waits = of.get(&call.reader).map_or(&[][..], |waits| waits);
            let next = waits.partition_point(|&(began, _)| began < call.began);
            if let Some(&(began, ended)) = next.checked_sub(1).map(|at| &waits[at])
                && call.began <= ended
            {
                (call.began, call.took) = (began, Nanos::ZERO);
            }
        }
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

    use foretell_learn::recording::Meta;
    use foretell_learn::recording::encoder::Encoder;

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
        assert_eq!(of(What::Other), (6, 190_000, 0), "the child works until its end");
        let place = |what| recording.calls.iter().position(|call| call.what == what);
        assert!(place(What::Fork { child, waits: false }) < place(What::Wait(Whom::Child(child))));
        assert_eq!(recording.calls.len(), 6);
        assert_eq!(recording.warnings, ["2 events were lost"]);
        assert_eq!(recording.state.without_end, None);
    }

    #[test]
    fn an_end_that_is_noticed_late_was_before_the_parents_next_call() {
        let pages = recording::What::Read {
            file: PathId(0),
            offset_bytes: 0,
            length_bytes: 4096,
            origin: Origin::Pages,
        };
        let recording = recorded(&[
            (0, 0, 5, begins(1)),
            (0, 10, 5, read(0, 10)),
            (100, 0, 6, begins(5)),
            (110, 10, 6, read(0, 20)),
            (5000, 0, 5, pages.clone()),
            (500_000, 10, 5, read(0, 30)),
            (504_000, 0, 6, recording::What::Ends),
            (505_000, 0, 7, begins(5)),
            (505_900, 0, 5, recording::What::Ends),
            (506_000, 0, 7, recording::What::Ends),
            (0, 0, 0, recording::What::Close { lost: 0 }),
        ]);
        let of = |reader: u64, is_one: &dyn Fn(What) -> bool| -> Vec<(u64, u64)> {
            let calls = recording.calls.iter();
            let calls = calls.filter(|call| call.reader.0 == reader && is_one(call.what));
            calls.map(|call| (call.began.0, call.took.0)).collect()
        };
        let is_wait = |what| matches!(what, What::Wait(_));
        let is_read = |what| matches!(what, What::Read { .. });
        assert_eq!(of(6, &|what| what == What::Other), [(499_999_999, 0)]);
        assert_eq!(of(5, &is_wait), [(100_000, 499_899_999), (505_000_000, 899_999)]);
        assert_eq!(of(5, &is_read), [(0, 10_000), (100_000, 0), (500_000_000, 10_000)]);
        assert_eq!(of(7, &|what| what == What::Other), [(505_000_000, 0), (505_899_999, 0)]);
    }

    #[test]
    fn other_files_are_refused() {
        let error = of(&b"1 2 3 4 5 6 7 8"[..]).expect_err("text");
        assert!(error.to_string().contains("foretell record"), "{error}");
        assert!(!is_one(Path::new("/none")) && !is_one(Path::new("/etc/passwd")));
    }
}
