//! [Recordings](Recording) of whole programs by strace.
//!
//! Record with `strace -f -ttt -T -y -o FILE PROGRAM`. `-ttt` is required. Without `-T`, only calls that are
//! interrupted by another process's line have a duration. Without `-y`, the names of descriptors are derived
//! from the calls that created them, which `-e` must not leave out. `line` has the syntax, `tables` the
//! descriptors and names, and `calls` the effect of each call.
//!
//! Strace does not show offsets, so they are counted. A descriptor is followed through open, dup, fcntl, lseek,
//! reads and writes. Child processes share the open files of their parent, and threads share its descriptors.
//! If the recording lacks the open of a descriptor and `-y` shows its name, it begins at offset 0, and so does
//! a descriptor whose name differs from the file that was opened. Calls are missing then, which [`State`]
//! reports; a renamed file looks the same. Any other unopened descriptor counts as no file.
//!
//! * A: A child may act before the line that shows its id. It is then assigned to the call of the clone family
//!   that began first and has no child yet. This is wrong only if two processes create children in the same
//!   moment, and those mostly have the same descriptors.
//! * B: Without `-o`, or with a single process, lines have no process id. The first id that appears later, and
//!   is no child, belongs to that process.
//!
//! Calls that last until another process acts are [`What::Wait`]: waiting for a child's end; reads and the like
//! of descriptors that are no files; writes to pipes that `-y` shows; poll, select and epoll with a result;
//! futexes and locks. `calls` has the list. A call that a signal interrupted counts as a wait. A call that
//! timed out does not, and neither does sleep.
//!
//! Not here: pages read through mmap, and reads by io_uring and aio (no call shows them), `chroot`, appending
//! writes, and calls of 32-bit programs with other names (`_llseek`).
//!
//! What may fail: as for every [recording](super). A recording whose end is missing is read as far as it goes,
//! and lines that are not understood are skipped; [`State`] reports both. Time may run backwards in two cases:
//!
//! * C: between two processes, by at most `BACK_NS_MAX`;
//! * D: where a line is written when its call ends, as with `-z`, by at most the call's duration.

mod calls;
mod line;
mod tables;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use foretell_policy::{Nanos, ReaderId};

use super::check_read;
use super::error::{Fault, Place, TraceError};
use super::input::{Input, Stop};
use super::recording::{Call, PathIndex, Recording, State, What};
use line::{Done, Event, Line};
use tables::{Paths, Process};

/// Bytes of the longest line: with `-s`, strace prints the data that is read.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How the table begins that `-C` prints after all calls.
const SUMMARY: &[u8] = b"% time ";
/// How far a process's time may lie before the latest of the others (case C), in nanoseconds.
const BACK_NS_MAX: u64 = 10_000_000;
/// Stands for the process of lines without an id. No process has this id.
const NAMELESS: u64 = 0;
/// Strace's message that it begins to follow a process. It may stand inside the line of a call.
const ATTACHED: [&[u8]; 2] = [b"strace: Process ", b" attached"];

/// Reads the recording in the file `path`; relative names whose folder is unknown are resolved from `folder`.
///
/// # Errors
/// [`TraceError`]: the file cannot be read, or is no strace output with times.
pub fn open(path: &Path, folder: &Path) -> Result<Recording, TraceError> {
    let file = File::open(path);
    let file = file.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    of(file, path, folder)
}

/// Whether a file that begins with `prefix` is strace output, with or without times.
pub(super) fn is_of(prefix: &[u8]) -> bool {
    let first = prefix.split(|&byte| byte == b'\n').find(|line| !line.is_empty());
    first.is_some_and(|line| line::parse(line).is_some())
}

/// Reads the recording from `bytes`, plain or compressed with gzip or zstd; errors name it `path`.
///
/// # Errors
/// As for [`open`].
pub fn of(bytes: impl Read + 'static, path: &Path, folder: &Path) -> Result<Recording, TraceError> {
    let input = Input::with_lines(bytes, "strace", LINE_BYTES_MAX);
    let mut input = input.map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    let mut recorder = Recorder::new(folder);
    let stop = recorder.take_all(&mut input);
    stop.map_err(|stop| input.error(stop, path, Place::Line(input.taken())))?;
    Ok(recorder.finish())
}

/// A call whose end has not been seen.
struct Pending {
    name: Vec<u8>,
    text: Vec<u8>,
    /// Its line.
    line: u64,
    /// Its index among the calls; `None` if the call is not kept.
    index: Option<usize>,
}

struct Recorder {
    /// Times count from 1970 until all are known.
    recording: Recording,
    paths: Paths,
    folder: PathIndex,
    processes: HashMap<u64, Process>,
    pending: HashMap<u64, Pending>,
    /// Processes in a call that creates a child, while the child is unknown, in the order in which the calls
    /// began.
    forking: Vec<u64>,
    /// Children that acted before their ids were shown, and their assumed parents (case A).
    adopted: HashMap<u64, u64>,
    /// The id of the process without one (case B).
    nameless: Option<u64>,
    /// The time of the last line of each process.
    heard_ns: HashMap<u64, u64>,
    /// The latest time of any process.
    latest_ns: u64,
    /// The line that is being read.
    line: u64,
}

impl Recorder {
    fn new(folder: &Path) -> Self {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let mut paths = Paths::default();
        let folder = paths.index(folder.as_os_str().as_bytes());
        Recorder {
            recording: Recording::default(),
            paths,
            folder,
            processes: HashMap::new(),
            pending: HashMap::new(),
            forking: Vec::new(),
            adopted: HashMap::new(),
            nameless: None,
            heard_ns: HashMap::new(),
            latest_ns: 0,
            line: 0,
        }
    }

    fn take_all(&mut self, input: &mut Input) -> Result<(), Stop> {
        let mut is_strace = false;
        let mut is_summary = false;
        let mut held = Vec::new();
        // The state before the last line, and whether that line may be cut off.
        let (mut before, mut may_be_cut) = (State::default(), false);
        while let Some(text) = input.line()? {
            self.line += 1;
            (before, may_be_cut) = (self.recording.state, !line::is_whole(text));
            if let Some(start) = attached(text) {
                // It may stand inside a call, which then continues on the next line.
                held.extend_from_slice(&text[..start]);
                self.recording.passed_over += u64::from(start == 0);
                continue;
            }
            if text.is_empty() {
                continue;
            }
            if !held.is_empty() {
                held.extend_from_slice(text);
            }
            let text = if held.is_empty() { text } else { &held };
            is_summary |= text.starts_with(SUMMARY);
            match line::parse(text) {
                // With `-r`, times are differences, and the first is 0.
                Some(Line { time_ns: Some(0), .. }) if !is_strace => {
                    return Err(Fault::NoTime.into());
                }
                Some(Line { time_ns: Some(time_ns), pid, event }) => {
                    is_strace = true;
                    let column = line::time_column(text, pid);
                    self.take(pid, time_ns, column, event)?;
                }
                Some(Line { event: Event::Signal | Event::Ended | Event::Detached, .. }) => {
                    self.recording.passed_over += 1;
                }
                None if is_summary || line::is_between(text) => self.recording.passed_over += 1,
                None => self.not_understood(self.line),
                Some(_) => return Err(Fault::NoTime.into()),
            }
            held.clear();
        }
        let is_cut = !input.has_line_end() && may_be_cut;
        let state = &mut self.recording.state;
        if is_cut {
            *state = before;
        }
        let is_open = |pending: &Pending| !calls::is_exit(&pending.name);
        state.ends_within_call = is_cut || !held.is_empty() || self.pending.values().any(is_open);
        state.lines = self.line;
        if is_strace { Ok(()) } else { Err(Fault::NotStrace.into()) }
    }

    /// Counts `line` as not understood: it is no strace output, or another part of its call is missing or not understood.
    fn not_understood(&mut self, line: u64) {
        self.recording.passed_over += 1;
        let state = &mut self.recording.state;
        state.not_understood += 1;
        state.first_not_understood =
            Some(state.first_not_understood.map_or(line, |first| first.min(line)));
    }

    /// Checks the time of a line of process `pid`; the time is word `column` of the line.
    fn check_time(
        &mut self,
        pid: u64,
        time_ns: u64,
        column: u8,
        event: &Event,
    ) -> Result<(), Fault> {
        let took_ns = match event {
            Event::Whole { done, .. } => done.took_ns.unwrap_or_default(),
            _ => 0,
        };
        let own_ns = self.heard_ns.insert(pid, time_ns).unwrap_or_default();
        // Cases C and D.
        let written_ns = time_ns.saturating_add(took_ns).saturating_add(BACK_NS_MAX);
        let before_ns = if self.latest_ns > written_ns { self.latest_ns } else { own_ns };
        if before_ns > time_ns {
            return Err(Fault::Backwards { back_ns: before_ns - time_ns, column });
        }
        self.latest_ns = self.latest_ns.max(time_ns);
        Ok(())
    }

    fn take(
        &mut self,
        pid: Option<u64>,
        time_ns: u64,
        column: u8,
        event: Event,
    ) -> Result<(), Fault> {
        let pid = self.process_of(pid, &event);
        self.check_time(pid, time_ns, column, &event)?;
        if matches!(event, Event::Begun { .. } | Event::Whole { .. })
            && let Some(lost) = self.pending.remove(&pid)
            && !calls::is_exit(&lost.name)
        {
            // The line with the end of that call is missing.
            self.not_understood(lost.line);
        }
        match event {
            Event::Signal => self.recording.passed_over += 1,
            Event::Detached => {
                self.recording.passed_over += 1;
                self.pending.remove(&pid);
            }
            Event::Ended => {
                self.processes.remove(&pid);
                self.pending.remove(&pid);
            }
            Event::Superseded { thread } => self.rename(thread, pid),
            Event::Begun { name, text } => {
                let index = self.begin(pid, time_ns, name);
                if calls::makes_process(name) {
                    self.forking.push(pid);
                }
                let (name, text) = (name.to_owned(), text.to_owned());
                self.pending.insert(pid, Pending { name, text, line: self.line, index });
            }
            Event::Whole { name, done, text } => {
                if let Some(index) = self.begin(pid, time_ns, name) {
                    self.complete(pid, index, name, &done, text)?;
                }
            }
            Event::Resumed { name, text } => self.resume(pid, time_ns, name, text)?,
        }
        Ok(())
    }

    /// The process that acts, which is known from then on.
    fn process_of(&mut self, pid: Option<u64>, event: &Event) -> u64 {
        let Some(pid) = pid else {
            // Case B, after all processes but one have ended.
            let mut known = self.processes.keys();
            let pid = known.next().filter(|_| known.next().is_none()).copied();
            let pid = pid.unwrap_or(NAMELESS);
            self.processes.entry(pid).or_insert_with(|| Process::new(self.folder));
            return pid;
        };
        if self.processes.contains_key(&pid) {
            return pid;
        }
        let pending = &self.pending;
        let makes_process = |pending: &Pending| calls::makes_process(&pending.name);
        self.forking.retain(|parent| pending.get(parent).is_some_and(makes_process));
        let is_child = !self.forking.is_empty() && !matches!(event, Event::Resumed { .. });
        if is_child {
            let parent = self.forking.remove(0);
            let child = self.processes[&parent].child(&self.pending[&parent].text);
            self.processes.insert(pid, child);
            self.adopted.insert(pid, parent);
        } else if self.processes.contains_key(&NAMELESS) {
            self.rename(NAMELESS, pid);
            self.nameless.get_or_insert(pid);
        } else {
            self.processes.insert(pid, Process::new(self.folder));
        }
        pid
    }

    fn rename(&mut self, old: u64, new: u64) {
        if let Some(process) = self.processes.remove(&old) {
            self.processes.insert(new, process);
        }
        if let Some(pending) = self.pending.remove(&old) {
            self.pending.insert(new, pending);
        }
        let names = self.forking.iter_mut().chain(self.adopted.values_mut());
        names.filter(|name| **name == old).for_each(|name| *name = new);
    }

    fn begin(&mut self, pid: u64, time_ns: u64, name: &[u8]) -> Option<usize> {
        if calls::is_exit(name) {
            return None;
        }
        let (reader, began) = (ReaderId(pid), Nanos(time_ns));
        self.recording.calls.push(Call { reader, began, took: Nanos::ZERO, what: What::Other });
        Some(self.recording.calls.len() - 1)
    }

    fn resume(&mut self, pid: u64, time_ns: u64, name: &[u8], text: &[u8]) -> Result<(), Fault> {
        let pending = self.pending.remove(&pid).filter(|pending| pending.name == name);
        let Some(mut pending) = pending else {
            self.not_understood(self.line);
            return Ok(());
        };
        pending.text.extend_from_slice(text);
        match (line::done(&pending.text), pending.index) {
            (Some(done), Some(index)) => {
                self.complete(pid, index, name, &done, &pending.text)?;
                let call = &mut self.recording.calls[index];
                if done.took_ns.is_none() {
                    call.took = Nanos(time_ns).saturating_sub(call.began);
                }
            }
            (None, Some(_)) => self.not_understood(self.line),
            (_, None) => {}
        }
        Ok(())
    }

    /// Completes the call at `index` with its effect.
    fn complete(
        &mut self,
        pid: u64,
        index: usize,
        name: &[u8],
        done: &Done,
        text: &[u8],
    ) -> Result<(), Fault> {
        let process = self.processes.get_mut(&pid).expect("invariant: the acting process is known");
        let call = &mut self.recording.calls[index];
        call.what = calls::what(&mut self.paths, process, name, done, text);
        if let What::Read { offset_bytes, length_bytes, .. } = call.what {
            check_read(offset_bytes, length_bytes)?;
        }
        call.took = Nanos(done.took_ns.unwrap_or_default());
        self.recording.has_durations |= done.took_ns.is_some();
        self.recording.mapped.extend(calls::mapped(&mut self.paths, process, name, done));
        if call.what == What::Other && calls::reads_at_offset(name) {
            self.recording.unnamed_bytes += done.returned.unwrap_or_default();
        }
        let is_unnamed =
            call.what == What::Other && calls::opens(name, text) && done.returned.is_some();
        self.recording.unnamed_opens += u64::from(is_unnamed);
        self.recording.ring_calls += u64::from(calls::is_of_ring(name));
        if calls::makes_process(name) {
            self.forking.retain(|parent| *parent != pid);
            if let Some(child) = done.returned.filter(|child| ![NAMELESS, pid].contains(child)) {
                self.made(pid, child, text);
                let waits = calls::waits_for_child(name, text);
                self.recording.calls[index].what = What::Fork { child: ReaderId(child), waits };
            }
        }
        Ok(())
    }

    /// Records that `parent` created `child`, by a call with the arguments `text`.
    fn made(&mut self, parent: u64, child: u64, text: &[u8]) {
        match self.adopted.remove(&child) {
            // The child was assigned to `other`, whose own child is still to come.
            Some(other) if other != parent => self.forking.insert(0, other),
            Some(_) => {}
            None => {
                let process = self.processes[&parent].child(text);
                self.processes.insert(child, process);
            }
        }
    }

    fn finish(self) -> Recording {
        let mut recording = self.recording;
        recording.state.unopened = self.paths.guessed;
        recording.paths = self.paths.into_vec();
        // With `-z`, lines are in the order in which calls returned.
        recording.settle();
        for call in &mut recording.calls {
            if let (ReaderId(NAMELESS), Some(pid)) = (call.reader, self.nameless) {
                call.reader = ReaderId(pid);
            }
        }
        let seen: HashSet<ReaderId> = recording.calls.iter().map(|call| call.reader).collect();
        for call in &mut recording.calls {
            if let What::Fork { child, .. } = call.what
                && !seen.contains(&child)
            {
                call.what = What::Other;
                if !self.heard_ns.contains_key(&child.0) {
                    recording.state.unheard_child.get_or_insert(child);
                }
            }
        }
        recording
    }
}

/// Where in `text` strace's message begins that it follows another process.
fn attached(text: &[u8]) -> Option<usize> {
    let [before, after] = ATTACHED;
    let text = text.strip_suffix(after)?;
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let text = text[..text.len() - digits].strip_suffix(before)?;
    Some(text.len())
}

#[cfg(test)]
mod tests;
